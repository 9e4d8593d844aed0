/* softmax, log_softmax and logsumexp against the truth: long double for every kind of row, size and pair of dtypes,
 * MPFR for the rows where digits cancel, with the error bounds of napier/softmax.h. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

#include "support/formats.h"
#include "support/oracle.h"

/* One row with its truth and its name. */
typedef struct subject {
    const double *z; /* what the accuracy is about: x / T in the compute type */
    int64_t n;
    row_kind kind;
    uint64_t seed;
    napier_dtype in, out;
    oracle_row truth;
} subject;

#define SUBJECT_FORMAT "%s, seed %llu, %lld columns, %s to %s"
#define SUBJECT_VALUES(s)                                                                                   \
    row_kind_name((s)->kind), (unsigned long long)(s)->seed, (long long)(s)->n, napier_dtype_name((s)->in), \
        napier_dtype_name((s)->out)

static void check_lse(const subject *s, const void *lse) {
    const double got = element_get(lse, s->out, 0);
    const uint64_t bits = element_bits(lse, s->out, 0);
    switch (s->truth.outcome) {
    case ORACLE_NAN:
        expect(bits == dtype_canonical_nan(s->out), SUBJECT_FORMAT ": logsumexp is %#llx, not the canonical NaN",
               SUBJECT_VALUES(s), (unsigned long long)bits);
        return;
    case ORACLE_PLUS_INF:
        expect(isinf(got) && got > 0, SUBJECT_FORMAT ": logsumexp is %g, not +inf", SUBJECT_VALUES(s), got);
        return;
    case ORACLE_EMPTY:
    case ORACLE_ALL_MASKED:
        expect(isinf(got) && got < 0, SUBJECT_FORMAT ": logsumexp is %g, not -inf", SUBJECT_VALUES(s), got);
        return;
    default: break;
    }
    const napier_dtype compute = compute_dtype(s->in, s->out);
    const long double bound = oracle_log_bound(&s->truth, s->truth.lse, compute, s->out);
    expect(oracle_within(got, s->truth.lse, bound, s->out),
           SUBJECT_FORMAT ": logsumexp is %.17g (%#llx), truth %.21Lg, off by %.3Lg, bound %.3Lg", SUBJECT_VALUES(s),
           got, (unsigned long long)bits, s->truth.lse, (long double)got - s->truth.lse, bound);
}

static void check_nan_row(const subject *s, const char *what, const void *result) {
    for (int64_t i = 0; i < s->n; i++) {
        const uint64_t bits = element_bits(result, s->out, i);
        if (!expect(bits == dtype_canonical_nan(s->out), SUBJECT_FORMAT ": %s[%lld] is %#llx, not the canonical NaN",
                    SUBJECT_VALUES(s), what, (long long)i, (unsigned long long)bits)) {
            return;
        }
    }
}

static void check_log_softmax(const subject *s, const void *logprobs) {
    if (s->truth.outcome != ORACLE_FINITE) {
        check_nan_row(s, "log_softmax", logprobs);
        return;
    }
    const napier_dtype compute = compute_dtype(s->in, s->out);
    for (int64_t i = 0; i < s->n; i++) {
        const double got = element_get(logprobs, s->out, i);
        const long double truth = oracle_log_softmax(&s->truth, s->z[i]);
        const long double bound = oracle_log_bound(&s->truth, truth, compute, s->out);
        const bool right = isinf(s->z[i]) ? isinf(got) && got < 0 : oracle_within(got, truth, bound, s->out);
        if (!expect(right && got <= 0,
                    SUBJECT_FORMAT
                    ": log_softmax[%lld] of %a is %.17g (%#llx), truth %.21Lg, off by %.3Lg, bound %.3Lg",
                    SUBJECT_VALUES(s), (long long)i, s->z[i], got,
                    (unsigned long long)element_bits(logprobs, s->out, i), truth, (long double)got - truth, bound)) {
            return;
        }
    }
}

/* Each probability, that none is above the maximum's, and that they add up to 1. */
static void check_softmax(const subject *s, const void *probs) {
    if (s->truth.outcome != ORACLE_FINITE) {
        check_nan_row(s, "softmax", probs);
        return;
    }
    const napier_dtype compute = compute_dtype(s->in, s->out);
    double at_max = 0;
    for (int64_t i = 0; i < s->n; i++) {
        at_max = (long double)s->z[i] >= s->truth.max ? element_get(probs, s->out, i) : at_max;
    }
    long double sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double got = element_get(probs, s->out, i);
        const long double truth = oracle_softmax(&s->truth, s->z[i]);
        const long double bound = oracle_softmax_bound(&s->truth, truth, compute, s->out);
        sum += (long double)got;
        const bool right = isinf(s->z[i]) ? got == 0 : oracle_within(got, truth, bound, s->out);
        if (!expect(right && got >= 0 && got <= at_max,
                    SUBJECT_FORMAT ": softmax[%lld] of %a is %.17g (%#llx), truth %.21Lg, off by %.3Lg, bound %.3Lg, "
                                   "p(max) %.9g",
                    SUBJECT_VALUES(s), (long long)i, s->z[i], got, (unsigned long long)element_bits(probs, s->out, i),
                    truth, (long double)got - truth, bound, at_max)) {
            return;
        }
    }
    if (s->out == NAPIER_F32 || s->out == NAPIER_F64) {
        const long double limit = compute == NAPIER_F32 || s->out == NAPIER_F32 ? 3e-7L : 1e-15L;
        expect(s->n == 0 || fabsl(sum - 1) <= limit, SUBJECT_FORMAT ": probabilities add up to 1 %+.3Lg",
               SUBJECT_VALUES(s), sum - 1);
    }
}

