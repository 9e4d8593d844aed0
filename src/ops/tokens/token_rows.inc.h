/* ops/tokens/token_rows.inc.h - rows of logits in memory: long ones tile by tile, short ones in groups. Compiled once
 * per instruction set.
 *
 * The first pass over a tile (the look: maximum, minimum, NaN) runs two tiles ahead of its sum, inside the loop that
 * sums another tile, as in ops/softmax/long_rows.inc.h. So the exponentials hide the latency of memory.
 *
 * Most of the time goes to vector operations, so an ordinary tile uses few. Its 256 lanes are eight pairs of vectors.
 * The look keeps the maximum of each pair. Only a pair that holds the tile's maximum must separate its maxima from the
 * other elements, and such a pair is processed last, so that no branch depends on the data. The look at bf16 compares
 * the stored bits, 32 to a vector. As integers, those from +0 up are in order, and the negative ones are in reverse
 * order: above the others if unsigned, below them if signed. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_ROWS_INC_H
#define NAPIER_OPS_TOKENS_TOKEN_ROWS_INC_H

#include "ops/softmax/lanes.inc.h"
#include "ops/softmax/long_rows.inc.h"
#include "ops/tokens/token_tile.inc.h"

enum { NAPIER_TOKEN_PAIRS = 8, NAPIER_TOKEN_PAIR = NAPIER_TILE_LANES / NAPIER_TOKEN_PAIRS };

/* The results for which an ordinary tile is summed; a constant in each loop. */
typedef struct napier_token_kind {
    napier_dtype dtype; /* f32 or bf16 */
    bool entropy;
    bool below_zero; /* bf16: true if all elements are expected to be negative */
    bool terms;      /* are kept */
} napier_token_kind;

/* The result of a look: vectors of floats for f32, or of 32 bf16. */
typedef struct napier_token_bounds {
    vi maxima[NAPIER_TOKEN_PAIRS];
    vi least; /* for bf16 the unsigned maximum: the lowest of the negative elements, if there are any */
    vf sum;   /* NaN if an element is NaN; unused for bf16, and where the entropy will show a NaN */
} napier_token_bounds;

/* A tile between its look and its sum. */
typedef struct napier_token_ahead {
    int n;
    float max, least; /* least: no more than the smallest element */
    bool fused;       /* the look was in the loop that summed another tile, so the bounds are valid; else `looked` has
                         the result */
    bool ordinary;    /* full, within the cutoff, and its maximum not big; without NaN, unless the entropy will show
                         it */
    unsigned holders; /* one bit for each pair that holds a maximum */
    napier_token_bounds bounds;
    napier_looked looked;
} napier_token_ahead;

enum {
    NAPIER_TOKEN_SLOTS = 4,         /* tiles between look and sum; must be a power of two */
    NAPIER_TOKEN_FETCH_BYTES = 4096 /* prefetch distance of a look; 1 to 12 KiB take about as long */
};

/* Columns [begin, end) of a row while its tiles are processed. */
typedef struct napier_token_run {
    const napier_token_job *job;
    const napier_token_slots *slots;
    napier_token_seen *seen;
    int64_t row, begin, end, count;
    bool plain;      /* the logits are contiguous f32 or bf16 and equal to z */
    bool below_zero; /* all elements of the first tile are negative */
    bool inside;     /* some wanted results may depend on single elements */
    napier_token_ahead ahead[NAPIER_TOKEN_SLOTS];
    float *room; /* memory for tiles: one for each tile between look and sum, and one more */
} napier_token_run;

static int64_t napier_token_column(const napier_token_run *run, int64_t p) { return run->begin + p * NAPIER_TILE; }

static const char *napier_token_tile_x(const napier_token_run *run, int64_t p) {
    const napier_const_matrix *x = &run->job->x;
    return napier_at(x->data, x->dtype, run->row * x->row_stride + napier_token_column(run, p) * x->col_stride);
}

static napier_token_ahead *napier_token_ahead_of(napier_token_run *run, int64_t p) {
    return &run->ahead[(uint64_t)p % NAPIER_TOKEN_SLOTS];
}

