/* ops/softmax/gpu/part_cuda.h - parts of rows in the portable byte form of a state (ops/softmax/state/state_bytes.c): what
 * the host half (part_cuda.c) and its kernels (part.cu) share. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_PART_CUDA_H
#define NAPIER_OPS_SOFTMAX_GPU_PART_CUDA_H

#include <napier/cuda/softmax.h>

#include "core/gpu/fault.h"
#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/state/state_format.h"
#include "ops/softmax/sum.h"

enum { NAPIER_PART_THREADS = 128, NAPIER_PART_WORDS = NAPIER_STATE_HEADER / 4 };

typedef struct napier_part_cuda_job {
    napier_dtype compute;
    int64_t rows, head, tail; /* rows; elements that a part stores unsummed, before and behind its whole tiles */
    char *bytes;              /* of row 0 */
    int64_t stride;
    uint32_t header[NAPIER_PART_WORDS]; /* of every row, with flags 0 */
    void *sums;                         /* of the whole tiles: [rows] napier_sum or napier_f64_sum */
    /* to save */
    napier_const_matrix x;
    double temperature;
    /* to load: head and tail go to columns head_at and tail_at of z, of the compute type */
    void *z;
    int64_t z_stride, head_at, tail_at;
    napier_cuda_faults *faults;
} napier_part_cuda_job;

#endif
