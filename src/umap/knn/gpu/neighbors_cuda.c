/* umap/knn/gpu/neighbors_cuda.c - exact neighbours on a device: checks, memory, launches (neighbors.cu). */
#include <napier/cuda/umap.h>

#include "umap/graph/gpu/graph_cuda.h"
#include "umap/knn/gpu/neighbors_cuda.h"
#include "umap/knn/neighbors_search.h"
#include "umap/metric/samples.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_spans_kernel, napier_umap_points_kernel, napier_umap_count_true_kernel,
                           napier_umap_directions_kernel, napier_umap_variances_kernel, napier_umap_divide_kernel,
                           napier_umap_order_kernel, napier_umap_nearest_squared_kernel,
                           napier_umap_nearest_plain_kernel, napier_umap_nearest_largest_kernel,
                           napier_umap_nearest_canberra_kernel, napier_umap_nearest_ratio_kernel,
                           napier_umap_nearest_unequal_kernel, napier_umap_nearest_counts_kernel,
                           napier_umap_neighbors_kernel);

enum { THREADS = NAPIER_NEAR_THREADS, TILE = NAPIER_NEAR_TILE, MOST_SPLITS = 16 };

typedef struct search {
    napier_neighbors_options options;
    napier_umap_samples samples, queries;
    bool self;
    napier_device_state *state;
    napier_points_job sample_points, query_points;
    napier_order_job order;
    napier_near_job near;
} search;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_metric(napier_context *context, const napier_neighbors_options *o) {
    NAPIER_REFUSE_IF(context, o->metric == NAPIER_METRIC_MINKOWSKI && !(o->p >= 1.0),
                     "p: %g is not a number of at least 1", o->p);
    if (napier_gap_of_metric(o->metric, o->p) == NAPIER_GAPS || o->metric == NAPIER_METRIC_MAHALANOBIS ||
        o->metric == NAPIER_METRIC_WMINKOWSKI || o->metric == NAPIER_METRIC_SOFTMAX_HELLINGER) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "options: metric %s (p %g) is not one of the device's",
                           napier_metric_name(o->metric), o->p);
    }
    if (o->method == NAPIER_NEIGHBORS_NN_DESCENT) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "options: method %d (NN-descent) is not one of the device's",
                           (int)o->method);
    }
    NAPIER_REFUSE_IF(context, o->progress, "options: progress is not NULL, but nothing is waited for");
    return NAPIER_OK;
}

static napier_status check_points(napier_context *context, const char *name, napier_umap_samples points) {
    if (points.sparse) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "%s: sparse, which the device does not take", name);
    }
    NAPIER_TRY(napier_read_check(context, name, points));
    if (points.dense.cols > NAPIER_MOST_COUNTED) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "%s: %lld columns are more than the device's %d", name,
                           (long long)points.dense.cols, NAPIER_MOST_COUNTED);
    }
    return NAPIER_OK;
}

