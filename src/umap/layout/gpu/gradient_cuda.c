/* umap/layout/gpu/gradient_cuda.c - the primitives on a device: checks and launches (gradient.cu). */
#include <napier/cuda/umap.h>

#include "core/base/view.h"
#include "core/math/random.h"
#include "umap/graph/gpu/graph_launch.h"
#include "umap/layout/gpu/gradient_cuda.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_edge_forces_kernel);
NAPIER_CUDA_KERNEL_DECLARE(napier_umap_segments_kernel);
NAPIER_CUDA_KERNEL_DECLARE(napier_umap_reduce_kernel);
NAPIER_CUDA_KERNEL_DECLARE(napier_umap_apply_kernel);
NAPIER_CUDA_KERNEL_DECLARE(napier_umap_draw_kernel);

enum { THREADS = NAPIER_GRADIENT_THREADS, WARPS = NAPIER_GRADIENT_THREADS / 32 };

/* For calls that need no workspace: false while only its size is asked for. */
static bool is_ready(napier_cuda_context *context, napier_cuda_workspace *workspace, napier_status *status) {
    const napier_cuda_room room = napier_cuda_room_of(workspace);
    return !*status && napier_cuda_room_ready(context, &room, status);
}

static napier_status check_optional(napier_context *context, const char *name, napier_matrix result, int64_t rows,
                                    napier_const_matrix embedding) {
    if (result.data == NULL) {
        return NAPIER_OK;
    }
    const napier_status status = napier_umap_check_result(context, name, result, rows, embedding.cols);
    return status ? status : napier_umap_check_apart(context, name, result, "embedding", embedding);
}

napier_status napier_cuda_umap_edge_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                              napier_cuda_workspace *workspace, const napier_umap_params *params,
                                              napier_const_matrix embedding, const napier_umap_edge *edges,
                                              int64_t count, napier_matrix source_gradients,
                                              napier_matrix target_gradients) {
    napier_umap_params p;
    napier_forces forces;
    napier_status status = napier_cuda_begin(context);
    if (status) {
        return status;
    }
    napier_context *const host = context->host;
    status = napier_umap_check_params(host, params, &p, &forces);
    if (!status)
        status = napier_umap_check_shape(host, "embedding", embedding);
    if (!status)
        status = napier_umap_check_counts(host, edges, count, embedding.rows);
    if (!status)
        status = napier_device_check_array(host, "edges", edges, count, sizeof(uint32_t));
    if (!status)
        status = check_optional(host, "source_gradients", source_gradients, count, embedding);
    if (!status)
        status = check_optional(host, "target_gradients", target_gradients, count, embedding);
    if (!status && source_gradients.data != NULL && target_gradients.data != NULL)
        status = napier_umap_check_apart(host, "target_gradients", target_gradients, "source_gradients",
                                         napier_read_only(source_gradients));
    if (!is_ready(context, workspace, &status)) {
        return status;
    }
    const napier_device_call call = {context, stream, "umap_edge_gradients"};
    const napier_edge_forces_job job = {forces,         embedding.data, embedding.rows,        (int32_t)embedding.cols,
                                        edges,          count,          source_gradients.data, target_gradients.data,
                                        context->faults};
    return napier_device_put(&call, NAPIER_CUDA_KERNEL(napier_umap_edge_forces_kernel), count, THREADS, THREADS, 0,
                             &job, sizeof job);
}

napier_status napier_cuda_umap_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                        napier_cuda_workspace *workspace, const napier_umap_edge *edges, int64_t count,
                                        int64_t n, int64_t *starts, int64_t *counts) {
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_umap_check_counts(context->host, edges, count, n);
    if (!status)
        status = napier_device_check_array(context->host, "edges", edges, count, sizeof(uint32_t));
    if (!status)
        status = napier_device_check_array(context->host, "starts", starts, n, sizeof *starts);
    if (!status)
        status = napier_device_check_array(context->host, "counts", counts, n, sizeof *counts);
    if (!is_ready(context, workspace, &status)) {
        return status;
    }
    const napier_device_call call = {context, stream, "umap_segments"};
    const napier_segments_job job = {edges, count, n, starts, counts, context->faults};
    return napier_device_put(&call, NAPIER_CUDA_KERNEL(napier_umap_segments_kernel), n > count ? n : count, THREADS,
                             THREADS, 0, &job, sizeof job);
}

napier_status napier_cuda_umap_reduce_segments(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_const_matrix edge_gradients,
                                               const int64_t *starts, const int64_t *counts, napier_matrix gradients) {
    napier_status status = napier_cuda_begin(context);
    if (status) {
        return status;
    }
    napier_context *const host = context->host;
    status = napier_umap_check_shape(host, "edge_gradients", edge_gradients);
    if (!status)
        status = napier_umap_check_result(host, "gradients", gradients, gradients.rows, edge_gradients.cols);
    if (!status)
        status = napier_umap_check_apart(host, "gradients", gradients, "edge_gradients", edge_gradients);
    if (!status)
        status = napier_device_check_array(host, "starts", starts, gradients.rows, sizeof *starts);
    if (!status)
        status = napier_device_check_array(host, "counts", counts, gradients.rows, sizeof *counts);
    if (!is_ready(context, workspace, &status)) {
        return status;
    }
    const napier_device_call call = {context, stream, "umap_reduce_segments"};
    const napier_reduce_job job = {edge_gradients.data, edge_gradients.rows, (int32_t)gradients.cols, starts, counts,
                                   gradients.rows,      gradients.data,      context->faults};
    return napier_device_put(&call, NAPIER_CUDA_KERNEL(napier_umap_reduce_kernel), gradients.rows, WARPS, THREADS, 0,
                             &job, sizeof job);
}

napier_status napier_cuda_umap_apply(napier_cuda_context *context, struct CUstream_st *stream,
                                     napier_cuda_workspace *workspace, float learning_rate,
                                     napier_const_matrix gradients, napier_matrix embedding) {
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_umap_check_shape(context->host, "gradients", gradients);
    if (!status)
        status = napier_umap_check_result(context->host, "embedding", embedding, gradients.rows, gradients.cols);
    if (!status)
        status = napier_umap_check_apart(context->host, "embedding", embedding, "gradients", gradients);
    if (!is_ready(context, workspace, &status)) {
        return status;
    }
    const int64_t count = gradients.rows * gradients.cols;
    const napier_device_call call = {context, stream, "umap_apply"};
    const napier_apply_job job = {embedding.data, gradients.data, count, learning_rate, context->faults};
    return napier_device_put(&call, NAPIER_CUDA_KERNEL(napier_umap_apply_kernel), count, THREADS, THREADS, 0, &job,
                             sizeof job);
}

napier_status napier_cuda_umap_negative_targets(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_workspace *workspace, uint64_t seed, int64_t epoch,
                                                int64_t n, int64_t rate, uint32_t *targets) {
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_umap_check_draws(context->host, epoch, n, rate, targets);
    if (!status)
        status = napier_device_check_array(context->host, "targets", targets, n * rate, sizeof *targets);
    if (!is_ready(context, workspace, &status)) {
        return status;
    }
    const napier_device_call call = {context, stream, "umap_negative_targets"};
    const napier_draw_job job = {napier_random_key(seed, (uint32_t)epoch), n, rate, targets};
    return napier_device_put(&call, NAPIER_CUDA_KERNEL(napier_umap_draw_kernel), n * rate, THREADS, THREADS, 0, &job,
                             sizeof job);
}
