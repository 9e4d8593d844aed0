/* ops/tokens/token_kernels.h - the table of kernels for log-probabilities of tokens. Each instruction set compiles them
 * (token_*.inc.h). */
#ifndef NAPIER_OPS_TOKENS_TOKEN_KERNELS_H
#define NAPIER_OPS_TOKENS_TOKEN_KERNELS_H

#include "ops/tokens/token_tile.h"

/* Logits [rows, cols] in memory, f32, f16 or bf16, and the results that are wanted. */
typedef struct napier_token_job {
    napier_const_matrix x;
    napier_token_rules rules;
    napier_token_wants wants;
} napier_token_job;

/* The gradient of a row: p (base - entropy log p) + constant, already divided by the temperature. */
typedef struct napier_token_slope {
    bool zero; /* all gradients are 0: the logits are not read */
    bool nan;  /* a gradient is NaN */
    float base, entropy, constant;
    int64_t count;       /* chosen ids */
    const int64_t *ids;  /* [count]; -1: none */
    const double *start; /* [count]: the value the id's element would have if it were not chosen, in double */
    const double *own;   /* [count]: the id's own gradient, added to that */
    double *sum;         /* [count] room */
} napier_token_slope;

/* The number of scratch floats that a worker needs for the kernels below, aligned to 64 bytes. */
enum { NAPIER_TOKEN_SCRATCH = 4 * (NAPIER_TILE + 16) };

/* The number of short rows that are processed together. Their columns fit in the scratch memory. */
static inline int napier_token_group_rows(int64_t cols) { return cols <= 128 ? 16 : cols <= 256 ? 8 : 4; }

typedef struct napier_token_kernels {

    /* Converts n logits to z. keep is NULL or their bytes. z may be x if that is f32 with stride 1. */
    void (*token_z)(const napier_token_rules *rules, const void *x, napier_dtype dtype, int64_t stride,
                    const uint8_t *keep, int64_t n, float *z);
    /* Reduces one tile of a row, z[0 .. n - 1] from column 1024 * tile on, to its slot, and updates `seen`. keep, its
     * bytes or NULL, affects only the total. */
    void (*token_tile)(const napier_token_wants *wants, const float *z, const uint8_t *keep, int n, int64_t tile,
                       const napier_token_slots *slots, napier_token_seen *seen);
    /* Reduces the slots 0 .. tiles - 1 of a row to its final. It may change the slots after the last. */
    napier_token_final (*token_finish)(const napier_token_wants *wants, const napier_token_slots *slots, int64_t tiles);
    /* Reduces columns [begin, end) of row `row`, where begin is a multiple of 1024: each tile to its slot. Updates
     * `seen`. */
    void (*token_range)(const napier_token_job *job, int64_t row, int64_t begin, int64_t end,
                        const napier_token_slots *slots, napier_token_seen *seen, float *scratch);
    /* Whole rows of 1 to 1024 columns, up to napier_token_group_rows of them, with the same results. */
    void (*token_rows)(const napier_token_job *job, int64_t row, int rows, napier_token_seen *seen,
                       napier_token_final *finals, float *scratch);
    /* Writes columns [begin, end) of a row's gradient to y, where begin is a multiple of 1024. y may be the logits
     * themselves. stream: y is too large to stay in a cache. slots: NULL, or of the row, with terms. */
    void (*token_gradient)(const napier_token_job *job, int64_t row, int64_t begin, int64_t end,
                           const napier_final *final, const napier_token_slope *slope, const napier_token_slots *slots,
                           napier_matrix y, bool stream, float *scratch);
} napier_token_kernels;

/* Each exists only in builds for its processor. */
extern const napier_token_kernels napier_token_kernels_scalar, napier_token_kernels_avx2, napier_token_kernels_avx512,
    napier_token_kernels_neon;

#endif
