/* core/base/stop.h - how a long call ends early, by the interrupt of its context (napier_context_set_interrupt), and says how
 * far it has come (napier_context_progress).
 *
 *     NAPIER_MAY_STOP(context);
 *     napier_parallel(context, rows, chunk, sum_rows, &job);
 *     napier_parallel(context, rows, chunk, write_rows, &job);
 *     return napier_stopped(context);
 *
 * From NAPIER_MAY_STOP to the end of the function the calling thread asks the interrupt between chunks of work, but only once
 * in an interval. When the answer is to stop, napier_parallel leaves out all chunks that have not begun, of this loop and of
 * those after it. So what stands between the loops runs on memory that they may not have written: it must not use that memory
 * as an index, a size or a condition of a loop without an end. And each way out after a loop must ask napier_stopped. */
#ifndef NAPIER_CORE_BASE_STOP_H
#define NAPIER_CORE_BASE_STOP_H

#include "core/base/context.h"

/* Where the context's interrupt may stop the work; NULL where there is none, or outside NAPIER_MAY_STOP. */
typedef struct napier_stop napier_stop;

#define NAPIER_MAY_STOP(of_context) \
    napier_stop *may_stop __attribute__((cleanup(napier_stop_leave), unused)) = napier_stop_enter(of_context)

/* The stop that begins here; NULL if the context has no interrupt, or a function that called this one has begun it. */
napier_stop *napier_stop_enter(napier_context *context);
void napier_stop_leave(napier_stop *const *stop);

/* CANCELLED, with a text, if the work was stopped. */
napier_status napier_stopped(napier_context *context);

/* For a task whose single items take long, between parts of an item: false if the rest is to be left out. Any thread may
 * ask; that of the caller asks the interrupt. */
bool napier_goes_on(const napier_context *context);

/* ---- For napier_parallel ----------------------------------------------------------------------------------------- */

napier_stop *napier_stop_of(const napier_context *context);
/* A loop over so many items begins. What napier_context_progress returns is of this loop. */
void napier_loop_begin(napier_stop *stop, int64_t items);
/* So many more items are done, or left out after a stop; any thread may say so. NULL: nobody counts. */
void napier_loop_pass(napier_stop *stop, int64_t items);
/* Whether the work has been stopped; any thread may ask. */
bool napier_has_stopped(const napier_stop *stop);
/* The calling thread asks the interrupt if it is time: napier_nanoseconds are `now`. Returns napier_has_stopped. */
bool napier_stop_at(napier_stop *stop, uint64_t now);
/* The same after a loop of a single chunk. It reads the clock only after some of them: they may be very short. */
void napier_stop_soon(napier_stop *stop);

/* The bytes that a context needs for its stop, and makes it there. */
size_t napier_stop_size(void);
void napier_stop_create(napier_stop *stop);

/* Nanoseconds between two questions. Tests set 0: after each chunk, also the short ones. */
void napier_stop_set_interval(napier_context *context, uint64_t nanoseconds);

#endif
