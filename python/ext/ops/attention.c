/* attention.c - softmax(Q K^T) V and its gradients, for a batch [B, H, T, D] and for ragged tokens [T, H, D].
 * napier/_ops/attention.py has the names. */
#include "rl.h"

#include <string.h>

/* The arrays of a call. In a batch each sequence takes a call of its own, unless the heads of all sequences have one
 * common stride. Then they are the heads of one sequence. */
typedef struct attention_arrays {
    array *q, *k, *v, *mask; /* mask NULL: none */
    bool ragged;             /* [T, H, D] with offsets; else [B, H, T, D] */
    bool joined;
    int64_t sequences; /* of a batch */
    napier_attention_options options;
} attention_arrays;

static const char *const masked_words[] = {"nan", "zero"};

#define ATTENTION_ARGUMENTS                                                                                  \
    "q", "k", "v", "mask", "scale", "causal", "masked_rows", "query_offsets", "key_offsets", "prefix_begin", \
        "prefix_end"
enum { ATTENTION_ARGUMENT_COUNT = 11 };

/* ---- Views ------------------------------------------------------------------------------------------------------- */

static napier_heads heads_of(const array *a, const attention_arrays *t, int64_t b) {
    const int tokens = t->ragged ? 0 : 2, heads = 1, dim = t->ragged ? 2 : 3;
    const int64_t offset = t->ragged ? 0 : b * a->strides[0];
    const int64_t times = t->joined ? t->sequences : 1;
    return (napier_heads){a->data + offset * (int64_t)napier_dtype_size(a->dtype),
                          a->shape[tokens],
                          a->shape[heads] * times,
                          a->shape[dim],
                          a->strides[tokens],
                          a->strides[heads],
                          a->strides[dim],
                          a->dtype};
}

static napier_const_heads const_heads_of(const array *a, const attention_arrays *t, int64_t b) {
    const napier_heads h = heads_of(a, t, b);
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

/* lse is [T, H] for ragged tokens, [B, H, T] for a batch; contiguous. */
static napier_matrix lse_of(const array *lse, const attention_arrays *t, int64_t b) {
    if (t->ragged) {
        return napier_rows(lse->data, lse->shape[0], lse->shape[1], NAPIER_F32);
    }
    const int64_t heads = lse->shape[1] * (t->joined ? t->sequences : 1), tokens = lse->shape[2];
    char *data = lse->data + b * lse->shape[1] * tokens * (int64_t)sizeof(float);
    return (napier_matrix){data, tokens, heads, 1, tokens, NAPIER_F32};
}

/* The options of sequence b: only the mask differs, [B, H, T, S] for a batch, [H, T, S] for ragged tokens. */
static napier_attention_options options_of(const attention_arrays *t, int64_t b) {
    napier_attention_options o = t->options;
    if (t->mask) {
        const int64_t *s = t->mask->strides + (t->ragged ? 0 : 1);
        const int64_t item = o.mask_is_bytes ? 1 : (int64_t)sizeof(float);
        o.mask = t->mask->data + (t->ragged ? 0 : b * t->mask->strides[0] * item);
        o.mask_head_stride = s[0];
        o.mask_token_stride = s[1];
        o.mask_key_stride = s[2];
        o.mask_keys = t->mask->shape[t->mask->ndim - 1];
    }
    return o;
}

static bool heads_go_on(const array *a) { return a->strides[0] == a->shape[1] * a->strides[1]; }

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int take_offsets(call_arrays *c, PyObject *value, const char *name, int64_t size, const int64_t **out) {
    napier_indices indices;
    *out = NULL;
    if (call_indices(c, value, name, &indices)) {
        return -1;
    }
    if (!value) {
        return 0;
    }
    if (indices.type != NAPIER_I64 || (size >= 0 && indices.size != size) || indices.size < 1) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld int64, got %lld", name, (long long)size,
                     (long long)indices.size);
        return -1;
    }
    *out = indices.data;
    return 0;
}

static int take_mask(call_arrays *c, PyObject *value, attention_arrays *t) {
    t->mask = NULL;
    if (!value) {
        return 0;
    }
    t->mask = call_take(c, value, "mask", TAKE_BYTES | TAKE_SINGLE);
    if (!t->mask) {
        return -1;
    }
    if (t->mask->ndim != (t->ragged ? 3 : 4) || (!t->mask->bytes && t->mask->dtype != NAPIER_F32)) {
        PyErr_SetString(PyExc_ValueError, "mask: expected float32 or bool that broadcasts to heads, queries and keys");
        return -1;
    }
    t->options.mask_is_bytes = t->mask->bytes;
    return 0;
}

