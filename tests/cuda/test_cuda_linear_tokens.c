/* tests/cuda/test_cuda_linear_tokens.c - log-probabilities from hidden states on tensor cores, and their gradients:
 * against float64, the same bits for a row wherever it stands, rows that are not finite, ids that are no column, and
 * errors. */
#include <math.h>
#include <napier/rl.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"

static napier_cuda_context *context;

enum { IDS_MOST = 3 };

typedef struct token_case {
    int64_t rows, hidden, cols, per_row;
    napier_dtype dtype;
    double temperature, softcap, smoothing, z_loss;
    bool keep;
    uint64_t seed;
} token_case;

/* ---- A case, on the host ----------------------------------------------------------------------------------------- */

typedef struct token_data {
    token_case c;
    grid hidden, weights;
    int64_t *ids; /* [rows][per_row] */
    uint8_t *keep;
    double *logits; /* [rows][cols], exact */
    double *size;   /* [rows][cols]: sum of |hidden weights| */
} token_data;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}
static double unit(uint64_t *state) { return (double)next(state) * 0x1p-30 - 1.0; }

static void fill(grid *g, double scale, uint64_t *state) {
    for (int64_t r = 0; r < g->view.rows; r++) {
        for (int64_t c = 0; c < g->view.cols; c++) {
            grid_set(g, r, c, scale * unit(state));
        }
    }
}

static void multiply(token_data *d) {
    for (int64_t i = 0; i < d->c.rows; i++) {
        for (int64_t j = 0; j < d->c.cols; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < d->c.hidden; k++) {
                const double x = grid_get(&d->hidden, i, k) * grid_get(&d->weights, j, k);
                sum += x;
                size += fabs(x);
            }
            d->logits[i * d->c.cols + j] = sum;
            d->size[i * d->c.cols + j] = size;
        }
    }
}

static token_data data_of(token_case c) {
    uint64_t state = c.seed + 1;
    token_data d = {.c = c};
    d.hidden = grid_make(c.seed % 3 == 1 ? LAYOUT_OFFSET : LAYOUT_CONTIGUOUS, c.rows, c.hidden, c.dtype);
    d.weights = grid_make(c.seed % 3 == 2 ? LAYOUT_TRANSPOSED : LAYOUT_CONTIGUOUS, c.cols, c.hidden, c.dtype);
    d.ids = room_for(c.rows * c.per_row + 1, sizeof *d.ids);
    d.keep = room_for(c.rows * c.cols, 1);
    d.logits = room_for(c.rows * c.cols, sizeof(double));
    d.size = room_for(c.rows * c.cols, sizeof(double));
    fill(&d.hidden, 2.0, &state);
    fill(&d.weights, 1.0, &state);
    for (int64_t i = 0; i < c.rows * c.per_row; i++) {
        d.ids[i] = next(&state) % 9 == 0 ? -100 : (int64_t)(next(&state) % (uint64_t)c.cols);
    }
    for (int64_t i = 0; i < c.rows * c.cols; i++) {
        d.keep[i] = !c.keep || next(&state) % 3 > 0;
    }
    for (int64_t i = 0; i < c.rows; i++) { /* a chosen one is kept, so that its log-probability is a number */
        for (int64_t k = 0; k < c.per_row; k++) {
            const int64_t id = d.ids[i * c.per_row + k];
            d.keep[i * c.cols + (id < 0 ? 0 : id)] = 1;
        }
    }
    multiply(&d);
    return d;
}

static void data_free(token_data *d) {
    grid_free(&d->hidden), grid_free(&d->weights);
    free(d->ids), free(d->keep), free(d->logits), free(d->size);
}

/* ---- A case, on the device --------------------------------------------------------------------------------------- */

typedef struct on_device {
    void *hidden, *weights;
    napier_matrix hidden_view, weights_view;
    int64_t *ids;
    uint8_t *keep;
    napier_token_options options;
} on_device;

