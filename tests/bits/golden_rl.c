/* golden_rl - the bits of token log-probabilities, KL, rubric scores and GRPO losses, held against a committed table
 * (support/golden_table.h). */
#include <math.h>
#include <stdbool.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <napier/rl.h>
#include <napier/sample.h>

#include "golden_numbers.h"

/* ---- Numbers ------------------------------------------------------------------------------------------------------- */

static int64_t *random_ids(int64_t count, int64_t vocabulary) {
    int64_t *const ids = golden_room(count, sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int64_t)(next_bits() % (uint64_t)vocabulary);
    }
    return ids;
}

/* ---- Token log-probabilities ---------------------------------------------------------------------------------------- */

typedef struct token_case {
    const char *name;
    napier_dtype dtype;
    int64_t rows, vocabulary, ids_a_row, top_k;
    bool padded; /* rows lie further apart than they are long */
    bool zeros;  /* a fourth of the logits are zeros of both signs, which are the maxima of the first rows */
} token_case;

static void add_zeros(const token_case *c, int64_t stride, void *x) {
    for (int64_t i = 0; i < c->rows * stride; i++) {
        const double value = element_get(x, c->dtype, i);
        const bool negative = next_bits() % 2;
        element_set(x, c->dtype, i,
                    i % 4 == 0                    ? (negative ? -0.0 : 0.0)
                    : i / stride < 5 && value > 0 ? -value
                                                  : value);
    }
}

/* Logits: ordinary rows, and among seven and more one with a NaN, one with +inf, one all -inf, one with masks and ties. */
static void *make_logits(const token_case *c, int64_t stride) {
    const napier_dtype d = c->dtype;
    const int64_t V = c->vocabulary;
    void *const x = numbers(c->rows * stride, d, 0, 8);
    if (c->zeros) {
        add_zeros(c, stride, x);
    }
    for (int64_t row = 0; row < c->rows && !c->zeros; row++) {
        element_set(x, d, row * stride + (row * 31) % V, 12.0); /* a token that is likely */
    }
    for (int64_t j = 0; j < V && c->rows >= 7; j++) {
        element_set(x, d, 5 * stride + j, (double)-INFINITY);
        element_set(x, d, 6 * stride + j, j % 3 == 0 ? (double)-INFINITY : j % 3 == 1 ? -1e4 : 2.5);
    }
    if (c->rows >= 7) {
        element_set(x, d, 3 * stride + V / 2, (double)NAN);
        element_set(x, d, 4 * stride + V / 3, (double)INFINITY);
    }
    return x;
}

static uint64_t token_forward(const token_case *c, napier_const_matrix logits, napier_indices ids,
                              const napier_token_options *options) {
    const int64_t N = c->rows, K = c->ids_a_row;
    const napier_dtype d = c->dtype;
    const size_t size = napier_dtype_size(d);
    void *const loss = golden_room(N, size);
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows(golden_room(N * K, size), N, K, d);
    r.lse = napier_array(golden_room(N, size), N, d);
    r.entropy = napier_array(golden_room(N, size), N, d);
    r.loss = K == 1 ? napier_array(loss, N, d) : r.loss;
    r.argmax = golden_room(N, sizeof *r.argmax);
    r.rank = golden_room(N * K, sizeof *r.rank);
    r.top_k = c->top_k;
    if (c->top_k > 0) {
        r.top_ids = golden_room(N * c->top_k, sizeof *r.top_ids);
        r.top_logprobs = napier_rows(golden_room(N * c->top_k, size), N, c->top_k, d);
    }
    golden_demand(napier_token_logprobs(golden_context, logits, ids, options, &r));
    uint64_t hash = hash_elements(GOLDEN_BASIS, r.logprobs.data, d, N * K);
    hash = hash_elements(hash, r.lse.data, d, N);
    hash = hash_elements(hash, r.entropy.data, d, N);
    hash = hash_elements(hash, loss, d, N);
    hash = hash_elements(hash, r.top_logprobs.data, d, N * c->top_k);
    hash = hash_integers(hash, r.argmax, N);
    hash = hash_integers(hash, r.rank, N * K);
    return hash_integers(hash, r.top_ids, N * c->top_k);
}

