/* hostile/allocations - memory runs out in every call of the public API: one line of the table for each function that the
 * headers declare (allocations.sh compares). Allocation number 0, 1, 2, ... of a call fails, alone and with all that follow,
 * until the call needs no more, on one thread and on two: each time it must return OUT_OF_MEMORY with a text, lose nothing
 * and write no result that napier/umap.h says is untouched; and succeed once memory is there, with the bits that it has
 * where memory is plenty.
 *
 *     hostile_allocations          runs the table
 *     hostile_allocations --list   prints its names */
#include <math.h>
#include <napier/napier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef NAPIER_MODEL
#include <napier/generate.h>
#include <napier/tokenizer.h>
#endif

#include "support/check.h"
#include "support/formats.h"
#include "support/memory.h"
#ifdef NAPIER_MODEL
#include "support/tiny_model.h"
#include "support/tiny_tokenizer.h"
#endif

/* ---- What the calls share ------------------------------------------------------------------------------------------ */

enum {
    ROWS = 40,    /* of logits, */
    COLS = 1500,  /* and their columns: more than one tile, so that rows are split */
    HIDDEN = 24,  /* of hidden states, */
    WORDS = 300,  /* and of the vocabulary that they become logits of */
    TOKENS = 60,  /* in BATCH responses */
    BATCH = 4,    /* each of TOKENS / BATCH */
    CRITERIA = 3, /* of the rubric */
    POINTS = 60,  /* of a map, */
    FEATURES = 5, /* each in so many dimensions, */
    NEAR = 8,     /* with so many neighbours */
    NEW = 4,      /* points to be placed */
    RESULT_BYTES = 1 << 20
};

static float numbers[ROWS * COLS]; /* the input of all calls that want floats */
static float positive[ROWS * COLS];
static int32_t ids[ROWS * COLS];
static int64_t offsets[BATCH + 1];
static uint8_t mask[TOKENS];
static napier_umap_edge edges[POINTS];
static int64_t edge_starts[POINTS], edge_counts[POINTS];
static uint32_t targets[POINTS * 2];
static int32_t near_ids[POINTS * NEAR];
static float near_distances[POINTS * NEAR];
static int32_t categories[POINTS];

/* Made where memory is plenty; calls read them. */
static napier_context *plenty;
static ledger counted; /* the allocator of the context that the calls are given */
static napier_umap_graph *graph;
static napier_umap_model *map;
static uint8_t map_bytes[1 << 15], state_bytes[1 << 15];
static size_t map_size, state_size;
static const char map_path[] = "hostile_allocations.tmp";
#ifdef NAPIER_MODEL
static tiny_model tiny = TINY_MODEL_INIT;
static napier_model *model;
static napier_tokenizer *tokenizer;
#endif

/* What a call writes, so that it can be compared. */
static _Alignas(64) unsigned char result[RESULT_BYTES];
static size_t result_size;

static void *room(int64_t count, size_t size) {
    const size_t start = result_size;
    result_size = (start + (size_t)count * size + 63) / 64 * 64;
    assert_true(result_size <= RESULT_BYTES);
    return result + start;
}

static napier_matrix new_rows(int64_t rows, int64_t cols) {
    return napier_rows_f32(room(rows * cols, sizeof(float)), rows, cols);
}
static napier_vector new_array(int64_t size) { return napier_array_f32(room(size, sizeof(float)), size); }

/* Columns lie one after another: rows have to be gathered, which takes memory. */
static napier_const_matrix logits(void) { return napier_const_transposed(napier_const_rows_f32(numbers, COLS, ROWS)); }
static napier_matrix new_logits(void) { return napier_transposed(new_rows(COLS, ROWS)); }
static napier_const_vector tokens(int64_t from) { return napier_const_array_f32(numbers + from, TOKENS); }
static napier_indices token_ids(int64_t count) { return napier_indices_i32(ids, count); }
static napier_indices responses(void) { return napier_indices_i64(offsets, BATCH + 1); }
static napier_umap_samples points(void) {
    return (napier_umap_samples){napier_const_rows_f32(positive, POINTS, FEATURES), NULL};
}
static napier_umap_samples new_points(void) {
    return (napier_umap_samples){napier_const_rows_f32(positive + POINTS * FEATURES, NEW, FEATURES), NULL};
}
static napier_const_matrix plane(void) { return napier_const_rows_f32(numbers, POINTS, 2); }

/* An embedding that a call changes in place. */
static napier_matrix plane_to_change(void) {
    const napier_matrix m = new_rows(POINTS, 2);
    memcpy(m.data, numbers, POINTS * 2 * sizeof(float));
    return m;
}

static napier_neighbors_options near_options(void) {
    napier_neighbors_options o = NAPIER_NEIGHBORS_OPTIONS_INIT;
    o.n_neighbors = NEAR;
    return o;
}

static napier_umap_options map_options(void) {
    napier_umap_options o = NAPIER_UMAP_OPTIONS_INIT;
    o.neighbors = near_options();
    o.n_epochs = 5;
    return o;
}

/* A result that is made, not written: NULL where the call failed. */
static void made(napier_status status, const void *out, const char *name) {
    expect((status == NAPIER_OK) == (out != NULL), "%s: status %d, *out %p", name, (int)status, out);
}

/* ---- types.h -------------------------------------------------------------------------------------------------------- */

static napier_status context_create(napier_context *c) {
    (void)c;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *out = NULL;
    options.threads = 2;
    options.allocator = ledger_allocator(&counted);
    const napier_status status = napier_context_create(&out, &options);
    made(status, out, "napier_context_create");
    napier_context_destroy(out);
    return status;
}

/* The calls that take no memory and have no status. */
static napier_status words(napier_context *c) {
    size_t sizes = strlen(napier_status_string(NAPIER_OUT_OF_MEMORY)) + strlen(napier_dtype_name(NAPIER_F32));
    sizes += strlen(napier_isa_name(napier_context_isa(c))) + strlen(napier_version()) + napier_dtype_size(NAPIER_F32);
    sizes += (size_t)napier_isa_available(NAPIER_ISA_SCALAR) + (size_t)napier_numerics_version();
    sizes += strlen(napier_last_error(c)) + (size_t)napier_context_threads(c) + (size_t)napier_matrix_engine(c);
    sizes += strlen(napier_metric_name(NAPIER_METRIC_COSINE)) + (size_t)napier_metric_from_name("cosine");
    sizes += (size_t)napier_metric_disconnection(NAPIER_METRIC_COSINE) + (size_t)napier_umap_disconnected(plane());
    return sizes > 0 ? NAPIER_OK : NAPIER_CORRUPT_DATA;
}

/* ---- softmax.h ------------------------------------------------------------------------------------------------------ */

