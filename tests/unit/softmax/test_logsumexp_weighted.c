/* napier_logsumexp_weighted: against MPFR, with weights of every sort; weights of 1 and 0 against napier_logsumexp, to the
 * bit; the same bits from every instruction set, number of threads and layout; special values; arguments. */
#include "support/check.h"

#include <math.h>
#include <mpfr.h>
#include <stdlib.h>
#include <stdio.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { BITS = 2500 }; /* what 53-bit weights from 2^-1074 to 2^1023 and terms around them may need */

typedef enum weight_kind {
    WEIGHTS_POSITIVE,
    WEIGHTS_SIGNED,
    WEIGHTS_MASK,
    WEIGHTS_WIDE, /* over most of the dtype's range */
    WEIGHTS_ANY,  /* random bit patterns, zero where not finite */
    WEIGHT_KINDS
} weight_kind;

static const char *const weight_names[] = {"positive", "signed", "mask", "wide", "any"};

static double weight_of(weight_kind kind, napier_dtype dtype, rng *r) {
    const double u = rng_uniform(r), sign = rng_bits(r) & 1 ? 1 : -1;
    const double reach = dtype == NAPIER_F64 ? 900 : dtype == NAPIER_F16 ? 12 : 100;
    double b;
    switch (kind) {
    case WEIGHTS_POSITIVE: return dtype_round(dtype, 0.1 + 2 * u);
    case WEIGHTS_SIGNED: return dtype_round(dtype, rng_normal(r));
    case WEIGHTS_MASK: return u < 0.5 ? 0 : 1;
    case WEIGHTS_WIDE: return dtype_round(dtype, sign * exp2(reach * (2 * u - 1)));
    default: b = dtype_value(dtype, rng_bits(r) >> (64 - 8 * napier_dtype_size(dtype))); return isfinite(b) ? b : 0;
    }
}

/* ---- The truth ---------------------------------------------------------------------------------------------------- */

typedef struct truth {
    long double lse;
    double sign;
    long double spread; /* sum |b| exp(x) over |sum b exp(x)|: how much rounding a term counts */
} truth;

static truth truth_of(const double *x, const double *b, int64_t n) {
    mpfr_t sum, size, term;
    mpfr_inits2(BITS, sum, size, (mpfr_ptr)0);
    mpfr_init2(term, 200);
    mpfr_set_zero(sum, 1);
    mpfr_set_zero(size, 1);
    double max = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        max = b[i] != 0 && x[i] > max ? x[i] : max;
    }
    for (int64_t i = 0; i < n; i++) {
        if (b[i] != 0 && max > -HUGE_VAL) {
            mpfr_set_d(term, x[i], MPFR_RNDN);
            mpfr_sub_d(term, term, max, MPFR_RNDN);
            mpfr_exp(term, term, MPFR_RNDN);
            mpfr_mul_d(term, term, b[i], MPFR_RNDN);
            mpfr_add(sum, sum, term, MPFR_RNDN);
            mpfr_abs(term, term, MPFR_RNDN);
            mpfr_add(size, size, term, MPFR_RNDN);
        }
    }
    truth t = {-HUGE_VALL, mpfr_sgn(sum), 1};
    if (mpfr_sgn(sum) != 0) {
        mpfr_abs(sum, sum, MPFR_RNDN);
        mpfr_div(size, size, sum, MPFR_RNDN);
        t.spread = mpfr_get_ld(size, MPFR_RNDN);
        mpfr_log(sum, sum, MPFR_RNDN);
        mpfr_add_d(sum, sum, max, MPFR_RNDN);
        t.lse = mpfr_get_ld(sum, MPFR_RNDN);
    }
    mpfr_clears(sum, size, term, (mpfr_ptr)0);
    return t;
}

/* ---- Accuracy ------------------------------------------------------------------------------------------------------ */

