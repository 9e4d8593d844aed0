/* ops/sparsemax/threshold.h - the arithmetic of sparsemax: the definition that all kernels follow.
 *
 * d = max - z is the distance of an element from its row's maximum. It is rounded to a multiple of 2^-52. After that
 * nothing is rounded before the results: sums of distances are integers, so any order of additions gives their bits.
 *
 *   t = (1 + sum of d over the support) / (size of the support)      how far tau lies below the maximum
 *   support = { d < t }          p = t - d
 *
 * t is at most 1, because p = t for the maximum. So the first support tried is { d < 1 }. Each round computes t and
 * leaves out the elements with d >= t. t never rises, and the rounds end when no element leaves. This is Newton's method
 * on the piecewise linear, convex f(t) = sum max(t - d, 0) - 1. The product of f and its slope falls to a quarter or less
 * in each round, so there are at most 26 + 1.5 log2(n) rounds, and in practice fewer than 15.
 * Source: C. Michelot, "A finite algorithm for finding the projection of a point onto the canonical simplex of R^n", 1986.
 *
 * Plain C, shared by the kernels of every instruction set, CUDA and the tests. */
#ifndef NAPIER_OPS_SPARSEMAX_THRESHOLD_H
#define NAPIER_OPS_SPARSEMAX_THRESHOLD_H

#include <stdbool.h>

#include "core/math/both.h"
#include "core/math/f64.h"

#define SPARSEMAX_UNIT 0x1p-52 /* of distances */

/* How many distances, and their sum in units: high 2^64 + low. */
typedef struct napier_sparsemax_sum {
    uint64_t count, high, low;
} napier_sparsemax_sum;

/* p = (whole - d) + fraction where d < limit, else 0. `whole` is t rounded down to units, and `limit` is t rounded up. */
typedef struct napier_sparsemax_threshold {
    double limit, whole, fraction;
} napier_sparsemax_threshold;

/* Rounded to units: the doubles from 1 to 2 are the multiples of 2^-52. */
NAPIER_BOTH double sparsemax_distance(double max, double z) { return ((max - z) + 1.0) - 1.0; }

NAPIER_BOTH uint64_t sparsemax_units(double distance) { return (uint64_t)(distance * 0x1p52); }

NAPIER_BOTH void sparsemax_add(napier_sparsemax_sum *s, napier_sparsemax_sum other) {
    s->count += other.count;
    s->low += other.low;
    s->high += other.high + (s->low < other.low);
}

/* high 2^64 + low = quotient * divisor + *rest, for high < divisor <= 2^48 (more than any array has elements). */
NAPIER_BOTH uint64_t sparsemax_divide(uint64_t high, uint64_t low, uint64_t divisor, uint64_t *rest) {
    uint64_t quotient = 0;
    for (int shift = 48; shift >= 0; shift -= 16) {
        const uint64_t part = high << 16 | (low >> shift & 0xffff);
        quotient = quotient << 16 | part / divisor;
        high = part % divisor;
    }
    *rest = high;
    return quotient;
}

/* count > 0, and all distances of the sum are at most 1. */
NAPIER_BOTH napier_sparsemax_threshold sparsemax_threshold_of(napier_sparsemax_sum s) {
    const napier_sparsemax_sum one = {0, 0, sparsemax_units(1.0)};
    uint64_t rest;
    sparsemax_add(&s, one);
    const double whole = (double)sparsemax_divide(s.high, s.low, s.count, &rest) * SPARSEMAX_UNIT;
    return (napier_sparsemax_threshold){rest > 0 ? whole + SPARSEMAX_UNIT : whole, whole,
                                        (double)rest / (double)s.count * SPARSEMAX_UNIT};
}

NAPIER_BOTH double sparsemax_prob(napier_sparsemax_threshold t, double distance) {
    return distance < t.limit ? (t.whole - distance) + t.fraction : 0.0;
}

/* ---- Elements. `wide`: the compute type is f64, otherwise f32 ----------------------------------------------------- */

NAPIER_BOTH double sparsemax_load(const void *data, napier_dtype dtype, int64_t index, double temperature, bool wide) {
    const double x = napier_f64_load(data, dtype, index);
    return wide ? x / temperature : (double)((float)x / (float)temperature);
}

NAPIER_BOTH void sparsemax_store(void *data, napier_dtype dtype, int64_t index, double result, bool wide) {
    napier_f64_store(data, dtype, index, wide ? result : (double)(float)result);
}

#endif
