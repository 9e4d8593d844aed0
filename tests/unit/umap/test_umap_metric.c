/* Every metric against its definition, written once more in double and as plainly as it reads; dense and CSR, every dtype
 * and layout, symmetric, the same bits on every instruction set and for any number of threads; hostile input. */
#include "unit/umap/umap_support.h"

#include <float.h>

#include "support/memory.h"
#include "umap/metric/metric.h"

/* ---- Definitions --------------------------------------------------------------------------------------------------- */

typedef struct truth {
    const double *x, *y;
    int64_t cols;
    double p;
    const float *values; /* variances, or the inverse covariance */
} truth;

static double norm_of(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

static double cosine_of(const double *x, const double *y, int64_t n) {
    const double a = norm_of(x, n), b = norm_of(y, n);
    if (a == 0 || b == 0) {
        return a == b ? 0 : 1;
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double gap = x[i] / a - y[i] / b;
        sum += gap * gap;
    }
    return sum / 2;
}

static double correlation_of(const double *x, const double *y, int64_t n) {
    double a[512], b[512], mean_a = 0, mean_b = 0;
    for (int64_t i = 0; i < n; i++) {
        mean_a += x[i] / (double)n;
        mean_b += y[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        a[i] = fabs(x[i] - mean_a) < 1e-12 ? 0 : x[i] - mean_a;
        b[i] = fabs(y[i] - mean_b) < 1e-12 ? 0 : y[i] - mean_b;
    }
    return cosine_of(a, b, n);
}

static double boolean_of(napier_metric metric, const double *x, const double *y, int64_t n) {
    double tt = 0, tf = 0, ft = 0, ff = 0;
    for (int64_t i = 0; i < n; i++) {
        const int a = x[i] != 0, b = y[i] != 0;
        tt += a && b;
        tf += a && !b;
        ft += !a && b;
        ff += !a && !b;
    }
    const double ne = tf + ft, all = (double)n;
    switch (metric) {
    case NAPIER_METRIC_JACCARD: return tt + ne == 0 ? 0 : ne / (tt + ne);
    case NAPIER_METRIC_DICE: return ne == 0 ? 0 : ne / (2 * tt + ne);
    case NAPIER_METRIC_YULE: return tf == 0 || ft == 0 ? 0 : 2 * tf * ft / (tt * ff + tf * ft);
    case NAPIER_METRIC_RUSSELLRAO: return ne == 0 ? 0 : (all - tt) / all;
    case NAPIER_METRIC_ROGERSTANIMOTO:
    case NAPIER_METRIC_SOKALMICHENER: return 2 * ne / (tt + ff + 2 * ne);
    case NAPIER_METRIC_SOKALSNEATH: return ne == 0 ? 0 : ne / (0.5 * tt + ne);
    case NAPIER_METRIC_KULSINSKI: return ne == 0 ? 0 : (ne - tt + all) / (ne + all);
    default: return ne / all;
    }
}

static double haversine_of(const double *x, const double *y) {
    const double a = sin((x[0] - y[0]) / 2), b = sin((x[1] - y[1]) / 2);
    return 2 * asin(fmin(1, sqrt(a * a + cos(x[0]) * cos(y[0]) * b * b)));
}

static double kl_of(const double *x, const double *y, int64_t n) {
    double a = 0, b = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        a += x[i] + 1e-11;
        b += y[i] + 1e-11;
    }
    for (int64_t i = 0; i < n; i++) {
        const double p = (x[i] + 1e-11) / a, q = (y[i] + 1e-11) / b;
        sum += p * log(p / q) + q * log(q / p);
    }
    return sum / 2;
}

static double softmax_hellinger_of(const double *x, const double *y, int64_t n) {
    double a = 0, b = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        a += exp(x[i]);
        b += exp(y[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        const double gap = sqrt(exp(x[i]) / a) - sqrt(exp(y[i]) / b);
        sum += gap * gap;
    }
    return sqrt(sum / 2);
}

/* The whole table of prefixes. */
static double edits_of(const double *x, const double *y, int64_t cols) {
    static int table[512][512];
    int64_t n = 0, m = 0;
    for (; n < cols && x[n] >= 0; n++) {
    }
    for (; m < cols && y[m] >= 0; m++) {
    }
    for (int64_t i = 0; i <= n; i++) {
        for (int64_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                table[i][j] = (int)(i + j);
                continue;
            }
            const int changed = table[i - 1][j - 1] + (x[i - 1] != y[j - 1]);
            const int shorter = table[i - 1][j] < table[i][j - 1] ? table[i - 1][j] + 1 : table[i][j - 1] + 1;
            table[i][j] = changed < shorter ? changed : shorter;
        }
    }
    return table[n][m];
}

static double beta_of(double x, double y) {
    const double low = fmin(x, y), high = fmax(x, y), terms[3] = {x, y, x + y};
    double sum = -log(high), gammas = 0;
    for (int i = 1; i < (int)low; i++) {
        sum += log((double)i) - log(high + i);
    }
    for (int k = 0; k < 3; k++) {
        const double z = terms[k], pi = acos(-1.0);
        const double value = z == 1 ? 0 : z * log(z) - z + 0.5 * log(2 * pi / z) + 1 / (12 * z);
        gammas += k < 2 ? value : -value;
    }
    return high < 5 ? sum : gammas;
}

static double single_beta_of(double x) {
    const double pi = acos(-1.0);
    return log(2.0) * (0.5 - 2 * x) + 0.5 * log(2 * pi / x) + 0.125 / x;
}

static double dirichlet_of(const double *x, const double *y, int64_t n) {
    double a = 0, b = 0, both = 0, left = 0, right = 0, gap = 0;
    for (int64_t i = 0; i < n; i++) {
        const int shared = x[i] * y[i] > 0.9;
        a += x[i];
        b += y[i];
        gap += fabs(x[i] - y[i]);
        both += shared ? beta_of(x[i], y[i]) : 0;
        left += shared || x[i] > 0.9 ? single_beta_of(x[i]) : 0;
        right += shared || y[i] > 0.9 ? single_beta_of(y[i]) : 0;
    }
    both -= a > 0 && b > 0 ? beta_of(a, b) : 0;
    const double of_y = b > 0 ? (both - (right - single_beta_of(b))) / b : 0;
    const double of_x = a > 0 ? (both - (left - single_beta_of(a))) / a : 0;
    return gap == 0 ? 0 : sqrt(fmax(0, of_x + of_y));
}

static double true_distance(napier_metric metric, truth t) {
    const double *x = t.x, *y = t.y;
    double sum = 0, other = 0;
    for (int64_t i = 0; i < t.cols; i++) {
        const double gap = fabs(x[i] - y[i]);
        switch (metric) {
        case NAPIER_METRIC_EUCLIDEAN: sum += gap * gap; break;
        case NAPIER_METRIC_CHEBYSHEV: sum = fmax(sum, gap); break;
        case NAPIER_METRIC_MINKOWSKI: sum += pow(gap, t.p); break;
        case NAPIER_METRIC_WMINKOWSKI: sum += (double)t.values[i] * pow(gap, t.p); break;
        case NAPIER_METRIC_POINCARE: sum += gap * gap; break;
        case NAPIER_METRIC_CANBERRA: sum += gap == 0 ? 0 : gap / (fabs(x[i]) + fabs(y[i])); break;
        case NAPIER_METRIC_BRAYCURTIS:
            other += fabs(x[i] + y[i]);
            sum += gap;
            break;
        case NAPIER_METRIC_SEUCLIDEAN: sum += t.values[i] > 0 ? gap * gap / (double)t.values[i] : 0; break;
        case NAPIER_METRIC_HAMMING: sum += gap != 0; break;
        case NAPIER_METRIC_MAHALANOBIS:
            for (int64_t j = 0; j < t.cols; j++) {
                sum += (x[i] - y[i]) * (double)t.values[i * t.cols + j] * (x[j] - y[j]);
            }
            break;
        default: sum += gap; break;
        }
    }
    switch (metric) {
    case NAPIER_METRIC_EUCLIDEAN:
    case NAPIER_METRIC_SEUCLIDEAN:
    case NAPIER_METRIC_MAHALANOBIS: return sqrt(sum);
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI: return pow(sum, 1 / t.p);
    case NAPIER_METRIC_POINCARE:
        return acosh(1 + 2 * sum / ((1 - pow(norm_of(x, t.cols), 2)) * (1 - pow(norm_of(y, t.cols), 2))));
    case NAPIER_METRIC_SYMMETRIC_KL: return kl_of(x, y, t.cols);
    case NAPIER_METRIC_SOFTMAX_HELLINGER: return softmax_hellinger_of(x, y, t.cols);
    case NAPIER_METRIC_STRING: return fmin(edits_of(x, y, t.cols), (double)t.values[0]) / (double)t.values[1];
    case NAPIER_METRIC_LL_DIRICHLET: return dirichlet_of(x, y, t.cols);
    case NAPIER_METRIC_BRAYCURTIS: return other > 0 ? sum / other : 0;
    case NAPIER_METRIC_HAMMING: return sum / (double)t.cols;
    case NAPIER_METRIC_COSINE: return cosine_of(x, y, t.cols);
    case NAPIER_METRIC_CORRELATION: return correlation_of(x, y, t.cols);
    case NAPIER_METRIC_HELLINGER: {
        double a = 0, b = 0, both = 0;
        for (int64_t i = 0; i < t.cols; i++) {
            a += x[i];
            b += y[i];
            both += sqrt(x[i] * y[i]);
        }
        return a == 0 || b == 0 ? (a == b ? 0 : 1) : sqrt(fmax(0, 1 - both / sqrt(a * b)));
    }
    case NAPIER_METRIC_HAVERSINE: return haversine_of(x, y);
    case NAPIER_METRIC_MANHATTAN:
    case NAPIER_METRIC_CHEBYSHEV:
    case NAPIER_METRIC_CANBERRA: return sum;
    default: return boolean_of(metric, x, y, t.cols);
    }
}

/* ---- Data ------------------------------------------------------------------------------------------------------------ */

enum { ROWS = 24, MOST_COLS = 300 };

/* Row 0 is zero, row 1 too, row 2 constant, 3 and 4 equal, 5 = 2 * 4; about `share` of the others' values are not 0. */
static void make_rows(float *x, int64_t cols, double share, int positive, uint64_t seed) {
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t c = 0; c < cols; c++) {
            const double value = umap_normal(&seed);
            const int kept = umap_unit(&seed) < share;
            x[i * cols + c] = kept ? (float)(positive ? fabs(value) : value) : 0.0f;
        }
    }
    for (int64_t c = 0; c < cols; c++) {
        x[c] = x[cols + c] = 0.0f;
        x[2 * cols + c] = 0.1f;
        x[4 * cols + c] = x[3 * cols + c];
        x[5 * cols + c] = 2.0f * x[4 * cols + c];
    }
}

