/* ops/attention/attention_few.c - see attention_few.h.
 *
 * To pack keys and values pays where many queries use them. A single query reads each key once, so keys and values are
 * read in place: the keys are the rows of a product with few lanes, which are the heads that share them. The order of
 * all sums is that of attention.c, so the bits are the same, in the order of bf16_weights too. */
#include "core/base/stop.h"
#include "ops/attention/attention_few.h"

#include <inttypes.h>
#include <string.h>

#include "ops/linear/bf16_pairs.h"
#include "ops/linear/engine.h"
#include "ops/linear/product.h"

typedef struct few_job {
    const napier_attention_plan *plan;
    napier_heads output;
    napier_matrix lse;
    float masked;
    int64_t parts; /* of the heads of k */
    int64_t heads; /* of k, the most of a part */
    float *scratch;
    int64_t scratch_floats; /* of a worker */
} few_job;

/* A worker's scratch, for some heads of k of a sequence and the rows that use them: `group` rows a head. */
typedef struct few_state {
    int64_t head, heads; /* of k */
    float *queries;      /* [heads][query_floats]: [dim of k][width] */
    float *products;     /* [KEYS_TOGETHER][width] */
    float *gathered;     /* values of a block of places whose rows are in two places: [NAPIER_PAIRS_BLOCK][dim of v] */
    float *scores;       /* [rows][NAPIER_ROW_STEP] */
    napier_attention_rows rows;
} few_state;

enum { ROWS_MOST = 64, KEYS_TOGETHER = NAPIER_PAIRS_BLOCK, PRODUCTS = KEYS_TOGETHER * NAPIER_FEW + 16 };

/* Vectors may be read to 16 floats after the end. */
static int64_t query_floats(const napier_attention_plan *plan) {
    return napier_round_up(plan->k.dim, NAPIER_PAIRS_BLOCK) * NAPIER_FEW + 16;
}

static int64_t gathered_floats(const napier_attention_plan *plan) {
    return napier_plan_narrow(plan) ? NAPIER_PAIRS_BLOCK / 2 * napier_round_up(plan->v.dim, 16) : 0;
}

static int64_t state_floats(const few_job *job) {
    const int64_t rows = job->heads * job->plan->group;
    return job->heads * query_floats(job->plan) + PRODUCTS + gathered_floats(job->plan) +
           rows * (NAPIER_ROW_STEP + 17 + napier_round_up(job->plan->v.dim, 16)) + 16;
}

static few_state state_of(const few_job *job, int worker) {
    const int64_t rows = job->heads * job->plan->group;
    float *at = job->scratch + worker * job->scratch_floats;
    few_state s = {.head = 0};
    s.queries = at, at += job->heads * query_floats(job->plan);
    s.products = at, at += PRODUCTS;
    s.gathered = at, at += gathered_floats(job->plan);
    s.scores = at, at += rows * NAPIER_ROW_STEP;
    s.rows.step = s.rows.cols = napier_round_up(job->plan->v.dim, 16);
    s.rows.outputs = at, at += rows * s.rows.step;
    s.rows.sums = at, at += rows * 16;
    s.rows.exponents = at;
    return s;
}

/* ---- One sequence and some heads of k ---------------------------------------------------------------------------- */

/* Consecutive keys of a sequence that follow one another in memory. */
typedef struct key_run {
    int64_t row, count;
} key_run;

/* Few keys: a key's heads are neighbours in memory, so all heads take their turns with these keys before any goes on to
 * the next. Then memory is read in its order. */
static key_run run_of(const napier_sequence *s, int64_t place, int64_t most) {
    const int64_t left = place < s->prefix ? napier_least(s->prefix - place, most) : most;
    return (key_run){napier_key_row(s, place), napier_least(left, KEYS_TOGETHER)};
}

static const void *row_at(const napier_const_heads *x, int64_t row, int64_t head) {
    const int64_t size = (int64_t)napier_dtype_size(x->dtype);
    return (const char *)x->data + (row * x->token_stride + head * x->head_stride) * size;
}

/* With several lanes, which are more than a block long together, vdpbf16ps multiplies where it is here. */
static bool is_turned(const napier_attention_plan *plan) {
    const napier_engine engine = plan->context->engine;
    return napier_plan_narrow(plan) && plan->group > 1 &&
           (engine == NAPIER_ENGINE_PAIRS || engine == NAPIER_ENGINE_BOTH);
}

