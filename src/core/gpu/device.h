/* core/gpu/device.h - a device: its memory and its launches. Implemented for the CUDA runtime (device.c), for OpenCL
 * (opencl/opencl_device.c) and for the emulated device (tests/cuda/emulator/emulated_device.c). */
#ifndef NAPIER_CORE_GPU_DEVICE_H
#define NAPIER_CORE_GPU_DEVICE_H

#include <stdbool.h>

#include <napier/cuda/device.h>

#include "core/base/context.h"
#include "core/gpu/fault.h"

struct napier_cuda_context {
    napier_context *host; /* the checks of core/base/view.h write their error text here */
    const struct napier_device_calls *calls;
    struct napier_opencl *opencl; /* opencl/opencl.h; NULL: a device of CUDA */
    int device;                   /* number of the device in the CUDA runtime */
    int processors;               /* streaming multiprocessors */
    int shared_bytes;             /* the most dynamic shared memory of a block */
    bool clusters;                /* sm_90 and later */
    bool tensor_cores;            /* sm_80 and later */
    napier_cuda_faults *faults;   /* in device memory */
};

typedef void (*napier_cuda_kernel)(void);

typedef struct napier_cuda_shape {
    int64_t blocks;       /* gridDim.x; 0 launches nothing */
    int64_t blocks_y;     /* gridDim.y; 0 counts as 1 */
    int threads;          /* of a block, a multiple of 32 */
    int64_t shared_bytes; /* dynamic */
    int cluster;          /* blocks of a cluster, a divisor of `blocks`; 0 counts as 1 */
} napier_cuda_shape;

/* Puts one launch into the stream. The job, the kernel's only argument, is copied. If the launch fails, also because of
 * an error of the caller's earlier work, the status says so and the text names `what`. UNSUPPORTED if no device can have such a
 * grid, shared memory or cluster. */
napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size);

/* Fills device memory with a byte, in the stream. */
napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size);

/* Copies to device memory, and waits for it. A stream that is being captured is refused. */
napier_status napier_cuda_upload(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                 const void *host, size_t size);

/* The same of one kind of device. */
typedef struct napier_device_calls {
    napier_status (*launch)(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                            napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                            size_t job_size);
    napier_status (*fill)(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                          size_t size);
    napier_status (*upload)(napier_cuda_context *context, struct CUstream_st *stream, void *device, const void *host,
                            size_t size);
    /* Waits for the stream; reads and clears the faults. */
    napier_status (*wait)(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults);
    void (*close)(napier_cuda_context *context);
} napier_device_calls;

/* Sets context->calls, also on failure if there is something to close. */
napier_status napier_device_open(napier_cuda_context *context, int device);
int napier_device_count(void);

#endif