/* All metrics but that of precomputed distances. */
static const napier_metric measured[] = {
    NAPIER_METRIC_EUCLIDEAN,     NAPIER_METRIC_MANHATTAN,    NAPIER_METRIC_CHEBYSHEV,
    NAPIER_METRIC_MINKOWSKI,     NAPIER_METRIC_COSINE,       NAPIER_METRIC_CORRELATION,
    NAPIER_METRIC_CANBERRA,      NAPIER_METRIC_BRAYCURTIS,   NAPIER_METRIC_HELLINGER,
    NAPIER_METRIC_HAVERSINE,     NAPIER_METRIC_SEUCLIDEAN,   NAPIER_METRIC_MAHALANOBIS,
    NAPIER_METRIC_HAMMING,       NAPIER_METRIC_JACCARD,      NAPIER_METRIC_DICE,
    NAPIER_METRIC_YULE,          NAPIER_METRIC_RUSSELLRAO,   NAPIER_METRIC_ROGERSTANIMOTO,
    NAPIER_METRIC_SOKALMICHENER, NAPIER_METRIC_SOKALSNEATH,  NAPIER_METRIC_KULSINSKI,
    NAPIER_METRIC_MATCHING,      NAPIER_METRIC_WMINKOWSKI,   NAPIER_METRIC_POINCARE,
    NAPIER_METRIC_SYMMETRIC_KL,  NAPIER_METRIC_LL_DIRICHLET, NAPIER_METRIC_SOFTMAX_HELLINGER,
    NAPIER_METRIC_STRING};
