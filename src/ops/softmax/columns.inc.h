/* ops/softmax/columns.inc.h - rows that are columns in memory: the first axis. Compiled once per instruction set.
 *
 * A strip is a few groups of 16 neighbouring rows, one in each lane of a vector (lanes.inc.h). It is packed as
 * [group][column][16 rows]: the group of row r begins at z + r * n. Packing reads short pieces of many cache lines that lie
 * far apart, so the next strip, or the next tile of this one, is fetched while this one is summed.
 * Columns of several tiles are summed and written without packing, where the caches and the values allow it. */
#ifndef NAPIER_OPS_SOFTMAX_COLUMNS_INC_H
#define NAPIER_OPS_SOFTMAX_COLUMNS_INC_H

#include "core/base/sizes.h"
#include "ops/softmax/lanes.inc.h"

/* ---- Strips ------------------------------------------------------------------------------------------------------ */

/* Column i of 16 rows, of which only `rows` exist. */
NAPIER_KERNEL vf load_column(const napier_softmax_job *job, napier_dtype dtype, int64_t row, int64_t i, int rows) {
    const void *x = napier_at(job->x.data, dtype, row + i * job->x.col_stride);
    return rows < 16 ? napier_load_part(x, dtype, rows, vf_zero()) : napier_load16(x, dtype);
}

/* The column this far ahead is fetched into the first-level cache while a column is read or written. */
enum { NAPIER_COLUMNS_AHEAD = 8 };

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

/* Cache lines that are fetched while a strip is summed: column by column, because memory gives neighbouring lines faster. */
typedef struct napier_fetch {
    const char *at;  /* in the first column that is left */
    ptrdiff_t step;  /* bytes from column to column */
    int lines, line; /* of a column: all, and how many are fetched */
    int64_t left;    /* columns */
} napier_fetch;