static napier_status softmax(napier_context *c) { return napier_softmax(c, logits(), new_logits(), NULL); }
static napier_status log_softmax(napier_context *c) { return napier_log_softmax(c, logits(), new_logits(), NULL); }
static napier_status sparsemax(napier_context *c) { return napier_sparsemax(c, logits(), new_logits(), NULL); }
static napier_status sparsemax_backward(napier_context *c) {
    return napier_sparsemax_backward(c, logits(), logits(), new_logits(), NULL);
}
static napier_status logsumexp(napier_context *c) { return napier_logsumexp(c, logits(), new_array(ROWS), NULL); }
static napier_status logsumexp_all(napier_context *c) { return napier_logsumexp_all(c, logits(), new_array(1), NULL); }
/* Two long rows, each split over the threads. */
static napier_status logsumexp_weighted(napier_context *c) {
    const napier_const_matrix rows = {numbers, 2, ROWS * COLS / 4, ROWS * COLS / 2, 2, NAPIER_F32};
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    options.algorithm = NAPIER_ALGORITHM_PARALLEL;
    return napier_logsumexp_weighted(c, rows, rows, new_array(2), new_array(2), &options);
}
static napier_status softmax_backward(napier_context *c) {
    return napier_softmax_backward(c, logits(), logits(), new_logits(), NULL);
}
static napier_status log_softmax_backward(napier_context *c) {
    return napier_log_softmax_backward(c, logits(), logits(), new_logits(), NULL);
}
static napier_status logsumexp_backward(napier_context *c) {
    return napier_logsumexp_backward(c, logits(), napier_const_array_f32(numbers, ROWS), new_logits(), NULL);
}
static napier_status logsumexp_all_backward(napier_context *c) {
    return napier_logsumexp_all_backward(c, logits(), napier_const_array_f32(numbers, 1), new_logits(), NULL);
}

/* Layouts, dtypes and algorithms that need other memory than the calls above. */
typedef enum softmax_call {
    SOFTMAX,
    LOG_SOFTMAX,
    LOGSUMEXP,
    LOGSUMEXP_ALL,
    SOFTMAX_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    LOGSUMEXP_BACKWARD,
    LOGSUMEXP_ALL_BACKWARD,
    WEIGHTED
} softmax_call;

typedef struct softmax_case {
    const char *name;
    softmax_call call;
    layout in_layout, out_layout;
    int64_t rows, cols;
    napier_dtype in, out;
    napier_algorithm algorithm;
} softmax_case;

static const softmax_case *softmax_now; /* what softmax_in_layouts runs */

static napier_status run_softmax_case(napier_context *c, const softmax_case *s, napier_const_matrix in,
                                      napier_matrix out) {
    const napier_softmax_options options = options_of(0.8, s->algorithm, NAPIER_MASKED_NAN);
    const napier_const_vector grad = napier_const_array_f32(numbers, s->call == LOGSUMEXP_BACKWARD ? s->rows : 1);
    const napier_vector lse = {out.data, out.rows, out.row_stride, out.dtype}, no_signs = {0};
    switch (s->call) {
    case SOFTMAX_BACKWARD: return napier_softmax_backward(c, in, in, out, &options);
    case LOG_SOFTMAX_BACKWARD: return napier_log_softmax_backward(c, in, in, out, &options);
    case LOGSUMEXP_BACKWARD: return napier_logsumexp_backward(c, in, grad, out, &options);
    case LOGSUMEXP_ALL_BACKWARD: return napier_logsumexp_all_backward(c, in, grad, out, &options);
    case WEIGHTED: return napier_logsumexp_weighted(c, in, in, lse, no_signs, &options);
    default: return operation_run(c, (operation)s->call, in, out, &options);
    }
}

static napier_status softmax_in_layouts(napier_context *c) {
    const softmax_case *const s = softmax_now;
    const bool reduces = s->call == LOGSUMEXP || s->call == LOGSUMEXP_ALL || s->call == WEIGHTED;
    const int64_t mark = scratch_mark(), cols = reduces ? 1 : s->cols;
    grid in = grid_make(s->in_layout, s->rows, s->cols, s->in);
    grid out = grid_make(s->out_layout, s->call == LOGSUMEXP_ALL ? 1 : s->rows, cols, s->out);
    grid_fill(&in, ROW_NORMAL, 1);
    const uint64_t before = grid_bits(&out, 0, 0);
    const napier_status status = run_softmax_case(c, s, grid_input(&in), out.view);
    expect(grid_damage(&out) == 0, "%s wrote beside its result", s->name);
    expect(!status || grid_bits(&out, 0, 0) == before, "%s failed, but wrote a result", s->name);
    if (!status) {
        void *const copy = room(out.view.rows * cols, napier_dtype_size(s->out));
        for (int64_t i = 0; i < out.view.rows * cols; i++) {
            element_set_bits(copy, s->out, i, grid_bits(&out, i / cols, i % cols));
        }
    }
    scratch_release(mark);
    return status;
}

static napier_status state_create(napier_context *c) {
    napier_softmax_state *s = NULL;
    const napier_status status = napier_softmax_state_create(c, NAPIER_F32, 7, NULL, &s);
    made(status, s, "napier_softmax_state_create");
    napier_softmax_state_destroy(s);
    return status;
}

static napier_status state_load(napier_context *c) {
    napier_softmax_state *s = NULL;
    const napier_status status = napier_softmax_state_load(c, state_bytes, state_size, &s);
    made(status, s, "napier_softmax_state_load");
    napier_softmax_state_destroy(s);
    return status;
}

/* All that is done with states: one for each part of a row, saved, loaded, merged, applied. */
static napier_status state_use_of(napier_context *c, napier_dtype compute) {
    napier_softmax_state *s = NULL, *next = NULL, *loaded = NULL;
    static unsigned char bytes[1 << 15];
    double *const lse = room(1, sizeof *lse);
    napier_status status = napier_softmax_state_create(c, compute, 0, NULL, &s);
    if (!status)
        status = napier_softmax_state_update(c, s, napier_const_array_f32(numbers, 3000));
    if (!status)
        status = napier_softmax_state_create(
            c, compute, napier_softmax_state_first_index(s) + napier_softmax_state_count(s), NULL, &next);
    if (!status)
        status = napier_softmax_state_update(c, next, napier_const_array_f32(numbers + 3000, 2000));
    if (!status)
        status = napier_softmax_state_save(c, next, bytes, sizeof bytes);
    if (!status) {
        status = napier_softmax_state_load(c, bytes, napier_softmax_state_size(next), &loaded);
        made(status, loaded, "napier_softmax_state_load");
    }
    if (!status)
        status = napier_softmax_state_merge(c, s, loaded);
    if (!status)
        status = napier_softmax_state_finish(c, s, lse);
    if (!status)
        status = napier_softmax_state_apply(c, s, NAPIER_KIND_SOFTMAX, napier_const_array_f32(numbers, 5000),
                                            new_array(5000));
    if (!status)
        status = napier_softmax_state_save(c, s, room(1 << 15, 1), napier_softmax_state_size(s));
    napier_softmax_state_destroy(s);
    napier_softmax_state_destroy(next);
    napier_softmax_state_destroy(loaded);
    return status;
}
static napier_status state_use(napier_context *c) { return state_use_of(c, NAPIER_F32); }
static napier_status state_use_f64(napier_context *c) { return state_use_of(c, NAPIER_F64); }

/* ---- linear.h, attention.h ------------------------------------------------------------------------------------------ */

