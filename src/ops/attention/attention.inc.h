/* ops/attention/attention.inc.h - turns scores into weights (attention_kernels.h); compiled once per
 * instruction set. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_INC_H
#define NAPIER_OPS_ATTENTION_ATTENTION_INC_H

#include "core/math/elements.h"
#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_lanes.h"

/* ---- Which keys are seen ------------------------------------------------------------------------------------------ */

NAPIER_KERNEL vf napier_hidden(void) { return vf_set(-INFINITY); }

/* The mask of n keys, as numbers to be added to the scores. */
NAPIER_KERNEL vf napier_mask_load(const napier_score_block *b, int64_t r, int64_t key, int n) {
    float added[16] = {0};
    if (!b->mask_is_bytes && b->mask_step == 1) {
        return vf_load_part((const float *)b->mask[r] + key, n, vf_zero());
    }
    for (int i = 0; i < n; i++) {
        const int64_t at = (key + i) * b->mask_step;
        if (b->mask_is_bytes) {
            added[i] = ((const unsigned char *)b->mask[r])[at] ? 0.0f : -INFINITY;
        } else {
            added[i] = ((const float *)b->mask[r])[at];
        }
    }
    return vf_load(added);
}

/* Scores of 16 keys in units of log 2, -inf for hidden keys, whatever their products are. */
NAPIER_KERNEL vf napier_shown_scores(const napier_score_block *b, int64_t r, int64_t key) {
    const int64_t left = b->seen[r] - key;
    const int n = left <= 0 ? 0 : left < 16 ? (int)left : 16;
    vf t = vf_mul(vf_load(b->scores + r * NAPIER_ROW_STEP + key), vf_set(b->factor));
    if (b->mask && n > 0) {
        const vf added = napier_mask_load(b, r, key, n);
        t = vf_fma(added, vf_set(NAPIER_LOG2E), t);
        t = vf_select(vf_eq(added, napier_hidden()), added, t);
        t = vf_select(vf_unordered(t, t), vf_canonical_nan(), t); /* napier_round_weight needs it */
    }
    return vf_select(vm_first(n), t, napier_hidden());
}

/* Replaces the scores of hidden keys of a row by -inf. Returns the factor that brings the scores to units of log 2.
 * With a mask the scores are in these units already, and the factor is 1. */
NAPIER_KERNEL float napier_show_row(const napier_score_block *b, int64_t r) {
    float *const scores = b->scores + r * NAPIER_ROW_STEP;
    if (!b->mask && b->factor > 0) {
        const int64_t first = b->seen[r] / 16 * 16;
        for (int64_t key = first; key < b->keys; key += 16) {
            const vm seen = vm_first(key == first ? (int)(b->seen[r] - first) : 0);
            vf_store(scores + key, vf_select(seen, vf_load(scores + key), napier_hidden()));
        }
        return b->factor;
    }
    for (int64_t key = 0; key < b->keys; key += 16) {
        vf_store(scores + key, napier_shown_scores(b, r, key));
    }
    return 1.0f;
}

/* ---- Weights ------------------------------------------------------------------------------------------------------ */

/* napier_weight of up to four vectors, step by step, so that their latencies overlap. */
NAPIER_KERNEL void napier_weights_of(const int count, vf d[4]) {
    static const float c[5] = {NAPIER_EXP2_C5, NAPIER_EXP2_C4, NAPIER_EXP2_C3, NAPIER_EXP2_C2, NAPIER_EXP2_C1};
    const vf magic = vf_set(NAPIER_ROUND_MAGIC + 127.0f);
    vf shifted[4], f[4], p[4];
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        shifted[i] = vf_add(d[i], magic);
        f[i] = vf_sub(d[i], vf_sub(shifted[i], magic));
        p[i] = vf_set(NAPIER_EXP2_C6);
    }
    NAPIER_UNROLL
    for (int j = 0; j < 5; j++) {
        NAPIER_UNROLL
        for (int i = 0; i < count; i++) {
            p[i] = vf_fma(p[i], f[i], vf_set(c[j]));
        }
    }
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        p[i] = vf_fma(p[i], f[i], vf_set(1.0f));
        const vf power = vf_from_bits(vi_shl(vf_bits(shifted[i]), 23));
        d[i] = vf_keep(vf_nlt(d[i], vf_set(NAPIER_EXP2_LOWEST)), vf_mul(p[i], power));
    }
}

