/* ops/losses/kl.c - KL divergence per response, from log-probabilities of its tokens: checks, splits the work over
 * tiles, and adds the sums. */
#include <math.h>

#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_limit(napier_context *context, const char *name, double limit) {
    if (!(limit >= 0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: %s %g is not 0 or more", name, limit);
    }
    return NAPIER_OK;
}

static napier_status read_options(napier_context *context, const napier_kl_options *options, napier_kl_options *o) {
    *o = (napier_kl_options)NAPIER_KL_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_KL_OPTIONS_INIT", options, o));
    if (o->estimator < NAPIER_KL_K1 || o->estimator > NAPIER_KL_K3) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: estimator %d is unknown", (int)o->estimator);
    }
    if ((unsigned)o->reduction > NAPIER_REDUCE_MEAN) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: reduction %d is unknown", (int)o->reduction);
    }
    NAPIER_TRY(check_limit(context, "clamp_ratio", o->clamp_ratio));
    return check_limit(context, "clamp_kl", o->clamp_kl);
}

/* all: the log-probabilities of the policy and of the reference, the offsets, and the call's other arguments. */
static napier_status check_call(napier_context *context, napier_place place, napier_indices offsets,
                                const napier_argument *all, size_t count, const napier_kl_options *options,
                                napier_kl_options *o) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(read_options(context, options, o));
    NAPIER_TRY(napier_check_offset_count(context, "offsets", offsets));
    NAPIER_TRY(napier_check_arguments(context, all, count));
    return napier_check_offsets_on(context, place, offsets, all[0].cols);
}

napier_status napier_kl_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                              napier_const_vector ref_logprobs, napier_indices offsets,
                              const napier_kl_options *options, napier_vector kl, napier_kl_options *o) {
    const int64_t tokens = policy_logprobs.size, responses = offsets.size - 1;
    const napier_argument all[] = {
        napier_row_argument("policy_logprobs", policy_logprobs, NAPIER_IS_NARROW, tokens),
        napier_row_argument("ref_logprobs", ref_logprobs, NAPIER_IS_NARROW, tokens),
        napier_row_argument("offsets", napier_indices_bytes(offsets), 0, offsets.size),
        napier_row_argument("kl", napier_read_only_vector(kl), NAPIER_IS_OUT | NAPIER_IS_NARROW, responses)};
    return check_call(context, place, offsets, all, sizeof all / sizeof *all, options, o);
}

napier_status napier_kl_backward_check(napier_context *context, napier_place place, napier_const_vector policy_logprobs,
                                       napier_const_vector ref_logprobs, napier_indices offsets,
                                       const napier_kl_options *options, napier_const_vector grad_kl,
                                       napier_vector grad_policy, napier_vector grad_ref, napier_kl_options *o) {
    const int64_t tokens = policy_logprobs.size, responses = offsets.size - 1;
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[] = {
        napier_row_argument("policy_logprobs", policy_logprobs, NAPIER_IS_NARROW, tokens),
        napier_row_argument("ref_logprobs", ref_logprobs, NAPIER_IS_NARROW, tokens),
        napier_row_argument("offsets", napier_indices_bytes(offsets), 0, offsets.size),
        napier_row_argument("grad_kl", grad_kl, NAPIER_IS_NARROW, responses),
        napier_row_argument("grad_policy", napier_read_only_vector(grad_policy), out, tokens),
        napier_row_argument("grad_ref", napier_read_only_vector(grad_ref), out, tokens)};
    return check_call(context, place, offsets, all, sizeof all / sizeof *all, options, o);
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

typedef struct kl_task {
    const napier_kl_kernels *kernels;
    napier_kl_job job;
    napier_kl_options options;
    napier_responses responses;
    napier_kl_sum *sums; /* one per tile, by slot */
    napier_vector kl;
    napier_const_vector grad_kl;
} kl_task;

void napier_kl_limits(napier_kl_job *job, const napier_kl_options *o) {
    const napier_fenv caller = napier_fenv_enter();
    job->estimator = o->estimator;
    job->clamp_ratio = o->clamp_ratio > 0 ? napier_f64_to_f32(o->clamp_ratio) : INFINITY;
    job->clamp_kl = o->clamp_kl > 0 ? napier_f64_to_f32(o->clamp_kl) : INFINITY;
    napier_fenv_leave(caller);
}

static void sum_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const kl_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        napier_kl_sum *sum = &t->sums[tile.slot];
        sum->value = t->kernels->tile(&t->job, tile.first, tile.n, &sum->counted);
    }
}

static void sum_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const kl_task *t = argument;
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

napier_status napier_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                     napier_const_vector ref_logprobs, napier_indices offsets, const uint8_t *mask,
                                     const napier_kl_options *options, napier_vector kl) {
    kl_task t = {.job = {.policy = policy_logprobs, .ref = ref_logprobs, .mask = mask}, .kl = kl};
    NAPIER_TRY(
        napier_kl_check(context, NAPIER_ON_HOST, policy_logprobs, ref_logprobs, offsets, options, kl, &t.options));
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
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), sum_tiles, &t);
    napier_parallel(context, t.responses.count, 1 << 14, sum_responses, &t);
    napier_free(&context->allocator, t.sums);
    return NAPIER_OK;
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The gradient of each counted token's estimate. */
static float token_gradient(const kl_task *t, int64_t b) {
    double g = napier_f64_load(t->grad_kl.data, t->grad_kl.dtype, b * t->grad_kl.stride);
    if (t->options.reduction == NAPIER_REDUCE_MEAN) {
        const int64_t begin = napier_response_begin(&t->responses, b);
        const int64_t counted = napier_count_mask(t->job.mask, begin, begin + napier_response_size(&t->responses, b));
        g = counted > 0 ? g / (double)counted : 0.0;
    }
    return (float)g;
}

static void write_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const kl_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    int64_t response = -1;
    float gradient = 0;
    (void)worker;
    while (napier_next_tile(&tile)) {
        if (tile.response != response) {
            response = tile.response;
            gradient = token_gradient(t, response);
        }
        t->kernels->tile_gradient(&t->job, tile.first, tile.n, gradient);
    }
}

napier_status napier_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                              napier_const_vector ref_logprobs, napier_indices offsets,
                                              const uint8_t *mask, const napier_kl_options *options,
                                              napier_const_vector grad_kl, napier_vector grad_policy,
                                              napier_vector grad_ref) {
    kl_task t = {.job = {policy_logprobs, ref_logprobs, mask, NAPIER_KL_K1, 0, 0, grad_policy, grad_ref},
                 .grad_kl = grad_kl};
    NAPIER_TRY(napier_kl_backward_check(context, NAPIER_ON_HOST, policy_logprobs, ref_logprobs, offsets, options,
                                        grad_kl, grad_policy, grad_ref, &t.options));
    t.responses = napier_responses_of(offsets);
    t.kernels = &napier_ops_kernels_of(context->isa)->kl;
    napier_kl_limits(&t.job, &t.options);
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), write_gradients, &t);
    return NAPIER_OK;
}
