/* umap/metric/distance.inc.h - one row against many (distance_kernels.h); compiled once per instruction set.
 *
 * Four rows at a time hide the latency of a sum. A transposition folds the sums of 16 rows together. */
#include "core/simd/mask_bits.inc.h"
#include "ops/linear/dot.inc.h"
#include "umap/metric/distance_kernels.h"
#include "umap/metric/gap.inc.h"

enum { NAPIER_ROWS_AT_ONCE = 4 };

/* The lanes of rows which[0] .. which[3]. */
NAPIER_KERNEL void napier_gap_lanes(const napier_gap gap, const float *x, const float *rows, int64_t width,
                                    const uint32_t *which, vf *sums, vf *others) {
    const float *y[NAPIER_ROWS_AT_ONCE];
    vf sum[NAPIER_ROWS_AT_ONCE], other[NAPIER_ROWS_AT_ONCE];
    NAPIER_UNROLL
    for (int r = 0; r < NAPIER_ROWS_AT_ONCE; r++) {
        y[r] = rows + (int64_t)which[r] * width;
        sum[r] = other[r] = vf_zero();
    }
    for (int64_t i = 0; i < width; i += 16) {
        const vf left = vf_load(x + i);
        NAPIER_UNROLL
        for (int r = 0; r < NAPIER_ROWS_AT_ONCE; r++) {
            napier_gap_step(gap, left, vf_load(y[r] + i), &sum[r], &other[r]);
        }
    }
    NAPIER_UNROLL
    for (int r = 0; r < NAPIER_ROWS_AT_ONCE; r++) {
        sums[r] = sum[r];
        others[r] = other[r];
    }
}

/* The 16 sums of the rows' lanes, added in double in lane order. */
NAPIER_KERNEL vd napier_gap_fold(vf lanes[16]) {
    vf_transpose(lanes);
    vd sum = vd_from_vf(lanes[0]);
    NAPIER_UNROLL
    for (int l = 1; l < 16; l++) {
        sum = vd_add(sum, vd_from_vf(lanes[l]));
    }
    return sum;
}

/* 16 distances of the kind EUCLIDEAN, HALF or HALF_ROOT. */
NAPIER_KERNEL vf napier_squared_rows(const napier_gap_rows *t, const float *x, const uint32_t which[16]) {
    vf lanes[16];
    for (int r = 0; r < 16; r++) {
        lanes[r] = napier_pair_lanes(true, x, t->rows + (int64_t)which[r] * t->width, t->width);
    }
    const vf squared = vf_hadd16(lanes);
    switch (t->gap) {
    case NAPIER_GAP_HALF: return vf_mul(vf_set(0.5f), squared);
    case NAPIER_GAP_HALF_ROOT: return vf_sqrt(vf_mul(vf_set(0.5f), squared));
    default: return vf_sqrt(squared);
    }
}

/* 16 distances of another kind. */
NAPIER_KERNEL vf napier_summed_rows(const napier_gap gap, const napier_gap_rows *t, const float *x,
                                    const uint32_t which[16], vf *others) {
    vf lanes[16], other[16];
    for (int r = 0; r < 16; r += NAPIER_ROWS_AT_ONCE) {
        napier_gap_lanes(gap, x, t->rows, t->width, which + r, lanes + r, other + r);
    }
    switch (gap) {
    case NAPIER_GAP_LARGEST: return vf_hmax16(lanes);
    case NAPIER_GAP_UNEQUAL: return vd_to_vf(vd_div(napier_gap_fold(lanes), vd_set((double)t->columns)));
    case NAPIER_GAP_RATIO: {
        const vd whole = napier_gap_fold(other), nothing = vd_set(0.0);
        const vm some = vd_lt(nothing, whole);
        return vf_keep(some, vd_to_vf(vd_div(napier_gap_fold(lanes), vd_select(some, whole, vd_set(1.0)))));
    }
    case NAPIER_GAP_COUNTS: *others = vd_to_vf(napier_gap_fold(other)); break;
    default: break;
    }
    return vd_to_vf(napier_gap_fold(lanes));
}

/* 16 rows at a time. The last group is padded with its first row. */
NAPIER_KERNEL void napier_measure_as(const napier_gap gap, const napier_gap_rows *t, const float *x,
                                     const uint32_t *which, int64_t count, float *distances, float *others) {
    for (int64_t c = 0; c < count; c += 16) {
        uint32_t padded[16];
        const uint32_t *group = which + c;
        if (count - c < 16) {
            for (int64_t r = 0; r < 16; r++) {
                padded[r] = which[c + r < count ? c + r : c];
            }
            group = padded;
        }
        vf other = vf_zero();
        const vf d = gap <= NAPIER_GAP_HALF_ROOT ? napier_squared_rows(t, x, group)
                                                 : napier_summed_rows(gap, t, x, group, &other);
        vf_store(distances + c, vf_max(d, vf_zero()));
        if (gap == NAPIER_GAP_COUNTS) {
            vf_store(others + c, other);
        }
    }
}

static void napier_measure(const napier_gap_rows *t, const float *x, const uint32_t *which, int64_t count,
                           float *distances, float *others) {
    switch (t->gap) {
    case NAPIER_GAP_PLAIN: napier_measure_as(NAPIER_GAP_PLAIN, t, x, which, count, distances, others); break;
    case NAPIER_GAP_LARGEST: napier_measure_as(NAPIER_GAP_LARGEST, t, x, which, count, distances, others); break;
    case NAPIER_GAP_CANBERRA: napier_measure_as(NAPIER_GAP_CANBERRA, t, x, which, count, distances, others); break;
    case NAPIER_GAP_RATIO: napier_measure_as(NAPIER_GAP_RATIO, t, x, which, count, distances, others); break;
    case NAPIER_GAP_UNEQUAL: napier_measure_as(NAPIER_GAP_UNEQUAL, t, x, which, count, distances, others); break;
    case NAPIER_GAP_COUNTS: napier_measure_as(NAPIER_GAP_COUNTS, t, x, which, count, distances, others); break;
    default: napier_measure_as(NAPIER_GAP_EUCLIDEAN, t, x, which, count, distances, others); break;
    }
}

static uint64_t napier_within(const float *distances, int64_t count, float limit, const float *limits) {
    uint64_t bits = 0;
    for (int64_t c = 0; c < count; c += 16) {
        const int64_t left = count - c;
        const vf d = vf_load(distances + c);
        const vf other = left < 16 ? vf_load_part(limits + c, (int)left, vf_zero()) : vf_load(limits + c);
        const uint32_t some = left < 16 ? (1u << left) - 1 : 0xffffu;
        bits |= (uint64_t)(napier_mask_bits(vf_le(d, vf_max(vf_set(limit), other))) & some) << c;
    }
    return bits;
}

#define NAPIER_DISTANCE_KERNELS \
    { .measure = napier_measure, .within = napier_within }
