/* ops/head/linear_head.c - see linear_head.h. */
#include "ops/head/linear_head.h"

#include <inttypes.h>

#include "ops/linear/engine.h"
#include "ops/tokens/responses.h"

/* The memory of workers and rows together, and the minimum for rows. */
enum { NAPIER_HEAD_BYTES = 224 << 20, NAPIER_HEAD_LEAST = 32 << 20 };

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_token_matrices matrices_of(napier_const_matrix hidden, napier_const_matrix weights) {
    return (napier_token_matrices){
        weights.rows,
        2,
        {NAPIER_ARGUMENT("hidden", hidden, NAPIER_IS_NARROW, hidden.rows, hidden.cols, NULL),
         NAPIER_ARGUMENT("weights", weights, NAPIER_IS_NARROW, weights.rows, weights.cols, NULL)}};
}

napier_status napier_head_check_sums(napier_context *context, napier_const_matrix hidden, napier_const_matrix weights) {
    const bool shaped = weights.cols >= 0 && hidden.cols >= 0; /* else a check of the matrices names them */
    NAPIER_REFUSE_IF(context, shaped && weights.cols != hidden.cols,
                     "weights: cols %" PRId64 " is not the cols %" PRId64 " of hidden", weights.cols, hidden.cols);
    if (hidden.cols > NAPIER_K_MOST) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "hidden: cols %" PRId64 " are too many to pack", hidden.cols);
    }
    return NAPIER_OK;
}

napier_status napier_head_check_split(napier_context *context, napier_place place, napier_const_matrix hidden,
                                      napier_const_matrix weights, const napier_token_call *call) {
    if (call->options.split && place == NAPIER_ON_DEVICE) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "options: split %" PRId64 " is for the CPU only",
                           call->options.split);
    }
    NAPIER_REFUSE_IF(context, call->options.split && weights.dtype != NAPIER_BF16,
                     "weights: dtype %s, but with the option split they are bf16", napier_dtype_name(weights.dtype));
    const bool narrow = hidden.dtype == NAPIER_BF16 && weights.dtype == NAPIER_BF16;
    if (call->options.bf16_gradient && place == NAPIER_ON_DEVICE) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "options: bf16_gradient %" PRId64 " is for the CPU only",
                           call->options.bf16_gradient);
    }
    NAPIER_REFUSE_IF(context, call->options.bf16_gradient && !narrow,
                     "weights: dtype %s, hidden: dtype %s, but with the option bf16_gradient both are bf16",
                     napier_dtype_name(weights.dtype), napier_dtype_name(hidden.dtype));
    if (narrow || (weights.dtype == NAPIER_BF16 && call->options.split)) {
        napier_matrix_engine_decide(context);
    }
    return NAPIER_OK;
}

napier_status napier_head_read(napier_context *context, napier_place place, napier_const_matrix hidden,
                               napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
                               const napier_token_results *results, napier_token_call *call) {
    const napier_token_matrices matrices = matrices_of(hidden, weights);
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_head_check_sums(context, hidden, weights)); /* V, which bounds ids, is rows of weights */
    NAPIER_TRY(napier_token_call_read(context, place, &matrices, ids, options, results, call));
    return napier_head_check_split(context, place, hidden, weights, call);
}

