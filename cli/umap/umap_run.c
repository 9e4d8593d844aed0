/* cli/umap/umap_run.c - reads the tables, calls the library, and writes the map, the model, the plots and the
 * report. */
#include "umap_command.h"

#include "io/input.h"
#include "io/output.h"
#include "plot/plot.h"
#include "program/command.h"
#include "program/message.h"
#include "program/progress.h"
#include "io/source.h"
#include "umap_npz.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    umap_request *q;
    napier_context *context;
    progress_line progress;
    napier_umap_model *model;
    float *map; /* [rows][columns], written to OUT */
    int64_t rows, columns;
    float *start;  /* --init FILE */
    float *target; /* --target FILE as numbers */
    labels labels, targets, hover;
} job;

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* A table of numbers, in memory or mapped, or a sparse one, whose `view` has only the shape. */
typedef struct table {
    input in;
    scratch room;
    napier_const_matrix view;
    sparse_table sparse;
} table;

static bool is_sparse(const table *t) { return t->sparse.row_starts != NULL; }

static napier_umap_samples samples_of(const table *t) {
    return (napier_umap_samples){.dense = t->view, .sparse = is_sparse(t) ? &t->sparse.matrix : NULL};
}

static int sparse_open(table *t, const char *path) {
    t->in.name = path;
    t->in.format = FORMAT_NPY;
    const int status = sparse_read(&t->sparse, path);
    t->view.rows = t->sparse.matrix.rows;
    t->view.cols = t->sparse.matrix.cols;
    return status;
}

static bool is_short_integer(element_type type) {
    return type.size <= 2 && type.kind != ELEMENT_FLOAT && type.kind != ELEMENT_BFLOAT;
}

static const char *take_float(void *user, double value) {
    float **const to = user;
    *(*to)++ = (float)value;
    return NULL;
}

/* Integers of one or two bytes become f32, which is exact and takes half the memory of f64. */
static int load_elements(table *t, const void **elements, napier_dtype *dtype) {
    input *const in = &t->in;
    *dtype = in->dtype;
    if (in->format != FORMAT_NPY || !is_short_integer(in->element)) {
        return input_elements(in, &t->room, elements);
    }
    *dtype = NAPIER_F32;
    if (input_arrive(in) || scratch_new(&t->room, in->count * (int64_t)sizeof(float), "")) {
        return STATUS_FAILED;
    }
    float *to = t->room.data;
    *elements = to;
    return input_take(in, take_float, &to);
}

/* A vector is a table of one column. */
static int table_open(table *t, const char *path, file_format format, const char *chosen) {
    memset(t, 0, sizeof *t);
    if (ends_in(path, ".npz")) {
        return chosen == NULL ? sparse_open(t, path)
                              : complain("--columns: %s is an .npz file; only columns of CSV and TSV are chosen", path);
    }
    input *const in = &t->in;
    if (input_open_columns(in, path, format, chosen) || input_load(in)) {
        return STATUS_FAILED;
    }
    const array_shape *const shape = &in->shape;
    if (shape->dims < 1 || shape->dims > 2) {
        return complain("%s: an array of %d dimensions; a table of rows and columns is wanted", in->name, shape->dims);
    }
    const int64_t rows = shape->dim[0];
    const int64_t columns = shape->dims == 2 ? shape->dim[1] : 1;
    if (rows == 0 || columns == 0) {
        return complain("%s: a table of %" PRId64 " x %" PRId64 " has no numbers", in->name, rows, columns);
    }
    if (rows >= INT32_MAX) {
        return complain("%s: %" PRId64 " rows are too many", in->name, rows);
    }
    const void *elements = NULL;
    napier_dtype dtype = NAPIER_F32;
    const int status = load_elements(t, &elements, &dtype);
    const bool fortran = shape->fortran && shape->dims == 2;
    t->view = (napier_const_matrix){elements, rows, columns, fortran ? 1 : columns, fortran ? rows : 1, dtype};
    return status;
}

static void table_close(table *t) {
    input_close(&t->in);
    scratch_free(&t->room);
    sparse_free(&t->sparse);
}

/* The numbers as a contiguous array of floats. In a map whole rows may be NaN, because points may have no place.
 * Returns NULL after a message. */
