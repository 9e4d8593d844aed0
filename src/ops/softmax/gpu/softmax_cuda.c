/* ops/softmax/gpu/softmax_cuda.c - softmax, log_softmax and logsumexp on a GPU: checks the arguments, chooses among the
 * kernels of softmax.cu, launches them. Every choice gives the same bits. */
#include "ops/softmax/gpu/softmax_cuda.h"

#include <napier/cuda/softmax.h>

#include "core/gpu/launch.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/gpu/softmax_f64_cuda.h"

NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_8);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_16);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_32);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_64);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_128);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_256);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_512);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_1024);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_rows);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_sums);
NAPIER_CUDA_DTYPES_DECLARE(napier_softmax_write);
NAPIER_CUDA_KERNEL_DECLARE(napier_softmax_merge);

/* The kernels for short rows, by the columns they can take. */
typedef struct short_kernel {
    int most, threads_per_row;
    napier_cuda_kernel kernel[3];
} short_kernel;

static const short_kernel short_kernels[] = {
    {8, 1, NAPIER_CUDA_DTYPES(napier_softmax_8)},      {16, 2, NAPIER_CUDA_DTYPES(napier_softmax_16)},
    {32, 4, NAPIER_CUDA_DTYPES(napier_softmax_32)},    {64, 8, NAPIER_CUDA_DTYPES(napier_softmax_64)},
    {128, 16, NAPIER_CUDA_DTYPES(napier_softmax_128)}, {256, 32, NAPIER_CUDA_DTYPES(napier_softmax_256)},
    {512, 32, NAPIER_CUDA_DTYPES(napier_softmax_512)}, {NAPIER_TILE, 32, NAPIER_CUDA_DTYPES(napier_softmax_1024)},
};
static const napier_cuda_kernel rows_kernel[3] = NAPIER_CUDA_DTYPES(napier_softmax_rows);
static const napier_cuda_kernel sums_kernel[3] = NAPIER_CUDA_DTYPES(napier_softmax_sums);
static const napier_cuda_kernel write_kernel[3] = NAPIER_CUDA_DTYPES(napier_softmax_write);

enum {
    NAPIER_SHARE_BYTES = 100 << 10, /* with so much of a row in a block, two blocks fit a processor */
    NAPIER_SHORT_WAVES = 16,        /* blocks per processor that take short rows in turn */
    NAPIER_TILES_WAVES = 6          /* blocks per processor that share a line */
};

static int64_t line_size(const napier_softmax_cuda_job *j) { return j->whole ? j->x.rows * j->x.cols : j->x.cols; }
static int64_t line_tiles(const napier_softmax_cuda_job *j) { return napier_cuda_tiles(line_size(j), NAPIER_TILE); }

static napier_status napier_launch(const napier_softmax_cuda_call *c, napier_cuda_kernel kernel,
                                   napier_cuda_shape shape) {
    return napier_cuda_put(&c->gpu, kernel, shape, &c->job, sizeof c->job);
}

/* ---- Short rows -------------------------------------------------------------------------------------------------- */

static napier_status launch_short(const napier_softmax_cuda_call *c) {
    const short_kernel *k = short_kernels;
    while (k->most < c->job.x.cols) {
        k++;
    }
    const int64_t per_block = NAPIER_CUDA_THREADS / k->threads_per_row;
    const napier_cuda_shape shape =
        napier_cuda_loop(&c->gpu, c->job.lines, per_block, NAPIER_SHORT_WAVES, NAPIER_CUDA_THREADS);
    return napier_launch(c, k->kernel[napier_cuda_dtype_index(c->job.x.dtype)], shape);
}

/* ---- A block or a cluster for each row --------------------------------------------------------------------------- */

static int64_t kept_bytes(const napier_softmax_cuda_job *j, int64_t blocks) {
    return napier_cuda_tiles(line_tiles(j), blocks) * NAPIER_TILE * (int64_t)napier_dtype_size(j->x.dtype);
}

/* How many blocks take a row together: more than one if a block's share would otherwise fill its processor, or if there
 * are too few rows to fill the device. */
