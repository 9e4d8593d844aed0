/* ops/head/gpu/linear_tile.cuh - a tile of logits from the tensor cores to shared memory, a row for each thread, and
 * then to z. For kernels. */
#ifndef NAPIER_OPS_HEAD_GPU_LINEAR_TILE_CUH
#define NAPIER_OPS_HEAD_GPU_LINEAR_TILE_CUH

#include "ops/linear/gpu/mma.cuh"
#include "core/math/lanes_tanh.h"
#include "ops/head/gpu/linear_token_cuda.h"

typedef struct napier_linear_tile {
    int64_t row, column; /* of the first logit: row within the job, column within the weights */
    int64_t token;       /* the vocabulary's index of that column */
    int n;               /* number of existing columns; 0 or less if there are none */
    float *z;            /* [NAPIER_MMA_ROWS][NAPIER_LINEAR_STEP], shared */
} napier_linear_tile;

CUDA_INLINE void napier_linear_to_shared(const napier_mma_sums *sum, float *z) {
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        NAPIER_UNROLL
        for (int j = 0; j < 8; j++) {
            NAPIER_UNROLL
            for (int e = 0; e < 4; e++) {
                z[napier_mma_row(i, e) * NAPIER_LINEAR_STEP + napier_mma_column(j, e)] = sum->x[i][j][e];
            }
        }
    }
}

/* Computes the block's tile of logits into shared memory, for all its threads. */
CUDA_INLINE napier_linear_tile napier_linear_logits(const bool f16, const napier_linear_job *job,
                                                    unsigned char *shared) {
    napier_mma_tile t = {&job->hidden, &job->weights, 0, 0, job->k, shared};
    napier_mma_sums sum;
    napier_mma_tile_of(blockIdx.x, job->row_tiles, job->column_tiles, &t.row, &t.column);
    napier_mma_clear(&sum);
    napier_mma_loop(f16, false, false, &t, &sum);
    const int64_t left = job->weights.rows - t.column;
    const napier_linear_tile tile = {t.row, t.column, job->column + t.column,
                                     left < NAPIER_LINEAR_TILE ? (int)left : (int)NAPIER_LINEAR_TILE,
                                     (float *)(void *)shared};
    napier_linear_to_shared(&sum, tile.z);
    __syncthreads();
    return tile;
}

CUDA_INLINE bool napier_linear_changes(const napier_token_rules *rules) {
    return rules->softcap != 0.0f || rules->temperature != 1.0f || rules->keep;
}

/* Converts a logit to z; *slope receives the softcap's derivative. */
CUDA_INLINE float napier_linear_z(const napier_token_rules *rules, float x, bool kept, float *slope) {
    *slope = 1.0f;
    if (rules->softcap != 0.0f) {
        const vf_tanh_parts t = vf_tanh_and_slope(x / rules->softcap);
        *slope = t.slope;
        x = rules->softcap * t.tanh;
    }
    return !kept ? -INFINITY : rules->temperature != 1.0f ? x / rules->temperature : x;
}

CUDA_INLINE int64_t napier_linear_id(const napier_indices *ids, int64_t i) {
    return ids->type == NAPIER_I32 ? ((const int32_t *)ids->data)[i] : ((const int64_t *)ids->data)[i];
}

#endif