static void check_row(napier_context *c, row_kind rows, weight_kind weights, napier_dtype dtype, int64_t n,
                      uint64_t seed) {
    double *x = scratch(n, sizeof *x), *b = scratch(n, sizeof *b);
    grid logits = grid_make(LAYOUT_PADDED, 1, n, dtype), factors = grid_make(LAYOUT_EVERY_OTHER, 1, n, dtype);
    rng r = rng_make(seed);
    row_fill(rows, seed, dtype, x, n);
    for (int64_t i = 0; i < n; i++) {
        b[i] = weight_of(weights, dtype, &r);
    }
    grid_set_row(&logits, 0, x);
    grid_set_row(&factors, 0, b);
    const napier_dtype out = dtype == NAPIER_F64 ? NAPIER_F64 : NAPIER_F32;
    double lse[1], sign[1];
    const napier_status status = napier_logsumexp_weighted(c, grid_input(&logits), grid_input(&factors),
                                                           napier_array(lse, 1, out), napier_array(sign, 1, out), NULL);
    const double got = element_get(lse, out, 0), got_sign = element_get(sign, out, 0);
    const truth t = truth_of(x, b, n);
    const long double unit = out == NAPIER_F64 ? 17 * 0x1p-53L : 17 * 0x1p-24L;
    const long double slack = unit * t.spread; /* of the sum, relative */
    const long double bound = slack < 0.5L ? 1.5L * slack + dtype_ulp(out, t.lse) : HUGE_VALL;
    const bool right = slack >= 0.5L || (got_sign == t.sign && oracle_within(got, t.lse, bound, out)) ||
                       (isinf(t.lse) && got == (double)t.lse && got_sign == 0);
    expect(status == NAPIER_OK && right,
           "%s, weights %s, %s, %lld elements, seed %llu: %.17g sign %g, truth %.20Lg sign %g"
           ", spread %.3Lg (%s)",
           row_kind_name(rows), weight_names[weights], napier_dtype_name(dtype), (long long)n, (unsigned long long)seed,
           got, got_sign, t.lse, t.sign, t.spread, napier_last_error(c));
}

static void accurate(napier_context *c) {
    static const row_kind kinds[] = {ROW_NORMAL, ROW_OFFSET,     ROW_PEAKED, ROW_TIES,         ROW_RISING,
                                     ROW_MASKED, ROW_FLUSH_EDGE, ROW_POWERS, ROW_TEN_THOUSAND, ROW_NEAR_ZERO};
    static const int64_t sizes[] = {1, 2, 5, 17, 100, 300};
    uint64_t seed = 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int w = 0; w < WEIGHT_KINDS; w++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++, seed++) {
                check_row(c, kinds[k], (weight_kind)w, all_dtypes[seed % DTYPE_COUNT], sizes[s], seed);
            }
        }
        check_row(c, kinds[k], (weight_kind)(k % WEIGHT_KINDS), all_dtypes[k % DTYPE_COUNT], 2500, seed++);
    }
}

/* ---- Weights of 1 and 0 --------------------------------------------------------------------------------------------- */

/* What is not there is -inf to napier_logsumexp, with the same bits. */
static void check_mask(napier_context *c, row_kind kind, napier_dtype in, napier_dtype out, int64_t n, int keep,
                       uint64_t seed) {
    grid x = grid_plain(2, n, in), masked = grid_plain(2, n, in);
    grid b = grid_plain(2, n, NAPIER_F16);
    grid got = grid_plain(2, 1, out), wanted = grid_plain(2, 1, out);
    rng r = rng_make(seed);
    grid_fill(&x, kind, seed);
    grid_copy(&masked, &x);
    for (int64_t i = 0; i < 2 * n; i++) {
        const bool there = rng_below(&r, 4) < keep;
        grid_set(&b, i / n, i % n, there ? 1 : 0);
        if (!there) {
            grid_set(&masked, i / n, i % n, -HUGE_VAL);
        }
    }
    napier_softmax_options o = options_of(seed % 3 ? 1.0 : 0.7, (napier_algorithm)(seed % 4), NAPIER_MASKED_NAN);
    const napier_vector lse = napier_array(got.view.data, 2, out), sign = {0};
    char what[160];
    snprintf(what, sizeof what, "%s, %s to %s, %lld elements, keep %d of 4, seed %llu", row_kind_name(kind),
             napier_dtype_name(in), napier_dtype_name(out), (long long)n, keep, (unsigned long long)seed);
    succeeded(c, napier_logsumexp_weighted(c, grid_input(&x), grid_input(&b), lse, sign, &o), what);
    succeeded(c, napier_logsumexp(c, grid_input(&masked), napier_array(wanted.view.data, 2, out), &o), what);
    grid_differences(&got, &wanted, what);
}

