/* umap/graph/combine.c - set operations of two fuzzy sets, and local connectivity afterwards.
 *
 * Where the left graph has weight l and the right one r, the union has l + r - l r, the difference l (1 - r), and the
 * intersection of weight w l r^(w / (1 - w)) for w < 1/2, else l^((1 - w) / w) r. An edge that is missing in one graph
 * counts there as 0, but in an intersection as half of that graph's least weight, so that what is connected stays so; if
 * both weights are that small, their sum stands, as in umap-learn.
 * Local connectivity: each row is divided by its largest weight, and W + W' - W.W' is formed. */
#include <math.h>

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "umap/graph/graph.h"

enum { ROW_CHUNK = 512, BISECTIONS = 64 };

#define LEAST_WEIGHT 1e-8
#define MOST_RIGHT_WEIGHT 1e-4 /* of an edge that the right graph lacks */

static double power(double x, double exponent) {
    if (exponent == 1.0) {
        return x;
    }
    return exponent == 0.0 ? 1.0 : napier_f64_exp(exponent * napier_f64_log(x));
}

/* ---- Local connectivity ------------------------------------------------------------------------------------------ */

typedef struct connectivity {
    napier_umap_graph *graph;
    double wanted; /* sum of a row's weights; 0: any */
} connectivity;

static double sum_of_powers(const float *weights, int64_t count, double largest, double exponent) {
    double sum = 0.0;
    for (int64_t e = 0; e < count; e++) {
        sum += weights[e] > 0.0f ? power((double)weights[e] / largest, exponent) : 0.0;
    }
    return sum;
}

/* The exponent at which the weights, divided by the largest, sum to `wanted`. The sum falls as the exponent rises. */
static double exponent_of(const float *weights, int64_t count, double largest, double wanted) {
    double low = 0.0, high = (double)INFINITY, exponent = 1.0;
    for (int i = 0; i < BISECTIONS; i++) {
        if (sum_of_powers(weights, count, largest, exponent) > wanted) {
            low = exponent;
            exponent = isinf(high) ? 2.0 * exponent : 0.5 * (low + high);
        } else {
            high = exponent;
            exponent = 0.5 * (low + high);
        }
    }
    return exponent;
}

static void connect_row(void *argument, int64_t v) {
    const connectivity *t = argument;
    float *const weights = t->graph->weights + t->graph->starts[v];
    const int64_t count = t->graph->starts[v + 1] - t->graph->starts[v];
    double largest = 0.0;
    for (int64_t e = 0; e < count; e++) {
        largest = (double)weights[e] > largest ? (double)weights[e] : largest;
    }
    const double exponent = t->wanted > 0.0 ? exponent_of(weights, count, largest, t->wanted) : 1.0;
    for (int64_t e = 0; e < count; e++) {
        weights[e] = weights[e] > 0.0f ? (float)power((double)weights[e] / largest, exponent) : 0.0f;
    }
}

napier_status napier_umap_reset_local_connectivity(napier_context *context, napier_umap_graph *joint,
                                                   int64_t n_neighbors, napier_umap_graph **graph) {
    napier_umap_graph *result = NULL;
    NAPIER_MEMORY(memory, context);
    napier_keep(&memory, joint);
    connectivity t = {joint, n_neighbors > 0 ? napier_f64_log((double)n_neighbors) / napier_f64_log(2.0) : 0.0};
    napier_parallel_each(context, joint->n, ROW_CHUNK, connect_row, &t);
    NAPIER_TRY(napier_umap_graph_union(context, joint, 1.0, &result));
    napier_umap_graph_destroy(context, *graph);
    *graph = result;
    return NAPIER_OK;
}

/* ---- Two graphs, row by row -------------------------------------------------------------------------------------- */

typedef struct two_graphs two_graphs;
/* The weight of an edge of one graph or both; -1 for the one that lacks it. */
typedef float two_weights(const two_graphs *t, double left, double right);

struct two_graphs {
    const napier_umap_graph *left, *right;
    two_weights *combine;
    double left_least, right_least, weight; /* of an intersection */
};

