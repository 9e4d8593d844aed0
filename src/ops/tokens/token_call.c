/* ops/tokens/token_call.c - see token_call.h. */
#include "ops/tokens/token_call.h"

#include <float.h>
#include <inttypes.h>

#include "core/base/sizes.h"
#include "core/base/struct_size.h"
#include "core/math/f64.h"
#include "ops/softmax/arguments.h"

enum { TOP_LIMIT = 1024, MATRICES_MOST = 4, RESULTS = 8, GRADIENTS = 4, ARGUMENTS_MOST = MATRICES_MOST + 1 + RESULTS };

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_token_options *options, napier_token_options *o,
                                  napier_token_rules *rules) {
    *o = (napier_token_options)NAPIER_TOKEN_OPTIONS_INIT;
    const napier_status status = napier_read_options(context, "options", "NAPIER_TOKEN_OPTIONS_INIT", options, o);
    *rules =
        (napier_token_rules){napier_float_of(o->temperature), napier_float_of(o->softcap), o->keep, o->keep_stride};
    if (status) {
        return status;
    }
    if (!(rules->temperature > 0.0f && rules->temperature <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: temperature %g is not finite and above 0 in f32",
                           o->temperature);
    }
    if (o->softcap != 0.0 && !(rules->softcap > 0.0f && rules->softcap <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: softcap %g is not 0, nor finite and above 0 in f32", o->softcap);
    }
    if (!(o->label_smoothing >= 0.0 && o->label_smoothing < 1.0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: label_smoothing %g is not in [0, 1)",
                           o->label_smoothing);
    }
    if (!(o->z_loss >= 0.0 && o->z_loss <= DBL_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: z_loss %g is not finite and at least 0",
                           o->z_loss);
    }
    return NAPIER_OK;
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k) {
    return napier_index_at(call->ids, row * call->per_row + k);
}

static napier_status check_ids_size(napier_context *context, napier_indices ids, int64_t rows) {
    NAPIER_TRY(napier_check_indices(context, "ids", ids));
    if (rows == 0 ? ids.size != 0 : rows > 0 && ids.size % rows != 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: size %" PRId64 " is no multiple of %" PRId64 " rows",
                           ids.size, rows);
    }
    return NAPIER_OK;
}

static napier_status check_ids(napier_context *context, napier_indices ids, int64_t cols, int64_t ignore_index) {
    for (int64_t i = 0; i < ids.size; i++) {
        const int64_t id = napier_index_at(ids, i);
        if ((id < 0 || id >= cols) && id != ignore_index) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                               "ids: ids[%" PRId64 "] is %" PRId64 ", neither below V, %" PRId64
                               ", nor the ignore_index, %" PRId64,
                               i, id, cols, ignore_index);
        }
    }
    return NAPIER_OK;
}

/* ---- All arguments ----------------------------------------------------------------------------------------------- */

/* What the forward and the backward call share. others: the results or the gradients; any: some are of the ids'
 * log-probabilities or ranks; loss: of a loss. */
static napier_status check_call(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                const napier_token_call *call, const napier_argument *others, size_t count, bool any,
                                bool loss) {
    if (call->options.keep && call->options.keep_stride != 0 && call->options.keep_stride < call->cols) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: keep_stride %" PRId64 " is neither 0 nor at least V, %" PRId64,
                           call->options.keep_stride, call->cols);
    }
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
    if (call->rows > 0 && any && call->per_row == 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: none, but logprobs, loss or rank are asked for");
    }
    if (call->rows > 0 && loss && call->per_row != 1) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: %" PRId64 " a row, but a loss has 1", call->per_row);
    }
    status = napier_check_arguments(context, all, n);
    if (status || place == NAPIER_ON_DEVICE) {
        return status;
    }
    return check_ids(context, call->ids, call->cols, call->options.ignore_index);
}

/* Reads the options; ids and matrices have not been checked yet. */
static napier_status start_call(napier_context *context, const napier_token_matrices *matrices, napier_indices ids,
                                const napier_token_options *options, napier_token_call *call) {
    const int64_t rows = matrices->all[0].view.rows;
    napier_token_options o;
    napier_token_rules rules;
    const napier_status status = read_options(context, options, &o, &rules);
    *call = (napier_token_call){.rows = rows,
                                .cols = matrices->cols,
                                .ids = ids,
                                .per_row = rows > 0 ? ids.size / rows : 0,
                                .options = o,
                                .rules = rules};
    return status;
}

/* int64_t results as a view. Only their place in memory matters. */
#define INTEGERS(data_, rows_, cols_) ((napier_const_matrix){data_, rows_, cols_, cols_, 1, NAPIER_F64})

