/* ops/tokens/token_record.c - see token_record.h. */
#include "ops/tokens/token_record.h"

#include <string.h>

typedef struct record {
    float max, lse, log_sum, max_prob, scale, entropy;
    double total;
} record;

_Static_assert(sizeof(record) == NAPIER_TOKEN_FINAL_WORDS * sizeof(int64_t), "finals are packed");

void napier_token_final_save(const napier_token_final *final, int64_t *words) {
    record r = {.max = final->row.max,
                .lse = final->row.lse,
                .log_sum = final->row.log_sum,
                .max_prob = final->row.max_prob,
                .scale = final->row.scale,
                .entropy = final->entropy,
                .total = final->total};
    if (final->row.kind == NAPIER_ROW_NAN) {
        r.max = napier_nan();
    } else if (final->row.kind == NAPIER_ROW_PINF) {
        r.max = INFINITY;
    } else if (final->row.kind == NAPIER_ROW_MASKED) {
        r.max = -INFINITY;
    }
    memcpy(words, &r, sizeof r);
}

napier_token_final napier_token_final_at(const int64_t *finals, int64_t index) {
    record r;
    memcpy(&r, finals + index * NAPIER_TOKEN_FINAL_WORDS, sizeof r);
    const napier_row_kind kind = r.max != r.max         ? NAPIER_ROW_NAN
                                 : r.max == INFINITY    ? NAPIER_ROW_PINF
                                 : !(r.max > -INFINITY) ? NAPIER_ROW_MASKED
                                                        : NAPIER_ROW_FINITE;
    const bool reduced = kind == NAPIER_ROW_FINITE && !napier_is_huge(r.max);
    const napier_final row = {.kind = kind,
                              .max = r.max,
                              .lse = r.lse,
                              .log_sum = r.log_sum,
                              .max_prob = r.max_prob,
                              .scale = r.scale,
                              .factor = 1.0f,
                              .exponent = reduced ? napier_exp_parts_for(r.max, r.max).n : 0};
    return (napier_token_final){row, r.entropy, r.total};
}

napier_argument napier_token_words(const char *name, const int64_t *data, int64_t rows, int64_t words, unsigned is) {
    const napier_const_matrix view = {data, rows, words, words, 1, NAPIER_F64}; /* as wide; only its place matters */
    return (napier_argument)NAPIER_ARGUMENT(name, view, is, rows, words, NULL);
}

napier_argument napier_token_chosen(const char *name, const float *chosen, int64_t rows, int64_t per_row, unsigned is) {
    const napier_const_matrix view = {chosen, rows, per_row, per_row, 1, NAPIER_F32};
    return (napier_argument)NAPIER_ARGUMENT(name, view, is, rows, per_row, NULL);
}
