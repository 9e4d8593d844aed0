/* core/base/context.c - the memory of a context, its questions, and the text of its last error. */
#include "core/base/context.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/fork.h"

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

void *napier_alloc(const napier_allocator *allocator, size_t count, size_t size) {
    if (count == 0 || size == 0 || count > SIZE_MAX / size) {
        return NULL;
    }
    return allocator->allocate(count * size, NAPIER_ALIGNMENT, allocator->user);
}

void napier_free(const napier_allocator *allocator, void *memory) {
    if (memory != NULL) {
        allocator->deallocate(memory, allocator->user);
    }
}

/* ---- Questions and errors -------------------------------------------------------------------------------------- */

const char *napier_last_error(const napier_context *context) { return context == NULL ? "" : context->error; }

napier_isa napier_context_isa(const napier_context *context) {
    return context == NULL ? NAPIER_ISA_SCALAR : context->isa;
}

int napier_threads_of(const napier_context *context) { return napier_is_child() ? 1 : context->threads; }

int napier_context_threads(const napier_context *context) { return context == NULL ? 1 : napier_threads_of(context); }

napier_status napier_begin(napier_context *context) {
    if (context == NULL) {
        return NAPIER_INVALID_ARGUMENT;
    }
    context->error[0] = '\0';
    return NAPIER_OK;
}

napier_status(napier_fail)(napier_context *context, napier_status status, const char *format, ...) {
    if (context != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(context->error, sizeof context->error, format, arguments);
        va_end(arguments);
    }
    return status;
}
