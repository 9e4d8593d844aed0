/* golden - the bits of softmax, log_softmax, logsumexp, sparsemax and logcumsumexp, their gradients and states, against a committed table
 * (support/golden_table.h). A line is `op dtype_in dtype_out ROWSxCOLS seed hash`, for rows made from the seed.
 *
 * --scramble hands each row to the library back to front and turns the result round again: the same values in another
 * order of summation. Its check must fail; that shows that the table sees the order. */
#include <inttypes.h>
#include <napier/logcumsumexp.h>
#include <napier/sparsemax.h>
#include <stdbool.h>
#include <stdio.h>

#include "golden_numbers.h"
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
    LOGCUMSUMEXP,
    LOGCUMSUMEXP_BACKWARD,
    LOGCUMSUMEXP_TANGENT,
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
                                                 "sparsemax_backward",
                                                 "logcumsumexp",
                                                 "logcumsumexp_backward",
                                                 "logcumsumexp_tangent"};

typedef struct golden_case {
    golden_op op;
    napier_dtype in, out;
    int64_t rows, cols;
    uint64_t seed;
    bool zeros; /* all rows are of ROW_SIGNED_ZEROS */
} golden_case;

/* ---- One case ---------------------------------------------------------------------------------------------------- */

static bool is_state(golden_op op) { return op >= STATE_SOFTMAX && op <= STATE_BYTES; }
static bool is_gradient(golden_op op) {
    return (op >= SOFTMAX_BACKWARD && op <= LOGSUMEXP_ALL_BACKWARD) || op == SPARSEMAX_BACKWARD ||
           op == LOGCUMSUMEXP_BACKWARD || op == LOGCUMSUMEXP_TANGENT;
}
static bool is_first_axis(golden_op op) { return op >= SOFTMAX_FIRST_AXIS && op <= LOGSUMEXP_FIRST_AXIS; }
static bool is_warm(golden_op op) { return (op >= SOFTMAX_WARM && op <= LOGSUMEXP_WARM) || is_gradient(op); }

/* The n-th row of a case: all kinds in turn, but for the one that needs libm. The gradients' inputs are results of
 * ordinary rows, and single rows are ordinary or rising: what a long row should be. */
static row_kind kind_of(const golden_case *c, int64_t row) {
    if (c->zeros) {
        return ROW_SIGNED_ZEROS;
    }
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
    return (matrix){golden_room(rows * cols, napier_dtype_size(dtype)), rows, cols, dtype, column_major};
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
    double *const row = golden_room(c->cols, sizeof *row);
    for (int64_t i = 0; i < c->rows; i++) {
        row_fill(kind_of(c, i), seed + (uint64_t)i, m->dtype, row, m->cols);
        for (int64_t j = 0; j < m->cols; j++) {
            element_set(m->data, m->dtype, index_of(m, i, j), row[j]);
        }
    }
}

static uint64_t hash_matrix(uint64_t hash, const matrix *m) {
    for (int64_t i = 0; i < m->rows; i++) {
        for (int64_t j = 0; j < m->cols; j++) {
            hash = golden_hash(hash, element_bits(m->data, m->dtype, index_of(m, i, j)), napier_dtype_size(m->dtype));
        }
    }
    return hash;
}

/* One row in three states, which meet in the order last + middle, first + both. */
static void run_state(const golden_case *c, const matrix *in, const matrix *out, int64_t row, uint64_t *bytes_hash) {
    const size_t in_size = napier_dtype_size(c->in), out_size = napier_dtype_size(c->out);
    const int64_t n = c->cols, cut[4] = {0, n / 3, n / 3 + n / 2, n};
    const unsigned char *const x = (const unsigned char *)in->data + (size_t)(row * n) * in_size;
    unsigned char *const y = (unsigned char *)out->data + (size_t)(row * n) * out_size;
    napier_softmax_state *s[3];
    for (int p = 0; p < 3; p++) {
        const napier_const_vector part = napier_const_array(x + (size_t)cut[p] * in_size, cut[p + 1] - cut[p], c->in);
        golden_demand(napier_softmax_state_create(golden_context, compute_dtype(c->in, c->out), cut[p], NULL, &s[p]));
        golden_demand(napier_softmax_state_update(golden_context, s[p], part));
    }
    golden_demand(napier_softmax_state_merge(golden_context, s[2], s[1]));
    golden_demand(napier_softmax_state_merge(golden_context, s[0], s[2]));
    if (c->op == STATE_BYTES) {
        const size_t size = napier_softmax_state_size(s[0]);
        unsigned char *const bytes = golden_room((int64_t)size, 1);
        golden_demand(napier_softmax_state_to_bytes(golden_context, s[0], bytes, size));
        for (size_t i = 0; i < size; i++) {
            *bytes_hash = golden_hash(*bytes_hash, bytes[i], 1);
        }
    } else {
        golden_demand(napier_softmax_state_finish(golden_context, s[0], NULL));
        golden_demand(napier_softmax_state_apply(golden_context, s[0],
                                                 c->op == STATE_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX,
                                                 napier_const_array(x, n, c->in), napier_array(y, n, c->out)));
    }
    for (int p = 0; p < 3; p++) {
        napier_softmax_state_destroy(s[p]);
    }
}

