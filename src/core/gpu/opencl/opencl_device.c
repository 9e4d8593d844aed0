/* core/gpu/opencl/opencl_device.c - core/gpu/device.h on OpenCL: shared virtual memory, queues that run in order. A build
 * without OpenCL gets functions that fail. */
#include "core/gpu/opencl/opencl.h"

#include <stdio.h>
#include <string.h>

#include "core/base/struct_size.h"

#if defined(NAPIER_OPENCL)

enum { ALIGNMENT = 256, MOST_JOB = 4096, MOST_PLATFORMS = 16, MOST_DEVICES = 16, MOST_EXTENSIONS = 1 << 14 };

napier_status napier_opencl_fail(napier_cuda_context *context, const char *what, cl_int error) {
    static const struct {
        cl_int error;
        napier_status status;
        const char *means;
    } errors[] = {
        {CL_DEVICE_NOT_FOUND, NAPIER_UNSUPPORTED, "no device"},
        {-1001 /* CL_PLATFORM_NOT_FOUND_KHR */, NAPIER_UNSUPPORTED, "no OpenCL driver is installed"},
        {CL_MEM_OBJECT_ALLOCATION_FAILURE, NAPIER_OUT_OF_MEMORY, "no memory on the device"},
        {CL_OUT_OF_RESOURCES, NAPIER_OUT_OF_MEMORY, "out of resources, or earlier work on the device failed"},
        {CL_OUT_OF_HOST_MEMORY, NAPIER_OUT_OF_MEMORY, "no memory"},
        {CL_INVALID_COMMAND_QUEUE, NAPIER_INVALID_ARGUMENT, "the stream is no command queue"},
        {CL_INVALID_CONTEXT, NAPIER_INVALID_ARGUMENT, "the stream is of another context"},
        {CL_INVALID_DEVICE, NAPIER_INVALID_ARGUMENT, "the device is not one of the context's"},
        {CL_INVALID_WORK_GROUP_SIZE, NAPIER_UNSUPPORTED, "the device has no blocks of so many threads"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].error == error) {
            return napier_fail(context->host, errors[i].status, "%s: OpenCL error %d (%s)", what, error,
                               errors[i].means);
        }
    }
    return napier_fail(context->host, NAPIER_DEVICE_ERROR, "%s: OpenCL error %d", what, error);
}

/* Returns from the function if the call of OpenCL fails. */
#define OPENCL_TRY(context, what, ...)                         \
    do {                                                       \
        const cl_int tried = (__VA_ARGS__);                    \
        if (tried != CL_SUCCESS) {                             \
            return napier_opencl_fail((context), what, tried); \
        }                                                      \
    } while (0)

static cl_command_queue queue_of(const napier_cuda_context *context, struct CUstream_st *stream) {
    return stream ? (cl_command_queue)(void *)stream : context->opencl->queue;
}

/* ---- device.h ------------------------------------------------------------------------------------------------------ */

static napier_status opencl_launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                   napier_cuda_kernel code, const napier_cuda_shape *shape, const void *job,
                                   size_t job_size) {
    const napier_opencl *const cl = context->opencl;
    const size_t least_shared = 128; /* of an argument in local memory that no launch uses */
    uint64_t words[MOST_JOB / sizeof(uint64_t)] = {0};
    cl_kernel kernel = NULL;
    if (job_size > sizeof words) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "%s: a job of %zu bytes", what, job_size);
    }
    memcpy(words, job, job_size);
    NAPIER_TRY(napier_opencl_kernel(context, code, shape->threads, &kernel));
    const size_t shared = (size_t)shape->shared_bytes > least_shared ? (size_t)shape->shared_bytes : least_shared;
    OPENCL_TRY(context, what, clSetKernelArg(kernel, 0, (job_size + 7) / 8 * 8, words));
    OPENCL_TRY(context, what, clSetKernelArg(kernel, 1, shared, NULL));
    OPENCL_TRY(
        context, what,
        clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, cl->memory_count * sizeof *cl->memory, cl->memory));
    const size_t local[2] = {(size_t)shape->threads, 1};
    const size_t all[2] = {local[0] * (size_t)shape->blocks, shape->blocks_y ? (size_t)shape->blocks_y : 1};
    OPENCL_TRY(context, what,
               clEnqueueNDRangeKernel(queue_of(context, stream), kernel, 2, NULL, all, local, 0, NULL, NULL));
    return NAPIER_OK;
}