static float *table_floats(const table *t, bool is_map) {
    const napier_const_matrix *const m = &t->view;
    const size_t size = napier_dtype_size(m->dtype);
    const size_t count = (size_t)m->rows * (size_t)m->cols;
    if (is_sparse(t)) {
        message_complain("%s: a sparse matrix, where points of a map are wanted", t->in.name);
        return NULL;
    }
    float *const floats = count <= SIZE_MAX / sizeof *floats ? malloc(count * sizeof *floats) : NULL;
    if (floats == NULL) {
        message_complain("%s: out of memory", t->in.name);
        return NULL;
    }
    for (int64_t i = 0; i < m->rows; i++) {
        for (int64_t k = 0; k < m->cols; k++) {
            const char *const element = (const char *)m->data + (size_t)(i * m->row_stride + k * m->col_stride) * size;
            floats[i * m->cols + k] = (float)element_value(m->dtype, element);
        }
        const float *const row = floats + i * m->cols;
        int64_t missing = 0;
        for (int64_t k = 0; k < m->cols; k++) {
            missing += isnan(row[k]) != 0;
        }
        for (int64_t k = 0; k < m->cols && !(is_map && missing == m->cols); k++) {
            if (!isfinite(row[k])) {
                message_complain("%s: row %" PRId64 ", column %" PRId64 " is not a finite number", t->in.name, i, k);
                free(floats);
                return NULL;
            }
        }
    }
    return floats;
}

/* Reads a whole file of floats. */
static float *read_floats(const char *path, bool is_map, int64_t *rows, int64_t *columns) {
    table t;
    float *const floats = table_open(&t, path, FORMAT_AUTO, NULL) == STATUS_OK ? table_floats(&t, is_map) : NULL;
    *rows = t.view.rows;
    *columns = t.view.cols;
    table_close(&t);
    return floats;
}

/* ---- Before the work --------------------------------------------------------------------------------------------- */

/* Reads the labels of `rows` points, if a file is given. */
static int read_some(labels *l, const char *path, label_type type, bool negative_unknown, int64_t rows) {
    if (path == NULL) {
        return STATUS_OK;
    }
    if (labels_read(l, path, type, negative_unknown)) {
        return STATUS_FAILED;
    }
    return l->count == rows ? STATUS_OK
                            : complain("%s: %" PRId64 " label%s for %" PRId64 " point%s", path, l->count,
                                       l->count == 1 ? "" : "s", rows, rows == 1 ? "" : "s");
}

static int read_labels(job *j, int64_t rows) {
    const umap_request *const q = j->q;
    return read_some(&j->labels, q->labels_path, q->label_type, false, rows) ||
           read_some(&j->targets, q->target_path, q->target_type, true, rows) ||
           read_some(&j->hover, q->hover_path, LABELS_CATEGORIES, false, rows);
}

/* The labels that colour the plot; without labels, the target. */
static const labels *shown_labels(const job *j) {
    return j->labels.type == LABELS_AUTO && j->targets.type != LABELS_AUTO ? &j->targets : &j->labels;
}

/* The middle of numbers far from 0, without which f32 keeps the digits in which they differ: as the library has it for
 * data (docs/umap.md); else 0. */
static double middle_of(const double *x, int64_t count) {
    double low = (double)INFINITY, high = -low;
    bool exact = true;
    for (int64_t i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        exact = exact && (isnan(x[i]) || (double)(float)x[i] == x[i]);
    }
    const double middle = low / 2 + high / 2;
    return !exact && isfinite(middle) && fabs(middle) >= 16 * (high / 2 - low / 2) ? middle : 0;
}

static int set_target(job *j) {
    umap_request *const q = j->q;
    if (q->target_path == NULL) {
        return STATUS_OK;
    }
    if (j->targets.like_numbers) {
        warn("%s looks like numbers, %" PRId32 " different ones, and each is a category; --target-metric l2 compares "
             "numbers",
             q->target_path, j->targets.categories);
    }
    if (j->targets.type == LABELS_CATEGORIES) {
        q->options.target_categories = j->targets.codes;
        return STATUS_OK;
    }
    j->target = malloc((size_t)j->targets.count * sizeof *j->target);
    if (j->target == NULL) {
        return out_of_memory(q->target_path);
    }
    const double middle = middle_of(j->targets.numbers, j->targets.count);
    for (int64_t i = 0; i < j->targets.count; i++) {
        j->target[i] = (float)(j->targets.numbers[i] - middle);
        if (isinf(j->target[i])) {
            return complain("%s: target %" PRId64 " is not a finite number", q->target_path, i);
        }
    }
    q->options.target_numbers = j->target;
    return STATUS_OK;
}

