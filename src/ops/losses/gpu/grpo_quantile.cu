/* ops/losses/gpu/grpo_quantile.cu - the quantile of entropies without sorting and without the host: three times `count`
 * and `choose`, for one digit each; `next`, the value above; `place`, the quantile between both. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/grpo_cuda.h"

CUDA_INLINE bool napier_cuda_value(const napier_cuda_quantile_job *job, int64_t i, float *x) {
    *x = 0.0f;
    if (job->mask != NULL && job->mask[i] == 0) {
        return false;
    }
    *x = cuda_token(job->values, i);
    return true;
}

/* Counts the next digit of the keys that start with the digits found so far, first in the block's shared memory. */
CUDA_KERNEL(napier_quantile_count, napier_cuda_quantile_job, NAPIER_QUANTILE_THREADS) {
    CUDA_SHARED(int32_t, counts);
    const int above = job.shift + NAPIER_KEY_DIGIT;
    const uint32_t found = (uint32_t)job.state->key;
    for (int d = (int)threadIdx.x; d < NAPIER_KEY_DIGITS; d += (int)blockDim.x) {
        counts[d] = 0;
    }
    __syncthreads();
    for (int64_t i = cuda_thread(); i < job.values.size; i += cuda_threads()) {
        float x;
        if (!napier_cuda_value(&job, i, &x)) {
            continue;
        }
        const uint32_t key = napier_rising(x);
        if (x != x) {
            cuda_atomic_add_i64(&job.state->nans, 1);
        } else if (above >= 32 || key >> above == found >> above) {
            cuda_atomic_add_i32(&counts[key >> job.shift & (NAPIER_KEY_DIGITS - 1)], 1);
        }
    }
    __syncthreads();
    for (int d = (int)threadIdx.x; d < NAPIER_KEY_DIGITS; d += (int)blockDim.x) {
        if (counts[d] != 0) {
            cuda_atomic_add_i64(&job.counts[d], counts[d]);
        }
    }
}

/* One block finds the digit that contains the rank. Each thread has some digits, and clears them for the next count. */
CUDA_KERNEL(napier_quantile_choose, napier_cuda_quantile_job, NAPIER_QUANTILE_THREADS) {
    enum { EACH = NAPIER_KEY_DIGITS / NAPIER_QUANTILE_THREADS };
    CUDA_SHARED(int64_t, sums);
    const int first = (int)threadIdx.x * EACH;
    int64_t mine = 0, before = job.state->before;
    for (int d = first; d < first + EACH; d++) {
        mine += job.counts[d];
    }
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++) {
        before += sums[i];
    }
    const napier_quantile_place place = napier_quantile_place_of(job.quantile, job.tally->all.counted);
    if (before <= place.rank && place.rank < before + mine) { /* one thread */
        int d = first;
        for (; before + job.counts[d] <= place.rank; d++) {
            before += job.counts[d];
        }
        job.state->key |= (int64_t)d << job.shift;
        job.state->before = before;
        job.state->through = before + job.counts[d];
    }
    __syncthreads();
    for (int d = first; d < first + EACH; d++) {
        job.counts[d] = 0;
    }
}

/* The least key above the one that was found. */
CUDA_KERNEL(napier_quantile_next, napier_cuda_quantile_job, NAPIER_QUANTILE_THREADS) {
    const int64_t found = job.state->key;
    int64_t next = 0;
    for (int64_t i = cuda_thread(); i < job.values.size; i += cuda_threads()) {
        float x;
        if (napier_cuda_value(&job, i, &x) && x == x) {
            const int64_t key = (int64_t)napier_rising(x);
            next = key > found && INT64_MAX - key > next ? INT64_MAX - key : next;
        }
    }
    next = cuda_warp_max_i64(next);
    if (cuda_lane() == 0) {
        cuda_atomic_max_i64(&job.state->next, next);
    }
}

CUDA_KERNEL(napier_quantile_place_it, napier_cuda_quantile_job, 32) {
    napier_cuda_grpo_state *const s = job.state;
    if (threadIdx.x != 0) {
        return;
    }
    const napier_quantile_place place = napier_quantile_place_of(job.quantile, job.tally->all.counted);
    const float low = napier_of_rising((uint32_t)s->key);
    const float next = s->next == 0 ? INFINITY : napier_of_rising((uint32_t)(INT64_MAX - s->next));
    s->entropy_threshold = s->nans > 0                                  ? napier_float_of_bits(0x7fc00000u)
                           : job.tally->all.counted == 0                ? 0.0f
                           : napier_quantile_is_one(&place, s->through) ? low
                                                                        : napier_quantile_between(&place, low, next);
}
