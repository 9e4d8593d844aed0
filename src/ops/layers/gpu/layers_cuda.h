/* ops/layers/gpu/layers_cuda.h - the steps of a decoder layer between its products on a GPU: jobs of the kernels in
 * layers.cu, with the bits of ops/layers/layer_kernels.h. All arrays are contiguous, in device memory; a bias of NULL is none. */
#ifndef NAPIER_OPS_LAYERS_GPU_LAYERS_CUDA_H
#define NAPIER_OPS_LAYERS_GPU_LAYERS_CUDA_H

#include <napier/types.h>

/* napier_layers_norm: x += sums + bias, then out = norm(x); a warp for each row. */
typedef struct napier_cuda_norm_job {
    int64_t rows, n;
    float *x;                 /* [rows, n] */
    const float *sums, *bias; /* [rows, n] of a product, NULL: nothing is added; [n] */
    const float *weight;      /* [n] */
    float epsilon;
    void *out; /* [rows, n] */
    napier_dtype dtype;
} napier_cuda_norm_job;

/* napier_layers_rotate: out = the normalised heads of sums + bias, rotated; a warp for each head of a row. */
typedef struct napier_cuda_rotate_job {
    int64_t rows, heads, n;
    const float *sums, *bias; /* [rows, heads, n]; [heads, n] */
    const float *weight;      /* [n]; NULL: heads are not normalised */
    float epsilon;
    const float *cosines, *sines; /* [positions, n / 2] */
    const int64_t *positions;     /* [rows] */
    void *out;                    /* [rows, heads, n] */
    napier_dtype dtype;
} napier_cuda_rotate_job;

/* napier_layers_gate: out = silu(gate + gate_bias) (up + up_bias). */
typedef struct napier_cuda_gate_job {
    int64_t rows, n;
    const float *gate, *up, *gate_bias, *up_bias; /* [rows, n]; [n] */
    void *out;                                    /* [rows, n] */
    napier_dtype dtype;
} napier_cuda_gate_job;

/* napier_layers_add: out = sums + bias. */
typedef struct napier_cuda_add_job {
    int64_t rows, n;
    const float *sums, *bias; /* [rows, n]; [n] */
    void *out;                /* [rows, n] */
    napier_dtype dtype;
} napier_cuda_add_job;

#endif
