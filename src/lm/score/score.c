/* lm/score/score.c - log-probabilities of responses: sorts the lists, then runs chunk after chunk through layers and
 * head. */
#include <inttypes.h>
#include <napier/model.h>
#include <string.h>

#include "core/base/fenv.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "ops/linear/amx.h"
#include "lm/decoder/layers.h"
#include "lm/decoder/rope.h"
#include "lm/score/score_chunks.h"
#include "lm/score/score_head.h"
#include "ops/tokens/responses.h"
#include "ops/softmax/arguments.h"

typedef struct score {
    napier_context *context;
    const napier_model *model;
    napier_score_options options;
    napier_score_lists lists;
    napier_score_plan plan;
    napier_layers layers;
    napier_ragged batch;
    napier_score_head head;
    double work, done; /* in products of a weight and a row: total, and done so far */
} score;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_score_options *options,
                                  napier_score_options *out) {
    *out = (napier_score_options)NAPIER_SCORE_OPTIONS_INIT;
    const napier_status status = napier_read_options(context, "options", "NAPIER_SCORE_OPTIONS_INIT", options, out);
    if (status) {
        return status;
    }
    napier_softmax_options softmax = NAPIER_SOFTMAX_OPTIONS_INIT, read;
    softmax.temperature = out->temperature;
    return napier_softmax_options_read(context, &softmax, NAPIER_F32, &read);
}

static napier_status read_results(napier_context *context, const napier_score_results *results, int64_t tokens,
                                  napier_score_results *r) {
    *r = (napier_score_results)NAPIER_SCORE_RESULTS_INIT;
    napier_status status = napier_read_struct(context, "results", "NAPIER_SCORE_RESULTS_INIT", results, r);
    if (!status)
        status = napier_check_tokens_out(context, "logprobs", r->logprobs, tokens, true);
    if (!status)
        status = napier_check_tokens_out(context, "entropy", r->entropy, tokens, true);
    return status;
}

