/* model - language models and reward models: the functions of napier/model.h. */
#include "example.h"
#include "support/tiny_model.h"

/* In place of your own: directories of a language model and a reward model with random weights, and such weights in
 * memory. */
static const char *directory, *reward_directory;
static tiny_tensors weights;

static napier_model *load(napier_context *context, const char *path) {
    napier_model *model = NULL;
    EXPECT(napier_model_load(context, path, NULL, &model) == NAPIER_OK);
    return model;
}

/* A directory with config.json and model.safetensors becomes a model. The weights are mapped, not read. Its tensors can be
 * listed. */
static void load_a_model(napier_context *context) {
    napier_model *model = NULL;
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    options.memory = 64 << 20;
    EXPECT(napier_model_load(context, directory, &options, &model) == NAPIER_OK);
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    EXPECT(napier_model_get_info(context, model, &info) == NAPIER_OK);
    printf("%s: %d layers, %d parameters\n", info.family, (int)info.layers, (int)info.parameters);
    EXPECT(napier_model_head(model).rows == info.vocabulary && napier_model_head(model).cols == info.hidden);
    napier_named_tensor tensor;
    EXPECT(napier_model_tensor(context, model, 0, &tensor) == NAPIER_OK && napier_model_tensor_count(model) > 10);
    printf("first tensor: %s [%d, %d]\n", tensor.name, (int)tensor.shape[0], (int)tensor.shape[1]);
    napier_model_destroy(context, model);
}

/* A GGUF file says in its own way what the JSON of a model's folder says; this one says nothing. */
static void read_a_gguf_file(napier_context *context) {
    static const char empty[24] = "GGUF\3"; /* version 3, no tensors, no values */
    char path[300];
    napier_text_buffer json = {NULL, 0, 0};
    (void)snprintf(path, sizeof path, "%s/model.gguf", directory);
    FILE *const file = fopen(path, "wb");
    EXPECT(file && fwrite(empty, 1, sizeof empty, file) == sizeof empty && fclose(file) == 0);
    EXPECT(napier_gguf_document(context, path, "tokenizer_config.json", &json) == NAPIER_OK);
    printf("tokenizer_config.json: %.*s", (int)json.size, json.bytes);
    napier_text_buffer_free(context, &json);
    EXPECT(remove(path) == 0);
}

/* Weights in the caller's memory, such as a trainer's: the model reads them where they are. After each step tell it that
 * they have changed. */
static void follow_a_trainer(napier_context *context) {
    const int32_t id = 5;
    float before[32], after[32];
    napier_model *model = NULL;
    EXPECT(napier_model_from_tensors(context, weights.config, weights.config_size, weights.list, weights.count, NULL,
                                     &model) == NAPIER_OK);
    const napier_indices tokens = napier_indices_i32(&id, 1), one_sequence = napier_indices_i32(NULL, 0);
    const napier_matrix no_logits = {.dtype = NAPIER_F32};
    EXPECT(napier_model_forward(context, model, tokens, one_sequence, napier_rows_f32(before, 1, 32), no_logits, NULL,
                                NULL) == NAPIER_OK);
    float *const norm = (float *)(uintptr_t)tiny_tensors_find(&weights, "model.norm.weight")->data;
    norm[0] *= 2;
    EXPECT(napier_model_update(context, model, NULL, 0) == NAPIER_OK);
    EXPECT(napier_model_forward(context, model, tokens, one_sequence, napier_rows_f32(after, 1, 32), no_logits, NULL,
                                NULL) == NAPIER_OK);
    EXPECT(after[0] == 2 * before[0] && after[1] == before[1]);
    napier_model_destroy(context, model);
}

/* The log-probabilities of one response, given its prompt. */
static void score_a_response(napier_context *context) {
    const int32_t prompt[] = {5, 60, 12}, response[] = {7, 9};
    float logprobs[2];
    napier_model *const model = load(context, directory);
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(logprobs, 2);
    EXPECT(napier_model_logprobs_for(context, model, napier_indices_i32(prompt, 3), napier_indices_i32(response, 2),
                                     NULL, &results) == NAPIER_OK);
    EXPECT(logprobs[0] < 0 && logprobs[1] < 0);
    napier_model_destroy(context, model);
}

/* Many responses to few prompts: each prompt runs once. The plan says how much work that is before it is done. */
static void score_many_responses(napier_context *context) {
    const int32_t prompts[] = {5, 60, 12, 8}, prompt_offsets[] = {0, 4}, prompt_of[] = {0, 0, 0};
    const int32_t responses[] = {7, 9, 7, 9, 3}, offsets[] = {0, 2, 3, 5};
    float logprobs[5];
    napier_model *const model = load(context, directory);
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(prompts, 4);
    batch.prompt_offsets = napier_indices_i32(prompt_offsets, 2);
    batch.response_ids = napier_indices_i32(responses, 5);
    batch.response_offsets = napier_indices_i32(offsets, 4);
    batch.prompt_of = napier_indices_i32(prompt_of, 3);
    napier_score_plan plan = NAPIER_SCORE_PLAN_INIT;
    EXPECT(napier_model_batch_plan(context, model, &batch, NULL, &plan) == NAPIER_OK);
    EXPECT(plan.prompts == 1 && plan.tokens == 5 && plan.tokens_run < plan.tokens_unshared);
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(logprobs, 5);
    EXPECT(napier_model_batch_logprobs(context, model, &batch, NULL, &results) == NAPIER_OK);
    EXPECT(logprobs[0] == logprobs[2]); /* the same token after the same prompt has the same bits */
    napier_model_destroy(context, model);
}

