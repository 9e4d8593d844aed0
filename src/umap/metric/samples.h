/* umap/metric/samples.h - a copy of samples that a model keeps: f32 rows, or CSR. */
#ifndef NAPIER_UMAP_METRIC_SAMPLES_H
#define NAPIER_UMAP_METRIC_SAMPLES_H

#include <napier/umap.h>

#include "core/base/context.h"

typedef struct napier_samples_copy {
    int64_t rows, cols;
    float *dense; /* [rows, cols], contiguous, or NULL: */
    napier_csr_matrix sparse;
} napier_samples_copy;

/* Rows of samples, as the caller gave them. */
int64_t napier_samples_rows(napier_umap_samples samples);
int64_t napier_samples_cols(napier_umap_samples samples);

/* Checks only the shape; the neighbour search checks the contents. */
napier_status napier_samples_check(napier_context *context, napier_umap_samples samples);
napier_status napier_samples_copy_of(napier_context *context, napier_umap_samples samples, napier_samples_copy *out);
void napier_samples_release(napier_context *context, napier_samples_copy *copy);

/* Checks that `out` shares no byte with the samples, which have been checked. */
napier_status napier_samples_check_apart(napier_context *context, const char *name, napier_matrix out,
                                         const char *samples_name, napier_umap_samples samples);

/* The copy as samples; `view` must live as long as the result. */
napier_umap_samples napier_samples_view(const napier_samples_copy *copy);

/* Writes row i as f32 to out[0 .. cols); and a hash of its contents, the key of the row's random numbers. */
void napier_samples_row(const napier_samples_copy *copy, int64_t row, float *out);
uint64_t napier_samples_hash(napier_umap_samples samples, int64_t row);

#endif
