/* bench/workers/napier_tokens.c - the functions for reinforcement learning: log-probabilities of tokens from logits and from
 * hidden states, KL, rubrics, GRPO. */
#include "napier_cases.h"

#include <string.h>

static napier_dtype dtype; /* of logits, hidden states and weights */
static int64_t rows, cols;
static napier_kl_estimator estimator;

/* ---- Views of inputs and results --------------------------------------------------------------------------------- */

static int64_t count_of(const char *const input, const size_t item) {
    return (int64_t)(bench_input_bytes(input) / item);
}
static napier_const_matrix matrix_of(const char *const input, const int64_t height, const int64_t width) {
    return napier_const_rows(bench_input(input), height, width, dtype);
}
static napier_const_vector vector_of(const char *const input) {
    return napier_const_array(bench_input(input), count_of(input, sizeof(float)), NAPIER_F32);
}
static napier_indices indices_of(const char *const input) {
    return napier_indices_i64(bench_input(input), count_of(input, sizeof(int64_t)));
}
static napier_matrix result_rows(const char *const name, const int64_t height, const int64_t width) {
    return napier_rows_f32(bench_result(name, (size_t)(height * width) * sizeof(float)), height, width);
}
static napier_vector result_array(const char *const name, const int64_t size) {
    return napier_array_f32(bench_result(name, (size_t)size * sizeof(float)), size);
}
/* A result in the dtype of the logits. */
static napier_matrix result_like_logits(const char *const name) {
    return napier_rows(bench_result(name, (size_t)(rows * cols) * napier_dtype_size(dtype)), rows, cols, dtype);
}

/* ---- The operations ---------------------------------------------------------------------------------------------- */

static napier_token_results token_results(const int variant) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = result_rows("logprobs", rows, 1);
    r.entropy = result_array("entropy", rows);
    if (variant == 1) {
        r.lse = result_array("lse", rows);
        r.argmax = bench_result("argmax", (size_t)rows * sizeof(int64_t));
        r.rank = bench_result("rank", (size_t)rows * sizeof(int64_t));
    }
    return r;
}

static unsigned token_logprobs(const int variant) {
    const napier_token_results r = token_results(variant);
    return napier_token_logprobs(context, matrix_of("logits", rows, cols), indices_of("ids"), NULL, &r);
}

static unsigned fused_log_softmax(const int variant) {
    (void)variant;
    return napier_log_softmax(context, matrix_of("logits", rows, cols), result_like_logits("logprobs"), NULL);
}

static unsigned gather(const int variant) {
    (void)variant;
    return napier_gather_logprobs(context, matrix_of("logits", rows, cols), indices_of("ids"),
                                  result_array("gathered", rows));
}

static int64_t hidden_size(void) { return count_of("hidden", napier_dtype_size(dtype)) / rows; }

static unsigned linear(const int variant) {
    const int64_t h = hidden_size();
    const napier_const_matrix hidden = matrix_of("hidden", rows, h), weights = matrix_of("weights", cols, h);
    if (variant == 1) {
        return napier_matmul(context, hidden, napier_const_transposed(weights), result_rows("logits", rows, cols));
    }
    const napier_token_results r = token_results(0);
    return napier_linear_token_logprobs(context, hidden, weights, indices_of("ids"), NULL, &r);
}

/* Scores, and then the gradient of sum_i grad[i] logprob[i]: what a training step does. */
static unsigned linear_backward(const int variant) {
    (void)variant;
    const int64_t h = hidden_size();
    const napier_status status = linear(0);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(bench_input("grad"), rows, 1);
    if (status != NAPIER_OK) {
        return status;
    }
    return napier_linear_token_logprobs_backward(context, matrix_of("hidden", rows, h), matrix_of("weights", cols, h),
                                                 indices_of("ids"), NULL, &g, result_rows("grad_hidden", rows, h),
                                                 result_rows("grad_weights", cols, h));
}

static int64_t responses(void) { return indices_of("offsets").size - 1; }

static unsigned kl(const int variant) {
    (void)variant;
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    options.estimator = estimator;
    return napier_kl_per_response(context, vector_of("policy"), vector_of("ref"), indices_of("offsets"), NULL, &options,
                                  result_array("kl", responses()));
}

