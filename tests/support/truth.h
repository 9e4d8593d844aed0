/* support/truth.h - a row's result against the oracle's truth, with the error bounds of napier/softmax.h. */
#ifndef NAPIER_TESTS_TRUTH_H
#define NAPIER_TESTS_TRUTH_H

#include "support/check.h"
#include "support/oracle.h"

/* A row with its truth and its name. */
typedef struct subject {
    const double *z; /* what the accuracy is about: x / T in the compute type */
    int64_t n;
    napier_dtype in, out;
    oracle_row truth;
    const char *name;
} subject;

/* `result` has the dtype `out`: n elements, or one of logsumexp. Reports at most one problem. */
void check_truth(operation op, const subject *s, const void *result);

#endif
