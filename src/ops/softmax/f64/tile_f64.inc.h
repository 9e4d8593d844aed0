/* ops/softmax/f64/tile_f64.inc.h - tiles of doubles on 16 lanes: the operations of sum_f64.inc.h and weighted_f64.h, in
 * the same order. Compiled once per instruction set. Rare tiles go to the definitions: those with NaN, with a maximum that
 * is infinite or beyond 2^28, or with a weight that is subnormal or not finite. */
#ifndef NAPIER_OPS_SOFTMAX_F64_TILE_F64_INC_H
#define NAPIER_OPS_SOFTMAX_F64_TILE_F64_INC_H

#include "core/math/lanes_f64.h"
#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/weighted/weighted_f64.h"

enum { F64_VECTORS = NAPIER_F64_LANES / 16 };

/* Up to 16 elements, `fill` beyond. */
NAPIER_KERNEL vd f64_load(const double *z, int n, double fill) {
    if (n >= 16) {
        return vd_load(z);
    }
    double part[16];
    for (int i = 0; i < 16; i++) {
        part[i] = i < n ? z[i] : fill;
    }
    return vd_load(part);
}

NAPIER_KERNEL void f64_store(double *z, int n, vd v) {
    double part[16];
    vd_store(n >= 16 ? z : part, v);
    if (n < 16) {
        memcpy(z, part, (size_t)n * sizeof *z);
    }
}

NAPIER_KERNEL vd vd_larger(vd a, vd b) { return vd_select(vd_lt(a, b), b, a); }

NAPIER_KERNEL double vd_largest(vd v) {
    double lane[16];
    vd_store(lane, v);
    for (int i = 1; i < 16; i++) {
        lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    }
    return lane[0];
}

/* Folds 256 lanes by halves, as napier_f64_fold. Only the first `vectors` exist; missing lanes count as +0. */
NAPIER_KERNEL double f64_fold_lanes(vd *lane, int vectors) {
    for (int half = F64_VECTORS / 2; half > 0; half /= 2) {
        for (int v = 0; v < half && v + half < vectors; v++) {
            lane[v] = vd_add(lane[v], lane[v + half]);
        }
    }
    double last[16];
    vd_store(last, lane[0]);
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            last[i] += last[i + half];
        }
    }
    return last[0];
}

/* ---- Terms ------------------------------------------------------------------------------------------------------- */

/* The maximum of a tile or row, at most 2^28 in magnitude, and 512 - the exponent of its term. */
typedef struct f64_top {
    vd max, shift;
} f64_top;

static f64_top f64_top_for(double max, int64_t exponent) {
    return (f64_top){vd_set(max), vd_set((double)(NAPIER_F64_TERM_SCALE - exponent))};
}

/* The terms of elements below the maximum and within the cutoff, and 0 for the others. */
NAPIER_KERNEL vd f64_terms(const f64_top *top, vd z, vm below) {
    const vm counts = vm_andnot(vd_lt(vd_sub(z, top->max), vd_set(-NAPIER_F64_CUTOFF)), below);
    const vd_exp e = vd_exp_parts(vd_select(counts, z, top->max));
    const vd term = vd_mul(e.p, vd_power_of_two(vd_add(e.n, top->shift)));
    return vd_select(counts, term, vd_set(0.0));
}

/* napier_f64_exponent_of for |max| <= 2^28: the first step of the reduction is all of it. */
NAPIER_KERNEL int64_t f64_simple_exponent(double max) {
    const double y = max * NAPIER_F64_LOG2E;
    return (int64_t)(y + (y < 0 ? -0.5 : 0.5));
}

