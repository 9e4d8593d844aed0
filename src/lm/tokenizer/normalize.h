/* lm/tokenizer/normalize.h - normal form C (Unicode standard annex 15), of Unicode 9's characters as tokenizers has
 * them.
 */
#ifndef NAPIER_LM_TOKENIZER_NORMALIZE_H
#define NAPIER_LM_TOKENIZER_NORMALIZE_H

#include <stdbool.h>

#include "lm/text/buffer.h"

/* Whether text that has been checked may change: false for most text. `table` is napier_unicode_table's. */
bool napier_nfc_may_change(const uint8_t *table, const uint8_t *text, size_t size);

/* Appends the normal form of text that has been checked; linear in its size. */
napier_status napier_nfc(napier_context *context, const uint8_t *table, const uint8_t *text, size_t size,
                         napier_scratch *scratch, napier_text_buffer *out);

#endif
