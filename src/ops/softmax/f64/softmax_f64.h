/* ops/softmax/f64/softmax_f64.h - the operations of napier/softmax.h if the compute type is double.
 *
 * Each keeps the contract of its public function. Inputs and outputs may have any dtype. Elements are widened exactly and
 * divided by the temperature once, and results are rounded once. */
#ifndef NAPIER_OPS_SOFTMAX_F64_SOFTMAX_F64_H
#define NAPIER_OPS_SOFTMAX_F64_SOFTMAX_F64_H

#include <napier/softmax.h>

#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/softmax_kernels.h"

/* A call whose arguments have been checked. */
typedef struct napier_f64_job {
    napier_f64_result result;
    bool whole;               /* one line of all elements, instead of one per row */
    napier_const_matrix in;   /* the logits; for the gradient of softmax or log_softmax the forward result */
    napier_const_matrix grad; /* the gradient with respect to the forward result; of logsumexp one column */
    napier_matrix out;        /* for logsumexp and a dot product one column; otherwise it may be an input itself */
    napier_softmax_options options;
    const napier_softmax_kernels *kernels; /* napier_f64_run sets them */
} napier_f64_job;

/* All algorithms give the same bits; only PARALLEL changes the division of the work. Errors: OUT_OF_MEMORY, with nothing
 * written. */
napier_status napier_f64_run(napier_context *context, const napier_f64_job *job);

#endif
