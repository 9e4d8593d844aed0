/* umap/metric/direction.h - rows of length 1, for metrics that depend only on the direction (metric.c). Plain C that
 * CUDA compiles too; element i of a row is x[i * stride]. */
#ifndef NAPIER_UMAP_METRIC_DIRECTION_H
#define NAPIER_UMAP_METRIC_DIRECTION_H

#include <math.h>
#include <napier/umap.h>

#include "core/math/both.h"

/* How to normalise a row to length 1: x * scale - shift; or the row has no direction. */
typedef struct napier_direction {
    double scale, shift;
    int none;
} napier_direction;

/* The normalisation of a row of `cols` columns: `count` values are given, the others are 0. */
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

#endif
