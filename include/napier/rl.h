/* napier/rl.h - reinforcement learning on language models: log-probabilities of tokens, KL, rubric scores, GRPO losses.
 *
 * Shapes: N rows of logits over a vocabulary of V tokens; T tokens in B responses, response b being tokens
 * offsets[b] .. offsets[b + 1] - 1 (offsets: B + 1 integers, not falling, the first 0, the last T). An empty response gives
 * 0 and takes no part in means, unless an option says so (napier_grpo_options, count_empty_responses); one whose tokens
 * are all masked takes part in them, with 0.
 *
 * Dtypes. Inputs and results f32, f16 or bf16; inputs are widened exactly, all arithmetic is f32 or wider, a result is
 * rounded once, to nearest even. f64 is INVALID_ARGUMENT.
 *
 * Bits. Contractual everywhere: they do not depend on threads, batch, strides, instruction set or compiler. A row's (a
 * response's) results depend on its own values only. Sums run per response in the order of gradients in napier/softmax.h
 * (tiles of 1024 tokens, 256 lanes, tile sums added in double), then over responses in double, ascending.
 * The log-probability of a token has the same bits by every route: napier_log_softmax and napier_gather_logprobs,
 * napier_token_logprobs, napier_matmul and napier_token_logprobs, napier_linear_token_logprobs. So KL between any two
 * routes is exactly 0.
 *
 * Optional inputs and outputs are views with data NULL. Outputs overlap neither inputs nor one another, except in place
 * where that is said. On an error that is found in the arguments (an id out of range, offsets that fall: the text names the
 * index and the value) nothing has been written. Thread safety: one context per thread.
 * Sources: docs/rl.md; Shao et al., "DeepSeekMath" (GRPO), 2024; the loss variants as TRL's GRPOTrainer names them. */
#ifndef NAPIER_RL_H
#define NAPIER_RL_H

#include <math.h>

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Log-probabilities of tokens ---------------------------------------------------------------------------------*/

/* The log_softmax of the literature on fused kernels: the same call as napier_log_softmax, with the same bits. */
NAPIER_API napier_status napier_fused_log_softmax(napier_context *context, napier_const_matrix logits,
                                                  napier_matrix logprobs, const napier_softmax_options *options);

/* gathered[i] = logprobs[i][ids[i]]: logprobs [N, V], ids and gathered [N]. An id outside 0 .. V - 1 is INVALID_ARGUMENT.
 * Any two dtypes; a NaN becomes the canonical one. */
NAPIER_API napier_status napier_gather_logprobs(napier_context *context, napier_const_matrix logprobs,
                                                napier_indices ids, napier_vector gathered);
/* grad_logprobs[i][j] = grad_gathered[i] where j = ids[i], else 0. */
NAPIER_API napier_status napier_gather_logprobs_backward(napier_context *context, napier_const_vector grad_gathered,
                                                         napier_indices ids, napier_matrix grad_logprobs);

/* How logits become log-probabilities:
 *     x -> c tanh(x / c) if softcap c is not 0 -> z = x / temperature, rounded once -> z = -inf where keep is 0
 *     logprob_j = z_j - logsumexp(z).
 * tanh has at most 3.5 ulp, and the same bits everywhere; with a softcap an infinity becomes +-c / temperature. */
typedef struct napier_token_options {
    size_t struct_size;     /* sizeof(napier_token_options) */
    double temperature;     /* finite and > 0; default 1 */
    double softcap;         /* 0: none (default); finite and > 0 */
    int64_t ignore_index;   /* an id with this value gives logprob 0, loss 0, rank -1 and no gradient; default -100 */
    double label_smoothing; /* in [0, 1); of loss only; default 0 */
    double z_loss;          /* >= 0; of loss only; default 0 */
    const uint8_t *keep; /* the kept set, a byte a token: not 0 is kept; NULL: all. As after a top-k or top-p filter */
    int64_t keep_stride; /* bytes from one row of keep to the next; at least V, or 0: the same set for all */
} napier_token_options;

#define NAPIER_TOKEN_OPTIONS_INIT \
    { sizeof(napier_token_options), 1.0, 0.0, -100, 0.0, 0.0, NULL, 0 }

