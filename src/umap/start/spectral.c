/* umap/start/spectral.c - the spectral start: eigenvectors of the graph's normalised Laplacian.
 *
 * They belong to the largest eigenvalues of S = D^-1/2 W D^-1/2. The first, of eigenvalue 1, has no information and is
 * left out. The iteration (eigen.h) works on the random walk P = D^-1 W = D^-1/2 S D^1/2. P has the same eigenvalues,
 * maps the constant vector to itself, and needs no scaled copy of the weights. It is symmetric in the inner product
 * sum d_i x_i y_i. Its eigenvectors times sqrt(d) are those of S.
 *
 * Every connected component is laid out separately and placed at its own centre. Its size is half the distance to the
 * nearest other centre. Up to 2 n_components components are placed on the axes. More are placed by the principal
 * components of their centroids, or on a grid if there are no samples. A component of at most 2 n_components vertices
 * gets a small random layout. The placement is umap-learn's, except that the principal components replace its second
 * spectral embedding. */
#include <math.h>
#include <string.h>

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/start/eigen.h"
#include "umap/graph/components.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"
#include "umap/metric/samples.h"
#include "umap/start/start.h"

enum { PANEL = 8, GUARD_COLUMNS = 6, ROW_CHUNK = 4096, MOST_PRODUCTS = 2000, LEAST_PRODUCTS = 64, ALONE_ROWS = 16384 };
enum { ROW_COST = 4 };                   /* the other work on a row, in edges */
#define COST_BUDGET ((int64_t)160000000) /* edges, of eight columns each: about 0.8 s on one core */
#define TOLERANCE 1e-3

/* With more components than these, extents are not computed from all pairs; with larger centroids, samples are not
 * used. */
enum { MOST_PAIRED = 4096 };
#define MOST_CENTROID_NUMBERS ((int64_t)1 << 26)

typedef struct spectral {
    napier_context *context;
    napier_memory *memory; /* of the arrays */
    const napier_umap_graph *graph;
    int64_t n, components; /* of the layout */
    int64_t columns;       /* of a block of vectors */
    napier_graph_components parts;
    double *degrees; /* [n] in the order of parts.order */
    double *centres; /* [parts.count, components] the centre of each */
    double *extents; /* [parts.count] the largest size of each */
    float *layout;   /* [n, components] */
} spectral;

/* ---- Components and degrees --------------------------------------------------------------------------------------- */

static void find_degrees(void *argument, int64_t at) {
    const spectral *s = argument;
    const uint32_t v = s->parts.order[at];
    double degree = 0.0;
    for (int64_t e = s->graph->starts[v]; e < s->graph->starts[v + 1]; e++) {
        degree += (double)s->graph->weights[e];
    }
    s->degrees[at] = degree;
}

static napier_status split(spectral *s) {
    NAPIER_TRY(napier_umap_graph_components(s->memory, s->graph, &s->parts));
    s->degrees = napier_take(s->memory, s->n, sizeof *s->degrees);
    s->centres = napier_take(s->memory, s->parts.count, (size_t)s->components * sizeof *s->centres);
    s->extents = napier_take(s->memory, s->parts.count, sizeof *s->extents);
    NAPIER_TRY(napier_taken(s->memory, "graph: no memory for %lld components", (long long)s->parts.count));
    napier_parallel_each(s->context, s->n, ROW_CHUNK, find_degrees, s);
    return NAPIER_OK;
}

/* ---- The layout of one component --------------------------------------------------------------------------------- */

typedef struct walk {
    const spectral *s;
    napier_context *context; /* its threads are used */
    int64_t begin, columns;  /* begin: of the component in parts.order; columns: of the block */
    int64_t rows;
    const double *x;
    double alpha, beta, gamma, *y;
} walk;

/* y = alpha sum + beta x + gamma y for two columns of a vertex. */
static inline void finish_duo(const walk *w, double alpha, napier_duo sum, int64_t at) {
    napier_duo y = napier_duo_of(alpha) * sum + napier_duo_of(w->beta) * napier_duo_load(w->x + at);
    if (w->gamma != 0.0) {
        y += napier_duo_of(w->gamma) * napier_duo_load(w->y + at);
    }
    napier_duo_store(w->y + at, y);
}

