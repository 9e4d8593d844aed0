/* ops/softmax/softmax.inc.h - the kernels of softmax, log_softmax and logsumexp; compiled once per instruction set.
 *
 * A row takes three passes:
 *   scan    its maximum and minimum; 16-bit, strided and tempered input is widened into scratch memory. In names: look
 *   sum     the terms exp(x - E ln 2) 2^64 of a tile, added in 256 lanes; the maximum itself is counted, not added.
 *           softmax keeps the terms, so that there is one exp per element
 *   write   terms * scale, or (x - max) - log_sum
 * Between sum and write, `finish` turns maximum, count and rest into scale and log_sum, for 16 rows at a time.
 *
 * There are three layouts: rows along the vectors (short_rows, and tile by tile for long rows), 16 rows in the lanes of
 * one vector (up to 16 columns, after a transpose: lanes.inc.h), and rows that are columns in memory (columns.inc.h). All do
 * the operations of napier_tile_by_definition and napier_sum_finish (sum.h) in the same order. That is the contract. */
#ifndef NAPIER_OPS_SOFTMAX_SOFTMAX_INC_H
#define NAPIER_OPS_SOFTMAX_SOFTMAX_INC_H

#include "core/math/elements.h"
#include "ops/softmax/softmax_kernels.h"

/* Calls f with the operation as a constant first argument, as NAPIER_FOR_DTYPE. */
#define NAPIER_FOR_OP(op_, f_, ...)                                            \
    ((op_) == NAPIER_OP_SOFTMAX       ? f_(NAPIER_OP_SOFTMAX, __VA_ARGS__)     \
     : (op_) == NAPIER_OP_LOG_SOFTMAX ? f_(NAPIER_OP_LOG_SOFTMAX, __VA_ARGS__) \
                                      : f_(NAPIER_OP_LOGSUMEXP, __VA_ARGS__))

/* ---- Scan: maximum and minimum, widening on the way ---------------------------------------------------------------- */

/* What a scan finds. A NaN is detected by a sum of the elements: an addition can run beside the FMAs, a compare into a
 * mask cannot (AMD). The sum may also be NaN because of infinities, so code that handles NaN must
 * check the elements. */
typedef struct napier_range {
    vf max, min; /* per lane; NaN is ignored */
    vf sum;      /* NaN if an element is NaN */
} napier_range;

NAPIER_KERNEL vf napier_infinity(void) { return vf_from_bits(vi_set(0x7f800000)); }
NAPIER_KERNEL vf napier_minus_infinity(void) { return vf_set(-INFINITY); }

NAPIER_KERNEL napier_range no_range(void) {
    return (napier_range){napier_minus_infinity(), napier_infinity(), vf_zero()};
}
NAPIER_KERNEL napier_range range_join(napier_range a, napier_range b) {
    return (napier_range){vf_max(a.max, b.max), vf_min(a.min, b.min), vf_add(a.sum, b.sum)};
}
NAPIER_KERNEL napier_range range_add(napier_range r, vf v) {
    return (napier_range){vf_max(v, r.max), vf_min(v, r.min), vf_add(r.sum, v)};
}
/* The first n lanes of v; the others are -inf. */
NAPIER_KERNEL napier_range range_add_part(napier_range r, vf v, int n) {
    return (napier_range){vf_max(v, r.max), vf_min(vf_select(vm_first(n), v, napier_infinity()), r.min),
                          vf_add(r.sum, v)};
}
NAPIER_KERNEL vm napier_range_nan(napier_range r) { return vf_unordered(r.sum, r.sum); }

/* Memory takes longer to answer than the exponentials of 2 KB take; 4 KB are not enough, 16 KB no better. A store to a
 * line that is not in a cache waits for it too, while others fill the store buffer: lines are fetched for the stores
 * as well, and those only just in time, so that they are still in the first-level cache. */
enum { NAPIER_PREFETCH_BYTES = 8192, NAPIER_WRITE_AHEAD_BYTES = 2048 };

/* Fetches what lies ahead of a result that is stored to a cache. */
NAPIER_KERNEL void napier_fetch_to_write(const void *y) {
    __builtin_prefetch((const void *)((uintptr_t)y + NAPIER_WRITE_AHEAD_BYTES), 1);
}

