/* support/calls.c - see calls.h. */
#include "support/calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/formats.h"
#ifdef NAPIER_MODEL
#include <napier/model.h>

#include "support/tiny_model.h"
#include "support/tiny_tokenizer.h"
#endif

/* ---- What the calls share ------------------------------------------------------------------------------------------ */

enum {
    ROWS = 40,     /* of logits, */
    COLS = 1500,   /* and their columns: more than one tile, so that rows are split */
    HIDDEN = 24,   /* of hidden states, */
    WORDS = 300,   /* and of the vocabulary that they become logits of */
    TOKENS = 60,   /* in BATCH responses */
    BATCH = 4,     /* of which one is empty */
    CRITERIA = 3,  /* of the rubric */
    POINTS = 90,   /* of a map, */
    FEATURES = 6,  /* each in so many dimensions, */
    NEAR = 7,      /* with so many neighbours */
    NEW = 4,       /* points to be placed */
    NEGATIVES = 5, /* targets for each point */
    EDGES = 4 * POINTS,
    PARTS = 1 << 16, /* bytes of a saved map */
    NUMBERS = ROWS * COLS
};

static float numbers[NUMBERS]; /* the input of all calls that want floats; one in eight is subnormal */
static float positive[NUMBERS], negative[NUMBERS], small[NUMBERS]; /* small: within the unit ball */
static int32_t ids[NUMBERS];
static const int64_t offsets[BATCH + 1] = {0, 15, 15, 38, TOKENS};
static const int32_t narrow_offsets[BATCH + 1] = {0, 15, 15, 38, TOKENS};
static uint8_t mask[TOKENS];
static napier_umap_edge edges[EDGES], sorted_edges[EDGES];
static int64_t edge_starts[POINTS], edge_counts[POINTS];
static uint32_t targets[POINTS * NEGATIVES];
static int32_t near_ids[POINTS * NEAR];
static float near_distances[POINTS * NEAR];
static int32_t categories[POINTS];

/* Made where memory is plenty; calls read them. */
static napier_context *plenty;
static napier_umap_graph *graph;
static napier_umap_model *map;
static uint8_t map_bytes[PARTS];
static size_t map_size;
static const char *map_path;
#ifdef NAPIER_MODEL
static tiny_model tiny = TINY_MODEL_INIT;
static tiny_tensors tensors, judge_tensors; /* of it, and of a reward model */
static napier_model *model, *reward_model;
static napier_tokenizer *tokenizer;
#endif

napier_allocator calls_allocator;

/* Options that want much; fill_options completes them. */
static napier_token_options rules = NAPIER_TOKEN_OPTIONS_INIT;
static napier_kl_options kl = NAPIER_KL_OPTIONS_INIT;
static napier_grpo_options grpo = NAPIER_GRPO_OPTIONS_INIT;
static napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
static napier_neighbors_options near_options = NAPIER_NEIGHBORS_OPTIONS_INIT;
static napier_umap_options map_options = NAPIER_UMAP_OPTIONS_INIT;
#ifdef NAPIER_MODEL
static napier_score_options score = NAPIER_SCORE_OPTIONS_INIT;
#endif

/* ---- What is called, and what it writes ------------------------------------------------------------------------------ */

enum { MOST_FUNCTIONS = 256 };
static const char *called[MOST_FUNCTIONS];
static int called_count;

static bool was_called(const char *name, size_t length) {
    int i = 0;
    while (i < called_count && (strncmp(called[i], name, length) != 0 || called[i][length] != '\0')) {
        i++;
    }
    return i < called_count;
}

static void note(const char *name) {
    if (!was_called(name, strlen(name))) {
        assert_true(called_count < MOST_FUNCTIONS);
        called[called_count++] = name;
    }
}

/* Calls a public function. */
#define CALL(function_, ...) (note(#function_), function_(__VA_ARGS__))

_Alignas(64) unsigned char call_result[CALL_RESULT_BYTES];
static size_t result_size;
static const char *name_now;

napier_status call_run(const public_call *call, napier_context *context) {
    memset(call_result, CALL_FILL, sizeof call_result);
    result_size = 0;
    name_now = call->name;
    return call->run(context);
}

static void *room(int64_t count, size_t size) {
    const size_t start = result_size;
    result_size = (start + (size_t)count * size + 63) / 64 * 64;
    assert_true(result_size <= CALL_RESULT_BYTES);
    return call_result + start;
}

static void keep(const void *bytes, size_t size) { memcpy(room((int64_t)size, 1), bytes, size); }
#define KEEP(type_, value_)           \
    do {                              \
        const type_ kept_ = (value_); \
        keep(&kept_, sizeof kept_);   \
    } while (0)

/* A result that is made, not written: NULL where the call failed. */
static void made(napier_status status, const void *out) {
    expect((status == NAPIER_OK) == (out != NULL), "%s: status %d, *out %p", name_now, (int)status, out);
}

/* A line of the table that makes one call; one that makes an object and destroys it. */
#define ONE_CALL(name_, function_, ...) \
    static napier_status name_(napier_context *c) { return CALL(function_, c, __VA_ARGS__); }