static napier_status matmul(napier_context *c) {
    return napier_matmul(c, napier_const_rows_f32(numbers, 50, 200), napier_const_rows_f32(numbers, 200, 90),
                         new_rows(50, 90));
}

static napier_status matrix_engine(napier_context *c) {
    return napier_matrix_engine(c) >= 0 ? NAPIER_OK : NAPIER_CORRUPT_DATA;
}

static napier_const_heads heads(int64_t n, int64_t count) {
    return (napier_const_heads){numbers, n, count, 16, count * 16, 16, 1, NAPIER_F32};
}
static napier_heads new_heads(int64_t n, int64_t count) {
    return (napier_heads){room(n * count * 16, sizeof(float)), n, count, 16, count * 16, 16, 1, NAPIER_F32};
}

static napier_status attention(napier_context *c) {
    return napier_attention(c, heads(40, 4), heads(50, 2), heads(50, 2), new_heads(40, 4), new_rows(40, 4), NULL);
}
static napier_status attention_of_sequences(napier_context *c) {
    static const int64_t queries[3] = {0, 20, 40}, keys[3] = {0, 30, 50}, begin[2] = {0, 1}, end[2] = {20, 40};
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.sequences = 2;
    o.query_offsets = queries;
    o.key_offsets = keys;
    o.prefix_begin = begin;
    o.prefix_end = end;
    return napier_attention(c, heads(40, 4), heads(50, 2), heads(50, 2), new_heads(40, 4), new_rows(40, 4), &o);
}
static napier_status attention_backward(napier_context *c) {
    return napier_attention_backward(c, heads(40, 4), heads(40, 4), heads(50, 2), heads(50, 2), heads(40, 4),
                                     napier_const_rows_f32(numbers, 40, 4), new_heads(40, 4), new_heads(50, 2),
                                     new_heads(50, 2), NULL);
}

/* ---- rl.h ----------------------------------------------------------------------------------------------------------- */

static napier_status fused_log_softmax(napier_context *c) {
    return napier_fused_log_softmax(c, logits(), new_logits(), NULL);
}
static napier_status gather_logprobs(napier_context *c) {
    return napier_gather_logprobs(c, logits(), token_ids(ROWS), new_array(ROWS));
}
static napier_status gather_logprobs_backward(napier_context *c) {
    return napier_gather_logprobs_backward(c, napier_const_array_f32(numbers, ROWS), token_ids(ROWS), new_logits());
}

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
    g.lse = g.entropy = g.loss = napier_const_array_f32(numbers, n);
    return g;
}

static napier_status token_logprobs(napier_context *c) {
    const napier_token_results r = new_token_results(ROWS);
    return napier_token_logprobs(c, logits(), token_ids(ROWS), NULL, &r);
}
static napier_status sample(napier_context *c) {
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    static int64_t drawn[ROWS];
    o.top_p = 0.9;
    r.ids = drawn;
    return napier_sample(c, logits(), &o, &r);
}
static napier_status token_logprobs_backward(napier_context *c) {
    const napier_token_gradients g = token_gradients(ROWS);
    return napier_token_logprobs_backward(c, logits(), token_ids(ROWS), NULL, &g, new_logits());
}

/* Short rows, rows of a few tiles, and one that is split: forward and backward. */
static napier_status token_shapes(napier_context *c) {
    static const int32_t first[ROWS];
    static const int64_t shapes[][2] = {{40, 30}, {9, 3000}, {1, 50000}};
    napier_status status = NAPIER_OK;
    for (int i = 0; i < 3 && !status; i++) {
        const int64_t rows = shapes[i][0], cols = shapes[i][1];
        const napier_const_matrix x = napier_const_rows_f32(numbers, rows, cols);
        const napier_token_results r = new_token_results(rows);
        const napier_token_gradients g = token_gradients(rows);
        status = napier_token_logprobs(c, x, napier_indices_i32(first, rows), NULL, &r);
        if (!status)
            status =
                napier_token_logprobs_backward(c, x, napier_indices_i32(first, rows), NULL, &g, new_rows(rows, cols));
    }
    return status;
}

static napier_const_matrix hidden(void) { return napier_const_rows_f32(numbers, TOKENS, HIDDEN); }
static napier_const_matrix weights(void) { return napier_const_rows_f32(numbers, WORDS, HIDDEN); }

static napier_status linear_workspace(napier_context *c) {
    return napier_linear_token_logprobs_workspace(c, TOKENS, HIDDEN, WORDS, 1) > 0 ? NAPIER_OK : NAPIER_CORRUPT_DATA;
}
static napier_status linear_token_logprobs(napier_context *c) {
    const napier_token_results r = new_token_results(TOKENS);
    return napier_linear_token_logprobs(c, hidden(), weights(), token_ids(TOKENS), NULL, &r);
}
static napier_status linear_token_logprobs_backward(napier_context *c) {
    const napier_token_gradients g = token_gradients(TOKENS);
    return napier_linear_token_logprobs_backward(c, hidden(), weights(), token_ids(TOKENS), NULL, &g,
                                                 new_rows(TOKENS, HIDDEN), new_rows(WORDS, HIDDEN));
}

static napier_status kl_per_response(napier_context *c) {
    return napier_kl_per_response(c, tokens(0), tokens(100), responses(), mask, NULL, new_array(BATCH));
}
static napier_status kl_per_response_backward(napier_context *c) {
    return napier_kl_per_response_backward(c, tokens(0), tokens(100), responses(), mask, NULL,
                                           napier_const_array_f32(numbers, BATCH), new_array(TOKENS),
                                           new_array(TOKENS));
}
static napier_status kl_full(napier_context *c) { return napier_kl_full(c, logits(), logits(), NULL, new_array(ROWS)); }
static napier_status kl_full_backward(napier_context *c) {
    return napier_kl_full_backward(c, logits(), logits(), NULL, napier_const_array_f32(numbers, ROWS), new_logits(),
                                   new_logits());
}

static napier_const_matrix rubric(void) { return napier_const_rows_f32(numbers, CRITERIA, WORDS); }

static napier_status rubric_score(napier_context *c) {
    return napier_rubric_score(c, tokens(0), token_ids(TOKENS), responses(), rubric(),
                               napier_const_array_f32(numbers, CRITERIA), new_rows(BATCH, CRITERIA), new_array(BATCH));
}
static napier_status rubric_score_backward(napier_context *c) {
    return napier_rubric_score_backward(
        c, token_ids(TOKENS), responses(), rubric(), napier_const_array_f32(numbers, CRITERIA),
        napier_const_rows_f32(numbers, BATCH, CRITERIA), napier_const_array_f32(numbers, BATCH), new_array(TOKENS));
}

static napier_grpo_batch batch(bool with_logprobs) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    if (with_logprobs) {
        b.logprobs = tokens(0);
        b.entropies = tokens(400);
    }
    b.old_logprobs = tokens(100);
    b.ref_logprobs = tokens(200);
    b.sampler_logprobs = tokens(300);
    b.advantages = napier_const_array_f32(numbers, BATCH);
    b.mask = mask;
    b.offsets = responses();
    return b;
}

