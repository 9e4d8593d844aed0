/* lm/decoder/layers.h - runs the layers of a transformer over a ragged batch: from token ids to states after the last
 * norm.
 *
 * All tokens of the batch, of prompts and responses, go through a layer together. Within a layer the keys of a response
 * follow those of its prompt, which have just been computed. So only one layer's keys and values are stored, not all
 * layers', unless a napier_kv_store keeps them for sequences that go on in a later batch. */
#ifndef NAPIER_LM_DECODER_LAYERS_H
#define NAPIER_LM_DECODER_LAYERS_H

#include "core/base/scope.h"
#include "lm/decoder/weights.h"

/* ---- A ragged batch: sequences of tokens, each after a prefix of rows (ragged.c) --------------------------------- */

/* Rows begin .. end - 1 of keys and values. */
typedef struct napier_key_rows {
    int64_t begin, end;
} napier_key_rows;

/* Keys and values of all layers, for `rows` tokens. */
typedef struct napier_kv_store {
    void *k, *v; /* [layers, rows, kv_heads, head_dim] */
    int64_t rows;
} napier_kv_store;

/* Copies keys and values to row `to` and following: of rows of the batch, or of `from` if that is not NULL. So pieces of
 * a prefix become contiguous, and keys of new tokens follow those of their sequence. */
typedef struct napier_row_copy {
    int64_t to;
    napier_key_rows rows;
    const napier_kv_store *from;
} napier_row_copy;

/* Sequence s has tokens offsets[s] .. offsets[s + 1] - 1. It attends to its prefix, and to its own rows up to each
 * token. Without a store, row t holds the keys of token t, and copies fill the rows after the tokens, in order. With a
 * store, all rows are the store's, and copies bring the keys of the tokens there. */
typedef struct napier_ragged {
    int64_t tokens, sequences;
    int64_t *ids, *positions;           /* [tokens] */
    int64_t *offsets;                   /* [sequences + 1] */
    int64_t *prefix_begin, *prefix_end; /* [sequences] */
    int64_t *own_begin, *own_end;       /* [sequences] */
    int64_t *wanted_offsets; /* [sequences + 1]: the caller wants the states of the last wanted_offsets[s + 1] -
                                wanted_offsets[s] rows of sequence s */
    int64_t copies;
    napier_row_copy *copy; /* [copies] */
} napier_ragged;

/* The capacity of a batch. */
typedef struct napier_ragged_size {
    int64_t tokens, sequences;
    int64_t copies;
    int64_t copied;    /* rows after the tokens */
    int64_t positions; /* the highest position plus one */
    int64_t keys;      /* of all sequences, if they are in a store; 0: those of the tokens and copies */
} napier_ragged_size;

int64_t napier_ragged_bytes(napier_ragged_size size);
/* An empty batch of this capacity, in memory of the caller. */
napier_status napier_ragged_allocate(napier_memory *memory, napier_ragged_size size, napier_ragged *batch);

/* Empties a batch. */
void napier_ragged_clear(napier_ragged *batch);
/* Adds a sequence ids[begin .. end - 1] whose first token has position `position`, after a prefix. The states of its
 * last `wanted` rows are wanted. Returns the rows of its tokens, which are its own rows. */
napier_key_rows napier_ragged_add(napier_ragged *batch, napier_indices ids, int64_t begin, int64_t end,
                                  int64_t position, napier_key_rows prefix, int64_t wanted);
/* Says that the last sequence has other own rows: in a store, those of its earlier tokens and of its new ones. */
void napier_ragged_set_own(napier_ragged *batch, napier_key_rows own);
void napier_ragged_add_copy(napier_ragged *batch, napier_row_copy copy);

/* ---- Layers over a batch ----------------------------------------------------------------------------------------- */

/* A batch of up to a given size, and the memory of its layers. */
typedef struct napier_layers {
    const napier_model *model;
    napier_ragged batch;       /* the caller fills it */
    napier_dtype dtype;        /* of activations before a product */
    float *x;                  /* [tokens, hidden] the residual stream */
    void *normed;              /* [tokens, hidden] */
    void *q, *attended;        /* [tokens, heads, head_dim] */
    void *k, *v;               /* [tokens + copied, kv_heads, head_dim], of one layer */
    int64_t rows;              /* of k and v */
    napier_kv_store *store;    /* NULL: none */
    void *experts;             /* of napier_experts_run */
    float *wide;               /* [block, ...] sums of a product */
    float *cosines, *sines;    /* [positions, head_dim / 2]   */
    float *memory;             /* of a product */
    napier_progress *progress; /* NULL: none */
    void *user;
    double done, share; /* fractions of all work: before this batch, and in this batch's layers */
} napier_layers;

/* The memory that the layers need for a batch of up to a given size. It is made once: a caller compares its bytes with a
 * limit, and the memory is allocated by it. */
enum { NAPIER_LAYERS_AREAS = 10 };
typedef struct napier_layers_plan {
    const napier_model *model;
    napier_ragged_size size;
    int64_t areas[NAPIER_LAYERS_AREAS]; /* bytes */
    int64_t bytes;                      /* of all, and what attention allocates. INT64_MAX if they overflow */
    int64_t rows, floats;               /* a product of 1 .. rows rows takes so many floats at most */
} napier_layers_plan;

/* *plan is zero, or has the plan of a smaller batch of the same model: then only its further rows are looked at. */
void napier_layers_plan_for(const napier_context *context, const napier_model *model, napier_ragged_size size,
                            napier_layers_plan *plan);
/* The caller frees `memory` after the last use of the layers. */
napier_status napier_layers_allocate(napier_memory *memory, const napier_layers_plan *plan, napier_layers *layers);

/* Allocates a store. The caller frees `memory` after its last use. */
napier_status napier_kv_store_allocate(napier_memory *memory, const napier_model *model, int64_t rows,
                                       napier_kv_store *store);
/* Its bytes; INT64_MAX if they overflow. */
int64_t napier_kv_store_bytes(const napier_model *model, int64_t rows);

/* Runs the layers over the batch. Afterwards row i of `normed` is the state of wanted row i. */
napier_status napier_layers_run(napier_context *context, napier_layers *layers);

/* A view of the first rows of normed. */
napier_const_matrix napier_layers_states(const napier_layers *layers, int64_t rows);

#endif
