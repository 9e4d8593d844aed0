/* lm/decoder/model_config.c - config.json of Qwen3. Field names are those of transformers' Qwen3Config. The rope's
 * fields are at the top level (transformers 4) or in rope_parameters (5). */
#include "lm/decoder/model_config.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/text/file.h"
#include "lm/text/json.h"

enum { MOST_BYTES = 16 << 20 };

static const int64_t most_id = INT32_MAX - 1;

static napier_status unsupported(const napier_json *json, const char *key, const cJSON *value, const char *only) {
    return napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s, but only %s is supported", key,
                            napier_show_item(value).text, only);
}

/* ---- Unsupported computations --------------------------------------------------------------------------------------
 */

/* Checks that a text, if present, is `only`. */
static napier_status check_word(const napier_json *json, const cJSON *object, const char *key, const char *only) {
    const cJSON *item;
    const napier_status status = napier_json_member(json, object, key, &item);
    if (status || item == NULL) {
        return status;
    }
    const bool same = cJSON_IsString(item) && strcmp(item->valuestring, only) == 0;
    return same ? NAPIER_OK : unsupported(json, key, item, only);
}

static napier_status check_false(const napier_json *json, const char *key) {
    bool value = false;
    const napier_status status = napier_json_bool(json, json->root, key, &value);
    return status || !value ? status
                            : napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: true, but only false is supported", key);
}

static napier_status check_absent(const napier_json *json, const char *key) {
    const cJSON *item;
    const napier_status status = napier_json_member(json, json->root, key, &item);
    return status || item == NULL ? status : unsupported(json, key, item, "a model without it");
}

static napier_status check_architecture(const napier_json *json) {
    const cJSON *list, *item;
    const cJSON *type;
    napier_status status = napier_json_member(json, json->root, "model_type", &type);
    if (!status && type == NULL) {
        status = napier_json_fail(json, NAPIER_CORRUPT_DATA, "model_type: missing");
    }
    if (!status) {
        status = check_word(json, json->root, "model_type", "qwen3");
    }
    if (!status) {
        status = napier_json_member(json, json->root, "architectures", &list);
    }
    if (status || list == NULL) {
        return status;
    }
    cJSON_ArrayForEach(item, list) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, "Qwen3ForCausalLM") == 0) {
            return NAPIER_OK;
        }
    }
    return unsupported(json, "architectures", cJSON_IsArray(list) && list->child ? list->child : list,
                       "Qwen3ForCausalLM");
}

/* A window is used if a layer's type says so, or if use_sliding_window enables it for layers from max_window_layers
 * on. */
static napier_status check_attention(const napier_json *json, const napier_model_config *config) {
    const cJSON *types, *item;
    bool sliding = false;
    int64_t window = 0, first = 28; /* Qwen3Config's default */
    napier_status status = napier_json_member(json, json->root, "layer_types", &types);
    if (types != NULL && !cJSON_IsArray(types)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "layer_types: %s, where an array should be",
                                napier_show_item(types).text);
    }
    const bool listed = types != NULL && types->child != NULL;
    cJSON_ArrayForEach(item, types) {
        if (!cJSON_IsString(item) || strcmp(item->valuestring, "full_attention") != 0) {
            return unsupported(json, "layer_types", item, "full_attention");
        }
    }
    if (!status) {
        status = napier_json_bool(json, json->root, "use_sliding_window", &sliding);
    }
    if (!status) {
        status = napier_json_integer(json, json->root, "sliding_window", 0, most_id, &window);
    }
    if (!status) {
        status = napier_json_integer(json, json->root, "max_window_layers", 0, most_id, &first);
    }
    if (!status && !listed && sliding && window > 0 && first < config->num_hidden_layers) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED,
                                "use_sliding_window: true, but only full attention is "
                                "supported");
    }
    return status ? status : check_false(json, "attention_bias");
}

