/* core/gpu/opencl/opencl.h - a context's device of OpenCL: core/gpu/device.h on it, its kernels, and the check of its
 * arithmetic. */
#ifndef NAPIER_CORE_GPU_OPENCL_OPENCL_H
#define NAPIER_CORE_GPU_OPENCL_OPENCL_H

#include <napier/opencl.h>

#include "core/base/output_file.h"
#include "core/gpu/launch.h"

typedef struct napier_opencl_choice {
    struct _cl_context *context;
    struct _cl_device_id *device;
    struct _cl_command_queue *queue;
    const napier_opencl_options *options;
} napier_opencl_choice;

/* napier_device_open on a device of OpenCL. */
napier_status napier_opencl_open(napier_cuda_context *context, const napier_opencl_choice *choice);

#if defined(NAPIER_OPENCL)

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

/* The kernels of one .cu file. The build makes these (cmake/NapierOpencl.cmake). */
typedef struct napier_opencl_entry {
    napier_cuda_kernel kernel;
    const char *name;
} napier_opencl_entry;
typedef struct napier_opencl_file {
    const char *text; /* NULL: it needs tensor cores */
    const napier_opencl_entry *entries;
    int count;
} napier_opencl_file;
extern const napier_opencl_file *const napier_opencl_files[]; /* up to NULL */

enum { NAPIER_OPENCL_OPTIONS = 512, NAPIER_OPENCL_NAME = 256, NAPIER_OPENCL_KERNELS = 256 };

typedef struct napier_opencl {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    bool own; /* context and queue */
    char name[NAPIER_OPENCL_NAME];
    char options[NAPIER_OPENCL_OPTIONS];
    char cache[NAPIER_PATH_ROOM];             /* folder of compiled kernels; "": none */
    cl_kernel kernels[NAPIER_OPENCL_KERNELS]; /* in the order of napier_opencl_files; NULL: not compiled yet */
    void **memory;                            /* what kernels may reach */
    size_t memory_count, memory_room;
} napier_opencl;

/* Fails with the status and the text for an error of OpenCL: "what: OpenCL error -5 (...)". */
napier_status napier_opencl_fail(napier_cuda_context *context, const char *what, cl_int error);

/* The kernel, compiled if it has not been. `threads`: of a block. */
napier_status napier_opencl_kernel(napier_cuda_context *context, napier_cuda_kernel kernel, int threads,
                                   cl_kernel *out);

/* What a compiled kernel is made from: sums of all texts. */
typedef struct napier_opencl_key {
    uint64_t words[2];
} napier_opencl_key;
napier_opencl_key napier_opencl_key_of(const char *const *texts, size_t count);

/* The kernel's program as it lies in the folder, to be freed with napier_free; NULL if it is not there as it should be. */
unsigned char *napier_opencl_cache_read(const napier_cuda_context *context, const char *name, napier_opencl_key key,
                                        size_t *size);
/* Writes it there, if it can. */
void napier_opencl_cache_write(const napier_cuda_context *context, const char *name, napier_opencl_key key,
                               cl_program program);

/* Frees memory of napier_opencl_allocate; the text of the last error stays. CL_INVALID_VALUE: it is not of there. */
cl_int napier_opencl_release(napier_cuda_context *context, void *memory);

/* Fails with UNSUPPORTED and the name of an operation whose results are not the host's. */
napier_status napier_opencl_check_arithmetic(napier_cuda_context *context);

#endif
#endif
