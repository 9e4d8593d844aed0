/* ops/losses/gpu/grpo.cu - GRPO losses from log-probabilities: the passes of ops/losses/grpo_run.h. A warp processes a
 * tile, or a response. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/grpo_cuda.h"

/* ---- The scan ---------------------------------------------------------------------------------------------------- */

/* The term of a token in sum s. */
CUDA_INLINE double napier_cuda_scanned(const napier_grpo_job *job, const napier_grpo_inputs *in, int s) {
    switch (1 << s) {
    case NAPIER_SCAN_RATIO: return napier_wide_difference(in->logprob, in->old, false);
    case NAPIER_SCAN_CLAMPED:
        return napier_wide_clamp(napier_wide_difference(in->logprob, in->old, false), -20.0, 20.0);
    case NAPIER_SCAN_MISMATCH: return napier_wide_difference(in->old, in->sampler, true);
    case NAPIER_SCAN_CORRECTED: return napier_grpo_log_correction(job, in);
    default:
        return napier_wide_clamp(napier_wide_difference(in->sampler, in->logprob, true), -0x1.fffffep127,
                                 0x1.fffffep127);
    }
}

/* Computes one sum at a time, because usually at most one of the five is wanted. */
CUDA_INLINE double napier_cuda_scan_sum(const napier_grpo_job *job, const napier_cuda_tile *tile, int s) {
    cuda_wide_ladder sum = {0.0, 0.0, 0.0};
    for (int step = 0; step < CUDA_STEPS; step++) {
        double lane = 0.0;
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int i = cuda_step_token(step, q);
            if (i < tile->n) {
                const napier_grpo_inputs in = cuda_grpo_inputs(job, 0.0f, tile->first + i);
                lane += in.counted ? napier_cuda_scanned(job, &in, s) : 0.0;
            }
        }
        cuda_wide_ladder_add(&sum, step, lane);
    }
    return cuda_wide_ladder_fold(&sum);
}

CUDA_KERNEL(napier_grpo_scan_tiles, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    napier_grpo_job grpo = job.grpo;
    grpo.beta = 0.0f; /* no scan reads the reference */
    grpo.token_advantages = false;
    grpo.entropies.data = NULL;
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (!cuda_tile_of(&job.responses, slot, &tile)) {
            continue;
        }
        int32_t counted = 0;
        for (int i = cuda_lane(); i < tile.n; i += CUDA_WARP) {
            counted += cuda_counts(&job.responses, tile.first + i) ? 1 : 0;
        }
        counted = napier_group_add(CUDA_WARP, counted);
        for (int s = 0; s < NAPIER_SCAN_SUMS; s++) {
            const double sum = job.scans >> s & 1 ? napier_cuda_scan_sum(&grpo, &tile, s) : 0.0;
            if (cuda_lane() == 0) {
                job.scan[slot].sum[s] = sum;
                job.scan[slot].counted = counted;
            }
        }
    }
}

/* ---- The values of a response ------------------------------------------------------------------------------------ */

/* Lane s adds sum s over all tiles; then every lane gets all sums. */
CUDA_INLINE napier_grpo_scan napier_cuda_scan_of(const napier_cuda_grpo_job *job, int64_t b, int64_t *counted) {
    napier_grpo_scan total = {{0.0, 0.0, 0.0, 0.0, 0.0}, 0};
    *counted = cuda_response_size(&job->responses, b);
    if (job->scan == NULL) {
        return total;
    }
    const napier_grpo_scan *const scan = job->scan + cuda_response_slot(&job->responses, b);
    const int64_t tiles = cuda_response_tiles(&job->responses, b);
    const int lane = cuda_lane();
    int64_t count = 0;
    double sum = 0.0;
    for (int64_t i = 0; i < tiles && lane < NAPIER_SCAN_SUMS; i++) {
        sum += scan[i].sum[lane];
    }
    for (int64_t i = lane; i < tiles; i += CUDA_WARP) {
        count += scan[i].counted;
    }
    *counted = cuda_warp_add_i64(count);
    NAPIER_UNROLL
    for (int s = 0; s < NAPIER_SCAN_SUMS; s++) {
        total.sum[s] = cuda_shuffle_f64(sum, s);
    }
    return total;
}

