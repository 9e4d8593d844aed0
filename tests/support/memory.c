/* support/memory.c - see memory.h. */
#include "support/memory.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

enum { FILL = 0xa5, SIZE_LIMIT = 1 << 30 };

/* The header before a block. */
typedef struct header {
    size_t size, offset; /* offset: of the block in its memory */
    uint64_t mark;       /* ALLOCATED until the block is freed */
} header;

#define ALLOCATED UINT64_C(0x616c6c6f63617465)
enum { HEADER = 32 }; /* bytes before a block, at least: a power of two */
_Static_assert(sizeof(header) <= HEADER, "a header fits");

static void *ledger_allocate(size_t size, size_t alignment, void *user) {
    ledger *const l = user;
    const int64_t call = l->calls++;
    expect(size > 0, "an allocation of nothing");
    expect(alignment > 0 && (alignment & (alignment - 1)) == 0, "alignment %zu is no power of two", alignment);
    if (call == l->fails_at || (l->fails_from >= 0 && call >= l->fails_from) || size >= SIZE_LIMIT) {
        return NULL;
    }
    const size_t offset = alignment < HEADER ? HEADER : alignment;
    unsigned char *const memory = aligned_alloc(offset, (offset + size + l->guard + offset - 1) / offset * offset);
    if (!memory) {
        return NULL;
    }
    const header h = {size, offset, ALLOCATED};
    memcpy(memory + offset - sizeof h, &h, sizeof h);
    memset(memory + offset, FILL, size + l->guard);
    l->live++;
    l->now += size;
    l->most = l->now > l->most ? l->now : l->most;
    return memory + offset;
}

static void ledger_deallocate(void *block, void *user) {
    ledger *const l = user;
    const unsigned char *const bytes = block;
    header h;
    memcpy(&h, bytes - sizeof h, sizeof h);
    if (!expect(h.mark == ALLOCATED, "%p was freed, but is not allocated", block)) {
        return;
    }
    memset((unsigned char *)block - sizeof h, 0, sizeof h);
    size_t written = 0;
    for (size_t i = 0; i < l->guard; i++) {
        written += bytes[h.size + i] != FILL;
    }
    expect(written == 0, "%zu bytes written behind a block of %zu", written, h.size);
    l->live--;
    l->now -= h.size;
    free((unsigned char *)block - h.offset);
}

napier_allocator ledger_allocator(ledger *l) { return (napier_allocator){ledger_allocate, ledger_deallocate, l}; }

napier_context *ledger_context(ledger *l, int threads) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *context = NULL;
    options.threads = threads;
    options.allocator = ledger_allocator(l);
    assert_int_equal(napier_context_create(&context, &options), NAPIER_OK);
    return context;
}

void ledger_allow(ledger *l, int64_t count) {
    l->calls = 0;
    l->fails_at = -1;
    l->fails_from = count;
}

void ledger_fail(ledger *l, int64_t at) {
    l->calls = 0;
    l->fails_at = at;
    l->fails_from = -1;
}

void check_allocations(const char *name, ledger_call *call, void *argument) {
    ledger l = LEDGER_INIT;
    napier_context *const context = ledger_context(&l, 2);
    const int64_t held = l.live;
    napier_status status = NAPIER_OUT_OF_MEMORY;
    int64_t k = 0;
    for (; k < 1000 && status == NAPIER_OUT_OF_MEMORY; k++) {
        ledger_fail(&l, k);
        status = call(context, argument);
        expect(status != NAPIER_OK || l.calls <= k, "%s succeeds without allocation %lld", name, (long long)k);
        ledger_fail(&l, -1);
        expect(l.live == held, "%s, allocation %lld fails: %lld blocks lost", name, (long long)k,
               (long long)(l.live - held));
        if (status == NAPIER_OUT_OF_MEMORY) {
            expect(strstr(napier_last_error(context), "memory"), "%s, allocation %lld: the text is '%s'", name,
                   (long long)k, napier_last_error(context));
        }
    }
    expect(status == NAPIER_OK && k > 1, "%s after %lld allocations: %s", name, (long long)k,
           napier_last_error(context));
    napier_context_destroy(context);
    expect(l.live == 0, "%s: %lld blocks left", name, (long long)l.live);
}
