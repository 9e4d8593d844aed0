/* core/gpu/device.c - the part of the CUDA runtime that Napier uses. A build without CUDA gets functions that fail. */
#include <string.h>

#include "core/base/scope.h"
#include "core/gpu/device.h"

#if defined(NAPIER_CUDA) && !defined(NAPIER_CUDA_EMULATED)

#include <cuda_runtime_api.h>

/* The status for each error of the runtime, and advice for the message. All other errors are DEVICE_ERROR. They come
 * from kernels (illegal accesses, traps, timeouts), and the runtime reports them in whatever call comes next. */
static const struct device_error {
    cudaError_t error;
    napier_status status;
    const char *advice;
} device_errors[] = {
    {cudaErrorMemoryAllocation, NAPIER_OUT_OF_MEMORY, ""},
    {cudaErrorInvalidValue, NAPIER_INVALID_ARGUMENT, ""},
    {cudaErrorInvalidResourceHandle, NAPIER_INVALID_ARGUMENT, " (a stream of another device, or none?)"},
    {cudaErrorInvalidConfiguration, NAPIER_UNSUPPORTED, ""},
    {cudaErrorLaunchOutOfResources, NAPIER_UNSUPPORTED, ""},
    {cudaErrorNoDevice, NAPIER_UNSUPPORTED, ""},
    {cudaErrorInitializationError, NAPIER_UNSUPPORTED, " (after a fork?)"},
    {cudaErrorSystemNotReady, NAPIER_UNSUPPORTED, ""},
    {cudaErrorSystemDriverMismatch, NAPIER_UNSUPPORTED, ""},
    {cudaErrorCompatNotSupportedOnDevice, NAPIER_UNSUPPORTED, ""},
    {cudaErrorUnsupportedPtxVersion, NAPIER_UNSUPPORTED, " (update the driver)"},
    {cudaErrorNoKernelImageForDevice, NAPIER_UNSUPPORTED, " (build with its -DCMAKE_CUDA_ARCHITECTURES)"},
    {cudaErrorInvalidDeviceFunction, NAPIER_UNSUPPORTED, " (build with its -DCMAKE_CUDA_ARCHITECTURES)"},
    {cudaErrorStreamCaptureUnsupported, NAPIER_UNSUPPORTED, ""},
    {cudaErrorStreamCaptureInvalidated, NAPIER_UNSUPPORTED, ""},
    {cudaErrorStreamCaptureImplicit, NAPIER_UNSUPPORTED, ""},
};

/* Reports an error of the runtime and clears it, so that the caller's next call does not report it again. */
static napier_status napier_device_fail(napier_cuda_context *context, const char *what, cudaError_t error) {
    struct device_error means = {
        error, NAPIER_DEVICE_ERROR,
        " (in this call or in earlier work on the device; it may take a new process to use it)"};
    for (size_t i = 0; i < sizeof device_errors / sizeof *device_errors; i++) {
        means = device_errors[i].error == error ? device_errors[i] : means;
    }
    (void)cudaGetLastError();
    return napier_fail(context->host, means.status, "%s: %s%s", what, cudaGetErrorString(error), means.advice);
}

static napier_status napier_device_driver_fail(napier_cuda_context *context) {
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "device: no NVIDIA driver is loaded");
    }
    (void)cudaRuntimeGetVersion(&runtime);
    return napier_fail(
        context->host, NAPIER_UNSUPPORTED,
        "device: the driver is for CUDA %d.%d, this build for %d.%d: update the driver, or build with an "
        "older CUDA toolkit",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

int napier_device_count(void) {
    int devices = 0, able = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    for (int i = 0; i < devices; i++) {
        int major = 0;
        able += cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) == cudaSuccess && major >= 8;
    }
    return able;
}

/* Makes the context's device the current one. *before receives the previous one. */
static cudaError_t napier_device_enter(const napier_cuda_context *context, int *before) {
    const cudaError_t error = cudaGetDevice(before);
    return error != cudaSuccess || *before == context->device ? error : cudaSetDevice(context->device);
}

static void napier_device_leave(const napier_cuda_context *context, int before) {
    if (before != context->device) {
        (void)cudaSetDevice(before);
    }
}

static napier_status napier_device_ask(napier_cuda_context *context) {
    const int d = context->device;
    int major = 0, minor = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&context->processors, cudaDevAttrMultiProcessorCount, d);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&context->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, d);
    if (error != cudaSuccess) {
        return napier_device_fail(context, "device", error);
    }
    if (major < 8) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED,
                           "device: %d has compute capability %d.%d, which is less than 8.0", d, major, minor);
    }
    context->tensor_cores = true;
    context->clusters = major >= 9;
    return NAPIER_OK;
}

/* Allocates and clears the memory for the faults. It clears them in a stream of its own and waits for that stream, so
 * that every later launch comes after the clearing. The legacy stream would not do: launches may go to a stream that
 * does not wait for it. In the relaxed mode all of this is allowed while the thread captures a stream into a graph, and
 * does not become part of the graph. */
