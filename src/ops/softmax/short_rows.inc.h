/* ops/softmax/short_rows.inc.h - rows of up to one tile, along the vectors. Compiled once per
 * instruction set.
 *
 * The three passes over a row (scan, sum, write) use different parts of the processor. So rows come in batches, and one
 * loop over the columns does all three passes, each on a row of another batch:
 *
 *     batch b + 1    scan     load, maximum, minimum              (load and add pipes)
 *     batch b        sum      terms                               (fma pipes)
 *     batch b - 1    write    terms * scale, store                (store pipe)
 *
 * Loads and stores then overlap with the exponentials. A batch is finished as a whole, with a row in each lane. A row
 * that is not ordinary is computed by itself. The names of the scan begin with look. */
#ifndef NAPIER_OPS_SOFTMAX_SHORT_ROWS_INC_H
#define NAPIER_OPS_SOFTMAX_SHORT_ROWS_INC_H

#include "ops/softmax/three_rows.inc.h"

enum {
    NAPIER_BATCH_SLOTS = 3,                        /* batches b - 1 .. b + 1 */
    NAPIER_BATCH_TERMS = 2,                        /* batches b - 1 and b hold terms */
    NAPIER_BATCH_FLOATS = 4096 + NAPIER_GROUP * 16 /* columns of a batch, each row rounded up to whole vectors */
};

/* A batch in progress. The arrays with one element per row are finished as vectors, one lane each. */
typedef struct napier_batch {
    int64_t first;
    int rows;
    const float *z[NAPIER_GROUP]; /* the input itself if it is plain f32, otherwise `widened` */
    float *widened, *terms;       /* [rows][room] */
    char *y;                      /* destination of the result of its first row: y, or the buffer that is staged */
    vf maxima[NAPIER_GROUP], minima[NAPIER_GROUP]; /* per column lane; the minima with their sign changed */
    vf rest[NAPIER_GROUP], below[NAPIER_GROUP];
    vf sum; /* of all elements: NaN if one of them is, and sometimes for infinities */
    float max[NAPIER_GROUP], reach[NAPIER_GROUP], magic[NAPIER_GROUP]; /* reach: max - min */
    float log_sum[NAPIER_GROUP], scale[NAPIER_GROUP], max_prob[NAPIER_GROUP], lse[NAPIER_GROUP];
    float alone[NAPIER_GROUP]; /* not 0: computed by itself */
    vf max_lanes, p_lanes;
    bool any_alone, cut, care; /* of any row */
} napier_batch;

/* The properties of the job that choose a specialised loop. */
typedef struct napier_short_plan {
    bool fused;  /* contiguous f32 or bf16 in, contiguous f32 or bf16 out */
    bool plain;  /* f32 in */
    bool stream; /* past the caches; each row is whole cache lines */
    bool stage;  /* past the caches through a buffer */
    int room, batch_rows;
    int64_t row_bytes; /* of the result */
    int length;        /* vectors in a row; plus 64 if they are more than 16 and all whole */
} napier_short_plan;

/* Rows in a batch. The more there are, the less it costs to finish each. But an f32 softmax, whose terms wait for the end
 * of their batch, is bound by the caches: its columns in progress must stay in the first level, beside those fetched
 * ahead (2 rows of 512 to 1024 columns instead of 4 take 5 to 12 % less time). If all of x and y fits into the second
 * level, an eviction costs little. */
static int batch_rows(const napier_softmax_job *job) {
    enum { NEAR = 1 << 17 }; /* elements: 1 MB of x and y */
    const int64_t cols = job->x.cols;
    const bool waits = job->op == NAPIER_OP_SOFTMAX && job->x.dtype == NAPIER_F32;
    const int64_t most = !waits ? 4096 : job->x.rows <= NEAR / cols ? 2048 : 1024;
    return cols <= most / 16 ? 16 : cols <= most / 8 ? 8 : cols <= most / 4 ? 4 : 2;
}

/* Batch `index` takes the place of an earlier one in `scratch`: as few places as possible, one after the other, stay in
 * the first-level cache. */
