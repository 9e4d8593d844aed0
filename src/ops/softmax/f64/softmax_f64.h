/* ops/softmax/f64/softmax_f64.h - the operations of napier/softmax.h if the compute type is double.
 *
 * Each keeps the contract of the public function of the same name. The caller has checked the arguments (views, shapes,
 * aliasing, options; NULL means defaults). Inputs and outputs may have any dtype. Elements are widened exactly and
 * divided by the temperature once, and results are rounded once. All algorithms give the same bits; only PARALLEL
 * changes the division of the work. Errors: OUT_OF_MEMORY, with nothing written. */
#ifndef NAPIER_OPS_SOFTMAX_F64_SOFTMAX_F64_H
#define NAPIER_OPS_SOFTMAX_F64_SOFTMAX_F64_H

#include <napier/softmax.h>

#include "ops/softmax/f64/sum_f64.h"

/* softmax or log_softmax of each row; `out` may be `logits` itself. */
napier_status napier_f64_softmax(napier_context *context, napier_softmax_kind kind, napier_const_matrix logits,
                                 napier_matrix out, const napier_softmax_options *options);

napier_status napier_f64_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                   const napier_softmax_options *options);
napier_status napier_f64_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                       const napier_softmax_options *options);

/* grad_logits may be either input itself. An element with probability 0 gets 0 and adds nothing to the row's sum,
 * whatever its gradient is. */
napier_status napier_f64_softmax_backward(napier_context *context, napier_const_matrix probs,
                                          napier_const_matrix grad_probs, napier_matrix grad_logits,
                                          const napier_softmax_options *options);
napier_status napier_f64_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                              napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                              const napier_softmax_options *options);
napier_status napier_f64_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options);
napier_status napier_f64_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                                napier_const_vector grad_lse, napier_matrix grad_logits,
                                                const napier_softmax_options *options);

#endif
