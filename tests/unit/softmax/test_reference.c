/* The library against the definition: docs/numerics.md written a second time, plainly, in support/definition.h.
 * softmax must have its bits. logsumexp and log_softmax may differ in a last bit, since the definition's log1p is
 * libm's and the library's is its own: at most 1 ulp (plus what cancellation makes of such a bit), in fewer than one
 * row of 10,000. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>

#include "support/definition.h"
#include "support/formats.h"

/* The library's log1p is good to 2^-44 of its value. */
#define LOG1P_ERROR 0x1p-43L

static int64_t rows_compared, rows_rounded_otherwise;

/* Where maximum and log of the sum cancel, a last bit of the latter is many of the result: such rows are checked, but
 * not counted. */
static bool cancels(const definition_row *row) { return fabsf(row->lse) < row->log_sum * 0x1p-6f; }

static bool near(float got, float wanted, float log_sum) {
    if (f32_bits(got) == f32_bits(wanted)) {
        return true;
    }
    const long double allowed = dtype_ulp(NAPIER_F32, (long double)wanted) + LOG1P_ERROR * (long double)log_sum;
    return fabsl((long double)got - (long double)wanted) <= allowed;
}

static void check_finite_row(const definition_row *row, const float *z, int64_t n, float lse, const float *probs,
                             const float *logprobs, const char *name) {
    bool otherwise = f32_bits(lse) != f32_bits(row->lse);
    expect(near(lse, row->lse, row->log_sum), "%s: logsumexp %#x, definition %#x", name, f32_bits(lse),
           f32_bits(row->lse));
    for (int64_t i = 0; i < n; i++) {
        const float prob = definition_softmax(row, z[i]), logprob = definition_log_softmax(row, z[i]);
        if (!expect(f32_bits(probs[i]) == f32_bits(prob), "%s: softmax[%lld] of %a is %#x, definition %#x", name,
                    (long long)i, (double)z[i], f32_bits(probs[i]), f32_bits(prob)) ||
            !expect(near(logprobs[i], logprob, row->log_sum), "%s: log_softmax[%lld] of %a is %#x, definition %#x",
                    name, (long long)i, (double)z[i], f32_bits(logprobs[i]), f32_bits(logprob))) {
            return;
        }
        otherwise = otherwise || f32_bits(logprobs[i]) != f32_bits(logprob);
    }
    rows_rounded_otherwise += otherwise && !cancels(row);
    rows_compared += !cancels(row);
}

static void compare_row(napier_context *context, const float *z, int64_t n, const char *name) {
    float *const probs = scratch(n, sizeof *z), *const logprobs = scratch(n, sizeof *z), lse = NAN;
    const napier_const_matrix logits = napier_const_rows_f32(z, 1, n);
    succeeded(context, napier_softmax(context, logits, napier_rows_f32(probs, 1, n), NULL), name);
    succeeded(context, napier_log_softmax(context, logits, napier_rows_f32(logprobs, 1, n), NULL), name);
    succeeded(context, napier_logsumexp(context, logits, napier_array_f32(&lse, 1), NULL), name);
    const definition_row row = definition_reduce(z, n);
    if (row.outcome == ORACLE_FINITE) {
        check_finite_row(&row, z, n, lse, probs, logprobs, name);
    } else {
        const uint32_t wanted = row.outcome == ORACLE_NAN ? 0x7fc00000u : f32_bits(row.lse);
        expect(f32_bits(lse) == wanted, "%s: logsumexp %#x, definition %#x", name, f32_bits(lse), wanted);
    }
}

static void check_row(napier_context *context, row_kind kind, uint64_t seed, int64_t n) {
    double *const wide = scratch(n, sizeof *wide);
    float *const z = scratch(n, sizeof *z);
    char name[96];
    snprintf(name, sizeof name, "%s, seed %llu, %lld columns", row_kind_name(kind), (unsigned long long)seed,
             (long long)n);
    row_fill_f32(kind, seed, z, wide, n);
    compare_row(context, z, n, name);
}

