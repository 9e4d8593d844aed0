/* support/tiny_model.h - a small random checkpoint of any family, written into a new directory under TMPDIR or kept in
 * memory. */
#ifndef NAPIER_TESTS_TINY_MODEL_H
#define NAPIER_TESTS_TINY_MODEL_H

#include <napier/model.h>
#include <stdbool.h>

typedef struct tiny_model {
    int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary;
    double theta;
    bool tied, old_config; /* old_config: rope_theta at the top of config.json */
    napier_dtype dtype;    /* of all weights */
    uint64_t seed;
    char directory[128];
    const char *family;                    /* model_type */
    bool attention_bias, mlp_bias;         /* of Llama; Qwen2 has its own biases always */
    int64_t labels;                        /* 0: a language model */
    int64_t experts, chosen, expert_width; /* num_experts, num_experts_per_tok, moe_intermediate_size; 0: no experts */
    int64_t sparse_step;                   /* decoder_sparse_step */
    bool shares;                           /* norm_topk_prob */
    const char *more;                      /* further members of config.json, each after a comma */
    const char *rope;                      /* further members of rope_parameters, the same */
} tiny_model;

#define TINY_MODEL_INIT                                                                                                \
    {                                                                                                                  \
        32, 2, 4, 2, 16, 48, 83, 1e4, true, false, NAPIER_F32, 1, "", "qwen3", false, false, 0, 0, 0, 0, 1, false, "", \
            ""                                                                                                         \
    }

/* A model for each combination of options: Qwen3; Qwen2, with biases of q, k and v, and YaRN; Llama with all biases, and
 * llama3; Mistral, and linear scaling; Qwen3's mixture of experts. */
enum { TINY_FAMILIES = 5 };
tiny_model tiny_model_of(int which);

/* Whether a layer has experts; whether the model has biases of q, k and v, and norms of q and k. */
bool tiny_model_is_sparse(const tiny_model *m, int64_t layer);
bool tiny_model_qkv_bias(const tiny_model *m);
bool tiny_model_head_norms(const tiny_model *m);

/* Writes config.json and model.safetensors; directory is "" if that failed. */
void tiny_model_write(tiny_model *m);
/* Removes these files. */
void tiny_model_remove(tiny_model *m);

/* Holds the same config and tensors in memory. */
typedef struct tiny_tensors {
    napier_named_tensor *list;
    int64_t count;
    char *config;
    size_t config_size;
    void *memory[4]; /* freed by tiny_tensors_free */
} tiny_tensors;

tiny_tensors tiny_model_tensors(const tiny_model *m);
void tiny_tensors_free(tiny_tensors *t);
/* The tensor of that name, or NULL. */
napier_named_tensor *tiny_tensors_find(const tiny_tensors *t, const char *name);

/* Element i of a tensor of this model, as stored: exact in its dtype. */
double tiny_model_weight(const tiny_model *m, const char *tensor, int64_t i);

#endif
