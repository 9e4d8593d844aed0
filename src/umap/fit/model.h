/* umap/fit/model.h - the contents of a fitted map. */
#ifndef NAPIER_UMAP_FIT_MODEL_H
#define NAPIER_UMAP_FIT_MODEL_H

#include "umap/options/params.h"
#include "umap/metric/samples.h"

struct napier_umap_model {
    napier_umap_options options; /* checked; its pointers are NULL except the next */
    float *metric_values;        /* a copy of options.neighbors.metric_values, or NULL */
    int64_t metric_count;
    napier_samples_copy data; /* less the offsets */
    double *offsets;          /* subtracted from the columns, or from the rows of correlation; NULL: none */
    int64_t offset_count;
    int64_t lost;         /* see napier_umap_model_indistinct */
    int64_t n;            /* points */
    float *embedding;     /* [n, options.n_components] */
    napier_memory memory; /* holds all of it, the struct too */
};

/* The number of metric values that a metric takes for rows of `cols` columns. */
int64_t napier_umap_metric_count(napier_metric metric, int64_t cols);

/* The number of offsets that a model of n rows of `cols` columns has, if any. */
static inline int64_t napier_umap_offset_count(napier_metric metric, int64_t n, int64_t cols) {
    return napier_metric_moves_rows(metric) ? n : napier_metric_moves_columns(metric) ? cols : 0;
}

/* Makes a model for n points in `memory`, without data, metric values or embedding. */
napier_status napier_umap_model_begin(napier_memory *memory, const napier_umap_options *options, int64_t n,
                                      int64_t metric_count, napier_umap_model **out);

/* Multiplies the limit of the options, disconnection_distance, as napier_samples_scaled multiplies rows. */
void napier_umap_scale_limit(napier_umap_options *options, int exponent);
/* Brings the distances of such rows to about 1e6, where their scales are found to full precision. */
void napier_umap_scale_distances(const napier_umap_options *options, int exponent, int64_t count, float *distances);

/* Neighbours at the disconnection distance or farther become -1 at infinity. */
void napier_umap_disconnect(const napier_umap_options *options, int64_t count, int32_t *indices, float *distances);

/* Gives the model, which is complete, the memory that it lives in. */
napier_umap_model *napier_umap_model_finish(napier_umap_model *model, napier_memory *memory);

#endif
