/* ops/tokens/gpu/responses_cuda.c - see responses_launch.h. */
#include "ops/tokens/gpu/responses_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_responses_tally);

enum { NAPIER_RESPONSE_WAVES = 8 };

napier_cuda_responses napier_cuda_responses_of(napier_cuda_context *context, napier_cuda_room *room,
                                               napier_indices offsets, int64_t tokens, const uint8_t *mask) {
    napier_cuda_responses r = {.offsets = offsets, .mask = mask, .count = offsets.size - 1, .tokens = tokens};
    r.slots = tokens / NAPIER_TILE + r.count;
    r.tally = napier_cuda_take(room, 1, sizeof *r.tally);
    r.faults = context->faults;
    return r;
}

napier_status napier_cuda_responses_look(napier_cuda_context *context, struct CUstream_st *stream,
                                         const napier_cuda_responses *r) {
    const int64_t most = r->mask && r->tokens > r->count ? r->tokens : r->count + 1;
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, most, NAPIER_RESPONSE_THREADS, 4),
                                     .threads = NAPIER_RESPONSE_THREADS};
    const napier_status status = napier_cuda_fill(context, stream, r->tally, 0, sizeof *r->tally);
    return status ? status
                  : napier_cuda_launch(context, stream, "offsets", NAPIER_CUDA_KERNEL(napier_responses_tally), &shape,
                                       r, sizeof *r);
}

napier_status napier_cuda_warps(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                napier_cuda_kernel kernel, int64_t count, const void *job, size_t job_size) {
    const int64_t blocks = napier_cuda_blocks(context, count, NAPIER_RESPONSE_WARPS, NAPIER_RESPONSE_WAVES);
    const napier_cuda_shape shape = {.blocks = blocks, .threads = NAPIER_RESPONSE_THREADS};
    return napier_cuda_launch(context, stream, what, kernel, &shape, job, job_size);
}
