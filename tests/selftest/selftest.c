/* selftest - is this build of Napier right on this machine?
 *
 * Plain C11 and the public headers, nothing else: it runs wherever the library does. The oracle is the formula in long
 * double, which shares no code with the library. Each line is one check; the last line counts them.
 *
 *     selftest [--quick]        --quick: shorter rows, for emulators and valgrind */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/napier.h>

static int g_passed, g_failed;
static bool g_quick;

static void check(bool good, const char *what) {
    printf("%s  %s\n", good ? "ok  " : "FAIL", what);
    if (good) {
        g_passed++;
    } else {
        g_failed++;
    }
}

static void *allocate(size_t count, size_t size) {
    void *const memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "selftest: no memory for %zu x %zu bytes\n", count, size);
        exit(2);
    }
    return memory;
}

/* ---- Random numbers ------------------------------------------------------------------------------------------------ */

static uint64_t g_seed = 1;

static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = g_seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

static int64_t random_below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

static double normal(void) { /* twelve uniforms: near enough to a bell, and the same bits with every libm */
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += uniform();
    }
    return sum;
}

/* ---- Elements of any dtype ------------------------------------------------------------------------------------------ */

/* The sign apart, a 16-bit format with `fraction` fraction bits, smallest normal exponent `least` and bias 1 - least. */
static uint16_t encode16(double value, int fraction, int least) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const int infinity = (2 - 2 * least + 1) << fraction;
    const double a = fabs(value);
    if (a != a) {
        return (uint16_t)(infinity | 1 << (fraction - 1));
    }
    if (isinf(a)) {
        return (uint16_t)(sign | infinity);
    }
    int e;
    frexp(a, &e);
    e = a == 0.0 || e - 1 < least ? least : e - 1;
    /* In units of the last place; a carry out of the fraction runs into the exponent field, up to infinity. */
    const double units = rint(ldexp(a, fraction - e));
    const double bits = units + ldexp(e - least, fraction);
    return (uint16_t)(sign | (bits < infinity ? (int)bits : infinity));
}

static double decode16(uint16_t bits, int fraction, int least) {
    const int magnitude = bits & 0x7fff;
    const int exponent = magnitude >> fraction;
    const int units = magnitude & ((1 << fraction) - 1);
    double a;
    if (exponent == 2 - 2 * least + 1) {
        a = units ? (double)NAN : (double)INFINITY;
    } else if (exponent) {
        a = ldexp(units + (1 << fraction), exponent - 1 + least - fraction);
    } else {
        a = ldexp(units, least - fraction);
    }
    return bits & 0x8000 ? -a : a;
}

enum { F16_FRACTION = 10, F16_LEAST = -14, BF16_FRACTION = 7, BF16_LEAST = -126 };

static void put(napier_dtype dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case NAPIER_F32: ((float *)data)[i] = (float)value; break;
    case NAPIER_F64: ((double *)data)[i] = value; break;
    case NAPIER_F16: ((uint16_t *)data)[i] = encode16(value, F16_FRACTION, F16_LEAST); break;
    case NAPIER_BF16: ((uint16_t *)data)[i] = encode16(value, BF16_FRACTION, BF16_LEAST); break;
    }
}

static double get(napier_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case NAPIER_F32: return (double)((const float *)data)[i];
    case NAPIER_F64: return ((const double *)data)[i];
    case NAPIER_F16: return decode16(((const uint16_t *)data)[i], F16_FRACTION, F16_LEAST);
    case NAPIER_BF16: return decode16(((const uint16_t *)data)[i], BF16_FRACTION, BF16_LEAST);
    }
    return 0;
}

/* Is element i the canonical quiet NaN of its dtype, bit for bit? */
static bool is_canonical_nan(napier_dtype dtype, const void *data, int64_t i) {
    const uint32_t f32 = 0x7fc00000;
    const uint64_t f64 = 0x7ff8000000000000;
    const uint16_t f16 = 0x7e00, bf16 = 0x7fc0;
    const size_t size = napier_dtype_size(dtype);
    const char *const at = (const char *)data + (size_t)i * size;
    switch (dtype) {
    case NAPIER_F32: return memcmp(at, &f32, size) == 0;
    case NAPIER_F64: return memcmp(at, &f64, size) == 0;
    case NAPIER_F16: return memcmp(at, &f16, size) == 0;
    case NAPIER_BF16: return memcmp(at, &bf16, size) == 0;
    }
    return false;
}

/* ---- Kinds of rows -------------------------------------------------------------------------------------------------- */

typedef enum kind {
    NORMAL,
    PEAKED,
    EQUAL,
    WIDE,
    EXTREME,
    TINY,
    MASKED,
    BITS,
    RISING,
    TIES,
    OFFSET,
    NEAR_ZERO,
    KINDS
} kind;

static const char *const kind_names[KINDS] = {"normal", "peaked",   "all equal",   "+-1e4", "+-FLT_MAX",  "subnormal",
                                              "masked", "any bits", "rising ramp", "ties",  "offset 1e6", "lse near 0"};

/* Any finite double; rounded to the row's dtype by put(). f32 range unless `wide`. */
static double any_finite(bool wide) {
    for (;;) {
        const uint64_t bits = random_bits();
        if (wide) {
            double d;
            memcpy(&d, &bits, sizeof d);
            if (isfinite(d)) {
                return d;
            }
        } else {
            const uint32_t low = (uint32_t)bits;
            float f;
            memcpy(&f, &low, sizeof f);
            if (isfinite(f)) {
                return (double)f;
            }
        }
    }
}