/* In each lane the largest of its scores. A NaN is ignored. */
NAPIER_KERNEL vf napier_row_maxima(const float *scores, int64_t keys) {
    vf m[4];
    for (int i = 0; i < 4; i++) {
        m[i] = napier_hidden();
    }
    int64_t key = 0;
    for (; key + 64 <= keys; key += 64) {
        NAPIER_UNROLL
        for (int i = 0; i < 4; i++) {
            m[i] = vf_max(vf_load(scores + key + 16 * i), m[i]);
        }
    }
    for (; key < keys; key += 16) {
        m[0] = vf_max(vf_load(scores + key), m[0]);
    }
    return vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3]));
}

NAPIER_KERNEL void napier_raise_exponent(const napier_weights kind, const napier_attention_rows *a, int64_t r,
                                         float exponent) {
    const float before = a->exponents[r];
    a->exponents[r] = exponent;
    if (before == -INFINITY) {
        return; /* sums and outputs are still 0 */
    }
    const vf factor = vf_set(napier_rescale(before, exponent));
    vf_store(a->sums + 16 * r, vf_mul(vf_load(a->sums + 16 * r), factor));
    for (int64_t i = 0; i < a->cols; i += 16) {
        float *const at = a->outputs + r * a->step + i;
        const vf o = vf_mul(vf_load(at), factor);
        vf_store(at, kind == NAPIER_WEIGHTS_F32 ? o : napier_flush_subnormal(o));
    }
}

/* Rounds to bf16. The lower half of a NaN is 0. */
NAPIER_KERNEL vf napier_round_weight(const napier_weights kind, vf w) {
    return kind == NAPIER_WEIGHTS_F32 ? w : napier_upper_half(vf_from_bits(napier_bf16_upper(w)));
}

/* The weights of 16 * count keys from `key` on. Returns the sums to which they are added. */
NAPIER_KERNEL vf napier_weigh_keys(const napier_weights kind, const int count, float *scores, int64_t key, float factor,
                                   float level, vf sum) {
    vf w[4];
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        w[i] = vf_sub(vf_mul(vf_load(scores + key + 16 * i), vf_set(factor)), vf_set(level));
    }
    napier_weights_of(count, w);
    NAPIER_UNROLL
    for (int i = 0; i < count; i++) {
        w[i] = napier_round_weight(kind, w[i]);
        sum = vf_add(sum, w[i]);
        if (kind != NAPIER_WEIGHTS_BF16) {
            vf_store(scores + key + 16 * i, w[i]);
        } else if (i % 2 == 1) {
            vi_store_upper((uint16_t *)(void *)scores + key + 16 * (i - 1), vf_bits(w[i - 1]), vf_bits(w[i]));
        }
    }
    return sum;
}

/* maximum: of the row's scores; factor: that brings these to units of log 2. */
NAPIER_KERNEL void napier_weigh_row(const napier_weights kind, const napier_score_block *b,
                                    const napier_attention_rows *a, int64_t r, float maximum, float factor) {
    float *const scores = b->scores + r * NAPIER_ROW_STEP;
    const float exponent = rintf(maximum * factor);
    if (exponent > a->exponents[r]) {
        napier_raise_exponent(kind, a, r, exponent);
    }
    const float level = a->exponents[r] == -INFINITY ? 0.0f : a->exponents[r];
    vf sum = vf_load(a->sums + 16 * r);
    int64_t key = 0;
    for (; key + 64 <= b->keys; key += 64) { /* four at a time: their latencies overlap */
        sum = napier_weigh_keys(kind, 4, scores, key, factor, level, sum);
    }
    for (; key + 32 <= b->keys; key += 32) {
        sum = napier_weigh_keys(kind, 2, scores, key, factor, level, sum);
    }
    for (; kind == NAPIER_WEIGHTS_F32 && key < b->keys; key += 16) {
        sum = napier_weigh_keys(kind, 1, scores, key, factor, level, sum);
    }
    vf_store(a->sums + 16 * r, sum);
}

