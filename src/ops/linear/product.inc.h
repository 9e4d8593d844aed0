/* ops/linear/product.inc.h - the kernels of a matrix product (product_kernels.h), compiled once per instruction set.
 *
 * A patch of the result stays in registers over a block of k. Each output is one chain of fma, whatever the patch, so
 * the size of the patch is chosen for speed only. */
#ifndef NAPIER_OPS_LINEAR_PRODUCT_INC_H
#define NAPIER_OPS_LINEAR_PRODUCT_INC_H

#include "core/math/elements.h"
#include "ops/linear/product_kernels.h"

/* 12 x 32 outputs are 24 of AVX-512's 32 registers; 6 x 16 are 12 of AVX2's 16 and 24 of NEON's 32. */
#if defined(NAPIER_LANES_AVX512)
#define NAPIER_PATCH_ROWS 12
#define NAPIER_PATCH_VECTORS 2
#else
#define NAPIER_PATCH_ROWS 6
#define NAPIER_PATCH_VECTORS 1
#endif
/* The rows that remain after whole patches are computed so many at a time, which still hides the latency of an fma. */
#define NAPIER_PATCH_REST 4

typedef vf napier_patch[NAPIER_PATCH_ROWS][NAPIER_PATCH_VECTORS];

/* ---- Pieces ------------------------------------------------------------------------------------------------------
 * 24 bits are three times 8: the upper half of an f32 is a bf16, and each difference is exact. */

/* The first piece of NaN is NaN, even if its payload is in the lower half. NaN and inf have no other pieces. */
NAPIER_KERNEL vf napier_bf16_piece(const vf x, const int piece) {
    const vf high = napier_upper_half(x);
    if (piece == 0) {
        return vf_select(vf_unordered(x, x), vf_canonical_nan(), high);
    }
    const vm finite = vf_lt(vf_from_bits(vi_and(vf_bits(x), vi_set(INT32_MAX))), vf_set(INFINITY));
    const vf rest = vf_select(finite, vf_sub(x, high), vf_zero()), middle = napier_upper_half(rest);
    return piece == 1 ? middle : vf_sub(rest, middle);
}

static void napier_bf16_pieces(float *x, int64_t rows, int64_t step, int piece) {
    for (int64_t r = 0; r < rows; r++, x += step) {
        vf_store(x, napier_flush_subnormal(napier_bf16_piece(vf_load(x), piece)));
    }
}

/* ---- One chain over k -------------------------------------------------------------------------------------------- */

/* Adds to the sums of `rows` rows every k_step-th k, `steps` of them. */
NAPIER_KERNEL void napier_patch_add(const int rows, const int vectors, const float *a, const float *panel,
                                    const int64_t steps, const int k_step, napier_patch sum) {
    for (int64_t i = 0; i < steps; i++) {
        vf b[NAPIER_PATCH_VECTORS];
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            b[v] = vf_load(panel + i * k_step * NAPIER_LANES + 16 * v);
        }
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set(a[r * NAPIER_ROW_STEP + i * k_step]);
            NAPIER_UNROLL_ALL
            for (int v = 0; v < vectors; v++) {
                sum[r][v] = vf_fma(x, b[v], sum[r][v]);
            }
        }
    }
}

NAPIER_KERNEL void napier_patch_load(const int rows, const int vectors, const float *c, const int64_t c_step,
                                     napier_patch sum) {
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = c ? vf_load(c + r * c_step + 16 * v) : vf_zero();
        }
    }
}

NAPIER_KERNEL void napier_patch_store(const int rows, const int vectors, float *c, const int64_t c_step,
                                      napier_patch sum) {
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            vf_store(c + r * c_step + 16 * v, sum[r][v]);
        }
    }
}

