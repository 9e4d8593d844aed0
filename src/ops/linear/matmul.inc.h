/* ops/linear/matmul.inc.h - products of rows with rows, compiled once per instruction set.
 *
 * B is in panels of 32 columns, [k][32], so that one step of k is two adjacent vectors. A tile of the result
 * stays in registers over all k. Each output is one chain of fma in ascending k, whatever the tile, so the
 * size of the tile is chosen for speed only. */
#ifndef NAPIER_OPS_LINEAR_MATMUL_INC_H
#define NAPIER_OPS_LINEAR_MATMUL_INC_H

#include "core/simd/mask_bits.inc.h"
#include "ops/linear/dot.inc.h"
#include "ops/linear/linear_kernels.h"
#include "ops/linear/product.inc.h"

/* 12 x 32 outputs are 24 of AVX-512's 32 registers; 6 x 16 are 12 of AVX2's 16 and 24 of NEON's 32. */
#if defined(NAPIER_LANES_AVX512)
#define NAPIER_PRODUCT_ROWS 12
#define NAPIER_PRODUCT_VECTORS 2
#else
#define NAPIER_PRODUCT_ROWS 6
#define NAPIER_PRODUCT_VECTORS 1
#endif
#define NAPIER_PRODUCT_COLUMNS (16 * NAPIER_PRODUCT_VECTORS)
/* The rows that remain after whole tiles are computed in smaller tiles of so many
 * rows, which still hide the latency of an fma. */
#define NAPIER_PRODUCT_REST 4

/* ---- Two rows ---------------------------------------------------------------------------------------------------- */

static float napier_squared_distance(const float *a, const float *b, int64_t n) {
    return vf_hadd(napier_pair_lanes(true, a, b, n));
}

static float napier_dot(const float *a, const float *b, int64_t n) { return napier_dot_of(a, b, n); }

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

/* Adds to sum[r][v] the products of `rows` rows of A, element i of row r at a[r * row_step + i * k_step], with the
 * columns of a panel. */
NAPIER_KERNEL void napier_product_add(const int rows, const float *a, const int64_t row_step, const int64_t k_step,
                                      const float *panel, const int64_t k,
                                      vf sum[NAPIER_PRODUCT_ROWS][NAPIER_PRODUCT_VECTORS]) {
    for (int64_t i = 0; i < k; i++) {
        vf b[NAPIER_PRODUCT_VECTORS];
        NAPIER_UNROLL_ALL
        for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
            b[v] = vf_load(panel + i * NAPIER_PANEL + 16 * v);
        }
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set(a[r * row_step + i * k_step]);
            NAPIER_UNROLL_ALL
            for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
                sum[r][v] = vf_fma(x, b[v], sum[r][v]);
            }
        }
    }
}

/* ---- Matrix product ---------------------------------------------------------------------------------------------- */

NAPIER_KERNEL void napier_product_rows(const int rows, const float *a, int64_t lda, const float *panel, int64_t k,
                                       float *c, int64_t ldc) {
    for (int column = 0; column < NAPIER_PANEL; column += NAPIER_PRODUCT_COLUMNS) {
        vf sum[NAPIER_PRODUCT_ROWS][NAPIER_PRODUCT_VECTORS];
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            NAPIER_UNROLL_ALL
            for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
                sum[r][v] = vf_zero();
            }
        }
        napier_product_add(rows, a, lda, 1, panel + column, k, sum);
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            NAPIER_UNROLL_ALL
            for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
                vf_store(c + r * ldc + column + 16 * v, sum[r][v]);
            }
        }
    }
}

static void napier_product(const float *a, int64_t lda, int64_t rows, const float *panel, int64_t k, float *c,
                           int64_t ldc) {
    int64_t r = 0;
    for (; r + NAPIER_PRODUCT_ROWS <= rows; r += NAPIER_PRODUCT_ROWS) {
        napier_product_rows(NAPIER_PRODUCT_ROWS, a + r * lda, lda, panel, k, c + r * ldc, ldc);
    }
    for (; r + NAPIER_PRODUCT_REST <= rows; r += NAPIER_PRODUCT_REST) {
        napier_product_rows(NAPIER_PRODUCT_REST, a + r * lda, lda, panel, k, c + r * ldc, ldc);
    }
    for (; r < rows; r++) {
        napier_product_rows(1, a + r * lda, lda, panel, k, c + r * ldc, ldc);
    }
}

/* ---- Near pairs -------------------------------------------------------------------------------------------------- */

/* Rows first .. first + rows - 1 of a. Their hits are 0, or contain those of earlier columns. */
NAPIER_KERNEL void napier_near_rows(const int rows, const int first, const napier_near_side *a,
                                    const napier_near_side *b, int64_t k, uint32_t hits[NAPIER_PANEL]) {
    for (int column = 0; column < NAPIER_PANEL; column += NAPIER_PRODUCT_COLUMNS) {
        vf sum[NAPIER_PRODUCT_ROWS][NAPIER_PRODUCT_VECTORS];
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            NAPIER_UNROLL_ALL
            for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
                sum[r][v] = vf_sub(vf_set(-a->halves[first + r]), vf_load(b->halves + column + 16 * v));
            }
        }
        napier_product_add(rows, a->points + first, 1, NAPIER_PANEL, b->points + column, k, sum);
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            const vf limit = vf_set(a->limits[first + r]);
            NAPIER_UNROLL_ALL
            for (int v = 0; v < NAPIER_PRODUCT_VECTORS; v++) {
                const vm near = vf_gt(sum[r][v], vf_min(limit, vf_load(b->limits + column + 16 * v)));
                hits[first + r] |= napier_mask_bits(near) << (column + 16 * v);
            }
        }
    }
}

static uint32_t napier_near_pairs(napier_near_side a, napier_near_side b, int64_t k, uint32_t hits[NAPIER_PANEL]) {
    enum { WHOLE = NAPIER_PANEL / 12 * 12 };
    memset(hits, 0, NAPIER_PANEL * sizeof *hits);
    for (int r = 0; r < WHOLE; r += NAPIER_PRODUCT_ROWS) {
        napier_near_rows(NAPIER_PRODUCT_ROWS, r, &a, &b, k, hits);
    }
    for (int r = WHOLE; r < NAPIER_PANEL; r += NAPIER_PRODUCT_REST) {
        napier_near_rows(NAPIER_PRODUCT_REST, r, &a, &b, k, hits);
    }
    uint32_t rows = 0;
    for (int r = 0; r < NAPIER_PANEL; r++) {
        rows |= hits[r] != 0 ? 1u << r : 0u;
    }
    return rows;
}

static float napier_box_gap(const float *low_a, const float *high_a, const float *low_b, const float *high_b,
                            int64_t n) {
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += 16) {
        const vf right = vf_sub(vf_load(low_b + i), vf_load(high_a + i));
        const vf left = vf_sub(vf_load(low_a + i), vf_load(high_b + i));
        const vf gap = vf_max(vf_max(left, right), vf_zero());
        sum = vf_fma(gap, gap, sum);
    }
    return vf_hadd(sum);
}

#undef NAPIER_PRODUCT_ROWS
#undef NAPIER_PRODUCT_VECTORS
#undef NAPIER_PRODUCT_COLUMNS
#undef NAPIER_PRODUCT_REST

#endif
