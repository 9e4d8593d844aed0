/* umap/fit/model_bytes.c - a fitted map as bytes and as a file. Little endian:
 *
 *   8  magic "NAPIERUM"   4 format (1 or 2)   4 dense (1) or sparse (0)
 *   8 x 21  options, as doubles and integers (put_options)
 *   8  disconnection distance, only in format 2, which is used if the options set one
 *   8 x 6   n, columns, dense elements, sparse entries, metric values, embedding elements
 *   the metric values, dense rows or row_starts, columns and values, the embedding
 *   8  checksum: FNV-1a over all bytes before
 *
 * Everything that is read is checked before it is used: first the sizes against the size of the whole, then every
 * number. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/bytes.h"
#include "core/base/output_file.h"
#include "core/base/scope.h"
#include "umap/fit/model.h"
#include "umap/options/params.h"

static const uint8_t magic[8] = {'N', 'A', 'P', 'I', 'E', 'R', 'U', 'M'};
enum {
    MODEL_FORMAT = 1,
    MODEL_FORMAT_DISTANCE = 2,
    MODEL_HEAD = 16,
    MODEL_OPTIONS = 21 * 8,
    MODEL_SIZES = 6 * 8,
    MODEL_CHECKSUM = 8
};

typedef struct sizes {
    uint64_t n, cols, dense, sparse, metric, embedding;
} sizes;

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The format follows from the disconnection distance of the options. */
static uint32_t format_of(const napier_umap_options *o) {
    return o->disconnection_distance > 0.0 ? MODEL_FORMAT_DISTANCE : MODEL_FORMAT;
}

static uint8_t *put_options(uint8_t *at, const napier_umap_options *o) {
    at = napier_put_u64(at, (uint64_t)o->neighbors.n_neighbors);
    at = napier_put_u64(at, (uint64_t)o->neighbors.metric);
    at = napier_put_f64(at, o->neighbors.p);
    at = napier_put_u64(at, (uint64_t)o->neighbors.method);
    at = napier_put_u64(at, o->neighbors.seed);
    at = napier_put_u64(at, (uint64_t)o->n_components);
    at = napier_put_u64(at, (uint64_t)o->n_epochs);
    at = napier_put_f64(at, o->min_dist);
    at = napier_put_f64(at, o->spread);
    at = napier_put_f64(at, o->a);
    at = napier_put_f64(at, o->b);
    at = napier_put_f64(at, o->learning_rate);
    at = napier_put_f64(at, o->set_op_mix_ratio);
    at = napier_put_f64(at, o->local_connectivity);
    at = napier_put_f64(at, o->repulsion_strength);
    at = napier_put_f64(at, o->negative_sample_rate);
    at = napier_put_u64(at, (uint64_t)o->init);
    at = napier_put_u64(at, o->seed);
    at = napier_put_u64(at, o->transform_seed);
    at = napier_put_f64(at, o->target_weight);
    at = napier_put_u64(at, (uint64_t)(o->densmap != 0));
    return format_of(o) == MODEL_FORMAT_DISTANCE ? napier_put_f64(at, o->disconnection_distance) : at;
}

static sizes sizes_of(const napier_umap_model *m) {
    const napier_csr_matrix *csr = &m->data.sparse;
    return (sizes){(uint64_t)m->n,
                   (uint64_t)m->data.cols,
                   m->data.dense ? (uint64_t)(m->n * m->data.cols) : 0,
                   m->data.dense ? 0 : (uint64_t)csr->row_starts[csr->rows],
                   (uint64_t)m->metric_count,
                   (uint64_t)(m->n * m->options.n_components)};
}

static uint64_t bytes_of(const sizes *s, const napier_umap_options *o, int dense) {
    const uint64_t data = dense ? 4 * s->dense : 8 * (s->n + 1) + 8 * s->sparse;
    const uint64_t options = MODEL_OPTIONS + (format_of(o) == MODEL_FORMAT_DISTANCE ? 8 : 0);
    return MODEL_HEAD + options + MODEL_SIZES + 4 * s->metric + data + 4 * s->embedding + MODEL_CHECKSUM;
}