static array *take_heads(call_arrays *c, PyObject *value, const char *name, const attention_arrays *t) {
    array *a = call_take(c, value, name, TAKE_SINGLE);
    if (a && a->ndim != (t->ragged ? 3 : 4)) {
        PyErr_Format(PyExc_ValueError, "%s: expected %d dimensions, got %d", name, t->ragged ? 3 : 4, a->ndim);
        return NULL;
    }
    if (a && !t->ragged && a != &c->arrays[0] && a->shape[0] != c->arrays[0].shape[0]) {
        PyErr_Format(PyExc_ValueError, "%s: %lld sequences are not the %lld of q", name, (long long)a->shape[0],
                     (long long)c->arrays[0].shape[0]);
        return NULL;
    }
    return a;
}

static int take_attention(call_arrays *c, PyObject *const *v, attention_arrays *t) {
    const napier_attention_options defaults = NAPIER_ATTENTION_OPTIONS_INIT;
    int masked = NAPIER_MASKED_NAN;
    t->options = defaults;
    t->ragged = v[7] != NULL;
    if (!(t->q = take_heads(c, v[0], "q", t)) || !(t->k = take_heads(c, v[1], "k", t)) ||
        !(t->v = take_heads(c, v[2], "v", t)) || take_mask(c, v[3], t) ||
        take_double(v[4], "scale", &t->options.scale) || take_bool(v[5], "causal", &t->options.causal) ||
        take_word(v[6], "masked_rows", masked_words, 2, NAPIER_MASKED_NAN, &masked)) {
        return -1;
    }
    t->options.masked_rows = (napier_masked_rows)masked;
    t->sequences = t->ragged ? 1 : t->q->shape[0];
    if (t->ragged) {
        if (take_offsets(c, v[7], "query_offsets", -1, &t->options.query_offsets)) {
            return -1;
        }
        const int64_t size = c->arrays[c->count - 1].size;
        t->options.sequences = size - 1;
        if (take_offsets(c, v[8], "key_offsets", size, &t->options.key_offsets) ||
            take_offsets(c, v[9], "prefix_begin", size - 1, &t->options.prefix_begin) ||
            take_offsets(c, v[10], "prefix_end", size - 1, &t->options.prefix_end)) {
            return -1;
        }
    }
    t->joined =
        !t->ragged && heads_go_on(t->q) && heads_go_on(t->k) && heads_go_on(t->v) && (!t->mask || heads_go_on(t->mask));
    return 0;
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

static napier_status attend(napier_context *context, const attention_arrays *t, const array *out, const array *lse) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        status = napier_attention(context, const_heads_of(t->q, t, b), const_heads_of(t->k, t, b),
                                  const_heads_of(t->v, t, b), heads_of(out, t, b), lse_of(lse, t, b), &options);
    }
    return status;
}

/* 16 bits use tensor cores, whose bits are not the CPU's but do not depend on the batch; f32 has the CPU's bits. */
static napier_status attend_on_device(device_call *on, const attention_arrays *t, const array *out, const array *lse) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        DEVICE_CALL(status, on, napier_cuda_attention, const_heads_of(t->q, t, b), const_heads_of(t->k, t, b),
                    const_heads_of(t->v, t, b), heads_of(out, t, b), lse_of(lse, t, b), &options,
                    NAPIER_CUDA_BATCH_INVARIANT);
    }
    return status;
}

static PyObject *pair_of(const array *a, const array *b) { return PyTuple_Pack(2, a->object, b->object); }

