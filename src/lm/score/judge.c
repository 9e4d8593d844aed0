/* lm/score/judge.c - verdicts of the model on responses: one batch of prompts, with all verdicts as the responses of
 * each. */
#include <inttypes.h>
#include <math.h>
#include <napier/model.h>
#include <string.h>

#include "core/base/fenv.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/tokens/responses.h"

typedef struct judge {
    napier_context *context;
    napier_judge_batch batch;
    int64_t responses, criteria, verdicts, verdict_tokens;
    int64_t *ids;       /* [responses criteria, verdict_tokens] */
    int64_t *offsets;   /* [responses criteria verdicts + 1] */
    int64_t *prompt_of; /* [responses criteria verdicts] */
    float *logprobs;    /* as ids */
} judge;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_out(napier_context *context, const char *name, napier_matrix m, int64_t rows, int64_t cols) {
    if (!m.data) {
        return NAPIER_OK;
    }
    napier_status status = napier_check_matrix_out(context, name, m);
    if (!status)
        status = napier_check_not_f64(context, name, m.dtype);
    if (!status && (m.rows != rows || m.cols != cols)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "%s: shape %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64, name, m.rows, m.cols,
                             rows, cols);
    }
    return status;
}

static napier_status check_verdicts(judge *j) {
    const napier_judge_batch *b = &j->batch;
    napier_status status = napier_check_indices(j->context, "verdict_ids", b->verdict_ids);
    if (!status)
        status = napier_check_offsets_of(j->context, "verdict_offsets", b->verdict_offsets, b->verdict_ids.size);
    if (status) {
        return status;
    }
    j->verdicts = b->verdict_offsets.size - 1;
    j->verdict_tokens = b->verdict_ids.size;
    if (j->verdicts == 0 || !b->values) {
        return napier_fail(j->context, NAPIER_INVALID_ARGUMENT, "%s",
                           b->values ? "verdict_offsets: no verdict" : "values: NULL");
    }
    for (int64_t v = 0; v < j->verdicts; v++) {
        if (napier_index_at(b->verdict_offsets, v) == napier_index_at(b->verdict_offsets, v + 1)) {
            return napier_fail(j->context, NAPIER_INVALID_ARGUMENT, "verdict_offsets: verdict %" PRId64 " is empty", v);
        }
    }
    return NAPIER_OK;
}

static napier_status check_batch(judge *j) {
    const napier_judge_batch *b = &j->batch;
    napier_status status = napier_check_offsets_of(j->context, "prompt_offsets", b->prompt_offsets, b->prompt_ids.size);
    if (status) {
        return status;
    }
    const int64_t prompts = b->prompt_offsets.size - 1;
    if (b->criteria <= 0 || prompts % b->criteria != 0) {
        return napier_fail(j->context, NAPIER_INVALID_ARGUMENT,
                           "criteria: %" PRId64 " do not divide %" PRId64 " prompts", b->criteria, prompts);
    }
    j->criteria = b->criteria;
    j->responses = prompts / b->criteria;
    status = napier_check_tokens(j->context, "weights", b->weights, b->criteria, true);
    return status ? status : check_verdicts(j);
}

/* ---- The batch of verdicts --------------------------------------------------------------------------------------- */

static void release(judge *j) {
    napier_free(&j->context->allocator, j->ids);
    napier_free(&j->context->allocator, j->offsets);
    napier_free(&j->context->allocator, j->prompt_of);
    napier_free(&j->context->allocator, j->logprobs);
}

static napier_status allocate(judge *j) {
    const napier_allocator *a = &j->context->allocator;
    const int64_t prompts = j->responses * j->criteria;
    const bool fits = prompts < INT64_MAX / 16 / j->verdict_tokens;
    const size_t tokens = fits ? (size_t)(prompts * j->verdict_tokens) : 0;
    const size_t lists = fits ? (size_t)(prompts * j->verdicts) : 0;
    j->ids = napier_alloc(a, tokens, sizeof *j->ids);
    j->offsets = napier_alloc(a, lists + 1, sizeof *j->offsets);
    j->prompt_of = napier_alloc(a, lists, sizeof *j->prompt_of);
    j->logprobs = napier_alloc(a, tokens, sizeof *j->logprobs);
    if (!j->ids || !j->offsets || !j->prompt_of || !j->logprobs) {
        return napier_fail(j->context, NAPIER_OUT_OF_MEMORY, "batch: no memory for the verdicts on %" PRId64 " prompts",
                           prompts);
    }
    return NAPIER_OK;
}