static void ones_are_plain(void) {
    static const int64_t sizes[] = {0, 1, 7, 16, 17, 255, 1000, 1024, 1025, 2500};
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    napier_context *contexts[ISA_LIMIT];
    for (int i = 0; i < count; i++) {
        contexts[i] = context_for_test(isas[i], 2);
    }
    for (uint64_t seed = 0; seed < 1200; seed++) {
        const napier_dtype in = all_dtypes[seed % 4], out = seed % 7 ? in : all_dtypes[seed / 7 % 4];
        const int64_t n = in == NAPIER_F64 && seed % 10 > 6 ? 300 : sizes[seed % 10];
        check_mask(contexts[(int)(seed / 3) % count], (row_kind)(seed % ROW_KINDS), in, out, n, seed % 2 ? 4 : 2, seed);
    }
    check_mask(contexts[0], ROW_OFFSET, NAPIER_F32, NAPIER_F32, 40000, 4, 5);
    check_mask(contexts[count - 1], ROW_RISING, NAPIER_F32, NAPIER_F32, 300000, 2, 5);
}

/* ---- The same bits from everything ------------------------------------------------------------------------------------ */

static void same_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (uint64_t seed = 0; seed < 40; seed++) {
        static const int64_t sizes[] = {3, 40, 1023, 1500, 5000};
        const int64_t n = sizes[seed % 5], rows = 3;
        const napier_dtype dtype = seed % 8 == 7 ? NAPIER_F64 : all_dtypes[seed % 3];
        grid x = grid_plain(rows, n, dtype), b = grid_plain(rows, n, dtype);
        grid first = grid_plain(rows, 2, dtype);
        rng r = rng_make(seed);
        grid_fill(&x, (row_kind)(seed % ROW_KINDS), seed);
        for (int64_t i = 0; i < rows * n; i++) {
            grid_set(&b, i / n, i % n, weight_of((weight_kind)(seed % WEIGHT_KINDS), dtype, &r));
        }
        for (int k = 0; k < 3 * count; k++) {
            napier_context *c = context_for_test(isas[k / 3], 1 + 2 * (k % 3)); /* 1, 3 and 5 threads */
            const napier_softmax_options o = options_of(1, (napier_algorithm)(k % 4), NAPIER_MASKED_NAN);
            grid x2 = grid_make((layout)(k % LAYOUTS), rows, n, dtype), got = grid_make(LAYOUT_PADDED, rows, 2, dtype);
            grid b2 = grid_make((layout)((k + (int)seed) % LAYOUTS), rows, n, dtype);
            grid_copy(&x2, &x);
            grid_copy(&b2, &b);
            napier_matrix y = got.view;
            const napier_vector lse = {y.data, rows, y.row_stride, dtype};
            const napier_vector sign = {(char *)y.data + napier_dtype_size(dtype), rows, y.row_stride, dtype};
            works(napier_logsumexp_weighted, c, grid_input(&x2), grid_input(&b2), lse, sign, &o);
            expect(grid_damage(&got) == 0, "bytes outside the result have been written");
            if (k == 0) {
                grid_copy(&first, &got);
            } else {
                grid_differences(&got, &first, napier_isa_name(isas[k / 3]));
            }
        }
    }
}

/* ---- Special values ---------------------------------------------------------------------------------------------------- */

typedef struct special {
    int n;
    double x[4], b[4];
    double lse, sign;
} special;

static const double inf = HUGE_VAL, nan_ = (double)NAN;

static void check_special(napier_context *c, const special *s, napier_dtype dtype) {
    double x[4], b[4], lse[1], sign[1], alone[1];
    for (int i = 0; i < s->n; i++) {
        element_set(x, dtype, i, s->x[i]);
        element_set(b, dtype, i, s->b[i]);
    }
    const napier_const_matrix logits = napier_const_rows(x, 1, s->n, dtype),
                              weights = napier_const_rows(b, 1, s->n, dtype);
    const napier_vector y = napier_array(lse, 1, dtype), none = {0};
    works(napier_logsumexp_weighted, c, logits, weights, y, napier_array(sign, 1, dtype), NULL);
    works(napier_logsumexp_weighted, c, logits, weights, napier_array(alone, 1, dtype), none, NULL);
    const uint64_t nan = dtype_canonical_nan(dtype);
    expect(element_bits(lse, dtype, 0) == (isnan(s->lse) ? nan : dtype_bits(dtype, s->lse)) &&
               element_bits(sign, dtype, 0) == (isnan(s->sign) ? nan : dtype_bits(dtype, s->sign)) &&
               element_bits(alone, dtype, 0) == (s->sign < 0 ? nan : element_bits(lse, dtype, 0)),
           "%s, %d elements from %g * exp(%g): %g sign %g, wanted %g sign %g", napier_dtype_name(dtype), s->n, s->b[0],
           s->x[0], element_get(lse, dtype, 0), element_get(sign, dtype, 0), s->lse, s->sign);
}