enum { MEASURED = sizeof measured / sizeof *measured };

/* Rows that the metric takes: in the unit ball, not negative, counts, or strings over a few letters. */
static void make_rows_for(napier_metric metric, float *x, int64_t cols, double share, uint64_t seed) {
    const int positive = metric == NAPIER_METRIC_HELLINGER || metric == NAPIER_METRIC_SYMMETRIC_KL ||
                         metric == NAPIER_METRIC_LL_DIRICHLET || metric == NAPIER_METRIC_STRING;
    make_rows(x, cols, share, positive, seed);
    for (int64_t i = 0; i < ROWS * cols; i++) {
        if (metric == NAPIER_METRIC_POINCARE) {
            x[i] *= 0.1f / sqrtf((float)cols);
        } else if (metric == NAPIER_METRIC_LL_DIRICHLET) {
            x[i] = (i / cols) % 3 == 0 ? x[i] * 2.0f : floorf(x[i] * 4.0f);
        } else if (metric == NAPIER_METRIC_STRING) {
            const int64_t length = cols - (i / cols) % 7; /* row i / cols is so long */
            x[i] = i % cols < length ? floorf(x[i] * 3.0f) : -1.0f;
        }
    }
}

static napier_neighbors_options options_for(napier_metric metric, double p) {
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.metric = metric;
    options.p = p;
    return options;
}

