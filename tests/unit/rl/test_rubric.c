/* Rubric scores against the formula in long double, their gradients against its derivative, the same bits from any
 * instruction set, thread count, batch and layout, and hostile ids. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <napier/rl.h>

#include "support/formats.h"

typedef long double real;

enum { LIMIT = 60000, VOCABULARY = 500, CRITERIA = 4 };

static float logprobs[LIMIT], grad[LIMIT], other_grad[LIMIT];
static int32_t ids[LIMIT];
static int64_t wide_ids[LIMIT], offsets[400];
static float rubric[CRITERIA * VOCABULARY], weights[CRITERIA] = {1, -0.5f, 0, 3};

static int64_t make_batch(uint64_t seed, int64_t responses, int64_t most) {
    rng r = rng_make(seed);
    offsets[0] = 0;
    for (int64_t i = 0; i < responses; i++) {
        offsets[i + 1] = offsets[i] + (i % 4 == 1 ? 0 : rng_below(&r, most + 1));
    }
    for (int64_t t = 0; t < offsets[responses]; t++) {
        logprobs[t] = (float)(-4 * rng_uniform(&r));
        wide_ids[t] = ids[t] = (int32_t)rng_below(&r, VOCABULARY);
    }
    for (int i = 0; i < CRITERIA * VOCABULARY; i++) {
        rubric[i] = rng_uniform(&r) < 0.3 ? 0.0f : (float)rng_normal(&r);
    }
    return offsets[responses];
}

static napier_const_matrix marks(void) { return napier_const_rows_f32(rubric, CRITERIA, VOCABULARY); }
static napier_const_vector weight(void) { return napier_const_array_f32(weights, CRITERIA); }

static void test_formula(napier_context *context) {
    enum { RESPONSES = 12 };
    float scores[RESPONSES * CRITERIA], rewards[RESPONSES], gs[RESPONSES * CRITERIA], gr[RESPONSES];
    for (int i = 0; i < 6; i++) {
        const int64_t n = make_batch((uint64_t)i, RESPONSES, i % 2 ? 3000 : 40);
        const napier_indices at = napier_indices_i64(offsets, RESPONSES + 1);
        const napier_indices id = i % 3 ? napier_indices_i32(ids, n) : napier_indices_i64(wide_ids, n);
        works(napier_rubric_score, context, napier_const_array_f32(logprobs, n), id, at, marks(), weight(),
              napier_rows_f32(scores, RESPONSES, CRITERIA), napier_array_f32(rewards, RESPONSES));
        for (int64_t b = 0; b < RESPONSES; b++) {
            real reward = 0, whole = 0;
            gr[b] = (float)(b % 3) - 1.0f;
            for (int c = 0; c < CRITERIA; c++) {
                real sum = 0, size = 0;
                for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
                    const real term = (real)logprobs[t] * (real)rubric[c * VOCABULARY + ids[t]];
                    sum += term;
                    size += fabsl(term);
                }
                const real w = (real)weights[c];
                gs[b * CRITERIA + c] = 0.25f * (float)(c - b % 4);
                reward += w * sum;
                whole += fabsl(w) * size;
                expect(fabsl((real)scores[b * CRITERIA + c] - w * sum) <= 3e-7L * fabsl(w) * size, "score %g, not %Lg",
                       (double)scores[b * CRITERIA + c], w * sum);
            }
            expect(fabsl((real)rewards[b] - reward) <= 3e-7L * whole, "reward %g, not %Lg", (double)rewards[b], reward);
        }
        const bool both = i % 2;
        works(napier_rubric_score_backward, context, id, at, marks(), weight(),
              napier_const_rows_f32(gs, RESPONSES, CRITERIA),
              both ? napier_const_array_f32(gr, RESPONSES) : NO_CONST_VECTOR, napier_array_f32(grad, n));
        for (int64_t b = 0; b < RESPONSES; b++) {
            for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
                real sum = 0, size = 0;
                for (int c = 0; c < CRITERIA; c++) {
                    const real term = (real)weights[c] * (real)rubric[c * VOCABULARY + ids[t]] *
                                      ((real)gs[b * CRITERIA + c] + (both ? (real)gr[b] : 0));
                    sum += term;
                    size += fabsl(term);
                }
                expect(fabsl((real)grad[t] - sum) <= 5e-7L * size, "gradient %lld: %g, not %Lg", (long long)t,
                       (double)grad[t], sum);
            }
        }
    }
}

/* -inf where the mark is 0 does not count; elsewhere it does. */
static void test_special_values(napier_context *context) {
    const float lp[] = {-HUGE_VALF, -1, -HUGE_VALF, NAN}, r[] = {0, 2, -1}, one[] = {1};
    const int32_t id[] = {0, 1, 2, 1}, at[] = {0, 2, 3, 4, 4};
    float scores[4], rewards[4];
    works(napier_rubric_score, context, napier_const_array_f32(lp, 4), napier_indices_i32(id, 4),
          napier_indices_i32(at, 5), napier_const_rows_f32(r, 1, 3), napier_const_array_f32(one, 1),
          napier_rows_f32(scores, 4, 1), napier_array_f32(rewards, 4));
    expect(scores[0] == -2 && scores[1] == HUGE_VALF && f32_bits(scores[2]) == 0x7fc00000u && scores[3] == 0,
           "%g %g %g %g", (double)scores[0], (double)scores[1], (double)scores[2], (double)scores[3]);
    expect(!memcmp(scores, rewards, sizeof scores), "rewards are not the scores of one criterion");
}

