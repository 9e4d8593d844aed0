/* The curve, the fuzzy set and supervision: against known values, against plain double implementations, and by what must
 * hold whatever the data. */
#include "unit/umap/umap_support.h"

/* ---- The curve ------------------------------------------------------------------------------------------------------- */

static void test_curve(napier_context *context) {
    const double table[][3] = {{0, 1.93281, 0.79049},   {0.001, 1.92907, 0.79150}, {0.01, 1.89561, 0.80064},
                               {0.1, 1.57694, 0.89506}, {0.25, 1.12144, 1.05750},  {0.5, 0.58303, 1.33417}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        float a = 0, b = 0;
        must(napier_umap_find_ab_params(context, table[i][0], 1.0, &a, &b));
        expect(fabs((double)a - table[i][1]) < 1e-5 && fabs((double)b - table[i][2]) < 1e-5,
               "min_dist %g: a %.6f, b %.6f, not %.5f, %.5f", table[i][0], (double)a, (double)b, table[i][1],
               table[i][2]);
    }
    /* the same curve in other units: a spread^2b is the same */
    for (double spread = 1e-3; spread < 1e4; spread *= 10) {
        float a = 0, b = 0;
        must(napier_umap_find_ab_params(context, 0.1 * spread, spread, &a, &b));
        expect(fabs((double)a * pow(spread, 2 * (double)b) - 1.57694) < 2e-5 && fabs((double)b - 0.89506) < 1e-5,
               "spread %g: a %.6g, b %.6f", spread, (double)a, (double)b);
    }
    float a = 0, b = 0;
    for (double share = 0; share <= 1; share += 1.0 / 64) {
        must(napier_umap_find_ab_params(context, share, 1.0, &a, &b));
        expect(a > 0 && b > 0.7f && b < 3.0f, "min_dist %g: a %g, b %g", share, (double)a, (double)b);
    }
    const double bad[][2] = {{-0.1, 1}, {1.1, 1},           {(double)NAN, 1}, {0.1, 0},
                             {0.1, -1}, {0.1, (double)NAN}, {0.1, HUGE_VAL},  {0, 1e-40}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a = 7;
        expect(napier_umap_find_ab_params(context, bad[i][0], bad[i][1], &a, &b) == NAPIER_INVALID_ARGUMENT && a == 7,
               "min_dist %g, spread %g", bad[i][0], bad[i][1]);
        expect(napier_last_error(context)[0] != '\0', "no text");
    }
    expect(napier_umap_find_ab_params(context, 0.1, 1, NULL, &b) == NAPIER_INVALID_ARGUMENT, "a NULL");
    expect(napier_umap_find_ab_params(NULL, 0.1, 1, &a, &b) == NAPIER_INVALID_ARGUMENT, "context NULL");
}

/* ---- Neighbours of random points, by looking at all -------------------------------------------------------------------- */

enum { N = 300, K = 12, DIMS = 4 };

typedef struct neighbors {
    int64_t n, k;
    int32_t *indices;
    float *distances;
} neighbors;

static neighbors neighbors_of(const float *x, int64_t n, int64_t dims, int64_t k) {
    neighbors q = {n, k, scratch(n * k, sizeof(int32_t)), scratch(n * k, sizeof(float))};
    float *d = scratch(n, sizeof *d);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t c = 0; c < dims; c++) {
                const double gap = (double)x[i * dims + c] - (double)x[j * dims + c];
                sum += gap * gap;
            }
            d[j] = j == i ? -1.0f : (float)sqrt(sum); /* itself first */
        }
        for (int64_t e = 0; e < k; e++) {
            int64_t best = 0;
            for (int64_t j = 1; j < n; j++) {
                best = d[j] < d[best] ? j : best;
            }
            q.indices[i * k + e] = (int32_t)best;
            q.distances[i * k + e] = d[best] < 0 ? 0.0f : d[best];
            d[best] = INFINITY;
        }
    }
    return q;
}

/* Clusters of unlike size, with equal points among them. */
static neighbors some_neighbors(uint64_t seed) {
    static float x[N * DIMS];
    for (int64_t i = 0; i < N; i++) {
        for (int64_t c = 0; c < DIMS; c++) {
            x[i * DIMS + c] = (float)(umap_normal(&seed) * (double)(1 + i % 3) + 6.0 * (double)(i % 5));
        }
        if (i % 10 == 9) {
            memcpy(x + i * DIMS, x + (i - 5) * DIMS, DIMS * sizeof *x);
        }
    }
    for (int64_t i = 100; i < 120; i++) { /* more equals than neighbours */
        memcpy(x + i * DIMS, x + 100 * DIMS, DIMS * sizeof *x);
    }
    return neighbors_of(x, N, DIMS, K);
}

