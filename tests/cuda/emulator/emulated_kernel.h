/* tests/cuda/emulator/emulated_kernel.h - core/gpu/kernel.h's names for the emulated device: a thread of a block is a
 * coroutine, which runs until it waits for others. One processor thread runs them all, so an atomic operation is a
 * plain one. */
#ifndef NAPIER_TESTS_EMULATED_KERNEL_H
#define NAPIER_TESTS_EMULATED_KERNEL_H

#include <stddef.h>

typedef struct emulated_dim {
    uint32_t x, y, z;
} emulated_dim;

/* What a thread knows of itself; the emulator puts the running thread's here. */
typedef struct emulated_self {
    emulated_dim thread, block, block_size, grid_size;
    unsigned char *shared;
    int cluster_rank, cluster_size;
} emulated_self;

extern emulated_self *emulated;

#define threadIdx (emulated->thread)
#define blockIdx (emulated->block)
#define blockDim (emulated->block_size)
#define gridDim (emulated->grid_size)

#define CUDA_INLINE static inline __attribute__((unused))

/* Host code knows a kernel as `void name(void)`; the emulator calls it for each thread, with the job. */
#define CUDA_KERNEL(name, type, threads)        \
    static void name##_thread(const type job);  \
    void name(const void *job);                 \
    void name(const void *job) {                \
        emulated_check_threads(#name, threads); \
        name##_thread(*(const type *)job);      \
    }                                           \
    static void name##_thread(const type job)

#define CUDA_SHARED(type, name) type *const name = (type *)emulated->shared

/* ---- Waiting for others ------------------------------------------------------------------------------------------ */

void emulated_check_threads(const char *kernel, int most);
void emulated_sync_block(void);
void emulated_sync_cluster(void);
void *emulated_cluster_shared(void *p, int rank);

/* All lanes of a warp give `size` <= 64 bytes and say what they are doing; each then sees those of lane i at
 * (char *)result + 64 * i, until its next exchange. */
const void *emulated_exchange(const char *what, const void *mine, size_t size);

#define __syncthreads() emulated_sync_block()
#define __syncwarp() ((void)emulated_exchange("__syncwarp", "", 0))
#define cuda_cluster_sync() emulated_sync_cluster()
#define cuda_cluster_size() (emulated->cluster_size)
#define cuda_cluster_rank() (emulated->cluster_rank)
#define cuda_cluster_shared(p, rank) emulated_cluster_shared(p, rank)

CUDA_INLINE int emulated_lane(void) { return (int)(threadIdx.x % 32); }

#define EMULATED_SHUFFLES(name, type)                                           \
    CUDA_INLINE type cuda_shuffle_xor_##name(type v, int lanes) {               \
        type got;                                                               \
        const char *const all = emulated_exchange("shuffle_xor", &v, sizeof v); \
        memcpy(&got, all + 64 * (emulated_lane() ^ lanes), sizeof got);         \
        return got;                                                             \
    }                                                                           \
    CUDA_INLINE type cuda_shuffle_##name(type v, int lane) {                    \
        type got;                                                               \
        const char *const all = emulated_exchange("shuffle", &v, sizeof v);     \
        memcpy(&got, all + 64 * (lane & 31), sizeof got);                       \
        return got;                                                             \
    }

EMULATED_SHUFFLES(f32, float)
EMULATED_SHUFFLES(i32, int32_t)
EMULATED_SHUFFLES(u64, uint64_t)

CUDA_INLINE uint32_t cuda_ballot(bool condition) {
    const unsigned char mine = condition;
    const unsigned char *const all = emulated_exchange("ballot", &mine, 1);
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) {
        bits |= (uint32_t)all[64 * i] << i;
    }
    return bits;
}

CUDA_INLINE uint32_t cuda_add_u32(uint32_t v) {
    const char *const all = emulated_exchange("add", &v, sizeof v);
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t other;
        memcpy(&other, all + 64 * i, sizeof other);
        sum += other;
    }
    return sum;
}

CUDA_INLINE uint32_t cuda_max_u32(uint32_t v) {
    const char *const all = emulated_exchange("max", &v, sizeof v);
    uint32_t most = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t other;
        memcpy(&other, all + 64 * i, sizeof other);
        most = other > most ? other : most;
    }
    return most;
}

/* ---- Atomic operations -------------------------------------------------------------------------------------------- */

#define EMULATED_ATOMICS(name, type, wide)                     \
    CUDA_INLINE type cuda_atomic_add_##name(type *p, type v) { \
        const type old = *p;                                   \
        *p = (type)((wide)old + (wide)v);                      \
        return old;                                            \
    }                                                          \
    CUDA_INLINE type cuda_atomic_min_##name(type *p, type v) { \
        const type old = *p;                                   \
        *p = v < old ? v : old;                                \
        return old;                                            \
    }                                                          \
    CUDA_INLINE type cuda_atomic_max_##name(type *p, type v) { \
        const type old = *p;                                   \
        *p = v > old ? v : old;                                \
        return old;                                            \
    }

EMULATED_ATOMICS(i32, int32_t, uint32_t)
EMULATED_ATOMICS(i64, int64_t, uint64_t)

CUDA_INLINE int32_t cuda_atomic_swap_i32(int32_t *p, int32_t if_this, int32_t then_this) {
    const int32_t old = *p;
    *p = old == if_this ? then_this : old;
    return old;
}
CUDA_INLINE void cuda_fence(void) {}

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

void emulated_check_16(const char *what, const void *p);

CUDA_INLINE void cuda_load_16(const void *p, void *out) {
    emulated_check_16("cuda_load_16: not on 16 bytes", p);
    memcpy(out, p, 16);
}
CUDA_INLINE void cuda_store_16(void *p, const void *in) {
    emulated_check_16("cuda_store_16: not on 16 bytes", p);
    memcpy(p, in, 16);
}

/* Copies happen when they are waited for, as late as they may. */
void cuda_copy_async_16(void *shared, const void *global);
void cuda_copy_async_part(void *shared, const void *global, int bytes);
void cuda_copy_commit(void);
void cuda_copy_wait(int groups);

/* ---- Tensor cores: sums in double, rounded once ---------------------------------------------------------------------- */

void cuda_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]);
void cuda_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]);
void cuda_ldmatrix_x4(uint32_t out[4], const void *row);
void cuda_ldmatrix_x4_turned(uint32_t out[4], const void *row);

#endif
