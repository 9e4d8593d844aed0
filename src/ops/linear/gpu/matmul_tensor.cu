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

/* ---- Sums in shared memory -------------------------------------------------------------------------------------- */

/* The sums of a tile go through shared memory, so that a loop can take them: in registers they are no array. */
enum { SUMS_ROW = NAPIER_MMA_COLUMNS + 8 }; /* the 8 floats spread rows over the banks */
static_assert((int)NAPIER_MMA_ROWS * (int)SUMS_ROW * 4 <= (int)NAPIER_MMA_SHARED, "shared memory of a tile's sums");

CUDA_INLINE float *shared_sum(const napier_mma_tile *t, int i, int j, int e) {
    return (float *)(void *)t->shared + napier_mma_row(i, e) * SUMS_ROW + napier_mma_column(j, e);
}

CUDA_INLINE void store_sums(const napier_matmul_job *job, const napier_mma_tile *t, const napier_mma_sums *sum) {
    NAPIER_UNROLL
    for (int at = 0; at < 4 * 8 * 4; at++) {
        *shared_sum(t, at / 32, at / 4 % 8, at % 4) = sum->x[at / 32][at / 4 % 8][at % 4];
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < NAPIER_MMA_ROWS * NAPIER_MMA_COLUMNS / 2; at += NAPIER_MMA_THREADS) {
        const int r = at / (NAPIER_MMA_COLUMNS / 2), c = at % (NAPIER_MMA_COLUMNS / 2) * 2;
        const float *const two = (const float *)(const void *)t->shared + r * SUMS_ROW + c;
        if (t->row + r < job->product.rows && t->column + c < job->product.cols) {
            store_two(&job->product, t->row + r, t->column + c, two[0], two[1]);
        }
    }
}

/* The values from which the sums continue. */
CUDA_INLINE void load_sums(const napier_matmul_job *job, const napier_mma_tile *t, napier_mma_sums *sum) {
    const napier_matrix *const m = &job->product;
    for (int at = (int)threadIdx.x; at < NAPIER_MMA_ROWS * NAPIER_MMA_COLUMNS; at += NAPIER_MMA_THREADS) {
        const int r = at / NAPIER_MMA_COLUMNS, c = at % NAPIER_MMA_COLUMNS;
        const int64_t row = t->row + r, column = t->column + c;
        const bool there = row < m->rows && column < m->cols;
        ((float *)(void *)t->shared)[r * SUMS_ROW + c] =
            there ? ((const float *)m->data)[row * m->row_stride + column * m->col_stride] : 0.0f;
    }
    __syncthreads();
    NAPIER_UNROLL
    for (int at = 0; at < 4 * 8 * 4; at++) {
        sum->x[at / 32][at / 4 % 8][at % 4] = *shared_sum(t, at / 32, at / 4 % 8, at % 4);
    }
    __syncthreads(); /* the stages take the same memory */
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

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
