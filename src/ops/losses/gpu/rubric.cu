/* ops/losses/gpu/rubric.cu - rubric scores: one warp per tile and criterion, then one warp per response; and the
 * gradient. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/rubric_cuda.h"

CUDA_INLINE double napier_cuda_load(napier_const_vector v, int64_t i) { return (double)cuda_token(v, i); }

/* rubric[c][id_t]. An invalid id is reported and gives NaN. */
CUDA_INLINE float napier_cuda_mark(const napier_cuda_rubric_job *job, int64_t c, int64_t t) {
    const napier_const_matrix *const m = &job->rubric.rubric;
    const int64_t id = cuda_index_at(job->rubric.ids, t);
    if (id < 0 || id >= m->cols) {
        napier_cuda_note_fault(job->responses.faults, NAPIER_FAULT_IDS, t);
        return vf_canonical_nan();
    }
    return cuda_element(m->data, m->dtype, c * m->row_stride + id * m->col_stride);
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

/* As napier_dot_tile: a mark of 0 makes any log-probability 0. */
CUDA_INLINE float napier_cuda_rubric_tile(const napier_cuda_rubric_job *job, const napier_cuda_tile *tile, int64_t c) {
    cuda_ladder sum = {0.0f, 0.0f, 0.0f};
    for (int s = 0; s < CUDA_STEPS; s++) {
        float lane = 0.0f;
        NAPIER_UNROLL
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int i = cuda_step_token(s, q);
            if (i < tile->n) {
                const float mark = napier_cuda_mark(job, c, tile->first + i);
                lane = fmaf(mark, mark == 0.0f ? 0.0f : cuda_token(job->rubric.logprobs, tile->first + i), lane);
            }
        }
        cuda_ladder_add(&sum, s, lane);
    }
    return cuda_ladder_fold(&sum);
}

CUDA_KERNEL(napier_rubric_tiles, napier_cuda_rubric_job, NAPIER_RESPONSE_THREADS) {
    const int64_t criteria = job.rubric.rubric.rows;
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t i = cuda_warp(); i < job.responses.slots * criteria; i += cuda_warps()) {
        napier_cuda_tile tile;
        if (cuda_tile_of(&job.responses, i / criteria, &tile)) {
            const float sum = napier_cuda_rubric_tile(&job, &tile, i % criteria);
            if (cuda_lane() == 0) {
                job.sums[i] = sum;
            }
        }
    }
}

CUDA_INLINE double napier_cuda_score(const napier_cuda_rubric_job *job, int64_t b, int64_t c) {
    const int64_t criteria = job->rubric.rubric.rows;
    const int64_t slot = cuda_response_slot(&job->responses, b), tiles = cuda_response_tiles(&job->responses, b);
    double total = 0.0;
    for (int64_t i = 0; i < tiles; i++) {
        total += (double)job->sums[(slot + i) * criteria + c];
    }
    return tiles > 0 ? napier_cuda_load(job->weights, c) * total : 0.0;
}

CUDA_KERNEL(napier_rubric_responses, napier_cuda_rubric_job, NAPIER_RESPONSE_THREADS) {
    const int64_t criteria = job.rubric.rubric.rows;
    const bool bad = job.responses.tally->bad != 0;
    const napier_matrix scores = job.scores;
    for (int64_t b = cuda_warp(); b < job.responses.count; b += cuda_warps()) {
        double reward = bad ? napier_f64_nan() : 0.0;
        for (int64_t first = 0; first < criteria; first += CUDA_WARP) {
            const int64_t c = first + cuda_lane();
            double score = 0.0;
            if (c < criteria) {
                score = bad ? napier_f64_nan() : napier_cuda_score(&job, b, c);
                if (scores.data != NULL) {
                    napier_f64_store(scores.data, scores.dtype, b * scores.row_stride + c * scores.col_stride, score);
                }
            }
            reward = cuda_warp_ordered(reward, score, criteria - first);
        }
        if (job.rewards.data != NULL && cuda_lane() == 0) {
            napier_f64_store(job.rewards.data, job.rewards.dtype, b * job.rewards.stride, reward);
        }
    }
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The factor of criterion c's marks in the gradient of a token of response b. */
CUDA_INLINE float napier_cuda_factor(const napier_cuda_rubric_job *job, int64_t b, int64_t c) {
    const napier_const_matrix *const g = &job->grad_scores;
    double sum = 0.0;
    if (g->data != NULL) {
        sum += (double)cuda_element(g->data, g->dtype, b * g->row_stride + c * g->col_stride);
    }
    if (job->grad_rewards.data != NULL) {
        sum += napier_cuda_load(job->grad_rewards, b);
    }
    return (float)(napier_cuda_load(job->weights, c) * sum);
}

/* 32 tokens, one per thread; t is -1 for a thread without one. */
CUDA_INLINE float napier_cuda_rubric_pull(const napier_cuda_rubric_job *job, int64_t b, int64_t t) {
    const int64_t criteria = job->rubric.rubric.rows;
    float sum = 0.0f;
    for (int64_t first = 0; first < criteria; first += CUDA_WARP) {
        const int64_t c = first + cuda_lane();
        const float mine = c < criteria ? napier_cuda_factor(job, b, c) : 0.0f;
        for (int k = 0; k < CUDA_WARP && first + k < criteria; k++) {
            const float factor = cuda_shuffle_f32(mine, k);
            sum = t >= 0 ? fmaf(factor, napier_cuda_mark(job, first + k, t), sum) : 0.0f;
        }
    }
    return sum;
}

CUDA_KERNEL(napier_rubric_gradients, napier_cuda_rubric_job, NAPIER_RESPONSE_THREADS) {
    const napier_vector out = job.rubric.grad_logprobs;
    if (job.responses.tally->bad != 0) {
        for (int64_t t = cuda_thread(); t < job.responses.tokens; t += cuda_threads()) {
            cuda_put_token(out, t, vf_canonical_nan());
        }
        return;
    }
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (!cuda_tile_of(&job.responses, slot, &tile)) {
            continue;
        }
        for (int i = 0; i < tile.n; i += CUDA_WARP) {
            const int64_t t = i + cuda_lane() < tile.n ? tile.first + i + cuda_lane() : -1;
            const float g = napier_cuda_rubric_pull(&job, tile.response, t);
            if (t >= 0) {
                cuda_put_token(out, t, g);
            }
        }
    }
}
