/* attention.c - softmax(Q K^T) V and its gradients, for a batch [B, H, T, D] and for ragged tokens [T, H, D].
 * napier/_ops/attention.py has the names. */
#include "softmax.h"

#include <string.h>

/* The arrays of a call. In a batch each sequence takes a call of its own, unless the heads of all sequences have one
 * common stride. Then they are the heads of one sequence. */
typedef struct attention_arrays {
    array *q, *k, *v, *mask; /* mask NULL: none */
    array *grad_lse;         /* NULL: 0 */
    array *offsets[4];       /* of queries and keys, begins and ends of prefixes; NULL: none */
    bool ragged;             /* [T, H, D] with offsets; else [B, H, T, D] */
    bool joined;
    int64_t sequences; /* of a batch */
    napier_attention_options options;
} attention_arrays;

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

/* The options of sequence b: only the mask and grad_lse differ. The mask is [B, H, T, S] for a batch, [H, T, S] for ragged
 * tokens. */
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
    if (t->grad_lse) {
        o.grad_lse = napier_read_only(lse_of(t->grad_lse, t, b));
    }
    return o;
}

static bool heads_go_on(const array *a) { return a->strides[0] == a->shape[1] * a->strides[1]; }

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

#define ATTENTION_ARGUMENTS                                                                        \
    ARRAY("q", t.q, TAKE_SINGLE), ARRAY("k", t.k, TAKE_SINGLE), ARRAY("v", t.v, TAKE_SINGLE),      \
        ARRAY("mask", t.mask, TAKE_BYTES | TAKE_SINGLE), ARG("scale", t.options.scale),            \
        ARG("causal", t.options.causal), WORD("masked_rows", t.options.masked_rows, masked_words), \
        OFFSETS("query_offsets", t.offsets[0]), OFFSETS("key_offsets", t.offsets[1]),              \
        OFFSETS("prefix_begin", t.offsets[2]), OFFSETS("prefix_end", t.offsets[3])
#define OFFSETS(name_, x_) ARRAY(name_, x_, TAKE_INTEGERS | TAKE_CONTIGUOUS)

/* size < 0: any, but 0. */
static const int64_t *offsets_of(py_call *c, const array *a, const char *name, int64_t size) {
    if (a && !c->failed && (a->integer != NAPIER_I64 || (size >= 0 && a->size != size) || a->size < 1)) {
        call_refuse(c, PyExc_ValueError, "%s: expected %lld int64, got %lld", name, (long long)size,
                    (long long)a->size);
    }
    return a ? (const int64_t *)(const void *)a->data : NULL;
}

static void check_heads(py_call *c, const array *a, const char *name, const attention_arrays *t) {
    const int ndim = t->ragged ? 3 : 4;
    if (c->failed || !a) {
        return;
    }
    if (a->ndim != ndim) {
        call_refuse(c, PyExc_ValueError, "%s: expected %d dimensions, got %d", name, ndim, a->ndim);
    } else if (!t->ragged && a->shape[0] != t->q->shape[0]) {
        call_refuse(c, PyExc_ValueError, "%s: %lld sequences are not the %lld of q", name, (long long)a->shape[0],
                    (long long)t->q->shape[0]);
    }
}

/* lse and its gradient are f32, [B, H, T] or [T, H]. */
static void check_lse(py_call *c, const array *lse, const char *name, const attention_arrays *t) {
    if (c->failed) {
        return;
    }
    array want = *t->q;
    want.ndim--;
    if (!lse || !same_shape(lse, &want) || lse->dtype != NAPIER_F32 || !array_is_contiguous(lse)) {
        call_refuse(c, PyExc_ValueError, "%s: not that of the forward call", name);
    }
}

/* Checks what the table of arguments took. */
static void check_attention(py_call *c, attention_arrays *t) {
    const array *const mask = t->mask;
    t->ragged = t->offsets[0] != NULL;
    check_heads(c, t->q, "q", t);
    check_heads(c, t->k, "k", t);
    check_heads(c, t->v, "v", t);
    if (!c->failed && mask && (mask->ndim != (t->ragged ? 3 : 4) || (!mask->bytes && mask->dtype != NAPIER_F32))) {
        call_refuse(c, PyExc_ValueError, "mask: expected float32 or bool that broadcasts to heads, queries and keys");
    }
    if (c->failed) {
        return;
    }
    t->options.mask_is_bytes = mask && mask->bytes;
    t->sequences = t->ragged ? 1 : t->q->shape[0];
    if (t->ragged) {
        const int64_t size = t->offsets[0]->size;
        t->options.sequences = size - 1;
        t->options.query_offsets = offsets_of(c, t->offsets[0], "query_offsets", -1);
        t->options.key_offsets = offsets_of(c, t->offsets[1], "key_offsets", size);
        t->options.prefix_begin = offsets_of(c, t->offsets[2], "prefix_begin", size - 1);
        t->options.prefix_end = offsets_of(c, t->offsets[3], "prefix_end", size - 1);
    }
    t->joined =
        !t->ragged && heads_go_on(t->q) && heads_go_on(t->k) && heads_go_on(t->v) && (!mask || heads_go_on(mask));
}

