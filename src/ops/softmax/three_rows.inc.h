/* ops/softmax/three_rows.inc.h - one loop over the columns that scans one row, sums another and writes a third, for rows of a tile
 * (short_rows.inc.h) and tiles of long rows (long_rows.inc.h). Compiled once per instruction set. */
#ifndef NAPIER_OPS_SOFTMAX_THREE_ROWS_INC_H
#define NAPIER_OPS_SOFTMAX_THREE_ROWS_INC_H

#include "ops/softmax/softmax.inc.h"

enum { NAPIER_LINE = 64 }; /* bytes of a cache line */

/* Whole cache lines to be stored past the caches. */
typedef struct napier_flush {
    const char *from;
    char *to;
    int64_t lines;
} napier_flush;

NAPIER_KERNEL void flush_line(napier_flush *f) {
    vf_stream((float *)(void *)f->to, vf_load((const float *)(const void *)f->from));
    f->from += NAPIER_LINE;
    f->to += NAPIER_LINE;
    f->lines--;
}

/* Which parts of the fused loop are needed. Kernels are specialised by these constants. */
typedef struct napier_stages {
    bool look, sum, write;
    napier_softmax_op op;
    napier_dtype in, out;
    int vectors; /* per row, if that is a constant; otherwise 0 */
    bool near;   /* what is scanned next is fetched into the first-level cache, not only into the second */
} napier_stages;

typedef struct napier_three_rows {
    const void *look_x; /* row of batch b + 1 */
    float *look_z;
    const float *sum_z; /* row of batch b */
    float *terms;
    napier_adder adder;
    const void *values; /* row of batch b - 1: its terms, or for log_softmax the row itself */
    napier_writer writer;
    void *y;
    bool stream;
    int turn;           /* of rows of a multiple of 16 vectors: where writing begins */
    napier_flush flush; /* lines of an earlier batch */
    napier_range range; /* the result of the scan */
    vi below;
} napier_three_rows;

/* Fetches what a scan will read. The first-level cache can wait for fewer lines than the second: on a Zen 4, rows of a tile
 * that are fetched into it take up to 1.4 times as long. Long rows, whose terms go through caches too, gain nothing. An f32
 * softmax leaves room for its terms in the first level. */
NAPIER_KERNEL void fetch_to_look(const napier_stages k, const char *x) {
    if (!k.near) {
        __builtin_prefetch(x + NAPIER_PREFETCH_BYTES, 0, 2);
    } else {
        const bool keeps = k.op == NAPIER_OP_SOFTMAX && k.in == NAPIER_F32;
        __builtin_prefetch(x + (keeps ? NAPIER_PREFETCH_BYTES / 2 : NAPIER_PREFETCH_BYTES));
    }
}

/* Scans 16 columns of a row, from column i on, of which only n exist. */
NAPIER_KERNEL void look_step(const napier_stages k, napier_three_rows *t, int i, int n) {
    if (!k.look) {
        return;
    }
    const char *x = (const char *)napier_at(t->look_x, k.in, i);
    fetch_to_look(k, x);
    const vf v = n < 16 ? napier_load_part(x, k.in, n, napier_minus_infinity()) : napier_load16(x, k.in);
    if (k.in != NAPIER_F32) {
        vf_store(t->look_z + i, v);
    }
    t->range = n < 16 ? range_add_part(t->range, v, n) : range_add(t->range, v);
}

/* Sums 16 columns of a row: their terms. */
NAPIER_KERNEL vf sum_step(const napier_stages k, napier_three_rows *t, int i, int n) {
    if (!k.sum) {
        return vf_zero();
    }
    const vf z = vf_hold(n < 16 ? vf_load_part(t->sum_z + i, n, t->adder.max) : vf_load(t->sum_z + i));
    const bool keep = k.op == NAPIER_OP_SOFTMAX;
    return terms16(&t->adder, z, false, keep, keep ? t->terms + i : NULL, &t->below);
}

/* The same once *e is what the columns are reduced to; reduces for the next call those that follow in the sum's order. */
NAPIER_KERNEL vf sum_step_ahead(const napier_stages k, napier_three_rows *t, napier_reduced *e, int i) {
    const napier_reduced now = *e;
    const int down = i + NAPIER_TILE_LANES, after = down < k.vectors * 16 ? down : (i + 16) % NAPIER_TILE_LANES;
    *e = reduce16(&t->adder, vf_load(t->sum_z + after));
    const bool keep = k.op == NAPIER_OP_SOFTMAX;
    return end_terms16(&t->adder, vf_load(t->sum_z + i), now, false, keep, keep ? t->terms + i : NULL, &t->below);
}

