/* umap/knn/gpu/neighbors.cu - exact nearest neighbours: all pairs, in f32, in the CPU's order of operations.
 *
 * The order (linear_kernels.h): lane j of 64 adds the squares of columns j, j + 64, ... by fma; then the lanes fold by
 * halves. Lanes that differ in their highest bit are folded first. So with the lanes in bit-reversed order the tree is
 * that of a binary counter: a pair needs one number for the current lane and one for each level, 7 in place of 64. A
 * thread measures 4 x 4 pairs, with two loads of 16 bytes from shared memory for 32 operations. The upper levels, which
 * are used rarely, are in shared memory too. So 128 registers are enough and a multiprocessor holds two blocks.
 *
 * A block of 256 threads measures tiles of 64 queries x 64 samples. Asynchronous copies load 32 columns at a time,
 * while the previous ones are used. Pairs that may be near (by a bound that needs no root) are queued by their query
 * and then inserted into the query's sorted list. Lists order by (distance, index), so the order of insertion does not
 * matter.
 *
 * Metrics that are not euclidean distances of transformed rows are sums in 16 lanes (distance_kernels.h), added in
 * double in order.
 *
 * 60,000 rows of 50 columns are 3.6e9 pairs of 50 x 2 + 63 operations: 5.9e11, which at 128 a clock and multiprocessor
 * (132 of them, 1.8 GHz) take 19 ms. The tiles read 26 GB from L2. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"

#include "umap/knn/gpu/neighbors_cuda.h"

#include <assert.h>

#include "core/math/exp.h"
#include "core/math/f64.h"
#include "core/math/lanes_math.h"
#include "umap/metric/gap.inc.h"
#include "umap/knn/neighbors_heap.h"
#include "umap/graph/gpu/warps.cuh"

/* ---- Points ------------------------------------------------------------------------------------------------------ */

CUDA_INLINE double across(double x, int lanes) {
    return napier_double_of_bits(cuda_shuffle_xor_u64(napier_double_bits(x), lanes));
}

CUDA_INLINE int64_t bits_of(double x) { return (int64_t)napier_double_bits(x); }

/* A warp per column or row: its offset, its size, and whether f32 holds that. */
CUDA_KERNEL(napier_umap_spans_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const napier_const_matrix m = job.rows;
    const int64_t lines = job.by_column ? m.cols : m.rows, count = job.by_column ? m.rows : m.cols;
    const int64_t line_stride = job.by_column ? m.col_stride : m.row_stride;
    const int64_t stride = job.by_column ? m.row_stride : m.col_stride;
    const napier_reach reach = napier_reach_of(job.metric);
    for (int64_t line = grid_warp(); line < lines; line += grid_warps()) {
        napier_span s = napier_span_empty();
        for (int64_t i = warp_lane(); i < count; i += CUDA_WARP) {
            napier_span_add(&s, napier_f64_load(m.data, m.dtype, line * line_stride + i * stride));
        }
        for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
            const double low = across(s.low, lanes), high = across(s.high, lanes), least = across(s.least, lanes);
            s.low = low < s.low ? low : s.low;
            s.high = high > s.high ? high : s.high;
            s.least = least < s.least ? least : s.least;
        }
        s.exact = cuda_ballot(!s.exact) == 0;
        const double offset = job.offsets != NULL ? napier_span_offset(&s) : 0.0;
        const double size = napier_span_size(&s, offset, reach);
        if (warp_lane() == 0) {
            if (job.offsets != NULL) {
                job.offsets[line] = offset;
            }
            (void)cuda_atomic_max_i64(&job.state->largest, size <= DBL_MAX ? bits_of(size) : 0);
            if (reach != OF_ALL && m.dtype == NAPIER_F64 && size > 0.0 && size < napier_least_held(job.metric)) {
                napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, job.by_column ? line : line * m.cols);
                job.state->bad = 1;
            }
        }
    }
}

