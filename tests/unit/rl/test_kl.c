/* KL per response and over the vocabulary: the formulas in long double, gradients by differences of them, exact zeros,
 * special values, the same bits from any instruction set, thread count and batch, hostile offsets, in place. */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include <napier/rl.h>

#include "support/formats.h"

typedef long double real;

enum { LIMIT = 200000 };

static float policy[LIMIT], ref[LIMIT], grad_a[LIMIT], grad_b[LIMIT];
static uint8_t mask[LIMIT];
static int64_t offsets[LIMIT];

/* Responses of 0 to `most` tokens; returns how many tokens. */
static int64_t make_batch(uint64_t seed, int64_t responses, int64_t most, double spread) {
    rng r = rng_make(seed);
    offsets[0] = 0;
    for (int64_t i = 0; i < responses; i++) {
        offsets[i + 1] = offsets[i] + (i % 4 == 2 ? 0 : rng_below(&r, most + 1));
    }
    for (int64_t t = 0; t < offsets[responses]; t++) {
        policy[t] = (float)(-4 * rng_uniform(&r));
        ref[t] = policy[t] + (float)(spread * rng_normal(&r));
        mask[t] = rng_uniform(&r) < 0.7;
    }
    return offsets[responses];
}

static napier_kl_options options_for(napier_kl_estimator estimator, napier_reduction reduction, double ratio,
                                     double kl) {
    napier_kl_options o = NAPIER_KL_OPTIONS_INIT;
    o.estimator = estimator;
    o.reduction = reduction;
    o.clamp_ratio = ratio;
    o.clamp_kl = kl;
    return o;
}

/* ---- Per response -------------------------------------------------------------------------------------------------- */

static real clamp(real x, double limit) {
    const real l = (real)(float)limit;
    return limit > 0 && x > l ? l : limit > 0 && x < -l ? -l : x;
}

static real estimate(const napier_kl_options *o, real d) {
    d = clamp(d, o->clamp_ratio);
    const real e = o->estimator == NAPIER_KL_K1 ? -d : o->estimator == NAPIER_KL_K2 ? d * d / 2 : expm1l(d) - d;
    return clamp(e, o->clamp_kl);
}

static real slope(const napier_kl_options *o, real d) {
    const real h = 1e-5L * (1 + fabsl(d));
    const real x = fabsl(d) < 0.03L && o->clamp_ratio == 0 && o->clamp_kl == 0 ? 0 : 1;
    if (x == 0) { /* differences are coarse near 0 */
        return o->estimator == NAPIER_KL_K1 ? -1 : o->estimator == NAPIER_KL_K2 ? d : expm1l(d);
    }
    return (8 * (estimate(o, d + h) - estimate(o, d - h)) - (estimate(o, d + 2 * h) - estimate(o, d - 2 * h))) /
           (12 * h);
}

/* kl [responses], and the gradients [tokens] of both. weight: the gradient of kl, which may be kl itself. */
static void run_all(napier_context *c, int64_t responses, const uint8_t *counted, const napier_kl_options *o,
                    const float *weight, float *kl, float *a, float *b) {
    const int64_t tokens = offsets[responses];
    const napier_const_vector p = napier_const_array_f32(policy, tokens), q = napier_const_array_f32(ref, tokens);
    const napier_indices at = napier_indices_i64(offsets, responses + 1);
    works(napier_kl_per_response, c, p, q, at, counted, o, napier_array_f32(kl, responses));
    works(napier_kl_per_response_backward, c, p, q, at, counted, o, napier_const_array_f32(weight, responses),
          napier_array_f32(a, tokens), napier_array_f32(b, tokens));
}

static void check_estimator(napier_context *context, const napier_kl_options *o, int64_t responses, bool masked) {
    float kl[300], weight[300];
    for (int64_t b = 0; b < responses; b++) {
        weight[b] = (float)(b % 3) - 0.75f;
    }
    run_all(context, responses, masked ? mask : NULL, o, weight, kl, grad_a, grad_b);
    for (int64_t b = 0; b < responses; b++) {
        real sum = 0, size = 0, n = 0;
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
            if (!masked || mask[t]) {
                const real e = estimate(o, (real)ref[t] - (real)policy[t]);
                sum += e;
                size += fabsl(e);
                n++;
            }
        }
        const real divisor = o->reduction == NAPIER_REDUCE_MEAN && n > 0 ? n : 1;
        expect(fabsl((real)kl[b] - sum / divisor) <= 4e-7L * size / divisor, "kl %lld is %.9g, not %.9Lg", (long long)b,
               (double)kl[b], sum / divisor);
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
            const real d = (real)ref[t] - (real)policy[t];
            const real g = masked && !mask[t] ? 0 : slope(o, d) * (real)weight[b] / divisor;
            expect(fabsl((real)grad_b[t] - g) <= 1e-6L * fabsl(g) + 1e-13L, "gradient %lld is %.9g, not %.9Lg",
                   (long long)t, (double)grad_b[t], g);
            expect(grad_a[t] == -grad_b[t], "gradients %lld are not opposite", (long long)t);
        }
    }
}

