/* umap/metric/distance.c - the distance of two rows, for every metric (see metric.h).
 *
 * Two dense rows are one run of pairs (x, y). Two sparse rows are merged into runs of up to RUN pairs, for the columns
 * where either has an entry; other columns add nothing to any of these sums. Each metric is a loop over runs, in 16
 * partial sums that are folded in order. For one dense row against many, kernels (distance.inc.h) give the same
 * bits. */
#include "umap/metric/metric.h"

#include <math.h>
#include <string.h>

#include "core/math/f64.h"

enum { LANES = 16, RUN = 256 };

/* ---- Pairs ------------------------------------------------------------------------------------------------------- */

typedef struct pairs {
    const napier_points *a, *b;
    int64_t i, j;
    int64_t at, other; /* entries merged so far; dense: 1 after the row was returned */
    int64_t columns;   /* columns so far */
    float x[RUN], y[RUN];
} pairs;

static void start_pairs(pairs *p, const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    p->a = a;
    p->b = b;
    p->i = i;
    p->j = j;
    p->at = a->rows ? 0 : a->sparse.row_starts[i];
    p->other = b->rows ? 0 : b->sparse.row_starts[j];
    p->columns = 0;
}

/* Adds the next column in which one of the rows has an entry; the other's value is then 0. */
static void merge_entry(pairs *p, int64_t end, int64_t other_end, int64_t n) {
    const napier_csr_matrix *a = &p->a->sparse, *b = &p->b->sparse;
    const int32_t left = p->at < end ? a->columns[p->at] : INT32_MAX;
    const int32_t right = p->other < other_end ? b->columns[p->other] : INT32_MAX;
    p->x[n] = left <= right ? a->values[p->at++] : 0.0f;
    p->y[n] = right <= left ? b->values[p->other++] : 0.0f;
}

/* The next run of pairs. Returns their number, a multiple of 16 with padding of 0; 0 at the end. */
static int64_t next_run(pairs *p, const float **x, const float **y) {
    if (p->a->rows) {
        if (p->at) {
            return 0;
        }
        p->at = 1;
        *x = p->a->rows + p->i * p->a->width;
        *y = p->b->rows + p->j * p->b->width;
        return p->a->width;
    }
    const int64_t end = p->a->sparse.row_starts[p->i + 1], other_end = p->b->sparse.row_starts[p->j + 1];
    int64_t n = 0;
    while (n < RUN && (p->at < end || p->other < other_end)) {
        merge_entry(p, end, other_end, n++);
    }
    p->columns += n;
    for (; n % LANES != 0; n++) {
        p->x[n] = p->y[n] = 0.0f;
    }
    *x = p->x;
    *y = p->y;
    return n;
}

static double folded(const float *lanes) {
    double sum = 0.0;
    for (int l = 0; l < LANES; l++) {
        sum += (double)lanes[l];
    }
    return sum;
}

/* ---- Sums of differences ----------------------------------------------------------------------------------------- */

typedef struct lane_sums {
    float sum[LANES], other[LANES];
} lane_sums;

/* What `gap`, a constant, sums over the columns (distance_kernels.h), lane by lane. */
static inline __attribute__((always_inline)) lane_sums sums_of(pairs *p, napier_gap gap) {
    lane_sums s = {{0.0f}, {0.0f}};
    const float *x, *y;
    for (int64_t n; (n = next_run(p, &x, &y)) > 0;) {
        for (int64_t i = 0; i < n; i += LANES) {
            for (int l = 0; l < LANES; l++) {
                const float size = fabsf(x[i + l] - y[i + l]), whole = fabsf(x[i + l]) + fabsf(y[i + l]);
                switch (gap) {
                case NAPIER_GAP_LARGEST: s.sum[l] = size > s.sum[l] ? size : s.sum[l]; break;
                case NAPIER_GAP_CANBERRA: s.sum[l] += size / (whole > 0.0f ? whole : 1.0f); break;
                case NAPIER_GAP_RATIO:
                    s.sum[l] += size;
                    s.other[l] += fabsf(x[i + l] + y[i + l]);
                    break;
                default: s.sum[l] += size; break;
                }
            }
        }
    }
    return s;
}