/* What one read of each row gives; data NULL: not wanted. K ids a row. */
typedef struct napier_token_results {
    size_t struct_size;     /* sizeof(napier_token_results) */
    napier_matrix logprobs; /* [N, K]: of the chosen ids; -inf for one that is not kept */
    napier_vector lse;      /* [N]: logsumexp of z */
    napier_vector entropy;  /* [N]: - sum_j p_j log p_j, >= 0; 0 * -inf = 0 */
    napier_vector loss;     /* [N], K = 1: (1 - s) (-logprob) + s (lse - mean z) + z_loss lse^2, s: label_smoothing; the
                           mean is over kept tokens */
    int64_t *argmax;        /* [N]: the largest z, the lowest index among equals; -1 if there is a NaN, or only -inf */
    int64_t *rank;    /* [N, K]: how many tokens stand before the id: larger z, or equal z and a lower index; -1 if
                           there is a NaN */
    int64_t *top_ids; /* [N, top_k]: the largest z, in the order of rank, none of -inf; -1 where there are fewer */
    napier_matrix top_logprobs; /* [N, top_k]; -inf there */
    int64_t top_k;              /* 0 to 1024, at most V */
} napier_token_results;

#define NAPIER_TOKEN_RESULTS_INIT \
    { .struct_size = sizeof(napier_token_results) }

/* logits [N, V]; ids [N * K] in rows of K, where K = ids.size / N (0: no ids; logprobs, loss and rank must then be absent).
 * Special rows as in napier/softmax.h: a NaN or +inf among a row's z, or only -inf, gives NaN log-probs, lse as there,
 * entropy NaN. Error: logprobs and lse as log_softmax and logsumexp; entropy 2^-20 (1 + H) + 2^-22 log V.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. Memory beside the results: for each thread some kilobytes, and
 * 20 bytes per 1024 columns. Ranks of many ids cost a comparison each, for tiles that have a z as large. */
NAPIER_API napier_status napier_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                               const napier_token_options *options,
                                               const napier_token_results *results);

/* Gradients with respect to results; data NULL: 0. */
typedef struct napier_token_gradients {
    size_t struct_size;           /* sizeof(napier_token_gradients) */
    napier_const_matrix logprobs; /* [N, K] */
    napier_const_vector lse;      /* [N] */
    napier_const_vector entropy;  /* [N] */
    napier_const_vector loss;     /* [N] */
} napier_token_gradients;

#define NAPIER_TOKEN_GRADIENTS_INIT \
    { .struct_size = sizeof(napier_token_gradients) }

/* grad_logits [N, V], with p = softmax(z):
 *     d z_j = sum_k g_logprob_k (1[j = id_k] - p_j) + g_lse p_j - g_entropy p_j (log p_j + H) + the loss's,
 *     d logits_j = d z_j / T * (1 - tanh^2(x_j / c) with a softcap); 0 where keep is 0.
 * Reads the logits again and recomputes what it needs. grad_logits may be in place of logits (same dtype and strides), or
 * another dtype. A row whose gradients are all 0 gets 0, whatever is in it; another that has a NaN, a +inf or only -inf
 * among its z gets NaN, and 0 where keep is 0. Error: 2^-19 of p (|the gradients of p| + |g_entropy| (|log p| + H)). */
NAPIER_API napier_status napier_token_logprobs_backward(napier_context *context, napier_const_matrix logits,
                                                        napier_indices ids, const napier_token_options *options,
                                                        const napier_token_gradients *gradients,
                                                        napier_matrix grad_logits);

/* ---- From hidden states ------------------------------------------------------------------------------------------
 * The same where logits = hidden weights^T: hidden [N, H], weights [V, H], without ever storing N x V logits. The logits'
 * bits are napier_matmul's. */

/* Bytes of workspace the forward (the backward) call takes for these shapes, one id a row and no top_k. Up to H 16384 and
 * 64 threads: forward below 256 MB for any N; backward at most 190 MB, 16 KB for each of H (sums for 4096 tokens), 2 MB for
 * each thread and 200 bytes a row, so 256 MB with H 2048 on 16 threads. The ids and top_k of more rows at a time would take
 * more; fewer rows are then in work at a time. 0 for shapes that cannot be. */
NAPIER_API size_t napier_linear_token_logprobs_workspace(const napier_context *context, int64_t rows, int64_t hidden,
                                                         int64_t vocabulary, int backward);

/* As napier_token_logprobs on the product. The workspace comes from the context's allocator. */
NAPIER_API napier_status napier_linear_token_logprobs(napier_context *context, napier_const_matrix hidden,
                                                      napier_const_matrix weights, napier_indices ids,
                                                      const napier_token_options *options,
                                                      const napier_token_results *results);

/* grad_hidden [N, H] and grad_weights [V, H] (either may be absent), from gradients as in napier_token_logprobs_backward.
 * With g the gradient of the logits, in f32: grad_hidden = g weights, one chain of fma over v, ascending; grad_weights =
 * g^T hidden, one chain over n, ascending. */
