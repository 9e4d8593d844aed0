/* tests/cuda/umap_cuda.h - what the tests of umap on a device share: calls with the workspace they ask for, and results
 * that have the CPU's bits. */
#ifndef NAPIER_TESTS_UMAP_CUDA_H
#define NAPIER_TESTS_UMAP_CUDA_H

#include "support/check.h"

#include <math.h>
#include <napier/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"

static napier_context *host;
static napier_cuda_context *cuda;

/* A workspace of the size that `call`, which names &w, asks for; then the call itself. */
#define CALL(status, call)                   \
    do {                                     \
        napier_cuda_workspace w = {NULL, 1}; \
        status = call;                       \
        if (status == NAPIER_OK) {           \
            w.data = device_new(w.size);     \
            status = call;                   \
            keep_faults(&status);            \
            device_free(w.data);             \
        }                                    \
    } while (0)

/* Faults come as the status of the call that met them. */
static inline void keep_faults(napier_status *status) {
    if (*status == NAPIER_OK) {
        *status = napier_cuda_synchronize(cuda, NULL);
    }
}

static inline void expect_ok(napier_status status) {
    if (status != NAPIER_OK) {
        fail_msg("status %d: %s", (int)status, napier_cuda_last_error(cuda));
    }
}

static inline void expect_bad(napier_status status, const char *text) {
    assert_int_equal(status, NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(cuda), text));
}

/* Device floats have the bits of the host's. */
static inline void expect_floats(const char *what, const float *device, const float *expected, int64_t count) {
    float *const got = malloc((size_t)count * sizeof *got + 1);
    assert_non_null(got);
    device_read(got, device, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0) {
            fail_msg("%s: element %lld of %lld is %a, not %a", what, (long long)i, (long long)count, (double)got[i],
                     (double)expected[i]);
        }
    }
    free(got);
}

static inline void expect_bytes(const void *device, const void *expected, size_t size) {
    void *const got = malloc(size + 1);
    assert_non_null(got);
    device_read(got, device, size);
    assert_memory_equal(got, expected, size);
    free(got);
}

static inline void expect_nans(const float *device, int64_t count) {
    float *const got = malloc((size_t)count * sizeof *got + 1);
    assert_non_null(got);
    device_read(got, device, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        assert_true(isnan(got[i]));
    }
    free(got);
}

#endif
