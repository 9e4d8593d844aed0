/* The starts of a layout: eigenvectors against known ones and by their residuals, every odd graph, many components,
 * principal components, the random start. Same bits for any thread count and instruction set. */
#include "unit/umap/umap_support.h"

#include "support/memory.h"
#include "umap/start/eigen.h"

/* ---- Graphs ----------------------------------------------------------------------------------------------------------- */

typedef struct edge_list {
    napier_umap_edge *edges;
    int64_t count, room;
} edge_list;

/* Both directions. */
static void join(edge_list *l, int64_t a, int64_t b, double weight) {
    if (l->count + 2 > l->room) {
        l->room = 2 * l->room + 64;
        l->edges = realloc(l->edges, (size_t)l->room * sizeof *l->edges);
        assert_non_null(l->edges);
    }
    l->edges[l->count++] = (napier_umap_edge){(uint32_t)a, (uint32_t)b, (float)weight};
    l->edges[l->count++] = (napier_umap_edge){(uint32_t)b, (uint32_t)a, (float)weight};
}

static napier_umap_graph *graph_of(napier_context *context, edge_list *l, int64_t n) {
    napier_umap_graph *g = NULL;
    must(napier_umap_sort_edges(context, l->edges, l->count));
    must(napier_umap_graph_from_edges(context, l->edges, l->count, n, &g));
    free(l->edges);
    *l = (edge_list){0};
    assert_non_null(g);
    return g;
}

static napier_umap_graph *path(napier_context *context, int64_t n) {
    edge_list l = {0};
    for (int64_t i = 0; i + 1 < n; i++) {
        join(&l, i, i + 1, 1);
    }
    return graph_of(context, &l, n);
}

static napier_umap_graph *ring(napier_context *context, int64_t n) {
    edge_list l = {0};
    for (int64_t i = 0; i < n; i++) {
        join(&l, i, (i + 1) % n, 0.5);
    }
    return graph_of(context, &l, n);
}

/* Points of a plane, each joined with those near it. */
static napier_umap_graph *cloud(napier_context *context, int64_t n, uint64_t seed, float *x) {
    edge_list l = {0};
    for (int64_t i = 0; i < 2 * n; i++) {
        x[i] = (float)(umap_unit(&seed) * (i % 2 ? 1 : 2)); /* twice as long as high */
    }
    const double near = sqrt(2.0 / (double)n * 20 / 3.14159);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i + 1; j < n; j++) {
            const double gap = hypot((double)(x[2 * i] - x[2 * j]), (double)(x[2 * i + 1] - x[2 * j + 1]));
            if (gap < near) {
                join(&l, i, j, exp(-gap / near));
            }
        }
    }
    return graph_of(context, &l, n);
}

static const napier_umap_samples no_samples;

static napier_status layout_of(napier_context *context, const napier_umap_graph *g, int64_t components, float *y) {
    return napier_umap_spectral_layout(context, g, no_samples, 42, napier_rows_f32(y, g->n, components));
}

/* ---- Residuals --------------------------------------------------------------------------------------------------------- */

/* Column c of y as an eigenvector of D^-1/2 W D^-1/2: its Rayleigh quotient and the size of what is left over. */
static double residual(const napier_umap_graph *g, const float *y, int64_t components, int64_t c, double *value) {
    const size_t n = (size_t)g->n;
    double *d = calloc(n, sizeof *d), *x = calloc(n, sizeof *x), *z = calloc(n, sizeof *z);
    double xx = 0, xz = 0, rest = 0;
    for (int64_t v = 0; v < g->n; v++) {
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            d[v] += (double)g->weights[e];
        }
        x[v] = (double)y[v * components + c];
    }
    for (int64_t v = 0; v < g->n; v++) {
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            const uint32_t u = g->targets[e];
            z[v] += (double)g->weights[e] * x[u] / sqrt(d[v] * d[u]);
        }
        xx += x[v] * x[v];
        xz += x[v] * z[v];
    }
    *value = xz / xx;
    for (int64_t v = 0; v < g->n; v++) {
        rest += (z[v] - *value * x[v]) * (z[v] - *value * x[v]);
    }
    free(d);
    free(x);
    free(z);
    return sqrt(rest / xx);
}

