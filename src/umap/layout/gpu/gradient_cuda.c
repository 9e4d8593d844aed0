/* umap/layout/gpu/gradient_cuda.c - the primitives on a device: checks and launches (gradient.cu). */
#include <napier/cuda/umap.h>

#include "core/base/view.h"
#include "core/math/random.h"
#include "umap/graph/gpu/graph_cuda.h"
#include "umap/layout/gpu/gradient_cuda.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_edge_forces_kernel, napier_umap_segments_kernel, napier_umap_reduce_kernel,
                           napier_umap_apply_kernel, napier_umap_draw_kernel);

enum { THREADS = NAPIER_GRADIENT_THREADS, WARPS = NAPIER_GRADIENT_THREADS / 32 };

static napier_status check_optional(napier_context *context, const char *name, napier_matrix result, int64_t rows,
                                    napier_const_matrix embedding) {
    if (result.data == NULL) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_umap_check_result(context, name, result, rows, embedding.cols));
    return napier_umap_check_apart(context, name, result, "embedding", embedding);
}

napier_status napier_cuda_umap_edge_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                              napier_cuda_workspace *workspace, const napier_umap_params *params,
                                              napier_const_matrix embedding, const napier_umap_edge *edges,
                                              int64_t count, napier_matrix source_gradients,
                                              napier_matrix target_gradients) {
    napier_umap_params p;
    napier_forces forces;
    NAPIER_TRY(napier_cuda_begin(context));
    napier_context *const host = context->host;
    NAPIER_TRY(napier_umap_check_params(host, params, &p, &forces));
    NAPIER_TRY(napier_umap_check_shape(host, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_counts(host, edges, count, embedding.rows));
    NAPIER_TRY(napier_device_check_array(host, "edges", edges, count, sizeof(uint32_t)));
    NAPIER_TRY(check_optional(host, "source_gradients", source_gradients, count, embedding));
    NAPIER_TRY(check_optional(host, "target_gradients", target_gradients, count, embedding));
    if (source_gradients.data != NULL && target_gradients.data != NULL) {
        NAPIER_TRY(napier_umap_check_apart(host, "target_gradients", target_gradients, "source_gradients",
                                           napier_read_only(source_gradients)));
    }
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_call call = {context, stream, "umap_edge_gradients"};
    const napier_edge_forces_job job = {forces,         embedding.data, embedding.rows,        (int32_t)embedding.cols,
                                        edges,          count,          source_gradients.data, target_gradients.data,
                                        context->faults};
    return NAPIER_DEVICE_EACH(&call, napier_umap_edge_forces_kernel, count, THREADS, &job);
}

napier_status napier_cuda_umap_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                        napier_cuda_workspace *workspace, const napier_umap_edge *edges, int64_t count,
                                        int64_t n, int64_t *starts, int64_t *counts) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_umap_check_counts(context->host, edges, count, n));
    NAPIER_TRY(napier_device_check_array(context->host, "edges", edges, count, sizeof(uint32_t)));
    NAPIER_TRY(napier_device_check_array(context->host, "starts", starts, n, sizeof *starts));
    NAPIER_TRY(napier_device_check_array(context->host, "counts", counts, n, sizeof *counts));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_call call = {context, stream, "umap_segments"};
    const napier_segments_job job = {edges, count, n, starts, counts, context->faults};
    return NAPIER_DEVICE_EACH(&call, napier_umap_segments_kernel, n > count ? n : count, THREADS, &job);
}

napier_status napier_cuda_umap_reduce_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix edge_gradients,
                                               const int64_t *starts, const int64_t *counts, napier_matrix gradients) {
    NAPIER_TRY(napier_cuda_begin(context));
    napier_context *const host = context->host;
    NAPIER_TRY(napier_umap_check_shape(host, "edge_gradients", edge_gradients));
    NAPIER_TRY(napier_umap_check_result(host, "gradients", gradients, gradients.rows, edge_gradients.cols));
    NAPIER_TRY(napier_umap_check_apart(host, "gradients", gradients, "edge_gradients", edge_gradients));
    NAPIER_TRY(napier_device_check_array(host, "starts", starts, gradients.rows, sizeof *starts));
    NAPIER_TRY(napier_device_check_array(host, "counts", counts, gradients.rows, sizeof *counts));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_call call = {context, stream, "umap_reduce_segments"};
    const napier_reduce_job job = {edge_gradients.data, edge_gradients.rows, (int32_t)gradients.cols, starts, counts,
                                   gradients.rows,      gradients.data,      context->faults};
    return NAPIER_DEVICE_PUT(&call, napier_umap_reduce_kernel, gradients.rows, WARPS, THREADS, 0, &job);
}

napier_status napier_cuda_umap_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                     napier_cuda_workspace *workspace, float learning_rate,
                                     napier_const_matrix gradients, napier_matrix embedding) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_umap_check_shape(context->host, "gradients", gradients));
    NAPIER_TRY(napier_umap_check_result(context->host, "embedding", embedding, gradients.rows, gradients.cols));
    NAPIER_TRY(napier_umap_check_apart(context->host, "embedding", embedding, "gradients", gradients));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const int64_t count = gradients.rows * gradients.cols;
    const napier_cuda_call call = {context, stream, "umap_apply"};
    const napier_apply_job job = {embedding.data, gradients.data, count, learning_rate, context->faults};
    return NAPIER_DEVICE_EACH(&call, napier_umap_apply_kernel, count, THREADS, &job);
}

napier_status napier_cuda_umap_negative_targets(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_workspace *workspace, uint64_t seed, int64_t epoch,
                                                int64_t n, int64_t rate, uint32_t *targets) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_umap_check_draws(context->host, epoch, n, rate, targets));
    NAPIER_TRY(napier_device_check_array(context->host, "targets", targets, n * rate, sizeof *targets));
    NAPIER_CUDA_READY_WITHOUT(context, workspace);
    const napier_cuda_call call = {context, stream, "umap_negative_targets"};
    const napier_draw_job job = {napier_random_key(seed, (uint32_t)epoch), n, rate, targets};
    return NAPIER_DEVICE_EACH(&call, napier_umap_draw_kernel, n * rate, THREADS, &job);
}