/* y = alpha P x + beta x + gamma y for one vertex, eight columns at a time. */
static void walk_row(void *argument, int64_t i) {
    const walk *w = argument;
    const napier_umap_graph *g = w->s->graph;
    const uint32_t *targets = w->s->parts.local ? w->s->parts.local : g->targets;
    const uint32_t v = w->s->parts.order[w->begin + i];
    const int64_t first = g->starts[v], end = g->starts[v + 1], columns = w->columns;
    const double degree = w->s->degrees[w->begin + i];
    const double alpha = degree > 0.0 ? w->alpha / degree : 0.0;
    for (int64_t panel = 0; panel < columns; panel += PANEL) {
        napier_duo sum0 = {0.0, 0.0}, sum1 = sum0, sum2 = sum0, sum3 = sum0;
        for (int64_t e = first; e < end; e++) {
            const napier_duo weight = napier_duo_of((double)g->weights[e]);
            const double *x = w->x + (int64_t)targets[e] * columns + panel;
            sum0 += weight * napier_duo_load(x);
            sum1 += weight * napier_duo_load(x + 2);
            sum2 += weight * napier_duo_load(x + 4);
            sum3 += weight * napier_duo_load(x + 6);
        }
        const int64_t at = i * columns + panel;
        finish_duo(w, alpha, sum0, at);
        finish_duo(w, alpha, sum1, at + 2);
        finish_duo(w, alpha, sum2, at + 4);
        finish_duo(w, alpha, sum3, at + 6);
    }
}

static void multiply(void *argument, const double *x, double alpha, double beta, double gamma, double *y) {
    walk w = *(const walk *)argument;
    w.x = x;
    w.alpha = alpha;
    w.beta = beta;
    w.gamma = gamma;
    w.y = y;
    napier_parallel_each(w.context, w.rows, ROW_CHUNK, walk_row, &w);
}

/* Fixes the signs of a component, scales it to its extent and moves it to its centre. */
static void place_component(spectral *s, int64_t component, const double *x, int64_t columns, int64_t found) {
    const int64_t begin = s->parts.begins[component], rows = s->parts.begins[component + 1] - begin;
    double signs[NAPIER_UMAP_MOST_COMPONENTS], largest = 0.0;
    for (int64_t c = 0; c < s->components; c++) {
        double most = 0.0;
        signs[c] = 0.0;
        for (int64_t i = 0; i < rows && c < found; i++) {
            const double value = x[i * columns + c] * sqrt(s->degrees[begin + i]);
            if (fabs(value) > most) {
                most = fabs(value);
                signs[c] = value < 0.0 ? -1.0 : 1.0;
            }
        }
        largest = most > largest ? most : largest;
    }
    const double scale = largest > 0.0 ? s->extents[component] / largest : 0.0;
    for (int64_t i = 0; i < rows; i++) {
        float *out = s->layout + (int64_t)s->parts.order[begin + i] * s->components;
        const double root = sqrt(s->degrees[begin + i]) * scale;
        for (int64_t c = 0; c < s->components; c++) {
            out[c] = (float)(s->centres[component * s->components + c] + signs[c] * root * x[i * columns + c]);
        }
    }
}

static void place_small_component(spectral *s, int64_t component, uint64_t seed) {
    for (int64_t at = s->parts.begins[component]; at < s->parts.begins[component + 1]; at++) {
        const uint32_t v = s->parts.order[at];
        for (int64_t c = 0; c < s->components; c++) {
            const double number = napier_start_number(seed, NAPIER_STREAM_SMALL, v, c);
            s->layout[(int64_t)v * s->components + c] =
                (float)(s->centres[component * s->components + c] + s->extents[component] * number);
        }
    }
}

static int is_small(const spectral *s, int64_t component) {
    return s->parts.begins[component + 1] - s->parts.begins[component] <= 2 * s->components;
}

