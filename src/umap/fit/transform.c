/* umap/fit/transform.c - new points on a fitted map, and points of the map back to data. Every row is
 * independent of the others: its random numbers are keyed on its contents, its number of epochs is fixed, and the
 * fitted points do not move. */
#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"
#include "umap/isa/umap_kernels.h"
#include "core/math/f64.h"
#include "core/math/random.h"
#include "umap/fit/model.h"
#include "umap/knn/neighbors_search.h"

enum {
    NAPIER_TRANSFORM_CHUNK = 16,
    /* umap-learn's numbers, but chosen by the fitted points; chosen by the batch, a row would depend on the others */
    NAPIER_TRANSFORM_SMALL = 10000,
    NAPIER_TRANSFORM_EPOCHS_SMALL = 100,
    NAPIER_TRANSFORM_EPOCHS_LARGE = 30
};

/* The nearest fitted points of each row; both directions use it. */
typedef struct nearest {
    int64_t rows, k;
    int32_t *indices; /* [rows, k] */
    float *distances;
    float *rhos, *sigmas; /* [rows] */
    float *weights;       /* [rows, k] memberships; the nearest has 1 */
} nearest;

/* exp(-(d - rho) / sigma), 1 up to rho, 0 for a missing neighbour. */
static void memberships(const napier_umap_kernels *kernels, const nearest *n, int64_t row) {
    float *w = n->weights + row * n->k;
    for (int64_t s = 0; s < n->k; s++) {
        const float beyond = n->distances[row * n->k + s] - n->rhos[row];
        w[s] = beyond > 0.0f && n->sigmas[row] > 0.0f ? -beyond / n->sigmas[row] : 0.0f;
    }
    kernels->math->exp_f32(w, w, n->k);
    for (int64_t s = 0; s < n->k; s++) {
        w[s] = n->indices[row * n->k + s] < 0 ? 0.0f : w[s];
    }
}

/* Finds the neighbours of each row of checked samples, in `memory`. Those beyond the disconnection distance of
 * `distant`, if that is not NULL, become -1. */
static napier_status find_nearest(napier_memory *memory, const napier_umap_model *model, napier_umap_samples fitted,
                                  napier_umap_samples rows, const napier_neighbors_options *options,
                                  const napier_umap_options *distant, int exponent, nearest *n) {
    napier_context *const context = memory->context;
    *n = (nearest){.rows = napier_samples_rows(rows), .k = options->n_neighbors};
    const int64_t count = n->rows * n->k;
    n->indices = napier_take(memory, count, sizeof *n->indices);
    n->distances = napier_take(memory, count, sizeof *n->distances);
    n->weights = napier_take(memory, count, sizeof *n->weights);
    n->rhos = napier_take(memory, n->rows, sizeof *n->rhos);
    n->sigmas = napier_take(memory, n->rows, sizeof *n->sigmas);
    NAPIER_TRY(
        napier_taken(memory, "transform: no memory for %lld x %lld neighbours", (long long)n->rows, (long long)n->k));
    NAPIER_TRY(napier_find_neighbors(context, fitted, &rows, options, n->indices, n->distances));
    NAPIER_TRY(napier_umap_check_found(context, "samples", n->indices, n->distances, n->rows, n->k));
    if (distant) {
        napier_umap_disconnect(distant, count, n->indices, n->distances);
        napier_umap_scale_distances(distant, exponent, count, n->distances);
    }
    const double connectivity = model->options.local_connectivity - 1.0; /* no row is its own neighbour */
    NAPIER_TRY(napier_umap_smooth_knn_dist(context, n->distances, n->rows, n->k,
                                           connectivity > 0.0 ? connectivity : 0.0, n->rhos, n->sigmas));
    for (int64_t row = 0; row < n->rows; row++) {
        memberships(napier_umap_kernels_of(context->isa), n, row);
    }
    return NAPIER_OK;
}

/* out = the mean of rows of `values` [fitted, width], weighted by memberships. */
static void weighted_mean(const nearest *n, int64_t row, const float *values, int64_t width, float *out) {
    double total = 0.0;
    for (int64_t s = 0; s < n->k; s++) {
        total += (double)n->weights[row * n->k + s];
    }
    for (int64_t d = 0; d < width; d++) {
        double sum = 0.0;
        for (int64_t s = 0; s < n->k; s++) {
            const float w = n->weights[row * n->k + s];
            if (w > 0.0f) {
                sum += (double)w * (double)values[(int64_t)n->indices[row * n->k + s] * width + d];
            }
        }
        out[d] = total > 0.0 ? (float)(sum / total) : 0.0f;
    }
}

