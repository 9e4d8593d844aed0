/* plain.c - see ext.h: which tensors PyTorch would only compute with. */
#include "../ext.h"

#include <string.h>

typedef int64_t count_function(void);
typedef void *const *place_function(void);
typedef bool mode_function(void);

/* What PyTorch is asked for. Its module is loaded: only napier.torch calls this. */
static struct {
    PyObject *tensor, *parameter; /* types; subclasses have their own rules */
    PyObject *dispatch_modes, *function_modes, *tracing, *transforms, *grad_enabled, *forward_mode;
    PyObject *requires_grad, *level; /* names */
} torch;

/* The C++ functions behind four of these, which save a call of Python each; all NULL where PyTorch lacks one. */
static struct {
    count_function *dispatch_modes, *function_modes;
    place_function *tracing; /* where the pointer to what traces is */
    mode_function *grad_enabled;
} direct;

static PyObject *attribute(const char *module_name, const char *name) {
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *value = module && name ? PyObject_GetAttrString(module, name) : Py_XNewRef(module);
    Py_XDECREF(module);
    return value;
}

static void find_direct(void) {
    void *const found[] = {
        loaded_function("libc10.so", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"),
        loaded_function("libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"),
        loaded_function("libtorch_cpu.so", "_ZN5torch3jit6tracer15getTracingStateEv"),
        loaded_function("libc10.so", "_ZN3c108GradMode10is_enabledEv"),
    };
    if (found[0] && found[1] && found[2] && found[3]) {
        memcpy(&direct, found, sizeof found); /* functions have the addresses that loaded_function returns */
    }
}

static bool torch_start(void) {
    if (torch.level) {
        return true;
    }
    torch.tensor = attribute("torch", "Tensor");
    torch.parameter = attribute("torch.nn", "Parameter");
    torch.dispatch_modes = attribute("torch._C", "_len_torch_dispatch_stack");
    torch.function_modes = attribute("torch._C", "_len_torch_function_stack");
    torch.tracing = attribute("torch._C", "_is_tracing");
    torch.transforms = attribute("torch._C", "_are_functorch_transforms_active");
    torch.grad_enabled = attribute("torch", "is_grad_enabled");
    torch.forward_mode = attribute("torch.autograd.forward_ad", NULL);
    torch.requires_grad = PyUnicode_InternFromString("requires_grad");
    if (torch.tensor && torch.parameter && torch.dispatch_modes && torch.function_modes && torch.tracing &&
        torch.transforms && torch.grad_enabled && torch.forward_mode && torch.requires_grad) {
        find_direct();
        torch.level = PyUnicode_InternFromString("_current_level");
    }
    return torch.level;
}

/* Whether the object is there and true; a number other than 0 is. Takes the reference. */
static bool is_true(PyObject *object) {
    const bool truth = object == Py_True || (object && object != Py_False && PyObject_IsTrue(object) == 1);
    Py_XDECREF(object);
    return truth;
}

static bool in_mode_or_trace(void) {
    if (direct.tracing) {
        return direct.dispatch_modes() != 0 || direct.function_modes() != 0 || *direct.tracing() != NULL;
    }
    return is_true(PyObject_CallNoArgs(torch.dispatch_modes)) || is_true(PyObject_CallNoArgs(torch.function_modes)) ||
           is_true(PyObject_CallNoArgs(torch.tracing));
}

/* Whether PyTorch only computes now: it does not trace, and no mode or transform is active. */
static bool nothing_active(void) {
    PyObject *level = PyObject_GetAttr(torch.forward_mode, torch.level);
    const bool outside = level && PyLong_AsLong(level) < 0;
    Py_XDECREF(level);
    return outside && !in_mode_or_trace();
}

static bool in_transform(void) { return is_true(PyObject_CallNoArgs(torch.transforms)); }

static bool is_recording(void) {
    return direct.grad_enabled ? direct.grad_enabled() : is_true(PyObject_CallNoArgs(torch.grad_enabled));
}

static tensor_use use_of_tensor(PyObject *object, bool recording) {
    if ((PyObject *)Py_TYPE(object) != torch.tensor && (PyObject *)Py_TYPE(object) != torch.parameter) {
        return USE_OTHER;
    }
    return recording && is_true(PyObject_GetAttr(object, torch.requires_grad)) ? USE_RECORDED : USE_PLAIN;
}

tensor_use tensor_use_of(PyObject *const *objects, Py_ssize_t count) {
    tensor_use use = torch_start() && nothing_active() ? USE_PLAIN : USE_OTHER;
    const bool recording = use == USE_PLAIN && is_recording();
    for (Py_ssize_t i = 0; i < count && use != USE_OTHER; i++) {
        const tensor_use other = use_of_tensor(objects[i], recording);
        use = other == USE_PLAIN ? use : other;
    }
    use = use == USE_RECORDED && in_transform() ? USE_OTHER : use;
    PyErr_Clear(); /* what could not be asked is not plain */
    return use;
}

static PyObject *use_of(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    tensor_use use = torch_start() && !in_transform() ? USE_PLAIN : USE_OTHER;
    for (Py_ssize_t i = 0; i < count && use != USE_OTHER; i++) {
        const int is_tensor = PyObject_IsInstance(args[i], torch.tensor);
        if (is_tensor != 0) {
            const tensor_use other = is_tensor > 0 ? tensor_use_of(args + i, 1) : USE_OTHER;
            use = other == USE_OTHER || !tensor_has_memory(args[i]) ? USE_OTHER : other == USE_RECORDED ? other : use;
        }
    }
    PyErr_Clear();
    return PyLong_FromLong((long)use);
}

PyMethodDef plain_functions[] = {
    {"_use_of", (PyCFunction)(void (*)(void))use_of, METH_FASTCALL,
     "_use_of(*arguments)\n--\n\nWhat PyTorch does here and now with the result of a call on the tensors among them: a "
     "tensor_use."},
    {NULL, NULL, 0, NULL}};
