/* umap/graph/supervised.c - combines the graph of the data with targets of the points, as umap-learn does.
 *
 * Categories: the weight of an edge between different categories is multiplied by exp(-far_dist), far_dist = 2.5 / (1 -
 * target_weight); that of an edge to a point of unknown category by exp(-unknown_dist), unknown_dist = 1.
 * Distances of the targets: the weight is multiplied by exp(-far_dist distance).
 * Numbers: the fuzzy set of the numbers, whose neighbours are found by sorting, meets that of the data (combine.c). A
 * number that is NaN is unknown, and edges to its point are weighed as those to a point of unknown category.
 * Afterwards local connectivity is restored. */
#include <math.h>
#include <string.h>

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "umap/graph/graph.h"

enum { ROW_CHUNK = 512 };

#define UNKNOWN_DIST 1.0
#define FAR_DIST 2.5
#define FAR_DIST_OF_ALL 1e12 /* target_weight 1: the categories decide */

static napier_status check_arguments(napier_context *context, napier_umap_graph **graph, const void *targets,
                                     const char *name, double target_weight) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !graph, "graph: NULL");
    NAPIER_TRY(napier_umap_check_graph(context, "graph", *graph));
    NAPIER_REFUSE_IF(context, (*graph)->n > 0 && !targets, "%s: NULL", name);
    NAPIER_REFUSE_IF(context, !(target_weight >= 0.0 && target_weight <= 1.0), "target_weight: %g is not 0 to 1",
                     target_weight);
    return NAPIER_OK;
}

/* ---- Categories and distances ------------------------------------------------------------------------------------ */

/* What the weight of each edge is multiplied by. */
typedef struct weighing {
    const napier_umap_graph *graph;
    const int32_t *categories; /* or NULL: */
    const float *distances;    /* of the edges */
    double far_dist, far,
        unknown; /* far: the factor of edges between categories; unknown: of those to an unknown one */
} weighing;

static double factor_of(const weighing *t, int64_t v, int64_t edge) {
    if (!t->categories) {
        return napier_f64_exp(-t->far_dist * (double)t->distances[edge]);
    }
    const int32_t own = t->categories[v], other = t->categories[t->graph->targets[edge]];
    return own < 0 || other < 0 ? t->unknown : own != other ? t->far : 1.0;
}

static int64_t weighed_row(const void *argument, int64_t v, uint32_t *targets, float *weights) {
    const weighing *t = argument;
    const int64_t first = t->graph->starts[v], count = t->graph->starts[v + 1] - first;
    for (int64_t e = 0; targets && e < count; e++) {
        targets[e] = t->graph->targets[first + e];
        weights[e] = (float)((double)t->graph->weights[first + e] * factor_of(t, v, first + e));
    }
    return count;
}

static napier_status weigh(napier_context *context, napier_umap_graph **graph, const int32_t *categories,
                           const float *distances, double target_weight) {
    const double far_dist = target_weight < 1.0 ? FAR_DIST / (1.0 - target_weight) : FAR_DIST_OF_ALL;
    const weighing t = {
        *graph, categories, distances, far_dist, napier_f64_exp(-far_dist), napier_f64_exp(-UNKNOWN_DIST)};
    napier_umap_graph *joint = NULL;
    NAPIER_TRY(napier_umap_graph_of_rows(context, (*graph)->n, weighed_row, &t, &joint));
    return napier_umap_reset_local_connectivity(context, joint, 0, graph);
}

napier_status napier_umap_join_categories(napier_context *context, napier_umap_graph **graph, const int32_t *categories,
                                          double target_weight) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(check_arguments(context, graph, categories, "categories", target_weight));
    return weigh(context, graph, categories, NULL, target_weight);
}

napier_status napier_umap_join_distances(napier_context *context, napier_umap_graph **graph, const float *distances,
                                         double target_weight) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(check_arguments(context, graph, distances, "distances", target_weight));
    const int64_t edges = napier_umap_graph_edges(*graph);
    for (int64_t e = 0; e < edges; e++) {
        NAPIER_REFUSE_IF(context, !(distances[e] >= 0.0f && distances[e] < INFINITY), "distances: element %lld is %g",
                         (long long)e, (double)distances[e]);
    }
    return weigh(context, graph, NULL, distances, target_weight);
}

/* ---- Neighbours on a line ---------------------------------------------------------------------------------------- */

typedef struct line_point {
    float x;
    int32_t index;
} line_point;

static int is_after(line_point a, line_point b) { return a.x > b.x || (a.x == b.x && a.index > b.index); }

/* Sorts by x, then index. Returns the array that holds the result. */
static line_point *sort_points(line_point *points, line_point *spare, int64_t n) {
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            const int64_t middle = begin + run < n ? begin + run : n, end = middle + run < n ? middle + run : n;
            int64_t left = begin, right = middle;
            for (int64_t i = begin; i < end; i++) {
                const int take_right = left >= middle || (right < end && is_after(points[left], points[right]));
                spare[i] = take_right ? points[right++] : points[left++];
            }
        }
        line_point *const other = points;
        points = spare;
        spare = other;
    }
    return points;
}

typedef struct line_task {
    const line_point *points; /* sorted */
    const int32_t *firsts;    /* for each position: the first position with the same x */
    int64_t n, k;
    int32_t *indices;
    float *distances;
} line_task;

/* A run of points of the same x, taken in order. Lower runs are to its left. */
typedef struct line_run {
    int64_t at, end;
} line_run;

static line_run run_below(const line_task *t, int64_t first) {
    return first > 0 ? (line_run){t->firsts[first - 1], first} : (line_run){0, 0};
}

