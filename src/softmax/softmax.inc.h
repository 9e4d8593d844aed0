/* softmax/softmax.inc.h - the kernels of softmax, log_softmax and logsumexp; compiled once per instruction set.
 *
 * A row is handled in three looks:
 *   look    its maximum and minimum; 16-bit, strided and tempered input is widened into scratch on the way
 *   sum     the terms exp(x - E ln 2) 2^64 of a tile, added in 256 lanes, the maximum itself left out and counted;
 *           softmax keeps the terms, so that there is one exp per element
 *   write   terms * scale, or (x - max) - log_sum
 * Between sum and write, `finish` turns maximum, count and rest into scale and log_sum, for 16 rows at a time.
 *
 * Three layouts: rows along the vectors (short_rows, and tile by tile for long rows), 16 rows in the lanes of one vector
 * (up to 16 columns, after a transpose), and rows that are columns in memory (columns.inc.h). All do the operations of
 * napier_tile_by_definition and napier_sum_finish (sum.h) in the same order; that is the contract. */
#include "math/lanes_math.h"
#include "softmax/softmax_kernels.h"

/* ---- Elements in and out ------------------------------------------------------------------------------------------ */

NAPIER_KERNEL const void *napier_at(const void *data, napier_dtype dtype, int64_t index) {
    return (const char *)data + index * (dtype == NAPIER_F32 ? 4 : 2);
}
NAPIER_KERNEL void *napier_at_out(void *data, napier_dtype dtype, int64_t index) {
    return (char *)data + index * (dtype == NAPIER_F32 ? 4 : 2);
}

/* 16 contiguous elements, exactly. dtype is a constant wherever speed matters. */
NAPIER_KERNEL vf napier_load16(const void *x, napier_dtype dtype) {
    return dtype == NAPIER_F32    ? vf_load((const float *)x)
           : dtype == NAPIER_BF16 ? vf_from_bf16(vi_load_u16((const uint16_t *)x))
                                  : vf_from_f16(vi_load_u16((const uint16_t *)x));
}
NAPIER_KERNEL vf napier_load_part(const void *x, napier_dtype dtype, int n, vf fill) {
    if (dtype == NAPIER_F32) {
        return vf_load_part((const float *)x, n, fill);
    }
    const vi u = vi_load_u16_part((const uint16_t *)x, n);
    return vf_select(vm_first(n), dtype == NAPIER_BF16 ? vf_from_bf16(u) : vf_from_f16(u), fill);
}

NAPIER_KERNEL vi napier_narrow(vf v, napier_dtype dtype) {
    return dtype == NAPIER_BF16 ? vf_to_bf16(v) : vf_to_f16_canonical(v);
}
NAPIER_KERNEL void napier_store16(void *y, napier_dtype dtype, vf v) {
    if (dtype == NAPIER_F32) {
        vf_store((float *)y, v);
    } else {
        vi_store_u16((uint16_t *)y, napier_narrow(v, dtype));
    }
}
NAPIER_KERNEL void napier_store_part(void *y, napier_dtype dtype, int n, vf v) {
    if (dtype == NAPIER_F32) {
        vf_store_part((float *)y, n, v);
    } else {
        vi_store_u16_part((uint16_t *)y, n, napier_narrow(v, dtype));
    }
}

/* Contiguous floats to contiguous elements of y, past the caches if asked. y may be z itself. */
NAPIER_KERNEL void napier_write_out_as(const float *z, int64_t n, void *y, napier_dtype dtype, bool stream) {
    int64_t i = 0;
    const size_t ahead = (size_t)(-(intptr_t)(uintptr_t)y) & 63; /* bytes up to the next cache line */
    if (stream && dtype == NAPIER_F32 && n >= 32 && ahead % 4 == 0) {
        float *out = (float *)y;
        i = (int64_t)(ahead / 4);
        vf_store_part(out, (int)i, vf_load_part(z, (int)i, vf_zero()));
        for (; i + 16 <= n; i += 16) {
            vf_stream(out + i, vf_load(z + i));
        }
    }
    for (; i + 16 <= n; i += 16) {
        napier_store16(napier_at_out(y, dtype, i), dtype, vf_load(z + i));
    }
    if (i < n) {
        const int rest = (int)(n - i);
        napier_store_part(napier_at_out(y, dtype, i), dtype, rest, vf_load_part(z + i, rest, vf_zero()));
    }
}

