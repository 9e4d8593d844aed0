/* core/base/parallel.h - runs work on the threads of a context (core/base/pool.h). */
#ifndef NAPIER_CORE_BASE_PARALLEL_H
#define NAPIER_CORE_BASE_PARALLEL_H

#include <stdbool.h>

#include "core/base/context.h"
#include "core/base/sizes.h"

/* Works on items [begin, end) as worker `worker` (0 .. workers - 1). Runs with the default floating-point environment
 * (round to nearest even, subnormals kept), whatever the caller's is. Allocates nothing. */
typedef void napier_task(void *argument, int worker, int64_t begin, int64_t end);

/* How many workers napier_parallel will use for so many items in chunks: at least 1, at most the context's threads. */
int napier_workers(const napier_context *context, int64_t items, int64_t chunk);

/* Runs the task over all items. Chunks of `chunk` (>= 1) items go in order to the next free worker; each begins at a
 * multiple of chunk. With one worker all items run on this thread, in one call. The results must not depend on which
 * worker computes what; the kernels guarantee that. Where the caller may stop (stop.h), a single worker runs the task more
 * often, on parts that begin at a multiple of chunk, and chunks are left out after a stop. */
void napier_parallel(const napier_context *context, int64_t items, int64_t chunk, napier_task *task, void *argument);

/* Whether work of some 20 us gains by other threads, because they are awake (core/base/awake.h). */
bool napier_helps_now(const napier_context *context);

/* Works on item i. */
typedef void napier_each(void *argument, int64_t i);

/* The same, item by item, for work that needs no memory of the worker's own. */
void napier_parallel_each(const napier_context *context, int64_t items, int64_t chunk, napier_each *each,
                          void *argument);

/* Is item i what is looked for? */
typedef bool napier_test(void *argument, int64_t i);

/* Tests every item; returns the least for which the test is true, or -1. So the result does not depend on threads. */
int64_t napier_parallel_find(const napier_context *context, int64_t items, int64_t chunk, napier_test *test,
                             void *argument);

/* Runs a step on this thread, in the default floating-point environment. */
typedef void napier_step(void *argument);
void napier_run_once(napier_step *step, void *argument);

#endif