static float *napier_token_room(const napier_token_run *run, int64_t slot) {
    return run->room + slot * (NAPIER_TILE + 16);
}

/* The look at a single tile, whose z goes to `slot`. */
static napier_looked napier_token_look_at(const napier_token_run *run, int64_t p, int64_t slot) {
    const int64_t column = napier_token_column(run, p);
    return napier_token_look(run->job, run->row, column, napier_tile_at(column, run->end),
                             napier_token_room(run, slot));
}

static bool napier_token_clean(float max, float min) { return fabsf(max) <= NAPIER_BIG && min >= max - NAPIER_CUTOFF; }

static void napier_token_look_ahead(napier_token_run *run, int64_t p) {
    if (p < run->count) {
        const int n = napier_tile_at(napier_token_column(run, p), run->end);
        napier_token_ahead *t = napier_token_ahead_of(run, p);
        t->looked = napier_token_look_at(run, p, p % NAPIER_AHEAD_SLOTS);
        t->n = n;
        t->max = vf_hmax(t->looked.range.max);
        const float min = -vf_hmax(vf_sub(vf_zero(), t->looked.range.min));
        t->least = min;
        t->ordinary = n == NAPIER_TILE && napier_token_clean(t->max, min) && !vm_any(napier_range_nan(t->looked.range));
        t->fused = false;
    }
}

/* ---- The sum of an ordinary tile and the look at another --------------------------------------------------------- */

NAPIER_KERNEL void napier_token_bounds_start(const napier_token_kind k, napier_token_bounds *b) {
    const int32_t lowest = k.dtype == NAPIER_F32 ? (int32_t)0xff800000u : k.below_zero ? -1 : (int32_t)0x80008000u;
    NAPIER_UNROLL
    for (int i = 0; i < NAPIER_TOKEN_PAIRS; i++) {
        b->maxima[i] = vi_set(lowest);
    }
    b->least = vi_set(k.dtype == NAPIER_F32 ? 0x7f800000 : 0);
    b->sum = vf_zero();
}

NAPIER_KERNEL vi napier_token_higher(const napier_token_kind k, vi a, vi b) {
    return k.dtype == NAPIER_F32 ? vf_bits(vf_max(vf_from_bits(a), vf_from_bits(b)))
           : k.below_zero        ? vi_min_u16(a, b)
                                 : vi_max_i16(a, b);
}

/* The look at elements 128 part .. 128 part + 127 of a full tile: a part of each of four pairs. */
NAPIER_KERNEL void napier_token_look_part(const napier_token_kind k, const char *x, int part, vi *maxima, vi *least,
                                          vf *sum) {
    maxima += part % 2 * 4;
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        const char *from = napier_at(x, k.dtype, 128 * part + NAPIER_TOKEN_PAIR * i);
        if (k.dtype == NAPIER_F32) {
            const float *floats = (const float *)(const void *)from;
            const vf u = vf_load(floats), v = vf_load(floats + 16);
            maxima[i] = napier_token_higher(k, vf_bits(vf_max(u, v)), maxima[i]);
            *least = vf_bits(vf_min(vf_min(u, v), vf_from_bits(*least)));
            if (!k.entropy) {
                *sum = vf_add(*sum, vf_add(u, v));
            }
        } else {
            const vi pairs = vi_load((const int32_t *)(const void *)from);
            maxima[i] = napier_token_higher(k, pairs, maxima[i]);
            *least = vi_max_u16(pairs, *least);
        }
    }
}

/* The even and the odd elements of 32 bf16. A shift and a mask widen them in place. */
NAPIER_KERNEL vf napier_token_even(vi pairs) { return vf_from_bits(vi_shl(pairs, 16)); }
NAPIER_KERNEL vf napier_token_odd(vi pairs) { return vf_from_bits(vi_and(pairs, vi_set((int32_t)0xffff0000u))); }

/* The maximum of all pairs, in all lanes. */
NAPIER_KERNEL vi napier_token_highest(const napier_token_kind k, const vi *maxima) {
    vi four[4];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        four[i] = napier_token_higher(k, maxima[i], maxima[i + 4]);
    }
    return napier_token_higher(k, napier_token_higher(k, four[0], four[1]), napier_token_higher(k, four[2], four[3]));
}

