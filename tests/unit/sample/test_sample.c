/* test_sample - napier_sample against an oracle in long double: the log-probabilities, the sets that filters keep, and the
 * frequencies of ids by the chi-squared test; ties; rows and arguments that are refused. Seeds are fixed, so the result of a
 * chi-squared test is too. */
#include <math.h>
#include <napier/sample.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/oracle.h"
#include "support/sample_setting.h"

/* ---- The oracle --------------------------------------------------------------------------------------------------- */

typedef struct element {
    double z;
    int64_t id;
} element;

static int in_order(const void *a, const void *b) {
    const element *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z) - (x->z > y->z) : (x->id > y->id) - (x->id < y->id);
}

static int64_t times_in(napier_indices ids, int64_t id) {
    int64_t times = 0;
    for (int64_t i = 0; i < ids.size; i++) {
        times += ((const int32_t *)ids.data)[i] == id ? 1 : 0;
    }
    return times;
}

/* The logits after penalties, temperature and keep, of a single row. */
static void oracle_z(const float *x, int64_t n, const napier_sample_options *o, double *z) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t count = times_in(o->output_ids, i);
        double late = (double)x[i];
        if (count > 0 || times_in(o->prompt_ids, i) > 0) {
            late = late < 0 ? late * o->repetition_penalty : late / o->repetition_penalty;
        }
        late -= count > 0 ? o->frequency_penalty * (double)count + o->presence_penalty : 0;
        z[i] = o->keep && !o->keep[i] ? -HUGE_VAL : late / o->temperature;
    }
}

/* The probabilities that ids are drawn with, in the order of ids. */
static void oracle_probs(const double *z, int64_t n, const napier_sample_options *o, long double *p) {
    element *const order = room_for(n, sizeof *order);
    int64_t kept = o->top_k > 0 && o->top_k < n ? o->top_k : n;
    long double all = 0, mass = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        order[i] = (element){z[i], i};
        p[i] = 0;
    }
    qsort(order, (size_t)n, sizeof *order, in_order);
    for (int64_t i = 0; i < kept; i++) {
        all += expl((long double)order[i].z - (long double)order[0].z);
    }
    for (int64_t i = 0; i < kept; i++) {
        const long double e = expl((long double)order[i].z - (long double)order[0].z);
        if ((i > 0 && o->top_p < 1 && mass >= (long double)o->top_p * all) || e < (long double)o->min_p) {
            kept = i;
            break;
        }
        mass += e;
        p[order[i].id] = e;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += p[i];
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] /= sum;
    }
    free(order);
}

/* ---- Draws -------------------------------------------------------------------------------------------------------- */

/* Every row has the same logits; what[i] is the number that differs between rows. */
typedef enum varying { POSITIONS, SAMPLES, SEEDS, VARYING } varying;

static void draw_many(napier_context *context, const float *x, int64_t n, napier_sample_options o, varying by,
                      int64_t rows, int64_t *ids) {
    int64_t *const numbers = room_for(rows, sizeof *numbers), *const zeros = room_for(rows, sizeof *zeros);
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    for (int64_t i = 0; i < rows; i++) {
        numbers[i] = i;
        zeros[i] = 0;
    }
    o.samples = napier_indices_i64(by == SAMPLES ? numbers : zeros, rows);
    o.positions = napier_indices_i64(by == POSITIONS ? numbers : zeros, rows);
    o.seeds = napier_indices_i64(by == SEEDS ? numbers : zeros, by == SEEDS ? rows : 0);
    const napier_const_matrix logits = {x, rows, n, 0, 1, NAPIER_F32};
    r.ids = ids;
    works(napier_sample, context, logits, &o, &r);
    free(numbers);
    free(zeros);
}

