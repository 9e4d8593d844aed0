/* struct_size, as <napier/types.h> promises, for every public struct that has one (those of napier/model.h and
 * napier/tokenizer.h: test_model_struct_size.c): an older struct takes defaults, a newer one must be 0 beyond what is
 * known, one that nobody initialised is refused, and results go no further than the caller's struct. */
#include <string.h>

#include <napier/attention.h>
#include <napier/layers.h>
#include <napier/rl.h>
#include <napier/sample.h>
#include <napier/umap.h>

#include "support/structs.h"

enum { N = 4, V = 6 };

static const float numbers[N * V] = {0.5f, -1, 2,    0.25f, 1, 3,  -2, 0.75f, 1.5f, -0.5f, 0.1f, 2.5f,
                                     1,    2,  0.3f, -1.5f, 0, -3, 2,  1.25f, -1,   0.6f,  1.1f, 0.2f};
static const int64_t ids[N] = {1, 5, 0, 2}, offsets[] = {0, 2, N};

static napier_const_matrix logits(void) { return napier_const_rows_f32(numbers, N, V); }
static napier_const_vector tokens(int64_t first) { return napier_const_array_f32(numbers + first, N); }

static void copy(const float *from, int64_t count, double *number) {
    for (int64_t i = 0; i < count && i < STRUCT_NUMBERS; i++) {
        number[i] = (double)from[i];
    }
}

/* ---- Context, softmax, attention --------------------------------------------------------------------------------- */

static napier_status create(napier_context *context, void *s, double *number) {
    napier_context *made = NULL;
    (void)context;
    const napier_status status = napier_context_create(&made, s);
    number[0] = napier_context_threads(made);
    napier_context_destroy(made);
    return status;
}

static napier_status softmax(napier_context *context, void *s, double *number) {
    float probs[N * V] = {0};
    const napier_status status = napier_softmax(context, logits(), napier_rows_f32(probs, N, V), s);
    copy(probs, N * V, number);
    return status;
}

static napier_status attention(napier_context *context, void *s, double *number) {
    float out[N * V] = {0};
    const napier_const_heads q = {numbers, N, 2, V / 2, V, V / 2, 1, NAPIER_F32};
    const napier_heads output = {out, N, 2, V / 2, V, V / 2, 1, NAPIER_F32};
    const napier_status status = napier_attention(context, q, q, q, output, napier_rows_f32(NULL, 0, 0), s);
    copy(out, N * V, number);
    return status;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static napier_status rms_norm(napier_context *context, void *s, double *number) {
    float out[N * V] = {0};
    const napier_status status =
        napier_rms_norm(context, logits(), napier_const_array_f32(numbers, V), napier_rows_f32(out, N, V), s);
    copy(out, N * V, number);
    return status;
}

static void fill_rotary(void *s) {
    napier_rotary_options *o = s;
    o->scaling = NAPIER_ROTARY_YARN;
    o->factor = 4.0;
    o->original_max_position_embeddings = 64;
}

static napier_status rotary(napier_context *context, void *s, double *number) {
    float inverse[N * V] = {0};
    const napier_status status =
        napier_rotary_frequencies(context, s, napier_array_f32(inverse, N * V), &number[N * V]);
    copy(inverse, N * V, number);
    return status;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static napier_status score(napier_context *context, const napier_token_options *options, double *number) {
    float logprobs[N] = {0};
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(logprobs, N, 1);
    const napier_status status = napier_token_logprobs(context, logits(), napier_indices_i64(ids, N), options, &r);
    copy(logprobs, N, number);
    return status;
}
static napier_status token_options(napier_context *context, void *s, double *number) {
    return score(context, s, number);
}

static int64_t drawn[N];
static void fill_sample_results(void *s) { ((napier_sample_results *)s)->ids = drawn; }
static napier_status sample(napier_context *context, const napier_sample_options *o, const napier_sample_results *r,
                            double *number) {
    memset(drawn, 0, sizeof drawn);
    const napier_status status = napier_sample(context, logits(), o, r);
    for (int i = 0; i < N; i++) {
        number[i] = (double)drawn[i];
    }
    return status;
}
static napier_status sample_options(napier_context *context, void *s, double *number) {
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    r.ids = drawn;
    return sample(context, s, &r, number);
}
static napier_status sample_results(napier_context *context, void *s, double *number) {
    return sample(context, NULL, s, number);
}

static float token_lse[N];
static int64_t token_top[2 * N];
static void fill_results(void *s) {
    napier_token_results *const r = s;
    r->lse = napier_array_f32(token_lse, N);
    r->top_ids = token_top;
    r->top_k = 2;
}
static napier_status token_results(napier_context *context, void *s, double *number) {
    memset(token_lse, 0, sizeof token_lse);
    const napier_status status = napier_token_logprobs(context, logits(), napier_indices_i64(ids, N), NULL, s);
    copy(token_lse, N, number);
    return status;
}

static void fill_gradients(void *s) {
    napier_token_gradients *const g = s;
    g->logprobs = napier_const_rows_f32(numbers, N, 1);
    g->loss = tokens(2);
}
static napier_status token_gradients(napier_context *context, void *s, double *number) {
    float grad[N * V] = {0};
    const napier_status status = napier_token_logprobs_backward(context, logits(), napier_indices_i64(ids, N), NULL, s,
                                                                napier_rows_f32(grad, N, V));
    copy(grad, N * V, number);
    return status;
}

/* ---- Losses ------------------------------------------------------------------------------------------------------ */

static napier_status kl(napier_context *context, void *s, double *number) {
    float out[2] = {0};
    const napier_status status = napier_kl_per_response(context, tokens(0), tokens(5), napier_indices_i64(offsets, 3),
                                                        NULL, s, napier_array_f32(out, 2));
    copy(out, 2, number);
    return status;
}

static void fill_batch(void *s) {
    napier_grpo_batch *const b = s;
    b->logprobs = tokens(0);
    b->old_logprobs = tokens(4);
    b->advantages = napier_const_array_f32(numbers + 9, 2);
    b->offsets = napier_indices_i64(offsets, 3);
}
static napier_status grpo(napier_context *context, const napier_grpo_batch *batch, const napier_grpo_options *options,
                          napier_grpo_metrics *metrics, double *number) {
    float grad[N] = {0};
    const napier_status status =
        napier_grpo_loss(context, batch, options, metrics, napier_array_f32(grad, N), napier_array_f32(NULL, 0));
    copy(grad, N, number);
    return status;
}
static napier_status grpo_options(napier_context *context, void *s, double *number) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    fill_batch(&b);
    return grpo(context, &b, s, &m, number);
}
static napier_status grpo_batch(napier_context *context, void *s, double *number) {
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    return grpo(context, s, NULL, &m, number);
}
static napier_status grpo_metrics(napier_context *context, void *s, double *number) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    fill_batch(&b);
    return grpo(context, &b, NULL, s, number);
}

