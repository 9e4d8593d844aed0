/* ops/softmax/signed_digits.h - an exact sum of signed numbers: base-2^24 digits in 64-bit bins.
 *
 * Bin j holds the sum of all digits of weight 2^(24 (top - j)), in two's complement, without carries. These are
 * integers, so any order and grouping gives the same bins. Digits below the last bin are dropped one by one, so that
 * this does not depend on the order either. Up to 2^39 numbers may be added, each less than 2^(24 (top + 1)). The
 * digits of sum.h are similar, but positive and with a window that moves. */
#ifndef NAPIER_OPS_SOFTMAX_SIGNED_DIGITS_H
#define NAPIER_OPS_SOFTMAX_SIGNED_DIGITS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/math/both.h"

enum { NAPIER_SIGNED_BITS = 24, NAPIER_SIGNED_MASK = (1 << 24) - 1, NAPIER_SIGNED_MOST = 96 };

/* Digits from 0 to 2^24 - 1, the most significant first, rounded once, to nearest even: the four digits from the leading
 * nonzero one on, d[*lead], become two exact doubles; if anything lies below them, it sets the last bit of the second. Three
 * zeros follow the last digit and are included in `places`. */
NAPIER_BOTH double napier_digits_round(const uint64_t *d, int places, int *lead) {
    int i = 0;
    while (i < places - 3 && d[i] == 0) {
        i++;
    }
    *lead = i;
    if (i == places - 3) {
        return 0;
    }
    uint64_t below = 0;
    for (int j = i + 4; j < places; j++) {
        below |= d[j];
    }
    const uint64_t high = d[i] << NAPIER_SIGNED_BITS | d[i + 1];
    const uint64_t low = d[i + 2] << NAPIER_SIGNED_BITS | d[i + 3] | (below != 0);
    return (double)high * 0x1p48 + (double)low;
}

/* The same for bins without sign and carries, as those of sum.h. d has room for three digits above them and three zeros below,
 * and is 0; the result is in units of the weight of d[*lead + 3]. */
NAPIER_BOTH double napier_digits_sum(const uint64_t *digit, int digits, uint64_t *d, int *lead) {
    uint64_t carry = 0;
    for (int j = digits - 1; j >= 0; j--) {
        const uint64_t low = (digit[j] & NAPIER_SIGNED_MASK) + (carry & NAPIER_SIGNED_MASK);
        carry = (digit[j] >> NAPIER_SIGNED_BITS) + (carry >> NAPIER_SIGNED_BITS) + (low >> NAPIER_SIGNED_BITS);
        d[j + 3] = low & NAPIER_SIGNED_MASK;
    }
    for (int j = 2; j >= 0; j--, carry >>= NAPIER_SIGNED_BITS) {
        d[j] = carry & NAPIER_SIGNED_MASK;
    }
    return napier_digits_round(d, 3 + digits + 3, lead);
}

/* Adds x * 2^exponent for a finite x that is 0 or normal. */
NAPIER_BOTH void napier_digits_add(uint64_t *digit, int digits, int64_t top, double x, int64_t exponent) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t sign = bits >> 63 ? UINT64_MAX : 1; /* minus or plus one */
    if (bits << 1 == 0) {
        return;
    }
    const uint64_t significand = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x0010000000000000);
    const int64_t unit = (int64_t)(bits >> 52 & 0x7ff) - 1075 + exponent;
    const int64_t place = unit / NAPIER_SIGNED_BITS - (unit % NAPIER_SIGNED_BITS < 0 ? 1 : 0);
    const int shift = (int)(unit - place * NAPIER_SIGNED_BITS);
    uint64_t rest = significand >> (NAPIER_SIGNED_BITS - shift);
    uint64_t piece = significand << shift & NAPIER_SIGNED_MASK;
    for (int64_t j = top - place; piece > 0 || rest > 0; j--) {
        if (j >= 0 && j < digits) {
            digit[j] += sign * piece;
        }
        piece = rest & NAPIER_SIGNED_MASK;
        rest >>= NAPIER_SIGNED_BITS;
    }
}

/* Digits from 0 to 2^24 - 1 in d[], and the carry above them. */
NAPIER_BOTH int64_t napier_digits_carry(const uint64_t *digit, int digits, bool negate, uint64_t *d) {
    int64_t carry = 0;
    for (int j = digits - 1; j >= 0; j--) {
        const int64_t bin = (int64_t)(negate ? -digit[j] : digit[j]) + carry;
        d[j] = (uint64_t)bin & NAPIER_SIGNED_MASK;
        carry = (bin - (int64_t)d[j]) / (1 << NAPIER_SIGNED_BITS); /* exact */
    }
    return carry;
}

/* The sum in units of 2^exponent, rounded once. */
NAPIER_BOTH double napier_digits_value(const uint64_t *digit, int digits, int64_t top, int64_t exponent) {
    enum { ABOVE = 2, BELOW = 3 };
    uint64_t d[ABOVE + NAPIER_SIGNED_MOST + BELOW] = {0}; /* d[ABOVE] is at place top */
    int64_t carry = napier_digits_carry(digit, digits, false, d + ABOVE);
    const bool negative = carry < 0;
    if (negative) {
        carry = napier_digits_carry(digit, digits, true, d + ABOVE);
    }
    d[1] = (uint64_t)carry & NAPIER_SIGNED_MASK;
    d[0] = (uint64_t)carry >> NAPIER_SIGNED_BITS;
    int lead;
    const double value = napier_digits_round(d, ABOVE + digits + BELOW, &lead);
    const int64_t unit = (top + ABOVE - lead - 3) * NAPIER_SIGNED_BITS - exponent;
    return value == 0 ? 0 : ldexp(negative ? -value : value, (int)unit);
}

#endif
