/* ops/tokens/token_tile.inc.h - the kernels of token_tile.h: logits to z, a tile of z to its slot, the slots of a row
 * to its final. Compiled once per instruction set. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_TILE_INC_H
#define NAPIER_OPS_TOKENS_TOKEN_TILE_INC_H

#include "core/math/lanes_tanh.h"
#include "ops/softmax/gradient.inc.h"
#include "ops/tokens/token_kernels.h"
#include "ops/tokens/token_row.h"

/* ---- Logits to z ------------------------------------------------------------------------------------------------- */

/* Applies the softcap to 16 logits; *slope receives its derivative. */
NAPIER_KERNEL vf napier_softcap16(vf x, vf cap, vf *slope) {
    const vf_tanh_parts t = vf_tanh_and_slope(vf_div(x, cap));
    *slope = t.slope;
    return vf_mul(cap, t.tanh);
}

/* The mask of those of n <= 16 bytes that are not 0. */
NAPIER_KERNEL vm napier_kept16(const uint8_t *keep, int n) {
    int32_t lanes[16] = {0};
    if (n >= 16) {
        for (int i = 0; i < 16; i++) {
            lanes[i] = keep[i];
        }
    } else {
        for (int i = 0; i < n; i++) {
            lanes[i] = keep[i];
        }
    }
    return vi_gt(vi_load(lanes), vi_set(0));
}

/* Converts n contiguous logits to z in place. slope: NULL, or memory for the softcap's derivative. */
static void napier_token_apply(const napier_token_rules *rules, const uint8_t *keep, int n, float *z, float *slope) {
    const vf cap = vf_set(rules->softcap), temperature = vf_set(rules->temperature);
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        vf v = vf_load_part(z + i, part, vf_zero());
        if (rules->softcap != 0.0f) {
            vf derivative;
            v = napier_softcap16(v, cap, &derivative);
            if (slope) {
                vf_store_part(slope + i, part, derivative);
            }
        }
        if (rules->temperature != 1.0f) {
            v = vf_div(v, temperature);
        }
        if (keep) {
            v = vf_select(napier_kept16(keep + i, part), v, napier_minus_infinity());
        }
        vf_store_part(z + i, part, v);
    }
}

static bool napier_token_changes(const napier_token_rules *rules, const uint8_t *keep) {
    return rules->softcap != 0.0f || rules->temperature != 1.0f || keep;
}

/* Widens n <= 1024 logits to contiguous floats at z; z may be x. */
static void napier_token_widen(const void *x, napier_dtype dtype, int64_t stride, int n, float *z) {
    const float *floats = napier_look(x, dtype, stride, 1.0f, n, z).z;
    if (floats != z) {
        memcpy(z, floats, (size_t)n * sizeof *z);
    }
}

NAPIER_SLOT void napier_token_z(const napier_token_rules *rules, const void *x, napier_dtype dtype, int64_t stride,
                                const uint8_t *keep, int64_t n, float *z) {
    float tile[NAPIER_TILE + 16];
    for (int64_t i = 0; i < n; i += NAPIER_TILE) {
        const int part = napier_tile_at(i, n);
        const void *from = napier_at(x, dtype, i * stride);
        float *to = from == (const void *)(z + i) ? z + i : tile;
        napier_token_widen(from, dtype, stride, part, to);
        if (napier_token_changes(rules, keep)) {
            napier_token_apply(rules, keep ? keep + i : NULL, part, to, NULL);
        }
        if (to == tile) {
            memcpy(z + i, tile, (size_t)part * sizeof *z);
        }
    }
}

/* Elements [begin, begin + n) of a row as z, with their range. `room` must hold a tile and 16 more floats. */
NAPIER_SLOT napier_looked napier_token_look(const napier_token_job *job, int64_t row, int64_t begin, int n,
                                            float *room) {
    const napier_const_matrix *x = &job->x;
    const void *from = napier_at(x->data, x->dtype, row * x->row_stride + begin * x->col_stride);
    const uint8_t *keep = napier_token_keep(&job->rules, row, begin);
    if (job->rules.softcap == 0.0f && !keep) {
        return napier_look(from, x->dtype, x->col_stride, job->rules.temperature, n, room);
    }
    napier_token_widen(from, x->dtype, x->col_stride, n, room);
    napier_token_apply(&job->rules, keep, n, room, NULL);
    return napier_look(room, NAPIER_F32, 1, 1.0f, n, room);
}