static int cluster_for(const napier_cuda_context *context, const napier_softmax_cuda_job *j) {
    int blocks = 1;
    while (context->clusters && blocks < NAPIER_CUDA_CLUSTER && line_tiles(j) >= 8 * blocks &&
           (kept_bytes(j, blocks) > NAPIER_SHARE_BYTES || j->lines * blocks < context->processors)) {
        blocks *= 2;
    }
    return blocks;
}

static napier_status launch_rows(napier_softmax_cuda_call *c, int cluster) {
    napier_softmax_cuda_job *const j = &c->job;
    const int64_t tiles = line_tiles(j), most = INT32_MAX / NAPIER_CUDA_CLUSTER;
    j->share = napier_cuda_tiles(tiles, cluster);
    const bool few = j->lines * cluster < 2 * (int64_t)c->gpu.context->processors; /* else two blocks take turns */
    const int64_t rounds = napier_cuda_tiles(j->share, few ? NAPIER_CUDA_ROW_WARPS : NAPIER_CUDA_ROW_WARPS / 2);
    const int64_t warps = rounds > 0 ? napier_cuda_tiles(j->share, rounds) : 1;
    const napier_cuda_shape shape = {
        .blocks = (j->lines < most ? j->lines : most) * cluster,
        .threads = (int)warps * 32,
        .shared_bytes = NAPIER_BLOCK_ROOM + (j->keep ? kept_bytes(j, cluster) : 0),
        .cluster = cluster,
    };
    return napier_launch(c, rows_kernel[napier_cuda_dtype_index(j->x.dtype)], shape);
}

/* ---- Many blocks for each line ----------------------------------------------------------------------------------- */

/* Chosen so that each of a block's warps has a tile, and that the blocks fill the device at most a few times. */
void napier_softmax_cuda_plan(const napier_cuda_context *context, napier_softmax_cuda_job *j) {
    const int64_t tiles = line_tiles(j), warps = NAPIER_CUDA_THREADS / 32;
    const int64_t wanted = napier_cuda_tiles(tiles, warps);
    const int64_t most = napier_cuda_tiles((int64_t)context->processors * NAPIER_TILES_WAVES, j->lines);
    const int64_t parts = wanted < most ? wanted : most;
    j->share = parts > 0 ? napier_cuda_tiles(tiles, parts) : 1;
    j->parts = tiles > 0 ? napier_cuda_tiles(tiles, j->share) : 1;
}

static napier_cuda_shape tiles_shape(int64_t blocks) {
    return (napier_cuda_shape){.blocks = blocks, .threads = NAPIER_CUDA_THREADS, .shared_bytes = NAPIER_BLOCK_ROOM};
}

napier_status napier_softmax_cuda_sums(const napier_softmax_cuda_call *c) {
    return napier_launch(c, sums_kernel[napier_cuda_dtype_index(c->job.x.dtype)],
                         tiles_shape(c->job.lines * c->job.parts));
}

napier_status napier_softmax_cuda_merge(const napier_softmax_cuda_call *c) {
    return napier_launch(c, NAPIER_CUDA_KERNEL(napier_softmax_merge), tiles_shape(c->job.lines));
}

napier_status napier_softmax_cuda_write(const napier_softmax_cuda_call *c) {
    return napier_launch(c, write_kernel[napier_cuda_dtype_index(c->job.x.dtype)],
                         tiles_shape(c->job.lines * c->job.parts));
}

static napier_status launch_tiles(const napier_softmax_cuda_call *c) {
    NAPIER_TRY(napier_softmax_cuda_sums(c));
    NAPIER_TRY(napier_softmax_cuda_merge(c));
    if (c->job.op != NAPIER_OP_LOGSUMEXP) {
        NAPIER_TRY(napier_softmax_cuda_write(c));
    }
    return NAPIER_OK;
}

/* ---- The choice -------------------------------------------------------------------------------------------------- */

typedef enum way_kind { NAPIER_WAY_SHORT, NAPIER_WAY_ROWS, NAPIER_WAY_TILES } way_kind;