static double element(kind k, int64_t i, int64_t n, bool wide) {
    static const double masks[] = {-1e9, -1e30, -(double)FLT_MAX};
    const double top = wide ? DBL_MAX : (double)FLT_MAX;
    switch (k) {
    case NORMAL: return 3 * normal();
    case PEAKED: return i == n / 2 ? 40.0 : normal();
    case EQUAL: return 1.5;
    case WIDE: return 2e4 * uniform() - 1e4;
    case EXTREME: return random_below(3) ? (random_below(2) ? top : -top) : normal();
    case TINY: return (uniform() - 0.5) * (wide ? 0x1p-1030 : 0x1p-130);
    case MASKED:
        return random_below(2) && i ? (random_below(4) ? -(double)INFINITY : masks[random_below(3)]) : normal();
    case BITS: return any_finite(wide);
    case RISING: return (double)i * 0.37 - 20;
    case TIES: return (double)random_below(3);
    case OFFSET: return 1e6 + normal();
    case NEAR_ZERO: return -log((double)n) + 0.01 * normal();
    case KINDS: break;
    }
    return 0;
}

static void fill(napier_dtype dtype, void *data, kind k, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        put(dtype, data, i, element(k, i, n, dtype == NAPIER_F64));
    }
}

/* ---- The oracle ----------------------------------------------------------------------------------------------------- */

typedef struct truth {
    long double max;   /* the largest element */
    long double total; /* sum of exp(x - max) */
    long double rest;  /* that sum without the elements equal to the maximum */
    long double log_total;
    long double lse;
} truth;

static truth truth_of(napier_dtype dtype, const void *row, int64_t n) {
    truth t = {-(long double)INFINITY, 0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        const long double x = (long double)get(dtype, row, i);
        t.max = x > t.max ? x : t.max;
    }
    long double count = 0;
    for (int64_t i = 0; i < n; i++) {
        const long double x = (long double)get(dtype, row, i);
        if (x == t.max) {
            count += 1;
        } else {
            t.rest += expl(x - t.max);
        }
    }
    t.total = count + t.rest;
    t.log_total = log1pl(count - 1 + t.rest);
    t.lse = t.max + t.log_total;
    return t;
}

/* A compute type: digits of its significand, exponent of its last subnormal bit. */
typedef struct format {
    int digits, last;
    double largest;
} format;
static const format f32_format = {24, -149, (double)FLT_MAX}, f64_format = {53, -1074, DBL_MAX};

static long double ulp(const format *f, long double x) {
    int e;
    frexpl(x, &e);
    const int at = x == 0 || e - f->digits < f->last ? f->last : e - f->digits;
    return ldexpl(1, at);
}

/* |got - exact| as a share of the bound `ulps` ulp + `absolute`; an infinity is right where the exact value overflows. */
static double share_of_bound(const format *f, double got, long double exact, double ulps, long double absolute) {
    if (fabsl(exact) > (long double)f->largest) {
        return isinf(got) || fabs(got) == f->largest ? 0 : (double)INFINITY;
    }
    if (!isfinite(got)) {
        return (double)INFINITY;
    }
    return (double)(fabsl((long double)got - exact) / ((long double)ulps * ulp(f, exact) + absolute));
}

/* ---- Checks ------------------------------------------------------------------------------------------------------- */

static napier_context *context_with(int threads, napier_isa isa) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    options.highest_isa = isa;
    napier_context *context = NULL;
    const napier_status status = napier_context_create(&context, &options);
    if (status != NAPIER_OK) {
        fprintf(stderr, "selftest: napier_context_create: %s\n", napier_status_string(status));
        exit(2);
    }
    return context;
}

static void expect_ok(napier_context *context, napier_status status, const char *what) {
    if (status != NAPIER_OK) {
        char text[400];
        snprintf(text, sizeof text, "%s: %s: %s", what, napier_status_string(status), napier_last_error(context));
        check(false, text);
    }
}

/* A call that must succeed: works(napier_softmax, context, ...). */
#define works(function_, context_, ...) \
    expect_ok(context_, function_(context_, __VA_ARGS__), #function_ "(" #__VA_ARGS__ ")")

typedef struct results { /* contiguous [rows, cols] twice, and rows */
    void *probs, *logprobs, *lse;
} results;

static results make_results(int64_t rows, int64_t cols, size_t size) {
    return (results){allocate((size_t)(rows * cols), size), allocate((size_t)(rows * cols), size),
                     allocate((size_t)rows, size)};
}

static void free_results(results *r) {
    free(r->probs);
    free(r->logprobs);
    free(r->lse);
}

static void run_all(napier_context *context, napier_const_matrix in, const results *r,
                    const napier_softmax_options *options) {
    works(napier_softmax, context, in, napier_rows(r->probs, in.rows, in.cols, in.dtype), options);
    works(napier_log_softmax, context, in, napier_rows(r->logprobs, in.rows, in.cols, in.dtype), options);
    works(napier_logsumexp, context, in, napier_array(r->lse, in.rows, in.dtype), options);
}

typedef struct worst {
    double lse, logprob, prob, sum;
    bool shape; /* no positive log-probability, no probability above the maximum's */
} worst;

static void compare_row(const format *f, napier_dtype dtype, const void *row, int64_t n, double lse,
                        const void *logprobs, const void *probs, worst *w) {
    const truth t = truth_of(dtype, row, n);
    const long double delta = ldexpl(15.6L, -f->digits);
    const long double slack = delta * (t.rest / t.total);
    double top = 0;
    long double sum = 0;
    w->lse = fmax(w->lse, share_of_bound(f, lse, t.lse, 1, slack));
    for (int64_t i = 0; i < n; i++) {
        const long double below = (long double)get(dtype, row, i) - t.max;
        const double logprob = get(dtype, logprobs, i), prob = get(dtype, probs, i);
        const long double exact = expl(below) / t.total;
        if (!isinf(below)) {
            w->logprob = fmax(w->logprob, share_of_bound(f, logprob, below - t.log_total, 1.5, slack));
        }
        w->prob = fmax(w->prob, share_of_bound(f, prob, exact, 4, slack * exact));
        w->shape = w->shape && logprob <= 0 && prob >= 0 && (!isinf(below) || (isinf(logprob) && prob == 0));
        top = below == 0 ? prob : top;
        sum += (long double)prob;
    }
    for (int64_t i = 0; i < n; i++) {
        w->shape = w->shape && get(dtype, probs, i) <= top;
    }
    w->sum = fmax(w->sum, (double)fabsl(sum - 1) / (dtype == NAPIER_F64 ? 3e-7 * 0x1p-29 : 3e-7));
}

static void check_accuracy(napier_context *context, napier_dtype dtype) {
    static const int64_t sizes[] = {1,   2,   3,   5,    15,   16,   17,   31,   33,   48,   100,  255,
                                    256, 257, 511, 1000, 1023, 1024, 1025, 2048, 3000, 4095, 4096, 4097};
    const format *const f = dtype == NAPIER_F64 ? &f64_format : &f32_format;
    const size_t size = napier_dtype_size(dtype);
    for (int k = 0; k < KINDS; k++) {
        worst w = {0, 0, 0, 0, true};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int64_t n = sizes[s];
            if (g_quick && n > 1100) {
                continue;
            }
            void *const row = allocate((size_t)n, size);
            results r = make_results(1, n, size);
            fill(dtype, row, (kind)k, n);
            run_all(context, napier_const_rows(row, 1, n, dtype), &r, NULL);
            compare_row(f, dtype, row, n, get(dtype, r.lse, 0), r.logprobs, r.probs, &w);
            free(row);
            free_results(&r);
        }
        char text[300];
        snprintf(
            text, sizeof text,
            "%s rows, %-11s error as a share of the bound: logsumexp %.2f, log_softmax %.2f, softmax %.2f, sum %.2f",
            napier_dtype_name(dtype), kind_names[k], w.lse, w.logprob, w.prob, w.sum);
        check(w.lse <= 1 && w.logprob <= 1 && w.prob <= 1 && w.sum <= 1 && w.shape, text);
    }
}