static uint8_t *put_data(uint8_t *at, const napier_samples_copy *data) {
    if (data->dense) {
        return napier_put_floats(at, data->dense, data->rows * data->cols);
    }
    const napier_csr_matrix *m = &data->sparse;
    for (int64_t r = 0; r <= m->rows; r++) {
        at = napier_put_u64(at, (uint64_t)m->row_starts[r]);
    }
    for (int64_t e = 0; e < m->row_starts[m->rows]; e++) {
        at = napier_put_u32(at, (uint32_t)m->columns[e]);
    }
    return napier_put_floats(at, m->values, m->row_starts[m->rows]);
}

napier_status napier_umap_model_to_bytes(napier_context *context, const napier_umap_model *model, uint8_t *bytes,
                                         size_t capacity, size_t *size) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model || !size || (!bytes && capacity > 0), "%s: NULL",
                     !model  ? "model"
                     : !size ? "size"
                             : "bytes");
    const sizes s = sizes_of(model);
    *size = (size_t)bytes_of(&s, &model->options, model->data.dense != NULL);
    if (capacity < *size) {
        return NAPIER_OK;
    }
    const napier_const_matrix map = napier_umap_model_embedding(model);
    const uintptr_t to = (uintptr_t)bytes, from = (uintptr_t)map.data;
    NAPIER_REFUSE_IF(context, to < from + (size_t)(map.rows * map.cols) * sizeof(float) && from < to + *size,
                     "bytes: overlap the model");
    uint8_t *at = napier_put_bytes(bytes, magic, sizeof magic);
    at = napier_put_u32(at, format_of(&model->options));
    at = napier_put_u32(at, model->data.dense != NULL);
    at = put_options(at, &model->options);
    at = napier_put_u64(at, s.n);
    at = napier_put_u64(at, s.cols);
    at = napier_put_u64(at, s.dense);
    at = napier_put_u64(at, s.sparse);
    at = napier_put_u64(at, s.metric);
    at = napier_put_u64(at, s.embedding);
    at = model->metric_values ? napier_put_floats(at, model->metric_values, model->metric_count) : at;
    at = put_data(at, &model->data);
    at = napier_put_floats(at, model->embedding, (int64_t)s.embedding);
    napier_put_u64(at, napier_checksum(bytes, (size_t)(at - bytes)));
    return NAPIER_OK;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static napier_status corrupt(napier_context *context, const char *what) {
    return napier_fail(context, NAPIER_CORRUPT_DATA, "model: %s", what);
}

static int64_t to_int64(uint64_t x) { return x <= INT64_MAX ? (int64_t)x : -1; }

static const uint8_t *get_options(const uint8_t *at, uint32_t format, napier_umap_options *o) {
    o->neighbors.n_neighbors = to_int64(napier_get_u64(at));
    o->neighbors.metric = (napier_metric)(napier_get_u64(at + 8) & 0xff);
    o->neighbors.p = napier_get_f64(at + 16);
    o->neighbors.method = (napier_neighbors_method)(napier_get_u64(at + 24) & 0xff);
    o->neighbors.seed = napier_get_u64(at + 32);
    o->n_components = to_int64(napier_get_u64(at + 40));
    o->n_epochs = to_int64(napier_get_u64(at + 48));
    o->min_dist = napier_get_f64(at + 56);
    o->spread = napier_get_f64(at + 64);
    o->a = napier_get_f64(at + 72);
    o->b = napier_get_f64(at + 80);
    o->learning_rate = napier_get_f64(at + 88);
    o->set_op_mix_ratio = napier_get_f64(at + 96);
    o->local_connectivity = napier_get_f64(at + 104);
    o->repulsion_strength = napier_get_f64(at + 112);
    o->negative_sample_rate = napier_get_f64(at + 120);
    o->init = NAPIER_UMAP_INIT_SPECTRAL; /* not used after the fit */
    o->seed = napier_get_u64(at + 136);
    o->transform_seed = napier_get_u64(at + 144);
    o->target_weight = napier_get_f64(at + 152);
    o->densmap = napier_get_u64(at + 160) != 0;
    at += MODEL_OPTIONS;
    if (format == MODEL_FORMAT) {
        return at;
    }
    o->disconnection_distance = napier_get_f64(at);
    return at + 8;
}

