/* umap/start/pca.h - principal components, for starts and for placing the components of a graph. */
#ifndef NAPIER_UMAP_START_PCA_H
#define NAPIER_UMAP_START_PCA_H

#include <napier/umap.h>

#include "core/base/context.h"

/* The samples' scores [n, components] on their first `components` principal components. They are in units of a power of
 * two about as large as the data's largest value. The signs make the largest score of each component positive. *found
 * is the number of components that exist; the other columns are 0. Checks the structure and the values of the
 * samples. */
napier_status napier_pca_scores(napier_context *context, const char *name, napier_umap_samples samples,
                                int64_t components, float *scores, int64_t *found);

#endif
