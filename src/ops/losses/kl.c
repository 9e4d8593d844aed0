/* ops/losses/kl.c - KL divergence per response, from log-probabilities of its tokens: checks, splits the work over
 * tiles, and adds the sums. */
#include <math.h>

#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status napier_kl_limit(napier_context *context, const char *name, double limit) {
    if (!(limit >= 0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: %s %g is not 0 or more", name, limit);
    }
    return NAPIER_OK;
}

static napier_status napier_kl_options_read(napier_context *context, const napier_kl_options *options,
                                            napier_kl_options *o) {
    *o = (napier_kl_options)NAPIER_KL_OPTIONS_INIT;
    napier_status status = napier_read_options(context, "options", "NAPIER_KL_OPTIONS_INIT", options, o);
    if (status) {
        return status;
    }
    if (o->estimator < NAPIER_KL_K1 || o->estimator > NAPIER_KL_K3) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: estimator %d is unknown", (int)o->estimator);
    }
    if ((unsigned)o->reduction > NAPIER_REDUCE_MEAN) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: reduction %d is unknown", (int)o->reduction);
    }
    status = napier_kl_limit(context, "clamp_ratio", o->clamp_ratio);
    return status ? status : napier_kl_limit(context, "clamp_kl", o->clamp_kl);
}

static napier_status napier_kl_arguments(napier_context *context, napier_place place, napier_const_vector policy,
                                         napier_const_vector ref, napier_indices offsets,
                                         const napier_kl_options *options, napier_kl_options *o) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_tokens(context, "policy_logprobs", policy, policy.size, false);
    if (!status)
        status = napier_check_tokens(context, "ref_logprobs", ref, policy.size, false);
    if (!status)
        status = napier_check_offsets_on(context, place, offsets, policy.size);
    if (!status)
        status = napier_kl_options_read(context, options, o);
    return status;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

typedef struct napier_kl_task {
    const napier_kl_kernels *kernels;
    napier_kl_job job;
    napier_kl_options options;
    napier_responses responses;
    napier_kl_sum *sums; /* one per tile, by slot */
    napier_vector kl;
    napier_const_vector grad_kl;
} napier_kl_task;

void napier_kl_limits(napier_kl_job *job, const napier_kl_options *o) {
    const napier_fenv caller = napier_fenv_enter();
    job->estimator = o->estimator;
    job->clamp_ratio = o->clamp_ratio > 0 ? napier_f64_to_f32(o->clamp_ratio) : INFINITY;
    job->clamp_kl = o->clamp_kl > 0 ? napier_f64_to_f32(o->clamp_kl) : INFINITY;
    napier_fenv_leave(caller);
}

static void napier_kl_tokens(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_kl_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        napier_kl_sum *sum = &t->sums[tile.slot];
        sum->value = t->kernels->tile(&t->job, tile.first, tile.n, &sum->counted);
    }
}

static void napier_kl_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_kl_task *t = argument;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        const napier_kl_sum *sum =
            t->sums + napier_tile_slot(&t->responses, b, napier_response_begin(&t->responses, b));
        double total = 0, counted = 0;
        for (int64_t i = 0; i < napier_response_tiles(&t->responses, b); i++) {
            total += (double)sum[i].value;
            counted += (double)sum[i].counted;
        }
        if (t->options.reduction == NAPIER_REDUCE_MEAN && counted > 0) {
            total /= counted;
        }
        napier_f64_store(t->kl.data, t->kl.dtype, b * t->kl.stride, total);
    }
}

napier_status napier_kl_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                              napier_const_vector ref_logprobs, napier_indices offsets,
                              const napier_kl_options *options, napier_vector kl, napier_kl_options *o) {
    napier_status status = napier_kl_arguments(context, place, policy_logprobs, ref_logprobs, offsets, options, o);
    if (!status)
        status = napier_check_tokens_out(context, "kl", kl, offsets.size - 1, false);
    if (!status)
        status = napier_check_apart(context, "kl", kl, "policy_logprobs", policy_logprobs);
    if (!status)
        status = napier_check_apart(context, "kl", kl, "ref_logprobs", ref_logprobs);
    if (!status)
        status = napier_check_apart(context, "kl", kl, "offsets", napier_indices_bytes(offsets));
    return status;
}