/* ---- Rho and sigma ------------------------------------------------------------------------------------------------------ */

static void plain_smooth(const neighbors *q, double local_connectivity, double *rhos, double *sigmas) {
    double mean_of_all = 0;
    for (int64_t i = 0; i < q->n * q->k; i++) {
        mean_of_all += (double)q->distances[i] / (double)(q->n * q->k);
    }
    for (int64_t i = 0; i < q->n; i++) {
        const float *d = q->distances + i * q->k;
        double away[K] = {0}, mean = 0;
        int64_t count = 0;
        for (int64_t j = 0; j < q->k; j++) {
            mean += (double)d[j] / (double)q->k;
            if (d[j] > 0) {
                away[count++] = (double)d[j];
            }
        }
        const int64_t whole = (int64_t)floor(local_connectivity);
        const double part = local_connectivity - (double)whole;
        rhos[i] = 0;
        if ((double)count >= local_connectivity) {
            if (whole > 0) {
                rhos[i] = away[whole - 1] + (part > 1e-5 ? part * (away[whole] - away[whole - 1]) : 0);
            } else {
                rhos[i] = part * away[0];
            }
        } else if (count > 0) {
            rhos[i] = away[count - 1];
        }
        double low = 0, high = HUGE_VAL, middle = 1;
        for (int round = 0; round < 64; round++) {
            double sum = 0;
            for (int64_t j = 1; j < q->k; j++) {
                const double gap = (double)d[j] - rhos[i];
                sum += gap > 0 ? exp(-gap / middle) : 1;
            }
            if (fabs(sum - log2((double)q->k)) < 1e-5) {
                break;
            }
            if (sum > log2((double)q->k)) {
                high = middle;
                middle = (low + high) / 2;
            } else {
                low = middle;
                middle = isinf(high) ? 2 * middle : (low + high) / 2;
            }
        }
        sigmas[i] = fmax(middle, 1e-3 * (rhos[i] > 0 ? mean : mean_of_all));
    }
}

static void test_smooth(napier_context *context) {
    static float rhos[N], sigmas[N];
    static double true_rhos[N], true_sigmas[N];
    neighbors q = some_neighbors(1);
    const double connectivities[] = {0, 0.5, 1, 1.5, 2, 3.25, 11, 40};
    for (size_t c = 0; c < sizeof connectivities / sizeof *connectivities; c++) {
        must(napier_umap_smooth_knn_dist(context, q.distances, N, K, connectivities[c], rhos, sigmas));
        plain_smooth(&q, connectivities[c], true_rhos, true_sigmas);
        for (int64_t i = 0; i < N; i++) {
            expect(fabs((double)rhos[i] - true_rhos[i]) <= 1e-6 * (1 + true_rhos[i]), "%g: rho %lld is %.9g, not %.9g",
                   connectivities[c], (long long)i, (double)rhos[i], true_rhos[i]);
            expect(fabs((double)sigmas[i] - true_sigmas[i]) <= 1e-4 * true_sigmas[i],
                   "%g: sigma %lld is %.9g, not %.9g", connectivities[c], (long long)i, (double)sigmas[i],
                   true_sigmas[i]);
        }
    }
    /* the sum that sigma is for, where it is not held up by its floor; at any scale of the data */
    static float scaled[N * K];
    for (int e = -100; e <= 100; e += 20) {
        for (int64_t i = 0; i < N * K; i++) {
            scaled[i] = ldexpf(q.distances[i], e);
        }
        must(napier_umap_smooth_knn_dist(context, scaled, N, K, 1.0, rhos, sigmas));
        for (int64_t i = 0; i < N; i++) {
            double sum = 0;
            int near = 0;
            for (int64_t j = 1; j < K; j++) {
                sum += exp(-fmax(0, (double)(scaled[i * K + j] - rhos[i])) / (double)sigmas[i]);
                near += scaled[i * K + j] <= rhos[i];
            }
            const int held_up = near > log2(K); /* no sigma is small enough */
            expect(held_up || fabs(sum - log2(K)) < 1e-3, "2^%d: the sum of row %lld is %g", e, (long long)i, sum);
        }
    }
}