static void *grid_to_device(const grid *g, napier_matrix *view) {
    char *const device = device_copy(g->memory, g->bytes);
    *view = g->view;
    view->data = device + ((const unsigned char *)g->view.data - g->memory);
    return device;
}

static on_device to_device(const token_data *d) {
    const napier_token_options defaults = NAPIER_TOKEN_OPTIONS_INIT;
    on_device o = {.options = defaults};
    o.hidden = grid_to_device(&d->hidden, &o.hidden_view);
    o.weights = grid_to_device(&d->weights, &o.weights_view);
    o.ids = device_copy(d->ids, sizeof(int64_t) * (size_t)(d->c.rows * d->c.per_row + 1));
    o.keep = device_copy(d->keep, (size_t)(d->c.rows * d->c.cols));
    o.options.temperature = d->c.temperature;
    o.options.softcap = d->c.softcap;
    o.options.label_smoothing = d->c.smoothing;
    o.options.z_loss = d->c.z_loss;
    if (d->c.keep) {
        o.options.keep = o.keep;
        o.options.keep_stride = d->c.cols;
    }
    return o;
}

static void off_device(on_device *o) {
    device_free(o->hidden), device_free(o->weights), device_free(o->ids), device_free(o->keep);
}

typedef struct outcome {
    float *logprobs, *lse, *entropy, *loss; /* host; [rows * K], [rows] ... */
    int64_t *argmax;
} outcome;

static void outcome_free(outcome *r) {
    free(r->logprobs), free(r->lse), free(r->entropy), free(r->loss), free(r->argmax);
}

/* What a workspace call does: ask, allocate, run. */
static napier_status forward(const on_device *o, int64_t rows, int64_t per_row, const napier_token_results *results) {
    napier_cuda_workspace w = {NULL, 0};
    const napier_indices ids = napier_indices_i64(o->ids, rows * per_row);
    napier_status status = napier_cuda_linear_token_logprobs(context, NULL, &w, napier_read_only(o->hidden_view),
                                                             napier_read_only(o->weights_view), ids, &o->options,
                                                             results, NAPIER_CUDA_BATCH_INVARIANT);
    if (!status) {
        w.data = device_new(w.size + 1);
        status = napier_cuda_linear_token_logprobs(context, NULL, &w, napier_read_only(o->hidden_view),
                                                   napier_read_only(o->weights_view), ids, &o->options, results,
                                                   NAPIER_CUDA_BATCH_INVARIANT);
        device_free(w.data);
    }
    return status;
}

static outcome forward_of(const token_data *d) {
    const int64_t n = d->c.rows, k = d->c.per_row;
    on_device o = to_device(d);
    float *const floats = device_new(sizeof(float) * (size_t)(n * (k + 3)));
    int64_t *const argmax = device_new(sizeof(int64_t) * (size_t)n);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(floats, n, k);
    results.lse = napier_array_f32(floats + n * k, n);
    results.entropy = napier_array_f32(floats + n * (k + 1), n);
    if (k == 1) {
        results.loss = napier_array_f32(floats + n * (k + 2), n);
    }
    results.argmax = argmax;
    expect(forward(&o, n, k, &results) == NAPIER_OK, "forward: %s", napier_cuda_last_error(context));
    outcome r = {room_for(n * k, 4), room_for(n, 4), room_for(n, 4), room_for(n, 4), room_for(n, 8)};
    device_read(r.logprobs, floats, sizeof(float) * (size_t)(n * k));
    device_read(r.lse, floats + n * k, sizeof(float) * (size_t)n);
    device_read(r.entropy, floats + n * (k + 1), sizeof(float) * (size_t)n);
    device_read(r.loss, floats + n * (k + 2), sizeof(float) * (size_t)n);
    device_read(r.argmax, argmax, sizeof(int64_t) * (size_t)n);
    device_free(floats), device_free(argmax);
    off_device(&o);
    return r;
}

