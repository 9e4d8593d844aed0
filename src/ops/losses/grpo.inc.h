/* ops/losses/grpo.inc.h - GRPO losses of tiles: loads tokens for grpo_lanes.h, 16 at a time, stores its results and
 * sums them. Compiled once per instruction set. */
#ifndef NAPIER_OPS_LOSSES_GRPO_INC_H
#define NAPIER_OPS_LOSSES_GRPO_INC_H

#include "ops/losses/grpo_lanes.h"
#include "ops/tokens/responses.inc.h"

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

typedef struct napier_grpo_tile_inputs {
    const float *logprob, *old, *ref, *sampler, *entropy, *advantage, *pull;
    const uint8_t *mask;
    float one; /* the response's advantage, if advantages are not per token */
    float rooms[7][NAPIER_TILE];
} napier_grpo_tile_inputs;

/* The element, widened exactly. */
NAPIER_KERNEL float napier_grpo_element(napier_const_vector v, int64_t i) {
    float lanes[16];
    vf_store(lanes, napier_load_part(napier_at(v.data, v.dtype, i * v.stride), v.dtype, 1, vf_zero()));
    return lanes[0];
}

NAPIER_KERNEL void napier_grpo_look(const napier_grpo_job *job, int64_t b, int64_t first, int n,
                                    napier_grpo_tile_inputs *t) {
    t->logprob = napier_tokens(job->logprobs, first, n, t->rooms[0]);
    t->old = napier_tokens(job->old, first, n, t->rooms[1]);
    t->ref = job->beta != 0.0f ? napier_tokens(job->ref, first, n, t->rooms[2]) : NULL;
    t->sampler = napier_tokens(job->sampler, first, n, t->rooms[3]);
    t->entropy = napier_tokens(job->entropies, first, n, t->rooms[4]);
    t->advantage = job->token_advantages ? napier_tokens(job->advantages, first, n, t->rooms[5]) : NULL;
    t->pull = napier_tokens(job->grad_losses, first, n, t->rooms[6]);
    t->one = job->token_advantages || b < 0 ? 0.0f : napier_grpo_element(job->advantages, b);
    t->mask = job->mask ? job->mask + first : NULL;
}

NAPIER_KERNEL vf napier_grpo_or(const float *x, int i, int n, vf otherwise) {
    return x ? napier_sixteen_tokens(x, i, n, 0.0f) : otherwise;
}

/* The inputs of 16 tokens. The policy replaces an absent old policy, and the old policy an absent sampler. */
NAPIER_KERNEL napier_grpo_inputs napier_grpo_inputs_at(const napier_grpo_tile_inputs *t, int i, int n) {
    napier_grpo_inputs in;
    in.logprob = napier_sixteen_tokens(t->logprob, i, n, 0.0f);
    in.old = napier_grpo_or(t->old, i, n, in.logprob);
    in.ref = napier_grpo_or(t->ref, i, n, vf_zero());
    in.sampler = napier_grpo_or(t->sampler, i, n, in.old);
    in.entropy = napier_grpo_or(t->entropy, i, n, vf_zero());
    in.advantage = napier_grpo_or(t->advantage, i, n, vf_set(t->one));
    in.counted = napier_counted(t->mask, i, n);
    return in;
}

/* The sums of the terms, and the counts. */
typedef struct napier_grpo_adder {
    napier_lane_sum term[NAPIER_TERMS];
    bool on[NAPIER_TERMS];
    vf min, max;
    int32_t tokens, low, high, kept, bonus;
} napier_grpo_adder;

NAPIER_KERNEL void napier_grpo_adder_start(const napier_grpo_job *job, int n, napier_grpo_adder *a) {
    const bool corrected = job->correction != NAPIER_GRPO_UNCORRECTED, entropies = job->entropies.data;
    const bool on[NAPIER_TERMS] = {
        true, job->sequence, true, true, job->beta != 0.0f, corrected, entropies, entropies && job->entropy_mask};
    for (int s = 0; s < NAPIER_TERMS; s++) {
        a->on[s] = on[s];
        if (on[s]) {
            napier_lane_start(&a->term[s], n);
        }
    }
    a->min = napier_infinity();
    a->max = napier_minus_infinity();
    a->tokens = a->low = a->high = a->kept = a->bonus = 0;
}

NAPIER_KERNEL void napier_grpo_add(napier_grpo_adder *a, int i, const napier_grpo_inputs *in,
                                   const napier_grpo_outputs *o) {
    const vf term[NAPIER_TERMS] = {o->loss, o->by_ratio,   o->ratio,    napier_negative(o->log_ratio),
                                   o->kl,   o->correction, in->entropy, vf_keep(o->bonus, in->entropy)};
    NAPIER_UNROLL
    for (int s = 0; s < NAPIER_TERMS; s++) {
        if (a->on[s]) {
            napier_lane_add(&a->term[s], i, vf_keep(in->counted, term[s]));
        }
    }
    a->min = vf_min(vf_select(in->counted, o->ratio, napier_infinity()), a->min);
    a->max = vf_max(vf_select(in->counted, o->ratio, napier_minus_infinity()), a->max);
    a->tokens += vm_count(in->counted);
    a->low += vm_count(vm_and(in->counted, o->low));
    a->high += vm_count(vm_and(in->counted, o->high));
    a->kept += vm_count(o->kept);
    a->bonus += vm_count(o->bonus);
}