static napier_status opencl_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                                 size_t size) {
    const unsigned char pattern = (unsigned char)byte;
    if (size > 0) {
        OPENCL_TRY(context, "fill",
                   clEnqueueSVMMemFill(queue_of(context, stream), device, &pattern, 1, size, 0, NULL, NULL));
    }
    return NAPIER_OK;
}

static napier_status opencl_copy(napier_cuda_context *context, struct CUstream_st *stream, void *to, const void *from,
                                 size_t size) {
    if (size > 0) {
        OPENCL_TRY(context, "copy",
                   clEnqueueSVMMemcpy(queue_of(context, stream), CL_TRUE, to, from, size, 0, NULL, NULL));
    }
    return NAPIER_OK;
}

static napier_status opencl_wait(napier_cuda_context *context, struct CUstream_st *stream, napier_cuda_faults *faults) {
    NAPIER_TRY(opencl_copy(context, stream, faults, context->faults, sizeof *faults));
    NAPIER_TRY(opencl_fill(context, stream, context->faults, 0, sizeof *faults));
    OPENCL_TRY(context, "stream", clFinish(queue_of(context, stream)));
    return NAPIER_OK;
}

static void opencl_close(napier_cuda_context *context) {
    napier_opencl *const cl = context->opencl;
    if (cl->queue != NULL) {
        (void)clFinish(cl->queue);
    }
    for (int i = 0; i < NAPIER_OPENCL_KERNELS; i++) {
        if (cl->kernels[i] != NULL) {
            (void)clReleaseKernel(cl->kernels[i]);
        }
    }
    if (context->faults != NULL) {
        (void)napier_opencl_release(context, context->faults);
    }
    if (cl->own && cl->queue != NULL) {
        (void)clReleaseCommandQueue(cl->queue);
    }
    if (cl->own && cl->context != NULL) {
        (void)clReleaseContext(cl->context);
    }
    napier_free(&context->host->allocator, cl->memory);
    napier_free(&context->host->allocator, cl);
}

static const napier_device_calls opencl_calls = {
    .launch = opencl_launch, .fill = opencl_fill, .upload = opencl_copy, .wait = opencl_wait, .close = opencl_close};

/* ---- Opening a device ---------------------------------------------------------------------------------------------- */

/* What the device says that it can do. What it does not say, the compiler and the check of the arithmetic find. */
static napier_status device_ask(napier_cuda_context *context) {
    napier_opencl *const cl = context->opencl;
    char name[NAPIER_OPENCL_NAME / 2] = "", driver[NAPIER_OPENCL_NAME / 4] = "", version[64] = "";
    cl_device_svm_capabilities svm = 0;
    cl_device_fp_config single = 0, twice = 0;
    cl_uint processors = 1;
    cl_ulong local = 0;
    int major = 0, minor = 0;
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_NAME, sizeof name, name, NULL);
    (void)clGetDeviceInfo(cl->device, CL_DRIVER_VERSION, sizeof driver, driver, NULL);
    (void)snprintf(cl->name, sizeof cl->name, "%s, %s", name, driver);
    OPENCL_TRY(context, "device", clGetDeviceInfo(cl->device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single, NULL);
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof twice, &twice, NULL);
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof processors, &processors, NULL);
    (void)clGetDeviceInfo(cl->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 21) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "device: %s has %s, not OpenCL 3.0 or 2.1", cl->name,
                           version);
    }
    if (!(svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) || twice == 0) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "device: %s has no %s", cl->name,
                           twice == 0 ? "f64" : "shared virtual memory");
    }
    context->processors = (int)processors;
    context->shared_bytes = local > INT32_MAX ? INT32_MAX : (int)local;
    const size_t used = strlen(cl->options);
    const int more =
        snprintf(cl->options + used, sizeof cl->options - used, " -cl-std=CL%d.0%s", major > 2 ? 3 : 2,
                 single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
    NAPIER_REFUSE_IF(context->host, used + (size_t)more >= sizeof cl->options, "options.compiler: too long");
    return NAPIER_OK;
}

static napier_status device_start(napier_cuda_context *context) {
    NAPIER_TRY(napier_opencl_allocate(context, sizeof *context->faults, (void **)&context->faults));
    NAPIER_TRY(opencl_fill(context, NULL, context->faults, 0, sizeof *context->faults));
    return napier_opencl_check_arithmetic(context);
}

/* A device with a context and a queue of its own. */
static napier_status device_try(napier_cuda_context *context, cl_device_id device) {
    napier_opencl *const cl = context->opencl;
    cl_int error = CL_SUCCESS;
    cl->device = device;
    cl->own = true;
    NAPIER_TRY(device_ask(context));
    cl->context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OPENCL_TRY(context, "context", error);
    cl->queue = clCreateCommandQueueWithProperties(cl->context, device, NULL, &error);
    OPENCL_TRY(context, "queue", error);
    return device_start(context);
}

