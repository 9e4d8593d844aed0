/* umap/layout/gpu/layout.cu - the forces on all vertices, a warp for each, and the optimizers' steps.
 *
 * A warp takes 32 pairs of its vertex at a time, one pair per thread. The tree (layout_kernels.h) has 16 lanes: threads
 * t and t ^ 16 have two successive pairs of the same lane, which are added in order. With two components each thread
 * keeps the lanes' sums in registers, the same in both halves of the warp. With more components the sums are in shared
 * memory, and forces are computed twice from an embedding that L1 holds, instead of stored.
 *
 * For a vertex with 22 edges and 16 samples a warp reads 8 bytes an edge in order and 8 bytes a pair at random (1M
 * points are 8 MB, which fit in L2), and writes 8 bytes. It issues some 500 instructions, of which the powers are 2 x
 * 40 and the draw 40. The instructions, not the memory, limit the speed (docs/cuda-umap.md). */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"

#include "umap/layout/gpu/layout_cuda.h"

#include "umap/layout/sampling.h"
#include "umap/layout/step.inc.h"
#include "umap/graph/gpu/warps.cuh"

/* ---- Sums over 16 lanes ------------------------------------------------------------------------------------------ */

/* The sum of a vertex. With two components all threads have the same values. With more, thread t has components t and
 * t + 32 of the force. */
typedef struct vertex_sum {
    int components;
    float own[2]; /* the vertex; two components only */
    float force[2];
    float open[2]; /* this thread's lane of the open sum; two components only */
    float *lanes;  /* [components, NAPIER_LANE_STRIDE] open sums of all lanes, shared by the warp; more components */
} vertex_sum;

CUDA_INLINE vertex_sum begin_vertex(const bool two, const napier_force_job *job, uint32_t v, float *lanes) {
    vertex_sum s;
    s.components = two ? 2 : job->components;
    s.force[0] = s.force[1] = s.open[0] = s.open[1] = 0.0f;
    s.own[0] = s.own[1] = 0.0f;
    if (two) {
        load_pair(job->y + 2 * (int64_t)v, s.own);
    }
    s.lanes = lanes;
    return s;
}

CUDA_INLINE void clear_lanes(const bool two, const napier_force_job *job, float *lanes) {
    for (int i = warp_lane(); !two && i < job->components * NAPIER_LANE_STRIDE; i += CUDA_WARP) {
        lanes[i] = 0.0f;
    }
    __syncwarp();
}

CUDA_INLINE float fold_row(float *lanes) {
    float v[16];
    for (int i = 0; i < 16; i++) {
        v[i] = lanes[i];
        lanes[i] = 0.0f;
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            v[i] = v[i] + v[i + half];
        }
    }
    return v[0];
}

/* Adds the lanes to force, and sets them to 0. */
CUDA_INLINE void close_piece(const bool two, vertex_sum *s) {
    if (two) {
        s->force[0] = s->force[0] + fold_across(s->open[0]);
        s->force[1] = s->force[1] + fold_across(s->open[1]);
        s->open[0] = s->open[1] = 0.0f;
        return;
    }
    __syncwarp();
    NAPIER_UNROLL
    for (int i = 0; i < 2; i++) {
        const int d = warp_lane() + CUDA_WARP * i;
        if (d < s->components) {
            s->force[i] = s->force[i] + fold_row(s->lanes + d * NAPIER_LANE_STRIDE);
        }
    }
    __syncwarp();
}

CUDA_INLINE void store_force(const bool two, const vertex_sum *s, float *out) {
    if (two) {
        if (warp_lane() < 2) {
            out[warp_lane()] = warp_lane() == 0 ? s->force[0] : s->force[1];
        }
        return;
    }
    NAPIER_UNROLL
    for (int i = 0; i < 2; i++) {
        const int d = warp_lane() + CUDA_WARP * i;
        if (d < s->components) {
            out[d] = s->force[i];
        }
    }
}

/* ---- Pairs ------------------------------------------------------------------------------------------------------- */

/* Adds the forces of 32 pairs on v. Each thread gives the other vertex of its pair, or v itself for no pair. */
CUDA_INLINE void add_pairs(const bool two, const napier_force_job *job, bool repels, uint32_t v, uint32_t other,
                           float weight, vertex_sum *s) {
    const napier_forces *const f = &job->forces;
    const int components = two ? 2 : job->components;
    const float *at = s->own, *from = job->y + (int64_t)other * components;
    float pair[2];
    if (two) {
        load_pair(from, pair);
        from = pair;
    } else {
        at = job->y + (int64_t)v * components;
    }
    const float d2 = napier_squared_gap(at, from, components);
    const float factor = repels ? napier_repulsion(f, d2) : napier_attraction(f, d2);
    weight = napier_force_weight(f, factor, weight, at, from, components);
    for (int d = 0; d < components; d++) {
        const float force = napier_clipped(f, factor, at[d] - from[d]) * weight;
        if (two) {
            s->open[d] = add_halves(s->open[d], force);
        } else {
            float *const lane = s->lanes + d * NAPIER_LANE_STRIDE + warp_lane() % 16;
            const float sum = add_halves(warp_lane() < 16 ? *lane : 0.0f, force);
            if (warp_lane() < 16) {
                *lane = sum;
            }
        }
    }
}