/* Checks that results do not overlap the batch's lists or one another. */
static napier_status check_apart(napier_context *context, const napier_score_batch *b, const napier_score_results *r,
                                 int64_t tokens) {
    const struct {
        const char *name;
        napier_vector v;
    } outs[] = {{"logprobs", r->logprobs},
                {"entropy", r->entropy},
                {"argmax", napier_array(r->argmax, r->argmax ? 2 * tokens : 0, NAPIER_F32)},
                {"is_greedy", napier_array(r->is_greedy, r->is_greedy ? tokens / 2 : 0, NAPIER_F16)}};
    const struct {
        const char *name;
        napier_indices indices;
    } ins[] = {{"prompt_ids", b->prompt_ids},
               {"prompt_offsets", b->prompt_offsets},
               {"response_ids", b->response_ids},
               {"response_offsets", b->response_offsets},
               {"prompt_of", b->prompt_of}};
    napier_status status = NAPIER_OK;
    for (size_t i = 0; !status && i < sizeof outs / sizeof *outs; i++) {
        for (size_t j = 0; !status && j < sizeof ins / sizeof *ins; j++) {
            status =
                napier_check_apart(context, outs[i].name, outs[i].v, ins[j].name, napier_indices_bytes(ins[j].indices));
        }
        for (size_t j = 0; !status && j < i; j++) {
            status =
                napier_check_apart(context, outs[i].name, outs[i].v, outs[j].name, napier_read_only_vector(outs[j].v));
        }
    }
    return status;
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

static int64_t cost(const void *argument, const napier_score_chunk *chunk) {
    const score *s = argument;
    const int64_t layers = napier_layers_bytes(s->context, s->model, chunk->size);
    const int64_t rest =
        napier_ragged_bytes(chunk->size) + napier_score_head_bytes(s->context, s->model, chunk->ratings);
    return layers > INT64_MAX - rest ? INT64_MAX : layers + rest;
}

static napier_score_chunk next_chunk(const score *s, const napier_score_chunk *chunk) {
    return napier_score_chunk_next(&s->lists, chunk, s->model->memory, cost, s);
}

static napier_status check_chunk(const score *s, const napier_score_chunk *c) {
    if (c->size.positions > NAPIER_ROPE_POSITIONS) {
        return napier_fail(s->context, NAPIER_INVALID_ARGUMENT, "batch: a sequence of %" PRId64 " tokens is too long",
                           c->size.positions);
    }
    const int64_t bytes = cost(s, c);
    if (bytes > s->model->memory) {
        return napier_fail(s->context, NAPIER_OUT_OF_MEMORY,
                           "memory: %" PRId64 " bytes are too few for response %" PRId64
                           " and its prompt, which need %" PRId64,
                           s->model->memory, s->lists.order[c->first], bytes);
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
    napier_status status = NAPIER_OK;
    napier_score_chunk c = napier_score_chunk_none();
    while (!status && c.end < s->lists.responses) {
        c = next_chunk(s, &c);
        status = check_chunk(s, &c);
        s->plan.chunks++;
        s->plan.tokens_run += c.size.tokens;
        s->work += work_of(s, &c);
        s->plan.bytes = cost(s, &c) > s->plan.bytes ? cost(s, &c) : s->plan.bytes;
    }
    return status;
}

/* Makes the lists and the plan. Call score_end after a success. */
static napier_status score_begin(napier_context *context, const napier_model *model, const napier_score_batch *batch,
                                 const napier_score_options *options, score *s) {
    memset(s, 0, sizeof *s);
    napier_status status = napier_begin(context);
    if (!status && !model)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "model: NULL");
    if (!status)
        status = read_options(context, options, &s->options);
    if (status) {
        return status;
    }
    s->context = context;
    s->model = model;
    if (model->compute == NAPIER_COMPUTE_BF16) {
        napier_matrix_engine_decide(context);
    }
    status = napier_score_lists_make(context, model->config.vocab_size, batch, &s->options, &s->lists);
    if (!status) {
        status = measure(s);
        if (status)
            napier_score_lists_free(context, &s->lists);
    }
    return status;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static napier_status allocate(score *s, const napier_score_chunk *c) {
    napier_status status = napier_ragged_allocate(s->context, c->size, &s->batch);
    if (!status)
        status = napier_score_head_allocate(&s->head, c->ratings);
    if (!status)
        status = napier_layers_allocate(s->context, s->model, c->size, &s->layers);
    s->layers.progress = s->options.progress;
    s->layers.user = s->options.user;
    return status;
}

static void release(score *s) {
    napier_layers_release(s->context, &s->layers);
    napier_score_head_release(&s->head);
    napier_ragged_release(s->context, &s->batch);
}

static napier_status rate(score *s, const napier_score_chunk *c) {
    s->head.states = napier_layers_states(&s->layers, s->batch.wanted_offsets[s->batch.sequences]);
    napier_status status = napier_score_chunk_ratings(&s->lists, c, napier_score_head_add, &s->head);
    if (!status)
        status = napier_score_head_flush(&s->head);
    if (!status && s->options.progress && s->options.progress("scoring", s->done / s->work, s->options.user))
        status = napier_fail(s->context, NAPIER_CANCELLED, "cancelled by the progress callback");
    return status;
}

static napier_status run_chunk(score *s, const napier_score_chunk *c) {
    const double work = work_of(s, c);
    napier_status status = allocate(s, c);
    s->layers.done = s->done / s->work;
    s->layers.share = (work - head_work(s, c)) / s->work;
    s->done += work;
    if (!status) {
        napier_score_chunk_batch(&s->lists, c, &s->batch);
        status = napier_layers_run(s->context, &s->layers, &s->batch);
    }
    if (!status)
        status = rate(s, c);
    release(s);
    return status;
}

static napier_status run_all(score *s) {
    napier_score_chunk c = napier_score_chunk_none();
    napier_status status = NAPIER_OK;
    while (!status && c.end < s->lists.responses) {
        c = next_chunk(s, &c);
        status = run_chunk(s, &c);
    }
    return status;
}

napier_status napier_model_batch_logprobs(napier_context *context, const napier_model *model,
                                          const napier_score_batch *batch, const napier_score_options *options,
                                          const napier_score_results *results) {
    score s;
    napier_score_results r;
    napier_status status = score_begin(context, model, batch, options, &s);
    if (status) {
        return status;
    }
    status = read_results(context, results, s.plan.tokens, &r);
    if (!status)
        status = check_apart(context, &s.lists.batch, &r, s.plan.tokens);
    if (!status && s.lists.responses > 0) {
        s.head = (napier_score_head){.context = context, .model = model, .results = r};
        s.head.response_ids = s.lists.batch.response_ids;
        s.head.options = (napier_token_options)NAPIER_TOKEN_OPTIONS_INIT;
        s.head.options.temperature = s.options.temperature;
        const napier_fenv caller = napier_fenv_enter();
        status = run_all(&s);
        napier_fenv_leave(caller);
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
    score s;
    napier_status status = score_begin(context, model, batch, options, &s);
    if (status) {
        return status;
    }
    status = napier_check_result_struct(context, "plan", "NAPIER_SCORE_PLAN_INIT", plan);
    if (!status)
        napier_write_struct(&s.plan, plan);
    napier_score_lists_free(context, &s.lists);
    return status;
}
