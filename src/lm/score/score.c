/* lm/score/score.c - log-probabilities of responses, and rewards: sorts the lists, then runs chunk after chunk through
 * layers and head. */
#include <inttypes.h>
#include <napier/model.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "ops/linear/engine.h"
#include "lm/score/score_parts.h"
#include "ops/tokens/responses.h"
#include "ops/softmax/arguments.h"

typedef struct score {
    napier_context *context;
    const napier_model *model;
    napier_score_options options;
    napier_score_lists lists;
    napier_score_plan plan;
    napier_layers layers;
    napier_score_head head;
    napier_matrix rewards; /* of a reward model, instead of what `head` writes */
    double work, done;     /* in products of a weight and a row: total, and done so far */
} score;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_score_options *options,
                                  napier_score_options *out) {
    *out = (napier_score_options)NAPIER_SCORE_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_score_options, NAPIER_SCORE_OPTIONS_INIT, kvs), options, out));
    napier_softmax_options softmax = NAPIER_SOFTMAX_OPTIONS_INIT, read;
    softmax.temperature = out->temperature;
    return napier_softmax_options_read(context, &softmax, NAPIER_F32, &read);
}

/* Results must not overlap the batch's lists or one another. */
static napier_status read_results(napier_context *context, const napier_score_batch *b,
                                  const napier_score_results *results, int64_t tokens, napier_score_results *r) {
    enum { OUT = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT };
    *r = (napier_score_results)NAPIER_SCORE_RESULTS_INIT;
    NAPIER_TRY(napier_read_struct(
        context, "results", NAPIER_STRUCT(napier_score_results, NAPIER_SCORE_RESULTS_INIT, is_greedy), results, r));
    const napier_argument all[] = {
        napier_row_argument("logprobs", napier_read_only_vector(r->logprobs), OUT, tokens),
        napier_row_argument("entropy", napier_read_only_vector(r->entropy), OUT, tokens),
        napier_integers_argument("argmax", r->argmax, tokens, sizeof *r->argmax, NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT),
        napier_integers_argument("is_greedy", r->is_greedy, tokens, sizeof *r->is_greedy,
                                 NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT),
        napier_indices_argument("prompt_ids", b->prompt_ids),
        napier_indices_argument("prompt_offsets", b->prompt_offsets),
        napier_indices_argument("response_ids", b->response_ids),
        napier_indices_argument("response_offsets", b->response_offsets),
        napier_indices_argument("prompt_of", b->prompt_of)};
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

static napier_status check_chunk(const score *s, const napier_score_chunk *c) {
    NAPIER_TRY(napier_model_check_length(s->context, s->model, "batch", c->size.positions));
    if (c->bytes > s->model->memory) {
        return napier_fail(s->context, NAPIER_OUT_OF_MEMORY,
                           "memory: %" PRId64 " bytes are too few for response %" PRId64
                           " and its prompt, which need %" PRId64,
                           s->model->memory, s->lists.order[c->first], c->bytes);
    }
    return NAPIER_OK;
}

static double head_work(const score *s, const napier_score_chunk *c) {
    return (double)c->ratings * (double)s->model->head.rows * (double)s->model->head.cols;
}

static double work_of(const score *s, const napier_score_chunk *c) {
    const double embedding = (double)s->model->embedding.rows * (double)s->model->embedding.cols;
    return (double)c->size.tokens * ((double)s->model->parameters - embedding) + head_work(s, c);
}

static void count_unshared(score *s) {
    for (int64_t p = 0; p < s->lists.count; p++) {
        const napier_prompt *prompt = &s->lists.prompts[p];
        s->plan.tokens_unshared += prompt->count * (napier_token_list_size(&prompt->list) - 1);
    }
    s->plan.tokens_unshared += s->plan.tokens;
}

/* Goes through all chunks without running them. */
static napier_status measure(score *s) {
    const napier_indices offsets = s->lists.batch.response_offsets;
    s->plan = (napier_score_plan){.struct_size = sizeof s->plan, .prompts = s->lists.count};
    s->plan.tokens = napier_index_at(offsets, offsets.size - 1);
    count_unshared(s);
    napier_score_chunk c = {0};
    while (c.end < s->lists.responses) {
        c = napier_score_chunk_next(s->context, s->model, &s->lists, c);
        NAPIER_TRY(check_chunk(s, &c));
        s->plan.chunks++;
        s->plan.tokens_run += c.size.tokens;
        s->work += work_of(s, &c);
        s->plan.bytes = c.bytes > s->plan.bytes ? c.bytes : s->plan.bytes;
    }
    return NAPIER_OK;
}

/* Makes the lists and the plan. Free the lists after a success. */
static napier_status score_begin(napier_context *context, const napier_model *model, const napier_score_batch *batch,
                                 const napier_score_options *options, bool rewards, score *s) {
    memset(s, 0, sizeof *s);
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_TRY(napier_model_check_head(context, model, rewards));
    NAPIER_TRY(read_options(context, options, &s->options));
    NAPIER_TRY(napier_kv_check(context, model, s->options.kvs, s->options.kv_count));
    s->context = context;
    s->model = model;
    if (model->compute != NAPIER_COMPUTE_F32) {
        napier_matrix_engine_decide(context);
    }
    NAPIER_TRY(napier_score_lists_make(context, model, batch, &s->options, &s->lists));
    const napier_status status = measure(s);
    if (status) {
        napier_score_lists_free(context, &s->lists);
    }
    return status;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static napier_status run_layers(score *s, const napier_score_chunk *c, napier_memory *memory, double work) {
    NAPIER_TRY(napier_layers_allocate(memory, &c->layers, &s->layers));
    s->layers.progress = s->options.progress;
    s->layers.user = s->options.user;
    s->layers.done = s->done / s->work;
    s->layers.share = (work - head_work(s, c)) / s->work;
    s->done += work;
    napier_score_chunk_batch(&s->lists, c, &s->layers.batch);
    return napier_layers_run(s->context, &s->layers);
}

static napier_status run_chunk(score *s, const napier_score_chunk *c) {
    NAPIER_MEMORY(memory, s->context);
    napier_reward_head rewards;
    NAPIER_TRY(s->lists.rewards ? napier_reward_head_allocate(&memory, s->model, c->ratings, &rewards)
                                : napier_score_head_allocate(&memory, &s->head, c->ratings));
    NAPIER_TRY(run_layers(s, c, &memory, work_of(s, c)));
    const napier_ragged *b = &s->layers.batch;
    s->head.states = napier_layers_states(&s->layers, b->wanted_offsets[b->sequences]);
    if (s->lists.rewards) {
        napier_score_chunk_rewards(s->context, s->model, &s->lists, c, s->head.states, &rewards, s->rewards);
    } else {
        NAPIER_TRY(napier_score_chunk_rate(&s->lists, c, &s->head));
    }
    if (s->options.progress && s->options.progress("scoring", s->done / s->work, s->options.user)) {
        return napier_fail(s->context, NAPIER_CANCELLED, "cancelled by the progress callback");
    }
    return NAPIER_OK;
}

static napier_status run_all(score *s) {
    napier_score_chunk c = {0};
    while (c.end < s->lists.responses) {
        c = napier_score_chunk_next(s->context, s->model, &s->lists, c);
        NAPIER_TRY(run_chunk(s, &c));
    }
    return NAPIER_OK;
}

napier_status napier_model_batch_logprobs(napier_context *context, const napier_model *model,
                                          const napier_score_batch *batch, const napier_score_options *options,
                                          const napier_score_results *results) {
    NAPIER_DEFAULT_FENV;
    score s;
    napier_score_results r;
    NAPIER_TRY(score_begin(context, model, batch, options, false, &s));
    napier_status status = read_results(context, &s.lists.batch, results, s.plan.tokens, &r);
    if (!status && s.lists.responses > 0) {
        s.head = (napier_score_head){.context = context, .model = model, .results = r};
        s.head.response_ids = s.lists.batch.response_ids;
        s.head.options = (napier_token_options)NAPIER_TOKEN_OPTIONS_INIT;
        s.head.options.temperature = s.options.temperature;
        status = run_all(&s);
    }
    napier_score_lists_free(context, &s.lists);
    return status;
}

napier_status napier_model_logprobs_for(napier_context *context, const napier_model *model, napier_indices prompt,
                                        napier_indices response, const napier_score_options *options,
                                        const napier_score_results *results) {
    const int64_t prompt_offsets[] = {0, prompt.size}, response_offsets[] = {0, response.size};
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    batch.prompt_ids = prompt;
    batch.prompt_offsets = napier_indices_i64(prompt_offsets, 2);
    batch.response_ids = response;
    batch.response_offsets = napier_indices_i64(response_offsets, 2);
    return napier_model_batch_logprobs(context, model, &batch, options, results);
}

napier_status napier_model_batch_plan(napier_context *context, const napier_model *model,
                                      const napier_score_batch *batch, const napier_score_options *options,
                                      napier_score_plan *plan) {
    NAPIER_DEFAULT_FENV;
    score s;
    NAPIER_TRY(score_begin(context, model, batch, options, false, &s));
    napier_status status = napier_check_result_struct(
        context, "plan", NAPIER_STRUCT(napier_score_plan, NAPIER_SCORE_PLAN_INIT, bytes), plan);
    if (!status) {
        napier_write_struct(&s.plan, plan);
    }
    napier_score_lists_free(context, &s.lists);
    return status;
}

/* ---- Rewards ----------------------------------------------------------------------------------------------------- */

static napier_status check_rewards(const score *s, napier_matrix rewards) {
    const napier_score_batch *b = &s->lists.batch;
    const napier_argument all[] = {NAPIER_ARGUMENT("rewards", napier_read_only(rewards),
                                                   NAPIER_IS_OUT | NAPIER_IS_NARROW, b->response_offsets.size - 1,
                                                   s->model->config.labels, NULL),
                                   napier_indices_argument("prompt_ids", b->prompt_ids),
                                   napier_indices_argument("prompt_offsets", b->prompt_offsets),
                                   napier_indices_argument("response_ids", b->response_ids),
                                   napier_indices_argument("response_offsets", b->response_offsets),
                                   napier_indices_argument("prompt_of", b->prompt_of)};
    return napier_check_arguments(s->context, all, sizeof all / sizeof *all);
}

napier_status napier_model_rewards(napier_context *context, const napier_model *model, const napier_score_batch *batch,
                                   const napier_score_options *options, napier_matrix rewards) {
    NAPIER_DEFAULT_FENV;
    score s;
    NAPIER_TRY(score_begin(context, model, batch, options, true, &s));
    napier_status status = check_rewards(&s, rewards);
    if (!status) {
        s.rewards = rewards;
        status = run_all(&s);
    }
    napier_score_lists_free(context, &s.lists);
    return status;
}
