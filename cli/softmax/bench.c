/* cli/softmax/bench.c - `napier bench`: compares the library with the limits of this machine's hardware.
 *
 * The floor of a shape is the greater of two times: to move the bytes that must be moved, and to compute one exp per
 * element. (A row that fits into the second level cache is read once and written once. A longer one is read twice and
 * written once. logsumexp reads once.) Times are medians. The rounds of all measurements are interleaved, so that a
 * slow moment of the machine affects all of them equally. */
#include "commands.h"
#include "floor.h"
#include "io/format.h"
#include "program/message.h"
#include "program/progress.h"
#include "program/scratch.h"

#include <napier/napier.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t rows, cols;
} shape;

typedef struct bench {
    base_request shared;
    shape shape; /* rows 0: the default shapes */
    napier_dtype dtype;
    double seconds; /* per shape */
    napier_context *context;
    scratch pool; /* the threads of the floors */
} bench;

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* The timed operations. The floors come last. */
typedef enum subject { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP, COPY, COPY_PAST_CACHES, READ, SUBJECTS } subject;

enum { MOST_ROUNDS = 1000, LEAST_ROUNDS = 3 };

typedef struct measurement {
    const bench *b;
    shape shape;
    int64_t bytes; /* of the elements, a multiple of 64 */
    scratch logits, result;
    double *seconds[SUBJECTS]; /* MOST_ROUNDS each */
    int rounds;
    uint64_t read; /* the sum of the reads: the compiler must keep them */
} measurement;

static napier_status run_subject(measurement *m, subject what) {
    const shape s = m->shape;
    const napier_dtype dtype = m->b->dtype;
    const napier_const_matrix logits = napier_const_rows(m->logits.data, s.rows, s.cols, dtype);
    const napier_matrix result = napier_rows(m->result.data, s.rows, s.cols, dtype);
    const int threads = napier_context_threads(m->b->context);
    const size_t bytes = (size_t)m->bytes;
    napier_pool *const pool = m->b->pool.data;
    switch (what) {
    case SOFTMAX: return napier_softmax(m->b->context, logits, result, NULL);
    case LOG_SOFTMAX: return napier_log_softmax(m->b->context, logits, result, NULL);
    case COPY: floor_copy(m->result.data, m->logits.data, bytes, pool, threads); return NAPIER_OK;
    case COPY_PAST_CACHES:
        floor_copy_past_caches(m->result.data, m->logits.data, bytes, pool, threads);
        return NAPIER_OK;
    case READ:
        m->read ^= floor_read(napier_context_isa(m->b->context), m->logits.data, bytes, pool, threads);
        return NAPIER_OK;
    default: return napier_logsumexp(m->b->context, logits, napier_array(m->result.data, s.rows, dtype), NULL);
    }
}

/* Repeats short work until it lasts long enough for the clock. */
static int time_subject(measurement *m, subject what, double *seconds) {
    const double least = 20e-6;
    for (int repeats = 1;; repeats *= 4) {
        const double start = clock_seconds();
        for (int i = 0; i < repeats; i++) {
            if (run_subject(m, what) != NAPIER_OK) {
                return complain("%s", napier_last_error(m->b->context));
            }
        }
        const double taken = clock_seconds() - start;
        if (taken >= least || repeats > 1 << 20) {
            *seconds = taken / repeats;
            return STATUS_OK;
        }
    }
}

/* Numbers between -8 and 8, the same on every run, in bf16: the upper half of f32, which rounds well to other
 * dtypes. */
static float sample(uint64_t *seed) {
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (float)(*seed >> 52) / 256.0f - 8.0f;
}

