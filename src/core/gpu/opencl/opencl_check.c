/* core/gpu/opencl/opencl_check.c - compares the device's arithmetic with the host's. */
#include "core/gpu/opencl/opencl.h"

#if defined(NAPIER_OPENCL)

#include <inttypes.h>

#include "core/gpu/opencl/check.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_opencl_check);

enum { TRIPLES = 1 << 20, PART = 1 << 15, RESULTS = NAPIER_CHECK_TYPES * NAPIER_CHECK_OPERATIONS };

static const char *const operations[NAPIER_CHECK_OPERATIONS] = {
    "addition",    "multiplication", "fused multiply-add", "division",
    "square root", "rounding",       "conversion",         "conversion of integers"};

static napier_status check_part(napier_cuda_context *context, int64_t first, uint64_t *got) {
    for (int64_t i = 0; i < PART; i++, got += RESULTS) {
        uint64_t wanted[RESULTS];
        napier_check_results(first + i, wanted);
        for (int k = 0; k < RESULTS; k++) {
            if (got[k] != wanted[k]) {
                return napier_fail(context->host, NAPIER_UNSUPPORTED,
                                   "device: %s: %s of %s%s gives 0x%" PRIx64 ", not 0x%" PRIx64 " (triple %lld)",
                                   context->opencl->name, operations[k % NAPIER_CHECK_OPERATIONS],
                                   napier_check_is_small(first + i) ? "subnormal " : "",
                                   k < NAPIER_CHECK_OPERATIONS ? "f32" : "f64", got[k], wanted[k],
                                   (long long)(first + i));
            }
        }
    }
    return NAPIER_OK;
}

static napier_status check_parts(napier_cuda_context *context, void *device, uint64_t *host) {
    const napier_cuda_call call = {context, NULL, "arithmetic"};
    const size_t size = sizeof(uint64_t) * PART * RESULTS;
    for (int64_t first = 0; first < TRIPLES; first += PART) {
        const napier_check_job job = {.results = device, .first = first, .count = PART};
        NAPIER_TRY(napier_cuda_fill(context, NULL, device, 0xa5, size));
        NAPIER_TRY(NAPIER_CUDA_PUT(&call, napier_opencl_check,
                                   napier_cuda_loop(&call, PART, NAPIER_CHECK_THREADS, 4, NAPIER_CHECK_THREADS), &job));
        NAPIER_TRY(napier_opencl_copy(context, host, device, size));
        NAPIER_TRY(check_part(context, first, host));
    }
    return NAPIER_OK;
}

napier_status napier_opencl_check_arithmetic(napier_cuda_context *context) {
    NAPIER_DEFAULT_FENV;
    NAPIER_MEMORY(memory, context->host);
    uint64_t *const host = napier_take(&memory, (int64_t)PART * RESULTS, sizeof *host);
    void *device = NULL;
    NAPIER_TRY(napier_taken(&memory, "arithmetic: no memory for the check"));
    NAPIER_TRY(napier_opencl_allocate(context, sizeof(uint64_t) * PART * RESULTS, &device));
    const napier_status status = check_parts(context, device, host);
    (void)napier_opencl_release(context, device);
    return status;
}

#endif
