/* core/math/f64.h - exp, log and log1p in double precision, and conversions from and to double.
 *
 * The C library's functions differ between machines by an ulp. These use only +, -, *, /, fma and integers, one IEEE
 * operation at a time, so their bits are the same everywhere. Intermediate results are unevaluated sums of two doubles
 * ("double-double": T. J. Dekker, "A floating-point technique for extending the available precision", 1971), so that
 * little error remains besides the last rounding: exp errs by less than 0.54 ulp, log and log1p by less than 0.501. The
 * code prefers clarity to speed. Constants: tools/fit_f64.py. */
#ifndef NAPIER_CORE_MATH_F64_H
#define NAPIER_CORE_MATH_F64_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <napier/types.h>

#include "core/math/both.h"

/* Longer functions. On the CPU they are linked; each kernel of a GPU has its own copy. */
#if NAPIER_DEVICE_CODE
#define NAPIER_BOTH_LONG static __device__ inline
#else
#define NAPIER_BOTH_LONG
#endif

/* ---- Sums of two doubles: high is the sum rounded, low what that left out -------------------------------------- */

typedef struct napier_double2 {
    double high, low;
} napier_double2;

/* a + b exactly (Knuth). */
NAPIER_BOTH napier_double2 napier_two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return (napier_double2){sum, (a - (sum - part)) + (b - part)};
}

/* a + b exactly, where |a| >= |b| or a is 0 (Dekker). */
NAPIER_BOTH napier_double2 napier_fast_two_sum(double a, double b) {
    const double sum = a + b;
    return (napier_double2){sum, b - (sum - a)};
}

/* a * b exactly, where nothing underflows. */
NAPIER_BOTH napier_double2 napier_two_product(double a, double b) {
    const double product = a * b;
    return (napier_double2){product, fma(a, b, -product)};
}

/* ---- Bits ------------------------------------------------------------------------------------------------------ */

NAPIER_BOTH uint64_t napier_double_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

NAPIER_BOTH double napier_double_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The canonical quiet NaN. */
NAPIER_BOTH double napier_f64_nan(void) { return napier_double_of_bits(UINT64_C(0x7ff8000000000000)); }

/* 2^k, for -1022 <= k <= 1023. */
NAPIER_BOTH double napier_f64_power_of_two(int k) { return napier_double_of_bits((uint64_t)(k + 1023) << 52); }

/* ---- Functions ------------------------------------------------------------------------------------------------- */

/* exp(x) = (p + low) 2^n. p in [0.70, 1.42] is exp(x) 2^-n to 0.54 ulp, p + low to 2^-58. n is monotone: it never falls
 * when x rises. For |x| <= 2^62. */
typedef struct napier_f64_parts {
    double p, low;
    int64_t n;
} napier_f64_parts;

NAPIER_BOTH_LONG napier_f64_parts napier_f64_exp_parts(double x);

/* log(u.high + u.low) for finite u.high > 0, |u.low| no more than half an ulp of u.high; relative error below 2^-60. */
NAPIER_BOTH_LONG napier_double2 napier_f64_log_of_sum(napier_double2 u);

/* exp: overflow gives +inf; subnormal results are correctly rounded; NaN gives the canonical NaN.
 * log: 0 gives -inf; negative numbers and NaN give the canonical NaN. log1p: -1 gives -inf;
 * smaller numbers and NaN give the canonical NaN. */
NAPIER_BOTH_LONG double napier_f64_exp(double x);
NAPIER_BOTH_LONG double napier_f64_log(double x);
NAPIER_BOTH_LONG double napier_f64_log1p(double x);

/* ---- Conversions ----------------------------------------------------------------------------------------------- */

/* Exact; a NaN gives a NaN. */
NAPIER_BOTH_LONG double napier_f64_from_f16(uint16_t bits);
NAPIER_BOTH_LONG double napier_f64_from_bf16(uint16_t bits);

/* One rounding, to nearest even, subnormals kept; a NaN gives the canonical NaN. */
NAPIER_BOTH_LONG uint16_t napier_f64_to_f16(double x);
NAPIER_BOTH_LONG uint16_t napier_f64_to_bf16(double x);
NAPIER_BOTH_LONG float napier_f64_to_f32(double x);

/* Element `index` of an array of any dtype. */
NAPIER_BOTH_LONG double napier_f64_load(const void *data, napier_dtype dtype, int64_t index);
NAPIER_BOTH_LONG void napier_f64_store(void *data, napier_dtype dtype, int64_t index, double x);

#if NAPIER_DEVICE_CODE
#include "core/math/f64.inc.h"
#endif

#endif
