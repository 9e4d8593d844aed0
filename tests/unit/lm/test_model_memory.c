/* test_model_memory - models of tensors in memory: the bits of the same model in files, for each dtype and a mixture;
 * updates, which are all or nothing, and which make a napier_kv stale; a tied head; hostile configs and tensors; memory
 * that runs out. */
#include "support/check.h"

#include <math.h>
#include <napier/generate.h>
#include <napier/model.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/math/f64.h"
#include "support/memory.h"
#include "unit/lm/lm_support.h"

enum { TOKENS = 9, VOCABULARY = 83 };
static const int64_t ids[TOKENS] = {1, 2, 3, 82, 0, 5, 6, 7, 11};

#define TENSORS(name, model) tiny_tensors name __attribute__((cleanup(tiny_tensors_free))) = tiny_model_tensors(model)

typedef struct logits {
    float at[TOKENS * VOCABULARY];
} logits;

static logits logits_of(napier_context *context, const napier_model *model, const tiny_model *m) {
    logits made;
    model_logits(context, model, m, ids, TOKENS, made.at);
    return made;
}

static bool same(const logits *a, const logits *b) { return memcmp(a, b, sizeof *a) == 0; }

static napier_status make(napier_context *context, const tiny_tensors *t, napier_compute compute, napier_model **out) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    options.compute = compute;
    return napier_model_from_tensors(context, t->config, t->config_size, t->list, t->count, &options, out);
}

static napier_model *make_good(napier_context *context, const tiny_tensors *t, napier_compute compute) {
    napier_model *model = NULL;
    succeeded(context, make(context, t, compute, &model), "from tensors");
    return model;
}

/* The logits of the same weights in files. */
static logits wanted(napier_context *context, tiny_model *m, napier_compute compute) {
    tiny_model_write(m);
    napier_model *const model = model_load(context, m, compute, 0);
    const logits made = logits_of(context, model, m);
    napier_model_destroy(context, model);
    tiny_model_remove(m);
    return made;
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

static void test_views(napier_context *context) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int i = 0; i < 14; i++) {
        tiny_model m = TINY_MODEL_INIT;
        m.dtype = i < 12 ? dtypes[i % 3] : NAPIER_BF16;
        m.tied = i < 12 ? i / 3 % 2 == 0 : i % 2 == 0;
        const napier_compute compute = i < 6 ? NAPIER_COMPUTE_F32 : i < 12 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_SPLIT;
        TENSORS(t, &m);
        napier_model *const model = make_good(context, &t, compute);
        const logits got = logits_of(context, model, &m), files = wanted(context, &m, compute);
        expect(same(&got, &files), "case %d: other logits than from files", i);
        expect(napier_model_head(model).data ==
                   tiny_tensors_find(&t, m.tied ? "model.embed_tokens.weight" : "lm_head.weight")->data,
               "the head was copied");
        napier_model_destroy(context, model);
    }
}

/* Replaces a bf16 tensor by one of f32 with the same values. */
static void widen(napier_named_tensor *t) {
    const int64_t count = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1);
    float *const wide = malloc((size_t)count * sizeof *wide);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (float)napier_f64_load(t->data, NAPIER_BF16, i);
    }
    free((void *)(uintptr_t)t->data);
    t->data = wide;
    t->dtype = NAPIER_F32;
}

/* bf16 weights as f32 are the same numbers, so mode f32 has the same bits whichever tensors are stored as which. */
static void test_mixture(napier_context *context) {
    tiny_model m = TINY_MODEL_INIT;
    m.dtype = NAPIER_BF16;
    TENSORS(t, &m);
    napier_model *model = make_good(context, &t, NAPIER_COMPUTE_F32);
    const logits narrow = logits_of(context, model, &m);
    napier_model_destroy(context, model);
    for (int64_t k = 0; k < t.count; k += 2) {
        widen(&t.list[k]);
    }
    model = make_good(context, &t, NAPIER_COMPUTE_F32);
    const logits mixed = logits_of(context, model, &m);
    expect(same(&narrow, &mixed), "other logits from weights of two dtypes");
    napier_model_destroy(context, model);
}

