/* core/gpu/opencl/check.cu - the operations of check.h, computed on the device. */
#include "core/gpu/kernel.h"
#include "core/gpu/opencl/check.h"

CUDA_KERNEL(napier_opencl_check, napier_check_job, NAPIER_CHECK_THREADS) {
    const int64_t step = (int64_t)gridDim.x * NAPIER_CHECK_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * NAPIER_CHECK_THREADS + threadIdx.x; i < job.count; i += step) {
        napier_check_results(job.first + i, job.results + i * NAPIER_CHECK_TYPES * NAPIER_CHECK_OPERATIONS);
    }
}
