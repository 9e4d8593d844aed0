/* umap/fit/quality.c - the quality of a map: trustworthiness, preserved neighbours, and a vote of neighbours on the
 * labels. For each row it computes all distances in the data and on the map. */
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "umap/options/force.h"
#include "umap/metric/metric.h"
#include "umap/options/params.h"
#include "umap/metric/samples.h"

typedef struct row_quality {
    int64_t penalty;   /* sum of ranks beyond n_neighbors */
    int32_t preserved; /* neighbours on both sides */
    int32_t agrees;    /* the vote gave the row's label */
} row_quality;

typedef struct quality_task {
    const napier_points *points;
    napier_const_matrix embedding;
    int64_t n;     /* points with a position */
    int32_t *kept; /* [n] their indices among all points; the fields below use indices into kept */
    int64_t k, rows;
    const int32_t *labels;   /* of all points */
    float *in_data, *on_map; /* [workers, n] distances */
    int32_t *near;           /* [workers, 2, k] */
    row_quality *found;      /* [rows] */
} quality_task;

static int is_nearer(const float *distance, int64_t a, int64_t b) {
    return distance[a] < distance[b] || (distance[a] == distance[b] && a < b);
}

/* The k nearest of all points but i, nearest first. */
static void nearest_of(const float *distance, int64_t n, int64_t i, int64_t k, int32_t *near) {
    int64_t held = 0;
    for (int64_t j = 0; j < n; j++) {
        if (j == i || (held == k && !is_nearer(distance, j, near[k - 1]))) {
            continue;
        }
        int64_t at = held < k ? held++ : k - 1;
        for (; at > 0 && is_nearer(distance, j, near[at - 1]); at--) {
            near[at] = near[at - 1];
        }
        near[at] = (int32_t)j;
    }
}

/* One plus the number of points other than i that are nearer to i than j is. */
static int64_t rank_of(const float *distance, int64_t n, int64_t i, int64_t j) {
    int64_t nearer = 0;
    for (int64_t l = 0; l < n; l++) {
        nearer += distance[l] < distance[j] || (distance[l] == distance[j] && l < j);
    }
    return nearer - is_nearer(distance, i, j) + 1;
}

static int is_among(const int32_t *near, int64_t k, int32_t j) {
    for (int64_t s = 0; s < k; s++) {
        if (near[s] == j) {
            return 1;
        }
    }
    return 0;
}

/* The most frequent label of the neighbours; the smallest of several. */
static int32_t vote_of(const quality_task *t, const int32_t *near) {
    const int32_t *labels = t->labels, *kept = t->kept;
    int32_t winner = labels[kept[near[0]]];
    int64_t most = 0;
    for (int64_t s = 0; s < t->k; s++) {
        const int32_t label = labels[kept[near[s]]];
        int64_t votes = 0;
        for (int64_t other = 0; other < t->k; other++) {
            votes += labels[kept[near[other]]] == label;
        }
        if (votes > most || (votes == most && label < winner)) {
            most = votes;
            winner = label;
        }
    }
    return winner;
}

static void quality_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const quality_task *t = argument;
    const float *y = t->embedding.data;
    const int64_t c = t->embedding.cols;
    float *in_data = t->in_data + worker * t->n, *on_map = t->on_map + worker * t->n;
    int32_t *near_data = t->near + worker * 2 * t->k, *near_map = near_data + t->k;
    for (int64_t row = begin; row < end; row++) {
        const int64_t i = row * t->n / t->rows;
        for (int64_t j = 0; j < t->n; j++) {
            in_data[j] = napier_points_distance(t->points, t->kept[i], t->points, t->kept[j]);
            on_map[j] = napier_squared_gap(y + t->kept[i] * c, y + t->kept[j] * c, c);
        }
        nearest_of(in_data, t->n, i, t->k, near_data);
        nearest_of(on_map, t->n, i, t->k, near_map);
        row_quality found = {0, 0, 0};
        for (int64_t s = 0; s < t->k; s++) {
            if (is_among(near_data, t->k, near_map[s])) {
                found.preserved++;
            } else {
                found.penalty += rank_of(in_data, t->n, i, near_map[s]) - t->k;
            }
        }
        found.agrees = t->labels && vote_of(t, near_map) == t->labels[t->kept[i]];
        t->found[row] = found;
    }
}

