/* cli/lm/model_options.h - what judge and logprobs share: the model and how it runs. */
#ifndef NAPIER_CLI_MODEL_OPTIONS_H
#define NAPIER_CLI_MODEL_OPTIONS_H

#include "../program/command.h"

#include <napier/model.h>

typedef struct model_request {
    base_request shared;
    const char *folder;
    napier_compute compute;
    int64_t memory; /* 0: the library's choice */
    double temperature;
} model_request;

#define MODEL_DEFAULTS \
    { .compute = NAPIER_COMPUTE_F32, .temperature = 1 }

extern const option model_options[];
int model_check(void *request);

/* Opens the model, and gives the number of its tokens. */
int model_open(const model_request *q, napier_context *context, napier_model **model, int64_t *vocabulary);
/* Options of scoring, without progress. */
napier_score_options model_score_options(const model_request *q);

/* For builds without models. */
int model_missing(void *request, napier_context *context);

#endif
