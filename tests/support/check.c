/* support/check.c - see check.h. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"

enum { PROBLEMS_SHOWN = 12, POISON = 0xa5, LINE = 64 };

static int problem_count;

void problem(const char *format, ...) {
    if (problem_count++ < PROBLEMS_SHOWN) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        print_message("    %s\n", text);
    }
}

void no_problems(void) {
    const int count = problem_count;
    problem_count = 0;
    if (count) {
        fail_msg("%d problems, the first %d above", count, count < PROBLEMS_SHOWN ? count : PROBLEMS_SHOWN);
    }
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void **owned; /* memory to free when the test ends */
static int64_t owned_count, owned_limit;

static void *own(void *memory) {
    if (owned_count == owned_limit) {
        owned_limit = 2 * owned_limit + 64;
        owned = realloc(owned, (size_t)owned_limit * sizeof *owned);
        assert_non_null(owned);
    }
    return owned[owned_count++] = memory;
}

static void disown(const void *memory) {
    for (int64_t i = owned_count - 1; i >= 0; i--) {
        if (owned[i] == memory) {
            owned[i] = NULL;
            return;
        }
    }
}

enum { CONTEXT_LIMIT = 4096 };

static napier_context *contexts[CONTEXT_LIMIT]; /* to destroy when the test ends */
static int context_count;

napier_context *context_for_test(napier_isa isa, int threads) {
    if (context_count == CONTEXT_LIMIT) {
        fail_msg("more than %d contexts in one test", CONTEXT_LIMIT);
    }
    return contexts[context_count++] = context_of(isa, threads);
}

int64_t scratch_mark(void) { return owned_count; }

void scratch_release(int64_t mark) {
    while (owned_count > mark) {
        free(owned[--owned_count]);
    }
}

void (*after_each_test)(void);

static void run_in_contexts(const named_test *test) {
    napier_isa isas[ISA_LIMIT] = {NAPIER_ISA_AUTO};
    const int count = test->each_isa ? available_isas(isas) : 1;
    for (int i = 0; i < count; i++) {
        test->run(context_for_test(isas[i], test->threads));
    }
}

static void run_one(void **state) {
    const named_test *const test = *state;
    if (test->alone) {
        test->alone();
    } else {
        run_in_contexts(test);
    }
    if (after_each_test) {
        after_each_test();
    }
    scratch_release(0);
    while (context_count > 0) {
        napier_context_destroy(contexts[--context_count]);
    }
    no_problems();
}

int run_named_tests(const char *group, const named_test *tests, size_t count) {
    struct CMUnitTest *const all = room_for((int64_t)count, sizeof *all);
    for (size_t i = 0; i < count; i++) {
        all[i] = (struct CMUnitTest){tests[i].name, run_one, NULL, NULL, (void *)(uintptr_t)&tests[i]};
    }
    const int failed = _cmocka_run_group_tests(group, all, count, NULL, NULL);
    free(all);
    return failed;
}

napier_context *context_of(napier_isa isa, int threads) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.highest_isa = isa;
    options.threads = threads;
    napier_context *context = NULL;
    const napier_status status = napier_context_create(&context, &options);
    if (status != NAPIER_OK) {
        fail_msg("context for %s with %d threads: %s", napier_isa_name(isa), threads, napier_status_string(status));
    }
    return context;
}

int available_isas(napier_isa isas[ISA_LIMIT]) {
    static const napier_isa known[] = {NAPIER_ISA_SCALAR, NAPIER_ISA_NEON, NAPIER_ISA_AVX2, NAPIER_ISA_AVX512};
    int count = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (napier_isa_available(known[i])) {
            isas[count++] = known[i];
        }
    }
    return count;
}

napier_context *context_of_run(int run) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    return run >= count + 2 ? NULL
           : run > count    ? context_for_test(isas[count - 1], 7)
           : run == count   ? context_for_test(NAPIER_ISA_AUTO, 2)
                            : context_for_test(isas[run], 1);
}

napier_context *context_of_engine_run(int run) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    return run > 1 ? NULL : run == 1 ? context_for_test(isas[count - 1], 1) : context_for_test(NAPIER_ISA_AUTO, 7);
}

