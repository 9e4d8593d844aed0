/* cli/io/npy.c - .npy headers. */
#include "npy.h"

#include "program/message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The text of the header while it is parsed. */
typedef struct cursor {
    const char *at, *end;
    char *error; /* NPY_ERROR_SIZE bytes */
} cursor;

/* Part of the text. */
typedef struct span {
    const char *start;
    size_t size;
} span;

PRINTF_LIKE(2, 3) static bool fail(char *error, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(error, NPY_ERROR_SIZE, format, values);
    va_end(values);
    return false;
}

static bool expected(const cursor *c, const char *what) {
    char shown[24];
    return fail(c->error, "bad header: %s expected before '%s'", what,
                printable(shown, sizeof shown, c->at, (size_t)(c->end - c->at)));
}

/* ---- Tokens of the dict ------------------------------------------------------------------------------------------ */

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) {
        c->at++;
    }
}

/* Skips `wanted` if it is next. */
static bool accept(cursor *c, char wanted) {
    skip_space(c);
    if (c->at < c->end && *c->at == wanted) {
        c->at++;
        return true;
    }
    return false;
}

static bool expect(cursor *c, char wanted) {
    const char what[] = {'\'', wanted, '\'', '\0'};
    return accept(c, wanted) || expected(c, what);
}

static bool parse_string(cursor *c, span *string) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return expected(c, "a quoted string");
    }
    const char quote = *c->at++;
    string->start = c->at;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || *c->at == '\n') {
            return fail(c->error, "bad header: an escape or a line break in a string");
        }
        c->at++;
    }
    if (c->at == c->end) {
        return fail(c->error, "bad header: a string without an end");
    }
    string->size = (size_t)(c->at++ - string->start);
    return true;
}

static bool span_is(span s, const char *text) { return s.size == strlen(text) && memcmp(s.start, text, s.size) == 0; }

static bool accept_word(cursor *c, const char *word) {
    skip_space(c);
    const size_t size = strlen(word);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0) {
        return false;
    }
    c->at += size;
    return true;
}

static bool parse_bool(cursor *c, bool *value) {
    if (accept_word(c, "True")) {
        *value = true;
        return true;
    }
    *value = false;
    return accept_word(c, "False") || fail(c->error, "bad header: fortran_order is neither True nor False");
}

static bool parse_dimension(cursor *c, int64_t *value) {
    skip_space(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9') {
        return expected(c, "a dimension of the shape");
    }
    int64_t n = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        const int digit = *c->at - '0';
        if (n > (INT64_MAX - digit) / 10) {
            return fail(c->error, "bad header: a dimension does not fit 64 bits");
        }
        n = 10 * n + digit;
    }
    if (c->at < c->end && *c->at == 'L') {
        c->at++; /* Python 2 wrote long integers with an L */
    }
    *value = n;
    return true;
}

/* (), (3,), (3, 4) and (3, 4,) are tuples; (3) is not one. */
static bool parse_shape(cursor *c, array_shape *shape) {
    if (!expect(c, '(')) {
        return false;
    }
    shape->dims = 0;
    bool comma = true;
    while (!accept(c, ')')) {
        if (!comma) {
            return expect(c, ',');
        }
        if (shape->dims == ARRAY_MAX_DIMS) {
            return fail(c->error, "the array has more than %d dimensions", (int)ARRAY_MAX_DIMS);
        }
        if (!parse_dimension(c, &shape->dim[shape->dims])) {
            return false;
        }
        shape->dims++;
        comma = accept(c, ',');
    }
    if (shape->dims == 1 && !comma) {
        return fail(c->error, "bad header: the shape is not a tuple");
    }
    return true;
}

/* ---- Element types ----------------------------------------------------------------------------------------------- */

static bool unsupported(span descr, char *error) {
    char shown[32];
    return fail(error, "dtype '%s' is not supported (floats of 2, 4 and 8 bytes, bfloat16, integers and bool are)",
                printable(shown, sizeof shown, descr.start, descr.size));
}

