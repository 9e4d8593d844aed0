/* core/base/parallel.c - chunks of work over the threads of a context's pool. */
#include "core/base/parallel.h"

#include <stdatomic.h>

#include "core/base/awake.h"
#include "core/base/fenv.h"
#include "core/base/platform.h"
#include "core/base/pool.h"
#include "core/base/stop.h"

/* ---- Work --------------------------------------------------------------------------------------------------------- */

static int64_t chunk_count(int64_t items, int64_t chunk) { return items / chunk + (items % chunk != 0); }

int napier_workers(const napier_context *context, int64_t items, int64_t chunk) {
    const int64_t chunks = items > 0 ? chunk_count(items, chunk) : 0;
    return chunks <= 1 ? 1 : chunks < context->threads ? (int)chunks : context->threads;
}

static void run_alone(int64_t items, napier_task *task, void *argument) {
    const napier_fenv saved = napier_fenv_enter();
    task(argument, 0, 0, items);
    napier_fenv_leave(saved);
}

/* The same in parts, between which the interrupt may be asked. A part has as many chunks as take about a millisecond, so
 * that starting a task and reading the clock cost nothing. */
enum { PART = 1000 * 1000 };

static int64_t next_part(int64_t part, int64_t chunk, int64_t items, uint64_t nanoseconds) {
    return nanoseconds > 4 * PART ? chunk : nanoseconds < PART && part <= items / 2 ? 2 * part : part;
}

static void run_parts(napier_stop *stop, int64_t items, int64_t chunk, napier_task *task, void *argument) {
    const napier_fenv saved = napier_fenv_enter();
    uint64_t start = 0; /* of a part; the first one is not timed */
    int64_t part = chunk, end = 0;
    for (int64_t begin = 0; begin < items && !napier_has_stopped(stop); begin = end) {
        end = items - begin > part ? begin + part : items;
        task(argument, 0, begin, end);
        napier_loop_pass(stop, end - begin);
        if (end < items) {
            const uint64_t now = napier_nanoseconds();
            (void)napier_stop_at(stop, now);
            part = start > 0 ? next_part(part, chunk, items, now - start) : part;
            start = now;
        }
    }
    napier_stop_soon(stop);
    napier_fenv_leave(saved);
}

static void run_on_this_thread(napier_stop *stop, int64_t items, int64_t chunk, napier_task *task, void *argument) {
    if (stop != NULL && items > chunk) {
        run_parts(stop, items, chunk, task, argument);
        return;
    }
    run_alone(items, task, argument);
    if (stop != NULL) {
        napier_loop_pass(stop, items);
        napier_stop_soon(stop);
    }
}

void napier_run_once(napier_step *step, void *argument) {
    const napier_fenv saved = napier_fenv_enter();
    step(argument);
    napier_fenv_leave(saved);
}

static void run_chunk(const napier_context *context, napier_task *task, void *argument, int worker, int64_t index,
                      int64_t items, int64_t chunk) {
    const int64_t begin = index * chunk, end = items - begin < chunk ? items : begin + chunk;
    if (napier_goes_on(context)) {
        task(argument, worker, begin, end);
    }
    napier_loop_pass(napier_stop_of(context), end - begin);
}

typedef struct team_job {
    const napier_context *context;
    napier_task *task;
    void *argument;
    int64_t items, chunk, chunks;
    _Atomic uint64_t began;                          /* the last thread that has begun; the caller's does not count */
    _Alignas(NAPIER_ALIGNMENT) _Atomic int64_t next; /* written for each chunk, unlike what all read */
} team_job;

static void run_member(void *argument, int worker) {
    team_job *j = argument;
    const napier_fenv saved = napier_fenv_enter();
    if (worker > 0) {
        j->began = napier_nanoseconds();
    }
    for (int64_t index = j->next++; index < j->chunks; index = j->next++) {
        run_chunk(j->context, j->task, j->argument, worker, index, j->items, j->chunk);
    }
    napier_fenv_leave(saved);
}

static void ask_interrupt(void *argument) {
    const team_job *const j = argument;
    napier_stop *const stop = napier_stop_of(j->context);
    if (stop != NULL) {
        (void)napier_stop_at(stop, napier_nanoseconds());
    }
}

static void run_team(const napier_context *context, int workers, int64_t items, int64_t chunk, napier_task *task,
                     void *argument) {
    const int64_t chunks = chunk_count(items, chunk);
    const uint64_t called = napier_nanoseconds();
    team_job job = {context, task, argument, items, chunk, chunks, called, 0};
    napier_pool_run(context->pool, workers, run_member, ask_interrupt, &job);
    napier_awake_note(context->awake, called, job.began, napier_nanoseconds());
}

bool napier_helps_now(const napier_context *context) {
    return context->threads > 1 && napier_awake_ask(context->awake, napier_nanoseconds());
}

void napier_parallel(const napier_context *context, int64_t items, int64_t chunk, napier_task *task, void *argument) {
    napier_stop *const stop = napier_stop_of(context);
    if (items <= 0 || (stop != NULL && napier_has_stopped(stop))) {
        return;
    }
    if (stop != NULL) {
        napier_loop_begin(stop, items);
    }
    const int workers = napier_workers(context, items, chunk);
    if (workers > 1) {
        run_team(context, workers, items, chunk, task, argument);
        if (stop != NULL) {
            napier_stop_soon(stop); /* the others may have left nothing to this thread, which asks */
        }
        return;
    }
    run_on_this_thread(stop, items, chunk, task, argument);
}

typedef struct each_task {
    napier_each *each;
    void *argument;
} each_task;

static void run_each(void *argument, int worker, int64_t begin, int64_t end) {
    const each_task *t = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        t->each(t->argument, i);
    }
}

void napier_parallel_each(const napier_context *context, int64_t items, int64_t chunk, napier_each *each,
                          void *argument) {
    each_task t = {each, argument};
    napier_parallel(context, items, chunk, run_each, &t);
}

typedef struct find_task {
    napier_test *test;
    void *argument;
    _Atomic int64_t least;
} find_task;

static void test_each(void *argument, int64_t i) {
    find_task *t = argument;
    if (t->test(t->argument, i)) {
        int64_t least = t->least;
        while (i < least && !atomic_compare_exchange_weak(&t->least, &least, i)) {
        }
    }
}

int64_t napier_parallel_find(const napier_context *context, int64_t items, int64_t chunk, napier_test *test,
                             void *argument) {
    find_task t = {test, argument, INT64_MAX};
    napier_parallel_each(context, items, chunk, test_each, &t);
    const int64_t least = t.least;
    return least < INT64_MAX ? least : -1;
}