static inline __attribute__((always_inline)) float sum_of(pairs *p, napier_gap gap) {
    const lane_sums s = sums_of(p, gap);
    return (float)folded(s.sum);
}

static float largest_gap(pairs *p) {
    const lane_sums s = sums_of(p, NAPIER_GAP_LARGEST);
    float largest = 0.0f;
    for (int l = 0; l < LANES; l++) {
        largest = s.sum[l] > largest ? s.sum[l] : largest;
    }
    return largest;
}

/* Raises the terms of a run to a power; small integer powers by multiplication. */
static void raise_all(const napier_math_kernels *math, float *terms, int64_t n, double power) {
    const int whole = power <= 16.0 && power == (double)(int)power ? (int)power : 0;
    if (whole == 3) { /* the most common; compilers vectorise it */
        for (int64_t i = 0; i < n; i += LANES) {
            for (int l = 0; l < LANES; l++) {
                terms[i + l] = terms[i + l] * terms[i + l] * terms[i + l];
            }
        }
    } else if (whole) {
        for (int64_t i = 0; i < n; i++) {
            float product = terms[i];
            for (int k = 1; k < whole; k++) {
                product *= terms[i];
            }
            terms[i] = product;
        }
    } else {
        math->log_f32(terms, terms, n); /* log 0 is -inf, and exp of that is 0 again */
        for (int64_t i = 0; i < n; i++) {
            terms[i] *= (float)power;
        }
        math->exp_f32(terms, terms, n);
    }
}

/* sum (gap / largest)^p in f32: every term is at most 1, whatever the data's scale. */
static double sum_of_powers(pairs *p, float largest, double power) {
    float lanes[LANES] = {0.0f}, terms[RUN];
    const float *x, *y;
    for (int64_t n; (n = next_run(p, &x, &y)) > 0;) {
        for (int64_t begin = 0; begin < n; begin += RUN) {
            const int64_t count = n - begin < RUN ? n - begin : RUN;
            for (int64_t i = 0; i < count; i += LANES) {
                for (int l = 0; l < LANES; l++) {
                    terms[i + l] = fabsf(x[begin + i + l] - y[begin + i + l]) / largest;
                }
            }
            raise_all(p->a->kernels->math, terms, count, power);
            for (int64_t i = 0; i < count; i += LANES) {
                for (int l = 0; l < LANES; l++) {
                    lanes[l] += terms[i + l];
                }
            }
        }
    }
    return folded(lanes);
}

static float minkowski(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    pairs p;
    start_pairs(&p, a, i, b, j);
    if (a->p == 1.0) {
        return sum_of(&p, NAPIER_GAP_PLAIN);
    }
    const float largest = largest_gap(&p);
    if (!(largest > 0.0f) || isinf(a->p) || isinf(largest)) {
        return largest;
    }
    start_pairs(&p, a, i, b, j);
    const double sum = sum_of_powers(&p, largest, a->p);
    return (float)((double)largest * napier_f64_exp(napier_f64_log(sum) / a->p));
}

/* sum |x - y| / sum |x + y|; 0 if the denominator is 0. */
static float braycurtis(pairs *p) {
    const lane_sums s = sums_of(p, NAPIER_GAP_RATIO);
    const double whole = folded(s.other);
    return whole > 0.0 ? (float)(folded(s.sum) / whole) : 0.0f;
}

static float hamming(pairs *p) {
    int64_t unequal = 0;
    const float *x, *y;
    for (int64_t n; (n = next_run(p, &x, &y)) > 0;) {
        int32_t here = 0; /* a dense row has fewer than 2^31 columns */
        for (int64_t i = 0; i < n; i++) {
            here += x[i] != y[i];
        }
        unequal += here;
    }
    return (float)((double)unequal / (double)p->a->cols);
}

/* ---- Boolean metrics --------------------------------------------------------------------------------------------- */

