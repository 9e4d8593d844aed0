/* ops/softmax/long_rows.inc.h - rows of many tiles, along the vectors. Compiled once per
 * instruction set.
 *
 * One loop does the three passes at different tiles, as in short_rows.inc.h: while tile p is summed, tile p + 2 is
 * scanned and tile p - T is written, where a row has T tiles. So a row is written while the next one is summed, and the
 * result of a pass (a maximum, the end of a sum) has the time of a tile to become ready. softmax keeps its terms,
 * relative to the exponent of their own tile, where their results go or in a ring of T + 1 tiles; log_softmax reads its
 * row again. */
#ifndef NAPIER_OPS_SOFTMAX_LONG_ROWS_INC_H
#define NAPIER_OPS_SOFTMAX_LONG_ROWS_INC_H

#include "ops/softmax/three_rows.inc.h"

NAPIER_SLOT float max_of_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, float *scratch) {
    float max = -INFINITY;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const float tile = vf_hmax(look_row(job, row, i, napier_tile_at(i, end), scratch).range.max);
        max = tile > max ? tile : max;
    }
    return max;
}

/* ---- Tiles, scanned ahead of their sums ---------------------------------------------------------------------------- */

enum { NAPIER_AHEAD = 2, NAPIER_AHEAD_SLOTS = NAPIER_AHEAD + 1 };

typedef struct napier_tile_place {
    int64_t row, column;
    int n;
} napier_tile_place;

/* A tile between its scan and its sum. */
typedef struct napier_tile_ahead {
    napier_looked looked;
    napier_tile_place at;
    float max, min;
    bool ordinary; /* a full tile, without NaN, all elements within the cutoff, its maximum not big */
} napier_tile_ahead;

/* Columns [begin, end) of rows from first_row on, as one sequence of tiles. */
typedef struct napier_tiles {
    const napier_softmax_job *job;
    int64_t begin, end, per_row, count;
    bool plain;             /* contiguous, f32 or bf16, temperature 1 */
    napier_tile_place next; /* of the tile that is scanned next */
    napier_tile_ahead ahead[NAPIER_AHEAD_SLOTS];
    float *room; /* a widened tile for each of `ahead` */
} napier_tiles;

static float *room_of(const napier_tiles *a, int64_t p) {
    return a->room + p % NAPIER_AHEAD_SLOTS * (NAPIER_TILE + 16);
}

/* Keeps what was found about tile p, the next one. */
static void keep_look(napier_tiles *a, int64_t p, const napier_looked *looked) {
    napier_tile_ahead *t = &a->ahead[p % NAPIER_AHEAD_SLOTS];
    const float max = vf_hmax(looked->range.max), min = -vf_hmax(vf_sub(vf_zero(), looked->range.min));
    const bool clean =
        fabsf(max) <= NAPIER_BIG && min >= max - NAPIER_CUTOFF && !vm_any(napier_range_nan(looked->range));
    *t = (napier_tile_ahead){*looked, a->next, max, min, clean && a->next.n == NAPIER_TILE};
    a->next.column += NAPIER_TILE;
    if (a->next.column >= a->end) {
        a->next.row++;
        a->next.column = a->begin;
    }
    a->next.n = napier_tile_at(a->next.column, a->end);
}

static void look_ahead(napier_tiles *a, int64_t p) {
    if (p < a->count) {
        const napier_looked looked = look_row(a->job, a->next.row, a->next.column, a->next.n, room_of(a, p));
        keep_look(a, p, &looked);
    }
}

static void tiles_start(napier_tiles *a, const napier_softmax_job *job, int64_t first_row, int64_t rows, int64_t begin,
                        int64_t end, float *scratch) {
    a->job = job;
    a->begin = begin;
    a->end = end;
    a->next = (napier_tile_place){first_row, begin, napier_tile_at(begin, end)};
    a->per_row = (end - begin + NAPIER_TILE - 1) / NAPIER_TILE;
    a->count = rows * a->per_row;
    a->plain = job->x.col_stride == 1 && job->temperature == 1.0f && job->x.dtype != NAPIER_F16;
    a->room = scratch;
    for (int64_t p = 0; p < NAPIER_AHEAD; p++) {
        look_ahead(a, p);
    }
}

/* A full tile that one operation per element turns into results. */
typedef struct napier_tile_write {
    napier_writer writer;
    const void *values; /* its terms, or for log_softmax the tile itself */
    void *y;
    bool stream;
} napier_tile_write;