/* Records the result of the look at a full tile. */
NAPIER_KERNEL void napier_token_found(napier_token_ahead *t, float max, float min, bool nan) {
    t->n = NAPIER_TILE;
    t->max = max;
    t->least = min;
    t->fused = true;
    t->ordinary = !nan && napier_token_clean(max, min);
}

NAPIER_KERNEL void napier_token_found_f32(const napier_token_kind k, napier_token_ahead *t) {
    const napier_token_bounds *b = &t->bounds;
    const float max = vf_hmax(vf_from_bits(napier_token_highest(k, b->maxima)));
    const float min = -vf_hmax(vf_sub(vf_zero(), vf_from_bits(b->least)));
    napier_token_found(t, max, min, !k.entropy && vm_any(vf_unordered(b->sum, b->sum)));
}

/* Returns false if the elements are not negative as expected (or the reverse). The bounds are then invalid. */
NAPIER_KERNEL bool napier_token_found_bf16(const napier_token_kind k, napier_token_ahead *t) {
    const vi highest = napier_token_highest(k, t->bounds.maxima);
    const vf high = napier_token_even(highest), high_odd = napier_token_odd(highest);
    const vf low = napier_token_even(t->bounds.least), low_odd = napier_token_odd(t->bounds.least);
    const float max = vf_hmax(vf_max(high, high_odd)), min = -vf_hmax(vf_sub(vf_zero(), vf_min(low, low_odd)));
    /* As integers, NaNs lie beyond all other values of their sign. If no element is negative, `least` holds the largest
     * element, not the least. -0 equals the maximum +0 as a float, but not as an integer. */
    const bool nan = vm_any(vm_or(vf_unordered(high, high_odd), vf_unordered(low, low_odd)));
    napier_token_found(t, max, min < 0.0f ? min : 0.0f, nan || max == 0.0f);
    return nan || (signbit(max) != 0) == k.below_zero;
}

/* Repeats the look at a full tile of bf16 whose signs were not as expected. */
static void napier_token_look_again(const char *x, bool below_zero, napier_token_ahead *t) {
    const napier_token_kind k = {NAPIER_BF16, true, below_zero, false};
    napier_token_bounds *b = &t->bounds;
    napier_token_bounds_start(k, b);
    for (int part = 0; part < NAPIER_TOKEN_PAIRS; part++) {
        napier_token_look_part(k, x, part, b->maxima, &b->least, &b->sum);
    }
    napier_token_found_bf16(k, t);
}

/* Finds the pairs of a tile that hold a maximum. Without valid bounds, any pair may. */
NAPIER_KERNEL void napier_token_find_holders(const napier_token_kind k, napier_token_ahead *t) {
    const vi bf16 = vi_set((int32_t)((napier_float_bits(t->max) >> 16) * 0x10001u));
    unsigned holders = 0;
    NAPIER_UNROLL
    for (unsigned i = 0; i < NAPIER_TOKEN_PAIRS; i++) {
        const vi max = t->bounds.maxima[i];
        const bool holds =
            k.dtype == NAPIER_F32 ? vm_any(vf_ge(vf_from_bits(max), vf_set(t->max))) : vi_any_eq16(max, bf16);
        holders |= (unsigned)holds << i;
    }
    t->holders = t->fused ? holders : (1u << NAPIER_TOKEN_PAIRS) - 1;
}

/* The sums of an ordinary tile in progress: vectors 2 i and 2 i + 1 belong to pair i. */
typedef struct napier_token_lane_sums {
    vf rest[2 * NAPIER_TOKEN_PAIRS], spread[2 * NAPIER_TOKEN_PAIRS];
    int maxima;
} napier_token_lane_sums;

