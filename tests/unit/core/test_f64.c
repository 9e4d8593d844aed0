/* Double precision: exp, log, log1p and the conversions against MPFR and the formats' definitions; the exact sum in any
 * grouping and order; rows of every kind against MPFR; the operations in every layout, split and number of threads; and
 * the gradients against long double. */
#include "support/check.h"

#include <float.h>
#include <math.h>
#include <mpfr.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "core/base/context.h"
#include "core/math/f64.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/f64/softmax_f64.h"
#include "ops/softmax/weighted/weighted_f64.h"
#include "support/formats.h"
#include "support/oracle.h"

/* ---- Functions --------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 300000 };

typedef int mpfr_function(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

/* The worst error seen of one function. */
typedef struct worst {
    double ulp, at;
} worst;

/* |y - f(x)| in units of the spacing of doubles at f(x). */
static double error_in_ulp(mpfr_function *f, double x, double y) {
    mpfr_t truth, input;
    mpfr_init2(truth, 160);
    mpfr_init2(input, 53);
    mpfr_set_d(input, x, MPFR_RNDN);
    f(truth, input, MPFR_RNDN);
    const double nearest = mpfr_get_d(truth, MPFR_RNDN);
    double error = y == nearest ? 0 : HUGE_VAL;
    if (isfinite(nearest) && isfinite(y)) {
        int exponent = -1074;
        if (nearest != 0 && ilogb(nearest) - 52 > exponent) {
            exponent = ilogb(nearest) - 52;
        }
        mpfr_sub_d(truth, truth, y, MPFR_RNDN);
        mpfr_mul_2si(truth, truth, -exponent, MPFR_RNDN);
        error = fabs(mpfr_get_d(truth, MPFR_RNDN));
    }
    mpfr_clear(truth);
    mpfr_clear(input);
    return error;
}

static void compare(worst *w, mpfr_function *f, double x, double y) {
    const double error = error_in_ulp(f, x, y);
    if (!(error <= w->ulp)) {
        w->ulp = error;
        w->at = x;
    }
}

static void expect_worst(const worst *w, double bound, const char *name) {
    printf("  %s: at most %.4f ulp, at %a\n", name, w->ulp, w->at);
    expect(w->ulp <= bound, "%s errs by %g ulp at %a, more than %g", name, w->ulp, w->at, bound);
}

/* In (-1/2, 1/2) times 2^least .. 2^(least + count - 1). Two draws, one after the other: the order in which arguments
 * of one call are evaluated is the compiler's choice. */
static double at_some_scale(rng *r, int least, int count) {
    const double fraction = rng_uniform(r) - 0.5;
    return ldexp(fraction, least + (int)rng_below(r, count));
}

static double near_zero(rng *r) { return at_some_scale(r, -59, 60); }

static double any_positive(rng *r) {
    const double x = f64_of_bits(rng_bits(r) >> 1);
    return x < HUGE_VAL ? x : 1.5;
}

/* Arguments whose function value lies within 1e-5 of its spacing of the middle of two doubles (the nearest of 150,000
 * random ones, by mpmath), or next to 1. */
static const double hard_exp[] = {0x1.aa5f15d052efcp+3,
                                  0x1.14718a7423240p+4,
                                  0x1.37bf6de92c180p+3,
                                  -0x1.071f6bc2c1219p+3,
                                  0x1.221c0200ae706p+3,
                                  0x1.b36652a920600p+1,
                                  0x1.fffffffffffffp-53,
                                  0x1p-53,
                                  -0x1p-54,
                                  -0x1p-53};
static const double hard_log[] = {0x1.33278271b40c6p+1, 0x1.88a70cd3829cap-1, 0x1.ce8d43c779476p+0,
                                  0x1.3832453448876p+1, 0x1.04a2a63a9c6d0p-1, 0x1.37afe2d43736bp+0,
                                  0x1.fffffffffffffp-1, 0x1.0000000000001p+0};
static const double hard_log1p[] = {0x1.d9951607f7cddp+1,
                                    0x1.1de71e0c10c5ep+1,
                                    0x1.31472bcfd1dbep+2,
                                    0x1.bde8948ef2806p+0,
                                    0x1.70d1885919b42p+1,
                                    0x1.ab7e1716f3194p+0,
                                    0x1p-53,
                                    -0x1p-53,
                                    0x1p-54,
                                    0x1.fffffffffffffp-55};

static void compare_all(worst *w, mpfr_function *f, double (*ours)(double), const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        compare(w, f, x[i], ours(x[i]));
    }
}

