/* softmax.h - softmax, log_softmax, sparsemax and logsumexp of arrays that have been checked. */
#ifndef NAPIER_PYTHON_SOFTMAX_H
#define NAPIER_PYTHON_SOFTMAX_H

#include "../call.h"

typedef napier_status map_call(napier_context *, napier_const_matrix, napier_matrix, const napier_softmax_options *);
typedef napier_status gradient_call(napier_context *, napier_const_matrix, napier_const_matrix, napier_matrix,
                                    const napier_softmax_options *);

/* The same on a GPU. */
#define ON_DEVICE napier_cuda_context *, struct CUstream_st *, napier_cuda_workspace *
typedef napier_status device_map(ON_DEVICE, napier_const_matrix, napier_matrix, const napier_softmax_options *);
typedef napier_status device_gradient(ON_DEVICE, napier_const_matrix, napier_const_matrix, napier_matrix,
                                      const napier_softmax_options *);

bool same_shape(const array *a, const array *b);

/* Each calls the function on the arrays, slice by slice, and returns -1 with an error set if it fails. */
int map_arrays(const char *function, map_call *call, device_map *on_device, const array *x, const array *y, int axis,
               const napier_softmax_options *options);
/* result or logits, its gradient, the gradient of the logits */
int gradient_arrays(const char *function, gradient_call *call, device_gradient *on_device, const array *const *three,
                    int axis, const napier_softmax_options *options);

#endif
