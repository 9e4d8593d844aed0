/* ops/shards/shards.h - the records of napier/shards.h, and the arguments that its calls share.
 *
 *   sum      float max (NaN: the row has one), 32 bits of 0; count of maxima; 12 digits (ops/softmax/sum.h)
 *   final    see ops/tokens/token_record.h
 *
 * A record may come from anywhere, so whatever it holds must be safe to compute with. What follows from another member
 * (the place of the digits) is not stored, but computed again. */
#ifndef NAPIER_OPS_SHARDS_SHARDS_H
#define NAPIER_OPS_SHARDS_SHARDS_H

#include <napier/shards.h>

#include "core/base/scope.h"
#include "ops/tokens/token_call.h"
#include "ops/tokens/token_record.h"

_Static_assert(NAPIER_SHARD_FINAL_WORDS == NAPIER_TOKEN_FINAL_WORDS, "one kind of final");
_Static_assert(NAPIER_SHARD_SUM_WORDS == 2 + NAPIER_DIGITS, "sums are packed");
_Static_assert((int)NAPIER_SHARD_TILE == (int)NAPIER_TILE, "one tile");

/* The z of ids, [rows * per_row], as an argument. */
napier_argument napier_shard_chosen(const float *chosen, napier_indices ids, int64_t rows, unsigned is);

/* Checks that columns first .. first + cols - 1 lie in a row of `vocabulary`; aligned: that they are whole tiles. */
napier_status napier_shard_columns(napier_context *context, int64_t first, int64_t cols, int64_t vocabulary,
                                   bool aligned);

/* Refuses the options keep, split and bf16_gradient. */
napier_status napier_shard_no_keep(napier_context *context, const napier_token_call *call);

#endif
