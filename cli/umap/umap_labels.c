/* cli/umap/umap_labels.c - reads labels. It reads the whole file, so the file may be a pipe. */
#include "umap_labels.h"

#include "program/message.h"
#include "io/format.h"
#include "io/npy.h"
#include "program/options.h"
#include "io/source.h"
#include "io/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CATEGORIES_OF_NUMBERS = 50, FEW_POINTS = 20 };

/* A file while it is turned into labels. */
typedef struct source {
    whole_file file;
    int64_t count;
    char **lines;    /* [count] of a text, in `bytes`; NULL: an .npy file */
    double *numbers; /* [count]; NULL: not all lines are numbers */
} source;

/* malloc for `count` elements, at least one. */
static void *room_for(int64_t count, size_t size) {
    return (uint64_t)count < SIZE_MAX / size - 1 ? malloc(((size_t)count + 1) * size) : NULL;
}

static int parse_array(source *s) {
    npy_header header = {0};
    char error[NPY_ERROR_SIZE];
    if (!npy_parse(s->file.bytes, s->file.size, &header, error)) {
        return complain("%s: %s", s->file.name, error);
    }
    const int64_t have = (int64_t)s->file.size - header.offset;
    const int64_t needed = header.count * (int64_t)header.element.size;
    if (have < needed) {
        return complain("%s: truncated: the header announces %" PRId64 " bytes of elements, the file has %" PRId64,
                        s->file.name, needed, have);
    }
    s->count = header.count;
    s->numbers = room_for(s->count, sizeof *s->numbers);
    if (s->numbers == NULL) {
        return out_of_memory(s->file.name);
    }
    const napier_dtype dtype = element_dtype(header.element);
    elements_convert(header.element, s->file.bytes + header.offset, s->numbers, s->count);
    for (int64_t i = s->count - 1; i >= 0; i--) { /* backwards, because doubles may be wider */
        s->numbers[i] = element_value(dtype, (const char *)s->numbers + (size_t)i * napier_dtype_size(dtype));
    }
    return STATUS_OK;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Removes surrounding blanks and one pair of quotes from a line. Ends it with a '\0'. */
static char *trimmed(char *start, char *end) {
    while (start < end && is_blank(*start)) {
        start++;
    }
    while (end > start && is_blank(end[-1])) {
        end--;
    }
    if (end - start >= 2 && *start == '"' && end[-1] == '"') {
        start++;
        end--;
    }
    *end = '\0';
    return start;
}

static bool line_number(const char *line, double *value) {
    *value = (double)NAN;
    return strcmp(line, "nan") == 0 || strcmp(line, "NaN") == 0 || strcmp(line, "NAN") == 0 || *line == '\0' ||
           parse_number(line, value);
}

static int parse_lines(source *s) {
    const char *const foreign = format_foreign(s->file.bytes, s->file.size);
    if (foreign != NULL) {
        return complain("%s: %s", s->file.name, foreign);
    }
    char *const first =
        s->file.size >= 3 && memcmp(s->file.bytes, "\xef\xbb\xbf", 3) == 0 ? s->file.bytes + 3 : s->file.bytes;
    char *const end = s->file.bytes + s->file.size;
    int64_t count = 0;
    for (const char *at = first; at < end; at++) {
        count += *at == '\n' || at + 1 == end;
        if (*at == '\0') {
            return complain("%s: line %" PRId64 " has a byte 0: neither .npy nor text", s->file.name, count + 1);
        }
    }
    s->lines = room_for(count, sizeof *s->lines);
    s->numbers = room_for(count, sizeof *s->numbers);
    if (s->lines == NULL || s->numbers == NULL) {
        return out_of_memory(s->file.name);
    }
    bool all_numbers = true;
    for (char *at = first; at < end; s->count++) {
        char *const newline = memchr(at, '\n', (size_t)(end - at));
        char *const line_end = newline != NULL ? newline : end;
        s->lines[s->count] = trimmed(at, line_end);
        all_numbers = all_numbers && line_number(s->lines[s->count], &s->numbers[s->count]);
        at = line_end + 1;
    }
    if (!all_numbers) {
        free(s->numbers);
        s->numbers = NULL;
    }
    return STATUS_OK;
}

static void source_free(source *s) {
    whole_file_free(&s->file);
    free(s->lines);
    free(s->numbers);
}

/* ---- Text that is safe to show ----------------------------------------------------------------------------------- */

/* The bytes of a character that XML may have; 0 if there is none. XML has no U+FFFE and U+FFFF. */
static int xml_size(const unsigned char *at) {
    const int size = utf8_size(at);
    return size == 3 && at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe ? 0 : size;
}

char *labels_clean_text(const char *text) {
    const size_t size = strlen(text);
    char *const clean = size < SIZE_MAX / 3 - 1 ? malloc(3 * size + 1) : NULL;
    char *to = clean;
    if (clean == NULL) {
        return NULL;
    }
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        const int bytes = xml_size(at);
        if (bytes == 0) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            at++;
            continue;
        }
        if (utf8_is_control(at)) {
            *to++ = ' ';
        } else {
            memcpy(to, at, (size_t)bytes);
            to += bytes;
        }
        at += bytes;
    }
    *to = '\0';
    return clean;
}

