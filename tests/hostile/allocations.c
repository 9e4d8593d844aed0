/* hostile/allocations - memory runs out in every call of the public API (support/calls.h). Allocation number 0, 1, 2, ...
 * of a call fails, alone and with all that follow, until the call needs no more, on one thread and on two: each time it
 * must return OUT_OF_MEMORY with a text, lose nothing and write no result that napier/umap.h says is untouched; and succeed
 * once memory is there, with the bits that it has where memory is plenty. Lines that are CALL_LONG are left out: what they
 * call is in other lines too. */
#include <string.h>

#include "support/calls.h"
#include "support/check.h"
#include "support/memory.h"

enum { MOST_ALLOCATIONS = 3000 };

static ledger counted = LEDGER_INIT; /* the allocator of the context that the calls are given */
static unsigned char wanted[CALL_RESULT_BYTES];

/* Allocation k fails, and with `after` all that follow. True where the call needed no k-th. */
static bool fail_one(const public_call *l, napier_context *context, int64_t k, bool after, int64_t *refused_calls) {
    const int64_t held = counted.live;
    if (after) {
        ledger_allow(&counted, k);
    } else {
        ledger_fail(&counted, k);
    }
    napier_status status = call_run(l, context);
    const bool met = counted.calls > k;
    ledger_fail(&counted, -1);
    expect(counted.live == held, "%s, allocation %lld fails: %lld blocks lost", l->name, (long long)k,
           (long long)(counted.live - held));
    if (status != NAPIER_OK) {
        const char *const error = napier_last_error(context);
        ++*refused_calls;
        expect(status == NAPIER_OUT_OF_MEMORY, "%s, allocation %lld fails: status %d, %s", l->name, (long long)k,
               (int)status, error);
        expect(l->flags & CALL_NO_TEXT || strstr(error, "memory"), "%s, allocation %lld: the text is '%s'", l->name,
               (long long)k, error);
        size_t written = 0;
        for (size_t i = 0; l->flags & CALL_UNTOUCHED && i < sizeof call_result; i++) {
            written += call_result[i] != CALL_FILL;
        }
        expect(written == 0, "%s, allocation %lld fails: %zu bytes of results written", l->name, (long long)k, written);
        status = call_run(l, context);
        succeeded(context, status, "with memory again");
    } else {
        expect(!met || l->flags & CALL_FALLS_BACK, "%s, allocation %lld fails: OK", l->name, (long long)k);
    }
    expect(memcmp(call_result, wanted, sizeof wanted) == 0, "%s, allocation %lld: other bits", l->name, (long long)k);
    return !met;
}

/* Returns how often the call was refused. */
static int64_t run_line(const public_call *l, int threads) {
    napier_context *const context = ledger_context(&counted, threads);
    napier_context *const same = context_of(NAPIER_ISA_AUTO, threads);
    int64_t refused_calls = 0;
    if (succeeded(same, call_run(l, same), l->name)) {
        memcpy(wanted, call_result, sizeof wanted);
        for (int after = 0; after < 2; after++) {
            int64_t k = 0;
            while (k < MOST_ALLOCATIONS && !fail_one(l, context, k, after, &refused_calls)) {
                k++;
            }
            expect(k < MOST_ALLOCATIONS, "%s: no end of allocations", l->name);
        }
    }
    napier_context_destroy(same);
    napier_context_destroy(context);
    expect(counted.live == 0, "%s: %lld blocks left", l->name, (long long)counted.live);
    return refused_calls;
}

static void test_every_call(void) {
    calls_open("hostile_allocations.tmp");
    calls_allocator = ledger_allocator(&counted);
    for (int i = 0; i < calls_count(); i++) {
        const public_call l = call_at(i);
        if (l.flags & CALL_LONG) {
            continue;
        }
        const int64_t refused_calls = run_line(&l, 2);
        expect(l.flags & CALL_MAY_TAKE || (refused_calls > 0) == ((l.flags & CALL_TAKES) != 0), "%s: %lld refusals",
               l.name, (long long)refused_calls);
        run_line(&l, 1);
    }
    check_calls_cover_headers();
    calls_close();
}

int main(void) { return RUN_TESTS("allocations", TEST(test_every_call)); }
