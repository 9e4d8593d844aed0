/* ops/tokens/token_backward.c - gradients of the results of token_logprobs with respect to logits in memory. A row is
 * read once to sum it, and again to write its gradient; the second time from a cache, if the row fits in one. */
#include <napier/rl.h>

#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/tokens/responses.h"
#include "ops/tokens/token_backward.h"
#include "ops/tokens/token_call.h"
#include "ops/softmax/softmax_split.h"

/* Larger gradients would not stay in the caches, so they are stored past them. */
enum { NAPIER_TOKEN_STREAM_BYTES = 12 << 20 };

typedef struct napier_token_back {
    const napier_token_call *call;
    const napier_token_kernels *kernels;
    napier_token_job job;
    napier_matrix y;
    bool stream;
    const napier_token_hook *hook; /* NULL: the gradients are the call's */
    napier_token_desk *desks;
    napier_token_slope_desk *slopes;
    float *scratch, *slots;
    int64_t tiles, slot_floats;
    int group;   /* number of short rows processed at a time; 1 for long ones */
    int64_t row; /* the current row, if rows are split */
    napier_token_final final;
} napier_token_back;

static void napier_token_slopes_free(napier_context *context, napier_token_slope_desk *slopes, int workers) {
    for (int w = 0; slopes && w < workers; w++) {
        napier_free(&context->allocator, slopes[w].doubles);
        napier_free(&context->allocator, slopes[w].ids);
    }
    napier_free(&context->allocator, slopes);
}

static void napier_token_back_release(napier_context *context, napier_token_back *b, int workers) {
    napier_token_desks_free(context, b->desks, workers);
    napier_token_slopes_free(context, b->slopes, workers);
    napier_free(&context->allocator, b->scratch);
    napier_free(&context->allocator, b->slots);
}

static bool napier_token_slopes_make(napier_context *context, napier_token_back *b, int workers) {
    const size_t k = b->call->chosen ? (size_t)b->call->per_row : 0;
    b->slopes = napier_alloc(&context->allocator, (size_t)workers, sizeof *b->slopes);
    if (!b->slopes) {
        return false;
    }
    memset(b->slopes, 0, (size_t)workers * sizeof *b->slopes);
    for (int w = 0; w < workers && k > 0; w++) {
        napier_token_slope_desk *d = &b->slopes[w];
        d->doubles = napier_alloc(&context->allocator, k, 3 * sizeof(double));
        d->ids = napier_alloc(&context->allocator, k, sizeof(int64_t));
        if (!d->doubles || !d->ids) {
            return false;
        }
        d->slope =
            (napier_token_slope){.ids = d->ids, .start = d->doubles, .own = d->doubles + k, .sum = d->doubles + 2 * k};
    }
    return true;
}

static napier_status napier_token_back_allocate(napier_context *context, napier_token_back *b, int workers) {
    b->desks = napier_token_desks(context, b->call, workers, b->group);
    b->scratch = napier_alloc(&context->allocator, (size_t)workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    b->slots = napier_alloc(&context->allocator, (size_t)workers, (size_t)b->slot_floats * sizeof(float));
    if (!napier_token_slopes_make(context, b, workers) || !b->desks || !b->scratch || !b->slots) {
        napier_token_back_release(context, b, workers);
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "scratch: no memory for %d workers", workers);
    }
    return NAPIER_OK;
}

/* ---- The slope of a row ------------------------------------------------------------------------------------------ */

static double napier_token_grad(napier_const_matrix g, int64_t row, int64_t col) {
    return g.data ? napier_f64_load(g.data, g.dtype, row * g.row_stride + col * g.col_stride) : 0.0;
}
static double napier_token_grad_row(napier_const_vector g, int64_t row) {
    return g.data ? napier_f64_load(g.data, g.dtype, row * g.stride) : 0.0;
}

