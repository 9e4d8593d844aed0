/* ops/losses/rubric.c - rubric scores: checks, splits the work over tiles, and adds the sums. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status napier_rubric_arguments(napier_context *context, napier_place place, int64_t tokens,
                                             const napier_rubric_task *t) {
    const napier_const_matrix rubric = t->job.rubric;
    napier_status status = napier_check_matrix(context, "rubric", rubric);
    if (!status)
        status = napier_check_not_f64(context, "rubric", rubric.dtype);
    if (!status)
        status = napier_check_tokens(context, "weights", t->weights, rubric.rows, false);
    if (!status)
        status = napier_check_offsets_on(context, place, t->responses.offsets, tokens);
    if (!status)
        status = napier_check_ids_on(context, place, "token_ids", t->job.ids, tokens, rubric.cols);
    return status;
}

static napier_status napier_check_scores(napier_context *context, const char *name, napier_const_matrix scores,
                                         int64_t responses, int64_t criteria) {
    napier_status status = napier_check_matrix(context, name, scores);
    if (!status)
        status = napier_check_not_f64(context, name, scores.dtype);
    if (!status && (scores.rows != responses || scores.cols != criteria)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: shape %lld x %lld is not %lld x %lld", name,
                             (long long)scores.rows, (long long)scores.cols, (long long)responses, (long long)criteria);
    }
    return status;
}

/* Checks an output against overlap with all inputs. In-place use is not allowed. */
static napier_status napier_rubric_check_out(napier_context *context, const char *name, napier_matrix out,
                                             const napier_rubric_task *t) {
    const napier_indices ids = t->job.ids, offsets = t->responses.offsets;
    const struct {
        const char *name;
        napier_const_matrix view;
    } in[] = {{"logprobs", napier_vector_row(t->job.logprobs)},
              {"rubric", t->job.rubric},
              {"weights", napier_vector_row(t->weights)},
              {"token_ids", napier_vector_row(napier_indices_bytes(ids))},
              {"offsets", napier_vector_row(napier_indices_bytes(offsets))}};
    for (size_t i = 0; out.data && i < sizeof in / sizeof *in; i++) {
        if (!in[i].view.data || in[i].view.rows == 0 || in[i].view.cols == 0 || out.rows == 0 || out.cols == 0) {
            continue;
        }
        if (out.data == in[i].view.data) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: starts where %s does", name, in[i].name);
        }
        const napier_status status = napier_check_alias(context, name, out, in[i].name, in[i].view);
        if (status) {
            return status;
        }
    }
    return NAPIER_OK;
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

static void napier_rubric_tokens(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        t->kernels->tile(&t->job, tile.first, tile.n, t->sums + tile.slot * t->job.rubric.rows);
    }
}

static void napier_rubric_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    const int64_t criteria = t->job.rubric.rows;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        const int64_t slot = napier_tile_slot(&t->responses, b, napier_response_begin(&t->responses, b));
        const int64_t tiles = napier_response_tiles(&t->responses, b);
        double reward = 0;
        for (int64_t c = 0; c < criteria; c++) {
            double total = 0;
            for (int64_t i = 0; i < tiles; i++) {
                total += (double)t->sums[(slot + i) * criteria + c];
            }
            const double weight = napier_f64_load(t->weights.data, t->weights.dtype, c * t->weights.stride);
            const double score = tiles > 0 ? weight * total : 0.0; /* 0 even if the weight is infinite */
            reward += score;
            if (t->scores.data) {
                const napier_matrix *m = &t->scores;
                napier_f64_store(m->data, m->dtype, b * m->row_stride + c * m->col_stride, score);
            }
        }
        if (t->rewards.data) {
            napier_f64_store(t->rewards.data, t->rewards.dtype, b * t->rewards.stride, reward);
        }
    }
}

static napier_status napier_rubric_outputs(napier_context *context, const napier_rubric_task *t) {
    const napier_matrix rewards = napier_vector_row_out(t->rewards);
    const int64_t count = t->responses.count;
    napier_status status = napier_check_tokens_out(context, "rewards", t->rewards, count, true);
    if (!status && t->scores.data) {
        status = napier_check_scores(context, "scores", napier_read_only(t->scores), count, t->job.rubric.rows);
        if (!status)
            status = napier_check_matrix_out(context, "scores", t->scores);
    }
    if (!status)
        status = napier_rubric_check_out(context, "scores", t->scores, t);
    if (!status)
        status = napier_rubric_check_out(context, "rewards", rewards, t);
    if (!status && t->scores.data && t->rewards.data) {
        if (t->scores.data == t->rewards.data && count > 0) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "rewards: starts where scores does");
        }
        status = napier_check_alias(context, "rewards", rewards, "scores", napier_read_only(t->scores));
    }
    return status;
}

napier_status napier_rubric_check(napier_context *context, napier_place place, napier_rubric_task *t) {
    const int64_t tokens = t->job.logprobs.size;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_tokens(context, "logprobs", t->job.logprobs, tokens, false);
    if (!status)
        status = napier_rubric_arguments(context, place, tokens, t);
    t->responses.count = t->responses.offsets.size - 1;
    t->responses.tokens = tokens;
    return status ? status : napier_rubric_outputs(context, t);
}

