/* ops/softmax/lanes.inc.h - 16 rows in the 16 lanes of one vector.
 *
 * This layout serves rows of a few columns (after a transpose) and rows that are columns in memory. Element i of the 16
 * rows is the vector at z + i * ld. The operations on each row are those of softmax.inc.h, in the same order.
 * Compiled once per instruction set. */
#ifndef NAPIER_OPS_SOFTMAX_LANES_INC_H
#define NAPIER_OPS_SOFTMAX_LANES_INC_H

#include "core/base/sizes.h"
#include "ops/softmax/short_rows.inc.h"

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
    const vi sign = vi_sar(vf_bits(vf_sub(z, s->max)), 31);
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

/* Spreads rows of n floats to places `width` floats apart in 16 vectors. The
 * next row overwrites the tail of each store. */
NAPIER_KERNEL void tiny_spread(const float *x, int n, int width, float *spread) {
    const int rows = 256 / width;
    for (int r = 0; r < rows; r++) {
        const int left = (rows - r) * n;
        vf_store(spread + r * width, left >= 16 ? vf_load(x + r * n) : vf_load_part(x + r * n, left, vf_zero()));
    }
}

/* The columns of rows that are computed with a constant width; rows of one column go with those of four. */
NAPIER_KERNEL int tiny_columns_of_width(const napier_softmax_job *job, int width) {
    return width == 2 ? 2 : (int)job->x.cols;
}
static int tiny_width(int64_t n) { return n == 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : 16; }

/* 256 / width contiguous rows. A transpose of 16 x 16 floats puts element 16 j + k in lane j of vector k: lane j of
 * vectors g width .. g width + width - 1 is row j (16 / width) + g. scratch: NAPIER_NARROW_SCRATCH floats. */
NAPIER_KERNEL void tiny_block(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t first,
                              float *scratch) {
    const int n = tiny_columns_of_width(job, width), rows = 256 / width, groups = 16 / width;
    float *packed = scratch, *spread = scratch + 320;
    const float *x = (const float *)row_in(job, first);
    if (job->x.dtype != NAPIER_F32 || job->temperature != 1.0f) {
        x = napier_look(x, job->x.dtype, 1, job->temperature, rows * n, packed).z;
    }
    if (n != width) {
        tiny_spread(x, n, width, spread);
        x = spread;
    }
    vf v[16];
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        __builtin_prefetch((const char *)(x + 16 * k) + NAPIER_PREFETCH_BYTES);
        v[k] = vf_load(x + 16 * k);
    }
    vf_transpose(v);
    for (int g = 0; g < groups; g++) {
        const vf lse = tiny_group(op, width, n, job->masked_rows, v + g * width);
        if (op == NAPIER_OP_LOGSUMEXP) {
            vf_store(spread + 16 * g, lse);
        }
    }
    if (op == NAPIER_OP_LOGSUMEXP) {
        for (int g = 0; g < groups; g++) {
            for (int j = 0; j < 16; j++) {
                packed[j * groups + g] = spread[16 * g + j];
            }
        }
        napier_scatter(packed, rows, row_out(job, first), job->y.dtype, job->y.row_stride, false);
        return;
    }
    vf_transpose(v);
    char *y = row_out(job, first);
    const bool run = job->y.col_stride == 1 && job->y.row_stride == n;
    if (run && n == width && job->y.dtype == NAPIER_F32 && (!job->stream || ((uintptr_t)y & 63) == 0)) {
        NAPIER_UNROLL
        for (int k = 0; k < 16; k++) {
            if (job->stream) {
                vf_stream((float *)(void *)y + 16 * k, v[k]);
            } else {
                napier_fetch_to_write(y + 64 * k);
                vf_store((float *)(void *)y + 16 * k, v[k]);
            }
        }
        return;
    }
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        vf_store(spread + 16 * k, v[k]);
    }
    if (!run) {
        for (int r = 0; r < rows; r++) {
            napier_scatter(spread + r * width, n, row_out(job, first + r), job->y.dtype, job->y.col_stride, false);
        }
        return;
    }
    const float *result = spread;
    if (n != width) {
        for (int r = 0; r < rows; r++) {
            vf_store(packed + r * n, vf_load(spread + r * width));
        }
        result = packed;
    }
    napier_scatter(result, rows * n, y, job->y.dtype, 1, job->stream);
}

NAPIER_KERNEL void tiny_block_of(napier_softmax_op op, const napier_softmax_job *job, int64_t first, float *scratch) {
    switch (tiny_width(job->x.cols)) {
    case 2: tiny_block(op, 2, job, first, scratch); break;
    case 4: tiny_block(op, 4, job, first, scratch); break;
    case 8: tiny_block(op, 8, job, first, scratch); break;
    default: tiny_block(op, 16, job, first, scratch); break;
    }
}

/* Up to 16 rows, which do not fill a block: each is one vector of v, whatever its width, and rows that do not exist are 0. */
NAPIER_KERNEL void tiny_few(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t first, int rows) {
    const int n = tiny_columns_of_width(job, width);
    const vf temperature = vf_set(job->temperature);
    vf v[16];
    for (int r = 0; r < 16; r++) {
        v[r] = r < rows ? napier_load_part(row_in(job, first + r), job->x.dtype, n, vf_zero()) : vf_zero();
        v[r] = job->temperature != 1.0f ? vf_div(v[r], temperature) : v[r];
    }
    vf_transpose(v);
    float out[16];
    vf_store(out, tiny_group(op, width, n, job->masked_rows, v));
    if (op == NAPIER_OP_LOGSUMEXP) {
        napier_scatter(out, rows, row_out(job, first), job->y.dtype, job->y.row_stride, false);
        return;
    }
    vf_transpose(v);
    for (int r = 0; r < rows; r++) {
        if (job->y.col_stride == 1) {
            napier_store_part(row_out(job, first + r), job->y.dtype, n, v[r]);
        } else {
            vf_store(out, v[r]);
            napier_scatter(out, n, row_out(job, first + r), job->y.dtype, job->y.col_stride, false);
        }
    }
}

