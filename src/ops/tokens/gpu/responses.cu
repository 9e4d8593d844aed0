/* ops/tokens/gpu/responses.cu - checks offsets and mask before other kernels use them. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/tokens/gpu/responses_cuda.h"

/* True if offset i is valid. Then *size receives the size of the response before it. */
CUDA_INLINE bool napier_offset_is_good(const napier_cuda_responses *r, int64_t i, int64_t *size) {
    const int64_t at = cuda_index_at(r->offsets, i), before = i > 0 ? cuda_index_at(r->offsets, i - 1) : 0;
    const bool good =
        at >= before && at >= 0 && at <= r->tokens && (i > 0 || at == 0) && (i < r->count || at == r->tokens);
    *size = good && before >= 0 ? at - before : 0;
    return good;
}

CUDA_KERNEL(napier_responses_tally, napier_cuda_responses, NAPIER_RESPONSE_THREADS) {
    int64_t present = 0, longest = 0, counted = 0, bad = 0;
    for (int64_t i = cuda_thread(); i <= job.count; i += cuda_threads()) {
        int64_t size;
        if (!napier_offset_is_good(&job, i, &size)) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_OFFSETS, i);
            bad++;
            continue;
        }
        present += size > 0 || (job.count_empty && i > 0) ? 1 : 0;
        longest = size > longest ? size : longest;
    }
    for (int64_t t = cuda_thread(); job.mask != NULL && t < job.tokens; t += cuda_threads()) {
        counted += job.mask[t] != 0 ? 1 : 0;
    }
    present = cuda_warp_add_i64(present);
    longest = cuda_warp_max_i64(longest);
    counted = cuda_warp_add_i64(counted);
    bad = cuda_warp_add_i64(bad);
    if (cuda_lane() == 0) {
        cuda_atomic_add_i64(&job.tally->all.present, present);
        cuda_atomic_max_i64(&job.tally->all.longest, longest);
        cuda_atomic_add_i64(&job.tally->all.counted, counted);
        cuda_atomic_add_i64(&job.tally->bad, bad);
    }
    if (job.mask == NULL && cuda_thread() == 0) {
        cuda_atomic_add_i64(&job.tally->all.counted, job.tokens);
    }
}

CUDA_KERNEL(napier_responses_count, napier_cuda_count_job, NAPIER_RESPONSE_THREADS) {
    if (job.responses.tally->bad != 0) {
        return;
    }
    for (int64_t slot = cuda_warp(); slot < job.responses.slots; slot += cuda_warps()) {
        napier_cuda_tile tile;
        if (cuda_tile_of(&job.responses, slot, &tile)) {
            int32_t counted = 0;
            for (int i = cuda_lane(); i < tile.n; i += CUDA_WARP) {
                counted += cuda_counts(&job.responses, tile.first + i) ? 1 : 0;
            }
            counted = napier_group_add(CUDA_WARP, counted);
            if (cuda_lane() == 0) {
                job.counted[slot] = counted;
            }
        }
    }
}