napier_token_pull napier_token_pull_of(const napier_token_call *call, int64_t row, napier_token_slope_desk *d) {
    const napier_token_gradients *g = &call->gradients;
    napier_token_pull pull = {napier_token_grad_row(g->lse, row), napier_token_grad_row(g->entropy, row),
                              napier_token_grad_row(g->loss, row), false};
    const int64_t k_count = call->chosen ? call->per_row : 0;
    double *own = d->doubles + k_count;
    pull.zero = pull.lse == 0.0 && pull.entropy == 0.0;
    for (int64_t k = 0; k < k_count; k++) {
        const int64_t id = napier_token_id(call, row, k);
        const bool ignored = napier_token_ignored(call, id);
        d->ids[k] = ignored ? -1 : id;
        own[k] = ignored ? 0.0 : napier_token_grad(g->logprobs, row, k);
        pull.loss = ignored ? 0.0 : pull.loss; /* a loss has K = 1 */
        pull.zero = pull.zero && own[k] == 0.0;
    }
    pull.zero = pull.zero && pull.loss == 0.0;
    return pull;
}

/* The same from the hook, for a row with one id, when its final is known. */
static napier_token_pull napier_token_pull_hooked(const napier_token_back *b, int64_t row,
                                                  const napier_token_final *final, const napier_token_seen *seen,
                                                  napier_token_slope_desk *d) {
    const int64_t id = napier_token_id(b->call, row, 0);
    const bool ignored = napier_token_ignored(b->call, id);
    const float logprob = ignored ? 0.0f : napier_token_logprob(final, seen->chosen[0]);
    napier_token_pull pull = {0.0, 0.0, 0.0, false};
    double *own = d->doubles + 1;
    b->hook->row(b->hook->argument, row, logprob, final->entropy, own, &pull.entropy);
    own[0] = ignored ? 0.0 : own[0];
    d->ids[0] = ignored ? -1 : id;
    pull.zero = own[0] == 0.0 && pull.entropy == 0.0;
    return pull;
}

void napier_token_slope_of(const napier_token_call *call, int64_t row, const napier_token_pull *pull,
                           const napier_token_final *final, const napier_token_seen *seen, napier_token_slope_desk *d) {
    const int64_t count = call->chosen ? call->per_row : 0;
    const bool smooth = pull->loss != 0.0 && call->options.label_smoothing > 0.0;
    napier_token_slope_make(&call->options, call->rules.temperature, smooth ? napier_token_kept(call, row) : 1, pull,
                            final, count, seen->chosen, d->doubles, d->doubles + count, &d->slope);
}

/* ---- Rows to threads --------------------------------------------------------------------------------------------- */

static float *napier_token_back_scratch(const napier_token_back *b, int worker) {
    return b->scratch + (int64_t)worker * NAPIER_TOKEN_SCRATCH;
}

static void napier_token_back_write(const napier_token_back *b, int64_t row, int64_t begin, int64_t end,
                                    const napier_token_final *final, const napier_token_slope *slope, int worker) {
    b->kernels->token_gradient(&b->job, row, begin, end, &final->row, slope, b->y, b->stream,
                               napier_token_back_scratch(b, worker));
}

/* Writes the gradient of a whole row, whose final and gradients are known. */
static void napier_token_back_row(const napier_token_back *b, int64_t row, const napier_token_pull *pull,
                                  const napier_token_final *final, const napier_token_seen *seen, int worker) {
    napier_token_slope_desk *d = &b->slopes[worker];
    d->slope.zero = pull->zero;
    if (!pull->zero) {
        napier_token_slope_of(b->call, row, pull, final, seen, d);
    }
    napier_token_back_write(b, row, 0, b->call->cols, final, &d->slope, worker);
}

static void napier_token_back_long_rows(const napier_token_back *b, int worker, int64_t begin, int64_t end) {
    napier_token_slope_desk *d = &b->slopes[worker];
    napier_token_seen *seen = b->desks[worker].seen;
    const napier_token_slots slots = napier_token_slots_of(b->slots + worker * b->slot_floats, b->tiles);
    for (int64_t row = begin; row < end; row++) {
        napier_token_final final = {.entropy = 0.0f};
        napier_token_pull pull = {.zero = false};
        if (!b->hook) {
            pull = napier_token_pull_of(b->call, row, d);
        }
        if (!pull.zero) {
            napier_token_start(b->call, b->kernels, b->job.x, row, seen);
            b->kernels->token_range(&b->job, row, 0, b->call->cols, &slots, seen, napier_token_back_scratch(b, worker));
            final = b->kernels->token_finish(&b->call->wants, &slots, b->tiles);
            pull = b->hook ? napier_token_pull_hooked(b, row, &final, seen, d) : pull;
        }
        napier_token_back_row(b, row, &pull, &final, seen, worker);
    }
}

