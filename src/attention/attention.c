/* attention/attention.c - the forward: tiles of queries pass by the keys of their sequence, block by block. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attention/attention_keys.h"
#include "attention/attention_rows.h"

enum {
    NAPIER_TILE_ROWS = 192,
    NAPIER_TILE_ROWS_LEAST = 48,
    NAPIER_CHUNK_FLOATS = 6 << 20, /* packed by all threads together */
    NAPIER_OWN_FLOATS = 1 << 18    /* packed by a worker, for whom it then lies in the second cache */
};

typedef struct attend_job {
    const napier_attention_plan *plan;
    napier_heads output;
    napier_matrix lse;
    napier_key_chunk *chunks; /* one for all workers, or one for each */
    int64_t *starts;          /* one for each: the ranges of sequences that a worker may take */
    int64_t tile_queries;     /* at most, of a tile */
    int64_t tiles;            /* one for all: of a head, in this chunk */
    float masked;
    float *scratch;
    int64_t scratch_floats; /* of a worker */
} attend_job;

/* A worker's scratch. */
typedef struct attend_state {
    float *queries;
    float *scores; /* [NAPIER_SCORE_ROWS][NAPIER_ROW_STEP] */
    napier_attention_rows rows;
} attend_state;

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

/* Output columns and a few more, lest all rows fall into one set of the cache. */
static int64_t output_step(const napier_attention_plan *plan) { return napier_value_columns(plan) + 16; }

static int64_t state_floats(const napier_attention_plan *plan, int64_t rows) {
    const int64_t filled = napier_rows_filled(rows);
    return napier_packed_rows_floats(rows, plan->q.dim) + NAPIER_SCORE_ROWS * NAPIER_ROW_STEP +
           filled * (17 + output_step(plan)) + 16;
}

static attend_state state_of(const attend_job *job, int worker) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t rows = job->tile_queries * plan->group, filled = napier_rows_filled(rows);
    float *at = job->scratch + worker * job->scratch_floats;
    attend_state state;
    state.queries = at, at += napier_packed_rows_floats(rows, plan->q.dim);
    state.scores = at, at += NAPIER_SCORE_ROWS * NAPIER_ROW_STEP;
    state.rows.outputs = at, at += filled * output_step(plan);
    state.rows.sums = at, at += filled * 16;
    state.rows.exponents = at;
    state.rows.step = output_step(plan);
    state.rows.cols = napier_fill_up(plan->v.dim, 16);
    return state;
}

static napier_attention_rows rows_from(const napier_attention_rows *all, int64_t first) {
    napier_attention_rows rows = *all;
    rows.exponents += first;
    rows.sums += 16 * first;
    rows.outputs += first * rows.step;
    return rows;
}

/* Where there is an inf or NaN among values, 0 times a hidden one would be NaN: key by key, hidden ones left out. */
static void add_values_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place,
                            const napier_key_run *run, const float *weights, const napier_attention_rows *sums) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t key = 0; key < run->count; key++) {
            if (!napier_row_sees(tile, first + r, place + key)) {
                continue;
            }
            for (int64_t i = 0; i < tile->plan->v.dim; i++) {
                const float *const v = run->values + i / NAPIER_LANES * run->value_step + i % NAPIER_LANES;
                float *const o = sums->outputs + r * sums->step + i;
                *o = fmaf(weights[r * NAPIER_ROW_STEP + key], v[key * NAPIER_LANES], *o);
            }
        }
    }
}

static bool run_is_special(const napier_key_run *run) {
    for (int64_t key = 0; key < run->count; key += NAPIER_LANES) {
        if (run->special[key / NAPIER_LANES]) {
            return true;
        }
    }
    return false;
}

static void add_values(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place,
                       const napier_key_run *run, const float *weights, const napier_attention_rows *sums) {
    if (run_is_special(run)) {
        add_values_seen(tile, first, rows, place, run, weights, sums);
        return;
    }
    const napier_product_block block = {
        .rows = weights,
        .row_count = napier_rows_filled(rows),
        .panels = run->values,
        .panel_step = run->value_step,
        .lanes = sums->cols,
        .k = run->count,
        .c = sums->outputs,
        .c_step = sums->step,
    };
    tile->plan->products->chain(&block);
}