static napier_status check_supported(const napier_json *json, const napier_model_config *config) {
    napier_status status = check_attention(json, config);
    if (!status) {
        status = check_word(json, json->root, "hidden_act", "silu");
    }
    if (!status) {
        status = check_absent(json, "quantization_config");
    }
    return status ? status : check_absent(json, "num_experts");
}

/* ---- Numbers -------------------------------------------------------------------------------------------------------
 */

static napier_status required(const napier_json *json, const char *key, int64_t most, int64_t *value) {
    *value = 0;
    const napier_status status = napier_json_integer(json, json->root, key, 1, most, value);
    return status || *value > 0 ? status : napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: missing", key);
}

static napier_status positive(const napier_json *json, const char *key, double value) {
    return value > 0 && isfinite(value)
               ? NAPIER_OK
               : napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %g, where a number above 0 should be", key, value);
}

static napier_status read_heads(const napier_json *json, napier_model_config *config) {
    napier_status status = required(json, "num_attention_heads", 1 << 16, &config->num_attention_heads);
    config->num_key_value_heads = config->num_attention_heads;
    config->head_dim = 128; /* Qwen3Config's default: not hidden_size / num_attention_heads */
    if (!status) {
        status = napier_json_integer(json, json->root, "num_key_value_heads", 1, 1 << 16, &config->num_key_value_heads);
    }
    if (!status) {
        status = napier_json_integer(json, json->root, "head_dim", 2, 1 << 14, &config->head_dim);
    }
    if (!status && config->num_attention_heads % config->num_key_value_heads != 0) {
        status = napier_json_fail(json, NAPIER_CORRUPT_DATA,
                                  "num_attention_heads: %lld is no multiple of the %lld "
                                  "num_key_value_heads",
                                  (long long)config->num_attention_heads, (long long)config->num_key_value_heads);
    }
    if (!status && config->head_dim % 2 != 0) {
        status = napier_json_fail(json, NAPIER_CORRUPT_DATA, "head_dim: %lld is odd", (long long)config->head_dim);
    }
    return status;
}

static napier_status read_sizes(const napier_json *json, napier_model_config *config) {
    napier_status status = required(json, "hidden_size", 1 << 20, &config->hidden_size);
    if (!status) {
        status = required(json, "num_hidden_layers", 1 << 14, &config->num_hidden_layers);
    }
    if (!status) {
        status = read_heads(json, config);
    }
    if (!status) {
        status = required(json, "intermediate_size", 1 << 24, &config->intermediate_size);
    }
    if (!status) {
        status = required(json, "vocab_size", most_id, &config->vocab_size);
    }
    if (!status) {
        status = napier_json_integer(json, json->root, "max_position_embeddings", 1, most_id,
                                     &config->max_position_embeddings);
    }
    return status;
}

/* rope_scaling (transformers 4) and rope_parameters (5) define how angles are computed. Both have the type
 * "default". */
static napier_status check_rope_kind(const napier_json *json, const cJSON *rope) {
    double fraction = 1;
    napier_status status = check_word(json, rope, "rope_type", "default");
    if (!status) {
        status = check_word(json, rope, "type", "default");
    }
    if (!status) {
        status = napier_json_number(json, rope, "partial_rotary_factor", &fraction);
    }
    if (!status && fraction != 1) {
        status =
            napier_json_fail(json, NAPIER_UNSUPPORTED, "partial_rotary_factor: %g, but only 1 is supported", fraction);
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, rope) {
        if (!status && cJSON_IsObject(item)) { /* one rope for each layer type */
            status = unsupported(json, item->string, item, "one rope for all layers");
        }
    }
    return status;
}