/* The largest number of products. It bounds their cost: small graphs may use more products than large ones. */
static int64_t most_products(const napier_umap_graph *graph, int64_t columns) {
    const int64_t cost = (napier_umap_graph_edges(graph) + ROW_COST * graph->n) * (columns / PANEL);
    return napier_between(COST_BUDGET / cost, LEAST_PRODUCTS, MOST_PRODUCTS);
}

/* Lays out one component. blocks: two blocks and scratch. */
static void lay_out_component(spectral *s, napier_context *context, int64_t component, double *blocks) {
    const int64_t rows = s->parts.begins[component + 1] - s->parts.begins[component], columns = s->columns;
    walk w = {.s = s, .context = context, .begin = s->parts.begins[component], .columns = columns, .rows = rows};
    const napier_operator p = {rows, columns, s->degrees + w.begin, -1.0, 1.0, multiply, &w};
    const napier_eigen_limits limits = {s->components, most_products(s->graph, columns), TOLERANCE};
    double *spare = blocks + rows * columns;
    double values[NAPIER_MOST_BLOCK];
    int64_t found = 0;
    napier_eigen_start(rows, columns, blocks);
    napier_largest_eigenvectors(context, &p, limits, blocks, spare, spare + rows * columns, values, &found);
    place_component(s, component, blocks, columns, found);
}

typedef struct component_task {
    spectral *s;
    uint64_t seed;
    double *blocks; /* per worker */
    int64_t worker_doubles;
} component_task;

/* Is a component large enough for all workers? */
static int is_large(const spectral *s, int64_t component) {
    return !is_small(s, component) &&
           (s->parts.count == 1 || s->parts.begins[component + 1] - s->parts.begins[component] > ALONE_ROWS);
}

/* Lays out small components, each by one worker, because their products are too small to share. */
static void lay_out_small_ones(void *argument, int worker, int64_t begin, int64_t end) {
    const component_task *t = argument;
    napier_context alone = napier_context_alone(t->s->context);
    for (int64_t c = begin; c < end; c++) {
        if (is_small(t->s, c)) {
            place_small_component(t->s, c, t->seed);
        } else if (!is_large(t->s, c)) {
            lay_out_component(t->s, &alone, c, t->blocks + worker * t->worker_doubles);
        }
    }
}

static int64_t doubles_for(int64_t rows, int64_t columns) {
    return rows > 0 ? 2 * rows * columns + napier_eigen_scratch(rows, columns) : 0;
}

/* Lays out large components first, each by all workers, then the others. Both use the same memory. */
static napier_status lay_out_components(spectral *s, uint64_t seed) {
    napier_context *context = s->context;
    int64_t large = 0, other = 0;
    for (int64_t c = 0; c < s->parts.count; c++) {
        const int64_t rows = s->parts.begins[c + 1] - s->parts.begins[c];
        if (is_large(s, c)) {
            large = rows > large ? rows : large;
        } else if (!is_small(s, c)) {
            other = rows > other ? rows : other;
        }
    }
    const int64_t chunk = s->parts.count > 1024 ? 64 : 1;
    component_task t = {s, seed, NULL, doubles_for(other, s->columns)};
    const int64_t for_all = doubles_for(large, s->columns);
    const int64_t for_workers = t.worker_doubles * napier_workers(context, s->parts.count, chunk);
    NAPIER_MEMORY(memory, context);
    t.blocks = napier_take(&memory, for_all > for_workers ? for_all : for_workers, sizeof *t.blocks);
    NAPIER_TRY(napier_taken(&memory, "graph: no memory for %lld columns of %lld vertices", (long long)s->columns,
                            (long long)(large > other ? large : other)));
    for (int64_t c = 0; c < s->parts.count; c++) {
        if (is_large(s, c)) {
            lay_out_component(s, context, c, t.blocks);
        }
    }
    napier_parallel(context, s->parts.count, chunk, lay_out_small_ones, &t);
    return NAPIER_OK;
}

/* ---- Positions of components ------------------------------------------------------------------------------------- */

/* Places up to 2 components per dimension, at 1 and -1 on the axes. */
static void place_on_axes(spectral *s) {
    const int64_t half = (s->parts.count + 1) / 2;
    for (int64_t c = 0; c < s->parts.count; c++) {
        s->centres[c * s->components + (c < half ? c : c - half)] = c < half ? 1.0 : -1.0;
    }
}

