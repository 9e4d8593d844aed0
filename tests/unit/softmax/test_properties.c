/* What holds for every row, whatever its values: shifts, permutations, order, padding, associativity, and what the
 * three operations say about one another. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { LIMIT = 5000 };

typedef struct results {
    float lse, probs[LIMIT], logprobs[LIMIT];
} results;

/* All three operations of one row. */
static void run_all(napier_context *context, const float *x, int64_t n, results *r) {
    const napier_const_matrix logits = napier_const_rows_f32(x, 1, n);
    works(napier_logsumexp, context, logits, napier_array_f32(&r->lse, 1), NULL);
    works(napier_softmax, context, logits, napier_rows_f32(r->probs, 1, n), NULL);
    works(napier_log_softmax, context, logits, napier_rows_f32(r->logprobs, 1, n), NULL);
}

static float row_x[LIMIT], other_x[LIMIT];
static double row_wide[LIMIT];
static results row_results, other_results;
static oracle_row row_truth;
static char row_name[100];
static uint64_t row_seed;
static napier_context *row_context;

/* Each test runs this over kinds and sizes, for row_x and what else is known of it. */
typedef void property(int64_t n);

static void over_rows(property *check, bool only_finite) {
    static const int64_t sizes[] = {1, 2, 3, 10, 16, 40, 50, 256, 1000, 1025, 2500, 4097};
    row_context = context_for_test(NAPIER_ISA_AUTO, 1);
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (uint64_t seed = 0; seed < 6; seed++) {
                snprintf(row_name, sizeof row_name, "%s, seed %llu, %lld", row_kind_name(kind),
                         (unsigned long long)seed, (long long)sizes[s]);
                row_seed = seed;
                row_fill_f32(kind, seed, row_x, row_wide, sizes[s]);
                run_all(row_context, row_x, sizes[s], &row_results);
                row_truth = oracle_reduce(row_wide, sizes[s]);
                if (row_truth.outcome == ORACLE_FINITE || !only_finite) {
                    check(sizes[s]);
                }
            }
        }
    }
}

/* ---- Values of one row ------------------------------------------------------------------------------------------- */

/* A log-probability is never positive, a probability lies in 0 .. p(max), both follow the order of the logits as far as
 * rounding goes, and logsumexp is at least the maximum. */
static void values_are_in_range(int64_t n) {
    int64_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        top = row_x[i] > row_x[top] ? i : top;
    }
    expect(row_results.lse >= row_x[top], "%s: logsumexp %a below the maximum %a", row_name, (double)row_results.lse,
           (double)row_x[top]);
    for (int64_t i = 0; i < n; i++) {
        const float p = row_results.probs[i], l = row_results.logprobs[i];
        if (!expect(l <= 0 && l <= row_results.logprobs[top] && p >= 0 && p <= row_results.probs[top] && p <= 1,
                    "%s: [%lld] has p = %a, log p = %a; the maximum %a, %a", row_name, (long long)i, (double)p,
                    (double)l, (double)row_results.probs[top], (double)row_results.logprobs[top])) {
            return;
        }
        if (row_x[i] == row_x[top]) {
            expect(p == row_results.probs[top] && l == row_results.logprobs[top], "%s: equal maxima differ", row_name);
        }
    }
}

static void test_values_are_in_range(void) { over_rows(values_are_in_range, true); }

/* log_softmax is monotone: a larger logit never has the smaller log-probability. */
static void log_softmax_is_monotone(int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const float dx = row_x[i] - row_x[i - 1], dl = row_results.logprobs[i] - row_results.logprobs[i - 1];
        if (!expect(!(dx > 0 && dl < 0) && !(dx < 0 && dl > 0), "%s: order changes at %lld", row_name, (long long)i)) {
            return;
        }
    }
}

static void test_log_softmax_is_monotone(void) { over_rows(log_softmax_is_monotone, true); }

/* softmax is the exponential of log_softmax. */
static void softmax_is_exp_of_log_softmax(int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double p = (double)row_results.probs[i], l = (double)row_results.logprobs[i];
        const double rounding = (fabs(l) + 16) * 0x1p-22; /* of log_softmax, which exp turns into a relative error */
        if (!expect(isinf(l) ? p == 0 : fabs(p - exp(l)) <= rounding * exp(l) + 0x1p-148, "%s: [%lld] %g and exp(%g)",
                    row_name, (long long)i, p, l)) {
            return;
        }
    }
}

