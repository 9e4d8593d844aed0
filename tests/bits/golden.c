/* golden - the bits of every operation, held against a committed table.
 *
 *   golden [--isa NAME] [--threads N] [--quick] [--scramble] --check FILE | --write FILE
 *
 * A line of the table is `op dtype_in dtype_out ROWSxCOLS seed hash`: the 64-bit FNV-1a hash of the result's bits for
 * rows made from the seed. Every machine, instruction set, compiler and thread count must come to the same hashes.
 *   --quick     leaves out what takes long under an emulator
 *   --scramble  hands each row to the library back to front and turns the result round again: the same values in
 *               another order of summation. Its check must fail; that shows that the table sees the order.
 * Exit status: 0 all lines match, 1 some do not, 2 the table or the arguments are wrong, 77 this machine has not the
 * instruction set.
 *
 * Needs the library, support/formats.c, support/rows.c and a C compiler; nothing else. */
#include <inttypes.h>
#include <napier/sparsemax.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"
#include "support/rows.h"

typedef enum golden_op {
    SOFTMAX,
    LOG_SOFTMAX,
    LOGSUMEXP,
    LOGSUMEXP_ALL,
    SOFTMAX_WARM, /* temperature 0.7 */
    LOG_SOFTMAX_WARM,
    LOGSUMEXP_WARM,
    SOFTMAX_FIRST_AXIS,
    LOG_SOFTMAX_FIRST_AXIS,
    LOGSUMEXP_FIRST_AXIS,
    SOFTMAX_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    LOGSUMEXP_BACKWARD,
    LOGSUMEXP_ALL_BACKWARD,
    STATE_SOFTMAX, /* each row in three parts, merged, finished, applied */
    STATE_LOG_SOFTMAX,
    STATE_BYTES, /* the byte form of the merged state */
    LOGSUMEXP_WEIGHTED,
    SPARSEMAX,
    SPARSEMAX_BACKWARD,
    GOLDEN_OPS
} golden_op;

static const char *const op_names[GOLDEN_OPS] = {"softmax",
                                                 "log_softmax",
                                                 "logsumexp",
                                                 "logsumexp_all",
                                                 "softmax/0.7",
                                                 "log_softmax/0.7",
                                                 "logsumexp/0.7",
                                                 "softmax:first_axis",
                                                 "log_softmax:first_axis",
                                                 "logsumexp:first_axis",
                                                 "softmax_backward",
                                                 "log_softmax_backward",
                                                 "logsumexp_backward",
                                                 "logsumexp_all_backward",
                                                 "state:softmax",
                                                 "state:log_softmax",
                                                 "state:bytes",
                                                 "logsumexp_weighted",
                                                 "sparsemax",
                                                 "sparsemax_backward"};

typedef struct golden_case {
    golden_op op;
    napier_dtype in, out;
    int64_t rows, cols;
    uint64_t seed;
} golden_case;

typedef struct setting {
    napier_isa isa;
    int threads;
    bool quick, scramble;
    const char *check, *write;
} setting;

static _Noreturn void give_up(const char *what, const char *detail) {
    fprintf(stderr, "golden: %s %s\n", what, detail);
    exit(2);
}

static void *room_for(int64_t count, napier_dtype dtype) {
    void *const memory = malloc((size_t)(count > 0 ? count : 1) * napier_dtype_size(dtype));
    if (!memory) {
        give_up("out of memory", "");
    }
    return memory;
}

/* ---- The cases --------------------------------------------------------------------------------------------------- */

/* Called for each case in order. */
typedef void visitor(void *argument, const golden_case *c);

static void visit(visitor *v, void *argument, golden_op op, napier_dtype in, napier_dtype out, int64_t rows,
                  int64_t cols) {
    const golden_case c = {op, in, out, rows, cols, (uint64_t)cols * 7 + (uint64_t)op};
    v(argument, &c);
}