static napier_status check(napier_context *context, const napier_neighbors_options *options, search *s,
                           const int32_t *indices, const float *distances) {
    const napier_neighbors_options *const o = &s->options;
    NAPIER_TRY(napier_search_read_options(context, options, s->self ? 2 : 1, &s->options));
    NAPIER_TRY(check_metric(context, o));
    NAPIER_TRY(check_points(context, "samples", s->samples));
    if (!s->self) {
        NAPIER_TRY(check_points(context, "queries", s->queries));
    }
    NAPIER_REFUSE_IF(context, s->queries.dense.cols != s->samples.dense.cols, "queries: %lld columns are not %lld",
                     (long long)s->queries.dense.cols, (long long)s->samples.dense.cols);
    NAPIER_REFUSE_IF(context, o->n_neighbors > s->samples.dense.rows,
                     "options: n_neighbors %lld is more than the %lld samples", (long long)o->n_neighbors,
                     (long long)s->samples.dense.rows);
    return napier_search_check_outputs(context, indices, distances, s->queries.dense.rows, o->n_neighbors);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_points_job take_points(napier_cuda_room *room, const search *s, napier_const_matrix m) {
    const napier_metric metric = s->options.metric;
    const bool counted = napier_gap_of_metric(metric, s->options.p) == NAPIER_GAP_COUNTS;
    const int64_t width = m.cols + (napier_has_direction(metric) ? 1 : 0),
                  stride = napier_cuda_tiles(m.rows, TILE) * TILE;
    const bool moves =
        m.dtype == NAPIER_F64 && (napier_metric_moves_columns(metric) || napier_metric_moves_rows(metric));
    const bool by_column = moves && napier_metric_moves_columns(metric);
    return (napier_points_job){.rows = m,
                               .offsets =
                                   moves ? napier_cuda_take(room, by_column ? m.cols : m.rows, sizeof(double)) : NULL,
                               .by_column = by_column,
                               .least = napier_metric_scales(metric) ? (double)NAPIER_SAMPLES_SMALL : 0.0,
                               .most = metric == NAPIER_METRIC_BRAYCURTIS ? 0x1p100 : (double)INFINITY,
                               .width = width,
                               .metric = metric,
                               .points = {.columns = napier_cuda_take(room, width * stride, sizeof(float)),
                                          .n = m.rows,
                                          .stride = stride,
                                          .counts = counted ? napier_cuda_take(room, stride, sizeof(float)) : NULL},
                               .state = s->state};
}

static int32_t lanes_for(int64_t width) {
    int32_t lanes = 2;
    while (lanes < width && lanes < NAPIER_NEAR_LANES) {
        lanes *= 2;
    }
    return lanes;
}

/* The number of blocks that search for each query: several if there are few queries. */
static int32_t splits_for(const napier_cuda_context *context, int64_t queries, int64_t samples) {
    const int64_t tiles = napier_cuda_tiles(queries, TILE), others = napier_cuda_tiles(samples, TILE);
    int64_t splits = 2 * (int64_t)context->processors / (tiles > 0 ? tiles : 1);
    splits = splits < others ? splits : others;
    splits = splits < MOST_SPLITS ? splits : MOST_SPLITS;
    return splits > 1 ? (int32_t)splits : 1;
}

static void take(const napier_cuda_context *context, napier_cuda_room *room, search *s) {
    const int64_t queries = s->queries.dense.rows, samples = s->samples.dense.rows;
    const int64_t wanted = s->options.n_neighbors - s->self;
    const int32_t splits = splits_for(context, queries, samples);
    s->state = napier_cuda_take(room, 1, sizeof *s->state);
    s->sample_points = take_points(room, s, s->samples.dense);
    s->query_points = s->self ? s->sample_points : take_points(room, s, s->queries.dense);
    const int64_t width = s->sample_points.width;
    const bool squared = napier_points_kind_of(s->options.metric, s->options.p) != NAPIER_POINTS_GENERAL;
    s->order = (napier_order_job){.order = napier_cuda_take(room, width, sizeof(int32_t)),
                                  .width = (int32_t)width,
                                  .lanes = squared ? lanes_for(width) : NAPIER_GAP_LANES,
                                  .folded = squared};
    if (s->options.metric == NAPIER_METRIC_SEUCLIDEAN) {
        const float *const given = s->options.metric_values;
        s->sample_points.measured = given ? NULL : napier_cuda_take(room, width, sizeof(float));
        s->sample_points.variances = given ? given : s->sample_points.measured;
        s->query_points.measured = s->sample_points.measured;
        s->query_points.variances = s->sample_points.variances;
    }
    if (napier_metric_moves_columns(s->options.metric)) {
        s->query_points.offsets = s->sample_points.offsets;
        s->query_points.by_column = s->sample_points.by_column;
    }
    s->near = (napier_near_job){
        .queries = s->query_points.points,
        .samples = s->sample_points.points,
        .self = s->self,
        .kind = napier_points_kind_of(s->options.metric, s->options.p),
        .metric = s->options.metric,
        .cols = s->samples.dense.cols,
        .order = s->order.order,
        .width = s->order.width,
        .lanes = s->order.lanes,
        .wanted = wanted,
        .splits = splits,
        .nearest = napier_cuda_take(room, queries * wanted, (size_t)splits * sizeof(uint64_t)),
        .state = s->state,
    };
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static napier_cuda_kernel nearest_kernel(const napier_neighbors_options *o) {
    switch (napier_gap_of_metric(o->metric, o->p)) {
    case NAPIER_GAP_PLAIN: return NAPIER_CUDA_KERNEL(napier_umap_nearest_plain_kernel);
    case NAPIER_GAP_LARGEST: return NAPIER_CUDA_KERNEL(napier_umap_nearest_largest_kernel);
    case NAPIER_GAP_CANBERRA: return NAPIER_CUDA_KERNEL(napier_umap_nearest_canberra_kernel);
    case NAPIER_GAP_RATIO: return NAPIER_CUDA_KERNEL(napier_umap_nearest_ratio_kernel);
    case NAPIER_GAP_UNEQUAL: return NAPIER_CUDA_KERNEL(napier_umap_nearest_unequal_kernel);
    case NAPIER_GAP_COUNTS: return NAPIER_CUDA_KERNEL(napier_umap_nearest_counts_kernel);
    default: return NAPIER_CUDA_KERNEL(napier_umap_nearest_squared_kernel);
    }
}

static napier_status put_points(const napier_cuda_call *call, napier_points_job *job, bool measures) {
    const bool may_lose = napier_reach_of(job->metric) != OF_NONE && job->rows.dtype == NAPIER_F64;
    const int64_t lines = job->by_column ? job->rows.cols : job->rows.rows;
    job->faults = call->context->faults;
    if ((may_lose || job->least > 0.0) && (measures || !napier_metric_moves_columns(job->metric))) {
        NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_spans_kernel, lines, THREADS / 32, THREADS, 0, job));
    }
    NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_points_kernel, job->width * job->points.stride, THREADS, job));
    if (job->points.counts != NULL) {
        NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_count_true_kernel, job->points.stride, THREADS, job));
    }
    if (napier_has_direction(job->metric)) {
        NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_directions_kernel, job->points.n, THREADS, job));
    }
    if (measures && job->measured != NULL) {
        NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_variances_kernel, job->rows.cols, THREADS, job));
    }
    if (job->metric == NAPIER_METRIC_SEUCLIDEAN) {
        NAPIER_TRY(
            NAPIER_DEVICE_EACH(call, napier_umap_divide_kernel, job->rows.cols * job->points.stride, THREADS, job));
    }
    return NAPIER_OK;
}