static int64_t combined_row(const void *argument, int64_t v, uint32_t *targets, float *weights) {
    const two_graphs *t = argument;
    const napier_umap_graph *a = t->left, *b = t->right;
    int64_t left = a->starts[v], right = b->starts[v], count = 0;
    for (; left < a->starts[v + 1] || right < b->starts[v + 1]; count++) {
        const uint32_t l = left < a->starts[v + 1] ? a->targets[left] : UINT32_MAX;
        const uint32_t r = right < b->starts[v + 1] ? b->targets[right] : UINT32_MAX;
        const double forth = l <= r ? (double)a->weights[left++] : -1.0;
        const double back = r <= l ? (double)b->weights[right++] : -1.0;
        if (targets) {
            targets[count] = l < r ? l : r;
            weights[count] = t->combine(t, forth, back);
        }
    }
    return count;
}

static float unite(const two_graphs *t, double left, double right) {
    (void)t;
    const double l = left > 0.0 ? left : 0.0, r = right > 0.0 ? right : 0.0;
    return (float)(l + r - l * r);
}

static float differ(const two_graphs *t, double left, double right) {
    (void)t;
    const double l = left > 0.0 ? left : 0.0, r = right > 0.0 ? right : 0.0;
    return (float)(l * (1.0 - r));
}

static float meet(const two_graphs *t, double left, double right) {
    const double l = left < 0.0 ? t->left_least : left, r = right < 0.0 ? t->right_least : right;
    if (!(l > t->left_least) && !(r > t->right_least)) {
        return (float)((left < 0.0 ? 0.0 : left) + (right < 0.0 ? 0.0 : right));
    }
    return t->weight < 0.5 ? (float)(l * power(r, t->weight / (1.0 - t->weight)))
                           : (float)(power(l, (1.0 - t->weight) / t->weight) * r);
}

static double least_weight(const napier_umap_graph *g) {
    const int64_t count = napier_umap_graph_edges(g);
    float least = INFINITY;
    for (int64_t e = 0; e < count; e++) {
        least = g->weights[e] < least ? g->weights[e] : least;
    }
    return count > 0 && (double)least / 2.0 > LEAST_WEIGHT ? (double)least / 2.0 : LEAST_WEIGHT;
}

napier_status napier_umap_graph_meet(napier_context *context, const napier_umap_graph *left,
                                     const napier_umap_graph *right, double weight, napier_umap_graph **out) {
    const double right_least = least_weight(right);
    const two_graphs t = {.left = left,
                          .right = right,
                          .combine = meet,
                          .left_least = least_weight(left),
                          .right_least = right_least < MOST_RIGHT_WEIGHT ? right_least : MOST_RIGHT_WEIGHT,
                          .weight = weight};
    return napier_umap_graph_of_rows(context, left->n, combined_row, &t, out);
}

/* ---- The operations ---------------------------------------------------------------------------------------------- */

napier_status napier_umap_combine(napier_context *context, napier_umap_operation operation,
                                  const napier_umap_graph *left, const napier_umap_graph *right, double weight,
                                  int64_t n_neighbors, napier_umap_graph **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_TRY(napier_umap_check_graph(context, "left", left));
    NAPIER_TRY(napier_umap_check_graph(context, "right", right));
    NAPIER_REFUSE_IF(context, napier_umap_highest_weight(left) > 1.0f, "left: a weight is above 1");
    NAPIER_REFUSE_IF(context, napier_umap_highest_weight(right) > 1.0f, "right: a weight is above 1");
    NAPIER_REFUSE_IF(context, left->n != right->n, "right: %lld points are not left's %lld", (long long)right->n,
                     (long long)left->n);
    NAPIER_REFUSE_IF(context, operation < NAPIER_UMAP_UNION || operation > NAPIER_UMAP_DIFFERENCE,
                     "operation: %d is no napier_umap_operation", (int)operation);
    NAPIER_REFUSE_IF(context, !(weight >= 0.0 && weight <= 1.0), "weight: %g is not 0 to 1", weight);
    NAPIER_REFUSE_IF(context, n_neighbors < 0, "n_neighbors: %lld is negative", (long long)n_neighbors);
    const two_graphs t = {
        .left = left, .right = right, .combine = operation == NAPIER_UMAP_DIFFERENCE ? differ : unite};
    napier_umap_graph *joint = NULL;
    NAPIER_TRY(operation == NAPIER_UMAP_INTERSECTION
                   ? napier_umap_graph_meet(context, left, right, weight, &joint)
                   : napier_umap_graph_of_rows(context, left->n, combined_row, &t, &joint));
    return napier_umap_reset_local_connectivity(context, joint, n_neighbors, out);
}
