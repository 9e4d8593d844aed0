/* tests/cuda/runtime/fake_runtime.c - see cuda_runtime_api.h. Rules from the CUDA Runtime API's reference: which calls a capture
 * forbids, which errors stay, what orders streams. */
#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

fake_runtime fake;

static char streams[FAKE_STREAMS]; /* their addresses are the streams */

void fake_reset(void) {
    fake = (fake_runtime){.driver = 13000, .runtime = 13000, .devices = 1, .major = 9, .max_shared = 48 << 10};
}

cudaStream_t fake_stream(int number) { return (cudaStream_t)(void *)&streams[number]; }

static int number_of(cudaStream_t stream) { return stream == NULL ? 0 : (int)((char *)(void *)stream - streams); }

static bool said_to_fail(const char *call) { return fake.fails != NULL && strcmp(fake.fails, call) == 0; }

/* A call that reaches the device; `unsafe`: not allowed while a stream is captured, but in the relaxed mode. */
static cudaError_t reach(const char *call, bool unsafe) {
    if (said_to_fail(call)) {
        return fake.error;
    }
    if (fake.sticky != cudaSuccess) {
        return fake.sticky;
    }
    if (unsafe && fake.capturing != NULL && fake.mode != cudaStreamCaptureModeRelaxed) {
        fake.invalidated = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
}

/* Work in a stream. The legacy stream waits for streams that may be captured: not then. */
static cudaError_t in_stream(const char *call, cudaStream_t stream) {
    const cudaError_t error = reach(call, false);
    if (error == cudaSuccess && stream == NULL && fake.capturing != NULL) {
        fake.invalidated = true;
        return cudaErrorStreamCaptureImplicit;
    }
    if (error == cudaSuccess) {
        fake.pending[number_of(stream)] = true;
    }
    return error;
}

cudaError_t cudaGetLastError(void) { return fake.sticky; }

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    default: return "another error";
    }
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = fake.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = fake.runtime;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = fake.devices;
    return fake.driver < fake.runtime ? cudaErrorInsufficientDriver : reach("cudaGetDeviceCount", false);
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device < fake.devices ? cudaSuccess : cudaErrorInvalidValue; }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? fake.major
             : attribute == cudaDevAttrComputeCapabilityMinor ? fake.minor
             : attribute == cudaDevAttrMultiProcessorCount    ? 132
                                                              : FAKE_SHARED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t size) {
    const cudaError_t error = reach("cudaMalloc", true);
    if (error == cudaSuccess) {
        *memory = malloc(size);
        fake.live_allocations++;
    }
    return error;
}

cudaError_t cudaFree(void *memory) {
    free(memory);
    fake.live_allocations--;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int byte, size_t size) { return cudaMemsetAsync(memory, byte, size, NULL); }

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t size, cudaStream_t stream) {
    const cudaError_t error = in_stream("cudaMemsetAsync", stream);
    if (error == cudaSuccess) {
        memset(memory, byte, size);
    }
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    const cudaError_t error = in_stream("cudaMemcpyAsync", stream);
    if (error == cudaSuccess) {
        memcpy(to, from, size);
    }
    return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    const cudaError_t error =
        flags == cudaStreamNonBlocking ? reach("cudaStreamCreateWithFlags", false) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *stream = fake_stream(FAKE_STREAMS - 1);
        fake.live_streams++;
    }
    return error;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    fake.live_streams--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream == fake.capturing && stream != NULL) {
        fake.invalidated = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    const cudaError_t error = in_stream("cudaStreamSynchronize", stream);
    if (error == cudaSuccess) {
        fake.pending[number_of(stream)] = false;
    }
    return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    const bool it_is = stream != NULL && stream == fake.capturing;
    *status = it_is ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return reach("cudaStreamIsCapturing", false);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    const enum cudaStreamCaptureMode before = fake.mode;
    fake.mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    (void)kernel;
    attributes->sharedSizeBytes = 0;
    attributes->maxDynamicSharedSizeBytes = fake.max_shared;
    return reach("cudaFuncGetAttributes", false);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    (void)kernel;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        fake.max_shared = value;
        fake.set_shared++;
    }
    return value <= FAKE_SHARED_BYTES ? reach("cudaFuncSetAttribute", false) : cudaErrorInvalidValue;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    (void)kernel, (void)arguments;
    if (fake.before_launch != NULL) {
        void (*const other_thread)(void) = fake.before_launch;
        fake.before_launch = NULL;
        other_thread();
    }
    if (config->dynamicSmemBytes > (size_t)fake.max_shared) {
        return cudaErrorInvalidValue;
    }
    const int mine = number_of(config->stream);
    for (int i = 0; i < FAKE_STREAMS; i++) {
        fake.wrote_pending = fake.wrote_pending || (i != mine && fake.pending[i]);
    }
    fake.launches++;
    return in_stream("cudaLaunchKernelExC", config->stream);
}
