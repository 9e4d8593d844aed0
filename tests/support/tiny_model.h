/* support/tiny_model.h - a small random Qwen3 checkpoint, written into a new directory under TMPDIR. */
#ifndef NAPIER_TESTS_TINY_MODEL_H
#define NAPIER_TESTS_TINY_MODEL_H

#include <napier/types.h>
#include <stdbool.h>

typedef struct tiny_model {
    int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary;
    double theta;
    bool tied, old_config; /* old_config: rope_theta at the top of config.json */
    napier_dtype dtype;    /* of all weights */
    uint64_t seed;
    char directory[128];
} tiny_model;

#define TINY_MODEL_INIT \
    { 32, 2, 4, 2, 16, 48, 83, 1e4, true, false, NAPIER_F32, 1, "" }

/* Writes config.json and model.safetensors; directory is "" if that failed. */
void tiny_model_write(tiny_model *m);
/* Removes these files. */
void tiny_model_remove(tiny_model *m);

/* Element i of a tensor of this model, as stored: exact in its dtype. */
double tiny_model_weight(const tiny_model *m, const char *tensor, int64_t i);

#endif
