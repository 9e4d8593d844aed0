/* cli/program/machine.c - threads and instruction set. */
#include "machine.h"

#include "message.h"
#include "options.h"

#include <stdlib.h>

enum { MOST_THREADS = 1024 }; /* napier_context_options.threads */

/* An empty variable counts as unset. */
static void from_environment(const char **text, const char **from, const char *option, const char *variable) {
    *from = option;
    if (*text == NULL) {
        const char *const value = getenv(variable);
        *text = value != NULL && *value != '\0' ? value : NULL;
        *from = variable;
    }
}

int machine_resolve(machine *m, const char *command) {
    static const char *const isas[] = {"auto", "scalar", "neon", "avx2", "avx512", NULL};
    static const napier_isa values[] = {NAPIER_ISA_AUTO, NAPIER_ISA_SCALAR, NAPIER_ISA_NEON, NAPIER_ISA_AVX2,
                                        NAPIER_ISA_AVX512};
    from_environment(&m->threads_text, &m->threads_from, "--threads", "NAPIER_THREADS");
    from_environment(&m->isa_text, &m->isa_from, "--isa", "NAPIER_ISA");
    if (m->threads_text != NULL) {
        int64_t threads;
        if (!parse_integer(m->threads_text, 1, MOST_THREADS, &threads)) {
            return misuse(command, "%s: '%s' is not a number from 1 to %d", m->threads_from, m->threads_text,
                          (int)MOST_THREADS);
        }
        m->threads = (int)threads;
    }
    if (m->isa_text != NULL) {
        const int index = word_index(m->isa_text, isas);
        if (index < 0) {
            return misuse(command, "%s: '%s' is none of auto, scalar, avx2, avx512, neon", m->isa_from, m->isa_text);
        }
        m->isa = values[index];
    }
    return STATUS_OK;
}

int machine_open(const machine *m, napier_context **context) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = m->threads;
    options.highest_isa = m->isa;
    const napier_status status = napier_context_create(context, &options);
    if (status == NAPIER_UNSUPPORTED) {
        return complain("%s: this machine or this build has no %s", m->isa_from, napier_isa_name(m->isa));
    }
    if (status != NAPIER_OK) {
        return complain("%s", napier_status_string(status));
    }
    return STATUS_OK;
}

const char *error_text(const napier_context *context, napier_status status) {
    const char *const text = napier_last_error(context);
    return *text != '\0' ? text : napier_status_string(status);
}
