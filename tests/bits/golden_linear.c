/* golden_linear - the bits of matrix products and of log-probabilities from hidden states, against a committed
 * table.
 *
 *   golden_linear [--isa NAME] [--threads N] [--quick] --check FILE | --write FILE
 *
 * A line of the table is `what hash`: the 64-bit FNV-1a hash of the bits that a call gave for numbers made here.
 * Every machine, instruction set, compiler and thread count must come to the same hashes. --quick: small data only,
 * for emulators. Exit status: 0 all lines match, 1 some do not, 2 the table or the arguments are wrong, 77 the
 * instruction set is not here. Needs the library, tests/support/formats.c and a C compiler. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/linear.h>
#include <napier/rl.h>

#include "support/formats.h"

static napier_context *context;
static FILE *table;
static int writes, lines, wrong;

static _Noreturn void give_up(const char *what, const char *detail) {
    fprintf(stderr, "golden_linear: %s %s\n", what, detail);
    exit(2);
}

static void *room_for(int64_t count, size_t size) {
    void *const memory = calloc((size_t)count + 1, size);
    if (!memory) {
        give_up("out of memory", "");
    }
    return memory;
}

static void demand(napier_status status) {
    if (status) {
        give_up(napier_status_string(status), napier_last_error(context));
    }
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const uint64_t basis = UINT64_C(0xcbf29ce484222325);

static uint64_t hash_value(uint64_t hash, uint64_t bits, size_t size) {
    for (size_t byte = 0; byte < size; byte++) {
        hash = (hash ^ (bits >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t hash_elements(uint64_t hash, const void *elements, napier_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        hash = hash_value(hash, element_bits(elements, dtype, i), napier_dtype_size(dtype));
    }
    return hash;
}

static uint64_t hash_integers(uint64_t hash, const int64_t *integers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        hash = hash_value(hash, (uint64_t)integers[i], 8);
    }
    return hash;
}

static void line(const char *name, uint64_t hash) {
    char wanted_name[64];
    uint64_t wanted;
    lines++;
    if (writes) {
        fprintf(table, "%s %016" PRIx64 "\n", name, hash);
        return;
    }
    do {
        if (fscanf(table, "%63s %" SCNx64, wanted_name, &wanted) != 2) {
            give_up("the table has no line for", name);
        }
    } while (strcmp(wanted_name, name) != 0);
    if (wanted != hash) {
        printf("golden_linear: %s is %016" PRIx64 ", the table has %016" PRIx64 "\n", name, hash, wanted);
        wrong++;
    }
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t next_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

/* -1 to 1, a multiple of 2^-20 */
static double next_number(void) { return (double)((int64_t)(next_bits() & 0x1fffff) - 0x100000) * 0x1p-20; }

/* Numbers around `middle`, of two summands, so that few are far off. */
static void *numbers(int64_t count, napier_dtype dtype, double middle, double scale) {
    void *const x = room_for(count, napier_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        element_set(x, dtype, i, middle + scale * (next_number() + next_number()));
    }
    return x;
}