napier_status napier_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                     napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                     const napier_kl_options *options, napier_vector kl) {
    napier_kl_task t = {.job = {.policy = policy_logprobs, .ref = ref_logprobs, .mask = mask}, .kl = kl};
    const napier_status status =
        napier_kl_check(context, NAPIER_ON_HOST, policy_logprobs, ref_logprobs, offsets, options, kl, &t.options);
    if (status) {
        return status;
    }
    t.responses = napier_responses_of(offsets);
    if (t.responses.count == 0) {
        return NAPIER_OK;
    }
    t.kernels = &napier_ops_kernels_of(context->isa)->kl;
    napier_kl_limits(&t.job, &t.options);
    const int64_t slots = napier_tile_slots(&t.responses);
    t.sums = napier_alloc(&context->allocator, (size_t)slots, sizeof *t.sums);
    if (!t.sums) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "kl: no memory for the sums of %lld tiles", (long long)slots);
    }
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), napier_kl_tokens, &t);
    napier_parallel(context, t.responses.count, 1 << 14, napier_kl_responses, &t);
    napier_free(&context->allocator, t.sums);
    return NAPIER_OK;
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The gradient of each counted token's estimate. */
static float napier_kl_token_gradient(const napier_kl_task *t, int64_t b) {
    double g = napier_f64_load(t->grad_kl.data, t->grad_kl.dtype, b * t->grad_kl.stride);
    if (t->options.reduction == NAPIER_REDUCE_MEAN) {
        const int64_t begin = napier_response_begin(&t->responses, b);
        const int64_t counted = napier_count_mask(t->job.mask, begin, begin + napier_response_size(&t->responses, b));
        g = counted > 0 ? g / (double)counted : 0.0;
    }
    return (float)g;
}

static void napier_kl_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_kl_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    int64_t response = -1;
    float gradient = 0;
    (void)worker;
    while (napier_next_tile(&tile)) {
        if (tile.response != response) {
            response = tile.response;
            gradient = napier_kl_token_gradient(t, response);
        }
        t->kernels->tile_gradient(&t->job, tile.first, tile.n, gradient);
    }
}

/* Checks an output with one element per token against overlap with all inputs. */
static napier_status napier_kl_check_out(napier_context *context, const char *name, napier_vector out,
                                         napier_const_vector policy, napier_const_vector ref,
                                         napier_const_vector grad_kl, napier_indices offsets) {
    napier_status status = napier_check_tokens_out(context, name, out, policy.size, true);
    if (!status)
        status = napier_check_apart(context, name, out, "policy_logprobs", policy);
    if (!status)
        status = napier_check_apart(context, name, out, "ref_logprobs", ref);
    if (!status)
        status = napier_check_apart(context, name, out, "grad_kl", grad_kl);
    if (!status)
        status = napier_check_apart(context, name, out, "offsets", napier_indices_bytes(offsets));
    return status;
}

napier_status napier_kl_backward_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                                       napier_const_vector ref_logprobs, napier_indices offsets,
                                       const napier_kl_options *options, napier_const_vector grad_kl,
                                       napier_vector grad_policy, napier_vector grad_ref, napier_kl_options *o) {
    napier_status status = napier_kl_arguments(context, place, policy_logprobs, ref_logprobs, offsets, options, o);
    if (!status)
        status = napier_check_tokens(context, "grad_kl", grad_kl, offsets.size - 1, false);
    if (!status) {
        status =
            napier_kl_check_out(context, "grad_policy", grad_policy, policy_logprobs, ref_logprobs, grad_kl, offsets);
    }
    if (!status)
        status = napier_kl_check_out(context, "grad_ref", grad_ref, policy_logprobs, ref_logprobs, grad_kl, offsets);
    if (!status)
        status = napier_check_apart(context, "grad_ref", grad_ref, "grad_policy", napier_read_only_vector(grad_policy));
    return status;
}

napier_status napier_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                              napier_const_vector ref_logprobs, napier_indices offsets,
                                              const uint8_t *mask, const napier_kl_options *options,
                                              napier_const_vector grad_kl, napier_vector grad_policy,
                                              napier_vector grad_ref) {
    napier_kl_task t = {.job = {policy_logprobs, ref_logprobs, mask, NAPIER_KL_K1, 0, 0, grad_policy, grad_ref},
                        .grad_kl = grad_kl};
    const napier_status status = napier_kl_backward_check(context, NAPIER_ON_HOST, policy_logprobs, ref_logprobs,
                                                          offsets, options, grad_kl, grad_policy, grad_ref, &t.options);
    if (status) {
        return status;
    }
    t.responses = napier_responses_of(offsets);
    t.kernels = &napier_ops_kernels_of(context->isa)->kl;
    napier_kl_limits(&t.job, &t.options);
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), napier_kl_gradients,
                    &t);
    return NAPIER_OK;
}