/* A block of keys, from `place` on, for up to NAPIER_SCORE_ROWS rows. */
static void attend_block(const napier_key_chunk *chunk, const napier_row_tile *tile, const napier_packed_sequence *keys,
                         int64_t place, int64_t first, int64_t rows, const attend_state *state) {
    const napier_attention_plan *const plan = tile->plan;
    int64_t seen[NAPIER_SCORE_ROWS];
    const void *mask[NAPIER_SCORE_ROWS];
    const int64_t count = napier_rows_seen(tile, first, rows, place, NAPIER_KEY_BLOCK, seen);
    napier_key_run runs[2];
    int parts = 0;
    for (int64_t at = 0; at < count; at += runs[parts++].count) {
        runs[parts] = napier_key_run_of(chunk, keys, tile->head - chunk->head, place + at, count - at);
        napier_row_products(plan, state->queries, napier_tile_rows(tile), plan->q.dim, first, rows, runs[parts].keys,
                            runs[parts].count, state->scores + at);
    }
    if (count == 0) {
        return;
    }
    if (plan->options.mask) {
        napier_rows_mask(tile, first, rows, place, mask);
    }
    const napier_attention_rows sums = rows_from(&state->rows, first);
    const napier_score_block block = {.scores = state->scores,
                                      .rows = rows,
                                      .keys = count,
                                      .seen = seen,
                                      .factor = plan->factor,
                                      .mask = plan->options.mask ? mask : NULL,
                                      .mask_is_bytes = plan->options.mask_is_bytes != 0,
                                      .mask_step = plan->options.mask_key_stride};
    plan->kernels->weigh(&block, &sums);
    for (int64_t at = 0, part = 0; part < parts; at += runs[part++].count) {
        add_values(tile, first, rows, place + at, &runs[part], state->scores + at, &sums);
    }
}

static void begin_rows(const napier_row_tile *tile, const attend_state *state) {
    const int64_t filled = napier_rows_filled(napier_tile_rows(tile));
    napier_pack_rows(tile, &tile->plan->q, state->queries);
    memset(state->rows.outputs, 0, (size_t)(filled * state->rows.step) * sizeof(float));
    memset(state->rows.sums, 0, (size_t)filled * 16 * sizeof(float));
    for (int64_t r = 0; r < filled; r++) {
        state->rows.exponents[r] = -INFINITY;
    }
}

static void finish_rows(const attend_job *job, const napier_row_tile *tile, const attend_state *state) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t group = plan->group, first = tile->head * group;
    float lse[NAPIER_SCORE_ROWS];
    for (int64_t r = 0; r < napier_tile_rows(tile); r += NAPIER_SCORE_ROWS) {
        const int64_t left = napier_tile_rows(tile) - r, rows = left < NAPIER_SCORE_ROWS ? left : NAPIER_SCORE_ROWS;
        const napier_attention_rows some = rows_from(&state->rows, r);
        plan->kernels->finish(&some, rows, job->masked, job->lse.data ? lse : NULL, 1);
        for (int64_t i = 0; i < rows && job->lse.data; i++) {
            const int64_t token = tile->sequence.query_begin + tile->query + (r + i) / group;
            const int64_t head = first + (r + i) % group;
            ((float *)job->lse.data)[token * job->lse.row_stride + head * job->lse.col_stride] = lse[i];
        }
    }
    napier_unpack_rows(tile, state->rows.outputs, state->rows.step, &job->output);
}

static void attend_tile(const attend_job *job, const napier_key_chunk *chunk, const napier_packed_sequence *keys,
                        const napier_row_tile *tile, const attend_state *state) {
    const int64_t rows = napier_tile_rows(tile);
    const int64_t most = napier_keys_seen(tile->plan, &tile->sequence, tile->query + tile->queries - 1);
    begin_rows(tile, state);
    for (int64_t place = 0; place < most; place += NAPIER_KEY_BLOCK) {
        for (int64_t first = 0; first < rows; first += NAPIER_SCORE_ROWS) {
            const int64_t left = rows - first;
            attend_block(chunk, tile, keys, place, first, left < NAPIER_SCORE_ROWS ? left : NAPIER_SCORE_ROWS, state);
        }
    }
    finish_rows(job, tile, state);
}

/* ---- All tiles --------------------------------------------------------------------------------------------------- */

