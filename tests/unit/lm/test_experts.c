/* test_experts - a mixture of experts: equal probabilities go to the experts with the lowest indices; a row of NaN changes
 * no other row; fused tensors give the bits of one tensor for each expert; an update; what a config may not say. The result
 * itself and its bits are tested with those of the other families (test_model.c, test_model_score.c, test_generate.c). */
#include "support/check.h"

#include <math.h>
#include <napier/model.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "unit/lm/lm_support.h"

enum { TOKENS = 24, VOCABULARY = 83, EXPERTS = 5, WIDTH = 20, HIDDEN = 32, CHOSEN = 2 };

#define TENSORS(name, model) tiny_tensors name __attribute__((cleanup(tiny_tensors_free))) = tiny_model_tensors(model)

static tiny_model mixture(void) { return tiny_model_of(TINY_FAMILIES - 1); }

typedef struct logits {
    float at[TOKENS * VOCABULARY];
} logits;

static napier_status make(napier_context *context, const tiny_tensors *t, napier_model **out) {
    return napier_model_from_tensors(context, t->config, t->config_size, t->list, t->count, NULL, out);
}

static logits run(napier_context *context, const napier_model *model, const tiny_model *m) {
    int64_t ids[TOKENS];
    logits made;
    for (int64_t i = 0; i < TOKENS; i++) {
        ids[i] = i * 7 % 80;
    }
    model_logits(context, model, m, ids, TOKENS, made.at);
    return made;
}

static logits logits_of(napier_context *context, const tiny_tensors *t, const tiny_model *m) {
    napier_model *model = NULL;
    succeeded(context, make(context, t, &model), "from tensors");
    const logits made = run(context, model, m);
    napier_model_destroy(context, model);
    return made;
}

static bool same(const logits *a, const logits *b) { return memcmp(a, b, sizeof *a) == 0; }

static int64_t elements(const napier_named_tensor *t) {
    int64_t count = 1;
    for (int64_t d = 0; d < t->ndim; d++) {
        count *= t->shape[d];
    }
    return count;
}

static void fill(const napier_named_tensor *t, float value) {
    for (int64_t i = 0; i < elements(t); i++) {
        ((float *)(uintptr_t)t->data)[i] = value;
    }
}

/* ---- Which experts run ------------------------------------------------------------------------------------------- */

/* A router of zeros makes all experts equal, so that only the first two run, whatever the others hold. */
static void test_ties(napier_context *context) {
    const tiny_model m = mixture();
    TENSORS(t, &m);
    for (int64_t k = 0; k < t.count; k++) {
        if (strstr(t.list[k].name, "mlp.gate.weight")) {
            fill(&t.list[k], 0);
        }
    }
    const logits wanted = logits_of(context, &t, &m);
    for (int64_t k = 0; k < t.count; k++) {
        const char *const expert = strstr(t.list[k].name, "experts.");
        if (expert && expert[8] >= '0' + CHOSEN) {
            fill(&t.list[k], NAN);
        }
    }
    const logits got = logits_of(context, &t, &m);
    expect(isfinite(wanted.at[0]) && same(&got, &wanted), "other experts than the first two have run");
}