NAPIER_KERNEL void batch_start(napier_batch *b, const napier_softmax_job *job, const napier_short_plan *plan,
                               int64_t index, int64_t first, int rows, float *scratch) {
    const int room = plan->room;
    const int64_t size = (int64_t)room * plan->batch_rows;
    b->widened = scratch + index % NAPIER_BATCH_SLOTS * size;
    b->terms = scratch + (NAPIER_BATCH_SLOTS + index % NAPIER_BATCH_TERMS) * size;
    b->first = first;
    b->rows = rows;
    b->y = row_out(job, first);
    for (int r = 0; r < rows; r++) {
        b->z[r] = plan->plain ? (const float *)row_in(job, first + r) : b->widened + r * room;
    }
    b->sum = vf_zero();
}

NAPIER_KERNEL void batch_keep_range(napier_batch *b, int r, napier_range range) {
    b->maxima[r] = range.max;
    b->minima[r] = vf_sub(vf_zero(), range.min);
    b->sum = vf_add(b->sum, range.sum);
}

/* Rows of n elements with a NaN. */
static vm batch_nan(const napier_batch *b, int n) {
    float nan[NAPIER_GROUP] = {0};
    for (int r = 0; r < b->rows; r++) {
        for (int i = 0; i < n; i++) {
            nan[r] = b->z[r][i] != b->z[r][i] ? 1.0f : nan[r];
        }
    }
    return vf_lt(vf_zero(), vf_load(nan));
}

static void *batch_out(const napier_batch *b, const napier_softmax_job *job, int r) {
    return napier_at_out(b->y, job->y.dtype, r * job->y.row_stride);
}

/* Between scan and sum; rows of n elements. */
NAPIER_KERNEL void batch_looked(napier_batch *b, int n) {
    const vf found = vf_hmax16(b->maxima), min = vf_sub(vf_zero(), vf_hmax16(b->minima));
    vm alone = vf_lt(vf_set(NAPIER_BIG), vf_from_bits(vi_and(vf_bits(found), vi_set(0x7fffffff))));
    if (vm_any(vf_unordered(b->sum, b->sum))) {
        alone = vm_or(alone, batch_nan(b, n));
    }
    b->max_lanes = vf_select(alone, vf_zero(), found);
    const napier_maxima m = napier_maxima_of(b->max_lanes);
    b->p_lanes = m.p;
    const vf reach = vf_select(alone, vf_zero(), vf_sub(b->max_lanes, min));
    vf_store(b->max, b->max_lanes);
    vf_store(b->magic, m.magic);
    vf_store(b->reach, reach);
    vf_store(b->alone, vf_keep(alone, vf_set(1.0f)));
    b->any_alone = vm_any(alone);
    b->cut = !vm_all(vf_le(reach, vf_set(NAPIER_CUTOFF)));
    b->care = !vm_all(vf_le(reach, vf_set(80.0f))); /* exp(-80) / 1024 is a normal number */
}

/* Between sum and write. */
NAPIER_KERNEL void batch_summed(napier_softmax_op op, napier_batch *b, int n) {
    const vf count = vf_max(vf_add(vf_set((float)n), vf_hadd16(b->below)), vf_set(1.0f));
    const napier_finals f = napier_finish16(op, b->max_lanes, b->p_lanes, count, vf_hadd16(b->rest));
    if (op == NAPIER_OP_SOFTMAX) {
        vf_store(b->scale, f.scale);
        vf_store(b->max_prob, f.max_prob);
    } else if (op == NAPIER_OP_LOG_SOFTMAX) {
        vf_store(b->log_sum, f.log_sum);
    } else {
        vf_store(b->lse, f.lse);
    }
}

/* ---- Results staged on their way to memory ------------------------------------------------------------------------- */

static void flush_all(napier_flush *f) {
    while (f->lines > 0) {
        flush_line(f);
    }
}

/* For rows that are contiguous in memory but are not whole cache lines (or are narrower than f32). A batch of results
 * is put together in a buffer, at the same offset from a line as in y, and written line by line while later batches are
 * computed. The rest of its last line is copied to the front of the next batch's buffer. */
typedef struct napier_stage {
    char *buffer[2]; /* at the beginning of a cache line */
    int turn;
    napier_flush flush; /* the lines that are being written */
} napier_stage;

enum { NAPIER_STAGE_FLOATS = NAPIER_BATCH_FLOATS + 32 };

static void stage_next(napier_stage *s, napier_batch *write) {
    s->turn ^= 1;
    write->y = s->buffer[s->turn] + (uintptr_t)write->y % NAPIER_LINE;
}