static void test_softmax_is_exp_of_log_softmax(void) { over_rows(softmax_is_exp_of_log_softmax, true); }

/* ---- Two rows ---------------------------------------------------------------------------------------------------- */

/* Equal but for what the documented error allows: two rows of the same truth. */
static void expect_equivalent(const oracle_row *truth, const double *z, int64_t n, const results *a, const results *b,
                              const char *what) {
    const long double bound = 2 * oracle_log_bound(truth, truth->lse, NAPIER_F32, NAPIER_F32);
    expect(fabsl((long double)a->lse - (long double)b->lse) <= bound || a->lse == b->lse, "%s: logsumexp %a and %a",
           what, (double)a->lse, (double)b->lse);
    for (int64_t i = 0; i < n; i++) {
        const long double p = oracle_softmax(truth, z[i]);
        const long double allowed = 2 * oracle_softmax_bound(truth, p, NAPIER_F32, NAPIER_F32);
        if (!expect(fabsl((long double)a->probs[i] - (long double)b->probs[i]) <= allowed,
                    "%s: softmax[%lld] %a and %a", what, (long long)i, (double)a->probs[i], (double)b->probs[i])) {
            return;
        }
    }
}

/* A shift that is exact in every element moves logsumexp by as much and leaves the probabilities. Logits here are
 * multiples of 1/8 below 2^10, so that adding 1024 rounds nothing. */
static void test_exact_shifts(napier_context *context) {
    static const float shifts[] = {1.0f, -3.0f, 1024.0f, -4096.0f, 0.125f};
    rng r = rng_make(3);
    for (int64_t n = 1; n < 3000; n = n * 3 + 1) {
        for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
            for (int64_t i = 0; i < n; i++) {
                row_x[i] = (float)floor(80 * rng_normal(&r)) * 0.125f;
                other_x[i] = row_x[i] + shifts[s];
                row_wide[i] = (double)other_x[i];
            }
            run_all(context, row_x, n, &row_results);
            run_all(context, other_x, n, &other_results);
            const oracle_row truth = oracle_reduce(row_wide, n);
            row_results.lse += shifts[s];
            expect_equivalent(&truth, row_wide, n, &row_results, &other_results, "a shifted row");
            for (int64_t i = 0; i < n; i++) {
                const double spread = fabs((double)row_results.logprobs[i] - (double)other_results.logprobs[i]);
                expect(spread <= 4 * 0x1p-23 * (1 + fabs((double)row_results.logprobs[i])),
                       "shift %g: log_softmax %a and %a", (double)shifts[s], (double)row_results.logprobs[i],
                       (double)other_results.logprobs[i]);
            }
        }
    }
}

/* Another order of the elements is another sum, within the bound. */
static void permutation_stays_within_the_bound(int64_t n) {
    static int64_t place[LIMIT];
    rng r = rng_make(row_seed);
    for (int64_t i = 0; i < n; i++) { /* a random permutation, built from the front */
        const int64_t j = rng_below(&r, i + 1);
        place[i] = place[j];
        place[j] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        other_x[place[i]] = row_x[i];
    }
    static results permuted;
    run_all(row_context, other_x, n, &permuted);
    other_results.lse = permuted.lse;
    for (int64_t i = 0; i < n; i++) {
        other_results.probs[i] = permuted.probs[place[i]];
    }
    expect_equivalent(&row_truth, row_wide, n, &row_results, &other_results, row_name);
}

static void test_permutations(void) { over_rows(permutation_stays_within_the_bound, true); }

/* -inf appended to a row changes nothing in value. */
static void padding_changes_nothing(int64_t n) {
    const int64_t padded = n + 1 + (int64_t)(row_seed * 100);
    memcpy(other_x, row_x, (size_t)n * sizeof *row_x);
    for (int64_t i = n; i < padded; i++) {
        other_x[i] = -INFINITY;
    }
    run_all(row_context, other_x, padded, &other_results);
    expect_equivalent(&row_truth, row_wide, n, &row_results, &other_results, row_name);
    for (int64_t i = n; i < padded; i++) {
        if (!expect(f32_bits(other_results.probs[i]) == 0 && f32_bits(other_results.logprobs[i]) == 0xff800000u,
                    "%s: padding %lld became %g, %g", row_name, (long long)i, (double)other_results.probs[i],
                    (double)other_results.logprobs[i])) {
            return;
        }
    }
}

