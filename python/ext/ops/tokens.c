/* tokens.c - log-probabilities of tokens, from logits and from hidden states; the matrix product; gather. These
 * functions take matrices and return plain tuples. napier/rl.py adds names, defaults and any number of leading
 * dimensions. */
#include "rl.h"

#include <string.h>

/* ---- Options and results that several functions share ------------------------------------------------------------ */

#define TOKEN_OPTIONS "temperature", "softcap", "ignore_index", "label_smoothing", "z_loss", "keep"
enum { TOKEN_OPTION_COUNT = 6 };

/* keep: [V] for all rows or [N, V]. */
static int take_keep(call_arrays *c, PyObject *value, int64_t rows, int64_t cols, const uint8_t **bytes,
                     int64_t *stride) {
    const array *keep = call_take(c, value, "keep", TAKE_BYTES);
    if (!keep) {
        return value ? -1 : 0;
    }
    const bool one = keep->ndim == 1 && keep->shape[0] == cols;
    const bool each = keep->ndim == 2 && keep->shape[0] == rows && keep->shape[1] == cols;
    if (!(one || each) || (cols > 1 && keep->strides[keep->ndim - 1] != 1) || (each && keep->strides[0] < 0)) {
        PyErr_SetString(PyExc_ValueError, "keep: expected a bool array of the logits' shape, or one row of it");
        return -1;
    }
    *bytes = (const uint8_t *)keep->data;
    *stride = each ? keep->strides[0] : 0;
    return 0;
}

static int take_token_options(call_arrays *c, PyObject *const *v, int64_t rows, int64_t cols,
                              napier_token_options *options) {
    return take_double(v[0], "temperature", &options->temperature) || take_double(v[1], "softcap", &options->softcap) ||
                   take_int64(v[2], "ignore_index", &options->ignore_index) ||
                   take_double(v[3], "label_smoothing", &options->label_smoothing) ||
                   take_double(v[4], "z_loss", &options->z_loss) ||
                   take_keep(c, v[5], rows, cols, &options->keep, &options->keep_stride)
               ? -1
               : 0;
}

/* The requested results, as bits of `want`. */
enum { WANT_LSE = 1, WANT_ENTROPY = 2, WANT_LOSS = 4, WANT_ARGMAX = 8, WANT_RANK = 16, WANT_FINALS = 32 };
enum { LOGPROBS, LSE, ENTROPY, LOSS, ARGMAX, RANK, TOP_IDS, TOP_LOGPROBS, FINALS, CHOSEN, TOKEN_RESULTS };

typedef struct token_outputs {
    array *made[TOKEN_RESULTS];
    napier_token_results results;
} token_outputs;

static int make_integers(call_arrays *c, int64_t rows, int64_t cols, array **made, int64_t **out) {
    const int64_t shape[2] = {rows, cols};
    *made = call_make_integers(c, cols >= 0 ? 2 : 1, shape);
    *out = *made ? (int64_t *)(void *)(*made)->data : NULL;
    return *made ? 0 : -1;
}

/* What the backward call from hidden states need not compute again. */
static int make_finals(call_arrays *c, int64_t rows, int64_t ids, token_outputs *o) {
    napier_matrix chosen = {0};
    if (make_integers(c, rows, NAPIER_TOKEN_FINAL_WORDS, &o->made[FINALS], &o->results.finals) ||
        (ids > 0 && call_made_matrix(c, rows, ids, NAPIER_F32, &o->made[CHOSEN], &chosen))) {
        return -1;
    }
    o->results.chosen = chosen.data;
    return 0;
}