/* `bytes` of results are in the buffer, to be written to y. The lines before them must have been flushed. */
static void stage_filled(napier_stage *s, char *y, int64_t bytes, bool first, bool last) {
    const int64_t offset = (int64_t)((uintptr_t)y % NAPIER_LINE);
    if (first && offset + bytes < NAPIER_LINE) { /* no whole line: only a piece of a single small batch */
        memcpy(y, s->buffer[s->turn] + offset, (size_t)bytes);
        return;
    }
    const int64_t begin = first && offset > 0 ? NAPIER_LINE : 0; /* in the buffer */
    const int64_t end = (offset + bytes) / NAPIER_LINE * NAPIER_LINE, left = offset + bytes - end;
    const char *from = s->buffer[s->turn];
    char *to = y - offset;
    s->flush = (napier_flush){from + begin, to + begin, (end - begin) / NAPIER_LINE};
    if (begin > 0) {
        memcpy(y, from + offset, (size_t)(begin - offset));
    }
    memcpy(last ? to + end : s->buffer[s->turn ^ 1], from + end, (size_t)left);
}

/* ---- Batches ------------------------------------------------------------------------------------------------------- */

/* Scans a batch by itself: at the start, and for input that is not contiguous f32 or bf16. */
static void batch_look(napier_batch *b, const napier_softmax_job *job, int room) {
    for (int r = 0; r < b->rows; r++) {
        const napier_looked looked = look_row(job, b->first + r, 0, (int)job->x.cols, b->widened + r * room);
        b->z[r] = looked.z;
        batch_keep_range(b, r, looked.range);
    }
}

/* Sums a batch by itself, whatever the distances to the maxima. */
static void batch_sum(napier_batch *b, int n, int room, bool keep) {
    for (int r = 0; r < b->rows; r++) {
        const napier_lanes lanes =
            tile_lanes(b->z[r], n, b->max[r], !(b->reach[r] <= NAPIER_CUTOFF), keep ? b->terms + r * room : NULL);
        b->rest[r] = lanes.rest;
        b->below[r] = vf_from_int(lanes.below);
    }
}

/* Writes a batch by itself, whatever the distances to the maxima and the stride of the result. spare: a tile. */
static void batch_write(const napier_batch *b, const napier_softmax_job *job, int room, bool stream, float *spare) {
    const int n = (int)job->x.cols;
    for (int r = 0; r < b->rows; r++) {
        if (b->alone[r] != 0.0f) {
            any_row(job, b->first + r, batch_out(b, job, r), spare);
            continue;
        }
        const float *values = job->op == NAPIER_OP_SOFTMAX ? b->terms + r * room : b->z[r];
        void *y = batch_out(b, job, r);
        const float log_sum = job->op == NAPIER_OP_SOFTMAX ? 0.0f : b->log_sum[r];
        const float scale = job->op == NAPIER_OP_SOFTMAX ? b->scale[r] : 0x1p-64f;
        const float max_prob = job->op == NAPIER_OP_SOFTMAX ? b->max_prob[r] : 1.0f;
        const napier_writer w = napier_writer_of(b->max[r], log_sum, scale, max_prob);
        if (job->y.col_stride == 1) {
            write_values(job->op, &w, values, n, true, y, job->y.dtype, stream);
        } else {
            write_values(job->op, &w, values, n, true, spare, NAPIER_F32, false);
            napier_scatter(spare, n, y, job->y.dtype, job->y.col_stride, false);
        }
    }
}

static void batch_write_lse(napier_batch *b, const napier_softmax_job *job, float *spare) {
    for (int r = 0; b->any_alone && r < b->rows; r++) {
        if (b->alone[r] != 0.0f) {
            b->lse[r] = final_of_row(job, b->first + r, spare).lse;
        }
    }
    napier_scatter(b->lse, b->rows, row_out(job, b->first), job->y.dtype, job->y.row_stride, false);
}