static void test_same_bits(void) {
    enum { RESPONSES = 30 };
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    const int64_t n = make_batch(7, RESPONSES, 2800);
    const napier_indices at = napier_indices_i64(offsets, RESPONSES + 1);
    float scores[RESPONSES * CRITERIA], other[RESPONSES * CRITERIA];
    float *const turned = scratch(CRITERIA * VOCABULARY, sizeof *turned);
    for (int c = 0; c < CRITERIA; c++) {
        for (int j = 0; j < VOCABULARY; j++) {
            turned[j * CRITERIA + c] = rubric[c * VOCABULARY + j];
        }
    }
    const napier_const_matrix column = {turned, CRITERIA, VOCABULARY, 1, CRITERIA, NAPIER_F32};
    for (int i = 0; i < 3 * count; i++) {
        napier_context *const c = context_for_test(isas[i % count], 1 + i / count);
        float *const out = i ? other : scores, *const g = i ? other_grad : grad;
        const napier_const_matrix m = i % 2 ? column : marks();
        const napier_indices id = i % 3 == 2 ? napier_indices_i64(wide_ids, n) : napier_indices_i32(ids, n);
        works(napier_rubric_score, c, napier_const_array_f32(logprobs, n), id, at, m, weight(),
              napier_rows_f32(out, RESPONSES, CRITERIA), NO_VECTOR);
        works(napier_rubric_score_backward, c, id, at, m, weight(), napier_const_rows_f32(scores, RESPONSES, CRITERIA),
              NO_CONST_VECTOR, napier_array_f32(g, n));
        expect(!i || (!memcmp(scores, other, sizeof scores) && !memcmp(grad, other_grad, (size_t)n * 4)),
               "%s with %d threads gives other bits", napier_isa_name(isas[i % count]), 1 + i / count);
    }
    napier_context *const c = context_for_test(NAPIER_ISA_AUTO, 1);
    for (int64_t b = 0; b < RESPONSES; b++) {
        const int64_t first = offsets[b], size = offsets[b + 1] - first, ends[] = {0, size};
        works(napier_rubric_score, c, napier_const_array_f32(logprobs + first, size),
              napier_indices_i32(ids + first, size), napier_indices_i64(ends, 2), marks(), weight(),
              napier_rows_f32(other, 1, CRITERIA), NO_VECTOR);
        expect(!memcmp(other, scores + b * CRITERIA, sizeof *scores * CRITERIA), "response %lld alone differs",
               (long long)b);
    }
}

