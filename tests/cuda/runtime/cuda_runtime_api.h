/* tests/cuda/runtime/cuda_runtime_api.h - in place of NVIDIA's: what src/core/gpu/device.c uses of the CUDA runtime,
 * made by fake_runtime.c without a GPU. A test says what fails, and reads what was asked in which order. */
#ifndef NAPIER_TESTS_CUDA_RUNTIME_API_H
#define NAPIER_TESTS_CUDA_RUNTIME_API_H

#include <stdbool.h>
#include <stddef.h>

/* ---- As NVIDIA declares it, with its numbers -------------------------------------------------------------------------- */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorSystemNotReady = 802,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorCompatNotSupportedOnDevice = 804,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureImplicit = 906
} cudaError_t;

typedef enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
} cudaDeviceAttr;

typedef struct CUstream_st *cudaStream_t;
enum { cudaStreamNonBlocking = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 13
} cudaFuncAttribute;
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int maxDynamicSharedSizeBytes;
};
typedef struct dim3 {
    unsigned x, y, z;
} dim3;
typedef enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4 } cudaLaunchAttributeID;
typedef struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        dim3 clusterDim;
    } val;
} cudaLaunchAttribute;
typedef struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMalloc(void **memory, size_t size);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemset(void *memory, int byte, size_t size);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t size, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);

/* ---- For the test ---------------------------------------------------------------------------------------------------- */

enum { FAKE_STREAMS = 4, FAKE_SHARED_BYTES = 227 << 10 };

typedef struct fake_runtime {
    int driver, runtime;       /* versions, as 13000 */
    int devices, major, minor; /* compute capability */
    cudaError_t sticky;        /* what every call that reaches the device gives: a kernel has failed */
    const char *fails;         /* a call that gives `error` */
    cudaError_t error;
    cudaStream_t capturing;          /* a stream that is captured in the global mode, or NULL */
    bool invalidated;                /* something that is not allowed happened meanwhile */
    enum cudaStreamCaptureMode mode; /* of this thread */
    int max_shared;                  /* of the kernel */
    int set_shared;                  /* how often it was set */
    void (*before_launch)(void);     /* what another thread does between a launch's preparations and the launch */
    int live_allocations, live_streams;
    bool pending[FAKE_STREAMS]; /* work that nothing has waited for; 0: the legacy stream */
    bool wrote_pending;         /* a launch met work in another stream that it is not ordered with */
    int launches;
} fake_runtime;

extern fake_runtime fake;
/* A machine where all is well. */
void fake_reset(void);
/* A stream that does not wait for the legacy one: 1 .. FAKE_STREAMS - 1. */
cudaStream_t fake_stream(int number);

#endif