napier_status napier_head_back_read(napier_context *context, napier_place place, napier_const_matrix hidden,
                                    napier_const_matrix weights, napier_indices ids,
                                    const napier_token_options *options, const napier_token_gradients *gradients,
                                    napier_matrix grad_hidden, napier_matrix grad_weights, napier_token_call *call) {
    const unsigned is = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_const_matrix out[2] = {napier_read_only(grad_hidden), napier_read_only(grad_weights)};
    napier_token_matrices matrices = matrices_of(hidden, weights);
    matrices.all[2] = (napier_argument){
        .name = "grad_hidden", .view = out[0], .is = is, .rows = hidden.rows, .cols = hidden.cols, .like = "hidden"};
    matrices.all[3] =
        (napier_argument)NAPIER_ARGUMENT("grad_weights", out[1], is, weights.rows, weights.cols, "weights");
    matrices.count = 4;
    napier_status status = napier_begin(context);
    NAPIER_TRY(status ? status : napier_head_check_sums(context, hidden, weights));
    NAPIER_TRY(napier_token_back_read(context, place, &matrices, ids, options, gradients, call));
    return napier_head_check_split(context, place, hidden, weights, call);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static int64_t row_bytes(const napier_head *h) {
    const napier_token_call *c = h->call;
    const int64_t ids = c->chosen ? c->per_row * (int64_t)(2 * sizeof(int64_t) + sizeof(float)) : 0;
    const int64_t top = c->wants.top_k * (int64_t)sizeof(napier_token_top);
    return (napier_lane_floats(&h->sides) + h->slot_floats) * (int64_t)sizeof(float) +
           h->threads * ((int64_t)sizeof(napier_token_seen) + ids + top);
}

/* Takes all rows, or whole blocks of lanes: as many as memory allows, but at least one block. */
napier_head napier_head_of(const napier_context *context, const napier_token_call *call, napier_const_matrix hidden,
                           napier_const_matrix weights) {
    napier_head h = {.call = call, .kernels = napier_ops_kernels_of(context->isa)->tokens, .threads = context->threads};
    h.sides = napier_product_sides_of(context, hidden, weights, call->options.split != 0);
    h.tiles = napier_token_tiles(call->cols);
    h.slot_floats = napier_token_slot_floats(h.tiles > 0 ? h.tiles : 1);
    const int64_t left = NAPIER_HEAD_BYTES - h.threads * NAPIER_HEAD_SCRATCH * (int64_t)sizeof(float);
    const int64_t room = left > NAPIER_HEAD_LEAST ? left : NAPIER_HEAD_LEAST;
    const int64_t blocks = room / row_bytes(&h) / NAPIER_LANE_BLOCK;
    const int64_t most = (blocks > 0 ? blocks : 1) * NAPIER_LANE_BLOCK;
    h.rows_at_a_time = napier_least(call->rows, most);
    return h;
}

static size_t panels_of(const napier_head *h) { return napier_panel_floats(&h->sides, h->rows_at_a_time); }

size_t napier_head_bytes(const napier_head *h) {
    return panels_of(h) * sizeof(float) + (size_t)h->threads * NAPIER_HEAD_SCRATCH * sizeof(float) +
           (size_t)h->rows_at_a_time * (size_t)(row_bytes(h) - napier_lane_floats(&h->sides) * (int64_t)sizeof(float));
}

size_t napier_head_workspace(const napier_context *context, int64_t rows, int64_t hidden, int64_t vocabulary,
                             bool split) {
    const napier_token_call call = {
        .rows = rows, .cols = vocabulary, .per_row = 1, .options = {.split = split}, .chosen = true};
    const float unread = 0.0f;
    const napier_const_matrix states = {&unread, rows, hidden, hidden, 1, NAPIER_F32};
    const napier_const_matrix weights = {&unread, vocabulary, hidden, hidden, 1, split ? NAPIER_BF16 : NAPIER_F32};
    const napier_head head = napier_head_of(context, &call, states, weights);
    return napier_head_bytes(&head);
}

napier_status napier_head_take(napier_memory *memory, napier_head *h) {
    /* 0 panels mean too many: an element of no size fails. */
    h->sides.panels = h->sides.k > 0 ? napier_take(memory, sizeof(float), panels_of(h)) : NULL;
    h->scratch = napier_take(memory, h->threads, NAPIER_HEAD_SCRATCH * sizeof(float));
    h->slots = napier_take(memory, h->rows_at_a_time, (size_t)h->slot_floats * sizeof(float));
    h->desks = napier_token_desks(memory, h->call, h->threads, h->rows_at_a_time);
    return napier_taken(memory, "workspace: no memory for %zu bytes", napier_head_bytes(h));
}

static float *scratch_of(const napier_head *h, int worker) {
    return h->scratch + (int64_t)worker * NAPIER_HEAD_SCRATCH;
}
static napier_token_slots slots_of(const napier_head *h, int64_t row) {
    return napier_token_slots_of(h->slots + (row - h->first) * h->slot_floats, h->tiles);
}

/* ---- The z of chosen ids ----------------------------------------------------------------------------------------- */

/* The chosen ids of several rows, collected until a panel is full. */
typedef struct chosen_ids {
    int count;
    int64_t row[NAPIER_LANES], id[NAPIER_LANES], k[NAPIER_LANES];
} chosen_ids;

static void settle(const napier_head *h, chosen_ids *c, float *scratch) {
    float x[NAPIER_LANES];
    napier_product_ones(&h->sides, c->row, c->id, c->count, scratch, x);
    for (int i = 0; i < c->count; i++) {
        float z;
        h->kernels->token_z(&h->call->rules, x + i, NAPIER_F32, 1,
                            napier_token_keep(&h->call->rules, c->row[i], c->id[i]), 1, &z);
        for (int w = 0; w < h->threads; w++) {
            h->desks[w][c->row[i] - h->first].chosen[c->k[i]] = z;
        }
    }
    c->count = 0;
}

static void start_row(const napier_head *h, int64_t row, chosen_ids *c, float *scratch) {
    for (int w = 0; w < h->threads; w++) {
        napier_token_start_ids(h->call, row, &h->desks[w][row - h->first]);
    }
    for (int64_t k = 0; h->call->chosen && k < h->call->per_row; k++) {
        const int64_t id = napier_token_id(h->call, row, k);
        if (napier_token_ignored(h->call, id)) {
            for (int w = 0; w < h->threads; w++) {
                h->desks[w][row - h->first].chosen[k] = INFINITY;
            }
            continue;
        }
        c->row[c->count] = row;
        c->id[c->count] = id;
        c->k[c->count] = k;
        if (++c->count == NAPIER_LANES) {
            settle(h, c, scratch);
        }
    }
}

static void start_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_head *h = argument;
    chosen_ids c = {.count = 0};
    for (int64_t row = h->first + begin; row < h->first + end; row++) {
        start_row(h, row, &c, scratch_of(h, worker));
    }
    if (c.count > 0) {
        settle(h, &c, scratch_of(h, worker));
    }
}

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