bool succeeded(const napier_context *context, napier_status status, const char *what) {
    return expect(status == NAPIER_OK, "%s: %s (%s)", what, napier_status_string(status), napier_last_error(context));
}

bool refused(const napier_context *context, napier_status status, napier_status wanted, const char *word, ...) {
    const char *const text = napier_last_error(context);
    if (!expect(status == wanted, "status %s instead of %s for what should mention \"%s\" (text: \"%s\")",
                napier_status_string(status), napier_status_string(wanted), word ? word : "", text)) {
        return false;
    }
    bool fine = true;
    va_list words;
    va_start(words, word);
    for (const char *w = word; w; w = va_arg(words, const char *)) {
        fine = expect(strstr(text, w), "the text \"%s\" does not contain \"%s\"", text, w) && fine;
    }
    va_end(words);
    return fine;
}

void *room_for(int64_t count, size_t size) {
    void *const memory = malloc(count > 0 ? (size_t)count * size : 1);
    if (!memory) {
        fail_msg("no memory for %lld elements", (long long)count);
    }
    return memory;
}

void *scratch(int64_t count, size_t size) { return own(room_for(count, size)); }

/* Strides: row_cols * cols + row of rows, col_rows * rows + col of columns; and elements before the first. */
static const struct {
    const char *name;
    int64_t row_cols, row, col_rows, col, before;
} layouts[LAYOUTS] = {
    [LAYOUT_CONTIGUOUS] = {"contiguous", 1, 0, 0, 1, 0},
    [LAYOUT_PADDED] = {"padded", 1, 3, 0, 1, 0},
    [LAYOUT_TRANSPOSED] = {"transposed", 0, 1, 1, 0, 0},
    [LAYOUT_TRANSPOSED_PADDED] = {"transposed-padded", 0, 1, 1, 5, 0},
    [LAYOUT_EVERY_OTHER] = {"every-other", 2, 1, 0, 2, 0},
    [LAYOUT_ROWS_REVERSED] = {"rows-reversed", -1, -1, 0, 1, 0},
    [LAYOUT_COLUMNS_REVERSED] = {"columns-reversed", 1, 2, 0, -1, 0},
    [LAYOUT_BOTH_REVERSED] = {"both-reversed", -2, 0, 0, -2, 0},
    [LAYOUT_OFFSET] = {"offset", 1, 0, 0, 1, 1},
};

const char *layout_name(layout l) { return (unsigned)l < LAYOUTS ? layouts[l].name : "unknown"; }

grid grid_make(layout l, int64_t rows, int64_t cols, napier_dtype dtype) {
    const size_t size = napier_dtype_size(dtype);
    const int64_t row_stride = layouts[l].row_cols * cols + layouts[l].row;
    const int64_t col_stride = layouts[l].col_rows * rows + layouts[l].col;
    int64_t low = 0, high = 0; /* the range of all element offsets */
    if (rows > 0 && cols > 0) {
        const int64_t down = (rows - 1) * row_stride, right = (cols - 1) * col_stride;
        low = (down < 0 ? down : 0) + (right < 0 ? right : 0);
        high = (down > 0 ? down : 0) + (right > 0 ? right : 0) + 1;
    }
    grid g;
    g.bytes = (size_t)(high - low) * size + 4 * LINE;
    g.memory = scratch((int64_t)g.bytes, 1);
    memset(g.memory, POISON, g.bytes);
    unsigned char *const line = g.memory + (LINE - (uintptr_t)g.memory % LINE) % LINE + LINE;
    g.view =
        (napier_matrix){line + (layouts[l].before - low) * (int64_t)size, rows, cols, row_stride, col_stride, dtype};
    return g;
}

void grid_free(grid *g) {
    disown(g->memory);
    free(g->memory);
    g->memory = NULL;
}

static int64_t offset_of(const grid *g, int64_t row, int64_t col) {
    return row * g->view.row_stride + col * g->view.col_stride;
}

double grid_get(const grid *g, int64_t row, int64_t col) {
    return element_get(g->view.data, g->view.dtype, offset_of(g, row, col));
}

uint64_t grid_bits(const grid *g, int64_t row, int64_t col) {
    return element_bits(g->view.data, g->view.dtype, offset_of(g, row, col));
}

