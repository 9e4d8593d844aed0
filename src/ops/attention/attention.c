/* ops/attention/attention.c - the forward: tiles of queries are multiplied with
 * the keys of their sequence, block by block. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/stop.h"
#include "ops/attention/attention_few.h"
#include "ops/attention/attention_keys.h"
#include "ops/attention/attention_rows.h"

enum {
    NAPIER_TILE_ROWS = 192,
    NAPIER_TILE_ROWS_LEAST = 48,
    NAPIER_BATCH = 16,
    NAPIER_OWN_FLOATS = 1 << 18, /* floats that a worker packs for itself: these stay in its second-level cache */
    NAPIER_OWN_MOST = 1 << 20    /* beyond this, all threads pack together */
};

typedef struct attend_job {
    const napier_attention_plan *plan;
    napier_heads output;
    napier_matrix lse;
    napier_key_chunk *chunks; /* one for all workers, or one for each */
    int64_t *starts;          /* if each worker has one: the ranges of sequences that it may take */
    int64_t tile_queries;     /* at most, of a tile */
    int64_t tiles;            /* if there is one for all: the tiles of a head in this chunk */
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

/* Output columns and a few more, so that rows do not all map to one cache set. */
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
    state.rows.cols = napier_round_up(plan->v.dim, 16);
    return state;
}

static napier_attention_rows rows_from(const napier_attention_rows *all, int64_t first) {
    napier_attention_rows rows = *all;
    rows.exponents += first;
    rows.sums += 16 * first;
    rows.outputs += first * rows.step;
    return rows;
}

static bool run_is_special(const napier_key_run *run) {
    for (int64_t key = 0; key < run->count; key += NAPIER_LANES) {
        if (run->special[key / NAPIER_LANES]) {
            return true;
        }
    }
    return false;
}

static void clear_outputs(const napier_attention_rows *sums, int64_t rows) {
    memset(sums->outputs, 0, (size_t)(rows * sums->step) * sizeof(float));
}

static void add_values(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place,
                       const napier_key_run *run, const float *weights, const napier_attention_rows *sums) {
    if (run_is_special(run)) {
        if (place == 0) {
            clear_outputs(sums, rows);
        }
        napier_add_panels_seen(tile, first, rows, place, run->count, weights, run->values, run->value_step,
                               tile->plan->v.dim, sums->outputs, sums->step);
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
        .first = place == 0,
    };
    tile->plan->products->chain(&block);
}

/* A block of keys, from `place` on, for up to NAPIER_SCORE_ROWS rows. */
static void attend_block(napier_key_chunk *chunk, const napier_row_tile *tile, const napier_packed_sequence *keys,
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
    const napier_attention_rows sums = rows_from(&state->rows, first);
    if (count == 0) {
        if (place == 0) {
            clear_outputs(&sums, rows);
        }
        return;
    }
    const napier_score_block block = napier_scores_of(tile, first, rows, place, count, state->scores, seen, mask);
    plan->kernels->weigh(&block, &sums);
    for (int64_t at = 0, part = 0; part < parts; at += runs[part++].count) {
        add_values(tile, first, rows, place + at, &runs[part], state->scores + at, &sums);
    }
}

static void begin_rows(const napier_row_tile *tile, const attend_state *state) {
    const int64_t filled = napier_rows_filled(napier_tile_rows(tile));
    napier_pack_rows(tile, &tile->plan->q, state->queries);
    memset(state->rows.sums, 0, (size_t)filled * 16 * sizeof(float));
    for (int64_t r = 0; r < filled; r++) {
        state->rows.exponents[r] = -INFINITY;
    }
}

/* Finishes some rows, and writes them directly to the output if the elements of a row are contiguous. */
static void finish_some(const attend_job *job, const napier_row_tile *tile, int64_t first, int64_t rows,
                        const attend_state *state) {
    const napier_heads *const out = &job->output;
    const int64_t group = tile->plan->group, size = out->dtype == NAPIER_F32 ? 4 : 2;
    const bool along = out->dim_stride == 1;
    const napier_attention_rows some = rows_from(&state->rows, first);
    float lse[NAPIER_SCORE_ROWS];
    void *results[NAPIER_SCORE_ROWS];
    float *places[NAPIER_SCORE_ROWS];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t token = tile->sequence.query_begin + tile->query + (first + r) / group;
        const int64_t head = tile->head * group + (first + r) % group;
        results[r] = (char *)out->data + (token * out->token_stride + head * out->head_stride) * size;
        places[r] =
            job->lse.data ? (float *)job->lse.data + token * job->lse.row_stride + head * job->lse.col_stride : NULL;
    }
    tile->plan->kernels->finish(&some, rows, job->masked, along ? results : NULL, out->dtype, out->dim,
                                job->lse.data ? lse : NULL);
    for (int64_t r = 0; r < rows && job->lse.data; r++) {
        *places[r] = lse[r];
    }
}

