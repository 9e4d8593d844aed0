/* cli/program/message.h - what the program says on standard error, and how it exits.
 * A function of this program that can fail says why itself, once, and returns the exit status to pass on. */
#ifndef NAPIER_CLI_MESSAGE_H
#define NAPIER_CLI_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1, /* the data, the machine or a file was at fault */
    STATUS_USAGE = 2   /* the command line or the environment was at fault */
};

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

/* Bytes of the well-formed UTF-8 character at `at`; 0: there is none. */
int utf8_size(const unsigned char *at);
/* Whether it is a control character (of ASCII, or U+0080 to U+009F). */
bool utf8_is_control(const unsigned char *at);

/* Messages show control characters, which a file's name may hold, as escapes. */

/* "napier: ..." and STATUS_FAILED. */
int complain(const char *format, ...) PRINTF_LIKE(1, 2);

/* "napier: ...", then where to find help on `command` ("" for the program itself), and STATUS_USAGE. */
int misuse(const char *command, const char *format, ...) PRINTF_LIKE(2, 3);

/* "napier: warning: ...". */
void warn(const char *format, ...) PRINTF_LIKE(1, 2);

/* Copies at most `count` bytes of foreign text so that it can be shown: control bytes become '?', and what does not fit
 * ends in "...". `size` is at least 8. Returns `out`. */
const char *printable(char *out, size_t size, const char *text, size_t count);

#endif