/* Adds one of the vectors of a pair: four elements per lane. */
NAPIER_KERNEL void napier_token_add4(const napier_token_kind k, const napier_adder *a, bool holder, const vf *z,
                                     const vf *term, int lane, napier_token_lane_sums *sums) {
    vf rest = vf_zero(), spread = vf_zero();
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        if (holder) {
            const vm lower = vf_lt(z[i], a->max);
            sums->maxima += 16 - vm_count(lower);
            rest = vf_add_where(lower, rest, term[i]);
        } else {
            rest = i == 0 ? term[0] : vf_add(rest, term[i]);
        }
        if (k.entropy) {
            const vf down = vf_sub(a->max, z[i]);
            spread = i == 0 ? vf_mul(term[0], down) : vf_fma(term[i], down, spread);
        }
    }
    sums->rest[lane] = rest;
    sums->spread[lane] = spread;
}

/* Prefetches half of the cache lines of a part that a later look will read. All at once would need more buffers than a
 * core has. */
NAPIER_KERNEL void napier_token_fetch(const napier_token_kind k, const char *part, int half) {
    const int lines = k.dtype == NAPIER_F32 ? 4 : 2;
    NAPIER_UNROLL
    for (int i = 0; i < lines; i++) {
        __builtin_prefetch(part + NAPIER_TOKEN_FETCH_BYTES + 64 * (lines * half + i));
    }
}

/* look: the part to look at while this pair is added. terms: room for those of the tile, if they are kept. */
NAPIER_KERNEL void napier_token_add_pair(const napier_token_kind k, const napier_adder *a, bool holder, const char *x,
                                         int pair, const char *look, float *terms, napier_token_lane_sums *sums) {
    vf z[8], term[8];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        const char *from = napier_at(x, k.dtype, NAPIER_TOKEN_PAIR * pair + NAPIER_TILE_LANES * i);
        if (k.dtype == NAPIER_F32) {
            z[i] = vf_load((const float *)(const void *)from);
            z[i + 4] = vf_load((const float *)(const void *)from + 16);
        } else {
            const vi pairs = vi_load((const int32_t *)(const void *)from);
            z[i] = napier_token_even(pairs);
            z[i + 4] = napier_token_odd(pairs);
        }
    }
    NAPIER_UNROLL
    for (int i = 0; i < 8; i += SIMD_CHAINS) {
        vf_exp_scaled_side_by_side(SIMD_CHAINS, z + i, a->magic, term + i);
    }
    if (k.terms) {
        float *to = terms + NAPIER_TOKEN_PAIR * pair;
        NAPIER_UNROLL
        for (int i = 0; i < 4; i++, to += NAPIER_TILE_LANES) {
            vf_store(to, term[i]);
            vf_store(to + 16, term[i + 4]);
        }
    }
    napier_token_fetch(k, look, 0);
    napier_token_add4(k, a, holder, z, term, 2 * pair, sums);
    napier_token_fetch(k, look, 1);
    napier_token_add4(k, a, holder, z + 4, term + 4, 2 * pair + 1, sums);
}

/* Sums an ordinary tile at x, finds the holders of the next tile, and looks at the one after that, which must be
 * full. */
NAPIER_KERNEL void napier_token_two_tiles(const napier_token_kind k, const char *x, const napier_token_ahead *t,
                                          napier_token_ahead *next, napier_token_ahead *last, float *terms,
                                          napier_token_lane_sums *sums) {
    const char *look = napier_at(x, k.dtype, NAPIER_AHEAD * NAPIER_TILE);
    const napier_adder a = napier_adder_of(t->max, napier_term_magic(napier_exp_parts_small(t->max).n));
    vi *maxima = last->bounds.maxima, least; /* least and sum stay in registers */
    vf sum;
    int part = 0;
    napier_token_bounds_start(k, &last->bounds);
    least = last->bounds.least;
    sum = last->bounds.sum;
    sums->maxima = 0;
    for (unsigned left = ~t->holders & ((1u << NAPIER_TOKEN_PAIRS) - 1); left > 0; left &= left - 1) {
        napier_token_look_part(k, look, part, maxima, &least, &sum);
        napier_token_add_pair(k, &a, false, x, __builtin_ctz(left), napier_at(look, k.dtype, 128 * part++), terms,
                              sums);
    }
    napier_token_find_holders(k, next);
    for (unsigned left = t->holders; left > 0; left &= left - 1) {
        napier_token_look_part(k, look, part, maxima, &least, &sum);
        napier_token_add_pair(k, &a, true, x, __builtin_ctz(left), napier_at(look, k.dtype, 128 * part++), terms, sums);
    }
    last->bounds.least = least;
    last->bounds.sum = sum;
    if (k.dtype == NAPIER_F32) {
        napier_token_found_f32(k, last);
    } else if (!napier_token_found_bf16(k, last)) {
        napier_token_look_again(look, !k.below_zero, last);
    }
}

