/* cli/softmax/reduce.c - reads an array in parts that fit into memory and calls the library on each.
 *
 * An array in C order, reduced along one axis, is [outer][length][inner]: the axes before it, the axis, and the axes
 * after it. A Fortran-ordered array is one in C order with its axes reversed. So its elements are used in their stored
 * order, and the result is Fortran-ordered too. The whole array as one row is [1][count][1].
 *
 * There are two methods, with the same bits:
 *     blocks   as many slices [length][inner] at a time as the buffer holds, at least one. Works from a pipe to a pipe.
 *     states   for a slice that is too large for that: one mergeable state for each of the `inner` rows, filled piece
 *              by piece in a first pass over the slice and applied in a second. If there are too many rows for so many
 *              states, the slice is processed in strips of neighbouring rows. If the buffer holds more whole rows than
 *              there may be states, strips are read as a whole and need no states. */
#include "reduce.h"

#include "io/input.h"
#include "io/output.h"
#include "program/memory.h"
#include "program/message.h"
#include "program/progress.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    operation operation;
    napier_softmax_options options;
    napier_context *context;
    input *in;
    output *out;
    file_format format; /* of the result */
    int64_t buffer;     /* bytes of a block */
    int64_t memory;     /* bytes that an array may take as a whole; for more, slower methods are used */
    int64_t outer;      /* -1: not known; a text that is read to its end */
    int64_t length, inner;
    napier_dtype in_dtype, out_dtype;
    array_shape result;
    progress_line progress;
} job;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool keeps_shape(const job *j) { return j->operation != OPERATION_LOGSUMEXP; }
static int64_t size_of(napier_dtype dtype) { return (int64_t)napier_dtype_size(dtype); }
static int64_t slice_count(const job *j) { return j->length * j->inner; }
/* The number of results of a slice. */
static int64_t slice_results(const job *j) { return keeps_shape(j) ? slice_count(j) : j->inner; }

static const char less_memory[] = "; a smaller --buffer takes less memory";

/* STATUS_OK, or STATUS_FAILED after a message. */
static int check(const job *j, napier_status called) {
    return called == NAPIER_OK ? STATUS_OK
                               : complain("%s: %s%s", j->in->name, error_text(j->context, called),
                                          called == NAPIER_OUT_OF_MEMORY ? less_memory : "");
}

/* Refuses a logit that overflows when it is divided by the temperature: its row would be NaN. */
static int check_quotients(const job *j, const char *elements, int64_t count) {
    const double most = j->in_dtype == NAPIER_F64 || j->out_dtype == NAPIER_F64 ? DBL_MAX : (double)FLT_MAX;
    const double temperature = j->options.temperature;
    const bool look = temperature < 1 && j->operation != OPERATION_LOGSUMEXP;
    for (int64_t i = 0; look && i < count; i++) {
        const double x = element_value(j->in_dtype, elements + i * size_of(j->in_dtype));
        if (x <= DBL_MAX && x / temperature > most) {
            return complain("%s: %g / --temperature %g overflows%s", j->in->name, x, temperature,
                            most < DBL_MAX ? "; --dtype f64 computes in f64" : "");
        }
    }
    return STATUS_OK;
}

static int read_elements(const job *j, void *elements, int64_t count, int64_t *got) {
    return input_read(j->in, elements, count, got) || check_quotients(j, elements, *got);
}

/* ---- The axis, and the shape of the result ----------------------------------------------------------------------- */

/* Reads a text to its end, unless its rows can be processed and written one by one. */
static int settle_text(const job *j, const reduction *r) {
    const int64_t row = j->in->count < 0 ? j->in->shape.dim[1] * size_of(NAPIER_F64) : 0;
    const bool row_by_row = !r->whole && (r->axis == -1 || r->axis == 1) && j->format != FORMAT_NPY && row <= j->buffer;
    return row_by_row ? STATUS_OK : input_load(j->in);
}

