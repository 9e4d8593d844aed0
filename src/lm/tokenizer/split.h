/* lm/tokenizer/split.h - the regular expression that splits text into words.
 *
 * PCRE2 (https://www.pcre.org) matches, but not on the text itself: it gets one byte for each character, the
 * character's code (alphabet.h). So the meaning of \p{L} and \s comes from our table and not from PCRE2's version
 * of Unicode, and bytes match faster than UTF-8. split_pattern.c translates the file's expression, which is written for
 * Oniguruma. Anything that the two engines understand differently, or that would need more codes, is UNSUPPORTED. */
#ifndef NAPIER_LM_TOKENIZER_SPLIT_H
#define NAPIER_LM_TOKENIZER_SPLIT_H

#include "lm/text/buffer.h"
#include "lm/text/json.h"
#include "lm/tokenizer/alphabet.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

typedef struct napier_split {
    struct pcre2_real_code_8 *code;
    bool jit; /* compiled to machine code */
} napier_split;

/* An expression of a tokenizer.json, or a text that stands for itself. */
typedef struct napier_pattern {
    const char *text;
    bool literal;
} napier_pattern;

/* Gives the characters that an expression names, and not only their kind, codes of their own. Call it for all
 * expressions of a file before any is compiled. */
napier_status napier_split_collect(napier_json *json, napier_alphabet *alphabet, napier_pattern pattern);

/* Compiles an expression. The memory comes from `allocator`, which must live as long as *split.
 * Errors: UNSUPPORTED; the message says what, and where in the expression. */
napier_status napier_split_compile(napier_json *json, napier_allocator *allocator, napier_alphabet *alphabet,
                                   napier_pattern pattern, napier_split *split);
void napier_split_free(napier_split *split);

/* Translates an expression to one over codes, and appends it. */
napier_status napier_split_translate(napier_json *json, napier_alphabet *alphabet, napier_pattern pattern,
                                     napier_text_buffer *out);

/* The memory and limits of matching, one for each thread. */
typedef struct napier_matcher {
    const napier_split *split;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *limits;
    size_t looked; /* characters of this class string that were read without a match */
    size_t most;   /* upper limit of looked */
} napier_matcher;

/* Allocates a matcher. Free it even after a failure. */
napier_status napier_matcher_prepare(napier_context *context, const napier_split *split, napier_matcher *m);
void napier_matcher_free(napier_matcher *m);

/* Starts a new class string of n bytes. */
void napier_matcher_start(napier_matcher *m, size_t n);

/* Finds the first match at or after `from`: [*start, *end), not empty; or n, n if there is none. All matches of a class
 * string together take time linear in n, whatever the expression is. An expression that would take longer is
 * UNSUPPORTED. */
napier_status napier_matcher_next(napier_context *context, napier_matcher *m, const uint8_t *classes, size_t n,
                                  size_t from, size_t *start, size_t *end);

#endif
