/* ops/linear/gpu/matmul_launch.h - products of matrices in device memory, for napier_cuda_matmul and for operations
 * that use products. Host code. */
#ifndef NAPIER_OPS_LINEAR_GPU_MATMUL_LAUNCH_H
#define NAPIER_OPS_LINEAR_GPU_MATMUL_LAUNCH_H

#include <napier/cuda/linear.h>

#include "core/gpu/launch.h"
#include "ops/linear/gpu/matmul_cuda.h"

/* A side of a product on tensor cores of rows [rows, k]. unread: any address, for a side without elements. */
napier_side napier_cuda_mma_side(napier_const_matrix rows, const void *unread);

/* Does a product of these dtypes use the tensor cores? */
bool napier_cuda_uses_mma(const napier_cuda_context *context, napier_dtype a, napier_dtype b, napier_cuda_mode mode);

/* product[r][c] (+)= sum_k rows[r][k] * columns[c][k]. The arguments have been checked. add: product is f32 and holds
 * the sum over earlier k, from which the chains continue. */
napier_status napier_cuda_product(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                  napier_const_matrix rows, napier_const_matrix columns, napier_matrix product,
                                  bool add, napier_cuda_mode mode);

#endif
