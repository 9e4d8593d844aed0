/* tests/cuda/cuda_test.c - see cuda_test.h. */
#define _POSIX_C_SOURCE 200809L
#include "cuda_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5 };

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "tests: %s\n", what);
    exit(1);
}

#if defined(NAPIER_CUDA_EMULATED)

#include "emulator/emulator.h"

void device_wanted(void) {}
bool device_is_emulated(void) { return true; }
void device_order(uint64_t seed) { emulated_order(seed); }

void *device_new(size_t size) {
    void *memory = NULL; /* on 256 bytes as CUDA's, and no byte more: AddressSanitizer sees the end */
    if (posix_memalign(&memory, 256, size > 0 ? size : 1) != 0) {
        give_up("no memory");
    }
    memset(memory, POISON, size);
    return memory;
}
void device_free(void *device) { free(device); }
void device_write(void *device, const void *from, size_t size) { memcpy(device, from, size); }
void device_read(void *to, const void *device, size_t size) { memcpy(to, device, size); }

#else

#include <cuda_runtime_api.h>

static void must(cudaError_t error) {
    if (error != cudaSuccess) {
        give_up(cudaGetErrorString(error));
    }
}

void device_wanted(void) {
    if (napier_cuda_device_count() == 0) {
        puts("skip: no CUDA device of sm_80 or later");
        exit(77);
    }
}
bool device_is_emulated(void) { return false; }
void device_order(uint64_t seed) { (void)seed; }

void *device_new(size_t size) {
    void *memory = NULL;
    must(cudaMalloc(&memory, size > 0 ? size : 1));
    must(cudaMemset(memory, POISON, size));
    return memory;
}
void device_free(void *device) { must(cudaFree(device)); }
void device_write(void *device, const void *from, size_t size) {
    must(cudaMemcpy(device, from, size, cudaMemcpyHostToDevice));
}
void device_read(void *to, const void *device, size_t size) {
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(to, device, size, cudaMemcpyDeviceToHost));
}

#endif

void *device_copy(const void *from, size_t size) {
    void *const memory = device_new(size);
    device_write(memory, from, size);
    return memory;
}