/* Results and signs in two columns. */
static napier_status run_weighted(const matrix *in, const matrix *weights, const matrix *out) {
    const napier_vector lse = {out->data, out->rows, 2, out->dtype};
    const napier_vector sign = {(char *)out->data + napier_dtype_size(out->dtype), out->rows, 2, out->dtype};
    return napier_logsumexp_weighted(golden_context, napier_read_only(view_of(in)), napier_read_only(view_of(weights)),
                                     lse, sign, NULL);
}

/* The second input of a gradient: a matrix or a column of ordinary numbers. */
static napier_status run_gradient(const golden_case *c, const matrix *in, const matrix *out, const matrix *grad,
                                  const napier_softmax_options *options) {
    const napier_const_matrix first = napier_read_only(view_of(in)), second = napier_read_only(view_of(grad));
    const napier_const_vector column = napier_const_array(grad->data, grad->rows, grad->dtype);
    napier_status status = NAPIER_OK;
    switch (c->op) {
    case SOFTMAX_BACKWARD:
        status = napier_softmax(golden_context, first, view_of(in), options);
        return status ? status : napier_softmax_backward(golden_context, first, second, view_of(out), options);
    case LOG_SOFTMAX_BACKWARD:
        status = napier_log_softmax(golden_context, first, view_of(in), options);
        return status ? status : napier_log_softmax_backward(golden_context, first, second, view_of(out), options);
    case SPARSEMAX_BACKWARD:
        status = napier_sparsemax(golden_context, first, view_of(in), options);
        return status ? status : napier_sparsemax_backward(golden_context, first, second, view_of(out), options);
    case LOGCUMSUMEXP_BACKWARD:
        return napier_logcumsumexp_backward(golden_context, first, second, view_of(out), options);
    case LOGCUMSUMEXP_TANGENT: return napier_logcumsumexp_tangent(golden_context, first, second, view_of(out), options);
    case LOGSUMEXP_BACKWARD: return napier_logsumexp_backward(golden_context, first, column, view_of(out), options);
    default: return napier_logsumexp_all_backward(golden_context, first, column, view_of(out), options);
    }
}

static napier_status run_forward(const golden_case *c, const matrix *in, const matrix *out,
                                 const napier_softmax_options *options) {
    const napier_const_matrix logits = napier_read_only(view_of(in));
    const napier_vector lse = napier_array(out->data, out->rows, out->dtype);
    switch (c->op) {
    case SOFTMAX:
    case SOFTMAX_WARM:
    case SOFTMAX_FIRST_AXIS: return napier_softmax(golden_context, logits, view_of(out), options);
    case LOG_SOFTMAX:
    case LOG_SOFTMAX_WARM:
    case LOG_SOFTMAX_FIRST_AXIS: return napier_log_softmax(golden_context, logits, view_of(out), options);
    case SPARSEMAX: return napier_sparsemax(golden_context, logits, view_of(out), options);
    case LOGCUMSUMEXP: return napier_logcumsumexp(golden_context, logits, view_of(out), options);
    case LOGSUMEXP_ALL: return napier_logsumexp_all(golden_context, logits, lse, options);
    default: return napier_logsumexp(golden_context, logits, lse, options);
    }
}

static uint64_t run_case(const golden_case *c) {
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
    if (golden_scramble) {
        turn_round(&in);
        turn_round(&grad);
    }
    uint64_t hash = GOLDEN_BASIS;
    napier_status status = NAPIER_OK;
    if (is_state(c->op)) {
        for (int64_t row = 0; row < c->rows; row++) {
            run_state(c, &in, &out, row, &hash);
        }
    } else if (weighted) {
        status = run_weighted(&in, &grad, &out);
    } else if (is_gradient(c->op)) {
        status = run_gradient(c, &in, &out, &grad, &options);
    } else {
        status = run_forward(c, &in, &out, &options);
    }
    golden_demand(status);
    if (golden_scramble) {
        turn_round(&out);
    }
    hash = hash_matrix(hash, &out);
    return hash;
}

