/* lm_support.h - what the tests of models share: a tiny model in memory, files, and random ids. */
#ifndef NAPIER_TESTS_LM_SUPPORT_H
#define NAPIER_TESTS_LM_SUPPORT_H

#include <napier/model.h>
#include <stdio.h>

#include "support/check.h"
#include "support/tiny_model.h"

/* A model whose files are removed when the block ends. */
#define TINY_MODEL(name) tiny_model name __attribute__((cleanup(tiny_model_remove))) = TINY_MODEL_INIT

/* Loads a model that has been written. memory 0: the default. */
static inline napier_model *model_load(napier_context *context, const tiny_model *m, napier_compute compute,
                                       int64_t memory) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    napier_model *model = NULL;
    options.compute = compute;
    options.memory = memory;
    succeeded(context, napier_model_load(context, m->directory, &options, &model), "load");
    return model;
}

/* The logits [count, m->vocabulary] of one sequence. */
static inline void model_logits(napier_context *context, const napier_model *model, const tiny_model *m,
                                const int64_t *ids, int64_t count, float *logits) {
    succeeded(context,
              napier_model_forward(context, model, napier_indices_i64(ids, count), napier_indices_i64(NULL, 0),
                                   napier_rows_f32(NULL, 0, 0), napier_rows_f32(logits, count, m->vocabulary), NULL,
                                   NULL),
              "forward");
}

static inline void file_write(const char *path, const void *bytes, size_t size) {
    FILE *const file = fopen(path, "wb");
    assert_true(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* The next number of a sequence, the same one in every run. */
static inline uint32_t random_below(uint32_t limit) {
    static rng numbers = {1, 0};
    return (uint32_t)rng_below(&numbers, limit);
}

static inline void random_ids(int64_t *ids, int64_t count, int64_t vocabulary, rng *r) {
    for (int64_t i = 0; i < count; i++) {
        ids[i] = rng_below(r, vocabulary);
    }
}

#endif
