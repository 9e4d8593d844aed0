/* ops/losses/grpo_kernels.h - the table of kernels for the GRPO losses. Each instruction set compiles them
 * (grpo.inc.h). */
#ifndef NAPIER_OPS_LOSSES_GRPO_KERNELS_H
#define NAPIER_OPS_LOSSES_GRPO_KERNELS_H

#include <napier/rl.h>
#include <stdbool.h>

/* The batch and the options, checked. Vectors with data NULL are absent. */
typedef struct napier_grpo_job {
    napier_const_vector logprobs, old, ref, sampler, entropies; /* [T] */
    napier_const_vector advantages;                             /* [B] or [T] */
    bool token_advantages;                                      /* [T] */
    const uint8_t *mask;

    napier_grpo_type type;
    bool sequence;   /* the ratio is per response */
    float low, high; /* the clip: 1 - eps, 1 + eps' */
    float bound;     /* for cispo: eps' */
    float delta;     /* INFINITY: none */
    float tau[2];    /* A > 0, else */
    float beta;      /* 0: no KL */
    napier_kl_estimator estimator;
    bool bias_correction;
    napier_grpo_correction correction;
    float cap, floor; /* of the correction */
    float log_cap, log_floor;
    bool off_policy;
    bool entropy_mask; /* the policy's loss leaves out tokens with an entropy below the threshold */
    float entropy_threshold;

    napier_const_vector grad_losses;                     /* [T]: the gradient of each token's loss; absent: 1 */
    napier_vector losses, grad_logprobs, grad_entropies; /* [T] */
    float entropy_gradient;
} napier_grpo_job;

/* The values of a response that the losses of its tokens need. */
typedef struct napier_grpo_response {
    int64_t counted;
    float weight;     /* of its tokens' losses in the total loss */
    float ratio;      /* of the sequence */
    float phi[2];     /* for vespo: with A >= 0, else */
    float correction; /* of the sequence */
    bool keep;        /* whether the off-policy mask keeps it if A < 0 */
    float flow;       /* the gradient that reaches each token through the sequence's ratio */
} napier_grpo_response;

/* Sums over a response that are needed before its losses. They become exponents, so they are in double from the
 * start. */
enum {
    NAPIER_SCAN_RATIO = 1,     /* logprob - old */
    NAPIER_SCAN_CLAMPED = 2,   /* the same, with each token's l clamped to [-20, 20] */
    NAPIER_SCAN_MISMATCH = 4,  /* old - sampler; a NaN counts as 0 */
    NAPIER_SCAN_CORRECTED = 8, /* the log of each token's correction in [log 1e-8, 20] */
    NAPIER_SCAN_DRIFT = 16     /* sampler - logprob; a NaN counts as 0 */
};
enum { NAPIER_SCAN_SUMS = 5 };

typedef struct napier_grpo_scan {
    double sum[NAPIER_SCAN_SUMS];
    int32_t counted;
} napier_grpo_scan;

/* Sums over the counted tokens of a tile. */
typedef enum napier_grpo_term {
    NAPIER_TERM_LOSS,
    NAPIER_TERM_FLOW, /* d loss / d log ratio, at the sequence level */
    NAPIER_TERM_RATIO,
    NAPIER_TERM_APPROX_KL,
    NAPIER_TERM_KL,
    NAPIER_TERM_CORRECTION,
    NAPIER_TERM_ENTROPY,
    NAPIER_TERM_BONUS, /* entropy of the tokens that the entropy mask selects */
    NAPIER_TERMS
} napier_grpo_term;

typedef struct napier_grpo_sums {
    float sum[NAPIER_TERMS];
    float min_ratio, max_ratio;
    int32_t tokens, low, high, kept, bonus;
} napier_grpo_sums;

typedef struct napier_grpo_kernels {
    /* Sums over n tokens of one response, at most a tile, from `first` on. `wanted`: bits of NAPIER_SCAN_. */
    void (*scan)(const napier_grpo_job *job, int64_t first, int n, unsigned wanted, napier_grpo_scan *scan);
    /* Writes the job's losses and grad_logprobs, if present. *sums may be NULL. b: the response. */
    void (*tile)(const napier_grpo_job *job, const napier_grpo_response *response, int64_t b, int64_t first, int n,
                 napier_grpo_sums *sums);
    /* Writes grad_entropies. */
    void (*entropy_gradient)(const napier_grpo_job *job, int64_t first, int n);
} napier_grpo_kernels;

/* Each exists only in builds for its processor. */
extern const napier_grpo_kernels napier_grpo_kernels_scalar, napier_grpo_kernels_avx2, napier_grpo_kernels_avx512,
    napier_grpo_kernels_neon;

#endif
