/* ops/softmax/f64/sum_f64.h - the exact sum of a row's exponentials in double
 * precision, by the same construction as for f32.
 *
 * A row is cut into tiles of 1024 elements. Inside a tile doubles are added in one fixed order, so the sum of a tile is
 * a pure function of its elements. Tiles are then added as integers, in any grouping and order, with the same bits.
 *
 *   sum = { max, count, top, digit[54] }    the value  count * exp(max) + sum_j digit[j] * 2^(24 * (top - j))
 *
 * Elements equal to the maximum are only counted, so log(count + rest) keeps its accuracy however small the rest
 * is. Any other element is a term exp(x) = p 2^n, where p and n are functions of x only (core/math/f64.h),
 * unless it lies more than 800 below the maximum of its tile: 2^40 terms of exp(-800) are 2^-1114 of the
 * largest, and the smallest double is 2^-1074. The window of 54 digits reaches from 48 bits of headroom down to
 * 2^-1224 of the largest term, below the last bit of every kept term. It follows the maximum. A digit that falls
 * below it is below every later window too, so it makes no difference whether it is dropped before or after a
 * merge. A sum may hold up to 2^40 elements.
 *
 * If the maximum is beyond +-2^62, neighbouring doubles lie further apart than
 * 800: only ties count, and the digits stay 0.
 *
 * All functions are pure, take no locks and allocate nothing. They need the default floating-point environment. */
#ifndef NAPIER_OPS_SOFTMAX_F64_SUM_F64_H
#define NAPIER_OPS_SOFTMAX_F64_SUM_F64_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <napier/softmax.h>

#include "core/math/f64.h"
#include "ops/softmax/certain.h"
#include "ops/softmax/signed_digits.h"

/* Terms are multiplied by 2^512. Then terms of exp(-800), 2^-1155 of the largest, stay
 * normal, and 1024 of the largest stay finite. */
enum { NAPIER_F64_TERM_SCALE = 512 };
#define NAPIER_F64_CUTOFF 800.0
#define NAPIER_F64_HUGE 0x1p62

enum {
    NAPIER_F64_TILE = 1024,
    NAPIER_F64_LANES = 256,
    NAPIER_F64_DIGIT_BITS = NAPIER_SIGNED_BITS,
    NAPIER_F64_DIGITS = 54
};

typedef struct napier_f64_sum {
    double max;                        /* -inf: nothing but -inf and NaN so far; +inf where pinf */
    bool nan, pinf;                    /* an element is NaN, +inf */
    int64_t top;                       /* place of digit[0]; 0 if max is not finite or beyond 2^62 */
    uint64_t count;                    /* elements equal to max; 0 if max is not finite */
    uint64_t digit[NAPIER_F64_DIGITS]; /* below 2^64, not carried */
} napier_f64_sum;

/* Beyond this maximum, no other element is near enough to count. */
NAPIER_BOTH bool napier_f64_is_huge(double max) { return fabs(max) > NAPIER_F64_HUGE; }

/* The empty sum. */
NAPIER_BOTH_LONG void napier_f64_sum_init(napier_f64_sum *sum);

/* What a tile adds to a sum: the terms of its elements, added in their lanes (i mod 256) and folded. */
typedef struct napier_f64_tile_part {
    double max, rest; /* of the elements that are not NaN; `rest` is unused if max is beyond 2^62 */
    uint64_t count;   /* of elements equal to max */
    bool nan;
} napier_f64_tile_part;

/* The part of a tile. z[0] is an element whose index in the row is a multiple of 1024. n is 1024, or 0 .. 1024 for the
 * row's last tile. softmax_kernels.h has the same for each instruction set. */
NAPIER_BOTH_LONG napier_f64_tile_part napier_f64_tile_by_definition(const double *z, int n);

/* What z adds to its lane in a tile with maximum `max`, whose exponent this is. Not for max beyond 2^62. */
NAPIER_BOTH_LONG double napier_f64_term(double z, double max, int64_t exponent);
NAPIER_BOTH_LONG int64_t napier_f64_exponent_of(double max);
NAPIER_BOTH_LONG void napier_f64_sum_add_part(napier_f64_sum *sum, const napier_f64_tile_part *part);