static void test_exp(void) {
    rng r = rng_make(1);
    worst normal = {0, 0}, subnormal = {0, 0};
    for (int i = 0; i < SAMPLES; i++) {
        const double u = rng_uniform(&r);
        const double x = i % 4 == 0 ? 709.79 * u : i % 4 == 1 ? -708.39 * u : i % 4 == 2 ? near_zero(&r) : u - 0.5;
        compare(&normal, mpfr_exp, x, napier_f64_exp(x));
        const double y = -708.3 - 37.2 * u;
        compare(&subnormal, mpfr_exp, y, napier_f64_exp(y));
    }
    compare_all(&normal, mpfr_exp, napier_f64_exp, hard_exp, sizeof hard_exp / sizeof hard_exp[0]);
    /* Around every multiple of ln 2, where n changes. */
    for (int n = -1020; n < 1024; n++) {
        double x = (n + 0.5) * 0x1.62e42fefa39efp-1;
        for (int k = 0; k < 3; k++, x = nextafter(x, HUGE_VAL)) {
            compare(&normal, mpfr_exp, x, napier_f64_exp(x));
        }
    }
    expect_worst(&normal, 0.54, "exp");
    expect_worst(&subnormal, 0.54, "exp, subnormal");
    expect(napier_f64_exp(0) == 1 && napier_f64_exp(-0.0) == 1, "exp(0) is not 1");
    expect(napier_f64_exp(HUGE_VAL) == HUGE_VAL && napier_f64_exp(-HUGE_VAL) == 0, "exp of the infinities");
    expect(napier_f64_exp(0x1.62e42fefa39efp+9) < HUGE_VAL, "the last finite exp");
    expect(napier_f64_exp(nextafter(0x1.62e42fefa39efp+9, 800)) == HUGE_VAL, "the first exp that overflows");
    expect(napier_f64_exp(-745.13) == 0x1p-1074 && napier_f64_exp(-745.14) == 0, "the last exp above 0");
    expect(napier_f64_exp(-DBL_MAX) == 0 && napier_f64_exp(DBL_MAX) == HUGE_VAL, "exp(+-DBL_MAX)");
    expect(f64_bits(napier_f64_exp(f64_of_bits(UINT64_C(0xfff4000000000001)))) == dtype_canonical_nan(NAPIER_F64),
           "exp of a NaN");
}

/* p and n of arguments up to 2^62, and that n never falls. */
static void test_exp_parts(void) {
    rng r = rng_make(2);
    mpfr_t n_log2, truth;
    mpfr_init2(n_log2, 400);
    mpfr_init2(truth, 400);
    double largest = 0;
    for (int i = 0; i < SAMPLES / 4; i++) {
        double x = at_some_scale(&r, 1, 63);
        if (i % 2 == 0) { /* near a change of n */
            x = (rint(x) + 0.5) * 0x1.62e42fefa39efp-1;
        }
        const napier_f64_parts e = napier_f64_exp_parts(x);
        mpfr_const_log2(n_log2, MPFR_RNDN);
        mpfr_mul_si(n_log2, n_log2, (long)e.n, MPFR_RNDN);
        mpfr_d_sub(truth, x, n_log2, MPFR_RNDN);
        mpfr_exp(truth, truth, MPFR_RNDN);
        mpfr_sub_d(truth, truth, e.p, MPFR_RNDN);
        mpfr_sub_d(truth, truth, e.low, MPFR_RNDN);
        const double error = fabs(mpfr_get_d(truth, MPFR_RNDN));
        largest = error > largest ? error : largest;
        expect(e.p >= 0.70 && e.p <= 1.42 && fabs(e.low) <= 0x1p-53, "exp(%a) = (%a + %a) 2^%lld", x, e.p, e.low,
               (long long)e.n);
        double y = x;
        int64_t n = e.n;
        for (int k = 0; k < 4; k++) {
            y = nextafter(y, HUGE_VAL);
            const int64_t next = napier_f64_exp_parts(y).n;
            expect(next >= n, "n falls from %lld to %lld at %a", (long long)n, (long long)next, y);
            n = next;
        }
    }
    mpfr_clear(n_log2);
    mpfr_clear(truth);
    printf("  p + low: off by at most 2^%.1f\n", log2(largest));
    expect(largest < 0x1p-58, "p + low off by %g", largest);
}

static void test_log(void) {
    rng r = rng_make(3);
    worst log_worst = {0, 0}, log1p_worst = {0, 0};
    for (int i = 0; i < SAMPLES; i++) {
        const double x = i % 3 == 0 ? any_positive(&r) : i % 3 == 1 ? 0.5 + rng_uniform(&r) : 1 + near_zero(&r);
        const double y = i % 3 == 0 ? any_positive(&r) : i % 3 == 1 ? 2 * rng_uniform(&r) - 0.99 : near_zero(&r);
        compare(&log_worst, mpfr_log, x, napier_f64_log(x));
        compare(&log1p_worst, mpfr_log1p, y, napier_f64_log1p(y));
    }
    compare_all(&log_worst, mpfr_log, napier_f64_log, hard_log, sizeof hard_log / sizeof hard_log[0]);
    compare_all(&log1p_worst, mpfr_log1p, napier_f64_log1p, hard_log1p, sizeof hard_log1p / sizeof hard_log1p[0]);
    for (int j = 0; j <= 64; j++) { /* the ends of the table's intervals */
        double x = nextafter(1 + j / 64.0, 0);
        for (int k = 0; k < 3; k++, x = nextafter(x, 4)) {
            compare(&log_worst, mpfr_log, x, napier_f64_log(x));
            compare(&log1p_worst, mpfr_log1p, x - 1, napier_f64_log1p(x - 1));
        }
    }
    expect_worst(&log_worst, 0.501, "log");
    expect_worst(&log1p_worst, 0.501, "log1p");
    expect(napier_f64_log(1) == 0 && napier_f64_log(0) == -HUGE_VAL && napier_f64_log(-0.0) == -HUGE_VAL, "log");
    expect(isnan(napier_f64_log(-1)) && isnan(napier_f64_log(-HUGE_VAL)) && isnan(napier_f64_log((double)NAN)),
           "log of these");
    expect(napier_f64_log(HUGE_VAL) == HUGE_VAL && napier_f64_log1p(HUGE_VAL) == HUGE_VAL, "log(inf)");
    expect(napier_f64_log1p(-1) == -HUGE_VAL && isnan(napier_f64_log1p(-1.5)) && isnan(napier_f64_log1p((double)NAN)),
           "log1p");
    expect(napier_f64_log1p(0x1p-1074) == 0x1p-1074 && napier_f64_log1p(0) == 0, "log1p of next to nothing");
}

