/* cli/lm/model_options.c - the options that judge and logprobs share. */
#include "model_options.h"

#include <math.h>
#include <stddef.h>

#include "../program/message.h"
#include "../io/named_files.h"

static int set_compute(model_request *q, const char *value) {
    static const char *const words[] = {"f32", "bf16", NULL};
    const int index = word_index(value, words);
    q->bf16 = index == 1;
    return index >= 0 ? STATUS_OK : bad_value(q->command, "compute", value, "f32 or bf16");
}

static int set_memory(model_request *q, const char *value) {
    const bool good = parse_size(value, &q->memory) && q->memory > 0;
    return good ? STATUS_OK : bad_value(q->command, "memory", value, "a size above 0");
}

static int set_temperature(model_request *q, const char *value) {
    const bool good = parse_number(value, &q->temperature) && isfinite(q->temperature) && q->temperature > 0;
    return good ? STATUS_OK : bad_value(q->command, "temperature", value, "a finite number above 0");
}

static int set_input(model_request *q, const char *value) {
    if (q->path != NULL) {
        return misuse(q->command, "one file at a time");
    }
    q->path = value;
    return STATUS_OK;
}

int model_set_option(model_request *q, int id, const char *value) {
    switch (id) {
    case OPTION_OPERAND: return set_input(q, value);
    case MODEL_FOLDER: q->folder = value; return STATUS_OK;
    case MODEL_OUTPUT: q->out_path = value; return STATUS_OK;
    case MODEL_COMPUTE: return set_compute(q, value);
    case MODEL_MEMORY: return set_memory(q, value);
    case MODEL_TEMPERATURE: return set_temperature(q, value);
    case MODEL_THREADS: q->machine.threads_text = value; return STATUS_OK;
    case MODEL_ISA: q->machine.isa_text = value; return STATUS_OK;
    case MODEL_HELP: q->help = true; return STATUS_OK;
    default: return STATUS_USAGE; /* OPTION_MISUSE, which has been reported */
    }
}

int model_check_request(const model_request *q) {
    if (q->path == NULL) {
        return misuse(q->command, "a file is missing (- is standard input)");
    }
    if (q->folder == NULL) {
        return misuse(q->command, "--model is missing: a folder with a model");
    }
    const named_file files[] = {
        {"the input", q->path, false}, {"--model", q->folder, false}, {"--output", q->out_path, true}};
    return named_files_check(q->command, files, sizeof files / sizeof *files);
}

#ifdef NAPIER_MODEL

int model_status(const napier_context *context, napier_status status) {
    return status == NAPIER_OK ? STATUS_OK : complain("%s", error_text(context, status));
}

int model_open(const model_request *q, napier_context *context, napier_model **model) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    options.compute = q->bf16 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32;
    options.memory = q->memory;
    return model_status(context, napier_model_load(context, q->folder, &options, model));
}

int64_t model_vocabulary(napier_context *context, const napier_model *model) {
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    return napier_model_get_info(context, model, &info) == NAPIER_OK ? info.vocabulary : 0;
}

napier_score_options model_score_options(const model_request *q) {
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    options.temperature = q->temperature > 0 ? q->temperature : options.temperature;
    return options;
}

#endif
