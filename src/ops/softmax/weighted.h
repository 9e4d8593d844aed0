/* ops/softmax/weighted.h - one tile of a weighted logsumexp in f32, element by element: the definition.
 *
 * Elements with weight 0 are ignored. The term b exp(x) of another element is written s p 2^k: |b| = s 2^e with s in
 * [1, 2), exp(x) = p 2^n, k = n + e. Its size is measured by y = x + e ln 2. y is rounded to f32; if the largest x of
 * the tile is beyond 2^20, it is computed in double, relative to that x. Elements more than 129 below the largest y are
 * dropped, and the largest y gives the tile's unit 2^E. Elements with the largest x are left out of the float sum, as
 * in sum.h: their weights are added exactly. If all weights are 1, then y = x and s = 1, and every operation is that of
 * napier_tile_by_definition. */
#ifndef NAPIER_OPS_SOFTMAX_WEIGHTED_H
#define NAPIER_OPS_SOFTMAX_WEIGHTED_H

#include "ops/softmax/sum.h"

#define NAPIER_LN2_F32 0x1.62e430p-1f

/* What the first pass over a tile, or over several, finds. */
typedef struct napier_weighted_look {
    double max;       /* the largest x; -inf if there is no element, or only -inf */
    double size;      /* the largest y; of one tile */
    int64_t unit;     /* E of the tile */
    bool nan;         /* x or b is NaN, or b is infinite where x is -inf: the row is NaN */
    bool plus, minus; /* a term is +inf, -inf */
} napier_weighted_look;

NAPIER_BOTH napier_weighted_look napier_weighted_nothing(void) {
    return (napier_weighted_look){.max = -HUGE_VAL, .size = -HUGE_VAL, .unit = INT64_MIN};
}

/* Records a weight that is not finite, or an element that is +inf or NaN. Returns whether the element is one. */
NAPIER_BOTH bool napier_weighted_special(double x, double b, napier_weighted_look *look) {
    if (x != x || b != b) {
        look->nan = true;
    } else if (fabs(b) == HUGE_VAL && x == -HUGE_VAL) {
        look->nan = true;
    } else if (fabs(b) == HUGE_VAL || x == HUGE_VAL) {
        look->plus |= b > 0;
        look->minus |= b < 0;
    } else {
        return false;
    }
    return true;
}

/* b = s 2^e, |s| in [1, 2); b finite, not 0. */
NAPIER_BOTH float napier_weight_parts(float b, int32_t *e) {
    const bool small = fabsf(b) < 0x1p-126f;
    const uint32_t bits = napier_float_bits(small ? b * 0x1p64f : b);
    *e = (int32_t)(bits >> 23 & 0xffu) - 127 - (small ? 64 : 0);
    return napier_float_of_bits((bits & 0x807fffffu) | 0x3f800000u);
}

/* y, where the tile's largest x is max. */
NAPIER_BOTH double napier_weighted_size(float x, float b, float max) {
    int32_t e;
    napier_weight_parts(b, &e);
    return napier_is_big(max) ? fma((double)e, NAPIER_LN2_DOUBLE, (double)x - (double)max)
                              : (double)fmaf((float)e, NAPIER_LN2_F32, x);
}

NAPIER_BOTH bool napier_weighted_counts(double size, const napier_weighted_look *look) {
    return napier_is_big((float)look->max) ? size - look->size >= -(double)NAPIER_CUTOFF
                                           : (float)size >= (float)look->size - NAPIER_CUTOFF;
}

/* E of a tile whose max and size are known; max is not huge. */
NAPIER_BOTH int64_t napier_weighted_unit(double size, float max) {
    return napier_is_big(max) ? napier_exp_parts_big(max).n + (int64_t)floor(size / NAPIER_LN2_DOUBLE + 0.5)
                              : napier_exp_parts_small((float)size).n;
}

NAPIER_BOTH napier_weighted_look napier_weighted_look_by_definition(const float *x, const float *b, int n) {
    napier_weighted_look look = napier_weighted_nothing();
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && !napier_weighted_special((double)x[i], (double)b[i], &look) && (double)x[i] > look.max) {
            look.max = (double)x[i];
        }
    }
    const float max = (float)look.max;
    if (!(fabsf(max) < NAPIER_HUGE)) {
        return look;
    }
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && x[i] <= max && fabsf(b[i]) < INFINITY) {
            const double size = napier_weighted_size(x[i], b[i], max);
            look.size = size > look.size ? size : look.size;
        }
    }
    look.unit = napier_weighted_unit(look.size, max);
    return look;
}

/* The sum of b exp(x) 2^(64 - E) over the elements below max. look: of this
 * tile, without special elements, max not huge. */
NAPIER_BOTH float napier_weighted_rest_by_definition(const float *x, const float *b, int n,
                                                     const napier_weighted_look *look) {
    const float max = (float)look->max;
    float lane[NAPIER_TILE_LANES] = {0};
    for (int i = 0; i < n; i++) {
        if (b[i] != 0 && x[i] < max && napier_weighted_counts(napier_weighted_size(x[i], b[i], max), look)) {
            const napier_exp_parts parts = napier_exp_parts_for(x[i], max);
            int32_t e;
            const float s = napier_weight_parts(b[i], &e);
            const int64_t k = parts.n + e - look->unit + NAPIER_TERM_SCALE;
            lane[i % NAPIER_TILE_LANES] += (s * parts.p) * napier_power_of_two(k);
        }
    }
    for (int h = NAPIER_TILE_LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            lane[i] += lane[i + h];
        }
    }
    return lane[0];
}

#endif
