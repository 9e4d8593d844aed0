/* ops/softmax/weighted/weighted_sum.h - the exact sum of a row's weighted exponentials, of any sign. It gives the same bits
 * in any order of additions and merges.
 *
 *   sum = { max, unit, weight[], ties[], rest[] }    the value  exp(max) * weight + rest
 *
 * A tile of 1024 elements is added as floats, in one fixed order (weighted.h). What tiles add to each other are integers
 * (signed_digits.h), as in sum.h. The weights of the elements that equal the maximum are added exactly. When the maximum
 * rises, these elements become ordinary terms, b exp(x) rounded one by one. `weight` does not show these any more, so
 * `ties` holds their sum from the beginning.
 *
 * The windows of `ties` and `rest` follow `unit`, the unit of the largest term of any tile. They move upwards only. A digit
 * that falls below a window is below every later window too, so it makes no difference when it is dropped. The window of
 * `weight` covers the whole range of the dtype. */
#ifndef NAPIER_OPS_SOFTMAX_WEIGHTED_WEIGHTED_SUM_H
#define NAPIER_OPS_SOFTMAX_WEIGHTED_WEIGHTED_SUM_H

#include "ops/softmax/softmax_kernels.h"
#include "ops/softmax/weighted/weighted_f64.h"

enum { NAPIER_WEIGHT_DIGITS = 13, NAPIER_WEIGHT_DIGITS_F64 = 88 };

/* A sum has fewer elements. Each adds less than 2^24 to a digit of `weight`, and to one of `ties` or `rest`, so that a digit
 * stays below 2^62. */
#define NAPIER_WEIGHTED_MOST (INT64_C(1) << 38)

typedef struct napier_weighted_sum {
    bool wide;             /* in f64; else f32, which uses the first digits of each array */
    bool nan, plus, minus; /* as in napier_weighted_look; if one is set, the rest means nothing */
    double max;            /* the largest x of all elements with a weight; -inf if there is none */
    int64_t unit;          /* the largest of all tiles; INT64_MIN if there is none, or if max is huge */
    uint64_t weight[NAPIER_WEIGHT_DIGITS_F64];
    uint64_t ties[NAPIER_F64_DIGITS], rest[NAPIER_F64_DIGITS];
} napier_weighted_sum;

typedef struct napier_weighted_result {
    double lse; /* of the size of the sum, rounded to the compute type; NaN too where sign is */
    double sign;
} napier_weighted_result;

static inline int napier_weight_digits(const napier_weighted_sum *s) {
    return s->wide ? NAPIER_WEIGHT_DIGITS_F64 : NAPIER_WEIGHT_DIGITS;
}
static inline int napier_weighted_digits(const napier_weighted_sum *s) {
    return s->wide ? NAPIER_F64_DIGITS : NAPIER_DIGITS;
}

void napier_weighted_sum_init(napier_weighted_sum *s, bool wide);

/* Adds a tile of n <= 1024 elements of the compute type. */
void napier_weighted_sum_add(const napier_softmax_kernels *kernels, napier_weighted_sum *s, const void *x,
                             const void *b, int n);
void napier_weighted_sum_merge(napier_weighted_sum *into, const napier_weighted_sum *from);
napier_weighted_result napier_weighted_sum_finish(const napier_weighted_sum *s);

/* Could the functions above have computed these fields from so many elements? For sums that are read from untrusted
 * bytes. */
bool napier_weighted_sum_valid(const napier_weighted_sum *s, int64_t elements);

/* The same for the only tile of a row, without digits for its rest. */
napier_weighted_result napier_weighted_one_tile(const napier_softmax_kernels *kernels, const float *x, const float *b,
                                                int n);
napier_weighted_result napier_weighted_one_tile_f64(const napier_softmax_kernels *kernels, const double *x,
                                                    const double *b, int n);

#endif