static void fill_advantages(void *s) { ((napier_advantage_options *)s)->group_size = 2; }
static napier_status advantages(napier_context *context, void *s, double *number) {
    float found[N] = {0};
    const napier_indices none = {NULL, 0, NAPIER_I64};
    const napier_status status =
        napier_group_advantages(context, napier_const_array_f32(numbers, N), none, s, napier_array_f32(found, N));
    copy(found, N, number);
    return status;
}

/* ---- UMAP -------------------------------------------------------------------------------------------------------- */

static const napier_umap_edge edges[] = {{0, 1, 1.0f}, {1, 2, 0.5f}, {3, 0, 0.75f}};
enum { EDGES = sizeof edges / sizeof *edges };

static napier_status params(napier_context *context, void *s, double *number) {
    float out[N * 2] = {0};
    const napier_status status = napier_umap_gradients(context, s, napier_const_rows_f32(numbers, N, 2), edges, EDGES,
                                                       1, napier_rows_f32(out, N, 2));
    copy(out, N * 2, number);
    return status;
}

static napier_status lay_out(napier_context *context, const napier_umap_optimizer_options *options,
                             const napier_umap_epochs *epochs, double *number) {
    float y[N * 2];
    napier_umap_optimizer *optimizer;
    napier_status status = napier_umap_optimizer_create(context, options, N, 2, &optimizer);
    if (status) {
        return status;
    }
    memcpy(y, numbers, sizeof y);
    status =
        napier_umap_optimize_epochs(context, NULL, epochs, edges, EDGES, NULL, optimizer, napier_rows_f32(y, N, 2));
    copy(y, N * 2, number);
    napier_umap_optimizer_destroy(context, optimizer);
    return status;
}
static napier_status optimizer_options(napier_context *context, void *s, double *number) {
    return lay_out(context, s, NULL, number);
}
static napier_status epochs(napier_context *context, void *s, double *number) {
    return lay_out(context, NULL, s, number);
}

static void fill_neighbors(void *s) { ((napier_neighbors_options *)s)->n_neighbors = 3; }
static napier_status neighbors(napier_context *context, void *s, double *number) {
    int32_t indices[N * 3] = {0};
    float distances[N * 3] = {0};
    const napier_umap_samples samples = {.dense = logits()};
    const napier_status status = napier_nearest_neighbors(context, samples, s, indices, distances);
    copy(distances, N * 3, number);
    return status;
}

