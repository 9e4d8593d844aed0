/* ops/tokens/token_call.c - the arguments of a call on tokens. */
#include "ops/tokens/token_call.h"

#include <float.h>
#include <inttypes.h>

#include "core/base/sizes.h"
#include "core/base/struct_size.h"
#include "ops/softmax/arguments.h"
#include "ops/tokens/token_record.h"

enum { TOP_LIMIT = 1024, MATRICES_MOST = 4, RESULTS = 10, GRADIENTS = 6, ARGUMENTS_MOST = MATRICES_MOST + 1 + RESULTS };

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_token_options *options, napier_token_options *o,
                                  napier_token_rules *rules) {
    *o = (napier_token_options)NAPIER_TOKEN_OPTIONS_INIT;
    const napier_status status = napier_read_options(
        context, "options", NAPIER_STRUCT(napier_token_options, NAPIER_TOKEN_OPTIONS_INIT, ignore_index), options, o);
    *rules =
        (napier_token_rules){napier_float_of(o->temperature), napier_float_of(o->softcap), o->keep, o->keep_stride};
    if (status) {
        return status;
    }
    NAPIER_REFUSE_IF(context, !(rules->temperature > 0.0f && rules->temperature <= FLT_MAX),
                     "options: temperature %g is not finite and above 0 in f32", o->temperature);
    NAPIER_REFUSE_IF(context, o->softcap != 0.0 && !(rules->softcap > 0.0f && rules->softcap <= FLT_MAX),
                     "options: softcap %g is not 0, nor finite and above 0 in f32", o->softcap);
    NAPIER_REFUSE_IF(context, !(o->label_smoothing >= 0.0 && o->label_smoothing < 1.0),
                     "options: label_smoothing %g is not in [0, 1)", o->label_smoothing);
    NAPIER_REFUSE_IF(context, !(o->z_loss >= 0.0 && o->z_loss <= DBL_MAX),
                     "options: z_loss %g is not finite and at least 0", o->z_loss);
    return NAPIER_OK;
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

static napier_status check_ids_size(napier_context *context, napier_indices ids, int64_t rows) {
    NAPIER_TRY(napier_check_indices(context, "ids", ids));
    NAPIER_REFUSE_IF(context, rows == 0 ? ids.size != 0 : rows > 0 && ids.size % rows != 0,
                     "ids: size %" PRId64 " is no multiple of %" PRId64 " rows", ids.size, rows);
    return NAPIER_OK;
}

static napier_status check_ids(napier_context *context, napier_indices ids, int64_t cols, int64_t ignore_index) {
    for (int64_t i = 0; i < ids.size; i++) {
        const int64_t id = napier_index_at(ids, i);
        NAPIER_REFUSE_IF(context, (id < 0 || id >= cols) && id != ignore_index,
                         "ids: ids[%" PRId64 "] is %" PRId64 ", neither below V, %" PRId64
                         ", nor the ignore_index, %" PRId64,
                         i, id, cols, ignore_index);
    }
    return NAPIER_OK;
}

/* ---- All arguments ----------------------------------------------------------------------------------------------- */

/* What the forward and the backward call share. `others` are the results or the gradients. `any`: there must be ids, because
 * some of them belong to the ids' log-probabilities or ranks. `loss`: one belongs to a loss, so a row has one id. */
static napier_status check_call(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                const napier_token_call *call, const napier_argument *others, size_t count, bool any,
                                bool loss) {
    NAPIER_REFUSE_IF(context,
                     call->options.keep && call->options.keep_stride != 0 && call->options.keep_stride < call->cols,
                     "options: keep_stride %" PRId64 " is neither 0 nor at least V, %" PRId64,
                     call->options.keep_stride, call->cols);
    napier_argument all[ARGUMENTS_MOST];
    size_t n = 0;
    for (size_t i = 0; i < matrices->count; i++) {
        all[n++] = matrices->all[i];
    }
    for (size_t i = 0; i < count; i++) {
        all[n++] = others[i];
    }
    all[n++] = napier_row_argument("ids", napier_indices_bytes(call->ids), 0, call->ids.size);
    NAPIER_TRY(check_ids_size(context, call->ids, call->rows));
    NAPIER_REFUSE_IF(context, call->rows > 0 && any && call->per_row == 0,
                     "ids: none, but logprobs, loss or rank are asked for");
    NAPIER_REFUSE_IF(context, call->rows > 0 && loss && call->per_row != 1, "ids: %" PRId64 " a row, but a loss has 1",
                     call->per_row);
    NAPIER_TRY(napier_check_arguments(context, all, n));
    return place == NAPIER_ON_DEVICE ? NAPIER_OK
                                     : check_ids(context, call->ids, call->cols, call->options.ignore_index);
}

static napier_status check_records(napier_context *context, napier_place place, const char *what, bool any) {
    return any && place == NAPIER_ON_DEVICE
               ? napier_fail(context, NAPIER_UNSUPPORTED, "%s: finals and chosen are for the CPU only", what)
               : NAPIER_OK;
}

/* Reads the options; ids and matrices have not been checked yet. */
static napier_status start_call(napier_context *context, const napier_token_matrices *matrices, napier_indices ids,
                                const napier_token_options *options, napier_token_call *call) {
    const int64_t rows = matrices->all[0].view.rows;
    napier_token_options o;
    napier_token_rules rules;
    NAPIER_TRY(read_options(context, options, &o, &rules));
    *call = (napier_token_call){.rows = rows,
                                .cols = matrices->cols,
                                .ids = ids,
                                .per_row = rows > 0 ? ids.size / rows : 0,
                                .options = o,
                                .rules = rules};
    return NAPIER_OK;
}

/* int64_t results as a view. Only their place in memory matters. */
#define INTEGERS(data_, rows_, cols_) ((napier_const_matrix){data_, rows_, cols_, cols_, 1, NAPIER_F64})

static napier_status check_results(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                   const napier_token_results *r, const napier_token_call *call) {
    const int64_t most = napier_least(call->cols, TOP_LIMIT), rows = call->rows;
    /* Without rows, ids do not say how many a row has. */
    const int64_t k = rows > 0 ? call->per_row : r->logprobs.cols;
    NAPIER_REFUSE_IF(context, most >= 0 && (r->top_k < 0 || r->top_k > most), /* else a check of the matrices names V */
                     "results: top_k %" PRId64 " is not in 0 .. %" PRId64 ", the lesser of 1024 and V", r->top_k, most);
    NAPIER_REFUSE_IF(context, r->top_k == 0 && (r->top_ids || r->top_logprobs.data),
                     "results: top_k is 0, but top_ids or top_logprobs are there");
    NAPIER_TRY(check_records(context, place, "results", r->finals || r->chosen));
    const unsigned out = NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT, is = out | NAPIER_IS_NARROW;
    const unsigned vector = is | NAPIER_IS_VECTOR;
    const napier_argument all[RESULTS] = {
        NAPIER_ARGUMENT("logprobs", napier_read_only(r->logprobs), is, rows, k, NULL),
        NAPIER_ARGUMENT("lse", napier_read_only(napier_column(r->lse)), vector, rows, 1, NULL),
        NAPIER_ARGUMENT("entropy", napier_read_only(napier_column(r->entropy)), vector, rows, 1, NULL),
        NAPIER_ARGUMENT("loss", napier_read_only(napier_column(r->loss)), vector, rows, 1, NULL),
        NAPIER_ARGUMENT("top_logprobs", napier_read_only(r->top_logprobs), is, rows, r->top_k, NULL),
        NAPIER_ARGUMENT("argmax", INTEGERS(r->argmax, rows, 1), out, rows, 1, NULL),
        NAPIER_ARGUMENT("rank", INTEGERS(r->rank, rows, k), out, rows, k, NULL),
        NAPIER_ARGUMENT("top_ids", INTEGERS(r->top_ids, rows, r->top_k), out, rows, r->top_k, NULL),
        napier_token_words("finals", r->finals, rows, NAPIER_TOKEN_FINAL_WORDS, out),
        napier_token_chosen("chosen", r->chosen, rows, k, out),
    };
    return check_call(context, place, matrices, call, all, RESULTS, r->logprobs.data || r->rank, r->loss.data);
}

napier_status napier_token_call_read(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                     napier_indices ids, const napier_token_options *options,
                                     const napier_token_results *results, napier_token_call *call) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    NAPIER_TRY(napier_read_struct(context, "results",
                                  NAPIER_STRUCT(napier_token_results, NAPIER_TOKEN_RESULTS_INIT, argmax), results, &r));
    NAPIER_TRY(start_call(context, matrices, ids, options, call));
    call->results = r;
    call->chosen = r.logprobs.data || r.rank || r.loss.data || r.chosen;
    call->wants = (napier_token_wants){.entropy = r.entropy.data,
                                       .total = r.loss.data && call->options.label_smoothing > 0.0,
                                       .argmax = r.argmax,
                                       .ranks = r.rank ? call->per_row : 0,
                                       .top_k = r.top_ids || r.top_logprobs.data ? r.top_k : 0};
    return check_results(context, place, matrices, &r, call);
}

