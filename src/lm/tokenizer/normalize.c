/* lm/tokenizer/normalize.c - normal form C. Most text is copied unchanged. utf8proc decomposes and composes short
 * stretches (https://juliastrings.github.io/utf8proc). The marks in between are reordered here, because utf8proc's time
 * for that is quadratic in their number. */
#include "lm/tokenizer/normalize.h"

#include <string.h>

#include <utf8proc.h>

#include "lm/tokenizer/unicode.h"
#include "core/base/scope.h"

enum { MOST_PARTS = 4 }; /* the maximum of code points in a canonical decomposition; U+1F82 has as many */

bool napier_nfc_may_change(const uint8_t *table, const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        if (napier_is_ascii(text, size, at)) {
            at += 8;
            continue;
        }
        if (table[napier_utf8_get(text + at)] & NAPIER_CHAR_ACTIVE) {
            return true;
        }
        at += napier_utf8_length(text[at]);
    }
    return false;
}

static int combining_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Sorts n marks by their class, and keeps the order within a class. `other` is memory for n marks. */
static void sort_marks(int32_t *marks, int32_t *other, size_t n) {
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++) {
        starts[combining_class(marks[i]) + 1]++;
    }
    for (size_t k = 1; k < 257; k++) {
        starts[k] += starts[k - 1];
    }
    for (size_t i = 0; i < n; i++) {
        other[starts[combining_class(marks[i])]++] = marks[i];
    }
    memcpy(marks, other, n * sizeof *marks);
}

/* Sorts each sequence of marks between starters. */
static void reorder(int32_t *points, int32_t *other, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool sorted = true;
        while (end < n && combining_class(points[end]) != 0) {
            sorted = sorted && (end == i || combining_class(points[end - 1]) <= combining_class(points[end]));
            end++;
        }
        if (!sorted) {
            sort_marks(points + i, other, end - i);
        }
        i = end + (end == i);
    }
}

static size_t decompose(const uint8_t *text, size_t size, int32_t *points) {
    size_t n = 0;
    for (size_t at = 0; at < size; at += napier_utf8_length(text[at])) {
        const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
        int boundary = 0;
        const utf8proc_ssize_t parts =
            utf8proc_decompose_char((int32_t)napier_utf8_get(text + at), points + n, MOST_PARTS, options, &boundary);
        n += parts > 0 && parts <= MOST_PARTS ? (size_t)parts : 0; /* always true for a code point */
    }
    return n;
}

/* Normalises a stretch that has no barriers and does not interact with its neighbours. */
static napier_status compose(napier_context *context, const uint8_t *text, size_t size, napier_scratch *scratch,
                             napier_text_buffer *out) {
    NAPIER_TRY(napier_scratch_reserve(context, scratch, 2 * MOST_PARTS * size, sizeof(int32_t)));
    NAPIER_TRY(napier_text_buffer_reserve(context, out, MOST_PARTS * 4 * size));
    int32_t *const points = scratch->data;
    size_t n = decompose(text, size, points);
    reorder(points, points + n, n);
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(points, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    n = composed > 0 ? (size_t)composed : 0;
    for (size_t i = 0; i < n; i++) {
        out->size += (size_t)utf8proc_encode_char(points[i], (uint8_t *)out->bytes + out->size);
    }
    return NAPIER_OK;
}

napier_status napier_nfc(napier_context *context, const uint8_t *table, const uint8_t *text, size_t size,
                         napier_scratch *scratch, napier_text_buffer *out) {
    size_t copied = 0; /* everything before this is in `out` */
    size_t before = 0; /* start of the last character that the next one may join, or where it would have ended */
    for (size_t at = 0; at < size;) {
        const uint8_t flags = table[napier_utf8_get(text + at)];
        if ((flags & NAPIER_CHAR_ACTIVE) == 0) {
            const size_t length = napier_utf8_length(text[at]);
            before = flags & NAPIER_CHAR_BARRIER ? at + length : at;
            at += length;
            continue;
        }
        size_t end = at;
        while (end < size && table[napier_utf8_get(text + end)] & NAPIER_CHAR_ACTIVE) {
            end += napier_utf8_length(text[end]);
        }
        NAPIER_TRY(napier_text_buffer_append(context, out, (const char *)text + copied, before - copied));
        NAPIER_TRY(compose(context, text + before, end - before, scratch, out));
        copied = before = at = end;
    }
    return napier_text_buffer_append(context, out, (const char *)text + copied, size - copied);
}
