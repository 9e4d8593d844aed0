/* support/formats.h - bits and values of the four dtypes, written from the definition of each format. The library's
 * conversions are checked against it. */
#ifndef NAPIER_TESTS_FORMATS_H
#define NAPIER_TESTS_FORMATS_H

#include <napier/types.h>
#include <stdint.h>

uint32_t f32_bits(float value);
float f32_of_bits(uint32_t bits);
uint64_t f64_bits(double value);
double f64_of_bits(uint64_t bits);

/* The value of 16 bits; NaN for any NaN pattern. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);
/* The nearest value of the format: ties to even, overflow to infinity, NaN to the canonical NaN. */
uint16_t f16_nearest(double value);
uint16_t bf16_nearest(double value);

/* Functions of element `index` of an array: its value, its bits (zero-extended), and storing a value rounded once. */
double element_get(const void *data, napier_dtype dtype, int64_t index);
uint64_t element_bits(const void *data, napier_dtype dtype, int64_t index);
void element_set(void *data, napier_dtype dtype, int64_t index, double value);
/* Stores bits unchanged, also any NaN pattern. */
void element_set_bits(void *data, napier_dtype dtype, int64_t index, uint64_t bits);

/* `value` rounded to the dtype and back. */
double dtype_round(napier_dtype dtype, double value);
/* The bits of `value` rounded to the dtype. */
uint64_t dtype_bits(napier_dtype dtype, double value);
/* The value of these bits. */
double dtype_value(napier_dtype dtype, uint64_t bits);
/* The quiet NaN that the library promises. */
uint64_t dtype_canonical_nan(napier_dtype dtype);
/* The largest finite value. */
double dtype_largest(napier_dtype dtype);
/* The bits of the significand, including the leading one (24, 11, 8, 53), and the exponent of the smallest normal
 * number. */
int dtype_precision(napier_dtype dtype);
int dtype_min_exponent(napier_dtype dtype);

/* The compute type of a call with these dtypes: f64 if either is f64, else f32. */
napier_dtype compute_dtype(napier_dtype in, napier_dtype out);

enum { DTYPE_COUNT = 4 };
extern const napier_dtype all_dtypes[DTYPE_COUNT];

#endif
