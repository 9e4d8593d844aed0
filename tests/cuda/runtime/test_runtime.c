/* tests/cuda/runtime/test_runtime.c - src/core/gpu/device.c on a CUDA runtime that is played (fake_runtime.c): the
 * order of its work, host threads side by side, captures into graphs, and what errors of the runtime become. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "core/gpu/launch.h"
#include "support/check.h"

static void kernel(void) {}

static napier_cuda_context *made(void) {
    napier_cuda_context *context = NULL;
    assert_int_equal(napier_cuda_context_create(&context, 0), NAPIER_OK);
    return context;
}

static napier_status launch(napier_cuda_context *context, int64_t shared_bytes, cudaStream_t stream) {
    const napier_cuda_shape shape = {.blocks = 1, .threads = 32, .shared_bytes = shared_bytes};
    const int job = 0;
    const napier_status status = napier_cuda_begin(context);
    return status ? status : napier_cuda_launch(context, stream, "kernel", kernel, &shape, &job, sizeof job);
}

/* ---- Order ----------------------------------------------------------------------------------------------------------- */

/* The faults are cleared before a launch in any stream, also in one that does not wait for the legacy stream. */
static void test_clearing_is_ordered(void) {
    fake_reset();
    napier_cuda_context *const context = made();
    assert_int_equal(launch(context, 0, fake_stream(1)), NAPIER_OK);
    assert_false(fake.wrote_pending);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(napier_cuda_synchronize(context, fake_stream(1)), NAPIER_OK);
    napier_cuda_context_destroy(context);
    assert_int_equal(fake.live_allocations, 0);
}

static napier_cuda_context *other_context;
static void launch_less(void) { assert_int_equal(launch(other_context, 60 << 10, fake_stream(2)), NAPIER_OK); }

/* Another thread launches the same kernel with less shared memory, at the worst moment. */
static void test_shared_memory_of_two_threads(void) {
    fake_reset();
    napier_cuda_context *const context = made();
    other_context = made();
    fake.before_launch = launch_less;
    assert_int_equal(launch(context, 100 << 10, fake_stream(1)), NAPIER_OK);
    assert_int_equal(fake.launches, 2);
    assert_int_equal(fake.max_shared, FAKE_SHARED_BYTES);
    assert_int_equal(launch(context, 200 << 10, fake_stream(1)), NAPIER_OK);
    assert_int_equal(fake.set_shared, 1);
    assert_int_equal(launch(context, FAKE_SHARED_BYTES + 1, NULL), NAPIER_UNSUPPORTED);
    napier_cuda_context_destroy(other_context);
    napier_cuda_context_destroy(context);
}

/* ---- Captures into graphs -------------------------------------------------------------------------------------------- */

static void test_first_use_in_a_capture(void) {
    fake_reset();
    fake.capturing = fake_stream(1);
    napier_cuda_context *const context = made();
    assert_int_equal(launch(context, 100 << 10, fake.capturing), NAPIER_OK);
    assert_int_equal(fake.mode, cudaStreamCaptureModeGlobal); /* as it was */
    assert_false(fake.invalidated);
    assert_int_equal(napier_cuda_synchronize(context, fake.capturing), NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_cuda_last_error(context),
                        "stream: is being captured into a graph; synchronize when the graph has run");
    assert_false(fake.invalidated);
    fake.capturing = NULL;
    assert_int_equal(napier_cuda_synchronize(context, fake_stream(1)), NAPIER_OK);
    napier_cuda_context_destroy(context);
}

/* A copy of the caller's memory waits for its stream, and is refused by one that is being captured. */
static void test_upload(void) {
    fake_reset();
    napier_cuda_context *const context = made();
    int from = 7, to = 0;
    assert_int_equal(napier_cuda_upload(context, fake_stream(1), &to, &from, sizeof to), NAPIER_OK);
    assert_int_equal(to, 7);
    from = 8;
    fake.capturing = fake_stream(1);
    assert_int_equal(napier_cuda_upload(context, fake.capturing, &to, &from, sizeof to), NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "is being captured"));
    assert_false(fake.invalidated);
    assert_int_equal(to, 7);
    fake.capturing = NULL;
    napier_cuda_context_destroy(context);
}