static napier_status check_results(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                   const napier_token_results *r, const napier_token_call *call) {
    const int64_t most = napier_least(call->cols, TOP_LIMIT), rows = call->rows;
    /* Without rows, ids do not say how many a row has. */
    const int64_t k = rows > 0 ? call->per_row : r->logprobs.cols;
    if (r->top_k < 0 || r->top_k > most) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "results: top_k %" PRId64 " is not in 0 .. %" PRId64 ", the lesser of 1024 and V", r->top_k,
                           most);
    }
    if (r->top_k == 0 && (r->top_ids || r->top_logprobs.data)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "results: top_k is 0, but top_ids or top_logprobs are there");
    }
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
    };
    return check_call(context, place, matrices, call, all, RESULTS, r->logprobs.data || r->rank, r->loss.data);
}

napier_status napier_token_call_read(napier_context *context, napier_place place, const napier_token_matrices *matrices,
                                     napier_indices ids, const napier_token_options *options,
                                     const napier_token_results *results, napier_token_call *call) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    NAPIER_TRY(napier_read_struct(context, "results", "NAPIER_TOKEN_RESULTS_INIT", results, &r));
    NAPIER_TRY(start_call(context, matrices, ids, options, call));
    call->results = r;
    call->chosen = r.logprobs.data || r.rank || r.loss.data;
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
    NAPIER_TRY(napier_read_struct(context, "gradients", "NAPIER_TOKEN_GRADIENTS_INIT", gradients, &g));
    NAPIER_TRY(start_call(context, matrices, ids, options, call));
    call->gradients = g;
    call->chosen = g.logprobs.data || g.loss.data;
    call->wants = (napier_token_wants){.entropy = g.entropy.data};
    const unsigned is = NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[GRADIENTS] = {
        NAPIER_ARGUMENT("gradients: logprobs", g.logprobs, is, call->rows,
                        call->rows > 0 ? call->per_row : g.logprobs.cols, NULL),
        NAPIER_ARGUMENT("gradients: lse", napier_const_column(g.lse), is | NAPIER_IS_VECTOR, call->rows, 1, NULL),
        NAPIER_ARGUMENT("gradients: entropy", napier_const_column(g.entropy), is | NAPIER_IS_VECTOR, call->rows, 1,
                        NULL),
        NAPIER_ARGUMENT("gradients: loss", napier_const_column(g.loss), is | NAPIER_IS_VECTOR, call->rows, 1, NULL),
    };
    return check_call(context, place, matrices, call, all, GRADIENTS, g.logprobs.data, g.loss.data);
}

/* ---- Rows in work ------------------------------------------------------------------------------------------------ */

int64_t napier_token_kept(const napier_token_call *call, int64_t row) {
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    int64_t kept = keep ? 0 : call->cols;
    for (int64_t j = 0; keep && j < call->cols; j++) {
        kept += keep[j] != 0;
    }
    return kept;
}

void napier_token_desks_free(napier_context *context, napier_token_desk *desks, int workers) {
    for (int w = 0; desks && w < workers; w++) {
        napier_free(&context->allocator, desks[w].seen);
        napier_free(&context->allocator, desks[w].integers);
        napier_free(&context->allocator, desks[w].floats);
        napier_free(&context->allocator, desks[w].top);
    }
    napier_free(&context->allocator, desks);
}

static bool desk_make(napier_context *context, const napier_token_call *call, int rows, napier_token_desk *desk) {
    const size_t k = call->chosen ? (size_t)call->per_row : 0, top = (size_t)call->wants.top_k, n = (size_t)rows;
    desk->seen = napier_alloc(&context->allocator, n, sizeof *desk->seen);
    desk->integers = k > 0 ? napier_alloc(&context->allocator, k, 2 * n * sizeof(int64_t)) : NULL;
    desk->floats = k > 0 ? napier_alloc(&context->allocator, k, n * sizeof(float)) : NULL;
    desk->top = top > 0 ? napier_alloc(&context->allocator, top, n * sizeof *desk->top) : NULL;
    if (!desk->seen || (k > 0 && (!desk->integers || !desk->floats)) || (top > 0 && !desk->top)) {
        return false;
    }
    for (size_t r = 0; r < n; r++) {
        desk->seen[r] = (napier_token_seen){.ids = k > 0 ? desk->integers + 2 * r * k : NULL,
                                            .before = k > 0 ? desk->integers + (2 * r + 1) * k : NULL,
                                            .chosen = k > 0 ? desk->floats + r * k : NULL,
                                            .top = top > 0 ? desk->top + r * top : NULL};
        napier_token_seen_start(&desk->seen[r], &call->wants);
    }
    return true;
}