/* "<f4": byte order, kind, bytes. bfloat16 has no code of its own: ml_dtypes writes it as two opaque bytes, 'V2'. */
static bool parse_element(span descr, element_type *element, char *error) {
    if (span_is(descr, "bfloat16")) {
        *element = (element_type){ELEMENT_BFLOAT, 2, false};
        return true;
    }
    if (descr.size != 3 || strchr("<>|=", descr.start[0]) == NULL || descr.start[0] == '\0') {
        return unsupported(descr, error);
    }
    const char order = descr.start[0];
    const size_t size = (size_t)((unsigned char)descr.start[2] - '0');
    const bool is_word = size == 1 || size == 2 || size == 4 || size == 8; /* also false if it is not a digit */
    element_kind kind;
    bool known;
    switch (descr.start[1]) {
    case 'f': kind = ELEMENT_FLOAT, known = is_word && size != 1; break;
    case 'i': kind = ELEMENT_INT, known = is_word; break;
    case 'u': kind = ELEMENT_UINT, known = is_word; break;
    case 'b': kind = ELEMENT_BOOL, known = size == 1; break;
    case 'V': kind = ELEMENT_BFLOAT, known = size == 2 && order != '>'; break;
    default: return unsupported(descr, error);
    }
    /* '|' means that byte order does not matter. This is true only of single bytes and of opaque ones. */
    if (!known || (order == '|' && size != 1 && kind != ELEMENT_BFLOAT)) {
        return unsupported(descr, error);
    }
    const bool big = order == '>' || (order == '=' && machine_is_big_endian());
    *element = (element_type){kind, size, big && size > 1};
    return true;
}

static bool parse_descr(cursor *c, element_type *element) {
    skip_space(c);
    if (c->at < c->end && *c->at == '[') {
        return fail(c->error, "records (structured dtypes) are not supported");
    }
    span descr;
    return parse_string(c, &descr) && parse_element(descr, element, c->error);
}

/* ---- The header -------------------------------------------------------------------------------------------------- */