/* 16 rows at a time, the maxima of all first: they take long, but do not wait for one another. */
NAPIER_KERNEL void napier_weigh_rows(const napier_weights kind, const napier_score_block *b,
                                     const napier_attention_rows *a) {
    for (int64_t first = 0; first < b->rows; first += 16) {
        const int n = b->rows - first < 16 ? (int)(b->rows - first) : 16;
        float factor = 1.0f, maximum[16];
        vf lanes[16];
        for (int i = 0; i < 16; i++) {
            factor = i < n ? napier_show_row(b, first + i) : factor;
            lanes[i] = i < n ? napier_row_maxima(b->scores + (first + i) * NAPIER_ROW_STEP, b->keys) : napier_hidden();
        }
        vf_store(maximum, vf_hmax16(lanes));
        for (int i = 0; i < n; i++) {
            napier_weigh_row(kind, b, a, first + i, maximum[i], factor);
        }
    }
}

static void napier_attention_weigh(const napier_score_block *block, const napier_attention_rows *rows) {
    switch (block->weights) {
    case NAPIER_WEIGHTS_F32: napier_weigh_rows(NAPIER_WEIGHTS_F32, block, rows); break;
    case NAPIER_WEIGHTS_ROUNDED: napier_weigh_rows(NAPIER_WEIGHTS_ROUNDED, block, rows); break;
    default: napier_weigh_rows(NAPIER_WEIGHTS_BF16, block, rows); break;
    }
}

/* ---- Results ------------------------------------------------------------------------------------------------------ */

/* The sums l of n <= 16 rows, and log(2^E l), in double: -inf without weight, NaN for NaN. lse NULL: not wanted. */
NAPIER_KERNEL void napier_finish_sums(const napier_attention_rows *rows, int64_t first, int n, float *sums,
                                      float *lse) {
    vf all[16];
    for (int i = 0; i < 16; i++) {
        all[i] = i < n ? vf_load(rows->sums + 16 * (first + i)) : vf_zero();
    }
    const vf sum = vf_hadd16(all), exponent = vf_load_part(rows->exponents + first, n, vf_zero());
    vf_store(sums, sum);
    if (lse) {
        const vm some = vf_gt(sum, vf_zero());
        const vf without = vf_select(vf_eq(sum, vf_zero()), napier_hidden(), vf_canonical_nan());
        const vf log_sum = napier_lse_of(vf_select(some, exponent, vf_zero()), vf_select(some, sum, vf_set(1.0f)));
        vf_store_part(lse + first, n, vf_select(some, log_sum, without));
    }
}

/* The + 0 makes every zero +0, because the sign of a zero may depend on the keys of other rows. */
NAPIER_KERNEL vf napier_output(const float *o, vf factor) {
    const vf mean = vf_mul(vf_add(vf_load(o), vf_zero()), factor);
    return vf_select(vf_unordered(mean, mean), vf_canonical_nan(), mean);
}

NAPIER_KERNEL void napier_outputs(const float *o, float factor, void *result, const napier_dtype dtype, int64_t cols) {
    const vf f = vf_set(factor);
    int64_t i = 0;
    for (; i + 16 <= cols; i += 16) {
        napier_store16(napier_at_out(result, dtype, i), dtype, napier_output(o + i, f));
    }
    if (i < cols) {
        napier_store_part(napier_at_out(result, dtype, i), dtype, (int)(cols - i), napier_output(o + i, f));
    }
}

