/* ops/linear/gpu/matmul_tensor.cu - the matrix product of bf16 by bf16 and f16 by f16 on tensor cores:
 * batch-invariant. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "ops/linear/gpu/mma.cuh"

/* Two neighbours of a row in one access, where they can be. */
CUDA_INLINE void store_two(const napier_matrix *m, int64_t row, int64_t column, float x, float y) {
    const int64_t at = row * m->row_stride + column * m->col_stride;
    const bool both = column + 1 < m->cols;
    if (both && m->col_stride == 1 && at % 2 == 0 && m->dtype != NAPIER_F32 && ((uintptr_t)m->data & 3) == 0) {
        const uint32_t two = napier_narrow_bits(x, m->dtype) | napier_narrow_bits(y, m->dtype) << 16;
        ((uint32_t *)m->data)[at / 2] = two;
        return;
    }
    napier_store_float(m->data, m->dtype, at, x);
    if (both) {
        napier_store_float(m->data, m->dtype, at + m->col_stride, y);
    }
}

CUDA_INLINE void store_sums(const napier_matmul_job *job, const napier_mma_tile *t, const napier_mma_sums *sum) {
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        NAPIER_UNROLL
        for (int j = 0; j < 8; j++) {
            NAPIER_UNROLL
            for (int e = 0; e < 4; e += 2) {
                const int64_t row = t->row + napier_mma_row(i, e), column = t->column + napier_mma_column(j, e);
                if (row < job->product.rows && column < job->product.cols) {
                    store_two(&job->product, row, column, sum->x[i][j][e], sum->x[i][j][e + 1]);
                }
            }
        }
    }
}

/* The values from which the sums continue. */
CUDA_INLINE void load_sums(const napier_matmul_job *job, const napier_mma_tile *t, napier_mma_sums *sum) {
    const napier_matrix *const m = &job->product;
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        NAPIER_UNROLL
        for (int j = 0; j < 8; j++) {
            NAPIER_UNROLL
            for (int e = 0; e < 4; e++) {
                const int64_t row = t->row + napier_mma_row(i, e), column = t->column + napier_mma_column(j, e);
                if (row < m->rows && column < m->cols) {
                    sum->x[i][j][e] = ((const float *)m->data)[row * m->row_stride + column * m->col_stride];
                }
            }
        }
    }
}

CUDA_INLINE void product(const bool f16, const bool rows_across, const bool columns_across,
                         const napier_matmul_job *job) {
    CUDA_SHARED(unsigned char, shared);
    napier_mma_tile t = {&job->rows, &job->columns, 0, 0, job->k, shared};
    napier_mma_sums sum;
    napier_mma_tile_of(blockIdx.x, job->row_tiles, job->column_tiles, &t.row, &t.column);
    napier_mma_clear(&sum);
    if (job->add) {
        load_sums(job, &t, &sum);
    }
    napier_mma_loop(f16, rows_across, columns_across, &t, &sum);
    store_sums(job, &t, &sum);
}

#define PRODUCT(name, f16, rows_across, columns_across) \
    CUDA_KERNEL(name, napier_matmul_job, NAPIER_MMA_THREADS) { product(f16, rows_across, columns_across, &job); }

PRODUCT(napier_mma_bf16, false, false, false)
PRODUCT(napier_mma_bf16_columns_across, false, false, true)
PRODUCT(napier_mma_bf16_rows_across, false, true, false)
PRODUCT(napier_mma_bf16_both_across, false, true, true)
PRODUCT(napier_mma_f16, true, false, false)
PRODUCT(napier_mma_f16_columns_across, true, false, true)
PRODUCT(napier_mma_f16_rows_across, true, true, false)
PRODUCT(napier_mma_f16_both_across, true, true, true)