/* ---- One tile after another -------------------------------------------------------------------------------------- */

/* Tiles whose lanes are folded to vectors but not yet to numbers. The last folds cost less for 16 vectors at a time. */
typedef struct napier_token_folded {
    vf v[16];
    int64_t first; /* index of the first tile in the row */
    int count;
} napier_token_folded;

/* The number of vectors per tile: its rest and then its spread; for bf16 two halves of each. */
NAPIER_KERNEL int napier_token_per_tile(const napier_token_kind k) {
    return (k.dtype == NAPIER_F32 ? 1 : 2) * (k.entropy ? 2 : 1);
}

/* Folds 256 lanes to 16. For bf16, lanes 2 i and 2 i + 1 are in two vectors: folding 256 to 32 is the same, after which
 * the even and the odd lanes fold separately, and their sum is the last step. Returns the number of vectors left. */
NAPIER_KERNEL int napier_token_fold_lanes(const napier_token_kind k, const vf *lane, vf *folded) {
    vf eight[8], four[4];
    NAPIER_UNROLL
    for (int v = 0; v < 8; v++) {
        eight[v] = vf_add(lane[v], lane[v + 8]);
    }
    NAPIER_UNROLL
    for (int v = 0; v < 4; v++) {
        four[v] = vf_add(eight[v], eight[v + 4]);
    }
    folded[0] = vf_add(four[0], four[2]);
    const vf second = vf_add(four[1], four[3]);
    if (k.dtype == NAPIER_F32) {
        folded[0] = vf_add(folded[0], second);
        return 1;
    }
    folded[1] = second;
    return 2;
}

/* Reduces a single tile with any elements. */
static void napier_token_tile_alone(const napier_token_run *run, int64_t p, const napier_looked *looked, int n) {
    const int64_t column = napier_token_column(run, p);
    const uint8_t *keep = napier_token_keep(&run->job->rules, run->row, column);
    const napier_token_parts parts = napier_token_parts_of(looked, n, run->job->wants.entropy);
    napier_token_tile_done(&run->job->wants, looked->z, keep, n, column / NAPIER_TILE, &parts, run->slots, run->seen);
}

/* Writes the sums to the slots of the tiles. If the look left NaNs to the entropy, this finds them. Then the slot's
 * maximum is NaN, and the row's `seen` is not used. */
static void napier_token_flush(const napier_token_kind k, napier_token_run *run, napier_token_folded *f) {
    float sums[16];
    vf_store(sums, vf_hadd16(f->v));
    for (int i = 0; i < f->count; i++) {
        const float *s = sums + i * napier_token_per_tile(k);
        const int64_t tile = f->first + i;
        const bool halves = k.dtype != NAPIER_F32;
        run->slots->rest[tile] = halves ? s[0] + s[1] : s[0];
        run->slots->spread[tile] = !k.entropy ? 0.0f : halves ? s[2] + s[3] : s[1];
        if (run->slots->spread[tile] != run->slots->spread[tile]) {
            run->slots->max[tile] = run->slots->spread[tile];
        }
    }
    f->first += f->count;
    f->count = 0;
}

/* True if a wanted result of a tile with this maximum depends on its single elements. */
static bool napier_token_looks_inside(const napier_token_wants *wants, const napier_token_seen *seen, float max) {
    bool inside = wants->total || (wants->argmax && max >= seen->max) ||
                  (wants->top_k > 0 && (seen->top_count < wants->top_k || max >= seen->top[0].z));
    for (int64_t i = 0; i < wants->ranks && !inside; i++) {
        inside = max >= seen->chosen[i];
    }
    return inside;
}

