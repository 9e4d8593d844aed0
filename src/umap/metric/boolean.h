/* umap/metric/boolean.h - distances of boolean rows, from the counts of true and false columns. Plain C that CUDA
 * compiles too. */
#ifndef NAPIER_UMAP_METRIC_BOOLEAN_H
#define NAPIER_UMAP_METRIC_BOOLEAN_H

#include <napier/umap.h>

#include "core/math/both.h"

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
