/* bench/cuda/device.h - what ladder.c and map.c share: a device that may fail, and times by events. */
#ifndef BENCH_CUDA_DEVICE_H
#define BENCH_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static inline void *device_new(size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static inline void *host_new(size_t bytes) {
    void *const memory = malloc(bytes);
    if (memory == NULL) {
        fputs("no memory\n", stderr);
        exit(1);
    }
    return memory;
}

typedef struct stopwatch {
    cudaEvent_t begin, end;
} stopwatch;

static inline stopwatch stopwatch_new(void) {
    stopwatch w;
    must(cudaEventCreate(&w.begin), "cudaEventCreate");
    must(cudaEventCreate(&w.end), "cudaEventCreate");
    return w;
}

static inline void stopwatch_start(const stopwatch *w) { must(cudaEventRecord(w->begin, NULL), "cudaEventRecord"); }

/* Milliseconds since the start, as the device counts them. */
static inline float stopwatch_stop(const stopwatch *w) {
    float ms = 0;
    must(cudaEventRecord(w->end, NULL), "cudaEventRecord");
    must(cudaEventSynchronize(w->end), "cudaEventSynchronize");
    must(cudaEventElapsedTime(&ms, w->begin, w->end), "cudaEventElapsedTime");
    return ms;
}

static inline void stopwatch_free(const stopwatch *w) {
    must(cudaEventDestroy(w->begin), "cudaEventDestroy");
    must(cudaEventDestroy(w->end), "cudaEventDestroy");
}

static inline int by_time(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts the times. */
static inline float median_of(float *ms, int count) {
    qsort(ms, (size_t)count, sizeof *ms, by_time);
    return ms[count / 2];
}

#endif
