/* umap/graph/gpu/graph.cu - kernels that make graphs in CSR form: checks, prefix sums, a stable sort by target. */
#include "core/gpu/kernel.h"

#include "umap/graph/gpu/graph_cuda.h"

#include "core/math/exp.h"
#include "umap/graph/edges.h"
#include "umap/graph/gpu/warps.cuh"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

CUDA_INLINE void refuse(const napier_device_build *job, int64_t index) {
    napier_cuda_note_fault(job->faults, NAPIER_FAULT_EDGES, index);
    job->state->bad = 1;
}

CUDA_INLINE void raise_highest(const napier_device_build *job, float weight) {
    const uint32_t most = cuda_max_u32(napier_float_bits(weight));
    if (warp_lane() == 0) {
        cuda_atomic_max_i32(&job->state->highest, (int32_t)most);
    }
}

/* A thread per edge. */
CUDA_KERNEL(napier_umap_check_edges_kernel, napier_device_build, NAPIER_GRAPH_THREADS) {
    float highest = 0.0f;
    for (int64_t e = grid_thread(); e < job.source.count; e += grid_threads()) {
        const float weight = job.source.edges[e].weight;
        if (!napier_edge_is_valid(job.source.edges, e, job.source.n)) {
            refuse(&job, e);
        } else {
            highest = weight > highest ? weight : highest;
        }
    }
    raise_highest(&job, highest);
}

/* A warp per row. An invalid row is reported with the index of its vertex. */
CUDA_KERNEL(napier_umap_check_rows_kernel, napier_device_build, NAPIER_GRAPH_THREADS) {
    const napier_device_source *const s = &job.source;
    float highest = 0.0f;
    for (int64_t v = grid_warp(); v < s->n; v += grid_warps()) {
        const int64_t begin = s->starts[v], end = s->starts[v + 1];
        if (begin < 0 || end < begin || end > s->count || (v == 0 && begin != 0)) {
            refuse(&job, v);
            continue;
        }
        for (int64_t e = begin + warp_lane(); e < end; e += CUDA_WARP) {
            const float weight = s->weights[e];
            const bool rises = e == begin || s->targets[e] > s->targets[e - 1];
            if (!rises || s->targets[e] >= s->n || !napier_is_weight(weight) || weight == 0.0f) {
                refuse(&job, v);
            } else {
                highest = weight > highest ? weight : highest;
            }
        }
    }
    raise_highest(&job, highest);
}

/* ---- Rows of the edges that stay --------------------------------------------------------------------------------- */

typedef struct row {
    int64_t begin, end;
    float least; /* the least weight that is kept */
} row;

CUDA_INLINE row row_of(const napier_device_build *job, int64_t v) {
    const napier_device_source *const s = &job->source;
    row r = {0, 0, 0.0f};
    if (!job->state->bad) {
        r.begin = s->edges ? napier_first_edge_of(s->edges, s->count, v) : s->starts[v];
        r.end = s->edges ? napier_first_edge_of(s->edges, s->count, v + 1) : s->starts[v + 1];
        const float highest = napier_float_of_bits((uint32_t)job->state->highest);
        r.least = job->epochs > 0.0f ? highest / job->epochs : 0.0f;
    }
    return r;
}

CUDA_INLINE float weight_of(const napier_device_source *s, int64_t e) {
    return s->edges ? s->edges[e].weight : s->weights[e];
}

/* A warp per vertex: counts the edges that are kept. */
CUDA_KERNEL(napier_umap_count_rows_kernel, napier_device_build, NAPIER_GRAPH_THREADS) {
    for (int64_t v = grid_warp(); v < job.source.n; v += grid_warps()) {
        const row r = row_of(&job, v);
        int64_t kept = 0;
        for (int64_t first = r.begin; first < r.end; first += CUDA_WARP) {
            const int64_t e = first + warp_lane();
            const float weight = e < r.end ? weight_of(&job.source, e) : 0.0f;
            kept += __builtin_popcount(cuda_ballot(weight > 0.0f && weight >= r.least));
        }
        if (warp_lane() == 0) {
            job.edges.starts[v] = kept;
        }
    }
}

