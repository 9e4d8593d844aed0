/* device.h - calls on a GPU: napier_cuda_NAME takes what napier_NAME takes, on the stream that PyTorch is using, with a
 * workspace that PyTorch allocates.
 *
 * All of it happens with the GIL held: a call only puts kernels into a stream, so one context per device serves all
 * threads. Memory of results and workspace is PyTorch's: it may be given back as soon as the call returns, for PyTorch
 * hands it out again to later work of the same stream only.
 *
 * In a build for tests (NAPIER_CUDA_EMULATED) the device is the one of tests/cuda, whose memory is the host's; tensors on
 * the CPU are taken for its own while napier._napier._emulate(True) holds. */
#ifndef NAPIER_PYTHON_DEVICE_H
#define NAPIER_PYTHON_DEVICE_H

#include "../ext.h"

#include <napier/cuda.h>

typedef struct device_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    napier_cuda_workspace workspace;
    const array *like; /* of the device's arrays */
    PyObject *memory;  /* the workspace's tensor, or NULL */
} device_call;

/* A call on the device of this array. -1 with an error set where this build, or this machine, cannot. */
int device_begin(device_call *d, const array *like);
/* Gets the workspace of which the call has told the size; less than it has is enough. -1 with an error set. */
int device_room(device_call *d);
/* Raises what the status stands for; 0 for NAPIER_OK. */
int device_end(device_call *d, napier_status status, const char *function);

/* status_ = call_(context, stream, workspace, arguments), asked first for its workspace. An allocation that fails leaves a
 * Python error behind. */
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

/* host_(context, ...) as RUN does it, or device_(...) where `like_` lies on a device. */
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

/* As RUN_ANYWHERE, and given_ becomes the object `value_` if it succeeded. */
#define RUN_ANYWHERE_FOR(given_, value_, like_, function_, host_, device_, ...)   \
    do {                                                                          \
        int run_failed_;                                                          \
        RUN_ANYWHERE(run_failed_, like_, function_, host_, device_, __VA_ARGS__); \
        if (!run_failed_) {                                                       \
            (given_) = (value_);                                                  \
        }                                                                         \
    } while (0)

/* For several calls: `host_`, an expression with a context, or `device_`, one with a device_call `on`. */
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