static void refuse(napier_context *context, napier_umap_samples samples, napier_neighbors_options options,
                   const char *word, const char *other) {
    NAPIER_MEMORY(memory, context);
    napier_points *points = NULL;
    invalid(context, make_points(&memory, "samples", samples, &options, NULL, &points), word, other);
    expect(points == NULL, "points in spite of %s", word);
}

/* ---- Truth ------------------------------------------------------------------------------------------------------------- */

static void compare(const napier_points *points, const float *x, int64_t cols, const float *values, double p,
                    const char *what) {
    double a[MOST_COLS], b[MOST_COLS];
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t j = 0; j < ROWS; j++) {
            for (int64_t c = 0; c < cols; c++) {
                a[c] = (double)x[i * cols + c];
                b[c] = (double)x[j * cols + c];
            }
            const double wanted = true_distance(points->metric, (truth){a, b, cols, p, values});
            const float got = napier_points_distance(points, i, points, j);
            const float mirror = napier_points_distance(points, j, points, i);
            /* hellinger's definition cancels near 0 where ours does not */
            const double slack = points->metric == NAPIER_METRIC_HELLINGER ? 2e-4 : 3e-6;
            if (!expect(fabs((double)got - wanted) <= slack * (1 + wanted),
                        "%s %s, %lld columns: d(%lld, %lld) = %.9g, not %.9g", what, napier_metric_name(points->metric),
                        (long long)cols, (long long)i, (long long)j, (double)got, wanted)) {
                return;
            }
            expect(memcmp(&got, &mirror, sizeof got) == 0, "%s %s: not symmetric at (%lld, %lld)", what,
                   napier_metric_name(points->metric), (long long)i, (long long)j);
        }
    }
}

/* An inverse covariance of some size: a diagonal and a rank-one part. */
static void make_values(napier_metric metric, int64_t cols, float *values) {
    if (metric == NAPIER_METRIC_SEUCLIDEAN) {
        for (int64_t c = 0; c < cols; c++) {
            values[c] = 0.5f + (float)(c % 5);
        }
    }
    for (int64_t c = 0; c < cols && metric == NAPIER_METRIC_WMINKOWSKI; c++) {
        values[c] = 0.5f * (float)(c % 4); /* some are 0 */
    }
    if (metric == NAPIER_METRIC_STRING) {
        values[0] = 9.0f;
        values[1] = 2.0f;
    }
    for (int64_t i = 0; i < cols && metric == NAPIER_METRIC_MAHALANOBIS; i++) {
        for (int64_t j = 0; j < cols; j++) {
            values[i * cols + j] = (i == j ? 1.5f : 0.0f) + 0.25f / (float)((1 + i % 3) * (1 + j % 3));
        }
    }
}

static void check_metric(napier_context *context, napier_metric metric, int64_t cols, double share, double p) {
    static float x[ROWS * MOST_COLS], values[MOST_COLS * MOST_COLS];
    make_rows_for(metric, x, cols, share, 7 + (uint64_t)cols);
    make_values(metric, cols, values);
    napier_neighbors_options options = options_for(metric, p);
    options.metric_values = values; /* most metrics have none */
    NAPIER_MEMORY(memory, context);
    napier_points *points = NULL;
    if (succeeded(context, make_points(&memory, "samples", samples_of(x, ROWS, cols), &options, NULL, &points),
                  napier_metric_name(metric))) {
        compare(points, x, cols, values, p, "dense");
    }
    const umap_csr *s = csr_of(x, ROWS, cols, true);
    if (succeeded(context, make_points(&memory, "samples", sparse_of(s), &options, NULL, &points), "CSR made dense")) {
        compare(points, x, cols, values, p, "CSR made dense");
    }
}

static void test_definitions(napier_context *context) {
    for (int m = 0; m < MEASURED; m++) {
        const int64_t cols[] = {1, 2, 15, 16, 17, 64, 300};
        for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
            if (measured[m] == NAPIER_METRIC_HAVERSINE && cols[i] != 2) {
                continue;
            }
            check_metric(context, measured[m], cols[i], 0.3, 3.0);
            check_metric(context, measured[m], cols[i], 1.0, 1.5);
        }
    }
    check_metric(context, NAPIER_METRIC_MINKOWSKI, 20, 0.7, 1.0);
    check_metric(context, NAPIER_METRIC_MINKOWSKI, 20, 0.7, 2.0);
    check_metric(context, NAPIER_METRIC_MINKOWSKI, 20, 0.7, 7.25);
    check_metric(context, NAPIER_METRIC_WMINKOWSKI, 20, 0.7, 1.0);
    check_metric(context, NAPIER_METRIC_WMINKOWSKI, 20, 0.7, 2.0);
}

