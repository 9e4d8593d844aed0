/* cli/rl/rl_options.c - the options that grpo, kl and rubric share. */
#include "rl_options.h"

#include "../program/message.h"

#include <math.h>
#include <string.h>

enum { ARRAYS = 1, OFFSETS = ARRAYS + RL_FIELDS, OUTPUT, FORMAT, THREADS, ISA, HELP };

void rl_make_specs(option_spec specs[RL_MOST_SPECS], unsigned fields, const option_spec *own) {
    static const option_spec shared[] = {
        {OFFSETS, "offsets", '\0', true}, {OUTPUT, "output", 'o', true}, {FORMAT, "format", 'f', true},
        {THREADS, "threads", 'j', true},  {ISA, "isa", '\0', true},      {HELP, "help", 'h', false},
    };
    int count = 0;
    for (int field = 0; field < RL_FIELDS; field++) {
        if ((fields & RL_BIT(field)) != 0) {
            specs[count++] = (option_spec){ARRAYS + field, rl_fields[field].option, '\0', true};
        }
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        specs[count++] = shared[i];
    }
    for (; own->name != NULL; own++) {
        specs[count++] = *own;
    }
    specs[count] = (option_spec){0, NULL, '\0', false};
}

int rl_set_number(const rl_request *q, const rl_number *option, const char *value, double *number) {
    double parsed = HUGE_VAL;
    const bool number_or_inf = strcmp(value, "inf") == 0 || parse_number(value, &parsed);
    if (!number_or_inf || isnan(parsed) || parsed < option->least || parsed > option->most ||
        (option->above && parsed <= option->least)) {
        return bad_value(q->command, option->name, value, option->wanted);
    }
    *number = parsed;
    return STATUS_OK;
}

static int set_input(rl_request *q, const char *value) {
    char shown[64];
    if (q->lines_path != NULL) {
        return misuse(q->command, "one input at a time; '%s' is a second",
                      printable(shown, sizeof shown, value, strlen(value)));
    }
    q->lines_path = value;
    return STATUS_OK;
}

int rl_set_option(rl_request *q, int id, const char *value) {
    if (id >= ARRAYS && id < ARRAYS + RL_FIELDS) {
        q->paths[id - ARRAYS] = value;
        return STATUS_OK;
    }
    switch (id) {
    case OPTION_OPERAND: return set_input(q, value);
    case OFFSETS: q->offsets_path = value; return STATUS_OK;
    case OUTPUT: q->out_path = value; return STATUS_OK;
    case FORMAT:
        return rl_format_parse(value, &q->format) ? STATUS_OK
                                                  : bad_value(q->command, "format", value, "jsonl, npy, csv or tsv");
    case THREADS: q->machine.threads_text = value; return STATUS_OK;
    case ISA: q->machine.isa_text = value; return STATUS_OK;
    case HELP: q->help = true; return STATUS_OK;
    default: return STATUS_USAGE; /* OPTION_MISUSE, which has been reported */
    }
}

/* ---- What goes together ------------------------------------------------------------------------------------------ */

static bool is_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

static int check_arrays(const rl_request *q, unsigned required) {
    int standard = is_standard(q->offsets_path);
    for (int field = 0; field < RL_FIELDS; field++) {
        standard += is_standard(q->paths[field]);
        if ((required & RL_BIT(field)) != 0 && q->paths[field] == NULL) {
            return misuse(q->command, "--%s is missing, or a JSON Lines file in place of all arrays",
                          rl_fields[field].option);
        }
    }
    return standard > 1 ? misuse(q->command, "only one of the files can be standard input") : STATUS_OK;
}

int rl_check_request(rl_request *q, unsigned required) {
    const char *array = q->offsets_path != NULL ? "offsets" : NULL;
    for (int field = RL_FIELDS - 1; field >= 0; field--) {
        array = q->paths[field] != NULL ? rl_fields[field].option : array;
    }
    if (array == NULL && q->lines_path == NULL) {
        return misuse(q->command, "an input is missing: a JSON Lines file (- is standard input), or --logprobs FILE");
    }
    if (array != NULL && q->lines_path != NULL) {
        char shown[64];
        return misuse(q->command, "--%s belongs to arrays, not to a JSON Lines file, '%s'", array,
                      printable(shown, sizeof shown, q->lines_path, strlen(q->lines_path)));
    }
    const int status = array != NULL ? check_arrays(q, required) : STATUS_OK;
    return status == STATUS_OK ? machine_resolve(&q->machine, q->command) : status;
}

int rl_check_files(const rl_request *q, const named_file *own, int count) {
    static const char *const options[] = {"--logprobs",  "--old",        "--ref",  "--sampler",
                                          "--entropies", "--advantages", "--mask", "--token-ids"};
    named_file files[3 + RL_FIELDS + RL_MOST_OWN_FILES] = {
        {"the input", q->lines_path, false}, {"--offsets", q->offsets_path, false}, {"--output", q->out_path, true}};
    int all = 3;
    for (int field = 0; field < RL_FIELDS; field++) {
        files[all++] = (named_file){options[field], q->paths[field], false};
    }
    for (int i = 0; i < count; i++) {
        files[all++] = own[i];
    }
    return named_files_check(q->command, files, all);
}

int rl_read(const rl_request *q, rl_batch *batch) {
    progress_line p = {0};
    return q->lines_path != NULL ? rl_batch_read_lines(batch, q->lines_path, &p)
                                 : rl_batch_read_arrays(batch, q->paths, q->offsets_path);
}

const char *rl_input_name(const rl_request *q, rl_field field) {
    const char *const path = q->lines_path != NULL ? q->lines_path : q->paths[field];
    return path == NULL ? q->command : is_standard(path) ? "standard input" : path;
}

int rl_library_error(const rl_request *q, const napier_context *context, napier_status status) {
    return complain("%s: %s", rl_input_name(q, RL_LOGPROBS), error_text(context, status));
}

bool rl_has(const rl_batch *batch, rl_field field) { return (batch->have & RL_BIT(field)) != 0; }

int rl_need(const rl_request *q, const rl_batch *batch, rl_field field, const char *option) {
    if (rl_has(batch, field)) {
        return STATUS_OK;
    }
    return q->lines_path != NULL
               ? complain("%s: no %s, which --%s needs", rl_input_name(q, field), rl_fields[field].json, option)
               : misuse(q->command, "--%s needs --%s", option, rl_fields[field].option);
}
