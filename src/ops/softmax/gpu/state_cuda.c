/* ops/softmax/gpu/state_cuda.c - mergeable states on a GPU: arrays of sums (sum.h, sum_f64.h), one for each row, in
 * device memory. The kernels are those of lines that are split over blocks, because a part of a row on another device
 * is treated like a part in another block. */
#include <napier/cuda/softmax.h>

#include "core/base/view.h"
#include "core/gpu/launch.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/gpu/softmax_cuda.h"
#include "ops/softmax/gpu/softmax_f64_cuda.h"

size_t napier_cuda_softmax_state_size(napier_dtype compute) {
    return compute == NAPIER_F32 ? sizeof(napier_sum) : compute == NAPIER_F64 ? sizeof(napier_f64_sum) : 0;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

napier_status napier_softmax_cuda_check_states(napier_cuda_context *context, const char *name, const void *states,
                                               int64_t rows, napier_dtype compute) {
    const size_t size = napier_cuda_softmax_state_size(compute);
    NAPIER_REFUSE_IF(context->host, size == 0, "compute: dtype %d (%s) is not f32 or f64", (int)compute,
                     napier_dtype_name(compute));
    NAPIER_REFUSE_IF(context->host, rows < 0 || (uint64_t)rows > (uint64_t)INT32_MAX, "%s: %lld rows are out of range",
                     name, (long long)rows);
    NAPIER_REFUSE_IF(context->host, rows > 0 && (states == NULL || (uintptr_t)states % 8 != 0),
                     "%s: %p is not memory on a boundary of 8 bytes", name, (const void *)states);
    return NAPIER_OK;
}

static napier_status check_compute(napier_cuda_context *context, const char *name, napier_dtype dtype,
                                   napier_dtype compute) {
    NAPIER_REFUSE_IF(context->host, dtype == NAPIER_F64 && compute != NAPIER_F64,
                     "%s: dtype f64 does not go with f32 states", name);
    return NAPIER_OK;
}

/* Does the part begin at a multiple of the tile? */
static napier_status check_part(napier_cuda_context *context, int64_t first_index, int64_t cols) {
    NAPIER_REFUSE_IF(context->host, first_index < 0 || first_index % NAPIER_TILE != 0 || first_index > INT64_MAX - cols,
                     "first_index: %lld is not a multiple of %d", (long long)first_index, NAPIER_TILE);
    return NAPIER_OK;
}

/* ---- Clear and merge --------------------------------------------------------------------------------------------- */

/* A job that has states and no logits. */
static napier_softmax_cuda_call states_call(napier_cuda_call gpu, void *states, int64_t rows) {
    return (napier_softmax_cuda_call){
        gpu, {.op = NAPIER_OP_LOGSUMEXP, .temperature = 1.0f, .lines = rows, .states = states}};
}

napier_status napier_softmax_cuda_states_take(napier_cuda_call gpu, void *states, const void *sums, int64_t rows,
                                              napier_dtype compute) {
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = NAPIER_F64_STATE, .lines = rows, .parts = 1, .states = states};
        return napier_f64_cuda_take_states(&gpu, &job, sums);
    }
    napier_softmax_cuda_call call = states_call(gpu, states, rows);
    call.job.update = true;
    call.job.parts = 1;
    call.job.sums = (napier_sum *)(uintptr_t)sums; /* only read */
    call.job.clear = sums == NULL;
    return napier_softmax_cuda_merge(&call);
}

napier_status napier_cuda_softmax_state_clear(napier_cuda_context *context, struct CUstream_st *stream, void *states,
                                              int64_t rows, napier_dtype compute) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "states", states, rows, compute));
    return napier_softmax_cuda_states_take((napier_cuda_call){context, stream, "states"}, states, NULL, rows, compute);
}

napier_status napier_cuda_softmax_state_merge(napier_cuda_context *context, struct CUstream_st *stream, void *into,
                                              const void *from, int64_t rows, napier_dtype compute) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "into", into, rows, compute));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "from", from, rows, compute));
    const uintptr_t a = (uintptr_t)into, b = (uintptr_t)from;
    NAPIER_REFUSE_IF(context->host, (a < b ? b - a : a - b) < (size_t)rows * napier_cuda_softmax_state_size(compute),
                     "from: overlaps into");
    return napier_softmax_cuda_states_take((napier_cuda_call){context, stream, "into"}, into, from, rows, compute);
}

/* ---- Update ------------------------------------------------------------------------------------------------------ */

