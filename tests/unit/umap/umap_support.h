/* unit/umap/umap_support.h - what the umap tests share: random data, the same every time. */
#ifndef NAPIER_TESTS_UMAP_SUPPORT_H
#define NAPIER_TESTS_UMAP_SUPPORT_H

#include "support/check.h"
#include "umap/metric/metric.h"
#include "umap/metric/samples.h"

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

/* A call that must succeed, or the test ends. */
#define must(call_)                                                 \
    do {                                                            \
        if (call_) {                                                \
            fail_msg("%s: %s", #call_, napier_last_error(context)); \
        }                                                           \
    } while (0)

/* Rows of n points. */
static inline napier_umap_samples samples_of(const float *x, int64_t n, int64_t cols) {
    return (napier_umap_samples){napier_const_rows_f32(x, n, cols), NULL};
}

/* Points of samples that may be wrong. */
static inline napier_status make_points(napier_memory *memory, const char *name, napier_umap_samples samples,
                                        const napier_neighbors_options *options, const napier_points *like,
                                        napier_points **out) {
    NAPIER_TRY(napier_samples_check(memory->context, name, samples));
    return napier_points_create(memory, name, samples, options, like, out);
}

#endif