/* Counts the columns where both are true, and where only one is. Sums of 0 and 1 are exact in f32 up to 2^24, so the
 * fast kernels can count; longer rows are counted in runs. */
static napier_truths counts_of(pairs *p) {
    enum { EXACT = 1 << 20 };
    const napier_linear_kernels *linear = p->a->kernels->linear;
    napier_truths c = {0.0, 0.0, 0.0, (double)p->a->cols};
    const float *x, *y;
    for (int64_t n; (n = next_run(p, &x, &y)) > 0;) {
        for (int64_t begin = 0; begin < n; begin += EXACT) {
            const int64_t count = n - begin < EXACT ? n - begin : EXACT;
            const double both = (double)linear->dot(x + begin, y + begin, count);
            c.both += both;
            c.left += (double)linear->dot(x + begin, x + begin, count) - both;
            c.right += (double)linear->dot(y + begin, y + begin, count) - both;
        }
    }
    return c;
}

/* ---- Haversine --------------------------------------------------------------------------------------------------- */

#define HALF_PI_HIGH 0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54

/* The power series of cos (first 0) and of sin without its factor x (first 1) on |x| <= pi / 4, to the last bits of a
 * double. */
static double series(double x, int first) {
    const double s = x * x;
    double sum = 1.0;
    for (int k = 9; k >= 1; k--) {
        sum = 1.0 - s / (double)((2 * k - 1 + first) * (2 * k + first)) * sum;
    }
    return sum;
}
static double small_sine(double x) { return x * series(x, 1); }
static double small_cosine(double x) { return series(x, 0); }

/* sin(x + quarters * pi / 2), for |x| up to 2^21. */
static double sine(double x, int64_t quarters) {
    const double scaled = x * (1.0 / HALF_PI_HIGH);
    const int64_t k = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    const napier_double2 whole = napier_two_product((double)k, HALF_PI_HIGH);
    const double rest = ((x - whole.high) - whole.low) - (double)k * HALF_PI_LOW;
    switch ((k + quarters) & 3) {
    case 0: return small_sine(rest);
    case 1: return small_cosine(rest);
    case 2: return -small_sine(rest);
    default: return -small_cosine(rest);
    }
}

/* asin of 0 <= x <= 1. Above 1/2 it uses asin x = pi/2 - 2 asin sqrt((1 - x) / 2). Two Newton steps follow. */
static double arcsine(double x) {
    if (x > 0.5) {
        return HALF_PI_HIGH - 2.0 * arcsine(sqrt((1.0 - (x < 1.0 ? x : 1.0)) * 0.5));
    }
    const double s = x * x;
    double y = x * (1.0 + s * (1.0 / 6.0 + s * (3.0 / 40.0 + s * (15.0 / 336.0))));
    for (int step = 0; step < 2; step++) {
        y += (x - small_sine(y)) / small_cosine(y);
    }
    return y;
}

static float haversine(const float *x, const float *y) {
    const double across = sine(0.5 * ((double)x[0] - (double)y[0]), 0);
    const double along = sine(0.5 * ((double)x[1] - (double)y[1]), 0);
    const double cosines = sine((double)x[0], 1) * sine((double)y[0], 1);
    const double square = across * across + cosines * along * along;
    return (float)(2.0 * arcsine(sqrt(square > 0.0 ? square : 0.0)));
}

/* ---- Sparse rows with a euclidean distance ----------------------------------------------------------------------- */

static double squared_gaps(pairs *p, double shift) {
    double sum = 0.0;
    const float *x, *y;
    while (next_run(p, &x, &y) > 0) {
        const int64_t count = (p->columns - 1) % RUN + 1; /* without the padding of the run */
        for (int64_t i = 0; i < count; i++) {
            const double gap = ((double)x[i] - (double)y[i]) - shift;
            sum += gap * gap;
        }
    }
    return sum;
}

static int is_empty(const napier_points *p, int64_t i) {
    return p->sparse.row_starts[i] == p->sparse.row_starts[i + 1];
}

