/* core/gpu/launch.h - what the host half of an operation (<stem>_cuda.c) needs: a context, errors, workspace, launches.
 *
 * The host half is C11 and includes no header of CUDA. Every build compiles it, and it checks its arguments in every
 * build. A build without CUDA and OpenCL cannot create a context, so it launches nothing; there
 * NAPIER_CUDA_KERNEL(name) is NULL. */
#ifndef NAPIER_CORE_GPU_LAUNCH_H
#define NAPIER_CORE_GPU_LAUNCH_H

#include "core/base/scope.h"
#include "core/gpu/device.h"

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
typedef void napier_cuda_kernel_code(void);

#if defined(NAPIER_CUDA) || defined(NAPIER_OPENCL)
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

/* The number of blocks for a loop over `count` independent pieces, `per_block` in each: at most as many as fill the
 * device `waves` times. The grid never changes a result. */
int64_t napier_cuda_blocks(const napier_cuda_context *context, int64_t count, int64_t per_block, int waves);

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

#endif
