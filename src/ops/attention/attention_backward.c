/* ops/attention/attention_backward.c - the gradients. With p the probabilities and s the gradients of the scores,
 *
 *     s = p (grad_output . v - mean),   mean = grad_output . output - grad_lse,
 *     grad_v = sum p grad_output,   grad_k = scale sum s q,   grad_q = scale sum s k.
 *
 * A worker takes a head of k and a sequence or, if sequences share prefixes, all sequences one after the other. It goes
 * through blocks of keys, and for each block through tiles of queries, so that scores are computed only once. With
 * bf16_gradient what happens to a block is in attention_backward_bf16.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/stop.h"
#include "ops/attention/attention_backward_bf16.h"
#include "ops/attention/attention_engine.h"
#include "core/math/exp.h"

enum { NAPIER_BACK_KEYS = 128, NAPIER_BACK_ROWS = 96 };

typedef struct back_job {
    const napier_attention_plan *plan;
    napier_const_heads grad_output, output;
    napier_const_matrix lse;
    napier_heads grad_q, grad_k, grad_v;
    float (*dot)(const float *a, const float *b, int64_t n);
    int64_t tile_queries;
    int64_t most_rows; /* of a sequence: queries times group */
    float *scratch;
    int64_t scratch_floats; /* of a worker */
} back_job;

/* A worker's scratch. */
typedef struct back_state {
    float *means, *levels;    /* [most_rows]: grad_output . output - grad_lse, and lse log2(e) */
    float *sum_q;             /* [most_rows][q_step] */
    float *sum_k, *sum_v;     /* of the block: [NAPIER_BACK_KEYS][q_step], [.][v_step] */
    float *total_k, *total_v; /* of all rows of k, with prefixes: [tokens][q_step], [.][v_step] */
    float *keys_turned;       /* panels [dim][NAPIER_LANES] */
    float *values_turned;     /* panels [v.dim][NAPIER_LANES] */
    float *keys;              /* panels of columns, [NAPIER_BACK_KEYS][NAPIER_LANES] */
    float *gathered;          /* rows of a panel that come from two places in memory */
    float *queries, *grads;   /* packed rows of a tile */
    float *scores, *slopes;   /* [tile rows][NAPIER_ROW_STEP] */
    int64_t q_step, v_step;
    bool special_keys; /* an inf or NaN in the block's keys */
    napier_back_bf16 bf16;
} back_state;

/* With bf16_gradient. */
static bool is_bf16(const back_job *job) { return job->plan->options.bf16_gradient != 0; }
static int64_t block_keys(const back_job *job) { return is_bf16(job) ? NAPIER_BACK_BF16_KEYS : NAPIER_BACK_KEYS; }
static int64_t filled_rows(const back_job *job, int64_t rows) {
    return is_bf16(job) ? napier_round_up(rows, NAPIER_ENGINE_ROWS) : napier_rows_filled(rows);
}

/* ---- Scratch ----------------------------------------------------------------------------------------------------- */

static float *take(float **at, int64_t floats) {
    float *const taken = *at;
    *at = taken ? taken + napier_round_up(floats, 16) : NULL;
    return taken;
}

