/* causal_lm.c - tokenizers and models, in builds that have them; napier/_lm/causal_lm.py wraps them in classes. Without
 * NAPIER_MODEL each function raises an error that says that this build lacks it. */
#include "../call.h"

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

static void held_end(PyObject *capsule) {
    const char *const name = PyCapsule_GetName(capsule);
    held *h = PyCapsule_GetPointer(capsule, name);
    if (name == model_name) {
        napier_model_destroy(h->context, h->object);
    } else if (name == tokenizer_name) {
        napier_tokenizer_destroy(h->context, h->object);
    } else { /* that of generate has no context of its own */
        const held *const model = PyCapsule_GetPointer(h->needs, model_name);
        napier_kv_destroy(model->context, h->object);
    }
    napier_context_destroy(h->context);
    Py_XDECREF(h->needs);
    PyMem_Free(h);
}

/* Makes a capsule of an object and the context that made it; NULL with an error set. */
static PyObject *hold(napier_context *context, napier_status status, void *object, const char *name, PyObject *needs,
                      const char *function) {
    held *h = raise_status(context, status, function) ? NULL : PyMem_Malloc(sizeof *h);
    if (!h) {
        context_give(context);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    *h = (held){context, object, Py_XNewRef(needs)};
    return PyCapsule_New(h, name, held_end); /* out of memory for a capsule: the object is lost */
}

/* Makes object_ by call_, a status with a context `context`, and adds its capsule to the results. */
#define HOLD(object_, name_, needs_, call_)                                                             \
    do {                                                                                                \
        napier_context *context = c.failed ? NULL : context_take();                                     \
        PyObject *capsule_ = NULL;                                                                      \
        if (context) {                                                                                  \
            napier_status status_;                                                                      \
            Py_BEGIN_ALLOW_THREADS status_ = (call_);                                                   \
            Py_END_ALLOW_THREADS capsule_ = hold(context, status_, object_, name_, needs_, c.function); \
        }                                                                                               \
        call_add(&c, capsule_);                                                                         \
    } while (0)

static void *object_of(PyObject *capsule, const char *name) {
    held *h = PyCapsule_GetPointer(capsule, name);
    return h ? h->object : NULL;
}

static int take_model(PyObject *capsule, const char *name, void *to) {
    (void)name;
    return (*(const napier_model **)to = object_of(capsule, model_name)) ? 0 : -1;
}
static int take_tokenizer(PyObject *capsule, const char *name, void *to) {
    (void)name;
    return (*(const napier_tokenizer **)to = object_of(capsule, tokenizer_name)) ? 0 : -1;
}

/* Text as UTF-8: a str, or bytes. */
static int take_text(PyObject *value, const char *name, void *to) {
    napier_text *const text = to;
    Py_ssize_t size = 0;
    char *bytes = NULL;
    if (PyUnicode_Check(value)) {
        text->bytes = PyUnicode_AsUTF8AndSize(value, &size);
    } else if (PyBytes_Check(value) && !PyBytes_AsStringAndSize(value, &bytes, &size)) {
        text->bytes = bytes;
    } else {
        PyErr_Format(PyExc_TypeError, "%s: expected str or bytes, got %R", name, value);
        return -1;
    }
    text->size = (size_t)size;
    return text->bytes ? 0 : -1;
}

/* A path, as bytes that the caller releases. */
static int take_path(PyObject *value, const char *name, void *to) {
    (void)name;
    return PyUnicode_FSConverter(value, to) ? 0 : -1;
}

/* ---- Tokenizer --------------------------------------------------------------------------------------------------- */

PYTHON_FUNCTION(tokenizer_load) {
    PyObject *path = NULL;
    napier_tokenizer *tokenizer = NULL;
    TAKE("Tokenizer", 1, 1, ON_HOST, WITH("path", path, take_path))
    const char *const name = path ? PyBytes_AsString(path) : NULL;
    HOLD(tokenizer, tokenizer_name, NULL, napier_tokenizer_load(context, name, &tokenizer));
    Py_XDECREF(path);
    return call_end(&c);
}

PYTHON_FUNCTION(tokenizer_from_json) {
    napier_text json;
    napier_tokenizer *tokenizer = NULL;
    TAKE("Tokenizer", 1, 1, ON_HOST, WITH("json", json, take_text))
    HOLD(tokenizer, tokenizer_name, NULL, napier_tokenizer_from_json(context, json.bytes, json.size, &tokenizer));
    return call_end(&c);
}

/* Integers of 32 bits, or of 64. */
static PyObject *list_of(const int32_t *narrow, const int64_t *wide, int64_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *id = PyLong_FromLongLong(narrow ? narrow[i] : wide[i]);
        if (!id || PyList_SetItem(list, (Py_ssize_t)i, id)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* A list of ids */
PYTHON_FUNCTION(tokenizer_encode) {
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    const napier_tokenizer *tokenizer;
    napier_text text;
    TAKE("encode", 5, 2, ON_HOST, WITH("tokenizer", tokenizer, take_tokenizer), WITH("text", text, take_text),
         ARG("plain_special", options.plain_special), ARG("add_special", options.add_special),
         ARG("continues", options.continues))
    napier_context *context = c.failed ? NULL : context_take();
    if (context) {
        napier_token_buffer ids = {NULL, 0, 0};
        napier_status status;
        Py_BEGIN_ALLOW_THREADS status =
            napier_tokenizer_encode(context, tokenizer, text.bytes, text.size, &options, &ids);
        Py_END_ALLOW_THREADS call_add(&c, raise_status(context, status, c.function) ? NULL
                                                                                    : list_of(ids.ids, NULL, ids.size));
        napier_token_buffer_free(context, &ids);
        context_give(context);
    }
    c.failed = c.failed || !context;
    return call_end(&c);
}

/* Adds the bytes that call_, a status with a context `context`, makes in `text`. */
#define ADD_TEXT(call_)                                                                                 \
    do {                                                                                                \
        napier_context *context = c.failed ? NULL : context_take();                                     \
        c.failed = !context;                                                                            \
        if (context) {                                                                                  \
            napier_text_buffer text = {NULL, 0, 0};                                                     \
            const int wrong_ = raise_status(context, call_, c.function);                                \
            call_add(&c, wrong_ ? NULL : PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.size)); \
            napier_text_buffer_free(context, &text);                                                    \
            context_give(context);                                                                      \
        }                                                                                               \
    } while (0)

/* bytes */
PYTHON_FUNCTION(gguf_document) {
    PyObject *path = NULL;
    napier_text document;
    TAKE("CausalLM", 2, 2, ON_HOST, WITH("path", path, take_path), WITH("document", document, take_text))
    const char *const name = path ? PyBytes_AsString(path) : NULL;
    ADD_TEXT(napier_gguf_document(context, name, document.bytes, &text));
    Py_XDECREF(path);
    return call_end(&c);
}

/* bytes */
PYTHON_FUNCTION(tokenizer_decode) {
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    const napier_tokenizer *tokenizer;
    napier_indices ids;
    TAKE("decode", 4, 2, ON_HOST, WITH("tokenizer", tokenizer, take_tokenizer), ARG("ids", ids),
         ARG("skip_special", options.skip_special), ARG("replace_invalid", options.replace_invalid))
    int32_t *narrow = c.failed ? NULL : PyMem_Malloc((size_t)ids.size * sizeof *narrow + 1);
    if (!c.failed && !narrow) {
        PyErr_NoMemory();
        c.failed = true;
    }
    for (int64_t i = 0; narrow && i < ids.size; i++) {
        const int64_t id = ids.type == NAPIER_I64 ? ((const int64_t *)ids.data)[i] : ((const int32_t *)ids.data)[i];
        narrow[i] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id; /* such an id has no token */
    }
    ADD_TEXT(napier_tokenizer_decode(context, tokenizer, narrow, ids.size, &options, &text));
    PyMem_Free(narrow);
    return call_end(&c);
}

/* bytes or None */
PYTHON_FUNCTION(tokenizer_token) {
    const napier_tokenizer *tokenizer;
    int64_t id = 0;
    size_t size = 0;
    TAKE("token", 2, 2, ON_HOST, WITH("tokenizer", tokenizer, take_tokenizer), ARG("id", id))
    const char *const bytes = c.failed ? NULL : napier_tokenizer_token(tokenizer, id, &size);
    call_add(&c, bytes ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size) : Py_NewRef(Py_None));
    return call_end(&c);
}

/* The id, or -1 */
PYTHON_FUNCTION(tokenizer_id) {
    const napier_tokenizer *tokenizer;
    napier_text token;
    TAKE("id_of", 2, 2, ON_HOST, WITH("tokenizer", tokenizer, take_tokenizer), WITH("token", token, take_text))
    call_add(&c, c.failed ? NULL : PyLong_FromLongLong(napier_tokenizer_id(tokenizer, token.bytes, token.size)));
    return call_end(&c);
}

PYTHON_FUNCTION(tokenizer_is_special) {
    const napier_tokenizer *tokenizer;
    int64_t id = 0;
    TAKE("is_special", 2, 2, ON_HOST, WITH("tokenizer", tokenizer, take_tokenizer), ARG("id", id))
    call_add(&c, c.failed ? NULL : PyBool_FromLong(napier_tokenizer_is_special(tokenizer, id)));
    return call_end(&c);
}

static PyObject *py_tokenizer_vocab_size(PyObject *self, PyObject *capsule) {
    (void)self;
    const napier_tokenizer *tokenizer = object_of(capsule, tokenizer_name);
    return tokenizer ? PyLong_FromLongLong(napier_tokenizer_vocab_size(tokenizer)) : NULL;
}

/* A text that may be None. */
static int take_optional(PyObject *value, const char *name, void *to) {
    return value == Py_None ? 0 : take_text(value, name, to);
}

/* The texts of a tuple, from its first member on; None leaves one empty. */
static int take_texts(PyObject *tuple, int count, const char *const *names, napier_text *texts) {
    for (int i = 0; i < count; i++) {
        texts[i] = (napier_text){NULL, 0};
        PyObject *value = PyTuple_GetItem(tuple, i);
        if (!value || take_optional(value, names[i], &texts[i])) {
            return -1;
        }
    }
    return 0;
}

/* [(name, arguments), ..] */
static int take_calls(PyObject *list, napier_chat_message *m) {
    static const char *const names[] = {"name", "arguments"};
    const Py_ssize_t count = PyList_Size(list);
    napier_tool_call *calls = count < 0 ? NULL : PyMem_Malloc((size_t)count * sizeof *calls + 1);
    if (!calls) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    m->tool_calls = calls;
    m->tool_call_count = count;
    for (Py_ssize_t k = 0; k < count; k++) {
        napier_text t[2];
        if (take_texts(PyList_GetItem(list, k), 2, names, t)) {
            return -1;
        }
        calls[k] = (napier_tool_call){
            .name = t[0].bytes, .name_size = t[0].size, .arguments = t[1].bytes, .arguments_size = t[1].size};
    }
    return 0;
}

/* (role, content, reasoning or None, calls) */
static int take_message(PyObject *tuple, napier_chat_message *m) {
    static const char *const names[] = {"role", "content", "reasoning_content"};
    napier_text t[3];
    if (take_texts(tuple, 3, names, t)) {
        return -1;
    }
    m->role = t[0].bytes;
    m->content = t[1].bytes;
    m->size = t[1].size;
    m->reasoning = t[2].bytes;
    m->reasoning_size = t[2].size;
    return take_calls(PyTuple_GetItem(tuple, 3), m);
}

/* Of napier_chat_format. */
static const word_list chat_formats = {
    NAPIER_CHAT_QWEN3, 7, {"qwen3", "qwen2.5", "llama3", "llama3.1", "llama2", "mistral-v0.1", "mistral-v0.2"}};

static napier_status chat_text_by(napier_context *context, const napier_chat_message *messages, int64_t count,
                                  napier_chat_options *options, const napier_text *chat_template,
                                  napier_text_buffer *text) {
    napier_chat_template *made = NULL;
    napier_status status = chat_template->bytes ? napier_chat_template_create(context, chat_template->bytes,
                                                                              chat_template->size, NULL, NULL, &made)
                                                : NAPIER_OK;
    options->chat_template = made;
    status = status ? status : napier_chat_text(context, messages, count, options, text);
    napier_chat_template_destroy(context, made);
    return status;
}

/* _chat_text([(role, content, reasoning, calls), ..], tools, add_generation_prompt, disable_thinking, format, date,
 * chat_template, variables, now): bytes. A template counts in place of the format. */
PYTHON_FUNCTION(chat_text) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    PyObject *list;
    napier_text tools = {NULL, 0}, date = {NULL, 0}, chat_template = {NULL, 0}, variables = {NULL, 0};
    TAKE("chat", 9, 4, ON_HOST, ARG("messages", list), WITH("tools", tools, take_optional),
         ARG("add_generation_prompt", options.add_generation_prompt), ARG("disable_thinking", options.disable_thinking),
         WORD("format", options.format, chat_formats), WITH("date", date, take_text),
         WITH("chat_template", chat_template, take_text), WITH("variables", variables, take_text),
         ARG("now", options.now))
    options.variables = variables.bytes;
    options.variables_size = variables.size;
    options.tools = tools.bytes;
    options.tools_size = tools.size;
    options.date = date.bytes;
    const Py_ssize_t messages = c.failed ? -1 : PyList_Size(list);
    napier_chat_message *m = messages < 0 ? NULL : PyMem_Calloc((size_t)messages + 1, sizeof *m);
    if (!m && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    c.failed = !m;
    for (Py_ssize_t i = 0; !c.failed && i < messages; i++) {
        c.failed = take_message(PyList_GetItem(list, i), &m[i]) != 0;
    }
    ADD_TEXT(chat_text_by(context, m, messages, &options, &chat_template, &text));
    for (Py_ssize_t i = 0; m && i < messages; i++) {
        PyMem_Free((void *)(uintptr_t)m[i].tool_calls);
    }
    PyMem_Free(m);
    return call_end(&c);
}

/* ---- Model ------------------------------------------------------------------------------------------------------- */

static const word_list compute_words = {NAPIER_COMPUTE_F32, 3, {"float32", "bfloat16", "split"}};

PYTHON_FUNCTION(model_load) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    napier_model *model = NULL;
    PyObject *path = NULL;
    TAKE("CausalLM", 3, 1, ON_HOST, WITH("directory", path, take_path), WORD("compute", options.compute, compute_words),
         ARG("memory", options.memory))
    const char *const directory = path ? PyBytes_AsString(path) : NULL;
    HOLD(model, model_name, NULL, napier_model_load(context, directory, &options, &model));
    Py_XDECREF(path);
    return call_end(&c);
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

PYTHON_FUNCTION(model_from_tensors) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    napier_model *model = NULL;
    napier_text config;
    PyObject *list, *arrays;
    TAKE("CausalLM", 5, 3, ON_HOST, WITH("config", config, take_text), ARG("names", list), ARG("arrays", arrays),
         WORD("compute", options.compute, compute_words), ARG("memory", options.memory))
    named_arrays tensors = {NULL, NULL, 0, 0};
    c.failed = c.failed || take_all_named(list, arrays, &tensors);
    HOLD(model, model_name, NULL,
         napier_model_from_tensors(context, config.bytes, config.size, tensors.list, tensors.count, &options, &model));
    named_release(&tensors);
    return call_end(&c);
}

