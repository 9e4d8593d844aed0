/* umap/options/params.h - checks of the common arguments: parameters, the options of a fit, embeddings. */
#ifndef NAPIER_UMAP_OPTIONS_PARAMS_H
#define NAPIER_UMAP_OPTIONS_PARAMS_H

#include <napier/umap.h>

#include "core/base/context.h"
#include "umap/options/force.h"

/* Checks the parameters (NULL: defaults), copies them and computes the constants of the forces. */
napier_status napier_umap_check_params(napier_context *context, const napier_umap_params *params,
                                       napier_umap_params *checked, napier_forces *forces);

/* Checks the options (NULL: defaults) for n points and completes them: fits a and b if they are 0, chooses n_epochs if
 * it is 0, and limits n_neighbors to n. */
napier_status napier_umap_check_options(napier_context *context, const napier_umap_options *options, int64_t n,
                                        napier_umap_options *checked);
/* The parameters of such options, checked, and the constants of the forces. */
napier_status napier_umap_params_of(napier_context *context, const napier_umap_options *options,
                                    napier_umap_params *params, napier_forces *forces);
/* The distance from which on points are not neighbours. */
float napier_umap_disconnection_of(const napier_umap_options *options);

/* f32, contiguous, 1 to 256 columns, fewer than 2^31 elements. */
napier_status napier_umap_check_shape(napier_context *context, const char *name, napier_const_matrix embedding);
/* Checks the shape, and that all elements are finite. */
napier_status napier_umap_check_embedding(napier_context *context, const char *name, napier_const_matrix embedding);
/* The same, but whole rows may be NaN: disconnected points. */
napier_status napier_umap_check_places(napier_context *context, const char *name, napier_const_matrix embedding);
/* Is a row NaN in all its components? */
int napier_umap_has_no_place(const float *row, int64_t components);
/* Checks only the shape of an output: [rows, components]. */
napier_status napier_umap_check_result(napier_context *context, const char *name, napier_matrix result, int64_t rows,
                                       int64_t components);

/* Checks that an output shares no byte with an input. Shapes have been checked. */
napier_status napier_umap_check_apart(napier_context *context, const char *name, napier_matrix out, const char *in_name,
                                      napier_const_matrix in);

/* Views of other inputs as matrices for this check: an array of 4 or 8 bytes an element, and edges. */
napier_const_matrix napier_umap_array(const void *data, int64_t count, napier_dtype dtype);
static inline napier_const_matrix napier_umap_edge_words(const napier_umap_edge *edges, int64_t count) {
    return napier_umap_array(edges, count * (int64_t)(sizeof *edges / 4), NAPIER_F32);
}
/* The rows of a sparse matrix or of a graph, which have been checked. */
napier_status napier_umap_check_apart_rows(napier_context *context, const char *name, napier_matrix out,
                                           const char *in_name, const int64_t *starts, int64_t n, const void *columns,
                                           const float *values);
napier_status napier_umap_check_apart_graph(napier_context *context, const char *name, napier_matrix out,
                                            const napier_umap_graph *graph);

/* Checks that the found neighbours [n, k] are at finite distances. name: the argument that holds the rows. */
napier_status napier_umap_check_found(napier_context *context, const char *name, const int32_t *indices,
                                      const float *distances, int64_t n, int64_t k);

/* Checks negative samples that a caller gives: [n, rate], all below n; rate 0 to 1000. */
napier_status napier_umap_check_targets(napier_context *context, const uint32_t *targets, int64_t rate, int64_t n);

/* Checks the arguments for the draws of an epoch: [n, rate]. */
napier_status napier_umap_check_draws(napier_context *context, int64_t epoch, int64_t n, int64_t rate,
                                      const uint32_t *targets);

#endif
