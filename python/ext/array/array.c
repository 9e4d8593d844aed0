/* array.c - arrays in and out without copies: the buffer protocol (NumPy), DLPack's exchange of C functions (PyTorch),
 * and DLPack capsules (other libraries, on a GPU too: napier/_ops/device.py). napier/_ops/convert.py converts everything
 * else, and dtypes that are not supported, through NumPy. */
#include "../ext.h"

#include <stdlib.h>
#include <string.h>

PyObject *numpy_module, *numpy_empty;
static PyObject *numpy_ndarray, *numpy_dtypes[5]; /* by napier_dtype; bf16: that of ml_dtypes, loaded when needed */
static PyObject *numpy_int64, *convert_function, *copies_function, *give_function, *device_convert_function,
    *device_empty_function, *library_export_function, *library_empty_function, *library_contiguous_function,
    *block_type, *requires_grad_name, *is_neg_name;

static PyObject *dtype_object(napier_dtype dtype) {
    if (!numpy_dtypes[dtype] && dtype == NAPIER_BF16) {
        PyObject *module = PyImport_ImportModule("ml_dtypes");
        PyObject *type = module ? PyObject_GetAttrString(module, "bfloat16") : NULL;
        numpy_dtypes[dtype] = type ? PyObject_CallMethod(numpy_module, "dtype", "O", type) : NULL;
        Py_XDECREF(module);
        Py_XDECREF(type);
    }
    return numpy_dtypes[dtype];
}

/* ---- In: shapes and dtypes --------------------------------------------------------------------------------------- */

/* ---- On a device? ------------------------------------------------------------------------------------------------ */

static bool is_cuda(int32_t type) { return type == DLPACK_CUDA || type == DLPACK_CUDA_MANAGED; }

#if defined(NAPIER_CUDA_EMULATED)
static bool emulating;
void device_emulate(bool on) { emulating = on; }
bool device_is_ours(int32_t type) { return emulating && (type == DLPACK_CPU || is_cuda(type)); }
#else
bool device_is_ours(int32_t type) { return is_cuda(type); }
#endif

bool array_on_device(const array *a) { return a->device_type != 0; }

static void array_count(array *a) {
    a->size = 1;
    for (int i = 0; i < a->ndim; i++) {
        a->size *= a->shape[i];
    }
}

static void row_major(array *a) {
    int64_t step = 1;
    for (int i = a->ndim - 1; i >= 0; i--) {
        a->strides[i] = step;
        step *= a->shape[i];
    }
}

bool array_is_contiguous(const array *a) {
    int64_t step = 1;
    for (int i = a->size > 0 ? a->ndim - 1 : -1; i >= 0; i--) {
        if (a->shape[i] != 1 && a->strides[i] != step) {
            return false;
        }
        step *= a->shape[i];
    }
    return true;
}

/* Sets the element type from its kind ('f' float, 'b' bfloat, 'i' signed, 'u' unsigned, '?' bool) and number of
 * bits. */
static bool array_element(array *a, char kind, int bits) {
    a->dtype = (napier_dtype)0;
    a->integer = (napier_index_type)0;
    a->bytes = bits == 8 && kind != 'f' && kind != 'b';
    if (kind == 'f') {
        a->dtype = bits == 32 ? NAPIER_F32 : bits == 16 ? NAPIER_F16 : bits == 64 ? NAPIER_F64 : (napier_dtype)0;
    } else if (kind == 'b' && bits == 16) {
        a->dtype = NAPIER_BF16;
    } else if (kind == 'i') {
        a->integer = bits == 64 ? NAPIER_I64 : bits == 32 ? NAPIER_I32 : (napier_index_type)0;
    }
    return a->dtype || a->integer || a->bytes;
}

static bool array_is_wanted(const array *a, int what) {
    const int floats = a->dtype == NAPIER_F64 ? TAKE_FLOATS : TAKE_FLOATS | TAKE_SINGLE;
    return (a->dtype && what & floats) || (a->integer && what & TAKE_INTEGERS) || (a->bytes && what & TAKE_BYTES);
}

/* ---- In: the buffer protocol ------------------------------------------------------------------------------------- */

/* Sets the shape and strides of the buffer's elements; false if a stride is not a multiple of the element size. ctypes'
 * arrays (and so those of multiprocessing) have no strides, even if they were requested. */
static bool buffer_layout(array *a) {
    const Py_buffer *b = &a->buffer;
    a->data = b->buf;
    a->ndim = b->ndim;
    a->read_only = b->readonly;
    bool whole = (uintptr_t)b->buf % (size_t)b->itemsize == 0;
    for (int i = 0; i < b->ndim; i++) {
        a->shape[i] = b->shape ? b->shape[i] : b->len / b->itemsize; /* without a shape, there is one dimension */
        a->strides[i] = b->strides ? b->strides[i] / b->itemsize : 0;
        whole = whole && (!b->strides || b->strides[i] % b->itemsize == 0);
    }
    if (!b->strides) {
        row_major(a);
    }
    array_count(a);
    return whole || a->size == 0;
}