static void napier_token_inside(napier_token_run *run, int64_t p, float max) {
    if (!napier_token_looks_inside(&run->job->wants, run->seen, max)) {
        return;
    }
    const int64_t column = napier_token_column(run, p);
    const char *x = napier_token_tile_x(run, p);
    const float *z = (const float *)(const void *)x;
    if (run->job->x.dtype != NAPIER_F32) {
        float *room = napier_token_room(run, NAPIER_AHEAD_SLOTS);
        for (int i = 0; i < NAPIER_TILE; i += 16) {
            vf_store(room + i, napier_load16(napier_at(x, NAPIER_BF16, i), NAPIER_BF16));
        }
        z = room;
    }
    if (run->job->wants.total) {
        run->slots->total[column / NAPIER_TILE] = napier_token_total(z, NULL, NAPIER_TILE);
    }
    napier_token_see(&run->job->wants, z, NAPIER_TILE, column, max, run->seen);
}

/* Sums tile p and the following ones while they are of this kind. Returns the first that is not. */
NAPIER_KERNEL int64_t napier_token_stretch_of(const napier_token_kind k, napier_token_run *run, int64_t p) {
    napier_token_lane_sums sums;
    napier_token_folded f = {.first = napier_token_column(run, p) / NAPIER_TILE};
    for (int i = 0; i < 16; i++) {
        f.v[i] = vf_zero();
    }
    const char *x = napier_token_tile_x(run, p);
    napier_token_find_holders(k, napier_token_ahead_of(run, p));
    for (; napier_token_column(run, p + NAPIER_AHEAD) + NAPIER_TILE <= run->end; p++) {
        const napier_token_ahead *t = napier_token_ahead_of(run, p);
        if (!t->ordinary) {
            break;
        }
        const float max = t->max;
        const int64_t tile = f.first + f.count;
        float *terms = k.terms ? run->slots->terms + tile * NAPIER_TILE : NULL;
        if (k.terms) {
            run->slots->least[tile] = t->least;
        }
        napier_token_two_tiles(k, x, t, napier_token_ahead_of(run, p + 1), napier_token_ahead_of(run, p + NAPIER_AHEAD),
                               terms, &sums);
        vf *folded = f.v + f.count * napier_token_per_tile(k);
        folded += napier_token_fold_lanes(k, sums.rest, folded);
        if (k.entropy) {
            napier_token_fold_lanes(k, sums.spread, folded);
        }
        run->slots->max[tile] = max;
        run->slots->count[tile] = (float)sums.maxima;
        if (run->inside) {
            napier_token_inside(run, p, max);
        }
        if (++f.count == 16 / napier_token_per_tile(k)) {
            napier_token_flush(k, run, &f);
        }
        x = napier_at(x, k.dtype, NAPIER_TILE);
    }
    napier_token_flush(k, run, &f);
    return p;
}

#define NAPIER_TOKEN_STRETCH_OF(dtype_, entropy_, below_zero_)                                                     \
    (run->slots->terms ? napier_token_stretch_of((napier_token_kind){dtype_, entropy_, below_zero_, true}, run, p) \
                       : napier_token_stretch_of((napier_token_kind){dtype_, entropy_, below_zero_, false}, run, p))
#define NAPIER_TOKEN_STRETCH(dtype_, below_zero_)                                 \
    (run->job->wants.entropy ? NAPIER_TOKEN_STRETCH_OF(dtype_, true, below_zero_) \
                             : NAPIER_TOKEN_STRETCH_OF(dtype_, false, below_zero_))

static int64_t napier_token_stretch(napier_token_run *run, int64_t p) {
    if (!run->plain) {
        return p;
    }
    if (run->job->x.dtype == NAPIER_F32) {
        return NAPIER_TOKEN_STRETCH(NAPIER_F32, false);
    }
    return run->below_zero ? NAPIER_TOKEN_STRETCH(NAPIER_BF16, true) : NAPIER_TOKEN_STRETCH(NAPIER_BF16, false);
}

