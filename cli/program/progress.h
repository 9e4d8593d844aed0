/* cli/program/progress.h - the progress of long work: a line on standard error, if that is a terminal, after a
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
/* Serves work in stages: shows the stage and the part of it that is done, 0 to 1, in the line of progress_start. */
void progress_stage(progress_line *p, const char *stage, double done);
/* Erases the line. */
void progress_end(progress_line *p);

/* The seconds of a monotonic clock. */
double clock_seconds(void);

#endif