/* out = the neighbour that is nearest to all others, weighted by memberships. It is where most of them are; a mean need
 * not be. NaN if no neighbour has a position. */
static void medoid(const nearest *n, int64_t row, const float *values, int64_t width, float *out) {
    const int32_t *near = n->indices + row * n->k;
    const float *w = n->weights + row * n->k;
    double least = (double)INFINITY;
    for (int64_t s = 0; s < n->k; s++) {
        double sum = 0.0;
        for (int64_t t = 0; t < n->k && w[s] > 0.0f; t++) {
            if (w[t] > 0.0f) {
                sum += (double)w[t] * sqrt((double)napier_squared_gap(values + (int64_t)near[s] * width,
                                                                      values + (int64_t)near[t] * width, width));
            }
        }
        if (w[s] > 0.0f && sum < least) {
            least = sum;
            memcpy(out, values + (int64_t)near[s] * width, (size_t)width * sizeof *out);
        }
    }
    for (int64_t d = 0; !isfinite(least) && d < width; d++) {
        out[d] = NAN;
    }
}

/* ---- Onto the map ------------------------------------------------------------------------------------------------ */

typedef struct transform_task {
    const napier_umap_model *model;
    napier_umap_samples samples;
    const nearest *near;
    napier_forces forces;
    int64_t epochs;
    float *y; /* [rows, components] */
} transform_task;

static void move(float *y, const float *force, float rate, int64_t components) {
    for (int64_t d = 0; d < components; d++) {
        y[d] = fmaf(rate, force[d], y[d]);
    }
}

/* Applies one edge in an epoch: the attraction, then the repulsion by its samples. */
static void pull_and_push(const transform_task *t, float *y, int32_t neighbor, uint32_t key, uint32_t edge,
                          float rate) {
    const napier_umap_model *m = t->model;
    const int64_t c = m->options.n_components;
    float force[NAPIER_UMAP_MOST_COMPONENTS];
    const float *z = m->embedding + (int64_t)neighbor * c;
    napier_force(&t->forces, napier_attraction(&t->forces, napier_squared_gap(y, z, c)), 1.0f, y, z, c, force);
    move(y, force, rate, c);
    for (uint32_t s = 0; s < (uint32_t)m->options.negative_sample_rate; s++) {
        uint32_t random[2];
        napier_philox(key, edge, s, random);
        z = m->embedding + (int64_t)napier_random_below(random[0], (uint32_t)m->n) * c;
        if (isnan(z[0])) {
            continue; /* a disconnected point */
        }
        napier_force(&t->forces, napier_repulsion(&t->forces, napier_squared_gap(y, z, c)), 1.0f, y, z, c, force);
        move(y, force, rate, c);
    }
}

/* Does an edge act in this epoch? It acts in a share `weight` of the epochs, evenly spread. */
static int acts(float weight, int64_t epoch) {
    return (int64_t)(weight * (float)(epoch + 1)) > (int64_t)(weight * (float)epoch);
}

static void transform_rows(void *argument, int64_t row) {
    const transform_task *t = argument;
    const napier_umap_options *o = &t->model->options;
    const int64_t c = o->n_components, k = t->near->k;
    float *y = t->y + row * c;
    const float *w = t->near->weights + row * k;
    const uint64_t seed = napier_samples_hash(t->samples, row) ^ o->transform_seed;
    float highest = 0.0f;
    for (int64_t s = 0; s < k; s++) {
        highest = w[s] > highest ? w[s] : highest;
    }
    medoid(t->near, row, t->model->embedding, c, y);
    for (int64_t epoch = 0; epoch < t->epochs && highest > 0.0f; epoch++) {
        const uint32_t key = napier_random_key(seed, (uint32_t)epoch);
        const float rate = (float)(o->learning_rate / 4.0 * (1.0 - (double)epoch / (double)t->epochs));
        for (int64_t s = 0; s < k; s++) {
            if (w[s] >= highest / (float)t->epochs && acts(w[s] / highest, epoch)) {
                pull_and_push(t, y, t->near->indices[row * k + s], key, (uint32_t)s, rate);
            }
        }
    }
}