static void napier_token_range(const napier_token_job *job, int64_t row, int64_t begin, int64_t end,
                               const napier_token_slots *slots, napier_token_seen *seen, float *scratch) {
    napier_token_run run = {.job = job, .slots = slots, .seen = seen, .row = row, .begin = begin, .end = end};
    const napier_token_wants *wants = &job->wants;
    run.inside = wants->total || wants->argmax || wants->top_k > 0 || wants->ranks > 0;
    run.room = scratch;
    run.count = napier_token_tiles(end - begin);
    run.plain = job->x.col_stride == 1 && job->x.dtype != NAPIER_F16 && job->rules.temperature == 1.0f &&
                job->rules.softcap == 0.0f && !job->rules.keep;
    for (int64_t p = 0; p < NAPIER_AHEAD; p++) {
        napier_token_look_ahead(&run, p);
    }
    run.below_zero = run.count > 0 && run.ahead[0].max < 0.0f;
    for (int64_t p = 0; slots->terms && p < run.count; p++) {
        slots->least[napier_token_column(&run, p) / NAPIER_TILE] = napier_nan();
    }
    for (int64_t p = napier_token_stretch(&run, 0); p < run.count; p = napier_token_stretch(&run, p + 1)) {
        const napier_token_ahead *t = napier_token_ahead_of(&run, p);
        const napier_looked looked = t->fused ? napier_token_look_at(&run, p, NAPIER_AHEAD_SLOTS) : t->looked;
        napier_token_tile_alone(&run, p, &looked, t->n);
        napier_token_look_ahead(&run, p + NAPIER_AHEAD);
    }
}

/* ---- Short rows: a group, one row per lane, is finished at once -------------------------------------------------- */

typedef struct napier_token_group {
    napier_looked looked[NAPIER_GROUP];
    vf maxima[NAPIER_GROUP], minima[NAPIER_GROUP]; /* minima with the sign changed */
    vf rest[NAPIER_GROUP], below[NAPIER_GROUP], spread[NAPIER_GROUP];
    float max[NAPIER_GROUP], reach[NAPIER_GROUP], magic[NAPIER_GROUP];
    vf max_lanes, p_lanes;
} napier_token_group;

static void napier_token_group_look(const napier_token_job *job, int64_t row, int rows, napier_token_group *g,
                                    float *scratch) {
    const int n = (int)job->x.cols, room = (n + 31) / 16 * 16;
    for (int r = 0; r < rows; r++) {
        g->looked[r] = napier_token_look(job, row + r, 0, n, scratch + r * room);
        g->maxima[r] = g->looked[r].range.max;
        g->minima[r] = vf_sub(vf_zero(), g->looked[r].range.min);
    }
    for (int r = rows; r < NAPIER_GROUP; r++) {
        g->maxima[r] = g->minima[r] = g->rest[r] = g->below[r] = g->spread[r] = vf_zero();
    }
    const vf found = vf_hmax16(g->maxima), least = vf_sub(vf_zero(), vf_hmax16(g->minima));
    const vm small = vf_le(vf_from_bits(vi_and(vf_bits(found), vi_set(0x7fffffff))), vf_set(NAPIER_BIG));
    g->max_lanes = vf_keep(small, found);
    const napier_maxima m = napier_maxima_of(g->max_lanes);
    g->p_lanes = m.p;
    vf_store(g->max, vf_select(small, found, vf_canonical_nan()));
    vf_store(g->reach, vf_sub(found, least));
    vf_store(g->magic, m.magic);
}

/* A row that is not ordinary, computed like a long row. */
static napier_token_final napier_token_alone(const napier_token_job *job, napier_looked looked, const uint8_t *keep,
                                             napier_token_seen *seen) {
    float room[NAPIER_TOKEN_SLOT_ARRAYS * 16];
    const napier_token_slots slots = napier_token_slots_of(room, 1);
    const int n = (int)job->x.cols;
    const napier_token_parts parts = napier_token_parts_of(&looked, n, job->wants.entropy);
    napier_token_tile_done(&job->wants, looked.z, keep, n, 0, &parts, &slots, seen);
    return napier_token_finish(&job->wants, &slots, 1);
}

