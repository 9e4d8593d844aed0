/* tests/opencl/test_opencl_device.c - contexts of OpenCL: which devices are refused, and memory and queues of the caller. A device
 * whose arithmetic is wrong is played by options of the compiler. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <napier/opencl.h>
#include <napier/softmax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

enum { ROWS = 3, COLS = 50 };

static cl_context cl;
static cl_device_id device;
static cl_command_queue queue;
static napier_cuda_context *context;

static void skip_without_device(void) {
    char text[256];
    if (napier_opencl_context_create(&context, NULL, NULL, NULL, NULL, text, sizeof text) != NAPIER_OK) {
        printf("skip: %s\n", text);
        exit(77);
    }
    assert_string_not_equal(napier_opencl_device_name(context), "");
    napier_cuda_context_destroy(context);
}

static void make_handles(void) {
    cl_platform_id platform;
    cl_int error;
    assert_int_equal(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    assert_int_equal(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), CL_SUCCESS);
    cl = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    queue = clCreateCommandQueueWithProperties(cl, device, NULL, &error);
    assert_non_null(queue);
}

static napier_status create(const char *compiler, char *text, size_t size) {
    napier_opencl_options options = NAPIER_OPENCL_OPTIONS_INIT;
    options.compiler = compiler;
    return napier_opencl_context_create(&context, cl, device, queue, &options, text, size);
}

static void no_device(napier_status status, const char *compiler, const char *why) {
    char text[256];
    assert_int_equal(create(compiler, text, sizeof text), status);
    assert_null(context);
    if (strstr(text, why) == NULL) {
        fail_msg("%s: '%s' does not name '%s'", compiler, text, why);
    }
}

static void test_arithmetic(void **state) {
    (void)state;
    no_device(NAPIER_UNSUPPORTED, "-cl-denorms-are-zero", "of subnormal f32 gives 0x");
    no_device(NAPIER_UNSUPPORTED, "-cl-fast-relaxed-math", "division of ");
    no_device(NAPIER_UNSUPPORTED, "-Dfma(a,b,c)=((a)*(b)+(c))", "fused multiply-add of ");
    no_device(NAPIER_UNSUPPORTED, "-Dsqrt(x)=(native_sqrt((float)(x))*1.0000001f)", "square root of ");
    no_device(NAPIER_UNSUPPORTED, "-Drint(x)=floor((x)+0.5f)", "rounding of ");
    no_device(NAPIER_UNSUPPORTED, "-Dnapier_opencl_check=other", "napier_opencl_check");
    no_device(NAPIER_UNSUPPORTED, "-Dulong16=unknown", "does not compile");
}

static void test_arguments(void **state) {
    (void)state;
    char text[256], long_text[1000];
    memset(long_text, ' ', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    no_device(NAPIER_INVALID_ARGUMENT, long_text, "options.compiler");
    assert_int_equal(napier_opencl_context_create(NULL, cl, device, queue, NULL, text, sizeof text),
                     NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_opencl_context_create(&context, cl, device, NULL, NULL, text, sizeof text),
                     NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "all three"));
}

static void softmax_into(float *out, struct CUstream_st *stream, void *x) {
    const napier_status status =
        napier_cuda_softmax(context, stream, NULL, napier_const_rows(x, ROWS, COLS, NAPIER_F32),
                            napier_rows(x, ROWS, COLS, NAPIER_F32), NULL);
    assert_string_equal(napier_cuda_last_error(context), "");
    assert_int_equal(status, NAPIER_OK);
    assert_int_equal(napier_cuda_synchronize(context, stream), NAPIER_OK);
    assert_int_equal(napier_opencl_copy(context, out, x, sizeof(float) * ROWS * COLS), NAPIER_OK);
}

static void test_memory_and_queues(void **state) {
    (void)state;
    float x[ROWS * COLS], first[ROWS * COLS], second[ROWS * COLS];
    cl_int error;
    void *own = clSVMAlloc(cl, CL_MEM_READ_WRITE, sizeof x, 0), *given = NULL;
    const cl_command_queue other = clCreateCommandQueueWithProperties(cl, device, NULL, &error);
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)(i % 7) * 0.5f;
    }
    assert_int_equal(create("-cl-opt-disable", NULL, 0), NAPIER_OK);
    assert_int_equal(napier_opencl_memory_add(context, own), NAPIER_OK);
    assert_int_equal(napier_opencl_memory_add(context, own), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_opencl_allocate(context, sizeof x, &given), NAPIER_OK);
    assert_int_equal((uintptr_t)given % 256, 0);
    assert_int_equal(napier_opencl_copy(context, own, x, sizeof x), NAPIER_OK);
    assert_int_equal(napier_opencl_copy(context, given, x, sizeof x), NAPIER_OK);
    softmax_into(first, NULL, own);
    softmax_into(second, (struct CUstream_st *)(void *)other, given);
    assert_memory_equal(first, second, sizeof first);
    assert_int_equal(napier_opencl_memory_remove(context, own), NAPIER_OK);
    assert_int_equal(napier_opencl_memory_remove(context, own), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_opencl_free(context, given), NAPIER_OK);
    assert_int_equal(napier_opencl_free(context, given), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_opencl_free(context, NULL), NAPIER_OK);
    assert_int_equal(napier_opencl_allocate(context, SIZE_MAX, &given), NAPIER_OUT_OF_MEMORY);
    assert_int_equal(napier_opencl_allocate(context, (size_t)1 << 60, &given), NAPIER_OUT_OF_MEMORY);
    assert_null(given);
    napier_cuda_context_destroy(context);
    clSVMFree(cl, own);
    (void)clReleaseCommandQueue(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_arguments),
                                       cmocka_unit_test(test_memory_and_queues)};
    skip_without_device();
    make_handles();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
