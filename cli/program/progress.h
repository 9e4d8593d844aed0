/* cli/program/progress.h - how far long work has come: a line on standard error, if that is a terminal, after a
 * second. */
#ifndef NAPIER_CLI_PROGRESS_H
#define NAPIER_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress_line {
    int64_t total, done; /* elements; total -1: not known */
    double started, shown;
    bool on_terminal, visible;
} progress_line;

void progress_start(progress_line *p, int64_t total);
void progress_add(progress_line *p, int64_t elements);
/* For work in stages: which it is in and how much of that is done, 0 to 1. The line is that of progress_start. */
void progress_stage(progress_line *p, const char *stage, double done);
/* Takes the line away. */
void progress_end(progress_line *p);

/* Seconds on a clock that only goes forward. */
double clock_seconds(void);

#endif