/* A warp per vertex: writes the edges that are kept, without gaps. */
CUDA_KERNEL(napier_umap_fill_rows_kernel, napier_device_build, NAPIER_GRAPH_THREADS) {
    for (int64_t v = grid_warp(); v < job.source.n; v += grid_warps()) {
        const row r = row_of(&job, v);
        int64_t to = job.edges.starts[v];
        for (int64_t first = r.begin; first < r.end; first += CUDA_WARP) {
            const int64_t e = first + warp_lane();
            const float weight = e < r.end ? weight_of(&job.source, e) : 0.0f;
            const bool stays = weight > 0.0f && weight >= r.least;
            const uint32_t all = cuda_ballot(stays);
            if (stays) {
                const int64_t at = to + lanes_before(all);
                job.edges.targets[at] = job.source.edges ? job.source.edges[e].target : job.source.targets[e];
                job.edges.weights[at] = weight;
                if (job.sources[1] != NULL) {
                    job.sources[1][at] = (uint32_t)v;
                }
            }
            to += __builtin_popcount(all);
        }
    }
}

/* A thread per vertex: where its keys begin. */
CUDA_KERNEL(napier_umap_key_starts_kernel, napier_starts_job, NAPIER_GRAPH_THREADS) {
    for (int64_t v = grid_thread(); v <= job.n; v += grid_threads()) {
        int64_t low = 0, high = *job.edges;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            low = job.keys[middle] < v ? middle + 1 : low;
            high = job.keys[middle] < v ? high : middle;
        }
        job.starts[v] = low;
    }
}

/* ---- Prefix sums ------------------------------------------------------------------------------------------------- */

/* The sum over the threads before this one; *all receives the sum over the block. shared: one number for each warp. */
CUDA_INLINE uint64_t block_before(uint64_t mine, uint64_t *shared, uint64_t *all) {
    uint64_t upto = mine; /* the sum over the lanes up to this one */
    for (int step = 1; step < CUDA_WARP; step *= 2) {
        const uint64_t got = cuda_shuffle_u64(upto, warp_lane() - step);
        upto += warp_lane() >= step ? got : 0;
    }
    if (warp_lane() == CUDA_WARP - 1) {
        shared[threadIdx.x / CUDA_WARP] = upto;
    }
    __syncthreads();
    uint64_t before = 0, sum = 0;
    for (int w = 0; w < NAPIER_GRAPH_THREADS / CUDA_WARP; w++) {
        before += w < (int)threadIdx.x / CUDA_WARP ? shared[w] : 0;
        sum += shared[w];
    }
    __syncthreads();
    *all = sum;
    return before + upto - mine;
}

CUDA_INLINE uint64_t sum_of_items(const napier_scan_job *job, int64_t first) {
    uint64_t sum = 0;
    for (int64_t i = first; i < first + NAPIER_SCAN_ITEMS && i < job->count; i++) {
        sum += (uint64_t)job->values[i];
    }
    return sum;
}

/* A block per tile: its sum. */
CUDA_KERNEL(napier_umap_scan_tiles_kernel, napier_scan_job, NAPIER_GRAPH_THREADS) {
    CUDA_SHARED(uint64_t, shared);
    for (int64_t tile = blockIdx.x; tile * NAPIER_SCAN_TILE < job.count; tile += gridDim.x) {
        uint64_t all;
        const int64_t first = tile * NAPIER_SCAN_TILE + (int64_t)threadIdx.x * NAPIER_SCAN_ITEMS;
        block_before(sum_of_items(&job, first), shared, &all);
        if (threadIdx.x == 0) {
            job.sums[tile] = (int64_t)all;
        }
    }
}

/* One block: the sums of the tiles before each tile. */
CUDA_KERNEL(napier_umap_scan_sums_kernel, napier_scan_job, NAPIER_GRAPH_THREADS) {
    CUDA_SHARED(uint64_t, shared);
    const int64_t tiles = (job.count + NAPIER_SCAN_TILE - 1) / NAPIER_SCAN_TILE;
    uint64_t carry = 0;
    for (int64_t first = 0; first < tiles; first += NAPIER_GRAPH_THREADS) {
        const int64_t tile = first + threadIdx.x;
        uint64_t all;
        const uint64_t before = block_before(tile < tiles ? (uint64_t)job.sums[tile] : 0, shared, &all);
        if (tile < tiles) {
            job.sums[tile] = (int64_t)(carry + before);
        }
        carry += all;
    }
    if (threadIdx.x == 0) {
        job.values[job.count] = (int64_t)carry;
    }
}

