/* cli/umap/umap_npz.c - SciPy's sparse matrices. The archive is read as a whole. Its members are found by the directory
 * at its end (PKWARE's APPNOTE 6.3, sections 4.3.12 and 4.3.16), because the sizes in front of the members may be
 * missing. zlib unpacks (https://zlib.net); without it the program reads only archives that are not compressed. The
 * headers of the arrays are unpacked first and their sizes compared. Only then are the arrays unpacked, block by block,
 * to their final memory. */
#include "umap_npz.h"

#include "program/memory.h"
#include "program/message.h"
#include "io/npy.h"
#include "io/source.h"

#ifdef NAPIER_ZLIB
#include <zlib.h>
#endif

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct archive {
    const char *name; /* for messages */
    const uint8_t *bytes;
    size_t size;
} archive;

static int damaged(const archive *a, const char *what) { return complain("%s: a damaged archive: %s", a->name, what); }

/* ---- The archive ------------------------------------------------------------------------------------------------- */

static uint32_t number_at(const uint8_t *bytes, int size) {
    uint32_t value = 0;
    for (int i = size - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* The record at the end of an archive: 22 bytes, and a comment of at most 65535. NULL if there is none. */
static const uint8_t *find_end(const archive *a) {
    const size_t furthest = a->size < 22 + 65535 ? a->size : 22 + 65535;
    for (size_t back = 22; back <= furthest; back++) {
        if (memcmp(a->bytes + a->size - back, "PK\5\6", 4) == 0) {
            return a->bytes + a->size - back;
        }
    }
    return NULL;
}

/* The directory's entry of a member. */
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

/* A member while it is unpacked, from front to end. */
typedef struct stream {
    const archive *archive;
    const char *name;
    const uint8_t *at; /* the compressed data */
    uint32_t packed;   /* bytes of it that remain */
    uint32_t left;     /* unpacked bytes that remain */
    uint32_t checksum; /* what the checksum must be */
    bool is_deflated, is_open;
#ifdef NAPIER_ZLIB
    z_stream inflater;
    uLong sum;
#endif
} stream;

static int open_inflater(stream *s) {
#ifdef NAPIER_ZLIB
    s->sum = crc32(0, NULL, 0);
    if (!s->is_deflated) {
        return STATUS_OK;
    }
    s->inflater.next_in = (Bytef *)(uintptr_t)s->at; /* zlib only reads it */
    s->inflater.avail_in = s->packed;
    s->is_open = inflateInit2(&s->inflater, -MAX_WBITS) == Z_OK; /* without zlib's own header */
    return s->is_open ? STATUS_OK : out_of_memory(s->archive->name);
#else
    return !s->is_deflated ? STATUS_OK
                           : complain("%s: a packed archive, which this program was built without zlib to read: "
                                      "scipy.sparse.save_npz(..., compressed=False) writes others",
                                      s->archive->name);
#endif
}

static void stream_close(stream *s) {
#ifdef NAPIER_ZLIB
    if (s->is_open) {
        inflateEnd(&s->inflater);
    }
#endif
    s->is_open = false;
}

static int stream_open(stream *s, const archive *a, const char *name) {
    member m;
    memset(s, 0, sizeof *s);
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
    if (memcmp(header, "PK\3\4", 4) != 0 || start > a->size || m.packed > a->size - start ||
        (m.method == 0 && m.size != m.packed)) {
        return damaged(a, name);
    }
    if (m.method != 0 && m.method != 8) {
        return complain("%s: %s is packed by method %" PRIu32 ", which is not supported", a->name, name, m.method);
    }
    s->archive = a;
    s->name = name;
    s->at = a->bytes + start;
    s->packed = m.packed;
    s->left = m.size;
    s->checksum = m.checksum;
    s->is_deflated = m.method == 8;
    return open_inflater(s);
}

static size_t unpack(stream *s, uint8_t *bytes, size_t size) {
#ifdef NAPIER_ZLIB
    if (s->is_deflated) {
        s->inflater.next_out = bytes;
        s->inflater.avail_out = (uInt)size;
        const int result = inflate(&s->inflater, Z_SYNC_FLUSH);
        return result == Z_OK || result == Z_STREAM_END ? size - s->inflater.avail_out : 0;
    }
#endif
    memcpy(bytes, s->at, size);
    s->at += size;
    return size;
}

/* Reads the next bytes of the member; fewer at its end, or where it is damaged. An npy_reader. */
static size_t stream_read(void *user, void *bytes, size_t size) {
    stream *const s = user;
    size = size < s->left ? size : s->left;
    const size_t got = size > 0 ? unpack(s, bytes, size) : 0;
#ifdef NAPIER_ZLIB
    s->sum = got > 0 ? crc32(s->sum, bytes, (uInt)got) : s->sum;
#endif
    s->left -= (uint32_t)got;
    return got;
}

/* Whether the member has been read to its end and its checksum is right. */
static bool is_intact(stream *s) {
#ifdef NAPIER_ZLIB
    uint8_t more;
    if (s->is_deflated) { /* the end of the compressed data, which yields no bytes */
        s->inflater.next_out = &more;
        s->inflater.avail_out = 1;
        if (inflate(&s->inflater, Z_SYNC_FLUSH) != Z_STREAM_END || s->inflater.avail_out != 1) {
            return false;
        }
    }
    return s->left == 0 && s->sum == s->checksum;
#else
    return s->left == 0;
#endif
}

/* ---- Its arrays -------------------------------------------------------------------------------------------------- */

/* A member that is an .npy file. Its header is unpacked first, so that sizes can be compared. */
typedef struct packed_array {
    stream stream;
    npy_header header;
} packed_array;

static int array_open(packed_array *p, const archive *a, const char *name) {
    char error[NPY_ERROR_SIZE];
    if (stream_open(&p->stream, a, name)) {
        return STATUS_FAILED;
    }
    const uint32_t size = p->stream.left;
    if (!npy_read_header(stream_read, &p->stream, &p->header, error)) {
        return complain("%s: %s: %s", a->name, name, error);
    }
    const int64_t needed = p->header.count * (int64_t)p->header.element.size;
    if ((int64_t)size - p->header.offset < needed) {
        return complain("%s: %s: truncated", a->name, name);
    }
    return (int64_t)size - p->header.offset == needed ? STATUS_OK : damaged(a, name);
}

static bool is_of_integers(const packed_array *p) {
    return p->header.element.kind == ELEMENT_INT || p->header.element.kind == ELEMENT_UINT;
}

/* Passes all numbers of an array to `take` in their order. `take` returns false after a message about a wrong
 * number. */
typedef bool number_taker(void *user, int64_t index, double number);

static int array_read(packed_array *p, number_taker *take, void *user) {
    enum { AT_ONCE = 4096 };
    double room[AT_ONCE]; /* of any dtype */
    const size_t size = p->header.element.size;
    const napier_dtype dtype = element_dtype(p->header.element);
    const size_t width = napier_dtype_size(dtype);
    for (int64_t done = 0; done < p->header.count;) {
        const int64_t left = p->header.count - done;
        const int64_t count = left < AT_ONCE ? left : AT_ONCE;
        char *const raw = (char *)room + (size_t)count * (width - size); /* see elements_convert */
        if (stream_read(&p->stream, raw, (size_t)count * size) != (size_t)count * size) {
            return damaged(p->stream.archive, p->stream.name);
        }
        elements_convert(p->header.element, raw, room, count);
        for (int64_t i = 0; i < count; i++, done++) {
            if (!take(user, done, element_value(dtype, (const char *)room + (size_t)i * width))) {
                return STATUS_FAILED;
            }
        }
    }
    return is_intact(&p->stream) ? STATUS_OK : damaged(p->stream.archive, p->stream.name);
}

/* Whether the text of three letters at the end is `word`, as three bytes or as three numbers of four bytes. */
static bool ends_in_word(const uint8_t *bytes, size_t size, const char *word) {
    const char wide[12] = {word[0], 0, 0, 0, word[1], 0, 0, 0, word[2], 0, 0, 0};
    return (size >= 3 && memcmp(bytes + size - 3, word, 3) == 0) ||
           (size >= 12 && memcmp(bytes + size - 12, wide, 12) == 0);
}

/* The format is an array of one text, csr or csc. */
static int check_format(const archive *a, bool *by_columns) {
    enum { MOST = 1 << 12 };
    uint8_t bytes[MOST];
    stream s;
    int status = stream_open(&s, a, "format.npy");
    const size_t size = s.left;
    if (status == STATUS_OK && (size > MOST || stream_read(&s, bytes, size) != size || !is_intact(&s))) {
        status = damaged(a, "format.npy");
    }
    stream_close(&s);
    if (status != STATUS_OK) {
        return status;
    }
    *by_columns = ends_in_word(bytes, size, "csc");
    return *by_columns || ends_in_word(bytes, size, "csr")
               ? STATUS_OK
               : complain("%s: a sparse matrix in another layout than csr or csc: use its tocsr() first", a->name);
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
        return out_of_memory(a->name);
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

/* The matrix while it is filled. */
typedef struct filling {
    const archive *archive;
    sparse_table *table;
    bool by_columns; /* csc: the transpose is read as rows, and then transposed */
    int64_t values;  /* number of values */
    double shape[2]; /* rows, columns */
} filling;

static bool take_shape(void *user, int64_t i, double number) {
    filling *const f = user;
    f->shape[f->by_columns ? 1 - i : i] = number;
    return true;
}

static bool take_value(void *user, int64_t i, double number) {
    sparse_table *const t = ((const filling *)user)->table;
    t->values[i] = (float)number;
    t->least = i == 0 || number < t->least ? number : t->least;
    t->most = i == 0 || number > t->most ? number : t->most;
    return true;
}

static bool take_column(void *user, int64_t i, double number) {
    const filling *const f = user;
    if (!is_whole(number, (double)(f->table->matrix.cols - 1))) {
        message_complain("%s: value %" PRId64 " is in column %g of %" PRId64, f->archive->name, i, number,
                         f->table->matrix.cols);
        return false;
    }
    f->table->columns[i] = (int32_t)number;
    return true;
}

static bool take_row_start(void *user, int64_t i, double number) {
    const filling *const f = user;
    int64_t *const starts = f->table->row_starts;
    const bool first = i == 0, last = i == f->table->matrix.rows;
    if ((first && number != 0) || (last && number != (double)f->values)) {
        message_complain("%s: its rows do not fit its values", f->archive->name);
        return false;
    }
    if (!is_whole(number, (double)f->values) || (i > 0 && number < (double)starts[i - 1])) {
        message_complain("%s: row %" PRId64 " does not fit its values", f->archive->name, i);
        return false;
    }
    starts[i] = (int64_t)number;
    return true;
}

static int check_shape(filling *f) {
    const double *const shape = f->shape;
    if (!is_whole(shape[0], INT32_MAX - 1.0) || !is_whole(shape[1], INT32_MAX - 1.0) || shape[0] < 1 || shape[1] < 1) {
        return complain("%s: its shape is not one of rows and columns", f->archive->name);
    }
    f->table->matrix.rows = (int64_t)shape[0];
    f->table->matrix.cols = (int64_t)shape[1];
    return STATUS_OK;
}

enum { SHAPE, DATA, INDICES, INDPTR, ARRAYS };

/* Checks the headers before anything else of the arrays is unpacked. */
static int check_sizes(filling *f, const packed_array arrays[ARRAYS]) {
    const char *const name = f->archive->name;
    const int64_t rows = f->table->matrix.rows, cols = f->table->matrix.cols;
    const int64_t columns = arrays[INDICES].header.count;
    const int64_t most = memory_usable();
    f->values = arrays[DATA].header.count;
    if (columns != f->values) {
        return complain("%s: %" PRId64 " columns for %" PRId64 " values", name, columns, f->values);
    }
    if (arrays[INDPTR].header.count != rows + 1) {
        return complain("%s: its rows do not fit its values", name);
    }
    if (f->values > rows * cols) {
        return complain("%s: %" PRId64 " values in %" PRId64 " x %" PRId64 " places", name, f->values, rows, cols);
    }
    if (!is_of_integers(&arrays[INDICES]) || !is_of_integers(&arrays[INDPTR])) {
        return complain("%s: indices or indptr are no integers", name);
    }
    if (f->values > most / 8 - rows) {
        return complain("%s: %" PRId64 " values take more than %" PRId64
                        " bytes, half of the memory that this program may use",
                        name, f->values, most);
    }
    return STATUS_OK;
}

static int make_table(const filling *f) {
    sparse_table *const t = f->table;
    t->row_starts = malloc(((size_t)t->matrix.rows + 1) * sizeof *t->row_starts);
    t->columns = malloc(((size_t)f->values + 1) * sizeof *t->columns);
    t->values = malloc(((size_t)f->values + 1) * sizeof *t->values);
    return t->row_starts != NULL && t->columns != NULL && t->values != NULL ? STATUS_OK
                                                                            : out_of_memory(f->archive->name);
}

static int read_arrays(filling *f) {
    static const char *const names[ARRAYS] = {"shape.npy", "data.npy", "indices.npy", "indptr.npy"};
    static number_taker *const takers[ARRAYS] = {take_shape, take_value, take_column, take_row_start};
    packed_array arrays[ARRAYS] = {0};
    int status = STATUS_OK;
    for (int i = 0; i < ARRAYS && status == STATUS_OK; i++) {
        status = array_open(&arrays[i], f->archive, names[i]);
        if (i == SHAPE && status == STATUS_OK) { /* a shape of other than two numbers stays 0 x 0 */
            status = (arrays[i].header.count == 2 && array_read(&arrays[i], takers[i], f)) || check_shape(f);
        }
    }
    status = status || check_sizes(f, arrays) || make_table(f);
    for (int i = DATA; i < ARRAYS && status == STATUS_OK; i++) {
        status = array_read(&arrays[i], takers[i], f);
    }
    for (int i = 0; i < ARRAYS; i++) {
        stream_close(&arrays[i].stream);
    }
    return status;
}

/* Counting sort by column: each new row has its columns in ascending order if the old rows come one after another. */
static int transpose(const archive *a, sparse_table *t) {
    const int64_t rows = t->matrix.rows, cols = t->matrix.cols, count = t->row_starts[rows];
    sparse_table to = {.matrix = {.rows = cols, .cols = rows}, .least = t->least, .most = t->most};
    to.row_starts = calloc((size_t)cols + 2, sizeof *to.row_starts);
    to.columns = malloc(((size_t)count + 1) * sizeof *to.columns);
    to.values = malloc(((size_t)count + 1) * sizeof *to.values);
    if (to.row_starts == NULL || to.columns == NULL || to.values == NULL) {
        sparse_free(&to);
        return out_of_memory(a->name);
    }
    int64_t *const next = to.row_starts + 1; /* ends as the starts of the rows behind */
    for (int64_t i = 0; i < count; i++) {
        next[t->columns[i] + 1]++;
    }
    for (int64_t c = 1; c <= cols; c++) {
        next[c] += next[c - 1];
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = t->row_starts[row]; i < t->row_starts[row + 1]; i++) {
            const int64_t place = next[t->columns[i]]++;
            to.columns[place] = (int32_t)row;
            to.values[place] = t->values[i];
        }
    }
    sparse_free(t);
    *t = to;
    return STATUS_OK;
}

/* Refuses values that have no digits in f32, which the matrix holds. */
static int check_held(const archive *a, const sparse_table *t) {
    const double size = fmax(fabs(t->least), fabs(t->most));
    return !isfinite(size) || size == 0 || (size >= (double)FLT_MIN && size <= (double)FLT_MAX)
               ? STATUS_OK
               : complain("%s: the largest value has the size %g, which float32 does not hold; multiply all by 2^%d",
                          a->name, size, -ilogb(size));
}

int sparse_read(sparse_table *t, const char *path) {
    whole_file file;
    memset(t, 0, sizeof *t);
    int status = whole_file_read(&file, path);
    const archive a = {file.name, (const uint8_t *)file.bytes, file.size};
    filling f = {.archive = &a, .table = t};
    status = status || check_format(&a, &f.by_columns) || read_arrays(&f) || (f.by_columns && transpose(&a, t));
    for (int64_t row = 0; status == STATUS_OK && row < t->matrix.rows; row++) {
        status = sort_row(&a, t, t->row_starts[row], t->row_starts[row + 1]);
    }
    status = status || check_held(&a, t);
    t->matrix.row_starts = t->row_starts;
    t->matrix.columns = t->columns;
    t->matrix.values = t->values;
    whole_file_free(&file);
    return status;
}

void sparse_free(sparse_table *t) {
    free(t->row_starts);
    free(t->columns);
    free(t->values);
    memset(t, 0, sizeof *t);
}
