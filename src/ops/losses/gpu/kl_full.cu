/* ops/losses/gpu/kl_full.cu - KL divergence over the whole vocabulary: from the slots of both rows (token_logprobs.cu)
 * to their sums, from tiles to sums of terms, from those to the divergence, and the gradient. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/kl_full_cuda.h"
#include "ops/losses/kl_lanes.h"

/* ---- Rows to distributions --------------------------------------------------------------------------------------- */

CUDA_INLINE void napier_cuda_kl_sum_slots(const napier_cuda_token_slot *slots, int64_t tiles, napier_sum *out) {
    napier_warp_sum sum = napier_warp_sum_start();
    for (int64_t i = 0; i < tiles; i += CUDA_WARP) {
        napier_tile_part part = napier_no_tile();
        if (i + cuda_lane() < tiles) {
            part.max = slots[i + cuda_lane()].max;
            part.rest = slots[i + cuda_lane()].rest;
            part.count = slots[i + cuda_lane()].count;
        }
        sum = napier_warp_sum_add(sum, part, cuda_lane());
    }
    napier_warp_sum_store(&sum, out, cuda_lane());
    __syncwarp();
}

/* One warp per row of one of the two matrices. */
CUDA_KERNEL(napier_kl_full_rows, napier_cuda_kl_full_job, NAPIER_TOKEN_THREADS) {
    CUDA_SHARED(napier_sum, sums);
    napier_sum *const mine = sums + threadIdx.x / CUDA_WARP;
    for (int64_t i = cuda_warp(); i < 2 * job.kl.policy.rows; i += cuda_warps()) {
        const napier_cuda_token_slot *const slots = i % 2 == 0 ? job.slots[0] : job.slots[1];
        napier_cuda_kl_sum_slots(slots + i / 2 * job.tiles, job.tiles, mine);
        if (cuda_lane() == 0) {
            napier_cuda_kl_row *const r = &job.rows[i / 2];
            r->good[i % 2] = napier_kl_row_from(mine, i % 2 == 0 ? &r->p : &r->q);
        }
        __syncwarp();
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

CUDA_INLINE float napier_cuda_kl_z(const napier_const_matrix *m, int64_t row, int64_t column, float temperature) {
    const float x = cuda_element(m->data, m->dtype, row * m->row_stride + column * m->col_stride);
    return temperature != 1.0f ? x / temperature : x;
}

CUDA_INLINE napier_kl_pair napier_cuda_kl_pair(const napier_kl_full_job *kl, const napier_cuda_kl_row *r, int64_t row,
                                               int64_t column) {
    return napier_kl_pair_of(&r->p, &r->q, napier_cuda_kl_z(&kl->policy, row, column, kl->temperature),
                             napier_cuda_kl_z(&kl->ref, row, column, kl->temperature));
}

CUDA_INLINE napier_cuda_kl_part napier_cuda_kl_full_tile(const napier_cuda_kl_full_job *job,
                                                         const napier_cuda_kl_row *r, int64_t row, int64_t first) {
    cuda_ladder sum = {0.0f, 0.0f, 0.0f}, over = sum, rests = sum, probs = sum;
    for (int s = 0; s < CUDA_STEPS; s++) {
        float lane = 0.0f, excess = 0.0f, rest = 0.0f, prob = 0.0f;
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int64_t column = first + cuda_step_token(s, q);
            if (column < job->kl.policy.cols) {
                const napier_kl_pair pair = napier_cuda_kl_pair(&job->kl, r, row, column);
                lane += napier_kl_term(&pair);
                excess += napier_kl_excess(&pair);
                rest += napier_kl_rest(&pair);
                prob += napier_kl_prob(&pair);
            }
        }
        cuda_ladder_add(&sum, s, lane);
        cuda_ladder_add(&over, s, excess);
        cuda_ladder_add(&rests, s, rest);
        cuda_ladder_add(&probs, s, prob);
    }
    const napier_cuda_kl_part part = {cuda_ladder_fold(&sum), cuda_ladder_fold(&over), cuda_ladder_fold(&rests),
                                      cuda_ladder_fold(&probs)};
    return part;
}

CUDA_KERNEL(napier_kl_full_tiles, napier_cuda_kl_full_job, NAPIER_TOKEN_THREADS) {
    for (int64_t i = cuda_warp(); i < job.kl.policy.rows * job.tiles; i += cuda_warps()) {
        const int64_t row = i / job.tiles;
        const napier_cuda_kl_row r = job.rows[row];
        if (r.good[0] && r.good[1]) {
            const napier_cuda_kl_part part = napier_cuda_kl_full_tile(&job, &r, row, i % job.tiles * NAPIER_TILE);
            if (cuda_lane() == 0) {
                job.parts[i] = part;
            }
        }
    }
}

/* ---- The divergence ---------------------------------------------------------------------------------------------- */

CUDA_INLINE void napier_cuda_kl_settle(const napier_cuda_kl_full_job *job, int64_t row, napier_cuda_kl_row *r) {
    const napier_cuda_kl_part *const parts = job->parts + row * job->tiles;
    napier_kl_sums sums = {0.0, 0.0, 0.0, 0.0};
    for (int64_t i = 0; i < job->tiles; i += CUDA_WARP) {
        napier_cuda_kl_part mine = {0.0f, 0.0f, 0.0f, 0.0f};
        if (i + cuda_lane() < job->tiles) {
            mine = parts[i + cuda_lane()];
        }
        sums.kl = cuda_warp_ordered(sums.kl, (double)mine.sum, job->tiles - i);
        sums.excess = cuda_warp_ordered(sums.excess, (double)mine.excess, job->tiles - i);
        sums.rest = cuda_warp_ordered(sums.rest, (double)mine.rest, job->tiles - i);
        sums.prob = cuda_warp_ordered(sums.prob, (double)mine.prob, job->tiles - i);
    }
    r->kl = napier_kl_settle(sums.kl, sums.excess, &r->q);
    r->certain = napier_kl_certain(r->kl, &sums);
}

CUDA_KERNEL(napier_kl_full_finish, napier_cuda_kl_full_job, NAPIER_TOKEN_THREADS) {
    for (int64_t row = cuda_warp(); row < job.kl.policy.rows; row += cuda_warps()) {
        napier_cuda_kl_row r = job.rows[row];
        r.kl = job.tiles == 0 ? 0.0 : napier_f64_nan();
        if (job.tiles > 0 && r.good[0] && r.good[1]) {
            napier_cuda_kl_settle(&job, row, &r);
        }
        if (cuda_lane() == 0) {
            job.rows[row] = r;
            if (job.out.data != NULL) {
                napier_f64_store(job.out.data, job.out.dtype, row * job.out.stride, r.kl);
            }
        }
    }
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

CUDA_INLINE void napier_cuda_kl_full_put(napier_matrix m, int64_t row, int64_t column, float v) {
    if (m.data != NULL) {
        cuda_put(m.data, m.dtype, row * m.row_stride + column * m.col_stride, v);
    }
}

/* A thread reads both logits of a column before it writes, because the results may be in place of them. */
CUDA_KERNEL(napier_kl_full_gradients, napier_cuda_kl_full_job, NAPIER_TOKEN_THREADS) {
    const int64_t cols = job.kl.policy.cols;
    for (int64_t i = cuda_warp(); i < job.kl.policy.rows * job.tiles; i += cuda_warps()) {
        const int64_t row = i / job.tiles, first = i % job.tiles * NAPIER_TILE;
        const int64_t end = first + NAPIER_TILE < cols ? first + NAPIER_TILE : cols;
        const napier_cuda_kl_row r = job.rows[row];
        const float g = cuda_token(job.grad_kl, row), kl = (float)r.kl;
        for (int64_t column = first + cuda_lane(); column < end; column += CUDA_WARP) {
            float to_p = 0.0f, to_q = 0.0f;
            if (g != 0.0f && r.kl == r.kl) {
                const napier_kl_pair pair = napier_cuda_kl_pair(&job.kl, &r, row, column);
                to_p = napier_kl_policy_slope(&pair, kl, (float)r.certain, g) / job.kl.temperature;
                to_q = g * napier_kl_excess(&pair) / job.kl.temperature;
            } else if (g != 0.0f) {
                to_p = to_q = vf_canonical_nan();
            }
            napier_cuda_kl_full_put(job.kl.grad_policy, row, column, to_p);
            napier_cuda_kl_full_put(job.kl.grad_ref, row, column, to_q);
        }
    }
}
