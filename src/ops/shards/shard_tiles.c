/* ops/shards/shard_tiles.c - reduces the tiles of a shard, from logits in memory and from hidden states and weights. */
#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "ops/head/linear_head.h"
#include "ops/isa/ops_kernels.h"
#include "ops/shards/shards.h"
#include "ops/softmax/softmax_split.h"

typedef struct shard_tiles {
    napier_token_call call; /* ids are those of the whole row */
    int64_t first, cols;
    int64_t values;
    napier_matrix tiles;
    float *chosen;
} shard_tiles;

/* Reads the arguments: `in` are the logits, or hidden states and weights. */
static napier_status read_call(napier_context *context, const napier_argument *in, size_t count, napier_indices ids,
                               const napier_token_options *options, int64_t vocabulary, shard_tiles *s) {
    const int64_t rows = in[0].view.rows, tiles = s->cols > 0 ? napier_token_tiles(s->cols) : 0;
    const napier_token_results none = NAPIER_TOKEN_RESULTS_INIT;
    NAPIER_REFUSE_IF(context, s->values < NAPIER_SHARD_LSE || s->values > NAPIER_SHARD_TOTAL, "values: %d is unknown",
                     (int)s->values);
    NAPIER_REFUSE_IF(context, ids.size > 0 && !s->chosen, "chosen: is NULL");
    NAPIER_TRY(napier_shard_columns(context, s->first, s->cols, vocabulary, true));
    napier_token_matrices matrices = {.cols = vocabulary, .count = count + 2};
    memcpy(matrices.all, in, count * sizeof *in);
    matrices.all[count] = (napier_argument)NAPIER_ARGUMENT(
        "tiles", napier_read_only(s->tiles), NAPIER_IS_OUT | NAPIER_IS_F32, rows, tiles * s->values, NULL);
    matrices.all[count + 1] = napier_shard_chosen(s->chosen, ids, rows, NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT);
    NAPIER_TRY(napier_token_call_read(context, NAPIER_ON_HOST, &matrices, ids, options, &none, &s->call));
    s->call.wants.entropy = s->values >= NAPIER_SHARD_ENTROPY;
    s->call.wants.total = s->values >= NAPIER_SHARD_TOTAL;
    return napier_shard_no_keep(context, &s->call);
}

/* The column of id k of a row in this shard; -1 if it is elsewhere or ignored. */
static int64_t column_of(const shard_tiles *s, int64_t row, int64_t k) {
    const int64_t id = napier_token_id(&s->call, row, k);
    const bool here = !napier_token_ignored(&s->call, id) && id >= s->first && id - s->first < s->cols;
    return here ? id - s->first : -1;
}

static void write_tiles(const shard_tiles *s, int64_t row, const napier_token_slots *slots) {
    const float *const arrays[NAPIER_TOKEN_SLOT_ARRAYS] = {slots->max, slots->count, slots->rest, slots->spread,
                                                           slots->total};
    float *const to = (float *)s->tiles.data + row * s->tiles.row_stride;
    for (int64_t t = 0; t < napier_token_tiles(s->cols); t++) {
        for (int64_t v = 0; v < s->values; v++) {
            to[(t * s->values + v) * s->tiles.col_stride] = arrays[v][t];
        }
    }
}

/* ---- Logits in memory ---------------------------------------------------------------------------------------------- */

typedef struct logits_job {
    shard_tiles s;
    napier_token_job job;
    const napier_token_kernels *kernels;
    float *scratch, *slots; /* of each worker */
    int64_t slot_floats;
} logits_job;

static void choose(const logits_job *j, int64_t row) {
    const napier_const_matrix *x = &j->job.x;
    for (int64_t k = 0; k < j->s.call.per_row; k++) {
        const int64_t column = column_of(&j->s, row, k);
        if (column >= 0) {
            const char *at = (const char *)x->data +
                             (row * x->row_stride + column * x->col_stride) * (int64_t)napier_dtype_size(x->dtype);
            j->kernels->token_z(&j->job.rules, at, x->dtype, 1, NULL, 1, j->s.chosen + row * j->s.call.per_row + k);
        }
    }
}

