/* ops/softmax/gpu/softmax_gradient_cuda.c - the gradients of softmax and log_softmax on a GPU: checks the arguments,
 * launches the kernels of softmax_gradient.cu. */
#include "ops/softmax/gpu/softmax_gradient_cuda.h"

#include <napier/cuda/softmax.h>

#include "core/gpu/launch.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/gpu/softmax_f64_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_short);
NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_rows);
NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_sums);
NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_totals);
NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_write_tiles);

enum { NAPIER_GRADIENT_WAVES = 16 };

/* A checked call. */
typedef struct napier_gradient_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    napier_gradient_cuda_job job;
} napier_gradient_call;

static napier_status napier_gradient_launch(const napier_gradient_call *c, napier_cuda_kernel kernel,
                                            napier_cuda_shape shape) {
    return napier_cuda_launch(c->context, c->stream, "grad_logits", kernel, &shape, &c->job, sizeof c->job);
}

/* A grid whose warps take `count` pieces in turn. */
static napier_cuda_shape napier_gradient_warps(const napier_gradient_call *c, int64_t count) {
    const napier_cuda_shape shape = {
        .blocks = napier_cuda_blocks(c->context, count, NAPIER_GRADIENT_THREADS / 32, NAPIER_GRADIENT_WAVES),
        .threads = NAPIER_GRADIENT_THREADS,
    };
    return shape;
}

/* The shared memory that a block needs to keep a row. */
static int64_t napier_gradient_shared(const napier_gradient_cuda_job *j) {
    const int64_t element = (int64_t)(napier_dtype_size(j->values.dtype) + napier_dtype_size(j->gradients.dtype));
    return NAPIER_GRADIENT_ROOM + j->tiles * NAPIER_TILE * element;
}

static napier_status napier_gradient_launch_rows(const napier_gradient_call *c) {
    const napier_gradient_cuda_job *const j = &c->job;
    const int64_t rounds = (j->tiles + NAPIER_GRADIENT_ROW_WARPS - 1) / NAPIER_GRADIENT_ROW_WARPS;
    const napier_cuda_shape shape = {
        .blocks = j->out.rows < INT32_MAX ? j->out.rows : INT32_MAX,
        .threads = (int)((j->tiles + rounds - 1) / rounds) * 32,
        .shared_bytes = napier_gradient_shared(j),
    };
    return napier_gradient_launch(c, NAPIER_CUDA_KERNEL(napier_gradient_rows), shape);
}

static napier_status napier_gradient_launch_tiles(const napier_gradient_call *c) {
    const int64_t rows = c->job.out.rows;
    const napier_cuda_shape tiles = napier_gradient_warps(c, rows * c->job.tiles);
    const napier_cuda_shape totals = {
        .blocks = rows < INT32_MAX ? rows : INT32_MAX,
        .threads = NAPIER_GRADIENT_THREADS,
        .shared_bytes = NAPIER_GRADIENT_THREADS * (int64_t)sizeof(float),
    };
    napier_status status = napier_gradient_launch(c, NAPIER_CUDA_KERNEL(napier_gradient_sums), tiles);
    if (!status)
        status = napier_gradient_launch(c, NAPIER_CUDA_KERNEL(napier_gradient_totals), totals);
    if (!status)
        status = napier_gradient_launch(c, NAPIER_CUDA_KERNEL(napier_gradient_write_tiles), tiles);
    return status;
}

static napier_status napier_gradient_run(napier_gradient_call *c, napier_cuda_workspace *workspace) {
    napier_gradient_cuda_job *const j = &c->job;
    const int64_t rows = j->out.cols > 0 ? j->out.rows : 0;
    j->tiles = (j->out.cols + NAPIER_TILE - 1) / NAPIER_TILE;
    const bool keep = j->tiles <= NAPIER_GRADIENT_MOST_TILES && napier_gradient_shared(j) <= c->context->shared_bytes &&
                      rows >= c->context->processors;
    const bool tiles = j->tiles > 1 && !keep;
    napier_status status = NAPIER_OK;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    j->sums = napier_cuda_take(&room, tiles ? rows * j->tiles : 0, sizeof *j->sums);
    j->totals = napier_cuda_take(&room, tiles ? rows : 0, sizeof *j->totals);
    if (!napier_cuda_room_ready(c->context, &room, &status) || rows == 0) {
        return status;
    }
    if (j->tiles == 1) {
        return napier_gradient_launch(c, NAPIER_CUDA_KERNEL(napier_gradient_short), napier_gradient_warps(c, rows));
    }
    return tiles ? napier_gradient_launch_tiles(c) : napier_gradient_launch_rows(c);
}

static napier_status napier_cuda_gradient(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, bool log, napier_const_matrix values,
                                          napier_const_matrix gradients, napier_matrix out,
                                          const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(values.dtype, gradients.dtype, out.dtype);
    napier_softmax_options o;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_gradient_arguments(context->host, log ? "logprobs" : "probs", values,
                                           log ? "grad_logprobs" : "grad_probs", &gradients, out, options, compute, &o);
    }
    if (status) {
        return status;
    }
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {
            .result = log ? NAPIER_F64_LOG_SOFTMAX_GRADIENT : NAPIER_F64_SOFTMAX_GRADIENT,
            .x = values,
            .g = gradients,
            .y = out,
            .temperature = o.temperature,
        };
        return napier_f64_cuda_run(context, stream, workspace, "grad_logits", &job);
    }
    napier_gradient_call call = {
        context, stream, {log, values, gradients, out, napier_float_of(o.temperature), 0, NULL, NULL}};
    return napier_gradient_run(&call, workspace);
}

napier_status napier_cuda_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_workspace *workspace, napier_const_matrix probs,
                                           napier_const_matrix grad_probs, napier_matrix grad_logits,
                                           const napier_softmax_options *options) {
    return napier_cuda_gradient(context, stream, workspace, false, probs, grad_probs, grad_logits, options);
}

napier_status napier_cuda_log_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix logprobs,
                                               napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                               const napier_softmax_options *options) {
    return napier_cuda_gradient(context, stream, workspace, true, logprobs, grad_logprobs, grad_logits, options);
}
