/* ops/tokens/gpu/gather.cu - one log-probability of each row, with one thread per row; and its gradient, with one warp
 * per strip of a row. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/tokens/gpu/gather_cuda.h"

CUDA_KERNEL(napier_gather_rows, napier_cuda_gather_job, NAPIER_RESPONSE_THREADS) {
    for (int64_t row = cuda_thread(); row < job.x.rows; row += cuda_threads()) {
        const int64_t id = cuda_index_at(job.ids, row);
        float value = vf_canonical_nan();
        if (id >= 0 && id < job.x.cols) {
            value = cuda_element(job.x.data, job.x.dtype, row * job.x.row_stride + id * job.x.col_stride);
        } else {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_IDS, row);
        }
        cuda_put_token(job.y, row, value);
    }
}

CUDA_INLINE void napier_scatter_strip(const napier_cuda_scatter_job *job, int64_t row, int64_t begin, int64_t end) {
    const int64_t id = cuda_index_at(job->ids, row);
    const bool good = id >= 0 && id < job->y.cols;
    if (!good && begin == 0 && cuda_lane() == 0) {
        napier_cuda_note_fault(job->faults, NAPIER_FAULT_IDS, row);
    }
    const float g = good ? cuda_token(job->g, row) : vf_canonical_nan();
    for (int64_t j = begin + cuda_lane(); j < end; j += CUDA_WARP) {
        cuda_put(job->y.data, job->y.dtype, row * job->y.row_stride + j * job->y.col_stride,
                 j == id || !good ? g : 0.0f);
    }
}

CUDA_KERNEL(napier_scatter_rows, napier_cuda_scatter_job, NAPIER_RESPONSE_THREADS) {
    const int64_t strips = (job.y.cols + NAPIER_SCATTER_STRIP - 1) / NAPIER_SCATTER_STRIP;
    for (int64_t i = cuda_warp(); i < job.y.rows * strips; i += cuda_warps()) {
        const int64_t begin = i % strips * NAPIER_SCATTER_STRIP, end = begin + NAPIER_SCATTER_STRIP;
        napier_scatter_strip(&job, i / strips, begin, end < job.y.cols ? end : job.y.cols);
    }
}
