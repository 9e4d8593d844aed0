/* tests/cuda/test_cuda_model.c - a decoder on a device: every family of dense models, compute mode and dtype gives the CPU's
 * bits, in sequences of any length; on tensor cores a token's bits do not depend on the batch; tokens and arguments that are
 * refused. */
#include "cuda_test.h"
#include "unit/lm/lm_support.h"

#include <math.h>
#include <napier/cuda/model.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"

enum { TOKENS = 29, SEQUENCES = 5, POSITIONS = 20 };
static const int64_t offsets[SEQUENCES + 1] = {0, 7, 7, 8, 26, 29};
static int64_t ids[TOKENS];

static napier_cuda_context *device;
static napier_context *cpu;

/* ---- A model on both ----------------------------------------------------------------------------------------------- */

typedef struct pair {
    tiny_tensors tensors;
    napier_model *model;
    void *memory;
    napier_cuda_model *there;
    int64_t hidden, vocabulary;
    napier_dtype state; /* the dtype of states before the head */
} pair;

static bool done(napier_status status, const char *what) {
    return expect(status == NAPIER_OK, "%s: status %d: %s", what, (int)status, napier_cuda_last_error(device));
}

static pair pair_of(const tiny_model *m, napier_compute compute, double embedding_scale) {
    pair p = {.tensors = tiny_model_tensors(m), .hidden = m->hidden, .vocabulary = m->vocabulary};
    napier_named_tensor *const e = tiny_tensors_find(&p.tensors, "model.embed_tokens.weight");
    for (int64_t i = 0; embedding_scale > 1.0 && i < m->vocabulary * m->hidden; i++) {
        void *const at = (void *)(uintptr_t)e->data;
        element_set(at, m->dtype, i, element_get(at, m->dtype, i) * embedding_scale);
    }
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    options.compute = compute;
    p.state = compute == NAPIER_COMPUTE_BF16 ? NAPIER_BF16 : NAPIER_F32;
    works(napier_model_from_tensors, cpu, p.tensors.config, p.tensors.config_size, p.tensors.list, p.tensors.count,
          &options, &p.model);
    napier_cuda_workspace memory = {NULL, 0};
    done(napier_cuda_model_create(device, NULL, &memory, p.model, POSITIONS, &p.there), "size of a model");
    assert_null(p.there);
    memory.data = p.memory = device_new(memory.size);
    done(napier_cuda_model_create(device, NULL, &memory, p.model, POSITIONS, &p.there), "create a model");
    assert_non_null(p.there);
    return p;
}

static void pair_free(pair *p) {
    napier_cuda_model_destroy(device, p->there);
    device_free(p->memory);
    napier_model_destroy(cpu, p->model);
    tiny_tensors_free(&p->tensors);
}

/* ---- Runs ---------------------------------------------------------------------------------------------------------- */

typedef struct batch {
    const int64_t *ids;
    int64_t tokens;
    const int64_t *offsets;
    int64_t size; /* of offsets; 0: one sequence */
} batch;
static const batch all = {ids, TOKENS, offsets, SEQUENCES + 1};

/* States and logits of a batch; the caller frees them. */
typedef struct results {
    void *states;
    float *logits;
} results;

static results results_new(const pair *p, const batch *b) {
    return (results){room_for(b->tokens * p->hidden, sizeof(float)),
                     room_for(b->tokens * p->vocabulary, sizeof(float))};
}
static void results_free(results r) { free(r.states), free(r.logits); }

static results on_cpu(const pair *p, const batch *b) {
    const results r = results_new(p, b);
    works(napier_model_forward, cpu, p->model, napier_indices_i64(b->ids, b->tokens),
          napier_indices_i64(b->offsets, b->size), napier_rows(r.states, b->tokens, p->hidden, p->state),
          napier_rows_f32(r.logits, b->tokens, p->vocabulary), NULL, NULL);
    return r;
}