/* Runs function_(context, on, &t, ..) on the host or on a GPU. */
#define ATTEND(function_, ...)                                                         \
    do {                                                                               \
        int wrong_;                                                                    \
        RUN_EITHER(wrong_, t.q, c.function, function_(context, NULL, &t, __VA_ARGS__), \
                   function_(NULL, &on, &t, __VA_ARGS__), INT64_MAX);                  \
        c.failed = wrong_ != 0;                                                        \
    } while (0)

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* On a GPU (on; NULL: on the host) 16 bits use tensor cores, whose bits are not the CPU's but do not depend on the batch; f32
 * has the CPU's bits. */
static napier_status attend(napier_context *context, device_call *on, const attention_arrays *t, const array *out,
                            const array *lse) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        const napier_const_heads q = const_heads_of(t->q, t, b), k = const_heads_of(t->k, t, b),
                                 v = const_heads_of(t->v, t, b);
        const napier_heads result = heads_of(out, t, b);
        if (on) {
            DEVICE_CALL(status, on, napier_cuda_attention, q, k, v, result, lse_of(lse, t, b), &options,
                        NAPIER_CUDA_BATCH_INVARIANT);
        } else {
            status = napier_attention(context, q, k, v, result, lse_of(lse, t, b), &options);
        }
    }
    return status;
}

/* (output, lse) */
PYTHON_FUNCTION(attention) {
    attention_arrays t = {.options = NAPIER_ATTENTION_OPTIONS_INIT};
    TAKE("attention", 12, 3, ANYWHERE, ATTENTION_ARGUMENTS, BOOL("bf16_weights", t.options.bf16_weights))
    check_attention(&c, &t);
    if (c.failed) {
        return call_end(&c);
    }
    const int ndim = t.q->ndim;
    int64_t shape[4];
    memcpy(shape, t.q->shape, sizeof shape);
    shape[ndim - 1] = t.v->shape[ndim - 1];
    const array *const out = make_array(&c, ndim, shape, t.q->dtype);
    const array *const lse = make_array(&c, t.ragged ? 2 : 3, t.q->shape, NAPIER_F32);
    if (!c.failed && out->size > 0) {
        ATTEND(attend, out, lse);
    }
    return call_end(&c);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

typedef struct attention_gradients {
    array *grad, *out, *lse;
    array *q, *k, *v;
} attention_gradients;

static napier_status attend_backward(napier_context *context, device_call *on, const attention_arrays *t,
                                     const attention_gradients *g) {
    napier_status status = NAPIER_OK;
    for (int64_t b = 0; b < (t->joined ? 1 : t->sequences) && !status; b++) {
        const napier_attention_options options = options_of(t, b);
        const napier_const_heads grad = const_heads_of(g->grad, t, b), q = const_heads_of(t->q, t, b),
                                 k = const_heads_of(t->k, t, b), v = const_heads_of(t->v, t, b),
                                 out = const_heads_of(g->out, t, b);
        const napier_heads grad_q = heads_of(g->q, t, b), grad_k = heads_of(g->k, t, b), grad_v = heads_of(g->v, t, b);
        const napier_const_matrix lse = napier_read_only(lse_of(g->lse, t, b));
        if (on) {
            DEVICE_CALL(status, on, napier_cuda_attention_backward, grad, q, k, v, out, lse, grad_q, grad_k, grad_v,
                        &options);
        } else {
            status = napier_attention_backward(context, grad, q, k, v, out, lse, grad_q, grad_k, grad_v, &options);
        }
    }
    return status;
}

/* (grad_q, grad_k, grad_v) */
PYTHON_FUNCTION(attention_backward) {
    attention_arrays t = {.options = NAPIER_ATTENTION_OPTIONS_INIT};
    attention_gradients g;
    TAKE("attention_backward", 16, 3, ANYWHERE, ATTENTION_ARGUMENTS, ARRAY("grad_output", g.grad, TAKE_SINGLE),
         ARRAY("output", g.out, TAKE_SINGLE), ARRAY("lse", g.lse, TAKE_SINGLE),
         BOOL("bf16_gradient", t.options.bf16_gradient), ARRAY("grad_lse", t.grad_lse, TAKE_SINGLE | TAKE_CONTIGUOUS))
    check_attention(&c, &t);
    check_heads(&c, g.grad, "grad_output", &t);
    check_heads(&c, g.out, "output", &t);
    check_lse(&c, g.lse, "lse", &t);
    if (t.grad_lse) {
        check_lse(&c, t.grad_lse, "grad_lse", &t);
    }
    if (!c.failed && !(g.grad && g.out)) {
        call_refuse(&c, PyExc_ValueError, "%s: missing", g.grad ? "output" : "grad_output");
    }
    if (c.failed) {
        return call_end(&c);
    }
    g.q = make_array(&c, t.q->ndim, t.q->shape, t.q->dtype);
    g.k = make_array(&c, t.k->ndim, t.k->shape, t.k->dtype);
    g.v = make_array(&c, t.v->ndim, t.v->shape, t.v->dtype);
    t.joined = t.joined && heads_go_on(g.grad) && heads_go_on(g.out);
    if (!c.failed) {
        ATTEND(attend_backward, &g);
    }
    return call_end(&c);
}

PyMethodDef attention_functions[] = {ENTRY_AS("_attention", attention),
                                     ENTRY_AS("_attention_backward", attention_backward), ENTRY_END};