/* Sums the ordinary tile p, scans tile p + 2, a full one, and writes an earlier one. */
NAPIER_KERNEL void three_tiles(const napier_stages k, napier_tiles *a, int64_t p, float *terms,
                               const napier_tile_write *write, napier_tile_sum *sum) {
    const napier_tile_ahead *t = &a->ahead[p % NAPIER_AHEAD_SLOTS];
    napier_three_rows rows;
    rows.range = no_range();
    rows.below = vi_set(0);
    rows.look_x = napier_at(row_in(a->job, a->next.row), k.in, a->next.column);
    rows.look_z = room_of(a, p + NAPIER_AHEAD);
    rows.sum_z = t->looked.z;
    rows.terms = terms;
    rows.adder = napier_adder_of(t->max, napier_term_magic(napier_exp_parts_small(t->max).n));
    rows.stream = false;
    rows.turn = 0;
    rows.flush.lines = 0;
    if (k.write) {
        rows.values = write->values;
        rows.writer = write->writer;
        rows.y = write->y;
        rows.stream = write->stream;
        rows.turn = write->stream ? turn_of(rows.look_x, rows.y, NAPIER_TILE) : 0;
    }
    *sum = (napier_tile_sum){.max = t->max, .min = t->min};
    vf lane[16];
    sum->rest = vf_hadd(three_looks(k, &rows, NAPIER_TILE, lane));
    sum->count = not_below(NAPIER_TILE, rows.below);
    const napier_looked looked = {k.in == NAPIER_F32 ? (const float *)rows.look_x : rows.look_z, rows.range};
    keep_look(a, p + NAPIER_AHEAD, &looked);
}

#define NAPIER_THREE_TILES(write_, op_, dtype_) \
    three_tiles((napier_stages){true, true, write_, op_, dtype_, dtype_, 64, true}, a, p, terms, write, sum)
#define NAPIER_THREE_TILES_OF(write_, op_)                \
    do {                                                  \
        if (a->job->x.dtype == NAPIER_F32) {              \
            NAPIER_THREE_TILES(write_, op_, NAPIER_F32);  \
        } else {                                          \
            NAPIER_THREE_TILES(write_, op_, NAPIER_BF16); \
        }                                                 \
    } while (0)

/* Can tile p be summed in one loop with the scan of p + 2? */
static bool tiles_go_together(const napier_tiles *a, int64_t p) {
    const bool next = p + NAPIER_AHEAD < a->count && a->next.n == NAPIER_TILE;
    return a->plain && next && a->ahead[p % NAPIER_AHEAD_SLOTS].ordinary;
}

/* The sum of tile p. If `terms` is not NULL, its terms go there; the result says whether they have been kept. */
static bool sum_next(napier_tiles *a, int64_t p, float *terms, napier_tile_sum *sum) {
    const napier_tile_write *write = NULL;
    if (tiles_go_together(a, p)) {
        if (terms) {
            NAPIER_THREE_TILES_OF(false, NAPIER_OP_SOFTMAX);
        } else {
            NAPIER_THREE_TILES_OF(false, NAPIER_OP_LOGSUMEXP);
        }
        return terms;
    }
    const napier_tile_ahead *t = &a->ahead[p % NAPIER_AHEAD_SLOTS];
    const bool kept = looked_tile(&t->looked, t->at.n, terms, sum);
    look_ahead(a, p + NAPIER_AHEAD);
    return kept;
}

static void sum_and_write(napier_tiles *a, int64_t p, float *terms, const napier_tile_write *write,
                          napier_tile_sum *sum) {
    if (a->job->op == NAPIER_OP_SOFTMAX) {
        NAPIER_THREE_TILES_OF(true, NAPIER_OP_SOFTMAX);
    } else {
        NAPIER_THREE_TILES_OF(true, NAPIER_OP_LOG_SOFTMAX);
    }
}

/* ---- A range of one row -------------------------------------------------------------------------------------------- */

NAPIER_SLOT void sum_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                           float *scratch) {
    napier_tiles a;
    tiles_start(&a, job, row, 1, begin, end, scratch);
    for (int64_t p = 0; p < a.count; p++) {
        napier_tile_sum t;
        sum_next(&a, p, NULL, &t);
        napier_sum_add_tile(sum, &t);
    }
}

static napier_kept_tile kept_of(const napier_tile_sum *t, bool whole) {
    return (napier_kept_tile){t->min, whole ? (int32_t)napier_exp_parts_small(t->max).n : 0, whole};
}

