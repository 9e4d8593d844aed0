/* test_layers - rms_norm, swiglu and rotary with their gradients against the formulas in long double, within the bounds
 * of the header; special rows; frequencies and angles; arguments that are refused. */
#include "unit/layers/layers_support.h"

#include <float.h>
#include <math.h>

#include "support/oracle.h"

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

typedef long double real;

static real get(const grid *g, int64_t row, int64_t col) { return (real)grid_get(g, row, col); }

/* `bound` is that of an f32 result; a narrower one is rounded once more. */
static void check_element(const grid *y, int64_t row, int64_t col, real truth, real bound, const char *what) {
    const napier_dtype dtype = y->view.dtype;
    const real narrow = dtype == NAPIER_F32 ? 0 : dtype_ulp(dtype, truth) / 2 + bound * 0x1p-7L;
    const double got = grid_get(y, row, col);
    expect(oracle_within(got, truth, bound + narrow + 0x1p-140L, dtype), "%s [%lld, %lld]: %.9g, truth %.12Lg (%.2Lg)",
           what, (long long)row, (long long)col, got, truth, fabsl((real)got - truth) / bound);
}

typedef struct results {
    grid out, to[2];
} results;

static results run(napier_context *context, const step_data *d, napier_dtype dtype) {
    const int64_t rows = d->grad.view.rows, cols = d->grad.view.cols;
    results r = {grid_plain(rows, cols, dtype), {grid_plain(rows, cols, dtype), {0}}};
    r.to[1] = grid_plain(step_rows(d->what, 1, rows), cols, dtype);
    succeeded(context, step_forward(context, d, r.out.view), step_names[d->what]);
    succeeded(context, step_backward(context, d, r.to[0].view, r.to[1].view), "backward");
    return r;
}

static void check_rms_norm(const step_data *d, const results *y) {
    const int64_t rows = y->out.view.rows, n = y->out.view.cols;
    const real share = ((real)n / 128 + 8) * 0x1p-24L, back = ((real)n / 32 + 24) * 0x1p-24L;
    real *sum = scratch(n, sizeof *sum), *size = scratch(n, sizeof *size);
    for (int64_t i = 0; i < n; i++) {
        sum[i] = size[i] = 0;
    }
    for (int64_t row = 0; row < rows; row++) {
        real square = 0, pull = 0, pulls = 0;
        for (int64_t i = 0; i < n; i++) {
            square += get(&d->in[0], row, i) * get(&d->in[0], row, i);
        }
        const real r = 1 / sqrtl(square / (real)n + (real)(float)d->epsilon);
        for (int64_t i = 0; i < n; i++) {
            const real u = get(&d->in[0], row, i) * r, g = get(&d->grad, row, i), w = get(&d->in[1], 0, i);
            check_element(&y->out, row, i, u * w, share * fabsl(u * w), "rms_norm");
            pull += u * g * w / (real)n;
            pulls += fabsl(u * g * w) / (real)n;
            sum[i] += u * g;
            size[i] += fabsl(u * g);
        }
        for (int64_t i = 0; i < n; i++) {
            const real u = get(&d->in[0], row, i) * r, h = get(&d->grad, row, i) * get(&d->in[1], 0, i);
            check_element(&y->to[0], row, i, r * (h - u * pull), back * r * (fabsl(h) + fabsl(u) * pulls), "grad_x");
        }
    }
    for (int64_t i = 0; i < n; i++) {
        check_element(&y->to[1], 0, i, sum[i], share * size[i], "grad_weight");
    }
}

static void check_swiglu(const step_data *d, const results *y) {
    for (int64_t at = 0; at < y->out.view.rows * y->out.view.cols; at++) {
        const int64_t row = at / y->out.view.cols, i = at % y->out.view.cols;
        const real g = get(&d->in[0], row, i), u = get(&d->in[1], row, i), pull = get(&d->grad, row, i);
        const real s = 1 / (1 + expl(-g)), low = g < -86 ? 0x1p-120L : 0;
        check_element(&y->out, row, i, g * s * u, 5 * 0x1p-24L * fabsl(g * s * u) + low * fabsl(u), "swiglu");
        check_element(&y->to[0], row, i, pull * u * s * (1 + g * (1 - s)), 8 * 0x1p-24L * fabsl(pull * u), "grad_gate");
        check_element(&y->to[1], row, i, pull * g * s, 5 * 0x1p-24L * fabsl(pull * g * s) + low * fabsl(pull),
                      "grad_up");
    }
}

