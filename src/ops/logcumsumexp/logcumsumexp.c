/* ops/logcumsumexp/logcumsumexp.c - logcumsumexp and its derivatives: each row in order, on one thread. */
#include <napier/logcumsumexp.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/logcumsumexp/prefix.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/softmax_split.h"

/* What backward keeps of the prefix that ends at an element. */
typedef struct kept_prefix {
    double max, sum; /* sum: of all exponentials, in units of 2^n of max */
} kept_prefix;

typedef struct job {
    napier_const_matrix logits, with; /* with: the gradient or the tangent */
    napier_matrix out;
    double temperature;
    bool wide;            /* the compute type is f64, otherwise f32 */
    kept_prefix *scratch; /* of backward: a row for each worker */
} job;

/* A logit over the temperature, rounded to the compute type. */
static double divided(const job *j, double x) {
    return j->wide ? x / j->temperature : (double)((float)x / (float)j->temperature);
}

/* A derivative, which is rounded when it is stored. */
static double over_temperature(const job *j, double x) {
    return x / (j->wide ? j->temperature : (double)(float)j->temperature);
}

static double load(napier_const_matrix m, int64_t row, int64_t col) {
    return napier_f64_load(m.data, m.dtype, row * m.row_stride + col * m.col_stride);
}

static void store(const job *j, int64_t row, int64_t col, double x) {
    const napier_matrix m = j->out;
    const double rounded = j->wide ? x : (double)(float)x;
    napier_f64_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, isnan(x) ? napier_f64_nan() : rounded);
}

static prefix empty_prefix(void) { return (prefix){{-HUGE_VAL, {0, 0, 0}}, {0, 0}}; }

/* The special value that the prefix has from this element on, or `special`, which it has already: 0, +inf or NaN. */
static double special_after(double special, double z) {
    return isnan(z) || isnan(special) ? napier_f64_nan() : z == HUGE_VAL ? z : special;
}

/* ---- The result --------------------------------------------------------------------------------------------------- */

static void forward_row(void *argument, int64_t row) {
    const job *const j = argument;
    prefix s = empty_prefix();
    double special = 0;
    for (int64_t col = 0; col < j->logits.cols; col++) {
        const double z = divided(j, load(j->logits, row, col));
        special = special_after(special, z);
        int64_t moved;
        if (special == 0 && z > -HUGE_VAL) {
            (void)prefix_take(&s, prefix_term_of(z), &moved);
        }
        store(j, row, col, special != 0 ? special : s.max.z == -HUGE_VAL ? s.max.z : prefix_log(&s));
    }
}

/* ---- Forward mode ------------------------------------------------------------------------------------------------- */

static void tangent_row(void *argument, int64_t row) {
    const job *const j = argument;
    prefix s = empty_prefix();
    napier_double2 total = {0, 0}; /* of exp(z) tangent, in the prefix's units */
    double special = 0;
    for (int64_t col = 0; col < j->logits.cols; col++) {
        const double z = divided(j, load(j->logits, row, col)), t = load(j->with, row, col);
        special = special_after(special, z);
        if (special == 0 && z > -HUGE_VAL) {
            const prefix_term term = prefix_term_of(z);
            int64_t moved;
            const int64_t shift = prefix_take(&s, term, &moved);
            const napier_double2 product = napier_two_product(term.parts.p, t);
            total = prefix_scaled2(total, moved);
            total = prefix_add(total, prefix_scaled(product.high, shift), prefix_scaled(product.low, shift));
        }
        const double mean = s.max.z == -HUGE_VAL ? 0.0 : (total.high + total.low) / prefix_sum(&s);
        store(j, row, col, special != 0 ? napier_f64_nan() : over_temperature(j, mean));
    }
}

/* ---- The gradient ------------------------------------------------------------------------------------------------- */

/* max -inf: only -inf so far; sum 0: NaN or +inf in the prefix. */
static void keep_prefixes(const job *j, int64_t row, kept_prefix *kept) {
    prefix s = empty_prefix();
    double special = 0;
    for (int64_t col = 0; col < j->logits.cols; col++) {
        const double z = divided(j, load(j->logits, row, col));
        special = special_after(special, z);
        int64_t moved;
        if (special == 0 && z > -HUGE_VAL) {
            (void)prefix_take(&s, prefix_term_of(z), &moved);
        }
        kept[col] = (kept_prefix){s.max.z, special != 0 ? 0.0 : s.max.z == -HUGE_VAL ? 1.0 : prefix_sum(&s)};
    }
}

/* From the last column to the first: total is the sum of gradient * exp(-lse), in units of 2^-n of the prefix's maximum, which
 * falls on the way. */
