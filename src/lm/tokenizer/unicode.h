/* lm/tokenizer/unicode.h - UTF-8, and a table with one byte for each code point. The table has fixed Unicode versions
 * (tools/make_unicode_table.py), so ids do not depend on a machine's libraries. */
#ifndef NAPIER_LM_TOKENIZER_UNICODE_H
#define NAPIER_LM_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NAPIER_CODE_POINTS = 0x110000 };

/* The classes that regular expressions distinguish: letters of the five kinds (\p{Lu}, \p{Ll}, \p{Lt}, \p{Lm}, \p{Lo};
 * together \p{L}), marks (\p{M}), numbers (\p{N}), white space (\s) and others. The two letters beyond ASCII that match
 * an ASCII letter if case is ignored, U+017F (s) and U+212A (k), have a class each. */
typedef enum napier_char_class {
    NAPIER_CHAR_OTHER,
    NAPIER_CHAR_UPPER,
    NAPIER_CHAR_LOWER,
    NAPIER_CHAR_TITLE,
    NAPIER_CHAR_MODIFIER,
    NAPIER_CHAR_LETTER, /* of no case, such as U+4E2D */
    NAPIER_CHAR_MARK,
    NAPIER_CHAR_NUMBER,
    NAPIER_CHAR_SPACE,
    NAPIER_CHAR_LONG_S, /* lower case */
    NAPIER_CHAR_KELVIN, /* upper case */
    NAPIER_CHAR_CLASSES
} napier_char_class;

/* An entry of the table: the class, and two flags for normal form C. */
enum {
    NAPIER_CHAR_CLASS = 15,
    NAPIER_CHAR_ACTIVE = 16, /* normal form C may change it, move it, or join it with an earlier character */
    NAPIER_CHAR_BARRIER = 32 /* not in that version of Unicode: no character joins with it or moves across it */
};

/* Fills table[NAPIER_CODE_POINTS]. */
void napier_unicode_table(uint8_t *table);

/* The offset of the first byte that is not valid UTF-8 (surrogates and overlong forms are invalid), or `size`. */
size_t napier_utf8_check(const uint8_t *text, size_t size);

/* The number of bytes of a character with this first byte, in valid UTF-8. */
static inline size_t napier_utf8_length(uint8_t first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The code point at `at`, in valid UTF-8. */
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

/* True if the next eight bytes at text[at], of `size`, are there and ASCII, which is most text. */
static inline bool napier_is_ascii(const uint8_t *text, size_t size, size_t at) {
    uint64_t eight = 0x80;
    if (size - at >= 8) {
        memcpy(&eight, text + at, 8);
    }
    return (eight & UINT64_C(0x8080808080808080)) == 0;
}

#endif
