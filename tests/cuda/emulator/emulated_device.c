/* tests/cuda/emulator/emulated_device.c - in place of src/core/gpu/device.c: a device whose memory is the host's,
 * whose streams run at once, and whose threads are coroutines (emulator.c). It claims to have few processors, so that
 * small tests fill it.
 *
 *   EMULATED_PROCESSORS    how many it claims: 4, or as many as this says
 *   EMULATED_CLUSTERS      0: it has no clusters, as before sm_90 */
#include <stdlib.h>
#include <string.h>

#include "core/gpu/device.h"
#include "emulator.h"

enum { PROCESSORS = 4, SHARED_BYTES = 227 << 10 };

int napier_device_count(void) { return 1; }

/* The number in a variable of the environment, where that is at least `least`. */
static int setting(const char *name, int least, int otherwise) {
    const char *const text = getenv(name);
    const long value = text ? strtol(text, NULL, 10) : otherwise;
    return value >= least && value <= 1 << 16 ? (int)value : otherwise;
}

static void emulated_close(napier_cuda_context *context) { free(context->faults); }

static napier_status emulated_wait(napier_cuda_context *context, struct CUstream_st *stream,
                                   napier_cuda_faults *faults) {
    (void)stream;
    *faults = *context->faults;
    memset(context->faults, 0, sizeof *faults);
    return NAPIER_OK;
}

static napier_status emulated_fill(napier_cuda_context *context, struct CUstream_st *stream, void *device, int byte,
                                   size_t size) {
    (void)context;
    (void)stream;
    memset(device, byte, size);
    return NAPIER_OK;
}

static napier_status emulated_upload(napier_cuda_context *context, struct CUstream_st *stream, void *device,
                                     const void *host, size_t size) {
    (void)context;
    (void)stream;
    memcpy(device, host, size);
    return NAPIER_OK;
}

static napier_status emulated_put(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                  napier_cuda_kernel kernel, const napier_cuda_shape *shape, const void *job,
                                  size_t job_size) {
    (void)context;
    (void)stream;
    void *const copy = malloc(job_size); /* no byte more than the kernel was given */
    if (copy == NULL) {
        return NAPIER_OUT_OF_MEMORY;
    }
    memcpy(copy, job, job_size);
    emulated_launch launch = {.job = copy,
                              .blocks = shape->blocks,
                              .blocks_y = shape->blocks_y ? shape->blocks_y : 1,
                              .threads = shape->threads,
                              .cluster = shape->cluster ? shape->cluster : 1,
                              .shared_bytes = shape->shared_bytes};
    memcpy(&launch.kernel, &kernel, sizeof launch.kernel);
    emulated_run(what, &launch);
    free(copy);
    return NAPIER_OK;
}

static const napier_device_calls emulated_calls = {.launch = emulated_put,
                                                   .fill = emulated_fill,
                                                   .upload = emulated_upload,
                                                   .wait = emulated_wait,
                                                   .close = emulated_close};

napier_status napier_device_open(napier_cuda_context *context, int device) {
    if (device != -1 && device != 0) {
        return napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "device: %d is not one of the 1 there are", device);
    }
    context->calls = &emulated_calls;
    context->processors = setting("EMULATED_PROCESSORS", 1, PROCESSORS);
    context->shared_bytes = SHARED_BYTES;
    context->clusters = setting("EMULATED_CLUSTERS", 0, 1) != 0;
    context->tensor_cores = true;
    context->faults = calloc(1, sizeof *context->faults);
    return context->faults ? NAPIER_OK : NAPIER_OUT_OF_MEMORY;
}
