/* umap/metric/special.c - metrics with formulas of their own (special.h). */
#include "umap/metric/special.h"

#include <math.h>

#include "core/base/sizes.h"
#include "core/math/f64.h"

enum { LANES = 16 };

/* What symmetric_kl adds to every value, so that no logarithm is of 0. */
#define KL_SHARE 1e-11

#define LOG_2 0x1.62e42fefa39efp-1
#define TWO_PI 0x1.921fb54442d18p+2

bool napier_metric_needs_dense(napier_metric metric) {
    switch (metric) {
    case NAPIER_METRIC_HAVERSINE:
    case NAPIER_METRIC_MAHALANOBIS:
    case NAPIER_METRIC_POINCARE:
    case NAPIER_METRIC_SYMMETRIC_KL:
    case NAPIER_METRIC_SOFTMAX_HELLINGER:
    case NAPIER_METRIC_STRING: return true;
    default: return false;
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static int64_t logs_at(int64_t cols) { return napier_round_up(cols, LANES); }

int64_t napier_special_width(napier_metric metric, int64_t cols) {
    return metric == NAPIER_METRIC_SYMMETRIC_KL ? logs_at(cols) + cols : cols;
}

static void softmax_roots(float *row, int64_t cols) {
    double largest = (double)row[0], sum = 0.0;
    for (int64_t c = 1; c < cols; c++) {
        largest = (double)row[c] > largest ? (double)row[c] : largest;
    }
    for (int64_t c = 0; c < cols; c++) {
        sum += napier_f64_exp((double)row[c] - largest);
    }
    for (int64_t c = 0; c < cols; c++) {
        row[c] = (float)sqrt(napier_f64_exp((double)row[c] - largest) / sum);
    }
}

static void shares_and_logs(float *row, int64_t cols) {
    double sum = 0.0;
    for (int64_t c = 0; c < cols; c++) {
        sum += (double)row[c] + KL_SHARE;
    }
    float *logs = row + logs_at(cols);
    for (int64_t c = 0; c < cols; c++) {
        const double share = ((double)row[c] + KL_SHARE) / sum;
        row[c] = (float)share;
        logs[c] = (float)napier_f64_log(share);
    }
}

static void end_string(float *row, int64_t cols) {
    bool ended = false;
    for (int64_t c = 0; c < cols; c++) {
        ended = ended || row[c] < 0.0f;
        row[c] = ended ? -1.0f : row[c];
    }
}

void napier_special_row(napier_metric metric, float *row, int64_t cols) {
    switch (metric) {
    case NAPIER_METRIC_SOFTMAX_HELLINGER: softmax_roots(row, cols); break;
    case NAPIER_METRIC_SYMMETRIC_KL: shares_and_logs(row, cols); break;
    case NAPIER_METRIC_STRING: end_string(row, cols); break;
    default: break;
    }
}

static double squared_length(const float *row, int64_t cols) {
    double sum = 0.0;
    for (int64_t c = 0; c < cols; c++) {
        sum += (double)row[c] * (double)row[c];
    }
    return sum;
}

bool napier_special_is_point(napier_metric metric, const float *row, int64_t cols) {
    return metric != NAPIER_METRIC_POINCARE || squared_length(row, cols) < 1.0;
}

/* ---- poincare, symmetric_kl -------------------------------------------------------------------------------------- */

float napier_poincare(const float *x, const float *y, int64_t cols) {
    double gap = 0.0, left = 0.0, right = 0.0;
    for (int64_t c = 0; c < cols; c++) {
        const double a = (double)x[c], b = (double)y[c];
        gap += (a - b) * (a - b);
        left += a * a;
        right += b * b;
    }
    const double t = 2.0 * gap / ((1.0 - left) * (1.0 - right));
    return (float)napier_f64_log1p(t + sqrt(t * (t + 2.0))); /* acosh(1 + t) */
}

float napier_symmetric_kl(const float *x, const float *y, int64_t cols) {
    const float *log_x = x + logs_at(cols), *log_y = y + logs_at(cols);
    double lanes[LANES] = {0.0}, sum = 0.0;
    for (int64_t c = 0; c < cols; c++) { /* neither factor is of the other sign */
        lanes[c % LANES] += ((double)x[c] - (double)y[c]) * ((double)log_x[c] - (double)log_y[c]);
    }
    for (int l = 0; l < LANES; l++) {
        sum += lanes[l];
    }
    return (float)(0.5 * sum);
}

/* ---- string ------------------------------------------------------------------------------------------------------ */

static int64_t length_of(const float *text, int64_t cols) {
    int64_t n = 0;
    while (n < cols && text[n] >= 0.0f) {
        n++;
    }
    return n;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* The row of the table of prefixes' distances, from -most to +most beside its diagonal: cell d is column i - most + d.
 * Cells farther away are at least `most`. */
typedef struct band {
    int32_t most;
    int32_t cells[2 * NAPIER_STRING_HIGHEST + 2];
} band;

/* Replaces row i - 1 by row i. Returns the least cell. */
static int32_t next_row(band *b, int64_t i, float letter, const float *y, int64_t m) {
    int32_t lowest = b->most;
    for (int64_t d = 0; d <= 2 * b->most; d++) {
        const int64_t j = i - b->most + d;
        int32_t cell = b->most;
        if (j == 0) {
            cell = least(cell, (int32_t)i);
        } else if (j > 0 && j <= m) {
            const int32_t changed = b->cells[d] + (letter != y[j - 1]), deleted = b->cells[d + 1] + 1;
            cell = least(cell, least(changed, least(deleted, d > 0 ? b->cells[d - 1] + 1 : b->most)));
        }
        b->cells[d] = cell;
        lowest = least(lowest, cell);
    }
    return lowest;
}

int64_t napier_edit_distance(const float *x, const float *y, int64_t cols, int64_t most) {
    const int64_t n = length_of(x, cols), m = length_of(y, cols);
    if (n - m >= most || m - n >= most) {
        return most;
    }
    band b;
    b.most = (int32_t)most;
    for (int64_t d = 0; d <= 2 * most + 1; d++) {
        const int64_t j = d - most;
        b.cells[d] = j < 0 || j > most ? (int32_t)most : (int32_t)j;
    }
    for (int64_t i = 1; i <= n; i++) {
        if (next_row(&b, i, x[i - 1], y, m) >= b.most) {
            return most;
        }
    }
    return b.cells[m - n + most];
}

/* ---- ll_dirichlet ------------------------------------------------------------------------------------------------ */

/* Stirling's series, as umap-learn cuts it; 0 at 1. */
static double stirling(double x) {
    return x == 1.0 ? 0.0 : x * napier_f64_log(x) - x + 0.5 * napier_f64_log(TWO_PI / x) + 1.0 / (12.0 * x);
}

static double halves(double x) { return LOG_2 * (0.5 - 2.0 * x) + 0.5 * napier_f64_log(TWO_PI / x) + 0.125 / x; }

static double small_beta(double low, double high) {
    double sum = -napier_f64_log(high);
    for (int i = 1; i < (int)low; i++) { /* low < NAPIER_COUNTS_SMALL */
        sum += napier_f64_log((double)i) - napier_f64_log(high + (double)i);
    }
    return sum;
}

void napier_count_logs_fill(napier_count_logs *logs) {
    logs->gamma[0] = logs->single[0] = 0.0; /* no count */
    for (int k = 1; k < NAPIER_COUNTS_KNOWN; k++) {
        logs->gamma[k] = stirling((double)k);
        logs->single[k] = halves((double)k);
    }
    for (int high = 1; high < NAPIER_COUNTS_SMALL; high++) {
        for (int low = 1; low <= high; low++) {
            logs->small[low][high] = small_beta((double)low, (double)high);
        }
    }
}

/* The index of a number in the tables, or 0. */
static int known(double x) { return x < (double)NAPIER_COUNTS_KNOWN && x == (double)(int)x ? (int)x : 0; }

static double log_gamma(const napier_count_logs *logs, double x) {
    const int k = known(x);
    return k ? logs->gamma[k] : stirling(x);
}

/* About log B(x, x). */
static double log_single(const napier_count_logs *logs, double x) {
    const int k = known(x);
    return k ? logs->single[k] : halves(x);
}

/* About log B(x, y). */
static double log_beta(const napier_count_logs *logs, double x, double y) {
    const double low = x < y ? x : y, high = x < y ? y : x;
    if (high >= (double)NAPIER_COUNTS_SMALL) {
        return log_gamma(logs, low) + log_gamma(logs, high) - log_gamma(logs, low + high);
    }
    const int i = known(low), j = known(high);
    return i && j ? logs->small[i][j] : small_beta(low, high);
}

void napier_dirichlet_add(const napier_count_logs *logs, const float *x, const float *y, int64_t n,
                          napier_dirichlet *sums) {
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)x[i], b = (double)y[i];
        const bool shared = a * b > 0.9;
        sums->unequal = sums->unequal || a != b;
        sums->left += a;
        sums->right += b;
        sums->both += shared ? log_beta(logs, a, b) : 0.0;
        sums->left_single += shared || a > 0.9 ? log_single(logs, a) : 0.0;
        sums->right_single += shared || b > 0.9 ? log_single(logs, b) : 0.0;
    }
}

float napier_dirichlet_distance(const napier_count_logs *logs, const napier_dirichlet *s) {
    if (!s->unequal) {
        return 0.0f; /* the two approximations of a logarithm differ */
    }
    const double all = s->left > 0.0 && s->right > 0.0 ? s->both - log_beta(logs, s->left, s->right) : 0.0;
    const double right = s->right > 0.0 ? (all - (s->right_single - log_single(logs, s->right))) / s->right : 0.0;
    const double left = s->left > 0.0 ? (all - (s->left_single - log_single(logs, s->left))) / s->left : 0.0;
    const double square = right + left;
    return square > 0.0 ? (float)sqrt(square) : 0.0f;
}
