/* ops/logcumsumexp/prefix.h - the sum of exponentials of a prefix of a row: the arithmetic that fixes the bits.
 *
 * The prefix is its largest element so far, max, and the sum of the exponentials of all others, as rest * 2^n(max), where
 * exp(max) = p * 2^n(max). The factors 2^n are exact, so a new maximum costs no rounding, and rest is a sum of two doubles. */
#ifndef NAPIER_OPS_LOGCUMSUMEXP_PREFIX_H
#define NAPIER_OPS_LOGCUMSUMEXP_PREFIX_H

#include "core/math/f64.h"

/* An exponential p * 2^n. Beyond 2^62 neighbouring doubles are 1024 apart or more, so exp of one is nothing beside that of the
 * next; n is not needed there. */
typedef struct prefix_term {
    double z;
    napier_f64_parts parts;
} prefix_term;

typedef struct prefix {
    prefix_term max;     /* z -inf: none yet */
    napier_double2 rest; /* in units of 2^n of max */
} prefix;

enum { PREFIX_NOTHING = -5000 }; /* 2 to this power is 0 beside any double */

static inline prefix_term prefix_term_of(double z) {
    const bool far = fabs(z) > 0x1p62;
    return (prefix_term){z, far ? (napier_f64_parts){1.0, 0.0, 0} : napier_f64_exp_parts(z)};
}

/* The exponent of 2 between the units of a and those of b, where a.z <= b.z. */
static inline int64_t prefix_shift(prefix_term a, prefix_term b) {
    if (fabs(a.z) > 0x1p62 || fabs(b.z) > 0x1p62) {
        return a.z == b.z ? 0 : PREFIX_NOTHING;
    }
    const uint64_t below = (uint64_t)b.parts.n - (uint64_t)a.parts.n;
    return below > -PREFIX_NOTHING ? PREFIX_NOTHING : -(int64_t)below;
}

/* x * 2^shift, for shift <= 0. */
static inline double prefix_scaled(double x, int64_t shift) {
    for (; shift < -1000 && x != 0; shift += 1000) {
        x *= 0x1p-1000;
    }
    return x * (shift < -1000 ? 0.0 : napier_f64_power_of_two((int)shift));
}

/* sum + (high + low). An overflow stays +-inf. */
static inline napier_double2 prefix_add(napier_double2 sum, double high, double low) {
    const napier_double2 s = napier_two_sum(sum.high, high);
    if (!isfinite(s.high)) {
        return (napier_double2){s.high, 0};
    }
    return napier_fast_two_sum(s.high, s.low + (sum.low + low));
}

static inline napier_double2 prefix_scaled2(napier_double2 x, int64_t shift) {
    return (napier_double2){prefix_scaled(x.high, shift), prefix_scaled(x.low, shift)};
}

static inline void prefix_add_term(prefix *s, prefix_term t, int64_t shift) {
    s->rest = prefix_add(s->rest, prefix_scaled(t.parts.p, shift), prefix_scaled(t.parts.low, shift));
}

/* Takes the next element, which is finite. Returns the shift of its units to those of the maximum; *moved is that from the units
 * before to those now, for sums of the caller. */
static inline int64_t prefix_take(prefix *s, prefix_term t, int64_t *moved) {
    *moved = 0;
    if (s->max.z == -HUGE_VAL) {
        s->max = t;
        return 0;
    }
    if (t.z <= s->max.z) {
        const int64_t shift = prefix_shift(t, s->max);
        prefix_add_term(s, t, shift);
        return shift;
    }
    const prefix_term before = s->max;
    *moved = prefix_shift(before, t);
    s->rest = prefix_scaled2(s->rest, *moved);
    s->max = t;
    prefix_add_term(s, before, *moved);
    return 0;
}

/* The sum of all exponentials in units of 2^n of max: at least 0.7. */
static inline double prefix_sum(const prefix *s) {
    const napier_double2 sum = prefix_add(s->rest, s->max.parts.p, s->max.parts.low);
    return sum.high + sum.low;
}

/* max + log(1 + rest / exp(max)). */
static inline double prefix_log(const prefix *s) {
    if (s->rest.high == 0) {
        return s->max.z;
    }
    const double p = s->max.parts.p;
    const double quotient = s->rest.high / p;
    const double left = (fma(-quotient, p, s->rest.high) + s->rest.low - quotient * s->max.parts.low) / p;
    const napier_double2 one = napier_two_sum(1.0, quotient);
    const napier_double2 log = napier_f64_log_of_sum(napier_fast_two_sum(one.high, one.low + left));
    const napier_double2 sum = napier_two_sum(s->max.z, log.high);
    return sum.high + (sum.low + log.low);
}

#endif
