/* lm/gguf/gguf_json.c - writes JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/gguf/gguf.h"
#include "lm/text/buffer.h"

static void put_bytes(napier_gguf_writer *w, const char *bytes, size_t size) {
    if (!w->file->status) {
        w->file->status = napier_text_buffer_append(w->file->context, w->out, bytes, size);
    }
}

void napier_gguf_put(napier_gguf_writer *w, const char *json) { put_bytes(w, json, strlen(json)); }

void napier_gguf_putf(napier_gguf_writer *w, const char *format, ...) {
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    napier_gguf_put(w, text);
}

void napier_gguf_put_text(napier_gguf_writer *w, napier_text text) {
    size_t begin = 0; /* of what is not written yet */
    put_bytes(w, "\"", 1);
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t c = (uint8_t)text.bytes[i];
        if (c < 0x20 || c == '"' || c == '\\') {
            put_bytes(w, text.bytes + begin, i - begin);
            napier_gguf_putf(w, "\\u%04x", c);
            begin = i + 1;
        }
    }
    put_bytes(w, text.bytes + begin, text.size - begin);
    put_bytes(w, "\"", 1);
}

void napier_gguf_put_number(napier_gguf_writer *w, const char *name, double number) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtof(text, NULL) == (float)number) {
            break;
        }
    }
    char *const point = text + strspn(text, "0123456789+-e");
    if (*point != '\0' && isfinite(number)) {
        *point = '.'; /* whatever the locale has */
    }
    napier_gguf_putf(w, "\"%s\": %s", name, text);
}