/* The low part too, which the operations count on. */
static void test_log_of_sum(void) {
    rng r = rng_make(4);
    mpfr_t truth;
    mpfr_init2(truth, 500);
    double largest = 0;
    for (int i = 0; i < SAMPLES / 3; i++) {
        const double count = i % 2 == 0 ? 1 : (double)(1 + (rng_bits(&r) >> (24 + i % 40)));
        const double rest = fabs(at_some_scale(&r, -340, 360));
        const napier_double2 got = napier_f64_log_of_sum(napier_two_sum(count, rest));
        mpfr_set_d(truth, rest, MPFR_RNDN);
        mpfr_add_d(truth, truth, count, MPFR_RNDN);
        mpfr_log(truth, truth, MPFR_RNDN);
        const double whole = mpfr_get_d(truth, MPFR_RNDN);
        mpfr_sub_d(truth, truth, got.high, MPFR_RNDN);
        mpfr_sub_d(truth, truth, got.low, MPFR_RNDN);
        const double error = fabs(mpfr_get_d(truth, MPFR_RNDN) / whole);
        largest = error > largest ? error : largest;
    }
    mpfr_clear(truth);
    printf("  high + low: off by at most 2^%.1f of the value\n", log2(largest));
    expect(largest < 0x1p-60, "log off by %g of its value", largest);
}

static void expect_bits(uint64_t got, uint64_t wanted, const char *what, double x) {
    expect(got == wanted, "%s(%a) = %#llx, not %#llx", what, x, (unsigned long long)got, (unsigned long long)wanted);
}

static void check_narrow(double x) {
    expect_bits(napier_f64_to_f16(x), dtype_bits(NAPIER_F16, x), "to_f16", x);
    expect_bits(napier_f64_to_bf16(x), dtype_bits(NAPIER_BF16, x), "to_bf16", x);
    const uint64_t single = isnan(x) ? dtype_canonical_nan(NAPIER_F32) : dtype_bits(NAPIER_F32, x);
    expect_bits(f32_bits(napier_f64_to_f32(x)), single, "to_f32", x);
}

/* Every 16-bit pattern both ways, the middles between neighbours and what lies next to them, and random doubles. */
static void test_conversions(void) {
    const napier_dtype types[] = {NAPIER_F16, NAPIER_BF16};
    for (int t = 0; t < 2; t++) {
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const uint16_t b = (uint16_t)bits;
            const double x = types[t] == NAPIER_F16 ? napier_f64_from_f16(b) : napier_f64_from_bf16(b);
            const double wanted = dtype_value(types[t], b);
            expect((isnan(x) && isnan(wanted)) || f64_bits(x) == f64_bits(wanted), "%s %#x is %a, not %a",
                   napier_dtype_name(types[t]), (unsigned)bits, x, wanted);
            if (isnan(x)) {
                check_narrow(x);
                continue;
            }
            const double next = dtype_value(types[t], b + 1u);
            const double middle = isfinite(next) ? x / 2 + next / 2 : x;
            check_narrow(x);
            check_narrow(middle);
            check_narrow(nextafter(middle, HUGE_VAL));
            check_narrow(nextafter(middle, -HUGE_VAL));
        }
    }
    rng r = rng_make(6);
    for (int i = 0; i < SAMPLES; i++) {
        check_narrow(f64_of_bits(rng_bits(&r)));
        check_narrow(at_some_scale(&r, -40, 60));
    }
    const double edges[] = {65504,   65519.99,  65520,    0x1.fep127, 0x1.ffp127, 0x1.fffffffffp127, 0x1p-24,  0x1p-25,
                            0x1p-26, 0x1.8p-25, 0x1p-133, 0x1p-134,   0x1p-1074,  DBL_MAX,           HUGE_VAL, 0.0};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        check_narrow(edges[i]);
        check_narrow(-edges[i]);
        check_narrow(nextafter(edges[i], 0));
    }
}

/* ---- The exact sum ----------------------------------------------------------------------------------------------- */

static void add_tile(napier_f64_sum *sum, const double *z, int n) {
    const napier_f64_tile_part part = napier_f64_tile_by_definition(z, n);
    napier_f64_sum_add_part(sum, &part);
}

static void sum_of(napier_f64_sum *sum, const double *z, int64_t n) {
    napier_f64_sum_init(sum);
    for (int64_t i = 0; i < n; i += NAPIER_F64_TILE) {
        add_tile(sum, z + i, n - i < NAPIER_F64_TILE ? (int)(n - i) : NAPIER_F64_TILE);
    }
}

static bool same_sum(const napier_f64_sum *a, const napier_f64_sum *b) {
    return f64_bits(a->max) == f64_bits(b->max) && a->nan == b->nan && a->pinf == b->pinf && a->top == b->top &&
           a->count == b->count && memcmp(a->digit, b->digit, sizeof a->digit) == 0;
}

/* The tiles of a row in a random order, merged in a random tree. */
static void merge_at_random(rng *r, napier_f64_sum *sum, const double *z, int64_t n) {
    enum { MOST = 16 };
    napier_f64_sum part[MOST];
    int parts = 0;
    for (int64_t i = 0; i < n; i += NAPIER_F64_TILE) {
        assert_in_range(parts, 0, MOST - 1);
        const int64_t left = n - i < NAPIER_F64_TILE ? n - i : NAPIER_F64_TILE;
        sum_of(&part[parts++], z + i, left);
    }
    if (rng_below(r, 2) == 0 && parts < MOST) { /* an empty part changes nothing */
        napier_f64_sum_init(&part[parts++]);
    }
    while (parts > 1) {
        const int64_t into = rng_below(r, parts), from = rng_below(r, parts);
        if (into != from) {
            napier_f64_sum_merge(&part[into], &part[from]);
            part[from] = part[--parts];
        }
    }
    *sum = part[0];
}