static int make_token_outputs(call_arrays *c, int64_t rows, int64_t ids, int want, int64_t top_k, token_outputs *o) {
    napier_token_results *r = &o->results;
    const bool each = ids > 0;
    memset(o->made, 0, sizeof o->made);
    r->top_k = top_k;
    return (each && call_made_matrix(c, rows, ids, NAPIER_F32, &o->made[LOGPROBS], &r->logprobs)) ||
                   (want & WANT_LSE && call_made_vector(c, rows, NAPIER_F32, &o->made[LSE], &r->lse)) ||
                   (want & WANT_ENTROPY && call_made_vector(c, rows, NAPIER_F32, &o->made[ENTROPY], &r->entropy)) ||
                   (want & WANT_LOSS && call_made_vector(c, rows, NAPIER_F32, &o->made[LOSS], &r->loss)) ||
                   (want & WANT_ARGMAX && make_integers(c, rows, -1, &o->made[ARGMAX], &r->argmax)) ||
                   (want & WANT_FINALS && make_finals(c, rows, ids, o)) ||
                   (each && want & WANT_RANK && make_integers(c, rows, ids, &o->made[RANK], &r->rank)) ||
                   (top_k > 0 &&
                    (make_integers(c, rows, top_k, &o->made[TOP_IDS], &r->top_ids) ||
                     call_made_matrix(c, rows, top_k, NAPIER_F32, &o->made[TOP_LOGPROBS], &r->top_logprobs)))
               ? -1
               : 0;
}

static PyObject *token_tuple(const token_outputs *o) {
    PyObject *tuple = PyTuple_New(TOKEN_RESULTS);
    for (int i = 0; tuple && i < TOKEN_RESULTS; i++) {
        if (PyTuple_SetItem(tuple, i, call_object(o->made[i]))) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* The number of ids per row; -1 with an error set if it is not an integer. */
static int64_t ids_per_row(napier_indices ids, int64_t rows) {
    if (rows > 0 ? ids.size % rows != 0 : ids.size != 0) {
        PyErr_Format(PyExc_ValueError, "ids: %lld are not a whole number for each of %lld rows", (long long)ids.size,
                     (long long)rows);
        return -1;
    }
    return rows > 0 ? ids.size / rows : 0;
}

/* ---- From logits, and from hidden states and weights ------------------------------------------------------------- */

/* Uses tensor cores: the bits of a row differ from the CPU's, but do not depend on the batch. */
static napier_status cuda_linear(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                 napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
                                 const napier_token_results *results) {
    return napier_cuda_linear_token_logprobs(context, stream, workspace, hidden, weights, ids, options, results,
                                             NAPIER_CUDA_BATCH_INVARIANT);
}

static napier_status cuda_linear_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                          napier_const_matrix weights, napier_indices ids,
                                          const napier_token_options *options, const napier_token_gradients *gradients,
                                          napier_matrix grad_hidden, napier_matrix grad_weights) {
    return napier_cuda_linear_token_logprobs_backward(context, stream, workspace, hidden, weights, ids, options,
                                                      gradients, grad_hidden, grad_weights,
                                                      NAPIER_CUDA_BATCH_INVARIANT);
}

/* Refuses an option that a GPU does not have. */
static int check_on_host(const array *like, const char *function, const char *option, int given) {
    if (given && array_on_device(like)) {
        PyErr_Format(PyExc_NotImplementedError, "%s: %s is for arrays on the CPU only", function, option);
        return -1;
    }
    return 0;
}

/* weights NULL: x are logits; else hidden states. */
static PyObject *token_forward(const char *function, PyObject *const *v, PyObject *weights, PyObject *split) {
    call_arrays c;
    call_start(&c, ANYWHERE);
    token_outputs o = {.results = NAPIER_TOKEN_RESULTS_INIT};
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix x, w = {0};
    napier_indices ids;
    int want = 0, splits = 0;
    int64_t top_k = 0, each = 0;
    PyObject *given = NULL;
    if (call_matrix(&c, v[0], weights ? "hidden" : "logits", &x) ||
        (weights && call_matrix(&c, weights, "weights", &w)) || call_indices(&c, v[1], "ids", &ids) ||
        (each = ids_per_row(ids, x.rows)) < 0 ||
        take_token_options(&c, v + 2, x.rows, weights ? w.rows : x.cols, &options) ||
        take_int(v[2 + TOKEN_OPTION_COUNT], "want", &want) || take_int64(v[3 + TOKEN_OPTION_COUNT], "top_k", &top_k) ||
        take_bool(split, "split", &splits) || check_on_host(&c.arrays[0], function, "split", splits) ||
        make_token_outputs(&c, x.rows, each, want, top_k, &o)) {
        call_release(&c);
        return NULL;
    }
    options.split = splits;
    if (weights) {
        RUN_ANYWHERE_FOR(given, token_tuple(&o), &c.arrays[0], function, napier_linear_token_logprobs, cuda_linear, x,
                         w, ids, &options, &o.results);
    } else {
        RUN_ANYWHERE_FOR(given, token_tuple(&o), &c.arrays[0], function, napier_token_logprobs,
                         napier_cuda_token_logprobs, x, ids, &options, &o.results);
    }
    call_release(&c);
    return given;
}

static PyObject *py_token_logprobs(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"token_logprobs", 10, 10, 1, {"logits", "ids", TOKEN_OPTIONS, "want", "top_k"}};
    (void)self;
    PyObject *v[10];
    return arguments(&names, args, count, keywords, v) ? NULL : token_forward(names.function, v, NULL, NULL);
}

