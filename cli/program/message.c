/* cli/program/message.c - errors and warnings on standard error. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int utf8_size(const unsigned char *at) {
    const unsigned char c = at[0];
    if (c < 0x80) {
        return 1;
    }
    const int size = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    for (int i = 1; i < size; i++) { /* a '\0' ends it too */
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Longer than needed for the character, surrogates, beyond the last character. */
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
        (c == 0xf4 && at[1] > 0x8f)) {
        return 0;
    }
    return size;
}

bool utf8_is_control(const unsigned char *at) {
    return *at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

/* A file's name may contain control characters, which a terminal takes for commands. They are shown as \x1b, and so are
 * bytes that are not UTF-8. */
PRINTF_LIKE(1, 0) static void print_safely(const char *format, va_list values) {
    char text[1 << 14]; /* longer than a path can be */
    vsnprintf(text, sizeof text, format, values);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        const int size = utf8_size(at);
        if (size == 0 || utf8_is_control(at)) {
            fprintf(stderr, "\\x%02x", *at++);
            continue;
        }
        fwrite(at, 1, (size_t)size, stderr);
        at += size;
    }
}

static const char *command = "";

void message_set_command(const char *name) { command = name; }

void message_print(message_kind kind, const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs(kind == MESSAGE_WARNING ? "napier: warning: " : "napier: ", stderr);
    print_safely(format, values);
    fputc('\n', stderr);
    if (kind == MESSAGE_MISUSE) {
        fprintf(stderr, "Try 'napier %s%s--help'.\n", command, *command != '\0' ? " " : "");
    }
    va_end(values);
}

const char *printable(char *out, size_t size, const char *text, size_t count) {
    const int shortened = count > size - 1;
    const size_t kept = shortened ? size - 4 : count;
    for (size_t i = 0; i < kept; i++) {
        const unsigned char c = (unsigned char)text[i];
        out[i] = c >= 0x20 && c < 0x7f ? text[i] : '?';
    }
    if (shortened) {
        memcpy(out + kept, "...", 4);
    } else {
        out[kept] = '\0';
    }
    return out;
}
