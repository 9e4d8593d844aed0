/* lm/tokenizer/steps.h - the normalizer of a file: steps that change a text before it is cut into words. */
#ifndef NAPIER_LM_TOKENIZER_STEPS_H
#define NAPIER_LM_TOKENIZER_STEPS_H

#include <stdbool.h>

#include "lm/text/buffer.h"
#include "lm/tokenizer/normalize.h"

enum { NAPIER_MOST_STEPS = 8, NAPIER_MOST_STEP_BYTES = 16 };

/* A short text of a file, such as U+2581, which stands for a space in Llama 2's tokens. */
typedef struct napier_short_text {
    char bytes[NAPIER_MOST_STEP_BYTES];
    size_t size;
} napier_short_text;

typedef enum napier_step_kind {
    NAPIER_STEP_FORM,
    NAPIER_STEP_LOWERCASE,
    NAPIER_STEP_STRIP_ACCENTS, /* removes all marks */
    NAPIER_STEP_STRIP,         /* removes white space at one end or both */
    NAPIER_STEP_PREPEND,
    NAPIER_STEP_REPLACE
} napier_step_kind;

typedef struct napier_step {
    napier_step_kind kind;
    napier_form form;           /* of FORM */
    bool left, right;           /* of STRIP */
    napier_short_text from, to; /* PREPEND puts `to` before a text; REPLACE replaces each `from`, which is not empty */
} napier_step;

typedef struct napier_steps {
    napier_step all[NAPIER_MOST_STEPS];
    int count;
} napier_steps;

/* The memory of the steps. It grows, and serves many texts. */
typedef struct napier_steps_memory {
    napier_text_buffer buffers[2];
    napier_scratch points;
} napier_steps_memory;

void napier_steps_memory_free(napier_context *context, napier_steps_memory *memory);

/* Applies all steps to a text (valid UTF-8), without PREPEND if `continues`. *out is the text itself if no step changes
 * it, or lies in the memory. `table` is from napier_unicode_table. Errors: UNSUPPORTED (the steps make the text more
 * than 16 times as long, as no trained tokenizer does). */
napier_status napier_steps_apply(napier_context *context, const napier_steps *steps, const uint8_t *table,
                                 bool continues, napier_steps_memory *memory, const uint8_t *text, size_t size,
                                 const uint8_t **out, size_t *out_size);

/* Appends a text in which each `from` is replaced. It stops as soon as *out has more than `most` bytes, which the caller
 * checks. */
napier_status napier_replace(napier_context *context, const napier_step *step, const uint8_t *text, size_t size,
                             size_t most, napier_text_buffer *out);

/* True if a text starts with a short text. */
bool napier_starts_with(const uint8_t *text, size_t size, const napier_short_text *start);

/* The place of the first occurrence of a short text at or after `from`, or `size`. */
size_t napier_find(const uint8_t *text, size_t size, size_t from, const napier_short_text *wanted);

#endif