static way_kind auto_way(const napier_cuda_context *context, napier_softmax_cuda_job *j, int *cluster) {
    *cluster = cluster_for(context, j);
    const bool enough_rows = j->lines * *cluster >= context->processors;
    if (j->op == NAPIER_OP_LOGSUMEXP) { /* reads only once in any case, so the device should be full */
        return enough_rows || line_tiles(j) <= 16 * *cluster ? NAPIER_WAY_ROWS : NAPIER_WAY_TILES;
    }
    j->keep = NAPIER_BLOCK_ROOM + kept_bytes(j, *cluster) <= context->shared_bytes;
    return j->keep ? NAPIER_WAY_ROWS : NAPIER_WAY_TILES;
}

static way_kind way_of(const napier_cuda_context *context, napier_algorithm algorithm, napier_softmax_cuda_job *j,
                       int *cluster) {
    *cluster = 1;
    if (!j->whole && j->x.cols <= NAPIER_TILE) {
        return NAPIER_WAY_SHORT;
    }
    switch (algorithm) {
    case NAPIER_ALGORITHM_SAFE: j->look_first = true; return NAPIER_WAY_ROWS;
    case NAPIER_ALGORITHM_ONLINE: return NAPIER_WAY_ROWS;
    case NAPIER_ALGORITHM_PARALLEL: return NAPIER_WAY_TILES;
    default: return auto_way(context, j, cluster);
    }
}

static napier_status run_call(napier_softmax_cuda_call *c, napier_cuda_workspace *workspace,
                              napier_algorithm algorithm) {
    napier_softmax_cuda_job *const j = &c->job;
    int cluster = 1;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const way_kind way = j->lines > 0 ? way_of(c->gpu.context, algorithm, j, &cluster) : NAPIER_WAY_SHORT;
    if (way == NAPIER_WAY_TILES) {
        napier_softmax_cuda_plan(c->gpu.context, j);
        j->sums = napier_cuda_take(&room, j->lines * j->parts, sizeof *j->sums);
        j->finals = napier_cuda_take(&room, j->op != NAPIER_OP_LOGSUMEXP ? j->lines : 0, sizeof *j->finals);
    }
    NAPIER_CUDA_READY(c->gpu.context, room);
    if (j->lines == 0) {
        return NAPIER_OK;
    }
    return way == NAPIER_WAY_SHORT  ? launch_short(c)
           : way == NAPIER_WAY_ROWS ? launch_rows(c, cluster)
                                    : launch_tiles(c);
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

static napier_softmax_cuda_call call_of(napier_cuda_call gpu, napier_softmax_op op, napier_const_matrix x,
                                        napier_matrix y, const napier_softmax_options *o) {
    return (napier_softmax_cuda_call){.gpu = gpu,
                                      .job = {.op = op,
                                              .x = x,
                                              .y = y,
                                              .temperature = napier_float_of(o->temperature),
                                              .masked_rows = o->masked_rows,
                                              .lines = op != NAPIER_OP_LOGSUMEXP && x.cols == 0 ? 0 : x.rows,
                                              .parts = 1}};
}

/* All elements as one line; as one row, if they follow one another. */
static void take_whole(napier_softmax_cuda_job *j) {
    j->whole = true;
    j->lines = 1;
    if (napier_is_one_run(j->x)) {
        j->x = napier_one_row(j->x);
        j->whole = false;
    }
}

static napier_status elementwise(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_softmax_op op, const char *name,
                                 napier_const_matrix logits, napier_matrix result,
                                 const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_elementwise_arguments(context->host, name, logits, result, options, &o));
    const napier_cuda_call gpu = {context, stream, name};
    if (napier_compute_dtype(logits.dtype, result.dtype) == NAPIER_F64) {
        napier_f64_cuda_job job = {
            .result = op == NAPIER_OP_SOFTMAX ? NAPIER_F64_SOFTMAX : NAPIER_F64_LOG_SOFTMAX,
            .x = logits,
            .y = result,
            .temperature = o.temperature,
            .masked_rows = o.masked_rows,
        };
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_softmax_cuda_call call = call_of(gpu, op, logits, result, &o);
    return run_call(&call, workspace, o.algorithm);
}

napier_status napier_cuda_softmax(napier_cuda_context *context, struct CUstream_st *stream,
                                  napier_cuda_workspace *workspace, napier_const_matrix logits, napier_matrix probs,
                                  const napier_softmax_options *options) {
    return elementwise(context, stream, workspace, NAPIER_OP_SOFTMAX, "probs", logits, probs, options);
}

napier_status napier_cuda_log_softmax(napier_cuda_context *context, struct CUstream_st *stream,
                                      napier_cuda_workspace *workspace, napier_const_matrix logits,
                                      napier_matrix logprobs, const napier_softmax_options *options) {
    return elementwise(context, stream, workspace, NAPIER_OP_LOG_SOFTMAX, "logprobs", logits, logprobs, options);
}

static napier_status napier_cuda_lse(napier_cuda_context *context, struct CUstream_st *stream,
                                     napier_cuda_workspace *workspace, bool whole, napier_const_matrix logits,
                                     napier_vector lse, const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_logsumexp_arguments(context->host, logits, lse, whole ? 1 : logits.rows, options, &o));
    const napier_cuda_call gpu = {context, stream, "lse"};
    if (napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = NAPIER_F64_LSE,
                                   .whole = whole,
                                   .x = logits,
                                   .y = napier_column(lse),
                                   .temperature = o.temperature};
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_softmax_cuda_call call = call_of(gpu, NAPIER_OP_LOGSUMEXP, logits, napier_column(lse), &o);
    if (whole) {
        take_whole(&call.job);
    }
    return run_call(&call, workspace, o.algorithm);
}

