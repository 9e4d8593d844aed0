/* core/gpu/launch.h - what the host half of an operation (<stem>_cuda.c) needs: a context, errors, workspace, launches.
 *
 * The host half is C11 and includes no header of CUDA. Every build compiles it, and it checks its arguments in every
 * build. A build without CUDA cannot create a context, so it launches nothing; there
 * NAPIER_CUDA_KERNEL(name) is NULL. */
#ifndef NAPIER_CORE_GPU_LAUNCH_H
#define NAPIER_CORE_GPU_LAUNCH_H

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

/* Every call starts with this. A NULL context gives INVALID_ARGUMENT. Clears the text of the last error. */
napier_status napier_cuda_begin(napier_cuda_context *context);

/* Workspace. The same code adds up how much a call needs and, in a second call, takes the memory in the same order:
 *
 *     napier_cuda_room room = napier_cuda_room_of(workspace);
 *     job.sums = napier_cuda_take(&room, rows, sizeof(napier_sum));
 *     if (!napier_cuda_room_ready(context, &room, &status)) return status;
 *
 * napier_cuda_take returns memory on a boundary of 256 bytes, or NULL if the call only asks for the size. */
typedef struct napier_cuda_room {
    napier_cuda_workspace *workspace;
    size_t used;
    bool overflow;
} napier_cuda_room;

napier_cuda_room napier_cuda_room_of(napier_cuda_workspace *workspace);
void *napier_cuda_take(napier_cuda_room *room, int64_t count, size_t size);
/* True: continue and launch. False: return *status, which is OK if the call only asked for the size. */
bool napier_cuda_room_ready(napier_cuda_context *context, const napier_cuda_room *room, napier_status *status);

/* A kernel by its name in a .cu file. Host code writes NAPIER_CUDA_KERNEL_DECLARE(name); once, then
 * NAPIER_CUDA_KERNEL(name). */
typedef void (*napier_cuda_kernel)(void);

#if defined(NAPIER_CUDA)
#define NAPIER_CUDA_KERNEL_DECLARE(name) void name(void)
#define NAPIER_CUDA_KERNEL(name) (name)
#else
#define NAPIER_CUDA_KERNEL_DECLARE(name) struct name##_is_not_in_this_build
#define NAPIER_CUDA_KERNEL(name) ((napier_cuda_kernel)0)
#endif

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

/* Fails with UNSUPPORTED, and a text that names `what`, if the device cannot
 * have such a grid, shared memory or cluster. */
napier_status napier_cuda_check_shape(napier_cuda_context *context, const char *what, const napier_cuda_shape *shape);

/* The number of blocks for a loop over `count` independent pieces, `per_block` in each: at most as many as fill the
 * device `waves` times. The grid never changes a result. */
int64_t napier_cuda_blocks(const napier_cuda_context *context, int64_t count, int64_t per_block, int waves);

/* Fills device memory with a byte, in the stream. */
napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size);

/* Implemented twice: for the CUDA runtime (device.c) and for the emulated device
 * (tests/cuda/emulator/emulated_device.c). */
napier_status napier_device_open(napier_cuda_context *context, int device);
void napier_device_close(napier_cuda_context *context);
int napier_device_count(void);
/* Waits for the stream; reads and clears the faults. */
napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults);

#endif
