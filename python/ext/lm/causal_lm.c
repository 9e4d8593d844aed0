/* causal_lm.c - tokenizers and models, in builds that have them; napier/_lm/causal_lm.py wraps them in classes. Without
 * NAPIER_MODEL each function raises an error that says that this build lacks it. */
#include "../ops/rl.h"

#include <string.h>

#include <napier/generate.h>

#if defined(NAPIER_MODEL)

/* ---- Objects that live longer than a call, with the context that made them, in capsules -------------------------- */

typedef struct held {
    napier_context *context;
    void *object;
    PyObject *needs; /* the capsule that must end after this one; NULL: none */
} held;

static const char model_name[] = "napier.model", tokenizer_name[] = "napier.tokenizer", kv_name[] = "napier.kv";

static void model_end(PyObject *capsule) {
    held *h = PyCapsule_GetPointer(capsule, model_name);
    napier_model_destroy(h->context, h->object);
    napier_context_destroy(h->context);
    PyMem_Free(h);
}

static void tokenizer_end(PyObject *capsule) {
    held *h = PyCapsule_GetPointer(capsule, tokenizer_name);
    napier_tokenizer_destroy(h->context, h->object);
    napier_context_destroy(h->context);
    PyMem_Free(h);
}

static void kv_end(PyObject *capsule) {
    held *h = PyCapsule_GetPointer(capsule, kv_name);
    napier_kv_destroy(h->context, h->object);
    napier_context_destroy(h->context);
    Py_DECREF(h->needs);
    PyMem_Free(h);
}

/* Makes a capsule of an object and the context that made it; NULL with an error set. */
static PyObject *hold(napier_context *context, napier_status status, void *object, const char *name,
                      PyCapsule_Destructor end, const char *function) {
    held *h = raise_status(context, status, function) ? NULL : PyMem_Malloc(sizeof *h);
    if (!h) {
        context_give(context);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    *h = (held){context, object, NULL};
    PyObject *capsule = PyCapsule_New(h, name, end);
    return capsule; /* out of memory for a capsule: the object is lost */
}

static void *object_of(PyObject *capsule, const char *name) {
    held *h = PyCapsule_GetPointer(capsule, name);
    return h ? h->object : NULL;
}

/* Text as UTF-8: a str, or bytes. */
static int take_text(PyObject *value, const char *name, const char **text, Py_ssize_t *size) {
    if (PyUnicode_Check(value)) {
        *text = PyUnicode_AsUTF8AndSize(value, size);
        return *text ? 0 : -1;
    }
    char *bytes = NULL;
    if (!PyBytes_Check(value) || PyBytes_AsStringAndSize(value, &bytes, size)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: expected str or bytes, got %R", name, value);
        return -1;
    }
    *text = bytes;
    return 0;
}

/* ---- Tokenizer --------------------------------------------------------------------------------------------------- */

/* _tokenizer_load(path) */
static PyObject *py_tokenizer_load(PyObject *self, PyObject *path) {
    (void)self;
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    napier_context *context = context_take();
    napier_tokenizer *tokenizer = NULL;
    PyObject *given = NULL;
    if (context) {
        napier_status status;
        const char *name = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS status = napier_tokenizer_load(context, name, &tokenizer);
        Py_END_ALLOW_THREADS given = hold(context, status, tokenizer, tokenizer_name, tokenizer_end, "Tokenizer");
    }
    Py_DECREF(bytes);
    return given;
}

/* _tokenizer_from_json(text) */
static PyObject *py_tokenizer_from_json(PyObject *self, PyObject *json) {
    (void)self;
    const char *text;
    Py_ssize_t size;
    if (take_text(json, "json", &text, &size)) {
        return NULL;
    }
    napier_context *context = context_take();
    napier_tokenizer *tokenizer = NULL;
    if (!context) {
        return NULL;
    }
    const napier_status status = napier_tokenizer_from_json(context, text, (size_t)size, &tokenizer);
    return hold(context, status, tokenizer, tokenizer_name, tokenizer_end, "Tokenizer");
}

static PyObject *list_of_ids(const napier_token_buffer *buffer) {
    PyObject *list = PyList_New((Py_ssize_t)buffer->size);
    for (int64_t i = 0; list && i < buffer->size; i++) {
        PyObject *id = PyLong_FromLong(buffer->ids[i]);
        if (!id || PyList_SetItem(list, (Py_ssize_t)i, id)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* _tokenizer_encode(tokenizer, text, plain_special, add_special, continues): a list of ids */
static PyObject *py_tokenizer_encode(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "encode", 5, 5, 2, {"tokenizer", "text", "plain_special", "add_special", "continues"}};
    (void)self;
    PyObject *v[5], *given = NULL;
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    const char *text;
    Py_ssize_t size;
    if (arguments(&names, args, count, keywords, v) || take_text(v[1], "text", &text, &size) ||
        take_bool(v[2], "plain_special", &options.plain_special) ||
        take_int64(v[3], "add_special_tokens", &options.add_special) ||
        take_int64(v[4], "continues", &options.continues)) {
        return NULL;
    }
    const napier_tokenizer *tokenizer = object_of(v[0], tokenizer_name);
    napier_context *context = tokenizer ? context_take() : NULL;
    if (context) {
        napier_token_buffer ids = {NULL, 0, 0};
        napier_status status;
        Py_BEGIN_ALLOW_THREADS status = napier_tokenizer_encode(context, tokenizer, text, (size_t)size, &options, &ids);
        Py_END_ALLOW_THREADS if (!raise_status(context, status, names.function)) { given = list_of_ids(&ids); }
        napier_token_buffer_free(context, &ids);
        context_give(context);
    }
    return given;
}

/* _tokenizer_decode(tokenizer, ids, skip_special, replace_invalid): bytes */
static PyObject *py_tokenizer_decode(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"decode", 4, 4, 2, {"tokenizer", "ids", "skip_special", "replace_invalid"}};
    (void)self;
    PyObject *v[4], *given = NULL;
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_indices ids;
    if (arguments(&names, args, count, keywords, v) || take_bool(v[2], "skip_special", &options.skip_special) ||
        take_int64(v[3], "replace_invalid", &options.replace_invalid) || call_indices(&c, v[1], "ids", &ids)) {
        return NULL;
    }
    const napier_tokenizer *tokenizer = object_of(v[0], tokenizer_name);
    int32_t *narrow = tokenizer ? PyMem_Malloc((size_t)ids.size * sizeof *narrow + 1) : NULL;
    napier_context *context = narrow ? context_take() : NULL;
    if (context) {
        for (int64_t i = 0; i < ids.size; i++) {
            const int64_t id = ids.type == NAPIER_I64 ? ((const int64_t *)ids.data)[i] : ((const int32_t *)ids.data)[i];
            narrow[i] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id; /* such an id has no token */
        }
        napier_text_buffer text = {NULL, 0, 0};
        if (!raise_status(context, napier_tokenizer_decode(context, tokenizer, narrow, ids.size, &options, &text),
                          names.function)) {
            given = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.size);
        }
        napier_text_buffer_free(context, &text);
        context_give(context);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_Free(narrow);
    call_release(&c);
    return given;
}

/* _tokenizer_token(tokenizer, id): bytes or None */
static PyObject *py_tokenizer_token(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"token", 2, 2, 2, {"tokenizer", "id"}};
    (void)self;
    PyObject *v[2];
    int64_t id = 0;
    if (arguments(&names, args, count, keywords, v) || take_int64(v[1], "id", &id)) {
        return NULL;
    }
    const napier_tokenizer *tokenizer = object_of(v[0], tokenizer_name);
    if (!tokenizer) {
        return NULL;
    }
    size_t size = 0;
    const char *bytes = napier_tokenizer_token(tokenizer, id, &size);
    return bytes ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size) : Py_NewRef(Py_None);
}