static napier_status update_f32(napier_softmax_cuda_call *c, napier_cuda_workspace *workspace) {
    napier_softmax_cuda_job *const j = &c->job;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    j->lines = j->x.cols > 0 ? j->lines : 0;
    if (j->lines > 0) {
        napier_softmax_cuda_plan(c->gpu.context, j);
    }
    j->sums = napier_cuda_take(&room, j->lines * j->parts, sizeof *j->sums);
    NAPIER_CUDA_READY(c->gpu.context, room);
    if (j->lines == 0) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_softmax_cuda_sums(c));
    return napier_softmax_cuda_merge(c);
}

napier_status napier_softmax_cuda_states_update(napier_cuda_call gpu, napier_cuda_workspace *workspace, void *states,
                                                napier_dtype compute, napier_const_matrix x, double temperature) {
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = NAPIER_F64_STATE, .x = x, .temperature = temperature, .states = states};
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_softmax_cuda_call call = states_call(gpu, states, x.rows);
    call.job.x = x;
    call.job.temperature = napier_float_of(temperature);
    call.job.update = true;
    return update_f32(&call, workspace);
}

napier_status napier_cuda_softmax_state_update(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, void *states, napier_dtype compute,
                                               int64_t first_index, napier_const_matrix logits,
                                               const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_check_matrix(context->host, "logits", logits));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "states", states, logits.rows, compute));
    NAPIER_TRY(check_compute(context, "logits", logits.dtype, compute));
    NAPIER_TRY(check_part(context, first_index, logits.cols));
    NAPIER_TRY(napier_softmax_options_read(context->host, options, compute, &o));
    return napier_softmax_cuda_states_update((napier_cuda_call){context, stream, "states"}, workspace, states, compute,
                                             logits, o.temperature);
}

/* ---- Finish and apply -------------------------------------------------------------------------------------------- */

napier_status napier_cuda_softmax_state_finish(napier_cuda_context *context, struct CUstream_st *stream,
                                               const void *states, napier_dtype compute, napier_vector lse) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_check_vector_out(context->host, "lse", lse));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "states", states, lse.size, compute));
    NAPIER_TRY(check_compute(context, "lse", lse.dtype, compute));
    void *const read = (void *)(uintptr_t)states; /* only read */
    const napier_cuda_call gpu = {context, stream, "lse"};
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = NAPIER_F64_LSE,
                                   .x = {.rows = lse.size, .dtype = NAPIER_F64},
                                   .y = napier_column(lse),
                                   .temperature = 1,
                                   .states = read};
        return napier_f64_cuda_run(&gpu, NULL, &job);
    }
    napier_softmax_cuda_call call = states_call(gpu, read, lse.size);
    call.job.y = napier_column(lse);
    return napier_softmax_cuda_merge(&call);
}

static napier_status apply_f32(napier_softmax_cuda_call *c, napier_cuda_workspace *workspace) {
    napier_softmax_cuda_job *const j = &c->job;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    j->lines = j->x.cols > 0 ? j->lines : 0;
    j->finals = napier_cuda_take(&room, j->lines, sizeof *j->finals);
    NAPIER_CUDA_READY(c->gpu.context, room);
    if (j->lines == 0) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_softmax_cuda_merge(c));
    napier_softmax_cuda_plan(c->gpu.context, j);
    return napier_softmax_cuda_write(c);
}

napier_status napier_cuda_softmax_state_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                              napier_cuda_workspace *workspace, const void *states,
                                              napier_dtype compute, napier_softmax_kind kind,
                                              napier_const_matrix logits, napier_matrix result,
                                              const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_REFUSE_IF(context->host, kind != NAPIER_KIND_SOFTMAX && kind != NAPIER_KIND_LOG_SOFTMAX,
                     "kind: %d is unknown", (int)kind);
    NAPIER_TRY(napier_elementwise_arguments(context->host, "result", logits, result, options, &o));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "states", states, logits.rows, compute));
    NAPIER_TRY(check_compute(context, "logits", napier_compute_dtype(logits.dtype, result.dtype), compute));
    NAPIER_TRY(napier_softmax_options_read(context->host, options, compute, &o));
    void *const read = (void *)(uintptr_t)states;
    const napier_cuda_call gpu = {context, stream, "result"};
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = kind == NAPIER_KIND_SOFTMAX ? NAPIER_F64_SOFTMAX : NAPIER_F64_LOG_SOFTMAX,
                                   .x = logits,
                                   .y = result,
                                   .temperature = o.temperature,
                                   .masked_rows = o.masked_rows,
                                   .states = read};
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_softmax_cuda_call call = states_call(gpu, read, logits.rows);
    call.job.op = kind == NAPIER_KIND_SOFTMAX ? NAPIER_OP_SOFTMAX : NAPIER_OP_LOG_SOFTMAX;
    call.job.x = logits;
    call.job.y = result;
    call.job.temperature = napier_float_of(o.temperature);
    call.job.masked_rows = o.masked_rows;
    return apply_f32(&call, workspace);
}