/* ---- float64 ----------------------------------------------------------------------------------------------------- */

typedef struct exact_row {
    double max, lse, entropy, total, kept, error; /* error: what z may be off by */
} exact_row;

static double exact_z(const token_data *d, int64_t i, int64_t j) {
    const double x = d->logits[i * d->c.cols + j];
    const double capped = d->c.softcap != 0 ? d->c.softcap * tanh(x / d->c.softcap) : x;
    return d->keep[i * d->c.cols + j] || !d->c.keep ? capped / d->c.temperature : -(double)INFINITY;
}

static exact_row exact_of(const token_data *d, int64_t i) {
    exact_row e = {.max = -(double)INFINITY};
    for (int64_t j = 0; j < d->c.cols; j++) {
        const double z = exact_z(d, i, j);
        e.max = fmax(e.max, z);
        e.error = fmax(e.error, (double)(d->c.hidden + 16) * 0x1p-22 * d->size[i * d->c.cols + j]);
        e.total += z > -(double)INFINITY ? z : 0;
        e.kept += z > -(double)INFINITY;
        e.error = fmax(e.error, z > -(double)INFINITY ? fabs(z) * 0x1p-21 : 0);
    }
    e.error /= fmin(d->c.temperature, 1.0);
    double sum = 0;
    for (int64_t j = 0; j < d->c.cols; j++) {
        sum += exp(exact_z(d, i, j) - e.max);
    }
    e.lse = e.max + log(sum);
    for (int64_t j = 0; j < d->c.cols; j++) {
        const double l = exact_z(d, i, j) - e.lse;
        e.entropy -= l > -(double)INFINITY ? exp(l) * l : 0;
    }
    return e;
}

static void near(const char *what, int64_t row, double got, double wanted, double error) {
    expect(fabs(got - wanted) <= error, "%s of row %lld: %.9g, not %.9g (+- %g)", what, (long long)row, got, wanted,
           error);
}

static void check_row(const token_data *d, const outcome *r, int64_t i) {
    const exact_row e = exact_of(d, i);
    const double tiny = 4e-6 + fabs(e.lse) * 0x1p-22, s = d->c.smoothing;
    near("lse", i, (double)r->lse[i], e.lse, e.error + tiny);
    near("entropy", i, (double)r->entropy[i], e.entropy, 2 * e.error * (1 + e.lse - e.max + e.entropy) + tiny);
    expect(r->argmax[i] >= 0 && exact_z(d, i, r->argmax[i]) >= e.max - 2 * e.error, "argmax of row %lld", (long long)i);
    for (int64_t k = 0; k < d->c.per_row; k++) {
        const int64_t id = d->ids[i * d->c.per_row + k];
        const double wanted = id < 0 ? 0 : exact_z(d, i, id) - e.lse;
        const float got = r->logprobs[i * d->c.per_row + k];
        near("logprob", i, (double)got, wanted, id < 0 ? 0 : 2 * e.error + tiny);
        expect(got <= 0.0f, "a positive log-probability");
        if (d->c.per_row == 1) {
            const double loss = (1 - s) * -wanted + s * (e.lse - e.total / e.kept) + d->c.z_loss * e.lse * e.lse;
            near("loss", i, (double)r->loss[i], id < 0 ? 0 : loss,
                 (4 + 2 * d->c.z_loss * fabs(e.lse)) * (e.error + tiny));
        }
    }
}

static const token_case CASES[] = {
    {1, 8, 5, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0},          {3, 70, 130, 2, NAPIER_F16, 0.7, 0, 0, 0, true, 1},
    {140, 64, 300, 1, NAPIER_BF16, 1, 3, 0.1, 1e-3, true, 3}, {9, 24, 257, 1, NAPIER_BF16, 1.3, 0, 0.2, 0, false, 2},
    {129, 16, 128, 3, NAPIER_BF16, 1, 0, 0, 0, false, 4},     {2, 40, 1100, 1, NAPIER_F16, 1, 0, 0, 0, false, 6},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static void test_forward(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i += SANITIZED ? 2 : 1) {
        device_order((uint64_t)i);
        token_data d = data_of(CASES[i]);
        outcome r = forward_of(&d);
        for (int64_t row = 0; row<d.c.rows; row += d.c.rows> 100 ? 11 : 1) {
            check_row(&d, &r, row);
        }
        outcome_free(&r);
        data_free(&d);
    }
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_OK);
    no_problems();
}

