/* lm/tokenizer/jinja/failure.c - what a template is refused for. */
#include <stdio.h>

#include "lm/tokenizer/jinja/jinja.h"

void napier_jinja_clean(char *text) {
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    }
}

void napier_jinja_fail(jinja *j, const char *format, ...) {
    char text[NAPIER_ERROR_TEXT / 2];
    va_list arguments;
    if (j->status) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    napier_jinja_clean(text);
    const int64_t at = j->at < j->count ? j->at : j->count - 1;
    j->status = napier_fail(j->context, NAPIER_UNSUPPORTED, "chat_template, line %d: %s",
                            at >= 0 ? j->tokens[at].line : 1, text);
}
