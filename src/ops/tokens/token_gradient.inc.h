/* ops/tokens/token_gradient.inc.h - the gradient of a row of logits, given its final. Compiled once per
 * instruction set. An element that is not a chosen id is
 *     p (base - entropy log p) + constant,   with the bits of softmax for p and of log_softmax for log p,
 * times the softcap's derivative. A chosen element has its own value, which is in double up to this point. */
#ifndef NAPIER_OPS_TOKENS_TOKEN_GRADIENT_INC_H
#define NAPIER_OPS_TOKENS_TOKEN_GRADIENT_INC_H

#include "ops/tokens/token_rows.inc.h"

/* A slope, broadcast to lanes. */
typedef struct napier_token_lines {
    napier_writer w;
    vf magic, cutoff, base, entropy, constant;
} napier_token_lines;

/* plain: entropy is 0, so base - entropy log p is base. */
NAPIER_KERNEL vf napier_token_slope_of(const napier_token_lines *l, vf z, vf term, bool care, bool plain) {
    if (care) {
        term = vf_keep(vf_ge(z, l->cutoff), term);
    }
    const vf p = napier_probs16(&l->w, term, care);
    if (plain) {
        return vf_fma(p, l->base, l->constant);
    }
    const vf log_p = vf_sub(vf_sub(z, l->w.max), l->w.log_sum);
    const vf v = vf_fma(p, vf_fnma(l->entropy, log_p, l->base), l->constant);
    return care ? vf_select(vf_eq(p, vf_zero()), l->constant, v) : v;
}

NAPIER_KERNEL vf napier_token_slope16(const napier_token_lines *l, vf z, bool care, bool plain) {
    return napier_token_slope_of(l, z, vf_exp_scaled(z, l->magic), care, plain);
}

NAPIER_KERNEL void napier_token_slope64(const napier_token_lines *l, const float *z, bool care, bool plain,
                                        float *out) {
    vf x[4], term[4];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = vf_load(z + 16 * i);
    }
    vf_exp_scaled_side_by_side(4, x, l->magic, term);
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        vf_store(out + 16 * i, napier_token_slope_of(l, x[i], term[i], care, plain));
    }
}

NAPIER_KERNEL napier_token_lines napier_token_lines_of(const napier_final *final, const napier_token_slope *slope) {
    return (napier_token_lines){napier_writer_of(final->max, final->log_sum, final->scale, final->max_prob),
                                vf_set(napier_term_magic(final->exponent)),
                                vf_set(final->max - NAPIER_CUTOFF),
                                vf_set(slope->base),
                                vf_set(slope->entropy),
                                vf_set(slope->constant)};
}

/* Are all probabilities normal numbers, the smallest being that of min? */
NAPIER_KERNEL bool napier_token_is_normal(const napier_final *final, float min) {
    return (min - final->max) - final->log_sum >= NAPIER_NORMAL_LOG_PROB;
}

NAPIER_KERNEL void napier_token_slopes_as(const napier_final *final, const napier_token_slope *slope, const float *z,
                                          int n, bool care, bool plain, float *out) {
    const napier_token_lines l = napier_token_lines_of(final, slope);
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        napier_token_slope64(&l, z + i, care, plain, out + i);
    }
    for (; i + 16 <= n; i += 16) {
        vf_store(out + i, napier_token_slope16(&l, vf_load(z + i), care, plain));
    }
    if (i < n) {
        vf_store(out + i, napier_token_slope16(&l, vf_load_part(z + i, n - i, l.w.max), care, plain));
    }
}

static float napier_token_least(const vf least[4]) {
    const vf min = vf_min(vf_min(least[0], least[1]), vf_min(least[2], least[3]));
    return -vf_hmax(vf_sub(vf_zero(), min));
}

/* The most frequent case in one pass over a tile of logits. Returns false, and leaves anything in out, unless all
 * probabilities are normal numbers. */
