/* napier/rl.h - reinforcement learning on language models: log-probabilities of tokens, KL, rubric scores, GRPO losses.
 *
 * Shapes. N rows of logits over a vocabulary of V tokens; T tokens in B responses. Response b has the tokens
 * offsets[b] .. offsets[b + 1] - 1. The offsets are B + 1 integers that never decrease, from 0 to T. An empty response
 * gives 0 and is left out of means, unless the option count_empty_responses of napier_grpo_options is set. A response
 * whose tokens are all masked counts in means, with the value 0.
 *
 * Dtypes. Inputs and results are f32, f16 or bf16. Inputs are widened exactly, all arithmetic is f32 or wider, and a
 * result is rounded once, to nearest even. f64 is INVALID_ARGUMENT.
 *
 * Bits. The bits of all results are contractual. They do not depend on threads, batch, strides, instruction set or
 * compiler. The results of a row (or response) depend only on its own values. A sum over a response uses the order of
 * the gradients in napier/softmax.h (tiles of 1024 tokens, 256 lanes, tile sums added in double). A sum over responses
 * is in double, in ascending order.
 * The log-probability of a token has the same bits by every route: napier_log_softmax and napier_gather_logprobs,
 * napier_token_logprobs, napier_matmul and napier_token_logprobs, napier_linear_token_logprobs. So the KL between any
 * two routes is exactly 0.
 *
 * Optional inputs and outputs are views with data NULL. An output must not overlap an input or another output, except
 * where a declaration allows in-place use. If a call finds an error in its arguments (an id out of range, offsets that
 * decrease), it has written nothing, and the message names the index and the value. Thread safety: one context per
 * thread.
 * Sources: docs/rl.md; Shao et al., "DeepSeekMath" (GRPO), 2024. The loss types have the names of TRL's GRPOTrainer. */
#ifndef NAPIER_RL_H
#define NAPIER_RL_H

#include <math.h>

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Log-probabilities of tokens ---------------------------------------------------------------------------------*/

static inline NAPIER_DEPRECATED("it is napier_log_softmax") napier_status
    napier_fused_log_softmax(napier_context *context, napier_const_matrix logits, napier_matrix logprobs,
                             const napier_softmax_options *options) {
    return napier_log_softmax(context, logits, logprobs, options);
}

/* gathered[i] = logprobs[i][ids[i]]. logprobs is [N, V]; ids and gathered are [N]. An id outside 0 .. V - 1 is
 * INVALID_ARGUMENT. The two dtypes may differ. A NaN becomes the canonical NaN. */
NAPIER_API napier_status napier_gather_logprobs(napier_context *context, napier_const_matrix logprobs,
                                                napier_indices ids, napier_vector gathered);
/* grad_logprobs[i][j] = grad_gathered[i] where j = ids[i], else 0. */
NAPIER_API napier_status napier_gather_logprobs_backward(napier_context *context, napier_const_vector grad_gathered,
                                                         napier_indices ids, napier_matrix grad_logprobs);

/* How logits become log-probabilities:
 *     x -> c tanh(x / c) if softcap c is not 0 -> z = x / temperature, rounded once -> z = -inf where keep is 0
 *     logprob_j = z_j - logsumexp(z).
 * The error of tanh is at most 3.5 ulp, and its bits are the same everywhere. A softcap turns an infinite logit into
 * +-c / temperature. */
