/* tokenizer/added.h - added tokens, found in text before anything else happens to it: at the leftmost place, the
 * longest. */
#ifndef NAPIER_TOKENIZER_ADDED_H
#define NAPIER_TOKENIZER_ADDED_H

#include <stdbool.h>

#include "base/context.h"

typedef struct napier_added_token {
    const char *text; /* memory of the vocabulary's */
    uint32_t size;    /* not 0 */
    int32_t id;
    bool special;
} napier_added_token;

typedef struct napier_added_set {
    napier_added_token *tokens; /* sorted by text */
    size_t count;
    uint32_t starts[257]; /* those whose first byte is b: tokens[starts[b] .. starts[b + 1]) */
} napier_added_set;

/* Sorts the tokens. The same text twice is false. */
bool napier_added_prepare(napier_added_set *set);

/* The next token in text[from .. size), and *at where it starts; NULL where there is none. */
const napier_added_token *napier_added_next(const napier_added_set *set, const char *text, size_t from, size_t size,
                                            size_t *at);

#endif
