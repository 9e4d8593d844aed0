/* umap/graph/gpu/fuzzy_cuda.c - the fuzzy set on a device: checks, memory, launches (fuzzy.cu). */
#include <napier/cuda/umap.h>

#include "core/math/f64.h"
#include "umap/graph/gpu/graph_cuda.h"
#include "umap/graph/graph.h"
#include "umap/graph/gpu/fuzzy_cuda.h"
#include "umap/graph/smooth.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_check_knn_kernel, napier_umap_sum_blocks_kernel, napier_umap_mean_kernel,
                           napier_umap_smooth_kernel, napier_umap_members_kernel, napier_umap_forget_kernel,
                           napier_umap_close_up_kernel, napier_umap_count_union_kernel, napier_umap_union_kernel);

enum { THREADS = NAPIER_FUZZY_THREADS, WARPS = NAPIER_FUZZY_THREADS / 32 };

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

static napier_fuzzy_job job_of(napier_cuda_context *context, napier_cuda_room *room, const int32_t *indices,
                               const float *distances, int64_t n, int64_t k, double local_connectivity) {
    const int64_t blocks = n * k / NAPIER_MEAN_BLOCK + 1;
    napier_fuzzy_job job = {.indices = indices,
                            .distances = distances,
                            .n = n,
                            .k = k,
                            .local_connectivity = local_connectivity,
                            .target = napier_f64_log((double)k) / napier_f64_log(2.0),
                            .faults = context->faults};
    job.state = napier_cuda_take(room, 1, sizeof *job.state);
    job.sums = napier_cuda_take(room, blocks, sizeof *job.sums);
    job.finite = napier_cuda_take(room, blocks, sizeof *job.finite);
    return job;
}

/* Launches a kernel with a thread, or a warp, for each row. */
static napier_status put_rows(const napier_cuda_call *call, napier_cuda_kernel kernel, const napier_fuzzy_job *job,
                              bool warps) {
    return napier_device_put(call, kernel, job->n, warps ? WARPS : THREADS, THREADS, 0, job, sizeof *job);
}

static napier_status put_scales(const napier_cuda_call *call, const napier_fuzzy_job *job) {
    const int64_t blocks = job->n * job->k / NAPIER_MEAN_BLOCK + 1;
    NAPIER_TRY(napier_cuda_clear(call, job->state, sizeof *job->state));
    NAPIER_TRY(put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_check_knn_kernel), job, false));
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_sum_blocks_kernel, blocks, WARPS, THREADS, 0, job));
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_mean_kernel, 1, 1, 32, 0, job));
    return put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_smooth_kernel), job, false);
}

static napier_status check_knn(napier_context *context, const float *distances, int64_t n, int64_t k,
                               double local_connectivity) {
    NAPIER_TRY(napier_umap_check_knn(context, distances, n, k));
    NAPIER_TRY(napier_umap_check_connectivity(context, local_connectivity));
    if (n > 0 && k > INT64_MAX / 64 / n) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "distances: %lld x %lld do not fit", (long long)n,
                           (long long)k);
    }
    return napier_device_check_array(context, "distances", distances, n * k, sizeof *distances);
}

napier_status napier_cuda_umap_smooth_knn_dist(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, const float *distances, int64_t n,
                                               int64_t n_neighbors, double local_connectivity, float *rhos,
                                               float *sigmas) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(check_knn(context->host, distances, n, n_neighbors, local_connectivity));
    NAPIER_TRY(napier_device_check_array(context->host, "rhos", rhos, n, sizeof *rhos));
    NAPIER_TRY(napier_device_check_array(context->host, "sigmas", sigmas, n, sizeof *sigmas));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_fuzzy_job job = job_of(context, &room, NULL, distances, n, n_neighbors, local_connectivity);
    NAPIER_CUDA_READY(context, room);
    if (n == 0) {
        return NAPIER_OK;
    }
    job.rhos = rhos;
    job.sigmas = sigmas;
    const napier_cuda_call call = {context, stream, "umap_smooth_knn_dist"};
    return put_scales(&call, &job);
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

