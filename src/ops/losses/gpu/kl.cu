/* ops/losses/gpu/kl.cu - KL divergence per response: tiles to sums, sums to responses, and the gradient. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/kl_cuda.h"
#include "ops/losses/kl_lanes.h"

CUDA_INLINE napier_estimate napier_cuda_kl_estimate(const napier_kl_job *kl, int64_t t) {
    return napier_clamped_estimate(kl, kl->estimator, cuda_token(kl->policy, t), cuda_token(kl->ref, t));
}

CUDA_INLINE napier_kl_sum napier_cuda_kl_tile(const napier_cuda_kl_job *job, const napier_cuda_tile *tile) {
    cuda_ladder sum = {0.0f, 0.0f, 0.0f};
    int32_t counted = 0;
    for (int s = 0; s < CUDA_STEPS; s++) {
        float lane = 0.0f;
        NAPIER_UNROLL
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int i = cuda_step_token(s, q);
            if (i < tile->n && cuda_counts(&job->responses, tile->first + i)) {
                lane += napier_cuda_kl_estimate(&job->kl, tile->first + i).value;
                counted++;
            }
        }
        cuda_ladder_add(&sum, s, lane);
    }
    const napier_kl_sum total = {cuda_ladder_fold(&sum), napier_group_add(CUDA_WARP, counted)};
    return total;
}

CUDA_KERNEL(napier_kl_tiles, napier_cuda_kl_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (cuda_tile_of(&job.responses, slot, &tile)) {
            const napier_kl_sum sum = napier_cuda_kl_tile(&job, &tile);
            if (cuda_lane() == 0) {
                job.sums[slot] = sum;
            }
        }
    }
}

/* A warp adds the tiles of a response in their order. */
CUDA_INLINE double napier_cuda_kl_of(const napier_cuda_kl_job *job, int64_t b) {
    const napier_kl_sum *const sums = job->sums + cuda_response_slot(&job->responses, b);
    const int64_t tiles = cuda_response_tiles(&job->responses, b);
    double total = 0.0;
    int64_t counted = 0;
    for (int64_t i = 0; i < tiles; i += CUDA_WARP) {
        napier_kl_sum mine = {0.0f, 0};
        if (i + cuda_lane() < tiles) {
            mine = sums[i + cuda_lane()];
        }
        total = cuda_warp_ordered(total, (double)mine.value, tiles - i);
        counted += napier_group_add(CUDA_WARP, mine.counted);
    }
    return job->reduction == NAPIER_REDUCE_MEAN && counted > 0 ? total / (double)counted : total;
}

CUDA_KERNEL(napier_kl_responses, napier_cuda_kl_job, NAPIER_RESPONSE_THREADS) {
    const bool bad = job.responses.tally->bad != 0;
    for (int64_t b = cuda_warp(); b < job.responses.count; b += cuda_warps()) {
        const double kl = bad ? napier_f64_nan() : napier_cuda_kl_of(&job, b);
        if (cuda_lane() == 0) {
            napier_f64_store(job.out.data, job.out.dtype, b * job.out.stride, kl);
        }
    }
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The number of a response's counted tokens. */
CUDA_INLINE int64_t napier_cuda_counted(const napier_cuda_responses *r, const int32_t *counted, int64_t b) {
    if (counted == NULL) {
        return cuda_response_size(r, b);
    }
    const int64_t slot = cuda_response_slot(r, b), tiles = cuda_response_tiles(r, b);
    int64_t mine = 0;
    for (int64_t i = cuda_lane(); i < tiles; i += CUDA_WARP) {
        mine += counted[slot + i];
    }
    return cuda_warp_add_i64(mine);
}

/* The gradient of each counted token's estimate. */
CUDA_INLINE float napier_cuda_kl_pull(const napier_cuda_kl_job *job, int64_t b) {
    double g = (double)cuda_token(job->grad_kl, b);
    if (job->reduction == NAPIER_REDUCE_MEAN) {
        const int64_t n = napier_cuda_counted(&job->responses, job->counted, b);
        g = n > 0 ? g / (double)n : 0.0;
    }
    return (float)g;
}

CUDA_INLINE void napier_cuda_kl_put(const napier_kl_job *kl, int64_t t, float g) {
    if (kl->grad_policy.data != NULL) {
        cuda_put_token(kl->grad_policy, t, 0.0f - g);
    }
    if (kl->grad_ref.data != NULL) {
        cuda_put_token(kl->grad_ref, t, g);
    }
}

CUDA_KERNEL(napier_kl_gradients, napier_cuda_kl_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        for (int64_t t = cuda_thread(); t < job.responses.tokens; t += cuda_threads()) {
            napier_cuda_kl_put(&job.kl, t, vf_canonical_nan());
        }
        return;
    }
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (!cuda_tile_of(&job.responses, slot, &tile)) {
            continue;
        }
        const float gradient = napier_cuda_kl_pull(&job, tile.response);
        for (int64_t t = tile.first + cuda_lane(); t < tile.first + tile.n; t += CUDA_WARP) {
            const float slope = napier_cuda_kl_estimate(&job.kl, t).slope;
            napier_cuda_kl_put(&job.kl, t, cuda_counts(&job.responses, t) ? slope * gradient : 0.0f);
        }
    }
}
