/* ops/linear/gpu/matmul_cuda.c - the host half of matrix products on a GPU: sides, and which kernel. */
#include <inttypes.h>

#include "ops/linear/product.h"
#include "ops/linear/gpu/matmul_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_matmul_chain, napier_matmul_pairs, napier_mma_bf16, napier_mma_bf16_columns_across,
                           napier_mma_bf16_rows_across, napier_mma_bf16_both_across, napier_mma_f16,
                           napier_mma_f16_columns_across, napier_mma_f16_rows_across, napier_mma_f16_both_across);

/* ---- Sides ------------------------------------------------------------------------------------------------------- */

/* Can `elements` neighbours be read at once, at every multiple of them in every row? */
static bool has_vectors(const void *data, int64_t count, int64_t stride, size_t size, int64_t elements) {
    return (uintptr_t)data % ((size_t)elements * size) == 0 && (count <= 1 || stride % elements == 0);
}

static napier_side side_of(napier_const_matrix m, const void *unread, int64_t elements) {
    const size_t size = napier_dtype_size(m.dtype);
    napier_side s = {m.data ? m.data : unread, m.rows, m.row_stride, m.col_stride, m.dtype, NAPIER_SIDE_ANY};
    if ((m.col_stride == 1 || m.cols == 1) && has_vectors(m.data, m.rows, m.row_stride, size, elements)) {
        s.layout = NAPIER_SIDE_ALONG;
    } else if ((m.row_stride == 1 || m.rows == 1) && has_vectors(m.data, m.cols, m.col_stride, size, elements)) {
        s.layout = NAPIER_SIDE_ACROSS;
    }
    return s;
}

napier_side napier_cuda_mma_side(napier_const_matrix rows, const void *unread) { return side_of(rows, unread, 8); }

bool napier_cuda_uses_mma(const napier_cuda_context *context, napier_dtype a, napier_dtype b, napier_cuda_mode mode) {
    return mode == NAPIER_CUDA_BATCH_INVARIANT && context->tensor_cores && a == b && a != NAPIER_F32;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static napier_cuda_kernel mma_kernel(const napier_matmul_job *job) {
    const int across = (job->rows.layout == NAPIER_SIDE_ACROSS ? 2 : 0) + (job->columns.layout == NAPIER_SIDE_ACROSS);
    const napier_cuda_kernel bf16[4] = {
        NAPIER_CUDA_KERNEL(napier_mma_bf16), NAPIER_CUDA_KERNEL(napier_mma_bf16_columns_across),
        NAPIER_CUDA_KERNEL(napier_mma_bf16_rows_across), NAPIER_CUDA_KERNEL(napier_mma_bf16_both_across)};
    const napier_cuda_kernel f16[4] = {
        NAPIER_CUDA_KERNEL(napier_mma_f16), NAPIER_CUDA_KERNEL(napier_mma_f16_columns_across),
        NAPIER_CUDA_KERNEL(napier_mma_f16_rows_across), NAPIER_CUDA_KERNEL(napier_mma_f16_both_across)};
    return job->rows.dtype == NAPIER_BF16 ? bf16[across] : f16[across];
}

napier_status napier_cuda_product(const napier_cuda_call *gpu, napier_const_matrix rows, napier_const_matrix columns,
                                  napier_matrix product, bool add, napier_cuda_mode mode) {
    const bool mma = napier_cuda_uses_mma(gpu->context, rows.dtype, columns.dtype, mode);
    const int64_t elements = mma ? 8 : 4;
    napier_matmul_job job = {.rows = side_of(rows, product.data, elements),
                             .columns = side_of(columns, product.data, elements),
                             .k = rows.cols,
                             .product = product,
                             .pairs = !mma && !add && rows.dtype == NAPIER_BF16 && columns.dtype == NAPIER_BF16,
                             .add = add};
    const int64_t width = mma ? NAPIER_MMA_COLUMNS : job.pairs ? NAPIER_MATMUL_PAIR_COLUMNS : NAPIER_MATMUL_COLUMNS;
    job.row_tiles = napier_cuda_tiles(product.rows, NAPIER_MATMUL_ROWS); /* both have as many */
    job.column_tiles = napier_cuda_tiles(product.cols, width);
    if (job.column_tiles > 0 && job.row_tiles > INT32_MAX / job.column_tiles) {
        return napier_fail(gpu->context->host, NAPIER_UNSUPPORTED,
                           "%s: %" PRId64 " x %" PRId64 " is too large for a grid", gpu->what, product.rows,
                           product.cols);
    }
    const napier_cuda_shape shape = {.blocks = job.row_tiles * job.column_tiles,
                                     .threads = mma ? NAPIER_MMA_THREADS : NAPIER_MATMUL_THREADS,
                                     .shared_bytes = mma ? NAPIER_MMA_SHARED : NAPIER_MATMUL_SHARED};
    const napier_cuda_kernel kernel = mma         ? mma_kernel(&job)
                                      : job.pairs ? NAPIER_CUDA_KERNEL(napier_matmul_pairs)
                                                  : NAPIER_CUDA_KERNEL(napier_matmul_chain);
    return napier_cuda_put(gpu, kernel, shape, &job, sizeof job);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

napier_status napier_cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix a, napier_const_matrix b,
                                 napier_matrix product, napier_cuda_mode mode) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_matmul_check(context->host, a, b, product));
    NAPIER_REFUSE_IF(context->host, (unsigned)mode > NAPIER_CUDA_BATCH_INVARIANT, "mode: %d is unknown", (int)mode);
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    if (product.rows == 0 || product.cols == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call gpu = {context, stream, "matmul"};
    return napier_cuda_product(&gpu, a, napier_const_transposed(b), product, false, mode);
}
