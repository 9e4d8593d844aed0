/* ops/shards/shards.c - records: tiles to sums, and both to finals. See shards.h. */
#include "ops/shards/shards.h"

#include <inttypes.h>

#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/softmax/softmax_split.h"

/* ---- Arguments ----------------------------------------------------------------------------------------------------- */

napier_argument napier_shard_chosen(const float *chosen, napier_indices ids, int64_t rows, unsigned is) {
    return napier_token_chosen("chosen", chosen, rows, rows > 0 && ids.size > 0 ? ids.size / rows : 0, is);
}

napier_status napier_shard_columns(napier_context *context, int64_t first, int64_t cols, int64_t vocabulary,
                                   bool aligned) {
    NAPIER_REFUSE_IF(context, vocabulary < 0, "vocabulary: %" PRId64 " is negative", vocabulary);
    NAPIER_REFUSE_IF(context, first < 0 || first > vocabulary || cols > vocabulary - first,
                     "first: %" PRId64 " with %" PRId64 " columns is not inside the vocabulary of %" PRId64, first,
                     cols, vocabulary);
    NAPIER_REFUSE_IF(context, aligned && first % NAPIER_TILE != 0, "first: %" PRId64 " is not a multiple of %d", first,
                     NAPIER_TILE);
    NAPIER_REFUSE_IF(context, aligned && cols % NAPIER_TILE != 0 && first + cols != vocabulary,
                     "first: %" PRId64 " with %" PRId64 " columns ends inside a tile of %d", first, cols, NAPIER_TILE);
    return NAPIER_OK;
}

napier_status napier_shard_no_keep(napier_context *context, const napier_token_call *call) {
    NAPIER_REFUSE_IF(context, call->options.keep,
                     "options: keep is not supported on shards (set the dropped logits to -inf)");
    NAPIER_REFUSE_IF(context, call->options.split, "options: split %" PRId64 " is not supported on shards",
                     call->options.split);
    NAPIER_REFUSE_IF(context, call->options.bf16_gradient,
                     "options: bf16_gradient %" PRId64 " is not supported on shards", call->options.bf16_gradient);
    return NAPIER_OK;
}

/* ---- Tiles --------------------------------------------------------------------------------------------------------- */

static napier_status check_values(napier_context *context, napier_shard_values values, int64_t cols) {
    NAPIER_REFUSE_IF(context, values < NAPIER_SHARD_LSE || values > NAPIER_SHARD_TOTAL, "values: %d is unknown",
                     (int)values);
    NAPIER_REFUSE_IF(context, cols > 0 && cols % (int)values != 0,
                     "tiles: cols %" PRId64 " is no multiple of the %d values of a tile", cols, (int)values);
    return NAPIER_OK;
}

static float element(napier_const_matrix m, int64_t row, int64_t col) {
    return ((const float *)m.data)[row * m.row_stride + col * m.col_stride];
}

/* A count that no tile can have becomes 0, so that it converts to an integer. */
static float count_of(float count) { return count >= 0.0f && count <= (float)NAPIER_TILE ? count : 0.0f; }

/* ---- Sums ---------------------------------------------------------------------------------------------------------- */

static void sum_save(const napier_sum *sum, int64_t *words) {
    memset(words, 0, NAPIER_SHARD_SUM_WORDS * sizeof *words);
    words[0] = (int64_t)napier_float_bits(sum->nan ? napier_nan() : sum->max);
    memcpy(words + 1, &sum->count, sizeof sum->count);
    memcpy(words + 2, sum->digit, sizeof sum->digit);
}

static napier_sum sum_load(const int64_t *words) {
    napier_sum sum;
    napier_sum_init(&sum);
    const float max = napier_float_of_bits((uint32_t)((uint64_t)words[0] & 0xffffffffu));
    sum.nan = max != max;
    sum.pinf = max == INFINITY;
    if (sum.nan || max == -INFINITY) {
        return sum;
    }
    sum.max = max;
    if (sum.pinf) {
        return sum;
    }
    memcpy(&sum.count, words + 1, sizeof sum.count);
    if (!napier_is_huge(max)) {
        memcpy(sum.digit, words + 2, sizeof sum.digit);
        sum.top = napier_sum_top(napier_exp_parts_for(max, max).n);
    }
    return sum;
}

typedef struct sum_job {
    napier_const_matrix tiles;
    int64_t values, count; /* of a tile, and tiles of a row */
    int64_t *sums;
} sum_job;

static void sum_row(void *argument, int64_t row) {
    const sum_job *j = argument;
    napier_sum sum;
    napier_sum_init(&sum);
    for (int64_t t = 0; t < j->count; t++) {
        const float max = element(j->tiles, row, t * j->values);
        const float count = count_of(element(j->tiles, row, t * j->values + 1));
        const bool nan = max != max;
        const napier_tile_sum tile = {nan ? -INFINITY : max, 0.0f, element(j->tiles, row, t * j->values + 2),
                                      (int32_t)count, nan};
        napier_sum_add_tile(&sum, &tile);
    }
    sum_save(&sum, j->sums + row * NAPIER_SHARD_SUM_WORDS);
}

