/* tests/cuda/test_cuda_device.c - the device itself: contexts, errors, workspace, launches, and each word of the kernels'
 * language against the host's own arithmetic, in several orders of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu/launch.h"
#include "cuda_test.h"
#include "core/math/exp.h"
#include "probe.h"
#include "ops/softmax/sum.h"
#include "support/check.h"

NAPIER_CUDA_KERNEL_DECLARE(probe_sums);
NAPIER_CUDA_KERNEL_DECLARE(probe_warp);
NAPIER_CUDA_KERNEL_DECLARE(probe_math);
NAPIER_CUDA_KERNEL_DECLARE(probe_cluster);
NAPIER_CUDA_KERNEL_DECLARE(probe_product);
#ifdef NAPIER_CUDA_EMULATED
NAPIER_CUDA_KERNEL_DECLARE(probe_wave);
#endif

enum { ORDERS = 4 };

static napier_cuda_context *context;

static void launch(const char *what, napier_cuda_kernel kernel, napier_cuda_shape shape, const void *job, size_t size) {
    assert_int_equal(napier_cuda_begin(context), NAPIER_OK);
    assert_int_equal(napier_cuda_launch(context, NULL, what, kernel, &shape, job, size), NAPIER_OK);
    assert_string_equal(napier_cuda_last_error(context), "");
}

static void test_contexts(void) {
    napier_cuda_context *other = NULL;
    assert_true(napier_cuda_device_count() > 0);
    assert_int_equal(napier_cuda_context_create(NULL, 0), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_cuda_context_create(&other, -2), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_cuda_context_create(&other, 1 << 20), NAPIER_INVALID_ARGUMENT);
    assert_null(other);
    assert_int_equal(napier_cuda_context_create(&other, 0), NAPIER_OK);
    assert_int_equal(napier_cuda_synchronize(other, NULL), NAPIER_OK);
    napier_cuda_context_destroy(other);
    napier_cuda_context_destroy(NULL);
    assert_int_equal(napier_cuda_synchronize(NULL, NULL), NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_cuda_last_error(NULL), "");
}

static void test_workspace(void) {
    napier_status status;
    napier_cuda_workspace w = {NULL, 0};
    napier_cuda_room room = napier_cuda_room_of(&w);
    assert_null(napier_cuda_take(&room, 3, 100));
    assert_null(napier_cuda_take(&room, 1, 1));
    assert_false(napier_cuda_room_ready(context, &room, &status));
    assert_int_equal(status, NAPIER_OK);
    assert_int_equal(w.size, 768);

    w.data = device_new(w.size);
    room = napier_cuda_room_of(&w);
    assert_ptr_equal(napier_cuda_take(&room, 3, 100), w.data);
    assert_ptr_equal(napier_cuda_take(&room, 1, 1), (char *)w.data + 512);
    assert_true(napier_cuda_room_ready(context, &room, &status));

    w.size = 767;
    assert_false(napier_cuda_room_ready(context, &room, &status));
    assert_int_equal(status, NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_cuda_last_error(context), "workspace: size 767 is less than the 768 bytes needed");
    room.workspace = NULL;
    assert_false(napier_cuda_room_ready(context, &room, &status));
    assert_int_equal(status, NAPIER_INVALID_ARGUMENT);
    device_free(w.data);

    w = (napier_cuda_workspace){NULL, 0};
    room = napier_cuda_room_of(&w);
    (void)napier_cuda_take(&room, INT64_MAX, 16);
    assert_false(napier_cuda_room_ready(context, &room, &status));
    assert_int_equal(status, NAPIER_OUT_OF_MEMORY);

    room = napier_cuda_room_of(NULL); /* a call that needs none */
    assert_true(napier_cuda_room_ready(context, &room, &status));
}