#define MAKES(name_, type_, function_, ...)                                 \
    static napier_status name_(napier_context *c) {                         \
        type_ *out = NULL;                                                  \
        const napier_status status = CALL(function_, c, __VA_ARGS__, &out); \
        made(status, out);                                                  \
        CALL(type_##_destroy, c, out);                                      \
        return status;                                                      \
    }

static napier_matrix new_rows(int64_t rows, int64_t cols) {
    return napier_rows_f32(room(rows * cols, sizeof(float)), rows, cols);
}
static napier_vector new_array(int64_t size) { return napier_array_f32(room(size, sizeof(float)), size); }
static napier_const_vector array(int64_t size) { return napier_const_array_f32(numbers, size); }

/* Columns lie one after another: rows have to be gathered, which takes memory. */
static napier_const_matrix logits(void) { return napier_const_transposed(napier_const_rows_f32(numbers, COLS, ROWS)); }
static napier_matrix new_logits(void) { return napier_transposed(new_rows(COLS, ROWS)); }
static napier_const_vector tokens(int64_t from) { return napier_const_array_f32(negative + from, TOKENS); }
static napier_indices token_ids(int64_t count) { return napier_indices_i32(ids, count); }
static napier_indices responses(void) { return napier_indices_i64(offsets, BATCH + 1); }
static napier_indices narrow_responses(void) { return napier_indices_i32(narrow_offsets, BATCH + 1); }
static napier_umap_samples points(void) {
    return (napier_umap_samples){napier_const_rows_f32(numbers, POINTS, FEATURES), NULL};
}
static napier_umap_samples new_points(void) {
    return (napier_umap_samples){napier_const_rows_f32(numbers + POINTS * FEATURES, NEW, FEATURES), NULL};
}
static napier_const_matrix plane(void) { return napier_const_rows_f32(numbers, POINTS, 2); }
static napier_matrix new_plane(void) { return new_rows(POINTS, 2); }

/* An embedding that a call changes in place. */
static napier_matrix plane_to_change(void) {
    const napier_matrix m = new_plane();
    memcpy(m.data, numbers, POINTS * 2 * sizeof(float));
    return m;
}

/* ---- types.h -------------------------------------------------------------------------------------------------------- */

static napier_status context_create(napier_context *c) {
    (void)c;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *out = NULL;
    options.threads = 2;
    options.allocator = calls_allocator;
    const napier_status status = CALL(napier_context_create, &out, &options);
    made(status, out);
    if (!status) {
        KEEP(int, CALL(napier_context_threads, out));
        KEEP(napier_isa, CALL(napier_context_isa, out));
    }
    CALL(napier_context_destroy, out);
    return status;
}

/* The calls that take no memory and have no status. */
static napier_status words(napier_context *c) {
    KEEP(char, CALL(napier_status_string, NAPIER_OUT_OF_MEMORY)[0]);
    KEEP(char, CALL(napier_dtype_name, NAPIER_F32)[0]);
    KEEP(char, CALL(napier_isa_name, NAPIER_ISA_SCALAR)[0]);
    KEEP(char, CALL(napier_version, )[0]);
    KEEP(size_t, CALL(napier_dtype_size, NAPIER_BF16));
    KEEP(int, CALL(napier_isa_available, NAPIER_ISA_SCALAR));
    KEEP(int, CALL(napier_numerics_version, ));
    KEEP(napier_status, CALL(napier_set_error, c, NAPIER_OK, ""));
    KEEP(size_t, strlen(CALL(napier_last_error, c)));
    const int engine = CALL(napier_matrix_engine, c);     /* 0 also where there is no memory to check it */
    CALL(napier_context_set_interrupt, NULL, NULL, NULL); /* does nothing */
    int64_t done = 0, items = 0;
    KEEP(int64_t, CALL(napier_context_progress, c, &done, &items));
    KEEP(char, CALL(napier_metric_name, NAPIER_METRIC_YULE)[0]);
    KEEP(int, CALL(napier_metric_from_name, "cosine"));
    KEEP(float, CALL(napier_metric_disconnection, NAPIER_METRIC_COSINE));
    KEEP(int64_t, CALL(napier_umap_disconnected, plane()));
    KEEP(int64_t, CALL(napier_umap_model_indistinct, NULL));
    return engine >= 0 ? NAPIER_OK : NAPIER_CORRUPT_DATA;
}

/* ---- softmax.h, sparsemax.h: the rest is below ----------------------------------------------------------------------- */

/* Two long rows, each split over the threads. */
static napier_status logsumexp_weighted(napier_context *c) {
    const napier_const_matrix rows = {numbers, 2, NUMBERS / 4, NUMBERS / 2, 2, NAPIER_F32};
    const napier_softmax_options options = options_of(1.0, NAPIER_ALGORITHM_PARALLEL, NAPIER_MASKED_NAN);
    return CALL(napier_logsumexp_weighted, c, rows, rows, new_array(2), new_array(2), &options);
}
ONE_CALL(dot_rows, napier_dot_rows, napier_const_rows_f32(numbers, 300, 40),
         napier_const_rows_f32(numbers + 5, 300, 40), new_array(300))
ONE_CALL(exp_of, napier_exp, array(3000), new_array(3000))
ONE_CALL(log_of, napier_log, array(3000), new_array(3000))
/* All that is done with states: one for each part of a row, saved, loaded, merged, applied. */
static napier_status state_use_of(napier_context *c, napier_dtype compute) {
    const napier_softmax_options o = options_of(1.3, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    napier_softmax_state *s = NULL, *next = NULL, *loaded = NULL;
    unsigned char *const bytes = room(1 << 15, 1);
    double *const lse = room(1, sizeof *lse);
    napier_status status = CALL(napier_softmax_state_create, c, compute, 0, &o, &s);
    made(status, s);
    status = status ? status : CALL(napier_softmax_state_update, c, s, array(3000));
    if (!status) {
        KEEP(int64_t, CALL(napier_softmax_state_first_index, s));
        KEEP(int64_t, CALL(napier_softmax_state_count, s));
        status = napier_softmax_state_create(c, compute, 3000, &o, &next);
    }
    status = status ? status : napier_softmax_state_update(c, next, napier_const_array_f32(numbers + 3000, 2000));
    status = status ? status : CALL(napier_softmax_state_to_bytes, c, next, bytes, 1 << 15);
    if (!status) {
        status = CALL(napier_softmax_state_from_bytes, c, bytes, CALL(napier_softmax_state_size, next), &loaded);
        made(status, loaded);
    }
    status = status ? status : CALL(napier_softmax_state_merge, c, s, loaded);
    status = status ? status : CALL(napier_softmax_state_finish, c, s, lse);
    status =
        status ? status : CALL(napier_softmax_state_apply, c, s, NAPIER_KIND_SOFTMAX, array(5000), new_array(5000));
    status = status ? status : napier_softmax_state_to_bytes(c, s, room(1 << 15, 1), napier_softmax_state_size(s));
    CALL(napier_softmax_state_destroy, s);
    napier_softmax_state_destroy(next);
    napier_softmax_state_destroy(loaded);
    return status;
}
/* Makes the same calls of weighted states. */
static napier_status state_use_weighted(napier_context *c) {
    napier_softmax_state *s = NULL, *next = NULL, *loaded = NULL;
    unsigned char *const bytes = room(1 << 15, 1);
    double *const results = room(2, sizeof *results);
    napier_status status = CALL(napier_softmax_state_create_weighted, c, NAPIER_F32, 0, NULL, &s);
    made(status, s);
    status = status ? status : CALL(napier_softmax_state_update_weighted, c, s, array(3000), array(3000));
    status = status ? status : napier_softmax_state_create_weighted(c, NAPIER_F32, 3000, NULL, &next);
    const napier_const_vector rest = napier_const_array_f32(numbers + 3000, 2000);
    status = status ? status : napier_softmax_state_update_weighted(c, next, rest, rest);
    status = status ? status : napier_softmax_state_to_bytes(c, next, bytes, 1 << 15);
    if (!status) {
        status = napier_softmax_state_from_bytes(c, bytes, napier_softmax_state_size(next), &loaded);
        made(status, loaded);
    }
    status = status ? status : napier_softmax_state_merge(c, loaded, s); /* in front of it, which needs memory */
    status = status ? status : CALL(napier_softmax_state_finish_weighted, c, loaded, results, results + 1);
    napier_softmax_state_destroy(s);
    napier_softmax_state_destroy(next);
    napier_softmax_state_destroy(loaded);
    return status;
}
static napier_status state_use(napier_context *c) { return state_use_of(c, NAPIER_F32); }
static napier_status state_use_f64(napier_context *c) { return state_use_of(c, NAPIER_F64); }

/* ---- linear.h, attention.h ------------------------------------------------------------------------------------------ */

ONE_CALL(matmul, napier_matmul, napier_const_rows_f32(numbers, 50, 200),
         napier_const_rows_f32(numbers + 10000, 200, 90), new_rows(50, 90))

ONE_CALL(matmul_split, napier_matmul_split, napier_const_rows_f32(numbers, 50, 200),
         napier_const_rows(numbers + 10000, 200, 90, NAPIER_BF16), new_rows(50, 90))

enum { QUERIES = 40, KEYS = 50, HEADS = 4, KEY_HEADS = 2, DIM = 16 };

static napier_heads new_heads(int64_t n, int64_t count) {
    return (napier_heads){room(n * count * DIM, sizeof(float)), n, count, DIM, count * DIM, DIM, 1, NAPIER_F32};
}
static napier_const_heads heads(const float *x, int64_t n, int64_t count) {
    return (napier_const_heads){x, n, count, DIM, count * DIM, DIM, 1, NAPIER_F32};
}
#define Q heads(numbers, QUERIES, HEADS)
#define K heads(numbers + 5000, KEYS, KEY_HEADS)
#define V heads(numbers + 10000, KEYS, KEY_HEADS)

static napier_status attention(napier_context *c) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.causal = 1;
    return CALL(napier_attention, c, Q, K, V, new_heads(QUERIES, HEADS), new_rows(QUERIES, HEADS), &o);
}
static napier_status attention_of_sequences(napier_context *c) {
    static const int64_t queries[3] = {0, 20, QUERIES}, keys[3] = {0, 30, KEYS}, begin[2] = {0, 1}, end[2] = {20, 40};
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.sequences = 2;
    o.query_offsets = queries;
    o.key_offsets = keys;
    o.prefix_begin = begin;
    o.prefix_end = end;
    return napier_attention(c, Q, K, V, new_heads(QUERIES, HEADS), new_rows(QUERIES, HEADS), &o);
}
/* The upper halves of numbers are bf16. */
static napier_const_heads narrow_heads(const float *x, int64_t n, int64_t count) {
    return (napier_const_heads){(const uint16_t *)x + 1, n, count, DIM, 2 * count * DIM, 2 * DIM, 2, NAPIER_BF16};
}
static napier_status attention_bf16_weights(napier_context *c) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.causal = 1;
    o.bf16_weights = 1;
    return napier_attention(c, narrow_heads(numbers, QUERIES, HEADS), narrow_heads(numbers + 5000, KEYS, KEY_HEADS),
                            narrow_heads(numbers + 10000, KEYS, KEY_HEADS), new_heads(QUERIES, HEADS),
                            new_rows(QUERIES, HEADS), &o);
}
static napier_status attention_backward_by(napier_context *c, const napier_attention_options *o) {
    const napier_heads y = new_heads(QUERIES, HEADS);
    const napier_matrix lse = new_rows(QUERIES, HEADS);
    const napier_status status = napier_attention(c, Q, K, V, y, lse, o);
    return status ? status
                  : CALL(napier_attention_backward, c, Q, Q, K, V, heads(y.data, QUERIES, HEADS), napier_read_only(lse),
                         new_heads(QUERIES, HEADS), new_heads(KEYS, KEY_HEADS), new_heads(KEYS, KEY_HEADS), o);
}
static napier_status attention_backward(napier_context *c) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    const napier_status status = attention_backward_by(c, &o);
    o.causal = 1;
    o.grad_lse = napier_const_rows_f32(numbers + 300, QUERIES, HEADS);
    return status ? status : attention_backward_by(c, &o);
}
static napier_status attention_bf16_gradient(napier_context *c) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    const napier_heads y = new_heads(QUERIES, HEADS);
    const napier_matrix lse = new_rows(QUERIES, HEADS);
    const napier_const_heads q = narrow_heads(numbers, QUERIES, HEADS);
    const napier_const_heads k = narrow_heads(numbers + 5000, KEYS, KEY_HEADS);
    const napier_const_heads v = narrow_heads(numbers + 10000, KEYS, KEY_HEADS);
    o.causal = 1;
    o.bf16_gradient = 1;
    const napier_status status = napier_attention(c, q, k, v, y, lse, &o);
    return status ? status
                  : CALL(napier_attention_backward, c, q, q, k, v, heads(y.data, QUERIES, HEADS), napier_read_only(lse),
                         new_heads(QUERIES, HEADS), new_heads(KEYS, KEY_HEADS), new_heads(KEYS, KEY_HEADS), &o);
}

/* ---- layers.h ------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 300 };

/* Columns lie one after another, so that rows have to be gathered. */
static napier_const_matrix wide(int64_t from) {
    return napier_const_transposed(napier_const_rows_f32(numbers + from, WIDTH, QUERIES));
}
static napier_matrix new_wide(void) { return napier_transposed(new_rows(WIDTH, QUERIES)); }

ONE_CALL(rms_norm, napier_rms_norm, wide(0), array(WIDTH), new_wide(), NULL)
ONE_CALL(rms_norm_backward, napier_rms_norm_backward, wide(1), wide(0), array(WIDTH), new_wide(), new_array(WIDTH),
         NULL)
ONE_CALL(swiglu, napier_swiglu, wide(0), wide(1), new_wide())
ONE_CALL(swiglu_backward, napier_swiglu_backward, wide(2), wide(0), wide(1), new_wide(), new_wide())
ONE_CALL(rotary, napier_rotary, Q, napier_const_rows_f32(numbers, QUERIES, DIM / 2),
         napier_const_rows_f32(numbers + 900, QUERIES, DIM / 2), new_heads(QUERIES, HEADS))
ONE_CALL(rotary_backward, napier_rotary_backward, Q, napier_const_rows_f32(numbers, QUERIES, DIM / 2),
         napier_const_rows_f32(numbers + 900, QUERIES, DIM / 2), new_heads(QUERIES, HEADS))

static napier_status rotary_frequencies(napier_context *c) {
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    napier_status status = NAPIER_OK;
    o.theta = 5e5;
    o.factor = 8.0;
    o.original_max_position_embeddings = 4096;
    for (o.scaling = 0; o.scaling <= NAPIER_ROTARY_YARN && !status; o.scaling++) {
        double scale = 0.0;
        status = CALL(napier_rotary_frequencies, c, &o, new_array(32), &scale);
        KEEP(double, scale);
    }
    return status;
}
static napier_status rotary_angles(napier_context *c) {
    static const float inverse[4] = {1.0f, 0.3f, 0.01f, 1e-5f};
    static const int64_t positions[5] = {0, 1, 77, 40000, 9000000};
    return CALL(napier_rotary_angles, c, napier_const_array_f32(inverse, 4), 1.1, napier_indices_i64(positions, 5),
                new_rows(5, 4), new_rows(5, 4));
}

/* ---- rl.h ----------------------------------------------------------------------------------------------------------- */

ONE_CALL(gather_logprobs, napier_gather_logprobs, logits(), token_ids(ROWS), new_array(ROWS))
ONE_CALL(gather_logprobs_backward, napier_gather_logprobs_backward, array(ROWS), token_ids(ROWS), new_logits())

static napier_token_results new_token_results(int64_t n) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = new_rows(n, 1);
    r.lse = new_array(n);
    r.entropy = new_array(n);
    r.loss = new_array(n);
    r.argmax = room(n, sizeof *r.argmax);
    r.rank = room(n, sizeof *r.rank);
    r.top_ids = room(n * 5, sizeof *r.top_ids);
    r.top_logprobs = new_rows(n, 5);
    r.top_k = 5;
    return r;
}

static napier_token_gradients token_gradients(int64_t n) {
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(numbers, n, 1);
    g.lse = g.entropy = g.loss = array(n);
    return g;
}

