/* shards.c - the functions of napier/shards.h, for napier/torch/distributed.py. All outputs are the caller's tensors. */
#include "rl.h"

#include <napier/shards.h>

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int out_matrix(call_arrays *c, PyObject *value, const char *name, napier_matrix *out) {
    const array *a = call_take(c, value, name, TAKE_FLOATS | TAKE_WRITABLE);
    napier_const_matrix m = {0};
    if (!a || array_matrix(a, name, &m)) {
        *out = writable_matrix(m);
        return value ? -1 : 0;
    }
    *out = writable_matrix(m);
    return 0;
}

static int out_vector(call_arrays *c, PyObject *value, const char *name, napier_vector *out) {
    const array *a = call_take(c, value, name, TAKE_FLOATS | TAKE_WRITABLE);
    napier_const_vector v = {0};
    if (!a || array_vector(a, name, &v)) {
        *out = writable_vector(v);
        return value ? -1 : 0;
    }
    *out = writable_vector(v);
    return 0;
}

/* int64 [rows * words], contiguous. The pointer may be NULL without rows. Returns -1 with an error set. */
static int take_words(call_arrays *c, PyObject *value, const char *name, int64_t rows, int64_t words, int more,
                      int64_t **out) {
    const array *a = call_take(c, value, name, TAKE_INTEGERS | more);
    if (!a) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%s: is missing", name);
        }
        return -1;
    }
    if (a->integer != NAPIER_I64 || !array_is_contiguous(a) || a->size != rows * words) {
        PyErr_Format(PyExc_ValueError, "%s: expected %lld contiguous int64", name, (long long)(rows * words));
        return -1;
    }
    *out = (int64_t *)(void *)a->data;
    return 0;
}

/* The z of ids: float32, as many as ids, contiguous; NULL without ids. */
static int take_chosen(call_arrays *c, PyObject *value, int64_t size, int more, float **out) {
    *out = NULL;
    if (size == 0) {
        return 0;
    }
    const array *a = call_take(c, value, "chosen", TAKE_FLOATS | more);
    if (!a) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "chosen: is missing");
        }
        return -1;
    }
    if (a->dtype != NAPIER_F32 || !array_is_contiguous(a) || a->size != size) {
        PyErr_Format(PyExc_ValueError, "chosen: expected %lld contiguous float32", (long long)size);
        return -1;
    }
    *out = (float *)(void *)a->data;
    return 0;
}

#define SHARD_OPTIONS "temperature", "softcap", "ignore_index", "label_smoothing", "z_loss"
enum { SHARD_OPTION_COUNT = 5 };

static int take_options(PyObject *const *v, napier_token_options *o) {
    return take_double(v[0], "temperature", &o->temperature) || take_double(v[1], "softcap", &o->softcap) ||
                   take_int64(v[2], "ignore_index", &o->ignore_index) ||
                   take_double(v[3], "label_smoothing", &o->label_smoothing) || take_double(v[4], "z_loss", &o->z_loss)
               ? -1
               : 0;
}

static const char *const kind_words[] = {"softmax", "log_softmax"};
static const char *const masked_words[] = {"nan", "zero"};

/* ---- Tiles, sums, finals ------------------------------------------------------------------------------------------- */

/* weights NULL: x are logits; else hidden states. v: first, vocabulary, ids, options, values, tiles, chosen. */
static PyObject *tiles_of(const char *function, PyObject *x_value, PyObject *weights, PyObject *const *v) {
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix x, w = {0};
    napier_matrix tiles;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int values = NAPIER_SHARD_LSE;
    float *chosen;
    PyObject *given = NULL;
    if (!call_matrix(&c, x_value, weights ? "hidden" : "logits", &x) &&
        !(weights && call_matrix(&c, weights, "weights", &w)) && !take_int64(v[0], "first", &first) &&
        !take_int64(v[1], "vocabulary", &vocabulary) && !call_indices(&c, v[2], "ids", &ids) &&
        !take_options(v + 3, &options) && !take_int(v[3 + SHARD_OPTION_COUNT], "values", &values) &&
        !out_matrix(&c, v[4 + SHARD_OPTION_COUNT], "tiles", &tiles) &&
        !take_chosen(&c, v[5 + SHARD_OPTION_COUNT], ids.size, TAKE_WRITABLE, &chosen)) {
        const napier_shard_values kept = (napier_shard_values)values;
        if (weights) {
            RUN_FOR(given, function,
                    napier_shard_linear_tiles(context, x, w, first, vocabulary, ids, &options, kept, tiles, chosen),
                    Py_NewRef(Py_None));
        } else {
            RUN_FOR(given, function,
                    napier_shard_tiles(context, x, first, vocabulary, ids, &options, kept, tiles, chosen),
                    Py_NewRef(Py_None));
        }
    }
    call_release(&c);
    return given;
}