/* If `terms` is not NULL, they go there, in whole vectors. Returns whether they did. */
static bool f64_tile(const double *z, int n, napier_f64_tile_part *part, double *terms) {
    vd max = vd_set(-HUGE_VAL), sum = vd_set(0.0), lane[F64_VECTORS];
    for (int i = 0; i < n; i += 16) {
        const vd v = f64_load(z + i, n - i, -HUGE_VAL);
        max = vd_larger(max, v);
        sum = vd_add(sum, v); /* NaN if an element is one, and maybe if one is infinite */
    }
    const double largest = vd_largest(max);
    if (!vm_all(vm_or(vd_lt(sum, vd_set(HUGE_VAL)), vd_lt(vd_set(0.0), sum))) ||
        !(fabs(largest) <= NAPIER_F64_EXP_SIMPLE)) {
        *part = napier_f64_tile_by_definition(z, n);
        return false;
    }
    const f64_top top = f64_top_for(largest, f64_simple_exponent(largest));
    const int vectors = n < NAPIER_F64_LANES ? (n + 15) / 16 : F64_VECTORS;
    int below = 0;
    for (int v = 0; v < vectors; v++) {
        lane[v] = vd_set(0.0);
        for (int i = v * 16; i < n; i += NAPIER_F64_LANES) {
            const vd x = f64_load(z + i, n - i, largest);
            const vm less = vd_lt(x, top.max);
            const vd term = f64_terms(&top, x, less);
            below += vm_count(less);
            lane[v] = vd_add(lane[v], term);
            if (terms) {
                vd_store(terms + i, term);
            }
        }
    }
    *part = (napier_f64_tile_part){largest, f64_fold_lanes(lane, vectors), (uint64_t)(n - below), false};
    return terms;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* terms: NULL, or those of z, in whole vectors. */
NAPIER_KERNEL vd f64_probs(const napier_f64_final *final, const f64_top *top, vd z, const double *terms) {
    const vm below = vd_lt(z, top->max);
    const vd term = terms ? vd_load(terms) : f64_terms(top, z, below);
    const vd most = vd_set(final->max_prob), prob = vd_mul(term, vd_set(final->scale));
    return vd_select(vm_and(below, vd_lt(prob, most)), prob, most);
}

NAPIER_KERNEL vd f64_log_probs(const napier_f64_final *final, vd z) {
    const vd_pair d = vd_two_sum(z, vd_set(-final->max)), s = vd_two_sum(d.high, vd_set(-final->log_sum));
    const vd sum = vd_add(s.high, vd_add(s.low, vd_sub(d.low, vd_set(final->log_sum_low))));
    return vd_select(vd_lt(vd_set(-0x1p1000), d.high), sum, d.high);
}

static void f64_apply(const napier_f64_final *final, napier_softmax_kind kind, napier_masked_rows masked_rows,
                      const double *z, const double *terms, double *out, int64_t n) {
    const f64_top top = f64_top_for(final->max, final->exponent);
    const bool simple = final->row == NAPIER_F64_ROW_FINITE && fabs(final->max) <= NAPIER_F64_EXP_SIMPLE;
    for (int64_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        const vd x = f64_load(z + i, count, final->max);
        const vm number = vm_or(vd_lt(x, vd_set(HUGE_VAL)), vd_lt(vd_set(0.0), x));
        if (!simple || !vm_all(number)) {
            napier_f64_apply(final, kind, masked_rows, z + i, out + i, count);
        } else {
            f64_store(out + i, count,
                      kind == NAPIER_KIND_SOFTMAX ? f64_probs(final, &top, x, terms ? terms + i : NULL)
                                                  : f64_log_probs(final, x));
        }
    }
}

/* ---- Weighted ---------------------------------------------------------------------------------------------------- */

/* 16 weights: which of them are not 0; |b| = s 2^e, with the sign of b in s. */
typedef struct f64_weights {
    vm there;
    vd size, s, e;
} f64_weights;

NAPIER_KERNEL f64_weights f64_weights_of(vd b) {
    const vm minus = vd_lt(b, vd_set(0.0));
    const vd size = vd_select(minus, vd_sub(vd_set(0.0), b), b);
    const vm there = vd_lt(vd_set(0.0), size);
    const vd normal = vd_select(there, size, vd_set(1.0)), s = vd_mantissa(normal);
    return (f64_weights){there, size, vd_select(minus, vd_sub(vd_set(0.0), s), s), vd_exponent(normal)};
}

/* Is every weight 0, or finite and normal, and its x neither NaN nor +inf? */
NAPIER_KERNEL bool f64_weights_are_simple(const f64_weights *w, vd x) {
    const vm finite = vd_lt(w->size, vd_set(HUGE_VAL)), small = vd_lt(w->size, vd_set(0x1p-1022));
    const vm fine = vm_andnot(small, vd_lt(x, vd_set(HUGE_VAL)));
    return vm_all(vm_and(finite, vm_or(fine, vm_andnot(w->there, vm_first(16)))));
}

NAPIER_KERNEL vd f64_sizes(const f64_weights *w, vd x, vd max) {
    return vd_fma(w->e, vd_set(NAPIER_LN2_DOUBLE), vd_sub(x, max));
}

static void f64_weighted_look(const double *x, const double *b, int n, napier_weighted_look *look) {
    vd max = vd_set(-HUGE_VAL), size = max;
    bool simple = true;
    for (int i = 0; i < n && simple; i += 16) {
        const vd v = f64_load(x + i, n - i, 0);
        const f64_weights w = f64_weights_of(f64_load(b + i, n - i, 0));
        simple = f64_weights_are_simple(&w, v);
        max = vd_larger(max, vd_select(w.there, v, vd_set(-HUGE_VAL)));
    }
    const double largest = vd_largest(max);
    if (!simple || !(fabs(largest) <= NAPIER_F64_EXP_SIMPLE)) {
        *look = napier_f64_weighted_look_by_definition(x, b, n);
        return;
    }
    for (int i = 0; i < n; i += 16) {
        const f64_weights w = f64_weights_of(f64_load(b + i, n - i, 0));
        const vd sizes = f64_sizes(&w, f64_load(x + i, n - i, 0), vd_set(largest));
        size = vd_larger(size, vd_select(w.there, sizes, vd_set(-HUGE_VAL)));
    }
    *look = napier_weighted_nothing();
    look->max = largest;
    look->size = vd_largest(size);
    look->unit = napier_f64_weighted_unit(look->size, largest);
}

NAPIER_SLOT double f64_weighted_rest(const double *x, const double *b, int n, const napier_weighted_look *look) {
    vd lane[F64_VECTORS];
    bool simple = fabs(look->max) <= NAPIER_F64_EXP_SIMPLE;
    const vd max = vd_set(look->max), least = vd_set(-NAPIER_F64_CUTOFF);
    const vd shift = vd_set((double)(NAPIER_F64_TERM_SCALE - look->unit));
    for (int v = 0; v < F64_VECTORS && simple; v++) {
        lane[v] = vd_set(0.0);
        for (int i = v * 16; i < n; i += NAPIER_F64_LANES) {
            const vd z = f64_load(x + i, n - i, 0);
            const f64_weights w = f64_weights_of(f64_load(b + i, n - i, 0));
            simple = simple && f64_weights_are_simple(&w, z);
            const vm far = vd_lt(vd_sub(f64_sizes(&w, z, max), vd_set(look->size)), least);
            const vm counts = vm_andnot(far, vm_and(w.there, vd_lt(z, max)));
            const vd_exp e = vd_exp_parts(vd_select(counts, z, max));
            const vd k = vd_select(counts, vd_add(vd_add(e.n, w.e), shift), vd_set(0.0));
            const vd term = vd_mul(vd_mul(w.s, e.p), vd_power_of_two(k));
            lane[v] = vd_add(lane[v], vd_select(counts, term, vd_set(0.0)));
        }
    }
    return simple ? f64_fold_lanes(lane, F64_VECTORS) : napier_f64_weighted_rest_by_definition(x, b, n, look);
}

#endif
