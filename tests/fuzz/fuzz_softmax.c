/* fuzz_softmax - any call of the eight operations: shapes, strides, dtypes, options, data, and nonsense among them.
 * What must hold: the status is right; a refused call writes nothing; only the result's elements are written; every
 * instruction set, thread count and algorithm gives the same bytes; no log-probability is positive, no probability lies
 * outside [0, 1]. Buffers have exactly the bytes a view covers, so that a sanitizer sees any step beside them. */
#include <math.h>

#include "fuzz.h"
#include "support/formats.h"

enum { MOST_ELEMENTS = 6000, POISON = 0xa5 };

typedef enum operation {
    SOFTMAX,
    LOG_SOFTMAX,
    LOGSUMEXP,
    LOGSUMEXP_ALL,
    SOFTMAX_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    LOGSUMEXP_BACKWARD,
    LOGSUMEXP_ALL_BACKWARD,
    OPERATIONS
} operation;

/* A view and the exact memory under it. */
typedef struct room {
    napier_matrix view;
    void *memory;
    size_t bytes;
} room;

typedef struct call {
    operation op;
    room in, in2, out;
    napier_softmax_options options;
    const napier_softmax_options *given;
} call;

static bool has_result_matrix(operation op) { return op != LOGSUMEXP && op != LOGSUMEXP_ALL; }

static napier_dtype take_dtype(input *in) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    const unsigned choice = take(in);
    return choice == 255 ? (napier_dtype)5 : dtypes[choice % 5];
}

static bool is_dtype(napier_dtype dtype) { return napier_dtype_size(dtype) != 0; }

/* Strides of a few sorts: by rows, by columns, either with gaps and signs, or anything small. */
static void take_strides(input *in, napier_matrix *v) {
    const int64_t gap = take_below(in, 3), sign = take(in) & 1 ? -1 : 1, step = 1 + take_below(in, 3);
    switch (take(in) % 4) {
    case 0:
        v->row_stride = v->cols;
        v->col_stride = 1;
        break;
    case 1:
        v->row_stride = sign * (v->cols * step + gap);
        v->col_stride = step;
        break;
    case 2:
        v->row_stride = step;
        v->col_stride = sign * (v->rows * step + gap);
        break;
    default:
        v->row_stride = take_within(in, 20);
        v->col_stride = take_within(in, 3);
        break;
    }
}

/* Memory for the view, its first byte the lowest byte of any element (alignment of malloc), and data where it must be. */
static void make_room(room *r) {
    napier_matrix *const v = &r->view;
    const size_t size = napier_dtype_size(v->dtype) ? napier_dtype_size(v->dtype) : 4;
    const int64_t rows = v->rows > 0 ? v->rows - 1 : 0, cols = v->cols > 0 ? v->cols - 1 : 0;
    const int64_t a = rows * v->row_stride, b = cols * v->col_stride;
    const int64_t low = (a < 0 ? a : 0) + (b < 0 ? b : 0), high = (a > 0 ? a : 0) + (b > 0 ? b : 0);
    const bool none = v->rows <= 0 || v->cols <= 0;
    r->bytes = none ? 0 : (size_t)(high - low + 1) * size;
    r->memory = fuzz_allocate(r->bytes);
    memset(r->memory, POISON, r->bytes);
    v->data = none ? NULL : (char *)r->memory - low * (int64_t)size;
}

static void *at(const room *r, int64_t i, int64_t j) {
    return (char *)r->view.data +
           (i * r->view.row_stride + j * r->view.col_stride) * (int64_t)napier_dtype_size(r->view.dtype);
}

static void take_room(input *in, room *r, int64_t rows, int64_t cols) {
    r->view.rows = rows;
    r->view.cols = cols;
    r->view.dtype = take_dtype(in);
    take_strides(in, &r->view);
    make_room(r);
}

static void fill_room(input *in, room *r) {
    if (is_dtype(r->view.dtype) && r->view.rows > 0 && r->view.cols > 0) {
        fuzz_elements(in, r->view.dtype, r->memory, (int64_t)(r->bytes / napier_dtype_size(r->view.dtype)));
    }
}

/* The bytes of elements, marked; the caller frees them. */
static unsigned char *visits_of(const room *r, bool *twice) {
    const napier_matrix *const v = &r->view;
    unsigned char *const visits = fuzz_allocate(r->bytes);
    memset(visits, 0, r->bytes);
    *twice = fuzz_visit(v->data, v->dtype, (const int64_t[]){1, v->rows, v->cols},
                        (const int64_t[]){0, v->row_stride, v->col_stride}, r->memory, visits);
    return visits;
}

static bool meets_itself(const room *r) {
    bool twice;
    free(visits_of(r, &twice));
    return twice;
}

