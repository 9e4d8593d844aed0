/* support/formats.c - see formats.h. Rounding uses an exact quotient by the spacing of the format, and none of the
 * library's integer methods. */
#include "support/formats.h"

#include <float.h>
#include <math.h>
#include <string.h>

const napier_dtype all_dtypes[DTYPE_COUNT] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};

uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint64_t f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double f64_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A 16-bit format: one sign bit, `15 - fraction` exponent bits, `fraction` fraction bits. */
static double value_of_16(unsigned bits, int fraction) {
    const unsigned exponent_mask = (1u << (15 - fraction)) - 1;
    const int bias = (int)(exponent_mask >> 1);
    const unsigned exponent = bits >> fraction & exponent_mask, significand = bits & ((1u << fraction) - 1);
    double magnitude;
    if (exponent == exponent_mask) {
        magnitude = significand ? (double)NAN : HUGE_VAL;
    } else if (exponent == 0) {
        magnitude = ldexp((double)significand, 1 - bias - fraction);
    } else {
        magnitude = ldexp((double)(significand + (1u << fraction)), (int)exponent - bias - fraction);
    }
    return bits & 0x8000u ? -magnitude : magnitude;
}

static unsigned nearest_16(double value, int fraction) {
    const unsigned exponent_mask = (1u << (15 - fraction)) - 1;
    const int bias = (int)(exponent_mask >> 1);
    const unsigned infinity = exponent_mask << fraction, sign = signbit(value) ? 0x8000u : 0;
    if (isnan(value)) {
        return infinity | 1u << (fraction - 1);
    }
    const double magnitude = fabs(value);
    if (magnitude >= ldexp(1.0, bias + 1)) {
        return sign | infinity;
    }
    int exponent = 1 - bias; /* of the smallest normal number: subnormals share its spacing */
    if (magnitude >= ldexp(1.0, exponent)) {
        int e;
        (void)frexp(magnitude, &e);
        exponent = e - 1;
    }
    /* The quotient is exact. Ties go to even in any rounding mode, because the code does not add 2^52. */
    const double units = ldexp(magnitude, fraction - exponent), whole = floor(units), rest = units - whole;
    unsigned count = (unsigned)whole;
    if (rest > 0.5 || (rest >= 0.5 && (count & 1))) {
        count++;
    }
    /* A normal number's count contains the leading one, which adds 1 to the exponent field; a carry does the same. */
    return sign | (((unsigned)(exponent + bias - 1) << fraction) + count);
}

double f16_value(uint16_t bits) { return value_of_16(bits, 10); }

double bf16_value(uint16_t bits) { return value_of_16(bits, 7); }

uint16_t f16_nearest(double value) { return (uint16_t)nearest_16(value, 10); }

uint16_t bf16_nearest(double value) { return (uint16_t)nearest_16(value, 7); }

uint64_t element_bits(const void *data, napier_dtype dtype, int64_t index) {
    const size_t size = napier_dtype_size(dtype);
    const unsigned char *at = (const unsigned char *)data + index * (int64_t)size;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (size) {
    case sizeof u16: memcpy(&u16, at, sizeof u16); return u16;
    case sizeof u32: memcpy(&u32, at, sizeof u32); return u32;
    default: memcpy(&u64, at, sizeof u64); return u64;
    }
}

void element_set_bits(void *data, napier_dtype dtype, int64_t index, uint64_t bits) {
    const size_t size = napier_dtype_size(dtype);
    unsigned char *at = (unsigned char *)data + index * (int64_t)size;
    const uint16_t u16 = (uint16_t)bits;
    const uint32_t u32 = (uint32_t)bits;
    switch (size) {
    case sizeof u16: memcpy(at, &u16, sizeof u16); break;
    case sizeof u32: memcpy(at, &u32, sizeof u32); break;
    default: memcpy(at, &bits, sizeof bits); break;
    }
}

double dtype_value(napier_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case NAPIER_F32: return (double)f32_of_bits((uint32_t)bits);
    case NAPIER_F16: return f16_value((uint16_t)bits);
    case NAPIER_BF16: return bf16_value((uint16_t)bits);
    default: return f64_of_bits(bits);
    }
}

uint64_t dtype_bits(napier_dtype dtype, double value) {
    switch (dtype) {
    case NAPIER_F32: return f32_bits((float)value);
    case NAPIER_F16: return f16_nearest(value);
    case NAPIER_BF16: return bf16_nearest(value);
    default: return f64_bits(value);
    }
}

double element_get(const void *data, napier_dtype dtype, int64_t index) {
    return dtype_value(dtype, element_bits(data, dtype, index));
}

void element_set(void *data, napier_dtype dtype, int64_t index, double value) {
    element_set_bits(data, dtype, index, dtype_bits(dtype, value));
}

double dtype_round(napier_dtype dtype, double value) { return dtype_value(dtype, dtype_bits(dtype, value)); }

static const struct {
    uint64_t canonical_nan;
    double largest;
    int precision, min_exponent;
} formats[] = {[NAPIER_F32] = {0x7fc00000u, 0x1.fffffep127, 24, -126},
               [NAPIER_F16] = {0x7e00u, 65504.0, 11, -14},
               [NAPIER_BF16] = {0x7fc0u, 0x1.fep127, 8, -126},
               [NAPIER_F64] = {0x7ff8000000000000u, DBL_MAX, 53, -1022}};

uint64_t dtype_canonical_nan(napier_dtype dtype) { return formats[dtype].canonical_nan; }
double dtype_largest(napier_dtype dtype) { return formats[dtype].largest; }
int dtype_precision(napier_dtype dtype) { return formats[dtype].precision; }
int dtype_min_exponent(napier_dtype dtype) { return formats[dtype].min_exponent; }

napier_dtype compute_dtype(napier_dtype in, napier_dtype out) {
    return in == NAPIER_F64 || out == NAPIER_F64 ? NAPIER_F64 : NAPIER_F32;
}
