/* ops/softmax/lanes.inc.h - 16 rows in the 16 lanes of one vector.
 *
 * This layout serves rows of a few columns, after a transpose, and rows that are columns in memory (columns.inc.h). Element i
 * of the 16 rows is the vector at z + i * ld. The operations on each row are those of softmax.inc.h, in the same order.
 * Compiled once per instruction set. */
#ifndef NAPIER_OPS_SOFTMAX_LANES_INC_H
#define NAPIER_OPS_SOFTMAX_LANES_INC_H

#include "ops/softmax/softmax.inc.h"

/* Running state of 16 rows, one per lane, before they are finished. `alone` marks the rows that are not ordinary (a
 * NaN, a maximum that is infinite or beyond 2^20). Their lanes hold harmless values, and they are
 * computed one by one. */
typedef struct napier_sixteen {
    vf max, min, rest, count;
    napier_maxima maxima;
    vm alone;
} napier_sixteen;

NAPIER_KERNEL void sixteen_start(napier_sixteen *s, napier_range range) {
    const vf size = vf_from_bits(vi_and(vf_bits(range.max), vi_set(0x7fffffff)));
    s->alone = vm_or(napier_range_nan(range), vf_lt(vf_set(NAPIER_BIG), size));
    s->max = vf_select(s->alone, vf_zero(), range.max);
    s->min = vf_select(s->alone, vf_zero(), range.min);
    s->maxima = napier_maxima_of(s->max);
}

/* Is every element of all 16 rows within `reach` of its row's maximum? */
NAPIER_KERNEL bool sixteen_within(const napier_sixteen *s, float reach) {
    return vm_all(vf_ge(s->min, vf_sub(s->max, vf_set(reach))));
}

/* One element of each row. *term is its term; the result is the term if it is below the
 * maximum, otherwise 0, as in terms16. */
NAPIER_KERNEL vf sixteen_term(const napier_sixteen *s, vf z, bool cut, vi *below, vf *term) {
    *term = vf_exp_scaled(z, s->maxima.magic);
    if (cut) {
        *term = vf_keep(vf_ge(z, vf_sub(s->max, vf_set(NAPIER_CUTOFF))), *term);
    }
    const vi sign = vi_sar(vf_bits(vf_add(vf_sub(z, s->max), vf_zero())), 31); /* -0 - 0 is -0, which is not below */
    *below = vi_add(*below, sign);
    return vf_from_bits(vi_and(vf_bits(*term), sign));
}

/* At least 1: the count of a row that is computed alone is meaningless. */
NAPIER_KERNEL vf sixteen_count(int n, vi below) {
    return vf_max(vf_add(vf_set((float)n), vf_from_int(below)), vf_set(1.0f));
}

NAPIER_KERNEL napier_writer sixteen_writer(const napier_sixteen *s, const napier_finals *f, bool care) {
    napier_writer w = {s->max, f->log_sum, f->scale, f->max_prob, vf_zero(), vf_zero()};
    if (care) {
        w.scale_up = vf_mul(f->scale, vf_set(0x1p64f));
        w.smallest = vf_div(vf_set(0x1.fffffp-63f), w.scale_up);
    }
    return w;
}

/* Computes one row from contiguous z: its result goes to out[0 .. n), or to out[0] for logsumexp. */
static void row_by_definition(napier_softmax_op op, napier_masked_rows masked, const float *z, int n, float *out) {
    napier_sum sum;
    napier_tile_sum t;
    napier_sum_init(&sum);
    napier_tile_by_definition(z, n, &t);
    napier_sum_add_tile(&sum, &t);
    const napier_final final = napier_sum_finish(&sum);
    if (op == NAPIER_OP_LOGSUMEXP) {
        out[0] = final.lse;
    } else {
        write_by_definition(op, &final, masked, z, n, out);
    }
}

/* ---- Tiny rows: up to 16 columns ----------------------------------------------------------------------------------- */

/* 16 rows of n <= width columns. v[i] holds column i and receives its results; width is a constant power of two. care:
 * some results may be subnormal or cut off. Returns the logsumexps, if that is the operation. */
NAPIER_KERNEL vf tiny_sixteen(napier_softmax_op op, int width, int n, bool care, const napier_sixteen *s, vf *v) {
    vf acc[NAPIER_TINY_COLS], term[NAPIER_TINY_COLS];
    vi below = vi_set(0);
    NAPIER_UNROLL
    for (int i = 0; i < width; i++) {
        acc[i] = term[i] = vf_zero();
        if (i < n) {
            acc[i] = sixteen_term(s, v[i], care, &below, &term[i]);
        }
    }
    NAPIER_UNROLL
    for (int half = 8; half > 0; half /= 2) {
        NAPIER_UNROLL
        for (int i = 0; i < half; i++) {
            if (i + half < width) {
                acc[i] = vf_add(acc[i], acc[i + half]);
            }
        }
    }
    const napier_finals f = napier_finish16(op, s->max, s->maxima.p, sixteen_count(n, below), acc[0]);
    if (op != NAPIER_OP_LOGSUMEXP) {
        const napier_writer w = sixteen_writer(s, &f, care);
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                v[i] = result16(op, &w, op == NAPIER_OP_SOFTMAX ? term[i] : v[i], care);
            }
        }
    }
    return f.lse;
}