typedef struct napier_token_options {
    size_t struct_size;     /* sizeof(napier_token_options) */
    double temperature;     /* finite and > 0; default 1 */
    double softcap;         /* 0: none (default); finite and > 0 */
    int64_t ignore_index;   /* an id with this value gives logprob 0, loss 0, rank -1 and no gradient; default -100 */
    double label_smoothing; /* in [0, 1); affects only loss; default 0 */
    double z_loss;          /* >= 0; affects only loss; default 0 */
    const uint8_t *keep; /* one byte per token; a 0 drops the token, as a top-k or top-p filter does; NULL: keep all */
    int64_t keep_stride; /* bytes from one row of keep to the next; at least V, or 0: all rows share one set */
    int64_t split; /* not 0: calls from hidden states multiply them by weights of bf16 as napier_matmul_split does;
                            default 0: as napier_matmul. A GPU does not: UNSUPPORTED */
    /* not 0: backward calls from hidden states, which like the weights are bf16, round the gradient of the logits to bf16,
     * as PyTorch does. Its products are then of bf16 by bf16, which a matrix engine computes; default 0: f32. A GPU does
     * not: UNSUPPORTED */
    int64_t bf16_gradient;
} napier_token_options;

#define NAPIER_TOKEN_OPTIONS_INIT \
    { sizeof(napier_token_options), 1.0, 0.0, -100, 0.0, 0.0, NULL, 0, 0, 0 }

/* Results that one read of each row can give, for K ids per row. Leave data (or the pointer) NULL for those you do not
 * want. */
typedef struct napier_token_results {
    size_t struct_size;     /* sizeof(napier_token_results) */
    napier_matrix logprobs; /* [N, K]: of the chosen ids; -inf for an id that is not kept */
    napier_vector lse;      /* [N]: logsumexp of z */
    napier_vector entropy;  /* [N]: - sum_j p_j log p_j, >= 0; 0 * -inf = 0 */
    napier_vector loss;     /* [N], needs K = 1: (1 - s) (-logprob) + s (lse - mean z) + z_loss lse^2, where s is
                               label_smoothing and the mean is over kept tokens */
    int64_t *argmax;        /* [N]: index of the largest z, the lowest if equal; -1 for a row with a NaN or only -inf */
    int64_t *rank;          /* [N, K]: number of tokens with a larger z, or with an equal z and a lower index, than the
                               id; -1 for a row with a NaN */
    int64_t *top_ids;       /* [N, top_k]: ids of the largest z, in the order of rank, without -inf; -1 where there are
                               fewer */
    napier_matrix top_logprobs; /* [N, top_k]: their log-probabilities; -inf where top_ids is -1 */
    int64_t top_k;              /* 0 to 1024, at most V */
    /* For napier_linear_token_logprobs_backward, so that it need not compute them again. As in napier/shards.h, the values
     * of finals mean nothing to a caller. They hold the entropy only if it is asked for too. */
    int64_t *finals; /* [N][4] */
    float *chosen;   /* [N, K]: z of the ids */
} napier_token_results;

/* The int64_t of a final. */
#define NAPIER_TOKEN_FINAL_WORDS 4

#define NAPIER_TOKEN_RESULTS_INIT \
    { .struct_size = sizeof(napier_token_results) }

/* logits is [N, V]. ids is [N * K], K ids for each row, and K = ids.size / N. Without ids (K = 0), logprobs, loss and
 * rank must be absent.
 * Special rows are as in napier/softmax.h: a NaN or +inf among a row's z, or only -inf, gives NaN log-probabilities,
 * the lse of napier_logsumexp and a NaN entropy.
 * Error bounds: logprobs and lse as log_softmax and logsumexp; entropy 2^-20 (1 + H) + 2^-22 log V.
 * Memory besides the results: some kilobytes for each thread, and 20 bytes per 1024 columns. Time: with many ids per
 * row, each rank costs one comparison for every token of those tiles that have a z as large.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                               const napier_token_options *options,
                                               const napier_token_results *results);

/* Gradients with respect to the results. Data NULL means a gradient of 0. */
typedef struct napier_token_gradients {
    size_t struct_size;           /* sizeof(napier_token_gradients) */
    napier_const_matrix logprobs; /* [N, K] */
    napier_const_vector lse;      /* [N] */
    napier_const_vector entropy;  /* [N] */
    napier_const_vector loss;     /* [N] */
    /* Not gradients, but results of the forward call with the same inputs and options, which a call from hidden states then
     * need not compute again: finals [N][4], and chosen [N, K] if there are gradients of logprobs or loss. Other calls check
     * them, but do not use them; on a GPU they are UNSUPPORTED. The result has the same bits, except that a gradient of
     * entropy gives NaN where the finals hold none. Any values are safe to read. */
    const int64_t *finals;
    const float *chosen;
} napier_token_gradients;