/* Is long double wider than double, here and now? Some emulators compute it in double, whatever its format. */
static bool oracle_is_wide(void) {
    volatile long double one = 1, sum = one + ldexpl(1, -60);
    return LDBL_MANT_DIG > DBL_MANT_DIG && sum > one;
}

/* Where long double is no wider than double it cannot judge f64. */
static void check_accuracies(napier_context *context) {
    check_accuracy(context, NAPIER_F32);
    if (oracle_is_wide()) {
        check_accuracy(context, NAPIER_F64);
    } else {
        printf("skip  f64 accuracy and gradients: long double is no wider than double here\n");
    }
}

typedef napier_status operation(napier_context *, napier_const_matrix, napier_matrix, const napier_softmax_options *);

/* A 16-bit input is widened exactly, a 16-bit result is the f32 result rounded once. */
static void check_sixteen_bits(napier_context *context, napier_dtype dtype) {
    enum { N = 1500 };
    static uint16_t narrow[N], got[N];
    static float wide[N], expected[N];
    bool good = true;
    for (int k = 0; k < KINDS; k++) {
        fill(dtype, narrow, (kind)k, N);
        for (int i = 0; i < N; i++) {
            if (isinf(get(dtype, narrow, i)) && get(dtype, narrow, i) > 0) {
                put(dtype, narrow, i, 1.0); /* an f16 overflow would make the row NaN, and show nothing */
            }
            wide[i] = (float)get(dtype, narrow, i);
        }
        operation *const operations[] = {napier_softmax, napier_log_softmax};
        for (int o = 0; o < 2; o++) {
            const napier_const_matrix in = napier_const_rows(narrow, 1, N, dtype);
            works(operations[o], context, napier_const_rows_f32(wide, 1, N), napier_rows_f32(expected, 1, N), NULL);
            works(operations[o], context, in, napier_rows(got, 1, N, dtype), NULL);
            for (int i = 0; i < N; i++) {
                uint16_t want;
                put(dtype, &want, 0, (double)expected[i]);
                good = good && want == got[i];
            }
            works(operations[o], context, in, napier_rows_f32(wide, 1, N), NULL);
            good = good && memcmp(wide, expected, sizeof wide) == 0;
            for (int i = 0; i < N; i++) {
                wide[i] = (float)get(dtype, narrow, i);
            }
        }
    }
    char text[100];
    snprintf(text, sizeof text, "%s in and out: the f32 result rounded once to nearest even", napier_dtype_name(dtype));
    check(good, text);
}

/* ---- Special rows --------------------------------------------------------------------------------------------------- */

typedef struct special {
    const char *name;
    int n;
    double x[4];
    double lse, softmax[4], log_softmax[4];
} special;

static bool same_value(napier_dtype dtype, const void *data, int64_t i, double want) {
    return isnan(want) ? is_canonical_nan(dtype, data, i) : get(dtype, data, i) == want;
}

