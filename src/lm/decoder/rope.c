/* lm/decoder/rope.c - see rope.h. */
#include "lm/decoder/rope.h"

#include <math.h>

#include "core/math/f64.h"

/* pi / 2 in three parts of 53 bits. For less than 2^26 quarter turns, x - n PI_2_A is exact: it is a multiple of 2^-52
 * and below 1. */
#define PI_2_A 0x1.921fb54442d18p+0
#define PI_2_B 0x1.1a62633145c07p-54
#define PI_2_C -0x1.f1976b7ed8fbcp-110
#define TURNS_PER_UNIT 0x1.45f306dc9c883p-1 /* 2 / pi */
#define ROUND_MAGIC 0x1.8p52

/* Taylor's series on [-pi/4, pi/4], highest power first. The omitted terms are below 2^-57. */
static const double sine_terms[] = {
    1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
    1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
static const double cosine_terms[] = {1.0 / 20922789888000.0,
                                      -1.0 / 87178291200.0,
                                      1.0 / 479001600.0,
                                      -1.0 / 3628800.0,
                                      1.0 / 40320.0,
                                      -1.0 / 720.0,
                                      1.0 / 24.0,
                                      -0.5,
                                      1.0};

static double series(double s, const double *terms, size_t count) {
    double p = terms[0];
    for (size_t i = 1; i < count; i++) {
        p = fma(p, s, terms[i]);
    }
    return p;
}

void napier_cos_sin(double x, double *cosine, double *sine) {
    const double n = fma(x, TURNS_PER_UNIT, ROUND_MAGIC) - ROUND_MAGIC;
    double r = fma(-n, PI_2_A, x);
    r = fma(-n, PI_2_B, r);
    r = fma(-n, PI_2_C, r);
    const double square = r * r;
    const double s = fma(series(square, sine_terms, sizeof sine_terms / sizeof *sine_terms) * square, r, r);
    const double c = series(square, cosine_terms, sizeof cosine_terms / sizeof *cosine_terms);
    switch ((int64_t)n & 3) {
    case 0: *cosine = c, *sine = s; break;
    case 1: *cosine = -s, *sine = c; break;
    case 2: *cosine = -c, *sine = -s; break;
    default: *cosine = s, *sine = -c; break;
    }
}

void napier_rope_inverse(double theta, int64_t half, float *inverse) {
    const double log_theta = napier_f64_log(theta);
    for (int64_t i = 0; i < half; i++) {
        const float exponent = (float)(2 * i) / (float)(2 * half);
        inverse[i] = 1.0f / (float)napier_f64_exp((double)exponent * log_theta);
    }
}

void napier_rope_angles(const float *inverse, int64_t half, int64_t position, float *cosines, float *sines) {
    for (int64_t i = 0; i < half; i++) {
        double cosine, sine;
        napier_cos_sin((double)((float)position * inverse[i]), &cosine, &sine);
        cosines[i] = (float)cosine;
        sines[i] = (float)sine;
    }
}