/* 1 to 48 columns: the kernels that hold 16 rows at a time. */
static void visit_tiny(visitor *v, void *argument) {
    for (int64_t cols = 1; cols <= 48; cols++) {
        for (int op = SOFTMAX; op <= LOGSUMEXP; op++) {
            visit(v, argument, (golden_op)op, NAPIER_F32, NAPIER_F32, 37, cols);
        }
    }
}

static void visit_dtypes(visitor *v, void *argument) {
    static const int64_t cols[] = {5, 50, 100, 1000, 1024, 1025, 4100};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const napier_dtype in = all_dtypes[d / DTYPE_COUNT], out = all_dtypes[d % DTYPE_COUNT];
            for (int op = SOFTMAX; op <= LOGSUMEXP; op++) {
                if (in == out || cols[i] == 50 || cols[i] == 1025) {
                    visit(v, argument, (golden_op)op, in, out, 20, cols[i]);
                }
            }
        }
    }
}

/* Every other operation at sizes below, at and above a tile. */
static void visit_operations(visitor *v, void *argument) {
    static const int64_t cols[] = {3, 17, 50, 1000, 1024, 2500};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F64};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (int op = LOGSUMEXP_ALL; op < GOLDEN_OPS; op++) {
                visit(v, argument, (golden_op)op, dtypes[d], dtypes[d], 20, cols[i]);
            }
        }
    }
    visit(v, argument, SOFTMAX_FIRST_AXIS, NAPIER_F32, NAPIER_F32, 300, 257);
    visit(v, argument, LOGSUMEXP_FIRST_AXIS, NAPIER_BF16, NAPIER_F32, 300, 257);
}

static void visit_long(visitor *v, void *argument) {
    static const int64_t cols[] = {50257, 151936};
    for (size_t i = 0; i < 2; i++) {
        for (int op = SOFTMAX; op <= LOGSUMEXP; op++) {
            visit(v, argument, (golden_op)op, NAPIER_F32, NAPIER_F32, 3, cols[i]);
            visit(v, argument, (golden_op)op, NAPIER_BF16, NAPIER_BF16, 2, cols[i]);
        }
    }
    visit(v, argument, STATE_SOFTMAX, NAPIER_F32, NAPIER_F32, 1, 151936);
    visit(v, argument, STATE_BYTES, NAPIER_F32, NAPIER_F32, 1, 151936);
    visit(v, argument, SOFTMAX, NAPIER_F64, NAPIER_F64, 1, 50257);
    visit(v, argument, SPARSEMAX, NAPIER_F32, NAPIER_F32, 3, 151936);
    for (int op = SOFTMAX; op <= LOGSUMEXP_ALL; op++) {
        visit(v, argument, (golden_op)op, NAPIER_F32, NAPIER_F32, 1, 1000000);
    }
    visit(v, argument, LOGSUMEXP_ALL, NAPIER_F32, NAPIER_F32, 1000, 1000);
}

static void visit_all(visitor *v, void *argument) {
    visit_tiny(v, argument);
    visit_dtypes(v, argument);
    visit_operations(v, argument);
    visit_long(v, argument);
}

static bool is_quick(const golden_case *c) { return c->rows * c->cols <= 25000; }

/* ---- One case ---------------------------------------------------------------------------------------------------- */

static bool is_state(golden_op op) { return op >= STATE_SOFTMAX && op <= STATE_BYTES; }
static bool is_gradient(golden_op op) {
    return (op >= SOFTMAX_BACKWARD && op <= LOGSUMEXP_ALL_BACKWARD) || op == SPARSEMAX_BACKWARD;
}
static bool is_first_axis(golden_op op) { return op >= SOFTMAX_FIRST_AXIS && op <= LOGSUMEXP_FIRST_AXIS; }
static bool is_warm(golden_op op) { return (op >= SOFTMAX_WARM && op <= LOGSUMEXP_WARM) || is_gradient(op); }

/* The n-th row of a case: all kinds in turn, but for the one that needs libm. The gradients' inputs are results of
 * ordinary rows, and single rows are ordinary or rising: what a long row should be. */