/* Scans n contiguous elements: writes z = x / temperature to `z` (if pack is true) and
 * returns their range. Whole vectors are stored. */
NAPIER_KERNEL napier_range look_as(napier_dtype dtype, const void *x, bool divide, vf temperature, bool pack, int n,
                                   float *z) {
    napier_range a = no_range(), b = a;
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const char *p = (const char *)napier_at(x, dtype, i);
        __builtin_prefetch(p + NAPIER_PREFETCH_BYTES);
        if (dtype == NAPIER_F32) {
            __builtin_prefetch(p + NAPIER_PREFETCH_BYTES + 64);
        }
        vf u = napier_load16(p, dtype), v = napier_load16(napier_at(x, dtype, i + 16), dtype);
        if (divide) {
            u = vf_div(u, temperature);
            v = vf_div(v, temperature);
        }
        if (pack) {
            vf_store(z + i, u);
            vf_store(z + i + 16, v);
        }
        a = range_add(a, u);
        b = range_add(b, v);
    }
    if (i + 16 <= n) {
        __builtin_prefetch((const char *)napier_at(x, dtype, i) + NAPIER_PREFETCH_BYTES);
        vf u = napier_load16(napier_at(x, dtype, i), dtype);
        u = divide ? vf_div(u, temperature) : u;
        if (pack) {
            vf_store(z + i, u);
        }
        a = range_add(a, u);
        i += 16;
    }
    if (i < n) {
        vf u = napier_load_part(napier_at(x, dtype, i), dtype, n - i, napier_minus_infinity());
        u = divide ? vf_div(u, temperature) : u;
        if (pack) {
            vf_store(z + i, u);
        }
        b = range_add_part(b, u, n - i);
    }
    return range_join(a, b);
}

static void napier_gather(const void *x, napier_dtype dtype, int64_t stride, int64_t n, float *z) {
    if (dtype == NAPIER_F32) {
        for (int64_t i = 0; i < n; i++) {
            z[i] = ((const float *)x)[i * stride];
        }
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? (int)(n - i) : 16;
        uint16_t lanes[16] = {0};
        for (int j = 0; j < part; j++) {
            lanes[j] = ((const uint16_t *)x)[(i + j) * stride];
        }
        vf_store_part(z + i, part, napier_load16(lanes, dtype));
    }
}

/* A row, or a tile of it, after the scan. Functions take its address: under AddressSanitizer clang 14 puts a vector among the
 * arguments at an address that its own load refuses. */
typedef struct napier_looked {
    const float *z; /* the widened elements: the input itself if it is plain f32, otherwise scratch */
    napier_range range;
} napier_looked;

/* `z` has space for n elements rounded up to whole vectors. */
NAPIER_KERNEL napier_looked napier_look(const void *x, napier_dtype dtype, int64_t stride, float temperature, int n,
                                        float *z) {
    const vf t = vf_set(temperature);
    if (stride != 1) {
        napier_gather(x, dtype, stride, n, z);
        return (napier_looked){z, look_as(NAPIER_F32, z, true, t, true, n, z)};
    }
    if (temperature != 1.0f) {
        return (napier_looked){z, NAPIER_FOR_DTYPE(dtype, look_as, x, true, t, true, n, z)};
    }
    if (dtype == NAPIER_F32) {
        return (napier_looked){(const float *)x, look_as(NAPIER_F32, x, false, t, false, n, z)};
    }
    return (napier_looked){z, dtype == NAPIER_BF16 ? look_as(NAPIER_BF16, x, false, t, true, n, z)
                                                   : look_as(NAPIER_F16, x, false, t, true, n, z)};
}

NAPIER_SLOT void pack_row(const void *x, napier_dtype dtype, int64_t stride, int64_t n, float temperature, float *z) {
    for (int64_t i = 0; i < n; i += NAPIER_TILE) {
        const int part = n - i < NAPIER_TILE ? (int)(n - i) : NAPIER_TILE;
        float tile[NAPIER_TILE];
        const napier_looked looked =
            napier_look(napier_at(x, dtype, i * stride), dtype, stride, temperature, part, tile);
        memcpy(z + i, looked.z, (size_t)part * sizeof *z);
    }
}

