/* ops/attention/attention.c - the forward: tiles of queries are multiplied with
 * the keys of their sequence, block by block. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/stop.h"
#include "ops/attention/attention_engine.h"
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
    float *scores; /* [SCORE_ROWS_MOST][NAPIER_ROW_STEP] */
    napier_attention_rows rows;
} attend_state;

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

enum { SCORE_ROWS_MOST = NAPIER_ENGINE_ROWS, ENGINE_TILE = 16 };

/* Rows that go through both products together. */
static int64_t score_rows(const napier_attention_plan *plan) {
    return napier_plan_engine(plan) ? NAPIER_ENGINE_ROWS : NAPIER_SCORE_ROWS;
}

static int64_t filled_rows(const napier_attention_plan *plan, int64_t rows) {
    return napier_plan_engine(plan) ? napier_round_up(rows, ENGINE_TILE) : napier_rows_filled(rows);
}

static int64_t query_floats(const napier_attention_plan *plan, int64_t rows) {
    return napier_plan_engine(plan) ? filled_rows(plan, rows) * napier_engine_row_step(plan) / 2
                                    : napier_packed_rows_floats(rows, plan->q.dim);
}

/* Output columns and a few more, so that rows do not all map to one cache set. */
static int64_t output_step(const napier_attention_plan *plan) { return napier_value_columns(plan) + 16; }

static int64_t state_floats(const napier_attention_plan *plan, int64_t rows) {
    const int64_t filled = filled_rows(plan, rows);
    return query_floats(plan, rows) + SCORE_ROWS_MOST * NAPIER_ROW_STEP + filled * (17 + output_step(plan)) + 16;
}

static attend_state state_of(const attend_job *job, int worker) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t rows = job->tile_queries * plan->group, filled = filled_rows(plan, rows);
    float *at = job->scratch + worker * job->scratch_floats;
    attend_state state;
    state.queries = at, at += query_floats(plan, rows);
    state.scores = at, at += SCORE_ROWS_MOST * NAPIER_ROW_STEP;
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

/* The weights of a row, from `place` on within a block. */
static const uint16_t *weights_at(const float *scores, int64_t place) {
    return (const uint16_t *)(const void *)scores + place;
}

/* A panel of at most 32 places and columns, for one row: the row's outputs += its weights * the values that it sees. */
static void add_square_seen(const napier_row_tile *tile, int64_t row, int64_t place, int64_t n, int64_t col,
                            const float *weights, float *outputs, bool first) {
    const napier_attention_plan *const plan = tile->plan;
    float values[NAPIER_LANES * NAPIER_LANES] = {0};
    napier_pack_places(plan, &tile->sequence, &plan->v, tile->head, place, n, col,
                       napier_least(plan->v.dim - col, NAPIER_LANES), values, NAPIER_LANES, NAPIER_LANES);
    for (int64_t i = 0; i < n; i++) {
        if (!napier_row_sees(tile, row, place + i)) {
            memset(values + i * NAPIER_LANES, 0, NAPIER_LANES * sizeof *values);
        }
    }
    const napier_product_block block = {.rows = weights,
                                        .row_count = 1,
                                        .panels = values,
                                        .lanes = NAPIER_LANES,
                                        .k = NAPIER_PAIRS_BLOCK,
                                        .c = outputs + col,
                                        .first = first};
    plan->products->pairs(&block);
}

/* In the order of bf16_weights, without the values of hidden keys. at: where the places' weights are in the scores. */
static void add_narrow_seen(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t at,
                            int64_t count, const float *scores, const napier_attention_rows *sums) {
    for (int64_t r = 0; r < rows; r++, scores += NAPIER_ROW_STEP) {
        for (int64_t i = 0; i < count; i += NAPIER_LANES) {
            const int64_t n = napier_least(count - i, NAPIER_LANES);
            float weights[NAPIER_LANES];
            for (int64_t j = 0; j < NAPIER_LANES; j++) {
                const uint32_t bits = (uint32_t)weights_at(scores, at + i)[j] << 16;
                weights[j] = scores[at + i + j];
                if (napier_plan_engine(tile->plan)) {
                    memcpy(weights + j, &bits, sizeof bits);
                }
            }
            for (int64_t col = 0; col < tile->plan->v.dim; col += NAPIER_LANES) {
                add_square_seen(tile, first + r, place + i, n, col, weights, sums->outputs + r * sums->step,
                                place + i == 0);
            }
        }
    }
}

/* at: the place of the run within the block of scores, which are weights by now. */
static void add_values(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t at,
                       const napier_key_run *run, const float *scores, const napier_attention_rows *sums) {
    const napier_attention_plan *const plan = tile->plan;
    if (run_is_special(run)) {
        if (place == 0) {
            clear_outputs(sums, rows);
        }
        if (napier_plan_narrow(plan)) {
            add_narrow_seen(tile, first, rows, place, at, run->count, scores, sums);
            return;
        }
        napier_add_panels_seen(tile, first, rows, place, run->count, scores + at, run->values, run->value_step,
                               plan->v.dim, sums->outputs, sums->step);
        return;
    }
    if (napier_plan_engine(plan)) {
        napier_engine_outputs(plan, weights_at(scores, at), rows, run->values, run->value_step / 2, run->count,
                              sums->outputs, sums->step, place == 0);
        return;
    }
    const napier_product_block block = {
        .rows = scores + at,
        .row_count = napier_rows_filled(rows),
        .panels = run->values,
        .panel_step = run->value_step,
        .lanes = sums->cols,
        .k = napier_plan_narrow(plan) ? napier_round_up(run->count, NAPIER_PAIRS_BLOCK) : run->count,
        .c = sums->outputs,
        .c_step = sums->step,
        .first = place == 0,
    };
    (napier_plan_narrow(plan) ? plan->products->pairs : plan->products->chain)(&block);
}

