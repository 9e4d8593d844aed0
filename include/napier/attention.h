/* napier/attention.h - softmax(Q K^T) V without the score matrix, forward and backward.
 *
 * A batch is ragged: the tokens of all sequences lie one after another, and offsets give the start of each sequence. The keys
 * of a sequence are the rows of a prefix, followed by rows of its own. Many sequences may share a prefix, so the prompt of many
 * responses is stored once.
 *
 * Bits. An output row depends only on its query, on the keys and values that it attends to, in their order, and on the options
 * that apply to it. It does not depend on the batch, on where the prefix ends, on threads, strides, instruction set or
 * compiler. The same holds for the gradient of a query. The gradient of a row of k or v is the sum of the contributions of the
 * sequences that use it, in their order. The bits are contractual. docs/attention.md has the order.
 *
 * Masked keys have no effect on a row, even where they are NaN or infinite. Masked are the keys beyond the causal limit and
 * those whose mask is 0 (bytes) or -inf (floats). An unmasked NaN, or a score of +inf, makes the row and its lse NaN.
 *
 * Error bounds for f32 output. S is the largest sum_i |scale q_i k_i| (plus |mask|) over the keys of a row:
 *     output   (2 (dim + 4) S + keys + 12) 2^-24 max_j |v_j|
 *     lse      ((dim + 4) S + keys / 16 + 12) 2^-24 + 1 ulp
 * Measured errors are below a tenth of these bounds (tests/unit/attention/test_attention.c).
 *
 * Gradients of the scores are P (dP - D), where D is the mean of dP under the weights P. Their error is about 2^-24 of
 * P |grad_output| |v|, not of themselves. So where a weight is almost 1, dP - D nearly cancels: with scores [s, 0, -1] grad_q
 * has lost all digits at s = 15 (docs/attention.md).
 *
 * The option bf16_weights rounds the weights of the keys to bf16, so that a matrix engine (AMX) can multiply them with the
 * values. Models in compute mode bf16 use it. It is an order of its own (docs/attention.md), with bits that are as
 * contractual and as independent. Scores and outputs are sums in the order of bf16 by bf16 (napier/linear.h), so subnormal
 * elements of q, k and v count as 0. Its bounds are those above plus
 *     output   (2^-8 + 2^-15) max_j |v_j| + (keys + 1) 2^-125 max(1, max_j |v_j|)
 *     lse      2^-8 + 2^-15
 * because lse is that of the rounded weights, which sum to 1 with it.
 *
 * The option bf16_gradient does the same for the backward: weights and the gradients of the scores are rounded to bf16 once,
 * as in PyTorch, and all five products are of bf16 by bf16. It takes the output and lse of either forward. Its bits too are
 * contractual and as independent. Rounding moves each term of a gradient by up to 2^-8 of it. A term whose weight or gradient
 * of the score is 0 adds nothing, whatever it is multiplied with. */
#ifndef NAPIER_ATTENTION_H
#define NAPIER_ATTENTION_H

#include <napier/types.h>

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An array [tokens, heads, dim]. Element (t, h, i) lies at data + t * token_stride + h * head_stride + i * dim_stride, counted
 * in elements. */
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
    double scale; /* of the scores, finite in f32; 0: 1 / sqrt(dim) */
    int causal;   /* query i of n attends to keys 0 .. m - n + i of m: the last query attends to all */
    napier_masked_rows masked_rows; /* a row without keys, or with only scores of -inf: NaN (default) or zeros */

    int64_t sequences;            /* 0: one sequence of all tokens; the offsets are not read */
    const int64_t *query_offsets; /* [sequences + 1], ascending from 0 to q.tokens */
    const int64_t *key_offsets;  /* [sequences + 1], ascending, at most k.tokens: each sequence's own rows of k and v */
    const int64_t *prefix_begin; /* [sequences] first row of the prefix in k and v; NULL: no prefix */
    const int64_t *prefix_end;   /* [sequences] row after the prefix */

    const void *mask;  /* NULL: none. Row: query token. Column: index of the key in its sequence */
    int mask_is_bytes; /* 0: f32, added to the scaled score; 1: bytes, where 0 hides the key */
    int64_t mask_token_stride, mask_head_stride, mask_key_stride; /* elements; 0 broadcasts */
    int64_t mask_keys; /* columns of the mask: at least the keys of every sequence */

    /* [sequences] the row after each sequence's own rows; NULL: key_offsets[s + 1]. With it, key_offsets [sequences] are the
       first rows, in any order, and sequences may share them: a cache of keys has gaps. It needs prefix_begin and prefix_end,
       which are 0 where there is no prefix */
    const int64_t *key_end;

    /* Not 0: q, k and v are bf16, and weights are rounded to bf16 (see above). The backward call computes its gradients as
       without it */
    int64_t bf16_weights;

    /* Not 0: q, k, v and grad_output are bf16, and the backward call rounds the weights and the gradients of the scores to
       bf16 (see above). The forward call computes its output as without it. A GPU does not: UNSUPPORTED */
    int64_t bf16_gradient;

    /* [q.tokens, q.heads] f32: the loss's gradient with respect to lse, for the backward call; without data: 0. It is
       subtracted from the D (see above) of its row, in f32. The forward call ignores it */
    napier_const_matrix grad_lse;
} napier_attention_options;

#define NAPIER_ATTENTION_OPTIONS_INIT \
    { .struct_size = sizeof(napier_attention_options) }

/* output[t][h] = sum_j softmax_j(scale * q[t][h] . k[j][g] + mask) v[j][g], where g = h / (q.heads / k.heads).
 * Shapes: q [tokens, heads, dim], output [tokens, heads, v.dim], k and v [key tokens, kv heads, dim]; q.heads is a multiple of
 * k.heads. Each dtype is f32, f16 or bf16; arithmetic is f32. lse [tokens, heads], f32, receives the logsumexp of the scores,
 * which the backward call needs; pass it without data if you do not want it. A row without keys gets what
 * options->masked_rows says, and an lse of -inf. Outputs must not overlap anything else. options NULL: defaults. Memory is
 * linear in the number of tokens.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_attention(napier_context *context, napier_const_heads q, napier_const_heads k,
                                          napier_const_heads v, napier_heads output, napier_matrix lse,
                                          const napier_attention_options *options);

/* The gradients of a loss with respect to q, k and v, given its gradient with respect to output (and in options->grad_lse
 * that with respect to lse), and output and lse of the forward call with the same options. Pass those of the three that you do
 * not want without data. The call overwrites them. Rows of k and v that no sequence uses get 0. A query without keys has
 * gradient 0. */
NAPIER_API napier_status napier_attention_backward(napier_context *context, napier_const_heads grad_output,
                                                   napier_const_heads q, napier_const_heads k, napier_const_heads v,
                                                   napier_const_heads output, napier_const_matrix lse,
                                                   napier_heads grad_q, napier_heads grad_k, napier_heads grad_v,
                                                   const napier_attention_options *options);

#ifdef __cplusplus
}
#endif
#endif
