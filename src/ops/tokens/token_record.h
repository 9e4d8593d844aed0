/* ops/tokens/token_record.h - finals as records in a caller's memory: of napier_token_results and of napier/shards.h.
 *
 *   final    float max (NaN, +inf or -inf: the kind of a special row), lse, log_sum, max_prob, scale, entropy;
 *            double total (ops/tokens/token_tile.h)
 *
 * A record may come from anywhere, so whatever it holds must be safe to compute with. What follows from another member
 * (the exponent of the maximum) is not stored, but computed again. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_RECORD_H
#define NAPIER_OPS_TOKENS_TOKEN_RECORD_H

#include "core/base/view.h"
#include "ops/tokens/token_tile.h"

/* Writes a final to int64_t [NAPIER_TOKEN_FINAL_WORDS], and reads final `index` of an array of them. */
void napier_token_final_save(const napier_token_final *final, int64_t *words);
napier_token_final napier_token_final_at(const int64_t *finals, int64_t index);

/* int64_t [rows][words] as an argument. */
napier_argument napier_token_words(const char *name, const int64_t *data, int64_t rows, int64_t words, unsigned is);

/* The z of ids, float [rows][per_row], as an argument. */
napier_argument napier_token_chosen(const char *name, const float *chosen, int64_t rows, int64_t per_row, unsigned is);

#endif