#define NAPIER_TOKEN_GRADIENTS_INIT \
    { .struct_size = sizeof(napier_token_gradients) }

/* Computes grad_logits [N, V]. With p = softmax(z):
 *     d z_j = sum_k g_logprob_k (1[j = id_k] - p_j) + g_lse p_j - g_entropy p_j (log p_j + H) + the gradient of loss,
 *     d logits_j = d z_j / T * (1 - tanh^2(x_j / c) with a softcap); 0 where keep is 0.
 * The call reads the logits again and recomputes what it needs. grad_logits may be the logits themselves (same dtype
 * and strides), or separate memory of any of the three dtypes. A row whose gradients are all 0 gets 0, whatever its
 * logits are. Any other row with a NaN, a +inf or only -inf among its z gets NaN, and 0 where keep is 0.
 * Error bound: 2^-19 of p (|the gradients of p| + |g_entropy| (|log p| + H)). */
NAPIER_API napier_status napier_token_logprobs_backward(napier_context *context, napier_const_matrix logits,
                                                        napier_indices ids, const napier_token_options *options,
                                                        const napier_token_gradients *gradients,
                                                        napier_matrix grad_logits);

/* ---- From hidden states ------------------------------------------------------------------------------------------
 * The same for logits = hidden weights^T, with hidden [N, H] and weights [V, H]. The N x V logits are never all stored.
 * Their bits are those of napier_matmul, or of napier_matmul_split. */

/* The most bytes of workspace of the forward (or backward) call for these shapes, with one id per row and no top_k. The
 * backward call takes less with gradients->finals, or if it can keep logits where grad_weights will be. Returns 0 for
 * impossible shapes. With H up to 16384 and up to 64 threads, the forward call takes less than 256 MB for any N.
 * The backward call takes at most 190 MB, plus 16 KB for each of H (sums for 4096 tokens), 2 MB for each thread and 200
 * bytes per row; that is 256 MB with H = 2048 and 16 threads. Many ids per row or a large top_k take no more: the calls
 * then process fewer rows at a time. With options.split it may be three times as much for each of the rows' H. */
NAPIER_API size_t napier_linear_token_logprobs_workspace(const napier_context *context, int64_t rows, int64_t hidden,
                                                         int64_t vocabulary, int backward);

/* As napier_token_logprobs, for the product. The workspace comes from the context's allocator. */
NAPIER_API napier_status napier_linear_token_logprobs(napier_context *context, napier_const_matrix hidden,
                                                      napier_const_matrix weights, napier_indices ids,
                                                      const napier_token_options *options,
                                                      const napier_token_results *results);

/* grad_hidden [N, H] and grad_weights [V, H], either of which may be absent, from gradients as in
 * napier_token_logprobs_backward. With g the gradient of the logits in f32:
 *     grad_hidden = g weights     (one chain of fma over v, ascending)
 *     grad_weights = g^T hidden   (one chain of fma over n, ascending)
 * Without gradients->finals the call computes most logits once more, to find them: give it those of the forward call.
 * With options.bf16_gradient g is rounded to bf16, and the sums are in the order of bf16 by bf16 (napier/linear.h). */
NAPIER_API napier_status napier_linear_token_logprobs_backward(napier_context *context, napier_const_matrix hidden,
                                                               napier_const_matrix weights, napier_indices ids,
                                                               const napier_token_options *options,
                                                               const napier_token_gradients *gradients,
                                                               napier_matrix grad_hidden, napier_matrix grad_weights);

