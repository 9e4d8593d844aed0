/* cli/io/input.c - reads arrays. */
#define _POSIX_C_SOURCE 200809L

#include "input.h"

#include "program/message.h"
#include "program/memory.h"
#include "program/system.h"
#include "npy.h"
#include "source.h"

#include <inttypes.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int read_error(const input *in) { return complain("%s: %s", in->name, strerror(errno)); }

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int open_file(input *in, const char *path) {
    in->file = source_open(path, &in->name);
    if (in->file == NULL) {
        return STATUS_FAILED;
    }
    in->first = source_size(in->file) >= 0 ? (int64_t)ftello(in->file) : -1;
    return STATUS_OK;
}

/* A file whose first bytes have been read ahead. */
typedef struct peeked_file {
    FILE *file;
    unsigned char bytes[NPY_MAGIC_SIZE];
    size_t size; /* bytes read ahead */
    size_t used; /* how many of these bytes have been returned */
} peeked_file;

static size_t read_peeked(void *user, void *bytes, size_t size) {
    peeked_file *const peeked = user;
    const size_t kept = peeked->size - peeked->used;
    const size_t again = kept < size ? kept : size;
    memcpy(bytes, peeked->bytes + peeked->used, again);
    peeked->used += again;
    return again + (again < size ? fread((char *)bytes + again, 1, size - again, peeked->file) : 0);
}

/* Reports a regular file that is too short before any work is done. */
static int check_file_size(const input *in, int64_t needed) {
    if (in->first < 0) {
        return STATUS_OK;
    }
    const int64_t have = source_size(in->file) - in->first;
    if (have < needed) {
        return complain("%s: truncated: the header announces %" PRId64 " bytes of elements, the file has %" PRId64,
                        in->name, needed, have > 0 ? have : 0);
    }
    if (have > needed) {
        warn("%s: %" PRId64 " bytes after the array are ignored", in->name, have - needed);
    }
    return STATUS_OK;
}

static int open_npy(input *in, peeked_file *peeked) {
    npy_header header;
    char error[NPY_ERROR_SIZE];
    if (!npy_read_header(read_peeked, peeked, &header, error)) {
        return ferror(in->file) ? read_error(in) : complain("%s: %s", in->name, error);
    }
    in->element = header.element;
    in->shape = header.shape;
    in->count = header.count;
    in->dtype = element_dtype(header.element);
    in->first += in->first >= 0 ? header.offset : 0;
    return check_file_size(in, in->count * (int64_t)in->element.size);
}

static int open_text(input *in, const peeked_file *peeked, file_format format, const char *columns) {
    const char separator = format == FORMAT_AUTO ? '\0' : format_separator(format);
    if (text_open(&in->text, in->file, in->name, separator, peeked->bytes, peeked->size, columns)) {
        return STATUS_FAILED;
    }
    in->format = in->text.separator == '\t' ? FORMAT_TSV : FORMAT_CSV;
    in->dtype = NAPIER_F64;
    in->count = -1;
    in->shape.dims = 2;
    in->shape.dim[0] = -1;
    in->shape.dim[1] = in->text.columns;
    /* A vector must be known as a whole. */
    return in->text.columns == 1 ? input_load(in) : STATUS_OK;
}

int input_open(input *in, const char *path, file_format format) { return input_open_columns(in, path, format, NULL); }

int input_open_columns(input *in, const char *path, file_format format, const char *columns) {
    memset(in, 0, sizeof *in);
    if (open_file(in, path)) {
        return STATUS_FAILED;
    }
    peeked_file peeked = {.file = in->file};
    peeked.size = fread(peeked.bytes, 1, sizeof peeked.bytes, in->file);
    if (ferror(in->file)) {
        return read_error(in);
    }
    if (peeked.size == 0) {
        return complain("%s: the file is empty", in->name);
    }
    if (format == FORMAT_AUTO) {
        format = memcmp(peeked.bytes, NPY_MAGIC, peeked.size) == 0 ? FORMAT_NPY : format_of_name(path);
    }
    in->format = format;
    if (format == FORMAT_NPY && columns != NULL) {
        return complain("--columns: %s is an .npy file; only columns of CSV and TSV are chosen", in->name);
    }
    return format == FORMAT_NPY ? open_npy(in, &peeked) : open_text(in, &peeked, format, columns);
}