NAPIER_KERNEL bool napier_token_slopes_once(const napier_dtype dtype, const napier_final *final,
                                            const napier_token_slope *slope, const void *x, int n, float *out) {
    const napier_token_lines l = napier_token_lines_of(final, slope);
    vf least[4];
    int i = 0;
    for (int j = 0; j < 4; j++) {
        least[j] = l.w.max;
    }
    for (; i + 64 <= n; i += 64) {
        vf z[4], term[4];
        NAPIER_UNROLL
        for (int j = 0; j < 4; j++) {
            z[j] = napier_load16(napier_at(x, dtype, i + 16 * j), dtype);
            least[j] = vf_min(z[j], least[j]);
        }
        vf_exp_scaled_side_by_side(4, z, l.magic, term);
        NAPIER_UNROLL
        for (int j = 0; j < 4; j++) {
            vf_store(out + i + 16 * j, napier_token_slope_of(&l, z[j], term[j], false, true));
        }
    }
    for (; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        const vf z = napier_load_part(napier_at(x, dtype, i), dtype, part, l.w.max);
        least[0] = vf_min(z, least[0]);
        vf_store(out + i, napier_token_slope16(&l, z, false, true));
    }
    return napier_token_is_normal(final, napier_token_least(least));
}

static bool napier_token_slopes_of_logits(const napier_token_job *job, int64_t row, int64_t begin, int n,
                                          const napier_final *final, const napier_token_slope *slope, float *out) {
    const napier_const_matrix *m = &job->x;
    const void *x = napier_at(m->data, m->dtype, row * m->row_stride + begin);
    switch (m->dtype) {
    case NAPIER_F32: return napier_token_slopes_once(NAPIER_F32, final, slope, x, n, out);
    case NAPIER_F16: return napier_token_slopes_once(NAPIER_F16, final, slope, x, n, out);
    default: return napier_token_slopes_once(NAPIER_BF16, final, slope, x, n, out);
    }
}

/* May napier_token_slopes_of_logits be used? */
static bool napier_token_is_plain(const napier_token_job *job, const napier_final *final,
                                  const napier_token_slope *slope) {
    const bool untouched = job->rules.softcap == 0.0f && !job->rules.keep && job->rules.temperature == 1.0f;
    const bool ordinary = final->kind == NAPIER_ROW_FINITE && !napier_is_big(final->max);
    return untouched && ordinary && job->x.col_stride == 1 && slope->entropy == 0.0f && slope->base != 0.0f &&
           !slope->nan && !slope->zero;
}

/* ---- From kept terms --------------------------------------------------------------------------------------------- */

/* Can the terms of a full tile become its gradient by one multiplication each? They are relative to the exponent of their
 * own tile, so scale, a power of two away from that of the row, gives the same products. */
static bool napier_token_has_terms(const napier_final *final, const napier_token_slots *slots, int64_t tile,
                                   float *scale) {
    const float least = slots && slots->terms ? slots->least[tile] : napier_nan();
    if (!napier_token_is_normal(final, least)) {
        return false;
    }
    const int64_t down = final->exponent - napier_exp_parts_small(slots->max[tile]).n;
    *scale = final->scale * napier_power_of_two(-down);
    return down <= 20;
}

NAPIER_KERNEL void napier_token_slopes_from_terms(const napier_token_lines *l, const float *terms, vf slopes[4]) {
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        const vf p = vf_min(vf_mul(vf_load(terms + 16 * i), l->w.scale), l->w.max_prob);
        slopes[i] = vf_fma(p, l->base, l->constant);
    }
}

/* 64 of a tile of bf16, in the order of their even and odd elements. */
NAPIER_KERNEL void napier_token_slopes_from_bf16(const napier_token_lines *l, const char *x, vf least[4],
                                                 vf slopes[4]) {
    vf z[4], term[4];
    NAPIER_UNROLL
    for (int i = 0; i < 2; i++) {
        const vi pairs = vi_load((const int32_t *)(const void *)(x + 64 * i));
        z[2 * i] = napier_bf16_even(pairs);
        z[2 * i + 1] = napier_bf16_odd(pairs);
    }
    vf_exp_scaled_side_by_side(4, z, l->magic, term);
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        least[i] = vf_min(z[i], least[i]);
        slopes[i] = napier_token_slope_of(l, z[i], term[i], false, true);
    }
}

/* A full tile of bf16 to bf16. terms: NULL if there are none. Returns false as napier_token_slopes_once. */
NAPIER_KERNEL bool napier_token_slopes_bf16(const napier_final *final, const napier_token_lines *l, const char *x,
                                            const float *terms, float *out) {
    vf least[4] = {l->w.max, l->w.max, l->w.max, l->w.max};
    for (int i = 0; i < NAPIER_TILE; i += 64) {
        vf slopes[4];
        if (terms) {
            napier_token_slopes_from_terms(l, terms + i, slopes);
        } else {
            napier_token_slopes_from_bf16(l, x + 2 * i, least, slopes);
        }
        vf_store(out + i / 2, vf_from_bits(napier_bf16_pairs(slopes[0], slopes[1])));
        vf_store(out + i / 2 + 16, vf_from_bits(napier_bf16_pairs(slopes[2], slopes[3])));
    }
    return terms || napier_token_is_normal(final, napier_token_least(least));
}

