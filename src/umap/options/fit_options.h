/* umap/options/fit_options.h - the options of a fit, checked. */
#ifndef NAPIER_UMAP_OPTIONS_FIT_OPTIONS_H
#define NAPIER_UMAP_OPTIONS_FIT_OPTIONS_H

#include <napier/umap.h>

#include "core/base/context.h"

/* Options (NULL: defaults) for n points, checked; a and b are fitted if they are 0, n_epochs is chosen if it is 0, and
 * neighbours are no more than points. */
napier_status napier_umap_check_options(napier_context *context, const napier_umap_options *options, int64_t n,
                                        napier_umap_options *checked);

/* From which distance on neighbours are none. */
float napier_umap_disconnection_of(const napier_umap_options *options);

/* The parameters of the forces. */
napier_umap_params napier_umap_params_of(const napier_umap_options *options);

#endif