/* ---- Sum: the terms of one tile ------------------------------------------------------------------------------------ */

/* The maximum of a tile without NaN, |max| <= 2^20, and constants derived from it. */
typedef struct napier_adder {
    vf max, cutoff, magic;
} napier_adder;

/* A maximum of +0 becomes -0: z - max is then +0 for zeros of both signs, and not below. */
NAPIER_KERNEL napier_adder napier_adder_of(float max, float magic) {
    return (napier_adder){vf_set(-(0.0f - max)), vf_set(max - NAPIER_CUTOFF), vf_set(magic)};
}

/* 1.5 * 2^23 + 64 - E: with it vf_exp_scaled gives terms relative to E, times 2^64. */
NAPIER_KERNEL float napier_term_magic(int64_t exponent) {
    return NAPIER_ROUND_MAGIC + (float)(NAPIER_TERM_SCALE - exponent);
}

/* What is left to do of 16 terms once x is reduced. An exponential is a chain of 12 operations, each of which waits for the one
 * before: a loop may reduce the next 16 elements before it ends these. */
typedef struct napier_reduced {
    vf r, shifted;
} napier_reduced;

NAPIER_KERNEL napier_reduced reduce16(const napier_adder *a, vf z) {
    vf shifted, n;
    const vf r = vf_exp_reduce(z, a->magic, &shifted, &n);
    return (napier_reduced){vf_hold(r), vf_hold(shifted)};
}

/* 16 terms. Returns those below the maximum, and 0 for the maximum itself. *below decreases by one for each term below
 * the maximum. cut: some elements may be more than NAPIER_CUTOFF below the maximum; their terms are 0. */
NAPIER_KERNEL vf end_terms16(const napier_adder *a, vf z, napier_reduced e, bool cut, bool keep, float *terms,
                             vi *below) {
    vf term = vf_exp_reduced(e.r, e.shifted);
    const vi sign = vi_less(z, a->max);
    *below = vi_add(*below, sign);
    if (cut) {
        term = vf_keep(vf_ge(z, a->cutoff), term);
    }
    if (keep) {
        vf_store(terms, term);
    }
    return vf_from_bits(vi_and(vf_bits(term), sign));
}

NAPIER_KERNEL vf terms16(const napier_adder *a, vf z, bool cut, bool keep, float *terms, vi *below) {
    return end_terms16(a, z, reduce16(a, z), cut, keep, terms, below);
}

/* The sum of a tile in 16 lanes, folded from 256, and per lane minus the number of elements below the maximum. */
typedef struct napier_lanes {
    vf rest;
    vi below;
} napier_lanes;

/* Folds the lanes by halves, 128, 64, 32, 16, to one vector. Missing lanes count as +0. */
NAPIER_KERNEL vf napier_fold_lanes(vf *lane, int vectors) {
    NAPIER_UNROLL
    for (int half = 8; half > 0; half /= 2) {
        NAPIER_UNROLL
        for (int v = 0; v < half; v++) {
            if (v + half < vectors) {
                lane[v] = vf_add(lane[v], lane[v + half]);
            }
        }
    }
    return lane[0];
}

/* vectors: (n + 15) / 16, at most 16; a constant where that makes it faster. Lanes past the end count as maxima. */
NAPIER_KERNEL napier_lanes sum_lanes(const float *z, int n, int vectors, const napier_adder *a, bool cut, bool keep,
                                     float *terms) {
    vf lane[16];
    vi below = vi_set(0);
    for (int v = 0; v < vectors; v++) {
        int i = v * 16;
        vf sum;
        if (i + 16 <= n) {
            sum = terms16(a, vf_load(z + i), cut, keep, terms + i, &below);
            NAPIER_UNROLL
            for (i += NAPIER_TILE_LANES; i + 16 <= n; i += NAPIER_TILE_LANES) {
                sum = vf_add(sum, terms16(a, vf_load(z + i), cut, keep, terms + i, &below));
            }
            if (i < n) {
                sum = vf_add(sum, terms16(a, vf_load_part(z + i, n - i, a->max), cut, keep, terms + i, &below));
            }
        } else {
            sum = terms16(a, vf_load_part(z + i, n - i, a->max), cut, keep, terms + i, &below);
        }
        lane[v] = sum;
    }
    return (napier_lanes){napier_fold_lanes(lane, vectors), below};
}

