/* umap/fuzzy.c - the fuzzy simplicial set: from distances of neighbours to a symmetric weighted graph.
 *
 *   rho_i    the distance of the nearest neighbour that counts as connected
 *   sigma_i  sum_j exp(-max(0, d_ij - rho_i) / sigma_i) = log2(n_neighbors), the first neighbour (itself) left out
 *   a_ij     exp(-max(0, d_ij - rho_i) / sigma_i)
 *   W        mix (A + A' - A.A') + (1 - mix) A.A'
 *
 * Sigma is found by bisection on many rows at once: each round takes the exponentials of all rows that are not done yet in
 * one call of the vector kernel. A row's own sums run in order, in double, so it does not matter which rows share a round.
 * Source: McInnes, Healy and Melville, 2018, algorithms 2 and 3. */
#include <math.h>
#include <string.h>

#include <napier/umap.h>

#include "base/fenv.h"
#include "base/parallel.h"
#include "isa/kernels.h"
#include "math/f64.h"
#include "umap/fuzzy.h"
#include "umap/graph.h"

enum { BISECTIONS = 64, ROW_CHUNK = 512, ROUND_FLOATS = 4096, SUM_BLOCK = 65536 };
#define TOLERANCE 1e-5
#define LEAST_SHARE 1e-3 /* of the mean distance: the least sigma */

/* ---- Checks -------------------------------------------------------------------------------------------------------- */

typedef struct row_faults {
    const float *distances;
    const int32_t *indices;
    int64_t n, k;
    uint8_t *marks; /* per chunk: 1 if it has a fault */
} row_faults;

/* The first column of a row that cannot be, or -1. */
static int64_t fault_of_row(const row_faults *t, int64_t i) {
    const float *d = t->distances + i * t->k;
    for (int64_t j = 0; j < t->k; j++) {
        if (!(d[j] >= 0.0f) || (j > 0 && d[j] < d[j - 1])) {
            return j;
        }
        if (t->indices) {
            const int32_t target = t->indices[i * t->k + j];
            if (target < -1 || target >= t->n || (target >= 0 && isinf(d[j]))) {
                return j;
            }
        }
    }
    return -1;
}

static void mark_faults(void *argument, int worker, int64_t begin, int64_t end) {
    const row_faults *t = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (fault_of_row(t, i) >= 0) {
            t->marks[i / ROW_CHUNK] = 1;
        }
    }
}

static napier_status check_shape(napier_context *context, const void *distances, int64_t n, int64_t n_neighbors) {
    if (n < 0 || n >= (int64_t)1 << 31) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "n: %lld points are not 0 to 2^31 - 1", (long long)n);
    }
    if (n_neighbors < 1 || n_neighbors >= (int64_t)1 << 31) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "n_neighbors: %lld is not 1 to 2^31 - 1",
                           (long long)n_neighbors);
    }
    if (n > 0 && !distances) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "distances: NULL");
    }
    return NAPIER_OK;
}

static napier_status check_rows(napier_context *context, const int32_t *indices, const float *distances, int64_t n,
                                int64_t k) {
    const int64_t chunks = n / ROW_CHUNK + 1;
    row_faults t = {distances, indices, n, k, napier_alloc(&context->allocator, (size_t)chunks, 1)};
    if (!t.marks) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "distances: no memory for %lld marks", (long long)chunks);
    }
    memset(t.marks, 0, (size_t)chunks);
    napier_parallel(context, n, ROW_CHUNK, mark_faults, &t);
    int64_t row = -1, column = -1;
    for (int64_t c = 0; c < chunks && column < 0; c++) {
        for (int64_t i = c * ROW_CHUNK; t.marks[c] && i < n && i < (c + 1) * ROW_CHUNK && column < 0; i++) {
            row = i;
            column = fault_of_row(&t, i);
        }
    }
    napier_free(&context->allocator, t.marks);
    if (column < 0) {
        return NAPIER_OK;
    }
    const int64_t at = row * k + column;
    if (indices && (indices[at] < -1 || indices[at] >= n)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "indices: neighbour %lld of row %lld is %ld, of %lld points", (long long)column,
                           (long long)row, (long)indices[at], (long long)n);
    }
    return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                       "distances: neighbour %lld of row %lld is at %g: not a finite, ascending distance of at least 0",
                       (long long)column, (long long)row, (double)distances[at]);
}

/* ---- Rho and sigma ------------------------------------------------------------------------------------------------- */