/* The same row alone, and under other orders of threads. */
static void test_batches(void **state) {
    (void)state;
    const token_case c = {140, 20, 200, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0};
    token_data d = data_of(c);
    outcome all = forward_of(&d);
    for (int64_t row = 0; row < c.rows; row += 47) {
        token_data one = data_of((token_case){1, c.hidden, c.cols, 1, c.dtype, 1, 0, 0, 0, false, 0});
        for (int64_t k = 0; k < c.hidden; k++) {
            grid_set(&one.hidden, 0, k, grid_get(&d.hidden, row, k));
        }
        grid_copy(&one.weights, &d.weights);
        one.ids[0] = d.ids[row];
        device_order((uint64_t)row + 5);
        outcome alone = forward_of(&one);
        expect(memcmp(&alone.lse[0], &all.lse[row], 4) == 0 && memcmp(&alone.entropy[0], &all.entropy[row], 4) == 0 &&
                   memcmp(&alone.logprobs[0], &all.logprobs[row], 4) == 0 && alone.argmax[0] == all.argmax[row],
               "row %lld alone differs", (long long)row);
        outcome_free(&alone);
        data_free(&one);
    }
    outcome_free(&all);
    data_free(&d);
    no_problems();
}

/* Rows with NaN, infinities, ties, and large maxima. */
static void test_special_rows(void **state) {
    (void)state;
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
    outcome r = forward_of(&d);
    const double ties = log(2.0);
    near("lse of a tie", 0, (double)r.lse[0], 1 + ties, 1e-6);
    near("logprob of a tie", 0, (double)r.logprobs[0], -ties, 1e-7);
    expect(r.argmax[0] == 3, "argmax of a tie");
    expect(isnan(r.lse[1]) && isnan(r.logprobs[1]) && isnan(r.entropy[1]) && r.argmax[1] == -1, "a NaN");
    near("equal logits", 2, (double)r.lse[2], log((double)V), 1e-6);
    near("equal logits", 2, (double)r.entropy[2], log((double)V), 1e-6);
    near("big", 3, (double)r.lse[3], 0x1p22, 1);
    near("big", 3, (double)r.logprobs[3], -ties, 1e-6);
    near("huge", 4, (double)r.logprobs[4], -ties, 1e-6);
    near("huge", 4, (double)r.entropy[4], ties, 1e-6);
    expect(isnan(r.logprobs[5]), "infinity times something");
    expect(r.argmax[6] == V - 1 && r.entropy[6] == 0.0f, "the least is the largest");
    outcome_free(&r);
    data_free(&d);
    no_problems();
}

static void test_ids(void **state) {
    (void)state;
    token_data d = data_of((token_case){4, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    d.ids[0] = 2, d.ids[1] = 20, d.ids[2] = -1, d.ids[3] = INT64_MAX;
    outcome r = forward_of(&d);
    expect(!isnan(r.logprobs[0]) && isnan(r.logprobs[1]) && isnan(r.logprobs[2]) && isnan(r.logprobs[3]), "NaN");
    expect(!isnan(r.lse[1]), "the rest of the row");
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "index 1"));
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_OK);
    outcome_free(&r);
    data_free(&d);
    no_problems();
}

/* ---- Bitwise ----------------------------------------------------------------------------------------------------- */

/* Results of one call, on either side. */
typedef struct bits {
    float logprobs[512], lse[512], entropy[512], top_logprobs[1024];
    int64_t argmax[512], rank[512], top_ids[1024];
} bits;