static napier_status token_logprobs(napier_context *c) {
    const napier_token_results r = new_token_results(ROWS);
    return CALL(napier_token_logprobs, c, logits(), token_ids(ROWS), NULL, &r);
}
static napier_status sample(napier_context *c) {
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    o.temperature = 1.3, o.top_p = 0.9, o.min_p = 1e-3, o.top_k = 60;
    r.ids = room(ROWS, sizeof *r.ids);
    r.logprobs = new_array(ROWS);
    r.plain_logprobs = new_array(ROWS);
    return CALL(napier_sample, c, logits(), &o, &r);
}
static napier_status token_logprobs_backward(napier_context *c) {
    const napier_token_gradients g = token_gradients(ROWS);
    return CALL(napier_token_logprobs_backward, c, logits(), token_ids(ROWS), NULL, &g, new_logits());
}

/* Short rows, rows of a few tiles, and one that is split: forward and backward, without and with rules. */
static napier_status token_shapes(napier_context *c) {
    static const int32_t first[ROWS];
    static const int64_t shapes[][2] = {{40, 30}, {9, 3000}, {1, 50000}};
    napier_status status = NAPIER_OK;
    for (int i = 0; i < 6 && !status; i++) {
        const int64_t rows = shapes[i / 2][0], cols = shapes[i / 2][1];
        const napier_const_matrix x = napier_const_rows_f32(numbers, rows, cols);
        const napier_indices chosen = napier_indices_i32(first, rows);
        const napier_token_options *const o = i % 2 ? &rules : NULL;
        const napier_token_results r = new_token_results(rows);
        const napier_token_gradients g = token_gradients(rows);
        status = napier_token_logprobs(c, x, chosen, o, &r);
        status = status ? status : napier_token_logprobs_backward(c, x, chosen, o, &g, new_rows(rows, cols));
    }
    return status;
}

static napier_const_matrix hidden(void) { return napier_const_rows_f32(numbers, TOKENS, HIDDEN); }
static napier_const_matrix weights(void) { return napier_const_rows_f32(numbers + TOKENS * HIDDEN, WORDS, HIDDEN); }

static napier_status linear_workspace(napier_context *c) {
    const size_t size = CALL(napier_linear_token_logprobs_workspace, c, TOKENS, HIDDEN, WORDS, 1);
    KEEP(size_t, size);
    return size > 0 ? NAPIER_OK : NAPIER_CORRUPT_DATA;
}
static napier_status linear_forward(napier_context *c, const napier_token_options *o) {
    const napier_token_results r = new_token_results(TOKENS);
    return CALL(napier_linear_token_logprobs, c, hidden(), weights(), token_ids(TOKENS), o, &r);
}
static napier_status linear_backward(napier_context *c, const napier_token_options *o) {
    const napier_token_gradients g = token_gradients(TOKENS);
    return CALL(napier_linear_token_logprobs_backward, c, hidden(), weights(), token_ids(TOKENS), o, &g,
                new_rows(TOKENS, HIDDEN), new_rows(WORDS, HIDDEN));
}
static napier_status linear_token_logprobs(napier_context *c) {
    const napier_status status = linear_forward(c, NULL);
    return status ? status : linear_forward(c, &rules);
}
static napier_status linear_token_logprobs_backward(napier_context *c) {
    const napier_status status = linear_backward(c, NULL);
    return status ? status : linear_backward(c, &rules);
}

/* ---- shards.h: rows of two shards, all the way forward and back -------------------------------------------------------- */

enum { SHARDED = 3000, SHARD = 2048, SHARD_ROWS = 4, SHARD_TILES = 3 };

typedef struct shard_records {
    float tiles[SHARD_ROWS][SHARD_TILES][NAPIER_SHARD_TOTAL];
    float dots[SHARD_ROWS][3 * SHARD_TILES];
    float chosen[SHARD_ROWS];
    int64_t sums[SHARD_ROWS * NAPIER_SHARD_SUM_WORDS], finals[SHARD_ROWS * NAPIER_SHARD_FINAL_WORDS];
} shard_records;

static napier_const_matrix sharded(int64_t first, int64_t cols) {
    return (napier_const_matrix){numbers + first, SHARD_ROWS, cols, SHARDED, 1, NAPIER_F32};
}

/* The tiles of both shards, their sums and finals. */
static napier_status shard_tiles_of(napier_context *c, bool linear, shard_records *s) {
    const napier_indices some = token_ids(SHARD_ROWS);
    const napier_const_matrix states = napier_const_rows_f32(numbers, SHARD_ROWS, HIDDEN);
    napier_status status = NAPIER_OK;
    for (int64_t first = 0; first < SHARDED && !status; first += SHARD) {
        const int64_t cols = first == 0 ? SHARD : SHARDED - SHARD;
        const int64_t tile = first / NAPIER_SHARD_TILE, tiles = first == 0 ? 2 : 1;
        const napier_const_matrix w = napier_const_rows_f32(numbers + first, cols, HIDDEN / 2);
        const napier_const_matrix head = {w.data, cols, HIDDEN, 1, 1, NAPIER_F32};
        const napier_matrix to = {
            s->tiles[0][tile], SHARD_ROWS, tiles * NAPIER_SHARD_TOTAL, SHARD_TILES * NAPIER_SHARD_TOTAL, 1, NAPIER_F32};
        status = linear ? CALL(napier_shard_linear_tiles, c, states, head, first, SHARDED, some, NULL,
                               NAPIER_SHARD_TOTAL, to, s->chosen)
                        : CALL(napier_shard_tiles, c, sharded(first, cols), first, SHARDED, some, NULL,
                               NAPIER_SHARD_TOTAL, to, s->chosen);
    }
    const napier_const_matrix all = napier_const_rows_f32(s->tiles[0][0], SHARD_ROWS, SHARD_TILES * NAPIER_SHARD_TOTAL);
    status = status ? status : CALL(napier_shard_sums, c, all, NAPIER_SHARD_TOTAL, s->sums);
    status = status ? status : CALL(napier_shard_finish_sums, c, s->sums, 1, SHARD_ROWS, s->finals);
    return status ? status : CALL(napier_shard_finish_tiles, c, all, NAPIER_SHARD_TOTAL, s->finals);
}

static napier_status shard_maps(napier_context *c, shard_records *s) {
    const napier_const_vector g = array(SHARD_ROWS);
    const napier_matrix to = new_rows(SHARD_ROWS, SHARDED), back = new_rows(SHARD_ROWS, SHARDED);
    const napier_const_matrix x = sharded(0, SHARDED), probs = napier_read_only(to);
    const napier_matrix dots = napier_rows_f32(s->dots[0], SHARD_ROWS, 3 * SHARD_TILES);
    napier_status status = CALL(napier_shard_softmax, c, s->finals, NAPIER_KIND_SOFTMAX, x, to, NULL);
    status = status ? status : CALL(napier_shard_logsumexp_backward, c, s->finals, x, g, back, NULL);
    status = status ? status : CALL(napier_shard_dots, c, probs, x, dots);
    return status ? status
                  : CALL(napier_shard_softmax_backward, c, NAPIER_KIND_SOFTMAX, probs, x, napier_read_only(dots), back,
                         NULL);
}

static napier_status shard_tokens(napier_context *c, shard_records *s) {
    const napier_indices some = token_ids(SHARD_ROWS);
    const napier_token_gradients g = token_gradients(SHARD_ROWS);
    const napier_const_matrix head = {numbers, SHARDED, HIDDEN, 1, 1, NAPIER_F32};
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = new_rows(SHARD_ROWS, 1);
    r.entropy = new_array(SHARD_ROWS);
    napier_status status =
        CALL(napier_shard_token_results, c, SHARD_ROWS, s->finals, s->chosen, SHARDED, some, NULL, &r);
    status = status ? status
                    : CALL(napier_shard_token_backward, c, s->finals, s->chosen, sharded(0, SHARDED), 0, SHARDED, some,
                           NULL, &g, new_rows(SHARD_ROWS, SHARDED));
    const napier_const_matrix states = napier_const_rows_f32(numbers, SHARD_ROWS, HIDDEN);
    const napier_matrix to_hidden = new_rows(SHARD_ROWS, HIDDEN), to_head = new_rows(SHARDED, HIDDEN);
    status =
        status ? status
               : CALL(napier_shard_linear_backward_check, c, states, head, SHARDED, some, NULL, &g, to_hidden, to_head);
    return status ? status
                  : CALL(napier_shard_linear_backward, c, s->finals, s->chosen, states, head, 0, SHARDED, some, NULL,
                         &g, 0, to_hidden, to_head);
}

static napier_status shard_use_of(napier_context *c, bool linear) {
    static shard_records s;
    memset(&s, 0, sizeof s);
    napier_status status = shard_tiles_of(c, linear, &s);
    status = status ? status : shard_maps(c, &s);
    status = status ? status : shard_tokens(c, &s);
    keep(&s, sizeof s);
    return status;
}
static napier_status shard_use(napier_context *c) { return shard_use_of(c, false); }
static napier_status shard_use_linear(napier_context *c) { return shard_use_of(c, true); }

static napier_status kl_per_response_by(napier_context *c, const napier_kl_options *o) {
    return CALL(napier_kl_per_response, c, tokens(0), tokens(100), narrow_responses(), mask, o, new_array(BATCH));
}
static napier_status kl_per_response(napier_context *c) {
    const napier_status status = kl_per_response_by(c, &kl);
    return status ? status : kl_per_response_by(c, NULL);
}
ONE_CALL(kl_per_response_backward, napier_kl_per_response_backward, tokens(0), tokens(100), narrow_responses(), mask,
         &kl, array(BATCH), new_array(TOKENS), new_array(TOKENS))
