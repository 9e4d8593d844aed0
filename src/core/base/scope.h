/* core/base/scope.h - what ends with a function: it returns at the first failure, and what it holds is released then.
 *
 *     napier_status napier_example(napier_context *context, int64_t n, ...) {
 *         NAPIER_DEFAULT_FENV;
 *         NAPIER_TRY(napier_begin(context));
 *         NAPIER_REFUSE_IF(context, n < 0, "n: %lld is less than 0", (long long)n);
 *         NAPIER_MEMORY(memory, context);
 *         double *const sums = napier_take(&memory, n, sizeof *sums);
 *         NAPIER_TRY(napier_taken(&memory, "example: no memory for %lld sums", (long long)n));
 *         ...
 *
 * Each way out of the function restores the caller's floating-point state and frees the memory, so no way out can forget
 * it. gcc and clang do that by their attribute `cleanup`. */
#ifndef NAPIER_CORE_BASE_SCOPE_H
#define NAPIER_CORE_BASE_SCOPE_H

#include <stdbool.h>

#include "core/base/context.h"
#include "core/base/fenv.h"

/* NAPIER_TRY(call): returns the status of a call that fails. */
#define NAPIER_TRY(...)                            \
    do {                                           \
        const napier_status tried = (__VA_ARGS__); \
        if (tried) {                               \
            return tried;                          \
        }                                          \
    } while (0)

/* NAPIER_REFUSE_IF(context, condition, text, ...): fails with INVALID_ARGUMENT and the text if the condition holds. */
#define NAPIER_REFUSE_IF(...) NAPIER_REFUSE_THIS_IF(__VA_ARGS__)
#define NAPIER_REFUSE_THIS_IF(context, condition, ...)                         \
    do {                                                                       \
        if (condition) {                                                       \
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, __VA_ARGS__); \
        }                                                                      \
    } while (0)

/* The default floating-point state (fenv.h) until the function returns. */
#define NAPIER_DEFAULT_FENV \
    const napier_fenv callers_fenv __attribute__((cleanup(napier_fenv_restore), unused)) = napier_fenv_enter()

static inline void napier_fenv_restore(const napier_fenv *saved) { napier_fenv_leave(*saved); }

/* Blocks of memory that are freed together. */
enum { NAPIER_MEMORY_BLOCKS = 32 };
typedef struct napier_memory {
    napier_context *context;
    bool missing; /* an allocation has failed */
    int count;
    void *blocks[NAPIER_MEMORY_BLOCKS];
} napier_memory;

/* Memory that is freed when the function returns. */
#define NAPIER_MEMORY(name, of_context) \
    napier_memory name __attribute__((cleanup(napier_memory_free))) = {.context = (of_context)}

/* count * size bytes, at least one element; NULL, and `missing`, if there is no memory. */
void *napier_take(napier_memory *memory, int64_t count, size_t size);
/* Frees also this block, which napier_alloc has made (or NULL); returns it. */
void *napier_keep(napier_memory *memory, void *block);
/* Does not free this block any more; returns it. */
void *napier_let_go(napier_memory *memory, void *block);
void napier_memory_free(napier_memory *memory);

/* Fails with OUT_OF_MEMORY and the text if an allocation has failed. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
napier_status
napier_taken(const napier_memory *memory, const char *format, ...);

#endif
