/* core/base/parallel.h - work over threads. The only place that knows OpenMP. */
#ifndef NAPIER_CORE_BASE_PARALLEL_H
#define NAPIER_CORE_BASE_PARALLEL_H

#include "core/base/context.h"

/* Items [begin, end) for worker `worker` (0 .. workers - 1). Runs with the default floating-point environment: round to
 * nearest even, subnormals kept, whatever the caller's was. Allocates nothing. */
typedef void napier_task(void *argument, int worker, int64_t begin, int64_t end);

/* How many workers napier_parallel will use for so many items in chunks: at most napier_threads_of. At least 1. */
int napier_workers(const napier_context *context, int64_t items, int64_t chunk);

/* Runs the task over all items in chunks of `chunk` (>= 1), handed out in order to whichever worker is free. Chunks never
 * straddle: begin is a multiple of chunk. With one worker it stays on this thread, in one piece. Results must not depend
 * on who did what: that is the kernels' contract. */
void napier_parallel(const napier_context *context, int64_t items, int64_t chunk, napier_task *task, void *argument);

/* Runs the task as item 0 of 1 on this thread: a step that needs the default floating-point environment, not threads. */
void napier_run_once(napier_task *task, void *argument);

#endif
