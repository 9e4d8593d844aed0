/* umap/layout/layout.inc.h - the kernels of the layout (layout_kernels.h); compiled once per instruction set. The lanes
 * of a vector hold 16 pairs of points. The operations are those of force.h, in the same order. */
#include "core/math/lanes_math.h"
#include "umap/layout/step.inc.h"
#include "umap/layout/layout_kernels.h"

/* The next 16 targets. Lanes beyond `count` get v itself, which has no force on itself. */
NAPIER_KERNEL const uint32_t *napier_lanes_of_targets(const uint32_t *targets, int64_t count, uint32_t v,
                                                      uint32_t *part) {
    if (count >= 16) {
        return targets;
    }
    for (int i = 0; i < 16; i++) {
        part[i] = i < count ? targets[i] : v;
    }
    return part;
}

/* Gaps y_v - y_j and their squared length. Rows of more than two components are loaded whole and transposed. */
NAPIER_KERNEL vf napier_gaps(const float *y, int64_t components, const float *at, const uint32_t *j, vf *gap) {
    vf d2 = vf_zero();
    if (components == 2) {
        vf x0, x1;
        vf_load_pairs(y, j, &x0, &x1);
        gap[0] = vf_sub(vf_set(at[0]), x0);
        gap[1] = vf_sub(vf_set(at[1]), x1);
        d2 = vf_fma(gap[1], gap[1], vf_fma(gap[0], gap[0], d2));
    } else {
        for (int64_t first = 0; first < components; first += 16) {
            const int count = components - first < 16 ? (int)(components - first) : 16;
            vf rows[16];
            NAPIER_UNROLL
            for (int i = 0; i < 16; i++) {
                rows[i] = vf_load_part(y + (int64_t)j[i] * components + first, count, vf_zero());
            }
            vf_transpose(rows);
            for (int d = 0; d < count; d++) {
                gap[first + d] = vf_sub(vf_set(at[first + d]), rows[d]);
                d2 = vf_fma(gap[first + d], gap[first + d], d2);
            }
        }
    }
    return vf_min(d2, vf_set(NAPIER_UMAP_FARTHEST));
}

/* The constants in which the two forces differ: factor = (power * by_power + constant) / ((d2 + epsilon) * (1 + a *
 * power)). */
typedef struct napier_kind {
    vf by_power, constant, epsilon;
} napier_kind;

/* Replaces d2 by the factor of the gap. */
NAPIER_KERNEL void napier_factors(const napier_forces *f, const napier_strip *strips, int64_t count, vf *d2) {
    const vf a = vf_set(f->a), b = vf_set(f->b), one = vf_set(1.0f), nearest = vf_set(NAPIER_UMAP_NEAREST);
    const napier_kind kinds[2] = {{vf_set(f->attraction), vf_zero(), vf_zero()},
                                  {vf_zero(), vf_set(f->repulsion), vf_set(f->epsilon)}};
    for (int64_t s = 0; s < count; s++) {
        const napier_kind *k = &kinds[strips[s].repels];
        const vf power = vf_pow(d2[s], b);
        const vf below = vf_mul(vf_add(d2[s], k->epsilon), vf_fma(a, power, one));
        const vf factor = vf_div(vf_fma(power, k->by_power, k->constant), below);
        d2[s] = vf_keep(vf_ge(d2[s], nearest), factor);
    }
}

NAPIER_KERNEL vf napier_strip_weights(const napier_strip *strip) {
    const vf scale = vf_set(strip->scale);
    if (!strip->weights) {
        return scale;
    }
    return vf_mul(scale,
                  strip->count < 16 ? vf_load_part(strip->weights, strip->count, vf_zero()) : vf_load(strip->weights));
}

/* gap = weight * shortened(clipped(factor * gap)) */
NAPIER_KERNEL void napier_weigh_gaps(const napier_forces *f, vf factor, vf weight, int64_t components, vf *gap) {
    const vf high = vf_set(f->clip), low = vf_sub(vf_zero(), high);
    vf norm2 = vf_zero();
    for (int64_t d = 0; d < components; d++) {
        gap[d] = vf_max(vf_min(vf_mul(factor, gap[d]), high), low);
    }
    if (f->max_norm > 0.0f) {
        for (int64_t d = 0; d < components; d++) {
            norm2 = vf_fma(gap[d], gap[d], norm2);
        }
        const vf shorter = vf_mul(weight, vf_div(vf_set(f->max_norm), vf_sqrt(norm2)));
        weight = vf_select(vf_gt(norm2, vf_set(f->max_norm * f->max_norm)), shorter, weight);
    }
    for (int64_t d = 0; d < components; d++) {
        gap[d] = vf_mul(gap[d], weight);
    }
}

