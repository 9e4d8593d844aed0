/* cli/program/machine.h - threads and instruction set: from options, else from the environment, else the library's
 * choice. Only the program reads the environment; the library never does. */
#ifndef NAPIER_CLI_MACHINE_H
#define NAPIER_CLI_MACHINE_H

#include <napier/types.h>

typedef struct machine {
    const char *threads_text, *isa_text; /* as given; NULL: not given */
    const char *threads_from, *isa_from; /* "--threads" or "NAPIER_THREADS": the name in an error */
    int threads;                         /* 0: the library's choice */
    napier_isa isa;
} machine;

/* Prefers the text of the option to that of the environment. A bad value gives a message and STATUS_USAGE. */
int machine_resolve(machine *m, const char *command);

/* Creates the context. Fails if this machine lacks the instruction set. */
int machine_open(const machine *m, napier_context **context);

/* The text for a call that failed: the context's last error, else the meaning of the status. */
const char *error_text(const napier_context *context, napier_status status);

#endif
