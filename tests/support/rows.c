/* support/rows.c - see rows.h. */
#include "support/rows.h"

#include <float.h>
#include <math.h>

#include "support/formats.h"

rng rng_make(uint64_t seed) {
    rng r = {seed, 0};
    return r;
}

/* A bijective scramble of 64 bits: multiply and shift-xor twice (the finaliser of MurmurHash3 with the multipliers of
 * D. Stafford). */
static uint64_t scramble(uint64_t v) {
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

uint64_t rng_bits(rng *r) {
    /* The odd step is 2^64 divided by the golden ratio, so consecutive counters give distant values. */
    return scramble(scramble(r->seed + 1) + 0x9e3779b97f4a7c15u * ++r->counter);
}

double rng_uniform(rng *r) { return (double)(rng_bits(r) >> 16) * 0x1p-48; }

int64_t rng_below(rng *r, int64_t limit) { return (int64_t)(rng_bits(r) % (uint64_t)limit); }

double rng_normal(rng *r) {
    uint64_t sum = 0;
    for (int word = 0; word < 2; word++) {
        for (uint64_t bits = rng_bits(r); bits; bits >>= 16) {
            sum += bits & 0xffff;
        }
    }
    /* Eight uniforms on 0 .. 65535: mean 4 * 65535, standard deviation 65536 * sqrt(8 / 12). */
    return ((double)sum - 262140.0) * (1.0 / 53509.9);
}

/* a * b, rounded: a compiler that fuses it with a later sum would change the row. */
static double product(double a, double b) {
    volatile double p = a * b;
    return p;
}

const char *row_kind_name(row_kind kind) {
    static const char *const names[ROW_KINDS] = {"normal",     "offset",       "peaked",    "equal",      "ties",
                                                 "rising",     "falling",      "masked",    "extreme",    "any-finite",
                                                 "any-bits",   "subnormal",    "sprinkled", "near-zero",  "cancelling",
                                                 "flush-edge", "ten-thousand", "powers",    "all-masked", "one-left"};
    return (unsigned)kind < ROW_KINDS ? names[kind] : "unknown";
}

static double any_value(rng *r, napier_dtype dtype) {
    return dtype_value(dtype, rng_bits(r) >> (64 - 8 * napier_dtype_size(dtype)));
}

static double subnormal_value(rng *r, napier_dtype dtype) {
    const int fraction = dtype_precision(dtype) - 1;
    const double units = (double)(rng_bits(r) >> (64 - fraction));
    const double magnitude = ldexp(units, dtype_min_exponent(dtype) - fraction);
    return rng_bits(r) & 1 ? -magnitude : magnitude;
}

/* Converts to the dtype; finite values stay finite. */
static double fit(napier_dtype dtype, double value) {
    const double largest = dtype_largest(dtype);
    if (fabs(value) > largest && fabs(value) <= DBL_MAX) {
        return value < 0 ? -largest : largest;
    }
    return dtype_round(dtype, value);
}

static void fill_normal(rng *r, double *x, int64_t n, double scale, double offset) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = product(rng_normal(r), scale) + offset;
    }
}

static void fill_steps(double *x, int64_t n, double first, double step) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = first + product(step, (double)i);
    }
}

static void fill_ties(rng *r, double *x, int64_t n, double scale, double offset) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = floor(product(rng_normal(r), scale)) + offset;
    }
}

static void fill_masked(rng *r, double *x, int64_t n, napier_dtype dtype, double scale) {
    const double masks[] = {-HUGE_VAL, -1e9, -1e30, -dtype_largest(dtype), -65504.0};
    const double mask = masks[rng_below(r, 5)];
    for (int64_t i = 0; i < n; i++) {
        const double value = product(rng_normal(r), scale);
        x[i] = i == 0 || rng_uniform(r) < 0.7 ? mask : value;
    }
}

static void fill_extreme(rng *r, double *x, int64_t n, napier_dtype dtype) {
    const double largest = dtype_largest(dtype);
    for (int64_t i = 0; i < n; i++) {
        const double which = rng_uniform(r), normal = rng_normal(r);
        x[i] = which < 0.3 ? largest : which < 0.6 ? -largest : which < 0.8 ? normal : product(normal, largest / 32);
    }
}

/* Each statement makes one draw, because C leaves the order of two draws in one expression to the compiler. */
static void fill_sprinkled(rng *r, double *x, int64_t n) {
    const double odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL, -(double)NAN};
    fill_normal(r, x, n, 1.0, 0.0);
    const int64_t times = 1 + rng_below(r, 2);
    for (int64_t k = 0; n > 0 && k < times; k++) {
        const int64_t at = rng_below(r, n);
        x[at] = odd[rng_below(r, 4)];
    }
}