napier_status napier_rubric_score(napier_context *context, napier_const_vector logprobs, napier_indices token_ids,
                                  napier_indices offsets, napier_const_matrix rubric, napier_const_vector weights,
                                  napier_matrix scores, napier_vector rewards) {
    napier_rubric_task t = {.job = {.logprobs = logprobs, .ids = token_ids, .rubric = rubric},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .scores = scores,
                            .rewards = rewards};
    const napier_status status = napier_rubric_check(context, NAPIER_ON_HOST, &t);
    if (status || t.responses.count == 0) {
        return status;
    }
    const int64_t slots = napier_tile_slots(&t.responses), criteria = rubric.rows;
    t.kernels = &napier_ops_kernels_of(context->isa)->rubric;
    if (criteria > 0) {
        const size_t row = (size_t)criteria <= SIZE_MAX / sizeof(float) ? (size_t)criteria * sizeof(float) : SIZE_MAX;
        t.sums = napier_alloc(&context->allocator, (size_t)slots, row);
        if (!t.sums) {
            return napier_fail(context, NAPIER_OUT_OF_MEMORY, "scores: no memory for the sums of %lld tiles",
                               (long long)slots);
        }
        napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens),
                        napier_rubric_tokens, &t);
    }
    napier_parallel(context, t.responses.count, 1 << 12, napier_rubric_responses, &t);
    napier_free(&context->allocator, t.sums);
    return NAPIER_OK;
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The factor of each criterion's marks in the gradient of a token of response b. */
static void napier_rubric_factors(const napier_rubric_task *t, int64_t b, float *factor) {
    const napier_const_matrix *scores = &t->grad_scores;
    const napier_const_vector *rewards = &t->grad_rewards, *weights = &t->weights;
    for (int64_t c = 0; c < t->job.rubric.rows; c++) {
        double g = 0;
        if (scores->data) {
            g += napier_f64_load(scores->data, scores->dtype, b * scores->row_stride + c * scores->col_stride);
        }
        if (rewards->data) {
            g += napier_f64_load(rewards->data, rewards->dtype, b * rewards->stride);
        }
        factor[c] = (float)(napier_f64_load(weights->data, weights->dtype, c * weights->stride) * g);
    }
}

static void napier_rubric_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    float *factor = t->sums + (int64_t)worker * t->job.rubric.rows;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    int64_t response = -1;
    while (napier_next_tile(&tile)) {
        if (tile.response != response) {
            response = tile.response;
            napier_rubric_factors(t, response, factor);
        }
        t->kernels->tile_gradient(&t->job, tile.first, tile.n, factor);
    }
}

static napier_status napier_rubric_gradient_inputs(napier_context *context, const napier_rubric_task *t) {
    napier_status status = napier_check_tokens(context, "grad_rewards", t->grad_rewards, t->responses.count, true);
    if (!status && t->grad_scores.data) {
        status = napier_check_scores(context, "grad_scores", t->grad_scores, t->responses.count, t->job.rubric.rows);
        const napier_matrix out = napier_vector_row_out(t->job.grad_logprobs);
        if (!status)
            status = napier_check_alias(context, "grad_logprobs", out, "grad_scores", t->grad_scores);
    }
    if (!status) {
        status = napier_check_apart(context, "grad_logprobs", t->job.grad_logprobs, "grad_rewards", t->grad_rewards);
    }
    return status;
}

napier_status napier_rubric_backward_check(napier_context *context, napier_place place, napier_rubric_task *t) {
    const napier_vector out = t->job.grad_logprobs;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_tokens_out(context, "grad_logprobs", out, out.size, false);
    if (!status)
        status = napier_rubric_arguments(context, place, out.size, t);
    t->responses.count = t->responses.offsets.size - 1;
    t->responses.tokens = out.size;
    if (!status)
        status = napier_rubric_gradient_inputs(context, t);
    return status ? status : napier_rubric_check_out(context, "grad_logprobs", napier_vector_row_out(out), t);
}

napier_status napier_rubric_score_backward(napier_context *context, napier_indices token_ids, napier_indices offsets,
                                           napier_const_matrix rubric, napier_const_vector weights,
                                           napier_const_matrix grad_scores, napier_const_vector grad_rewards,
                                           napier_vector grad_logprobs) {
    napier_rubric_task t = {.job = {.ids = token_ids, .rubric = rubric, .grad_logprobs = grad_logprobs},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .grad_scores = grad_scores,
                            .grad_rewards = grad_rewards};
    const int64_t tokens = grad_logprobs.size;
    const napier_status status = napier_rubric_backward_check(context, NAPIER_ON_HOST, &t);
    if (status || tokens == 0) {
        return status;
    }
    const int64_t chunk = napier_token_chunk(context, tokens);
    const size_t criteria = rubric.rows > 0 ? (size_t)rubric.rows : 1;
    const size_t row = criteria <= SIZE_MAX / sizeof(float) ? criteria * sizeof(float) : SIZE_MAX;
    t.kernels = &napier_ops_kernels_of(context->isa)->rubric;
    t.sums = napier_alloc(&context->allocator, (size_t)napier_workers(context, tokens, chunk), row);
    if (!t.sums) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "factors: no memory for %lld criteria",
                           (long long)rubric.rows);
    }
    napier_parallel(context, tokens, chunk, napier_rubric_gradients, &t);
    napier_free(&context->allocator, t.sums);
    return NAPIER_OK;
}