CUDA_KERNEL(napier_grpo_prepare_responses, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t b = cuda_warp(); b < job.responses.count; b += cuda_warps()) {
        int64_t counted;
        const napier_grpo_scan scan = napier_cuda_scan_of(&job, b, &counted);
        if (cuda_lane() == 0) {
            job.response[b] = napier_grpo_prepared(&job.options, &job.responses.tally->all, job.mean, job.grpo.sequence,
                                                   &scan, counted);
        }
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

typedef struct napier_cuda_adder {
    cuda_ladder term[NAPIER_TERMS];
    float lane[NAPIER_TERMS];
    float min, max;
    int32_t low, high, kept, bonus;
} napier_cuda_adder;

CUDA_INLINE void napier_cuda_add(napier_cuda_adder *a, const napier_grpo_inputs *in, const napier_grpo_outputs *o) {
    const float term[NAPIER_TERMS] = {o->loss, o->by_ratio,   o->ratio,    napier_negative(o->log_ratio),
                                      o->kl,   o->correction, in->entropy, vf_keep(o->bonus, in->entropy)};
    NAPIER_UNROLL
    for (int s = 0; s < NAPIER_TERMS; s++) {
        a->lane[s] += vf_keep(in->counted, term[s]);
    }
    a->min = in->counted ? vf_min(o->ratio, a->min) : a->min;
    a->max = in->counted ? vf_max(o->ratio, a->max) : a->max;
    a->low += in->counted && o->low ? 1 : 0;
    a->high += in->counted && o->high ? 1 : 0;
    a->kept += o->kept ? 1 : 0;
    a->bonus += o->bonus ? 1 : 0;
}

/* Terms that the CPU leaves out stay 0. */
CUDA_INLINE void napier_cuda_adder_finish(const napier_grpo_job *job, napier_cuda_adder *a, napier_grpo_sums *sums) {
    const bool corrected = job->correction != NAPIER_GRPO_UNCORRECTED, entropies = job->entropies.data != NULL;
    const bool on[NAPIER_TERMS] = {
        true, job->sequence, true, true, job->beta != 0.0f, corrected, entropies, entropies && job->entropy_mask};
    napier_grpo_sums all;
    NAPIER_UNROLL
    for (int s = 0; s < NAPIER_TERMS; s++) {
        const float sum = cuda_ladder_fold(&a->term[s]);
        all.sum[s] = on[s] ? sum : 0.0f;
    }
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        a->min = vf_min(cuda_shuffle_xor_f32(a->min, lanes), a->min);
        a->max = vf_max(cuda_shuffle_xor_f32(a->max, lanes), a->max);
    }
    all.min_ratio = a->min;
    all.max_ratio = a->max;
    all.tokens = 0; /* the response has the number */
    all.low = napier_group_add(CUDA_WARP, a->low);
    all.high = napier_group_add(CUDA_WARP, a->high);
    all.kept = napier_group_add(CUDA_WARP, a->kept);
    all.bonus = napier_group_add(CUDA_WARP, a->bonus);
    if (cuda_lane() == 0) {
        *sums = all;
    }
}

CUDA_INLINE void napier_cuda_grpo_tile(const napier_grpo_job *job, const napier_grpo_response *response, float one,
                                       const napier_cuda_tile *tile, napier_grpo_sums *sums) {
    napier_cuda_adder a = {.min = INFINITY, .max = -INFINITY};
    for (int step = 0; step < CUDA_STEPS; step++) {
        NAPIER_UNROLL
        for (int s = 0; s < NAPIER_TERMS; s++) {
            a.lane[s] = 0.0f;
        }
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int i = cuda_step_token(step, q);
            if (i >= tile->n) {
                continue;
            }
            const int64_t t = tile->first + i;
            const napier_grpo_inputs in = cuda_grpo_inputs(job, one, t);
            napier_grpo_outputs o = napier_grpo_sixteen(job, response, &in);
            if (job->grad_losses.data != NULL) {
                napier_grpo_pull(job, cuda_token(job->grad_losses, t), &o);
            }
            napier_cuda_add(&a, &in, &o);
            if (job->losses.data != NULL) {
                cuda_put_token(job->losses, t, in.counted ? o.loss : 0.0f);
            }
            if (job->grad_logprobs.data != NULL) {
                cuda_put_token(job->grad_logprobs, t, cuda_grpo_gradient(job, response, &in, &o));
            }
        }
        NAPIER_UNROLL
        for (int s = 0; s < NAPIER_TERMS; s++) {
            cuda_ladder_add(&a.term[s], step, a.lane[s]);
        }
    }
    if (sums != NULL) {
        napier_cuda_adder_finish(job, &a, sums);
    }
}

