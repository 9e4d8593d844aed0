/* support/memory.h - memory that runs out where a test wants it to, and that notices what is lost or overrun. */
#ifndef NAPIER_TESTS_MEMORY_H
#define NAPIER_TESTS_MEMORY_H

#include <napier/types.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ledger {
    int64_t calls;      /* since the last ledger_allow or ledger_fail */
    int64_t fails_at;   /* this call fails, -1: none */
    int64_t fails_from; /* this one and all after it, -1: none */
    int64_t live;       /* blocks that are not given back yet, */
    size_t now, most;   /* their bytes, and the most there were */
    size_t guard;       /* bytes behind each block, looked at when it is given back */
} ledger;

#define LEDGER_INIT \
    { 0, -1, -1, 0, 0, 0, 0 }

/* The allocator itself, for what makes its own context. */
napier_allocator ledger_allocator(ledger *l);

/* A context that takes its memory here, filled with bytes 0xa5: what is used without being set shows. More than a
 * gigabyte at once is refused. The test ends if there can be no context. */
napier_context *ledger_context(ledger *l, int threads);

/* From now on: so many allocations succeed, and then none. */
void ledger_allow(ledger *l, int64_t count);
/* From now on: only allocation `at` fails, from 0; none if it is -1. */
void ledger_fail(ledger *l, int64_t at);

/* A call that cleans up after itself: whatever it made it destroys. */
typedef napier_status ledger_call(napier_context *context, void *argument);

/* Fails at allocation 0, 1, 2, ...: each time OUT_OF_MEMORY with a text and nothing lost, until the call succeeds. */
void check_allocations(const char *name, ledger_call *call, void *argument);

#endif