/* Whether the buffer's elements can be used in place. */
static bool buffer_serves(array *a) {
    const Py_buffer *b = &a->buffer;
    const char *format = b->format ? b->format : "B";
    const uint16_t one = 1;
    const bool little = *(const unsigned char *)&one == 1;
    if (format[0] == '@' || format[0] == '=' || format[0] == (little ? '<' : '>') || (!little && format[0] == '!')) {
        format++;
    }
    if (format[0] == '\0' || format[1] != '\0' || b->ndim > MOST_DIMS || (b->ndim > 1 && !b->shape)) {
        return false;
    }
    const char kind = strchr("fed", format[0]) ? 'f' : strchr("bhilqn", format[0]) ? 'i' : format[0] == '?' ? '?' : 'u';
    return array_element(a, kind, (int)b->itemsize * 8) && buffer_layout(a);
}

/* Whether it is an array of a type derived from NumPy's that hides some of its elements. */
static bool is_masked(PyObject *object) {
    return (PyObject *)Py_TYPE(object) != numpy_ndarray && PyObject_CheckBuffer(object) &&
           PyObject_IsInstance(object, numpy_ndarray) == 1 && PyObject_HasAttrString(object, "mask");
}

static bool array_take_buffer(array *a, PyObject *object, int what) {
    if (!PyObject_CheckBuffer(object) || PyObject_GetBuffer(object, &a->buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return false;
    }
    a->kind = KIND_NUMPY;
    if (buffer_serves(a) && array_is_wanted(a, what)) {
        return true;
    }
    PyBuffer_Release(&a->buffer);
    return false;
}

/* ---- In: DLPack -------------------------------------------------------------------------------------------------- */

static bool tensor_on_host(const dlpack_tensor *t) {
    return t->device_type == DLPACK_CPU || t->device_type == DLPACK_CUDA_HOST;
}

/* Uses the tensor's elements in place, wherever they are; false if we have no such dtype or they are unaligned. */
static bool tensor_serves(array *a, const dlpack_tensor *t) {
    const char kind = t->code == DLPACK_FLOAT    ? 'f'
                      : t->code == DLPACK_BFLOAT ? 'b'
                      : t->code == DLPACK_INT    ? 'i'
                      : t->code == DLPACK_UINT   ? 'u'
                      : t->code == DLPACK_BOOL   ? '?'
                                                 : 'x';
    if (t->lanes != 1 || t->ndim > MOST_DIMS || !array_element(a, kind, t->bits)) {
        return false;
    }
    a->data = (char *)t->data + t->byte_offset;
    a->ndim = t->ndim;
    for (int i = 0; i < t->ndim; i++) {
        a->shape[i] = t->shape[i];
        a->strides[i] = t->strides ? t->strides[i] : 0;
    }
    if (!t->strides) {
        row_major(a);
    }
    array_count(a);
    return a->size == 0 || (uintptr_t)a->data % (t->bits / 8) == 0;
}

static bool has_no_elements(const dlpack_tensor *t) {
    bool none = false;
    for (int i = 0; i < t->ndim; i++) {
        none = none || t->shape[i] == 0;
    }
    return none;
}

/* The C functions of a tensor's type, or NULL. A library with a namespace of the array API makes its results itself. */
static const dlpack_exchange *exchange_of(PyObject *object) {
    enum { MOST_KNOWN = 4 }; /* tensors, parameters, those of other libraries */
    static PyTypeObject *known_types[MOST_KNOWN];
    static const dlpack_exchange *known[MOST_KNOWN];
    static int count;
    for (int i = 0; i < count; i++) {
        if (Py_TYPE(object) == known_types[i]) {
            return known[i];
        }
    }
    PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
    const dlpack_exchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    PyErr_Clear();
    Py_XDECREF(capsule);
    if (exchange && PyObject_HasAttrString((PyObject *)Py_TYPE(object), "__array_namespace__")) {
        return NULL;
    }
    while (exchange && exchange->version.major != 1) {
        exchange = exchange->previous;
    }
    if (exchange && count < MOST_KNOWN) {
        Py_INCREF((PyObject *)Py_TYPE(object)); /* permanently: another type must not get this address */
        known_types[count] = Py_TYPE(object);
        known[count++] = exchange;
    }
    return exchange;
}

static void array_release_tensor(array *a) {
    if (a->tensor && a->tensor->deleter) {
        a->tensor->deleter(a->tensor);
    }
    if (a->old_tensor && a->old_tensor->deleter) {
        a->old_tensor->deleter(a->old_tensor);
    }
    a->tensor = NULL;
    a->old_tensor = NULL;
}

/* Whether the attribute is True; 0 if there is none. */
static int has_true(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    const int is_true = value == Py_True;
    Py_XDECREF(value);
    if (!value) {
        PyErr_Clear();
    }
    return is_true;
}

/* Whether PyTorch is recording a gradient; -1 with an error set. */
static int is_recording(void) {
    static PyObject *is_grad_enabled;
    if (!is_grad_enabled) {
        PyObject *torch = PyImport_ImportModule("torch");
        is_grad_enabled = torch ? PyObject_GetAttrString(torch, "is_grad_enabled") : NULL;
        Py_XDECREF(torch);
    }
    PyObject *enabled = is_grad_enabled ? PyObject_CallNoArgs(is_grad_enabled) : NULL;
    const int recording = enabled ? PyObject_IsTrue(enabled) : -1;
    Py_XDECREF(enabled);
    return recording;
}

/* Whether a dual tensor of forward mode has a tangent. */
static int has_tangent(PyObject *tensor) {
    static PyObject *unpack_dual;
    if (!unpack_dual) {
        PyObject *name = PyUnicode_FromString("torch.autograd.forward_ad");
        PyObject *forward_ad = name ? PyImport_GetModule(name) : NULL;
        unpack_dual = forward_ad ? PyObject_GetAttrString(forward_ad, "unpack_dual") : NULL;
        Py_XDECREF(forward_ad);
        Py_XDECREF(name);
    }
    PyObject *dual = unpack_dual ? PyObject_CallFunctionObjArgs(unpack_dual, tensor, NULL) : NULL;
    PyObject *tangent = dual ? PyTuple_GetItem(dual, 1) : NULL;
    const int has = tangent && tangent != Py_None;
    Py_XDECREF(dual);
    PyErr_Clear(); /* not a PyTorch tensor */
    return has;
}

/* Refuses a tensor whose gradient is being recorded. Results are not part of PyTorch's graph, so they would lose the
 * gradient silently. */
static int refuse_gradients(PyObject *object, const char *name) {
    const int recording = has_true(object, requires_grad_name) ? is_recording() : 0;
    if (recording > 0) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s: the tensor requires grad, which this function does not record: use the one of napier.torch, or "
            "%s.detach()",
            name, name);
    } else if (!recording && has_tangent(object)) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: the tensor has a tangent (forward mode), which this function does not record: use the one of "
                     "napier.torch, or torch.autograd.forward_ad.unpack_dual(%s).primal",
                     name, name);
        return -1;
    }
    return recording ? -1 : 0;
}

