/* unit/umap/umap_support.h - what the umap tests share: random data, the same every time. */
#ifndef NAPIER_TESTS_UMAP_SUPPORT_H
#define NAPIER_TESTS_UMAP_SUPPORT_H

#include "support/check.h"

#include <math.h>
#include <napier/umap.h>
#include <stdlib.h>
#include <string.h>

static inline double umap_unit(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* About normal: the sum of twelve. */
static inline double umap_normal(uint64_t *state) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += umap_unit(state);
    }
    return sum;
}

#endif