/* Sets the pointers to memory from `base` on; returns how many floats they take. */
static int64_t lay_out(const back_job *job, float *base, back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    /* With bf16_gradient panels and tiles are elsewhere, but prepare_rows needs a row of scores and of slopes. */
    const int64_t rows = is_bf16(job) ? 1 : job->tile_queries * plan->group, filled = napier_rows_filled(rows);
    const int64_t keys = block_keys(job), panels = is_bf16(job) ? 0 : keys;
    const int64_t most_rows = filled_rows(job, job->most_rows);
    const int64_t tokens = plan->prefixes ? plan->k.tokens : 0, dim = plan->k.dim, v_dim = plan->v.dim;
    const int64_t q_fill = napier_round_up(dim, NAPIER_LANES), v_fill = napier_round_up(v_dim, NAPIER_LANES);
    const int64_t wide = dim > v_dim ? dim : v_dim;
    s->q_step = q_fill + 16;
    s->v_step = v_fill + 16;
    struct {
        float **place;
        int64_t floats;
    } const parts[] = {
        {&s->means, most_rows},
        {&s->levels, most_rows},
        {&s->sum_q, most_rows * s->q_step},
        {&s->sum_k, (keys + NAPIER_TURNED_MORE) * s->q_step},
        {&s->sum_v, (keys + NAPIER_TURNED_MORE) * s->v_step},
        {&s->total_k, tokens * s->q_step},
        {&s->total_v, tokens * s->v_step},
        {&s->keys_turned, panels * dim},
        {&s->values_turned, panels * v_dim},
        {&s->keys, panels * q_fill},
        {&s->gathered, NAPIER_LANES * napier_round_up(wide, 16)},
        {&s->queries, napier_packed_rows_floats(rows, dim)},
        {&s->grads, napier_packed_rows_floats(rows, v_dim)},
        {&s->scores, filled * NAPIER_ROW_STEP},
        {&s->slopes, filled * NAPIER_ROW_STEP},
    };
    int64_t total = 0;
    float *at = base;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].place = take(&at, parts[i].floats);
        total += napier_round_up(parts[i].floats, 16);
    }
    if (is_bf16(job)) {
        total += napier_back_bf16_lay_out(plan, job->most_rows, at, &s->bf16);
    }
    return total;
}

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

static void pack_turned(const napier_row_tile *tile, const napier_const_heads *x, int64_t place, int64_t count,
                        float *gathered, float *out) {
    for (int64_t at = 0; at < count; at += NAPIER_LANES, out += x->dim * NAPIER_LANES) {
        const int64_t n = napier_least(count - at, NAPIER_LANES);
        napier_pack_panel(tile->plan, &tile->sequence, x, tile->head, place + at, n, gathered, out);
    }
}

static void pack_block(const napier_row_tile *tile, int64_t place, int64_t count, back_state *s) {
    const napier_attention_plan *const plan = tile->plan;
    const int64_t dim = plan->k.dim;
    pack_turned(tile, &plan->k, place, count, s->gathered, s->keys_turned);
    pack_turned(tile, &plan->v, place, count, s->gathered, s->values_turned);
    s->special_keys = false;
    for (int64_t col = 0; col < dim; col += NAPIER_LANES) {
        const int64_t cols = napier_least(dim - col, NAPIER_LANES);
        float *const out = s->keys + col * NAPIER_BACK_KEYS;
        napier_pack_places(plan, &tile->sequence, &plan->k, tile->head, place, count, col, cols, out, NAPIER_LANES,
                           NAPIER_LANES);
        s->special_keys = s->special_keys || plan->kernels->any_special(out, count * NAPIER_LANES);
    }
}

/* ---- Sums of products -------------------------------------------------------------------------------------------- */

static bool special_rows(const napier_attention_plan *plan, const float *packed, int64_t rows, int64_t dim) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t col = 0; col < dim; col += NAPIER_K_BLOCK) {
            const int64_t cols = napier_least(dim - col, NAPIER_K_BLOCK);
            const int64_t at = col / NAPIER_K_BLOCK * napier_rows_filled(rows) + r;
            if (plan->kernels->any_special(packed + at * NAPIER_ROW_STEP, napier_round_up(cols, 16))) {
                return true;
            }
        }
    }
    return false;
}

/* sum_q += slopes keys, for some rows of the tile. If 0 times a hidden key would be
 * NaN, key by key without the hidden ones. */
static void add_to_queries(const napier_row_tile *tile, int64_t first, int64_t rows, int64_t place, int64_t count,
                           float *sum, const back_state *s) {
    const napier_attention_plan *const plan = tile->plan;
    const float *const slopes = s->slopes + first * NAPIER_ROW_STEP;
    if (!s->special_keys) {
        for (int64_t r = rows; r < napier_rows_filled(rows); r++) { /* the sums there may belong to the next tile */
            memset(s->slopes + (first + r) * NAPIER_ROW_STEP, 0, (size_t)count * sizeof(float));
        }
        const napier_product_block block = {.rows = slopes,
                                            .row_count = napier_rows_filled(rows),
                                            .panels = s->keys,
                                            .panel_step = NAPIER_BACK_KEYS * NAPIER_LANES,
                                            .lanes = napier_round_up(plan->k.dim, 16),
                                            .k = count,
                                            .c = sum,
                                            .c_step = s->q_step};
        plan->products->chain(&block);
        return;
    }
    napier_add_panels_seen(tile, first, rows, place, count, slopes, s->keys, NAPIER_BACK_KEYS * NAPIER_LANES,
                           plan->k.dim, sum, s->q_step);
}