/* wait: what napier_cuda_synchronize returns. */
static results on_device(const pair *p, const batch *b, napier_cuda_mode mode, napier_status *wait) {
    const results r = results_new(p, b);
    const size_t state_bytes = (size_t)(b->tokens * p->hidden) * napier_dtype_size(p->state);
    const size_t logit_bytes = (size_t)(b->tokens * p->vocabulary) * sizeof(float);
    int64_t *const there = device_copy(b->ids, (size_t)b->tokens * sizeof *there);
    int64_t *const starts = b->size > 0 ? device_copy(b->offsets, (size_t)b->size * sizeof *starts) : NULL;
    void *const states = device_new(state_bytes), *const logits = device_new(logit_bytes);
    napier_cuda_workspace workspace = {NULL, 0};
    for (int turn = 0; turn < 2; turn++) {
        done(napier_cuda_model_forward(device, NULL, &workspace, p->there, napier_indices_i64(there, b->tokens),
                                       napier_indices_i64(starts, b->size),
                                       napier_rows(states, b->tokens, p->hidden, p->state),
                                       napier_rows_f32(logits, b->tokens, p->vocabulary), mode),
             "forward");
        workspace.data = turn == 0 ? device_new(workspace.size) : workspace.data;
    }
    *wait = napier_cuda_synchronize(device, NULL);
    device_read(r.states, states, state_bytes);
    device_read(r.logits, logits, logit_bytes);
    device_free(workspace.data), device_free(states), device_free(logits), device_free(there);
    if (starts) {
        device_free(starts);
    }
    return r;
}

static void compare(const pair *p, const batch *b, const char *what) {
    napier_status wait;
    const results host = on_cpu(p, b), there = on_device(p, b, NAPIER_CUDA_BITWISE, &wait);
    done(wait, what);
    expect(memcmp(host.states, there.states, (size_t)(b->tokens * p->hidden) * napier_dtype_size(p->state)) == 0,
           "%s: states differ", what);
    expect(memcmp(host.logits, there.logits, (size_t)(b->tokens * p->vocabulary) * sizeof(float)) == 0,
           "%s: logits differ", what);
    results_free(host), results_free(there);
}

/* ---- The CPU's bits ------------------------------------------------------------------------------------------------ */

static void test_bits(void) {
    static const napier_dtype stored[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int which = 0; which < 2 * 3 * (TINY_FAMILIES - 1); which++) {
        tiny_model m = tiny_model_of(which % (TINY_FAMILIES - 1));
        const napier_compute compute = which / (TINY_FAMILIES - 1) % 2 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32;
        char what[100];
        m.dtype = stored[which / (TINY_FAMILIES - 1) / 2];
        m.tied = which % 2 == 0;
        m.heads = 4, m.kv_heads = which % 3 == 0 ? 4 : 2;
        m.hidden = which % 3 == 0 ? 40 : 72, m.head_dim = which % 3 == 1 ? 66 : 16;
        snprintf(what, sizeof what, "%s, %s, compute %d", m.family, napier_dtype_name(m.dtype), (int)compute);
        device_order((uint64_t)which);
        pair p = pair_of(&m, compute, 1.0);
        compare(&p, &all, what);
        pair_free(&p);
    }
    no_problems();
}

/* One sequence without offsets; none of any token; more sequences than tokens; a reward model. */
static void test_batches(void) {
    const int64_t many[] = {0, 0, 1, 1, 1, 2, 3, 3};
    const batch one = {ids, POSITIONS, NULL, 0}, few = {ids, 3, many, 8}, none = {ids, 0, many, 2};
    tiny_model m = TINY_MODEL_INIT;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1.0);
    compare(&p, &one, "one sequence");
    compare(&p, &few, "short sequences");
    compare(&p, &none, "no tokens");
    pair_free(&p);
    m.labels = 3;
    p = pair_of(&m, NAPIER_COMPUTE_BF16, 1.0);
    p.vocabulary = 3;
    compare(&p, &all, "a reward model");
    pair_free(&p);
    no_problems();
}

/* The device has its own copy of every weight: the CPU's model and the tensors may go. */
static void test_weights_are_copied(void) {
    tiny_model m = TINY_MODEL_INIT;
    m.dtype = NAPIER_F32, m.tied = false;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1.0);
    const results host = on_cpu(&p, &all);
    napier_model_destroy(cpu, p.model);
    p.model = NULL;
    for (int64_t i = 0; i < p.tensors.count; i++) {
        const napier_named_tensor *const t = &p.tensors.list[i];
        size_t bytes = napier_dtype_size(t->dtype);
        for (int64_t d = 0; d < t->ndim; d++) {
            bytes *= (size_t)t->shape[d];
        }
        memset((void *)(uintptr_t)t->data, 0x7f, bytes);
    }
    napier_status wait;
    const results there = on_device(&p, &all, NAPIER_CUDA_BITWISE, &wait);
    done(wait, "without the CPU's model");
    expect(memcmp(host.logits, there.logits, (size_t)(TOKENS * p.vocabulary) * sizeof(float)) == 0,
           "a weight is read where the CPU has it");
    results_free(host), results_free(there);
    pair_free(&p);
    no_problems();
}

