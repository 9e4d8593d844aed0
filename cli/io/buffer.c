/* cli/io/buffer.c - growing text. */
#include "buffer.h"

#include "program/memory.h"
#include "output.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes space for `size` more bytes and a '\0'. */
static bool reserve(buffer *b, size_t size) {
    if (b->failed || size >= SIZE_MAX / 4 - b->size) {
        b->failed = true;
        return false;
    }
    b->failed = !memory_grow(&b->bytes, &b->capacity, (int64_t)(b->size + size + 1), 1);
    return !b->failed;
}

void buffer_add(buffer *b, const void *bytes, size_t size) {
    if (size > 0 && reserve(b, size)) {
        memcpy(b->bytes + b->size, bytes, size);
        b->size += size;
    }
}

void buffer_text(buffer *b, const char *text) { buffer_add(b, text, strlen(text)); }

void buffer_print(buffer *b, const char *format, ...) {
    enum { USUAL = 256 };
    size_t room = USUAL;
    for (int attempt = 0; attempt < 2 && reserve(b, room); attempt++) {
        va_list values;
        va_start(values, format);
        const int size = vsnprintf(b->bytes + b->size, room + 1, format, values);
        va_end(values);
        if (size < 0) {
            b->failed = true;
            return;
        }
        if ((size_t)size <= room) {
            b->size += (size_t)size;
            return;
        }
        room = (size_t)size;
    }
}

void buffer_xml(buffer *b, const char *text) {
    for (const char *at = text; *at != '\0'; at++) {
        switch (*at) {
        case '<': buffer_text(b, "&lt;"); break;
        case '>': buffer_text(b, "&gt;"); break;
        case '&': buffer_text(b, "&amp;"); break;
        case '"': buffer_text(b, "&quot;"); break;
        case '\'': buffer_text(b, "&#39;"); break;
        default: buffer_add(b, at, 1);
        }
    }
}

/* Characters that could end the script or the string are written as numeric escapes. So are the two line ends that
 * JavaScript has beyond those of ASCII (U+2028 and U+2029: E2 80 A8, E2 80 A9). */
void buffer_json(buffer *b, const char *text) {
    buffer_text(b, "\"");
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == 0x7f || strchr("<>&'\"\\", c) != NULL) {
            buffer_print(b, "\\u%04x", (unsigned)c);
        } else if (strncmp(at, "\xe2\x80\xa8", 3) == 0 || strncmp(at, "\xe2\x80\xa9", 3) == 0) {
            buffer_text(b, at[2] == '\xa8' ? "\\u2028" : "\\u2029");
            at += 2;
        } else {
            buffer_add(b, at, 1);
        }
    }
    buffer_text(b, "\"");
}

void buffer_base64(buffer *b, const void *bytes, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *const from = bytes;
    if (size > SIZE_MAX / 8 || !reserve(b, size / 3 * 4 + 4)) {
        b->failed = true;
        return;
    }
    char *to = b->bytes + b->size;
    for (size_t i = 0; i < size; i += 3) {
        const size_t have = size - i < 3 ? size - i : 3;
        const uint32_t group = (uint32_t)from[i] << 16 | (have > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                               (have > 2 ? (uint32_t)from[i + 2] : 0);
        *to++ = digits[group >> 18];
        *to++ = digits[group >> 12 & 63];
        *to++ = '=';
        *to++ = '=';
        if (have > 1) {
            to[-2] = digits[group >> 6 & 63];
        }
        if (have > 2) {
            to[-1] = digits[group & 63];
        }
    }
    b->size = (size_t)(to - b->bytes);
}

int buffer_write(const buffer *b, const char *path) {
    if (b->failed) {
        return out_of_memory(path);
    }
    return output_bytes(path, b->bytes, b->size);
}

void buffer_free(buffer *b) {
    free(b->bytes);
    memset(b, 0, sizeof *b);
}
