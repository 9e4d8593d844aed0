/* tests/opencl/test_opencl_device.c - contexts of OpenCL: which devices are refused, and memory and queues of the caller. A device
 * whose arithmetic is wrong is played by options of the compiler. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dirent.h>
#include <napier/opencl.h>
#include <napier/softmax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- Compiled kernels on the disk ---------------------------------------------------------------------------------- */

enum { MOST_FILE = 1 << 24 };

static char folder[] = "/tmp/napier-opencl-XXXXXX", file_path[512];
static unsigned char whole[MOST_FILE], now[MOST_FILE];

/* The only file of the folder that is not the check's. */
static size_t file_read(unsigned char *bytes) {
    DIR *const all = opendir(folder);
    assert_non_null(all);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        if (strncmp(entry->d_name, "napier_softmax", 14) == 0) {
            (void)snprintf(file_path, sizeof file_path, "%s/%s", folder, entry->d_name);
            count++;
        }
    }
    (void)closedir(all);
    assert_int_equal(count, 1);
    FILE *const file = fopen(file_path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, MOST_FILE, file);
    (void)fclose(file);
    return size;
}

static void file_write(const unsigned char *bytes, size_t size) {
    FILE *const file = fopen(file_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Softmax with the folder, by a new context. */
static void softmax_with_folder(float *out) {
    char text[256];
    void *memory = NULL;
    float x[ROWS * COLS] = {1, 2, 3};
    napier_opencl_options options = NAPIER_OPENCL_OPTIONS_INIT;
    options.compiler = "-cl-opt-disable";
    options.cache = folder;
    assert_int_equal(napier_opencl_context_create(&context, cl, device, queue, &options, text, sizeof text), NAPIER_OK);
    assert_int_equal(napier_opencl_allocate(context, sizeof x, &memory), NAPIER_OK);
    assert_int_equal(napier_opencl_copy(context, memory, x, sizeof x), NAPIER_OK);
    softmax_into(out, NULL, memory);
    napier_cuda_context_destroy(context);
}

/* A file that is cut, changed in any part, of another kernel or no file is not used, and then written anew. */
static void test_cache(void **state) {
    (void)state;
    float expected[ROWS * COLS], got[ROWS * COLS];
    assert_non_null(mkdtemp(folder));
    softmax_with_folder(expected);
    size_t size = file_read(whole);
    for (int harm = 0; harm < 12; harm++) {
        static const size_t places[] = {0, 8, 16, 24, 31, 32, 40, 60}; /* of the head, and of the program */
        const size_t left = harm == 8 ? 0 : harm == 9 ? 20 : harm == 10 ? size - 1 : size;
        assert_true(size > 100 && size < MOST_FILE);
        whole[places[harm % 8]] ^= harm < 8 ? 0x40 : 0;
        file_write(whole, left);
        softmax_with_folder(got);
        assert_memory_equal(got, expected, sizeof got);
        size = file_read(now);
        assert_true((size == left && memcmp(now, whole, size) == 0) == (harm == 11));
        memcpy(whole, now, size);
    }
    assert_int_equal(remove(file_path), 0);
    assert_int_equal(mkdir(file_path, 0700), 0);
    softmax_with_folder(got);
    assert_memory_equal(got, expected, sizeof got);
    assert_int_equal(rmdir(file_path), 0);
    (void)snprintf(file_path, sizeof file_path, "rm -r %s", folder);
    assert_int_equal(system(file_path), 0); /* NOLINT: a folder of this test */
    (void)snprintf(folder, sizeof folder, "/nowhere");
    softmax_with_folder(got);
    assert_memory_equal(got, expected, sizeof got);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_arguments),
                                       cmocka_unit_test(test_memory_and_queues), cmocka_unit_test(test_cache)};
    skip_without_device();
    make_handles();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