static void test_estimators(napier_context *context) {
    static const double spreads[] = {1e-5, 0.02, 0.4, 3.0};
    for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
        for (int i = 0; i < 16; i++) {
            make_batch((uint64_t)(100 * k + i), 9, i % 4 == 3 ? 2500 : 40, spreads[i % 4]);
            const napier_kl_options o = options_for((napier_kl_estimator)k, (napier_reduction)(i / 4 % 2),
                                                    i >= 12 ? 0.31 : 0, i % 8 == 6 ? 0.07 : 0);
            check_estimator(context, &o, 9, i % 2);
        }
    }
}

/* k3 near 0 is d^2 / 2 and keeps its accuracy, from subnormal d to the bounds of exp. */
static void test_k3_everywhere(napier_context *context) {
    const napier_kl_options o = options_for(NAPIER_KL_K3, NAPIER_REDUCE_SUM, 0, 0);
    rng r = rng_make(3);
    for (int i = 0; i < 4000; i++) {
        const double size = exp2(-40 + 46.4 * rng_uniform(&r)); /* up to 86 */
        float x = 0, y = (float)(rng_below(&r, 2) ? size : -size), kl = -1;
        const int64_t ends[] = {0, 1};
        works(napier_kl_per_response, context, napier_const_array_f32(&x, 1), napier_const_array_f32(&y, 1),
              napier_indices_i64(ends, 2), NULL, &o, napier_array_f32(&kl, 1));
        const real d = (real)y, truth = fabsl(d) < 1e-3L ? d * d / 2 * (1 + d / 3 + d * d / 12) : expm1l(d) - d;
        expect(fabsl((real)kl - truth) <= 4e-7L * truth + 1e-44L, "k3(%.9g) is %.9g, not %.9Lg", (double)y, (double)kl,
               truth);
    }
}

static void test_special_values(napier_context *context) {
    const float inf = HUGE_VALF, nan = NAN;
    const float a[] = {-inf, -inf, -1, 0, nan, -1}, b[] = {-inf, -1, -inf, 0, -1, -1};
    const float k1[] = {0, -inf, inf, 0, nan, 0}, k2[] = {0, inf, inf, 0, nan, 0}, k3[] = {0, inf, inf, 0, nan, 0};
    const float *wanted[] = {k1, k2, k3};
    const int32_t ends[] = {0, 1, 2, 3, 4, 5, 6};
    for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
        const napier_kl_options o = options_for((napier_kl_estimator)k, NAPIER_REDUCE_MEAN, 0, 0);
        float kl[6];
        works(napier_kl_per_response, context, napier_const_array_f32(a, 6), napier_const_array_f32(b, 6),
              napier_indices_i32(ends, 7), NULL, &o, napier_array_f32(kl, 6));
        for (int i = 0; i < 6; i++) {
            const float w = wanted[k - 1][i];
            expect(w != w ? f32_bits(kl[i]) == 0x7fc00000u : kl[i] == w, "k%d of %g, %g is %g, not %g", k, (double)a[i],
                   (double)b[i], (double)kl[i], (double)w);
        }
    }
}

/* ---- Same bits ----------------------------------------------------------------------------------------------------- */