/* ---- KL ----------------------------------------------------------------------------------------------------------*/

/* The estimate for one token, where d = ref - policy is the difference of its log-probabilities. */
typedef enum napier_kl_estimator {
    NAPIER_KL_K1 = 1, /* -d */
    NAPIER_KL_K2 = 2, /* d^2 / 2 */
    NAPIER_KL_K3 = 3  /* exp(d) - d - 1, computed without cancellation */
} napier_kl_estimator;

typedef enum napier_reduction { NAPIER_REDUCE_SUM = 0, NAPIER_REDUCE_MEAN = 1 } napier_reduction;

typedef struct napier_kl_options {
    size_t struct_size;            /* sizeof(napier_kl_options) */
    napier_kl_estimator estimator; /* default K1 */
    napier_reduction reduction;    /* over the tokens of a response; default SUM */
    double clamp_ratio;            /* clamp d to +-this; 0: do not clamp (default) */
    double clamp_kl;               /* clamp each token's estimate to +-this; 0: do not clamp (default) */
} napier_kl_options;

#define NAPIER_KL_OPTIONS_INIT \
    { sizeof(napier_kl_options), NAPIER_KL_K1, NAPIER_REDUCE_SUM, 0.0, 0.0 }

/* kl[b] = the KL estimate over the tokens of response b. policy_logprobs, ref_logprobs and mask are [T]; kl is [B]. A
 * token with mask 0 does not count; mask NULL counts all tokens. The KL of a policy with itself is exactly 0. Two
 * log-probabilities of -inf for the same token differ by 0. The mean over no counted token is 0.
 * Error bound: 2^-21 relative for each token's estimate and derivative, also for k3 near d = 0.
 * Errors, here and below: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                                napier_const_vector ref_logprobs, napier_indices offsets,
                                                const uint8_t *mask, const napier_kl_options *options,
                                                napier_vector kl);
/* From grad_kl [B] to grad_policy and grad_ref [T], either of which may be absent. A clamped token gets 0. */
NAPIER_API napier_status napier_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                                         napier_const_vector ref_logprobs, napier_indices offsets,
                                                         const uint8_t *mask, const napier_kl_options *options,
                                                         napier_const_vector grad_kl, napier_vector grad_policy,
                                                         napier_vector grad_ref);

/* kl[i] = sum_j p_j (log p_j - log q_j), where p and q are the softmax of row i of the policy's and the reference's
 * logits [N, V]. Only the option temperature is used. The call computes the sum of p_j k3(log q_j - log p_j), in which
 * nothing cancels. So equal rows give exactly 0, and the result is never negative.
 *     q_j = 0 because of -inf, and p_j > 0      +inf
 *     a row has a NaN or +inf, or only -inf     NaN
 *     rows without columns                      0
 * One thread computes a row. Error bound: 2^-20 relative, plus 2^-43. */
NAPIER_API napier_status napier_kl_full(napier_context *context, napier_const_matrix policy_logits,
                                        napier_const_matrix ref_logits, const napier_softmax_options *options,
                                        napier_vector kl);
/* From grad_kl [N] to the gradients of both logits [N, V]. Either gradient may be absent, or be in place of either
 * logits:
 *     d policy_j = g p_j (log p_j - log q_j - kl) / T,    d ref_j = g (q_j - p_j) / T.
 * Where grad_kl is 0 both gradients are 0, whatever the rows hold.
 * Where p_j is above 1/2, d policy_j is computed as minus the sum of the others, so that it is not lost where they are tiny.
 * Error bound: 2^-20 of g p_j (|log p_j - log q_j| + sum_i p_i |log p_i - log q_i|) / T; of the sum of this over the others
 * where p_j is above 1/2. */
NAPIER_API napier_status napier_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                                 napier_const_matrix ref_logits, const napier_softmax_options *options,
                                                 napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                                 napier_matrix grad_ref_logits);

/* ---- Rubric ------------------------------------------------------------------------------------------------------*/