/* Columns [begin, end) of `rows` rows from `row` on. */
static napier_fetch fetch_of(napier_const_matrix m, int64_t row, int rows, int64_t begin, int64_t end) {
    const int size = m.dtype == NAPIER_F32 ? 4 : 2;
    const char *at = (const char *)m.data + (begin < end ? (row + begin * m.col_stride) * size : 0);
    return (napier_fetch){at, m.col_stride * size, (rows * size + 63) / 64, 0, end - begin};
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
NAPIER_KERNEL void strip_sum_as(napier_sixteen *s, float *z, int n, bool cut, bool keep, napier_fetch *next,
                                float *acc) {
    vi below = vi_set(0);
    vf term;
    for (int i = 0; i < n; i++) {
        float *at = z + i * 16, *lane = acc + 16 * (i % NAPIER_TILE_LANES);
        fetch_next(next);
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

static void strip_sum(napier_sixteen *s, float *z, int n, bool keep, napier_fetch *next, float *acc) {
    if (sixteen_within(s, NAPIER_CUTOFF)) {
        keep ? strip_sum_as(s, z, n, false, true, next, acc) : strip_sum_as(s, z, n, false, false, next, acc);
    } else {
        keep ? strip_sum_as(s, z, n, true, true, next, acc) : strip_sum_as(s, z, n, true, false, next, acc);
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

/* ---- Rows of up to eight columns --------------------------------------------------------------------------------- */

/* Rows of a few columns need no strip: 16 rows at a time, one vector per column, in registers. For f32 or bf16, the
 * same dtype in and out, temperature 1. n: columns, constant if they are as many as the width. */
NAPIER_KERNEL void tiny_columns_as(napier_softmax_op op, int width, int n, napier_dtype dtype, bool stream,
                                   const napier_softmax_job *job, int64_t begin, int64_t end) {
    enum { AHEAD_BYTES = 512 }; /* farther ahead takes longer with eight columns */
    const int64_t x_step = job->x.col_stride, y_step = job->y.col_stride; /* stores do not change copies */
    const void *const x = job->x.data;
    void *const y = job->y.data;
    for (int64_t row = begin; row < end; row += 16) {
        vf v[NAPIER_TINY_COLS];
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                const char *from = (const char *)napier_at(x, dtype, row + i * x_step);
                __builtin_prefetch(from + AHEAD_BYTES);
                v[i] = napier_load16(from, dtype);
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
                void *to = napier_at_out(y, dtype, row + i * y_step);
                if (stream) {
                    vf_stream((float *)to, v[i]);
                } else {
                    napier_fetch_to_write(to);
                    napier_store16(to, dtype, v[i]);
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
    const int width = tiny_width(job->x.cols), n = (int)job->x.cols;
    if (dtype == NAPIER_BF16) {
        begin = width == 2   ? tiny_columns_pairs(op, 2, job, begin, end)
                : width == 4 ? tiny_columns_pairs(op, 4, job, begin, end)
                             : tiny_columns_pairs(op, 8, job, begin, end);
    }
    if (width == 2) {
        tiny_columns_as(op, 2, 2, dtype, stream, job, begin, end);
    } else if (width == 4) {
        tiny_columns_as(op, 4, n, dtype, stream, job, begin, end);
    } else if (n == 8) {
        tiny_columns_as(op, 8, 8, dtype, stream, job, begin, end);
    } else {
        tiny_columns_as(op, 8, n, dtype, stream, job, begin, end);
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

/* ---- Rows of up to one tile -------------------------------------------------------------------------------------- */

/* One strip of whole rows of up to one tile. next: the rows of the strip after it. */
NAPIER_KERNEL void short_columns_strip(napier_softmax_op op, const napier_softmax_job *job, int64_t row, int rows,
                                       int next, float *z, float *acc) {
    const int n = (int)job->x.cols;
    napier_range range[NAPIER_STRIP_MOST / 16];
    napier_strip_group group[NAPIER_STRIP_MOST / 16];
    napier_fetch fetch = fetch_of(job->x, row + rows, next, 0, next > 0 ? n : 0);
    pack_strip(job, row, rows, 0, n, z, range);
    int g = 0;
    do { /* rows > 0 */
        napier_strip_group *to = &group[g];
        sixteen_start(&to->s, range[g]);
        strip_sum(&to->s, z + (int64_t)g * 16 * n, n, op == NAPIER_OP_SOFTMAX, &fetch, acc);
        to->f = napier_finish16(op, to->s.max, to->s.maxima.p, to->s.count, to->s.rest);
    } while (++g * 16 < rows);
    if (op == NAPIER_OP_LOGSUMEXP) {
        strip_write_lse(job, row, rows, group);
    } else if (!(strip_is_ordinary(op, rows, group) && strip_write(op, job, row, rows, 0, n, group, z))) {
        strip_write_any(op, job, row, rows, group, z);
    }
}

/* Rows of up to one tile in a strip: as many as stay in the first-level cache, but at least NAPIER_STRIP. Half of that is
 * faster if it stays there, and if the columns, two whole lines each, are spread over all sets of the cache. */
static int strip_rows(const napier_softmax_job *job) {
    enum { FLOATS = 6144 }; /* 24 KB */
    const int64_t cols = job->x.cols, rows = FLOATS / cols / NAPIER_STRIP * NAPIER_STRIP;
    const bool spread = job->x.dtype == NAPIER_F32 && (uintptr_t)job->x.data % 64 == 0 && job->x.col_stride % 32 == 16;
    const int least = spread && FLOATS / cols >= NAPIER_STRIP / 2 ? NAPIER_STRIP / 2 : NAPIER_STRIP;
    return rows < least ? least : (int)napier_least(rows, NAPIER_STRIP_MOST);
}

NAPIER_SLOT void short_columns(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int strip = strip_rows(job);
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

/* ---- Rows of many tiles ------------------------------------------------------------------------------------------ */

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

NAPIER_SLOT void sum_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                           napier_sum *sums, float *scratch) {
    const bool in_place = rows == NAPIER_STRIP && sums_in_place(job);
    float *z = scratch, *acc = scratch + NAPIER_STRIP * NAPIER_TILE;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        napier_range range[NAPIER_STRIP / 16];
        napier_sixteen sixteen[NAPIER_STRIP / 16];
        const bool summed = in_place && n == NAPIER_TILE && sum_in_place(job, row, i, end, sixteen, acc);
        const int64_t next = i + n;
        napier_fetch fetch = fetch_of(job->x, row, rows, next, napier_least(next + NAPIER_TILE, end));
        if (!summed) {
            pack_strip(job, row, rows, i, n, z, range);
        }
        for (int r = 0; r < rows; r += 16) {
            float *group = z + (int64_t)r * n;
            napier_sixteen *of = &sixteen[r / 16];
            if (!summed) {
                sixteen_start(of, range[r / 16]);
                strip_sum(of, group, n, false, &fetch, acc);
            }
            float alone[16], max[16], min[16], rest[16], count[16];
            vf_store(alone, vf_keep(of->alone, vf_set(1.0f)));
            vf_store(max, of->max);
            vf_store(min, of->min);
            vf_store(rest, of->rest);
            vf_store(count, of->count);
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

/* Columns [begin, begin + n) of a strip, whatever they contain. */
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

NAPIER_SLOT void write_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
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

NAPIER_SLOT void pack_few(const napier_softmax_job *job, int64_t begin, int64_t end, float *z, int64_t ld) {
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

NAPIER_SLOT void unpack_few(const napier_softmax_job *job, int64_t begin, int64_t end, const float *z, int64_t ld) {
    if (job->y.dtype == NAPIER_F32 && job->y.rows == 8) {
        begin = unpack_eight(job, begin, end, z, ld);
    }
    NAPIER_FOR_DTYPE(job->y.dtype, unpack_few_as, job, begin, end, z, ld);
}

#endif
