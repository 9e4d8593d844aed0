/* ops/losses/rubric.c - rubric scores: checks, splits the work over tiles, and adds the sums. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/losses/calls.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

napier_status napier_rubric_check(napier_context *context, napier_place place, napier_rubric_task *t, bool backward) {
    const napier_const_matrix rubric = t->job.rubric;
    const napier_indices ids = t->job.ids, offsets = t->responses.offsets;
    const int64_t responses = napier_offset_lists(offsets);
    const int64_t tokens = backward ? t->job.grad_logprobs.size : t->job.logprobs.size;
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW, in = NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument forward_all[] = {
        napier_row_argument("logprobs", t->job.logprobs, NAPIER_IS_NARROW, tokens),
        NAPIER_ARGUMENT("scores", napier_read_only(t->scores), out | NAPIER_MAY_BE_ABSENT, responses, rubric.rows,
                        NULL),
        napier_row_argument("rewards", napier_read_only_vector(t->rewards), out | NAPIER_MAY_BE_ABSENT, responses)};
    const napier_argument backward_all[] = {
        napier_row_argument("grad_logprobs", napier_read_only_vector(t->job.grad_logprobs), out, tokens),
        NAPIER_ARGUMENT("grad_scores", t->grad_scores, in | NAPIER_MAY_BE_OUT, responses, rubric.rows, NULL),
        napier_row_argument("grad_rewards", t->grad_rewards, in, responses)};
    const napier_argument *own = backward ? backward_all : forward_all;
    const napier_argument all[] = {NAPIER_ARGUMENT("rubric", rubric, NAPIER_IS_NARROW, rubric.rows, rubric.cols, NULL),
                                   napier_row_argument("weights", t->weights, NAPIER_IS_NARROW, rubric.rows),
                                   napier_row_argument("token_ids", napier_indices_bytes(ids), 0, ids.size),
                                   napier_row_argument("offsets", napier_indices_bytes(offsets), 0, offsets.size),
                                   own[0],
                                   own[1],
                                   own[2]};
    t->responses.count = responses;
    t->responses.tokens = tokens;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_offset_count(context, "offsets", offsets));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_TRY(napier_check_offsets_on(context, place, offsets, tokens));
    return napier_check_ids_on(context, place, "token_ids", ids, tokens, rubric.cols);
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

static void sum_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        t->kernels->tile(&t->job, tile.first, tile.n, t->sums + tile.slot * t->job.rubric.rows);
    }
}

static void sum_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    const int64_t criteria = t->job.rubric.rows;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        const int64_t slot = napier_first_slot(&t->responses, b);
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

napier_status napier_rubric_score(napier_context *context, napier_const_vector logprobs, napier_indices token_ids,
                                  napier_indices offsets, napier_const_matrix rubric, napier_const_vector weights,
                                  napier_matrix scores, napier_vector rewards) {
    napier_rubric_task t = {.job = {.logprobs = logprobs, .ids = token_ids, .rubric = rubric},
                            .responses = {.offsets = offsets},
                            .weights = weights,
                            .scores = scores,
                            .rewards = rewards};
    NAPIER_TRY(napier_rubric_check(context, NAPIER_ON_HOST, &t, false));
    if (t.responses.count == 0) {
        return NAPIER_OK;
    }
    const int64_t slots = napier_tile_slots(&t.responses), criteria = rubric.rows;
    t.kernels = napier_ops_kernels_of(context->isa)->rubric;
    NAPIER_MEMORY(memory, context);
    NAPIER_MAY_STOP(context);
    if (criteria > 0) {
        const size_t row = (size_t)criteria <= SIZE_MAX / sizeof(float) ? (size_t)criteria * sizeof(float) : SIZE_MAX;
        t.sums = napier_take(&memory, slots, row);
        NAPIER_TRY(napier_taken(&memory, "scores: no memory for the sums of %lld tiles", (long long)slots));
        napier_parallel(context, t.responses.tokens, napier_token_chunk(context, t.responses.tokens), sum_tiles, &t);
    }
    napier_parallel(context, t.responses.count, 1 << 12, sum_responses, &t);
    return napier_stopped(context);
}

/* ---- Gradient ---------------------------------------------------------------------------------------------------- */

/* The factor of each criterion's marks in the gradient of a token of response b. */
static void factors_of(const napier_rubric_task *t, int64_t b, float *factor) {
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

static void write_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_rubric_task *t = argument;
    float *factor = t->sums + (int64_t)worker * t->job.rubric.rows;
    napier_tiles tile = napier_tiles_in(&t->responses, begin, end);
    int64_t response = -1;
    while (napier_next_tile(&tile)) {
        if (tile.response != response) {
            response = tile.response;
            factors_of(t, response, factor);
        }
        t->kernels->tile_gradient(&t->job, tile.first, tile.n, factor);
    }
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
    NAPIER_TRY(napier_rubric_check(context, NAPIER_ON_HOST, &t, true));
    if (tokens == 0) {
        return NAPIER_OK;
    }
    const int64_t chunk = napier_token_chunk(context, tokens);
    const size_t criteria = rubric.rows > 0 ? (size_t)rubric.rows : 1;
    const size_t row = criteria <= SIZE_MAX / sizeof(float) ? criteria * sizeof(float) : SIZE_MAX;
    t.kernels = napier_ops_kernels_of(context->isa)->rubric;
    NAPIER_MEMORY(memory, context);
    t.sums = napier_take(&memory, napier_workers(context, tokens, chunk), row);
    NAPIER_TRY(napier_taken(&memory, "factors: no memory for %lld criteria", (long long)rubric.rows));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, tokens, chunk, write_gradients, &t);
    return napier_stopped(context);
}