/* scores[b][c] = weights[c] * sum_t logprobs[t] * rubric[c][token_ids[t]] over the tokens of response b, and
 * rewards[b] = sum_c scores[b][c], in ascending order of c. logprobs and token_ids are [T], rubric is [C, V], weights
 * is [C], scores is [B, C] and rewards is [B]. scores or rewards may be absent. A token that the rubric marks 0 adds 0,
 * even if its log-probability is infinite or NaN. */
NAPIER_API napier_status napier_rubric_score(napier_context *context, napier_const_vector logprobs,
                                             napier_indices token_ids, napier_indices offsets,
                                             napier_const_matrix rubric, napier_const_vector weights,
                                             napier_matrix scores, napier_vector rewards);
/* The gradient with respect to logprobs [T], from the gradients of scores [B, C] and rewards [B]. Either of these may
 * be absent. */
NAPIER_API napier_status napier_rubric_score_backward(napier_context *context, napier_indices token_ids,
                                                      napier_indices offsets, napier_const_matrix rubric,
                                                      napier_const_vector weights, napier_const_matrix grad_scores,
                                                      napier_const_vector grad_rewards, napier_vector grad_logprobs);

/* ---- GRPO --------------------------------------------------------------------------------------------------------
 * With l = logprobs - old_logprobs, the ratio rho is exp(l) for each token or, at the sequence level, exp(mean of l
 * over the response) for all of its tokens. A is the response's advantage, eps is epsilon and eps' is epsilon_high. The
 * clipped loss is
 *     -min(min(rho, delta) A, clamp(rho, 1 - eps, 1 + eps') A), with delta only if it is set.
 * 0 times anything is 0, so the ratio may overflow where the advantage is 0. Sums that become an exponent (of a
 * sequence's ratio) are in double from the tiles' lanes on.
 * Each type has a loss of a token and a reduction to one number. m is the mask. */
typedef enum napier_grpo_type {
    NAPIER_GRPO = 0,         /* clipped; mean over responses of the mean over their tokens */
    NAPIER_GRPO_BNPO = 1,    /* clipped; sum / sum(m) */
    NAPIER_GRPO_DR_GRPO = 2, /* clipped; sum / (B max_completion_length) */
    NAPIER_GRPO_DAPO = 3,    /* clipped; sum / num_items */
    NAPIER_GRPO_GSPO = 4,    /* as GRPO, always at the sequence level */
    NAPIER_GRPO_CISPO = 5,   /* -stopgrad(min(rho, eps')) A logprob, eps' an absolute bound; sum / num_items */
    NAPIER_GRPO_SAPO = 6,    /* -(4 / tau) sigmoid(tau (rho - 1)) A, tau by the sign of A; reduced as GRPO */
    NAPIER_GRPO_VESPO = 7,   /* -stopgrad(phi(w)) A logprob; sum / num_items. log phi = lambda + k log w - lambda w,
                                log w is the sum of l and of the logs of the corrections, which are not applied again */
    NAPIER_GRPO_LUSPO = 8,   /* clipped; mean over responses of the sum over their tokens. Meant for the sequence level,
                                where that is the loss times the response's length */
    NAPIER_GRPO_TOKEN_MEAN = 9 /* clipped; mean over all tokens; KL: beta * mean over responses of summed k1 */
} napier_grpo_type;

typedef enum napier_grpo_level {
    NAPIER_GRPO_LEVEL_TOKEN = 0,
    NAPIER_GRPO_LEVEL_SEQUENCE = 1,
    NAPIER_GRPO_TOKEN NAPIER_DEPRECATED("it is NAPIER_GRPO_LEVEL_TOKEN") = 0,
    NAPIER_GRPO_SEQUENCE NAPIER_DEPRECATED("it is NAPIER_GRPO_LEVEL_SEQUENCE") = 1
} napier_grpo_level;

