/* test_fenv - every public call but those of tokenizer and model (test_model_fenv.c) under every floating-point state
 * that a caller may have: fenv_support.h. Results on a GPU need one. */
#include "unit/core/fenv_support.h"

#include <math.h>
#include <napier/napier.h>

/* ---- Contexts, softmax --------------------------------------------------------------------------------------------- */

enum { ROWS = 70, COLS = 150, MANY = ROWS * COLS };

static float logits[MANY], more[MANY], out[MANY], out2[MANY], lse[ROWS], sign[ROWS];
static double logits64[MANY], out64[MANY];

static napier_const_matrix matrix(const float *x) { return napier_const_rows_f32(x, ROWS, COLS); }
static napier_matrix matrix_out(float *x) { return napier_rows_f32(x, ROWS, COLS); }
static napier_const_matrix matrix64(void) { return napier_const_rows(logits64, ROWS, COLS, NAPIER_F64); }
static napier_const_vector row(const float *x, int64_t size) { return napier_const_array_f32(x, size); }
static napier_vector row_out(float *x, int64_t size) { return napier_array_f32(x, size); }

static void base_calls(void) {
    napier_context *made = NULL;
    GIVES(napier_status, napier_context_create, &made, NULL);
    GIVES(int, napier_context_threads, made);
    GIVES(napier_isa, napier_context_isa, made);
    VOID(napier_last_error, made);
    VOID(napier_context_destroy, made);
    VOID(napier_status_string, NAPIER_OK);
    VOID(napier_dtype_name, NAPIER_F32);
    VOID(napier_isa_name, NAPIER_ISA_SCALAR);
    VOID(napier_version, );
    GIVES(size_t, napier_dtype_size, NAPIER_BF16);
    GIVES(int, napier_isa_available, NAPIER_ISA_SCALAR);
    GIVES(int, napier_numerics_version, );
}

static void softmax_calls(void) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    o.temperature = 0.7;
    CALL(napier_softmax, matrix(logits), matrix_out(out), &o), KEEP(out);
    CALL(napier_softmax, matrix64(), napier_rows(out64, ROWS, COLS, NAPIER_F64), &o), KEEP(out64);
    CALL(napier_log_softmax, matrix(logits), matrix_out(out2), &o), KEEP(out2);
    CALL(napier_log_softmax, napier_const_transposed(matrix(logits)), napier_transposed(matrix_out(more)), &o),
        KEEP(more);
    CALL(napier_softmax_backward, matrix(out), matrix(logits), matrix_out(more), &o), KEEP(more);
    CALL(napier_log_softmax_backward, matrix(out2), matrix(logits), matrix_out(more), &o), KEEP(more);
    CALL(napier_sparsemax, matrix(logits), matrix_out(out), &o), KEEP(out);
    CALL(napier_sparsemax_backward, matrix(out), matrix(logits), matrix_out(more), &o), KEEP(more);
    CALL(napier_logsumexp, matrix(logits), row_out(lse, ROWS), &o), KEEP(lse);
    CALL(napier_logsumexp_all, matrix(logits), row_out(sign, 1), &o), KEEP(sign);
    CALL(napier_logsumexp_all, matrix64(), napier_array(out64, 1, NAPIER_F64), &o), KEEP(out64);
    CALL(napier_logsumexp_weighted, matrix(logits), matrix(out), row_out(lse, ROWS), row_out(sign, ROWS), &o);
    KEEP(lse), KEEP(sign);
    CALL(napier_logsumexp_backward, matrix(logits), row(lse, ROWS), matrix_out(more), &o), KEEP(more);
    CALL(napier_logsumexp_all_backward, matrix(logits), row(lse, 1), matrix_out(more), &o), KEEP(more);
}

