/* bench/workers/napier_softmax.c - softmax, log_softmax and logsumexp, along the last axis or the first. */
#include "napier_cases.h"

#include <stddef.h>

typedef enum { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP, LOGSUMEXP_ALL } operation;

static operation op;
static napier_const_matrix input;
static napier_matrix output;  /* of softmax and log_softmax */
static napier_vector numbers; /* of logsumexp, one a row or one for all */

static napier_status call(void) {
    switch (op) {
    case SOFTMAX: return napier_softmax(context, input, output, NULL);
    case LOG_SOFTMAX: return napier_log_softmax(context, input, output, NULL);
    case LOGSUMEXP: return napier_logsumexp(context, input, numbers, NULL);
    default: return napier_logsumexp_all(context, input, numbers, NULL);
    }
}

static const char *set_up(const bench_case *const self) {
    const napier_dtype dtype = job_dtype();
    const size_t item = napier_dtype_size(dtype);
    const int64_t rows = bench_number("rows"), cols = bench_number("cols");
    op = (operation)(self - softmax_cases);
    const int64_t results = op == LOGSUMEXP ? rows : op == LOGSUMEXP_ALL ? 1 : rows * cols;
    const void *const in = bench_input("input");
    void *const out = bench_result("result", (size_t)results * item);
    if (!in || !out) {
        return "no memory";
    }
    input = napier_const_rows(in, rows, cols, dtype);
    output = napier_rows(out, rows, cols, dtype);
    if (bench_is("axis", "first")) {
        input = napier_const_transposed(napier_const_rows(in, cols, rows, dtype));
        output = napier_transposed(napier_rows(out, cols, rows, dtype));
    }
    numbers = napier_array(out, results, dtype);
    const char *const refusal = refusal_of(call());
    if (!refusal) {
        choose_floor_row(op == SOFTMAX       ? FLOOR_SOFTMAX
                         : op == LOG_SOFTMAX ? FLOOR_LOG_SOFTMAX
                                             : FLOOR_LOGSUMEXP,
                         dtype);
        choose_floors(in, out, (size_t)rows, (size_t)cols * item, (size_t)results * item, op <= LOG_SOFTMAX);
    }
    return refusal;
}

static unsigned run(const int variant) {
    (void)variant;
    (void)bench_result("result", 0);
    return (unsigned)call();
}

#define VARIANTS \
    { "napier", "floor_memory", "floor_read", "floor_exp", "floor_row" }
const bench_case softmax_cases[] = {
    [SOFTMAX] = {"softmax", set_up, run, VARIANTS},
    [LOG_SOFTMAX] = {"log_softmax", set_up, run, VARIANTS},
    [LOGSUMEXP] = {"logsumexp", set_up, run, VARIANTS},
    [LOGSUMEXP_ALL] = {"logsumexp_all", set_up, run, VARIANTS},
    {.name = NULL},
};
