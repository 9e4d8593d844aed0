/* umap/layout/optimizer.h - the state of an optimizer for every point, and its step. */
#ifndef NAPIER_UMAP_LAYOUT_OPTIMIZER_H
#define NAPIER_UMAP_LAYOUT_OPTIMIZER_H

#include <napier/umap.h>

#include "core/base/context.h"

struct napier_umap_optimizer {
    napier_umap_optimizer_options options;
    int64_t n, components;
    int64_t steps; /* taken so far */
    float *first;  /* velocity, or Adam's mean; NULL for SGD */
    float *second; /* Adam's mean square; NULL otherwise */
};

/* Checks that the method exists, betas are in [0, 1) and eps is above 0. */
napier_status napier_umap_check_optimizer_options(napier_context *context,
                                                  const napier_umap_optimizer_options *options);

/* 1 - beta^steps, by squaring, in double. */
float napier_umap_correction(float beta, int64_t steps);

/* y += the step for forces g, both [n, components]. */
void napier_umap_optimizer_step(napier_context *context, napier_umap_optimizer *optimizer, const float *g, float rate,
                                float *y);

#endif
