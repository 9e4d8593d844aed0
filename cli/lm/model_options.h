/* cli/lm/model_options.h - what generate, judge and logprobs share: the model and how it runs. */
#ifndef NAPIER_CLI_MODEL_OPTIONS_H
#define NAPIER_CLI_MODEL_OPTIONS_H

#include "program/command.h"

#include "score_lines.h"

#include <napier/model.h>

typedef struct model_request {
    base_request shared;
    const char *folder;
    napier_compute compute;
    int64_t memory; /* 0: the library's choice */
    double temperature;
    int no_thinking, no_bos;
    int chat_format; /* napier_chat_format; -1: the model's */
    const char *chat_date;
    line_shard shard; /* of IN */
    int resume;
} model_request;

#define MODEL_DEFAULTS                                                                        \
    {                                                                                         \
        .compute = NAPIER_COMPUTE_F32, .temperature = 1, .chat_format = -1, .shard = { 0, 1 } \
    }

extern const option model_options[];
extern const option scoring_options[];      /* the temperature, which is above 0 */
extern const option chat_options[];         /* the format of conversations */
extern const option prompt_options[];       /* how prompts that are texts or conversations become ids */
extern const option conversation_options[]; /* of commands that read conversations */
extern const option_word chat_formats[], compute_modes[];
int model_check(void *request);

/* Opens the model, and gives the number of its tokens. */
int model_open(const model_request *q, napier_context *context, napier_model **model, int64_t *vocabulary);
/* Warns if this many tokens run as one sequence, and the model was trained for fewer. Returns whether it did. */
bool model_note_length(napier_context *context, const napier_model *model, int64_t tokens);
/* Reads the texts of a command; with it the caller sets what else it needs. */
text_encoder model_text_encoder(const model_request *q, napier_context *context, int64_t vocabulary);
/* Options of scoring, without progress. */
napier_score_options model_score_options(const model_request *q);

/* Complains that this build has no models. */
int model_missing(void *request, napier_context *context);

#endif