NAPIER_KERNEL void napier_grpo_adder_finish(napier_grpo_adder *a, int n, napier_grpo_sums *sums) {
    for (int s = 0; s < NAPIER_TERMS; s++) {
        sums->sum[s] = a->on[s] ? napier_lane_fold(&a->term[s], n) : 0.0f;
    }
    sums->max_ratio = vf_hmax(a->max);
    sums->min_ratio = -vf_hmax(napier_negative(a->min));
    sums->tokens = a->tokens;
    sums->low = a->low;
    sums->high = a->high;
    sums->kept = a->kept;
    sums->bonus = a->bonus;
}

static void napier_grpo_tile(const napier_grpo_job *job, const napier_grpo_response *response, int64_t b, int64_t first,
                             int n, napier_grpo_sums *sums) {
    float rooms[2][NAPIER_TILE];
    napier_grpo_tile_inputs t;
    napier_grpo_adder adder;
    float *losses = napier_tokens_out(job->losses, first, rooms[0]);
    float *grad = napier_tokens_out(job->grad_logprobs, first, rooms[1]);
    const vf weight = vf_set(response->weight), flow = vf_set(response->flow);
    napier_grpo_look(job, b, first, n, &t);
    if (sums) {
        napier_grpo_adder_start(job, n, &adder);
    }
    for (int i = 0; i < n; i += 16) {
        const napier_grpo_inputs in = napier_grpo_inputs_at(&t, i, n);
        napier_grpo_outputs o = napier_grpo_sixteen(job, response, &in);
        if (t.pull) {
            napier_grpo_pull(job, napier_sixteen_tokens(t.pull, i, n, 0.0f), &o);
        }
        if (sums) {
            napier_grpo_add(&adder, i, &in, &o);
        }
        if (losses) {
            napier_sixteen_results(losses, i, n, vf_keep(in.counted, o.loss));
        }
        if (grad) {
            const vf whole =
                job->sequence ? vf_fma(weight, o.direct, flow) : vf_mul(weight, vf_add(o.direct, o.by_ratio));
            napier_sixteen_results(grad, i, n, vf_keep(in.counted, whole));
        }
    }
    napier_tokens_put(job->losses, first, n, losses);
    napier_tokens_put(job->grad_logprobs, first, n, grad);
    if (sums) {
        napier_grpo_adder_finish(&adder, n, sums);
    }
}

static void napier_grpo_entropy_gradient(const napier_grpo_job *job, int64_t first, int n) {
    float rooms[2][NAPIER_TILE];
    const float *entropy = napier_tokens(job->entropies, first, n, rooms[0]);
    const uint8_t *mask = job->mask ? job->mask + first : NULL;
    float *grad = napier_tokens_out(job->grad_entropies, first, rooms[1]);
    for (int i = 0; i < n; i += 16) {
        vm on = napier_counted(mask, i, n);
        if (job->entropy_mask) {
            on = vm_and(on, vf_ge(napier_sixteen_tokens(entropy, i, n, 0.0f), vf_set(job->entropy_threshold)));
        }
        napier_sixteen_results(grad, i, n, vf_keep(on, vf_set(job->entropy_gradient)));
    }
    napier_tokens_put(job->grad_entropies, first, n, grad);
}

/* ---- The scan ---------------------------------------------------------------------------------------------------- */

NAPIER_KERNEL void napier_scan_add(napier_wide_sum *sum, int i, vm counted, vd x) {
    napier_wide_add(sum, i, vd_select(counted, x, vd_set(0.0)));
}

static void napier_grpo_scan_tile(const napier_grpo_job *job, int64_t first, int n, unsigned wanted,
                                  napier_grpo_scan *scan) {
    napier_grpo_tile_inputs t;
    napier_wide_sum sum[NAPIER_SCAN_SUMS];
    napier_grpo_look(job, -1, first, n, &t);
    for (int s = 0; s < NAPIER_SCAN_SUMS; s++) {
        if (wanted >> s & 1) {
            napier_wide_start(&sum[s], n);
        }
    }
    scan->counted = 0;
    for (int i = 0; i < n; i += 16) {
        const napier_grpo_inputs in = napier_grpo_inputs_at(&t, i, n);
        scan->counted += vm_count(in.counted);
        const vd l = napier_wide_difference(in.logprob, in.old, false);
        if (wanted & NAPIER_SCAN_RATIO) {
            napier_scan_add(&sum[0], i, in.counted, l);
        }
        if (wanted & NAPIER_SCAN_CLAMPED) {
            napier_scan_add(&sum[1], i, in.counted, napier_wide_clamp(l, -20.0, 20.0));
        }
        if (wanted & NAPIER_SCAN_MISMATCH) {
            napier_scan_add(&sum[2], i, in.counted, napier_wide_difference(in.old, in.sampler, true));
        }
        if (wanted & NAPIER_SCAN_CORRECTED) {
            napier_scan_add(&sum[3], i, in.counted, napier_grpo_log_correction(job, &in));
        }
        if (wanted & NAPIER_SCAN_DRIFT) {
            const vd drift = napier_wide_difference(in.sampler, in.logprob, true);
            napier_scan_add(&sum[4], i, in.counted, napier_wide_clamp(drift, -0x1.fffffep127, 0x1.fffffep127));
        }
    }
    for (int s = 0; s < NAPIER_SCAN_SUMS; s++) {
        scan->sum[s] = wanted >> s & 1 ? napier_wide_fold(&sum[s], n) : 0.0;
    }
}

#endif