/* ---- Attraction -------------------------------------------------------------------------------------------------- */

CUDA_INLINE float highest_of(const napier_force_job *job) {
    return napier_float_of_bits((uint32_t)job->state->highest);
}

/* The factor of every weight. */
CUDA_INLINE float scale_of(const napier_force_job *job) {
    const float highest = highest_of(job);
    return job->by_highest && highest > 0.0f ? job->times / highest : job->times;
}

/* Adds all edges of a piece. */
CUDA_INLINE void attract_by_weight(const bool two, const napier_force_job *job, const napier_device_graph *graph,
                                   uint32_t v, int64_t begin, int64_t end, vertex_sum *s) {
    const float scale = scale_of(job);
    for (int64_t first = begin; first < end; first += CUDA_WARP) {
        const int64_t e = first + warp_lane();
        const uint32_t other = e < end ? graph->targets[e] : v;
        add_pairs(two, job, false, v, other, e < end ? scale * graph->weights[e] : 0.0f, s);
    }
    close_piece(two, s);
}

/* Adds the edges of a piece that act. They are collected and added 32 at a time. Returns their number. */
CUDA_INLINE int32_t attract_sampled(const bool two, const napier_force_job *job, const napier_device_graph *graph,
                                    bool pull, uint32_t v, int64_t begin, int64_t end, uint32_t *acting,
                                    vertex_sum *s) {
    const float highest = highest_of(job);
    int waiting = 0;
    int32_t found = 0;
    for (int64_t first = begin; first < end; first += CUDA_WARP) {
        const int64_t e = first + warp_lane();
        const uint32_t other = e < end ? graph->targets[e] : v;
        const bool acts = e < end && napier_edge_acts(job->phase_key, highest, job->epoch, pull ? other : v,
                                                      pull ? v : other, graph->weights[e]);
        const uint32_t all = cuda_ballot(acts);
        if (acts) {
            acting[waiting + lanes_before(all)] = other;
        }
        waiting += __builtin_popcount(all);
        found += __builtin_popcount(all);
        __syncwarp();
        if (waiting >= CUDA_WARP) {
            add_pairs(two, job, false, v, acting[warp_lane()], job->times, s);
            const uint32_t later = acting[CUDA_WARP + warp_lane()];
            __syncwarp();
            acting[warp_lane()] = later;
            waiting -= CUDA_WARP;
            __syncwarp();
        }
    }
    if (waiting > 0) {
        add_pairs(two, job, false, v, warp_lane() < waiting ? acting[warp_lane()] : v, job->times, s);
    }
    close_piece(two, s);
    return found;
}

CUDA_INLINE int64_t degree_of(const napier_device_graph *graph, int64_t v) {
    return graph->starts != NULL ? graph->starts[v + 1] - graph->starts[v] : 0;
}

/* ---- Repulsion --------------------------------------------------------------------------------------------------- */

CUDA_INLINE napier_sampling sampling_of(const napier_force_job *job, uint32_t v, int64_t acting) {
    napier_sampling s;
    if (job->wanted != NULL) {
        return napier_weighted_sampling(job->wanted[v]);
    }
    s.count = job->rate_per_edge && job->sampled ? (int64_t)((double)acting * job->rate) : job->samples;
    s.weight = 1.0f;
    return s;
}

/* The target of a sample, limited to valid vertices: the caller's targets are checked, but kernels run even if one is
 * bad. */
CUDA_INLINE uint32_t sample_of(const napier_force_job *job, uint32_t v, int64_t s) {
    if (job->given == NULL) {
        return napier_draw_of(job->draw_key, v, (uint32_t)job->n, s);
    }
    const uint32_t target = job->given[(int64_t)v * job->samples + s];
    return target < job->n ? target : v;
}

CUDA_INLINE void repel(const bool two, const napier_force_job *job, uint32_t v, int64_t acting, vertex_sum *s) {
    const napier_sampling samples = sampling_of(job, v, acting);
    for (int64_t first = 0; first < samples.count; first += CUDA_WARP) {
        const int64_t at = first + warp_lane(), next = first + CUDA_WARP;
        const uint32_t other = at < samples.count ? sample_of(job, v, at) : v;
        add_pairs(two, job, true, v, other, samples.weight, s);
        if (next % NAPIER_PIECE_EDGES == 0 || next >= samples.count) {
            close_piece(two, s);
        }
    }
}