/* The distance if a row has no direction: 0 if neither has one, else 1. Returns -1 if both have one. */
static float undirected(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    const int left = a->shifts ? isinf(a->shifts[i]) != 0 : is_empty(a, i);
    const int right = b->shifts ? isinf(b->shifts[j]) != 0 : is_empty(b, j);
    return left && right ? 0.0f : left || right ? 1.0f : -1.0f;
}

static float sparse_euclidean(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    const bool has_direction = napier_has_direction(a->metric);
    if (has_direction) {
        const float known = undirected(a, i, b, j);
        if (known >= 0.0f) {
            return known;
        }
    }
    pairs p;
    start_pairs(&p, a, i, b, j);
    const double shift = a->shifts ? a->shifts[i] - b->shifts[j] : 0.0;
    double squared = squared_gaps(&p, shift);
    squared += (double)(a->cols - p.columns) * shift * shift;
    if (has_direction) {
        return (float)(a->metric == NAPIER_METRIC_HELLINGER ? sqrt(0.5 * squared) : 0.5 * squared);
    }
    return (float)sqrt(squared);
}

/* ---- ll_dirichlet ------------------------------------------------------------------------------------------------ */

static float ll_dirichlet(pairs *p) {
    napier_dirichlet sums = {0};
    const float *x, *y;
    for (int64_t n; (n = next_run(p, &x, &y)) > 0;) {
        napier_dirichlet_add(p->a->count_logs, x, y, n, &sums);
    }
    return napier_dirichlet_distance(p->a->count_logs, &sums);
}

/* ---- Precomputed ------------------------------------------------------------------------------------------------- */

static float precomputed(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    if (a->rows) {
        return a->rows[i * a->width + j];
    }
    int64_t low = a->sparse.row_starts[i], high = a->sparse.row_starts[i + 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (a->sparse.columns[middle] < j) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < a->sparse.row_starts[i + 1] && a->sparse.columns[low] == j) {
        return a->sparse.values[low];
    }
    return a == b && i == j ? 0.0f : INFINITY;
}

/* ---- Dense rows only --------------------------------------------------------------------------------------------- */

static float dense_distance(const napier_points *p, const float *x, const float *y) {
    switch (p->metric) {
    case NAPIER_METRIC_POINCARE: return napier_poincare(x, y, p->cols);
    case NAPIER_METRIC_SYMMETRIC_KL: return napier_symmetric_kl(x, y, p->cols);
    case NAPIER_METRIC_STRING:
        return (float)napier_edit_distance(x, y, p->cols, (int64_t)p->metric_values[0]) / p->metric_values[1];
    default: return haversine(x, y);
    }
}

/* ---- One distance, for any metric -------------------------------------------------------------------------------- */

static float general_distance(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    pairs p;
    start_pairs(&p, a, i, b, j);
    switch (a->metric) {
    case NAPIER_METRIC_MANHATTAN: return sum_of(&p, NAPIER_GAP_PLAIN);
    case NAPIER_METRIC_CHEBYSHEV: return largest_gap(&p);
    case NAPIER_METRIC_CANBERRA: return sum_of(&p, NAPIER_GAP_CANBERRA);
    case NAPIER_METRIC_BRAYCURTIS: return braycurtis(&p);
    case NAPIER_METRIC_HAMMING: return hamming(&p);
    case NAPIER_METRIC_LL_DIRICHLET: return ll_dirichlet(&p);
    default: return napier_boolean_distance(a->metric, counts_of(&p));
    }
}

