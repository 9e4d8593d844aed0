/* umap/layout/epochs.h - epochs over checked graphs, shared by the public calls and the pipeline; densMAP's forces, which
 * make the spread of each neighbourhood on the map follow its spread in the data. Source of densMAP: Narayan, Berger and
 * Cho, "Assessing single-cell transcriptomic variability through density-preserving data visualization", 2021;
 * docs/umap.md. */
#ifndef NAPIER_UMAP_LAYOUT_EPOCHS_H
#define NAPIER_UMAP_LAYOUT_EPOCHS_H

#include "umap/layout/layout.h"
#include "umap/layout/optimizer.h"

/* ---- densMAP (densmap.c) ------------------------------------------------------------------------------------------ */

typedef struct napier_densmap napier_densmap;

/* Makes the state of densMAP, in `memory`, from the graph and the distances of neighbours in the data [n,
 * n_neighbors]. */
napier_status napier_densmap_create(napier_memory *memory, const napier_umap_graph *graph,
                                    const napier_umap_options *options, const int32_t *indices, const float *distances,
                                    napier_densmap **out);

/* Adds densMAP's forces to those of an epoch. Does nothing in epochs before its share. */
void napier_densmap_forces(napier_densmap *m, int64_t epoch, const float *y, float *forces);

/* ---- Epochs ------------------------------------------------------------------------------------------------------ */

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
