/* core/isa/pack.inc.h - parts of a matrix of f32, f16 or bf16 as rows of f32, and back (core_kernels.h). Compiled once per
 * instruction set. */
#ifndef NAPIER_CORE_ISA_PACK_INC_H
#define NAPIER_CORE_ISA_PACK_INC_H

#include <stdbool.h>
#include <string.h>

#include "core/math/elements.h"

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

/* Up to 16 elements, 0 beyond. */
NAPIER_KERNEL vf napier_pack_load(const void *x, const napier_dtype dtype, int n, const bool flush) {
    const vf v = napier_load_some(x, dtype, n);
    return flush ? napier_flush_subnormal(v) : v;
}

/* Columns are neighbours in memory. */
NAPIER_KERNEL void napier_pack_along(const napier_dtype dtype, const bool flush, const char *x, int64_t row_bytes,
                                     int64_t rows, int64_t cols, float *out, int64_t step, int64_t padded) {
    const int64_t size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t r = 0; r < rows; r++, x += row_bytes, out += step) {
        int64_t i = 0;
        for (; i + 16 <= cols; i += 16) {
            vf_store(out + i, napier_pack_load(x + i * size, dtype, 16, flush));
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
    NAPIER_UNROLL_ALL
    for (int c = 0; c < 16; c++) {
        v[c] = c < cols ? napier_pack_load(x + c * col_bytes, dtype, height, flush) : vf_zero();
    }
    vf_transpose(v);
    NAPIER_UNROLL_ALL
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
    NAPIER_UNROLL_ALL
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

static void napier_pack(const napier_const_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t cols, bool flush,
                        float *out, int64_t step, int64_t padded) {
    if (flush && m->dtype == NAPIER_BF16) {
        napier_pack_as(NAPIER_BF16, true, m, row, rows, col, cols, out, step, padded);
    } else {
        NAPIER_FOR_DTYPE(m->dtype, napier_pack_as, false, m, row, rows, col, cols, out, step, padded);
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
    NAPIER_UNROLL_ALL
    for (int i = 0; i < 16; i++) {
        v[i] = i < rows ? napier_canonical(vf_load(c + i * step)) : vf_zero();
    }
    vf_transpose(v);
    NAPIER_UNROLL_ALL
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
    NAPIER_UNROLL_ALL
    for (int i = 0; i < 16; i++) {
        const vf even = napier_canonical(vf_load(c + 2 * i * step));
        v[i] = vf_from_bits(napier_bf16_pairs(even, napier_canonical(vf_load(c + (2 * i + 1) * step))));
    }
    vf_transpose(v);
    NAPIER_UNROLL_ALL
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

static void napier_unpack(const float *c, int64_t step, int64_t rows, int64_t lanes, napier_matrix out, int64_t row,
                          int64_t col, bool stream) {
    NAPIER_FOR_DTYPE(out.dtype, napier_unpack_as, c, step, rows, lanes, &out, row, col, stream);
    if (stream) {
        vf_stream_fence();
    }
}

#endif
