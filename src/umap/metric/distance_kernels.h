/* umap/metric/distance_kernels.h - one row against many, as each instruction set compiles it (distance.inc.h).
 *
 * Order. SQUARED: as napier_linear_kernels.squared_distance. The others: lane j of 16 adds columns j, j + 16, ...
 * ascending in float; then the lanes are added in double, from lane 0 on. */
#ifndef NAPIER_UMAP_METRIC_DISTANCE_KERNELS_H
#define NAPIER_UMAP_METRIC_DISTANCE_KERNELS_H

#include <stdint.h>

/* What is summed over the columns of two rows x and y, and the result of the sum. */
typedef enum napier_gap {
    NAPIER_GAP_EUCLIDEAN, /* (x - y)^2; result: root of the sum */
    NAPIER_GAP_HALF,      /* (x - y)^2; half of the sum */
    NAPIER_GAP_HALF_ROOT, /* (x - y)^2; root of half of the sum */
    NAPIER_GAP_PLAIN,     /* |x - y| */
    NAPIER_GAP_LARGEST,   /* |x - y|; the largest, not the sum */
    NAPIER_GAP_CANBERRA,  /* |x - y| / (|x| + |y|), with 0 / 0 = 0 */
    NAPIER_GAP_RATIO,     /* the sum of |x - y| over the sum of |x + y|, with 0 / 0 = 0 */
    NAPIER_GAP_UNEQUAL,   /* 1 where x and y differ; share of the columns */
    NAPIER_GAP_COUNTS,    /* two sums, of x y and of y, for rows of 0 and 1 */
    NAPIER_GAPS
} napier_gap;

enum {
    NAPIER_DISTANCES = 64, /* rows at a time */
    /* Columns up to which counts of 0 and 1 are exact. */
    NAPIER_MOST_COUNTED = 1 << 24
};

/* Rows of `width` floats, a multiple of 16. The first `columns` are data, the rest is 0. */
typedef struct napier_gap_rows {
    napier_gap gap;
    const float *rows;
    int64_t width, columns;
} napier_gap_rows;

typedef struct napier_distance_kernels {
    /* The distances of x from rows which[0] .. which[count - 1], count <= NAPIER_DISTANCES. A distance that is not
     * above 0 or is NaN becomes 0. COUNTS: the sums of x y, and in `others`, which other gaps leave unchanged, those of
     * y. Up to 15 elements beyond count are written. */
    void (*measure)(const napier_gap_rows *rows, const float *x, const uint32_t *which, int64_t count,
                    float distances[NAPIER_DISTANCES], float others[NAPIER_DISTANCES]);
    /* Bit c: distances[c] <= limit or distances[c] <= limits[c], for c < count <= NAPIER_DISTANCES. */
    uint64_t (*within)(const float distances[NAPIER_DISTANCES], int64_t count, float limit, const float *limits);
} napier_distance_kernels;

#endif
