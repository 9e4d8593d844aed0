/* tests/cuda/test_cuda_linear_tokens.c - log-probabilities from hidden states on tensor cores, and their gradients:
 * against the CPU's, which are exact in comparison; the same bits for a row wherever it stands, rows that are not finite, ids that are no column, and
 * errors. */
#include <napier/rl.h>

#include "both.h"

typedef struct token_case {
    int64_t rows, hidden, cols, per_row;
    napier_dtype dtype;
    double temperature, softcap, smoothing, z_loss;
    bool keep;
    uint64_t seed;
} token_case;

/* ---- A case ------------------------------------------------------------------------------------------------------ */

typedef struct token_data {
    token_case c;
    grid hidden, weights;
    int64_t *ids; /* [rows][per_row] */
    uint8_t *keep;
    napier_token_options options;
    napier_token_results results; /* lse, entropy, argmax; logprobs; loss if per_row is 1 */
    napier_matrix logits;         /* f32 */
} token_data;

static double unit(rng *r) { return 2.0 * rng_uniform(r) - 1.0; }

static void fill(grid *g, double scale, rng *r) {
    for (int64_t i = 0; i < g->view.rows; i++) {
        for (int64_t j = 0; j < g->view.cols; j++) {
            grid_set(g, i, j, scale * unit(r));
        }
    }
}

static napier_token_options options_for(const token_data *d) {
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.temperature = d->c.temperature;
    o.softcap = d->c.softcap;
    o.label_smoothing = d->c.smoothing;
    o.z_loss = d->c.z_loss;
    o.keep = d->c.keep ? d->keep : NULL;
    o.keep_stride = d->c.keep ? d->c.cols : 0;
    return o;
}

static napier_token_results new_results(const token_case *c) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = as_rows_out(vector_new(c->rows * c->per_row, NAPIER_F32, 1), c->rows, c->per_row, c->per_row);
    r.lse = vector_new(c->rows, NAPIER_F32, 1);
    r.entropy = vector_new(c->rows, NAPIER_F32, 1);
    r.loss = c->per_row == 1 ? vector_new(c->rows, NAPIER_F32, 1) : r.loss;
    r.argmax = array_new((size_t)c->rows * sizeof(int64_t));
    return r;
}

static token_data data_of(token_case c) {
    rng r = rng_make(c.seed + 1);
    token_data d = {.c = c};
    d.hidden = grid_new(c.seed % 3 == 1 ? LAYOUT_OFFSET : LAYOUT_CONTIGUOUS, c.rows, c.hidden, c.dtype);
    d.weights = grid_new(c.seed % 3 == 2 ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS, c.cols, c.hidden, c.dtype);
    d.ids = array_new((size_t)(c.rows * c.per_row) * sizeof *d.ids);
    d.keep = array_new((size_t)(c.rows * c.cols));
    fill(&d.hidden, 2.0, &r);
    fill(&d.weights, 1.0, &r);
    for (int64_t i = 0; i < c.rows * c.per_row; i++) {
        d.ids[i] = rng_below(&r, 9) == 0 ? -100 : rng_below(&r, c.cols);
    }
    for (int64_t i = 0; i < c.rows * c.cols; i++) {
        d.keep[i] = rng_below(&r, 3) > 0;
    }
    for (int64_t i = 0; i < c.rows * c.per_row;
         i++) { /* a chosen one is kept, so that its log-probability is a number */
        d.keep[i / c.per_row * c.cols + (d.ids[i] < 0 ? 0 : d.ids[i])] = 1;
    }
    d.options = options_for(&d);
    d.results = new_results(&c);
    d.logits = napier_rows_f32(array_new((size_t)(c.rows * c.cols) * sizeof(float)), c.rows, c.cols);
    fine(napier_matmul(cpu, grid_input(&d.hidden), napier_const_transposed(grid_input(&d.weights)), d.logits));
    both_case("case %d: %d x %d x %d", (int)c.seed, (int)c.rows, (int)c.hidden, (int)c.cols);
    return d;
}

static napier_indices case_ids(const token_data *d) { return napier_indices_i64(d->ids, d->c.rows * d->c.per_row); }

/* The arguments of a forward call. */
#define FORWARD(d) grid_input(&(d)->hidden), grid_input(&(d)->weights), case_ids(d), &(d)->options, &(d)->results

static napier_status run_case(const token_data *d) {
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    return through_linear_token_logprobs(cpu, FORWARD(d));
}

static float at(napier_vector v, int64_t i) { return ((const float *)v.data)[i]; }
static float logprob(const token_data *d, int64_t i) { return ((const float *)d->results.logprobs.data)[i]; }

/* ---- On tensor cores --------------------------------------------------------------------------------------------- */