static void logits_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const logits_job *j = argument;
    const napier_token_slots slots =
        napier_token_slots_of(j->slots + worker * j->slot_floats, napier_token_tiles(j->s.cols));
    napier_token_seen seen;
    memset(&seen, 0, sizeof seen);
    for (int64_t row = begin; row < end; row++) {
        choose(j, row);
        napier_token_seen_start(&seen, &j->job.wants);
        j->kernels->token_range(&j->job, row, 0, j->s.cols, &slots, &seen,
                                j->scratch + (int64_t)worker * NAPIER_TOKEN_SCRATCH);
        write_tiles(&j->s, row, &slots);
    }
}

napier_status napier_shard_tiles(napier_context *context, napier_const_matrix logits, int64_t first, int64_t vocabulary,
                                 napier_indices ids, const napier_token_options *options, napier_shard_values values,
                                 napier_matrix tiles, float *chosen) {
    const napier_argument in[] = {NAPIER_ARGUMENT("logits", logits, NAPIER_IS_NARROW, logits.rows, logits.cols, NULL)};
    logits_job j = {.s = {.first = first, .cols = logits.cols, .values = values, .tiles = tiles, .chosen = chosen}};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(read_call(context, in, 1, ids, options, vocabulary, &j.s));
    if (logits.rows == 0 || logits.cols == 0) {
        return NAPIER_OK;
    }
    const int64_t chunk = napier_row_chunk(context, logits.rows, logits.cols, 1);
    const int workers = napier_workers(context, logits.rows, chunk);
    NAPIER_MEMORY(memory, context);
    j.job = (napier_token_job){logits, j.s.call.rules, j.s.call.wants};
    j.kernels = napier_ops_kernels_of(context->isa)->tokens;
    j.slot_floats = napier_token_slot_floats(napier_token_tiles(logits.cols));
    j.scratch = napier_take(&memory, workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    j.slots = napier_take(&memory, workers, (size_t)j.slot_floats * sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, logits.rows, chunk, logits_rows, &j);
    return napier_stopped(context);
}

/* ---- Logits that are never stored ---------------------------------------------------------------------------------- */

static void write_row(void *argument, int64_t row, const napier_token_slots *slots, const napier_token_seen *seen) {
    const shard_tiles *s = argument;
    write_tiles(s, row, slots);
    for (int64_t k = 0; k < s->call.per_row; k++) {
        if (column_of(s, row, k) >= 0) {
            s->chosen[row * s->call.per_row + k] = seen->chosen[k];
        }
    }
}

napier_status napier_shard_linear_tiles(napier_context *context, napier_const_matrix hidden,
                                        napier_const_matrix weights, int64_t first, int64_t vocabulary,
                                        napier_indices ids, const napier_token_options *options,
                                        napier_shard_values values, napier_matrix tiles, float *chosen) {
    const napier_argument in[] = {
        NAPIER_ARGUMENT("hidden", hidden, NAPIER_IS_NARROW, hidden.rows, hidden.cols, NULL),
        NAPIER_ARGUMENT("weights", weights, NAPIER_IS_NARROW, weights.rows, weights.cols, NULL)};
    shard_tiles s = {.first = first, .cols = weights.rows, .values = values, .tiles = tiles, .chosen = chosen};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_head_check_sums(context, hidden, weights));
    NAPIER_TRY(read_call(context, in, 2, ids, options, vocabulary, &s));
    NAPIER_TRY(napier_head_check_split(context, NAPIER_ON_HOST, hidden, weights, &s.call));
    if (hidden.rows == 0 || weights.rows == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    int64_t *const own = napier_take(&memory, ids.size, sizeof *own); /* the head looks for ids among its own columns */
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %lld ids", (long long)ids.size));
    for (int64_t i = 0; i < ids.size; i++) {
        own[i] = column_of(&s, i / s.call.per_row, i % s.call.per_row);
    }
    napier_token_call here = s.call;
    here.cols = weights.rows;
    here.ids = napier_indices_i64(own, ids.size);
    here.options.ignore_index = -1;
    here.chosen = ids.size > 0;
    napier_head head = napier_head_of(context, &here, hidden, weights);
    NAPIER_TRY(napier_head_take(&memory, &head));
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    for (int64_t row = 0; row < here.rows; row += head.rows_at_a_time) {
        napier_head_tiles(context, &head, row, napier_least(here.rows - row, head.rows_at_a_time), write_row, &s);
    }
    return napier_stopped(context);
}
