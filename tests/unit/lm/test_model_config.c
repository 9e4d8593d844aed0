/* test_model_config - a config.json of Qwen3 0.6B's numbers in both styles of transformers, what other families make of
 * it, and what is refused: fields that are missing or out of range, and those that ask for another computation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/decoder/model_config.h"
#include "support/check.h"

static napier_context *context;

/* A config as transformers 4 writes it. */
static const char whole[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0,\n"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645, \"head_dim\": 128, \"hidden_act\": \"silu\",\n"
    " \"hidden_size\": 1024, \"initializer_range\": 0.02, \"intermediate_size\": 3072,\n"
    " \"max_position_embeddings\": 40960, \"max_window_layers\": 28, \"model_type\": \"qwen3\",\n"
    " \"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06,\n"
    " \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, \"tie_word_embeddings\": true,\n"
    " \"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}\n";

/* What comes of reading it with `from` replaced by `to`. */
static void edit(char text[4096], const char *from, const char *to) {
    char was[4096];
    snprintf(was, sizeof was, "%s", text);
    char *const place = strstr(was, from);
    assert_non_null(place);
    *place = '\0';
    snprintf(text, 4096, "%s%s%s", was, to, place + strlen(from));
}

static napier_status parse(const char *from, const char *to, napier_model_config *config) {
    char text[4096];
    snprintf(text, sizeof text, "%s", whole);
    edit(text, from, to);
    return napier_model_config_parse(context, "config.json", text, strlen(text), config);
}

static void check_numbers(const napier_model_config *c) {
    expect(c->hidden_size == 1024 && c->num_hidden_layers == 28 && c->intermediate_size == 3072, "sizes");
    expect(c->num_attention_heads == 16 && c->num_key_value_heads == 8 && c->head_dim == 128, "heads");
    expect(c->vocab_size == 151936 && c->max_position_embeddings == 40960, "vocabulary, positions");
    expect(c->rms_norm_eps == 1e-6 && c->rotary.theta == 1e6, "eps %g, theta %g", c->rms_norm_eps, c->rotary.theta);
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
    succeeded(context,
              parse("\"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8,",
                    "\"num_attention_heads\": 64, \"num_hidden_layers\": 28,", &c),
              "num_key_value_heads");
    expect(c.num_key_value_heads == 32, "num_key_value_heads %lld", (long long)c.num_key_value_heads);
    succeeded(context, parse("\"tie_word_embeddings\": true,", "", &c), "tie_word_embeddings");
    expect(c.tie_word_embeddings == 0, "tied without a word");
    succeeded(context, parse("\"rope_theta\": 1000000,", "", &c), "rope_theta");
    expect(c.rotary.theta == 10000, "rope_theta %g", c.rotary.theta);
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

/* ---- Families ---------------------------------------------------------------------------------------------------- */

/* What a family makes of the text above, after up to three edits. Heads, head_dim, bias flags, window, labels. */
static const struct {
    struct {
        const char *family, *architecture;
        int64_t kv_heads, head_dim, window, labels, bos, eos;
        bool norms, qkv, o, mlp;
    } made;
    const char *edits[3][2];
} readings[] = {
    {{"qwen3", "Qwen3ForCausalLM", 8, 128, 0, 0, 151643, 151645, true, false, false, false}, {{NULL, NULL}}},
    {{"qwen3", "Qwen3ForCausalLM", 8, 128, 0, 0, 151643, 151645, true, true, true, false},
     {{"\"attention_bias\": false", "\"attention_bias\": true"}}},
    {{"qwen2", "Qwen2ForCausalLM", 16, 64, 0, 0, 151643, 151645, false, true, false, false},
     {{"\"head_dim\": 128,", ""}, {"\"num_key_value_heads\": 8", "\"num_key_value_heads\": null"}}},
    {{"qwen2", "Qwen2ForCausalLM", 8, 128, 512, 0, 151643, 151645, false, true, false, false},
     {{"\"sliding_window\": null", "\"sliding_window\": 512"},
      {"\"use_sliding_window\": false", "\"use_sliding_window\": true"},
      {"\"max_window_layers\": 28", "\"max_window_layers\": 27"}}},
    {{"qwen3", "Qwen3ForCausalLM", 8, 128, 4096, 0, 151643, 151645, true, false, false, false},
     {{"\"sliding_window\": null", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]"},
      {"\"use_sliding_window\": false", "\"use_sliding_window\": true"}}},
    {{"llama", "LlamaForCausalLM", 8, 64, 0, 0, 1, 2, false, false, false, false},
     {{"\"head_dim\": 128,", ""}, {"\"bos_token_id\": 151643, \"eos_token_id\": 151645,", ""}}},
    {{"llama", "LlamaForCausalLM", 8, 128, 0, 0, -1, 151645, false, true, true, true},
     {{"\"attention_bias\": false", "\"attention_bias\": true, \"mlp_bias\": true"},
      {"\"bos_token_id\": 151643", "\"bos_token_id\": null"}}},
    {{"mistral", "MistralForCausalLM", 8, 128, 0, 0, 151643, 151645, false, false, false, false}, {{NULL, NULL}}},
    {{"mistral", "MistralForCausalLM", 8, 128, 4096, 0, 151643, 151645, false, false, false, false},
     {{"\"sliding_window\": null,", ""}, {"\"num_key_value_heads\": 8,", ""}}},
    {{"mistral", "MistralForSequenceClassification", 8, 128, 0, 1, 151643, 151645, false, false, false, false},
     {{"{", "{\"id2label\": {\"0\": \"a\"},"}}},
    {{"llama", "LlamaForSequenceClassification", 8, 128, 0, 2, 151643, 151645, false, false, false, false},
     {{NULL, NULL}}},
    {{"qwen2", "Qwen2ForSequenceClassification", 8, 128, 0, 5, 151643, 151645, false, true, false, false},
     {{"{", "{\"num_labels\": 5,"}}},
};

static void families(void) {
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        char text[4096], quoted[32];
        napier_model_config c;
        snprintf(text, sizeof text, "%s", whole);
        snprintf(quoted, sizeof quoted, "\"%s\"", readings[i].made.family);
        edit(text, "\"qwen3\"", quoted);
        edit(text, "Qwen3ForCausalLM", readings[i].made.architecture);
        for (int k = 0; k < 3 && readings[i].edits[k][0]; k++) {
            edit(text, readings[i].edits[k][0], readings[i].edits[k][1]);
        }
        if (!succeeded(context, napier_model_config_parse(context, "config.json", text, strlen(text), &c), quoted)) {
            continue;
        }
        expect(strcmp(c.family, readings[i].made.family) == 0 && c.num_key_value_heads == readings[i].made.kv_heads &&
                   c.head_dim == readings[i].made.head_dim && c.window == readings[i].made.window &&
                   c.labels == readings[i].made.labels,
               "reading %zu: %lld kv heads of %lld, window %lld, %lld labels", i, (long long)c.num_key_value_heads,
               (long long)c.head_dim, (long long)c.window, (long long)c.labels);
        expect(c.bos_token_id == readings[i].made.bos && c.eos_count == 1 && c.eos_token_ids[0] == readings[i].made.eos,
               "reading %zu: bos %lld, %d eos", i, (long long)c.bos_token_id, c.eos_count);
        expect(c.head_norms == readings[i].made.norms && c.qkv_bias == readings[i].made.qkv &&
                   c.o_bias == readings[i].made.o && c.mlp_bias == readings[i].made.mlp,
               "reading %zu: norms %d, biases %d %d %d", i, c.head_norms, c.qkv_bias, c.o_bias, c.mlp_bias);
    }
}

/* ---- The rope ---------------------------------------------------------------------------------------------------- */

#define ROPE "\"rope_scaling\": null"
#define SCALING(fields) "\"rope_scaling\": {" fields "}"
#define PARAMETERS(fields) "\"rope_parameters\": {" fields "}"

/* What becomes of the fields, with 40960 positions. */
static const struct {
    const char *text;
    napier_rotary_options wanted;
} ropes[] = {
    {SCALING(""), {0, 1e6, NAPIER_ROTARY_DEFAULT, 1, 0, 1, 4, 32, 1, 0, 0, 0, 1}},
    {SCALING("\"type\": \"default\""), {0, 1e6, NAPIER_ROTARY_DEFAULT, 1, 0, 1, 4, 32, 1, 0, 0, 0, 1}},
    {SCALING("\"type\": \"linear\", \"factor\": 2.5"),
     {0, 1e6, NAPIER_ROTARY_LINEAR, 2.5, 40960, 1, 4, 32, 1, 0, 0, 0, 1}},
    {SCALING("\"type\": \"mrope\", \"rope_type\": \"linear\", \"factor\": 2"),
     {0, 1e6, NAPIER_ROTARY_LINEAR, 2, 40960, 1, 4, 32, 1, 0, 0, 0, 1}},
    {PARAMETERS("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 2, \"high_freq_factor\": 3, "
                "\"original_max_position_embeddings\": 8192, \"rope_theta\": 1000000"),
     {0, 1e6, NAPIER_ROTARY_LLAMA3, 8, 8192, 2, 3, 32, 1, 0, 0, 0, 1}},
    {SCALING("\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 10240"),
     {0, 1e6, NAPIER_ROTARY_YARN, 4, 10240, 1, 4, 32, 1, 0, 0, 0, 1}},
    {SCALING("\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 16, \"beta_slow\": 2, \"mscale\": 0.7, "
             "\"mscale_all_dim\": 0.6, \"attention_factor\": 1.5, \"truncate\": false"),
     {0, 1e6, NAPIER_ROTARY_YARN, 4, 40960, 1, 4, 16, 2, 0.7, 0.6, 1.5, 0}},
    {"\"original_max_position_embeddings\": 1024, " SCALING("\"rope_type\": \"yarn\", \"factor\": 2"),
     {0, 1e6, NAPIER_ROTARY_YARN, 2, 1024, 1, 4, 32, 1, 0, 0, 0, 1}},
    {PARAMETERS("\"rope_type\": \"linear\", \"factor\": 2") ", " SCALING("\"rope_type\": \"linear\", \"factor\": 3"),
     {0, 1e6, NAPIER_ROTARY_LINEAR, 3, 40960, 1, 4, 32, 1, 0, 0, 0, 1}},
};

static void rope(void) {
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        napier_model_config c;
        napier_rotary_options wanted = ropes[i].wanted;
        if (succeeded(context, parse(ROPE, ropes[i].text, &c), ropes[i].text)) {
            wanted.struct_size = c.rotary.struct_size;
            expect(memcmp(&wanted, &c.rotary, sizeof wanted) == 0, "%s: read otherwise", ropes[i].text);
        }
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *from, *to;
    napier_status status;
    const char *word;
} edits[] = {
    {"\"qwen3\"", "\"qwen2_moe\"", NAPIER_UNSUPPORTED, "model_type: \"qwen2_moe\""},
    {"\"qwen3\"", "\"qwen3_moe\"", NAPIER_UNSUPPORTED, "only Qwen3MoeForCausalLM or"},
    {"\"qwen3\"", "\"gemma2\"", NAPIER_UNSUPPORTED, "only qwen3, qwen2, llama, mistral or qwen3_moe"},
    {"\"qwen3\"", "\"llama\"", NAPIER_UNSUPPORTED, "architectures: \"Qwen3ForCausalLM\", but only LlamaForCausalLM or"},
    {"\"model_type\": \"qwen3\",", "", NAPIER_CORRUPT_DATA, "model_type: missing"},
    {"Qwen3ForCausalLM", "Qwen3ForTokenClassification", NAPIER_UNSUPPORTED, "architectures: \"Qwen3ForToken"},
    {"Qwen3ForCausalLM\"]", "Qwen3ForSequenceClassification\"], \"id2label\": {}", NAPIER_CORRUPT_DATA, "0 labels"},
    {"Qwen3ForCausalLM\"]", "Qwen3ForSequenceClassification\"], \"num_labels\": 0", NAPIER_CORRUPT_DATA,
     "num_labels: 0"},
    {"\"sliding_window\": null", "\"is_causal\": false", NAPIER_UNSUPPORTED, "is_causal: false"},
    {"\"sliding_window\": null", "\"final_logit_softcapping\": 30.0", NAPIER_UNSUPPORTED,
     "final_logit_softcapping: 30"},
    {"\"sliding_window\": null", "\"layer_types\": [\"chunked_attention\"]", NAPIER_UNSUPPORTED, "chunked_attention"},
    {"\"attention_bias\": false", "\"attention_bias\": 0", NAPIER_CORRUPT_DATA, "attention_bias: 0"},
    {"\"silu\"", "\"gelu\"", NAPIER_UNSUPPORTED, "hidden_act: \"gelu\""},
    {ROPE, SCALING("\"rope_type\": \"longrope\""), NAPIER_UNSUPPORTED,
     "rope_type: \"longrope\", but only default, linear"},
    {ROPE, SCALING("\"type\": \"mrope\", \"mrope_section\": []"), NAPIER_UNSUPPORTED, "type: \"mrope\""},
    {ROPE, SCALING("\"type\": \"linear\""), NAPIER_CORRUPT_DATA, "factor: missing"},
    {ROPE, SCALING("\"type\": \"linear\", \"factor\": 0.5"), NAPIER_CORRUPT_DATA, "factor: 0.5"},
    {ROPE, SCALING("\"type\": \"linear\", \"factor\": \"2\""), NAPIER_CORRUPT_DATA, "factor: \"2\""},
    {ROPE, SCALING("\"type\": 4"), NAPIER_CORRUPT_DATA, "type: 4"},
    {ROPE, SCALING("\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 1"), NAPIER_CORRUPT_DATA,
     "high_freq_factor: 1"},
    {ROPE, SCALING("\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": -1"), NAPIER_CORRUPT_DATA, "beta_fast: -1"},
    {ROPE, SCALING("\"rope_type\": \"yarn\", \"attention_factor\": 1e300"), NAPIER_CORRUPT_DATA, "1e+300"},
    {ROPE, SCALING("\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 0"), NAPIER_CORRUPT_DATA,
     "original_max_position_embeddings: 0"},
    {ROPE, SCALING("\"rope_theta\": 5"), NAPIER_CORRUPT_DATA, "rope_theta: 1e+06, but 5"},
    {ROPE, "\"partial_rotary_factor\": 0.5", NAPIER_UNSUPPORTED, "partial_rotary_factor: 0.5"},
    {ROPE, "\"rope_scaling\": 3", NAPIER_CORRUPT_DATA, "3, where an object"},
    {ROPE, "\"rope_parameters\": {\"rope_type\": \"dynamic\"}", NAPIER_UNSUPPORTED, "dynamic"},
    {ROPE, "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", NAPIER_UNSUPPORTED, "partial"},
    {ROPE, "\"rope_parameters\": {\"full_attention\": {}}", NAPIER_UNSUPPORTED, "full_attention"},
    {ROPE, "\"rope_parameters\": {\"rope_theta\": 5}", NAPIER_CORRUPT_DATA, "rope_theta: 1e+06, but 5"},
    {"\"rope_theta\": 1000000", "\"rope_theta\": -1", NAPIER_CORRUPT_DATA, "theta: -1"},
    {"\"rope_theta\": 1000000", "\"rope_theta\": 1e999", NAPIER_CORRUPT_DATA, "theta: inf"},
    {"\"rope_theta\": 1000000", "\"rope_theta\": 0", NAPIER_CORRUPT_DATA, "rope: theta: 0"},
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
    {"\"hidden_size\": 1024", "\"hidden_size\": 1024, \"note\": 1, \"note\": 2, \"note\": 3", NAPIER_CORRUPT_DATA,
     "note: given 3 times"}, /* no one reads it */
    {"\"hidden_size\": 1024", "\"hidden_size\": 1024, \"note\": [{\"a\": {\"b\": 1, \"c\": 2, \"b\": 3}}]",
     NAPIER_CORRUPT_DATA, "b: given 2 times"},
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
    refused(context, napier_model_config_load(context, "/nowhere/config.json", &c), NAPIER_IO_ERROR, "/nowhere", NULL);
}

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed =
        RUN_TESTS("model_config", TEST(both_styles), TEST(defaults), TEST(families), TEST(rope), TEST(refusals));
    napier_context_destroy(context);
    return failed;
}
