/* ops/tokens/gpu/token_logprobs_cuda.c - log-probabilities of tokens on a GPU: checks, workspace, launches. */
#include <napier/cuda/rl.h>

#include "core/base/view.h"
#include "ops/tokens/gpu/token_launch.h"
#include "ops/tokens/gpu/token_top_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_token_tiles_f32);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_tiles_f16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_tiles_bf16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_entropies_f32);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_entropies_f16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_entropies_bf16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_tempered_f32);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_any_tiles_f32);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_tempered_f16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_any_tiles_f16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_tempered_bf16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_any_tiles_bf16);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_rows_finish);
NAPIER_CUDA_KERNEL_DECLARE(napier_token_rows_top);

enum { NAPIER_TOKEN_WAVES = 4 }; /* blocks per multiprocessor, limited by their registers */

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

/* The index of the kernel among those of a dtype, of which the first is the fastest. */
static int napier_cuda_token_kind(const napier_token_call *call) {
    const napier_token_rules *r = &call->rules;
    const bool any = r->softcap != 0.0f || r->keep || call->wants.total || call->wants.ranks > 0;
    return any ? 3 : r->temperature != 1.0f ? 2 : call->wants.entropy ? 1 : 0;
}

static napier_cuda_kernel napier_cuda_token_kernel(const napier_token_call *call, napier_dtype dtype) {
    enum { KINDS = 4 };
    const napier_cuda_kernel f32[KINDS] = {
        NAPIER_CUDA_KERNEL(napier_token_tiles_f32), NAPIER_CUDA_KERNEL(napier_token_entropies_f32),
        NAPIER_CUDA_KERNEL(napier_token_tempered_f32), NAPIER_CUDA_KERNEL(napier_token_any_tiles_f32)};
    const napier_cuda_kernel f16[KINDS] = {
        NAPIER_CUDA_KERNEL(napier_token_tiles_f16), NAPIER_CUDA_KERNEL(napier_token_entropies_f16),
        NAPIER_CUDA_KERNEL(napier_token_tempered_f16), NAPIER_CUDA_KERNEL(napier_token_any_tiles_f16)};
    const napier_cuda_kernel bf16[KINDS] = {
        NAPIER_CUDA_KERNEL(napier_token_tiles_bf16), NAPIER_CUDA_KERNEL(napier_token_entropies_bf16),
        NAPIER_CUDA_KERNEL(napier_token_tempered_bf16), NAPIER_CUDA_KERNEL(napier_token_any_tiles_bf16)};
    const int kind = napier_cuda_token_kind(call);
    return dtype == NAPIER_F32 ? f32[kind] : dtype == NAPIER_F16 ? f16[kind] : bf16[kind];
}

static napier_status napier_cuda_token_launch(napier_cuda_context *context, struct CUstream_st *stream,
                                              const char *what, napier_cuda_kernel kernel, int64_t warps,
                                              const napier_cuda_token_job *job) {
    const napier_cuda_shape shape = {.blocks =
                                         napier_cuda_blocks(context, warps, NAPIER_TOKEN_WARPS, NAPIER_TOKEN_WAVES),
                                     .threads = NAPIER_TOKEN_THREADS,
                                     .shared_bytes = NAPIER_TOKEN_WARPS * (int64_t)sizeof(napier_cuda_token_room)};
    return napier_cuda_launch(context, stream, what, kernel, &shape, job, sizeof *job);
}

napier_status napier_cuda_token_sums(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                     const napier_cuda_token_job *job) {
    const napier_token_call *call = &job->call;
    return napier_cuda_token_launch(context, stream, what, napier_cuda_token_kernel(call, job->x.dtype),
                                    call->rows * job->tiles, job);
}

napier_status napier_cuda_token_run(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                    const napier_cuda_token_job *job) {
    const napier_token_call *call = &job->call;
    napier_status status = NAPIER_OK;
    if (call->wants.ranks > 0) {
        status = napier_cuda_fill(context, stream, call->results.rank, 0,
                                  (size_t)(call->rows * call->per_row) * sizeof(int64_t));
    }
    if (!status)
        status = napier_cuda_token_sums(context, stream, what, job);
    if (!status) {
        status = napier_cuda_token_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_token_rows_finish),
                                          call->rows, job);
    }
    return status;
}

static napier_status napier_cuda_token_top(napier_cuda_context *context, struct CUstream_st *stream,
                                           const napier_cuda_token_job *job) {
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, job->call.rows, 1, NAPIER_TOKEN_WAVES),
                                     .threads = NAPIER_TOP_THREADS,
                                     .shared_bytes = sizeof(napier_cuda_top_room)};
    return napier_cuda_launch(context, stream, "token_logprobs", NAPIER_CUDA_KERNEL(napier_token_rows_top), &shape, job,
                              sizeof *job);
}

napier_status napier_cuda_token_logprobs(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix logits,
                                         napier_indices ids, const napier_token_options *options,
                                         const napier_token_results *results) {
    napier_token_call call;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_token_logprobs_check(context->host, NAPIER_ON_DEVICE, logits, ids, options, results, &call);
    }
    if (!status && call.wants.top_k > 0 && logits.cols > INT32_MAX)
        status = napier_fail(context->host, NAPIER_UNSUPPORTED, "results: top_k of 2^31 columns or more");
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_token_job job = napier_cuda_token_of(context, &room, &call, logits);
    if (!napier_cuda_room_ready(context, &room, &status) || logits.rows == 0) {
        return status;
    }
    status = napier_cuda_token_run(context, stream, "token_logprobs", &job);
    if (!status && call.wants.top_k > 0)
        status = napier_cuda_token_top(context, stream, &job);
    return status;
}