static line_run run_above(const line_task *t, int64_t end) {
    line_run run = {end, end};
    while (run.end < t->n && run.end - end < t->k && t->points[run.end].x == t->points[end].x) {
        run.end++; /* at most k of them are needed */
    }
    return run;
}

/* Writes the k nearest of the point at `place`: itself, equal points, then points from below and above, nearest first,
 * ties broken by index. If there are fewer, the rest keeps its values. */
static void line_neighbors(void *argument, int64_t place) {
    const line_task *t = argument;
    const line_point own = t->points[place];
    int32_t *indices = t->indices + (int64_t)own.index * t->k;
    float *distances = t->distances + (int64_t)own.index * t->k;
    int64_t count = 0;
    indices[count] = own.index;
    distances[count++] = 0.0f;
    line_run here = {t->firsts[place], 0};
    here.end = run_above(t, place).end;
    for (int64_t i = here.at; i < here.end && count < t->k; i++) {
        if (i != place) {
            indices[count] = t->points[i].index;
            distances[count++] = 0.0f;
        }
    }
    line_run below = run_below(t, here.at), above = run_above(t, here.end);
    while (count < t->k) {
        const int any_below = below.at < below.end, any_above = above.at < above.end;
        const double down = any_below ? (double)own.x - (double)t->points[below.at].x : (double)INFINITY;
        const double up = any_above ? (double)t->points[above.at].x - (double)own.x : (double)INFINITY;
        if (!any_below && !any_above) {
            break;
        }
        const int take_below = any_below && (!any_above || down < up ||
                                             (down == up && t->points[below.at].index < t->points[above.at].index));
        const int64_t taken = take_below ? below.at++ : above.at++;
        indices[count] = t->points[taken].index;
        distances[count++] = (float)(take_below ? down : up);
        if (take_below && below.at == below.end) {
            below = run_below(t, t->firsts[below.end - 1]);
        }
        if (!take_below && above.at == above.end) {
            above = run_above(t, above.end);
        }
    }
}

/* The points whose number is known. */
static int64_t known_points(const float *numbers, int64_t n, line_point *points) {
    int64_t known = 0;
    for (int64_t i = 0; i < n; i++) {
        points[known] = (line_point){numbers[i], (int32_t)i};
        known += !isnan(numbers[i]);
    }
    return known;
}

static napier_status numbers_set(napier_context *context, const float *numbers, int64_t n, int64_t k,
                                 napier_umap_graph **out) {
    NAPIER_MEMORY(memory, context);
    line_point *points = napier_take(&memory, n, 2 * sizeof *points);
    int32_t *firsts = napier_take(&memory, n, sizeof *firsts);
    int32_t *indices = napier_take(&memory, n, (size_t)k * sizeof *indices);
    float *distances = napier_take(&memory, n, (size_t)k * sizeof *distances);
    NAPIER_TRY(napier_taken(&memory, "numbers: no memory for %lld x %lld neighbours", (long long)n, (long long)k));
    const int64_t known = known_points(numbers, n, points);
    const line_point *sorted = sort_points(points, points + n, known);
    for (int64_t i = 0; i < known; i++) {
        firsts[i] = i > 0 && sorted[i].x == sorted[i - 1].x ? firsts[i - 1] : (int32_t)i;
    }
    for (int64_t i = 0; i < n * k; i++) {
        indices[i] = -1;
        distances[i] = INFINITY;
    }
    line_task t = {sorted, firsts, known, k, indices, distances};
    napier_parallel_each(context, known, ROW_CHUNK, line_neighbors, &t);
    return napier_umap_directed_set(context, indices, distances, n, k, 1.0, out);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Weighs the edges from and to unknown numbers. `joint` has all edges of `left`, and of unknown points no others. */
static void weigh_unknown(const napier_umap_graph *left, const float *numbers, napier_umap_graph *joint) {
    const double unknown = napier_f64_exp(-UNKNOWN_DIST);
    for (int64_t v = 0, e = 0; v < left->n; v++) {
        for (int64_t j = joint->starts[v]; e < left->starts[v + 1]; j++) {
            const uint32_t target = joint->targets[j];
            if (target == left->targets[e]) {
                const bool is_unknown = isnan(numbers[v]) || isnan(numbers[target]);
                joint->weights[j] = is_unknown ? (float)((double)left->weights[e] * unknown) : joint->weights[j];
                e++;
            }
        }
    }
}

napier_status napier_umap_join_numbers(napier_context *context, napier_umap_graph **graph, const float *numbers,
                                       int64_t n_neighbors, double target_weight) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(check_arguments(context, graph, numbers, "numbers", target_weight));
    const int64_t n = (*graph)->n;
    NAPIER_REFUSE_IF(context, n_neighbors < 1, "n_neighbors: %lld is less than 1", (long long)n_neighbors);
    for (int64_t i = 0; i < n; i++) {
        NAPIER_REFUSE_IF(context, isinf(numbers[i]), "numbers: element %lld is %g", (long long)i, (double)numbers[i]);
    }
    if (n == 0) {
        return NAPIER_OK;
    }
    napier_umap_graph *right = NULL, *joint = NULL;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(numbers_set(context, numbers, n, n_neighbors < n ? n_neighbors : n, &right));
    napier_keep(&memory, right);
    NAPIER_TRY(napier_umap_graph_meet(context, *graph, right, target_weight, &joint));
    weigh_unknown(*graph, numbers, joint);
    return napier_umap_reset_local_connectivity(context, joint, 0, graph);
}
