/* exhaustive - exp, log, log1p and the 16-bit conversions on every float there is.
 *
 * The best instruction set of this machine is held against an oracle; every other one against its bits. The oracle is
 * libm in double: its error, below one unit in the last of 53 bits, is 2^-29 of a float's. Only where that could change the
 * verdict (a tie of the rounding, an error next to 1 ulp) is MPFR asked; without MPFR such cases are counted as undecided.
 * The conversions are held against integer arithmetic written from the formats.
 *
 *     exhaustive [--full | --sample K] [--oracle] [--all-scalar] [--isa NAME]...     --sample K: every K-th bit pattern, K odd
 *
 * The oracle takes minutes for every float. So --full compares a checksum of all results with that of the results which
 * the oracle has judged; if it differs, or a function is changed, --full --oracle asks the oracle again.
 *
 * The scalar functions call the C library's fma where the compiler may not assume the instruction: minutes for every
 * float. So they are taken on one chunk of 32, and as compiled from the same source with the instruction ("scalar-fma")
 * on one of 8. --all-scalar takes the time.
 *
 * One line per function and instruction set, of key=value words:
 *     exp_f32 isa=avx512 inputs=4294967296 max_ulp=0.8912 at=0x42345678 correct=... faithful=... above_1ulp=0 ...
 * "correct": rounded to nearest; "faithful": the other neighbour of the exact value, below 1 ulp. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef NAPIER_TEST_MPFR
#include <mpfr.h>
#endif

#include "core/base/parallel.h"
#include "core/isa/core_kernels.h"
#include "core/math/divide.h"

enum { CHUNK = 32768, ISAS = NAPIER_ISA_AVX512 + 1, SCALAR_FMA = 0, SCALAR_SHARE = 32, FMA_SHARE = 8 };

#ifdef NAPIER_TEST_SCALAR_FMA
extern const napier_math_kernels scalar_fma_kernels;
#endif

/* Index 0, which is no instruction set of its own, stands for scalar-fma. */
static const napier_math_kernels *math_of(int isa) {
#ifdef NAPIER_TEST_SCALAR_FMA
    if (isa == SCALAR_FMA) {
        return &scalar_fma_kernels;
    }
#endif
    return &napier_core_kernels_of((napier_isa)isa)->math;
}

static const char *name_of(int isa) { return isa == SCALAR_FMA ? "scalar-fma" : napier_isa_name((napier_isa)isa); }

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- The elementary functions --------------------------------------------------------------------------------------- */

enum { CANONICAL_NAN = 0x7fc00000, PLUS_INFINITY = 0x7f800000 };

/* Inputs whose result is exact by the table in math_kernels.h; the others go to the oracle. */
static bool exp_special(float x, uint32_t *bits) {
    if (isnan(x)) {
        *bits = CANONICAL_NAN;
    } else if (x > 0x1.62e42ep6f) { /* the largest float whose exp is below 2^128 - 2^103 */
        *bits = PLUS_INFINITY;
    } else if (x < -0x1.9fe368p6f) { /* exp below 2^-150 */
        *bits = 0;
    } else if (x == 0.0f) {
        *bits = 0x3f800000;
    } else {
        return false;
    }
    return true;
}

static bool log_special(float x, uint32_t *bits) {
    if (isnan(x) || x < 0.0f) {
        *bits = CANONICAL_NAN;
    } else if (x == 0.0f) {
        *bits = PLUS_INFINITY | 0x80000000u;
    } else if (isinf(x)) {
        *bits = PLUS_INFINITY;
    } else if (x == 1.0f) {
        *bits = 0;
    } else {
        return false;
    }
    return true;
}

static bool log1p_special(float x, uint32_t *bits) {
    if (isnan(x) || x < 0.0f) {
        *bits = CANONICAL_NAN;
    } else if (isinf(x)) {
        *bits = PLUS_INFINITY;
    } else if (x == 0.0f) { /* log1p(-0) is not used: either zero will do */
        *bits = 0;
    } else {
        return false;
    }
    return true;
}

typedef void array_function(const float *x, float *y, int64_t n);

static array_function *exp_of(const napier_math_kernels *k) { return k->exp_f32; }
static array_function *log_of(const napier_math_kernels *k) { return k->log_f32; }
static array_function *log1p_of(const napier_math_kernels *k) { return k->log1p_f32; }

