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

static bool is_chosen(const text_reader *t, int64_t i) { return i < t->fields && (t->chosen == NULL || t->chosen[i]); }

/* Reads the numbers of a line into `row`, at most t->columns of them, and counts the fields. */
static int parse_row(const text_reader *t, const char *line, size_t size, double *row) {
    const char *const end = line + size;
    int64_t fields = 0;
    int64_t place = 0;
    for (const char *at = line; at != NULL; fields++) {
        field f;
        if (!split_field(at, end, t->separator, &f)) {
            return bad_field(t, fields, NULL);
        }
        if (is_chosen(t, fields) && !field_number(&f, &row[place++])) {
            return bad_field(t, fields, &f);
        }
        at = f.next;
    }
    if (fields != t->fields) {
        return complain("%s: line %" PRId64 " has %" PRId64 " field%s, but line %" PRId64 " has %" PRId64, t->name,
                        t->line, fields, fields == 1 ? "" : "s", t->first_line, t->fields);
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

/* Does a field begin as a number does? */
static bool is_almost_number(const field *f) {
    const char *const digit = f->start + strspn(f->start, "+-.");
    return digit < f->end && *digit >= '0' && *digit <= '9';
}

/* A header is recognised by its first field. A word later in a first line of numbers is a mistake, not a header, and so is
 * a first field such as 1_000 or 0x10 before a number. */
static bool is_header(const text_reader *t, const char *line, size_t size) {
    field f;
    double ignored;
    if (!split_field(line, line + size, t->separator, &f) || field_number(&f, &ignored)) {
        return false;
    }
    for (bool mistake = is_almost_number(&f); mistake && f.next != NULL;) {
        if (!split_field(f.next, line + size, t->separator, &f) || field_number(&f, &ignored)) {
            return false;
        }
    }
    return true;
}

/* Keeps the chosen fields of the line as they are written. */
static int keep_header(text_reader *t, const char *line, size_t size) {
    t->header = malloc(size + 1);
    if (t->header == NULL) {
        return out_of_memory(t->name);
    }
    if (t->chosen == NULL) {
        memcpy(t->header, line, size + 1);
        return STATUS_OK;
    }
    char *to = t->header;
    field f = {.next = line};
    for (int64_t i = 0; f.next != NULL; i++) {
        const char *const start = f.next;
        if (!split_field(start, line + size, t->separator, &f)) {
            break;
        }
        if (t->chosen[i]) {
            const size_t written = (size_t)((f.next != NULL ? f.next - 1 : line + size) - start);
            memmove(to + (to > t->header), start, written);
            if (to > t->header) {
                *to++ = t->separator;
            }
            to += written;
        }
    }
    *to = '\0';
    return STATUS_OK;
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* Chooses fields `first` to `last`, from 1; false if there are no such fields. */
static bool choose(text_reader *t, int64_t first, int64_t last) {
    for (int64_t i = first; first >= 1 && i <= last && last <= t->fields; i++) {
        t->chosen[i - 1] = true;
    }
    return first >= 1 && first <= last && last <= t->fields;
}

/* Chooses the fields of this name in a header; false if there are none. */
static bool choose_name(text_reader *t, const char *line, size_t size, const char *name, size_t name_size) {
    bool found = false;
    field f = {.next = line};
    for (int64_t i = 0; f.next != NULL && split_field(f.next, line + size, t->separator, &f); i++) {
        const bool same = (size_t)(f.end - f.start) == name_size && memcmp(f.start, name, name_size) == 0;
        t->chosen[i] = t->chosen[i] || same;
        found = found || same;
    }
    return found;
}

/* Reads decimal digits; a number of more than 18 digits is none. */
static bool take_digits(const char **at, const char *end, int64_t *value) {
    const char *const start = *at;
    *value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - start <= 18) {
        *value = *value * 10 + (*(*at)++ - '0');
    }
    return *at > start && *at - start <= 18;
}

/* Chooses the fields of a number or a range such as 2-5. */
static bool choose_numbers(text_reader *t, const char *item, size_t size) {
    const char *at = item;
    const char *const end = item + size;
    int64_t first, last;
    if (!take_digits(&at, end, &first)) {
        return false;
    }
    last = first;
    if (at < end && *at == '-') {
        at++;
        if (!take_digits(&at, end, &last)) {
            return false;
        }
    }
    return at == end && choose(t, first, last);
}

/* Chooses all that are wanted. `line`: a header, whose names come before numbers; NULL: none. Returns the item that is
 * not there, or NULL. */
static const char *choose_wanted(text_reader *t, const char *line, size_t size) {
    memset(t->chosen, 0, (size_t)t->fields * sizeof *t->chosen);
    for (const char *item = t->wanted;;) {
        const size_t length = strcspn(item, ",");
        if (!(line != NULL && choose_name(t, line, size, item, length)) && !choose_numbers(t, item, length)) {
            return item;
        }
        if (item[length] == '\0') {
            return NULL;
        }
        item += length + 1;
    }
}

static bool chosen_are_numbers(const text_reader *t, const char *line, size_t size) {
    field f = {.next = line};
    double ignored;
    for (int64_t i = 0; f.next != NULL && split_field(f.next, line + size, t->separator, &f); i++) {
        if (t->chosen[i] && !field_number(&f, &ignored)) {
            return false;
        }
    }
    return true;
}

/* Chooses the columns. A first line whose wanted fields are not all numbers is a header. */
static int choose_columns(text_reader *t, const char *line, size_t size, bool *header) {
    t->chosen = calloc((size_t)t->fields, sizeof *t->chosen);
    if (t->chosen == NULL) {
        return out_of_memory(t->name);
    }
    *header = choose_wanted(t, NULL, 0) != NULL || !chosen_are_numbers(t, line, size);
    const char *const missing = *header ? choose_wanted(t, line, size) : NULL;
    if (missing != NULL) {
        char shown[40];
        return complain("--columns: '%s' is no column of %s, which has %" PRId64,
                        printable(shown, sizeof shown, missing, strcspn(missing, ",")), t->name, t->fields);
    }
    t->columns = 0;
    for (int64_t i = 0; i < t->fields; i++) {
        t->columns += t->chosen[i];
    }
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
        t->fields = count_fields(t, line, size);
        t->columns = t->fields;
        bool header = is_header(t, line, size);
        if (t->wanted != NULL && choose_columns(t, line, size, &header)) {
            return STATUS_FAILED;
        }
        if (header && (keep_header(t, line, size) || read_row_line(t, &line, &size))) {
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

int text_open(text_reader *t, FILE *file, const char *name, char separator, const void *bytes, size_t size,
              const char *wanted) {
    memset(t, 0, sizeof *t);
    t->wanted = wanted;
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
    free(t->chosen);
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