/* The memory of a product depends on the dtypes of its weights: gate and up of two dtypes cannot share what they pack. There
 * must be enough for each layer. The ledger sees a write beyond. */
static void test_wide_layer(void) {
    for (int k = 0; k < 3 * TINY_FAMILIES; k++) {
        tiny_model m = tiny_model_of(k / 3);
        const napier_compute compute = (napier_compute)(k % 3);
        ledger l = LEDGER_INIT;
        l.guard = 1 << 20;
        m.dtype = NAPIER_BF16;
        m.intermediate = 160;
        TENSORS(t, &m);
        for (int64_t i = 0; i < t.count; i += 2) {
            if (compute != NAPIER_COMPUTE_SPLIT && strncmp(t.list[i].name, "model.layers.1.", 15) == 0) {
                widen(&t.list[i]);
            }
        }
        napier_context *const context = ledger_context(&l, 2);
        napier_model *const model = make_good(context, &t, compute);
        for (int64_t tokens = 1; tokens < 600; tokens = tokens * 2 + 1) {
            int64_t *const many = scratch(tokens, sizeof *many);
            float *const made = scratch(tokens * m.vocabulary, sizeof *made);
            memset(many, 0, (size_t)tokens * sizeof *many);
            model_logits(context, model, &m, many, tokens, made);
            expect(isfinite(made[tokens * m.vocabulary - 1]), "%lld tokens: not finite", (long long)tokens);
        }
        napier_model_destroy(context, model);
        napier_context_destroy(context);
    }
}

/* ---- A tied head ------------------------------------------------------------------------------------------------- */

static void test_tied_head(napier_context *context) {
    tiny_model m = TINY_MODEL_INIT;
    TENSORS(t, &m);
    napier_model *model = NULL;
    const napier_named_tensor *const embedding = tiny_tensors_find(&t, "model.embed_tokens.weight");
    const size_t bytes = (size_t)(VOCABULARY * m.hidden) * sizeof(float);
    float *const copy = memcpy(scratch((int64_t)bytes, 1), embedding->data, bytes);
    napier_named_tensor *const head = &t.list[t.count]; /* there is room for it; not freed with the others */
    *head = *embedding;
    head->name = "lm_head.weight";
    const tiny_tensors with_head = {t.list, t.count + 1, t.config, t.config_size, {NULL}};
    for (int i = 0; i < 2; i++) {
        succeeded(context, make(context, &with_head, NAPIER_COMPUTE_F32, &model), "a tied head, as a view or a copy");
        napier_model_info info = NAPIER_MODEL_INFO_INIT;
        succeeded(context, napier_model_get_info(context, model, &info), "info");
        expect(info.tied && napier_model_head(model).data == embedding->data, "the head is not the embedding");
        if (i == 0) {
            napier_model_destroy(context, model);
        }
        head->data = copy;
    }
    copy[7] += 1;
    invalid(context, napier_model_update(context, model, NULL, 0), "lm_head.weight: not equal to");
    napier_model_destroy(context, model);
    invalid(context, make(context, &with_head, NAPIER_COMPUTE_F32, &model), "lm_head.weight: not equal to");
    expect(model == NULL, "a model after an error");
}

/* ---- Updates ----------------------------------------------------------------------------------------------------- */

/* Gives every element the value of the model with another seed. */
static void change(const tiny_tensors *t, const tiny_model *m) {
    for (int64_t k = 0; k < t->count; k++) {
        const int64_t count = t->list[k].shape[0] * (t->list[k].ndim > 1 ? t->list[k].shape[1] : 1);
        for (int64_t i = 0; i < count; i++) {
            napier_f64_store((void *)(uintptr_t)t->list[k].data, m->dtype, i, tiny_model_weight(m, t->list[k].name, i));
        }
    }
}