static uint64_t token_backward(const token_case *c, napier_const_matrix logits, napier_indices ids,
                               const napier_token_options *options) {
    const int64_t N = c->rows, K = c->ids_a_row;
    void *const g_logprobs = numbers(N * K, c->dtype, 0, 1), *const g_row = numbers(N, c->dtype, 0, 1);
    void *const grad = golden_room(N * c->vocabulary, napier_dtype_size(c->dtype));
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows(g_logprobs, N, K, c->dtype);
    gradients.lse = napier_const_array(g_row, N, c->dtype);
    gradients.entropy = napier_const_array(g_row, N, c->dtype);
    gradients.loss = K == 1 ? napier_const_array(g_row, N, c->dtype) : gradients.loss;
    golden_demand(napier_token_logprobs_backward(golden_context, logits, ids, options, &gradients,
                                                 napier_rows(grad, N, c->vocabulary, c->dtype)));
    return hash_elements(GOLDEN_BASIS, grad, c->dtype, N * c->vocabulary);
}

static void token_variant(const token_case *c, napier_const_matrix logits, napier_indices ids, const char *variant,
                          const napier_token_options *options) {
    golden_line(token_forward(c, logits, ids, options), "token:%s/%s", c->name, variant);
    golden_line(token_backward(c, logits, ids, options), "token:%s/%s/backward", c->name, variant);
}

static void token_cases(const token_case *c) {
    state = 88172645463325252u + (uint64_t)(c->rows * c->vocabulary + c->dtype);
    const int64_t V = c->vocabulary, stride = c->padded ? V + 5 : V;
    void *const x = make_logits(c, stride);
    int64_t *const chosen = random_ids(c->rows * c->ids_a_row, V);
    uint8_t *const keep = golden_room(V, 1);
    for (int64_t j = 0; j < V; j++) {
        keep[j] = next_bits() % 4 != 0;
    }
    chosen[0] = -100; /* ignored */
    const napier_const_matrix logits = {x, c->rows, V, stride, 1, c->dtype};
    const napier_indices ids = napier_indices_i64(chosen, c->rows * c->ids_a_row);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    token_variant(c, logits, ids, "plain", &options);
    options.temperature = 0.7;
    options.label_smoothing = 0.1;
    options.z_loss = 1e-4;
    token_variant(c, logits, ids, "warm", &options);
    options.softcap = 30;
    token_variant(c, logits, ids, "softcap", &options);
    options.keep = keep;
    token_variant(c, logits, ids, "keep", &options);
    options.softcap = 0;
    options.temperature = 1;
    token_variant(c, logits, ids, "keep1", &options);
}

static void gather_case(void) {
    enum { N = 9, V = 700 };
    state = 7;
    void *const logits = numbers(N * V, NAPIER_BF16, 0, 8);
    float *const logprobs = golden_room(N * V, sizeof *logprobs), *const grad = golden_room(N * V, sizeof *grad);
    float gathered[N];
    int64_t *const ids = random_ids(N, V);
    golden_demand(napier_log_softmax(golden_context, napier_const_rows(logits, N, V, NAPIER_BF16),
                                     napier_rows_f32(logprobs, N, V), NULL));
    golden_demand(napier_gather_logprobs(golden_context, napier_const_rows_f32(logprobs, N, V),
                                         napier_indices_i64(ids, N), napier_array_f32(gathered, N)));
    golden_demand(napier_gather_logprobs_backward(golden_context, napier_const_array_f32(gathered, N),
                                                  napier_indices_i64(ids, N), napier_rows_f32(grad, N, V)));
    golden_line(hash_elements(GOLDEN_BASIS, logprobs, NAPIER_F32, N * V), "fused_log_softmax");
    golden_line(hash_elements(hash_elements(GOLDEN_BASIS, gathered, NAPIER_F32, N), grad, NAPIER_F32, N * V), "gather");
}

