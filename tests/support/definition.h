/* support/definition.h - the order of docs/numerics.md for f32, in the plainest form: every tile is reduced by itself,
 * then the terms of the whole row are added as one 320-bit integer, in two passes over a row whose maximum is known.
 * The library merges states instead. test_reference.c shows that both give the same bits. Only log1p differs: here it
 * is libm's in long double, so logsumexp and log_softmax may differ in a last bit. */
#ifndef NAPIER_TESTS_DEFINITION_H
#define NAPIER_TESTS_DEFINITION_H

#include <stdint.h>

#include "support/oracle.h"

typedef struct definition_row {
    oracle_outcome outcome;
    float max, lse;
    float log_sum;    /* logsumexp - max */
    float max_prob;   /* softmax of the maximum */
    float scale;      /* softmax = term * scale */
    int64_t exponent; /* exp(max) = p * 2^exponent */
} definition_row;

definition_row definition_reduce(const float *z, int64_t n);
float definition_softmax(const definition_row *row, float z);
float definition_log_softmax(const definition_row *row, float z);

#endif