/* The mean of squares is beyond f32. */
static void test_large_states(void) {
    tiny_model m = TINY_MODEL_INIT;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1e25);
    compare(&p, &all, "large states");
    pair_free(&p);
    no_problems();
}

/* ---- Tensor cores -------------------------------------------------------------------------------------------------- */

static void test_batch_invariant(void) {
    tiny_model m = TINY_MODEL_INIT;
    m.dtype = NAPIER_BF16;
    pair p = pair_of(&m, NAPIER_COMPUTE_BF16, 1.0);
    napier_status wait;
    const results host = on_cpu(&p, &all), whole = on_device(&p, &all, NAPIER_CUDA_BATCH_INVARIANT, &wait);
    done(wait, "batch-invariant");
    for (int64_t i = 0; i < TOKENS * p.vocabulary; i++) {
        const double error = fabs((double)host.logits[i] - (double)whole.logits[i]);
        expect(error < 0.15, "logit %d is %g, not %g", (int)i, (double)whole.logits[i], (double)host.logits[i]);
    }
    for (int s = 0; s < SEQUENCES; s++) {
        const int64_t begin = offsets[s], count = offsets[s + 1] - begin;
        const batch alone = {ids + begin, count, NULL, 0};
        const results r = on_device(&p, &alone, NAPIER_CUDA_BATCH_INVARIANT, &wait);
        expect(memcmp(r.logits, whole.logits + begin * p.vocabulary, (size_t)(count * p.vocabulary) * sizeof(float)) ==
                   0,
               "sequence %d by itself has other logits", s);
        results_free(r);
    }
    results_free(host), results_free(whole);
    pair_free(&p);
    no_problems();
}

/* ---- Wrong tokens and arguments ------------------------------------------------------------------------------------ */

/* Runs a batch that the kernels refuse: tokens `from` .. `to` - 1 have NaN logits, the others the CPU's (of `right`). */
static void faulty(const pair *p, const batch *b, const batch *right, int64_t from, int64_t to, const char *text) {
    napier_status wait;
    const results host = on_cpu(p, right), there = on_device(p, b, NAPIER_CUDA_BITWISE, &wait);
    expect(wait == NAPIER_INVALID_ARGUMENT && strstr(napier_cuda_last_error(device), text),
           "not '%s' but status %d: %s", text, (int)wait, napier_cuda_last_error(device));
    for (int64_t i = 0; i < b->tokens * p->vocabulary; i++) {
        const int64_t t = i / p->vocabulary;
        const bool same = memcmp(&there.logits[i], &host.logits[i], sizeof(float)) == 0;
        expect(t >= from && t < to ? isnan(there.logits[i]) : same, "%s: a logit of token %d is %g", text, (int)t,
               (double)there.logits[i]);
    }
    results_free(host), results_free(there);
}

static void test_wrong_tokens(void) {
    int64_t wrong[TOKENS], falling[SEQUENCES + 1], longer[] = {0, 5, TOKENS}, split[] = {0, 5, 5 + POSITIONS, TOKENS};
    tiny_model m = TINY_MODEL_INIT;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1.0);
    const batch bad_id = {wrong, TOKENS, offsets, SEQUENCES + 1}, bad_offsets = {ids, TOKENS, falling, SEQUENCES + 1};
    const batch too_long = {ids, TOKENS, longer, 3}, cut = {ids, TOKENS, split, 4};
    memcpy(wrong, ids, sizeof wrong), memcpy(falling, offsets, sizeof falling);
    wrong[10] = p.vocabulary;
    faulty(&p, &bad_id, &all, 10, 26, "ids: the id at index 10");
    wrong[10] = -1;
    faulty(&p, &bad_id, &all, 10, 26, "ids: the id at index 10");
    falling[2] = 9;
    faulty(&p, &bad_offsets, &all, 0, TOKENS, "offsets: the offset at index");
    falling[2] = INT64_MIN;
    faulty(&p, &bad_offsets, &all, 0, TOKENS, "offsets: the offset at index");
    falling[2] = INT64_MAX;
    faulty(&p, &bad_offsets, &all, 0, TOKENS, "offsets: the offset at index");
    faulty(&p, &too_long, &cut, 5 + POSITIONS, TOKENS, "offsets: the sequence at index 1");
    compare(&p, &all, "after faults");
    pair_free(&p);
    no_problems();
}