/* The importance-sampling correction r = exp(old - sampler), treated as a constant. TOKEN: of each token. SEQUENCE: of
 * the sum over the response, for all of its tokens. TRUNCATE: min(r, cap). MASK: r where r <= cap, else 0. A NaN of the
 * sampler means that it has no value; such a token is not corrected. The correction multiplies the policy's loss, not
 * the KL penalty. */
typedef enum napier_grpo_correction {
    NAPIER_GRPO_UNCORRECTED = 0,
    NAPIER_GRPO_TOKEN_TRUNCATE = 1,
    NAPIER_GRPO_TOKEN_MASK = 2,
    NAPIER_GRPO_SEQUENCE_TRUNCATE = 3,
    NAPIER_GRPO_SEQUENCE_MASK = 4
} napier_grpo_correction;

typedef struct napier_grpo_options {
    size_t struct_size; /* sizeof(napier_grpo_options) */
    napier_grpo_type type;
    napier_grpo_level level;          /* default TOKEN */
    double epsilon;                   /* default 0.2 */
    double epsilon_high;              /* negative: equal to epsilon (default) */
    double delta;                     /* the second clip; 0: none (default) */
    double beta;                      /* factor of the KL penalty; default 0; any other value needs ref_logprobs */
    napier_kl_estimator kl_estimator; /* default K3 */
    int kl_bias_correction;           /* not 0: multiply the estimate by the ratio and differentiate both; default 0
                                         (TRL: 1) */
    double sapo_tau_positive;         /* tau where A > 0; default 1 */
    double sapo_tau_negative;         /* tau elsewhere; default 1.05 */
    double vespo_k_positive, vespo_lambda_positive; /* where A >= 0; default 2, 3 */
    double vespo_k_negative, vespo_lambda_negative; /* elsewhere; default 3, 2 */
    int64_t max_completion_length;                  /* for dr_grpo; 0: the longest response */
    double num_items;                               /* for dapo, cispo, vespo: tokens in the global batch; 0: sum(m) */
    napier_grpo_correction correction;              /* default UNCORRECTED; any other value needs sampler_logprobs */
    double correction_cap;                          /* default 3; infinity: none */
    double correction_floor;     /* a lower bound: max(r, floor), or with MASK 0 where r < floor; default 0: none */
    double top_entropy_quantile; /* the policy's loss uses only tokens whose entropy is at least the quantile 1 - this
                                    of all counted tokens (linear between neighbours); in (0, 1], default 1: all */
    double entropy_coefficient;  /* loss -= this * mean entropy of the tokens that top_entropy_quantile or
                                    entropy_threshold selects; default 0 */
    double off_policy_threshold; /* the policy's loss uses only responses where A >= 0 or the mean of sampler - policy
                                    log-probabilities (a NaN counts as 0) is at most this; default infinity: all */
    int count_empty_responses;   /* 0: means over responses leave out those without tokens (default). 1: they count,
                                    like a fully masked row of a padded batch (TRL) */
    double entropy_threshold;    /* replaces top_entropy_quantile: the policy's loss uses only tokens whose entropy is
                                    at least this. Needed if several processes share a batch, since TRL takes the
                                    quantile over all of them. Default -infinity: all. Not with a top_entropy_quantile
                                    below 1 */
} napier_grpo_options;

#define NAPIER_GRPO_OPTIONS_INIT                                                                                      \
    {                                                                                                                 \
        sizeof(napier_grpo_options), NAPIER_GRPO, NAPIER_GRPO_LEVEL_TOKEN, 0.2, -1.0, 0.0, 0.0, NAPIER_KL_K3, 0, 1.0, \
            1.05, 2.0, 3.0, 3.0, 2.0, 0, 0.0, NAPIER_GRPO_UNCORRECTED, 3.0, 0.0, 1.0, 0.0, HUGE_VAL, 0, -HUGE_VAL     \
    }