static int set_start(job *j, int64_t rows) {
    umap_request *const q = j->q;
    int64_t have_rows;
    int64_t have_columns;
    if (q->init_path == NULL) {
        return STATUS_OK;
    }
    j->start = read_floats(q->init_path, false, &have_rows, &have_columns);
    if (j->start == NULL) {
        return STATUS_FAILED;
    }
    q->options.init_embedding = j->start;
    return have_rows == rows && have_columns == q->options.n_components
               ? STATUS_OK
               : complain("%s: the start is %" PRId64 " x %" PRId64 ", the map %" PRId64 " x %" PRId64, q->init_path,
                          have_rows, have_columns, rows, q->options.n_components);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static int show_progress(const char *stage, double done, void *user) {
    progress_stage(user, stage, done);
    return 0;
}

static void set_progress(job *j) {
    napier_umap_options *const options = &j->q->options;
    progress_start(&j->progress, -1);
    options->progress = show_progress;
    options->user = &j->progress;
    options->neighbors.progress = show_progress;
    options->neighbors.user = &j->progress;
    options->neighbors.seed = options->seed;
}

static int new_map(job *j, int64_t rows, int64_t columns) {
    j->rows = rows;
    j->columns = columns;
    const size_t count = (size_t)rows * (size_t)columns;
    j->map = count <= SIZE_MAX / sizeof *j->map / 2 ? malloc(count * sizeof *j->map) : NULL;
    return j->map != NULL ? STATUS_OK : complain("out of memory");
}

static napier_const_matrix map_of(const job *j) { return napier_const_rows_f32(j->map, j->rows, j->columns); }

/* Reports points without a place. They are not an error, but the user should know. */
static void report_disconnected(const job *j, const table *t) {
    const int64_t count = napier_umap_disconnected(map_of(j));
    if (count > 0 && j->q->transform_path == NULL && j->q->options.set_op_mix_ratio == 0) {
        warn("%s: %" PRId64 " of %" PRId64
             " points have no mutual neighbour, and --set-op-mix-ratio 0 keeps only edges "
             "between points that are neighbours of each other: their rows of the map are NaN",
             t->in.name, count, j->rows);
    } else if (count > 0) {
        warn("%s: %" PRId64 " of %" PRId64
             " points have no neighbour nearer than the disconnection distance: their rows "
             "of the map are NaN (see --disconnection-distance)",
             t->in.name, count, j->rows);
    }
}

/* Warns of rows that are valid for the metric, but look like something else. */
static void report_units(const job *j, const table *t) {
    const napier_metric metric = j->q->options.neighbors.metric;
    const bool turns = metric == NAPIER_METRIC_HAVERSINE;
    if (is_sparse(t) || (!turns && (metric < NAPIER_METRIC_JACCARD || metric > NAPIER_METRIC_MATCHING))) {
        return;
    }
    const int64_t count = t->view.rows * t->view.cols;
    double found = 0;
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) { /* all elements, in any order */
        const char *const element = (const char *)t->view.data + (size_t)i * napier_dtype_size(t->view.dtype);
        const double x = element_value(t->view.dtype, element);
        zeros += x == 0;
        found = turns ? fmax(found, fabs(x)) : x != floor(x) ? x : found;
    }
    if (turns && found > 7) { /* more than a whole turn */
        warn("%s: haversine takes radians, and %g looks like degrees", t->in.name, found);
    } else if (!turns && found != 0 && zeros * 10 < count) {
        warn("%s: the metric compares only which values are 0, and there are fractions, %g, and hardly any 0",
             t->in.name, found);
    }
}

/* Is the range fewer than 4096 steps of a type with so many digits of precision after the first, but not 0? */
static bool has_few_steps(double least, double most, int digits) {
    return most > least && most - least < ldexp(4096, ilogb(fmax(fabs(least), fabs(most))) - digits);
}

