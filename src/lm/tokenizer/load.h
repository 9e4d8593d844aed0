/* lm/tokenizer/load.h - reads the parts of a tokenizer.json. */
#ifndef NAPIER_LM_TOKENIZER_LOAD_H
#define NAPIER_LM_TOKENIZER_LOAD_H

#include "lm/text/json.h"
#include "lm/tokenizer/tokenizer.h"

/* The members that hold tokens. */
typedef struct napier_token_lists {
    const struct cJSON *vocab, *merges, *added;
    bool ignore_merges;
} napier_token_lists;

/* Reads everything except the tokens, and sets t->nfc and t->split. Refuses anything but byte-level BPE, with a message
 * that names it. */
napier_status napier_load_steps(napier_json *json, napier_tokenizer *t, napier_token_lists *lists);

/* Reads the vocabulary, the merges and the added tokens. */
napier_status napier_load_tokens(napier_json *json, napier_tokenizer *t, const napier_token_lists *lists);

#endif