/* CSR with so many columns that it stays CSR: rows of a few hundred columns spread over many, with zeros between. */
static void test_wide_csr(napier_context *context) {
    enum { COLS = 240, STEP = 40, WIDE = COLS * STEP };
    static float x[ROWS * COLS];
    static float wide[ROWS * WIDE];
    for (int m = 0; m < MEASURED; m++) {
        const napier_metric metric = measured[m];
        const char *const name = napier_metric_name(metric);
        if (napier_metric_needs_dense(metric)) {
            continue;
        }
        make_rows_for(metric, x, COLS, 0.4, 3);
        memset(wide, 0, sizeof wide);
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t c = 0; c < COLS; c++) {
                wide[i * WIDE + c * STEP + i % 3] = x[i * COLS + c];
            }
        }
        const umap_csr *s = csr_of(wide, ROWS, WIDE, true);
        const napier_neighbors_options options = options_for(metric, 3.5);
        NAPIER_MEMORY(memory, context);
        napier_points *points = NULL, *dense = NULL, *queries = NULL;
        must(make_points(&memory, "samples", sparse_of(s), &options, NULL, &points));
        must(make_points(&memory, "samples", samples_of(wide, ROWS, WIDE), &options, NULL, &dense));
        must(make_points(&memory, "queries", samples_of(wide, ROWS, WIDE), &options, points, &queries));
        expect(points->rows == NULL && queries->rows == NULL, "%s: not kept as CSR", name);
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t j = 0; j < ROWS; j++) {
                const float a = napier_points_distance(points, i, points, j);
                const float b = napier_points_distance(dense, i, dense, j);
                const float q = napier_points_distance(queries, i, points, j);
                expect(fabsf(a - b) <= 2e-6f * (1.0f + b), "%s: CSR %.9g, dense %.9g at (%lld, %lld)", name, (double)a,
                       (double)b, (long long)i, (long long)j);
                expect(a == q, "%s: %.9g as a query, not %.9g", name, (double)q, (double)a);
                expect(a == napier_points_distance(points, j, points, i), "%s: not symmetric", name);
            }
        }
    }
}

/* Parameters from the data: scaled and turned columns must have variance 1 and no covariance. */
static void test_parameters_from_data(napier_context *context) {
    enum { N = 200, COLS = 5 };
    static float x[N * COLS];
    uint64_t seed = 5;
    for (int64_t i = 0; i < N; i++) {
        double z[COLS];
        for (int c = 0; c < COLS; c++) {
            z[c] = umap_normal(&seed);
        }
        for (int c = 0; c < COLS; c++) {
            x[i * COLS + c] = (float)(100.0 + (c + 1) * z[c] + (c > 0 ? 2.0 * z[c - 1] : 0.0));
        }
    }
    const napier_metric metrics[] = {NAPIER_METRIC_SEUCLIDEAN, NAPIER_METRIC_MAHALANOBIS};
    for (int k = 0; k < 2; k++) {
        const napier_neighbors_options options = options_for(metrics[k], 2.0);
        NAPIER_MEMORY(memory, context);
        napier_points *points = NULL, *queries = NULL;
        must(make_points(&memory, "samples", samples_of(x, N, COLS), &options, NULL, &points));
        must(make_points(&memory, "queries", samples_of(x, N, COLS), &options, points, &queries));
        for (int a = 0; a < COLS && points; a++) {
            for (int b = 0; b <= a; b++) {
                double mean_a = 0, mean_b = 0, sum = 0;
                for (int64_t i = 0; i < N; i++) {
                    mean_a += (double)points->rows[i * points->width + a] / N;
                    mean_b += (double)points->rows[i * points->width + b] / N;
                }
                for (int64_t i = 0; i < N; i++) {
                    sum += ((double)points->rows[i * points->width + a] - mean_a) *
                           ((double)points->rows[i * points->width + b] - mean_b) / (N - 1);
                }
                if (k == 1 || a == b) {
                    expect(fabs(sum - (a == b)) < 1e-3, "%s: covariance (%d, %d) is %g", napier_metric_name(metrics[k]),
                           a, b, sum);
                }
            }
        }
        expect(points && queries && memcmp(points->rows, queries->rows, N * 16 * sizeof(float)) == 0,
               "%s: queries are changed in another way", napier_metric_name(metrics[k]));
    }
}

/* ---- Bits ---------------------------------------------------------------------------------------------------------------- */

