/* ops/softmax/options.h - reads and checks the options of the softmax calls, for f32 and f64 alike. */
#ifndef NAPIER_OPS_SOFTMAX_OPTIONS_H
#define NAPIER_OPS_SOFTMAX_OPTIONS_H

#include <napier/softmax.h>

#include "core/base/context.h"

/* *out becomes the caller's options, or the defaults for NULL. The temperature is rounded to `compute`, and must be
 * finite and above 0 there too. */
napier_status napier_softmax_options_read(napier_context *context, const napier_softmax_options *options,
                                          napier_dtype compute, napier_softmax_options *out);

/* x rounded to nearest even, subnormals kept, whatever the caller's floating-point state is. */
float napier_float_of(double x);

/* f64 if either is f64, otherwise f32. */
static inline napier_dtype napier_compute_dtype(napier_dtype in, napier_dtype out) {
    return in == NAPIER_F64 || out == NAPIER_F64 ? NAPIER_F64 : NAPIER_F32;
}
static inline napier_dtype napier_compute_dtype3(napier_dtype a, napier_dtype b, napier_dtype c) {
    return napier_compute_dtype(napier_compute_dtype(a, b), c);
}

#endif