NAPIER_KERNEL void tiny_few_of(napier_softmax_op op, const napier_softmax_job *job, int64_t first, int rows) {
    switch (tiny_width(job->x.cols)) {
    case 2: tiny_few(op, 2, job, first, rows); break;
    case 4: tiny_few(op, 4, job, first, rows); break;
    case 8: tiny_few(op, 8, job, first, rows); break;
    default: tiny_few(op, 16, job, first, rows); break;
    }
}

/* The fewest rows that are computed 16 at a time; fewer are faster along a vector. In plain C an idle lane takes time. */
static int tiny_least(int width) {
#if defined(NAPIER_LANES_SCALAR)
    return width * 5 / 8;
#else
    return width == 16 ? 3 : 1;
#endif
}

/* Rows of up to 16 contiguous columns: in blocks, if they lie one after the other, and what is left 16 at a time. */
static void tiny_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int width = tiny_width(job->x.cols);
    int64_t first = begin;
    for (; job->x.row_stride == job->x.cols && first + 256 / width <= end; first += 256 / width) {
        NAPIER_FOR_OP(job->op, tiny_block_of, job, first, scratch);
    }
    for (; first + tiny_least(width) <= end; first += 16) {
        NAPIER_FOR_OP(job->op, tiny_few_of, job, first, end - first < 16 ? (int)(end - first) : 16);
    }
    if (first < end) {
        short_rows(job, first, end, scratch);
    }
}

static void short_or_tiny_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    if (job->x.cols <= NAPIER_TINY_COLS && job->x.col_stride == 1) {
        tiny_rows(job, begin, end, scratch);
    } else {
        short_rows(job, begin, end, scratch);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* ---- Columns: rows that are neighbours in memory ------------------------------------------------------------------- */

/* A strip is a few groups of 16 neighbouring rows, packed as [group][column][16 rows]: the group of row r begins at z +
 * r * n. Packing reads short pieces of many cache lines that lie far apart, so they are prefetched one strip ahead. */

/* Column i of 16 rows, of which only `rows` exist. */
NAPIER_KERNEL vf load_column(const napier_softmax_job *job, napier_dtype dtype, int64_t row, int64_t i, int rows) {
    const void *x = napier_at(job->x.data, dtype, row + i * job->x.col_stride);
    return rows < 16 ? napier_load_part(x, dtype, rows, vf_zero()) : napier_load16(x, dtype);
}

enum {
    NAPIER_COLUMNS_AHEAD = 8
}; /* whose lines are fetched into the first-level cache while a column is read or written */

/* The ranges of columns [begin, begin + n) of up to four groups. Unless z is NULL, they are packed there. */
NAPIER_KERNEL void pack_groups(const napier_softmax_job *job, napier_dtype dtype, int groups, int64_t row, int rows,
                               int64_t begin, int n, float *z, napier_range *range) {
    const bool divide = job->temperature != 1.0f;
    const vf t = vf_set(job->temperature);
    napier_range found[4];
    NAPIER_UNROLL
    for (int g = 0; g < groups; g++) {
        found[g] = no_range();
    }
    for (int i = 0; i < n; i++) {
        NAPIER_UNROLL
        for (int g = 0; g < groups; g++) {
            const int part = groups > 1 ? 16 : rows;
            __builtin_prefetch(
                napier_at(job->x.data, dtype, row + g * 16 + (begin + i + NAPIER_COLUMNS_AHEAD) * job->x.col_stride));
            vf v = load_column(job, dtype, row + g * 16, begin + i, part);
            v = divide ? vf_div(v, t) : v;
            if (z) {
                vf_store(z + ((int64_t)g * n + i) * 16, v);
            }
            found[g] = range_add(found[g], v);
        }
    }
    NAPIER_UNROLL
    for (int g = 0; g < groups; g++) {
        range[g] = found[g];
    }
}

NAPIER_KERNEL void pack_strip_as(napier_dtype dtype, const napier_softmax_job *job, int64_t row, int rows,
                                 int64_t begin, int n, float *z, napier_range *range) {
    int r = 0;
    for (; r + 64 <= rows; r += 64) {
        pack_groups(job, dtype, 4, row + r, 64, begin, n, z + (int64_t)r * n, range + r / 16);
    }
    for (; r < rows; r += 16) {
        const int part = rows - r < 16 ? rows - r : 16;
        pack_groups(job, dtype, 1, row + r, part, begin, n, z + (int64_t)r * n, range + r / 16);
    }
}

/* Packs columns [begin, begin + n) of `rows` neighbouring rows into z, and finds the ranges of each 16. */
static void pack_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int n, float *z,
                       napier_range *range) {
    NAPIER_FOR_DTYPE(job->x.dtype, pack_strip_as, job, row, rows, begin, n, z, range);
}

/* One column of all groups, contiguous. */
NAPIER_KERNEL void strip_column(const float *z, int rows, int n, int i, float *column) {
    for (int r = 0; r < rows; r += 16) {
        vf_store(column + r, vf_load(z + (int64_t)r * n + i * 16));
    }
}

static void unpack_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int n, const float *z) {
    for (int i = 0; i < n; i++) {
        float column[NAPIER_STRIP_MOST];
        void *y = napier_at_out(job->y.data, job->y.dtype, row + (begin + i) * job->y.col_stride);
        strip_column(z, rows, n, i, column);
        napier_scatter(column, rows, y, job->y.dtype, 1, job->stream);
    }
}

/* The input of the next strip, or of the next tile of this one, which is fetched while this one is summed: column by
 * column, because memory gives neighbouring lines faster. */
typedef struct napier_fetch {
    const char *at;  /* in the first column that is left */
    ptrdiff_t step;  /* bytes from column to column */
    int lines, line; /* of a column: all, and how many are fetched */
    int64_t left;    /* columns */
} napier_fetch;

