/* cli/program/command.c - runs a command: parses its options, checks its files, and opens the library. */
#include "command.h"

#include "message.h"
#include "system.h"

#include <string.h>

static const option_word isas[] = {{"auto", NAPIER_ISA_AUTO}, {"scalar", NAPIER_ISA_SCALAR},
                                   {"avx2", NAPIER_ISA_AVX2}, {"avx512", NAPIER_ISA_AVX512},
                                   {"neon", NAPIER_ISA_NEON}, {NULL, 0}};

const option machine_options[] = {
    {"threads", 'j', OPTION_INTEGER, "N", offsetof(base_request, threads), OPTION_FROM(1, 1024),
     .variable = "NAPIER_THREADS", .help = "threads (default: one for each processor): the same bits"},
    {"isa", 0, OPTION_WORD, "NAME", offsetof(base_request, isa), .words = isas, .variable = "NAPIER_ISA",
     .help = "{}: the instruction set (default auto, the best of this machine): the same bits"},
    {"numerics", 0, OPTION_INTEGER, "N", offsetof(base_request, numerics), OPTION_FROM(0, NAPIER_NUMERICS_VERSION),
     .help = "the version of the results' bits: 1, or 0 for the newest (default 0)"},
    {"help", 'h', OPTION_FLAG, NULL, offsetof(base_request, help), .help = "this text"},
    {.name = NULL},
};

const char *error_text(const napier_context *context, napier_status status) {
    const char *const text = napier_last_error(context);
    return *text != '\0' ? text : napier_status_string(status);
}

int library_status(const napier_context *context, napier_status status, const char *name) {
    return status == NAPIER_OK ? STATUS_OK
           : name == NULL      ? complain("%s", error_text(context, status))
                               : complain("%s: %s", name, error_text(context, status));
}

int finish_standard_output(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return STATUS_OK;
    }
    return system_is_closed_pipe(errno) ? STATUS_FAILED : complain("standard output: %s", strerror(errno));
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static int parse(const command *c, base_request *q, int count, char **words) {
    const option_parser parser = {c->groups, q, c->input == INPUT_NONE ? NULL : &q->in_path, &q->help, c->second};
    int status = options_parse(&parser, count, words);
    if (status != STATUS_OK || q->help) {
        return status;
    }
    if (c->input == INPUT_WANTED && q->in_path == NULL) {
        return misuse("an input file is missing (- is standard input)");
    }
    status = c->check != NULL ? c->check(q) : STATUS_OK;
    return status == STATUS_OK ? files_check(c, q) : status;
}

static int run(const command *c, base_request *q) {
    napier_context *context = NULL;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = (int)q->threads;
    options.highest_isa = q->isa;
    options.numerics = q->numerics;
    const napier_status created = napier_context_create(&context, &options);
    if (created == NAPIER_UNSUPPORTED) {
        return complain("--isa (NAPIER_ISA): this machine or this build has no %s", napier_isa_name(q->isa));
    }
    if (created != NAPIER_OK) {
        return complain("%s", napier_status_string(created));
    }
    const int status = c->run(q, context);
    napier_context_destroy(context);
    return status;
}

int command_run(const command *c, int count, char **words) {
    base_request *const q = malloc(c->size);
    if (q == NULL) {
        return out_of_memory(c->name);
    }
    memcpy(q, c->defaults, c->size);
    q->command = c->name;
    message_set_command(c->name);
    int status = parse(c, q, count, words);
    if (status == STATUS_OK && q->help) {
        command_help(c);
        status = finish_standard_output();
    } else if (status == STATUS_OK) {
        status = run(c, q);
    }
    free(q);
    return status;
}
