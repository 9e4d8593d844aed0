/* support/tiny_tokenizer.h - tests/support/tiny_tokenizer.json, which the build embeds (napier_embed): a tokenizer like
 * Qwen's with the byte alphabet and twenty merges, unchanged or with a part replaced. */
#ifndef NAPIER_TESTS_TINY_TOKENIZER_H
#define NAPIER_TESTS_TINY_TOKENIZER_H

#include <stdlib.h>
#include <string.h>

#include <napier/tokenizer.h>

#include "tiny_tokenizer_json.h"

enum { TINY_SIZE = sizeof tiny_tokenizer_json - 1 };

/* The file with the first `from` replaced by `to` (both NULL: unchanged), ended by 0. Free it. NULL if `from` does not
 * occur. */
static inline char *tiny_text(const char *from, const char *to) {
    const char *const text = (const char *)tiny_tokenizer_json;
    const char *const place = from ? strstr(text, from) : text;
    const size_t cut = from ? strlen(from) : 0, more = to ? strlen(to) : 0;
    char *const made = place ? malloc(TINY_SIZE - cut + more + 1) : NULL;
    if (made) {
        const size_t before = (size_t)(place - text);
        memcpy(made, text, before);
        memcpy(made + before, to ? to : "", more);
        memcpy(made + before + more, place + cut, TINY_SIZE - before - cut + 1);
    }
    return made;
}

/* Loads that text. */
static inline napier_status tiny_load(napier_context *context, const char *from, const char *to,
                                      napier_tokenizer **out) {
    char *const text = tiny_text(from, to);
    *out = NULL;
    const napier_status status = text ? napier_tokenizer_from_json(context, text, strlen(text), out) : NAPIER_IO_ERROR;
    free(text);
    return status;
}

#endif