static PyObject *py_linear_token_logprobs(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "linear_token_logprobs", 12, 12, 2, {"hidden", "weights", "ids", TOKEN_OPTIONS, "want", "top_k", "split"}};
    (void)self;
    PyObject *v[12];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    PyObject *weights = v[1];
    v[1] = v[0]; /* in the order of token_forward: x, ids, options */
    return token_forward(names.function, v + 1, weights, v[11]);
}

/* ---- Their gradients --------------------------------------------------------------------------------------------- */

#define TOKEN_GRADIENTS "grad_logprobs", "grad_lse", "grad_entropy", "grad_loss"

static int take_token_gradients(call_arrays *c, PyObject *const *v, napier_token_gradients *g) {
    return call_matrix(c, v[0], "grad_logprobs", &g->logprobs) || call_vector(c, v[1], "grad_lse", &g->lse) ||
                   call_vector(c, v[2], "grad_entropy", &g->entropy) || call_vector(c, v[3], "grad_loss", &g->loss)
               ? -1
               : 0;
}

static PyObject *py_token_logprobs_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                            PyObject *keywords) {
    static const signature names = {
        "token_logprobs_backward", 13, 13, 1, {"logits", "ids", TOKEN_OPTIONS, TOKEN_GRADIENTS, "out"}};
    (void)self;
    PyObject *v[13];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix x, given_out = {0};
    napier_matrix grad;
    napier_indices ids;
    array *made = NULL;
    PyObject *given = NULL;
    if (call_matrix(&c, v[0], "logits", &x) || call_indices(&c, v[1], "ids", &ids) ||
        take_token_options(&c, v + 2, x.rows, x.cols, &options) || take_token_gradients(&c, v + 8, &gradients)) {
        call_release(&c);
        return NULL;
    }
    if (v[12]) {
        made = call_take(&c, v[12], "out", TAKE_FLOATS | TAKE_WRITABLE);
        if (made && array_matrix(made, "out", &given_out)) {
            made = NULL;
        }
        grad = writable_matrix(given_out);
    } else if (call_made_matrix(&c, x.rows, x.cols, x.dtype, &made, &grad)) {
        made = NULL;
    }
    if (made) {
        RUN_ANYWHERE_FOR(given, v[12] ? Py_NewRef(v[12]) : call_object(made), &c.arrays[0], names.function,
                         napier_token_logprobs_backward, napier_cuda_token_logprobs_backward, x, ids, &options,
                         &gradients, grad);
    }
    call_release(&c);
    return given;
}

