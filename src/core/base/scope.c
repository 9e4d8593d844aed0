/* core/base/scope.c - memory that is freed together (scope.h). */
#include "core/base/scope.h"

#include <stdarg.h>
#include <stdio.h>

void *napier_keep(napier_memory *memory, void *block) {
    if (block) {
        memory->blocks[memory->count++] = block;
    }
    return block;
}

void *napier_take(napier_memory *memory, int64_t count, size_t size) {
    void *const block = memory->count < NAPIER_MEMORY_BLOCKS
                            ? napier_alloc(&memory->context->allocator, count > 0 ? (size_t)count : 1, size)
                            : NULL;
    memory->missing = memory->missing || !block;
    return napier_keep(memory, block);
}

void *napier_let_go(napier_memory *memory, void *block) {
    for (int i = 0; i < memory->count; i++) {
        memory->blocks[i] = memory->blocks[i] == block ? NULL : memory->blocks[i];
    }
    return block;
}

void napier_memory_free(napier_memory *memory) {
    while (memory->count > 0) {
        napier_free(&memory->context->allocator, memory->blocks[--memory->count]);
    }
    memory->missing = false;
}

napier_status napier_taken(const napier_memory *memory, const char *format, ...) {
    if (!memory->missing) {
        return NAPIER_OK;
    }
    char text[NAPIER_ERROR_TEXT];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return napier_fail(memory->context, NAPIER_OUT_OF_MEMORY, "%s", text);
}
