/* cli/umap_npz.c - SciPy's sparse matrices. The archive is read as a whole; its members are found by the directory at its
 * end (PKWARE's APPNOTE 6.3, sections 4.3.12 and 4.3.16), because the sizes in front of them need not be there. */
#include "umap_npz.h"

#include "message.h"
#include "npy.h"
#include "umap_inflate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct archive {
    const char *name; /* for messages */
    uint8_t *bytes;
    size_t size;
} archive;

static int no_memory(const archive *a) {
    complain("%s: out of memory", a->name);
    return STATUS_FAILED;
}
static int damaged(const archive *a, const char *what) {
    complain("%s: a damaged archive: %s", a->name, what);
    return STATUS_FAILED;
}

/* ---- The archive ------------------------------------------------------------------------------------------------- */

static uint32_t number_at(const uint8_t *bytes, int size) {
    uint32_t value = 0;
    for (int i = size - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static int read_archive(archive *a, const char *path) {
    FILE *const file = fopen(path, "rb");
    a->name = *path != '\0' ? path : "''";
    if (file == NULL) {
        return complain("%s: %s", a->name, strerror(errno));
    }
    size_t capacity = 0;
    size_t got = 0;
    int status = STATUS_OK;
    do {
        a->size += got;
        if (a->size == capacity) {
            capacity = capacity > 0 ? capacity * 2 : 1 << 20;
            uint8_t *const bytes = realloc(a->bytes, capacity);
            status = bytes != NULL ? STATUS_OK : no_memory(a);
            a->bytes = bytes != NULL ? bytes : a->bytes;
        }
        got = status == STATUS_OK ? fread(a->bytes + a->size, 1, capacity - a->size, file) : 0;
    } while (got > 0);
    if (status == STATUS_OK && ferror(file)) {
        status = complain("%s: %s", a->name, strerror(errno));
    }
    fclose(file);
    return status;
}

/* The record at the end of an archive: 22 bytes, and a comment of at most 65535. NULL: there is none. */
static const uint8_t *find_end(const archive *a) {
    const size_t furthest = a->size < 22 + 65535 ? a->size : 22 + 65535;
    for (size_t back = 22; back <= furthest; back++) {
        if (memcmp(a->bytes + a->size - back, "PK\5\6", 4) == 0) {
            return a->bytes + a->size - back;
        }
    }
    return NULL;
}

/* What the directory says of a member. */
typedef struct member {
    uint32_t method, checksum, packed, size, header;
} member;

static bool find_member(const archive *a, const char *name, member *m) {
    const uint8_t *const end = find_end(a);
    const size_t name_size = strlen(name);
    if (end == NULL) {
        return false;
    }
    const uint32_t count = number_at(end + 10, 2);
    size_t at = number_at(end + 16, 4);
    for (uint32_t i = 0; i < count; i++) {
        if (at > a->size || a->size - at < 46 || memcmp(a->bytes + at, "PK\1\2", 4) != 0) {
            return false;
        }
        const uint8_t *const entry = a->bytes + at;
        const size_t entry_name = number_at(entry + 28, 2);
        const size_t rest = entry_name + number_at(entry + 30, 2) + number_at(entry + 32, 2);
        if (rest > a->size - at - 46) {
            return false;
        }
        if (entry_name == name_size && memcmp(entry + 46, name, name_size) == 0) {
            *m = (member){number_at(entry + 10, 2), number_at(entry + 16, 4), number_at(entry + 20, 4),
                          number_at(entry + 24, 4), number_at(entry + 42, 4)};
            return true;
        }
        at += 46 + rest;
    }
    return false;
}

/* The member's bytes, to be freed. */
static int unpack(const archive *a, const char *name, uint8_t **bytes, size_t *size) {
    member m;
    if (find_end(a) == NULL) {
        return damaged(a, "its directory is missing");
    }
    if (!find_member(a, name, &m)) {
        return complain("%s: no %s in it: not a sparse matrix of SciPy", a->name, name);
    }
    if (m.size == UINT32_MAX || m.packed == UINT32_MAX) {
        return complain("%s: %s has 4 GB or more, which is not supported", a->name, name);
    }
    if (m.header > a->size || a->size - m.header < 30) {
        return damaged(a, name);
    }
    const uint8_t *const header = a->bytes + m.header;
    const size_t start = (size_t)m.header + 30 + number_at(header + 26, 2) + number_at(header + 28, 2);
    /* Deflate packs at most 1032 to 1: a member that claims more is not worth the memory. */
    if (memcmp(header, "PK\3\4", 4) != 0 || start > a->size || m.packed > a->size - start ||
        m.size / 1032 > m.packed + 1 || (m.method == 0 && m.size != m.packed)) {
        return damaged(a, name);
    }
    if (m.method != 0 && m.method != 8) {
        return complain("%s: %s is packed by method %" PRIu32 ", which is not supported", a->name, name, m.method);
    }
    *bytes = malloc((size_t)m.size + 1);
    *size = m.size;
    if (*bytes == NULL) {
        return no_memory(a);
    }
    bool good = true;
    if (m.method == 8) {
        good = inflate_bytes(a->bytes + start, m.packed, *bytes, m.size);
    } else {
        memcpy(*bytes, a->bytes + start, m.size);
    }
    return good && crc32_bytes(*bytes, m.size) == m.checksum ? STATUS_OK : damaged(a, name);
}

/* ---- Its arrays -------------------------------------------------------------------------------------------------- */

/* A member that is an .npy file, as numbers to be freed. */
static int read_numbers(const archive *a, const char *name, double **numbers, int64_t *count) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    npy_header header = {0};
    char error[NPY_ERROR_SIZE];
    char *converted = NULL;
    int status = unpack(a, name, &bytes, &size);
    if (status == STATUS_OK && !npy_parse(bytes, size, &header, error)) {
        status = complain("%s: %s: %s", a->name, name, error);
    }
    if (status == STATUS_OK && (int64_t)size - header.offset < header.count * (int64_t)header.element.size) {
        status = complain("%s: %s: truncated", a->name, name);
    }
    if (status == STATUS_OK) {
        *count = header.count;
        *numbers = malloc(((size_t)header.count + 1) * sizeof **numbers);
        converted = calloc((size_t)header.count + 1, sizeof(double));
        status = *numbers != NULL && converted != NULL ? STATUS_OK : no_memory(a);
    }
    if (status == STATUS_OK) {
        const napier_dtype dtype = element_dtype(header.element);
        elements_convert(header.element, bytes + header.offset, converted, header.count);
        for (int64_t i = 0; i < header.count; i++) {
            (*numbers)[i] = element_value(dtype, converted + (size_t)i * napier_dtype_size(dtype));
        }
    }
    free(converted);
    free(bytes);
    return status;
}

/* The word is an array of one text, whose last bytes it is: csr as three bytes, or as three numbers of four bytes. */
static int check_format(const archive *a) {
    static const char wide[12] = {'c', 0, 0, 0, 's', 0, 0, 0, 'r', 0, 0, 0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    const int status = unpack(a, "format.npy", &bytes, &size);
    const bool good = status == STATUS_OK && ((size >= 3 && memcmp(bytes + size - 3, "csr", 3) == 0) ||
                                              (size >= 12 && memcmp(bytes + size - 12, wide, 12) == 0));
    free(bytes);
    if (status == STATUS_OK && !good) {
        return complain("%s: a sparse matrix in another layout than csr: use its tocsr() first", a->name);
    }
    return status;
}

static bool is_whole(double x, double most) { return x >= 0 && x <= most && floor(x) == x; }

/* ---- The matrix -------------------------------------------------------------------------------------------------- */

typedef struct element {
    int32_t column;
    float value;
} element;

static int compare_elements(const void *a, const void *b) {
    const int32_t x = ((const element *)a)->column;
    const int32_t y = ((const element *)b)->column;
    return (x > y) - (x < y);
}

static int sort_row(const archive *a, sparse_table *t, int64_t start, int64_t end) {
    bool sorted = true;
    for (int64_t i = start + 1; i < end; i++) {
        sorted = sorted && t->columns[i - 1] < t->columns[i];
    }
    if (sorted) {
        return STATUS_OK;
    }
    element *const row = malloc((size_t)(end - start) * sizeof *row);
    if (row == NULL) {
        return no_memory(a);
    }
    for (int64_t i = start; i < end; i++) {
        row[i - start] = (element){t->columns[i], t->values[i]};
    }
    qsort(row, (size_t)(end - start), sizeof *row, compare_elements);
    for (int64_t i = start; i < end; i++) {
        t->columns[i] = row[i - start].column;
        t->values[i] = row[i - start].value;
    }
    free(row);
    return STATUS_OK;
}

static int take_shape(const archive *a, sparse_table *t) {
    double *shape = NULL;
    int64_t count = 0;
    int status = read_numbers(a, "shape.npy", &shape, &count);
    if (status == STATUS_OK && (count != 2 || !is_whole(shape[0], INT32_MAX - 1.0) ||
                                !is_whole(shape[1], INT32_MAX - 1.0) || shape[0] < 1 || shape[1] < 1)) {
        status = complain("%s: its shape is not one of rows and columns", a->name);
    }
    if (status == STATUS_OK) {
        t->matrix.rows = (int64_t)shape[0];
        t->matrix.cols = (int64_t)shape[1];
    }
    free(shape);
    return status;
}

static int take_values(const archive *a, sparse_table *t, int64_t *count) {
    double *data = NULL;
    int status = read_numbers(a, "data.npy", &data, count);
    if (status == STATUS_OK) {
        t->values = malloc(((size_t)*count + 1) * sizeof *t->values);
        status = t->values != NULL ? STATUS_OK : no_memory(a);
    }
    for (int64_t i = 0; status == STATUS_OK && i < *count; i++) {
        t->values[i] = (float)data[i];
    }
    free(data);
    return status;
}

static int take_columns(const archive *a, sparse_table *t, int64_t wanted) {
    double *indices = NULL;
    int64_t count = 0;
    int status = read_numbers(a, "indices.npy", &indices, &count);
    if (status == STATUS_OK && count != wanted) {
        status = complain("%s: %" PRId64 " columns for %" PRId64 " values", a->name, count, wanted);
    }
    if (status == STATUS_OK) {
        t->columns = malloc(((size_t)count + 1) * sizeof *t->columns);
        status = t->columns != NULL ? STATUS_OK : no_memory(a);
    }
    for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
        if (!is_whole(indices[i], (double)(t->matrix.cols - 1))) {
            status =
                complain("%s: value %" PRId64 " is in column %g of %" PRId64, a->name, i, indices[i], t->matrix.cols);
        } else {
            t->columns[i] = (int32_t)indices[i];
        }
    }
    free(indices);
    return status;
}

static int take_row_starts(const archive *a, sparse_table *t, int64_t values) {
    double *indptr = NULL;
    int64_t count = 0;
    int status = read_numbers(a, "indptr.npy", &indptr, &count);
    if (status == STATUS_OK && (count != t->matrix.rows + 1 || indptr[0] != 0 || indptr[count - 1] != (double)values)) {
        status = complain("%s: its rows do not fit its values", a->name);
    }
    if (status == STATUS_OK) {
        t->row_starts = malloc((size_t)count * sizeof *t->row_starts);
        status = t->row_starts != NULL ? STATUS_OK : no_memory(a);
    }
    for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
        if (!is_whole(indptr[i], (double)values) || (i > 0 && indptr[i] < indptr[i - 1])) {
            status = complain("%s: row %" PRId64 " does not fit its values", a->name, i);
        } else {
            t->row_starts[i] = (int64_t)indptr[i];
        }
    }
    free(indptr);
    return status;
}

