/* core/base/context.h - the members of a context, the memory of a call, and how it fails. */
#ifndef NAPIER_CORE_BASE_CONTEXT_H
#define NAPIER_CORE_BASE_CONTEXT_H

#include <napier/types.h>
#include <stdbool.h>

#include "core/base/memory.h"

#if defined(__FAST_MATH__)
#error "Napier's bits are IEEE bits: build without -ffast-math"
#endif

enum { NAPIER_ERROR_TEXT = 256 };

struct napier_context {
    napier_allocator allocator;
    napier_spares spares;
    int threads;
    struct napier_pool *pool;   /* core/base/pool.h */
    struct napier_stop *stop;   /* core/base/stop.h; NULL: nothing stops it */
    struct napier_awake *awake; /* core/base/awake.h */
    napier_isa isa;
    bool any_isa;    /* it was made with NAPIER_ISA_AUTO, so that other instructions with the same bits may serve too */
    bool intel;      /* the processor is Intel's */
    unsigned engine; /* what ops/linear/engine.h has decided; 0 before */
    int64_t cache_bytes; /* of the last level; 0: unknown */
    char error[NAPIER_ERROR_TEXT];
};

/* A copy with one thread and without spares: the context of a worker, or of a call within a call. */
napier_context napier_context_alone(const napier_context *context);

/* Every public call starts with this. A NULL context gives INVALID_ARGUMENT. Clears the text of the last error. */
napier_status napier_begin(napier_context *context);

/* Stores a text that names the argument and its value, and returns `status`: `return napier_fail(context, ...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
napier_status
napier_fail(napier_context *context, napier_status status, const char *format, ...);
#ifdef __clang_analyzer__ /* shows clang-tidy that the result is `status`, which is never NAPIER_OK */
#define napier_fail(context, status, ...) ((void)(napier_fail)(context, status, __VA_ARGS__), (status))
#endif

/* Blocks of memory that are freed together: the context keeps them for its later calls. */
enum { NAPIER_MEMORY_BLOCKS = 32 };
typedef struct napier_memory {
    napier_context *context;
    bool missing; /* an allocation has failed */
    int count;
    napier_block blocks[NAPIER_MEMORY_BLOCKS];
} napier_memory;

/* count * size bytes, at least one element; NULL, and `missing`, if there is no memory. */
void *napier_take(napier_memory *memory, int64_t count, size_t size);
/* Frees also this block, which napier_alloc has made (or NULL); returns it. There can be NAPIER_MEMORY_BLOCKS; one more is
 * freed at once and counts as missing. */
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

/* The fastest instruction set of this build and this machine. */
napier_isa napier_isa_best(void);
/* 1 if this is a processor of Intel's. */
int napier_is_intel(void);

#endif