static double cosine_of_columns(const float *y, int64_t n, int64_t components, int64_t a, int64_t b) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        const double p = (double)y[i * components + a], q = (double)y[i * components + b];
        ab += p * q;
        aa += p * p;
        bb += q * q;
    }
    return ab / sqrt(aa * bb);
}

static double most_of(const float *y, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        expect(isfinite(y[i]), "element %lld is %g", (long long)i, (double)y[i]);
        most = fmax(most, fabs((double)y[i]));
    }
    return most;
}

/* ---- Known spectra --------------------------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846;

/* The k-th eigenvector of a path is sqrt(d_i) cos(pi k i / (n - 1)), its value cos(pi k / (n - 1)). */
static void test_path(napier_context *context) {
    const int64_t sizes[] = {5, 8, 9, 10, 20, 100, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        napier_umap_graph *g = path(context, n);
        float *y = scratch(2 * n, sizeof *y);
        must(layout_of(context, g, 2, y));
        expect(fabs(most_of(y, 2 * n) - 10) < 1e-3, "path: largest %g", most_of(y, 2 * n));
        for (int k = 1; k <= 2; k++) {
            double dot = 0, xx = 0, yy = 0, value = 0;
            for (int64_t i = 0; i < n; i++) {
                const double x = sqrt(i == 0 || i == n - 1 ? 1 : 2) * cos(pi * k * (double)i / (double)(n - 1));
                const double z = (double)y[2 * i + k - 1];
                dot += x * z;
                xx += x * x;
                yy += z * z;
            }
            const double left = residual(g, y, 2, k - 1, &value);
            expect(fabs(dot) / sqrt(xx * yy) > 1 - 1e-5, "path of %lld: vector %d has cosine %.8f", (long long)n, k,
                   dot / sqrt(xx * yy));
            expect(fabs(value - cos(pi * k / (double)(n - 1))) < 1e-6, "path of %lld: value %d is %.8f", (long long)n,
                   k, value);
            expect(left < 1e-3, "path of %lld: residual %g", (long long)n, left);
        }
        napier_umap_graph_destroy(context, g);
    }
}

/* Two equal eigenvalues: any two vectors of their plane, which draw a circle. */
static void test_ring(napier_context *context) {
    const int64_t sizes[] = {5, 16, 100, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        napier_umap_graph *g = ring(context, n);
        float *y = scratch(2 * n, sizeof *y);
        must(layout_of(context, g, 2, y));
        double least = 1e30, most = 0;
        for (int64_t i = 0; i < n; i++) {
            const double radius = hypot((double)y[2 * i], (double)y[2 * i + 1]);
            least = fmin(least, radius);
            most = fmax(most, radius);
        }
        expect(most / least < 1.02, "ring of %lld: radius %g to %g", (long long)n, least, most);
        napier_umap_graph_destroy(context, g);
    }
}

/* Residuals, orthogonality and order, for one component of every size and several dimensions. */
static void test_residuals(napier_context *context) {
    enum { MOST = 3000 };
    static float x[2 * MOST], y[50 * MOST];
    const int64_t sizes[] = {150, 1000, MOST};
    const int64_t dimensions[] = {1, 2, 3, 10, 50};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        napier_umap_graph *g = cloud(context, sizes[s], 3 + s, x);
        for (size_t k = 0; k < sizeof dimensions / sizeof *dimensions; k++) {
            const int64_t d = dimensions[k];
            must(layout_of(context, g, d, y));
            double before = 1;
            for (int64_t c = 0; c < d; c++) {
                double value = 0;
                const double left = residual(g, y, d, c, &value);
                expect(left < 1e-3, "cloud of %lld, %lld dimensions: residual %lld is %g", (long long)sizes[s],
                       (long long)d, (long long)c, left);
                expect(value < before + 1e-6, "cloud of %lld, %lld dimensions: value %lld is %.8f after %.8f",
                       (long long)sizes[s], (long long)d, (long long)c, value, before);
                before = value;
                for (int64_t b = 0; b < c; b++) {
                    expect(fabs(cosine_of_columns(y, sizes[s], d, b, c)) < 1e-4, "vectors %lld and %lld: cosine %g",
                           (long long)b, (long long)c, cosine_of_columns(y, sizes[s], d, b, c));
                }
            }
        }
        napier_umap_graph_destroy(context, g);
    }
}

