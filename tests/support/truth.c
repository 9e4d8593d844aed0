/* support/truth.c - see truth.h. */
#include "support/truth.h"

#include <math.h>

#include "support/formats.h"

#define SUBJECT_FORMAT "%s, %lld columns, %s to %s: "
#define SUBJECT_VALUES(s) (s)->name, (long long)(s)->n, napier_dtype_name((s)->in), napier_dtype_name((s)->out)

static void check_lse(const subject *s, const void *lse) {
    const double got = element_get(lse, s->out, 0);
    const uint64_t bits = element_bits(lse, s->out, 0);
    switch (s->truth.outcome) {
    case ORACLE_NAN:
        expect(bits == dtype_canonical_nan(s->out), SUBJECT_FORMAT "logsumexp is %#llx, not the canonical NaN",
               SUBJECT_VALUES(s), (unsigned long long)bits);
        return;
    case ORACLE_PLUS_INF:
        expect(isinf(got) && got > 0, SUBJECT_FORMAT "logsumexp is %g, not +inf", SUBJECT_VALUES(s), got);
        return;
    case ORACLE_EMPTY:
    case ORACLE_ALL_MASKED:
        expect(isinf(got) && got < 0, SUBJECT_FORMAT "logsumexp is %g, not -inf", SUBJECT_VALUES(s), got);
        return;
    default: break;
    }
    const long double bound = oracle_log_bound(&s->truth, s->truth.lse, compute_dtype(s->in, s->out), s->out);
    expect(oracle_within(got, s->truth.lse, bound, s->out),
           SUBJECT_FORMAT "logsumexp is %.17g (%#llx), truth %.21Lg, off by %.3Lg, bound %.3Lg", SUBJECT_VALUES(s), got,
           (unsigned long long)bits, s->truth.lse, (long double)got - s->truth.lse, bound);
}

/* Each element, that none is above the maximum's, and that probabilities add up to 1. */
static void check_elements(operation op, const subject *s, const void *result) {
    const bool probs = op == OP_SOFTMAX;
    const napier_dtype compute = compute_dtype(s->in, s->out);
    double at_max = 0;
    for (int64_t i = 0; i < s->n; i++) {
        at_max = (long double)s->z[i] >= s->truth.max ? element_get(result, s->out, i) : at_max;
    }
    long double sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double got = element_get(result, s->out, i);
        const long double truth = (probs ? oracle_softmax : oracle_log_softmax)(&s->truth, s->z[i]);
        const long double bound =
            (probs ? oracle_softmax_bound : oracle_log_softmax_bound)(&s->truth, truth, compute, s->out);
        sum += (long double)got;
        const bool right = !isinf(s->z[i]) ? oracle_within(got, truth, bound, s->out)
                           : probs         ? got == 0
                                           : isinf(got) && got < 0;
        if (!expect(right && (probs ? got >= 0 && got <= at_max : got <= 0),
                    SUBJECT_FORMAT "%s[%lld] of %a is %.17g (%#llx), truth %.21Lg, off by %.3Lg, bound %.3Lg, the "
                                   "maximum's %.9g",
                    SUBJECT_VALUES(s), operation_name(op), (long long)i, s->z[i], got,
                    (unsigned long long)element_bits(result, s->out, i), truth, (long double)got - truth, bound,
                    at_max)) {
            return;
        }
    }
    if (probs && s->n > 0 && (s->out == NAPIER_F32 || s->out == NAPIER_F64)) {
        const long double limit = compute == NAPIER_F32 || s->out == NAPIER_F32 ? 3e-7L : 1e-15L;
        expect(fabsl(sum - 1) <= limit, SUBJECT_FORMAT "probabilities add up to 1 %+.3Lg", SUBJECT_VALUES(s), sum - 1);
    }
}

static void check_nan_row(operation op, const subject *s, const void *result) {
    for (int64_t i = 0; i < s->n; i++) {
        const uint64_t bits = element_bits(result, s->out, i);
        if (!expect(bits == dtype_canonical_nan(s->out), SUBJECT_FORMAT "%s[%lld] is %#llx, not the canonical NaN",
                    SUBJECT_VALUES(s), operation_name(op), (long long)i, (unsigned long long)bits)) {
            return;
        }
    }
}

void check_truth(operation op, const subject *s, const void *result) {
    if (op == OP_LOGSUMEXP || op == OP_LOGSUMEXP_ALL) {
        check_lse(s, result);
    } else if (s->truth.outcome == ORACLE_FINITE) {
        check_elements(op, s, result);
    } else {
        check_nan_row(op, s, result);
    }
}