static void take_options(input *in, call *c) {
    static const double temperatures[] = {1.0, 1.0, 0.5, 0.7, 3.0, 1e-30, 1e30};
    const napier_softmax_options defaults = NAPIER_SOFTMAX_OPTIONS_INIT;
    const unsigned choice = take(in);
    c->options = defaults;
    c->given = choice % 4 == 0 ? NULL : &c->options;
    c->options.masked_rows = (napier_masked_rows)(take(in) % 2);
    c->options.temperature = temperatures[take(in) % 7];
    switch (choice / 4) {
    case 1: c->options.masked_rows = (napier_masked_rows)2; break;
    case 2: c->options.algorithm = (napier_algorithm)4; break;
    case 3: c->options.struct_size = 3; break;
    case 4: {
        const uint64_t bits = take_bytes(in, 8);
        memcpy(&c->options.temperature, &bits, sizeof bits);
        break;
    }
    default: break;
    }
}

static napier_status run(napier_context *context, const call *c) {
    const napier_const_matrix in = napier_read_only(c->in.view), in2 = napier_read_only(c->in2.view);
    const napier_matrix out = c->out.view;
    const napier_vector lse = {out.data, out.rows, out.row_stride, out.dtype};
    const napier_const_vector grad = {in2.data, in2.rows, in2.row_stride, in2.dtype};
    switch (c->op) {
    case SOFTMAX: return napier_softmax(context, in, out, c->given);
    case LOG_SOFTMAX: return napier_log_softmax(context, in, out, c->given);
    case LOGSUMEXP: return napier_logsumexp(context, in, lse, c->given);
    case LOGSUMEXP_ALL: return napier_logsumexp_all(context, in, lse, c->given);
    case SOFTMAX_BACKWARD: return napier_softmax_backward(context, in, in2, out, c->given);
    case LOG_SOFTMAX_BACKWARD: return napier_log_softmax_backward(context, in, in2, out, c->given);
    case LOGSUMEXP_BACKWARD: return napier_logsumexp_backward(context, in, grad, out, c->given);
    case LOGSUMEXP_ALL_BACKWARD: return napier_logsumexp_all_backward(context, in, grad, out, c->given);
    case OPERATIONS: break;
    }
    return NAPIER_OK;
}

static bool temperature_good(double t, bool f64) {
    const double rounded = f64 ? t : (double)(float)t;
    return isfinite(t) && t > 0 && isfinite(rounded) && rounded > 0;
}

/* What the documentation says of the arguments. The gradients use only temperature: their verdict on the other options is
 * left open. */
static bool must_refuse(const call *c, bool *open) {
    const bool backward = c->op >= SOFTMAX_BACKWARD;
    const napier_dtype in = c->in.view.dtype, in2 = c->in2.view.dtype, out = c->out.view.dtype;
    if (!is_dtype(in) || !is_dtype(out) || (backward && !is_dtype(in2))) {
        return true;
    }
    if (meets_itself(&c->out)) {
        return true;
    }
    if (!c->given) {
        return false;
    }
    const bool f64 = in == NAPIER_F64 || out == NAPIER_F64 || (backward && in2 == NAPIER_F64);
    if (c->options.struct_size == 3 || !temperature_good(c->options.temperature, f64)) {
        return true;
    }
    const bool odd = (unsigned)c->options.algorithm > 3 || (unsigned)c->options.masked_rows > 1;
    *open = odd && (backward || c->op >= LOGSUMEXP);
    return odd;
}

static void check_gaps(const room *out) {
    bool twice;
    unsigned char *const visits = visits_of(out, &twice);
    for (size_t b = 0; b < out->bytes; b++) {
        REQUIRE(visits[b] || ((unsigned char *)out->memory)[b] == POISON, "byte %zu beside the result was written", b);
    }
    free(visits);
}

static void check_range(const call *c) {
    const napier_matrix *const v = &c->out.view;
    for (int64_t i = 0; i < v->rows && c->op <= LOG_SOFTMAX; i++) {
        for (int64_t j = 0; j < v->cols; j++) {
            const double value = element_get(at(&c->out, i, j), v->dtype, 0);
            REQUIRE(isnan(value) || (c->op == SOFTMAX ? value >= 0 && value <= 1 : value <= 0), "%a", value);
            REQUIRE(!isnan(value) || element_bits(at(&c->out, i, j), v->dtype, 0) == dtype_canonical_nan(v->dtype),
                    "%llx", (unsigned long long)element_bits(at(&c->out, i, j), v->dtype, 0));
        }
    }
}

/* Repeats the call with each instruction set, thread count and algorithm. */
static void check_everywhere(call *c, const unsigned char *want, napier_status expected) {
    const napier_algorithm given = c->options.algorithm;
    const int algorithms = c->given && (unsigned)given <= 3 && c->op < SOFTMAX_BACKWARD ? 4 : 1;
    for (int isa = NAPIER_ISA_SCALAR; isa < FUZZ_ISAS; isa++) {
        for (int threads = 1; threads <= 3 && napier_isa_available((napier_isa)isa); threads += 2) {
            napier_context *const context = fuzz_context(isa, threads);
            for (int a = 0; a < algorithms; a++) {
                c->options.algorithm = algorithms == 4 ? (napier_algorithm)a : given;
                memset(c->out.memory, POISON, c->out.bytes);
                const napier_status status = run(context, c);
                REQUIRE(status == expected, "%s, %d threads: status %d, not %d: %s", napier_isa_name((napier_isa)isa),
                        threads, (int)status, (int)expected, napier_last_error(context));
                REQUIRE((napier_last_error(context)[0] == 0) == (status == NAPIER_OK), "text of status %d",
                        (int)status);
                REQUIRE(memcmp(want, c->out.memory, c->out.bytes) == 0,
                        "op %d, %s, %d threads, algorithm %d: other bytes", (int)c->op,
                        napier_isa_name((napier_isa)isa), threads, a);
            }
        }
    }
    c->options.algorithm = given;
}