/* ---- The set -------------------------------------------------------------------------------------------------------------- */

static void dense_of_graph(const napier_umap_graph *g, double *w) {
    memset(w, 0, (size_t)(g->n * g->n) * sizeof *w);
    for (int64_t v = 0; v < g->n; v++) {
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            w[v * g->n + g->targets[e]] = (double)g->weights[e];
        }
    }
}

static double worst_gap(const double *a, const double *b, int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n * n; i++) {
        worst = fmax(worst, fabs(a[i] - b[i]));
    }
    return worst;
}

/* The fuzzy set of neighbours. */
static napier_umap_graph *set_of(napier_context *context, const neighbors *q, double local_connectivity, double mix) {
    napier_umap_graph *g = NULL;
    must(napier_umap_fuzzy_simplicial_set(context, q->indices, q->distances, q->n, q->k, local_connectivity, mix, &g));
    return g;
}

static void check_invariants(const napier_umap_graph *g, const char *what) {
    expect(g->starts[0] == 0, "%s: starts[0]", what);
    for (int64_t v = 0; v < g->n; v++) {
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            expect(g->weights[e] > 0 && g->weights[e] <= 1, "%s: weight %.9g", what, (double)g->weights[e]);
            expect(g->targets[e] != v && g->targets[e] < g->n, "%s: edge %lld-%u", what, (long long)v, g->targets[e]);
            expect(e == g->starts[v] || g->targets[e] > g->targets[e - 1], "%s: row %lld is not ascending", what,
                   (long long)v);
            const int64_t u = g->targets[e];
            int64_t mirror = g->starts[u];
            while (mirror < g->starts[u + 1] && g->targets[mirror] != v) {
                mirror++;
            }
            expect(mirror < g->starts[u + 1] && g->weights[mirror] == g->weights[e], "%s: %lld-%lld is not symmetric",
                   what, (long long)v, (long long)u);
        }
    }
}

static void plain_set(const neighbors *q, double local_connectivity, double mix, double *w) {
    static double rhos[N], sigmas[N], a[N * N];
    plain_smooth(q, local_connectivity, rhos, sigmas);
    memset(a, 0, sizeof a);
    for (int64_t i = 0; i < q->n; i++) {
        for (int64_t j = 0; j < q->k; j++) {
            const int64_t at = i * q->k + j;
            const double gap = (double)q->distances[at] - rhos[i];
            if (q->indices[at] >= 0 && q->indices[at] != i) {
                a[i * q->n + q->indices[at]] = gap <= 0 || sigmas[i] == 0 ? 1 : exp(-gap / sigmas[i]);
            }
        }
    }
    for (int64_t i = 0; i < q->n; i++) {
        for (int64_t j = 0; j < q->n; j++) {
            const double x = a[i * q->n + j], y = a[j * q->n + i];
            w[i * q->n + j] = mix * (x + y - x * y) + (1 - mix) * x * y;
        }
    }
}