/* (output, lse) */
static PyObject *py_attention(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    enum { COUNT = ATTENTION_ARGUMENT_COUNT + 1 };
    static const signature names = {"attention", COUNT, COUNT, 3, {ATTENTION_ARGUMENTS, "bf16_weights"}};
    (void)self;
    PyObject *v[COUNT], *given = NULL;
    int bf16_weights = 0;
    call_arrays c;
    call_start(&c, ANYWHERE);
    attention_arrays t;
    if (!arguments(&names, args, count, keywords, v) && !take_attention(&c, v, &t) &&
        !take_bool(v[ATTENTION_ARGUMENT_COUNT], "bf16_weights", &bf16_weights)) {
        t.options.bf16_weights = bf16_weights;
        int64_t shape[4];
        memcpy(shape, t.q->shape, sizeof shape);
        const int ndim = t.q->ndim;
        array *lse = t.ragged ? call_make(&c, 2, shape, NAPIER_F32) : call_make(&c, 3, shape, NAPIER_F32);
        shape[ndim - 1] = t.v->shape[ndim - 1];
        array *out = lse ? call_make(&c, ndim, shape, t.q->dtype) : NULL;
        if (out && out->size > 0) {
            int failed;
            RUN_EITHER(failed, t.q, names.function, attend(context, &t, out, lse), attend_on_device(&on, &t, out, lse),
                       INT64_MAX);
            given = failed ? NULL : pair_of(out, lse);
        } else if (out) {
            given = pair_of(out, lse);
        }
    }
    call_release(&c);
    return given;
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

typedef struct attention_gradients {
    array *grad, *out, *lse;
    array *q, *k, *v;
} attention_gradients;

static napier_status attend_backward(napier_context *context, const attention_arrays *t, const attention_gradients *g) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        status = napier_attention_backward(context, const_heads_of(g->grad, t, b), const_heads_of(t->q, t, b),
                                           const_heads_of(t->k, t, b), const_heads_of(t->v, t, b),
                                           const_heads_of(g->out, t, b), napier_read_only(lse_of(g->lse, t, b)),
                                           heads_of(g->q, t, b), heads_of(g->k, t, b), heads_of(g->v, t, b), &options);
    }
    return status;
}

static napier_status attend_backward_on_device(device_call *on, const attention_arrays *t,
                                               const attention_gradients *g) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        DEVICE_CALL(status, on, napier_cuda_attention_backward, const_heads_of(g->grad, t, b),
                    const_heads_of(t->q, t, b), const_heads_of(t->k, t, b), const_heads_of(t->v, t, b),
                    const_heads_of(g->out, t, b), napier_read_only(lse_of(g->lse, t, b)), heads_of(g->q, t, b),
                    heads_of(g->k, t, b), heads_of(g->v, t, b), &options);
    }
    return status;
}

/* _attention_backward(q, .., prefix_end, grad_output, output, lse, bf16_gradient): (grad_q, grad_k, grad_v) */
static PyObject *py_attention_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    enum { COUNT = ATTENTION_ARGUMENT_COUNT + 4 };
    static const signature names = {
        "attention_backward", COUNT, COUNT, 3, {ATTENTION_ARGUMENTS, "grad_output", "output", "lse", "bf16_gradient"}};
    (void)self;
    PyObject *v[COUNT], *given = NULL;
    int bf16_gradient = 0;
    call_arrays c;
    call_start(&c, ANYWHERE);
    attention_arrays t;
    attention_gradients g;
    if (!arguments(&names, args, count, keywords, v) && !take_attention(&c, v, &t) &&
        (g.grad = take_heads(&c, v[11], "grad_output", &t)) && (g.out = take_heads(&c, v[12], "output", &t)) &&
        (g.lse = call_take(&c, v[13], "lse", TAKE_SINGLE)) && !take_bool(v[14], "bf16_gradient", &bf16_gradient) &&
        (g.q = call_make(&c, t.q->ndim, t.q->shape, t.q->dtype)) &&
        (g.k = call_make(&c, t.k->ndim, t.k->shape, t.k->dtype)) &&
        (g.v = call_make(&c, t.v->ndim, t.v->shape, t.v->dtype))) {
        t.joined = t.joined && heads_go_on(g.grad) && heads_go_on(g.out);
        t.options.bf16_gradient = bf16_gradient;
        if (!array_is_contiguous(g.lse) || g.lse->ndim != t.q->ndim - 1) {
            PyErr_SetString(PyExc_ValueError, "lse: not that of the forward call");
        } else {
            int failed;
            RUN_EITHER(failed, t.q, names.function, attend_backward(context, &t, &g),
                       attend_backward_on_device(&on, &t, &g), INT64_MAX);
            given = failed ? NULL : PyTuple_Pack(3, g.q->object, g.k->object, g.v->object);
        }
    }
    call_release(&c);
    return given;
}

PyMethodDef attention_functions[] = {
    {"_attention", FAST(py_attention), "(output, lse): see napier.attention."},
    {"_attention_backward", FAST(py_attention_backward), "(grad_q, grad_k, grad_v): see napier.attention_backward."},
    {NULL, NULL, 0, NULL}};
