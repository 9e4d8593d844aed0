/* ops/softmax/softmax_split.h - divides a job over threads: by rows while there are enough of them,
 * otherwise by tiles. */
#ifndef NAPIER_OPS_SOFTMAX_SOFTMAX_SPLIT_H
#define NAPIER_OPS_SOFTMAX_SOFTMAX_SPLIT_H

#include "core/base/context.h"
#include "core/base/sizes.h"
#include "ops/softmax/softmax_kernels.h"

/* Rows per piece of work, a multiple of `granule`. In a small job every thread gets the same number. In a large job the
 * pieces are small, so that other threads take over the work of a thread that is held up. */
int64_t napier_row_chunk(const napier_context *context, int64_t rows, int64_t cols, int64_t granule);

/* Are results so large that they are stored past the caches? They would not stay there, and an ordinary store reads the
 * line first. Contiguous rows may take an eighth of the last level, which other processors use too. */
static inline bool napier_leaves_caches(const napier_context *context, napier_matrix y) {
    const int64_t least = 12 << 20, most = 48 << 20, part = context->cache_bytes / 8;
    const int64_t bytes = y.col_stride != 1 || part < least ? least : napier_least(part, most);
    return y.rows * y.cols > bytes / (int64_t)napier_dtype_size(y.dtype); /* the product fits: y has been checked */
}

/* Runs a checked job; rows > 0, and cols > 0 unless the operation is logsumexp. It fails only if there is no memory,
 * before anything is written. */
napier_status napier_softmax_split(napier_context *context, const napier_softmax_job *job, napier_algorithm algorithm);

/* y[0] = logsumexp over all elements of job->x as one row in row-major order, for any strides. */
napier_status napier_logsumexp_of_all(napier_context *context, const napier_softmax_job *job);

/* y = softmax(x) * factor / T, with one factor per row, or one for the whole array: the gradients of logsumexp. */
napier_status napier_scaled_softmax(napier_context *context, const napier_softmax_job *job, napier_const_vector factor);
napier_status napier_scaled_softmax_all(napier_context *context, const napier_softmax_job *job,
                                        napier_const_vector factor);

#endif
