/* core/base/context.h - what a context holds, how a call fails, and where its memory comes from. */
#ifndef NAPIER_CORE_BASE_CONTEXT_H
#define NAPIER_CORE_BASE_CONTEXT_H

#include <napier/types.h>

#if defined(__FAST_MATH__)
#error "Napier's bits are IEEE bits: build without -ffast-math"
#endif

enum { NAPIER_ERROR_TEXT = 256, NAPIER_ALIGNMENT = 64 };

/* x86's matrix engine, for bf16 products: ops/linear/amx.h. */
typedef enum napier_engine { NAPIER_ENGINE_UNDECIDED, NAPIER_ENGINE_OFF, NAPIER_ENGINE_ON } napier_engine;

struct napier_context {
    napier_allocator allocator;
    int threads;
    napier_isa isa;
    napier_engine engine;
    char error[NAPIER_ERROR_TEXT];
};

/* Every public call starts with one of these: context NULL gives INVALID_ARGUMENT; the error text is cleared. */
napier_status napier_begin(napier_context *context);

/* Keeps a text that names the argument and its value, and returns `status`: `return napier_fail(context, ...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
napier_status
napier_fail(napier_context *context, napier_status status, const char *format, ...);

/* count * size bytes on a cache line's boundary; NULL if that overflows or there is no memory. count 0 gives NULL. */
void *napier_alloc(const napier_allocator *allocator, size_t count, size_t size);
void napier_free(const napier_allocator *allocator, void *memory);

/* The threads that a call may use: the context's, but 1 in a child of fork, which has none of OpenMP's threads. */
int napier_threads_of(const napier_context *context);

#endif
