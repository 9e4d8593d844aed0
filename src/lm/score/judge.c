/* lm/score/judge.c - verdicts of the model on responses: one batch of prompts, with all verdicts as the responses of
 * each. */
#include <inttypes.h>
#include <math.h>
#include <napier/model.h>
#include <string.h>

#include "core/base/scope.h"
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

static napier_status check_verdicts(judge *j) {
    const napier_judge_batch *b = &j->batch;
    NAPIER_TRY(napier_check_indices(j->context, "verdict_ids", b->verdict_ids));
    NAPIER_TRY(napier_check_offsets_of(j->context, "verdict_offsets", b->verdict_offsets, b->verdict_ids.size));
    j->verdicts = b->verdict_offsets.size - 1;
    j->verdict_tokens = b->verdict_ids.size;
    NAPIER_REFUSE_IF(j->context, j->verdicts == 0 || !b->values, "%s",
                     b->values ? "verdict_offsets: no verdict" : "values: NULL");
    for (int64_t v = 0; v < j->verdicts; v++) {
        NAPIER_REFUSE_IF(j->context,
                         napier_index_at(b->verdict_offsets, v) == napier_index_at(b->verdict_offsets, v + 1),
                         "verdict_offsets: verdict %" PRId64 " is empty", v);
    }
    return NAPIER_OK;
}

static napier_status check_batch(judge *j) {
    const napier_judge_batch *b = &j->batch;
    NAPIER_TRY(napier_check_offsets_of(j->context, "prompt_offsets", b->prompt_offsets, b->prompt_ids.size));
    const int64_t prompts = b->prompt_offsets.size - 1;
    NAPIER_REFUSE_IF(j->context, b->criteria <= 0 || prompts % b->criteria != 0,
                     "criteria: %" PRId64 " do not divide %" PRId64 " prompts", b->criteria, prompts);
    j->criteria = b->criteria;
    j->responses = prompts / b->criteria;
    NAPIER_TRY(napier_check_tokens(j->context, "weights", b->weights, b->criteria, true));
    return check_verdicts(j);
}

/* ---- The batch of verdicts --------------------------------------------------------------------------------------- */

static napier_status allocate(judge *j, napier_memory *memory) {
    const int64_t prompts = j->responses * j->criteria;
    const bool fits = prompts < INT64_MAX / 16 / j->verdict_tokens;
    const int64_t tokens = fits ? prompts * j->verdict_tokens : INT64_MAX;
    const int64_t lists = fits ? prompts * j->verdicts : INT64_MAX - 1;
    j->ids = napier_take(memory, tokens, sizeof *j->ids);
    j->offsets = napier_take(memory, lists + 1, sizeof *j->offsets);
    j->prompt_of = napier_take(memory, lists, sizeof *j->prompt_of);
    j->logprobs = napier_take(memory, tokens, sizeof *j->logprobs);
    return napier_taken(memory, "batch: no memory for the verdicts on %" PRId64 " prompts", prompts);
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

napier_status napier_model_judge(napier_context *context, const napier_model *model, const napier_judge_batch *batch,
                                 const napier_score_options *options, napier_matrix scores, napier_vector rewards,
                                 napier_matrix logprobs) {
    enum { OUT = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT };
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    judge j = {.context = context, .batch = NAPIER_JUDGE_BATCH_INIT};
    NAPIER_TRY(napier_read_struct(context, "batch", NAPIER_STRUCT(napier_judge_batch, NAPIER_JUDGE_BATCH_INIT, weights),
                                  batch, &j.batch));
    NAPIER_TRY(check_batch(&j));
    const napier_argument outs[] = {
        NAPIER_ARGUMENT("scores", napier_read_only(scores), OUT, j.responses, j.criteria, NULL),
        napier_row_argument("rewards", napier_read_only_vector(rewards), OUT, j.responses),
        NAPIER_ARGUMENT("logprobs", napier_read_only(logprobs), OUT, j.responses * j.criteria, j.verdicts, NULL)};
    NAPIER_TRY(napier_check_arguments(context, outs, sizeof outs / sizeof *outs));
    if (j.responses == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(allocate(&j, &memory));
    const napier_score_batch verdicts = make_batch(&j);
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(j.logprobs, verdicts.response_ids.size);
    NAPIER_TRY(napier_model_batch_logprobs(context, model, &verdicts, options, &results));
    write_scores(&j, scores, rewards, logprobs);
    return NAPIER_OK;
}