/* A thread per element; neighbouring threads have neighbouring rows. */
CUDA_KERNEL(napier_umap_points_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const napier_device_points *const p = &job.points;
    const int64_t largest = job.state->largest;
    if (grid_thread() == 0 && ((largest > 0 && largest < bits_of(job.least)) || largest >= bits_of(job.most))) {
        napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, 0);
        job.state->bad = 1;
    }
    for (int64_t at = grid_thread(); at < job.width * p->stride; at += grid_threads()) {
        const int64_t c = at / p->stride, i = at % p->stride;
        float x = 0.0f;
        if (i < p->n && c < job.rows.cols) {
            const int64_t index = i * job.rows.row_stride + c * job.rows.col_stride;
            const double offset = job.offsets != NULL ? job.offsets[job.by_column ? c : i] : 0.0;
            x = napier_f64_to_f32(napier_f64_load(job.rows.data, job.rows.dtype, index) - offset);
            if (!napier_is_finite(x) || (job.metric == NAPIER_METRIC_HELLINGER && x < 0.0f)) {
                napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, i * job.rows.cols + c);
                job.state->bad = 1;
            }
        }
        p->columns[at] = p->counts != NULL ? (x != 0.0f ? 1.0f : 0.0f) : x;
    }
}

/* A thread per row: counts the true columns. */
CUDA_KERNEL(napier_umap_count_true_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const napier_device_points *const p = &job.points;
    for (int64_t i = grid_thread(); i < p->stride; i += grid_threads()) {
        float count = 0.0f;
        for (int64_t c = 0; c < job.rows.cols; c++) {
            count = count + p->columns[c * p->stride + i];
        }
        p->counts[i] = count;
    }
}

/* A thread per row: its direction. */
CUDA_KERNEL(napier_umap_directions_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const napier_device_points *const p = &job.points;
    for (int64_t i = grid_thread(); i < p->n; i += grid_threads()) {
        napier_direct_row(job.metric, p->columns + i, p->stride, job.rows.cols);
    }
}

/* A thread per column: its variance, in order of the rows. */
CUDA_KERNEL(napier_umap_variances_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const int64_t n = job.points.n;
    for (int64_t c = grid_thread(); c < job.rows.cols; c += grid_threads()) {
        const float *const x = job.points.columns + c * job.points.stride;
        double mean = 0.0, squares = 0.0;
        for (int64_t i = 0; i < n; i++) {
            mean += (double)x[i];
        }
        mean = n > 0 ? mean / (double)n : 0.0;
        for (int64_t i = 0; i < n; i++) {
            const double away = (double)x[i] - mean;
            squares += away * away;
        }
        const double variance = n > 1 ? squares / (double)(n - 1) : 0.0;
        job.measured[c] = (float)(variance > 0.0 ? variance : 0.0);
        if (!napier_is_finite(job.measured[c])) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, c);
            job.state->bad = 1;
        }
    }
}

/* A thread per element: divides it by its column's standard deviation. */
CUDA_KERNEL(napier_umap_divide_kernel, napier_points_job, NAPIER_NEAR_THREADS) {
    const napier_device_points *const p = &job.points;
    for (int64_t at = grid_thread(); at < job.rows.cols * p->stride; at += grid_threads()) {
        const float variance = job.variances[at / p->stride];
        const bool counts = variance > 0.0f;
        if (!napier_is_finite(variance) || (!counts && job.measured == NULL)) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, at / p->stride);
            job.state->bad = 1;
        }
        p->columns[at] = (float)((double)p->columns[at] * (counts ? 1.0 / sqrt((double)variance) : 0.0));
    }
}

/* ---- The order of columns ---------------------------------------------------------------------------------------- */

/* The lane that is processed as number `leaf` of `lanes`: the bits of leaf, reversed. */
CUDA_INLINE int lane_of_leaf(int leaf, int lanes) {
    int lane = 0;
    for (int bit = lanes / 2; bit > 0; bit /= 2, leaf /= 2) {
        lane += leaf % 2 * bit;
    }
    return lane;
}

/* The number of columns lane, lane + step, ... below `width`. */
CUDA_INLINE int columns_of_lane(int lane, int width, const int step) {
    return lane < width ? (width - lane + step - 1) / step : 0;
}

