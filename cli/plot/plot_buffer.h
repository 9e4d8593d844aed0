/* cli/plot/plot_buffer.h - a file that grows in memory until it is complete. Foreign text is escaped. */
#ifndef NAPIER_CLI_PLOT_BUFFER_H
#define NAPIER_CLI_PLOT_BUFFER_H

#include "../program/message.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct plot_buffer {
    char *bytes;
    size_t size, capacity;
    bool failed; /* out of memory: later additions are lost, and buffer_write reports it */
} plot_buffer;

void buffer_add(plot_buffer *b, const void *bytes, size_t size);
void buffer_text(plot_buffer *b, const char *text);
void buffer_print(plot_buffer *b, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds text between tags or in an attribute of XML or HTML. */
void buffer_xml(plot_buffer *b, const char *text);
/* Adds a JSON string with its quotes; it may be inside a <script>. */
void buffer_json(plot_buffer *b, const char *text);
/* Adds bytes as base64. */
void buffer_base64(plot_buffer *b, const void *bytes, size_t size);

/* Writes everything to the file `path`, under a temporary name that is then renamed. */
int buffer_write(const plot_buffer *b, const char *path);
void buffer_free(plot_buffer *b);

#endif