static void napier_attention_finish(const napier_attention_rows *rows, int64_t count, float masked,
                                    void *const *results, napier_dtype dtype, int64_t cols, float *lse) {
    float sums[16];
    for (int64_t r = 0; r < count; r++) {
        if (r % 16 == 0) {
            napier_finish_sums(rows, r, count - r < 16 ? (int)(count - r) : 16, sums, lse);
        }
        const float sum = sums[r % 16];
        float *const o = rows->outputs + r * rows->step;
        const bool empty = sum == 0.0f;
        const float factor = empty ? masked : 1.0f / sum;
        if (empty) { /* hidden infinities times 0 have not been added: the outputs are 0 */
            memset(o, 0, (size_t)rows->cols * sizeof *o);
        }
        if (!results) {
            napier_outputs(o, factor, o, NAPIER_F32, rows->cols);
        } else if (dtype == NAPIER_F32) {
            napier_outputs(o, factor, results[r], NAPIER_F32, cols);
        } else if (dtype == NAPIER_F16) {
            napier_outputs(o, factor, results[r], NAPIER_F16, cols);
        } else {
            napier_outputs(o, factor, results[r], NAPIER_BF16, cols);
        }
    }
}

/* ---- Values in place ---------------------------------------------------------------------------------------------- */

#if defined(NAPIER_LANES_AVX512)
enum { NAPIER_VALUE_SUMS = 16, NAPIER_VALUE_VECTORS = 8 };
#else
enum { NAPIER_VALUE_SUMS = 4, NAPIER_VALUE_VECTORS = 4 };
#endif
enum { NAPIER_VALUES_AHEAD = 16 }; /* keys: far enough for memory, near enough for the first-level cache */

/* sum[lane][vector] += weights[key] * value of key for the keys begin, begin + by, .. before end. n: of the last vector's
 * columns. */
NAPIER_KERNEL void napier_value_chain(const napier_dtype dtype, const int by, const int lanes, const int vectors,
                                      const napier_few_values *p, const char *x, const float *weights, int64_t begin,
                                      int64_t end, const int n, vf sum[NAPIER_VALUE_SUMS]) {
    const int size = dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t key = begin; key < end; key += by) {
        vf v[NAPIER_VALUE_VECTORS];
        NAPIER_UNROLL
        for (int i = 0; i < vectors; i++) {
            const char *const at = x + key * p->row_step + i * 16 * size;
            if (i * 16 * size % 64 == 0) {
                __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(by * NAPIER_VALUES_AHEAD * p->row_step)));
            }
            v[i] = n >= 16 ? napier_load16(at, dtype) : napier_load_part(at, dtype, n, vf_zero());
        }
        NAPIER_UNROLL
        for (int l = 0; l < lanes; l++) {
            const vf weight = vf_set(weights[l * NAPIER_ROW_STEP + key]);
            NAPIER_UNROLL
            for (int i = 0; i < vectors; i++) {
                sum[l * vectors + i] = vf_fma(weight, v[i], sum[l * vectors + i]);
            }
        }
    }
}

/* c of keys begin .. end - 1: one chain, or, with pairs, c + (a chain of the even ones + a chain of the odd ones). Each
 * chain has all registers. */
