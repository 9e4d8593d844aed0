/* ops/sparsemax/sparsemax.h - the checked arguments of sparsemax as a job, for the CPU and a GPU. */
#ifndef NAPIER_OPS_SPARSEMAX_SPARSEMAX_H
#define NAPIER_OPS_SPARSEMAX_SPARSEMAX_H

#include "core/base/context.h"
#include "ops/sparsemax/sparsemax_kernels.h"

/* Each also sets job->out.rows to 0 if there is nothing to do. */
napier_status napier_sparsemax_arguments(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                                         const napier_softmax_options *options, napier_sparsemax_job *job);
napier_status napier_sparsemax_gradient_arguments(napier_context *context, napier_const_matrix probs,
                                                  napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_sparsemax_job *job);

#endif