/* ---- Responses ------------------------------------------------------------------------------------------------------ */

enum { RESPONSES = 9, TOKENS = 4500 };

/* An empty one, one of a token, some that end at tiles and beside them, and a long one. */
static const int64_t offsets[RESPONSES + 1] = {0, 17, 17, 18, 274, 1298, 1301, 1400, 4437, TOKENS};

typedef struct responses {
    napier_dtype dtype;
    void *logprobs, *old, *ref, *sampler, *entropies, *advantages; /* of dtype; advantages [RESPONSES] */
    uint8_t *mask;
    int64_t *ids;
} responses;

static void add_noise(const responses *r, void *to, double scale) {
    for (int64_t t = 0; t < TOKENS; t++) {
        element_set(to, r->dtype, t, element_get(r->logprobs, r->dtype, t) + scale * next_number());
    }
}

static responses make_responses(napier_dtype dtype) {
    const size_t size = napier_dtype_size(dtype);
    state = 424242u + (uint64_t)dtype;
    responses r = {dtype,
                   numbers(TOKENS, dtype, -2.5, 1),
                   golden_room(TOKENS, size),
                   golden_room(TOKENS, size),
                   golden_room(TOKENS, size),
                   numbers(TOKENS, dtype, 2, 1),
                   numbers(RESPONSES, dtype, 0, 1),
                   golden_room(TOKENS, 1),
                   random_ids(TOKENS, 50)};
    add_noise(&r, r.old, 0.4);
    add_noise(&r, r.ref, 1);
    add_noise(&r, r.sampler, 0.05);
    for (int64_t t = 0; t < TOKENS; t++) {
        r.mask[t] = next_bits() % 8 != 0;
    }
    return r;
}

static napier_indices all_offsets(void) { return napier_indices_i64(offsets, RESPONSES + 1); }

static void kl_case(const responses *r, const napier_kl_options *options, const uint8_t *mask, const char *variant) {
    const napier_dtype d = r->dtype;
    const napier_const_vector p = napier_const_array(r->logprobs, TOKENS, d), q = napier_const_array(r->ref, TOKENS, d);
    void *const kl = golden_room(RESPONSES, 4), *const grad_p = golden_room(TOKENS, 4),
                *const grad_q = golden_room(TOKENS, 4);
    golden_demand(
        napier_kl_per_response(golden_context, p, q, all_offsets(), mask, options, napier_array(kl, RESPONSES, d)));
    golden_demand(napier_kl_per_response_backward(golden_context, p, q, all_offsets(), mask, options,
                                                  napier_const_array(r->advantages, RESPONSES, d),
                                                  napier_array(grad_p, TOKENS, d), napier_array(grad_q, TOKENS, d)));
    golden_line(hash_elements(GOLDEN_BASIS, kl, d, RESPONSES), "kl:%s/k%d/%s", napier_dtype_name(d),
                (int)options->estimator, variant);
    golden_line(hash_elements(hash_elements(GOLDEN_BASIS, grad_p, d, TOKENS), grad_q, d, TOKENS),
                "kl:%s/k%d/%s/backward", napier_dtype_name(d), (int)options->estimator, variant);
}

static void kl_cases(const responses *r) {
    for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
        napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
        options.estimator = (napier_kl_estimator)k;
        kl_case(r, &options, NULL, "sum");
        options.reduction = NAPIER_REDUCE_MEAN;
        options.clamp_ratio = 0.9;
        options.clamp_kl = 0.4;
        kl_case(r, &options, r->mask, "mean");
    }
}

