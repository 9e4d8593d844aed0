/* core/base/context_create.c - creates and destroys contexts. */
#include <stdint.h>
#include <string.h>

#include "core/base/awake.h"
#include "core/base/platform.h"
#include "core/base/pool.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/struct_size.h"

enum { MAX_THREADS = 1024 };

/* ---- Defaults --------------------------------------------------------------------------------------------------- */

static void *allocate_by_default(size_t size, size_t alignment, void *user) {
    (void)user;
    if (size > SIZE_MAX - alignment) {
        return NULL;
    }
    return napier_aligned_take(alignment, size);
}

static void deallocate_by_default(void *memory, void *user) {
    (void)user;
    napier_aligned_give(memory);
}

static int default_threads(void) {
    const int processors = napier_processors();
    return processors > MAX_THREADS ? MAX_THREADS : processors;
}

/* A context, its stop, what it knows of its threads, and its pool are one block of memory. */
static size_t aligned(size_t size) { return (size + NAPIER_ALIGNMENT - 1) / NAPIER_ALIGNMENT * NAPIER_ALIGNMENT; }
static size_t stop_place(void) { return aligned(sizeof(napier_context)); }
static size_t awake_place(void) { return stop_place() + aligned(napier_stop_size()); }
static size_t pool_place(void) { return awake_place() + aligned(sizeof(napier_awake)); }

static napier_stop *create_stop(napier_context *context) {
    napier_stop *const stop = (napier_stop *)(void *)((char *)context + stop_place());
    napier_stop_create(stop);
    return stop;
}

static napier_awake *create_awake(napier_context *context) {
    napier_awake *const awake = (napier_awake *)(void *)((char *)context + awake_place());
    memset(awake, 0, sizeof *awake);
    return awake;
}

static napier_pool *create_pool(napier_context *context) {
    napier_pool *const pool = (napier_pool *)(void *)((char *)context + pool_place());
    napier_pool_create(pool, context->threads);
    return pool;
}

/* ---- Creation --------------------------------------------------------------------------------------------------- */

static napier_status check_options(const napier_context_options *options) {
    if (options->threads < 0 || options->threads > MAX_THREADS ||
        (options->allocator.allocate == NULL) != (options->allocator.deallocate == NULL)) {
        return NAPIER_INVALID_ARGUMENT;
    }
    if (options->numerics < 0 || options->numerics > NAPIER_NUMERICS_VERSION) {
        return NAPIER_UNSUPPORTED;
    }
    switch (options->highest_isa) {
    case NAPIER_ISA_AUTO:
    case NAPIER_ISA_SCALAR:
    case NAPIER_ISA_NEON:
    case NAPIER_ISA_AVX2:
    case NAPIER_ISA_AVX512: return napier_isa_available(options->highest_isa) ? NAPIER_OK : NAPIER_UNSUPPORTED;
    }
    return NAPIER_INVALID_ARGUMENT;
}

napier_status napier_context_create(napier_context **out, const napier_context_options *options) {
    napier_context_options o = NAPIER_CONTEXT_OPTIONS_INIT;
    if (out == NULL) {
        return NAPIER_INVALID_ARGUMENT;
    }
    *out = NULL;
    NAPIER_TRY(napier_read_options(NULL, "options",
                                   NAPIER_STRUCT(napier_context_options, NAPIER_CONTEXT_OPTIONS_INIT, allocator),
                                   options, &o)); /* no context, no text */
    NAPIER_TRY(check_options(&o));
    napier_allocator allocator = o.allocator;
    if (allocator.allocate == NULL) {
        allocator.allocate = allocate_by_default;
        allocator.deallocate = deallocate_by_default;
    }
    const int threads = o.threads == 0 ? default_threads() : o.threads;
    napier_context *context = napier_alloc(&allocator, 1, pool_place() + napier_pool_size(threads));
    if (context == NULL) {
        return NAPIER_OUT_OF_MEMORY;
    }
    context->allocator = allocator;
    context->spares = (napier_spares){.kept = allocator.allocate == allocate_by_default};
    context->threads = threads;
    context->stop = create_stop(context);
    context->awake = create_awake(context);
    context->pool = create_pool(context);
    context->intel = napier_is_intel();
    context->isa = o.highest_isa == NAPIER_ISA_AUTO ? napier_isa_best() : o.highest_isa;
    context->any_isa = o.highest_isa == NAPIER_ISA_AUTO;
    context->engine = 0;
    context->cache_bytes = napier_cache_bytes();
    context->error[0] = '\0';
    *out = context;
    return NAPIER_OK;
}

void napier_context_destroy(napier_context *context) {
    if (context == NULL) {
        return;
    }
    const napier_allocator allocator = context->allocator;
    napier_pool_destroy(context->pool);
    napier_spares_free(&context->spares, &allocator);
    napier_free(&allocator, context);
}
