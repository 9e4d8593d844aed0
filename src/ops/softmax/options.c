/* ops/softmax/options.c - the options of the softmax calls. */
#include "ops/softmax/options.h"

#include <float.h>
#include <stdbool.h>

#include "core/base/fenv.h"
#include "core/base/struct_size.h"

float napier_float_of(double x) {
    const napier_fenv caller = napier_fenv_enter();
    const volatile double exact = x; /* volatile: the compiler must not move the conversion out of the two calls */
    const volatile float rounded = (float)exact;
    napier_fenv_leave(caller);
    return rounded;
}

/* Rounds the temperature to the compute type, and tests that it is finite and above 0 there. The default state is
 * needed because a subnormal temperature is not 0. */
static bool napier_temperature_survives(double *temperature, napier_dtype compute) {
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
    const napier_status status = napier_read_options(context, "options", "NAPIER_SOFTMAX_OPTIONS_INIT", options, out);
    if (status) {
        return status;
    }
    if (!napier_temperature_survives(&out->temperature, compute)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: temperature %g is not finite and above 0 in %s",
                           out->temperature, napier_dtype_name(compute));
    }
    if ((unsigned)out->algorithm > NAPIER_ALGORITHM_PARALLEL) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: algorithm %d is unknown", (int)out->algorithm);
    }
    if ((unsigned)out->masked_rows > NAPIER_MASKED_ZERO) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: masked_rows %d is unknown",
                           (int)out->masked_rows);
    }
    return NAPIER_OK;
}
