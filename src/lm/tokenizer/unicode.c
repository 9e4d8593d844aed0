/* lm/tokenizer/unicode.c - checks UTF-8, and expands the table of code points. */
#include "lm/tokenizer/unicode.h"

#include <string.h>

static const uint32_t runs[] = {
#include "lm/tokenizer/unicode_runs.h"
};
enum { RUNS = sizeof runs / sizeof runs[0] };

void napier_unicode_table(uint8_t *table) {
    for (size_t i = 0; i < RUNS; i++) {
        const uint32_t first = runs[i] >> 8, end = i + 1 < RUNS ? runs[i + 1] >> 8 : NAPIER_CODE_POINTS;
        memset(table + first, (int)(runs[i] & 0xff), end - first);
    }
    table[0x17f] = (uint8_t)(table[0x17f] - NAPIER_CHAR_LETTER + NAPIER_CHAR_LONG_S);
    table[0x212a] = (uint8_t)(table[0x212a] - NAPIER_CHAR_LETTER + NAPIER_CHAR_KELVIN);
}

/* The length of the valid character at `at`, where `left` bytes remain; 0 if it is invalid (Unicode 16, table 3-7). */
static size_t checked_length(const uint8_t *at, size_t left) {
    const uint8_t first = at[0];
    const size_t length = napier_utf8_length(first);
    if (first < 0xc2 || first > 0xf4 || left < length) {
        return 0;
    }
    const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < least || at[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

size_t napier_utf8_check(const uint8_t *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        uint64_t eight = 0x80;
        if (size - at >= 8) {
            memcpy(&eight, text + at, 8);
        }
        if ((eight & UINT64_C(0x8080808080808080)) == 0) {
            at += 8;
            continue;
        }
        const size_t length = text[at] < 0x80 ? 1 : checked_length(text + at, size - at);
        if (length == 0) {
            return at;
        }
        at += length;
    }
    return size;
}

size_t napier_utf8_put(uint8_t *at, uint32_t c) {
    if (c < 0x80) {
        at[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        at[0] = (uint8_t)(0xc0 | c >> 6);
        at[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        at[0] = (uint8_t)(0xe0 | c >> 12);
        at[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        at[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    at[0] = (uint8_t)(0xf0 | c >> 18);
    at[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    at[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    at[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}
