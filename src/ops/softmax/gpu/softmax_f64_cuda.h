/* ops/softmax/gpu/softmax_f64_cuda.h - softmax and its gradients on a GPU if the compute type is
 * double. The host half (softmax_f64_cuda.c) and its kernels (softmax_f64.cu) share it, and
 * softmax_cuda.c and softmax_gradient_cuda.c call it. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_F64_CUDA_H
#define NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_F64_CUDA_H

#include <napier/cuda/device.h>

#include "ops/softmax/sum.h"
#include "ops/softmax/f64/sum_f64.h"

enum { NAPIER_F64_ROOM = 4096 }; /* shared memory of a block that sums: napier_f64_room */

/* Inputs and outputs may have any dtype. One line is a row or, with `whole`, all elements in row-major order. */
typedef struct napier_f64_cuda_job {
    napier_f64_result result;
    bool whole;
    napier_const_matrix x, g; /* for the gradients of softmax the result, and the gradient with respect to it */
    napier_matrix y;          /* for NAPIER_F64_LSE one column */
    double temperature;
    napier_masked_rows masked_rows;
    napier_const_vector factor;  /* for NAPIER_F64_LSE_GRADIENT: grad_lse */
    int64_t lines, size;         /* how many, and elements of each */
    int64_t tiles, parts, share; /* of a line; blocks that sum it; tiles of a block */
    napier_f64_sum *sums;        /* [lines, parts] */
    napier_f64_final *finals;    /* [lines] */
    napier_f64_sum *states;      /* of each line; unless they are being computed, they replace the sums of x */
    bool clear;                  /* the states count as empty, whatever they contain */
    napier_certain_sums *tile_sums, *totals; /* gradients: [lines, tiles], [lines] */
} napier_f64_cuda_job;

#if !defined(CUDA_KERNEL)
#include "core/gpu/launch.h"

/* Runs a job whose arguments have been checked. It fills in lines, size and what follows from them. gpu->what names the
 * result. */
napier_status napier_f64_cuda_run(const napier_cuda_call *gpu, napier_cuda_workspace *workspace,
                                  napier_f64_cuda_job *job);

/* Adds `sums`, one for each state of the job, to its states. NULL: makes the states empty. */
napier_status napier_f64_cuda_take_states(const napier_cuda_call *gpu, napier_f64_cuda_job *job, const void *sums);
#endif

#endif