/* ---- bf16 by bf16 --------------------------------------------------------------------------------------------------
 * Blocks of 32 k; every step takes subnormals for 0 and makes subnormal results 0. x86 has that as a mode. It looks at
 * a result after rounding it to 24 bits of unbounded exponent; AArch64's mode looks before rounding, so that results
 * just below 2^-126 would differ. Where there is no such mode, ordinary arithmetic has to do:
 *
 *   Quick. If every element but 0 is at least 2^-56 in magnitude, it is a multiple of 2^-63, a product one of 2^-126,
 *   and so is every sum, rounded or not: none can be subnormal. Only the accumulator may bring smaller ones from
 *   elsewhere.
 *   Careful. A step whose result r has |r| < 2^-126 is flushed. |r| = 2^-126 may be the rounding of something smaller,
 *   which x86 flushes if its distance from 2^-126 is more than 2^-151: half a unit of 24 bits below. That is looked up
 *   in double, which holds a * b exactly, and the sum wherever it matters: a * b has 16 bits, so that its last one is
 *   not below 2^-167 where the sum is close to that bound. */

#if defined(__SSE2__) && !defined(NAPIER_LANES_SCALAR)
#define NAPIER_HAS_FLUSH_MODE 1
#else
#define NAPIER_HAS_FLUSH_MODE 0
#endif

NAPIER_KERNEL vf napier_magnitude(vf x) { return vf_from_bits(vi_and(vf_bits(x), vi_set(INT32_MAX))); }

NAPIER_KERNEL vf napier_add_flushed(vf a, vf b) {
    const vf sum = vf_add(a, b);
    return NAPIER_HAS_FLUSH_MODE ? sum : napier_flush_subnormal(sum);
}

static vf napier_settle_edge(vf a, vf b, vf c, vf r) {
    float x[16], y[16], z[16], result[16];
    vf_store(x, a), vf_store(y, b), vf_store(z, c), vf_store(result, r);
    for (int i = 0; i < 16; i++) {
        const double exact = (double)x[i] * (double)y[i] + (double)z[i];
        if (fabsf(result[i]) < 0x1p-126f || (fabsf(result[i]) == 0x1p-126f && fabs(exact) < 0x1p-126 - 0x1p-151)) {
            result[i] = copysignf(0.0f, result[i]);
        }
    }
    return vf_load(result);
}

NAPIER_KERNEL vf napier_fma_flushed(vf a, vf b, vf c) {
    const vf r = vf_fma(a, b, c);
    return vm_any(vf_le(napier_magnitude(r), vf_set(0x1p-126f))) ? napier_settle_edge(a, b, c, r) : r;
}

#if !NAPIER_HAS_FLUSH_MODE
/* One output vector at a time. Rarely needed, and the definition of this order. */
static void napier_pairs_careful(const napier_product_block *p) {
    for (int64_t r = 0; r < p->row_count; r++) {
        for (int64_t l = 0; l < p->lanes; l += 16) {
            const float *a = p->rows + r * NAPIER_ROW_STEP;
            const float *b = p->panels + l / NAPIER_LANES * p->panel_step + l % NAPIER_LANES;
            vf total = p->first ? vf_zero() : vf_load(p->c + r * p->c_step + l);
            for (int64_t k = 0; k < p->k; k += NAPIER_PAIRS_BLOCK) {
                vf sum[2] = {vf_zero(), vf_zero()};
                for (int64_t i = k; i < k + NAPIER_PAIRS_BLOCK; i++) {
                    sum[i % 2] = napier_fma_flushed(vf_set(a[i]), vf_load(b + i * NAPIER_LANES), sum[i % 2]);
                }
                total = napier_add_flushed(total, napier_add_flushed(sum[0], sum[1]));
            }
            vf_store(p->c + r * p->c_step + l, total);
        }
    }
}