static row_kind kind_of(const golden_case *c, int64_t row) {
    if (is_gradient(c->op) || c->op == LOGSUMEXP_ALL) {
        return ROW_NORMAL;
    }
    if (c->rows < ROW_KINDS) {
        static const row_kind kinds[] = {ROW_NORMAL, ROW_RISING, ROW_FLUSH_EDGE};
        return kinds[row % 3];
    }
    const row_kind kind = (row_kind)((c->seed + (uint64_t)row) % ROW_KINDS);
    return kind == ROW_CANCELLING ? ROW_NORMAL : kind;
}

/* A matrix, row-major or, for a reduction along the first axis, column-major. */
typedef struct matrix {
    void *data;
    int64_t rows, cols;
    napier_dtype dtype;
    bool column_major;
} matrix;

static matrix matrix_make(int64_t rows, int64_t cols, napier_dtype dtype, bool column_major) {
    const matrix m = {room_for(rows * cols, dtype), rows, cols, dtype, column_major};
    memset(m.data, 0, (size_t)(rows * cols) * napier_dtype_size(dtype));
    return m;
}

static napier_matrix view_of(const matrix *m) {
    const napier_matrix plain = napier_rows(m->data, m->rows, m->cols, m->dtype);
    return m->column_major ? napier_transposed(napier_rows(m->data, m->cols, m->rows, m->dtype)) : plain;
}

static int64_t index_of(const matrix *m, int64_t row, int64_t col) {
    return m->column_major ? col * m->rows + row : row * m->cols + col;
}

/* Each row back to front. */
static void turn_round(const matrix *m) {
    for (int64_t row = 0; row < m->rows; row++) {
        for (int64_t left = 0, right = m->cols - 1; left < right; left++, right--) {
            const int64_t a = index_of(m, row, left), b = index_of(m, row, right);
            const uint64_t bits = element_bits(m->data, m->dtype, a);
            element_set_bits(m->data, m->dtype, a, element_bits(m->data, m->dtype, b));
            element_set_bits(m->data, m->dtype, b, bits);
        }
    }
}

static void fill(const matrix *m, const golden_case *c, uint64_t seed) {
    double *const row = room_for(c->cols, NAPIER_F64);
    for (int64_t i = 0; i < c->rows; i++) {
        row_fill(kind_of(c, i), seed + (uint64_t)i, m->dtype, row, m->cols);
        for (int64_t j = 0; j < m->cols; j++) {
            element_set(m->data, m->dtype, index_of(m, i, j), row[j]);
        }
    }
    free(row);
}

/* FNV-1a over the elements' bytes, least significant first, row by row. */
static const uint64_t fnv_basis = 0xcbf29ce484222325u, fnv_prime = 0x100000001b3u;

static uint64_t hash_value(uint64_t hash, uint64_t bits, size_t size) {
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (bits >> (8 * i) & 0xff)) * fnv_prime;
    }
    return hash;
}

static uint64_t hash_matrix(uint64_t hash, const matrix *m) {
    for (int64_t i = 0; i < m->rows; i++) {
        for (int64_t j = 0; j < m->cols; j++) {
            hash = hash_value(hash, element_bits(m->data, m->dtype, index_of(m, i, j)), napier_dtype_size(m->dtype));
        }
    }
    return hash;
}

