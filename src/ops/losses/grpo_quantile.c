/* ops/losses/grpo_quantile.c - a quantile of many values without sorting them. Their bits are mapped to keys in the
 * same order, which are counted digit by digit. */
#include <math.h>
#include <string.h>

#include "core/math/f64.h"
#include "ops/losses/grpo_run.h"
#include "ops/tokens/quantile.h"

typedef struct masked_values {
    napier_const_vector v;
    const uint8_t *mask;
} masked_values;

static bool value_at(const masked_values *values, int64_t i, float *x) {
    if (values->mask && !values->mask[i]) {
        return false;
    }
    *x = values->v.dtype == NAPIER_F32 ? ((const float *)values->v.data)[i * values->v.stride]
                                       : (float)napier_f64_load(values->v.data, values->v.dtype, i * values->v.stride);
    return true;
}

/* Counts the next digit of the keys whose digits above `shift` + 11 bits equal those of `prefix`. */
static void count_digits(const masked_values *values, uint32_t prefix, int shift, int64_t count[NAPIER_KEY_DIGITS]) {
    memset(count, 0, NAPIER_KEY_DIGITS * sizeof *count);
    const int above = shift + NAPIER_KEY_DIGIT;
    float x;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (value_at(values, i, &x)) {
            const uint32_t key = napier_rising(x);
            if (above >= 32 || key >> above == prefix >> above) {
                count[key >> shift & (NAPIER_KEY_DIGITS - 1)]++;
            }
        }
    }
}

/* The key of rank `rank` (from 0). *through: number of keys that are not above it. */
static uint32_t key_of_rank(const masked_values *values, int64_t rank, int64_t *through) {
    int64_t count[NAPIER_KEY_DIGITS], before = 0;
    uint32_t key = 0;
    for (int shift = 2 * NAPIER_KEY_DIGIT; shift >= 0; shift -= NAPIER_KEY_DIGIT) { /* 10, 11 and 11 bits */
        count_digits(values, key, shift, count);
        uint32_t digit = 0;
        while (before + count[digit] <= rank) {
            before += count[digit++];
        }
        key |= digit << shift;
        *through = before + count[digit];
    }
    return key;
}

static float next_above(const masked_values *values, float low) {
    float x, next = INFINITY;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (value_at(values, i, &x) && x > low && x < next) {
            next = x;
        }
    }
    return next;
}

static bool count_values(const masked_values *values, int64_t *count) {
    float x;
    *count = 0;
    for (int64_t i = 0; i < values->v.size; i++) {
        if (value_at(values, i, &x)) {
            if (x != x) {
                return false;
            }
            ++*count;
        }
    }
    return true;
}

float napier_grpo_quantile(napier_const_vector v, const uint8_t *mask, double quantile) {
    const masked_values values = {v, mask};
    int64_t count, through = 0;
    if (!count_values(&values, &count)) {
        return napier_nan();
    }
    if (count == 0) {
        return 0.0f;
    }
    const napier_quantile_place place = napier_quantile_place_of(quantile, count);
    const float low = napier_of_rising(key_of_rank(&values, place.rank, &through));
    return napier_quantile_is_one(&place, through) ? low
                                                   : napier_quantile_between(&place, low, next_above(&values, low));
}