static void fill_fit(void *s) { ((napier_umap_options *)s)->n_epochs = 5; }
static napier_status fit(napier_context *context, void *s, double *number) {
    napier_umap_model *model = NULL;
    const napier_umap_samples samples = {.dense = logits()};
    const napier_status status = napier_umap_fit(context, samples, s, &model);
    const napier_const_matrix y = napier_umap_model_embedding(model);
    copy(y.data, y.rows * y.cols, number);
    napier_umap_model_destroy(context, model);
    return status;
}

/* ---- The tests --------------------------------------------------------------------------------------------------- */

static const structure all[] = {
    STRUCTURE(napier_context_options, NAPIER_CONTEXT_OPTIONS_INIT, NULL, allocator, NULL, create),
    STRUCTURE(napier_softmax_options, NAPIER_SOFTMAX_OPTIONS_INIT, "options", algorithm, NULL, softmax),
    STRUCTURE(napier_attention_options, NAPIER_ATTENTION_OPTIONS_INIT, "options", bf16_gradient, NULL, attention),
    STRUCTURE(napier_rms_norm_options, NAPIER_RMS_NORM_OPTIONS_INIT, "options", epsilon, NULL, rms_norm),
    STRUCTURE(napier_rotary_options, NAPIER_ROTARY_OPTIONS_INIT, "options", truncate, fill_rotary, rotary),
    STRUCTURE(napier_token_options, NAPIER_TOKEN_OPTIONS_INIT, "options", ignore_index, NULL, token_options),
    STRUCTURE(napier_token_results, NAPIER_TOKEN_RESULTS_INIT, "results", argmax, fill_results, token_results),
    STRUCTURE(napier_token_gradients, NAPIER_TOKEN_GRADIENTS_INIT, "gradients", loss, fill_gradients, token_gradients),
    STRUCTURE(napier_sample_options, NAPIER_SAMPLE_OPTIONS_INIT, "options", positions, NULL, sample_options),
    STRUCTURE(napier_sample_results, NAPIER_SAMPLE_RESULTS_INIT, "results", plain_logprobs, fill_sample_results,
              sample_results),
    STRUCTURE(napier_kl_options, NAPIER_KL_OPTIONS_INIT, "options", clamp_kl, NULL, kl),
    STRUCTURE(napier_grpo_options, NAPIER_GRPO_OPTIONS_INIT, "options", entropy_threshold, NULL, grpo_options),
    STRUCTURE(napier_grpo_batch, NAPIER_GRPO_BATCH_INIT, "batch", offsets, fill_batch, grpo_batch),
    STRUCTURE(napier_advantage_options, NAPIER_ADVANTAGE_OPTIONS_INIT, "options", group_size, fill_advantages,
              advantages),
    STRUCTURE(napier_umap_params, NAPIER_UMAP_PARAMS_INIT, "params", clip, NULL, params),
    STRUCTURE(napier_umap_optimizer_options, NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT, "options", beta1, NULL,
              optimizer_options),
    STRUCTURE(napier_umap_epochs, NAPIER_UMAP_EPOCHS_INIT, "epochs", edge_use, NULL, epochs),
    STRUCTURE(napier_neighbors_options, NAPIER_NEIGHBORS_OPTIONS_INIT, "options", metric_values, fill_neighbors,
              neighbors),
    STRUCTURE(napier_umap_options, NAPIER_UMAP_OPTIONS_INIT, "options", dens_lambda, fill_fit, fit),
    RESULT_STRUCTURE(napier_grpo_metrics, NAPIER_GRPO_METRICS_INIT, "metrics", entropy, grpo_metrics),
};

static void test_versions(napier_context *context) { check_structures(context, all, sizeof all / sizeof *all); }

/* A struct within another has this library's size, whatever the other's version is. */
static void test_inner_struct(napier_context *context) {
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    double number[STRUCT_NUMBERS];
    const size_t sizes[] = {0, sizeof o.neighbors - 8, sizeof o.neighbors + 8};
    for (int i = 0; i < 3; i++) {
        o.neighbors.struct_size = sizes[i];
        invalid(context, fit(context, &o, number), "options: neighbors: struct_size is",
                "NAPIER_NEIGHBORS_OPTIONS_INIT");
    }
}

int main(void) { return RUN_TESTS("struct_size", TEST_1(test_versions), TEST_1(test_inner_struct)); }