/* One row of input, through every operation to one output dtype. */
static void check_row(napier_context *context, const void *x, subject *s, double temperature) {
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_const_matrix logits = napier_const_rows(x, 1, s->n, s->in);
    void *const result = room_for(s->n, napier_dtype_size(s->out));
    uint64_t lse = 0;
    if (succeeded(context, napier_logsumexp(context, logits, napier_array(&lse, 1, s->out), &options), "logsumexp")) {
        check_lse(s, &lse);
    }
    const napier_matrix out = napier_rows(result, 1, s->n, s->out);
    if (succeeded(context, napier_log_softmax(context, logits, out, &options), "log_softmax")) {
        check_log_softmax(s, result);
    }
    if (succeeded(context, napier_softmax(context, logits, out, &options), "softmax")) {
        check_softmax(s, result);
    }
    free(result);
}

typedef oracle_row reducer(const double *z, int64_t n);

static void check_kind(napier_context *context, row_kind kind, uint64_t seed, int64_t n, napier_dtype in,
                       double temperature, reducer *reduce) {
    double *const x = room_for(n, sizeof *x), *const z = room_for(n, sizeof *z);
    void *const packed = room_for(n, napier_dtype_size(in));
    row_fill(kind, seed, in, x, n);
    for (int64_t i = 0; i < n; i++) {
        element_set(packed, in, i, x[i]);
    }
    oracle_row truth[2];
    const napier_dtype narrow = compute_dtype(in, NAPIER_F32); /* of every output dtype but f64 */
    divide_by_temperature(x, z, n, temperature, NAPIER_F64);
    truth[1] = reduce(z, n);
    divide_by_temperature(x, z, n, temperature, narrow);
    truth[0] = reduce(z, n);
    for (int d = 0; d < DTYPE_COUNT; d++) {
        const napier_dtype out = all_dtypes[d];
        const int wide = out == NAPIER_F64;
        divide_by_temperature(x, z, n, temperature, wide ? NAPIER_F64 : narrow);
        subject s = {z, n, kind, seed, in, out, truth[wide]};
        check_row(context, packed, &s, temperature);
    }
    free(packed);
    free(z);
    free(x);
}

static void every_kind_and_size(napier_dtype in) {
    static const int64_t sizes[] = {0,   1,   2,    3,    15,   16,   17,   50,   100,  255,
                                    256, 257, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 10000};
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 1);
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t repeats = sizes[i] < 300 ? 8 : 1;
            for (uint64_t seed = 0; seed < repeats; seed++) {
                check_kind(context, (row_kind)kind, seed + i, sizes[i], in, 1.0, oracle_reduce);
            }
        }
    }
    napier_context_destroy(context);
    no_problems();
}

static void test_f32_rows(void **state) {
    (void)state;
    every_kind_and_size(NAPIER_F32);
}

static void test_f16_rows(void **state) {
    (void)state;
    every_kind_and_size(NAPIER_F16);
}

static void test_bf16_rows(void **state) {
    (void)state;
    every_kind_and_size(NAPIER_BF16);
}

static void test_f64_rows(void **state) {
    (void)state;
    every_kind_and_size(NAPIER_F64);
}

/* The width of a vocabulary, which is no multiple of a tile. */
static void test_vocabulary_rows(void **state) {
    (void)state;
    static const row_kind kinds[] = {ROW_NORMAL, ROW_PEAKED,  ROW_EQUAL,    ROW_RISING,
                                     ROW_MASKED, ROW_EXTREME, ROW_NEAR_ZERO};
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 2);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        check_kind(context, kinds[k], 7, 151936, k == 1 ? NAPIER_BF16 : NAPIER_F32, 1.0, oracle_reduce);
    }
    napier_context_destroy(context);
    no_problems();
}

static void test_temperatures(void **state) {
    (void)state;
    static const double temperatures[] = {0.1, 0.7, 1.0 / 3, 1.5, 2.0, 10.0, 1e4, 1e-4};
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 1);
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
            for (int d = 0; d < DTYPE_COUNT; d++) {
                check_kind(context, (row_kind)kind, 40 + t, 17 + 111 * (int64_t)t, all_dtypes[d], temperatures[t],
                           oracle_reduce);
            }
        }
    }
    napier_context_destroy(context);
    no_problems();
}