/* A full tile whose elements are all within the cutoff: all 64 vectors in one straight loop. */
NAPIER_KERNEL napier_lanes sum_full_tile(const float *z, const napier_adder *a, bool keep, float *terms) {
    vf lane[16];
    vi below = vi_set(0);
    for (int v = 0; v < 16; v++) {
        const int i = v * 16;
        vf sum = terms16(a, vf_load(z + i), false, keep, terms + i, &below);
        sum = vf_add(sum, terms16(a, vf_load(z + i + 256), false, keep, terms + i + 256, &below));
        sum = vf_add(sum, terms16(a, vf_load(z + i + 512), false, keep, terms + i + 512, &below));
        lane[v] = vf_add(sum, terms16(a, vf_load(z + i + 768), false, keep, terms + i + 768, &below));
    }
    return (napier_lanes){napier_fold_lanes(lane, 16), below};
}

NAPIER_KERNEL int napier_lane_vectors(int n) { return n >= NAPIER_TILE_LANES ? 16 : (n + 15) / 16; }

/* How many of n elements are not below the maximum. */
NAPIER_KERNEL int not_below(int n, vi below) { return n + (int)vf_hadd(vf_from_int(below)); }

static napier_lanes tile_lanes(const float *z, int n, float max, bool cut, float *terms) {
    const napier_adder a = napier_adder_of(max, napier_term_magic(napier_exp_parts_small(max).n));
    const int vectors = napier_lane_vectors(n);
    if (cut) {
        return terms ? sum_lanes(z, n, vectors, &a, true, true, terms)
                     : sum_lanes(z, n, vectors, &a, true, false, NULL);
    }
    if (n == NAPIER_TILE) {
        return terms ? sum_full_tile(z, &a, true, terms) : sum_full_tile(z, &a, false, NULL);
    }
    return terms ? sum_lanes(z, n, vectors, &a, false, true, terms) : sum_lanes(z, n, vectors, &a, false, false, NULL);
}

/* Sums any tile. Returns whether `terms` were kept; they are not if the maximum is
 * infinite or beyond 2^20, or there is a NaN. */
static bool looked_tile(const napier_looked *looked, int n, float *terms, napier_tile_sum *t) {
    const float max = vf_hmax(looked->range.max);
    if (!(fabsf(max) <= NAPIER_BIG) || vm_any(napier_range_nan(looked->range))) {
        napier_tile_by_definition(looked->z, n, t);
        return false;
    }
    const float min = -vf_hmax(vf_sub(vf_zero(), looked->range.min));
    const napier_lanes lanes = tile_lanes(looked->z, n, max, !(min >= max - NAPIER_CUTOFF), terms);
    *t = (napier_tile_sum){max, min, vf_hadd(lanes.rest), not_below(n, lanes.below), false};
    return terms;
}

NAPIER_SLOT void tile_sum_of(const float *z, int n, napier_tile_sum *t) {
    const napier_looked looked = napier_look(z, NAPIER_F32, 1, 1.0f, n, NULL);
    looked_tile(&looked, n, NULL, t);
}

/* ---- Finish: 16 rows at a time, as napier_final_outputs (sum.h) ---------------------------------------------------- */

typedef struct napier_finals {
    vf lse, log_sum, max_prob, scale;
} napier_finals;

/* exp of the maximum, p 2^E; magic as in napier_term_magic(E). */
typedef struct napier_maxima {
    vf p, magic;
} napier_maxima;

NAPIER_KERNEL napier_maxima napier_maxima_of(vf max) {
    vf shifted, n;
    const vf r = vf_exp_reduce(max, vf_set(NAPIER_ROUND_MAGIC), &shifted, &n);
    return (napier_maxima){vf_exp_polynomial(r), vf_sub(vf_set(NAPIER_ROUND_MAGIC + NAPIER_TERM_SCALE), n)};
}

