/* umap/graph/fuzzy.c - the fuzzy simplicial set: from distances of neighbours to a symmetric weighted graph.
 *
 *   rho_i    the distance of the neighbour number local_connectivity
 *   sigma_i  sum_j exp(-max(0, d_ij - rho_i) / sigma_i) = log2(n_neighbors), without the first neighbour (itself)
 *   a_ij     exp(-max(0, d_ij - rho_i) / sigma_i)
 *   W        mix (A + A' - A.A') + (1 - mix) A.A'
 *
 * Sigma is found by bisection on many rows at once: each round computes the exponentials of all unfinished rows in one
 * call of the vector kernel. The sums of a row are in order, in double, so they do not depend on which rows share a
 * round.
 * Source: McInnes, Healy and Melville, 2018, algorithms 2 and 3. */
#include <math.h>
#include <string.h>

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/isa/umap_kernels.h"
#include "core/math/f64.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"
#include "umap/graph/smooth.h"

enum { ROW_CHUNK = 512, ROUND_FLOATS = 4096, SUM_BLOCK = NAPIER_MEAN_BLOCK };

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

typedef struct rows_check {
    const float *distances;
    const int32_t *indices; /* or NULL */
    int64_t n, k;
} rows_check;

/* The first invalid column of a row, or -1. */
static int64_t fault_of_row(const rows_check *t, int64_t i) {
    return napier_smooth_fault(t->distances + i * t->k, t->indices ? t->indices + i * t->k : NULL, t->k, t->n);
}

static bool has_fault(void *argument, int64_t i) { return fault_of_row(argument, i) >= 0; }

napier_status napier_umap_check_knn(napier_context *context, const void *distances, int64_t n, int64_t n_neighbors) {
    NAPIER_REFUSE_IF(context, n < 0 || n >= (int64_t)1 << 31, "n: %lld points are not 0 to 2^31 - 1", (long long)n);
    NAPIER_REFUSE_IF(context, n_neighbors < 1 || n_neighbors >= (int64_t)1 << 31,
                     "n_neighbors: %lld is not 1 to 2^31 - 1", (long long)n_neighbors);
    NAPIER_REFUSE_IF(context, n > 0 && !distances, "distances: NULL");
    return NAPIER_OK;
}

static napier_status check_rows(napier_context *context, const int32_t *indices, const float *distances, int64_t n,
                                int64_t k) {
    rows_check t = {distances, indices, n, k};
    const int64_t row = napier_parallel_find(context, n, ROW_CHUNK, has_fault, &t);
    if (row < 0) {
        return NAPIER_OK;
    }
    const int64_t column = fault_of_row(&t, row);
    const int64_t at = row * k + column;
    NAPIER_REFUSE_IF(context, indices && (indices[at] < -1 || indices[at] >= n),
                     "indices: neighbour %lld of row %lld is %ld, of %lld points%s", (long long)column, (long long)row,
                     (long)indices[at], (long long)n, indices[at] == n ? ": they count from 0, not 1" : "");
    return napier_fail(
        context, NAPIER_INVALID_ARGUMENT,
        "distances: neighbour %lld of row %lld is at %g: not a finite, ascending distance of at least 0%s",
        (long long)column, (long long)row, (double)distances[at],
        column > 0 && distances[at] < distances[at - 1] ? " (are these similarities?)" : "");
}

/* ---- Rho and sigma ----------------------------------------------------------------------------------------------- */

typedef struct smooth_task {
    const napier_math_kernels *math;
    const float *distances;
    int64_t n, k;
    double local_connectivity;
    double target; /* log2(k) */
    double mean;   /* of all distances */
    float *rhos, *sigmas;
    float *scratch; /* per worker: the gaps and terms of one round */
    int64_t scratch_floats;
} smooth_task;