/* Values `depth` .. depth + 60 below a single maximum of 0. */
static void fill_below_zero(rng *r, double *x, int64_t n, double depth, double width) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = -depth - product(rng_uniform(r), width);
    }
    if (n > 0) {
        x[rng_below(r, n)] = 0;
    }
}

static void fill_cancelling(rng *r, double *x, int64_t n) {
    fill_normal(r, x, n, 3.0, 0.0);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] -= log(sum);
    }
}

static void fill_powers(rng *r, double *x, int64_t n, double scale) {
    const double sign = rng_bits(r) & 1 ? -1.0 : 1.0;
    const int exponent = 19 + (int)rng_below(r, 14);
    fill_normal(r, x, n, scale, ldexp(sign, exponent));
}

static void fill_one_left(rng *r, double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = -HUGE_VAL;
    }
    for (int k = 0; n > 0 && k < 2; k++) {
        const int64_t at = rng_below(r, n);
        x[at] = product(rng_normal(r), 20.0);
    }
}

static void fill_random_bits(rng *r, double *x, int64_t n, napier_dtype dtype, int only_finite) {
    for (int64_t i = 0; i < n; i++) {
        const double value = any_value(r, dtype);
        x[i] = only_finite && !isfinite(value) ? -HUGE_VAL : value;
    }
}

static void fill_signed_zeros(rng *r, double *x, int64_t n, int highest) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = rng_bits(r);
        const double size = (double)(bits >> 8 & 1023) / 128.0;
        x[i] = bits % 3 == 0 ? (bits & 16 ? -0.0 : 0.0) : highest || bits & 32 ? -size : size;
    }
}

void row_fill(row_kind kind, uint64_t seed, napier_dtype dtype, double *x, int64_t n) {
    static const double scales[] = {1e-3, 0.1, 1, 3, 10, 30, 60};
    static const double offsets[] = {1e4, -1e4, 1e6, -3e7, 2e9, -2.1e9, 1e30};
    rng r = rng_make(seed * ROW_KINDS + (uint64_t)kind);
    const double scale = scales[rng_below(&r, 7)], offset = offsets[rng_below(&r, 7)];
    switch (kind) {
    case ROW_NORMAL: fill_normal(&r, x, n, scale, 0.0); break;
    case ROW_OFFSET: fill_normal(&r, x, n, scale, offset); break;
    case ROW_PEAKED:
        fill_normal(&r, x, n, scale, 0.0);
        if (n > 0) {
            x[rng_below(&r, n)] = product(scale, 15.0);
        }
        break;
    case ROW_EQUAL: fill_steps(x, n, rng_bits(&r) & 1 ? offset : scale, 0.0); break;
    case ROW_TIES: fill_ties(&r, x, n, scale, rng_bits(&r) & 1 ? offset : 0.0); break;
    case ROW_RISING: fill_steps(x, n, rng_bits(&r) & 1 ? offset : -scale, 0.01 * scale); break;
    case ROW_FALLING: fill_steps(x, n, rng_bits(&r) & 1 ? offset : scale, -0.01 * scale); break;
    case ROW_MASKED: fill_masked(&r, x, n, dtype, scale); break;
    case ROW_EXTREME: fill_extreme(&r, x, n, dtype); break;
    case ROW_ANY_FINITE: fill_random_bits(&r, x, n, dtype, 1); break;
    case ROW_ANY_BITS: fill_random_bits(&r, x, n, dtype, 0); break;
    case ROW_SUBNORMAL:
        for (int64_t i = 0; i < n; i++) {
            x[i] = subnormal_value(&r, dtype);
        }
        break;
    case ROW_SPRINKLED: fill_sprinkled(&r, x, n); break;
    case ROW_NEAR_ZERO: fill_below_zero(&r, x, n, rng_bits(&r) & 1 ? 10.0 : 0.5, 60.0); break;
    case ROW_CANCELLING: fill_cancelling(&r, x, n); break;
    case ROW_FLUSH_EDGE: fill_below_zero(&r, x, n, 80.0, 60.0); break;
    case ROW_TEN_THOUSAND: fill_normal(&r, x, n, scale, rng_bits(&r) & 1 ? 1e4 : -1e4); break;
    case ROW_POWERS: fill_powers(&r, x, n, scale); break;
    case ROW_ALL_MASKED: fill_steps(x, n, -HUGE_VAL, 0.0); break;
    case ROW_SIGNED_ZEROS: fill_signed_zeros(&r, x, n, seed % 2 == 0); break;
    case ROW_ONE_LEFT:
    default: fill_one_left(&r, x, n); break;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = fit(dtype, x[i]);
    }
}

void row_fill_f32(row_kind kind, uint64_t seed, float *x, double *wide, int64_t n) {
    row_fill(kind, seed, NAPIER_F32, wide, n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)wide[i];
    }
}