/* The options that want the most memory. */
static napier_grpo_options grpo_options(void) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.level = NAPIER_GRPO_SEQUENCE;
    o.beta = 0.1;
    o.correction = NAPIER_GRPO_SEQUENCE_TRUNCATE;
    o.top_entropy_quantile = 0.5;
    o.entropy_coefficient = 0.1;
    return o;
}

static napier_status grpo_token_loss(napier_context *c) {
    const napier_grpo_batch b = batch(true);
    const napier_grpo_options o = grpo_options();
    return napier_grpo_token_loss(c, &b, &o, new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_loss(napier_context *c) {
    const napier_grpo_batch b = batch(true);
    const napier_grpo_options o = grpo_options();
    napier_grpo_metrics *const m = room(1, sizeof *m);
    memset(m, 0, sizeof *m);
    m->struct_size = sizeof *m;
    return napier_grpo_loss(c, &b, &o, m, new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_from_logits_by(napier_context *c, napier_grpo_options o) {
    const napier_grpo_batch b = batch(false);
    napier_grpo_metrics *const m = room(1, sizeof *m);
    memset(m, 0, sizeof *m);
    m->struct_size = sizeof *m;
    return napier_grpo_from_logits(c, napier_const_rows_f32(numbers, TOKENS, WORDS), token_ids(TOKENS), &b, &o, NULL, m,
                                   new_rows(TOKENS, WORDS), new_array(TOKENS), new_array(TOKENS));
}
static napier_status grpo_from_logits(napier_context *c) { return grpo_from_logits_by(c, grpo_options()); }
/* One read of the logits, and two. */
static napier_status grpo_from_logits_once(napier_context *c) {
    return grpo_from_logits_by(c, (napier_grpo_options)NAPIER_GRPO_OPTIONS_INIT);
}
static napier_status grpo_from_logits_twice(napier_context *c) {
    napier_grpo_options o = NAPIER_GRPO_OPTIONS_INIT;
    o.type = NAPIER_GRPO_GSPO;
    return grpo_from_logits_by(c, o);
}

/* ---- umap.h --------------------------------------------------------------------------------------------------------- */

static napier_status find_ab_params(napier_context *c) {
    float *const ab = room(2, sizeof *ab);
    return napier_umap_find_ab_params(c, 0.1, 1.0, &ab[0], &ab[1]);
}
static napier_status sort_edges(napier_context *c) {
    napier_umap_edge *const sorted = room(POINTS, sizeof *sorted);
    memcpy(sorted, edges, sizeof edges);
    return napier_umap_sort_edges(c, sorted, POINTS);
}
static napier_status segments(napier_context *c) {
    return napier_umap_segments(c, edges, POINTS, POINTS, room(POINTS, sizeof(int64_t)), room(POINTS, sizeof(int64_t)));
}
static napier_status graph_from_edges(napier_context *c) {
    napier_umap_graph *g = NULL;
    const napier_status status = napier_umap_graph_from_edges(c, edges, POINTS, POINTS, &g);
    made(status, g, "napier_umap_graph_from_edges");
    napier_umap_graph_destroy(c, g);
    return status;
}
static napier_status edge_gradients(napier_context *c) {
    return napier_umap_edge_gradients(c, NULL, plane(), edges, POINTS, new_rows(POINTS, 2), new_rows(POINTS, 2));
}
static napier_status reduce_segments(napier_context *c) {
    return napier_umap_reduce_segments(c, plane(), edge_starts, edge_counts, new_rows(POINTS, 2));
}
static napier_status gradients(napier_context *c) {
    return napier_umap_gradients(c, NULL, plane(), edges, POINTS, 1, new_rows(POINTS, 2));
}
static napier_status apply(napier_context *c) { return napier_umap_apply(c, 0.1f, plane(), plane_to_change()); }
static napier_status negative_targets(napier_context *c) {
    return napier_umap_negative_targets(c, 1, 3, POINTS, 5, room(POINTS * 5, sizeof(uint32_t)));
}
static napier_status negative_gradients(napier_context *c) {
    return napier_umap_negative_gradients(c, NULL, plane(), targets, 2, new_rows(POINTS, 2));
}
static napier_status loss(napier_context *c) {
    return napier_umap_loss(c, NULL, plane(), edges, POINTS, targets, 2, room(1, sizeof(double)));
}
static napier_status optimizer_create(napier_context *c) {
    napier_umap_optimizer *o = NULL;
    const napier_status status = napier_umap_optimizer_create(c, NULL, POINTS, 2, &o);
    made(status, o, "napier_umap_optimizer_create");
    napier_umap_optimizer_destroy(c, o);
    return status;
}
static napier_status optimizer_bytes(napier_context *c) {
    napier_umap_optimizer *o = NULL, *again = NULL;
    static uint8_t bytes[1 << 12];
    size_t size = 0;
    napier_status status = napier_umap_optimizer_create(c, NULL, POINTS, 2, &o);
    if (!status)
        status = napier_umap_optimizer_to_bytes(c, o, bytes, sizeof bytes, &size);
    if (!status) {
        status = napier_umap_optimizer_from_bytes(c, bytes, size, &again);
        made(status, again, "napier_umap_optimizer_from_bytes");
    }
    napier_umap_optimizer_destroy(c, o);
    napier_umap_optimizer_destroy(c, again);
    return status;
}
static napier_status optimize_epochs(napier_context *c) {
    napier_umap_optimizer *o = NULL;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = 3;
    napier_status status = napier_umap_optimizer_create(c, NULL, POINTS, 2, &o);
    if (!status)
        status = napier_umap_optimize_epochs(c, NULL, &epochs, edges, POINTS, NULL, o, plane_to_change());
    napier_umap_optimizer_destroy(c, o);
    return status;
}
static napier_status nearest_neighbors(napier_context *c) {
    const napier_neighbors_options o = near_options();
    return napier_nearest_neighbors(c, points(), &o, room(POINTS * NEAR, sizeof(int32_t)),
                                    room(POINTS * NEAR, sizeof(float)));
}
static napier_status nearest_neighbors_of(napier_context *c) {
    const napier_neighbors_options o = near_options();
    return napier_nearest_neighbors_of(c, points(), new_points(), &o, room(NEW * NEAR, sizeof(int32_t)),
                                       room(NEW * NEAR, sizeof(float)));
}
static napier_status smooth_knn_dist(napier_context *c) {
    return napier_umap_smooth_knn_dist(c, near_distances, POINTS, NEAR, 1.0, room(POINTS, sizeof(float)),
                                       room(POINTS, sizeof(float)));
}
static napier_status fuzzy_simplicial_set(napier_context *c) {
    napier_umap_graph *g = NULL;
    const napier_status status =
        napier_umap_fuzzy_simplicial_set(c, near_ids, near_distances, POINTS, NEAR, 1.0, 1.0, &g);
    made(status, g, "napier_umap_fuzzy_simplicial_set");
    napier_umap_graph_destroy(c, g);
    return status;
}

/* Joins a graph of the context's own memory with what is known: on an error it must be the graph that it was. */
static napier_status join(napier_context *c, bool known_categories) {
    napier_umap_graph *g = NULL;
    napier_status status = napier_umap_fuzzy_simplicial_set(c, near_ids, near_distances, POINTS, NEAR, 1.0, 1.0, &g);
    if (status) {
        return status;
    }
    const napier_umap_graph before = *g;
    status = known_categories ? napier_umap_join_categories(c, &g, categories, 0.5)
                              : napier_umap_join_numbers(c, &g, positive, NEAR, 0.5);
    expect(!status || (g && memcmp(&before, g, sizeof before) == 0), "a failed join changed the graph");
    if (!status) {
        memcpy(room(g->starts[g->n], sizeof(float)), g->weights, (size_t)g->starts[g->n] * sizeof(float));
    }
    napier_umap_graph_destroy(c, g);
    return status;
}
static napier_status join_categories(napier_context *c) { return join(c, true); }
static napier_status join_numbers(napier_context *c) { return join(c, false); }

static napier_status spectral_layout(napier_context *c) {
    return napier_umap_spectral_layout(c, graph, points(), 1, new_rows(POINTS, 2));
}
static napier_status pca_layout(napier_context *c) {
    return napier_umap_pca_layout(c, points(), 1, new_rows(POINTS, 2));
}
static napier_status random_layout(napier_context *c) { return napier_umap_random_layout(c, 1, new_rows(POINTS, 2)); }
static napier_status optimize_layout(napier_context *c) {
    const napier_umap_options o = map_options();
    return napier_umap_optimize_layout(c, graph, &o, plane_to_change());
}
static napier_status fit(napier_context *c) {
    const napier_umap_options o = map_options();
    napier_umap_model *m = NULL;
    const napier_status status = napier_umap_fit(c, points(), &o, &m);
    made(status, m, "napier_umap_fit");
    if (!status) {
        memcpy(room(POINTS * 2, sizeof(float)), napier_umap_model_embedding(m).data, POINTS * 2 * sizeof(float));
    }
    napier_umap_model_destroy(c, m);
    return status;
}
static napier_status map_reads(napier_context *c) {
    (void)c;
    return napier_umap_model_features(map) == FEATURES && napier_umap_model_embedding(map).rows == POINTS
               ? NAPIER_OK
               : NAPIER_CORRUPT_DATA;
}
static napier_status transform(napier_context *c) {
    return napier_umap_transform(c, map, new_points(), new_rows(NEW, 2));
}
static napier_status inverse_transform(napier_context *c) {
    return napier_umap_inverse_transform(c, map, napier_const_rows_f32(numbers, NEW, 2), new_rows(NEW, FEATURES));
}

/* A save that fails leaves the file as it is. */
static napier_status map_save(napier_context *c) {
    const napier_status status = napier_umap_model_save(c, map, map_path);
    napier_umap_model *m = NULL;
    expect(napier_umap_model_load(plenty, map_path, &m) == NAPIER_OK, "after a save: %s", napier_last_error(plenty));
    napier_umap_model_destroy(plenty, m);
    return status;
}
static napier_status map_load(napier_context *c) {
    napier_umap_model *m = NULL;
    const napier_status status = napier_umap_model_load(c, map_path, &m);
    made(status, m, "napier_umap_model_load");
    napier_umap_model_destroy(c, m);
    return status;
}
static napier_status map_to_bytes(napier_context *c) {
    size_t *const size = room(1, sizeof *size);
    return napier_umap_model_to_bytes(c, map, room(1 << 15, 1), 1 << 15, size);
}
static napier_status map_from_bytes(napier_context *c) {
    napier_umap_model *m = NULL;
    const napier_status status = napier_umap_model_from_bytes(c, map_bytes, map_size, &m);
    made(status, m, "napier_umap_model_from_bytes");
    napier_umap_model_destroy(c, m);
    return status;
}
static napier_status quality_of(napier_context *c) {
    const napier_neighbors_options o = near_options();
    return napier_umap_quality_of(c, points(), &o, plane(), categories, 0, room(1, sizeof(napier_umap_quality)));
}

/* ---- tokenizer.h, model.h ------------------------------------------------------------------------------------------- */

#ifdef NAPIER_MODEL

static const char text[] = "hello caf\xc3\xa9! cafe\xcc\x81! <|im_start|>world 123";

static napier_status tokenizer_from_json(napier_context *c) {
    napier_tokenizer *t = NULL;
    const napier_status status = napier_tokenizer_from_json(c, (const char *)tiny_tokenizer_json, TINY_SIZE, &t);
    made(status, t, "napier_tokenizer_from_json");
    napier_tokenizer_destroy(c, t);
    return status;
}
static napier_status tokenizer_load(napier_context *c) {
    napier_tokenizer *t = NULL;
    const napier_status status = napier_tokenizer_load(c, "tests/support/tiny_tokenizer.json", &t);
    made(status, t, "napier_tokenizer_load");
    napier_tokenizer_destroy(c, t);
    return status;
}
static napier_status encode_and_decode(napier_context *c) {
    napier_token_buffer encoded = {NULL, 0, 0};
    napier_text_buffer decoded = {NULL, 0, 0};
    napier_status status = napier_tokenizer_encode(c, tokenizer, text, sizeof text - 1, NULL, &encoded);
    expect(!status || encoded.size == 0, "a failed encode left %lld ids", (long long)encoded.size);
    if (!status)
        status = napier_tokenizer_decode(c, tokenizer, encoded.ids, encoded.size, NULL, &decoded);
    expect(!status || decoded.size == 0, "a failed decode left %zu bytes", decoded.size);
    if (!status)
        memcpy(room((int64_t)decoded.size, 1), decoded.bytes, decoded.size);
    napier_token_buffer_free(c, &encoded);
    napier_text_buffer_free(c, &decoded);
    return status;
}
static napier_status tokenizer_reads(napier_context *c) {
    (void)c;
    size_t size = 0;
    const char *const bytes = napier_tokenizer_token(tokenizer, 280, &size);
    return bytes && napier_tokenizer_id(tokenizer, bytes, size) == 280 && napier_tokenizer_is_special(tokenizer, 280) &&
                   napier_tokenizer_vocab_size(tokenizer) > 280
               ? NAPIER_OK
               : NAPIER_CORRUPT_DATA;
}
static napier_status chat_text(napier_context *c) {
    const napier_chat_message messages[] = {{.role = "system", .content = "a", .size = 1},
                                            {.role = "user", .content = "b", .size = 1}};
    napier_text_buffer rendered = {NULL, 0, 0};
    const napier_status status = napier_chat_text(c, messages, 2, NULL, &rendered);
    napier_text_buffer_free(c, &rendered);
    return status;
}

static napier_status model_load(napier_context *c) {
    napier_model *m = NULL;
    const napier_status status = napier_model_load(c, tiny.directory, NULL, &m);
    made(status, m, "napier_model_load");
    napier_model_destroy(c, m);
    return status;
}
static napier_status model_reads(napier_context *c) {
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    const napier_status status = napier_model_get_info(c, model, &info);
    return status || napier_model_head(model).rows == info.vocabulary ? status : NAPIER_CORRUPT_DATA;
}
static napier_status model_forward(napier_context *c) {
    return napier_model_forward(c, model, token_ids(20), napier_indices_i64(NULL, 0), napier_rows_f32(NULL, 0, 0),
                                new_rows(20, tiny.vocabulary), NULL, NULL);
}

/* Two prompts of 5, four responses of 15. */
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
static napier_status batch_logprobs(napier_context *c) {
    const napier_score_batch b = score_batch();
    const napier_score_results r = new_score_results(TOKENS);
    return napier_model_batch_logprobs(c, model, &b, NULL, &r);
}
static napier_status kv_logprobs(napier_context *c) {
    const napier_score_batch b = score_batch();
    const napier_score_results r = new_score_results(TOKENS);
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_kv *kv = NULL;
    napier_status status = napier_kv_create(c, model, token_ids(4), NULL, NULL, &kv);
    made(status, kv, "napier_kv_create");
    options.kvs = (const napier_kv *const *)&kv;
    options.kv_count = 1;
    status = status ? status : napier_model_batch_logprobs(c, model, &b, &options, &r);
    expect(status || napier_kv_bytes(kv) > napier_kv_tokens(kv), "the kv has no bytes");
    napier_kv_destroy(c, kv);
    return status;
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
    s.repetition_penalty = 1.2;
    o.max_tokens = MOST;
    o.sampling = &s;
    r.ids = room(2 * SAMPLES * MOST, sizeof *r.ids);
    r.lengths = room(2 * SAMPLES, sizeof *r.lengths);
    r.logprobs = new_rows(2 * SAMPLES, MOST);
    return napier_generate(c, model, &b, &o, &r);
}
static napier_status logprobs_for(napier_context *c) {
    const napier_score_results r = new_score_results(7);
    return napier_model_logprobs_for(c, model, token_ids(5), token_ids(7), NULL, &r);
}
static napier_status batch_plan(napier_context *c) {
    const napier_score_batch b = score_batch();
    napier_score_plan *const plan = room(1, sizeof *plan);
    memset(plan, 0, sizeof *plan);
    plan->struct_size = sizeof *plan;
    return napier_model_batch_plan(c, model, &b, NULL, plan);
}
static napier_status judge(napier_context *c) {
    static const int64_t verdict_offsets[] = {0, 1, 3};
    static const double values[] = {1, 0};
    napier_judge_batch b = NAPIER_JUDGE_BATCH_INIT;
    b.prompt_ids = token_ids(10);
    b.prompt_offsets = napier_indices_i64(prompt_offsets, 3);
    b.criteria = 1;
    b.verdict_ids = token_ids(3);
    b.verdict_offsets = napier_indices_i64(verdict_offsets, 3);
    b.values = values;
    return napier_model_judge(c, model, &b, NULL, new_rows(2, 1), new_array(2), new_rows(2, 2));
}
static napier_status encode_texts(napier_context *c) {
    const napier_text texts[] = {{text, sizeof text - 1}, {"", 0}, {"abc", 3}};
    napier_token_buffer encoded = {NULL, 0, 0};
    int64_t at[4];
    const napier_status status = napier_model_encode_texts(c, tokenizer, texts, 3, NULL, &encoded, at);
    napier_token_buffer_free(c, &encoded);
    return status;
}

#endif

/* ---- The table ------------------------------------------------------------------------------------------------------ */

enum {
    TAKES = 1,     /* takes memory: at least one failure must have been met */
    UNTOUCHED = 2, /* results are as they were where it failed */
    FALLS_BACK = 4 /* may do without some of its memory: PCRE2 without machine code interprets the expression */
};

typedef struct line {
    const char *name; /* the functions that the call exercises, between spaces */
    napier_status (*call)(napier_context *context);
    unsigned flags;
} line;

static const line table[] = {
    {"napier_context_create napier_context_destroy", context_create, TAKES},
    {"napier_status_string napier_dtype_size napier_dtype_name napier_isa_name napier_isa_available napier_last_error "
     "napier_context_isa napier_context_threads napier_version napier_numerics_version napier_metric_name "
     "napier_metric_from_name napier_metric_disconnection napier_umap_disconnected napier_matrix_engine",
     words, 0},
    {"napier_softmax", softmax, TAKES},
    {"napier_log_softmax", log_softmax, TAKES},
    {"napier_logsumexp", logsumexp, TAKES},
    {"napier_logsumexp_all", logsumexp_all, TAKES},
    {"napier_logsumexp_weighted", logsumexp_weighted, TAKES},
    {"napier_sparsemax", sparsemax, 0},
    {"napier_sparsemax_backward", sparsemax_backward, 0},
    {"napier_softmax_backward", softmax_backward, TAKES},
    {"napier_log_softmax_backward", log_softmax_backward, TAKES},
    {"napier_logsumexp_backward", logsumexp_backward, TAKES},
    {"napier_logsumexp_all_backward", logsumexp_all_backward, TAKES},
    {"napier_softmax_state_create napier_softmax_state_destroy", state_create, TAKES},
    {"napier_softmax_state_load", state_load, TAKES},
    {"napier_softmax_state_update napier_softmax_state_merge napier_softmax_state_finish napier_softmax_state_apply "
     "napier_softmax_state_first_index napier_softmax_state_count napier_softmax_state_size napier_softmax_state_save",
     state_use, TAKES},
    {"napier_softmax_state_create", state_use_f64, TAKES},
    {"napier_matmul", matmul, TAKES},
    {"napier_matrix_engine", matrix_engine, 0},
    {"napier_attention", attention, TAKES},
    {"napier_attention", attention_of_sequences, TAKES},
    {"napier_attention_backward", attention_backward, TAKES},
    {"napier_fused_log_softmax", fused_log_softmax, TAKES},
    {"napier_gather_logprobs", gather_logprobs, 0},
    {"napier_gather_logprobs_backward", gather_logprobs_backward, 0},
    {"napier_token_logprobs", token_logprobs, TAKES},
    {"napier_sample", sample, TAKES},
    {"napier_token_logprobs_backward", token_logprobs_backward, TAKES},
    {"napier_token_logprobs napier_token_logprobs_backward", token_shapes, TAKES},
    {"napier_linear_token_logprobs_workspace", linear_workspace, 0},
    {"napier_linear_token_logprobs", linear_token_logprobs, TAKES},
    {"napier_linear_token_logprobs_backward", linear_token_logprobs_backward, TAKES},
    {"napier_kl_per_response", kl_per_response, TAKES},
    {"napier_kl_per_response_backward", kl_per_response_backward, 0},
    {"napier_kl_full", kl_full, TAKES},
    {"napier_kl_full_backward", kl_full_backward, TAKES},
    {"napier_rubric_score", rubric_score, TAKES},
    {"napier_rubric_score_backward", rubric_score_backward, TAKES},
    {"napier_grpo_token_loss", grpo_token_loss, TAKES},
    {"napier_grpo_loss", grpo_loss, TAKES},
    {"napier_grpo_from_logits", grpo_from_logits, TAKES},
    {"napier_grpo_from_logits", grpo_from_logits_once, TAKES},
    {"napier_grpo_from_logits", grpo_from_logits_twice, TAKES},
    {"napier_umap_find_ab_params", find_ab_params, UNTOUCHED},
    {"napier_umap_sort_edges", sort_edges, 0},
    {"napier_umap_segments", segments, UNTOUCHED},
    {"napier_umap_graph_from_edges napier_umap_graph_destroy", graph_from_edges, TAKES},
    {"napier_umap_edge_gradients", edge_gradients, UNTOUCHED},
    {"napier_umap_reduce_segments", reduce_segments, UNTOUCHED},
    {"napier_umap_gradients", gradients, TAKES | UNTOUCHED},
    {"napier_umap_apply", apply, 0},
    {"napier_umap_negative_targets", negative_targets, UNTOUCHED},
    {"napier_umap_negative_gradients", negative_gradients, UNTOUCHED},
    {"napier_umap_loss", loss, TAKES | UNTOUCHED},
    {"napier_umap_optimizer_create napier_umap_optimizer_destroy", optimizer_create, TAKES},
    {"napier_umap_optimizer_to_bytes napier_umap_optimizer_from_bytes", optimizer_bytes, TAKES},
    {"napier_umap_optimize_epochs", optimize_epochs, TAKES},
    {"napier_nearest_neighbors", nearest_neighbors, TAKES | UNTOUCHED},
    {"napier_nearest_neighbors_of", nearest_neighbors_of, TAKES | UNTOUCHED},
    {"napier_umap_smooth_knn_dist", smooth_knn_dist, TAKES | UNTOUCHED},
    {"napier_umap_fuzzy_simplicial_set", fuzzy_simplicial_set, TAKES},
    {"napier_umap_join_categories", join_categories, TAKES},
    {"napier_umap_join_numbers", join_numbers, TAKES},
    {"napier_umap_spectral_layout", spectral_layout, TAKES | UNTOUCHED},
    {"napier_umap_pca_layout", pca_layout, TAKES | UNTOUCHED},
    {"napier_umap_random_layout", random_layout, UNTOUCHED},
    {"napier_umap_optimize_layout", optimize_layout, TAKES},
    {"napier_umap_fit napier_umap_model_destroy", fit, TAKES},
    {"napier_umap_model_embedding napier_umap_model_features", map_reads, 0},
    {"napier_umap_transform", transform, TAKES | UNTOUCHED},
    {"napier_umap_inverse_transform", inverse_transform, TAKES | UNTOUCHED},
    {"napier_umap_model_save", map_save, TAKES},
    {"napier_umap_model_load", map_load, TAKES},
    {"napier_umap_model_to_bytes", map_to_bytes, 0},
    {"napier_umap_model_from_bytes", map_from_bytes, TAKES},
    {"napier_umap_quality_of", quality_of, TAKES | UNTOUCHED},
#ifdef NAPIER_MODEL
    {"napier_tokenizer_from_json napier_tokenizer_destroy", tokenizer_from_json, TAKES | FALLS_BACK},
    {"napier_tokenizer_load", tokenizer_load, TAKES | FALLS_BACK},
    {"napier_tokenizer_encode napier_tokenizer_decode napier_token_buffer_free napier_text_buffer_free",
     encode_and_decode, TAKES | FALLS_BACK},
    {"napier_tokenizer_vocab_size napier_tokenizer_token napier_tokenizer_is_special napier_tokenizer_id",
     tokenizer_reads, 0},
    {"napier_chat_text", chat_text, TAKES},
    {"napier_model_load napier_model_destroy", model_load, TAKES},
    {"napier_model_get_info napier_model_head", model_reads, 0},
    {"napier_model_forward", model_forward, TAKES},
    {"napier_model_batch_logprobs", batch_logprobs, TAKES},
    {"napier_kv_create napier_kv_destroy napier_kv_tokens napier_kv_bytes", kv_logprobs, TAKES},
    {"napier_generate", generate, TAKES},
    {"napier_model_logprobs_for", logprobs_for, TAKES},
    {"napier_model_batch_plan", batch_plan, TAKES},
    {"napier_model_judge", judge, TAKES},
    {"napier_model_encode_texts", encode_texts, TAKES | FALLS_BACK},
#endif
};
enum { LINES = sizeof table / sizeof table[0] };

#define C LAYOUT_CONTIGUOUS
#define T LAYOUT_TRANSPOSED
#define E LAYOUT_EVERY_OTHER
#define F32 NAPIER_F32
#define BF16 NAPIER_BF16
#define F64 NAPIER_F64
#define AUTO NAPIER_ALGORITHM_AUTO
#define PARALLEL NAPIER_ALGORITHM_PARALLEL
static const softmax_case softmax_cases[] = {
    {"tiny rows", SOFTMAX, C, C, 50, 7, F32, F32, AUTO},
    {"rows", LOG_SOFTMAX, LAYOUT_PADDED, C, 9, 1500, F32, BF16, AUTO},
    {"strided rows", SOFTMAX, E, LAYOUT_COLUMNS_REVERSED, 9, 1500, NAPIER_F16, F32, NAPIER_ALGORITHM_ONLINE},
    {"first axis", SOFTMAX, T, T, 300, 200, F32, F32, AUTO},
    {"first axis, long", LOG_SOFTMAX, T, T, 20, 9000, BF16, BF16, NAPIER_ALGORITHM_SAFE},
    {"one long row", SOFTMAX, C, C, 1, 100000, F32, F32, PARALLEL},
    {"one long strided row", SOFTMAX, E, E, 1, 100000, F32, F32, PARALLEL},
    {"logsumexp", LOGSUMEXP, C, C, 100, 5000, F32, F32, AUTO},
    {"logsumexp, first axis", LOGSUMEXP, T, C, 500, 300, F32, F32, PARALLEL},
    {"logsumexp of all", LOGSUMEXP_ALL, C, C, 100, 1000, F32, F32, AUTO},
    {"logsumexp of all, transposed", LOGSUMEXP_ALL, LAYOUT_TRANSPOSED_PADDED, C, 100, 1000, NAPIER_F16, F32, AUTO},
    {"f64", SOFTMAX, T, T, 30, 3000, F64, F64, AUTO},
    {"f64, one long row", SOFTMAX, C, C, 1, 40000, F64, F64, AUTO},
    {"f64 of all", LOGSUMEXP_ALL, LAYOUT_PADDED, C, 30, 3000, F64, F64, PARALLEL},
    {"logsumexp_weighted", WEIGHTED, E, C, 2, 20000, F32, F32, PARALLEL},
    {"softmax_backward", SOFTMAX_BACKWARD, T, T, 100, 1500, F32, F32, AUTO},
    {"softmax_backward in f64", SOFTMAX_BACKWARD, C, C, 1, 40000, F64, F64, AUTO},
    {"log_softmax_backward", LOG_SOFTMAX_BACKWARD, E, C, 10, 4000, BF16, F32, AUTO},
    {"log_softmax_backward in f64", LOG_SOFTMAX_BACKWARD, T, T, 10, 4000, F64, F64, AUTO},
    {"logsumexp_backward", LOGSUMEXP_BACKWARD, T, T, 100, 1500, F32, F32, AUTO},
    {"logsumexp_all_backward", LOGSUMEXP_ALL_BACKWARD, T, C, 100, 1500, F32, F32, AUTO},
};
#undef C
#undef T
#undef E
#undef F32
#undef BF16
#undef F64
#undef AUTO
#undef PARALLEL

/* ---- Running it ----------------------------------------------------------------------------------------------------- */

enum { FILL = 0x5a, MOST_ALLOCATIONS = 3000 };

static unsigned char wanted[RESULT_BYTES];

static napier_status fresh_call(const line *l, napier_context *context) {
    memset(result, FILL, sizeof result);
    result_size = 0;
    return l->call(context);
}

/* Allocation k fails, and with `after` all that follow. True where the call needed no k-th. */
static bool fail_one(const line *l, napier_context *context, int64_t k, bool after, int64_t *refused_calls) {
    const int64_t held = counted.live;
    if (after) {
        ledger_allow(&counted, k);
    } else {
        ledger_fail(&counted, k);
    }
    napier_status status = fresh_call(l, context);
    const bool met = counted.calls > k;
    ledger_fail(&counted, -1);
    expect(counted.live == held, "%s, allocation %lld fails: %lld blocks lost", l->name, (long long)k,
           (long long)(counted.live - held));
    if (status != NAPIER_OK) {
        const char *const error = napier_last_error(context);
        ++*refused_calls;
        expect(status == NAPIER_OUT_OF_MEMORY, "%s, allocation %lld fails: status %d, %s", l->name, (long long)k,
               (int)status, error);
        expect(l->call == context_create || strstr(error, "memory"), "%s, allocation %lld: the text is '%s'", l->name,
               (long long)k, error);
        size_t written = 0;
        for (size_t i = 0; l->flags & UNTOUCHED && i < sizeof result; i++) {
            written += result[i] != FILL;
        }
        expect(written == 0, "%s, allocation %lld fails: %zu bytes of results written", l->name, (long long)k, written);
        status = fresh_call(l, context);
        succeeded(context, status, "with memory again");
    } else {
        expect(!met || l->flags & FALLS_BACK, "%s, allocation %lld fails: OK", l->name, (long long)k);
    }
    expect(memcmp(result, wanted, sizeof result) == 0, "%s, allocation %lld: other bits", l->name, (long long)k);
    return !met;
}

/* Returns how often the call was refused. */
static int64_t run_line(const line *l, int threads) {
    napier_context *const context = ledger_context(&counted, threads);
    napier_context *const same = context_of(NAPIER_ISA_AUTO, threads);
    int64_t refused_calls = 0;
    if (succeeded(same, fresh_call(l, same), l->name)) {
        memcpy(wanted, result, sizeof wanted);
        for (int after = 0; after < 2; after++) {
            int64_t k = 0;
            while (k < MOST_ALLOCATIONS && !fail_one(l, context, k, after, &refused_calls)) {
                k++;
            }
            expect(k < MOST_ALLOCATIONS, "%s: no end of allocations", l->name);
        }
    }
    napier_context_destroy(same);
    napier_context_destroy(context);
    expect(counted.live == 0, "%s: %lld blocks left", l->name, (long long)counted.live);
    return refused_calls;
}

static void test_table(void) {
    for (int i = 0; i < LINES; i++) {
        const int64_t refused_calls = run_line(&table[i], 2);
        expect((refused_calls > 0) == ((table[i].flags & TAKES) != 0), "%s: %lld refusals", table[i].name,
               (long long)refused_calls);
        run_line(&table[i], 1);
    }
}

static void test_softmax_in_layouts(void) {
    int64_t refused_calls = 0;
    for (size_t i = 0; i < sizeof softmax_cases / sizeof *softmax_cases; i++) {
        softmax_now = &softmax_cases[i];
        const line l = {softmax_now->name, softmax_in_layouts, 0};
        refused_calls += run_line(&l, 1) + run_line(&l, 2);
    }
    expect(refused_calls > 0, "no call allocated anything: the test tested nothing");
}

/* ---- What the calls read -------------------------------------------------------------------------------------------- */

static void fill(void) {
    rng r = rng_make(7);
    for (int i = 0; i < ROWS * COLS; i++) {
        numbers[i] = (float)rng_normal(&r);
        positive[i] = (float)(3.0 + (double)(i % 3)) + fabsf(numbers[i]);
        ids[i] = i * 7 % 80;
    }
    for (int i = 0; i <= BATCH; i++) {
        offsets[i] = i * (TOKENS / BATCH);
    }
    for (int i = 0; i < TOKENS; i++) {
        mask[i] = i % 5 != 0;
    }
    for (uint32_t i = 0; i < POINTS; i++) {
        edges[i] = (napier_umap_edge){i, (i * 7 + 3) % POINTS, 0.5f};
        edge_starts[i] = i;
        edge_counts[i] = 1;
        targets[2 * i] = (i + 1) % POINTS;
        targets[2 * i + 1] = (i + 9) % POINTS;
        categories[i] = (int32_t)(i % 3);
    }
}

static void save_state(void) {
    napier_softmax_state *s = NULL;
    succeeded(plenty, napier_softmax_state_create(plenty, NAPIER_F32, 5, NULL, &s), "state");
    succeeded(plenty, napier_softmax_state_update(plenty, s, napier_const_array_f32(numbers, 2500)), "state");
    state_size = napier_softmax_state_size(s);
    succeeded(plenty, napier_softmax_state_save(plenty, s, state_bytes, sizeof state_bytes), "state");
    napier_softmax_state_destroy(s);
}

static void prepare(void) {
    const ledger none = LEDGER_INIT;
    const napier_neighbors_options near = near_options();
    const napier_umap_options options = map_options();
    counted = none;
    plenty = context_of(NAPIER_ISA_AUTO, 2);
    fill();
    save_state();
    succeeded(plenty, napier_nearest_neighbors(plenty, points(), &near, near_ids, near_distances), "neighbours");
    succeeded(plenty,
              napier_umap_fuzzy_simplicial_set(plenty, near_ids, near_distances, POINTS, NEAR, 1.0, 1.0, &graph),
              "graph");
    succeeded(plenty, napier_umap_fit(plenty, points(), &options, &map), "map");
    succeeded(plenty, napier_umap_model_to_bytes(plenty, map, map_bytes, sizeof map_bytes, &map_size), "bytes");
    succeeded(plenty, napier_umap_model_save(plenty, map, map_path), "file");
#ifdef NAPIER_MODEL
    tiny.layers = 1;
    tiny_model_write(&tiny);
    succeeded(plenty, napier_model_load(plenty, tiny.directory, NULL, &model), "model");
    succeeded(plenty, tiny_load(plenty, NULL, NULL, &tokenizer), "tokenizer");
#endif
}

static void tidy(void) {
    remove(map_path);
    napier_umap_graph_destroy(plenty, graph);
    napier_umap_model_destroy(plenty, map);
#ifdef NAPIER_MODEL
    napier_model_destroy(plenty, model);
    napier_tokenizer_destroy(plenty, tokenizer);
    tiny_model_remove(&tiny);
#endif
    napier_context_destroy(plenty);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < LINES; i++) {
            puts(table[i].name);
        }
        return 0;
    }
    prepare();
    const int failed = RUN_TESTS("allocations", TEST(test_table), TEST(test_softmax_in_layouts));
    tidy();
    return failed;
}