/* Adds `from` to `into`. Commutative and associative, to the last bit of every field. */
NAPIER_BOTH_LONG void napier_f64_sum_merge(napier_f64_sum *into, const napier_f64_sum *from);

/* Could the functions above have computed these fields? For sums that are read from untrusted bytes. */
NAPIER_BOTH_LONG bool napier_f64_sum_valid(const napier_f64_sum *sum);

typedef enum napier_f64_row {
    NAPIER_F64_ROW_FINITE = 0, /* at least one finite element, no NaN, no +inf */
    NAPIER_F64_ROW_NAN = 1,
    NAPIER_F64_ROW_PINF = 2,
    NAPIER_F64_ROW_MASKED = 3 /* all -inf, or empty */
} napier_f64_row;

/* What the outputs of a row need. log_sum + log_sum_low is log sum exp(x - max), with an error of 2^-64 of its value
 * and of 14 * 2^-53 * (1 - p_max), because a term takes part in at most 11 additions of its tile's sum. lse and
 * log_softmax add one rounding to that, softmax less than 4 ulp. */
typedef struct napier_f64_final {
    napier_f64_row row;
    double lse, max;
    double log_sum, log_sum_low;
    double max_prob;  /* probability of one element equal to the maximum; no other exceeds it */
    double scale;     /* probability = p 2^(n - exponent + 512) * scale */
    int64_t exponent; /* n of the maximum */
} napier_f64_final;

NAPIER_BOTH_LONG void napier_f64_finish(const napier_f64_sum *sum, napier_f64_final *final);
/* The same for a row of one tile. */
NAPIER_BOTH_LONG void napier_f64_finish_tile(const napier_f64_tile_part *part, napier_f64_final *final);

/* softmax or log_softmax of n elements of the row; out may be z. */
NAPIER_BOTH_LONG void napier_f64_apply(const napier_f64_final *final, napier_softmax_kind kind,
                                       napier_masked_rows masked_rows, const double *z, double *out, int64_t n);

/* Folds a tile's lanes by halves, 128, 64, .., 1; the result is lane[0]. The gradients use it too. */
NAPIER_BOTH_LONG double napier_f64_fold(double lane[NAPIER_F64_LANES]);

/* What a job in double computes, on the CPU and on a GPU. */
typedef enum napier_f64_result {
    NAPIER_F64_SOFTMAX,
    NAPIER_F64_LOG_SOFTMAX,
    NAPIER_F64_LSE,
    NAPIER_F64_LSE_GRADIENT,
    NAPIER_F64_SOFTMAX_GRADIENT,
    NAPIER_F64_LOG_SOFTMAX_GRADIENT,
    NAPIER_F64_DOT,  /* the sum that the gradient of softmax needs */
    NAPIER_F64_STATE /* on a GPU: of a part of each row, which is added to a state */
} napier_f64_result;

/* ---- Gradients, element by element ------------------------------------------------------------------------------- */

/* An element with probability 0 gets 0, whatever its gradient is. Certain elements as in ops/softmax/certain.h. */
NAPIER_BOTH double napier_f64_softmax_gradient(double prob, double grad, const napier_certain_sums *s,
                                               double temperature) {
    const bool certain = prob > (double)NAPIER_CERTAIN;
    const double v = certain ? napier_certain_gradient(prob, grad, s) : prob * (grad - (s->rest + s->certain));
    return prob == 0 ? 0 : v / temperature;
}
NAPIER_BOTH double napier_f64_log_softmax_gradient(double logprob, double grad, const napier_certain_sums *s,
                                                   double temperature) {
    if (napier_is_certain_log(logprob)) {
        return napier_certain_log_gradient(logprob, grad, s->rest) / temperature;
    }
    const double prob = napier_f64_exp(logprob);
    return (prob == 0 ? grad : fma(-prob, s->rest, grad)) / temperature;
}
NAPIER_BOTH double napier_f64_lse_gradient(double prob, double grad, double temperature) {
    return prob == 0 ? 0 : grad * prob / temperature;
}

/* A kernel of a GPU compiles the functions above in its own file. */
#if NAPIER_DEVICE_CODE
#include "ops/softmax/f64/sum_f64.inc.h"
#endif

#endif