static void add_rows_seen(const napier_row_tile *tile, int64_t place, int64_t count, const float *weights,
                          const float *packed, int64_t dim, float *sum, int64_t step) {
    const int64_t rows = napier_tile_rows(tile), filled = napier_rows_filled(rows);
    for (int64_t key = 0; key < count; key++) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < dim && napier_row_sees(tile, r, place + key); i++) {
                const int64_t at = (i / NAPIER_K_BLOCK * filled + r) * NAPIER_ROW_STEP + i % NAPIER_K_BLOCK;
                sum[key * step + i] = fmaf(weights[r * NAPIER_ROW_STEP + key], packed[at], sum[key * step + i]);
            }
        }
    }
}

/* sum[key] += sum_row weights[row][key] packed[row]: into sum_v or sum_k. */
static void add_to_keys(const napier_row_tile *tile, int64_t place, int64_t count, const float *weights,
                        const float *packed, int64_t dim, float *sum, int64_t step) {
    const napier_attention_plan *const plan = tile->plan;
    const int64_t rows = napier_tile_rows(tile), filled = napier_rows_filled(rows);
    if (special_rows(plan, packed, rows, dim)) {
        add_rows_seen(tile, place, count, weights, packed, dim, sum, step);
        return;
    }
    const int64_t hidden = place + tile->sequence.queries - tile->sequence.keys - tile->query;
    for (int64_t col = 0; col < dim; col += NAPIER_K_BLOCK) {
        const int64_t cols = napier_least(dim - col, NAPIER_K_BLOCK);
        const napier_turned_product p = {.weights = weights,
                                         .rows = packed + col / NAPIER_K_BLOCK * filled * NAPIER_ROW_STEP,
                                         .row_count = rows,
                                         .keys = count,
                                         .cols = napier_round_up(cols, 16),
                                         .first_row = plan->options.causal ? hidden * plan->group : 0,
                                         .row_slope = plan->options.causal ? plan->group : 0,
                                         .c = sum + col,
                                         .c_step = step};
        plan->kernels->turned(&p);
    }
}

/* ---- A block of keys with a tile of queries ---------------------------------------------------------------------- */

static void clear_columns(float *x, int64_t rows, int64_t first, int64_t end) {
    for (int64_t r = 0; r < rows && first < end; r++) {
        memset(x + r * NAPIER_ROW_STEP + first, 0, (size_t)(end - first) * sizeof *x);
    }
}

/* Computes probabilities and slopes of some rows of the tile, and adds what the
 * slopes contribute to the queries' gradients. */
static void score_rows(const back_job *job, const napier_row_tile *tile, int64_t place, int64_t count, int64_t first,
                       int64_t rows, const back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    int64_t seen[NAPIER_SCORE_ROWS];
    const void *mask[NAPIER_SCORE_ROWS];
    const int64_t all = napier_tile_rows(tile), most = napier_rows_seen(tile, first, rows, place, count, seen);
    const int64_t index = tile->query * plan->group + first;
    float *const scores = s->scores + first * NAPIER_ROW_STEP, *const slopes = s->slopes + first * NAPIER_ROW_STEP;
    if (most > 0) {
        napier_row_products(plan, s->queries, all, plan->q.dim, first, rows, s->keys_turned, most, scores);
        napier_row_products(plan, s->grads, all, plan->v.dim, first, rows, s->values_turned, most, slopes);
        const napier_score_block block = napier_scores_of(tile, first, rows, place, most, scores, seen, mask);
        plan->kernels->slope(&block, s->levels + index, s->means + index, slopes);
        add_to_queries(tile, first, rows, place, most, s->sum_q + index * s->q_step, s);
    }
    clear_columns(scores, rows, most, count);
    clear_columns(slopes, rows, most, count);
}

