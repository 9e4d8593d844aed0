/* cli/rl/rl_options.c - what grpo, kl and rubric share. */
#include "rl_options.h"

#include "io/source.h"
#include "program/message.h"

unsigned rl_given(const rl_request *q) {
    unsigned given = 0;
    for (int field = 0; field < RL_FIELDS; field++) {
        given |= q->paths[field] != NULL ? RL_BIT(field) : 0;
    }
    return given;
}

static int first_field(unsigned fields) {
    int field = 0;
    while ((fields & RL_BIT(field)) == 0) {
        field++;
    }
    return field;
}

int rl_check(const rl_request *q, unsigned required) {
    const char *const lines = q->shared.in_path;
    const unsigned given = rl_given(q);
    if (given == 0 && q->offsets_path == NULL) {
        return lines != NULL ? STATUS_OK
                             : misuse("an input is missing: a JSON Lines file (- is standard input), or "
                                      "--logprobs FILE");
    }
    if (lines != NULL) {
        return misuse("--%s belongs to arrays, not to a JSON Lines file, '%s'",
                      given != 0 ? rl_fields[first_field(given)].option : "offsets", lines);
    }
    return (required & ~given) == 0 ? STATUS_OK
                                    : misuse("--%s is missing, or a JSON Lines file in place of all arrays",
                                             rl_fields[first_field(required & ~given)].option);
}

int rl_read(const rl_request *q, rl_batch *batch) {
    return q->shared.in_path != NULL ? rl_batch_read_lines(batch, q->shared.in_path)
                                     : rl_batch_read_arrays(batch, q->paths, q->offsets_path);
}

int rl_write(const rl_request *q, const array_shape *shape, const float *numbers, output_printer *print, void *user) {
    const char *const path = q->shared.out_path;
    const file_format format = q->format != FORMAT_AUTO ? q->format : format_of_name(path);
    return format == FORMAT_AUTO || format == FORMAT_JSONL ? output_print(path, print, user)
                                                           : output_array(path, format, shape, numbers);
}

const char *rl_input_name(const rl_request *q, rl_field field) {
    const char *const path = q->shared.in_path != NULL ? q->shared.in_path : q->paths[field];
    return path != NULL ? source_name(path) : q->shared.command;
}

int rl_need(const rl_request *q, unsigned have, rl_field field, const char *name) {
    const rl_field_names names = rl_fields[field];
    return (have & RL_BIT(field)) != 0 ? STATUS_OK
           : q->shared.in_path != NULL
               ? complain("%s: no %s, which --%s needs", rl_input_name(q, field), names.json, name)
               : misuse("--%s needs --%s", name, names.option);
}
