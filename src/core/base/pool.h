/* core/base/pool.h - the threads of a context, which wait for work. core/base/parallel.c gives it to them. */
#ifndef NAPIER_CORE_BASE_POOL_H
#define NAPIER_CORE_BASE_POOL_H

#include <stddef.h>

typedef struct napier_pool napier_pool;

/* Work of one thread, which is `worker` of 0 .. workers - 1. It returns when no work is left to take. */
typedef void napier_pool_job(void *argument, int worker);

/* Called about every 50 ms on the thread that waits for the others, so that it can tell them to end early. NULL: not
 * asked. */
typedef void napier_pool_ask(void *argument);

/* The bytes of a pool of so many threads, the caller's included, and a pool in such memory, aligned to 64. It starts no
 * thread before the first run. */
size_t napier_pool_size(int threads);
void napier_pool_create(napier_pool *pool, int threads);

/* Runs the job on this thread as worker 0, and on up to workers - 1 others. Returns when all that have begun have ended, so
 * the job must let fewer workers do all work: another may not have begun, and the system may refuse a thread. A run inside
 * a run, or beside one in the same pool, has only worker 0. In a child of fork the first run starts threads anew. */
void napier_pool_run(napier_pool *pool, int workers, napier_pool_job *job, napier_pool_ask *ask, void *argument);

/* Ends the threads. */
void napier_pool_destroy(napier_pool *pool);

#endif
