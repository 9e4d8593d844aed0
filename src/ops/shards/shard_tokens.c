/* ops/shards/shard_tokens.c - log-probabilities of tokens and their gradients, for rows whose finals are known. */
#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "ops/head/linear_backward.h"
#include "ops/head/linear_head.h"
#include "ops/isa/ops_kernels.h"
#include "ops/shards/shards.h"
#include "ops/softmax/softmax_split.h"

/* ---- Results ------------------------------------------------------------------------------------------------------- */

typedef struct result_job {
    napier_token_call call;
    const int64_t *finals;
    const float *chosen;
    int64_t *ids; /* of each worker */
} result_job;

static void result_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const result_job *j = argument;
    const int64_t each = j->call.per_row;
    int64_t *const ids = j->ids + worker * (each + 1);
    for (int64_t row = begin; row < end; row++) {
        /* the z are only read: no rank is wanted */
        napier_token_seen seen = {.ids = ids, .chosen = (float *)(uintptr_t)(j->chosen + row * each)};
        for (int64_t k = 0; k < each; k++) {
            ids[k] = napier_token_id(&j->call, row, k);
        }
        const napier_token_final final = napier_token_final_at(j->finals, row);
        napier_token_write(&j->call, row, &final, &seen);
    }
}

napier_status napier_shard_token_results(napier_context *context, int64_t rows, const int64_t *finals,
                                         const float *chosen, int64_t vocabulary, napier_indices ids,
                                         const napier_token_options *options, const napier_token_results *results) {
    result_job j = {.finals = finals, .chosen = chosen};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_shard_columns(context, 0, 0, vocabulary, false));
    const napier_token_matrices matrices = {vocabulary,
                                            2,
                                            {napier_token_words("finals", finals, rows, NAPIER_SHARD_FINAL_WORDS, 0),
                                             napier_shard_chosen(chosen, ids, rows, 0)}};
    NAPIER_TRY(napier_token_call_read(context, NAPIER_ON_HOST, &matrices, ids, options, results, &j.call));
    NAPIER_TRY(napier_shard_no_keep(context, &j.call));
    const napier_token_results *r = &j.call.results;
    NAPIER_REFUSE_IF(context, r->argmax || r->rank || r->finals || r->chosen || r->top_ids || r->top_logprobs.data,
                     "results: %s is not known to shards",
                     r->argmax   ? "argmax"
                     : r->rank   ? "rank"
                     : r->finals ? "finals"
                     : r->chosen ? "chosen"
                                 : "top_k");
    if (rows == 0) {
        return NAPIER_OK;
    }
    const int64_t chunk = napier_row_chunk(context, rows, j.call.per_row + 1, 1);
    const int workers = napier_workers(context, rows, chunk);
    NAPIER_MEMORY(memory, context);
    j.ids = napier_take(&memory, workers, (size_t)(j.call.per_row + 1) * sizeof(int64_t));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, rows, chunk, result_rows, &j);
    return napier_stopped(context);
}

/* ---- Slopes -------------------------------------------------------------------------------------------------------- */

typedef struct known_rows {
    napier_token_call call; /* cols: the vocabulary */
    const int64_t *finals;
    const float *chosen;
    int64_t first, cols; /* of the shard */
} known_rows;

/* The final and the slope of a row. The slope's ids are columns of the shard; -1: elsewhere. */
static void slope_of(void *argument, int64_t row, napier_final *final, napier_token_slope_desk *desk) {
    const known_rows *r = argument;
    const int64_t each = r->call.chosen ? r->call.per_row : 0;
    napier_token_slope_known(&r->call, row, final, desk);
    for (int64_t k = 0; k < each; k++) {
        const int64_t id = desk->ids[k];
        desk->ids[k] = id >= r->first && id - r->first < r->cols ? id - r->first : -1;
    }
}

/* Reads the arguments; matrices: the first has a row for each row of the call, and there is room for two more. */
static napier_status read_known(napier_context *context, const napier_token_matrices *given, napier_indices ids,
                                const napier_token_options *options, const napier_token_gradients *gradients,
                                known_rows *r) {
    const int64_t rows = given->all[0].view.rows, vocabulary = given->cols;
    const napier_argument records[] = {napier_token_words("finals", r->finals, rows, NAPIER_SHARD_FINAL_WORDS, 0),
                                       napier_shard_chosen(r->chosen, ids, rows, 0)};
    NAPIER_TRY(napier_shard_columns(context, r->first, r->cols, vocabulary, false));
    NAPIER_TRY(napier_token_back_read(context, NAPIER_ON_HOST, given, ids, options, gradients, &r->call));
    NAPIER_TRY(napier_check_arguments(context, records, 2));
    r->call.gradients.finals = r->finals;
    r->call.gradients.chosen = r->chosen;
    return napier_shard_no_keep(context, &r->call);
}

/* ---- Logits in memory ---------------------------------------------------------------------------------------------- */

typedef struct back_job {
    known_rows rows;
    napier_token_job job;
    const napier_token_kernels *kernels;
    napier_matrix out;
    bool stream;
    napier_token_slope_desk *desks;
    float *scratch;
} back_job;

static void back_rows(void *argument, int worker, int64_t begin, int64_t end) {
    back_job *j = argument;
    for (int64_t row = begin; row < end; row++) {
        napier_final final;
        slope_of(&j->rows, row, &final, &j->desks[worker]);
        j->kernels->token_gradient(&j->job, row, 0, j->rows.cols, &final, &j->desks[worker].slope, NULL, j->out,
                                   j->stream, j->scratch + (int64_t)worker * NAPIER_TOKEN_SCRATCH);
    }
}

