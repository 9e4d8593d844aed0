/* test_layers_bits - the steps of a layer and their gradients against a definition in plain C, bit for bit: every
 * instruction set, thread count, layout and dtype, in place, and one gradient without the other. */
#include "unit/layers/layers_support.h"

#include <math.h>
#include <string.h>

#include "core/isa/core_kernels.h"

/* ---- The definition ---------------------------------------------------------------------------------------------- */

static float *floats_of(const grid *g, int64_t row, int64_t begin, int64_t n) {
    float *x = scratch(n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)grid_get(g, row, begin + i);
    }
    return x;
}

/* 64 lanes by fma, folded by halves. */
static float dot(const float *a, const float *b, int64_t n) {
    float lane[64] = {0.0f};
    for (int64_t i = 0; i < n; i++) {
        lane[i % 64] = fmaf(a[i], b[i], lane[i % 64]);
    }
    for (int half = 32; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

static float factor_of(const float *x, int64_t n, double epsilon) {
    const float sum = dot(x, x, n);
    if (!isinf(sum)) {
        return 1.0f / sqrtf(sum / (float)n + (float)epsilon);
    }
    double wide = 0.0;
    for (int64_t i = 0; i < n; i++) {
        wide += (double)x[i] * (double)x[i];
    }
    return (float)(1.0 / sqrt(wide / (double)n + (double)(float)epsilon));
}

static float exp_of(float x) {
    float y;
    napier_core_kernels_of(NAPIER_ISA_SCALAR)->math.exp_f32(&x, &y, 1);
    return y;
}

static float silu(float g) { return g / (1.0f + exp_of(-g)); }

static float silu_slope(float g) {
    const float e = exp_of(-g), s = 1.0f / (1.0f + e);
    const float rest = g > 0.0f ? e * s : 1.0f - s;
    return fmaf(s, (g < 128.0f ? g : 128.0f) * rest, s);
}

typedef struct pair {
    float a, b;
} pair;

static pair rotated(float a, float b, float c, float s) { return (pair){fmaf(-b, s, a * c), fmaf(a, s, b * c)}; }

/* A NaN result is the canonical one. */
static void set(grid *g, int64_t row, int64_t col, float value) {
    grid_set(g, row, col, isnan(value) ? (double)NAN : (double)value);
}

static void define_rms_norm(const step_data *d, grid *out, grid *to_x, grid *to_weight) {
    const int64_t rows = out->view.rows, n = out->view.cols;
    const float *w = floats_of(&d->in[1], 0, 0, n);
    double *sums = scratch(n + 1, sizeof *sums);
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t row = 0; row < rows; row++) {
        float *x = floats_of(&d->in[0], row, 0, n), *h = floats_of(&d->grad, row, 0, n);
        const float r = factor_of(x, n, d->epsilon);
        for (int64_t i = 0; i < n; i++) {
            x[i] *= r;
            set(out, row, i, x[i] * w[i]);
            sums[i] += (double)h[i] * (double)x[i];
            h[i] *= w[i];
        }
        const float c = dot(x, h, n) / (float)n;
        for (int64_t i = 0; i < n; i++) {
            set(to_x, row, i, r * fmaf(-x[i], c, h[i]));
        }
    }
    for (int64_t i = 0; i < n; i++) {
        set(to_weight, 0, i, (float)sums[i]);
    }
}

static void define_swiglu(const step_data *d, grid *out, grid *to_gate, grid *to_up) {
    for (int64_t at = 0; at < out->view.rows * out->view.cols; at++) {
        const int64_t row = at / out->view.cols, i = at % out->view.cols;
        const float g = (float)grid_get(&d->in[0], row, i), u = (float)grid_get(&d->in[1], row, i);
        const float pull = (float)grid_get(&d->grad, row, i);
        set(out, row, i, silu(g) * u);
        set(to_gate, row, i, pull * u * silu_slope(g));
        set(to_up, row, i, pull * silu(g));
    }
}

static void define_rotary(const step_data *d, grid *out, grid *to_x) {
    const int64_t half = out->view.cols / STEP_HEADS / 2;
    for (int64_t row = 0; row < out->view.rows; row++) {
        const float *c = floats_of(&d->in[1], row, 0, half), *s = floats_of(&d->in[2], row, 0, half);
        for (int64_t at = 0; at < STEP_HEADS * half; at++) {
            const int64_t i = at % half, a = at / half * 2 * half + i, b = a + half;
            const pair y = rotated((float)grid_get(&d->in[0], row, a), (float)grid_get(&d->in[0], row, b), c[i], s[i]);
            const pair g = rotated((float)grid_get(&d->grad, row, a), (float)grid_get(&d->grad, row, b), c[i], -s[i]);
            set(out, row, a, y.a);
            set(out, row, b, y.b);
            set(to_x, row, a, g.a);
            set(to_x, row, b, g.b);
        }
    }
}

/* ---- Calls against it -------------------------------------------------------------------------------------------- */

typedef struct expected {
    grid out, to[2];
} expected;

static expected expected_of(const step_data *d, napier_dtype dtype) {
    const int64_t rows = d->grad.view.rows, cols = d->grad.view.cols;
    expected e = {grid_plain(rows, cols, dtype), {grid_plain(rows, cols, dtype), {0}}};
    e.to[1] = grid_plain(step_rows(d->what, 1, rows), cols, dtype);
    switch (d->what) {
    case STEP_RMS_NORM: define_rms_norm(d, &e.out, &e.to[0], &e.to[1]); break;
    case STEP_SWIGLU: define_swiglu(d, &e.out, &e.to[0], &e.to[1]); break;
    default: define_rotary(d, &e.out, &e.to[0]); break;
    }
    return e;
}

static step_data copied(const step_data *d, layout l) {
    step_data c = *d;
    for (int i = 0; i < step_inputs(d->what); i++) {
        c.in[i] = grid_make(l, d->in[i].view.rows, d->in[i].view.cols, d->in[i].view.dtype);
        grid_copy(&c.in[i], &d->in[i]);
    }
    c.grad = grid_make(l, d->grad.view.rows, d->grad.view.cols, d->grad.view.dtype);
    grid_copy(&c.grad, &d->grad);
    return c;
}

static grid result_like(const grid *g, layout l) { return grid_make(l, g->view.rows, g->view.cols, g->view.dtype); }

static bool same(const grid *got, const grid *wanted, const char *what) {
    return grid_differences(got, wanted, what) == 0 && grid_damage(got) == 0;
}

static bool check_backward(napier_context *context, const step_data *d, const expected *e, layout l) {
    bool good = true;
    for (int which = 1; which < 1 << step_gradients(d->what); which++) {
        grid to[2] = {result_like(&e->to[0], l), result_like(&e->to[1], l)};
        succeeded(context,
                  step_backward(context, d, which & 1 ? to[0].view : NO_MATRIX, which & 2 ? to[1].view : NO_MATRIX),
                  "backward");
        good = (!(which & 1) || same(&to[0], &e->to[0], "first gradient")) && good;
        good = (!(which & 2) || same(&to[1], &e->to[1], "second gradient")) && good;
    }
    return good;
}

static void check_turn(napier_context *context, const step_data *given, const expected *e, layout l) {
    const step_data d = copied(given, l);
    grid out = result_like(&e->out, l);
    succeeded(context, step_forward(context, &d, out.view), "forward");
    bool good = same(&out, &e->out, "result");
    good = check_backward(context, &d, e, l) && good;
    if (d.in[0].view.dtype == out.view.dtype) {
        succeeded(context, step_forward(context, &d, d.in[0].view), "in place");
        good = same(&d.in[0], &e->out, "in place") && good;
    }
    expect(good, "%s, %lld x %lld, %s to %s: %s, %d threads, %s", step_names[d.what], (long long)out.view.rows,
           (long long)out.view.cols, napier_dtype_name(d.in[0].view.dtype), napier_dtype_name(out.view.dtype),
           napier_isa_name(napier_context_isa(context)), napier_context_threads(context), layout_name(l));
}

static void check_everywhere(const step_data *d, napier_dtype out, uint64_t seed) {
    const expected e = expected_of(d, out);
    napier_context *context;
    for (int i = 0; (context = context_of_run(i)) != NULL; i++) {
        check_turn(context, d, &e, LAYOUT_CONTIGUOUS);
        check_turn(context, d, &e, (layout)((seed + (uint64_t)i) % LAYOUTS));
    }
}

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};

