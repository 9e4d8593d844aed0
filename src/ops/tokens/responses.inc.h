/* ops/tokens/responses.inc.h - helpers for kernels over tokens: loading and storing tiles of any dtype, the tokens that
 * count, and sums in the order of gradients (ops/softmax/gradient.inc.h): 256 lanes over a tile of 1024 tokens, folded
 * by halves. */
#ifndef NAPIER_OPS_TOKENS_RESPONSES_INC_H
#define NAPIER_OPS_TOKENS_RESPONSES_INC_H

#include "ops/softmax/gradient.inc.h"

/* n <= 1024 tokens from `first` as contiguous floats: the vector's memory if it is contiguous f32, else copied to
 * `room`. NULL if absent. */
NAPIER_KERNEL const float *napier_tokens(napier_const_vector v, int64_t first, int n, float *room) {
    if (!v.data) {
        return NULL;
    }
    const void *at = napier_at(v.data, v.dtype, first * v.stride);
    if (v.stride != 1) {
        napier_gather(at, v.dtype, v.stride, n, room);
        return room;
    }
    if (v.dtype == NAPIER_F32) {
        return (const float *)at;
    }
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        vf_store(room + i, napier_load_part(napier_at(at, v.dtype, i), v.dtype, part, vf_zero()));
    }
    return room;
}

/* Where a kernel writes n results from `first`: to the vector's memory if it is contiguous f32, else to `room`.
 * napier_tokens_put then stores them. */
NAPIER_KERNEL float *napier_tokens_out(napier_vector v, int64_t first, float *room) {
    if (!v.data) {
        return NULL;
    }
    return v.dtype == NAPIER_F32 && v.stride == 1 ? (float *)v.data + first : room;
}
NAPIER_KERNEL void napier_tokens_put(napier_vector v, int64_t first, int n, const float *room) {
    if (v.data && !(v.dtype == NAPIER_F32 && v.stride == 1)) {
        napier_scatter(room, n, napier_at_out(v.data, v.dtype, first * v.stride), v.dtype, v.stride, false);
    }
}

/* 16 tokens from i on, with `fill` past the end. */
NAPIER_KERNEL vf napier_sixteen_tokens(const float *x, int i, int n, float fill) {
    return i + 16 <= n ? vf_load(x + i) : vf_load_part(x + i, n - i, vf_set(fill));
}
NAPIER_KERNEL void napier_sixteen_results(float *y, int i, int n, vf v) {
    v = vf_select(vf_unordered(v, v), vf_canonical_nan(), v);
    if (i + 16 <= n) {
        vf_store(y + i, v);
    } else {
        vf_store_part(y + i, n - i, v);
    }
}

/* The mask of those of 16 tokens that exist and count. mask, if not NULL, points to the mask of the tile's first
 * token. */
NAPIER_KERNEL vm napier_counted(const uint8_t *mask, int i, int n) {
    if (!mask) {
        return vm_first(n - i < 16 ? n - i : 16);
    }
    int32_t lane[16] = {0};
    if (i + 16 <= n) {
        for (int j = 0; j < 16; j++) {
            lane[j] = mask[i + j];
        }
    } else {
        for (int j = 0; j < n - i; j++) {
            lane[j] = mask[i + j];
        }
    }
    return vi_gt(vi_load(lane), vi_set(0));
}

/* One sum over a tile. Lanes without elements hold +0 and are not folded. */
typedef struct napier_lane_sum {
    vf lane[16];
} napier_lane_sum;

NAPIER_KERNEL int napier_lanes_of(int n) { return n >= NAPIER_TILE_LANES ? 16 : (n + 15) / 16; }

NAPIER_KERNEL void napier_lane_start(napier_lane_sum *s, int n) {
    const int vectors = napier_lanes_of(n);
    for (int v = 0; v < vectors; v++) {
        s->lane[v] = vf_zero();
    }
}
NAPIER_KERNEL void napier_lane_add(napier_lane_sum *s, int i, vf x) {
    const int v = (i / 16) & 15;
    s->lane[v] = vf_add(s->lane[v], x);
}
NAPIER_KERNEL float napier_lane_fold(napier_lane_sum *s, int n) {
    const int vectors = napier_lanes_of(n);
    for (int half = 8; half > 0; half /= 2) {
        for (int v = 0; v < half && v + half < vectors; v++) {
            s->lane[v] = vf_add(s->lane[v], s->lane[v + half]);
        }
    }
    return vf_hadd(s->lane[0]);
}

/* The same in double, for sums that become an exponent. */
typedef struct napier_wide_sum {
    double lane[NAPIER_TILE_LANES];
} napier_wide_sum;

NAPIER_KERNEL void napier_wide_start(napier_wide_sum *s, int n) {
    memset(s->lane, 0, (size_t)napier_lanes_of(n) * 16 * sizeof *s->lane);
}
NAPIER_KERNEL void napier_wide_add(napier_wide_sum *s, int i, vd x) {
    double *lane = s->lane + (i & (NAPIER_TILE_LANES - 1));
    vd_store(lane, vd_add(vd_load(lane), x));
}
NAPIER_KERNEL double napier_wide_fold(napier_wide_sum *s, int n) {
    const int lanes = napier_lanes_of(n) * 16;
    for (int half = NAPIER_TILE_LANES / 2; half > 0; half /= 2) {
        for (int v = 0; v < half && v + half < lanes; v++) {
            s->lane[v] += s->lane[v + half];
        }
    }
    return s->lane[0];
}

#endif
