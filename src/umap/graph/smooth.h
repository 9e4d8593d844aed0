/* umap/graph/smooth.h - rho and sigma of one row of distances, the directed memberships, and their
 * symmetrisation. The CPU (fuzzy.c) and CUDA share this file, so it is plain C. A row holds k distances, ascending;
 * +inf means no neighbour. */
#ifndef NAPIER_UMAP_GRAPH_SMOOTH_H
#define NAPIER_UMAP_GRAPH_SMOOTH_H

#include <math.h>
#include <stdint.h>

#include "core/math/both.h"

enum { NAPIER_BISECTIONS = 64, NAPIER_MEAN_BLOCK = 65536 /* distances summed in one block */ };

#define NAPIER_SMOOTH_TOLERANCE 1e-5
#define NAPIER_SMOOTH_LEAST_SHARE 1e-3 /* smallest sigma, as a share of the mean distance */

/* ---- A row's faults ---------------------------------------------------------------------------------------------- */

/* The first invalid one of the k neighbours of a point, or -1. n is the number of points; indices may be NULL. */
NAPIER_BOTH int64_t napier_smooth_fault(const float *d, const int32_t *indices, int64_t k, int64_t n) {
    for (int64_t j = 0; j < k; j++) {
        if (!(d[j] >= 0.0f) || (j > 0 && d[j] < d[j - 1])) {
            return j;
        }
        if (indices && (indices[j] < -1 || indices[j] >= n || (indices[j] >= 0 && isinf(d[j])))) {
            return j;
        }
    }
    return -1;
}

/* The number of finite distances. They are sorted, so these come first. */
NAPIER_BOTH int64_t napier_smooth_count(const float *d, int64_t k) {
    while (k > 0 && isinf(d[k - 1])) {
        k--;
    }
    return k;
}

/* ---- Rho and sigma ----------------------------------------------------------------------------------------------- */

/* The distance of neighbour number local_connectivity, not counting neighbours at distance 0. A fractional number is
 * interpolated between the two neighbours on either side. */
NAPIER_BOTH float napier_smooth_rho(const float *d, int64_t count, double local_connectivity) {
    int64_t first = 0;
    while (first < count && !(d[first] > 0.0f)) {
        first++;
    }
    const int64_t apart = count - first;
    if ((double)apart < local_connectivity) {
        return apart > 0 ? d[count - 1] : 0.0f;
    }
    const int64_t whole = (int64_t)local_connectivity;
    const double part = local_connectivity - (double)whole;
    const float *away = d + first;
    if (whole == 0) {
        return apart > 0 ? (float)(part * (double)away[0]) : 0.0f;
    }
    double rho = (double)away[whole - 1];
    if (part > NAPIER_SMOOTH_TOLERANCE) {
        rho += part * ((double)away[whole] - rho);
    }
    return (float)rho;
}

/* The bisection that finds sigma of one row. */
typedef struct napier_bisection {
    double low, high, middle; /* high 0: no upper bound yet */
    int64_t row, count;       /* count: finite distances except the first */
    int left;                 /* rounds left */
} napier_bisection;

NAPIER_BOTH napier_bisection napier_bisection_of(int64_t row, const float *d, int64_t count) {
    /* Starts at 1, like the reference: 64 halvings or doublings reach any usual scale. */
    napier_bisection b = {0.0, 0.0, 1.0, row, count > 1 ? count - 1 : 0, NAPIER_BISECTIONS};
    const double scale = (double)d[count > 0 ? count - 1 : 0];
    if (count > 0 && scale > 0.0 && (scale < 0x1p-40 || scale > 0x1p40)) {
        b.middle = scale;
    }
    return b;
}

/* The exponent of a membership: gap is d - rho, factor is -1 / sigma. */
NAPIER_BOTH float napier_smooth_exponent(float gap, float factor) { return gap > 0.0f ? gap * factor : 0.0f; }