/* The axis as an index; a single number has an axis 0, as in PyTorch. */
static int resolve_axis(const job *j, int64_t given, int *axis) {
    const int dims = j->in->shape.dims;
    const int most = dims > 0 ? dims : 1;
    if (given < -most || given >= most) {
        return complain("%s: axis %" PRId64 " is out of bounds for an array of %d dimension%s", j->in->name, given,
                        dims, dims == 1 ? "" : "s");
    }
    *axis = (int)(given < 0 ? given + most : given);
    return STATUS_OK;
}

static void drop_axis(array_shape *shape, int axis) {
    for (int d = axis + 1; d < shape->dims; d++) {
        shape->dim[d - 1] = shape->dim[d];
    }
    shape->dims -= shape->dims > 0;
}

/* Sets outer, length and inner for an axis of the shape, in the order of memory. Rows of a text that are not counted
 * yet, -1, make outer -1. */
static void cut_along(job *j, int axis) {
    const array_shape *const shape = &j->in->shape;
    int64_t before = 1;
    int64_t after = 1;
    for (int d = 0; d < shape->dims; d++) {
        before *= d < axis ? shape->dim[d] : 1;
        after *= d > axis ? shape->dim[d] : 1;
    }
    j->length = shape->dims > 0 ? shape->dim[axis] : 1;
    j->outer = shape->fortran ? after : before;
    j->inner = shape->fortran ? before : after;
}

static int lay_out(job *j, const reduction *r) {
    input *const in = j->in;
    int axis = 0;
    if (settle_text(j, r) || ((r->whole || j->format != FORMAT_NPY) && input_use_c_order(in)) ||
        (!r->whole && resolve_axis(j, r->axis, &axis))) {
        return STATUS_FAILED;
    }
    j->in_dtype = in->dtype;
    j->out_dtype = r->dtype != 0 ? r->dtype : in->dtype;
    j->result = in->shape;
    if (r->whole) {
        j->outer = 1;
        j->length = in->count;
        j->inner = 1;
        j->result.dims = keeps_shape(j) ? j->result.dims : 0;
    } else {
        cut_along(j, axis);
    }
    if (!r->whole && !keeps_shape(j)) {
        drop_axis(&j->result, axis);
    }
    j->result.fortran = j->result.fortran && j->result.dims > 1;
    return STATUS_OK;
}

/* ---- A block of slices in memory --------------------------------------------------------------------------------- */

/* `stride` is that of results which are one number a row. */
static napier_status call(const job *j, napier_const_matrix logits, void *result, int64_t stride) {
    const napier_softmax_options *const options = &j->options;
    if (j->operation == OPERATION_LOGSUMEXP) {
        const napier_vector lse = {result, logits.rows, stride, j->out_dtype};
        return napier_logsumexp(j->context, logits, lse, options);
    }
    const napier_matrix shaped = {result, logits.rows, logits.cols, logits.row_stride, logits.col_stride, j->out_dtype};
    if (j->operation == OPERATION_SPARSEMAX) {
        return napier_sparsemax(j->context, logits, shaped, options);
    }
    return j->operation == OPERATION_SOFTMAX ? napier_softmax(j->context, logits, shaped, options)
                                             : napier_log_softmax(j->context, logits, shaped, options);
}

/* Reduces `slices` slices from `from` to `to`, which may be the same memory. A view has two dimensions and slices have
 * three, so the calls go either slice by slice, or position by position across the slices, whichever makes fewer
 * calls. */