/* ---- All vertices ------------------------------------------------------------------------------------------------ */

/* A warp's part of the shared memory: the lanes' sums, then the edges that act. */
CUDA_INLINE float *lanes_of_warp(const napier_force_job *job, float *shared) {
    return shared + (int)threadIdx.x / CUDA_WARP * job->components * NAPIER_LANE_STRIDE;
}
CUDA_INLINE uint32_t *acting_of_warp(const napier_force_job *job, float *shared) {
    uint32_t *const first = (uint32_t *)(shared + NAPIER_FORCE_WARPS * job->components * NAPIER_LANE_STRIDE);
    return first + (int)threadIdx.x / CUDA_WARP * NAPIER_ACTING_EDGES;
}

/* Is a vertex processed by the kernel for heavy vertices? */
CUDA_INLINE bool is_heavy(const napier_force_job *job, int64_t v) {
    return degree_of(&job->edges, v) > NAPIER_PIECE_EDGES || degree_of(&job->pulls, v) > NAPIER_PIECE_EDGES;
}

/* Item i: a piece of a heavy vertex, or (from `pieces` on) a whole light one. */
CUDA_INLINE void one_item(const bool two, const bool sampled, const napier_force_job *job, int64_t i, int64_t pieces,
                          float *lanes, uint32_t *acting) {
    const napier_device_piece *const piece = i < pieces ? &job->pieces[i] : NULL;
    const uint32_t v = piece != NULL ? piece->v : (uint32_t)(i - pieces);
    if (piece == NULL && is_heavy(job, v)) {
        return;
    }
    vertex_sum s = begin_vertex(two, job, v, lanes);
    const int sides = job->pulls.starts != NULL ? 2 : job->edges.starts != NULL;
    int32_t own = 0; /* its own edges that act */
    for (int side = 0; side < sides; side++) {
        const napier_device_graph *const graph = side == 1 ? &job->pulls : &job->edges;
        int64_t begin = piece != NULL ? piece->begin : graph->starts[v];
        int64_t end = piece != NULL ? begin + (piece->pull == side ? piece->count : 0) : graph->starts[v + 1];
        if (begin < end && sampled) {
            const int32_t found = attract_sampled(two, job, graph, side == 1, v, begin, end, acting, &s);
            own += side == 0 ? found : 0;
        } else if (begin < end) {
            attract_by_weight(two, job, graph, v, begin, end, &s);
        }
    }
    if (piece == NULL) {
        repel(two, job, v, own, &s);
    } else if (warp_lane() == 0) {
        job->acting[i] = own;
    }
    store_force(two, &s, piece != NULL ? job->sums + i * s.components : job->out + (int64_t)v * s.components);
}

/* A warp for each piece of the heavy vertices, first because they take longest, then one for each vertex. */
CUDA_INLINE void all_forces(const bool two, const bool sampled, const napier_force_job *job, float *shared) {
    float *const lanes = lanes_of_warp(job, shared);
    const int64_t pieces = job->state->piece_count;
    clear_lanes(two, job, lanes);
    for (int64_t i = grid_warp(); i < pieces + job->n; i += grid_warps()) {
        one_item(two, sampled, job, i, pieces, lanes, acting_of_warp(job, shared));
    }
}

/* A warp for each heavy vertex: its pieces' sums in order, then its samples. */
CUDA_INLINE void heavy_forces(const bool two, const napier_force_job *job, float *shared) {
    float *const lanes = lanes_of_warp(job, shared);
    clear_lanes(two, job, lanes);
    for (int64_t h = grid_warp(); h < job->state->heavy_count; h += grid_warps()) {
        const napier_device_heavy heavy = job->heavy[h];
        vertex_sum s = begin_vertex(two, job, heavy.v, lanes);
        int64_t acting = 0;
        for (int64_t i = heavy.first; i < (int64_t)heavy.first + heavy.count; i++) {
            acting += job->acting[i];
            NAPIER_UNROLL
            for (int part = 0; part < 2; part++) {
                const int d = two ? part : warp_lane() + CUDA_WARP * part;
                s.force[part] = d < s.components ? s.force[part] + job->sums[i * s.components + d] : 0.0f;
            }
        }
        repel(two, job, heavy.v, acting, &s);
        store_force(two, &s, job->out + (int64_t)heavy.v * s.components);
    }
}

/* Kernels for any number of components and, faster, for two; separately for weighted and sampled edges, which is
 * faster. */