NAPIER_API napier_status napier_linear_token_logprobs_backward(napier_context *context, napier_const_matrix hidden,
                                                               napier_const_matrix weights, napier_indices ids,
                                                               const napier_token_options *options,
                                                               const napier_token_gradients *gradients,
                                                               napier_matrix grad_hidden, napier_matrix grad_weights);

/* ---- KL ----------------------------------------------------------------------------------------------------------*/

/* Per token, with d = ref - policy (log-probabilities): */
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
    double clamp_ratio;            /* d is clamped to +-this; 0: not (default) */
    double clamp_kl;               /* each token's estimate is clamped to +-this; 0: not (default) */
} napier_kl_options;

#define NAPIER_KL_OPTIONS_INIT \
    { sizeof(napier_kl_options), NAPIER_KL_K1, NAPIER_REDUCE_SUM, 0.0, 0.0 }

/* kl[b] over the tokens of response b: policy_logprobs and ref_logprobs [T], mask [T] (0: the token does not count; NULL:
 * all do), kl [B]. kl of a policy with itself is exactly 0. Two -inf at one place differ by 0. The mean over no counted
 * token is 0. Error: each token's estimate and derivative 2^-21 relative, k3 near d = 0 too.
 * Errors, here and below: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_kl_per_response(napier_context *context, napier_const_vector policy_logprobs,
                                                napier_const_vector ref_logprobs, napier_indices offsets,
                                                const uint8_t *mask, const napier_kl_options *options,
                                                napier_vector kl);
/* grad_kl [B] to grad_policy and grad_ref [T]; either may be absent. A clamped token gets 0. */
NAPIER_API napier_status napier_kl_per_response_backward(napier_context *context, napier_const_vector policy_logprobs,
                                                         napier_const_vector ref_logprobs, napier_indices offsets,
                                                         const uint8_t *mask, const napier_kl_options *options,
                                                         napier_const_vector grad_kl, napier_vector grad_policy,
                                                         napier_vector grad_ref);

/* kl[i] = sum_j p_j (log p_j - log q_j), p and q being the softmax of row i of both logits [N, V] at the temperature
 * (of the options only that is used). Exactly 0 for equal rows, never negative: computed as the sum of
 * p_j k3(log q_j - log p_j), in which nothing cancels. +inf where q_j = 0 < p_j by -inf; NaN where a row has a NaN or
 * +inf, or only -inf; 0 for rows without columns. A row is one thread's. Error: 2^-20 relative (and 2^-43). */
NAPIER_API napier_status napier_kl_full(napier_context *context, napier_const_matrix policy_logits,
                                        napier_const_matrix ref_logits, const napier_softmax_options *options,
                                        napier_vector kl);
/* grad_kl [N] to the gradients of both logits [N, V]; either may be absent, or in place of either logits:
 * d policy_j = g p_j (log p_j - log q_j - kl) / T, d ref_j = g (q_j - p_j) / T. Where grad_kl is 0 both are 0, whatever
 * the rows hold. Error: 2^-20 of g p_j (|log p_j - log q_j| + sum_i p_i |log p_i - log q_i|) / T. */
NAPIER_API napier_status napier_kl_full_backward(napier_context *context, napier_const_matrix policy_logits,
                                                 napier_const_matrix ref_logits, const napier_softmax_options *options,
                                                 napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                                 napier_matrix grad_ref_logits);

/* ---- Rubric ------------------------------------------------------------------------------------------------------*/

/* scores[b][c] = weights[c] * sum_t logprobs[t] * rubric[c][token_ids[t]] over the tokens of response b, and
 * rewards[b] = sum_c scores[b][c], c ascending. logprobs and token_ids [T], rubric [C, V], weights [C], scores [B, C],
 * rewards [B]; scores or rewards may be absent. What the rubric marks 0 counts 0, whatever its log-probability. */
NAPIER_API napier_status napier_rubric_score(napier_context *context, napier_const_vector logprobs,
                                             napier_indices token_ids, napier_indices offsets,
                                             napier_const_matrix rubric, napier_const_vector weights,
                                             napier_matrix scores, napier_vector rewards);
/* The gradient with respect to logprobs [T], from those of scores [B, C] and rewards [B] (either may be absent). */
NAPIER_API napier_status napier_rubric_score_backward(napier_context *context, napier_indices token_ids,
                                                      napier_indices offsets, napier_const_matrix rubric,
                                                      napier_const_vector weights, napier_const_matrix grad_scores,
                                                      napier_const_vector grad_rewards, napier_vector grad_logprobs);

