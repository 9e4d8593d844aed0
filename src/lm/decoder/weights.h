/* lm/decoder/weights.h - a model: its shape, and views of its weights in mapped files or in the caller's memory. */
#ifndef NAPIER_LM_DECODER_WEIGHTS_H
#define NAPIER_LM_DECODER_WEIGHTS_H

#include <napier/model.h>
#include <stdbool.h>
#include <string.h>

#include "core/math/math_kernels.h"
#include "lm/decoder/gguf_weights.h"
#include "lm/decoder/model_config.h"
#include "lm/decoder/project.h"
#include "lm/decoder/safetensors.h"
#include "ops/layers/layer_kernels.h"

/* The weights of a product, and what is added to its sums. */
typedef struct napier_dense {
    napier_const_matrix weights;
    const float *bias; /* [weights.rows]; NULL: none */
} napier_dense;

typedef struct napier_layer {
    napier_norm attention_norm, mlp_norm;
    napier_norm q_norm, k_norm;  /* of a head; weight NULL: none */
    napier_dense q, k, v, o;     /* [heads * head_dim, hidden], ..., [hidden, heads * head_dim] */
    napier_dense gate, up, down; /* [intermediate, hidden], ..., [hidden, intermediate]; not in a layer with experts */
    napier_const_matrix router;  /* [experts, hidden]; rows 0: a layer without experts */
    napier_gated *experts;       /* [experts]: their gate, up and down, [moe_intermediate, hidden], .. */
} napier_layer;

struct napier_model {
    napier_model_config config;
    napier_compute compute;
    int64_t memory;
    int64_t updates; /* how many so far: a napier_kv that was made before the last one is stale */
    napier_safetensors *tensors;
    napier_gguf_weights *gguf; /* what the tensors are views of; NULL: they are in no GGUF file */
    napier_layer *layers;
    napier_gated *experts;         /* of all layers */
    unsigned dtypes;               /* of all matrices: a bit 1 << dtype for each */
    napier_const_matrix embedding; /* [vocabulary, hidden] */
    napier_const_matrix head;      /* [vocabulary, hidden]; of a reward model [labels, hidden] */
    napier_norm last_norm;
    float *vectors; /* weights of all norms, and all biases, widened to f32 */
    float *inverse; /* [head_dim / 2]: ops/layers/rotary_angles.h */
    float scale;    /* of cosines and sines */
    int64_t parameters, weight_bytes;
};

/* The dtype to which activations are rounded before a product. */
static inline napier_dtype napier_model_activations(const napier_model *model) {
    return model->compute == NAPIER_COMPUTE_BF16 ? NAPIER_BF16 : NAPIER_F32;
}

static inline int64_t napier_model_activation_bytes(const napier_model *model) {
    return model->compute == NAPIER_COMPUTE_BF16 ? 2 : (int64_t)sizeof(float);
}

/* Are products those of napier_matmul_split? */
static inline bool napier_model_splits(const napier_model *model) { return model->compute == NAPIER_COMPUTE_SPLIT; }

/* Finds the weights of a model whose config and tensors are there, and frees what that allocated. */
napier_status napier_model_get_weights(napier_context *context, napier_model *model);
void napier_model_free_weights(napier_context *context, napier_model *model);

/* Refuses a language model where rewards are asked for, and a reward model where probabilities of tokens are. */
napier_status napier_model_check_head(napier_context *context, const napier_model *model, bool rewards);

/* Refuses a sequence that is longer than the model's window, or than any. The message names the argument. */
napier_status napier_model_check_length(napier_context *context, const napier_model *model, const char *argument,
                                        int64_t tokens);

/* n weights of dtype f32, f16 or bf16 as f32. */
static inline void napier_widen(const napier_math_kernels *math, napier_dtype dtype, const void *from, float *out,
                                int64_t n) {
    switch (dtype) {
    case NAPIER_BF16: math->bf16_to_f32(from, out, n); break;
    case NAPIER_F16: math->f16_to_f32(from, out, n); break;
    default: memcpy(out, from, (size_t)n * sizeof *out); break;
    }
}

#endif
