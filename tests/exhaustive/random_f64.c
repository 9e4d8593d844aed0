/* random_f64 - exp, log and log1p in double precision on random and awkward arguments.
 *
 * The oracle is long double where it is wider than double (else the program is skipped, exit status 77); next to a tie or
 * to 1 ulp MPFR is asked. Half the arguments are drawn over all exponents that matter, half from places where an
 * implementation cuts the line: multiples of ln 2 / 2 (exp), powers of two and 1 (log), tiny and -1 (log1p), subnormals,
 * and the ends.
 *
 *     random_f64 [--samples N] [--seed S]     per function; default 2e7 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <float.h>
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
#include "core/math/f64.h"

static uint64_t next(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return (double)(next(state) >> 11) * 0x1p-53; }

/* A few units in the last place aside. */
static double nearby(uint64_t *state, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += next(state) % 64 - 32;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static double any_positive(uint64_t *state) {
    const uint64_t bits = next(state) % (UINT64_C(0x7ff) << 52);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double exp_argument(uint64_t *state) {
    const double sign = next(state) & 1 ? -1 : 1;
    switch (next(state) % 8) {
    case 0: return nearby(state, 0.34657359027997264 * (double)((int64_t)(next(state) % 4300) - 2150));
    case 1: return sign * ldexp(1 + uniform(state), -(int)(next(state) % 60)); /* towards 0 */
    case 2: return -708.0 - 37.5 * uniform(state);                             /* subnormal results */
    case 3: return 709.0 + 0.79 * uniform(state);
    case 4: return nearby(state, sign * (double)(next(state) % 745));
    default: return uniform(state) * 1454.9 - 745.13;
    }
}

static double log_argument(uint64_t *state) {
    switch (next(state) % 8) {
    case 0: return nearby(state, ldexp(1.0, (int)(next(state) % 2046) - 1022));
    case 1: return 1.0 + (next(state) & 1 ? -0.5 : 1.0) * ldexp(1 + uniform(state), -1 - (int)(next(state) % 52));
    case 2: return any_positive(state) * 0x1p-1022; /* most of them subnormal or 0 */
    case 3: return nearby(state, ldexp(1.0 + (double)(next(state) % 16) / 16, (int)(next(state) % 3) - 1));
    case 4: return 0.5 + uniform(state) * 1.5;
    default: return any_positive(state);
    }
}

static double log1p_argument(uint64_t *state) {
    const double sign = next(state) & 1 ? -1 : 1;
    switch (next(state) % 8) {
    case 0: return nearby(state, ldexp(1.0, (int)(next(state) % 200) - 100) - 1.0);
    case 1: return sign * ldexp(1 + uniform(state), -2 - (int)(next(state) % 70));
    case 2: return -1.0 + ldexp(1 + uniform(state), -2 - (int)(next(state) % 50));
    case 3: return (double)(next(state) % (UINT64_C(1) << 40)) + uniform(state);
    case 4: return uniform(state) * 2;
    default: return any_positive(state);
    }
}

typedef struct function {
    const char *name;
    double (*of)(double);
    double (*argument)(uint64_t *state);
    long double (*oracle)(long double);
#ifdef NAPIER_TEST_MPFR
    int (*exact)(mpfr_t, mpfr_srcptr, mpfr_rnd_t);
#endif
} function;

#ifdef NAPIER_TEST_MPFR
#define FUNCTION(name) \
    { #name "_f64", napier_f64_##name, name##_argument, name##l, mpfr_##name }
#else
#define FUNCTION(name) \
    { #name "_f64", napier_f64_##name, name##_argument, name##l }
#endif
static const function functions[] = {FUNCTION(exp), FUNCTION(log), FUNCTION(log1p)};

static int last_place(long double value) {
    int e;
    frexpl(value, &e);
    return value == 0 || e - 53 < -1074 ? -1074 : e - 53;
}

#ifdef NAPIER_TEST_MPFR
static double precise_error(const function *f, double x, double y, int place) {
    mpfr_t exact;
    mpfr_init2(exact, 200);
    mpfr_set_d(exact, x, MPFR_RNDN);
    f->exact(exact, exact, MPFR_RNDN);
    mpfr_sub_d(exact, exact, y, MPFR_RNDN);
    mpfr_mul_2si(exact, exact, -place, MPFR_RNDN);
    const double error = fabs(mpfr_get_d(exact, MPFR_RNDN));
    mpfr_clear(exact);
    return error;
}
#endif

typedef struct tally {
    uint64_t correct, faithful, above, precise, undecided;
    double max_ulp, at;
} tally;

static void judge(const function *f, double x, tally *t) {
    const double y = f->of(x);
    const long double near = f->oracle((long double)x);
    if (isnan(near)) {
        t->above += isnan(y) ? 0 : 1;
        return;
    }
    if (isinf(near) || near > (long double)DBL_MAX) { /* above DBL_MAX either neighbour is faithful */
        const bool right = near > 0 ? y >= DBL_MAX : isinf(y) && y < 0;
        t->above += !right;
        return;
    }
    const int place = last_place(near);
    double error = (double)ldexpl(fabsl((long double)y - near), -place);
    const double doubt = 0x1p-9; /* four units of the last place of an 80-bit long double */
    if (fabs(error - 0.5) < doubt || fabs(error - 1.0) < doubt) {
#ifdef NAPIER_TEST_MPFR
        error = precise_error(f, x, y, place);
        t->precise++;
#else
        t->undecided++;
        error -= doubt;
#endif
    }
    t->correct += error <= 0.5;
    t->faithful += error > 0.5 && error < 1.0;
    t->above += !(error < 1.0);
    if (!(error <= t->max_ulp)) {
        t->max_ulp = isnan(error) ? (double)INFINITY : error;
        t->at = x;
    }
}

enum { BLOCK = 4096, MOST_WORKERS = 1024 };

static napier_context *context;

typedef struct function_run {
    const function *f;
    uint64_t seed;
    tally of_worker[MOST_WORKERS];
} function_run;

static void judge_blocks(void *argument, int worker, int64_t begin, int64_t end) {
    function_run *const run = argument;
    for (int64_t b = begin; b < end; b++) {
        uint64_t state = run->seed * 0x2545f4914f6cdd1du + (uint64_t)b * BLOCK * 0x9e3779b97f4a7c15u;
        for (int i = 0; i < BLOCK; i++) {
            judge(run->f, run->f->argument(&state), &run->of_worker[worker]);
        }
    }
}

static bool run(const function *f, int64_t samples, uint64_t seed) {
    static function_run all_workers;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    tally sum = {0, 0, 0, 0, 0, 0, 0};
    memset(&all_workers, 0, sizeof all_workers);
    all_workers.f = f;
    all_workers.seed = seed;
    napier_parallel(context, (samples + BLOCK - 1) / BLOCK, 4, judge_blocks, &all_workers);
    for (int i = 0; i < napier_context_threads(context); i++) {
        const tally *const one = &all_workers.of_worker[i];
        sum.correct += one->correct;
        sum.faithful += one->faithful;
        sum.above += one->above;
        sum.precise += one->precise;
        sum.undecided += one->undecided;
        sum.at = one->max_ulp > sum.max_ulp ? one->at : sum.at;
        sum.max_ulp = fmax(sum.max_ulp, one->max_ulp);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const uint64_t all = sum.correct + sum.faithful + sum.above;
    printf("%s inputs=%llu max_ulp=%.6f at=%a correct=%llu (%.4f%%) faithful=%llu above_1ulp=%llu precise=%llu "
           "undecided=%llu "
           "seconds=%.1f\n",
           f->name, (unsigned long long)all, sum.max_ulp, sum.at, (unsigned long long)sum.correct,
           100 * (double)sum.correct / (double)all, (unsigned long long)sum.faithful, (unsigned long long)sum.above,
           (unsigned long long)sum.precise, (unsigned long long)sum.undecided,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    fflush(stdout);
    return sum.above == 0;
}

static bool same(double got, double want) { return memcmp(&got, &want, sizeof want) == 0; }

/* What core/math/f64.h says of the ends. */
static bool specials(void) {
    const double inf = (double)INFINITY, nan = napier_f64_nan();
    return same(napier_f64_exp(inf), inf) && same(napier_f64_exp(-inf), 0.0) && same(napier_f64_exp(-nan), nan) &&
           same(napier_f64_exp(0.0), 1.0) && same(napier_f64_exp(-0.0), 1.0) && same(napier_f64_exp(710.0), inf) &&
           same(napier_f64_exp(-746.0), 0.0) && same(napier_f64_exp(-DBL_MAX), 0.0) &&
           same(napier_f64_exp(DBL_MAX), inf) && same(napier_f64_log(0.0), -inf) && same(napier_f64_log(-0.0), -inf) &&
           same(napier_f64_log(inf), inf) && same(napier_f64_log(-1.0), nan) && same(napier_f64_log(-inf), nan) &&
           same(napier_f64_log(-nan), nan) && same(napier_f64_log(1.0), 0.0) && same(napier_f64_log1p(-1.0), -inf) &&
           same(napier_f64_log1p(inf), inf) && same(napier_f64_log1p(-2.0), nan) && same(napier_f64_log1p(-inf), nan) &&
           same(napier_f64_log1p(-nan), nan) && same(napier_f64_log1p(0.0), 0.0);
}

int main(int argc, char **argv) {
    double samples = 2e7;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--samples") == 0 && i + 1 < argc) {
            samples = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: random_f64 [--samples N] [--seed S]\n");
            return 2;
        }
    }
    if (LDBL_MANT_DIG <= DBL_MANT_DIG) {
        printf("skipped: long double is no wider than double on this machine\n");
        return 77;
    }
    if (napier_context_create(&context, NULL) != NAPIER_OK) {
        return 1;
    }
    int passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *(run(&functions[i], (int64_t)samples, seed) ? &passed : &failed) += 1;
    }
    const bool ends = specials();
    printf("special_values %s\n", ends ? "right" : "WRONG");
    *(ends ? &passed : &failed) += 1;
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
