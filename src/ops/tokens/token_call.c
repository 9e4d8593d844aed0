/* ops/tokens/token_call.c - see token_call.h. */
#include "ops/tokens/token_call.h"

#include <float.h>
#include <inttypes.h>

#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/tokens/responses.h"
#include "ops/softmax/options.h"

enum { NAPIER_TOP_LIMIT = 1024 };

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static bool napier_is_in(double x, double least, double most) { return x >= least && x <= most; }

static napier_status napier_token_options_read(napier_context *context, const napier_token_options *options,
                                               napier_token_call *call) {
    napier_token_options *o = &call->options;
    *o = (napier_token_options)NAPIER_TOKEN_OPTIONS_INIT;
    const napier_status status = napier_read_options(context, "options", "NAPIER_TOKEN_OPTIONS_INIT", options, o);
    if (status) {
        return status;
    }
    call->rules =
        (napier_token_rules){napier_float_of(o->temperature), napier_float_of(o->softcap), o->keep, o->keep_stride};
    if (!(call->rules.temperature > 0.0f && call->rules.temperature <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: temperature %g is not finite and above 0 in f32",
                           o->temperature);
    }
    if (o->softcap != 0.0 && !(call->rules.softcap > 0.0f && call->rules.softcap <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: softcap %g is not 0, nor finite and above 0 in f32", o->softcap);
    }
    if (!(o->label_smoothing >= 0.0 && o->label_smoothing < 1.0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: label_smoothing %g is not in [0, 1)",
                           o->label_smoothing);
    }
    if (!napier_is_in(o->z_loss, 0.0, DBL_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: z_loss %g is not finite and at least 0",
                           o->z_loss);
    }
    if (o->keep && o->keep_stride != 0 && o->keep_stride < call->cols) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: keep_stride %" PRId64 " is neither 0 nor at least V, %" PRId64, o->keep_stride,
                           call->cols);
    }
    return NAPIER_OK;
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k) {
    return napier_index_at(call->ids, row * call->per_row + k);
}

static napier_status napier_token_ids_read(napier_context *context, bool on_device, napier_token_call *call) {
    const napier_status status = napier_check_indices(context, "ids", call->ids);
    if (status) {
        return status;
    }
    const int64_t size = call->ids.size;
    if (call->rows == 0 ? size != 0 : size % call->rows != 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: size %" PRId64 " is no multiple of %" PRId64 " rows",
                           size, call->rows);
    }
    call->per_row = call->rows == 0 ? 0 : size / call->rows;
    for (int64_t i = 0; i < size && !on_device; i++) {
        const int64_t id = napier_index_at(call->ids, i);
        if ((id < 0 || id >= call->cols) && id != call->options.ignore_index) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                               "ids: ids[%" PRId64 "] is %" PRId64 ", neither below V, %" PRId64
                               ", nor the ignore_index, %" PRId64,
                               i, id, call->cols, call->options.ignore_index);
        }
    }
    return NAPIER_OK;
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

static napier_const_matrix napier_column_of(napier_const_vector v) {
    return (napier_const_matrix){v.data, v.size, 1, v.stride, 1, v.dtype};
}
static napier_matrix napier_column_of_out(napier_vector v) {
    return (napier_matrix){v.data, v.size, 1, v.stride, 1, v.dtype};
}
/* int64_t results as a view. Only the position in memory matters. */
static napier_matrix napier_integers(int64_t *data, int64_t rows, int64_t cols) {
    return napier_rows(data, rows, cols, NAPIER_F64);
}

/* Checks an input or result [rows, cols] of f32, f16 or bf16. It may be absent. */
static napier_status napier_token_view(napier_context *context, const char *name, napier_const_matrix m, int64_t rows,
                                       int64_t cols) {
    if (!m.data) {
        return NAPIER_OK;
    }
    napier_status status = napier_check_matrix(context, name, m);
    if (!status)
        status = napier_check_not_f64(context, name, m.dtype);
    if (!status && (m.rows != rows || m.cols != cols)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "%s: shape %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64, name, m.rows, m.cols,
                             rows, cols);
    }
    return status;
}

