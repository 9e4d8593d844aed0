/* lm/decoder/layers.h - runs the layers of a transformer over a ragged batch: from token ids to states after the last
 * norm.
 *
 * All tokens of the batch, of prompts and responses, go through a layer together. Within a layer the keys of a response
 * follow those of its prompt, which have just been computed. So only one layer's keys and values are stored, not all
 * layers'. */
#ifndef NAPIER_LM_DECODER_LAYERS_H
#define NAPIER_LM_DECODER_LAYERS_H

#include "core/base/scope.h"
#include "lm/decoder/weights.h"

/* ---- A ragged batch: sequences of tokens, each after a prefix of rows (ragged.c) --------------------------------- */

/* Copies the keys and values of rows begin .. end - 1 to row `to` and following, so that two pieces of a prefix become
 * contiguous. */
typedef struct napier_row_copy {
    int64_t to, begin, end;
} napier_row_copy;

/* Sequence s has rows offsets[s] .. offsets[s + 1] - 1. Its prefix is rows prefix_begin[s] .. prefix_end[s] - 1, which
 * are rows of tokens, or rows after the tokens, which copies fill in order. */
typedef struct napier_ragged {
    int64_t tokens, sequences;
    int64_t *ids, *positions;           /* [tokens] */
    int64_t *offsets;                   /* [sequences + 1] */
    int64_t *prefix_begin, *prefix_end; /* [sequences] */
    int64_t *wanted_offsets; /* [sequences + 1]: the caller wants the states of the last wanted_offsets[s + 1] -
                                wanted_offsets[s] rows of sequence s */
    int64_t copies, copied;
    napier_row_copy *copy; /* [copies]; `to` counts from the first row after the tokens */
} napier_ragged;

/* The capacity of a batch. */
typedef struct napier_ragged_size {
    int64_t tokens, sequences;
    int64_t copies, copied;
    int64_t positions; /* the highest position plus one */
} napier_ragged_size;

int64_t napier_ragged_bytes(napier_ragged_size size);
/* An empty batch of this capacity, in memory of the caller. */
napier_status napier_ragged_allocate(napier_memory *memory, napier_ragged_size size, napier_ragged *batch);

/* Adds a sequence ids[begin .. end - 1] whose first token has position `position`, after the prefix of rows
 * prefix_begin .. prefix_end - 1. The states of its last `wanted` rows are wanted. */
void napier_ragged_add(napier_ragged *batch, napier_indices ids, int64_t begin, int64_t end, int64_t position,
                       int64_t prefix_begin, int64_t prefix_end, int64_t wanted);
/* Adds a copy. Its rows follow the tokens and all earlier copies. */
void napier_ragged_add_copy(napier_ragged *batch, int64_t begin, int64_t end);

/* ---- Layers over a batch ----------------------------------------------------------------------------------------- */

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
/* The caller frees `memory` after the last use of the layers. */
napier_status napier_layers_allocate(napier_memory *memory, const napier_model *model, napier_ragged_size size,
                                     napier_layers *layers);

/* Runs the layers over the batch. Afterwards row i of `normed` is the state of wanted row i. */
napier_status napier_layers_run(napier_context *context, napier_layers *layers);

/* A view of the first rows of normed. */
napier_const_matrix napier_layers_states(const napier_layers *layers, int64_t rows);

#endif