/* Neighbouring ids share a bin until 8 are expected in it. */
static void check_frequencies(const int64_t *ids, int64_t rows, const long double *p, int64_t n, const char *what) {
    int64_t *const counts = room_for(n, sizeof *counts);
    memset(counts, 0, (size_t)n * sizeof *counts);
    for (int64_t i = 0; i < rows; i++) {
        counts[ids[i]]++;
    }
    long double sum = 0, expected = 0, counted = 0;
    int64_t bins = 0, impossible = 0;
    for (int64_t i = 0; i < n; i++) {
        impossible += p[i] == 0 ? counts[i] : 0;
        expected += p[i] * (long double)rows;
        counted += (long double)counts[i];
        if (expected >= 8) {
            sum += (counted - expected) * (counted - expected) / expected;
            bins++;
            expected = counted = 0;
        }
    }
    /* The sum has mean bins - 1 and variance 2 (bins - 1). Too small would be as suspicious as too large. */
    const long double mean = (long double)(bins - 1), sigma = sqrtl(2 * mean);
    expect(impossible == 0, "%s: %lld draws of ids that are not kept", what, (long long)impossible);
    expect(sum <= mean + 4 * sigma + 4 && sum >= mean - 4 * sigma - 4, "%s: chi-squared %.1Lf in %lld bins", what, sum,
           (long long)bins);
    free(counts);
}

typedef struct named_setting {
    sample_setting how;
    const char *name;
} named_setting;

static const named_setting settings[] = {
    {{1, 0, 1, 0, 1, 0, 0, false}, "plain"},
    {{0.7, 0, 1, 0, 1, 0, 0, false}, "temperature 0.7"},
    {{3, 0, 1, 0, 1, 0, 0, false}, "temperature 3"},
    {{1, 12, 1, 0, 1, 0, 0, false}, "top-k"},
    {{1, 0, 0.8, 0, 1, 0, 0, false}, "top-p"},
    {{1, 0, 1, 0.07, 1, 0, 0, false}, "min-p"},
    {{0.8, 20, 0.9, 0, 1, 0, 0, false}, "top-k, top-p"},
    {{1.3, 20, 1, 0.1, 1, 0, 0, false}, "top-k, min-p"},
    {{1, 0, 0.9, 0.04, 1, 0, 0, false}, "top-p, min-p"},
    {{2, 30, 0.85, 0.2, 1, 0, 0, false}, "top-k, top-p, min-p"},
    {{1, 0, 1, 0, 1.4, 0, 0, false}, "repetition"},
    {{1, 0, 1, 0, 1, 0.5, 0.25, false}, "presence, frequency"},
    {{1, 0, 1, 0, 1, 0, 0, true}, "keep"},
    {{1.2, 25, 0.95, 0.02, 1.2, 0.3, 0.2, true}, "all"},
};

enum { PROMPT = 6, OUTPUT = 9 };
static const int32_t prompt[PROMPT] = {0, 3, 7, 7, 21, 40}, output[OUTPUT] = {1, 3, 3, 3, 9, 9, 33, 49, 2};

/* The histories of `rows` equal rows; freed with the test's scratch memory. */
static void give_history(napier_sample_options *o, int64_t rows) {
    int32_t *const p = scratch(rows * PROMPT, sizeof *p), *const q = scratch(rows * OUTPUT, sizeof *q);
    int32_t *const p_at = scratch(rows + 1, sizeof *p_at), *const q_at = scratch(rows + 1, sizeof *q_at);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(p + i * PROMPT, prompt, sizeof prompt);
        memcpy(q + i * OUTPUT, output, sizeof output);
    }
    for (int64_t i = 0; i <= rows; i++) {
        p_at[i] = (int32_t)(i * PROMPT);
        q_at[i] = (int32_t)(i * OUTPUT);
    }
    o->prompt_ids = napier_indices_i32(p, rows * PROMPT);
    o->prompt_offsets = napier_indices_i32(p_at, rows + 1);
    o->output_ids = napier_indices_i32(q, rows * OUTPUT);
    o->output_offsets = napier_indices_i32(q_at, rows + 1);
}

static void fill(float *x, uint8_t *keep, int64_t n, uint64_t seed, double scale) {
    rng r = rng_make(seed);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(scale * rng_normal(&r));
        keep[i] = rng_below(&r, 3) > 0 ? 1 : 0;
    }
}

