/* bench/workers/napier_model.c - log-probabilities of responses under a Qwen3 model, in f32 and in bf16. */
#ifdef NAPIER_MODEL
#include "napier_cases.h"

#include <napier/model.h>
#include <string.h>

enum { MOST_RESPONSES = 1024 };

static napier_model *models[2]; /* f32 and bf16, each loaded when it is first asked for */
static napier_score_batch batch;
static napier_score_results results;
static int64_t offsets[MOST_RESPONSES + 1], prompt_of[MOST_RESPONSES], prompts[2];
static int64_t response_tokens, responses;

static const char *load(const int mode) {
    napier_model_options how = NAPIER_MODEL_OPTIONS_INIT;
    how.compute = mode == 0 ? NAPIER_COMPUTE_F32 : NAPIER_COMPUTE_BF16;
    return models[mode] ? NULL : refusal_of(napier_model_load(context, bench_text("model"), &how, &models[mode]));
}

/* The ids of a prompt, and of its responses one after another, are inputs. */
static const char *set_up(const bench_case *const self) {
    const napier_score_batch no_batch = NAPIER_SCORE_BATCH_INIT;
    const napier_score_results no_results = NAPIER_SCORE_RESULTS_INIT;
    const int64_t prompt_tokens = bench_number("prompt"), tokens = (int64_t)(bench_input_bytes("responses") / 4);
    response_tokens = bench_number("response");
    responses = response_tokens > 0 ? tokens / response_tokens : 0;
    if (responses < 1 || responses > MOST_RESPONSES) {
        return "that many responses are not for this worker";
    }
    for (int64_t i = 0; i <= responses; i++) {
        offsets[i] = i * response_tokens;
    }
    prompts[1] = prompt_tokens;
    batch = no_batch;
    batch.prompt_ids = napier_indices_i32(bench_input("prompt"), prompt_tokens);
    batch.prompt_offsets = napier_indices_i64(prompts, 2);
    batch.response_ids = napier_indices_i32(bench_input("responses"), tokens);
    batch.response_offsets = napier_indices_i64(offsets, responses + 1);
    batch.prompt_of = napier_indices_i64(prompt_of, responses);
    results = no_results;
    results.logprobs = napier_array_f32(bench_result("logprobs", (size_t)tokens * sizeof(float)), tokens);
    (void)self;
    const char *const refusal = load(0);
    return refusal ? refusal : load(1);
}

/* Separate calls, which is what a caller without a batch would make. */
static napier_status one_by_one(napier_model *const model) {
    napier_score_batch single = batch;
    napier_score_results mine = results;
    napier_status status = NAPIER_OK;
    const int32_t *const ids = batch.response_ids.data;
    float *const logprobs = results.logprobs.data;
    for (int64_t i = 0; i < responses && status == NAPIER_OK; i++) {
        single.response_ids = napier_indices_i32(ids + i * response_tokens, response_tokens);
        single.response_offsets = napier_indices_i64(offsets, 2);
        single.prompt_of = napier_indices_i64(prompt_of, 1);
        mine.logprobs = napier_array_f32(logprobs + i * response_tokens, response_tokens);
        status = napier_model_batch_logprobs(context, model, &single, NULL, &mine);
    }
    return status;
}

static unsigned score(const int variant) {
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_model *const model = models[variant % 2];
    (void)bench_result("logprobs", 0);
    if (variant >= 4) {
        return (unsigned)one_by_one(model);
    }
    options.unshared = variant >= 2;
    return (unsigned)napier_model_batch_logprobs(context, model, &batch, &options, &results);
}

const bench_case model_cases[] = {
    {"score", set_up, score, {"napier_f32", "napier_bf16"}},
    {"share",
     set_up,
     score,
     {"napier_f32", "napier_bf16", "unshared_f32", "unshared_bf16", "one_by_one_f32", "one_by_one_bf16"}},
    {.name = NULL},
};
#else
typedef int nothing_here; /* a build without the tokenizer and the model */
#endif