static napier_umap_quality summary(const quality_task *t) {
    double penalty = 0.0, preserved = 0.0, agrees = 0.0;
    for (int64_t row = 0; row < t->rows; row++) {
        penalty += (double)t->found[row].penalty;
        preserved += t->found[row].preserved;
        agrees += t->found[row].agrees;
    }
    const double n = (double)t->n, k = (double)t->k, rows = (double)t->rows;
    return (napier_umap_quality){1.0 - 2.0 / (rows * k * (2.0 * n - 3.0 * k - 1.0)) * penalty, preserved / (rows * k),
                                 t->labels ? agrees / rows : (double)NAN};
}

/* Lists the points with a position. napier_umap_check_places has checked that a row is finite or all NaN. */
static void find_kept(const quality_task *t) {
    const float *y = t->embedding.data;
    int64_t count = 0;
    for (int64_t v = 0; v < t->embedding.rows; v++) {
        if (!isnan(y[v * t->embedding.cols])) {
            t->kept[count++] = (int32_t)v;
        }
    }
}

/* The rows as they are measured: less their offsets, and very large or small values multiplied. */
static napier_status measured(napier_memory *memory, napier_metric metric, napier_umap_samples *samples) {
    const napier_umap_kernels *kernels = napier_umap_kernels_of(memory->context->isa);
    int exponent;
    NAPIER_TRY(napier_samples_moved(memory, "samples", *samples, metric, samples));
    float *row = napier_take(memory, napier_samples_cols(*samples), sizeof *row);
    NAPIER_TRY(napier_taken(memory, "samples: no memory for a row"));
    return napier_samples_need_scale(*samples, metric, kernels, true, row)
               ? napier_samples_rescale(memory, samples, NULL, metric, &exponent)
               : NAPIER_OK;
}

napier_status napier_umap_quality_of(napier_context *context, napier_umap_samples samples,
                                     const napier_neighbors_options *options, napier_const_matrix embedding,
                                     const int32_t *labels, int64_t rows, napier_umap_quality *out) {
    NAPIER_DEFAULT_FENV;
    const napier_neighbors_options defaults = NAPIER_NEIGHBORS_OPTIONS_INIT;
    const napier_neighbors_options *o = options ? options : &defaults;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    NAPIER_TRY(napier_samples_check(context, "samples", samples));
    NAPIER_TRY(napier_umap_check_places(context, "embedding", embedding));
    NAPIER_REFUSE_IF(context, embedding.rows != napier_samples_rows(samples),
                     "embedding: %lld rows, the samples have %lld", (long long)embedding.rows,
                     (long long)napier_samples_rows(samples));
    const int64_t n = embedding.rows - napier_umap_disconnected(embedding), k = o->n_neighbors;
    NAPIER_REFUSE_IF(context, k < 1 || k > (n - 1) / 2 || rows < 0,
                     "n_neighbors %lld, rows %lld: not 1 to below half of %lld points on the map, and 0 or more",
                     (long long)k, (long long)rows, (long long)n);
    napier_points *points;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(measured(&memory, o->metric, &samples));
    NAPIER_TRY(napier_points_create(&memory, "samples", samples, o, NULL, &points));
    quality_task t = {.points = points,
                      .embedding = embedding,
                      .n = n,
                      .k = k,
                      .rows = rows == 0 || rows > n ? n : rows,
                      .labels = labels};
    const int workers = napier_workers(context, t.rows, 1);
    t.kept = napier_take(&memory, n, sizeof *t.kept);
    t.in_data = napier_take(&memory, workers * n, sizeof *t.in_data);
    t.on_map = napier_take(&memory, workers * n, sizeof *t.on_map);
    t.near = napier_take(&memory, workers * 2 * k, sizeof *t.near);
    t.found = napier_take(&memory, t.rows, sizeof *t.found);
    NAPIER_TRY(napier_taken(&memory, "quality: no memory for %lld points", (long long)n));
    find_kept(&t);
    NAPIER_MAY_STOP(context);
    napier_parallel(context, t.rows, 1, quality_rows, &t);
    NAPIER_TRY(napier_stopped(context));
    *out = summary(&t);
    return NAPIER_OK;
}