/* ---- A tile to its slot ------------------------------------------------------------------------------------------ */

/* Adds 16 elements to the lanes of a tile: to sum, except the maxima; to spread; and 1 to below for each that is not a
 * maximum. cut: some elements may be beyond the cutoff (such as -inf), and do not count. A NaN makes the spread NaN. */
NAPIER_KERNEL void napier_token_step(const napier_adder *a, vf z, bool cut, bool entropy, vf *sum, vf *spread,
                                     vi *below) {
    vf term = vf_exp_scaled(z, a->magic);
    const vm lower = vf_lt(z, a->max), near = cut ? vf_ge(z, a->cutoff) : lower;
    *below = vi_add_where(lower, *below, vi_set(1));
    if (cut) {
        term = vf_keep(near, term);
    }
    *sum = vf_add_where(lower, *sum, term);
    if (entropy) {
        const vf down = vf_sub(z, a->max);
        *spread = vf_fnma(term, cut ? vf_keep(near, down) : down, *spread);
    }
}

/* The same for four vectors in the same lanes of a tile, with no element beyond the cutoff. */
NAPIER_KERNEL void napier_token_step4(const napier_adder *a, const float *z, bool entropy, vf *sum, vf *spread,
                                      vi *below) {
    vf x[4], term[4];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = vf_load(z + i * NAPIER_TILE_LANES);
    }
    vf_exp_scaled_side_by_side(4, x, a->magic, term);
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        const vm lower = vf_lt(x[i], a->max);
        *below = vi_add_where(lower, *below, vi_set(1));
        *sum = vf_add_where(lower, *sum, term[i]);
        if (entropy) {
            *spread = vf_fnma(term[i], vf_sub(x[i], a->max), *spread);
        }
    }
}

/* The number of n elements that equal the maximum. */
NAPIER_KERNEL float napier_token_count(int n, vi below) { return (float)n - vf_hadd(vf_from_int(below)); }

typedef struct napier_token_lanes {
    vf rest, spread;
    vi below;
} napier_token_lanes;

/* Sums any tile without NaN whose maximum is not big. */
NAPIER_KERNEL napier_token_lanes napier_token_sum(const float *z, int n, const napier_adder *a, bool cut,
                                                  bool entropy) {
    vf sum[16], spread[16];
    vi below = vi_set(0);
    const int vectors = napier_lane_vectors(n);
    for (int v = 0; v < vectors; v++) {
        vf s = vf_zero(), u = vf_zero();
        int i = v * 16;
        if (!cut && n == NAPIER_TILE) {
            napier_token_step4(a, z + i, entropy, &s, &u, &below);
            i += NAPIER_TILE;
        }
        for (; i + 16 <= n; i += NAPIER_TILE_LANES) {
            napier_token_step(a, vf_load(z + i), cut, entropy, &s, &u, &below);
        }
        if (i < n) {
            napier_token_step(a, vf_load_part(z + i, n - i, a->max), cut, entropy, &s, &u, &below);
        }
        sum[v] = s;
        spread[v] = u;
    }
    return (napier_token_lanes){napier_fold_lanes(sum, vectors),
                                entropy ? napier_fold_lanes(spread, vectors) : vf_zero(), below};
}

/* The sums of a tile: napier_tile_sum, and its spread. */
typedef struct napier_token_parts {
    float max, count, rest, spread;
} napier_token_parts;

/* The spread of a tile with a big maximum, in the order of the lanes. */
static float napier_token_spread_by_definition(const float *z, int n, float max) {
    float lane[NAPIER_TILE_LANES] = {0};
    const int64_t exponent = napier_exp_parts_for(max, max).n;
    for (int i = 0; i < n; i++) {
        if (napier_within_cutoff(z[i], max)) {
            lane[i % NAPIER_TILE_LANES] =
                fmaf(-napier_term(z[i], max, exponent), z[i] - max, lane[i % NAPIER_TILE_LANES]);
        }
    }
    for (int h = NAPIER_TILE_LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            lane[i] += lane[i + h];
        }
    }
    return lane[0];
}

