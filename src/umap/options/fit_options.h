/* umap/options/fit_options.h - the options of a fit, checked. */
#ifndef NAPIER_UMAP_OPTIONS_FIT_OPTIONS_H
#define NAPIER_UMAP_OPTIONS_FIT_OPTIONS_H

#include <napier/umap.h>

#include "core/base/context.h"

/* Checks the options (NULL: defaults) for n points and completes them: fits a and b if they are 0, chooses n_epochs if
 * it is 0, and limits n_neighbors to n. */
napier_status napier_umap_check_options(napier_context *context, const napier_umap_options *options, int64_t n,
                                        napier_umap_options *checked);

/* The distance from which on points are not neighbours. */
float napier_umap_disconnection_of(const napier_umap_options *options);

/* The parameters of the forces. */
napier_umap_params napier_umap_params_of(const napier_umap_options *options);

#endif