/* ---- Categories -------------------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int lower(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c; }

/* Compares alphabetically, but digits by the number they form. Only identical texts are equal. */
static int compare_names(const char *a, const char *b) {
    const char *x = a;
    const char *y = b;
    while (*x != '\0' && *y != '\0') {
        if (is_digit(*x) && is_digit(*y)) {
            x += strspn(x, "0");
            y += strspn(y, "0");
            const size_t x_size = strspn(x, "0123456789");
            const size_t y_size = strspn(y, "0123456789");
            const int order = x_size != y_size ? (x_size < y_size ? -1 : 1) : memcmp(x, y, x_size);
            if (order != 0) {
                return order;
            }
            x += x_size;
            y += y_size;
        } else if (lower(*x) != lower(*y)) {
            break;
        } else {
            x++;
            y++;
        }
    }
    const int order = lower(*x) - lower(*y);
    return order != 0 ? order : strcmp(a, b);
}

static int compare_lines(const void *a, const void *b) {
    return compare_names(*(const char *const *)a, *(const char *const *)b);
}

static int compare_numbers(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `count` keys and keeps one of each. */
static int64_t sort_unique(void *keys, int64_t count, size_t size, int (*compare)(const void *, const void *)) {
    char *const all = keys;
    int64_t kept = 0;
    qsort(keys, (size_t)count, size, compare);
    for (int64_t i = 0; i < count; i++) {
        if (kept == 0 || compare(all + (size_t)(kept - 1) * size, all + (size_t)i * size) != 0) {
            memmove(all + (size_t)kept * size, all + (size_t)i * size, size);
            kept++;
        }
    }
    return kept;
}

static bool is_known(const source *s, int64_t i, bool negative_unknown) {
    if (s->numbers == NULL) {
        return *s->lines[i] != '\0';
    }
    return isfinite(s->numbers[i]) && !(negative_unknown && s->numbers[i] < 0);
}

static char *category_name(const source *s, const void *key) {
    if (s->numbers == NULL) {
        return labels_clean_text(*(char *const *)key);
    }
    char text[TEXT_NUMBER_MAX];
    text_number(text, NAPIER_F64, key);
    return labels_clean_text(text);
}

/* Do categories of so many points look like numbers that were measured? */
static bool look_like_numbers(const double *categories, int64_t count, int64_t points) {
    bool whole = true;
    for (int64_t i = 0; i < count; i++) {
        whole = whole && floor(categories[i]) == categories[i];
    }
    return !whole && points > FEW_POINTS && 2 * count > points;
}

/* The keys are the numbers or the lines, whichever `s` has. */
static int make_categories(labels *l, const source *s, bool negative_unknown) {
    const bool numbers = s->numbers != NULL;
    const size_t size = numbers ? sizeof(double) : sizeof(char *);
    int (*const compare)(const void *, const void *) = numbers ? compare_numbers : compare_lines;
    const char *const all = numbers ? (const char *)s->numbers : (const char *)s->lines;
    char *const keys = room_for(s->count, size);
    l->codes = room_for(s->count, sizeof *l->codes);
    if (keys == NULL || l->codes == NULL) {
        free(keys);
        return out_of_memory(s->file.name);
    }
    int64_t known = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (is_known(s, i, negative_unknown)) {
            memcpy(keys + (size_t)known++ * size, all + (size_t)i * size, size);
        }
    }
    const int64_t categories = sort_unique(keys, known, size, compare);
    l->like_numbers = numbers && look_like_numbers((const double *)(const void *)keys, categories, known);
    l->names = calloc((size_t)categories + 1, sizeof *l->names);
    l->sizes = calloc((size_t)categories + 1, sizeof *l->sizes);
    int status = l->names != NULL && l->sizes != NULL ? STATUS_OK : out_of_memory(s->file.name);
    if (status == STATUS_OK && categories > INT32_MAX - 1) {
        status = complain("%s: too many categories", s->file.name);
    }
    for (int64_t i = 0; i < categories && status == STATUS_OK; i++) {
        l->names[i] = category_name(s, keys + (size_t)i * size);
        l->categories += l->names[i] != NULL;
        status = l->names[i] != NULL ? STATUS_OK : out_of_memory(s->file.name);
    }
    for (int64_t i = 0; i < s->count && status == STATUS_OK; i++) {
        l->codes[i] = -1;
        if (is_known(s, i, negative_unknown)) {
            const char *const key = bsearch(all + (size_t)i * size, keys, (size_t)categories, size, compare);
            l->codes[i] = (int32_t)((size_t)(key - keys) / size);
            l->sizes[l->codes[i]]++;
        }
    }
    free(keys);
    return status;
}