static napier_token_parts napier_token_by_definition(const float *z, int n) {
    napier_tile_sum t;
    napier_tile_by_definition(z, n, &t);
    if (t.nan) {
        return (napier_token_parts){napier_nan(), 0, 0, 0};
    }
    const bool terms = fabsf(t.max) < NAPIER_HUGE;
    return (napier_token_parts){t.max, (float)t.count, t.rest,
                                terms ? napier_token_spread_by_definition(z, n, t.max) : 0.0f};
}

static napier_token_parts napier_token_parts_of(const napier_looked *looked, int n, bool entropy) {
    const float max = vf_hmax(looked->range.max), min = -vf_hmax(vf_sub(vf_zero(), looked->range.min));
    if (!(fabsf(max) <= NAPIER_BIG) || vm_any(napier_range_nan(looked->range))) {
        return napier_token_by_definition(looked->z, n);
    }
    const napier_adder a = napier_adder_of(max, napier_term_magic(napier_exp_parts_small(max).n));
    const bool cut = !(min >= max - NAPIER_CUTOFF);
    const napier_token_lanes lanes = entropy ? (cut ? napier_token_sum(looked->z, n, &a, true, true)
                                                    : napier_token_sum(looked->z, n, &a, false, true))
                                     : cut   ? napier_token_sum(looked->z, n, &a, true, false)
                                             : napier_token_sum(looked->z, n, &a, false, false);
    return (napier_token_parts){max, napier_token_count(n, lanes.below), vf_hadd(lanes.rest), vf_hadd(lanes.spread)};
}

/* ---- The state of a row ------------------------------------------------------------------------------------------ */

/* The index of the first element that equals x; n if there is none. */
static int napier_token_find(const float *z, int n, float x) {
    int i = 0;
    for (; i + 16 <= n && !vm_any(vf_eq(vf_load(z + i), vf_set(x))); i += 16) {
    }
    for (; i < n && z[i] != x; i++) {
    }
    return i;
}

/* The number of n elements that precede one with value x, whose index among them is `place` (below 0 or above n: it is
 * outside). */
static int64_t napier_token_count_before(const float *z, int n, float x, int64_t place) {
    const int lower = place < 0 ? 0 : place > n ? n : (int)place; /* elements before this index precede if equal */
    const vf same = vf_set(x);
    int64_t count = 0;
    int i = 0;
    for (; i + 16 <= lower; i += 16) {
        count += vm_count(vf_ge(vf_load(z + i), same));
    }
    for (; i < n; i += 16) {
        const vf v = vf_load_part(z + i, n - i < 16 ? n - i : 16, same);
        const vm equal = i < lower ? vm_and(vf_eq(v, same), vm_first(lower - i < 16 ? lower - i : 16)) : vm_first(0);
        count += vm_count(vm_or(vf_gt(v, same), equal));
    }
    return count;
}

static void napier_token_see_top(const float *z, int n, int64_t column, int64_t limit, napier_token_seen *seen) {
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        const float least = seen->top_count == limit ? seen->top[0].z : -INFINITY;
        if (!vm_any(vf_ge(vf_load_part(z + i, part, napier_minus_infinity()), vf_set(least)))) {
            continue;
        }
        for (int j = i; j < i + part; j++) {
            if (z[j] > -INFINITY) {
                napier_token_top_add(seen, limit, (napier_token_top){z[j], column + j});
            }
        }
    }
}

/* Updates `seen` with a tile without NaN and its maximum. */
static void napier_token_see(const napier_token_wants *wants, const float *z, int n, int64_t column, float max,
                             napier_token_seen *seen) {
    if (wants->argmax && (max > seen->max || (max == seen->max && column < seen->argmax))) {
        seen->max = max;
        seen->argmax = column + napier_token_find(z, n, max);
    }
    for (int64_t k = 0; k < wants->ranks; k++) {
        if (max >= seen->chosen[k]) {
            seen->before[k] += napier_token_count_before(z, n, seen->chosen[k], seen->ids[k] - column);
        }
    }
    if (wants->top_k > 0 && (seen->top_count < wants->top_k || max >= seen->top[0].z)) {
        napier_token_see_top(z, n, column, wants->top_k, seen);
    }
}

