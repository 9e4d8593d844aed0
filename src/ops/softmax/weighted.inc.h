/* ops/softmax/weighted.inc.h - the kernels of the weighted logsumexp: the operations of weighted.h on 16 lanes.
 * Compiled once per instruction set. */
#ifndef NAPIER_OPS_SOFTMAX_WEIGHTED_INC_H
#define NAPIER_OPS_SOFTMAX_WEIGHTED_INC_H

#include "ops/softmax/softmax.inc.h"
#include "ops/softmax/weighted.h"

/* 16 elements: which of them have a weight, and their sizes (-inf for the others). |b| = s 2^e. */
typedef struct napier_weighted16 {
    vm there;
    vf x, b, s, size;
    vi e;
} napier_weighted16;

NAPIER_KERNEL napier_weighted16 weighted_load(const float *x, const float *b, int n) {
    napier_weighted16 w;
    w.x = n >= 16 ? vf_load(x) : vf_load_part(x, n, vf_zero());
    w.b = n >= 16 ? vf_load(b) : vf_load_part(b, n, vf_zero());
    const vm none = vf_eq(w.b, vf_zero());
    w.there = vm_andnot(none, vm_first(16));
    const vf magnitude = vf_from_bits(vi_and(vf_bits(w.b), vi_set(0x7fffffff)));
    const vm small = vf_lt(magnitude, vf_set(0x1p-126f));
    const vi bits = vf_bits(vf_select(small, vf_mul(w.b, vf_set(0x1p64f)), w.b));
    const vi bias = vi_select(small, vi_set(127 + 64), vi_set(127));
    w.e = vi_sub(vi_and(vi_shr(bits, 23), vi_set(0xff)), bias);
    w.s = vf_from_bits(vi_or(vi_and(bits, vi_set((int32_t)0x807fffffu)), vi_set(0x3f800000)));
    w.size = vf_fma(vf_from_int(w.e), vf_set(NAPIER_LN2_F32), w.x);
    return w;
}

NAPIER_SLOT void weighted_look_at(const float *x, const float *b, int n, napier_weighted_look *look) {
    vf max = napier_minus_infinity(), size = max, largest_weight = vf_zero();
    vm nan = vm_first(0);
    for (int i = 0; i < n; i += 16) {
        const napier_weighted16 w = weighted_load(x + i, b + i, n - i);
        nan = vm_or(nan, vm_and(w.there, vf_unordered(w.x, w.b)));
        max = vf_max(vf_select(w.there, w.x, napier_minus_infinity()), max);
        size = vf_max(vf_select(w.there, w.size, napier_minus_infinity()), size);
        largest_weight = vf_max(vf_from_bits(vi_and(vf_bits(w.b), vi_set(0x7fffffff))), largest_weight);
    }
    const float top = vf_hmax(max);
    if (vm_any(nan) || !(fabsf(top) <= NAPIER_BIG) || vf_hmax(largest_weight) == INFINITY) {
        *look = napier_weighted_look_by_definition(x, b, n);
        return;
    }
    *look = napier_weighted_nothing();
    look->max = (double)top;
    look->size = (double)vf_hmax(size);
    look->unit = napier_weighted_unit(look->size, top);
}

/* 16 terms; 0 for elements that have no weight, are not below the maximum, or are too small. */
NAPIER_KERNEL vf weighted_terms16(const napier_weighted16 *w, vf max, vf cutoff, vi shift) {
    vf shifted, n;
    const vf r = vf_exp_reduce(w->x, vf_set(NAPIER_ROUND_MAGIC), &shifted, &n);
    const vf term = vf_mul(w->s, vf_exp_polynomial(r));
    const vi k = vi_add(vi_sub(vf_bits(shifted), vi_set(0x4b400000)), w->e); /* the bits of the magic number */
    const vm kept = vm_and(w->there, vm_and(vf_lt(w->x, max), vf_ge(w->size, cutoff)));
    return vf_keep(kept, vf_from_bits(vi_add(vf_bits(term), vi_shl(vi_add(k, shift), 23))));
}

NAPIER_SLOT float weighted_rest(const float *x, const float *b, int n, const napier_weighted_look *look) {
    const float top = (float)look->max;
    if (napier_is_big(top)) {
        return napier_weighted_rest_by_definition(x, b, n, look);
    }
    const vf max = vf_set(top), cutoff = vf_set((float)look->size - NAPIER_CUTOFF);
    const vi shift = vi_set((int32_t)(NAPIER_TERM_SCALE - look->unit));
    const int vectors = napier_lane_vectors(n);
    vf lane[16];
    for (int v = 0; v < vectors; v++) {
        vf sum = vf_zero();
        for (int i = v * 16; i < n; i += NAPIER_TILE_LANES) {
            const napier_weighted16 w = weighted_load(x + i, b + i, n - i);
            sum = vf_add(sum, weighted_terms16(&w, max, cutoff, shift));
        }
        lane[v] = sum;
    }
    return vf_hadd(napier_fold_lanes(lane, vectors));
}

/* The indices of the elements that equal `max` and have a weight. */
NAPIER_SLOT int weighted_ties(const float *x, const float *b, int n, float max, int *at) {
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const vf u = n - i >= 16 ? vf_load(x + i) : vf_load_part(x + i, n - i, napier_minus_infinity());
        if (!vm_any(vf_eq(u, vf_set(max)))) {
            continue;
        }
        for (int j = i; j < n && j < i + 16; j++) {
            at[count] = j;
            count += x[j] == max && b[j] != 0;
        }
    }
    return count;
}

#endif
