/* ops/losses/grpo_lanes.h - GRPO losses of 16 tokens at a time (on a GPU: of one), with their derivatives and metrics.
 * Everything here stays within its lane, and serves grpo.inc.h and grpo.cu.
 *
 * A token's loss depends on the policy's log-probability in two ways: directly (the factor of cispo and vespo, the KL
 * penalty), and through the log of the ratio, which is the token's own or the mean over its response. The two
 * derivatives are separate until the level of the ratio is known. */
#ifndef NAPIER_OPS_LOSSES_GRPO_LANES_H
#define NAPIER_OPS_LOSSES_GRPO_LANES_H

#include "ops/losses/grpo_kernels.h"
#include "ops/losses/kl_lanes.h"

/* The inputs of 16 tokens. */
typedef struct napier_grpo_inputs {
    vf logprob, old, ref, sampler, entropy, advantage;
    vm counted;
} napier_grpo_inputs;

typedef struct napier_grpo_outputs {
    vf loss;
    vf direct;   /* d loss / d logprob, except through the ratio */
    vf by_ratio; /* d loss / d log ratio */
    vf ratio, log_ratio, kl, correction;
    vm low, high; /* the clip is active */
    vm kept;      /* selected by the off-policy mask */
    vm bonus;     /* selected by the entropy mask */
} napier_grpo_outputs;

/* The product, with 0 times anything equal to 0. */
NAPIER_KERNEL vf napier_times(vf a, vf b) {
    const vm none = vm_or(vf_eq(a, vf_zero()), vf_eq(b, vf_zero()));
    return vf_select(none, vf_zero(), vf_mul(a, b));
}
NAPIER_KERNEL vf napier_negative(vf x) { return vf_sub(vf_zero(), x); }
NAPIER_KERNEL vm napier_not(vm m) { return vm_andnot(m, vm_first(16)); }

/* ---- The policy's part ------------------------------------------------------------------------------------------- */

/* -min(min(rho, delta) A, clamp(rho, low, high) A). Where both sides are equal, the derivative is the mean of both. */
NAPIER_KERNEL void napier_grpo_clipped(const napier_grpo_job *job, vf a, napier_grpo_outputs *o) {
    const vf rho = o->ratio, delta = vf_set(job->delta), low = vf_set(job->low), high = vf_set(job->high);
    const vm over = vf_gt(rho, delta), below = vf_lt(rho, low), above = vf_gt(rho, high);
    const vf free = vf_select(over, delta, rho);
    const vf held = vf_select(above, high, vf_select(below, low, rho));
    const vf x = napier_times(free, a), y = napier_times(held, a);
    const vf moves_x = vf_keep(napier_not(over), vf_set(1.0f));
    const vf moves_y = vf_keep(napier_not(vm_or(below, above)), vf_set(1.0f));
    vf moves = vf_select(vf_lt(y, x), moves_y, moves_x);
    moves = vf_select(vf_eq(x, y), vf_mul(vf_set(0.5f), vf_add(moves_x, moves_y)), moves);
    o->loss = napier_negative(vf_select(vf_lt(y, x), y, x));
    o->by_ratio = napier_negative(napier_times(napier_times(a, moves), rho));
    o->low = vm_and(vf_lt(free, low), vf_lt(a, vf_zero()));
    o->high = vm_and(vf_gt(free, high), vf_gt(a, vf_zero()));
}

/* -stopgrad(factor) A logprob */
NAPIER_KERNEL void napier_grpo_weighted(vf factor, vf a, vf logprob, napier_grpo_outputs *o) {
    o->direct = napier_negative(napier_times(factor, a));
    o->loss = napier_times(o->direct, logprob);
}

NAPIER_KERNEL void napier_grpo_cispo(const napier_grpo_job *job, vf a, vf logprob, napier_grpo_outputs *o) {
    const vf bound = vf_set(job->bound);
    const vm over = vf_gt(o->ratio, bound);
    napier_grpo_weighted(vf_select(over, bound, o->ratio), a, logprob, o);
    o->high = vm_and(over, vf_gt(a, vf_zero()));
}

/* -(4 / tau) s A with s = sigmoid(tau (rho - 1)), whose derivative is s (1 - s) tau. With e = exp(-|x|) both are
 * quotients in which nothing cancels: s = 1 / (1 + e) or e / (1 + e), and s (1 - s) = e / (1 + e)^2. */