static int64_t tiles_of(const attend_job *job, int64_t queries) {
    return (queries + job->tile_queries - 1) / job->tile_queries;
}

/* The last sequence of the chunk whose first tile is not beyond. */
static int64_t sequence_of_tile(const napier_key_chunk *chunk, int64_t tile) {
    int64_t low = 0, high = chunk->sequences;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(chunk->packed[middle].first_tile <= tile ? &low : &high) = middle;
    }
    return low;
}

/* Tile `index` of a sequence: the last queries first, which see the most keys. */
static void attend_sequence(const attend_job *job, const napier_key_chunk *chunk, int64_t sequence, int64_t index,
                            int64_t head, const attend_state *state) {
    const napier_sequence s = napier_sequence_of(job->plan, chunk->sequence + sequence);
    const int64_t count = tiles_of(job, s.queries), tile = count - 1 - index;
    const int64_t first = s.queries * tile / count, last = s.queries * (tile + 1) / count;
    const napier_row_tile t = {job->plan, s, first, last - first, head};
    attend_tile(job, chunk, &chunk->packed[sequence], &t, state);
}

static void attend_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const attend_job *const job = argument;
    const napier_key_chunk *const chunk = job->chunks;
    const attend_state state = state_of(job, worker);
    for (int64_t i = begin; i < end; i++) {
        const int64_t tile = i % job->tiles, sequence = sequence_of_tile(chunk, tile);
        attend_sequence(job, chunk, sequence, tile - chunk->packed[sequence].first_tile, chunk->head + i / job->tiles,
                        &state);
    }
}

static void attend_together(attend_job *job) {
    napier_key_chunk *const chunk = job->chunks;
    while (napier_key_chunk_next(chunk)) {
        job->tiles = 0;
        for (int64_t i = 0; i < chunk->sequences; i++) {
            chunk->packed[i].first_tile = job->tiles;
            job->tiles += tiles_of(job, napier_sequence_of(job->plan, chunk->sequence + i).queries);
        }
        napier_parallel(job->plan->context, job->tiles * chunk->heads, 1, attend_tiles, job);
    }
}

/* Item: a range of sequences and a head. */
static void attend_own(void *argument, int worker, int64_t begin, int64_t end) {
    const attend_job *const job = argument;
    const int64_t heads = job->plan->k.heads;
    napier_key_chunk *const chunk = &job->chunks[worker];
    const attend_state state = state_of(job, worker);
    for (int64_t i = begin; i < end; i++) {
        napier_key_chunk_load(chunk, job->starts[i / heads], job->starts[i / heads + 1], i % heads);
        for (int64_t sequence = 0; sequence < chunk->sequences; sequence++) {
            const int64_t queries = napier_sequence_of(job->plan, chunk->sequence + sequence).queries;
            for (int64_t tile = 0; tile < tiles_of(job, queries); tile++) {
                attend_sequence(job, chunk, sequence, tile, i % heads, &state);
            }
        }
    }
}

/* Large tiles read the keys less often; small ones share the work out better. */
static int64_t choose_tile_queries(const napier_attention_plan *plan) {
    const int64_t wanted = 8 * (int64_t)plan->context->threads;
    int64_t rows = NAPIER_TILE_ROWS;
    while (rows > NAPIER_TILE_ROWS_LEAST && plan->q.tokens * plan->q.heads / rows < wanted) {
        rows /= 2;
    }
    return rows > plan->group ? rows / plan->group : 1;
}

static bool create_chunks(attend_job *job, int chunks, int64_t floats, int64_t heads_most, int workers) {
    const napier_attention_plan *const plan = job->plan;
    job->chunks = napier_alloc(&plan->context->allocator, (size_t)chunks, sizeof *job->chunks);
    int made = 0;
    while (job->chunks && made < chunks &&
           napier_key_chunk_create(plan, floats, heads_most, workers, &job->chunks[made])) {
        made++;
    }
    if (job->chunks && made < chunks) {
        for (int i = 0; i < made; i++) {
            napier_key_chunk_destroy(&job->chunks[i]);
        }
        napier_free(&plan->context->allocator, job->chunks);
        job->chunks = NULL;
    }
    return job->chunks != NULL;
}

