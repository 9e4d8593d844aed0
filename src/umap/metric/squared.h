/* umap/metric/squared.h - from the squared euclidean distance of transformed rows to the metric's value (metric.h).
 * Plain C that CUDA compiles too. */
#ifndef NAPIER_UMAP_METRIC_SQUARED_H
#define NAPIER_UMAP_METRIC_SQUARED_H

#include <math.h>

#include "core/math/both.h"

enum {
    NAPIER_SQUARED_ROOT = 1, /* sqrt(d2) */
    NAPIER_SQUARED_HALF,     /* d2 / 2: cosine, correlation */
    NAPIER_SQUARED_HALF_ROOT /* sqrt(d2 / 2): hellinger */
};

NAPIER_BOTH float napier_from_squared(int kind, float squared) {
    switch (kind) {
    case NAPIER_SQUARED_HALF: return 0.5f * squared;
    case NAPIER_SQUARED_HALF_ROOT: return sqrtf(0.5f * squared);
    default: return sqrtf(squared);
    }
}

#endif
