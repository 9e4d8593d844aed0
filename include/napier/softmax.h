/* napier/softmax.h - softmax, log_softmax and logsumexp, their gradients, and the mergeable state.
 *
 * For a row x of n logits and a temperature T, with z = x / T rounded once to the compute type:
 *     logsumexp   = log sum_j exp(z_j)
 *     log_softmax = z_i - logsumexp
 *     softmax     = exp(z_i - logsumexp)
 *
 * Dtypes. Input and output are each f32, f16, bf16 or f64. The compute type is f64 if either is f64, else f32. The input is
 * widened exactly. The result is rounded once, to nearest even, from the compute type.
 *
 * Bits. The bits of a row's result depend only on the row's values, its length, the dtypes and NAPIER_NUMERICS_VERSION. They do
 * not depend on threads, batch, strides, alignment, in-place use, instruction set, algorithm or compiler. They are contractual
 * (docs/numerics.md).
 *
 * Special rows          logsumexp   softmax                        log_softmax
 *     length 0          -inf        empty                          empty
 *     one finite x      x           1                              0
 *     all -inf          -inf        NaN, or 0 with MASKED_ZERO     NaN, or -inf with MASKED_ZERO
 *     any NaN           NaN         NaN                            NaN
 *     a +inf, no NaN    +inf        NaN                            NaN
 *     -inf among finite ignored     0 there                        -inf there
 * A NaN result is the canonical quiet NaN of its dtype (f32 0x7fc00000, f16 0x7e00, bf16 0x7fc0, f64 0x7ff8000000000000).
 * The caller's rounding mode and flush-to-zero flags neither change results nor are changed.
 *
 * Error bounds for f32. p_max is the share of all elements that equal the maximum; delta = 15.6 * 2^-24.
 *     logsumexp                1 ulp of the result + delta * (1 - p_max)
 *                              Where the maximum and the log of the sum cancel, the error of their sum is up to 2^-44.
 *     log_softmax              1.5 ulp of the result + delta * (1 - p_max). A log-probability is never positive.
 *     softmax                  4 ulp + delta * (1 - p_max) relative; |sum - 1| <= 3e-7
 *
 * Aliasing. An output may be the input itself (same data, dtype and strides). Any other overlap of an output with an input,
 * or of an output's elements with each other, is INVALID_ARGUMENT. Thread safety: one context per thread.
 * A call that returns INVALID_ARGUMENT has written nothing.
 * Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; docs/softmax.md. */
#ifndef NAPIER_SOFTMAX_H
#define NAPIER_SOFTMAX_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a row is read. All algorithms give the same bits. AUTO chooses by shape. */
typedef enum napier_algorithm {
    NAPIER_ALGORITHM_AUTO = 0,
    NAPIER_ALGORITHM_SAFE = 1,    /* three passes: maximum, sum, result */
    NAPIER_ALGORITHM_ONLINE = 2,  /* two passes: maximum and sum together, tile by tile, then the result */
    NAPIER_ALGORITHM_PARALLEL = 3 /* as online, with every row split over all threads */
} napier_algorithm;

/* The result of softmax and log_softmax for a row of only -inf. */
typedef enum napier_masked_rows {
    NAPIER_MASKED_NAN = 0, /* NaN, like PyTorch and SciPy */
    NAPIER_MASKED_ZERO = 1 /* softmax 0, log_softmax -inf */
} napier_masked_rows;

typedef struct napier_softmax_options {
    size_t struct_size; /* sizeof(napier_softmax_options) */
    /* Finite and > 0, also after rounding to the compute type; default 1. A finite logit whose quotient overflows is an
     * infinity: [3e38, 1e38] with 0.5 is a row with +inf, unless the compute type is f64. */
    double temperature;
    napier_algorithm algorithm;     /* default AUTO */
    napier_masked_rows masked_rows; /* default NAN; logsumexp ignores it */
} napier_softmax_options;

#define NAPIER_SOFTMAX_OPTIONS_INIT \
    { sizeof(napier_softmax_options), 1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN }

