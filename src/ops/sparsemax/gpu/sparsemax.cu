/* ops/sparsemax/gpu/sparsemax.cu - sparsemax and its gradient on a GPU, with the CPU's bits. A block works on a row. Thread
 * t has the elements t, t + 256, ..., which are also lane t of the gradient's sum. Sums of distances are integers, whose
 * order does not matter (threshold.h). It aims at correctness first: each round reads the row again. */
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/sparsemax/sparsemax_kernels.h"

CUDA_INLINE double element(const napier_const_matrix *m, int64_t row, int64_t i, double temperature, bool wide) {
    return sparsemax_load(m->data, m->dtype, row * m->row_stride + i * m->col_stride, temperature, wide);
}

CUDA_INLINE double logit(const napier_sparsemax_job *job, int64_t row, int64_t i) {
    return element(&job->x, row, i, job->temperature, job->wide);
}

CUDA_INLINE void put(const napier_sparsemax_job *job, int64_t row, int64_t i, double result) {
    sparsemax_store(job->out.data, job->out.dtype, row * job->out.row_stride + i * job->out.col_stride, result,
                    job->wide);
}

/* ---- Over the threads of a block ---------------------------------------------------------------------------------- */

CUDA_INLINE napier_sparsemax_sum add_block(napier_sparsemax_sum mine, napier_sparsemax_sum *lane) {
    const int t = (int)threadIdx.x;
    lane[t] = mine;
    __syncthreads();
    for (int half = SPARSEMAX_LANES / 2; half > 0; half /= 2) {
        if (t < half) {
            sparsemax_add(&lane[t], lane[t + half]);
        }
        __syncthreads();
    }
    const napier_sparsemax_sum all = lane[0];
    __syncthreads();
    return all;
}

CUDA_INLINE double fold_block(double mine, bool max, double *lane) {
    const int t = (int)threadIdx.x;
    lane[t] = mine;
    __syncthreads();
    for (int half = SPARSEMAX_LANES / 2; half > 0; half /= 2) {
        if (t < half && max) {
            lane[t] = lane[t + half] > lane[t] ? lane[t + half] : lane[t];
        } else if (t < half) {
            lane[t] += lane[t + half];
        }
        __syncthreads();
    }
    const double all = lane[0];
    __syncthreads();
    return all;
}

/* ---- sparsemax ---------------------------------------------------------------------------------------------------- */

/* The maximum; +inf if an element is NaN or +inf. */
CUDA_INLINE double row_max(const napier_sparsemax_job *job, int64_t row, double *lane) {
    double max = -HUGE_VAL;
    for (int64_t i = threadIdx.x; i < job->x.cols; i += SPARSEMAX_LANES) {
        const double z = logit(job, row, i);
        max = z <= max ? max : z == z ? z : HUGE_VAL;
    }
    return fold_block(max, true, lane);
}

CUDA_INLINE napier_sparsemax_threshold row_threshold(const napier_sparsemax_job *job, int64_t row, double max,
                                                     napier_sparsemax_sum *lane) {
    napier_sparsemax_threshold t = {1.0, 1.0, 0.0};
    for (uint64_t before = 0;;) {
        napier_sparsemax_sum mine = {0, 0, 0};
        for (int64_t i = threadIdx.x; i < job->x.cols; i += SPARSEMAX_LANES) {
            const double d = sparsemax_distance(max, logit(job, row, i));
            const napier_sparsemax_sum one = {1, 0, d < t.limit ? sparsemax_units(d) : 0};
            if (d < t.limit) {
                sparsemax_add(&mine, one);
            }
        }
        const napier_sparsemax_sum sum = add_block(mine, lane);
        if (sum.count == before) {
            return t;
        }
        before = sum.count;
        t = sparsemax_threshold_of(sum);
    }
}

CUDA_KERNEL(napier_sparsemax_rows, napier_sparsemax_job, SPARSEMAX_LANES) {
    CUDA_SHARED(napier_sparsemax_sum, lane);
    for (int64_t row = blockIdx.x; row < job.out.rows; row += gridDim.x) {
        const double max = row_max(&job, row, (double *)lane);
        const bool special = !(fabs(max) < HUGE_VAL);
        const double whole_row = max > 0 ? napier_f64_nan() : job.masked; /* if special */
        napier_sparsemax_threshold t = {0.0, 0.0, 0.0};
        if (!special) {
            t = row_threshold(&job, row, max, lane);
        }
        for (int64_t i = threadIdx.x; i < job.out.cols; i += SPARSEMAX_LANES) {
            put(&job, row, i, special ? whole_row : sparsemax_prob(t, sparsemax_distance(max, logit(&job, row, i))));
        }
    }
}

/* ---- The gradient ------------------------------------------------------------------------------------------------- */

CUDA_KERNEL(napier_sparsemax_gradient, napier_sparsemax_job, SPARSEMAX_LANES) {
    CUDA_SHARED(napier_sparsemax_sum, lane);
    for (int64_t row = blockIdx.x; row < job.out.rows; row += gridDim.x) {
        napier_sparsemax_sum count = {0, 0, 0};
        double sum = 0.0;
        for (int64_t i = threadIdx.x; i < job.x.cols; i += SPARSEMAX_LANES) {
            const double p = element(&job.x, row, i, 1.0, true);
            if (!(p <= 0.0)) {
                sum += fma(p, 0.0, element(&job.grad, row, i, 1.0, true));
                count.count++;
            }
        }
        const double total = fold_block(sum, false, (double *)lane);
        const double mean = total / (double)add_block(count, lane).count;
        for (int64_t i = threadIdx.x; i < job.x.cols; i += SPARSEMAX_LANES) {
            const double p = element(&job.x, row, i, 1.0, true), g = element(&job.grad, row, i, 1.0, true);
            put(&job, row, i, p <= 0.0 ? 0.0 : (fma(p, 0.0, g) - mean) / job.temperature);
        }
    }
}
