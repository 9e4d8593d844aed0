/* ops/tokens/gpu/responses_cuda.c - see responses_cuda.h. */
#include "ops/tokens/gpu/responses_cuda.h"

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

napier_status napier_cuda_responses_look(const napier_cuda_call *gpu, const napier_cuda_responses *r) {
    const int64_t most = r->mask && r->tokens > r->count ? r->tokens : r->count + 1;
    NAPIER_TRY(napier_cuda_clear(gpu, r->tally, sizeof *r->tally));
    return NAPIER_CUDA_PUT(gpu, napier_responses_tally,
                           napier_cuda_loop(gpu, most, NAPIER_RESPONSE_THREADS, 4, NAPIER_RESPONSE_THREADS), r);
}

napier_status napier_cuda_warps(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t count, const void *job,
                                size_t job_size) {
    return napier_cuda_put(
        gpu, kernel,
        napier_cuda_loop(gpu, count, NAPIER_RESPONSE_WARPS, NAPIER_RESPONSE_WAVES, NAPIER_RESPONSE_THREADS), job,
        job_size);
}