static void finish_rows(const attend_job *job, const napier_row_tile *tile, const attend_state *state) {
    const int64_t all = napier_tile_rows(tile);
    for (int64_t first = 0; first < all; first += NAPIER_SCORE_ROWS) {
        finish_some(job, tile, first, napier_least(all - first, NAPIER_SCORE_ROWS), state);
    }
    if (job->output.dim_stride != 1) {
        napier_unpack_rows(tile, state->rows.outputs, state->rows.step, &job->output);
    }
}

/* Tiles that go through the keys together: one tile, or those of sequences that
 * share a prefix, which is then read only once. */
typedef struct attend_batch {
    int count;
    napier_row_tile tiles[NAPIER_BATCH];
    const napier_packed_sequence *keys[NAPIER_BATCH];
} attend_batch;

/* The part of the scratch memory for the rows after the first `rows`. */
static attend_state state_from(const attend_state *all, int64_t rows, int64_t dim) {
    attend_state state = *all;
    state.queries += napier_packed_rows_floats(rows, dim);
    state.rows = rows_from(&all->rows, rows);
    return state;
}

static void attend(const attend_job *job, napier_key_chunk *chunk, const attend_batch *batch, const attend_state *all) {
    attend_state states[NAPIER_BATCH];
    int64_t most = 1, rows_before = 0;
    for (int i = 0; i < batch->count; i++) {
        const napier_row_tile *const tile = &batch->tiles[i];
        const int64_t seen = napier_keys_seen(job->plan, &tile->sequence, tile->query + tile->queries - 1);
        most = seen > most ? seen : most;
        states[i] = state_from(all, rows_before, job->plan->q.dim);
        rows_before += napier_rows_filled(napier_tile_rows(tile));
        begin_rows(tile, &states[i]);
    }
    for (int64_t place = 0; place < most; place += NAPIER_KEY_BLOCK) {
        for (int i = 0; i < batch->count; i++) {
            const int64_t rows = napier_tile_rows(&batch->tiles[i]);
            for (int64_t first = 0; first < rows; first += NAPIER_SCORE_ROWS) {
                const int64_t some = napier_least(rows - first, NAPIER_SCORE_ROWS);
                attend_block(chunk, &batch->tiles[i], batch->keys[i], place, first, some, &states[i]);
            }
        }
    }
    for (int i = 0; i < batch->count; i++) {
        finish_rows(job, &batch->tiles[i], &states[i]);
    }
}

/* ---- All tiles --------------------------------------------------------------------------------------------------- */

static int64_t tiles_of(const attend_job *job, int64_t queries) {
    return (queries + job->tile_queries - 1) / job->tile_queries;
}

/* The last sequence of the chunk whose first tile is at most this one. */
static int64_t sequence_of_tile(const napier_key_chunk *chunk, int64_t tile) {
    int64_t low = 0, high = chunk->sequences;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(chunk->packed[middle].first_tile <= tile ? &low : &high) = middle;
    }
    return low;
}

/* The end of the batch that begins with a sequence of the chunk. */
static int64_t batch_end(const attend_job *job, const napier_key_chunk *chunk, int64_t first) {
    const int64_t group = job->plan->group, most = napier_rows_filled(job->tile_queries * group);
    const napier_packed_sequence *const p = &chunk->packed[first];
    int64_t end = first, rows = 0;
    for (; end < chunk->sequences && end - first < NAPIER_BATCH; end++) {
        const int64_t queries = napier_sequence_of(job->plan, chunk->sequence + end).queries;
        const bool shares = p->shared_panels > 0 && chunk->packed[end].shared_panels > 0 &&
                            chunk->packed[end].shared.first == p->shared.first;
        rows += napier_rows_filled(queries * group);
        if (end > first && (rows > most || !shares)) {
            break;
        }
    }
    return end;
}

static int64_t tiles_of_batch(const attend_job *job, const napier_key_chunk *chunk, int64_t first, int64_t end) {
    return end - first > 1 ? 1 : tiles_of(job, napier_sequence_of(job->plan, chunk->sequence + first).queries);
}

/* Tile `index` of a batch. The last queries of a sequence come first, because they attend to the most keys. */
static void attend_sequences(const attend_job *job, napier_key_chunk *chunk, int64_t first, int64_t end, int64_t index,
                             int64_t head, const attend_state *state) {
    const int64_t count = tiles_of_batch(job, chunk, first, end), tile = count - 1 - index;
    attend_batch batch = {.count = 0};
    for (int64_t i = first; i < end; i++) {
        const napier_sequence s = napier_sequence_of(job->plan, chunk->sequence + i);
        const int64_t begin = s.queries * tile / count, last = s.queries * (tile + 1) / count;
        batch.keys[batch.count] = &chunk->packed[i];
        batch.tiles[batch.count++] = (napier_row_tile){job->plan, s, begin, last - begin, head};
    }
    attend(job, chunk, &batch, state);
}