static void test_update(napier_context *context) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16};
    for (int i = 0; i < 4; i++) {
        tiny_model m = TINY_MODEL_INIT, other = TINY_MODEL_INIT;
        m.dtype = other.dtype = dtypes[i % 2];
        m.tied = other.tied = i < 2;
        other.seed = 2;
        TENSORS(t, &m);
        TENSORS(u, &other);
        napier_model *const model = make_good(context, &t, NAPIER_COMPUTE_F32);
        const logits first = wanted(context, &m, NAPIER_COMPUTE_F32);
        const logits second = wanted(context, &other, NAPIER_COMPUTE_F32);
        succeeded(context, napier_model_update(context, model, u.list, u.count), "update");
        logits got = logits_of(context, model, &m);
        expect(same(&got, &second), "other logits after an update by tensors");
        change(&u, &m); /* in place */
        succeeded(context, napier_model_update(context, model, NULL, 0), "update in place");
        got = logits_of(context, model, &m);
        expect(same(&got, &first), "other logits after an update in place");
        napier_model_destroy(context, model);
    }
}

/* A model from files takes tensors of memory. */
static void test_update_of_files(napier_context *context) {
    TINY_MODEL(m);
    tiny_model other = TINY_MODEL_INIT;
    other.seed = 2;
    const logits second = wanted(context, &other, NAPIER_COMPUTE_F32);
    TENSORS(u, &other);
    tiny_model_write(&m);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    const logits before = logits_of(context, model, &m);
    succeeded(context, napier_model_update(context, model, NULL, 0), "update of files");
    logits got = logits_of(context, model, &m);
    expect(same(&got, &before), "other logits from the same files");
    succeeded(context, napier_model_update(context, model, u.list, u.count), "update");
    got = logits_of(context, model, &m);
    expect(same(&got, &second), "other logits after an update by tensors");
    napier_model_destroy(context, model);
}

/* An update that fails leaves the model as it was. */
static void test_all_or_nothing(napier_context *context) {
    tiny_model m = TINY_MODEL_INIT, other = TINY_MODEL_INIT;
    other.seed = 2;
    TENSORS(t, &m);
    TENSORS(u, &other);
    napier_model *const model = make_good(context, &t, NAPIER_COMPUTE_F32);
    const logits before = logits_of(context, model, &m);
    napier_named_tensor *const last = &u.list[u.count - 1];
    const napier_named_tensor good = *last;
    const int64_t shape[] = {m.hidden + 1};
    invalid(context, napier_model_update(context, model, u.list, u.count - 1), good.name, "not among");
    last->shape = shape;
    invalid(context, napier_model_update(context, model, u.list, u.count), good.name, "[33]", "[32]");
    *last = good;
    last->dtype = NAPIER_F16;
    invalid(context, napier_model_update(context, model, u.list, u.count), good.name, "dtype f16", "f32");
    *last = good;
    invalid(context, napier_model_update(context, model, u.list, -1), "count is -1");
    invalid(context, napier_model_update(context, NULL, u.list, u.count), "model");
    const logits after = logits_of(context, model, &m);
    expect(same(&before, &after), "a failed update changed the model");
    napier_model_destroy(context, model);
}

static napier_status score_with(napier_context *context, const napier_model *model, const napier_kv *kv) {
    float logprobs[4];
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    options.kvs = &kv;
    options.kv_count = 1;
    results.logprobs = napier_array_f32(logprobs, 4);
    return napier_model_logprobs_for(context, model, napier_indices_i64(ids, 5), napier_indices_i64(ids + 5, 4),
                                     &options, &results);
}