/* The sum of z over the elements of a tile that keep selects. */
static float napier_token_total(const float *z, const uint8_t *keep, int n) {
    if (!keep) {
        return napier_dot_tile(z, NULL, n);
    }
    float kept[NAPIER_TILE];
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        vf_store_part(kept + i, part, vf_keep(napier_kept16(keep + i, part), vf_load_part(z + i, part, vf_zero())));
    }
    return napier_dot_tile(kept, NULL, n);
}

/* Writes the sums of a tile to its slot and updates `seen`. */
static void napier_token_tile_done(const napier_token_wants *wants, const float *z, const uint8_t *keep, int n,
                                   int64_t tile, const napier_token_parts *parts, const napier_token_slots *slots,
                                   napier_token_seen *seen) {
    slots->max[tile] = parts->max;
    slots->count[tile] = parts->count;
    slots->rest[tile] = parts->rest;
    slots->spread[tile] = parts->spread;
    if (wants->total) {
        slots->total[tile] = napier_token_total(z, keep, n);
    }
    if (parts->max == parts->max) {
        napier_token_see(wants, z, n, tile * NAPIER_TILE, parts->max, seen);
    }
}

NAPIER_SLOT void napier_token_tile(const napier_token_wants *wants, const float *z, const uint8_t *keep, int n,
                                   int64_t tile, const napier_token_slots *slots, napier_token_seen *seen) {
    const napier_looked looked = napier_look(z, NAPIER_F32, 1, 1.0f, n, NULL);
    const napier_token_parts parts = napier_token_parts_of(&looked, n, wants->entropy);
    napier_token_tile_done(wants, z, keep, n, tile, &parts, slots, seen);
}

/* ---- The slots of a row to its final ----------------------------------------------------------------------------- */

/* 2^k in double for -252 <= k <= 254, as a product of two normal floats. */
NAPIER_KERNEL vd napier_token_powers(vi k) {
    const vi half = vi_sar(k, 1), bias = vi_set(127);
    const vf low = vf_from_bits(vi_shl(vi_add(half, bias), 23));
    const vf high = vf_from_bits(vi_shl(vi_add(vi_sub(k, half), bias), 23));
    return vd_mul(vd_from_vf(low), vd_from_vf(high));
}

/* Folds 16 doubles by halves. */
static double napier_token_fold(vd v) {
    double lane[16];
    vd_store(lane, v);
    for (int h = 8; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            lane[i] += lane[i + h];
        }
    }
    return lane[0];
}

/* For tiles 16 i .. 16 i + 15: the significands and exponents of their maxima, and their spread moved to the row's
 * maximum. Tiles that are too far below count 0 times. */
NAPIER_KERNEL vd napier_token_moved(const napier_token_slots *slots, int64_t i, float max, float exponent, float *p,
                                    float *n) {
    const vf m = vf_load(slots->max + i), row = vf_set(max);
    const vm near = vf_ge(m, vf_set(max - NAPIER_TOKEN_FAR));
    const vf at = vf_select(near, m, row);
    vf shifted, whole;
    const vf r = vf_exp_reduce(at, vf_set(NAPIER_ROUND_MAGIC), &shifted, &whole);
    const vf significand = vf_exp_polynomial(r), count = vf_keep(near, vf_load(slots->count + i));
    vf_store(p, significand);
    vf_store(n, whole);
    vf_store(slots->count + i, count);
    const vi down = vf_to_int(vf_max(vf_sub(whole, vf_set(exponent)), vf_set(-252.0f)));
    const vd unit = vd_set(0x1p-64), rest = vd_mul(vd_from_vf(vf_load(slots->rest + i)), unit);
    const vd terms = vd_add(vd_mul(vd_from_vf(count), vd_from_vf(significand)), rest);
    const vd distance = vd_sub(vd_from_vf(row), vd_from_vf(at));
    const vd spread = vd_mul(vd_from_vf(vf_load(slots->spread + i)), unit);
    const vd moved = vd_mul(vd_add(spread, vd_mul(distance, terms)), napier_token_powers(down));
    return vd_select(near, moved, vd_set(0.0));
}