typedef struct napier_grpo_batch {
    size_t struct_size;                   /* sizeof(napier_grpo_batch) */
    napier_const_vector logprobs;         /* [T] of the policy */
    napier_const_vector old_logprobs;     /* [T]; absent: logprobs as constants (on-policy) */
    napier_const_vector ref_logprobs;     /* [T]; for beta */
    napier_const_vector sampler_logprobs; /* [T]; for the correction and the off-policy mask. If absent, the mask uses
                                             old_logprobs */
    napier_const_vector entropies;        /* [T]; for top_entropy_quantile, entropy_threshold, entropy_coefficient */
    napier_const_vector advantages;       /* [B]: one per response; if its size is not B, [T]: one per token */
    const uint8_t *mask;                  /* [T]; a token with 0 does not count; NULL: all count */
    napier_indices offsets;               /* [B + 1]. An empty response differs from a fully masked one: see
                                             count_empty_responses */
} napier_grpo_batch;

#define NAPIER_GRPO_BATCH_INIT \
    { .struct_size = sizeof(napier_grpo_batch) }

/* Values for a training log. Means are over counted tokens unless the comment says otherwise. All are 0 if no token
 * counts. */
typedef struct napier_grpo_metrics {
    size_t struct_size; /* sizeof(napier_grpo_metrics) */
    double loss;
    double tokens;              /* number of counted tokens */
    double clip_low, clip_high; /* share of tokens below the lower clip with A < 0, and above the upper clip
                                   (cispo: eps') with A > 0 */
    double mean_ratio, min_ratio, max_ratio;
    double kl;             /* mean estimate, with the bias correction if set; 0 without beta */
    double approx_kl;      /* mean of old - logprobs: k1 of old against new */
    double entropy;        /* mean; 0 without entropies */
    double correction;     /* mean of the applied correction; 1 without one */
    double kept_responses; /* share that the off-policy mask keeps of the responses with a counted token. With one
                              advantage per token, a response counts with the share of its tokens that are kept */
} napier_grpo_metrics;

#define NAPIER_GRPO_METRICS_INIT \
    { .struct_size = sizeof(napier_grpo_metrics) }

/* losses [T]: the loss of each token before reduction, including the KL penalty and the correction; 0 for masked
 * tokens. For TOKEN_MEAN the penalty is beta T / B times the token's k1, so that the mean of losses is the loss.
 * grad_logprobs [T]: the derivative of sum_t losses[t] with respect to logprobs. The derivative of a sequence-level
 * ratio flows to all tokens of the response. Either output may be absent.
 * Error bound of gradients: 1e-6 of the sum of the absolute values of a gradient's terms. */
NAPIER_API napier_status napier_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                                const napier_grpo_options *options, napier_vector losses,
                                                napier_vector grad_logprobs);

/* From grad_losses [T], the gradient with respect to the losses of napier_grpo_token_loss, to grad_logprobs [T]. Absent
 * grad_losses are all 1, up to the sign of a gradient of 0. At the sequence level the gradients of all losses of a response
 * flow to each of its tokens. A token with a gradient of 0 adds 0, whatever its derivative is. Error bound: as above. */
NAPIER_API napier_status napier_grpo_token_loss_backward(napier_context *context, const napier_grpo_batch *batch,
                                                         const napier_grpo_options *options,
                                                         napier_const_vector grad_losses, napier_vector grad_logprobs);

/* The loss as one number in metrics->loss, and its gradients with respect to logprobs and entropies [T], either of
 * which may be absent. With B = 0 or no counted token, the loss and the gradients are 0. */
NAPIER_API napier_status napier_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                                          const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                          napier_vector grad_logprobs, napier_vector grad_entropies);