/* A narrow rubric and narrow log-probabilities: what the widened ones give. */
static void test_dtypes(napier_context *context) {
    enum { RESPONSES = 9 };
    static uint16_t narrow[CRITERIA * VOCABULARY], narrow_logprobs[2 * LIMIT];
    static const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_BF16};
    float a[RESPONSES * CRITERIA], b[RESPONSES * CRITERIA];
    for (int d = 0; d < 2; d++) {
        const int64_t n = make_batch(17, RESPONSES, 700);
        const napier_indices at = napier_indices_i64(offsets, RESPONSES + 1), id = napier_indices_i32(ids, n);
        for (int i = 0; i < CRITERIA * VOCABULARY; i++) {
            element_set(narrow, dtypes[d], i, (double)rubric[i]);
            rubric[i] = (float)element_get(narrow, dtypes[d], i);
        }
        for (int64_t t = 0; t < n; t++) {
            element_set(narrow_logprobs, dtypes[d], 2 * t, (double)logprobs[t]);
            logprobs[t] = (float)element_get(narrow_logprobs, dtypes[d], 2 * t);
        }
        const napier_const_vector l = {narrow_logprobs, n, 2, dtypes[d]};
        works(napier_rubric_score, context, l, id, at, napier_const_rows(narrow, CRITERIA, VOCABULARY, dtypes[d]),
              weight(), napier_rows_f32(a, RESPONSES, CRITERIA), NO_VECTOR);
        works(napier_rubric_score, context, napier_const_array_f32(logprobs, n), id, at, marks(), weight(),
              napier_rows_f32(b, RESPONSES, CRITERIA), NO_VECTOR);
        expect(!memcmp(a, b, sizeof a), "%s gives other bits than its widened values", napier_dtype_name(dtypes[d]));
    }
}

static void test_refusals(napier_context *c) {
    float rewards[] = {7, 7, 7};
    const int64_t n = make_batch(3, 3, 5000);
    const napier_const_vector l = napier_const_array_f32(logprobs, n), w = weight();
    const napier_indices at = napier_indices_i64(offsets, 4), id = napier_indices_i32(ids, n);
    const napier_vector out = napier_array_f32(rewards, 3);
    const int64_t where[] = {0, n / 2, n - 1};
    invalid(c, napier_rubric_score(c, l, id, napier_indices_i64(offsets, INT64_MIN), marks(), w, NO_MATRIX, out),
            "offsets", "-9223372036854775808");
    for (int i = 0; i < 3; i++) {
        const int32_t kept = ids[where[i]];
        char index[40];
        snprintf(index, sizeof index, "token_ids[%lld]", (long long)where[i]);
        ids[where[i]] = VOCABULARY;
        invalid(c, napier_rubric_score(c, l, id, at, marks(), w, NO_MATRIX, out), index, "500");
        ids[where[i]] = -1;
        invalid(c, napier_rubric_score(c, l, id, at, marks(), w, NO_MATRIX, out), index, "-1");
        ids[where[i]] = kept;
        wide_ids[where[i]] = INT64_C(1) << 32;
        invalid(c, napier_rubric_score(c, l, napier_indices_i64(wide_ids, n), at, marks(), w, NO_MATRIX, out), index,
                "4294967296");
        wide_ids[where[i]] = kept;
    }
    const napier_indices fewer = napier_indices_i32(ids, n - 1);
    invalid(c, napier_rubric_score(c, l, fewer, at, marks(), w, NO_MATRIX, out), "token_ids");
    const napier_const_vector short_weights = napier_const_array_f32(weights, CRITERIA - 1);
    invalid(c, napier_rubric_score(c, l, id, at, marks(), short_weights, NO_MATRIX, out), "weights");
    const napier_matrix wrong = napier_rows_f32(grad, 3, CRITERIA - 1);
    invalid(c, napier_rubric_score(c, l, id, at, marks(), w, wrong, out), "scores");
    const napier_vector over = napier_array_f32(weights, 3);
    invalid(c, napier_rubric_score(c, l, id, at, marks(), w, NO_MATRIX, over), "rewards", "weights");
    offsets[1] = n + 1;
    invalid(c, napier_rubric_score(c, l, id, at, marks(), w, NO_MATRIX, out), "offsets[");
    expect(rewards[0] == 7 && rewards[2] == 7, "a refused call wrote");
}

int main(void) {
    return RUN_TESTS("rubric", TEST_2(test_formula), TEST_1(test_special_values), TEST(test_same_bits),
                     TEST_2(test_dtypes), TEST_2(test_refusals));
}
