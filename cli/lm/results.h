/* cli/lm/results.h - the lines that generate, judge and logprobs print, also behind those of an interrupted run.
 *
 * A line begins with {"line": L, "NAME": N, ...}: the number of the prompt's line in IN, and that of the result in it. */
#ifndef NAPIER_CLI_RESULTS_H
#define NAPIER_CLI_RESULTS_H

#include "io/output.h"
#include "model_options.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct result_lines {
    const model_request *q;
    const char *name; /* "sample" or "response" */
    void *user;       /* of the functions */
    int64_t count;    /* of all results */
    /* The line and the number of a result. */
    void (*place)(const void *user, int64_t result, int64_t *line, int64_t *number);
    /* Computes results from `done` on, at least one, and prints them. Returns how many; -1: a failure, after a message. */
    int64_t (*print)(void *user, int64_t done, FILE *out);
} result_lines;

/* Prints all results to OUT. Those that have been printed are in the file before others are computed. With --resume,
 * complete lines of OUT stay and count as done. OUT is the same, byte for byte, as one written without an interruption.
 * Only the numbers of lines and results are compared. A file with others is refused and stays as it is, and so is one
 * that another process is writing, or that is not a regular file. */
int results_print(const result_lines *results);

/* The least tokens that logprobs and judge run before they print: many of the model's steps, so that these are full, and
 * common beginnings run once for most prompts that have them. */
enum { SCORE_TOGETHER = 16384 };

/* Are results printed while others are still to be computed? False if OUT is a file that appears when all is done. */
bool results_are_early(const model_request *q);

#endif
