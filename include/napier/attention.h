/* napier/attention.h - softmax(Q K^T) V without the score matrix, forward and backward.
 *
 * A batch is ragged: the tokens of all sequences lie one after another, and offsets say where each begins. The keys of a
 * sequence are, in this order, the rows of a prefix (which many sequences may share) and rows of its own, all in one array:
 * so the prompt of many responses is stored once.
 *
 * Bits. An output row depends on its query, on the keys and values that it may see, in their order, and on the options that
 * apply to it; not on the batch, on where the prefix ends, on threads, strides, instruction set or compiler. The gradient of
 * a query likewise; that of a row of k or v is the sum, over the sequences that use it, in their order, of what each gives
 * it. The bits are contractual. docs/attention.md has the order.
 *
 * What a row does not see leaves no trace in it, NaN and infinities included: keys beyond the causal limit, keys whose mask
 * is 0 (bytes) or -inf (floats). A NaN that it sees, or a score of +inf, makes the row NaN, and its lse.
 *
 * Error (f32 output). With S the largest sum_i |scale q_i k_i| (plus |mask|) over the keys that a row sees:
 *     output   (2 (dim + 4) S + keys + 12) 2^-24 max_j |v_j|
 *     lse      ((dim + 4) S + keys / 16 + 12) 2^-24 + 1 ulp
 * which bounds the worst case; errors measured are below a tenth of it (tests/unit/test_attention.c). */
#ifndef NAPIER_ATTENTION_H
#define NAPIER_ATTENTION_H

#include <napier/types.h>

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Heads of tokens: element (t, h, i) lies at data + (t * token_stride + h * head_stride + i * dim_stride) elements. */
typedef struct napier_heads {
    void *data;
    int64_t tokens, heads, dim;
    int64_t token_stride, head_stride, dim_stride;
    napier_dtype dtype;
} napier_heads;

typedef struct napier_const_heads {
    const void *data;
    int64_t tokens, heads, dim;
    int64_t token_stride, head_stride, dim_stride;
    napier_dtype dtype;
} napier_const_heads;

typedef struct napier_attention_options {
    size_t struct_size;
    double scale;                   /* of the scores, finite also in f32; 0: 1 / sqrt(dim) */
    int causal;                     /* query i of n, before m keys, sees keys 0 .. m - n + i: the last query sees all */
    napier_masked_rows masked_rows; /* a row that sees no key, or only scores of -inf: NaN (default) or zeros */

    int64_t sequences;            /* 0: one sequence of all tokens, and the offsets are not read */
    const int64_t *query_offsets; /* [sequences + 1], from 0 to q.tokens, never falling */
    const int64_t *key_offsets;   /* [sequences + 1], rising within k.tokens: rows of k and v of the sequence's own */
    const int64_t *prefix_begin;  /* [sequences] rows of k and v that come before those; NULL: none */
    const int64_t *prefix_end;    /* [sequences] */

    const void *mask;  /* NULL: none. Row: query token; column: the key's place in its sequence */
    int mask_is_bytes; /* 0: f32, added to the scaled score; 1: bytes, where 0 hides the key */
    int64_t mask_token_stride, mask_head_stride, mask_key_stride; /* elements; 0 broadcasts */
    int64_t mask_keys; /* columns that are there: at least the keys of every sequence */
} napier_attention_options;

#define NAPIER_ATTENTION_OPTIONS_INIT \
    { sizeof(napier_attention_options), 0.0, 0, NAPIER_MASKED_NAN, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0 }

/* output[t][h] = sum_j softmax_j(scale * q[t][h] . k[j][g] + mask) v[j][g], where g = h / (q.heads / k.heads).
 * q and output [tokens, heads, dim] and [tokens, heads, v.dim]; k and v [key tokens, kv heads, dim], q.heads a multiple of
 * k.heads. f32, f16 and bf16, each its own; arithmetic is f32. lse: [tokens, heads] f32, the logsumexp of the scores,
 * which the backward needs; no data: not wanted. A row that sees nothing: options->masked_rows, lse -inf.
 * Nothing that is written may overlap anything else. options NULL: defaults. Memory: linear in the tokens.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_attention(napier_context *context, napier_const_heads q, napier_const_heads k,
                                          napier_const_heads v, napier_heads output, napier_matrix lse,
                                          const napier_attention_options *options);

/* The gradients of a loss with respect to q, k and v, from its gradient with respect to output, and from output and lse of
 * the forward call with the same options. Any of the three may have no data: not wanted. They are written, not added to; rows
 * of k and v that no sequence uses get 0. A row that sees no key has gradient 0. */
NAPIER_API napier_status napier_attention_backward(napier_context *context, napier_const_heads grad_output,
                                                   napier_const_heads q, napier_const_heads k, napier_const_heads v,
                                                   napier_const_heads output, napier_const_matrix lse,
                                                   napier_heads grad_q, napier_heads grad_k, napier_heads grad_v,
                                                   const napier_attention_options *options);

#ifdef __cplusplus
}
#endif
#endif