/* One warp. With fewer than 64 lanes, no lane has a second column. */
CUDA_KERNEL(napier_umap_order_kernel, napier_order_job, CUDA_WARP) {
    const int step = job.folded ? NAPIER_NEAR_LANES : NAPIER_GAP_LANES;
    int first = 0;
    for (int leaf = 0; leaf < job.lanes; leaf++) {
        const int lane = job.folded ? lane_of_leaf(leaf, job.lanes) : leaf;
        const int count = columns_of_lane(lane, job.width, step);
        for (int i = warp_lane(); i < count; i += CUDA_WARP) {
            job.order[first + i] = lane + step * i;
        }
        first += count;
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

enum {
    TILE = NAPIER_NEAR_TILE,
    SHARE = NAPIER_NEAR_SHARE,
    PAIRS = SHARE * SHARE,
    CHUNK = NAPIER_NEAR_CHUNK,
    PIECES = TILE / 4, /* pieces of 16 bytes of a column of a tile */
    LEVELS = 3,        /* levels with sums in registers: of 2, 4 and 8 lanes; */
    DEEP = 2           /* and in shared memory: of 16 and 32 lanes */
};

/* A block's shared memory. */
typedef struct tile {
    float queries[2][CHUNK][TILE], samples[2][CHUNK][TILE];
    union {
        uint64_t queue[TILE][TILE];                      /* for each query: pairs that may be near */
        float waiting[DEEP][PAIRS][NAPIER_NEAR_THREADS]; /* during measurement: sums of many lanes */
    } u;
    int32_t queued[TILE];
    float within[TILE]; /* squared distances up to this may be near */
} tile;

/* The position of a thread: its pairs, and the progress of the block through the columns. */
typedef struct place {
    int64_t query, sample; /* first of the tile */
    int own_query, own_sample;
    int column; /* in the order: number of columns used so far */
    int asked;  /* number of columns whose copies were started */
} place;

/* Starts the copies of the next chunk of columns of both sides. */
CUDA_INLINE void ask(const napier_near_job *job, tile *t, place *at) {
    const int buffer = at->asked / CHUNK % 2;
    for (int i = (int)threadIdx.x; i < CHUNK * PIECES; i += NAPIER_NEAR_THREADS) {
        const int row = i / PIECES, piece = i % PIECES * 4;
        if (at->asked + row < job->width) {
            const int64_t column = job->order[at->asked + row];
            cuda_copy_async_16(&t->queries[buffer][row][piece],
                               job->queries.columns + column * job->queries.stride + at->query + piece);
            cuda_copy_async_16(&t->samples[buffer][row][piece],
                               job->samples.columns + column * job->samples.stride + at->sample + piece);
        }
    }
    cuda_copy_commit();
    at->asked += CHUNK;
}

/* Before the first column of a chunk: waits for it, and starts the copies of the next. */
CUDA_INLINE void enter_chunk(const napier_near_job *job, tile *t, place *at) {
    if (at->column % CHUNK == 0) {
        cuda_copy_wait(0);
        __syncthreads(); /* all threads can read it, and the other buffer is free */
        if (at->asked < job->width) {
            ask(job, t, at);
        }
    }
}

/* Loads the current column of a thread's queries and samples. */
CUDA_INLINE void load_column(const tile *t, const place *at, float x[SHARE], float y[SHARE]) {
    const int buffer = at->column / CHUNK % 2, row = at->column % CHUNK;
    const float *const a = &t->queries[buffer][row][at->own_query], *const b = &t->samples[buffer][row][at->own_sample];
    NAPIER_UNROLL
    for (int i = 0; i < SHARE; i++) {
        x[i] = a[i];
        y[i] = b[i];
    }
}

/* Adds one column to 4 x 4 pairs. */
CUDA_INLINE void add_column(const tile *t, const place *at, float sum[PAIRS]) {
    float x[SHARE], y[SHARE];
    load_column(t, at, x, y);
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const float gap = x[i / SHARE] - y[i % SHARE];
        sum[i] = fmaf(gap, gap, sum[i]);
    }
}

CUDA_INLINE void copy_pairs(float to[PAIRS], const float from[PAIRS]) {
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        to[i] = from[i];
    }
}

CUDA_INLINE void add_pairs(float sum[PAIRS], const float other[PAIRS]) {
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        sum[i] = other[i] + sum[i];
    }
}

/* The sum of one lane. */
CUDA_INLINE void measure_lane(const napier_near_job *job, tile *t, place *at, int leaf, float sum[PAIRS]) {
    const int count = columns_of_lane(lane_of_leaf(leaf, job->lanes), job->width, NAPIER_NEAR_LANES);
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        sum[i] = 0.0f;
    }
    for (int c = 0; c < count; c++) {
        enter_chunk(job, t, at);
        add_column(t, at, sum);
        at->column++;
    }
}