/* Sums a group of short rows, then writes their gradients. */
static void napier_token_back_short_rows(const napier_token_back *b, int worker, int64_t begin, int64_t end) {
    napier_token_slope_desk *d = &b->slopes[worker];
    napier_token_seen *seen = b->desks[worker].seen;
    napier_token_final finals[NAPIER_GROUP];
    for (int64_t row = begin; row < end; row += b->group) {
        const int rows = end - row < b->group ? (int)(end - row) : b->group;
        for (int r = 0; r < rows; r++) {
            napier_token_start(b->call, b->kernels, b->job.x, row + r, &seen[r]);
        }
        b->kernels->token_rows(&b->job, row, rows, seen, finals, napier_token_back_scratch(b, worker));
        for (int r = 0; r < rows; r++) {
            const napier_token_pull pull = b->hook ? napier_token_pull_hooked(b, row + r, &finals[r], &seen[r], d)
                                                   : napier_token_pull_of(b->call, row + r, d);
            napier_token_back_row(b, row + r, &pull, &finals[r], &seen[r], worker);
        }
    }
}

static void napier_token_back_rows_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_back *b = argument;
    if (b->tiles == 1) {
        napier_token_back_short_rows(b, worker, begin, end);
    } else {
        napier_token_back_long_rows(b, worker, begin, end);
    }
}

static void napier_token_back_sum_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_back *b = argument;
    const napier_token_slots slots = napier_token_slots_of(b->slots, b->tiles);
    const int64_t cols = b->call->cols, last = end * NAPIER_TILE < cols ? end * NAPIER_TILE : cols;
    b->kernels->token_range(&b->job, b->row, begin * NAPIER_TILE, last, &slots, b->desks[worker].seen,
                            napier_token_back_scratch(b, worker));
}

/* The tiles share the slope of worker 0. Each id, and so the sum of its gradients, is in one tile only. */
static void napier_token_back_write_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_back *b = argument;
    const int64_t cols = b->call->cols, last = end * NAPIER_TILE < cols ? end * NAPIER_TILE : cols;
    napier_token_back_write(b, b->row, begin * NAPIER_TILE, last, &b->final, &b->slopes[0].slope, worker);
}

static napier_status napier_token_back_by_rows(napier_context *context, napier_token_back *b) {
    const int64_t chunk = napier_row_chunk(context, b->call->rows, b->call->cols, b->group);
    const int workers = napier_workers(context, b->call->rows, chunk);
    const napier_status status = napier_token_back_allocate(context, b, workers);
    if (!status) {
        napier_parallel(context, b->call->rows, chunk, napier_token_back_rows_task, b);
        napier_token_back_release(context, b, workers);
    }
    return status;
}

static napier_status napier_token_back_by_tiles(napier_context *context, napier_token_back *b) {
    const int64_t chunk = napier_row_chunk(context, b->tiles, NAPIER_TILE, 1);
    const int workers = napier_workers(context, b->tiles, chunk);
    const napier_status status = napier_token_back_allocate(context, b, workers);
    if (status) {
        return status;
    }
    const napier_token_slots slots = napier_token_slots_of(b->slots, b->tiles);
    for (b->row = 0; b->row < b->call->rows; b->row++) {
        napier_token_slope_desk *d = &b->slopes[0];
        napier_token_pull pull = {.zero = false};
        if (!b->hook) {
            pull = napier_token_pull_of(b->call, b->row, d);
        }
        if (!pull.zero) {
            napier_token_start(b->call, b->kernels, b->job.x, b->row, b->desks[0].seen);
            napier_parallel(context, b->tiles, chunk, napier_token_back_sum_task, b);
            b->final = b->kernels->token_finish(&b->call->wants, &slots, b->tiles);
            pull = b->hook ? napier_token_pull_hooked(b, b->row, &b->final, b->desks[0].seen, d) : pull;
        }
        d->slope.zero = pull.zero;
        if (!pull.zero) {
            napier_token_slope_of(b->call, b->row, &pull, &b->final, b->desks[0].seen, d);
        }
        napier_parallel(context, b->tiles, chunk, napier_token_back_write_task, b);
    }
    napier_token_back_release(context, b, workers);
    return NAPIER_OK;
}

