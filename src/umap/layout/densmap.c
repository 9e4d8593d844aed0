/* umap/layout/densmap.c - densMAP's radii and forces.
 *
 * radius in the data: R_i = log(sum_j p_ij D_ij^2 / sum_j p_ij) over the edges of the graph, then standardised
 * radius on the map:  r_i = log(sum_j q_ij u_ij / sum_j q_ij), u = d^2, q = 1 / (1 + a u^b)
 *
 * The forces increase lambda times the correlation of both, C = sum_i R_i r_i / (n s), s^2 = var(r) + var_shift:
 *     dC/dr_i = (R_i - c (r_i - mean r) / s^2) / (n s), c = sum R_i r_i / n
 *     dr_i/du_ij = (q + u q') / sum(q u) - q' / sum(q), q' = - a b u^(b - 1) q^2
 * multiplied by the weight of all edges, so that lambda has the same meaning for every graph. */
#include "umap/layout/epochs.h"

#include <math.h>

#include "core/base/parallel.h"
#include "core/math/f64.h"
#include "core/math/pow.h"
#include "umap/options/force.h"
#include "umap/graph/graph.h"

struct napier_densmap {
    napier_context *context;
    const napier_umap_graph *graph;
    int64_t components, first_epoch;
    float a, b;
    double lambda, var_shift;
    double total;  /* weight of all edges, each pair once, divided by the largest */
    double *data;  /* [n] R, standardised */
    double *map;   /* [n] r */
    double *pull;  /* [n] dC/dr_i */
    double *sum_q; /* [n] */
    double *sum_qu;
};

enum { NAPIER_DENSMAP_CHUNK = 1024 };
#define NAPIER_DENSMAP_LEAST 1e-8 /* keeps the logarithms finite */

/* ---- Radii in the data ------------------------------------------------------------------------------------------- */

/* The distance of neighbours i and j, from the row that lists it. */
static double listed_distance(const int32_t *indices, const float *distances, int64_t k, int64_t i, int64_t j) {
    for (int64_t s = 0; s < k; s++) {
        if (indices[i * k + s] == j) {
            return (double)distances[i * k + s];
        }
    }
    for (int64_t s = 0; s < k; s++) {
        if (indices[j * k + s] == i) {
            return (double)distances[j * k + s];
        }
    }
    return 0.0; /* connected only by their targets */
}

static void data_radii(napier_densmap *m, const int32_t *indices, const float *distances, int64_t k) {
    const napier_umap_graph *g = m->graph;
    for (int64_t v = 0; v < g->n; v++) {
        double weight = 0.0, sum = 0.0;
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            const double d = listed_distance(indices, distances, k, v, (int64_t)g->targets[e]);
            weight += (double)g->weights[e];
            sum += (double)g->weights[e] * d * d;
        }
        m->data[v] = napier_f64_log(NAPIER_DENSMAP_LEAST + (weight > 0.0 ? sum / weight : 0.0));
    }
}

static double mean_of(const double *x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum / (double)n;
}

static double variance_of(const double *x, double mean, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - mean) * (x[i] - mean);
    }
    return sum / (double)n;
}

static void standardise(double *x, int64_t n) {
    const double mean = mean_of(x, n), variance = variance_of(x, mean, n);
    const double scale = variance > 0.0 ? 1.0 / sqrt(variance) : 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (x[i] - mean) * scale;
    }
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static double total_weight(const napier_umap_graph *g) {
    const float highest = napier_umap_highest_weight(g);
    double sum = 0.0;
    for (int64_t e = 0; e < napier_umap_graph_edges(g); e++) {
        sum += (double)g->weights[e];
    }
    return highest > 0.0f ? 0.5 * sum / (double)highest : 0.0;
}

napier_status napier_densmap_create(napier_memory *memory, const napier_umap_graph *graph, const napier_umap_options *o,
                                    const int32_t *indices, const float *distances, napier_densmap **out) {
    const int64_t n = graph->n;
    napier_densmap *m = napier_take(memory, 1, sizeof *m);
    double *values = napier_take(memory, n, 5 * sizeof *values);
    NAPIER_TRY(napier_taken(memory, "densmap: no memory for %lld points", (long long)n));
    *m = (napier_densmap){.context = memory->context,
                          .graph = graph,
                          .components = o->n_components,
                          .first_epoch = (int64_t)((1.0 - o->dens_frac) * (double)o->n_epochs),
                          .a = (float)o->a,
                          .b = (float)o->b,
                          .lambda = o->dens_lambda,
                          .var_shift = o->dens_var_shift,
                          .total = total_weight(graph),
                          .data = values,
                          .map = values + n,
                          .pull = values + 2 * n,
                          .sum_q = values + 3 * n,
                          .sum_qu = values + 4 * n};
    data_radii(m, indices, distances, o->neighbors.n_neighbors);
    standardise(m->data, n);
    *out = m;
    return NAPIER_OK;
}

