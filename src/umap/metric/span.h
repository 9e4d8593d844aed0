/* umap/metric/span.h - the range of the values that a metric compares, for the CPU and CUDA: whether f32 needs an offset
 * to hold the digits in which they differ, and whether it holds any (samples.h). */
#ifndef NAPIER_UMAP_METRIC_SPAN_H
#define NAPIER_UMAP_METRIC_SPAN_H

#include <float.h>
#include <math.h>

#include "core/math/f64.h"
#include "umap/metric/formulas.h"

/* The values that count together. If f32 holds none of their digits, their distances are lost. */
typedef enum napier_reach { OF_NONE, OF_ALL, OF_COLUMN, OF_ROW, OF_VALUE } napier_reach;

NAPIER_BOTH napier_reach napier_reach_of(napier_metric metric) {
    switch (metric) {
    case NAPIER_METRIC_EUCLIDEAN:
    case NAPIER_METRIC_MANHATTAN:
    case NAPIER_METRIC_CHEBYSHEV:
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI:
    case NAPIER_METRIC_POINCARE:
    case NAPIER_METRIC_PRECOMPUTED: return OF_ALL;
    case NAPIER_METRIC_SEUCLIDEAN:
    case NAPIER_METRIC_MAHALANOBIS: return OF_COLUMN;
    case NAPIER_METRIC_COSINE:
    case NAPIER_METRIC_CORRELATION:
    case NAPIER_METRIC_HELLINGER:
    case NAPIER_METRIC_BRAYCURTIS: return OF_ROW;
    case NAPIER_METRIC_CANBERRA:
    case NAPIER_METRIC_HAMMING: return OF_VALUE;
    default: return napier_metric_is_boolean(metric) ? OF_VALUE : OF_NONE;
    }
}

/* Smaller values lose digits, as they are below f32's normal numbers. Where only 0 is told from other values, f32's least
 * number is the limit. */
NAPIER_BOTH double napier_least_held(napier_metric metric) {
    return napier_reach_of(metric) == OF_VALUE && metric != NAPIER_METRIC_CANBERRA ? 0x1p-149 : 0x1p-126;
}

typedef struct napier_span {
    double low, high;
    double least; /* the smallest size of a value that is not 0 */
    bool exact;   /* are all values f32 numbers? */
} napier_span;

NAPIER_BOTH napier_span napier_span_empty(void) {
    const napier_span none = {(double)INFINITY, -(double)INFINITY, (double)INFINITY, true};
    return none;
}

/* NaN is skipped. */
NAPIER_BOTH void napier_span_add(napier_span *s, double x) {
    s->low = x < s->low ? x : s->low;
    s->high = x > s->high ? x : s->high;
    s->least = x != 0.0 && fabs(x) < s->least ? fabs(x) : s->least;
    s->exact = s->exact && (double)napier_f64_to_f32(x) == x;
}

/* The middle of the values if they need an offset, else 0. They need one if their middle is at least 16 times half their
 * range; so without one at most four bits are lost. Values that are all f32 numbers need none, and with infinite values
 * there is no middle. */
NAPIER_BOTH double napier_span_offset(const napier_span *s) {
    const double middle = 0.5 * s->low + 0.5 * s->high;
    const bool far = !s->exact && fabs(middle) >= 16.0 * (0.5 * s->high - 0.5 * s->low) && fabs(middle) <= DBL_MAX;
    return far ? middle : 0.0;
}

/* The size that must not be below napier_least_held, less the offset; 0: there is none. */
NAPIER_BOTH double napier_span_size(const napier_span *s, double offset, napier_reach reach) {
    const double below = fabs(s->low - offset), above = fabs(s->high - offset);
    return reach != OF_VALUE ? (below > above ? below : above) : s->least <= DBL_MAX ? s->least : 0.0;
}

#endif
