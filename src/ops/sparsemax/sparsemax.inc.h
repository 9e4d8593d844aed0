/* ops/sparsemax/sparsemax.inc.h - the kernels of sparsemax and its gradient. Compiled once per instruction set.
 *
 * A row is processed in tiles of doubles: a pass for its maximum, one for each round of threshold.h, one that writes. In
 * most rows few elements are within 1 of the maximum. The first round keeps the vectors that have one, and later rounds
 * read only those. If they are too many to keep, each round reads the row. */
#ifndef NAPIER_OPS_SPARSEMAX_SPARSEMAX_INC_H
#define NAPIER_OPS_SPARSEMAX_SPARSEMAX_INC_H

#include "ops/softmax/softmax.inc.h"
#include "ops/sparsemax/sparsemax_kernels.h"

enum { SPARSEMAX_KEPT = 2 * NAPIER_TILE };

/* A tile, whole vectors: elements past the end of the row are -inf. */
typedef struct sparsemax_tile {
    int n, whole; /* elements; the same up to the last vector's end */
    double z[NAPIER_TILE];
    float floats[NAPIER_TILE];
} sparsemax_tile;

static void sparsemax_load_tile(napier_const_matrix m, int64_t row, int64_t col, double temperature, bool wide,
                                sparsemax_tile *t) {
    const int64_t at = row * m.row_stride + col * m.col_stride;
    const int n = t->n = napier_tile_at(col, m.cols);
    t->whole = (n + 15) / 16 * 16;
    for (int i = n; i < t->whole; i++) {
        t->z[i] = -HUGE_VAL;
    }
    if (wide) {
        for (int i = 0; i < n; i++) {
            t->z[i] = sparsemax_load(m.data, m.dtype, at + i * m.col_stride, temperature, true);
        }
        return;
    }
    const void *const x = napier_at(m.data, m.dtype, at);
    const float *const z = napier_look(x, m.dtype, m.col_stride, (float)temperature, n, t->floats).z;
    for (int i = 0; i < n; i += 16) {
        const vf v = i + 16 <= n ? vf_load(z + i) : vf_load_part(z + i, n - i, napier_minus_infinity());
        vd_store(t->z + i, vd_from_vf(v));
    }
}

/* The tile's z are results. */
static void sparsemax_store_tile(napier_matrix m, int64_t row, int64_t col, bool wide, sparsemax_tile *t) {
    const int64_t at = row * m.row_stride + col * m.col_stride;
    if (wide) {
        for (int i = 0; i < t->n; i++) {
            sparsemax_store(m.data, m.dtype, at + i * m.col_stride, t->z[i], true);
        }
        return;
    }
    for (int i = 0; i < t->n; i += 16) {
        const vf v = vd_to_vf(vd_load(t->z + i));
        vf_store(t->floats + i, vf_select(vf_unordered(v, v), vf_canonical_nan(), v));
    }
    napier_scatter(t->floats, t->n, napier_at_out(m.data, m.dtype, at), m.dtype, m.col_stride, false);
}

/* ---- The maximum -------------------------------------------------------------------------------------------------- */

/* False if an element is NaN or +inf. */
static bool sparsemax_max(const napier_sparsemax_job *job, int64_t row, sparsemax_tile *t, double *max) {
    const vd infinity = vd_set(HUGE_VAL);
    vd top = vd_set(-HUGE_VAL);
    vm ordinary = vm_first(16);
    for (int64_t col = 0; col < job->x.cols; col += NAPIER_TILE) {
        sparsemax_load_tile(job->x, row, col, job->temperature, job->wide, t);
        for (int i = 0; i < t->whole; i += 16) {
            const vd z = vd_load(t->z + i);
            ordinary = vm_and(ordinary, vd_lt(z, infinity));
            top = vd_select(vd_lt(top, z), z, top);
        }
    }
    double lanes[16];
    vd_store(lanes, top);
    *max = lanes[0];
    for (int i = 1; i < 16; i++) {
        *max = lanes[i] > *max ? lanes[i] : *max;
    }
    return vm_all(ordinary);
}

/* ---- The threshold ------------------------------------------------------------------------------------------------ */