void input_close(input *in) {
    text_close(&in->text);
    free(in->table);
    scratch_free(&in->room);
    if (in->mapping != NULL) {
        napier_unmap_file(in->mapping, in->mapping_size);
    }
    source_close(in->file);
    memset(in, 0, sizeof *in);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static int truncated(const input *in, int64_t elements) {
    if (ferror(in->file)) {
        return read_error(in);
    }
    return complain("%s: truncated: the header announces %" PRId64 " elements, the file has %" PRId64, in->name,
                    in->count, elements);
}

/* Stored elements go to the end of the memory that they will fill; see elements_convert. */
static char *raw_place(const input *in, void *out, int64_t count) {
    return (char *)out + (size_t)count * (napier_dtype_size(in->dtype) - in->element.size);
}

static int read_npy(input *in, void *out, int64_t count) {
    char *const raw = raw_place(in, out, count);
    const size_t got = fread(raw, in->element.size, (size_t)count, in->file);
    if (got != (size_t)count) {
        return truncated(in, in->next + (int64_t)got);
    }
    elements_convert(in->element, raw, out, count);
    return STATUS_OK;
}

/* Elements in.next .. of a Fortran-ordered array, counted in C order. */
static void read_unordered(const input *in, void *out, int64_t count) {
    const array_shape *const shape = &in->shape;
    const size_t size = in->element.size;
    int64_t stride[ARRAY_MAX_DIMS]; /* in elements */
    int64_t index[ARRAY_MAX_DIMS];
    int64_t at = 0;
    for (int64_t d = 0, product = 1; d < shape->dims; d++) {
        stride[d] = product;
        product *= shape->dim[d];
    }
    for (int64_t d = shape->dims - 1, rest = in->next; d >= 0; d--) {
        index[d] = rest % shape->dim[d];
        rest /= shape->dim[d];
        at += index[d] * stride[d];
    }
    char *const raw = raw_place(in, out, count);
    for (int64_t i = 0; i < count; i++) {
        memcpy(raw + (size_t)i * size, in->unordered + (size_t)at * size, size);
        for (int d = shape->dims - 1; d >= 0; d--) { /* counts up, as an odometer does */
            at += stride[d];
            if (++index[d] < shape->dim[d]) {
                break;
            }
            at -= stride[d] * shape->dim[d];
            index[d] = 0;
        }
    }
    elements_convert(in->element, raw, out, count);
}

static int read_rows(input *in, double *out, int64_t count, int64_t *got) {
    const int64_t columns = in->text.columns;
    bool more = true;
    *got = 0;
    while (more && *got + columns <= count) {
        if (text_read_row(&in->text, out + *got, &more)) {
            return STATUS_FAILED;
        }
        *got += more ? columns : 0;
    }
    return STATUS_OK;
}

int input_read(input *in, void *out, int64_t count, int64_t *got) {
    if (in->count < 0) {
        return read_rows(in, out, count, got);
    }
    int status = STATUS_OK;
    *got = smaller(count, in->count - in->next);
    if (*got == 0) {
        return STATUS_OK;
    }
    if (in->table != NULL) {
        memcpy(out, in->table + in->next, (size_t)*got * sizeof *in->table);
    } else if (in->unordered != NULL) {
        read_unordered(in, out, *got);
    } else {
        status = read_npy(in, out, *got);
    }
    in->next += *got;
    return status;
}

/* ---- More than one pass ------------------------------------------------------------------------------------------ */

static int grow_table(input *in, int64_t *capacity) {
    const int64_t columns = in->text.columns;
    const int64_t wanted = *capacity > 0 ? *capacity * 2 : (columns > 4096 ? columns : 4096 / columns * columns);
    const int64_t most = memory_usable();
    if (wanted > most / (int64_t)sizeof(double)) {
        return complain("%s: the numbers of this text take more than %" PRId64
                        " bytes, half of the memory that this program may use: an .npy file need not fit it",
                        in->name, most);
    }
    return memory_grow(&in->table, capacity, wanted, sizeof *in->table) ? STATUS_OK : out_of_memory(in->name);
}

int input_load(input *in) {
    if (in->count >= 0) {
        return STATUS_OK;
    }
    const int64_t columns = in->text.columns;
    int64_t count = 0;
    int64_t capacity = 0;
    int64_t got = 0;
    do {
        if ((count + columns > capacity && grow_table(in, &capacity)) ||
            read_rows(in, in->table + count, capacity - count, &got)) {
            return STATUS_FAILED;
        }
        count += got;
    } while (got > 0);
    in->count = count;
    in->shape.dims = columns == 1 ? 1 : 2;
    in->shape.dim[0] = count / columns;
    in->shape.dim[1] = columns;
    return STATUS_OK;
}

static bool is_seekable(const input *in) { return in->table != NULL || in->unordered != NULL || in->first >= 0; }

int input_make_seekable(input *in) {
    if (is_seekable(in)) {
        return STATUS_OK;
    }
    char buffer[1 << 16];
    FILE *const copy = scratch_file();
    int64_t left = in->count * (int64_t)in->element.size;
    int status = copy != NULL ? STATUS_OK : STATUS_FAILED;
    while (status == STATUS_OK && left > 0) {
        const size_t size = (size_t)smaller(left, sizeof buffer);
        const size_t got = fread(buffer, 1, size, in->file);
        if (got < size) {
            status = truncated(in, in->count - (left - (int64_t)got + (int64_t)in->element.size - 1) /
                                                   (int64_t)in->element.size);
        } else if (fwrite(buffer, 1, size, copy) < size) {
            status = complain("temporary file (TMPDIR): %s", strerror(errno));
        }
        left -= (int64_t)size;
    }
    if (status == STATUS_OK && (fflush(copy) != 0 || fseeko(copy, 0, SEEK_SET) != 0)) {
        status = complain("temporary file (TMPDIR): %s", strerror(errno));
    }
    if (status != STATUS_OK) {
        source_close(copy);
        return status;
    }
    source_close(in->file);
    in->file = copy;
    in->first = 0;
    return STATUS_OK;
}

int input_arrive(input *in) {
    enum { BELIEVED = 16 << 20 };
    if (is_seekable(in) || in->count <= BELIEVED / (int64_t)in->element.size) {
        return STATUS_OK;
    }
    return input_make_seekable(in);
}

int input_seek(input *in, int64_t index) {
    in->next = index;
    if (in->table != NULL || in->unordered != NULL) {
        return STATUS_OK;
    }
    const int64_t position = in->first + index * (int64_t)in->element.size;
    return fseeko(in->file, (off_t)position, SEEK_SET) == 0 ? STATUS_OK : read_error(in);
}

/* Maps the file's elements. Returns NULL if that is not possible. */
static const void *map_file(input *in) {
    if (in->first < 0 || in->count == 0) {
        return NULL;
    }
    const size_t size = (size_t)(in->first + in->count * (int64_t)in->element.size);
    if (in->mapping == NULL) {
        in->mapping = napier_map_file(fileno(in->file), size);
        in->mapping_size = size;
    }
    return in->mapping != NULL ? (const char *)in->mapping + in->first : NULL;
}

const void *input_map(input *in) {
    if (in->table != NULL) {
        return in->table;
    }
    if (in->count < 0 || in->unordered != NULL || !element_is_native(in->element) ||
        in->first % (int64_t)in->element.size != 0) {
        return NULL;
    }
    return map_file(in);
}

int input_elements(input *in, scratch *room, const void **elements) {
    int64_t got;
    if (input_arrive(in)) {
        return STATUS_FAILED;
    }
    *elements = input_map(in);
    if (*elements != NULL) {
        return STATUS_OK;
    }
    if (scratch_new(room, in->count * (int64_t)napier_dtype_size(in->dtype), "")) {
        return STATUS_FAILED;
    }
    *elements = room->data;
    return input_read(in, room->data, in->count, &got);
}

void input_narrow(input *in) {
    for (int64_t i = 0; i < in->count; i++) {
        const float narrowed = (float)in->table[i];
        memcpy((char *)in->table + (size_t)i * sizeof narrowed, &narrowed,
               sizeof narrowed); /* before the next number */
    }
    in->dtype = NAPIER_F32;
}

int input_use_c_order(input *in) {
    const bool same = !in->shape.fortran || in->shape.dims < 2 || in->count == 0;
    in->shape.fortran = false;
    if (same) {
        return STATUS_OK;
    }
    if (input_arrive(in)) {
        return STATUS_FAILED;
    }
    in->unordered = map_file(in);
    if (in->unordered != NULL) {
        return STATUS_OK;
    }
    if (scratch_new(&in->room, in->count * (int64_t)in->element.size, "")) {
        return STATUS_FAILED;
    }
    const size_t got = fread(in->room.data, in->element.size, (size_t)in->count, in->file);
    if (got != (size_t)in->count) {
        return truncated(in, (int64_t)got);
    }
    in->unordered = in->room.data;
    return STATUS_OK;
}

int input_open_whole(input *in, const char *path) {
    return input_open(in, path, FORMAT_AUTO) || input_load(in) || input_use_c_order(in);
}

int input_take(input *in, number_taker *take, void *user) {
    enum { AT_ONCE = 4096 };
    double elements[AT_ONCE]; /* of any dtype */
    const size_t size = napier_dtype_size(in->dtype);
    int64_t index = 0;
    int64_t got = 0;
    while (input_read(in, elements, AT_ONCE, &got) == STATUS_OK) {
        for (int64_t i = 0; i < got; i++, index++) {
            const double value = element_value(in->dtype, (const char *)elements + (size_t)i * size);
            const char *const wrong = take(user, value);
            if (wrong != NULL) {
                return complain("%s: element %" PRId64 " is %g, which %s", in->name, index, value, wrong);
            }
        }
        if (got == 0) {
            return STATUS_OK;
        }
    }
    return STATUS_FAILED;
}
