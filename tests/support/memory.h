/* support/memory.h - an allocator that fails where a test wants it to, and that finds leaks and overruns. */
#ifndef NAPIER_TESTS_MEMORY_H
#define NAPIER_TESTS_MEMORY_H

#include <napier/types.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ledger {
    int64_t calls;      /* since the last ledger_allow or ledger_fail */
    int64_t fails_at;   /* this call fails; -1: none */
    int64_t fails_from; /* this call and all later ones fail; -1: none */
    int64_t live;       /* blocks that are not freed yet */
    size_t now, most;   /* their bytes, and the maximum so far */
    size_t guard;       /* bytes after each block, checked when it is freed */
} ledger;

#define LEDGER_INIT \
    { 0, -1, -1, 0, 0, 0, 0 }

/* The allocator itself, for tests that create their own context. */
napier_allocator ledger_allocator(ledger *l);

/* A context that uses this allocator. Memory is filled with bytes 0xa5, so that the use of unset memory becomes
 * visible. A request of more than a gigabyte fails. The test ends if there can be no context. */
napier_context *ledger_context(ledger *l, int threads);

/* After this call, `count` allocations succeed and all later ones fail. */
void ledger_allow(ledger *l, int64_t count);
/* After this call, only allocation `at` fails, counted from 0; none if it is -1. */
void ledger_fail(ledger *l, int64_t at);

/* A call that destroys everything it creates. */
typedef napier_status ledger_call(napier_context *context, void *argument);

/* Makes allocation 0, 1, 2, ... fail until the call succeeds. Each time the call must return OUT_OF_MEMORY with a text
 * and leak nothing. */
void check_allocations(const char *name, ledger_call *call, void *argument);

#endif
