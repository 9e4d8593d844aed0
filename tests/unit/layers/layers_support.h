/* layers_support.h - the steps of a layer behind one call, for grids of any layout. */
#ifndef NAPIER_TESTS_LAYERS_SUPPORT_H
#define NAPIER_TESTS_LAYERS_SUPPORT_H

#include "support/check.h"

#include <napier/layers.h>

#include "support/formats.h"

typedef enum step { STEP_RMS_NORM, STEP_SWIGLU, STEP_ROTARY, STEPS } step;

static const char *const step_names[] = {"rms_norm", "swiglu", "rotary"};

enum { STEP_HEADS = 3 };

/* rms_norm: x, weight [1, H]; swiglu: gate, up; rotary: x [tokens, heads * dim], cosines, sines [tokens, dim / 2]. */
typedef struct step_data {
    step what;
    grid in[3], grad;
    double epsilon;
} step_data;

static inline int step_inputs(step s) { return s == STEP_ROTARY ? 3 : 2; }
static inline int step_gradients(step s) { return s == STEP_ROTARY ? 1 : 2; }
static inline int64_t step_rows(step s, int i, int64_t rows) { return s == STEP_RMS_NORM && i == 1 ? 1 : rows; }
static inline int64_t step_cols(step s, int i, int64_t cols) {
    return s == STEP_ROTARY && i > 0 ? cols / STEP_HEADS / 2 : cols;
}

static inline napier_vector step_vector(napier_matrix m) {
    return (napier_vector){m.data, m.cols, m.col_stride, m.dtype};
}
static inline napier_const_vector step_const_vector(const grid *g) {
    const napier_matrix m = g->view;
    return (napier_const_vector){m.data, m.cols, m.col_stride, m.dtype};
}
static inline napier_heads step_heads(napier_matrix m) {
    const int64_t dim = m.cols / STEP_HEADS;
    return (napier_heads){m.data, m.rows, STEP_HEADS, dim, m.row_stride, dim * m.col_stride, m.col_stride, m.dtype};
}
static inline napier_const_heads step_const_heads(const grid *g) {
    const napier_heads h = step_heads(g->view);
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static inline napier_rms_norm_options step_options(const step_data *d) {
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    options.epsilon = d->epsilon;
    return options;
}

static inline napier_status step_forward(napier_context *context, const step_data *d, napier_matrix out) {
    const napier_rms_norm_options options = step_options(d);
    const grid *in = d->in;
    switch (d->what) {
    case STEP_RMS_NORM: return napier_rms_norm(context, grid_input(&in[0]), step_const_vector(&in[1]), out, &options);
    case STEP_SWIGLU: return napier_swiglu(context, grid_input(&in[0]), grid_input(&in[1]), out);
    default:
        return napier_rotary(context, step_const_heads(&in[0]), grid_input(&in[1]), grid_input(&in[2]),
                             step_heads(out));
    }
}

/* Gradients whose data are NULL are not wanted. */
static inline napier_status step_backward(napier_context *context, const step_data *d, napier_matrix first,
                                          napier_matrix second) {
    const napier_rms_norm_options options = step_options(d);
    const grid *in = d->in;
    switch (d->what) {
    case STEP_RMS_NORM:
        return napier_rms_norm_backward(context, grid_input(&d->grad), grid_input(&in[0]), step_const_vector(&in[1]),
                                        first, step_vector(second), &options);
    case STEP_SWIGLU:
        return napier_swiglu_backward(context, grid_input(&d->grad), grid_input(&in[0]), grid_input(&in[1]), first,
                                      second);
    default:
        return napier_rotary_backward(context, step_const_heads(&d->grad), grid_input(&in[1]), grid_input(&in[2]),
                                      step_heads(first));
    }
}

/* Numbers around 0; weights around 1; cosines and sines of angles. */
static inline void step_fill(step_data *d, int i, grid *g, double size, rng *r) {
    for (int64_t at = 0; at < g->view.rows * g->view.cols; at++) {
        const bool weight = d->what == STEP_RMS_NORM && i == 1, angle = d->what == STEP_ROTARY && i > 0;
        const double value = angle ? rng_uniform(r) * 2 - 1 : (weight ? 1.0 : 0.0) + size * rng_normal(r);
        grid_set(g, at / g->view.cols, at % g->view.cols, weight ? 1.0 + 0.5 * rng_normal(r) : value);
    }
}

static inline step_data step_make(step what, int64_t rows, int64_t cols, napier_dtype dtype, double size) {
    step_data d = {.what = what, .epsilon = 1e-6};
    rng r = rng_make((uint64_t)(rows * 7919 + cols));
    for (int i = 0; i < step_inputs(what); i++) {
        d.in[i] = grid_plain(step_rows(what, i, rows), step_cols(what, i, cols),
                             what == STEP_ROTARY && i > 0 ? NAPIER_F32 : dtype);
        step_fill(&d, i, &d.in[i], size, &r);
    }
    d.grad = grid_plain(rows, cols, dtype);
    for (int64_t at = 0; at < rows * cols; at++) {
        grid_set(&d.grad, at / cols, at % cols, rng_normal(&r));
    }
    return d;
}

#endif