static void score_run(const napier_row_tile *tile, int64_t first, int64_t rows, const napier_key_run *run,
                      const attend_state *state, float *scores) {
    const napier_attention_plan *const plan = tile->plan;
    if (napier_plan_engine(plan)) {
        const uint16_t *const queries =
            (const uint16_t *)(const void *)state->queries + first * napier_engine_row_step(plan);
        napier_engine_scores(plan, queries, rows, run->keys, run->count, scores);
        return;
    }
    napier_row_products(plan, state->queries, napier_tile_rows(tile), plan->q.dim, first, rows, run->keys, run->count,
                        scores);
}

/* A block of keys, from `place` on, for up to score_rows(plan) rows. */
static void attend_block(napier_key_chunk *chunk, const napier_row_tile *tile, const napier_packed_sequence *keys,
                         int64_t place, int64_t first, int64_t rows, const attend_state *state) {
    const napier_attention_plan *const plan = tile->plan;
    int64_t seen[SCORE_ROWS_MOST];
    const void *mask[SCORE_ROWS_MOST];
    const int64_t count = napier_rows_seen(tile, first, rows, place, NAPIER_KEY_BLOCK, seen);
    napier_key_run runs[2];
    int parts = 0;
    for (int64_t at = 0; at < count; at += runs[parts++].count) {
        runs[parts] = napier_key_run_of(chunk, keys, tile->head - chunk->head, place + at, count - at);
        score_run(tile, first, rows, &runs[parts], state, state->scores + at);
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
        add_values(tile, first, rows, place + at, at, &runs[part], state->scores, &sums);
    }
}

static void begin_rows(const napier_row_tile *tile, const attend_state *state) {
    const int64_t filled = filled_rows(tile->plan, napier_tile_rows(tile));
    if (napier_plan_engine(tile->plan)) {
        napier_engine_pack_queries(tile, (uint16_t *)(void *)state->queries);
    } else {
        napier_pack_rows(tile, &tile->plan->q, state->queries);
    }
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
    float lse[SCORE_ROWS_MOST];
    void *results[SCORE_ROWS_MOST];
    float *places[SCORE_ROWS_MOST];
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
    for (int64_t first = 0; first < all; first += SCORE_ROWS_MOST) {
        finish_some(job, tile, first, napier_least(all - first, SCORE_ROWS_MOST), state);
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
static attend_state state_from(const napier_attention_plan *plan, const attend_state *all, int64_t rows) {
    attend_state state = *all;
    state.queries += query_floats(plan, rows);
    state.rows = rows_from(&all->rows, rows);
    return state;
}

static void attend(const attend_job *job, napier_key_chunk *chunk, const attend_batch *batch, const attend_state *all) {
    attend_state states[NAPIER_BATCH];
    const int64_t together = score_rows(job->plan);
    int64_t most = 1, rows_before = 0;
    napier_engine_open(job->plan);
    for (int i = 0; i < batch->count; i++) {
        const napier_row_tile *const tile = &batch->tiles[i];
        const int64_t seen = napier_keys_seen(job->plan, &tile->sequence, tile->query + tile->queries - 1);
        most = seen > most ? seen : most;
        states[i] = state_from(job->plan, all, rows_before);
        rows_before += filled_rows(job->plan, napier_tile_rows(tile));
        begin_rows(tile, &states[i]);
    }
    for (int64_t place = 0; place < most; place += NAPIER_KEY_BLOCK) {
        for (int i = 0; i < batch->count; i++) {
            const int64_t rows = napier_tile_rows(&batch->tiles[i]);
            for (int64_t first = 0; first < rows; first += together) {
                const int64_t some = napier_least(rows - first, together);
                attend_block(chunk, &batch->tiles[i], batch->keys[i], place, first, some, &states[i]);
            }
        }
    }
    napier_engine_close(job->plan);
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
    const int64_t group = job->plan->group, most = filled_rows(job->plan, job->tile_queries * group);
    const napier_packed_sequence *const p = &chunk->packed[first];
    int64_t end = first, rows = 0;
    for (; end < chunk->sequences && end - first < NAPIER_BATCH; end++) {
        const int64_t queries = napier_sequence_of(job->plan, chunk->sequence + end).queries;
        const bool shares = p->shared_panels > 0 && chunk->packed[end].shared_panels > 0 &&
                            chunk->packed[end].shared.first == p->shared.first;
        rows += filled_rows(job->plan, queries * group);
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
    if (plan.options.bf16_weights) {
        napier_attention_engine_decide(context, &plan);
    }
    if (napier_attention_is_few(&plan, &output)) {
        return napier_attention_few(context, &plan, output, lse, masked);
    }
    attend_job job = {.plan = &plan, .output = output, .lse = lse, .masked = masked};
    return attend_all(context, &job);
}
