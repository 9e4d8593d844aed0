/* cli/lm/text_print.h - prints text that a model has generated. */
#ifndef NAPIER_CLI_TEXT_PRINT_H
#define NAPIER_CLI_TEXT_PRINT_H

#include "io/buffer.h"

#include <stddef.h>
#include <stdio.h>

/* How text is printed: in a string of JSON, on a terminal, whose control characters could change how it works, or as it
 * is. */
typedef enum text_form { TEXT_JSON, TEXT_TERMINAL, TEXT_PLAIN } text_form;

/* What is not UTF-8, such as a character that is cut off, becomes U+FFFD. */
void text_print(const char *bytes, size_t size, text_form form, FILE *out);
/* Adds it to a buffer, and what is not UTF-8, or a byte 0, as U+FFFD. */
void text_keep(const char *bytes, size_t size, buffer *to);

#endif
