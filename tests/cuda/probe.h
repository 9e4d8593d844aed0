/* tests/cuda/probe.h - the jobs of probe.cu. */
#ifndef NAPIER_TESTS_CUDA_PROBE_H
#define NAPIER_TESTS_CUDA_PROBE_H

#include <stdint.h>

#include "core/gpu/fault.h"

typedef struct probe_job {
    const float *x; /* as many as there are threads in the grid */
    float *y;
    int64_t *total;
    napier_cuda_faults *faults;
} probe_job;

typedef struct probe_product_job {
    const uint16_t *a; /* [16, 16], bf16 */
    const uint16_t *b; /* [16, 8], bf16: loaded from shared memory turned */
    float *d;          /* [16, 8] */
} probe_product_job;

#endif
