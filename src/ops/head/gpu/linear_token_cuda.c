/* ops/head/gpu/linear_token_cuda.c - the host part of log-probabilities from hidden states on a GPU: it divides the
 * work into ranges of rows and, in the backward call, ranges of tokens. See linear_token_cuda.h. */
#include <inttypes.h>

#include "ops/linear/gpu/matmul_cuda.h"
#include "ops/head/gpu/linear_token_cuda.h"
#include "ops/head/linear_head.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_linear_tiles_bf16, napier_linear_tiles_f16, napier_linear_finish,
                           napier_linear_gradient_bf16, napier_linear_gradient_f16, napier_linear_round);

#if defined(NAPIER_TEST_SMALL_PARTS) /* for tests: the behaviour of many rows, with few */
enum { FORWARD_BYTES = 1, BACKWARD_SLOT_BYTES = 1, BACKWARD_ROW_BYTES = 1 };
#else
enum {
    FORWARD_BYTES = 192 << 20, /* of slots */
    BACKWARD_SLOT_BYTES = 56 << 20,
    BACKWARD_ROW_BYTES = 96 << 20 /* of gradients of logits and sums for hidden */
};
#endif

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_kind(napier_cuda_context *context, napier_const_matrix hidden, napier_const_matrix weights,
                                napier_cuda_mode mode) {
    if (mode != NAPIER_CUDA_BATCH_INVARIANT) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "mode: %d is not BATCH_INVARIANT", (int)mode);
    }
    if (!napier_cuda_uses_mma(context, hidden.dtype, weights.dtype, mode)) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "weights: dtype %s by hidden's %s; both bf16 or both f16",
                           napier_dtype_name(weights.dtype), napier_dtype_name(hidden.dtype));
    }
    return NAPIER_OK;
}

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

/* Sides that are not contiguous along k are read element by element. The weights of a head are always contiguous. */
static napier_side linear_side(napier_const_matrix m, const void *unread) {
    napier_side s = napier_cuda_mma_side(m, unread);
    s.layout = s.layout == NAPIER_SIDE_ALONG ? NAPIER_SIDE_ALONG : NAPIER_SIDE_ANY;
    return s;
}

static napier_linear_job job_of(const napier_cuda_context *context, const napier_token_call *call,
                                napier_const_matrix hidden) {
    const napier_token_results *const r = &call->results;
    const napier_token_gradients *const g = &call->gradients;
    const napier_linear_job job = {
        .k = hidden.cols,
        .cols = call->cols,
        .rules = call->rules,
        .ids = call->ids,
        .per_row = call->chosen ? call->per_row : 0,
        .ignore = call->options.ignore_index,
        .label_smoothing = call->options.label_smoothing,
        .z_loss = call->options.z_loss,
        .faults = context->faults,
        .logprobs = r->logprobs,
        .lse = r->lse,
        .entropy = r->entropy,
        .loss = r->loss,
        .argmax = r->argmax,
        .grad_logprobs = g->logprobs,
        .grad_lse = g->lse,
        .grad_entropy = g->entropy,
        .grad_loss = g->loss,
    };
    return job;
}

/* Allocates slots for as many rows as fit in `bytes`, but at least 128. Returns the number of rows. */
static int64_t take_slots(napier_cuda_room *room, bool totals, int64_t rows, int64_t bytes, napier_linear_job *job) {
    const int64_t slot_tiles = napier_cuda_tiles(job->cols, NAPIER_LINEAR_TILE), arrays = totals ? 7 : 5;
    const int64_t row_bytes = (slot_tiles * arrays + job->per_row) * (int64_t)sizeof(float);
    const int64_t fit = row_bytes > 0 ? bytes / row_bytes / NAPIER_MMA_ROWS * NAPIER_MMA_ROWS : rows;
    const int64_t most = fit > 0 ? fit : NAPIER_MMA_ROWS, at_a_time = rows < most ? rows : most;
    const int64_t count = slot_tiles * at_a_time;
    napier_linear_slots *const s = &job->slots;
    s->max = napier_cuda_take(room, count, sizeof(float));
    s->count = napier_cuda_take(room, count, sizeof(float));
    s->rest = napier_cuda_take(room, count, sizeof(float));
    s->spread = napier_cuda_take(room, count, sizeof(float));
    s->best = napier_cuda_take(room, count, sizeof(int32_t));
    s->total = totals ? napier_cuda_take(room, count, sizeof(float)) : NULL;
    s->kept = totals ? napier_cuda_take(room, count, sizeof(float)) : NULL;
    job->chosen = napier_cuda_take(room, at_a_time * job->per_row, sizeof(float));
    s->step = at_a_time;
    s->tiles = slot_tiles;
    return at_a_time;
}

