/* core/gpu/kernel.h - the language of the .cu files: the part of CUDA C that is also C11, and names for the rest.
 *
 * A .cu file holds only kernels and the functions that they call, no host code. nvcc compiles it for a device. A C
 * compiler compiles it for the emulated device of tests/cuda, whose threads are coroutines. So the bits, bounds and
 * barriers of a kernel are tested on machines without a GPU. Both understand:
 *
 *   CUDA_KERNEL(name, type, threads) { ... }   a kernel of one argument, `job`, a struct passed by value, for blocks of
 *                                              at most `threads` threads. Host code launches it by its name:
 *                                              core/gpu/launch.h
 *   threadIdx.x blockIdx.x .y .z  blockDim.x  gridDim.x .y .z
 *   CUDA_SHARED(type, name)         the block's dynamic shared memory, whose size the launch gives, as `type *name`, on
 *                                   a boundary of 128 bytes; static __shared__ variables are not used
 *   __syncthreads() __syncwarp()    all threads of the block; of the warp
 *   cuda_shuffle_xor_{f32,i32,u64}(value, lanes), cuda_shuffle_{f32,i32,u64}(value, lane)    the whole warp takes part
 *   cuda_ballot(condition)          a bit for each lane of the warp
 *   cuda_add_u32(value), cuda_max_u32(value)    over the warp
 *   cuda_atomic_{add,min,max}_{i32,i64}(pointer, value), cuda_atomic_swap_i32(pointer, if_this, then_this): return the
 *                                   old value
 *   cuda_fence()                    after it, all threads of the device see what this thread has written
 *   cuda_load_16(pointer, out)      16 bytes on a boundary of 16, past L1 if the device can
 *   cuda_store_16(pointer, in)
 *   cuda_cluster_size(), cuda_cluster_rank(), cuda_cluster_sync(), cuda_cluster_shared(pointer, rank)
 *                                   blocks that were launched as a cluster; the same place in the shared memory of
 *                                   another block
 *   cuda_copy_async_16(shared, global), cuda_copy_async_part(shared, global, bytes): of 16, the rest becomes 0;
 *   cuda_copy_commit(), cuda_copy_wait(groups)
 *   cuda_ldmatrix_x4(out, row), cuda_ldmatrix_x4_turned(out, row)    four matrices of 8 x 8 16-bit elements from shared
 *                                   memory, by rows or (.trans) by columns; lane 8 m + r names row r of matrix m
 *   cuda_mma_{bf16,f16}(d, a, b)    m16n8k16 on the tensor cores: d[4] += a (4 words) * b (2 words), in the layout of
 *                                   mma.sync
 *
 * core/simd/cuda.h gives a thread one lane of core/simd/lanes.h, so code that is written on lanes compiles for a thread
 * unchanged. The functions of core/math come from the headers that the CPU uses. */
#ifndef NAPIER_CORE_GPU_KERNEL_H
#define NAPIER_CORE_GPU_KERNEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/gpu/fault.h"
#include "core/math/both.h"

enum { CUDA_WARP = 32 };

#if defined(__CUDACC__)
#include "core/gpu/kernel_nvcc.h"
#elif defined(__OPENCL_C_VERSION__)
#include "core/gpu/kernel_wave.h" /* kernel_opencl.h comes before it at run time */
#else
#include "emulator/emulated_kernel.h" /* from tests/cuda; only the build of the emulated device has it on its path */
#endif

/* Records that the element at `index` is wrong: fault.h. */
CUDA_INLINE void napier_cuda_note_fault(napier_cuda_faults *faults, napier_cuda_fault fault, int64_t index) {
    (void)cuda_atomic_max_i64(&faults->seen[fault], INT64_MAX - index);
}

#endif