static int fill(measurement *m) {
    enum { AT_ONCE = 4096 };
    float numbers[AT_ONCE];
    uint64_t seed = 1;
    const int64_t size = (int64_t)napier_dtype_size(m->b->dtype);
    const int64_t count = m->shape.rows * m->shape.cols;
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        const int64_t now = count - done < AT_ONCE ? count - done : AT_ONCE;
        for (int64_t i = 0; i < now; i++) {
            numbers[i] = sample(&seed);
        }
        /* The logsumexp of one number is that number: this converts it to the dtype. */
        const napier_vector to = napier_array((char *)m->logits.data + done * size, now, m->b->dtype);
        if (napier_logsumexp(m->b->context, napier_const_rows_f32(numbers, now, 1), to, NULL) != NAPIER_OK) {
            return complain("%s", napier_last_error(m->b->context));
        }
    }
    return STATUS_OK;
}

static int measurement_new(measurement *m, const bench *b, shape s) {
    memset(m, 0, sizeof *m);
    m->b = b;
    m->shape = s;
    m->bytes = (s.rows * s.cols * (int64_t)napier_dtype_size(b->dtype) + 63) / 64 * 64;
    int status = scratch_new(&m->logits, m->bytes, "") || scratch_new(&m->result, m->bytes, "");
    for (int i = 0; i < SUBJECTS && status == STATUS_OK; i++) {
        m->seconds[i] = calloc(MOST_ROUNDS, sizeof(double));
        status = m->seconds[i] != NULL ? STATUS_OK : complain("out of memory");
    }
    if (status == STATUS_OK) {
        memset(m->logits.data, 0, (size_t)m->bytes); /* the elements may end before the last 64 bytes do */
        memset(m->result.data, 0, (size_t)m->bytes);
        status = fill(m);
    }
    return status;
}

static void measurement_free(measurement *m) {
    scratch_free(&m->logits);
    scratch_free(&m->result);
    for (int i = 0; i < SUBJECTS; i++) {
        free(m->seconds[i]);
    }
}