static const uint8_t *get_sizes(const uint8_t *at, sizes *s) {
    *s = (sizes){napier_get_u64(at),      napier_get_u64(at + 8),  napier_get_u64(at + 16),
                 napier_get_u64(at + 24), napier_get_u64(at + 32), napier_get_u64(at + 40)};
    return at + MODEL_SIZES;
}

/* Are the sizes consistent with one another and with the whole? No product and no sum can overflow here: each factor is
 * below 2^31, and each count is at most a quarter of the number of bytes. */
static int sizes_fit(const sizes *s, const napier_umap_options *o, int dense, size_t size) {
    const uint64_t most = UINT64_C(1) << 31, quarter = size / 4;
    if (s->n < 1 || s->n >= most || s->cols >= most) {
        return 0;
    }
    if (s->dense > quarter || s->sparse > quarter || s->metric > quarter || s->embedding > quarter) {
        return 0;
    }
    if (o->n_components < 1 || o->n_components > NAPIER_UMAP_MOST_COMPONENTS ||
        s->embedding != s->n * (uint64_t)o->n_components || s->dense != (dense ? s->n * s->cols : 0)) {
        return 0;
    }
    const uint64_t wanted = o->neighbors.metric == NAPIER_METRIC_MAHALANOBIS  ? s->cols * s->cols
                            : o->neighbors.metric == NAPIER_METRIC_SEUCLIDEAN ? s->cols
                                                                              : 0;
    return (s->metric == 0 || s->metric == wanted) && bytes_of(s, o, dense) == size;
}

static int all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return 0;
        }
    }
    return 1;
}

static napier_status get_dense(napier_context *context, const uint8_t *at, napier_samples_copy *data) {
    const int64_t elements = data->rows * data->cols;
    data->dense = napier_alloc(&context->allocator, elements > 0 ? (size_t)elements : 1, sizeof *data->dense);
    if (!data->dense) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for its data");
    }
    napier_get_floats(at, data->dense, elements);
    return all_finite(data->dense, elements) ? NAPIER_OK : corrupt(context, "data that are not finite");
}

static napier_status get_sparse(napier_context *context, const uint8_t *at, int64_t entries,
                                napier_samples_copy *data) {
    const size_t room = entries > 0 ? (size_t)entries : 1;
    int64_t *starts = napier_alloc(&context->allocator, (size_t)data->rows + 1, sizeof *starts);
    int32_t *columns = napier_alloc(&context->allocator, room, sizeof *columns);
    float *values = napier_alloc(&context->allocator, room, sizeof *values);
    data->sparse = (napier_csr_matrix){data->rows, data->cols, starts, columns, values};
    if (!starts || !columns || !values) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for its data");
    }
    int fine = 1;
    for (int64_t r = 0; r <= data->rows; r++, at += 8) {
        starts[r] = to_int64(napier_get_u64(at));
        fine = fine && starts[r] >= (r > 0 ? starts[r - 1] : 0) && starts[r] <= entries;
    }
    fine = fine && starts[0] == 0 && starts[data->rows] == entries;
    for (int64_t e = 0; e < entries; e++, at += 4) {
        const uint32_t column = napier_get_u32(at);
        columns[e] = column < (uint64_t)data->cols ? (int32_t)column : -1;
        fine = fine && columns[e] >= 0;
    }
    napier_get_floats(at, values, entries);
    for (int64_t r = 0; fine && r < data->rows; r++) {
        for (int64_t e = starts[r] + 1; e < starts[r + 1]; e++) {
            fine = fine && columns[e] > columns[e - 1];
        }
    }
    return fine && all_finite(values, entries) ? NAPIER_OK : corrupt(context, "sparse rows that cannot be");
}

