/* ops/tokens/token_logprobs.c - log-probabilities of tokens from logits in memory: one read of each row. The division
 * of the work does not change any bit (token_tile.h). */
#include <napier/rl.h>

#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "ops/tokens/responses.h"
#include "ops/tokens/token_call.h"
#include "ops/softmax/softmax_split.h"

napier_status napier_fused_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                                       const napier_softmax_options *options) {
    return napier_log_softmax(context, logits, logprobs, options);
}

/* The data that the workers share. */
typedef struct napier_token_split {
    const napier_token_call *call;
    const napier_token_kernels *kernels;
    napier_token_job job;
    napier_token_desk *desks; /* [workers] */
    float *scratch;           /* [workers] */
    float *slots;             /* of a row, for each worker; shared by all if a row is split */
    int64_t tiles, slot_floats;
    int64_t row; /* the current row, if rows are split */
    int group;   /* number of short rows processed at a time; 1 for long ones */
} napier_token_split;

static napier_token_split napier_token_split_of(const napier_context *context, const napier_token_call *call,
                                                napier_const_matrix logits) {
    napier_token_split s = {.call = call, .kernels = &napier_ops_kernels_of(context->isa)->tokens};
    s.job = (napier_token_job){logits, call->rules, call->wants};
    s.tiles = napier_token_tiles(call->cols);
    s.slot_floats = napier_token_slot_floats(s.tiles > 0 ? s.tiles : 1);
    s.group = s.tiles == 1 ? napier_token_group_rows(call->cols) : 1;
    return s;
}

static void napier_token_release(napier_context *context, napier_token_split *s, int workers) {
    napier_token_desks_free(context, s->desks, workers);
    napier_free(&context->allocator, s->scratch);
    napier_free(&context->allocator, s->slots);
}

static napier_status napier_token_allocate(napier_context *context, napier_token_split *s, int workers) {
    s->desks = napier_token_desks(context, s->call, workers, s->group);
    s->scratch = napier_alloc(&context->allocator, (size_t)workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    s->slots = napier_alloc(&context->allocator, (size_t)workers, (size_t)s->slot_floats * sizeof(float));
    if (!s->desks || !s->scratch || !s->slots) {
        napier_token_release(context, s, workers);
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "scratch: no memory for %d workers", workers);
    }
    return NAPIER_OK;
}

static float *napier_token_scratch_of(const napier_token_split *s, int worker) {
    return s->scratch + (int64_t)worker * NAPIER_TOKEN_SCRATCH;
}

/* ---- Rows to threads --------------------------------------------------------------------------------------------- */

static void napier_token_short_rows(const napier_token_split *s, int worker, int64_t begin, int64_t end) {
    napier_token_seen *seen = s->desks[worker].seen;
    napier_token_final finals[NAPIER_GROUP];
    for (int64_t row = begin; row < end; row += s->group) {
        const int rows = end - row < s->group ? (int)(end - row) : s->group;
        for (int r = 0; r < rows; r++) {
            napier_token_start(s->call, s->kernels, s->job.x, row + r, &seen[r]);
        }
        s->kernels->token_rows(&s->job, row, rows, seen, finals, napier_token_scratch_of(s, worker));
        for (int r = 0; r < rows; r++) {
            napier_token_write(s->call, row + r, &finals[r], &seen[r]);
        }
    }
}

static void napier_token_long_rows(const napier_token_split *s, int worker, int64_t begin, int64_t end) {
    napier_token_seen *seen = s->desks[worker].seen;
    const napier_token_slots slots = napier_token_slots_of(s->slots + worker * s->slot_floats, s->tiles);
    for (int64_t row = begin; row < end; row++) {
        napier_token_start(s->call, s->kernels, s->job.x, row, seen);
        s->kernels->token_range(&s->job, row, 0, s->call->cols, &slots, seen, napier_token_scratch_of(s, worker));
        const napier_token_final final = s->kernels->token_finish(&s->call->wants, &slots, s->tiles);
        napier_token_write(s->call, row, &final, seen);
    }
}

static void napier_token_rows_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_split *s = argument;
    if (s->tiles == 1) {
        napier_token_short_rows(s, worker, begin, end);
    } else {
        napier_token_long_rows(s, worker, begin, end);
    }
}

static napier_status napier_token_by_rows(napier_context *context, napier_token_split *s) {
    const int64_t chunk = napier_row_chunk(context, s->call->rows, s->call->cols, s->group);
    const int workers = napier_workers(context, s->call->rows, chunk);
    const napier_status status = napier_token_allocate(context, s, workers);
    if (!status) {
        napier_parallel(context, s->call->rows, chunk, napier_token_rows_task, s);
        napier_token_release(context, s, workers);
    }
    return status;
}

/* ---- A few long rows, each split over all threads ---------------------------------------------------------------- */

static void napier_token_tiles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_split *s = argument;
    const napier_token_slots slots = napier_token_slots_of(s->slots, s->tiles);
    const int64_t cols = s->call->cols, last = end * NAPIER_TILE < cols ? end * NAPIER_TILE : cols;
    s->kernels->token_range(&s->job, s->row, begin * NAPIER_TILE, last, &slots, s->desks[worker].seen,
                            napier_token_scratch_of(s, worker));
}

static napier_status napier_token_by_tiles(napier_context *context, napier_token_split *s) {
    const int64_t chunk = napier_row_chunk(context, s->tiles, NAPIER_TILE, 1);
    const int workers = napier_workers(context, s->tiles, chunk);
    const napier_status status = napier_token_allocate(context, s, workers);
    if (status) {
        return status;
    }
    const napier_token_slots slots = napier_token_slots_of(s->slots, s->tiles);
    for (s->row = 0; s->row < s->call->rows; s->row++) {
        for (int w = 0; w < workers; w++) {
            napier_token_start(s->call, s->kernels, s->job.x, s->row, s->desks[w].seen);
        }
        napier_parallel(context, s->tiles, chunk, napier_token_tiles_task, s);
        for (int w = 1; w < workers; w++) {
            napier_token_seen_merge(s->desks[0].seen, s->desks[w].seen, &s->call->wants);
        }
        const napier_token_final final = s->kernels->token_finish(&s->call->wants, &slots, s->tiles);
        napier_token_write(s->call, s->row, &final, s->desks[0].seen);
    }
    napier_token_release(context, s, workers);
    return NAPIER_OK;
}

napier_status napier_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                    const napier_token_options *options, const napier_token_results *results) {
    napier_token_call call;
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_matrix(context, "logits", logits);
    if (!status)
        status = napier_check_not_f64(context, "logits", logits.dtype);
    if (!status && !results)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "results: NULL");
    if (!status)
        status = napier_token_call_read(context, logits.rows, logits.cols, ids, options, results, NULL, &call);
    if (!status)
        status = napier_token_call_apart(context, &call, "logits", logits);
    if (status || logits.rows == 0) {
        return status;
    }
    const napier_fenv caller = napier_fenv_enter();
    napier_token_split s = napier_token_split_of(context, &call, logits);
    const bool by_rows = s.tiles <= 1 || logits.rows >= context->threads;
    status = by_rows ? napier_token_by_rows(context, &s) : napier_token_by_tiles(context, &s);
    napier_fenv_leave(caller);
    return status;
}
