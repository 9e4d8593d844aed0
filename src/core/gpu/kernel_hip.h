/* core/gpu/kernel_hip.h - kernel.h's names as clang compiles them for AMD's GPUs (clang -x hip; see core/simd/device_code.h).
 *
 * A warp is 32 threads here too (core/gpu/kernel_wave.h). There are no clusters, and copies to shared memory are done at
 * once. Tensor cores have no names, so the files that use them are not for these GPUs. */
#ifndef NAPIER_CORE_GPU_KERNEL_HIP_H
#define NAPIER_CORE_GPU_KERNEL_HIP_H

#define CUDA_KERNEL(name, type, threads)                                                                   \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void name( \
        const type job)

extern __shared__ __attribute__((aligned(128))) unsigned char cuda_shared_memory[];
#define CUDA_SHARED(type, name) type *const name = (type *)cuda_shared_memory

#define CUDA_INLINE static __device__ __forceinline__

/* ---- Which thread ------------------------------------------------------------------------------------------------ */

typedef struct napier_hip_dim {
    uint32_t x, y, z;
} napier_hip_dim;

#define threadIdx                                                                       \
    (napier_hip_dim{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), \
                    __builtin_amdgcn_workitem_id_z()})
#define blockIdx                                                                          \
    (napier_hip_dim{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), \
                    __builtin_amdgcn_workgroup_id_z()})
#define blockDim                                                                              \
    (napier_hip_dim{__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), \
                    __builtin_amdgcn_workgroup_size_z()})
#define gridDim                                                                                               \
    (napier_hip_dim{__builtin_amdgcn_grid_size_x() / blockDim.x, __builtin_amdgcn_grid_size_y() / blockDim.y, \
                    __builtin_amdgcn_grid_size_z() / blockDim.z})

/* ---- Over a warp ------------------------------------------------------------------------------------------------- */

CUDA_INLINE uint32_t napier_wave_place(void) {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
CUDA_INLINE int32_t napier_wave_read(uint32_t place, int32_t v) {
    return __builtin_amdgcn_ds_bpermute((int32_t)place * 4, v);
}
CUDA_INLINE uint64_t napier_wave_ballot(bool condition) {
#if __AMDGCN_WAVEFRONT_SIZE__ == 64
    return __builtin_amdgcn_ballot_w64(condition);
#else
    return __builtin_amdgcn_ballot_w32(condition);
#endif
}

#include "core/gpu/kernel_wave.h"

#define cuda_shuffle_f32 napier_wave_shuffle_f32
#define cuda_shuffle_i32 napier_wave_shuffle_i32
#define cuda_shuffle_u64 napier_wave_shuffle_u64
#define cuda_shuffle_xor_f32 napier_wave_shuffle_xor_f32
#define cuda_shuffle_xor_i32 napier_wave_shuffle_xor_i32
#define cuda_shuffle_xor_u64 napier_wave_shuffle_xor_u64
#define cuda_ballot napier_wave_bits
#define cuda_add_u32 napier_wave_add_u32
#define cuda_max_u32 napier_wave_max_u32

CUDA_INLINE void __syncwarp(void) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
CUDA_INLINE void __syncthreads(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

#define NAPIER_HIP_ATOMIC(name, operation, type)                                                 \
    CUDA_INLINE type cuda_atomic_##name(type *p, type v) {                                       \
        return __hip_atomic_fetch_##operation(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    }

NAPIER_HIP_ATOMIC(add_i32, add, int32_t)
NAPIER_HIP_ATOMIC(min_i32, min, int32_t)
NAPIER_HIP_ATOMIC(max_i32, max, int32_t)
NAPIER_HIP_ATOMIC(add_i64, add, int64_t)
NAPIER_HIP_ATOMIC(min_i64, min, int64_t)
NAPIER_HIP_ATOMIC(max_i64, max, int64_t)

CUDA_INLINE int32_t cuda_atomic_swap_i32(int32_t *p, int32_t if_this, int32_t then_this) {
    __hip_atomic_compare_exchange_strong(p, &if_this, then_this, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_AGENT);
    return if_this;
}
CUDA_INLINE void cuda_fence(void) { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

typedef uint32_t napier_hip_words __attribute__((ext_vector_type(4)));
CUDA_INLINE void cuda_load_16(const void *p, void *out) {
    *(napier_hip_words *)out = __builtin_nontemporal_load((const napier_hip_words *)p);
}
CUDA_INLINE void cuda_store_16(void *p, const void *in) {
    __builtin_nontemporal_store(*(const napier_hip_words *)in, (napier_hip_words *)p);
}

CUDA_INLINE int cuda_cluster_size(void) { return 1; }
CUDA_INLINE int cuda_cluster_rank(void) { return 0; }
CUDA_INLINE void cuda_cluster_sync(void) { __syncthreads(); }
CUDA_INLINE void *cuda_cluster_shared(void *p, int rank) { return rank == 0 ? p : NULL; }

CUDA_INLINE void cuda_copy_async_16(void *shared, const void *global) {
    *(napier_hip_words *)shared = *(const napier_hip_words *)global;
}
CUDA_INLINE void cuda_copy_async_part(void *shared, const void *global, int bytes) {
    for (int i = 0; i < 16; i++) {
        ((unsigned char *)shared)[i] = i < bytes ? ((const unsigned char *)global)[i] : 0;
    }
}
CUDA_INLINE void cuda_copy_commit(void) {}
CUDA_INLINE void cuda_copy_wait(int groups) { (void)groups; }

#endif
