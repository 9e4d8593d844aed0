/* core/gpu/launch.h - what the host half of an operation (<room>/<stem>_cuda.c) needs: a context, errors, workspace,
 * launches.
 *
 * The host half is C11 and includes no header of CUDA: it is compiled in every build, and checks its arguments in every
 * build. A build without CUDA makes no context, so nothing is ever launched there; NAPIER_CUDA_KERNEL(name) is NULL. */
#ifndef NAPIER_CORE_GPU_LAUNCH_H
#define NAPIER_CORE_GPU_LAUNCH_H

#include <stdbool.h>

#include <napier/cuda/device.h>

#include "core/base/context.h"
#include "core/gpu/fault.h"

struct napier_cuda_context {
    napier_context *host;       /* checks of core/base/view.h leave their text here */
    int device;                 /* as the CUDA runtime numbers them */
    int processors;             /* streaming multiprocessors */
    int shared_bytes;           /* dynamic shared memory that a block may ask for */
    bool clusters;              /* sm_90 and later */
    bool tensor_cores;          /* sm_80 and later */
    napier_cuda_faults *faults; /* in device memory */
};

/* Every call starts with this: context NULL gives INVALID_ARGUMENT; the error's text is cleared. */
napier_status napier_cuda_begin(napier_cuda_context *context);

/* Workspace. A call adds up what it needs, then takes it in the same order:
 *     napier_cuda_room room = napier_cuda_room_of(workspace);
 *     job.sums = napier_cuda_take(&room, rows, sizeof(napier_sum));
 *     if (!napier_cuda_room_ready(context, &room, &status)) return status;
 * `take` gives memory on a boundary of 256 bytes, or NULL while only the size is asked. */
typedef struct napier_cuda_room {
    napier_cuda_workspace *workspace;
    size_t used;
    bool overflow;
} napier_cuda_room;

napier_cuda_room napier_cuda_room_of(napier_cuda_workspace *workspace);
void *napier_cuda_take(napier_cuda_room *room, int64_t count, size_t size);
/* True: go on and launch. False: return *status, which is OK where only the size was asked. */
bool napier_cuda_room_ready(napier_cuda_context *context, const napier_cuda_room *room, napier_status *status);

/* A kernel by its name in a .cu file. Host code: NAPIER_CUDA_KERNEL_DECLARE(name); once, then NAPIER_CUDA_KERNEL(name). */
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

/* Puts one launch into the stream; job: the kernel's one argument, copied. An error of the launch (also one left by the
 * caller's own earlier work) is a status and a text that names `what`. */
napier_status napier_cuda_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                 napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                 size_t job_size);

/* A grid, a block's shared memory and a cluster that a device can have: else UNSUPPORTED, and a text that names `what`. */
napier_status napier_cuda_check_shape(napier_cuda_context *context, const char *what, const napier_cuda_shape *shape);

/* Blocks for a loop over `count` independent pieces, `per_block` to a block: as many as fill the device `waves` times at
 * most. A grid never changes a result. */
int64_t napier_cuda_blocks(const napier_cuda_context *context, int64_t count, int64_t per_block, int waves);

/* Fills device memory with bytes, in the stream. */
napier_status napier_cuda_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                               size_t size);

/* What differs between the CUDA runtime (device.c) and the emulated device (tests/cuda/emulator/emulated_device.c). */
napier_status napier_device_open(napier_cuda_context *context, int device);
void napier_device_close(napier_cuda_context *context);
int napier_device_count(void);
/* Waits for the stream; reads and clears the faults. */
napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults);

#endif