static void back_tile(const back_job *job, const napier_row_tile *tile, int64_t place, int64_t count,
                      const back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t rows = napier_tile_rows(tile);
    napier_pack_rows(tile, &plan->q, s->queries);
    napier_pack_rows(tile, &job->grad_output, s->grads);
    for (int64_t first = 0; first < rows; first += NAPIER_SCORE_ROWS) {
        score_rows(job, tile, place, count, first, napier_least(rows - first, NAPIER_SCORE_ROWS), s);
    }
    add_to_keys(tile, place, count, s->scores, s->grads, plan->v.dim, s->sum_v, s->v_step);
    add_to_keys(tile, place, count, s->slopes, s->queries, plan->k.dim, s->sum_k, s->q_step);
}

/* ---- A sequence with a head of k --------------------------------------------------------------------------------- */

/* grad_output . output of a row, piece by piece. The memory of the scores serves for both. */
static float mean_of(const back_job *job, int64_t token, int64_t head, const back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const napier_const_matrix g = napier_head(&job->grad_output, head), o = napier_head(&job->output, head);
    float mean = 0.0f;
    for (int64_t col = 0; col < plan->v.dim; col += NAPIER_K_BLOCK) {
        const int64_t cols = napier_least(plan->v.dim - col, NAPIER_K_BLOCK);
        const int64_t padded = napier_round_up(cols, 16);
        plan->core->pack(&g, token, 1, col, cols, false, s->scores, NAPIER_ROW_STEP, padded);
        plan->core->pack(&o, token, 1, col, cols, false, s->slopes, NAPIER_ROW_STEP, padded);
        mean += job->dot(s->scores, s->slopes, cols);
    }
    return mean;
}

/* Element (token, head) of lse or of its gradient; 0 without data. */
static float of_row(napier_const_matrix m, int64_t token, int64_t head) {
    const float *const x = m.data;
    return x ? x[token * m.row_stride + head * m.col_stride] : 0.0f;
}

static void prepare_rows(const back_job *job, const napier_sequence *sequence, int64_t head, const back_state *s) {
    const int64_t group = job->plan->group;
    for (int64_t r = 0; r < sequence->queries * group; r++) {
        const int64_t token = sequence->query_begin + r / group, h = head * group + r % group;
        s->means[r] = mean_of(job, token, h, s) - of_row(job->plan->options.grad_lse, token, h);
        s->levels[r] = of_row(job->lse, token, h) * NAPIER_LOG2E;
    }
    for (int64_t r = sequence->queries * group; r < filled_rows(job, sequence->queries * group); r++) {
        s->means[r] = s->levels[r] = 0.0f;
    }
}

static napier_row_tile tile_of(const back_job *job, const napier_sequence *sequence, int64_t head, int64_t query) {
    return (napier_row_tile){job->plan, *sequence, query, napier_least(sequence->queries - query, job->tile_queries),
                             head};
}

/* The gradients of the block's keys, scaled. With prefixes they are added to those of earlier sequences. */
static void finish_block(const back_job *job, const napier_sequence *sequence, int64_t head, int64_t place,
                         int64_t count, const back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t row = napier_key_row(sequence, place);
    plan->kernels->scale(s->sum_k, s->q_step, count, napier_round_up(plan->k.dim, 16), plan->scale);
    plan->kernels->scale(s->sum_v, s->v_step, count, napier_round_up(plan->v.dim, 16), 1.0f);
    if (!plan->prefixes) {
        if (job->grad_k.data) {
            plan->core->unpack(s->sum_k, s->q_step, count, plan->k.dim, napier_head_out(&job->grad_k, head), row, 0,
                               false);
        }
        if (job->grad_v.data) {
            plan->core->unpack(s->sum_v, s->v_step, count, plan->v.dim, napier_head_out(&job->grad_v, head), row, 0,
                               false);
        }
        return;
    }
    for (int64_t key = 0; key < count; key++) {
        const int64_t at = napier_key_row(sequence, place + key);
        for (int64_t i = 0; i < plan->k.dim; i++) {
            s->total_k[at * s->q_step + i] += s->sum_k[key * s->q_step + i];
        }
        for (int64_t i = 0; i < plan->v.dim; i++) {
            s->total_v[at * s->v_step + i] += s->sum_v[key * s->v_step + i];
        }
    }
}