NAPIER_KERNEL vd sparsemax_distance16(vd max, vd z) {
    const vd one = vd_set(1.0);
    return vd_sub(vd_add(vd_sub(max, z), one), one);
}

typedef struct sparsemax_kept {
    int n;    /* elements, whole vectors */
    bool all; /* there was room for each vector with an element within 1 of the maximum */
    double z[SPARSEMAX_KEPT];
} sparsemax_kept;

static void sparsemax_keep(sparsemax_kept *k, vd z) {
    k->all = k->all && k->n < SPARSEMAX_KEPT;
    if (k->all) {
        vd_store(k->z + k->n, z);
        k->n += 16;
    }
}

/* The distances below `limit` of at most a tile, in whole vectors, which are kept if `k` is not NULL. Each distance is
 * split into a multiple of 2^-26 and a rest of at most 2^-27, because a double holds both sums of 64 such exactly. */
static napier_sparsemax_sum sparsemax_add_tile(const double *z, int n, double max, double limit, sparsemax_kept *k) {
    const vd top = vd_set(max), end = vd_set(limit), split = vd_set(0x1p26), zero = vd_set(0.0);
    vd coarse = zero, fine = zero;
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const vd here = vd_load(z + i), distance = sparsemax_distance16(top, here);
        const vm in = vd_lt(distance, end);
        if (vm_any(in)) {
            const vd d = vd_select(in, distance, zero), rounded = vd_sub(vd_add(d, split), split);
            coarse = vd_add(coarse, rounded);
            fine = vd_add(fine, vd_sub(d, rounded));
            count += vm_count(in);
            if (k) {
                sparsemax_keep(k, here);
            }
        }
    }
    napier_sparsemax_sum sum = {(uint64_t)count, 0, 0};
    double high[16], low[16];
    vd_store(high, coarse);
    vd_store(low, fine);
    for (int i = 0; i < 16 && count > 0; i++) { /* at most 2^62 */
        sum.low += sparsemax_units(high[i]) + (uint64_t)(int64_t)(low[i] * 0x1p52);
    }
    return sum;
}

/* The first round: reads the row. `k` is NULL or receives what is to be kept. */
static napier_sparsemax_sum sparsemax_add_row(const napier_sparsemax_job *job, int64_t row, double max, double limit,
                                              sparsemax_tile *t, sparsemax_kept *k) {
    napier_sparsemax_sum sum = {0, 0, 0};
    for (int64_t col = 0; col < job->x.cols; col += NAPIER_TILE) {
        sparsemax_load_tile(job->x, row, col, job->temperature, job->wide, t);
        sparsemax_add(&sum, sparsemax_add_tile(t->z, t->whole, max, limit, k));
    }
    return sum;
}

static napier_sparsemax_sum sparsemax_add_kept(const sparsemax_kept *k, double max, double limit) {
    napier_sparsemax_sum sum = {0, 0, 0};
    for (int i = 0; i < k->n; i += NAPIER_TILE) {
        const int n = k->n - i < NAPIER_TILE ? k->n - i : NAPIER_TILE;
        sparsemax_add(&sum, sparsemax_add_tile(k->z + i, n, max, limit, NULL));
    }
    return sum;
}