static napier_status get_contents(napier_context *context, const uint8_t *at, const sizes *s, int dense,
                                  napier_umap_model *model) {
    if (s->metric > 0) {
        at = napier_get_floats(at, model->metric_values, (int64_t)s->metric);
        if (!all_finite(model->metric_values, (int64_t)s->metric)) {
            return corrupt(context, "metric values that are not finite");
        }
    }
    model->data.rows = (int64_t)s->n;
    model->data.cols = (int64_t)s->cols;
    NAPIER_TRY(dense ? get_dense(context, at, &model->data)
                     : get_sparse(context, at, (int64_t)s->sparse, &model->data));
    at += dense ? 4 * s->dense : 8 * (s->n + 1) + 8 * s->sparse;
    napier_get_floats(at, model->embedding, (int64_t)s->embedding);
    const napier_status placed =
        napier_umap_check_places(context, "embedding", napier_umap_model_embedding(model)); /* rows may be NaN */
    return placed ? corrupt(context, "an embedding that is not finite") : NAPIER_OK;
}

napier_status napier_umap_model_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                           napier_umap_model **out) {
    NAPIER_DEFAULT_FENV;
    napier_status status = napier_begin(context);
    if (status) {
        return status;
    }
    NAPIER_REFUSE_IF(context, !out || (!bytes && size > 0), "%s: NULL", out ? "bytes" : "out");
    *out = NULL;
    if (size < MODEL_HEAD + MODEL_OPTIONS + MODEL_SIZES + MODEL_CHECKSUM || memcmp(bytes, magic, sizeof magic) != 0) {
        return corrupt(context, "not a map of this library");
    }
    if (napier_get_u64(bytes + size - 8) != napier_checksum(bytes, size - 8)) {
        return corrupt(context, "the checksum does not match: damaged or cut short");
    }
    const uint32_t format = napier_get_u32(bytes + 8), dense = napier_get_u32(bytes + 12);
    if (format < MODEL_FORMAT || format > MODEL_FORMAT_DISTANCE || dense > 1) {
        return corrupt(context, "a format that this library does not know");
    }
    napier_umap_options read = NAPIER_UMAP_OPTIONS_INIT, options;
    sizes s;
    const uint8_t *at = get_sizes(get_options(bytes + MODEL_HEAD, format, &read), &s);
    if (format_of(&read) != format || !sizes_fit(&s, &read, (int)dense, size)) {
        return corrupt(context, "sizes that do not fit");
    }
    const int64_t neighbors = read.neighbors.n_neighbors;
    read.neighbors.n_neighbors = s.n == 1 && neighbors == 1 ? 2 : neighbors; /* a single point has only itself */
    status = napier_umap_check_options(context, &read, (int64_t)s.n, &options);
    if (!status && (options.neighbors.n_neighbors != neighbors || !napier_metric_name(options.neighbors.metric) ||
                    options.a != read.a || options.b != read.b)) {
        status = corrupt(context, "options that cannot be");
    }
    if (status) {
        return status == NAPIER_INVALID_ARGUMENT ? corrupt(context, "options that cannot be") : status;
    }
    napier_umap_model *model = NULL;
    status = napier_umap_model_create(context, &options, (int64_t)s.n, (int64_t)s.metric, &model);
    if (!status) {
        status = get_contents(context, at, &s, (int)dense, model);
    }
    if (status) {
        napier_umap_model_destroy(context, model);
        return status;
    }
    *out = model;
    return NAPIER_OK;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static napier_status whole_model(napier_context *context, const napier_umap_model *model, uint8_t **bytes,
                                 size_t *size) {
    napier_status status = napier_umap_model_to_bytes(context, model, NULL, 0, size);
    if (status) {
        return status;
    }
    *bytes = napier_alloc(&context->allocator, *size, 1);
    if (!*bytes) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for its %lu bytes", (unsigned long)*size);
    }
    status = napier_umap_model_to_bytes(context, model, *bytes, *size, size);
    if (status) {
        napier_free(&context->allocator, *bytes);
    }
    return status;
}