static void test_jacobi(void) {
    enum { MOST = NAPIER_MOST_BLOCK };
    static double a[MOST * MOST], kept[MOST * MOST], vectors[MOST * MOST], values[MOST];
    uint64_t seed = 4;
    for (int64_t n = 1; n <= MOST; n += n < 9 ? 1 : 11) {
        for (int kind = 0; kind < 3; kind++) { /* any; of rank 1; all alike */
            for (int64_t i = 0; i < n; i++) {
                for (int64_t j = 0; j <= i; j++) {
                    const double x = kind == 0 ? umap_normal(&seed) : kind == 1 ? (double)((i + 1) * (j + 1)) : i == j;
                    a[i * n + j] = a[j * n + i] = x;
                }
            }
            memcpy(kept, a, sizeof kept);
            napier_symmetric_eigen(a, n, values, vectors);
            for (int64_t k = 0; k < n; k++) {
                expect(k == 0 || values[k] <= values[k - 1], "values do not descend");
                for (int64_t i = 0; i < n; i++) {
                    double sum = -values[k] * vectors[i * n + k];
                    for (int64_t j = 0; j < n; j++) {
                        sum += kept[i * n + j] * vectors[j * n + k];
                    }
                    expect(fabs(sum) < 1e-12 * (1 + fabs(values[0])) * (double)n, "%lld x %lld, kind %d: residual %g",
                           (long long)n, (long long)n, kind, sum);
                }
            }
        }
    }
}

/* ---- Odd graphs -------------------------------------------------------------------------------------------------------------- */

static napier_umap_graph *odd_graph(napier_context *context, int which, const char **name) {
    edge_list l = {0};
    switch (which) {
    case 0: *name = "one vertex"; return graph_of(context, &l, 1);
    case 1: *name = "two apart"; return graph_of(context, &l, 2);
    case 2: *name = "all apart"; return graph_of(context, &l, 500);
    case 3:
        *name = "two joined";
        join(&l, 0, 1, 1);
        return graph_of(context, &l, 2);
    case 4:
        *name = "star";
        for (int64_t i = 1; i < 2000; i++) {
            join(&l, 0, i, 1);
        }
        return graph_of(context, &l, 2000);
    case 5:
        *name = "complete";
        for (int64_t i = 0; i < 60; i++) {
            for (int64_t j = 0; j < i; j++) {
                join(&l, i, j, 1);
            }
        }
        return graph_of(context, &l, 60);
    case 6:
        *name = "complete and bipartite";
        for (int64_t i = 0; i < 30; i++) {
            for (int64_t j = 30; j < 55; j++) {
                join(&l, i, j, 0.3);
            }
        }
        return graph_of(context, &l, 55);
    case 7:
        *name = "two cliques and a thread";
        for (int64_t i = 0; i < 80; i++) {
            for (int64_t j = 0; j < i; j++) {
                if (i / 40 == j / 40) {
                    join(&l, i, j, 1);
                }
            }
        }
        join(&l, 3, 44, 1e-12);
        return graph_of(context, &l, 80);
    case 8:
        *name = "tiny weights";
        for (int64_t i = 0; i + 1 < 100; i++) {
            join(&l, i, i + 1, i % 2 ? 1e-44 : 1e-38);
        }
        return graph_of(context, &l, 100);
    case 9:
        *name = "huge and tiny weights";
        for (int64_t i = 0; i + 1 < 100; i++) {
            join(&l, i, i + 1, i % 2 ? 3e38 : 1e-38);
        }
        return graph_of(context, &l, 100);
    case 10: *name = "a triangle"; return ring(context, 3);
    case 11: *name = "long path"; return path(context, 4000);
    case 12:
        *name = "only edges to itself";
        for (int64_t i = 0; i < 20; i++) {
            join(&l, i, i, 1);
        }
        for (int64_t e = 0; 2 * e < l.count; e++) {
            l.edges[e] = l.edges[2 * e];
        }
        l.count /= 2;
        return graph_of(context, &l, 20);
    case 13: /* not symmetric: not asked for, yet it must end and be finite */
        *name = "one way";
        for (int64_t i = 0; i + 1 < 300; i++) {
            join(&l, i, i + 1, 1);
            l.count--;
        }
        return graph_of(context, &l, 300);
    default: return NULL;
    }
}