/* A system prompt that many calls share runs once: keep its keys and values. The results have the same bits. */
static void keep_a_system_prompt(napier_context *context) {
    const int32_t prompt[] = {5, 60, 12, 8}, response[] = {7};
    float with, without;
    napier_model *const model = load(context, directory);
    napier_kv *kv = NULL;
    EXPECT(napier_kv_create(context, model, napier_indices_i32(prompt, 3), NULL, NULL, &kv) == NAPIER_OK);
    EXPECT(napier_kv_tokens(kv) == 3 && napier_kv_bytes(kv) > 0);
    const napier_kv *const kept[] = {kv};
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    options.kvs = kept;
    options.kv_count = 1;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(&with, 1);
    const napier_indices p = napier_indices_i32(prompt, 4), r = napier_indices_i32(response, 1);
    EXPECT(napier_model_logprobs_for(context, model, p, r, &options, &results) == NAPIER_OK);
    results.logprobs = napier_array_f32(&without, 1);
    EXPECT(napier_model_logprobs_for(context, model, p, r, NULL, &results) == NAPIER_OK);
    EXPECT(with == without);
    napier_kv *longer = NULL; /* of {5, 60, 12, 8}: only the 8 runs */
    EXPECT(napier_kv_extend(context, kv, napier_indices_i32(prompt + 3, 1), NULL, NULL, &longer) == NAPIER_OK);
    EXPECT(napier_kv_tokens(longer) == 4);
    napier_kv_destroy(context, longer);
    napier_kv_destroy(context, kv);
    napier_model_destroy(context, model);
}

/* A reward model gives numbers for each prompt with its response. */
static void rewards_of_responses(napier_context *context) {
    const int32_t prompts[] = {5, 60, 12}, responses[] = {7, 9}, prompt_offsets[] = {0, 2, 3}, offsets[] = {0, 1, 2};
    float rewards[2];
    napier_model *const model = load(context, reward_directory);
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(prompts, 3);
    batch.prompt_offsets = napier_indices_i32(prompt_offsets, 3);
    batch.response_ids = napier_indices_i32(responses, 2);
    batch.response_offsets = napier_indices_i32(offsets, 3);
    EXPECT(napier_model_rewards(context, model, &batch, NULL, napier_rows_f32(rewards, 2, 1)) == NAPIER_OK);
    EXPECT(isfinite(rewards[0]) && rewards[0] != rewards[1]);
    napier_model_destroy(context, model);
}

/* A language model as a judge: which of two verdicts does it find more probable after the question? */
static void judge_responses(napier_context *context) {
    napier_tokenizer *tokenizer = NULL;
    EXPECT(napier_tokenizer_load(context, "tests/support/tiny_tokenizer.json", &tokenizer) == NAPIER_OK);
    const napier_text questions[] = {{"Is 4 even?", 10}, {"Is 5 even?", 10}}, verdicts[] = {{"Yes", 3}, {"No", 2}};
    const double values[] = {1, 0};
    napier_token_buffer question_ids = {0}, verdict_ids = {0};
    int64_t question_offsets[3], verdict_offsets[3];
    EXPECT(napier_model_encode_texts(context, tokenizer, questions, 2, NULL, &question_ids, question_offsets) ==
           NAPIER_OK);
    EXPECT(napier_model_encode_texts(context, tokenizer, verdicts, 2, NULL, &verdict_ids, verdict_offsets) ==
           NAPIER_OK);
    napier_judge_batch batch = NAPIER_JUDGE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(question_ids.ids, question_ids.size);
    batch.prompt_offsets = napier_indices_i64(question_offsets, 3);
    batch.criteria = 1;
    batch.verdict_ids = napier_indices_i32(verdict_ids.ids, verdict_ids.size);
    batch.verdict_offsets = napier_indices_i64(verdict_offsets, 3);
    batch.values = values;
    float rewards[2];
    const napier_matrix absent = {.dtype = NAPIER_F32};
    napier_model *const model = load(context, directory);
    EXPECT(napier_model_judge(context, model, &batch, NULL, absent, napier_array_f32(rewards, 2), absent) == NAPIER_OK);
    EXPECT(rewards[0] > 0 && rewards[0] < 1); /* the share of Yes */
    napier_model_destroy(context, model);
    napier_token_buffer_free(context, &question_ids);
    napier_token_buffer_free(context, &verdict_ids);
    napier_tokenizer_destroy(context, tokenizer);
}

int main(void) {
    tiny_model language = TINY_MODEL_INIT, reward = TINY_MODEL_INIT;
    language.vocabulary = 290;
    reward.labels = 1;
    tiny_model_write(&language);
    tiny_model_write(&reward);
    directory = language.directory, reward_directory = reward.directory;
    weights = tiny_model_tensors(&language);
    const int status = run_examples((example *const[]){load_a_model, read_a_gguf_file, follow_a_trainer,
                                                       score_a_response, score_many_responses, keep_a_system_prompt,
                                                       rewards_of_responses, judge_responses, NULL});
    tiny_tensors_free(&weights);
    tiny_model_remove(&language);
    tiny_model_remove(&reward);
    return status;
}
