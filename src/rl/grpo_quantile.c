/* rl/grpo_quantile.c - a quantile of many values without sorting them: their bits, made to rise with the value, are
 * counted digit by digit. */
#include <math.h>
#include <string.h>

#include "math/exp.h"
#include "math/f64.h"
#include "rl/grpo_run.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Unsigned integers in the order of the floats; -0 and +0 are one. */
static uint32_t napier_rising(float x) {
    const uint32_t bits = napier_float_bits(x == 0 ? 0.0f : x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static float napier_of_rising(uint32_t key) { return napier_float_of_bits(key >> 31 ? key & 0x7fffffffu : ~key); }

typedef struct napier_values {
    napier_const_vector v;
    const uint8_t *mask;
} napier_values;

static bool napier_value_at(const napier_values *values, int64_t i, float *x) {
    if (values->mask && !values->mask[i]) {
        return false;
    }
    *x = values->v.dtype == NAPIER_F32 ? ((const float *)values->v.data)[i * values->v.stride]
                                       : (float)napier_f64_load(values->v.data, values->v.dtype, i * values->v.stride);
    return true;
}

/* How many keys, among those that start with the digits of `prefix` above `shift` + 11 bits, have each next digit. */
static void napier_count_digits(const napier_values *values, uint32_t prefix, int shift, int64_t count[DIGITS]) {
    memset(count, 0, DIGITS * sizeof *count);
    const int above = shift + DIGIT_BITS;
    float x;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (napier_value_at(values, i, &x)) {
            const uint32_t key = napier_rising(x);
            if (above >= 32 || key >> above == prefix >> above) {
                count[key >> shift & (DIGITS - 1)]++;
            }
        }
    }
}

/* The key of rank `rank` (from 0); *through: how many keys are not above it. */
static uint32_t napier_key_of_rank(const napier_values *values, int64_t rank, int64_t *through) {
    int64_t count[DIGITS], before = 0;
    uint32_t key = 0;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) { /* 10, 11 and 11 bits */
        napier_count_digits(values, key, shift, count);
        uint32_t digit = 0;
        while (before + count[digit] <= rank) {
            before += count[digit++];
        }
        key |= digit << shift;
        *through = before + count[digit];
    }
    return key;
}

static float napier_next_above(const napier_values *values, float low) {
    float x, next = INFINITY;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (napier_value_at(values, i, &x) && x > low && x < next) {
            next = x;
        }
    }
    return next;
}

static bool napier_count_values(const napier_values *values, int64_t *count) {
    float x;
    *count = 0;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (napier_value_at(values, i, &x)) {
            if (x != x) {
                return false;
            }
            ++*count;
        }
    }
    return true;
}

float napier_grpo_quantile(napier_const_vector v, const uint8_t *mask, double quantile) {
    const napier_values values = {v, mask};
    int64_t count, through = 0;
    if (!napier_count_values(&values, &count)) {
        return napier_float_of_bits(0x7fc00000u);
    }
    if (count == 0) {
        return 0.0f;
    }
    const double rank = quantile * (double)(count - 1);
    const int64_t whole = (int64_t)rank;
    const double part = rank - (double)whole;
    const float low = napier_of_rising(napier_key_of_rank(&values, whole, &through));
    if (part == 0 || through > whole + 1) {
        return low;
    }
    const double a = (double)low, b = (double)napier_next_above(&values, low);
    return (float)(part < 0.5 ? a + part * (b - a) : b - (b - a) * (1.0 - part));
}
