/* ops/tokens/token_backward.c - gradients of the results of token_logprobs with respect to logits in memory. A row is
 * read once to sum it, and again to write its gradient; the second time from a cache, if the row fits in one. Terms that fit
 * one too are kept from the sum (token_split.h). */
#include <napier/rl.h>

#include "core/math/f64.h"
#include "core/base/stop.h"
#include "ops/softmax/softmax_split.h"
#include "ops/tokens/token_backward.h"
#include "ops/tokens/token_record.h"
#include "ops/tokens/token_split.h"

typedef struct back {
    napier_token_split split;
    napier_matrix y;
    bool stream;
    const napier_token_hook *hook;   /* NULL: the gradients are the call's */
    napier_token_slope_desk *slopes; /* [workers] */
    napier_token_final final;        /* of the current row, if rows are split */
} back;

static napier_status take_slopes(napier_memory *memory, back *b) {
    enum { LINE = 8 }; /* doubles; workers write to cache lines of their own */
    const napier_token_call *call = b->split.call;
    const int64_t k = call->chosen ? call->per_row : 0, each = napier_round_up(4 * k + 1, LINE);
    b->slopes = napier_take(memory, b->split.workers, sizeof *b->slopes);
    double *doubles = napier_take(memory, b->split.workers, (size_t)each * sizeof *doubles);
    NAPIER_TRY(napier_taken(memory, "scratch: no memory for %d workers", b->split.workers));
    for (int w = 0; w < b->split.workers; w++, doubles += each) {
        b->slopes[w] = napier_token_slope_desk_of(doubles, (int64_t *)(void *)(doubles + 3 * k), k);
    }
    return NAPIER_OK;
}

/* ---- The slope of a row ------------------------------------------------------------------------------------------ */

static double gradient_at(napier_const_matrix g, int64_t row, int64_t col) {
    return g.data ? napier_f64_load(g.data, g.dtype, row * g.row_stride + col * g.col_stride) : 0.0;
}
static double gradient_of_row(napier_const_vector g, int64_t row) {
    return g.data ? napier_f64_load(g.data, g.dtype, row * g.stride) : 0.0;
}

napier_token_pull napier_token_pull_of(const napier_token_call *call, int64_t row, napier_token_slope_desk *d) {
    const napier_token_gradients *g = &call->gradients;
    napier_token_pull pull = {gradient_of_row(g->lse, row), gradient_of_row(g->entropy, row),
                              gradient_of_row(g->loss, row), false};
    const int64_t k_count = call->chosen ? call->per_row : 0;
    double *own = d->doubles + k_count;
    pull.zero = pull.lse == 0.0 && pull.entropy == 0.0;
    for (int64_t k = 0; k < k_count; k++) {
        const int64_t id = napier_token_id(call, row, k);
        const bool ignored = napier_token_ignored(call, id);
        d->ids[k] = ignored ? -1 : id;
        own[k] = ignored ? 0.0 : gradient_at(g->logprobs, row, k);
        pull.loss = ignored ? 0.0 : pull.loss; /* a loss has K = 1 */
        pull.zero = pull.zero && own[k] == 0.0;
    }
    pull.zero = pull.zero && pull.loss == 0.0;
    return pull;
}

/* The same from the hook, for a row with one id, when its final is known. */
static napier_token_pull pull_hooked(const back *b, int64_t row, const napier_token_final *final,
                                     const napier_token_seen *seen, napier_token_slope_desk *d) {
    const int64_t id = napier_token_id(b->split.call, row, 0);
    const bool ignored = napier_token_ignored(b->split.call, id);
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
    d->slope.zero = pull->zero;
    if (pull->zero) {
        return;
    }
    const int64_t count = call->chosen ? call->per_row : 0;
    const bool smooth = pull->loss != 0.0 && call->options.label_smoothing > 0.0;
    napier_token_slope_make(&call->options, call->rules.temperature, smooth ? napier_token_kept(call, row) : 1, pull,
                            final, count, seen->chosen, d->doubles, d->doubles + count, &d->slope);
}

void napier_token_slope_known(const napier_token_call *call, int64_t row, napier_final *final,
                              napier_token_slope_desk *d) {
    const int64_t count = call->chosen ? call->per_row : 0;
    const float *chosen = count > 0 ? call->gradients.chosen + row * count : NULL;
    const napier_token_seen seen = {.chosen = (float *)(uintptr_t)chosen};
    const napier_token_pull pull = napier_token_pull_of(call, row, d);
    napier_token_final known = napier_token_final_at(call->gradients.finals, row);
    known.entropy = pull.entropy != 0.0 ? known.entropy : 0.0f; /* it may be NaN: see napier_token_write */
    napier_token_slope_of(call, row, &pull, &known, &seen, d);
    *final = known.row;
}

/* ---- Rows to threads --------------------------------------------------------------------------------------------- */

/* The pull of a row whose sums are not needed if it is zero. Without them a hook has nothing to work on. */
static napier_token_pull pull_before(const back *b, int64_t row, napier_token_slope_desk *d) {
    return b->hook ? (napier_token_pull){.zero = false} : napier_token_pull_of(b->split.call, row, d);
}

static void write_columns(const back *b, int64_t row, int64_t begin, int64_t end, const napier_token_final *final,
                          const napier_token_slope *slope, int worker) {
    const napier_token_slots slots = napier_token_row_slots(&b->split, worker);
    b->split.kernels->token_gradient(&b->split.job, row, begin, end, &final->row, slope, b->split.terms ? &slots : NULL,
                                     b->y, b->stream, napier_token_scratch_of(&b->split, worker));
}

