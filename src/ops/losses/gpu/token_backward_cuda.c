/* ops/losses/gpu/token_backward_cuda.c - the gradient of logits on a GPU: checks, workspace, launches. */
#include <napier/cuda/rl.h>

#include "ops/tokens/token_backward.h"
#include "ops/losses/gpu/token_backward_cuda.h"

NAPIER_CUDA_DTYPES_DECLARE(napier_token_gradients);
NAPIER_CUDA_DTYPES_DECLARE(napier_token_any_gradients);

/* The maximum that a block keeps in shared memory. Three such blocks fit on a multiprocessor, so one sums while another
 * waits. */
enum { NAPIER_BACK_KEEP = 72 << 10 };

/* The number of blocks per row: the lowest power of two with which the blocks can keep the row. */
static int back_cluster(const napier_cuda_context *context, int64_t tiles, int64_t tile_bytes) {
    int blocks = 1;
    while (context->clusters && blocks < NAPIER_BACK_CLUSTER &&
           (tiles + blocks - 1) / blocks * tile_bytes > NAPIER_BACK_KEEP) {
        blocks *= 2;
    }
    return blocks;
}

static int64_t back_tile_bytes(napier_const_matrix logits) {
    return NAPIER_TILE * (int64_t)napier_dtype_size(logits.dtype);
}

napier_cuda_back_job napier_cuda_back_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_token_call *call, napier_const_matrix logits,
                                         napier_matrix grad_logits) {
    napier_cuda_back_job job = {.token = napier_cuda_token_of(context, room, call, logits), .y = grad_logits};
    const int64_t bytes = back_tile_bytes(logits), count = call->chosen ? call->per_row : 0;
    const int blocks = back_cluster(context, job.token.tiles, bytes);
    job.share = (job.token.tiles + blocks - 1) / blocks;
    job.keep = job.share <= (context->shared_bytes - NAPIER_BACK_ROOM) / bytes;
    const bool fits = count == 0 || call->rows <= INT64_MAX / 256 / count;
    const int64_t ids = fits ? call->rows * NAPIER_BACK_CLUSTER * count : -1; /* the same on every device */
    job.doubles = napier_cuda_take(room, ids, 2 * sizeof *job.doubles);
    job.chosen = napier_cuda_take(room, ids, sizeof *job.chosen);
    return job;
}

static napier_cuda_kernel back_kernel(const napier_token_call *call, napier_dtype dtype) {
    static const napier_cuda_kernel plain[3] = NAPIER_CUDA_DTYPES(napier_token_gradients);
    static const napier_cuda_kernel any[3] = NAPIER_CUDA_DTYPES(napier_token_any_gradients);
    const napier_token_rules *r = &call->rules;
    const bool is_plain = r->softcap == 0.0f && r->temperature == 1.0f && !r->keep;
    return (is_plain ? plain : any)[napier_cuda_dtype_index(dtype)];
}

napier_status napier_cuda_back_run(const napier_cuda_call *gpu, const napier_cuda_back_job *job) {
    const int64_t bytes = back_tile_bytes(job->token.x), share = job->share;
    const int blocks = back_cluster(gpu->context, job->token.tiles, bytes);
    const int warps = share < NAPIER_BACK_THREADS / 32 ? (int)share : NAPIER_BACK_THREADS / 32;
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(gpu->context, job->token.call.rows, 1, 4) * blocks,
                                     .threads = 32 * (warps > 0 ? warps : 1),
                                     .shared_bytes = NAPIER_BACK_ROOM + (job->keep ? share * bytes : 0),
                                     .cluster = blocks};
    return napier_cuda_put(gpu, back_kernel(&job->token.call, job->token.x.dtype), shape, job, sizeof *job);
}

napier_status napier_cuda_token_logprobs_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                  napier_cuda_workspace *workspace, napier_const_matrix logits,
                                                  napier_indices ids, const napier_token_options *options,
                                                  const napier_token_gradients *gradients, napier_matrix grad_logits) {
    napier_token_call call;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(
        napier_token_back_check(context->host, NAPIER_ON_DEVICE, logits, ids, options, gradients, grad_logits, &call));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_back_job job = napier_cuda_back_of(context, &room, &call, logits, grad_logits);
    NAPIER_CUDA_READY(context, room);
    if (logits.rows == 0 || logits.cols == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call gpu = {context, stream, "token_logprobs_backward"};
    return napier_cuda_back_run(&gpu, &job);
}
