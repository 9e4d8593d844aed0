/* cli/io/text.c - CSV and TSV. */
#include "text.h"

#include "array.h"
#include "program/message.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Reads the next line without its line end; NULL at the end of the file. */
static int read_line(text_reader *t, char **line, size_t *size) {
    if (lines_next(&t->lines, line, size)) {
        return STATUS_FAILED;
    }
    t->line = t->lines.line;
    if (*line != NULL && *size > 0 && (*line)[*size - 1] == '\r') {
        (*line)[--*size] = '\0';
    }
    if (*line != NULL && t->line == 1 && strncmp(*line, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark of UTF-8 */
        *line += 3;
        *size -= 3;
    }
    return STATUS_OK;
}

/* Whether the line has no row. */
static bool is_skipped(const char *line, size_t size) { return *line == '#' || strspn(line, " ") == size; }

static int read_row_line(text_reader *t, char **line, size_t *size) {
    int status;
    do {
        status = read_line(t, line, size);
    } while (status == STATUS_OK && *line != NULL && is_skipped(*line, *size));
    return status;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* A field of a line, without quotes and surrounding spaces. */
typedef struct field {
    const char *start, *end;
    bool quoted;
    const char *next; /* where the next field starts; NULL after the last */
} field;

static const char *skip_blanks(const char *at, const char *end, char separator) {
    while (at < end && (*at == ' ' || (*at == '\t' && separator != '\t'))) {
        at++;
    }
    return at;
}

/* Returns false if a quote is not closed, or text follows it. */
static bool split_field(const char *at, const char *end, char separator, field *f) {
    at = skip_blanks(at, end, separator);
    f->quoted = at < end && *at == '"';
    if (f->quoted) {
        f->start = ++at;
        while (at < end && (*at != '"' || at[1] == '"')) { /* the line ends in '\0', so at[1] can be read */
            at += *at == '"' ? 2 : 1;
        }
        if (at == end) {
            return false;
        }
        f->end = at;
        at = skip_blanks(at + 1, end, separator);
        if (at < end && *at != separator) {
            return false;
        }
    } else {
        f->start = at;
        const char *const stop = memchr(at, separator, (size_t)(end - at));
        at = stop != NULL ? stop : end;
        f->end = at;
        while (f->end > f->start && (f->end[-1] == ' ' || f->end[-1] == '\t')) {
            f->end--;
        }
    }
    f->next = at < end ? at + 1 : NULL;
    return true;
}

static bool is_word(const char *at, const char *end, const char *word) {
    for (; at < end && *word != '\0'; at++, word++) {
        if ((*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at) != *word) {
            return false;
        }
    }
    return at == end && *word == '\0';
}

/* Plain strtod would also accept hexadecimal numbers, nan(...) and leading white space. A number too large for a double
 * is inf, and one too small is 0, as in Python. */
static bool field_number(const field *f, double *value) {
    const char *at = f->start;
    const bool negative = at < f->end && *at == '-';
    at += at < f->end && (*at == '-' || *at == '+');
    if (is_word(at, f->end, "nan")) {
        *value = (double)NAN;
        return true;
    }
    if (is_word(at, f->end, "inf") || is_word(at, f->end, "infinity")) {
        *value = negative ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    if (at == f->end || strspn(at, "0123456789.eE+-") < (size_t)(f->end - at) || *at == '+' || *at == '-') {
        return false;
    }
    char *end;
    *value = strtod(f->start, &end);
    return end == f->end;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static int bad_field(const text_reader *t, int64_t column, const field *f) {
    if (f == NULL) {
        return complain("%s: line %" PRId64 ", field %" PRId64 ": a quote without its partner", t->name, t->line,
                        column + 1);
    }
    if (f->start == f->end) {
        return complain("%s: line %" PRId64 ", field %" PRId64 " is empty", t->name, t->line, column + 1);
    }
    char shown[40];
    return complain("%s: line %" PRId64 ", field %" PRId64 ": '%s' is not a number", t->name, t->line, column + 1,
                    printable(shown, sizeof shown, f->start, (size_t)(f->end - f->start)));
}

/* Reads the numbers of a line into `row`, at most t->columns of them, and counts the fields. */
static int parse_row(const text_reader *t, const char *line, size_t size, double *row) {
    const char *const end = line + size;
    int64_t fields = 0;
    for (const char *at = line; at != NULL; fields++) {
        field f;
        if (!split_field(at, end, t->separator, &f)) {
            return bad_field(t, fields, NULL);
        }
        if (fields < t->columns && !field_number(&f, &row[fields])) {
            return bad_field(t, fields, &f);
        }
        at = f.next;
    }
    if (fields != t->columns) {
        return complain("%s: line %" PRId64 " has %" PRId64 " field%s, but line %" PRId64 " has %" PRId64, t->name,
                        t->line, fields, fields == 1 ? "" : "s", t->first_line, t->columns);
    }
    return STATUS_OK;
}

/* Counts a field that cannot be split off too, so that there is at least one; parse_row reports it. */
static int64_t count_fields(const text_reader *t, const char *line, size_t size) {
    int64_t fields = 1;
    field f;
    for (const char *at = line; split_field(at, line + size, t->separator, &f) && f.next != NULL; at = f.next) {
        fields++;
    }
    return fields;
}

/* A header is recognised by its first field. A word later in a first line of numbers is a mistake, not a header. */
static bool is_header(const text_reader *t, const char *line, size_t size) {
    field f;
    double ignored;
    return split_field(line, line + size, t->separator, &f) && !field_number(&f, &ignored);
}

static int keep_header(text_reader *t, const char *line, size_t size) {
    t->header = malloc(size + 1);
    if (t->header == NULL) {
        return out_of_memory(t->name);
    }
    memcpy(t->header, line, size + 1);
    return STATUS_OK;
}

/* Reads the header, if any, and the first row. */
static int read_first_row(text_reader *t) {
    char *line;
    size_t size;
    if (read_row_line(t, &line, &size)) {
        return STATUS_FAILED;
    }
    if (line != NULL) {
        if (t->separator == '\0') {
            t->separator = memchr(line, '\t', size) != NULL ? '\t' : ',';
        }
        t->first_line = t->line;
        t->columns = count_fields(t, line, size);
        if (is_header(t, line, size) && (keep_header(t, line, size) || read_row_line(t, &line, &size))) {
            return STATUS_FAILED;
        }
    }
    if (line == NULL) {
        return complain("%s: no row of numbers%s", t->name, t->header != NULL ? " below the header" : "");
    }
    t->row = calloc((size_t)t->columns, sizeof *t->row);
    if (t->row == NULL) {
        return out_of_memory(t->name);
    }
    t->row_is_ahead = true;
    return parse_row(t, line, size, t->row);
}

int text_open(text_reader *t, FILE *file, const char *name, char separator, const void *bytes, size_t size) {
    memset(t, 0, sizeof *t);
    t->name = name;
    t->separator = separator;
    t->lines = (line_reader){.file = file, .name = name, .most = (size_t)256 << 20};
    return lines_begin(&t->lines, bytes, size) || read_first_row(t);
}

int text_read_row(text_reader *t, double *row, bool *got) {
    *got = true;
    if (t->row_is_ahead) {
        t->row_is_ahead = false;
        memcpy(row, t->row, (size_t)t->columns * sizeof *row);
        return STATUS_OK;
    }
    char *line;
    size_t size;
    const int status = read_row_line(t, &line, &size);
    if (status != STATUS_OK) {
        return status;
    }
    *got = line != NULL;
    return *got ? parse_row(t, line, size, row) : STATUS_OK;
}

void text_close(text_reader *t) {
    free(t->header);
    free(t->row);
    lines_free(&t->lines);
    memset(t, 0, sizeof *t);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Whether `text` rounded to nearest in a 16-bit dtype is `bits`: it is nearer to that value than to both neighbours. */
static bool reads_back_16(const char *text, napier_dtype dtype, uint16_t bits) {
    const double given = fabs(strtod(text, NULL));
    const uint16_t magnitude = bits & 0x7fff;
    const double value = element_value(dtype, &magnitude);
    if (given == value) {
        return true; /* only "0" is near enough to zero */
    }
    const uint16_t before = (uint16_t)(magnitude - 1);
    const uint16_t after = (uint16_t)(magnitude + 1);
    const double below = magnitude > 0 ? element_value(dtype, &before) : 0;
    const double next = element_value(dtype, &after);
    /* The value above the largest number counts as one step further, though it is infinity. */
    const double above = isinf(next) ? value + (value - below) : next;
    const double distance = fabs(given - value);
    return magnitude > 0 && distance < fabs(given - below) && distance < fabs(given - above);
}

static bool reads_back(const char *text, napier_dtype dtype, const void *element) {
    if (dtype == NAPIER_F64) {
        return strtod(text, NULL) == element_value(dtype, element);
    }
    if (dtype == NAPIER_F32) {
        return (double)strtof(text, NULL) == element_value(dtype, element);
    }
    uint16_t bits;
    memcpy(&bits, element, sizeof bits);
    return reads_back_16(text, dtype, bits);
}

int text_number(char text[TEXT_NUMBER_MAX], napier_dtype dtype, const void *element) {
    const double value = element_value(dtype, element);
    if (isnan(value)) {
        return snprintf(text, TEXT_NUMBER_MAX, "nan");
    }
    /* Every decimal number of `sure` digits survives conversion to the dtype and back, so %g with that many digits
     * gives the shortest number if it reads back. `enough` digits always read back. Subnormals have fewer sure
     * digits. */
    const double normal = dtype == NAPIER_F64 ? DBL_MIN : dtype == NAPIER_F16 ? 0x1p-14 : (double)FLT_MIN;
    const int most = dtype == NAPIER_F64 ? 15 : dtype == NAPIER_F32 ? 6 : dtype == NAPIER_F16 ? 3 : 2;
    const int sure = fabs(value) < normal ? 1 : most;
    const int enough = dtype == NAPIER_F64 ? 17 : dtype == NAPIER_F32 ? 9 : dtype == NAPIER_F16 ? 5 : 4;
    int size = 0;
    for (int digits = sure; digits <= enough; digits++) {
        size = snprintf(text, TEXT_NUMBER_MAX, "%.*g", digits, value);
        if (isinf(value) || reads_back(text, dtype, element)) {
            break;
        }
    }
    return size;
}
