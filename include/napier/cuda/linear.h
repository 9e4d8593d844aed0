/* napier/cuda/linear.h - matrix products on a GPU: see napier/linear.h and, for what all calls have in common,
 * napier/cuda/device.h.
 *
 * Nothing here has run on a GPU yet: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device. */
#ifndef NAPIER_CUDA_LINEAR_H
#define NAPIER_CUDA_LINEAR_H

#include <napier/cuda/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whose bits a product has. */
typedef enum napier_cuda_mode {
    NAPIER_CUDA_BITWISE = 0,        /* the CPU's, by plain multiply-adds */
    NAPIER_CUDA_BATCH_INVARIANT = 1 /* tensor cores where they can be used: a row's bits do not depend on the batch, but
                                       are the device's own */
} napier_cuda_mode;

/* As napier_matmul; needs no workspace.
 * BATCH_INVARIANT uses tensor cores for bf16 by bf16 and f16 by f16, with f32 sums over k, ascending, 16 at a time; other
 * products have the CPU's bits in either mode. Fastest where rows along k, or along the other dimension, are contiguous and
 * begin on a boundary of 16 bytes. Error, tensor cores: (k + 16) 2^-22 sum_k |a b|, and the rounding of the result.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED. */
NAPIER_API napier_status napier_cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_const_matrix a,
                                            napier_const_matrix b, napier_matrix product, napier_cuda_mode mode);

#ifdef __cplusplus
}
#endif
#endif