/* Fills the results with NaN if the offsets are invalid. */
CUDA_INLINE void napier_cuda_grpo_nan(const napier_grpo_job *job, int64_t tokens) {
    for (int64_t t = cuda_thread(); t < tokens; t += cuda_threads()) {
        if (job->losses.data != NULL) {
            cuda_put_token(job->losses, t, vf_canonical_nan());
        }
        if (job->grad_logprobs.data != NULL) {
            cuda_put_token(job->grad_logprobs, t, vf_canonical_nan());
        }
    }
}

CUDA_KERNEL(napier_grpo_loss_tiles, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    const napier_grpo_job grpo = cuda_grpo_job_of(&job);
    if (job.responses.tally->bad != 0) {
        napier_cuda_grpo_nan(&grpo, job.responses.tokens);
        return;
    }
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (cuda_tile_of(&job.responses, slot, &tile)) {
            const napier_grpo_response response = job.response[tile.response];
            napier_cuda_grpo_tile(&grpo, &response, cuda_grpo_advantage(&grpo, tile.response), &tile,
                                  job.sums ? job.sums + slot : NULL);
        }
    }
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

CUDA_KERNEL(napier_grpo_flows, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t b = cuda_warp(); b < job.responses.count; b += cuda_warps()) {
        const napier_grpo_sums *const sums = job.sums + cuda_response_slot(&job.responses, b);
        const int64_t tiles = cuda_response_tiles(&job.responses, b);
        double flow = 0.0;
        for (int64_t i = 0; i < tiles; i += CUDA_WARP) {
            const bool mine = i + cuda_lane() < tiles;
            flow = cuda_warp_ordered(flow, mine ? (double)sums[i + cuda_lane()].sum[NAPIER_TERM_FLOW] : 0.0, tiles - i);
        }
        if (cuda_lane() == 0) {
            napier_grpo_response *const r = &job.response[b];
            r->flow = napier_grpo_flow_of(&job.options, &job.responses.tally->all, job.mean, r->counted, flow);
        }
    }
}

/* Lane s adds term s over the tiles of a response. Counts go to the state. */
CUDA_INLINE void napier_cuda_add_response(const napier_cuda_grpo_job *job, int64_t b) {
    const napier_grpo_sums *const sums = job->sums + cuda_response_slot(&job->responses, b);
    const int64_t tiles = cuda_response_tiles(&job->responses, b), counted = job->response[b].counted;
    const int lane = cuda_lane();
    double sum = 0.0;
    for (int64_t i = 0; i < tiles && lane < NAPIER_TERMS; i++) {
        sum += (double)sums[i].sum[lane];
    }
    int64_t low = 0, high = 0, bonus = 0, kept = 0, most = 0, least = 0;
    for (int64_t i = lane; i < tiles; i += CUDA_WARP) {
        const int64_t min = INT64_MAX - napier_rising(sums[i].min_ratio), max = napier_rising(sums[i].max_ratio);
        low += sums[i].low;
        high += sums[i].high;
        bonus += sums[i].bonus;
        kept += sums[i].kept;
        least = min > least ? min : least;
        most = max > most ? max : most;
    }
    low = cuda_warp_add_i64(low);
    high = cuda_warp_add_i64(high);
    bonus = cuda_warp_add_i64(bonus);
    kept = cuda_warp_add_i64(kept);
    least = cuda_warp_max_i64(least);
    most = cuda_warp_max_i64(most);
    if (lane == NAPIER_TERM_LOSS) {
        sum *= napier_grpo_weight(&job->options, &job->responses.tally->all, job->mean, counted);
    } else if (lane == NAPIER_TERMS) {
        sum = (double)kept / (double)(counted > 0 ? counted : 1);
    }
    if (lane < NAPIER_RESPONSE_SUMS) {
        job->totals[lane * job->responses.count + b] = counted > 0 ? sum : 0.0;
    }
    if (lane == 0) {
        cuda_atomic_add_i64(&job->state->low, low);
        cuda_atomic_add_i64(&job->state->high, high);
        cuda_atomic_add_i64(&job->state->bonus, bonus);
        cuda_atomic_add_i64(&job->state->some, counted > 0 ? 1 : 0);
        cuda_atomic_max_i64(&job->state->min_ratio, least);
        cuda_atomic_max_i64(&job->state->max_ratio, most);
    }
}

