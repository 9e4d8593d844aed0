/* lm/tokenizer/alphabet.h - the characters that a file's expressions tell apart, a byte each.
 *
 * ASCII stands for itself. Any other character has the code of its class (unicode.h), which is enough for \p{L} and \s.
 * Where an expression names characters ("[\u4e00-\u9fa5]"), napier_alphabet_divide divides the classes into those named
 * and the others. Two characters have one code if no expression of the file tells them apart, so a set of characters is
 * always a set of codes. */
#ifndef NAPIER_LM_TOKENIZER_ALPHABET_H
#define NAPIER_LM_TOKENIZER_ALPHABET_H

#include "core/base/context.h"
#include "lm/tokenizer/unicode.h"

enum { NAPIER_FIRST_CLASS = 0x80, NAPIER_MOST_CODES = 256 };

/* Code points [first, last], none of them ASCII. */
typedef struct napier_range {
    uint32_t first, last;
} napier_range;

typedef struct napier_alphabet {
    uint8_t *table;                     /* from napier_unicode_table; not owned */
    uint8_t *codes;                     /* [NAPIER_CODE_POINTS] */
    uint8_t kinds[NAPIER_MOST_CODES];   /* the class of each code */
    uint32_t counts[NAPIER_MOST_CODES]; /* code points of each code; all 0 before the first division */
    int count;                          /* codes in use are less than this */
    uint64_t looked;                    /* code points of all ranges so far */
} napier_alphabet;

/* Free it even after a failure. */
napier_status napier_alphabet_prepare(napier_context *context, uint8_t *table, napier_alphabet *alphabet);
void napier_alphabet_free(const napier_allocator *allocator, napier_alphabet *alphabet);

/* Divides each code into the code points within all these ranges and those outside. Returns false if there would be more
 * than NAPIER_MOST_CODES codes, or if all ranges of the file together are too long. */
bool napier_alphabet_divide(napier_alphabet *alphabet, const napier_range *ranges, size_t count);

/* Sets has[code] for the code of each code point in these ranges. Returns false if they are too long. */
bool napier_alphabet_codes(napier_alphabet *alphabet, const napier_range *ranges, size_t count,
                           bool has[NAPIER_MOST_CODES]);

/* Sets has[code] for each code whose class is in a set (NAPIER_CHARS_LETTERS ...). */
void napier_alphabet_kinds(const napier_alphabet *alphabet, uint32_t set, bool has[NAPIER_MOST_CODES]);

/* Writes the codes of a text (valid UTF-8) and returns their number. */
size_t napier_classify(const uint8_t *codes, const uint8_t *text, size_t size, uint8_t *out);

#endif