static void kl_full_case(int64_t rows, int64_t vocabulary, napier_dtype d) {
    state = 99u + (uint64_t)vocabulary;
    const int64_t count = rows * vocabulary;
    void *const p = numbers(count, d, 0, 6), *const q = numbers(count, d, 0, 6), *const g = numbers(rows, d, 0, 1);
    void *const kl = golden_room(rows, 4), *const grad_p = golden_room(count, 4), *const grad_q = golden_room(count, 4);
    const napier_const_matrix policy = napier_const_rows(p, rows, vocabulary, d);
    const napier_const_matrix ref = napier_const_rows(q, rows, vocabulary, d);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.temperature = 0.8;
    memcpy(q, p, (size_t)vocabulary * napier_dtype_size(d)); /* the first rows are equal */
    golden_demand(napier_kl_full(golden_context, policy, ref, &options, napier_array(kl, rows, d)));
    golden_demand(napier_kl_full_backward(golden_context, policy, ref, &options, napier_const_array(g, rows, d),
                                          napier_rows(grad_p, rows, vocabulary, d),
                                          napier_rows(grad_q, rows, vocabulary, d)));
    golden_line(hash_elements(GOLDEN_BASIS, kl, d, rows), "kl_full:%s/%" PRId64, napier_dtype_name(d), vocabulary);
    golden_line(hash_elements(hash_elements(GOLDEN_BASIS, grad_p, d, count), grad_q, d, count),
                "kl_full:%s/%" PRId64 "/backward", napier_dtype_name(d), vocabulary);
}

static void rubric_case(const responses *r) {
    enum { CRITERIA = 3, VOCABULARY = 50 };
    const napier_dtype d = r->dtype;
    void *const rubric = numbers(CRITERIA * VOCABULARY, d, 0, 1), *const weights = numbers(CRITERIA, d, 0.5, 1);
    void *const scores = golden_room(RESPONSES * CRITERIA, 4), *const rewards = golden_room(RESPONSES, 4);
    void *const grad = golden_room(TOKENS, 4);
    const napier_indices ids = napier_indices_i64(r->ids, TOKENS);
    const napier_const_matrix rubric_view = napier_const_rows(rubric, CRITERIA, VOCABULARY, d);
    const napier_const_vector weights_view = napier_const_array(weights, CRITERIA, d);
    golden_demand(napier_rubric_score(golden_context, napier_const_array(r->logprobs, TOKENS, d), ids, all_offsets(),
                                      rubric_view, weights_view, napier_rows(scores, RESPONSES, CRITERIA, d),
                                      napier_array(rewards, RESPONSES, d)));
    golden_demand(napier_rubric_score_backward(golden_context, ids, all_offsets(), rubric_view, weights_view,
                                               napier_const_rows(scores, RESPONSES, CRITERIA, d),
                                               napier_const_array(r->advantages, RESPONSES, d),
                                               napier_array(grad, TOKENS, d)));
    golden_line(hash_elements(hash_elements(GOLDEN_BASIS, scores, d, RESPONSES * CRITERIA), rewards, d, RESPONSES),
                "rubric:%s", napier_dtype_name(d));
    golden_line(hash_elements(GOLDEN_BASIS, grad, d, TOKENS), "rubric:%s/backward", napier_dtype_name(d));
}

/* ---- GRPO ----------------------------------------------------------------------------------------------------------- */

static const char *const type_names[] = {"grpo",  "bnpo", "dr_grpo", "dapo",  "gspo",
                                         "cispo", "sapo", "vespo",   "luspo", "token_mean"};

static uint64_t hash_metrics(uint64_t hash, const napier_grpo_metrics *m) {
    const double all[] = {m->loss,      m->tokens, m->clip_low,  m->clip_high, m->mean_ratio, m->min_ratio,
                          m->max_ratio, m->kl,     m->approx_kl, m->entropy,   m->correction, m->kept_responses};
    return hash_elements(hash, all, NAPIER_F64, sizeof all / sizeof *all);
}

