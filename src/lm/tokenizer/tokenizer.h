/* lm/tokenizer/tokenizer.h - the data of a loaded tokenizer. It does not change after loading. */
#ifndef NAPIER_LM_TOKENIZER_TOKENIZER_H
#define NAPIER_LM_TOKENIZER_TOKENIZER_H

#include <napier/tokenizer.h>

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

#endif