/* The squared distances of the tile: two lanes at a time, combined with the stored sum of each level. */
CUDA_INLINE void measure(const napier_near_job *job, tile *t, place *at, float sum[PAIRS]) {
    float waiting[LEVELS][PAIRS];
    at->column = at->asked = 0;
    ask(job, t, at);
    for (int leaf = 0; leaf < job->lanes; leaf += 2) {
        float first[PAIRS];
        measure_lane(job, t, at, leaf, first);
        measure_lane(job, t, at, leaf + 1, sum);
        add_pairs(sum, first);
        bool going = true;
        NAPIER_UNROLL
        for (int level = 0; level < LEVELS; level++) {
            if (going && (leaf >> level & 2) != 0) {
                add_pairs(sum, waiting[level]);
            } else if (going) {
                copy_pairs(waiting[level], sum);
                going = false;
            }
        }
        for (int level = LEVELS; going && level < LEVELS + DEEP; level++) {
            going = (leaf >> level & 2) != 0;
            NAPIER_UNROLL
            for (int i = 0; i < PAIRS; i++) {
                float *const other = &t->u.waiting[level - LEVELS][i][threadIdx.x];
                if (going) {
                    sum[i] = *other + sum[i];
                } else {
                    *other = sum[i];
                }
            }
        }
    }
}

/* ---- Sums of other gaps ------------------------------------------------------------------------------------------ */

/* One lane of 4 x 4 pairs. */
CUDA_INLINE void measure_gaps(const napier_gap gap, const napier_near_job *job, tile *t, place *at, int lane,
                              float sum[PAIRS], float other[PAIRS]) {
    const int count = columns_of_lane(lane, job->width, NAPIER_GAP_LANES);
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        sum[i] = other[i] = 0.0f;
    }
    for (int c = 0; c < count; c++) {
        float x[SHARE], y[SHARE];
        enter_chunk(job, t, at);
        load_column(t, at, x, y);
        NAPIER_UNROLL
        for (int i = 0; i < PAIRS; i++) {
            napier_gap_step(gap, x[i / SHARE], y[i % SHARE], &sum[i], &other[i]);
        }
        at->column++;
    }
}

/* The distance of query q from sample s (of the tile), from the sums over all lanes; 0 if it is not above 0. */
CUDA_INLINE float distance_of(const napier_gap gap, const napier_near_job *job, const place *at, int i, double sum,
                              double other) {
    float d = (float)sum;
    if (gap == NAPIER_GAP_COUNTS) {
        const float left = job->queries.counts[at->query + at->own_query + i / SHARE];
        const float right = job->samples.counts[at->sample + at->own_sample + i % SHARE];
        napier_truths c;
        c.both = sum;
        c.left = (double)left - sum;
        c.right = (double)right - sum;
        c.columns = (double)job->cols;
        return napier_boolean_distance(job->metric, c);
    }
    if (gap == NAPIER_GAP_RATIO) {
        d = other > 0.0 ? (float)(sum / other) : 0.0f;
    } else if (gap == NAPIER_GAP_UNEQUAL) {
        d = (float)(sum / (double)job->cols);
    }
    return d > 0.0f ? d : 0.0f;
}

/* The distances of the tile: 16 lanes, added in double one after the other. */
CUDA_INLINE void measure_sums(const napier_gap gap, const napier_near_job *job, tile *t, place *at,
                              float distance[PAIRS]) {
    double sums[PAIRS], others[PAIRS];
    at->column = at->asked = 0;
    ask(job, t, at);
    for (int lane = 0; lane < NAPIER_GAP_LANES; lane++) {
        float sum[PAIRS], other[PAIRS];
        measure_gaps(gap, job, t, at, lane, sum, other);
        NAPIER_UNROLL
        for (int i = 0; i < PAIRS; i++) {
            const double before = lane > 0 ? sums[i] : 0.0, largest = before > (double)sum[i] ? before : (double)sum[i];
            sums[i] = gap == NAPIER_GAP_LARGEST ? largest : before + (double)sum[i];
            others[i] = gap == NAPIER_GAP_RATIO ? (lane > 0 ? others[i] : 0.0) + (double)other[i] : 0.0;
        }
    }
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        distance[i] = distance_of(gap, job, at, i, sums[i], others[i]);
    }
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* An upper bound, safe for rounding, of the squared distances of pairs whose distance is at most `distance`. For
 * metrics without squared distances: the distance. */