static napier_short_plan short_plan_of(const napier_softmax_job *job) {
    const bool in = job->x.col_stride == 1 && job->temperature == 1.0f && job->x.dtype != NAPIER_F16;
    const bool out = job->op == NAPIER_OP_LOGSUMEXP || (job->y.col_stride == 1 && job->y.dtype == job->x.dtype);
    const bool lines = ((uintptr_t)job->y.data & 63) == 0 && job->y.row_stride % 16 == 0;
    napier_short_plan plan;
    plan.fused = in && out;
    plan.plain = plan.fused && job->x.dtype == NAPIER_F32;
    plan.room = (int)((job->x.cols + 15) / 16 * 16);
    plan.batch_rows = batch_rows(job);
    plan.row_bytes = job->x.cols * (job->y.dtype == NAPIER_F32 ? 4 : 2);
    plan.length = plan.room / 16 + (plan.room == job->x.cols && job->x.cols > NAPIER_TILE_LANES ? 64 : 0);
    const bool many = plan.length == 64 + 32 || plan.length == 64 + 64;
    const bool turns = plan.plain && many && may_turn(job->op, job->x.data, job->y.data);
    plan.stream = job->stream && job->y.dtype == NAPIER_F32 && (lines || turns);
    plan.stage = job->stream && plan.fused && !plan.stream && job->y.row_stride == job->x.cols &&
                 plan.batch_rows * plan.row_bytes >= 2 * NAPIER_LINE;
    return plan;
}

/* The fused loop over the rows of up to three batches (NULL: no batch). All batches have the same number of rows. */
NAPIER_KERNEL void three_batches(const napier_stages k, const napier_softmax_job *job, napier_batch *look,
                                 napier_batch *sum, napier_batch *write, const napier_short_plan *plan,
                                 napier_flush *flush) {
    const int n = (int)job->x.cols, room = plan->room;
    const int rows = k.sum ? sum->rows : look->rows;
    vf lane[16];
    for (int v = 0; v < 16; v++) {
        lane[v] = vf_zero();
    }
    for (int r = 0; r < rows; r++) {
        napier_three_rows t;
        t.range = no_range();
        t.below = vi_set(0);
        t.stream = plan->stream;
        t.turn = 0;
        if (k.look) {
            t.look_x = row_in(job, look->first + r);
            t.look_z = look->widened + r * room;
        }
        if (k.sum) {
            t.sum_z = sum->z[r];
            t.terms = sum->terms + r * room;
            t.adder = napier_adder_of(sum->max[r], sum->magic[r]);
        }
        if (k.write) {
            const bool softmax = k.op == NAPIER_OP_SOFTMAX;
            t.values = softmax ? write->terms + r * room : row_in(job, write->first + r);
            t.writer = softmax ? plain_writer(0.0f, 0.0f, write->scale[r], write->max_prob[r])
                               : plain_writer(write->max[r], write->log_sum[r], 0.0f, 0.0f);
            t.y = batch_out(write, job, r);
            t.turn = k.vectors > 16 && plan->stream ? turn_of(row_in(job, look->first + r), t.y, n) : 0;
        }
        t.flush = *flush;
        const vf rest = three_looks(k, &t, n, lane);
        *flush = t.flush;
        if (k.look) {
            batch_keep_range(look, r, t.range);
        }
        if (k.sum) {
            sum->rest[r] = rest;
            sum->below[r] = vf_from_int(t.below);
        }
    }
}

/* Rows of few vectors, and whole tiles, have a specialised loop each. */
#define NAPIER_THREE(op_, dtype_, vectors_)                                                                        \
    three_batches((napier_stages){true, true, (op_) != NAPIER_OP_LOGSUMEXP, op_, dtype_, dtype_, vectors_, false}, \
                  job, look, sum, write, plan, flush)
#define NAPIER_THREE_BY_LENGTH(op_, dtype_)                 \
    do {                                                    \
        switch (plan->length) {                             \
        case 2: NAPIER_THREE(op_, dtype_, 2); break;        \
        case 3: NAPIER_THREE(op_, dtype_, 3); break;        \
        case 4: NAPIER_THREE(op_, dtype_, 4); break;        \
        case 7: NAPIER_THREE(op_, dtype_, 7); break;        \
        case 8: NAPIER_THREE(op_, dtype_, 8); break;        \
        case 16: NAPIER_THREE(op_, dtype_, 16); break;      \
        case 64 + 32: NAPIER_THREE(op_, dtype_, 32); break; \
        case 64 + 64: NAPIER_THREE(op_, dtype_, 64); break; \
        default: NAPIER_THREE(op_, dtype_, 0); break;       \
        }                                                   \
    } while (0)

/* All three batches exist and are ordinary; for logsumexp there is nothing to write. */
NAPIER_KERNEL void three_full(napier_softmax_op op, const napier_softmax_job *job, const napier_short_plan *plan,
                              napier_batch *look, napier_batch *sum, napier_batch *write, napier_flush *flush) {
    if (plan->plain) {
        NAPIER_THREE_BY_LENGTH(op, NAPIER_F32);
    } else {
        NAPIER_THREE_BY_LENGTH(op, NAPIER_BF16);
    }
}