/* _tokenizer_id(tokenizer, token): the id, or -1 */
static PyObject *py_tokenizer_id(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"id_of", 2, 2, 2, {"tokenizer", "token"}};
    (void)self;
    PyObject *v[2];
    const char *text;
    Py_ssize_t size;
    if (arguments(&names, args, count, keywords, v) || take_text(v[1], "token", &text, &size)) {
        return NULL;
    }
    const napier_tokenizer *tokenizer = object_of(v[0], tokenizer_name);
    return tokenizer ? PyLong_FromLongLong(napier_tokenizer_id(tokenizer, text, (size_t)size)) : NULL;
}

static PyObject *py_tokenizer_is_special(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"is_special", 2, 2, 2, {"tokenizer", "id"}};
    (void)self;
    PyObject *v[2];
    int64_t id = 0;
    if (arguments(&names, args, count, keywords, v) || take_int64(v[1], "id", &id)) {
        return NULL;
    }
    const napier_tokenizer *tokenizer = object_of(v[0], tokenizer_name);
    return tokenizer ? PyBool_FromLong(napier_tokenizer_is_special(tokenizer, id)) : NULL;
}

static PyObject *py_tokenizer_vocab_size(PyObject *self, PyObject *capsule) {
    (void)self;
    const napier_tokenizer *tokenizer = object_of(capsule, tokenizer_name);
    return tokenizer ? PyLong_FromLongLong(napier_tokenizer_vocab_size(tokenizer)) : NULL;
}

/* A text that may be None. */
static int take_optional_text(PyObject *value, const char *name, const char **text, size_t *size) {
    Py_ssize_t length = 0;
    *text = NULL;
    if (value != Py_None && take_text(value, name, text, &length)) {
        return -1;
    }
    *size = (size_t)length;
    return 0;
}

/* [(name, arguments), ..] */
static int take_calls(PyObject *list, napier_chat_message *m) {
    const Py_ssize_t count = PyList_Size(list);
    napier_tool_call *calls = count < 0 ? NULL : PyMem_Malloc((size_t)count * sizeof *calls + 1);
    if (!calls) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    m->tool_calls = calls;
    m->tool_call_count = count;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *pair = PyList_GetItem(list, k);
        if (take_optional_text(PyTuple_GetItem(pair, 0), "name", &calls[k].name, &calls[k].name_size) ||
            take_optional_text(PyTuple_GetItem(pair, 1), "arguments", &calls[k].arguments, &calls[k].arguments_size)) {
            return -1;
        }
    }
    return 0;
}

/* (role, content, reasoning or None, calls) */
static int take_message(PyObject *tuple, napier_chat_message *m) {
    size_t size;
    return take_optional_text(PyTuple_GetItem(tuple, 0), "role", &m->role, &size) ||
                   take_optional_text(PyTuple_GetItem(tuple, 1), "content", &m->content, &m->size) ||
                   take_optional_text(PyTuple_GetItem(tuple, 2), "reasoning_content", &m->reasoning,
                                      &m->reasoning_size) ||
                   take_calls(PyTuple_GetItem(tuple, 3), m)
               ? -1
               : 0;
}