void grid_set(grid *g, int64_t row, int64_t col, double value) {
    element_set(g->view.data, g->view.dtype, offset_of(g, row, col), value);
}

void grid_set_row(grid *g, int64_t row, const double *values) {
    for (int64_t col = 0; col < g->view.cols; col++) {
        grid_set(g, row, col, values[col]);
    }
}

void grid_get_row(const grid *g, int64_t row, double *values) {
    for (int64_t col = 0; col < g->view.cols; col++) {
        values[col] = grid_get(g, row, col);
    }
}

void grid_fill(grid *g, row_kind kind, uint64_t seed) {
    double *const values = room_for(g->view.cols, sizeof *values);
    for (int64_t row = 0; row < g->view.rows; row++) {
        const uint64_t row_seed = seed + (uint64_t)row;
        row_fill(kind == ROW_KINDS ? (row_kind)(row_seed % ROW_KINDS) : kind, row_seed, g->view.dtype, values,
                 g->view.cols);
        grid_set_row(g, row, values);
    }
    free(values);
}

void grid_copy(grid *to, const grid *from) {
    for (int64_t row = 0; row < from->view.rows; row++) {
        for (int64_t col = 0; col < from->view.cols; col++) {
            element_set_bits(to->view.data, to->view.dtype, offset_of(to, row, col), grid_bits(from, row, col));
        }
    }
}

int64_t grid_damage(const grid *g) {
    const size_t size = napier_dtype_size(g->view.dtype);
    unsigned char *const covered = room_for((int64_t)g->bytes, 1);
    memset(covered, 0, g->bytes);
    const unsigned char *const data = g->view.data;
    for (int64_t row = 0; row < g->view.rows; row++) {
        for (int64_t col = 0; col < g->view.cols; col++) {
            memset(covered + (data + offset_of(g, row, col) * (int64_t)size - g->memory), 1, size);
        }
    }
    int64_t damage = 0;
    for (size_t i = 0; i < g->bytes; i++) {
        damage += !covered[i] && g->memory[i] != POISON;
    }
    free(covered);
    return damage;
}

int64_t grid_differences(const grid *got, const grid *expected, const char *what) {
    int64_t differences = 0;
    for (int64_t row = 0; row < expected->view.rows; row++) {
        for (int64_t col = 0; col < expected->view.cols; col++) {
            const uint64_t a = grid_bits(got, row, col), b = grid_bits(expected, row, col);
            if (a != b && differences++ == 0) {
                problem("%s: [%lld, %lld] of %lld x %lld is %#llx, expected %#llx", what, (long long)row,
                        (long long)col, (long long)expected->view.rows, (long long)expected->view.cols,
                        (unsigned long long)a, (unsigned long long)b);
            }
        }
    }
    return differences;
}

const char *operation_name(operation op) {
    static const char *const names[OPERATIONS] = {"softmax", "log_softmax", "logsumexp", "logsumexp_all"};
    return (unsigned)op < OPERATIONS ? names[op] : "unknown";
}

int64_t operation_rows(operation op, int64_t rows) { return op == OP_LOGSUMEXP_ALL ? 1 : rows; }

int64_t operation_cols(operation op, int64_t cols) { return op == OP_SOFTMAX || op == OP_LOG_SOFTMAX ? cols : 1; }

napier_status operation_run(napier_context *context, operation op, napier_const_matrix logits, napier_matrix out,
                            const napier_softmax_options *options) {
    const napier_vector lse = {out.data, out.rows, out.row_stride, out.dtype};
    switch (op) {
    case OP_SOFTMAX: return napier_softmax(context, logits, out, options);
    case OP_LOG_SOFTMAX: return napier_log_softmax(context, logits, out, options);
    case OP_LOGSUMEXP: return napier_logsumexp(context, logits, lse, options);
    default: return napier_logsumexp_all(context, logits, lse, options);
    }
}

napier_softmax_options options_of(double temperature, napier_algorithm algorithm, napier_masked_rows masked_rows) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.temperature = temperature;
    options.algorithm = algorithm;
    options.masked_rows = masked_rows;
    return options;
}
