/* core/base/context.c - the memory of a context, its questions, and the text of its last error. */
#include "core/base/context.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void *keep_block(napier_memory *memory, napier_block block) {
    if (memory->count == NAPIER_MEMORY_BLOCKS) {
        napier_free(&memory->context->allocator, block.memory);
        memory->missing = true;
        return NULL;
    }
    if (block.memory) {
        memory->blocks[memory->count++] = block;
    }
    return block.memory;
}

void *napier_keep(napier_memory *memory, void *block) { return keep_block(memory, (napier_block){block, 0}); }

void *napier_take(napier_memory *memory, int64_t count, size_t size) {
    napier_context *const context = memory->context;
    void *const block = keep_block(
        memory, napier_spares_take(&context->spares, &context->allocator, count > 0 ? (size_t)count : 1, size));
    memory->missing = memory->missing || !block;
    return block;
}

void *napier_let_go(napier_memory *memory, void *block) {
    for (int i = 0; i < memory->count; i++) {
        memory->blocks[i].memory = memory->blocks[i].memory == block ? NULL : memory->blocks[i].memory;
    }
    return block;
}

void napier_memory_free(napier_memory *memory) {
    while (memory->count > 0) {
        napier_spares_give(&memory->context->spares, &memory->context->allocator, memory->blocks[--memory->count]);
    }
    memory->missing = false;
}

/* ---- Questions and errors -------------------------------------------------------------------------------------- */

napier_context napier_context_alone(const napier_context *context) {
    napier_context alone = *context;
    alone.threads = 1;
    alone.spares = (napier_spares){.kept = false};
    return alone;
}

const char *napier_last_error(const napier_context *context) { return context == NULL ? "" : context->error; }

napier_status napier_set_error(napier_context *context, napier_status status, const char *text) {
    return context == NULL ? status : napier_fail(context, status, "%s", text == NULL ? "" : text);
}

napier_isa napier_context_isa(const napier_context *context) {
    return context == NULL ? NAPIER_ISA_SCALAR : context->isa;
}

int napier_context_threads(const napier_context *context) { return context == NULL ? 1 : context->threads; }

napier_status napier_begin(napier_context *context) {
    if (context == NULL) {
        return NAPIER_INVALID_ARGUMENT;
    }
    context->error[0] = '\0';
    return NAPIER_OK;
}

/* In parentheses, because context.h has a macro of this name for clang-tidy. */
napier_status(napier_fail)(napier_context *context, napier_status status, const char *format, ...) {
    if (context != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(context->error, sizeof context->error, format, arguments);
        va_end(arguments);
    }
    return status;
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
