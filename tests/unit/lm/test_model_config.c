/* test_model_config - a config.json of Qwen3 0.6B's numbers in both styles of transformers, and what is refused: fields
 * that are missing or out of range, and those that ask for another computation. */
#include <stdlib.h>
#include <string.h>

#include "lm/decoder/model_config.h"
#include "support/check.h"

static napier_context *context;

/* As transformers 4 writes it. */
static const char whole[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0,\n"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645, \"head_dim\": 128, \"hidden_act\": \"silu\",\n"
    " \"hidden_size\": 1024, \"initializer_range\": 0.02, \"intermediate_size\": 3072,\n"
    " \"max_position_embeddings\": 40960, \"max_window_layers\": 28, \"model_type\": \"qwen3\",\n"
    " \"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06,\n"
    " \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, \"tie_word_embeddings\": true,\n"
    " \"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}\n";

/* What comes of reading it with `from` replaced by `to`. */
static napier_status parse(const char *from, const char *to, napier_model_config *config) {
    char text[4096] = "";
    const char *const place = strstr(whole, from);
    assert_non_null(place);
    strncat(text, whole, (size_t)(place - whole));
    strcat(text, to);
    strcat(text, place + strlen(from));
    return napier_model_config_parse(context, "config.json", text, strlen(text), config);
}

static void check_numbers(const napier_model_config *c) {
    expect(c->hidden_size == 1024 && c->num_hidden_layers == 28 && c->intermediate_size == 3072, "sizes");
    expect(c->num_attention_heads == 16 && c->num_key_value_heads == 8 && c->head_dim == 128, "heads");
    expect(c->vocab_size == 151936 && c->max_position_embeddings == 40960, "vocabulary, positions");
    expect(c->rms_norm_eps == 1e-6 && c->rope_theta == 1e6, "eps %g, theta %g", c->rms_norm_eps, c->rope_theta);
    expect(c->tie_word_embeddings == 1 && c->dtype == NAPIER_BF16, "tied %d, dtype %d", c->tie_word_embeddings,
           (int)c->dtype);
    expect(c->bos_token_id == 151643 && c->eos_count == 1 && c->eos_token_ids[0] == 151645, "bos, eos");
}

static void both_styles(void) {
    napier_model_config c;
    static const char *const styles[][2] = {
        {"{", "{"},
        {"\"rope_scaling\": null, \"rope_theta\": 1000000",
         "\"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": \"default\"}"},
        {"\"torch_dtype\"", "\"dtype\""}};
    for (int i = 0; i < 3; i++) {
        if (succeeded(context, parse(styles[i][0], styles[i][1], &c), styles[i][1])) {
            check_numbers(&c);
        }
    }
}

static void defaults(void) {
    napier_model_config c;
    succeeded(context, parse("\"head_dim\": 128,", "", &c), "head_dim");
    expect(c.head_dim == 128, "head_dim %lld", (long long)c.head_dim);
    succeeded(context, parse("\"head_dim\": 128", "\"head_dim\": 64", &c), "head_dim");
    expect(c.head_dim == 64, "head_dim %lld", (long long)c.head_dim);
    succeeded(context, parse("\"num_key_value_heads\": 8,", "", &c), "num_key_value_heads");
    expect(c.num_key_value_heads == 16, "num_key_value_heads %lld", (long long)c.num_key_value_heads);
    succeeded(context, parse("\"tie_word_embeddings\": true,", "", &c), "tie_word_embeddings");
    expect(c.tie_word_embeddings == 0, "tied without a word");
    succeeded(context, parse("\"rms_norm_eps\": 1e-06,", "", &c), "rms_norm_eps");
    expect(c.rms_norm_eps == 1e-6, "eps %g", c.rms_norm_eps);
    succeeded(context, parse("\"bos_token_id\": 151643", "\"bos_token_id\": null", &c), "bos_token_id");
    expect(c.bos_token_id == -1, "bos %lld", (long long)c.bos_token_id);
    succeeded(context, parse("\"eos_token_id\": 151645", "\"eos_token_id\": [151645, 151643]", &c), "eos_token_id");
    expect(c.eos_count == 2 && c.eos_token_ids[1] == 151643, "%d eos", c.eos_count);
    succeeded(context, parse("\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": \"auto\"", &c), "torch_dtype");
    expect(c.dtype == 0, "dtype %d", (int)c.dtype);
    succeeded(context, parse("\"max_position_embeddings\": 40960,", "", &c), "max_position_embeddings");
    expect(c.max_position_embeddings == 0, "positions");
    /* A window that no layer has. */
    succeeded(context, parse("\"sliding_window\": null", "\"sliding_window\": 4096", &c), "window");
    succeeded(context, parse("\"use_sliding_window\": false", "\"use_sliding_window\": true", &c), "no window");
    succeeded(context,
              parse("\"sliding_window\": null", "\"layer_types\": [\"full_attention\", \"full_attention\"]", &c),
              "layer_types");
}

static const struct {
    const char *from, *to;
    napier_status status;
    const char *word;
} edits[] = {
    {"\"qwen3\"", "\"qwen3_moe\"", NAPIER_UNSUPPORTED, "model_type: \"qwen3_moe\""},
    {"\"qwen3\"", "\"llama\"", NAPIER_UNSUPPORTED, "model_type: \"llama\""},
    {"\"model_type\": \"qwen3\",", "", NAPIER_CORRUPT_DATA, "model_type: missing"},
    {"Qwen3ForCausalLM", "Qwen3ForSequenceClassification", NAPIER_UNSUPPORTED, "architectures: \"Qwen3ForSequence"},
    {"\"attention_bias\": false", "\"attention_bias\": true", NAPIER_UNSUPPORTED, "attention_bias"},
    {"\"attention_bias\": false", "\"attention_bias\": 0", NAPIER_CORRUPT_DATA, "attention_bias: 0"},
    {"\"silu\"", "\"gelu\"", NAPIER_UNSUPPORTED, "hidden_act: \"gelu\""},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}", NAPIER_UNSUPPORTED,
     "rope_type: \"yarn\""},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\"}", NAPIER_UNSUPPORTED, "type: \"linear\""},
    {"\"rope_scaling\": null", "\"rope_scaling\": 3", NAPIER_CORRUPT_DATA, "3, where an object"},
    {"\"rope_scaling\": null", "\"rope_parameters\": {\"rope_type\": \"dynamic\"}", NAPIER_UNSUPPORTED, "dynamic"},
    {"\"rope_scaling\": null", "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", NAPIER_UNSUPPORTED, "partial"},
    {"\"rope_scaling\": null", "\"rope_parameters\": {\"full_attention\": {}}", NAPIER_UNSUPPORTED, "full_attention"},
    {"\"rope_scaling\": null", "\"rope_parameters\": {\"rope_theta\": 5}", NAPIER_CORRUPT_DATA,
     "rope_theta: 1e+06, but 5"},
    {"\"rope_theta\": 1000000,", "", NAPIER_CORRUPT_DATA, "rope_theta: missing"},
    {"\"rope_theta\": 1000000", "\"rope_theta\": -1", NAPIER_CORRUPT_DATA, "rope_theta: -1"},
    {"\"rope_theta\": 1000000", "\"rope_theta\": 1e999", NAPIER_CORRUPT_DATA, "rope_theta: inf"},
    {"\"sliding_window\": null", "\"layer_types\": [\"sliding_attention\"]", NAPIER_UNSUPPORTED, "layer_types"},
    {"\"sliding_window\": null", "\"layer_types\": \"sliding_attention\"", NAPIER_CORRUPT_DATA, "layer_types"},
    {"\"max_window_layers\": 28, \"model_type\"",
     "\"use_sliding_window\": true, \"sliding_window\": 99, \"model_type\"", NAPIER_CORRUPT_DATA, "given 2 times"},
    {"\"sliding_window\": null", "\"quantization_config\": {\"bits\": 4}", NAPIER_UNSUPPORTED, "quantization_config"},
    {"\"sliding_window\": null", "\"num_experts\": 128", NAPIER_UNSUPPORTED, "num_experts: 128"},
    {"\"hidden_size\": 1024,", "", NAPIER_CORRUPT_DATA, "hidden_size: missing"},
    {"\"hidden_size\": 1024", "\"hidden_size\": 0", NAPIER_CORRUPT_DATA, "hidden_size: 0"},
    {"\"hidden_size\": 1024", "\"hidden_size\": 1e18", NAPIER_CORRUPT_DATA, "hidden_size"},
    {"\"hidden_size\": 1024", "\"hidden_size\": 10.5", NAPIER_CORRUPT_DATA, "hidden_size: 10.5"},
    {"\"hidden_size\": 1024", "\"hidden_size\": \"1024\"", NAPIER_CORRUPT_DATA, "hidden_size: \"1024\""},
    {"\"hidden_size\": 1024", "\"hidden_size\": 1024, \"hidden_size\": 1024", NAPIER_CORRUPT_DATA, "given 2 times"},
    {"\"num_hidden_layers\": 28", "\"num_hidden_layers\": -28", NAPIER_CORRUPT_DATA, "num_hidden_layers: -28"},
    {"\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5", NAPIER_CORRUPT_DATA, "16 is no multiple of the 5"},
    {"\"head_dim\": 128", "\"head_dim\": 127", NAPIER_CORRUPT_DATA, "127 is odd"},
    {"\"head_dim\": 128", "\"head_dim\": 0", NAPIER_CORRUPT_DATA, "head_dim: 0"},
    {"\"vocab_size\": 151936", "\"vocab_size\": 3000000000", NAPIER_CORRUPT_DATA, "vocab_size"},
    {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", NAPIER_CORRUPT_DATA, "rms_norm_eps: 0"},
    {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": \"x\"", NAPIER_CORRUPT_DATA, "rms_norm_eps: \"x\""},
    {"\"eos_token_id\": 151645", "\"eos_token_id\": [1, \"x\"]", NAPIER_CORRUPT_DATA, "eos_token_id: \"x\""},
    {"\"eos_token_id\": 151645", "\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", NAPIER_UNSUPPORTED,
     "eos_token_id: more than 16"},
    {"\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": 16", NAPIER_CORRUPT_DATA, "torch_dtype: 16"},
    {"151936}", "151936", NAPIER_CORRUPT_DATA, "not JSON"},
};

static void refusals(void) {
    napier_model_config c;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        if (!refused(context, parse(edits[i].from, edits[i].to, &c), edits[i].status, "config.json", edits[i].word,
                     NULL)) {
            problem("(edit %zu: %s to %s)", i, edits[i].from, edits[i].to);
        }
    }
    /* A window in use: three fields. */
    refused(context,
            parse("\"max_window_layers\": 28, \"model_type\": \"qwen3\",\n \"num_attention_heads\": 16, "
                  "\"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06,\n "
                  "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
                  "\"tie_word_embeddings\": true,\n \"torch_dtype\": \"bfloat16\", \"use_cache\": true, "
                  "\"use_sliding_window\": false",
                  "\"max_window_layers\": 2, \"model_type\": \"qwen3\", \"num_attention_heads\": 16, "
                  "\"num_hidden_layers\": 28, \"rope_theta\": 1000000, \"sliding_window\": 4096, \"layer_types\": [], "
                  "\"use_sliding_window\": true",
                  &c),
            NAPIER_UNSUPPORTED, "use_sliding_window", NULL);
    refused(context, napier_model_config_load(context, "/nowhere/config.json", &c), NAPIER_IO_ERROR, "/nowhere", NULL);
}

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed = RUN_TESTS("model_config", TEST(both_styles), TEST(defaults), TEST(refusals));
    napier_context_destroy(context);
    return failed;
}
