/* support/oracle.h - reference results in long double (64 significant bits or more) and in MPFR (300 bits), and the
 * error bounds that napier/softmax.h promises. */
#ifndef NAPIER_TESTS_ORACLE_H
#define NAPIER_TESTS_ORACLE_H

#include <napier/softmax.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum oracle_outcome {
    ORACLE_FINITE,
    ORACLE_EMPTY,
    ORACLE_ALL_MASKED, /* only -inf */
    ORACLE_PLUS_INF,
    ORACLE_NAN
} oracle_outcome;

/* A row z (logits already divided by the temperature), reduced. */
typedef struct oracle_row {
    oracle_outcome outcome;
    long double max;
    long double log_sum; /* log(sum exp(z - max)) */
    long double lse;     /* max + log_sum */
    long double sum;     /* sum exp(z - max), 1 or more */
    long double mass;    /* the share of the elements that differ from the maximum: 1 - p_max */
} oracle_row;

oracle_row oracle_reduce(const double *z, int64_t n);
/* Computes the same with MPFR. Every field except `sum` is rounded only at the end, so cancellation loses no accuracy. */
oracle_row oracle_reduce_mpfr(const double *z, int64_t n);

long double oracle_log_softmax(const oracle_row *row, double z);
long double oracle_softmax(const oracle_row *row, double z);

/* The spacing of the dtype's numbers at |value|. */
long double dtype_ulp(napier_dtype dtype, long double value);

/* The bound of the header for |result - truth|: computed in `compute`, then rounded once to `out`. */
long double oracle_log_softmax_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out);
long double oracle_log_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out);
long double oracle_softmax_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out);

/* Whether `got` is within `bound` of `truth`. An infinity is right if the truth overflows the dtype. */
bool oracle_within(double got, long double truth, long double bound, napier_dtype out);

/* z = x / T, rounded once to the compute type, which is the definition of the temperature. x and z may be the same
 * array. */
void divide_by_temperature(const double *x, double *z, int64_t n, double temperature, napier_dtype compute);

#endif
