/* ops/softmax/gpu/softmax_cuda.h - what the host half of softmax on a GPU (softmax_cuda.c) and its kernels share. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_CUDA_H
#define NAPIER_OPS_SOFTMAX_GPU_SOFTMAX_CUDA_H

#include <napier/cuda/device.h>
#include <napier/softmax.h>

#include "ops/softmax/sum.h"

enum {
    NAPIER_CUDA_THREADS = 256,  /* of a block whose warps take tiles or rows */
    NAPIER_CUDA_ROW_WARPS = 16, /* at most, of a block that takes a row */
    NAPIER_CUDA_CLUSTER = 8     /* the most blocks that share a row; every device with clusters allows so many */
};

/* One line is what a reduction runs over: a row or, with `whole`, all elements in row-major order. */
typedef struct napier_softmax_cuda_job {
    napier_softmax_op op;
    bool whole;
    napier_const_matrix x; /* logits: f32, f16 or bf16 */
    napier_matrix y;       /* results; for logsumexp one column, an element for each line */
    float temperature;
    napier_masked_rows masked_rows;
    napier_const_vector factor; /* of each line, for the gradient of logsumexp; data NULL: none */
    int64_t lines;
    int64_t share;    /* tiles of a line that a block takes */
    int64_t parts;    /* blocks over which a line is split, if they are not a cluster */
    bool look_first;  /* the maximum is found in a pass of its own */
    bool keep;        /* a block keeps its share in shared memory, after its napier_block_room */
    napier_sum *sums; /* [lines, parts] */
    napier_final *finals;
    napier_sum
        *states; /* of each line, or NULL. They are added to the line's sum; with `update` they become the new state */
    bool update;
    bool clear; /* the states count as empty, whatever they contain */
} napier_softmax_cuda_job;

/* Shared memory in which the warps of a block merge their sums. */
typedef struct napier_block_room {
    float max[32];
    napier_sum of_warp[32];
    napier_sum total;   /* of the block; other blocks of its cluster read it */
    napier_sum of_line; /* of all blocks */
    napier_final final;
} napier_block_room;

enum { NAPIER_BLOCK_ROOM = (sizeof(napier_block_room) + 127) / 128 * 128 };

#if !defined(CUDA_KERNEL)
/* ---- The host half, for state_cuda.c ----------------------------------------------------------------------------- */

#include "core/gpu/launch.h"

/* A checked call. */
typedef struct napier_softmax_cuda_call {
    napier_cuda_call gpu; /* `what` names the result */
    napier_softmax_cuda_job job;
} napier_softmax_cuda_call;

/* Divides the job's lines into parts: sets share and parts. */
void napier_softmax_cuda_plan(const napier_cuda_context *context, napier_softmax_cuda_job *job);
/* The three steps for lines that are split: the sums of the parts; their merged sums and finals; results. */
napier_status napier_softmax_cuda_sums(const napier_softmax_cuda_call *call);
napier_status napier_softmax_cuda_merge(const napier_softmax_cuda_call *call);
napier_status napier_softmax_cuda_write(const napier_softmax_cuda_call *call);

/* ---- States, for part_cuda.c ------------------------------------------------------------------------------------- */

napier_status napier_softmax_cuda_check_states(napier_cuda_context *context, const char *name, const void *states,
                                               int64_t rows, napier_dtype compute);
/* Adds the sums of one part each, `sums` [rows], to the states. NULL: makes the states empty. */
napier_status napier_softmax_cuda_states_take(napier_cuda_call gpu, void *states, const void *sums, int64_t rows,
                                              napier_dtype compute);
/* Adds columns that begin at a tile. Checks nothing but the workspace. */
napier_status napier_softmax_cuda_states_update(napier_cuda_call gpu, napier_cuda_workspace *workspace, void *states,
                                                napier_dtype compute, napier_const_matrix x, double temperature);
#endif

#endif