/* Writes 16 columns of a row. */
NAPIER_KERNEL void write_step(const napier_stages k, napier_three_rows *t, int i, int n) {
    if (!k.write) {
        return;
    }
    const napier_dtype dtype = k.op == NAPIER_OP_SOFTMAX ? NAPIER_F32 : k.in;
    const void *values = napier_at(t->values, dtype, i);
    const vf v = n < 16 && k.op != NAPIER_OP_SOFTMAX ? napier_load_part(values, dtype, n, t->writer.max)
                                                     : napier_load16(values, dtype);
    const vf result = result16(k.op, &t->writer, v, false);
    void *y = napier_at_out(t->y, k.out, i);
    if (!t->stream) {
        napier_fetch_to_write(y);
    }
    if (n < 16) {
        napier_store_part(y, k.out, n, result);
    } else if (k.out == NAPIER_F32 && t->stream) {
        vf_stream((float *)y, result);
    } else {
        napier_store16(y, k.out, result);
    }
    if (t->flush.lines > 0) {
        flush_line(&t->flush);
    }
}

/* Fetches the place of the next tile's terms, which may be where its results go. */
NAPIER_KERNEL void fetch_terms(const napier_stages k, const napier_three_rows *t, int i) {
    if (k.sum && k.op == NAPIER_OP_SOFTMAX && k.vectors == 64) {
        __builtin_prefetch((const void *)((uintptr_t)(t->terms + i) + NAPIER_TILE * sizeof(float)), 1);
    }
}

/* One step: 16 columns of each row. The sum takes the columns in the order in which a tile's lanes add (columns from i
 * on, `left` of them). Scan and write take them from left to right (from `next` on, `next_left` of them), because
 * memory that is read in order takes a third of the time that the lanes' order takes. */
NAPIER_KERNEL vf three_steps(const napier_stages k, napier_three_rows *t, int i, int left, int next, int next_left) {
    look_step(k, t, next, next_left);
    fetch_terms(k, t, next);
    const vf sum = sum_step(k, t, i, left);
    write_step(k, t, next, next_left);
    return sum;
}

/* ---- Rows of a multiple of 16 vectors ------------------------------------------------------------------------------ */

/* The column with which writing past the caches begins; it goes on after the last with the first. A load waits for an earlier store
 * whose address has the same low 12 bits, for hundreds of cycles. So where the next lines that are scanned have those of the line
 * that is written, it is written as soon as one with its low bits has been scanned. And where a row is no whole number of
 * lines, all but one of those written are whole. n: columns of the row, a power of two. */
NAPIER_KERNEL int turn_of(const void *x, const void *y, int n) {
    const uintptr_t ahead = ((uintptr_t)y - (uintptr_t)x) & 4095;
    if (((uintptr_t)y & 63) == 0 && (ahead == 0 || ahead > 2 * NAPIER_LINE)) {
        return 0;
    }
    return (int)((((uintptr_t)x & ~(uintptr_t)63) - (uintptr_t)y) / 4) & (n - 1);
}

/* May y be written so, though it does not begin a line? A log_softmax reads its x a second time. Where that lies a little more than
 * half a line before y, it lies in the line that was written last. */
static bool may_turn(napier_softmax_op op, const void *x, const void *y) {
    const uintptr_t ahead = ((uintptr_t)y - (uintptr_t)x) & 4095;
    return ((uintptr_t)y & 3) == 0 && !(op == NAPIER_OP_LOG_SOFTMAX && ahead > 32 && ahead < 112);
}

/* The columns that lie at both ends of the row, from i on: parts of two lines. */
NAPIER_KERNEL void write_ends(const napier_stages k, napier_three_rows *t, int i) {
    const float *values = (const float *)t->values;
    float *y = (float *)t->y;
    const int n = k.vectors * 16 - i, left = 16 - n;
    float both[16], z[16];
    memcpy(z, values + i, (size_t)n * sizeof *z);
    memcpy(z + n, values, (size_t)left * sizeof *z);
    vf_store(both, result16(k.op, &t->writer, vf_load(z), false));
    memcpy(y + i, both, (size_t)n * sizeof *both);
    memcpy(y, both + n, (size_t)left * sizeof *both);
}

