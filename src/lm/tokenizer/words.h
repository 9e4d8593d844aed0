/* lm/tokenizer/words.h - the pre-tokenizer: a list of steps that cut a text into words.
 *
 * Each step gets a word, which is at first the whole text, and gives words to the next step. What the last one gives is
 * merged. A step is of one of four kinds, each with its function: words_space.c puts and marks spaces and turns
 * characters into bytes; words_cut.c cuts at the matches of an expression, or at the characters of a set. All
 * pre-tokenizers of `tokenizers` that are supported are one or two of these. */
#ifndef NAPIER_LM_TOKENIZER_WORDS_H
#define NAPIER_LM_TOKENIZER_WORDS_H

#include <stdbool.h>

#include "lm/tokenizer/split.h"
#include "lm/tokenizer/steps.h"

enum { NAPIER_MOST_WORD_STEPS = 16 };

typedef enum napier_word_step_kind {
    NAPIER_WORDS_SPACE,   /* puts a space before a word, and may mark all spaces */
    NAPIER_WORDS_PATTERN, /* cuts at the matches of an expression */
    NAPIER_WORDS_CHARS,   /* cuts at characters of a set */
    NAPIER_WORDS_BYTES    /* characters become bytes: each has the code of its character in GPT-2's alphabet */
} napier_word_step_kind;

/* What becomes of a match, in the order of their names in load_words.c. */
typedef enum napier_behavior {
    NAPIER_ISOLATED,
    NAPIER_REMOVED,
    NAPIER_CONTIGUOUS, /* consecutive matches are one word */
    NAPIER_MERGED_WITH_PREVIOUS,
    NAPIER_MERGED_WITH_NEXT
} napier_behavior;

/* Which words get a space before them. */
typedef enum napier_prefix { NAPIER_PREFIX_NEVER, NAPIER_PREFIX_FIRST, NAPIER_PREFIX_ALWAYS } napier_prefix;

typedef struct napier_word_step {
    napier_word_step_kind kind;
    /* of SPACE */
    napier_short_text space; /* " ", or the mark that stands for it in tokens, U+2581 */
    bool marks_spaces;       /* each " " of a word becomes `space` */
    napier_prefix prefix;
    /* of PATTERN and CHARS */
    napier_behavior behavior;
    bool inverted;          /* what matches does not, and the other way round */
    napier_pattern pattern; /* until it is compiled */
    napier_split split;
    uint32_t kinds; /* NAPIER_CHARS_... of the set */
    bool members[NAPIER_MOST_CODES];
} napier_word_step;

/* Where a word of a tokenizer of characters is cut, in the end. */
typedef enum napier_cut {
    NAPIER_CUT_NONE,
    NAPIER_CUT_RUNS, /* before a space that follows another character: no merge joins these two */
    NAPIER_CUT_MARKS /* before each space */
} napier_cut;

typedef struct napier_words {
    napier_word_step steps[NAPIER_MOST_WORD_STEPS];
    int count;
    napier_short_text space; /* of `cut` */
    napier_cut cut;
    napier_alphabet alphabet;
    uint8_t byte_codes[256]; /* of the alphabet of bytes */
} napier_words;

void napier_words_free(const napier_allocator *allocator, napier_words *words);

/* A word between two steps. Its codes are NULL until a step needs them. */
typedef struct napier_word {
    const uint8_t *text, *codes;
    size_t size, count; /* bytes, and codes; each byte has a code if they are equal */
    bool is_first;      /* it begins where the text does */
} napier_word;

/* Takes a word of the last step. */
typedef napier_status napier_take_word(void *taker, const uint8_t *text, size_t size);

/* The memory of one step. Its words lie in it. */
typedef struct napier_word_level {
    napier_matcher matcher;
    napier_scratch codes;
    napier_text_buffer text;
} napier_word_level;

/* The state of a thread that cuts texts. */
typedef struct napier_cutter {
    napier_context *context;
    const napier_words *words;
    bool continues; /* no space is put before the first word */
    napier_take_word *take;
    void *taker;
    napier_word_level levels[NAPIER_MOST_WORD_STEPS];
} napier_cutter;

/* Allocates the matchers. context, words, take and taker are set. Free it even after a failure. */
napier_status napier_cutter_prepare(napier_cutter *c);
void napier_cutter_free(napier_cutter *c);

/* Cuts a text, which is not empty. is_first: nothing of the whole text is before it. */
napier_status napier_cutter_cut(napier_cutter *c, const uint8_t *text, size_t size, bool is_first);

/* Hands a word to step k, or to the taker if there is none. */
napier_status napier_words_give(napier_cutter *c, int k, napier_word word);

/* Steps that change a word. */
napier_status napier_words_space(napier_cutter *c, int k, napier_word *word);
napier_status napier_words_bytes(napier_cutter *c, int k, napier_word *word);

#endif
