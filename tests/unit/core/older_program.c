/* A program as 0.1 had them, with that version's structs: it compiles and runs, and warns of old names (docs/upgrading.md). */
#include <napier/napier.h>
#include <stdio.h>
#include <string.h>

/* napier_context_options of 0.1. */
typedef struct old_context_options {
    size_t struct_size;
    int threads;
    napier_isa highest_isa;
    napier_allocator allocator;
} old_context_options;

#define EXPECT(condition) \
    ((condition) ? (void)0 : (void)(printf("FAIL  line %d: %s\n", __LINE__, #condition), failures++))
static int failures;

static void softmax(napier_context *context) {
    const float logits[] = {1000.0F, 1001.0F, 1002.0F};
    float probs[3], logprobs[3], again[3];
    EXPECT(napier_softmax(context, napier_const_rows_f32(logits, 1, 3), napier_rows_f32(probs, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(probs[2] > 0.6652F && probs[2] < 0.6653F);
    EXPECT(napier_fused_log_softmax(context, napier_const_rows_f32(logits, 1, 3), napier_rows_f32(again, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(napier_log_softmax(context, napier_const_rows_f32(logits, 1, 3), napier_rows_f32(logprobs, 1, 3), NULL) ==
           NAPIER_OK);
    EXPECT(memcmp(logprobs, again, sizeof again) == 0);
}

static void state_as_bytes(napier_context *context) {
    const float logits[] = {1, 2, 3};
    unsigned char bytes[20480];
    double lse = 0;
    napier_softmax_state *state = NULL, *copy = NULL;
    EXPECT(napier_softmax_state_create(context, NAPIER_F32, 0, NULL, &state) == NAPIER_OK);
    EXPECT(napier_softmax_state_update(context, state, napier_const_array_f32(logits, 3)) == NAPIER_OK);
    EXPECT(napier_softmax_state_save(context, state, bytes, sizeof bytes) == NAPIER_OK);
    EXPECT(napier_softmax_state_load(context, bytes, napier_softmax_state_size(state), &copy) == NAPIER_OK);
    EXPECT(napier_softmax_state_finish(context, copy, &lse) == NAPIER_OK && lse > 3.4076 && lse < 3.4077);
    napier_softmax_state_destroy(copy);
    napier_softmax_state_destroy(state);
}

static void map(napier_context *context) {
    float data[20];
    for (int i = 0; i < 20; i++) {
        data[i] = (float)(i * i % 17);
    }
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.neighbors.n_neighbors = 3;
    napier_umap_model *model = NULL, *copy = NULL;
    const napier_umap_samples samples = {.dense = napier_const_rows_f32(data, 10, 2)};
    EXPECT(napier_umap_fit(context, samples, &options, &model) == NAPIER_OK);
    EXPECT(napier_umap_model_embedding(model).rows == 10 && napier_umap_model_lost(model) == 0);
    EXPECT(napier_umap_model_of(context, samples, &options, napier_umap_model_embedding(model), &copy) == NAPIER_OK);
    napier_umap_model_destroy(context, copy);
    napier_umap_model_destroy(context, model);
}

static void loss(void) {
    const napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    EXPECT(options.level == NAPIER_GRPO_TOKEN && NAPIER_GRPO_SEQUENCE == NAPIER_GRPO_LEVEL_SEQUENCE);
}

int main(void) {
    old_context_options options = {sizeof options, 2, NAPIER_ISA_SCALAR, {NULL, NULL, NULL}};
    napier_context *context = NULL;
    EXPECT(napier_context_create(&context, (const napier_context_options *)(const void *)&options) == NAPIER_OK);
    if (context != NULL) {
        softmax(context);
        state_as_bytes(context);
        map(context);
        loss();
    }
    napier_context_destroy(context);
    return failures > 0;
}