static napier_status napier_token_out(napier_context *context, const char *name, napier_matrix m, int64_t rows,
                                      int64_t cols) {
    const napier_status status = napier_token_view(context, name, napier_read_only(m), rows, cols);
    return status || !m.data ? status : napier_check_matrix_out(context, name, m);
}

/* The results as matrices, with their names. */
typedef struct napier_token_output {
    const char *name;
    napier_matrix view;
} napier_token_output;

enum { NAPIER_TOKEN_OUTPUTS = 8, NAPIER_TOKEN_FLOAT_OUTPUTS = 5 };

static void napier_token_outputs(const napier_token_call *call, napier_token_output out[NAPIER_TOKEN_OUTPUTS]) {
    const napier_token_results *r = &call->results;
    const int64_t n = call->rows;
    out[0] = (napier_token_output){"logprobs", r->logprobs};
    out[1] = (napier_token_output){"lse", napier_column_of_out(r->lse)};
    out[2] = (napier_token_output){"entropy", napier_column_of_out(r->entropy)};
    out[3] = (napier_token_output){"loss", napier_column_of_out(r->loss)};
    out[4] = (napier_token_output){"top_logprobs", r->top_logprobs};
    out[5] = (napier_token_output){"argmax", napier_integers(r->argmax, n, 1)};
    out[6] = (napier_token_output){"rank", napier_integers(r->rank, n, call->per_row)};
    out[7] = (napier_token_output){"top_ids", napier_integers(r->top_ids, n, r->top_k)};
}

/* Checks that two views, of which at least one is written, do not overlap. In-place use is not allowed. */
static napier_status napier_token_apart(napier_context *context, const char *a_name, napier_matrix a,
                                        const char *b_name, napier_const_matrix b) {
    if (!a.data || !b.data || a.rows == 0 || a.cols == 0 || b.rows == 0 || b.cols == 0) {
        return NAPIER_OK;
    }
    const napier_status status = napier_check_alias(context, a_name, a, b_name, b);
    if (!status && a.data == b.data) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: in place of %s", a_name, b_name);
    }
    return status;
}

static napier_const_matrix napier_token_ids_view(const napier_token_call *call) {
    return napier_const_rows(call->ids.data, 1, call->ids.size, call->ids.type == NAPIER_I32 ? NAPIER_F32 : NAPIER_F64);
}

napier_status napier_token_call_apart(napier_context *context, const napier_token_call *call, const char *name,
                                      napier_const_matrix input) {
    napier_token_output out[NAPIER_TOKEN_OUTPUTS];
    napier_token_outputs(call, out);
    for (int i = 0; i < NAPIER_TOKEN_OUTPUTS; i++) {
        napier_status status = napier_token_apart(context, out[i].name, out[i].view, name, input);
        if (!status)
            status = napier_token_apart(context, out[i].name, out[i].view, "ids", napier_token_ids_view(call));
        for (int j = 0; j < i && !status; j++) {
            status = napier_token_apart(context, out[i].name, out[i].view, out[j].name, napier_read_only(out[j].view));
        }
        if (status) {
            return status;
        }
    }
    return NAPIER_OK;
}

napier_status napier_token_gradients_apart(napier_context *context, const napier_token_call *call, const char *name,
                                           napier_matrix out) {
    const napier_token_gradients *g = &call->gradients;
    napier_status status = napier_token_apart(context, name, out, "gradients: logprobs", g->logprobs);
    if (!status)
        status = napier_token_apart(context, name, out, "gradients: lse", napier_column_of(g->lse));
    if (!status)
        status = napier_token_apart(context, name, out, "gradients: entropy", napier_column_of(g->entropy));
    if (!status)
        status = napier_token_apart(context, name, out, "gradients: loss", napier_column_of(g->loss));
    if (!status)
        status = napier_token_apart(context, name, out, "ids", napier_token_ids_view(call));
    return status;
}

/* ---- Results and gradients --------------------------------------------------------------------------------------- */