/* `rows` rows from `row` on, of columns [begin, end). */
static napier_fetch fetch_of(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end) {
    const int size = job->x.dtype == NAPIER_F32 ? 4 : 2;
    const char *at = (const char *)job->x.data + (begin < end ? (row + begin * job->x.col_stride) * size : 0);
    return (napier_fetch){at, job->x.col_stride * size, (rows * size + 63) / 64, 0, end - begin};
}

/* Fetches the next line. */
NAPIER_KERNEL void fetch_next(napier_fetch *f) {
    if (f->left > 0) {
        __builtin_prefetch(f->at + 64 * (int64_t)f->line, 0, 2);
        if (++f->line == f->lines) {
            f->line = 0;
            f->left--;
            f->at += f->step;
        }
    }
}

/* Computes rest and count of 16 rows. If the terms are kept, they replace z. acc: 256 vectors. */
NAPIER_KERNEL void strip_sum_as(napier_sixteen *s, float *z, int n, bool cut, bool keep, napier_fetch *ahead,
                                float *acc) {
    vi below = vi_set(0);
    vf term;
    for (int i = 0; i < n; i++) {
        float *at = z + i * 16, *lane = acc + 16 * (i % NAPIER_TILE_LANES);
        fetch_next(ahead);
        const vf t = sixteen_term(s, vf_load(at), cut, &below, &term);
        vf_store(lane, i < NAPIER_TILE_LANES ? t : vf_add(vf_load(lane), t));
        if (keep) {
            vf_store(at, term);
        }
    }
    const int lanes = n < NAPIER_TILE_LANES ? n : NAPIER_TILE_LANES;
    for (int half = NAPIER_TILE_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half && i + half < lanes; i++) {
            vf_store(acc + 16 * i, vf_add(vf_load(acc + 16 * i), vf_load(acc + 16 * (i + half))));
        }
    }
    s->rest = vf_load(acc);
    s->count = sixteen_count(n, below);
}

static void strip_sum(napier_sixteen *s, float *z, int n, bool keep, napier_fetch *ahead, float *acc) {
    if (sixteen_within(s, NAPIER_CUTOFF)) {
        keep ? strip_sum_as(s, z, n, false, true, ahead, acc) : strip_sum_as(s, z, n, false, false, ahead, acc);
    } else {
        keep ? strip_sum_as(s, z, n, true, true, ahead, acc) : strip_sum_as(s, z, n, true, false, ahead, acc);
    }
}

/* Replaces the values by the results. The values are terms for softmax, z for log_softmax. */
NAPIER_KERNEL void strip_results(napier_softmax_op op, const napier_writer *w, float *z, int n, bool care) {
    for (int i = 0; i < n; i++) {
        vf_store(z + i * 16, result16(op, w, vf_load(z + i * 16), care));
    }
}

/* State and finals of 16 rows of a strip. */
typedef struct napier_strip_group {
    napier_sixteen s;
    napier_finals f;
} napier_strip_group;

/* Computes the rows of a group that are marked in `alone` from the input again, into z or lse. */
static void strip_alone(const napier_softmax_job *job, int64_t row, int rows, vm alone, float *z, float *lse) {
    const int n = (int)job->x.cols;
    float which[16];
    vf_store(which, vf_keep(alone, vf_set(1.0f)));
    for (int r = 0; r < rows; r++) {
        if (which[r] != 0.0f) {
            float line[NAPIER_TILE], result[NAPIER_TILE];
            const napier_looked looked = look_row(job, row + r, 0, n, line);
            row_by_definition(job->op, job->masked_rows, looked.z, n, result);
            if (job->op == NAPIER_OP_LOGSUMEXP) {
                lse[r] = result[0];
            } else {
                napier_scatter(result, n, z + r, NAPIER_F32, 16, false);
            }
        }
    }
}

static void strip_write_lse(const napier_softmax_job *job, int64_t row, int rows, const napier_strip_group *group) {
    for (int r = 0; r < rows; r += 16, group++) {
        const int part = rows - r < 16 ? rows - r : 16;
        float lse[16];
        vf_store(lse, group->f.lse);
        if (vm_any(group->s.alone)) {
            strip_alone(job, row + r, part, group->s.alone, NULL, lse);
        }
        napier_scatter(lse, part, row_out(job, row + r), job->y.dtype, job->y.row_stride, false);
    }
}

/* Results of whole rows, whatever they contain: first in place, then copied. */
NAPIER_KERNEL void strip_write_any(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                                   const napier_strip_group *group, float *z) {
    const int n = (int)job->x.cols;
    for (int r = 0; r < rows; r += 16, group++) {
        float *values = z + (int64_t)r * n;
        const napier_writer w = sixteen_writer(&group->s, &group->f, true);
        strip_results(op, &w, values, n, true);
        if (vm_any(group->s.alone)) {
            strip_alone(job, row + r, rows - r < 16 ? rows - r : 16, group->s.alone, values, NULL);
        }
    }
    unpack_strip(job, row, rows, 0, n, z);
}

/* Writes columns [begin, begin + n) straight to y, column by column, if all rows are ordinary and y is f32 or bf16.
 * stream: the rows are whole vectors. */
