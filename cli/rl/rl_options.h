/* cli/rl/rl_options.h - the options that grpo, kl and rubric share: where the responses are and where results go. */
#ifndef NAPIER_CLI_RL_OPTIONS_H
#define NAPIER_CLI_RL_OPTIONS_H

#include "../program/machine.h"
#include "../io/named_files.h"
#include "../program/options.h"
#include "rl_batch.h"
#include "rl_output.h"

typedef struct rl_request {
    const char *command;
    const char *lines_path;       /* JSON Lines; NULL: arrays */
    const char *paths[RL_FIELDS]; /* arrays */
    const char *offsets_path;
    const char *out_path;
    rl_format format; /* of OUT */
    machine machine;
    bool help;
} rl_request;

/* A command's own options have ids from RL_OWN on. */
enum { RL_OWN = 100, RL_MOST_SPECS = 64 };

/* The options for the arrays of `fields`, those of all three commands, and the command's own (NULL ends them). */
void rl_make_specs(option_spec specs[RL_MOST_SPECS], unsigned fields, const option_spec *own);

/* Handles an id below RL_OWN, an operand, or a mistake that option_next reports. */
int rl_set_option(rl_request *q, int id, const char *value);

/* An option that is a number. Sets *number, or prints which values are allowed. `above`: `least` itself is not allowed;
 * `most` INFINITY: the word inf is allowed too. */
typedef struct rl_number {
    const char *name;
    double least, most;
    bool above;
    const char *wanted;
} rl_number;
int rl_set_number(const rl_request *q, const rl_number *option, const char *value, double *number);

/* Checks that the input is given exactly once, as JSON Lines or as arrays of all `required` fields. Then resolves the
 * machine. */
int rl_check_request(rl_request *q, unsigned required);

/* Checks that no result replaces an input or another result; `own` are the command's own files. */
enum { RL_MOST_OWN_FILES = 8 };
int rl_check_files(const rl_request *q, const named_file *own, int count);

/* Reads the input. Free the batch even after a failure. */
int rl_read(const rl_request *q, rl_batch *batch);

/* The file that `field` was read from, for messages. */
const char *rl_input_name(const rl_request *q, rl_field field);

/* Prints the error of a failed call after the name of the input. */
int rl_library_error(const rl_request *q, const napier_context *context, napier_status status);

bool rl_has(const rl_batch *batch, rl_field field);

/* Checks that the batch has a field that an option needs: "--beta needs ref_logprobs (--ref)". */
int rl_need(const rl_request *q, const rl_batch *batch, rl_field field, const char *option);

#endif
