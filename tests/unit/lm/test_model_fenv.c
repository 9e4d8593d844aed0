/* test_model_fenv - every public call of tokenizer and model under every floating-point state that a caller may have:
 * fenv_support.h. */
#include "unit/core/fenv_support.h"

#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"

enum { PROMPT = 9, TOKENS = 14, HIDDEN = 32, WORDS = 83 };

static tiny_model tiny = TINY_MODEL_INIT;
static const int32_t ids[PROMPT + TOKENS] = {5,  17, 3, 80, 2,  44, 9, 61, 12, 33, 7, 8,
                                             71, 20, 6, 1,  15, 52, 4, 11, 40, 30, 27};
static const int32_t two[2] = {0, PROMPT}, three[3] = {0, 6, TOKENS}, zeros[2] = {0, 0};

static napier_indices some(const int32_t *data, int64_t size) { return napier_indices_i32(data, size); }

static void tokenizer_calls(void) {
    static const char words[] = "Rounding <|im_end|> 0.1, up and down";
    const napier_chat_message message = {.role = "user", .content = words, .size = sizeof words - 1};
    const napier_text texts[2] = {{words, sizeof words - 1}, {words, 8}};
    napier_context *c = fenv_test.context;
    napier_tokenizer *t = NULL, *read = NULL;
    napier_token_buffer tokens = {0};
    napier_text_buffer text = {0};
    int64_t offsets[3] = {0};
    size_t size = 0;
    char path[sizeof tiny.directory + 20];
    snprintf(path, sizeof path, "%s/tokenizer.json", tiny.directory);
    file_write(path, tiny_tokenizer_json, TINY_SIZE);
    CALL(napier_tokenizer_load, path, &read);
    remove(path);
    CALL(napier_tokenizer_from_json, (const char *)tiny_tokenizer_json, TINY_SIZE, &t);
    VOID(napier_tokenizer_destroy, c, read);
    CALL(napier_tokenizer_encode, t, words, sizeof words - 1, NULL, &tokens);
    fenv_keep(tokens.ids, (size_t)tokens.size * sizeof *tokens.ids);
    CALL(napier_tokenizer_decode, t, tokens.ids, tokens.size, NULL, &text), fenv_keep(text.bytes, text.size);
    CALL(napier_chat_text, &message, 1, NULL, &text), fenv_keep(text.bytes, text.size);
    CALL(napier_model_encode_texts, t, texts, 2, NULL, &tokens, offsets), KEEP(offsets);
    VOID(napier_tokenizer_token, t, 5, &size);
    GIVES(int64_t, napier_tokenizer_vocab_size, t);
    GIVES(int, napier_tokenizer_is_special, t, 5);
    GIVES(int64_t, napier_tokenizer_id, t, "a", 1);
    VOID(napier_token_buffer_free, c, &tokens);
    VOID(napier_text_buffer_free, c, &text);
    napier_tokenizer_destroy(c, t);
}

static void model_calls(napier_compute compute) {
    static float hidden[TOKENS * HIDDEN], logits[TOKENS * WORDS], logprobs[TOKENS], entropy[TOKENS], scores[4];
    static const double values[2] = {0.3, 0.7};
    napier_model_options mo = NAPIER_MODEL_OPTIONS_INIT;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    napier_score_options so = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    napier_score_plan plan = NAPIER_SCORE_PLAN_INIT;
    napier_judge_batch j = NAPIER_JUDGE_BATCH_INIT;
    napier_model *m = NULL;
    napier_const_matrix head;
    mo.compute = compute;
    so.temperature = 0.7;
    b.prompt_ids = some(ids, PROMPT), b.prompt_offsets = some(two, 2), b.prompt_of = some(zeros, 2);
    b.response_ids = some(ids + PROMPT, TOKENS), b.response_offsets = some(three, 3);
    r.logprobs = napier_array_f32(logprobs, TOKENS), r.entropy = napier_array_f32(entropy, TOKENS);
    j.prompt_ids = some(ids, PROMPT), j.prompt_offsets = some(two, 2), j.criteria = 1, j.values = values;
    j.verdict_ids = some(ids + PROMPT, TOKENS), j.verdict_offsets = some(three, 3);
    CALL(napier_model_load, tiny.directory, &mo, &m);
    CALL(napier_model_get_info, m, &info), fenv_keep(&info, sizeof info);
    fenv_begin("napier_model_head"), head = napier_model_head(m), fenv_end();
    fenv_keep(head.data, (size_t)(head.rows * head.cols) * sizeof(float));
    CALL(napier_model_forward, m, some(ids, TOKENS), some(three, 3), napier_rows_f32(hidden, TOKENS, HIDDEN),
         napier_rows_f32(logits, TOKENS, WORDS), NULL, NULL),
        KEEP(hidden), KEEP(logits);
    CALL(napier_model_batch_plan, m, &b, &so, &plan);
    CALL(napier_model_batch_logprobs, m, &b, &so, &r), KEEP(logprobs), KEEP(entropy);
    CALL(napier_model_logprobs_for, m, b.prompt_ids, b.response_ids, &so, &r), KEEP(logprobs), KEEP(entropy);
    CALL(napier_model_judge, m, &j, &so, napier_rows_f32(scores, 1, 1), napier_array_f32(scores + 1, 1),
         napier_rows_f32(scores + 2, 1, 2)),
        KEEP(scores);
    VOID(napier_model_destroy, fenv_test.context, m);
}

static void all_calls(void) {
    tokenizer_calls();
    model_calls(NAPIER_COMPUTE_F32);
    model_calls(NAPIER_COMPUTE_BF16);
}

static void test_every_call_in_every_state(void) {
    tiny_model_write(&tiny);
    assert_true(tiny.directory[0] != '\0');
    fenv_run(all_calls);
    tiny_model_remove(&tiny);
    fenv_covers("tokenizer.h");
    fenv_covers("model.h");
}

int main(void) { return RUN_TESTS("model_fenv", TEST(test_every_call_in_every_state)); }