NAPIER_KERNEL void strip_write_as(napier_softmax_op op, const napier_softmax_job *job, napier_dtype dtype, bool stream,
                                  int64_t row, int rows, int64_t begin, int n, const napier_strip_group *group,
                                  const float *z) {
    const uintptr_t ahead = NAPIER_COLUMNS_AHEAD * (uintptr_t)job->y.col_stride * (dtype == NAPIER_F32 ? 4 : 2);
    for (int64_t i = 0; i < n; i++) {
        void *y = napier_at_out(job->y.data, dtype, row + (begin + i) * job->y.col_stride);
        for (int g = 0; g * 16 < rows; g++) {
            const napier_writer w = sixteen_writer(&group[g].s, &group[g].f, false);
            const vf result = result16(op, &w, vf_load(z + (g * n + i) * 16), false);
            if (stream) {
                vf_stream((float *)y + g * 16, result);
                continue;
            }
            __builtin_prefetch((const void *)((uintptr_t)napier_at_out(y, dtype, g * 16) + ahead), 1);
            if (g * 16 + 16 <= rows) {
                napier_store16(napier_at_out(y, dtype, g * 16), dtype, result);
            } else {
                napier_store_part(napier_at_out(y, dtype, g * 16), dtype, rows - g * 16, result);
            }
        }
    }
}

static bool strip_is_ordinary(napier_softmax_op op, int rows, const napier_strip_group *group) {
    bool ordinary = true;
    for (int g = 0; g * 16 < rows; g++) {
        ordinary &= !vm_any(group[g].s.alone) && (op != NAPIER_OP_SOFTMAX || sixteen_within(&group[g].s, 80.0f));
    }
    return ordinary;
}

/* Are the rows of f32 whole cache lines in each column of y? */
static bool strip_is_lines(const napier_softmax_job *job, int64_t row, int rows) {
    return ((uintptr_t)((float *)job->y.data + row) & 63) == 0 && job->y.col_stride % 16 == 0 && rows % 16 == 0;
}

/* The same, if the dtype of y allows it. Returns false otherwise. */
NAPIER_KERNEL bool strip_write(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                               int64_t begin, int n, const napier_strip_group *group, const float *z) {
    if (job->y.dtype == NAPIER_BF16) {
        strip_write_as(op, job, NAPIER_BF16, false, row, rows, begin, n, group, z);
    } else if (job->y.dtype == NAPIER_F32 && job->stream && strip_is_lines(job, row, rows)) {
        strip_write_as(op, job, NAPIER_F32, true, row, rows, begin, n, group, z);
    } else if (job->y.dtype == NAPIER_F32) {
        strip_write_as(op, job, NAPIER_F32, false, row, rows, begin, n, group, z);
    } else {
        return false;
    }
    return true;
}

/* One strip of whole rows of up to one tile. next: the rows of the strip after it. */
NAPIER_KERNEL void short_columns_strip(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                                       int next, float *z, float *acc) {
    const int n = (int)job->x.cols;
    napier_range range[NAPIER_STRIP_MOST / 16];
    napier_strip_group group[NAPIER_STRIP_MOST / 16];
    napier_fetch ahead = fetch_of(job, row + rows, next, 0, next > 0 ? n : 0);
    pack_strip(job, row, rows, 0, n, z, range);
    int g = 0;
    do { /* rows > 0 */
        napier_strip_group *to = &group[g];
        sixteen_start(&to->s, range[g]);
        strip_sum(&to->s, z + (int64_t)g * 16 * n, n, op == NAPIER_OP_SOFTMAX, &ahead, acc);
        to->f = napier_finish16(op, to->s.max, to->s.maxima.p, to->s.count, to->s.rest);
    } while (++g * 16 < rows);
    if (op == NAPIER_OP_LOGSUMEXP) {
        strip_write_lse(job, row, rows, group);
    } else if (!(strip_is_ordinary(op, rows, group) && strip_write(op, job, row, rows, 0, n, group, z))) {
        strip_write_any(op, job, row, rows, group, z);
    }
}

/* Rows of a few columns need no strip: 16 rows at a time, one vector per column, in registers. For f32 or bf16, the
 * same dtype in and out, temperature 1. */
NAPIER_KERNEL void tiny_columns_as(napier_softmax_op op, int width, napier_dtype dtype, bool stream,
                                   const napier_softmax_job *job, int64_t begin, int64_t end) {
    const int n = tiny_columns_of_width(job, width);
    for (int64_t row = begin; row < end; row += 16) {
        vf v[NAPIER_TINY_COLS];
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                const char *x = (const char *)napier_at(job->x.data, dtype, row + i * job->x.col_stride);
                __builtin_prefetch(x + NAPIER_PREFETCH_BYTES / 2);
                v[i] = napier_load16(x, dtype);
            }
        }
        const vf lse = tiny_group(op, width, n, job->masked_rows, v);
        if (op == NAPIER_OP_LOGSUMEXP) {
            napier_store16(row_out(job, row), dtype, lse);
            continue;
        }
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                void *y = napier_at_out(job->y.data, dtype, row + i * job->y.col_stride);
                if (stream) {
                    vf_stream((float *)y, v[i]);
                } else {
                    napier_fetch_to_write(y);
                    napier_store16(y, dtype, v[i]);
                }
            }
        }
    }
}

/* The same for 32 rows of bf16 at a time: the even rows, then the odd ones. Returns the first row that is left. */
NAPIER_KERNEL int64_t tiny_columns_pairs(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t begin,
                                         int64_t end) {
    const int n = tiny_columns_of_width(job, width);
    int64_t row = begin;
    for (; row + 32 <= end; row += 32) {
        vf even[NAPIER_TINY_COLS], odd[NAPIER_TINY_COLS];
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                const char *x = (const char *)napier_at(job->x.data, NAPIER_BF16, row + i * job->x.col_stride);
                const vi pairs = vi_load((const int32_t *)(const void *)x);
                __builtin_prefetch(x + NAPIER_PREFETCH_BYTES / 4);
                even[i] = napier_bf16_even(pairs);
                odd[i] = napier_bf16_odd(pairs);
            }
        }
        const vf even_lse = tiny_group(op, width, n, job->masked_rows, even);
        const vf odd_lse = tiny_group(op, width, n, job->masked_rows, odd);
        if (op == NAPIER_OP_LOGSUMEXP) {
            vi_store((int32_t *)row_out(job, row), napier_bf16_pairs(even_lse, odd_lse));
            continue;
        }
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                void *y = napier_at_out(job->y.data, NAPIER_BF16, row + i * job->y.col_stride);
                napier_fetch_to_write(y);
                vi_store((int32_t *)y, napier_bf16_pairs(even[i], odd[i]));
            }
        }
    }
    return row;
}