/* The double operations of napier_final_prob: max_prob, and the scale times 2^64 before it is adjusted. */
static vf prob16(vf p, vf count, vf rest, vf *inverse) {
    const vd pd = vd_from_vf(p), sum = vd_fma(vd_from_vf(rest), vd_set(0x1p-64), vd_mul(vd_from_vf(count), pd));
    const vd quotient = vd_div(vd_set(1.0), sum);
    *inverse = vd_to_vf(quotient);
    return vd_to_vf(vd_mul(pd, quotient));
}

/* The same floats from pairs of floats, without doubles, which take three times as long. A pair errs by less than 2^-44,
 * the double operations by less than 2^-51. So a number that rounds to one float when 2^-42 is added to it and when that is
 * subtracted gives this float. For other numbers, in one call of some 4000, *sure is false. two: count is 1, and rest is a
 * term of at most p. */
NAPIER_KERNEL vf pair_prob16(bool two, vf p, vf count, vf rest, vf *inverse, vm *sure) {
    const vf unit = vf_set(0x1p-64f), one = vf_set(1.0f), slack = vf_set(0x1p-42f);
    const vf maxima = two ? p : vf_mul(count, p), high = vf_fma(rest, unit, maxima);
    const vf without = vf_sub(maxima, high); /* about -rest */
    vf low = vf_fma(rest, unit, without);    /* what high has lost, if rest is the smaller part */
    if (!two) {
        const vf lost = vf_add(vf_sub(maxima, vf_add(high, without)), low);
        low = vf_sub(lost, vf_fnma(count, p, maxima));
    }
    const vf near = vf_div(one, high), error = vf_fnma(low, near, vf_fnma(high, near, one));
    const vf less = vf_sub(error, slack), more = vf_add(error, slack); /* 1 / (high + low) is near (1 + error) */
    *inverse = vf_fma(near, less, near);
    const vf prob = vf_mul(p, near), above = vf_fnma(p, near, prob); /* p near = prob - above */
    const vf max_prob = vf_sub(prob, vf_fnma(prob, less, above));
    const vf most = vf_sub(prob, vf_fnma(prob, more, above));
    *sure = vm_and(vf_eq(*inverse, vf_fma(near, more, near)), vf_eq(max_prob, most));
    return max_prob;
}

/* max_prob and scale, as napier_final_prob. In plain C an fma is a call, so pairs are slower there. */
NAPIER_KERNEL napier_finals napier_finish_prob16(bool two, vf p, vf count, vf rest) {
    vf inverse, max_prob;
#if defined(NAPIER_LANES_SCALAR)
    (void)two;
    max_prob = prob16(p, count, rest, &inverse);
#else
    vm sure;
    max_prob = pair_prob16(two, p, count, rest, &inverse, &sure);
    if (!vm_all(sure)) {
        max_prob = prob16(p, count, rest, &inverse);
    }
#endif
    const vm low = vf_lt(vf_mul(p, inverse), max_prob);
    const vi scale = vf_bits(vf_mul(inverse, vf_set(0x1p-64f)));
    return (napier_finals){vf_zero(), vf_zero(), max_prob, vf_from_bits(vi_add_where(low, scale, vi_set(1)))};
}

NAPIER_KERNEL napier_finals napier_finish16(napier_softmax_op op, vf max, vf p, vf count, vf rest_term) {
    if (op == NAPIER_OP_SOFTMAX) {
        return napier_finish_prob16(false, p, count, rest_term);
    }
    const vd unit = vd_set(0x1p-64); /* products with it are exact */
    const vd y = vd_fma(vd_quotient(rest_term, p), unit, vd_sub(vd_from_vf(count), vd_set(1.0)));
    const vd log_sum = vd_log1p(y);
    return (napier_finals){vd_to_vf(vd_add(vd_from_vf(max), log_sum)), vd_to_vf(log_sum), vf_zero(), vf_zero()};
}

/* ---- Write --------------------------------------------------------------------------------------------------------- */

/* At and above this log-probability every result is a normal number and every term has been kept. */
#define NAPIER_NORMAL_LOG_PROB (-87.0f)

/* softmax of 16 terms. If `care` is true, products below 2^-126 are rounded to the subnormal grid by
 * adding 2^-62 (2^23 steps of 2^-85) in the same fma: the low bits of the sum are the result. This
 * avoids subnormal arithmetic, which is slow. */
typedef struct napier_writer {
    vf max, log_sum, scale, max_prob, smallest, scale_up;
} napier_writer;