NAPIER_KERNEL void napier_add_forces(const napier_forces *f, vf factor, vf weight, int64_t components, vf *gap,
                                     vf *sum) {
    napier_weigh_gaps(f, factor, weight, components, gap);
    for (int64_t d = 0; d < components; d++) {
        sum[d] = vf_add(sum[d], gap[d]);
    }
}

/* Adds the lanes of each sum to force, and sets the sums to 0. Many components are folded 16 at a time; sums beyond the
 * last are 0. */
NAPIER_KERNEL void napier_fold_force(vf *sum, int64_t components, float *force) {
    if (components == 2) {
        force[0] += vf_hadd(sum[0]);
        force[1] += vf_hadd(sum[1]);
        sum[0] = sum[1] = vf_zero();
        return;
    }
    for (int64_t first = 0; first < components; first += 16) {
        const int count = components - first < 16 ? (int)(components - first) : 16;
        const vf old = vf_load_part(force + first, count, vf_zero());
        vf_store_part(force + first, count, vf_add(old, vf_hadd16(sum + first)));
        for (int d = 0; d < count; d++) {
            sum[first + d] = vf_zero();
        }
    }
}

NAPIER_KERNEL void napier_strips_as(const napier_forces *f, const float *y, int64_t components,
                                    const napier_strip *strips, int64_t count, float *open) {
    vf gaps[NAPIER_MOST_COMPONENTS], d2[NAPIER_MOST_STRIPS], sum[(NAPIER_MOST_COMPONENTS + 15) / 16 * 16];
    for (int64_t s = 0; s < count; s++) {
        uint32_t part[16];
        const napier_strip *strip = &strips[s];
        const uint32_t *j = napier_lanes_of_targets(strip->targets, strip->count, strip->v, part);
        d2[s] = napier_gaps(y, components, y + (int64_t)strip->v * components, j, gaps + s * components);
    }
    napier_factors(f, strips, count, d2);
    for (int64_t d = 0; d < (components + 15) / 16 * 16; d++) {
        sum[d] = d < components ? vf_load(open + 16 * d) : vf_zero();
    }
    for (int64_t s = 0; s < count; s++) {
        napier_add_forces(f, d2[s], napier_strip_weights(&strips[s]), components, gaps + s * components, sum);
        if (strips[s].force) {
            napier_fold_force(sum, components, strips[s].force);
        }
    }
    for (int64_t d = 0; d < components; d++) {
        vf_store(open + 16 * d, sum[d]);
    }
}

/* The number of components is a compile-time constant if it is 2, the most common case. */
static void napier_strips(const napier_forces *f, const float *y, int64_t components, const napier_strip *strips,
                          int64_t count, float *sum) {
    if (components == 2) {
        napier_strips_as(f, y, 2, strips, count, sum);
    } else {
        napier_strips_as(f, y, components, strips, count, sum);
    }
}

/* ---- Groups of vertices, two components --------------------------------------------------------------------------- */

/* The pairs of a group: their gaps, then their forces; and squared distances. Vectors may end beyond the last pair. */
typedef struct napier_pairs {
    float gap[2][NAPIER_GROUP_PAIRS + 32];
    float d2[NAPIER_GROUP_PAIRS + 32];
} napier_pairs;

/* Gaps of the 16 pairs from `at`, of which gap holds the first points and `targets` the second ones. */
NAPIER_KERNEL void napier_pair_gaps(const float *y, napier_pairs *p, int64_t at, const uint32_t *targets) {
    vf x0, x1;
    vf_load_pairs(y, targets, &x0, &x1);
    const vf gap0 = vf_sub(vf_load(p->gap[0] + at), x0), gap1 = vf_sub(vf_load(p->gap[1] + at), x1);
    const vf d2 = vf_fma(gap1, gap1, vf_fma(gap0, gap0, vf_zero()));
    vf_store(p->gap[0] + at, gap0);
    vf_store(p->gap[1] + at, gap1);
    vf_store(p->d2 + at, vf_min(d2, vf_set(NAPIER_UMAP_FARTHEST)));
}