/* A row of the kind, and for some seeds one whose tiles lie far apart: around the cutoff, beyond it, beyond 2^62. */
static void fill_tiles(rng *r, row_kind kind, uint64_t seed, double *z, int64_t n) {
    row_fill(kind, seed, NAPIER_F64, z, n);
    const double steps[] = {0, 0, 1, 17, 300, 790, 810, 1200, 1e5, 0x1p52, 0x1p61, 0x1p62, 0x1p63, 1e300};
    if (seed % 3 == 0) {
        return;
    }
    for (int64_t i = 0; i < n; i += NAPIER_F64_TILE) {
        const double step = steps[rng_below(r, 14)];
        const double shift = rng_below(r, 2) != 0 ? step : -step;
        for (int64_t k = i; k < n && k < i + NAPIER_F64_TILE; k++) {
            z[k] += shift;
        }
    }
}

static void test_any_order(void) {
    enum { MOST = 12 * 1024 };
    double *z = scratch(MOST, sizeof *z);
    rng r = rng_make(7);
    const int64_t sizes[] = {1, 3, 1024, 1025, 3000, MOST};
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            const int64_t n = sizes[rng_below(&r, 6)];
            fill_tiles(&r, kind, seed, z, n);
            napier_f64_sum in_order, merged;
            sum_of(&in_order, z, n);
            expect(napier_f64_sum_valid(&in_order), "%s, seed %d: a valid sum is refused", row_kind_name(kind),
                   (int)seed);
            for (int tree = 0; tree < 4; tree++) {
                merge_at_random(&r, &merged, z, n);
                expect(same_sum(&in_order, &merged), "%s, seed %d, %lld columns: another order, another sum",
                       row_kind_name(kind), (int)seed, (long long)n);
            }
        }
    }
}

/* What no sum can be is refused, and finishing any bits at all is safe. */
static void test_hostile_sums(void) {
    rng r = rng_make(8);
    double z[2000];
    row_fill(ROW_NORMAL, 1, NAPIER_F64, z, 2000);
    napier_f64_sum good;
    sum_of(&good, z, 2000);
    expect(napier_f64_sum_valid(&good), "a good sum is refused");
    napier_f64_sum bad = good;
    bad.top++;
    expect(!napier_f64_sum_valid(&bad), "a window elsewhere passes");
    bad = good;
    bad.count = 0;
    expect(!napier_f64_sum_valid(&bad), "count 0 passes");
    bad.count = UINT64_C(1) << 40;
    expect(!napier_f64_sum_valid(&bad), "count 2^40 passes");
    bad = good;
    bad.pinf = true;
    expect(!napier_f64_sum_valid(&bad), "+inf without the maximum passes");
    bad = good;
    bad.max = (double)NAN;
    expect(!napier_f64_sum_valid(&bad), "maximum NaN passes");
    bad.max = 1e300;
    expect(!napier_f64_sum_valid(&bad), "digits below a huge maximum pass");
    for (int i = 0; i < 20000; i++) {
        bad = good;
        bad.max = i % 2 == 0 ? f64_of_bits(rng_bits(&r)) : at_some_scale(&r, 0, 66);
        if (bad.max == bad.max && fabs(bad.max) <= 0x1p62) {
            napier_f64_sum_init(&bad);
            add_tile(&bad, &z[0], 0);
            const double one = at_some_scale(&r, 0, 62);
            add_tile(&bad, &one, 1);
        }
        for (int j = 0; j < NAPIER_F64_DIGITS; j++) {
            bad.digit[j] = rng_bits(&r) | (i % 3 == 0 ? UINT64_MAX : 0);
        }
        bad.count = 1 + (rng_bits(&r) >> 25);
        if (napier_f64_sum_valid(&bad)) {
            napier_f64_final final;
            napier_f64_finish(&bad, &final);
            expect(final.lse == final.lse, "a sum without NaN gives NaN");
            napier_f64_sum_merge(&bad, &good);
            napier_f64_finish(&bad, &final);
        }
    }
}

/* ---- Rows against MPFR ------------------------------------------------------------------------------------------- */

/* What double promises (sum_f64.h): the last rounding, 14 * 2^-53 of what is not at the maximum, 2^-64 of log_sum. */
static long double log_bound(const oracle_row *row, long double truth) {
    return 0.51L * dtype_ulp(NAPIER_F64, truth) + 14 * 0x1p-53L * row->mass + 0x1p-64L * row->log_sum;
}