/* Writes a tile of bf16 that has been computed. */
static void napier_token_put(const float *out, void *y, bool stream) {
    if (!stream || ((uintptr_t)y & 63) != 0) {
        memcpy(y, out, NAPIER_TILE * sizeof(uint16_t));
        return;
    }
    for (int i = 0; i < NAPIER_TILE / 2; i += 16) {
        vf_stream((float *)y + i, vf_load(out + i));
    }
}

static bool napier_token_chosen_in(const napier_token_slope *slope, int64_t column, int n) {
    bool in = false;
    for (int64_t k = 0; k < slope->count; k++) {
        in = in || (slope->ids[k] >= column && slope->ids[k] < column + n);
    }
    return in;
}

/* The whole of a full tile of bf16 to bf16 without chosen ids, if its probabilities are normal numbers. */
static bool napier_token_gradient_bf16(const napier_token_job *job, int64_t row, int64_t begin,
                                       const napier_final *final, const napier_token_slope *slope,
                                       const napier_token_slots *slots, void *y, bool stream, float *out) {
    const char *x = napier_at(job->x.data, NAPIER_BF16, row * job->x.row_stride + begin);
    const int64_t tile = begin / NAPIER_TILE;
    napier_token_lines l = napier_token_lines_of(final, slope);
    float scale;
    if (napier_token_has_terms(final, slots, tile, &scale)) {
        l.w.scale = vf_set(scale);
        napier_token_slopes_bf16(final, &l, x, slots->terms + begin, out);
    } else if (!napier_token_slopes_bf16(final, &l, x, NULL, out)) {
        return false;
    }
    napier_token_put(out, y, stream);
    return true;
}

/* A full tile of f32 from its terms, if it has them. */
static bool napier_token_slopes_kept(const napier_final *final, const napier_token_slope *slope,
                                     const napier_token_slots *slots, int64_t begin, float *out) {
    napier_token_lines l = napier_token_lines_of(final, slope);
    float scale;
    if (!napier_token_has_terms(final, slots, begin / NAPIER_TILE, &scale)) {
        return false;
    }
    l.w.scale = vf_set(scale);
    for (int i = 0; i < NAPIER_TILE; i += 64) {
        vf slopes[4];
        napier_token_slopes_from_terms(&l, slots->terms + begin + i, slopes);
        NAPIER_UNROLL
        for (int j = 0; j < 4; j++) {
            vf_store(out + i + 16 * j, slopes[j]);
        }
    }
    return true;
}

/* ---- Any tile ---------------------------------------------------------------------------------------------------- */

static void napier_token_slopes_by_definition(const napier_final *final, const napier_token_slope *slope,
                                              const float *z, int n, float *out) {
    for (int i = 0; i < n; i++) {
        const float p = napier_softmax_of(final, z[i]);
        const float factor = fmaf(-slope->entropy, napier_log_softmax_of(final, z[i]), slope->base);
        out[i] = p == 0.0f ? slope->constant : fmaf(p, factor, slope->constant);
    }
}

/* Writes the elements of chosen ids in columns [column, column + n): each gets its start and the gradients of all ids
 * that name it. During the addition, an element holds the number of the first id that named it. */
static void napier_token_slopes_chosen(const napier_token_slope *slope, int64_t column, int n, float *out) {
    const uint32_t nobody = UINT32_MAX;
    for (int64_t k = 0; k < slope->count; k++) {
        const int64_t i = slope->ids[k] - column;
        if (i >= 0 && i < n) {
            memcpy(out + i, &nobody, sizeof nobody);
            slope->sum[k] = 0.0;
        }
    }
    for (int64_t k = 0; k < slope->count; k++) {
        const int64_t i = slope->ids[k] - column;
        if (i >= 0 && i < n) {
            uint32_t first;
            memcpy(&first, out + i, sizeof first);
            if (first == nobody) {
                first = (uint32_t)k;
                memcpy(out + i, &first, sizeof first);
                slope->sum[k] = slope->start[k];
            }
            slope->sum[first] += slope->own[k];
        }
    }
    for (int64_t k = slope->count - 1; k >= 0; k--) { /* the first id that named an element is processed last */
        const int64_t i = slope->ids[k] - column;
        if (i >= 0 && i < n) {
            out[i] = (float)slope->sum[k];
        }
    }
}

