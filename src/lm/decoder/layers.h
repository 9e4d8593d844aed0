/* lm/decoder/layers.h - the layers of a transformer over a ragged batch: token ids in, states after the last norm out.
 *
 * All tokens of the batch go through a layer together, prompts and responses alike: within a layer a response's keys
 * follow those of its prompt, which have just been computed. So what is kept of keys and values is one layer's, not
 * all layers'. */
#ifndef NAPIER_LM_DECODER_LAYERS_H
#define NAPIER_LM_DECODER_LAYERS_H

#include "lm/decoder/ragged.h"
#include "lm/decoder/weights.h"

/* Memory for batches up to a size, to be used again and again. */
typedef struct napier_layers {
    const napier_model *model;
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
    double done, share; /* of all the work: before this batch, and this batch's layers */
} napier_layers;

/* Bytes that napier_layers_allocate asks for, attention's own included; negative if they do not fit. */
int64_t napier_layers_bytes(const napier_context *context, const napier_model *model, napier_ragged_size size);
napier_status napier_layers_allocate(napier_context *context, const napier_model *model, napier_ragged_size size,
                                     napier_layers *layers);
void napier_layers_release(napier_context *context, napier_layers *layers);

/* Afterwards row i of `normed` is the state of wanted row i. */
napier_status napier_layers_run(napier_context *context, napier_layers *layers, const napier_ragged *batch);

/* normed as a view of its first rows. */
napier_const_matrix napier_layers_states(const napier_layers *layers, int64_t rows);

#endif