enum { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

static bool parse_entry(cursor *c, npy_header *header, unsigned *seen) {
    span key;
    if (!parse_string(c, &key) || !expect(c, ':')) {
        return false;
    }
    const unsigned which = span_is(key, "descr")           ? KEY_DESCR
                           : span_is(key, "fortran_order") ? KEY_ORDER
                           : span_is(key, "shape")         ? KEY_SHAPE
                                                           : 0U;
    char shown[24];
    if (which == 0 || (*seen & which) != 0) {
        return fail(c->error, "bad header: %s key '%s'", which == 0 ? "an unknown" : "a second",
                    printable(shown, sizeof shown, key.start, key.size));
    }
    *seen |= which;
    return which == KEY_DESCR   ? parse_descr(c, &header->element)
           : which == KEY_ORDER ? parse_bool(c, &header->shape.fortran)
                                : parse_shape(c, &header->shape);
}

static bool parse_dict(const char *text, size_t size, npy_header *header, char *error) {
    cursor c = {text, text + size, error};
    unsigned seen = 0;
    if (!expect(&c, '{')) {
        return false;
    }
    bool comma = true;
    while (!accept(&c, '}')) {
        if (!comma) {
            return expect(&c, ',');
        }
        if (!parse_entry(&c, header, &seen)) {
            return false;
        }
        comma = accept(&c, ',');
    }
    if (seen != KEY_ALL) {
        return fail(error, "bad header: no key '%s'",
                    (seen & KEY_DESCR) == 0   ? "descr"
                    : (seen & KEY_ORDER) == 0 ? "fortran_order"
                                              : "shape");
    }
    skip_space(&c);
    return c.at == c.end || fail(error, "bad header: text after the dict");
}

static bool read_text_size(npy_reader *read, void *user, size_t *start_size, size_t *text_size, char *error) {
    unsigned char start[12];
    if (read(user, start, 8) != 8) {
        return fail(error, "the file ends within the .npy header");
    }
    if (memcmp(start, NPY_MAGIC, NPY_MAGIC_SIZE) != 0) {
        return fail(error, "not an .npy file (its first bytes are not \\x93NUMPY)");
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        return fail(error, ".npy version %d.%d is not supported (1.0, 2.0 and 3.0 are)", start[6], start[7]);
    }
    const size_t width = start[6] == 1 ? 2 : 4;
    if (read(user, start + 8, width) != width) {
        return fail(error, "the file ends within the .npy header");
    }
    uint32_t size = 0;
    for (size_t i = width; i > 0; i--) {
        size = size << 8 | start[8 + i - 1];
    }
    if (size > NPY_TEXT_MAX) {
        return fail(error, "the .npy header claims %" PRIu32 " bytes of text (at most %d are read)", size,
                    (int)NPY_TEXT_MAX);
    }
    *start_size = 8 + width;
    *text_size = size;
    return true;
}

bool npy_read_header(npy_reader *read, void *user, npy_header *header, char error[NPY_ERROR_SIZE]) {
    char text[NPY_TEXT_MAX];
    size_t start_size = 0;
    size_t text_size = 0;
    memset(header, 0, sizeof *header);
    if (!read_text_size(read, user, &start_size, &text_size, error)) {
        return false;
    }
    if (read(user, text, text_size) != text_size) {
        return fail(error, "the file ends within the .npy header");
    }
    header->offset = (int64_t)(start_size + text_size);
    if (!parse_dict(text, text_size, header, error)) {
        return false;
    }
    header->count = shape_count(&header->shape);
    return header->count >= 0 || fail(error, "the shape has more elements than can be addressed");
}

/* The source of npy_parse. */
typedef struct memory_source {
    const unsigned char *at;
    size_t left;
} memory_source;

static size_t read_memory(void *user, void *bytes, size_t size) {
    memory_source *const source = user;
    const size_t given = size < source->left ? size : source->left;
    if (given > 0) {
        memcpy(bytes, source->at, given);
        source->at += given;
        source->left -= given;
    }
    return given;
}

bool npy_parse(const void *bytes, size_t size, npy_header *header, char error[NPY_ERROR_SIZE]) {
    memory_source source = {bytes, size};
    return npy_read_header(read_memory, &source, header, error);
}

static const char *descr_of(napier_dtype dtype) {
    switch (dtype) {
    case NAPIER_F16: return "<f2";
    case NAPIER_BF16: return "<V2";
    case NAPIER_F32: return "<f4";
    case NAPIER_F64: break;
    }
    return "<f8";
}

size_t npy_write_header(char bytes[NPY_WRITTEN_MAX], napier_dtype dtype, const array_shape *shape) {
    enum { START = 10 }; /* magic, version, length */
    /* 32 dimensions of 19 digits and ", " are 672 characters. */
    int at = START + snprintf(bytes + START, NPY_WRITTEN_MAX - START, "{'descr': '%s', 'fortran_order': %s, 'shape': (",
                              descr_of(dtype), shape->fortran ? "True" : "False");
    for (int i = 0; i < shape->dims; i++) {
        at += snprintf(bytes + at, (size_t)(NPY_WRITTEN_MAX - at), "%s%" PRId64, i > 0 ? ", " : "", shape->dim[i]);
    }
    at += snprintf(bytes + at, (size_t)(NPY_WRITTEN_MAX - at), "%s), }", shape->dims == 1 ? "," : "");
    const size_t size = ((size_t)at + 1 + 63) / 64 * 64;
    memset(bytes + at, ' ', size - (size_t)at);
    bytes[size - 1] = '\n';
    const size_t text = size - START;
    memcpy(bytes, NPY_MAGIC "\x01", 7); /* two literals: \x93 takes as many hex digits as follow it */
    bytes[7] = 0;
    bytes[8] = (char)(text & 0xff);
    bytes[9] = (char)(text >> 8);
    return size;
}