/* Multiplies by the softcap's derivative, writes 0 where keep is 0, and makes NaNs canonical. */
static void napier_token_slopes_end(const float *derivative, const uint8_t *keep, int n, float *out) {
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        vf v = vf_load_part(out + i, part, vf_zero());
        v = derivative ? vf_mul(v, vf_load_part(derivative + i, part, vf_zero())) : v;
        v = keep ? vf_keep(napier_kept16(keep + i, part), v) : v;
        vf_store_part(out + i, part, vf_select(vf_unordered(v, v), vf_canonical_nan(), v));
    }
}

static void napier_token_slopes(const napier_final *final, const napier_token_slope *slope, const napier_looked *looked,
                                int n, float *out) {
    const float min = -vf_hmax(vf_sub(vf_zero(), looked->range.min));
    if (final->kind != NAPIER_ROW_FINITE) {
        for (int i = 0; i < n; i++) {
            out[i] = napier_nan();
        }
    } else if (napier_is_big(final->max)) {
        napier_token_slopes_by_definition(final, slope, looked->z, n, out);
    } else if (napier_token_is_normal(final, min)) {
        if (slope->entropy == 0.0f && slope->base != 0.0f) { /* the general formula would lose the sign of a base of
                                                                -0 */
            napier_token_slopes_as(final, slope, looked->z, n, false, true, out);
        } else {
            napier_token_slopes_as(final, slope, looked->z, n, false, false, out);
        }
    } else {
        napier_token_slopes_as(final, slope, looked->z, n, true, false, out);
    }
}

static void napier_token_gradient(const napier_token_job *job, int64_t row, int64_t begin, int64_t end,
                                  const napier_final *final, const napier_token_slope *slope,
                                  const napier_token_slots *slots, napier_matrix y, bool stream, float *scratch) {
    float *room = scratch, *derivative = scratch + NAPIER_TILE + 16, *out = derivative + NAPIER_TILE + 16;
    const napier_const_matrix *x = &job->x;
    const bool capped = job->rules.softcap != 0.0f;
    bool plain = napier_token_is_plain(job, final, slope);
    const bool narrow = x->dtype == NAPIER_BF16 && y.dtype == NAPIER_BF16 && y.col_stride == 1;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        const uint8_t *keep = napier_token_keep(&job->rules, row, i);
        void *to = napier_at_out(y.data, y.dtype, row * y.row_stride + i * y.col_stride);
        if (slope->zero) {
            memset(out, 0, (size_t)n * sizeof *out);
            napier_scatter(out, n, to, y.dtype, y.col_stride, stream);
            continue;
        }
        if (plain && narrow && n == NAPIER_TILE && !napier_token_chosen_in(slope, i, n) &&
            napier_token_gradient_bf16(job, row, i, final, slope, slots, to, stream, out)) {
            continue;
        }
        const bool kept = plain && x->dtype == NAPIER_F32 && napier_token_slopes_kept(final, slope, slots, i, out);
        plain = plain && (kept || napier_token_slopes_of_logits(job, row, i, n, final, slope, out));
        if (plain) {
            napier_token_slopes_chosen(slope, i, n, out);
            napier_scatter(out, n, to, y.dtype, y.col_stride, stream);
            continue;
        }
        napier_looked looked;
        if (capped) {
            napier_token_widen(napier_at(x->data, x->dtype, row * x->row_stride + i * x->col_stride), x->dtype,
                               x->col_stride, n, room);
            napier_token_apply(&job->rules, keep, n, room, derivative);
            looked = napier_look(room, NAPIER_F32, 1, 1.0f, n, room);
        } else {
            looked = napier_token_look(job, row, i, n, room);
        }
        napier_token_slopes(final, slope, &looked, n, out);
        if (final->kind == NAPIER_ROW_FINITE) {
            napier_token_slopes_chosen(slope, i, n, out);
        }
        if (capped || keep || slope->nan || final->kind != NAPIER_ROW_FINITE) {
            napier_token_slopes_end(capped ? derivative : NULL, keep, n, out);
        }
        napier_scatter(out, n, to, y.dtype, y.col_stride, stream);
    }
    if (stream) {
        vf_stream_fence();
    }
}

#endif