static void state_calls(void) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_softmax_state *s = NULL, *t = NULL;
    unsigned char bytes[4096] = {0};
    double sum = 0.0;
    o.temperature = 1.3;
    CALL(napier_softmax_state_create, NAPIER_F32, 0, &o, &s);
    CALL(napier_softmax_state_create, NAPIER_F32, 1000, &o, &t);
    CALL(napier_softmax_state_update, s, row(logits, 1000));
    CALL(napier_softmax_state_update, t, row(logits + 1000, 900));
    CALL(napier_softmax_state_merge, s, t);
    GIVES(size_t, napier_softmax_state_size, s);
    CALL(napier_softmax_state_save, s, bytes, sizeof bytes), KEEP(bytes);
    VOID(napier_softmax_state_destroy, t);
    CALL(napier_softmax_state_load, bytes, napier_softmax_state_size(s), &t);
    CALL(napier_softmax_state_finish, s, &sum), fenv_keep(&sum, sizeof sum);
    CALL(napier_softmax_state_apply, s, NAPIER_KIND_SOFTMAX, row(logits, 1900), row_out(out, 1900)), KEEP(out);
    GIVES(int64_t, napier_softmax_state_first_index, s);
    GIVES(int64_t, napier_softmax_state_count, s);
    napier_softmax_state_destroy(s);
    napier_softmax_state_destroy(t);
}

/* ---- Products and attention ---------------------------------------------------------------------------------------- */

enum { TOKENS = 33, HEADS = 4, DIM = 16, HEAD_FLOATS = TOKENS * HEADS * DIM };

static napier_const_heads heads(const float *x) {
    return (napier_const_heads){x, TOKENS, HEADS, DIM, HEADS * DIM, DIM, 1, NAPIER_F32};
}
static napier_heads heads_out(float *x) {
    return (napier_heads){x, TOKENS, HEADS, DIM, HEADS * DIM, DIM, 1, NAPIER_F32};
}

static void attention_calls(void) {
    static float q[HEAD_FLOATS], k[HEAD_FLOATS], v[HEAD_FLOATS], y[HEAD_FLOATS], g[3][HEAD_FLOATS];
    static float sums[TOKENS * HEADS], product[50 * 50];
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.causal = 1;
    fenv_numbers(q, HEAD_FLOATS, 1), fenv_numbers(k, HEAD_FLOATS, 2), fenv_numbers(v, HEAD_FLOATS, 3);
    const napier_matrix l = napier_rows_f32(sums, TOKENS, HEADS);
    CALL(napier_attention, heads(q), heads(k), heads(v), heads_out(y), l, &o), KEEP(y), KEEP(sums);
    CALL(napier_attention_backward, heads(q), heads(q), heads(k), heads(v), heads(y), napier_read_only(l),
         heads_out(g[0]), heads_out(g[1]), heads_out(g[2]), &o),
        KEEP(g);
    GIVES(int, napier_matrix_engine, fenv_test.context);
    CALL(napier_matmul, napier_const_rows_f32(logits, 50, 40), napier_const_rows_f32(more, 40, 50),
         napier_rows_f32(product, 50, 50)),
        KEEP(product);
}

/* ---- Tokens and losses --------------------------------------------------------------------------------------------- */

enum { HIDDEN = 24, RESPONSES = 3 };

static int32_t ids[ROWS];
static const int32_t offsets[RESPONSES + 1] = {0, 20, 20, ROWS};
static uint8_t mask[ROWS];

