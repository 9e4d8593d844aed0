/* tests/cuda/through/through_softmax.c - softmax's calls through the device. */
#include "through.h"

#include <napier/cuda/softmax.h>
#include <napier/cuda/sparsemax.h>

#define SOFTMAX_CALL(name, result_type, place)                                                                   \
    napier_status through_##name(napier_context *context, napier_const_matrix logits, result_type out,           \
                                 const napier_softmax_options *options) {                                        \
        const napier_const_matrix x = through_matrix(logits);                                                    \
        const result_type y = place(out);                                                                        \
        napier_status status;                                                                                    \
        THROUGH_TWICE(status, workspace, napier_cuda_##name(through_context(), NULL, workspace, x, y, options)); \
        return through_end(context, status);                                                                     \
    }

SOFTMAX_CALL(softmax, napier_matrix, through_matrix_out)
SOFTMAX_CALL(log_softmax, napier_matrix, through_matrix_out)
SOFTMAX_CALL(sparsemax, napier_matrix, through_matrix_out)
SOFTMAX_CALL(logsumexp, napier_vector, through_vector_out)
SOFTMAX_CALL(logsumexp_all, napier_vector, through_vector_out)

#define GRADIENT_CALL(name, grad_type, place)                                                                       \
    napier_status through_##name(napier_context *context, napier_const_matrix first, grad_type grad,                \
                                 napier_matrix out, const napier_softmax_options *options) {                        \
        const napier_const_matrix x = through_matrix(first);                                                        \
        const grad_type g = place(grad);                                                                            \
        const napier_matrix y = through_matrix_out(out);                                                            \
        napier_status status;                                                                                       \
        THROUGH_TWICE(status, workspace, napier_cuda_##name(through_context(), NULL, workspace, x, g, y, options)); \
        return through_end(context, status);                                                                        \
    }

GRADIENT_CALL(softmax_backward, napier_const_matrix, through_matrix)
GRADIENT_CALL(log_softmax_backward, napier_const_matrix, through_matrix)
GRADIENT_CALL(sparsemax_backward, napier_const_matrix, through_matrix)
GRADIENT_CALL(logsumexp_backward, napier_const_vector, through_vector)
GRADIENT_CALL(logsumexp_all_backward, napier_const_vector, through_vector)
