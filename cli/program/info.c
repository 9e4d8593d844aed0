/* cli/program/info.c - `napier info`: describes the library and what it uses of this machine. */
#include "../commands.h"
#include "machine.h"
#include "message.h"
#include "options.h"

#include <napier/napier.h>

#include <stdio.h>
#include <string.h>

enum { THREADS = 1, ISA, HELP };

static const option_spec specs[] = {
    {THREADS, "threads", 'j', true},
    {ISA, "isa", '\0', true},
    {HELP, "help", 'h', false},
    {0, NULL, '\0', false},
};

void info_help(void) {
    puts("usage: napier info [--threads N] [--isa NAME]\n"
         "\n"
         "Prints the version, the numerics version (it names the bits of every result), the\n"
         "instruction sets of this build and machine, the one chosen, whether products of bf16 run\n"
         "on the processor's matrix engine (AMX; not with --isa), and the threads.\n"
         "\n"
         "  -j, --threads N   threads (default: one for each processor)\n"
         "      --isa NAME    auto (default), scalar, avx2, avx512 or neon\n"
         "  -h, --help        this text\n"
         "\n"
         "example: NAPIER_ISA=avx2 napier info");
}

static int parse(machine *m, int count, char **words, bool *help) {
    option_scan scan = {.command = "info", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        switch (id) {
        case THREADS: m->threads_text = scan.value; break;
        case ISA: m->isa_text = scan.value; break;
        case HELP: *help = true; return STATUS_OK;
        case OPTION_OPERAND: return misuse("info", "takes no file");
        default: return STATUS_USAGE;
        }
    }
    return machine_resolve(m, "info");
}

static void print_info(napier_context *context) {
    static const napier_isa isas[] = {NAPIER_ISA_SCALAR, NAPIER_ISA_NEON, NAPIER_ISA_AVX2, NAPIER_ISA_AVX512};
    printf("version           %s\n", napier_version());
    printf("numerics version  %d\n", napier_numerics_version());
    printf("instruction sets ");
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (napier_isa_available(isas[i])) {
            printf(" %s", napier_isa_name(isas[i]));
        }
    }
    printf("\nchosen            %s\n", napier_isa_name(napier_context_isa(context)));
    printf("matrix engine     %s\n", napier_matrix_engine(context) ? "on (AMX, for products of bf16)" : "off");
    printf("threads           %d\n", napier_context_threads(context));
}

int info_command(int count, char **words) {
    machine m = {0};
    bool help = false;
    int status = parse(&m, count, words, &help);
    if (status == STATUS_OK && help) {
        info_help();
        return finish_standard_output();
    }
    napier_context *context = NULL;
    if (status == STATUS_OK) {
        status = machine_open(&m, &context);
    }
    if (status != STATUS_OK) {
        return status;
    }
    print_info(context);
    napier_context_destroy(context);
    return finish_standard_output();
}