#define TILE_ARGUMENTS "first", "vocabulary", "ids", SHARD_OPTIONS, "values", "tiles", "chosen"

static PyObject *py_tiles(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_tiles", 12, 12, 11, {"logits", TILE_ARGUMENTS}};
    (void)self;
    PyObject *v[12];
    return arguments(&names, args, count, keywords, v) ? NULL : tiles_of(names.function, v[0], NULL, v + 1);
}

static PyObject *py_linear_tiles(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_linear_tiles", 13, 13, 12, {"hidden", "weights", TILE_ARGUMENTS}};
    (void)self;
    PyObject *v[13];
    return arguments(&names, args, count, keywords, v) ? NULL : tiles_of(names.function, v[0], v[1], v + 2);
}

typedef napier_status tile_reduction(napier_context *context, napier_const_matrix tiles, napier_shard_values values,
                                     int64_t *words);

/* tiles and values become `words` int64 a row, in the array that is the third argument. */
static PyObject *reduce_tiles(const signature *names, tile_reduction *reduction, int64_t words, PyObject *const *args,
                              Py_ssize_t count, PyObject *keywords) {
    PyObject *v[3];
    if (arguments(names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix tiles;
    int values = NAPIER_SHARD_LSE;
    int64_t *out = NULL;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[0], "tiles", &tiles) && !take_int(v[1], "values", &values) &&
        !take_words(&c, v[2], names->names[2], tiles.rows, words, TAKE_WRITABLE, &out)) {
        RUN_FOR(given, names->function, reduction(context, tiles, (napier_shard_values)values, out),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static PyObject *py_sums(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_sums", 3, 3, 3, {"tiles", "values", "sums"}};
    (void)self;
    return reduce_tiles(&names, napier_shard_sums, NAPIER_SHARD_SUM_WORDS, args, count, keywords);
}

static PyObject *py_finish_tiles(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_finish_tiles", 3, 3, 3, {"tiles", "values", "finals"}};
    (void)self;
    return reduce_tiles(&names, napier_shard_finish_tiles, NAPIER_SHARD_FINAL_WORDS, args, count, keywords);
}

static PyObject *py_finish_sums(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_finish_sums", 4, 4, 4, {"sums", "parts", "rows", "finals"}};
    (void)self;
    PyObject *v[4];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    int64_t parts = 0, rows = 0;
    int64_t *sums = NULL;
    int64_t *finals = NULL;
    PyObject *given = NULL;
    if (!take_int64(v[1], "parts", &parts) && !take_int64(v[2], "rows", &rows) &&
        !take_words(&c, v[0], "sums", parts * rows, NAPIER_SHARD_SUM_WORDS, 0, &sums) &&
        !take_words(&c, v[3], "finals", rows, NAPIER_SHARD_FINAL_WORDS, TAKE_WRITABLE, &finals)) {
        RUN_FOR(given, names.function, napier_shard_finish_sums(context, sums, parts, rows, finals),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

/* ---- softmax, log_softmax, logsumexp ------------------------------------------------------------------------------- */

static PyObject *py_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "_shard_softmax", 6, 6, 4, {"finals", "kind", "logits", "result", "temperature", "masked_rows"}};
    (void)self;
    PyObject *v[6];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix logits;
    napier_matrix result;
    int kind = 0, masked = NAPIER_MASKED_NAN;
    int64_t *finals = NULL;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[2], "logits", &logits) && !take_word(v[1], "kind", kind_words, 2, 0, &kind) &&
        !out_matrix(&c, v[3], "result", &result) && !take_double(v[4], "temperature", &options.temperature) &&
        !take_word(v[5], "masked_rows", masked_words, 2, NAPIER_MASKED_NAN, &masked) &&
        !take_words(&c, v[0], "finals", logits.rows, NAPIER_SHARD_FINAL_WORDS, 0, &finals)) {
        options.masked_rows = (napier_masked_rows)masked;
        RUN_FOR(given, names.function,
                napier_shard_softmax(context, finals, (napier_softmax_kind)kind, logits, result, &options),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static PyObject *py_logsumexp_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "_shard_logsumexp_backward", 5, 5, 4, {"finals", "logits", "grad_lse", "grad_logits", "temperature"}};
    (void)self;
    PyObject *v[5];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix logits;
    napier_const_vector grad;
    napier_matrix result;
    int64_t *finals = NULL;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[1], "logits", &logits) && !call_vector(&c, v[2], "grad_lse", &grad) &&
        !out_matrix(&c, v[3], "grad_logits", &result) && !take_double(v[4], "temperature", &options.temperature) &&
        !take_words(&c, v[0], "finals", logits.rows, NAPIER_SHARD_FINAL_WORDS, 0, &finals)) {
        RUN_FOR(given, names.function, napier_shard_logsumexp_backward(context, finals, logits, grad, result, &options),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static PyObject *py_dots(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_dots", 3, 3, 2, {"gradients", "dots", "probs"}};
    (void)self;
    PyObject *v[3];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_const_matrix gradients, probs = {0};
    napier_matrix dots;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[0], "gradients", &gradients) && !(v[2] && call_matrix(&c, v[2], "probs", &probs)) &&
        !out_matrix(&c, v[1], "dots", &dots)) {
        RUN_FOR(given, names.function, napier_shard_dots(context, probs, gradients, dots), Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static PyObject *py_softmax_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "_shard_softmax_backward", 6, 6, 5, {"kind", "result", "gradients", "dots", "grad_logits", "temperature"}};
    (void)self;
    PyObject *v[6];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix result, gradients, dots;
    napier_matrix out;
    int kind = 0;
    PyObject *given = NULL;
    if (!take_word(v[0], "kind", kind_words, 2, 0, &kind) && !call_matrix(&c, v[1], "result", &result) &&
        !call_matrix(&c, v[2], "gradients", &gradients) && !call_matrix(&c, v[3], "dots", &dots) &&
        !out_matrix(&c, v[4], "grad_logits", &out) && !take_double(v[5], "temperature", &options.temperature)) {
        RUN_FOR(
            given, names.function,
            napier_shard_softmax_backward(context, (napier_softmax_kind)kind, result, gradients, dots, out, &options),
            Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

/* ---- Tokens -------------------------------------------------------------------------------------------------------- */

static PyObject *py_token_results(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "_shard_token_results",
        14,
        14,
        3,
        {"rows", "finals", "vocabulary", "chosen", "ids", SHARD_OPTIONS, "logprobs", "lse", "entropy", "loss"}};
    (void)self;
    PyObject *v[14];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    napier_indices ids;
    int64_t rows = 0, vocabulary = 0;
    int64_t *finals = NULL;
    float *chosen;
    PyObject *given = NULL;
    if (!take_int64(v[0], "rows", &rows) && !take_int64(v[2], "vocabulary", &vocabulary) &&
        !take_words(&c, v[1], "finals", rows, NAPIER_SHARD_FINAL_WORDS, 0, &finals) &&
        !call_indices(&c, v[4], "ids", &ids) && !take_chosen(&c, v[3], ids.size, 0, &chosen) &&
        !take_options(v + 5, &options) && !out_matrix(&c, v[10], "logprobs", &r.logprobs) &&
        !out_vector(&c, v[11], "lse", &r.lse) && !out_vector(&c, v[12], "entropy", &r.entropy) &&
        !out_vector(&c, v[13], "loss", &r.loss)) {
        RUN_FOR(given, names.function,
                napier_shard_token_results(context, rows, finals, chosen, vocabulary, ids, &options, &r),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static int take_gradients(call_arrays *c, PyObject *const *v, napier_token_gradients *g) {
    return call_matrix(c, v[0], "grad_logprobs", &g->logprobs) || call_vector(c, v[1], "grad_lse", &g->lse) ||
                   call_vector(c, v[2], "grad_entropy", &g->entropy) || call_vector(c, v[3], "grad_loss", &g->loss)
               ? -1
               : 0;
}

#define SHARD_GRADIENTS "grad_logprobs", "grad_lse", "grad_entropy", "grad_loss"

static PyObject *py_token_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "_shard_token_backward",
        16,
        16,
        5,
        {"finals", "logits", "first", "vocabulary", "grad_logits", "chosen", "ids", SHARD_OPTIONS, SHARD_GRADIENTS}};
    (void)self;
    PyObject *v[16];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix logits;
    napier_matrix out;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int64_t *finals = NULL;
    float *chosen;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[1], "logits", &logits) && !take_int64(v[2], "first", &first) &&
        !take_int64(v[3], "vocabulary", &vocabulary) && !out_matrix(&c, v[4], "grad_logits", &out) &&
        !take_words(&c, v[0], "finals", logits.rows, NAPIER_SHARD_FINAL_WORDS, 0, &finals) &&
        !call_indices(&c, v[6], "ids", &ids) && !take_chosen(&c, v[5], ids.size, 0, &chosen) &&
        !take_options(v + 7, &options) && !take_gradients(&c, v + 7 + SHARD_OPTION_COUNT, &g)) {
        RUN_FOR(given, names.function,
                napier_shard_token_backward(context, finals, chosen, logits, first, vocabulary, ids, &options, &g, out),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

static PyObject *py_linear_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"_shard_linear_backward",
                                    19,
                                    19,
                                    6,
                                    {"finals", "hidden", "weights", "first", "vocabulary", "continues", "grad_hidden",
                                     "grad_weights", "chosen", "ids", SHARD_OPTIONS, SHARD_GRADIENTS}};
    (void)self;
    PyObject *v[19];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix hidden, weights;
    napier_matrix grad_hidden = {0}, grad_weights = {0};
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int continues = 0;
    int64_t *finals = NULL;
    float *chosen;
    PyObject *given = NULL;
    if (!call_matrix(&c, v[1], "hidden", &hidden) && !call_matrix(&c, v[2], "weights", &weights) &&
        !take_int64(v[3], "first", &first) && !take_int64(v[4], "vocabulary", &vocabulary) &&
        !take_bool(v[5], "continues", &continues) && !(v[6] && out_matrix(&c, v[6], "grad_hidden", &grad_hidden)) &&
        !(v[7] && out_matrix(&c, v[7], "grad_weights", &grad_weights)) &&
        !take_words(&c, v[0], "finals", hidden.rows, NAPIER_SHARD_FINAL_WORDS, 0, &finals) &&
        !call_indices(&c, v[9], "ids", &ids) && !take_chosen(&c, v[8], ids.size, 0, &chosen) &&
        !take_options(v + 10, &options) && !take_gradients(&c, v + 10 + SHARD_OPTION_COUNT, &g)) {
        RUN_FOR(given, names.function,
                napier_shard_linear_backward(context, finals, chosen, hidden, weights, first, vocabulary, ids, &options,
                                             &g, continues, grad_hidden, grad_weights),
                Py_NewRef(Py_None));
    }
    call_release(&c);
    return given;
}

PyMethodDef shard_functions[] = {{"_shard_tiles", FAST(py_tiles), NULL},
                                 {"_shard_linear_tiles", FAST(py_linear_tiles), NULL},
                                 {"_shard_sums", FAST(py_sums), NULL},
                                 {"_shard_finish_sums", FAST(py_finish_sums), NULL},
                                 {"_shard_finish_tiles", FAST(py_finish_tiles), NULL},
                                 {"_shard_softmax", FAST(py_softmax), NULL},
                                 {"_shard_logsumexp_backward", FAST(py_logsumexp_backward), NULL},
                                 {"_shard_dots", FAST(py_dots), NULL},
                                 {"_shard_softmax_backward", FAST(py_softmax_backward), NULL},
                                 {"_shard_token_results", FAST(py_token_results), NULL},
                                 {"_shard_token_backward", FAST(py_token_backward), NULL},
                                 {"_shard_linear_backward", FAST(py_linear_backward), NULL},
                                 {NULL, NULL, 0, NULL}};