/* finals and chosen as linear_token_logprobs made them; NULL if absent. */
static int take_finals(call_arrays *c, PyObject *const *v, int64_t rows, int64_t ids, napier_token_gradients *g) {
    const array *finals = call_take(c, v[0], "finals", TAKE_INTEGERS);
    const array *chosen = !PyErr_Occurred() ? call_take(c, v[1], "chosen", TAKE_FLOATS) : NULL;
    if (PyErr_Occurred()) {
        return -1;
    }
    if (finals && (finals->integer != NAPIER_I64 || !array_is_contiguous(finals) ||
                   finals->size != rows * NAPIER_TOKEN_FINAL_WORDS)) {
        PyErr_Format(PyExc_ValueError, "finals: expected %lld contiguous int64",
                     (long long)(rows * NAPIER_TOKEN_FINAL_WORDS));
        return -1;
    }
    if (chosen && (chosen->dtype != NAPIER_F32 || !array_is_contiguous(chosen) || chosen->size != ids)) {
        PyErr_Format(PyExc_ValueError, "chosen: expected %lld contiguous float32", (long long)ids);
        return -1;
    }
    g->finals = finals ? (const int64_t *)(const void *)finals->data : NULL;
    g->chosen = chosen ? (const float *)(const void *)chosen->data : NULL;
    return 0;
}

/* (grad_hidden, grad_weights), each of its input's dtype. */
static PyObject *py_linear_token_logprobs_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                                   PyObject *keywords) {
    static const signature names = {
        "linear_token_logprobs_backward",
        16,
        13,
        2,
        {"hidden", "weights", "ids", TOKEN_OPTIONS, TOKEN_GRADIENTS, "bf16_gradient", "finals", "chosen"}};
    (void)self;
    PyObject *v[16];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix x, w;
    napier_matrix grad_hidden, grad_weights;
    napier_indices ids;
    array *hidden = NULL, *weights = NULL;
    PyObject *given = NULL;
    int bf16_gradient = 0;
    if (!call_matrix(&c, v[0], "hidden", &x) && !call_matrix(&c, v[1], "weights", &w) &&
        !call_indices(&c, v[2], "ids", &ids) && !take_token_options(&c, v + 3, x.rows, w.rows, &options) &&
        !take_token_gradients(&c, v + 9, &gradients) && !take_bool(v[13], "bf16_gradient", &bf16_gradient) &&
        !check_on_host(&c.arrays[0], names.function, "bf16_gradient", bf16_gradient) &&
        !take_finals(&c, v + 14, x.rows, ids.size, &gradients) &&
        !call_made_matrix(&c, x.rows, x.cols, x.dtype, &hidden, &grad_hidden) &&
        !call_made_matrix(&c, w.rows, w.cols, w.dtype, &weights, &grad_weights)) {
        options.bf16_gradient = bf16_gradient;
        RUN_ANYWHERE_FOR(given, PyTuple_Pack(2, hidden->object, weights->object), &c.arrays[0], names.function,
                         napier_linear_token_logprobs_backward, cuda_linear_backward, x, w, ids, &options, &gradients,
                         grad_hidden, grad_weights);
    }
    call_release(&c);
    return given;
}

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

/* Integers that may be absent. */
static int take_integers(call_arrays *c, PyObject *value, const char *name, napier_indices *out) {
    return value ? call_indices(c, value, name, out) : 0;
}

static int take_sample_options(call_arrays *c, PyObject *const *v, int64_t rows, int64_t cols,
                               napier_sample_options *o) {
    return take_double(v[0], "temperature", &o->temperature) || take_int64(v[1], "top_k", &o->top_k) ||
                   take_double(v[2], "top_p", &o->top_p) || take_double(v[3], "min_p", &o->min_p) ||
                   take_double(v[4], "repetition_penalty", &o->repetition_penalty) ||
                   take_double(v[5], "presence_penalty", &o->presence_penalty) ||
                   take_double(v[6], "frequency_penalty", &o->frequency_penalty) ||
                   take_keep(c, v[7], rows, cols, &o->keep, &o->keep_stride) ||
                   take_integers(c, v[8], "prompts", &o->prompt_ids) ||
                   take_integers(c, v[9], "prompt_offsets", &o->prompt_offsets) ||
                   take_integers(c, v[10], "outputs", &o->output_ids) ||
                   take_integers(c, v[11], "output_offsets", &o->output_offsets) ||
                   take_int64(v[12], "seed", &o->seed) || take_integers(c, v[13], "seeds", &o->seeds) ||
                   take_integers(c, v[14], "samples", &o->samples) ||
                   take_integers(c, v[15], "positions", &o->positions)
               ? -1
               : 0;
}

