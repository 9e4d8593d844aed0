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

/* Without this clang does not unroll loops over a patch of 24 registers, and keeps the patch in memory. */
#if defined(__clang__) && !defined(NAPIER_PLAIN_KERNELS)
#define NAPIER_PATCH_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NAPIER_PATCH_UNROLL NAPIER_UNROLL
#endif

typedef vf napier_patch[NAPIER_PATCH_ROWS][NAPIER_PATCH_VECTORS];

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

/* Up to 16 elements, 0 beyond. */
NAPIER_KERNEL vf napier_pack_load(const void *x, const napier_dtype dtype, int n, const bool flush) {
    if (n <= 0) {
        return vf_zero();
    }
    const vf v = n >= 16 ? napier_load16(x, dtype) : napier_load_part(x, dtype, n, vf_zero());
    return flush ? napier_flush_subnormal(v) : v;
}

/* Columns are neighbours in memory. */
NAPIER_KERNEL void napier_pack_along(const napier_dtype dtype, const bool flush, const char *x, int64_t row_bytes,
                                     int64_t rows, int64_t cols, float *out, int64_t step, int64_t padded) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t r = 0; r < rows; r++, x += row_bytes, out += step) {
        int64_t i = 0;
        for (; i + 16 <= cols; i += 16) {
            const vf v = napier_load16(x + i * size, dtype);
            vf_store(out + i, flush ? napier_flush_subnormal(v) : v);
        }
        for (; i < padded; i += 16) {
            vf_store(out + i, napier_pack_load(x + i * size, dtype, (int)(cols - i), flush));
        }
    }
}

/* Up to 16 rows by 16 columns, transposed. */
NAPIER_KERNEL void napier_pack_square(const napier_dtype dtype, const bool flush, const char *x, int64_t col_bytes,
                                      int height, int64_t cols, float *out, int64_t step) {
    vf v[16];
    NAPIER_PATCH_UNROLL
    for (int c = 0; c < 16; c++) {
        v[c] = c < cols ? napier_pack_load(x + c * col_bytes, dtype, height, flush) : vf_zero();
    }
    vf_transpose(v);
    NAPIER_PATCH_UNROLL
    for (int c = 0; c < 16; c++) {
        if (c < height) {
            vf_store(out + c * step, v[c]);
        }
    }
}

/* Prefetches what follows in each of 16 columns of so many bytes, and after their end in the next 16. */
NAPIER_KERNEL void napier_pack_fetch(const uintptr_t x, int64_t at, int64_t bytes, int64_t col_bytes) {
    enum { AHEAD = 256 };
    const int64_t ahead = at + AHEAD;
    const uintptr_t next = x + (uintptr_t)(ahead < bytes ? ahead : ahead - bytes + 16 * col_bytes);
    NAPIER_PATCH_UNROLL
    for (int c = 0; c < 16; c++) {
        __builtin_prefetch((const void *)(next + (uintptr_t)(c * col_bytes)));
    }
}

/* Rows are neighbours in memory: 16 x 16 at a time, transposed. far: the matrix is large, so what follows is prefetched. */
NAPIER_KERNEL void napier_pack_across(const napier_dtype dtype, const bool flush, const bool far, const char *x,
                                      int64_t col_bytes, int64_t rows, int64_t cols, float *out, int64_t step,
                                      int64_t padded) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t r = 0; r < rows; r += 16) {
        const int height = rows - r < 16 ? (int)(rows - r) : 16;
        const int64_t whole = height == 16 ? cols / 16 * 16 : 0;
        for (int64_t i = 0; i < whole; i += 16) {
            if (far) {
                napier_pack_fetch((uintptr_t)x + (uintptr_t)(i * col_bytes), r * size, rows * size, col_bytes);
            }
            napier_pack_square(dtype, flush, x + i * col_bytes + r * size, col_bytes, 16, 16, out + r * step + i, step);
        }
        for (int64_t i = whole; i < padded; i += 16) {
            napier_pack_square(dtype, flush, x + i * col_bytes + r * size, col_bytes, height, cols - i,
                               out + r * step + i, step);
        }
    }
}