/* Places components on a square grid in [-1, 1]^2, row by row; on a line if there is one dimension. */
static void place_on_grid(spectral *s) {
    int64_t side = 1;
    while (s->components > 1 ? side * side < s->parts.count : side < s->parts.count) {
        side++;
    }
    const double step = side > 1 ? 2.0 / (double)(side - 1) : 0.0;
    for (int64_t c = 0; c < s->parts.count; c++) {
        const int64_t row = c / side, column = c % side;
        s->centres[c * s->components] = (double)column * step - 1.0;
        if (s->components > 1) {
            s->centres[c * s->components + 1] = (double)row * step - 1.0;
        }
    }
}

/* Adds a sample to sums. Returns the first column that is not finite, or -1. */
static int64_t add_sample(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t i, int64_t cols,
                          float *row, double *sums) {
    const napier_csr_matrix *m = samples.sparse;
    for (int64_t e = m ? m->row_starts[i] : 0; m && e < m->row_starts[i + 1]; e++) {
        if (!isfinite(m->values[e])) {
            return m->columns[e];
        }
        sums[m->columns[e]] += (double)m->values[e];
    }
    const int64_t bad = m ? -1 : napier_read_row(kernels, samples, i, row);
    for (int64_t c = 0; c < cols && !m; c++) {
        sums[c] += (double)row[c];
    }
    return bad;
}

/* The mean of each component's samples, in f32; rows are added in order, in double. */
static napier_status find_centroids(const spectral *s, napier_umap_samples samples, int64_t cols, float *centroids) {
    napier_context *context = s->context;
    NAPIER_MEMORY(memory, context);
    double *sums = napier_take(&memory, cols, sizeof *sums);
    float *row = napier_take(&memory, cols, sizeof *row);
    NAPIER_TRY(napier_taken(&memory, "samples: no memory for a centroid of %lld columns", (long long)cols));
    for (int64_t c = 0; c < s->parts.count; c++) {
        memset(sums, 0, (size_t)cols * sizeof *sums);
        for (int64_t at = s->parts.begins[c]; at < s->parts.begins[c + 1]; at++) {
            const int64_t bad =
                add_sample(napier_umap_kernels_of(context->isa), samples, s->parts.order[at], cols, row, sums);
            if (bad >= 0) {
                return napier_read_refuse(context, "samples", samples, s->parts.order[at], bad);
            }
        }
        for (int64_t i = 0; i < cols; i++) {
            centroids[c * cols + i] = (float)(sums[i] / (double)(s->parts.begins[c + 1] - s->parts.begins[c]));
        }
    }
    return NAPIER_OK;
}

/* Places components by the principal components of their centroids, scaled so that the largest is 1. *found is 0 if all
 * centroids are equal. */
static napier_status place_by_centroids(spectral *s, napier_umap_samples samples, int64_t cols, int64_t *found) {
    const int64_t numbers = s->parts.count * s->components;
    NAPIER_MEMORY(memory, s->context);
    float *centroids = napier_take(&memory, s->parts.count, (size_t)cols * sizeof *centroids);
    float *scores = napier_take(&memory, numbers, sizeof *scores);
    NAPIER_TRY(napier_taken(&memory, "samples: no memory for %lld centroids", (long long)s->parts.count));
    NAPIER_TRY(find_centroids(s, samples, cols, centroids));
    const napier_umap_samples means = {napier_const_rows_f32(centroids, s->parts.count, cols), NULL};
    NAPIER_TRY(napier_pca_scores(s->context, means, s->components, scores, found));
    const double largest = napier_start_largest(scores, numbers);
    *found = largest > 0.0 ? *found : 0;
    for (int64_t i = 0; i < numbers; i++) {
        s->centres[i] = largest > 0.0 ? (double)scores[i] / largest : 0.0;
    }
    return NAPIER_OK;
}

static double squared_distance(const spectral *s, int64_t a, int64_t b) {
    double sum = 0.0;
    for (int64_t c = 0; c < s->components; c++) {
        const double gap = s->centres[a * s->components + c] - s->centres[b * s->components + c];
        sum += gap * gap;
    }
    return sum;
}