static PyObject *chat_bytes(const napier_chat_message *messages, int64_t count, const napier_chat_options *options) {
    napier_context *context = context_take();
    PyObject *given = NULL;
    if (context) {
        napier_text_buffer text = {NULL, 0, 0};
        if (!raise_status(context, napier_chat_text(context, messages, count, options, &text), "chat")) {
            given = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.size);
        }
        napier_text_buffer_free(context, &text);
        context_give(context);
    }
    return given;
}

static const char *const chat_formats[] = {"qwen3",  "qwen2.5",      "llama3",      "llama3.1",
                                           "llama2", "mistral-v0.1", "mistral-v0.2"}; /* as napier_chat_format */

/* _chat_text([(role, content, reasoning, calls), ..], tools, add_generation_prompt, disable_thinking, format, date): bytes
 */
static PyObject *py_chat_text(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "chat", 6, 6, 4, {"messages", "tools", "add_generation_prompt", "disable_thinking", "format", "date"}};
    (void)self;
    PyObject *v[6], *given = NULL;
    int format = NAPIER_CHAT_QWEN3;
    size_t date_size = 0;
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    if (arguments(&names, args, count, keywords, v) ||
        take_optional_text(v[1], "tools", &options.tools, &options.tools_size) ||
        take_bool(v[2], "add_generation_prompt", &options.add_generation_prompt) ||
        take_bool(v[3], "disable_thinking", &options.disable_thinking) ||
        take_word(v[4], "format", chat_formats, sizeof chat_formats / sizeof *chat_formats, 0, &format) ||
        (v[5] && take_optional_text(v[5], "date", &options.date, &date_size))) {
        return NULL;
    }
    options.format = format;
    const Py_ssize_t messages = PyList_Size(v[0]);
    napier_chat_message *m = messages < 0 ? NULL : PyMem_Calloc((size_t)messages + 1, sizeof *m);
    bool good = m != NULL;
    for (Py_ssize_t i = 0; good && i < messages; i++) {
        good = !take_message(PyList_GetItem(v[0], i), &m[i]);
    }
    if (good) {
        given = chat_bytes(m, messages, &options);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; m && i < messages; i++) {
        PyMem_Free((void *)(uintptr_t)m[i].tool_calls);
    }
    PyMem_Free(m);
    return given;
}

/* ---- Model ------------------------------------------------------------------------------------------------------- */

static const char *const compute_words[] = {"float32", "bfloat16", "split"};

/* _model_load(directory, compute, memory) */
static PyObject *py_model_load(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"CausalLM", 3, 3, 1, {"directory", "compute", "memory"}};
    (void)self;
    PyObject *v[3], *path = NULL, *given = NULL;
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    int compute = NAPIER_COMPUTE_F32;
    if (arguments(&names, args, count, keywords, v) ||
        take_word(v[1], "compute", compute_words, 3, NAPIER_COMPUTE_F32, &compute) ||
        take_int64(v[2], "memory", &options.memory) || !PyUnicode_FSConverter(v[0], &path)) {
        return NULL;
    }
    options.compute = (napier_compute)compute;
    napier_context *context = context_take();
    if (context) {
        napier_model *model = NULL;
        napier_status status;
        const char *directory = PyBytes_AsString(path);
        Py_BEGIN_ALLOW_THREADS status = napier_model_load(context, directory, &options, &model);
        Py_END_ALLOW_THREADS given = hold(context, status, model, model_name, model_end, names.function);
    }
    Py_DECREF(path);
    return given;
}

/* Tensors of the caller, which the caller keeps as long as the model. */
typedef struct named_arrays {
    napier_named_tensor *list;
    array *arrays;
    Py_ssize_t count, taken;
} named_arrays;

static void named_release(named_arrays *n) {
    for (Py_ssize_t i = 0; i < n->taken; i++) {
        array_release(&n->arrays[i]);
    }
    PyMem_Free(n->arrays);
    PyMem_Free(n->list);
}

/* Whether the array is the object's own memory: a copy would not follow changes in place, and would end with the call. */
static int is_in_place(const array *a, PyObject *object) {
    if (a->object == object) {
        return 1;
    }
    PyObject *shared = a->kind == KIND_NUMPY
                           ? PyObject_CallMethod(numpy_module, "may_share_memory", "OO", a->object, object)
                           : Py_NewRef(Py_False);
    const int is = shared ? PyObject_IsTrue(shared) : -1;
    Py_XDECREF(shared);
    return is;
}

static int take_named(array *a, PyObject *object, const char *name, napier_named_tensor *out) {
    if (array_take(a, object, name, TAKE_FLOATS)) {
        return -1;
    }
    const int own = is_in_place(a, object);
    if (own <= 0 || !array_is_contiguous(a)) {
        if (own >= 0) {
            PyErr_Format(PyExc_ValueError,
                         own ? "%s: not contiguous (use .contiguous(), and give the copies again after each change)"
                             : "%s: expected float32, float16 or bfloat16, aligned, to use in place",
                         name);
        }
        array_release(a);
        return -1;
    }
    *out = (napier_named_tensor){name, a->data, a->shape, a->ndim, a->dtype};
    return 0;
}

/* names: a list of str; arrays: as many. Call named_release afterwards, also after a failure. */
static int take_all_named(PyObject *names, PyObject *arrays, named_arrays *n) {
    *n = (named_arrays){NULL, NULL, PyList_Size(names), 0};
    if (n->count < 0 || PyList_Size(arrays) != n->count) {
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "tensors: as many names as arrays"), -1);
    }
    n->list = PyMem_Calloc((size_t)n->count + 1, sizeof *n->list);
    n->arrays = PyMem_Calloc((size_t)n->count + 1, sizeof *n->arrays);
    if (!n->list || !n->arrays) {
        return PyErr_NoMemory(), -1;
    }
    for (; n->taken < n->count; n->taken++) {
        const Py_ssize_t i = n->taken;
        const char *name = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL);
        if (!name || take_named(&n->arrays[i], PyList_GetItem(arrays, i), name, &n->list[i])) {
            return -1;
        }
    }
    return 0;
}