/* Every third element is moved by up to 2^(+-range): sums that cancel, and subnormal products. */
static void spread(void *x, napier_dtype dtype, int64_t count, int range) {
    for (int64_t i = 0; i < count; i += 3) {
        double value = element_get(x, dtype, i);
        for (int e = (int)(next_bits() % (unsigned)(2 * range)) - range; e != 0; e += e < 0 ? 1 : -1) {
            value *= e < 0 ? 0.5 : 2.0;
        }
        element_set(x, dtype, i, value);
    }
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* range: of exponents; 0: ordinary numbers. turned: b is stored as [n, k]. */
static void product(int64_t m, int64_t k, int64_t n, napier_dtype a_type, napier_dtype b_type, int range, int turned) {
    char name[64];
    state = 88172645463325252u + (uint64_t)(m * 1000003 + k * 1009 + n);
    void *a = numbers(m * k, a_type, 0.0, 1.0), *b = numbers(k * n, b_type, 0.0, 1.0);
    float *c = room_for(m * n, sizeof *c);
    if (range > 0) {
        spread(a, a_type, m * k, range);
        spread(b, b_type, k * n, range);
    }
    const napier_const_matrix stored =
        turned ? napier_const_transposed(napier_const_rows(b, n, k, b_type)) : napier_const_rows(b, k, n, b_type);
    demand(napier_matmul(context, napier_const_rows(a, m, k, a_type), stored, napier_rows_f32(c, m, n)));
    snprintf(name, sizeof name, "product:%s:%s:%dx%dx%d:%d%s", napier_dtype_name(a_type), napier_dtype_name(b_type),
             (int)m, (int)k, (int)n, range, turned ? "t" : "");
    line(name, hash_elements(basis, c, NAPIER_F32, m * n));
    free(a);
    free(b);
    free(c);
}

static void head(int64_t rows, int64_t hidden, int64_t vocabulary, napier_dtype dtype) {
    char name[64];
    state = 362436069 + (uint64_t)(rows + hidden * 1000 + vocabulary);
    void *x = numbers(rows * hidden, dtype, 0.0, 1.0), *w = numbers(vocabulary * hidden, dtype, 0.0, 0.5);
    int64_t *ids = room_for(rows, sizeof *ids), *ranks = room_for(rows, sizeof *ranks);
    float *results = room_for(3 * rows, sizeof *results), *grad_x = room_for(rows * hidden, sizeof *grad_x);
    float *grad_w = room_for(vocabulary * hidden, sizeof *grad_w);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int64_t)(next_bits() % (uint64_t)vocabulary);
    }
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(results, rows, 1);
    r.lse = napier_array_f32(results + rows, rows);
    r.entropy = napier_array_f32(results + 2 * rows, rows);
    r.rank = ranks;
    const napier_const_matrix states = napier_const_rows(x, rows, hidden, dtype);
    const napier_const_matrix weights = napier_const_rows(w, vocabulary, hidden, dtype);
    const napier_indices chosen = napier_indices_i64(ids, rows);
    demand(napier_linear_token_logprobs(context, states, weights, chosen, NULL, &r));
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(results, rows, 1);
    g.entropy = napier_const_array_f32(results + rows, rows);
    demand(napier_linear_token_logprobs_backward(context, states, weights, chosen, NULL, &g,
                                                 napier_rows_f32(grad_x, rows, hidden),
                                                 napier_rows_f32(grad_w, vocabulary, hidden)));
    snprintf(name, sizeof name, "head:%s:%dx%dx%d", napier_dtype_name(dtype), (int)rows, (int)hidden, (int)vocabulary);
    line(name, hash_integers(hash_elements(basis, results, NAPIER_F32, 3 * rows), ranks, rows));
    snprintf(name, sizeof name, "head_backward:%s:%dx%dx%d", napier_dtype_name(dtype), (int)rows, (int)hidden,
             (int)vocabulary);
    line(name, hash_elements(hash_elements(basis, grad_x, NAPIER_F32, rows * hidden), grad_w, NAPIER_F32,
                             vocabulary * hidden));
    free(x);
    free(w);
    free(ids);
    free(ranks);
    free(results);
    free(grad_x);
    free(grad_w);
}

static void all_cases(int quick) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int d = 0; d < 9; d++) {
        product(5, 70, 33, dtypes[d % 3], dtypes[d / 3], 0, d % 2);
    }
    for (int range = 8; range <= 75; range += 67) {
        product(3, 200, 50, NAPIER_BF16, NAPIER_BF16, range, 1);
        product(20, 100, 40, NAPIER_BF16, NAPIER_BF16, range, 1);
        product(20, 100, 40, NAPIER_F32, NAPIER_F32, range, 0);
    }
    for (int d = 0; d < 3; d++) {
        head(3, 40, 1100, dtypes[d]);
        head(20, 9, 300, dtypes[d]);
    }
    for (int d = 0; d < 3 && !quick; d++) {
        product(300, 700, 150, dtypes[d], dtypes[d], 0, 1);
        head(270, 33, 2100, dtypes[d]);
    }
}

static napier_isa isa_named(const char *name) {
    for (int isa = NAPIER_ISA_AUTO; isa <= NAPIER_ISA_AVX512; isa++) {
        if (strcmp(name, napier_isa_name((napier_isa)isa)) == 0) {
            return (napier_isa)isa;
        }
    }
    give_up("no instruction set is called", name);
}

int main(int count, char **words) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    const char *path = NULL;
    int quick = 0;
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
            give_up("unknown or incomplete argument", words[i]);
        }
    }
    table = path ? fopen(path, writes ? "w" : "r") : NULL;
    if (!table) {
        give_up("say --check FILE or --write FILE that can be opened;", path ? path : "none given");
    }
    const napier_status status = napier_context_create(&context, &options);
    if (status == NAPIER_UNSUPPORTED) {
        printf("golden_linear: skipped, this machine cannot run %s\n", napier_isa_name(options.highest_isa));
        return 77;
    }
    demand(status);
    all_cases(quick);
    napier_context_destroy(context);
    if (fclose(table) != 0) {
        give_up("cannot write", path);
    }
    printf("golden_linear: %d lines, %d differ\n", lines, wrong);
    return wrong ? 1 : 0;
}
