/* ops/attention/gpu/attention_cuda.h - the jobs of attention on a GPU, which both halves share.
 *
 * Here a row is a query of one head of q. A tile is up to 16 rows of one head and one sequence. A block multiplies a
 * tile with the keys, 256 at a time, a key for each thread. */
#ifndef NAPIER_OPS_ATTENTION_GPU_ATTENTION_CUDA_H
#define NAPIER_OPS_ATTENTION_GPU_ATTENTION_CUDA_H

#include <napier/attention.h>
#include <stdbool.h>

#include "core/gpu/fault.h"

enum {
    NAPIER_ATTENTION_THREADS = 256,
    NAPIER_ATTENTION_ROWS = 16,   /* of a tile; in the keys' gradients: keys */
    NAPIER_ATTENTION_KEYS = 256,  /* keys at a time: part of the order, as on the CPU */
    NAPIER_ATTENTION_PART = 32,   /* columns of dim in a stage of keys; a block of them in the order of bf16_weights */
    NAPIER_ATTENTION_PLACES = 32, /* places of a block of outputs in that order */
    NAPIER_ATTENTION_STEP = 20,   /* floats from one 16 to the next: on 16 bytes, and spread over the banks */
    NAPIER_ATTENTION_SMALL = 8192 /* bytes for a row's state and a key's visibility */
};

/* On tensor cores. */
enum {
    NAPIER_TENSOR_THREADS = 128,
    NAPIER_TENSOR_ROWS = 64, /* of a tile */
    NAPIER_TENSOR_KEYS = 64  /* keys at a time, counted from a sequence's first: part of the order */
};

/* Lines of `wide` elements, 64 or 128: queries, two stages of keys and of values, and the indices of their rows. */
static inline int64_t napier_tensor_shared(int64_t wide) {
    return 5 * NAPIER_TENSOR_ROWS * wide * 2 + 3 * NAPIER_TENSOR_ROWS * 8 + 16;
}

/* Bytes of shared memory: two sides of dim and v_dim [16], `columns` arrays of as many [20], `weights` arrays
 * [256][20]. */
static inline int64_t napier_attention_shared(int64_t dim, int64_t v_dim, int64_t columns, int64_t weights) {
    return NAPIER_ATTENTION_SMALL + 4 * ((dim + v_dim) * NAPIER_ATTENTION_ROWS + columns * NAPIER_ATTENTION_STEP +
                                         weights * NAPIER_ATTENTION_KEYS * NAPIER_ATTENTION_STEP +
                                         NAPIER_ATTENTION_KEYS * (NAPIER_ATTENTION_PART + 1));
}

typedef struct napier_attention_job {
    napier_const_heads q, k, v;
    napier_heads output;
    napier_matrix lse; /* no data: not wanted */
    bool causal, mask_is_bytes;
    int64_t sequences;
    const int64_t *query_offsets, *key_offsets; /* NULL: one sequence of all */
    const int64_t *key_end;                     /* NULL: key_offsets[i + 1] */
    const int64_t *prefix_begin, *prefix_end;   /* NULL: no prefixes */
    const void *mask;
    int64_t mask_token_stride, mask_head_stride, mask_key_stride, mask_keys;
    int64_t group;       /* heads of q for each of k */
    float scale, factor; /* of the scores; that times log2(e) */
    float masked;        /* the output of a row that attends to nothing */
    int64_t tiles;       /* of a head, at most: some may be empty */
    int32_t *bad;        /* not 0: the offsets are wrong, and all results are NaN. NULL: there are none */
    napier_cuda_faults *faults;

    napier_const_heads grad_output;
    napier_const_matrix lse_in, grad_lse; /* grad_lse without data: 0 */
    napier_heads grad_q, grad_k, grad_v;
    float *means; /* [q.tokens][q.heads]: grad_output . output - grad_lse */
    napier_const_heads output_in;
} napier_attention_job;

#endif
