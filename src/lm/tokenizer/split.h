/* lm/tokenizer/split.h - the regular expression by which a tokenizer cuts text into words.
 *
 * PCRE2 matches (https://www.pcre.org), but not on the text: on one byte for each character, its class
 * (napier_classify). So what \p{L} and \s mean comes from our table, not from PCRE2's version of Unicode, and bytes
 * match faster than UTF-8. split_pattern.c translates the file's expression, which is written for Oniguruma; what the
 * two understand differently, or what would need more classes, is UNSUPPORTED. */
#ifndef NAPIER_LM_TOKENIZER_SPLIT_H
#define NAPIER_LM_TOKENIZER_SPLIT_H

#include "lm/text/buffer.h"
#include "lm/text/json.h"
#include "lm/tokenizer/unicode.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

/* A class string: ASCII as it is, and NAPIER_FIRST_CLASS + napier_char_class for all else. */
enum { NAPIER_FIRST_CLASS = 0x80, NAPIER_CODES = NAPIER_FIRST_CLASS + NAPIER_CHAR_CLASSES };

typedef struct napier_split {
    struct pcre2_real_code_8 *code;
    bool jit; /* compiled to machine code */
} napier_split;

/* Compiles the expression of a tokenizer.json. The memory is taken from `allocator`, which must live as long as *split.
 * Errors: UNSUPPORTED, naming what and where. */
napier_status napier_split_compile(const napier_json *json, napier_allocator *allocator, const char *pattern,
                                   napier_split *split);
void napier_split_free(napier_split *split);

/* The translation: appends an expression over class strings. */
napier_status napier_split_translate(const napier_json *json, const char *pattern, napier_text_buffer *out);

/* What matching needs beside the expression; each thread its own. */
typedef struct napier_matcher {
    const napier_split *split;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *limits;
    size_t looked; /* characters that were looked at in vain, in this class string, */
    size_t most;   /* and how many may be */
} napier_matcher;

/* Free it even after a failure. */
napier_status napier_matcher_prepare(napier_context *context, const napier_split *split, napier_matcher *m);
void napier_matcher_free(napier_matcher *m);

/* A new class string, of n bytes. */
void napier_matcher_start(napier_matcher *m, size_t n);

/* The first match at or after `from`: [*start, *end), *end > *start; n, n where there is none. Time for all matches of a
 * class string: n, whatever the expression; one that would take longer is UNSUPPORTED. */
napier_status napier_matcher_next(napier_context *context, napier_matcher *m, const uint8_t *classes, size_t n,
                                  size_t from, size_t *start, size_t *end);

/* Writes the classes of text that has been checked; returns how many. */
size_t napier_classify(const uint8_t *table, const uint8_t *text, size_t size, uint8_t *classes);

#endif
