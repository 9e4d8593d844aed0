/* lm/tokenizer/added.h - added tokens, found in text before anything else happens to it: at the leftmost place, the
 * longest. */
#ifndef NAPIER_LM_TOKENIZER_ADDED_H
#define NAPIER_LM_TOKENIZER_ADDED_H

#include <stdbool.h>

#include "lm/text/buffer.h"

enum { NAPIER_MOST_ADDED_BYTES = 1 << 22 }; /* of the texts of all added tokens: Qwen3's have 300 */

typedef struct napier_added_token {
    const char *text; /* memory of the vocabulary's */
    uint32_t size;    /* not 0 */
    int32_t id;
    bool special;
} napier_added_token;

/* A node of the tree of all tokens, read from their ends: it stands for an ending that tokens have in common. */
typedef struct napier_added_node {
    int32_t first, children; /* side by side */
    int32_t shorter; /* the longest beginning of this ending that is an ending of tokens too; 0, the root: none */
    int32_t token;   /* the longest token that this ending begins with, or -1 */
} napier_added_node;

typedef struct napier_added_set {
    napier_added_token *tokens;
    size_t count;
    napier_added_node *nodes;
    uint8_t *bytes;    /* of each node, its first byte */
    int32_t root[256]; /* the root's child for each byte; 0: none */
    uint32_t longest;  /* bytes of a token */
} napier_added_set;

/* Sorts the tokens by their ends. The same text twice is false. */
bool napier_added_sort(napier_added_set *set);

/* Makes the tree of sorted tokens. */
napier_status napier_added_build(napier_context *context, napier_added_set *set);
void napier_added_free(const napier_allocator *allocator, napier_added_set *set);

/* A search in one text, from left to right. `hits` is memory that may be used before and after. */
typedef struct napier_added_search {
    const napier_added_set *set;
    const char *text;
    size_t size;
    size_t start, end; /* tokens that start in this window are known */
    napier_scratch *hits;
    size_t count; /* of hits: the leftmost last */
} napier_added_search;

/* *token: the next token in text[from .. size), and *at where it starts; NULL where there is none. `from` never falls.
 * Time for all calls together: the size, whatever the tokens are. */
napier_status napier_added_next(napier_context *context, napier_added_search *search, size_t from,
                                const napier_added_token **token, size_t *at);

#endif
