/* ops/softmax/softmax_split.h - how a job is split over threads: by rows while there are enough of them, else by
 * tiles. */
#ifndef NAPIER_OPS_SOFTMAX_SOFTMAX_SPLIT_H
#define NAPIER_OPS_SOFTMAX_SOFTMAX_SPLIT_H

#include "core/base/context.h"
#include "ops/softmax/softmax_kernels.h"

/* Rows per piece of work, a multiple of `granule`: the same for every thread while the job is small, else small enough that
 * a thread which is held up leaves its share to the others. */
int64_t napier_row_chunk(const napier_context *context, int64_t rows, int64_t cols, int64_t granule);

/* Runs a checked job; rows > 0, and cols > 0 unless the operation is logsumexp. Fails only for want of memory, before
 * anything is written. */
napier_status napier_softmax_split(napier_context *context, const napier_softmax_job *job, napier_algorithm algorithm);

/* y[0] = logsumexp over all elements of job->x as one row in row-major order, for any strides. */
napier_status napier_logsumexp_of_all(napier_context *context, const napier_softmax_job *job);

/* y = softmax(x) * factor / T, with one factor per row, or one for the whole array: the gradients of logsumexp. */
napier_status napier_scaled_softmax(napier_context *context, const napier_softmax_job *job, napier_const_vector factor);
napier_status napier_scaled_softmax_all(napier_context *context, const napier_softmax_job *job,
                                        napier_const_vector factor);

#endif
