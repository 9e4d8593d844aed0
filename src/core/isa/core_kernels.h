/* core/isa/core_kernels.h - elementary functions over arrays, and matrices of any dtype as rows of f32: one table of
 * kernels per instruction set, all with the same bits. core_scalar.c, core_avx2.c, core_avx512.c and core_neon.c each
 * compile all kernels for one instruction set and fill one table. */
#ifndef NAPIER_CORE_ISA_CORE_KERNELS_H
#define NAPIER_CORE_ISA_CORE_KERNELS_H

#include <napier/types.h>
#include <stdbool.h>

#include "core/math/blocks.h"
#include "core/math/math_kernels.h"

typedef struct napier_core_kernels {
    napier_math_kernels math;
    /* out[r * step + i] = m[row + r][col + i], widened, for r < rows and i < cols, and 0 for cols <= i < padded, a
     * multiple of 16. Rows are written in order, so that with a step of fewer than 16 the next row overwrites the 0 of
     * the one before. flush: subnormals become 0, with their sign. */
    void (*pack)(const napier_const_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t cols, bool flush,
                 float *out, int64_t step, int64_t padded);
    /* out[row + r][col + l] = c[r * step + l], rounded to its dtype; NaN becomes the canonical one. stream: past the
     * caches. */
    void (*unpack)(const float *c, int64_t step, int64_t rows, int64_t lanes, napier_matrix out, int64_t row,
                   int64_t col, bool stream);
    /* out[r * step + i] = element k + i of row row + r, for r < rows and i < cols: whole blocks. */
    void (*widen_rows)(const napier_blocks *blocks, int64_t row, int64_t rows, int64_t k, int64_t cols, float *out,
                       int64_t step);
} napier_core_kernels;

/* Each exists only in builds for its processor. */
extern const napier_core_kernels napier_core_kernels_scalar, napier_core_kernels_avx2, napier_core_kernels_avx512,
    napier_core_kernels_neon;

/* The table of an instruction set, which must be available (napier_isa_available). Never NULL. */
const napier_core_kernels *napier_core_kernels_of(napier_isa isa);

#endif
