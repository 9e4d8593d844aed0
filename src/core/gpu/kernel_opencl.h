/* core/gpu/kernel_opencl.h - kernel.h's names as OpenCL C (3.0, or 2.0): generic addresses, f64, atomics of 64 bits, sub-groups.
 *
 * The build makes one text of each .cu file (cmake/NapierOpencl.cmake), in which these names stand as they are. This file goes
 * before the text when the device's compiler gets it (opencl/opencl_program.c), so it includes nothing, and it also says what
 * C's headers would say.
 *
 * A job is a struct with pointers, which OpenCL does not take by value: it comes as words and is copied. The dynamic shared
 * memory is the second argument. A warp is 32 threads of a sub-group (core/gpu/kernel_wave.h). There are no clusters, and
 * copies to shared memory are done at once. Tensor cores have no names. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#pragma OPENCL FP_CONTRACT OFF

/* ---- C11 --------------------------------------------------------------------------------------------------------- */

typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define UINT64_C(x) x##UL
#define static_assert _Static_assert

/* Keywords here, names of variables in C. */
#define half napier_half
#define global napier_global
#define local napier_local
#define kernel napier_kernel
#define constant napier_constant

#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define copysignf(x, y) copysign((float)(x), (float)(y))
#define fabsf(x) fabs((float)(x))
#define fmaf(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define rintf(x) rint((float)(x))
#define sqrtf(x) sqrt((float)(x))
#define __builtin_assume_aligned(p, n) (p) /* clang takes no generic pointer here */

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define CUDA_INLINE static __forceinline__

/* A program has only the kernel NAME of -DNAPIER_OPENCL_WANT_NAME: what is not called costs no time of the compiler. */
#define NAPIER_OPENCL_JOIN(a, b) a##b
#define NAPIER_OPENCL_SECOND(a, b, ...) b
#define NAPIER_OPENCL_PICK(...) NAPIER_OPENCL_SECOND(__VA_ARGS__)
#define NAPIER_OPENCL_WANTED_1 ~, NAPIER_OPENCL_ENTRY
#define NAPIER_OPENCL_WANTED(wanted) \
    NAPIER_OPENCL_PICK(NAPIER_OPENCL_JOIN(NAPIER_OPENCL_WANTED_, wanted), NAPIER_OPENCL_NO_ENTRY, ~)
#define NAPIER_OPENCL_NO_ENTRY(name, type, threads)
#define NAPIER_OPENCL_ENTRY(name, type, threads)                                        \
    typedef struct name##_words {                                                       \
        ulong words[(sizeof(type) + 7) / 8];                                            \
    } name##_words;                                                                     \
    NAPIER_OPENCL_KERNEL(threads)                                                       \
    __kernel void name(const name##_words words, __local ulong16 *cuda_shared_memory) { \
        type job;                                                                       \
        __builtin_memcpy(&job, &words, sizeof job);                                     \
        name##_thread(job, (__local uchar *)cuda_shared_memory);                        \
    }

