/* cli/rl/rl_options.h - what grpo, kl and rubric share: where the responses are and where results go. */
#ifndef NAPIER_CLI_RL_OPTIONS_H
#define NAPIER_CLI_RL_OPTIONS_H

#include "io/format.h"
#include "io/output.h"
#include "program/command.h"
#include "rl_batch.h"

typedef struct rl_request {
    base_request shared;          /* in_path: JSON Lines; NULL: arrays */
    const char *paths[RL_FIELDS]; /* arrays */
    const char *offsets_path;
    file_format format; /* of the output */
} rl_request;

/* The row of a table for the array of a field; `text` begins with the name of the field in JSON Lines. */
#define RL_ARRAY(option, field, text) \
    { option, 0, OPTION_READ, "FILE", offsetof(rl_request, paths[field]), .help = text }
#define RL_OFFSETS                                                                                       \
    {                                                                                                    \
        "offsets", 0, OPTION_READ, "FILE", offsetof(rl_request, offsets_path),                           \
            .help = "for numbers in one dimension: where each response begins, and the number of tokens" \
    }
#define RL_HEADING                                                                                       \
    "Members of a line. The options give the same as arrays (.npy, CSV or TSV); of a table a row is a\n" \
    "response, padded where the mask says so:"

/* Checks that the input is given once, as JSON Lines or as arrays of all `required` fields. */
int rl_check(const rl_request *q, unsigned required);

/* Reads the input. Free the batch even after a failure. */
int rl_read(const rl_request *q, rl_batch *batch);

/* Writes the result: JSON Lines as `print` prints them, or the numbers alone as an array. */
int rl_write(const rl_request *q, const array_shape *shape, const float *numbers, output_printer *print, void *user);

/* The file that `field` was read from, for messages. */
const char *rl_input_name(const rl_request *q, rl_field field);

/* Checks that an option has the field that it needs in the set `have`: "--beta needs ref_logprobs (--ref)". */
int rl_need(const rl_request *q, unsigned have, rl_field field, const char *name);
unsigned rl_given(const rl_request *q); /* the set of fields that are given as arrays */

#endif