/* ---- GRPO --------------------------------------------------------------------------------------------------------
 * l = logprobs - old_logprobs; the ratio is rho = exp(l) per token, or exp(mean of l over the response) for all its tokens
 * (sequence level). A: the response's advantage. eps: epsilon, eps': epsilon_high.
 *     clipped losses: -min(min(rho, delta) A, clamp(rho, 1 - eps, 1 + eps') A), delta only if set
 * 0 times anything is 0: with an advantage of 0 a ratio may overflow. Sums that become an exponent (of the ratio of a
 * sequence) are in double from the tiles' lanes on.
 * The letters below say how tokens become one number, m being the mask: */
typedef enum napier_grpo_type {
    NAPIER_GRPO = 0,         /* clipped; mean over responses of the mean over their tokens */
    NAPIER_GRPO_BNPO = 1,    /* clipped; sum / sum(m) */
    NAPIER_GRPO_DR_GRPO = 2, /* clipped; sum / (B max_completion_length) */
    NAPIER_GRPO_DAPO = 3,    /* clipped; sum / num_items */
    NAPIER_GRPO_GSPO = 4,    /* as GRPO, always at the level of the sequence */
    NAPIER_GRPO_CISPO = 5,   /* -stopgrad(min(rho, eps')) A logprob, eps' an absolute bound; sum / num_items */
    NAPIER_GRPO_SAPO = 6,    /* -(4 / tau) sigmoid(tau (rho - 1)) A, tau by the sign of A; as GRPO */
    NAPIER_GRPO_VESPO = 7, /* -stopgrad(phi(w)) A logprob, log phi = lambda + k log w - lambda w, log w the sum of l and
                                   of the logs of the corrections, which are not applied again; sum / num_items */
    NAPIER_GRPO_LUSPO = 8, /* clipped; mean over responses of the sums over their tokens; meant for the level of the
                                   sequence, where that is the loss times the response's length */
    NAPIER_GRPO_TOKEN_MEAN = 9 /* clipped; mean over all tokens; KL: beta * mean over responses of summed k1 */
} napier_grpo_type;

typedef enum napier_grpo_level { NAPIER_GRPO_TOKEN = 0, NAPIER_GRPO_SEQUENCE = 1 } napier_grpo_level;

/* Importance-sampling correction r = exp(old - sampler), a constant: of each token, or of the response's sum for all
 * its tokens; TRUNCATE: min(r, cap); MASK: r where r <= cap, else 0. A NaN of the sampler (it does not know) corrects
 * nothing. It multiplies the policy's loss, not the KL penalty. */
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
    double epsilon_high;              /* negative: as epsilon (default) */
    double delta;                     /* the second clip; 0: none (default) */
    double beta;                      /* of the KL penalty; default 0; otherwise ref_logprobs are needed */
    napier_kl_estimator kl_estimator; /* default K3 */
    int kl_bias_correction;           /* the estimate times the ratio, as a function of both; default 0 (TRL: 1) */
    double sapo_tau_positive;         /* tau where A > 0; default 1 */
    double sapo_tau_negative;         /* elsewhere; default 1.05 */
    double vespo_k_positive, vespo_lambda_positive; /* where A >= 0; default 2, 3 */
    double vespo_k_negative, vespo_lambda_negative; /* elsewhere; default 3, 2 */
    int64_t max_completion_length;                  /* of dr_grpo; 0: the longest response */
    double num_items;                               /* of dapo, cispo, vespo: tokens in the global batch; 0: sum(m) */
    napier_grpo_correction correction;              /* default UNCORRECTED; otherwise sampler_logprobs are needed */
    double correction_cap;                          /* default 3; infinity: none */
    double correction_floor;     /* the same from below: max(r, floor), or 0 where r < floor; default 0: none */
    double top_entropy_quantile; /* only tokens of entropy at or above the quantile 1 - this of all that count (linear
                                    between neighbours) are in the policy's loss; in (0, 1], default 1: all */
    double
        entropy_coefficient; /* loss -= this * mean entropy of the tokens that quantile or threshold leave; default 0 */
    double off_policy_threshold; /* keeps a response in the policy's loss where A >= 0 or the mean of sampler - policy
                                    log-probs (a NaN counts 0) is at most this; default infinity: all */
    int count_empty_responses; /* 0: means over responses leave out those without tokens (default); 1: they count, as a
                                    row of a padded batch whose tokens are all masked does (TRL) */
    double entropy_threshold;  /* in place of top_entropy_quantile: only tokens of entropy at or above this are in the
                                    policy's loss. For batches in several processes: TRL's quantile is that of all of
                                    them. Default -infinity: all; not with a top_entropy_quantile below 1 */
} napier_grpo_options;