static napier_status generate_with(napier_context *context, const napier_model *model, const napier_kv *kv) {
    const int64_t offsets[] = {0, 5};
    int64_t made[2], length;
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results results = NAPIER_GENERATE_RESULTS_INIT;
    batch.prompt_ids = napier_indices_i64(ids, 5);
    batch.prompt_offsets = napier_indices_i64(offsets, 2);
    options.max_tokens = 2;
    options.kvs = &kv;
    options.kv_count = 1;
    results.ids = made;
    results.lengths = &length;
    return napier_generate(context, model, &batch, &options, &results);
}

static void test_stale_kv(napier_context *context) {
    tiny_model m = TINY_MODEL_INIT;
    TENSORS(t, &m);
    napier_model *const model = make_good(context, &t, NAPIER_COMPUTE_F32);
    napier_kv *kv = NULL;
    for (int i = 0; i < 2; i++) {
        succeeded(context, napier_kv_create(context, model, napier_indices_i64(ids, 4), NULL, NULL, &kv), "kv");
        succeeded(context, score_with(context, model, kv), "score with a kv");
        succeeded(context, generate_with(context, model, kv), "generate with a kv");
        succeeded(context, napier_model_update(context, model, i == 0 ? NULL : t.list, i == 0 ? 0 : t.count), "update");
        invalid(context, score_with(context, model, kv), "kvs[0]", "is stale");
        invalid(context, generate_with(context, model, kv), "kvs[0]", "is stale");
        expect(napier_kv_tokens(kv) == 4 && napier_kv_bytes(kv) > 0, "a stale kv lost its size");
        napier_kv_destroy(context, kv);
    }
    napier_model_destroy(context, model);
}

/* ---- What callers may get wrong ---------------------------------------------------------------------------------- */

/* Each spoils a tensor of a good list. */
typedef struct spoiled {
    const char *says;
    napier_status status;
    napier_named_tensor tensor; /* replaces the second of the list, where it is not 0; shape: never 0 */
} spoiled;

static void test_tensors(napier_context *context) {
    static const int64_t huge[] = {INT64_MAX, 3}, negative[] = {-1, 32}, scalar[] = {1}, other[] = {64, 33};
    static float aligned[64];
    tiny_model m = TINY_MODEL_INIT;
    TENSORS(t, &m);
    const napier_named_tensor good = t.list[2]; /* q_proj [64, 32] */
    const void *const odd = (const char *)aligned + 1;
    const spoiled all[] = {
        {"name is NULL", NAPIER_INVALID_ARGUMENT, {NULL, good.data, good.shape, 2, NAPIER_F32}},
        {"data (nil) is no address", NAPIER_INVALID_ARGUMENT, {good.name, NULL, good.shape, 2, NAPIER_F32}},
        {"is no address of elements of 4", NAPIER_INVALID_ARGUMENT, {good.name, odd, good.shape, 2, NAPIER_F32}},
        {"shape is", NAPIER_INVALID_ARGUMENT, {good.name, good.data, NULL, 2, NAPIER_F32}},
        {"ndim is 9", NAPIER_INVALID_ARGUMENT, {good.name, good.data, good.shape, 9, NAPIER_F32}},
        {"ndim is -1", NAPIER_INVALID_ARGUMENT, {good.name, good.data, good.shape, -1, NAPIER_F32}},
        {"shape[0] is 9223372036854775807", NAPIER_INVALID_ARGUMENT, {good.name, good.data, huge, 2, NAPIER_F32}},
        {"shape[0] is -1", NAPIER_INVALID_ARGUMENT, {good.name, good.data, negative, 2, NAPIER_F32}},
        {"its shape is [1]", NAPIER_INVALID_ARGUMENT, {good.name, good.data, scalar, 1, NAPIER_F32}},
        {"its shape is []", NAPIER_INVALID_ARGUMENT, {good.name, good.data, scalar, 0, NAPIER_F32}},
        {"its shape is [64, 33]", NAPIER_INVALID_ARGUMENT, {good.name, good.data, other, 2, NAPIER_F32}},
        {"dtype 77 is unknown", NAPIER_INVALID_ARGUMENT, {good.name, good.data, good.shape, 2, (napier_dtype)77}},
        {"dtype f64", NAPIER_UNSUPPORTED, {good.name, good.data, good.shape, 2, NAPIER_F64}},
        {"q_proj.weight: not among the 24", NAPIER_INVALID_ARGUMENT, {"a", good.data, good.shape, 2, NAPIER_F32}},
        {"given twice", NAPIER_INVALID_ARGUMENT, {t.list[0].name, good.data, good.shape, 2, NAPIER_F32}},
    };
    napier_model *model = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        t.list[2] = all[i].tensor;
        refused(context, make(context, &t, NAPIER_COMPUTE_F32, &model), all[i].status, all[i].says, NULL);
        expect(model == NULL, "a model after an error");
    }
    t.list[2] = good;
    t.list[t.count] =
        (napier_named_tensor){"model.layers.0.self_attn.q_proj.bias", aligned, (const int64_t[]){64}, 1, NAPIER_F32};
    t.count++;
    invalid(context, make(context, &t, NAPIER_COMPUTE_F32, &model), "q_proj.bias", "no such tensor");
    t.count--; /* its data is not to be freed */
}

