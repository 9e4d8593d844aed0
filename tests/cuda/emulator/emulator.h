/* tests/cuda/emulator/emulator.h - runs a grid of coroutines: what a launch is on the emulated device. */
#ifndef NAPIER_TESTS_EMULATOR_H
#define NAPIER_TESTS_EMULATOR_H

#include <stdint.h>

typedef struct emulated_launch {
    void (*kernel)(const void *job);
    const void *job;
    int64_t blocks, blocks_y;
    int threads, cluster;
    int64_t shared_bytes;
} emulated_launch;

/* Runs it to its end. What a device would hang on or leave undefined ends the process with a message. */
void emulated_run(const char *what, const emulated_launch *launch);

/* In which order threads run between two waits, and blocks: 0 rising, 1 falling, others: mixed anew each time. */
void emulated_order(uint64_t seed);

#endif
