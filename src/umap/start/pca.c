/* umap/start/pca.c - the first principal components of samples, by block iteration (eigen.h) on their covariance.
 *
 * The covariance is never formed: a product C X = (1/n) sum_i r_i (r_i' X) reads the samples once, where r_i is row i
 * minus the means. Dense rows go through the matrix product kernel, NAPIER_PANEL columns at a time, in f32 within a
 * block of rows and in double over blocks; sparse rows entry by entry in double, and the means are subtracted
 * afterwards. Rows are cut into groups that depend on the shape only, and groups are added in order. */
#include "umap/start/start.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/isa/umap_kernels.h"
#include "core/math/f64.h"
#include "umap/start/eigen.h"
#include "umap/options/params.h"
#include "umap/metric/samples.h"

enum { MOST_GROUPS = 64, GUARD_COLUMNS = 6, PRODUCTS = 40, LEAST_BLOCK = 8, MOST_BLOCK_ROWS = 256 };
#define GROUP_DOUBLES ((int64_t)1 << 23) /* in all groups together */
#define BLOCK_FLOATS ((int64_t)1 << 18)  /* in a block of rows */
#define TOLERANCE 1e-4
#define LEAST_VARIANCE 1e-7 /* relative to the first component's; less is f32 rounding */

typedef struct pca {
    const napier_umap_kernels *kernels;
    napier_umap_samples samples;
    int64_t n, cols, columns; /* columns: of a block of vectors, one or two panels */
    int64_t group_rows, groups, block_rows;
    double scale;               /* a power of two that brings all values to about 1 or less */
    float *means;               /* [cols] */
    float largest[MOST_GROUPS]; /* value of each group, in size */
    int64_t bad[MOST_GROUPS];   /* first row of each group with a bad value, or -1 */
    double *sums;               /* [groups, cols (columns or 1)] the sums of each group */
    double *wide;               /* sparse: [columns] means' X, then per group [columns] the sum of r_i' X */
    float *panels;              /* dense: X as panels [columns / PANEL][cols][PANEL] */
    float *work;                /* dense, per worker */
    int64_t work_floats;
    const double *x;
    bool is_last; /* pass: */
    float *scores;
    int64_t components;
    napier_context *context;
} pca;

static int64_t group_end(const pca *p, int64_t group) { return napier_least((group + 1) * p->group_rows, p->n); }

/* ---- Means ------------------------------------------------------------------------------------------------------- */

static void add_sparse_row(const napier_csr_matrix *m, int64_t row, double *sums, float *largest) {
    for (int64_t e = m->row_starts[row]; e < m->row_starts[row + 1]; e++) {
        const float size = fabsf(m->values[e]);
        sums[m->columns[e]] += (double)m->values[e];
        *largest = size > *largest ? size : *largest;
    }
}

static void add_dense_row(const float *row, int64_t cols, double *sums, float *largest) {
    float most = *largest;
    for (int64_t c = 0; c < cols; c++) {
        const float size = fabsf(row[c]);
        sums[c] += (double)row[c];
        most = size > most ? size : most;
    }
    *largest = most;
}

static void mean_groups(void *argument, int worker, int64_t begin, int64_t end) {
    pca *p = argument;
    float *row = p->work + worker * p->work_floats;
    for (int64_t group = begin; group < end; group++) {
        double *sums = p->sums + group * p->cols;
        float *largest = &p->largest[group];
        memset(sums, 0, (size_t)p->cols * sizeof *sums);
        p->bad[group] = -1;
        for (int64_t i = group * p->group_rows; i < group_end(p, group); i++) {
            if (p->samples.sparse) {
                add_sparse_row(p->samples.sparse, i, sums, largest);
                continue;
            }
            if (napier_read_row(p->kernels, p->samples, i, row) >= 0 && p->bad[group] < 0) {
                p->bad[group] = i;
            }
            add_dense_row(row, p->cols, sums, largest);
        }
    }
}