/* The first column of integers which were read as f64 and which f64 may not tell apart; -1 if there is none. */
static int64_t column_with_few_steps(const table *t) {
    const napier_const_matrix *const m = &t->view;
    const bool is_long = t->in.format == FORMAT_NPY && t->in.element.size == 8 &&
                         (t->in.element.kind == ELEMENT_INT || t->in.element.kind == ELEMENT_UINT);
    for (int64_t c = 0; is_long && c < m->cols; c++) {
        const double *const x = (const double *)m->data + c * m->col_stride;
        double least = x[0], most = x[0];
        for (int64_t i = 1; i < m->rows; i++) {
            least = fmin(least, x[i * m->row_stride]);
            most = fmax(most, x[i * m->row_stride]);
        }
        if (fmax(fabs(least), fabs(most)) > 0x1p53 && has_few_steps(least, most, DBL_MANT_DIG - 1)) {
            return c;
        }
    }
    return -1;
}

/* Warns of numbers which had lost the digits in which they differ before the library got them. */
static void report_digits(const job *j, const table *t) {
    const napier_metric metric = j->q->options.neighbors.metric;
    const bool moves = metric <= NAPIER_METRIC_MINKOWSKI || metric == NAPIER_METRIC_WMINKOWSKI ||
                       metric == NAPIER_METRIC_SEUCLIDEAN || metric == NAPIER_METRIC_MAHALANOBIS;
    if (moves && is_sparse(t) && has_few_steps(t->sparse.least, t->sparse.most, FLT_MANT_DIG - 1)) {
        warn("%s: stored values differ in digits which float32 does not hold; give a dense table, of whose columns the "
             "middle is subtracted, or subtract what they have in common",
             t->in.name);
    }
    const int64_t column = moves && !is_sparse(t) ? column_with_few_steps(t) : -1;
    if (column >= 0) {
        warn("%s: column %" PRId64
             " has integers beyond 2^53 that differ in digits which float64 does not hold; subtract "
             "what they have in common",
             t->in.name, column);
    }
}

static void report_lost(const job *j, const table *t) {
    const int64_t count = napier_umap_model_indistinct(j->model);
    if (count > 0) {
        warn(
            "%s: %" PRId64 " of %" PRId64
            " rows (%.3g %%) have half of their neighbours or more at distance 0, though the rows differ: float32 does "
            "not hold the digits in which they do",
            t->in.name, count, j->rows, 100.0 * (double)count / (double)j->rows);
    }
}

static int fit(job *j, const table *t) {
    report_units(j, t);
    report_digits(j, t);
    const napier_status status = napier_umap_fit(j->context, samples_of(t), &j->q->options, &j->model);
    progress_end(&j->progress);
    if (library_status(j->context, status, t->in.name)) {
        return STATUS_FAILED;
    }
    const napier_const_matrix map = napier_umap_model_embedding(j->model);
    if (new_map(j, map.rows, map.cols)) {
        return STATUS_FAILED;
    }
    memcpy(j->map, map.data, (size_t)map.rows * (size_t)map.cols * sizeof *j->map);
    report_lost(j, t);
    report_disconnected(j, t);
    return STATUS_OK;
}

static int load_model(job *j, const char *path) {
    whole_file file;
    int status = whole_file_read(&file, path);
    if (status == STATUS_OK) {
        const napier_status called =
            napier_umap_model_from_bytes(j->context, (const uint8_t *)file.bytes, file.size, &j->model);
        status = library_status(j->context, called, file.name);
    }
    whole_file_free(&file);
    return status;
}

static int check_columns(const table *t, int64_t wanted, const char *path) {
    return t->view.cols == wanted ? STATUS_OK
                                  : complain("%s: %" PRId64 " column%s, where %s wants %" PRId64, t->in.name,
                                             t->view.cols, t->view.cols == 1 ? "" : "s", path, wanted);
}

static int transform(job *j, const table *t) {
    const char *const path = j->q->transform_path;
    if (load_model(j, path) || check_columns(t, napier_umap_model_features(j->model), path) ||
        new_map(j, t->view.rows, napier_umap_model_embedding(j->model).cols)) {
        return STATUS_FAILED;
    }
    const napier_status done =
        napier_umap_transform(j->context, j->model, samples_of(t), napier_rows_f32(j->map, j->rows, j->columns));
    progress_end(&j->progress);
    if (library_status(j->context, done, t->in.name)) {
        return STATUS_FAILED;
    }
    report_disconnected(j, t);
    return STATUS_OK;
}

