/* lm/tokenizer/tokenizer.h - what a loaded tokenizer holds; never changed after that. */
#ifndef NAPIER_LM_TOKENIZER_TOKENIZER_H
#define NAPIER_LM_TOKENIZER_TOKENIZER_H

#include <napier/tokenizer.h>

#include "lm/tokenizer/added.h"
#include "lm/tokenizer/merges.h"
#include "lm/tokenizer/split.h"
#include "lm/tokenizer/vocabulary.h"

struct napier_tokenizer {
    napier_allocator allocator;
    uint8_t *table; /* napier_unicode_table's */
    bool nfc;
    napier_vocabulary vocabulary;
    napier_merges merges;
    napier_added_set added;            /* looked for in the text as it is given */
    napier_added_set added_normalized; /* looked for in its normal form; their own text is in it too */
    napier_split split;
};

#endif
