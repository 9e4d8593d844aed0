/* ops/linear/dot.inc.h - sums over a pair of rows, in the order of linear_kernels.h. Compiled once per instruction
 * set. */
#ifndef NAPIER_OPS_LINEAR_DOT_INC_H
#define NAPIER_OPS_LINEAR_DOT_INC_H

#include <stdint.h>

#include "core/simd/lanes.h"

NAPIER_KERNEL vf napier_pair_step(const bool difference, const vf a, const vf b, const vf sum) {
    const vf d = difference ? vf_sub(a, b) : a;
    return vf_fma(d, difference ? d : b, sum);
}

/* The sum over a pair of rows in 16 lanes, before they are folded. */
NAPIER_KERNEL vf napier_pair_lanes(const bool difference, const float *a, const float *b, int64_t n) {
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        NAPIER_UNROLL
        for (int v = 0; v < 4; v++) {
            sum[v] = napier_pair_step(difference, vf_load(a + i + 16 * v), vf_load(b + i + 16 * v), sum[v]);
        }
    }
    NAPIER_UNROLL
    for (int v = 0; v < 4; v++) {
        const int64_t left = n - i - 16 * v;
        if (left >= 16) {
            sum[v] = napier_pair_step(difference, vf_load(a + i + 16 * v), vf_load(b + i + 16 * v), sum[v]);
        } else if (left > 0) {
            const vf x = vf_load_part(a + i + 16 * v, (int)left, vf_zero());
            sum[v] = napier_pair_step(difference, x, vf_load_part(b + i + 16 * v, (int)left, vf_zero()), sum[v]);
        }
    }
    return vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3]));
}

NAPIER_KERNEL float napier_dot_of(const float *a, const float *b, int64_t n) {
    return vf_hadd(napier_pair_lanes(false, a, b, n));
}

#endif