/* A power of two, exact in f32, that scales values of this size to at most 1. */
static double power_of_two_above(float largest) {
    const int exponent = (int)(napier_double_bits((double)largest) >> 52) - 1023 + 1;
    return napier_f64_power_of_two(exponent > 126 ? -126 : exponent < -126 ? 126 : -exponent);
}

static napier_status find_means(pca *p) {
    napier_context *const context = p->context;
    const napier_csr_matrix *m = p->samples.sparse;
    const int64_t bad_entry = m ? napier_first_not_finite(m->values, m->row_starts[p->n]) : -1;
    if (bad_entry >= 0) {
        return napier_read_refuse(context, "samples", p->samples, napier_csr_row_of(m, bad_entry),
                                  m->columns[bad_entry]);
    }
    napier_parallel(context, p->groups, 1, mean_groups, p);
    float largest = 0.0f;
    for (int64_t group = 0; group < p->groups; group++) {
        const int64_t bad = p->bad[group];
        if (bad >= 0) {
            return napier_read_refuse(context, "samples", p->samples, bad,
                                      napier_read_row(p->kernels, p->samples, bad, p->work));
        }
        largest = p->largest[group] > largest ? p->largest[group] : largest;
    }
    p->scale = power_of_two_above(largest);
    for (int64_t c = 0; c < p->cols; c++) {
        double sum = 0.0;
        for (int64_t group = 0; group < p->groups; group++) {
            sum += p->sums[group * p->cols + c];
        }
        p->means[c] = (float)(sum * p->scale / (double)p->n);
    }
    return NAPIER_OK;
}

/* ---- Products with dense samples --------------------------------------------------------------------------------- */

/* A worker's memory: a block of rows, its transpose, its products with a panel, and the sums for a panel. */
typedef struct dense_room {
    float *rows, *turned, *products, *gains;
} dense_room;

static dense_room dense_room_of(const pca *p, int worker) {
    float *work = p->work + worker * p->work_floats;
    const int64_t block = p->block_rows * p->cols;
    return (dense_room){work, work + block, work + 2 * block, work + 2 * block + p->block_rows * NAPIER_PANEL};
}

static void read_block(const pca *p, int64_t first, int64_t count, float *rows) {
    const float scale = (float)p->scale;
    for (int64_t i = 0; i < count; i++) {
        float *row = rows + i * p->cols;
        (void)napier_read_row(p->kernels, p->samples, first + i, row);
        for (int64_t c = 0; c < p->cols; c++) {
            row[c] = row[c] * scale - p->means[c];
        }
    }
}

static void turn_block(const pca *p, int64_t count, const float *rows, float *turned) {
    enum { TILE = 16 };
    for (int64_t c0 = 0; c0 < p->cols; c0 += TILE) {
        for (int64_t i0 = 0; i0 < count; i0 += TILE) {
            for (int64_t c = c0; c < p->cols && c < c0 + TILE; c++) {
                for (int64_t i = i0; i < count && i < i0 + TILE; i++) {
                    turned[c * p->block_rows + i] = rows[i * p->cols + c];
                }
            }
        }
    }
}

static void dense_block(const pca *p, const dense_room *room, int64_t count, double *sums) {
    const napier_linear_kernels *linear = p->kernels->linear;
    turn_block(p, count, room->rows, room->turned);
    for (int64_t panel = 0; panel * NAPIER_PANEL < p->columns; panel++) {
        linear->product(room->rows, p->cols, count, p->panels + panel * p->cols * NAPIER_PANEL, p->cols, room->products,
                        NAPIER_PANEL);
        linear->product(room->turned, p->block_rows, p->cols, room->products, count, room->gains, NAPIER_PANEL);
        for (int64_t c = 0; c < p->cols; c++) {
            for (int64_t j = 0; j < NAPIER_PANEL; j++) {
                sums[c * p->columns + panel * NAPIER_PANEL + j] += (double)room->gains[c * NAPIER_PANEL + j];
            }
        }
    }
}