/* Checks which results may be wanted for the given ids. */
static napier_status napier_token_needs_ids(napier_context *context, const napier_token_call *call, bool any,
                                            bool loss) {
    if (call->rows > 0 && any && call->per_row == 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: none, but logprobs, loss or rank are asked for");
    }
    if (call->rows > 0 && loss && call->per_row != 1) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "ids: %" PRId64 " a row, but a loss has 1", call->per_row);
    }
    return NAPIER_OK;
}

static napier_status napier_token_results_read(napier_context *context, const napier_token_results *results,
                                               napier_token_call *call) {
    napier_token_results *r = &call->results;
    *r = (napier_token_results)NAPIER_TOKEN_RESULTS_INIT;
    napier_status status = napier_read_struct(context, "results", "NAPIER_TOKEN_RESULTS_INIT", results, r);
    if (status) {
        return status;
    }
    const int64_t most = call->cols < NAPIER_TOP_LIMIT ? call->cols : NAPIER_TOP_LIMIT;
    if (r->top_k < 0 || r->top_k > most) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "results: top_k %" PRId64 " is not in 0 .. %" PRId64 ", the lesser of 1024 and V", r->top_k,
                           most);
    }
    if (r->top_k == 0 && (r->top_ids || r->top_logprobs.data)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "results: top_k is 0, but top_ids or top_logprobs are there");
    }
    status = napier_token_needs_ids(context, call, r->logprobs.data || r->rank, r->loss.data);
    napier_token_output out[NAPIER_TOKEN_OUTPUTS];
    napier_token_outputs(call, out);
    const int64_t cols[NAPIER_TOKEN_OUTPUTS] = {call->per_row, 1, 1, 1, r->top_k, 1, call->per_row, r->top_k};
    for (int i = 0; i < NAPIER_TOKEN_OUTPUTS && !status; i++) {
        status = i < NAPIER_TOKEN_FLOAT_OUTPUTS
                     ? napier_token_out(context, out[i].name, out[i].view, call->rows, cols[i])
                 : out[i].view.data ? napier_check_matrix_out(context, out[i].name, out[i].view)
                                    : NAPIER_OK;
    }
    const bool top = r->top_ids || r->top_logprobs.data;
    call->chosen = r->logprobs.data || r->rank || r->loss.data;
    call->wants = (napier_token_wants){.entropy = r->entropy.data,
                                       .total = r->loss.data && call->options.label_smoothing > 0.0,
                                       .argmax = r->argmax,
                                       .ranks = r->rank ? call->per_row : 0,
                                       .top_k = top ? r->top_k : 0};
    return status;
}

static napier_status napier_token_gradients_read(napier_context *context, const napier_token_gradients *gradients,
                                                 napier_token_call *call) {
    napier_token_gradients *g = &call->gradients;
    *g = (napier_token_gradients)NAPIER_TOKEN_GRADIENTS_INIT;
    napier_status status = napier_read_struct(context, "gradients", "NAPIER_TOKEN_GRADIENTS_INIT", gradients, g);
    if (!status)
        status = napier_token_needs_ids(context, call, g->logprobs.data, g->loss.data);
    if (!status)
        status = napier_token_view(context, "gradients: logprobs", g->logprobs, call->rows, call->per_row);
    if (!status)
        status = napier_token_view(context, "gradients: lse", napier_column_of(g->lse), call->rows, 1);
    if (!status)
        status = napier_token_view(context, "gradients: entropy", napier_column_of(g->entropy), call->rows, 1);
    if (!status)
        status = napier_token_view(context, "gradients: loss", napier_column_of(g->loss), call->rows, 1);
    call->chosen = g->logprobs.data || g->loss.data;
    call->wants = (napier_token_wants){.entropy = g->entropy.data};
    return status;
}

