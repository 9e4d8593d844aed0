/* bits/golden_numbers.h - the numbers that tables of golden bits are made from. */
#ifndef NAPIER_TESTS_GOLDEN_NUMBERS_H
#define NAPIER_TESTS_GOLDEN_NUMBERS_H

#include "support/formats.h"
#include "support/golden_table.h"

static uint64_t state; /* of xorshift; each case sets it */

static inline uint64_t next_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

/* -1 to 1, a multiple of 2^-20 */
static inline double next_number(void) { return (double)((int64_t)(next_bits() & 0x1fffff) - 0x100000) * 0x1p-20; }

/* Numbers around `middle`, of two summands, so that few are far off. */
static inline void *numbers(int64_t count, napier_dtype dtype, double middle, double scale) {
    void *const x = golden_room(count, napier_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        element_set(x, dtype, i, middle + scale * (next_number() + next_number()));
    }
    return x;
}

#endif