static void compare_rows(const int64_t *sizes, size_t count, uint64_t repeats) {
    napier_context *const context = context_for_test(NAPIER_ISA_AUTO, 1);
    rows_compared = rows_rounded_otherwise = 0;
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (size_t i = 0; i < count; i++) {
            for (uint64_t seed = 0; seed < repeats; seed++) {
                check_row(context, kind, seed * 31 + i, sizes[i]);
            }
        }
    }
    print_message("    %lld rows, %lld with another last bit in logsumexp or log_softmax\n", (long long)rows_compared,
                  (long long)rows_rounded_otherwise);
    expect(rows_rounded_otherwise * 10000 <= rows_compared, "%lld of %lld rows have another last bit",
           (long long)rows_rounded_otherwise, (long long)rows_compared);
}

static void test_short_rows(void) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 48, 49, 50, 100};
    compare_rows(sizes, sizeof sizes / sizeof *sizes, 80);
}

static void test_rows_of_a_few_tiles(void) {
    static const int64_t sizes[] = {255, 256, 257, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 10000};
    compare_rows(sizes, sizeof sizes / sizeof *sizes, 3);
}

static void test_long_rows(void) {
    static const int64_t sizes[] = {151936};
    compare_rows(sizes, 1, 1);
}

/* A row whose tiles are of different kinds: maxima rise, fall, are far apart, huge, masked. */
static void test_rows_of_mixed_tiles(napier_context *context) {
    enum { TILES = 9, N = TILES * 1024 - 77 };
    static const row_kind ordered[] = {ROW_NORMAL,   ROW_OFFSET,       ROW_EQUAL,     ROW_TIES,
                                       ROW_MASKED,   ROW_EXTREME,      ROW_POWERS,    ROW_FLUSH_EDGE,
                                       ROW_ONE_LEFT, ROW_TEN_THOUSAND, ROW_ALL_MASKED};
    double *const wide = scratch(TILES * 1024, sizeof *wide);
    float *const z = scratch(N, sizeof *z);
    for (uint64_t seed = 0; seed < 150; seed++) {
        rng r = rng_make(seed);
        for (int tile = 0; tile < TILES; tile++) {
            const row_kind kind = ordered[rng_below(&r, sizeof ordered / sizeof *ordered)];
            const double shift = (double)rng_below(&r, 400) - 200;
            row_fill(kind, seed, NAPIER_F32, wide + 1024 * tile, 1024);
            for (int i = 0; i < 1024; i++) {
                wide[1024 * tile + i] += seed % 2 ? shift : 0;
            }
        }
        for (int i = 0; i < N; i++) {
            z[i] = (float)wide[i];
            z[i] = isinf(z[i]) ? -INFINITY : z[i];
        }
        char name[40];
        snprintf(name, sizeof name, "mixed tiles, seed %llu", (unsigned long long)seed);
        compare_row(context, z, N, name);
    }
}

/* The definition itself against the truth, so that a mistake shared with the library would show. */
static void test_the_definition(void) {
    double wide[3000];
    float z[3000];
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            const int64_t n = 1 + (int64_t)seed * 299;
            row_fill_f32(kind, seed, z, wide, n);
            const definition_row row = definition_reduce(z, n);
            const oracle_row truth = oracle_reduce(wide, n);
            expect(row.outcome == truth.outcome, "%s: outcome %d, truth %d", row_kind_name(kind), (int)row.outcome,
                   (int)truth.outcome);
            if (truth.outcome != ORACLE_FINITE) {
                continue;
            }
            const long double bound = oracle_log_bound(&truth, truth.lse, NAPIER_F32, NAPIER_F32);
            expect(oracle_within((double)row.lse, truth.lse, bound, NAPIER_F32), "%s, seed %llu: %.9g, truth %.9Lg",
                   row_kind_name(kind), (unsigned long long)seed, (double)row.lse, truth.lse);
            for (int64_t i = 0; i < n; i++) {
                const long double prob = oracle_softmax(&truth, wide[i]);
                const double got = (double)definition_softmax(&row, z[i]);
                if (!expect(oracle_within(got, prob, oracle_softmax_bound(&truth, prob, NAPIER_F32, NAPIER_F32),
                                          NAPIER_F32),
                            "%s, seed %llu: softmax[%lld] %.9g, truth %.9Lg", row_kind_name(kind),
                            (unsigned long long)seed, (long long)i, got, prob)) {
                    break;
                }
            }
        }
    }
}

int main(void) {
    return RUN_TESTS("reference", TEST(test_the_definition), TEST(test_short_rows), TEST(test_rows_of_a_few_tiles),
                     TEST(test_long_rows), TEST_1(test_rows_of_mixed_tiles));
}