static void token_calls(void) {
    static float hidden[ROWS * HIDDEN], weights[COLS * HIDDEN], grad[2][COLS * HIDDEN];
    static int64_t numbers[2][ROWS];
    const napier_indices i = napier_indices_i32(ids, ROWS);
    const napier_const_matrix h = napier_const_rows_f32(hidden, ROWS, HIDDEN);
    const napier_const_matrix w = napier_const_rows_f32(weights, COLS, HIDDEN);
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_sample_options so = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results sr = NAPIER_SAMPLE_RESULTS_INIT;
    so.temperature = 1.3, so.top_p = 0.9, so.min_p = 1e-3, so.top_k = 60;
    sr.ids = numbers[0], sr.logprobs = row_out(lse, ROWS), sr.plain_logprobs = row_out(sign, ROWS);
    o.temperature = 0.9, o.softcap = 11.0, o.label_smoothing = 0.1, o.z_loss = 1e-3;
    fenv_numbers(hidden, ROWS * HIDDEN, 4), fenv_numbers(weights, COLS * HIDDEN, 5);
    r.logprobs = napier_rows_f32(out, ROWS, 1), r.lse = row_out(lse, ROWS), r.entropy = row_out(sign, ROWS);
    r.loss = row_out(out2, ROWS), r.argmax = numbers[0], r.rank = numbers[1];
    g.logprobs = napier_const_rows_f32(logits, ROWS, 1), g.entropy = row(logits + 7, ROWS), g.lse = row(logits, ROWS);
    CALL(napier_fused_log_softmax, matrix(logits), matrix_out(more), NULL), KEEP(more);
    CALL(napier_gather_logprobs, matrix(logits), i, row_out(lse, ROWS)), KEEP(lse);
    CALL(napier_gather_logprobs_backward, row(lse, ROWS), i, matrix_out(more)), KEEP(more);
    CALL(napier_token_logprobs, matrix(logits), i, &o, &r), KEEP(out), KEEP(out2), KEEP(lse), KEEP(sign), KEEP(numbers);
    CALL(napier_token_logprobs_backward, matrix(logits), i, &o, &g, matrix_out(more)), KEEP(more);
    CALL(napier_sample, matrix(logits), &so, &sr), KEEP(numbers), KEEP(lse), KEEP(sign);
    VOID(napier_linear_token_logprobs_workspace, fenv_test.context, ROWS, HIDDEN, COLS, 1); /* by threads */
    CALL(napier_linear_token_logprobs, h, w, i, &o, &r), KEEP(out), KEEP(out2), KEEP(lse), KEEP(sign), KEEP(numbers);
    CALL(napier_linear_token_logprobs_backward, h, w, i, &o, &g, napier_rows_f32(grad[0], ROWS, HIDDEN),
         napier_rows_f32(grad[1], COLS, HIDDEN)),
        KEEP(grad);
}

static void kl_calls(void) {
    const napier_indices starts = napier_indices_i32(offsets, RESPONSES + 1), i = napier_indices_i32(ids, ROWS);
    const napier_const_vector policy = row(logits, ROWS), ref = row(logits + ROWS, ROWS);
    const napier_const_matrix rubric = napier_const_rows_f32(logits, 2, COLS);
    napier_kl_options o = NAPIER_KL_OPTIONS_INIT;
    napier_softmax_options so = NAPIER_SOFTMAX_OPTIONS_INIT;
    float kl[RESPONSES] = {0}, rewards[RESPONSES] = {0}, scores[2 * RESPONSES] = {0};
    o.estimator = NAPIER_KL_K3, o.reduction = NAPIER_REDUCE_MEAN, o.clamp_ratio = 3.3, so.temperature = 0.6;
    CALL(napier_kl_per_response, policy, ref, starts, mask, &o, row_out(kl, RESPONSES)), KEEP(kl);
    CALL(napier_kl_per_response_backward, policy, ref, starts, mask, &o, row(logits, RESPONSES), row_out(lse, ROWS),
         row_out(sign, ROWS)),
        KEEP(lse), KEEP(sign);
    CALL(napier_kl_full, matrix(logits), matrix(more), &so, row_out(lse, ROWS)), KEEP(lse);
    CALL(napier_kl_full_backward, matrix(logits), matrix(more), &so, row(logits, ROWS), matrix_out(out),
         matrix_out(out2)),
        KEEP(out), KEEP(out2);
    CALL(napier_rubric_score, policy, i, starts, rubric, row(logits, 2), napier_rows_f32(scores, RESPONSES, 2),
         row_out(rewards, RESPONSES)),
        KEEP(scores), KEEP(rewards);
    CALL(napier_rubric_score_backward, i, starts, rubric, row(logits, 2), napier_const_rows_f32(logits, RESPONSES, 2),
         row(logits, RESPONSES), row_out(lse, ROWS)),
        KEEP(lse);
}

static void keep_metrics(const napier_grpo_metrics *m) { fenv_keep(m, sizeof *m); }