static napier_status run(const napier_cuda_call *call, search *s) {
    const int64_t queries = s->near.queries.n, tiles = napier_cuda_tiles(queries, TILE) * s->near.splits;
    NAPIER_TRY(napier_cuda_clear(call, s->state, sizeof *s->state));
    NAPIER_TRY(put_points(call, &s->sample_points, true));
    if (!s->self) {
        NAPIER_TRY(put_points(call, &s->query_points, false));
    }
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_order_kernel, 1, 1, 32, 0, &s->order));
    NAPIER_TRY(napier_device_put(call, nearest_kernel(&s->options), tiles, 1, THREADS, NAPIER_NEAR_SHARED, &s->near,
                                 sizeof s->near));
    return NAPIER_DEVICE_PUT(call, napier_umap_neighbors_kernel, queries, THREADS / 32, THREADS, 0, &s->near);
}

static napier_status find(napier_cuda_context *context, napier_cuda_workspace *workspace, const napier_cuda_call *call,
                          const napier_neighbors_options *options, search *s, int32_t *indices, float *distances) {
    NAPIER_TRY(check(context->host, options, s, indices, distances));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    take(context, &room, s);
    s->near.faults = context->faults;
    s->near.indices = indices;
    s->near.distances = distances;
    NAPIER_CUDA_READY(context, room);
    if (s->queries.dense.rows == 0) {
        return NAPIER_OK;
    }
    return run(call, s);
}

napier_status napier_cuda_nearest_neighbors(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_umap_samples samples,
                                            const napier_neighbors_options *options, int32_t *indices,
                                            float *distances) {
    const napier_cuda_call call = {context, stream, "nearest_neighbors"};
    search s = {.samples = samples, .queries = samples, .self = true};
    NAPIER_TRY(napier_cuda_begin(context));
    return find(context, workspace, &call, options, &s, indices, distances);
}

napier_status napier_cuda_nearest_neighbors_of(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, napier_umap_samples samples,
                                               napier_umap_samples queries, const napier_neighbors_options *options,
                                               int32_t *indices, float *distances) {
    const napier_cuda_call call = {context, stream, "nearest_neighbors_of"};
    search s = {.samples = samples, .queries = queries};
    NAPIER_TRY(napier_cuda_begin(context));
    return find(context, workspace, &call, options, &s, indices, distances);
}