static void test_same_bits(napier_context *context) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    enum { RESPONSES = 40 };
    static float other_a[LIMIT], other_b[LIMIT];
    float kl[RESPONSES], other[RESPONSES];
    int64_t tokens = make_batch(5, RESPONSES, 5000, 0.5); /* one response is larger than a worker's share */
    offsets[RESPONSES] += 60000;
    for (int64_t t = tokens; t < offsets[RESPONSES]; t++) {
        policy[t] = policy[t - tokens / 2] - 0.1f;
        ref[t] = ref[t - tokens / 2];
        mask[t] = 1;
    }
    tokens = offsets[RESPONSES];
    for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
        const napier_kl_options o = options_for((napier_kl_estimator)k, NAPIER_REDUCE_MEAN, 1, 0);
        run_all(context, RESPONSES, mask, &o, kl, kl, grad_a, grad_b);
        for (int i = 0; i < count; i++) {
            for (int threads = 1; threads <= 3; threads++) {
                napier_context *const c = context_for_test(isas[i], threads);
                run_all(c, RESPONSES, mask, &o, other, other, other_a, other_b);
                expect(!memcmp(kl, other, sizeof kl) && !memcmp(grad_a, other_a, (size_t)tokens * 4) &&
                           !memcmp(grad_b, other_b, (size_t)tokens * 4),
                       "k%d: %s with %d threads gives other bits", k, napier_isa_name(isas[i]), threads);
            }
        }
    }
    const napier_kl_options o = options_for(NAPIER_KL_K3, NAPIER_REDUCE_MEAN, 1, 0);
    for (int64_t b = 0; b < RESPONSES; b++) { /* each response on its own */
        const int64_t n = offsets[b + 1] - offsets[b], ends[] = {0, n};
        float alone = -1;
        works(napier_kl_per_response, context, napier_const_array_f32(policy + offsets[b], n),
              napier_const_array_f32(ref + offsets[b], n), napier_indices_i64(ends, 2), mask + offsets[b], &o,
              napier_array_f32(&alone, 1));
        expect(f32_bits(alone) == f32_bits(kl[b]), "response %lld alone is %.9g, in the batch %.9g", (long long)b,
               (double)alone, (double)kl[b]);
    }
}

/* Any dtype and stride: what f32 gives on the widened numbers, rounded. */
static void test_dtypes_and_strides(napier_context *context) {
    enum { RESPONSES = 7 };
    const int64_t tokens = make_batch(8, RESPONSES, 900, 0.3);
    const napier_kl_options o = options_for(NAPIER_KL_K3, NAPIER_REDUCE_SUM, 0, 0);
    const napier_indices at = napier_indices_i64(offsets, RESPONSES + 1);
    static const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_BF16};
    for (int d = 0; d < 2; d++) {
        uint16_t *const x = scratch(3 * tokens, 2), *const y = scratch(tokens, 2), *const g = scratch(2 * tokens, 2);
        float kl[RESPONSES];
        uint16_t narrow[RESPONSES];
        for (int64_t t = 0; t < tokens; t++) {
            element_set(x, dtypes[d], 3 * t, (double)policy[t]);
            element_set(y, dtypes[d], tokens - 1 - t, (double)ref[t]);
            policy[t] = (float)element_get(x, dtypes[d], 3 * t);
            ref[t] = (float)element_get(y, dtypes[d], tokens - 1 - t);
        }
        const napier_const_vector p = {x, tokens, 3, dtypes[d]}, q = {y + tokens - 1, tokens, -1, dtypes[d]};
        const napier_vector out = napier_array(narrow, RESPONSES, dtypes[d]), grad = {g, tokens, 2, dtypes[d]};
        works(napier_kl_per_response, context, p, q, at, NULL, &o, out);
        works(napier_kl_per_response, context, napier_const_array_f32(policy, tokens),
              napier_const_array_f32(ref, tokens), at, NULL, &o, napier_array_f32(kl, RESPONSES));
        for (int b = 0; b < RESPONSES; b++) {
            expect(fabs(element_get(narrow, dtypes[d], b) - (double)kl[b]) <= 0.005 * fabs((double)kl[b]),
                   "%s: %.9g, not %.9g", napier_dtype_name(dtypes[d]), element_get(narrow, dtypes[d], b),
                   (double)kl[b]);
        }
        const float ones[RESPONSES] = {1, 1, 1, 1, 1, 1, 1};
        const napier_const_vector one = napier_const_array_f32(ones, RESPONSES);
        works(napier_kl_per_response_backward, context, p, q, at, NULL, &o, one, grad, NO_VECTOR);
        works(napier_kl_per_response_backward, context, napier_const_array_f32(policy, tokens),
              napier_const_array_f32(ref, tokens), at, NULL, &o, one, napier_array_f32(grad_a, tokens), NO_VECTOR);
        for (int64_t t = 0; t < tokens; t++) {
            if (!expect(element_bits(g, dtypes[d], 2 * t) == dtype_bits(dtypes[d], (double)grad_a[t]),
                        "%s: gradient %lld is not the rounded one", napier_dtype_name(dtypes[d]), (long long)t)) {
                break;
            }
        }
    }
}