/* MPFR where digits cancel or vanish; it also watches the long double oracle. */
static void test_hard_rows_by_mpfr(void **state) {
    (void)state;
    static const row_kind kinds[] = {ROW_NEAR_ZERO, ROW_CANCELLING, ROW_FLUSH_EDGE, ROW_SUBNORMAL,
                                     ROW_NORMAL,    ROW_POWERS,     ROW_PEAKED,     ROW_ANY_FINITE};
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            const int64_t n = 2 + (int64_t)(seed * seed);
            check_kind(context, kinds[k], seed, n, NAPIER_F32, 1.0, oracle_reduce_mpfr);
            check_kind(context, kinds[k], seed, n, NAPIER_F64, 1.0, oracle_reduce_mpfr);
        }
    }
    napier_context_destroy(context);
    no_problems();
}

static void test_oracles_agree(void **state) {
    (void)state;
    for (int kind = 0; kind < ROW_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            double z[64];
            row_fill((row_kind)kind, seed, NAPIER_F64, z, 64);
            const oracle_row a = oracle_reduce(z, 64), b = oracle_reduce_mpfr(z, 64);
            const char *const name = row_kind_name((row_kind)kind);
            expect(a.outcome == b.outcome, "%s: the oracles see different outcomes", name);
            if (a.outcome == ORACLE_FINITE && b.outcome == ORACLE_FINITE) {
                const long double near = 0x1p-60L * (1 + fabsl(b.max));
                expect(fabsl(a.lse - b.lse) <= near, "%s, seed %llu: long double %.21Lg, MPFR %.21Lg", name,
                       (unsigned long long)seed, a.lse, b.lse);
                expect(fabsl(a.mass - b.mass) <= 0x1p-58L * b.mass, "%s, seed %llu: mass %.21Lg, MPFR %.21Lg", name,
                       (unsigned long long)seed, a.mass, b.mass);
            }
        }
    }
    no_problems();
}

/* logsumexp near 0, where the naive formula gives 0: the correctly rounded truth. */
static void test_results_near_zero(void **state) {
    (void)state;
    static const float far[] = {-40.0f, -100.0f, -17.0f, -30.5f, -60.25f, -88.0f, -103.0f};
    napier_context *const context = context_of(NAPIER_ISA_AUTO, 1);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        const float row[2] = {0.0f, far[i]};
        const double wide[2] = {0.0, (double)far[i]};
        const float truth = (float)oracle_reduce_mpfr(wide, 2).lse;
        const uint32_t truth_bits = f32_bits(truth);
        float lse = NAN, logprobs[2] = {NAN, NAN};
        double lse64 = (double)NAN;
        succeeded(context, napier_logsumexp(context, napier_const_rows_f32(row, 1, 2), napier_array_f32(&lse, 1), NULL),
                  "logsumexp");
        succeeded(context,
                  napier_log_softmax(context, napier_const_rows_f32(row, 1, 2), napier_rows_f32(logprobs, 1, 2), NULL),
                  "log_softmax");
        succeeded(
            context,
            napier_logsumexp(context, napier_const_rows_f32(row, 1, 2), napier_array(&lse64, 1, NAPIER_F64), NULL),
            "logsumexp to f64");
        const long double bound = dtype_ulp(NAPIER_F32, (long double)truth) + 15.6L * 0x1p-24L * (long double)truth;
        expect(fabsl((long double)lse - (long double)truth) <= bound,
               "logsumexp [0, %g] is %.9g (%#x), truth %.9g (%#x)", (double)far[i], (double)lse, f32_bits(lse),
               (double)truth, truth_bits);
        expect(logprobs[0] == -lse, "log_softmax [0, %g][0] is %.9g, logsumexp %.9g", (double)far[i],
               (double)logprobs[0], (double)lse);
        const double truth64 = (double)oracle_reduce_mpfr(wide, 2).lse;
        expect(fabs(lse64 - truth64) <= 18 * 0x1p-53 * truth64, "logsumexp [0, %g] in f64 is %.17g, truth %.17g",
               (double)far[i], lse64, truth64);
        if (i < 2) {
            expect(lse == truth, "logsumexp [0, %g] is %a, not the rounded truth %a", (double)far[i], (double)lse,
                   (double)truth);
        }
    }
    expect((float)4.2483542552915889e-18 == (float)oracle_reduce_mpfr((const double[]){0, -40}, 2).lse,
           "the oracle does not know exp(-40)");
    napier_context_destroy(context);
    no_problems();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracles_agree),     cmocka_unit_test(test_results_near_zero),
        cmocka_unit_test(test_f32_rows),          cmocka_unit_test(test_f16_rows),
        cmocka_unit_test(test_bf16_rows),         cmocka_unit_test(test_f64_rows),
        cmocka_unit_test(test_vocabulary_rows),   cmocka_unit_test(test_temperatures),
        cmocka_unit_test(test_hard_rows_by_mpfr),
    };
    return cmocka_run_group_tests_name("softmax_oracle", tests, NULL, NULL);
}
