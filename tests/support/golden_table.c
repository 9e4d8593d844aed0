/* golden_table.c - see golden_table.h. */
#include "support/golden_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/linear.h>

napier_context *golden_context;

static const char *program;
static FILE *table;
static int writes, lines, wrong;

_Noreturn void golden_give_up(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s %s\n", program, what, detail);
    exit(2);
}

void *golden_room(int64_t count, size_t size) {
    void *const memory = calloc((size_t)count + 1, size);
    if (!memory) {
        golden_give_up("out of memory", "");
    }
    return memory;
}

void golden_demand(napier_status status) {
    if (status) {
        golden_give_up(napier_status_string(status), napier_last_error(golden_context));
    }
}

uint64_t golden_hash(uint64_t hash, uint64_t bits, size_t size) {
    for (size_t byte = 0; byte < size; byte++) {
        hash = (hash ^ (bits >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void golden_line(const char *name, uint64_t hash) {
    char wanted_name[64];
    uint64_t wanted;
    lines++;
    if (writes) {
        fprintf(table, "%s %016" PRIx64 "\n", name, hash);
        return;
    }
    do {
        if (fscanf(table, "%63s %" SCNx64, wanted_name, &wanted) != 2) {
            golden_give_up("the table has no line for", name);
        }
    } while (strcmp(wanted_name, name) != 0);
    if (wanted != hash) {
        printf("%s: %s is %016" PRIx64 ", the table has %016" PRIx64 "\n", program, name, hash, wanted);
        wrong++;
    }
}

static napier_isa isa_named(const char *name) {
    for (int isa = NAPIER_ISA_AUTO; isa <= NAPIER_ISA_AVX512; isa++) {
        if (strcmp(name, napier_isa_name((napier_isa)isa)) == 0) {
            return (napier_isa)isa;
        }
    }
    golden_give_up("no instruction set is called", name);
}

int golden_main(const char *name, int count, char **words, void (*cases)(int quick)) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    const char *path = NULL;
    int quick = 0;
    program = name;
    for (int i = 1; i < count; i++) {
        const int more = i + 1 < count;
        if (strcmp(words[i], "--quick") == 0) {
            quick = 1;
        } else if (strcmp(words[i], "--isa") == 0 && more) {
            options.highest_isa = isa_named(words[++i]);
        } else if (strcmp(words[i], "--threads") == 0 && more) {
            options.threads = atoi(words[++i]);
        } else if ((strcmp(words[i], "--check") == 0 || strcmp(words[i], "--write") == 0) && more) {
            writes = words[i][2] == 'w';
            path = words[++i];
        } else {
            golden_give_up("unknown or incomplete argument", words[i]);
        }
    }
    table = path ? fopen(path, writes ? "w" : "r") : NULL;
    if (!table) {
        golden_give_up("say --check FILE or --write FILE that can be opened;", path ? path : "none given");
    }
    const napier_status status = napier_context_create(&golden_context, &options);
    if (status == NAPIER_UNSUPPORTED) {
        printf("%s: skipped, this machine cannot run %s\n", program, napier_isa_name(options.highest_isa));
        return 77;
    }
    golden_demand(status);
    cases(quick);
    const char *const on = napier_matrix_engine(golden_context) ? " on the matrix engine" : "";
    napier_context_destroy(golden_context);
    if (fclose(table) != 0) {
        golden_give_up("cannot write", path);
    }
    printf("%s: %d lines%s, %d differ\n", program, lines, on, wrong);
    return wrong ? 1 : 0;
}
