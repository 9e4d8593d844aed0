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
#include "core/base/scope.h"
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
 *     NAPIER_CUDA_READY(context, room);
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
/* Returns from the function unless the workspace is there. */
#define NAPIER_CUDA_READY(context, room)                         \
    do {                                                         \
        napier_status asked;                                     \
        if (!napier_cuda_room_ready(context, &(room), &asked)) { \
            return asked;                                        \
        }                                                        \
    } while (0)
/* The same in a call that needs none. */
#define NAPIER_CUDA_READY_WITHOUT(context, workspace)                       \
    do {                                                                    \
        const napier_cuda_room none_taken = napier_cuda_room_of(workspace); \
        NAPIER_CUDA_READY(context, none_taken);                             \
    } while (0)

/* Kernels by their names in the .cu files. Host code declares those that it launches by
 * NAPIER_CUDA_KERNEL_DECLARE(name, ...); and then writes NAPIER_CUDA_KERNEL(name). */
typedef void (*napier_cuda_kernel)(void);
typedef void napier_cuda_kernel_code(void);

#if defined(NAPIER_CUDA)
#define NAPIER_CUDA_KERNEL_DECLARE(...) napier_cuda_kernel_code __VA_ARGS__
#define NAPIER_CUDA_KERNEL(name) (name)
#else
#define NAPIER_CUDA_KERNEL_DECLARE(...) struct napier_cuda_kernels_are_not_in_this_build
#define NAPIER_CUDA_KERNEL(name) ((napier_cuda_kernel)0)
#endif

/* Kernels for f32, f16 and bf16, whose names end in the dtype: declared, in an array, and their index in it. */
#define NAPIER_CUDA_DTYPES_DECLARE(name) NAPIER_CUDA_KERNEL_DECLARE(name##_f32, name##_f16, name##_bf16)
#define NAPIER_CUDA_DTYPES(name) \
    { NAPIER_CUDA_KERNEL(name##_f32), NAPIER_CUDA_KERNEL(name##_f16), NAPIER_CUDA_KERNEL(name##_bf16) }
static inline int napier_cuda_dtype_index(napier_dtype dtype) {
    return dtype == NAPIER_F32 ? 0 : dtype == NAPIER_F16 ? 1 : 2;
}

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

/* What all launches of a call share. */
typedef struct napier_cuda_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    const char *what; /* the call's name, for messages */
} napier_cuda_call;

/* One launch of a call. NAPIER_CUDA_PUT names the kernel and passes a pointer to the job, which gives its size. */
napier_status napier_cuda_put(const napier_cuda_call *call, napier_cuda_kernel kernel, napier_cuda_shape shape,
                              const void *job, size_t job_size);
#define NAPIER_CUDA_PUT(call, kernel, shape, job) \
    napier_cuda_put(call, NAPIER_CUDA_KERNEL(kernel), shape, job, sizeof *(job))

/* The shape of a loop over `count` pieces, as napier_cuda_blocks, without shared memory. */
napier_cuda_shape napier_cuda_loop(const napier_cuda_call *call, int64_t count, int64_t per_block, int waves,
                                   int threads);

/* Sets device memory to 0, in the stream. */
napier_status napier_cuda_clear(const napier_cuda_call *call, void *device, size_t size);

/* How many pieces of `size` cover `count`. */
static inline int64_t napier_cuda_tiles(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* Implemented twice: for the CUDA runtime (device.c) and for the emulated device
 * (tests/cuda/emulator/emulated_device.c). */
napier_status napier_device_open(napier_cuda_context *context, int device);
void napier_device_close(napier_cuda_context *context);
int napier_device_count(void);
/* Waits for the stream; reads and clears the faults. */
napier_status napier_device_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults);

#endif