/* In place: the same result over a copy of the input. */
static void check_in_place(call *c, napier_status expected) {
    if (c->op > LOG_SOFTMAX || expected != NAPIER_OK || c->in.view.dtype != c->out.view.dtype || meets_itself(&c->in)) {
        return;
    }
    call place = *c;
    place.given = c->given ? &place.options : NULL;
    place.out = c->in;
    REQUIRE(run(fuzz_context(NAPIER_ISA_AUTO, 1), &place) == NAPIER_OK, "in place");
    for (int64_t i = 0; i < c->in.view.rows; i++) {
        for (int64_t j = 0; j < c->in.view.cols; j++) {
            REQUIRE(memcmp(at(&c->in, i, j), at(&c->out, i, j), napier_dtype_size(c->in.view.dtype)) == 0,
                    "in place differs at %lld, %lld", (long long)i, (long long)j);
        }
    }
}

/* Shapes and strides far outside any memory: to be refused before anything is touched. */
static void check_nonsense(input *in, const call *c) {
    static const int64_t huge[] = {INT64_MIN, INT64_MAX, -1, INT64_MAX / 2 + 1, (int64_t)1 << 62, INT64_MIN + 1};
    call wild = *c;
    wild.given = NULL;
    napier_matrix *const v = take(in) & 1 ? &wild.in.view : &wild.out.view;
    const int64_t value = huge[take(in) % 6];
    switch (take(in) % 3) {
    case 0: v->rows = value; break;
    case 1: v->cols = value; break;
    default:
        v->row_stride = v->col_stride = value;
        v->rows = 3;
        break;
    }
    if (!v->data || value == -1) { /* strides of -1 are sane; an empty view may have any */
        v->rows = -1;
    }
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    if (has_result_matrix(c->op) && c->op <= LOG_SOFTMAX) {
        REQUIRE(run(context, &wild) == NAPIER_INVALID_ARGUMENT, "nonsense of %lld was taken", (long long)value);
        REQUIRE(napier_last_error(context)[0], "no text");
    }
}

FUZZ(in) {
    call c;
    memset(&c, 0, sizeof c);
    c.op = (operation)(take(&in) % OPERATIONS);
    const bool nonsense = take(&in) % 16 == 15;
    const int64_t cols = take_below(&in, 2600), most = cols ? MOST_ELEMENTS / cols : 20;
    const int64_t rows = take_below(&in, most > 40 ? 40 : most + 1);
    const bool all = c.op == LOGSUMEXP_ALL || c.op == LOGSUMEXP_ALL_BACKWARD;
    take_options(&in, &c);
    take_room(&in, &c.in, rows, cols);
    take_room(&in, &c.out, c.op == LOGSUMEXP_ALL ? 1 : rows, has_result_matrix(c.op) ? cols : 1);
    if (c.op == SOFTMAX_BACKWARD || c.op == LOG_SOFTMAX_BACKWARD) {
        take_room(&in, &c.in2, rows, cols);
    } else {
        take_room(&in, &c.in2, all ? 1 : rows, 1);
    }
    fill_room(&in, &c.in);
    fill_room(&in, &c.in2);
    bool open = false;
    const bool refuse = must_refuse(&c, &open);
    napier_context *const first = fuzz_context(NAPIER_ISA_SCALAR, 1);
    const napier_status status = run(first, &c);
    REQUIRE(open || (status == NAPIER_OK) == !refuse, "op %d: status %d: %s", (int)c.op, (int)status,
            napier_last_error(first));
    REQUIRE(status == NAPIER_OK || status == NAPIER_INVALID_ARGUMENT, "status %d", (int)status);
    unsigned char *const want = fuzz_allocate(c.out.bytes);
    memcpy(want, c.out.memory, c.out.bytes);
    if (status == NAPIER_OK) {
        check_gaps(&c.out);
        check_range(&c);
    } else {
        for (size_t b = 0; b < c.out.bytes; b++) {
            REQUIRE(want[b] == POISON, "a refused call wrote byte %zu", b);
        }
    }
    check_everywhere(&c, want, status);
    if (nonsense) {
        check_nonsense(&in, &c);
    }
    check_in_place(&c, status);
    free(want);
    free(c.in.memory);
    free(c.in2.memory);
    free(c.out.memory);
}