/* probs[i][j] = softmax of row i of logits. Both [rows, cols]; in place allowed. options NULL: defaults.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_softmax(napier_context *context, napier_const_matrix logits, napier_matrix probs,
                                        const napier_softmax_options *options);

/* logprobs[i][j] = log_softmax of row i of logits. Shapes, options and errors as for napier_softmax. A finite logit far below
 * the maximum gives the rounded true value (-1e30 stays -1e30), and -inf only where that overflows the result's dtype. */
NAPIER_API napier_status napier_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                                            const napier_softmax_options *options);

/* lse[i] = logsumexp of row i of logits [rows, cols]; lse has size rows. A row without columns gives -inf. */
NAPIER_API napier_status napier_logsumexp(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                          const napier_softmax_options *options);

/* lse[0] = logsumexp of all elements of the view. The bits are those of one row that holds the elements in the view's
 * row-major order. lse has size 1. An empty view gives -inf. */
NAPIER_API napier_status napier_logsumexp_all(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                              const napier_softmax_options *options);

/* lse[i] = log |sum_j b_ij exp(z_ij)|, and sign[i] is the sum's sign: 1, 0 or -1. The weights b are [rows, cols] like the
 * logits (a stride of 0 repeats them) and may have any sign. lse and sign have size rows and any dtypes. Pass a sign without
 * data if you do not want it; a negative sum then gives NaN. The compute type is f64 if logits, weights or lse is f64, else
 * f32. Only the options temperature (of the logits) and algorithm are used.
 *
 * An element with weight 0 is ignored, whatever its logit is, inf and NaN included. Where every weight is 1 or 0, the bits
 * are those of napier_logsumexp with -inf in place of the ignored elements. The bits are as contractual as
 * napier_logsumexp's.
 *     no element, or only logits -inf  lse -inf, sign 0       a term is +inf or -inf, not both  +inf, and its sign
 *     terms that cancel exactly        lse -inf, sign 0       NaN, inf - inf, or inf * exp(-inf)  NaN, NaN
 * A weighted sum may cancel. Relative to sum |b| exp(z), the error is that of napier_logsumexp plus one rounding for each
 * product. Elements that equal the largest logit are added exactly. Terms below the largest one by a factor of exp(129)
 * (f64: exp(800)) may be left out, even where all larger terms cancel.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_logsumexp_weighted(napier_context *context, napier_const_matrix logits,
                                                   napier_const_matrix weights, napier_vector lse, napier_vector sign,
                                                   const napier_softmax_options *options);

/* ---- Gradients --------------------------------------------------------------------------------------------------
 * Vector-Jacobian products: from the gradient with respect to a result they compute the gradient with respect to the logits.
 * All matrices are [rows, cols]. grad_logits may be either input itself (same data, strides and dtype). The bits are
 * contractual: row sums have a fixed order (tiles of 1024 elements with 256 lanes; the tiles' sums are added in double, in
 * order of index). Only the option temperature is used. Masked positions (probability 0) get 0 from softmax. For an
 * element with a probability above 1/2, 1 - p is not taken from the rounded p, so that its gradient is not lost. */

/* grad_logits = probs * (grad_probs - sum_j grad_probs_j probs_j) / T, where probs is the result of napier_softmax. */
NAPIER_API napier_status napier_softmax_backward(napier_context *context, napier_const_matrix probs,
                                                 napier_const_matrix grad_probs, napier_matrix grad_logits,
                                                 const napier_softmax_options *options);

/* grad_logits = (grad_logprobs - exp(logprobs) * sum_j grad_logprobs_j) / T, where logprobs is the result of
 * napier_log_softmax. */
NAPIER_API napier_status napier_log_softmax_backward(napier_context *context, napier_const_matrix logprobs,
                                                     napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                                     const napier_softmax_options *options);

/* grad_logits[i] = grad_lse[i] * softmax(logits[i] / T) / T. The softmax is computed anew, because exp(logits - lse) would
 * lose accuracy where lse is large. A row of only -inf gets 0. A row with +inf gets NaN everywhere, as its softmax is NaN
 * (PyTorch: NaN at the infinities, 0 elsewhere). grad_lse has size rows. */