static napier_status opencl_new(napier_cuda_context *context, const napier_opencl_options *options) {
    napier_opencl *const cl = napier_alloc(&context->host->allocator, 1, sizeof *cl);
    if (cl == NULL) {
        return napier_fail(context->host, NAPIER_OUT_OF_MEMORY, "device: no memory");
    }
    memset(cl, 0, sizeof *cl);
    context->opencl = cl;
    context->calls = &opencl_calls;
    const int length = snprintf(cl->cache, sizeof cl->cache, "%s", options->cache ? options->cache : "");
    NAPIER_REFUSE_IF(context->host, (size_t)length >= sizeof cl->cache, "options.cache: too long");
    (void)snprintf(cl->options, sizeof cl->options, "%s", options->compiler ? options->compiler : "");
    return NAPIER_OK;
}

/* Tries one device after the other; the text of the last failure stays. */
static napier_status devices_try(napier_cuda_context *context, cl_device_type type,
                                 const napier_opencl_options *options, napier_status status) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint platform_count = 0;
    OPENCL_TRY(context, "device", clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count));
    for (cl_uint i = 0; i < platform_count && i < MOST_PLATFORMS; i++) {
        cl_device_id devices[MOST_DEVICES];
        cl_uint count = 0;
        (void)clGetDeviceIDs(platforms[i], type, MOST_DEVICES, devices, &count);
        for (cl_uint k = 0; k < count && k < MOST_DEVICES; k++) {
            if (context->opencl != NULL) { /* of a device that failed */
                opencl_close(context);
                context->opencl = NULL, context->calls = NULL, context->faults = NULL;
            }
            NAPIER_TRY(opencl_new(context, options));
            status = device_try(context, devices[k]);
            if (status == NAPIER_OK) {
                return NAPIER_OK;
            }
        }
    }
    return status;
}

napier_status napier_opencl_open(napier_cuda_context *context, const napier_opencl_choice *choice) {
    napier_opencl_options options = NAPIER_OPENCL_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context->host, "options",
                                   NAPIER_STRUCT(napier_opencl_options, NAPIER_OPENCL_OPTIONS_INIT, compiler),
                                   choice->options, &options));
    const int given = (choice->context != NULL) + (choice->device != NULL) + (choice->queue != NULL);
    NAPIER_REFUSE_IF(context->host, given != 0 && given != 3, "context, device, queue: give all three, or none");
    if (given == 0) {
        napier_status status = napier_fail(context->host, NAPIER_UNSUPPORTED, "device: there is no device of OpenCL");
        status = devices_try(context, CL_DEVICE_TYPE_GPU, &options, status);
        return status == NAPIER_UNSUPPORTED
                   ? devices_try(context, CL_DEVICE_TYPE_ALL & ~(cl_device_type)CL_DEVICE_TYPE_GPU, &options, status)
                   : status;
    }
    NAPIER_TRY(opencl_new(context, &options));
    context->opencl->context = choice->context;
    context->opencl->device = choice->device;
    context->opencl->queue = choice->queue;
    NAPIER_TRY(device_ask(context));
    return device_start(context);
}

const char *napier_opencl_device_name(const napier_cuda_context *context) {
    return context != NULL && context->opencl != NULL ? context->opencl->name : "";
}

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

/* Every public call on memory starts with this. */
static napier_status opencl_begin(napier_cuda_context *context) {
    NAPIER_TRY(napier_begin(context ? context->host : NULL));
    NAPIER_REFUSE_IF(context->host, context->opencl == NULL, "context: is not one of OpenCL");
    return NAPIER_OK;
}

/* Where the list has the memory whose first byte is less than `within` before this; its end if nowhere. */
static size_t memory_find(const napier_opencl *cl, const void *memory, size_t within) {
    size_t i = 0;
    while (i < cl->memory_count && (uintptr_t)memory - (uintptr_t)cl->memory[i] >= within) {
        i++;
    }
    return i;
}

static napier_status memory_add(napier_cuda_context *context, void *svm) {
    napier_opencl *const cl = context->opencl;
    if (cl->memory_count == cl->memory_room) {
        const size_t room = cl->memory_room * 2 + 32;
        void **const more = napier_alloc(&context->host->allocator, room, sizeof *more);
        if (more == NULL) {
            return napier_fail(context->host, NAPIER_OUT_OF_MEMORY, "memory: no room in the list for %zu", room);
        }
        memcpy(more, cl->memory, cl->memory_count * sizeof *more);
        napier_free(&context->host->allocator, cl->memory);
        cl->memory = more;
        cl->memory_room = room;
    }
    cl->memory[cl->memory_count++] = svm;
    return NAPIER_OK;
}

