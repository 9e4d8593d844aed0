/* ops/sample/gpu/sample_cuda.c - draws of ids on a GPU: checks the arguments, launches a block for each row. */
#include "ops/sample/gpu/sample_cuda.h"

#include <napier/cuda/sample.h>

#include "core/gpu/launch.h"
#include "ops/sample/sample.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_sample_rows);

napier_status napier_cuda_sample(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix logits,
                                 const napier_sample_options *options, const napier_sample_results *results) {
    napier_cuda_sample_job job = {.faults = NULL};
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_sample_arguments(context->host, NAPIER_ON_DEVICE, logits, options, results, &job.call));
    NAPIER_REFUSE_IF(context->host, logits.cols > INT32_MAX, "logits: %lld columns are too many for a GPU",
                     (long long)logits.cols);
    const int64_t rows = logits.cols > 0 ? logits.rows : 0;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.faults = context->faults;
    job.z = napier_cuda_take(&room, rows, (size_t)(logits.cols > 0 ? logits.cols : 1) * sizeof *job.z);
    job.slots = napier_cuda_take(&room, rows, (size_t)(job.call.tiles > 0 ? job.call.tiles : 1) * sizeof *job.slots);
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "sample"};
    const napier_cuda_shape shape = {.blocks = rows < INT32_MAX ? rows : INT32_MAX,
                                     .threads = NAPIER_SAMPLE_THREADS,
                                     .shared_bytes = sizeof(napier_cuda_sample_room)};
    return NAPIER_CUDA_PUT(&gpu, napier_sample_rows, shape, &job);
}