static void score_block(const pca *p, const dense_room *room, int64_t first, int64_t count) {
    for (int64_t panel = 0; panel * NAPIER_PANEL < p->components; panel++) {
        p->kernels->linear->product(room->rows, p->cols, count, p->panels + panel * p->cols * NAPIER_PANEL, p->cols,
                                    room->products, NAPIER_PANEL);
        for (int64_t r = 0; r < count; r++) {
            for (int64_t j = panel * NAPIER_PANEL; j < p->components && j < (panel + 1) * NAPIER_PANEL; j++) {
                p->scores[(first + r) * p->components + j] =
                    room->products[r * NAPIER_PANEL + j - panel * NAPIER_PANEL];
            }
        }
    }
}

static void dense_groups(void *argument, int worker, int64_t begin, int64_t end) {
    const pca *p = argument;
    const dense_room room = dense_room_of(p, worker);
    for (int64_t group = begin; group < end; group++) {
        double *sums = p->sums + group * p->cols * p->columns;
        memset(sums, 0, (size_t)(p->cols * p->columns) * sizeof *sums);
        for (int64_t i = group * p->group_rows; i < group_end(p, group); i += p->block_rows) {
            const int64_t count = napier_least(group_end(p, group) - i, p->block_rows);
            read_block(p, i, count, room.rows);
            if (p->is_last) {
                score_block(p, &room, i, count);
            } else {
                dense_block(p, &room, count, sums);
            }
        }
    }
}

static void fill_panels(pca *p, const double *x) {
    for (int64_t panel = 0; panel * NAPIER_PANEL < p->columns; panel++) {
        for (int64_t c = 0; c < p->cols; c++) {
            for (int64_t j = 0; j < NAPIER_PANEL; j++) {
                p->panels[(panel * p->cols + c) * NAPIER_PANEL + j] =
                    (float)x[c * p->columns + panel * NAPIER_PANEL + j];
            }
        }
    }
}

/* ---- Products with sparse samples -------------------------------------------------------------------------------- */

/* r' X of one row, at z [columns]. */
static void sparse_row(const pca *p, int64_t row, double *z) {
    const napier_csr_matrix *m = p->samples.sparse;
    for (int64_t j = 0; j < p->columns; j++) {
        z[j] = -p->wide[j];
    }
    for (int64_t e = m->row_starts[row]; e < m->row_starts[row + 1]; e++) {
        const double value = (double)m->values[e] * p->scale;
        const double *x = p->x + (int64_t)m->columns[e] * p->columns;
        for (int64_t j = 0; j < p->columns; j++) {
            z[j] += value * x[j];
        }
    }
}

static void sparse_groups(void *argument, int64_t group) {
    const pca *p = argument;
    const napier_csr_matrix *m = p->samples.sparse;
    double *sums = p->sums + group * p->cols * p->columns, *all = p->wide + (group + 1) * p->columns;
    memset(sums, 0, (size_t)(p->cols * p->columns) * sizeof *sums);
    memset(all, 0, (size_t)p->columns * sizeof *all);
    for (int64_t i = group * p->group_rows; i < group_end(p, group); i++) {
        double z[NAPIER_MOST_BLOCK];
        sparse_row(p, i, z);
        for (int64_t j = 0; p->is_last && j < p->components; j++) {
            p->scores[i * p->components + j] = (float)z[j];
        }
        for (int64_t j = 0; j < p->columns; j++) {
            all[j] += z[j];
        }
        for (int64_t e = m->row_starts[i]; e < m->row_starts[i + 1]; e++) {
            const double value = (double)m->values[e] * p->scale;
            double *sum = sums + (int64_t)m->columns[e] * p->columns;
            for (int64_t j = 0; j < p->columns; j++) {
                sum[j] += value * z[j];
            }
        }
    }
}