typedef struct smooth_task {
    const napier_math_kernels *math;
    const float *distances;
    int64_t n, k;
    double local_connectivity;
    double target; /* log2(k) */
    double mean;   /* of all distances */
    float *rhos, *sigmas;
    float *scratch; /* per worker: gaps and terms of a round */
    int64_t scratch_floats;
} smooth_task;

/* The number of distances that are finite: they are sorted. */
static int64_t finite_count(const float *d, int64_t k) {
    while (k > 0 && isinf(d[k - 1])) {
        k--;
    }
    return k;
}

/* Between the two neighbours at either side of local_connectivity, among those not at distance 0. */
static float rho_of(const float *d, int64_t count, double local_connectivity) {
    int64_t first = 0;
    while (first < count && !(d[first] > 0.0f)) {
        first++;
    }
    const int64_t apart = count - first;
    if ((double)apart < local_connectivity) {
        return apart > 0 ? d[count - 1] : 0.0f;
    }
    const int64_t whole = (int64_t)local_connectivity;
    const double part = local_connectivity - (double)whole;
    const float *away = d + first;
    if (whole == 0) {
        return apart > 0 ? (float)(part * (double)away[0]) : 0.0f;
    }
    double rho = (double)away[whole - 1];
    if (part > TOLERANCE) {
        rho += part * ((double)away[whole] - rho);
    }
    return (float)rho;
}

/* One row's search. */
typedef struct bisection {
    double low, high, middle; /* high 0: none yet */
    int64_t row, count;       /* finite distances, the first left out */
    int left;                 /* rounds */
} bisection;

static bisection bisection_of(int64_t row, const float *d, int64_t count) {
    /* 1 to begin with, as the reference has it, which 64 halvings or doublings bring to any usual scale */
    bisection b = {0.0, 0.0, 1.0, row, count > 1 ? count - 1 : 0, BISECTIONS};
    const double scale = (double)d[count > 0 ? count - 1 : 0];
    if (count > 0 && scale > 0.0 && (scale < 0x1p-40 || scale > 0x1p40)) {
        b.middle = scale;
    }
    return b;
}

/* False when the search is over. */
static int bisect(bisection *b, double sum, double target) {
    if (fabs(sum - target) < TOLERANCE) {
        return 0;
    }
    if (sum > target) {
        b->high = b->middle;
        b->middle = 0.5 * (b->low + b->high);
    } else {
        b->low = b->middle;
        b->middle = b->high > 0.0 ? 0.5 * (b->low + b->high) : 2.0 * b->middle;
    }
    return --b->left > 0;
}

static float sigma_of(const smooth_task *t, const bisection *b, float rho) {
    const float *d = t->distances + b->row * t->k;
    const int64_t count = finite_count(d, t->k);
    double mean = t->mean;
    if (rho > 0.0f) {
        mean = 0.0;
        for (int64_t j = 0; j < count; j++) {
            mean += (double)d[j];
        }
        mean /= (double)count;
    }
    const double least = LEAST_SHARE * mean;
    return (float)(b->middle < least ? least : b->middle);
}

/* Bisections side by side; gaps lie one row after the other. */
static void search(const smooth_task *t, bisection *all, int64_t rows, float *gaps, float *terms) {
    int64_t open = rows;
    while (open > 0) {
        int64_t floats = 0;
        for (int64_t r = 0; r < open; r++) {
            const float factor = (float)(-1.0 / all[r].middle);
            const int64_t end = floats + all[r].count;
            for (; floats < end; floats++) {
                terms[floats] = gaps[floats] > 0.0f ? gaps[floats] * factor : 0.0f;
            }
        }
        t->math->exp_f32(terms, terms, floats);
        int64_t kept = 0, from = 0, to = 0;
        for (int64_t r = 0; r < open; r++) {
            const int64_t count = all[r].count;
            double sum = 0.0;
            for (int64_t j = 0; j < count; j++) {
                sum += (double)terms[from + j];
            }
            if (bisect(&all[r], sum, t->target)) {
                memmove(gaps + to, gaps + from, (size_t)count * sizeof *gaps);
                to += count;
                all[kept++] = all[r];
            } else {
                t->sigmas[all[r].row] = sigma_of(t, &all[r], t->rhos[all[r].row]);
            }
            from += count;
        }
        open = kept;
    }
}

enum { ROUND_ROWS = 256 };

