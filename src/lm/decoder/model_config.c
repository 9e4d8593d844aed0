/* lm/decoder/model_config.c - config.json of the families below. Field names and defaults are those of transformers'
 * configuration classes. */
#include "lm/decoder/model_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/text/json.h"

enum { MOST_BYTES = 16 << 20, MOST_LABELS = 1 << 20 };

static const int64_t most_id = INT32_MAX - 1;

static void unsupported(napier_json *json, const char *key, const cJSON *value, const char *only) {
    napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s, but only %s is supported", key, napier_show_item(value).text,
                     only);
}

/* ---- Unsupported computations ------------------------------------------------------------------------------------ */

static bool is_word(const cJSON *item, const char *word) {
    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

/* Checks that a text, if present, is `only`. */
static void check_word(napier_json *json, const cJSON *object, const char *key, const char *only) {
    const cJSON *const item = napier_json_member(json, object, key);
    if (item != NULL && !is_word(item, only)) {
        unsupported(json, key, item, only);
    }
}

/* True if the member is there, even if it is null. */
static bool given(const napier_json *json, const char *key) {
    return !json->status && cJSON_GetObjectItemCaseSensitive(json->root, key) != NULL;
}

static void check_absent(napier_json *json, const char *key) {
    const cJSON *const item = napier_json_member(json, json->root, key);
    if (item != NULL) {
        unsupported(json, key, item, "a model without it");
    }
}

/* ---- Families ---------------------------------------------------------------------------------------------------- */

/* When sliding_window counts: never, if use_sliding_window is true, or always. */
typedef enum window_rule { NO_WINDOW, WINDOW_IF_USED, WINDOW } window_rule;

/* What a model_type selects. The names of tensors are the same in all families. */
typedef struct family {
    const char *model_type, *architecture; /* architecture: what precedes ForCausalLM */
    int64_t head_dim, kv_heads;            /* if absent; 0: hidden_size / heads, as many as heads */
    int64_t bos, eos;                      /* if absent; -1: none */
    bool head_norms, qkv_bias;
    bool attention_bias, mlp_bias; /* whether the field of this name counts */
    window_rule window;
    bool experts; /* and a window in all layers or none */
} family;

static const family families[] = {
    {"qwen3", "Qwen3", 128, 32, -1, -1, .head_norms = true, .attention_bias = true, .window = WINDOW_IF_USED},
    {"qwen2", "Qwen2", 0, 32, -1, -1, .qkv_bias = true, .window = WINDOW_IF_USED},
    {"llama", "Llama", 0, 0, 1, 2, .attention_bias = true, .mlp_bias = true},
    {"mistral", "Mistral", 0, 8, 1, 2, .window = WINDOW},
    {"qwen3_moe", "Qwen3Moe", 0, 4, -1, -1, .head_norms = true, .attention_bias = true, .window = WINDOW_IF_USED,
     .experts = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* Falls back to the first family, so that the readers below have one after a failure. */
static const family *read_family(napier_json *json) {
    const cJSON *const item = napier_json_member(json, json->root, "model_type");
    for (int i = 0; i < FAMILIES; i++) {
        if (is_word(item, families[i].model_type)) {
            return &families[i];
        }
    }
    if (item == NULL) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "model_type: missing");
    } else {
        unsupported(json, "model_type", item, "qwen3, qwen2, llama, mistral or qwen3_moe");
    }
    return &families[0];
}

static bool is_architecture(const cJSON *item, const family *f, const char *head) {
    const size_t size = strlen(f->architecture);
    return cJSON_IsString(item) && strncmp(item->valuestring, f->architecture, size) == 0 &&
           strcmp(item->valuestring + size, head) == 0;
}

/* transformers counts the labels in id2label, and has 2 if there is no id2label. */
static void read_labels(napier_json *json, napier_model_config *config) {
    const cJSON *const names = napier_json_member(json, json->root, "id2label");
    config->labels = 2;
    if (cJSON_IsObject(names)) {
        config->labels = cJSON_GetArraySize(names);
    } else {
        napier_json_integer(json, json->root, "num_labels", 1, MOST_LABELS, &config->labels);
    }
    if (config->labels < 1 || config->labels > MOST_LABELS) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "id2label: %lld labels", (long long)config->labels);
    }
}