static void grpo_calls(void) {
    float logprobs[5][ROWS];
    for (int64_t i = 0; i < 5 * ROWS; i++) {
        logprobs[i / ROWS][i % ROWS] = -fabsf(logits[i]);
    }
    const napier_indices starts = napier_indices_i32(offsets, RESPONSES + 1), i = napier_indices_i32(ids, ROWS);
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    napier_grpo_metrics m = NAPIER_GRPO_METRICS_INIT;
    b.logprobs = row(logprobs[0], ROWS), b.old_logprobs = row(logprobs[1], ROWS), b.mask = mask, b.offsets = starts;
    b.ref_logprobs = row(logprobs[2], ROWS), b.sampler_logprobs = row(logprobs[3], ROWS);
    b.entropies = row(logits + 500, ROWS), b.advantages = row(logits, RESPONSES);
    o.beta = 0.04, o.entropy_coefficient = 0.01, o.correction = NAPIER_GRPO_TOKEN_TRUNCATE,
    o.off_policy_threshold = 2.3;
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN; type++) {
        o.type = (napier_grpo_type)type;
        o.top_entropy_quantile = type == NAPIER_GRPO ? 0.7 : 1.0;
        CALL(napier_grpo_token_loss, &b, &o, row_out(out, ROWS), row_out(out2, ROWS)), KEEP(out), KEEP(out2);
        CALL(napier_grpo_loss, &b, &o, &m, row_out(lse, ROWS), row_out(sign, ROWS)), KEEP(lse), keep_metrics(&m);
    }
    o = (napier_grpo_options)NAPIER_GRPO_OPTIONS_INIT;
    o.beta = 0.04;
    b.logprobs = b.entropies = row(NULL, 0);
    CALL(napier_grpo_from_logits, matrix(logits), i, &b, &o, NULL, &m, matrix_out(out), row_out(lse, ROWS),
         row_out(sign, ROWS)),
        KEEP(out), KEEP(lse), KEEP(sign), keep_metrics(&m);
}

/* ---- UMAP ---------------------------------------------------------------------------------------------------------- */

enum { POINTS = 90, WIDTH = 6, NEAR = 7, EDGES = 4 * POINTS };

static float points[POINTS * WIDTH], places[POINTS * 2], forces[2][EDGES * 2], distances[POINTS * NEAR];
static int32_t indices[POINTS * NEAR];
static napier_umap_edge edges[EDGES];

static napier_const_matrix map_in(void) { return napier_const_rows_f32(places, POINTS, 2); }
static napier_matrix map(float *y) { return napier_rows_f32(y, POINTS, 2); }
static napier_umap_samples samples(void) {
    return (napier_umap_samples){napier_const_rows_f32(points, POINTS, WIDTH), NULL};
}

static void make_points(void) {
    fenv_numbers(points, POINTS * WIDTH, 6);
    fenv_numbers(places, POINTS * 2, 7);
    for (uint32_t e = 0; e < EDGES; e++) { /* not sorted; every third weight is subnormal */
        edges[e] = (napier_umap_edge){(e * 37) % POINTS, (e * 11 + 5) % POINTS, 1.0f / (float)(e + 3)};
        edges[e].weight *= e % 3 == 0 ? 0x1p-127f : 1.0f;
    }
}

static void keep_graph(const napier_umap_graph *g) {
    fenv_keep(g->starts, (size_t)(g->n + 1) * sizeof *g->starts);
    fenv_keep(g->targets, (size_t)g->starts[g->n] * sizeof *g->targets);
    fenv_keep(g->weights, (size_t)g->starts[g->n] * sizeof *g->weights);
}