NAPIER_API napier_status napier_logsumexp_backward(napier_context *context, napier_const_matrix logits,
                                                   napier_const_vector grad_lse, napier_matrix grad_logits,
                                                   const napier_softmax_options *options);

/* The same for napier_logsumexp_all: grad_lse has size 1, the softmax runs over all elements of the view. */
NAPIER_API napier_status napier_logsumexp_all_backward(napier_context *context, napier_const_matrix logits,
                                                       napier_const_vector grad_lse, napier_matrix grad_logits,
                                                       const napier_softmax_options *options);

/* dots[i] = sum_j a_ij b_ij, for derivatives of these gradients: the sum that napier_softmax_backward has for probs a and
 * grad_probs b, in its order, rounded once to the dtype of dots. b_ij is ignored where a_ij is 0. dots has size rows. */
NAPIER_API napier_status napier_dot_rows(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                         napier_vector dots);

/* y[i] = exp(x[i]) and log(x[i]), computed in double (errors below 0.54 and 0.501 ulp) and rounded once to the dtype of y; NaN
 * for the log of a negative number. y may be x. */
NAPIER_API napier_status napier_exp(napier_context *context, napier_const_vector x, napier_vector y);
NAPIER_API napier_status napier_log(napier_context *context, napier_const_vector x, napier_vector y);

/* ---- The mergeable state ------------------------------------------------------------------------------------------
 * A state is the reduction of a part of a row: of consecutive elements that start at a known index of the row. Fill states
 * block by block, merge them, send them elsewhere as bytes, finish one, and apply it to the row's blocks in any order. The
 * result has the bits of one call on the whole row, for any split of the row over updates and states, and for any grouping
 * and order of the merges.
 *
 *     rank k of 4:  create(first_index = k * 37984); update(shard k)
 *     anywhere:     merge(0, 1); merge(2, 3); merge(0, 2); finish(0)
 *     rank k:       apply(state 0, shard k)
 *
 * A row consists of tiles of 1024 elements, counted from index 0 of the row. Only a whole tile can be reduced. So a state keeps
 * the elements of an incomplete first or last tile until a neighbour completes it, and a part may start and end anywhere. */
typedef struct napier_softmax_state napier_softmax_state;

/* Creates an empty state for the part of a row that starts at `first_index` (>= 0). `compute` is F32 (for f32, f16 and bf16
 * logits) or F64. Each new element is divided by the options' temperature. masked_rows is kept for apply, and algorithm is
 * ignored. The state copies the context's allocator, so it may outlive the context and be used with another one. It takes
 * about 9 KB (f32) or 17 KB (f64).
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. On failure *out is NULL. */
NAPIER_API napier_status napier_softmax_state_create(napier_context *context, napier_dtype compute, int64_t first_index,
                                                     const napier_softmax_options *options, napier_softmax_state **out);
/* Frees a state. NULL is allowed. */
NAPIER_API void napier_softmax_state_destroy(napier_softmax_state *state);

/* Appends the elements of `logits` (any stride, any length, 0 included) to the part. An F32 state takes f32, f16 and
 * bf16; an F64 state takes all four. Errors: INVALID_ARGUMENT (an f64 block for an F32 state; 2^40 elements or more). */
NAPIER_API napier_status napier_softmax_state_update(napier_context *context, napier_softmax_state *state,
                                                     napier_const_vector logits);

/* Makes `into` the reduction of both parts; `from` does not change. Both must have the same compute dtype, temperature and
 * masked_rows. The parts must be neighbours in the row (in either order), or both start and end at multiples of 1024, or one
 * of them be empty. Otherwise the call returns STATE_MISMATCH and `into` does not change. A part that is merged twice counts
 * twice. */
NAPIER_API napier_status napier_softmax_state_merge(napier_context *context, napier_softmax_state *into,
                                                    const napier_softmax_state *from);

/* Reduces the incomplete tiles and computes what apply needs. *lse receives the logsumexp as a double; lse may be NULL. The
 * state may be updated or merged afterwards, and must then be finished again. The bits are those of one call if the state
 * covers a whole row from index 0. */
