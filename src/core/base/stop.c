/* core/base/stop.c - see stop.h. */
#include "core/base/stop.h"

#include <stdatomic.h>

#include "core/base/fenv.h"
#include "core/base/platform.h"

enum { INTERVAL = 100 * 1000 * 1000, SHORT_RUNS = 16 };

static _Thread_local char thread_mark; /* its address tells threads apart */

struct napier_stop {
    napier_interrupt *interrupt; /* NULL: nothing stops */
    void *user;
    uint64_t interval, asked; /* nanoseconds, between questions and of the last one */
    const char *caller;       /* thread_mark of the thread that called the library */
    int short_runs;           /* since the clock was read */
    int64_t loop, items;      /* the number of the present loop, from 1, and all of its items */
    bool is_open;             /* between napier_stop_enter and napier_stop_leave */
    _Atomic bool has_stopped;
    char apart[NAPIER_ALIGNMENT]; /* workers write what follows, and read what is before */
    _Atomic int64_t passed;       /* items of the loop */
};

size_t napier_stop_size(void) { return sizeof(napier_stop); }

void napier_stop_create(napier_stop *s) {
    s->interrupt = NULL;
    s->user = NULL;
    s->interval = INTERVAL;
    s->asked = 0;
    s->caller = NULL;
    s->short_runs = 0;
    s->loop = s->items = 0;
    atomic_init(&s->passed, 0);
    s->is_open = false;
    atomic_init(&s->has_stopped, false);
}

void napier_context_set_interrupt(napier_context *context, napier_interrupt *interrupt, void *user) {
    if (context != NULL) {
        context->stop->interrupt = interrupt;
        context->stop->user = user;
    }
}

void napier_stop_set_interval(napier_context *context, uint64_t nanoseconds) { context->stop->interval = nanoseconds; }

napier_stop *napier_stop_enter(napier_context *context) {
    napier_stop *const s = context->stop;
    if (s == NULL || s->interrupt == NULL || s->is_open) {
        return NULL;
    }
    s->is_open = true;
    s->caller = &thread_mark;
    s->has_stopped = false;
    s->loop = 0;
    return s;
}

void napier_stop_leave(napier_stop *const *stop) {
    if (*stop != NULL) {
        (*stop)->is_open = false;
    }
}

napier_status napier_stopped(napier_context *context) {
    const napier_stop *const s = napier_stop_of(context);
    return s != NULL && napier_has_stopped(s) ? napier_fail(context, NAPIER_CANCELLED, "stopped by the interrupt")
                                              : NAPIER_OK;
}

napier_stop *napier_stop_of(const napier_context *context) {
    return context->stop != NULL && context->stop->is_open ? context->stop : NULL;
}

void napier_loop_begin(napier_stop *s, int64_t items) {
    s->loop++;
    s->items = items;
    atomic_store_explicit(&s->passed, 0, memory_order_relaxed);
}

void napier_loop_pass(napier_stop *s, int64_t items) {
    if (s != NULL) {
        atomic_fetch_add_explicit(&s->passed, items, memory_order_relaxed);
    }
}

int64_t napier_context_progress(const napier_context *context, int64_t *done, int64_t *items) {
    const napier_stop *const s = context != NULL ? napier_stop_of(context) : NULL;
    const bool is_known = s != NULL && s->loop > 0;
    if (done != NULL) {
        *done = is_known ? atomic_load_explicit(&s->passed, memory_order_relaxed) : 0;
    }
    if (items != NULL) {
        *items = is_known ? s->items : 0;
    }
    return is_known ? s->loop : 0;
}

bool napier_has_stopped(const napier_stop *s) { return atomic_load_explicit(&s->has_stopped, memory_order_relaxed); }

bool napier_stop_at(napier_stop *s, uint64_t now) {
    s->short_runs = 0;
    if (!napier_has_stopped(s) && now - s->asked >= s->interval) {
        s->asked = now;
        const napier_fenv ours = napier_fenv_enter(); /* the interrupt may change it */
        const bool stops = s->interrupt(s->user) != 0;
        napier_fenv_leave(ours);
        s->has_stopped = stops;
    }
    return napier_has_stopped(s);
}

bool napier_goes_on(const napier_context *context) {
    napier_stop *const s = napier_stop_of(context);
    return s == NULL || !(s->caller == &thread_mark ? napier_stop_at(s, napier_nanoseconds()) : napier_has_stopped(s));
}

void napier_stop_soon(napier_stop *s) {
    if (s->interval == 0 || ++s->short_runs >= SHORT_RUNS) {
        (void)napier_stop_at(s, napier_nanoseconds());
    }
}