static void check_specials(napier_context *context, napier_dtype dtype) {
    const double inf = (double)INFINITY, nan = (double)NAN;
    const special rows[] = {
        {"empty row", 0, {0}, -inf, {0}, {0}},
        {"one finite element", 1, {-2.5}, -2.5, {1}, {0}},
        {"one -inf", 1, {-inf}, -inf, {nan}, {nan}},
        {"all -inf", 3, {-inf, -inf, -inf}, -inf, {nan, nan, nan}, {nan, nan, nan}},
        {"a NaN", 3, {1, nan, -inf}, nan, {nan, nan, nan}, {nan, nan, nan}},
        {"a NaN and +inf", 3, {inf, nan, 1}, nan, {nan, nan, nan}, {nan, nan, nan}},
        {"+inf", 3, {1, inf, -inf}, inf, {nan, nan, nan}, {nan, nan, nan}},
        {"-inf among finite", 3, {-inf, 7, -inf}, 7, {0, 1, 0}, {-inf, 0, -inf}},
        {"a finite mask", 2, {0, -32768}, 0, {1, 0}, {0, -32768}},
    };
    char text[200];
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const special *const s = &rows[r];
        double in[4] = {0}, probs[4] = {0}, logprobs[4] = {0}, lse = 0; /* memory enough for any dtype */
        bool good = true;
        for (int i = 0; i < s->n; i++) {
            put(dtype, in, i, s->x[i]);
        }
        run_all(context, napier_const_rows(in, 1, s->n, dtype), &(results){probs, logprobs, &lse}, NULL);
        good = same_value(dtype, &lse, 0, s->lse);
        for (int i = 0; i < s->n; i++) {
            good =
                good && same_value(dtype, probs, i, s->softmax[i]) && same_value(dtype, logprobs, i, s->log_softmax[i]);
        }
        snprintf(text, sizeof text, "%s special row: %s", napier_dtype_name(dtype), s->name);
        check(good, text);
    }
    double in[2] = {0}, out[2] = {0};
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.masked_rows = NAPIER_MASKED_ZERO;
    put(dtype, in, 0, -inf);
    put(dtype, in, 1, -inf);
    works(napier_softmax, context, napier_const_rows(in, 1, 2, dtype), napier_rows(out, 1, 2, dtype), &options);
    bool good = get(dtype, out, 0) == 0 && get(dtype, out, 1) == 0;
    works(napier_log_softmax, context, napier_const_rows(in, 1, 2, dtype), napier_rows(out, 1, 2, dtype), &options);
    good = good && get(dtype, out, 0) == -inf && get(dtype, out, 1) == -inf;
    snprintf(text, sizeof text, "%s special row: all -inf with MASKED_ZERO", napier_dtype_name(dtype));
    check(good, text);
}

/* ---- The same bits -------------------------------------------------------------------------------------------------- */

static bool equal_results(const results *a, const results *b, int64_t rows, int64_t cols, size_t size) {
    return memcmp(a->probs, b->probs, (size_t)(rows * cols) * size) == 0 &&
           memcmp(a->logprobs, b->logprobs, (size_t)(rows * cols) * size) == 0 &&
           memcmp(a->lse, b->lse, (size_t)rows * size) == 0;
}

/* The elements of a contiguous [rows, cols] array laid out again: by columns, backwards, spread, or one element off. */
enum { LAYOUTS = 5, ALGORITHMS = NAPIER_ALGORITHM_PARALLEL + 1 };
static napier_const_matrix lay_out(int layout, const char *from, char *to, int64_t rows, int64_t cols,
                                   napier_dtype dtype) {
    const size_t size = napier_dtype_size(dtype);
    const int64_t strides[LAYOUTS][3] = {/* row stride, column stride, first element */
                                         {cols, 1, 0},
                                         {1, rows, 0},
                                         {-cols, -1, rows * cols - 1},
                                         {3 * cols, 3, 1},
                                         {cols + 1, 1, 1}};
    const int64_t *const s = strides[layout];
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            memcpy(to + (size_t)(s[2] + i * s[0] + j * s[1]) * size, from + (size_t)(i * cols + j) * size, size);
        }
    }
    const napier_const_matrix view = {to + (size_t)s[2] * size, rows, cols, s[0], s[1], dtype};
    return view;
}

static bool one_shape_same_bits(napier_dtype dtype, int64_t rows, int64_t cols) {
    static const int thread_counts[] = {1, 2, 7};
    const size_t size = napier_dtype_size(dtype);
    char *const source = allocate((size_t)(rows * cols), size);
    char *const moved = allocate((size_t)(3 * rows * cols + rows + 2), size);
    results expected = make_results(rows, cols, size), got = make_results(rows, cols, size);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.algorithm = NAPIER_ALGORITHM_SAFE;
    options.temperature = 0.7;
    for (int64_t i = 0; i < rows; i++) {
        fill(dtype, source + (size_t)(i * cols) * size, (kind)(i % KINDS), cols);
    }
    napier_context *const reference = context_with(1, NAPIER_ISA_SCALAR);
    run_all(reference, napier_const_rows(source, rows, cols, dtype), &expected, &options);
    napier_context_destroy(reference);
    bool good = true;
    for (int isa = NAPIER_ISA_SCALAR; isa <= NAPIER_ISA_AVX512; isa++) {
        for (int t = 0; t < 3 && napier_isa_available((napier_isa)isa); t++) {
            napier_context *const context = context_with(thread_counts[t], (napier_isa)isa);
            for (int layout = 0; layout < LAYOUTS; layout++) {
                const napier_const_matrix in = lay_out(layout, source, moved, rows, cols, dtype);
                const int a = (layout + t + isa) % ALGORITHMS; /* every pair comes up for some instruction set */
                options.algorithm = (napier_algorithm)a;
                run_all(context, in, &got, &options);
                if (!equal_results(&expected, &got, rows, cols, size)) {
                    printf("      differs: %s %lld x %lld, %s, %d threads, layout %d, algorithm %d\n",
                           napier_dtype_name(dtype), (long long)rows, (long long)cols, napier_isa_name((napier_isa)isa),
                           thread_counts[t], layout, a);
                    good = false;
                }
            }
            memcpy(got.probs, source, (size_t)(rows * cols) * size);
            options.algorithm = NAPIER_ALGORITHM_AUTO;
            works(napier_softmax, context, napier_const_rows(got.probs, rows, cols, dtype),
                  napier_rows(got.probs, rows, cols, dtype), &options);
            good = good && memcmp(got.probs, expected.probs, (size_t)(rows * cols) * size) == 0;
            napier_context_destroy(context);
        }
    }
    free_results(&expected);
    free_results(&got);
    free(source);
    free(moved);
    return good;
}

