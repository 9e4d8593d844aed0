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
    const int64_t mark = scratch_mark();
    double *d = scratch(g->n, sizeof *d), *x = scratch(g->n, sizeof *x), *z = scratch(g->n, sizeof *z);
    double xx = 0, xz = 0, rest = 0;
    for (int64_t v = 0; v < g->n; v++) {
        d[v] = z[v] = 0;
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
    scratch_release(mark);
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
    for (int64_t n = 1; n <= MOST; n += n < 9 ? 1 : 93) {
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

enum { STAR = 4, COMPLETE, BIPARTITE, CLIQUES, TINY, HUGE_AND_TINY, SELF, ONE_WAY, TRIANGLE, LONG_PATH, ODD_GRAPHS };
static const struct {
    const char *name;
    int64_t n;
} odd[ODD_GRAPHS] = {{"one vertex", 1},
                     {"two apart", 2},
                     {"all apart", 500},
                     {"two joined", 2},
                     {"star", 2000},
                     {"complete", 60},
                     {"complete and bipartite", 55},
                     {"two cliques and a thread", 80},
                     {"tiny weights", 100},
                     {"huge and tiny weights", 100},
                     {"only edges to itself", 20},
                     {"one way", 300}, /* not symmetric: not asked for, yet it must end and be finite */
                     {"a triangle", 3},
                     {"long path", 4000}};

/* The weight of the edge of i and j <= i; 0: there is none. */
static double odd_weight(int which, int64_t i, int64_t j) {
    const bool next = i == j + 1;
    switch (which) {
    case 3: return next;
    case STAR: return j == 0 && i > 0;
    case COMPLETE: return i > j;
    case BIPARTITE: return i >= 30 && j < 30 ? 0.3 : 0.0;
    case CLIQUES: return i / 40 == j / 40 ? i > j : i == 44 && j == 3 ? 1e-12 : 0.0;
    case TINY: return next ? (j % 2 ? 1e-44 : 1e-38) : 0.0;
    case HUGE_AND_TINY: return next ? (j % 2 ? 3e38 : 1e-38) : 0.0;
    case SELF: return i == j;
    case ONE_WAY: return next;
    default: return 0.0;
    }
}

static napier_umap_graph *odd_graph(napier_context *context, int which) {
    edge_list l = {0};
    if (which >= TRIANGLE) {
        return which == TRIANGLE ? ring(context, 3) : path(context, odd[which].n);
    }
    for (int64_t i = 0; i < odd[which].n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            if (odd_weight(which, i, j) > 0.0) {
                join(&l, j, i, odd_weight(which, i, j));
                l.count -= which == SELF || which == ONE_WAY;
            }
        }
    }
    return graph_of(context, &l, odd[which].n);
}

static void test_odd_graphs(napier_context *context) {
    static float y[4000 * 50], again[4000 * 50];
    napier_context *scalar = context_of(NAPIER_ISA_SCALAR, 7);
    const int64_t dimensions[] = {1, 2, 3, 50};
    for (int which = 0; which < ODD_GRAPHS; which++) {
        const char *const name = odd[which].name;
        napier_umap_graph *g = odd_graph(context, which);
        for (size_t k = 0; k < 4; k += NAPIER_SANITIZED ? 2 : 1) {
            const int64_t d = dimensions[k];
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
        const napier_umap_samples samples = samples_of(x, g->n, 5);
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
    double *means = scratch(cols, sizeof *means), *turned = scratch(cols, sizeof *turned);
    double *again = scratch(n, sizeof *again);
    memset(means, 0, (size_t)cols * sizeof *means);
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
}

/* The start of rows, and its largest number. */
static double pca_of(napier_context *context, napier_umap_samples samples, int64_t components, float *y) {
    const int64_t n = napier_samples_rows(samples);
    must(napier_umap_pca_layout(context, samples, 42, napier_rows_f32(y, n, components)));
    return most_of(y, n * components);
}

static void test_pca(napier_context *context) {
    static float x[PCA_ROWS * PCA_COLS], y[PCA_ROWS * 5], z[PCA_ROWS * 3], equal[PCA_ROWS * 3];
    const napier_umap_samples samples = samples_of(x, PCA_ROWS, PCA_COLS);
    const double offsets[] = {0, 10, -300};
    for (int k = 0; k < 3; k++) {
        make_samples(x, PCA_ROWS, PCA_COLS, offsets[k]);
        for (int64_t d = 1; d <= 3; d++) {
            const double most = pca_of(context, samples, d, y);
            expect(fabs(most - 10) < 1e-3, "pca: largest %g", most);
            check_scores(x, PCA_ROWS, PCA_COLS, y, d, "dense");
        }
        /* CSR of the same numbers: the same but for rounding */
        pca_of(context, sparse_of(csr_of(x, PCA_ROWS, PCA_COLS, false)), 3, z);
        double worst = 0;
        for (int64_t i = 0; i < PCA_ROWS * 3; i++) {
            worst = fmax(worst, fabs((double)(y[i] - z[i])));
        }
        expect(worst < 0.02, "dense and CSR differ by %g", worst);
    }
    /* fewer columns than dimensions; all alike; one row; none */
    pca_of(context, samples_of(x, PCA_ROWS, 2), 5, y);
    double spread = 0;
    for (int64_t i = 0; i < PCA_ROWS; i++) {
        spread = fmax(spread, fabs((double)y[5 * i + 4]));
    }
    expect(spread > 0.5 && spread <= 1.001, "missing components reach %g", spread);
    for (int64_t i = 0; i < PCA_ROWS * 3; i++) {
        equal[i] = 0.1f;
    }
    pca_of(context, samples_of(equal, PCA_ROWS, 3), 2, y);
    pca_of(context, samples_of(x, 1, 3), 2, y);
    expect(y[0] == 0 && y[1] == 0, "one row lies at %g, %g", (double)y[0], (double)y[1]);
    pca_of(context, samples_of(x, 0, 3), 2, y);
    for (int e = -140; e <= 120; e += 20) { /* extreme sizes */
        make_samples(x, PCA_ROWS, PCA_COLS, 0);
        for (int64_t i = 0; i < PCA_ROWS * PCA_COLS; i++) {
            x[i] = ldexpf(x[i], e);
        }
        const double most = pca_of(context, samples, 2, y);
        expect(fabs(most - 10) < 1e-3, "2^%d: largest %g", e, most);
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

typedef struct start_job {
    const napier_umap_graph *g; /* NULL: principal components */
    napier_umap_samples samples;
    int64_t n, components;
} start_job;

static napier_status start_work(napier_context *context, const void *argument, void *out) {
    const start_job *j = argument;
    const napier_matrix y = napier_rows_f32(out, j->n, j->components);
    return j->g ? napier_umap_spectral_layout(context, j->g, j->samples, 5, y)
                : napier_umap_pca_layout(context, j->samples, 5, y);
}

static void test_bits(napier_context *context) {
    enum { N = NAPIER_SANITIZED ? 1000 : 5000 };
    static float x[2 * N], samples[N * PCA_COLS];
    make_samples(samples, N, PCA_COLS, 3);
    const napier_umap_samples rows = samples_of(samples, N, PCA_COLS);
    napier_umap_graph *one = cloud(context, N, 9, x), *many = many_rings(context, 20, N / 20, 0);
    const start_job jobs[] = {{one, rows, N, 4}, {many, rows, N, 4}, {NULL, rows, N, 4}};
    const char *const names[] = {"one component", "many components", "pca"};
    for (int i = 0; i < 3; i++) {
        same_bits(names[i], start_work, &jobs[i], 4 * N * sizeof(float));
    }
    napier_umap_graph_destroy(context, one);
    napier_umap_graph_destroy(context, many);
}

static void test_refused(napier_context *context) {
    static float y[100 * 60], x[100 * 3];
    napier_umap_graph *g = path(context, 100);
    const napier_umap_samples few = samples_of(x, 99, 3);
    y[0] = 7;
    invalid(context, napier_umap_spectral_layout(context, NULL, no_samples, 1, napier_rows_f32(y, 100, 2)), "graph");
    invalid(context, napier_umap_spectral_layout(context, g, no_samples, 1, napier_rows_f32(y, 99, 2)), "embedding",
            "99");
    invalid(context, napier_umap_spectral_layout(context, g, no_samples, 1, napier_rows_f32(y, 100, 257)), "embedding",
            "257");
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

static napier_status run_start(napier_context *context, void *argument) {
    static float y[2 * 410];
    return start_work(context, argument, y);
}

static void test_memory(napier_context *context) {
    enum { N = 410 };
    static float x[N * 3], spread[N * 3];
    napier_umap_graph *many = many_rings(context, 10, 40, 10), *one = path(context, 400);
    make_samples(x, N, 3, 0);
    for (int i = 0; i < N; i++) {
        spread[3 * i + i % 3] = x[i];
    }
    const napier_umap_samples dense = samples_of(x, N, 3), sparse = sparse_of(csr_of(spread, N, 3, false));
    start_job jobs[] = {{one, no_samples, 400, 2},
                        {many, dense, N, 2},
                        {many, sparse, N, 2},
                        {NULL, dense, N, 2},
                        {NULL, sparse, N, 2}};
    const char *const names[] = {"one component", "many components", "many components, CSR", "pca", "pca, CSR"};
    for (int i = 0; i < 5; i++) {
        check_allocations(names[i], run_start, &jobs[i]);
    }
    napier_umap_graph_destroy(context, many);
    napier_umap_graph_destroy(context, one);
}

int main(void) {
    return RUN_TESTS("umap starts", TEST(test_jacobi), TEST_2(test_path), TEST_2(test_ring), TEST_2(test_residuals),
                     TEST_2(test_odd_graphs), TEST_2(test_components), TEST_2(test_pca), TEST_2(test_random),
                     TEST_1(test_bits), TEST_2(test_refused), TEST_2(test_memory));
}
