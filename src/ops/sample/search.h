/* ops/sample/search.h - finds where a beginning of a set ends, in the order of larger values first, without sorting. */
#ifndef NAPIER_OPS_SAMPLE_SEARCH_H
#define NAPIER_OPS_SAMPLE_SEARCH_H

#include <stdbool.h>

#include "ops/sample/sample_kernels.h"

/* What each value counts: 1, or with `weights` its weight (draw.h) in a row with this maximum. */
typedef struct napier_sample_measure {
    const napier_sample_kernels *kernels;
    bool weights;
    float max;
    int bits;
} napier_sample_measure;

/* The shortest beginning that counts at least `goal` > 0: all values above *least, and *ties of those that equal it.
 * False if all n values together count less. The values must have no NaN. They are moved and overwritten. */
bool napier_sample_search(const napier_sample_measure *measure, float *values, int64_t n, uint64_t goal, float *least,
                          int64_t *ties);

/* Two values between which the edge of a beginning almost surely lies, from some elements of a row: four standard deviations
 * to either side of where these elements reach `share`. That is the number above the edge, or with weights the weight below
 * it: in both cases the side whose sum has no large terms. `floor` is the lowest that they can be; FLT_MAX as *high means
 * that these elements do not reach as far. The maximum of a row whose weights count is at most NAPIER_BIG. */
void napier_sample_bracket(const napier_sample_measure *measure, const float *values, int64_t n, double share,
                           float floor, float *low, float *high);

#endif