/* Gives disconnected fitted points weight 0. */
static void leave_out(const napier_umap_model *model, nearest *n) {
    const int64_t c = model->options.n_components;
    for (int64_t i = 0; i < n->rows * n->k; i++) {
        const int64_t j = n->indices[i];
        n->weights[i] = j >= 0 && isnan(model->embedding[j * c]) ? 0.0f : n->weights[i];
    }
}

napier_status napier_umap_transform(napier_context *context, const napier_umap_model *model,
                                    napier_umap_samples samples, napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_TRY(napier_samples_check(context, "samples", samples));
    const napier_umap_options *o = &model->options;
    const int64_t rows = napier_samples_rows(samples), cols = napier_samples_cols(samples);
    NAPIER_REFUSE_IF(context, cols != model->data.cols, "samples: %lld columns, the model was fitted on %lld",
                     (long long)cols, (long long)model->data.cols);
    NAPIER_TRY(napier_check_matrix_out(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, rows, o->n_components));
    NAPIER_TRY(napier_samples_check_apart(context, "embedding", embedding, "samples", samples));
    NAPIER_TRY(napier_umap_check_apart(context, "embedding", embedding, "model", napier_umap_model_embedding(model)));
    if (rows == 0) {
        return NAPIER_OK;
    }
    nearest near;
    napier_umap_params params;
    transform_task task = {.model = model, .samples = samples, .near = &near, .y = embedding.data};
    task.epochs = model->n <= NAPIER_TRANSFORM_SMALL ? NAPIER_TRANSFORM_EPOCHS_SMALL : NAPIER_TRANSFORM_EPOCHS_LARGE;
    NAPIER_TRY(napier_umap_params_of(context, o, &params, &task.forces));
    NAPIER_MEMORY(memory, context);
    napier_umap_options distant = *o;
    napier_umap_samples fitted;
    NAPIER_TRY(napier_queries_moved(&memory, "samples", samples, model->offsets, o->neighbors.metric, &samples));
    task.samples = samples;
    const int exponent = napier_samples_exponent(context, &model->data, o->neighbors.metric);
    napier_umap_scale_limit(&distant, exponent);
    NAPIER_TRY(napier_samples_scaled(&memory, napier_samples_view(&model->data), exponent, &fitted));
    NAPIER_TRY(napier_samples_scaled(&memory, samples, exponent, &samples));
    NAPIER_TRY(find_nearest(&memory, model, fitted, samples, &o->neighbors, &distant, exponent, &near));
    leave_out(model, &near);
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, rows, NAPIER_TRANSFORM_CHUNK, transform_rows, &task);
    return napier_stopped(context);
}

/* ---- Back to data ------------------------------------------------------------------------------------------------ */

typedef struct inverse_task {
    const napier_umap_model *model;
    const nearest *near;
    float *out; /* [rows, features] */
} inverse_task;

/* Copies the positions of the points that have one; returns their number. kept: the indices of these points. */
static int64_t gather_places(const napier_umap_model *model, float *places, int32_t *kept) {
    const int64_t c = model->options.n_components;
    int64_t count = 0;
    for (int64_t v = 0; v < model->n; v++) {
        if (!isnan(model->embedding[v * c])) {
            memcpy(places + count * c, model->embedding + v * c, (size_t)c * sizeof *places);
            kept[count++] = (int32_t)v;
        }
    }
    return count;
}

/* Finds the neighbours of positions on the map, as indices of fitted points. */
static napier_status find_on_map(napier_memory *memory, const napier_umap_model *model, napier_const_matrix points,
                                 nearest *near) {
    napier_context *const context = memory->context;
    const int64_t components = model->options.n_components, wanted = model->options.neighbors.n_neighbors;
    float *places = napier_take(memory, model->n * components, sizeof *places);
    int32_t *kept = napier_take(memory, model->n, sizeof *kept);
    NAPIER_TRY(napier_taken(memory, "transform: no memory for %lld places", (long long)model->n));
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT; /* euclidean, on the map */
    const int64_t count = gather_places(model, places, kept);
    NAPIER_REFUSE_IF(context, count == 0, "model: none of its %lld points has a place on the map", (long long)model->n);
    options.n_neighbors = wanted < count ? wanted : count;
    const napier_umap_samples map = {napier_const_rows_f32(places, count, components), NULL}, rows = {points, NULL};
    NAPIER_TRY(find_nearest(memory, model, map, rows, &options, NULL, 0, near));
    for (int64_t i = 0; i < near->rows * near->k; i++) {
        near->indices[i] = near->indices[i] < 0 ? -1 : kept[near->indices[i]];
    }
    return NAPIER_OK;
}