/* If the elements must be read with the opposite sign (the imaginary part of a conjugate), which DLPack cannot express,
 * *object becomes a tensor with the signs applied, held by the array. */
static int resolve_sign(array *a, PyObject **object, const char *name, int what) {
    PyObject *is_neg = PyObject_CallMethodObjArgs(*object, is_neg_name, NULL);
    const int negative = is_neg ? is_neg == Py_True : 0;
    Py_XDECREF(is_neg);
    if (!is_neg) {
        PyErr_Clear();
    }
    if (negative <= 0) {
        return 0;
    }
    if (what & TAKE_WRITABLE) {
        PyErr_Format(PyExc_ValueError, "%s: cannot write to a view that changes the sign", name);
        return -1;
    }
    a->object = PyObject_CallMethod(*object, "resolve_neg", NULL);
    *object = a->object;
    return a->object ? 0 : -1;
}

static bool view_tensor(array *a, PyObject *object, dlpack_tensor *view) {
    array_release_tensor(a);
    return a->exchange->view_of_object ? a->exchange->view_of_object(object, view) != 0
                                       : a->exchange->from_object(object, &a->tensor) != 0;
}

/* Imaginary parts have a stride of two, so contiguous elements are not imaginary parts. This avoids asking, which takes
 * time. */
static bool may_have_sign(const dlpack_tensor *t) {
    return t->ndim == 0 || t->shape[t->ndim - 1] <= 1 || (t->strides && t->strides[t->ndim - 1] != 1);
}

/* Takes a tensor on a GPU, or PyTorch's conversion of it there, which the array then holds. Returns as
 * array_take_exchange. */
static int take_device_tensor(array *a, PyObject *object, const dlpack_tensor *t, const char *name, int what) {
    dlpack_tensor view;
    if (!tensor_serves(a, t) || !array_is_wanted(a, what)) {
        PyObject *converted = what & TAKE_WRITABLE
                                  ? PyErr_Format(PyExc_TypeError, "%s: cannot write to a tensor of this dtype", name)
                                  : PyObject_CallFunction(device_convert_function, "Osi", object, name, what);
        if (!converted) {
            return -1;
        }
        Py_XDECREF(a->object);
        a->object = converted;
        if (view_tensor(a, converted, &view)) {
            return -1;
        }
        t = a->tensor ? &a->tensor->tensor : &view;
        if (!tensor_serves(a, t) || !array_is_wanted(a, what)) {
            PyErr_Format(PyExc_TypeError, "%s: a dtype that nothing here computes with", name);
            return -1;
        }
    }
    a->device_type = t->device_type;
    a->device_id = t->device_id;
    return 1;
}

/* Returns 1 if taken, 0 if this method does not apply, -1 with an error set. */
static int array_take_exchange(array *a, PyObject *object, const char *name, int what) {
    a->exchange = exchange_of(object);
    if (!a->exchange) {
        return 0;
    }
    if (refuse_gradients(object, name)) {
        return -1;
    }
    dlpack_tensor view;
    const dlpack_tensor *t = &view;
    bool failed = view_tensor(a, object, &view);
    if (!failed && may_have_sign(t)) {
        PyObject *given = object;
        if (resolve_sign(a, &object, name, what)) {
            return -1;
        }
        failed = object != given && view_tensor(a, object, &view);
    }
    t = a->tensor ? &a->tensor->tensor : t;
    if (failed || (!t->data && !has_no_elements(t))) {
        PyErr_Clear();
        PyErr_Format(
            PyExc_NotImplementedError,
            "%s: the tensor has no plain memory (it is sparse, on the meta device, fake, or inside a transform)", name);
        return -1;
    }
    a->kind = KIND_TENSOR;
    if (what & TAKE_DEVICE && device_is_ours(t->device_type)) {
        return take_device_tensor(a, object, t, name, what);
    }
    if (!tensor_on_host(t)) {
        PyErr_Format(PyExc_NotImplementedError,
                     "%s: the tensor is on a device of DLPack type %d; this function computes on the CPU (use .cpu())",
                     name, (int)t->device_type);
        return -1;
    }
    return tensor_serves(a, t) && array_is_wanted(a, what);
}

