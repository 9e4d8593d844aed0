/* umap/start/pca.h - principal components, for starts and for placing the components of a graph. */
#ifndef NAPIER_UMAP_START_PCA_H
#define NAPIER_UMAP_START_PCA_H

#include <napier/umap.h>

#include "core/base/context.h"

/* The samples' scores on their first `components` principal components, [n, components], in units of a power of two
 * about as large as the data's largest value, each sign so that its largest score is positive. *found: how many there are;
 * the other columns are 0. Samples are checked, structure and values. */
napier_status napier_pca_scores(napier_context *context, const char *name, napier_umap_samples samples,
                                int64_t components, float *scores, int64_t *found);

#endif