static void check_row(const double *z, int64_t n, const char *what) {
    const oracle_row truth = oracle_reduce_mpfr(z, n);
    napier_f64_sum sum;
    napier_f64_final final;
    double *out = scratch(n, sizeof *out);
    sum_of(&sum, z, n);
    napier_f64_finish(&sum, &final);
    if (truth.outcome != ORACLE_FINITE) {
        const uint64_t nan = dtype_canonical_nan(NAPIER_F64);
        const uint64_t lse = truth.outcome == ORACLE_NAN        ? nan
                             : truth.outcome == ORACLE_PLUS_INF ? f64_bits(HUGE_VAL)
                                                                : f64_bits(-HUGE_VAL);
        expect(f64_bits(final.lse) == lse, "%s: logsumexp is %g", what, final.lse);
        for (int kind = 0; kind < 2; kind++) {
            for (int masked = 0; masked < 2; masked++) {
                const double zero = kind == NAPIER_KIND_SOFTMAX ? 0 : -HUGE_VAL;
                const bool filled = masked == NAPIER_MASKED_ZERO && truth.outcome == ORACLE_ALL_MASKED;
                napier_f64_apply(&final, (napier_softmax_kind)kind, (napier_masked_rows)masked, z, out, n);
                for (int64_t i = 0; i < n; i++) {
                    expect(f64_bits(out[i]) == (filled ? f64_bits(zero) : nan), "%s: [%lld] is %g", what, (long long)i,
                           out[i]);
                }
            }
        }
        return;
    }
    expect(fabsl((long double) final.lse - truth.lse) <= log_bound(&truth, truth.lse),
           "%s: logsumexp %.17g, truth %.21Lg", what, final.lse, truth.lse);
    napier_f64_apply(&final, NAPIER_KIND_LOG_SOFTMAX, NAPIER_MASKED_NAN, z, out, n);
    for (int64_t i = 0; i < n; i++) {
        const long double wanted = oracle_log_softmax(&truth, z[i]);
        const bool far = isinf(z[i]) || wanted < -(long double)DBL_MAX;
        const bool right = far ? out[i] == -HUGE_VAL || (isfinite(z[i]) && out[i] == -DBL_MAX)
                               : fabsl((long double)out[i] - wanted) <= log_bound(&truth, wanted);
        if (!expect(right && out[i] <= 0, "%s: log_softmax of %a is %.17g, truth %.21Lg, off by %.3Lg", what, z[i],
                    out[i], wanted, (long double)out[i] - wanted)) {
            break;
        }
    }
    napier_f64_apply(&final, NAPIER_KIND_SOFTMAX, NAPIER_MASKED_NAN, z, out, n);
    for (int64_t i = 0; i < n; i++) {
        const long double wanted = oracle_softmax(&truth, z[i]);
        const long double bound = 4 * dtype_ulp(NAPIER_F64, wanted) + 14 * 0x1p-53L * truth.mass * wanted;
        const bool right = fabsl((long double)out[i] - wanted) <= bound && out[i] >= 0 && out[i] <= final.max_prob;
        if (!expect(right, "%s: softmax of %a is %.17g, truth %.21Lg, off by %.3Lg", what, z[i], out[i], wanted,
                    (long double)out[i] - wanted)) {
            break;
        }
    }
}

static void test_rows(void) {
    double z[2500];
    char what[128];
    const int64_t sizes[] = {1, 2, 15, 256, 257, 1025, 2500};
    rng r = rng_make(9);
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 14; seed++) {
            const int64_t n = sizes[seed % 7];
            fill_tiles(&r, kind, seed, z, n);
            (void)snprintf(what, sizeof what, "%s, seed %d, %lld columns", row_kind_name(kind), (int)seed,
                           (long long)n);
            check_row(z, n, what);
        }
    }
}

static double lse_of(const double *z, int64_t n) {
    napier_f64_sum sum;
    napier_f64_final final;
    sum_of(&sum, z, n);
    napier_f64_finish(&sum, &final);
    return final.lse;
}

/* The edges one by one: near 0, at the last subnormal, where doubles lie further apart than the cutoff. */
static void test_edges(void) {
    const double rows[][3] = {
        {0, -40, -HUGE_VAL},
        {0, -100, -HUGE_VAL},
        {0, -744, -745},
        {0, -745.13, -745.14},
        {-708, -709, -710},
        {0x1p-1074, -744, -1},
        {0, -799.99, -800.01},
        {DBL_MAX, DBL_MAX, 0},
        {DBL_MAX, -DBL_MAX, 0},
        {-DBL_MAX, -DBL_MAX, -DBL_MAX},
        {0x1p62, 0x1p62 - 512, 0},
        {0x1p62 + 1024, 0x1p62, 0x1p62},
        {-0x1p62, -0x1p62, -0x1p62 - 1024},
        {-0x1p62 + 512, -0x1p62, -0x1p62},
        {0x1p63, 0x1p63 - 1024, 0x1p63},
        {1e18, 1e18 - 128, 1e18 - 256},
        {1e15, 1e15 - 700, 1e15 - 0.125},
        {0x1p53, 0x1p53 - 1, 0x1p53 - 2},
        {-1e30, -1e30, 0},
        {0, -0.0, 0},
        {-0x1.62e42fefa39efp-1, -0x1.62e42fefa39efp-1, -HUGE_VAL},
        {0x1p30, 0x1p30 - 0.5, 0x1p30 - 1},
    };
    char what[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(what, sizeof what, "row %zu of edges", i);
        check_row(rows[i], 3, what);
    }
    const double forty[] = {0, -40}, hundred[] = {0, -100}, one[] = {-123.456};
    expect(lse_of(forty, 2) == 4.2483542552915889e-18, "logsumexp([0,-40]) = %.17g", lse_of(forty, 2));
    expect(lse_of(hundred, 2) == 3.7200759760208361e-44, "logsumexp([0,-100]) = %.17g", lse_of(hundred, 2));
    expect(lse_of(one, 1) == -123.456, "logsumexp of one element");
    expect(lse_of(one, 0) == -HUGE_VAL, "logsumexp of nothing");

    double ties[1500], probs[1500];
    for (int64_t n = 1; n <= 1500; n += 7) { /* n equal elements: the probability is 1/n, rounded */
        napier_f64_sum sum;
        napier_f64_final final;
        for (int64_t i = 0; i < n; i++) {
            ties[i] = 3.7;
        }
        sum_of(&sum, ties, n);
        napier_f64_finish(&sum, &final);
        napier_f64_apply(&final, NAPIER_KIND_SOFTMAX, NAPIER_MASKED_NAN, ties, probs, n);
        expect(probs[n - 1] == 1.0 / (double)n, "%lld ties: %.17g", (long long)n, probs[n - 1]);
    }
}

