/* cuda/device.c - the device: what of the CUDA runtime Napier uses, and nothing where it is built without. */
#include <string.h>

#include "cuda/launch.h"

#if defined(NAPIER_CUDA) && !defined(NAPIER_CUDA_EMULATED)

#include <cuda_runtime_api.h>

/* The text of an error of the runtime; the error is taken off, so that the caller's next call does not meet it again. */
static napier_status napier_device_fail(napier_cuda_context *context, const char *what, cudaError_t error) {
    (void)cudaGetLastError();
    const napier_status status = error == cudaErrorMemoryAllocation ? NAPIER_OUT_OF_MEMORY : NAPIER_UNSUPPORTED;
    return napier_fail(context->host, status, "%s: %s", what, cudaGetErrorString(error));
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

/* Makes the context's device the current one; *before receives what was. */
static cudaError_t napier_device_enter(const napier_cuda_context *context, int *before) {
    const cudaError_t error = cudaGetDevice(before);
    return error != cudaSuccess || *before == context->device ? error : cudaSetDevice(context->device);
}

static void napier_device_leave(const napier_cuda_context *context, int before) {
    if (before != context->device) {
        (void)cudaSetDevice(before);
    }
}

static cudaError_t napier_device_ask(napier_cuda_context *context, int *major) {
    const int d = context->device;
    cudaError_t error = cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, d);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&context->processors, cudaDevAttrMultiProcessorCount, d);
    }
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&context->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, d);
    }
    return error;
}

napier_status napier_device_open(napier_cuda_context *context, int device) {
    int devices = 0, major = 0, before = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess && device == -1) {
        error = cudaGetDevice(&device);
    }
    if (error != cudaSuccess) {
        return napier_device_fail(context, "device", error);
    }
    if (device < 0 || device >= devices) {
        return NAPIER_INVALID_ARGUMENT;
    }
    context->device = device;
    error = napier_device_ask(context, &major);
    if (error != cudaSuccess || major < 8) {
        return NAPIER_UNSUPPORTED;
    }
    context->tensor_cores = true;
    context->clusters = major >= 9;
    error = napier_device_enter(context, &before);
    if (error == cudaSuccess) {
        error = cudaMalloc((void **)&context->faults, sizeof *context->faults);
        if (error == cudaSuccess) {
            error = cudaMemset(context->faults, 0, sizeof *context->faults);
        }
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "device", error);
}

void napier_device_close(napier_cuda_context *context) {
    int before = 0;
    if (context->faults != NULL && napier_device_enter(context, &before) == cudaSuccess) {
        (void)cudaFree(context->faults);
        napier_device_leave(context, before);
    }
}

napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults) {
    int before = 0;
    cudaError_t error = napier_device_enter(context, &before);
    if (error != cudaSuccess) {
        return napier_device_fail(context, "stream", error);
    }
    error = cudaMemcpyAsync(faults, context->faults, sizeof *faults, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(context->faults, 0, sizeof *faults, stream);
    }
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(stream);
    }
    napier_device_leave(context, before);
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "stream", error);
}

napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size) {
    int before = 0;
    cudaError_t error = napier_device_enter(context, &before);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(device, byte, size, stream);
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, "stream", error);
}

/* More dynamic shared memory than 48 KB is to be asked for, once per kernel and device; asking again costs little. */
static cudaError_t napier_device_allow(const void *kernel, const napier_cuda_shape *shape) {
    cudaError_t error = cudaSuccess;
    if (shape->shared_bytes > 48 << 10) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape->shared_bytes);
    }
    if (error == cudaSuccess && shape->cluster > 8) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    return error;
}

napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size) {
    (void)job_size;
    const napier_status fits = napier_cuda_check_shape(context, what, shape);
    if (fits || shape->blocks == 0) {
        return fits;
    }
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
        error = napier_device_allow(handle, shape);
        if (error == cudaSuccess) {
            error = cudaLaunchKernelExC(&config, handle, arguments);
        }
        napier_device_leave(context, before);
    }
    return error == cudaSuccess ? NAPIER_OK : napier_device_fail(context, what, error);
}

#elif !defined(NAPIER_CUDA)

int napier_device_count(void) { return 0; }

napier_status napier_device_open(napier_cuda_context *context, int device) {
    (void)context;
    (void)device;
    return NAPIER_UNSUPPORTED;
}
void napier_device_close(napier_cuda_context *context) { (void)context; }

napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults) {
    (void)stream;
    memset(faults, 0, sizeof *faults);
    return napier_fail(context->host, NAPIER_UNSUPPORTED, "this build has no CUDA");
}

napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size) {
    (void)stream, (void)device, (void)byte, (void)size;
    return napier_fail(context->host, NAPIER_UNSUPPORTED, "this build has no CUDA");
}

napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size) {
    (void)stream, (void)kernel, (void)shape, (void)job, (void)job_size;
    return napier_fail(context->host, NAPIER_UNSUPPORTED, "%s: this build has no CUDA", what);
}

#endif