ONE_CALL(kl_full, napier_kl_full, logits(), logits(), NULL, new_array(ROWS))
ONE_CALL(kl_full_backward, napier_kl_full_backward, logits(), logits(), NULL, array(ROWS), new_logits(), new_logits())
/* Two policies, at a temperature. */
static napier_status kl_full_of_two(napier_context *c) {
    const napier_const_matrix p = napier_const_rows_f32(numbers, 70, 150);
    const napier_const_matrix q = napier_const_rows_f32(numbers + 70 * 150, 70, 150);
    const napier_softmax_options o = options_of(0.6, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_status status = napier_kl_full(c, p, q, &o, new_array(70));
    return status ? status : napier_kl_full_backward(c, p, q, &o, array(70), new_rows(70, 150), new_rows(70, 150));
}

static napier_const_matrix rubric(void) { return napier_const_rows_f32(numbers, CRITERIA, WORDS); }

ONE_CALL(rubric_score, napier_rubric_score, tokens(0), token_ids(TOKENS), narrow_responses(), rubric(), array(CRITERIA),
         new_rows(BATCH, CRITERIA), new_array(BATCH))
ONE_CALL(rubric_score_backward, napier_rubric_score_backward, token_ids(TOKENS), narrow_responses(), rubric(),
         array(CRITERIA), napier_const_rows_f32(numbers, BATCH, CRITERIA), array(BATCH), new_array(TOKENS))

static napier_grpo_batch batch(bool with_logprobs) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    if (with_logprobs) {
        b.logprobs = tokens(0);
        b.entropies = napier_const_array_f32(positive + 400, TOKENS);
    }
    b.old_logprobs = tokens(100);
    b.ref_logprobs = tokens(200);
    b.sampler_logprobs = tokens(300);
    b.advantages = array(BATCH);
    b.mask = mask;
    b.offsets = responses();
    return b;
}

static napier_grpo_metrics *new_metrics(void) {
    const napier_grpo_metrics empty = NAPIER_GRPO_METRICS_INIT;
    napier_grpo_metrics *const m = room(1, sizeof *m);
    memset(m, 0, sizeof *m);
    m->struct_size = empty.struct_size;
    return m;
}