NAPIER_API napier_status napier_softmax_state_finish(napier_context *context, napier_softmax_state *state, double *lse);

/* ---- The same with weights ------------------------------------------------------------------------------------------
 * A weighted state is a part of a row of napier_logsumexp_weighted, and its result has that call's bits. merge, save, load,
 * destroy and the other functions take weighted states too; update and apply do not. Both states of a merge are weighted, or
 * neither is.
 * A part has fewer than 2^38 elements. A state takes about 18 KB (f32) or 34 KB (f64). */

/* As napier_softmax_state_create. */
NAPIER_API napier_status napier_softmax_state_create_weighted(napier_context *context, napier_dtype compute,
                                                              int64_t first_index,
                                                              const napier_softmax_options *options,
                                                              napier_softmax_state **out);
/* Appends elements and their weights, of one size. Dtypes as for napier_softmax_state_update, for each of both; a stride of 0
 * repeats a weight. Errors: INVALID_ARGUMENT. */
NAPIER_API napier_status napier_softmax_state_update_weighted(napier_context *context, napier_softmax_state *state,
                                                              napier_const_vector logits, napier_const_vector weights);
/* *lse receives log |sum|, and *sign 1, 0, -1 or NaN. Either may be NULL; without sign a negative sum gives NaN, as in
 * napier_softmax_state_finish. A state without weights has the sign of its sum of exponentials. */
NAPIER_API napier_status napier_softmax_state_finish_weighted(napier_context *context, napier_softmax_state *state,
                                                              double *lse, double *sign);

typedef enum napier_softmax_kind { NAPIER_KIND_SOFTMAX = 0, NAPIER_KIND_LOG_SOFTMAX = 1 } napier_softmax_kind;

/* Writes softmax or log_softmax of a block of the row's logits, given the finished state of the whole row. `result` has
 * the size of `logits` and may be `logits` itself. An f64 result needs an F64 state; an F64 state can write any dtype.
 * Errors: STATE_MISMATCH (not finished), INVALID_ARGUMENT. */
NAPIER_API napier_status napier_softmax_state_apply(napier_context *context, const napier_softmax_state *state,
                                                    napier_softmax_kind kind, napier_const_vector logits,
                                                    napier_vector result);

/* The first index of the part in its row, and its number of elements. */
NAPIER_API int64_t napier_softmax_state_first_index(const napier_softmax_state *state);
NAPIER_API int64_t napier_softmax_state_count(const napier_softmax_state *state);

/* The size of the state as bytes, at most 20 KB; 36 KB if it is weighted and f64. The bytes are the same on every machine:
 * little-endian, with magic, format, numerics version, tile, dtype, temperature and a checksum. */
NAPIER_API size_t napier_softmax_state_size(const napier_softmax_state *state);
/* Writes napier_softmax_state_size bytes. INVALID_ARGUMENT if `capacity` is less. */
NAPIER_API napier_status napier_softmax_state_to_bytes(napier_context *context, const napier_softmax_state *state,
                                                       void *bytes, size_t capacity);
/* Creates a state from bytes, which may be hostile. CORRUPT_DATA if they do not follow the format; STATE_MISMATCH if their
 * numerics version, tile or dtype is another. A loaded state is not finished. */
NAPIER_API napier_status napier_softmax_state_from_bytes(napier_context *context, const void *bytes, size_t size,
                                                         napier_softmax_state **out);

static inline NAPIER_DEPRECATED("it is napier_softmax_state_to_bytes") napier_status
    napier_softmax_state_save(napier_context *context, const napier_softmax_state *state, void *bytes,
                              size_t capacity) {
    return napier_softmax_state_to_bytes(context, state, bytes, capacity);
}
static inline NAPIER_DEPRECATED("it is napier_softmax_state_from_bytes") napier_status
    napier_softmax_state_load(napier_context *context, const void *bytes, size_t size, napier_softmax_state **out) {
    return napier_softmax_state_from_bytes(context, bytes, size, out);
}

#ifdef __cplusplus
}
#endif
#endif
