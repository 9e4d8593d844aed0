/* ops/softmax/gpu/softmax_gradient_cuda.c - the gradients of softmax and log_softmax on a GPU: checks the arguments,
 * launches the kernels of softmax_gradient.cu. */
#include "ops/softmax/gpu/softmax_gradient_cuda.h"

#include <napier/cuda/softmax.h>

#include "core/gpu/launch.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/gpu/softmax_f64_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_gradient_short, napier_gradient_rows, napier_gradient_sums, napier_gradient_totals,
                           napier_gradient_write_tiles);

enum { NAPIER_GRADIENT_WAVES = 16 };

/* A grid whose warps take `count` pieces in turn. */
static napier_cuda_shape gradient_warps(const napier_cuda_call *gpu, int64_t count) {
    return napier_cuda_loop(gpu, count, NAPIER_GRADIENT_THREADS / 32, NAPIER_GRADIENT_WAVES, NAPIER_GRADIENT_THREADS);
}

/* The shared memory that a block needs to keep a row. */
static int64_t gradient_shared(const napier_gradient_cuda_job *j) {
    const int64_t element = (int64_t)(napier_dtype_size(j->values.dtype) + napier_dtype_size(j->gradients.dtype));
    return NAPIER_GRADIENT_ROOM + j->tiles * NAPIER_TILE * element;
}

static napier_status gradient_launch_rows(const napier_cuda_call *gpu, const napier_gradient_cuda_job *j) {
    const int64_t rounds = napier_cuda_tiles(j->tiles, NAPIER_GRADIENT_ROW_WARPS);
    const napier_cuda_shape shape = {
        .blocks = j->out.rows < INT32_MAX ? j->out.rows : INT32_MAX,
        .threads = (int)(napier_cuda_tiles(j->tiles, rounds)) * 32,
        .shared_bytes = gradient_shared(j),
    };
    return NAPIER_CUDA_PUT(gpu, napier_gradient_rows, shape, j);
}

static napier_status gradient_launch_tiles(const napier_cuda_call *gpu, const napier_gradient_cuda_job *j) {
    const int64_t rows = j->out.rows;
    const napier_cuda_shape tiles = gradient_warps(gpu, rows * j->tiles);
    const napier_cuda_shape totals = {
        .blocks = rows < INT32_MAX ? rows : INT32_MAX,
        .threads = NAPIER_GRADIENT_THREADS,
        .shared_bytes = NAPIER_GRADIENT_THREADS * (int64_t)sizeof(napier_certain_sums),
    };
    NAPIER_TRY(NAPIER_CUDA_PUT(gpu, napier_gradient_sums, tiles, j));
    NAPIER_TRY(NAPIER_CUDA_PUT(gpu, napier_gradient_totals, totals, j));
    return j->dots.data ? NAPIER_OK : NAPIER_CUDA_PUT(gpu, napier_gradient_write_tiles, tiles, j);
}

static napier_status gradient_run(const napier_cuda_call *gpu, napier_cuda_workspace *workspace,
                                  napier_gradient_cuda_job *j) {
    const int64_t rows = j->out.cols > 0 || j->dots.data ? j->out.rows : 0;
    j->tiles = napier_cuda_tiles(j->out.cols, NAPIER_TILE);
    const bool keep = j->tiles <= NAPIER_GRADIENT_MOST_TILES && gradient_shared(j) <= gpu->context->shared_bytes &&
                      rows >= gpu->context->processors;
    const bool tiles = j->tiles > 1 && !keep;

    napier_cuda_room room = napier_cuda_room_of(workspace);
    j->sums = napier_cuda_take(&room, tiles ? rows * j->tiles : 0, sizeof *j->sums);
    j->totals = napier_cuda_take(&room, tiles ? rows : 0, sizeof *j->totals);
    NAPIER_CUDA_READY(gpu->context, room);
    if (rows == 0) {
        return NAPIER_OK;
    }
    if (j->tiles <= 1) {
        return NAPIER_CUDA_PUT(gpu, napier_gradient_short, gradient_warps(gpu, rows), j);
    }
    return tiles ? gradient_launch_tiles(gpu, j) : gradient_launch_rows(gpu, j);
}

static napier_status gradient(napier_cuda_context *context, struct CUstream_st *stream,
                              napier_cuda_workspace *workspace, bool log, napier_const_matrix values,
                              napier_const_matrix gradients, napier_matrix out, const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(values.dtype, gradients.dtype, out.dtype);
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_gradient_arguments(context->host, log ? "logprobs" : "probs", values,
                                         log ? "grad_logprobs" : "grad_probs", &gradients, out, options, compute, &o));
    const napier_cuda_call gpu = {context, stream, "grad_logits"};
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {
            .result = log ? NAPIER_F64_LOG_SOFTMAX_GRADIENT : NAPIER_F64_SOFTMAX_GRADIENT,
            .x = values,
            .g = gradients,
            .y = out,
            .temperature = o.temperature,
        };
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_gradient_cuda_job job = {.log = log,
                                    .values = values,
                                    .gradients = gradients,
                                    .out = out,
                                    .temperature = napier_float_of(o.temperature)};
    return gradient_run(&gpu, workspace, &job);
}

napier_status napier_cuda_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_workspace *workspace, napier_const_matrix probs,
                                           napier_const_matrix grad_probs, napier_matrix grad_logits,
                                           const napier_softmax_options *options) {
    return gradient(context, stream, workspace, false, probs, grad_probs, grad_logits, options);
}

napier_status napier_cuda_log_softmax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix logprobs,
                                               napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                               const napier_softmax_options *options) {
    return gradient(context, stream, workspace, true, logprobs, grad_logprobs, grad_logits, options);
}

napier_status napier_cuda_dot_rows(napier_cuda_context *context, struct CUstream_st *stream,
                                   napier_cuda_workspace *workspace, napier_const_matrix a, napier_const_matrix b,
                                   napier_vector dots) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_dot_arguments(context->host, a, b, dots));
    const napier_cuda_call gpu = {context, stream, "dots"};
    if (napier_compute_dtype3(a.dtype, b.dtype, dots.dtype) == NAPIER_F64) {
        napier_f64_cuda_job job = {
            .result = NAPIER_F64_DOT, .x = a, .g = b, .y = napier_column(dots), .temperature = 1};
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_gradient_cuda_job job = {.values = a,
                                    .gradients = b,
                                    .out = {.rows = a.rows, .cols = a.cols, .dtype = NAPIER_F32},
                                    .dots = dots,
                                    .temperature = 1};
    return gradient_run(&gpu, workspace, &job);
}
