/* layers.c - the steps of a decoder layer between its products: rows [N, H], heads [T, H, D]. napier/_ops/layers.py has
 * the other shapes and the docs. */
#include "rl.h"

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static PyObject *py_rms_norm(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"rms_norm", 4, 4, 3, {"x", "weight", "epsilon", "dtype"}};
    (void)self;
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    PyObject *v[4], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix x;
    napier_const_vector weight;
    napier_matrix out;
    array *made = NULL;
    if (!arguments(&names, args, count, keywords, v) && !call_matrix(&c, v[0], "x", &x) &&
        !call_vector(&c, v[1], "weight", &weight) && !take_double(v[2], "epsilon", &options.epsilon)) {
        napier_dtype dtype = x.dtype;
        if (!take_dtype(v[3], "dtype", &dtype) && !call_made_matrix(&c, x.rows, x.cols, dtype, &made, &out)) {
            RUN_FOR(given, names.function, napier_rms_norm(context, x, weight, out, &options), call_object(made));
        }
    }
    call_release(&c);
    return given;
}

/* (grad_x, grad_weight); None where it is not wanted. */
static PyObject *py_rms_norm_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "rms_norm_backward", 6, 6, 4, {"grad_out", "x", "weight", "epsilon", "wants_x", "wants_weight"}};
    (void)self;
    napier_rms_norm_options options = NAPIER_RMS_NORM_OPTIONS_INIT;
    PyObject *v[6], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix grad, x;
    napier_const_vector weight;
    napier_matrix grad_x = {0};
    napier_vector grad_weight = {0};
    array *made_x = NULL, *made_weight = NULL;
    int wants_x = 1, wants_weight = 1;
    if (!arguments(&names, args, count, keywords, v) && !call_matrix(&c, v[0], "grad_out", &grad) &&
        !call_matrix(&c, v[1], "x", &x) && !call_vector(&c, v[2], "weight", &weight) &&
        !take_double(v[3], "epsilon", &options.epsilon) && !take_bool(v[4], "wants_x", &wants_x) &&
        !take_bool(v[5], "wants_weight", &wants_weight) &&
        (!wants_x || !call_made_matrix(&c, x.rows, x.cols, x.dtype, &made_x, &grad_x)) &&
        (!wants_weight || !call_made_vector(&c, weight.size, weight.dtype, &made_weight, &grad_weight))) {
        RUN_FOR(given, names.function,
                napier_rms_norm_backward(context, grad, x, weight, grad_x, grad_weight, &options),
                Py_BuildValue("NN", call_object(made_x), call_object(made_weight)));
    }
    call_release(&c);
    return given;
}

static PyObject *py_swiglu(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"swiglu", 3, 3, 2, {"gate", "up", "dtype"}};
    (void)self;
    PyObject *v[3], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix gate, up;
    napier_matrix out;
    array *made = NULL;
    if (!arguments(&names, args, count, keywords, v) && !call_matrix(&c, v[0], "gate", &gate) &&
        !call_matrix(&c, v[1], "up", &up)) {
        napier_dtype dtype = gate.dtype == up.dtype ? gate.dtype : NAPIER_F32;
        if (!take_dtype(v[2], "dtype", &dtype) && !call_made_matrix(&c, gate.rows, gate.cols, dtype, &made, &out)) {
            RUN_FOR(given, names.function, napier_swiglu(context, gate, up, out), call_object(made));
        }
    }
    call_release(&c);
    return given;
}

static PyObject *py_swiglu_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"swiglu_backward", 3, 3, 3, {"grad_out", "gate", "up"}};
    (void)self;
    PyObject *v[3], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix grad, gate, up;
    napier_matrix grad_gate, grad_up;
    array *made_gate = NULL, *made_up = NULL;
    if (!arguments(&names, args, count, keywords, v) && !call_matrix(&c, v[0], "grad_out", &grad) &&
        !call_matrix(&c, v[1], "gate", &gate) && !call_matrix(&c, v[2], "up", &up) &&
        !call_made_matrix(&c, gate.rows, gate.cols, gate.dtype, &made_gate, &grad_gate) &&
        !call_made_matrix(&c, up.rows, up.cols, up.dtype, &made_up, &grad_up)) {
        RUN_FOR(given, names.function, napier_swiglu_backward(context, grad, gate, up, grad_gate, grad_up),
                Py_BuildValue("NN", call_object(made_gate), call_object(made_up)));
    }
    call_release(&c);
    return given;
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

static PyObject *py_rotary(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"rotary", 5, 5, 4, {"x", "cosines", "sines", "back", "dtype"}};
    (void)self;
    PyObject *v[5], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    const array *x = NULL;
    napier_const_matrix cosines, sines;
    int back = 0;
    if (!arguments(&names, args, count, keywords, v) && (x = call_take(&c, v[0], "x", TAKE_SINGLE)) &&
        !call_matrix(&c, v[1], "cosines", &cosines) && !call_matrix(&c, v[2], "sines", &sines) &&
        !take_bool(v[3], "back", &back)) {
        napier_dtype dtype = x->dtype;
        if (x->ndim != 3) {
            PyErr_Format(PyExc_ValueError, "x: expected 3 dimensions, got %d", x->ndim);
        } else if (!take_dtype(v[4], "dtype", &dtype)) {
            const array *const made = call_make(&c, 3, x->shape, dtype);
            if (made) {
                RUN_FOR(given, names.function, rotate(context, x, cosines, sines, made, back), call_object(made));
            }
        }
    }
    call_release(&c);
    return given;
}

/* ---- Frequencies and angles -------------------------------------------------------------------------------------- */