/* Takes over the tensor of a capsule of __dlpack__; NULL if it is none of ours. */
static const dlpack_tensor *open_capsule(array *a, PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        a->old_tensor = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        return &a->old_tensor->tensor;
    }
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        a->tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        a->read_only = a->tensor->flags & DLPACK_READ_ONLY;
        return a->tensor->version.major == 1 ? &a->tensor->tensor : NULL;
    }
    return NULL;
}

/* Takes what napier/_ops/device.py says of an array on a GPU: (array, namespace, capsule, stream). Takes the reference.
 * Returns as array_take_exchange. */
static int take_exported(array *a, PyObject *exported, const char *name) {
    if (!exported) {
        return -1;
    }
    a->object = Py_XNewRef(PyTuple_GetItem(exported, 0));
    a->library = Py_XNewRef(PyTuple_GetItem(exported, 1));
    PyObject *const capsule = PyTuple_GetItem(exported, 2), *const stream = PyTuple_GetItem(exported, 3);
    a->stream = stream ? (uintptr_t)PyLong_AsUnsignedLongLong(stream) : 0;
    if (PyErr_Occurred()) {
        Py_DECREF(exported);
        return -1;
    }
    const dlpack_tensor *t = open_capsule(a, capsule);
    Py_DECREF(exported);
    if (!t || !device_is_ours(t->device_type) || !tensor_serves(a, t)) {
        PyErr_Format(PyExc_TypeError, "%s: its DLPack capsule has a tensor that nothing here computes with", name);
        return -1;
    }
    a->kind = KIND_LIBRARY;
    a->device_type = DLPACK_CUDA;
    a->device_id = t->device_id;
    return 1;
}

/* The device where the array says that it is; the CPU if it does not. */
static int32_t device_type_of(PyObject *object) {
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *type = pair && PyTuple_Check(pair) ? PyTuple_GetItem(pair, 0) : NULL;
    const long device = type ? PyLong_AsLong(type) : DLPACK_CPU;
    Py_XDECREF(pair);
    PyErr_Clear();
    return (int32_t)device;
}

/* Takes an array of a library without the exchange. Returns as array_take_exchange. */
static int array_take_capsule(array *a, PyObject *object, const char *name, int what) {
    if (!PyObject_HasAttrString(object, "__dlpack__") || PyObject_CheckBuffer(object)) {
        return 0;
    }
    const int32_t device = device_type_of(object);
    if (device != DLPACK_CPU && device != DLPACK_CUDA_HOST) {
        const int allowed = device_is_ours(device) ? what : what & ~TAKE_DEVICE;
        return take_exported(a, PyObject_CallFunction(library_export_function, "Osi", object, name, allowed), name);
    }
    PyObject *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
    if (!capsule) {
        PyErr_Clear();
        return 0;
    }
    const dlpack_tensor *t = open_capsule(a, capsule);
    Py_DECREF(capsule);
    if (t && tensor_on_host(t) && tensor_serves(a, t) && array_is_wanted(a, what)) {
        a->kind = KIND_NUMPY; /* libraries without the exchange get NumPy results */
        a->read_only = true;
        return 1;
    }
    array_release_tensor(a);
    return 0;
}

/* ---- In ---------------------------------------------------------------------------------------------------------- */

static void array_start_empty(array *a) {
    a->object = NULL;
    a->buffer.obj = NULL;
    a->old_tensor = NULL;
    a->tensor = NULL;
    a->exchange = NULL;
    a->library = NULL;
    a->data = NULL;
    a->read_only = false;
    a->device_type = 0;
    a->device_id = 0;
    a->stream = 0;
}

/* The namespace of an array that is neither NumPy's nor PyTorch's, by the array API's standard; NULL if it has none. */
static PyObject *library_of(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) == numpy_ndarray || PyObject_IsInstance(object, numpy_ndarray) != 0) {
        return NULL;
    }
    PyObject *space = PyObject_CallMethod(object, "__array_namespace__", NULL);
    if (space && (space == numpy_module || !PyObject_HasAttrString(space, "from_dlpack"))) {
        Py_CLEAR(space);
    }
    PyErr_Clear();
    return space;
}

