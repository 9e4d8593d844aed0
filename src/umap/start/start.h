/* umap/start/start.h - the starts of a layout, and what they share: random numbers and scale. */
#ifndef NAPIER_UMAP_START_START_H
#define NAPIER_UMAP_START_START_H

#include <math.h>
#include <napier/umap.h>

#include "core/base/scope.h"
#include "core/base/sizes.h"
#include "core/math/random.h"

/* Streams of random numbers (core/math/random.h). Those of epochs count from 0, so they are distinct. */
enum {
    NAPIER_STREAM_RANDOM_START = 0x73740001,
    NAPIER_STREAM_JITTER = 0x73740002,
    NAPIER_STREAM_SMALL = 0x73740003, /* components too small for eigenvectors, missing principal components */
    NAPIER_STREAM_BLOCK = 0x73740004  /* the first block of an eigenvector iteration; its seed is always 0 */
};

/* A random number in [-1, 1) for a vertex and a component. */
static inline double napier_start_number(uint64_t seed, uint32_t stream, int64_t vertex, int64_t component) {
    uint32_t random[2];
    napier_random(seed, stream, (uint32_t)vertex, (uint32_t)component, random);
    return 2.0 * napier_random_unit(random[0]) - 1.0;
}

static inline int64_t napier_between(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : napier_least(x, high);
}

/* The largest magnitude of `count` elements. */
static inline double napier_start_largest(const float *y, int64_t count) {
    float largest = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        largest = fabsf(y[i]) > largest ? fabsf(y[i]) : largest;
    }
    return (double)largest;
}

/* Scales y [n, components] so that its largest element is 10 in size, and adds noise of standard deviation 1e-4. A
 * single point is placed at 0. */
void napier_start_finish(float *y, int64_t n, int64_t components, uint64_t seed);

/* The samples' scores [n, components] on their first `components` principal components. They are in units of a power of
 * two about as large as the data's largest value. The signs make the largest score of each component positive. *found
 * is the number of components that exist; the other columns are 0. Checks the values of the samples. */
napier_status napier_pca_scores(napier_context *context, napier_umap_samples samples, int64_t components, float *scores,
                                int64_t *found);

/* napier_umap_pca_layout and napier_umap_spectral_layout of checked arguments: [n, 1 to 256], n >= 1. Samples without
 * columns are not used by the spectral start. */
napier_status napier_start_pca(napier_context *context, napier_umap_samples samples, uint64_t seed,
                               napier_matrix embedding);
napier_status napier_start_spectral(napier_context *context, const napier_umap_graph *graph,
                                    napier_umap_samples samples, uint64_t seed, napier_matrix embedding);

#endif