static void special_values(void) {
    const special all[] = {
        {0, {0}, {0}, -inf, 0},
        {1, {5}, {0}, -inf, 0},
        {1, {5}, {1}, 5, 1},
        {1, {5}, {-1}, 5, -1},
        {1, {-inf}, {-3}, -inf, 0},
        {2, {7, 7}, {1, -1}, -inf, 0},
        {4, {7, 7, 2, 2}, {3, -3, 1, -1}, -inf, 0},
        {3, {7, 7, 2}, {3, -3, -1}, 2, -1},
        {2, {inf, 2}, {0, 1}, 2, 1},
        {2, {nan_, 2}, {0, 1}, 2, 1},
        {2, {nan_, 2}, {1, 1}, nan_, nan_},
        {2, {1, 2}, {nan_, 1}, nan_, nan_},
        {2, {inf, 2}, {1, 1}, inf, 1},
        {2, {inf, 2}, {-2, 1}, inf, -1},
        {2, {inf, inf}, {1, -1}, nan_, nan_},
        {2, {1, 2}, {inf, 1}, inf, 1},
        {2, {1, 2}, {-inf, 1}, inf, -1},
        {2, {-inf, 2}, {inf, 1}, nan_, nan_},
        {2, {0, -100}, {-0.0, 1}, -100, 1},
        {3, {60000, 60000, 30000}, {1, -1, 1}, -inf, 0}, /* out of reach of what cancelled */
    };
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int k = 0; k < count; k++) {
        napier_context *c = context_for_test(isas[k], 1);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            for (int d = 0; d < DTYPE_COUNT; d++) {
                check_special(c, &all[i], all_dtypes[d]);
            }
        }
    }
}

/* ---- Arguments ----------------------------------------------------------------------------------------------------- */

static void arguments(napier_context *c) {
    float x[6] = {0}, b[6] = {0}, y[2], s[2];
    const napier_const_matrix logits = napier_const_rows(x, 2, 3, NAPIER_F32),
                              weights = napier_const_rows(b, 2, 3, NAPIER_F32);
    const napier_vector lse = napier_array(y, 2, NAPIER_F32), sign = napier_array(s, 2, NAPIER_F32);
    const napier_const_matrix fewer = napier_const_rows(b, 3, 2, NAPIER_F32);
    invalid(c, napier_logsumexp_weighted(c, logits, fewer, lse, sign, NULL), "weights", "3 x 2");
    invalid(c, napier_logsumexp_weighted(c, logits, weights, napier_array(y, 1, NAPIER_F32), sign, NULL), "lse", "1");
    invalid(c, napier_logsumexp_weighted(c, logits, weights, lse, napier_array(s, 1, NAPIER_F32), NULL), "sign", "1");
    invalid(c, napier_logsumexp_weighted(c, logits, weights, lse, lse, NULL), "sign", "lse");
    invalid(c, napier_logsumexp_weighted(c, logits, weights, napier_array(b, 2, NAPIER_F32), sign, NULL), "lse",
            "weights");
    invalid(c, napier_logsumexp_weighted(c, logits, weights, lse, napier_array(x + 1, 2, NAPIER_F32), NULL), "sign",
            "logits");
    const napier_softmax_options cold = options_of(0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    invalid(c, napier_logsumexp_weighted(c, logits, weights, lse, sign, &cold), "temperature");
    expect(napier_logsumexp_weighted(NULL, logits, weights, lse, sign, NULL) == NAPIER_INVALID_ARGUMENT, "no context");

    /* one weight for all rows, one for all elements */
    const float row[3] = {1, 2, 3}, one = 4;
    const napier_const_matrix repeated = {row, 2, 3, 0, 1, NAPIER_F32}, constant = {&one, 2, 3, 0, 0, NAPIER_F32};
    works(napier_logsumexp_weighted, c, logits, repeated, lse, sign, NULL);
    expect(y[0] == logf(6) && y[1] == logf(6), "weights 1, 2, 3 give %g and %g", (double)y[0], (double)y[1]);
    works(napier_logsumexp_weighted, c, logits, constant, lse, sign, NULL);
    expect(y[0] == logf(12), "three weights of 4 give %g", (double)y[0]);
}

int main(void) {
    atexit(mpfr_free_cache); /* else its constants count as leaks */
    return RUN_TESTS("logsumexp_weighted", TEST_1(accurate), TEST(ones_are_plain), TEST(same_bits),
                     TEST(special_values), TEST_1(arguments));
}
