/* napier/cuda/device.h - the rules of all GPU calls. They do the operations of the CPU headers on the caller's stream.
 *
 * A call takes a context, a stream and a workspace, followed by the arguments of the CPU call of the same name without
 * `cuda`. All arrays (logits, results, ids, offsets, masks) are in device memory or in memory that the device can
 * reach. The views and the structs of options are in host memory and are read before the call returns.
 *
 * Asynchronous. A call checks what the host can check, puts its kernels into `stream` and returns. It never waits and
 * never allocates, and it may be captured into a CUDA graph. A call may report the error of an earlier launch, even one
 * of another library, as DEVICE_ERROR. After most of these errors only a new process can use the device.
 *
 * Workspace. If `workspace->data` is NULL, the call checks its arguments, writes the number of bytes it needs to
 * workspace->size, and does nothing else. Otherwise data must be device memory aligned to 256 bytes, and size its
 * number of bytes; too few bytes are INVALID_ARGUMENT. The workspace is in use until the stream has run the call.
 * `workspace` may be NULL for calls that need none. The size depends on shapes, dtypes, options and the device (its
 * model and its number of processors), so ask with a context of the device that will run the call. It never depends on
 * values.
 *
 * The host cannot check values in device memory, such as ids and offsets; the kernels check them. They never read or
 * write out of bounds. A result that depends on a bad value is NaN, and napier_cuda_synchronize reports the index of
 * that value.
 *
 * Bits. Calls whose comment says "bitwise" give the CPU's bits, for any grid, device and driver. "Batch-invariant"
 * calls use tensor cores: a row's bits do not depend on the batch, but they are not the CPU's.
 *
 * A build without CUDA has these functions too; there napier_cuda_context_create returns UNSUPPORTED.
 * Thread safety: one context per thread at a time. Work runs in the order of its stream. */
#ifndef NAPIER_CUDA_DEVICE_H
#define NAPIER_CUDA_DEVICE_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t and CUstream are pointers to this struct. NULL is the default stream. */
struct CUstream_st;

typedef struct napier_cuda_context napier_cuda_context;

typedef struct napier_cuda_workspace {
    void *data;  /* device memory; NULL: only ask for the size */
    size_t size; /* bytes */
} napier_cuda_workspace;

/* The number of devices with compute capability 8.0 or later. 0 without a driver and in a build without CUDA. The
 * kernels may be compiled for later devices only (CMAKE_CUDA_ARCHITECTURES). On an earlier device the first launch then
 * returns UNSUPPORTED. */
NAPIER_API int napier_cuda_device_count(void);

/* Creates a context for one device, given by the CUDA runtime's number; -1 is the calling thread's current device. Each
 * call makes the context's device the calling thread's current one while it runs. A context may be created while a
 * stream is being captured into a CUDA graph; nothing of it becomes part of the graph.
 * Errors: INVALID_ARGUMENT (out is NULL, no such device), UNSUPPORTED (a build without CUDA, no driver or one older
 * than the build's CUDA, a device that is too old), OUT_OF_MEMORY, DEVICE_ERROR. On failure *out is NULL, and
 * napier_cuda_device_status gives the text. */
NAPIER_API napier_status napier_cuda_context_create(napier_cuda_context **out, int device);
/* Returns what napier_cuda_context_create would return for this device, and writes the reason to text [size], such as
 * "device: the driver is for CUDA 12.4, ...", or "" if a context can be created. text may be NULL if size is 0. */
NAPIER_API napier_status napier_cuda_device_status(int device, char *text, size_t size);
/* Does not wait: the work of its streams must be done. NULL is allowed. */
NAPIER_API void napier_cuda_context_destroy(napier_cuda_context *context);

/* Like napier_last_error. */
NAPIER_API const char *napier_cuda_last_error(const napier_cuda_context *context);

/* Waits for the stream. Returns INVALID_ARGUMENT if a kernel of this context has found a bad value (an id or offset)
 * since the last call; the text names the first one with its index. It is reported once. A stream that is being
 * captured into a graph is INVALID_ARGUMENT too, and the capture goes on. */
NAPIER_API napier_status napier_cuda_synchronize(napier_cuda_context *context, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