/* ---- Which type -------------------------------------------------------------------------------------------------- */

static void find_range(labels *l) {
    l->least = (double)INFINITY;
    l->most = -(double)INFINITY;
    for (int64_t i = 0; i < l->count; i++) {
        if (isfinite(l->numbers[i])) {
            l->least = l->numbers[i] < l->least ? l->numbers[i] : l->least;
            l->most = l->numbers[i] > l->most ? l->numbers[i] : l->most;
        }
    }
}

/* Whether the numbers are integers with few distinct values. */
static bool look_like_categories(const source *s) {
    double seen[MOST_CATEGORIES_OF_NUMBERS];
    int count = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const double x = s->numbers[i];
        if (isnan(x)) {
            continue;
        }
        int j = 0;
        while (j < count && seen[j] != x) {
            j++;
        }
        if (floor(x) != x || isinf(x) || j == MOST_CATEGORIES_OF_NUMBERS) {
            return false;
        }
        seen[j] = x;
        count += j == count;
    }
    return true;
}

static int settle(labels *l, source *s, label_type type, bool negative_unknown) {
    l->count = s->count;
    if (type == LABELS_NUMBERS && s->numbers == NULL) {
        double ignored;
        int64_t line = 0;
        while (line_number(s->lines[line], &ignored)) {
            line++;
        }
        char shown[40];
        return complain("%s: line %" PRId64 ": '%s' is not a number", s->file.name, line + 1,
                        printable(shown, sizeof shown, s->lines[line], strlen(s->lines[line])));
    }
    l->type = type != LABELS_AUTO                             ? type
              : s->numbers == NULL || look_like_categories(s) ? LABELS_CATEGORIES
                                                              : LABELS_NUMBERS;
    if (l->type == LABELS_CATEGORIES) {
        return make_categories(l, s, negative_unknown);
    }
    l->numbers = s->numbers;
    s->numbers = NULL;
    find_range(l);
    return STATUS_OK;
}

int labels_read(labels *l, const char *path, label_type type, bool negative_unknown) {
    source s = {0};
    memset(l, 0, sizeof *l);
    int status = whole_file_read(&s.file, path);
    if (status == STATUS_OK && s.file.size == 0) {
        status = complain("%s: the file is empty", s.file.name);
    }
    if (status == STATUS_OK) {
        const bool is_npy = s.file.size >= NPY_MAGIC_SIZE && memcmp(s.file.bytes, NPY_MAGIC, NPY_MAGIC_SIZE) == 0;
        status = (is_npy ? parse_array(&s) : parse_lines(&s)) || settle(l, &s, type, negative_unknown);
    }
    source_free(&s);
    return status;
}

void labels_free(labels *l) {
    for (int32_t i = 0; i < l->categories; i++) {
        free(l->names[i]);
    }
    free(l->names);
    free(l->sizes);
    free(l->codes);
    free(l->numbers);
    memset(l, 0, sizeof *l);
}