/* Any strides. */
NAPIER_KERNEL void napier_pack_any(const napier_dtype dtype, const bool flush, const char *x, int64_t row_bytes,
                                   int64_t col_bytes, int64_t rows, int64_t cols, float *out, int64_t step,
                                   int64_t padded) {
    for (int64_t r = 0; r < rows; r++, out += step) {
        for (int64_t i = 0; i < padded; i += 16) {
            float wide[16] = {0};
            uint16_t narrow[16] = {0};
            const int n = cols - i < 16 ? (int)(cols - i) : 16;
            for (int c = 0; c < n; c++) {
                const char *at = x + r * row_bytes + (i + c) * col_bytes;
                memcpy(dtype == NAPIER_F32 ? (void *)(wide + c) : (void *)(narrow + c), at,
                       dtype == NAPIER_F32 ? 4 : 2);
            }
            vf_store(out + i, napier_pack_load(dtype == NAPIER_F32 ? (void *)wide : (void *)narrow, dtype, 16, flush));
        }
    }
}

NAPIER_KERNEL void napier_pack_as(const napier_dtype dtype, const bool flush, const napier_const_matrix *m, int64_t row,
                                  int64_t rows, int64_t col, int64_t cols, float *out, int64_t step, int64_t padded) {
    enum { FAR_BYTES = 1 << 20 };
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    const char *x = (const char *)m->data + (row * m->row_stride + col * m->col_stride) * size;
    if (m->col_stride == 1 || cols == 1) {
        napier_pack_along(dtype, flush, x, m->row_stride * size, rows, cols, out, step, padded);
    } else if (m->row_stride == 1) {
        const bool far = m->cols > 0 && m->rows >= FAR_BYTES / size / m->cols;
        napier_pack_across(dtype, flush, far, x, m->col_stride * size, rows, cols, out, step, padded);
    } else {
        napier_pack_any(dtype, flush, x, m->row_stride * size, m->col_stride * size, rows, cols, out, step, padded);
    }
}

static void napier_pack_product(const napier_const_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t cols,
                                bool flush, float *out, int64_t step, int64_t padded) {
    if (flush && m->dtype == NAPIER_BF16) {
        napier_pack_as(NAPIER_BF16, true, m, row, rows, col, cols, out, step, padded);
    } else {
        NAPIER_FOR_DTYPE(m->dtype, napier_pack_as, false, m, row, rows, col, cols, out, step, padded);
    }
}

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
        NAPIER_PATCH_UNROLL
        for (int v = 0; v < vectors; v++) {
            b[v] = vf_load(panel + i * k_step * NAPIER_LANES + 16 * v);
        }
        NAPIER_PATCH_UNROLL
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set(a[r * NAPIER_ROW_STEP + i * k_step]);
            NAPIER_PATCH_UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[r][v] = vf_fma(x, b[v], sum[r][v]);
            }
        }
    }
}

NAPIER_KERNEL void napier_patch_load(const int rows, const int vectors, const float *c, const int64_t c_step,
                                     napier_patch sum) {
    NAPIER_PATCH_UNROLL
    for (int r = 0; r < rows; r++) {
        NAPIER_PATCH_UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = c ? vf_load(c + r * c_step + 16 * v) : vf_zero();
        }
    }
}

NAPIER_KERNEL void napier_patch_store(const int rows, const int vectors, float *c, const int64_t c_step,
                                      napier_patch sum) {
    NAPIER_PATCH_UNROLL
    for (int r = 0; r < rows; r++) {
        NAPIER_PATCH_UNROLL
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
        NAPIER_PATCH_UNROLL
        for (int r = 0; r < rows; r++) {
            NAPIER_PATCH_UNROLL
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

/* ---- Results ----------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL vf napier_canonical(vf x) { return vf_select(vf_unordered(x, x), vf_canonical_nan(), x); }

NAPIER_KERNEL void napier_unpack_store(void *y, const napier_dtype dtype, int n, vf v, bool stream) {
    if (n >= 16) {
        if (dtype == NAPIER_F32 && stream && ((uintptr_t)y & 63) == 0) {
            vf_stream((float *)y, v);
        } else {
            napier_store16(y, dtype, v);
        }
    } else {
        napier_store_part(y, dtype, n, v);
    }
}

/* Columns are neighbours in memory. */
NAPIER_KERNEL void napier_unpack_along(const napier_dtype dtype, const float *c, int64_t step, int64_t rows,
                                       int64_t lanes, char *y, int64_t row_bytes, bool stream) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t l = 0; l < lanes; l += 16) {
            const vf v = napier_canonical(vf_load(c + r * step + l));
            napier_unpack_store(y + r * row_bytes + l * size, dtype, (int)(lanes - l), v, stream);
        }
    }
}