static void smooth_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const smooth_task *t = argument;
    float *gaps = t->scratch + worker * t->scratch_floats, *terms = gaps + t->scratch_floats / 2;
    bisection all[ROUND_ROWS];
    for (int64_t i = begin; i < end;) {
        int64_t rows = 0, floats = 0;
        for (; i < end && rows < ROUND_ROWS && floats + t->k <= t->scratch_floats / 2; i++, rows++) {
            const float *d = t->distances + i * t->k;
            const int64_t count = finite_count(d, t->k);
            const float rho = rho_of(d, count, t->local_connectivity);
            t->rhos[i] = rho;
            all[rows] = bisection_of(i, d, count);
            for (int64_t j = 1; j < count; j++) {
                gaps[floats++] = d[j] - rho;
            }
        }
        search(t, all, rows, gaps, terms);
    }
}

typedef struct sum_task {
    const float *x;
    double *sums;
    int64_t *counts;
} sum_task;

static void sum_blocks(void *argument, int worker, int64_t begin, int64_t end) {
    const sum_task *t = argument;
    (void)worker;
    for (int64_t block = begin / SUM_BLOCK; block * SUM_BLOCK < end; block++) {
        const int64_t first = block * SUM_BLOCK, last = first + SUM_BLOCK < end ? first + SUM_BLOCK : end;
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t i = first; i < last; i++) {
            if (!isinf(t->x[i])) {
                sum += (double)t->x[i];
                count++;
            }
        }
        t->sums[block] = sum;
        t->counts[block] = count;
    }
}

/* Of the finite ones, by blocks. */
static napier_status mean_of(napier_context *context, const float *x, int64_t n, double *mean) {
    const size_t blocks = (size_t)(n / SUM_BLOCK + 1);
    sum_task t = {x, napier_alloc(&context->allocator, blocks, sizeof(double)),
                  napier_alloc(&context->allocator, blocks, sizeof(int64_t))};
    napier_status status = NAPIER_OK;
    if (!t.sums || !t.counts) {
        status = napier_fail(context, NAPIER_OUT_OF_MEMORY, "distances: no memory for %lu sums", (unsigned long)blocks);
    } else {
        napier_parallel(context, n, SUM_BLOCK, sum_blocks, &t);
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t block = 0; block * SUM_BLOCK < n; block++) {
            sum += t.sums[block];
            count += t.counts[block];
        }
        *mean = count > 0 ? sum / (double)count : 0.0;
    }
    napier_free(&context->allocator, t.sums);
    napier_free(&context->allocator, t.counts);
    return status;
}

static napier_status smooth(napier_context *context, const float *distances, int64_t n, int64_t k,
                            double local_connectivity, float *rhos, float *sigmas) {
    const int workers = napier_workers(context, n, ROW_CHUNK);
    const napier_fenv saved = napier_fenv_enter();
    const int64_t half = k > ROUND_FLOATS ? k : ROUND_FLOATS;
    smooth_task t = {.math = &napier_kernels_of(context->isa)->math,
                     .distances = distances,
                     .n = n,
                     .k = k,
                     .local_connectivity = local_connectivity,
                     .target = napier_f64_log((double)k) / napier_f64_log(2.0),
                     .rhos = rhos,
                     .sigmas = sigmas,
                     .scratch_floats = 2 * half};
    napier_status status = mean_of(context, distances, n * k, &t.mean);
    napier_fenv_leave(saved);
    if (status) {
        return status;
    }
    t.scratch = napier_alloc(&context->allocator, (size_t)workers, (size_t)t.scratch_floats * sizeof *t.scratch);
    if (!t.scratch) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "distances: no scratch for %d workers", workers);
    }
    napier_parallel(context, n, ROW_CHUNK, smooth_rows, &t);
    napier_free(&context->allocator, t.scratch);
    return NAPIER_OK;
}

static napier_status check_connectivity(napier_context *context, double local_connectivity) {
    if (!(local_connectivity >= 0.0) || !(local_connectivity < 0x1p31)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "local_connectivity: %g is not a finite number from 0 on",
                           local_connectivity);
    }
    return NAPIER_OK;
}

napier_status napier_umap_smooth_knn_dist(napier_context *context, const float *distances, int64_t n,
                                          int64_t n_neighbors, double local_connectivity, float *rhos, float *sigmas) {
    napier_status status = napier_begin(context);
    if (!status)
        status = check_shape(context, distances, n, n_neighbors);
    if (!status)
        status = check_connectivity(context, local_connectivity);
    if (!status && n > 0 && (!rhos || !sigmas))
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: NULL", rhos ? "sigmas" : "rhos");
    if (!status)
        status = check_rows(context, NULL, distances, n, n_neighbors);
    if (!status)
        status = smooth(context, distances, n, n_neighbors, local_connectivity, rhos, sigmas);
    return status;
}

/* ---- Directed memberships ------------------------------------------------------------------------------------------ */

