/* umap/metric/formulas.h - parts of metrics that the CPU and CUDA share, in plain C: squared distances, rows of length 1,
 * boolean rows. */
#ifndef NAPIER_UMAP_METRIC_FORMULAS_H
#define NAPIER_UMAP_METRIC_FORMULAS_H

#include <math.h>
#include <napier/umap.h>
#include <stdbool.h>

#include "core/math/both.h"

NAPIER_BOTH bool napier_metric_is_boolean(napier_metric metric) {
    return metric >= NAPIER_METRIC_JACCARD && metric <= NAPIER_METRIC_MATCHING;
}

/* How a squared euclidean distance of transformed rows becomes the metric's. */
typedef enum napier_points_kind {
    NAPIER_POINTS_GENERAL,   /* it does not; use napier_points_distance */
    NAPIER_POINTS_EUCLIDEAN, /* sqrt(d2) */
    NAPIER_POINTS_HALF,      /* d2 / 2: cosine, correlation */
    NAPIER_POINTS_HALF_ROOT  /* sqrt(d2 / 2): hellinger */
} napier_points_kind;

/* The metric's distance from the squared euclidean one (kind not GENERAL). */
NAPIER_BOTH float napier_from_squared(napier_points_kind kind, float squared) {
    switch (kind) {
    case NAPIER_POINTS_HALF: return 0.5f * squared;
    case NAPIER_POINTS_HALF_ROOT: return sqrtf(0.5f * squared);
    default: return sqrtf(squared);
    }
}

/* ---- Rows of length 1, for metrics that depend only on the direction (points.c) ---------------------------------- */

NAPIER_BOTH bool napier_has_direction(napier_metric metric) {
    return metric == NAPIER_METRIC_COSINE || metric == NAPIER_METRIC_CORRELATION || metric == NAPIER_METRIC_HELLINGER;
}

/* How to normalise a row to length 1: x * scale - shift; or the row has no direction. */
typedef struct napier_direction {
    double scale, shift;
    int none;
} napier_direction;

/* The normalisation of a row of `cols` columns: `count` values are given, x[i * stride], the others are 0. */
NAPIER_BOTH napier_direction napier_direction_of(napier_metric metric, const float *x, int64_t stride, int64_t count,
                                                 int64_t cols) {
    napier_direction d = {0.0, 0.0, 1};
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)x[i * stride];
        sum += value;
        squares += value * value;
    }
    if (metric == NAPIER_METRIC_HELLINGER) {
        d.scale = sum > 0.0 ? 1.0 / sum : 0.0;
        d.none = !(sum > 0.0);
        return d;
    }
    const double mean = metric == NAPIER_METRIC_CORRELATION ? sum / (double)cols : 0.0;
    double length2 = squares;
    if (metric == NAPIER_METRIC_CORRELATION) {
        length2 = (double)(cols - count) * mean * mean;
        for (int64_t i = 0; i < count; i++) {
            const double away = (double)x[i * stride] - mean;
            length2 += away * away;
        }
    }
    /* for equal values this is only the rounding error of their mean */
    if (!(length2 > squares * 0x1p-88) || !(length2 > 0.0)) {
        return d;
    }
    d.scale = 1.0 / sqrt(length2);
    d.shift = mean * d.scale;
    d.none = 0;
    return d;
}

NAPIER_BOTH float napier_directed(napier_metric metric, napier_direction d, float x) {
    if (metric == NAPIER_METRIC_HELLINGER) {
        return (float)sqrt((double)x * d.scale);
    }
    return (float)((double)x * d.scale - d.shift);
}

/* Replaces a row by its direction. The column after the last is 1 for rows without one, else 0. */
NAPIER_BOTH void napier_direct_row(napier_metric metric, float *x, int64_t stride, int64_t cols) {
    const napier_direction d = napier_direction_of(metric, x, stride, cols, cols);
    for (int64_t c = 0; c < cols; c++) {
        x[c * stride] = d.none ? 0.0f : napier_directed(metric, d, x[c * stride]);
    }
    x[cols * stride] = d.none ? 1.0f : 0.0f;
}

/* ---- Boolean rows, from the counts of true and false columns ----------------------------------------------------- */

/* The number of columns where both are true, where only one is, and of all. */
typedef struct napier_truths {
    double both, left, right, columns;
} napier_truths;

NAPIER_BOTH float napier_boolean_distance(napier_metric metric, napier_truths c) {
    const double unequal = c.left + c.right, any = c.both + unequal;
    switch (metric) {
    case NAPIER_METRIC_JACCARD: return any > 0.0 ? (float)(unequal / any) : 0.0f;
    case NAPIER_METRIC_DICE: return unequal > 0.0 ? (float)(unequal / (2.0 * c.both + unequal)) : 0.0f;
    case NAPIER_METRIC_YULE: {
        const double crossed = c.left * c.right, neither = c.columns - any;
        return crossed > 0.0 ? (float)(2.0 * crossed / (c.both * neither + crossed)) : 0.0f;
    }
    case NAPIER_METRIC_RUSSELLRAO: return unequal > 0.0 ? (float)((c.columns - c.both) / c.columns) : 0.0f;
    case NAPIER_METRIC_ROGERSTANIMOTO:
    case NAPIER_METRIC_SOKALMICHENER: return (float)(2.0 * unequal / (c.columns + unequal));
    case NAPIER_METRIC_SOKALSNEATH: return unequal > 0.0 ? (float)(unequal / (0.5 * c.both + unequal)) : 0.0f;
    case NAPIER_METRIC_KULSINSKI:
        return unequal > 0.0 ? (float)((unequal - c.both + c.columns) / (unequal + c.columns)) : 0.0f;
    default: return (float)(unequal / c.columns); /* matching */
    }
}

#endif
