/* umap/graph/smooth.h - rho and sigma of one row of distances, the directed memberships and how two are joined: what
 * the CPU (fuzzy.c) and CUDA share. A row holds k distances, ascending; +inf: no neighbour. Plain C that CUDA compiles
 * too. */
#ifndef NAPIER_UMAP_GRAPH_SMOOTH_H
#define NAPIER_UMAP_GRAPH_SMOOTH_H

#include <math.h>
#include <stdint.h>

#include "core/math/both.h"

enum { NAPIER_BISECTIONS = 64, NAPIER_MEAN_BLOCK = 65536 /* distances that are summed in order */ };

#define NAPIER_SMOOTH_TOLERANCE 1e-5
#define NAPIER_SMOOTH_LEAST_SHARE 1e-3 /* of the mean distance: the least sigma */

/* ---- A row's faults ---------------------------------------------------------------------------------------------- */

/* The first of k neighbours of one of n points that cannot be, or -1. indices may be NULL. */
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

/* The number of distances that are finite: they are sorted. */
NAPIER_BOTH int64_t napier_smooth_count(const float *d, int64_t k) {
    while (k > 0 && isinf(d[k - 1])) {
        k--;
    }
    return k;
}

/* ---- Rho and sigma ----------------------------------------------------------------------------------------------- */

/* Between the two neighbours at either side of local_connectivity, among those not at distance 0. */
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

/* One row's search for sigma. */
typedef struct napier_bisection {
    double low, high, middle; /* high 0: none yet */
    int64_t row, count;       /* finite distances, the first left out */
    int left;                 /* rounds */
} napier_bisection;

NAPIER_BOTH napier_bisection napier_bisection_of(int64_t row, const float *d, int64_t count) {
    /* 1 to begin with, as the reference has it, which 64 halvings or doublings bring to any usual scale */
    napier_bisection b = {0.0, 0.0, 1.0, row, count > 1 ? count - 1 : 0, NAPIER_BISECTIONS};
    const double scale = (double)d[count > 0 ? count - 1 : 0];
    if (count > 0 && scale > 0.0 && (scale < 0x1p-40 || scale > 0x1p40)) {
        b.middle = scale;
    }
    return b;
}

/* Of a gap d - rho: what exp is taken of, for factor = -1 / sigma. */
NAPIER_BOTH float napier_smooth_exponent(float gap, float factor) { return gap > 0.0f ? gap * factor : 0.0f; }

/* False when the search is over. */
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

/* mean: of all distances. */
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

/* Those of row i that count, as exponents: their number. */
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

/* Ascending by target: rows are short, and nearly any order will do. */
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

/* Row v of A and A' joined: how many edges stay. targets NULL: only counts. */
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