NAPIER_KERNEL void napier_grpo_sapo(const napier_grpo_job *job, vf a, napier_grpo_outputs *o) {
    const vf tau = vf_select(vf_gt(a, vf_zero()), vf_set(job->tau[0]), vf_set(job->tau[1]));
    const vf x = vf_mul(tau, vf_sub(o->ratio, vf_set(1.0f)));
    const vf e = vf_exp(napier_negative(napier_kl_size(x))), whole = vf_add(vf_set(1.0f), e);
    const vf s = vf_div(vf_select(vf_lt(x, vf_zero()), e, vf_set(1.0f)), whole);
    const vf four = vf_set(4.0f);
    o->loss = napier_negative(napier_times(vf_mul(vf_div(four, tau), s), a));
    o->by_ratio =
        napier_negative(napier_times(napier_times(vf_div(vf_div(vf_mul(four, e), whole), whole), a), o->ratio));
}

NAPIER_KERNEL void napier_grpo_policy(const napier_grpo_job *job, const napier_grpo_response *response,
                                      const napier_grpo_inputs *in, napier_grpo_outputs *o) {
    const vf a = in->advantage;
    o->direct = o->by_ratio = vf_zero();
    o->low = o->high = vm_first(0);
    switch (job->type) {
    case NAPIER_GRPO_CISPO: napier_grpo_cispo(job, a, in->logprob, o); break;
    case NAPIER_GRPO_SAPO: napier_grpo_sapo(job, a, o); break;
    case NAPIER_GRPO_VESPO: {
        const vf phi = vf_select(vf_ge(a, vf_zero()), vf_set(response->phi[0]), vf_set(response->phi[1]));
        napier_grpo_weighted(phi, a, in->logprob, o);
        break;
    }
    default: napier_grpo_clipped(job, a, o); break;
    }
}

/* ---- The correction and the KL penalty --------------------------------------------------------------------------- */

/* old - sampler; 0 if the sampler's value is NaN. */
NAPIER_KERNEL napier_difference napier_grpo_mismatch(const napier_grpo_inputs *in) {
    const napier_difference d = napier_difference_of(in->old, in->sampler);
    return (napier_difference){vf_keep(vf_eq(d.d, d.d), d.d), d.low};
}

NAPIER_KERNEL bool napier_grpo_per_token(napier_grpo_correction correction) {
    return correction == NAPIER_GRPO_TOKEN_TRUNCATE || correction == NAPIER_GRPO_TOKEN_MASK;
}

NAPIER_KERNEL vf napier_grpo_correct(const napier_grpo_job *job, const napier_grpo_response *response,
                                     const napier_grpo_inputs *in) {
    if (!napier_grpo_per_token(job->correction)) {
        return vf_set(job->correction == NAPIER_GRPO_UNCORRECTED ? 1.0f : response->correction);
    }
    const vf r = napier_exp_difference(napier_grpo_mismatch(in));
    vm inside;
    const vf cap = vf_set(job->cap), floor = vf_set(job->floor);
    const vm above = vf_gt(r, cap), below = vf_lt(r, floor);
    inside = napier_not(vm_or(above, below));
    return job->correction == NAPIER_GRPO_TOKEN_MASK ? vf_keep(inside, r)
                                                     : vf_select(above, cap, vf_select(below, floor, r));
}

/* Adds beta KL, times the ratio if it is bias-corrected. With the token's own ratio the derivative for k3 is -d rho,
 * because its exponentials cancel. */
NAPIER_KERNEL void napier_grpo_penalty(const napier_grpo_job *job, const napier_grpo_inputs *in,
                                       napier_grpo_outputs *o) {
    const napier_difference d = napier_difference_of(in->ref, in->logprob);
    const napier_estimate e = napier_estimate_of(job->estimator, d);
    const vf beta = vf_set(job->beta);
    if (!job->bias_correction) {
        o->kl = e.value;
        o->loss = vf_fma(beta, e.value, o->loss);
        o->direct = vf_fnma(beta, e.slope, o->direct);
        return;
    }
    const vf factor = vf_mul(beta, o->ratio);
    o->kl = napier_times(e.value, o->ratio);
    o->loss = vf_fma(beta, o->kl, o->loss);
    if (job->sequence) {
        o->direct = vf_sub(o->direct, napier_times(factor, e.slope));
        o->by_ratio = vf_fma(beta, o->kl, o->by_ratio);
    } else {
        const vf slope = job->estimator == NAPIER_KL_K3 ? d.d : vf_sub(e.slope, e.value);
        o->direct = vf_sub(o->direct, napier_times(factor, slope));
    }
}

