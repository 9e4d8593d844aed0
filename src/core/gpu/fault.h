/* core/gpu/fault.h - wrong ids and offsets in device memory. The host cannot check them without waiting for the device,
 * so kernels check them. A kernel reads and writes nothing out of bounds, makes the row's results NaN, and records the
 * smallest wrong index here. napier_cuda_synchronize reports it. */
#ifndef NAPIER_CORE_GPU_FAULT_H
#define NAPIER_CORE_GPU_FAULT_H

#include <stdint.h>

typedef enum napier_cuda_fault {
    NAPIER_FAULT_IDS,     /* an id outside 0..cols-1 that is not ignore_index */
    NAPIER_FAULT_OFFSETS, /* offsets that decrease, or that exceed the end */
    NAPIER_FAULT_EDGES,   /* an edge with an invalid vertex, out of order or without weight; a row of a graph */
    NAPIER_FAULT_TARGETS, /* a sample that is not a vertex */
    NAPIER_FAULT_VALUES,  /* an element that is not finite where it must be */
    NAPIER_FAULT_ROWS,    /* a row of logits from which no id can be drawn */
    NAPIER_FAULT_PARTS,   /* bytes that are no state of these columns */
    NAPIER_FAULT_LENGTHS, /* a sequence of more tokens than a model has positions */
    NAPIER_FAULT_COUNT
} napier_cuda_fault;

/* seen: 0, or INT64_MAX - index for the smallest wrong index. So memory that has been cleared means no fault, and a
 * maximum keeps the smallest index. */
typedef struct napier_cuda_faults {
    int64_t seen[NAPIER_FAULT_COUNT];
} napier_cuda_faults;

#endif