/* The number of columns, or what the metric takes. */
static int64_t cols_for(napier_metric metric, int64_t cols) {
    return metric == NAPIER_METRIC_HAVERSINE ? 2 : metric == NAPIER_METRIC_MAHALANOBIS ? 4 : cols;
}

/* All distances of some rows, for same_bits. */
static napier_status distances_work(napier_context *context, const void *argument, void *out) {
    static float x[ROWS * 77];
    const napier_neighbors_options options = options_for(*(const napier_metric *)argument, 2.5);
    const int64_t cols = cols_for(options.metric, 77);
    make_rows_for(options.metric, x, cols, 0.8, 11);
    NAPIER_MEMORY(memory, context);
    napier_points *points = NULL;
    NAPIER_TRY(make_points(&memory, "samples", samples_of(x, ROWS, cols), &options, NULL, &points));
    for (int64_t i = 0; i < ROWS * ROWS; i++) {
        ((float *)out)[i] = napier_points_distance(points, i / ROWS, points, i % ROWS);
    }
    return NAPIER_OK;
}

static void test_bits(void) {
    for (int m = 0; m < MEASURED; m++) {
        same_bits(napier_metric_name(measured[m]), distances_work, &measured[m], ROWS * ROWS * sizeof(float));
    }
}

/* One against many gives the bits of one against one, whatever the number of rows. */
static void check_many(const napier_points *points, const char *metric, const char *isa) {
    static const int64_t numbers[] = {1, 3, 15, 16, 17, 31, NAPIER_DISTANCES};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        uint32_t which[NAPIER_DISTANCES];
        float many[NAPIER_DISTANCES];
        for (int64_t c = 0; c < numbers[k]; c++) {
            which[c] = (uint32_t)((c * 7 + (int64_t)k) % ROWS);
        }
        for (int64_t i = 0; i < ROWS; i++) {
            napier_points_distances(points, i, points, which, numbers[k], many);
            for (int64_t c = 0; c < numbers[k]; c++) {
                const float one = napier_points_distance(points, i, points, which[c]);
                expect(memcmp(&one, &many[c], sizeof one) == 0, "%s, %s: rows %lld and %u of %lld: %.9g, alone %.9g",
                       metric, isa, (long long)i, which[c], (long long)numbers[k], (double)many[c], (double)one);
            }
        }
    }
}

static void test_many(napier_context *context) {
    static const double powers[] = {1.0, 2.0, 2.5, HUGE_VAL};
    static const int64_t widths[] = {1, 16, 50, 129};
    static float x[ROWS * 129];
    for (int turn = 0; turn < MEASURED * 4; turn++) {
        const napier_metric metric = measured[turn / 4];
        const int64_t cols = cols_for(metric, widths[turn % 4]);
        const napier_neighbors_options options = options_for(metric, powers[turn % 4]);
        make_rows_for(metric, x, cols, 0.6, 19);
        NAPIER_MEMORY(memory, context);
        napier_points *points = NULL;
        must(make_points(&memory, "samples", samples_of(x, ROWS, cols), &options, NULL, &points));
        check_many(points, napier_metric_name(metric), napier_isa_name(napier_context_isa(context)));
    }
}

/* Every dtype and layout gives the rows of its f32 values. */
static void test_layouts(napier_context *context) {
    enum { COLS = 19 };
    const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    for (int d = 0; d < 4; d++) {
        for (int l = 0; l < LAYOUTS; l++) {
            grid g = grid_make((layout)l, ROWS, COLS, dtypes[d]);
            grid_fill(&g, ROW_NORMAL, 3);
            const napier_umap_samples samples = {grid_input(&g), NULL};
            napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
            NAPIER_MEMORY(memory, context);
            napier_points *points = NULL;
            must(make_points(&memory, "samples", samples, &options, NULL, &points));
            for (int64_t i = 0; i < ROWS && points; i++) {
                for (int64_t c = 0; c < points->width; c++) {
                    const float wanted = c < COLS ? (float)grid_get(&g, i, c) : 0.0f;
                    expect(points->rows[i * points->width + c] == wanted, "%s %s: (%lld, %lld)",
                           napier_dtype_name(dtypes[d]), layout_name((layout)l), (long long)i, (long long)c);
                }
            }
            grid_free(&g);
        }
    }
}

/* ---- Precomputed ----------------------------------------------------------------------------------------------------------- */