static napier_status take_desks(napier_memory *memory, back_job *j, int workers) {
    enum { LINE = 8 }; /* doubles; workers write to cache lines of their own */
    const int64_t k = j->rows.call.chosen ? j->rows.call.per_row : 0, each = napier_round_up(4 * k + 1, LINE);
    j->desks = napier_take(memory, workers, sizeof *j->desks);
    double *doubles = napier_take(memory, workers, (size_t)each * sizeof *doubles);
    j->scratch = napier_take(memory, workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    NAPIER_TRY(napier_taken(memory, "scratch: no memory for %d workers", workers));
    for (int w = 0; w < workers; w++, doubles += each) {
        j->desks[w] = napier_token_slope_desk_of(doubles, (int64_t *)(void *)(doubles + 3 * k), k);
    }
    return NAPIER_OK;
}

napier_status napier_shard_token_backward(napier_context *context, const int64_t *finals, const float *chosen,
                                          napier_const_matrix logits, int64_t first, int64_t vocabulary,
                                          napier_indices ids, const napier_token_options *options,
                                          const napier_token_gradients *gradients, napier_matrix grad_logits) {
    back_job j = {.rows = {.finals = finals, .chosen = chosen, .first = first, .cols = logits.cols},
                  .out = grad_logits,
                  .stream = grad_logits.data != logits.data};
    const napier_token_matrices matrices = {
        vocabulary,
        2,
        {NAPIER_ARGUMENT("logits", logits, NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
         NAPIER_ARGUMENT("grad_logits", napier_read_only(grad_logits), NAPIER_IS_NARROW | NAPIER_IS_OUT, logits.rows,
                         logits.cols, "logits")}};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(read_known(context, &matrices, ids, options, gradients, &j.rows));
    if (logits.rows == 0 || logits.cols == 0) {
        return NAPIER_OK;
    }
    const int64_t chunk = napier_row_chunk(context, logits.rows, logits.cols, 1);
    const int workers = napier_workers(context, logits.rows, chunk);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take_desks(&memory, &j, workers));
    j.stream = j.stream && napier_leaves_caches(context, grad_logits);
    j.job = (napier_token_job){logits, j.rows.call.rules, j.rows.call.wants};
    j.kernels = napier_ops_kernels_of(context->isa)->tokens;
    NAPIER_MAY_STOP(context);
    napier_parallel(context, logits.rows, chunk, back_rows, &j);
    return napier_stopped(context);
}

/* ---- Hidden states and weights ------------------------------------------------------------------------------------- */

/* is: of grad_hidden. */
static napier_token_matrices linear_matrices(int64_t vocabulary, napier_const_matrix hidden,
                                             napier_const_matrix weights, napier_matrix grad_hidden, unsigned is,
                                             napier_matrix grad_weights) {
    const unsigned out = NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT;
    return (napier_token_matrices){
        vocabulary,
        4,
        {NAPIER_ARGUMENT("hidden", hidden, NAPIER_IS_NARROW, hidden.rows, hidden.cols, NULL),
         NAPIER_ARGUMENT("weights", weights, NAPIER_IS_NARROW, weights.rows, weights.cols, NULL),
         NAPIER_ARGUMENT("grad_hidden", napier_read_only(grad_hidden), out | is, hidden.rows, hidden.cols, "hidden"),
         NAPIER_ARGUMENT("grad_weights", napier_read_only(grad_weights), out | NAPIER_IS_NARROW, weights.rows,
                         weights.cols, "weights")}};
}

napier_status napier_shard_linear_backward(napier_context *context, const int64_t *finals, const float *chosen,
                                           napier_const_matrix hidden, napier_const_matrix weights, int64_t first,
                                           int64_t vocabulary, napier_indices ids, const napier_token_options *options,
                                           const napier_token_gradients *gradients, int continues,
                                           napier_matrix grad_hidden, napier_matrix grad_weights) {
    known_rows r = {.finals = finals, .chosen = chosen, .first = first, .cols = weights.rows};
    const napier_token_matrices matrices =
        linear_matrices(vocabulary, hidden, weights, grad_hidden, NAPIER_IS_F32, grad_weights);
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_head_check_sums(context, hidden, weights));
    NAPIER_TRY(read_known(context, &matrices, ids, options, gradients, &r));
    NAPIER_TRY(napier_head_check_split(context, NAPIER_ON_HOST, hidden, weights, &r.call));
    napier_token_call here = r.call;
    here.cols = weights.rows;
    return napier_linear_backward_of(context, &here, hidden, weights, slope_of, &r, continues != 0, grad_hidden,
                                     grad_weights);
}

napier_status napier_shard_linear_backward_check(napier_context *context, napier_const_matrix hidden,
                                                 napier_const_matrix weights, int64_t vocabulary, napier_indices ids,
                                                 const napier_token_options *options,
                                                 const napier_token_gradients *gradients, napier_matrix grad_hidden,
                                                 napier_matrix grad_weights) {
    const napier_token_matrices matrices =
        linear_matrices(vocabulary, hidden, weights, grad_hidden, NAPIER_IS_NARROW, grad_weights);
    napier_token_call call;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_shard_columns(context, 0, weights.rows, vocabulary, false));
    NAPIER_TRY(napier_head_check_sums(context, hidden, weights));
    NAPIER_TRY(napier_token_back_read(context, NAPIER_ON_HOST, &matrices, ids, options, gradients, &call));
    return napier_shard_no_keep(context, &call);
}