/* A token whose embedding is NaN, in another sequence of the batch. */
static void test_nan_rows(napier_context *context) {
    const tiny_model m = mixture();
    TENSORS(t, &m);
    const int64_t ids[] = {1, 82, 3, 82, 4, 5, 6}, offsets[] = {0, 1, 4, 7};
    float both[7 * VOCABULARY], alone[3 * VOCABULARY];
    napier_model *model = NULL;
    float *const embedding = (float *)(uintptr_t)tiny_tensors_find(&t, "model.embed_tokens.weight")->data;
    for (int64_t i = 0; i < HIDDEN; i++) {
        embedding[82 * HIDDEN + i] = NAN;
    }
    succeeded(context, make(context, &t, &model), "from tensors");
    succeeded(context,
              napier_model_forward(context, model, napier_indices_i64(ids, 7), napier_indices_i64(offsets, 4),
                                   napier_rows_f32(NULL, 0, 0), napier_rows_f32(both, 7, VOCABULARY), NULL, NULL),
              "forward");
    model_logits(context, model, &m, ids + 4, 3, alone);
    const float *const third = both + 4 * VOCABULARY;
    bool equal = isnan(both[VOCABULARY]);
    for (int64_t i = 0; i < 3 * VOCABULARY; i++) { /* the head's column of the NaN is NaN everywhere: it is tied */
        equal = equal && (i % VOCABULARY == 82 || memcmp(&third[i], &alone[i], sizeof(float)) == 0);
    }
    expect(equal && isfinite(third[0]), "a row of NaN changes other rows, or is none");
    napier_model_destroy(context, model);
}

/* ---- Fused tensors ----------------------------------------------------------------------------------------------- */

/* Moves the experts of a layer to two tensors, as transformers 5 has them in memory. */
static void fuse(tiny_tensors *t, int layer, int64_t shapes[2][3], char names[2][64]) {
    const int64_t size = WIDTH * HIDDEN;
    float *const gate_up = malloc(EXPERTS * 2 * (size_t)size * sizeof *gate_up);
    float *const down = malloc(EXPERTS * (size_t)size * sizeof *down);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "model.layers.%d.mlp.experts.", layer);
    int64_t kept = 0;
    for (int64_t k = 0; k < t->count; k++) {
        const napier_named_tensor *const one = &t->list[k];
        if (strncmp(one->name, prefix, strlen(prefix)) != 0) {
            t->list[kept++] = *one;
            continue;
        }
        const int64_t expert = one->name[strlen(prefix)] - '0';
        float *const to = strstr(one->name, "gate_proj") ? gate_up + expert * 2 * size
                          : strstr(one->name, "up_proj") ? gate_up + (expert * 2 + 1) * size
                                                         : down + expert * size;
        memcpy(to, one->data, (size_t)size * sizeof *to);
        free((void *)(uintptr_t)one->data);
    }
    snprintf(names[0], sizeof names[0], "%sgate_up_proj", prefix);
    snprintf(names[1], sizeof names[1], "%sdown_proj", prefix);
    shapes[0][0] = shapes[1][0] = EXPERTS;
    shapes[0][1] = 2 * WIDTH, shapes[0][2] = shapes[1][1] = HIDDEN, shapes[1][2] = WIDTH;
    t->list[kept++] = (napier_named_tensor){names[0], gate_up, shapes[0], 3, NAPIER_F32};
    t->list[kept++] = (napier_named_tensor){names[1], down, shapes[1], 3, NAPIER_F32};
    t->count = kept;
}

static void test_fused(napier_context *context) {
    const tiny_model m = mixture();
    tiny_model other = mixture();
    other.seed = 2;
    int64_t shapes[2][2][3];
    char names[2][2][64];
    TENSORS(t, &m);
    TENSORS(u, &other);
    const logits wanted = logits_of(context, &t, &m), next = logits_of(context, &u, &m);
    napier_model *model = NULL;
    fuse(&t, 0, shapes[0], names[0]);
    fuse(&u, 0, shapes[1], names[1]);
    succeeded(context, make(context, &t, &model), "fused");
    logits got = run(context, model, &m);
    expect(same(&got, &wanted), "fused tensors: other bits");
    succeeded(context, napier_model_update(context, model, u.list, u.count), "update");
    got = run(context, model, &m);
    expect(same(&got, &next), "fused tensors after an update: other bits");
    napier_model_destroy(context, model);
    t.count--;
    invalid(context, make(context, &t, &model), "experts.down_proj", "not among");
    t.count++;
    shapes[0][0][1]--;
    invalid(context, make(context, &t, &model), "gate_up_proj", "[5, 39, 32]", "[5, 40, 32]");
}

/* ---- Configs ----------------------------------------------------------------------------------------------------- */