typedef struct member_task {
    const napier_math_kernels *math;
    const int32_t *indices;
    const float *distances, *rhos, *sigmas;
    int64_t k;
    int64_t *counts;   /* [n] memberships of a row */
    uint32_t *targets; /* [n, k], ascending within a row */
    float *weights;
    uint8_t *repeats; /* per chunk: a row names a neighbour twice */
} member_task;

/* Ascending by target: rows are short, and nearly any order will do. */
static void sort_row(uint32_t *targets, float *weights, int64_t count) {
    for (int64_t gap = count / 2; gap > 0; gap /= 2) {
        for (int64_t i = gap; i < count; i++) {
            const uint32_t target = targets[i];
            const float weight = weights[i];
            int64_t at = i;
            for (; at >= gap && targets[at - gap] > target; at -= gap) {
                targets[at] = targets[at - gap];
                weights[at] = weights[at - gap];
            }
            targets[at] = target;
            weights[at] = weight;
        }
    }
}

static void member_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const member_task *t = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *d = t->distances + i * t->k;
        uint32_t *targets = t->targets + i * t->k;
        float *weights = t->weights + i * t->k;
        const float factor = (float)(-1.0 / (double)t->sigmas[i]), rho = t->rhos[i];
        int64_t count = 0;
        for (int64_t j = 0; j < t->k; j++) {
            const int32_t target = t->indices[i * t->k + j];
            if (target >= 0 && target != i && !isinf(d[j])) {
                const float gap = d[j] - rho;
                targets[count] = (uint32_t)target;
                weights[count++] = gap > 0.0f && t->sigmas[i] > 0.0f ? gap * factor : 0.0f;
            }
        }
        t->math->exp_f32(weights, weights, count);
        sort_row(targets, weights, count);
        for (int64_t e = 1; e < count; e++) {
            if (targets[e] == targets[e - 1]) {
                t->repeats[i / ROW_CHUNK] = 1;
            }
        }
        t->counts[i] = count;
    }
}

/* ---- A and A' joined ------------------------------------------------------------------------------------------------ */

/* mix (a + b - ab) + (1 - mix) ab, in double: with a = 1 or b = 1 and mix 1 it is 1, never more. */
static float joined(double a, double b, double mix) {
    const double both = a * b;
    return (float)(mix == 1.0 ? (a + b) - both : mix * ((a + b) - both) + (1.0 - mix) * both);
}

typedef struct join_task {
    const napier_umap_graph *a, *b; /* b: a reversed */
    double mix;
    int64_t *starts;
    uint32_t *targets; /* NULL: only count */
    float *weights;
} join_task;

static void join_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const join_task *t = argument;
    const napier_umap_graph *a = t->a, *b = t->b;
    (void)worker;
    for (int64_t v = begin; v < end; v++) {
        int64_t left = a->starts[v], right = b->starts[v];
        int64_t at = t->targets ? t->starts[v] : 0;
        while (left < a->starts[v + 1] || right < b->starts[v + 1]) {
            const uint32_t l = left < a->starts[v + 1] ? a->targets[left] : UINT32_MAX;
            const uint32_t r = right < b->starts[v + 1] ? b->targets[right] : UINT32_MAX;
            const uint32_t target = l < r ? l : r;
            const double forth = l <= r ? (double)a->weights[left++] : 0.0;
            const double back = r <= l ? (double)b->weights[right++] : 0.0;
            const float weight = joined(forth, back, t->mix);
            if (weight > 0.0f && target != v) {
                if (t->targets) {
                    t->targets[at] = target;
                    t->weights[at] = weight;
                }
                at++;
            }
        }
        if (!t->targets) {
            t->starts[v + 1] = at;
        }
    }
}

napier_status napier_umap_graph_union(napier_context *context, const napier_umap_graph *graph, double mix,
                                      napier_umap_graph **out) {
    napier_umap_graph *reversed = NULL;
    *out = NULL;
    napier_status status = napier_umap_graph_reversed(context, graph, &reversed);
    if (status) {
        return status;
    }
    int64_t *starts = napier_alloc(&context->allocator, (size_t)graph->n + 1, sizeof *starts);
    join_task t = {graph, reversed, mix, starts, NULL, NULL};
    if (!starts) {
        status = napier_fail(context, NAPIER_OUT_OF_MEMORY, "graph: no memory for %lld vertices", (long long)graph->n);
    } else {
        starts[0] = 0;
        napier_parallel(context, graph->n, ROW_CHUNK, join_rows, &t);
        for (int64_t v = 0; v < graph->n; v++) {
            starts[v + 1] += starts[v];
        }
        status = napier_umap_graph_create(context, graph->n, starts[graph->n], out);
    }
    if (!status) {
        memcpy((*out)->starts, starts, ((size_t)graph->n + 1) * sizeof *starts);
        t.targets = (*out)->targets;
        t.weights = (*out)->weights;
        napier_parallel(context, graph->n, ROW_CHUNK, join_rows, &t);
    }
    napier_free(&context->allocator, starts);
    napier_umap_graph_destroy(context, reversed);
    return status;
}