/* Runs the bisections of several rows together. The gaps of the rows are contiguous. */
static void search(const smooth_task *t, napier_bisection *all, int64_t rows, float *gaps, float *terms) {
    int64_t open = rows;
    while (open > 0) {
        int64_t floats = 0;
        for (int64_t r = 0; r < open; r++) {
            const float factor = (float)(-1.0 / all[r].middle);
            const int64_t end = floats + all[r].count;
            for (; floats < end; floats++) {
                terms[floats] = napier_smooth_exponent(gaps[floats], factor);
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
            if (napier_bisect(&all[r], sum, t->target)) {
                memmove(gaps + to, gaps + from, (size_t)count * sizeof *gaps);
                to += count;
                all[kept++] = all[r];
            } else {
                const int64_t row = all[r].row;
                t->sigmas[row] = napier_smooth_sigma(&all[r], t->distances + row * t->k, t->k, t->rhos[row], t->mean);
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
    napier_bisection all[ROUND_ROWS];
    for (int64_t i = begin; i < end;) {
        int64_t rows = 0, floats = 0;
        for (; i < end && rows < ROUND_ROWS && floats + t->k <= t->scratch_floats / 2; i++, rows++) {
            const float *d = t->distances + i * t->k;
            const int64_t count = napier_smooth_count(d, t->k);
            const float rho = napier_smooth_rho(d, count, t->local_connectivity);
            t->rhos[i] = rho;
            all[rows] = napier_bisection_of(i, d, count);
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

/* The mean of the finite values, summed by blocks. */
static napier_status mean_of(napier_context *context, const float *x, int64_t n, double *mean) {
    const int64_t blocks = n / SUM_BLOCK + 1;
    NAPIER_MEMORY(memory, context);
    sum_task t = {x, napier_take(&memory, blocks, sizeof(double)), napier_take(&memory, blocks, sizeof(int64_t))};
    NAPIER_TRY(napier_taken(&memory, "distances: no memory for %lld sums", (long long)blocks));
    napier_parallel(context, n, SUM_BLOCK, sum_blocks, &t);
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t block = 0; block * SUM_BLOCK < n; block++) {
        sum += t.sums[block];
        count += t.counts[block];
    }
    *mean = count > 0 ? sum / (double)count : 0.0;
    return NAPIER_OK;
}

static napier_status smooth(napier_context *context, const float *distances, int64_t n, int64_t k,
                            double local_connectivity, float *rhos, float *sigmas) {
    const int workers = napier_workers(context, n, ROW_CHUNK);
    smooth_task t = {.math = napier_umap_kernels_of(context->isa)->math,
                     .distances = distances,
                     .n = n,
                     .k = k,
                     .local_connectivity = local_connectivity,
                     .target = napier_f64_log((double)k) / napier_f64_log(2.0),
                     .rhos = rhos,
                     .sigmas = sigmas,
                     .scratch_floats = 2 * (k > ROUND_FLOATS ? k : ROUND_FLOATS)};
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(mean_of(context, distances, n * k, &t.mean));
    t.scratch = napier_take(&memory, workers, (size_t)t.scratch_floats * sizeof *t.scratch);
    NAPIER_TRY(napier_taken(&memory, "distances: no memory for the scratch of %d workers", workers));
    napier_parallel(context, n, ROW_CHUNK, smooth_rows, &t);
    return NAPIER_OK;
}

napier_status napier_umap_check_connectivity(napier_context *context, double local_connectivity) {
    NAPIER_REFUSE_IF(context, !(local_connectivity >= 0.0) || !(local_connectivity < 0x1p31),
                     "local_connectivity: %g is not a finite number from 0 on", local_connectivity);
    return NAPIER_OK;
}

static napier_status check_scales_apart(napier_context *context, const float *distances, int64_t n, int64_t n_neighbors,
                                        float *rhos, float *sigmas) {
    const napier_const_matrix read = napier_const_rows_f32(distances, n, n_neighbors);
    const napier_matrix first = napier_rows_f32(rhos, 1, n), second = napier_rows_f32(sigmas, 1, n);
    NAPIER_TRY(napier_umap_check_apart(context, "rhos", first, "distances", read));
    NAPIER_TRY(napier_umap_check_apart(context, "sigmas", second, "distances", read));
    return napier_umap_check_apart(context, "sigmas", second, "rhos", napier_read_only(first));
}

napier_status napier_umap_smooth_knn_dist(napier_context *context, const float *distances, int64_t n,
                                          int64_t n_neighbors, double local_connectivity, float *rhos, float *sigmas) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_knn(context, distances, n, n_neighbors));
    NAPIER_TRY(napier_umap_check_connectivity(context, local_connectivity));
    NAPIER_REFUSE_IF(context, n > 0 && (!rhos || !sigmas), "%s: NULL", rhos ? "sigmas" : "rhos");
    NAPIER_TRY(check_rows(context, NULL, distances, n, n_neighbors));
    NAPIER_TRY(check_scales_apart(context, distances, n, n_neighbors, rhos, sigmas));
    return smooth(context, distances, n, n_neighbors, local_connectivity, rhos, sigmas);
}

/* ---- Directed memberships ---------------------------------------------------------------------------------------- */

typedef struct member_task {
    const napier_math_kernels *math;
    const int32_t *indices;
    const float *distances, *rhos, *sigmas;
    int64_t k;
    int64_t *counts;   /* [n] memberships of a row */
    uint32_t *targets; /* [n, k], ascending within a row */
    float *weights;
} member_task;

/* Fills row i. Does it name a neighbour twice? */
static bool fill_row(void *argument, int64_t i) {
    const member_task *t = argument;
    uint32_t *targets = t->targets + i * t->k;
    float *weights = t->weights + i * t->k;
    const int64_t count = napier_members_of(i, t->indices + i * t->k, t->distances + i * t->k, t->k, t->rhos[i],
                                            t->sigmas[i], targets, weights);
    t->math->exp_f32(weights, weights, count);
    napier_sort_members(targets, weights, count);
    t->counts[i] = count;
    for (int64_t e = 1; e < count; e++) {
        if (targets[e] == targets[e - 1]) {
            return true;
        }
    }
    return false;
}

/* ---- The union of A and A' --------------------------------------------------------------------------------------- */

typedef struct join_task {
    const napier_umap_graph *a, *b; /* b: a reversed */
    double mix;
} join_task;

static int64_t join_row(const void *argument, int64_t v, uint32_t *targets, float *weights) {
    const join_task *t = argument;
    const napier_umap_graph *a = t->a, *b = t->b;
    const int64_t left = a->starts[v], right = b->starts[v];
    return napier_join_row(v, a->targets + left, a->weights + left, a->starts[v + 1] - left, b->targets + right,
                           b->weights + right, b->starts[v + 1] - right, t->mix, targets, weights);
}

napier_status napier_umap_graph_union(napier_context *context, const napier_umap_graph *graph, double mix,
                                      napier_umap_graph **out) {
    napier_umap_graph *reversed = NULL;
    NAPIER_MEMORY(memory, context);
    *out = NULL;
    NAPIER_TRY(napier_umap_graph_reversed(context, graph, &reversed));
    napier_keep(&memory, reversed);
    const join_task t = {graph, reversed, mix};
    return napier_umap_graph_of_rows(context, graph->n, join_row, &t, out);
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

/* Removes the gaps between rows [n, k] of which the first counts[i] elements are set. In place, because nothing moves
 * to the right. */
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

/* Fails for the first target that stands twice in row i. */
static napier_status refuse_repeat(napier_context *context, const uint32_t *targets, int64_t i) {
    int64_t e = 1;
    while (targets[e] != targets[e - 1]) {
        e++;
    }
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "indices: row %lld has neighbour %lu twice", (long long)i,
                       (unsigned long)targets[e]);
}

napier_status napier_umap_directed_set(napier_context *context, const int32_t *indices, const float *distances,
                                       int64_t n, int64_t k, double local_connectivity, napier_umap_graph **out) {
    napier_umap_graph *graph = NULL;
    NAPIER_MEMORY(memory, context);
    *out = NULL;
    if (n > 0 && k > INT64_MAX / 16 / n) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "indices: %lld x %lld do not fit", (long long)n,
                           (long long)k);
    }
    NAPIER_TRY(napier_umap_graph_create(context, n, n * k, &graph));
    napier_keep(&memory, graph);
    float *rhos = napier_take(&memory, n, 2 * sizeof *rhos);
    NAPIER_TRY(napier_taken(&memory, "graph: no memory for %lld scales", (long long)n));
    NAPIER_TRY(smooth(context, distances, n, k, local_connectivity, rhos, rhos + n));
    member_task t = {.math = napier_umap_kernels_of(context->isa)->math,
                     .indices = indices,
                     .distances = distances,
                     .rhos = rhos,
                     .sigmas = rhos + n,
                     .k = k,
                     .counts = graph->starts,
                     .targets = graph->targets,
                     .weights = graph->weights};
    const int64_t repeats = napier_parallel_find(context, n, ROW_CHUNK, fill_row, &t);
    if (repeats >= 0) {
        return refuse_repeat(context, graph->targets + repeats * k, repeats);
    }
    close_up(graph, k);
    *out = napier_let_go(&memory, graph);
    return NAPIER_OK;
}

napier_status napier_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices, const float *distances,
                                               int64_t n, int64_t n_neighbors, double local_connectivity,
                                               double set_op_mix_ratio, napier_umap_graph **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_TRY(napier_umap_check_knn(context, distances, n, n_neighbors));
    NAPIER_REFUSE_IF(context, n > 0 && !indices, "indices: NULL");
    NAPIER_TRY(napier_umap_check_connectivity(context, local_connectivity));
    NAPIER_REFUSE_IF(context, !(set_op_mix_ratio >= 0.0 && set_op_mix_ratio <= 1.0),
                     "set_op_mix_ratio: %g is not 0 to 1", set_op_mix_ratio);
    NAPIER_TRY(check_rows(context, indices, distances, n, n_neighbors));
    napier_umap_graph *directed = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_umap_directed_set(context, indices, distances, n, n_neighbors, local_connectivity, &directed));
    napier_keep(&memory, directed);
    return napier_umap_graph_union(context, directed, set_op_mix_ratio, out);
}