NAPIER_KERNEL void tiny_columns_in(napier_softmax_op op, napier_dtype dtype, bool stream, const napier_softmax_job *job,
                                   int64_t begin, int64_t end) {
    const int width = tiny_width(job->x.cols);
    if (dtype == NAPIER_BF16) {
        begin = width == 2   ? tiny_columns_pairs(op, 2, job, begin, end)
                : width == 4 ? tiny_columns_pairs(op, 4, job, begin, end)
                             : tiny_columns_pairs(op, 8, job, begin, end);
    }
    if (width == 2) {
        tiny_columns_as(op, 2, dtype, stream, job, begin, end);
    } else if (width == 4) {
        tiny_columns_as(op, 4, dtype, stream, job, begin, end);
    } else {
        tiny_columns_as(op, 8, dtype, stream, job, begin, end);
    }
}

NAPIER_KERNEL void tiny_columns_of(napier_softmax_op op, const napier_softmax_job *job, bool stream, int64_t begin,
                                   int64_t end) {
    if (job->x.dtype == NAPIER_BF16) {
        tiny_columns_in(op, NAPIER_BF16, false, job, begin, end);
    } else if (stream) {
        tiny_columns_in(op, NAPIER_F32, true, job, begin, end);
    } else {
        tiny_columns_in(op, NAPIER_F32, false, job, begin, end);
    }
}

/* Returns the first row that it has not computed. It computes whole vectors of rows, if the job is of
 * the kind above. */
static int64_t tiny_columns(const napier_softmax_job *job, int64_t begin, int64_t end) {
    const int64_t n = job->x.cols, whole = begin + (end - begin) / 16 * 16;
    const bool lse = job->op == NAPIER_OP_LOGSUMEXP;
    const bool alike = job->x.dtype == job->y.dtype && job->x.dtype != NAPIER_F16 && job->temperature == 1.0f;
    if (n > 8 || !alike || (lse && job->y.row_stride != 1)) {
        return begin;
    }
    const bool lines = ((uintptr_t)((float *)job->y.data + begin) & 63) == 0 && job->y.col_stride % 16 == 0;
    NAPIER_FOR_OP(job->op, tiny_columns_of, job, job->stream && lines, begin, whole);
    return whole;
}

/* Rows in a strip of up to one tile: as many as stay in the first-level cache, 24 KB. */
static int strip_rows(int64_t cols) {
    const int64_t rows = 6144 / cols / NAPIER_STRIP * NAPIER_STRIP;
    return rows < NAPIER_STRIP ? NAPIER_STRIP : (int)napier_least(rows, NAPIER_STRIP_MOST);
}