static void napier_token_group_sum(const napier_token_job *job, int rows, napier_token_group *g) {
    const int n = (int)job->x.cols;
    for (int r = 0; r < rows; r++) {
        const napier_adder a = napier_adder_of(g->max[r], g->magic[r]);
        const float *z = g->looked[r].z;
        const bool cut = !(g->reach[r] <= NAPIER_CUTOFF);
        const napier_token_lanes lanes = cut                  ? napier_token_sum(z, n, &a, true, true)
                                         : job->wants.entropy ? napier_token_sum(z, n, &a, false, true)
                                                              : napier_token_sum(z, n, &a, false, false);
        g->rest[r] = lanes.rest;
        g->spread[r] = lanes.spread;
        g->below[r] = vf_from_int(lanes.below); /* how many are */
    }
}

/* napier_final_outputs and napier_token_entropy for 16 rows at a time. */
static void napier_token_group_finish(const napier_token_wants *wants, int n, int rows, const napier_token_group *g,
                                      napier_token_final *finals) {
    float log_sum[16], lse[16], max_prob[16], scale[16], entropy[16];
    double exponent[16];
    const vf count = vf_max(vf_sub(vf_set((float)n), vf_hadd16(g->below)), vf_set(1.0f)), rest = vf_hadd16(g->rest);
    const napier_finals l = napier_finish16(NAPIER_OP_LOGSUMEXP, g->max_lanes, g->p_lanes, count, rest);
    const napier_finals s = napier_finish16(NAPIER_OP_SOFTMAX, g->max_lanes, g->p_lanes, count, rest);
    vf_store(log_sum, l.log_sum);
    vf_store(lse, l.lse);
    vf_store(max_prob, s.max_prob);
    vf_store(scale, s.scale);
    if (wants->entropy) {
        const vd unit = vd_set(0x1p-64), one = vd_set(1.0), p = vd_from_vf(g->p_lanes), c = vd_from_vf(count);
        const vd r = vd_mul(vd_from_vf(rest), unit), spread = vd_mul(vd_from_vf(vf_hadd16(g->spread)), unit);
        const vd logs = vd_log1p(vd_add(vd_sub(c, one), vd_div(r, p)));
        vf_store(entropy, vd_to_vf(vd_add(logs, vd_mul(spread, vd_div(one, vd_add(vd_mul(c, p), r))))));
    }
    vd_store(exponent, vd_from_vf(vf_sub(vf_set(NAPIER_ROUND_MAGIC + NAPIER_TERM_SCALE), vf_load(g->magic))));
    for (int i = 0; i < rows; i++) {
        finals[i] = (napier_token_final){.entropy = wants->entropy ? entropy[i] : 0.0f};
        finals[i].row = (napier_final){.kind = NAPIER_ROW_FINITE,
                                       .max = g->max[i] + 0.0f,
                                       .lse = lse[i],
                                       .log_sum = -(0.0f - log_sum[i]), /* as napier_final_log */
                                       .max_prob = max_prob[i],
                                       .scale = scale[i],
                                       .factor = 1.0f,
                                       .exponent = (int64_t)exponent[i]};
    }
}

static void napier_token_rows(const napier_token_job *job, int64_t row, int rows, napier_token_seen *seen,
                              napier_token_final *finals, float *scratch) {
    const int n = (int)job->x.cols;
    napier_token_group g;
    napier_token_group_look(job, row, rows, &g, scratch);
    napier_token_group_sum(job, rows, &g);
    napier_token_group_finish(&job->wants, n, rows, &g, finals);
    for (int r = 0; r < rows; r++) {
        const uint8_t *keep = napier_token_keep(&job->rules, row + r, 0);
        const float *z = g.looked[r].z;
        if (g.max[r] != g.max[r] || vm_any(napier_range_nan(g.looked[r].range))) {
            finals[r] = napier_token_alone(job, g.looked[r], keep, &seen[r]);
            continue;
        }
        if (job->wants.total) {
            finals[r].total = (double)napier_token_total(z, keep, n);
        }
        napier_token_see(&job->wants, z, n, 0, g.max[r], &seen[r]);
    }
}

#endif
