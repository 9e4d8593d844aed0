/* softmax/long_rows.inc.h - rows of many tiles, along the vectors. Included after short_rows.inc.h, once per ISA.
 *
 * While one tile is summed the next is looked at, in the same loop (short_rows.inc.h). The result of a row needs a second
 * read of it, or its terms: kept_row keeps them, each tile's relative to the tile's own exponent. */

static float napier_max_of_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                                 float *scratch) {
    float max = -INFINITY;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const float tile = vf_hmax(napier_look_row(job, row, i, napier_tile_at(i, end), scratch).range.max);
        max = tile > max ? tile : max;
    }
    return max;
}

/* Tiles of a row, one after the other: `looked` is always the tile to sum next. */
typedef struct napier_tiles_ahead {
    const napier_softmax_job *job;
    int64_t row, end;
    float *room[2]; /* a widened tile each */
    bool plain;     /* contiguous, f32 or bf16, temperature 1 */
    napier_looked looked;
} napier_tiles_ahead;

static napier_tiles_ahead napier_tiles_from(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                                            float *scratch) {
    napier_tiles_ahead a = {.job = job, .row = row, .end = end, .room = {scratch, scratch + NAPIER_TILE + 16}};
    a.plain = job->x.col_stride == 1 && job->temperature == 1.0f && job->x.dtype != NAPIER_F16;
    a.looked = napier_look_row(job, row, begin, napier_tile_at(begin, end), a.room[0]);
    return a;
}

/* Sums a full ordinary tile and looks at the next full one. */
NAPIER_KERNEL void napier_tile_and_look(const napier_stages k, napier_tiles_ahead *a, int64_t next, float max,
                                        float *terms, napier_tile_sum *t) {
    napier_three_rows rows;
    rows.range_a = rows.range_b = napier_no_range();
    rows.below = vi_set(0);
    rows.stream = false;
    rows.look_x = napier_at(napier_row(a->job, a->row), k.in, next);
    rows.look_z = a->room[1];
    rows.sum_z = a->looked.z;
    rows.terms = terms;
    rows.adder = napier_adder_of(max, napier_term_magic(napier_exp_parts_small(max).n));
    t->rest = vf_hadd(napier_three_looks(k, &rows, NAPIER_TILE));
    t->count = napier_not_below(NAPIER_TILE, rows.below);
    a->looked.z = k.in == NAPIER_F32 ? (const float *)rows.look_x : a->room[1];
    a->looked.range = napier_range_join(rows.range_a, rows.range_b);
}

#define NAPIER_TILE_AND_LOOK(op_, dtype_) \
    napier_tile_and_look((napier_stages){true, true, false, op_, dtype_, dtype_, 64}, a, next, max, terms, t)

/* The sum of the tile at i; then a->looked is the one after it. Returns whether the terms were kept. */
static bool napier_next_tile(napier_tiles_ahead *a, int64_t i, float *terms, napier_tile_sum *t) {
    const int64_t next = i + NAPIER_TILE;
    const float max = vf_hmax(a->looked.range.max), min = -vf_hmax(vf_sub(vf_zero(), a->looked.range.min));
    const bool ordinary = fabsf(max) <= NAPIER_BIG && min >= max - NAPIER_CUTOFF && !vm_any(a->looked.range.nan);
    bool kept = terms;
    if (a->plain && ordinary && next + NAPIER_TILE <= a->end) {
        *t = (napier_tile_sum){.max = max, .min = min};
        if (a->job->x.dtype == NAPIER_F32) {
            if (terms) {
                NAPIER_TILE_AND_LOOK(NAPIER_OP_SOFTMAX, NAPIER_F32);
            } else {
                NAPIER_TILE_AND_LOOK(NAPIER_OP_LOGSUMEXP, NAPIER_F32);
            }
        } else if (terms) {
            NAPIER_TILE_AND_LOOK(NAPIER_OP_SOFTMAX, NAPIER_BF16);
        } else {
            NAPIER_TILE_AND_LOOK(NAPIER_OP_LOGSUMEXP, NAPIER_BF16);
        }
    } else {
        kept = napier_looked_tile(a->looked, napier_tile_at(i, a->end), terms, t);
        if (next < a->end) {
            a->looked = napier_look_row(a->job, a->row, next, napier_tile_at(next, a->end), a->room[1]);
        }
    }
    float *used = a->room[0];
    a->room[0] = a->room[1];
    a->room[1] = used;
    return kept;
}

static void napier_sum_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                             float *scratch) {
    napier_tiles_ahead a = napier_tiles_from(job, row, begin, end, scratch);
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        napier_tile_sum t;
        napier_next_tile(&a, i, NULL, &t);
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

/* Adds columns [begin, end) to *sum and keeps their terms, each tile's relative to its own exponent, at terms + column;
 * tiles[k] says how. Terms may lie where the results will: then a last part of a tile is not kept, as whole vectors are
 * stored. */
static void napier_keep_range(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                              float *terms, napier_kept_tile *tiles, float *scratch) {
    const bool in_result = (void *)terms == napier_row_out(job, row);
    napier_tiles_ahead a = napier_tiles_from(job, row, begin, end, scratch);
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        napier_kept_tile *kept = &tiles[i / NAPIER_TILE];
        const bool room = !in_result || i + NAPIER_TILE <= end;
        napier_tile_sum t;
        kept->whole = napier_next_tile(&a, i, room ? terms + i : NULL, &t);
        kept->min = t.min;
        kept->exponent = kept->whole ? (int32_t)napier_exp_parts_small(t.max).n : 0;
        napier_sum_add_tile(sum, &t);
    }
}

static void napier_write_kept(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                              const napier_final *final, const float *terms, const napier_kept_tile *tiles,
                              float *scratch) {
    const bool ordinary = final->kind == NAPIER_ROW_FINITE && !napier_is_big(final->max) && job->y.col_stride == 1;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const napier_kept_tile *kept = &tiles[i / NAPIER_TILE];
        const int n = napier_tile_at(i, end);
        void *y = napier_at_out(napier_row_out(job, row), job->y.dtype, i * job->y.col_stride);
        const int64_t down = final->exponent - kept->exponent;
        const bool normal = (kept->min - final->max) - final->log_sum >= NAPIER_NORMAL_LOG_PROB;
        if (ordinary && kept->whole && normal && down <= 20) {
            const float scale = final->scale * napier_power_of_two(-down);
            const napier_writer w = napier_plain_writer(final->max, final->log_sum, scale, final->max_prob);
            napier_write_values(NAPIER_OP_SOFTMAX, &w, terms + i, n, false, y, job->y.dtype, job->stream);
        } else {
            napier_write_tile(job->op, final, job->masked_rows, napier_look_row(job, row, i, n, scratch), n,
                              scratch + NAPIER_TILE + 16, y, job->y.dtype, job->y.col_stride, job->stream);
        }
    }
}