static void check_same_bits(napier_dtype dtype) {
    static const int64_t shapes[][2] = {{40, 1},   {40, 2},   {33, 8},    {24, 17},   {24, 48},
                                        {24, 100}, {12, 257}, {12, 1023}, {12, 1025}, {12, 4097}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        if (g_quick && shapes[s][1] > 1100) {
            continue;
        }
        char text[200];
        snprintf(text, sizeof text,
                 "%s %lld x %lld: the same bits with every ISA, 1, 2, 7 threads, layout, algorithm, in place",
                 napier_dtype_name(dtype), (long long)shapes[s][0], (long long)shapes[s][1]);
        check(one_shape_same_bits(dtype, shapes[s][0], shapes[s][1]), text);
    }
}

static void check_isas(void) {
    for (int isa = NAPIER_ISA_SCALAR; isa <= NAPIER_ISA_AVX512; isa++) {
        if (!napier_isa_available((napier_isa)isa)) {
            printf("skip  %s: not in this build or not on this machine\n", napier_isa_name((napier_isa)isa));
        }
    }
}

/* f32 and f64: z = x / T rounded once. Dividing first must give the same bits. */
static void check_temperature(napier_context *context) {
    enum { N = 2000 };
    static float x[N], z[N], a[N], b[N];
    static const double temperatures[] = {0.1, 0.7, 1.3, 3.0, 1e-3, 7e4, 1e-30};
    bool good = true;
    for (int k = 0; k < KINDS; k++) {
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
            napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
            options.temperature = temperatures[t];
            fill(NAPIER_F32, x, (kind)k, N);
            for (int i = 0; i < N; i++) {
                z[i] = x[i] / (float)temperatures[t];
            }
            works(napier_log_softmax, context, napier_const_rows_f32(x, 1, N), napier_rows_f32(a, 1, N), &options);
            works(napier_log_softmax, context, napier_const_rows_f32(z, 1, N), napier_rows_f32(b, 1, N), NULL);
            good = good && memcmp(a, b, sizeof a) == 0;
        }
    }
    check(good, "temperature: log_softmax(x, T) has the bits of log_softmax(x / T)");
}

static void check_logsumexp_all(napier_context *context) {
    enum { ROWS = 37, COLS = 211 };
    static float x[ROWS * COLS], by_columns[ROWS * COLS];
    bool good = true;
    for (int k = 0; k < KINDS; k++) {
        float whole = 0, row = 1, turned = 2;
        fill(NAPIER_F32, x, (kind)k, ROWS * COLS);
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLS; j++) {
                by_columns[j * ROWS + i] = x[i * COLS + j];
            }
        }
        const napier_const_matrix view = napier_const_transposed(napier_const_rows_f32(by_columns, COLS, ROWS));
        works(napier_logsumexp_all, context, napier_const_rows_f32(x, ROWS, COLS), napier_array_f32(&whole, 1), NULL);
        works(napier_logsumexp_all, context, view, napier_array_f32(&turned, 1), NULL);
        works(napier_logsumexp, context, napier_const_rows_f32(x, 1, ROWS * COLS), napier_array_f32(&row, 1), NULL);
        good = good && memcmp(&whole, &row, sizeof row) == 0 && memcmp(&turned, &row, sizeof row) == 0;
    }
    check(good, "logsumexp_all has the bits of one row-major row, whatever the layout");
}

/* ---- The mergeable state ----------------------------------------------------------------------------------------- */

enum { MOST_PARTS = 9 };

static napier_softmax_state *part_of(napier_context *context, napier_dtype dtype, const char *row, int64_t begin,
                                     int64_t end) {
    napier_softmax_state *state = NULL;
    works(napier_softmax_state_create, context, dtype, begin, NULL, &state);
    while (state && begin < end) {
        const int64_t step = 1 + random_below(end - begin);
        const napier_const_vector block =
            napier_const_array(row + (size_t)begin * napier_dtype_size(dtype), step, dtype);
        works(napier_softmax_state_update, context, state, block);
        begin += step;
    }
    return state;
}

/* Through the byte form and back. */
static napier_softmax_state *reload(napier_context *context, napier_softmax_state *state) {
    const size_t size = napier_softmax_state_size(state);
    char *const bytes = allocate(size, 1);
    napier_softmax_state *loaded = NULL;
    works(napier_softmax_state_to_bytes, context, state, bytes, size);
    works(napier_softmax_state_from_bytes, context, bytes, size, &loaded);
    free(bytes);
    napier_softmax_state_destroy(state);
    return loaded;
}

/* Cuts a row into parts at random, merges neighbours in random order, and applies: the one-shot call's bits. */
static bool state_round(napier_context *context, napier_dtype dtype, kind k, int64_t n, bool aligned) {
    const size_t size = napier_dtype_size(dtype);
    char *const row = allocate((size_t)n, size), *const got = allocate((size_t)n, size);
    results expected = make_results(1, n, size);
    fill(dtype, row, k, n);
    run_all(context, napier_const_rows(row, 1, n, dtype), &expected, NULL);

    napier_softmax_state *parts[MOST_PARTS];
    int count = 1 + (int)random_below(MOST_PARTS);
    int64_t begin = 0;
    for (int i = 0; i < count; i++) {
        int64_t end = i == count - 1 ? n : begin + random_below(n - begin + 1);
        end = aligned && i < count - 1 ? end / 1024 * 1024 : end;
        end = end < begin ? begin : end;
        parts[i] = reload(context, part_of(context, dtype, row, begin, end));
        begin = end;
    }
    /* Neighbours only, either into the other. */
    while (count > 1) {
        const int64_t i = random_below(count - 1);
        const bool forward = random_below(2);
        napier_softmax_state *const into = parts[forward ? i : i + 1], *const from = parts[forward ? i + 1 : i];
        works(napier_softmax_state_merge, context, into, from);
        napier_softmax_state_destroy(from);
        parts[i] = into;
        for (int j = (int)i + 1; j < count - 1; j++) {
            parts[j] = parts[j + 1];
        }
        count--;
    }
    double lse = 0;
    works(napier_softmax_state_finish, context, parts[0], &lse);
    double rounded = 0;
    put(dtype, &rounded, 0, lse);
    bool good = memcmp(&rounded, expected.lse, size) == 0 && napier_softmax_state_first_index(parts[0]) == 0 &&
                napier_softmax_state_count(parts[0]) == n;
    for (int o = 0; o < 2; o++) {
        const int64_t cut = random_below(n + 1);
        works(napier_softmax_state_apply, context, parts[0], (napier_softmax_kind)o,
              napier_const_array(row, cut, dtype), napier_array(got, cut, dtype));
        works(napier_softmax_state_apply, context, parts[0], (napier_softmax_kind)o,
              napier_const_array(row + (size_t)cut * size, n - cut, dtype),
              napier_array(got + (size_t)cut * size, n - cut, dtype));
        good = good && memcmp(got, o ? expected.logprobs : expected.probs, (size_t)n * size) == 0;
    }
    napier_softmax_state_destroy(parts[0]);
    free_results(&expected);
    free(row);
    free(got);
    return good;
}