/* ---- Over the vocabulary ------------------------------------------------------------------------------------------- */

enum { ROWS = 6, COLS = 3001 };
static float x[ROWS * COLS], y[ROWS * COLS], gx[ROWS * COLS], gy[ROWS * COLS];

static void row_log_softmax(const float *z, int cols, real temperature, real *logp) {
    real max = -HUGE_VALL, sum = 0;
    for (int j = 0; j < cols; j++) {
        max = fmaxl(max, (real)(z[j] / (float)temperature));
    }
    for (int j = 0; j < cols; j++) {
        sum += expl((real)(z[j] / (float)temperature) - max);
    }
    for (int j = 0; j < cols; j++) {
        logp[j] = (real)(z[j] / (float)temperature) - max - logl(sum);
    }
}

static void fill_rows(double spread, double offset) {
    rng r = rng_make(17);
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)(4 * rng_normal(&r));
        y[i] = x[i] + (float)(spread * rng_normal(&r) + offset);
    }
}

/* The divergences of ROWS pairs of rows, and the gradients of both. weight: the gradients of the divergences. */
static void run_full(napier_context *c, const float *a, const float *b, const napier_softmax_options *o,
                     const float *weight, float *kl, float *grad_of_a, float *grad_of_b) {
    const napier_const_matrix p = napier_const_rows_f32(a, ROWS, COLS), q = napier_const_rows_f32(b, ROWS, COLS);
    works(napier_kl_full, c, p, q, o, napier_array_f32(kl, ROWS));
    works(napier_kl_full_backward, c, p, q, o, napier_const_array_f32(weight, ROWS),
          napier_rows_f32(grad_of_a, ROWS, COLS), napier_rows_f32(grad_of_b, ROWS, COLS));
}

static void check_full(napier_context *context, double spread, double offset, double temperature) {
    static real p[COLS], q[COLS];
    float kl[ROWS], weight[ROWS];
    fill_rows(spread, offset);
    const napier_softmax_options o = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    for (int i = 0; i < ROWS; i++) {
        weight[i] = 1.5f - (float)i;
    }
    run_full(context, x, y, &o, weight, kl, gx, gy);
    for (int i = 0; i < ROWS; i++) {
        row_log_softmax(x + i * COLS, COLS, (real)temperature, p);
        row_log_softmax(y + i * COLS, COLS, (real)temperature, q);
        real truth = 0, usual = 0; /* the usual |d|: what both sums of exponentials leave is 1e-7 of that */
        for (int j = 0; j < COLS; j++) {
            usual += expl(p[j]) * fabsl(q[j] - p[j]);
            truth += expl(p[j]) * (expm1l(q[j] - p[j]) - (q[j] - p[j]));
        }
        expect(fabsl((real)kl[i] - truth) <= 1e-6L * truth + 1e-13L, "spread %g: kl is %.9g, not %.9Lg", spread,
               (double)kl[i], truth);
        for (int j = 0; j < COLS; j++) {
            const real w = (real)weight[i] / (real)temperature, d = p[j] - q[j];
            const real want_x = w * expl(p[j]) * (d - truth), want_y = w * expl(p[j]) * expm1l(-d);
            const real size = fabsl(w) * expl(p[j]) * (fabsl(d) + usual);
            const bool good = fabsl((real)gx[i * COLS + j] - want_x) <= 1e-6L * size + 1e-13L &&
                              fabsl((real)gy[i * COLS + j] - want_y) <= 1e-6L * (fabsl(want_y) + size) + 1e-13L;
            if (!expect(good, "spread %g: gradients [%d, %d] are %.9g, %.9g, not %.9Lg, %.9Lg", spread, i, j,
                        (double)gx[i * COLS + j], (double)gy[i * COLS + j], want_x, want_y)) {
                break;
            }
        }
    }
}

static void test_full(napier_context *context) {
    static const double spreads[] = {1e-4, 0.01, 0.5, 6};
    for (int i = 0; i < 4; i++) {
        check_full(context, spreads[i], 0, 1);
        check_full(context, spreads[i], 7.25, 0.7);
    }
}