static napier_grpo_batch batch_of(const responses *r) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    b.logprobs = napier_const_array(r->logprobs, TOKENS, r->dtype);
    b.old_logprobs = napier_const_array(r->old, TOKENS, r->dtype);
    b.ref_logprobs = napier_const_array(r->ref, TOKENS, r->dtype);
    b.sampler_logprobs = napier_const_array(r->sampler, TOKENS, r->dtype);
    b.entropies = napier_const_array(r->entropies, TOKENS, r->dtype);
    b.advantages = napier_const_array(r->advantages, RESPONSES, r->dtype);
    b.mask = r->mask;
    b.offsets = all_offsets();
    return b;
}

static void grpo_case(const responses *r, const napier_grpo_options *options, const char *variant) {
    const napier_dtype d = r->dtype;
    const napier_grpo_batch b = batch_of(r);
    void *const losses = golden_room(TOKENS, 4), *const grad_losses = golden_room(TOKENS, 4);
    void *const grad = golden_room(TOKENS, 4), *const grad_entropies = golden_room(TOKENS, 4);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    golden_demand(napier_grpo_token_loss(golden_context, &b, options, napier_array(losses, TOKENS, d),
                                         napier_array(grad_losses, TOKENS, d)));
    golden_demand(napier_grpo_loss(golden_context, &b, options, &metrics, napier_array(grad, TOKENS, d),
                                   napier_array(grad_entropies, TOKENS, d)));
    uint64_t hash = hash_elements(hash_elements(GOLDEN_BASIS, losses, d, TOKENS), grad_losses, d, TOKENS);
    hash = hash_elements(hash_elements(hash, grad, d, TOKENS), grad_entropies, d, TOKENS);
    golden_line(hash_metrics(hash, &metrics), "grpo:%s/%s/%d/%s", napier_dtype_name(d), type_names[options->type],
                (int)options->level, variant);
}

static void grpo_options_cases(const responses *r) {
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    char variant[24];
    for (int k = NAPIER_KL_K1; k <= NAPIER_KL_K3; k++) {
        for (int bias = 0; bias <= 1; bias++) {
            options.beta = 0.04;
            options.kl_estimator = (napier_kl_estimator)k;
            options.kl_bias_correction = bias;
            snprintf(variant, sizeof variant, "k%d%s", k, bias ? "/bias" : "");
            grpo_case(r, &options, variant);
        }
    }
    for (int c = NAPIER_GRPO_TOKEN_TRUNCATE; c <= NAPIER_GRPO_SEQUENCE_MASK; c++) {
        options.correction = (napier_grpo_correction)c;
        options.correction_cap = 1.02;
        snprintf(variant, sizeof variant, "correction%d", c);
        grpo_case(r, &options, variant);
    }
    options.correction = NAPIER_GRPO_UNCORRECTED;
    options.top_entropy_quantile = 0.3;
    options.entropy_coefficient = 0.01;
    grpo_case(r, &options, "entropy");
    options.off_policy_threshold = 0.001;
    options.delta = 1.1;
    grpo_case(r, &options, "off_policy");
}

static void grpo_cases(const responses *r) {
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
        for (int level = NAPIER_GRPO_LEVEL_TOKEN; level <= NAPIER_GRPO_LEVEL_SEQUENCE; level++) {
            napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
            options.type = (napier_grpo_type)type;
            options.level = (napier_grpo_level)level;
            options.epsilon_high = type == NAPIER_GRPO_CISPO ? 1.2 : 0.28;
            options.num_items = 5000;
            options.max_completion_length = 4000;
            grpo_case(r, &options, "plain");
            options.beta = 0.1;
            options.correction = NAPIER_GRPO_TOKEN_TRUNCATE;
            grpo_case(r, &options, "beta");
        }
    }
    grpo_options_cases(r);
}

