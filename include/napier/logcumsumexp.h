/* napier/logcumsumexp.h - the logsumexp of every prefix of a row, and its derivatives. On the CPU.
 *
 *     lse_k = log(sum over j <= k of exp(z_j)),    z = logits / temperature
 *
 * All matrices are [rows, cols], of f32, f16, bf16 or f64. The compute type is f64 if any of a call's matrices is f64, else
 * f32: z is rounded to it, and results are rounded to it, then to their dtype. In between the arithmetic is double
 * precision, with sums of two doubles, in the order of the columns. The bits are contractual: they do not depend on
 * threads, instruction set or strides. Only the option temperature is used; options NULL: defaults.
 *
 * Error before rounding to the dtype: lse 2^-51 absolute and 2^-53 relative; the derivatives 2^-50 times the sum of the
 * absolute values of their terms; in f64 they may overflow where gradients or tangents are beyond 2^1000.
 *
 *     prefix                      lse                     derivatives
 *     one finite element z        z exactly
 *     only -inf                   -inf                    0
 *     a NaN in it                 NaN                     NaN
 *     a +inf, no NaN              +inf                    NaN
 *     -inf among finite ones      ignored                 0 for this element
 *
 * Aliasing. An output may be one of the inputs itself (same data, dtype and strides). Any other overlap is INVALID_ARGUMENT.
 * Threads: the rows are divided over them; a row stays on one. One context per thread.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY (backward). A call that fails has written nothing. */
#ifndef NAPIER_LOGCUMSUMEXP_H
#define NAPIER_LOGCUMSUMEXP_H

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

NAPIER_API napier_status napier_logcumsumexp(napier_context *context, napier_const_matrix logits, napier_matrix lse,
                                             const napier_softmax_options *options);

/* grad_logits_j = exp(z_j) * sum over k >= j of grad_lse_k exp(-lse_k), over the temperature. lse is computed anew, because
 * exp(z - lse) would lose accuracy where lse is large. A grad_lse_k of 0 adds 0, even where lse_k has no derivative. */
NAPIER_API napier_status napier_logcumsumexp_backward(napier_context *context, napier_const_matrix logits,
                                                      napier_const_matrix grad_lse, napier_matrix grad_logits,
                                                      const napier_softmax_options *options);

/* Forward mode: tangent_lse_k = sum over j <= k of exp(z_j - lse_k) tangent_j, over the temperature. It is the mean of the
 * tangents so far, weighted by exp(z). A tangent of a logit of -inf is ignored. */
NAPIER_API napier_status napier_logcumsumexp_tangent(napier_context *context, napier_const_matrix logits,
                                                     napier_const_matrix tangent, napier_matrix tangent_lse,
                                                     const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
