/* ops/layers/rotary_angles.c - see rotary_angles.h. */
#include "ops/layers/rotary_angles.h"

#include <inttypes.h>
#include <math.h>
#include <napier/layers.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"

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

void napier_rope_angles(const float *inverse, int64_t half, float scale, int64_t position, float *cosines,
                        float *sines) {
    for (int64_t i = 0; i < half; i++) {
        double cosine, sine;
        napier_cos_sin((double)((float)position * inverse[i]), &cosine, &sine);
        cosines[i] = (float)cosine * scale;
        sines[i] = (float)sine * scale;
    }
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

typedef struct angles {
    napier_const_vector inverse;
    float scale;
    napier_indices positions;
    napier_matrix cosines, sines;
} angles;

static float inverse_at(const angles *a, int64_t i) { return ((const float *)a->inverse.data)[i * a->inverse.stride]; }

static float *angle_at(napier_matrix m, int64_t row, int64_t col) {
    return (float *)m.data + row * m.row_stride + col * m.col_stride;
}

static void angles_row(void *argument, int64_t row) {
    const angles *a = argument;
    const int64_t position = napier_index_at(a->positions, row);
    for (int64_t i = 0; i < a->inverse.size; i++) {
        const float inverse = inverse_at(a, i);
        napier_rope_angles(&inverse, 1, a->scale, position, angle_at(a->cosines, row, i), angle_at(a->sines, row, i));
    }
}

static napier_status check(napier_context *context, const angles *a) {
    const int64_t rows = a->positions.size, cols = a->inverse.size;
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_F32;
    const napier_argument all[] = {
        napier_row_argument("inverse", a->inverse, NAPIER_IS_F32, cols),
        NAPIER_ARGUMENT("cosines", napier_read_only(a->cosines), out, rows, cols, NULL),
        NAPIER_ARGUMENT("sines", napier_read_only(a->sines), out, rows, cols, NULL),
        napier_row_argument("positions", napier_indices_bytes(a->positions), NAPIER_MAY_BE_ABSENT, rows)};
    NAPIER_TRY(napier_check_ids(context, "positions", a->positions, rows, NAPIER_ROPE_POSITIONS));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_REFUSE_IF(context, cols > NAPIER_ROTARY_FREQUENCIES, "inverse: size %" PRId64 " is above 2^24", cols);
    for (int64_t i = 0; i < cols; i++) {
        const float inverse = inverse_at(a, i);
        NAPIER_REFUSE_IF(context, !(fabsf(inverse) <= NAPIER_ROPE_INVERSE_MOST),
                         "inverse: element %" PRId64 " is %g, not in -4 .. 4", i, (double)inverse);
    }
    return NAPIER_OK;
}

napier_status napier_rotary_angles(napier_context *context, napier_const_vector inverse, double scale,
                                   napier_indices positions, napier_matrix cosines, napier_matrix sines) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !isfinite((float)scale), "scale: %g is not finite in f32", scale);
    angles a = {inverse, (float)scale, positions, cosines, sines};
    NAPIER_TRY(check(context, &a));
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, positions.size, 16, angles_row, &a);
    return napier_stopped(context);
}