static unsigned rubric(const int variant) {
    (void)variant;
    const int64_t criteria = count_of("factors", sizeof(float));
    return napier_rubric_score(context, vector_of("policy"), indices_of("ids"), indices_of("offsets"),
                               matrix_of("rubric", criteria, cols), vector_of("factors"),
                               result_rows("scores", responses(), criteria), result_array("rewards", responses()));
}

static const napier_vector absent = {NULL, 0, 1, NAPIER_F32};

static napier_grpo_batch batch_of(const bool with_logprobs) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    if (with_logprobs) {
        b.logprobs = vector_of("policy");
    }
    b.old_logprobs = vector_of("old");
    b.ref_logprobs = vector_of("ref");
    b.advantages = vector_of("advantages");
    b.offsets = indices_of("offsets");
    return b;
}

static napier_grpo_options grpo_options(void) {
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.beta = 0.04;
    return options;
}

/* The losses of all tokens, without a gradient. */
static unsigned grpo_token(const int variant) {
    (void)variant;
    const napier_grpo_batch b = batch_of(true);
    const napier_grpo_options options = grpo_options();
    return napier_grpo_token_loss(context, &b, &options, result_array("losses", rows), absent);
}

static double *loss_result(void) { return bench_result("loss", sizeof(double)); }

/* One number and its gradient. */
static unsigned grpo_loss(const int variant) {
    (void)variant;
    const napier_grpo_batch b = batch_of(true);
    const napier_grpo_options options = grpo_options();
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    const napier_status status =
        napier_grpo_loss(context, &b, &options, &metrics, result_array("grad_logprobs", rows), absent);
    *loss_result() = metrics.loss;
    return status;
}

static unsigned grpo_from_logits(const int variant) {
    const napier_grpo_batch b = batch_of(false);
    const napier_grpo_options options = grpo_options();
    const napier_matrix grad_logits = result_like_logits("grad_logits");
    const napier_vector logprobs = result_array("logprobs", rows);
    const napier_vector entropy = variant == 1 ? result_array("entropy", rows) : absent;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    const napier_status status = napier_grpo_from_logits(context, matrix_of("logits", rows, cols), indices_of("ids"),
                                                         &b, &options, NULL, &metrics, grad_logits, logprobs, entropy);
    *loss_result() = metrics.loss;
    return status;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const char *set_up(const bench_case *const self) {
    dtype = job_dtype();
    rows = bench_number("rows");
    cols = bench_number("cols");
    estimator = self->name[strlen(self->name) - 1] == '1' ? NAPIER_KL_K1 : NAPIER_KL_K3;
    return NULL;
}

/* With floors: one read of the logits. */
static const char *set_up_reading(const bench_case *const self) {
    (void)set_up(self);
    choose_floors(bench_input("logits"), NULL, (size_t)rows, (size_t)cols * napier_dtype_size(dtype), 0, false);
    return NULL;
}

/* With floors: one read of the logits, and a write of as much to the result of their size. */
static const char *set_up_writing(const bench_case *const self) {
    (void)set_up(self);
    const size_t row_bytes = (size_t)cols * napier_dtype_size(dtype);
    void *const out = result_like_logits(self->run == fused_log_softmax ? "logprobs" : "grad_logits").data;
    choose_floors(bench_input("logits"), out, (size_t)rows, row_bytes, (size_t)rows * row_bytes, true);
    return NULL;
}

const bench_case token_cases[] = {
    {"token_logprobs", set_up_reading, token_logprobs, {"napier", "napier_all", "floor_read", "floor_exp"}},
    {"fused_log_softmax", set_up_writing, fused_log_softmax, {"napier", "floor_memory", "floor_exp"}},
    {"gather", set_up, gather, {"napier"}},
    {"linear", set_up, linear, {"napier", "napier_matmul"}},
    {"linear_backward", set_up, linear_backward, {"napier"}},
    {"kl_k1", set_up, kl, {"napier"}},
    {"kl_k3", set_up, kl, {"napier"}},
    {"rubric", set_up, rubric, {"napier"}},
    {"grpo_token", set_up, grpo_token, {"napier"}},
    {"grpo_loss", set_up, grpo_loss, {"napier"}},
    {"grpo_from_logits", set_up_writing, grpo_from_logits, {"napier", "napier_entropy", "floor_memory", "floor_exp"}},
    {.name = NULL},
};
