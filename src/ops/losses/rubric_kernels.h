/* ops/losses/rubric_kernels.h - the table of kernels for rubric scores. Each instruction set compiles them
 * (rubric.inc.h). */
#ifndef NAPIER_OPS_LOSSES_RUBRIC_KERNELS_H
#define NAPIER_OPS_LOSSES_RUBRIC_KERNELS_H

#include <napier/rl.h>

/* Checked arguments: every id is a column of the rubric. */
typedef struct napier_rubric_job {
    napier_const_vector logprobs; /* [T] */
    napier_indices ids;           /* [T] */
    napier_const_matrix rubric;   /* [C, V] */
    napier_vector grad_logprobs;  /* [T] */
} napier_rubric_job;

typedef struct napier_rubric_kernels {
    /* sums[c] = sum of logprobs[t] * rubric[c][id_t] over n tokens, at most a tile, from `first` on. */
    void (*tile)(const napier_rubric_job *job, int64_t first, int n, float *sums);
    /* grad_logprobs[t] = sum_c factor[c] * rubric[c][id_t], c ascending. */
    void (*tile_gradient)(const napier_rubric_job *job, int64_t first, int n, const float *factor);
} napier_rubric_kernels;

/* Each exists only in builds for its processor. */
extern const napier_rubric_kernels napier_rubric_kernels_scalar, napier_rubric_kernels_avx2,
    napier_rubric_kernels_avx512, napier_rubric_kernels_neon;

#endif