/* 0 or an errno. */
static int write_all(int fd, const uint8_t *bytes, size_t size) {
    const size_t most = (size_t)1 << 30; /* the most that some systems write at once */
    while (size > 0) {
        const ssize_t written = write(fd, bytes, size < most ? size : most);
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        bytes += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static napier_status write_file(napier_context *context, const char *path, const uint8_t *bytes, size_t size) {
    napier_output_file file;
    int error = napier_output_file_place(&file, path);
    if (!error)
        error = napier_output_file_open(&file);
    if (!error)
        error = write_all(file.fd, bytes, size);
    if (!error)
        error = napier_output_file_close(&file);
    if (!error)
        error = napier_output_file_move(&file);
    napier_output_file_discard(&file);
    return error ? napier_fail(context, NAPIER_IO_ERROR, "path: cannot write %s: %s", path, strerror(error))
                 : NAPIER_OK;
}

napier_status napier_umap_model_save(napier_context *context, const napier_umap_model *model, const char *path) {
    napier_status status = napier_begin(context);
    if (!status && (!path || !*path))
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "path: %s", path ? "empty" : "NULL");
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!status)
        status = whole_model(context, model, &bytes, &size);
    if (status) {
        return status;
    }
    status = write_file(context, path, bytes, size);
    napier_free(&context->allocator, bytes);
    return status;
}

/* Opens without waiting, so that a pipe without a writer is refused like any other file that is not regular. */
static napier_status open_file(napier_context *context, const char *path, int *fd, size_t *size) {
    struct stat info;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &info) != 0) {
        return napier_fail(context, NAPIER_IO_ERROR, "path: cannot read %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return napier_fail(context, NAPIER_IO_ERROR, "path: cannot read %s: not a regular file", path);
    }
    if ((uint64_t)info.st_size > SIZE_MAX / 2) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "path: no memory for all of %s", path);
    }
    *size = (size_t)info.st_size;
    return NAPIER_OK;
}

static napier_status read_all(napier_context *context, int fd, const char *path, uint8_t *bytes, size_t size) {
    const size_t most = (size_t)1 << 30;
    for (size_t done = 0; done < size;) {
        const ssize_t got = read(fd, bytes + done, size - done < most ? size - done : most);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return napier_fail(context, NAPIER_IO_ERROR, "path: cannot read %s: %s", path,
                               got == 0 ? "it became shorter" : strerror(errno));
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return NAPIER_OK;
}

static napier_status read_file(napier_context *context, const char *path, uint8_t **bytes, size_t *size) {
    int fd = -1;
    napier_status status = open_file(context, path, &fd, size);
    if (!status) {
        *bytes = napier_alloc(&context->allocator, *size > 0 ? *size : 1, 1);
        status = *bytes ? read_all(context, fd, path, *bytes, *size)
                        : napier_fail(context, NAPIER_OUT_OF_MEMORY, "path: no memory for %lu bytes of %s",
                                      (unsigned long)*size, path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

napier_status napier_umap_model_load(napier_context *context, const char *path, napier_umap_model **out) {
    napier_status status = napier_begin(context);
    if (!status && (!path || !*path || !out))
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: NULL or empty", out ? "path" : "out");
    if (status) {
        return status;
    }
    *out = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    status = read_file(context, path, &bytes, &size);
    if (!status) {
        status = napier_umap_model_from_bytes(context, bytes, size, out);
    }
    napier_free(&context->allocator, bytes);
    return status;
}
