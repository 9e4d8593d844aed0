/* ops/tokens/quantile.h - the parts of a quantile without sorting, for the CPU (grpo_quantile.c) and a GPU
 * (grpo_quantile.cu). Floats become unsigned keys in the same order, and the keys are counted digit by digit, from the
 * highest digit. */
#ifndef NAPIER_OPS_TOKENS_QUANTILE_H
#define NAPIER_OPS_TOKENS_QUANTILE_H

#include <stdbool.h>

#include "core/math/exp.h"

/* A key has three digits: 10, 11 and 11 bits. */
enum { NAPIER_KEY_DIGIT = 11, NAPIER_KEY_DIGITS = 1 << NAPIER_KEY_DIGIT };

/* Maps floats to unsigned integers in the same order; -0 and +0 give the same key. */
NAPIER_BOTH uint32_t napier_rising(float x) {
    const uint32_t bits = napier_float_bits(x == 0 ? 0.0f : x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
NAPIER_BOTH float napier_of_rising(uint32_t key) { return napier_float_of_bits(key >> 31 ? key & 0x7fffffffu : ~key); }

/* The position of a quantile: between the values of ranks `rank` and rank + 1, counted from 0. */
typedef struct napier_quantile_place {
    int64_t rank;
    double part;
} napier_quantile_place;

NAPIER_BOTH napier_quantile_place napier_quantile_place_of(double quantile, int64_t count) {
    const double rank = quantile * (double)(count - 1);
    const napier_quantile_place place = {(int64_t)rank, rank - (double)(int64_t)rank};
    return place;
}

/* True if the quantile is the lower value itself. through: the number of values that are not above the lower value. */
NAPIER_BOTH bool napier_quantile_is_one(const napier_quantile_place *place, int64_t through) {
    return place->part == 0 || through > place->rank + 1;
}

NAPIER_BOTH float napier_quantile_between(const napier_quantile_place *place, float low, float high) {
    const double a = (double)low, b = (double)high, part = place->part;
    return (float)(part < 0.5 ? a + part * (b - a) : b - (b - a) * (1.0 - part));
}

#endif