/* _model_from_tensors(config, names, arrays, compute, memory) */
static PyObject *py_model_from_tensors(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"CausalLM", 5, 5, 3, {"config", "names", "arrays", "compute", "memory"}};
    (void)self;
    PyObject *v[5], *given = NULL;
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    int compute = NAPIER_COMPUTE_F32;
    const char *config;
    Py_ssize_t size;
    if (arguments(&names, args, count, keywords, v) || take_text(v[0], "config", &config, &size) ||
        take_word(v[3], "compute", compute_words, 3, NAPIER_COMPUTE_F32, &compute) ||
        take_int64(v[4], "memory", &options.memory)) {
        return NULL;
    }
    options.compute = (napier_compute)compute;
    named_arrays tensors;
    napier_context *context = take_all_named(v[1], v[2], &tensors) ? NULL : context_take();
    if (context) {
        napier_model *model = NULL;
        const napier_status status =
            napier_model_from_tensors(context, config, (size_t)size, tensors.list, tensors.count, &options, &model);
        given = hold(context, status, model, model_name, model_end, names.function);
    }
    named_release(&tensors);
    return given;
}

/* _model_update(model, names, arrays): takes these, or the model's own where the lists are empty. No other call may use
 * the model meanwhile. */
static PyObject *py_model_update(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"update", 3, 3, 3, {"model", "names", "arrays"}};
    (void)self;
    PyObject *v[3];
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    held *h = PyCapsule_GetPointer(v[0], model_name);
    named_arrays tensors;
    if (!h) {
        return NULL;
    }
    const bool failed =
        take_all_named(v[1], v[2], &tensors) ||
        raise_status(h->context, napier_model_update(h->context, h->object, tensors.list, tensors.count),
                     names.function);
    named_release(&tensors);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *list_of(const int64_t *ids, int64_t count) {
    PyObject *const list = PyList_New(count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *const id = PyLong_FromLongLong(ids[i]);
        if (!id) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, i, id);
    }
    return list;
}

static PyObject *py_model_info(PyObject *self, PyObject *capsule) {
    (void)self;
    const napier_model *model = object_of(capsule, model_name);
    napier_model_info i = NAPIER_MODEL_INFO_INIT;
    int failed = -1;
    if (model) {
        RUN_SIZED(failed, "info", napier_model_get_info(context, model, &i), 0);
    }
    return failed ? NULL
                  : Py_BuildValue("{sLsLsLsLsLsLsLsLsLsLsssisssLsLsLsNsssLsLsLsL}", "layers", (long long)i.layers,
                                  "hidden", (long long)i.hidden, "heads", (long long)i.heads, "kv_heads",
                                  (long long)i.kv_heads, "head_dim", (long long)i.head_dim, "intermediate",
                                  (long long)i.intermediate, "vocabulary", (long long)i.vocabulary, "positions",
                                  (long long)i.positions, "parameters", (long long)i.parameters, "weight_bytes",
                                  (long long)i.weight_bytes, "weights", napier_dtype_name(i.weights), "tied", i.tied,
                                  "compute", compute_words[i.compute], "memory", (long long)i.memory, "bos",
                                  (long long)i.bos, "eos", (long long)i.eos, "eos_ids", list_of(i.eos_ids, i.eos_count),
                                  "family", i.family, "labels", (long long)i.labels, "experts", (long long)i.experts,
                                  "experts_per_token", (long long)i.experts_per_token, "expert_intermediate",
                                  (long long)i.expert_intermediate);
}

/* Copies a row of weights. bfloat16, which NumPy does not have, becomes float32. */
static void copy_weights(char *to, const char *from, int64_t count, napier_dtype dtype) {
    if (dtype != NAPIER_BF16) {
        memcpy(to, from, (size_t)count * napier_dtype_size(dtype));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(to + 4 * i, &bits, sizeof bits);
    }
}

/* A copy of the head's weights. */
static PyObject *py_model_head(PyObject *self, PyObject *capsule) {
    (void)self;
    const napier_model *model = object_of(capsule, model_name);
    if (!model) {
        return NULL;
    }
    const napier_const_matrix head = napier_model_head(model);
    const napier_dtype dtype = head.dtype == NAPIER_BF16 ? NAPIER_F32 : head.dtype;
    const array like = {.kind = KIND_NUMPY};
    const int64_t shape[2] = {head.rows, head.cols};
    array a;
    if (array_make(&a, &like, 2, shape, dtype)) {
        array_release(&a);
        return NULL;
    }
    for (int64_t i = 0; i < head.rows; i++) {
        const char *row = (const char *)head.data + (size_t)(i * head.row_stride) * napier_dtype_size(head.dtype);
        copy_weights(a.data + (size_t)(i * head.cols) * napier_dtype_size(dtype), row, head.cols, head.dtype);
    }
    return array_give(&a);
}

/* A call of a model has very many loops. A bar of napier.progress shows its stages instead, and nothing before the first, nor
 * in calls without stages. */
#define WITHOUT_STEPS(call_) (context_in_stage("", 0, true), (call_))

/* Checks for Ctrl-C, and calls the caller's progress(stage, done), if any, which stops the work by returning a true
 * value. */