typedef struct function {
    const char *name;
    array_function *(*of)(const napier_math_kernels *);
    bool (*special)(float x, uint32_t *bits);
    double (*oracle)(double);
    uint64_t checksum; /* of the results for every float, when the oracle found nothing wrong */
#ifdef NAPIER_TEST_MPFR
    int (*exact)(mpfr_t, mpfr_srcptr, mpfr_rnd_t);
#endif
} function;

#ifdef NAPIER_TEST_MPFR
#define FUNCTION(name, checksum) \
    { #name "_f32", name##_of, name##_special, name, checksum, mpfr_##name }
#else
#define FUNCTION(name, checksum) \
    { #name "_f32", name##_of, name##_special, name, checksum }
#endif
static const function functions[] = {FUNCTION(exp, UINT64_C(0x100f7a5a717ae205)),
                                     FUNCTION(log, UINT64_C(0x90413d45f3f811d0)),
                                     FUNCTION(log1p, UINT64_C(0xae9b3a21e41568af))};

typedef struct tally {
    uint64_t checksum, inputs, special, correct, faithful, above, wrong_special, undecided, precise;
    uint64_t below[4]; /* errors up to 0.55, 0.65, 0.8, 1 ulp, above one half */
    double max_ulp;
    uint32_t at, special_at;  /* where max_ulp and the first wrong_special are */
    uint64_t compared[ISAS];  /* results held against the first instruction set's */
    uint64_t different[ISAS]; /* those whose bits differ */
    uint32_t different_at[ISAS];
} tally;

/* One unit in the last place of a float result near `value`, inverted: 2^(23 - exponent), exact. */
static double places_per_unit(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    exponent = exponent < -126 ? -126 : exponent;
    const uint64_t scale = (uint64_t)(1023 + 23 - exponent) << 52;
    double places;
    memcpy(&places, &scale, sizeof places);
    return places;
}

#ifdef NAPIER_TEST_MPFR
/* The error in ulps, from 120 bits. */
static double precise_error(const function *f, float x, float y, double near) {
    mpfr_t exact;
    mpfr_init2(exact, 120);
    mpfr_set_flt(exact, x, MPFR_RNDN);
    f->exact(exact, exact, MPFR_RNDN);
    mpfr_sub_d(exact, exact, (double)y, MPFR_RNDN);
    mpfr_mul_d(exact, exact, places_per_unit(near), MPFR_RNDN);
    const double error = fabs(mpfr_get_d(exact, MPFR_RNDN));
    mpfr_clear(exact);
    return error;
}
#endif

static void judge_ordinary(const function *f, float x, float y, tally *t) {
    const double near = f->oracle((double)x);
    const double places = places_per_unit(near);
    double error = fabs((double)y - near) * places;
    const double doubt = 0x1p-27; /* four times what two units of the double oracle come to */
    if (fabs(error - 0.5) < doubt || fabs(error - 1.0) < doubt) {
#ifdef NAPIER_TEST_MPFR
        error = precise_error(f, x, y, near);
        t->precise++;
#else
        t->undecided++;
        error -= doubt;
#endif
    }
    if (!(error <= t->max_ulp)) { /* a NaN result counts as infinitely wrong */
        t->max_ulp = isnan(error) ? (double)INFINITY : error;
        t->at = bits_of(x);
    }
    if (error <= 0.5) {
        t->correct++;
    } else if (error < 1.0) {
        t->faithful++;
        t->below[error < 0.55 ? 0 : error < 0.65 ? 1 : error < 0.8 ? 2 : 3]++;
    } else {
        t->above++;
    }
}

static void judge(const function *f, const float *x, const float *y, int64_t n, tally *t) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t want;
        if (f->special(x[i], &want)) {
            t->special++;
            const bool zero = want == 0 && f->special == log1p_special && y[i] == 0.0f;
            if (bits_of(y[i]) != want && !zero) {
                t->special_at = t->wrong_special ? t->special_at : bits_of(x[i]);
                t->wrong_special++;
            }
        } else {
            judge_ordinary(f, x[i], y[i], t);
        }
    }
}