#define NAPIER_FORCE_KERNEL(name, ...)                          \
    CUDA_KERNEL(name, napier_force_job, NAPIER_FORCE_THREADS) { \
        CUDA_SHARED(float, shared);                             \
        __VA_ARGS__;                                            \
    }

NAPIER_FORCE_KERNEL(napier_umap_forces_kernel, all_forces(false, false, &job, shared))
NAPIER_FORCE_KERNEL(napier_umap_forces_2_kernel, all_forces(true, false, &job, shared))
NAPIER_FORCE_KERNEL(napier_umap_sampled_kernel, all_forces(false, true, &job, shared))
NAPIER_FORCE_KERNEL(napier_umap_sampled_2_kernel, all_forces(true, true, &job, shared))
NAPIER_FORCE_KERNEL(napier_umap_heavy_kernel, heavy_forces(false, &job, shared))
NAPIER_FORCE_KERNEL(napier_umap_heavy_2_kernel, heavy_forces(true, &job, shared))

/* ---- Before the first epoch -------------------------------------------------------------------------------------- */

CUDA_INLINE int32_t cut(const napier_force_job *job, const napier_device_graph *graph, bool pull, uint32_t v,
                        int32_t at) {
    const int64_t degree = degree_of(graph, v);
    for (int64_t begin = 0; begin < degree; begin += NAPIER_PIECE_EDGES) {
        const int64_t left = degree - begin;
        napier_device_piece *const p = &job->pieces[at++];
        p->begin = graph->starts[v] + begin;
        p->count = (int32_t)(left < NAPIER_PIECE_EDGES ? left : NAPIER_PIECE_EDGES);
        p->v = v;
        p->pull = pull;
    }
    return at;
}

CUDA_INLINE int32_t pieces_of(int64_t degree) {
    return (int32_t)((degree + NAPIER_PIECE_EDGES - 1) / NAPIER_PIECE_EDGES);
}

/* A thread per vertex. The order of heavy vertices is random and does not change the result. */
CUDA_KERNEL(napier_umap_prepare_kernel, napier_force_job, NAPIER_FORCE_THREADS) {
    for (int64_t v = grid_thread(); v < job.n; v += grid_threads()) {
        if (job.wanted != NULL) {
            job.wanted[v] = napier_wanted_samples(job.edges.starts, job.edges.weights, v, highest_of(&job), job.rate);
        }
        if (is_heavy(&job, v)) {
            napier_device_heavy *const heavy = &job.heavy[cuda_atomic_add_i32(&job.state->heavy_count, 1)];
            heavy->v = (uint32_t)v;
            heavy->count = pieces_of(degree_of(&job.edges, v)) + pieces_of(degree_of(&job.pulls, v));
            heavy->first = cuda_atomic_add_i32(&job.state->piece_count, heavy->count);
            cut(&job, &job.pulls, true, (uint32_t)v, cut(&job, &job.edges, false, (uint32_t)v, heavy->first));
        }
    }
}

CUDA_KERNEL(napier_umap_check_values_kernel, napier_values_job, NAPIER_STEP_THREADS) {
    for (int64_t i = grid_thread(); i < job.count; i += grid_threads()) {
        if (job.values != NULL ? !napier_is_finite(job.values[i]) : job.targets[i] >= job.n) {
            napier_cuda_note_fault(job.faults, job.values != NULL ? NAPIER_FAULT_VALUES : NAPIER_FAULT_TARGETS, i);
            job.state->bad = 1;
        }
    }
}

/* ---- After an epoch ---------------------------------------------------------------------------------------------- */

CUDA_KERNEL(napier_umap_step_kernel, napier_step_job, NAPIER_STEP_THREADS) {
    const napier_umap_optimizer_options *const o = &job.options;
    const napier_adam_constants adam = {o->beta1, o->beta2, o->eps, job.correction1, job.correction2, job.rate};
    for (int64_t i = grid_thread(); i < job.count; i += grid_threads()) {
        if (o->method == NAPIER_UMAP_SGD) {
            job.y[i] = napier_sgd_step(job.y[i], job.g[i], job.rate);
        } else if (o->method == NAPIER_UMAP_MOMENTUM) {
            job.y[i] = napier_momentum_step(job.y[i], job.g[i], &job.first[i], o->beta, job.rate);
        } else {
            job.y[i] = napier_adam_step(job.y[i], job.g[i], &job.first[i], &job.second[i], &adam);
        }
    }
}

CUDA_KERNEL(napier_umap_poison_kernel, napier_poison_job, NAPIER_STEP_THREADS) {
    if (job.state->bad) {
        for (int64_t i = grid_thread(); i < job.count; i += grid_threads()) {
            job.out[i] = a_nan();
        }
    }
}