napier_status napier_opencl_memory_add(napier_cuda_context *context, void *svm) {
    NAPIER_TRY(opencl_begin(context));
    NAPIER_REFUSE_IF(context->host, svm == NULL, "svm: is NULL");
    NAPIER_REFUSE_IF(context->host, memory_find(context->opencl, svm, 1) < context->opencl->memory_count,
                     "svm: %p is in the list", svm);
    return memory_add(context, svm);
}

napier_status napier_opencl_memory_remove(napier_cuda_context *context, void *svm) {
    NAPIER_TRY(opencl_begin(context));
    napier_opencl *const cl = context->opencl;
    const size_t at = memory_find(cl, svm, 1);
    NAPIER_REFUSE_IF(context->host, at == cl->memory_count, "svm: %p is not in the list", svm);
    cl->memory[at] = cl->memory[--cl->memory_count];
    return NAPIER_OK;
}

/* OpenCL promises a boundary of 128 bytes at most. */
napier_status napier_opencl_allocate(napier_cuda_context *context, size_t size, void **out) {
    NAPIER_TRY(opencl_begin(context));
    NAPIER_REFUSE_IF(context->host, out == NULL, "out: is NULL");
    *out = NULL;
    void *const svm =
        size < SIZE_MAX / 2 ? clSVMAlloc(context->opencl->context, CL_MEM_READ_WRITE, size + ALIGNMENT, 0) : NULL;
    if (svm == NULL) {
        return napier_fail(context->host, NAPIER_OUT_OF_MEMORY, "memory: the device has no %zu bytes", size);
    }
    const napier_status status = memory_add(context, svm);
    if (status) {
        clSVMFree(context->opencl->context, svm);
        return status;
    }
    *out = (char *)svm + (ALIGNMENT - (uintptr_t)svm % ALIGNMENT) % ALIGNMENT;
    return NAPIER_OK;
}

cl_int napier_opencl_release(napier_cuda_context *context, void *memory) {
    napier_opencl *const cl = context->opencl;
    const size_t at = memory_find(cl, memory, ALIGNMENT);
    if (at == cl->memory_count) {
        return CL_INVALID_VALUE;
    }
    const cl_int error = clFinish(cl->queue);
    clSVMFree(cl->context, cl->memory[at]);
    cl->memory[at] = cl->memory[--cl->memory_count];
    return error;
}

napier_status napier_opencl_free(napier_cuda_context *context, void *memory) {
    NAPIER_TRY(opencl_begin(context));
    const cl_int error = memory ? napier_opencl_release(context, memory) : CL_SUCCESS;
    NAPIER_REFUSE_IF(context->host, error == CL_INVALID_VALUE, "memory: %p is not of napier_opencl_allocate", memory);
    OPENCL_TRY(context, "free", error);
    return NAPIER_OK;
}

napier_status napier_opencl_copy(napier_cuda_context *context, void *to, const void *from, size_t size) {
    NAPIER_TRY(opencl_begin(context));
    return opencl_copy(context, NULL, to, from, size);
}

#else

static napier_status no_opencl(napier_cuda_context *context) {
    NAPIER_TRY(napier_begin(context ? context->host : NULL));
    return napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "context: is not one of OpenCL");
}

napier_status napier_opencl_open(napier_cuda_context *context, const napier_opencl_choice *choice) {
    (void)choice;
    return napier_fail(context->host, NAPIER_UNSUPPORTED,
                       "device: this build of napier has no OpenCL (-DNAPIER_OPENCL=ON)");
}

const char *napier_opencl_device_name(const napier_cuda_context *context) { return (void)context, ""; }

napier_status napier_opencl_memory_add(napier_cuda_context *context, void *svm) {
    return (void)svm, no_opencl(context);
}
napier_status napier_opencl_memory_remove(napier_cuda_context *context, void *svm) {
    return (void)svm, no_opencl(context);
}
napier_status napier_opencl_free(napier_cuda_context *context, void *memory) {
    return (void)memory, no_opencl(context);
}

napier_status napier_opencl_allocate(napier_cuda_context *context, size_t size, void **out) {
    (void)size, (void)out;
    return no_opencl(context);
}

napier_status napier_opencl_copy(napier_cuda_context *context, void *to, const void *from, size_t size) {
    (void)to, (void)from, (void)size;
    return no_opencl(context);
}

#endif