/* scores[r][at ..] = q[r] . k for a run of keys, and the rows r of head `i`. */
static void score_run(const napier_attention_plan *plan, const few_state *state, int64_t i, key_run run, int64_t at) {
    const int64_t width = napier_few_width(plan->group);
    float *const scores = state->scores + i * plan->group * NAPIER_ROW_STEP + at;
    const napier_few_block block = {.rows = row_at(&plan->k, run.row, state->head + i),
                                    .dtype = plan->k.dtype,
                                    .row_count = run.count,
                                    .row_step = plan->k.token_stride * (int64_t)napier_dtype_size(plan->k.dtype),
                                    .lane_data = state->queries + i * query_floats(plan),
                                    .lanes = plan->group,
                                    .width = width,
                                    .k = plan->k.dim,
                                    .c = width == 1 ? scores : state->products,
                                    .c_step = width};
    (is_turned(plan)            ? napier_bf16_few_multiply
     : napier_plan_narrow(plan) ? plan->products->few_pairs
                                : plan->products->few_chain)(&block);
    if (width > 1) {
        const napier_matrix out = {scores, run.count, plan->group, 1, NAPIER_ROW_STEP, NAPIER_F32};
        plan->core->unpack(block.c, width, run.count, plan->group, out, 0, 0, false);
    }
}

/* outputs += weights[at ..] . v for the keys of a run, whose values begin at `rows`, and the rows of head `i`. */
static void add_run(const napier_attention_plan *plan, const few_state *state, int64_t i, const void *rows,
                    int64_t row_step, int64_t keys, int64_t at, bool first) {
    const napier_few_values values = {.rows = rows,
                                      .dtype = plan->v.dtype,
                                      .row_step = row_step * (int64_t)napier_dtype_size(plan->v.dtype),
                                      .keys = keys,
                                      .cols = plan->v.dim,
                                      .weights = state->scores + i * plan->group * NAPIER_ROW_STEP + at,
                                      .lanes = plan->group,
                                      .c = state->rows.outputs + i * plan->group * state->rows.step,
                                      .c_step = state->rows.step,
                                      .first = first};
    (napier_plan_narrow(plan) ? plan->kernels->few_value_pairs : plan->kernels->few_values)(&values);
}

/* The same for a block of places, of which the first are in the prefix and the others are not. */
static void add_gathered(const napier_attention_plan *plan, const few_state *state, int64_t i, const napier_sequence *s,
                         int64_t place, int64_t keys, int64_t at) {
    uint16_t *const out = (uint16_t *)(void *)state->gathered;
    for (int64_t key = 0; key < keys; key++) {
        memcpy(out + key * plan->v.dim, row_at(&plan->v, napier_key_row(s, place + key), state->head + i),
               (size_t)plan->v.dim * sizeof *out);
    }
    add_run(plan, state, i, out, plan->v.dim, keys, at, place == 0);
}

/* Adds the first of the values from place + at on, at most `most`. Returns how many: in the order of bf16_weights, a block. */
static int64_t add_some(const napier_attention_plan *plan, const few_state *state, const napier_sequence *s,
                        int64_t place, int64_t at, int64_t most) {
    const key_run run = run_of(s, place + at, most);
    const int64_t block = napier_least(most, KEYS_TOGETHER);
    const bool parted = napier_plan_narrow(plan) && run.count < block;
    for (int64_t i = 0; i < state->heads; i++) {
        if (parted) {
            add_gathered(plan, state, i, s, place + at, block, at);
        } else {
            add_run(plan, state, i, row_at(&plan->v, run.row, state->head + i), plan->v.token_stride, run.count, at,
                    place + at == 0);
        }
    }
    return parted ? block : run.count;
}