static int model_progress(const char *stage, double done, void *user) {
    PyGILState_STATE gil = PyGILState_Ensure();
    int stop = PyErr_CheckSignals();
    if (!stop && user) {
        PyObject *answer = PyObject_CallFunction(user, "sd", stage, done);
        stop = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
    }
    context_in_stage(stage, done, user != NULL); /* last: a call in the caller's function ends with no stage */
    PyGILState_Release(gil);
    return stop != 0;
}

/* _model_forward(model, ids, offsets, hidden, logits, progress): (hidden or None, logits or None), float32 */
static PyObject *py_model_forward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"forward", 6, 6, 2, {"model", "ids", "offsets", "hidden", "logits", "progress"}};
    (void)self;
    PyObject *v[6], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_indices ids, offsets;
    int want_hidden = 0, want_logits = 1;
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    const napier_model *model = object_of(v[0], model_name);
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    int failed = -1;
    if (model && !call_indices(&c, v[1], "ids", &ids) && !call_indices(&c, v[2], "offsets", &offsets) &&
        !take_bool(v[3], "hidden", &want_hidden) && !take_bool(v[4], "logits", &want_logits)) {
        RUN_SIZED(failed, names.function, napier_model_get_info(context, model, &info), 0);
    }
    napier_matrix hidden = {0}, logits = {0};
    array *h = NULL, *l = NULL;
    failed = failed || (want_hidden && call_made_matrix(&c, ids.size, info.hidden, NAPIER_F32, &h, &hidden)) ||
             (want_logits && call_made_matrix(&c, ids.size, napier_model_head(model).rows, NAPIER_F32, &l, &logits));
    if (!failed) {
        RUN(failed, names.function,
            WITHOUT_STEPS(napier_model_forward(context, model, ids, offsets, hidden, logits, model_progress, v[5])));
    }
    if (!failed) {
        given = Py_BuildValue("NN", call_object(h), call_object(l));
    }
    call_release(&c);
    return given;
}

/* _model_kv(model, ids, progress): (kv, bytes) */
static PyObject *py_model_kv(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"kv", 3, 3, 2, {"model", "ids", "progress"}};
    (void)self;
    PyObject *v[3], *capsule = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_indices ids;
    napier_kv *kv = NULL;
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    const napier_model *model = object_of(v[0], model_name);
    napier_context *context = model && !call_indices(&c, v[1], "ids", &ids) ? context_take() : NULL;
    if (context) {
        napier_status status;
        Py_BEGIN_ALLOW_THREADS status = WITHOUT_STEPS(napier_kv_create(context, model, ids, model_progress, v[2], &kv));
        Py_END_ALLOW_THREADS capsule = hold(context, status, kv, kv_name, kv_end, names.function);
    }
    if (capsule) {
        ((held *)PyCapsule_GetPointer(capsule, kv_name))->needs = Py_NewRef(v[0]);
    }
    call_release(&c);
    return capsule ? Py_BuildValue("NL", capsule, (long long)napier_kv_bytes(kv)) : NULL;
}

/* A list of kvs, or nothing. The caller frees *kvs with PyMem_Free. */
static int take_kvs(PyObject *list, const napier_kv ***kvs, int64_t *count) {
    const Py_ssize_t size = list ? PyList_Size(list) : 0;
    *kvs = size > 0 ? PyMem_Calloc((size_t)size, sizeof **kvs) : NULL;
    for (Py_ssize_t i = 0; *kvs && i < size; i++) {
        PyObject *capsule = PyList_GetItem(list, i);
        (*kvs)[i] = capsule ? object_of(capsule, kv_name) : NULL;
        if (!(*kvs)[i]) {
            return -1;
        }
    }
    *count = size;
    return size < 0 ? -1 : size == 0 || *kvs ? 0 : (PyErr_NoMemory(), -1);
}

#define SCORE_ARGUMENTS                                                                                      \
    "model", "prompt_ids", "prompt_offsets", "response_ids", "response_offsets", "prompt_of", "temperature", \
        "prefix_token", "unshared", "progress", "kvs"
enum { SCORE_ARGUMENT_COUNT = 11 };

typedef struct score_inputs {
    const napier_model *model;
    napier_score_batch batch;
    napier_score_options options;
    const napier_kv **kvs; /* owned */
} score_inputs;

static int take_scores(call_arrays *c, PyObject *const *v, score_inputs *in) {
    const napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    const napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    in->batch = batch;
    in->options = options;
    in->kvs = NULL;
    in->options.progress = model_progress;
    in->options.user = v[9];
    in->model = object_of(v[0], model_name);
    return in->model && !call_indices(c, v[1], "prompt_ids", &in->batch.prompt_ids) &&
                   !call_indices(c, v[2], "prompt_offsets", &in->batch.prompt_offsets) &&
                   !call_indices(c, v[3], "response_ids", &in->batch.response_ids) &&
                   !call_indices(c, v[4], "response_offsets", &in->batch.response_offsets) &&
                   !call_indices(c, v[5], "prompt_of", &in->batch.prompt_of) &&
                   !take_double(v[6], "temperature", &in->options.temperature) &&
                   !take_int64(v[7], "prefix_token", &in->options.prefix_token) &&
                   !take_bool(v[8], "unshared", &in->options.unshared) &&
                   !take_kvs(v[10], &in->kvs, &in->options.kv_count)
               ? (in->options.kvs = in->kvs, 0)
               : -1;
}

