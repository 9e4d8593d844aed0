/* ops/attention/attention_lanes.h - operations on weights within a lane, which CPU and CUDA share. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_LANES_H
#define NAPIER_OPS_ATTENTION_ATTENTION_LANES_H

#include "core/math/lanes_math.h"

/* 2^d for d <= 1. 0 for d < -125, where the result would be subnormal or nearly so; NaN for NaN. The magic number
 * includes the exponent's bias, so that the low bits of the sum are the exponent's bits. */
NAPIER_KERNEL vf napier_weight(vf d) {
    vf shifted;
    const vf p = vf_exp2_fraction(d, vf_set(NAPIER_ROUND_MAGIC + 127.0f), &shifted);
    const vf power = vf_from_bits(vi_shl(vf_bits(shifted), 23));
    return vf_keep(vf_nlt(d, vf_set(NAPIER_EXP2_LOWEST)), vf_mul(p, power));
}

/* 2^(from - to) for integers or infinities from < to. */
NAPIER_KERNEL float napier_rescale(float from, float to) {
    return from - to < -126.0f ? 0.0f : napier_power_of_two((int64_t)(from - to));
}

/* log(2^E l), in double. */
NAPIER_KERNEL vf napier_lse_of(vf exponent, vf sum) {
    const vd log_sum = vd_log(vd_from_vf(sum));
    return vd_to_vf(vd_fma(vd_from_vf(exponent), vd_set(NAPIER_LN2_DOUBLE), log_sum));
}

#endif