/* Takes these, or the model's own where the lists are empty. No other call may use the model meanwhile. */
PYTHON_FUNCTION(model_update) {
    PyObject *capsule, *list, *arrays;
    TAKE("update", 3, 3, ON_HOST, ARG("model", capsule), ARG("names", list), ARG("arrays", arrays))
    held *h = c.failed ? NULL : PyCapsule_GetPointer(capsule, model_name);
    named_arrays tensors = {NULL, NULL, 0, 0};
    c.failed =
        !h || take_all_named(list, arrays, &tensors) ||
        raise_status(h->context, napier_model_update(h->context, h->object, tensors.list, tensors.count), c.function);
    named_release(&tensors);
    return call_end(&c);
}

static PyObject *py_model_info(PyObject *self, PyObject *capsule) {
    (void)self;
    const napier_model *model = object_of(capsule, model_name);
    napier_model_info i = NAPIER_MODEL_INFO_INIT;
    int failed = -1;
    if (model) {
        RUN_SIZED(failed, "info", napier_model_get_info(context, model, &i), 0);
    }
    return failed
               ? NULL
               : Py_BuildValue("{sLsLsLsLsLsLsLsLsLsLsssisssLsLsLsNsssLsLsLsL}", "layers", (long long)i.layers,
                               "hidden", (long long)i.hidden, "heads", (long long)i.heads, "kv_heads",
                               (long long)i.kv_heads, "head_dim", (long long)i.head_dim, "intermediate",
                               (long long)i.intermediate, "vocabulary", (long long)i.vocabulary, "positions",
                               (long long)i.positions, "parameters", (long long)i.parameters, "weight_bytes",
                               (long long)i.weight_bytes, "weights", napier_dtype_name(i.weights), "tied", i.tied,
                               "compute", compute_words.words[i.compute], "memory", (long long)i.memory, "bos",
                               (long long)i.bos, "eos", (long long)i.eos, "eos_ids",
                               list_of(NULL, i.eos_ids, i.eos_count), "family", i.family, "labels", (long long)i.labels,
                               "experts", (long long)i.experts, "experts_per_token", (long long)i.experts_per_token,
                               "expert_intermediate", (long long)i.expert_intermediate);
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

/* (hidden or None, logits or None), float32 */
PYTHON_FUNCTION(model_forward) {
    const napier_model *model;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    napier_indices ids, offsets;
    int want_hidden = 0, want_logits = 1;
    PyObject *progress;
    TAKE("forward", 6, 2, ON_HOST, WITH("model", model, take_model), ARG("ids", ids), ARG("offsets", offsets),
         ARG("hidden", want_hidden), ARG("logits", want_logits), ARG("progress", progress))
    COMPUTE(napier_model_get_info(context, model, &info));
    const napier_matrix hidden = make_matrix_if(&c, want_hidden, ids.size, info.hidden, NAPIER_F32);
    const int64_t vocabulary = info.labels > 0 ? info.labels : info.vocabulary;
    const napier_matrix logits = make_matrix_if(&c, want_logits, ids.size, vocabulary, NAPIER_F32);
    COMPUTE(
        WITHOUT_STEPS(napier_model_forward(context, model, ids, offsets, hidden, logits, model_progress, progress)));
    return call_end(&c);
}

/* (kv, bytes): of ids, or of the kv `after`, which may be None, and ids. */
PYTHON_FUNCTION(model_kv) {
    PyObject *capsule, *progress, *after;
    napier_indices ids;
    napier_kv *kv = NULL;
    TAKE("kv", 4, 2, ON_HOST, ARG("model", capsule), ARG("ids", ids), ARG("progress", progress), ARG("after", after))
    const napier_model *model = c.failed ? NULL : object_of(capsule, model_name);
    const napier_kv *before = model && after ? object_of(after, kv_name) : NULL;
    c.failed = !model || (after && !before);
    HOLD(kv, kv_name, capsule,
         WITHOUT_STEPS(before ? napier_kv_extend(context, before, ids, model_progress, progress, &kv)
                              : napier_kv_create(context, model, ids, model_progress, progress, &kv)));
    call_add(&c, c.failed ? NULL : PyLong_FromLongLong(napier_kv_bytes(kv)));
    return call_end(&c);
}

/* A list of kvs. The caller frees ->list with PyMem_Free. */
typedef struct kv_list {
    const napier_kv **list;
    int64_t count;
} kv_list;

static int take_kvs(PyObject *list, const char *name, void *to) {
    (void)name;
    kv_list *const kvs = to;
    const Py_ssize_t size = PyList_Size(list);
    kvs->list = size > 0 ? PyMem_Calloc((size_t)size, sizeof *kvs->list) : NULL;
    for (Py_ssize_t i = 0; kvs->list && i < size; i++) {
        PyObject *capsule = PyList_GetItem(list, i);
        kvs->list[i] = capsule ? object_of(capsule, kv_name) : NULL;
        if (!kvs->list[i]) {
            return -1;
        }
    }
    kvs->count = size;
    return size < 0 ? -1 : size == 0 || kvs->list ? 0 : (PyErr_NoMemory(), -1);
}

/* What a call of scores takes; PyMem_Free(in.kvs.list) afterwards. */
typedef struct score_inputs {
    const napier_model *model;
    napier_score_batch batch;
    napier_score_options options;
    PyObject *progress;
    kv_list kvs;
} score_inputs;
#define SCORE_INIT \
    { .batch = NAPIER_SCORE_BATCH_INIT, .options = NAPIER_SCORE_OPTIONS_INIT }
#define SCORE_ARGUMENTS                                                                             \
    WITH("model", in.model, take_model), ARG("prompt_ids", in.batch.prompt_ids),                    \
        ARG("prompt_offsets", in.batch.prompt_offsets), ARG("response_ids", in.batch.response_ids), \
        ARG("response_offsets", in.batch.response_offsets), ARG("prompt_of", in.batch.prompt_of),   \
        ARG("temperature", in.options.temperature), ARG("prefix_token", in.options.prefix_token),   \
        ARG("unshared", in.options.unshared), ARG("progress", in.progress), WITH("kvs", in.kvs, take_kvs)

static void complete_scores(score_inputs *in) {
    in->options.progress = model_progress;
    in->options.user = in->progress;
    in->options.kvs = in->kvs.list;
    in->options.kv_count = in->kvs.count;
}

/* (logprobs, entropy or None, argmax or None) */
PYTHON_FUNCTION(model_scores) {
    score_inputs in = SCORE_INIT;
    napier_score_results r = NAPIER_SCORE_RESULTS_INIT;
    int entropy = 0, greedy = 0;
    TAKE("batch_logprobs", 13, 5, ON_HOST, SCORE_ARGUMENTS, ARG("entropy", entropy), ARG("greedy", greedy))
    complete_scores(&in);
    r.logprobs = make_vector(&c, in.batch.response_ids.size, NAPIER_F32);
    r.entropy = make_vector_if(&c, entropy, in.batch.response_ids.size, NAPIER_F32);
    r.argmax = make_integers_if(&c, greedy, in.batch.response_ids.size, -1);
    COMPUTE(WITHOUT_STEPS(napier_model_batch_logprobs(context, in.model, &in.batch, &in.options, &r)));
    PyMem_Free(in.kvs.list);
    return call_end(&c);
}

PYTHON_FUNCTION(model_plan) {
    score_inputs in = SCORE_INIT;
    napier_score_plan p = NAPIER_SCORE_PLAN_INIT;
    TAKE("plan", 11, 5, ON_HOST, SCORE_ARGUMENTS)
    complete_scores(&in);
    COMPUTE(napier_model_batch_plan(context, in.model, &in.batch, &in.options, &p));
    PyMem_Free(in.kvs.list);
    call_add(&c, c.failed ? NULL
                          : Py_BuildValue("{sLsLsLsLsLsL}", "prompts", (long long)p.prompts, "tokens",
                                          (long long)p.tokens, "tokens_run", (long long)p.tokens_run, "tokens_unshared",
                                          (long long)p.tokens_unshared, "chunks", (long long)p.chunks, "bytes",
                                          (long long)p.bytes));
    return call_end(&c);
}

/* [B, labels] */
PYTHON_FUNCTION(model_rewards) {
    score_inputs in = SCORE_INIT;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    TAKE("rewards", 11, 5, ON_HOST, SCORE_ARGUMENTS)
    complete_scores(&in);
    COMPUTE(napier_model_get_info(context, in.model, &info));
    const napier_matrix rewards = make_matrix(&c, in.batch.response_offsets.size - 1, info.labels, NAPIER_F32);
    COMPUTE(WITHOUT_STEPS(napier_model_rewards(context, in.model, &in.batch, &in.options, rewards)));
    PyMem_Free(in.kvs.list);
    return call_end(&c);
}

/* (scores [B, C], rewards [B], logprobs [B C, V]) */
PYTHON_FUNCTION(model_judge) {
    const napier_model *model;
    napier_judge_batch b = NAPIER_JUDGE_BATCH_INIT;
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    array *values;
    PyObject *progress;
    TAKE("judge", 10, 7, ON_HOST, WITH("model", model, take_model), ARG("prompt_ids", b.prompt_ids),
         ARG("prompt_offsets", b.prompt_offsets), ARG("criteria", b.criteria), ARG("verdict_ids", b.verdict_ids),
         ARG("verdict_offsets", b.verdict_offsets), ARRAY("values", values, TAKE_FLOATS), ARG("weights", b.weights),
         ARG("temperature", options.temperature), ARG("progress", progress))
    options.progress = model_progress;
    options.user = progress;
    const int64_t verdicts = b.verdict_offsets.size - 1, pairs = b.prompt_offsets.size - 1;
    const int64_t rows = b.criteria > 0 ? pairs / b.criteria : 0;
    if (!c.failed &&
        (values->dtype != NAPIER_F64 || values->size != verdicts || b.criteria < 1 || !array_is_contiguous(values))) {
        call_refuse(&c, PyExc_ValueError, "values: expected %lld float64, one for each verdict", (long long)verdicts);
    } else if (!c.failed && b.weights.data && b.weights.size != b.criteria) {
        call_refuse(&c, PyExc_ValueError, "weights: expected %lld", (long long)b.criteria);
    }
    b.values = c.failed ? NULL : (const double *)(const void *)values->data;
    const napier_matrix scores = make_matrix(&c, rows, b.criteria, NAPIER_F32);
    const napier_vector rewards = make_vector(&c, rows, NAPIER_F32);
    const napier_matrix logprobs = make_matrix(&c, pairs, verdicts, NAPIER_F32);
    COMPUTE(WITHOUT_STEPS(napier_model_judge(context, model, &b, &options, scores, rewards, logprobs)));
    return call_end(&c);
}

/* What a call of generate tells the caller about and asks for; NULL: nothing. */
typedef struct told {
    PyObject *on_token, *on_text, *on_kv, *on_arrival;
    PyObject *model; /* a capsule */
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
    int stop = PyErr_CheckSignals() != 0;
    if (!stop && t->on_token) {
        PyObject *answer = PyObject_CallFunction(t->on_token, "LLLd", (long long)sequence, (long long)index,
                                                 (long long)id, (double)logprob);
        const bool end = answer && PyUnicode_Check(answer) && PyUnicode_CompareWithASCIIString(answer, "end") == 0;
        stop = is_true(answer) ? (end ? NAPIER_END_SEQUENCE : 1) : 0;
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

/* Calls the caller's on_kv(sequence, kv, tokens, bytes). It takes kv. */
static int model_kv_of(int64_t sequence, napier_kv *kv, void *user) {
    const told *const t = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    held *const h = PyMem_Malloc(sizeof *h);
    int stop = 1;
    if (h) {
        *h = (held){NULL, kv, Py_NewRef(t->model)};
        stop = is_true(PyObject_CallFunction(t->on_kv, "LNLL", (long long)sequence, PyCapsule_New(h, kv_name, held_end),
                                             (long long)napier_kv_tokens(kv), (long long)napier_kv_bytes(kv)));
    } else {
        PyErr_NoMemory(); /* the kv is lost */
    }
    PyGILState_Release(gil);
    return stop;
}

/* Calls the caller's on_arrival(), which returns how many prompts are there. */
static int64_t model_arrival(void *user) {
    const told *const t = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *const answer = PyErr_CheckSignals() ? NULL : PyObject_CallFunction(t->on_arrival, NULL);
    const int64_t count = answer ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return count;
}

/* What a call of generate takes; end it with generate_end. */
typedef struct generate_inputs {
    napier_generate_batch batch;
    napier_generate_options options;
    napier_sample_options sampling;
    told told;
    kv_list kvs;
    struct text_list {
        napier_text *list;
        int64_t count;
    } stop_texts;
} generate_inputs;

/* A list of bytes. */
static int take_stop_texts(PyObject *list, const char *name, void *to) {
    (void)name;
    struct text_list *const texts = to;
    texts->count = PyList_Size(list);
    texts->list = texts->count < 0 ? NULL : PyMem_Calloc((size_t)texts->count + 1, sizeof *texts->list);
    if (!texts->list) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    for (Py_ssize_t i = 0; i < texts->count; i++) {
        if (take_text(PyList_GetItem(list, i), "stop", &texts->list[i])) {
            return -1;
        }
    }
    return 0;
}

/* Completes and checks what the table of arguments took. */
static void check_generate(py_call *c, generate_inputs *in) {
    const napier_generate_batch *const b = &in->batch;
    napier_generate_options *const o = &in->options;
    o->sampling = &in->sampling;
    o->on_token = model_token;
    o->on_text = in->told.on_text ? model_text : NULL;
    o->on_kv = in->told.on_kv ? model_kv_of : NULL;
    o->on_arrival = in->told.on_arrival ? model_arrival : NULL;
    o->user = &in->told;
    o->kvs = in->kvs.list;
    o->kv_count = in->kvs.count;
    o->stop_texts = in->stop_texts.list;
    o->stop_text_count = in->stop_texts.count;
    if (!c->failed && (b->prompt_offsets.size < 1 || b->samples < 1 || o->max_tokens < 1 ||
                       b->samples > INT32_MAX / b->prompt_offsets.size || o->max_tokens > INT32_MAX)) {
        call_refuse(c, PyExc_ValueError, "samples: %lld, max_tokens: %lld: expected 1 or more, and fewer than 2^31",
                    (long long)b->samples, (long long)o->max_tokens);
    }
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
PYTHON_FUNCTION(model_generate) {
    generate_inputs in = {.batch = NAPIER_GENERATE_BATCH_INIT,
                          .options = NAPIER_GENERATE_OPTIONS_INIT,
                          .sampling = NAPIER_SAMPLE_OPTIONS_INIT};
    int wants_texts = 0, wants_entropy = 0;
    TAKE("generate", 26, 3, ON_HOST, ARG("model", in.told.model), ARG("prompt_ids", in.batch.prompt_ids),
         ARG("prompt_offsets", in.batch.prompt_offsets), ARG("samples", in.batch.samples),
         ARG("numbers", in.batch.numbers), ARG("max_tokens", in.options.max_tokens), ARG("stop", in.options.stop),
         ARG("temperature", in.sampling.temperature), ARG("top_k", in.sampling.top_k), ARG("top_p", in.sampling.top_p),
         ARG("min_p", in.sampling.min_p), ARG("repetition_penalty", in.sampling.repetition_penalty),
         ARG("presence_penalty", in.sampling.presence_penalty), ARG("frequency_penalty", in.sampling.frequency_penalty),
         ARG("seed", in.sampling.seed), ARG("on_token", in.told.on_token), WITH("kvs", in.kvs, take_kvs),
         ARG("min_tokens", in.options.min_tokens), WITH("tokenizer", in.options.tokenizer, take_tokenizer),
         WITH("stop_texts", in.stop_texts, take_stop_texts), ARG("on_text", in.told.on_text), ARG("texts", wants_texts),
         ARG("entropy", wants_entropy), ARG("on_kv", in.told.on_kv), ARG("on_arrival", in.told.on_arrival),
         ARG("longest_prompt", in.options.longest_prompt))
    const napier_model *model = c.failed ? NULL : object_of(in.told.model, model_name);
    c.failed = !model;
    check_generate(&c, &in);
    const int64_t sequences = (in.batch.prompt_offsets.size - 1) * in.batch.samples, most = in.options.max_tokens;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    napier_text_buffer text = {NULL, 0, 0};
    r.ids = make_integers_if(&c, true, sequences, most);
    r.lengths = make_integers_if(&c, true, sequences, -1);
    r.logprobs = make_matrix(&c, sequences, most, NAPIER_F32);
    r.plain_logprobs = make_matrix(&c, sequences, most, NAPIER_F32);
    r.entropy = make_matrix_if(&c, wants_entropy, sequences, most, NAPIER_F32);
    r.stop_text = make_integers_if(&c, true, sequences, -1);
    r.text_offsets = make_integers_if(&c, true, sequences + 1, -1); /* in whose place the texts go */
    r.text = wants_texts ? &text : NULL;
    napier_context *context = c.failed ? NULL : context_take();
    c.failed = !context;
    if (context) {
        napier_status status;
        Py_BEGIN_ALLOW_THREADS status = WITHOUT_STEPS(napier_generate(context, model, &in.batch, &in.options, &r));
        Py_END_ALLOW_THREADS call_set(&c, 6,
                                      raise_status(context, status, c.function)
                                          ? NULL
                                          : list_of_texts(&text, r.text_offsets, sequences, wants_texts));
        napier_text_buffer_free(context, &text);
        context_give(context);
    }
    PyMem_Free(in.kvs.list);
    PyMem_Free(in.stop_texts.list);
    return call_end(&c);
}

#define HERE(name_) ENTRY_AS("_" #name_, name_)
#define HERE_OF_ONE(name_) \
    { "_" #name_, py_##name_, METH_O, NULL }
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

#define HERE(name_) \
    { "_" #name_, py_absent, METH_VARARGS, NULL }
#define HERE_OF_ONE(name_) HERE(name_)
enum { HAVE_MODEL = 0 };

#endif

PyMethodDef model_functions[] = {HERE(tokenizer_load),
                                 HERE(tokenizer_from_json),
                                 HERE(gguf_document),
                                 HERE(tokenizer_encode),
                                 HERE(tokenizer_decode),
                                 HERE(tokenizer_token),
                                 HERE(tokenizer_id),
                                 HERE(tokenizer_is_special),
                                 HERE_OF_ONE(tokenizer_vocab_size),
                                 HERE(chat_text),
                                 HERE(model_load),
                                 HERE(model_from_tensors),
                                 HERE(model_update),
                                 HERE_OF_ONE(model_info),
                                 HERE_OF_ONE(model_head),
                                 HERE(model_forward),
                                 HERE(model_scores),
                                 HERE(model_rewards),
                                 HERE(model_plan),
                                 HERE(model_kv),
                                 HERE(model_generate),
                                 HERE(model_judge),
                                 ENTRY_END};

int model_start(PyObject *module) { return PyModule_AddIntConstant(module, "_has_model", HAVE_MODEL); }
