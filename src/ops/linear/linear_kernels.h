/* ops/linear/linear_kernels.h - products of rows, which ops/linear/matmul.inc.h implements for all instruction sets.
 *
 * Order. An output of a matrix product is one chain of fused multiply-adds over k, ascending, from 0. So it does not
 * depend on how the product is cut into tiles. squared_distance and dot: lane j of 64 adds elements j, j + 64, ... by
 * fma, ascending; then the lanes are folded by halves, 64, 32, 16, 8, 4, 2, 1. */
#ifndef NAPIER_OPS_LINEAR_LINEAR_KERNELS_H
#define NAPIER_OPS_LINEAR_LINEAR_KERNELS_H

#include <stdint.h>

#include "ops/linear/product_kernels.h"

enum { NAPIER_PANEL = 32 }; /* columns of a packed panel of B */

/* NAPIER_PANEL points, ready for near_pairs: coordinate i of point j is points[i * NAPIER_PANEL + j]. */
typedef struct napier_near_side {
    const float *points;
    const float
        *halves; /* [NAPIER_PANEL] half the squared length, minus a bound of its rounding error; +inf: no point */
    const float *limits; /* [NAPIER_PANEL] minus half the largest squared distance that is near */
} napier_near_side;

typedef struct napier_linear_kernels {
    /* sum of (a[i] - b[i])^2, and of a[i] * b[i], over n elements. */
    float (*squared_distance)(const float *a, const float *b, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
    /* c[r * ldc + j] = sum_k a[r * lda + k] * panel[k * NAPIER_PANEL + j] for r < rows, j < NAPIER_PANEL. */
    void (*product)(const float *a, int64_t lda, int64_t rows, const float *panel, int64_t k, float *c, int64_t ldc);
    /* Which pairs of two panels may be near? Bit j of hits[r] says that
     *     sum_i a_i[r] b_i[j] - halves_a[r] - halves_b[j] > min(limits_a[r], limits_b[j]),
     * where the left side is minus half the squared distance. Bit r of the result: hits[r] is not 0. */
    uint32_t (*near_pairs)(napier_near_side a, napier_near_side b, int64_t k, uint32_t hits[NAPIER_PANEL]);
    /* The squared distance of two boxes (0 if they touch or overlap): n a multiple of 16, low <= high. */
    float (*box_gap)(const float *low_a, const float *high_a, const float *low_b, const float *high_b, int64_t n);

    napier_product_kernels matmul;
} napier_linear_kernels;

/* Each exists only in builds for its processor. */
extern const napier_linear_kernels napier_linear_kernels_scalar, napier_linear_kernels_avx2,
    napier_linear_kernels_avx512, napier_linear_kernels_neon;

#endif
