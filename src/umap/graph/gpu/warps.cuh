/* umap/graph/gpu/warps.cuh - indices of threads in a grid of one dimension, and sums of 16 lanes over a warp
 * (layout_kernels.h); for *.cu only. */
#ifndef NAPIER_UMAP_GRAPH_GPU_WARPS_CUH
#define NAPIER_UMAP_GRAPH_GPU_WARPS_CUH

#include "core/gpu/kernel.h"

CUDA_INLINE int warp_lane(void) { return (int)(threadIdx.x % CUDA_WARP); }

/* The index of this thread and of this warp in the grid, and how many there are. */
CUDA_INLINE int64_t grid_thread(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
CUDA_INLINE int64_t grid_threads(void) { return (int64_t)gridDim.x * blockDim.x; }
CUDA_INLINE int64_t grid_warp(void) { return grid_thread() / CUDA_WARP; }
CUDA_INLINE int64_t grid_warps(void) { return grid_threads() / CUDA_WARP; }

/* How many lanes in the set `lanes` precede this one. */
CUDA_INLINE int lanes_before(uint32_t lanes) { return __builtin_popcount(lanes & ((1u << warp_lane()) - 1)); }

/* sum + this thread's value and that of thread ^ 16, the lower half's first. */
CUDA_INLINE float add_halves(float sum, float mine) {
    const float other = cuda_shuffle_xor_f32(mine, 16);
    const bool lower = warp_lane() < 16;
    return (sum + (lower ? mine : other)) + (lower ? other : mine);
}

CUDA_INLINE float fold_across(float v) {
    for (int lanes = 8; lanes > 0; lanes /= 2) {
        v = v + cuda_shuffle_xor_f32(v, lanes);
    }
    return v;
}

CUDA_INLINE float a_nan(void) { return napier_float_of_bits(0x7fc00000); }

CUDA_INLINE bool napier_is_finite(float x) { return fabsf(x) <= 0x1.fffffep127f; }

/* Loads a point of a map of two components with one access to L1 instead of two. It is aligned to 8 bytes, and no
 * running kernel writes it. */
CUDA_INLINE void load_pair(const float *y, float pair[2]) {
#if defined(__CUDACC__)
    const float2 both = __ldg((const float2 *)y);
    pair[0] = both.x;
    pair[1] = both.y;
#else
    memcpy(pair, __builtin_assume_aligned(y, 8), 8);
#endif
}

#endif