/* Adds up a hash of each input and result: the order of the chunks does not matter. */
static uint64_t checksum_of(const float *x, const float *y, int64_t n) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = (uint64_t)bits_of(x[i]) << 32 | bits_of(y[i]);
        h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9); /* SplitMix64's finalizer */
        h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
        sum += h ^ h >> 31;
    }
    return sum;
}

static void add_tally(tally *sum, const tally *part) {
    sum->checksum += part->checksum;
    sum->inputs += part->inputs;
    sum->special += part->special;
    sum->correct += part->correct;
    sum->faithful += part->faithful;
    sum->above += part->above;
    sum->special_at = sum->wrong_special || !part->wrong_special ? sum->special_at : part->special_at;
    sum->wrong_special += part->wrong_special;
    sum->undecided += part->undecided;
    sum->precise += part->precise;
    for (int i = 0; i < 4; i++) {
        sum->below[i] += part->below[i];
    }
    if (part->max_ulp > sum->max_ulp) {
        sum->max_ulp = part->max_ulp;
        sum->at = part->at;
    }
    for (int i = 0; i < ISAS; i++) {
        sum->different_at[i] = sum->different[i] || !part->different[i] ? sum->different_at[i] : part->different_at[i];
        sum->compared[i] += part->compared[i];
        sum->different[i] += part->different[i];
    }
}

/* ---- Which inputs, which instruction sets ------------------------------------------------------------------------- */

typedef struct plan {
    uint64_t step; /* every step-th bit pattern */
    bool wanted[ISAS];
    int first; /* the instruction set that is held against the oracle */
    bool all_scalar, oracle;
} plan;

/* Is this chunk one that the instruction set takes? */
static bool takes_part(const plan *p, int isa, int64_t chunk) {
    const bool some = p->first != isa && p->step == 1 && !p->all_scalar;
    const int share = some && isa == NAPIER_ISA_SCALAR ? SCALAR_SHARE : some && isa == SCALAR_FMA ? FMA_SHARE : 1;
    return p->wanted[isa] && chunk % share == 0;
}

static int64_t chunks_of(const plan *p) {
    const uint64_t inputs = ((UINT64_C(1) << 32) + p->step - 1) / p->step;
    return (int64_t)((inputs + CHUNK - 1) / CHUNK);
}

static int64_t fill_chunk(const plan *p, int64_t chunk, float *x) {
    int64_t n = 0;
    uint64_t bits = (uint64_t)chunk * CHUNK * p->step;
    for (; n < CHUNK && bits <= UINT32_MAX; n++, bits += p->step) {
        x[n] = float_of((uint32_t)bits);
    }
    return n;
}

static void compare_bits(const float *want, const float *got, const float *x, int64_t n, int isa, tally *t) {
    t->compared[isa] += (uint64_t)n;
    const bool same = memcmp(want, got, (size_t)n * sizeof *want) == 0;
    for (int64_t i = 0; i < n && !same; i++) {
        if (bits_of(want[i]) != bits_of(got[i])) {
            t->different_at[isa] = t->different[isa] ? t->different_at[isa] : bits_of(x[i]);
            t->different[isa]++;
        }
    }
}

static void do_chunk(const plan *p, const function *f, int64_t chunk, tally *t) {
    static _Thread_local float x[CHUNK], first[CHUNK], other[CHUNK];
    const int64_t n = fill_chunk(p, chunk, x);
    t->inputs += (uint64_t)n;
    f->of(math_of(p->first))(x, first, n);
    t->checksum += checksum_of(x, first, n);
    if (p->oracle) {
        judge(f, x, first, n, t);
    }
    for (int isa = 0; isa < ISAS; isa++) {
        if (takes_part(p, isa, chunk) && isa != p->first) {
            f->of(math_of(isa))(x, other, n);
            compare_bits(first, other, x, n, isa, t);
        }
    }
}