static void destroy_chunks(attend_job *job, int chunks) {
    for (int i = 0; i < chunks; i++) {
        napier_key_chunk_destroy(&job->chunks[i]);
    }
    napier_free(&job->plan->context->allocator, job->chunks);
}

/* Every worker packs for itself. */
static bool run_own(attend_job *job, int64_t ranges) {
    const napier_attention_plan *const plan = job->plan;
    const napier_context *const context = plan->context;
    const int64_t items = ranges * plan->k.heads;
    const int workers = napier_workers(context, items, 1);
    job->starts = napier_alloc(&context->allocator, (size_t)(ranges + 1), sizeof *job->starts);
    const bool complete = job->starts && create_chunks(job, workers, NAPIER_OWN_FLOATS, 1, 1);
    if (complete) {
        napier_key_chunk_starts(plan, NAPIER_OWN_FLOATS, 1, job->starts);
        napier_parallel(context, items, 1, attend_own, job);
        destroy_chunks(job, workers);
    }
    napier_free(&context->allocator, job->starts);
    return complete;
}

static bool run_together(attend_job *job) {
    const napier_attention_plan *const plan = job->plan;
    if (!create_chunks(job, 1, NAPIER_CHUNK_FLOATS, plan->k.heads, plan->context->threads)) {
        return false;
    }
    attend_together(job);
    destroy_chunks(job, 1);
    return true;
}

/* Enough pieces for every worker, each small enough for its cache: then nobody waits for anybody. */
static bool run(attend_job *job) {
    const napier_attention_plan *const plan = job->plan;
    const napier_key_chunks own = napier_key_chunks_of(plan, NAPIER_OWN_FLOATS, 1);
    const bool small = own.all * napier_panel_floats_of(plan) <= NAPIER_OWN_FLOATS;
    const bool enough = own.count * plan->k.heads >= 4 * (int64_t)plan->context->threads;
    return small && (enough || plan->context->threads == 1) ? run_own(job, own.count) : run_together(job);
}

static napier_status attend(napier_context *context, attend_job *job) {
    const napier_attention_plan *const plan = job->plan;
    job->tile_queries = choose_tile_queries(plan);
    job->scratch_floats = napier_fill_up(state_floats(plan, job->tile_queries * plan->group), 16);
    const size_t floats = (size_t)(job->scratch_floats * context->threads);
    job->scratch = napier_alloc(&context->allocator, floats, sizeof(float));
    if (job->scratch) {
        memset(job->scratch, 0, floats * sizeof(float));
    }
    const bool complete = job->scratch && run(job);
    napier_free(&context->allocator, job->scratch);
    return complete ? NAPIER_OK
                    : napier_fail(context, NAPIER_OUT_OF_MEMORY,
                                  "output: no memory for packed keys and values of dim %" PRId64 " and %" PRId64,
                                  plan->k.dim, plan->v.dim);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static napier_status check_outputs(napier_context *context, const napier_attention_plan *plan, napier_heads output,
                                   napier_matrix lse) {
    const napier_heads sums = napier_heads_of_matrix(lse);
    napier_status status =
        napier_attention_check_out(context, plan, "output", output, plan->q.tokens, plan->q.heads, plan->v.dim);
    if (status || !lse.data) {
        return status;
    }
    if (lse.dtype != NAPIER_F32) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "lse: dtype %s is not f32", napier_dtype_name(lse.dtype));
    }
    status = napier_attention_check_out(context, plan, "lse", sums, plan->q.tokens, plan->q.heads, 1);
    return status ? status : napier_check_heads_apart(context, "lse", sums, "output", napier_read_only_heads(output));
}

napier_status napier_attention(napier_context *context, napier_const_heads q, napier_const_heads k,
                               napier_const_heads v, napier_heads output, napier_matrix lse,
                               const napier_attention_options *options) {
    napier_attention_plan plan;
    napier_status status = napier_attention_plan_make(context, q, k, v, options, &plan);
    if (!status) {
        status = check_outputs(context, &plan, output, lse);
    }
    if (status || q.tokens == 0) {
        return status;
    }
    attend_job job = {.plan = &plan, .output = output, .lse = lse};
    job.masked = plan.options.masked_rows == NAPIER_MASKED_ZERO ? 0.0f : (float)NAN;
    return attend(context, &job);
}
