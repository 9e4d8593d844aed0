/* lm/text/buffer.h - growing memory: for the public buffers, and for scratch arrays. */
#ifndef NAPIER_LM_TEXT_BUFFER_H
#define NAPIER_LM_TEXT_BUFFER_H

#include <napier/tokenizer.h>

#include "core/base/context.h"

/* Makes room for `more` elements beyond `size`. */
napier_status napier_token_buffer_reserve(napier_context *context, napier_token_buffer *buffer, size_t more);
napier_status napier_text_buffer_reserve(napier_context *context, napier_text_buffer *buffer, size_t more);

napier_status napier_text_buffer_append(napier_context *context, napier_text_buffer *buffer, const char *bytes,
                                        size_t size);

/* An array for temporary data. Its contents are lost when it grows. */
typedef struct napier_scratch {
    void *data;
    size_t capacity; /* bytes */
} napier_scratch;

napier_status napier_scratch_reserve(napier_context *context, napier_scratch *scratch, size_t count, size_t size);
void napier_scratch_free(napier_context *context, napier_scratch *scratch);

/* INVALID_ARGUMENT if the fields of a caller's buffer contradict each other. */
napier_status napier_check_token_buffer(napier_context *context, const char *name, const napier_token_buffer *buffer);
napier_status napier_check_text_buffer(napier_context *context, const char *name, const napier_text_buffer *buffer);

#endif