/* One row in three states, which meet in the order last + middle, first + both. */
static napier_status run_state(napier_context *context, const golden_case *c, const matrix *in, const matrix *out,
                               int64_t row, uint64_t *bytes_hash) {
    const size_t in_size = napier_dtype_size(c->in), out_size = napier_dtype_size(c->out);
    const int64_t n = c->cols, cut[4] = {0, n / 3, n / 3 + n / 2, n};
    const unsigned char *const x = (const unsigned char *)in->data + (size_t)(row * n) * in_size;
    const napier_dtype compute = compute_dtype(c->in, c->out);
    napier_softmax_state *s[3] = {NULL, NULL, NULL};
    napier_status status = NAPIER_OK;
    for (int p = 0; p < 3 && status == NAPIER_OK; p++) {
        status = napier_softmax_state_create(context, compute, cut[p], NULL, &s[p]);
        if (status == NAPIER_OK) {
            status = napier_softmax_state_update(
                context, s[p], napier_const_array(x + (size_t)cut[p] * in_size, cut[p + 1] - cut[p], c->in));
        }
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_merge(context, s[2], s[1]);
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_merge(context, s[0], s[2]);
    }
    if (status == NAPIER_OK && c->op == STATE_BYTES) {
        const size_t size = napier_softmax_state_size(s[0]);
        unsigned char *const bytes = room_for((int64_t)size, NAPIER_F64);
        status = napier_softmax_state_save(context, s[0], bytes, size);
        for (size_t i = 0; i < size; i++) {
            *bytes_hash = hash_value(*bytes_hash, bytes[i], 1);
        }
        free(bytes);
    } else if (status == NAPIER_OK) {
        status = napier_softmax_state_finish(context, s[0], NULL);
        if (status == NAPIER_OK) {
            status = napier_softmax_state_apply(
                context, s[0], c->op == STATE_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX,
                napier_const_array(x, n, c->in),
                napier_array((unsigned char *)out->data + (size_t)(row * n) * out_size, n, c->out));
        }
    }
    for (int p = 0; p < 3; p++) {
        napier_softmax_state_destroy(s[p]);
    }
    return status;
}

/* Results and signs in two columns. */
static napier_status run_weighted(napier_context *context, const matrix *in, const matrix *weights, const matrix *out) {
    const napier_vector lse = {out->data, out->rows, 2, out->dtype};
    const napier_vector sign = {(char *)out->data + napier_dtype_size(out->dtype), out->rows, 2, out->dtype};
    return napier_logsumexp_weighted(context, napier_read_only(view_of(in)), napier_read_only(view_of(weights)), lse,
                                     sign, NULL);
}

/* The second input of a gradient: a matrix or a column of ordinary numbers. */
static napier_status run_gradient(napier_context *context, const golden_case *c, const matrix *in, const matrix *out,
                                  const matrix *grad, const napier_softmax_options *options) {
    const napier_const_matrix first = napier_read_only(view_of(in)), second = napier_read_only(view_of(grad));
    const napier_const_vector column = napier_const_array(grad->data, grad->rows, grad->dtype);
    napier_status status = NAPIER_OK;
    switch (c->op) {
    case SOFTMAX_BACKWARD:
        status = napier_softmax(context, first, view_of(in), options);
        return status ? status : napier_softmax_backward(context, first, second, view_of(out), options);
    case LOG_SOFTMAX_BACKWARD:
        status = napier_log_softmax(context, first, view_of(in), options);
        return status ? status : napier_log_softmax_backward(context, first, second, view_of(out), options);
    case SPARSEMAX_BACKWARD:
        status = napier_sparsemax(context, first, view_of(in), options);
        return status ? status : napier_sparsemax_backward(context, first, second, view_of(out), options);
    case LOGSUMEXP_BACKWARD: return napier_logsumexp_backward(context, first, column, view_of(out), options);
    default: return napier_logsumexp_all_backward(context, first, column, view_of(out), options);
    }
}

static napier_status run_forward(napier_context *context, const golden_case *c, const matrix *in, const matrix *out,
                                 const napier_softmax_options *options) {
    const napier_const_matrix logits = napier_read_only(view_of(in));
    const napier_vector lse = napier_array(out->data, out->rows, out->dtype);
    switch (c->op) {
    case SOFTMAX:
    case SOFTMAX_WARM:
    case SOFTMAX_FIRST_AXIS: return napier_softmax(context, logits, view_of(out), options);
    case LOG_SOFTMAX:
    case LOG_SOFTMAX_WARM:
    case LOG_SOFTMAX_FIRST_AXIS: return napier_log_softmax(context, logits, view_of(out), options);
    case SPARSEMAX: return napier_sparsemax(context, logits, view_of(out), options);
    case LOGSUMEXP_ALL: return napier_logsumexp_all(context, logits, lse, options);
    default: return napier_logsumexp(context, logits, lse, options);
    }
}