/* The weighted mean of sparse rows. */
static void sparse_mean(const nearest *n, int64_t row, const napier_csr_matrix *data, float *out) {
    double total = 0.0;
    for (int64_t s = 0; s < n->k; s++) {
        total += (double)n->weights[row * n->k + s];
    }
    memset(out, 0, (size_t)data->cols * sizeof *out);
    for (int64_t s = 0; s < n->k; s++) {
        const float w = n->weights[row * n->k + s];
        const float share = w > 0.0f ? (float)((double)w / total) : 0.0f;
        const int64_t v = w > 0.0f ? n->indices[row * n->k + s] : 0;
        for (int64_t e = data->row_starts[v]; w > 0.0f && e < data->row_starts[v + 1]; e++) {
            float *at = &out[data->columns[e]];
            *at = fmaf(share, data->values[e], *at);
        }
    }
}

/* Adds the offsets to a mean of data; by row, their mean. */
static void add_offsets(const inverse_task *t, int64_t row, float *out) {
    const napier_umap_model *m = t->model;
    const bool by_row = napier_metric_moves_rows(m->options.neighbors.metric);
    double sum = 0.0, total = 0.0;
    for (int64_t s = 0; s < t->near->k && by_row; s++) {
        const double w = (double)t->near->weights[row * t->near->k + s];
        total += w;
        sum += w > 0.0 ? w * m->offsets[t->near->indices[row * t->near->k + s]] : 0.0;
    }
    for (int64_t c = 0; c < m->data.cols; c++) {
        out[c] = napier_f64_to_f32((double)out[c] + (!by_row ? m->offsets[c] : total > 0.0 ? sum / total : 0.0));
    }
}

static void inverse_rows(void *argument, int64_t row) {
    const inverse_task *t = argument;
    const napier_samples_copy *data = &t->model->data;
    float *out = t->out + row * data->cols;
    if (data->dense) {
        weighted_mean(t->near, row, data->dense, data->cols, out);
    } else {
        sparse_mean(t->near, row, &data->sparse, out);
    }
    if (t->model->offsets) {
        add_offsets(t, row, out);
    }
}

napier_status napier_umap_inverse_transform(napier_context *context, const napier_umap_model *model,
                                            napier_const_matrix points, napier_matrix samples) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    const napier_samples_copy *data = &model->data;
    if (model->options.neighbors.metric == NAPIER_METRIC_PRECOMPUTED) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "model: fitted on precomputed distances");
    }
    NAPIER_TRY(napier_umap_check_embedding(context, "points", points));
    NAPIER_REFUSE_IF(context, points.cols != model->options.n_components, "points: %lld components, the model has %lld",
                     (long long)points.cols, (long long)model->options.n_components);
    NAPIER_TRY(napier_check_matrix_out(context, "samples", samples));
    NAPIER_REFUSE_IF(context,
                     samples.dtype != NAPIER_F32 || samples.rows != points.rows || samples.cols != data->cols ||
                         samples.col_stride != 1 || samples.row_stride != samples.cols,
                     "samples: not f32, contiguous, %lld x %lld", (long long)points.rows, (long long)data->cols);
    NAPIER_TRY(napier_umap_check_apart(context, "samples", samples, "points", points));
    NAPIER_TRY(napier_umap_check_apart(context, "samples", samples, "model", napier_umap_model_embedding(model)));
    if (points.rows == 0) {
        return NAPIER_OK;
    }
    nearest near;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(find_on_map(&memory, model, points, &near));
    inverse_task task = {model, &near, samples.data};
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, points.rows, NAPIER_TRANSFORM_CHUNK, inverse_rows, &task);
    return napier_stopped(context);
}