static napier_token_results results_in(bits *b, const token_case *c) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(b->logprobs, c->rows, c->per_row);
    r.lse = napier_array_f32(b->lse, c->rows);
    r.entropy = napier_array_f32(b->entropy, c->rows);
    r.argmax = b->argmax;
    r.rank = b->rank;
    r.top_k = 2;
    r.top_ids = b->top_ids;
    r.top_logprobs = napier_rows_f32(b->top_logprobs, c->rows, 2);
    return r;
}

static void check_bitwise(const token_case *c) {
    token_data d = data_of(*c);
    on_device o = to_device(&d);
    bits *const expected = room_for(2, sizeof *expected), *const got = expected + 1;
    memset(expected, 0, 2 * sizeof *expected);
    bits *const device = device_copy(expected, sizeof *expected);
    const napier_token_results there = results_in(device, c), here = results_in(expected, c);
    napier_token_options options = o.options;
    options.keep = o.options.keep ? d.keep : NULL;
    napier_context *cpu = context_of(NAPIER_ISA_AUTO, 1);
    succeeded(cpu,
              napier_linear_token_logprobs(cpu, grid_input(&d.hidden), grid_input(&d.weights),
                                           napier_indices_i64(d.ids, c->rows * c->per_row), &options, &here),
              "the CPU");
    napier_cuda_workspace w = {NULL, 0};
    for (int i = 0; i < 2; i++) {
        const napier_status status = napier_cuda_linear_token_logprobs(
            context, NULL, &w, napier_read_only(o.hidden_view), napier_read_only(o.weights_view),
            napier_indices_i64(o.ids, c->rows * c->per_row), &o.options, &there, NAPIER_CUDA_BITWISE);
        expect(status == NAPIER_OK, "bitwise: %s", napier_cuda_last_error(context));
        w.data = i == 0 ? device_new(w.size + 1) : w.data;
    }
    device_read(got, device, sizeof *got);
    expect(memcmp(got, expected, sizeof *got) == 0, "case %llu: other bits than the CPU's",
           (unsigned long long)c->seed);
    napier_context_destroy(cpu);
    free(expected);
    device_free(w.data), device_free(device);
    off_device(&o);
    data_free(&d);
}

