/* layers.c - the steps of a decoder layer between its products: rows [N, H], heads [T, H, D]. napier/_ops/layers.py has
 * the other shapes and the docs. */
#include "../call.h"

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

PYTHON_FUNCTION(rms_norm) {
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    napier_const_matrix x;
    napier_const_vector weight;
    napier_dtype dtype;
    TAKE("rms_norm", 4, 3, ON_HOST, ARG("x", x), ARG("weight", weight), ARG("epsilon", options.epsilon),
         DTYPE("dtype", dtype))
    const napier_matrix out = make_matrix(&c, x.rows, x.cols, dtype ? dtype : x.dtype);
    COMPUTE(napier_rms_norm(context, x, weight, out, &options));
    return call_end(&c);
}

/* (grad_x, grad_weight); None where it is not wanted. */
PYTHON_FUNCTION(rms_norm_backward) {
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    napier_const_matrix grad, x;
    napier_const_vector weight;
    int wants_x = 1, wants_weight = 1;
    TAKE("rms_norm_backward", 6, 4, ON_HOST, ARG("grad_out", grad), ARG("x", x), ARG("weight", weight),
         ARG("epsilon", options.epsilon), ARG("wants_x", wants_x), ARG("wants_weight", wants_weight))
    const napier_matrix grad_x = make_matrix_if(&c, wants_x, x.rows, x.cols, x.dtype);
    const napier_vector grad_weight = make_vector_if(&c, wants_weight, weight.size, weight.dtype);
    COMPUTE(napier_rms_norm_backward(context, grad, x, weight, grad_x, grad_weight, &options));
    return call_end(&c);
}

PYTHON_FUNCTION(swiglu) {
    napier_const_matrix gate, up;
    napier_dtype dtype;
    TAKE("swiglu", 3, 2, ON_HOST, ARG("gate", gate), ARG("up", up), DTYPE("dtype", dtype))
    const napier_matrix out = make_matrix(&c, gate.rows, gate.cols, dtype ? dtype : common_dtype(gate.dtype, up.dtype));
    COMPUTE(napier_swiglu(context, gate, up, out));
    return call_end(&c);
}

PYTHON_FUNCTION(swiglu_backward) {
    napier_const_matrix grad, gate, up;
    TAKE("swiglu_backward", 3, 3, ON_HOST, ARG("grad_out", grad), ARG("gate", gate), ARG("up", up))
    const napier_matrix grad_gate = make_matrix(&c, gate.rows, gate.cols, gate.dtype);
    const napier_matrix grad_up = make_matrix(&c, up.rows, up.cols, up.dtype);
    COMPUTE(napier_swiglu_backward(context, grad, gate, up, grad_gate, grad_up));
    return call_end(&c);
}

/* ---- Rotation ---------------------------------------------------------------------------------------------------- */

static napier_heads heads_of(const array *a) {
    return (napier_heads){a->data,       a->shape[0],   a->shape[1],   a->shape[2],
                          a->strides[0], a->strides[1], a->strides[2], a->dtype};
}

static napier_status rotate(napier_context *context, const array *x, napier_const_matrix cosines,
                            napier_const_matrix sines, const array *out, int back) {
    const napier_heads h = heads_of(x);
    const napier_const_heads from = {h.data,         h.tokens,      h.heads,      h.dim,
                                     h.token_stride, h.head_stride, h.dim_stride, h.dtype};
    return back ? napier_rotary_backward(context, from, cosines, sines, heads_of(out))
                : napier_rotary(context, from, cosines, sines, heads_of(out));
}

PYTHON_FUNCTION(rotary) {
    array *x;
    napier_const_matrix cosines, sines;
    int back = 0;
    napier_dtype dtype;
    TAKE("rotary", 5, 4, ON_HOST, ARRAY("x", x, TAKE_SINGLE), ARG("cosines", cosines), ARG("sines", sines),
         ARG("back", back), DTYPE("dtype", dtype))
    if (!c.failed && x->ndim != 3) {
        call_refuse(&c, PyExc_ValueError, "x: expected 3 dimensions, got %d", x->ndim);
    }
    const array *const out = c.failed ? NULL : make_array(&c, 3, x->shape, dtype ? dtype : x->dtype);
    COMPUTE(rotate(context, x, cosines, sines, out, back));
    return call_end(&c);
}

/* ---- Frequencies and angles -------------------------------------------------------------------------------------- */

PYTHON_FUNCTION(rotary_frequencies) {
    static const word_list scaling_words = {NAPIER_ROTARY_DEFAULT, 4, {"default", "linear", "llama3", "yarn"}};
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    int64_t dim = 0;
    TAKE("rotary_frequencies", 1, 1, ON_HOST, ARG("dim", dim), ARG("theta", o.theta),
         WORD("scaling", o.scaling, scaling_words), ARG("factor", o.factor),
         ARG("original_max_position_embeddings", o.original_max_position_embeddings),
         ARG("low_freq_factor", o.low_freq_factor), ARG("high_freq_factor", o.high_freq_factor),
         ARG("beta_fast", o.beta_fast), ARG("beta_slow", o.beta_slow), ARG("mscale", o.mscale),
         ARG("mscale_all_dim", o.mscale_all_dim), ARG("attention_factor", o.attention_factor),
         BOOL("truncate", o.truncate))
    if (!c.failed && (dim < 0 || dim % 2 != 0)) {
        call_refuse(&c, PyExc_ValueError, "dim: %lld is not even and at least 0", (long long)dim);
    }
    double scale = 1.0;
    c.arrays[0] = (array){.kind = KIND_NUMPY}; /* there is no array that the result could be like */
    c.count = 1;
    const napier_vector inverse = make_vector(&c, dim / 2, NAPIER_F32);
    COMPUTE(napier_rotary_frequencies(context, &o, inverse, &scale));
    call_add(&c, PyFloat_FromDouble(scale));
    return call_end(&c);
}

/* (cosines, sines) of positions [T] */
PYTHON_FUNCTION(rotary_angles) {
    napier_indices positions;
    napier_const_vector inverse;
    double scale = 1.0;
    TAKE("rotary_angles", 3, 2, ON_HOST, ARG("positions", positions), ARG("inverse", inverse), ARG("scale", scale))
    const napier_matrix cosines = make_matrix(&c, positions.size, inverse.size, NAPIER_F32);
    const napier_matrix sines = make_matrix(&c, positions.size, inverse.size, NAPIER_F32);
    COMPUTE(napier_rotary_angles(context, inverse, scale, positions, cosines, sines));
    return call_end(&c);
}

PyMethodDef layer_functions[] = {ENTRY_AS("_rms_norm", rms_norm),
                                 ENTRY_AS("_rms_norm_backward", rms_norm_backward),
                                 ENTRY_AS("_swiglu", swiglu),
                                 ENTRY_AS("_swiglu_backward", swiglu_backward),
                                 ENTRY_AS("_rotary", rotary),
                                 ENTRY(rotary_frequencies),
                                 ENTRY_AS("_rotary_angles", rotary_angles),
                                 ENTRY_END};
