/* cli/lm/model_options.h - the options that judge and logprobs share: the input, the model and how it runs. */
#ifndef NAPIER_CLI_MODEL_OPTIONS_H
#define NAPIER_CLI_MODEL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "../program/machine.h"
#include "../program/options.h"

typedef struct model_request {
    const char *command;
    const char *path, *folder, *out_path; /* NULL: not given */
    bool bf16, help;
    int64_t memory;     /* 0: the library's choice */
    double temperature; /* 0: not given */
    machine machine;
} model_request;

/* A command's own options have ids from MODEL_OWN on. */
enum { MODEL_FOLDER = 1, MODEL_OUTPUT, MODEL_COMPUTE, MODEL_MEMORY, MODEL_TEMPERATURE, MODEL_THREADS, MODEL_ISA };
enum { MODEL_HELP = MODEL_ISA + 1, MODEL_OWN = 100 };

/* Rows of a table of option_spec. */
#define MODEL_SPECS                                                                                                  \
    {MODEL_FOLDER, "model", 'm', true}, {MODEL_OUTPUT, "output", 'o', true}, {MODEL_COMPUTE, "compute", '\0', true}, \
        {MODEL_MEMORY, "memory", '\0', true}, {MODEL_TEMPERATURE, "temperature", 't', true},                         \
        {MODEL_THREADS, "threads", 'j', true}, {MODEL_ISA, "isa", '\0', true}, {                                     \
        MODEL_HELP, "help", 'h', false                                                                               \
    }

/* Handles an id below MODEL_OWN, an operand, or a mistake that option_next reports. */
int model_set_option(model_request *q, int id, const char *value);
/* Checks that a file and a model are given. */
int model_check_request(const model_request *q);

#ifdef NAPIER_MODEL

#include <napier/model.h>

/* Prints the library's error and returns STATUS_FAILED, or returns STATUS_OK if there is none. */
int model_status(const napier_context *context, napier_status status);
int model_open(const model_request *q, napier_context *context, napier_model **model);
/* All ids are below this number. */
int64_t model_vocabulary(napier_context *context, const napier_model *model);
/* Options of scoring, without progress. */
napier_score_options model_score_options(const model_request *q);

#endif
#endif