/* The exact sum and the spread, if no tile that counts has a big maximum. */
static void napier_token_gather(const napier_token_slots *slots, int64_t tiles, napier_sum *sum, double *spread) {
    const float max = sum->max;
    const float exponent = (float)napier_exp_parts_small(max).n;
    vd moved = vd_set(0.0);
    for (int64_t i = 0; i < tiles; i += 16) {
        float p[16], n[16];
        moved = vd_add(moved, napier_token_moved(slots, i, max, exponent, p, n));
        for (int64_t t = i; t < i + 16 && t < tiles; t++) {
            const uint64_t count = (uint64_t)slots->count[t];
            if (slots->max[t] == max) {
                sum->count += count;
            } else if (count > 0) {
                napier_sum_add_terms(sum, count, (napier_exp_parts){p[t - i], (int64_t)n[t - i]});
            } else {
                continue;
            }
            napier_sum_add_rest(sum, slots->rest[t], (int64_t)n[t - i]);
        }
    }
    *spread = napier_token_fold(moved);
}

/* The same for any maxima, tile by tile. */
static void napier_token_gather_big(const napier_token_slots *slots, int64_t tiles, napier_sum *sum, double *spread) {
    double lane[16] = {0};
    const int64_t exponent = napier_is_huge(sum->max) ? 0 : napier_exp_parts_for(sum->max, sum->max).n;
    for (int64_t t = 0; t < tiles; t++) {
        const napier_tile_sum tile = {slots->max[t], 0, slots->rest[t], (int32_t)slots->count[t], false};
        napier_sum_add_tile(sum, &tile);
        const double distance = (double)sum->max - (double)tile.max;
        if (napier_is_huge(sum->max) || !(distance <= (double)NAPIER_TOKEN_FAR)) {
            continue;
        }
        const napier_exp_parts parts = napier_exp_parts_for(tile.max, tile.max);
        const int64_t down = parts.n - exponent < -252 ? -252 : parts.n - exponent;
        const double terms = (double)tile.count * (double)parts.p + (double)tile.rest * 0x1p-64;
        lane[t % 16] += ((double)slots->spread[t] * 0x1p-64 + distance * terms) * napier_f64_power_of_two((int)down);
    }
    vd lanes = vd_load(lane);
    *spread = napier_token_fold(lanes);
}

/* The largest maximum of the slots; NaN if one is. Fills the slots up to a multiple of 16 with empty ones. */
static float napier_token_slots_max(const napier_token_slots *slots, int64_t tiles) {
    vf max = napier_minus_infinity();
    vm nan = vm_first(0);
    for (int64_t t = tiles; t % 16 > 0; t++) {
        slots->max[t] = -INFINITY;
        slots->count[t] = slots->rest[t] = slots->spread[t] = slots->total[t] = 0.0f;
    }
    for (int64_t i = 0; i < tiles; i += 16) {
        const vf m = vf_load(slots->max + i);
        nan = vm_or(nan, vf_unordered(m, m));
        max = vf_max(m, max);
    }
    return vm_any(nan) ? napier_nan() : vf_hmax(max);
}

static double napier_token_slots_total(const napier_token_slots *slots, int64_t tiles) {
    vd total = vd_set(0.0);
    for (int64_t i = 0; i < tiles; i += 16) {
        total = vd_add(total, vd_from_vf(vf_load(slots->total + i)));
    }
    return napier_token_fold(total);
}

NAPIER_SLOT napier_token_final napier_token_finish(const napier_token_wants *wants, const napier_token_slots *slots,
                                                   int64_t tiles) {
    napier_token_final f = {.entropy = 0.0f, .total = 0.0};
    napier_sum sum;
    double spread = 0;
    const float max = napier_token_slots_max(slots, tiles);
    napier_sum_init(&sum);
    sum.nan = max != max;
    sum.pinf = max == INFINITY;
    const bool finite = max > -INFINITY && max < INFINITY;
    if (finite) {
        napier_sum_raise(&sum, max);
        if (fabsf(max) <= NAPIER_BIG && max - NAPIER_TOKEN_FAR >= -NAPIER_BIG) {
            napier_token_gather(slots, tiles, &sum, &spread);
        } else {
            napier_token_gather_big(slots, tiles, &sum, &spread);
        }
    } else if (sum.pinf) {
        sum.max = max;
    }
    f.row = napier_sum_finish(&sum);
    if (wants->entropy) {
        f.entropy = finite ? napier_token_entropy(&sum, spread) : napier_nan();
    }
    if (wants->total) {
        f.total = napier_token_slots_total(slots, tiles);
    }
    return f;
}

#endif