static void test_bitwise(void **state) {
    (void)state;
    const token_case cases[] = {{1, 8, 5, 1, NAPIER_F32, 1, 0, 0, 0, false, 0},
                                {140, 33, 70, 1, NAPIER_BF16, 0.9, 0, 0, 0, true, 1},
                                {7, 20, 1100, 2, NAPIER_F16, 1, 5, 0, 0, false, 2}};
    for (int i = 0; i < 3; i++) {
        check_bitwise(&cases[i]);
    }
    no_problems();
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

typedef struct pulls {
    float logprobs[512], lse[512], entropy[512], loss[512];
} pulls;

static void pulls_fill(pulls *p, uint64_t seed) {
    float *const all = p->logprobs;
    for (int i = 0; i < 4 * 512; i++) {
        all[i] = (float)unit(&seed);
    }
}

static napier_status backward(const on_device *o, const token_data *d, const napier_token_gradients *g,
                              napier_matrix grad_hidden, napier_matrix grad_weights) {
    napier_cuda_workspace w = {NULL, 0};
    const napier_indices ids = napier_indices_i64(o->ids, d->c.rows * d->c.per_row);
    for (int i = 0; i < 2; i++) {
        const napier_status status = napier_cuda_linear_token_logprobs_backward(
            context, NULL, &w, napier_read_only(o->hidden_view), napier_read_only(o->weights_view), ids, &o->options, g,
            grad_hidden, grad_weights, NAPIER_CUDA_BATCH_INVARIANT);
        if (status || i == 1) {
            device_free(w.data);
            return status;
        }
        w.data = device_new(w.size + 1);
    }
    return NAPIER_OK;
}

/* The gradient of logit j of row i. */
static double exact_gradient(const token_data *d, const pulls *p, const exact_row *e, int64_t i, int64_t j) {
    const double z = exact_z(d, i, j), l = z - e->lse, probability = exp(l), s = d->c.smoothing;
    if (!(z > -(double)INFINITY)) {
        return 0;
    }
    double g = (double)p->lse[i] * probability - (double)p->entropy[i] * probability * (l + e->entropy);
    for (int64_t k = 0; k < d->c.per_row; k++) {
        const int64_t id = d->ids[i * d->c.per_row + k];
        if (id < 0) {
            continue;
        }
        g += (double)p->logprobs[i * d->c.per_row + k] * ((id == j ? 1.0 : 0.0) - probability);
        if (d->c.per_row == 1) {
            g += (double)p->loss[i] * ((1 - s) * (probability - (id == j ? 1.0 : 0.0)) +
                                       s * (probability - 1 / e->kept) + 2 * d->c.z_loss * e->lse * probability);
        }
    }
    const double t = d->c.softcap != 0 ? tanh(d->logits[i * d->c.cols + j] / d->c.softcap) : 0;
    return g / d->c.temperature * (1 - t * t);
}

static void check_sums(const char *what, const grid *got, const double *g, int64_t rows, int64_t terms,
                       int64_t row_step, int64_t term_step, const grid *factors) {
    const int64_t h = got->view.cols;
    for (int64_t i = 0; i<rows; i += rows> 100 ? 13 : 1) {
        for (int64_t c = 0; c < h; c++) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < terms; t++) {
                const double x = g[i * row_step + t * term_step] * grid_get(factors, t, c);
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

static void check_backward(const token_case *c, napier_dtype out, bool wants_hidden, bool wants_weights) {
    token_data d = data_of(*c);
    on_device o = to_device(&d);
    pulls p;
    pulls_fill(&p, c->seed);
    const int64_t n = c->rows, k = c->per_row;
    float *const pulled = device_copy(&p, sizeof p);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(pulled, n, k);
    g.lse = napier_const_array_f32(pulled + 512, n);
    g.entropy = napier_const_array_f32(pulled + 1024, n);
    if (k == 1) {
        g.loss = napier_const_array_f32(pulled + 1536, n);
    }
    grid hidden = grid_make(LAYOUT_PADDED, n, c->hidden, out);
    grid weights = grid_make(LAYOUT_CONTIGUOUS, c->cols, c->hidden, out);
    napier_matrix on_hidden, on_weights;
    void *const hidden_memory = grid_to_device(&hidden, &on_hidden);
    void *const weights_memory = grid_to_device(&weights, &on_weights);
    on_hidden.data = wants_hidden ? on_hidden.data : NULL;
    on_weights.data = wants_weights ? on_weights.data : NULL;
    expect(backward(&o, &d, &g, on_hidden, on_weights) == NAPIER_OK, "backward: %s", napier_cuda_last_error(context));
    device_read(hidden.memory, hidden_memory, hidden.bytes);
    device_read(weights.memory, weights_memory, weights.bytes);
    expect(grid_damage(&hidden) == 0 && grid_damage(&weights) == 0, "bytes beside the gradients");
    double *const exact = room_for(n * c->cols, sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        const exact_row e = exact_of(&d, i);
        for (int64_t j = 0; j < c->cols; j++) {
            exact[i * c->cols + j] = exact_gradient(&d, &p, &e, i, j);
        }
    }
    if (wants_hidden) {
        check_sums("grad_hidden", &hidden, exact, n, c->cols, c->cols, 1, &d.weights);
    }
    if (wants_weights) {
        check_sums("grad_weights", &weights, exact, c->cols, n, 1, c->cols, &d.hidden);
    }
    free(exact);
    grid_free(&hidden), grid_free(&weights);
    device_free(hidden_memory), device_free(weights_memory), device_free(pulled);
    off_device(&o);
    data_free(&d);
}

static void test_backward(void **state) {
    (void)state;
    const napier_dtype outs[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};
    for (int i = 0; i < CASE_COUNT; i += SANITIZED ? 2 : 1) {
        device_order((uint64_t)i + 2);
        check_backward(&CASES[i], outs[i % 3], i != 3, i != 4);
    }
    const token_case long_one = {2, 8, 4200, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0};
    check_backward(&long_one, NAPIER_F32, true, true);
    no_problems();
}

/* A row without gradients gets 0, whatever is in it. */
static void test_zero_rows(void **state) {
    (void)state;
    token_data d = data_of((token_case){2, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    grid_set(&d.hidden, 0, 3, (double)NAN);
    d.ids[0] = -100, d.ids[1] = 4;
    on_device o = to_device(&d);
    const float pull[2] = {1, 1};
    float *const pulled = device_copy(pull, sizeof pull), *const out = device_new(sizeof(float) * 16);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(pulled, 2, 1);
    const napier_matrix none = {NULL, 20, 8, 8, 1, NAPIER_F32};
    assert_int_equal(backward(&o, &d, &g, napier_rows_f32(out, 2, 8), none), NAPIER_OK);
    float got[16];
    device_read(got, out, sizeof got);
    for (int i = 0; i < 8; i++) {
        expect(got[i] == 0.0f && isfinite(got[8 + i]), "element %d", i);
    }
    device_free(pulled), device_free(out);
    off_device(&o);
    data_free(&d);
    no_problems();
}

static void test_errors(void **state) {
    (void)state;
    token_data d = data_of((token_case){2, 8, 20, 1, NAPIER_BF16, 1, 0, 0, 0, false, 0});
    on_device o = to_device(&d);
    float *const lse = device_new(sizeof(float) * 2);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.lse = napier_array_f32(lse, 2);
    const napier_const_matrix hidden = napier_read_only(o.hidden_view), weights = napier_read_only(o.weights_view);
    const napier_indices none = {NULL, 0, NAPIER_I64};
    napier_cuda_workspace small = {o.keep, 16};
    assert_int_equal(napier_cuda_linear_token_logprobs(context, NULL, NULL, hidden, weights, none, NULL, &results,
                                                       (napier_cuda_mode)3),
                     NAPIER_UNSUPPORTED);
    assert_int_equal(napier_cuda_linear_token_logprobs(context, NULL, NULL, hidden, weights, none, NULL, NULL,
                                                       NAPIER_CUDA_BATCH_INVARIANT),
                     NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_cuda_linear_token_logprobs(context, NULL, &small, hidden, weights, none, NULL, &results,
                                                       NAPIER_CUDA_BATCH_INVARIANT),
                     NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "workspace: size 16"));
    assert_int_equal(napier_cuda_linear_token_logprobs(context, NULL, NULL, hidden, hidden, none, NULL, &results,
                                                       NAPIER_CUDA_BATCH_INVARIANT),
                     NAPIER_INVALID_ARGUMENT); /* no workspace */
    results.top_k = 2;
    int64_t *const top = device_new(sizeof(int64_t) * 4);
    results.top_ids = top;
    assert_int_equal(napier_cuda_linear_token_logprobs(context, NULL, NULL, hidden, weights, none, NULL, &results,
                                                       NAPIER_CUDA_BATCH_INVARIANT),
                     NAPIER_UNSUPPORTED);
    device_free(lse), device_free(top);
    off_device(&o);
    data_free(&d);
}

int main(void) {
    device_wanted();
    if (napier_cuda_context_create(&context, 0)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),   cmocka_unit_test(test_batches), cmocka_unit_test(test_special_rows),
        cmocka_unit_test(test_ids),       cmocka_unit_test(test_bitwise), cmocka_unit_test(test_backward),
        cmocka_unit_test(test_zero_rows), cmocka_unit_test(test_errors),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(context);
    return failed;
}
