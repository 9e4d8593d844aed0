/* lm/tokenizer/load.h - the parts of a tokenizer.json, each read into its place. */
#ifndef NAPIER_LM_TOKENIZER_LOAD_H
#define NAPIER_LM_TOKENIZER_LOAD_H

#include "lm/text/json.h"
#include "lm/tokenizer/tokenizer.h"

/* The members that hold tokens. */
typedef struct napier_token_lists {
    const struct cJSON *vocab, *merges, *added;
    bool ignore_merges;
} napier_token_lists;

/* Everything but the tokens: what is not byte-level BPE is refused by name. Sets t->nfc and t->split. */
napier_status napier_load_steps(const napier_json *json, napier_tokenizer *t, napier_token_lists *lists);

/* The vocabulary, the merges and the added tokens. */
napier_status napier_load_tokens(const napier_json *json, napier_tokenizer *t, const napier_token_lists *lists);

#endif
