/* lm/tokenizer/normalize.c - normal forms. Most text is copied unchanged. utf8proc decomposes and composes short
 * stretches (https://juliastrings.github.io/utf8proc). The marks in between are reordered here, because utf8proc's time
 * for that is quadratic in their number. */
#include "lm/tokenizer/normalize.h"

#include <string.h>

#include <utf8proc.h>

#include "lm/tokenizer/unicode.h"
#include "core/base/scope.h"

/* The maximum of code points in a decomposition: U+1F82 has 4 canonical ones, and U+FDFA 18 compatible ones. */
static size_t most_parts(napier_form form) { return form == NAPIER_NFC || form == NAPIER_NFD ? 4 : 18; }

/* True if the form may change a character, move it, or join it with an earlier one. It is only in normal form C that
 * the table knows it; elsewhere all with a decomposition are looked at. */
static inline bool is_active(napier_form form, const uint8_t *table, uint32_t c) {
    const uint8_t flags = table[c];
    if (form == NAPIER_NFC || flags & (NAPIER_CHAR_ACTIVE | NAPIER_CHAR_BARRIER) || c < 0x80) {
        return flags & NAPIER_CHAR_ACTIVE;
    }
    const bool is_syllable = c >= 0xac00 && c <= 0xd7a3; /* of Hangul */
    return is_syllable || utf8proc_get_property((int32_t)c)->decomp_seqindex != UINT16_MAX;
}

bool napier_form_may_change(napier_form form, const uint8_t *table, const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        if (napier_is_ascii(text, size, at)) {
            at += 8;
            continue;
        }
        if (is_active(form, table, napier_utf8_get(text + at))) {
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

static size_t decompose(napier_form form, const uint8_t *text, size_t size, int32_t *points) {
    size_t n = 0;
    const size_t most = most_parts(form);
    const utf8proc_option_t compatible = most > 4 ? UTF8PROC_COMPAT : 0;
    for (size_t at = 0; at < size; at += napier_utf8_length(text[at])) {
        const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | compatible;
        int boundary = 0;
        const utf8proc_ssize_t parts = utf8proc_decompose_char((int32_t)napier_utf8_get(text + at), points + n,
                                                               (utf8proc_ssize_t)most, options, &boundary);
        n += parts > 0 && (size_t)parts <= most ? (size_t)parts : 0; /* always true for a code point */
    }
    return n;
}

/* Normalises a stretch that has no barriers and does not interact with its neighbours. */
static napier_status compose(napier_context *context, napier_form form, const uint8_t *text, size_t size,
                             napier_scratch *scratch, napier_text_buffer *out) {
    NAPIER_TRY(napier_scratch_reserve(context, scratch, 2 * most_parts(form) * size, sizeof(int32_t)));
    int32_t *const points = scratch->data;
    size_t n = decompose(form, text, size, points);
    NAPIER_TRY(napier_text_buffer_reserve(context, out, 4 * n));
    reorder(points, points + n, n);
    if (form == NAPIER_NFC || form == NAPIER_NFKC) {
        const utf8proc_ssize_t composed =
            utf8proc_normalize_utf32(points, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        n = composed > 0 ? (size_t)composed : 0;
    }
    for (size_t i = 0; i < n; i++) {
        out->size += (size_t)utf8proc_encode_char(points[i], (uint8_t *)out->bytes + out->size);
    }
    return NAPIER_OK;
}

napier_status napier_normalize(napier_context *context, napier_form form, const uint8_t *table, const uint8_t *text,
                               size_t size, napier_scratch *scratch, napier_text_buffer *out) {
    size_t copied = 0; /* everything before this is in `out` */
    size_t before = 0; /* start of the last character that the next one may join, or where it would have ended */
    for (size_t at = 0; at < size;) {
        const uint32_t c = napier_utf8_get(text + at);
        if (!is_active(form, table, c)) {
            const size_t length = napier_utf8_length(text[at]);
            before = table[c] & NAPIER_CHAR_BARRIER ? at + length : at;
            at += length;
            continue;
        }
        size_t end = at;
        while (end < size && is_active(form, table, napier_utf8_get(text + end))) {
            end += napier_utf8_length(text[end]);
        }
        NAPIER_TRY(napier_text_buffer_append(context, out, (const char *)text + copied, before - copied));
        NAPIER_TRY(compose(context, form, text + before, end - before, scratch, out));
        copied = before = at = end;
    }
    return napier_text_buffer_append(context, out, (const char *)text + copied, size - copied);
}

/* ---- Case and marks ---------------------------------------------------------------------------------------------- */

/* Lower case since Unicode 15. Older versions of utf8proc do not know these. */
static const struct {
    int32_t first, last, lower; /* of the first */
} later[] = {{0x1c89, 0x1c89, 0x1c8a},   {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
             {0xa7ce, 0xa7ce, 0xa7cf},   {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
             {0xa7da, 0xa7da, 0xa7db},   {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
             {0x16ea0, 0x16eb8, 0x16ebb}};

static int32_t lower_of(int32_t c) {
    for (size_t i = 0; i < sizeof later / sizeof later[0] && c >= later[0].first; i++) {
        if (c >= later[i].first && c <= later[i].last) {
            return later[i].lower + (c - later[i].first);
        }
    }
    return utf8proc_tolower(c);
}

napier_status napier_lowercase(napier_context *context, const uint8_t *text, size_t size, napier_text_buffer *out) {
    NAPIER_TRY(napier_text_buffer_reserve(context, out, 2 * size)); /* U+023A has 2 bytes, and its lower case 3 */
    for (size_t at = 0; at < size; at += napier_utf8_length(text[at])) {
        const int32_t c = (int32_t)napier_utf8_get(text + at);
        if (c == 0x130) { /* the only one that becomes two: i, and a dot above */
            NAPIER_TRY(napier_text_buffer_append(context, out, "i\xcc\x87", 3));
        } else if (c < 0x80) {
            out->bytes[out->size++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        } else {
            out->size += (size_t)utf8proc_encode_char(lower_of(c), (uint8_t *)out->bytes + out->size);
        }
    }
    return NAPIER_OK;
}

napier_status napier_strip_accents(napier_context *context, const uint8_t *table, const uint8_t *text, size_t size,
                                   napier_text_buffer *out) {
    size_t copied = 0;
    for (size_t at = 0; at < size;) {
        const uint32_t c = napier_utf8_get(text + at);
        const bool is_known = (table[c] & NAPIER_CHAR_BARRIER) == 0;
        const bool was_mark = c == 0x1cf2 || c == 0x1cf3; /* until Unicode 12 */
        const size_t end = at + napier_utf8_length(text[at]);
        if (was_mark || (is_known && napier_char_is(table[c], NAPIER_CHARS(MARK)))) { /* U+111C9 was none yet */
            NAPIER_TRY(napier_text_buffer_append(context, out, (const char *)text + copied, at - copied));
            copied = end;
        }
        at = end;
    }
    return napier_text_buffer_append(context, out, (const char *)text + copied, size - copied);
}