static void check_distribution(napier_context *context, const named_setting *s, int64_t n, int64_t rows, varying by) {
    float *const x = scratch(n, sizeof *x);
    uint8_t *const keep = scratch(n, 1);
    double *const z = scratch(n, sizeof *z);
    long double *const p = scratch(n, sizeof *p);
    int64_t *const ids = scratch(rows, sizeof *ids);
    char what[80];
    fill(x, keep, n, 17 + (uint64_t)n, 1.5);
    napier_sample_options o = sample_setting_options(&s->how, keep), one = o;
    give_history(&o, rows);
    give_history(&one, 1);
    oracle_z(x, n, &one, z);
    oracle_probs(z, n, &one, p);
    draw_many(context, x, n, o, by, rows, ids);
    (void)snprintf(what, sizeof what, "%s, %lld ids, by %d", s->name, (long long)n, (int)by);
    check_frequencies(ids, rows, p, n, what);
}

static void frequencies_follow_the_probabilities(napier_context *context) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (int by = 0; by < VARYING; by++) {
            check_distribution(context, &settings[i], 50, NAPIER_SANITIZED ? 4000 : 40000, (varying)by);
        }
    }
    for (size_t i = 0; i < (NAPIER_SANITIZED ? 0 : 7); i++) {
        check_distribution(context, &settings[i], 2500, 20000, POSITIONS);
    }
    no_problems();
}

/* ---- Log-probabilities and kept sets ------------------------------------------------------------------------------ */

/* log p of the drawn id, and whether it may be drawn, with top_p moved by `nudge`. */
static bool right_draw(const double *z, int64_t n, napier_sample_options o, double nudge, int64_t id, float logprob) {
    long double *const p = room_for(n, sizeof *p);
    o.top_p = o.top_p < 1 ? o.top_p + nudge : 1;
    oracle_probs(z, n, &o, p);
    const long double truth = logl(p[id]);
    const bool right = p[id] > 0 && fabsl((long double)logprob - truth) < 2e-6L * (1 - truth);
    free(p);
    return right;
}

static void logprobs_follow_the_oracle(napier_context *context) {
    static const int64_t sizes[] = {50, 777, 1024, 4000};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            const int64_t n = sizes[k];
            float *const x = scratch(n, sizeof *x), logprob, plain;
            uint8_t *const keep = scratch(n, 1);
            double *const z = scratch(n, sizeof *z), *const plain_z = scratch(n, sizeof *plain_z);
            int64_t id;
            napier_sample_options o = sample_setting_options(&settings[i].how, keep);
            napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
            fill(x, keep, n, 99 + i, k % 2 ? 4 : 1);
            give_history(&o, 1);
            o.seed = (int64_t)(10 * i + k);
            r.ids = &id;
            r.logprobs = napier_array_f32(&logprob, 1);
            r.plain_logprobs = napier_array_f32(&plain, 1);
            works(napier_sample, context, napier_const_rows_f32(x, 1, n), &o, &r);
            oracle_z(x, n, &o, z);
            const bool right = right_draw(z, n, o, 0, id, logprob) || right_draw(z, n, o, 1e-6, id, logprob) ||
                               right_draw(z, n, o, -1e-6, id, logprob);
            for (int64_t j = 0; j < n; j++) {
                plain_z[j] = (double)x[j] / o.temperature;
            }
            const oracle_row row = oracle_reduce(plain_z, n);
            const long double truth = oracle_log_softmax(&row, plain_z[id]);
            expect(right, "%s, %lld ids: logprob %g of id %lld", settings[i].name, (long long)n, (double)logprob,
                   (long long)id);
            expect(fabsl((long double)plain - truth) < 2e-6L * (1 - truth), "%s, %lld ids: plain %g, truth %Lg",
                   settings[i].name, (long long)n, (double)plain, truth);
        }
    }
    no_problems();
}

/* ---- Ties --------------------------------------------------------------------------------------------------------- */

/* Draws often, and returns the greatest id of the results. */
static int64_t greatest_of(napier_context *context, const float *x, int64_t n, napier_sample_options o) {
    enum { DRAWS = 2000 };
    int64_t *const ids = scratch(DRAWS, sizeof *ids), greatest = 0;
    draw_many(context, x, n, o, POSITIONS, DRAWS, ids);
    for (int64_t i = 0; i < DRAWS; i++) {
        greatest = ids[i] > greatest ? ids[i] : greatest;
    }
    return greatest;
}