/* Rows are neighbours in memory: 16 x 16 at a time, transposed. */
NAPIER_KERNEL void napier_unpack_square(const napier_dtype dtype, const float *c, int64_t step, int64_t rows,
                                        int64_t lanes, char *y, int64_t col_bytes, bool stream) {
    vf v[16];
    NAPIER_PATCH_UNROLL
    for (int i = 0; i < 16; i++) {
        v[i] = i < rows ? napier_canonical(vf_load(c + i * step)) : vf_zero();
    }
    vf_transpose(v);
    NAPIER_PATCH_UNROLL
    for (int i = 0; i < 16; i++) {
        if (i < lanes) {
            napier_unpack_store(y + i * col_bytes, dtype, (int)rows, v[i], stream);
        }
    }
}

/* 32 rows of bf16, 16 lanes: two rows are rounded to the halves of a vector, which is transposed as one. */
NAPIER_KERNEL void napier_unpack_halves(const float *c, int64_t step, int64_t lanes, char *y, int64_t col_bytes,
                                        bool stream) {
    vf v[16];
    NAPIER_PATCH_UNROLL
    for (int i = 0; i < 16; i++) {
        const vf even = napier_canonical(vf_load(c + 2 * i * step));
        v[i] = vf_from_bits(napier_bf16_pairs(even, napier_canonical(vf_load(c + (2 * i + 1) * step))));
    }
    vf_transpose(v);
    NAPIER_PATCH_UNROLL
    for (int i = 0; i < 16; i++) {
        if (i < lanes) {
            napier_unpack_store(y + i * col_bytes, NAPIER_F32, 16, v[i], stream);
        }
    }
}

NAPIER_KERNEL void napier_unpack_across(const napier_dtype dtype, const float *c, int64_t step, int64_t rows,
                                        int64_t lanes, char *y, int64_t col_bytes, bool stream) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t l = 0; l < lanes; l += 16) {
        char *const out = y + l * col_bytes;
        int64_t r = 0;
        for (; dtype == NAPIER_BF16 && r + 32 <= rows; r += 32) {
            napier_unpack_halves(c + r * step + l, step, lanes - l, out + r * size, col_bytes, stream);
        }
        for (; r < rows; r += 16) {
            napier_unpack_square(dtype, c + r * step + l, step, rows - r, lanes - l, out + r * size, col_bytes, stream);
        }
    }
}

NAPIER_KERNEL void napier_unpack_any(const napier_dtype dtype, const float *c, int64_t step, int64_t rows,
                                     int64_t lanes, char *y, int64_t row_bytes, int64_t col_bytes) {
    const size_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t l = 0; l < lanes; l += 16) {
            float wide[16];
            napier_store16(wide, dtype, napier_canonical(vf_load(c + r * step + l)));
            for (int64_t i = 0; i < 16 && l + i < lanes; i++) {
                memcpy(y + r * row_bytes + (l + i) * col_bytes, (const char *)wide + (size_t)i * size, size);
            }
        }
    }
}

NAPIER_KERNEL void napier_unpack_as(const napier_dtype dtype, const float *c, int64_t step, int64_t rows, int64_t lanes,
                                    const napier_matrix *out, int64_t row, int64_t col, bool stream) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    char *y = (char *)out->data + (row * out->row_stride + col * out->col_stride) * size;
    if (out->col_stride == 1) {
        napier_unpack_along(dtype, c, step, rows, lanes, y, out->row_stride * size, stream);
    } else if (out->row_stride == 1) {
        napier_unpack_across(dtype, c, step, rows, lanes, y, out->col_stride * size, stream);
    } else {
        napier_unpack_any(dtype, c, step, rows, lanes, y, out->row_stride * size, out->col_stride * size);
    }
}

static void napier_unpack_product(const float *c, int64_t step, int64_t rows, int64_t lanes, napier_matrix out,
                                  int64_t row, int64_t col, bool stream) {
    NAPIER_FOR_DTYPE(out.dtype, napier_unpack_as, c, step, rows, lanes, &out, row, col, stream);
    if (stream) {
        vf_stream_fence();
    }
}

#undef NAPIER_PATCH_ROWS
#undef NAPIER_PATCH_VECTORS
#undef NAPIER_PATCH_REST
#undef NAPIER_PATCH_UNROLL
#undef NAPIER_HAS_FLUSH_MODE

#define NAPIER_PRODUCT_KERNELS                                                                                   \
    {                                                                                                            \
        .pack = napier_pack_product, .piece = napier_bf16_pieces, .chain = napier_chain, .pairs = napier_pairs,  \
        .direct_chain = napier_direct_chain, .direct_pairs = napier_direct_pairs, .few_chain = napier_few_chain, \
        .few_pairs = napier_few_pairs, .one_pairs = napier_one_pairs, .chain_lanes = napier_chain_lanes,         \
        .pairs_lanes = napier_pairs_lanes, .unpack = napier_unpack_product                                       \
    }

#endif