static void test_arguments(napier_context *context) {
    tiny_model m = TINY_MODEL_INIT;
    TENSORS(t, &m);
    napier_model *model = NULL;
    const char *const c = t.config;
    const size_t n = t.config_size;
    invalid(context, napier_model_from_tensors(context, NULL, 0, t.list, t.count, NULL, &model), "config");
    invalid(context, napier_model_from_tensors(context, c, n, t.list, t.count, NULL, NULL), "out");
    invalid(context, napier_model_from_tensors(context, c, n, NULL, t.count, NULL, &model), "tensors");
    invalid(context, napier_model_from_tensors(context, c, n, t.list, -3, NULL, &model), "-3");
    invalid(context, napier_model_from_tensors(context, c, n, t.list, INT64_MAX, NULL, &model), "count");
    invalid(context, napier_model_from_tensors(context, c, n, NULL, 0, NULL, &model), "the tensors 0 elements");
    refused(context, napier_model_from_tensors(context, c, 5, t.list, t.count, NULL, &model), NAPIER_CORRUPT_DATA,
            "config", NULL);
    refused(context,
            napier_model_from_tensors(context, "{\"model_type\": \"gpt2\"}", 22, t.list, t.count, NULL, &model),
            NAPIER_UNSUPPORTED, "gpt2", NULL);
    for (size_t i = 0; i + 2 < n; i++) { /* without the last brace; sanitizers see a read beyond the end */
        char *const part = malloc(i + 1);
        memcpy(part, c, i);
        refused(context, napier_model_from_tensors(context, part, i, t.list, t.count, NULL, &model),
                NAPIER_CORRUPT_DATA, "config", NULL);
        free(part);
    }
}

static napier_status make_and_update(napier_context *context, void *argument) {
    const tiny_tensors *const t = argument;
    napier_model *model = NULL;
    napier_status status = make(context, t, NAPIER_COMPUTE_F32, &model);
    status = status ? status : napier_model_update(context, model, t->list, t->count);
    status = status ? status : napier_model_update(context, model, NULL, 0);
    napier_model_destroy(context, model);
    return status;
}

static void test_memory(void) {
    tiny_model m = TINY_MODEL_INIT;
    TENSORS(t, &m);
    check_allocations("from tensors and update", make_and_update, &t);
}

int main(void) {
    return RUN_TESTS("model_memory", TEST_1(test_views), TEST_1(test_mixture), TEST(test_wide_layer),
                     TEST_1(test_tied_head), TEST_1(test_update), TEST_1(test_update_of_files),
                     TEST_1(test_all_or_nothing), TEST_1(test_stale_kv), TEST_1(test_tensors), TEST_1(test_arguments),
                     TEST(test_memory));
}