NAPIER_KERNEL napier_writer napier_writer_of(float max, float log_sum, float scale, float max_prob) {
    const float up = scale * 0x1p64f;
    return (napier_writer){vf_set(max), vf_set(log_sum), vf_set(scale), vf_set(max_prob), vf_set(0x1.fffffp-63f / up),
                           vf_set(up)};
}

/* For results that are all normal numbers. */
NAPIER_KERNEL napier_writer plain_writer(float max, float log_sum, float scale, float max_prob) {
    return (napier_writer){vf_set(max), vf_set(log_sum), vf_set(scale), vf_set(max_prob), vf_zero(), vf_zero()};
}

NAPIER_KERNEL vf napier_probs16(const napier_writer *w, vf term, bool care) {
    if (!care) {
        return vf_min(vf_mul(term, w->scale), w->max_prob);
    }
    const vm normal = vf_ge(term, w->smallest);
    const vf product = vf_mul(vf_select(normal, term, vf_set(1.0f)), w->scale);
    const vf magic = vf_set(0x1p-62f);
    const vi tiny = vi_sub(vf_bits(vf_fma(term, w->scale_up, magic)), vf_bits(magic));
    return vf_min(vf_select(normal, product, vf_from_bits(tiny)), w->max_prob);
}

NAPIER_KERNEL vf result16(napier_softmax_op op, const napier_writer *w, vf value, bool care) {
    return op == NAPIER_OP_SOFTMAX ? napier_probs16(w, value, care) : vf_sub(vf_sub(value, w->max), w->log_sum);
}

/* How contiguous values become results. `writer` NULL: they are the results. Otherwise they are kept terms for softmax, z
 * for log_softmax; again: z also for softmax, whose terms are computed again, with `magic`. */
typedef struct napier_results {
    napier_softmax_op op;
    const napier_writer *writer;
    bool care, again;
    vf magic;
} napier_results;

NAPIER_KERNEL vf result_of16(const napier_results r, vf value) {
    if (!r.writer) {
        return value;
    }
    return result16(r.op, r.writer, r.again ? vf_exp_scaled(value, r.magic) : value, r.care);
}

/* Stores n results as contiguous elements of y, past the caches if `stream`, for which goes_past_caches must hold. y may be
 * the memory of the values. */
NAPIER_KERNEL void write_as(napier_dtype dtype, const napier_results r, const float *values, int64_t n, bool stream,
                            void *y) {
    const vf fill = r.writer ? r.writer->max : vf_zero();
    int64_t i = 0;
    if (stream) {
        float *out = (float *)y;
        i = (int64_t)(((size_t)(-(intptr_t)(uintptr_t)y) & 63) / 4); /* up to the next cache line */
        if (i > 0) {
            vf_store_part(out, (int)i, result_of16(r, vf_load_part(values, (int)i, fill)));
        }
        for (; i + 16 <= n; i += 16) {
            vf_stream(out + i, result_of16(r, vf_load(values + i)));
        }
    }
    for (; i + 16 <= n; i += 16) {
        napier_store16(napier_at_out(y, dtype, i), dtype, result_of16(r, vf_load(values + i)));
    }
    if (i < n) {
        const int rest = (int)(n - i);
        const vf v = result_of16(r, vf_load_part(values + i, rest, fill));
        napier_store_part(napier_at_out(y, dtype, i), dtype, rest, v);
    }
}

static bool goes_past_caches(const void *y, napier_dtype dtype, int64_t n, bool stream) {
    return stream && dtype == NAPIER_F32 && n >= 32 && ((uintptr_t)y & 3) == 0;
}

