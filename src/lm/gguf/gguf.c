/* lm/gguf/gguf.c - maps a GGUF file, checks all that its header says, and finds values and tensors. */
#define _POSIX_C_SOURCE 200809L

#include "lm/gguf/gguf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/platform.h"
#include "core/base/scope.h"
#include "lm/text/file.h"
#include "lm/text/json.h"

static const size_t most_header = (size_t)1 << 26; /* bytes; 150,000 tokens and their merges take less than 2^23 */
enum { MOST_VALUES = 1 << 16, MOST_TENSORS = 1 << 20, LEAST_VALUE = 13, LEAST_TENSOR = 24, MOST_ALIGNMENT = 1 << 16 };
static const int64_t most_elements = (int64_t)1 << 53;

napier_status napier_gguf_fail(napier_gguf *file, napier_status status, const char *format, ...) {
    char text[NAPIER_ERROR_TEXT];
    const size_t length = strlen(file->path), most = 96; /* the end of a long path */
    va_list arguments;
    if (file->status) {
        return file->status;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return file->status = napier_fail(file->context, status, "%s%s: %s", length > most ? "..." : "",
                                      file->path + (length > most ? length - most : 0), text);
}

static napier_shown show(napier_text text) { return napier_show(text.bytes, text.size); }

/* ---- Numbers and texts of the header ----------------------------------------------------------------------------- */

typedef struct reader {
    napier_gguf *file;
    const uint8_t *at, *end;
} reader;

static size_t left_of(const reader *r) { return (size_t)(r->end - r->at); }

/* True if there are so many bytes; otherwise the file is too short, at what the message names. */
static bool has(reader *r, uint64_t bytes, const char *what) {
    if (!r->file->status && bytes > left_of(r)) {
        napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA, "ends at byte %zu, within %s", r->file->size,
                         napier_show_text(what).text);
    }
    return !r->file->status;
}

