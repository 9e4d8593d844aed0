/* tests/cuda/cuda_test.h - device memory for tests that run on the emulated device and on a real one.
 *
 * Each tests/cuda/test_cuda_*.c becomes two programs: one for the emulated device, always; one for CUDA, where it is built
 * with it, which ends with 77 (skipped) if there is no device. */
#ifndef NAPIER_TESTS_CUDA_TEST_H
#define NAPIER_TESTS_CUDA_TEST_H

#include <napier/cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the program with 77 and a line that says why, if there is no device. Call it first in main. */
void device_wanted(void);
bool device_is_emulated(void);

/* Memory of the device: `size` bytes of poison, or of what lies at `from`. A failure ends the program. */
void *device_new(size_t size);
void *device_copy(const void *from, size_t size);
void device_free(void *device);
void device_write(void *device, const void *from, size_t size);
/* Waits for the device. */
void device_read(void *to, const void *device, size_t size);

/* The order in which the emulated device runs threads and blocks; a real one takes its own. */
void device_order(uint64_t seed);

#endif