/* Writes the 16 columns after `next`, turned. */
NAPIER_KERNEL void write_turned(const napier_stages k, bool turns, napier_three_rows *t, int next) {
    const int i = turns ? (next + t->turn) & (k.vectors * 16 - 1) : next;
    if (turns && i + 16 > k.vectors * 16) {
        write_ends(k, t, i);
    } else {
        write_step(k, t, i, 16);
    }
}

/* In vectors of 8 a core does not look far enough ahead to begin the next exponentials in time: with AVX2 this loop begins them
 * before it ends these. */
NAPIER_KERNEL void three_many(const napier_stages k, bool turns, napier_three_rows *t, vf *lane) {
#if defined(NAPIER_LANES_AVX2)
    const bool ahead = true;
#else
    const bool ahead = false;
#endif
    const bool apart = ahead && k.op != NAPIER_OP_LOG_SOFTMAX; /* scan and write after a lane's sum; logs take longer */
    const int per_lane = k.vectors / 16;
    napier_reduced e = reduce16(&t->adder, vf_load(t->sum_z));
    if (turns) {
        __builtin_prefetch((const float *)t->y + k.vectors * 16 - 1, 1);
    }
    for (int v = 0, next = 0; v < 16; v++) {
        vf sum = vf_zero();
        NAPIER_UNROLL
        for (int j = 0; j < per_lane; j++) {
            const int i = v * 16 + j * NAPIER_TILE_LANES;
            if (!apart) {
                look_step(k, t, next + j * 16, 16);
                fetch_terms(k, t, next + j * 16);
            }
            const vf term = ahead ? sum_step_ahead(k, t, &e, i) : sum_step(k, t, i, 16);
            sum = j == 0 ? term : vf_add(sum, term);
            if (!apart) {
                write_turned(k, turns, t, next + j * 16);
            }
        }
        lane[v] = sum;
        NAPIER_UNROLL
        for (int j = 0; j < per_lane; j++, next += 16) {
            if (apart) {
                look_step(k, t, next, 16);
                fetch_terms(k, t, next);
                write_turned(k, turns, t, next);
            }
        }
    }
}

/* The lanes of three rows whose length is a constant number of vectors (the last may be partial). Up to 16 vectors each
 * have a lane vector of their own; above that the number is a multiple of 16. */
NAPIER_KERNEL void three_known(const napier_stages k, napier_three_rows *t, int n, vf *lane) {
    if (k.vectors > 16) {
        if (k.write && k.out == NAPIER_F32 && t->turn != 0) {
            three_many(k, true, t, lane);
        } else {
            three_many(k, false, t, lane);
        }
        return;
    }
    NAPIER_UNROLL
    for (int v = 0; v < k.vectors - 1; v++) {
        lane[v] = three_steps(k, t, v * 16, 16, v * 16, 16);
    }
    const int i = (k.vectors - 1) * 16;
    lane[k.vectors - 1] = i + 16 == n ? three_steps(k, t, i, 16, i, 16) : three_steps(k, t, i, n - i, i, n - i);
}

/* The same for any length, with all three rows from left to right: the lanes are held in memory. Lanes past the end of
 * a short row are not touched. */
NAPIER_KERNEL void three_any(const napier_stages k, napier_three_rows *t, int n, vf *lane) {
    const int whole = n / 16, first = whole < 16 ? whole : 16;
    int v = 0;
    for (; v < first; v++) {
        lane[v] = three_steps(k, t, v * 16, 16, v * 16, 16);
    }
    for (; v < whole; v++) {
        lane[v % 16] = vf_add(lane[v % 16], three_steps(k, t, v * 16, 16, v * 16, 16));
    }
    if (n % 16 > 0) {
        const vf part = three_steps(k, t, v * 16, n % 16, v * 16, n % 16);
        lane[v % 16] = v < 16 ? part : vf_add(lane[v % 16], part);
    }
}

/* All columns of the three rows. Returns the lanes folded to 16; those in `lane` past the end of a short row are 0. */
NAPIER_KERNEL vf three_looks(const napier_stages k, napier_three_rows *t, int n, vf *lane) {
    if (k.vectors > 0) {
        vf known[16]; /* of this row only: few of them stay in registers */
        three_known(k, t, n, known);
        return napier_fold_lanes(known, k.vectors > 16 ? 16 : k.vectors);
    }
    three_any(k, t, n, lane);
    return n <= 128 ? napier_fold_lanes(lane, 8) : napier_fold_lanes(lane, 16);
}

#endif
