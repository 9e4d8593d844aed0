/* ops/softmax/weighted/weighted_f64.h - one tile of a weighted logsumexp in double precision: weighted.h with the
 * constants of sum_f64.h. y is always relative to the largest x. */
#ifndef NAPIER_OPS_SOFTMAX_WEIGHTED_WEIGHTED_F64_H
#define NAPIER_OPS_SOFTMAX_WEIGHTED_WEIGHTED_F64_H

#include "core/math/f64.h"
#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/weighted.h"

/* b = s 2^e, |s| in [1, 2); b finite, not 0. */
static inline double napier_f64_weight_parts(double b, int *e) {
    const bool small = fabs(b) < 0x1p-1022;
    const uint64_t bits = napier_double_bits(small ? b * 0x1p64 : b);
    *e = (int)(bits >> 52 & 0x7ff) - 1023 - (small ? 64 : 0);
    return napier_double_of_bits((bits & UINT64_C(0x800fffffffffffff)) | UINT64_C(0x3ff0000000000000));
}

/* y, relative to the largest x of the tile. */
static inline double napier_f64_weighted_size(double x, double b, double max) {
    int e;
    napier_f64_weight_parts(b, &e);
    return fma((double)e, NAPIER_LN2_DOUBLE, x - max);
}

/* E of a tile whose max and size are known. */
static inline int64_t napier_f64_weighted_unit(double size, double max) {
    return napier_f64_exp_parts(max).n + (int64_t)floor(size / NAPIER_LN2_DOUBLE + 0.5);
}

static inline napier_weighted_look napier_f64_weighted_look_by_definition(const double *x, const double *b, int n) {
    napier_weighted_look look = napier_weighted_nothing();
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && !napier_weighted_special(x[i], b[i], &look) && x[i] > look.max) {
            look.max = x[i];
        }
    }
    if (!(fabs(look.max) <= NAPIER_F64_HUGE)) {
        return look;
    }
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && x[i] <= look.max && fabs(b[i]) < HUGE_VAL) {
            const double size = napier_f64_weighted_size(x[i], b[i], look.max);
            look.size = size > look.size ? size : look.size;
        }
    }
    look.unit = napier_f64_weighted_unit(look.size, look.max);
    return look;
}

/* The sum of b exp(x) 2^(512 - E) over the elements below max, which is not huge. */
static inline double napier_f64_weighted_rest_by_definition(const double *x, const double *b, int n,
                                                            const napier_weighted_look *look) {
    double lane[NAPIER_F64_LANES] = {0};
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && x[i] < look->max &&
            napier_f64_weighted_size(x[i], b[i], look->max) - look->size >= -NAPIER_F64_CUTOFF) {
            const napier_f64_parts parts = napier_f64_exp_parts(x[i]);
            int e;
            const double s = napier_f64_weight_parts(b[i], &e);
            const int64_t k = parts.n + e - look->unit + NAPIER_F64_TERM_SCALE;
            lane[i % NAPIER_F64_LANES] += (s * parts.p) * napier_f64_power_of_two((int)k);
        }
    }
    return napier_f64_fold(lane);
}

#endif
