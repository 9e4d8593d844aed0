/* lm/tokenizer/normalize.h - normal form C (Unicode standard annex 15) for the characters of Unicode 9, as in
 * `tokenizers`. */
#ifndef NAPIER_LM_TOKENIZER_NORMALIZE_H
#define NAPIER_LM_TOKENIZER_NORMALIZE_H

#include <stdbool.h>

#include "lm/text/buffer.h"

/* False if normalising cannot change the text (valid UTF-8), which is true of most text. `table` is from
 * napier_unicode_table. */
bool napier_nfc_may_change(const uint8_t *table, const uint8_t *text, size_t size);

/* Appends the normal form of the text (valid UTF-8). Linear in its size. */
napier_status napier_nfc(napier_context *context, const uint8_t *table, const uint8_t *text, size_t size,
                         napier_scratch *scratch, napier_text_buffer *out);

#endif
