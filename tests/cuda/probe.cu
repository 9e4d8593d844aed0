/* tests/cuda/probe.cu - every word of core/gpu/kernel.h in small kernels, for test_cuda_device.c. */
#define NAPIER_LANES_CUDA
#include "probe.h"

#include "core/gpu/kernel.h"
#include "core/math/lanes_math.h"
#include "ops/softmax/sum.h"

/* y[i] = the sum of the block's x, folded by warps, then by the block; and each thread's own number is added to *total. */
CUDA_KERNEL(probe_sums, probe_job, 256) {
    CUDA_SHARED(float, of_warp);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), warp = (int)threadIdx.x / CUDA_WARP;
    float sum = job.x[i];
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        sum += cuda_shuffle_xor_f32(sum, lanes);
    }
    if (threadIdx.x % CUDA_WARP == 0) {
        of_warp[warp] = sum;
    }
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < (int)blockDim.x / CUDA_WARP; w++) {
        sum += of_warp[w];
    }
    job.y[i] = sum;
    (void)cuda_atomic_add_i64(job.total, i);
}

/* What the warp's other words say of x: y[i] = bits, as a float that holds a small integer. */
CUDA_KERNEL(probe_warp, probe_job, 32) {
    const int i = (int)threadIdx.x;
    const uint32_t positive = cuda_ballot(job.x[i] > 0.0f);
    const uint32_t most = cuda_max_u32((uint32_t)i * 3);
    const int32_t turned = cuda_shuffle_i32(i, CUDA_WARP - 1 - i);
    const uint64_t wide = cuda_shuffle_xor_u64((uint64_t)i << 40, 1);
    __syncwarp();
    job.y[i] = (float)(positive & 0xff) + (float)most + (float)turned + (float)(wide >> 40);
    if (job.x[i] < 0.0f) {
        napier_cuda_note_fault(job.faults, NAPIER_FAULT_IDS, i);
    }
}

/* y = exp, log and a one-element logsumexp of x, by the headers that the CPU uses. */
CUDA_KERNEL(probe_math, probe_job, 256) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const float x = job.x[i];
    napier_tile_sum tile = {.max = x, .min = x, .rest = x * 0x1p40f, .count = 2, .nan = false};
    napier_sum sum;
    napier_sum_init(&sum);
    napier_sum_add_tile(&sum, &tile);
    const napier_final final = napier_sum_finish(&sum);
    job.y[3 * i] = vf_exp(x);
    job.y[3 * i + 1] = vf_log(x);
    job.y[3 * i + 2] = final.lse;
}

/* A cluster passes its x round: block r reads what block r + 1 keeps. */
CUDA_KERNEL(probe_cluster, probe_job, 32) {
    CUDA_SHARED(float, mine);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    mine[threadIdx.x] = job.x[i];
    cuda_cluster_sync();
    const float *const next = (const float *)cuda_cluster_shared(mine, (cuda_cluster_rank() + 1) % cuda_cluster_size());
    job.y[i] = next[threadIdx.x];
    cuda_cluster_sync();
}

/* d = a b on the tensor cores, by way of asynchronous copies and ldmatrix. */
CUDA_KERNEL(probe_product, probe_product_job, 32) {
    CUDA_SHARED(uint16_t, shared); /* a, then b */
    const int lane = (int)threadIdx.x;
    uint16_t *const b = shared + 256;
    cuda_copy_async_16(shared + 8 * lane, job.a + 8 * lane);
    cuda_copy_commit();
    cuda_copy_async_part(b + 8 * lane, lane < 16 ? job.b + 8 * lane : job.b, lane < 16 ? 16 : 0);
    cuda_copy_commit();
    cuda_copy_wait(1);
    cuda_copy_wait(0);
    __syncthreads();
    uint32_t left[4], right[4];
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    cuda_ldmatrix_x4(left, shared + 16 * (lane % 16) + 8 * (lane / 16)); /* rows 0..15 of columns 0..7, then 8..15 */
    cuda_ldmatrix_x4_turned(right, b + 8 * (lane % 32));                 /* rows 0..7, 8..15, then zeros */
    cuda_mma_bf16(d, left, right);
    for (int i = 0; i < 4; i++) {
        job.d[8 * (lane / 4 + 8 * (i / 2)) + 2 * (lane % 4) + i % 2] = d[i];
    }
}