/* Prints what the oracle found. False if a result is wrong. */
static bool report_verdict(const plan *p, const function *f, const tally *sum) {
    const double ordinary = (double)(sum->correct + sum->faithful + sum->above);
    printf("%s isa=%s inputs=%llu max_ulp=%.6f at=0x%08x x=%a correct=%llu (%.4f%%) faithful=%llu above_1ulp=%llu "
           "up_to_0.55=%llu up_to_0.65=%llu up_to_0.8=%llu up_to_1=%llu special=%llu wrong_special=%llu precise=%llu "
           "undecided=%llu",
           f->name, name_of(p->first), (unsigned long long)sum->inputs, sum->max_ulp, (unsigned)sum->at,
           (double)float_of(sum->at), (unsigned long long)sum->correct, 100 * (double)sum->correct / ordinary,
           (unsigned long long)sum->faithful, (unsigned long long)sum->above, (unsigned long long)sum->below[0],
           (unsigned long long)sum->below[1], (unsigned long long)sum->below[2], (unsigned long long)sum->below[3],
           (unsigned long long)sum->special, (unsigned long long)sum->wrong_special, (unsigned long long)sum->precise,
           (unsigned long long)sum->undecided);
    if (sum->wrong_special) {
        printf(" first_wrong_special=0x%08x", (unsigned)sum->special_at);
    }
    printf("\n");
    return sum->above == 0 && sum->wrong_special == 0;
}

/* ---- Runs over the threads of a context, each with a tally of its own ------------------------------------------------ */

enum { MOST_WORKERS = 1024, AT_ONCE = 16 };

static napier_context *context;

typedef struct function_run {
    const plan *plan;
    const function *f;
    tally of_worker[MOST_WORKERS];
} function_run;

static void do_chunks(void *argument, int worker, int64_t begin, int64_t end) {
    function_run *const run = argument;
    for (int64_t c = begin; c < end; c++) {
        do_chunk(run->plan, run->f, c, &run->of_worker[worker]);
    }
}

static bool run_function(const plan *p, const function *f) {
    static function_run run;
    const double start = seconds();
    tally sum = {0};
    memset(&run, 0, sizeof run);
    run.plan = p;
    run.f = f;
    napier_parallel(context, chunks_of(p), AT_ONCE, do_chunks, &run);
    for (int i = 0; i < napier_context_threads(context); i++) {
        add_tally(&sum, &run.of_worker[i]);
    }
    bool good = p->oracle ? report_verdict(p, f, &sum) : true;
    printf("%s isa=%s inputs=%llu checksum=0x%016llx seconds=%.1f\n", f->name, name_of(p->first),
           (unsigned long long)sum.inputs, (unsigned long long)sum.checksum, seconds() - start);
    if (p->step == 1 && sum.checksum != f->checksum) {
        printf("%s: the checksum should be 0x%016llx; --full --oracle shows whether the results are wrong\n", f->name,
               (unsigned long long)f->checksum);
        good = false;
    }
    for (int isa = 0; isa < ISAS; isa++) {
        if (p->wanted[isa] && isa != p->first) {
            printf("%s isa=%s inputs=%llu different_bits=%llu", f->name, name_of(isa),
                   (unsigned long long)sum.compared[isa], (unsigned long long)sum.different[isa]);
            if (sum.different[isa]) {
                printf(" first=0x%08x", (unsigned)sum.different_at[isa]);
                good = false;
            }
            printf("\n");
        }
    }
    fflush(stdout);
    return good;
}

/* ---- Conversions ---------------------------------------------------------------------------------------------------- */

/* To nearest even, from the formats: keep the high bits, look at what is cut off. */
static uint16_t cut(uint32_t kept, uint32_t rest, uint32_t half) {
    return (uint16_t)(kept + (rest > half || (rest == half && (kept & 1))));
}

static uint16_t bf16_of(uint32_t f) {
    return (f & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : cut(f >> 16, f & 0xffff, 0x8000);
}

static uint16_t f16_of(uint32_t f) {
    const uint32_t sign = f >> 16 & 0x8000, magnitude = f & 0x7fffffff;
    const int exponent = (int)(magnitude >> 23) - 127;
    if (magnitude > 0x7f800000) {
        return 0x7e00;
    }
    if (exponent > 15) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (exponent < -25) {
        return (uint16_t)sign;
    }
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const int cut_off = exponent < -14 ? -1 - exponent : 13; /* bits below the result's last place */
    const uint32_t kept = (significand >> cut_off) + (exponent < -14 ? 0 : (uint32_t)(exponent + 14) << 10);
    return (uint16_t)(sign | cut(kept, significand & ((1u << cut_off) - 1), 1u << (cut_off - 1)));
}

static uint32_t wide_of_bf16(uint16_t b) { return (b & 0x7fff) > 0x7f80 ? CANONICAL_NAN : (uint32_t)b << 16; }

static uint32_t wide_of_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, fraction = h & 0x3ff;
    const int exponent = h >> 10 & 0x1f;
    if (exponent == 31) {
        return fraction ? (uint32_t)CANONICAL_NAN : sign | PLUS_INFINITY;
    }
    const double magnitude = exponent ? ldexp(fraction + 1024.0, exponent - 25) : ldexp((double)fraction, -24);
    return sign | bits_of((float)magnitude);
}