CUDA_INLINE float reach_of(napier_points_kind kind, float distance) {
    if (kind == NAPIER_POINTS_GENERAL) {
        return distance;
    }
    if (kind == NAPIER_POINTS_HALF) {
        return 2.0f * distance + 0x1p-140f;
    }
    const float squared = distance * distance * (1.0f + 0x1p-20f) + 0x1p-140f;
    return kind == NAPIER_POINTS_HALF_ROOT ? 2.0f * squared : squared;
}

/* Inserts `near` into a sorted list if it is nearer than the last. The whole warp shifts 32 elements at a time, from
 * the far end. */
CUDA_INLINE void insert(uint64_t *list, int64_t wanted, uint64_t near) {
    if (near >= list[wanted - 1]) {
        return;
    }
    for (int64_t first = (wanted - 1) / CUDA_WARP * CUDA_WARP; first >= 0; first -= CUDA_WARP) {
        const int64_t i = first + warp_lane();
        const uint64_t held = i < wanted ? list[i] : NAPIER_NEAR_NONE;
        const uint32_t nearer = cuda_ballot(i < wanted && held < near);
        const int before = __builtin_popcount(nearer); /* they come first */
        if (warp_lane() >= before && i + 1 < wanted) {
            list[i + 1] = held;
        }
        __syncwarp();
        if (before > 0 || first == 0) {
            if (warp_lane() == 0) {
                list[first + before] = near;
            }
            break;
        }
    }
    __syncwarp();
}

/* Queues the pairs of a thread that may be near. */
CUDA_INLINE void queue_pairs(const napier_near_job *job, tile *t, const place *at, const float sum[PAIRS]) {
    NAPIER_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        const int query = at->own_query + i / SHARE;
        const int64_t sample = at->sample + at->own_sample + i % SHARE;
        const bool other = !job->self || sample != at->query + query;
        if (sum[i] <= t->within[query] && sample < job->samples.n && other) {
            const float distance = job->kind == NAPIER_POINTS_GENERAL ? sum[i] : napier_from_squared(job->kind, sum[i]);
            const int32_t room = cuda_atomic_add_i32(&t->queued[query], 1);
            t->u.queue[query][room] = napier_near_of(distance, (uint32_t)sample);
        }
    }
}

/* A warp takes every eighth query and inserts its queued pairs into its list. */
CUDA_INLINE void take_queued(const napier_near_job *job, tile *t, const place *at, uint64_t *lists) {
    for (int q = (int)threadIdx.x / CUDA_WARP; q < TILE; q += NAPIER_NEAR_THREADS / CUDA_WARP) {
        const int32_t count = t->queued[q];
        if (count > 0) {
            uint64_t *const list = lists + (at->query + q) * job->wanted;
            for (int32_t i = 0; i < count; i++) {
                insert(list, job->wanted, t->u.queue[q][i]);
            }
            const uint64_t last = list[job->wanted - 1];
            __syncwarp();
            if (warp_lane() == 0) {
                t->queued[q] = 0;
                t->within[q] = last == NAPIER_NEAR_NONE ? INFINITY : reach_of(job->kind, napier_near_distance(last));
            }
        }
    }
}

/* Empties the lists. Beyond the last query, nothing counts as near. */
CUDA_INLINE void begin_queries(const napier_near_job *job, tile *t, const place *at, uint64_t *lists) {
    for (int q = (int)threadIdx.x; q < TILE; q += NAPIER_NEAR_THREADS) {
        t->queued[q] = 0;
        t->within[q] = at->query + q < job->queries.n ? INFINITY : -1.0f;
    }
    const int64_t end = at->query + TILE < job->queries.n ? at->query + TILE : job->queries.n;
    for (int64_t i = at->query * job->wanted + threadIdx.x; i < end * job->wanted; i += NAPIER_NEAR_THREADS) {
        lists[i] = NAPIER_NEAR_NONE;
    }
    __syncthreads();
}

