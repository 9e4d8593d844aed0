/* cli/program/info.c - `napier info`: describes the library and what it uses of this machine. */
#include "commands.h"

#include "system.h"

#include <napier/napier.h>

#include <stdio.h>

/* Parts that a build may lack. CMake defines NAPIER_HAS_CUDA and NAPIER_HAS_MPI for this file, the others for the program. */
static const struct part {
    const char *name;
    bool is_built_in;
} parts[] = {
#if defined(NAPIER_MODEL)
    {"tokenizer and model (cJSON, PCRE2, utf8proc)", true},
#else
    {"tokenizer and model (cJSON, PCRE2, utf8proc)", false},
#endif
#if defined(NAPIER_CJSON)
    {"JSON Lines (cJSON)", true},
#else
    {"JSON Lines (cJSON)", false},
#endif
#if defined(NAPIER_CAIRO)
    {".png (cairo)", true},
#else
    {".png (cairo)", false},
#endif
#if defined(NAPIER_ZLIB)
    {"packed .npz (zlib)", true},
#else
    {"packed .npz (zlib)", false},
#endif
#if defined(NAPIER_LIBEDIT)
    {"lines edited (libedit)", true},
#else
    {"lines edited (libedit)", false},
#endif
#if defined(NAPIER_HAS_CUDA)
    {"CUDA", true},
#else
    {"CUDA", false},
#endif
#if defined(NAPIER_HAS_MPI)
    {"napier_mpi (MPI)", true},
#else
    {"napier_mpi (MPI)", false},
#endif
};

static void print_parts(const char *title, bool is_built_in) {
    int count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].is_built_in == is_built_in) {
            printf("%s%s", count++ == 0 ? title : ", ", parts[i].name);
        }
    }
    if (count > 0) {
        putchar('\n');
    }
}

/* What the default number of threads follows. */
static void print_processors(void) {
    const double quota = napier_processor_quota("");
    printf("processors        %d", napier_processors());
    if (quota > 0) {
        printf(" (the quota of the control group is %.3g)", quota);
    }
    printf("\n");
}

static int print_info(void *unused, napier_context *context) {
    static const napier_isa isas[] = {NAPIER_ISA_SCALAR, NAPIER_ISA_NEON, NAPIER_ISA_AVX2, NAPIER_ISA_AVX512};
    (void)unused;
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
    print_processors();
    print_parts("built in          ", true);
    print_parts("left out          ", false);
    return finish_standard_output();
}

static const option_group groups[] = {MACHINE_GROUP};
static const base_request defaults = {.command = NULL};

const command info_command = {
    .name = "info",
    .summary = "version, numerics version, instruction sets, threads, what is built in",
    .usage = "[--threads N] [--isa NAME]",
    .about = "Prints the version, the numerics version (it names the bits of every result), the\n"
             "instruction sets of this build and machine, the one chosen, whether products of bf16 run\n"
             "on the processor's matrix engine (AMX; not with --isa), the threads, the\n"
             "processors it may use, and what is built in.",
    .example = "NAPIER_ISA=avx2 napier info",
    .groups = groups,
    .input = INPUT_NONE,
    .size = sizeof defaults,
    .defaults = &defaults,
    .run = print_info,
};
