/* umap/layout/epochs.h - epochs over checked graphs: shared by the public calls and the pipeline. */
#ifndef NAPIER_UMAP_LAYOUT_EPOCHS_H
#define NAPIER_UMAP_LAYOUT_EPOCHS_H

#include "umap/layout/densmap.h"
#include "umap/layout/layout.h"
#include "umap/layout/optimizer.h"

/* Reads the caller's epochs (NULL: defaults). They must be within their total, and the schemes must exist. */
napier_status napier_umap_read_epochs(napier_context *context, const napier_umap_epochs *epochs, napier_umap_epochs *e);

typedef struct napier_epochs_run {
    const napier_umap_params *params;
    const napier_umap_epochs *epochs;
    napier_layout *layout; /* the run prepares it and sets its epoch and keys */
    napier_umap_optimizer *optimizer;
    napier_densmap *densmap; /* or NULL */
    float *y;
} napier_epochs_run;

/* Runs epochs first .. first + count - 1. Returns OUT_OF_MEMORY, or CANCELLED after a complete epoch. */
napier_status napier_umap_run_epochs(napier_context *context, const napier_epochs_run *run);

/* A layout over checked graphs. Each attraction is multiplied by `times`. */
napier_layout napier_umap_layout_of(napier_context *context, const napier_forces *forces, float times,
                                    const napier_umap_params *params, const napier_umap_epochs *epochs,
                                    const napier_umap_graph *edges, const napier_umap_graph *pulls, int64_t n,
                                    int64_t components, const float *y);

#endif
