/* umap/fit/model_bytes.c - a fitted map as bytes and as a file. Little endian:
 *
 *   8  magic "NAPIERUM"   4 format (1, 2 or 3)   4 dense (1) or sparse (0)
 *   8 x 21  options, as doubles and integers (`fields`)
 *   8  disconnection distance, only from format 2 on, which is used if the options set one
 *   8 x 6   n, columns, dense elements, sparse entries, metric values, embedding elements
 *   the offsets, as doubles, only in format 3, which is used if the model has them
 *   the metric values, dense rows or row_starts, columns and values, the embedding
 *   8  checksum: FNV-1a over all bytes before
 *
 * Everything that is read is checked before it is used: first the sizes against the size of the whole, then every
 * number. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/output_file.h"
#include "core/base/platform.h"
#include "core/base/scope.h"
#include "umap/fit/model.h"

static const uint8_t magic[8] = {'N', 'A', 'P', 'I', 'E', 'R', 'U', 'M'};
enum {
    MODEL_FORMAT = 1,
    MODEL_FORMAT_DISTANCE = 2,
    MODEL_FORMAT_OFFSETS = 3,
    MODEL_HEAD = 16,
    MODEL_OPTIONS = 21 * 8,
    MODEL_SIZES = 6 * 8,
    MODEL_CHECKSUM = 8
};

/* In the order of the file; only integers of 8 bytes. */
typedef struct sizes {
    uint64_t n, cols, dense, sparse, metric, embedding;
} sizes;

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* The numbers of the options in the order of the file. A WORD is an int64_t, a uint64_t or a double. */
typedef enum field_kind { WORD, FLAG, METRIC, METHOD, INIT } field_kind;
static const struct {
    field_kind kind;
    size_t at; /* in the options */
} fields[] = {
#define FIELD(kind, name) \
    { kind, offsetof(napier_umap_options, name) }
    FIELD(WORD, neighbors.n_neighbors),
    FIELD(METRIC, neighbors.metric),
    FIELD(WORD, neighbors.p),
    FIELD(METHOD, neighbors.method),
    FIELD(WORD, neighbors.seed),
    FIELD(WORD, n_components),
    FIELD(WORD, n_epochs),
    FIELD(WORD, min_dist),
    FIELD(WORD, spread),
    FIELD(WORD, a),
    FIELD(WORD, b),
    FIELD(WORD, learning_rate),
    FIELD(WORD, set_op_mix_ratio),
    FIELD(WORD, local_connectivity),
    FIELD(WORD, repulsion_strength),
    FIELD(WORD, negative_sample_rate),
    FIELD(INIT, init),
    FIELD(WORD, seed),
    FIELD(WORD, transform_seed),
    FIELD(WORD, target_weight),
    FIELD(FLAG, densmap),
    FIELD(WORD, disconnection_distance), /* not in format 1 */
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* The format follows from the offsets and the disconnection distance of the options. */
static uint32_t format_of(const napier_umap_options *o, bool has_offsets) {
    return has_offsets ? MODEL_FORMAT_OFFSETS : o->disconnection_distance > 0.0 ? MODEL_FORMAT_DISTANCE : MODEL_FORMAT;
}

static int fields_of(uint32_t format) { return format == MODEL_FORMAT ? FIELDS - 1 : FIELDS; }

static uint8_t *put_options(uint8_t *at, uint32_t format, const napier_umap_options *o) {
    for (int i = 0; i < fields_of(format); i++) {
        const void *field = (const char *)o + fields[i].at;
        uint64_t x = 0;
        switch (fields[i].kind) {
        case WORD: memcpy(&x, field, sizeof x); break;
        case FLAG: x = *(const int *)field != 0; break;
        case METRIC: x = (uint64_t) * (const napier_metric *)field; break;
        case METHOD: x = (uint64_t) * (const napier_neighbors_method *)field; break;
        case INIT: x = (uint64_t) * (const napier_umap_init *)field; break;
        }
        at = napier_put_u64(at, x);
    }
    return at;
}

static const uint8_t *get_options(const uint8_t *at, uint32_t format, napier_umap_options *o) {
    for (int i = 0; i < fields_of(format); i++, at += 8) {
        void *field = (char *)o + fields[i].at;
        const uint64_t x = napier_get_u64(at);
        switch (fields[i].kind) {
        case WORD: memcpy(field, &x, sizeof x); break;
        case FLAG: *(int *)field = x != 0; break;
        case METRIC: *(napier_metric *)field = (napier_metric)(x & 0xff); break;
        case METHOD: *(napier_neighbors_method *)field = (napier_neighbors_method)(x & 0xff); break;
        case INIT: break; /* not used after the fit */
        }
    }
    return at;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static sizes sizes_of(const napier_umap_model *m) {
    const napier_csr_matrix *csr = &m->data.sparse;
    return (sizes){(uint64_t)m->n,
                   (uint64_t)m->data.cols,
                   m->data.dense ? (uint64_t)(m->n * m->data.cols) : 0,
                   m->data.dense ? 0 : (uint64_t)csr->row_starts[csr->rows],
                   (uint64_t)m->metric_count,
                   (uint64_t)(m->n * m->options.n_components)};
}

/* The number of offsets in a file of this format. */
static uint64_t offsets_of(const sizes *s, uint32_t format, const napier_umap_options *o) {
    const int64_t count = napier_umap_offset_count(o->neighbors.metric, (int64_t)s->n, (int64_t)s->cols);
    return format == MODEL_FORMAT_OFFSETS ? (uint64_t)count : 0;
}

static uint64_t bytes_of(const sizes *s, uint32_t format, const napier_umap_options *o, int dense) {
    const uint64_t data = dense ? 4 * s->dense : 8 * (s->n + 1) + 8 * s->sparse;
    return MODEL_HEAD + 8 * (uint64_t)fields_of(format) + MODEL_SIZES + 8 * offsets_of(s, format, o) + 4 * s->metric +
           data + 4 * s->embedding + MODEL_CHECKSUM;
}

static uint8_t *put_offsets(uint8_t *at, const napier_umap_model *m) {
    for (int64_t i = 0; i < m->offset_count; i++) {
        uint64_t bits;
        memcpy(&bits, &m->offsets[i], sizeof bits);
        at = napier_put_u64(at, bits);
    }
    return at;
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
    const uint32_t format = format_of(&model->options, model->offsets != NULL);
    *size = (size_t)bytes_of(&s, format, &model->options, model->data.dense != NULL);
    if (capacity < *size) {
        return NAPIER_OK;
    }
    const napier_const_matrix map = napier_umap_model_embedding(model);
    const uintptr_t to = (uintptr_t)bytes, from = (uintptr_t)map.data;
    NAPIER_REFUSE_IF(context, to < from + (size_t)(map.rows * map.cols) * sizeof(float) && from < to + *size,
                     "bytes: overlap the model");
    uint8_t *at = napier_put_bytes(bytes, magic, sizeof magic);
    at = napier_put_u32(at, format);
    at = napier_put_u32(at, model->data.dense != NULL);
    at = put_options(at, format, &model->options);
    at = napier_put_u64(at, s.n);
    at = napier_put_u64(at, s.cols);
    at = napier_put_u64(at, s.dense);
    at = napier_put_u64(at, s.sparse);
    at = napier_put_u64(at, s.metric);
    at = napier_put_u64(at, s.embedding);
    at = put_offsets(at, model);
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

static const uint8_t *get_sizes(const uint8_t *at, sizes *s) {
    *s = (sizes){napier_get_u64(at),      napier_get_u64(at + 8),  napier_get_u64(at + 16),
                 napier_get_u64(at + 24), napier_get_u64(at + 32), napier_get_u64(at + 40)};
    return at + MODEL_SIZES;
}

/* Are the sizes consistent with one another and with the whole? No product and no sum can overflow here: each factor is
 * below 2^31, and each count is at most a quarter of the number of bytes. */
static int sizes_fit(const sizes *s, uint32_t format, const napier_umap_options *o, int dense, size_t size) {
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
    const uint64_t wanted = (uint64_t)napier_umap_metric_count(o->neighbors.metric, (int64_t)s->cols);
    return (s->metric == 0 || s->metric == wanted) && bytes_of(s, format, o, dense) == size;
}

static napier_status get_dense(napier_memory *memory, const uint8_t *at, napier_samples_copy *data) {
    const int64_t elements = data->rows * data->cols;
    data->dense = napier_take(memory, elements, sizeof *data->dense);
    NAPIER_TRY(napier_taken(memory, "model: no memory for its data"));
    napier_get_floats(at, data->dense, elements);
    return napier_first_not_finite(data->dense, elements) < 0 ? NAPIER_OK
                                                              : corrupt(memory->context, "data that are not finite");
}

static napier_status get_sparse(napier_memory *memory, const uint8_t *at, int64_t entries, napier_samples_copy *data) {
    const napier_csr_arrays m = napier_csr_take(memory, data->rows, data->cols, entries, &data->sparse);
    NAPIER_TRY(napier_taken(memory, "model: no memory for its data"));
    for (int64_t r = 0; r <= data->rows; r++, at += 8) {
        m.starts[r] = (int64_t)napier_get_u64(at);
    }
    for (int64_t e = 0; e < entries; e++, at += 4) {
        m.columns[e] = (int32_t)napier_get_u32(at);
    }
    napier_get_floats(at, m.values, entries);
    /* The check of samples looks at all starts before it reads a column, so it reads no more than `entries`. */
    const bool fine = m.starts[data->rows] == entries &&
                      !napier_samples_check(memory->context, "model", napier_samples_view(data)) &&
                      napier_first_not_finite(m.values, entries) < 0;
    return fine ? NAPIER_OK : corrupt(memory->context, "sparse rows that cannot be");
}

/* A model with offsets has dense rows. */
static napier_status get_offsets(napier_memory *memory, const uint8_t *at, uint64_t count, int dense,
                                 napier_umap_model *model) {
    if (count == 0 || !dense) {
        return corrupt(memory->context, "offsets that cannot be");
    }
    model->offset_count = (int64_t)count;
    model->offsets = napier_take(memory, model->offset_count, sizeof *model->offsets);
    NAPIER_TRY(napier_taken(memory, "model: no memory for its offsets"));
    for (uint64_t i = 0; i < count; i++, at += 8) {
        const uint64_t bits = napier_get_u64(at);
        memcpy(&model->offsets[i], &bits, sizeof bits);
        if (!isfinite(model->offsets[i])) {
            return corrupt(memory->context, "offsets that are not finite");
        }
    }
    return NAPIER_OK;
}

static napier_status get_contents(napier_memory *memory, const uint8_t *at, const sizes *s, uint32_t format, int dense,
                                  napier_umap_model *model) {
    napier_context *const context = memory->context;
    const uint64_t offsets = offsets_of(s, format, &model->options);
    if (format == MODEL_FORMAT_OFFSETS) {
        NAPIER_TRY(get_offsets(memory, at, offsets, dense, model));
        at += 8 * offsets;
    }
    if (s->metric > 0) {
        at = napier_get_floats(at, model->metric_values, (int64_t)s->metric);
        if (napier_first_not_finite(model->metric_values, (int64_t)s->metric) >= 0) {
            return corrupt(context, "metric values that are not finite");
        }
    }
    model->data = (napier_samples_copy){.rows = (int64_t)s->n, .cols = (int64_t)s->cols};
    NAPIER_TRY(dense ? get_dense(memory, at, &model->data) : get_sparse(memory, at, (int64_t)s->sparse, &model->data));
    at += dense ? 4 * s->dense : 8 * (s->n + 1) + 8 * s->sparse;
    napier_get_floats(at, model->embedding, (int64_t)s->embedding);
    const napier_status placed =
        napier_umap_check_places(context, "embedding", napier_umap_model_embedding(model)); /* rows may be NaN */
    return placed ? corrupt(context, "an embedding that is not finite") : NAPIER_OK;
}

napier_status napier_umap_model_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                           napier_umap_model **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out || (!bytes && size > 0), "%s: NULL", out ? "bytes" : "out");
    *out = NULL;
    if (size < MODEL_HEAD + MODEL_OPTIONS + MODEL_SIZES + MODEL_CHECKSUM || memcmp(bytes, magic, sizeof magic) != 0) {
        return corrupt(context, "not a map of this library");
    }
    const uint32_t format = napier_get_u32(bytes + 8), dense = napier_get_u32(bytes + 12);
    if (format < MODEL_FORMAT ||
        format > MODEL_FORMAT_OFFSETS) { /* before the checksum, which another format may not have */
        return napier_fail(context, NAPIER_CORRUPT_DATA, "model: format %lu; this library reads %d to %d",
                           (unsigned long)format, MODEL_FORMAT, MODEL_FORMAT_OFFSETS);
    }
    if (napier_get_u64(bytes + size - 8) != napier_checksum(bytes, size - 8)) {
        return corrupt(context, "the checksum does not match: damaged or cut short");
    }
    napier_umap_options read = NAPIER_UMAP_OPTIONS_INIT, options;
    sizes s;
    const uint8_t *at = get_sizes(get_options(bytes + MODEL_HEAD, format, &read), &s);
    if (dense > 1 || format_of(&read, format == MODEL_FORMAT_OFFSETS) != format ||
        !sizes_fit(&s, format, &read, (int)dense, size)) {
        return corrupt(context, "sizes that do not fit");
    }
    const int64_t neighbors = read.neighbors.n_neighbors;
    read.neighbors.n_neighbors = s.n == 1 && neighbors == 1 ? 2 : neighbors; /* a single point has only itself */
    const napier_status status = napier_umap_check_options(context, &read, (int64_t)s.n, &options);
    if (status && status != NAPIER_INVALID_ARGUMENT) {
        return status;
    }
    if (status || options.neighbors.n_neighbors != neighbors || !napier_metric_name(options.neighbors.metric) ||
        options.a != read.a || options.b != read.b) {
        return corrupt(context, "options that cannot be");
    }
    napier_umap_model *model;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_umap_model_begin(&memory, &options, (int64_t)s.n, (int64_t)s.metric, &model));
    NAPIER_TRY(get_contents(&memory, at, &s, format, (int)dense, model));
    *out = napier_umap_model_finish(model, &memory);
    return NAPIER_OK;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

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
    size_t size = 0;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !path || !*path, "path: %s", path ? "empty" : "NULL");
    NAPIER_TRY(napier_umap_model_to_bytes(context, model, NULL, 0, &size));
    NAPIER_MEMORY(memory, context);
    uint8_t *bytes = napier_take(&memory, (int64_t)size, 1);
    NAPIER_TRY(napier_taken(&memory, "model: no memory for its %lu bytes", (unsigned long)size));
    NAPIER_TRY(napier_umap_model_to_bytes(context, model, bytes, size, &size));
    return write_file(context, path, bytes, size);
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

napier_status napier_umap_model_load(napier_context *context, const char *path, napier_umap_model **out) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !path || !*path || !out, "%s: NULL or empty", out ? "path" : "out");
    *out = NULL;
    int fd = -1;
    size_t size = 0;
    NAPIER_MEMORY(memory, context);
    napier_status status = open_file(context, path, &fd, &size);
    uint8_t *bytes = status ? NULL : napier_take(&memory, (int64_t)size, 1);
    if (!status) {
        status = napier_taken(&memory, "path: no memory for %lu bytes of %s", (unsigned long)size, path);
    }
    if (!status) {
        status = read_all(context, fd, path, bytes, size);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status ? status : napier_umap_model_from_bytes(context, bytes, size, out);
}