void napier_head_logits(const napier_head *h, int worker, int64_t block, int64_t begin, int64_t n, napier_matrix out) {
    const int64_t lanes = napier_block_lanes(&h->sides, block);
    for (int64_t i = 0; i < n; i += NAPIER_HEAD_STRIP) {
        const int64_t rows = napier_least(n - i, NAPIER_HEAD_STRIP);
        const float *c = napier_product_strip(&h->sides, block, begin + i, rows, scratch_of(h, worker));
        h->sides.core->unpack(c, h->sides.c_step, rows, lanes, out, i, 0, false);
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* x: the logits of a tile; z: room for what the rules make of them, which may be x. */
static void consume(const napier_head *h, int worker, int64_t row, int64_t tile, int n, const float *x, float *z) {
    const uint8_t *keep = napier_token_keep(&h->call->rules, row, tile * NAPIER_TILE);
    const napier_token_slots slots = slots_of(h, row);
    h->kernels->token_z(&h->call->rules, x, NAPIER_F32, 1, keep, n, z);
    h->kernels->token_tile(&h->call->wants, z, keep, n, tile, &slots, &h->desks[worker][row - h->first]);
}

static void reduce_tile(const napier_head *h, int worker, int64_t tile, int64_t block) {
    const int64_t begin = tile * NAPIER_TILE, lanes = napier_block_lanes(&h->sides, block);
    const int n = (int)napier_least(h->call->cols - begin, NAPIER_TILE);
    const int64_t first = h->first + block * h->sides.lane_block;
    const bool kept = h->kept && begin < h->kept_cols;
    float *z = scratch_of(h, worker) + NAPIER_HEAD_PRODUCT;
    float *x = kept ? napier_kept_at(h, first, begin) : z;
    const int64_t step = kept ? h->kept_step : NAPIER_HEAD_Z;
    const napier_matrix turned = {x, n, lanes, 1, step, NAPIER_F32};
    napier_head_logits(h, worker, block, begin, n, turned);
    for (int64_t l = 0; l < lanes; l++) {
        consume(h, worker, first + l, tile, n, x + l * step, kept ? z : z + l * NAPIER_HEAD_Z);
    }
}

/* The blocks of rows are in the inner loop, so that a tile's weights are still in a cache for the next block. */
static void tiles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_head *h = argument;
    const int64_t blocks = napier_lane_blocks(&h->sides);
    for (int64_t unit = begin; unit < end; unit++) {
        reduce_tile(h, worker, unit / blocks, unit % blocks);
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

typedef struct finish {
    const napier_head *head;
    napier_head_row *done; /* NULL: slots_done */
    napier_head_slots *slots_done;
    void *argument;
} finish;

static void finish_task(void *argument, int worker, int64_t begin, int64_t end) {
    const finish *f = argument;
    const napier_head *h = f->head;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const napier_token_slots slots = slots_of(h, h->first + i);
        for (int w = 1; w < h->threads; w++) {
            napier_token_seen_merge(&h->desks[0][i], &h->desks[w][i], &h->call->wants);
        }
        if (!f->done) {
            f->slots_done(f->argument, h->first + i, &slots, &h->desks[0][i]);
            continue;
        }
        const napier_token_final final = h->kernels->token_finish(&h->call->wants, &slots, h->tiles);
        f->done(f->argument, h->first + i, &final, &h->desks[0][i]);
    }
}

static void run_rows(const napier_context *context, napier_head *h, int64_t first, int64_t count, finish *f) {
    h->first = first;
    napier_pack_lanes(context, &h->sides, first, count);
    napier_parallel(context, count, NAPIER_LANES, start_task, h);
    napier_parallel(context, h->tiles * napier_lane_blocks(&h->sides), 1, tiles_task, h);
    napier_parallel(context, count, 16, finish_task, f);
}

void napier_head_rows(const napier_context *context, napier_head *h, int64_t first, int64_t count,
                      napier_head_row *done, void *argument) {
    finish f = {h, done, NULL, argument};
    run_rows(context, h, first, count, &f);
}

void napier_head_tiles(const napier_context *context, napier_head *h, int64_t first, int64_t count,
                       napier_head_slots *done, void *argument) {
    finish f = {h, NULL, done, argument};
    run_rows(context, h, first, count, &f);
}