typedef struct narrowing {
    uint64_t inputs, wrong;
    uint32_t at;
} narrowing;

static void report(const char *name, int isa, const narrowing *w, double since) {
    printf("%s isa=%s inputs=%llu wrong=%llu", name, name_of(isa), (unsigned long long)w->inputs,
           (unsigned long long)w->wrong);
    if (w->wrong) {
        printf(" first=0x%08x", (unsigned)w->at);
    }
    printf(" seconds=%.1f\n", seconds() - since);
    fflush(stdout);
}

static void narrow_chunk(const plan *p, int64_t chunk, bool half, narrowing *wrong) {
    static _Thread_local float x[CHUNK];
    static _Thread_local uint16_t want[CHUNK], got[CHUNK];
    const int64_t n = fill_chunk(p, chunk, x);
    for (int64_t i = 0; i < n; i++) {
        want[i] = half ? f16_of(bits_of(x[i])) : bf16_of(bits_of(x[i]));
    }
    for (int isa = 0; isa < ISAS; isa++) {
        if (!takes_part(p, isa, chunk)) {
            continue;
        }
        wrong[isa].inputs += (uint64_t)n;
        const napier_math_kernels *const math = math_of(isa);
        (half ? math->f32_to_f16 : math->f32_to_bf16)(x, got, n);
        for (int64_t i = 0; i < n && memcmp(want, got, (size_t)n * sizeof *want) != 0; i++) {
            if (want[i] != got[i]) {
                wrong[isa].at = wrong[isa].wrong ? wrong[isa].at : bits_of(x[i]);
                wrong[isa].wrong++;
                got[i] = want[i];
            }
        }
    }
}

typedef struct narrowing_run {
    const plan *plan;
    bool half;
    narrowing of_worker[MOST_WORKERS][ISAS];
} narrowing_run;

static void narrow_chunks(void *argument, int worker, int64_t begin, int64_t end) {
    narrowing_run *const run = argument;
    for (int64_t c = begin; c < end; c++) {
        narrow_chunk(run->plan, c, run->half, run->of_worker[worker]);
    }
}

static bool run_narrowing(const plan *p, bool half) {
    static narrowing_run run;
    const double start = seconds();
    narrowing wrong[ISAS] = {{0}};
    bool good = true;
    memset(&run, 0, sizeof run);
    run.plan = p;
    run.half = half;
    napier_parallel(context, chunks_of(p), AT_ONCE, narrow_chunks, &run);
    for (int i = 0; i < napier_context_threads(context) * ISAS; i++) {
        const int isa = i % ISAS;
        const narrowing *const one = &run.of_worker[i / ISAS][isa];
        wrong[isa].at = wrong[isa].wrong ? wrong[isa].at : one->at;
        wrong[isa].wrong += one->wrong;
        wrong[isa].inputs += one->inputs;
    }
    for (int isa = 0; isa < ISAS; isa++) {
        if (p->wanted[isa]) {
            report(half ? "f32_to_f16" : "f32_to_bf16", isa, &wrong[isa], start);
            good = good && wrong[isa].wrong == 0;
        }
    }
    return good;
}

static bool run_widening(const plan *p, bool half) {
    static uint16_t x[65536];
    static float y[65536];
    bool good = true;
    for (int isa = 0; isa < ISAS; isa++) {
        if (!p->wanted[isa]) {
            continue;
        }
        const double start = seconds();
        const napier_math_kernels *const math = math_of(isa);
        narrowing wrong = {65536, 0, 0};
        for (uint32_t i = 0; i < 65536; i++) {
            x[i] = (uint16_t)i;
        }
        (half ? math->f16_to_f32 : math->bf16_to_f32)(x, y, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            if (bits_of(y[i]) != (half ? wide_of_f16(x[i]) : wide_of_bf16(x[i]))) {
                wrong.at = wrong.wrong ? wrong.at : i;
                wrong.wrong++;
            }
        }
        report(half ? "f16_to_f32" : "bf16_to_f32", isa, &wrong, start);
        good = good && wrong.wrong == 0;
    }
    return good;
}