NAPIER_KERNEL void napier_value_block(const napier_dtype dtype, const bool pairs, const int lanes, const int vectors,
                                      const napier_few_values *p, const char *x, const float *weights, int64_t begin,
                                      int64_t end, const int n, float *c) {
    vf sum[NAPIER_VALUE_SUMS], before[NAPIER_VALUE_SUMS];
    NAPIER_UNROLL
    for (int i = 0; i < lanes * vectors; i++) {
        const bool zero = p->first && begin == 0;
        before[i] = zero ? vf_zero() : vf_load(c + i / vectors * p->c_step + i % vectors * 16);
        sum[i] = pairs ? vf_zero() : before[i];
    }
    napier_value_chain(dtype, pairs ? 2 : 1, lanes, vectors, p, x, weights, begin, end, n, sum);
    if (pairs) {
        float even[NAPIER_VALUE_SUMS * 16];
        NAPIER_UNROLL
        for (int i = 0; i < lanes * vectors; i++) {
            vf_store(even + 16 * i, sum[i]);
            sum[i] = vf_zero();
        }
        napier_value_chain(dtype, 2, lanes, vectors, p, x, weights, begin + 1, end, n, sum);
        NAPIER_UNROLL
        for (int i = 0; i < lanes * vectors; i++) {
            sum[i] = vf_add(before[i], vf_add(vf_load(even + 16 * i), sum[i]));
        }
    }
    NAPIER_UNROLL
    for (int i = 0; i < lanes * vectors; i++) {
        vf_store(c + i / vectors * p->c_step + i % vectors * 16, sum[i]);
    }
}

/* `lanes` lanes from `lane` on, and `vectors` vectors of columns from `col` on, the last of which has `n` columns. */
NAPIER_KERNEL void napier_values_patch(const napier_dtype dtype, const bool pairs, const int lanes, const int vectors,
                                       const napier_few_values *p, int64_t lane, int64_t col, const int n) {
    const char *const x = (const char *)p->rows + col * (dtype == NAPIER_F32 ? 4 : 2);
    const float *const weights = p->weights + lane * NAPIER_ROW_STEP;
    float *const c = p->c + lane * p->c_step + col;
    const int64_t block = pairs ? NAPIER_PAIRS_BLOCK : p->keys;
    for (int64_t begin = 0; begin < p->keys; begin += block) {
        const int64_t left = p->keys - begin;
        napier_value_block(dtype, pairs, lanes, vectors, p, x, weights, begin, begin + (left < block ? left : block), n,
                           c);
    }
}

NAPIER_KERNEL void napier_values_lanes(const napier_dtype dtype, const bool pairs, const int lanes,
                                       const napier_few_values *p, int64_t lane) {
    const int most = NAPIER_VALUE_SUMS / lanes;
    const int vectors = most < NAPIER_VALUE_VECTORS ? most : NAPIER_VALUE_VECTORS;
    int64_t col = 0;
    for (; col + 16 * vectors <= p->cols; col += 16 * vectors) {
        napier_values_patch(dtype, pairs, lanes, vectors, p, lane, col, 16);
    }
    for (; col < p->cols; col += 16) {
        napier_values_patch(dtype, pairs, lanes, 1, p, lane, col, p->cols - col < 16 ? (int)(p->cols - col) : 16);
    }
}

NAPIER_KERNEL void napier_values_as(const napier_dtype dtype, const bool pairs, const napier_few_values *p) {
    int64_t lane = 0;
    for (; lane + 4 <= p->lanes; lane += 4) {
        napier_values_lanes(dtype, pairs, 4, p, lane);
    }
    for (; lane + 2 <= p->lanes; lane += 2) {
        napier_values_lanes(dtype, pairs, 2, p, lane);
    }
    if (lane < p->lanes) {
        napier_values_lanes(dtype, pairs, 1, p, lane);
    }
}

static void napier_attention_few_values(const napier_few_values *p) {
    NAPIER_FOR_DTYPE(p->dtype, napier_values_as, false, p);
}

#if defined(__SSE2__) && !defined(NAPIER_LANES_SCALAR) /* as in ops/linear/product.inc.h */
/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
static __attribute__((noinline)) void napier_few_value_pairs_quick(const napier_few_values *p) {
    napier_values_as(NAPIER_BF16, true, p);
}
static void napier_attention_few_value_pairs(const napier_few_values *p) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ */
    napier_few_value_pairs_quick(p);
    _mm_setcsr(saved);
}
#else
#define napier_attention_few_value_pairs NULL
#endif

