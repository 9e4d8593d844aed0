/* cli/program/command.h - a subcommand and its request, how it is run, and its help. */
#ifndef NAPIER_CLI_COMMAND_H
#define NAPIER_CLI_COMMAND_H

#include "options.h"

#include <napier/types.h>

/* What a command line asks for. The request of each command begins with this struct. */
typedef struct base_request {
    const char *command;            /* its name, for messages */
    const char *in_path, *out_path; /* NULL: not given; "-": standard input and output */
    int64_t threads;                /* 0: the library's choice */
    napier_isa isa;
    int64_t numerics; /* 0: the newest */
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
    const char *second;          /* the option that a second input is probably meant for; NULL: none */
    bool is_in_place;            /* the output may be the input */
    bool may_print_nothing;      /* without --output, the command may write no result to standard output */
    size_t size;                 /* of the request */
    const void *defaults;        /* a request to begin with */
    int (*check)(void *request); /* what options go together; NULL: nothing to check */
    int (*run)(void *request, napier_context *context);
    void (*more_help)(void); /* prints what follows the options; NULL: nothing */
} command;

/* The options of all commands, --threads, --isa and --help, as the last group of each. */
extern const option machine_options[];
#define MACHINE_GROUP \
    {NULL, machine_options}, { NULL, NULL }

/* Parses the words after the command's name, checks them, and runs the command. Returns the exit status. */
int command_run(const command *c, int count, char **words);

/* The text for a call of the library that failed: the context's last error, else the meaning of the status. */
const char *error_text(const napier_context *context, napier_status status);

/* STATUS_OK, or STATUS_FAILED after a message with the library's error; `name` is what the error is about, or NULL. */
int library_status(const napier_context *context, napier_status status, const char *name);

/* ---- Files (files.c) ------------------------------------------------------------------------------------------------ */

/* Is the path "-", for standard input or output? */
bool is_standard(const char *path);

/* Checks the files that the options of a command name. Only one file can be standard input, and one result standard
 * output. No result may replace another one, or an input; links and different paths to one file count as the same file.
 * A result may not replace a file in a folder that is read (a model) either. Devices and pipes may be named twice. A
 * file that cannot be written is found here, before the work, which may take long; writing it may still fail later. */
int files_check(const command *c, const base_request *q);

/* ---- Help -------------------------------------------------------------------------------------------------------- */

enum { HELP_WIDTH = 100 };

/* Print --help of a command, and the options of all commands for the man page, in Markdown. */
void command_help(const command *c);
void commands_manual(const command *const *commands, int count);

/* Prints a script that completes commands and options in that shell. Returns the exit status. */
int completion_print(const char *shell, const command *const *commands, int count);

/* Prints words from `column` on, in lines of at most HELP_WIDTH characters that begin in column `indent`. */
void print_wrapped(const char *text, int column, int indent);

/* Ends a command that prints to standard output. Returns STATUS_FAILED if not all of it could be written. */
int finish_standard_output(void);

#endif