#define NAPIER_GRPO_OPTIONS_INIT                                                                                      \
    {                                                                                                                 \
        sizeof(napier_grpo_options), NAPIER_GRPO, NAPIER_GRPO_TOKEN, 0.2, -1.0, 0.0, 0.0, NAPIER_KL_K3, 0, 1.0, 1.05, \
            2.0, 3.0, 3.0, 2.0, 0, 0.0, NAPIER_GRPO_UNCORRECTED, 3.0, 0.0, 1.0, 0.0, HUGE_VAL, 0, -HUGE_VAL           \
    }
typedef struct napier_grpo_batch {
    size_t struct_size;                   /* sizeof(napier_grpo_batch) */
    napier_const_vector logprobs;         /* [T] of the policy */
    napier_const_vector old_logprobs;     /* [T]; absent: logprobs, as constants (on-policy) */
    napier_const_vector ref_logprobs;     /* [T]; for beta */
    napier_const_vector sampler_logprobs; /* [T]; for the correction and the off-policy mask (there absent: old) */
    napier_const_vector entropies;        /* [T]; for top_entropy_quantile, entropy_threshold, entropy_coefficient */
    napier_const_vector advantages;       /* [B], or, of another size than B, [T]: one a token */
    const uint8_t *mask;                  /* [T], 0: the token does not count; NULL: all do */
    napier_indices offsets;               /* [B + 1]; a response without tokens is not what a masked one is: see
                                             count_empty_responses */
} napier_grpo_batch;

#define NAPIER_GRPO_BATCH_INIT \
    { .struct_size = sizeof(napier_grpo_batch) }

/* What a training log wants to know; means over counted tokens unless said otherwise, all 0 where there are none. */
typedef struct napier_grpo_metrics {
    size_t struct_size; /* sizeof(napier_grpo_metrics) */
    double loss;
    double tokens;              /* counted */
    double clip_low, clip_high; /* share of tokens beyond the lower clip with A < 0, beyond the upper one (cispo: eps')
                                   with A > 0 */
    double mean_ratio, min_ratio, max_ratio;
    double kl;             /* mean estimate, bias-corrected if asked; 0 without beta */
    double approx_kl;      /* mean of old - logprobs: k1 of old against new */
    double entropy;        /* mean; 0 without entropies */
    double correction;     /* mean of the correction applied; 1 without */
    double kept_responses; /* share of the responses with a counted token that the off-policy mask keeps; of one with
                              an advantage a token, its share */
} napier_grpo_metrics;

#define NAPIER_GRPO_METRICS_INIT \
    { .struct_size = sizeof(napier_grpo_metrics) }

/* The loss of each token before reduction, KL and correction included (TOKEN_MEAN: beta T / B times its k1, so that the
 * mean is the loss), masked tokens 0: losses [T]; and the derivative of
 * sum_t losses[t] with respect to logprobs [T]. Either may be absent. Of a sequence-level ratio the derivative flows to all
 * tokens of the response. Error of gradients: 1e-6 of what adds up in them. */
NAPIER_API napier_status napier_grpo_token_loss(napier_context *context, const napier_grpo_batch *batch,
                                                const napier_grpo_options *options, napier_vector losses,
                                                napier_vector grad_logprobs);

/* The loss as one number in metrics->loss, and its gradients with respect to logprobs and entropies [T] (either may be
 * absent). B = 0 or no counted token: loss 0 and gradients 0. */
NAPIER_API napier_status napier_grpo_loss(napier_context *context, const napier_grpo_batch *batch,
                                          const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                          napier_vector grad_logprobs, napier_vector grad_entropies);

/* Forward and backward straight from the logits [T, V] of the tokens ids [T]: batch->logprobs and entropies must be absent
 * (they are computed, at the temperature and softcap of token_options, and written to logprobs and entropies [T] if those
 * are given). grad_logits [T, V] may be in place of the logits, another dtype, or absent. Same bits as
 * napier_token_logprobs, napier_grpo_loss and napier_token_logprobs_backward one after the other. Token-level losses take
 * one read and one write of a row; those with an entropy quantile, or with an entropy_threshold and an
 * entropy_coefficient, a scoring pass first, as do others. */
NAPIER_API napier_status napier_grpo_from_logits(napier_context *context, napier_const_matrix logits,
                                                 napier_indices ids, const napier_grpo_batch *batch,
                                                 const napier_grpo_options *options,
                                                 const napier_token_options *token_options,
                                                 napier_grpo_metrics *metrics, napier_matrix grad_logits,
                                                 napier_vector logprobs, napier_vector entropies);

#ifdef __cplusplus
}
#endif
#endif