napier_status napier_token_back_check(napier_context *context, napier_place place, napier_const_matrix logits,
                                      napier_indices ids, const napier_token_options *options,
                                      const napier_token_gradients *gradients, napier_matrix grad_logits,
                                      napier_token_call *call) {
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, "logits", logits);
    if (!status)
        status = napier_check_not_f64(context, "logits", logits.dtype);
    if (!status && !gradients)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "gradients: NULL");
    if (!status)
        status = (place == NAPIER_ON_HOST ? napier_token_call_read : napier_token_call_read_on_device)(
            context, logits.rows, logits.cols, ids, options, NULL, gradients, call);
    if (!status)
        status = napier_check_matrix_out(context, "grad_logits", grad_logits);
    if (!status)
        status = napier_check_not_f64(context, "grad_logits", grad_logits.dtype);
    if (!status && (grad_logits.rows != logits.rows || grad_logits.cols != logits.cols)) {
        status = napier_fail(
            context, NAPIER_INVALID_ARGUMENT, "grad_logits: shape %lld x %lld is not that of logits, %lld x %lld",
            (long long)grad_logits.rows, (long long)grad_logits.cols, (long long)logits.rows, (long long)logits.cols);
    }
    if (!status)
        status = napier_check_alias(context, "grad_logits", grad_logits, "logits", logits);
    if (!status)
        status = napier_token_gradients_apart(context, call, "grad_logits", grad_logits);
    return status;
}

static napier_status napier_token_back_run(napier_context *context, const napier_token_call *call,
                                           napier_const_matrix logits, napier_matrix grad_logits,
                                           const napier_token_hook *hook) {
    const napier_fenv caller = napier_fenv_enter();
    napier_token_back b = {
        .call = call, .kernels = &napier_ops_kernels_of(context->isa)->tokens, .y = grad_logits, .hook = hook};
    b.job = (napier_token_job){logits, call->rules, call->wants};
    b.tiles = napier_token_tiles(call->cols);
    b.slot_floats = napier_token_slot_floats(b.tiles > 0 ? b.tiles : 1);
    b.group = b.tiles == 1 ? napier_token_group_rows(call->cols) : 1;
    b.stream = grad_logits.data != logits.data &&
               call->rows * call->cols > NAPIER_TOKEN_STREAM_BYTES / (int64_t)napier_dtype_size(grad_logits.dtype);
    const bool by_rows = b.tiles <= 1 || call->rows >= context->threads;
    const napier_status status =
        by_rows ? napier_token_back_by_rows(context, &b) : napier_token_back_by_tiles(context, &b);
    napier_fenv_leave(caller);
    return status;
}

napier_status napier_token_logprobs_backward(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                             const napier_token_options *options,
                                             const napier_token_gradients *gradients, napier_matrix grad_logits) {
    napier_token_call call;
    const napier_status status =
        napier_token_back_check(context, NAPIER_ON_HOST, logits, ids, options, gradients, grad_logits, &call);
    if (status || logits.rows == 0 || logits.cols == 0) {
        return status;
    }
    return napier_token_back_run(context, &call, logits, grad_logits, NULL);
}

napier_status napier_token_backward_hooked(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                           const napier_token_options *options, const napier_token_hook *hook,
                                           napier_matrix grad_logits) {
    const napier_token_gradients none = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_token_call call;
    const napier_status status =
        napier_token_back_check(context, NAPIER_ON_HOST, logits, ids, options, &none, grad_logits, &call);
    if (status || logits.rows == 0) {
        return status;
    }
    call.chosen = call.wants.entropy = true;
    return napier_token_back_run(context, &call, logits, grad_logits, hook);
}
