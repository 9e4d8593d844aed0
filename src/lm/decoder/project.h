/* lm/decoder/project.h - activations times weights: the only caller of ops/linear's product in the decoder. Results
 * have napier_matmul's bits. Arguments are not checked. */
#ifndef NAPIER_LM_DECODER_PROJECT_H
#define NAPIER_LM_DECODER_PROJECT_H

#include "core/base/context.h"

/* out [n, m] = x [n, k] weights^T, weights [m, k]. */
typedef struct napier_projection {
    napier_const_matrix weights;
    napier_matrix out;
} napier_projection;

/* The number of floats of memory for a product of x with weights of these shapes and dtypes; 0 if that overflows. For
 * several products with the same x, the maximum of their sizes is enough. split, here and below: napier_matmul_split's
 * product. */
size_t napier_project_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                             bool split);
/* The most of these for 1 to x.rows rows: fewer rows may need more, because the product divides them differently. */
size_t napier_project_most_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                                  bool split);
enum { NAPIER_PROJECTIONS = 3 }; /* at most, of one call */
/* Computes several products with the same x, which is packed once. */
void napier_project(const napier_context *context, napier_const_matrix x, const napier_projection *all, int count,
                    bool split, float *memory);

/* out = (silu(x gate^T) * (x up^T)) down^T, where the intermediate result is rounded to the dtype of x. gate and up are
 * [m, k]; down is [n, m]. The intermediate result is written directly to the panels that the last product reads, unless
 * the first two products have biases, which are rare. */
typedef struct napier_gated {
    napier_const_matrix gate, up, down;
    const float *gate_bias, *up_bias; /* [m], added to the sums of x gate^T and x up^T; both NULL: none */
} napier_gated;

/* As napier_project_floats; `middle` of so many rows and of dtype x is made where it is needed after all. */
size_t napier_project_gated_floats(const napier_context *context, napier_const_matrix x, const napier_gated *weights,
                                   bool split);
void napier_project_gated(const napier_context *context, napier_const_matrix x, const napier_gated *weights,
                          napier_matrix out, bool split, float *memory);

#endif
