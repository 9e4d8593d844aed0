/* napier/opencl.h - the calls of napier/cuda.h on a device of OpenCL. Experimental: a 1.x may change it (docs/stability.md).
 *
 * napier_opencl_context_create makes a napier_cuda_context of an OpenCL device; all calls of napier/cuda.h take it, with the
 * CPU's bits, but for those that use tensor cores (they return UNSUPPORTED). The device's compiler gets the same kernels at the
 * first launch of each, which takes seconds. Give a folder where compiled kernels are kept: a file is used only if it is whole and
 * was made from the same text by the same driver of the same device with the same options, and is written anew otherwise. The
 * folder may be emptied at any time.
 *
 * The device. OpenCL 3.0, or 2.1; coarse-grained shared virtual memory; f64; 64-bit atomics; sub-groups of 32 or 64 threads
 * with shuffles and ballots. OpenCL promises neither exact division nor subnormal numbers, so creating a context computes
 * additions, products, fused multiply-adds, quotients, square roots, roundings and conversions of a million triples of f32 and
 * f64 on the device, subnormal numbers among them, and compares them with the host's bits. A device that differs in one is
 * refused, by the operation's name.
 *
 * Memory. Arrays and workspaces are in shared virtual memory (SVM) on boundaries of their elements, workspaces on 256 bytes.
 * OpenCL must know which SVM a kernel may reach, so a context holds a list: napier_opencl_allocate adds to it, and
 * napier_opencl_memory_add takes SVM that you have allocated with clSVMAlloc. The host reads and writes coarse-grained SVM by
 * napier_opencl_copy, or between clEnqueueSVMMap and -Unmap.
 *
 * Streams. The argument `stream` is a command queue, cast to its type, that runs in order and belongs to the same OpenCL
 * context. NULL is the context's own queue. Nothing orders the work of two queues.
 *
 * Thread safety: one context per thread at a time. A build without -DNAPIER_OPENCL=ON has these functions too; there
 * napier_opencl_context_create returns UNSUPPORTED. */
#ifndef NAPIER_OPENCL_H
#define NAPIER_OPENCL_H

#include <napier/cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cl_context, cl_device_id and cl_command_queue are pointers to these. */
struct _cl_context;
struct _cl_device_id;
struct _cl_command_queue;

typedef struct napier_opencl_options {
    size_t struct_size;   /* sizeof(napier_opencl_options) */
    const char *compiler; /* options added to those of the device's compiler, such as "-cl-opt-disable"; NULL: none */
    const char *cache;    /* an existing folder for compiled kernels, which nobody else can write to; NULL: none */
} napier_opencl_options;

/* All defaults, with struct_size set. */
#define NAPIER_OPENCL_OPTIONS_INIT \
    { sizeof(napier_opencl_options), NULL, NULL }

/* Creates a context on a device of OpenCL: `device` of the OpenCL context `context`, and a queue of it that runs in order; they
 * must live longer than the result. All three NULL: the first device that can do all of the above, GPUs before others, with an
 * OpenCL context and a queue of its own. napier_cuda_context_destroy ends it. `options` may be NULL. If `text` is given, it
 * receives why creation failed, or "".
 * Errors: INVALID_ARGUMENT (out is NULL, some but not all of the three are NULL, struct_size), UNSUPPORTED (a build without
 * OpenCL, no device, a device that lacks something or whose arithmetic differs), OUT_OF_MEMORY, DEVICE_ERROR. On failure *out
 * is NULL. */
NAPIER_API napier_status napier_opencl_context_create(napier_cuda_context **out, struct _cl_context *context,
                                                      struct _cl_device_id *device, struct _cl_command_queue *queue,
                                                      const napier_opencl_options *options, char *text, size_t size);

/* The device's name and driver, such as "Intel(R) Arc(TM) A770 Graphics, 24.22"; "" for a context that is not of OpenCL. */
NAPIER_API const char *napier_opencl_device_name(const napier_cuda_context *context);

/* All that follows returns INVALID_ARGUMENT for a context that is not of OpenCL. */

/* Shared virtual memory on a boundary of 256 bytes. *out is NULL on failure. */
NAPIER_API napier_status napier_opencl_allocate(napier_cuda_context *context, size_t size, void **out);
/* Waits for the context's own queue, then frees what napier_opencl_allocate has given. NULL is allowed. */
NAPIER_API napier_status napier_opencl_free(napier_cuda_context *context, void *memory);

/* Adds memory of clSVMAlloc to what kernels may reach, or removes it from there. `svm` is its first byte. */
NAPIER_API napier_status napier_opencl_memory_add(napier_cuda_context *context, void *svm);
NAPIER_API napier_status napier_opencl_memory_remove(napier_cuda_context *context, void *svm);

/* Copies between SVM and the host's memory, either way, in the context's own queue, and waits for it. */
NAPIER_API napier_status napier_opencl_copy(napier_cuda_context *context, void *to, const void *from, size_t size);

#ifdef __cplusplus
}
#endif
#endif