/* A block per tile: replaces every value by the sum of those before it. */
CUDA_KERNEL(napier_umap_scan_values_kernel, napier_scan_job, NAPIER_GRAPH_THREADS) {
    CUDA_SHARED(uint64_t, shared);
    for (int64_t tile = blockIdx.x; tile * NAPIER_SCAN_TILE < job.count; tile += gridDim.x) {
        uint64_t all;
        const int64_t first = tile * NAPIER_SCAN_TILE + (int64_t)threadIdx.x * NAPIER_SCAN_ITEMS;
        uint64_t before = block_before(sum_of_items(&job, first), shared, &all) + (uint64_t)job.sums[tile];
        for (int64_t i = first; i < first + NAPIER_SCAN_ITEMS && i < job.count; i++) {
            const uint64_t value = (uint64_t)job.values[i];
            job.values[i] = (int64_t)before;
            before += value;
        }
    }
}

/* ---- A stable sort by target, 8 bits at a time ------------------------------------------------------------------- */

CUDA_INLINE int digit_of(const napier_sort_job *job, uint32_t key) {
    return (int)(key >> job->shift & (NAPIER_SORT_DIGITS - 1));
}

/* The lanes with the same digit as this one, among those that have one. */
CUDA_INLINE uint32_t lanes_alike(int digit, bool there) {
    uint32_t alike = cuda_ballot(there);
    for (int bit = 0; bit < NAPIER_SORT_BITS; bit++) {
        const bool mine = digit >> bit & 1;
        const uint32_t set = cuda_ballot(mine);
        alike &= mine ? set : ~set;
    }
    return alike;
}

/* A warp per chunk: counts the edges with each digit. Of lanes with the same digit, the lowest counts for all. */
CUDA_KERNEL(napier_umap_count_digits_kernel, napier_sort_job, NAPIER_SORT_WARPS *CUDA_WARP) {
    CUDA_SHARED(int32_t, shared);
    int32_t *const counts = shared + threadIdx.x / CUDA_WARP * NAPIER_SORT_DIGITS;
    for (int64_t chunk = grid_warp(); chunk < job.chunks; chunk += grid_warps()) {
        for (int d = warp_lane(); d < NAPIER_SORT_DIGITS; d += CUDA_WARP) {
            counts[d] = 0;
        }
        __syncwarp();
        const int64_t begin = chunk * NAPIER_SORT_CHUNK, edges = *job.edges;
        for (int64_t e = begin + warp_lane(); e - warp_lane() < edges && e < begin + NAPIER_SORT_CHUNK;
             e += CUDA_WARP) {
            const bool there = e < edges;
            const int digit = there ? digit_of(&job, job.keys[e]) : 0;
            const uint32_t alike = lanes_alike(digit, there);
            if (there && lanes_before(alike) == 0) {
                counts[digit] += __builtin_popcount(alike);
            }
            __syncwarp();
        }
        for (int d = warp_lane(); d < NAPIER_SORT_DIGITS; d += CUDA_WARP) {
            job.counts[d * job.chunks + chunk] = counts[d];
        }
        __syncwarp();
    }
}

/* A warp per chunk: moves its edges, in order, to the positions from the sums. */
CUDA_KERNEL(napier_umap_scatter_kernel, napier_sort_job, NAPIER_SORT_WARPS *CUDA_WARP) {
    CUDA_SHARED(int64_t, shared);
    int64_t *const places = shared + threadIdx.x / CUDA_WARP * NAPIER_SORT_DIGITS;
    for (int64_t chunk = grid_warp(); chunk < job.chunks; chunk += grid_warps()) {
        for (int d = warp_lane(); d < NAPIER_SORT_DIGITS; d += CUDA_WARP) {
            places[d] = job.counts[d * job.chunks + chunk];
        }
        __syncwarp();
        const int64_t begin = chunk * NAPIER_SORT_CHUNK, edges = *job.edges;
        for (int64_t e = begin + warp_lane(); e - warp_lane() < edges && e < begin + NAPIER_SORT_CHUNK;
             e += CUDA_WARP) {
            const bool there = e < edges;
            const uint32_t key = there ? job.keys[e] : 0;
            const int digit = digit_of(&job, key);
            const uint32_t alike = lanes_alike(digit, there);
            const int64_t to = places[digit] + lanes_before(alike);
            __syncwarp();
            if (there) {
                job.sorted_keys[to] = key;
                job.sorted_sources[to] = job.sources[e];
                job.sorted_weights[to] = job.weights[e];
                if (lanes_before(alike) == 0) {
                    places[digit] += __builtin_popcount(alike);
                }
            }
            __syncwarp();
        }
    }
}
