/* napier/sparsemax.h - sparsemax and its gradient: probabilities of which most are exactly 0.
 *
 * For a row x of n logits and a temperature T, with z = x / T rounded once to the compute type, sparsemax is the point of
 * the probability simplex nearest to z:
 *     sparsemax = max(z_i - tau, 0)     with the one tau that makes the sum 1
 * Only elements within 1 of the maximum can be above 0. Those above 0 are the support.
 *
 * Dtypes and compute type: as in napier/softmax.h. The bits are contractual in the same way.
 *
 * Special rows          sparsemax
 *     length 0          empty
 *     one finite x      1
 *     all -inf          NaN, or 0 with MASKED_ZERO
 *     any NaN           NaN
 *     a +inf            NaN: with two of them no nearest point exists; with one, NaN agrees with softmax
 *     -inf among finite 0 there
 * A NaN result is the canonical quiet NaN. The caller's rounding mode and flush-to-zero flags neither change results nor are
 * changed.
 *
 * The largest distance of a result from the exact projection of z. Only differences from the maximum are used,
 * so a common offset costs nothing.
 *     f64 result   2^-51 absolute
 *     other        2^-51 absolute, then rounded to f32, then to the dtype
 * An element whose true probability is less than 2^-51 may be 0, and so outside the support.
 *
 * Options: those of softmax. `algorithm` is ignored. Aliasing and thread safety are as in napier/softmax.h.
 * A call that returns INVALID_ARGUMENT has written nothing. The calls allocate no memory.
 * Source: Martins and Astudillo, "From Softmax to Sparsemax", 2016; docs/sparsemax.md. */
#ifndef NAPIER_SPARSEMAX_H
#define NAPIER_SPARSEMAX_H

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

/* probs[i][j] = sparsemax of row i of logits. Both [rows, cols]; in place allowed. options NULL: defaults.
 * Errors: INVALID_ARGUMENT. */
NAPIER_API napier_status napier_sparsemax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                                          const napier_softmax_options *options);

/* grad_logits = (grad_probs - mean of grad_probs over the support) / T in the support, where probs is above 0; 0 elsewhere,
 * whatever grad_probs is there. probs is the result of napier_sparsemax. All are [rows, cols]; grad_logits may be either
 * input itself. The sum over a row is in double and has a fixed order: 256 lanes, then folded by halves. So the error is
 * that of a sum in double, and of rounding to f32, then to the dtype. Only the option temperature is used.
 * Errors: INVALID_ARGUMENT. */
NAPIER_API napier_status napier_sparsemax_backward(napier_context *context, napier_const_matrix probs,
                                                   napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                   const napier_softmax_options *options);

#ifdef __cplusplus
}
#endif
#endif