/* ---- Backward ----------------------------------------------------------------------------------------------------- */

static void napier_attention_slope(const napier_score_block *b, const float *levels, const float *means,
                                   float *slopes) {
    for (int64_t r = 0; r < b->rows; r++) {
        float *const scores = b->scores + r * NAPIER_ROW_STEP, *const slope = slopes + r * NAPIER_ROW_STEP;
        const vf factor = vf_set(napier_show_row(b, r)), mean = vf_set(means[r]);
        const bool empty = levels[r] == -INFINITY;
        const vf level = vf_set(levels[r]);
        for (int64_t key = 0; key < b->keys; key += 16) {
            const vf t = vf_mul(vf_load(scores + key), factor);
            const vm hidden = vf_eq(t, napier_hidden());
            vf p = napier_weight(vf_sub(t, level));
            vf s = vf_mul(p, vf_sub(vf_load(slope + key), mean));
            p = empty ? vf_zero() : vf_select(hidden, vf_zero(), p);
            s = empty ? vf_zero() : vf_select(hidden, vf_zero(), s);
            vf_store(scores + key, p);
            vf_store(slope + key, s);
        }
    }
}

/* Two rows: what brings their scores to units of log 2, their levels and means. A NaN is the canonical one, because
 * napier_bf16_upper needs it. */
typedef struct napier_two_rows {
    vf factor[2], level[2], mean[2];
} napier_two_rows;

NAPIER_KERNEL vf napier_row_number(float x) {
    const vf v = vf_set(x);
    return vf_select(vf_unordered(v, v), vf_canonical_nan(), v);
}

/* Two rows and 32 keys. */
NAPIER_KERNEL void napier_slope_square(const napier_two_rows *two, const float *scores, const float *slopes,
                                       uint16_t *rows, int64_t row_step, uint32_t *probs, uint32_t *pairs,
                                       int64_t group_step) {
    vf p[4], s[4], t[4];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = vf_mul(vf_load(scores + i / 2 * NAPIER_ROW_STEP + i % 2 * 16), two->factor[i / 2]);
        p[i] = vf_sub(t[i], two->level[i / 2]);
    }
    napier_weights_of(4, p);
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        const vm hidden = vf_eq(t[i], napier_hidden());
        const vf slope = vf_load(slopes + i / 2 * NAPIER_ROW_STEP + i % 2 * 16);
        s[i] = vf_select(hidden, vf_zero(), vf_mul(p[i], vf_sub(slope, two->mean[i / 2])));
        p[i] = vf_select(hidden, vf_zero(), p[i]);
    }
    NAPIER_UNROLL
    for (int i = 0; i < 2; i++) {
        vi_store_upper(rows + i * row_step, napier_bf16_upper(s[2 * i]), napier_bf16_upper(s[2 * i + 1]));
        vi_store((int32_t *)(void *)(probs + i * group_step), napier_bf16_pairs(p[i], p[2 + i]));
        vi_store((int32_t *)(void *)(pairs + i * group_step), napier_bf16_pairs(s[i], s[2 + i]));
    }
}

static void napier_attention_slope_pairs(const napier_score_block *b, const float *levels, const float *means,
                                         const float *slopes, const napier_slope_pairs *out) {
    for (int64_t r = 0; r < b->rows; r += 2) {
        napier_two_rows two;
        for (int i = 0; i < 2; i++) {
            two.factor[i] = vf_set(napier_show_row(b, r + i));
            two.level[i] = napier_row_number(levels[r + i]);
            two.mean[i] = napier_row_number(means[r + i]);
        }
        for (int64_t key = 0; key < b->keys; key += 32) {
            const int64_t at = r * NAPIER_ROW_STEP + key, pairs = key / 16 * out->group_step + r / 2 * 16;
            napier_slope_square(&two, b->scores + at, slopes + at, out->rows + r * out->row_step + key, out->row_step,
                                out->probs + pairs, out->slopes + pairs, out->group_step);
        }
    }
}