static void read_architecture(napier_json *json, const family *f, napier_model_config *config) {
    const cJSON *const list = napier_json_member(json, json->root, "architectures");
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (is_architecture(item, f, "ForCausalLM")) {
            return;
        }
        if (is_architecture(item, f, "ForSequenceClassification")) {
            read_labels(json, config);
            return;
        }
    }
    if (list != NULL) {
        char only[96];
        (void)snprintf(only, sizeof only, "%sForCausalLM or %sForSequenceClassification", f->architecture,
                       f->architecture);
        unsupported(json, "architectures", cJSON_IsArray(list) && list->child ? list->child : list, only);
    }
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

/* Checks layer_types. True if it names layers; *sliding: whether some have a window. */
static bool read_layer_types(napier_json *json, bool *sliding) {
    const cJSON *const types = napier_json_member(json, json->root, "layer_types");
    const cJSON *item;
    *sliding = false;
    if (types != NULL && !cJSON_IsArray(types)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "layer_types: %s, where an array should be",
                         napier_show_item(types).text);
        return false;
    }
    cJSON_ArrayForEach(item, types) {
        *sliding = *sliding || is_word(item, "sliding_attention");
        if (!is_word(item, "full_attention") && !is_word(item, "sliding_attention")) {
            unsupported(json, "layer_types", item, "full_attention or sliding_attention");
        }
    }
    return types != NULL && types->child != NULL;
}

/* A window changes nothing for a sequence that fits in it. So these run, and longer ones are refused. Layers from
 * max_window_layers on have the window, unless layer_types says which. */
static void read_window(napier_json *json, const family *f, napier_model_config *config) {
    bool sliding, used = f->window == WINDOW;
    int64_t first = 28, window = given(json, "sliding_window") ? 0 : 4096; /* if absent, as in transformers */
    const bool listed = read_layer_types(json, &sliding);
    napier_json_integer(json, json->root, "sliding_window", 1, most_id, &window);
    napier_json_integer(json, json->root, "max_window_layers", 0, most_id, &first);
    if (f->window == WINDOW_IF_USED) {
        napier_json_bool(json, json->root, "use_sliding_window", &used);
    }
    if (f->window != WINDOW && sliding && (!used || window == 0)) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "layer_types: \"sliding_attention\", but no sliding_window is used");
    }
    const bool some = f->window == WINDOW || f->experts || (listed ? sliding : first < config->num_hidden_layers);
    config->window = used && some ? window : 0;
}

static void read_biases(napier_json *json, const family *f, napier_model_config *config) {
    bool attention = false;
    config->qkv_bias = f->qkv_bias;
    if (f->attention_bias) {
        napier_json_bool(json, json->root, "attention_bias", &attention);
        config->qkv_bias = config->qkv_bias || attention;
        config->o_bias = attention;
    }
    if (f->mlp_bias) {
        napier_json_bool(json, json->root, "mlp_bias", &config->mlp_bias);
    }
}

static void read_attention(napier_json *json, const family *f, napier_model_config *config) {
    bool causal = true;
    napier_json_bool(json, json->root, "is_causal", &causal);
    if (!causal) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "is_causal: false, but only true is supported");
    }
    config->head_norms = f->head_norms;
    read_biases(json, f, config);
    read_window(json, f, config);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void required(napier_json *json, const char *key, int64_t most, int64_t *value) {
    *value = 0;
    napier_json_integer(json, json->root, key, 1, most, value);
    if (*value == 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: missing", key);
    }
}

static void check_positive(napier_json *json, const char *key, double value) {
    if (!(value > 0 && isfinite(value))) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %g, where a number above 0 should be", key, value);
    }
}

static void check_heads(napier_json *json, const napier_model_config *config) {
    if (config->num_attention_heads % config->num_key_value_heads != 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA,
                         "num_attention_heads: %lld is no multiple of the %lld num_key_value_heads",
                         (long long)config->num_attention_heads, (long long)config->num_key_value_heads);
    }
    if (config->head_dim == 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA,
                         "hidden_size: %lld is no multiple of the %lld num_attention_heads, and head_dim is missing",
                         (long long)config->hidden_size, (long long)config->num_attention_heads);
    }
    if (config->head_dim % 2 != 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "head_dim: %lld is odd", (long long)config->head_dim);
    }
}