/* stride 1 only. */
static void write_values(napier_softmax_op op, const napier_writer *w, const float *values, int n, bool care, void *y,
                         napier_dtype dtype, bool stream) {
    const bool past = goes_past_caches(y, dtype, n, stream);
    const napier_results logs = {.op = NAPIER_OP_LOG_SOFTMAX, .writer = w};
    const napier_results careful = {.op = NAPIER_OP_SOFTMAX, .writer = w, .care = true};
    const napier_results plain = {.op = NAPIER_OP_SOFTMAX, .writer = w};
    if (op != NAPIER_OP_SOFTMAX && past) {
        write_as(NAPIER_F32, logs, values, n, true, y);
    } else if (op != NAPIER_OP_SOFTMAX) {
        NAPIER_FOR_DTYPE(dtype, write_as, logs, values, n, false, y);
    } else if (care) {
        NAPIER_FOR_DTYPE(dtype, write_as, careful, values, n, false, y);
    } else if (past) {
        write_as(NAPIER_F32, plain, values, n, true, y);
    } else {
        NAPIER_FOR_DTYPE(dtype, write_as, plain, values, n, false, y);
    }
}

/* Stores floats as elements of any dtype and stride. */
static void napier_scatter(const float *z, int64_t n, void *y, napier_dtype dtype, int64_t stride, bool stream) {
    if (stride == 1) {
        const napier_results copy = {.op = NAPIER_OP_SOFTMAX};
        if (goes_past_caches(y, dtype, n, stream)) {
            write_as(NAPIER_F32, copy, z, n, true, y);
        } else {
            NAPIER_FOR_DTYPE(dtype, write_as, copy, z, n, false, y);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? (int)(n - i) : 16;
        const vf v = vf_load_part(z + i, part, vf_zero());
        if (dtype == NAPIER_F32) {
            float lanes[16];
            vf_store(lanes, v);
            for (int j = 0; j < part; j++) {
                ((float *)y)[(i + j) * stride] = lanes[j];
            }
        } else {
            uint16_t lanes[16];
            vi_store_u16(lanes, napier_narrow(v, dtype));
            for (int j = 0; j < part; j++) {
                ((uint16_t *)y)[(i + j) * stride] = lanes[j];
            }
        }
    }
}

/* The value of every element of a row that is not finite. */
static float constant_result(napier_softmax_op op, const napier_final *final, napier_masked_rows masked) {
    if (final->kind == NAPIER_ROW_MASKED && masked == NAPIER_MASKED_ZERO) {
        return op == NAPIER_OP_SOFTMAX ? 0.0f : -INFINITY;
    }
    return napier_nan();
}

/* Results element by element, for rows whose maximum is infinite, NaN or beyond 2^20. out may be z. */
static void write_by_definition(napier_softmax_op op, const napier_final *final, napier_masked_rows masked,
                                const float *z, int n, float *out) {
    for (int i = 0; i < n; i++) {
        out[i] = final->kind != NAPIER_ROW_FINITE ? constant_result(op, final, masked)
                 : op == NAPIER_OP_SOFTMAX        ? napier_softmax_of(final, z[i])
                                                  : napier_log_softmax_of(final, z[i]);
    }
}

/* The terms of a row relative to its own maximum, when the row is read a second time. */
NAPIER_KERNEL void terms_as(const float *z, int n, vf cutoff, vf magic, bool cut, float *terms) {
    for (int i = 0; i < n; i += 16) {
        const vf v = i + 16 <= n ? vf_load(z + i) : vf_load_part(z + i, n - i, vf_add(cutoff, vf_set(NAPIER_CUTOFF)));
        const vf term = vf_exp_scaled(v, magic);
        vf_store(terms + i, cut ? vf_keep(vf_ge(v, cutoff), term) : term);
    }
}

/* Results of one tile of a row from its z and the row's final. `spare` has space for a tile; y may be
 * the memory of z. */
static void write_tile(napier_softmax_op op, const napier_final *final, napier_masked_rows masked,
                       const napier_looked *looked, int n, float *spare, void *y, napier_dtype dtype, int64_t stride,
                       bool stream) {
    if (final->kind != NAPIER_ROW_FINITE || (op == NAPIER_OP_SOFTMAX && napier_is_big(final->max))) {
        write_by_definition(op, final, masked, looked->z, n, spare);
    } else {
        const napier_writer w = napier_writer_of(final->max, final->log_sum, final->scale, final->max_prob);
        const float min = -vf_hmax(vf_sub(vf_zero(), looked->range.min));
        const bool care = !((min - final->max) - final->log_sum >= NAPIER_NORMAL_LOG_PROB);
        const float magic = op == NAPIER_OP_SOFTMAX ? napier_term_magic(final->exponent) : 0.0f;
        const bool direct = stride == 1 && final->factor == 1.0f;
        if (op == NAPIER_OP_SOFTMAX && !care && direct && dtype == NAPIER_F32) {
            const napier_results probs = {NAPIER_OP_SOFTMAX, &w, false, true, vf_set(magic)};
            if (goes_past_caches(y, dtype, n, stream)) {
                write_as(NAPIER_F32, probs, looked->z, n, true, y);
            } else {
                write_as(NAPIER_F32, probs, looked->z, n, false, y);
            }
            return;
        }
        const float *values = looked->z;
        if (op == NAPIER_OP_SOFTMAX) {
            terms_as(looked->z, n, vf_set(final->max - NAPIER_CUTOFF), vf_set(magic), care, spare);
            values = spare;
        }
        if (direct) {
            write_values(op, &w, values, n, care, y, dtype, stream);
            return;
        }
        write_values(op, &w, values, n, care, spare, NAPIER_F32, false);
    }
    if (final->factor != 1.0f) {
        for (int i = 0; i < n; i += 16) {
            const vf v = vf_mul(vf_load(spare + i), vf_set(final->factor));
            vf_store(spare + i, vf_select(vf_unordered(v, v), vf_canonical_nan(), v));
        }
    }
    napier_scatter(spare, n, y, dtype, stride, stream);
}

/* ---- Rows of a job ------------------------------------------------------------------------------------------------ */

NAPIER_KERNEL const void *row_in(const napier_softmax_job *job, int64_t row) {
    return napier_at(job->x.data, job->x.dtype, row * job->x.row_stride);
}
NAPIER_KERNEL void *row_out(const napier_softmax_job *job, int64_t row) {
    return napier_at_out(job->y.data, job->y.dtype, row * job->y.row_stride);
}

NAPIER_SLOT void store_lse(const napier_softmax_job *job, int64_t row, float lse) {
    napier_scatter(&lse, 1, row_out(job, row), job->y.dtype, 1, false);
}

/* Elements [begin, begin + n) of a row. */
NAPIER_KERNEL napier_looked look_row(const napier_softmax_job *job, int64_t row, int64_t begin, int n, float *z) {
    const void *x = napier_at(row_in(job, row), job->x.dtype, begin * job->x.col_stride);
    return napier_look(x, job->x.dtype, job->x.col_stride, job->temperature, n, z);
}

/* The final of a row of at most one tile, whatever it contains. */
static napier_final final_of_row(const napier_softmax_job *job, int64_t row, float *scratch) {
    const int n = (int)job->x.cols;
    napier_sum sum;
    napier_tile_sum t;
    napier_sum_init(&sum);
    napier_tile_by_definition(look_row(job, row, 0, n, scratch).z, n, &t);
    napier_sum_add_tile(&sum, &t);
    return napier_sum_finish(&sum);
}

/* The same, and its result to y. */
NAPIER_SLOT void any_row(const napier_softmax_job *job, int64_t row, void *y, float *scratch) {
    const int n = (int)job->x.cols;
    const napier_final final = final_of_row(job, row, scratch);
    const napier_looked looked = look_row(job, row, 0, n, scratch);
    write_tile(job->op, &final, job->masked_rows, &looked, n, scratch + NAPIER_TILE + 16, y, job->y.dtype,
               job->y.col_stride, false);
}

NAPIER_KERNEL int napier_tile_at(int64_t begin, int64_t end) {
    return end - begin < NAPIER_TILE ? (int)(end - begin) : NAPIER_TILE;
}

/* ---- For the public state ------------------------------------------------------------------------------------------ */

NAPIER_SLOT void write_row(napier_softmax_op op, const napier_final *final, napier_masked_rows masked, const float *z,
                           int64_t n, void *y, napier_dtype dtype, int64_t stride, float *scratch) {
    for (int64_t i = 0; i < n; i += NAPIER_TILE) {
        const int part = napier_tile_at(i, n);
        const napier_looked looked = napier_look(z + i, NAPIER_F32, 1, 1.0f, part, scratch);
        write_tile(op, final, masked, &looked, part, scratch + NAPIER_TILE + 16, napier_at_out(y, dtype, i * stride),
                   dtype, stride, false);
    }
}

#endif
