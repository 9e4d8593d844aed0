/* cli/progress.h - how far long work has come: a line on standard error, if that is a terminal, after a second. */
#ifndef NAPIER_CLI_PROGRESS_H
#define NAPIER_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    int64_t total, done; /* elements; total -1: not known */
    double started, shown;
    bool on_terminal, visible;
} progress;

void progress_start(progress *p, int64_t total);
void progress_add(progress *p, int64_t elements);
/* Takes the line away. */
void progress_end(progress *p);

/* Seconds on a clock that only goes forward. */
double clock_seconds(void);

#endif