static void ties_go_to_the_lower_id(napier_context *context) {
    enum { N = 4000 };
    float *const x = scratch(N, sizeof *x);
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    for (int64_t i = 0; i < N; i++) {
        x[i] = i % 100 == 0 ? 20.0f : -20.0f;
    }
    o.top_k = 17;
    expect(greatest_of(context, x, N, o) == 1600, "top-k");
    o = (napier_sample_options)NAPIER_SAMPLE_OPTIONS_INIT;
    o.top_p = 0.26; /* of 40 equal ids: 11 */
    expect(greatest_of(context, x, N, o) == 1000, "top-p");
    o.top_p = 1;
    o.min_p = 1;
    expect(greatest_of(context, x, N, o) == 3900, "min-p keeps all that are equal");
    o.temperature = 0;
    x[0] = -20.0f;
    expect(greatest_of(context, x, N, o) == 100, "greedy");
    x[100] = -0.0f;
    x[200] = 0.0f;
    for (int64_t i = 201; i < N; i++) {
        x[i] = -1.0f;
    }
    expect(greatest_of(context, x, N, o) == 100, "the zeros are equal");
    no_problems();
}

/* ---- What is refused ---------------------------------------------------------------------------------------------- */

static void rows_without_a_distribution_are_refused(napier_context *context) {
    enum { ROWS = 5, N = 3 };
    float x[ROWS][N] = {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}};
    int64_t ids[ROWS] = {-5, -5, -5, -5, -5};
    uint8_t keep[ROWS * N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1};
    const int32_t outputs[1] = {2}, offsets[ROWS + 1] = {0, 0, 0, 0, 0, 1};
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    const napier_const_matrix logits = napier_const_rows_f32(x[0], ROWS, N);
    r.ids = ids;
    x[4][0] = NAN;
    invalid(context, napier_sample(context, logits, &o, &r), "logits", "row 4", "NaN");
    x[3][2] = INFINITY;
    invalid(context, napier_sample(context, logits, &o, &r), "logits", "row 3", "+inf");
    x[2][0] = x[2][1] = x[2][2] = -INFINITY;
    invalid(context, napier_sample(context, logits, &o, &r), "logits", "row 2", "only -inf");
    o.temperature = 0;
    invalid(context, napier_sample(context, logits, &o, &r), "logits", "row 2", "only -inf");
    x[2][0] = x[3][2] = x[4][0] = 1;
    o.temperature = 1e-38;
    x[1][1] = 100;
    invalid(context, napier_sample(context, logits, &o, &r), "row 1", "+inf", "temperature 0");
    o.temperature = 1;
    o.keep = keep;
    o.keep_stride = N;
    x[3][1] = -INFINITY;
    invalid(context, napier_sample(context, logits, &o, &r), "row 3", "no id left", "keep");
    o.keep = NULL;
    o.output_ids = napier_indices_i32(outputs, 1);
    o.output_offsets = napier_indices_i32(offsets, ROWS + 1);
    o.repetition_penalty = 1e-30;
    x[4][2] = 3e38f;
    invalid(context, napier_sample(context, logits, &o, &r), "row 4", "+inf after the penalties");
    for (int i = 0; i < ROWS; i++) {
        expect(ids[i] == -5, "a refused call has written id %d", i);
    }
    no_problems();
}

typedef struct refusal {
    const char *words[2];
    double temperature, top_p, repetition;
    napier_sample_options o; /* the other options */
} refusal;

#define NONE \
    { .struct_size = sizeof(napier_sample_options) }
#define WITH(...) \
    { .struct_size = sizeof(napier_sample_options), __VA_ARGS__ }