static cudaError_t napier_device_make_faults(napier_cuda_context *context) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = NULL;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) {
        return error;
    }
    error = cudaMalloc((void **)&context->faults, sizeof *context->faults);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(context->faults, 0, sizeof *context->faults, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (stream != NULL) {
        (void)cudaStreamDestroy(stream);
    }
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

static void napier_device_close(napier_cuda_context *context) {
    int before = 0;
    if (context->faults != NULL && napier_device_enter(context, &before) == cudaSuccess) {
        (void)cudaFree(context->faults);
        napier_device_leave(context, before);
    }
}

static cudaError_t napier_device_take_faults(napier_cuda_context *context, cudaStream_t stream,
                                             napier_cuda_faults *faults) {
    cudaError_t error = cudaMemcpyAsync(faults, context->faults, sizeof *faults, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(context->faults, 0, sizeof *faults, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

/* As napier_device_enter, for work that the host waits for, which no graph can hold. */
static napier_status napier_device_enter_to_wait(napier_cuda_context *context, cudaStream_t stream, const char *refusal,
                                                 int *before) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = napier_device_enter(context, before);
    if (error == cudaSuccess) {
        error = cudaStreamIsCapturing(stream, &capture);
        if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone) {
            return NAPIER_OK;
        }
        napier_device_leave(context, *before);
    }
    return error == cudaSuccess ? napier_fail(context->host, NAPIER_INVALID_ARGUMENT,
                                              "stream: is being captured into a graph%s", refusal)
                                : napier_device_fail(context, "stream", error);
}

static napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream,
                                        napier_cuda_faults *faults) {
    int before = 0;
    NAPIER_TRY(napier_device_enter_to_wait(context, stream, "; synchronize when the graph has run", &before));
    const cudaError_t error = napier_device_take_faults(context, stream, faults);
    napier_device_leave(context, before);
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "stream", error);
}

static napier_status napier_device_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                        int byte, size_t size) {
    int before = 0;
    cudaError_t error = napier_device_enter(context, &before);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(device, byte, size, stream);
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "stream", error);
}

static napier_status napier_device_upload(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                          const void *host, size_t size) {
    int before = 0;
    NAPIER_TRY(
        napier_device_enter_to_wait(context, stream, ", which cannot hold a copy of the caller's memory", &before));
    cudaError_t error = cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream);
    error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
    napier_device_leave(context, before);
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "stream", error);
}

/* A kernel that uses more than 48 KB of dynamic shared memory must ask for it, once per kernel and
 * device. It asks for all that the device has, always the same amount, so that no host thread
 * lowers the limit that another is about to use. */
static cudaError_t napier_device_allow(const napier_cuda_context *context, const void *kernel,
                                       const napier_cuda_shape *shape) {
    struct cudaFuncAttributes now;
    cudaError_t error = cudaSuccess;
    if (shape->shared_bytes > 48 << 10) {
        error = cudaFuncGetAttributes(&now, kernel);
        const int most = error == cudaSuccess ? context->shared_bytes - (int)now.sharedSizeBytes : 0;
        if (error == cudaSuccess && now.maxDynamicSharedSizeBytes < most) {
            error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
        }
    }
    if (error == cudaSuccess && shape->cluster > 8) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    return error;
}

static napier_status napier_device_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                          napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                          size_t job_size) {
    (void)job_size;
    const void *handle = NULL;
    memcpy(&handle, &kernel, sizeof handle);
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension};
    cluster.val.clusterDim.x = (unsigned)shape->cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    const cudaLaunchConfig_t config = {
        .gridDim = {(unsigned)shape->blocks, shape->blocks_y ? (unsigned)shape->blocks_y : 1, 1},
        .blockDim = {(unsigned)shape->threads, 1, 1},
        .dynamicSmemBytes = (size_t)shape->shared_bytes,
        .stream = stream,
        .attrs = &cluster,
        .numAttrs = shape->cluster > 1 ? 1 : 0,
    };
    void *arguments[1];
    memcpy(arguments, &job, sizeof job);
    int before = 0;
    cudaError_t error = napier_device_enter(context, &before);
    if (error == cudaSuccess) {
        error = napier_device_allow(context, handle, shape);
        if (error == cudaSuccess) {
            error = cudaLaunchKernelExC(&config, handle, arguments);
        }
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, what, error);
}

static const napier_device_calls cuda_calls = {.launch = napier_device_launch,
                                               .fill = napier_device_fill,
                                               .upload = napier_device_upload,
                                               .wait = napier_device_wait,
                                               .close = napier_device_close};

napier_status napier_device_open(napier_cuda_context *context, int device) {
    int devices = 0, before = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaErrorInsufficientDriver) {
        return napier_device_driver_fail(context);
    }
    if (error == cudaSuccess && device == -1) {
        error = cudaGetDevice(&device);
    }
    if (error != cudaSuccess) {
        return napier_device_fail(context, "device", error);
    }
    if (device < 0 || device >= devices) {
        return napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "device: %d is not one of the %d there are", device,
                           devices);
    }
    context->device = device;
    context->calls = &cuda_calls;
    const napier_status status = napier_device_ask(context);
    if (status) {
        return status;
    }
    error = napier_device_enter(context, &before);
    if (error == cudaSuccess) {
        error = napier_device_make_faults(context);
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "device", error);
}

#elif !defined(NAPIER_CUDA)

int napier_device_count(void) { return 0; }

napier_status napier_device_open(napier_cuda_context *context, int device) {
    (void)device;
    return napier_fail(context->host, NAPIER_UNSUPPORTED,
                       "device: this build of napier has no CUDA (-DNAPIER_CUDA=ON)");
}

#endif
