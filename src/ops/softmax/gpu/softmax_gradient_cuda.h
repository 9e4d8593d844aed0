/* ops/softmax/gpu/softmax_gradient_cuda.h - the jobs of the gradients, which the host half (softmax_gradient_cuda.c)
 * and the kernels (softmax_gradient.cu) share. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_GRADIENT_CUDA_H
#define NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_GRADIENT_CUDA_H

#include <napier/softmax.h>

#include "ops/softmax/certain.h"
#include "ops/softmax/sum.h"

enum {
    NAPIER_GRADIENT_THREADS = 256,
    NAPIER_GRADIENT_ROW_WARPS = 16,
    NAPIER_GRADIENT_MOST_TILES = 64 /* of a row that a block keeps */
};

typedef struct napier_gradient_cuda_job {
    bool log;                              /* of log_softmax, otherwise of softmax */
    napier_const_matrix values, gradients; /* the result, and the gradient with respect to it: f32, f16 or bf16 */
    napier_matrix out;
    napier_vector dots; /* with data: the sums of the rows are the result, and out has a shape only */
    float temperature;
    int64_t tiles;               /* of a row */
    napier_certain_sums *sums;   /* [rows, tiles] */
    napier_certain_sums *totals; /* [rows] */
} napier_gradient_cuda_job;

/* Shared memory of a block that takes a row; the row's chunks follow. */
typedef struct napier_gradient_room {
    napier_certain_sums sums[NAPIER_GRADIENT_MOST_TILES], total;
} napier_gradient_room;

enum { NAPIER_GRADIENT_ROOM = (sizeof(napier_gradient_room) + 127) / 128 * 128 };

#endif