static void refuses(napier_status status, napier_status wanted, const char *text) {
    expect(status == wanted && strstr(napier_cuda_last_error(device), text), "not '%s' but status %d: %s", text,
           (int)status, napier_cuda_last_error(device));
}

static void test_refused_models(void) {
    tiny_model m = TINY_MODEL_INIT;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1.0);
    napier_cuda_workspace small = {p.memory, 256};
    napier_cuda_model *out = p.there;
    refuses(napier_cuda_model_create(device, NULL, &small, p.model, 4, &out), NAPIER_INVALID_ARGUMENT, "size 256");
    assert_null(out);
    refuses(napier_cuda_model_create(device, NULL, &small, p.model, 0, &out), NAPIER_INVALID_ARGUMENT, "positions: 0");
    refuses(napier_cuda_model_create(device, NULL, NULL, p.model, 4, &out), NAPIER_INVALID_ARGUMENT, "memory: NULL");
    refuses(napier_cuda_model_create(device, NULL, &small, NULL, 4, &out), NAPIER_INVALID_ARGUMENT, "model: NULL");
    refuses(napier_cuda_model_create(device, NULL, &small, p.model, 4, NULL), NAPIER_INVALID_ARGUMENT, "out: NULL");
    pair_free(&p);
    m = tiny_model_of(TINY_FAMILIES - 1);
    tiny_tensors t = tiny_model_tensors(&m);
    napier_model *model = NULL;
    works(napier_model_from_tensors, cpu, t.config, t.config_size, t.list, t.count, NULL, &model);
    refuses(napier_cuda_model_create(device, NULL, &small, model, 4, &out), NAPIER_UNSUPPORTED, "experts");
    napier_model_destroy(cpu, model);
    tiny_tensors_free(&t);
    no_problems();
}

static void test_refused_calls(void) {
    tiny_model m = TINY_MODEL_INIT;
    pair p = pair_of(&m, NAPIER_COMPUTE_F32, 1.0);
    napier_cuda_workspace workspace = {NULL, 0};
    float *const logits = device_new(TOKENS * 83 * sizeof *logits);
    const napier_indices tokens = napier_indices_i64(p.memory, TOKENS), none = napier_indices_i64(NULL, 0);
    const napier_indices start = napier_indices_i64(p.memory, 1);
    const napier_matrix out = napier_rows_f32(logits, TOKENS, 83), absent = napier_rows_f32(NULL, 0, 0);
    refuses(napier_cuda_model_forward(device, NULL, &workspace, NULL, tokens, none, absent, out, NAPIER_CUDA_BITWISE),
            NAPIER_INVALID_ARGUMENT, "model: NULL");
    refuses(napier_cuda_model_forward(device, NULL, &workspace, p.there, tokens, none, absent, out, 7),
            NAPIER_INVALID_ARGUMENT, "mode: 7");
    refuses(
        napier_cuda_model_forward(device, NULL, &workspace, p.there, tokens, none, absent, out, NAPIER_CUDA_BITWISE),
        NAPIER_INVALID_ARGUMENT, "29 tokens");
    refuses(
        napier_cuda_model_forward(device, NULL, &workspace, p.there, tokens, start, absent, out, NAPIER_CUDA_BITWISE),
        NAPIER_INVALID_ARGUMENT, "offsets: size 1");
    refuses(
        napier_cuda_model_forward(device, NULL, &workspace, p.there, tokens, none, out, absent, NAPIER_CUDA_BITWISE),
        NAPIER_INVALID_ARGUMENT, "hidden: shape");
    device_free(logits);
    pair_free(&p);
    no_problems();
}

int main(void) {
    rng r = rng_make(5);
    device_wanted();
    if (napier_cuda_context_create(&device, -1) != NAPIER_OK) {
        return 2;
    }
    cpu = context_of(NAPIER_ISA_AUTO, 1);
    random_ids(ids, TOKENS, 83, &r);
    const int failed = RUN_TESTS("cuda_model", TEST(test_bits), TEST(test_batches), TEST(test_weights_are_copied),
                                 TEST(test_large_states), TEST(test_batch_invariant), TEST(test_wrong_tokens),
                                 TEST(test_refused_models), TEST(test_refused_calls));
    napier_context_destroy(cpu);
    napier_cuda_context_destroy(device);
    return failed;
}
