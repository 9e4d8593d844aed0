/* lm/tokenizer/steps.c - applies the normalizer's steps. A step that changes nothing copies nothing. */
#include "lm/tokenizer/steps.h"

#include <string.h>

#include "core/base/scope.h"
#include "lm/tokenizer/unicode.h"

void napier_steps_memory_free(napier_context *context, napier_steps_memory *memory) {
    napier_text_buffer_free(context, &memory->buffers[0]);
    napier_text_buffer_free(context, &memory->buffers[1]);
    napier_scratch_free(context, &memory->points);
}

bool napier_starts_with(const uint8_t *text, size_t size, const napier_short_text *start) {
    return size >= start->size && memcmp(text, start->bytes, start->size) == 0;
}

size_t napier_find(const uint8_t *text, size_t size, size_t from, const napier_short_text *wanted) {
    while (from < size) {
        const uint8_t *const found = memchr(text + from, (uint8_t)wanted->bytes[0], size - from);
        if (found == NULL) {
            break;
        }
        from = (size_t)(found - text);
        if (napier_starts_with(found, size - from, wanted)) {
            return from;
        }
        from++;
    }
    return size;
}

napier_status napier_replace(napier_context *context, const napier_step *step, const uint8_t *text, size_t size,
                             size_t most, napier_text_buffer *out) {
    for (size_t from = 0; from < size && out->size <= most;) {
        const size_t at = napier_find(text, size, from, &step->from);
        NAPIER_TRY(napier_text_buffer_append(context, out, (const char *)text + from, at - from));
        if (at == size) {
            break;
        }
        NAPIER_TRY(napier_text_buffer_append(context, out, step->to.bytes, step->to.size));
        from = at + step->from.size;
    }
    return NAPIER_OK;
}

/* The part of a text without the white space at its ends. */
static void strip(const napier_step *step, const uint8_t *table, const uint8_t **text, size_t *size) {
    while (step->left && *size > 0 && napier_char_is(table[napier_utf8_get(*text)], NAPIER_CHARS_SPACES)) {
        const size_t length = napier_utf8_length(**text);
        *text += length;
        *size -= length;
    }
    while (step->right && *size > 0) {
        size_t at = *size - 1;
        while (((*text)[at] & 0xc0) == 0x80) {
            at--;
        }
        if (!napier_char_is(table[napier_utf8_get(*text + at)], NAPIER_CHARS_SPACES)) {
            break;
        }
        *size = at;
    }
}

static bool changes(const napier_step *step, const uint8_t *table, bool continues, const uint8_t *text, size_t size) {
    switch (step->kind) {
    case NAPIER_STEP_FORM: return napier_form_may_change(step->form, table, text, size);
    case NAPIER_STEP_PREPEND: return size > 0 && !continues;
    case NAPIER_STEP_REPLACE: return napier_find(text, size, 0, &step->from) < size;
    default: return size > 0;
    }
}

static napier_status apply(napier_context *context, const napier_step *step, const uint8_t *table,
                           napier_scratch *points, const uint8_t *text, size_t size, size_t most,
                           napier_text_buffer *out) {
    switch (step->kind) {
    case NAPIER_STEP_FORM: return napier_normalize(context, step->form, table, text, size, points, out);
    case NAPIER_STEP_LOWERCASE: return napier_lowercase(context, text, size, out);
    case NAPIER_STEP_STRIP_ACCENTS: return napier_strip_accents(context, table, text, size, out);
    case NAPIER_STEP_REPLACE: return napier_replace(context, step, text, size, most, out);
    case NAPIER_STEP_STRIP: strip(step, table, &text, &size); break;
    default: NAPIER_TRY(napier_text_buffer_append(context, out, step->to.bytes, step->to.size)); break;
    }
    return napier_text_buffer_append(context, out, (const char *)text, size);
}

napier_status napier_steps_apply(napier_context *context, const napier_steps *steps, const uint8_t *table,
                                 bool continues, napier_steps_memory *memory, const uint8_t *text, size_t size,
                                 const uint8_t **out, size_t *out_size) {
    const size_t more = (size_t)NAPIER_MOST_STEPS * NAPIER_MOST_STEP_BYTES;
    const size_t most = size < (INT32_MAX - more) / 16 ? 16 * size + more : INT32_MAX;
    int next = 0; /* the buffer that the text is not in */
    for (int i = 0; i < steps->count; i++) {
        if (!changes(&steps->all[i], table, continues, text, size)) {
            continue;
        }
        napier_text_buffer *const to = &memory->buffers[next];
        to->size = 0;
        NAPIER_TRY(napier_text_buffer_reserve(context, to, 1)); /* so that an empty text has an address */
        NAPIER_TRY(apply(context, &steps->all[i], table, &memory->points, text, size, most, to));
        if (to->size > most) {
            return napier_fail(context, NAPIER_UNSUPPORTED, "text: the normalizer makes more than %zu bytes of it",
                               most);
        }
        text = (const uint8_t *)to->bytes;
        size = to->size;
        next = 1 - next;
    }
    *out = text;
    *out_size = size;
    return NAPIER_OK;
}