static void backward_row(const job *j, int64_t row, kept_prefix *kept) {
    keep_prefixes(j, row, kept);
    napier_double2 total = {0, 0};
    prefix_term unit = prefix_term_of(0);
    bool begun = false;
    for (int64_t col = j->logits.cols - 1; col >= 0; col--) {
        const kept_prefix k = kept[col];
        const double z = divided(j, load(j->logits, row, col)), g = load(j->with, row, col);
        if (k.max > -HUGE_VAL) {
            const prefix_term now = begun && k.max == unit.z ? unit : prefix_term_of(k.max);
            total = begun ? prefix_scaled2(total, prefix_shift(now, unit)) : total;
            unit = now;
            begun = true;
        }
        if (k.sum == 0 && g != 0) {
            total = (napier_double2){napier_f64_nan(), 0};
        } else if (k.sum > 0 && k.max > -HUGE_VAL) {
            total = prefix_add(total, g / k.sum, 0);
        }
        double result = 0;
        if (isnan(z) || isnan(total.high)) {
            result = napier_f64_nan();
        } else if (z > -HUGE_VAL && z < HUGE_VAL && k.max > -HUGE_VAL) {
            const prefix_term term = prefix_term_of(z);
            result = prefix_scaled(term.parts.p * (total.high + total.low), prefix_shift(term, unit));
        }
        store(j, row, col, over_temperature(j, result));
    }
}

static void backward_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const job *const j = argument;
    for (int64_t row = begin; row < end; row++) {
        backward_row(j, row, j->scratch + worker * j->logits.cols);
    }
}

/* ---- Calls -------------------------------------------------------------------------------------------------------- */

static bool is_empty(const job *j) { return j->logits.rows == 0 || j->logits.cols == 0; }

static int64_t chunk_of(const napier_context *context, const job *j) {
    return napier_row_chunk(context, j->logits.rows, j->logits.cols, 1);
}

napier_status napier_logcumsumexp(napier_context *context, napier_const_matrix logits, napier_matrix lse,
                                  const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_elementwise_arguments(context, "lse", logits, lse, options, &o));
    job j = {logits, logits, lse, o.temperature, napier_compute_dtype(logits.dtype, lse.dtype) == NAPIER_F64, NULL};
    NAPIER_MAY_STOP(context);
    if (!is_empty(&j)) {
        napier_parallel_each(context, logits.rows, chunk_of(context, &j), forward_row, &j);
    }
    return napier_stopped(context);
}

/* Checks the arguments of a derivative. */
static napier_status derivative_job(napier_context *context, const char *name, const char *out_name,
                                    napier_const_matrix logits, napier_const_matrix with, napier_matrix out,
                                    const napier_softmax_options *options, job *j) {
    const napier_dtype compute = napier_compute_dtype3(logits.dtype, with.dtype, out.dtype);
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", logits, NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
        NAPIER_ARGUMENT(out_name, napier_read_only(out), NAPIER_IS_OUT, logits.rows, logits.cols, "logits"),
        NAPIER_ARGUMENT(name, with, NAPIER_MAY_BE_OUT, logits.rows, logits.cols, "logits")};
    napier_softmax_options o;
    NAPIER_TRY(napier_softmax_arguments(context, all, 3, options, compute, &o));
    *j = (job){logits, with, out, o.temperature, compute == NAPIER_F64, NULL};
    return NAPIER_OK;
}

napier_status napier_logcumsumexp_tangent(napier_context *context, napier_const_matrix logits,
                                          napier_const_matrix tangent, napier_matrix tangent_lse,
                                          const napier_softmax_options *options) {
    job j;
    NAPIER_TRY(derivative_job(context, "tangent", "tangent_lse", logits, tangent, tangent_lse, options, &j));
    NAPIER_MAY_STOP(context);
    if (!is_empty(&j)) {
        napier_parallel_each(context, logits.rows, chunk_of(context, &j), tangent_row, &j);
    }
    return napier_stopped(context);
}

napier_status napier_logcumsumexp_backward(napier_context *context, napier_const_matrix logits,
                                           napier_const_matrix grad_lse, napier_matrix grad_logits,
                                           const napier_softmax_options *options) {
    job j;
    NAPIER_TRY(derivative_job(context, "grad_lse", "grad_logits", logits, grad_lse, grad_logits, options, &j));
    if (is_empty(&j)) {
        return NAPIER_OK;
    }
    const int64_t chunk = chunk_of(context, &j);
    const int workers = napier_workers(context, logits.rows, chunk);
    NAPIER_MEMORY(memory, context);
    NAPIER_REFUSE_IF(context, logits.cols > INT64_MAX / (int64_t)sizeof(kept_prefix),
                     "logits: %lld columns are too many", (long long)logits.cols);
    j.scratch = napier_take(&memory, workers, (size_t)logits.cols * sizeof(kept_prefix));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, logits.rows, chunk, backward_rows, &j);
    return napier_stopped(context);
}
