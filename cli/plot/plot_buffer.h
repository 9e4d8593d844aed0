/* cli/plot/plot_buffer.h - a file that grows in memory until it is complete; foreign text goes into it escaped. */
#ifndef NAPIER_CLI_PLOT_BUFFER_H
#define NAPIER_CLI_PLOT_BUFFER_H

#include "../program/message.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct plot_buffer {
    char *bytes;
    size_t size, capacity;
    bool failed; /* out of memory: what is added from then on is lost, and buffer_write says so */
} plot_buffer;

void buffer_add(plot_buffer *b, const void *bytes, size_t size);
void buffer_text(plot_buffer *b, const char *text);
void buffer_print(plot_buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);

/* Text between tags or in an attribute of XML or HTML. */
void buffer_xml(plot_buffer *b, const char *text);
/* A JSON string with its quotes, which may stand inside a <script>. */
void buffer_json(plot_buffer *b, const char *text);
/* Bytes as base64. */
void buffer_base64(plot_buffer *b, const void *bytes, size_t size);

/* All of it as the file `path`, written beside its place and renamed. */
int buffer_write(const plot_buffer *b, const char *path);
void buffer_free(plot_buffer *b);

#endif
