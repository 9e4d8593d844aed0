/* umap/layout/sampling.h - which edges act in an epoch, and the number of samples of a vertex. Plain C that CUDA
 * compiles too. */
#ifndef NAPIER_UMAP_LAYOUT_SAMPLING_H
#define NAPIER_UMAP_LAYOUT_SAMPLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/math/random.h"

enum {
    NAPIER_PHASE_STREAM = -1, /* stream of the edges' phases; epochs are streams 0, 1, ... */
    NAPIER_SAMPLE_FOR = 4     /* how many samples one drawn sample may stand for */
};

NAPIER_BOTH float napier_round_to_whole(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* Does an edge act in an epoch? It acts in a share of weight / highest of all epochs, evenly spread. */
NAPIER_BOTH bool napier_edge_acts(uint32_t phase_key, float highest, int64_t epoch, uint32_t source, uint32_t target,
                                  float weight) {
    uint32_t random[2];
    napier_philox(phase_key, source, target, random);
    const float phase = (float)(random[0] >> 8) * 0x1p-24f, share = weight / highest;
    return napier_round_to_whole(fmaf(share, (float)(epoch + 1), phase)) >
           napier_round_to_whole(fmaf(share, (float)epoch, phase));
}

typedef struct napier_sampling {
    int64_t count;
    float weight; /* of each */
} napier_sampling;

/* Samples are drawn in whole vectors. Each stands for up to NAPIER_SAMPLE_FOR samples that the rate asks for, and is
 * weighted so that the mean force is the same. */
NAPIER_BOTH napier_sampling napier_weighted_sampling(float wanted) {
    const float most = 16.0f * NAPIER_SAMPLE_FOR; /* samples that one vector stands for; a power of two */
    napier_sampling s = {16, wanted * 0.0625f};
    if (wanted > 0.0f && wanted <= most) { /* most vertices: as below, without a division */
        return s;
    }
    int64_t vectors = (int64_t)(wanted / most);
    vectors += (float)vectors * most < wanted;
    s.count = 16 * vectors;
    s.weight = vectors > 0 ? wanted / (16.0f * (float)vectors) : 0.0f;
    return s;
}

/* The samples of vertex v that the rate asks for: the rate times its number of acting edges, which is the sum of its
 * weights over the largest. */
NAPIER_BOTH float napier_wanted_samples(const int64_t *starts, const float *weights, int64_t v, float highest,
                                        double rate) {
    double sum = 0.0;
    for (int64_t e = starts[v]; e < starts[v + 1]; e++) {
        sum += (double)weights[e];
    }
    return highest > 0.0f ? (float)(rate * (sum / (double)highest)) : 0.0f;
}

/* Draw s of vertex v, below n (layout_kernels.h). */
NAPIER_BOTH uint32_t napier_draw_of(uint32_t key, uint32_t v, uint32_t n, int64_t s) {
    uint32_t word[2];
    napier_philox(key, v, (uint32_t)(s / 32 * 16 + s % 16), word);
    return napier_random_below(s / 16 % 2 ? word[1] : word[0], n);
}

#endif
