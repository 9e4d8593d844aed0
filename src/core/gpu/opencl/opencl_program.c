/* core/gpu/opencl/opencl_program.c - compiles kernels for the device, each in a program of its own at its first launch. */
#include "core/gpu/opencl/opencl.h"

#if defined(NAPIER_OPENCL)

#include <stdio.h>
#include <string.h>

#include <kernel_opencl_text.h> /* core/gpu/kernel_opencl.h, made by the build */

/* The compiler's first complaint. */
static napier_status program_fail(napier_cuda_context *context, cl_program program, const char *name) {
    const napier_opencl *const cl = context->opencl;
    size_t size = 0;
    (void)clGetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *const log = napier_alloc(&context->host->allocator, size + 1, 1);
    const char *shown = "no log";
    if (log != NULL &&
        clGetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, size, log, NULL) == CL_SUCCESS) {
        log[size] = '\0';
        const char *const error = strstr(log, "error");
        shown = error ? error : log;
    }
    const napier_status status = napier_fail(context->host, NAPIER_UNSUPPORTED,
                                             "device: %s: %s does not compile: %.120s", cl->name, name, shown);
    napier_free(&context->host->allocator, log);
    return status;
}

/* The kernel's program from the folder of compiled kernels; NULL if it is not there or of no use. */
static cl_program program_cached(napier_cuda_context *context, const char *name, napier_opencl_key key,
                                 const char *options) {
    napier_opencl *const cl = context->opencl;
    size_t size = 0;
    cl_int error = CL_SUCCESS;
    unsigned char *const bytes = napier_opencl_cache_read(context, name, key, &size);
    const unsigned char *given = bytes;
    cl_program program =
        bytes ? clCreateProgramWithBinary(cl->context, 1, &cl->device, &size, &given, NULL, &error) : NULL;
    napier_free(&context->host->allocator, bytes);
    if (program != NULL && clBuildProgram(program, 1, &cl->device, options, NULL, NULL) != CL_SUCCESS) {
        (void)clReleaseProgram(program);
        program = NULL;
    }
    return program;
}

static napier_status program_build(napier_cuda_context *context, const char *text, const char *name, cl_program *out) {
    napier_opencl *const cl = context->opencl;
    char options[NAPIER_OPENCL_OPTIONS + 128];
    (void)snprintf(options, sizeof options, "%s -DNAPIER_OPENCL_WANT_%s=1", cl->options, name);
    const char *texts[] = {(const char *)kernel_opencl_text, text, cl->name, options};
    const napier_opencl_key key = napier_opencl_key_of(texts, sizeof texts / sizeof *texts);
    *out = program_cached(context, name, key, options);
    if (*out != NULL) {
        return NAPIER_OK;
    }
    cl_int error = CL_SUCCESS;
    const cl_program program = clCreateProgramWithSource(cl->context, 2, texts, NULL, &error);
    if (program == NULL) {
        return napier_opencl_fail(context, name, error);
    }
    error = clBuildProgram(program, 1, &cl->device, options, NULL, NULL);
    if (error != CL_SUCCESS) {
        const napier_status status = error == CL_BUILD_PROGRAM_FAILURE ? program_fail(context, program, name)
                                                                       : napier_opencl_fail(context, name, error);
        (void)clReleaseProgram(program);
        return status;
    }
    napier_opencl_cache_write(context, name, key, program);
    *out = program;
    return NAPIER_OK;
}

/* A warp is 32 threads of a sub-group of 32 or 64. */
static napier_status program_check_warp(napier_cuda_context *context, cl_kernel kernel, const char *name, int threads) {
    const size_t local = (size_t)threads;
    size_t lanes = 0;
    (void)clGetKernelSubGroupInfo(kernel, context->opencl->device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
                                  sizeof local, &local, sizeof lanes, &lanes, NULL);
    return lanes == 32 || lanes == 64 ? NAPIER_OK
                                      : napier_fail(context->host, NAPIER_UNSUPPORTED,
                                                    "device: %s: sub-groups of %zu threads in %s, not of 32 or 64",
                                                    context->opencl->name, lanes, name);
}

static napier_status program_make(napier_cuda_context *context, const char *text, const char *name, int threads,
                                  cl_kernel *out) {
    cl_program program;
    cl_int error = CL_SUCCESS;
    NAPIER_TRY(program_build(context, text, name, &program));
    const cl_kernel kernel = clCreateKernel(program, name, &error);
    (void)clReleaseProgram(program); /* the kernel holds it */
    if (kernel == NULL) {
        return napier_opencl_fail(context, name, error);
    }
    const napier_status status = program_check_warp(context, kernel, name, threads);
    if (status) {
        (void)clReleaseKernel(kernel);
        return status;
    }
    *out = kernel;
    return NAPIER_OK;
}

napier_status napier_opencl_kernel(napier_cuda_context *context, napier_cuda_kernel kernel, int threads,
                                   cl_kernel *out) {
    cl_kernel *made = context->opencl->kernels;
    for (const napier_opencl_file *const *file = napier_opencl_files; *file != NULL; made += (*file++)->count) {
        for (int i = 0; i < (*file)->count; i++) {
            const napier_opencl_entry *const entry = &(*file)->entries[i];
            if (entry->kernel != kernel) {
                continue;
            }
            if ((*file)->text == NULL) {
                return napier_fail(context->host, NAPIER_UNSUPPORTED, "%s needs tensor cores", entry->name);
            }
            if (made[i] == NULL) {
                NAPIER_TRY(program_make(context, (*file)->text, entry->name, threads, &made[i]));
            }
            *out = made[i];
            return NAPIER_OK;
        }
    }
    return napier_fail(context->host, NAPIER_UNSUPPORTED, "device: a kernel that OpenCL does not have");
}

#endif
