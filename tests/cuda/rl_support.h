/* tests/cuda/rl_support.h - batches of responses for the tests of tokens and losses. */
#ifndef NAPIER_TESTS_RL_SUPPORT_H
#define NAPIER_TESTS_RL_SUPPORT_H

#include "both.h"

static const napier_dtype dtypes[3] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

/* Responses of 0 to `most` tokens; returns how many tokens. offsets: [responses + 1]. */
static inline int64_t make_offsets(rng *r, int64_t responses, int64_t most, int64_t *offsets) {
    offsets[0] = 0;
    for (int64_t b = 0; b < responses; b++) {
        offsets[b + 1] = offsets[b] + (b % 4 == 2 ? 0 : b % 3 == 1 ? most : rng_below(r, most + 1));
    }
    return offsets[responses];
}

/* Log-probabilities; some special values where `wild`. */
static inline void make_logprobs(rng *r, float *x, int64_t n, double spread, bool wild) {
    static const float special[] = {0.0f, -0.0f, -INFINITY, NAN, -1e30f, -1e-40f, INFINITY, -90.0f};
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(-1.5 + spread * rng_normal(r));
        if (wild && rng_below(r, 40) == 0) {
            x[i] = special[rng_below(r, 8)];
        }
    }
}

#endif