static void check_pair(const grid *x, const grid *y, const step_data *d, int64_t row, int64_t at, int sign) {
    const int64_t half = x->view.cols / STEP_HEADS / 2, i = at % half, first = at / half * 2 * half + i;
    const real c = get(&d->in[1], row, i), s = sign * get(&d->in[2], row, i);
    const real a = get(x, row, first), b = get(x, row, first + half);
    check_element(y, row, first, a * c - b * s, 0x1p-23L * (fabsl(a * c) + fabsl(b * s)), "rotary");
    check_element(y, row, first + half, b * c + a * s, 0x1p-23L * (fabsl(b * c) + fabsl(a * s)), "rotary");
}

static void check_rotary(const step_data *d, const results *y) {
    const int64_t pairs = y->out.view.cols / 2;
    for (int64_t at = 0; at < y->out.view.rows * pairs; at++) {
        check_pair(&d->in[0], &y->out, d, at / pairs, at % pairs, 1);
        check_pair(&d->grad, &y->to[0], d, at / pairs, at % pairs, -1);
    }
}

static void (*const checks[])(const step_data *, const results *) = {check_rms_norm, check_swiglu, check_rotary};

static void test_oracle(napier_context *context) {
    static const int64_t sizes[] = {1, 5, 16, 100, 1025, 4097};
    static const double scales[] = {1.0, 40.0, 1e-3, 1e-18};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int what = 0; what < STEPS; what++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t k = 0; k < 4; k++) {
                const int64_t mark = scratch_mark(), cols = what == STEP_ROTARY ? 2 * STEP_HEADS * sizes[s] : sizes[s];
                const napier_dtype in = dtypes[k < 2 ? (s + k) % 3 : 0];
                const step_data d = step_make((step)what, 5, cols, in, scales[k]);
                const results y = run(context, &d, dtypes[(s + k / 2) % 3]);
                checks[what](&d, &y);
                scratch_release(mark);
            }
        }
    }
}

/* Squares that overflow f32, and rows whose norm is far from 1. */
static void test_large_rows(napier_context *context) {
    static const double scales[] = {1e18, 1e20, 1e30, 6e37};
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
        step_data d = step_make(STEP_RMS_NORM, 4, 300, NAPIER_F32, scales[k]);
        for (int64_t i = 0; i < 4 * 300; i++) { /* products with r stay normal */
            grid_set(&d.grad, i / 300, i % 300, 1e30 * grid_get(&d.grad, i / 300, i % 300));
        }
        const results y = run(context, &d, NAPIER_F32);
        check_rms_norm(&d, &y);
    }
}

/* Many rows: their sum is in double. */
static void test_many_rows(napier_context *context) {
    const step_data d = step_make(STEP_RMS_NORM, 20000, 6, NAPIER_F32, 1.0);
    const results y = run(context, &d, NAPIER_F32);
    check_rms_norm(&d, &y);
}

/* ---- Special rows ------------------------------------------------------------------------------------------------ */

static void expect_numbers(const float *got, const double *wanted, int n, const char *what) {
    for (int i = 0; i < n; i++) {
        const bool right = isnan(wanted[i]) ? f32_bits(got[i]) == 0x7fc00000u : (double)got[i] == wanted[i];
        expect(right, "%s[%d] is %g, not %g", what, i, (double)got[i], wanted[i]);
    }
}

