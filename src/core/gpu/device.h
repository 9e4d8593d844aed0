/* core/gpu/device.h - a device: its memory and its launches. Implemented twice: for the CUDA runtime (device.c) and for the
 * emulated device (tests/cuda/emulator/emulated_device.c). */
#ifndef NAPIER_CORE_GPU_DEVICE_H
#define NAPIER_CORE_GPU_DEVICE_H

#include <stdbool.h>

#include <napier/cuda/device.h>

#include "core/base/context.h"
#include "core/gpu/fault.h"

struct napier_cuda_context {
    napier_context *host;       /* the checks of core/base/view.h write their error text here */
    int device;                 /* number of the device in the CUDA runtime */
    int processors;             /* streaming multiprocessors */
    int shared_bytes;           /* the most dynamic shared memory of a block */
    bool clusters;              /* sm_90 and later */
    bool tensor_cores;          /* sm_80 and later */
    napier_cuda_faults *faults; /* in device memory */
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
 * an error of the caller's earlier work, the status says so and the text names `what`. */
napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size);

/* Fails with UNSUPPORTED, and a text that names `what`, if the device cannot have such a grid, shared memory or cluster. */
static inline napier_status napier_cuda_check_shape(napier_cuda_context *context, const char *what,
                                                    const napier_cuda_shape *shape) {
    enum { MOST_BLOCKS_Y = 65535, MOST_CLUSTER = 16 };
    const bool fits = shape->blocks >= 0 && shape->blocks <= INT32_MAX && shape->blocks_y <= MOST_BLOCKS_Y &&
                      shape->shared_bytes <= context->shared_bytes && shape->cluster <= MOST_CLUSTER;
    return fits ? NAPIER_OK
                : napier_fail(context->host, NAPIER_UNSUPPORTED, "%s: a launch that no device would take", what);
}

/* Fills device memory with a byte, in the stream. */
napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size);

/* Copies to device memory, and waits for it. A stream that is being captured is refused. */
napier_status napier_cuda_upload(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                 const void *host, size_t size);

napier_status napier_device_open(napier_cuda_context *context, int device);
void napier_device_close(napier_cuda_context *context);
int napier_device_count(void);
/* Waits for the stream; reads and clears the faults. */
napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults);

#endif