/* A block of keys, from `place` on. The query attends to all of them. */
static void attend_block(const napier_attention_plan *plan, const few_state *state, const napier_sequence *s,
                         int64_t place) {
    const int64_t count = napier_least(s->keys - place, NAPIER_KEY_BLOCK), rows = state->heads * plan->group;
    int64_t seen[ROWS_MOST];
    key_run run;
    for (int64_t at = 0; at < count; at += run.count) {
        run = run_of(s, place + at, count - at);
        for (int64_t i = 0; i < state->heads; i++) {
            score_run(plan, state, i, run, at);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        seen[r] = count;
    }
    const napier_score_block block = {.scores = state->scores,
                                      .weights = napier_plan_narrow(plan) ? NAPIER_WEIGHTS_ROUNDED : NAPIER_WEIGHTS_F32,
                                      .rows = rows,
                                      .keys =
                                          napier_plan_narrow(plan) ? napier_round_up(count, NAPIER_PAIRS_BLOCK) : count,
                                      .seen = seen,
                                      .factor = plan->factor};
    plan->kernels->weigh(&block, &state->rows);
    for (int64_t at = 0; at < count;) {
        at += add_some(plan, state, s, place, at, count - at);
    }
}

static void finish(const few_job *job, const few_state *state, int64_t token) {
    const napier_heads *const out = &job->output;
    const int64_t group = job->plan->group, first = state->head * group, rows = state->heads * group;
    const int64_t size = (int64_t)napier_dtype_size(out->dtype);
    float lse[ROWS_MOST];
    void *results[ROWS_MOST];
    for (int64_t r = 0; r < rows; r++) {
        results[r] = (char *)out->data + (token * out->token_stride + (first + r) * out->head_stride) * size;
    }
    job->plan->kernels->finish(&state->rows, rows, job->masked, results, out->dtype, out->dim,
                               job->lse.data ? lse : NULL);
    for (int64_t r = 0; r < rows && job->lse.data; r++) {
        ((float *)job->lse.data)[token * job->lse.row_stride + (first + r) * job->lse.col_stride] = lse[r];
    }
}

static void attend(const few_job *job, const few_state *state, const napier_sequence *s) {
    const napier_attention_plan *const plan = job->plan;
    const napier_const_heads *const q = &plan->q;
    const int64_t group = plan->group;
    for (int64_t i = 0; i < state->heads; i++) {
        const napier_const_matrix heads = {row_at(q, s->query_begin, (state->head + i) * group),
                                           group,
                                           q->dim,
                                           q->head_stride,
                                           q->dim_stride,
                                           q->dtype};
        float *const queries = state->queries + i * query_floats(plan);
        napier_pack_few(plan->core, &heads, 0, group, napier_plan_narrow(plan), napier_plan_dim(plan, q->dim), queries);
        if (is_turned(plan)) {
            napier_bf16_few_pack(queries, napier_plan_dim(plan, q->dim), napier_few_width(group));
        }
    }
    memset(state->rows.sums, 0, (size_t)(state->heads * group) * 16 * sizeof(float));
    for (int64_t r = 0; r < state->heads * group; r++) {
        state->rows.exponents[r] = -INFINITY;
    }
    for (int64_t place = 0; place < s->keys; place += NAPIER_KEY_BLOCK) {
        attend_block(plan, state, s, place);
    }
    finish(job, state, s->query_begin);
}

/* Item: a part of the heads of k, and a sequence. */
static void attend_task(void *argument, int worker, int64_t begin, int64_t end) {
    const few_job *const job = argument;
    const int64_t heads = job->plan->k.heads;
    few_state state = state_of(job, worker);
    for (int64_t i = begin; i < end; i++) {
        const napier_sequence s = napier_sequence_of(job->plan, i % job->plan->sequences);
        const int64_t part = i / job->plan->sequences;
        state.head = heads * part / job->parts;
        state.heads = heads * (part + 1) / job->parts - state.head;
        if (s.queries > 0) {
            attend(job, &state, &s);
        }
    }
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

/* Views with a stride of 0 may have any number of keys, which other code refuses. */
enum { KEYS_MOST = 1 << 30 };

bool napier_attention_is_few(const napier_attention_plan *plan, const napier_heads *output) {
    if (plan->options.mask || plan->group > NAPIER_FEW || plan->k.dim_stride != 1 || plan->v.dim_stride != 1 ||
        output->dim_stride != 1 || (napier_plan_narrow(plan) && !plan->products->few_pairs)) {
        return false;
    }
    int64_t keys = 0, shared = 0; /* shared: keys that packing would pack once for this and earlier sequences */
    napier_sequence before = {0, 0, 0, 0, 0, 0};
    for (int64_t i = 0; i < plan->sequences; i++) {
        const napier_sequence s = napier_sequence_of(plan, i);
        if (s.queries > 1 || s.keys > KEYS_MOST) {
            return false;
        }
        const bool same = i > 0 && s.prefix_begin == before.prefix_begin;
        shared += same ? napier_least(s.prefix, before.prefix) : 0;
        keys += s.keys;
        before = s;
    }
    return shared <= keys / 2;
}

/* Heads whose keys are neighbours in memory are taken together, as many as leave the threads equally busy. */
static void choose_heads(few_job *job) {
    const napier_attention_plan *const plan = job->plan;
    const int64_t heads = plan->k.heads, threads = plan->context->threads;
    const int64_t most = plan->k.head_stride == plan->k.dim ? ROWS_MOST / plan->group : 1;
    job->parts = (heads + most - 1) / most;
    for (; job->parts < heads; job->parts++) {
        const int64_t items = plan->sequences * job->parts, turns = (items + threads - 1) / threads;
        if (10 * items >= 9 * turns * threads) {
            break;
        }
    }
    job->heads = (heads + job->parts - 1) / job->parts;
}

napier_status napier_attention_few(napier_context *context, const napier_attention_plan *plan, napier_heads output,
                                   napier_matrix lse, float masked) {
    few_job job = {.plan = plan, .output = output, .lse = lse, .masked = masked};
    choose_heads(&job);
    const int64_t items = plan->sequences * job.parts;
    const int workers = napier_workers(context, items, 1);
    NAPIER_MEMORY(memory, context);
    job.scratch_floats = napier_round_up(state_floats(&job), 16);
    job.scratch = napier_take(&memory, job.scratch_floats * workers, sizeof(float));
    NAPIER_TRY(
        napier_taken(&memory, "output: no memory for rows of dim %" PRId64 " and %" PRId64, plan->k.dim, plan->v.dim));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, items, 1, attend_task, &job);
    return napier_stopped(context);
}