static void back_block(const back_job *job, const napier_sequence *sequence, int64_t head, int64_t place, int64_t count,
                       back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t hidden = plan->options.causal ? place + sequence->queries - sequence->keys : 0;
    napier_row_tile tile = tile_of(job, sequence, head, 0);
    memset(s->sum_k, 0, (size_t)(NAPIER_BACK_KEYS * s->q_step) * sizeof *s->sum_k);
    memset(s->sum_v, 0, (size_t)(NAPIER_BACK_KEYS * s->v_step) * sizeof *s->sum_v);
    pack_block(&tile, place, count, s);
    for (int64_t query = hidden > 0 ? hidden : 0; query < sequence->queries && napier_goes_on(plan->context);
         query += job->tile_queries) {
        tile = tile_of(job, sequence, head, query);
        back_tile(job, &tile, place, count, s);
    }
}

/* All keys of a sequence. */
static void back_blocks(const back_job *job, const napier_sequence *sequence, int64_t head, back_state *s) {
    const napier_back_rows rows = {.all = {job->plan, *sequence, 0, sequence->queries, head},
                                   .grad_output = &job->grad_output,
                                   .levels = s->levels,
                                   .means = s->means,
                                   .sum_q = s->sum_q,
                                   .sum_k = s->sum_k,
                                   .sum_v = s->sum_v,
                                   .q_step = s->q_step,
                                   .v_step = s->v_step};
    if (is_bf16(job)) {
        napier_back_bf16_begin(&rows, &s->bf16);
    }
    for (int64_t place = 0; place < sequence->keys && napier_goes_on(job->plan->context); place += block_keys(job)) {
        const int64_t count = napier_least(sequence->keys - place, block_keys(job));
        if (is_bf16(job)) {
            napier_back_bf16_block(&rows, place, count, &s->bf16);
        } else {
            back_block(job, sequence, head, place, count, s);
        }
        finish_block(job, sequence, head, place, count, s);
    }
}

static void back_sequence(const back_job *job, int64_t index, int64_t head, back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const napier_sequence sequence = napier_sequence_of(plan, index);
    const int64_t rows = sequence.queries * plan->group;
    if (rows > 0) { /* row 0 is there even where no row is */
        memset(s->sum_q, 0, (size_t)(filled_rows(job, rows) * s->q_step) * sizeof *s->sum_q);
    }
    prepare_rows(job, &sequence, head, s);
    back_blocks(job, &sequence, head, s);
    if (rows > 0 && job->grad_q.data) {
        const napier_row_tile all = {plan, sequence, 0, sequence.queries, head};
        plan->kernels->scale(s->sum_q, s->q_step, rows, napier_round_up(plan->q.dim, 16), plan->scale);
        napier_unpack_rows(&all, s->sum_q, s->q_step, &job->grad_q);
    }
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

static void back_all_sequences(const back_job *job, int64_t head, back_state *s) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t tokens = plan->k.tokens;
    memset(s->total_k, 0, (size_t)(tokens * s->q_step) * sizeof *s->total_k);
    memset(s->total_v, 0, (size_t)(tokens * s->v_step) * sizeof *s->total_v);
    for (int64_t index = 0; index < plan->sequences && napier_goes_on(plan->context); index++) {
        back_sequence(job, index, head, s);
    }
    if (job->grad_k.data) {
        plan->core->unpack(s->total_k, s->q_step, tokens, plan->k.dim, napier_head_out(&job->grad_k, head), 0, 0,
                           false);
    }
    if (job->grad_v.data) {
        plan->core->unpack(s->total_v, s->v_step, tokens, plan->v.dim, napier_head_out(&job->grad_v, head), 0, 0,
                           false);
    }
}