/* Floats to elements of any dtype and stride. */
static void napier_scatter(const float *z, int64_t n, void *y, napier_dtype dtype, int64_t stride, bool stream) {
    if (stride == 1) {
        switch (dtype) {
        case NAPIER_F32: napier_write_out_as(z, n, y, NAPIER_F32, stream); break;
        case NAPIER_BF16: napier_write_out_as(z, n, y, NAPIER_BF16, stream); break;
        default: napier_write_out_as(z, n, y, NAPIER_F16, stream); break;
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

/* ---- Look: maximum and minimum, widening on the way ---------------------------------------------------------------- */

typedef struct napier_range {
    vf max, min; /* per lane; NaN is passed over */
} napier_range;

NAPIER_KERNEL vf napier_infinity(void) { return vf_from_bits(vi_set(0x7f800000)); }
NAPIER_KERNEL vf napier_minus_infinity(void) { return vf_set(-INFINITY); }

NAPIER_KERNEL napier_range napier_range_join(napier_range a, napier_range b) {
    return (napier_range){vf_max(a.max, b.max), vf_min(a.min, b.min)};
}
NAPIER_KERNEL napier_range napier_range_add(napier_range r, vf v) {
    return (napier_range){vf_max(v, r.max), vf_min(v, r.min)};
}

enum { NAPIER_PREFETCH_BYTES = 2048 };

/* n contiguous elements: z = x / temperature into `z` (where pack says so), and their range. Whole vectors are stored. */
NAPIER_KERNEL napier_range napier_look_as(const void *x, napier_dtype dtype, bool divide, vf temperature, bool pack, int n,
                                          float *z) {
    const napier_range none = {napier_minus_infinity(), napier_infinity()};
    napier_range a = none, b = none;
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
        a = napier_range_add(a, u);
        b = napier_range_add(b, v);
    }
    if (i + 16 <= n) {
        __builtin_prefetch((const char *)napier_at(x, dtype, i) + NAPIER_PREFETCH_BYTES);
        vf u = napier_load16(napier_at(x, dtype, i), dtype);
        u = divide ? vf_div(u, temperature) : u;
        if (pack) {
            vf_store(z + i, u);
        }
        a = napier_range_add(a, u);
        i += 16;
    }
    if (i < n) {
        vf u = napier_load_part(napier_at(x, dtype, i), dtype, n - i, napier_minus_infinity());
        u = divide ? vf_div(u, temperature) : u;
        if (pack) {
            vf_store(z + i, u);
        }
        b.max = vf_max(u, b.max);
        b.min = vf_min(vf_select(vm_first(n - i), u, napier_infinity()), b.min);
    }
    return napier_range_join(a, b);
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

/* A row, or a tile of it, ready for summing. */
typedef struct napier_looked {
    const float *z; /* the widened elements: the input itself where it is plain f32, else scratch */
    napier_range range;
} napier_looked;

/* `z` has room for n elements rounded up to whole vectors. */
NAPIER_KERNEL napier_looked napier_look(const void *x, napier_dtype dtype, int64_t stride, float temperature, int n,
                                        float *z) {
    const vf t = vf_set(temperature);
    if (stride != 1) {
        napier_gather(x, dtype, stride, n, z);
        return (napier_looked){z, napier_look_as(z, NAPIER_F32, true, t, true, n, z)};
    }
    if (temperature != 1.0f) {
        switch (dtype) {
        case NAPIER_F32: return (napier_looked){z, napier_look_as(x, NAPIER_F32, true, t, true, n, z)};
        case NAPIER_BF16: return (napier_looked){z, napier_look_as(x, NAPIER_BF16, true, t, true, n, z)};
        default: return (napier_looked){z, napier_look_as(x, NAPIER_F16, true, t, true, n, z)};
        }
    }
    switch (dtype) {
    case NAPIER_F32: return (napier_looked){(const float *)x, napier_look_as(x, NAPIER_F32, false, t, false, n, z)};
    case NAPIER_BF16: return (napier_looked){z, napier_look_as(x, NAPIER_BF16, false, t, true, n, z)};
    default: return (napier_looked){z, napier_look_as(x, NAPIER_F16, false, t, true, n, z)};
    }
}

static void napier_pack(const void *x, napier_dtype dtype, int64_t stride, int64_t n, float temperature, float *z) {
    for (int64_t i = 0; i < n; i += NAPIER_TILE) {
        const int part = n - i < NAPIER_TILE ? (int)(n - i) : NAPIER_TILE;
        float tile[NAPIER_TILE];
        const napier_looked looked = napier_look(napier_at(x, dtype, i * stride), dtype, stride, temperature, part, tile);
        memcpy(z + i, looked.z, (size_t)part * sizeof *z);
    }
}

/* ---- Sum: the terms of one tile ------------------------------------------------------------------------------------ */

/* Adds the terms below the maximum, keeps all terms (the maximum's too) and counts what is not below.
 * cut: some elements may be more than NAPIER_CUTOFF below the maximum; their terms are 0. */
typedef struct napier_adder {
    vf max, cutoff, magic;
    int not_below;
} napier_adder;

NAPIER_KERNEL vf napier_terms16(napier_adder *a, vf z, bool cut, bool keep, float *terms) {
    vf term = vf_exp_scaled(z, a->magic);
    vm below = vf_nge(z, a->max); /* true for NaN: it reaches the sum and is found there */
    a->not_below += 16 - vm_count(below);
    if (cut) {
        const vm inside = vf_nlt(z, a->cutoff);
        term = vf_keep(inside, term);
    }
    if (keep) {
        vf_store(terms, term);
    }
    return vf_keep(below, term);
}

/* Lane sums of n elements as 16 vectors folded to one; *count receives how many equal the maximum. */
NAPIER_KERNEL vf napier_sum_lanes(const float *z, int n, napier_adder *a, bool cut, bool keep, float *terms, int *count) {
    vf lane[16];
    const int vectors = n >= NAPIER_TILE_LANES ? 16 : (n + 15) / 16;
    a->not_below = 0;
    int padding = 0;
    for (int v = 0; v < vectors; v++) {
        int i = v * 16;
        vf sum = vf_zero();
        if (i + 16 <= n) {
            sum = napier_terms16(a, vf_load(z + i), cut, keep, terms + i);
            for (i += NAPIER_TILE_LANES; i + 16 <= n; i += NAPIER_TILE_LANES) {
                sum = vf_add(sum, napier_terms16(a, vf_load(z + i), cut, keep, terms + i));
            }
        }
        if (i < n) { /* lanes past the end count as maxima, and are taken off the count */
            padding = 16 - (n - i);
            sum = vf_add(sum, napier_terms16(a, vf_load_part(z + i, n - i, a->max), cut, keep, terms + i));
        }
        lane[v] = sum;
    }
    *count = a->not_below - padding;
    for (int half = 8; half > 0; half /= 2) {
        for (int v = 0; v < half && v + half < vectors; v++) {
            lane[v] = vf_add(lane[v], lane[v + half]);
        }
    }
    return lane[0];
}

NAPIER_KERNEL napier_adder napier_adder_of(float max, float magic) {
    return (napier_adder){vf_set(max), vf_set(max - NAPIER_CUTOFF), vf_set(magic), 0};
}

/* 1.5 * 2^23 + 64 - E: what makes vf_exp_scaled give terms relative to E, with their 2^64. */
NAPIER_KERNEL float napier_term_magic(int64_t exponent) {
    return NAPIER_ROUND_MAGIC + (float)(NAPIER_TERM_SCALE - exponent);
}

/* One tile whose maximum is ordinary: |max| <= 2^20. */
static void napier_ordinary_tile(const float *z, int n, float max, float min, float *terms, napier_tile_sum *t) {
    const bool cut = !(min >= max - NAPIER_CUTOFF);
    napier_adder a = napier_adder_of(max, napier_term_magic(napier_exp_parts_small(max).n));
    int count = 0;
    vf lanes;
    if (cut) {
        lanes = terms ? napier_sum_lanes(z, n, &a, true, true, terms, &count)
                      : napier_sum_lanes(z, n, &a, true, false, NULL, &count);
    } else if (n == NAPIER_TILE) {
        lanes = terms ? napier_sum_lanes(z, NAPIER_TILE, &a, false, true, terms, &count)
                      : napier_sum_lanes(z, NAPIER_TILE, &a, false, false, NULL, &count);
    } else {
        lanes = terms ? napier_sum_lanes(z, n, &a, false, true, terms, &count)
                      : napier_sum_lanes(z, n, &a, false, false, NULL, &count);
    }
    const float rest = vf_hadd(lanes);
    *t = (napier_tile_sum){.max = max, .min = min, .rest = rest, .count = count, .nan = rest != rest};
}

/* Any tile. Returns whether `terms` were kept (they are not where the maximum is no ordinary number). */
static bool napier_looked_tile(napier_looked looked, int n, float *terms, napier_tile_sum *t) {
    const float max = vf_hmax(looked.range.max);
    const float min = -vf_hmax(vf_sub(vf_zero(), looked.range.min));
    if (fabsf(max) <= NAPIER_BIG) {
        napier_ordinary_tile(looked.z, n, max, min, terms, t);
        return terms && !t->nan;
    }
    napier_tile_by_definition(looked.z, n, t);
    return false;
}

static void napier_tile_sum_of(const float *z, int n, napier_tile_sum *t) {
    napier_looked_tile(napier_look(z, NAPIER_F32, 1, 1.0f, n, NULL), n, NULL, t);
}

/* ---- Finish: 16 rows at a time, as napier_final_outputs (sum.h) ---------------------------------------------------- */

typedef struct napier_finals {
    vf lse, log_sum, max_prob, scale;
} napier_finals;

/* The maximum's own exp = p 2^E; magic as napier_term_magic(E). */
typedef struct napier_maxima {
    vf p, magic;
} napier_maxima;

NAPIER_KERNEL napier_maxima napier_maxima_of(vf max) {
    vf shifted, n;
    const vf r = vf_exp_reduce(max, vf_set(NAPIER_ROUND_MAGIC), &shifted, &n);
    return (napier_maxima){vf_exp_polynomial(r), vf_sub(vf_set(NAPIER_ROUND_MAGIC + NAPIER_TERM_SCALE), n)};
}

NAPIER_KERNEL napier_finals napier_finish16(napier_softmax_op op, vf max, vf p, vf count, vf rest_term) {
    napier_finals f;
    const vd rest = vd_mul(vd_from_vf(rest_term), vd_set(0x1p-64));
    const vd pd = vd_from_vf(p), counts = vd_from_vf(count);
    if (op == NAPIER_OP_SOFTMAX) {
        const vd inverse = vd_div(vd_set(1.0), vd_add(vd_mul(counts, pd), rest));
        f.max_prob = vd_to_vf(vd_mul(pd, inverse));
        const vf scale = vd_to_vf(vd_mul(inverse, vd_set(0x1p-64)));
        const vm low = vf_lt(vf_mul(vf_mul(p, vf_set(0x1p64f)), scale), f.max_prob);
        f.scale = vf_from_bits(vi_select(low, vi_add(vf_bits(scale), vi_set(1)), vf_bits(scale)));
        f.lse = f.log_sum = vf_zero();
    } else {
        const vd y = vd_add(vd_sub(counts, vd_set(1.0)), vd_div(rest, pd));
        const vd log_sum = vd_log1p(y);
        f.log_sum = vd_to_vf(log_sum);
        f.lse = vd_to_vf(vd_add(vd_from_vf(max), log_sum));
        f.max_prob = f.scale = vf_zero();
    }
    return f;
}

/* ---- Write --------------------------------------------------------------------------------------------------------- */

/* Above this log-probability every result is a normal number and every term was kept. */
#define NAPIER_NORMAL_LOG_PROB (-87.0f)

/* softmax of 16 terms; where `care` says so, products below 2^-126 are rounded to the subnormal grid by adding 2^-62
 * (2^23 steps of 2^-85) in the same fma: the sum's low bits are the result. No subnormal arithmetic, which is slow. */
typedef struct napier_writer {
    vf max, log_sum, scale, max_prob, smallest, scale_up;
} napier_writer;

NAPIER_KERNEL napier_writer napier_writer_of(float max, float log_sum, float scale, float max_prob) {
    const float up = scale * 0x1p64f;
    return (napier_writer){vf_set(max),      vf_set(log_sum), vf_set(scale),
                           vf_set(max_prob), vf_set(0x1.fffffp-63f / up), vf_set(up)};
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

NAPIER_KERNEL vf napier_result16(napier_softmax_op op, const napier_writer *w, vf value, bool care) {
    return op == NAPIER_OP_SOFTMAX ? napier_probs16(w, value, care) : vf_sub(vf_sub(value, w->max), w->log_sum);
}

/* Results of n contiguous values: kept terms for softmax, z for log_softmax. y may be the values' own memory. */
NAPIER_KERNEL void napier_write_as(napier_softmax_op op, const napier_writer *w, const float *values, int n, bool care,
                                   void *y, napier_dtype dtype, bool stream) {
    int i = 0;
    if (stream) {
        const size_t ahead = (size_t)(-(intptr_t)(uintptr_t)y) & 63;
        float *out = (float *)y;
        i = (int)(ahead / 4);
        if (i > 0) {
            vf_store_part(out, i, napier_result16(op, w, vf_load_part(values, i, w->max), care));
        }
        for (; i + 16 <= n; i += 16) {
            vf_stream(out + i, napier_result16(op, w, vf_load(values + i), care));
        }
    }
    for (; i + 16 <= n; i += 16) {
        napier_store16(napier_at_out(y, dtype, i), dtype, napier_result16(op, w, vf_load(values + i), care));
    }
    if (i < n) {
        const vf v = napier_result16(op, w, vf_load_part(values + i, n - i, w->max), care);
        napier_store_part(napier_at_out(y, dtype, i), dtype, n - i, v);
    }
}

/* stride 1 only. */
static void napier_write_values(napier_softmax_op op, const napier_writer *w, const float *values, int n, bool care, void *y,
                                napier_dtype dtype, bool stream) {
    const bool softmax = op == NAPIER_OP_SOFTMAX;
    if (dtype == NAPIER_F32) {
        stream = stream && n >= 32 && ((uintptr_t)y & 3) == 0;
        if (!softmax) {
            if (stream) {
                napier_write_as(NAPIER_OP_LOG_SOFTMAX, w, values, n, false, y, NAPIER_F32, true);
            } else {
                napier_write_as(NAPIER_OP_LOG_SOFTMAX, w, values, n, false, y, NAPIER_F32, false);
            }
        } else if (care) {
            napier_write_as(NAPIER_OP_SOFTMAX, w, values, n, true, y, NAPIER_F32, false);
        } else if (stream) {
            napier_write_as(NAPIER_OP_SOFTMAX, w, values, n, false, y, NAPIER_F32, true);
        } else {
            napier_write_as(NAPIER_OP_SOFTMAX, w, values, n, false, y, NAPIER_F32, false);
        }
    } else if (dtype == NAPIER_BF16) {
        if (softmax) {
            napier_write_as(NAPIER_OP_SOFTMAX, w, values, n, care, y, NAPIER_BF16, false);
        } else {
            napier_write_as(NAPIER_OP_LOG_SOFTMAX, w, values, n, false, y, NAPIER_BF16, false);
        }
    } else if (softmax) {
        napier_write_as(NAPIER_OP_SOFTMAX, w, values, n, care, y, NAPIER_F16, false);
    } else {
        napier_write_as(NAPIER_OP_LOG_SOFTMAX, w, values, n, false, y, NAPIER_F16, false);
    }
}

/* The value of every element of a row that is not finite. */
static float napier_constant_result(napier_softmax_op op, const napier_final *final, napier_masked_rows masked) {
    if (final->kind == NAPIER_ROW_MASKED && masked == NAPIER_MASKED_ZERO) {
        return op == NAPIER_OP_SOFTMAX ? 0.0f : -INFINITY;
    }
    return napier_float_of_bits(0x7fc00000u);
}

/* Results element by element, for rows whose maximum is no ordinary number. out may be z. */
static void napier_write_by_definition(napier_softmax_op op, const napier_final *final, napier_masked_rows masked,
                                       const float *z, int n, float *out) {
    for (int i = 0; i < n; i++) {
        out[i] = final->kind != NAPIER_ROW_FINITE ? napier_constant_result(op, final, masked)
                 : op == NAPIER_OP_SOFTMAX        ? napier_softmax_of(final, z[i])
                                                  : napier_log_softmax_of(final, z[i]);
    }
}

/* The terms of a row relative to its own maximum, for a second read. */
NAPIER_KERNEL void napier_terms_as(const float *z, int n, vf cutoff, vf magic, bool cut, float *terms) {
    for (int i = 0; i < n; i += 16) {
        const vf v = i + 16 <= n ? vf_load(z + i) : vf_load_part(z + i, n - i, vf_add(cutoff, vf_set(NAPIER_CUTOFF)));
        const vf term = vf_exp_scaled(v, magic);
        vf_store(terms + i, cut ? vf_keep(vf_ge(v, cutoff), term) : term);
    }
}

NAPIER_KERNEL void napier_probs_again_as(const napier_writer *w, const float *z, int n, vf magic, float *y, bool stream) {
    int i = 0;
    if (stream) {
        i = (int)(((size_t)(-(intptr_t)(uintptr_t)y) & 63) / 4);
        if (i > 0) {
            vf_store_part(y, i, napier_probs16(w, vf_exp_scaled(vf_load_part(z, i, w->max), magic), false));
        }
        for (; i + 16 <= n; i += 16) {
            vf_stream(y + i, napier_probs16(w, vf_exp_scaled(vf_load(z + i), magic), false));
        }
    }
    for (; i + 16 <= n; i += 16) {
        vf_store(y + i, napier_probs16(w, vf_exp_scaled(vf_load(z + i), magic), false));
    }
    if (i < n) {
        vf_store_part(y + i, n - i, napier_probs16(w, vf_exp_scaled(vf_load_part(z + i, n - i, w->max), magic), false));
    }
}

/* Results of one tile of a row from its z and the row's final. `spare` holds a tile; y may be where z came from. */
static void napier_write_tile(napier_softmax_op op, const napier_final *final, napier_masked_rows masked,
                              napier_looked looked, int n, float *spare, void *y, napier_dtype dtype, int64_t stride,
                              bool stream) {
    if (final->kind != NAPIER_ROW_FINITE || (op == NAPIER_OP_SOFTMAX && napier_is_big(final->max))) {
        napier_write_by_definition(op, final, masked, looked.z, n, spare);
    } else {
        const napier_writer w = napier_writer_of(final->max, final->log_sum, final->scale, final->max_prob);
        const float min = -vf_hmax(vf_sub(vf_zero(), looked.range.min));
        const bool care = !((min - final->max) - final->log_sum >= NAPIER_NORMAL_LOG_PROB);
        const float magic = op == NAPIER_OP_SOFTMAX ? napier_term_magic(final->exponent) : 0.0f;
        const bool direct = stride == 1 && final->factor == 1.0f;
        if (op == NAPIER_OP_SOFTMAX && !care && direct && dtype == NAPIER_F32) {
            if (stream && n >= 32) {
                napier_probs_again_as(&w, looked.z, n, vf_set(magic), (float *)y, true);
            } else {
                napier_probs_again_as(&w, looked.z, n, vf_set(magic), (float *)y, false);
            }
            return;
        }
        const float *values = looked.z;
        if (op == NAPIER_OP_SOFTMAX) {
            napier_terms_as(looked.z, n, vf_set(final->max - NAPIER_CUTOFF), vf_set(magic), care, spare);
            values = spare;
        }
        if (direct) {
            napier_write_values(op, &w, values, n, care, y, dtype, stream);
            return;
        }
        napier_write_values(op, &w, values, n, care, spare, NAPIER_F32, false);
    }
    if (final->factor != 1.0f) {
        for (int i = 0; i < n; i += 16) {
            const vf v = vf_mul(vf_load(spare + i), vf_set(final->factor));
            vf_store(spare + i, vf_select(vf_unordered(v, v), vf_canonical_nan(), v));
        }
    }
    napier_scatter(spare, n, y, dtype, stride, stream);
}

/* ---- Short rows: up to one tile ------------------------------------------------------------------------------------ */

NAPIER_KERNEL const void *napier_row(const napier_softmax_job *job, int64_t row) {
    return napier_at(job->x.data, job->x.dtype, row * job->x.row_stride);
}
NAPIER_KERNEL void *napier_row_out(const napier_softmax_job *job, int64_t row) {
    return napier_at_out(job->y.data, job->y.dtype, row * job->y.row_stride);
}

static void napier_store_lse(const napier_softmax_job *job, int64_t row, float lse) {
    napier_scatter(&lse, 1, napier_row_out(job, row), job->y.dtype, 1, false);
}

/* Lets a load of a whole vector at the last element stay inside: one element by parts. */
NAPIER_KERNEL napier_looked napier_look_row(const napier_softmax_job *job, int64_t row, int64_t begin, int n, float *z) {
    const void *x = napier_at(napier_row(job, row), job->x.dtype, begin * job->x.col_stride);
    return napier_look(x, job->x.dtype, job->x.col_stride, job->temperature, n, z);
}

/* One row on its own, whatever is in it. */
static void napier_any_row(const napier_softmax_job *job, int64_t row, float *scratch) {
    const int n = (int)job->x.cols;
    float *z = scratch, *spare = scratch + NAPIER_TILE + 16;
    napier_sum sum;
    napier_sum_init(&sum);
    napier_tile_sum t;
    const napier_looked looked = napier_look_row(job, row, 0, n, z);
    napier_tile_by_definition(looked.z, n, &t);
    napier_sum_add_tile(&sum, &t);
    const napier_final final = napier_sum_finish(&sum);
    if (job->op == NAPIER_OP_LOGSUMEXP) {
        napier_store_lse(job, row, final.lse);
        return;
    }
    napier_write_tile(job->op, &final, job->masked_rows, looked, n, spare, napier_row_out(job, row), job->y.dtype,
                      job->y.col_stride, false);
}

/* Up to 16 rows: the parts that are per row as arrays, the parts that are per group as vectors. */
typedef struct napier_group {
    napier_looked row[NAPIER_GROUP];
    float max[NAPIER_GROUP], magic[NAPIER_GROUP], count[NAPIER_GROUP], min[NAPIER_GROUP];
    float log_sum[NAPIER_GROUP], scale[NAPIER_GROUP], max_prob[NAPIER_GROUP], lse[NAPIER_GROUP];
    bool care[NAPIER_GROUP];
} napier_group;

NAPIER_KERNEL void napier_short_group(const napier_softmax_op op, const napier_softmax_job *job, int64_t first, int rows,
                                      float *scratch) {
    const int n = (int)job->x.cols, room = (n + 15) / 16 * 16;
    float *z = scratch, *terms = scratch + NAPIER_GROUP * (NAPIER_GROUP_COLS + 16) + 64;
    napier_group g;
    vf maxima[NAPIER_GROUP], minima[NAPIER_GROUP], sums[NAPIER_GROUP];
    for (int r = 0; r < rows; r++) {
        g.row[r] = napier_look_row(job, first + r, 0, n, z + r * room);
        maxima[r] = g.row[r].range.max;
        minima[r] = vf_sub(vf_zero(), g.row[r].range.min);
    }
    for (int r = rows; r < NAPIER_GROUP; r++) {
        maxima[r] = minima[r] = sums[r] = vf_zero();
        g.count[r] = 1.0f;
    }
    const vf found = vf_hmax16(maxima), min = vf_sub(vf_zero(), vf_hmax16(minima));
    const vm big = vf_lt(vf_set(NAPIER_BIG), vf_from_bits(vi_and(vf_bits(found), vi_set(0x7fffffff))));
    const vf max = vf_select(big, vf_zero(), found); /* big, infinite: done on their own below */
    const napier_maxima m = napier_maxima_of(max);
    vf_store(g.max, max);
    vf_store(g.magic, m.magic);
    vf_store(g.min, min);
    for (int r = 0; r < rows; r++) {
        napier_adder a = napier_adder_of(g.max[r], g.magic[r]);
        int count = 1;
        float *kept = terms + r * room;
        const float *zr = g.row[r].z;
        if (g.min[r] >= g.max[r] - NAPIER_CUTOFF) {
            sums[r] = napier_sum_lanes(zr, n, &a, false, op == NAPIER_OP_SOFTMAX, kept, &count);
        } else {
            sums[r] = napier_sum_lanes(zr, n, &a, true, op == NAPIER_OP_SOFTMAX, kept, &count);
        }
        g.count[r] = (float)count;
    }
    const vf rest = vf_hadd16(sums);
    const vm special = vm_or(big, vf_unordered(rest, rest));
    const napier_finals f = napier_finish16(op, max, m.p, vf_load(g.count), rest);
    if (op == NAPIER_OP_LOGSUMEXP) {
        vf_store(g.lse, f.lse);
    } else if (op == NAPIER_OP_SOFTMAX) {
        vf_store(g.scale, f.scale);
        vf_store(g.max_prob, f.max_prob);
    }
    vf_store(g.log_sum, f.log_sum);
    float alone[NAPIER_GROUP];
    vf_store(alone, vf_keep(special, vf_set(1.0f)));
    if (op == NAPIER_OP_LOGSUMEXP) {
        if (job->y.row_stride == 1 && !vm_any(special)) {
            napier_scatter(g.lse, rows, napier_row_out(job, first), job->y.dtype, 1, false);
        } else {
            for (int r = 0; r < rows; r++) {
                napier_store_lse(job, first + r, g.lse[r]);
            }
        }
    } else {
        for (int r = 0; r < rows; r++) {
            if (alone[r] != 0.0f) {
                continue;
            }
            const napier_writer w = napier_writer_of(g.max[r], g.log_sum[r], g.scale[r], g.max_prob[r]);
            /* exp(-80) / 1024 > 2^-126 */
            const bool care = !(g.min[r] - g.max[r] >= -80.0f);
            const float *values = op == NAPIER_OP_SOFTMAX ? terms + r * room : g.row[r].z;
            if (job->y.col_stride == 1) {
                napier_write_values(op, &w, values, n, care, napier_row_out(job, first + r), job->y.dtype, job->stream);
            } else {
                float *spare = terms + r * room;
                napier_write_values(op, &w, values, n, care, spare, NAPIER_F32, false);
                napier_scatter(spare, n, napier_row_out(job, first + r), job->y.dtype, job->y.col_stride, false);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        if (alone[r] != 0.0f) {
            napier_any_row(job, first + r, scratch);
        }
    }
}

static void napier_short_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int step = job->x.cols <= NAPIER_GROUP_COLS ? NAPIER_GROUP : 4;
    for (int64_t first = begin; first < end; first += step) {
        const int rows = end - first < step ? (int)(end - first) : step;
        switch (job->op) {
        case NAPIER_OP_SOFTMAX: napier_short_group(NAPIER_OP_SOFTMAX, job, first, rows, scratch); break;
        case NAPIER_OP_LOG_SOFTMAX: napier_short_group(NAPIER_OP_LOG_SOFTMAX, job, first, rows, scratch); break;
        default: napier_short_group(NAPIER_OP_LOGSUMEXP, job, first, rows, scratch); break;
        }
    }
}

/* ---- Long rows: tile by tile --------------------------------------------------------------------------------------- */

NAPIER_KERNEL int napier_tile_at(int64_t begin, int64_t end) {
    return end - begin < NAPIER_TILE ? (int)(end - begin) : NAPIER_TILE;
}

static float napier_max_of_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, float *scratch) {
    float max = -INFINITY;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const float tile = vf_hmax(napier_look_row(job, row, i, napier_tile_at(i, end), scratch).range.max);
        max = tile > max ? tile : max;
    }
    return max;
}

static void napier_sum_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                             float *scratch) {
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        napier_tile_sum t;
        napier_looked_tile(napier_look_row(job, row, i, n, scratch), n, NULL, &t);
        napier_sum_add_tile(sum, &t);
    }
}

static void napier_write_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                               const napier_final *final, float *scratch) {
    float *spare = scratch + NAPIER_TILE + 16;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        void *y = napier_at_out(napier_row_out(job, row), job->y.dtype, i * job->y.col_stride);
        napier_write_tile(job->op, final, job->masked_rows, napier_look_row(job, row, i, n, scratch), n, spare, y,
                          job->y.dtype, job->y.col_stride, job->stream);
    }
}

