/* ops/tokens/gpu/token_top_cuda.h - declarations shared by token_logprobs_cuda.c and token_top.cu. */
#ifndef NAPIER_OPS_TOKENS_GPU_TOKEN_TOP_CUDA_H
#define NAPIER_OPS_TOKENS_GPU_TOKEN_TOP_CUDA_H

#include "ops/tokens/quantile.h"
#include "ops/tokens/gpu/token_cuda.h"

enum {
    NAPIER_TOP_THREADS = 256,
    NAPIER_TOP_MOST = 1024,
    NAPIER_TOP_COLUMN_BITS = 33 /* three digits; rows with 2^31 or more columns are refused */
};

/* Shared memory of a block. */
typedef struct napier_cuda_top_room {
    int32_t counts[NAPIER_KEY_DIGITS], partial[NAPIER_TOP_THREADS];
    uint32_t u[NAPIER_TOP_MOST];
    int64_t column[NAPIER_TOP_MOST];
    int64_t before;
    int32_t digit, used;
    napier_cuda_token_room row;
} napier_cuda_top_room;

#endif