/* Is there an element between 0 and 2^-56? n: a multiple of 16. */
NAPIER_KERNEL bool napier_has_tiny(const float *x, int64_t n) {
    vm tiny = vm_first(0);
    for (int64_t i = 0; i < n; i += 16) {
        const vf v = napier_magnitude(vf_load(x + i));
        tiny = vm_or(tiny, vm_and(vf_lt(v, vf_set(0x1p-56f)), vf_gt(v, vf_zero())));
    }
    return vm_any(tiny);
}

static bool napier_pairs_need_care(const napier_product_block *p) {
    bool care = false;
    for (int64_t r = 0; r < p->row_count && !care; r++) {
        care = napier_has_tiny(p->rows + r * NAPIER_ROW_STEP, p->k);
    }
    for (int64_t l = 0; l < p->lanes && !care; l += NAPIER_LANES) {
        care = napier_has_tiny(p->panels + l / NAPIER_LANES * p->panel_step, p->k * NAPIER_LANES);
    }
    return care;
}
#endif

/* ---- Patches of a block ------------------------------------------------------------------------------------------ */

NAPIER_KERNEL void napier_patch_chain(const int rows, const int vectors, const float *a, const float *panel, int64_t k,
                                      float *c, int64_t c_step, bool first) {
    napier_patch sum;
    napier_patch_load(rows, vectors, first ? NULL : c, c_step, sum);
    napier_patch_add(rows, vectors, a, panel, k, 1, sum);
    napier_patch_store(rows, vectors, c, c_step, sum);
}

/* First the even k of a block, then the odd ones, each with all registers. The sums of the even k are
 * held in memory. */
NAPIER_KERNEL void napier_patch_pairs(const int rows, const int vectors, const float *a, const float *panel,
                                      const int64_t k, float *c, const int64_t c_step, bool first) {
    float even[NAPIER_PATCH_ROWS * NAPIER_PATCH_VECTORS * 16];
    for (int64_t i = 0; i < k; i += NAPIER_PAIRS_BLOCK) {
        napier_patch sum;
        napier_patch_load(rows, vectors, NULL, 0, sum);
        napier_patch_add(rows, vectors, a + i, panel + i * NAPIER_LANES, NAPIER_PAIRS_BLOCK / 2, 2, sum);
        napier_patch_store(rows, vectors, even, 16 * vectors, sum);
        napier_patch_load(rows, vectors, NULL, 0, sum);
        napier_patch_add(rows, vectors, a + i + 1, panel + (i + 1) * NAPIER_LANES, NAPIER_PAIRS_BLOCK / 2, 2, sum);
        const bool start = first && i == 0;
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            NAPIER_UNROLL_ALL
            for (int v = 0; v < vectors; v++) {
                const vf both = vf_add(vf_load(even + (r * vectors + v) * 16), sum[r][v]);
                const vf total = start ? vf_zero() : vf_load(c + r * c_step + 16 * v);
                vf_store(c + r * c_step + 16 * v, napier_add_flushed(total, both));
            }
        }
    }
}

/* The rows stay in the first-level cache while they are multiplied with all panels. */
NAPIER_KERNEL void napier_patch_row(const bool pairs, const int rows, const napier_product_block *p, int64_t r) {
    const float *a = p->rows + r * NAPIER_ROW_STEP;
    for (int64_t l = 0; l < p->lanes;) {
        const float *panel = p->panels + l / NAPIER_LANES * p->panel_step + l % NAPIER_LANES;
        float *c = p->c + r * p->c_step + l;
        const bool whole = NAPIER_PATCH_VECTORS == 2 && p->lanes - l >= 32;
        if (pairs && whole) {
            napier_patch_pairs(rows, NAPIER_PATCH_VECTORS, a, panel, p->k, c, p->c_step, p->first);
        } else if (pairs) {
            napier_patch_pairs(rows, 1, a, panel, p->k, c, p->c_step, p->first);
        } else if (whole) {
            napier_patch_chain(rows, NAPIER_PATCH_VECTORS, a, panel, p->k, c, p->c_step, p->first);
        } else {
            napier_patch_chain(rows, 1, a, panel, p->k, c, p->c_step, p->first);
        }
        l += whole ? 32 : 16;
    }
}