static void read_heads(napier_json *json, const family *f, napier_model_config *config) {
    required(json, "num_attention_heads", 1 << 16, &config->num_attention_heads);
    if (json->status) {
        return;
    }
    const int64_t heads = config->num_attention_heads, each = config->hidden_size / heads;
    const bool absent = !given(json, "num_key_value_heads");
    config->num_key_value_heads = absent && f->kv_heads > 0 ? f->kv_heads : heads;
    config->head_dim = f->head_dim > 0 ? f->head_dim : config->hidden_size % heads == 0 ? each : 0;
    napier_json_integer(json, json->root, "num_key_value_heads", 1, 1 << 16, &config->num_key_value_heads);
    napier_json_integer(json, json->root, "head_dim", 2, 1 << 14, &config->head_dim);
    if (!json->status) {
        check_heads(json, config);
    }
}

static void read_sizes(napier_json *json, const family *f, napier_model_config *config) {
    required(json, "hidden_size", 1 << 20, &config->hidden_size);
    required(json, "num_hidden_layers", NAPIER_MOST_LAYERS, &config->num_hidden_layers);
    read_heads(json, f, config);
    required(json, "intermediate_size", 1 << 24, &config->intermediate_size);
    required(json, "vocab_size", most_id, &config->vocab_size);
    napier_json_integer(json, json->root, "max_position_embeddings", 1, most_id, &config->max_position_embeddings);
}

/* ---- Experts ----------------------------------------------------------------------------------------------------- */

static void read_mlp_only(napier_json *json, napier_model_config *config) {
    const cJSON *const list = napier_json_member(json, json->root, "mlp_only_layers");
    const cJSON *item;
    if (list != NULL && !cJSON_IsArray(list)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "mlp_only_layers: %s, where an array should be",
                         napier_show_item(list).text);
        return;
    }
    cJSON_ArrayForEach(item, list) {
        if (!napier_json_is_integer(item, 0, config->num_hidden_layers - 1)) {
            napier_json_fail(json, NAPIER_CORRUPT_DATA, "mlp_only_layers: %s is no layer", napier_show_item(item).text);
            return;
        }
        const int64_t layer = (int64_t)item->valuedouble;
        config->mlp_only[layer / 8] |= (uint8_t)(1u << layer % 8);
    }
}

bool napier_model_config_is_sparse(const napier_model_config *c, int64_t layer) {
    return c->num_experts > 0 && (layer + 1) % c->decoder_sparse_step == 0 &&
           (c->mlp_only[layer / 8] >> layer % 8 & 1) == 0;
}

/* transformers 5 writes num_local_experts for num_experts. */
static void read_experts(napier_json *json, napier_model_config *config) {
    int64_t local = 0, experts = 0;
    config->num_experts_per_tok = 8;
    config->moe_intermediate_size = 768;
    config->decoder_sparse_step = 1;
    napier_json_integer(json, json->root, "num_experts", 1, NAPIER_MOST_EXPERTS, &experts);
    napier_json_integer(json, json->root, "num_local_experts", 1, NAPIER_MOST_EXPERTS, &local);
    if (experts > 0 && local > 0 && experts != local) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "num_experts: %lld, but num_local_experts is %lld",
                         (long long)experts, (long long)local);
    }
    config->num_experts = experts > 0 ? experts : local > 0 ? local : 128;
    napier_json_integer(json, json->root, "num_experts_per_tok", 1, config->num_experts, &config->num_experts_per_tok);
    napier_json_integer(json, json->root, "moe_intermediate_size", 1, 1 << 24, &config->moe_intermediate_size);
    napier_json_integer(json, json->root, "decoder_sparse_step", 1, most_id, &config->decoder_sparse_step);
    napier_json_bool(json, json->root, "norm_topk_prob", &config->norm_topk_prob);
    read_mlp_only(json, config);
    if (config->num_experts_per_tok > config->num_experts) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "num_experts_per_tok: %lld of %lld experts",
                         (long long)config->num_experts_per_tok, (long long)config->num_experts);
    }
    for (int64_t i = 0; i < config->num_hidden_layers; i++) {
        config->sparse_layers += napier_model_config_is_sparse(config, i);
    }
}

