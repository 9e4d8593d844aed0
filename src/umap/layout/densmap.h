/* umap/layout/densmap.h - densMAP: forces that make the spread of each neighbourhood on the map follow its spread in
 * the data. Source: Narayan, Berger and Cho, "Assessing single-cell transcriptomic variability through
 * density-preserving data visualization", 2021; docs/umap.md. */
#ifndef NAPIER_UMAP_LAYOUT_DENSMAP_H
#define NAPIER_UMAP_LAYOUT_DENSMAP_H

#include <napier/umap.h>

#include "core/base/scope.h"

typedef struct napier_densmap napier_densmap;

/* Makes the state of densMAP, in `memory`, from the graph and the distances of neighbours in the data [n,
 * n_neighbors]. */
napier_status napier_densmap_create(napier_memory *memory, const napier_umap_graph *graph,
                                    const napier_umap_options *options, const int32_t *indices, const float *distances,
                                    napier_densmap **out);

/* Adds densMAP's forces to those of an epoch. Does nothing in epochs before its share. */
void napier_densmap_forces(napier_densmap *densmap, int64_t epoch, const float *y, float *forces);

#endif