static void short_columns(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int strip = strip_rows(job->x.cols);
    float *z = scratch, *acc = scratch + NAPIER_STRIP * NAPIER_TILE;
    for (int64_t row = tiny_columns(job, begin, end); row < end; row += strip) {
        const int rows = end - row < strip ? (int)(end - row) : strip;
        const int next = (int)napier_least(end - row - rows, strip);
        NAPIER_FOR_OP(job->op, short_columns_strip, job, row, rows, next, z, acc);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* One row of a strip as contiguous floats. */
static void strip_line(const float *z, int n, float *line) {
    for (int i = 0; i < n; i++) {
        line[i] = z[i * 16];
    }
}

/* Computes rest and count of 16 rows over a full tile within the cutoff, element i of them at x + i * step bytes. Four of
 * the 256 lanes, which the first two folds join, are summed at a time. next: a quarter of the columns of the strip's next
 * tile. acc: 64 vectors. */
NAPIER_KERNEL void strip_sum_tile(napier_sixteen *s, napier_dtype dtype, const char *x, ptrdiff_t step,
                                  const char *next, ptrdiff_t next_step, float *acc) {
    enum { QUARTER = NAPIER_TILE_LANES / 4 };
    const int strip = NAPIER_STRIP * (dtype == NAPIER_F32 ? 4 : 2); /* bytes */
    vi below = vi_set(0);
    for (int i = 0; i < QUARTER; i++, x += step) {
        vf lane[4], term;
        NAPIER_UNROLL
        for (int q = 0; q < 4; q++) {
            NAPIER_UNROLL
            for (int line = 0; line < strip; line += 64) { /* together, as memory gives them */
                __builtin_prefetch(next + line, 0, 2);
            }
            next += next_step;
            NAPIER_UNROLL
            for (int column = q * QUARTER; column < NAPIER_TILE; column += NAPIER_TILE_LANES) {
                const vf z = napier_load16(x + column * step, dtype);
                const vf t = sixteen_term(s, z, false, &below, &term);
                lane[q] = column < NAPIER_TILE_LANES ? t : vf_add(lane[q], t);
            }
        }
        vf_store(acc + 16 * i, vf_add(vf_add(lane[0], lane[2]), vf_add(lane[1], lane[3])));
    }
    for (int half = QUARTER / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            vf_store(acc + 16 * i, vf_add(vf_load(acc + 16 * i), vf_load(acc + 16 * (i + half))));
        }
    }
    s->rest = vf_load(acc);
    s->count = sixteen_count(NAPIER_TILE, below);
}

/* Is a full tile of a whole strip summed where it lies? Its cache lines must not share a few sets, because they are read
 * twice, and one conversion must be all that makes an element z. */
static bool sums_in_place(const napier_softmax_job *job) {
    const uint64_t bytes = (uint64_t)job->x.col_stride * (job->x.dtype == NAPIER_F32 ? 4 : 2);
    return job->temperature == 1.0f && job->x.dtype != NAPIER_F16 && bytes % 2048 != 0;
}

/* Sums a tile of a whole strip where it lies, if all of its rows are ordinary; otherwise returns false. */
NAPIER_KERNEL bool sum_in_place_as(napier_dtype dtype, const napier_softmax_job *job, int64_t row, int64_t begin,
                                   int64_t end, napier_sixteen *sixteen, float *acc) {
    napier_range range[NAPIER_STRIP / 16];
    bool ordinary = true;
    pack_groups(job, dtype, 4, row, NAPIER_STRIP, begin, NAPIER_TILE, NULL, range);
    for (int g = 0; g < 4; g++) {
        sixteen_start(&sixteen[g], range[g]);
        ordinary = ordinary && !vm_any(sixteen[g].alone) && sixteen_within(&sixteen[g], NAPIER_CUTOFF);
    }
    const ptrdiff_t step = job->x.col_stride * (dtype == NAPIER_F32 ? 4 : 2);
    const char *x = (const char *)napier_at(job->x.data, dtype, row) + begin * step;
    const bool more = begin + 2 * NAPIER_TILE <= end;
    for (int g = 0; ordinary && g < 4; g++) {
        const char *next = more ? x + (NAPIER_TILE + g * NAPIER_TILE / 4) * step : x;
        strip_sum_tile(&sixteen[g], dtype, (const char *)napier_at(x, dtype, g * 16), step, next, more ? step : 0, acc);
    }
    return ordinary;
}

static bool sum_in_place(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                         napier_sixteen *sixteen, float *acc) {
    return job->x.dtype == NAPIER_F32 ? sum_in_place_as(NAPIER_F32, job, row, begin, end, sixteen, acc)
                                      : sum_in_place_as(NAPIER_BF16, job, row, begin, end, sixteen, acc);
}

static void sum_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                      napier_sum *sums, float *scratch) {
    const bool in_place = rows == NAPIER_STRIP && sums_in_place(job);
    float *z = scratch, *acc = scratch + NAPIER_STRIP * NAPIER_TILE;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        napier_range range[NAPIER_STRIP / 16];
        napier_sixteen sixteen[NAPIER_STRIP / 16];
        const bool summed = in_place && n == NAPIER_TILE && sum_in_place(job, row, i, end, sixteen, acc);
        napier_fetch ahead = fetch_of(job, row, rows, i + n, i + n + napier_least(end - i - n, NAPIER_TILE));
        if (!summed) {
            pack_strip(job, row, rows, i, n, z, range);
        }
        for (int r = 0; r < rows; r += 16) {
            float *group = z + (int64_t)r * n;
            napier_sixteen s = sixteen[r / 16];
            if (!summed) {
                sixteen_start(&s, range[r / 16]);
                strip_sum(&s, group, n, false, &ahead, acc);
            }
            float alone[16], max[16], min[16], rest[16], count[16];
            vf_store(alone, vf_keep(s.alone, vf_set(1.0f)));
            vf_store(max, s.max);
            vf_store(min, s.min);
            vf_store(rest, s.rest);
            vf_store(count, s.count);
            for (int j = 0; j < 16 && r + j < rows; j++) {
                napier_tile_sum t = {max[j], min[j], rest[j], (int32_t)count[j], false};
                if (alone[j] != 0.0f) {
                    float line[NAPIER_TILE];
                    strip_line(group + j, n, line);
                    napier_tile_by_definition(line, n, &t);
                }
                napier_sum_add_tile(&sums[r + j], &t);
            }
        }
    }
}

/* 16 finished rows, of which only `rows` exist. Those that are not ordinary are marked in `alone`. */
static void strip_group_of(const napier_final *finals, int rows, napier_strip_group *group) {
    float max[16] = {0}, log_sum[16] = {0}, scale[16], max_prob[16], magic[16], alone[16] = {0};
    for (int j = 0; j < 16; j++) {
        scale[j] = 0x1p-64f;
        max_prob[j] = 1.0f;
        magic[j] = napier_term_magic(0);
        if (j < rows) {
            const napier_final *f = &finals[j];
            if (f->kind != NAPIER_ROW_FINITE || napier_is_big(f->max) || f->factor != 1.0f) {
                alone[j] = 1.0f;
                continue;
            }
            max[j] = f->max;
            log_sum[j] = f->log_sum;
            scale[j] = f->scale;
            max_prob[j] = f->max_prob;
            magic[j] = napier_term_magic(f->exponent);
        }
    }
    group->s = (napier_sixteen){.max = vf_load(max), .maxima = {vf_zero(), vf_load(magic)}};
    group->s.alone = vf_gt(vf_load(alone), vf_zero());
    group->f = (napier_finals){vf_zero(), vf_load(log_sum), vf_load(max_prob), vf_load(scale)};
}