/* ---- The rest ---------------------------------------------------------------------------------------------------- */

static void add_eos(napier_json *json, const cJSON *item, napier_model_config *config) {
    if (!napier_json_is_integer(item, 0, most_id)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "eos_token_id: %s is no token id", napier_show_item(item).text);
    } else if (config->eos_count == NAPIER_MOST_EOS_TOKENS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "eos_token_id: more than %d", NAPIER_MOST_EOS_TOKENS);
    } else {
        config->eos_token_ids[config->eos_count++] = (int64_t)item->valuedouble;
    }
}

static void read_eos(napier_json *json, const family *f, napier_model_config *config) {
    const cJSON *const list = napier_json_member(json, json->root, "eos_token_id");
    const cJSON *item;
    if (!given(json, "eos_token_id") && f->eos >= 0) {
        config->eos_token_ids[config->eos_count++] = f->eos;
    }
    if (list != NULL && !cJSON_IsArray(list)) {
        add_eos(json, list, config);
        return;
    }
    cJSON_ArrayForEach(item, list) { add_eos(json, item, config); }
}

static napier_dtype dtype_of(const char *name) {
    static const struct {
        const char *name;
        napier_dtype dtype;
    } dtypes[] = {{"float32", NAPIER_F32}, {"float16", NAPIER_F16}, {"bfloat16", NAPIER_BF16}, {"float64", NAPIER_F64}};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return dtypes[i].dtype;
        }
    }
    return (napier_dtype)0;
}

static void read_rest(napier_json *json, const family *f, napier_model_config *config) {
    bool tied = false;
    const char *dtype = "";
    config->rms_norm_eps = 1e-6;
    config->bos_token_id = given(json, "bos_token_id") ? -1 : f->bos;
    napier_json_number(json, json->root, "rms_norm_eps", &config->rms_norm_eps);
    check_positive(json, "rms_norm_eps", config->rms_norm_eps);
    napier_json_bool(json, json->root, "tie_word_embeddings", &tied);
    napier_json_integer(json, json->root, "bos_token_id", 0, most_id, &config->bos_token_id);
    napier_json_text(json, json->root, "torch_dtype", &dtype);
    napier_json_text(json, json->root, "dtype", &dtype);
    config->tie_word_embeddings = tied;
    config->dtype = dtype_of(dtype);
    read_eos(json, f, config);
}

/* Frees the document too. */
static napier_status read_config(napier_json *json, napier_model_config *config) {
    memset(config, 0, sizeof *config);
    if (!json->status) {
        static const char *const others[] = {"quantization_config", "attn_logit_softcapping", "final_logit_softcapping",
                                             "num_experts", "num_local_experts"};
        napier_json_check_names(json, json->root);
        const family *const f = read_family(json);
        config->family = f->model_type;
        read_architecture(json, f, config);
        read_sizes(json, f, config);
        napier_model_read_rope(json, config);
        read_rest(json, f, config);
        read_attention(json, f, config);
        check_word(json, json->root, "hidden_act", "silu");
        if (f->experts) {
            read_experts(json, config);
        }
        for (size_t i = 0; i < sizeof others / sizeof *others - (f->experts ? 2 : 0); i++) {
            check_absent(json, others[i]);
        }
    }
    napier_json_free(json);
    return json->status;
}

napier_status napier_model_config_parse(napier_context *context, const char *name, const char *text, size_t size,
                                        napier_model_config *config) {
    napier_json json;
    (void)napier_json_parse(&json, context, name, text, size);
    return read_config(&json, config);
}

napier_status napier_model_config_load(napier_context *context, const char *path, napier_model_config *config) {
    napier_json json;
    (void)napier_json_load(&json, context, path, MOST_BYTES);
    return read_config(&json, config);
}
