/* lm/decoder/layers.h - runs the layers of a transformer over a ragged batch: from token ids to states after the last
 * norm.
 *
 * All tokens of the batch, of prompts and responses, go through a layer together. Within a layer the keys of a response
 * follow those of its prompt, which have just been computed. So only one layer's keys and values are stored, not all
 * layers'. */
#ifndef NAPIER_LM_DECODER_LAYERS_H
#define NAPIER_LM_DECODER_LAYERS_H

#include "lm/decoder/ragged.h"
#include "lm/decoder/weights.h"

/* A batch of up to a given size, and the memory of its layers. */
typedef struct napier_layers {
    const napier_model *model;
    napier_ragged batch;       /* the caller fills it */
    napier_dtype dtype;        /* of activations before a product */
    float *x;                  /* [tokens, hidden] the residual stream */
    void *normed;              /* [tokens, hidden] */
    void *q, *attended;        /* [tokens, heads, head_dim] */
    void *k, *v;               /* [tokens + copied, kv_heads, head_dim] */
    float *wide;               /* [block, ...] sums of a product */
    float *cosines, *sines;    /* [positions, head_dim / 2]   */
    float *memory;             /* of a product */
    napier_progress *progress; /* NULL: none */
    void *user;
    double done, share; /* fractions of all work: before this batch, and in this batch's layers */
} napier_layers;

/* The bytes that napier_layers_allocate and attention allocate. INT64_MAX if they overflow. */
int64_t napier_layers_bytes(const napier_context *context, const napier_model *model, napier_ragged_size size);
napier_status napier_layers_allocate(napier_context *context, const napier_model *model, napier_ragged_size size,
                                     napier_layers *layers);
void napier_layers_release(napier_context *context, napier_layers *layers);

/* Runs the layers over the batch. Afterwards row i of `normed` is the state of wanted row i. */
napier_status napier_layers_run(napier_context *context, napier_layers *layers);

/* A view of the first rows of normed. */
napier_const_matrix napier_layers_states(const napier_layers *layers, int64_t rows);

#endif