bool is_npz(const char *path) {
    const size_t size = strlen(path);
    const char *const tail = size >= 4 ? path + size - 4 : "";
    return strcmp(tail, ".npz") == 0 || strcmp(tail, ".NPZ") == 0;
}

int sparse_read(sparse_table *t, const char *path) {
    archive a = {0};
    int64_t count = 0;
    memset(t, 0, sizeof *t);
    int status = read_archive(&a, path);
    if (status == STATUS_OK) {
        status = check_format(&a);
    }
    if (status == STATUS_OK) {
        status = take_shape(&a, t);
    }
    if (status == STATUS_OK) {
        status = take_values(&a, t, &count);
    }
    if (status == STATUS_OK) {
        status = take_columns(&a, t, count);
    }
    if (status == STATUS_OK) {
        status = take_row_starts(&a, t, count);
    }
    for (int64_t row = 0; status == STATUS_OK && row < t->matrix.rows; row++) {
        status = sort_row(&a, t, t->row_starts[row], t->row_starts[row + 1]);
    }
    t->matrix.row_starts = t->row_starts;
    t->matrix.columns = t->columns;
    t->matrix.values = t->values;
    free(a.bytes);
    return status;
}

void sparse_free(sparse_table *t) {
    free(t->row_starts);
    free(t->columns);
    free(t->values);
    memset(t, 0, sizeof *t);
}