static void test_sums(void) {
    enum { BLOCKS = 7, THREADS = 256, COUNT = BLOCKS * THREADS };
    float x[COUNT], y[COUNT];
    int64_t total = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i % 17 - 8);
    }
    probe_job job = {
        .x = device_copy(x, sizeof x), .y = device_new(sizeof y), .total = device_copy(&total, sizeof total)};
    const napier_cuda_shape shape = {
        .blocks = BLOCKS, .threads = THREADS, .shared_bytes = THREADS / 32 * sizeof(float)};
    launch("probe", NAPIER_CUDA_KERNEL(probe_sums), shape, &job, sizeof job);
    device_read(y, job.y, sizeof y);
    device_read(&total, job.total, sizeof total);
    for (int i = 0; i < COUNT; i++) {
        float sum = 0.0f; /* of small integers: exact */
        for (int j = 0; j < THREADS; j++) {
            sum += x[i / THREADS * THREADS + j];
        }
        assert_true(y[i] == sum);
    }
    assert_int_equal(total, (int64_t)COUNT * (COUNT - 1) / 2);
    device_free((void *)job.x);
    device_free(job.y);
    device_free(job.total);
}

static void test_warp_and_faults(void) {
    float x[32], y[32];
    for (int i = 0; i < 32; i++) {
        x[i] = i == 20 || i == 13 ? -1.0f : (float)(i % 2);
    }
    const probe_job job = {.x = device_copy(x, sizeof x), .y = device_new(sizeof y), .faults = context->faults};
    launch("probe", NAPIER_CUDA_KERNEL(probe_warp), (napier_cuda_shape){.blocks = 1, .threads = 32}, &job, sizeof job);
    device_read(y, job.y, sizeof y);
    for (int i = 0; i < 32; i++) {
        assert_true(y[i] == (float)(0xaa + 93 + 31 - i + (i ^ 1)));
    }
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_cuda_last_error(context), "ids: the id at index 13 is no column");
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_OK); /* told once */
    device_free((void *)job.x);
    device_free(job.y);
}

/* The words of a warp on wavefronts of 64 lanes (wave.cu), which NVIDIA's devices do not have. */
static void test_wavefronts(void) {
#ifdef NAPIER_CUDA_EMULATED
    float x[256];
    for (int i = 0; i < 256; i++) {
        x[i] = (float)(i * 37 % 101) - 50.0f;
    }
    int64_t wrong = 0;
    const probe_job job = {.x = device_copy(x, sizeof x), .total = device_copy(&wrong, sizeof wrong)};
    launch("probe", NAPIER_CUDA_KERNEL(probe_wave), (napier_cuda_shape){.blocks = 1, .threads = 256}, &job, sizeof job);
    device_read(&wrong, job.total, sizeof wrong);
    assert_int_equal(wrong, 0);
    device_free((void *)job.x);
    device_free(job.total);
#else
    skip();
#endif
}

static float one_exp(float x) { /* vf_exp, from the shared parts */
    if (x != x) {
        return napier_float_of_bits(0x7fc00000u);
    }
    const float inside = x < 89.5f ? (x > -105.0f ? x : -105.0f) : 89.5f;
    const napier_exp_parts parts = napier_exp_parts_small(inside);
    const int64_t half = parts.n >> 1;
    return parts.p * napier_power_of_two(half) * napier_power_of_two(parts.n - half);
}

static void test_math(void) {
    enum { COUNT = 1024 };
    float *const x = malloc(COUNT * sizeof *x), *const y = malloc(3 * COUNT * sizeof *y);
    uint32_t bits = 12345;
    for (int i = 0; i < COUNT; i++) {
        bits = bits * 1664525u + 1013904223u;
        x[i] = i < 8   ? (const float[8]){0.0f, -0.0f, 1.0f, INFINITY, -INFINITY, NAN, 89.0f, -103.9f}[i]
               : i % 2 ? napier_float_of_bits(bits)
                       : (float)(int32_t)bits * 0x1p-25f;
    }
    const probe_job job = {.x = device_copy(x, COUNT * sizeof *x), .y = device_new(3 * COUNT * sizeof *y)};
    launch("probe", NAPIER_CUDA_KERNEL(probe_math), (napier_cuda_shape){.blocks = COUNT / 256, .threads = 256}, &job,
           sizeof job);
    device_read(y, job.y, 3 * COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) {
        napier_sum sum;
        const napier_tile_sum tile = {.max = x[i], .min = x[i], .rest = x[i] * 0x1p40f, .count = 2};
        napier_sum_init(&sum);
        napier_sum_add_tile(&sum, &tile);
        const float lse = napier_sum_finish(&sum).lse;
        assert_int_equal(napier_float_bits(y[3 * i]), napier_float_bits(one_exp(x[i])));
        if (x[i] > 1.0f && x[i] < INFINITY) {
            const double log_x = log((double)x[i]);
            assert_true(fabs((double)y[3 * i + 1] - log_x) <= 0x1p-24 * log_x);
        }
        assert_int_equal(napier_float_bits(y[3 * i + 2]), napier_float_bits(lse));
    }
    device_free((void *)job.x);
    device_free(job.y);
    free(x);
    free(y);
}

