/* ops/softmax/arguments.c - see arguments.h. */
#include "ops/softmax/arguments.h"

#include <float.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"

/* By its bits, because a comparison may raise a flag of the caller's floating-point state. Setting that state takes longer
 * than anything else here, and the default temperature needs no rounding. */
static bool is_one(double x) {
    const double one = 1.0;
    return memcmp(&x, &one, sizeof x) == 0;
}

float napier_float_of(double x) {
    if (is_one(x)) {
        return 1.0f;
    }
    const napier_fenv caller = napier_fenv_enter();
    const volatile double exact = x; /* volatile: the compiler must not move the conversion out of the two calls */
    const volatile float rounded = (float)exact;
    napier_fenv_leave(caller);
    return rounded;
}

/* Rounds the temperature to the compute type, and tests that it is finite and above 0 there. The default state is
 * needed because a subnormal temperature is not 0. */
static bool temperature_survives(double *temperature, napier_dtype compute) {
    if (is_one(*temperature)) {
        return true;
    }
    const napier_fenv caller = napier_fenv_enter();
    const volatile double exact = *temperature;
    const volatile float single = (float)exact;
    const volatile double rounded = compute == NAPIER_F64 ? exact : (double)single;
    const volatile bool survives = rounded > 0 && rounded <= DBL_MAX;
    *temperature = survives ? rounded : exact;
    napier_fenv_leave(caller);
    return survives;
}

napier_status napier_softmax_options_read(napier_context *context, const napier_softmax_options *options,
                                          napier_dtype compute, napier_softmax_options *out) {
    *out = (napier_softmax_options)NAPIER_SOFTMAX_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_softmax_options, NAPIER_SOFTMAX_OPTIONS_INIT, algorithm),
                                   options, out));
    NAPIER_REFUSE_IF(context, !temperature_survives(&out->temperature, compute),
                     "options: temperature %g is not finite and above 0 in %s", out->temperature,
                     napier_dtype_name(compute));
    NAPIER_REFUSE_IF(context, (unsigned)out->algorithm > NAPIER_ALGORITHM_PARALLEL, "options: algorithm %d is unknown",
                     (int)out->algorithm);
    NAPIER_REFUSE_IF(context, (unsigned)out->masked_rows > NAPIER_MASKED_ZERO, "options: masked_rows %d is unknown",
                     (int)out->masked_rows);
    return NAPIER_OK;
}

napier_status napier_softmax_arguments(napier_context *context, const napier_argument *all, size_t count,
                                       const napier_softmax_options *options, napier_dtype compute,
                                       napier_softmax_options *o) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_softmax_options_read(context, options, compute, o));
    return napier_check_arguments(context, all, count);
}

napier_status napier_elementwise_arguments(napier_context *context, const char *name, napier_const_matrix logits,
                                           napier_matrix result, const napier_softmax_options *options,
                                           napier_softmax_options *o) {
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", logits, NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
        NAPIER_ARGUMENT(name, napier_read_only(result), NAPIER_IS_OUT, logits.rows, logits.cols, "logits")};
    return napier_softmax_arguments(context, all, 2, options, napier_compute_dtype(logits.dtype, result.dtype), o);
}

napier_status napier_logsumexp_arguments(napier_context *context, napier_const_matrix logits, napier_vector lse,
                                         int64_t size, const napier_softmax_options *options,
                                         napier_softmax_options *o) {
    const napier_argument all[] = {NAPIER_ARGUMENT("logits", logits, NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
                                   napier_column_argument("lse", napier_read_only_vector(lse), NAPIER_IS_OUT, size)};
    return napier_softmax_arguments(context, all, 2, options, napier_compute_dtype(logits.dtype, lse.dtype), o);
}

napier_status napier_gradient_arguments(napier_context *context, const char *result_name, napier_const_matrix result,
                                        const char *grad_name, const napier_const_matrix *grad, napier_matrix out,
                                        const napier_softmax_options *options, napier_dtype compute,
                                        napier_softmax_options *o) {
    const napier_argument all[] = {
        NAPIER_ARGUMENT(result_name, result, NAPIER_MAY_BE_OUT, result.rows, result.cols, NULL),
        NAPIER_ARGUMENT("grad_logits", napier_read_only(out), NAPIER_IS_OUT, result.rows, result.cols, result_name),
        NAPIER_ARGUMENT(grad_name, grad ? *grad : result, NAPIER_MAY_BE_OUT, result.rows, result.cols, result_name)};
    return napier_softmax_arguments(context, all, grad ? 3 : 2, options, compute, o);
}

napier_status napier_dot_arguments(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                   napier_vector dots) {
    const napier_argument all[] = {
        NAPIER_ARGUMENT("a", a, 0, a.rows, a.cols, NULL), NAPIER_ARGUMENT("b", b, 0, a.rows, a.cols, "a"),
        napier_column_argument("dots", napier_read_only_vector(dots), NAPIER_IS_OUT, a.rows)};
    NAPIER_TRY(napier_begin(context));
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

/* The gradient of a logsumexp is the softmax times a factor per row. The gradient of a masked row is 0. */
napier_status napier_logsumexp_gradient_arguments(napier_context *context, napier_const_matrix logits,
                                                  napier_const_vector grad_lse, int64_t size, napier_matrix grad_logits,
                                                  const napier_softmax_options *options, napier_dtype compute,
                                                  napier_softmax_options *o) {
    const napier_argument all[] = {NAPIER_ARGUMENT("logits", logits, NAPIER_MAY_BE_OUT, logits.rows, logits.cols, NULL),
                                   NAPIER_ARGUMENT("grad_logits", napier_read_only(grad_logits), NAPIER_IS_OUT,
                                                   logits.rows, logits.cols, "logits"),
                                   napier_row_argument("grad_lse", grad_lse, NAPIER_MAY_BE_OUT, size)};
    const napier_status status = napier_softmax_arguments(context, all, 3, options, compute, o);
    o->masked_rows = NAPIER_MASKED_ZERO;
    return status;
}