static double logit(const token_data *d, int64_t row, int64_t j) {
    const double x = element_get(d->logits.data, NAPIER_F32, row * d->c.cols + j);
    const double capped = d->c.softcap != 0 ? d->c.softcap * tanh(x / d->c.softcap) : x;
    return d->keep[row * d->c.cols + j] || !d->c.keep ? capped / d->c.temperature : -(double)INFINITY;
}

/* By how much a row's logits may be off: sums of |hidden weights| in f32, and their own rounding. */
static double error_of(const token_data *d, int64_t row) {
    double error = 0;
    for (int64_t j = 0; j < d->c.cols; j++) {
        const double z = logit(d, row, j);
        double size = 0;
        for (int64_t k = 0; k < d->c.hidden; k++) {
            size += fabs(grid_get(&d->hidden, row, k) * grid_get(&d->weights, j, k));
        }
        error = fmax(error, (double)(d->c.hidden + 16) * 0x1p-22 * size);
        error = fmax(error, z > -(double)INFINITY ? fabs(z) * 0x1p-21 : 0);
    }
    return error / fmin(d->c.temperature, 1.0);
}

static void near(const char *what, int64_t row, double got, double wanted, double error) {
    expect(fabs(got - wanted) <= error, "%s of row %lld: %.9g, not %.9g (+- %g)", what, (long long)row, got, wanted,
           error);
}

/* A row of the results against the CPU's. */
static void check_row(const token_data *d, const napier_token_results *wanted, int64_t i) {
    const napier_token_results *const r = &d->results;
    const double lse = (double)at(wanted->lse, i), entropy = (double)at(wanted->entropy, i);
    const double error = error_of(d, i), tiny = 4e-6 + fabs(lse) * 0x1p-22, max = logit(d, i, wanted->argmax[i]);
    near("lse", i, (double)at(r->lse, i), lse, error + tiny);
    near("entropy", i, (double)at(r->entropy, i), entropy, 2 * error * (1 + lse - max + entropy) + tiny);
    expect(r->argmax[i] >= 0 && logit(d, i, r->argmax[i]) >= max - 2 * error, "argmax of row %lld", (long long)i);
    for (int64_t k = i * d->c.per_row; k < (i + 1) * d->c.per_row; k++) {
        const double chosen = element_get(wanted->logprobs.data, NAPIER_F32, k);
        near("logprob", i, (double)logprob(d, k), chosen, d->ids[k] < 0 ? 0 : 2 * error + tiny);
        expect(logprob(d, k) <= 0.0f, "a positive log-probability");
    }
    if (d->c.per_row == 1) {
        const double bound = (4 + 2 * d->c.z_loss * fabs(lse)) * (error + tiny);
        near("loss", i, (double)at(r->loss, i), (double)at(wanted->loss, i), d->ids[i] < 0 ? 0 : bound);
    }
}