static void test_set(napier_context *context) {
    static double wanted[N * N], got[N * N];
    neighbors q = some_neighbors(2);
    const double cases[][2] = {{1, 1}, {1, 0}, {1, 0.5}, {1.5, 1}, {2, 0.25}, {0, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        napier_umap_graph *g = set_of(context, &q, cases[c][0], cases[c][1]);
        check_invariants(g, "set");
        plain_set(&q, cases[c][0], cases[c][1], wanted);
        dense_of_graph(g, got);
        const double worst = worst_gap(got, wanted, N);
        expect(worst < 2e-5, "connectivity %g, mix %g: weights differ by %g", cases[c][0], cases[c][1], worst);
        if (cases[c][1] == 1 && cases[c][0] >= 1) {
            for (int64_t v = 0; v < N; v++) {
                double most = 0;
                for (int64_t j = 0; j < N; j++) {
                    most = fmax(most, got[v * N + j]);
                }
                expect(most == 1, "the strongest edge of %lld weighs %.9g", (long long)v, most);
            }
        }
        napier_umap_graph_destroy(context, g);
    }
}

/* Missing neighbours are passed over; one point and one neighbour are no accident. */
static void test_small_sets(napier_context *context) {
    int32_t indices[] = {0, 1, -1, 1, 0, -1, 2, -1, -1}, equal[] = {0, 1, 2, 1, 0, 2, 2, 0, 1};
    float distances[] = {0, 2, INFINITY, 0, 2, INFINITY, 0, INFINITY, INFINITY}, zeros[9] = {0};
    const struct {
        const char *name;
        neighbors q;
        int64_t starts[4]; /* of points at distance 2, or equal: all weights are 1 */
    } cases[] = {{"two joined, one alone", {3, 3, indices, distances}, {0, 1, 2, 2}},
                 {"one point", {1, 1, indices, distances}, {0, 0}},
                 {"no points", {0, 5, NULL, NULL}, {0}},
                 {"equal points", {3, 3, equal, zeros}, {0, 2, 4, 6}}};
    napier_umap_graph *g = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        g = set_of(context, &cases[i].q, 1, 1);
        expect(g->n == cases[i].q.n, "%s: %lld points", cases[i].name, (long long)g->n);
        for (int64_t v = 0; v <= g->n; v++) {
            expect(g->starts[v] == cases[i].starts[v], "%s: row %lld", cases[i].name, (long long)v);
        }
        for (int64_t e = 0; e < g->starts[g->n]; e++) {
            expect(g->weights[e] == 1, "%s: joined by %g", cases[i].name, (double)g->weights[e]);
        }
        napier_umap_graph_destroy(context, g);
    }
    const struct {
        int32_t index;
        float distance;
        const char *word;
    } bad[] = {{3, 2, "neighbour 1 of row 1 is 3"},
               {-2, 2, "is -2"},
               {0, NAN, "nan"},
               {0, -1, "-1"},
               {0, INFINITY, "inf"},
               {1, 2, "twice"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t broken[9];
        float far[9];
        memcpy(broken, indices, sizeof broken);
        memcpy(far, distances, sizeof far);
        broken[4] = bad[i].index;
        far[4] = bad[i].distance;
        if (bad[i].index == 1) { /* not itself, but a neighbour named twice */
            broken[4] = broken[5] = 2;
            far[5] = 2;
        }
        invalid(context, napier_umap_fuzzy_simplicial_set(context, broken, far, 3, 3, 1, 1, &g), "row 1", bad[i].word);
        expect(g == NULL, "a graph");
    }
    const float falling[] = {0, 3, 2};
    float rho, sigma;
    invalid(context, napier_umap_smooth_knn_dist(context, falling, 1, 3, 1, &rho, &sigma), "neighbour 2", "ascending");
    invalid(context, napier_umap_smooth_knn_dist(context, falling, 1, 0, 1, &rho, &sigma), "n_neighbors", "0");
    invalid(context, napier_umap_smooth_knn_dist(context, falling, -1, 1, 1, &rho, &sigma), "-1");
    invalid(context, napier_umap_smooth_knn_dist(context, falling, 1, 1, -1, &rho, &sigma), "local_connectivity");
    invalid(context, napier_umap_smooth_knn_dist(context, falling, 1, 1, 1, NULL, &sigma), "rhos");
    invalid(context, napier_umap_fuzzy_simplicial_set(context, indices, distances, 3, 3, 1, 1.5, &g),
            "set_op_mix_ratio");
    invalid(context, napier_umap_fuzzy_simplicial_set(context, indices, distances, 3, 3, 1, 1, NULL), "out");
}

/* ---- Supervision -------------------------------------------------------------------------------------------------------------- */

/* Rows divided by their largest, then the union. */
static void plain_reset(double *w, int64_t n) {
    static double a[N * N];
    for (int64_t i = 0; i < n; i++) {
        double most = 0;
        for (int64_t j = 0; j < n; j++) {
            most = fmax(most, w[i * n + j]);
        }
        for (int64_t j = 0; j < n; j++) {
            a[i * n + j] = most > 0 ? w[i * n + j] / most : 0;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            w[i * n + j] = a[i * n + j] + a[j * n + i] - a[i * n + j] * a[j * n + i];
        }
    }
}

static void test_categories(napier_context *context) {
    static double w[N * N], got[N * N];
    static int32_t categories[N];
    neighbors q = some_neighbors(3);
    for (int64_t i = 0; i < N; i++) {
        categories[i] = (int32_t)(i % 6) - 1;
    }
    const double weights[] = {0, 0.5, 0.9, 1};
    for (int k = 0; k < 4; k++) {
        napier_umap_graph *g = set_of(context, &q, 1, 1);
        dense_of_graph(g, w);
        for (int64_t i = 0; i < N; i++) {
            for (int64_t j = 0; j < N; j++) {
                const int unknown = categories[i] < 0 || categories[j] < 0;
                const double far = weights[k] < 1 ? 2.5 / (1 - weights[k]) : 1e12;
                w[i * N + j] *= unknown ? exp(-1) : categories[i] != categories[j] ? exp(-far) : 1;
            }
        }
        plain_reset(w, N);
        must(napier_umap_join_categories(context, &g, categories, weights[k]));
        check_invariants(g, "categories");
        dense_of_graph(g, got);
        expect(worst_gap(got, w, N) < 1e-6, "target_weight %g: weights differ by %g", weights[k], worst_gap(got, w, N));
        napier_umap_graph *const before = g;
        invalid(context, napier_umap_join_categories(context, &g, categories, 1.5), "target_weight");
        invalid(context, napier_umap_join_categories(context, &g, NULL, 0.5), "categories");
        expect(g == before, "an error replaced the graph");
        napier_umap_graph_destroy(context, g);
    }
}

/* Distances of 0 and 1 between categories are the categories. */
static void test_target_distances(napier_context *context) {
    static int32_t categories[N];
    static float distances[N * N];
    neighbors q = some_neighbors(5);
    for (int64_t i = 0; i < N; i++) {
        categories[i] = (int32_t)(i % 4);
    }
    napier_umap_graph *g = set_of(context, &q, 1, 1), *wanted = set_of(context, &q, 1, 1);
    for (int64_t v = 0; v < N; v++) {
        for (int64_t e = g->starts[v]; e < g->starts[v + 1]; e++) {
            distances[e] = categories[v] == categories[g->targets[e]] ? 0.0f : 1.0f;
        }
    }
    must(napier_umap_join_distances(context, &g, distances, 0.3));
    must(napier_umap_join_categories(context, &wanted, categories, 0.3));
    check_invariants(g, "target distances");
    expect(g->starts[N] == wanted->starts[N] &&
               memcmp(g->weights, wanted->weights, (size_t)g->starts[N] * sizeof *g->weights) == 0,
           "distances of 0 and 1 differ from categories");
    distances[3] = NAN;
    invalid(context, napier_umap_join_distances(context, &g, distances, 0.3), "element 3 is nan");
    distances[3] = -1.0f;
    invalid(context, napier_umap_join_distances(context, &g, distances, 0.3), "element 3 is -1");
    invalid(context, napier_umap_join_distances(context, &g, NULL, 0.3), "distances");
    napier_umap_graph_destroy(context, g);
    napier_umap_graph_destroy(context, wanted);
}

/* Raises each row to the power at which it sums to log2(k). */
static void plain_calibrate(double *w, int64_t n, int64_t k) {
    for (int64_t i = 0; i < n; i++) {
        double low = 0, high = 1e9, largest = 0;
        for (int64_t j = 0; j < n; j++) {
            largest = fmax(largest, w[i * n + j]);
        }
        for (int round = 0; round < 200; round++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) {
                sum += w[i * n + j] > 0 ? pow(w[i * n + j] / largest, (low + high) / 2) : 0;
            }
            *(sum > log2((double)k) ? &low : &high) = (low + high) / 2;
        }
        for (int64_t j = 0; j < n; j++) {
            w[i * n + j] = w[i * n + j] > 0 ? pow(w[i * n + j] / largest, high) : 0;
        }
    }
}