static napier_sparsemax_threshold sparsemax_solve(const napier_sparsemax_job *job, int64_t row, double max,
                                                  sparsemax_tile *t) {
    sparsemax_kept kept;
    kept.n = 0;
    kept.all = true;
    napier_sparsemax_sum sum = sparsemax_add_row(job, row, max, 1.0, t, &kept);
    for (;;) {
        const napier_sparsemax_threshold threshold = sparsemax_threshold_of(sum);
        const uint64_t count = sum.count;
        sum = kept.all ? sparsemax_add_kept(&kept, max, threshold.limit)
                       : sparsemax_add_row(job, row, max, threshold.limit, t, NULL);
        if (sum.count == count) {
            return threshold;
        }
    }
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

static void sparsemax_fill_row(const napier_sparsemax_job *job, int64_t row, double value, sparsemax_tile *t) {
    for (int i = 0; i < NAPIER_TILE; i++) {
        t->z[i] = value;
    }
    for (int64_t col = 0; col < job->out.cols; col += NAPIER_TILE) {
        t->n = napier_tile_at(col, job->out.cols);
        sparsemax_store_tile(job->out, row, col, job->wide, t);
    }
}

NAPIER_SLOT void sparsemax_write_row(const napier_sparsemax_job *job, int64_t row, double max,
                                     napier_sparsemax_threshold threshold, sparsemax_tile *t) {
    const vd top = vd_set(max), limit = vd_set(threshold.limit), zero = vd_set(0.0);
    const vd whole = vd_set(threshold.whole), fraction = vd_set(threshold.fraction);
    for (int64_t col = 0; col < job->x.cols; col += NAPIER_TILE) {
        sparsemax_load_tile(job->x, row, col, job->temperature, job->wide, t);
        for (int i = 0; i < t->whole; i += 16) {
            const vd d = sparsemax_distance16(top, vd_load(t->z + i));
            const vd p = vd_add(vd_sub(whole, d), fraction);
            vd_store(t->z + i, vd_select(vd_lt(d, limit), p, zero));
        }
        sparsemax_store_tile(job->out, row, col, job->wide, t);
    }
}

static void sparsemax_row(const napier_sparsemax_job *job, int64_t row) {
    sparsemax_tile t;
    double max;
    if (!sparsemax_max(job, row, &t, &max)) {
        sparsemax_fill_row(job, row, napier_f64_nan(), &t);
    } else if (max == -HUGE_VAL) {
        sparsemax_fill_row(job, row, job->masked, &t);
    } else {
        sparsemax_write_row(job, row, max, sparsemax_solve(job, row, max, &t), &t);
    }
}

/* ---- The gradient ------------------------------------------------------------------------------------------------- */

/* Where the gradient is 0: p is 0, or lies past the end. A NaN is not below the smallest double. */
NAPIER_KERNEL vm sparsemax_outside(vd p) { return vd_lt(p, vd_set(0x1p-1074)); }

/* g in the support, and NaN if p is. */
NAPIER_KERNEL vd sparsemax_pull(vd p, vd g) { return vd_fma(p, vd_set(0.0), g); }

static double sparsemax_mean(const napier_sparsemax_job *job, int64_t row, sparsemax_tile *p, sparsemax_tile *g) {
    double lane[SPARSEMAX_LANES] = {0};
    int64_t count = 0;
    for (int64_t col = 0; col < job->x.cols; col += NAPIER_TILE) {
        sparsemax_load_tile(job->x, row, col, 1.0, job->wide, p);
        sparsemax_load_tile(job->grad, row, col, 1.0, job->wide, g);
        for (int i = 0; i < p->whole; i += 16) {
            const vd prob = vd_load(p->z + i), sum = vd_load(lane + i % SPARSEMAX_LANES);
            const vm outside = sparsemax_outside(prob);
            const vd pull = vd_select(outside, vd_set(0.0), sparsemax_pull(prob, vd_load(g->z + i)));
            vd_store(lane + i % SPARSEMAX_LANES, vd_add(sum, pull));
            count += 16 - vm_count(outside);
        }
    }
    for (int half = SPARSEMAX_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0] / (double)count;
}

static void sparsemax_gradient(const napier_sparsemax_job *job, int64_t row) {
    sparsemax_tile p, g;
    const vd temperature = vd_set(job->temperature), mean = vd_set(sparsemax_mean(job, row, &p, &g));
    for (int64_t col = 0; col < job->x.cols; col += NAPIER_TILE) {
        sparsemax_load_tile(job->x, row, col, 1.0, job->wide, &p);
        sparsemax_load_tile(job->grad, row, col, 1.0, job->wide, &g);
        for (int i = 0; i < p.whole; i += 16) {
            const vd prob = vd_load(p.z + i);
            const vd result = vd_div(vd_sub(sparsemax_pull(prob, vd_load(g.z + i)), mean), temperature);
            vd_store(g.z + i, vd_select(sparsemax_outside(prob), vd_set(0.0), result));
        }
        sparsemax_store_tile(job->out, row, col, job->wide, &g);
    }
}

#endif
