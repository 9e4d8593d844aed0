/* umap/layout/gpu/gradient.cu - the primitives: forces of edges, their sums, samples, and the step that applies
 * them. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"

#include "umap/layout/gpu/gradient_cuda.h"

#include "umap/graph/edges.h"
#include "umap/layout/sampling.h"
#include "umap/layout/step.inc.h"
#include "umap/graph/gpu/warps.cuh"

/* ---- Edge by edge ------------------------------------------------------------------------------------------------ */

CUDA_INLINE bool is_finite_row(const float *y, int components) {
    bool all = true;
    for (int d = 0; d < components; d++) {
        all = all && napier_is_finite(y[d]);
    }
    return all;
}

/* Checks an edge and its points. An invalid edge gives NaN and is reported with its index; an element that is not
 * finite, with its vertex. */
CUDA_INLINE bool may_act(const napier_edge_forces_job *job, int64_t e) {
    const napier_umap_edge edge = job->edges[e];
    if (!napier_edge_is_valid(job->edges, e, job->n)) {
        napier_cuda_note_fault(job->faults, NAPIER_FAULT_EDGES, e);
        return false;
    }
    const bool fine = is_finite_row(job->y + (int64_t)edge.source * job->components, job->components) &&
                      is_finite_row(job->y + (int64_t)edge.target * job->components, job->components);
    if (!fine) {
        napier_cuda_note_fault(job->faults, NAPIER_FAULT_VALUES, (int64_t)edge.source * job->components);
    }
    return fine;
}

/* A thread per edge. */
CUDA_KERNEL(napier_umap_edge_forces_kernel, napier_edge_forces_job, NAPIER_GRADIENT_THREADS) {
    const napier_forces *const f = &job.forces;
    const int components = job.components;
    for (int64_t e = grid_thread(); e < job.count; e += grid_threads()) {
        const bool acts = may_act(&job, e);
        const float *const i = job.y + (acts ? (int64_t)job.edges[e].source * components : 0);
        const float *const j = job.y + (acts ? (int64_t)job.edges[e].target * components : 0);
        float factor = 0.0f, weight = a_nan();
        if (acts) {
            factor = napier_attraction(f, napier_squared_gap(i, j, components));
            weight = napier_force_weight(f, factor, job.edges[e].weight, i, j, components);
        }
        for (int d = 0; d < components; d++) {
            const float force = acts ? napier_clipped(f, factor, i[d] - j[d]) * weight : weight;
            if (job.source != NULL) {
                job.source[e * components + d] = force + 0.0f;
            }
            if (job.target != NULL) {
                job.target[e * components + d] = 0.0f - force;
            }
        }
    }
}

/* ---- Segments ---------------------------------------------------------------------------------------------------- */

/* A thread per vertex, and one per edge that checks it. */
CUDA_KERNEL(napier_umap_segments_kernel, napier_segments_job, NAPIER_GRADIENT_THREADS) {
    for (int64_t v = grid_thread(); v < job.n; v += grid_threads()) {
        const int64_t begin = napier_first_edge_of(job.edges, job.count, v);
        const int64_t end = napier_first_edge_of(job.edges, job.count, v + 1);
        job.starts[v] = begin;
        job.counts[v] = end > begin ? end - begin : 0;
    }
    for (int64_t e = grid_thread(); e < job.count; e += grid_threads()) {
        if (!napier_edge_is_valid(job.edges, e, job.n)) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_EDGES, e);
        }
    }
}

/* The sum of a component of `count` rows in one piece: the tree of layout_kernels.h. */
CUDA_INLINE float sum_of_piece(const float *rows, int64_t count, int components) {
    float sum = 0.0f;
    for (int64_t first = 0; first < count; first += CUDA_WARP) {
        const int64_t e = first + warp_lane();
        sum = add_halves(sum, e < count ? rows[e * components] : 0.0f);
    }
    return fold_across(sum);
}

/* A warp per segment, one component after the other, while L1 holds the rows. */
CUDA_KERNEL(napier_umap_reduce_kernel, napier_reduce_job, NAPIER_GRADIENT_THREADS) {
    for (int64_t v = grid_warp(); v < job.n; v += grid_warps()) {
        const int64_t begin = job.starts[v], count = job.counts[v];
        const bool fits = begin >= 0 && count >= 0 && count <= job.row_count && begin <= job.row_count - count;
        if (!fits) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_OFFSETS, v);
        }
        for (int d = 0; d < job.components; d++) {
            float sum = fits ? 0.0f : a_nan();
            for (int64_t e = 0; fits && e < count; e += NAPIER_PIECE_EDGES) {
                const int64_t left = count - e;
                sum = sum + sum_of_piece(job.rows + (begin + e) * job.components + d,
                                         left < NAPIER_PIECE_EDGES ? left : NAPIER_PIECE_EDGES, job.components);
            }
            if (warp_lane() == 0) {
                job.sums[v * job.components + d] = sum;
            }
        }
    }
}

/* ---- Steps and samples ------------------------------------------------------------------------------------------- */

CUDA_KERNEL(napier_umap_apply_kernel, napier_apply_job, NAPIER_GRADIENT_THREADS) {
    for (int64_t i = grid_thread(); i < job.count; i += grid_threads()) {
        const float g = job.g[i];
        const bool finite = napier_is_finite(g);
        if (!finite) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, i);
        }
        job.y[i] = finite ? napier_sgd_step(job.y[i], g, job.rate) : a_nan();
    }
}

/* A thread per draw. */
CUDA_KERNEL(napier_umap_draw_kernel, napier_draw_job, NAPIER_GRADIENT_THREADS) {
    for (int64_t i = grid_thread(); i < job.n * job.rate; i += grid_threads()) {
        job.targets[i] = napier_draw_of(job.key, (uint32_t)(i / job.rate), (uint32_t)job.n, i % job.rate);
    }
}
