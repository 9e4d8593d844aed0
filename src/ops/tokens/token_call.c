/* ops/tokens/token_call.c - see token_call.h. */
#include "ops/tokens/token_call.h"

#include <float.h>
#include <inttypes.h>

#include "core/base/sizes.h"
#include "core/base/struct_size.h"
#include "core/math/f64.h"
#include "ops/softmax/arguments.h"
#include "ops/tokens/token_record.h"

enum { TOP_LIMIT = 1024, MATRICES_MOST = 4, RESULTS = 10, GRADIENTS = 6, ARGUMENTS_MOST = MATRICES_MOST + 1 + RESULTS };

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

int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k) {
    return napier_index_at(call->ids, row * call->per_row + k);
}

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

/* What the forward and the backward call share. others: the results or the gradients; any: some are of the ids'
 * log-probabilities or ranks; loss: of a loss. */
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
    NAPIER_TRY(napier_read_struct(context, "results", "NAPIER_TOKEN_RESULTS_INIT", results, &r));
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
    NAPIER_TRY(napier_read_struct(context, "gradients", "NAPIER_TOKEN_GRADIENTS_INIT", gradients, &g));
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

/* ---- Rows in work ------------------------------------------------------------------------------------------------ */

int64_t napier_token_kept(const napier_token_call *call, int64_t row) {
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    int64_t kept = keep ? 0 : call->cols;
    for (int64_t j = 0; keep && j < call->cols; j++) {
        kept += keep[j] != 0;
    }
    return kept;
}

napier_token_seen **napier_token_desks(napier_memory *memory, const napier_token_call *call, int workers,
                                       int64_t rows) {
    enum { LINE = 64 }; /* workers write to cache lines of their own */
    const int64_t k = call->chosen ? call->per_row : 0, top = call->wants.top_k;
    const int64_t seen_bytes = napier_round_up(rows * (int64_t)sizeof(napier_token_seen), LINE);
    const int64_t integers = napier_round_up(2 * rows * k * (int64_t)sizeof(int64_t), LINE);
    const int64_t tops = napier_round_up(rows * top * (int64_t)sizeof(napier_token_top), LINE);
    const int64_t floats = napier_round_up(rows * k * (int64_t)sizeof(float), LINE);
    char *at = napier_take(memory, workers, (size_t)(seen_bytes + integers + tops + floats));
    napier_token_seen **const desks = napier_take(memory, workers, sizeof(void *));
    for (int w = 0; !memory->missing && w < workers; w++, at += seen_bytes + integers + tops + floats) {
        int64_t *const ids = (int64_t *)(void *)(at + seen_bytes);
        napier_token_top *const best = (napier_token_top *)(void *)(at + seen_bytes + integers);
        float *const chosen = (float *)(void *)(at + seen_bytes + integers + tops);
        desks[w] = (napier_token_seen *)(void *)at;
        for (int64_t r = 0; r < rows; r++) {
            desks[w][r] = (napier_token_seen){.ids = ids + 2 * r * k,
                                              .before = ids + (2 * r + 1) * k,
                                              .chosen = chosen + r * k,
                                              .top = best + r * top};
            napier_token_seen_start(&desks[w][r], &call->wants);
        }
    }
    return memory->missing ? NULL : desks;
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

/* The entropy of a final that does not know it is NaN. */
static void write_records(const napier_token_call *call, int64_t row, const napier_token_final *final,
                          const napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    napier_token_final known = *final;
    known.entropy = call->wants.entropy ? known.entropy : napier_nan();
    if (r->finals) {
        napier_token_final_save(&known, r->finals + row * NAPIER_TOKEN_FINAL_WORDS);
    }
    for (int64_t k = 0; r->chosen && k < call->per_row; k++) {
        r->chosen[row * call->per_row + k] = seen->chosen[k];
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
    write_records(call, row, final, seen);
    if (call->wants.top_k > 0) {
        write_top(call, row, final, seen);
    }
}