/* Writes the gradient of a whole row, whose final and gradients are known. */
static void write_row(const back *b, int64_t row, const napier_token_pull *pull, const napier_token_final *final,
                      const napier_token_seen *seen, int worker) {
    napier_token_slope_of(b->split.call, row, pull, final, seen, &b->slopes[worker]);
    write_columns(b, row, 0, b->split.call->cols, final, &b->slopes[worker].slope, worker);
}

/* Sums a group of short rows, then writes their gradients. */
static void run_short_rows(const back *b, int worker, int64_t begin, int64_t end) {
    const napier_token_split *s = &b->split;
    napier_token_slope_desk *d = &b->slopes[worker];
    napier_token_seen *seen = s->desks[worker];
    napier_token_final finals[NAPIER_GROUP];
    for (int64_t row = begin; row < end; row += s->group) {
        const int rows = (int)napier_least(end - row, s->group);
        napier_token_sum_short(s, worker, row, rows, finals);
        for (int r = 0; r < rows; r++) {
            const napier_token_pull pull =
                b->hook ? pull_hooked(b, row + r, &finals[r], &seen[r], d) : napier_token_pull_of(s->call, row + r, d);
            write_row(b, row + r, &pull, &finals[r], &seen[r], worker);
        }
    }
}

static void run_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const back *b = argument;
    napier_token_slope_desk *d = &b->slopes[worker];
    const napier_token_seen *seen = b->split.desks[worker];
    if (b->split.tiles == 1) {
        run_short_rows(b, worker, begin, end);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        napier_token_final final = {.entropy = 0.0f};
        napier_token_pull pull = pull_before(b, row, d);
        if (!pull.zero) {
            final = napier_token_sum_long(&b->split, worker, row);
            pull = b->hook ? pull_hooked(b, row, &final, seen, d) : pull;
        }
        write_row(b, row, &pull, &final, seen, worker);
    }
}

/* The tiles share the slope of worker 0. Each id, and so the sum of its gradients, is in one tile only. */
static void write_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const back *b = argument;
    const int64_t cols = b->split.call->cols, last = end * NAPIER_TILE < cols ? end * NAPIER_TILE : cols;
    write_columns(b, b->split.row, begin * NAPIER_TILE, last, &b->final, &b->slopes[0].slope, worker);
}

/* Each row, one after the other, is split over all threads. */
static void run_together(const napier_context *context, back *b) {
    napier_token_split *s = &b->split;
    napier_token_slope_desk *d = &b->slopes[0];
    for (s->row = 0; s->row < s->call->rows; s->row++) {
        napier_token_pull pull = pull_before(b, s->row, d);
        if (!pull.zero) {
            b->final = napier_token_sum_together(context, s);
            pull = b->hook ? pull_hooked(b, s->row, &b->final, s->desks[0], d) : pull;
        }
        napier_token_slope_of(b->split.call, s->row, &pull, &b->final, s->desks[0], d);
        napier_parallel(context, s->tiles, s->chunk, write_tiles, b);
    }
}

static napier_status run(napier_context *context, const napier_token_call *call, napier_const_matrix logits,
                         napier_matrix grad_logits, const napier_token_hook *hook) {
    back b = {.split = napier_token_split_of(context, call, logits),
              .y = grad_logits,
              .stream = grad_logits.data != logits.data && napier_leaves_caches(context, grad_logits),
              .hook = hook};
    napier_token_split_keep_terms(&b.split);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take_slopes(&memory, &b));
    NAPIER_TRY(napier_token_split_take(&memory, &b.split));
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    if (b.split.by_rows) {
        napier_parallel(context, call->rows, b.split.chunk, run_rows, &b);
    } else {
        run_together(context, &b);
    }
    return napier_stopped(context);
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

napier_status napier_token_back_check(napier_context *context, napier_place place, napier_const_matrix logits,
                                      napier_indices ids, const napier_token_options *options,
                                      const napier_token_gradients *gradients, napier_matrix grad_logits,
                                      napier_token_call *call) {
    const napier_token_matrices matrices = {
        logits.cols,
        2,
        {NAPIER_ARGUMENT("logits", logits, NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
         NAPIER_ARGUMENT("grad_logits", napier_read_only(grad_logits), NAPIER_IS_NARROW | NAPIER_IS_OUT, logits.rows,
                         logits.cols, "logits")}};
    NAPIER_TRY(napier_begin(context));
    return napier_token_back_read(context, place, &matrices, ids, options, gradients, call);
}

napier_status napier_token_logprobs_backward(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                             const napier_token_options *options,
                                             const napier_token_gradients *gradients, napier_matrix grad_logits) {
    napier_token_call call;
    NAPIER_TRY(napier_token_back_check(context, NAPIER_ON_HOST, logits, ids, options, gradients, grad_logits, &call));
    const bool nothing = logits.rows == 0 || logits.cols == 0;
    return nothing ? NAPIER_OK : run(context, &call, logits, grad_logits, NULL);
}

napier_status napier_token_backward_hooked(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                           const napier_token_options *options, const napier_token_hook *hook,
                                           napier_matrix grad_logits) {
    const napier_token_gradients none = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_token_call call;
    NAPIER_TRY(napier_token_back_check(context, NAPIER_ON_HOST, logits, ids, options, &none, grad_logits, &call));
    call.chosen = call.wants.entropy = true;
    return logits.rows == 0 ? NAPIER_OK : run(context, &call, logits, grad_logits, hook);
}
