/* struct_size of the structs of napier/model.h, napier/generate.h and napier/tokenizer.h: as test_struct_size.c. */
#include <stdlib.h>
#include <string.h>

#include <napier/generate.h>

#include "support/structs.h"
#include "unit/lm/lm_support.h"
#include "support/tiny_tokenizer.h"

enum { RESPONSES = 2, TOKENS = 4 };

static tiny_model written = TINY_MODEL_INIT;
static napier_model *model;
static napier_tokenizer *tokenizer;
static const int64_t ids[] = {3, 17, 5, 60, 8, 2}, prompt_offsets[] = {0, 3, 5}, offsets[] = {0, 2, TOKENS};
static const double values[] = {1, 0};

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

static napier_status encode(napier_context *context, void *s, double *number) {
    static const char text[] = "the <|im_end|> of it";
    napier_token_buffer made = {0};
    const napier_status status = napier_tokenizer_encode(context, tokenizer, text, sizeof text - 1, s, &made);
    for (size_t i = 0; i < (size_t)made.size && i < STRUCT_NUMBERS; i++) {
        number[i] = made.ids[i];
    }
    napier_token_buffer_free(context, &made);
    return status;
}

static napier_status text_of(napier_context *context, napier_status status, napier_text_buffer *made, double *number) {
    for (size_t i = 0; i < made->size && i < STRUCT_NUMBERS; i++) {
        number[i] = made->bytes[i];
    }
    napier_text_buffer_free(context, made);
    return status;
}
static napier_status decode(napier_context *context, void *s, double *number) {
    static const int32_t tokens[] = {64, 65, 66};
    napier_text_buffer made = {0};
    const napier_status status = napier_tokenizer_decode(context, tokenizer, tokens, 3, s, &made);
    return text_of(context, status, &made, number);
}
static napier_status chat(napier_context *context, void *s, double *number) {
    static const napier_chat_message messages[] = {{.role = "user", .content = "Hi", .size = 2}};
    napier_text_buffer made = {0};
    return text_of(context, napier_chat_text(context, messages, 1, s, &made), &made, number);
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

static napier_status load(napier_context *context, void *s, double *number) {
    napier_model *made = NULL;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    const napier_status status = napier_model_load(context, written.directory, s, &made);
    if (!status) {
        succeeded(context, napier_model_get_info(context, made, &info), "info");
        number[0] = (double)info.memory;
        number[1] = (double)info.compute;
    }
    napier_model_destroy(context, made);
    return status;
}
static napier_status info(napier_context *context, void *s, double *number) {
    (void)number;
    return napier_model_get_info(context, model, s);
}

static void fill_batch(void *s) {
    napier_score_batch *const b = s;
    b->prompt_ids = napier_indices_i64(ids, 5);
    b->prompt_offsets = napier_indices_i64(prompt_offsets, RESPONSES + 1);
    b->response_ids = napier_indices_i64(ids, TOKENS);
    b->response_offsets = napier_indices_i64(offsets, RESPONSES + 1);
}
static void fill_batch_of(void *s) {
    static const int64_t prompt_of[RESPONSES] = {1, 0};
    fill_batch(s);
    ((napier_score_batch *)s)->prompt_of = napier_indices_i64(prompt_of, RESPONSES);
}

static float logprobs[TOKENS];
static uint8_t greedy[TOKENS];
static void fill_results(void *s) {
    napier_score_results *const r = s;
    r->logprobs = napier_array_f32(logprobs, TOKENS);
    r->is_greedy = greedy;
}
static napier_status run(napier_context *context, const napier_score_batch *batch, const napier_score_options *options,
                         const napier_score_results *results, double *number) {
    memset(logprobs, 0, sizeof logprobs);
    memset(greedy, 7, sizeof greedy);
    const napier_status status = napier_model_batch_logprobs(context, model, batch, options, results);
    for (int i = 0; i < TOKENS; i++) {
        number[i] = (double)logprobs[i];
        number[TOKENS + i] = greedy[i];
    }
    return status;
}
static napier_status batch(napier_context *context, void *s, double *number) {
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    fill_results(&r);
    return run(context, s, NULL, &r, number);
}
static napier_status options(napier_context *context, void *s, double *number) {
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    fill_batch(&b);
    fill_results(&r);
    return run(context, &b, s, &r, number);
}
static napier_status results(napier_context *context, void *s, double *number) {
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    fill_batch(&b);
    return run(context, &b, NULL, s, number);
}
static napier_status plan(napier_context *context, void *s, double *number) {
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    (void)number;
    fill_batch(&b);
    return napier_model_batch_plan(context, model, &b, NULL, s);
}

static void fill_judge(void *s) {
    static const float weights[] = {3};
    napier_judge_batch *const b = s;
    b->prompt_ids = napier_indices_i64(ids, 5);
    b->prompt_offsets = napier_indices_i64(prompt_offsets, RESPONSES + 1);
    b->criteria = 1;
    b->verdict_ids = napier_indices_i64(ids, TOKENS);
    b->verdict_offsets = napier_indices_i64(offsets, 3);
    b->values = values;
    b->weights = napier_const_array_f32(weights, 1);
}
static napier_status judge(napier_context *context, void *s, double *number) {
    float rewards[RESPONSES] = {0};
    const napier_matrix none = napier_rows_f32(NULL, 0, 0);
    const napier_status status =
        napier_model_judge(context, model, s, NULL, none, napier_array_f32(rewards, RESPONSES), none);
    number[0] = (double)rewards[0];
    number[1] = (double)rewards[1];
    return status;
}

enum { NEW_TOKENS = 16 };

static int64_t generated[RESPONSES * NEW_TOKENS], lengths[RESPONSES];

static void fill_generate_batch(void *s) {
    napier_generate_batch *const b = s;
    b->prompt_ids = napier_indices_i64(ids, 5);
    b->prompt_offsets = napier_indices_i64(prompt_offsets, RESPONSES + 1);
}
static void fill_generate_results(void *s) {
    napier_generate_results *const r = s;
    r->ids = generated;
    r->lengths = lengths;
}
static napier_status generate(napier_context *context, const napier_generate_batch *batch,
                              const napier_generate_options *options, const napier_generate_results *results,
                              double *number) {
    memset(generated, 0, sizeof generated);
    const napier_status status = napier_generate(context, model, batch, options, results);
    for (int i = 0; i < RESPONSES * NEW_TOKENS; i++) {
        number[i] = (double)generated[i];
    }
    return status;
}
static napier_status generate_batch(napier_context *context, void *s, double *number) {
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    fill_generate_results(&r);
    return generate(context, s, NULL, &r, number);
}
static napier_status generate_options(napier_context *context, void *s, double *number) {
    napier_generate_batch b = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    fill_generate_batch(&b);
    fill_generate_results(&r);
    return generate(context, &b, s, &r, number);
}
static napier_status generate_results(napier_context *context, void *s, double *number) {
    napier_generate_batch b = NAPIER_GENERATE_BATCH_INIT;
    fill_generate_batch(&b);
    return generate(context, &b, NULL, s, number);
}

/* ---- The test ---------------------------------------------------------------------------------------------------- */

static const structure all[] = {
    STRUCTURE(napier_encode_options, NAPIER_ENCODE_OPTIONS_INIT, "options", plain_special, NULL, encode),
    STRUCTURE(napier_decode_options, NAPIER_DECODE_OPTIONS_INIT, "options", skip_special, NULL, decode),
    STRUCTURE(napier_chat_options, NAPIER_CHAT_OPTIONS_INIT, "options", tools, NULL, chat),
    STRUCTURE(napier_model_options, NAPIER_MODEL_OPTIONS_INIT, "options", memory, NULL, load),
    STRUCTURE(napier_score_batch, NAPIER_SCORE_BATCH_INIT, "batch", prompt_of, fill_batch_of, batch),
    STRUCTURE(napier_score_options, NAPIER_SCORE_OPTIONS_INIT, "options", kvs, NULL, options),
    STRUCTURE(napier_score_results, NAPIER_SCORE_RESULTS_INIT, "results", is_greedy, fill_results, results),
    STRUCTURE(napier_judge_batch, NAPIER_JUDGE_BATCH_INIT, "batch", weights, fill_judge, judge),
    STRUCTURE(napier_generate_batch, NAPIER_GENERATE_BATCH_INIT, "batch", numbers, fill_generate_batch, generate_batch),
    STRUCTURE(napier_generate_options, NAPIER_GENERATE_OPTIONS_INIT, "options", on_text, NULL, generate_options),
    STRUCTURE(napier_generate_results, NAPIER_GENERATE_RESULTS_INIT, "results", text_offsets, fill_generate_results,
              generate_results),
    RESULT_STRUCTURE(napier_model_info, NAPIER_MODEL_INFO_INIT, "info", family, info),
    RESULT_STRUCTURE(napier_score_plan, NAPIER_SCORE_PLAN_INIT, "plan", bytes, plan),
};

static void test_versions(napier_context *context) {
    tiny_model_write(&written);
    model = model_load(context, &written, NAPIER_COMPUTE_F32, 0);
    succeeded(context, tiny_load(context, NULL, NULL, &tokenizer), "tokenizer");
    check_structures(context, all, sizeof all / sizeof *all);
    napier_tokenizer_destroy(context, tokenizer);
    napier_model_destroy(context, model);
    tiny_model_remove(&written);
}

int main(void) { return RUN_TESTS("model_struct_size", TEST_1(test_versions)); }