static void check_state(napier_context *context, napier_dtype dtype) {
    static const int64_t sizes[] = {1, 100, 1023, 1024, 1025, 2048, 5000, 10240};
    for (int aligned = 0; aligned < 2; aligned++) {
        bool good = true;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            if (g_quick && sizes[s] > 2500) {
                continue;
            }
            for (int k = 0; k < KINDS; k++) {
                good = state_round(context, dtype, (kind)k, sizes[s], aligned) && good;
            }
        }
        char text[160];
        snprintf(text, sizeof text,
                 "%s state: parts cut at %s, saved, loaded, merged in any order, applied: one-shot bits",
                 napier_dtype_name(dtype), aligned ? "multiples of 1024" : "any index");
        check(good, text);
    }
}

/* ---- Gradients ------------------------------------------------------------------------------------------------------ */

/* An error in units of `eps` times the magnitudes that were added; a sum of 1024 elements in 256 lanes is 12 roundings. */
static double gradient_error(double got, long double exact, long double magnitude, const format *f) {
    const long double eps = ldexpl(1, -f->digits);
    return (double)(fabsl((long double)got - exact) / (eps * magnitude + ldexpl(1, f->last)));
}

static void check_layers(napier_context *context) {
    enum { N = 64, HALF = N / 2 };
    float x[N], ones[N], y[N], back[N], inverse[HALF], cosines[HALF], sines[HALF];
    double scale = 0, squares = 0;
    bool same = true;
    const int64_t position = 12345;
    for (int i = 0; i < N; i++) {
        x[i] = (float)((i * 37 % 64) - 30);
        ones[i] = 1.0f;
    }
    expect_ok(context,
              napier_rms_norm(context, napier_const_rows_f32(x, 1, N), napier_const_array_f32(ones, N),
                              napier_rows_f32(y, 1, N), NULL),
              "rms_norm");
    for (int i = 0; i < N; i++) {
        squares += (double)y[i] * (double)y[i] / N;
    }
    check(fabs(squares - 1) < 1e-6, "rms_norm makes the mean square 1");
    const napier_const_matrix c = napier_const_rows_f32(cosines, 1, HALF), s = napier_const_rows_f32(sines, 1, HALF);
    const napier_heads turned = {y, 1, 1, N, N, N, 1, NAPIER_F32}, again = {back, 1, 1, N, N, N, 1, NAPIER_F32};
    expect_ok(context, napier_rotary_frequencies(context, NULL, napier_array_f32(inverse, HALF), &scale),
              "rotary_frequencies");
    expect_ok(context,
              napier_rotary_angles(context, napier_const_array_f32(inverse, HALF), scale,
                                   napier_indices_i64(&position, 1), napier_rows_f32(cosines, 1, HALF),
                                   napier_rows_f32(sines, 1, HALF)),
              "rotary_angles");
    expect_ok(context, napier_rotary(context, (napier_const_heads){x, 1, 1, N, N, N, 1, NAPIER_F32}, c, s, turned),
              "rotary");
    expect_ok(context,
              napier_rotary_backward(context, (napier_const_heads){y, 1, 1, N, N, N, 1, NAPIER_F32}, c, s, again),
              "rotary_backward");
    for (int i = 0; i < N; i++) {
        same = same && fabs((double)back[i] - (double)x[i]) < 1e-5;
    }
    check(same, "a rotation and back is the identity");
}

/* The conditions of a projection onto the simplex: the sum is 1, and z - p is one tau where p > 0, no less than z elsewhere. */
static void check_sparsemax(napier_context *context) {
    enum { N = 1300 };
    float x[N], p[N];
    double sum = 0, tau[2] = {-HUGE_VAL, HUGE_VAL}, highest = -HUGE_VAL;
    fill(NAPIER_F32, x, NORMAL, N);
    expect_ok(context, napier_sparsemax(context, napier_const_rows_f32(x, 1, N), napier_rows_f32(p, 1, N), NULL),
              "sparsemax");
    for (int i = 0; i < N; i++) {
        sum += (double)p[i];
        if (p[i] > 0) {
            tau[0] = fmax(tau[0], (double)x[i] - (double)p[i]);
            tau[1] = fmin(tau[1], (double)x[i] - (double)p[i]);
        } else {
            highest = fmax(highest, (double)x[i]);
        }
    }
    check(fabs(sum - 1) < 1e-6 && tau[0] - tau[1] < 1e-7 && highest <= tau[0], "sparsemax is a projection");
}

