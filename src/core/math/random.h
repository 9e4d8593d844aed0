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
enum { NAPIER_PHILOX_ROUNDS = 7, NAPIER_PHILOX4_ROUNDS = 10 };

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

/* Philox 4x32 with 10 rounds: four numbers for a key of two words and a counter of four. The same as Random123's and
 * cuRAND's. */
NAPIER_BOTH void napier_philox4(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3], k = key[0], l = key[1];
    for (int round = 0; round < NAPIER_PHILOX4_ROUNDS; round++) {
        const uint64_t first = (uint64_t)0xd2511f53u * a, second = (uint64_t)0xcd9e8d57u * c;
        a = (uint32_t)(second >> 32) ^ b ^ k;
        b = (uint32_t)second;
        c = (uint32_t)(first >> 32) ^ d ^ l;
        d = (uint32_t)first;
        k += NAPIER_PHILOX_WEYL;
        l += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
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