static const char *const scaling_words[] = {"default", "linear", "llama3", "yarn"};

static int take_rotary_options(PyObject *const *v, napier_rotary_options *o) {
    int scaling = NAPIER_ROTARY_DEFAULT, truncate = 1;
    if (take_double(v[0], "theta", &o->theta) ||
        take_word(v[1], "scaling", scaling_words, 4, NAPIER_ROTARY_DEFAULT, &scaling) ||
        take_double(v[2], "factor", &o->factor) ||
        take_int64(v[3], "original_max_position_embeddings", &o->original_max_position_embeddings) ||
        take_double(v[4], "low_freq_factor", &o->low_freq_factor) ||
        take_double(v[5], "high_freq_factor", &o->high_freq_factor) || take_double(v[6], "beta_fast", &o->beta_fast) ||
        take_double(v[7], "beta_slow", &o->beta_slow) || take_double(v[8], "mscale", &o->mscale) ||
        take_double(v[9], "mscale_all_dim", &o->mscale_all_dim) ||
        take_double(v[10], "attention_factor", &o->attention_factor) || take_bool(v[11], "truncate", &truncate)) {
        return -1;
    }
    o->scaling = scaling;
    o->truncate = truncate;
    return 0;
}

static PyObject *py_rotary_frequencies(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    enum { COUNT = 13 };
    static const signature names = {"rotary_frequencies",
                                    COUNT,
                                    1,
                                    1,
                                    {"dim", "theta", "scaling", "factor", "original_max_position_embeddings",
                                     "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale",
                                     "mscale_all_dim", "attention_factor", "truncate"}};
    (void)self;
    napier_rotary_options options = NAPIER_ROTARY_OPTIONS_INIT;
    PyObject *v[COUNT], *given = NULL;
    int64_t dim = 0;
    if (arguments(&names, args, count, keywords, v) || take_int64(v[0], "dim", &dim) ||
        take_rotary_options(v + 1, &options)) {
        return NULL;
    }
    if (dim < 0 || dim % 2 != 0) {
        PyErr_Format(PyExc_ValueError, "dim: %lld is not even and at least 0", (long long)dim);
        return NULL;
    }
    const array like = {.kind = KIND_NUMPY};
    const int64_t half = dim / 2;
    array made;
    double scale = 1.0;
    if (array_make(&made, &like, 1, &half, NAPIER_F32)) {
        return NULL;
    }
    const napier_vector inverse = napier_array(made.data, half, NAPIER_F32);
    RUN_FOR(given, names.function, napier_rotary_frequencies(context, &options, inverse, &scale),
            Py_BuildValue("Od", made.object, scale));
    array_release(&made);
    return given;
}

/* (cosines, sines) of positions [T] */
static PyObject *py_rotary_angles(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"rotary_angles", 3, 3, 2, {"positions", "inverse", "scale"}};
    (void)self;
    PyObject *v[3], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_indices positions;
    napier_const_vector inverse;
    napier_matrix cosines, sines;
    array *made_cosines = NULL, *made_sines = NULL;
    double scale = 1.0;
    if (!arguments(&names, args, count, keywords, v) && !call_indices(&c, v[0], "positions", &positions) &&
        !call_vector(&c, v[1], "inverse", &inverse) && !take_double(v[2], "scale", &scale) &&
        !call_made_matrix(&c, positions.size, inverse.size, NAPIER_F32, &made_cosines, &cosines) &&
        !call_made_matrix(&c, positions.size, inverse.size, NAPIER_F32, &made_sines, &sines)) {
        RUN_FOR(given, names.function, napier_rotary_angles(context, inverse, scale, positions, cosines, sines),
                Py_BuildValue("NN", call_object(made_cosines), call_object(made_sines)));
    }
    call_release(&c);
    return given;
}

PyMethodDef layer_functions[] = {
    {"_rms_norm", FAST(py_rms_norm), "See napier.rms_norm."},
    {"_rms_norm_backward", FAST(py_rms_norm_backward), "(grad_x, grad_weight): see napier.rms_norm_backward."},
    {"_swiglu", FAST(py_swiglu), "See napier.swiglu."},
    {"_swiglu_backward", FAST(py_swiglu_backward), "(grad_gate, grad_up): see napier.swiglu_backward."},
    {"_rotary", FAST(py_rotary), "See napier.rotary and napier.rotary_backward."},
    {"rotary_frequencies", FAST(py_rotary_frequencies),
     "rotary_frequencies(dim, *, theta=10000.0, scaling='default', factor=1.0, original_max_position_embeddings=0, "
     "low_freq_factor=1.0, high_freq_factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=0.0, mscale_all_dim=0.0, "
     "attention_factor=0.0, truncate=True)\n--\n\n"
     "(inverse, scale): the frequencies of rotary position embedding, float32 [dim / 2], and the factor of cosines "
     "and\n"
     "sines.\n\n"
     "The arguments are the fields of rope_parameters (rope_scaling) in a model's config.json; `scaling` is its\n"
     "rope_type: 'default', 'linear', 'llama3' or 'yarn'. attention_factor 0 computes it.\n\n"
     "Examples\n--------\n"
     ">>> import napier\n"
     ">>> inverse, scale = napier.rotary_frequencies(4, theta=100.0)\n"
     ">>> [round(f, 4) for f in inverse.tolist()], scale\n"
     "([1.0, 0.1], 1.0)\n"},
    {"_rotary_angles", FAST(py_rotary_angles), "(cosines, sines): see napier.rotary_angles."},
    {NULL, NULL, 0, NULL}};