static napier_score_batch make_batch(const judge *j) {
    const napier_judge_batch *b = &j->batch;
    const int64_t prompts = j->responses * j->criteria;
    napier_score_batch s = NAPIER_SCORE_BATCH_INIT;
    for (int64_t p = 0, list = 0; p < prompts; p++) {
        for (int64_t t = 0; t < j->verdict_tokens; t++) {
            j->ids[p * j->verdict_tokens + t] = napier_index_at(b->verdict_ids, t);
        }
        for (int64_t v = 0; v < j->verdicts; v++, list++) {
            j->offsets[list] = p * j->verdict_tokens + napier_index_at(b->verdict_offsets, v);
            j->prompt_of[list] = p;
        }
    }
    j->offsets[prompts * j->verdicts] = prompts * j->verdict_tokens;
    s.prompt_ids = b->prompt_ids;
    s.prompt_offsets = b->prompt_offsets;
    s.response_ids = napier_indices_i64(j->ids, prompts * j->verdict_tokens);
    s.response_offsets = napier_indices_i64(j->offsets, prompts * j->verdicts + 1);
    s.prompt_of = napier_indices_i64(j->prompt_of, prompts * j->verdicts);
    return s;
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

static double verdict_logprob(const judge *j, int64_t prompt, int64_t v) {
    double sum = 0;
    const int64_t list = prompt * j->verdicts + v;
    for (int64_t t = j->offsets[list]; t < j->offsets[list + 1]; t++) {
        sum += (double)j->logprobs[t];
    }
    return sum;
}

/* The expected value of the verdict on a prompt. */
static double expected_value(const judge *j, int64_t prompt) {
    double most = -(double)INFINITY, all = 0, value = 0;
    for (int64_t v = 0; v < j->verdicts; v++) {
        const double l = verdict_logprob(j, prompt, v);
        most = l > most || l != l ? l : most;
    }
    for (int64_t v = 0; v < j->verdicts; v++) {
        const double p = napier_f64_exp(verdict_logprob(j, prompt, v) - most);
        all += p;
        value += p > 0 ? p * j->batch.values[v] : p; /* probability 0 adds 0, even to an infinite value */
    }
    return value / all;
}

static void store(void *data, napier_dtype dtype, int64_t at, double x) {
    if (data) {
        napier_f64_store(data, dtype, at, x);
    }
}

static void write_scores(const judge *j, napier_matrix scores, napier_vector rewards, napier_matrix logprobs) {
    const napier_const_vector w = j->batch.weights;
    for (int64_t b = 0; b < j->responses; b++) {
        double reward = 0;
        for (int64_t c = 0; c < j->criteria; c++) {
            const int64_t prompt = b * j->criteria + c;
            const double weight = w.data ? napier_f64_load(w.data, w.dtype, c * w.stride) : 1.0;
            const double score = weight * expected_value(j, prompt);
            reward += score;
            store(scores.data, scores.dtype, b * scores.row_stride + c * scores.col_stride, score);
            for (int64_t v = 0; v < j->verdicts && logprobs.data; v++) {
                store(logprobs.data, logprobs.dtype, prompt * logprobs.row_stride + v * logprobs.col_stride,
                      verdict_logprob(j, prompt, v));
            }
        }
        store(rewards.data, rewards.dtype, b * rewards.stride, reward);
    }
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static napier_status run(judge *j, const napier_model *model, const napier_score_options *options) {
    napier_status status = allocate(j);
    if (!status) {
        const napier_score_batch batch = make_batch(j);
        napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
        results.logprobs = napier_array_f32(j->logprobs, batch.response_ids.size);
        status = napier_model_batch_logprobs(j->context, model, &batch, options, &results);
    }
    return status;
}

napier_status napier_model_judge(napier_context *context, const napier_model *model, const napier_judge_batch *batch,
                                 const napier_score_options *options, napier_matrix scores, napier_vector rewards,
                                 napier_matrix logprobs) {
    judge j = {.context = context, .batch = NAPIER_JUDGE_BATCH_INIT};
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_read_struct(context, "batch", "NAPIER_JUDGE_BATCH_INIT", batch, &j.batch);
    if (!status)
        status = check_batch(&j);
    if (!status)
        status = check_out(context, "scores", scores, j.responses, j.criteria);
    if (!status)
        status = napier_check_tokens_out(context, "rewards", rewards, j.responses, true);
    if (!status)
        status = check_out(context, "logprobs", logprobs, j.responses * j.criteria, j.verdicts);
    if (status || j.responses == 0) {
        return status;
    }
    status = run(&j, model, options);
    if (!status) {
        const napier_fenv caller = napier_fenv_enter();
        write_scores(&j, scores, rewards, logprobs);
        napier_fenv_leave(caller);
    }
    release(&j);
    return status;
}