/* _model_scores(.., entropy, greedy): (logprobs, entropy or None, argmax or None) */
static PyObject *py_model_scores(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    enum { COUNT = SCORE_ARGUMENT_COUNT + 2 };
    static const signature names = {"batch_logprobs", COUNT, COUNT, 5, {SCORE_ARGUMENTS, "entropy", "greedy"}};
    (void)self;
    PyObject *v[COUNT], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    score_inputs in;
    int want_entropy = 0, want_greedy = 0;
    array *logprobs = NULL, *entropy = NULL, *argmax = NULL;
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    if (take_scores(&c, v, &in) || take_bool(v[SCORE_ARGUMENT_COUNT], "entropy", &want_entropy) ||
        take_bool(v[SCORE_ARGUMENT_COUNT + 1], "greedy", &want_greedy)) {
        PyMem_Free(in.kvs);
        call_release(&c);
        return NULL;
    }
    const int64_t tokens = in.batch.response_ids.size;
    if (!call_made_vector(&c, tokens, NAPIER_F32, &logprobs, &r.logprobs) &&
        (!want_entropy || !call_made_vector(&c, tokens, NAPIER_F32, &entropy, &r.entropy)) &&
        (!want_greedy || (argmax = call_make_integers(&c, 1, &tokens)))) {
        r.argmax = argmax ? (int64_t *)(void *)argmax->data : NULL;
        RUN_FOR(given, names.function,
                WITHOUT_STEPS(napier_model_batch_logprobs(context, in.model, &in.batch, &in.options, &r)),
                Py_BuildValue("NNN", call_object(logprobs), call_object(entropy), call_object(argmax)));
    }
    PyMem_Free(in.kvs);
    call_release(&c);
    return given;
}

static PyObject *py_model_plan(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"plan", SCORE_ARGUMENT_COUNT, SCORE_ARGUMENT_COUNT, 5, {SCORE_ARGUMENTS}};
    (void)self;
    PyObject *v[SCORE_ARGUMENT_COUNT], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    score_inputs in = {.kvs = NULL};
    napier_score_plan p = NAPIER_SCORE_PLAN_INIT;
    if (!arguments(&names, args, count, keywords, v) && !take_scores(&c, v, &in)) {
        RUN_FOR(given, names.function, napier_model_batch_plan(context, in.model, &in.batch, &in.options, &p),
                Py_BuildValue("{sLsLsLsLsLsL}", "prompts", (long long)p.prompts, "tokens", (long long)p.tokens,
                              "tokens_run", (long long)p.tokens_run, "tokens_unshared", (long long)p.tokens_unshared,
                              "chunks", (long long)p.chunks, "bytes", (long long)p.bytes));
    }
    PyMem_Free(in.kvs);
    call_release(&c);
    return given;
}

/* _model_rewards(..): [B, labels] */
static PyObject *py_model_rewards(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"rewards", SCORE_ARGUMENT_COUNT, SCORE_ARGUMENT_COUNT, 5, {SCORE_ARGUMENTS}};
    (void)self;
    PyObject *v[SCORE_ARGUMENT_COUNT], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    score_inputs in = {.kvs = NULL};
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    array *rewards = NULL;
    napier_matrix out;
    int failed = -1;
    if (!arguments(&names, args, count, keywords, v) && !take_scores(&c, v, &in)) {
        RUN_SIZED(failed, names.function, napier_model_get_info(context, in.model, &info), 0);
    }
    if (!failed && !call_made_matrix(&c, in.batch.response_offsets.size - 1, info.labels, NAPIER_F32, &rewards, &out)) {
        RUN_FOR(given, names.function,
                WITHOUT_STEPS(napier_model_rewards(context, in.model, &in.batch, &in.options, out)),
                call_object(rewards));
    }
    PyMem_Free(in.kvs);
    call_release(&c);
    return given;
}

/* _model_judge(model, prompt_ids, prompt_offsets, criteria, verdict_ids, verdict_offsets, values, weights, temperature,
 * progress): (scores [B, C], rewards [B], logprobs [B C, V]) */
static PyObject *py_model_judge(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"judge",
                                    10,
                                    10,
                                    7,
                                    {"model", "prompt_ids", "prompt_offsets", "criteria", "verdict_ids",
                                     "verdict_offsets", "values", "weights", "temperature", "progress"}};
    (void)self;
    PyObject *v[10], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_judge_batch b = NAPIER_JUDGE_BATCH_INIT;
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    options.progress = model_progress;
    options.user = v[9];
    const napier_model *model = object_of(v[0], model_name);
    array *values = NULL, *scores, *rewards, *logprobs;
    napier_matrix scores_out, logprobs_out;
    napier_vector rewards_out;
    if (model && !call_indices(&c, v[1], "prompt_ids", &b.prompt_ids) &&
        !call_indices(&c, v[2], "prompt_offsets", &b.prompt_offsets) && !take_int64(v[3], "criteria", &b.criteria) &&
        !call_indices(&c, v[4], "verdict_ids", &b.verdict_ids) &&
        !call_indices(&c, v[5], "verdict_offsets", &b.verdict_offsets) &&
        (values = call_take(&c, v[6], "values", TAKE_FLOATS)) && !call_vector(&c, v[7], "weights", &b.weights) &&
        !take_double(v[8], "temperature", &options.temperature)) {
        const int64_t verdicts = b.verdict_offsets.size - 1, pairs = b.prompt_offsets.size - 1;
        if (values->dtype != NAPIER_F64 || values->size != verdicts || b.criteria < 1 || !array_is_contiguous(values)) {
            PyErr_Format(PyExc_ValueError, "values: expected %lld float64, one for each verdict", (long long)verdicts);
        } else if (b.weights.data && b.weights.size != b.criteria) {
            PyErr_Format(PyExc_ValueError, "weights: expected %lld", (long long)b.criteria);
        } else if (!call_made_matrix(&c, pairs / b.criteria, b.criteria, NAPIER_F32, &scores, &scores_out) &&
                   !call_made_vector(&c, pairs / b.criteria, NAPIER_F32, &rewards, &rewards_out) &&
                   !call_made_matrix(&c, pairs, verdicts, NAPIER_F32, &logprobs, &logprobs_out)) {
            b.values = (const double *)(const void *)values->data;
            RUN_FOR(
                given, names.function,
                WITHOUT_STEPS(napier_model_judge(context, model, &b, &options, scores_out, rewards_out, logprobs_out)),
                Py_BuildValue("NNN", call_object(scores), call_object(rewards), call_object(logprobs)));
        }
    }
    call_release(&c);
    return given;
}

