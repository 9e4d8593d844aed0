/* ops/sample/gpu/sample_cuda.h - declarations shared by sample_cuda.c and sample.cu. */
#ifndef NAPIER_OPS_SAMPLE_GPU_SAMPLE_CUDA_H
#define NAPIER_OPS_SAMPLE_GPU_SAMPLE_CUDA_H

#include "ops/sample/draw.h"
#include "ops/sample/sample_call.h"
#include "ops/tokens/gpu/responses_cuda.h"

/* The sum of a tile, as in napier_token_slots. */
typedef struct napier_cuda_sample_slot {
    float max, rest;
    int32_t count;
} napier_cuda_sample_slot;

typedef struct napier_cuda_sample_job {
    napier_sample_call call;
    float *z;                       /* [rows, cols] */
    napier_cuda_sample_slot *slots; /* [rows, tiles] */
    napier_cuda_faults *faults;
} napier_cuda_sample_job;

enum { NAPIER_SAMPLE_THREADS = NAPIER_TILE_LANES };

/* Shared memory of a block. */
typedef struct napier_cuda_sample_room {
    float floats[NAPIER_SAMPLE_THREADS];
    uint64_t integers[NAPIER_SAMPLE_THREADS];
    uint64_t weights[NAPIER_TILE];
    napier_sum sum;
    napier_final final;
    uint64_t rest, weight; /* of the draw */
    int64_t tile, place;
} napier_cuda_sample_room;

#endif