/* Takes the memory of the fuzzy set. The directed graph is that of `build`, which reverses it. */
static void take_set(napier_cuda_room *room, napier_fuzzy_job *job, napier_device_build *build) {
    const int64_t n = job->n, count = n * job->k;
    build->source = (napier_device_source){.n = n, .count = count};
    build->reversed = true;
    build->state = job->state;
    napier_device_build_take(room, build);
    job->rhos = napier_cuda_take(room, n, sizeof *job->rhos);
    job->sigmas = napier_cuda_take(room, n, sizeof *job->sigmas);
    /* the output of the sort's second pass is free until then */
    job->row_targets = build->keys[0];
    job->row_weights = build->weights[0];
    job->directed = build->edges;
    job->sources = build->sources[1];
}

static napier_status put_members(const napier_cuda_call *call, napier_fuzzy_job *job, napier_device_build *build) {
    NAPIER_TRY(put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_members_kernel), job, false));
    NAPIER_TRY(put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_forget_kernel), job, false));
    NAPIER_TRY(napier_device_sum_before(call, job->directed.starts, job->n, build->sums));
    return put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_close_up_kernel), job, true);
}

static napier_status put_union(const napier_cuda_call *call, napier_fuzzy_job *job, napier_device_build *build) {
    NAPIER_TRY(napier_device_build_reverse(call, build));
    job->reversed = build->pulls;
    NAPIER_TRY(put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_count_union_kernel), job, false));
    NAPIER_TRY(napier_device_sum_before(call, job->out.starts, job->n, build->sums));
    return put_rows(call, NAPIER_CUDA_KERNEL(napier_umap_union_kernel), job, false);
}

static napier_status check_set(napier_context *context, const int32_t *indices, const float *distances, int64_t n,
                               int64_t k, double local_connectivity, double mix, const napier_device_graph *out) {
    NAPIER_TRY(check_knn(context, distances, n, k, local_connectivity));
    NAPIER_REFUSE_IF(context, !(mix >= 0.0 && mix <= 1.0), "set_op_mix_ratio: %g is not 0 to 1", mix);
    NAPIER_TRY(napier_device_check_array(context, "indices", indices, n * k, sizeof *indices));
    NAPIER_TRY(napier_device_check_array(context, "starts", out->starts, n + 1, sizeof *out->starts));
    NAPIER_TRY(napier_device_check_array(context, "targets", out->targets, n * k, sizeof *out->targets));
    return napier_device_check_array(context, "weights", out->weights, n * k, sizeof *out->weights);
}

napier_status napier_cuda_umap_fuzzy_simplicial_set(napier_cuda_context *context, struct CUstream_st *stream,
                                                    napier_cuda_workspace *workspace, const int32_t *indices,
                                                    const float *distances, int64_t n, int64_t n_neighbors,
                                                    double local_connectivity, double set_op_mix_ratio, int64_t *starts,
                                                    uint32_t *targets, float *weights) {
    const napier_device_graph out = {starts, targets, weights};
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(
        check_set(context->host, indices, distances, n, n_neighbors, local_connectivity, set_op_mix_ratio, &out));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_device_build build = {0};
    napier_fuzzy_job job = job_of(context, &room, indices, distances, n, n_neighbors, local_connectivity);
    job.mix = set_op_mix_ratio;
    job.out = out;
    take_set(&room, &job, &build);
    NAPIER_CUDA_READY(context, room);
    if (n == 0) {
        return napier_cuda_fill(context, stream, starts, 0, sizeof *starts);
    }
    const napier_cuda_call call = {context, stream, "umap_fuzzy_simplicial_set"};
    NAPIER_TRY(put_scales(&call, &job));
    NAPIER_TRY(put_members(&call, &job, &build));
    return put_union(&call, &job, &build);
}
