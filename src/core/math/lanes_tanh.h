/* core/math/lanes_tanh.h - tanh and its derivative on 16 lanes, from single IEEE operations: the same bits everywhere.
 *
 *   e = exp(2|y|) - 1 = 2^n q + (2^n - 1), where exp(2|y|) = 2^n (1 + q): one rounding besides q's, and no cancellation
 *   tanh = sign(y) e / (e + 2),    1 - tanh^2 = 4 (e + 1) / (e + 2)^2
 *
 * The error is at most 3.5 ulp. The worst of all floats from 2^-126 on is 3.378 at 0.0606100038
 * (tests/unit/rl/test_token_logprobs.c tests this float and a sample). */
#ifndef NAPIER_CORE_MATH_LANES_TANH_H
#define NAPIER_CORE_MATH_LANES_TANH_H

#include "core/math/lanes_math.h"

#define NAPIER_TANH_FAR 88.0f /* beyond 2|y| = 88 tanh is 1, and its derivative below 2^-124: 0 */

typedef struct vf_tanh_parts {
    vf tanh, slope;
} vf_tanh_parts;

NAPIER_INLINE vf_tanh_parts vf_tanh_and_slope(vf y) {
    const vi sign = vi_and(vf_bits(y), vi_set(INT32_MIN));
    const vf size = vf_from_bits(vi_xor(vf_bits(y), sign)), twice = vf_add(size, size);
    const vf x = vf_min(twice, vf_set(NAPIER_TANH_FAR));
    vf shifted, n;
    const vf r = vf_exp_reduce(x, vf_set(NAPIER_ROUND_MAGIC), &shifted, &n);
    const vf p = vf_exp_quotient(r);
    const vf power = vf_from_bits(vi_shl(vi_add(vf_bits(shifted), vi_set(127)), 23)); /* 2^n */
    const vf e = vf_fma(power, vf_mul(p, r), vf_sub(power, vf_set(1.0f))), above = vf_add(e, vf_set(2.0f));
    const vf tanh = vf_from_bits(vi_or(vf_bits(vf_div(e, above)), sign));
    const vf slope = vf_div(vf_div(vf_mul(vf_set(4.0f), vf_add(e, vf_set(1.0f))), above), above);
    const vm nan = vf_unordered(y, y);
    return (vf_tanh_parts){vf_select(nan, vf_canonical_nan(), tanh),
                           vf_select(nan, vf_canonical_nan(), vf_keep(vf_lt(twice, vf_set(NAPIER_TANH_FAR)), slope))};
}

#endif
