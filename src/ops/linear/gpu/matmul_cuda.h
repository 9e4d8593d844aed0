/* ops/linear/gpu/matmul_cuda.h - the job of napier_cuda_matmul, which the host half shares with its kernels in
 * matmul.cu (the CPU's bits) and matmul_tensor.cu (tensor cores).
 *
 * A product has two sides, rows [m, k] and columns [n, k]. The columns' side is the second operand transposed. */
#ifndef NAPIER_OPS_LINEAR_GPU_MATMUL_CUDA_H
#define NAPIER_OPS_LINEAR_GPU_MATMUL_CUDA_H

#include <napier/types.h>
#include <stdbool.h>

/* How the elements of a side can be read. */
typedef enum napier_side_layout {
    NAPIER_SIDE_ANY,   /* one by one */
    NAPIER_SIDE_ALONG, /* 16 bytes along k: neighbours in k side by side, every row on a boundary of 16 bytes */
    NAPIER_SIDE_ACROSS /* 16 bytes across k: neighbouring rows side by side, every k on a boundary of 16 bytes */
} napier_side_layout;

typedef struct napier_side {
    const void *data; /* never NULL */
    int64_t rows;
    int64_t row_stride, k_stride; /* elements */
    napier_dtype dtype;
    napier_side_layout layout;
} napier_side;

typedef struct napier_matmul_job {
    napier_side rows, columns;
    int64_t k;
    napier_matrix product;
    int64_t row_tiles, column_tiles;
    bool pairs; /* the order of bf16 by bf16 */
    bool add;   /* the product, f32, holds the sum over earlier k */
} napier_matmul_job;

/* Tiles of the kernels. */
enum {
    NAPIER_MATMUL_THREADS = 256,
    NAPIER_MATMUL_ROWS = 128,
    NAPIER_MATMUL_COLUMNS = 128,     /* of one chain over k */
    NAPIER_MATMUL_PAIR_COLUMNS = 64, /* of bf16 by bf16: three sums for each output */
    NAPIER_MATMUL_K = 16,            /* of a stage */
    NAPIER_MATMUL_STAGE_ROW = 4,     /* floats after the rows of each k, which spread stores over the banks */
    NAPIER_MATMUL_SHARED = 2 * NAPIER_MATMUL_K * (256 + 2 * NAPIER_MATMUL_STAGE_ROW) * 4 + 128,
    NAPIER_MATMUL_BAND =
        8 /* row tiles that are processed together along the columns, so that both sides are found in L2 */
};

enum {
    NAPIER_MMA_THREADS = 128,
    NAPIER_MMA_ROWS = 128,
    NAPIER_MMA_COLUMNS = 128,
    NAPIER_MMA_K = 64, /* of a stage */
    NAPIER_MMA_STAGES = 3,
    NAPIER_MMA_SIDE_BYTES = NAPIER_MMA_ROWS * NAPIER_MMA_K * 2,
    NAPIER_MMA_SHARED = NAPIER_MMA_STAGES * 2 * NAPIER_MMA_SIDE_BYTES,
    NAPIER_MMA_BAND = 16
};

#if !defined(CUDA_KERNEL)
#include <napier/cuda/linear.h>
#include "core/gpu/launch.h"

/* A side of a product on tensor cores of rows [rows, k]. unread: any address, for a side without elements. */
napier_side napier_cuda_mma_side(napier_const_matrix rows, const void *unread);

/* Does a product of these dtypes use the tensor cores? */
bool napier_cuda_uses_mma(const napier_cuda_context *context, napier_dtype a, napier_dtype b, napier_cuda_mode mode);

/* product[r][c] (+)= sum_k rows[r][k] * columns[c][k]. The arguments have been checked. add: product is f32 and holds
 * the sum over earlier k, from which the chains continue. */
napier_status napier_cuda_product(const napier_cuda_call *gpu, napier_const_matrix rows, napier_const_matrix columns,
                                  napier_matrix product, bool add, napier_cuda_mode mode);
#endif

#endif