/* ---- The operations ---------------------------------------------------------------------------------------------- */

/* Every result of a grid of logits, as the rows' sums and finals say it. */
static void expected_row(const double *z, int64_t n, operation op, double *out) {
    napier_f64_sum sum;
    napier_f64_final final;
    sum_of(&sum, z, n);
    napier_f64_finish(&sum, &final);
    if (op == OP_LOGSUMEXP || op == OP_LOGSUMEXP_ALL) {
        out[0] = final.lse;
        return;
    }
    napier_f64_apply(&final, op == OP_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX, NAPIER_MASKED_NAN, z,
                     out, n);
}

static napier_status run(napier_context *c, operation op, napier_const_matrix in, napier_matrix out,
                         const napier_softmax_options *o) {
    static const napier_f64_result results[OPERATIONS] = {NAPIER_F64_SOFTMAX, NAPIER_F64_LOG_SOFTMAX, NAPIER_F64_LSE,
                                                          NAPIER_F64_LSE};
    const napier_f64_job job = {results[op], op == OP_LOGSUMEXP_ALL, in, napier_read_only(NO_MATRIX), out, *o, NULL};
    return napier_f64_run(c, &job);
}

typedef struct setup {
    int64_t rows, cols;
    napier_dtype in, out;
    layout in_layout, out_layout;
    int threads;
    napier_algorithm algorithm;
    double temperature;
} setup;

static void check_operation(operation op, const setup *s, uint64_t seed) {
    napier_context *const c = context_for_test(NAPIER_ISA_SCALAR, s->threads);
    grid in = grid_make(s->in_layout, s->rows, s->cols, s->in);
    grid out = grid_make(s->out_layout, operation_rows(op, s->rows), operation_cols(op, s->cols), s->out);
    grid_fill(&in, ROW_KINDS, seed);
    const napier_softmax_options o = options_of(s->temperature, s->algorithm, NAPIER_MASKED_NAN);
    const bool in_place = s->in == s->out && s->in_layout == s->out_layout && op <= OP_LOG_SOFTMAX && seed % 2 == 0;

    const int64_t n = op == OP_LOGSUMEXP_ALL ? s->rows * s->cols : s->cols;
    double *z = scratch(s->rows * s->cols + 1, sizeof *z), *wanted = scratch(n + 1, sizeof *wanted);
    for (int64_t i = 0; i < s->rows; i++) {
        grid_get_row(&in, i, z + i * s->cols);
    }
    divide_by_temperature(z, z, s->rows * s->cols, s->temperature, NAPIER_F64);
    grid *const result = in_place ? &in : &out;
    succeeded(c, run(c, op, grid_input(&in), result->view, &o), operation_name(op));
    for (int64_t i = 0; i < result->view.rows; i++) {
        expected_row(z + i * n, n, op, wanted);
        for (int64_t j = 0; j < result->view.cols; j++) {
            if (!expect(grid_bits(result, i, j) == dtype_bits(s->out, wanted[j]),
                        "%s, %lld x %lld, %s %s to %s %s, %d threads, algorithm %d: [%lld,%lld] is %#llx, not %a",
                        operation_name(op), (long long)s->rows, (long long)s->cols, napier_dtype_name(s->in),
                        layout_name(s->in_layout), napier_dtype_name(s->out), layout_name(s->out_layout), s->threads,
                        (int)s->algorithm, (long long)i, (long long)j, (unsigned long long)grid_bits(result, i, j),
                        wanted[j])) {
                break;
            }
        }
    }
    expect(grid_damage(&in) == 0 && grid_damage(&out) == 0, "%s wrote outside its elements", operation_name(op));
}