static void plain_combine(double *w, const double *r, napier_umap_operation op) {
    double left_least = 1, right_least = 1;
    for (int64_t i = 0; i < (int64_t)N * N; i++) {
        left_least = w[i] > 0 ? fmin(left_least, w[i]) : left_least;
        right_least = r[i] > 0 ? fmin(right_least, r[i]) : right_least;
    }
    left_least = fmax(left_least / 2, 1e-8);
    right_least = fmin(fmax(right_least / 2, 1e-8), 1e-4);
    for (int64_t i = 0; i < (int64_t)N * N; i++) {
        if (op == NAPIER_UMAP_UNION) {
            w[i] += r[i] - w[i] * r[i];
        } else if (op == NAPIER_UMAP_DIFFERENCE) {
            w[i] *= 1 - r[i];
        } else if (w[i] > left_least || r[i] > right_least) {
            w[i] = (w[i] > 0 ? w[i] : left_least) * (r[i] > 0 ? r[i] : right_least);
        } else {
            w[i] += r[i];
        }
        w[i] = (double)(float)w[i]; /* where weights are nearly equal, the power that sets them apart is large */
    }
}

static void test_combine(napier_context *context) {
    static double w[N * N], r[N * N], got[N * N];
    neighbors p = some_neighbors(6);
    napier_umap_graph *left = set_of(context, &p, 1, 1);
    neighbors q = some_neighbors(7);
    napier_umap_graph *right = set_of(context, &q, 1, 1), *out = NULL;
    for (int op = NAPIER_UMAP_UNION; op <= NAPIER_UMAP_DIFFERENCE; op++) {
        for (int64_t k = 0; k <= 15; k += 15) {
            dense_of_graph(left, w);
            dense_of_graph(right, r);
            plain_combine(w, r, (napier_umap_operation)op);
            if (k > 0) {
                plain_calibrate(w, N, k);
            }
            plain_reset(w, N);
            must(napier_umap_combine(context, (napier_umap_operation)op, left, right, 0.5, k, &out));
            check_invariants(out, "combined");
            dense_of_graph(out, got);
            expect(worst_gap(got, w, N) < 1e-4, "operation %d, k %d: weights differ by %g", op, (int)k,
                   worst_gap(got, w, N));
            napier_umap_graph_destroy(context, out);
        }
    }
    invalid(context, napier_umap_combine(context, (napier_umap_operation)3, left, right, 0.5, 0, &out), "operation: 3");
    invalid(context, napier_umap_combine(context, NAPIER_UMAP_UNION, left, NULL, 0.5, 0, &out), "right");
    invalid(context, napier_umap_combine(context, NAPIER_UMAP_UNION, left, right, 0.5, -1, &out), "n_neighbors: -1");
    invalid(context, napier_umap_combine(context, NAPIER_UMAP_UNION, left, right, 0.5, 0, NULL), "out: NULL");
    invalid(context, napier_umap_combine(context, NAPIER_UMAP_UNION, left, right, 1.5, 0, &out), "weight: 1.5");
    right->weights[0] = 1.5f;
    invalid(context, napier_umap_combine(context, NAPIER_UMAP_UNION, left, right, 0.5, 0, &out), "right: a weight");
    expect(out == NULL, "an error left a graph");
    napier_umap_graph_destroy(context, left);
    napier_umap_graph_destroy(context, right);
}