static void primitive_calls(void) {
    static int64_t starts[POINTS], counts[POINTS];
    static uint32_t targets[POINTS * 5];
    napier_umap_params p = NAPIER_UMAP_PARAMS_INIT;
    napier_umap_graph *graph = NULL;
    float a = 0, b = 0;
    double loss = 0;
    p.learning_rate = 0.3f, p.repulsion_strength = 0.9f, p.max_norm = 1.7f;
    make_points();
    CALL(napier_umap_find_ab_params, 0.13, 1.1, &a, &b), fenv_keep(&a, sizeof a), fenv_keep(&b, sizeof b);
    CALL(napier_umap_sort_edges, edges, EDGES), KEEP(edges);
    CALL(napier_umap_segments, edges, EDGES, POINTS, starts, counts), KEEP(starts), KEEP(counts);
    CALL(napier_umap_graph_from_edges, edges, EDGES, POINTS, &graph), keep_graph(graph);
    VOID(napier_umap_graph_destroy, fenv_test.context, graph);
    CALL(napier_umap_edge_gradients, &p, map_in(), edges, EDGES, napier_rows_f32(forces[0], EDGES, 2),
         napier_rows_f32(forces[1], EDGES, 2)),
        KEEP(forces);
    CALL(napier_umap_reduce_segments, napier_const_rows_f32(forces[0], EDGES, 2), starts, counts, map(out)), KEEP(out);
    CALL(napier_umap_gradients, &p, map_in(), edges, EDGES, 1, map(out)), KEEP(out);
    CALL(napier_umap_apply, 0.37f, napier_const_rows_f32(forces[1], POINTS, 2), map(places)), KEEP(places);
    CALL(napier_umap_negative_targets, 9, 3, POINTS, 5, targets), KEEP(targets);
    CALL(napier_umap_negative_gradients, &p, map_in(), targets, 5, map(out)), KEEP(out);
    CALL(napier_umap_loss, &p, map_in(), edges, EDGES, targets, 5, &loss), fenv_keep(&loss, sizeof loss);
}

static void epoch_calls(void) {
    uint8_t bytes[4096] = {0};
    size_t size = 0;
    napier_umap_epochs e = NAPIER_UMAP_EPOCHS_INIT;
    napier_umap_optimizer *optimizer = NULL, *again = NULL;
    e.count = 7, e.total = 13;
    make_points();
    CALL(napier_umap_sort_edges, edges, EDGES);
    CALL(napier_umap_optimizer_create, NULL, POINTS, 2, &optimizer);
    CALL(napier_umap_optimize_epochs, NULL, &e, edges, EDGES, NULL, optimizer, map(places)), KEEP(places);
    CALL(napier_umap_optimizer_to_bytes, optimizer, bytes, sizeof bytes, &size), KEEP(bytes);
    CALL(napier_umap_optimizer_from_bytes, bytes, size, &again);
    VOID(napier_umap_optimizer_destroy, fenv_test.context, again);
    napier_umap_optimizer_destroy(fenv_test.context, optimizer);
}

static void neighbor_calls(void) {
    VOID(napier_metric_name, NAPIER_METRIC_YULE);
    GIVES(int, napier_metric_from_name, "cosine");
    GIVES(float, napier_metric_disconnection, NAPIER_METRIC_COSINE);
    make_points();
    for (int m = NAPIER_METRIC_EUCLIDEAN; m < NAPIER_METRIC_PRECOMPUTED; m++) {
        napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
        napier_umap_samples s = samples();
        o.metric = (napier_metric)m, o.n_neighbors = NEAR, o.p = 2.7;
        s.dense.cols = m == NAPIER_METRIC_HAVERSINE ? 2 : WIDTH;
        for (int i = 0; m == NAPIER_METRIC_HELLINGER && i < POINTS * WIDTH; i++) {
            points[i] = fabsf(points[i]);
        }
        CALL(napier_nearest_neighbors, s, &o, indices, distances), KEEP(indices), KEEP(distances);
        o.method = NAPIER_NEIGHBORS_EXACT;
        CALL(napier_nearest_neighbors_of, s, s, &o, indices, distances), KEEP(indices), KEEP(distances);
    }
}