/* What a call of generate tells the caller about; NULL: nothing. */
typedef struct told {
    PyObject *on_token, *on_text;
} told;

/* Ends a callback: true if the caller's answer is true, or an error is set. Takes the answer. */
static bool is_true(PyObject *answer) {
    const int stop = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return stop != 0;
}

/* Checks for Ctrl-C, and calls the caller's on_token(sequence, index, id, logprob), if any. */
static int model_token(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    const told *const t = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() != 0;
    if (!stop && t->on_token) {
        stop = is_true(PyObject_CallFunction(t->on_token, "LLLd", (long long)sequence, (long long)index, (long long)id,
                                             (double)logprob));
    }
    PyGILState_Release(gil);
    return stop;
}

/* Calls the caller's on_text(sequence, text, ended). */
static int model_text(int64_t sequence, const char *bytes, size_t size, int ended, void *user) {
    const told *const t = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *const text = PyUnicode_DecodeUTF8(bytes ? bytes : "", (Py_ssize_t)size, "replace");
    const bool stop = !text || is_true(PyObject_CallFunction(t->on_text, "LOO", (long long)sequence, text,
                                                             ended ? Py_True : Py_False));
    Py_XDECREF(text);
    PyGILState_Release(gil);
    return stop;
}

#define GENERATE_NAMES                                                                                              \
    "model", "prompt_ids", "prompt_offsets", "samples", "numbers", "max_tokens", "stop", "temperature", "top_k",    \
        "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "on_token", "kvs", \
        "min_tokens", "tokenizer", "stop_texts", "on_text", "texts", "entropy"
enum { GENERATE_ARGUMENTS = 23 };

/* What a call of generate takes; end it with generate_end. */
typedef struct generate_inputs {
    const napier_model *model;
    napier_generate_batch batch;
    napier_generate_options options;
    napier_sample_options sampling;
    told told;
    const napier_kv **kvs;
    napier_text *stop_texts;
    int texts, entropy;
} generate_inputs;

/* A list of bytes. */
static int take_stop_texts(PyObject *list, generate_inputs *in) {
    const Py_ssize_t count = PyList_Size(list);
    in->stop_texts = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *in->stop_texts);
    if (!in->stop_texts) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size = 0;
        if (take_text(PyList_GetItem(list, i), "stop", &in->stop_texts[i].bytes, &size)) {
            return -1;
        }
        in->stop_texts[i].size = (size_t)size;
    }
    in->options.stop_texts = in->stop_texts;
    in->options.stop_text_count = count;
    return 0;
}

