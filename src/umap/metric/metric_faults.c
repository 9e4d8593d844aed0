/* umap/metric/metric_faults.c - the values that a metric takes (metric_parts.h). */
#include "umap/metric/metric_parts.h"

#include <math.h>

/* A distance below 0 by at most this share of its row's largest is a rounded 0, as 1 - cosine has them. */
#define ROUNDED_ZERO 0x1p-16f

/* Larger values are not plausible angles in radians. */
#define MOST_RADIANS 1e6f

/* What a finite value violates: the error message, or NULL if it is valid. */
static const char *value_fault(napier_metric metric, float x) {
    switch (metric) {
    case NAPIER_METRIC_HELLINGER: return x < 0.0f ? "hellinger takes no negative values" : NULL;
    case NAPIER_METRIC_SYMMETRIC_KL: return x < 0.0f ? "symmetric_kl takes no negative values" : NULL;
    case NAPIER_METRIC_LL_DIRICHLET:
        return x < 0.0f      ? "ll_dirichlet takes no negative counts"
               : x > 0x1p53f ? "ll_dirichlet takes counts of at most 2^53"
                             : NULL;
    case NAPIER_METRIC_PRECOMPUTED: return x < 0.0f ? "a distance is not negative" : NULL;
    case NAPIER_METRIC_HAVERSINE: return fabsf(x) > MOST_RADIANS ? "haversine takes radians" : NULL;
    case NAPIER_METRIC_CANBERRA: return fabsf(x) >= 0x1p127f ? "the sum of two overflows; divide the data by 2" : NULL;
    default: return NULL;
    }
}

static bool may_refuse_values(napier_metric metric) {
    return metric == NAPIER_METRIC_HELLINGER || metric == NAPIER_METRIC_PRECOMPUTED ||
           metric == NAPIER_METRIC_HAVERSINE || metric == NAPIER_METRIC_SYMMETRIC_KL ||
           metric == NAPIER_METRIC_LL_DIRICHLET || metric == NAPIER_METRIC_CANBERRA;
}

/* The least value that is a rounded 0; 0 for all metrics but precomputed. */
static float least_zero(napier_metric metric, const float *x, int64_t n) {
    float largest = 0.0f;
    for (int64_t i = 0; i < n && metric == NAPIER_METRIC_PRECOMPUTED; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    return -ROUNDED_ZERO * largest;
}

int64_t napier_metric_fault(napier_metric metric, const float *x, int64_t n) {
    const float least = least_zero(metric, x, n);
    for (int64_t i = 0; i < n && may_refuse_values(metric); i++) {
        if (!(x[i] < 0.0f && x[i] >= least) && value_fault(metric, x[i])) {
            return i;
        }
    }
    return -1;
}

napier_status napier_metric_refuse(napier_context *context, const char *name, napier_metric metric, int64_t row,
                                   int64_t col, float value) {
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: row %lld, column %lld is %g: %s", name, (long long)row,
                       (long long)col, (double)value, value_fault(metric, value));
}
