/* ops/sparsemax/gpu/sparsemax_cuda.c - sparsemax on a GPU: checks the arguments, launches a block for each row. */
#include <napier/cuda/sparsemax.h>

#include "core/gpu/launch.h"
#include "ops/sparsemax/sparsemax.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_sparsemax_rows, napier_sparsemax_gradient);

static napier_status launch(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_workspace *workspace,
                            const char *what, napier_cuda_kernel kernel, const napier_sparsemax_job *job) {
    const int64_t rows = job->out.rows;
    const napier_cuda_shape shape = {.blocks = rows < INT32_MAX ? rows : INT32_MAX,
                                     .threads = SPARSEMAX_LANES,
                                     .shared_bytes = SPARSEMAX_LANES * (int64_t)sizeof(napier_sparsemax_sum)};
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    return napier_cuda_launch(context, stream, what, kernel, &shape, job, sizeof *job);
}

napier_status napier_cuda_sparsemax(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, napier_const_matrix logits, napier_matrix probs,
                                    const napier_softmax_options *options) {
    napier_sparsemax_job job;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_sparsemax_arguments(context->host, logits, probs, options, &job));
    return launch(context, stream, workspace, "probs", NAPIER_CUDA_KERNEL(napier_sparsemax_rows), &job);
}

napier_status napier_cuda_sparsemax_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_matrix probs,
                                             napier_const_matrix grad_probs, napier_matrix grad_logits,
                                             const napier_softmax_options *options) {
    napier_sparsemax_job job;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_sparsemax_gradient_arguments(context->host, probs, grad_probs, grad_logits, options, &job));
    return launch(context, stream, workspace, "grad_logits", NAPIER_CUDA_KERNEL(napier_sparsemax_gradient), &job);
}