static void write_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                        const napier_final *final, float *scratch) {
    float *spare = scratch + NAPIER_TILE + 16;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        void *y = napier_at_out(row_out(job, row), job->y.dtype, i * job->y.col_stride);
        const napier_looked looked = look_row(job, row, i, n, scratch);
        write_tile(job->op, final, job->masked_rows, &looked, n, spare, y, job->y.dtype, job->y.col_stride,
                   job->stream);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* Adds columns [begin, end) to *sum and keeps their terms at terms + column; tiles[k] records whether tile
 * k was kept. The terms may occupy the memory of the results. Then the terms of a last, partial tile are
 * not kept, because whole vectors are stored. */
NAPIER_SLOT void keep_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                            float *terms, napier_kept_tile *tiles, float *scratch) {
    const bool in_result = (void *)terms == row_out(job, row);
    napier_tiles a;
    tiles_start(&a, job, row, 1, begin, end, scratch);
    for (int64_t p = 0; p < a.count; p++) {
        const int64_t i = begin + p * NAPIER_TILE;
        const bool room = !in_result || i + NAPIER_TILE <= end;
        napier_tile_sum t;
        const bool kept = sum_next(&a, p, room ? terms + i : NULL, &t);
        tiles[i / NAPIER_TILE] = kept_of(&t, kept);
        napier_sum_add_tile(sum, &t);
    }
}

/* Is one operation per element enough for the results of a tile? Then *w does it. */
static bool writer_for(const napier_softmax_job *job, const napier_final *final, const napier_kept_tile *kept,
                       napier_writer *w) {
    if (job->op == NAPIER_OP_LOG_SOFTMAX) {
        *w = plain_writer(final->max, final->log_sum, 0.0f, 0.0f);
        return final->kind == NAPIER_ROW_FINITE;
    }
    const bool ordinary = final->kind == NAPIER_ROW_FINITE && !napier_is_big(final->max) && kept->whole;
    const int64_t down = final->exponent - kept->exponent;
    if (!ordinary || down > 20 || !((kept->min - final->max) - final->log_sum >= NAPIER_NORMAL_LOG_PROB)) {
        return false;
    }
    *w = plain_writer(0.0f, 0.0f, final->scale * napier_power_of_two(-down), final->max_prob);
    return true;
}

/* One tile of a softmax, from its terms if they were kept, otherwise from x. */
static void write_kept_tile(const napier_softmax_job *job, napier_tile_place at, const napier_final *final,
                            const float *terms, const napier_kept_tile *kept, float *scratch) {
    void *y = napier_at_out(row_out(job, at.row), job->y.dtype, at.column * job->y.col_stride);
    napier_writer w;
    if (job->y.col_stride == 1 && writer_for(job, final, kept, &w)) {
        write_values(NAPIER_OP_SOFTMAX, &w, terms, at.n, false, y, job->y.dtype, job->stream);
    } else {
        write_range(job, at.row, at.column, at.column + at.n, final, scratch);
    }
}