static napier_status napier_token_read(napier_context *context, bool on_device, int64_t rows, int64_t cols,
                                       napier_indices ids, const napier_token_options *options,
                                       const napier_token_results *results, const napier_token_gradients *gradients,
                                       napier_token_call *call) {
    *call = (napier_token_call){.rows = rows, .cols = cols, .ids = ids};
    if (!results && !gradients) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "results or gradients: NULL");
    }
    napier_status status = napier_token_options_read(context, options, call);
    if (!status)
        status = napier_token_ids_read(context, on_device, call);
    if (!status)
        status = results ? napier_token_results_read(context, results, call)
                         : napier_token_gradients_read(context, gradients, call);
    return status;
}

napier_status napier_token_call_read(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                     const napier_token_options *options, const napier_token_results *results,
                                     const napier_token_gradients *gradients, napier_token_call *call) {
    return napier_token_read(context, false, rows, cols, ids, options, results, gradients, call);
}

napier_status napier_token_call_read_on_device(napier_context *context, int64_t rows, int64_t cols, napier_indices ids,
                                               const napier_token_options *options, const napier_token_results *results,
                                               const napier_token_gradients *gradients, napier_token_call *call) {
    return napier_token_read(context, true, rows, cols, ids, options, results, gradients, call);
}

int64_t napier_token_kept(const napier_token_call *call, int64_t row) {
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    int64_t kept = keep ? 0 : call->cols;
    for (int64_t j = 0; keep && j < call->cols; j++) {
        kept += keep[j] != 0;
    }
    return kept;
}

/* ---- Rows in work ------------------------------------------------------------------------------------------------ */

void napier_token_desks_free(napier_context *context, napier_token_desk *desks, int workers) {
    for (int w = 0; desks && w < workers; w++) {
        napier_free(&context->allocator, desks[w].seen);
        napier_free(&context->allocator, desks[w].integers);
        napier_free(&context->allocator, desks[w].floats);
        napier_free(&context->allocator, desks[w].top);
    }
    napier_free(&context->allocator, desks);
}

static bool napier_token_desk_make(napier_context *context, const napier_token_call *call, int rows,
                                   napier_token_desk *desk) {
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
        if (!napier_token_desk_make(context, call, rows, &desks[w])) {
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
        const int64_t n = call->per_row - k < SOME ? call->per_row - k : SOME;
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

static void napier_token_put(napier_matrix m, int64_t row, int64_t col, double x) {
    napier_f64_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, x);
}
static void napier_token_put_row(napier_vector v, int64_t row, double x) {
    if (v.data) {
        napier_f64_store(v.data, v.dtype, row * v.stride, x);
    }
}

static void napier_token_write_chosen(const napier_token_call *call, int64_t row, const napier_token_final *final,
                                      const napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    const int64_t kept = call->wants.total ? napier_token_kept(call, row) : 0;
    for (int64_t k = 0; call->chosen && k < call->per_row; k++) {
        const bool ignored = napier_token_ignored(call, seen->ids[k]);
        const float logprob = ignored ? 0.0f : napier_token_logprob(final, seen->chosen[k]);
        if (r->logprobs.data) {
            napier_token_put(r->logprobs, row, k, (double)logprob);
        }
        if (r->rank) {
            r->rank[row * call->per_row + k] = ignored || final->row.kind == NAPIER_ROW_NAN ? -1 : seen->before[k];
        }
        if (r->loss.data) {
            napier_token_put_row(r->loss, row, ignored ? 0.0 : napier_token_loss(&call->options, final, kept, logprob));
        }
    }
}

static void napier_token_write_top(const napier_token_call *call, int64_t row, const napier_token_final *final,
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
            napier_token_put(r->top_logprobs, row, i, (double)napier_token_logprob(final, z));
        }
    }
}

void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    napier_token_put_row(r->lse, row, (double) final->row.lse);
    napier_token_put_row(r->entropy, row, (double) final->entropy);
    if (r->argmax) {
        r->argmax[row] = final->row.kind == NAPIER_ROW_NAN ? -1 : seen->argmax;
    }
    napier_token_write_chosen(call, row, final, seen);
    if (call->wants.top_k > 0) {
        napier_token_write_top(call, row, final, seen);
    }
}