NAPIER_KERNEL void napier_patches(const bool pairs, const napier_product_block *p) {
    int64_t r = 0;
    for (; r + NAPIER_PATCH_ROWS <= p->row_count; r += NAPIER_PATCH_ROWS) {
        napier_patch_row(pairs, NAPIER_PATCH_ROWS, p, r);
    }
    for (; r + NAPIER_PATCH_REST <= p->row_count; r += NAPIER_PATCH_REST) {
        napier_patch_row(pairs, NAPIER_PATCH_REST, p, r);
    }
    for (; r < p->row_count; r++) {
        napier_patch_row(pairs, 1, p, r);
    }
}

/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
static __attribute__((noinline)) void napier_chain(const napier_product_block *p) { napier_patches(false, p); }
static __attribute__((noinline)) void napier_pairs_quick(const napier_product_block *p) { napier_patches(true, p); }

static void napier_pairs(const napier_product_block *p) {
#if NAPIER_HAS_FLUSH_MODE
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ */
    napier_pairs_quick(p);
    _mm_setcsr(saved);
#else
    if (napier_pairs_need_care(p)) {
        napier_pairs_careful(p);
    } else {
        napier_pairs_quick(p);
    }
#endif
}

#include "ops/linear/direct.inc.h"

#include "ops/linear/few.inc.h"

#include "ops/linear/few_blocks.inc.h"

/* ---- Lane by lane ------------------------------------------------------------------------------------------------ */

static void napier_chain_lanes(const float *a, const float *b, int64_t k, float c[NAPIER_LANES]) {
    vf x = vf_load(c), y = vf_load(c + 16);
    for (int64_t i = 0; i < k; i++, a += NAPIER_LANES, b += NAPIER_LANES) {
        x = vf_fma(vf_load(a), vf_load(b), x);
        y = vf_fma(vf_load(a + 16), vf_load(b + 16), y);
    }
    vf_store(c, x);
    vf_store(c + 16, y);
}

/* The careful way on every machine, because few of these are ever needed. */
static void napier_pairs_lanes(const float *a, const float *b, int64_t k, float c[NAPIER_LANES]) {
    for (int l = 0; l < NAPIER_LANES; l += 16) {
        vf total = vf_load(c + l);
        for (int64_t begin = 0; begin < k; begin += NAPIER_PAIRS_BLOCK) {
            vf sum[2] = {vf_zero(), vf_zero()};
            for (int64_t i = begin; i < begin + NAPIER_PAIRS_BLOCK; i++) {
                const vf x = vf_load(a + i * NAPIER_LANES + l), y = vf_load(b + i * NAPIER_LANES + l);
                sum[i % 2] = napier_fma_flushed(x, y, sum[i % 2]);
            }
            total = napier_flush_subnormal(vf_add(total, napier_flush_subnormal(vf_add(sum[0], sum[1]))));
        }
        vf_store(c + l, total);
    }
}

#undef NAPIER_PATCH_ROWS
#undef NAPIER_PATCH_VECTORS
#undef NAPIER_PATCH_REST
#undef NAPIER_HAS_FLUSH_MODE

#define NAPIER_PRODUCT_KERNELS                                                                                   \
    {                                                                                                            \
        .piece = napier_bf16_pieces, .chain = napier_chain, .pairs = napier_pairs,                               \
        .direct_chain = napier_direct_chain, .direct_pairs = napier_direct_pairs, .few_chain = napier_few_chain, \
        .few_stored = napier_few_stored, .few_stored_lanes = NAPIER_FEW_CHAINS, .few_pairs = napier_few_pairs,   \
        .one_pairs = napier_one_pairs, .chain_lanes = napier_chain_lanes, .pairs_lanes = napier_pairs_lanes      \
    }

#endif
