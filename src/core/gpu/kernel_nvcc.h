/* core/gpu/kernel_nvcc.h - kernel.h's names as nvcc compiles them. */
#ifndef NAPIER_CORE_GPU_KERNEL_NVCC_H
#define NAPIER_CORE_GPU_KERNEL_NVCC_H

#define CUDA_KERNEL(name, type, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ type job)

extern __shared__ __align__(128) unsigned char cuda_shared_memory[];
#define CUDA_SHARED(type, name) type *const name = (type *)cuda_shared_memory

#define CUDA_INLINE static __device__ __forceinline__
#define CUDA_ALL_LANES 0xffffffffu

CUDA_INLINE float cuda_shuffle_xor_f32(float v, int lanes) { return __shfl_xor_sync(CUDA_ALL_LANES, v, lanes); }
CUDA_INLINE int32_t cuda_shuffle_xor_i32(int32_t v, int lanes) { return __shfl_xor_sync(CUDA_ALL_LANES, v, lanes); }
CUDA_INLINE uint64_t cuda_shuffle_xor_u64(uint64_t v, int lanes) {
    return __shfl_xor_sync(CUDA_ALL_LANES, (unsigned long long)v, lanes);
}
CUDA_INLINE float cuda_shuffle_f32(float v, int lane) { return __shfl_sync(CUDA_ALL_LANES, v, lane); }
CUDA_INLINE int32_t cuda_shuffle_i32(int32_t v, int lane) { return __shfl_sync(CUDA_ALL_LANES, v, lane); }
CUDA_INLINE uint64_t cuda_shuffle_u64(uint64_t v, int lane) {
    return __shfl_sync(CUDA_ALL_LANES, (unsigned long long)v, lane);
}
CUDA_INLINE uint32_t cuda_ballot(bool condition) { return __ballot_sync(CUDA_ALL_LANES, condition); }
CUDA_INLINE uint32_t cuda_add_u32(uint32_t v) { return __reduce_add_sync(CUDA_ALL_LANES, v); }
CUDA_INLINE uint32_t cuda_max_u32(uint32_t v) { return __reduce_max_sync(CUDA_ALL_LANES, v); }

CUDA_INLINE int32_t cuda_atomic_add_i32(int32_t *p, int32_t v) { return atomicAdd(p, v); }
CUDA_INLINE int32_t cuda_atomic_min_i32(int32_t *p, int32_t v) { return atomicMin(p, v); }
CUDA_INLINE int32_t cuda_atomic_max_i32(int32_t *p, int32_t v) { return atomicMax(p, v); }
CUDA_INLINE int32_t cuda_atomic_swap_i32(int32_t *p, int32_t if_this, int32_t then_this) {
    return atomicCAS(p, if_this, then_this);
}
CUDA_INLINE int64_t cuda_atomic_add_i64(int64_t *p, int64_t v) {
    return (int64_t)atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
CUDA_INLINE int64_t cuda_atomic_min_i64(int64_t *p, int64_t v) { return atomicMin((long long *)p, (long long)v); }
CUDA_INLINE int64_t cuda_atomic_max_i64(int64_t *p, int64_t v) { return atomicMax((long long *)p, (long long)v); }
CUDA_INLINE void cuda_fence(void) { __threadfence(); }

CUDA_INLINE void cuda_load_16(const void *p, void *out) { *(uint4 *)out = __ldcg((const uint4 *)p); }
CUDA_INLINE void cuda_store_16(void *p, const void *in) { __stcs((uint4 *)p, *(const uint4 *)in); }

/* ---- Clusters and matrix engines: from sm_90 and sm_80 on -------------------------------------------------------- */

CUDA_INLINE int cuda_cluster_size(void) {
#if __CUDA_ARCH__ >= 900
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    return (int)n;
#else
    return 1;
#endif
}
CUDA_INLINE int cuda_cluster_rank(void) {
#if __CUDA_ARCH__ >= 900
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return (int)n;
#else
    return 0;
#endif
}
CUDA_INLINE void cuda_cluster_sync(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
CUDA_INLINE void *cuda_cluster_shared(void *p, int rank) {
#if __CUDA_ARCH__ >= 900
    void *there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
    return there;
#else
    return rank == 0 ? p : NULL;
#endif
}

CUDA_INLINE void cuda_copy_async_16(void *shared, const void *global) {
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
CUDA_INLINE void cuda_copy_async_part(void *shared, const void *global, int bytes) {
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
CUDA_INLINE void cuda_copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define cuda_copy_wait(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

CUDA_INLINE void cuda_ldmatrix_x4(uint32_t out[4], const void *row) {
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
}
CUDA_INLINE void cuda_ldmatrix_x4_turned(uint32_t out[4], const void *row) {
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
}

#define CUDA_MMA(name, type)                                                              \
    CUDA_INLINE void name(float d[4], const uint32_t a[4], const uint32_t b[2]) {         \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "       \
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"              \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }

CUDA_MMA(cuda_mma_bf16, "bf16")
CUDA_MMA(cuda_mma_f16, "f16")

#endif
