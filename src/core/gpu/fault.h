/* core/gpu/fault.h - ids and offsets in device memory cannot be checked by the host without waiting for them. Kernels
 * check them: nothing out of bounds is read or written, the row's results are NaN, and the least index that was wrong
 * is noted here; napier_cuda_synchronize reports it. */
#ifndef NAPIER_CORE_GPU_FAULT_H
#define NAPIER_CORE_GPU_FAULT_H

#include <stdint.h>

typedef enum napier_cuda_fault {
    NAPIER_FAULT_IDS,     /* an id outside 0..cols-1 that is not ignore_index */
    NAPIER_FAULT_OFFSETS, /* offsets that fall, or that go past the end */
    NAPIER_FAULT_EDGES,   /* an edge that names no vertex, is out of order or has no weight; a graph's row */
    NAPIER_FAULT_TARGETS, /* a sample that is no vertex */
    NAPIER_FAULT_VALUES,  /* an element that is not finite where it must be */
    NAPIER_FAULT_COUNT
} napier_cuda_fault;

/* seen: 0, or INT64_MAX - index for the least index at fault. Cleared memory says that all is well. */
typedef struct napier_cuda_faults {
    int64_t seen[NAPIER_FAULT_COUNT];
} napier_cuda_faults;

#endif