static napier_status grpo_token_loss_by(napier_context *c, const napier_grpo_options *o) {
    const napier_grpo_batch b = batch(true);
    return CALL(napier_grpo_token_loss, c, &b, o, new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_loss_by(napier_context *c, const napier_grpo_options *o) {
    const napier_grpo_batch b = batch(true);
    return CALL(napier_grpo_loss, c, &b, o, new_metrics(), new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_from_logits_by(napier_context *c, const napier_grpo_options *o) {
    const napier_grpo_batch b = batch(false);
    return CALL(napier_grpo_from_logits, c, napier_const_rows_f32(numbers, TOKENS, WORDS), token_ids(TOKENS), &b, o,
                NULL, new_metrics(), new_rows(TOKENS, WORDS), new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_token_loss(napier_context *c) { return grpo_token_loss_by(c, &grpo); }
static napier_status grpo_loss(napier_context *c) { return grpo_loss_by(c, &grpo); }
static napier_status grpo_from_logits(napier_context *c) { return grpo_from_logits_by(c, &grpo); }
static napier_status grpo_token_loss_backward(napier_context *c) {
    const napier_grpo_batch b = batch(true);
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.type = NAPIER_GRPO_GSPO;
    return CALL(napier_grpo_token_loss_backward, c, &b, &o, tokens(400), new_array(TOKENS));
}
static napier_status grpo_from_hidden(napier_context *c) {
    const napier_grpo_batch b = batch(false);
    return CALL(napier_grpo_from_hidden, c, napier_const_rows_f32(numbers, TOKENS, HIDDEN),
                napier_const_rows_f32(numbers + 5000, WORDS, HIDDEN), token_ids(TOKENS), &b, NULL, NULL, new_metrics(),
                new_rows(TOKENS, HIDDEN), new_rows(WORDS, HIDDEN), new_array(TOKENS), new_array(TOKENS));
}
ONE_CALL(group_advantages, napier_group_advantages, tokens(0), responses(), NULL, new_array(TOKENS))
/* One read of the logits, and two. */
static napier_status grpo_from_logits_once(napier_context *c) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.beta = 0.04;
    return grpo_from_logits_by(c, &o);
}
static napier_status grpo_from_logits_twice(napier_context *c) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.type = NAPIER_GRPO_GSPO;
    return grpo_from_logits_by(c, &o);
}
static napier_status grpo_of_each_type(napier_context *c) {
    napier_status status = NAPIER_OK;
    for (int type = NAPIER_GRPO; type <= NAPIER_GRPO_TOKEN_MEAN && !status; type++) {
        napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
        o.type = (napier_grpo_type)type;
        o.beta = 0.04;
        o.entropy_coefficient = 0.01;
        o.correction = NAPIER_GRPO_TOKEN_TRUNCATE;
        o.off_policy_threshold = 2.3;
        o.top_entropy_quantile = type == NAPIER_GRPO ? 0.7 : 1.0;
        status = grpo_token_loss_by(c, &o);
        status = status ? status : grpo_loss_by(c, &o);
    }
    return status;
}

/* ---- umap.h --------------------------------------------------------------------------------------------------------- */

static napier_status find_ab_params(napier_context *c) {
    float *const ab = room(2, sizeof *ab);
    return CALL(napier_umap_find_ab_params, c, 0.13, 1.1, &ab[0], &ab[1]);
}
static napier_status sort_edges(napier_context *c) {
    napier_umap_edge *const sorted = room(EDGES, sizeof *sorted);
    memcpy(sorted, edges, sizeof edges);
    return CALL(napier_umap_sort_edges, c, sorted, EDGES);
}
ONE_CALL(segments, napier_umap_segments, sorted_edges, EDGES, POINTS, room(POINTS, sizeof(int64_t)),
         room(POINTS, sizeof(int64_t)))
/* Keeps a graph that a call has made, and destroys it. */
static napier_status graph_made(napier_context *c, napier_status status, napier_umap_graph *g) {
    made(status, g);
    if (!status) {
        const size_t count = (size_t)g->starts[g->n];
        keep(g->starts, (size_t)(g->n + 1) * sizeof *g->starts);
        keep(g->targets, count * sizeof *g->targets);
        keep(g->weights, count * sizeof *g->weights);
    }
    CALL(napier_umap_graph_destroy, c, g);
    return status;
}
static napier_status graph_from_edges(napier_context *c) {
    napier_umap_graph *g = NULL;
    const napier_status status = CALL(napier_umap_graph_from_edges, c, sorted_edges, EDGES, POINTS, &g);
    return graph_made(c, status, g);
}
ONE_CALL(edge_gradients, napier_umap_edge_gradients, &params, plane(), sorted_edges, EDGES, new_rows(EDGES, 2),
         new_rows(EDGES, 2))
ONE_CALL(reduce_segments, napier_umap_reduce_segments, napier_const_rows_f32(numbers, EDGES, 2), edge_starts,
         edge_counts, new_plane())
ONE_CALL(gradients, napier_umap_gradients, &params, plane(), sorted_edges, EDGES, 1, new_plane())
ONE_CALL(apply, napier_umap_apply, 0.37f, napier_const_rows_f32(numbers + 1000, POINTS, 2), plane_to_change())
ONE_CALL(negative_targets, napier_umap_negative_targets, 9, 3, POINTS, NEGATIVES,
         room(POINTS *NEGATIVES, sizeof(uint32_t)))
ONE_CALL(negative_gradients, napier_umap_negative_gradients, &params, plane(), targets, NEGATIVES, new_plane())
ONE_CALL(loss, napier_umap_loss, &params, plane(), sorted_edges, EDGES, targets, NEGATIVES, room(1, sizeof(double)))
static napier_status optimize_epochs(napier_context *c) {
    napier_umap_optimizer *o = NULL, *again = NULL;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    uint8_t *const bytes = room(1 << 12, 1);
    size_t size = 0;
    epochs.count = 7;
    epochs.total = 13;
    napier_status status = CALL(napier_umap_optimizer_create, c, NULL, POINTS, 2, &o);
    made(status, o);
    status = status
                 ? status
                 : CALL(napier_umap_optimize_epochs, c, NULL, &epochs, sorted_edges, EDGES, NULL, o, plane_to_change());
    status = status ? status : CALL(napier_umap_optimizer_to_bytes, c, o, bytes, 1 << 12, &size);
    if (!status) {
        status = CALL(napier_umap_optimizer_from_bytes, c, bytes, size, &again);
        made(status, again);
    }
    CALL(napier_umap_optimizer_destroy, c, o);
    napier_umap_optimizer_destroy(c, again);
    return status;
}

static napier_status neighbors_by(napier_context *c, napier_umap_samples s, const napier_neighbors_options *o) {
    return CALL(napier_nearest_neighbors, c, s, o, room(POINTS * NEAR, sizeof(int32_t)),
                room(POINTS * NEAR, sizeof(float)));
}
static napier_status neighbors_of_by(napier_context *c, napier_umap_samples s, napier_umap_samples queries,
                                     const napier_neighbors_options *o) {
    const int64_t count = queries.dense.rows * NEAR;
    return CALL(napier_nearest_neighbors_of, c, s, queries, o, room(count, sizeof(int32_t)),
                room(count, sizeof(float)));
}
static napier_status nearest_neighbors(napier_context *c) { return neighbors_by(c, points(), &near_options); }
static napier_status nearest_neighbors_of(napier_context *c) {
    return neighbors_of_by(c, points(), new_points(), &near_options);
}
static napier_status neighbors_by_each_metric(napier_context *c) {
    napier_status status = NAPIER_OK;
    for (int m = NAPIER_METRIC_EUCLIDEAN; m <= NAPIER_METRIC_STRING && !status; m++) {
        if (m == NAPIER_METRIC_PRECOMPUTED) {
            continue;
        }
        napier_neighbors_options o = near_options;
        napier_umap_samples s = points();
        o.metric = (napier_metric)m;
        o.p = 2.7;
        const bool shares = m == NAPIER_METRIC_HELLINGER || m == NAPIER_METRIC_SYMMETRIC_KL ||
                            m == NAPIER_METRIC_LL_DIRICHLET || m == NAPIER_METRIC_STRING;
        s.dense.data = shares ? positive : m == NAPIER_METRIC_POINCARE ? small : numbers;
        s.dense.cols = m == NAPIER_METRIC_HAVERSINE ? 2 : FEATURES;
        status = neighbors_by(c, s, &o);
        o.method = NAPIER_NEIGHBORS_EXACT;
        status = status ? status : neighbors_of_by(c, s, s, &o);
    }
    return status;
}

ONE_CALL(smooth_knn_dist, napier_umap_smooth_knn_dist, near_distances, POINTS, NEAR, 1.3, room(POINTS, sizeof(float)),
         room(POINTS, sizeof(float)))
static napier_status new_graph(napier_context *c, napier_umap_graph **out) {
    return CALL(napier_umap_fuzzy_simplicial_set, c, near_ids, near_distances, POINTS, NEAR, 1.3, 0.9, out);
}
static napier_status fuzzy_simplicial_set(napier_context *c) {
    napier_umap_graph *g = NULL;
    const napier_status status = new_graph(c, &g);
    return graph_made(c, status, g);
}

/* Joins a graph of the context's own memory with what is known: on an error it must be the graph that it was. */
static napier_status join(napier_context *c, bool known_categories) {
    napier_umap_graph *g = NULL;
    napier_status status = new_graph(c, &g);
    if (status) {
        return status;
    }
    const napier_umap_graph before = *g;
    status = known_categories ? CALL(napier_umap_join_categories, c, &g, categories, 0.3)
                              : CALL(napier_umap_join_numbers, c, &g, numbers, NEAR, 0.7);
    if (status) {
        expect(g && memcmp(&before, g, sizeof before) == 0, "a failed join changed the graph");
        napier_umap_graph_destroy(c, g);
        return status;
    }
    return graph_made(c, status, g);
}
static napier_status join_categories(napier_context *c) { return join(c, true); }
static napier_status join_numbers(napier_context *c) { return join(c, false); }

static napier_status join_distances(napier_context *c) {
    napier_umap_graph *g = NULL;
    napier_status status = new_graph(c, &g);
    static const float apart[POINTS * POINTS];
    status = status ? status : CALL(napier_umap_join_distances, c, &g, apart, 0.3);
    if (status) {
        napier_umap_graph_destroy(c, g);
        return status;
    }
    return graph_made(c, status, g);
}
static napier_status combine(napier_context *c) {
    napier_umap_graph *g = NULL;
    const napier_status status = CALL(napier_umap_combine, c, NAPIER_UMAP_INTERSECTION, graph, graph, 0.5, NEAR, &g);
    return graph_made(c, status, g);
}

ONE_CALL(spectral_layout, napier_umap_spectral_layout, graph, points(), 7, new_plane())
ONE_CALL(pca_layout, napier_umap_pca_layout, points(), 7, new_plane())
ONE_CALL(random_layout, napier_umap_random_layout, 7, new_plane())
static napier_status optimize_layout(napier_context *c) {
    napier_umap_options o = map_options;
    o.n_epochs = 15;
    return CALL(napier_umap_optimize_layout, c, graph, &o, plane_to_change());
}
/* A picture of 37 x 23 pixels, of colours and of lines. */
static const napier_umap_frame frame = {-0.9, 1.1, -1.0, 0.8, 37, 23};
ONE_CALL(raster_points, napier_umap_raster_points, &frame, plane(), categories, ids, 16, 4,
         room(37 * 23 * 4, sizeof(int64_t)))
ONE_CALL(raster_lines, napier_umap_raster_lines, &frame, plane(), ids, room(37 * 23, sizeof(int64_t)))
static napier_status fit(napier_context *c) {
    napier_umap_model *m = NULL;
    const napier_status status = CALL(napier_umap_fit, c, points(), &map_options, &m);
    made(status, m);
    if (!status) {
        keep(napier_umap_model_embedding(m).data, POINTS * 2 * sizeof(float));
    }
    CALL(napier_umap_model_destroy, c, m);
    return status;
}
static napier_status model_of(napier_context *c) {
    napier_umap_model *m = NULL;
    const napier_status status = CALL(napier_umap_model_create, c, points(), &map_options, plane(), &m);
    made(status, m);
    if (!status) {
        keep(napier_umap_model_embedding(m).data, POINTS * 2 * sizeof(float));
    }
    napier_umap_model_destroy(c, m);
    return status;
}
/* Reads a map's bytes, saves what it has read, loads that, and writes its bytes, which must be the same. */
static napier_status read_again(napier_context *c, const uint8_t *bytes, size_t size) {
    napier_umap_model *read = NULL, *loaded = NULL;
    uint8_t *const again = room(PARTS, 1);
    size_t size_again = 0;
    napier_status status = napier_umap_model_from_bytes(c, bytes, size, &read);
    status = status ? status : napier_umap_model_save(c, read, map_path);
    status = status ? status : napier_umap_model_load(c, map_path, &loaded);
    status = status ? status : napier_umap_model_to_bytes(c, loaded, again, PARTS, &size_again);
    expect(status || (size_again == size && memcmp(again, bytes, size) == 0), "%s: a map read again is another",
           name_now);
    napier_umap_model_destroy(c, read);
    napier_umap_model_destroy(c, loaded);
    return status;
}
/* A map that keeps densities and follows numbers, and what is done with it. */
static napier_status fit_and_use(napier_context *c) {
    napier_umap_options o = map_options;
    napier_umap_model *m = NULL;
    o.n_epochs = 20;
    o.densmap = 1;
    o.target_numbers = numbers;
    napier_status status = napier_umap_fit(c, points(), &o, &m);
    status = status ? status : napier_umap_transform(c, m, points(), new_plane());
    status = status ? status : napier_umap_inverse_transform(c, m, plane(), new_rows(POINTS, FEATURES));
    uint8_t *const bytes = room(PARTS, 1);
    size_t size = 0;
    status = status ? status : napier_umap_model_to_bytes(c, m, bytes, PARTS, &size);
    status = status ? status : read_again(c, bytes, size);
    napier_umap_model_destroy(c, m);
    return status;
}
static napier_status map_reads(napier_context *c) {
    (void)c;
    return CALL(napier_umap_model_features, map) == FEATURES && CALL(napier_umap_model_embedding, map).rows == POINTS
               ? NAPIER_OK
               : NAPIER_CORRUPT_DATA;
}
ONE_CALL(transform, napier_umap_transform, map, new_points(), new_rows(NEW, 2))
ONE_CALL(inverse_transform, napier_umap_inverse_transform, map, napier_const_rows_f32(numbers, NEW, 2),
         new_rows(NEW, FEATURES))

/* A save that fails leaves the file as it is. */
static napier_status map_save(napier_context *c) {
    const napier_status status = CALL(napier_umap_model_save, c, map, map_path);
    napier_umap_model *m = NULL;
    expect(napier_umap_model_load(plenty, map_path, &m) == NAPIER_OK, "after a save: %s", napier_last_error(plenty));
    napier_umap_model_destroy(plenty, m);
    return status;
}
MAKES(map_load, napier_umap_model, napier_umap_model_load, map_path)
ONE_CALL(map_to_bytes, napier_umap_model_to_bytes, map, room(PARTS, 1), PARTS, room(1, sizeof(size_t)))
MAKES(map_from_bytes, napier_umap_model, napier_umap_model_from_bytes, map_bytes, map_size)
ONE_CALL(quality_of, napier_umap_quality_of, points(), &near_options, plane(), categories, 0,
         room(1, sizeof(napier_umap_quality)))

/* ---- tokenizer.h, model.h ------------------------------------------------------------------------------------------- */

#ifdef NAPIER_MODEL

static const char text[] = "hello caf\xc3\xa9! cafe\xcc\x81! <|im_start|>world 123";

MAKES(tokenizer_from_json, napier_tokenizer, napier_tokenizer_from_json, (const char *)tiny_tokenizer_json, TINY_SIZE)
MAKES(tokenizer_load, napier_tokenizer, napier_tokenizer_load, "tests/support/tiny_tokenizer.json")
static napier_status encode_and_decode(napier_context *c) {
    napier_token_buffer encoded = {NULL, 0, 0};
    napier_text_buffer decoded = {NULL, 0, 0};
    napier_status status = CALL(napier_tokenizer_encode, c, tokenizer, text, sizeof text - 1, NULL, &encoded);
    expect(!status || encoded.size == 0, "a failed encode left %lld ids", (long long)encoded.size);
    status = status ? status : CALL(napier_tokenizer_decode, c, tokenizer, encoded.ids, encoded.size, NULL, &decoded);
    expect(!status || decoded.size == 0, "a failed decode left %zu bytes", decoded.size);
    if (!status) {
        keep(encoded.ids, (size_t)encoded.size * sizeof *encoded.ids);
        keep(decoded.bytes, decoded.size);
    }
    CALL(napier_token_buffer_free, c, &encoded);
    CALL(napier_text_buffer_free, c, &decoded);
    return status;
}
static napier_status tokenizer_reads(napier_context *c) {
    (void)c;
    size_t size = 0;
    const char *const bytes = CALL(napier_tokenizer_token, tokenizer, 280, &size);
    return bytes && CALL(napier_tokenizer_id, tokenizer, bytes, size) == 280 &&
                   CALL(napier_tokenizer_is_special, tokenizer, 280) &&
                   CALL(napier_tokenizer_vocab_size, tokenizer) > 280
               ? NAPIER_OK
               : NAPIER_CORRUPT_DATA;
}
static napier_status chat_text(napier_context *c) {
    const napier_chat_message messages[] = {{.role = "system", .content = "a", .size = 1},
                                            {.role = "user", .content = text, .size = sizeof text - 1}};
    napier_text_buffer rendered = {NULL, 0, 0};
    const napier_status status = CALL(napier_chat_text, c, messages, 2, NULL, &rendered);
    if (!status) {
        keep(rendered.bytes, rendered.size);
    }
    napier_text_buffer_free(c, &rendered);
    return status;
}
static napier_status chat_format(napier_context *c) {
    static const char chat_template[] =
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant. <tool_call> "
        "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n'";
    int64_t format = -1;
    napier_status status = CALL(napier_chat_format_of, c, chat_template, sizeof chat_template - 1, &format);
    keep(&format, sizeof format);
    return status ? status : CALL(napier_chat_format_load, c, "/nowhere", NULL, &format);
}
static napier_status chat_template(napier_context *c) {
    static const char source[] = "{% for m in messages %}{{ m.content | trim }}{% endfor %}";
    const napier_chat_message message = {.role = "user", .content = text, .size = sizeof text - 1};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *made = NULL, *none = NULL;
    napier_text_buffer rendered = {NULL, 0, 0};
    napier_status status = CALL(napier_chat_template_create, c, source, sizeof source - 1, "<s>", NULL, &made);
    options.chat_template = made;
    options.variables = "{\"x\": 1}";
    options.variables_size = strlen(options.variables);
    options.now = 1;
    if (!status && !CALL(napier_chat_template_mentions, made, "tools")) {
        status = CALL(napier_chat_text, c, &message, 1, &options, &rendered);
    }
    if (!status) {
        keep(rendered.bytes, rendered.size);
        status = CALL(napier_chat_template_load, c, "/nowhere", &none);
    }
    napier_text_buffer_free(c, &rendered);
    CALL(napier_chat_template_destroy, c, made);
    return status;
}

static napier_status gguf_document(napier_context *c) {
    napier_text_buffer json = {NULL, 0, 0};
    const napier_status status =
        CALL(napier_gguf_document, c, "tests/fuzz/seeds/fuzz_gguf/model", "config.json", &json);
    expect(!status || json.size == 0, "a failed document left %zu bytes", json.size);
    if (!status) {
        keep(json.bytes, json.size);
    }
    napier_text_buffer_free(c, &json);
    return status;
}
MAKES(model_load, napier_model, napier_model_load, tiny.directory, NULL)
static napier_status model_from_tensors(napier_context *c) {
    const tiny_tensors t = tensors;
    napier_model *m = NULL;
    napier_status status = CALL(napier_model_from_tensors, c, t.config, t.config_size, t.list, t.count, NULL, &m);
    expect(!status == !!m, "napier_model_from_tensors: status %d, but %p", (int)status, (void *)m);
    status = status ? status : CALL(napier_model_update, c, m, t.list, t.count);
    status = status ? status : CALL(napier_model_update, c, m, NULL, 0);
    napier_model_destroy(c, m);
    return status;
}
static napier_status model_reads(napier_context *c) {
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    const napier_status status = CALL(napier_model_get_info, c, model, &info);
    const napier_const_matrix head = CALL(napier_model_head, model);
    const int64_t last = CALL(napier_model_tensor_count, model) - 1;
    napier_named_tensor t = {.ndim = 0};
    const napier_status found = CALL(napier_model_tensor, c, model, last, &t);
    expect(found || t.ndim > 0, "napier_model_tensor: a tensor without dimensions");
    keep(&info, sizeof info);
    keep(head.data, (size_t)(head.rows * head.cols) * sizeof(float));
    return status || found || head.rows == info.vocabulary ? (status ? status : found) : NAPIER_CORRUPT_DATA;
}
static napier_status model_forward(napier_context *c) {
    static const int64_t sequences[] = {0, 6, 20};
    const napier_status status = CALL(napier_model_forward, c, model, token_ids(20), napier_indices_i64(sequences, 3),
                                      new_rows(20, tiny.hidden), new_rows(20, tiny.vocabulary), NULL, NULL);
    return status ? status
                  : napier_model_forward(c, model, token_ids(20), napier_indices_i64(NULL, 0), NO_MATRIX,
                                         new_rows(20, tiny.vocabulary), NULL, NULL);
}

/* Two prompts of 5, with two responses each. */
static const int64_t prompt_offsets[] = {0, 5, 10}, prompt_of[BATCH] = {0, 0, 1, 1};

static napier_score_batch score_batch(void) {
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    b.prompt_ids = token_ids(10);
    b.prompt_offsets = napier_indices_i64(prompt_offsets, 3);
    b.response_ids = token_ids(TOKENS);
    b.response_offsets = responses();
    b.prompt_of = napier_indices_i64(prompt_of, BATCH);
    return b;
}
static napier_score_results new_score_results(int64_t n) {
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    r.logprobs = new_array(n);
    r.entropy = new_array(n);
    r.argmax = room(n, sizeof *r.argmax);
    r.is_greedy = room(n, 1);
    return r;
}
static napier_status batch_logprobs_by(napier_context *c, const napier_score_options *o) {
    const napier_score_batch b = score_batch();
    const napier_score_results r = new_score_results(TOKENS);
    return CALL(napier_model_batch_logprobs, c, model, &b, o, &r);
}
static napier_status batch_logprobs(napier_context *c) {
    const napier_status status = batch_logprobs_by(c, &score);
    return status ? status : batch_logprobs_by(c, NULL);
}
static napier_status logprobs_for(napier_context *c) {
    const napier_score_results r = new_score_results(7);
    return CALL(napier_model_logprobs_for, c, model, token_ids(5), token_ids(7), &score, &r);
}
static napier_status kv_logprobs(napier_context *c) {
    const napier_score_batch b = score_batch();
    const napier_score_results r = new_score_results(TOKENS);
    napier_score_options options = score;
    napier_kv *kv = NULL, *more = NULL;
    napier_status status = CALL(napier_kv_create, c, model, token_ids(4), NULL, NULL, &kv);
    expect(!status == !!kv, "napier_kv_create: status %d, but %p", (int)status, (void *)kv);
    status = status ? status : CALL(napier_kv_extend, c, kv, token_ids(4), NULL, NULL, &more);
    expect(!status == !!more, "napier_kv_extend: status %d, but %p", (int)status, (void *)more);
    napier_kv_destroy(c, more);
    options.kvs = (const napier_kv *const *)&kv;
    options.kv_count = 1;
    status = status ? status : napier_model_batch_logprobs(c, model, &b, &options, &r);
    expect(status || CALL(napier_kv_bytes, kv) > CALL(napier_kv_tokens, kv), "the kv has no bytes");
    CALL(napier_kv_destroy, c, kv);
    return status;
}
static int on_kv(int64_t sequence, napier_kv *kv, void *user) {
    expect(napier_kv_tokens(kv) > 0, "the kv of sequence %d is empty", (int)sequence);
    napier_kv_destroy(user, kv);
    return 0;
}
static napier_status generate(napier_context *c) {
    enum { SAMPLES = 2, MOST = 6 };
    napier_generate_batch b = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options o = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    napier_sample_options s = NAPIER_SAMPLE_OPTIONS_INIT;
    b.prompt_ids = token_ids(10);
    b.prompt_offsets = napier_indices_i64(prompt_offsets, 3);
    b.samples = SAMPLES;
    s.temperature = 0.7, s.top_p = 0.9, s.repetition_penalty = 1.2;
    o.max_tokens = MOST;
    o.sampling = &s;
    r.ids = room(2 * SAMPLES * MOST, sizeof *r.ids);
    r.lengths = room(2 * SAMPLES, sizeof *r.lengths);
    r.logprobs = new_rows(2 * SAMPLES, MOST);
    r.plain_logprobs = new_rows(2 * SAMPLES, MOST);
    r.entropy = new_rows(2 * SAMPLES, MOST);
    o.min_tokens = 2;
    o.on_kv = on_kv;
    o.user = c;
    return CALL(napier_generate, c, model, &b, &o, &r);
}
static napier_status batch_plan(napier_context *c) {
    const napier_score_batch b = score_batch();
    napier_score_plan *const plan = room(1, sizeof *plan);
    memset(plan, 0, sizeof *plan);
    plan->struct_size = sizeof *plan;
    return CALL(napier_model_batch_plan, c, model, &b, &score, plan);
}
static napier_status judge(napier_context *c) {
    static const int64_t verdict_offsets[] = {0, 1, 3};
    static const double values[] = {0.3, 0.7};
    napier_judge_batch b = NAPIER_JUDGE_BATCH_INIT;
    b.prompt_ids = token_ids(10);
    b.prompt_offsets = napier_indices_i64(prompt_offsets, 3);
    b.criteria = 1;
    b.verdict_ids = token_ids(3);
    b.verdict_offsets = napier_indices_i64(verdict_offsets, 3);
    b.values = values;
    return CALL(napier_model_judge, c, model, &b, &score, new_rows(2, 1), new_array(2), new_rows(2, 2));
}
static napier_status rewards(napier_context *c) {
    const napier_score_batch b = score_batch();
    return CALL(napier_model_rewards, c, reward_model, &b, &score, new_rows(BATCH, 2));
}
/* Calls that use the model, with one in bf16. */
typedef napier_status model_use(napier_context *);
static napier_status in_bf16(napier_context *c, model_use *const uses[], size_t count) {
    napier_model *const other = model;
    napier_model_options o = NAPIER_MODEL_OPTIONS_INIT;
    o.compute = NAPIER_COMPUTE_BF16;
    napier_status status = napier_model_load(c, tiny.directory, &o, &model);
    for (size_t i = 0; i < count && !status; i++) {
        status = uses[i](c);
    }
    napier_model_destroy(c, model);
    model = other;
    return status;
}
static napier_status model_in_bf16(napier_context *c) {
    static model_use *const uses[] = {model_reads, model_forward, batch_logprobs, logprobs_for,
                                      judge,       kv_logprobs,   generate};
    return in_bf16(c, uses, sizeof uses / sizeof *uses);
}
static napier_status batch_plan_in_bf16(napier_context *c) {
    static model_use *const uses[] = {batch_plan};
    return in_bf16(c, uses, sizeof uses / sizeof *uses);
}
static napier_status encode_texts(napier_context *c) {
    const napier_text texts[] = {{text, sizeof text - 1}, {"", 0}, {"abc", 3}};
    napier_token_buffer encoded = {NULL, 0, 0};
    int64_t *const at = room(4, sizeof *at);
    const napier_status status = CALL(napier_model_encode_texts, c, tokenizer, texts, 3, NULL, &encoded, at);
    napier_token_buffer_free(c, &encoded);
    return status;
}

#endif

/* ---- Softmax, sparsemax and logcumsumexp in layouts, dtypes and algorithms that go other ways and need other memory ----------------- */

typedef enum softmax_call {
    SOFTMAX,
    LOG_SOFTMAX,
    LOGSUMEXP,
    LOGSUMEXP_ALL,
    WEIGHTED,
    SOFTMAX_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    LOGSUMEXP_BACKWARD,
    LOGSUMEXP_ALL_BACKWARD,
    SPARSEMAX,
    SPARSEMAX_BACKWARD,
    LOGCUMSUMEXP,
    LOGCUMSUMEXP_BACKWARD,
    LOGCUMSUMEXP_TANGENT
} softmax_call;

typedef struct softmax_case {
    const char *name;
    softmax_call call;
    layout in_layout, out_layout;
    int64_t rows, cols;
    napier_dtype in, out;
    napier_algorithm algorithm;
    unsigned flags;
} softmax_case;

#define C LAYOUT_CONTIGUOUS
#define T LAYOUT_TRANSPOSED
#define E LAYOUT_EVERY_OTHER
#define F32 NAPIER_F32
#define BF16 NAPIER_BF16
#define F64 NAPIER_F64
#define AUTO NAPIER_ALGORITHM_AUTO
#define PARALLEL NAPIER_ALGORITHM_PARALLEL
#define TAKES CALL_TAKES
#define MAY CALL_MAY_TAKE
static const softmax_case softmax_cases[] = {
    {"softmax, gathered", SOFTMAX, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"log_softmax, gathered", LOG_SOFTMAX, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"logsumexp, gathered", LOGSUMEXP, T, C, 40, 1500, F32, F32, AUTO, TAKES},
    {"logsumexp of all, gathered", LOGSUMEXP_ALL, T, C, 40, 1500, F32, F32, AUTO, TAKES},
    {"softmax_backward, gathered", SOFTMAX_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"log_softmax_backward, gathered", LOG_SOFTMAX_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"logsumexp_backward, gathered", LOGSUMEXP_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"logsumexp_all_backward, gathered", LOGSUMEXP_ALL_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"sparsemax", SPARSEMAX, T, T, 40, 1500, F32, F32, AUTO, 0},
    {"sparsemax_backward", SPARSEMAX_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, 0},
    {"logcumsumexp", LOGCUMSUMEXP, T, T, 40, 1500, F32, F32, AUTO, 0},
    {"logcumsumexp_backward", LOGCUMSUMEXP_BACKWARD, T, T, 40, 1500, F32, F32, AUTO, TAKES},
    {"logcumsumexp_tangent", LOGCUMSUMEXP_TANGENT, T, T, 40, 1500, F64, F64, AUTO, 0},
    {"tiny rows", SOFTMAX, C, C, 50, 7, F32, F32, AUTO, MAY},
    {"short rows", SOFTMAX, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"short rows", LOG_SOFTMAX, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"rows", LOG_SOFTMAX, LAYOUT_PADDED, C, 9, 1500, F32, BF16, AUTO, MAY},
    {"strided rows", SOFTMAX, E, LAYOUT_COLUMNS_REVERSED, 9, 1500, NAPIER_F16, F32, NAPIER_ALGORITHM_ONLINE, MAY},
    {"first axis", SOFTMAX, T, T, 300, 200, F32, F32, AUTO, MAY},
    {"first axis, long", LOG_SOFTMAX, T, T, 20, 9000, BF16, BF16, NAPIER_ALGORITHM_SAFE, MAY},
    {"one long row", SOFTMAX, C, C, 1, 100000, F32, F32, PARALLEL, MAY},
    {"one long strided row", SOFTMAX, E, E, 1, 100000, F32, F32, PARALLEL, MAY},
    {"logsumexp", LOGSUMEXP, C, C, 100, 5000, F32, F32, AUTO, MAY},
    {"logsumexp of short rows", LOGSUMEXP, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"logsumexp, first axis", LOGSUMEXP, T, C, 500, 300, F32, F32, PARALLEL, MAY},
    {"logsumexp of all", LOGSUMEXP_ALL, C, C, 100, 1000, F32, F32, AUTO, MAY},
    {"logsumexp of all, transposed", LOGSUMEXP_ALL, LAYOUT_TRANSPOSED_PADDED, C, 100, 1000, NAPIER_F16, F32, AUTO, MAY},
    {"f64", SOFTMAX, T, T, 30, 3000, F64, F64, AUTO, MAY},
    {"f64, short rows", SOFTMAX, C, C, 70, 150, F64, F64, AUTO, MAY},
    {"f64, one long row", SOFTMAX, C, C, 1, 40000, F64, F64, AUTO, MAY},
    {"f64 of all", LOGSUMEXP_ALL, LAYOUT_PADDED, C, 30, 3000, F64, F64, PARALLEL, MAY},
    {"logsumexp_weighted", WEIGHTED, E, C, 2, 20000, F32, F32, PARALLEL, MAY},
    {"logsumexp_weighted of short rows", WEIGHTED, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"softmax_backward", SOFTMAX_BACKWARD, T, T, 100, 1500, F32, F32, AUTO, MAY},
    {"softmax_backward of short rows", SOFTMAX_BACKWARD, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"softmax_backward in f64", SOFTMAX_BACKWARD, C, C, 1, 40000, F64, F64, AUTO, MAY},
    {"log_softmax_backward", LOG_SOFTMAX_BACKWARD, E, C, 10, 4000, BF16, F32, AUTO, MAY},
    {"log_softmax_backward of short rows", LOG_SOFTMAX_BACKWARD, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"log_softmax_backward in f64", LOG_SOFTMAX_BACKWARD, T, T, 10, 4000, F64, F64, AUTO, MAY},
    {"logsumexp_backward", LOGSUMEXP_BACKWARD, T, T, 100, 1500, F32, F32, AUTO, MAY},
    {"logsumexp_backward of short rows", LOGSUMEXP_BACKWARD, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"logsumexp_all_backward", LOGSUMEXP_ALL_BACKWARD, T, C, 100, 1500, F32, F32, AUTO, MAY},
    {"sparsemax of short rows", SPARSEMAX, C, C, 70, 150, F32, F32, AUTO, MAY},
    {"sparsemax_backward of short rows", SPARSEMAX_BACKWARD, C, C, 70, 150, F32, F32, AUTO, MAY},
};
#undef C
#undef T
#undef E
#undef F32
#undef BF16
#undef F64
#undef AUTO
#undef PARALLEL
#undef TAKES
#undef MAY
enum { CASES = sizeof softmax_cases / sizeof *softmax_cases };

static const softmax_case *case_now;
static grid case_input;

/* `result` is of the forward call whose gradient is wanted. */
static napier_status run_case(napier_context *c, const softmax_case *s, napier_const_matrix in, napier_matrix result,
                              napier_matrix out) {
    const napier_softmax_options options = options_of(0.8, s->algorithm, NAPIER_MASKED_NAN);
    const napier_const_vector grad = array(s->call == LOGSUMEXP_BACKWARD ? s->rows : 1);
    const napier_vector lse = {out.data, out.rows, out.row_stride, out.dtype};
    napier_status status = NAPIER_OK;
    switch (s->call) {
    case SOFTMAX: return CALL(napier_softmax, c, in, out, &options);
    case LOG_SOFTMAX: return CALL(napier_log_softmax, c, in, out, &options);
    case LOGSUMEXP: return CALL(napier_logsumexp, c, in, lse, &options);
    case LOGSUMEXP_ALL: return CALL(napier_logsumexp_all, c, in, lse, &options);
    case WEIGHTED: return CALL(napier_logsumexp_weighted, c, in, in, lse, NO_VECTOR, &options);
    case SOFTMAX_BACKWARD:
        status = napier_softmax(c, in, result, &options);
        return status ? status : CALL(napier_softmax_backward, c, napier_read_only(result), in, out, &options);
    case LOG_SOFTMAX_BACKWARD:
        status = napier_log_softmax(c, in, result, &options);
        return status ? status : CALL(napier_log_softmax_backward, c, napier_read_only(result), in, out, &options);
    case LOGSUMEXP_BACKWARD: return CALL(napier_logsumexp_backward, c, in, grad, out, &options);
    case LOGSUMEXP_ALL_BACKWARD: return CALL(napier_logsumexp_all_backward, c, in, grad, out, &options);
    case SPARSEMAX: return CALL(napier_sparsemax, c, in, out, &options);
    case LOGCUMSUMEXP: return CALL(napier_logcumsumexp, c, in, out, &options);
    case LOGCUMSUMEXP_BACKWARD: return CALL(napier_logcumsumexp_backward, c, in, in, out, &options);
    case LOGCUMSUMEXP_TANGENT: return CALL(napier_logcumsumexp_tangent, c, in, in, out, &options);
    case SPARSEMAX_BACKWARD: break;
    }
    status = napier_sparsemax(c, in, result, &options);
    return status ? status : CALL(napier_sparsemax_backward, c, napier_read_only(result), in, out, &options);
}

static napier_status softmax_in_layout(napier_context *c) {
    const softmax_case *const s = case_now;
    const bool reduces = s->call >= LOGSUMEXP && s->call <= WEIGHTED;
    const int64_t mark = scratch_mark(), rows = s->call == LOGSUMEXP_ALL ? 1 : s->rows, cols = reduces ? 1 : s->cols;
    const grid result = grid_make(s->in_layout, s->rows, s->cols, s->in);
    const grid out = grid_make(s->out_layout, rows, cols, s->out);
    const uint64_t before = grid_bits(&out, 0, 0);
    const napier_status status = run_case(c, s, grid_input(&case_input), result.view, out.view);
    expect(grid_damage(&out) == 0, "%s wrote beside its result", s->name);
    expect(!status || status == NAPIER_CANCELLED || grid_bits(&out, 0, 0) == before, "%s failed, but wrote a result",
           s->name);
    if (!status) {
        void *const copy = room(rows * cols, napier_dtype_size(s->out));
        for (int64_t i = 0; i < rows * cols; i++) {
            element_set_bits(copy, s->out, i, grid_bits(&out, i / cols, i % cols));
        }
    }
    scratch_release(mark);
    return status;
}

/* Makes the input here, because to round it needs the default floating-point state. Some of it is subnormal in every
 * format, and all bits of an f64 are used. */
static public_call softmax_call_at(int i) {
    const softmax_case *const s = case_now = &softmax_cases[i];
    scratch_release(0);
    case_input = grid_make(s->in_layout, s->rows, s->cols, s->in);
    const int exponent = dtype_min_exponent(s->in) - 5;
    for (int64_t at = 0; at < s->rows * s->cols; at++) {
        const double number = (double)numbers[at % NUMBERS] / (s->in == NAPIER_F64 ? 3.0 : 1.0);
        grid_set(&case_input, at / s->cols, at % s->cols, at % 9 == 0 ? ldexp(number, exponent) : number);
    }
    return (public_call){s->name, softmax_in_layout, s->flags};
}

/* ---- The table ------------------------------------------------------------------------------------------------------ */

#define LINE(function_, flags_) \
    { #function_, function_, flags_ }
static const public_call table[] = {
    LINE(context_create, CALL_TAKES | CALL_NO_TEXT),
    LINE(words, CALL_FALLS_BACK),
    LINE(logsumexp_weighted, CALL_TAKES),
    LINE(dot_rows, CALL_TAKES),
    LINE(exp_of, 0),
    LINE(log_of, 0),
    LINE(state_use, CALL_TAKES),
    LINE(state_use_f64, CALL_TAKES),
    LINE(state_use_weighted, CALL_TAKES),
    LINE(matmul, CALL_TAKES),
    LINE(matmul_split, CALL_TAKES | CALL_FALLS_BACK),
    LINE(attention, CALL_TAKES),
    LINE(attention_of_sequences, CALL_TAKES),
    LINE(attention_bf16_weights, CALL_TAKES | CALL_FALLS_BACK),
    LINE(attention_backward, CALL_TAKES),
    LINE(attention_bf16_gradient, CALL_TAKES | CALL_FALLS_BACK),
    LINE(rms_norm, CALL_TAKES),
    LINE(rms_norm_backward, CALL_TAKES),
    LINE(swiglu, 0),
    LINE(swiglu_backward, 0),
    LINE(rotary, 0),
    LINE(rotary_backward, 0),
    LINE(rotary_frequencies, 0),
    LINE(rotary_angles, 0),
    LINE(gather_logprobs, 0),
    LINE(gather_logprobs_backward, 0),
    LINE(token_logprobs, CALL_TAKES),
    LINE(sample, CALL_TAKES),
    LINE(token_logprobs_backward, CALL_TAKES),
    LINE(token_shapes, CALL_TAKES),
    LINE(linear_workspace, CALL_BY_THREADS),
    LINE(linear_token_logprobs, CALL_TAKES),
    LINE(linear_token_logprobs_backward, CALL_TAKES),
    LINE(shard_use, CALL_TAKES),
    LINE(shard_use_linear, CALL_TAKES),
    LINE(kl_per_response, CALL_TAKES),
    LINE(kl_per_response_backward, 0),
    LINE(kl_full, CALL_TAKES),
    LINE(kl_full_backward, CALL_TAKES),
    LINE(kl_full_of_two, CALL_TAKES),
    LINE(rubric_score, CALL_TAKES),
    LINE(rubric_score_backward, CALL_TAKES),
    LINE(grpo_token_loss, CALL_TAKES),
    LINE(grpo_token_loss_backward, CALL_TAKES),
    LINE(grpo_loss, CALL_TAKES),
    LINE(grpo_from_logits, CALL_TAKES),
    LINE(grpo_from_hidden, CALL_TAKES),
    LINE(group_advantages, 0),
    LINE(grpo_from_logits_once, CALL_TAKES),
    LINE(grpo_from_logits_twice, CALL_TAKES),
    LINE(grpo_of_each_type, CALL_TAKES),
    LINE(find_ab_params, CALL_UNTOUCHED),
    LINE(sort_edges, CALL_TAKES),
    LINE(segments, CALL_UNTOUCHED),
    LINE(graph_from_edges, CALL_TAKES),
    LINE(edge_gradients, CALL_UNTOUCHED),
    LINE(reduce_segments, CALL_UNTOUCHED),
    LINE(gradients, CALL_TAKES | CALL_UNTOUCHED),
    LINE(apply, 0),
    LINE(negative_targets, CALL_UNTOUCHED),
    LINE(negative_gradients, CALL_UNTOUCHED),
    LINE(loss, CALL_TAKES | CALL_UNTOUCHED),
    LINE(optimize_epochs, CALL_TAKES),
    LINE(nearest_neighbors, CALL_TAKES | CALL_UNTOUCHED),
    LINE(nearest_neighbors_of, CALL_TAKES | CALL_UNTOUCHED),
    LINE(neighbors_by_each_metric, CALL_LONG),
    LINE(smooth_knn_dist, CALL_TAKES | CALL_UNTOUCHED),
    LINE(fuzzy_simplicial_set, CALL_TAKES),
    LINE(join_categories, CALL_TAKES),
    LINE(join_numbers, CALL_TAKES),
    LINE(join_distances, CALL_TAKES),
    LINE(combine, CALL_TAKES),
    LINE(spectral_layout, CALL_TAKES | CALL_UNTOUCHED),
    LINE(pca_layout, CALL_TAKES | CALL_UNTOUCHED),
    LINE(random_layout, CALL_UNTOUCHED),
    LINE(optimize_layout, CALL_TAKES),
    LINE(raster_points, 0),
    LINE(raster_lines, 0),
    LINE(fit, CALL_TAKES),
    LINE(model_of, CALL_TAKES),
    LINE(fit_and_use, CALL_LONG),
    LINE(map_reads, 0),
    LINE(transform, CALL_TAKES | CALL_UNTOUCHED),
    LINE(inverse_transform, CALL_TAKES | CALL_UNTOUCHED),
    LINE(map_save, CALL_TAKES),
    LINE(map_load, CALL_TAKES),
    LINE(map_to_bytes, 0),
    LINE(map_from_bytes, CALL_TAKES),
    LINE(quality_of, CALL_TAKES | CALL_UNTOUCHED),
#ifdef NAPIER_MODEL
    LINE(tokenizer_from_json, CALL_TAKES | CALL_FALLS_BACK),
    LINE(tokenizer_load, CALL_TAKES | CALL_FALLS_BACK),
    LINE(encode_and_decode, CALL_TAKES | CALL_FALLS_BACK),
    LINE(tokenizer_reads, 0),
    LINE(chat_text, CALL_TAKES),
    LINE(chat_format, CALL_TAKES),
    LINE(chat_template, CALL_TAKES),
    LINE(gguf_document, CALL_TAKES),
    LINE(model_load, CALL_TAKES),
    LINE(model_from_tensors, CALL_TAKES),
    LINE(model_reads, 0),
    LINE(model_forward, CALL_TAKES),
    LINE(batch_logprobs, CALL_TAKES),
    LINE(kv_logprobs, CALL_TAKES),
    LINE(generate, CALL_TAKES),
    LINE(logprobs_for, CALL_TAKES),
    LINE(batch_plan, CALL_TAKES | CALL_BY_THREADS),
    LINE(judge, CALL_TAKES),
    LINE(rewards, CALL_TAKES),
    LINE(model_in_bf16, CALL_LONG),
    LINE(batch_plan_in_bf16, CALL_TAKES | CALL_BY_THREADS),
    LINE(encode_texts, CALL_TAKES | CALL_FALLS_BACK),
#endif
};
enum { LINES = sizeof table / sizeof *table };

int calls_count(void) { return LINES + CASES; }

public_call call_at(int i) { return i < LINES ? table[i] : softmax_call_at(i - LINES); }

/* ---- What the calls read -------------------------------------------------------------------------------------------- */

static void fill(void) {
    rng r = rng_make(7);
    for (int i = 0; i < NUMBERS; i++) {
        numbers[i] = (float)(3.0 * rng_normal(&r)) * (i % 8 == 5 ? 0x1p-130f : 1.0f);
        positive[i] = fabsf(numbers[i]);
        negative[i] = -positive[i];
        small[i] = 0.005f * numbers[i];
        ids[i] = i * 7 % 80;
    }
    for (int i = 0; i < TOKENS; i++) {
        mask[i] = i % 5 != 0;
    }
    for (uint32_t e = 0; e < EDGES; e++) { /* not sorted; every third weight is subnormal */
        edges[e] = (napier_umap_edge){(e * 37) % POINTS, (e * 11 + 5) % POINTS, 1.0f / (float)(e + 3)};
        edges[e].weight *= e % 3 == 0 ? 0x1p-127f : 1.0f;
    }
    for (int i = 0; i < POINTS; i++) {
        categories[i] = i % 4 - 1;
    }
}

void calls_set_zeros(bool signs) {
    rng r = rng_make(11);
    for (int i = 0; i < NUMBERS; i++) {
        const uint64_t bits = rng_bits(&r);
        negative[i] = bits % 4 == 0 ? (signs && bits & 16 ? -0.0f : 0.0f) : -(float)(bits >> 8 & 1023) / 200.0f;
        positive[i] = bits % 4 == 0 ? negative[i] : -negative[i];
        numbers[i] = i % 5000 < 2500 ? negative[i] : positive[i];
        small[i] = 0.005f * numbers[i];
    }
}

static void fill_options(void) {
    rules.temperature = 0.9;
    rules.softcap = 11.0;
    rules.label_smoothing = 0.1;
    rules.z_loss = 1e-3;
    kl.estimator = NAPIER_KL_K3;
    kl.reduction = NAPIER_REDUCE_MEAN;
    kl.clamp_ratio = 3.3;
    grpo.level = NAPIER_GRPO_LEVEL_SEQUENCE;
    grpo.beta = 0.1;
    grpo.correction = NAPIER_GRPO_SEQUENCE_TRUNCATE;
    grpo.top_entropy_quantile = 0.5;
    grpo.entropy_coefficient = 0.1;
    params.learning_rate = 0.3f;
    params.repulsion_strength = 0.9f;
    params.max_norm = 1.7f;
    near_options.n_neighbors = NEAR;
    map_options.neighbors = near_options;
    map_options.n_epochs = 5;
#ifdef NAPIER_MODEL
    score.temperature = 0.7;
#endif
}

void calls_open(const char *path) {
    plenty = context_of(NAPIER_ISA_AUTO, 2);
    map_path = path;
    fill();
    fill_options();
    memcpy(sorted_edges, edges, sizeof edges);
    works(napier_umap_sort_edges, plenty, sorted_edges, EDGES);
    works(napier_umap_segments, plenty, sorted_edges, EDGES, POINTS, edge_starts, edge_counts);
    works(napier_umap_negative_targets, plenty, 1, 2, POINTS, NEGATIVES, targets);
    works(napier_nearest_neighbors, plenty, points(), &near_options, near_ids, near_distances);
    works(napier_umap_fuzzy_simplicial_set, plenty, near_ids, near_distances, POINTS, NEAR, 1.0, 1.0, &graph);
    works(napier_umap_fit, plenty, points(), &map_options, &map);
    works(napier_umap_model_to_bytes, plenty, map, map_bytes, sizeof map_bytes, &map_size);
    works(napier_umap_model_save, plenty, map, map_path);
#ifdef NAPIER_MODEL
    tiny_model_write(&tiny);
    tensors = tiny_model_tensors(&tiny);
    works(napier_model_load, plenty, tiny.directory, NULL, &model);
    tiny_model judge = tiny_model_of(2);
    judge.labels = 2;
    judge_tensors = tiny_model_tensors(&judge);
    works(napier_model_from_tensors, plenty, judge_tensors.config, judge_tensors.config_size, judge_tensors.list,
          judge_tensors.count, NULL, &reward_model);
    works(tiny_load, plenty, NULL, NULL, &tokenizer);
#endif
}

void calls_close(void) {
    remove(map_path);
    napier_umap_graph_destroy(plenty, graph);
    napier_umap_model_destroy(plenty, map);
#ifdef NAPIER_MODEL
    napier_model_destroy(plenty, model);
    napier_model_destroy(plenty, reward_model);
    napier_tokenizer_destroy(plenty, tokenizer);
    tiny_model_remove(&tiny);
    tiny_tensors_free(&tensors);
    tiny_tensors_free(&judge_tensors);
#endif
    napier_context_destroy(plenty);
}

/* ---- Whether that is every function --------------------------------------------------------------------------------- */

static void check_header(const char *header) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    static char declarations[1 << 18];
    char path[64];
    snprintf(path, sizeof path, "include/napier/%s.h", header);
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    declarations[fread(declarations, 1, sizeof declarations - 1, file)] = '\0';
    fclose(file);
    int declared = 0;
    for (const char *at = declarations; (at = strstr(at, "\nNAPIER_API ")) != NULL; declared++) {
        at += 12;
        const char *const end = strchr(at, '(');
        assert_non_null(end);
        const char *name = end;
        while (strchr(word, name[-1])) {
            name--;
        }
        expect(was_called(name, (size_t)(end - name)), "%s: %.*s is in no call of tests/support/calls.c", path,
               (int)(end - name), name);
    }
    expect(declared > 0, "%s: declares nothing", path);
}

void check_calls_cover_headers(void) {
    static const char *const headers[] = {
        "types",     "softmax", "sparsemax", "logcumsumexp", "attention", "linear",
        "layers",    "rl",      "sample",    "shards",       "umap",
#ifdef NAPIER_MODEL
        "tokenizer", "model",   "generate",
#endif
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        check_header(headers[i]);
    }
}