/* A policy that is almost certain of column 0: the slope there is minus the sum of the others, whatever the reference is. */
static void test_full_certain(napier_context *context) {
    static const float rows[][2][3] = {{{20, 0, -1}, {0, 0, 0}},          {{15, 0, -1}, {0, 0, 0}},
                                       {{88, 0, -1}, {1, 0, 0}},          {{20, 0, -1}, {20.5f, 0, -1}},
                                       {{20, 0, -1}, {5, 0, -1}},         {{1, 0, -1}, {0, 0, 0}},
                                       {{50, 0, -INFINITY}, {-30, 20, 3}}};
    const float one = 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        real p[3], q[3], kl = 0, wanted = 0;
        float grad[3];
        row_log_softmax(rows[i][0], 3, 1, p);
        row_log_softmax(rows[i][1], 3, 1, q);
        for (int j = 0; j < 3; j++) {
            kl += p[j] > -HUGE_VALL ? expl(p[j]) * (p[j] - q[j]) : 0;
        }
        for (int j = 1; j < 3; j++) {
            wanted -= p[j] > -HUGE_VALL ? expl(p[j]) * (p[j] - q[j] - kl) : 0;
        }
        works(napier_kl_full_backward, context, napier_const_rows_f32(rows[i][0], 1, 3),
              napier_const_rows_f32(rows[i][1], 1, 3), NULL, napier_const_array_f32(&one, 1),
              napier_rows_f32(grad, 1, 3), napier_rows_f32(NULL, 1, 3));
        expect(fabsl((real)grad[0] - wanted) <= 1e-6L * fabsl(wanted), "row %zu: gradient %.9g, not %.9Lg", i,
               (double)grad[0], wanted);
    }
}

/* Equal rows, with masks among them: 0, and so are the gradients. A mask on one side only. No distribution. */
static void test_full_special(napier_context *context) {
    float kl[ROWS];
    const float inf = HUGE_VALF;
    fill_rows(0, 0);
    memset(gx, 1, sizeof gx);
    x[3] = y[3] = -inf;
    x[COLS + 5] = y[COLS + 5] = -1e30f;
    for (int j = 0; j < COLS; j++) {
        x[2 * COLS + j] = y[2 * COLS + j] = (float)(j % 3) * 1e36f;
    }
    const float ones[ROWS] = {1, 1, 1, 1, 1, 1};
    run_full(context, x, y, NULL, ones, kl, gx, gy);
    for (int i = 0; i < ROWS * COLS; i++) {
        expect(kl[i / COLS] == 0 && gx[i] == 0 && gy[i] == 0, "equal rows: kl %g, gradients %g %g at %d",
               (double)kl[i / COLS], (double)gx[i], (double)gy[i], i);
    }
    x[0] = -inf;       /* p = 0 < q: counts 0 */
    y[COLS] = -inf;    /* q = 0 < p: infinite */
    x[2 * COLS] = NAN; /* NaN */
    y[3 * COLS] = inf; /* NaN */
    for (int j = 0; j < COLS; j++) {
        x[4 * COLS + j] = y[4 * COLS + j] = -inf; /* no distribution: NaN */
    }
    works(napier_kl_full, context, napier_const_rows_f32(x, ROWS, COLS), napier_const_rows_f32(y, ROWS, COLS), NULL,
          napier_array_f32(kl, ROWS));
    expect(kl[0] > 0 && kl[0] < 1, "a mask of the policy: %g", (double)kl[0]);
    expect(kl[1] == inf, "a mask of the reference: %g", (double)kl[1]);
    for (int i = 2; i < 5; i++) {
        expect(f32_bits(kl[i]) == 0x7fc00000u, "row %d: %g, not NaN", i, (double)kl[i]);
    }
}

static void test_full_same_bits_and_in_place(napier_context *context) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    static float ax[ROWS * COLS], ay[ROWS * COLS];
    float kl[ROWS], other[ROWS], ones[ROWS] = {1, -2, 3, 0, 5, 6};
    fill_rows(0.3, 1);
    run_full(context, x, y, NULL, ones, kl, gx, gy);
    for (int i = 0; i < count; i++) {
        napier_context *const c = context_for_test(isas[i], 1 + i % 2 * 2);
        memcpy(ax, x, sizeof x);
        memcpy(ay, y, sizeof y);
        run_full(c, ax, ay, NULL, ones, other, ax, ay);
        expect(!memcmp(kl, other, sizeof kl) && !memcmp(gx, ax, sizeof ax) && !memcmp(gy, ay, sizeof ay),
               "%s, in place, gives other bits", napier_isa_name(isas[i]));
    }
}