/* ---- The cases --------------------------------------------------------------------------------------------------- */

static int quick_only;

static void check_case(const golden_case *c) {
    if (!quick_only || c->rows * c->cols <= 25000) {
        golden_line(run_case(c), "%s%s %s %s %" PRId64 "x%" PRId64 " %" PRIu64, op_names[c->op],
                    c->zeros ? ":zeros" : "", napier_dtype_name(c->in), napier_dtype_name(c->out), c->rows, c->cols,
                    c->seed);
        golden_release();
    }
}

static void check(golden_op op, napier_dtype in, napier_dtype out, int64_t rows, int64_t cols) {
    check_case(&(golden_case){op, in, out, rows, cols, (uint64_t)cols * 7 + (uint64_t)op, false});
}

/* -0 and +0 are one value: every operation on rows of zeros of both signs. */
static void check_zeros(void) {
    static const int64_t cols[] = {3, 8, 16, 50, 1100};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (golden_op op = SOFTMAX; op < GOLDEN_OPS; op++) {
            const napier_dtype other = dtypes[(i + (size_t)op) % 3 + 1];
            check_case(&(golden_case){op, NAPIER_F32, NAPIER_F32, 20, cols[i], (uint64_t)op, true});
            check_case(&(golden_case){op, other, other, 20, cols[i], (uint64_t)op, true});
        }
    }
}

/* 1 to 48 columns: the kernels that hold 16 rows at a time. */
static void check_tiny(void) {
    for (int64_t cols = 1; cols <= 48; cols++) {
        for (golden_op op = SOFTMAX; op <= LOGSUMEXP; op++) {
            check(op, NAPIER_F32, NAPIER_F32, 37, cols);
        }
    }
}

static void check_dtypes(void) {
    static const int64_t cols[] = {5, 50, 100, 1000, 1024, 1025, 4100};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const napier_dtype in = all_dtypes[d / DTYPE_COUNT], out = all_dtypes[d % DTYPE_COUNT];
            for (golden_op op = SOFTMAX; op <= LOGSUMEXP; op++) {
                if (in == out || cols[i] == 50 || cols[i] == 1025) {
                    check(op, in, out, 20, cols[i]);
                }
            }
        }
    }
}

/* Every other operation at sizes below, at and above a tile. */
static void check_operations(void) {
    static const int64_t cols[] = {3, 17, 50, 1000, 1024, 2500};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F64};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (golden_op op = LOGSUMEXP_ALL; op < GOLDEN_OPS; op++) {
                check(op, dtypes[d], dtypes[d], 20, cols[i]);
            }
        }
    }
    check(SOFTMAX_FIRST_AXIS, NAPIER_F32, NAPIER_F32, 300, 257);
    check(LOGSUMEXP_FIRST_AXIS, NAPIER_BF16, NAPIER_F32, 300, 257);
}

static void check_long(void) {
    static const int64_t cols[] = {50257, 151936};
    for (size_t i = 0; i < 2; i++) {
        for (golden_op op = SOFTMAX; op <= LOGSUMEXP; op++) {
            check(op, NAPIER_F32, NAPIER_F32, 3, cols[i]);
            check(op, NAPIER_BF16, NAPIER_BF16, 2, cols[i]);
        }
    }
    check(STATE_SOFTMAX, NAPIER_F32, NAPIER_F32, 1, 151936);
    check(STATE_BYTES, NAPIER_F32, NAPIER_F32, 1, 151936);
    check(SOFTMAX, NAPIER_F64, NAPIER_F64, 1, 50257);
    check(SPARSEMAX, NAPIER_F32, NAPIER_F32, 3, 151936);
    for (golden_op op = SOFTMAX; op <= LOGSUMEXP_ALL; op++) {
        check(op, NAPIER_F32, NAPIER_F32, 1, 1000000);
    }
    check(LOGSUMEXP_ALL, NAPIER_F32, NAPIER_F32, 1000, 1000);
}

static void all_cases(int quick) {
    quick_only = quick;
    golden_version();
    check_tiny();
    check_dtypes();
    check_operations();
    check_long();
    check_zeros();
}

int main(int count, char **words) { return golden_main("golden", count, words, all_cases); }