static void test_clusters(void) {
    enum { CLUSTER = 4, BLOCKS = 12, COUNT = BLOCKS * 32 };
    if (!context->clusters) {
        skip();
    }
    float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
    }
    const probe_job job = {.x = device_copy(x, sizeof x), .y = device_new(sizeof y)};
    const napier_cuda_shape shape = {.blocks = BLOCKS, .threads = 32, .shared_bytes = 128, .cluster = CLUSTER};
    launch("probe", NAPIER_CUDA_KERNEL(probe_cluster), shape, &job, sizeof job);
    device_read(y, job.y, sizeof y);
    for (int i = 0; i < COUNT; i++) {
        const int block = i / 32, next = block / CLUSTER * CLUSTER + (block % CLUSTER + 1) % CLUSTER;
        assert_true(y[i] == (float)(next * 32 + i % 32));
    }
    device_free((void *)job.x);
    device_free(job.y);
}

static void test_product(void) {
    uint16_t a[256], b[128];
    float d[128];
    for (int i = 0; i < 256; i++) {
        a[i] = (uint16_t)(napier_float_bits((float)(i * 7 % 23 - 11)) >> 16);
        b[i / 2] = (uint16_t)(napier_float_bits((float)(i / 2 * 5 % 19 - 9)) >> 16);
    }
    const probe_product_job job = {device_copy(a, sizeof a), device_copy(b, sizeof b), device_new(sizeof d)};
    const napier_cuda_shape shape = {.blocks = 1, .threads = 32, .shared_bytes = 2 * (256 + 256)};
    launch("probe", NAPIER_CUDA_KERNEL(probe_product), shape, &job, sizeof job);
    device_read(d, job.d, sizeof d);
    for (int i = 0; i < 128; i++) {
        float sum = 0.0f; /* of small integers: exact */
        for (int k = 0; k < 16; k++) {
            sum += napier_float_of_bits((uint32_t)a[16 * (i / 8) + k] << 16) *
                   napier_float_of_bits((uint32_t)b[8 * k + i % 8] << 16);
        }
        assert_true(d[i] == sum);
    }
    device_free((void *)job.a);
    device_free((void *)job.b);
    device_free(job.d);
}

static void test_launches(void) {
    const probe_job job = {0};
    napier_cuda_shape shape = {.blocks = 0, .threads = 32};
    launch("nothing", NAPIER_CUDA_KERNEL(probe_warp), shape, &job, sizeof job);
    shape.blocks = 1;
    shape.shared_bytes = 100 << 20;
    assert_int_equal(
        napier_cuda_launch(context, NULL, "too much", NAPIER_CUDA_KERNEL(probe_warp), &shape, &job, sizeof job),
        NAPIER_UNSUPPORTED);
    assert_non_null(strstr(napier_cuda_last_error(context), "too much: "));
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_OK);
    assert_int_equal(napier_cuda_blocks(context, 10, 4, 1), 3);
    assert_int_equal(napier_cuda_blocks(context, INT64_MAX / 2, 1, 2), 2 * context->processors);
}

static void in_orders(void (*test)(void)) {
    for (uint64_t order = 0; order < ORDERS; order++) {
        device_order(order);
        test();
    }
}
static void test_sums_in_orders(void) { in_orders(test_sums); }
static void test_warp_in_orders(void) { in_orders(test_warp_and_faults); }
static void test_clusters_in_orders(void) { in_orders(test_clusters); }
static void test_product_in_orders(void) { in_orders(test_product); }

int main(void) {
    device_wanted();
    if (napier_cuda_context_create(&context, -1) != NAPIER_OK) {
        return 1;
    }
    const int failed = RUN_TESTS("cuda_device", TEST(test_contexts), TEST(test_workspace), TEST(test_sums_in_orders),
                                 TEST(test_warp_in_orders), TEST(test_wavefronts), TEST(test_math),
                                 TEST(test_clusters_in_orders), TEST(test_product_in_orders), TEST(test_launches));
    napier_cuda_context_destroy(context);
    return failed;
}