static void stage_calls(void) {
    static float rhos[POINTS], sigmas[POINTS];
    static int32_t categories[POINTS];
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    napier_umap_options uo = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_quality quality = {0};
    napier_umap_graph *graph = NULL;
    o.n_neighbors = NEAR, uo.n_epochs = 15;
    make_points();
    CALL(napier_nearest_neighbors, samples(), &o, indices, distances);
    CALL(napier_umap_smooth_knn_dist, distances, POINTS, NEAR, 1.3, rhos, sigmas), KEEP(rhos), KEEP(sigmas);
    CALL(napier_umap_fuzzy_simplicial_set, indices, distances, POINTS, NEAR, 1.3, 0.9, &graph), keep_graph(graph);
    CALL(napier_umap_spectral_layout, graph, samples(), 7, map(out)), KEEP(out);
    CALL(napier_umap_pca_layout, samples(), 7, map(out)), KEEP(out);
    CALL(napier_umap_random_layout, 7, map(out)), KEEP(out);
    CALL(napier_umap_optimize_layout, graph, &uo, map(out)), KEEP(out);
    for (int i = 0; i < POINTS; i++) {
        categories[i] = i % 4 - 1;
    }
    CALL(napier_umap_join_categories, &graph, categories, 0.3), keep_graph(graph);
    CALL(napier_umap_join_numbers, &graph, places, NEAR, 0.7), keep_graph(graph);
    CALL(napier_umap_quality_of, samples(), &o, map_in(), categories, 0, &quality);
    fenv_keep(&quality, sizeof quality);
    napier_umap_graph_destroy(fenv_test.context, graph);
}

static void model_calls(void) {
    static const char path[] = "test_fenv.tmp";
    static uint8_t bytes[1 << 16];
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *model = NULL, *again = NULL;
    napier_const_matrix y;
    size_t size = 0;
    o.n_epochs = 20, o.densmap = 1, o.target_numbers = places;
    make_points();
    CALL(napier_umap_fit, samples(), &o, &model);
    fenv_begin("napier_umap_model_embedding"), y = napier_umap_model_embedding(model), fenv_end();
    fenv_keep(y.data, POINTS * 2 * sizeof(float));
    GIVES(int64_t, napier_umap_model_features, model);
    GIVES(int64_t, napier_umap_disconnected, map_in());
    CALL(napier_umap_transform, model, samples(), map(out)), KEEP(out);
    CALL(napier_umap_inverse_transform, model, map_in(), napier_rows_f32(more, POINTS, WIDTH)), KEEP(more);
    CALL(napier_umap_model_to_bytes, model, bytes, sizeof bytes, &size), KEEP(bytes);
    CALL(napier_umap_model_from_bytes, bytes, size, &again);
    VOID(napier_umap_model_destroy, fenv_test.context, again);
    CALL(napier_umap_model_save, model, path);
    CALL(napier_umap_model_load, path, &again);
    remove(path);
    napier_umap_model_destroy(fenv_test.context, again);
    napier_umap_model_destroy(fenv_test.context, model);
}

/* ---- All of them ---------------------------------------------------------------------------------------------------- */

static void all_calls(void) {
    memset(out, 0, sizeof out), memset(out2, 0, sizeof out2), memset(out64, 0, sizeof out64);
    memset(lse, 0, sizeof lse), memset(sign, 0, sizeof sign);
    fenv_numbers(logits, MANY, 10);
    fenv_numbers(more, MANY, 11);
    for (int i = 0; i < MANY; i++) {
        logits64[i] = i % 9 == 0 ? (double)logits[i] * 0x1p-1030 : (double)logits[i] / 3.0;
    }
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i * 31 % COLS;
        mask[i] = i % 6 != 0;
    }
    base_calls();
    softmax_calls();
    state_calls();
    attention_calls();
    token_calls();
    kl_calls();
    grpo_calls();
    primitive_calls();
    epoch_calls();
    neighbor_calls();
    stage_calls();
    model_calls();
}

static void test_every_call_in_every_state(void) {
    fenv_run(all_calls);
    static const char *const headers[] = {"types.h", "softmax.h", "attention.h", "linear.h", "rl.h", "umap.h"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        fenv_covers(headers[i]);
    }
}

int main(void) { return RUN_TESTS("fenv", TEST(test_every_call_in_every_state)); }