static void test_odd_graphs(napier_context *context) {
    static float y[6000 * 50], again[6000 * 50];
    napier_context *scalar = context_of(NAPIER_ISA_SCALAR, 7);
    const int64_t dimensions[] = {1, 2, 3, 50};
    const char *name = "";
    napier_umap_graph *g;
    for (int which = 0; (g = odd_graph(context, which, &name)) != NULL; which++) {
        for (size_t k = 0; k < 4; k += SANITIZED ? 2 : 1) {
            const int64_t d = dimensions[k];
            if (g->n > 5000 && (d == 50 || SANITIZED)) {
                continue;
            }
            must(layout_of(context, g, d, y));
            const double most = most_of(y, g->n * d);
            expect(g->n == 1 ? most == 0 : fabs(most - 10) < 1e-3, "%s, %lld dimensions: largest %g", name,
                   (long long)d, most);
            succeeded(scalar, layout_of(scalar, g, d, again), name);
            expect(memcmp(y, again, (size_t)(g->n * d) * sizeof *y) == 0, "%s: other bits", name);
        }
        napier_umap_graph_destroy(context, g);
    }
    napier_context_destroy(scalar);
}

/* ---- Components ----------------------------------------------------------------------------------------------------------------- */

/* Rings of `size` and a few loose vertices; interleaved, so that a component is no range of vertices. */
static napier_umap_graph *many_rings(napier_context *context, int64_t rings, int64_t size, int64_t loose) {
    edge_list l = {0};
    for (int64_t r = 0; r < rings; r++) {
        for (int64_t i = 0; i < size; i++) {
            join(&l, i * rings + r, (i + 1) % size * rings + r, 1);
        }
    }
    return graph_of(context, &l, rings * size + loose);
}

/* Every ring is a circle, and circles do not overlap. */
static void check_rings(const float *y, int64_t rings, int64_t size, const char *what) {
    double *centres = scratch(3 * rings, sizeof *centres);
    for (int64_t r = 0; r < rings; r++) {
        double least = 1e30, most = 0, cx = 0, cy = 0;
        for (int64_t i = 0; i < size; i++) {
            cx += (double)y[2 * (i * rings + r)] / (double)size;
            cy += (double)y[2 * (i * rings + r) + 1] / (double)size;
        }
        for (int64_t i = 0; i < size; i++) {
            const double radius = hypot((double)y[2 * (i * rings + r)] - cx, (double)y[2 * (i * rings + r) + 1] - cy);
            least = fmin(least, radius);
            most = fmax(most, radius);
        }
        expect(most < 1.05 * least + 0.001, "%s: ring %lld has radius %g to %g", what, (long long)r, least, most);
        centres[3 * r] = cx;
        centres[3 * r + 1] = cy;
        centres[3 * r + 2] = most;
        for (int64_t q = 0; q < r; q++) {
            const double gap = hypot(cx - centres[3 * q], cy - centres[3 * q + 1]);
            /* an extent is half the distance; a circle scaled to it in its largest coordinate reaches a little further */
            expect(gap > 0.7 * (most + centres[3 * q + 2]), "%s: rings %lld and %lld overlap", what, (long long)q,
                   (long long)r);
        }
    }
}

