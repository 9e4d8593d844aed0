/* cli/program/command.c - runs a command: parses its options, checks its files, and opens the library. */
#include "command.h"

#include "message.h"
#include "named_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const option_word isas[] = {{"auto", NAPIER_ISA_AUTO}, {"scalar", NAPIER_ISA_SCALAR},
                                   {"avx2", NAPIER_ISA_AVX2}, {"avx512", NAPIER_ISA_AVX512},
                                   {"neon", NAPIER_ISA_NEON}, {NULL, 0}};

const option machine_options[] = {
    {"threads", 'j', OPTION_INTEGER, "N", offsetof(base_request, threads), OPTION_FROM(1, 1024),
     .variable = "NAPIER_THREADS", .help = "threads (default: one for each processor): the same bits"},
    {"isa", 0, OPTION_WORD, "NAME", offsetof(base_request, isa), .words = isas, .variable = "NAPIER_ISA",
     .help = "{}: the instruction set (default auto, the best of this machine): the same bits"},
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

bool is_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

int out_of_memory(const char *name) { return complain("%s: out of memory", name); }

int finish_standard_output(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return STATUS_OK;
    }
    return errno == EPIPE ? STATUS_FAILED : complain("standard output: %s", strerror(errno));
}

/* ---- The files --------------------------------------------------------------------------------------------------- */

enum { MOST_FILES = OPTION_MOST + OPTION_MOST_FILES };

typedef struct file_list {
    named_file files[MOST_FILES];
    char names[MOST_FILES][32];
    int count;
} file_list;

static void add_file(file_list *l, const char *name, const char *path, bool is_written) {
    snprintf(l->names[l->count], sizeof l->names[l->count], "%s", name);
    l->files[l->count] = (named_file){l->names[l->count], path, is_written};
    l->count += path != NULL;
}

static void add_option(file_list *l, const option *o, const base_request *q) {
    char name[32];
    const char *const *const paths = (const char *const *)((const char *)q + o->offset);
    const bool is_written = o->kind == OPTION_WRITE || o->kind == OPTION_WRITES;
    snprintf(name, sizeof name, "--%s", o->name);
    if (o->kind == OPTION_READ || is_written) {
        add_file(l, name, paths[0], is_written);
    }
    for (int i = 1; o->kind == OPTION_WRITES && paths[i - 1] != NULL; i++) {
        add_file(l, name, paths[i], true);
    }
}

/* Only one file can be standard input, one result standard output, and no result may replace another file. */
static int check_files(const command *c, const base_request *q) {
    file_list l = {.count = 0};
    int inputs = 0, results = q->out_path == NULL && !c->may_print_nothing;
    add_file(&l, "the input", q->in_path, false);
    for (const option_group *g = c->groups; g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            add_option(&l, o, q);
        }
    }
    for (int i = 0; i < l.count; i++) {
        inputs += is_standard(l.files[i].path) && !l.files[i].is_written;
        results += is_standard(l.files[i].path) && l.files[i].is_written;
    }
    if (inputs > 1) {
        return misuse(c->name, "only one of the files can be standard input");
    }
    if (results > 1) {
        return misuse(c->name, "only one of the results can go to standard output%s",
                      q->out_path == NULL ? ": -o FILE moves the first" : "");
    }
    return c->is_in_place ? STATUS_OK : named_files_check(c->name, l.files, l.count);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static int parse(const command *c, base_request *q, int count, char **words) {
    const option_parser parser = {c->name, c->groups, q, c->input == INPUT_NONE ? NULL : &q->in_path, &q->help};
    int status = options_parse(&parser, count, words);
    if (status != STATUS_OK || q->help) {
        return status;
    }
    if (c->input == INPUT_WANTED && q->in_path == NULL) {
        return misuse(c->name, "an input file is missing (- is standard input)");
    }
    status = c->check != NULL ? c->check(q) : STATUS_OK;
    return status == STATUS_OK ? check_files(c, q) : status;
}

static int run(const command *c, base_request *q) {
    napier_context *context = NULL;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = (int)q->threads;
    options.highest_isa = q->isa;
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
