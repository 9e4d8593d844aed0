/* softmax.h - what the functions of napier and the quick ones of napier.torch share. The arrays have been checked. */
#ifndef NAPIER_PYTHON_SOFTMAX_H
#define NAPIER_PYTHON_SOFTMAX_H

#include "../array/device.h"

typedef napier_status map_call(napier_context *, napier_const_matrix, napier_matrix, const napier_softmax_options *);
typedef napier_status gradient_call(napier_context *, napier_const_matrix, napier_const_matrix, napier_matrix,
                                    const napier_softmax_options *);

/* The same on a GPU. */
#define ON_DEVICE napier_cuda_context *, struct CUstream_st *, napier_cuda_workspace *
typedef napier_status device_map(ON_DEVICE, napier_const_matrix, napier_matrix, const napier_softmax_options *);
typedef napier_status device_gradient(ON_DEVICE, napier_const_matrix, napier_const_matrix, napier_matrix,
                                      const napier_softmax_options *);

int take_masked_rows(PyObject *value, napier_softmax_options *options);
bool same_shape(const array *a, const array *b);
/* The shape of x without the axis, or with size 1 there; returns the number of dimensions. */
int reduced_shape(const array *x, int axis, bool keepdims, int64_t *shape);
/* Returns the result's object, or NULL if the call failed. */
PyObject *give_or_release(array *y, int failed);

/* Each calls the function on the arrays, slice by slice, and returns -1 with an error set if it fails. */
int map_arrays(const char *function, map_call *call, device_map *on_device, const array *x, const array *y, int axis,
               const napier_softmax_options *options);
/* result or logits, its gradient, the gradient of the logits */
int gradient_arrays(const char *function, gradient_call *call, device_gradient *on_device, const array *const *three,
                    int axis, const napier_softmax_options *options);
/* x to its logsumexp along the axis; y has that axis with size 1, or lacks it. */
int reduce_arrays(const array *x, const array *y, int axis, const napier_softmax_options *options);
/* Returns the gradient of each element of x. grad has x's shape without the axis, or one element if x is one row. */
PyObject *spread(array *x, array *grad, int axis, bool whole, const napier_softmax_options *options);

/* The functions of softmax_plain.c, on four arguments: x, the axis, the temperature and masked_rows (logsumexp: x, the axis,
 * keepdims and the temperature). NULL without an error: only the operator will do. */
typedef PyObject *plain_call(PyObject *const *v);
/* Where PyTorch only computes. */
plain_call computed_softmax, computed_log_softmax, computed_sparsemax, computed_logsumexp;
/* The gradient, if PyTorch only computes now, of the result (logsumexp: x), its gradient, the axis and the temperature. */
plain_call gradient_of_softmax, gradient_of_log_softmax, gradient_of_sparsemax, gradient_of_logsumexp;

typedef enum recorded_kind {
    RECORD_SOFTMAX,
    RECORD_LOG_SOFTMAX,
    RECORD_SPARSEMAX,
    RECORD_LOGSUMEXP,
    RECORDED_KINDS
} recorded_kind;
/* Where it records a gradient: the result is that of a node. */
PyObject *record_call(recorded_kind kind, PyObject *const *v);

#endif