static void test_components(napier_context *context) {
    const int64_t counts[] = {2, 3, 4, 5, 30, 200};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const int64_t rings = counts[k], size = 40, loose = (int64_t)k % 3;
        napier_umap_graph *g = many_rings(context, rings, size, loose);
        float *y = scratch(2 * g->n, sizeof *y);
        must(layout_of(context, g, 2, y));
        expect(fabs(most_of(y, 2 * g->n) - 10) < 1e-3, "rings: largest %g", most_of(y, 2 * g->n));
        check_rings(y, rings, size, "on a grid");
        /* samples: ring r lies at a place of its own in 5 columns */
        float *x = scratch(5 * g->n, sizeof *x);
        uint64_t seed = 6;
        for (int64_t i = 0; i < g->n; i++) {
            for (int64_t c = 0; c < 5; c++) {
                const double at = sin((double)((i % rings) * (c + 2))) * (c < 2 ? 10 : 1);
                x[5 * i + c] = (float)(at + 0.01 * umap_normal(&seed));
            }
        }
        const napier_umap_samples samples = {napier_const_rows_f32(x, g->n, 5), NULL};
        must(napier_umap_spectral_layout(context, g, samples, 42, napier_rows_f32(y, g->n, 2)));
        expect(fabs(most_of(y, 2 * g->n) - 10) < 1e-3, "rings: largest %g", most_of(y, 2 * g->n));
        check_rings(y, rings, size, "by centroids");
        x[5 * 7 + 3] = NAN;
        const napier_status status = napier_umap_spectral_layout(context, g, samples, 42, napier_rows_f32(y, g->n, 2));
        expect(status == (rings + loose > 4 ? NAPIER_INVALID_ARGUMENT : NAPIER_OK), "NaN in samples: %d", (int)status);
        napier_umap_graph_destroy(context, g);
    }
    /* more components than pairs are looked at */
    napier_umap_graph *g = many_rings(context, 5000, 5, 100);
    float *y = scratch(2 * g->n, sizeof *y);
    must(layout_of(context, g, 2, y));
    most_of(y, 2 * g->n);
    napier_umap_graph_destroy(context, g);
}

/* ---- PCA and random ---------------------------------------------------------------------------------------------------------------- */

enum { PCA_ROWS = 500, PCA_COLS = 40 };

/* Three strong directions and noise. */
static void make_samples(float *x, int64_t n, int64_t cols, double offset) {
    uint64_t seed = 12;
    for (int64_t i = 0; i < n; i++) {
        const double a = 5 * umap_normal(&seed), b = 2 * umap_normal(&seed), c = umap_normal(&seed);
        for (int64_t j = 0; j < cols; j++) {
            const double s = (double)j / (double)cols;
            const double value = a * sin(2 * s) + b * cos(5 * s) + c * (1 - s) + 0.05 * umap_normal(&seed);
            x[i * cols + j] = (float)(value + offset);
        }
    }
}

