/* core/simd/mask_bits.inc.h - a mask of 16 lanes as an integer; compiled once per instruction set. */
#ifndef NAPIER_CORE_SIMD_MASK_BITS_INC_H
#define NAPIER_CORE_SIMD_MASK_BITS_INC_H

#include <stdint.h>

#include "core/simd/lanes.h"

/* Bit i is lane i. */
NAPIER_KERNEL uint32_t napier_mask_bits(const vm m) {
#if defined(NAPIER_LANES_AVX512)
    return (uint32_t)m;
#elif defined(NAPIER_LANES_AVX2)
    return (uint32_t)_mm256_movemask_ps(m.lo) | (uint32_t)_mm256_movemask_ps(m.hi) << 8;
#else
    uint32_t bits = 0;
    if (vm_any(m)) {
        float lanes[16];
        vf_store(lanes, vf_keep(m, vf_set(1.0f)));
        for (int i = 0; i < 16; i++) {
            bits |= lanes[i] != 0.0f ? 1u << i : 0u;
        }
    }
    return bits;
#endif
}

#endif