napier_status napier_token_back_read(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                     napier_indices ids, const napier_token_options *options,
                                     const napier_token_gradients *gradients, napier_token_call *call) {
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    NAPIER_TRY(napier_read_struct(
        context, "gradients", NAPIER_STRUCT(napier_token_gradients, NAPIER_TOKEN_GRADIENTS_INIT, loss), gradients, &g));
    NAPIER_TRY(start_call(context, matrices, ids, options, call));
    call->gradients = g;
    call->chosen = g.logprobs.data || g.loss.data;
    call->wants = (napier_token_wants){.entropy = g.entropy.data};
    NAPIER_TRY(check_records(context, place, "gradients", g.finals || g.chosen));
    const unsigned is = NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const unsigned needed = g.finals && call->chosen ? 0 : NAPIER_MAY_BE_ABSENT;
    const napier_argument all[GRADIENTS] = {
        NAPIER_ARGUMENT("gradients: logprobs", g.logprobs, is, call->rows,
                        call->rows > 0 ? call->per_row : g.logprobs.cols, NULL),
        NAPIER_ARGUMENT("gradients: lse", napier_const_column(g.lse), is | NAPIER_IS_VECTOR, call->rows, 1, NULL),
        NAPIER_ARGUMENT("gradients: entropy", napier_const_column(g.entropy), is | NAPIER_IS_VECTOR, call->rows, 1,
                        NULL),
        NAPIER_ARGUMENT("gradients: loss", napier_const_column(g.loss), is | NAPIER_IS_VECTOR, call->rows, 1, NULL),
        napier_token_words("gradients: finals", g.finals, call->rows, NAPIER_TOKEN_FINAL_WORDS, NAPIER_MAY_BE_ABSENT),
        napier_token_chosen("gradients: chosen", g.chosen, call->rows, call->per_row, needed),
    };
    return check_call(context, place, matrices, call, all, GRADIENTS, g.logprobs.data, g.loss.data);
}
