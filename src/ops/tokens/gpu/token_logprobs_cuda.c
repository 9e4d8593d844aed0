/* ops/tokens/gpu/token_logprobs_cuda.c - log-probabilities of tokens on a GPU: checks, workspace, launches. */
#include <napier/cuda/rl.h>

#include "core/base/view.h"
#include "ops/tokens/gpu/token_cuda.h"

NAPIER_CUDA_DTYPES_DECLARE(napier_token_tiles);
NAPIER_CUDA_DTYPES_DECLARE(napier_token_entropies);
NAPIER_CUDA_DTYPES_DECLARE(napier_token_tempered);
NAPIER_CUDA_DTYPES_DECLARE(napier_token_any_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_table_f16, napier_token_table_bf16, napier_token_table_entropies_f16,
                           napier_token_table_entropies_bf16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_rows_finish, napier_token_rows_top);

enum {
    NAPIER_TOKEN_WAVES = 4,        /* blocks per multiprocessor, limited by their registers */
    NAPIER_TOKEN_TABLE_TILES = 256 /* per multiprocessor: from here on a table saves several times what it costs */
};

napier_cuda_token_job napier_cuda_token_of(napier_cuda_context *context, napier_cuda_room *room,
                                           const napier_token_call *call, napier_const_matrix logits) {
    napier_cuda_token_job job = {.call = *call, .x = logits, .faults = context->faults};
    job.tiles = napier_token_tiles(call->cols);
    const bool fits = job.tiles == 0 || call->rows <= INT64_MAX / 64 / job.tiles;
    const int64_t count = fits ? call->rows * job.tiles : -1;
    job.slots = napier_cuda_take(room, count, sizeof *job.slots);
    job.totals = napier_cuda_take(room, call->wants.total ? count : 0, sizeof *job.totals);
    job.totals = call->wants.total ? job.totals : NULL;
    return job;
}

/* True if the call wants more than sums of logits as they are. */
static bool token_has_rules(const napier_token_call *call) {
    const napier_token_rules *r = &call->rules;
    return r->softcap != 0.0f || r->keep || call->wants.total || call->wants.ranks > 0;
}

/* Tiles of 16 bits by a table of exp; NULL if there are too few, or the device has too little shared memory. */
static napier_cuda_kernel token_table_kernel(const napier_cuda_context *context, const napier_cuda_token_job *job) {
    const napier_token_call *const call = &job->call;
    const bool many = call->rows * job->tiles >= (int64_t)NAPIER_TOKEN_TABLE_TILES * context->processors;
    const bool able = context->shared_bytes >= napier_token_table_end(job->x.dtype) * (int64_t)sizeof(float);
    if (job->x.dtype == NAPIER_F32 || token_has_rules(call) || call->rules.temperature != 1.0f || !many || !able) {
        return (napier_cuda_kernel)0;
    }
    if (job->x.dtype == NAPIER_BF16) {
        return call->wants.entropy ? NAPIER_CUDA_KERNEL(napier_token_table_entropies_bf16)
                                   : NAPIER_CUDA_KERNEL(napier_token_table_bf16);
    }
    return call->wants.entropy ? NAPIER_CUDA_KERNEL(napier_token_table_entropies_f16)
                               : NAPIER_CUDA_KERNEL(napier_token_table_f16);
}

/* The fastest of the other kernels that compute what the call wants. */
static napier_cuda_kernel token_kernel(const napier_token_call *call, napier_dtype dtype) {
    static const napier_cuda_kernel kernels[4][3] = {
        NAPIER_CUDA_DTYPES(napier_token_tiles), NAPIER_CUDA_DTYPES(napier_token_entropies),
        NAPIER_CUDA_DTYPES(napier_token_tempered), NAPIER_CUDA_DTYPES(napier_token_any_tiles)};
    const int kind = token_has_rules(call) ? 3 : call->rules.temperature != 1.0f ? 2 : call->wants.entropy ? 1 : 0;
    return kernels[kind][napier_cuda_dtype_index(dtype)];
}

static napier_status token_launch(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t warps,
                                  const napier_cuda_token_job *job) {
    napier_cuda_shape shape =
        napier_cuda_loop(gpu, warps, NAPIER_TOKEN_WARPS, NAPIER_TOKEN_WAVES, NAPIER_TOKEN_THREADS);
    shape.shared_bytes = NAPIER_TOKEN_WARPS * (int64_t)sizeof(napier_cuda_token_room);
    return napier_cuda_put(gpu, kernel, shape, job, sizeof *job);
}

napier_status napier_cuda_token_sums(const napier_cuda_call *gpu, const napier_cuda_token_job *job) {
    const napier_cuda_kernel by_table = token_table_kernel(gpu->context, job);
    if (by_table) {
        const napier_cuda_shape shape = {.blocks = gpu->context->processors,
                                         .threads = NAPIER_TOKEN_TABLE_THREADS,
                                         .shared_bytes = napier_token_table_end(job->x.dtype) * (int64_t)sizeof(float)};
        return napier_cuda_put(gpu, by_table, shape, job, sizeof *job);
    }
    return token_launch(gpu, token_kernel(&job->call, job->x.dtype), job->call.rows * job->tiles, job);
}

napier_status napier_cuda_token_run(const napier_cuda_call *gpu, const napier_cuda_token_job *job) {
    const napier_token_call *call = &job->call;
    if (call->wants.ranks > 0) {
        NAPIER_TRY(napier_cuda_clear(gpu, call->results.rank, (size_t)(call->rows * call->per_row) * sizeof(int64_t)));
    }
    NAPIER_TRY(napier_cuda_token_sums(gpu, job));
    return token_launch(gpu, NAPIER_CUDA_KERNEL(napier_token_rows_finish), call->rows, job);
}

static napier_status token_top(const napier_cuda_call *gpu, const napier_cuda_token_job *job) {
    napier_cuda_shape shape = napier_cuda_loop(gpu, job->call.rows, 1, NAPIER_TOKEN_WAVES, NAPIER_TOP_THREADS);
    shape.shared_bytes = sizeof(napier_cuda_top_room);
    return NAPIER_CUDA_PUT(gpu, napier_token_rows_top, shape, job);
}

napier_status napier_cuda_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix logits,
                                         napier_indices ids, const napier_token_options *options,
                                         const napier_token_results *results) {
    napier_token_call call;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_token_logprobs_check(context->host, NAPIER_ON_DEVICE, logits, ids, options, results, &call));
    if (call.wants.top_k > 0 && logits.cols > INT32_MAX) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "results: top_k of 2^31 columns or more");
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_token_job job = napier_cuda_token_of(context, &room, &call, logits);
    NAPIER_CUDA_READY(context, room);
    if (logits.rows == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call gpu = {context, stream, "token_logprobs"};
    NAPIER_TRY(napier_cuda_token_run(&gpu, &job));
    return call.wants.top_k > 0 ? token_top(&gpu, &job) : NAPIER_OK;
}
