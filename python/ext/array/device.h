/* device.h - calls on a GPU: napier_cuda_NAME takes the arguments of napier_NAME, uses the current stream of PyTorch, or of
 * the library whose arrays these are (CuPy), and a workspace that it allocates.
 *
 * The GIL is held all the time. A call only puts kernels into a stream, so one context per device serves all threads.
 * The library owns the memory of results and workspace. It may be freed as soon as the call returns, because the library
 * reuses it only for later work of the same stream. Where the stream of a library is unknown, the call waits for its work.
 *
 * In a build for tests (NAPIER_CUDA_EMULATED) the device is that of tests/cuda, whose memory is the host's. Tensors on
 * the CPU count as its own while napier._napier._emulate(True) is in effect. */
#ifndef NAPIER_PYTHON_DEVICE_H
#define NAPIER_PYTHON_DEVICE_H

#include "../ext.h"

#include <napier/cuda.h>

typedef struct device_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    napier_cuda_workspace workspace;
    const array *like; /* an array on the device */
    PyObject *memory;  /* the workspace's tensor, or NULL */
} device_call;

/* Begins a call on the device of this array. Returns -1 with an error set if this build or machine does not support
 * it. */
int device_begin(device_call *d, const array *like);
/* Allocates the workspace whose size the call has returned, unless it has enough already. Returns -1 with an error
 * set. */
int device_room(device_call *d);
/* Raises the exception of a status; returns 0 for NAPIER_OK. */
int device_end(device_call *d, napier_status status, const char *function);

/* status_ = call_(context, stream, workspace, arguments), after a first call that asks for the workspace. A failed
 * allocation leaves a Python error. */
#define DEVICE_CALL(status_, d_, call_, ...)                                                                          \
    do {                                                                                                              \
        napier_cuda_workspace ask_ = {NULL, 0};                                                                       \
        (status_) = (call_)((d_)->context, (d_)->stream, &ask_, __VA_ARGS__);                                         \
        if (!(status_)) {                                                                                             \
            (d_)->workspace.size = ask_.size;                                                                         \
            (status_) = device_room(d_)                                                                               \
                            ? NAPIER_OUT_OF_MEMORY                                                                    \
                            : (call_)((d_)->context, (d_)->stream, ask_.size ? &(d_)->workspace : NULL, __VA_ARGS__); \
        }                                                                                                             \
    } while (0)

/* Runs host_(context, ...) as RUN does, or device_(...) if `like_` is on a device. */
#define RUN_ANYWHERE(failed_, like_, function_, host_, device_, ...) \
    do {                                                             \
        if (!array_on_device(like_)) {                               \
            RUN(failed_, function_, (host_)(context, __VA_ARGS__));  \
        } else {                                                     \
            device_call on_;                                         \
            (failed_) = device_begin(&on_, like_);                   \
            if (!(failed_)) {                                        \
                napier_status on_device_;                            \
                DEVICE_CALL(on_device_, &on_, device_, __VA_ARGS__); \
                (failed_) = device_end(&on_, on_device_, function_); \
            }                                                        \
        }                                                            \
    } while (0)

/* For several calls: `host_` is an expression with a context, `device_` one with a device_call `on`. */
#define RUN_EITHER(failed_, like_, function_, host_, device_, elements_)        \
    do {                                                                        \
        if (!array_on_device(like_)) {                                          \
            RUN_SIZED(failed_, function_, host_, elements_);                    \
        } else {                                                                \
            device_call on;                                                     \
            (failed_) = device_begin(&on, like_);                               \
            (failed_) = (failed_) ? -1 : device_end(&on, (device_), function_); \
        }                                                                       \
    } while (0)

#endif