/* Computes the means' part of every row's product. */
static void start_sparse(pca *p, const double *x) {
    p->x = x;
    memset(p->wide, 0, (size_t)p->columns * sizeof *p->wide);
    for (int64_t c = 0; c < p->cols; c++) {
        for (int64_t j = 0; j < p->columns; j++) {
            p->wide[j] += (double)p->means[c] * x[c * p->columns + j];
        }
    }
}

/* ---- The operator ------------------------------------------------------------------------------------------------ */

typedef struct combine_task {
    const pca *p;
    const double *x;
    double alpha, beta, gamma, *y;
} combine_task;

static void combine_columns(void *argument, int64_t c) {
    const combine_task *t = argument;
    const pca *p = t->p;
    for (int64_t j = 0; j < p->columns; j++) {
        const int64_t at = c * p->columns + j;
        double sum = 0.0, all = 0.0;
        for (int64_t group = 0; group < p->groups; group++) {
            sum += p->sums[group * p->cols * p->columns + at];
            all += p->samples.sparse ? p->wide[(group + 1) * p->columns + j] : 0.0;
        }
        sum = (sum - all * (double)p->means[c]) / (double)p->n;
        const double kept = t->gamma != 0.0 ? t->gamma * t->y[at] : 0.0;
        t->y[at] = t->alpha * sum + t->beta * t->x[at] + kept;
    }
}

/* Passes over all samples: the sums of each group, or in the last pass the scores. */
static void pass_over(pca *p, const double *x) {
    if (p->samples.sparse) {
        start_sparse(p, x);
        napier_parallel_each(p->context, p->groups, 1, sparse_groups, p);
    } else {
        fill_panels(p, x);
        napier_parallel(p->context, p->groups, 1, dense_groups, p);
    }
}

static void multiply(void *argument, const double *x, double alpha, double beta, double gamma, double *y) {
    pca *p = argument;
    pass_over(p, x);
    combine_task t = {p, x, alpha, beta, gamma, y};
    napier_parallel_each(p->context, p->cols, 64, combine_columns, &t);
}

/* ---- Scores and the start ---------------------------------------------------------------------------------------- */

static napier_status make_room(napier_memory *memory, pca *p, double **blocks) {
    const size_t block = (size_t)p->columns * sizeof(double);
    const int workers = napier_workers(memory->context, p->groups, 1);
    p->means = napier_take(memory, p->cols, sizeof *p->means);
    p->sums = napier_take(memory, p->cols * p->groups, block);
    p->work = napier_take(memory, workers, (size_t)p->work_floats * sizeof *p->work);
    *blocks = napier_take(memory, 2 * p->cols * p->columns + napier_eigen_scratch(p->cols, p->columns),
                          sizeof **blocks); /* two blocks and the iteration's scratch */
    if (p->samples.sparse) {
        p->wide = napier_take(memory, p->groups + 1, block);
    } else {
        p->panels = napier_take(memory, p->cols, (size_t)p->columns * sizeof *p->panels);
    }
    return napier_taken(memory, "samples: no memory for principal components of %lld columns", (long long)p->cols);
}

static void plan(pca *p) {
    const int64_t most = napier_between(GROUP_DOUBLES / (p->cols * p->columns), 1, MOST_GROUPS);
    p->block_rows = napier_between(BLOCK_FLOATS / p->cols, LEAST_BLOCK, MOST_BLOCK_ROWS);
    p->group_rows = napier_round_up((p->n + most - 1) / most, p->block_rows);
    p->groups = (p->n + p->group_rows - 1) / p->group_rows;
    p->work_floats = p->samples.sparse ? 16 : 2 * p->block_rows * p->cols + (p->block_rows + p->cols) * NAPIER_PANEL;
}