static const token_case CASES[] = {
    {1, 8, 5, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0},          {3, 70, 130, 2, NAPIER_F16, 0.7, 0, 0, 0, true, 1},
    {140, 64, 300, 1, NAPIER_BF16, 1, 3, 0.1, 1e-3, true, 3}, {9, 24, 257, 1, NAPIER_BF16, 1.3, 0, 0.2, 0, false, 2},
    {129, 16, 128, 3, NAPIER_BF16, 1, 0, 0, 0, false, 4},     {2, 40, 1100, 1, NAPIER_F16, 1, 0, 0, 0, false, 6},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static void test_forward(void) {
    for (int i = 0; i < CASE_COUNT; i += NAPIER_SANITIZED ? 2 : 1) {
        const token_data d = data_of(CASES[i]);
        device_order((uint64_t)i);
        const napier_token_results wanted = new_results(&d.c);
        fine(napier_linear_token_logprobs(cpu, grid_input(&d.hidden), grid_input(&d.weights), case_ids(&d), &d.options,
                                          &wanted));
        fine(run_case(&d));
        for (int64_t row = 0; row < d.c.rows; row += (d.c.rows > 100 ? 11 : 1)) {
            check_row(&d, &wanted, row);
        }
        arrays_free();
    }
}

/* Computes the same row alone, and under other orders of threads. */
static void test_batches(void) {
    const token_case c = {140, 20, 200, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0};
    token_case single = c;
    single.rows = 1;
    const token_data d = data_of(c);
    token_data one = data_of(single);
    fine(run_case(&d));
    grid_copy(&one.weights, &d.weights);
    for (int64_t row = 0; row < c.rows; row += 47) {
        for (int64_t k = 0; k < c.hidden; k++) {
            grid_set(&one.hidden, 0, k, grid_get(&d.hidden, row, k));
        }
        one.ids[0] = d.ids[row];
        device_order((uint64_t)row + 5);
        fine(run_case(&one));
        const napier_token_results *const a = &one.results, *const b = &d.results;
        expect(f32_bits(at(a->lse, 0)) == f32_bits(at(b->lse, row)) &&
                   f32_bits(at(a->entropy, 0)) == f32_bits(at(b->entropy, row)) &&
                   f32_bits(logprob(&one, 0)) == f32_bits(logprob(&d, row)) && a->argmax[0] == b->argmax[row],
               "row %lld alone differs", (long long)row);
    }
}

/* Rows with NaN, infinities, ties, and large maxima. */
static void test_special_rows(void) {
    enum { N = 7, V = 200 };
    token_data d = data_of((token_case){N, 8, V, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    static const double first[N] = {1, (double)NAN, 0, 0x1p22, 0x1p40, (double)INFINITY, -0x1p30};
    for (int64_t i = 0; i < N; i++) {
        for (int64_t k = 0; k < 8; k++) {
            grid_set(&d.hidden, i, k, k == 0 ? first[i] : 0);
        }
        d.ids[i] = 3;
    }
    for (int64_t j = 0; j < V; j++) { /* row 0: 1 twice, else -64 or less; the others scaled */
        grid_set(&d.weights, j, 0, j == 3 || j == 150 ? 1 : -64 - (double)j);
    }
    fine(run_case(&d));
    const napier_vector lse = d.results.lse, entropy = d.results.entropy;
    const int64_t *const argmax = d.results.argmax;
    const double ties = log(2.0);
    near("lse of a tie", 0, (double)at(lse, 0), 1 + ties, 1e-6);
    near("logprob of a tie", 0, (double)logprob(&d, 0), -ties, 1e-7);
    expect(argmax[0] == 3, "argmax of a tie");
    expect(isnan(at(lse, 1)) && isnan(logprob(&d, 1)) && isnan(at(entropy, 1)) && argmax[1] == -1, "a NaN");
    near("equal logits", 2, (double)at(lse, 2), log((double)V), 1e-6);
    near("equal logits", 2, (double)at(entropy, 2), log((double)V), 1e-6);
    near("big", 3, (double)at(lse, 3), 0x1p22, 1);
    near("big", 3, (double)logprob(&d, 3), -ties, 1e-6);
    near("huge", 4, (double)logprob(&d, 4), -ties, 1e-6);
    near("huge", 4, (double)at(entropy, 4), ties, 1e-6);
    expect(isnan(logprob(&d, 5)), "infinity times something");
    expect(argmax[6] == V - 1 && at(entropy, 6) == 0.0f, "the least is the largest");
}

static void test_ids(void) {
    const token_data d = data_of((token_case){4, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    d.ids[0] = 2, d.ids[1] = 20, d.ids[2] = -1, d.ids[3] = INT64_MAX;
    bad(run_case(&d), "index 1");
    assert_true(!isnan(logprob(&d, 0)) && !isnan(at(d.results.lse, 1)));
    all_nan((const float *)d.results.logprobs.data + 1, NAPIER_F32, 3);
    fine(napier_cuda_synchronize(through_context(), NULL)); /* said once */
}

/* ---- Bitwise ----------------------------------------------------------------------------------------------------- */

static void test_bitwise(void) {
    static const token_case cases[] = {{1, 8, 5, 1, NAPIER_F32, 1, 0, 0, 0, false, 0},
                                       {140, 33, 70, 1, NAPIER_BF16, 0.9, 0, 0, 0, true, 1},
                                       {7, 20, 1100, 2, NAPIER_F16, 1, 5, 0, 0, false, 2}};
    for (int i = 0; i < 3; i++) {
        token_data d = data_of(cases[i]);
        const int64_t n = d.c.rows;
        d.results.rank = array_new((size_t)(n * d.c.per_row) * sizeof(int64_t));
        d.results.top_k = 2;
        d.results.top_ids = array_new((size_t)(2 * n) * sizeof(int64_t));
        d.results.top_logprobs = as_rows_out(vector_new(2 * n, NAPIER_F32, 1), n, 2, 2);
        through_mode = NAPIER_CUDA_BITWISE;
        SAME(linear_token_logprobs, FORWARD(&d));
        arrays_free();
    }
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

/* rows of `got` against sums of g, the gradient of the logits, times `factors`. */
static void check_sums(const char *what, const grid *got, const float *g, int64_t rows, int64_t terms, int64_t row_step,
                       int64_t term_step, const grid *factors) {
    for (int64_t i = 0; i < rows; i += (rows > 100 ? 13 : 1)) {
        for (int64_t c = 0; c < got->view.cols; c++) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < terms; t++) {
                const double x = (double)g[i * row_step + t * term_step] * grid_get(factors, t, c);
                sum += x;
                size += fabs(x) + 1e-6 * fabs(grid_get(factors, t, c));
            }
            if (!expect(fabs(grid_get(got, i, c) - sum) <= 0x1p-7 * size + 0x1p-8 * fabs(sum) + 1e-6,
                        "%s (%lld, %lld): %g, not %g", what, (long long)i, (long long)c, grid_get(got, i, c), sum)) {
                return;
            }
        }
    }
}

static napier_const_vector pulls_of(int64_t n, rng *r) {
    float *const pulls = array_new((size_t)n * sizeof *pulls);
    for (int64_t i = 0; i < n; i++) {
        pulls[i] = (float)unit(r);
    }
    return napier_const_array_f32(pulls, n);
}

static void check_backward(const token_case *c, napier_dtype out, bool wants_hidden, bool wants_weights) {
    const token_data d = data_of(*c);
    const int64_t n = c->rows, k = c->per_row;
    rng r = rng_make(c->seed);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = as_rows(pulls_of(n * k, &r), n, k, k);
    g.lse = pulls_of(n, &r);
    g.entropy = pulls_of(n, &r);
    g.loss = k == 1 ? pulls_of(n, &r) : g.loss;
    const grid hidden = grid_new(LAYOUT_PADDED, n, c->hidden, out);
    const grid weights = grid_new(LAYOUT_CONTIGUOUS, c->cols, c->hidden, out);
    napier_matrix to_hidden = hidden.view, to_weights = weights.view;
    to_hidden.data = wants_hidden ? to_hidden.data : NULL;
    to_weights.data = wants_weights ? to_weights.data : NULL;
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    fine(through_linear_token_logprobs_backward(cpu, grid_input(&d.hidden), grid_input(&d.weights), case_ids(&d),
                                                &d.options, &g, to_hidden, to_weights));
    expect(grid_damage(&hidden) == 0 && grid_damage(&weights) == 0, "bytes beside the gradients");
    const napier_matrix dense = napier_rows_f32(array_new((size_t)(n * c->cols) * sizeof(float)), n, c->cols);
    fine(napier_token_logprobs_backward(cpu, napier_read_only(d.logits), case_ids(&d), &d.options, &g, dense));
    if (wants_hidden) {
        check_sums("grad_hidden", &hidden, dense.data, n, c->cols, c->cols, 1, &d.weights);
    }
    if (wants_weights) {
        check_sums("grad_weights", &weights, dense.data, c->cols, n, 1, c->cols, &d.hidden);
    }
    arrays_free();
}

static void test_backward(void) {
    const napier_dtype outs[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};
    for (int i = 0; i < CASE_COUNT; i += NAPIER_SANITIZED ? 2 : 1) {
        device_order((uint64_t)i + 2);
        check_backward(&CASES[i], outs[i % 3], i != 3, i != 4);
    }
    const token_case long_one = {2, 8, 4200, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0};
    check_backward(&long_one, NAPIER_F32, true, true);
}

/* A row without gradients gets 0, whatever is in it. */
static void test_zero_rows(void) {
    token_data d = data_of((token_case){2, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    grid_set(&d.hidden, 0, 3, (double)NAN);
    d.ids[0] = -100, d.ids[1] = 4;
    const float pull[2] = {1, 1};
    float *const out = array_new(sizeof(float) * 16);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = as_rows(vector_of(pull, 2, NAPIER_F32, 1), 2, 1, 1);
    const napier_matrix none = {NULL, 20, 8, 8, 1, NAPIER_F32};
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    fine(through_linear_token_logprobs_backward(cpu, grid_input(&d.hidden), grid_input(&d.weights), case_ids(&d), NULL,
                                                &g, napier_rows_f32(out, 2, 8), none));
    for (int i = 0; i < 8; i++) {
        assert_true(out[i] == 0.0f && isfinite(out[8 + i]));
    }
}

static void test_errors(void) {
    const token_data d = data_of((token_case){2, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    const napier_const_matrix hidden = grid_input(&d.hidden), weights = grid_input(&d.weights);
    const napier_indices none = {NULL, 0, NAPIER_I64};
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.lse = d.results.lse;
    through_mode = (napier_cuda_mode)3;
    unsupported(through_linear_token_logprobs(cpu, hidden, weights, none, NULL, &results), "mode");
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    bad(through_linear_token_logprobs(cpu, hidden, weights, none, NULL, NULL), "results: NULL");
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    options.split = 1;
    unsupported(through_linear_token_logprobs(cpu, hidden, weights, none, &options, &results), "split 1");
    results.top_k = 2;
    results.top_ids = array_new(sizeof(int64_t) * 4);
    unsupported(through_linear_token_logprobs(cpu, hidden, weights, none, NULL, &results), "top_k");
}

int main(void) {
    return BOTH_TESTS("cuda_linear_tokens", TEST(test_forward), TEST(test_batches), TEST(test_special_rows),
                      TEST(test_ids), TEST(test_bitwise), TEST(test_backward), TEST(test_zero_rows), TEST(test_errors));
}
