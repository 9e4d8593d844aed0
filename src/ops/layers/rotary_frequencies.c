/* ops/layers/rotary_frequencies.c - the frequencies of rotary position embedding, with the scalings of long contexts.
 *
 * Definitions and roundings follow transformers' modeling_rope_utils: f32 where it has tensors, double where it has
 * Python's numbers. Powers and logarithms are computed in double. */
#include <inttypes.h>
#include <math.h>
#include <napier/layers.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/layers/rotary_angles.h"

#define TWO_PI 0x1.921fb54442d18p+2

typedef napier_rotary_options rotary;

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static napier_status check_at_least(napier_context *context, const char *name, double x, double least) {
    NAPIER_REFUSE_IF(context, !(isfinite(x) && x >= least), "%s: %g is not finite and at least %g", name, x, least);
    return NAPIER_OK;
}

static napier_status check_above(napier_context *context, const char *name, double x, double low) {
    NAPIER_REFUSE_IF(context, !(isfinite(x) && x > low), "%s: %g is not finite and above %g", name, x, low);
    return NAPIER_OK;
}

static napier_status check_original(napier_context *context, const rotary *o) {
    NAPIER_REFUSE_IF(context, o->original_max_position_embeddings < 1,
                     "original_max_position_embeddings: %" PRId64 " is less than 1",
                     o->original_max_position_embeddings);
    return NAPIER_OK;
}

static napier_status check_llama3(napier_context *context, const rotary *o) {
    NAPIER_TRY(check_original(context, o));
    NAPIER_TRY(check_above(context, "low_freq_factor", o->low_freq_factor, 0.0));
    return check_above(context, "high_freq_factor", o->high_freq_factor, o->low_freq_factor);
}

static napier_status check_yarn(napier_context *context, const rotary *o) {
    NAPIER_TRY(check_original(context, o));
    NAPIER_TRY(check_above(context, "theta", o->theta, 1.0));
    NAPIER_TRY(check_above(context, "beta_fast", o->beta_fast, 0.0));
    NAPIER_TRY(check_above(context, "beta_slow", o->beta_slow, 0.0));
    NAPIER_TRY(check_at_least(context, "mscale", o->mscale, 0.0));
    NAPIER_TRY(check_at_least(context, "mscale_all_dim", o->mscale_all_dim, 0.0));
    return check_at_least(context, "attention_factor", o->attention_factor, 0.0);
}

static napier_status check_options(napier_context *context, const rotary *o) {
    NAPIER_TRY(check_at_least(context, "theta", o->theta, 0.25));
    switch (o->scaling) {
    case NAPIER_ROTARY_DEFAULT: return NAPIER_OK;
    case NAPIER_ROTARY_LINEAR: return check_at_least(context, "factor", o->factor, 1.0);
    case NAPIER_ROTARY_LLAMA3:
        NAPIER_TRY(check_at_least(context, "factor", o->factor, 1.0));
        return check_llama3(context, o);
    case NAPIER_ROTARY_YARN:
        NAPIER_TRY(check_at_least(context, "factor", o->factor, 1.0));
        return check_yarn(context, o);
    default: return napier_fail(context, NAPIER_INVALID_ARGUMENT, "scaling: %" PRId64 " is not a scaling", o->scaling);
    }
}

/* ---- Frequencies ------------------------------------------------------------------------------------------------- */

/* theta^(2 i / dim) */
static float power(double log_theta, int64_t i, int64_t half) {
    const float exponent = (float)(2 * i) / (float)(2 * half);
    return (float)napier_f64_exp((double)exponent * log_theta);
}

/* A wavelength is the number of positions of one turn. */
static float llama3(const rotary *o, float inverse) {
    const double original = (double)o->original_max_position_embeddings;
    const float wavelength = (float)TWO_PI / inverse, factor = (float)o->factor;
    if (wavelength < (float)(original / o->high_freq_factor)) {
        return inverse;
    }
    if (wavelength > (float)(original / o->low_freq_factor)) {
        return inverse / factor;
    }
    const float smooth =
        ((float)original / wavelength - (float)o->low_freq_factor) / (float)(o->high_freq_factor - o->low_freq_factor);
    return (1.0f - smooth) * inverse / factor + smooth * inverse;
}

/* ---- YaRN -------------------------------------------------------------------------------------------------------- */

