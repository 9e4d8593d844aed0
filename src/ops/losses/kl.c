/* ops/losses/kl.c - KL divergence per response, from log-probabilities of its tokens: checks, splits the work over
 * tiles, and adds the sums. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/struct_size.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_kl_options *options, napier_kl_options *o) {
    *o = (napier_kl_options)NAPIER_KL_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_kl_options, NAPIER_KL_OPTIONS_INIT, clamp_kl), options, o));
    NAPIER_REFUSE_IF(context, o->estimator < NAPIER_KL_K1 || o->estimator > NAPIER_KL_K3,
                     "options: estimator %d is unknown", (int)o->estimator);
    NAPIER_REFUSE_IF(context, (unsigned)o->reduction > NAPIER_REDUCE_MEAN, "options: reduction %d is unknown",
                     (int)o->reduction);
    NAPIER_REFUSE_IF(context, !(o->clamp_ratio >= 0), "options: clamp_ratio %g is not 0 or more", o->clamp_ratio);
    NAPIER_REFUSE_IF(context, !(o->clamp_kl >= 0), "options: clamp_kl %g is not 0 or more", o->clamp_kl);
    return NAPIER_OK;
}

static void set_limits(napier_kl_job *job, const napier_kl_options *o) {
    NAPIER_DEFAULT_FENV;
    job->estimator = o->estimator;
    job->clamp_ratio = o->clamp_ratio > 0 ? napier_f64_to_f32(o->clamp_ratio) : INFINITY;
    job->clamp_kl = o->clamp_kl > 0 ? napier_f64_to_f32(o->clamp_kl) : INFINITY;
}

napier_status napier_kl_check(napier_context *context, napier_place place, napier_indices offsets,
                              const napier_kl_options *options, napier_const_vector kl, bool backward,
                              napier_kl_job *job, napier_kl_options *o) {
    const int64_t tokens = job->policy.size, responses = napier_offset_lists(offsets);
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW;
    const napier_argument all[] = {
        napier_row_argument("policy_logprobs", job->policy, NAPIER_IS_NARROW, tokens),
        napier_row_argument("ref_logprobs", job->ref, NAPIER_IS_NARROW, tokens),
        napier_row_argument("offsets", napier_indices_bytes(offsets), 0, offsets.size),
        backward ? napier_row_argument("grad_kl", kl, NAPIER_IS_NARROW, responses)
                 : napier_row_argument("kl", kl, out, responses),
        napier_row_argument("grad_policy", napier_read_only_vector(job->grad_policy), out | NAPIER_MAY_BE_ABSENT,
                            tokens),
        napier_row_argument("grad_ref", napier_read_only_vector(job->grad_ref), out | NAPIER_MAY_BE_ABSENT, tokens)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(read_options(context, options, o));
    NAPIER_TRY(napier_check_offset_count(context, "offsets", offsets));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_TRY(napier_check_offsets_on(context, place, offsets, tokens));
    set_limits(job, o);
    return NAPIER_OK;
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
        const napier_kl_sum *sum = t->sums + napier_first_slot(&t->responses, b);
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
    NAPIER_TRY(napier_kl_check(context, NAPIER_ON_HOST, offsets, options, napier_read_only_vector(kl), false, &t.job,
                               &t.options));
    t.responses = napier_responses_of(offsets);
    if (t.responses.count == 0) {
        return NAPIER_OK;
    }
    t.kernels = napier_ops_kernels_of(context->isa)->kl;
    const int64_t slots = napier_tile_slots(&t.responses);
    NAPIER_MEMORY(memory, context);
    t.sums = napier_take(&memory, slots, sizeof *t.sums);
    NAPIER_TRY(napier_taken(&memory, "kl: no memory for the sums of %lld tiles", (long long)slots));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), sum_tiles, &t);
    napier_parallel(context, t.responses.count, 1 << 14, sum_responses, &t);
    return napier_stopped(context);
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
    NAPIER_TRY(napier_kl_check(context, NAPIER_ON_HOST, offsets, options, grad_kl, true, &t.job, &t.options));
    t.responses = napier_responses_of(offsets);
    t.kernels = napier_ops_kernels_of(context->isa)->kl;
    NAPIER_MAY_STOP(context);
    napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), write_gradients, &t);
    return napier_stopped(context);
}
