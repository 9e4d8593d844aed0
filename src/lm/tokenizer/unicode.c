/* lm/tokenizer/unicode.c - checks UTF-8 with utf8proc, and expands the table of code points. */
#include "lm/tokenizer/unicode.h"

#include <string.h>

#include <utf8proc.h>

static const uint32_t runs[] = {
#include "lm/tokenizer/unicode_runs.h"
};
enum { RUNS = sizeof runs / sizeof runs[0] };

void napier_unicode_table(uint8_t *table) {
    for (size_t i = 0; i < RUNS; i++) {
        const uint32_t first = runs[i] >> 8, end = i + 1 < RUNS ? runs[i + 1] >> 8 : NAPIER_CODE_POINTS;
        memset(table + first, (int)(runs[i] & 0xff), end - first);
    }
    table[0x17f] = (uint8_t)(table[0x17f] - NAPIER_CHAR_LOWER + NAPIER_CHAR_LONG_S);
    table[0x212a] = (uint8_t)(table[0x212a] - NAPIER_CHAR_UPPER + NAPIER_CHAR_KELVIN);
}

size_t napier_utf8_check(const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        int32_t point;
        const utf8proc_ssize_t length =
            napier_is_ascii(text, size, at) ? 8 : utf8proc_iterate(text + at, (utf8proc_ssize_t)(size - at), &point);
        if (length <= 0) {
            return at;
        }
        at += (size_t)length;
    }
    return size;
}