/* Forward and backward directly from the logits [T, V] of the tokens ids [T]. batch->logprobs and batch->entropies must
 * be absent: the call computes them, with token_options, and writes them to logprobs and entropies [T] if these are
 * given.
 * grad_logits [T, V] may be the logits themselves, have another dtype, or be absent. The bits are those of
 * napier_token_logprobs, napier_grpo_loss and napier_token_logprobs_backward one after the other.
 * Token-level losses read and write each row once. The others read the logits in a scoring pass first. So do losses
 * with top_entropy_quantile, or with both entropy_threshold and entropy_coefficient. */
NAPIER_API napier_status napier_grpo_from_logits(napier_context *context, napier_const_matrix logits,
                                                 napier_indices ids, const napier_grpo_batch *batch,
                                                 const napier_grpo_options *options,
                                                 const napier_token_options *token_options,
                                                 napier_grpo_metrics *metrics, napier_matrix grad_logits,
                                                 napier_vector logprobs, napier_vector entropies);

/* The same from hidden states [T, H] and the head's weights [V, H], whose product is the logits. The T x V logits are
 * never all stored: memory as napier_linear_token_logprobs and its backward call, and 52 bytes a token.
 * grad_hidden [T, H] and grad_weights [V, H] may be absent. They must not overlap hidden or weights. The bits are those
 * of napier_linear_token_logprobs, napier_grpo_loss and napier_linear_token_logprobs_backward one after the other, with
 * the gradient of entropies only if entropy_coefficient is not 0. */
NAPIER_API napier_status napier_grpo_from_hidden(napier_context *context, napier_const_matrix hidden,
                                                 napier_const_matrix weights, napier_indices ids,
                                                 const napier_grpo_batch *batch, const napier_grpo_options *options,
                                                 const napier_token_options *token_options,
                                                 napier_grpo_metrics *metrics, napier_matrix grad_hidden,
                                                 napier_matrix grad_weights, napier_vector logprobs,
                                                 napier_vector entropies);

/* ---- Advantages --------------------------------------------------------------------------------------------------
 * Rewards compared within their group, the samples of one prompt. */

/* What divides the difference from the group's mean. */
typedef enum napier_advantage_scale {
    NAPIER_SCALE_GROUP = 0, /* the standard deviation of the group, plus epsilon */
    NAPIER_SCALE_BATCH = 1, /* that of all rewards, plus epsilon */
    NAPIER_SCALE_NONE = 2   /* 1 */
} napier_advantage_scale;

typedef struct napier_advantage_options {
    size_t struct_size;           /* sizeof(napier_advantage_options) */
    napier_advantage_scale scale; /* default GROUP */
    double epsilon;               /* finite and >= 0; default 1e-4, as in TRL */
    int64_t group_size;           /* rewards of each group if group_offsets is absent; divides B; default 0 */
} napier_advantage_options;

#define NAPIER_ADVANTAGE_OPTIONS_INIT \
    { sizeof(napier_advantage_options), NAPIER_SCALE_GROUP, 1e-4, 0 }

/* advantages[i] = (rewards[i] - mean of its group) / (deviation + epsilon); rewards and advantages are [B]. Group g has the
 * rewards group_offsets[g] .. group_offsets[g + 1] - 1 (G + 1 integers from 0 to B that never decrease); if absent, groups
 * have options->group_size rewards. advantages may be the rewards (same dtype and stride).
 * The deviation is that of a sample (divided by n - 1), and 0 for a single reward. Sums are in double, in ascending order,
 * and only the result is rounded. So equal rewards give exactly 0.
 * A NaN reward means that nothing could score the sample: it counts in no mean or deviation, and its advantage is 0, as in
 * TRL. So is an advantage that is not a finite number, because a reward is infinite, or because epsilon and the deviation
 * are 0. (With NAPIER_SCALE_NONE, TRL replaces an infinite one by the largest float.)
 * Errors: INVALID_ARGUMENT. */
NAPIER_API napier_status napier_group_advantages(napier_context *context, napier_const_vector rewards,
                                                 napier_indices group_offsets, const napier_advantage_options *options,
                                                 napier_vector advantages);

#ifdef __cplusplus
}
#endif
#endif