static void test_special_rows(napier_context *context) {
    const double N = (double)NAN, I = (double)INFINITY;
    const float x[12] = {0, 0, NAN, 1, INFINITY, 1, -0.0f, 3, 1, 1, 2, -2}, ones[2] = {1, 1};
    float y[12], z[12];
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    const napier_const_matrix in = napier_const_rows_f32(x, 6, 2);
    const napier_const_vector weight = napier_const_array_f32(ones, 2);
    works(napier_rms_norm, context, in, weight, napier_rows_f32(y, 6, 2), NULL);
    expect_numbers(y, (const double[]){0, 0, N, N, N, 0}, 6, "rms_norm");
    options.epsilon = 0.0;
    works(napier_rms_norm, context, in, weight, napier_rows_f32(y, 6, 2), &options);
    expect_numbers(y, (const double[]){N, N, N, N, N, 0}, 6, "rms_norm without epsilon");
    expect_numbers(y + 8, (const double[]){1, 1, 1, -1}, 4, "rms_norm without epsilon");
    const float small[6] = {0x1p-76f, -0x1p-76f, 0x1p-126f, 0x1p-126f, 0x1p-51f, 0x1p-51f};
    const napier_const_matrix tiny = napier_const_rows_f32(small, 3, 2);
    works(napier_rms_norm, context, tiny, weight, napier_rows_f32(y, 3, 2), &options);
    expect_numbers(y, (const double[]){1, -1, 1, 1, 1, 1}, 6, "rms_norm of small numbers");
    works(napier_rms_norm_backward, context, napier_const_rows_f32(ones, 1, 2), napier_const_rows_f32(small, 1, 2),
          weight, napier_rows_f32(y, 1, 2), napier_array_f32(z, 2), &options);
    expect_numbers(y, (const double[]){0x1p76, 0x1p76}, 2, "rms_norm_backward of small numbers");
    expect_numbers(z, (const double[]){1, -1}, 2, "rms_norm_backward of small numbers, weight");
    const float gate[8] = {0, -0.0f, INFINITY, -INFINITY, NAN, 200, -200, 1e30f}, up[8] = {3, 3, 2, 1, 1, 2, 2, 1};
    const float pull[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const napier_const_matrix g = napier_const_rows_f32(gate, 1, 8), u = napier_const_rows_f32(up, 1, 8);
    works(napier_swiglu, context, g, u, napier_rows_f32(y, 1, 8));
    expect_numbers(y, (const double[]){0, 0, I, N, N, 400, 0, (double)1e30f}, 8, "swiglu");
    works(napier_swiglu_backward, context, napier_const_rows_f32(pull, 1, 8), g, u, napier_rows_f32(y, 1, 8),
          napier_rows_f32(z, 1, 8));
    expect_numbers(y, (const double[]){1.5, 1.5, 2, N, N, 2, 0, 1}, 8, "grad_gate");
    expect_numbers(z, (const double[]){0, 0, I, N, N, 200, 0, (double)1e30f}, 8, "grad_up");
}

static void test_empty(napier_context *context) {
    float weight[3] = {1, 2, 3}, grad[3] = {7, 7, 7};
    const napier_const_matrix none = napier_const_rows_f32(NULL, 0, 3), flat = napier_const_rows_f32(NULL, 4, 0);
    const napier_const_vector w = napier_const_array_f32(weight, 3);
    works(napier_rms_norm, context, none, w, napier_rows_f32(NULL, 0, 3), NULL);
    works(napier_rms_norm, context, flat, napier_const_array_f32(NULL, 0), napier_rows_f32(NULL, 4, 0), NULL);
    works(napier_rms_norm_backward, context, none, none, w, NO_MATRIX, napier_array_f32(grad, 3), NULL);
    expect_numbers(grad, (const double[]){0, 0, 0}, 3, "grad_weight of no rows");
    works(napier_swiglu, context, none, none, napier_rows_f32(NULL, 0, 3));
    works(napier_swiglu_backward, context, flat, flat, flat, NO_MATRIX, NO_MATRIX);
    const napier_const_heads heads = {NULL, 0, 2, 4, 8, 4, 1, NAPIER_F32};
    const napier_heads out = {NULL, 0, 2, 4, 8, 4, 1, NAPIER_F32};
    works(napier_rotary, context, heads, napier_const_rows_f32(NULL, 0, 2), napier_const_rows_f32(NULL, 0, 2), out);
}

/* Sizes that strides of 0 allow. */
static void test_endless(napier_context *context) {
    const int64_t most = INT64_C(1) << 60, longest = INT64_MAX - 3;
    float one = 1.0f, two[2] = {0};
    const napier_const_vector same = {&one, most, 0, NAPIER_F32};
    const napier_const_matrix wide = {&one, 0, longest, 0, 0, NAPIER_F32}, tall = {&one, most, 2, 0, 0, NAPIER_F32};
    works(napier_swiglu, context, wide, wide, (napier_matrix){two, 0, longest, 0, 0, NAPIER_F32});
    works(napier_rms_norm, context, (napier_const_matrix){&one, 0, most, 0, 0, NAPIER_F32}, same,
          (napier_matrix){two, 0, most, 0, 0, NAPIER_F32}, NULL);
    refused(context,
            napier_rms_norm_backward(context, tall, tall, napier_const_array_f32(two, 2), NO_MATRIX,
                                     napier_array_f32(&one, 0), NULL),
            NAPIER_INVALID_ARGUMENT, "grad_weight", NULL);
    float grad[2];
    if (!NAPIER_SANITIZED) { /* AddressSanitizer ends the program for such a size */
        refused(context,
                napier_rms_norm_backward(context, tall, tall, napier_const_array_f32(two, 2), NO_MATRIX,
                                         napier_array_f32(grad, 2), NULL),
                NAPIER_OUT_OF_MEMORY, "rms_norm", NULL);
    }
    const napier_const_heads heads = {&one, 1, most, 0, 0, 0, 0, NAPIER_F32};
    const napier_heads out = {two, 1, most, 0, 0, 0, 0, NAPIER_F32};
    const napier_const_matrix none = napier_const_rows_f32(NULL, 1, 0);
    works(napier_rotary, context, heads, none, none, out);
    const napier_matrix angles = {two, 0, most, 0, 1, NAPIER_F32};
    invalid(context, napier_rotary_angles(context, same, 1.0, napier_indices_i64(NULL, 0), angles, angles), "inverse");
}

/* ---- Frequencies and angles -------------------------------------------------------------------------------------- */

static void expect_frequencies(napier_context *context, const napier_rotary_options *o, int64_t half,
                               const double *wanted, double wanted_scale) {
    float *inverse = scratch(2 * half, sizeof *inverse);
    double scale = 0.0;
    const napier_vector every_other = {inverse, half, 2, NAPIER_F32};
    works(napier_rotary_frequencies, context, o, every_other, &scale);
    expect(fabs(scale - wanted_scale) <= 1e-15 * wanted_scale, "scale is %.17g, not %.17g", scale, wanted_scale);
    for (int64_t i = 0; i < half; i++) {
        const double got = (double)inverse[2 * i];
        expect(fabs(got - wanted[i]) <= 1e-6 * wanted[i], "scaling %d, frequency %lld: %.9g, not %.9g", (int)o->scaling,
               (long long)i, got, wanted[i]);
    }
}

/* Written out from the definitions; tests/peers compares with transformers. */
static void test_frequencies(napier_context *context) {
    enum { HALF = 32 };
    double plain[HALF], wanted[HALF];
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    o.theta = 5e5;
    o.factor = 8.0;
    o.original_max_position_embeddings = 8192;
    for (int i = 0; i < HALF; i++) {
        plain[i] = pow(5e5, -(double)i / HALF);
        wanted[i] = plain[i] / 8;
    }
    expect_frequencies(context, &o, HALF, plain, 1.0);
    o.scaling = NAPIER_ROTARY_LINEAR;
    expect_frequencies(context, &o, HALF, wanted, 1.0);
    o.scaling = NAPIER_ROTARY_LLAMA3;
    for (int i = 0; i < HALF; i++) {
        const double turns = 8192 * plain[i] / (2 * acos(-1)), smooth = (turns - 1) / 3;
        wanted[i] = turns > 4 ? plain[i] : turns < 1 ? plain[i] / 8 : (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    }
    expect_frequencies(context, &o, HALF, wanted, 1.0);
    o.scaling = NAPIER_ROTARY_YARN;
    const double low = floor(64 * log(8192 / (32 * 2 * acos(-1))) / (2 * log(5e5)));
    const double high = ceil(64 * log(8192 / (2 * acos(-1))) / (2 * log(5e5)));
    for (int i = 0; i < HALF; i++) {
        const double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        wanted[i] = plain[i] / 8 * ramp + plain[i] * (1 - ramp);
    }
    expect_frequencies(context, &o, HALF, wanted, 0.1 * log(8) + 1);
    o.mscale = 0.5;
    o.mscale_all_dim = 2.0;
    expect_frequencies(context, &o, HALF, wanted, (0.05 * log(8) + 1) / (0.2 * log(8) + 1));
    o.attention_factor = 1.25;
    expect_frequencies(context, &o, HALF, wanted, 1.25);
}

static void test_angles(napier_context *context) {
    const float inverse[3] = {1.0f, 0.01f, -4.0f};
    const int32_t positions[4] = {0, 5, 131071, (1 << 24) - 1};
    const napier_indices at = {positions, 4, NAPIER_I32};
    float cosines[12], sines[12], once[12], other[12];
    const napier_matrix turned = {cosines, 4, 3, 1, 4, NAPIER_F32}; /* columns contiguous */
    const napier_const_vector all = napier_const_array_f32(inverse, 3);
    works(napier_rotary_angles, context, all, 1.0, at, napier_rows_f32(once, 4, 3), napier_rows_f32(other, 4, 3));
    works(napier_rotary_angles, context, all, 1.3, at, turned, napier_rows_f32(sines, 4, 3));
    for (int i = 0; i < 12; i++) {
        const double angle = (double)((float)positions[i / 3] * inverse[i % 3]);
        expect(fabs((double)once[i] - cos(angle)) <= 0x1.01p-25 && fabs((double)other[i] - sin(angle)) <= 0x1.01p-25,
               "angle %g: %g, %g", angle, (double)once[i], (double)other[i]);
        expect(cosines[i % 3 * 4 + i / 3] == once[i] * 1.3f && sines[i] == other[i] * 1.3f, "scale of element %d", i);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void test_bad_rows(napier_context *context) {
    float a[32] = {0}, b[24] = {0}, c[24] = {0};
    const napier_const_matrix in = napier_const_rows_f32(a, 3, 8), other = napier_const_rows_f32(b, 2, 8);
    const napier_matrix out = napier_rows_f32(c, 3, 8), narrow = napier_rows_f32(c, 3, 5);
    const napier_const_vector weight = napier_const_array_f32(b, 8), few = napier_const_array_f32(b, 7);
    double wide[24];
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    assert_int_equal(napier_rms_norm(NULL, in, weight, out, NULL), NAPIER_INVALID_ARGUMENT);
    invalid(context, napier_rms_norm(context, in, few, out, NULL), "weight", "7");
    invalid(context, napier_rms_norm(context, in, weight, narrow, NULL), "out", "5");
    invalid(context, napier_rms_norm(context, napier_const_rows(wide, 3, 8, NAPIER_F64), weight, out, NULL), "x",
            "f64");
    invalid(context, napier_rms_norm(context, in, weight, napier_rows_f32(a + 8, 3, 8), NULL), "out", "overlaps");
    invalid(context, napier_swiglu(context, in, napier_const_rows_f32(b, 3, 8), napier_rows_f32(a + 8, 3, 8)), "out",
            "overlaps");
    for (int i = 0; i < 4; i++) {
        options.epsilon = (const double[]){-1e-6, (double)NAN, (double)INFINITY, 1e39}[i];
        invalid(context, napier_rms_norm(context, in, weight, out, &options), "epsilon");
        invalid(context, napier_rms_norm_backward(context, in, in, weight, out, NO_VECTOR, &options), "epsilon");
    }
    invalid(context, napier_rms_norm_backward(context, other, in, weight, out, NO_VECTOR, NULL), "grad_out", "2");
    invalid(context, napier_rms_norm_backward(context, in, in, weight, out, napier_array_f32(c, 8), NULL),
            "grad_weight", "grad_x");
    assert_int_equal(napier_swiglu(NULL, in, in, out), NAPIER_INVALID_ARGUMENT);
    invalid(context, napier_swiglu(context, in, other, out), "up", "gate");
    invalid(context, napier_swiglu(context, in, in, narrow), "out", "gate");
    invalid(context, napier_swiglu_backward(context, other, in, in, out, NO_MATRIX), "grad_out");
    invalid(context, napier_swiglu_backward(context, in, in, in, out, out), "grad_up", "grad_gate");
}

static void test_bad_heads(napier_context *context) {
    float a[24] = {0}, c[24] = {0}, angles[12] = {0};
    const napier_const_heads x = {a, 3, 2, 4, 8, 4, 1, NAPIER_F32};
    const napier_heads out = {c, 3, 2, 4, 8, 4, 1, NAPIER_F32}, fewer = {c, 3, 1, 4, 4, 4, 1, NAPIER_F32};
    const napier_const_matrix cosines = napier_const_rows_f32(angles, 3, 2);
    napier_const_heads odd = x;
    odd.dim = 3;
    assert_int_equal(napier_rotary(NULL, x, cosines, cosines, out), NAPIER_INVALID_ARGUMENT);
    invalid(context, napier_rotary(context, odd, cosines, cosines, out), "x", "3", "odd");
    invalid(context, napier_rotary(context, x, napier_const_rows_f32(angles, 3, 4), cosines, out), "cosines", "4");
    invalid(context, napier_rotary(context, x, cosines, napier_const_rows_f32(angles, 2, 2), out), "sines", "2");
    invalid(context, napier_rotary(context, x, cosines, napier_const_rows(angles, 3, 2, NAPIER_BF16), out), "sines");
    invalid(context, napier_rotary(context, x, cosines, cosines, fewer), "out");
    invalid(context, napier_rotary_backward(context, x, cosines, cosines, fewer), "grad_x");
    invalid(context, napier_rotary_backward(context, odd, cosines, cosines, out), "grad_out", "odd");
}

static void test_bad_frequencies(napier_context *context) {
    float inverse[4];
    double scale;
    const napier_vector out = napier_array_f32(inverse, 4);
    const struct {
        const char *name;
        size_t field;
        double value;
        napier_rotary_scaling scaling;
    } bad[] = {{"theta", offsetof(napier_rotary_options, theta), 0.0, NAPIER_ROTARY_DEFAULT},
               {"theta", offsetof(napier_rotary_options, theta), (double)NAN, NAPIER_ROTARY_DEFAULT},
               {"theta", offsetof(napier_rotary_options, theta), 1.0, NAPIER_ROTARY_YARN},
               {"factor", offsetof(napier_rotary_options, factor), 0.5, NAPIER_ROTARY_LINEAR},
               {"factor", offsetof(napier_rotary_options, factor), (double)INFINITY, NAPIER_ROTARY_LLAMA3},
               {"low_freq_factor", offsetof(napier_rotary_options, low_freq_factor), 0.0, NAPIER_ROTARY_LLAMA3},
               {"high_freq_factor", offsetof(napier_rotary_options, high_freq_factor), 1.0, NAPIER_ROTARY_LLAMA3},
               {"beta_fast", offsetof(napier_rotary_options, beta_fast), 0.0, NAPIER_ROTARY_YARN},
               {"beta_slow", offsetof(napier_rotary_options, beta_slow), -1.0, NAPIER_ROTARY_YARN},
               {"mscale", offsetof(napier_rotary_options, mscale), -1.0, NAPIER_ROTARY_YARN},
               {"mscale_all_dim", offsetof(napier_rotary_options, mscale_all_dim), (double)NAN, NAPIER_ROTARY_YARN},
               {"attention_factor", offsetof(napier_rotary_options, attention_factor), -2.0, NAPIER_ROTARY_YARN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
        o.scaling = bad[i].scaling;
        o.original_max_position_embeddings = 100;
        *(double *)(void *)((char *)&o + bad[i].field) = bad[i].value;
        invalid(context, napier_rotary_frequencies(context, &o, out, &scale), bad[i].name);
    }
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    invalid(context, napier_rotary_frequencies(context, &o, out, NULL), "scale");
    invalid(context, napier_rotary_frequencies(context, &o, (napier_vector){inverse, 2, 1, NAPIER_BF16}, &scale),
            "inverse");
    o.scaling = 4;
    invalid(context, napier_rotary_frequencies(context, &o, out, &scale), "scaling", "4");
    o.scaling = NAPIER_ROTARY_YARN;
    invalid(context, napier_rotary_frequencies(context, &o, out, &scale), "original_max_position_embeddings", "0");
}

static void test_bad_angles(napier_context *context) {
    float inverse[2] = {1.0f, 0.5f}, cosines[4], sines[4];
    int64_t positions[2] = {0, 1};
    const napier_const_vector all = napier_const_array_f32(inverse, 2);
    const napier_indices at = napier_indices_i64(positions, 2);
    const napier_matrix c = napier_rows_f32(cosines, 2, 2), s = napier_rows_f32(sines, 2, 2);
    invalid(context, napier_rotary_angles(context, all, (double)NAN, at, c, s), "scale");
    invalid(context, napier_rotary_angles(context, all, 1e39, at, c, s), "scale");
    invalid(context, napier_rotary_angles(context, all, 1.0, at, c, c), "sines", "cosines");
    invalid(context, napier_rotary_angles(context, all, 1.0, at, napier_rows_f32(cosines, 1, 2), s), "cosines", "1");
    positions[1] = 1 << 24;
    invalid(context, napier_rotary_angles(context, all, 1.0, at, c, s), "positions", "16777216");
    positions[1] = -1;
    invalid(context, napier_rotary_angles(context, all, 1.0, at, c, s), "positions", "-1");
    positions[1] = 1;
    for (int i = 0; i < 3; i++) {
        inverse[1] = (const float[]){NAN, 4.5f, -INFINITY}[i];
        invalid(context, napier_rotary_angles(context, all, 1.0, at, c, s), "inverse", "element 1");
    }
}

int main(void) {
    return RUN_TESTS("layers", TEST_2(test_oracle), TEST_1(test_large_rows), TEST_2(test_many_rows),
                     TEST_EACH_ISA(1, test_special_rows), TEST_1(test_empty), TEST_1(test_endless),
                     TEST_1(test_frequencies), TEST_2(test_angles), TEST_1(test_bad_rows), TEST_1(test_bad_heads),
                     TEST_1(test_bad_frequencies), TEST_1(test_bad_angles));
}
