/* cli/program/request.h - a subcommand and its request. */
#ifndef NAPIER_CLI_REQUEST_H
#define NAPIER_CLI_REQUEST_H

#include "options.h"

#include <napier/types.h>

/* What a command line asks for. The request of each command begins with this struct. */
typedef struct base_request {
    const char *command;            /* its name, for messages */
    const char *in_path, *out_path; /* NULL: not given; "-": standard input and output */
    int64_t threads;                /* 0: the library's choice */
    napier_isa isa;
    int help;
} base_request;

typedef enum command_input { INPUT_WANTED, INPUT_OPTIONAL, INPUT_NONE } command_input;

typedef struct command {
    const char *name;
    const char *summary;
    const char *usage;   /* what follows the name, a line for each form */
    const char *about;   /* the text of the help before the options */
    const char *example; /* a line for each */
    const option_group *groups;
    command_input input;
    bool is_in_place;            /* the output may be the input */
    bool may_print_nothing;      /* without --output, the command may write no result to standard output */
    size_t size;                 /* of the request */
    const void *defaults;        /* a request to begin with */
    int (*check)(void *request); /* what options go together; NULL: nothing to check */
    int (*run)(void *request, napier_context *context);
    void (*more_help)(void); /* prints what follows the options; NULL: nothing */
} command;

#endif
