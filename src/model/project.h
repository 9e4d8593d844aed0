/* model/project.h - activations times weights: the one place where this room meets the product of the linear room. */
#ifndef NAPIER_MODEL_PROJECT_H
#define NAPIER_MODEL_PROJECT_H

#include "base/context.h"

/* Floats of memory that napier_project needs for these shapes; 0 if that does not fit. Monotone in the rows of x. */
size_t napier_project_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights);

/* out [n, m] = x [n, k] weights^T, weights [m, k]: napier_matmul's bits, without its checks. */
void napier_project(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                    napier_matrix out, float *memory);

#endif