/* The set of the numbers, not symmetrised, and both joined: as written in src/umap/graph/supervised.c. */
static void plain_numbers(double *w, const float *numbers, int64_t k, double weight) {
    static double right[N * N], rhos[N], sigmas[N];
    static float known[N];
    static int64_t at[N];
    int64_t count = 0;
    for (int64_t i = 0; i < N; i++) {
        if (!isnan(numbers[i])) {
            known[count] = numbers[i];
            at[count++] = i;
        }
    }
    neighbors q = neighbors_of(known, count, 1, k);
    plain_smooth(&q, 1, rhos, sigmas);
    memset(right, 0, sizeof right);
    double left_least = 1, right_least = 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < k; j++) {
            const double gap = (double)q.distances[i * k + j] - rhos[i];
            if (q.indices[i * k + j] != i) {
                double *r = &right[at[i] * N + at[q.indices[i * k + j]]];
                *r = gap <= 0 ? 1 : exp(-gap / sigmas[i]);
                right_least = fmin(right_least, *r);
            }
        }
    }
    for (int64_t i = 0; i < (int64_t)N * N; i++) {
        left_least = w[i] > 0 ? fmin(left_least, w[i]) : left_least;
    }
    left_least = fmax(left_least / 2, 1e-8);
    right_least = fmin(fmax(right_least / 2, 1e-8), 1e-4);
    for (int64_t i = 0; i < (int64_t)N * N; i++) {
        if (isnan(numbers[i / N]) || isnan(numbers[i % N])) {
            w[i] *= exp(-1);
        } else if (w[i] > 0 || right[i] > 0) {
            const double l = w[i] > 0 ? w[i] : left_least, r = right[i] > 0 ? right[i] : right_least;
            w[i] = weight < 0.5 ? l * pow(r, weight / (1 - weight)) : pow(l, (1 - weight) / weight) * r;
        }
    }
    plain_reset(w, N);
}

