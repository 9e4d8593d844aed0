/* support/oracle.c - see oracle.h. */
#include "support/oracle.h"

#include <math.h>
#include <mpfr.h>
#include <stdbool.h>
#include <stdlib.h>

#include "support/formats.h"

enum { ORACLE_BITS = 300 };

static oracle_outcome outcome_of(const double *z, int64_t n, double *max) {
    bool nan = false;
    *max = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        nan = nan || isnan(z[i]);
        *max = z[i] > *max ? z[i] : *max;
    }
    if (n == 0) {
        return ORACLE_EMPTY;
    }
    if (nan) {
        return ORACLE_NAN;
    }
    if (isinf(*max)) {
        return *max > 0 ? ORACLE_PLUS_INF : ORACLE_ALL_MASKED;
    }
    return ORACLE_FINITE;
}

oracle_row oracle_reduce(const double *z, int64_t n) {
    oracle_row row = {ORACLE_FINITE, 0, 0, 0, 0, 0};
    double max;
    row.outcome = outcome_of(z, n, &max);
    row.max = (long double)max;
    if (row.outcome != ORACLE_FINITE) {
        return row;
    }
    long double rest = 0; /* the terms of all but the maxima: kept apart because it may be tiny compared with 1 */
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (z[i] < max) {
            rest += expl((long double)z[i] - row.max);
        } else {
            count++;
        }
    }
    row.sum = (long double)count + rest;
    row.log_sum = log1pl((long double)(count - 1) + rest);
    row.lse = row.max + row.log_sum;
    row.mass = rest / row.sum;
    return row;
}

oracle_row oracle_reduce_mpfr(const double *z, int64_t n) {
    static bool cleans_up;
    if (!cleans_up) {
        cleans_up = atexit(mpfr_free_cache) == 0; /* else MPFR's constants count as leaks */
    }
    oracle_row row = {ORACLE_FINITE, 0, 0, 0, 0, 0};
    double max;
    row.outcome = outcome_of(z, n, &max);
    row.max = (long double)max;
    if (row.outcome != ORACLE_FINITE) {
        return row;
    }
    mpfr_t rest, term, total;
    mpfr_inits2(ORACLE_BITS, rest, term, total, (mpfr_ptr)0);
    mpfr_set_zero(rest, 1);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (z[i] < max) {
            mpfr_set_d(term, z[i], MPFR_RNDN);
            mpfr_sub_d(term, term, max, MPFR_RNDN);
            mpfr_exp(term, term, MPFR_RNDN);
            mpfr_add(rest, rest, term, MPFR_RNDN);
        } else {
            count++;
        }
    }
    mpfr_add_si(total, rest, (long)count, MPFR_RNDN);
    row.sum = mpfr_get_ld(total, MPFR_RNDN);
    mpfr_div(term, rest, total, MPFR_RNDN);
    row.mass = mpfr_get_ld(term, MPFR_RNDN);
    mpfr_add_si(term, rest, (long)(count - 1), MPFR_RNDN);
    mpfr_log1p(term, term, MPFR_RNDN);
    row.log_sum = mpfr_get_ld(term, MPFR_RNDN);
    mpfr_add_d(term, term, max, MPFR_RNDN);
    row.lse = mpfr_get_ld(term, MPFR_RNDN);
    mpfr_clears(rest, term, total, (mpfr_ptr)0);
    return row;
}

long double oracle_log_softmax(const oracle_row *row, double z) { return ((long double)z - row->max) - row->log_sum; }

long double oracle_softmax(const oracle_row *row, double z) { return expl((long double)z - row->max) / row->sum; }

long double dtype_ulp(napier_dtype dtype, long double value) {
    const int precision = dtype_precision(dtype), lowest = dtype_min_exponent(dtype);
    int exponent = lowest;
    if (isfinite(value) && fabsl(value) >= ldexpl(1.0L, lowest)) {
        (void)frexpl(value, &exponent);
        exponent--;
    }
    return ldexpl(1.0L, exponent - precision + 1);
}

/* delta of napier/softmax.h: 3.6 for the terms, tile / lanes = 4 for the sum in a lane, 8 for the folding. */
static long double delta_of(napier_dtype compute) { return ldexpl(15.6L, -dtype_precision(compute)); }

/* The error of rounding the compute type's result to a narrower type: half a spacing. */
static long double narrowing(long double truth, napier_dtype compute, napier_dtype out) {
    return out == compute ? 0 : dtype_ulp(out, truth) / 2 * 1.0001L;
}

long double oracle_log_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out) {
    return dtype_ulp(compute, truth) + delta_of(compute) * row->mass + narrowing(truth, compute, out);
}

long double oracle_log_softmax_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out) {
    return oracle_log_bound(row, truth, compute, out) + dtype_ulp(compute, truth) / 2;
}

long double oracle_softmax_bound(const oracle_row *row, long double truth, napier_dtype compute, napier_dtype out) {
    return 4 * dtype_ulp(compute, truth) + delta_of(compute) * row->mass * truth + narrowing(truth, compute, out);
}

bool oracle_within(double got, long double truth, long double bound, napier_dtype out) {
    if (isnan(got)) {
        return false;
    }
    if (isinf(got)) {
        const long double largest = (long double)dtype_largest(out);
        const long double overflow = largest + dtype_ulp(out, largest) / 2 - bound;
        return got > 0 ? truth >= overflow : truth <= -overflow;
    }
    return fabsl((long double)got - truth) <= bound;
}

void divide_by_temperature(const double *x, double *z, int64_t n, double temperature, napier_dtype compute) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = compute == NAPIER_F64 ? x[i] / temperature : (double)((float)x[i] / (float)temperature);
    }
}
