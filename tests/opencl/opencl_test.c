/* tests/opencl/opencl_test.c - cuda_test.h on the first device of OpenCL that can do it. Programs make the contexts of cuda.h by
 * the functions at the end (CMakeLists.txt renames them): they get the only one, because memory belongs to a context.
 *
 *   OPENCL_TEST_COMPILER   options of the device's compiler; default -cl-opt-disable, which compiles ten times faster
 *   OPENCL_TEST_CACHE      a folder for compiled kernels */
#include <napier/opencl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu/device.h"
#include "cuda_test.h"

enum { POISON = 0xa5 };

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "tests: %s\n", what);
    exit(1);
}

static napier_cuda_context *the_context(void) {
    static napier_cuda_context *context;
    if (context == NULL) {
        char why[256];
        const char *const compiler = getenv("OPENCL_TEST_COMPILER");
        napier_opencl_options options = NAPIER_OPENCL_OPTIONS_INIT;
        options.cache = getenv("OPENCL_TEST_CACHE");
        options.compiler = compiler ? compiler : "-cl-opt-disable";
        const napier_status status =
            napier_opencl_context_create(&context, NULL, NULL, NULL, &options, why, sizeof why);
        if (status == NAPIER_UNSUPPORTED) {
            printf("skip: %s\n", why);
            exit(77);
        }
        if (status) {
            give_up(why);
        }
    }
    return context;
}

static void must(napier_status status) {
    if (status) {
        give_up(napier_cuda_last_error(the_context()));
    }
}

void device_wanted(void) { (void)the_context(); }
bool device_is_emulated(void) { return false; }
void device_order(uint64_t seed) { (void)seed; }

/* These are no calls of the test: the text of its last error stays. */
static void must_quietly(napier_status status, const char *text) {
    must(status);
    memcpy(the_context()->host->error, text, NAPIER_ERROR_TEXT);
}
static const char *text_now(void) {
    static char text[NAPIER_ERROR_TEXT];
    return memcpy(text, the_context()->host->error, sizeof text);
}

void *device_new(size_t size) {
    const char *const text = text_now();
    void *memory = NULL;
    must_quietly(napier_opencl_allocate(the_context(), size, &memory), text);
    must_quietly(napier_cuda_fill(the_context(), NULL, memory, POISON, size), text);
    return memory;
}
void device_free(void *device) {
    const char *const text = text_now();
    must_quietly(napier_opencl_free(the_context(), device), text);
}
void device_write(void *device, const void *from, size_t size) {
    const char *const text = text_now();
    must_quietly(napier_opencl_copy(the_context(), device, from, size), text);
}
void device_read(void *to, const void *device, size_t size) { device_write(to, device, size); }

void *device_copy(const void *from, size_t size) {
    void *const memory = device_new(size);
    device_write(memory, from, size);
    return memory;
}

napier_status napier_cuda_context_create(napier_cuda_context **out, int device) {
    (void)device;
    *out = the_context();
    return NAPIER_OK;
}
void napier_cuda_context_destroy(napier_cuda_context *context) { (void)context; }