/* Changes the sign of a column so that its element of largest magnitude (the first of several) is positive. */
static void fix_sign(float *y, int64_t n, int64_t components, int64_t component) {
    float largest = 0.0f;
    int negative = 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = y[i * components + component];
        if (fabsf(x) > largest) {
            largest = fabsf(x);
            negative = x < 0.0f;
        }
    }
    for (int64_t i = 0; negative && i < n; i++) {
        y[i * components + component] = -y[i * components + component];
    }
}

static void scores_of(pca *p, double *blocks, int64_t *found) {
    double values[NAPIER_MOST_BLOCK];
    int64_t count = 0;
    const napier_operator covariance = {p->cols, p->columns, NULL, 0.0, (double)INFINITY, multiply, p};
    const napier_eigen_limits limits = {p->components, PRODUCTS, TOLERANCE};
    napier_eigen_start(p->cols, p->columns, blocks);
    const int64_t block = p->cols * p->columns;
    napier_largest_eigenvectors(p->context, &covariance, limits, blocks, blocks + block, blocks + 2 * block, values,
                                &count);
    *found = 0;
    while (*found < count && *found < p->components && values[*found] > LEAST_VARIANCE * values[0]) {
        ++*found;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        for (int64_t j = *found; j < p->columns; j++) {
            blocks[c * p->columns + j] = 0.0;
        }
    }
    p->is_last = true;
    pass_over(p, blocks);
    for (int64_t j = 0; j < p->components; j++) {
        fix_sign(p->scores, p->n, p->components, j);
    }
}

napier_status napier_pca_scores(napier_context *context, napier_umap_samples samples, int64_t components, float *scores,
                                int64_t *found) {
    pca p = {.kernels = napier_umap_kernels_of(context->isa),
             .samples = samples,
             .n = napier_samples_rows(samples),
             .cols = napier_samples_cols(samples),
             .columns = napier_round_up(components + GUARD_COLUMNS, NAPIER_PANEL),
             .scores = scores,
             .components = components,
             .context = context};
    double *blocks;
    NAPIER_MEMORY(memory, context);
    *found = 0;
    plan(&p);
    NAPIER_TRY(make_room(&memory, &p, &blocks));
    NAPIER_TRY(find_means(&p));
    scores_of(&p, blocks, found);
    return NAPIER_OK;
}

napier_status napier_start_pca(napier_context *context, napier_umap_samples samples, uint64_t seed,
                               napier_matrix embedding) {
    const int64_t n = embedding.rows, components = embedding.cols;
    int64_t found;
    NAPIER_REFUSE_IF(context, napier_samples_cols(samples) < 1, "samples: no columns");
    NAPIER_MEMORY(memory, context);
    float *scores = napier_take(&memory, n, (size_t)components * sizeof *scores);
    NAPIER_TRY(napier_taken(&memory, "embedding: no memory for %lld points", (long long)n));
    NAPIER_TRY(napier_pca_scores(context, samples, components, scores, &found));
    const double largest = napier_start_largest(scores, n * components);
    const double small = largest > 0.0 ? 0.1 * largest : 1.0; /* a tenth of the map */
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = found; c < components; c++) {
            scores[i * components + c] = (float)(small * napier_start_number(seed, NAPIER_STREAM_SMALL, i, c));
        }
    }
    napier_start_finish(scores, n, components, seed);
    memcpy(embedding.data, scores, (size_t)(n * components) * sizeof *scores);
    return NAPIER_OK;
}

napier_status napier_umap_pca_layout(napier_context *context, napier_umap_samples samples, uint64_t seed,
                                     napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_read_check(context, "samples", samples));
    const int64_t n = napier_samples_rows(samples);
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, n, embedding.cols));
    NAPIER_TRY(napier_samples_check_apart(context, "embedding", embedding, "samples", samples));
    if (n == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_samples_moved(&memory, "samples", samples, NAPIER_METRIC_EUCLIDEAN, &samples));
    return napier_start_pca(context, samples, seed, embedding);
}