static void check_step(step what) {
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 1023, 1025, 2100};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int d = 0; d < 9; d++) {
            const int64_t mark = scratch_mark();
            const int64_t cols = what == STEP_ROTARY ? 2 * STEP_HEADS * sizes[s] : sizes[s];
            const step_data data = step_make(what, 1 + (int64_t)(s + (size_t)d) % 9, cols, dtypes[d / 3], 3.0);
            check_everywhere(&data, dtypes[d % 3], s + (size_t)d);
            scratch_release(mark);
        }
    }
}

static void test_rms_norm(void) { check_step(STEP_RMS_NORM); }
static void test_swiglu(void) { check_step(STEP_SWIGLU); }
static void test_rotary(void) { check_step(STEP_ROTARY); }

/* NaN, infinities, zeros, subnormals, squares beyond f32; some thousand rows for the sum over them. */
static void test_odd_numbers(void) {
    static const double odd[] = {0.0, -0.0, 1e-40, 1e30, -3e38, 88.5, -88.5, -90.0, 1.0, 130.0, -1e-20};
    for (int what = 0; what < STEPS; what++) {
        for (int special = 0; special < 4; special++) {
            const int64_t mark = scratch_mark();
            step_data d = step_make((step)what, 30, 12 * STEP_HEADS, NAPIER_F32, 1.0);
            for (int64_t at = 0; at < 30 * 36; at++) {
                const double value = odd[at * 7 % 11];
                grid_set(&d.in[0], at / 36, at % 36, value);
            }
            const double worst = special == 1 ? (double)NAN : special == 2 ? (double)INFINITY : -(double)INFINITY;
            if (special > 0) {
                grid_set(&d.in[0], 7, 5, worst);
                grid_set(&d.grad, 9, 6, worst);
            }
            check_everywhere(&d, NAPIER_F32, (uint64_t)special);
            scratch_release(mark);
        }
    }
    const step_data many = step_make(STEP_RMS_NORM, 3000, 40, NAPIER_BF16, 1.0);
    check_everywhere(&many, NAPIER_F32, 3);
}

int main(void) {
    return RUN_TESTS("layers_bits", TEST(test_rms_norm), TEST(test_swiglu), TEST(test_rotary), TEST(test_odd_numbers));
}