/* ---- Quotients by one divisor (core/math/divide.h) ------------------------------------------------------------------ */

/* A middling number of either sign. Of 8, two have significands near 1 or 2, and one has few bits. */
static float middling(uint64_t draw) {
    const uint32_t fraction = draw & 0x7fffff, exponent = 67 + (uint32_t)(draw >> 32) % 120;
    const uint32_t of[] = {fraction & 0xff, 0x7fffff - (fraction & 0xff), fraction & 0x7f0000};
    const uint32_t kind = draw >> 29 & 7;
    return float_of((uint32_t)(draw >> 63) << 31 | exponent << 23 | (kind < 3 ? of[kind] : fraction));
}

static bool run_quotients(const plan *p) {
    const uint64_t count = p->step == 1 ? 30000000 : 1000000;
    uint64_t state = 1, wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        float pair[2];
        for (int k = 0; k < 2; k++) { /* splitmix64 */
            uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
            z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
            z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
            pair[k] = middling(z ^ z >> 31);
        }
        const float divisor = fabsf(pair[1]), quotient = napier_divide_by(pair[0], divisor, 1.0f / divisor);
        wrong += !napier_is_middling(pair[0]) || bits_of(quotient) != bits_of(pair[0] / divisor);
    }
    printf("quotients: %llu, %llu differ from IEEE's division\n", (unsigned long long)count, (unsigned long long)wrong);
    return wrong == 0;
}

/* ---- The program -------------------------------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr, "usage: exhaustive [--full | --sample K] [--oracle] [--all-scalar] [--isa "
                    "scalar|avx2|avx512|neon]...   (K odd)\n");
    return 2;
}

static bool parse(int argc, char **argv, plan *p) {
    bool some = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0) {
            p->step = 1;
        } else if (strcmp(argv[i], "--all-scalar") == 0) {
            p->all_scalar = true;
        } else if (strcmp(argv[i], "--oracle") == 0) {
            p->oracle = true;
        } else if (strcmp(argv[i], "--sample") == 0 && i + 1 < argc) {
            p->step = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            i++;
            for (int isa = NAPIER_ISA_SCALAR; isa < ISAS; isa++) {
                if (strcmp(argv[i], napier_isa_name((napier_isa)isa)) == 0) {
                    p->wanted[isa] = some = true;
                }
            }
        } else {
            return false;
        }
    }
    for (int isa = NAPIER_ISA_SCALAR; isa < ISAS; isa++) {
        p->wanted[isa] = (p->wanted[isa] || !some) && napier_isa_available((napier_isa)isa);
        p->first = p->wanted[isa] ? isa : p->first;
        if (!napier_isa_available((napier_isa)isa)) {
            printf("skipped isa=%s: not in this build or not on this machine\n", napier_isa_name((napier_isa)isa));
        }
    }
#ifdef NAPIER_TEST_SCALAR_FMA
    p->wanted[SCALAR_FMA] = p->wanted[NAPIER_ISA_SCALAR] && napier_isa_available(NAPIER_ISA_AVX2);
#endif
    p->oracle = p->oracle || p->step != 1;
    return p->step % 2 == 1 && p->step < UINT32_MAX && p->first;
}

int main(int argc, char **argv) {
    plan p = {1, {false}, 0, false, false};
    if (!parse(argc, argv, &p)) {
        return usage();
    }
#ifndef NAPIER_TEST_MPFR
    printf("skipped mpfr: not in this build; what the double oracle cannot decide is counted as undecided\n");
#endif
    if (napier_context_create(&context, NULL) != NAPIER_OK) {
        return 1;
    }
    int passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *(run_function(&p, &functions[i]) ? &passed : &failed) += 1;
    }
    for (int half = 0; half < 2; half++) {
        *(run_widening(&p, half) ? &passed : &failed) += 1;
        *(run_narrowing(&p, half) ? &passed : &failed) += 1;
    }
    *(run_quotients(&p) ? &passed : &failed) += 1;
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