/* Each element is the logsumexp of its prefix, and the gradient of their sum is a sum of shares, which add up to the columns. */
static void check_logcumsumexp(napier_context *context) {
    enum { N = 200 };
    float x[N], lse[N], whole[N], ones[N], grad[N];
    double sum = 0;
    bool same = true;
    fill(NAPIER_F32, x, NORMAL, N);
    expect_ok(context, napier_logcumsumexp(context, napier_const_rows_f32(x, 1, N), napier_rows_f32(lse, 1, N), NULL),
              "logcumsumexp");
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        expect_ok(context,
                  napier_logsumexp(context, napier_const_rows_f32(x, 1, i + 1), napier_array_f32(whole + i, 1), NULL),
                  "logsumexp");
        same = same && fabs((double)whole[i] - (double)lse[i]) < 2e-6;
    }
    expect_ok(context,
              napier_logcumsumexp_backward(context, napier_const_rows_f32(x, 1, N), napier_const_rows_f32(ones, 1, N),
                                           napier_rows_f32(grad, 1, N), NULL),
              "logcumsumexp_backward");
    for (int i = 0; i < N; i++) {
        sum += (double)grad[i];
    }
    check(same && fabs(sum - N) < 1e-4, "logcumsumexp is the logsumexp of every prefix");
}

/* An id is drawn from the two that top_k keeps, with the log-probability of its distribution. */
static void check_sample(napier_context *context) {
    const float x[4] = {1, 3, -2, 3};
    int64_t id = -1;
    float logprob = 0;
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results drawn = NAPIER_SAMPLE_RESULTS_INIT;
    options.top_k = 2;
    drawn.ids = &id;
    drawn.logprobs = napier_array_f32(&logprob, 1);
    expect_ok(context, napier_sample(context, napier_const_rows_f32(x, 1, 4), &options, &drawn), "sample");
    check((id == 1 || id == 3) && fabs((double)logprob + log(2)) < 1e-7, "sample draws from what top_k keeps");
}

static void check_gradients(napier_context *context, napier_dtype dtype) {
    enum { N = 1300, BOUND = 24 };
    const double T = 0.5; /* a power of two: x / T and g / T are exact, so that the oracle is simple */
    const format *const f = dtype == NAPIER_F64 ? &f64_format : &f32_format;
    const size_t size = napier_dtype_size(dtype);
    void *const x = allocate(N, size), *const g = allocate(N, size), *const y = allocate(N, size),
                *const got = allocate(N, size);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.temperature = T;
    const napier_const_matrix in = napier_const_rows(x, 1, N, dtype), grad = napier_const_rows(g, 1, N, dtype);
    const napier_const_matrix result = napier_const_rows(y, 1, N, dtype);
    const napier_matrix out = napier_rows(got, 1, N, dtype);
    double worst_error[3] = {0, 0, 0};
    static const kind kinds[] = {NORMAL, PEAKED, EQUAL, RISING, TIES};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        fill(dtype, x, kinds[k], N);
        fill(dtype, g, NORMAL, N);
        long double sum = 0, magnitude = 0;
        works(napier_softmax, context, in, napier_rows(y, 1, N, dtype), &options);
        works(napier_softmax_backward, context, result, grad, out, &options);
        for (int i = 0; i < N; i++) {
            const long double term = (long double)get(dtype, g, i) * (long double)get(dtype, y, i);
            sum += term;
            magnitude += fabsl(term);
        }
        for (int i = 0; i < N; i++) {
            const long double p = (long double)get(dtype, y, i), gi = (long double)get(dtype, g, i);
            worst_error[0] = fmax(worst_error[0], gradient_error(get(dtype, got, i), p * (gi - sum) / (long double)T,
                                                                 p * (fabsl(gi) + magnitude) / (long double)T, f));
        }
        works(napier_log_softmax, context, in, napier_rows(y, 1, N, dtype), &options);
        works(napier_log_softmax_backward, context, result, grad, out, &options);
        sum = magnitude = 0;
        for (int i = 0; i < N; i++) {
            sum += (long double)get(dtype, g, i);
            magnitude += fabsl((long double)get(dtype, g, i));
        }
        for (int i = 0; i < N; i++) {
            const long double p = expl((long double)get(dtype, y, i)), gi = (long double)get(dtype, g, i);
            worst_error[1] = fmax(worst_error[1], gradient_error(get(dtype, got, i), (gi - p * sum) / (long double)T,
                                                                 (fabsl(gi) + p * magnitude) / (long double)T, f));
        }
        works(napier_logsumexp_backward, context, in, napier_const_array(g, 1, dtype), out, &options);
        for (int i = 0; i < N; i++) { /* z = x / T, doubled exactly */
            put(dtype, y, i, get(dtype, x, i) / T);
        }
        const truth t = truth_of(dtype, y, N);
        for (int i = 0; i < N; i++) {
            const long double p = expl((long double)get(dtype, y, i) - t.max) / t.total;
            const long double exact = (long double)get(dtype, g, 0) * p / (long double)T;
            worst_error[2] = fmax(worst_error[2], gradient_error(get(dtype, got, i), exact, fabsl(exact), f));
        }
    }
    static const char *const names[] = {"softmax", "log_softmax", "logsumexp"};
    for (int i = 0; i < 3; i++) {
        char text[160];
        snprintf(text, sizeof text, "%s gradient of %s: error %.1f units of its terms, at most %d",
                 napier_dtype_name(dtype), names[i], worst_error[i], BOUND);
        check(worst_error[i] <= BOUND, text);
    }
    free(x);
    free(g);
    free(y);
    free(got);
}

/* ---- Log-probabilities of tokens, and losses ---------------------------------------------------------------------- */

/* A token's log-probability is that of log_softmax; the KL of a policy with itself is 0, and where nothing was learned every
 * ratio is 1 and the loss is minus the mean advantage. */
