/* core/math/random.h - random numbers without a state: each is a function of a seed, a stream and a counter. So it does
 * not matter which thread draws it, or when.
 *
 * Philox 2x32 with 7 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011; 7
 * rounds are the fewest that they found to pass BigCrush). The key of a stream is derived from the seed by the same
 * function. Plain C that CUDA compiles too; core/math/lanes_math.h has it on 16 lanes. */
#ifndef NAPIER_CORE_MATH_RANDOM_H
#define NAPIER_CORE_MATH_RANDOM_H

#include <stdint.h>

#include "core/math/both.h"

#define NAPIER_PHILOX_MULTIPLIER 0xd256d193u
#define NAPIER_PHILOX_WEYL 0x9e3779b9u
enum { NAPIER_PHILOX_ROUNDS = 7 };

/* Two numbers for a key and a counter of two words. */
NAPIER_BOTH void napier_philox(uint32_t key, uint32_t hi, uint32_t lo, uint32_t out[2]) {
    for (int round = 0; round < NAPIER_PHILOX_ROUNDS; round++) {
        const uint64_t product = (uint64_t)NAPIER_PHILOX_MULTIPLIER * lo;
        lo = (uint32_t)(product >> 32) ^ key ^ hi;
        hi = (uint32_t)product;
        key += NAPIER_PHILOX_WEYL;
    }
    out[0] = lo;
    out[1] = hi;
}

/* The key of one stream (an epoch, a purpose) of a seed. */
NAPIER_BOTH uint32_t napier_random_key(uint64_t seed, uint32_t stream) {
    uint32_t mixed[2];
    napier_philox((uint32_t)seed, (uint32_t)(seed >> 32), stream, mixed);
    napier_philox(mixed[0], mixed[1], (uint32_t)(seed >> 32), mixed);
    return mixed[0];
}

/* Numbers `hi`, `lo` of a stream. */
NAPIER_BOTH void napier_random(uint64_t seed, uint32_t stream, uint32_t hi, uint32_t lo, uint32_t out[2]) {
    napier_philox(napier_random_key(seed, stream), hi, lo, out);
}

/* 0 .. n - 1, evenly to within n / 2^32. */
NAPIER_BOTH uint32_t napier_random_below(uint32_t random, uint32_t n) { return (uint32_t)((uint64_t)random * n >> 32); }

/* [0, 1), a multiple of 2^-32. */
NAPIER_BOTH double napier_random_unit(uint32_t random) { return (double)random * 0x1p-32; }

#endif
