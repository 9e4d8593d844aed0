/* tests/cuda/wave.cu - core/gpu/kernel_wave.h on wavefronts of 64 lanes, which the emulated device plays: a thread sees
 * nothing of the other half but its own number turned round. */
#include "probe.h"

#include "core/gpu/kernel.h"

CUDA_INLINE uint32_t napier_wave_place(void) { return threadIdx.x % 64; }
CUDA_INLINE int32_t napier_wave_read(uint32_t place, int32_t v) {
    const int32_t got = cuda_shuffle_i32(v, (int)(place % CUDA_WARP));
    return place / CUDA_WARP == napier_wave_place() / CUDA_WARP ? got : ~v;
}
CUDA_INLINE uint64_t napier_wave_ballot(bool condition) {
    const uint64_t bits = cuda_ballot(condition);
    return napier_wave_place() < CUDA_WARP ? bits | ~bits << CUDA_WARP : bits << CUDA_WARP | (~bits & UINT32_MAX);
}

#include "core/gpu/kernel_wave.h"

/* Adds to *total the words that differ from those of a warp. Every second warp leaves early, so halves diverge. */
CUDA_KERNEL(probe_wave, probe_job, 256) {
    const int i = (int)threadIdx.x, lane = i % CUDA_WARP;
    const float x = job.x[i];
    const uint64_t wide = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15;
    int wrong = 0;
    for (int step = 1; step < CUDA_WARP; step++) {
        if (i / CUDA_WARP % 2 == 1 && step > 7) {
            break;
        }
        const int other = (lane * 5 + step) % CUDA_WARP;
        wrong += napier_wave_shuffle_f32(x, other) != cuda_shuffle_f32(x, other);
        wrong += napier_wave_shuffle_xor_f32(x, step) != cuda_shuffle_xor_f32(x, step);
        wrong += napier_wave_shuffle_i32(i, other) != cuda_shuffle_i32(i, other);
        wrong += napier_wave_shuffle_xor_i32(i, step) != cuda_shuffle_xor_i32(i, step);
        wrong += napier_wave_shuffle_u64(wide, other) != cuda_shuffle_u64(wide, other);
        wrong += napier_wave_shuffle_xor_u64(wide, step) != cuda_shuffle_xor_u64(wide, step);
        wrong += napier_wave_bits(i % step == 0) != cuda_ballot(i % step == 0);
        wrong += napier_wave_add_u32((uint32_t)wide) != cuda_add_u32((uint32_t)wide);
        wrong += napier_wave_max_u32((uint32_t)wide) != cuda_max_u32((uint32_t)wide);
    }
    (void)cuda_atomic_add_i64(job.total, wrong);
}