napier_token_desk *napier_token_desks(napier_context *context, const napier_token_call *call, int workers, int rows) {
    napier_token_desk *desks = napier_alloc(&context->allocator, (size_t)workers, sizeof *desks);
    if (!desks) {
        return NULL;
    }
    memset(desks, 0, (size_t)workers * sizeof *desks);
    for (int w = 0; w < workers; w++) {
        if (!desk_make(context, call, rows, &desks[w])) {
            napier_token_desks_free(context, desks, workers);
            return NULL;
        }
    }
    return desks;
}

void napier_token_start_ids(const napier_token_call *call, int64_t row, napier_token_seen *seen) {
    napier_token_seen_start(seen, &call->wants);
    for (int64_t k = 0; call->chosen && k < call->per_row; k++) {
        seen->ids[k] = napier_token_id(call, row, k);
    }
}

/* Collects the logits of chosen ids, some at a time, and converts them to z. */
void napier_token_start(const napier_token_call *call, const napier_token_kernels *kernels, napier_const_matrix x,
                        int64_t row, napier_token_seen *seen) {
    enum { SOME = 64 };
    const size_t size = napier_dtype_size(x.dtype);
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    napier_token_start_ids(call, row, seen);
    for (int64_t k = 0; call->chosen && k < call->per_row; k += SOME) {
        const int64_t n = napier_least(call->per_row - k, SOME);
        char logits[SOME * sizeof(float)];
        uint8_t kept[SOME] = {0};
        memset(logits, 0, sizeof logits);
        for (int64_t i = 0; i < n; i++) {
            const int64_t id = seen->ids[k + i], j = napier_token_ignored(call, id) ? 0 : id;
            if (call->cols > 0) {
                memcpy(logits + (size_t)i * size,
                       (const char *)x.data + (row * x.row_stride + j * x.col_stride) * (int64_t)size, size);
                kept[i] = keep ? keep[j] : 1;
            }
        }
        kernels->token_z(&call->rules, logits, x.dtype, 1, keep ? kept : NULL, n, seen->chosen + k);
        for (int64_t i = k; i < k + n; i++) {
            seen->chosen[i] = napier_token_ignored(call, seen->ids[i]) ? INFINITY : seen->chosen[i];
        }
    }
}

/* ---- Results of a row -------------------------------------------------------------------------------------------- */

static void put(napier_matrix m, int64_t row, int64_t col, double x) {
    napier_f64_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, x);
}
static void put_row(napier_vector v, int64_t row, double x) {
    if (v.data) {
        napier_f64_store(v.data, v.dtype, row * v.stride, x);
    }
}

static void write_chosen(const napier_token_call *call, int64_t row, const napier_token_final *final,
                         const napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    const int64_t kept = call->wants.total ? napier_token_kept(call, row) : 0;
    for (int64_t k = 0; call->chosen && k < call->per_row; k++) {
        const bool ignored = napier_token_ignored(call, seen->ids[k]);
        const float logprob = ignored ? 0.0f : napier_token_logprob(final, seen->chosen[k]);
        if (r->logprobs.data) {
            put(r->logprobs, row, k, (double)logprob);
        }
        if (r->rank) {
            r->rank[row * call->per_row + k] = ignored || final->row.kind == NAPIER_ROW_NAN ? -1 : seen->before[k];
        }
        if (r->loss.data) {
            put_row(r->loss, row, ignored ? 0.0 : napier_token_loss(&call->options, final, kept, logprob));
        }
    }
}

static void write_top(const napier_token_call *call, int64_t row, const napier_token_final *final,
                      napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    const bool nan = final->row.kind == NAPIER_ROW_NAN;
    const int64_t count = nan ? 0 : seen->top_count;
    napier_token_top_sort(seen);
    for (int64_t i = 0; i < call->wants.top_k; i++) {
        if (r->top_ids) {
            r->top_ids[row * r->top_k + i] = i < count ? seen->top[i].id : -1;
        }
        if (r->top_logprobs.data) {
            const float z = i < count ? seen->top[i].z : -INFINITY;
            put(r->top_logprobs, row, i, (double)napier_token_logprob(final, z));
        }
    }
}

void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    put_row(r->lse, row, (double) final->row.lse);
    put_row(r->entropy, row, (double) final->entropy);
    if (r->argmax) {
        r->argmax[row] = final->row.kind == NAPIER_ROW_NAN ? -1 : seen->argmax;
    }
    write_chosen(call, row, final, seen);
    if (call->wants.top_k > 0) {
        write_top(call, row, final, seen);
    }
}