/* The extent of a component is half the distance to the nearest other centre. If there are too many components to
 * compare all pairs, it is that of a grid. */
static void find_extents(spectral *s) {
    double even = 1.0;
    for (int64_t side = 1; s->parts.count > MOST_PAIRED && side * side < s->parts.count; side++) {
        even = 1.0 / (double)side;
    }
    for (int64_t a = 0; a < s->parts.count; a++) {
        double nearest = (double)INFINITY;
        for (int64_t b = 0; b < s->parts.count && s->parts.count <= MOST_PAIRED; b++) {
            const double square = squared_distance(s, a, b);
            nearest = square > 0.0 && square < nearest ? square : nearest;
        }
        s->extents[a] = isinf(nearest) ? even : 0.5 * sqrt(nearest);
    }
}

static napier_status place_components(spectral *s, napier_umap_samples samples) {
    const int64_t cols = napier_samples_cols(samples);
    int64_t found = 0;
    memset(s->centres, 0, (size_t)(s->parts.count * s->components) * sizeof *s->centres);
    if (s->parts.count == 1) {
        s->extents[0] = 1.0;
        return NAPIER_OK;
    }
    if (s->parts.count <= 2 * s->components) {
        place_on_axes(s);
    } else {
        if (cols > 0 && cols <= MOST_CENTROID_NUMBERS / s->parts.count) {
            NAPIER_TRY(place_by_centroids(s, samples, cols, &found));
        }
        if (found == 0) {
            place_on_grid(s);
        }
    }
    find_extents(s);
    return NAPIER_OK;
}

/* ---- The layout -------------------------------------------------------------------------------------------------- */

napier_status napier_start_spectral(napier_context *context, const napier_umap_graph *graph,
                                    napier_umap_samples samples, uint64_t seed, napier_matrix embedding) {
    const int64_t n = graph->n;
    NAPIER_MEMORY(memory, context);
    spectral s = {.context = context, .memory = &memory, .graph = graph, .n = n, .components = embedding.cols};
    s.columns = napier_round_up(s.components + GUARD_COLUMNS, PANEL);
    s.layout = napier_take(&memory, n, (size_t)s.components * sizeof *s.layout);
    NAPIER_TRY(napier_taken(&memory, "embedding: no memory for %lld vertices", (long long)n));
    NAPIER_TRY(split(&s));
    NAPIER_TRY(place_components(&s, samples));
    NAPIER_TRY(lay_out_components(&s, seed));
    napier_start_finish(s.layout, n, s.components, seed);
    memcpy(embedding.data, s.layout, (size_t)(n * s.components) * sizeof *s.layout);
    return NAPIER_OK;
}

/* Checks the samples. They are optional: samples without rows are not used. */
static napier_status check_samples(napier_context *context, napier_umap_samples *samples, int64_t n) {
    if (!samples->sparse && (samples->dense.data == NULL || samples->dense.rows == 0)) {
        samples->dense.cols = 0;
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_read_check(context, "samples", *samples));
    const int64_t rows = napier_samples_rows(*samples);
    NAPIER_REFUSE_IF(context, rows != n, "samples: %lld rows are not the graph's %lld vertices", (long long)rows,
                     (long long)n);
    return NAPIER_OK;
}

napier_status napier_umap_spectral_layout(napier_context *context, const napier_umap_graph *graph,
                                          napier_umap_samples samples, uint64_t seed, napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_graph(context, "graph", graph));
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, graph->n, embedding.cols));
    NAPIER_TRY(check_samples(context, &samples, graph->n));
    NAPIER_TRY(napier_umap_check_apart_graph(context, "embedding", embedding, graph));
    if (napier_samples_cols(samples) > 0) {
        NAPIER_TRY(napier_samples_check_apart(context, "embedding", embedding, "samples", samples));
    }
    if (graph->n == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_samples_moved(&memory, "samples", samples, NAPIER_METRIC_EUCLIDEAN, &samples));
    return napier_start_spectral(context, graph, samples, seed, embedding);
}