static void test_operations(void) {
    rng r = rng_make(10);
    const int64_t shapes[][2] = {{1, 1}, {5, 3}, {0, 4}, {4, 0}, {23, 17}, {3, 1030}, {2, 40000}, {40, 1}, {700, 9}};
    const int threads[] = {1, 2, 7};
    const double temperatures[] = {1, 0.7, 2};
    for (uint64_t trial = 0; trial < 250; trial++) {
        const int64_t *shape = shapes[rng_below(&r, 9)];
        setup s = {.rows = shape[0], .cols = shape[1]};
        s.in = all_dtypes[rng_below(&r, 4)];
        s.out = all_dtypes[rng_below(&r, 4)];
        s.in_layout = (layout)rng_below(&r, LAYOUTS);
        s.out_layout = (layout)rng_below(&r, LAYOUTS);
        s.threads = threads[rng_below(&r, 3)];
        s.algorithm = (napier_algorithm)rng_below(&r, 4);
        s.temperature = temperatures[rng_below(&r, 3)];
        if (rng_below(&r, 3) == 0) { /* often such that it can be in place */
            s.out = s.in;
            s.out_layout = s.in_layout;
        }
        check_operation((operation)rng_below(&r, OPERATIONS), &s, trial);
    }
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

static void expect_near(double got, long double wanted, long double scale, const char *what, int64_t i) {
    const long double bound = 40 * 0x1p-53L * scale + 0x1p-1074L;
    expect(fabsl((long double)got - wanted) <= bound, "%s [%lld] is %.17g, truth %.21Lg, bound %.3Lg", what,
           (long long)i, got, wanted, bound);
}

enum { COLS = 3000 };

static void check_gradients(int threads, double temperature) {
    static double z[COLS], g[COLS], probs[COLS], logprobs[COLS], out[COLS];
    napier_context *const c = context_for_test(NAPIER_ISA_SCALAR, threads);
    napier_softmax_options o = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    row_fill(ROW_NORMAL, 3, NAPIER_F64, z, COLS);
    row_fill(ROW_NORMAL, 4, NAPIER_F64, g, COLS);
    z[5] = -HUGE_VAL;
    const napier_const_matrix logits = napier_const_rows(z, 1, COLS, NAPIER_F64);
    const napier_const_matrix grad = napier_const_rows(g, 1, COLS, NAPIER_F64);
    const napier_matrix result = napier_rows(out, 1, COLS, NAPIER_F64);
    works(napier_softmax, c, logits, napier_rows(probs, 1, COLS, NAPIER_F64), &o);
    works(napier_log_softmax, c, logits, napier_rows(logprobs, 1, COLS, NAPIER_F64), &o);
    long double dot = 0, sum = 0, size = 0;
    for (int i = 0; i < COLS; i++) {
        dot += (long double)g[i] * (long double)probs[i];
        sum += (long double)g[i];
        size += fabsl((long double)g[i]);
    }
    const long double t = (long double)temperature;
    works(napier_softmax_backward, c, napier_const_rows(probs, 1, COLS, NAPIER_F64), grad, result, &o);
    for (int i = 0; i < COLS; i++) {
        const long double p = (long double)probs[i];
        expect_near(out[i], p * ((long double)g[i] - dot) / t, p * size / t, "softmax_backward", i);
    }
    works(napier_log_softmax_backward, c, napier_const_rows(logprobs, 1, COLS, NAPIER_F64), grad, result, &o);
    for (int i = 0; i < COLS; i++) {
        const long double p = expl((long double)logprobs[i]);
        expect_near(out[i], ((long double)g[i] - p * sum) / t, (fabsl((long double)g[i]) + p * size) / t,
                    "log_softmax_backward", i);
    }
    const double grad_lse = -2.5;
    const napier_const_vector gl = napier_const_array(&grad_lse, 1, NAPIER_F64);
    works(napier_logsumexp_backward, c, logits, gl, result, &o);
    for (int i = 0; i < COLS; i++) {
        expect_near(out[i], (long double)grad_lse * (long double)probs[i] / t, (long double)probs[i] * 2.5L / t,
                    "logsumexp_backward", i);
    }
    /* This is the same as 30 x 100: all elements are one row. In place. */
    double *const copy = scratch(COLS, sizeof *copy);
    memcpy(copy, z, sizeof z);
    const napier_matrix folded = napier_rows(copy, 30, COLS / 30, NAPIER_F64);
    works(napier_logsumexp_all_backward, c, napier_read_only(folded), gl, folded, &o);
    expect(memcmp(copy, out, sizeof out) == 0, "logsumexp_all_backward differs from the same row's logsumexp_backward");

    /* A masked row gives 0, and a gradient of NaN where the probability is 0 touches nothing. */
    double masked[3] = {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL};
    const napier_matrix m = napier_rows(masked, 1, 3, NAPIER_F64);
    works(napier_logsumexp_backward, c, napier_read_only(m), gl, m, &o);
    expect(masked[0] == 0 && masked[1] == 0 && masked[2] == 0, "logsumexp_backward of a masked row is %g", masked[0]);
    double p[3] = {0.25, 0.75, 0}, nan[3] = {1, 2, (double)NAN};
    works(napier_softmax_backward, c, napier_const_rows(p, 1, 3, NAPIER_F64), napier_const_rows(nan, 1, 3, NAPIER_F64),
          napier_rows(nan, 1, 3, NAPIER_F64), &o);
    expect(nan[2] == 0 && isfinite(nan[0]) && isfinite(nan[1]), "a masked position: %g %g %g", nan[0], nan[1], nan[2]);
}

/* Long rows are split over threads; the bits must not tell. */
static void check_split_gradients(void) {
    enum { LONG = 40000 };
    double *y = scratch(LONG, sizeof *y), *g = scratch(LONG, sizeof *g), *first = scratch(LONG, sizeof *first),
           *out = scratch(LONG, sizeof *out);
    row_fill(ROW_NORMAL, 5, NAPIER_F64, y, LONG);
    row_fill(ROW_NORMAL, 6, NAPIER_F64, g, LONG);
    for (int kind = 0; kind < 2; kind++) {
        for (int threads = 1; threads <= 5; threads += 2) {
            napier_context *const c = context_for_test(NAPIER_ISA_SCALAR, threads);
            const napier_const_matrix result = napier_const_rows(y, 1, LONG, NAPIER_F64);
            const napier_const_matrix grad = napier_const_rows(g, 1, LONG, NAPIER_F64);
            const napier_matrix to = napier_rows(threads == 1 ? first : out, 1, LONG, NAPIER_F64);
            succeeded(c, (kind ? napier_softmax_backward : napier_log_softmax_backward)(c, result, grad, to, NULL),
                      "a long row");
            expect(threads == 1 || memcmp(first, out, LONG * sizeof *out) == 0, "kind %d: %d threads change bits", kind,
                   threads);
        }
    }
}

static void test_gradients(void) {
    check_gradients(1, 1);
    check_gradients(3, 0.5);
    check_split_gradients();
}

/* ---- The kernels on 16 lanes ------------------------------------------------------------------------------------- */

static bool same_doubles(const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) {
        if (f64_bits(a[i]) != f64_bits(b[i])) {
            return false;
        }
    }
    return true;
}