CUDA_KERNEL(napier_grpo_add_responses, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t b = cuda_warp(); b < job.responses.count; b += cuda_warps()) {
        napier_cuda_add_response(&job, b);
    }
}

/* ---- The batch --------------------------------------------------------------------------------------------------- */

CUDA_INLINE void napier_cuda_metrics(const napier_cuda_grpo_job *job, const double *sum) {
    napier_cuda_grpo_state *const s = job->state;
    napier_grpo_metrics m = {sizeof m, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    if (job->responses.tally->bad != 0) {
        const double nan = napier_f64_nan();
        const napier_grpo_metrics unknown = {sizeof m, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan};
        m = unknown;
        s->entropy_gradient = vf_canonical_nan();
    } else if (s->some > 0) {
        napier_grpo_totals t;
        for (int i = 0; i < NAPIER_TERMS; i++) {
            t.sum[i] = sum[i];
        }
        t.kept = sum[NAPIER_TERMS];
        t.low = (double)s->low;
        t.high = (double)s->high;
        t.bonus = (double)s->bonus;
        t.some = s->some;
        t.min_ratio = napier_of_rising((uint32_t)(INT64_MAX - s->min_ratio));
        t.min_ratio = t.min_ratio == 0.0f ? -0.0f : t.min_ratio; /* the CPU computes it as the maximum of -ratio */
        t.max_ratio = napier_of_rising((uint32_t)s->max_ratio);
        m = napier_grpo_metrics_from(&job->options, job->responses.tally->all.counted, &t);
        s->entropy_gradient = (float)-napier_grpo_entropy_share(&job->options, t.bonus);
    }
    *job->metrics = m;
}

/* One block, with a warp for each sum. */
CUDA_KERNEL(napier_grpo_finish_batch, napier_cuda_grpo_job, NAPIER_RESPONSE_SUMS * 32) {
    CUDA_SHARED(double, sums);
    const int s = (int)threadIdx.x / CUDA_WARP;
    const int64_t count = job.responses.tally->bad != 0 ? 0 : job.responses.count;
    const double *const mine = job.totals + s * job.responses.count;
    double total = 0.0;
    for (int64_t b = 0; b < count; b += CUDA_WARP) {
        total = cuda_warp_ordered(total, b + cuda_lane() < count ? mine[b + cuda_lane()] : 0.0, count - b);
    }
    if (cuda_lane() == 0) {
        sums[s] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        napier_cuda_metrics(&job, sums);
    }
}

CUDA_KERNEL(napier_grpo_entropy_gradients, napier_cuda_grpo_job, NAPIER_RESPONSE_THREADS) {
    const float threshold = cuda_entropy_threshold(&job), gradient = job.state->entropy_gradient;
    const bool bad = job.responses.tally->bad != 0;
    for (int64_t t = cuda_thread(); t < job.responses.tokens; t += cuda_threads()) {
        bool on = cuda_counts(&job.responses, t);
        if (job.grpo.entropy_mask) {
            on = on && cuda_token(job.grpo.entropies, t) >= threshold;
        }
        cuda_put_token(job.grpo.grad_entropies, t, on || bad ? gradient : 0.0f);
    }
}

CUDA_KERNEL(napier_grpo_copy_results, napier_cuda_copy_job, NAPIER_RESPONSE_THREADS) {
    for (int64_t t = cuda_thread(); t < job.tokens; t += cuda_threads()) {
        if (job.logprobs.data != NULL) {
            cuda_put_token(job.logprobs, t, job.logprob[t]);
        }
        if (job.entropies.data != NULL) {
            cuda_put_token(job.entropies, t, job.entropy[t]);
        }
    }
}