/* One step of the bisection; false if it was the last. */
NAPIER_BOTH int napier_bisect(napier_bisection *b, double sum, double target) {
    if (fabs(sum - target) < NAPIER_SMOOTH_TOLERANCE) {
        return 0;
    }
    if (sum > target) {
        b->high = b->middle;
        b->middle = 0.5 * (b->low + b->high);
    } else {
        b->low = b->middle;
        b->middle = b->high > 0.0 ? 0.5 * (b->low + b->high) : 2.0 * b->middle;
    }
    return --b->left > 0;
}

/* mean is that of all distances. */
NAPIER_BOTH float napier_smooth_sigma(const napier_bisection *b, const float *d, int64_t k, float rho, double mean) {
    if (rho > 0.0f) {
        const int64_t count = napier_smooth_count(d, k);
        mean = 0.0;
        for (int64_t j = 0; j < count; j++) {
            mean += (double)d[j];
        }
        mean /= (double)count;
    }
    const double least = NAPIER_SMOOTH_LEAST_SHARE * mean;
    return (float)(b->middle < least ? least : b->middle);
}

/* ---- Memberships ------------------------------------------------------------------------------------------------- */

/* Writes the members of row i, with their exponents; returns their number. */
NAPIER_BOTH int64_t napier_members_of(int64_t i, const int32_t *indices, const float *d, int64_t k, float rho,
                                      float sigma, uint32_t *targets, float *exponents) {
    const float factor = (float)(-1.0 / (double)sigma);
    int64_t count = 0;
    for (int64_t j = 0; j < k; j++) {
        if (indices[j] >= 0 && indices[j] != i && !isinf(d[j])) {
            targets[count] = (uint32_t)indices[j];
            exponents[count++] = sigma > 0.0f ? napier_smooth_exponent(d[j] - rho, factor) : 0.0f;
        }
    }
    return count;
}

/* Sorts by target, ascending, by insertion: rows are short. */
NAPIER_BOTH void napier_sort_members(uint32_t *targets, float *weights, int64_t count) {
    for (int64_t gap = count / 2; gap > 0; gap /= 2) {
        for (int64_t i = gap; i < count; i++) {
            const uint32_t target = targets[i];
            const float weight = weights[i];
            int64_t at = i;
            for (; at >= gap && targets[at - gap] > target; at -= gap) {
                targets[at] = targets[at - gap];
                weights[at] = weights[at - gap];
            }
            targets[at] = target;
            weights[at] = weight;
        }
    }
}

/* mix (a + b - ab) + (1 - mix) ab, in double: with a = 1 or b = 1 and mix 1 it is 1, never more. */
NAPIER_BOTH float napier_joined(double a, double b, double mix) {
    const double both = a * b;
    return (float)(mix == 1.0 ? (a + b) - both : mix * ((a + b) - both) + (1.0 - mix) * both);
}

/* Combines row v of A with row v of A'; returns the number of edges. targets NULL: only counts. */
NAPIER_BOTH int64_t napier_join_row(int64_t v, const uint32_t *left, const float *left_weights, int64_t left_count,
                                    const uint32_t *right, const float *right_weights, int64_t right_count, double mix,
                                    uint32_t *targets, float *weights) {
    int64_t kept = 0;
    for (int64_t i = 0, j = 0; i < left_count || j < right_count;) {
        const uint32_t l = i < left_count ? left[i] : UINT32_MAX, r = j < right_count ? right[j] : UINT32_MAX;
        const uint32_t target = l < r ? l : r;
        const double forth = l <= r ? (double)left_weights[i++] : 0.0;
        const double back = r <= l ? (double)right_weights[j++] : 0.0;
        const float weight = napier_joined(forth, back, mix);
        if (weight > 0.0f && target != v) {
            if (targets) {
                targets[kept] = target;
                weights[kept] = weight;
            }
            kept++;
        }
    }
    return kept;
}

#endif