static void check_rl(napier_context *context) {
    enum { N = 5, V = 1500 };
    float *const x = allocate(N * V, sizeof *x), *const all = allocate(N * V, sizeof *all);
    float chosen[N], kl[2], grad[N];
    const int64_t ids[N] = {0, 7, 1023, 1024, V - 1}, offsets[3] = {0, 3, N};
    const float advantages[2] = {2, -1};
    for (int i = 0; i < N; i++) {
        fill(NAPIER_F32, x + i * V, NORMAL, V);
    }
    napier_token_results wanted = NAPIER_TOKEN_RESULTS_INIT;
    wanted.logprobs = napier_rows_f32(chosen, N, 1);
    works(napier_token_logprobs, context, napier_const_rows_f32(x, N, V), napier_indices_i64(ids, N), NULL, &wanted);
    works(napier_log_softmax, context, napier_const_rows_f32(x, N, V), napier_rows_f32(all, N, V), NULL);
    int same = 1;
    for (int i = 0; i < N; i++) {
        same = same && memcmp(&chosen[i], &all[i * V + ids[i]], sizeof *chosen) == 0;
    }
    check(same, "token_logprobs: the bits of log_softmax");
    const napier_const_vector logprobs = napier_const_array_f32(chosen, N);
    const napier_indices responses = napier_indices_i64(offsets, 3);
    works(napier_kl_per_response, context, logprobs, logprobs, responses, NULL, NULL, napier_array_f32(kl, 2));
    check(kl[0] == 0 && kl[1] == 0, "the KL of a policy with itself is 0");
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    batch.logprobs = batch.old_logprobs = logprobs;
    batch.advantages = napier_const_array_f32(advantages, 2);
    batch.offsets = responses;
    works(napier_grpo_loss, context, &batch, NULL, &metrics, napier_array_f32(grad, N), napier_array_f32(NULL, 0));
    check(metrics.loss == -0.5 && metrics.mean_ratio == 1 && grad[4] == 0.25f && fabsf(grad[0] + 1.0f / 3.0f) < 1e-7f,
          "grpo_loss: on-policy, the loss is minus the mean advantage");
    free(x);
    free(all);
}

/* ---- Errors --------------------------------------------------------------------------------------------------------- */

static void check_refused(napier_context *context, napier_status got, napier_status want, const char *word,
                          const char *what) {
    char text[400];
    const char *const message = napier_last_error(context);
    snprintf(text, sizeof text, "refused: %s (\"%s\")", what, message);
    check(got == want && strstr(message, word) != NULL, text);
}

static void check_errors(napier_context *context) {
    float x[8] = {0}, y[8] = {0};
    double d[2] = {0};
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    const napier_const_matrix in = napier_const_rows_f32(x, 2, 4);
    check(napier_softmax(NULL, in, napier_rows_f32(y, 2, 4), NULL) == NAPIER_INVALID_ARGUMENT, "refused: no context");
    check_refused(context, napier_softmax(context, napier_const_rows_f32(x, -1, 4), napier_rows_f32(y, 2, 4), NULL),
                  NAPIER_INVALID_ARGUMENT, "logits", "a negative number of rows");
    check_refused(context, napier_softmax(context, in, napier_rows_f32(y, 4, 2), NULL), NAPIER_INVALID_ARGUMENT,
                  "probs", "a result of another shape");
    check_refused(context, napier_softmax(context, in, napier_rows_f32(x + 1, 1, 4), NULL), NAPIER_INVALID_ARGUMENT, "",
                  "an overlapping result");
    options.temperature = 0;
    check_refused(context, napier_softmax(context, in, napier_rows_f32(y, 2, 4), &options), NAPIER_INVALID_ARGUMENT,
                  "temperature", "temperature 0");
    napier_softmax_state *state = NULL, *loaded = NULL;
    works(napier_softmax_state_create, context, NAPIER_F32, 0, NULL, &state);
    check_refused(context, napier_softmax_state_update(context, state, napier_const_array(d, 2, NAPIER_F64)),
                  NAPIER_INVALID_ARGUMENT, "f64", "an f64 block for an f32 state");
    const size_t size = napier_softmax_state_size(state);
    unsigned char *const bytes = allocate(size, 1);
    works(napier_softmax_state_to_bytes, context, state, bytes, size);
    check(napier_softmax_state_from_bytes(context, bytes, size - 1, &loaded) == NAPIER_CORRUPT_DATA && !loaded,
          "refused: a state that lacks its last byte");
    bytes[size / 2] ^= 1;
    check(napier_softmax_state_from_bytes(context, bytes, size, &loaded) == NAPIER_CORRUPT_DATA && !loaded,
          "refused: a state with one bit turned over");
    free(bytes);
    napier_softmax_state_destroy(state);
}

int main(int argc, char **argv) {
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--quick") != 0)) {
        fprintf(stderr, "usage: selftest [--quick]\n");
        return 2;
    }
    g_quick = argc == 2;
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    napier_context *const context = context_with(0, NAPIER_ISA_AUTO);
    printf("napier %s, numerics version %d, %s, %d threads\n", napier_version(), napier_numerics_version(),
           napier_isa_name(napier_context_isa(context)), napier_context_threads(context));
    check_isas();
    check_accuracies(context);
    check_sixteen_bits(context, NAPIER_F16);
    check_sixteen_bits(context, NAPIER_BF16);
    for (int i = 0; i < 4; i++) {
        check_specials(context, dtypes[i]);
    }
    for (int i = 0; i < 4; i++) {
        check_same_bits(dtypes[i]);
    }
    check_temperature(context);
    check_logsumexp_all(context);
    check_state(context, NAPIER_F32);
    check_state(context, NAPIER_F64);
    check_sparsemax(context);
    check_logcumsumexp(context);
    check_layers(context);
    check_sample(context);
    check_gradients(context, NAPIER_F32);
    if (oracle_is_wide()) {
        check_gradients(context, NAPIER_F64);
    }
    check_rl(context);
    check_errors(context);
    napier_context_destroy(context);
    printf("%d passed, %d failed\n", g_passed, g_failed);
    return g_failed ? 1 : 0;
}
