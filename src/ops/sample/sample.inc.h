/* ops/sample/sample.inc.h - the kernels of sampling. Compiled once per instruction set. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_INC_H
#define NAPIER_OPS_SAMPLE_SAMPLE_INC_H

#include "core/simd/mask_bits.inc.h"
#include "ops/sample/draw.h"
#include "ops/sample/sample_kernels.h"
#include "ops/softmax/softmax.inc.h"
#include "ops/tokens/token_tile.inc.h"

/* Writes the lanes of v that are in m to out, which has space for 16, and returns their number. Without a branch: lanes are
 * in or out at random. */
NAPIER_INLINE int sample_pack(vm m, vf v, float *out) {
#if defined(NAPIER_LANES_AVX512)
    vf_store(out, _mm512_maskz_compress_ps(m, v));
    return vm_count(m);
#else
    const uint32_t bits = napier_mask_bits(m);
    float lanes[16];
    int count = 0;
    vf_store(lanes, v);
    for (int i = 0; i < 16; i++) {
        out[count] = lanes[i];
        count += (int)(bits >> i & 1);
    }
    return count;
#endif
}

static int sample_collect(const float *z, int n, float least, float *out) {
    const vf limit = vf_set(least);
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        const vf v = vf_load_part(z + i, part, napier_minus_infinity());
        const vm in = vf_ge(v, limit);
        count += vm_any(in) ? sample_pack(in, v, out + count) : 0;
    }
    return count;
}

/* Sums of weights in lanes. A weight is upper 2^22 + lower; a tile has 64 vectors, so a lane of either stays below 2^32. */
typedef struct sample_sums {
    vi upper, lower;
} sample_sums;

/* Adds floor(term 2^(bits - 64)); `scale` is that power of two. */
NAPIER_INLINE sample_sums sample_add(sample_sums sums, vf term, vf scale) {
    const vf weight = vf_mul(term, scale);
    const vi upper = vf_to_int(vf_mul(weight, vf_set(0x1p-22f)));
    const vf rest = vf_fnma(vf_from_int(upper), vf_set(0x1p22f), weight); /* exact, of either sign */
    const vi near = vf_to_int(rest);
    const vi lower = vi_add_where(vf_gt(vf_from_int(near), rest), near, vi_set(-1));
    return (sample_sums){vi_add(sums.upper, upper), vi_add(sums.lower, lower)};
}

static uint64_t sample_sum(sample_sums sums) {
    int32_t upper[16], lower[16];
    uint64_t sum = 0;
    vi_store(upper, sums.upper);
    vi_store(lower, sums.lower);
    for (int i = 0; i < 16; i++) {
        sum += ((uint64_t)(uint32_t)upper[i] << 22) + (uint64_t)(int64_t)lower[i];
    }
    return sum;
}

/* Elements are packed without a branch for each vector, because they are in or out at random. */
NAPIER_KERNEL vf sample_load(const float *z, int i, int n) {
    return n - i < 16 ? vf_load_part(z + i, n - i, napier_minus_infinity()) : vf_load(z + i);
}

NAPIER_KERNEL int sample_between(const napier_sample_bands *b, const float *z, int n, float *out) {
    const vf low = vf_set(b->low), high = vf_set(b->high);
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const vf v = sample_load(z, i, n);
        count += sample_pack(vm_andnot(vf_gt(v, high), vf_ge(v, low)), v, out + count);
    }
    return count;
}

static uint64_t sample_total(vd sums) {
    double lanes[16];
    uint64_t sum = 0;
    vd_store(lanes, sums);
    for (int i = 0; i < 16; i++) {
        sum += (uint64_t)(int64_t)lanes[i];
    }
    return sum;
}

/* The same, and adds up the weights of those above. `even` weights are at least 2^25, and so multiples of 4: up to 64 of
 * them, below 2^48, have an exact sum in double. */