static napier_status read_rope(const napier_json *json, napier_model_config *config) {
    const cJSON *parameters, *scaling;
    double outer = 0, inner = 0;
    napier_status status = napier_json_number(json, json->root, "rope_theta", &outer);
    if (!status) {
        status = napier_json_member(json, json->root, "rope_scaling", &scaling);
    }
    if (!status && scaling != NULL) {
        status = check_rope_kind(json, scaling);
    }
    if (!status) {
        status = napier_json_member(json, json->root, "rope_parameters", &parameters);
    }
    if (!status && parameters != NULL) {
        status = check_rope_kind(json, parameters);
    }
    if (!status && parameters != NULL) {
        status = napier_json_number(json, parameters, "rope_theta", &inner);
    }
    if (!status && outer != 0 && inner != 0 && outer != inner) {
        status = napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope_theta: %g, but %g in rope_parameters", outer, inner);
    }
    config->rope_theta = inner != 0 ? inner : outer;
    if (!status && config->rope_theta == 0) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope_theta: missing");
    }
    return status ? status : positive(json, "rope_theta", config->rope_theta);
}

/* ---- The rest ------------------------------------------------------------------------------------------------------
 */

static napier_status read_eos(const napier_json *json, napier_model_config *config) {
    const cJSON *list, *item;
    const napier_status status = napier_json_member(json, json->root, "eos_token_id", &list);
    if (status || list == NULL) {
        return status;
    }
    for (item = cJSON_IsArray(list) ? list->child : list; item != NULL;
         item = cJSON_IsArray(list) ? item->next : NULL) {
        if (!napier_json_is_integer(item, 0, most_id)) {
            return napier_json_fail(json, NAPIER_CORRUPT_DATA, "eos_token_id: %s is no token id",
                                    napier_show_item(item).text);
        }
        if (config->eos_count == NAPIER_MOST_EOS_TOKENS) {
            return napier_json_fail(json, NAPIER_UNSUPPORTED, "eos_token_id: more than %d", NAPIER_MOST_EOS_TOKENS);
        }
        config->eos_token_ids[config->eos_count++] = (int64_t)item->valuedouble;
    }
    return NAPIER_OK;
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

static napier_status read_rest(const napier_json *json, napier_model_config *config) {
    bool tied = false;
    const char *dtype = "";
    config->rms_norm_eps = 1e-6;
    config->bos_token_id = -1;
    napier_status status = napier_json_number(json, json->root, "rms_norm_eps", &config->rms_norm_eps);
    if (!status) {
        status = positive(json, "rms_norm_eps", config->rms_norm_eps);
    }
    if (!status) {
        status = napier_json_bool(json, json->root, "tie_word_embeddings", &tied);
    }
    if (!status) {
        status = napier_json_integer(json, json->root, "bos_token_id", 0, most_id, &config->bos_token_id);
    }
    if (!status) {
        status = napier_json_text(json, json->root, "torch_dtype", &dtype);
    }
    if (!status) {
        status = napier_json_text(json, json->root, "dtype", &dtype);
    }
    config->tie_word_embeddings = tied;
    config->dtype = dtype_of(dtype);
    return status ? status : read_eos(json, config);
}

static napier_status read_config(const napier_json *json, napier_model_config *config) {
    napier_status status = check_architecture(json);
    if (!status) {
        status = read_sizes(json, config);
    }
    if (!status) {
        status = read_rope(json, config);
    }
    if (!status) {
        status = read_rest(json, config);
    }
    return status ? status : check_supported(json, config);
}

napier_status napier_model_config_parse(napier_context *context, const char *name, const char *text, size_t size,
                                        napier_model_config *config) {
    napier_json json;
    memset(config, 0, sizeof *config);
    napier_status status = napier_json_parse(&json, context, name, text, size);
    if (!status) {
        status = read_config(&json, config);
    }
    napier_json_free(&json);
    return status;
}

napier_status napier_model_config_load(napier_context *context, const char *path, napier_model_config *config) {
    char *bytes;
    size_t size;
    napier_status status = napier_read_file(context, path, MOST_BYTES, &bytes, &size);
    if (!status) {
        status = napier_model_config_parse(context, path, bytes, size, config);
    }
    napier_free(&context->allocator, bytes);
    return status;
}