static napier_status with(napier_context *context, const char *more) {
    tiny_model m = mixture();
    m.more = more;
    TENSORS(t, &m);
    napier_model *model = NULL;
    const napier_status status = make(context, &t, &model);
    if (!status) {
        napier_model_info info = NAPIER_MODEL_INFO_INIT;
        succeeded(context, napier_model_get_info(context, model, &info), "info");
        expect(info.experts == EXPERTS && info.experts_per_token == CHOSEN && info.expert_intermediate == WIDTH,
               "info");
    }
    napier_model_destroy(context, model);
    return status;
}

static void test_configs(napier_context *context) {
    static const struct {
        const char *more, *says;
        napier_status status;
    } refusals[] = {
        {", \"num_local_experts\": 6", "num_experts: 5, but num_local_experts is 6", NAPIER_CORRUPT_DATA},
        {", \"mlp_only_layers\": 3", "mlp_only_layers: 3, where an array", NAPIER_CORRUPT_DATA},
        {", \"mlp_only_layers\": [2]", "mlp_only_layers: 2 is no layer", NAPIER_CORRUPT_DATA},
        {", \"mlp_only_layers\": [\"a\"]", "mlp_only_layers", NAPIER_CORRUPT_DATA},
        {", \"mlp_only_layers\": [1]", "layers.1.mlp.gate_proj.weight: not among", NAPIER_INVALID_ARGUMENT},
        {", \"use_sliding_window\": 7", "use_sliding_window", NAPIER_CORRUPT_DATA},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refused(context, with(context, refusals[i].more), refusals[i].status, refusals[i].says, NULL);
    }
    succeeded(context, with(context, ", \"num_local_experts\": 5, \"mlp_only_layers\": []"), "transformers 5");
    tiny_model m = mixture();
    napier_model *model = NULL;
    m.experts = 1;
    TENSORS(t, &m);
    refused(context, make(context, &t, &model), NAPIER_CORRUPT_DATA, "num_experts_per_tok", NULL);
}

/* 2.6 GB of views of experts, on the word of the config: refused before memory is asked for. */
static void test_boasting_config(void) {
    const tiny_model m = mixture();
    ledger l = LEDGER_INIT;
    napier_context *const context = ledger_context(&l, 1);
    napier_model *model = NULL;
    TENSORS(t, &m);
    static const char config[] =
        "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 32, \"num_hidden_layers\": 16000, \"num_attention_heads\": 4,"
        " \"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 48, \"vocab_size\": 83,"
        " \"num_experts\": 1024, \"moe_intermediate_size\": 1}";
    const size_t before = l.most = l.now;
    invalid(context, napier_model_from_tensors(context, config, strlen(config), t.list, t.count, NULL, &model),
            "16000 layers", "experts alone");
    expect(l.most - before < 1 << 20, "%zu bytes were taken", l.most - before);
    napier_context_destroy(context);
}

static napier_status make_and_run(napier_context *context, void *argument) {
    const tiny_tensors *const t = argument;
    const int64_t ids[] = {1, 2, 3};
    float made[3 * VOCABULARY];
    napier_model *model = NULL;
    napier_status status = make(context, t, &model);
    status = status
                 ? status
                 : napier_model_forward(context, model, napier_indices_i64(ids, 3), napier_indices_i64(NULL, 0),
                                        napier_rows_f32(NULL, 0, 0), napier_rows_f32(made, 3, VOCABULARY), NULL, NULL);
    napier_model_destroy(context, model);
    return status;
}

static void test_memory(void) {
    const tiny_model m = mixture();
    TENSORS(t, &m);
    check_allocations("a mixture of experts", make_and_run, &t);
}

int main(void) {
    return RUN_TESTS("experts", TEST_1(test_ties), TEST_1(test_nan_rows), TEST_1(test_fused), TEST_1(test_configs),
                     TEST(test_boasting_config), TEST(test_memory));
}
