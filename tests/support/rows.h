/* support/rows.h - deterministic random numbers, and the kinds of rows that are ordinary or difficult for softmax.
 * A number is a hash of (seed, counter), so a row is defined by its kind, seed, dtype and length, on every machine.
 * Only CANCELLING uses libm's exp and log; the golden table leaves it out. */
#ifndef NAPIER_TESTS_ROWS_H
#define NAPIER_TESTS_ROWS_H

#include <napier/types.h>
#include <stdint.h>

typedef struct rng {
    uint64_t seed, counter;
} rng;

rng rng_make(uint64_t seed);
uint64_t rng_bits(rng *r);
double rng_uniform(rng *r);               /* [0, 1), 48 bits */
double rng_normal(rng *r);                /* approximately standard normal: the sum of eight uniforms, within +-4.9 */
int64_t rng_below(rng *r, int64_t limit); /* 0 .. limit - 1 */

typedef enum row_kind {
    ROW_NORMAL,       /* several scales around 0 */
    ROW_OFFSET,       /* the same around 1e4, -1e4, 1e6, -3e7, +-2e9, 1e30 */
    ROW_PEAKED,       /* one element far above the rest */
    ROW_EQUAL,        /* all equal */
    ROW_TIES,         /* few distinct values, so the maximum repeats */
    ROW_RISING,       /* every element a new maximum */
    ROW_FALLING,      /* the maximum first, block maxima falling */
    ROW_MASKED,       /* most elements -inf, -1e9, -1e30, -FLT_MAX or -65504, the first one among them */
    ROW_EXTREME,      /* the largest and the most negative finite value mixed with ordinary ones */
    ROW_ANY_FINITE,   /* random bit patterns; those that are not finite become -inf */
    ROW_ANY_BITS,     /* random bit patterns, including NaN and infinities */
    ROW_SUBNORMAL,    /* subnormal elements of both signs */
    ROW_SPRINKLED,    /* normal with a NaN or an infinity somewhere */
    ROW_NEAR_ZERO,    /* the maximum 0 and the rest far below: logsumexp is tiny */
    ROW_CANCELLING,   /* log-probabilities: maximum and log of the sum cancel */
    ROW_FLUSH_EDGE,   /* the rest 80 to 140 below the maximum, where terms leave the window of f32 and f64 results */
    ROW_TEN_THOUSAND, /* +-1e4 */
    ROW_POWERS,       /* around +-2^19 .. 2^32: from 2^20 on, exp's reduction runs in double */
    ROW_ALL_MASKED,   /* only -inf */
    ROW_ONE_LEFT,     /* -inf except for one or two elements */
    ROW_KINDS,
    ROW_SIGNED_ZEROS =
        ROW_KINDS /* zeros of both signs, which are the maximum if the seed is even; not among the kinds */
} row_kind;

const char *row_kind_name(row_kind kind);

/* Fills x with n values, each representable in `dtype`. */
void row_fill(row_kind kind, uint64_t seed, napier_dtype dtype, double *x, int64_t n);
/* Makes the same numbers as floats; `wide`, also of n elements, receives them as doubles. */
void row_fill_f32(row_kind kind, uint64_t seed, float *x, double *wide, int64_t n);

#endif
