/* umap/options/force.h - the two forces of UMAP between a pair of points, operation by operation; layout.inc.h does
 * the same on 16 pairs at a time. Plain C that CUDA compiles too. */
#ifndef NAPIER_UMAP_OPTIONS_FORCE_H
#define NAPIER_UMAP_OPTIONS_FORCE_H

#include <stdint.h>

#include "core/math/pow.h"

#define NAPIER_UMAP_NEAREST 0x1p-126f /* smaller squared distances count as 0 */
#define NAPIER_UMAP_FARTHEST 0x1p100f /* larger ones count as this: the force is 0 there */

/* The constants of the forces, computed from the parameters. */
typedef struct napier_forces {
    float a, b;
    float attraction; /* -2 a b */
    float repulsion;  /* 2 gamma b */
    float epsilon;
    float clip;     /* FLT_MAX: no limit */
    float max_norm; /* 0: no limit */
} napier_forces;

NAPIER_BOTH float napier_squared_gap(const float *y, const float *z, int64_t components) {
    float d2 = 0.0f;
    for (int64_t d = 0; d < components; d++) {
        const float gap = y[d] - z[d];
        d2 = fmaf(gap, gap, d2);
    }
    return d2 < NAPIER_UMAP_FARTHEST ? d2 : NAPIER_UMAP_FARTHEST;
}

/* The factor of (y - z): 0 where the points coincide. */
NAPIER_BOTH float napier_attraction(const napier_forces *f, float d2) {
    const float power = napier_powf(d2, f->b);
    const float factor = (f->attraction * power) / (d2 * fmaf(f->a, power, 1.0f));
    return d2 >= NAPIER_UMAP_NEAREST ? factor : 0.0f;
}
NAPIER_BOTH float napier_repulsion(const napier_forces *f, float d2) {
    const float power = napier_powf(d2, f->b);
    const float factor = f->repulsion / ((f->epsilon + d2) * fmaf(f->a, power, 1.0f));
    return d2 >= NAPIER_UMAP_NEAREST ? factor : 0.0f;
}

/* One component of a force, without its weight. */
NAPIER_BOTH float napier_clipped(const napier_forces *f, float factor, float gap) {
    float v = factor * gap;
    v = v < f->clip ? v : f->clip;
    return v > -f->clip ? v : -f->clip;
}

/* The weight of the force factor * (y - z), shortened if that is longer than max_norm. */
NAPIER_BOTH float napier_force_weight(const napier_forces *f, float factor, float weight, const float *y,
                                      const float *z, int64_t components) {
    float norm2 = 0.0f;
    if (f->max_norm == 0.0f) {
        return weight;
    }
    for (int64_t d = 0; d < components; d++) {
        const float part = napier_clipped(f, factor, y[d] - z[d]);
        norm2 = fmaf(part, part, norm2);
    }
    return norm2 > f->max_norm * f->max_norm ? weight * (f->max_norm / sqrtf(norm2)) : weight;
}

/* force = weight * shortened(clipped(factor * (y - z))) */
NAPIER_BOTH void napier_force(const napier_forces *f, float factor, float weight, const float *y, const float *z,
                              int64_t components, float *force) {
    const float scale = napier_force_weight(f, factor, weight, y, z, components);
    for (int64_t d = 0; d < components; d++) {
        force[d] = napier_clipped(f, factor, y[d] - z[d]) * scale;
    }
}

#endif