/* Each column is C x = value x of the covariance for x = X'y: checked through the scores, y' ~ X X' y. */
static void check_scores(const float *x, int64_t n, int64_t cols, const float *y, int64_t components,
                         const char *what) {
    double *means = calloc((size_t)cols, sizeof *means), *turned = calloc((size_t)cols, sizeof *turned);
    double *again = calloc((size_t)n, sizeof *again);
    for (int64_t i = 0; i < n * cols; i++) {
        means[i % cols] += (double)x[i] / (double)n;
    }
    double before = 1e30;
    for (int64_t c = 0; c < components; c++) {
        memset(turned, 0, (size_t)cols * sizeof *turned);
        double yy = 0, ya = 0, rest = 0, mean = 0;
        for (int64_t i = 0; i < n; i++) {
            mean += (double)y[i * components + c] / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < cols; j++) {
                turned[j] += ((double)x[i * cols + j] - means[j]) * ((double)y[i * components + c] - mean);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            const double z = (double)y[i * components + c] - mean;
            again[i] = 0;
            for (int64_t j = 0; j < cols; j++) {
                again[i] += ((double)x[i * cols + j] - means[j]) * turned[j];
            }
            yy += z * z;
            ya += z * again[i];
        }
        for (int64_t i = 0; i < n; i++) {
            const double gap = again[i] - ya / yy * ((double)y[i * components + c] - mean);
            rest += gap * gap;
        }
        expect(sqrt(rest / yy) < 2e-3 * ya / yy, "%s: component %lld has a residual of %g", what, (long long)c,
               sqrt(rest / yy) / (ya / yy));
        expect(ya / yy < before, "%s: component %lld is out of order", what, (long long)c);
        before = ya / yy;
        double largest = 0;
        for (int64_t i = 0; i < n; i++) {
            const double z = (double)y[i * components + c];
            largest = fabs(z) > fabs(largest) ? z : largest;
        }
        expect(largest > 0, "%s: the largest score of component %lld is negative", what, (long long)c);
    }
    free(means);
    free(turned);
    free(again);
}

static void test_pca(napier_context *context) {
    static float x[PCA_ROWS * PCA_COLS], y[PCA_ROWS * 50], z[PCA_ROWS * 50];
    const double offsets[] = {0, 10, -300};
    for (int k = 0; k < 3; k++) {
        make_samples(x, PCA_ROWS, PCA_COLS, offsets[k]);
        const napier_umap_samples samples = {napier_const_rows_f32(x, PCA_ROWS, PCA_COLS), NULL};
        for (int64_t d = 1; d <= 3; d++) {
            must(napier_umap_pca_layout(context, samples, 42, napier_rows_f32(y, PCA_ROWS, d)));
            expect(fabs(most_of(y, PCA_ROWS * d) - 10) < 1e-3, "pca: largest %g", most_of(y, PCA_ROWS * d));
            check_scores(x, PCA_ROWS, PCA_COLS, y, d, "dense");
        }
        /* CSR of the same numbers: the same but for rounding */
        static int64_t starts[PCA_ROWS + 1];
        static int32_t columns[PCA_ROWS * PCA_COLS];
        for (int64_t i = 0; i <= PCA_ROWS; i++) {
            starts[i] = i * PCA_COLS;
        }
        for (int64_t i = 0; i < PCA_ROWS * PCA_COLS; i++) {
            columns[i] = (int32_t)(i % PCA_COLS);
        }
        const napier_csr_matrix m = {PCA_ROWS, PCA_COLS, starts, columns, x};
        must(napier_umap_pca_layout(context, (napier_umap_samples){{0}, &m}, 42, napier_rows_f32(z, PCA_ROWS, 3)));
        double worst = 0;
        for (int64_t i = 0; i < PCA_ROWS * 3; i++) {
            worst = fmax(worst, fabs((double)(y[i] - z[i])));
        }
        expect(worst < 0.02, "dense and CSR differ by %g", worst);
    }
    /* fewer columns than dimensions; all alike; one row; none */
    const napier_umap_samples narrow = {napier_const_rows_f32(x, PCA_ROWS, 2), NULL};
    must(napier_umap_pca_layout(context, narrow, 42, napier_rows_f32(y, PCA_ROWS, 5)));
    most_of(y, PCA_ROWS * 5);
    double spread = 0;
    for (int64_t i = 0; i < PCA_ROWS; i++) {
        spread = fmax(spread, fabs((double)y[5 * i + 4]));
    }
    expect(spread > 0.5 && spread <= 1.001, "missing components reach %g", spread);
    float *equal = scratch(PCA_ROWS * 3, sizeof *equal);
    for (int64_t i = 0; i < PCA_ROWS * 3; i++) {
        equal[i] = 0.1f;
    }
    const napier_umap_samples alike = {napier_const_rows_f32(equal, PCA_ROWS, 3), NULL};
    must(napier_umap_pca_layout(context, alike, 42, napier_rows_f32(y, PCA_ROWS, 2)));
    most_of(y, PCA_ROWS * 2);
    const napier_umap_samples one = {napier_const_rows_f32(x, 1, 3), NULL},
                              none = {napier_const_rows_f32(x, 0, 3), NULL};
    must(napier_umap_pca_layout(context, one, 42, napier_rows_f32(y, 1, 2)));
    expect(y[0] == 0 && y[1] == 0, "one row lies at %g, %g", (double)y[0], (double)y[1]);
    must(napier_umap_pca_layout(context, none, 42, napier_rows_f32(y, 0, 2)));
    /* extreme sizes */
    for (int e = -140; e <= 120; e += 20) {
        make_samples(x, PCA_ROWS, PCA_COLS, 0);
        for (int64_t i = 0; i < PCA_ROWS * PCA_COLS; i++) {
            x[i] = ldexpf(x[i], e);
        }
        const napier_umap_samples scaled = {napier_const_rows_f32(x, PCA_ROWS, PCA_COLS), NULL};
        must(napier_umap_pca_layout(context, scaled, 42, napier_rows_f32(y, PCA_ROWS, 2)));
        expect(fabs(most_of(y, PCA_ROWS * 2) - 10) < 1e-3, "2^%d: largest %g", e, most_of(y, PCA_ROWS * 2));
    }
}