static uint64_t number_at(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

/* A number of 1 to 8 bytes; 0 after a failure. */
static uint64_t take(reader *r, size_t bytes, const char *what) {
    if (!has(r, bytes, what)) {
        return 0;
    }
    r->at += bytes;
    return number_at(r->at - bytes, bytes);
}

static napier_text take_text(reader *r, const char *what) {
    const uint64_t size = take(r, 8, what);
    if (!has(r, size, what)) {
        return (napier_text){"", 0};
    }
    r->at += size;
    return (napier_text){(const char *)r->at - size, (size_t)size};
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static const uint8_t kind_bytes[NAPIER_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static void take_elements(reader *r, napier_gguf_value *v) {
    const napier_shown key = show(v->key);
    const char *const what = key.text;
    v->at = r->at;
    if (v->kind == NAPIER_GGUF_TEXT) {
        for (uint64_t i = 0; i < v->count && !r->file->status; i++) {
            (void)take_text(r, what);
        }
    } else if (v->count > left_of(r) / kind_bytes[v->kind]) {
        (void)has(r, UINT64_MAX, what);
    } else {
        r->at += v->count * kind_bytes[v->kind];
    }
}

static void take_value(reader *r, napier_gguf_value *v) {
    v->key = take_text(r, "a key");
    const napier_shown key = show(v->key);
    uint64_t kind = take(r, 4, key.text);
    v->count = 1;
    v->is_array = kind == NAPIER_GGUF_ARRAY;
    if (v->is_array) {
        kind = take(r, 4, key.text);
        v->count = take(r, 8, key.text);
    }
    if (kind >= NAPIER_GGUF_KINDS || kind == NAPIER_GGUF_ARRAY) {
        napier_gguf_fail(r->file, NAPIER_UNSUPPORTED, "%s: a value of kind %" PRIu64, key.text, kind);
    }
    v->kind = (napier_gguf_kind)kind;
    if (!r->file->status) {
        take_elements(r, v);
    }
}

static int order_of(napier_text a, napier_text b) {
    const int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_key(const void *a, const void *b) {
    return order_of(((const napier_gguf_value *)a)->key, ((const napier_gguf_value *)b)->key);
}

static void take_values(reader *r) {
    napier_gguf *const file = r->file;
    for (int64_t i = 0; i < file->value_count && !file->status; i++) {
        take_value(r, &file->values[i]);
    }
    if (!file->status) {
        qsort(file->values, (size_t)file->value_count, sizeof *file->values, by_key);
    }
    for (int64_t i = 1; i < file->value_count && !file->status; i++) {
        if (by_key(&file->values[i - 1], &file->values[i]) == 0) {
            napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: given twice", show(file->values[i].key).text);
        }
    }
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static void take_shape(reader *r, napier_gguf_tensor *t) {
    const uint64_t dims = take(r, 4, t->name);
    if (dims > NAPIER_GGUF_DIMS) {
        napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA, "%s: %" PRIu64 " dimensions", napier_show_text(t->name).text,
                         dims);
        return;
    }
    t->elements = 1;
    t->ndim = (int)dims;
    for (int i = t->ndim; i-- > 0;) {
        const uint64_t size = take(r, 8, t->name);
        if (size > (uint64_t)(t->elements > 0 ? most_elements / t->elements : most_elements)) {
            napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA, "%s: a dimension of %" PRIu64,
                             napier_show_text(t->name).text, size);
            return;
        }
        t->shape[i] = (int64_t)size;
        t->elements *= t->shape[i];
    }
}

/* Reads a tensor's description; *offset receives where its data begin. */
static void take_tensor(reader *r, napier_gguf_tensor *t, char **names, const char *end, uint64_t *offset) {
    const napier_text name = take_text(r, "a tensor's name");
    if (name.size >= (size_t)(end - *names)) { /* than when it was measured */
        napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA, "changed while it was read");
        return;
    }
    t->name = memcpy(*names, name.bytes, name.size);
    (*names)[name.size] = '\0';
    if (memchr(name.bytes, 0, name.size) != NULL) {
        napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA, "%s: a tensor's name with a byte 0", show(name).text);
    }
    *names += name.size + 1;
    take_shape(r, t);
    t->type = napier_gguf_type_of((uint32_t)take(r, 4, t->name));
    *offset = take(r, 8, t->name);
}

/* Finds the tensor's data, `bytes` of which follow `data`. */
static void place(napier_gguf *file, napier_gguf_tensor *t, const uint8_t *data, uint64_t bytes, uint64_t offset,
                  uint64_t alignment) {
    const napier_shown shown = napier_show_text(t->name);
    const char *const name = shown.text;
    const int64_t block = t->type->block, row = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    if (offset % alignment != 0 || offset > bytes) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: its data begin at %" PRIu64 " of %" PRIu64 " bytes", name,
                         offset, bytes);
        return;
    }
    t->data = data + offset;
    if (block == 0) {
        return;
    }
    if (row % block != 0) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: rows of %" PRId64 " elements, no multiple of %s's %" PRId64,
                         name, row, t->type->name, block);
        return;
    }
    t->size = t->elements / block * t->type->bytes; /* less than 2^53 * 4 */
    if ((uint64_t)t->size > bytes - offset) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: %" PRId64 " bytes at %" PRIu64 " of %" PRIu64, name, t->size,
                         offset, bytes);
    }
}

static int by_place(const void *a, const void *b) {
    const napier_gguf_tensor *const x = a, *const y = b;
    return x->data != y->data ? (x->data > y->data) - (x->data < y->data) : (x->size > y->size) - (x->size < y->size);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const napier_gguf_tensor *)a)->name, ((const napier_gguf_tensor *)b)->name);
}

/* Without overlaps, the weights of all tensors take at most eight times the file's bytes. */
static void check_tensors(napier_gguf *file) {
    napier_gguf_tensor *const all = file->tensors;
    const size_t count = (size_t)file->tensor_count;
    qsort(all, count, sizeof *all, by_place);
    for (size_t i = 1; i < count && !file->status; i++) {
        if (all[i].data < all[i - 1].data + all[i - 1].size) {
            napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s and %s overlap", napier_show_text(all[i - 1].name).text,
                             napier_show_text(all[i].name).text);
        }
    }
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 1; i < count && !file->status; i++) {
        if (by_name(&all[i - 1], &all[i]) == 0) {
            napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: given twice", napier_show_text(all[i].name).text);
        }
    }
}

