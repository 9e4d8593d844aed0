/* unit/umap_support.h - what the umap tests share: an allocator that fails at a chosen allocation, and random data. */
#ifndef NAPIER_TESTS_UMAP_SUPPORT_H
#define NAPIER_TESTS_UMAP_SUPPORT_H

#include "support/check.h"

#include <math.h>
#include <napier/umap.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random data, the same every time ---------------------------------------------------------------------------- */

static inline double umap_unit(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* About normal: the sum of twelve. */
static inline double umap_normal(uint64_t *state) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += umap_unit(state);
    }
    return sum;
}

/* ---- Memory that runs out ------------------------------------------------------------------------------------------ */

typedef struct umap_ledger {
    int64_t calls, fails_at; /* -1: never */
    int64_t live;
} umap_ledger;

static inline void *umap_ledger_allocate(size_t size, size_t alignment, void *user) {
    umap_ledger *const l = user;
    if (l->calls++ == l->fails_at) {
        return NULL;
    }
    void *const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory) {
        memset(memory, 0xa5, size); /* what is used without being set shows */
        l->live++;
    }
    return memory;
}

static inline void umap_ledger_deallocate(void *memory, void *user) {
    ((umap_ledger *)user)->live--;
    free(memory);
}

/* A call that cleans up after itself: whatever it made it destroys. */
typedef napier_status umap_call(napier_context *context, void *argument);

/* Fails at allocation 0, 1, 2, ...: each time OUT_OF_MEMORY with a text and nothing lost, until the call succeeds. */
static inline void umap_check_allocations(const char *name, umap_call *call, void *argument) {
    umap_ledger l = {0, -1, 0};
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 2;
    options.allocator = (napier_allocator){umap_ledger_allocate, umap_ledger_deallocate, &l};
    napier_context *context = NULL;
    if (!expect(napier_context_create(&context, &options) == NAPIER_OK, "no context")) {
        return;
    }
    const int64_t held = l.live;
    napier_status status = NAPIER_OUT_OF_MEMORY;
    int64_t k = 0;
    for (; k < 1000 && status == NAPIER_OUT_OF_MEMORY; k++) {
        l.calls = 0;
        l.fails_at = k;
        status = call(context, argument);
        l.fails_at = -1;
        expect(l.live == held, "%s, allocation %lld fails: %lld blocks lost", name, (long long)k,
               (long long)(l.live - held));
        if (status == NAPIER_OUT_OF_MEMORY) {
            expect(napier_last_error(context)[0] != '\0', "%s, allocation %lld: no text", name, (long long)k);
        }
    }
    expect(status == NAPIER_OK && k > 1, "%s after %lld allocations: %s", name, (long long)k,
           napier_last_error(context));
    napier_context_destroy(context);
    expect(l.live == 0, "%s: %lld blocks left", name, (long long)l.live);
}

#endif
