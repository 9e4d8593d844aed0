/* lm/tokenizer/unicode.h - UTF-8, and a table with one byte for each code point. The table has fixed Unicode versions
 * (tools/make_unicode_table.py), so ids do not depend on a machine's libraries. */
#ifndef NAPIER_LM_TOKENIZER_UNICODE_H
#define NAPIER_LM_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NAPIER_CODE_POINTS = 0x110000 };

/* The classes that expressions and pre-tokenizers tell apart. The two letters beyond ASCII that match an ASCII letter if
 * case is ignored, U+017F (s) and U+212A (k), have a class each. */
typedef enum napier_char_class {
    NAPIER_CHAR_OTHER,
    NAPIER_CHAR_JOINER, /* U+200C and U+200D, which are in words for Whitespace */
    NAPIER_CHAR_UPPER,  /* \p{Lu} */
    NAPIER_CHAR_LOWER,
    NAPIER_CHAR_TITLE,
    NAPIER_CHAR_MODIFIER,
    NAPIER_CHAR_LETTER, /* of no case, such as U+4E2D */
    NAPIER_CHAR_MARK,
    NAPIER_CHAR_MARK_POINT,   /* a mark that the pre-tokenizer Punctuation takes */
    NAPIER_CHAR_DIGIT,        /* \p{Nd} */
    NAPIER_CHAR_NUMERAL,      /* \p{Nl} */
    NAPIER_CHAR_NUMBER,       /* \p{No} */
    NAPIER_CHAR_NUMBER_LATER, /* a number since Unicode 17, which the pre-tokenizer Digits knows */
    NAPIER_CHAR_SPACE,
    NAPIER_CHAR_CONNECTOR,   /* \p{Pc} */
    NAPIER_CHAR_POINT,       /* other punctuation */
    NAPIER_CHAR_POINT_LATER, /* punctuation that the pre-tokenizer Punctuation does not know yet */
    NAPIER_CHAR_SYMBOL,
    NAPIER_CHAR_SYMBOL_LETTER, /* such as U+24B6, a circled A, which is in words for Whitespace */
    NAPIER_CHAR_SYMBOL_POINT,  /* such as $, which the pre-tokenizer Punctuation takes */
    NAPIER_CHAR_LONG_S,        /* lower case */
    NAPIER_CHAR_KELVIN,        /* upper case */
    NAPIER_CHAR_CLASSES
} napier_char_class;

#define NAPIER_CHARS(kind) (UINT32_C(1) << NAPIER_CHAR_##kind)

/* Sets of classes, a bit each. */
enum {
    NAPIER_CHARS_UPPER = NAPIER_CHARS(UPPER) | NAPIER_CHARS(KELVIN),
    NAPIER_CHARS_LOWER = NAPIER_CHARS(LOWER) | NAPIER_CHARS(LONG_S),
    NAPIER_CHARS_LETTERS =
        NAPIER_CHARS_UPPER | NAPIER_CHARS_LOWER | NAPIER_CHARS(TITLE) | NAPIER_CHARS(MODIFIER) | NAPIER_CHARS(LETTER),
    NAPIER_CHARS_MARKS = NAPIER_CHARS(MARK) | NAPIER_CHARS(MARK_POINT),
    NAPIER_CHARS_NUMBERS = NAPIER_CHARS(DIGIT) | NAPIER_CHARS(NUMERAL) | NAPIER_CHARS(NUMBER),
    NAPIER_CHARS_POINTS = NAPIER_CHARS(CONNECTOR) | NAPIER_CHARS(POINT) | NAPIER_CHARS(POINT_LATER),
    NAPIER_CHARS_SYMBOLS = NAPIER_CHARS(SYMBOL) | NAPIER_CHARS(SYMBOL_LETTER) | NAPIER_CHARS(SYMBOL_POINT),
    NAPIER_CHARS_SPACES = NAPIER_CHARS(SPACE),
    /* of the pre-tokenizers Digits and Punctuation, and of the words that Whitespace finds */
    NAPIER_CHARS_OF_DIGITS = NAPIER_CHARS_NUMBERS | NAPIER_CHARS(NUMBER_LATER),
    NAPIER_CHARS_OF_PUNCTUATION =
        NAPIER_CHARS(CONNECTOR) | NAPIER_CHARS(POINT) | NAPIER_CHARS(MARK_POINT) | NAPIER_CHARS(SYMBOL_POINT),
    NAPIER_CHARS_OF_WORDS = NAPIER_CHARS_LETTERS | NAPIER_CHARS_MARKS | NAPIER_CHARS(DIGIT) | NAPIER_CHARS(NUMERAL) |
                            NAPIER_CHARS(CONNECTOR) | NAPIER_CHARS(SYMBOL_LETTER) | NAPIER_CHARS(JOINER)
};

/* An entry of the table: the class, two flags for normal forms, and one that is set only for a moment. */
enum {
    NAPIER_CHAR_CLASS = 31,
    NAPIER_CHAR_ACTIVE = 32,  /* normal form C may change it, move it, or join it with an earlier character */
    NAPIER_CHAR_BARRIER = 64, /* not in that version of Unicode: no character joins with it or moves across it */
    NAPIER_CHAR_MARKED = 128  /* napier_alphabet_divide has seen it */
};

/* True if the class of an entry of the table is in a set. */
static inline bool napier_char_is(uint8_t entry, uint32_t set) { return set >> (entry & NAPIER_CHAR_CLASS) & 1; }

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