/* The bytes of all tensors' names, each with a 0 behind it. */
static size_t measure_names(reader r) {
    size_t bytes = 1;
    for (int64_t i = 0; i < r.file->tensor_count && !r.file->status; i++) {
        bytes += take_text(&r, "a tensor's name").size + 1;
        const uint64_t dims = take(&r, 4, "a tensor's shape");
        if (has(&r, 8 * dims + 12, "a tensor's shape")) {
            r.at += 8 * dims + 12;
        }
    }
    return bytes;
}

static napier_status take_tensors(reader *r) {
    napier_gguf *const file = r->file;
    const uint64_t alignment = (uint64_t)napier_gguf_integer(file, "general.alignment", 32);
    if (alignment < 8 || alignment > MOST_ALIGNMENT || (alignment & (alignment - 1)) != 0) {
        return napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "general.alignment: %" PRIu64, alignment);
    }
    const size_t bytes = measure_names(*r);
    NAPIER_TRY(file->status);
    NAPIER_MEMORY(memory, file->context);
    uint64_t *const offsets = napier_take(&memory, file->tensor_count, sizeof *offsets);
    char *names = file->names = napier_alloc(&file->context->allocator, bytes, 1);
    const char *const end = names + bytes;
    if (names == NULL || (offsets == NULL && file->tensor_count > 0)) {
        return napier_gguf_fail(file, NAPIER_OUT_OF_MEMORY, "no memory for %zu bytes of names", bytes);
    }
    for (int64_t i = 0; i < file->tensor_count && !file->status; i++) {
        take_tensor(r, &file->tensors[i], &names, end, &offsets[i]);
    }
    const uint64_t begin = ((uint64_t)(r->at - file->map) + alignment - 1) / alignment * alignment;
    const uint8_t *const data = begin < file->size ? file->map + begin : r->end;
    for (int64_t i = 0; i < file->tensor_count && !file->status; i++) {
        place(file, &file->tensors[i], data, (uint64_t)(r->end - data), offsets[i], alignment);
    }
    if (!file->status) {
        check_tensors(file);
    }
    return file->status;
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static void check_start(reader *r) {
    const uint64_t magic = take(r, 4, "the first 8 bytes"), version = take(r, 4, "the first 8 bytes");
    const uint16_t one = 1;
    if (magic != UINT64_C(0x46554747) /* GGUF */) {
        napier_gguf_fail(r->file, NAPIER_CORRUPT_DATA,
                         "no GGUF file; a model is a folder with config.json, or one file of that format");
    }
    if (version != 2 && version != 3) {
        napier_gguf_fail(r->file, NAPIER_UNSUPPORTED, "version %" PRIu64 "%s, but only 2 and 3 are supported", version,
                         (version & 0xffff) == 0 ? " (numbers with the high byte first)" : "");
    }
    if (*(const uint8_t *)&one != 1) {
        napier_gguf_fail(r->file, NAPIER_UNSUPPORTED, "a little-endian file, on a big-endian machine");
    }
}

static napier_status read_header(napier_gguf *file) {
    reader r = {file, file->map, file->map + file->size};
    check_start(&r);
    const uint64_t tensors = take(&r, 8, "its counts"), values = take(&r, 8, "its counts");
    if (tensors > MOST_TENSORS || tensors > left_of(&r) / LEAST_TENSOR || values > MOST_VALUES ||
        values > left_of(&r) / LEAST_VALUE) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%" PRIu64 " tensors and %" PRIu64 " values in %zu bytes", tensors,
                         values, file->size);
    }
    NAPIER_TRY(file->status);
    file->values = napier_alloc(&file->context->allocator, (size_t)values + 1, sizeof *file->values);
    file->tensors = napier_alloc(&file->context->allocator, (size_t)tensors + 1, sizeof *file->tensors);
    if (file->values == NULL || file->tensors == NULL) {
        return napier_gguf_fail(file, NAPIER_OUT_OF_MEMORY, "no memory for %" PRIu64 " tensors", tensors);
    }
    memset(file->tensors, 0, ((size_t)tensors + 1) * sizeof *file->tensors);
    file->value_count = (int64_t)values;
    file->tensor_count = (int64_t)tensors;
    take_values(&r);
    if ((size_t)(r.at - file->map) > most_header) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, "values of %zu bytes, more than the %zu that are read",
                         (size_t)(r.at - file->map), most_header);
    }
    return file->status ? file->status : take_tensors(&r);
}