napier_status napier_shard_sums(napier_context *context, napier_const_matrix tiles, napier_shard_values values,
                                int64_t *sums) {
    const napier_argument all[] = {NAPIER_ARGUMENT("tiles", tiles, NAPIER_IS_F32, tiles.rows, tiles.cols, NULL),
                                   napier_token_words("sums", sums, tiles.rows, NAPIER_SHARD_SUM_WORDS, NAPIER_IS_OUT)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_values(context, values, tiles.cols));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    sum_job job = {tiles, (int64_t)values, tiles.cols / (int64_t)values, sums};
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, tiles.rows, napier_row_chunk(context, tiles.rows, tiles.cols, 1), sum_row, &job);
    return napier_stopped(context);
}

/* ---- Finals -------------------------------------------------------------------------------------------------------- */

typedef struct merge_job {
    const int64_t *sums;
    int64_t parts, rows;
    int64_t *finals;
} merge_job;

static void merge_row(void *argument, int64_t row) {
    const merge_job *j = argument;
    napier_sum sum;
    napier_sum_init(&sum);
    for (int64_t part = 0; part < j->parts; part++) {
        const napier_sum other = sum_load(j->sums + (part * j->rows + row) * NAPIER_SHARD_SUM_WORDS);
        napier_sum_merge(&sum, &other);
    }
    const napier_token_final final = {napier_sum_finish(&sum), 0.0f, 0.0};
    napier_token_final_save(&final, j->finals + row * NAPIER_SHARD_FINAL_WORDS);
}

napier_status napier_shard_finish_sums(napier_context *context, const int64_t *sums, int64_t parts, int64_t rows,
                                       int64_t *finals) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, parts < 0 || rows < 0 || (rows > 0 && parts > INT64_MAX / NAPIER_SHARD_SUM_WORDS / rows),
                     "parts: %" PRId64 " of %" PRId64 " rows are impossible", parts, rows);
    const napier_argument all[] = {napier_token_words("sums", sums, parts * rows, NAPIER_SHARD_SUM_WORDS, 0),
                                   napier_token_words("finals", finals, rows, NAPIER_SHARD_FINAL_WORDS, NAPIER_IS_OUT)};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    merge_job job = {sums, parts, rows, finals};
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, rows, napier_row_chunk(context, rows, NAPIER_TILE, 1), merge_row, &job);
    return napier_stopped(context);
}

typedef struct finish_job {
    const napier_token_kernels *kernels;
    napier_const_matrix tiles;
    int64_t values, count, slot_floats;
    float *slots; /* of each worker */
    int64_t *finals;
} finish_job;

static void finish_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const finish_job *j = argument;
    const napier_token_slots slots = napier_token_slots_of(j->slots + worker * j->slot_floats, j->count);
    float *const arrays[NAPIER_TOKEN_SLOT_ARRAYS] = {slots.max, slots.count, slots.rest, slots.spread, slots.total};
    const napier_token_wants wants = {.entropy = j->values >= NAPIER_SHARD_ENTROPY,
                                      .total = j->values >= NAPIER_SHARD_TOTAL};
    for (int64_t row = begin; row < end; row++) {
        for (int64_t t = 0; t < j->count; t++) {
            for (int64_t v = 0; v < NAPIER_TOKEN_SLOT_ARRAYS; v++) {
                arrays[v][t] = v < j->values ? element(j->tiles, row, t * j->values + v) : 0.0f;
            }
            slots.count[t] = count_of(slots.count[t]);
        }
        const napier_token_final final = j->kernels->token_finish(&wants, &slots, j->count);
        napier_token_final_save(&final, j->finals + row * NAPIER_SHARD_FINAL_WORDS);
    }
}

napier_status napier_shard_finish_tiles(napier_context *context, napier_const_matrix tiles, napier_shard_values values,
                                        int64_t *finals) {
    const napier_argument all[] = {
        NAPIER_ARGUMENT("tiles", tiles, NAPIER_IS_F32, tiles.rows, tiles.cols, NULL),
        napier_token_words("finals", finals, tiles.rows, NAPIER_SHARD_FINAL_WORDS, NAPIER_IS_OUT)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_values(context, values, tiles.cols));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    const int64_t count = tiles.cols / (int64_t)values, chunk = napier_row_chunk(context, tiles.rows, tiles.cols, 1);
    const int workers = napier_workers(context, tiles.rows, chunk);
    const int64_t floats = napier_token_slot_floats(count > 0 ? count : 1);
    NAPIER_MEMORY(memory, context);
    finish_job job = {napier_ops_kernels_of(context->isa)->tokens,
                      tiles,
                      (int64_t)values,
                      count,
                      floats,
                      napier_take(&memory, workers, (size_t)floats * sizeof(float)),
                      finals};
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %d workers", workers));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, tiles.rows, chunk, finish_rows, &job);
    return napier_stopped(context);
}