NAPIER_SLOT void write_kept(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                            const napier_final *final, const float *terms, const napier_kept_tile *tiles,
                            float *scratch) {
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const napier_tile_place at = {row, i, napier_tile_at(i, end)};
        write_kept_tile(job, at, final, terms + i, &tiles[i / NAPIER_TILE], scratch);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* ---- Whole rows ---------------------------------------------------------------------------------------------------- */

/* What is kept between sum and write: a ring buffer of T + 1 tiles. */
typedef struct napier_ring {
    float *terms; /* softmax only */
    napier_kept_tile *kept;
    int64_t slots;
    bool in_result; /* the terms of full tiles are where their results go, and `terms` has space for two tiles */
} napier_ring;

/* Where the terms of a tile are kept. NULL: nowhere. Whole vectors are stored, so only a full tile fits into the
 * result. */
static float *terms_in(const napier_ring *ring, const napier_softmax_job *job, int64_t slot, napier_tile_place at) {
    if (!ring->terms) {
        return NULL;
    }
    if (ring->in_result && at.n == NAPIER_TILE) {
        return (float *)row_out(job, at.row) + at.column;
    }
    return ring->terms + (ring->in_result ? at.row % 2 : slot) * NAPIER_TILE;
}

/* Can a tile of a row that is finished be written in the loop that sums another tile? */
static bool write_of(const napier_softmax_job *job, napier_tile_place at, const napier_ring *ring, int64_t slot,
                     const napier_final *final, bool fused, napier_tile_write *write) {
    if (!fused || at.n < NAPIER_TILE || !writer_for(job, final, &ring->kept[slot], &write->writer)) {
        return false;
    }
    write->values = job->op == NAPIER_OP_SOFTMAX ? terms_in(ring, job, slot, at)
                                                 : napier_at(row_in(job, at.row), job->x.dtype, at.column);
    write->y = napier_at_out(row_out(job, at.row), job->y.dtype, at.column);
    const bool lines = ((uintptr_t)write->y & 63) == 0;
    write->stream = job->stream && job->y.dtype == NAPIER_F32 &&
                    (lines || may_turn(job->op, row_in(job, at.row), row_out(job, at.row)));
    return true;
}

static void write_by_itself(const napier_softmax_job *job, napier_tile_place at, const napier_ring *ring, int64_t slot,
                            const napier_final *final, float *scratch) {
    if (job->op == NAPIER_OP_SOFTMAX) {
        write_kept_tile(job, at, final, terms_in(ring, job, slot, at), &ring->kept[slot], scratch);
    } else {
        write_range(job, at.row, at.column, at.column + at.n, final, scratch);
    }
}

/* Rows in progress: tile p is summed while tile q = p - T, of the previous row, is written. */
typedef struct napier_long_run {
    napier_tiles tiles;
    napier_ring ring;
    napier_final final; /* of the row that is being written */
    bool writes;        /* results are written, not only the row's logsumexp */
    bool fused;         /* they may be written in the loop that sums */
    float *spare;
} napier_long_run;

/* Either tile may be missing: before the first row is summed there is nothing to write, after the last row nothing to
 * sum. at: of tile q. slot: of tile p; the slot after it is that of tile q. */
static void long_step(napier_long_run *run, int64_t p, napier_tile_place at, int64_t slot, napier_sum *sum) {
    napier_tiles *a = &run->tiles;
    const int64_t slot_q = slot + 1 < run->ring.slots ? slot + 1 : 0;
    const bool sums = p < a->count, writes = run->writes && p >= a->per_row;
    float *terms = sums ? terms_in(&run->ring, a->job, slot, a->ahead[p % NAPIER_AHEAD_SLOTS].at) : NULL;
    napier_tile_write write;
    napier_tile_sum t;
    bool kept = true;
    if (sums && writes && tiles_go_together(a, p) &&
        write_of(a->job, at, &run->ring, slot_q, &run->final, run->fused, &write)) {
        sum_and_write(a, p, terms, &write, &t);
    } else {
        if (writes) {
            write_by_itself(a->job, at, &run->ring, slot_q, &run->final, run->spare);
        }
        if (!sums) {
            return;
        }
        kept = sum_next(a, p, terms, &t);
    }
    run->ring.kept[slot] = kept_of(&t, kept);
    napier_sum_add_tile(sum, &t);
}

NAPIER_SLOT void long_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *terms,
                           napier_kept_tile *kept, float *scratch) {
    napier_long_run run = {.final = {.kind = NAPIER_ROW_NAN}};
    run.writes = job->op != NAPIER_OP_LOGSUMEXP;
    run.fused = run.writes && job->y.col_stride == 1 && job->y.dtype == job->x.dtype;
    run.spare = scratch + NAPIER_AHEAD_SLOTS * (NAPIER_TILE + 16);
    tiles_start(&run.tiles, job, begin, end - begin, 0, job->x.cols, scratch);
    const int64_t per_row = run.tiles.per_row;
    run.ring = (napier_ring){terms, kept, per_row + 1, napier_terms_in_result(job)};
    int64_t p = 0, slot = 0;
    for (int64_t row = begin; row < end + (run.writes ? 1 : 0); row++) {
        napier_sum sum; /* of this row, while the previous one is written */
        napier_sum_init(&sum);
        for (int64_t i = 0; i < job->x.cols; i += NAPIER_TILE, p++) {
            long_step(&run, p, (napier_tile_place){row - 1, i, napier_tile_at(i, job->x.cols)}, slot, &sum);
            slot = slot + 1 < run.ring.slots ? slot + 1 : 0;
        }
        if (row < end) {
            run.final = napier_sum_finish(&sum);
            if (!run.writes) {
                store_lse(job, row, run.final.lse);
            }
        }
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

#endif