static bool wants_totals(const napier_token_call *call) {
    return call->options.label_smoothing > 0.0 && (call->results.loss.data || call->gradients.loss.data);
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/* Rows first .. first + rows - 1 of hidden, and all of `weights`. */
static napier_status launch_tiles(const napier_cuda_call *gpu, napier_const_matrix hidden, napier_const_matrix weights,
                                  int64_t first, int64_t rows, bool gradient, napier_linear_job *job) {
    job->hidden = linear_side(napier_some_rows(hidden, first, rows), gpu->context->faults);
    job->weights = linear_side(weights, gpu->context->faults);
    job->first = first;
    job->rows = rows;
    job->row_tiles = napier_cuda_tiles(rows, NAPIER_MMA_ROWS);
    job->column_tiles = napier_cuda_tiles(weights.rows, NAPIER_LINEAR_TILE);
    if (job->column_tiles > 0 && job->row_tiles > INT32_MAX / job->column_tiles) {
        return napier_fail(gpu->context->host, NAPIER_UNSUPPORTED, "weights: %" PRId64 " rows are too many for a grid",
                           weights.rows);
    }
    const napier_cuda_shape shape = {.blocks = job->row_tiles * job->column_tiles,
                                     .threads = NAPIER_MMA_THREADS,
                                     .shared_bytes = NAPIER_LINEAR_SHARED};
    const bool bf16 = hidden.dtype == NAPIER_BF16;
    const napier_cuda_kernel of_tiles =
        bf16 ? NAPIER_CUDA_KERNEL(napier_linear_tiles_bf16) : NAPIER_CUDA_KERNEL(napier_linear_tiles_f16);
    const napier_cuda_kernel of_gradient =
        bf16 ? NAPIER_CUDA_KERNEL(napier_linear_gradient_bf16) : NAPIER_CUDA_KERNEL(napier_linear_gradient_f16);
    return napier_cuda_put(gpu, gradient ? of_gradient : of_tiles, shape, job, sizeof *job);
}

static napier_status launch_finish(const napier_cuda_call *gpu, const napier_linear_job *job) {
    enum { THREADS = 32 * NAPIER_LINEAR_FINISH_PARTS };
    const napier_cuda_shape shape = {.blocks = napier_cuda_tiles(job->rows, NAPIER_LINEAR_FINISH_ROWS),
                                     .threads = THREADS,
                                     .shared_bytes = (int64_t)THREADS * NAPIER_LINEAR_FINISH_BYTES};
    return NAPIER_CUDA_PUT(gpu, napier_linear_finish, shape, job);
}

/* Computes the results of all rows, or their slopes. */
static napier_status run_rows(const napier_cuda_call *gpu, napier_const_matrix hidden, napier_const_matrix weights,
                              int64_t at_a_time, napier_linear_job *job) {
    for (int64_t row = 0; row < hidden.rows; row += at_a_time) {
        const int64_t rows = napier_least(hidden.rows - row, at_a_time);
        NAPIER_TRY(launch_tiles(gpu, hidden, weights, row, rows, false, job));
        NAPIER_TRY(launch_finish(gpu, job));
    }
    return NAPIER_OK;
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

napier_status napier_cuda_linear_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                                napier_const_matrix weights, napier_indices ids,
                                                const napier_token_options *options,
                                                const napier_token_results *results, napier_cuda_mode mode) {
    napier_token_call call;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_head_read(context->host, NAPIER_ON_DEVICE, hidden, weights, ids, options, results, &call));
    if (mode == NAPIER_CUDA_BITWISE) {
        return napier_cuda_linear_bitwise(context, stream, workspace, hidden, weights, &call);
    }
    NAPIER_TRY(check_kind(context, hidden, weights, mode));
    if (call.results.rank || call.results.top_k > 0) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "results: rank and top_k are there in BITWISE mode only");
    }
    napier_linear_job job = job_of(context, &call, hidden);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const int64_t at_a_time = take_slots(&room, wants_totals(&call), hidden.rows, FORWARD_BYTES, &job);
    NAPIER_CUDA_READY(context, room);
    if (hidden.rows == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call gpu = {context, stream, "linear_token_logprobs"};
    return run_rows(&gpu, hidden, weights, at_a_time, &job);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

typedef struct linear_back {
    const napier_cuda_call *gpu;
    napier_const_matrix hidden, weights;
    napier_matrix grad_hidden, grad_weights;
    napier_linear_job job;
    int64_t slot_rows;                /* number of rows that have slots at a time */
    int64_t at_a_time;                /* number of rows whose gradients of logits are in memory at a time */
    float *hidden_sums, *weight_sums; /* [at_a_time][H], [NAPIER_LINEAR_GRADIENT_COLS][H]; NULL: not needed */
} linear_back;

static void take_back(napier_cuda_room *room, bool totals, linear_back *b) {
    const int64_t rows = b->hidden.rows, h = b->hidden.cols, k = b->job.per_row;
    const int64_t row_bytes = NAPIER_LINEAR_GRADIENT_COLS * 2 + h * 4;
    const int64_t fit = BACKWARD_ROW_BYTES / row_bytes / NAPIER_MMA_ROWS * NAPIER_MMA_ROWS;
    b->at_a_time = fit > 0 ? fit : NAPIER_MMA_ROWS;
    b->at_a_time = rows < b->at_a_time ? rows : b->at_a_time;
    b->slot_rows = take_slots(room, totals, rows, BACKWARD_SLOT_BYTES, &b->job);
    b->job.slopes = napier_cuda_take(room, rows, sizeof(napier_linear_slope));
    b->job.own = napier_cuda_take(room, rows * k, sizeof(float));
    b->job.g = napier_cuda_take(room, b->at_a_time * NAPIER_LINEAR_GRADIENT_COLS, sizeof(uint16_t));
    if (b->grad_hidden.data) {
        b->hidden_sums = napier_cuda_take(room, b->at_a_time * h, sizeof(float));
    }
    if (b->grad_weights.data && rows > b->at_a_time) {
        b->weight_sums = napier_cuda_take(room, NAPIER_LINEAR_GRADIENT_COLS * h, sizeof(float));
    }
}

static napier_status round_sums(const linear_back *b, const float *sums, napier_matrix out) {
    const napier_linear_round_job job = {sums, out};
    return NAPIER_CUDA_PUT(
        b->gpu, napier_linear_round,
        napier_cuda_loop(b->gpu, out.rows * out.cols, 8 * NAPIER_LINEAR_ROUND_THREADS, 8, NAPIER_LINEAR_ROUND_THREADS),
        &job);
}

/* Computes the gradients of the logits of some rows and some tokens. */
static napier_status rectangle(linear_back *b, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    b->job.column = col;
    return launch_tiles(b->gpu, b->hidden, napier_some_rows(b->weights, col, cols), row, rows, true, &b->job);
}

static napier_const_matrix gradients_of(const linear_back *b, int64_t rows, int64_t cols) {
    const napier_const_matrix g = {b->job.g, rows, cols, NAPIER_LINEAR_GRADIENT_COLS, 1, NAPIER_BF16};
    return g;
}

static napier_status add_to_hidden(const linear_back *b, int64_t rows, int64_t col, int64_t cols) {
    const napier_const_matrix columns = napier_const_transposed(napier_some_rows(b->weights, col, cols));
    return napier_cuda_product(b->gpu, gradients_of(b, rows, cols), columns,
                               napier_rows_f32(b->hidden_sums, rows, b->hidden.cols), col > 0,
                               NAPIER_CUDA_BATCH_INVARIANT);
}

static napier_status add_to_weights(const linear_back *b, int64_t row, int64_t rows, int64_t cols, napier_matrix out,
                                    bool add) {
    return napier_cuda_product(b->gpu, napier_const_transposed(gradients_of(b, rows, cols)),
                               napier_const_transposed(napier_some_rows(b->hidden, row, rows)), out, add,
                               NAPIER_CUDA_BATCH_INVARIANT);
}

/* Computes along the tokens, for one range of rows after the other. with_weights: there is only one range of rows. */
static napier_status walk_along(linear_back *b, bool with_weights) {
    for (int64_t row = 0; row < b->hidden.rows; row += b->at_a_time) {
        const int64_t rows = napier_least(b->hidden.rows - row, b->at_a_time);
        for (int64_t col = 0; col < b->weights.rows; col += NAPIER_LINEAR_GRADIENT_COLS) {
            const int64_t cols = napier_least(b->weights.rows - col, NAPIER_LINEAR_GRADIENT_COLS);
            NAPIER_TRY(rectangle(b, row, rows, col, cols));
            if (b->hidden_sums) {
                NAPIER_TRY(add_to_hidden(b, rows, col, cols));
            }
            if (with_weights) {
                NAPIER_TRY(add_to_weights(b, row, rows, cols, napier_some_rows_out(b->grad_weights, col, cols), false));
            }
        }
        if (b->hidden_sums) {
            NAPIER_TRY(round_sums(b, b->hidden_sums, napier_some_rows_out(b->grad_hidden, row, rows)));
        }
    }
    return NAPIER_OK;
}

/* Computes along the rows, for one range of tokens after the other. */
static napier_status walk_across(linear_back *b) {
    for (int64_t col = 0; col < b->weights.rows; col += NAPIER_LINEAR_GRADIENT_COLS) {
        const int64_t cols = napier_least(b->weights.rows - col, NAPIER_LINEAR_GRADIENT_COLS);
        const napier_matrix sums = napier_rows_f32(b->weight_sums, cols, b->hidden.cols);
        for (int64_t row = 0; row < b->hidden.rows; row += b->at_a_time) {
            const int64_t rows = napier_least(b->hidden.rows - row, b->at_a_time);
            NAPIER_TRY(rectangle(b, row, rows, col, cols));
            NAPIER_TRY(add_to_weights(b, row, rows, cols, sums, row > 0));
        }
        NAPIER_TRY(round_sums(b, b->weight_sums, napier_some_rows_out(b->grad_weights, col, cols)));
    }
    return NAPIER_OK;
}

/* Without rows or tokens the results are 0, as those of a product with k = 0. */
static napier_status zero(const linear_back *b, napier_matrix out) {
    const napier_const_matrix rows = {NULL, out.rows, 0, 0, 1, NAPIER_F32};
    const napier_const_matrix columns = {NULL, out.cols, 0, 0, 1, NAPIER_F32};
    return !out.data ? NAPIER_OK : napier_cuda_product(b->gpu, rows, columns, out, false, NAPIER_CUDA_BITWISE);
}

static napier_status run_back(linear_back *b) {
    if (b->hidden.rows == 0 || b->weights.rows == 0) {
        NAPIER_TRY(zero(b, b->grad_hidden));
        return zero(b, b->grad_weights);
    }
    const bool one_part = b->hidden.rows <= b->at_a_time;
    NAPIER_TRY(run_rows(b->gpu, b->hidden, b->weights, b->slot_rows, &b->job));
    if (b->grad_hidden.data || one_part) {
        NAPIER_TRY(walk_along(b, one_part && b->grad_weights.data));
    }
    return one_part || !b->grad_weights.data ? NAPIER_OK : walk_across(b);
}

napier_status napier_cuda_linear_token_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                         napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                                         napier_const_matrix weights, napier_indices ids,
                                                         const napier_token_options *options,
                                                         const napier_token_gradients *gradients,
                                                         napier_matrix grad_hidden, napier_matrix grad_weights,
                                                         napier_cuda_mode mode) {
    napier_token_call call;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_head_back_read(context->host, NAPIER_ON_DEVICE, hidden, weights, ids, options, gradients,
                                     grad_hidden, grad_weights, &call));
    NAPIER_TRY(check_kind(context, hidden, weights, mode));
    const napier_cuda_call gpu = {context, stream, "linear_token_logprobs_backward"};
    linear_back b = {.gpu = &gpu,
                     .hidden = hidden,
                     .weights = weights,
                     .grad_hidden = grad_hidden,
                     .grad_weights = grad_weights,
                     .job = job_of(context, &call, hidden)};
    const bool nothing = (!grad_hidden.data && !grad_weights.data) || hidden.cols == 0;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    if (!nothing) {
        take_back(&room, wants_totals(&call), &b);
    }
    NAPIER_CUDA_READY(context, room);
    if (nothing) {
        return NAPIER_OK;
    }
    return run_back(&b);
}