static void back_task(void *argument, int worker, int64_t begin, int64_t end) {
    const back_job *const job = argument;
    const int64_t sequences = job->plan->sequences;
    back_state s;
    (void)lay_out(job, job->scratch + worker * job->scratch_floats, &s);
    for (int64_t i = begin; i < end; i++) {
        if (job->plan->prefixes) {
            back_all_sequences(job, i, &s);
        } else {
            back_sequence(job, i % sequences, i / sequences, &s);
        }
    }
}

/* Sets rows [first, end) of all heads of x to 0. */
static void clear_rows(const napier_attention_plan *plan, const napier_heads *x, int64_t first, int64_t end) {
    const float zeros[NAPIER_LANES] = {0};
    for (int64_t row = first; row < end && x->data; row++) {
        for (int64_t head = 0; head < x->heads; head++) {
            for (int64_t col = 0; col < x->dim; col += NAPIER_LANES) {
                const int64_t cols = napier_least(x->dim - col, NAPIER_LANES);
                plan->core->unpack(zeros, 0, 1, cols, napier_head_out(x, head), row, col, false);
            }
        }
    }
}

/* Rows that no sequence owns. With prefixes all rows are written anyway. */
static void clear_unused(const back_job *job) {
    const napier_attention_plan *const plan = job->plan;
    if (plan->prefixes || !plan->key_offsets) {
        return;
    }
    const int64_t first = plan->key_offsets[0], last = plan->key_offsets[plan->sequences];
    const napier_heads *const grads[2] = {&job->grad_k, &job->grad_v};
    for (int i = 0; i < 2; i++) {
        clear_rows(plan, grads[i], 0, first);
        clear_rows(plan, grads[i], last, plan->k.tokens);
    }
}

static napier_status back(napier_context *context, back_job *job) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t items = plan->k.heads * (plan->prefixes ? 1 : plan->sequences);
    const int workers = napier_workers(context, items, 1);
    back_state unused;
    for (int64_t i = 0; i < plan->sequences; i++) {
        const int64_t rows = napier_sequence_of(plan, i).queries * plan->group;
        job->most_rows = rows > job->most_rows ? rows : job->most_rows;
    }
    job->dot = napier_ops_kernels_of(context->isa)->linear->dot;
    job->tile_queries = NAPIER_BACK_ROWS > plan->group ? NAPIER_BACK_ROWS / plan->group : 1;
    job->scratch_floats = lay_out(job, NULL, &unused);
    NAPIER_MEMORY(memory, context);
    job->scratch = napier_take(&memory, job->scratch_floats, (size_t)workers * sizeof(float));
    NAPIER_TRY(napier_taken(&memory,
                            "grad_output: no memory for %" PRId64 " rows of a sequence and %" PRId64 " tokens of k",
                            job->most_rows, plan->k.tokens));
    if (!is_bf16(job)) {
        memset(job->scratch, 0, (size_t)job->scratch_floats * (size_t)workers * sizeof(float));
    }
    clear_unused(job);
    NAPIER_MAY_STOP(context);
    napier_parallel(context, items, 1, back_task, job);
    return napier_stopped(context);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

napier_status napier_attention_backward(napier_context *context, napier_const_heads grad_output, napier_const_heads q,
                                        napier_const_heads k, napier_const_heads v, napier_const_heads output,
                                        napier_const_matrix lse, napier_heads grad_q, napier_heads grad_k,
                                        napier_heads grad_v, const napier_attention_options *options) {
    napier_attention_plan plan;
    back_job job = {.plan = &plan,
                    .grad_output = grad_output,
                    .output = output,
                    .lse = lse,
                    .grad_q = grad_q,
                    .grad_k = grad_k,
                    .grad_v = grad_v};
    const napier_attention_back_views views = {grad_output, output, lse, grad_q, grad_k, grad_v};
    NAPIER_TRY(napier_attention_plan_make(context, false, q, k, v, options, &plan));
    NAPIER_TRY(napier_attention_check_back(context, &plan, &views));
    if (plan.options.bf16_gradient) {
        napier_attention_engine_decide(context, &plan);
    }
    return back(context, &job);
}