static int inverse_transform(job *j, const table *t) {
    const char *const path = j->q->inverse_path;
    if (load_model(j, path) || check_columns(t, napier_umap_model_embedding(j->model).cols, path) ||
        new_map(j, t->view.rows, napier_umap_model_features(j->model))) {
        return STATUS_FAILED;
    }
    float *const points = table_floats(t, false);
    if (points == NULL) {
        return STATUS_FAILED;
    }
    const napier_status done =
        napier_umap_inverse_transform(j->context, j->model, napier_const_rows_f32(points, t->view.rows, t->view.cols),
                                      napier_rows_f32(j->map, j->rows, j->columns));
    free(points);
    return library_status(j->context, done, t->in.name);
}

/* Fills j->map. `t` is NULL if there is no IN. */
static int make_map(job *j, const table *t) {
    const umap_request *const q = j->q;
    if (q->embedding_path != NULL) {
        return STATUS_OK; /* read already, to know how many labels there must be */
    }
    if (q->inverse_path != NULL) {
        return inverse_transform(j, t);
    }
    if (q->transform_path != NULL) {
        return transform(j, t);
    }
    return set_target(j) || set_start(j, t->view.rows) || fit(j, t);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Whether the map goes to standard output: if requested, or if there is no other output. */
static bool writes_to_stdout(const umap_request *q) {
    const bool nothing_else = q->plots[0] == NULL && q->model_path == NULL && !q->quality;
    return q->shared.out_path == NULL ? nothing_else : is_standard(q->shared.out_path);
}

static int write_map(job *j, file_format in_format) {
    const umap_request *const q = j->q;
    if (q->shared.out_path == NULL && !writes_to_stdout(q)) {
        return STATUS_OK;
    }
    const array_shape shape = {.dims = 2, .dim = {j->rows, j->columns}};
    const file_format format =
        q->out_format != FORMAT_AUTO ? q->out_format : output_format(q->shared.out_path, in_format);
    return output_array(q->shared.out_path, format, &shape, j->map);
}

/* Counts the labels of each category again. */
static void count_labels(labels *l) {
    for (int32_t c = 0; c < l->categories; c++) {
        l->sizes[c] = 0;
    }
    for (int64_t i = 0; i < l->count && l->codes != NULL; i++) {
        if (l->codes[i] >= 0) {
            l->sizes[l->codes[i]]++;
        }
    }
}

/* Removes the points without a place from the map and the labels, because a plot does not show them. */
static void drop_disconnected(job *j) {
    labels *const all[] = {&j->labels, &j->targets, &j->hover};
    int64_t kept = 0;
    for (int64_t i = 0; i < j->rows; i++) {
        const float *const row = j->map + i * j->columns;
        if (isnan(*row)) { /* then all of it is */
            continue;
        }
        memmove(j->map + kept * j->columns, row, (size_t)j->columns * sizeof *row);
        for (int k = 0; k < 3; k++) {
            if (all[k]->codes != NULL) {
                all[k]->codes[kept] = all[k]->codes[i];
            }
            if (all[k]->numbers != NULL) {
                all[k]->numbers[kept] = all[k]->numbers[i];
            }
        }
        kept++;
    }
    for (int k = 0; k < 3; k++) {
        all[k]->count = all[k]->type != LABELS_AUTO ? kept : 0;
        count_labels(all[k]);
    }
    j->rows = kept;
}

static int write_plots(const job *j) {
    const umap_request *const q = j->q;
    char *const title = q->title != NULL ? labels_clean_text(q->title) : NULL;
    if (q->title != NULL && title == NULL) {
        return complain("out of memory");
    }
    const plot p = {.map = j->map,
                    .count = j->rows,
                    .components = j->columns,
                    .labels = shown_labels(j),
                    .hover = &j->hover,
                    .title = title != NULL && *title != '\0' ? title : NULL};
    int status = STATUS_OK;
    for (int i = 0; q->plots[i] != NULL && status == STATUS_OK; i++) {
        status = plot_write(&p, q->plots[i]);
    }
    free(title);
    return status;
}

/* Writes the model through the program's own output, so that it takes its final name together with the other files, and
 * not through napier_umap_model_save. */
static int write_model(const job *j) {
    const char *const path = j->q->model_path;
    size_t size = 0;
    if (path == NULL) {
        return STATUS_OK;
    }
    napier_status called = napier_umap_model_to_bytes(j->context, j->model, NULL, 0, &size);
    uint8_t *const bytes = called == NAPIER_OK ? malloc(size) : NULL;
    if (called == NAPIER_OK && bytes == NULL) {
        return out_of_memory(path);
    }
    if (called == NAPIER_OK) {
        called = napier_umap_model_to_bytes(j->context, j->model, bytes, size, &size);
    }
    const int status = library_status(j->context, called, path) || output_bytes(path, bytes, size);
    free(bytes);
    return status;
}

/* Uses all points up to 10,000, and 5,000 of more, because the cost is rows times points. */
static int report_quality(job *j, const table *t) {
    const umap_request *const q = j->q;
    const labels *const l = shown_labels(j);
    napier_umap_quality quality;
    if (!q->quality) {
        return STATUS_OK;
    }
    const int32_t *const codes = l->type == LABELS_CATEGORIES ? l->codes : NULL;
    napier_neighbors_options neighbors = q->options.neighbors;
    const int64_t points = j->rows - napier_umap_disconnected(map_of(j));
    const int64_t most = (points - 1) / 2; /* with few points, fewer neighbours are requested */
    if (most < 1) {
        return complain("%s: --quality needs 3 points or more on the map, there %s %" PRId64, t->in.name,
                        points == 1 ? "is" : "are", points);
    }
    neighbors.n_neighbors = neighbors.n_neighbors < most ? neighbors.n_neighbors : most;
    const napier_status status = napier_umap_quality_of(j->context, samples_of(t), &neighbors, map_of(j), codes,
                                                        j->rows <= 10000 ? 0 : 5000, &quality);
    progress_end(&j->progress);
    if (library_status(j->context, status, t->in.name)) {
        return STATUS_FAILED;
    }
    const bool is_taken = writes_to_stdout(q) || is_standard(q->model_path);
    FILE *const to = is_taken ? stderr : stdout;
    fprintf(to, "trustworthiness        %.4f\n", quality.trustworthiness);
    fprintf(to, "neighbour preservation %.4f\n", quality.neighbor_preservation);
    if (codes != NULL) {
        fprintf(to, "kNN accuracy           %.4f\n", quality.knn_accuracy);
    }
    return to == stdout ? finish_standard_output() : STATUS_OK;
}

/* ---- The whole command ------------------------------------------------------------------------------------------- */

/* `t` is NULL if there is no IN. */
static int do_job(job *j, const table *t) {
    const umap_request *const q = j->q;
    if (q->embedding_path != NULL) {
        j->map = read_floats(q->embedding_path, true, &j->rows, &j->columns);
        if (j->map == NULL) {
            return STATUS_FAILED;
        }
    }
    const int64_t rows = t != NULL ? t->view.rows : j->rows;
    if (q->embedding_path != NULL && rows != j->rows) {
        return complain("%s: %" PRId64 " points for the %" PRId64 " rows of %s", q->embedding_path, j->rows, rows,
                        t->in.name);
    }
    if (read_labels(j, rows) || make_map(j, t) || write_map(j, t != NULL ? t->in.format : FORMAT_NPY) ||
        write_model(j) || report_quality(j, t)) {
        return STATUS_FAILED;
    }
    if (q->plots[0] == NULL) {
        return STATUS_OK;
    }
    drop_disconnected(j);
    return j->rows > 0 ? write_plots(j) : complain("none of the points has a place on the map: nothing to plot");
}

int umap_run(void *request, napier_context *context) {
    umap_request *const q = request;
    job j = {.q = q, .context = context};
    table t = {.view = {0}};
    int status = q->shared.in_path != NULL && table_open(&t, q->shared.in_path, q->in_format, q->columns);
    if (status == STATUS_OK) {
        set_progress(&j);
        status = do_job(&j, q->shared.in_path != NULL ? &t : NULL);
        progress_end(&j.progress);
    }
    napier_umap_model_destroy(context, j.model);
    table_close(&t);
    labels_free(&j.labels);
    labels_free(&j.targets);
    labels_free(&j.hover);
    free(j.map);
    free(j.start);
    free(j.target);
    return status;
}
