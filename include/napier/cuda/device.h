/* napier/cuda/device.h - the operations of the other headers on a GPU, on the caller's stream, with the CPU's bits.
 *
 * A call takes what its namesake without `cuda` takes, and before that a context, a stream and a workspace. All arrays are
 * in device memory (or memory the device can reach): logits, results, ids, offsets, masks. Structs of options and the
 * views themselves are the host's, and are read before the call returns.
 *
 * Asynchronous. A call checks what the host can see, puts its kernels into `stream` and returns. It waits for nothing,
 * allocates nothing and may be captured into a CUDA graph. An error of an earlier launch, also of another library's, may be
 * reported by a later call: DEVICE_ERROR. After most of these only a new process can use the device.
 *
 * Workspace. `workspace->data == NULL` asks: the call checks its arguments, writes the bytes it needs to workspace->size
 * and does nothing else. Otherwise data is device memory on a boundary of 256 bytes and size says how much; less than is
 * needed is INVALID_ARGUMENT. It is in use until the stream has run the call. `workspace` may be NULL for calls that need
 * none. What is needed depends on shapes, dtypes, options and the device (how many processors it has, and which): ask on a
 * context of the device that runs the call. It never depends on values.
 *
 * What is only on the device cannot be checked at once: an id that is out of range, offsets that fall. The kernels check
 * them. Nothing out of bounds is read or written, results that depend on them are NaN, and napier_cuda_synchronize tells
 * which index it was.
 *
 * Bits. Calls whose comment says "bitwise" give the CPU's bits, for any grid, device and driver. "Batch-invariant": tensor
 * cores are used; a row's bits do not depend on the batch, but are not the CPU's.
 *
 * A build without CUDA has these functions too: napier_cuda_context_create returns UNSUPPORTED there.
 * Thread safety: one context per thread at a time; the stream's order is the order of the work. */
#ifndef NAPIER_CUDA_DEVICE_H
#define NAPIER_CUDA_DEVICE_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t and CUstream are pointers to this. NULL: the default stream. */
struct CUstream_st;

typedef struct napier_cuda_context napier_cuda_context;

typedef struct napier_cuda_workspace {
    void *data;  /* device memory; NULL: only ask for the size */
    size_t size; /* bytes */
} napier_cuda_workspace;

/* Devices of compute capability 8.0 or later; 0 without a driver, and in a build without CUDA. Where the kernels were compiled
 * for later ones only (CMAKE_CUDA_ARCHITECTURES), the first launch says so: UNSUPPORTED. */
NAPIER_API int napier_cuda_device_count(void);

/* A context for one device, as the CUDA runtime numbers them; -1: the calling thread's current one. Calls make it the
 * current one of the calling thread for as long as they take. Allowed while a stream is being captured into a CUDA graph;
 * nothing of it becomes part of the graph.
 * Errors: INVALID_ARGUMENT (out NULL, no such device), UNSUPPORTED (a build without CUDA, no driver or one older than the
 * build's CUDA, an older device), OUT_OF_MEMORY, DEVICE_ERROR. On failure *out is NULL; napier_cuda_device_status has the
 * text. */
NAPIER_API napier_status napier_cuda_context_create(napier_cuda_context **out, int device);
/* Whether a context can be made for this device: what napier_cuda_context_create returns, and in text [size] why not, as
 * "device: the driver is for CUDA 12.4, ..."; "" where it can. text may be NULL if size is 0. */
NAPIER_API napier_status napier_cuda_device_status(int device, char *text, size_t size);
/* Waits for nothing; the streams' work must be done. NULL is allowed. */
NAPIER_API void napier_cuda_context_destroy(napier_cuda_context *context);

/* As napier_last_error. */
NAPIER_API const char *napier_cuda_last_error(const napier_cuda_context *context);

/* Waits for the stream, and reports the first thing that a kernel of this context found wrong since the last call (an id or
 * offset, with its index): INVALID_ARGUMENT, once. A stream that is being captured into a graph is refused
 * (INVALID_ARGUMENT), and the capture goes on. */
NAPIER_API napier_status napier_cuda_synchronize(napier_cuda_context *context, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
