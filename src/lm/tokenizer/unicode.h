/* lm/tokenizer/unicode.h - UTF-8, and what a tokenizer has to know of each code point: one byte in a table of all.
 * The table is of fixed Unicode versions (tools/make_unicode_table.py), so that ids do not depend on a machine's
 * libraries. */
#ifndef NAPIER_LM_TOKENIZER_UNICODE_H
#define NAPIER_LM_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum { NAPIER_CODE_POINTS = 0x110000 };

/* What regular expressions tell apart: letters (\p{L}), marks (\p{M}), numbers (\p{N}), white space (\s) and the rest.
 * The two letters beyond ASCII that are an ASCII letter's other case, U+017F (s) and U+212A (k), have a class each. */
typedef enum napier_char_class {
    NAPIER_CHAR_OTHER,
    NAPIER_CHAR_LETTER,
    NAPIER_CHAR_MARK,
    NAPIER_CHAR_NUMBER,
    NAPIER_CHAR_SPACE,
    NAPIER_CHAR_LONG_S,
    NAPIER_CHAR_KELVIN,
    NAPIER_CHAR_CLASSES
} napier_char_class;

/* An entry of the table: the class, and two flags for normal form C. */
enum {
    NAPIER_CHAR_CLASS = 7,
    NAPIER_CHAR_ACTIVE = 8,  /* may change in NFC, or move, or join with one before it */
    NAPIER_CHAR_BARRIER = 16 /* unknown to that version of Unicode: nothing joins with it or moves across it */
};

/* Fills table[NAPIER_CODE_POINTS]. */
void napier_unicode_table(uint8_t *table);

/* The offset of the first byte that does not belong to UTF-8 (no surrogates, nothing overlong), or `size`. */
size_t napier_utf8_check(const uint8_t *text, size_t size);

/* The bytes of the character that starts with this byte, in text that has been checked. */
static inline size_t napier_utf8_length(uint8_t first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The code point at `at`, in text that has been checked. */
static inline uint32_t napier_utf8_get(const uint8_t *at) {
    if (at[0] < 0x80) {
        return at[0];
    }
    if (at[0] < 0xe0) {
        return (uint32_t)(at[0] & 31) << 6 | (uint32_t)(at[1] & 63);
    }
    if (at[0] < 0xf0) {
        return (uint32_t)(at[0] & 15) << 12 | (uint32_t)(at[1] & 63) << 6 | (uint32_t)(at[2] & 63);
    }
    return (uint32_t)(at[0] & 7) << 18 | (uint32_t)(at[1] & 63) << 12 | (uint32_t)(at[2] & 63) << 6 |
           (uint32_t)(at[3] & 63);
}

/* Writes a code point, at most 4 bytes; returns how many. */
size_t napier_utf8_put(uint8_t *at, uint32_t c);

#endif