static void attend_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const attend_job *const job = argument;
    napier_key_chunk *const chunk = job->chunks;
    const attend_state state = state_of(job, worker);
    for (int64_t i = begin; i < end; i++) {
        const int64_t tile = i % job->tiles, sequence = sequence_of_tile(chunk, tile);
        attend_sequences(job, chunk, sequence, batch_end(job, chunk, sequence),
                         tile - chunk->packed[sequence].first_tile, chunk->head + i / job->tiles, &state);
    }
}

static void attend_together(attend_job *job) {
    napier_key_chunk *const chunk = job->chunks;
    while (napier_goes_on(job->plan->context) && napier_key_chunk_next(chunk)) {
        job->tiles = 0;
        for (int64_t i = 0, end; i < chunk->sequences; i = end) {
            end = batch_end(job, chunk, i);
            chunk->packed[i].first_tile = job->tiles;
            job->tiles += tiles_of_batch(job, chunk, i, end);
            for (int64_t other = i + 1; other < end; other++) {
                chunk->packed[other].first_tile = job->tiles;
            }
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
        if (chunk->sequences == 1 && tiles_of_batch(job, chunk, 0, 1) == 1) {
            napier_key_chunk_use_once(chunk);
        }
        for (int64_t first = 0, next; first < chunk->sequences; first = next) {
            next = batch_end(job, chunk, first);
            const int64_t tiles = tiles_of_batch(job, chunk, first, next);
            for (int64_t tile = 0; tile < tiles && napier_goes_on(job->plan->context); tile++) {
                attend_sequences(job, chunk, first, next, tile, i % heads, &state);
            }
        }
    }
}

/* Large tiles read the keys less often; small ones divide the work more evenly. */
static int64_t choose_tile_queries(const napier_attention_plan *plan) {
    const int64_t wanted = 8 * (int64_t)plan->context->threads;
    int64_t rows = NAPIER_TILE_ROWS;
    while (rows > NAPIER_TILE_ROWS_LEAST && plan->q.tokens * plan->q.heads / rows < wanted) {
        rows /= 2;
    }
    return rows > plan->group ? rows / plan->group : 1;
}

/* True if there are enough pieces for every worker, each small enough for its cache. Then every worker packs its own
 * keys, and none waits for another. */
static bool packs_own(const napier_attention_plan *plan, const napier_key_chunks *own) {
    const bool small = own->all * napier_panel_floats_of(plan) <= NAPIER_OWN_MOST;
    const bool enough = own->count * plan->k.heads >= 4 * (int64_t)plan->context->threads;
    return small && (enough || plan->context->threads == 1);
}

static napier_status attend_all(napier_context *context, attend_job *job) {
    const napier_attention_plan *const plan = job->plan;
    const napier_key_chunks own = napier_key_chunks_of(plan, NAPIER_OWN_FLOATS, 1);
    const int64_t items = packs_own(plan, &own) ? own.count * plan->k.heads : 0; /* 0: all pack together */
    job->tile_queries = choose_tile_queries(plan);
    job->scratch_floats = napier_round_up(state_floats(plan, job->tile_queries * plan->group), 16);
    const int64_t floats = job->scratch_floats * context->threads;
    NAPIER_MEMORY(memory, context);
    job->scratch = napier_take(&memory, floats, sizeof(float));
    job->starts = items > 0 ? napier_take(&memory, own.count + 1, sizeof *job->starts) : NULL;
    job->chunks =
        items > 0 ? napier_key_chunks_take(&memory, plan, NAPIER_OWN_FLOATS, 1, napier_workers(context, items, 1), 1)
                  : napier_key_chunks_take(&memory, plan, NAPIER_CHUNK_FLOATS, plan->k.heads, 1, context->threads);
    NAPIER_TRY(napier_taken(&memory, "output: no memory for packed keys and values of dim %" PRId64 " and %" PRId64,
                            plan->k.dim, plan->v.dim));
    memset(job->scratch, 0, (size_t)floats * sizeof(float));
    NAPIER_MAY_STOP(context);
    if (items > 0) {
        napier_key_chunk_starts(plan, NAPIER_OWN_FLOATS, 1, job->starts);
        napier_parallel(context, items, 1, attend_own, job);
    } else {
        attend_together(job);
    }
    return napier_stopped(context);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

napier_status napier_attention(napier_context *context, napier_const_heads q, napier_const_heads k,
                               napier_const_heads v, napier_heads output, napier_matrix lse,
                               const napier_attention_options *options) {
    napier_attention_plan plan;
    NAPIER_TRY(napier_attention_plan_make(context, false, q, k, v, options, &plan));
    NAPIER_TRY(napier_attention_check_outputs(context, &plan, output, lse));
    if (q.tokens == 0) {
        return NAPIER_OK;
    }
    const float masked = plan.options.masked_rows == NAPIER_MASKED_ZERO ? 0.0f : (float)NAN;
    if (napier_attention_is_few(&plan, &output)) {
        return napier_attention_few(context, &plan, output, lse, masked);
    }
    attend_job job = {.plan = &plan, .output = output, .lse = lse, .masked = masked};
    return attend_all(context, &job);
}