/* ---- Errors ---------------------------------------------------------------------------------------------------------- */

static void test_errors_of_launches(void) {
    static const struct {
        cudaError_t error;
        napier_status status;
        const char *text;
    } all[] = {
        {cudaErrorIllegalAddress, NAPIER_DEVICE_ERROR,
         "kernel: an illegal memory access was encountered (in this call or in earlier work on the device"},
        {cudaErrorMemoryAllocation, NAPIER_OUT_OF_MEMORY, "kernel: out of memory"},
        {cudaErrorInvalidResourceHandle, NAPIER_INVALID_ARGUMENT, "(a stream of another device"},
        {cudaErrorNoKernelImageForDevice, NAPIER_UNSUPPORTED, "CMAKE_CUDA_ARCHITECTURES"},
    };
    fake_reset();
    napier_cuda_context *const context = made();
    fake.fails = "cudaLaunchKernelExC";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fake.error = all[i].error;
        assert_int_equal(launch(context, 0, NULL), all[i].status);
        assert_non_null(strstr(napier_cuda_last_error(context), all[i].text));
    }
    assert_string_equal(napier_status_string(NAPIER_DEVICE_ERROR), "device error");
    fake.fails = NULL;
    fake.sticky = cudaErrorIllegalAddress; /* a kernel of somebody else's */
    assert_int_equal(launch(context, 100 << 10, NULL), NAPIER_DEVICE_ERROR);
    assert_int_equal(napier_cuda_fill(context, NULL, context->faults, 0, 1), NAPIER_DEVICE_ERROR);
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_DEVICE_ERROR);
    assert_non_null(strstr(napier_cuda_last_error(context), "stream: an illegal memory access"));
    napier_cuda_context_destroy(context);
}

static void no_context(int device, napier_status status, const char *wanted) {
    char text[300] = "before";
    napier_cuda_context *context = NULL;
    assert_int_equal(napier_cuda_device_status(device, text, sizeof text), status);
    assert_string_equal(text, wanted);
    assert_int_equal(napier_cuda_context_create(&context, device), status);
    assert_int_equal(context == NULL, status != NAPIER_OK);
    napier_cuda_context_destroy(context);
    assert_int_equal(fake.live_allocations, 0);
    assert_int_equal(fake.live_streams, 0);
}

static void test_why_there_is_no_context(void) {
    fake_reset();
    no_context(0, NAPIER_OK, "");
    no_context(-1, NAPIER_OK, "");
    no_context(3, NAPIER_INVALID_ARGUMENT, "device: 3 is not one of the 1 there are");
    fake.major = 7;
    fake.minor = 5;
    no_context(0, NAPIER_UNSUPPORTED, "device: 0 has compute capability 7.5, which is less than 8.0");
    fake_reset();
    fake.driver = 12040;
    no_context(
        0, NAPIER_UNSUPPORTED,
        "device: the driver is for CUDA 12.4, this build for 13.0: update the driver, or build with an older CUDA "
        "toolkit");
    fake.driver = 0;
    no_context(-1, NAPIER_UNSUPPORTED, "device: no NVIDIA driver is loaded");
    static const char *const calls[] = {"cudaMalloc", "cudaStreamCreateWithFlags", "cudaMemsetAsync",
                                        "cudaStreamSynchronize"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_reset();
        fake.fails = calls[i];
        fake.error = cudaErrorMemoryAllocation;
        no_context(0, NAPIER_OUT_OF_MEMORY, "device: out of memory");
    }
    char text[8];
    fake_reset();
    fake.driver = 0;
    assert_int_equal(napier_cuda_device_status(0, text, sizeof text), NAPIER_UNSUPPORTED);
    assert_string_equal(text, "device:");
    assert_int_equal(napier_cuda_device_status(0, NULL, 0), NAPIER_UNSUPPORTED);
    assert_int_equal(napier_cuda_device_status(0, NULL, 1), NAPIER_INVALID_ARGUMENT);
}

int main(void) {
    return RUN_TESTS("runtime", TEST(test_clearing_is_ordered), TEST(test_shared_memory_of_two_threads),
                     TEST(test_first_use_in_a_capture), TEST(test_upload), TEST(test_errors_of_launches),
                     TEST(test_why_there_is_no_context));
}