napier_status napier_gguf_open(napier_context *context, const char *path, napier_gguf *file) {
    int fd;
    size_t size;
    *file = (napier_gguf){.context = context, .path = path};
    NAPIER_TRY(file->status = napier_open_file(context, path, &fd, &size));
    if (size < 8) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%zu bytes, too short for a GGUF file", size);
    } else {
        file->size = size;
        file->map = napier_map_file(fd, size);
        if (file->map == NULL) {
            napier_gguf_fail(file, NAPIER_IO_ERROR, "cannot be mapped: %s", strerror(errno));
        }
    }
    close(fd);
    return file->status ? file->status : read_header(file);
}

void napier_gguf_close(napier_gguf *file) {
    if (file->map != NULL) {
        napier_unmap_file(file->map, file->size);
    }
    if (file->context != NULL) {
        napier_free(&file->context->allocator, file->values);
        napier_free(&file->context->allocator, file->tensors);
        napier_free(&file->context->allocator, file->names);
    }
    *file = (napier_gguf){.context = NULL};
}

bool napier_gguf_is(const char *path) {
    struct stat info;
    char magic[4];
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return false;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is;
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

const napier_gguf_tensor *napier_gguf_tensor_of(const napier_gguf *file, const char *name) {
    const napier_gguf_tensor wanted = {.name = name};
    return file->status ? NULL : bsearch(&wanted, file->tensors, (size_t)file->tensor_count, sizeof wanted, by_name);
}

static const napier_gguf_value *find(const napier_gguf *file, const char *key, size_t size) {
    const napier_gguf_value wanted = {.key = {key, size}};
    return file->status ? NULL : bsearch(&wanted, file->values, (size_t)file->value_count, sizeof wanted, by_key);
}

/* The text at `at`; bytes NULL if it does not end within the file, which may have changed since it was opened. */
static napier_text text_at(const napier_gguf *file, const uint8_t *at) {
    const size_t left = (size_t)(file->map + file->size - at);
    const uint64_t size = left >= 8 ? number_at(at, 8) : UINT64_MAX;
    return size <= left && size + 8 <= left ? (napier_text){(const char *)at + 8, (size_t)size}
                                            : (napier_text){NULL, 0};
}

static napier_text text_of(const napier_gguf *file, const napier_gguf_value *v) {
    const bool is_text = v != NULL && v->kind == NAPIER_GGUF_TEXT && !v->is_array;
    return is_text ? text_at(file, v->at) : (napier_text){NULL, 0};
}

const napier_gguf_value *napier_gguf_find(const napier_gguf *file, const char *key) {
    char whole[128];
    if (*key != '.') {
        return find(file, key, strlen(key));
    }
    static const char name[] = "general.architecture";
    const napier_text family = text_of(file, find(file, name, sizeof name - 1));
    const size_t size = strlen(key);
    if (family.bytes == NULL || family.size + size > sizeof whole) {
        return NULL;
    }
    memcpy(whole, family.bytes, family.size);
    memcpy(whole + family.size, key, size);
    return find(file, whole, family.size + size);
}

/* The value of a key if it has one of these kinds, a bit 1 << kind for each. */
static const napier_gguf_value *get(napier_gguf *file, const char *key, unsigned kinds, bool is_array,
                                    const char *wanted) {
    const napier_gguf_value *const v = napier_gguf_find(file, key);
    if (v != NULL && (v->is_array != is_array || (kinds >> v->kind & 1) == 0)) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, "%s: %s kind %d, where %s is wanted", show(v->key).text,
                         v->is_array ? "an array of" : "a value of", (int)v->kind, wanted);
        return NULL;
    }
    return v;
}