/* Replaces the gaps of the 16 pairs from `at` by forces. */
NAPIER_KERNEL void napier_pair_forces(const napier_forces *f, napier_pairs *p, int64_t at, bool repels, vf weight) {
    const vf d2 = vf_load(p->d2 + at), power = vf_pow(d2, vf_set(f->b));
    const vf below = vf_fma(vf_set(f->a), power, vf_set(1.0f));
    const vf factor = repels ? vf_div(vf_set(f->repulsion), vf_mul(vf_add(d2, vf_set(f->epsilon)), below))
                             : vf_div(vf_mul(vf_set(f->attraction), power), vf_mul(d2, below));
    vf gap[2] = {vf_load(p->gap[0] + at), vf_load(p->gap[1] + at)};
    napier_weigh_gaps(f, vf_keep(vf_ge(d2, vf_set(NAPIER_UMAP_NEAREST)), factor), weight, 2, gap);
    vf_store(p->gap[0] + at, gap[0]);
    vf_store(p->gap[1] + at, gap[1]);
}

/* Adds the sums of the forces of vertex i, which are those from `at`, to sums 2 i and 2 i + 1. Most vertices have 17 to
 * 32 edges, so two vectors are added without asking. An empty one changes nothing: no sum is -0. */
NAPIER_KERNEL void napier_sum_pairs(const napier_pairs *p, int64_t at, int64_t count, vf *sum) {
    for (int d = 0; d < 2; d++) {
        const float *gap = p->gap[d] + at;
        const int64_t rest = count > 16 ? count - 16 : 0;
        sum[d] = vf_add(vf_zero(), vf_load_part(gap, count < 16 ? (int)count : 16, vf_zero()));
        sum[d] = vf_add(sum[d], vf_load_part(gap + 16, rest < 16 ? (int)rest : 16, vf_zero()));
        for (int64_t e = 32; e < count; e += 16) {
            const int64_t left = count - e;
            sum[d] = vf_add(sum[d], vf_load_part(gap + e, left < 16 ? (int)left : 16, vf_zero()));
        }
    }
}

NAPIER_KERNEL void napier_add_sums(const napier_group *group, const vf *sums, float *forces) {
    float *own = forces + 2 * group->first;
    const int lanes = 2 * (int)group->count;
    vf_store_part(own, lanes, vf_add(vf_load_part(own, lanes, vf_zero()), vf_hadd16(sums)));
}

/* Sets the first points of `count` pairs from `at`, and of a few more, to point v. */
NAPIER_KERNEL void napier_spread_point(const float *y, int64_t v, napier_pairs *p, int64_t at, int64_t count) {
    const vf x0 = vf_set(y[2 * v]), x1 = vf_set(y[2 * v + 1]);
    for (int64_t e = 0; e < 32 || e < count; e += 16) { /* seldom more than twice */
        vf_store(p->gap[0] + at + e, x0);
        vf_store(p->gap[1] + at + e, x1);
    }
}

/* Reads ahead; p + bytes may lie beyond the end of an array. */
NAPIER_KERNEL void napier_fetch(const void *p, uintptr_t bytes) {
    __builtin_prefetch((const void *)((uintptr_t)p + bytes));
}

/* The processor does not read edges ahead by itself early enough: their 8 bytes are read once in an epoch. Targets are
 * fetched two or three groups ahead, weights when their points are looked up. */
static void napier_group_attracts(const napier_forces *f, const float *y, const napier_group *group,
                                  const int64_t *starts, const uint32_t *targets, const float *weights, float scale,
                                  float *forces) {
    napier_pairs p;
    vf sums[16];
    const int64_t *own = starts + group->first;
    const int64_t begin = own[0], count = own[group->count] - begin;
    for (int64_t i = 0; i < group->count; i++) {
        napier_spread_point(y, group->first + i, &p, own[i] - begin, own[i + 1] - own[i]);
    }
    for (int64_t e = 0; e < count; e += 16) {
        uint32_t part[16];
        const uint32_t last = (uint32_t)(group->first + group->count - 1);
        napier_fetch(weights + begin + e, 0);
        napier_fetch(targets + begin + e, 2048);
        napier_pair_gaps(y, &p, e, napier_lanes_of_targets(targets + begin + e, count - e, last, part));
    }
    for (int64_t e = 0; e < count; e += 16) {
        const vf weight = vf_load_part(weights + begin + e, count - e < 16 ? (int)(count - e) : 16, vf_zero());
        napier_pair_forces(f, &p, e, false, vf_mul(vf_set(scale), weight));
    }
    for (int i = 0; i < NAPIER_GROUP_VERTICES; i++) {
        sums[2 * i] = sums[2 * i + 1] = vf_zero();
        if (i < group->count) {
            napier_sum_pairs(&p, own[i] - begin, own[i + 1] - own[i], sums + 2 * i);
        }
    }
    napier_add_sums(group, sums, forces);
}