static void test_random(napier_context *context) {
    enum { N = 3000 };
    static float y[2 * N], z[2 * N];
    napier_context *alone = context_of(NAPIER_ISA_SCALAR, 1);
    must(napier_umap_random_layout(context, 42, napier_rows_f32(y, N, 2)));
    succeeded(alone, napier_umap_random_layout(alone, 42, napier_rows_f32(z, N, 2)), "random");
    expect(memcmp(y, z, sizeof y) == 0, "other bits");
    double mean = 0, square = 0;
    for (int64_t i = 0; i < 2 * N; i++) {
        mean += (double)y[i] / (2 * N);
        square += (double)y[i] * (double)y[i] / (2 * N);
        expect(y[i] >= -10 && y[i] <= 10, "%g", (double)y[i]);
    }
    expect(fabs(mean) < 0.3 && fabs(square - 100.0 / 3) < 1.5, "mean %g, mean square %g", mean, square);
    must(napier_umap_random_layout(context, 43, napier_rows_f32(z, N, 2)));
    expect(memcmp(y, z, sizeof y) != 0, "two seeds, one layout");
    napier_context_destroy(alone);
}

/* ---- Bits, refusals, memory --------------------------------------------------------------------------------------------------------- */

static void test_bits(void) {
    enum { N = SANITIZED ? 1000 : 5000 };
    static float x[2 * N], samples[N * PCA_COLS], first[4 * N], y[4 * N];
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    make_samples(samples, N, PCA_COLS, 3);
    const napier_umap_samples rows = {napier_const_rows_f32(samples, N, PCA_COLS), NULL};
    napier_context *plain = context_of(NAPIER_ISA_SCALAR, 1);
    napier_umap_graph *one = cloud(plain, N, 9, x), *many = many_rings(plain, 20, N / 20, 0);
    for (int kind = 0; kind < 3; kind++) {
        for (int k = 0; k < count; k++) {
            for (int threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5) {
                napier_context *context = context_of(isas[k], threads);
                const napier_matrix out = napier_rows_f32(y, N, 4);
                must(kind == 2 ? napier_umap_pca_layout(context, rows, 5, out)
                               : napier_umap_spectral_layout(context, kind ? many : one, rows, 5, out));
                if (k == 0 && threads == 1) {
                    memcpy(first, y, sizeof y);
                }
                expect(memcmp(first, y, sizeof y) == 0, "kind %d, %s, %d threads: other bits", kind,
                       napier_isa_name(isas[k]), threads);
                napier_context_destroy(context);
            }
        }
    }
    napier_umap_graph_destroy(plain, one);
    napier_umap_graph_destroy(plain, many);
    napier_context_destroy(plain);
}

