/* core/gpu/kernel_wave.h - warps of 32 threads on wavefronts of 32 or 64 lanes (OpenCL's sub-groups), as AMD's processors have them.
 *
 * Where a wavefront has 64 lanes, each half of it is a warp, and the two may be in different places of a kernel. So lanes are
 * counted from the half's first one, and nothing is read from the other half. kernel.h comes first, and the includer defines:
 *
 *   napier_wave_place()             a thread's place in its wavefront
 *   napier_wave_read(place, value)  the value that the thread at `place` gives; it must be in the same half
 *   napier_wave_ballot(condition)   a bit for each place; those of the other half may be anything */
#ifndef NAPIER_CORE_GPU_KERNEL_WAVE_H
#define NAPIER_CORE_GPU_KERNEL_WAVE_H

CUDA_INLINE uint32_t napier_wave_first(void) { return napier_wave_place() & ~31u; }

CUDA_INLINE int32_t napier_wave_shuffle_i32(int32_t v, int lane) {
    return napier_wave_read(napier_wave_first() | ((uint32_t)lane & 31u), v);
}
CUDA_INLINE int32_t napier_wave_shuffle_xor_i32(int32_t v, int lanes) {
    return napier_wave_read(napier_wave_place() ^ ((uint32_t)lanes & 31u), v);
}

#define NAPIER_WAVE_SHUFFLES(name)                                                             \
    CUDA_INLINE float name##_f32(float v, int lane) {                                          \
        union {                                                                                \
            float value;                                                                       \
            int32_t bits;                                                                      \
        } x = {v};                                                                             \
        x.bits = name##_i32(x.bits, lane);                                                     \
        return x.value;                                                                        \
    }                                                                                          \
    CUDA_INLINE uint64_t name##_u64(uint64_t v, int lane) {                                    \
        const uint32_t low = (uint32_t)name##_i32((int32_t)(uint32_t)v, lane);                 \
        return low | (uint64_t)(uint32_t)name##_i32((int32_t)(uint32_t)(v >> 32), lane) << 32; \
    }

NAPIER_WAVE_SHUFFLES(napier_wave_shuffle)
NAPIER_WAVE_SHUFFLES(napier_wave_shuffle_xor)

CUDA_INLINE uint32_t napier_wave_bits(bool condition) {
    return (uint32_t)(napier_wave_ballot(condition) >> napier_wave_first());
}
CUDA_INLINE uint32_t napier_wave_add_u32(uint32_t v) {
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        v += (uint32_t)napier_wave_shuffle_xor_i32((int32_t)v, lanes);
    }
    return v;
}
CUDA_INLINE uint32_t napier_wave_max_u32(uint32_t v) {
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        const uint32_t other = (uint32_t)napier_wave_shuffle_xor_i32((int32_t)v, lanes);
        v = other > v ? other : v;
    }
    return v;
}

#endif