static void test_precomputed(napier_context *context) {
    const float d[9] = {0, 1, 2, 1, 0, 3, 2, 3, 0}, negative[4] = {-5, 2, -1, 0};
    const int64_t starts[] = {0, 2, 3, 3};
    const int32_t columns[] = {1, 2, 0};
    const float values[] = {0, 4, 1};
    const napier_csr_matrix m = {3, 3, starts, columns, values};
    const float wanted[9] = {0, 0, 4, 1, 0, INFINITY, INFINITY, INFINITY, 0};
    const napier_neighbors_options options = options_for(NAPIER_METRIC_PRECOMPUTED, 2.0);
    napier_points *points = NULL, *sparse = NULL;
    NAPIER_MEMORY(memory, context);
    must(make_points(&memory, "samples", samples_of(d, 3, 3), &options, NULL, &points));
    must(make_points(&memory, "samples", (napier_umap_samples){{0}, &m}, &options, NULL, &sparse));
    for (int64_t i = 0; i < 9; i++) {
        expect(napier_points_distance(points, i / 3, points, i % 3) == d[i], "dense (%d)", (int)i);
        expect(napier_points_distance(sparse, i / 3, sparse, i % 3) == wanted[i], "sparse (%d)", (int)i);
    }
    refuse(context, samples_of(d, 2, 3), options, "2 x 3", "square");
    refuse(context, samples_of(negative, 2, 2), options, "row 1, column 0", "-1"); /* not (0, 0): the diagonal */
}

/* ---- What is refused --------------------------------------------------------------------------------------------------------- */