NAPIER_KERNEL void napier_grpo_multiply(vf factor, vm kept, napier_grpo_outputs *o) {
    o->loss = vf_keep(kept, napier_times(o->loss, factor));
    o->direct = vf_keep(kept, napier_times(o->direct, factor));
    o->by_ratio = vf_keep(kept, napier_times(o->by_ratio, factor));
}

/* ---- Sixteen tokens ---------------------------------------------------------------------------------------------- */

NAPIER_KERNEL napier_grpo_outputs napier_grpo_sixteen(const napier_grpo_job *job, const napier_grpo_response *response,
                                                      const napier_grpo_inputs *in) {
    napier_grpo_outputs o;
    const napier_difference l = napier_difference_of(in->logprob, in->old);
    o.log_ratio = l.d;
    o.ratio = job->sequence ? vf_set(response->ratio) : napier_exp_difference(l);
    o.kl = vf_zero();
    o.kept = o.bonus = in->counted;
    napier_grpo_policy(job, response, in, &o);
    if (job->off_policy && !response->keep) {
        o.kept = vm_and(o.kept, vf_ge(in->advantage, vf_zero()));
    }
    if (job->entropy_mask) {
        o.bonus = vm_and(o.bonus, vf_ge(in->entropy, vf_set(job->entropy_threshold)));
    }
    o.correction = napier_grpo_correct(job, response, in);
    const bool corrects = job->correction != NAPIER_GRPO_UNCORRECTED && job->type != NAPIER_GRPO_VESPO;
    if (corrects || job->off_policy || job->entropy_mask) {
        napier_grpo_multiply(corrects ? o.correction : vf_set(1.0f), vm_and(o.kept, o.bonus), &o);
    }
    if (job->beta != 0.0f) {
        napier_grpo_penalty(job, in, &o);
    }
    return o;
}

/* Multiplies the derivatives by the gradient of the token's loss. With the token's own ratio, both are one. */
NAPIER_KERNEL void napier_grpo_pull(const napier_grpo_job *job, vf grad, napier_grpo_outputs *o) {
    if (!job->sequence) {
        o->direct = vf_add(o->direct, o->by_ratio);
        o->by_ratio = vf_zero();
    }
    o->direct = napier_times(grad, o->direct);
    o->by_ratio = napier_times(grad, o->by_ratio);
}

/* ---- For the scan ------------------------------------------------------------------------------------------------ */

/* a - b, exactly or nearly. 0 if they are equal and, if `known`, if one of them is NaN. */
NAPIER_KERNEL vd napier_wide_difference(vf a, vf b, bool known) {
    const vf d = vf_sub(a, b);
    const vm none = known ? vm_or(vf_eq(a, b), vf_unordered(d, d)) : vf_eq(a, b);
    return vd_select(none, vd_set(0.0), vd_sub(vd_from_vf(a), vd_from_vf(b)));
}
NAPIER_KERNEL vd napier_wide_clamp(vd x, double low, double high) {
    return vd_select(vd_lt(x, vd_set(low)), vd_set(low), vd_select(vd_lt(vd_set(high), x), vd_set(high), x));
}

/* The log of a token's correction, but at least log 1e-8. */
NAPIER_KERNEL vd napier_grpo_log_correction(const napier_grpo_job *job, const napier_grpo_inputs *in) {
    const double lowest = -0x1.26bb1bbb55516p+4; /* log 1e-8 */
    const vf correction = napier_grpo_correct(job, NULL, in);
    vd log = napier_wide_difference(in->old, in->sampler, true);
    log = napier_wide_clamp(log, (double)job->log_floor, (double)job->log_cap);
    log = vd_select(vf_eq(correction, vf_zero()), vd_set(lowest), log);
    return napier_wide_clamp(log, lowest, 20.0);
}

#endif