static void arguments_are_checked(napier_context *context) {
    enum { ROWS = 2, N = 4 };
    static const float x[ROWS * N] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t bad[3] = {0, 4, 1}, at[3] = {0, 1, 3}, falling[3] = {0, 2, 1}, good[3] = {0, 1, 2};
    static const uint8_t keep[ROWS * N] = {1};
    const refusal refusals[] = {
        {{"temperature", "-1"}, -1, 1, 1, NONE},
        {{"temperature", "nan"}, (double)NAN, 1, 1, NONE},
        {{"temperature", "1e-60"}, 1e-60, 1, 1, NONE},
        {{"temperature", "inf"}, (double)INFINITY, 1, 1, NONE},
        {{"top_k", "-3"}, 1, 1, 1, WITH(.top_k = -3)},
        {{"top_p", "0"}, 1, 0, 1, NONE},
        {{"top_p", "1.5"}, 1, 1.5, 1, NONE},
        {{"top_p", "nan"}, 1, (double)NAN, 1, NONE},
        {{"min_p", "-0.1"}, 1, 1, 1, WITH(.min_p = -0.1)},
        {{"min_p", "2"}, 1, 1, 1, WITH(.min_p = 2)},
        {{"repetition_penalty", "0"}, 1, 1, 0, NONE},
        {{"repetition_penalty", "nan"}, 1, 1, (double)NAN, NONE},
        {{"presence_penalty", "inf"}, 1, 1, 1, WITH(.presence_penalty = (double)INFINITY)},
        {{"frequency_penalty", "1e+300"}, 1, 1, 1, WITH(.frequency_penalty = 1e300)},
        {{"keep_stride", "3"}, 1, 1, 1, WITH(.keep = keep, .keep_stride = 3)},
        {{"prompt_ids[1]", "4"},
         1,
         1,
         1,
         WITH(.prompt_ids = napier_indices_i32(bad, 3), .prompt_offsets = napier_indices_i32(at, 3))},
        {{"output_offsets[2]", "less"},
         1,
         1,
         1,
         WITH(.output_ids = napier_indices_i32(good, 1), .output_offsets = napier_indices_i32(falling, 3))},
        {{"output_offsets", "2 rows"},
         1,
         1,
         1,
         WITH(.output_ids = napier_indices_i32(good, 1), .output_offsets = napier_indices_i32(at, 2))},
        {{"output_offsets", "size 0"}, 1, 1, 1, WITH(.output_ids = napier_indices_i32(good, 1))},
        {{"output_offsets", "-9223372036854775808"},
         1,
         1,
         1,
         WITH(.output_offsets = napier_indices_i32(at, INT64_MIN))},
        {{"seeds", "2 rows"}, 1, 1, 1, WITH(.seeds = napier_indices_i32(good, 3))},
        {{"samples", "2 rows"}, 1, 1, 1, WITH(.samples = napier_indices_i32(good, 1))},
        {{"positions", "2 rows"}, 1, 1, 1, WITH(.positions = napier_indices_i32(good, 3))},
        {{"positions", "NULL"}, 1, 1, 1, WITH(.positions = {NULL, 2, NAPIER_I64})},
    };
    int64_t ids[ROWS] = {-5, -5};
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    const napier_const_matrix logits = napier_const_rows_f32(x, ROWS, N);
    r.ids = ids;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        napier_sample_options o = refusals[i].o;
        o.temperature = refusals[i].temperature;
        o.top_p = refusals[i].top_p;
        o.repetition_penalty = refusals[i].repetition;
        invalid(context, napier_sample(context, logits, &o, &r), refusals[i].words[0], refusals[i].words[1]);
    }
    invalid(context, napier_sample(context, napier_const_rows(x, 1, 2, NAPIER_F64), NULL, &r), "logits", "f64");
    invalid(context, napier_sample(context, napier_const_rows_f32(x, 2, 0), NULL, &r), "logits", "no columns");
    invalid(context, napier_sample(context, napier_const_rows_f32(NULL, 2, 4), NULL, &r), "logits", "NULL");
    invalid(context, napier_sample(context, logits, NULL, NULL), "results", "NULL");
    r.ids = NULL;
    invalid(context, napier_sample(context, logits, NULL, &r), "ids", "NULL");
    r.ids = ids;
    r.logprobs = napier_array(ids, 2, NAPIER_F32);
    invalid(context, napier_sample(context, logits, NULL, &r), "logprobs", "ids");
    r.logprobs = NO_VECTOR;
    expect(napier_sample(NULL, logits, NULL, &r) == NAPIER_INVALID_ARGUMENT, "no context");
    expect(ids[0] == -5 && ids[1] == -5, "a refused call has written");
    works(napier_sample, context, napier_const_rows_f32(x, 0, 4), NULL, &r);
    works(napier_sample, context, logits, NULL, &r);
    no_problems();
}

int main(void) {
    return RUN_TESTS("sample", TEST_2(frequencies_follow_the_probabilities), TEST_2(logprobs_follow_the_oracle),
                     TEST_2(ties_go_to_the_lower_id), TEST_2(rows_without_a_distribution_are_refused),
                     TEST_2(arguments_are_checked));
}
