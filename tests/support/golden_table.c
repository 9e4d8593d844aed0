/* golden_table.c - see golden_table.h. */
#include "support/golden_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/linear.h>

#include "core/base/platform.h"
#include "support/formats.h"

enum { LINE = 200 };

napier_context *golden_context;
int golden_scramble;

static const char *program, *path;
static FILE *table;
static int writes, quick, lines, wrong;

_Noreturn void golden_give_up(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s %s\n", program, what, detail);
    exit(2);
}

/* A block, and the one made before it: all are freed at the end. */
typedef struct block {
    struct block *before;
    _Alignas(64) unsigned char bytes[];
} block;

static block *last;

void *golden_room(int64_t count, size_t size) {
    block *const b = napier_aligned_take(64, sizeof *b + ((size_t)count + 1) * size);
    if (!b) {
        golden_give_up("out of memory", "");
    }
    memset(b->bytes, 0, ((size_t)count + 1) * size);
    b->before = last;
    last = b;
    return b->bytes;
}

void golden_release(void) {
    while (last) {
        block *const b = last;
        last = b->before;
        napier_aligned_give(b);
    }
}

const unsigned char *golden_file(const char *name, size_t *size) {
    enum { MOST = 1 << 16 };
    const char *const end = strrchr(path, '/');
    char at[1024];
    (void)snprintf(at, sizeof at, "%.*sfiles/%s", end ? (int)(end - path) + 1 : 0, path, name);
    unsigned char *const bytes = golden_room(MOST, 1);
    FILE *const file = fopen(at, "rb");
    *size = file ? fread(bytes, 1, MOST, file) : 0;
    if (!file || fclose(file) != 0 || *size == 0 || *size == MOST) {
        golden_give_up("cannot read", at);
    }
    return bytes;
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

uint64_t hash_elements(uint64_t hash, const void *elements, napier_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        hash = golden_hash(hash, element_bits(elements, dtype, i), napier_dtype_size(dtype));
    }
    return hash;
}

uint64_t hash_integers(uint64_t hash, const int64_t *integers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        hash = golden_hash(hash, (uint64_t)integers[i], 8);
    }
    return hash;
}

void golden_version(void) {
    const int version = napier_numerics_version();
    char line[LINE];
    int of_table;
    if (writes) {
        fprintf(table,
                "# numerics version %d\n# op dtype_in dtype_out shape seed hash; written by `golden --write`, "
                "checked by `golden --check`\n",
                version);
    } else if (!fgets(line, LINE, table) || sscanf(line, "# numerics version %d", &of_table) != 1 ||
               of_table != version) {
        golden_give_up("the table does not begin with this numerics version, but with", line);
    }
}

/* The next line that is no comment; NULL at the end. */
static const char *next_line(char line[LINE]) {
    while (fgets(line, LINE, table)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '#') {
            return line;
        }
    }
    return NULL;
}

void golden_line(uint64_t hash, const char *format, ...) {
    char line[LINE], name[LINE], wanted[LINE + 20];
    va_list values;
    va_start(values, format);
    const size_t length = (size_t)vsnprintf(name, sizeof name, format, values);
    va_end(values);
    lines++;
    (void)snprintf(wanted, sizeof wanted, "%s %016" PRIx64, name, hash);
    if (writes) {
        fprintf(table, "%s\n", wanted);
        return;
    }
    bool found = false;
    for (bool more = true; more && !found; more = quick) {
        if (!next_line(line)) {
            golden_give_up("the table has no line for", name);
        }
        found = strncmp(line, name, length) == 0 && line[length] == ' ';
    }
    if (!found) {
        golden_give_up("the table has another line where it should have", name);
    }
    if (strcmp(line, wanted) != 0) {
        printf("%s: %s, the table has%s\n", program, wanted, line + length);
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
    program = name;
    for (int i = 1; i < count; i++) {
        const int more = i + 1 < count;
        if (strcmp(words[i], "--quick") == 0) {
            quick = 1;
        } else if (strcmp(words[i], "--scramble") == 0) {
            golden_scramble = 1;
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
    golden_release();
    char line[LINE];
    if (!writes && !quick && next_line(line)) {
        golden_give_up("the table has more lines than there are cases:", line);
    }
    const char *const on = napier_matrix_engine(golden_context) ? " on the matrix engine" : "";
    napier_context_destroy(golden_context);
    if (fclose(table) != 0) {
        golden_give_up("cannot write", path);
    }
    printf("%s: %d lines%s, %d differ\n", program, lines, on, wrong);
    return wrong ? 1 : 0;
}