float napier_points_distance(const napier_points *a, int64_t i, const napier_points *b, int64_t j) {
    if (a->kind != NAPIER_POINTS_GENERAL) {
        const float squared =
            a->kernels->linear->squared_distance(a->rows + i * a->width, b->rows + j * b->width, a->width);
        return napier_from_squared(a->kind, squared);
    }
    if (napier_metric_needs_dense(a->metric)) {
        return dense_distance(a, a->rows + i * a->width, b->rows + j * b->width);
    }
    switch (a->metric) {
    case NAPIER_METRIC_PRECOMPUTED: return precomputed(a, i, b, j);
    case NAPIER_METRIC_EUCLIDEAN:
    case NAPIER_METRIC_COSINE:
    case NAPIER_METRIC_CORRELATION:
    case NAPIER_METRIC_HELLINGER:
    case NAPIER_METRIC_SEUCLIDEAN: return sparse_euclidean(a, i, b, j);
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI: return a->p == 2.0 ? sparse_euclidean(a, i, b, j) : minkowski(a, i, b, j);
    default: return general_distance(a, i, b, j);
    }
}

/* ---- One against many -------------------------------------------------------------------------------------------- */

napier_gap napier_gap_of_metric(napier_metric metric, double p) {
    switch (napier_points_kind_of(metric, p)) {
    case NAPIER_POINTS_EUCLIDEAN: return NAPIER_GAP_EUCLIDEAN;
    case NAPIER_POINTS_HALF: return NAPIER_GAP_HALF;
    case NAPIER_POINTS_HALF_ROOT: return NAPIER_GAP_HALF_ROOT;
    default: break;
    }
    switch (metric) {
    case NAPIER_METRIC_MANHATTAN: return NAPIER_GAP_PLAIN;
    case NAPIER_METRIC_CHEBYSHEV: return NAPIER_GAP_LARGEST;
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI: return p == 1.0 ? NAPIER_GAP_PLAIN : isinf(p) ? NAPIER_GAP_LARGEST : NAPIER_GAPS;
    case NAPIER_METRIC_CANBERRA: return NAPIER_GAP_CANBERRA;
    case NAPIER_METRIC_BRAYCURTIS: return NAPIER_GAP_RATIO;
    case NAPIER_METRIC_HAMMING: return NAPIER_GAP_UNEQUAL;
    case NAPIER_METRIC_HAVERSINE:
    case NAPIER_METRIC_POINCARE:
    case NAPIER_METRIC_SYMMETRIC_KL:
    case NAPIER_METRIC_LL_DIRICHLET:
    case NAPIER_METRIC_STRING:
    case NAPIER_METRIC_PRECOMPUTED: return NAPIER_GAPS;
    default: return NAPIER_GAP_COUNTS;
    }
}

/* The gap of these rows' metric; NAPIER_GAPS if the kernels have none for it. */
static napier_gap gap_of(const napier_points *p) {
    return !p->rows || p->width > NAPIER_MOST_COUNTED ? NAPIER_GAPS : napier_gap_of_metric(p->metric, p->p);
}

bool napier_points_have_kernel(const napier_points *points) { return gap_of(points) != NAPIER_GAPS; }

/* Boolean distances from the number of columns that are true in both rows, in x and in y. */
static void boolean_distances(const napier_points *p, float own, const float *others, int64_t count, float *distances) {
    for (int64_t c = 0; c < count; c++) {
        const double both = (double)distances[c];
        distances[c] = napier_boolean_distance(
            p->metric, (napier_truths){both, (double)own - both, (double)others[c] - both, (double)p->cols});
    }
}

void napier_points_distances(const napier_points *a, int64_t i, const napier_points *b, const uint32_t *which,
                             int64_t count, float distances[NAPIER_DISTANCES]) {
    const napier_gap_rows rows = {gap_of(a), b->rows, a->width, a->cols};
    if (rows.gap == NAPIER_GAPS) {
        for (int64_t c = 0; c < count; c++) {
            const float distance = napier_points_distance(a, i, b, which[c]);
            distances[c] = distance > 0.0f ? distance : 0.0f;
        }
        return;
    }
    const float *x = a->rows + i * a->width;
    float others[NAPIER_DISTANCES];
    a->kernels->distance.measure(&rows, x, which, count, distances, others);
    if (rows.gap == NAPIER_GAP_COUNTS) {
        boolean_distances(a, a->kernels->linear->dot(x, x, a->width), others, count, distances);
    }
}