/* A function of its own: the registers of its loops are not shared with the rest of a round. */
static __attribute__((noinline)) void three_full_of(const napier_softmax_job *job, const napier_short_plan *plan,
                                                    napier_batch *look, napier_batch *sum, napier_batch *write,
                                                    napier_flush *flush) {
    NAPIER_FOR_OP(job->op, three_full, job, plan, look, sum, write, flush);
}

/* Scans `look`, sums `sum` and writes `write`; any may be NULL. In one loop if they are
 * alike and ordinary, otherwise one by one. */
static void batch_round(const napier_softmax_job *job, const napier_short_plan *plan, napier_batch *look,
                        napier_batch *sum, napier_batch *write, napier_flush *flush, float *spare) {
    const int n = (int)job->x.cols;
    const bool lse = job->op == NAPIER_OP_LOGSUMEXP;
    const bool softmax = job->op == NAPIER_OP_SOFTMAX;
    const bool whole = look && sum && (lse || write) && look->rows == sum->rows && sum->rows == plan->batch_rows;
    const bool ordinary = whole && !sum->cut && (lse || !(write->any_alone || (softmax && write->care)));
    if (plan->fused && ordinary) {
        three_full_of(job, plan, look, sum, write, flush);
    } else {
        if (look) {
            batch_look(look, job, plan->room);
        }
        if (sum) {
            batch_sum(sum, n, plan->room, softmax);
        }
        if (write && !lse) {
            batch_write(write, job, plan->room, job->stream && !plan->stage, spare);
        }
    }
    if (write && lse) {
        batch_write_lse(write, job, spare);
    }
    if (look) {
        batch_looked(look, n);
    }
    if (sum) {
        NAPIER_FOR_OP(job->op, batch_summed, sum, n);
    }
}

/* Batches use the slots of the array in turn. With few batches some slots are never used. */
static void slots_start(napier_batch slot[NAPIER_BATCH_SLOTS], int64_t batches) {
    for (int i = 0; i < NAPIER_BATCH_SLOTS && i < batches; i++) {
        for (int r = 0; r < NAPIER_GROUP; r++) { /* lanes without a row keep these values */
            slot[i].maxima[r] = slot[i].minima[r] = slot[i].rest[r] = slot[i].below[r] = vf_zero();
        }
    }
}

static void short_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const napier_short_plan plan = short_plan_of(job);
    const int64_t batches = (end - begin + plan.batch_rows - 1) / plan.batch_rows;
    float *spare = scratch, *in_progress = scratch + NAPIER_SPARE;
    napier_stage stage = {{NULL, NULL}, 0, {NULL, NULL, 0}};
    if (plan.stage) {
        float *staged = in_progress + (NAPIER_BATCH_SLOTS + NAPIER_BATCH_TERMS) * NAPIER_BATCH_FLOATS;
        stage.buffer[0] = (char *)staged;
        stage.buffer[1] = (char *)(staged + NAPIER_STAGE_FLOATS);
    }
    napier_batch slot[NAPIER_BATCH_SLOTS];
    slots_start(slot, batches);
    for (int64_t b = -1; b <= batches; b++) {
        napier_batch *look = NULL, *sum = NULL, *write = NULL;
        if (b + 1 < batches) {
            const int64_t first = begin + (b + 1) * plan.batch_rows;
            look = &slot[(b + 1) % NAPIER_BATCH_SLOTS];
            const int rows = end - first < plan.batch_rows ? (int)(end - first) : plan.batch_rows;
            batch_start(look, job, &plan, b + 1, first, rows, in_progress);
        }
        if (b >= 0 && b < batches) {
            sum = &slot[b % NAPIER_BATCH_SLOTS];
        }
        if (b >= 1) {
            write = &slot[(b - 1) % NAPIER_BATCH_SLOTS];
        }
        if (write && plan.stage) {
            stage_next(&stage, write);
        }
        batch_round(job, &plan, look, sum, write, &stage.flush, spare);
        flush_all(&stage.flush);
        if (write && plan.stage) {
            stage_filled(&stage, row_out(job, write->first), write->rows * plan.row_bytes, b == 1, b == batches);
        }
    }
    flush_all(&stage.flush);
    if (job->stream) {
        vf_stream_fence();
    }
}

#endif
