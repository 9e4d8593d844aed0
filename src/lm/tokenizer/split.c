/* lm/tokenizer/split.c - matches with PCRE2. */
#include "lm/tokenizer/split.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static void *take(size_t size, void *user) { return napier_alloc(user, size, 1); }
static void give_back(void *memory, void *user) { napier_free(user, memory); }

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

static napier_status no_memory(napier_context *context) {
    return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the pre-tokenizer's pattern");
}

static napier_status compile(napier_json *json, pcre2_compile_context *settings, const napier_text_buffer *text,
                             napier_split *split) {
    int error;
    size_t at;
    split->code = pcre2_compile((PCRE2_SPTR)text->bytes, text->size, PCRE2_NEVER_UTF, &error, &at, settings);
    if (split->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) {
        return no_memory(json->context);
    }
    if (split->code == NULL) {
        PCRE2_UCHAR message[100] = {0};
        pcre2_get_error_message(error, message, sizeof message);
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: pattern: %s", (const char *)message);
    }
    uint32_t empty = 0;
    pcre2_pattern_info(split->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: pattern: it matches the empty text");
    }
    split->jit = pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0; /* without JIT, it is
                                                                                                      interpreted */
    return NAPIER_OK;
}

napier_status napier_split_compile(napier_json *json, napier_allocator *allocator, napier_alphabet *alphabet,
                                   napier_pattern pattern, napier_split *split) {
    napier_text_buffer text = {0};
    napier_status status = napier_split_translate(json, alphabet, pattern, &text);
    pcre2_general_context *const memory = pcre2_general_context_create(take, give_back, allocator);
    pcre2_compile_context *const settings = memory != NULL ? pcre2_compile_context_create(memory) : NULL;
    if (!status && settings == NULL) {
        status = no_memory(json->context);
    }
    status = status ? status : compile(json, settings, &text, split);
    pcre2_compile_context_free(settings);
    pcre2_general_context_free(memory);
    napier_text_buffer_free(json->context, &text);
    return status;
}

void napier_split_free(napier_split *split) {
    pcre2_code_free(split->code);
    split->code = NULL;
}

/* ---- Matching ---------------------------------------------------------------------------------------------------- */

napier_status napier_matcher_prepare(napier_context *context, const napier_split *split, napier_matcher *m) {
    *m = (napier_matcher){.split = split};
    pcre2_general_context *const memory = pcre2_general_context_create(take, give_back, &context->allocator);
    if (memory != NULL) {
        m->limits = pcre2_match_context_create(memory);
        m->data = pcre2_match_data_create(1, memory);
    }
    pcre2_general_context_free(memory);
    return m->limits && m->data ? NAPIER_OK : no_memory(context);
}

void napier_matcher_free(napier_matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
}

void napier_matcher_start(napier_matcher *m, size_t n) {
    m->looked = 0;
    m->most = 64 * n;
}

static napier_status match_fail(napier_context *context, size_t from, int result) {
    PCRE2_UCHAR message[100] = {0};
    pcre2_get_error_message(result, message, sizeof message);
    return napier_fail(context, NAPIER_UNSUPPORTED, "text: the pre-tokenizer's pattern, at character %zu: %s", from,
                       (const char *)message);
}

/* PCRE2's result for classes[from .. stop). PCRE2_ERROR_PARTIAL if it depends on what follows. An expression like
 * Qwen's reads a run of spaces a few times. The step limit stops one that backtracks more often. */
static int match(const napier_matcher *m, const uint8_t *classes, size_t from, size_t stop, bool partial) {
    const uint32_t options = partial ? PCRE2_PARTIAL_HARD : 0;
    const size_t limit = stop - from < UINT32_MAX / 32 ? 16 * (stop - from) + 1000 : UINT32_MAX;
    pcre2_set_match_limit(m->limits, (uint32_t)limit);
    int result = PCRE2_ERROR_JIT_STACKLIMIT;
    if (m->split->jit) {
        result = pcre2_jit_match(m->split->code, classes, stop, from, options, m->data, m->limits);
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) { /* deep recursion: the interpreter allocates as much memory as it
                                                   needs */
        result = pcre2_match(m->split->code, classes, stop, from, PCRE2_NO_JIT | options, m->data, m->limits);
    }
    return result;
}

/* PCRE2 gets a window, and a larger one if that is too small. So the number of characters that each match reads is
 * known. An expression that reads far for short words, again and again, would take quadratic time and is stopped. */
napier_status napier_matcher_next(napier_context *context, napier_matcher *m, const uint8_t *classes, size_t n,
                                  size_t from, size_t *start, size_t *end) {
    enum { FIRST_WINDOW = 512 };
    *start = *end = n;
    for (size_t window = FIRST_WINDOW; from < n;) {
        const bool partial = n - from > window;
        const size_t stop = partial ? from + window : n;
        const int result = match(m, classes, from, stop, partial);
        if (result == PCRE2_ERROR_NOMATCH) {
            from = stop;
            continue;
        }
        if (result == PCRE2_ERROR_PARTIAL) {
            m->looked += window;
            window *= 4;
            if (m->looked > m->most) {
                return napier_fail(context, NAPIER_UNSUPPORTED,
                                   "text: the pre-tokenizer's pattern, at character %zu: looks too far for short words",
                                   from);
            }
            continue;
        }
        if (result == PCRE2_ERROR_NOMEMORY) {
            return no_memory(context);
        }
        if (result < 0) {
            return match_fail(context, from, result);
        }
        const PCRE2_SIZE *const ends = pcre2_get_ovector_pointer(m->data);
        *start = ends[0];
        *end = ends[1];
        break;
    }
    return NAPIER_OK;
}