/* Straight from logits: the long response is cut off, so that the logits are few. */
static void from_logits_case(const responses *r, int type, napier_grpo_level level, double quantile) {
    enum { FEW = 274, VOCABULARY = 300, FEW_RESPONSES = 4 };
    const napier_dtype d = r->dtype;
    state = 5;
    void *const logits = numbers(FEW * VOCABULARY, d, 0, 5), *const grad = golden_room(FEW * VOCABULARY, 4);
    void *const logprobs = golden_room(FEW, 4), *const entropies = golden_room(FEW, 4);
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    b.old_logprobs = napier_const_array(r->old, FEW, d);
    b.ref_logprobs = napier_const_array(r->ref, FEW, d);
    b.advantages = napier_const_array(r->advantages, FEW_RESPONSES, d);
    b.mask = r->mask;
    b.offsets = napier_indices_i64(offsets, FEW_RESPONSES + 1);
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.type = (napier_grpo_type)type;
    options.level = level;
    options.beta = 0.04;
    options.top_entropy_quantile = quantile;
    options.entropy_coefficient = 0.01;
    napier_token_options token_options = NAPIER_TOKEN_OPTIONS_INIT;
    token_options.temperature = 0.9;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    golden_demand(napier_grpo_from_logits(golden_context, napier_const_rows(logits, FEW, VOCABULARY, d),
                                          napier_indices_i64(r->ids, FEW), &b, &options, &token_options, &metrics,
                                          napier_rows(grad, FEW, VOCABULARY, d), napier_array(logprobs, FEW, d),
                                          napier_array(entropies, FEW, d)));
    uint64_t hash = hash_elements(GOLDEN_BASIS, grad, d, FEW * VOCABULARY);
    hash = hash_elements(hash_elements(hash, logprobs, d, FEW), entropies, d, FEW);
    golden_line(hash_metrics(hash, &metrics), "from_logits:%s/%s/%d/%s", napier_dtype_name(d), type_names[type],
                (int)level, quantile < 1 ? "quantile" : "plain");
}

/* ---- Gradients of token losses, hidden states, advantages ---------------------------------------------------------- */

static void backward_case(const responses *r, int type, napier_grpo_level level) {
    const napier_dtype d = r->dtype;
    const napier_grpo_batch b = batch_of(r);
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.type = (napier_grpo_type)type;
    options.level = level;
    options.beta = 0.04;
    void *const grad = golden_room(TOKENS, 4);
    golden_demand(napier_grpo_token_loss_backward(golden_context, &b, &options, napier_const_array(r->ref, TOKENS, d),
                                                  napier_array(grad, TOKENS, d)));
    golden_line(hash_elements(GOLDEN_BASIS, grad, d, TOKENS), "token_loss_backward:%s/%s/%d", napier_dtype_name(d),
                type_names[type], (int)level);
}

static void from_hidden_case(const responses *r, int type) {
    enum { FEW = 274, WORDS = 1100, WIDTH = 20, FEW_RESPONSES = 4 };
    const napier_dtype d = r->dtype;
    state = 6;
    void *const hidden = numbers(FEW * WIDTH, d, 0, 1), *const weights = numbers(WORDS * WIDTH, d, 0, 1);
    void *const to_hidden = golden_room(FEW * WIDTH, 4), *const to_weights = golden_room(WORDS * WIDTH, 4);
    void *const logprobs = golden_room(FEW, 4), *const entropies = golden_room(FEW, 4);
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    b.old_logprobs = napier_const_array(r->old, FEW, d);
    b.advantages = napier_const_array(r->advantages, FEW_RESPONSES, d);
    b.mask = r->mask;
    b.offsets = napier_indices_i64(offsets, FEW_RESPONSES + 1);
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.type = (napier_grpo_type)type;
    options.entropy_coefficient = 0.01;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    golden_demand(napier_grpo_from_hidden(
        golden_context, napier_const_rows(hidden, FEW, WIDTH, d), napier_const_rows(weights, WORDS, WIDTH, d),
        napier_indices_i64(r->ids, FEW), &b, &options, NULL, &metrics, napier_rows(to_hidden, FEW, WIDTH, d),
        napier_rows(to_weights, WORDS, WIDTH, d), napier_array(logprobs, FEW, d), napier_array(entropies, FEW, d)));
    uint64_t hash = hash_elements(GOLDEN_BASIS, to_hidden, d, FEW * WIDTH);
    hash = hash_elements(hash_elements(hash, to_weights, d, WORDS * WIDTH), logprobs, d, FEW);
    golden_line(hash_metrics(hash_elements(hash, entropies, d, FEW), &metrics), "from_hidden:%s/%s",
                napier_dtype_name(d), type_names[type]);
}

