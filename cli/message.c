/* cli/message.c - errors and warnings on standard error. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int complain(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("napier: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    return STATUS_FAILED;
}

int misuse(const char *command, const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("napier: ", stderr);
    vfprintf(stderr, format, values);
    fprintf(stderr, "\nTry 'napier %s%s--help'.\n", command, *command != '\0' ? " " : "");
    va_end(values);
    return STATUS_USAGE;
}

void warn(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("napier: warning: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
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
