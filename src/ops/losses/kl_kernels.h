/* ops/losses/kl_kernels.h - the table of kernels for KL divergences. Each instruction set compiles them (kl.inc.h). */
#ifndef NAPIER_OPS_LOSSES_KL_KERNELS_H
#define NAPIER_OPS_LOSSES_KL_KERNELS_H

#include <napier/rl.h>

/* Checked arguments. Vectors with data NULL are absent. */
typedef struct napier_kl_job {
    napier_const_vector policy, ref; /* [T] */
    const uint8_t *mask;             /* [T] or NULL */
    napier_kl_estimator estimator;
    float clamp_ratio, clamp_kl; /* INFINITY: none */
    napier_vector grad_policy, grad_ref;
} napier_kl_job;

/* The sums of a tile. */
typedef struct napier_kl_sum {
    float value;
    int32_t counted;
} napier_kl_sum;

/* The values of a row: its log_softmax is (z - max) - (log_sum + log_sum_low). */
typedef struct napier_kl_row {
    float max, log_sum, log_sum_low;
} napier_kl_row;

/* Sums over a row of a vocabulary, or over a tile of it. */
typedef struct napier_kl_sums {
    double kl;         /* of p_j (log p_j - log q_j) */
    double excess;     /* of q_j - p_j, which is 0 except for errors */
    double rest, prob; /* of p_j (log p_j - log q_j), and of p_j, over all j but the one with p_j > 1/2 */
} napier_kl_sums;

typedef struct napier_kl_full_job {
    napier_const_matrix policy, ref; /* [N, V] */
    float temperature;
    napier_matrix grad_policy, grad_ref;
} napier_kl_full_job;

typedef struct napier_kl_kernels {
    /* The sum over n tokens, at most a tile, from `first` on, and the number of counted tokens. */
    float (*tile)(const napier_kl_job *job, int64_t first, int n, int32_t *counted);
    /* Their gradients. `gradient` is that of each token's estimate. */
    void (*tile_gradient)(const napier_kl_job *job, int64_t first, int n, float gradient);

    /* The sums of a row; `rest` and `prob` only for the gradient of a row with such a j, else 0. */
    napier_kl_sums (*full_row)(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                               const napier_kl_row *q);
    /* `gradient` is that of the row's divergence, `kl` the divergence, `certain` from napier_kl_certain. */
    void (*full_row_gradient)(const napier_kl_full_job *job, int64_t row, const napier_kl_row *p,
                              const napier_kl_row *q, float kl, float certain, float gradient);
} napier_kl_kernels;

/* Each exists only in builds for its processor. */
extern const napier_kl_kernels napier_kl_kernels_scalar, napier_kl_kernels_avx2, napier_kl_kernels_avx512,
    napier_kl_kernels_neon;

#endif