#define CUDA_KERNEL(name, type, threads)                                               \
    CUDA_INLINE void name##_thread(const type job, __local uchar *cuda_shared_memory); \
    NAPIER_OPENCL_WANTED(NAPIER_OPENCL_WANT_##name)                                    \
    (name, type, threads) CUDA_INLINE void name##_thread(const type job, __local uchar *cuda_shared_memory)

#define CUDA_SHARED(type, name) type *const name = (type *)cuda_shared_memory

#if defined(__AMDGCN__)
#define NAPIER_OPENCL_KERNEL(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#elif defined(cl_intel_required_subgroup_size)
#define NAPIER_OPENCL_KERNEL(threads) __attribute__((intel_reqd_sub_group_size(32)))
#else
#define NAPIER_OPENCL_KERNEL(threads)
#endif

/* ---- Which thread ------------------------------------------------------------------------------------------------ */

typedef struct napier_opencl_dim {
    uint x, y, z;
} napier_opencl_dim;

#define NAPIER_OPENCL_DIM(f) ((napier_opencl_dim){(uint)f(0), (uint)f(1), (uint)f(2)})
#define threadIdx NAPIER_OPENCL_DIM(get_local_id)
#define blockIdx NAPIER_OPENCL_DIM(get_group_id)
#define blockDim NAPIER_OPENCL_DIM(get_local_size)
#define gridDim NAPIER_OPENCL_DIM(get_num_groups)

/* ---- Over a warp ------------------------------------------------------------------------------------------------- */

#define NAPIER_OPENCL_FENCES (CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define __syncthreads() barrier(NAPIER_OPENCL_FENCES)
#define __syncwarp() sub_group_barrier(NAPIER_OPENCL_FENCES)

#if defined(__AMDGCN__) /* its compiler has no cl_khr_subgroup_shuffle, but clang's builtins */
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
#else
CUDA_INLINE uint32_t napier_wave_place(void) { return get_sub_group_local_id(); }
CUDA_INLINE int32_t napier_wave_read(uint32_t place, int32_t v) { return sub_group_shuffle(v, place); }
CUDA_INLINE uint64_t napier_wave_ballot(bool condition) {
    const uint4 bits = sub_group_ballot(condition);
    return bits.x | (uint64_t)bits.y << 32;
}
#endif

#define cuda_shuffle_f32 napier_wave_shuffle_f32
#define cuda_shuffle_i32 napier_wave_shuffle_i32
#define cuda_shuffle_u64 napier_wave_shuffle_u64
#define cuda_shuffle_xor_f32 napier_wave_shuffle_xor_f32
#define cuda_shuffle_xor_i32 napier_wave_shuffle_xor_i32
#define cuda_shuffle_xor_u64 napier_wave_shuffle_xor_u64
#define cuda_ballot napier_wave_bits
#define cuda_add_u32 napier_wave_add_u32
#define cuda_max_u32 napier_wave_max_u32

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

#define NAPIER_OPENCL_ATOMIC(name, operation, type, atomic)                                       \
    CUDA_INLINE type cuda_atomic_##name(type *p, type v) {                                        \
        return atomic_fetch_##operation##_explicit((volatile atomic *)p, v, memory_order_relaxed, \
                                                   memory_scope_device);                          \
    }
NAPIER_OPENCL_ATOMIC(add_i32, add, int32_t, atomic_int)
NAPIER_OPENCL_ATOMIC(min_i32, min, int32_t, atomic_int)
NAPIER_OPENCL_ATOMIC(max_i32, max, int32_t, atomic_int)
NAPIER_OPENCL_ATOMIC(add_i64, add, int64_t, atomic_long)
NAPIER_OPENCL_ATOMIC(min_i64, min, int64_t, atomic_long)
NAPIER_OPENCL_ATOMIC(max_i64, max, int64_t, atomic_long)

CUDA_INLINE int32_t cuda_atomic_swap_i32(int32_t *p, int32_t if_this, int32_t then_this) {
    (void)atomic_compare_exchange_strong_explicit((volatile atomic_int *)p, &if_this, then_this, memory_order_relaxed,
                                                  memory_order_relaxed, memory_scope_device);
    return if_this;
}
CUDA_INLINE void cuda_fence(void) {
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);
}

CUDA_INLINE void cuda_load_16(const void *p, void *out) { *(uint4 *)out = *(const uint4 *)p; }
CUDA_INLINE void cuda_store_16(void *p, const void *in) { *(uint4 *)p = *(const uint4 *)in; }

CUDA_INLINE int cuda_cluster_size(void) { return 1; }
CUDA_INLINE int cuda_cluster_rank(void) { return 0; }
#define cuda_cluster_sync() __syncthreads()
CUDA_INLINE void *cuda_cluster_shared(void *p, int rank) { return rank == 0 ? p : NULL; }

CUDA_INLINE void cuda_copy_async_16(void *shared, const void *from) { *(uint4 *)shared = *(const uint4 *)from; }
CUDA_INLINE void cuda_copy_async_part(void *shared, const void *from, int bytes) {
    for (int i = 0; i < 16; i++) {
        ((uchar *)shared)[i] = i < bytes ? ((const uchar *)from)[i] : 0;
    }
}
CUDA_INLINE void cuda_copy_commit(void) {}
CUDA_INLINE void cuda_copy_wait(int groups) { (void)groups; }