/* If no number is known, the graph is that of categories of which none is known. */
static void test_unknown_numbers(napier_context *context, const neighbors *q) {
    static double numbers_graph[N * N], categories_graph[N * N];
    static float numbers[N];
    static int32_t categories[N];
    for (int64_t i = 0; i < N; i++) {
        numbers[i] = NAN;
        categories[i] = -1;
    }
    napier_umap_graph *g = set_of(context, q, 1, 1), *h = set_of(context, q, 1, 1);
    must(napier_umap_join_numbers(context, &g, numbers, K, 0.3));
    must(napier_umap_join_categories(context, &h, categories, 0.3));
    dense_of_graph(g, numbers_graph);
    dense_of_graph(h, categories_graph);
    expect(memcmp(numbers_graph, categories_graph, sizeof numbers_graph) == 0,
           "unknown numbers are not unknown categories");
    napier_umap_graph_destroy(context, g);
    napier_umap_graph_destroy(context, h);
}

static void test_numbers(napier_context *context) {
    static double w[N * N], got[N * N];
    static float numbers[N];
    neighbors q = some_neighbors(4);
    uint64_t seed = 8;
    for (int64_t i = 0; i < N; i++) {
        numbers[i] = (float)umap_normal(&seed);
    }
    const double weights[] = {0, 0.25, 0.5, 0.75, 1, 0.5, 1};
    for (int k = 0; k < 7; k++) {
        napier_umap_graph *g = set_of(context, &q, 1, 1);
        dense_of_graph(g, w);
        for (int64_t i = 0; i < N && k == 5; i += 1 + i % 3) {
            numbers[i] = NAN; /* unknown, in this round and the next */
        }
        plain_numbers(w, numbers, K, weights[k]);
        must(napier_umap_join_numbers(context, &g, numbers, K, weights[k]));
        check_invariants(g, "numbers");
        dense_of_graph(g, got);
        expect(worst_gap(got, w, N) < 1e-4, "target_weight %g: weights differ by %g", weights[k], worst_gap(got, w, N));
        napier_umap_graph_destroy(context, g);
    }
    /* few different numbers: equals first, by index; more neighbours than points */
    for (int64_t i = 0; i < N; i++) {
        numbers[i] = (float)(i % 3);
    }
    napier_umap_graph *g = set_of(context, &q, 1, 1);
    must(napier_umap_join_numbers(context, &g, numbers, 10 * N, 0.5));
    check_invariants(g, "equals");
    numbers[7] = -INFINITY;
    invalid(context, napier_umap_join_numbers(context, &g, numbers, K, 0.5), "element 7");
    invalid(context, napier_umap_join_numbers(context, &g, numbers, 0, 0.5), "n_neighbors");
    napier_umap_graph_destroy(context, g);
    test_unknown_numbers(context, &q);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------------------------- */

typedef struct set_job {
    neighbors q;
    float numbers[N];
    int32_t categories[N];
} set_job;

static napier_status set_work(napier_context *context, const void *argument, void *out) {
    const set_job *const j = argument;
    napier_umap_graph *g = set_of(context, &j->q, 1.0, 1.0);
    must(napier_umap_join_numbers(context, &g, j->numbers, K, 0.3));
    must(napier_umap_join_categories(context, &g, j->categories, 0.5));
    dense_of_graph(g, out);
    napier_umap_graph_destroy(context, g);
    return NAPIER_OK;
}

static void test_bits(void) {
    static set_job job;
    uint64_t seed = 9;
    job.q = some_neighbors(6);
    for (int64_t i = 0; i < N; i++) {
        job.numbers[i] = (float)umap_unit(&seed);
        job.categories[i] = (int32_t)(i / 100) - 1;
    }
    same_bits("fuzzy set", set_work, &job, N * N * sizeof(double));
}

int main(void) {
    return RUN_TESTS("umap fuzzy set", TEST_1(test_curve), TEST_2(test_smooth), TEST_2(test_set),
                     TEST_2(test_small_sets), TEST_2(test_categories), TEST_2(test_numbers),
                     TEST_2(test_target_distances), TEST_2(test_combine), TEST(test_bits));
}