/* One read of the row: its terms stay in `terms`, each tile's relative to the tile's own exponent. */
static void napier_kept_row(const napier_softmax_job *job, int64_t row, float *scratch, float *terms,
                            napier_kept_tile *tiles) {
    const int64_t cols = job->x.cols;
    napier_sum sum;
    napier_sum_init(&sum);
    for (int64_t i = 0, k = 0; i < cols; i += NAPIER_TILE, k++) {
        const int n = napier_tile_at(i, cols);
        napier_tile_sum t;
        tiles[k].whole = napier_looked_tile(napier_look_row(job, row, i, n, scratch), n, terms + i, &t);
        tiles[k].min = t.min;
        tiles[k].exponent = tiles[k].whole ? (int32_t)napier_exp_parts_small(t.max).n : 0;
        napier_sum_add_tile(&sum, &t);
    }
    const napier_final final = napier_sum_finish(&sum);
    const bool ordinary = final.kind == NAPIER_ROW_FINITE && !napier_is_big(final.max);
    for (int64_t i = 0, k = 0; i < cols; i += NAPIER_TILE, k++) {
        const int n = napier_tile_at(i, cols);
        void *y = napier_at_out(napier_row_out(job, row), job->y.dtype, i * job->y.col_stride);
        const int64_t down = final.exponent - tiles[k].exponent;
        const bool normal = (tiles[k].min - final.max) - final.log_sum >= NAPIER_NORMAL_LOG_PROB;
        if (ordinary && tiles[k].whole && normal && down <= 20 && job->y.col_stride == 1) {
            const float scale = final.scale * napier_power_of_two(-down);
            const napier_writer w = napier_writer_of(final.max, final.log_sum, scale, final.max_prob);
            napier_write_values(NAPIER_OP_SOFTMAX, &w, terms + i, n, false, y, job->y.dtype, job->stream);
        } else {
            napier_write_tile(job->op, &final, job->masked_rows, napier_look_row(job, row, i, n, scratch), n,
                              scratch + NAPIER_TILE + 16, y, job->y.dtype, job->y.col_stride, job->stream);
        }
    }
}

/* ---- For the public state ------------------------------------------------------------------------------------------ */

static void napier_write(napier_softmax_op op, const napier_final *final, napier_masked_rows masked, const float *z,
                         int64_t n, void *y, napier_dtype dtype, int64_t stride, float *scratch) {
    for (int64_t i = 0; i < n; i += NAPIER_TILE) {
        const int part = napier_tile_at(i, n);
        const napier_looked looked = napier_look(z + i, NAPIER_F32, 1, 1.0f, part, scratch);
        napier_write_tile(op, final, masked, looked, part, scratch + NAPIER_TILE + 16,
                          napier_at_out(y, dtype, i * stride), dtype, stride, false);
    }
}
