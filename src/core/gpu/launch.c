/* core/gpu/launch.c - numbers of blocks, and the launches of a call for the host halves. */
#include "core/gpu/launch.h"

napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size) {
    enum { MOST_BLOCKS_Y = 65535, MOST_CLUSTER = 16 };
    if (shape->blocks < 0 || shape->blocks > INT32_MAX || shape->blocks_y > MOST_BLOCKS_Y ||
        shape->shared_bytes > context->shared_bytes || shape->cluster > MOST_CLUSTER) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "%s: a launch that no device would take", what);
    }
    return shape->blocks == 0 ? NAPIER_OK : context->calls->launch(context, stream, what, kernel, shape, job, job_size);
}

napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size) {
    return context->calls->fill(context, stream, device, byte, size);
}

napier_status napier_cuda_upload(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                 const void *host, size_t size) {
    return context->calls->upload(context, stream, device, host, size);
}

int64_t napier_cuda_blocks(const napier_cuda_context *context, int64_t count, int64_t per_block, int waves) {
    const int64_t wanted = (count + per_block - 1) / per_block, most = (int64_t)context->processors * waves;
    return wanted < most ? wanted : most;
}

napier_status napier_cuda_put(const napier_cuda_call *call, napier_cuda_kernel kernel, napier_cuda_shape shape,
                              const void *job, size_t job_size) {
    return napier_cuda_launch(call->context, call->stream, call->what, kernel, &shape, job, job_size);
}

napier_cuda_shape napier_cuda_loop(const napier_cuda_call *call, int64_t count, int64_t per_block, int waves,
                                   int threads) {
    return (napier_cuda_shape){.blocks = napier_cuda_blocks(call->context, count, per_block, waves),
                               .threads = threads};
}

napier_status napier_cuda_clear(const napier_cuda_call *call, void *device, size_t size) {
    return napier_cuda_fill(call->context, call->stream, device, 0, size);
}
