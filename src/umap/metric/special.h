/* umap/metric/special.h - metrics with formulas of their own: poincare, symmetric_kl, ll_dirichlet, softmax_hellinger and
 * string. Definitions are umap-learn's. All computations are in double, with our own exp and log. */
#ifndef NAPIER_UMAP_METRIC_SPECIAL_H
#define NAPIER_UMAP_METRIC_SPECIAL_H

#include <napier/umap.h>
#include <stdbool.h>

#include "core/base/scope.h"

/* The options of string where none are given: distances are at most 20, and are not divided. */
#define NAPIER_STRING_MOST 20.0f
enum { NAPIER_STRING_HIGHEST = 1024 };

/* Does a missing column of a sparse row count for more than a 0, so that rows must be dense? */
bool napier_metric_needs_dense(napier_metric metric);

/* Has the metric an exponent p? */
static inline bool napier_metric_has_power(napier_metric metric) {
    return metric == NAPIER_METRIC_MINKOWSKI || metric == NAPIER_METRIC_WMINKOWSKI;
}

/* The number of floats that a transformed row of `cols` columns takes. */
int64_t napier_special_width(napier_metric metric, int64_t cols);

/* Transforms a dense row of a special metric; does nothing for others. `row` has napier_special_width floats.
 *   softmax_hellinger   sqrt(softmax(x))
 *   symmetric_kl        p = (x + 1e-11) / sum(x + 1e-11); then log p, from the next multiple of 16 on
 *   string              all columns from the first negative one on are -1 */
void napier_special_row(napier_metric metric, float *row, int64_t cols);

/* Is a row, not yet transformed, a point of the metric? Poincare's are shorter than 1. */
bool napier_special_is_point(napier_metric metric, const float *row, int64_t cols);

/* acosh(1 + 2 |x - y|^2 / ((1 - |x|^2) (1 - |y|^2))) */
float napier_poincare(const float *x, const float *y, int64_t cols);

/* (KL(p || q) + KL(q || p)) / 2 of transformed rows */
float napier_symmetric_kl(const float *x, const float *y, int64_t cols);

/* The edit distance (insertions, deletions, substitutions) of two rows of character codes, which end at the first
 * negative one; at most `most`, which is at most NAPIER_STRING_HIGHEST. */
int64_t napier_edit_distance(const float *x, const float *y, int64_t cols, int64_t most);

/* ---- ll_dirichlet ------------------------------------------------------------------------------------------------ */

/* Values at whole numbers, the usual counts; others are computed. */
enum { NAPIER_COUNTS_KNOWN = 2048, NAPIER_COUNTS_SMALL = 5 };
typedef struct napier_count_logs {
    double gamma[NAPIER_COUNTS_KNOWN];  /* about log Gamma(k) */
    double single[NAPIER_COUNTS_KNOWN]; /* about log B(k, k) */
    double small[NAPIER_COUNTS_SMALL][NAPIER_COUNTS_SMALL];
} napier_count_logs;

void napier_count_logs_fill(napier_count_logs *logs);

/* The sums over the columns of two rows, which napier_dirichlet_add adds up. */
typedef struct napier_dirichlet {
    double left, right, both, left_single, right_single;
    bool unequal;
} napier_dirichlet;

void napier_dirichlet_add(const napier_count_logs *logs, const float *x, const float *y, int64_t n,
                          napier_dirichlet *sums);

/* The symmetric relative log likelihood of the counts. A row without counts adds nothing of its own. */
float napier_dirichlet_distance(const napier_count_logs *logs, const napier_dirichlet *sums);

#endif
