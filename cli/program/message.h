/* cli/program/message.h - the program's messages on standard error, and its exit status.
 * A function of this program that can fail prints the reason itself, once, and returns the exit status to pass on. */
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

/* The bytes of the well-formed UTF-8 character at `at`; 0 if there is none. */
int utf8_size(const unsigned char *at);
/* Whether the character is a control character (of ASCII, or U+0080 to U+009F). */
bool utf8_is_control(const unsigned char *at);

/* Messages show control characters, which a file's name may hold, as escapes. */

/* complain prints "napier: ..." and has the value STATUS_FAILED; misuse also prints where to find help on the command,
 * and has the value STATUS_USAGE. These are macros, so that every caller, and an analyser of the code, sees the value.
 * STATUS_OK is 0: `a() || b()` calls b only if a succeeded, and is STATUS_FAILED if one of them complained. */
typedef enum message_kind { MESSAGE_FAILURE, MESSAGE_MISUSE, MESSAGE_WARNING } message_kind;
void message_print(message_kind kind, const char *format, ...) PRINTF_LIKE(2, 3);
#define message_complain(...) message_print(MESSAGE_FAILURE, __VA_ARGS__)
#define complain(...) (message_complain(__VA_ARGS__), STATUS_FAILED)
#define misuse(...) (message_print(MESSAGE_MISUSE, __VA_ARGS__), STATUS_USAGE)
#define out_of_memory(name) complain("%s: out of memory", name)
/* Prints "napier: warning: ...". */
#define warn(...) message_print(MESSAGE_WARNING, __VA_ARGS__)
/* The command that misuse names; at the start none, which is the program itself. */
void message_set_command(const char *name);

/* Copies at most `count` bytes of foreign text so that it can be shown: control bytes become '?', and text that does
 * not fit ends in "...". `size` is at least 8. Returns `out`. */
const char *printable(char *out, size_t size, const char *text, size_t count);

#endif
