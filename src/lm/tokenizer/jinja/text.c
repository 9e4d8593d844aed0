/* lm/tokenizer/jinja/text.c - texts in characters: their length, parts of them, searches. */
#include "lm/tokenizer/jinja/jinja.h"
#include "lm/tokenizer/unicode.h"

/* The bytes of the character at the beginning; a byte that begins none counts as one. */
static size_t character(napier_span text) {
    const size_t length = napier_utf8_length((uint8_t)text.bytes[0]);
    return length >= 1 && length <= 4 && length <= text.size ? length : 1;
}

int64_t napier_jinja_length(napier_span text) {
    int64_t count = 0;
    for (size_t i = 0; i < text.size; count++) {
        i += character((napier_span){text.bytes + i, text.size - i});
    }
    return count;
}

napier_span napier_jinja_part(napier_span text, int64_t from, int64_t to) {
    size_t begin = 0;
    int64_t at = 0;
    for (; at < from && begin < text.size; at++) {
        begin += character((napier_span){text.bytes + begin, text.size - begin});
    }
    size_t end = begin;
    for (; at < to && end < text.size; at++) {
        end += character((napier_span){text.bytes + end, text.size - end});
    }
    return (napier_span){text.bytes + begin, end - begin};
}

int64_t napier_jinja_find(napier_span text, napier_span part, size_t from) {
    if (part.size == 0) {
        return from <= text.size ? (int64_t)from : -1;
    }
    for (size_t at = from; at + part.size <= text.size; at++) {
        const char *const found = memchr(text.bytes + at, part.bytes[0], text.size - part.size + 1 - at);
        if (found == NULL) {
            return -1;
        }
        at = (size_t)(found - text.bytes);
        if (memcmp(found, part.bytes, part.size) == 0) {
            return (int64_t)at;
        }
    }
    return -1;
}