/* Dimensions below low turn often enough to keep their frequency; those above high get it divided by the factor. */
typedef struct ramp {
    double low, high;
} ramp;

/* The dimension that makes so many turns in the original context. */
static double dimension_of(const rotary *o, double turns, int64_t dim) {
    const double original = (double)o->original_max_position_embeddings;
    return (double)dim * napier_f64_log(original / (turns * TWO_PI)) / (2.0 * napier_f64_log(o->theta));
}

static ramp ramp_of(const rotary *o, int64_t dim) {
    ramp r = {dimension_of(o, o->beta_fast, dim), dimension_of(o, o->beta_slow, dim)};
    if (o->truncate) {
        r.low = floor(r.low);
        r.high = ceil(r.high);
    }
    r.low = r.low > 0.0 ? r.low : 0.0;
    r.high = r.high < (double)(dim - 1) ? r.high : (double)(dim - 1);
    r.high += r.high == r.low ? 0.001 : 0.0; /* the ramp divides by the difference */
    return r;
}

static float yarn(const rotary *o, ramp r, int64_t i, float power_i) {
    const float at = ((float)i - (float)r.low) / (float)(r.high - r.low);
    const float stretched = at < 0.0f ? 0.0f : at > 1.0f ? 1.0f : at, kept = 1.0f - stretched;
    return 1.0f / ((float)o->factor * power_i) * (1.0f - kept) + 1.0f / power_i * kept;
}

static double mscale_of(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * napier_f64_log(factor) + 1.0;
}

static double yarn_scale(const rotary *o) {
    if (o->attention_factor > 0.0) {
        return o->attention_factor;
    }
    if (o->mscale > 0.0 && o->mscale_all_dim > 0.0) {
        return mscale_of(o->factor, o->mscale) / mscale_of(o->factor, o->mscale_all_dim);
    }
    return mscale_of(o->factor, 1.0);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static float frequency(const rotary *o, ramp r, double log_theta, int64_t i, int64_t half) {
    const float power_i = power(log_theta, i, half);
    switch (o->scaling) {
    case NAPIER_ROTARY_LINEAR: return 1.0f / power_i / (float)o->factor;
    case NAPIER_ROTARY_LLAMA3: return llama3(o, 1.0f / power_i);
    case NAPIER_ROTARY_YARN: return yarn(o, r, i, power_i);
    default: return 1.0f / power_i;
    }
}

napier_status napier_rotary_frequencies(napier_context *context, const napier_rotary_options *options,
                                        napier_vector inverse, double *scale) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_rotary_options, NAPIER_ROTARY_OPTIONS_INIT, truncate), options, &o));
    NAPIER_REFUSE_IF(context, !scale, "scale: NULL");
    const napier_argument argument =
        napier_row_argument("inverse", napier_read_only_vector(inverse), NAPIER_IS_OUT | NAPIER_IS_F32, inverse.size);
    NAPIER_TRY(napier_check_arguments(context, &argument, 1));
    NAPIER_REFUSE_IF(context, inverse.size > NAPIER_ROTARY_FREQUENCIES, "inverse: size %" PRId64 " is above 2^24",
                     inverse.size);
    NAPIER_TRY(check_options(context, &o));
    const double log_theta = napier_f64_log(o.theta);
    const bool is_yarn = o.scaling == NAPIER_ROTARY_YARN;
    const ramp r = is_yarn ? ramp_of(&o, 2 * inverse.size) : (ramp){0.0, 0.0};
    const double factor = is_yarn ? yarn_scale(&o) : 1.0;
    NAPIER_REFUSE_IF(context, !isfinite(factor),
                     "options: mscale %g and mscale_all_dim %g give a factor of cosines that is %g", o.mscale,
                     o.mscale_all_dim, factor);
    for (int64_t i = 0; i < inverse.size; i++) {
        const float f = frequency(&o, r, log_theta, i, inverse.size);
        NAPIER_REFUSE_IF(context, !isfinite(f), "options: frequency %" PRId64 " of them is %g", i, (double)f);
    }
    for (int64_t i = 0; i < inverse.size; i++) {
        ((float *)inverse.data)[i * inverse.stride] = frequency(&o, r, log_theta, i, inverse.size);
    }
    *scale = factor;
    return NAPIER_OK;
}