static void test_refused(napier_context *context) {
    static float y[100 * 60], x[100 * 3];
    napier_umap_graph *g = path(context, 100);
    const napier_umap_samples few = {napier_const_rows_f32(x, 99, 3), NULL};
    y[0] = 7;
    invalid(context, napier_umap_spectral_layout(context, NULL, no_samples, 1, napier_rows_f32(y, 100, 2)), "graph");
    invalid(context, napier_umap_spectral_layout(context, g, no_samples, 1, napier_rows_f32(y, 99, 2)), "embedding",
            "99");
    invalid(context, napier_umap_spectral_layout(context, g, no_samples, 1, napier_rows_f32(y, 100, 51)), "embedding",
            "51");
    invalid(context, napier_umap_spectral_layout(context, g, few, 1, napier_rows_f32(y, 100, 2)), "samples", "99");
    x[4] = INFINITY;
    invalid(context, napier_umap_pca_layout(context, few, 1, napier_rows_f32(y, 99, 2)), "samples", "row 1",
            "column 1");
    expect(y[0] == 7, "an error wrote");
    g->weights[5] = -1;
    invalid(context, napier_umap_spectral_layout(context, g, no_samples, 1, napier_rows_f32(y, 100, 2)), "graph");
    expect(napier_umap_random_layout(NULL, 1, napier_rows_f32(y, 100, 2)) == NAPIER_INVALID_ARGUMENT, "context NULL");
    napier_umap_graph_destroy(context, g);
}

typedef struct start_job {
    const napier_umap_graph *g;
    napier_umap_samples samples;
} start_job;

static napier_status run_spectral(napier_context *context, void *argument) {
    const start_job *j = argument;
    float *y = scratch(2 * j->g->n, sizeof *y);
    const napier_status status =
        napier_umap_spectral_layout(context, j->g, j->samples, 1, napier_rows_f32(y, j->g->n, 2));
    return status;
}

static napier_status run_pca(napier_context *context, void *argument) {
    const start_job *j = argument;
    float *y = scratch(2 * j->g->n, sizeof *y);
    const napier_status status = napier_umap_pca_layout(context, j->samples, 1, napier_rows_f32(y, j->g->n, 2));
    return status;
}

static void test_memory(napier_context *context) {
    static float x[410 * 3];
    static int64_t starts[411];
    static int32_t columns[410];
    napier_umap_graph *many = many_rings(context, 10, 40, 10), *one = path(context, 400);
    make_samples(x, 410, 3, 0);
    for (int i = 0; i < 410; i++) {
        starts[i + 1] = i + 1;
        columns[i] = i % 3;
    }
    const napier_csr_matrix m = {410, 3, starts, columns, x};
    start_job a = {one, no_samples}, b = {many, {napier_const_rows_f32(x, 410, 3), NULL}}, c = {many, {{0}, &m}};
    check_allocations("one component", run_spectral, &a);
    check_allocations("many components", run_spectral, &b);
    check_allocations("many components, CSR", run_spectral, &c);
    check_allocations("pca", run_pca, &b);
    check_allocations("pca, CSR", run_pca, &c);
    napier_umap_graph_destroy(context, many);
    napier_umap_graph_destroy(context, one);
}

int main(void) {
    return RUN_TESTS("umap starts", TEST(test_jacobi), TEST_2(test_path), TEST_2(test_ring), TEST_2(test_residuals),
                     TEST_2(test_odd_graphs), TEST_2(test_components), TEST_2(test_pca), TEST_2(test_random),
                     TEST(test_bits), TEST_2(test_refused), TEST_2(test_memory));
}