/* Replaces the z of one tile of a row that is computed alone by its results; the stride is 16. */
static void write_alone(napier_softmax_op op, const napier_final *final, napier_masked_rows masked, float *z, int n) {
    float line[NAPIER_TILE] = {0};
    strip_line(z, n, line);
    if (final->kind != NAPIER_ROW_FINITE || napier_is_big(final->max)) {
        write_by_definition(op, final, masked, line, n, line);
    } else {
        for (int i = 0; i < n; i++) {
            line[i] = napier_softmax_of(final, line[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        const float v = final->factor != 1.0f ? line[i] * final->factor : line[i];
        z[i * 16] = v != v ? napier_nan() : v;
    }
}

/* Replaces the z of one tile of 16 rows by their results. */
NAPIER_KERNEL void write_sixteen(napier_softmax_op op, const napier_final *finals, int rows,
                                 const napier_strip_group *group, napier_masked_rows masked, float *z, int n) {
    const napier_writer w = sixteen_writer(&group->s, &group->f, true);
    float alone[16];
    vf_store(alone, vf_keep(group->s.alone, vf_set(1.0f)));
    for (int j = 0; j < rows; j++) { /* their results stay in their own lane of the strip, which nothing else reads */
        if (alone[j] != 0.0f) {
            write_alone(op, &finals[j], masked, z + j, n);
        }
    }
    const vf cutoff = vf_sub(group->s.max, vf_set(NAPIER_CUTOFF));
    for (int i = 0; i < n; i++) {
        float *at = z + i * 16;
        const vf v = vf_load(at);
        vf value = v;
        if (op == NAPIER_OP_SOFTMAX) {
            value = vf_keep(vf_ge(v, cutoff), vf_exp_scaled(v, group->s.maxima.magic));
        }
        vf_store(at, vf_select(group->s.alone, v, result16(op, &w, value, true)));
    }
}

/* Replaces the z of 16 ordinary rows by their terms. */
NAPIER_KERNEL void strip_terms(const napier_strip_group *group, float *z, int n) {
    for (int i = 0; i < n; i++) {
        vf_store(z + i * 16, vf_exp_scaled(vf_load(z + i * 16), group->s.maxima.magic));
    }
}

/* Is one operation on its term enough for every result of the 16 rows? */
NAPIER_KERNEL bool sixteen_normal(napier_softmax_op op, const napier_strip_group *group, napier_range range) {
    const vf lowest = vf_sub(vf_sub(range.min, group->s.max), group->f.log_sum);
    return !vm_any(group->s.alone) &&
           (op != NAPIER_OP_SOFTMAX || vm_all(vf_ge(lowest, vf_set(NAPIER_NORMAL_LOG_PROB))));
}

/* Columns [begin, begin + n) of a strip. */
NAPIER_KERNEL void write_strip_tile(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                                    int64_t begin, int n, const napier_final *finals, const napier_strip_group *group,
                                    float *z) {
    napier_range range[NAPIER_STRIP / 16];
    bool ordinary = true;
    pack_strip(job, row, rows, begin, n, z, range);
    for (int r = 0; r < rows; r += 16) {
        ordinary = ordinary && sixteen_normal(op, &group[r / 16], range[r / 16]);
    }
    if (ordinary && op == NAPIER_OP_SOFTMAX) {
        for (int r = 0; r < rows; r += 16) {
            strip_terms(&group[r / 16], z + (int64_t)r * n, n);
        }
    }
    if (ordinary && strip_write(op, job, row, rows, begin, n, group, z)) {
        return;
    }
    if (ordinary && op == NAPIER_OP_SOFTMAX) { /* all is ordinary, only y's dtype prevented the direct write */
        for (int r = 0; r < rows; r += 16) {
            const napier_writer w = sixteen_writer(&group[r / 16].s, &group[r / 16].f, false);
            strip_results(op, &w, z + (int64_t)r * n, n, false);
        }
    } else {
        for (int r = 0; r < rows; r += 16) {
            const int part = rows - r < 16 ? rows - r : 16;
            write_sixteen(op, finals + r, part, &group[r / 16], job->masked_rows, z + (int64_t)r * n, n);
        }
    }
    unpack_strip(job, row, rows, begin, n, z);
}

enum { NAPIER_BLOCK = 4, NAPIER_BLOCKS_AHEAD = 4 }; /* columns in registers, and how far ahead x and y are fetched */

/* `n` columns of a whole strip, from x to y through registers. Returns false, and writes nothing, if a result may be
 * subnormal. */
NAPIER_KERNEL bool write_block(napier_softmax_op op, napier_dtype dtype, bool stream, int n,
                               const napier_softmax_job *job, int64_t row, int64_t begin,
                               const napier_strip_group *group) {
    const int64_t in = job->x.col_stride, out = job->y.col_stride, ahead = NAPIER_BLOCK * NAPIER_BLOCKS_AHEAD;
    vf v[NAPIER_BLOCK][4];
    bool normal = true;
    NAPIER_UNROLL
    for (int g = 0; g < 4; g++) {
        napier_range range = no_range();
        NAPIER_UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t at = row + g * 16 + (begin + i) * in;
            __builtin_prefetch(napier_at(job->x.data, dtype, at + ahead * in));
            v[i][g] = napier_load16(napier_at(job->x.data, dtype, at), dtype);
            range.min = vf_min(v[i][g], range.min);
        }
        normal = normal && sixteen_normal(op, &group[g], range);
    }
    if (!normal) {
        return false;
    }
    NAPIER_UNROLL
    for (int g = 0; g < 4; g++) {
        const napier_writer w = sixteen_writer(&group[g].s, &group[g].f, false);
        NAPIER_UNROLL
        for (int i = 0; i < n; i++) {
            const vf value = op == NAPIER_OP_SOFTMAX ? vf_exp_scaled(v[i][g], group[g].s.maxima.magic) : v[i][g];
            const vf result = result16(op, &w, value, false);
            void *y = napier_at_out(job->y.data, dtype, row + g * 16 + (begin + i) * out);
            if (stream) {
                vf_stream((float *)y, result);
            } else {
                __builtin_prefetch(napier_at_out(job->y.data, dtype, row + g * 16 + (begin + i + ahead) * out), 1);
                napier_store16(y, dtype, result);
            }
        }
    }
    return true;
}

/* Columns [begin, end) of a whole strip, in blocks. Returns the first column that needs more care. */
NAPIER_KERNEL int64_t write_blocks(napier_softmax_op op, napier_dtype dtype, bool stream, const napier_softmax_job *job,
                                   int64_t row, int64_t begin, int64_t end, const napier_strip_group *group) {
    int64_t i = begin;
    while (i + NAPIER_BLOCK <= end && write_block(op, dtype, stream, NAPIER_BLOCK, job, row, i, group)) {
        i += NAPIER_BLOCK;
    }
    while (i < end && write_block(op, dtype, stream, 1, job, row, i, group)) {
        i++;
    }
    return i;
}

NAPIER_KERNEL void write_strip_of(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                                  int64_t begin, int64_t end, const napier_final *finals, float *z) {
    napier_strip_group group[NAPIER_STRIP / 16];
    for (int r = 0; r < rows; r += 16) {
        strip_group_of(finals + r, rows - r < 16 ? rows - r : 16, &group[r / 16]);
    }
    const bool blocks =
        rows == NAPIER_STRIP && job->x.dtype == job->y.dtype && job->x.dtype != NAPIER_F16 && job->temperature == 1.0f;
    const int64_t last = begin + (end - begin - 1) / NAPIER_TILE * NAPIER_TILE;
    for (int64_t i = last; i >= begin; i -= NAPIER_TILE) { /* what was summed last is still in the caches */
        const int64_t tile_end = i + napier_tile_at(i, end);
        int64_t at = i;
        if (blocks && job->x.dtype == NAPIER_BF16) {
            at = write_blocks(op, NAPIER_BF16, false, job, row, i, tile_end, group);
        } else if (blocks && job->stream && strip_is_lines(job, row, rows)) {
            at = write_blocks(op, NAPIER_F32, true, job, row, i, tile_end, group);
        } else if (blocks) {
            at = write_blocks(op, NAPIER_F32, false, job, row, i, tile_end, group);
        }
        if (at < tile_end) {
            write_strip_tile(op, job, row, rows, at, (int)(tile_end - at), finals, group, z);
        }
    }
}

static void write_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                        const napier_final *finals, float *scratch) {
    if (job->op == NAPIER_OP_SOFTMAX) {
        write_strip_of(NAPIER_OP_SOFTMAX, job, row, rows, begin, end, finals, scratch);
    } else {
        write_strip_of(NAPIER_OP_LOG_SOFTMAX, job, row, rows, begin, end, finals, scratch);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* ---- A few rows that are neighbours in memory ---------------------------------------------------------------------- */

/* Fewer than 16 long rows would leave lanes of a strip empty. They are transposed to f32 z, with `ld`
 * floats from row to row, and then computed along the vectors like other rows. Columns [begin, end) of
 * all of them; z has space for whole vectors. */
NAPIER_KERNEL void pack_few_as(napier_dtype dtype, const napier_softmax_job *job, int64_t begin, int64_t end, float *z,
                               int64_t ld) {
    const int rows = (int)job->x.rows;
    const bool divide = job->temperature != 1.0f;
    const vf t = vf_set(job->temperature);
    for (int64_t i = begin; i < end; i += 16) {
        const int n = end - i < 16 ? (int)(end - i) : 16;
        vf v[16];
        for (int j = 0; j < 16; j++) {
            v[j] = j < n ? load_column(job, dtype, 0, i + j, rows) : vf_zero();
        }
        vf_transpose(v);
        for (int r = 0; r < rows; r++) {
            vf_store(z + r * ld + i, divide ? vf_div(v[r], t) : v[r]);
        }
    }
}

/* Eight rows of f32: column i + j in the low half of v[j], column i + 16 + j in the high half. Returns
 * the first column that it has not packed. */
static int64_t pack_eight(const napier_softmax_job *job, int64_t begin, int64_t end, float *z, int64_t ld) {
    const int64_t step = job->x.col_stride;
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
        const float *x = (const float *)job->x.data + i * step;
        vf v[16];
        NAPIER_UNROLL
        for (int j = 0; j < 16; j++) {
            v[j] = vf_load_halves(x + j * step, x + (j + 16) * step);
        }
        vf_transpose(v);
        NAPIER_UNROLL
        for (int r = 0; r < 8; r++) {
            vf_store(z + r * ld + i, v[r]);
            vf_store(z + r * ld + i + 16, v[r + 8]);
        }
    }
    return i;
}

static void pack_few(const napier_softmax_job *job, int64_t begin, int64_t end, float *z, int64_t ld) {
    if (job->x.dtype == NAPIER_F32 && job->x.rows == 8 && job->temperature == 1.0f) {
        begin = pack_eight(job, begin, end, z, ld);
    }
    NAPIER_FOR_DTYPE(job->x.dtype, pack_few_as, job, begin, end, z, ld);
}

/* The inverse: writes columns [begin, end) of the results of all rows to y. */
NAPIER_KERNEL void unpack_few_as(napier_dtype dtype, const napier_softmax_job *job, int64_t begin, int64_t end,
                                 const float *z, int64_t ld) {
    const int rows = (int)job->y.rows;
    for (int64_t i = begin; i < end; i += 16) {
        const int n = end - i < 16 ? (int)(end - i) : 16;
        vf v[16];
        for (int r = 0; r < 16; r++) {
            v[r] = r < rows ? vf_load(z + r * ld + i) : vf_zero();
        }
        vf_transpose(v);
        for (int j = 0; j < n; j++) {
            napier_store_part(napier_at_out(job->y.data, dtype, (i + j) * job->y.col_stride), dtype, rows, v[j]);
        }
    }
}

static int64_t unpack_eight(const napier_softmax_job *job, int64_t begin, int64_t end, const float *z, int64_t ld) {
    const int64_t step = job->y.col_stride;
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
        float *y = (float *)job->y.data + i * step;
        vf v[16];
        NAPIER_UNROLL
        for (int r = 0; r < 8; r++) {
            v[r] = vf_load(z + r * ld + i);
            v[r + 8] = vf_load(z + r * ld + i + 16);
        }
        vf_transpose(v);
        NAPIER_UNROLL
        for (int j = 0; j < 16; j++) {
            vf_store_halves(y + j * step, y + (j + 16) * step, v[j]);
        }
    }
    return i;
}

static void unpack_few(const napier_softmax_job *job, int64_t begin, int64_t end, const float *z, int64_t ld) {
    if (job->y.dtype == NAPIER_F32 && job->y.rows == 8) {
        begin = unpack_eight(job, begin, end, z, ld);
    }
    NAPIER_FOR_DTYPE(job->y.dtype, unpack_few_as, job, begin, end, z, ld);
}

#endif