static void napier_group_repels(const napier_forces *f, const float *y, const napier_group *group, float *forces) {
    napier_pairs p;
    vf sums[16];
    for (int64_t i = 0, at = 0; i < group->count; at += group->samples[i], i++) {
        napier_spread_point(y, group->first + i, &p, at, group->samples[i]);
        for (int64_t s = at; s < at + group->samples[i]; s += 16) {
            napier_pair_gaps(y, &p, s, group->targets + s);
        }
    }
    for (int64_t i = 0, at = 0; i < group->count; at += group->samples[i], i++) {
        for (int64_t s = at; s < at + group->samples[i]; s += 16) {
            napier_pair_forces(f, &p, s, true, vf_set(group->weights[i]));
        }
    }
    for (int64_t i = 0, at = 0; i < NAPIER_GROUP_VERTICES; i++) {
        sums[2 * i] = sums[2 * i + 1] = vf_zero();
        if (i < group->count) {
            napier_sum_pairs(&p, at, group->samples[i], sums + 2 * i);
            at += group->samples[i];
        }
    }
    napier_add_sums(group, sums, forces);
}

/* ---- Draws and sums ------------------------------------------------------------------------------------------------ */

static void napier_draw(uint32_t key, uint32_t v, uint32_t n, int64_t begin, int64_t count, uint32_t *targets) {
    int32_t counting[16];
    for (int i = 0; i < 16; i++) {
        counting[i] = i;
    }
    const vi lanes = vi_load(counting), bound = vi_set((int32_t)n), hi = vi_set((int32_t)v);
    for (int64_t s = 0; s < count; s += 32) {
        vi word[2];
        vi_philox(key, hi, vi_add(lanes, vi_set((int32_t)((begin + s) / 2))), word);
        vi_store((int32_t *)targets + s, vi_mulhi(word[0], bound));
        vi_store((int32_t *)targets + s + 16, vi_mulhi(word[1], bound));
    }
}

static void napier_add_rows(const float *rows, int64_t count, int64_t components, float *sum) {
    for (int64_t d = 0; d < components; d++) {
        vf lanes = vf_zero();
        for (int64_t e = 0; e < count; e += 16) {
            float column[16];
            for (int64_t i = 0; i < 16; i++) {
                column[i] = e + i < count ? rows[(e + i) * components + d] : 0.0f;
            }
            lanes = vf_add(lanes, vf_load(column));
        }
        sum[d] += vf_hadd(lanes);
    }
}

/* ---- Optimizers, elementwise ------------------------------------------------------------------------------------- */

NAPIER_KERNEL vf napier_part(const float *p, int64_t left) {
    return left < 16 ? vf_load_part(p, (int)left, vf_zero()) : vf_load(p);
}
NAPIER_KERNEL void napier_store_up_to(float *p, int64_t left, vf v) {
    if (left < 16) {
        vf_store_part(p, (int)left, v);
    } else {
        vf_store(p, v);
    }
}

static void napier_sgd(float *y, const float *g, float rate, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i;
        napier_store_up_to(y + i, left,
                           napier_sgd_step(napier_part(y + i, left), napier_part(g + i, left), vf_set(rate)));
    }
}

static void napier_momentum(float *y, const float *g, float *velocity, float beta, float rate, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i;
        vf v = napier_part(velocity + i, left);
        const vf next =
            napier_momentum_step(napier_part(y + i, left), napier_part(g + i, left), &v, beta, vf_set(rate));
        napier_store_up_to(velocity + i, left, v);
        napier_store_up_to(y + i, left, next);
    }
}

static void napier_adam(float *y, const float *g, float *m, float *v, float beta1, float beta2, float eps,
                        float correction1, float correction2, float rate, int64_t n) {
    const napier_adam_constants constants = {beta1, beta2, eps, correction1, correction2, rate};
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i;
        vf mean = napier_part(m + i, left), square = napier_part(v + i, left);
        const vf next =
            napier_adam_step(napier_part(y + i, left), napier_part(g + i, left), &mean, &square, &constants);
        napier_store_up_to(m + i, left, mean);
        napier_store_up_to(v + i, left, square);
        napier_store_up_to(y + i, left, next);
    }
}

#define NAPIER_LAYOUT_KERNELS                                                                                  \
    {                                                                                                          \
        .group_attracts = napier_group_attracts, .group_repels = napier_group_repels, .strips = napier_strips, \
        .draw = napier_draw, .add_rows = napier_add_rows, .sgd = napier_sgd, .momentum = napier_momentum,      \
        .adam = napier_adam                                                                                    \
    }