/* ---- Hostile ------------------------------------------------------------------------------------------------------- */

static napier_status call(napier_context *context, const int64_t *ends, int64_t size, float *kl) {
    return napier_kl_per_response(context, napier_const_array_f32(policy, 10), napier_const_array_f32(ref, 10),
                                  napier_indices_i64(ends, size), NULL, NULL, napier_array_f32(kl, size - 1));
}

static void test_refusals(napier_context *context) {
    float kl[4] = {7, 7, 7, 7};
    make_batch(2, 3, 20, 1);
    const int64_t falls[] = {0, 6, 5, 10}, starts[] = {1, 6, 10}, early[] = {0, 6, 9}, negative[] = {0, -3, 10},
                  late[] = {0, 11, 10}, good[] = {0, 4, 10};
    invalid(context, call(context, falls, 4, kl), "offsets[2]", "5");
    invalid(context, call(context, starts, 3, kl), "offsets[0]", "1");
    invalid(context, call(context, early, 3, kl), "offsets[2]", "9", "10");
    invalid(context, call(context, negative, 3, kl), "offsets[1]", "-3");
    invalid(context, call(context, late, 3, kl), "offsets[2]", "10", "11");
    invalid(context, call(context, good, 0, kl), "offsets");
    const napier_const_vector p = napier_const_array_f32(policy, 10), q = napier_const_array_f32(ref, 10);
    const napier_indices at = napier_indices_i64(good, 3), odd = {good, 3, (napier_index_type)9};
    const napier_indices least = napier_indices_i64(good, INT64_MIN);
    const napier_vector out = napier_array_f32(kl, 2), over = napier_array_f32(policy + 9, 2);
    napier_kl_options o = options_for((napier_kl_estimator)4, NAPIER_REDUCE_SUM, 0, 0);
    invalid(context, napier_kl_per_response(context, p, q, at, NULL, &o, out), "estimator", "4");
    o = options_for(NAPIER_KL_K1, NAPIER_REDUCE_SUM, -1, 0);
    invalid(context, napier_kl_per_response(context, p, q, at, NULL, &o, out), "clamp_ratio", "-1");
    o = options_for(NAPIER_KL_K1, NAPIER_REDUCE_SUM, 0, (double)NAN);
    invalid(context, napier_kl_per_response(context, p, q, at, NULL, &o, out), "clamp_kl");
    const napier_const_vector shorter = napier_const_array_f32(ref, 9);
    invalid(context, napier_kl_per_response(context, p, shorter, at, NULL, NULL, out), "ref_logprobs", "9");
    invalid(context, napier_kl_per_response(context, p, q, at, NULL, NULL, over), "kl");
    double wide[10];
    const napier_const_vector doubles = napier_const_array(wide, 10, NAPIER_F64);
    invalid(context, napier_kl_per_response(context, doubles, q, at, NULL, NULL, out), "f64");
    invalid(context, napier_kl_per_response(context, p, q, odd, NULL, NULL, out), "type", "9");
    invalid(context, napier_kl_per_response(context, p, q, least, NULL, NULL, out), "offsets", "-9223372036854775808");
    for (int i = 0; i < 4; i++) {
        expect(kl[i] == 7, "a refused call wrote");
    }
    const int64_t none[] = {0};
    const napier_const_vector empty = napier_const_array_f32(NULL, 0);
    works(napier_kl_per_response, context, empty, empty, napier_indices_i64(none, 1), NULL, NULL,
          napier_array_f32(NULL, 0));
    const int64_t nothing[] = {0, 0, 0};
    works(napier_kl_per_response, context, empty, empty, napier_indices_i64(nothing, 3), NULL, NULL, out);
    expect(kl[0] == 0 && kl[1] == 0, "an empty response is not 0");
}

int main(void) {
    return RUN_TESTS("kl", TEST_2(test_estimators), TEST_2(test_k3_everywhere), TEST_2(test_special_values),
                     TEST_2(test_same_bits), TEST_2(test_dtypes_and_strides), TEST_2(test_full),
                     TEST_2(test_full_certain), TEST_2(test_full_special), TEST_2(test_full_same_bits_and_in_place),
                     TEST_2(test_refusals));
}