static void test_refused_csr(napier_context *context) {
    const int64_t starts[] = {0, 2, 3}, falling[] = {0, 2, 1}, late[] = {1, 2, 3}, empty[] = {0, 0, 0};
    const int32_t columns[] = {0, 2, 1}, twice[] = {1, 1, 1}, descending[] = {2, 0, 1}, far[] = {0, 3, 1},
                  below[] = {0, 1, -1};
    const float values[] = {1, 2, 3}, nan_values[] = {1, 2, NAN};
    const struct {
        napier_csr_matrix m;
        const char *word, *other;
    } cases[] = {{{2, 3, NULL, columns, values}, "row_starts", "NULL"},
                 {{2, 3, falling, columns, values}, "row_starts[2] 1", "less"},
                 {{2, 3, late, columns, values}, "row_starts[0]", "1"},
                 {{2, 3, starts, twice, values}, "row 0", "1 after 1"},
                 {{2, 3, starts, descending, values}, "row 0", "0 after 2"},
                 {{2, 3, starts, far, values}, "row 0", "column 3"},
                 {{2, 3, starts, below, values}, "row 1", "column -1"},
                 {{2, 3, starts, columns, nan_values}, "row 1", "column 1"},
                 {{2, 3, starts, NULL, values}, "columns", "NULL"},
                 {{2, 3, starts, columns, NULL}, "values", "NULL"},
                 {{-2, 3, starts, columns, values}, "-2", ""},
                 {{2, 0, empty, NULL, NULL}, "no columns", ""},
                 {{(int64_t)1 << 31, 3, starts, columns, values}, "2^31", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refuse(context, (napier_umap_samples){{0}, &cases[i].m}, options_for(NAPIER_METRIC_EUCLIDEAN, 2.0),
               cases[i].word, cases[i].other);
    }
}

static void test_refused(napier_context *context) {
    static float x[1000 * 3];
    x[3 * 700 + 1] = NAN;
    x[3 * 500 + 2] = INFINITY;
    refuse(context, samples_of(x, 1000, 3), options_for(NAPIER_METRIC_EUCLIDEAN, 2.0), "row 500, column 2", "inf");
    const double big[2] = {1.0, 1e39};
    refuse(context, (napier_umap_samples){napier_const_rows(big, 2, 1, NAPIER_F64), NULL},
           options_for(NAPIER_METRIC_EUCLIDEAN, 2.0), "row 1, column 0", "1e+39");
    const float y[4] = {1, -2, 3, 4}, indefinite[4] = {1, 2, 2, 1}, lopsided[4] = {1, 0, 1, 1};
    const float part[2] = {1.5f, 1}, large[2] = {1, FLT_MAX};
    const struct {
        napier_metric metric;
        int64_t rows;
        double p;
        const float *values;
        const char *word, *other;
    } cases[] = {{NAPIER_METRIC_HELLINGER, 2, 2, NULL, "row 0, column 1", "negative"},
                 {NAPIER_METRIC_HAVERSINE, 1, 2, NULL, "haversine", "4"},
                 {NAPIER_METRIC_MINKOWSKI, 2, 0.5, NULL, "p", "0.5"},
                 {(napier_metric)99, 2, 2, NULL, "metric", "99"},
                 {NAPIER_METRIC_MAHALANOBIS, 2, 2, NULL, "singular", ""}, /* two points span a line */
                 {NAPIER_METRIC_MAHALANOBIS, 2, 2, indefinite, "semidefinite", ""},
                 {NAPIER_METRIC_MAHALANOBIS, 2, 2, lopsided, "symmetric", ""},
                 {NAPIER_METRIC_SEUCLIDEAN, 2, 2, lopsided, "variance 1", ""},
                 {NAPIER_METRIC_WMINKOWSKI, 2, 0.5, NULL, "p", "0.5"},
                 {NAPIER_METRIC_WMINKOWSKI, 2, 2, y, "weight 1", "-2"},
                 {NAPIER_METRIC_POINCARE, 2, 2, NULL, "row 0", "unit ball"},
                 {NAPIER_METRIC_SYMMETRIC_KL, 2, 2, NULL, "row 0, column 1", "negative"},
                 {NAPIER_METRIC_LL_DIRICHLET, 2, 2, NULL, "row 0, column 1", "negative"},
                 {NAPIER_METRIC_STRING, 2, 2, lopsided + 1, "largest distance", "0"},
                 {NAPIER_METRIC_STRING, 2, 2, lopsided, "divisor", "0"},
                 {NAPIER_METRIC_STRING, 2, 2, part, "largest distance", "1.5"},
                 {NAPIER_METRIC_WMINKOWSKI, 2, 1, large, "row 0", "power of two"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        napier_neighbors_options options = options_for(cases[i].metric, cases[i].p);
        options.metric_values = cases[i].values;
        refuse(context, samples_of(y, cases[i].rows, 4 / cases[i].rows), options, cases[i].word, cases[i].other);
    }
}

static void test_names(void) {
    for (int metric = 0; metric <= NAPIER_METRIC_STRING; metric++) {
        const char *name = napier_metric_name((napier_metric)metric);
        expect(name && napier_metric_from_name(name) == metric, "metric %d", metric);
    }
    expect(napier_metric_name((napier_metric)29) == NULL && napier_metric_name((napier_metric)-1) == NULL, "no metric");
    expect(napier_metric_from_name("cityblock") == NAPIER_METRIC_MANHATTAN, "cityblock");
    expect(napier_metric_from_name("l2") == NAPIER_METRIC_EUCLIDEAN, "l2");
    expect(napier_metric_from_name("linf") == NAPIER_METRIC_CHEBYSHEV, "linf");
    expect(napier_metric_from_name("Euclidean") == -1 && napier_metric_from_name("") == -1 &&
               napier_metric_from_name(NULL) == -1,
           "no name");
}

/* ---- Memory -------------------------------------------------------------------------------------------------------------------- */

typedef struct create_job {
    napier_umap_samples samples;
    napier_metric metric;
} create_job;

static napier_status create_points(napier_context *context, void *argument) {
    const create_job *j = argument;
    const napier_neighbors_options options = options_for(j->metric, 2.0);
    NAPIER_MEMORY(memory, context);
    napier_points *points = NULL, *queries = NULL;
    napier_status status = make_points(&memory, "samples", j->samples, &options, NULL, &points);
    expect((status == NAPIER_OK) == (points != NULL), "points and status %d", (int)status);
    if (!status) {
        status = make_points(&memory, "queries", j->samples, &options, points, &queries);
    }
    return status;
}

static void test_memory(void) {
    static float x[ROWS * 4], wide[ROWS * 5000];
    make_rows(x, 4, 1.0, 1, 2);
    for (int i = 0; i < ROWS * 4; i++) {
        x[i] *= 0.1f; /* within poincare's ball */
    }
    make_rows(wide, 5000, 0.1, 1, 2);
    const umap_csr *s = csr_of(wide, ROWS, 5000, true);
    for (int m = 0; m < MEASURED; m++) {
        const napier_metric metric = measured[m];
        create_job dense = {samples_of(x, ROWS, metric == NAPIER_METRIC_HAVERSINE ? 2 : 4), metric};
        check_allocations(napier_metric_name(dense.metric), create_points, &dense);
        create_job sparse = {sparse_of(s), metric};
        if (!napier_metric_needs_dense(metric)) {
            check_allocations("CSR", create_points, &sparse);
        }
    }
}

int main(void) {
    return RUN_TESTS("umap metrics", TEST_2(test_definitions), TEST_2(test_wide_csr), TEST_2(test_parameters_from_data),
                     TEST(test_bits), TEST_EACH_ISA(1, test_many), TEST_2(test_layouts), TEST_1(test_precomputed),
                     TEST_1(test_refused), TEST_2(test_refused_csr), TEST(test_names), TEST(test_memory));
}