enum {
    UNSIGNED = 1 << NAPIER_GGUF_U8 | 1 << NAPIER_GGUF_U16 | 1 << NAPIER_GGUF_U32 | 1 << NAPIER_GGUF_U64,
    SIGNED = 1 << NAPIER_GGUF_I8 | 1 << NAPIER_GGUF_I16 | 1 << NAPIER_GGUF_I32 | 1 << NAPIER_GGUF_I64,
    FLOATS = 1 << NAPIER_GGUF_F32 | 1 << NAPIER_GGUF_F64
};

/* A number of any kind but text. */
static double number_of(napier_gguf_kind kind, const uint8_t *at) {
    const size_t bytes = kind_bytes[kind];
    const uint64_t bits = number_at(at, bytes);
    if (kind == NAPIER_GGUF_F32 || kind == NAPIER_GGUF_F64) {
        return kind == NAPIER_GGUF_F32 ? (double)napier_get_f32(at) : napier_get_f64(at);
    }
    const bool is_negative = (SIGNED >> kind & 1) != 0 && bits >> (8 * bytes - 1) != 0;
    return is_negative ? -(double)(~bits & (UINT64_MAX >> (64 - 8 * bytes))) - 1 : (double)bits;
}

int64_t napier_gguf_integer(napier_gguf *file, const char *key, int64_t absent) {
    const napier_gguf_value *const v = get(file, key, UNSIGNED | SIGNED, false, "one integer");
    const double number = v != NULL ? number_of(v->kind, v->at) : (double)absent;
    if (!(number >= -1 && number <= (double)most_elements)) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: %.17g", key, number);
        return absent;
    }
    return v != NULL ? (int64_t)number : absent;
}

double napier_gguf_number(napier_gguf *file, const char *key, double absent) {
    const napier_gguf_value *const v = get(file, key, UNSIGNED | SIGNED | FLOATS, false, "one number");
    return v != NULL ? number_of(v->kind, v->at) : absent;
}

bool napier_gguf_bool(napier_gguf *file, const char *key, bool absent) {
    const napier_gguf_value *const v = get(file, key, 1u << NAPIER_GGUF_BOOL, false, "true or false");
    return v != NULL ? *v->at != 0 : absent;
}

napier_text napier_gguf_text(napier_gguf *file, const char *key, const char *absent) {
    const napier_text text = text_of(file, get(file, key, 1u << NAPIER_GGUF_TEXT, false, "a text"));
    return text.bytes != NULL ? text : (napier_text){absent, absent != NULL ? strlen(absent) : 0};
}

static napier_gguf_walk walk_of(const napier_gguf *file, const napier_gguf_value *v) {
    return v != NULL ? (napier_gguf_walk){file, v->at, v->count, v->kind} : (napier_gguf_walk){.file = file};
}

napier_gguf_walk napier_gguf_texts(napier_gguf *file, const char *key) {
    return walk_of(file, get(file, key, 1u << NAPIER_GGUF_TEXT, true, "an array of texts"));
}

napier_gguf_walk napier_gguf_numbers(napier_gguf *file, const char *key) {
    return walk_of(file, get(file, key, UNSIGNED | SIGNED | FLOATS, true, "an array of numbers"));
}

bool napier_gguf_next_text(napier_gguf_walk *walk, napier_text *text) {
    *text = walk->left > 0 ? text_at(walk->file, walk->at) : (napier_text){NULL, 0};
    if (text->bytes == NULL) {
        return false;
    }
    walk->left--;
    walk->at = (const uint8_t *)text->bytes + text->size;
    return true;
}

bool napier_gguf_next_number(napier_gguf_walk *walk, double *number) {
    if (walk->left == 0) {
        return false;
    }
    *number = number_of(walk->kind, walk->at);
    walk->left--;
    walk->at += kind_bytes[walk->kind];
    return true;
}

bool napier_gguf_same(napier_text text, const char *word) {
    return text.size == strlen(word) && memcmp(text.bytes, word, text.size) == 0;
}