/* A block per tile of queries and split of the samples: split s takes every splits-th tile of samples. */
CUDA_INLINE void nearest(const napier_gap gap, const napier_near_job *job, tile *t) {
    const int lane = warp_lane(), warp = (int)threadIdx.x / CUDA_WARP;
    const int64_t tiles = (job->queries.n + TILE - 1) / TILE;
    for (int64_t block = blockIdx.x; block < tiles * job->splits; block += gridDim.x) {
        const int64_t split = block / tiles;
        uint64_t *const lists = job->nearest + split * job->queries.n * job->wanted;
        place at = {
            block % tiles * TILE, 0, (lane / 8 + warp / 2 * 4) * SHARE, (lane % 8 + warp % 2 * 8) * SHARE, 0, 0};
        begin_queries(job, t, &at, lists);
        for (at.sample = split * TILE; at.sample < job->samples.n; at.sample += (int64_t)job->splits * TILE) {
            float sum[PAIRS];
            if (gap == NAPIER_GAP_EUCLIDEAN) {
                measure(job, t, &at, sum);
            } else {
                measure_sums(gap, job, t, &at, sum);
            }
            __syncthreads(); /* the stored sums and the queue share memory */
            queue_pairs(job, t, &at, sum);
            __syncthreads();
            take_queued(job, t, &at, lists);
            __syncthreads();
        }
    }
}

static_assert(sizeof(tile) == NAPIER_NEAR_SHARED, "what the host asks for");

#define NAPIER_NEAREST_KERNEL(name, gap, bound) \
    CUDA_KERNEL(name, napier_near_job, bound) { \
        CUDA_SHARED(tile, t);                   \
        nearest(gap, &job, t);                  \
    }

NAPIER_NEAREST_KERNEL(napier_umap_nearest_squared_kernel, NAPIER_GAP_EUCLIDEAN, NAPIER_NEAR_BOUND)
NAPIER_NEAREST_KERNEL(napier_umap_nearest_plain_kernel, NAPIER_GAP_PLAIN, NAPIER_NEAR_BOUND)
NAPIER_NEAREST_KERNEL(napier_umap_nearest_largest_kernel, NAPIER_GAP_LARGEST, NAPIER_NEAR_BOUND)
NAPIER_NEAREST_KERNEL(napier_umap_nearest_canberra_kernel, NAPIER_GAP_CANBERRA, NAPIER_NEAR_BOUND)
NAPIER_NEAREST_KERNEL(napier_umap_nearest_ratio_kernel, NAPIER_GAP_RATIO, NAPIER_NEAR_THREADS) /* two sums a pair */
NAPIER_NEAREST_KERNEL(napier_umap_nearest_unequal_kernel, NAPIER_GAP_UNEQUAL, NAPIER_NEAR_BOUND)
NAPIER_NEAREST_KERNEL(napier_umap_nearest_counts_kernel, NAPIER_GAP_COUNTS, NAPIER_NEAR_BOUND)

/* ---- The result -------------------------------------------------------------------------------------------------- */

/* A warp per query: merges the lists of the splits and writes the result. */
CUDA_KERNEL(napier_umap_neighbors_kernel, napier_near_job, NAPIER_NEAR_THREADS) {
    for (int64_t q = grid_warp(); q < job.queries.n; q += grid_warps()) {
        uint64_t *const list = job.nearest + q * job.wanted;
        for (int split = 1; split < job.splits; split++) {
            const uint64_t *const other = list + split * job.queries.n * job.wanted;
            for (int64_t i = 0; i < job.wanted && other[i] != NAPIER_NEAR_NONE; i++) {
                insert(list, job.wanted, other[i]);
            }
        }
        const int own = job.self ? 1 : 0;
        int32_t *const indices = job.indices + q * (job.wanted + own);
        float *const distances = job.distances + q * (job.wanted + own);
        const bool bad = job.state->bad != 0;
        for (int64_t i = warp_lane(); i < job.wanted + own; i += CUDA_WARP) {
            const uint64_t near = i < own ? napier_near_of(0.0f, (uint32_t)q) : list[i - own];
            const float distance = napier_near_distance(near);
            const bool over = near != NAPIER_NEAR_NONE && !napier_is_finite(distance);
            indices[i] = bad || over || near == NAPIER_NEAR_NONE ? -1 : (int32_t)napier_near_index(near);
            distances[i] = bad || over ? a_nan() : distance;
            if (over && !bad) {
                napier_cuda_note_fault(job.faults, NAPIER_FAULT_VALUES, q * job.cols);
            }
        }
    }
}
