/* lm/decoder/model_config.h - the checked contents of a config.json: Qwen3 and Qwen2, Llama, Mistral ; Qwen3's mixture of experts. model_type
 * selects the defaults of transformers' configuration classes; everything else in the decoder asks for the options
 * below, never for the family. A field that asks for a computation that is not implemented is UNSUPPORTED, and the
 * message names it. Unknown fields are ignored. */
#ifndef NAPIER_LM_DECODER_MODEL_CONFIG_H
#define NAPIER_LM_DECODER_MODEL_CONFIG_H

#include <napier/layers.h>
#include <stdbool.h>

#include "core/base/context.h"

enum { NAPIER_MOST_EOS_TOKENS = 16, NAPIER_MOST_LAYERS = 1 << 14, NAPIER_MOST_EXPERTS = 1 << 10 };

typedef struct napier_model_config {
    const char *family; /* model_type: "qwen3", "qwen2", "llama", "mistral" or "qwen3_moe"; a constant */
    int64_t labels;     /* rows of a reward model's head (ForSequenceClassification); 0: a language model */
    int64_t hidden_size;
    int64_t num_hidden_layers;
    int64_t num_attention_heads;
    int64_t num_key_value_heads; /* divides num_attention_heads */
    int64_t head_dim;            /* even */
    int64_t intermediate_size;
    int64_t vocab_size;              /* below 2^31 */
    int64_t max_position_embeddings; /* 0: not in the file */
    int64_t window;                  /* the least sliding window of a layer: a longer sequence is refused; 0: none */
    double rms_norm_eps;             /* > 0 */
    napier_rotary_options rotary;    /* from the fields of the rope; valid */
    bool head_norms;                 /* q and k are normalised per head */
    bool qkv_bias, o_bias, mlp_bias; /* biases of q, k and v; of o; of gate, up and down */
    int64_t num_experts;             /* of a layer; 0: a model without experts */
    int64_t num_experts_per_tok;     /* at most num_experts */
    int64_t moe_intermediate_size;   /* of an expert */
    int64_t decoder_sparse_step;     /* each layer of so many has experts .. */
    int64_t sparse_layers;           /* how many layers have experts */
    uint8_t mlp_only[NAPIER_MOST_LAYERS / 8]; /* .. but not those with a bit here */
    bool norm_topk_prob;                      /* the shares of a row's experts are divided by their sum */
    int tie_word_embeddings;                  /* 0 if absent, as in transformers */
    napier_dtype dtype;                       /* of the weights, from `dtype` or `torch_dtype`; 0: not in the file */
    int64_t bos_token_id;                     /* -1: none */
    int eos_count;
    int64_t eos_token_ids[NAPIER_MOST_EOS_TOKENS];
} napier_model_config;

/* Whether a layer has experts. */
bool napier_model_config_is_sparse(const napier_model_config *config, int64_t layer);

/* Reads a config.json from a file or from memory (messages then call it `name`). Errors: IO_ERROR, CORRUPT_DATA (not
 * JSON, a field missing or out of range), UNSUPPORTED (the message names the field and its value). */
napier_status napier_model_config_load(napier_context *context, const char *path, napier_model_config *config);
napier_status napier_model_config_parse(napier_context *context, const char *name, const char *text, size_t size,
                                        napier_model_config *config);

/* Reads the fields of the rope, after max_position_embeddings (model_rope.c). */
struct napier_json;
void napier_model_read_rope(struct napier_json *json, napier_model_config *config);

#endif