static void advantages_case(const responses *r, napier_advantage_scale scale) {
    static const char *const names[] = {"group", "batch", "none"};
    void *const found = golden_room(TOKENS, 4);
    napier_advantage_options options = NAPIER_ADVANTAGE_OPTIONS_INIT;
    options.scale = scale;
    golden_demand(napier_group_advantages(golden_context, napier_const_array(r->ref, TOKENS, r->dtype),
                                          napier_indices_i64(offsets, RESPONSES + 1), &options,
                                          napier_array(found, TOKENS, r->dtype)));
    golden_line(hash_elements(GOLDEN_BASIS, found, r->dtype, TOKENS), "advantages:%s/%s", napier_dtype_name(r->dtype),
                names[scale]);
}

static void all_rollouts(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const responses r = make_responses(dtypes[i]);
        backward_case(&r, NAPIER_GRPO, NAPIER_GRPO_LEVEL_TOKEN);
        backward_case(&r, NAPIER_GRPO_GSPO, NAPIER_GRPO_LEVEL_SEQUENCE);
        backward_case(&r, NAPIER_GRPO_SAPO, NAPIER_GRPO_LEVEL_SEQUENCE);
        from_hidden_case(&r, NAPIER_GRPO);
        from_hidden_case(&r, NAPIER_GRPO_GSPO);
        for (int scale = NAPIER_SCALE_GROUP; scale <= NAPIER_SCALE_NONE; scale++) {
            advantages_case(&r, (napier_advantage_scale)scale);
        }
    }
}

/* ---- Sampled ids ---------------------------------------------------------------------------------------------------- */

static void sample_variant(const token_case *c, napier_const_matrix logits, const char *variant,
                           const napier_sample_options *options) {
    int64_t *const ids = golden_room(c->rows, sizeof *ids);
    float *const logprobs = golden_room(c->rows, sizeof *logprobs), *const plain = golden_room(c->rows, sizeof *plain);
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    results.ids = ids;
    results.logprobs = napier_array_f32(logprobs, c->rows);
    results.plain_logprobs = napier_array_f32(plain, c->rows);
    golden_demand(napier_sample(golden_context, logits, options, &results));
    uint64_t hash = hash_integers(GOLDEN_BASIS, ids, c->rows);
    hash = hash_elements(hash, logprobs, NAPIER_F32, c->rows);
    golden_line(hash_elements(hash, plain, NAPIER_F32, c->rows), "sample:%s/%s", c->name, variant);
}

static void sample_cases(const token_case *c) {
    state = 88172645463325252u + (uint64_t)(c->rows * c->vocabulary + c->dtype);
    const int64_t V = c->vocabulary, stride = c->padded ? V + 5 : V, history = 20;
    const napier_const_matrix logits = {make_logits(c, stride), c->rows, V, stride, 1, c->dtype};
    int64_t *const starts = golden_room(c->rows + 1, sizeof *starts);
    uint8_t *const keep = golden_room(V, 1);
    for (int64_t j = 0; j < V; j++) {
        keep[j] = j == 0 || next_bits() % 4 != 0;
    }
    for (int64_t i = 0; i <= c->rows; i++) {
        starts[i] = i * history;
    }
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    options.seed = 1234567890123;
    sample_variant(c, logits, "plain", &options);
    options.temperature = 0.7;
    options.top_k = 40;
    sample_variant(c, logits, "top_k", &options);
    options.top_k = 0;
    options.top_p = 0.9;
    sample_variant(c, logits, "top_p", &options);
    options.top_k = 2000;
    options.min_p = 0.01;
    sample_variant(c, logits, "all", &options);
    options.repetition_penalty = 1.2;
    options.presence_penalty = 0.5;
    options.frequency_penalty = 0.25;
    options.keep = keep;
    options.output_ids = napier_indices_i64(random_ids(c->rows * history, V), c->rows * history);
    options.output_offsets = napier_indices_i64(starts, c->rows + 1);
    sample_variant(c, logits, "penalties", &options);
    options.temperature = 0;
    sample_variant(c, logits, "greedy", &options);
}