static void check_kernels(const napier_softmax_kernels *k, const char *isa, const double *x, const double *b, int n) {
    napier_f64_tile_part part;
    double terms[NAPIER_F64_TILE];
    const napier_f64_tile_part wanted = napier_f64_tile_by_definition(x, n);
    const bool kept = k->f64_tile(x, n, &part, terms);
    napier_f64_tile_part without;
    expect(!k->f64_tile(x, n, &without, NULL), "%s: terms are kept in no memory", isa);
    expect(f64_bits(part.rest) == f64_bits(without.rest), "%s: terms change the sum of %d elements", isa, n);
    expect(f64_bits(part.max) == f64_bits(wanted.max) && part.count == wanted.count && part.nan == wanted.nan &&
               (part.nan || f64_bits(part.rest) == f64_bits(wanted.rest)),
           "%s: a tile of %d elements, max %g: sum %a instead of %a", isa, n, wanted.max, part.rest, wanted.rest);

    napier_f64_sum sum;
    napier_f64_final final;
    napier_f64_sum_init(&sum);
    napier_f64_sum_add_part(&sum, &wanted);
    napier_f64_finish(&sum, &final);
    for (int kind = 0; kind < 2; kind++) {
        double out[NAPIER_F64_TILE], truth[NAPIER_F64_TILE];
        napier_f64_apply(&final, (napier_softmax_kind)kind, NAPIER_MASKED_NAN, x, truth, n);
        for (int with = 0; with <= kept; with++) {
            k->f64_apply(&final, (napier_softmax_kind)kind, NAPIER_MASKED_NAN, x, with ? terms : NULL, out, n);
            expect(same_doubles(out, truth, n), "%s: results of %d elements, max %g, kind %d, %s terms", isa, n,
                   wanted.max, kind, with ? "with" : "without");
        }
    }

    napier_weighted_look look;
    const napier_weighted_look found = napier_f64_weighted_look_by_definition(x, b, n);
    k->f64_weighted_look(x, b, n, &look);
    expect(f64_bits(look.max) == f64_bits(found.max) && f64_bits(look.size) == f64_bits(found.size) &&
               look.unit == found.unit && look.nan == found.nan && look.plus == found.plus && look.minus == found.minus,
           "%s: a weighted tile of %d elements, max %g instead of %g, size %a instead of %a", isa, n, look.max,
           found.max, look.size, found.size);
    if (!found.nan && !found.plus && !found.minus && fabs(found.max) <= NAPIER_F64_HUGE) {
        const double rest = k->f64_weighted_rest(x, b, n, &look);
        const double truth = napier_f64_weighted_rest_by_definition(x, b, n, &found);
        expect(f64_bits(rest) == f64_bits(truth), "%s: a weighted tile of %d elements: sum %a instead of %a", isa, n,
               rest, truth);
    }
}

/* Numbers of a size, some of them equal, some special. */
static double some_number(rng *r, int kind) {
    static const double sizes[] = {1, 30, 1000, 0x1p20, 0x1p28, 0x1p29, 0x1p62, 0x1p900, 0x1p-300, 0x1p-1040};
    static const double specials[] = {-HUGE_VAL, -0.0, 0.0, -1e30, HUGE_VAL, (double)NAN};
    const int special = kind / 10; /* 0: none; 1: masks and zeros; 2: all */
    if (special > 0 && rng_below(r, 50) == 0) {
        return specials[rng_below(r, special == 1 ? 4 : 6)];
    }
    const double x = sizes[kind % 10] * (2 * rng_uniform(r) - 1);
    return rng_below(r, 8) == 0 ? floor(x) : x;
}

static void kernels_have_the_bits_of_the_definitions(void) {
    static const int counts[] = {0, 1, 2, 15, 16, 17, 33, 255, 256, 257, 1000, 1023, 1024};
    double x[NAPIER_F64_TILE], b[NAPIER_F64_TILE];
    napier_isa isas[ISA_LIMIT];
    const int available = available_isas(isas);
    rng r = rng_make(77);
    for (int kinds = 0; kinds < 900; kinds++) {
        const int kind = kinds % 30, weights = kinds / 30;
        const int n = counts[rng_below(&r, sizeof counts / sizeof *counts)];
        const double offset = rng_below(&r, 3) == 0 ? 1e6 : 0;
        for (int i = 0; i < n; i++) {
            x[i] = some_number(&r, kind) + offset;
            b[i] = some_number(&r, weights);
        }
        for (int i = 0; i < available; i++) {
            check_kernels(napier_ops_kernels_of(isas[i])->softmax, napier_isa_name(isas[i]), x, b, n);
        }
    }
}

int main(void) {
    atexit(mpfr_free_cache); /* else its constants count as leaks */
    return RUN_TESTS("f64", TEST(test_exp), TEST(test_exp_parts), TEST(test_log), TEST(test_log_of_sum),
                     TEST(test_conversions), TEST(test_any_order), TEST(test_hostile_sums), TEST(test_rows),
                     TEST(test_edges), TEST(test_operations), TEST(test_gradients),
                     TEST(kernels_have_the_bits_of_the_definitions));
}
