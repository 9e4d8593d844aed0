/* cli/lm/text_print.c - see text_print.h. */
#include "text_print.h"

#include "program/message.h"

#include <string.h>

static void print_character(const unsigned char *c, int width, text_form form, FILE *out) {
    const bool is_control = utf8_is_control(c) && *c != '\n' && *c != '\t';
    if (width == 0 || (form == TEXT_TERMINAL && is_control)) {
        fputs(form == TEXT_JSON ? "\\ufffd" : "\xef\xbf\xbd", out);
    } else if (form == TEXT_JSON && (*c < 0x20 || *c == '"' || *c == '\\')) {
        fprintf(out, "\\u%04x", *c);
    } else {
        fwrite(c, 1, (size_t)width, out);
    }
}

/* Copies the character at `bytes`. Returns its width; 0: it is not UTF-8. */
static int character(const char *bytes, size_t size, unsigned char copy[5]) {
    memset(copy, 0, 5);
    memcpy(copy, bytes, size < 4 ? size : 4); /* utf8_size reads up to 4 bytes */
    return copy[0] == 0 ? 1 : utf8_size(copy);
}

void text_print(const char *bytes, size_t size, text_form form, FILE *out) {
    unsigned char one[5];
    for (size_t i = 0; i < size;) {
        const int width = character(bytes + i, size - i, one);
        print_character(one, width, form, out);
        i += width > 0 ? (size_t)width : 1;
    }
}

void text_keep(const char *bytes, size_t size, buffer *to) {
    unsigned char one[5];
    for (size_t i = 0; i < size;) {
        const int width = character(bytes + i, size - i, one);
        const bool is_text = width > 0 && one[0] != 0;
        buffer_add(to, is_text ? bytes + i : "\xef\xbf\xbd", is_text ? (size_t)width : 3);
        i += width > 0 ? (size_t)width : 1;
    }
}