static int take_generate(call_arrays *c, PyObject *const *v, generate_inputs *in) {
    const napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    const napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    const napier_sample_options sampling = NAPIER_SAMPLE_OPTIONS_INIT;
    *in = (generate_inputs){.batch = batch, .options = options, .sampling = sampling, .told = {v[15], v[20]}};
    napier_generate_batch *const b = &in->batch;
    napier_generate_options *const o = &in->options;
    napier_sample_options *const s = &in->sampling;
    o->sampling = s;
    o->on_token = model_token;
    o->on_text = v[20] ? model_text : NULL;
    o->user = &in->told;
    in->model = object_of(v[0], model_name);
    if (!in->model || call_indices(c, v[1], "prompt_ids", &b->prompt_ids) ||
        call_indices(c, v[2], "prompt_offsets", &b->prompt_offsets) || take_int64(v[3], "samples", &b->samples) ||
        call_indices(c, v[4], "numbers", &b->numbers) || take_int64(v[5], "max_tokens", &o->max_tokens) ||
        call_indices(c, v[6], "stop", &o->stop) || take_double(v[7], "temperature", &s->temperature) ||
        take_int64(v[8], "top_k", &s->top_k) || take_double(v[9], "top_p", &s->top_p) ||
        take_double(v[10], "min_p", &s->min_p) || take_double(v[11], "repetition_penalty", &s->repetition_penalty) ||
        take_double(v[12], "presence_penalty", &s->presence_penalty) ||
        take_double(v[13], "frequency_penalty", &s->frequency_penalty) || take_int64(v[14], "seed", &s->seed) ||
        take_kvs(v[16], &in->kvs, &o->kv_count) || take_int64(v[17], "min_tokens", &o->min_tokens) ||
        take_stop_texts(v[19], in) || take_bool(v[21], "texts", &in->texts) ||
        take_bool(v[22], "entropy", &in->entropy)) {
        return -1;
    }
    o->kvs = in->kvs;
    o->tokenizer = v[18] ? object_of(v[18], tokenizer_name) : NULL;
    if (b->prompt_offsets.size < 1 || b->samples < 1 || o->max_tokens < 1 ||
        b->samples > INT32_MAX / b->prompt_offsets.size || o->max_tokens > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "samples: %lld, max_tokens: %lld: expected 1 or more, and fewer than 2^31",
                     (long long)b->samples, (long long)o->max_tokens);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static void generate_end(generate_inputs *in) {
    PyMem_Free(in->kvs);
    PyMem_Free(in->stop_texts);
}

/* A list of the texts; None if they are not wanted. */
static PyObject *list_of_texts(const napier_text_buffer *text, const int64_t *offsets, int64_t count, bool wanted) {
    PyObject *list = wanted ? PyList_New((Py_ssize_t)count) : Py_NewRef(Py_None);
    for (int64_t i = 0; wanted && list && i < count; i++) {
        const char *const bytes = text->bytes ? text->bytes + offsets[i] : "";
        PyObject *one = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)(offsets[i + 1] - offsets[i]), "replace");
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* (ids [B, max_tokens], lengths [B], logprobs, plain_logprobs, entropy or None [B, max_tokens], stop_text [B], texts or
 * None) */
static PyObject *generate_results(call_arrays *c, const generate_inputs *in, const char *function) {
    const int64_t sequences = (in->batch.prompt_offsets.size - 1) * in->batch.samples, most = in->options.max_tokens;
    const int64_t shape[2] = {sequences, most}, ends = sequences + 1;
    array *ids = NULL, *lengths = NULL, *logprobs = NULL, *plain = NULL, *entropy = NULL, *stop = NULL, *offsets = NULL;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    napier_text_buffer text = {NULL, 0, 0};
    PyObject *given = NULL;
    if (!(ids = call_make_integers(c, 2, shape)) || !(lengths = call_make_integers(c, 1, shape)) ||
        !(stop = call_make_integers(c, 1, shape)) || !(offsets = call_make_integers(c, 1, &ends)) ||
        call_made_matrix(c, sequences, most, NAPIER_F32, &logprobs, &r.logprobs) ||
        call_made_matrix(c, sequences, most, NAPIER_F32, &plain, &r.plain_logprobs) ||
        (in->entropy && call_made_matrix(c, sequences, most, NAPIER_F32, &entropy, &r.entropy))) {
        return NULL;
    }
    r.ids = (int64_t *)(void *)ids->data;
    r.lengths = (int64_t *)(void *)lengths->data;
    r.stop_text = (int64_t *)(void *)stop->data;
    r.text_offsets = (int64_t *)(void *)offsets->data;
    r.text = in->texts ? &text : NULL;
    napier_context *context = context_take();
    if (context) {
        napier_status status;
        Py_BEGIN_ALLOW_THREADS status =
            WITHOUT_STEPS(napier_generate(context, in->model, &in->batch, &in->options, &r));
        Py_END_ALLOW_THREADS if (!raise_status(context, status, function)) {
            given = Py_BuildValue("NNNNNNN", call_object(ids), call_object(lengths), call_object(logprobs),
                                  call_object(plain), call_object(entropy), call_object(stop),
                                  list_of_texts(&text, r.text_offsets, sequences, in->texts != 0));
        }
        napier_text_buffer_free(context, &text);
        context_give(context);
    }
    return given;
}

/* _model_generate(..) */
static PyObject *py_model_generate(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"generate", GENERATE_ARGUMENTS, GENERATE_ARGUMENTS, 3, {GENERATE_NAMES}};
    (void)self;
    PyObject *v[GENERATE_ARGUMENTS], *given = NULL;
    generate_inputs in;
    call_arrays c;
    call_start(&c, ON_HOST);
    if (arguments(&names, args, count, keywords, v)) {
        return NULL;
    }
    if (!take_generate(&c, v, &in)) {
        given = generate_results(&c, &in, names.function);
    }
    generate_end(&in);
    call_release(&c);
    return given;
}

#define HERE(name_, function_, flags_) \
    { name_, (PyCFunction)(void (*)(void))function_, flags_, NULL }
enum { HAVE_MODEL = 1 };

#else

static PyObject *py_absent(PyObject *self, PyObject *args) {
    (void)self;
    (void)args;
    PyErr_SetString(PyExc_NotImplementedError,
                    "napier: this build has no tokenizer and no model (they need cJSON, PCRE2 "
                    "and utf8proc when Napier is built)");
    return NULL;
}

#define HERE(name_, function_, flags_) \
    { name_, py_absent, METH_VARARGS, NULL }
enum { HAVE_MODEL = 0 };

#endif

PyMethodDef model_functions[] = {HERE("_tokenizer_load", py_tokenizer_load, METH_O),
                                 HERE("_tokenizer_from_json", py_tokenizer_from_json, METH_O),
                                 HERE("_tokenizer_encode", py_tokenizer_encode, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_tokenizer_decode", py_tokenizer_decode, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_tokenizer_token", py_tokenizer_token, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_tokenizer_id", py_tokenizer_id, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_tokenizer_is_special", py_tokenizer_is_special, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_tokenizer_vocab_size", py_tokenizer_vocab_size, METH_O),
                                 HERE("_chat_text", py_chat_text, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_load", py_model_load, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_from_tensors", py_model_from_tensors, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_update", py_model_update, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_info", py_model_info, METH_O),
                                 HERE("_model_head", py_model_head, METH_O),
                                 HERE("_model_forward", py_model_forward, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_scores", py_model_scores, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_rewards", py_model_rewards, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_plan", py_model_plan, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_kv", py_model_kv, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_generate", py_model_generate, METH_FASTCALL | METH_KEYWORDS),
                                 HERE("_model_judge", py_model_judge, METH_FASTCALL | METH_KEYWORDS),
                                 {NULL, NULL, 0, NULL}};

int model_start(PyObject *module) { return PyModule_AddIntConstant(module, "_has_model", HAVE_MODEL); }