static napier_status reduce_slices(const job *j, const char *from, char *to, int64_t slices) {
    const int64_t in_size = size_of(j->in_dtype);
    const int64_t out_size = size_of(j->out_dtype);
    const int64_t count = slice_count(j);
    napier_status status = NAPIER_OK;
    if (j->inner == 1) {
        return call(j, napier_const_rows(from, slices, j->length, j->in_dtype), to, 1);
    }
    if (slices <= j->inner) {
        for (int64_t s = 0; s < slices && status == NAPIER_OK; s++) {
            const napier_const_matrix slice =
                napier_const_rows(from + s * count * in_size, j->length, j->inner, j->in_dtype);
            status = call(j, napier_const_transposed(slice), to + s * slice_results(j) * out_size, 1);
        }
        return status;
    }
    for (int64_t i = 0; i < j->inner && status == NAPIER_OK; i++) {
        const napier_const_matrix across = {from + i * in_size, slices, j->length, count, j->inner, j->in_dtype};
        status = call(j, across, to + i * out_size, j->inner);
    }
    return status;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

typedef struct block {
    int64_t slices;      /* the most at a time */
    scratch read, write; /* memory for both sides; `write` is empty if results may replace the elements */
    const char *mapped;  /* all elements, if they can be used where they are in the file */
} block;

static int block_new(job *j, block *b) {
    const int64_t size = slice_count(j) * larger(size_of(j->in_dtype), size_of(j->out_dtype));
    const int64_t outer = j->outer >= 0 ? j->outer : INT64_MAX;
    memset(b, 0, sizeof *b);
    b->slices = smaller(outer, larger(1, j->buffer / larger(1, size)));
    if (size > j->buffer && input_arrive(j->in)) {
        return STATUS_FAILED;
    }
    b->mapped = size > j->buffer ? input_map(j->in) : NULL;
    const bool in_place = b->mapped == NULL && keeps_shape(j) && j->in_dtype == j->out_dtype;
    const int64_t read = b->mapped == NULL ? b->slices * slice_count(j) : 0;
    const int64_t write = in_place ? 0 : b->slices * slice_results(j);
    return scratch_new(&b->read, read * size_of(j->in_dtype), less_memory) ||
           scratch_new(&b->write, write * size_of(j->out_dtype), less_memory);
}

static void block_free(block *b) {
    scratch_free(&b->read);
    scratch_free(&b->write);
}

/* Reads the next block's elements: *from, *slices of them (0: the end). */
static int block_read(job *j, block *b, int64_t done, const char **from, int64_t *slices) {
    *slices = j->outer >= 0 ? smaller(b->slices, j->outer - done) : b->slices;
    if (b->mapped != NULL) {
        *from = b->mapped + done * slice_count(j) * size_of(j->in_dtype);
        return check_quotients(j, *from, *slices * slice_count(j));
    }
    *from = b->read.data;
    int64_t got = 0;
    const int status = read_elements(j, b->read.data, *slices * slice_count(j), &got);
    *slices = got / slice_count(j);
    return status;
}

static int run_blocks(job *j) {
    block b;
    int status = block_new(j, &b);
    for (int64_t done = 0; status == STATUS_OK && done != j->outer;) {
        const char *from;
        int64_t slices;
        status = block_read(j, &b, done, &from, &slices);
        if (status != STATUS_OK || slices == 0) {
            break;
        }
        char *const to = b.write.data != NULL ? b.write.data : b.read.data;
        const napier_status called = reduce_slices(j, from, to, slices);
        status = check(j, called) || output_write(j->out, to, slices * slice_results(j));
        progress_add(&j->progress, slices * slice_count(j));
        done += slices;
    }
    block_free(&b);
    return status;
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

enum { MOST_STATES = 1 << 14, LEAST_STATES = 64, STATE_SIZE = 17 << 10 }; /* bytes of a state, at most */

typedef struct states {
    napier_softmax_state **state; /* [most]; one for each row of the strip */
    double *lse;                  /* [most] */
    int64_t most;                 /* rows of a strip */
    bool is_whole;                /* a strip fits the buffer: it needs no states */
    int64_t first, width;         /* the strip: rows first .. first + width - 1 of the slice's `inner` */
    scratch piece, result;        /* `length_at_once` x width elements */
    scratch slice;                /* the results of a whole slice that is computed strip by strip */
    int64_t length_at_once;
} states;

/* The number of rows for which states are allowed. */
static int64_t width_by_states(const job *j) {
    const int64_t fit = j->memory / 8 / STATE_SIZE;
    return smaller(j->inner, smaller(MOST_STATES, larger(LEAST_STATES, fit)));
}

/* The number of rows that fit into the buffer as a whole. */
static int64_t width_by_buffer(const job *j) {
    return j->buffer / larger(size_of(j->in_dtype), size_of(j->out_dtype)) / larger(1, j->length);
}

static int64_t strip_width(const job *j) { return smaller(j->inner, larger(width_by_states(j), width_by_buffer(j))); }

static bool by_strips(const job *j, const states *s) { return s->most < j->inner; }

static int states_new(const job *j, states *s) {
    memset(s, 0, sizeof *s);
    s->most = strip_width(j);
    s->is_whole = s->most > width_by_states(j);
    const int64_t size = s->most * larger(size_of(j->in_dtype), size_of(j->out_dtype));
    s->length_at_once = smaller(j->length, larger(1, j->buffer / size));
    s->state = s->is_whole ? NULL : calloc((size_t)s->most, sizeof(napier_softmax_state *));
    s->lse = s->is_whole ? NULL : calloc((size_t)s->most, sizeof *s->lse);
    if (!s->is_whole && (s->state == NULL || s->lse == NULL)) {
        return complain("%s: out of memory%s", j->in->name, less_memory);
    }
    const int64_t count = s->length_at_once * s->most;
    const int64_t slice = by_strips(j, s) && keeps_shape(j) ? slice_count(j) : 0;
    return scratch_new(&s->piece, count * size_of(j->in_dtype), less_memory) ||
           scratch_new(&s->result, larger(count, s->most) * size_of(j->out_dtype), less_memory) ||
           scratch_new(&s->slice, slice * size_of(j->out_dtype), less_memory);
}

static void states_clear(states *s) {
    for (int64_t i = 0; s->state != NULL && i < s->most; i++) {
        napier_softmax_state_destroy(s->state[i]);
        s->state[i] = NULL;
    }
}

static void states_free(states *s) {
    states_clear(s);
    free(s->state);
    free(s->lse);
    scratch_free(&s->piece);
    scratch_free(&s->result);
    scratch_free(&s->slice);
}

typedef enum state_step { STATE_CREATE, STATE_UPDATE, STATE_FINISH, STATE_APPLY } state_step;

/* Takes one step with the state of row `i` of the strip, of which a piece of `length` elements has been read. */
static napier_status state_take_step(const job *j, const states *s, state_step step, int64_t i, int64_t length) {
    const bool wide = j->in_dtype == NAPIER_F64 || j->out_dtype == NAPIER_F64;
    const napier_softmax_kind kind = j->operation == OPERATION_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX;
    const char *const from = (const char *)s->piece.data + i * size_of(j->in_dtype);
    char *const to = (char *)s->result.data + i * size_of(j->out_dtype);
    const napier_const_vector logits = {from, length, s->width, j->in_dtype};
    const napier_vector result = {to, length, s->width, j->out_dtype};
    switch (step) {
    case STATE_CREATE:
        return napier_softmax_state_create(j->context, wide ? NAPIER_F64 : NAPIER_F32, 0, &j->options, &s->state[i]);
    case STATE_UPDATE: return napier_softmax_state_update(j->context, s->state[i], logits);
    case STATE_FINISH: return napier_softmax_state_finish(j->context, s->state[i], &s->lse[i]);
    case STATE_APPLY: break;
    }
    return napier_softmax_state_apply(j->context, s->state[i], kind, logits, result);
}

static int states_take_step(const job *j, const states *s, state_step step, int64_t length) {
    napier_status status = NAPIER_OK;
    for (int64_t i = 0; i < s->width && status == NAPIER_OK; i++) {
        status = state_take_step(j, s, step, i, length);
    }
    return check(j, status);
}

/* Reads `length` elements of each of the strip's rows, from element `from` of slice `slice` on. */
static int read_piece(job *j, const states *s, int64_t slice, int64_t from, int64_t length) {
    const int64_t size = size_of(j->in_dtype);
    int64_t got = 0;
    if (!by_strips(j, s)) {
        return read_elements(j, s->piece.data, length * j->inner, &got);
    }
    int status = STATUS_OK;
    for (int64_t i = 0; i < length && status == STATUS_OK; i++) {
        status = input_seek(j->in, slice * slice_count(j) + (from + i) * j->inner + s->first) ||
                 read_elements(j, (char *)s->piece.data + i * s->width * size, s->width, &got);
    }
    return status;
}

/* Writes the results of a piece to the output, or to their places in the slice. */
static int write_piece(job *j, const states *s, int64_t from, int64_t length) {
    const int64_t size = size_of(j->out_dtype);
    if (!by_strips(j, s)) {
        return output_write(j->out, s->result.data, length * s->width);
    }
    for (int64_t i = 0; i < length; i++) {
        memcpy((char *)s->slice.data + ((from + i) * j->inner + s->first) * size,
               (const char *)s->result.data + i * s->width * size, (size_t)(s->width * size));
    }
    return STATUS_OK;
}

/* One pass over a strip: fills the states or, if `apply`, computes the results. */
static int states_pass(job *j, states *s, int64_t slice, bool apply) {
    for (int64_t done = 0; done < j->length;) {
        const int64_t length = smaller(s->length_at_once, j->length - done);
        if (read_piece(j, s, slice, done, length) ||
            states_take_step(j, s, apply ? STATE_APPLY : STATE_UPDATE, length) ||
            (apply && write_piece(j, s, done, length))) {
            return STATUS_FAILED;
        }
        progress_add(&j->progress, length * s->width);
        done += length;
    }
    return STATUS_OK;
}

/* A logsumexp is exact in a double, and the logsumexp of one number is that number: this only rounds it. */
static int states_write_lse(job *j, states *s) {
    const napier_status called = napier_logsumexp(j->context, napier_const_rows(s->lse, s->width, 1, NAPIER_F64),
                                                  napier_array(s->result.data, s->width, j->out_dtype), NULL);
    return check(j, called) || output_write(j->out, s->result.data, s->width);
}

static int run_whole_strip(job *j, states *s, int64_t slice) {
    const napier_const_matrix strip = napier_const_rows(s->piece.data, j->length, s->width, j->in_dtype);
    if (read_piece(j, s, slice, 0, j->length) || check(j, call(j, napier_const_transposed(strip), s->result.data, 1))) {
        return STATUS_FAILED;
    }
    progress_add(&j->progress, j->length * s->width * (keeps_shape(j) ? 2 : 1));
    return keeps_shape(j) ? write_piece(j, s, 0, j->length) : output_write(j->out, s->result.data, s->width);
}

static int run_strip(job *j, states *s, int64_t slice) {
    if (s->is_whole) {
        return run_whole_strip(j, s, slice);
    }
    if (states_take_step(j, s, STATE_CREATE, 0) || states_pass(j, s, slice, false) ||
        states_take_step(j, s, STATE_FINISH, 0)) {
        return STATUS_FAILED;
    }
    return keeps_shape(j) ? input_seek(j->in, slice * slice_count(j)) || states_pass(j, s, slice, true)
                          : states_write_lse(j, s);
}

static int run_slice_by_states(job *j, states *s, int64_t slice) {
    int status = STATUS_OK;
    for (s->first = 0; s->first < j->inner && status == STATUS_OK; s->first += s->most) {
        s->width = smaller(s->most, j->inner - s->first);
        status = run_strip(j, s, slice);
        states_clear(s);
    }
    return status == STATUS_OK && s->slice.data != NULL ? output_write(j->out, s->slice.data, slice_count(j)) : status;
}

static int run_states(job *j) {
    states s = {0};
    const bool again = keeps_shape(j) || strip_width(j) < j->inner; /* read more than once, or not in order */
    int status = (again && input_make_seekable(j->in)) || states_new(j, &s);
    for (int64_t slice = 0; slice < j->outer && status == STATUS_OK; slice++) {
        status = run_slice_by_states(j, &s, slice);
    }
    states_free(&s);
    return status;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* A single row uses states as soon as it is larger than the buffer. For several neighbouring rows states are slower
 * than memory, so these use states only if the memory is too small. sparsemax has no states. */
static bool needs_states(const job *j) {
    const int64_t size = larger(size_of(j->in_dtype), size_of(j->out_dtype));
    if (j->operation == OPERATION_SPARSEMAX || j->outer < 0 || slice_count(j) <= j->buffer / size) {
        return false;
    }
    return j->inner == 1 || slice_count(j) > j->memory / 2 / size;
}

/* There are no elements, but a row of length 0 still has a logsumexp: -inf. */
static int run_empty(job *j) {
    enum { AT_ONCE = 4096 };
    const int64_t most = 1 << 24; /* a header of a hundred bytes could ask for exabytes */
    double results[AT_ONCE];
    if (keeps_shape(j) || j->outer == 0 || j->inner == 0) {
        return STATUS_OK;
    }
    const int64_t count = j->outer * j->inner;
    if (count > most) {
        return complain("%s: an array without elements would give %" PRId64 " results", j->in->name, count);
    }
    int status = STATUS_OK;
    for (int64_t done = 0; done < count && status == STATUS_OK; done += AT_ONCE) {
        const int64_t rows = smaller(AT_ONCE, count - done);
        const napier_status called = napier_logsumexp(j->context, napier_const_rows(NULL, rows, 0, j->in_dtype),
                                                      napier_array(results, rows, j->out_dtype), NULL);
        status = check(j, called) || output_write(j->out, results, rows);
    }
    return status;
}

/* Finds options that the library refuses before anything is written: a call without rows checks only the options. */
static int check_options(const job *j) {
    return check(j, napier_logsumexp(j->context, napier_const_rows(NULL, 0, 0, j->in_dtype),
                                     napier_array(NULL, 0, j->out_dtype), &j->options));
}

static int run(job *j) {
    /* A header names columns of the input; it is kept where the result has the same columns and separator. */
    const bool keep_header = keeps_shape(j) && j->in->format == j->format;
    if (output_begin(j->out, j->format, j->out_dtype, &j->result, keep_header ? j->in->text.header : NULL)) {
        return STATUS_FAILED;
    }
    if (j->in->count == 0) {
        return run_empty(j);
    }
    const bool by_states = needs_states(j);
    progress_start(&j->progress, j->in->count < 0 ? -1 : j->in->count * (by_states && keeps_shape(j) ? 2 : 1));
    const int status = by_states ? run_states(j) : run_blocks(j);
    progress_end(&j->progress);
    return status;
}

/* 64 MiB, or an eighth of the memory where that is less, but at least 1 MiB. */
static int64_t default_buffer(int64_t memory) {
    return larger((int64_t)1 << 20, smaller(memory / 8, (int64_t)64 << 20));
}

/* Takes what the job needs of the request. */
static int plan(job *j, const reduction *r) {
    const int64_t memory = memory_usable();
    j->operation = r->operation;
    j->options = r->options;
    j->buffer = r->buffer > 0 ? r->buffer : default_buffer(memory);
    j->memory = r->buffer > 0 ? r->buffer : memory;
    j->format = r->format != FORMAT_AUTO ? r->format : output_format(r->shared.out_path, j->in->format);
    return lay_out(j, r);
}

int reduce_file(void *request, napier_context *context) {
    const reduction *const r = request;
    input in;
    output out = {.file = NULL};
    job j = {.context = context, .in = &in, .out = &out};
    const int status = input_open_columns(&in, r->shared.in_path, r->in_format, r->columns) || plan(&j, r) ||
                       check_options(&j) || output_open(&out, r->shared.out_path) || run(&j) || output_commit(&out);
    output_discard(&out);
    input_close(&in);
    return status;
}