/* Computes the rows marked in `alone` one by one, from their z to their results. */
static void tiny_alone(napier_softmax_op op, napier_masked_rows masked, int n, vm alone, const vf *z, vf *results,
                       vf *lse) {
    float which[16], columns[NAPIER_TINY_COLS][16], out[NAPIER_TINY_COLS][16], sums[16];
    vf_store(which, vf_keep(alone, vf_set(1.0f)));
    vf_store(sums, *lse);
    for (int i = 0; i < n; i++) {
        vf_store(columns[i], z[i]);
        vf_store(out[i], results[i]);
    }
    for (int j = 0; j < 16; j++) {
        if (which[j] == 0.0f) {
            continue;
        }
        float row[NAPIER_TINY_COLS], result[NAPIER_TINY_COLS];
        for (int i = 0; i < n; i++) {
            row[i] = columns[i][j];
        }
        row_by_definition(op, masked, row, n, result);
        sums[j] = result[0];
        for (int i = 0; i < n && op != NAPIER_OP_LOGSUMEXP; i++) {
            out[i][j] = result[i];
        }
    }
    *lse = vf_load(sums);
    for (int i = 0; i < n; i++) {
        results[i] = vf_load(out[i]);
    }
}

/* Sixteen rows, some of which have results that may be subnormal, or must be computed alone. */
static vf tiny_with_care(napier_softmax_op op, int n, napier_masked_rows masked, const napier_sixteen *s, vf *v) {
    vf z[NAPIER_TINY_COLS];
    memcpy(z, v, (size_t)n * sizeof *v);
    vf lse = tiny_sixteen(op, NAPIER_TINY_COLS, n, true, s, v);
    if (vm_any(s->alone)) {
        tiny_alone(op, masked, n, s->alone, z, v, &lse);
    }
    return lse;
}

/* 16 ordinary rows of two columns, v[0] and v[1], within `reach` 80. The larger element's term is known, so one exp is
 * enough, and its probability is max_prob. Equal elements need no count: the sum p + p is 2 p. The term of the smaller one
 * may exceed p by a rounding, but not its power of two: for that the exp's remainder would have to change its sign. */
NAPIER_KERNEL vf tiny_two(napier_softmax_op op, vf max, vf min, vf *v) {
    const napier_maxima m = napier_maxima_of(max);
    const vf term = vf_exp_scaled(min, m.magic), one = vf_set(1.0f);
    if (op == NAPIER_OP_SOFTMAX) {
        const napier_finals f = napier_finish_prob16(true, m.p, one, term);
        const vf less = vf_min(vf_mul(term, f.scale), f.max_prob);
        const vm first = vf_lt(v[0], v[1]);
        v[0] = vf_select(first, less, f.max_prob);
        v[1] = vf_select(first, f.max_prob, less);
        return f.lse;
    }
    const napier_finals f = napier_finish16(op, max, m.p, one, term);
    if (op == NAPIER_OP_LOG_SOFTMAX) {
        v[0] = vf_sub(vf_sub(v[0], max), f.log_sum);
        v[1] = vf_sub(vf_sub(v[1], max), f.log_sum);
    }
    return f.lse;
}

/* Are all 16 rows of two columns ordinary, and their results normal numbers? A NaN or an infinity fails a compare. */
NAPIER_KERNEL bool tiny_two_ordinary(vf max, vf min) {
    const vf size = vf_from_bits(vi_and(vf_bits(max), vi_set(0x7fffffff)));
    return vm_all(vm_and(vf_le(vf_sub(max, min), vf_set(80.0f)), vf_le(size, vf_set(NAPIER_BIG))));
}

NAPIER_KERNEL vf tiny_group(napier_softmax_op op, int width, int n, napier_masked_rows masked, vf *v) {
    if (width == 2 && n == 2) {
        const vf max = vf_max(v[1], v[0]), min = vf_min(v[0], v[1]); /* a NaN remains in one of them */
        if (tiny_two_ordinary(max, min)) {
            return tiny_two(op, max, min, v);
        }
    }
    napier_range range = no_range();
    NAPIER_UNROLL
    for (int i = 0; i < width; i++) {
        if (i < n) {
            range = range_add(range, v[i]);
        }
    }
    napier_sixteen s;
    sixteen_start(&s, range);
    if (vm_any(s.alone) || !sixteen_within(&s, 80.0f)) { /* exp(-80) / 16 is a normal number */
        return tiny_with_care(op, n, masked, &s, v);
    }
    return tiny_sixteen(op, width, n, false, &s, v);
}

/* The columns of rows that are computed with a constant width; rows of one column go with those of four. */
NAPIER_KERNEL int tiny_columns_of_width(const napier_softmax_job *job, int width) {
    return width == 2 ? 2 : (int)job->x.cols;
}
static int tiny_width(int64_t n) { return n == 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : 16; }

#endif
