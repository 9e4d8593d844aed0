/* ops/shards/shards.h - the records of napier/shards.h, and the arguments that its calls share.
 *
 *   sum      float max (NaN: the row has one), 32 bits of 0; count of maxima; 12 digits (ops/softmax/sum.h)
 *   final    float max (NaN, +inf or -inf: the kind of a special row), lse, log_sum, max_prob, scale, entropy;
 *            double total (ops/tokens/token_tile.h)
 *
 * A record may come from anywhere, so whatever it holds must be safe to compute with. What follows from another member
 * (the place of the digits, the exponent of the maximum) is not stored, but computed again. */
#ifndef NAPIER_OPS_SHARDS_SHARDS_H
#define NAPIER_OPS_SHARDS_SHARDS_H

#include <napier/shards.h>

#include "core/base/scope.h"
#include "ops/tokens/token_call.h"

typedef struct napier_shard_final {
    float max, lse, log_sum, max_prob, scale, entropy;
    double total;
} napier_shard_final;

_Static_assert(sizeof(napier_shard_final) == NAPIER_SHARD_FINAL_WORDS * sizeof(int64_t), "finals are packed");
_Static_assert(NAPIER_SHARD_SUM_WORDS == 2 + NAPIER_DIGITS, "sums are packed");
_Static_assert((int)NAPIER_SHARD_TILE == (int)NAPIER_TILE, "one tile");

/* The final of a row. */
napier_token_final napier_shard_final_at(const int64_t *finals, int64_t index);

/* int64_t [rows][words] as an argument. */
napier_argument napier_shard_words(const char *name, const int64_t *data, int64_t rows, int64_t words, unsigned is);

/* The z of ids, [rows * per_row], as an argument. */
napier_argument napier_shard_chosen(const float *chosen, napier_indices ids, int64_t rows, unsigned is);

/* Checks that columns first .. first + cols - 1 lie in a row of `vocabulary`; aligned: that they are whole tiles. */
napier_status napier_shard_columns(napier_context *context, int64_t first, int64_t cols, int64_t vocabulary,
                                   bool aligned);

/* Refuses the options keep, split and bf16_gradient. */
napier_status napier_shard_no_keep(napier_context *context, const napier_token_call *call);

#endif
