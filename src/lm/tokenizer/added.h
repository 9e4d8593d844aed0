/* lm/tokenizer/added.h - finds added tokens in a text, before any other step: the leftmost match, and the longest
 * there. */
#ifndef NAPIER_LM_TOKENIZER_ADDED_H
#define NAPIER_LM_TOKENIZER_ADDED_H

#include <stdbool.h>

#include "lm/text/buffer.h"

enum { NAPIER_MOST_ADDED_BYTES = 1 << 22 }; /* total bytes of all added tokens; Qwen3's have 300 */

typedef struct napier_added_token {
    const char *text; /* points into the vocabulary */
    uint32_t size;    /* not 0 */
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* takes the white space before or after it */
    bool single_word;    /* not within a word */
} napier_added_token;

/* A node in the trie of all tokens, which are inserted backwards. It stands for an ending that some tokens share. */
typedef struct napier_added_node {
    int32_t first, children; /* side by side */
    int32_t shorter; /* the longest proper prefix of this ending that is also an ending of tokens; 0, the root: none */
    int32_t token;   /* the longest token that is a prefix of this ending, or -1 */
} napier_added_node;

typedef struct napier_added_set {
    napier_added_token *tokens;
    size_t count;
    napier_added_node *nodes;
    uint8_t *bytes;    /* the first byte of each node's ending */
    int32_t root[256]; /* the root's child for each byte; 0: none */
    uint32_t longest;  /* bytes of the longest token */
} napier_added_set;

/* Sorts the tokens by their reversed text. Returns false if two are equal. */
bool napier_added_sort(napier_added_set *set);

/* Builds the trie of the sorted tokens. */
napier_status napier_added_build(napier_context *context, napier_added_set *set);
void napier_added_free(const napier_allocator *allocator, napier_added_set *set);

/* A search in one text, from left to right. `hits` is memory that the caller may use before and after. */
typedef struct napier_added_search {
    const napier_added_set *set;
    const char *text;
    size_t size;
    size_t start, end; /* all tokens that start in this window are in `hits` */
    napier_scratch *hits;
    size_t count; /* number of hits; the last is the leftmost */
} napier_added_search;

/* *token receives the next token in text[from .. size), or NULL if there is none, and *at its start. `from` must not
 * decrease from call to call. All calls together take time linear in the size, whatever the tokens are. */
napier_status napier_added_next(napier_context *context, napier_added_search *search, size_t from,
                                const napier_added_token **token, size_t *at);

#endif