/* ---- Sums over rows ----------------------------------------------------------------------------------------------- */

/* Like the patches of ops/linear/product.inc.h, with the keys in place of the rows. */
#if defined(NAPIER_LANES_AVX512)
#define NAPIER_TURNED_KEYS 12
#define NAPIER_TURNED_VECTORS 2
#else
#define NAPIER_TURNED_KEYS 6
#define NAPIER_TURNED_VECTORS 1
#endif
#define NAPIER_TURNED_REST 4

NAPIER_KERNEL void napier_turned_patch(const int keys, const int vectors, const float *weights, const float *rows,
                                       int64_t row_count, float *c, int64_t c_step) {
    vf sum[NAPIER_TURNED_KEYS][NAPIER_TURNED_VECTORS];
    NAPIER_UNROLL_ALL
    for (int j = 0; j < keys; j++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            sum[j][v] = vf_load(c + j * c_step + 16 * v);
        }
    }
    for (int64_t r = 0; r < row_count; r++) {
        vf x[NAPIER_TURNED_VECTORS];
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            x[v] = vf_load(rows + r * NAPIER_ROW_STEP + 16 * v);
        }
        NAPIER_UNROLL_ALL
        for (int j = 0; j < keys; j++) {
            const vf w = vf_set(weights[r * NAPIER_ROW_STEP + j]);
            NAPIER_UNROLL_ALL
            for (int v = 0; v < vectors; v++) {
                sum[j][v] = vf_fma(w, x[v], sum[j][v]);
            }
        }
    }
    NAPIER_UNROLL_ALL
    for (int j = 0; j < keys; j++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            vf_store(c + j * c_step + 16 * v, sum[j][v]);
        }
    }
}

NAPIER_KERNEL void napier_turned_keys(const int keys, const napier_turned_product *p, int64_t key) {
    const int64_t hidden = p->first_row + key * p->row_slope;
    const int64_t first = hidden < 0 ? 0 : hidden < p->row_count ? hidden : p->row_count;
    const float *const weights = p->weights + first * NAPIER_ROW_STEP + key;
    const float *const rows = p->rows + first * NAPIER_ROW_STEP;
    int64_t col = 0;
    for (; col + 16 * NAPIER_TURNED_VECTORS <= p->cols; col += 16 * NAPIER_TURNED_VECTORS) {
        napier_turned_patch(keys, NAPIER_TURNED_VECTORS, weights, rows + col, p->row_count - first,
                            p->c + key * p->c_step + col, p->c_step);
    }
    for (; col < p->cols; col += 16) {
        napier_turned_patch(keys, 1, weights, rows + col, p->row_count - first, p->c + key * p->c_step + col,
                            p->c_step);
    }
}

static void napier_attention_turned(const napier_turned_product *p) {
    int64_t key = 0;
    for (; key + NAPIER_TURNED_KEYS <= p->keys; key += NAPIER_TURNED_KEYS) {
        napier_turned_keys(NAPIER_TURNED_KEYS, p, key);
    }
    for (; key < p->keys; key += NAPIER_TURNED_REST) {
        napier_turned_keys(NAPIER_TURNED_REST, p, key);
    }
}

#undef NAPIER_TURNED_KEYS
#undef NAPIER_TURNED_VECTORS
#undef NAPIER_TURNED_REST

static void napier_attention_scale(float *c, int64_t step, int64_t rows, int64_t cols, float factor) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i += 16) {
            const vf x = vf_add(vf_load(c + r * step + i), vf_zero());
            vf_store(c + r * step + i, vf_mul(x, vf_set(factor)));
        }
    }
}

static bool napier_attention_any_special(const float *x, int64_t n) {
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += 16) {
        sum = vf_fma(vf_load(x + i), vf_zero(), sum);
    }
    return vm_any(vf_unordered(sum, sum));
}

#endif
