/* umap/graph/gpu/fuzzy.cu - the fuzzy simplicial set: scales of the rows, memberships, and the union with the
 * reversed graph. Each thread processes one row. Sums are in the CPU's order, in double. One row of 15 neighbours takes
 * some 30 rounds of 14 exponentials. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"

#include "umap/graph/gpu/fuzzy_cuda.h"

#include "core/math/lanes_math.h"
#include "umap/graph/smooth.h"
#include "umap/graph/gpu/warps.cuh"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

CUDA_KERNEL(napier_umap_check_knn_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    for (int64_t i = grid_thread(); i < job.n; i += grid_threads()) {
        const int32_t *const indices = job.indices != NULL ? job.indices + i * job.k : NULL;
        const int64_t fault = napier_smooth_fault(job.distances + i * job.k, indices, job.k, job.n);
        if (fault >= 0) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, i * job.k + fault);
            job.state->bad = 1;
        }
    }
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* A warp per block of distances: it loads 32 together and adds them in order. */
CUDA_KERNEL(napier_umap_sum_blocks_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    const int64_t all = job.n * job.k;
    for (int64_t block = grid_warp(); block * NAPIER_MEAN_BLOCK < all; block += grid_warps()) {
        const int64_t begin = block * NAPIER_MEAN_BLOCK;
        const int64_t end = begin + NAPIER_MEAN_BLOCK < all ? begin + NAPIER_MEAN_BLOCK : all;
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t first = begin; first < end; first += CUDA_WARP) {
            const int64_t i = first + warp_lane();
            const float mine = i < end ? job.distances[i] : INFINITY;
            for (int lane = 0; lane < CUDA_WARP; lane++) {
                const float x = cuda_shuffle_f32(mine, lane);
                if (!isinf(x)) {
                    sum += (double)x;
                    count++;
                }
            }
        }
        if (warp_lane() == 0) {
            job.sums[block] = sum;
            job.finite[block] = count;
        }
    }
}

/* One thread: the mean of all distances. */
CUDA_KERNEL(napier_umap_mean_kernel, napier_fuzzy_job, CUDA_WARP) {
    if (grid_thread() == 0) {
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t block = 0; block * NAPIER_MEAN_BLOCK < job.n * job.k; block++) {
            sum += job.sums[block];
            count += job.finite[block];
        }
        job.sums[0] = count > 0 ? sum / (double)count : 0.0;
    }
}

/* sum_j exp(-max(0, d_j - rho) / sigma) without the first. */
CUDA_INLINE double sum_of_members(const float *d, int64_t count, float rho, double sigma) {
    const float factor = (float)(-1.0 / sigma);
    double sum = 0.0;
    for (int64_t j = 1; j <= count; j++) {
        sum += (double)vf_exp(napier_smooth_exponent(d[j] - rho, factor));
    }
    return sum;
}

/* A thread per row. If an argument is bad, the scales are NaN. */
CUDA_KERNEL(napier_umap_smooth_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    const bool bad = job.state->bad != 0;
    for (int64_t i = grid_thread(); i < job.n; i += grid_threads()) {
        float rho = a_nan(), sigma = rho;
        if (!bad) {
            const float *const d = job.distances + i * job.k;
            const int64_t count = napier_smooth_count(d, job.k);
            rho = napier_smooth_rho(d, count, job.local_connectivity);
            napier_bisection b = napier_bisection_of(i, d, count);
            while (napier_bisect(&b, sum_of_members(d, b.count, rho, b.middle), job.target)) {
            }
            sigma = napier_smooth_sigma(&b, d, job.k, rho, job.sums[0]);
        }
        job.rhos[i] = rho;
        job.sigmas[i] = sigma;
    }
}

/* ---- Memberships ------------------------------------------------------------------------------------------------- */

/* A thread per row: its memberships, ascending by target. */
CUDA_KERNEL(napier_umap_members_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    const bool bad = job.state->bad != 0;
    for (int64_t i = grid_thread(); i < job.n; i += grid_threads()) {
        uint32_t *const targets = job.row_targets + i * job.k;
        float *const weights = job.row_weights + i * job.k;
        int64_t count = 0;
        if (!bad) {
            count = napier_members_of(i, job.indices + i * job.k, job.distances + i * job.k, job.k, job.rhos[i],
                                      job.sigmas[i], targets, weights);
        }
        for (int64_t e = 0; e < count; e++) {
            weights[e] = vf_exp(weights[e]);
        }
        napier_sort_members(targets, weights, count);
        for (int64_t e = 1; e < count; e++) {
            if (targets[e] == targets[e - 1]) {
                napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, i * job.k + e);
                job.state->highest = 1; /* takes effect when all rows are done */
            }
        }
        job.directed.starts[i] = count;
    }
}

/* A thread per row. If a row names a neighbour twice, the whole set becomes empty. */
CUDA_KERNEL(napier_umap_forget_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    if (job.state->highest != 0) {
        for (int64_t i = grid_thread(); i < job.n; i += grid_threads()) {
            job.directed.starts[i] = 0;
        }
    }
}

/* A warp per row: copies it to its position in the graph. */
CUDA_KERNEL(napier_umap_close_up_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    for (int64_t i = grid_warp(); i < job.n; i += grid_warps()) {
        const int64_t begin = job.directed.starts[i], count = job.directed.starts[i + 1] - begin;
        for (int64_t e = warp_lane(); e < count; e += CUDA_WARP) {
            job.directed.targets[begin + e] = job.row_targets[i * job.k + e];
            job.directed.weights[begin + e] = job.row_weights[i * job.k + e];
            job.sources[begin + e] = (uint32_t)i;
        }
    }
}

/* ---- The union --------------------------------------------------------------------------------------------------- */

CUDA_INLINE int64_t join(const napier_fuzzy_job *job, int64_t v, uint32_t *targets, float *weights) {
    const napier_device_graph *const a = &job->directed, *const b = &job->reversed;
    const int64_t left = a->starts[v], right = b->starts[v];
    return napier_join_row(v, a->targets + left, a->weights + left, a->starts[v + 1] - left, b->targets + right,
                           b->weights + right, b->starts[v + 1] - right, job->mix, targets, weights);
}

/* A thread per row: counts the edges of the union, */
CUDA_KERNEL(napier_umap_count_union_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    for (int64_t v = grid_thread(); v < job.n; v += grid_threads()) {
        job.out.starts[v] = join(&job, v, NULL, NULL);
    }
}

/* and writes them. */
CUDA_KERNEL(napier_umap_union_kernel, napier_fuzzy_job, NAPIER_FUZZY_THREADS) {
    for (int64_t v = grid_thread(); v < job.n; v += grid_threads()) {
        const int64_t at = job.out.starts[v];
        join(&job, v, job.out.targets + at, job.out.weights + at);
    }
}
