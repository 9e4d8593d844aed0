/* ops/sample/sample_kernels.h - the kernels of sampling, which sample.inc.h implements once for all instruction sets.
 * Each works on at most a tile of contiguous z without NaN and +inf. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_KERNELS_H
#define NAPIER_OPS_SAMPLE_SAMPLE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* What a row's elements are divided into: above `high`, from `low` to `high`, and the rest. */
typedef struct napier_sample_bands {
    float low, high;
    bool weights; /* those above count their weights (draw.h), else 1 each */
    float max;    /* of the row; with weights, its magnitude is at most NAPIER_BIG, and bits at most 47 */
    int bits;
    bool most; /* most elements are above `high` */
    bool even; /* each element above `high` weighs at least 2^25 */
} napier_sample_bands;

typedef struct napier_sample_kernels {
    /* Copies the elements >= least, in their order, and returns their number. `out` has space for n + 16. */
    int (*collect)(const float *z, int n, float least, float *out);
    /* Copies the elements from low to high, and returns their number; *above grows by what those above count. `out` has
     * space for n + 16. */
    int (*split)(const napier_sample_bands *bands, const float *z, int n, float *out, uint64_t *above);
    /* The sum of the terms of a tile (token_tile.h: rest) whose maximum is this, at most NAPIER_BIG in magnitude, without
     * the elements below `least`. */
    float (*rest)(const float *z, int n, float max, float least);
    /* The index after the *left-th element that equals x, or n if there are fewer; lowers *left by those up to it. */
    int (*ties)(const float *z, int n, float x, int64_t *left);
    /* Makes -inf of the elements below `least`, and of those that equal it from index `end` on. */
    void (*cut)(float *z, int n, float least, int end);
    /* napier_sample_term of each element; none is above max. Both arrays hold whole vectors. */
    void (*terms)(const float *z, int n, float max, float *terms);
} napier_sample_kernels;

/* Each exists only in builds for its processor. */
extern const napier_sample_kernels napier_sample_kernels_scalar, napier_sample_kernels_avx2,
    napier_sample_kernels_avx512, napier_sample_kernels_neon;

#endif
