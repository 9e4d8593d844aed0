/* device.c - see device.h: contexts, streams and workspaces of calls on a GPU. */
#include "device.h"

enum { MOST_DEVICES = 64, WORKSPACE_ALIGNMENT = 256 };

/* With the GIL held. */
static napier_cuda_context *contexts[MOST_DEVICES];

#if defined(NAPIER_CUDA_EMULATED)
static PyObject *emulate(PyObject *self, PyObject *value) {
    (void)self;
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) {
        return NULL;
    }
    device_emulate(truth);
    Py_RETURN_NONE;
}
#endif

static napier_cuda_context *context_of(int32_t id) {
    if (id < 0 || id >= MOST_DEVICES) {
        PyErr_Format(PyExc_NotImplementedError, "device %d: this build knows %d", (int)id, (int)MOST_DEVICES);
        return NULL;
    }
    if (!contexts[id]) {
        char text[300] = "";
        const napier_status status = napier_cuda_context_create(&contexts[id], id);
        if (status) {
            (void)napier_cuda_device_status(id, text, sizeof text);
            PyErr_Format(status == NAPIER_UNSUPPORTED     ? PyExc_NotImplementedError
                         : status == NAPIER_OUT_OF_MEMORY ? PyExc_MemoryError
                                                          : PyExc_RuntimeError,
                         "cuda:%d: %s%s", (int)id, text[0] ? text : napier_status_string(status),
                         status == NAPIER_UNSUPPORTED ? "; use .cpu()" : "");
        }
    }
    return contexts[id];
}

static int stream_of(const array *a, struct CUstream_st **stream) {
    void *current = NULL;
    if (a->kind == KIND_LIBRARY) { /* DLPack's 1 and 2 are CUDA's handles of the default streams */
        current = (void *)a->stream;
    }
    const dlpack_exchange *e = a->exchange;
    if (a->device_type != DLPACK_CPU && e && e->current_stream &&
        e->current_stream(DLPACK_CUDA, a->device_id, &current)) {
        return -1;
    }
    *stream = current;
    return 0;
}

int device_begin(device_call *d, const array *like) {
    *d = (device_call){.like = like, .context = context_of(like->device_id)};
    return d->context ? stream_of(like, &d->stream) : -1;
}

int device_room(device_call *d) {
    if (d->workspace.size == 0) {
        return 0;
    }
    if (d->workspace.size > PY_SSIZE_T_MAX - WORKSPACE_ALIGNMENT) {
        PyErr_NoMemory();
        return -1;
    }
    const int64_t size = (int64_t)d->workspace.size + WORKSPACE_ALIGNMENT; /* PyTorch's memory may be less aligned */
    array room;
    Py_CLEAR(d->memory);
    if (device_make(&room, d->like, 1, &size, "uint8")) {
        return -1;
    }
    d->workspace.data = room.data + (WORKSPACE_ALIGNMENT - (uintptr_t)room.data % WORKSPACE_ALIGNMENT);
    d->memory = Py_NewRef(room.object);
    array_release(&room);
    return 0;
}

int device_end(device_call *d, napier_status status, const char *function) {
    if (status == NAPIER_OK && d->like->kind == KIND_LIBRARY && d->like->stream == 0) {
        status = napier_cuda_synchronize(d->context, d->stream);
    }
    Py_CLEAR(d->memory);
    if (status == NAPIER_OK || PyErr_Occurred()) {
        return status == NAPIER_OK ? 0 : -1;
    }
    const char *text = napier_cuda_last_error(d->context);
    PyErr_Format(status == NAPIER_INVALID_ARGUMENT ? PyExc_ValueError
                 : status == NAPIER_OUT_OF_MEMORY  ? PyExc_MemoryError
                 : status == NAPIER_UNSUPPORTED    ? PyExc_NotImplementedError
                                                   : PyExc_RuntimeError,
                 "%s: %s", function, text[0] ? text : napier_status_string(status));
    return -1;
}

/* ---- Functions --------------------------------------------------------------------------------------------------- */

static PyObject *cuda_device_count(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    return PyLong_FromLong(napier_cuda_device_count());
}

/* Takes a tensor of the device. The GIL is held because the context serves one thread at a time; wait for the stream
 * before. */
static PyObject *cuda_synchronize(PyObject *self, PyObject *value) {
    (void)self;
    array x;
    device_call d;
    if (array_take(&x, value, "x", TAKE_FLOATS | TAKE_INTEGERS | TAKE_BYTES | TAKE_DEVICE)) {
        return NULL;
    }
    int failed = 0;
    if (array_on_device(&x)) {
        failed = device_begin(&d, &x) || device_end(&d, napier_cuda_synchronize(d.context, d.stream), "synchronize");
    }
    array_release(&x);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyMethodDef device_functions[] = {
    {"cuda_device_count", cuda_device_count, METH_NOARGS,
     "cuda_device_count()\n--\n\nGPUs that this build can compute on; 0 where it was built without CUDA."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> napier.cuda_device_count() >= 0\n"
     "True\n"},
    {"_cuda_synchronize", cuda_synchronize, METH_O,
     "_cuda_synchronize(x, /)\n--\n\nWaits for the stream of a tensor's device, and raises what a kernel found wrong."},
#if defined(NAPIER_CUDA_EMULATED)
    {"_emulate", emulate, METH_O, "_emulate(on, /)\n--\n\nTensors on the CPU are taken for the emulated device's."},
#endif
    {NULL, NULL, 0, NULL}};
