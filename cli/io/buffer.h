/* cli/io/buffer.h - a file that grows in memory until it is complete. Foreign text is escaped. */
#ifndef NAPIER_CLI_BUFFER_H
#define NAPIER_CLI_BUFFER_H

#include "program/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
    char *bytes;
    size_t size;
    int64_t capacity;
    bool failed; /* out of memory: later additions are lost, and buffer_write reports it */
} buffer;

void buffer_add(buffer *b, const void *bytes, size_t size);
void buffer_text(buffer *b, const char *text);
void buffer_print(buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds text between tags or in an attribute of XML or HTML. */
void buffer_xml(buffer *b, const char *text);
/* Adds a JSON string with its quotes; it may be inside a <script>. */
void buffer_json(buffer *b, const char *text);
/* Adds bytes as base64. */
void buffer_base64(buffer *b, const void *bytes, size_t size);

/* Writes everything to the file `path`, under a temporary name that is then renamed. */
int buffer_write(const buffer *b, const char *path);
void buffer_free(buffer *b);

#endif