/* (ids, logprobs, plain_logprobs), each [N]. */
static PyObject *py_sample(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"sample",
                                    17,
                                    17,
                                    1,
                                    {"logits", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                                     "presence_penalty", "frequency_penalty", "keep", "prompts", "prompt_offsets",
                                     "outputs", "output_offsets", "seed", "seeds", "samples", "positions"}};
    (void)self;
    PyObject *v[17];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    napier_const_matrix x;
    array *ids = NULL, *logprobs = NULL, *plain = NULL;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[0], "logits", &x) && !take_sample_options(&c, v + 1, x.rows, x.cols, &options) &&
        !make_integers(&c, x.rows, -1, &ids, &results.ids) &&
        !call_made_vector(&c, x.rows, NAPIER_F32, &logprobs, &results.logprobs) &&
        !call_made_vector(&c, x.rows, NAPIER_F32, &plain, &results.plain_logprobs)) {
        RUN_ANYWHERE_FOR(given, PyTuple_Pack(3, ids->object, logprobs->object, plain->object), &c.arrays[0],
                         names.function, napier_sample, napier_cuda_sample, x, &options, &results);
    }
    call_release(&c);
    return given;
}

/* ---- Matrix product, gather -------------------------------------------------------------------------------------- */

/* With the CPU's bits. */
static napier_status cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix a, napier_const_matrix b,
                                 napier_matrix product) {
    return napier_cuda_matmul(context, stream, workspace, a, b, product, NAPIER_CUDA_BITWISE);
}

static PyObject *py_matmul(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"matmul", 4, 2, 2, {"a", "b", "dtype", "split"}};
    (void)self;
    PyObject *v[4];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_matrix a, b;
    napier_matrix product;
    array *made = NULL;
    PyObject *given = NULL;
    int split = 0;
    if (!call_matrix(&c, v[0], "a", &a) && !call_matrix(&c, v[1], "b", &b)) {
        napier_dtype dtype = a.dtype == b.dtype ? a.dtype : NAPIER_F32;
        if (!take_dtype(v[2], "dtype", &dtype) && !take_bool(v[3], "split", &split) &&
            !check_on_host(&c.arrays[0], names.function, "split", split) &&
            !call_made_matrix(&c, a.rows, b.cols, dtype, &made, &product)) {
            RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function,
                             (split ? napier_matmul_split : napier_matmul), cuda_matmul, a, b, product);
        }
    }
    call_release(&c);
    return given;
}

static PyObject *py_gather_logprobs(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"gather_logprobs", 2, 2, 2, {"logprobs", "ids"}};
    (void)self;
    PyObject *v[2];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_matrix logprobs;
    napier_indices ids;
    napier_vector gathered;
    array *made = NULL;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[0], "logprobs", &logprobs) && !call_indices(&c, v[1], "ids", &ids) &&
        !call_made_vector(&c, logprobs.rows, logprobs.dtype, &made, &gathered)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_gather_logprobs,
                         napier_cuda_gather_logprobs, logprobs, ids, gathered);
    }
    call_release(&c);
    return given;
}

static PyObject *py_gather_logprobs_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                             PyObject *keywords) {
    static const signature names = {"gather_logprobs_backward", 3, 3, 3, {"grad_gathered", "ids", "vocabulary"}};
    (void)self;
    PyObject *v[3];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_vector gathered;
    napier_indices ids;
    napier_matrix grad;
    int64_t vocabulary = 0;
    array *made = NULL;
    PyObject *given = NULL;
    if (!call_vector(&c, v[0], "grad_gathered", &gathered) && !call_indices(&c, v[1], "ids", &ids) &&
        !take_int64(v[2], "vocabulary", &vocabulary) &&
        !call_made_matrix(&c, gathered.size, vocabulary, gathered.dtype, &made, &grad)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_gather_logprobs_backward,
                         napier_cuda_gather_logprobs_backward, gathered, ids, grad);
    }
    call_release(&c);
    return given;
}