/* array_take, without telling PyTorch that it may be written. */
static int take(array *a, PyObject *object, const char *name, int what) {
    array_start_empty(a);
    if (is_masked(object)) {
        PyErr_Format(PyExc_TypeError, "%s: masked arrays are not supported (use .filled())", name);
        return -1;
    }
    int taken = array_take_buffer(a, object, what) ? 1 : array_take_exchange(a, object, name, what);
    if (taken == 0) {
        taken = array_take_capsule(a, object, name, what);
    }
    if (taken < 0) {
        array_release(a);
        return -1;
    }
    if (taken > 0 && what & TAKE_WRITABLE && a->read_only) {
        PyErr_Format(PyExc_ValueError, "%s: the array is read-only", name);
        array_release(a);
        return -1;
    }
    if (taken > 0) {
        a->object = a->object ? a->object : Py_NewRef(object);
        a->library = a->kind == KIND_NUMPY ? library_of(object) : a->library;
        return 0;
    }
    /* the slow path: through NumPy, converted to a supported dtype */
    const array_kind kind = a->exchange ? KIND_TENSOR : KIND_NUMPY;
    const dlpack_exchange *exchange = a->exchange;
    array_release(a);
    PyObject *pair = PyObject_CallFunction(convert_function, "Osi", object, name, what);
    if (!pair) {
        return -1;
    }
    PyObject *converted = PyTuple_GetItem(pair, 0), *bfloat = PyTuple_GetItem(pair, 1);
    const int is_bfloat = bfloat ? PyObject_IsTrue(bfloat) : 0;
    /* bfloat16 comes as its bits in uint16, which the buffer protocol does not accept here */
    if (!converted || PyObject_GetBuffer(converted, &a->buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        Py_DECREF(pair);
        return -1;
    }
    a->kind = kind;
    a->exchange = exchange;
    a->library = kind == KIND_NUMPY && PyObject_HasAttrString(object, "__dlpack__") ? library_of(object) : NULL;
    a->object = Py_NewRef(converted);
    Py_DECREF(pair);
    if (is_bfloat ? !array_element(a, 'b', 16) || !buffer_layout(a) : !buffer_serves(a)) {
        PyErr_Format(PyExc_ValueError, "%s: its elements are not where a %s can be read or written", name,
                     is_bfloat ? "bfloat16" : "number");
        array_release(a);
        return -1;
    }
    if (what & TAKE_WRITABLE && a->read_only) {
        PyErr_Format(PyExc_ValueError, "%s: the array is read-only", name);
        array_release(a);
        return -1;
    }
    return 0;
}

/* Tells PyTorch that one of its tensors is written, so that backward() raises if it needs the old values. */
static int tell_torch(PyObject *tensor) {
    static PyObject *tensor_type, *increment_version;
    if (!increment_version) {
        PyObject *name = PyUnicode_FromString("torch.autograd.graph");
        PyObject *graph = name ? PyImport_GetModule(name) : NULL; /* nobody else's tensors bring it along */
        Py_XDECREF(name);
        if (!graph) {
            return PyErr_Occurred() ? -1 : 0;
        }
        PyObject *torch = PyImport_ImportModule("torch");
        tensor_type = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
        increment_version = tensor_type ? PyObject_GetAttrString(graph, "increment_version") : NULL;
        Py_XDECREF(torch);
        Py_DECREF(graph);
    }
    const int ours = increment_version ? PyObject_IsInstance(tensor, tensor_type) : -1;
    if (ours <= 0) {
        return ours;
    }
    PyObject *none = PyObject_CallFunctionObjArgs(increment_version, tensor, NULL);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

int array_take(array *a, PyObject *object, const char *name, int what) {
    if (take(a, object, name, what)) {
        return -1;
    }
    if (what & TAKE_WRITABLE && a->kind == KIND_TENSOR && tell_torch(object)) {
        array_release(a);
        return -1;
    }
    return 0;
}

void array_release(array *a) {
    if (a->buffer.obj) {
        PyBuffer_Release(&a->buffer);
    }
    array_release_tensor(a);
    Py_CLEAR(a->object);
    Py_CLEAR(a->library);
}

PyObject *call_with_copies(const signature *s, PyObject *const *values) {
    PyObject *given = PyDict_New();
    for (int i = 0; given && i < s->count; i++) {
        if (values[i] && PyDict_SetItemString(given, s->names[i], values[i])) {
            Py_CLEAR(given);
        }
    }
    PyObject *result = given ? PyObject_CallFunction(copies_function, "siO", s->function, s->required, given) : NULL;
    Py_XDECREF(given);
    return result;
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

int array_matrix(const array *a, const char *name, napier_const_matrix *out) {
    if (a->ndim < 1 || a->ndim > 2) {
        PyErr_Format(PyExc_ValueError, "%s: expected 1 or 2 dimensions, got %d", name, a->ndim);
        return -1;
    }
    const int last = a->ndim - 1;
    out->data = a->data;
    out->dtype = a->dtype;
    out->rows = last ? a->shape[0] : 1;
    out->row_stride = last ? a->strides[0] : a->shape[0];
    out->cols = a->shape[last];
    out->col_stride = a->strides[last];
    return 0;
}

int array_vector(const array *a, const char *name, napier_const_vector *out) {
    if (a->ndim != 1) {
        PyErr_Format(PyExc_ValueError, "%s: expected 1 dimension, got %d", name, a->ndim);
        return -1;
    }
    *out = (napier_const_vector){a->data, a->shape[0], a->strides[0], a->dtype};
    return 0;
}

napier_matrix writable_matrix(napier_const_matrix m) {
    napier_matrix w;
    memcpy(&w, &m, sizeof w); /* the same members; the array is known to be writable */
    return w;
}

napier_vector writable_vector(napier_const_vector v) {
    napier_vector w;
    memcpy(&w, &v, sizeof w);
    return w;
}

int array_indices(const array *a, const char *name, napier_indices *out) {
    if (!array_is_contiguous(a)) {
        PyErr_Format(PyExc_ValueError, "%s: integers must be contiguous", name);
        return -1;
    }
    *out = (napier_indices){a->data, a->size, a->integer};
    return 0;
}

/* ---- Out: memory as a Python object ------------------------------------------------------------------------------ */

typedef struct block_object {
    PyObject ob_base;
    void *memory;
    Py_ssize_t bytes;
} block_object;

static int block_buffer(PyObject *self, Py_buffer *view, int flags) {
    block_object *b = (block_object *)self;
    return PyBuffer_FillInfo(view, self, b->memory, b->bytes, 0, flags);
}

static void block_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    block_give(((block_object *)self)->memory);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot block_slots[] = {{Py_bf_getbuffer, block_buffer},
                                    {Py_tp_dealloc, block_dealloc},
                                    {Py_tp_doc, "Memory of a result; it goes back to a pool."},
                                    {0, NULL}};
static PyType_Spec block_spec = {"napier._napier.Block", sizeof(block_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, block_slots};

static PyObject *block_new(size_t bytes) {
    block_object *b = PyObject_New(block_object, (PyTypeObject *)block_type);
    if (!b) {
        return NULL;
    }
    b->bytes = (Py_ssize_t)bytes;
    b->memory = block_take(bytes);
    if (!b->memory) {
        Py_DECREF(b);
        return PyErr_NoMemory();
    }
    return (PyObject *)b;
}

/* ---- Out: NumPy -------------------------------------------------------------------------------------------------- */

enum {
    FROM_POOL = 256 * 1024, /* bytes: below, NumPy's own allocation is quicker */
    RESULT_ALIGNMENT = 64
};

static PyObject *shape_tuple(int ndim, const int64_t *shape) {
    PyObject *tuple = PyTuple_New(ndim);
    for (int i = 0; tuple && i < ndim; i++) {
        PyObject *n = PyLong_FromLongLong(shape[i]);
        if (!n || PyTuple_SetItem(tuple, i, n)) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* (shape, dtype). The last one is kept, because consecutive small results often have the same shape. */
static PyObject *shape_and_dtype(int ndim, const int64_t *shape, PyObject *dtype) {
    enum { MOST_KEPT = 4 };
    static PyObject *kept, *kept_dtype;
    static int kept_ndim = -1;
    static int64_t kept_shape[MOST_KEPT];
    if (ndim == kept_ndim && dtype == kept_dtype && memcmp(shape, kept_shape, (size_t)ndim * sizeof *shape) == 0) {
        return Py_NewRef(kept);
    }
    PyObject *tuple = shape_tuple(ndim, shape), *pair = tuple ? PyTuple_Pack(2, tuple, dtype) : NULL;
    Py_XDECREF(tuple);
    if (pair && ndim > 0 && ndim <= MOST_KEPT) {
        PyObject *old = kept;
        kept = Py_NewRef(pair);
        kept_dtype = dtype; /* held by the pair */
        kept_ndim = ndim;
        memcpy(kept_shape, shape, (size_t)ndim * sizeof *shape);
        Py_XDECREF(old);
    }
    return pair;
}

static PyObject *numpy_make(int ndim, const int64_t *shape, PyObject *dtype, size_t bytes) {
    PyObject *pair = shape_and_dtype(ndim, shape, dtype), *result = NULL;
    if (pair && bytes < FROM_POOL) {
        result = PyObject_CallObject(numpy_empty, pair);
    } else if (pair) {
        PyObject *block = block_new(bytes);
        result =
            block ? PyObject_CallFunctionObjArgs(numpy_ndarray, PyTuple_GetItem(pair, 0), dtype, block, NULL) : NULL;
        Py_XDECREF(block);
    }
    Py_XDECREF(pair);
    return result;
}

/* ---- Out: tensors ------------------------------------------------------------------------------------------------ */

/* A tensor in our memory, followed by its shape. */
typedef struct made_tensor {
    dlpack_managed_versioned managed;
    int64_t shape_and_strides[]; /* ndim of each: freeing more than 1 KB makes glibc consolidate its heap each time */
} made_tensor;

static void made_tensor_delete(dlpack_managed_versioned *self) {
    block_give(self->tensor.data);
    free(self);
}

/* The elements of a small tensor follow its shape, in one allocation. */
static void small_tensor_delete(dlpack_managed_versioned *self) { free(self); }

static made_tensor *tensor_room(size_t ndim, size_t bytes, void **data) {
    const size_t head = sizeof(made_tensor) + 2 * ndim * sizeof(int64_t);
    if (bytes < FROM_POOL) {
        made_tensor *t = malloc(head + RESULT_ALIGNMENT + bytes);
        *data = t ? (char *)t + head + (RESULT_ALIGNMENT - ((uintptr_t)t + head) % RESULT_ALIGNMENT) : NULL;
        return t;
    }
    made_tensor *t = malloc(head);
    *data = t ? block_take(bytes) : NULL;
    if (!*data) {
        free(t);
        return NULL;
    }
    return t;
}

static PyObject *tensor_make(array *result, uint8_t code, uint8_t bits) {
    const size_t ndim = (size_t)result->ndim, bytes = (size_t)result->size * (bits / 8);
    void *data = NULL, *object = NULL;
    made_tensor *t = tensor_room(ndim, bytes, &data);
    if (!t) {
        return PyErr_NoMemory();
    }
    int64_t *shape = t->shape_and_strides, *strides = shape + ndim;
    memcpy(shape, result->shape, ndim * sizeof *shape);
    memcpy(strides, result->strides, ndim * sizeof *strides);
    t->managed = (dlpack_managed_versioned){{1, 1},
                                            NULL,
                                            bytes < FROM_POOL ? small_tensor_delete : made_tensor_delete,
                                            0,
                                            {data, DLPACK_CPU, 0, result->ndim, code, bits, 1, shape, strides, 0}};
    result->data = data;
    if (result->exchange->to_object(&t->managed, &object)) {
        t->managed.deleter(&t->managed);
        return NULL;
    }
    return object;
}

/* ---- Out --------------------------------------------------------------------------------------------------------- */

static int make_layout(array *result, const array *like, int ndim, const int64_t *shape) {
    array_start_empty(result);
    int64_t most = PY_SSIZE_T_MAX / (int64_t)sizeof(double);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "a result would have a dimension of size %lld", (long long)shape[i]);
            return -1;
        }
        most /= shape[i] > 0 ? shape[i] : 1;
    }
    if (most == 0) {
        PyErr_SetString(PyExc_MemoryError, "a result would have more bytes than there are addresses");
        return -1;
    }
    result->kind = like->kind;
    result->exchange = like->exchange;
    result->library = Py_XNewRef(like->library);
    result->ndim = ndim;
    if (ndim > 0) {
        memcpy(result->shape, shape, (size_t)ndim * sizeof *shape);
    }
    array_count(result);
    row_major(result);
    return 0;
}

int device_make(array *result, const array *like, int ndim, const int64_t *shape, const char *dtype) {
    if (make_layout(result, like, ndim, shape)) {
        return -1;
    }
    PyObject *sizes = shape_tuple(ndim, shape);
    if (like->kind == KIND_LIBRARY) {
        PyObject *exported = sizes ? PyObject_CallFunction(library_empty_function, "OOsK", like->object, sizes, dtype,
                                                           (unsigned long long)like->stream)
                                   : NULL;
        Py_XDECREF(sizes);
        Py_CLEAR(result->library);
        if (take_exported(result, exported, dtype) < 0) {
            array_release(result);
            return -1;
        }
        return 0;
    }
    PyObject *object = sizes ? PyObject_CallFunction(device_empty_function, "OOs", like->object, sizes, dtype) : NULL;
    Py_XDECREF(sizes);
    dlpack_tensor view;
    if (!object || view_tensor(result, object, &view)) {
        Py_XDECREF(object);
        return -1;
    }
    const dlpack_tensor *t = result->tensor ? &result->tensor->tensor : &view;
    result->object = object;
    result->data = (char *)t->data + t->byte_offset;
    result->device_type = like->device_type;
    result->device_id = like->device_id;
    return 0;
}

PyObject *array_copy_contiguous(const array *a) {
    if (a->kind == KIND_LIBRARY) {
        return PyObject_CallFunctionObjArgs(library_contiguous_function, a->object, NULL);
    }
    return a->exchange ? PyObject_CallMethod(a->object, "contiguous", NULL)
                       : PyObject_CallMethod(numpy_module, "ascontiguousarray", "O", a->object);
}

int same_device(const array *a, const char *name, const array *first) {
    if (array_on_device(a) && array_on_device(first) && (a->kind != first->kind || a->library != first->library)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: it is of another library than the first argument; on a GPU all must be of one "
                     "(torch.from_dlpack and its like convert without a copy)",
                     name);
        return -1;
    }
    if (a->device_type == first->device_type && a->device_id == first->device_id) {
        return 0;
    }
    if (array_on_device(a)) {
        PyErr_Format(PyExc_ValueError, "%s: it is on device %d, and the first argument is not", name,
                     (int)a->device_id);
    } else {
        PyErr_Format(PyExc_ValueError, "%s: it is on the CPU, and the first argument on device %d", name,
                     (int)first->device_id);
    }
    return -1;
}

/* numpy_make, and sets the address of the elements. */
static PyObject *numpy_make_for(array *result, PyObject *dtype, size_t item) {
    PyObject *object = numpy_make(result->ndim, result->shape, dtype, (size_t)result->size * item);
    if (!object) {
        return NULL;
    }
    PyObject *bits = item == 2 && result->dtype == NAPIER_BF16 ? PyObject_CallMethod(object, "view", "s", "uint16")
                                                               : Py_NewRef(object);
    if (!bits || PyObject_GetBuffer(bits, &result->buffer, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        Py_XDECREF(bits);
        Py_DECREF(object);
        return NULL;
    }
    Py_DECREF(bits);
    result->data = result->buffer.buf;
    return object;
}

static const char *const dtype_words[] = {
    [NAPIER_F32] = "float32", [NAPIER_F16] = "float16", [NAPIER_BF16] = "bfloat16", [NAPIER_F64] = "float64"};

int array_make(array *result, const array *like, int ndim, const int64_t *shape, napier_dtype dtype) {
    if (array_on_device(like)) {
        const int failed = device_make(result, like, ndim, shape, dtype_words[dtype]);
        result->dtype = dtype;
        return failed;
    }
    if (make_layout(result, like, ndim, shape)) {
        return -1;
    }
    result->dtype = dtype;
    const uint8_t bits = (uint8_t)(8 * napier_dtype_size(dtype));
    if (result->kind == KIND_TENSOR) {
        result->object = tensor_make(result, dtype == NAPIER_BF16 ? DLPACK_BFLOAT : DLPACK_FLOAT, bits);
    } else {
        PyObject *object = dtype_object(dtype);
        result->object = object ? numpy_make_for(result, object, bits / 8) : NULL;
    }
    return result->object ? 0 : -1;
}

int array_make_integers(array *result, const array *like, int ndim, const int64_t *shape) {
    if (array_on_device(like)) {
        const int failed = device_make(result, like, ndim, shape, "int64");
        result->integer = NAPIER_I64;
        return failed;
    }
    if (make_layout(result, like, ndim, shape)) {
        return -1;
    }
    result->dtype = (napier_dtype)0;
    result->integer = NAPIER_I64;
    result->object =
        result->kind == KIND_TENSOR ? tensor_make(result, DLPACK_INT, 64) : numpy_make_for(result, numpy_int64, 8);
    return result->object ? 0 : -1;
}

PyObject *array_give(array *result) {
    PyObject *object = NULL;
    if (result->library && result->kind != KIND_LIBRARY) {
        object = PyObject_CallFunction(give_function, "OO", result->object, result->library);
    } else if (result->kind == KIND_NUMPY && result->ndim == 0) { /* a number, as NumPy's functions return */
        PyObject *none = PyTuple_New(0);
        object = none ? PyObject_GetItem(result->object, none) : NULL;
        Py_XDECREF(none);
    } else {
        object = Py_NewRef(result->object);
    }
    array_release(result);
    return object;
}

/* ---- Dtypes by name ---------------------------------------------------------------------------------------------- */

int take_dtype(PyObject *value, const char *name, napier_dtype *out) {
    if (!value) {
        return 0;
    }
    static const struct {
        const char *word;
        napier_dtype dtype;
    } words[] = {{"bfloat16", NAPIER_BF16}, {"float32", NAPIER_F32}, {"float16", NAPIER_F16}, {"float64", NAPIER_F64},
                 {"bf16", NAPIER_BF16},     {"f32", NAPIER_F32},     {"f16", NAPIER_F16},     {"f64", NAPIER_F64},
                 {"half", NAPIER_F16},      {"float", NAPIER_F64},   {"double", NAPIER_F64},  {"f2", NAPIER_F16},
                 {"f4", NAPIER_F32},        {"f8", NAPIER_F64}};
    PyObject *text = NULL;
    if (PyUnicode_Check(value)) {
        text = Py_NewRef(value);
    } else {
        text = PyObject_GetAttrString(value, "__name__"); /* numpy.float32, float */
        if (!text) {
            PyErr_Clear();
            text = PyObject_Str(value); /* torch.float32, numpy.dtype("float32") */
        }
    }
    Py_ssize_t length = 0;
    const char *s = text ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    const char *dot = s ? strrchr(s, '.') : NULL;
    for (size_t i = 0; s && i < sizeof words / sizeof *words; i++) {
        if (strcmp(dot ? dot + 1 : s, words[i].word) == 0) {
            *out = words[i].dtype;
            Py_DECREF(text);
            return 0;
        }
    }
    Py_XDECREF(text);
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %R is not float32, float16, bfloat16 or float64", name, value);
    return -1;
}

int dtype_fits_out(PyObject *dtype_given, napier_dtype dtype, PyObject *out_given, const array *out) {
    if (!dtype_given || !out_given || dtype == out->dtype) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "dtype: %s is not the dtype of out, %s; give one of the two", dtype_words[dtype],
                 dtype_words[out->dtype]);
    return -1;
}

/* ---- Start ------------------------------------------------------------------------------------------------------- */

int array_start(void) {
    numpy_module = PyImport_ImportModule("numpy");
    PyObject *convert = numpy_module ? PyImport_ImportModule("napier._ops.convert") : NULL;
    if (!convert) {
        return -1;
    }
    convert_function = PyObject_GetAttrString(convert, "convert");
    give_function = PyObject_GetAttrString(convert, "given_by");
    device_convert_function = PyObject_GetAttrString(convert, "convert_on_device");
    device_empty_function = PyObject_GetAttrString(convert, "empty_on_device");
    Py_DECREF(convert);
    PyObject *copies = PyImport_ImportModule("napier._ops.copies");
    PyObject *device = copies ? PyImport_ImportModule("napier._ops.device") : NULL;
    if (!device) {
        Py_XDECREF(copies);
        return -1;
    }
    copies_function = PyObject_GetAttrString(copies, "call_with_copies");
    Py_DECREF(copies);
    library_export_function = PyObject_GetAttrString(device, "export");
    library_empty_function = PyObject_GetAttrString(device, "empty");
    library_contiguous_function = PyObject_GetAttrString(device, "contiguous");
    Py_DECREF(device);
    numpy_empty = PyObject_GetAttrString(numpy_module, "empty");
    numpy_ndarray = PyObject_GetAttrString(numpy_module, "ndarray");
    numpy_dtypes[NAPIER_F32] = PyObject_CallMethod(numpy_module, "dtype", "s", "float32");
    numpy_dtypes[NAPIER_F16] = PyObject_CallMethod(numpy_module, "dtype", "s", "float16");
    numpy_dtypes[NAPIER_F64] = PyObject_CallMethod(numpy_module, "dtype", "s", "float64");
    numpy_int64 = PyObject_CallMethod(numpy_module, "dtype", "s", "int64");
    block_type = PyType_FromSpec(&block_spec);
    requires_grad_name = PyUnicode_InternFromString("requires_grad");
    is_neg_name = PyUnicode_InternFromString("is_neg");
    return requires_grad_name && is_neg_name && convert_function && copies_function && give_function &&
                   device_convert_function && device_empty_function && library_export_function &&
                   library_empty_function && library_contiguous_function && numpy_empty && numpy_ndarray &&
                   numpy_dtypes[NAPIER_F32] && numpy_dtypes[NAPIER_F16] && numpy_dtypes[NAPIER_F64] && numpy_int64 &&
                   block_type
               ? 0
               : -1;
}