NAPIER_KERNEL int sample_weigh(const napier_sample_bands *b, const float *z, int n, const bool even, float *out,
                               uint64_t *above) {
    const vf low = vf_set(b->low), high = vf_set(b->high), cutoff = vf_set(b->max - NAPIER_CUTOFF);
    const vf scale = vf_set(napier_power_of_two(b->bits - NAPIER_TERM_SCALE));
    const vf magic = vf_set(napier_term_magic(napier_exp_parts_small(b->max).n));
    sample_sums sums = {vi_set(0), vi_set(0)};
    vd total = vd_set(0.0);
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const vf v = sample_load(z, i, n), term = vf_exp_scaled(v, magic);
        const vm over = vf_gt(v, high);
        if (even) {
            total = vd_add(total, vd_from_vf(vf_mul(vf_keep(over, term), scale)));
        } else {
            sums = sample_add(sums, vf_keep(vm_and(over, vf_ge(v, cutoff)), term), scale);
        }
        count += sample_pack(vm_andnot(over, vf_ge(v, low)), v, out + count);
    }
    *above += even ? sample_total(total) : sample_sum(sums);
    return count;
}

/* Unless most elements are above, first packs what is at least low, so that the arithmetic is only for those. */
static int sample_split(const napier_sample_bands *b, const float *z, int n, float *out, uint64_t *above) {
    float packed[NAPIER_TILE + 16];
    if (!b->weights || !b->most) {
        const napier_sample_bands all = {.low = b->low, .high = INFINITY};
        n = sample_between(&all, z, n, packed);
        z = packed;
    }
    if (b->weights) {
        return b->even ? sample_weigh(b, z, n, true, out, above) : sample_weigh(b, z, n, false, out, above);
    }
    const int count = sample_between(b, z, n, out);
    *above += (uint64_t)(n - count);
    return count;
}

/* Four vectors at a time, in the same lanes of a tile. */
NAPIER_KERNEL vf sample_rest_lanes(const napier_adder *a, const float *z) {
    vf x[4], term[4], sum = vf_zero();
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = vf_load(z + i * NAPIER_TILE_LANES);
    }
    vf_exp_scaled_side_by_side(4, x, a->magic, term);
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        sum = vf_add_where(vm_and(vf_lt(x[i], a->max), vf_ge(x[i], a->cutoff)), sum, term[i]);
    }
    return sum;
}

static float sample_rest(const float *z, int n, float max, float least) {
    napier_adder a = napier_adder_of(max, napier_term_magic(napier_exp_parts_small(max).n));
    a.cutoff = vf_max(a.cutoff, vf_set(least));
    if (n < NAPIER_TILE) {
        return vf_hadd(napier_token_sum(z, n, &a, true, false).rest);
    }
    vf sum[16];
    for (int v = 0; v < 16; v++) {
        sum[v] = sample_rest_lanes(&a, z + 16 * v);
    }
    return vf_hadd(napier_fold_lanes(sum, 16));
}

static int sample_ties(const float *z, int n, float x, int64_t *left) {
    const vf same = vf_set(x);
    for (int i = 0; i<n && * left> 0; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        if (part == 16 && !vm_any(vf_eq(vf_load(z + i), same))) {
            continue;
        }
        const vm equal = vm_and(vf_eq(vf_load_part(z + i, part, same), same), vm_first(part));
        if (vm_count(equal) < *left) {
            *left -= vm_count(equal);
            continue;
        }
        for (int j = i; j < i + part; j++) {
            *left -= z[j] == x ? 1 : 0;
            if (*left == 0) {
                return j + 1;
            }
        }
    }
    return *left > 0 ? n : 0;
}

static void sample_cut(float *z, int n, float least, int end) {
    const vf limit = vf_set(least);
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16, ties = end <= i ? 0 : end - i < 16 ? end - i : 16;
        const vf v = vf_load_part(z + i, part, napier_minus_infinity());
        const vm in = vm_or(vf_gt(v, limit), vm_and(vf_eq(v, limit), vm_first(ties)));
        vf_store_part(z + i, part, vf_select(in, v, napier_minus_infinity()));
    }
}

static void sample_terms(const float *z, int n, float max, float *terms) {
    if (!(fabsf(max) <= NAPIER_BIG)) {
        for (int i = 0; i < n; i++) {
            terms[i] = napier_sample_term(z[i], max);
        }
        return;
    }
    const float magic = napier_term_magic(napier_exp_parts_small(max).n);
    terms_as(z, n, vf_set(max - NAPIER_CUTOFF), vf_set(magic), true, terms);
}

#endif
