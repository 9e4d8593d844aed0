/* core/base/scope.h - what ends with a function: it returns at the first failure, and what it holds is released then.
 *
 *     napier_status example(napier_context *context, int64_t n, ...) {
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

/* Memory that is freed when the function returns. */
#define NAPIER_MEMORY(name, of_context) \
    napier_memory name __attribute__((cleanup(napier_memory_free))) = {.context = (of_context)}

#endif