static int measure(measurement *m) {
    const double end = clock_seconds() + m->b->seconds;
    double ignored;
    int status = STATUS_OK;
    for (int i = 0; i < SUBJECTS && status == STATUS_OK; i++) { /* warms up */
        status = time_subject(m, (subject)i, &ignored);
    }
    while (status == STATUS_OK && m->rounds < MOST_ROUNDS && (m->rounds < LEAST_ROUNDS || clock_seconds() < end)) {
        for (int i = 0; i < SUBJECTS && status == STATUS_OK; i++) {
            status = time_subject(m, (subject)i, &m->seconds[i][m->rounds]);
        }
        m->rounds++;
    }
    return status;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* The seconds for one exp on one thread, with numbers in the first level cache. */
static double time_exp(napier_isa isa) {
    enum { COUNT = 4096, REPEATS = 200, ROUNDS = 31 };
    float x[COUNT];
    double seconds[ROUNDS];
    volatile float sum = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = -(float)(i % 61);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const double start = clock_seconds();
        for (int i = 0; i < REPEATS; i++) {
            x[i] -= 1.0f; /* all sums differ, so the compiler can skip none */
            sum = sum + floor_exp_sum(isa, x, COUNT);
        }
        seconds[round] = (clock_seconds() - start) / REPEATS / COUNT;
    }
    return median(seconds, ROUNDS);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

static void print_rows(measurement *m, double exp_each) {
    static const char *const names[] = {"softmax", "log-softmax", "logsumexp"};
    const shape s = m->shape;
    double seconds[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++) {
        seconds[i] = median(m->seconds[i], m->rounds);
    }
    const double copy = smaller(seconds[COPY], seconds[COPY_PAST_CACHES]);
    const bool read_twice = s.cols * (int64_t)napier_dtype_size(m->b->dtype) > floor_cache_size();
    const double workers = (double)napier_context_threads(m->b->context);
    const double compute = exp_each * (double)s.rows * (double)s.cols / workers;
    char text[48];
    snprintf(text, sizeof text, "%" PRId64 "x%" PRId64, s.rows, s.cols);
    for (int i = SOFTMAX; i <= LOGSUMEXP; i++) {
        const double memory = i == LOGSUMEXP ? seconds[READ] : copy + (read_twice ? seconds[READ] : 0);
        printf("%-14s %-12s %10.4f %10.4f ", i == SOFTMAX ? text : "", names[i], 1e3 * seconds[i], 1e3 * memory);
        if (compute > 0) {
            printf("%10.4f ", 1e3 * compute);
        } else {
            printf("%10s ", "-");
        }
        printf("%8.2f\n", seconds[i] / larger(memory, compute));
    }
    fflush(stdout);
}

static int bench_shape(const bench *b, shape s, double exp_each) {
    measurement m;
    const int status = measurement_new(&m, b, s) || measure(&m);
    if (status == STATUS_OK) {
        print_rows(&m, exp_each);
    }
    measurement_free(&m);
    return status;
}

static int run(void *request, napier_context *context) {
    static const shape usual[] = {{1000000, 8}, {100000, 100}, {32768, 1024}, {128, 151936}, {1, 16777216}};
    bench *const b = request;
    b->context = context;
    const int threads = napier_context_threads(context);
    const napier_isa isa = napier_context_isa(context);
    const double exp_each = b->dtype == NAPIER_F64 ? 0 : time_exp(isa); /* the floor is for f32 */
    printf("napier %s, %s, %s, %d thread%s; milliseconds\n", napier_version(), napier_dtype_name(b->dtype),
           napier_isa_name(isa), threads, threads == 1 ? "" : "s");
    printf("%-14s %-12s %10s %10s %10s %8s\n", "shape", "operation", "napier", "memory", "exp", "ratio");
    int status = scratch_new(&b->pool, (int64_t)napier_pool_size(threads), "");
    if (status != STATUS_OK) {
        return status;
    }
    napier_pool_create(b->pool.data, threads);
    status = b->shape.rows > 0 ? bench_shape(b, b->shape, exp_each) : STATUS_OK;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && b->shape.rows == 0 && status == STATUS_OK; i++) {
        status = bench_shape(b, usual[i], exp_each);
    }
    napier_pool_destroy(b->pool.data);
    scratch_free(&b->pool);
    return status == STATUS_OK ? finish_standard_output() : status;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static const char *set_shape(void *request, const char *text) {
    const int64_t most = (int64_t)1 << 36;
    shape *const s = &((bench *)request)->shape;
    char rows[24];
    const size_t size = strcspn(text, "xX");
    if (text[size] == '\0' || size >= sizeof rows) {
        return "a shape such as 32768x1024";
    }
    memcpy(rows, text, size);
    rows[size] = '\0';
    const bool good = parse_integer(rows, 1, most, &s->rows) && parse_integer(text + size + 1, 1, most, &s->cols) &&
                      s->rows <= most / s->cols;
    return good ? NULL : "a shape such as 32768x1024";
}

static const option options[] = {
    {"shape", 's', OPTION_OTHER, "RxC", 0, .set = set_shape, .help = "one shape instead of the usual five"},
    {"dtype", 'd', OPTION_WORD, "TYPE", offsetof(bench, dtype), .words = dtype_words,
     .help = "{} (default f32); for f64 no floor of exp is measured"},
    {"seconds", 0, OPTION_NUMBER, "S", offsetof(bench, seconds), OPTION_ABOVE_0(3600),
     .help = "to spend on each shape (default 2)"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, options}, MACHINE_GROUP};
static const bench defaults = {.dtype = NAPIER_F32, .seconds = 2};

const command bench_command = {
    .name = "bench",
    .summary = "how fast this machine runs them, against the floors of the hardware",
    .usage = "[OPTIONS]",
    .about = "Times the three operations along the last axis, beside the floors of this machine: a copy\n"
             "or read of the bytes that must be moved, and the exp that must be computed (not for f64).\n"
             "Milliseconds, medians; the last column is the time over the greater floor.",
    .example = "napier bench --shape 32768x1024 --dtype bf16 --threads 1",
    .groups = groups,
    .input = INPUT_NONE,
    .size = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