/* ---- The set -------------------------------------------------------------------------------------------------------- */

/* Rows [n, k] of which the first counts[i] are set, closed up: in place, since nothing moves to the right. */
static void close_up(napier_umap_graph *graph, int64_t k) {
    int64_t to = 0;
    for (int64_t i = 0; i < graph->n; i++) {
        const int64_t count = graph->starts[i];
        memmove(graph->targets + to, graph->targets + i * k, (size_t)count * sizeof *graph->targets);
        memmove(graph->weights + to, graph->weights + i * k, (size_t)count * sizeof *graph->weights);
        graph->starts[i] = to;
        to += count;
    }
    graph->starts[graph->n] = to;
}

static napier_status refuse_repeats(napier_context *context, const member_task *t, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t e = 1; t->repeats[i / ROW_CHUNK] && e < t->counts[i]; e++) {
            if (t->targets[i * t->k + e] == t->targets[i * t->k + e - 1]) {
                return napier_fail(context, NAPIER_INVALID_ARGUMENT, "indices: row %lld has neighbour %lu twice",
                                   (long long)i, (unsigned long)t->targets[i * t->k + e]);
            }
        }
    }
    return NAPIER_OK;
}

napier_status napier_umap_directed_set(napier_context *context, const int32_t *indices, const float *distances,
                                       int64_t n, int64_t k, double local_connectivity, napier_umap_graph **out) {
    const size_t rows = n > 0 ? (size_t)n : 1, chunks = (size_t)(n / ROW_CHUNK + 1);
    *out = NULL;
    if (n > 0 && k > INT64_MAX / 16 / n) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "indices: %lld x %lld do not fit", (long long)n,
                           (long long)k);
    }
    napier_status status = napier_umap_graph_create(context, n, n * k, out);
    if (status) {
        return status;
    }
    float *rhos = napier_alloc(&context->allocator, rows, 2 * sizeof *rhos);
    uint8_t *repeats = napier_alloc(&context->allocator, chunks, 1);
    if (!rhos || !repeats) {
        status = napier_fail(context, NAPIER_OUT_OF_MEMORY, "graph: no memory for %lld scales", (long long)n);
    } else {
        status = smooth(context, distances, n, k, local_connectivity, rhos, rhos + rows);
    }
    if (!status) {
        memset(repeats, 0, chunks);
        napier_umap_graph *graph = *out;
        member_task t = {.math = &napier_kernels_of(context->isa)->math,
                         .indices = indices,
                         .distances = distances,
                         .rhos = rhos,
                         .sigmas = rhos + rows,
                         .k = k,
                         .counts = graph->starts,
                         .targets = graph->targets,
                         .weights = graph->weights,
                         .repeats = repeats};
        napier_parallel(context, n, ROW_CHUNK, member_rows, &t);
        status = refuse_repeats(context, &t, n);
        if (!status) {
            close_up(graph, k);
        }
    }
    napier_free(&context->allocator, rhos);
    napier_free(&context->allocator, repeats);
    if (status) {
        napier_umap_graph_destroy(context, *out);
        *out = NULL;
    }
    return status;
}

napier_status napier_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices, const float *distances,
                                               int64_t n, int64_t n_neighbors, double local_connectivity,
                                               double set_op_mix_ratio, napier_umap_graph **out) {
    napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    if (!out) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "out: NULL");
    }
    *out = NULL;
    status = check_shape(context, distances, n, n_neighbors);
    if (!status && n > 0 && !indices)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "indices: NULL");
    if (!status)
        status = check_connectivity(context, local_connectivity);
    if (!status && !(set_op_mix_ratio >= 0.0 && set_op_mix_ratio <= 1.0))
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "set_op_mix_ratio: %g is not 0 to 1", set_op_mix_ratio);
    if (!status)
        status = check_rows(context, indices, distances, n, n_neighbors);
    napier_umap_graph *directed = NULL;
    if (!status)
        status = napier_umap_directed_set(context, indices, distances, n, n_neighbors, local_connectivity, &directed);
    if (!status)
        status = napier_umap_graph_union(context, directed, set_op_mix_ratio, out);
    napier_umap_graph_destroy(context, directed);
    return status;
}