static void all_samples(int quick) {
    static const token_case cases[] = {
        {"f32/few", NAPIER_F32, 6, 7, 0, 0, false, false},
        {"f16/tile", NAPIER_F16, 5, 1024, 0, 0, true, false},
        {"f32/long", NAPIER_F32, 6, 5003, 0, 0, true, false},
        {"bf16/long", NAPIER_BF16, 6, 5003, 0, 0, false, false},
        {"f32/vast", NAPIER_F32, 2, 151936, 0, 0, false, false},
        {"bf16/vast", NAPIER_BF16, 3, 151936, 0, 0, true, false},
        {"f32/zeros", NAPIER_F32, 6, 7, 0, 0, false, true},
        {"bf16/long_zeros", NAPIER_BF16, 6, 3072, 0, 0, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!quick || cases[i].vocabulary < 10000) {
            sample_cases(&cases[i]);
        }
    }
}

/* ---- All ------------------------------------------------------------------------------------------------------------ */

static void all_tokens(int quick) {
    static const token_case cases[] = {
        {"f32/few", NAPIER_F32, 20, 7, 1, 3, false, false},
        {"f16/few", NAPIER_F16, 9, 7, 2, 0, false, false},
        {"f32/tile", NAPIER_F32, 8, 1024, 1, 5, false, false},
        {"bf16/tile", NAPIER_BF16, 8, 1025, 3, 5, true, false},
        {"f16/tile", NAPIER_F16, 8, 1030, 1, 20, false, false},
        {"f32/long", NAPIER_F32, 7, 5003, 2, 50, true, false},
        {"bf16/long", NAPIER_BF16, 7, 5003, 1, 0, false, false},
        {"f32/vast", NAPIER_F32, 2, 151936, 1, 20, false, false},
        {"bf16/vast", NAPIER_BF16, 3, 151936, 1, 20, true, false},
        {"f32/zeros", NAPIER_F32, 7, 7, 2, 3, false, true},
        {"bf16/long_zeros", NAPIER_BF16, 7, 3072, 1, 5, false, true},
        {"f32/long_zeros", NAPIER_F32, 7, 5003, 1, 5, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!quick || cases[i].vocabulary < 10000) {
            token_cases(&cases[i]);
        }
    }
    gather_case();
}

static void all_responses(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const responses r = make_responses(dtypes[i]);
        kl_cases(&r);
        kl_full_case(7, 5, dtypes[i]);
        kl_full_case(5, 1030, dtypes[i]);
        kl_full_case(3, 5003, dtypes[i]);
        rubric_case(&r);
        grpo_cases(&r);
        for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
            from_logits_case(&r, type, NAPIER_GRPO_LEVEL_TOKEN, 1);
        }
        from_logits_case(&r, NAPIER_GRPO, NAPIER_GRPO_LEVEL_SEQUENCE, 1);
        from_logits_case(&r, NAPIER_GRPO, NAPIER_GRPO_LEVEL_TOKEN, 0.5);
    }
}

static void all_cases(int quick) {
    all_tokens(quick);
    all_responses();
    all_samples(quick);
    all_rollouts();
}

int main(int count, char **words) { return golden_main("golden_rl", count, words, all_cases); }
