/* lm/decoder/model_config.c - config.json of Qwen3. Field names are those of transformers' Qwen3Config. The rope's
 * fields are at the top level (transformers 4) or in rope_parameters (5). */
#include "lm/decoder/model_config.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/text/json.h"

enum { MOST_BYTES = 16 << 20 };

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

static void check_absent(napier_json *json, const char *key) {
    const cJSON *const item = napier_json_member(json, json->root, key);
    if (item != NULL) {
        unsupported(json, key, item, "a model without it");
    }
}

static void check_architecture(napier_json *json) {
    if (napier_json_member(json, json->root, "model_type") == NULL) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "model_type: missing");
    }
    check_word(json, json->root, "model_type", "qwen3");
    const cJSON *const list = napier_json_member(json, json->root, "architectures");
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (is_word(item, "Qwen3ForCausalLM")) {
            return;
        }
    }
    if (list != NULL) {
        unsupported(json, "architectures", cJSON_IsArray(list) && list->child ? list->child : list, "Qwen3ForCausalLM");
    }
}

/* A window is used if a layer's type says so, or if use_sliding_window enables it for layers from max_window_layers
 * on. */
static void check_attention(napier_json *json, const napier_model_config *config) {
    const cJSON *const types = napier_json_member(json, json->root, "layer_types");
    const cJSON *item;
    bool sliding = false, bias = false;
    int64_t window = 0, first = 28; /* Qwen3Config's default */
    if (types != NULL && !cJSON_IsArray(types)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "layer_types: %s, where an array should be",
                         napier_show_item(types).text);
        return;
    }
    cJSON_ArrayForEach(item, types) {
        if (!is_word(item, "full_attention")) {
            unsupported(json, "layer_types", item, "full_attention");
        }
    }
    napier_json_bool(json, json->root, "use_sliding_window", &sliding);
    napier_json_integer(json, json->root, "sliding_window", 0, most_id, &window);
    napier_json_integer(json, json->root, "max_window_layers", 0, most_id, &first);
    const bool listed = types != NULL && types->child != NULL;
    if (!listed && sliding && window > 0 && first < config->num_hidden_layers) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "use_sliding_window: true, but only full attention is supported");
    }
    napier_json_bool(json, json->root, "attention_bias", &bias);
    if (bias) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "attention_bias: true, but only false is supported");
    }
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

static void read_heads(napier_json *json, napier_model_config *config) {
    required(json, "num_attention_heads", 1 << 16, &config->num_attention_heads);
    config->num_key_value_heads = config->num_attention_heads;
    config->head_dim = 128; /* Qwen3Config's default: not hidden_size / num_attention_heads */
    napier_json_integer(json, json->root, "num_key_value_heads", 1, 1 << 16, &config->num_key_value_heads);
    napier_json_integer(json, json->root, "head_dim", 2, 1 << 14, &config->head_dim);
    if (json->status) {
        return;
    }
    if (config->num_attention_heads % config->num_key_value_heads != 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA,
                         "num_attention_heads: %lld is no multiple of the %lld num_key_value_heads",
                         (long long)config->num_attention_heads, (long long)config->num_key_value_heads);
    }
    if (config->head_dim % 2 != 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "head_dim: %lld is odd", (long long)config->head_dim);
    }
}

static void read_sizes(napier_json *json, napier_model_config *config) {
    required(json, "hidden_size", 1 << 20, &config->hidden_size);
    required(json, "num_hidden_layers", 1 << 14, &config->num_hidden_layers);
    read_heads(json, config);
    required(json, "intermediate_size", 1 << 24, &config->intermediate_size);
    required(json, "vocab_size", most_id, &config->vocab_size);
    napier_json_integer(json, json->root, "max_position_embeddings", 1, most_id, &config->max_position_embeddings);
}

/* Finds rope_scaling (transformers 4) or rope_parameters (5), which define how angles are computed. Both must have the
 * type "default". */
static const cJSON *read_rope_kind(napier_json *json, const char *key) {
    const cJSON *const rope = napier_json_member(json, json->root, key);
    const cJSON *item;
    double fraction = 1;
    if (rope == NULL) {
        return NULL;
    }
    check_word(json, rope, "rope_type", "default");
    check_word(json, rope, "type", "default");
    napier_json_number(json, rope, "partial_rotary_factor", &fraction);
    if (fraction != 1) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "partial_rotary_factor: %g, but only 1 is supported", fraction);
    }
    cJSON_ArrayForEach(item, rope) {
        if (cJSON_IsObject(item)) { /* one rope for each layer type */
            unsupported(json, item->string, item, "one rope for all layers");
        }
    }
    return rope;
}

static void read_rope(napier_json *json, napier_model_config *config) {
    double outer = 0, inner = 0;
    napier_json_number(json, json->root, "rope_theta", &outer);
    (void)read_rope_kind(json, "rope_scaling");
    const cJSON *const parameters = read_rope_kind(json, "rope_parameters");
    if (parameters != NULL) {
        napier_json_number(json, parameters, "rope_theta", &inner);
    }
    if (outer != 0 && inner != 0 && outer != inner) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope_theta: %g, but %g in rope_parameters", outer, inner);
    }
    config->rope_theta = inner != 0 ? inner : outer;
    if (config->rope_theta == 0) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope_theta: missing");
    }
    check_positive(json, "rope_theta", config->rope_theta);
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

static void read_eos(napier_json *json, napier_model_config *config) {
    const cJSON *const list = napier_json_member(json, json->root, "eos_token_id");
    const cJSON *item;
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

static void read_rest(napier_json *json, napier_model_config *config) {
    bool tied = false;
    const char *dtype = "";
    config->rms_norm_eps = 1e-6;
    config->bos_token_id = -1;
    napier_json_number(json, json->root, "rms_norm_eps", &config->rms_norm_eps);
    check_positive(json, "rms_norm_eps", config->rms_norm_eps);
    napier_json_bool(json, json->root, "tie_word_embeddings", &tied);
    napier_json_integer(json, json->root, "bos_token_id", 0, most_id, &config->bos_token_id);
    napier_json_text(json, json->root, "torch_dtype", &dtype);
    napier_json_text(json, json->root, "dtype", &dtype);
    config->tie_word_embeddings = tied;
    config->dtype = dtype_of(dtype);
    read_eos(json, config);
}

/* Frees the document too. */
static napier_status read_config(napier_json *json, napier_model_config *config) {
    memset(config, 0, sizeof *config);
    if (!json->status) {
        check_architecture(json);
        read_sizes(json, config);
        read_rope(json, config);
        read_rest(json, config);
        check_attention(json, config);
        check_word(json, json->root, "hidden_act", "silu");
        check_absent(json, "quantization_config");
        check_absent(json, "num_experts");
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
