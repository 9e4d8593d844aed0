/* lm/tokenizer/tokenizer.h - a loaded tokenizer, which does not change any more, and how it is loaded. */
#ifndef NAPIER_LM_TOKENIZER_TOKENIZER_H
#define NAPIER_LM_TOKENIZER_TOKENIZER_H

#include <napier/tokenizer.h>

#include "lm/text/json.h"
#include "lm/tokenizer/added.h"
#include "lm/tokenizer/merges.h"
#include "lm/tokenizer/split.h"
#include "lm/tokenizer/vocabulary.h"

struct napier_tokenizer {
    napier_allocator allocator;
    uint8_t *table; /* from napier_unicode_table */
    bool nfc;
    napier_vocabulary vocabulary;
    napier_merges merges;
    napier_added_set added;            /* searched for in the text as given */
    napier_added_set added_normalized; /* searched for in the normal form of the text; their own texts are normalised
                                          too */
    napier_split split;
};

/* ---- Loading (load.c, load_tokens.c) ----------------------------------------------------------------------------- */

/* The members that hold tokens. */
typedef struct napier_token_lists {
    const struct cJSON *vocab, *merges, *added;
    bool ignore_merges;
} napier_token_lists;

/* Reads the vocabulary, the merges and the added tokens. */
napier_status napier_load_tokens(napier_json *json, napier_tokenizer *t, const napier_token_lists *lists);

#endif