napier_status napier_cuda_logsumexp(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, napier_const_matrix logits, napier_vector lse,
                                    const napier_softmax_options *options) {
    return napier_cuda_lse(context, stream, workspace, false, logits, lse, options);
}

napier_status napier_cuda_logsumexp_all(napier_cuda_context *context, struct CUstream_st *stream,
                                        napier_cuda_workspace *workspace, napier_const_matrix logits, napier_vector lse,
                                        const napier_softmax_options *options) {
    return napier_cuda_lse(context, stream, workspace, true, logits, lse, options);
}

/* ---- The gradient of logsumexp: softmax times a factor ----------------------------------------------------------- */

static napier_status lse_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                  napier_cuda_workspace *workspace, bool whole, napier_const_matrix logits,
                                  napier_const_vector grad_lse, napier_matrix grad_logits,
                                  const napier_softmax_options *options) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, grad_lse.dtype, grad_logits.dtype);
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_logsumexp_gradient_arguments(context->host, logits, grad_lse, whole ? 1 : logits.rows,
                                                   grad_logits, options, compute, &o));
    const napier_cuda_call gpu = {context, stream, "grad_logits"};
    if (compute == NAPIER_F64) {
        napier_f64_cuda_job job = {.result = NAPIER_F64_LSE_GRADIENT,
                                   .whole = whole,
                                   .x = logits,
                                   .y = grad_logits,
                                   .temperature = o.temperature,
                                   .factor = grad_lse};
        return napier_f64_cuda_run(&gpu, workspace, &job);
    }
    napier_softmax_cuda_call call = call_of(gpu, NAPIER_OP_SOFTMAX, logits, grad_logits, &o);
    call.job.factor = grad_lse;
    if (whole && call.job.lines > 0) {
        call.job.whole = true;
        call.job.lines = 1;
    }
    return run_call(&call, workspace, NAPIER_ALGORITHM_AUTO);
}

napier_status napier_cuda_logsumexp_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_matrix logits,
                                             napier_const_vector grad_lse, napier_matrix grad_logits,
                                             const napier_softmax_options *options) {
    return lse_backward(context, stream, workspace, false, logits, grad_lse, grad_logits, options);
}

napier_status napier_cuda_logsumexp_all_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                 napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                 napier_const_vector grad_lse, napier_matrix grad_logits,
                                                 const napier_softmax_options *options) {
    return lse_backward(context, stream, workspace, true, logits, grad_lse, grad_logits, options);
}