static void test_padding(void) { over_rows(padding_changes_nothing, true); }

/* logsumexp of two logsumexps is the logsumexp of both parts. */
static void logsumexp_of_parts(int64_t n) {
    const int64_t cut = n / 2;
    float parts[2], together = 0, whole = 0;
    works(napier_logsumexp, row_context, napier_const_rows_f32(row_x, 1, cut), napier_array_f32(parts, 1), NULL);
    works(napier_logsumexp, row_context, napier_const_rows_f32(row_x + cut, 1, n - cut), napier_array_f32(parts + 1, 1),
          NULL);
    works(napier_logsumexp, row_context, napier_const_rows_f32(parts, 1, 2), napier_array_f32(&together, 1), NULL);
    works(napier_logsumexp, row_context, napier_const_rows_f32(row_x, 1, n), napier_array_f32(&whole, 1), NULL);
    /* The parts were rounded to f32 at their own size, which is about that of the maximum. */
    const long double largest = fmaxl(fabsl((long double)parts[0]), fabsl((long double)parts[1]));
    const long double bound = 3 * oracle_log_bound(&row_truth, row_truth.lse, NAPIER_F32, NAPIER_F32) +
                              2 * dtype_ulp(NAPIER_F32, isfinite(parts[0]) ? largest : (long double)parts[1]) +
                              15.6L * 0x1p-23L;
    expect(fabsl((long double)together - (long double)whole) <= bound || together == whole, "%s: parts %a, whole %a",
           row_name, (double)together, (double)whole);
}

static void test_logsumexp_of_parts(void) { over_rows(logsumexp_of_parts, true); }

/* ---- States ------------------------------------------------------------------------------------------------------ */

/* (a + b) + c and a + (b + c), as bytes. */
static void merging_is_associative(int64_t n) {
    rng r = rng_make(row_seed);
    const int64_t a = rng_below(&r, n + 1), b = rng_below(&r, n + 1);
    const int64_t cut[4] = {0, a < b ? a : b, a < b ? b : a, n};
    napier_softmax_state *parts[2][3];
    size_t size[2];
    unsigned char *bytes[2];
    for (int way = 0; way < 2; way++) {
        for (int p = 0; p < 3; p++) {
            works(napier_softmax_state_create, row_context, NAPIER_F32, cut[p], NULL, &parts[way][p]);
            works(napier_softmax_state_update, row_context, parts[way][p],
                  napier_const_array_f32(row_x + cut[p], cut[p + 1] - cut[p]));
        }
        napier_softmax_state **const s = parts[way];
        works(napier_softmax_state_merge, row_context, way ? s[1] : s[0], way ? s[2] : s[1]);
        works(napier_softmax_state_merge, row_context, s[0], way ? s[1] : s[2]);
        size[way] = napier_softmax_state_size(s[0]);
        bytes[way] = scratch((int64_t)size[way], 1);
        works(napier_softmax_state_to_bytes, row_context, s[0], bytes[way], size[way]);
    }
    expect(size[0] == size[1] && memcmp(bytes[0], bytes[1], size[0]) == 0, "%s: the grouping shows", row_name);
    for (int way = 0; way < 2; way++) {
        for (int p = 0; p < 3; p++) {
            napier_softmax_state_destroy(parts[way][p]);
        }
    }
}

static void test_merging_is_associative(void) { over_rows(merging_is_associative, false); }

int main(void) {
    return RUN_TESTS("properties", TEST(test_values_are_in_range), TEST(test_log_softmax_is_monotone),
                     TEST(test_softmax_is_exp_of_log_softmax), TEST_1(test_exact_shifts), TEST(test_permutations),
                     TEST(test_padding), TEST(test_logsumexp_of_parts), TEST(test_merging_is_associative));
}