static uint64_t run_case(napier_context *context, const golden_case *c, bool scramble) {
    const bool reduces = c->op == LOGSUMEXP || c->op == LOGSUMEXP_WARM || c->op == LOGSUMEXP_FIRST_AXIS;
    const bool first_axis = is_first_axis(c->op), column = c->op == LOGSUMEXP_BACKWARD;
    const bool all_backward = c->op == LOGSUMEXP_ALL_BACKWARD, one = c->op == LOGSUMEXP_ALL;
    const matrix in = matrix_make(c->rows, c->cols, c->in, first_axis);
    const bool weighted = c->op == LOGSUMEXP_WEIGHTED;
    const int64_t out_cols = weighted ? 2 : one || reduces ? 1 : c->cols;
    const matrix out = matrix_make(one ? 1 : c->rows, out_cols, c->out, first_axis && !reduces);
    const matrix grad = matrix_make(all_backward ? 1 : c->rows, column || all_backward ? 1 : c->cols, c->in, false);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.temperature = is_warm(c->op) ? 0.7 : 1.0;
    options.masked_rows = c->seed % 2 ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
    fill(&in, c, c->seed);
    if (is_gradient(c->op) || weighted) {
        rng r = rng_make(c->seed);
        for (int64_t i = 0; i < grad.rows * grad.cols; i++) {
            element_set(grad.data, grad.dtype, i, rng_normal(&r));
        }
    }
    if (scramble) {
        turn_round(&in);
        turn_round(&grad);
    }
    uint64_t hash = fnv_basis;
    napier_status status = NAPIER_OK;
    if (is_state(c->op)) {
        for (int64_t row = 0; row < c->rows && status == NAPIER_OK; row++) {
            status = run_state(context, c, &in, &out, row, &hash);
        }
    } else if (weighted) {
        status = run_weighted(context, &in, &grad, &out);
    } else if (is_gradient(c->op)) {
        status = run_gradient(context, c, &in, &out, &grad, &options);
    } else {
        status = run_forward(context, c, &in, &out, &options);
    }
    if (status != NAPIER_OK) {
        give_up(op_names[c->op], napier_last_error(context));
    }
    if (scramble) {
        turn_round(&out);
    }
    hash = hash_matrix(hash, &out);
    free(in.data);
    free(out.data);
    free(grad.data);
    return hash;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

enum { LINE = 160 };

/* What identifies a case in its line. */
static void describe(const golden_case *c, char text[LINE]) {
    snprintf(text, LINE, "%s %s %s %" PRId64 "x%" PRId64 " %" PRIu64, op_names[c->op], napier_dtype_name(c->in),
             napier_dtype_name(c->out), c->rows, c->cols, c->seed);
}

typedef struct table {
    const setting *how;
    napier_context *context;
    FILE *file;
    int64_t lines, checked, wrong;
} table;

static void write_line(void *argument, const golden_case *c) {
    table *const t = argument;
    char text[LINE];
    describe(c, text);
    fprintf(t->file, "%s %016" PRIx64 "\n", text, run_case(t->context, c, t->how->scramble));
    t->lines++;
}

/* The next line that is no comment; false at the end. */
static bool next_line(FILE *file, char line[LINE]) {
    while (fgets(line, LINE, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '#' && line[0] != '\0') {
            return true;
        }
    }
    return false;
}

static void check_line(void *argument, const golden_case *c) {
    enum { SHOWN = 20 };
    table *const t = argument;
    char text[LINE], line[LINE], wanted[LINE + 20];
    describe(c, text);
    if (!next_line(t->file, line)) {
        give_up("the table ends before", text);
    }
    const size_t length = strlen(text);
    if (strncmp(line, text, length) != 0 || line[length] != ' ') {
        fprintf(stderr, "golden: the table has \"%s\"\n", line);
        give_up("where it should have", text);
    }
    t->lines++;
    if (t->how->quick && !is_quick(c)) {
        return;
    }
    const uint64_t hash = run_case(t->context, c, t->how->scramble);
    snprintf(wanted, sizeof wanted, "%s %016" PRIx64, text, hash);
    t->checked++;
    if (strcmp(line, wanted) != 0 && t->wrong++ < SHOWN) {
        printf("%s: %016" PRIx64 ", the table has%s\n", text, hash, line + length);
    }
}

static void check_version(FILE *file) {
    char line[LINE];
    int version;
    if (!fgets(line, sizeof line, file) || sscanf(line, "# numerics version %d", &version) != 1) {
        give_up("the table does not begin with", "\"# numerics version\"");
    }
    if (version != napier_numerics_version()) {
        give_up("the table is of numerics version", line + strlen("# numerics version "));
    }
}

static int check_table(table *t) {
    char line[LINE];
    t->file = fopen(t->how->check, "r");
    if (!t->file) {
        give_up("cannot read", t->how->check);
    }
    check_version(t->file);
    visit_all(check_line, t);
    if (next_line(t->file, line)) {
        give_up("the table has more lines than there are cases:", line);
    }
    fclose(t->file);
    printf("golden: %s, %d threads%s: %" PRId64 " of %" PRId64 " lines checked, %" PRId64 " differ\n",
           napier_isa_name(napier_context_isa(t->context)), napier_context_threads(t->context),
           t->how->scramble ? ", scrambled" : "", t->checked, t->lines, t->wrong);
    return t->wrong != 0;
}

static int write_table(table *t) {
    t->file = fopen(t->how->write, "w");
    if (!t->file) {
        give_up("cannot write", t->how->write);
    }
    fprintf(t->file, "# numerics version %d\n", napier_numerics_version());
    fprintf(t->file,
            "# op dtype_in dtype_out shape seed hash; written by `golden --write`, checked by `golden --check`\n");
    visit_all(write_line, t);
    if (fclose(t->file)) {
        give_up("cannot write", t->how->write);
    }
    printf("golden: %" PRId64 " lines written\n", t->lines);
    return 0;
}

static napier_isa isa_named(const char *name) {
    for (int isa = NAPIER_ISA_AUTO; isa <= NAPIER_ISA_AVX512; isa++) {
        if (strcmp(name, napier_isa_name((napier_isa)isa)) == 0) {
            return (napier_isa)isa;
        }
    }
    give_up("no instruction set is called", name);
}

static setting parse(int count, char **words) {
    setting s = {NAPIER_ISA_AUTO, 1, false, false, NULL, NULL};
    for (int i = 1; i < count; i++) {
        const bool more = i + 1 < count;
        if (strcmp(words[i], "--quick") == 0) {
            s.quick = true;
        } else if (strcmp(words[i], "--scramble") == 0) {
            s.scramble = true;
        } else if (strcmp(words[i], "--isa") == 0 && more) {
            s.isa = isa_named(words[++i]);
        } else if (strcmp(words[i], "--threads") == 0 && more) {
            s.threads = atoi(words[++i]);
        } else if (strcmp(words[i], "--check") == 0 && more) {
            s.check = words[++i];
        } else if (strcmp(words[i], "--write") == 0 && more) {
            s.write = words[++i];
        } else {
            give_up("unknown or incomplete argument", words[i]);
        }
    }
    if (!s.check == !s.write) {
        give_up("say either --check FILE", "or --write FILE");
    }
    return s;
}

int main(int count, char **words) {
    const setting how = parse(count, words);
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.highest_isa = how.isa;
    options.threads = how.threads;
    table t = {&how, NULL, NULL, 0, 0, 0};
    const napier_status status = napier_context_create(&t.context, &options);
    if (status == NAPIER_UNSUPPORTED) {
        printf("golden: skipped, this machine cannot run %s\n", napier_isa_name(how.isa));
        return 77;
    }
    if (status != NAPIER_OK) {
        give_up("no context:", napier_status_string(status));
    }
    const int result = how.check ? check_table(&t) : write_table(&t);
    napier_context_destroy(t.context);
    return result;
}
