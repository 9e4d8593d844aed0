/* cli/program/progress.c - the line that shows progress. */
#define _POSIX_C_SOURCE 200809L

#include "progress.h"

#include "system.h"

double clock_seconds(void) { return 1e-9 * (double)napier_nanoseconds(); }

void progress_start(progress_line *p, int64_t total) {
    p->total = total;
    p->done = 0;
    p->started = clock_seconds();
    p->shown = p->started + 0.8; /* first shown after a second */
    p->on_terminal = isatty(STDERR_FILENO) != 0;
    p->visible = false;
}

static void show(const progress_line *p) {
    const double seconds = p->shown - p->started;
    const double rate = (double)p->done / seconds;
    if (p->total > 0) {
        const double left = (double)(p->total - p->done) / rate;
        fprintf(stderr, "\r%3.0f %%  %.3g million elements a second, %.0f s left \033[K",
                100.0 * (double)p->done / (double)p->total, rate * 1e-6, left);
    } else {
        fprintf(stderr, "\r%.4g million elements, %.3g million a second \033[K", (double)p->done * 1e-6, rate * 1e-6);
    }
    fflush(stderr);
}

/* Whether it is time to show the line again. If so, counts it as shown. */
static bool is_due(progress_line *p) {
    const double now = p->on_terminal ? clock_seconds() : 0;
    const bool due = p->on_terminal && now - p->shown >= 0.2;
    p->shown = due ? now : p->shown;
    p->visible = p->visible || due;
    return due;
}

void progress_add(progress_line *p, int64_t elements) {
    p->done += elements;
    if (p->done > 0 && is_due(p)) {
        show(p);
    }
}

void progress_stage(progress_line *p, const char *stage, double done) {
    if (is_due(p)) {
        fprintf(stderr, "\r%3.0f %%  %s, %.0f s \033[K", 100.0 * done, stage, p->shown - p->started);
        fflush(stderr);
    }
}

void progress_end(progress_line *p) {
    if (p->visible) {
        fputs("\r\033[K", stderr);
        p->visible = false;
    }
}
