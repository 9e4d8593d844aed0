/* lm/tokenizer/normalize.h - normal forms (Unicode standard annex 15) for the characters of Unicode 9, lower case for those
 * of Unicode 17, and marks removed, as in `tokenizers`. Texts are valid UTF-8; `table` is from napier_unicode_table. */
#ifndef NAPIER_LM_TOKENIZER_NORMALIZE_H
#define NAPIER_LM_TOKENIZER_NORMALIZE_H

#include <stdbool.h>

#include "lm/text/buffer.h"

typedef enum napier_form { NAPIER_NFC, NAPIER_NFD, NAPIER_NFKC, NAPIER_NFKD } napier_form;

/* False if normalising cannot change the text, which is true of most text. */
bool napier_form_may_change(napier_form form, const uint8_t *table, const uint8_t *text, size_t size);

/* Appends the normal form of the text. Linear in its size. */
napier_status napier_normalize(napier_context *context, napier_form form, const uint8_t *table, const uint8_t *text,
                               size_t size, napier_scratch *scratch, napier_text_buffer *out);

/* Appends the text in lower case, each character by itself. */
napier_status napier_lowercase(napier_context *context, const uint8_t *text, size_t size, napier_text_buffer *out);

/* Appends the text without marks. */
napier_status napier_strip_accents(napier_context *context, const uint8_t *table, const uint8_t *text, size_t size,
                                   napier_text_buffer *out);

#endif
