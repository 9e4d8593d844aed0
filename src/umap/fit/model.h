/* umap/fit/model.h - the contents of a fitted map. */
#ifndef NAPIER_UMAP_FIT_MODEL_H
#define NAPIER_UMAP_FIT_MODEL_H

#include "umap/options/fit_options.h"
#include "umap/metric/samples.h"

struct napier_umap_model {
    napier_umap_options options; /* checked; its pointers are NULL except the next */
    float *metric_values;        /* a copy of options.neighbors.metric_values, or NULL */
    int64_t metric_count;
    napier_samples_copy data;
    int64_t n;        /* points */
    float *embedding; /* [n, options.n_components] */
};

/* Makes a model for n points, without data, metric values or embedding. */
napier_status napier_umap_model_create(napier_context *context, const napier_umap_options *options, int64_t n,
                                       int64_t metric_count, napier_umap_model **out);

#endif