/* ---- Forces ------------------------------------------------------------------------------------------------------ */

typedef struct densmap_task {
    const napier_densmap *m;
    const float *y;
    float *forces;
} densmap_task;

/* q of a pair at squared distance u > 0, and its derivative. */
static void curve_of(const napier_densmap *m, float u, double *q, double *slope) {
    const double power = (double)napier_powf(u, m->b);
    *q = 1.0 / (1.0 + (double)m->a * power);
    *slope = -(double)m->a * (double)m->b * power / (double)u * *q * *q;
}

static float gap_of(const densmap_task *t, int64_t v, int64_t j) {
    const int64_t c = t->m->components;
    const float u = napier_squared_gap(t->y + v * c, t->y + j * c, c);
    return u > NAPIER_UMAP_NEAREST ? u : NAPIER_UMAP_NEAREST;
}

static void radii_task(void *argument, int64_t v) {
    const densmap_task *t = argument;
    const napier_umap_graph *g = t->m->graph;
    double sum_q = 0.0, sum_qu = 0.0;
    for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
        double q, slope;
        const float u = gap_of(t, v, (int64_t)g->targets[e]);
        curve_of(t->m, u, &q, &slope);
        sum_q += q;
        sum_qu += q * (double)u;
    }
    t->m->sum_q[v] = sum_q > 0.0 ? sum_q : 1.0;
    t->m->sum_qu[v] = sum_qu + NAPIER_DENSMAP_LEAST;
    t->m->map[v] = napier_f64_log(t->m->sum_qu[v] / t->m->sum_q[v]);
}

/* dr_v/du of an edge of v. */
static double radius_slope(const napier_densmap *m, int64_t v, float u, double q, double slope) {
    return (q + (double)u * slope) / m->sum_qu[v] - slope / m->sum_q[v];
}

static void pulls_task(void *argument, int64_t v) {
    const densmap_task *t = argument;
    const napier_densmap *m = t->m;
    const napier_umap_graph *g = m->graph;
    const int64_t c = m->components;
    const double all = 2.0 * m->lambda * m->total; /* like the attractions, because each pair is listed twice */
    for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
        const int64_t j = (int64_t)g->targets[e];
        double q, slope;
        const float u = gap_of(t, v, j);
        curve_of(m, u, &q, &slope);
        const double climb =
            m->pull[v] * radius_slope(m, v, u, q, slope) + m->pull[j] * radius_slope(m, j, u, q, slope);
        for (int64_t d = 0; d < c; d++) {
            double f = all * climb * 2.0 * ((double)t->y[v * c + d] - (double)t->y[j * c + d]);
            f = f < 4.0 ? f : 4.0;
            f = f > -4.0 ? f : -4.0;
            t->forces[v * c + d] += (float)f;
        }
    }
}

void napier_densmap_forces(napier_densmap *m, int64_t epoch, const float *y, float *forces) {
    const int64_t n = m->graph->n;
    if (epoch < m->first_epoch || n < 2) {
        return;
    }
    densmap_task task = {m, y, forces};
    napier_parallel_each(m->context, n, NAPIER_DENSMAP_CHUNK, radii_task, &task);
    const double mean = mean_of(m->map, n), spread2 = variance_of(m->map, mean, n) + m->var_shift;
    double common = 0.0;
    for (int64_t v = 0; v < n; v++) {
        common += m->data[v] * m->map[v];
    }
    common /= (double)n;
    const double spread = sqrt(spread2);
    for (int64_t v = 0; v < n && spread > 0.0; v++) {
        m->pull[v] = (m->data[v] - common * (m->map[v] - mean) / spread2) / ((double)n * spread);
    }
    napier_parallel_each(m->context, n, NAPIER_DENSMAP_CHUNK, pulls_task, &task);
}