PyMethodDef token_functions[] = {
    {"token_logprobs", FAST(py_token_logprobs), NULL},
    {"token_logprobs_backward", FAST(py_token_logprobs_backward),
     "token_logprobs_backward(logits, ids=None, temperature=1.0, softcap=0.0, ignore_index=-100, label_smoothing=0.0, "
     "z_loss=0.0, keep=None, grad_logprobs=None, grad_lse=None, grad_entropy=None, grad_loss=None, out=None)\n--\n\n"
     "The gradient with respect to the logits [N, V], given those with respect to results of token_logprobs: "
     "grad_logprobs\n"
     "[N, K], the others [N]. out: where it goes; may be the logits."
     "\n\nExamples\n--------\n"
     ">>> import numpy as np, napier\n"
     ">>> logits = np.zeros((1, 2), np.float32)\n"
     ">>> napier.rl.token_logprobs_backward(logits, [1], grad_logprobs=np.ones((1, 1), np.float32)).tolist()\n"
     "[[-0.5, 0.5]]\n"},
    {"linear_token_logprobs", FAST(py_linear_token_logprobs), NULL},
    {"sample", FAST(py_sample), NULL},
    {"linear_token_logprobs_backward", FAST(py_linear_token_logprobs_backward),
     "linear_token_logprobs_backward(hidden, weights, ids=None, temperature=1.0, softcap=0.0, ignore_index=-100, "
     "label_smoothing=0.0, z_loss=0.0, keep=None, grad_logprobs=None, grad_lse=None, grad_entropy=None, "
     "grad_loss=None, *, bf16_gradient=False, finals=None, chosen=None)\n--\n\n"
     "(grad_hidden [N, H], grad_weights [V, H]), given gradients with respect to results of linear_token_logprobs. "
     "Logits are\n"
     "computed again, tile by tile. bf16_gradient: hidden and weights are bfloat16, and the gradient of the logits is\n"
     "rounded to bfloat16, as PyTorch does; its products then run on matrix engines. On the CPU only.\n"
     "finals, chosen: for napier.torch, which has them from the forward call."
     "\n\nExamples\n--------\n"
     ">>> import numpy as np, napier\n"
     ">>> hidden, weights = np.array([[1, 0]], np.float32), np.zeros((2, 2), np.float32)\n"
     ">>> ones = np.ones((1, 1), np.float32)\n"
     ">>> _, grad_weights = napier.rl.linear_token_logprobs_backward(hidden, weights, [1], grad_logprobs=ones)\n"
     ">>> grad_weights.tolist()\n"
     "[[-0.5, 0.0], [0.5, 0.0]]\n"},
    {"matmul", FAST(py_matmul),
     "matmul(a, b, *, dtype=None, split=False)\n--\n\n"
     "The matrix product a [M, K] @ b [K, N] in a fixed order: the bits of an element depend on its row and its column "
     "only.\n"
     "Of float32, float16 and bfloat16; dtype is the result's (default: a's, or float32 where b's is another).\n"
     "split: one operand is bfloat16, and the other is multiplied as three pieces of bfloat16. That has the accuracy "
     "of "
     "float32 and\n"
     "runs on matrix engines (napier_matmul_split). On the CPU only.\n"
     "\n"
     "Examples\n"
     "--------\n"
     ">>> import numpy as np, napier\n"
     ">>> napier.matmul(np.eye(2, dtype='f4'), np.array([[1, 2], [3, 4]], 'f4')).tolist()\n"
     "[[1.0, 2.0], [3.0, 4.0]]"},
    {"gather_logprobs", FAST(py_gather_logprobs), NULL},
    {"gather_logprobs_backward", FAST(py_gather_logprobs_backward),
     "gather_logprobs_backward(grad_gathered, ids, vocabulary)\n--\n\n"
     "The gradient [N, vocabulary] of gather_logprobs: grad_gathered[i] at ids[i], 0 elsewhere."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.rl.gather_logprobs_backward([1.0, 2.0], [2, 0], 3).tolist()\n"
     "[[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]\n"},
    {NULL, NULL, 0, NULL}};
