/* ops/sample/sample.c - draws ids: checks the arguments, divides the rows over threads, and writes the results if all rows
 * have a distribution. */
#include <float.h>
#include <inttypes.h>

#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "core/base/struct_size.h"
#include "ops/sample/sample.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/softmax_split.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static bool is_finite(float x) { return x >= -FLT_MAX && x <= FLT_MAX; }

static napier_status check_options(napier_context *context, const napier_sample_options *o,
                                   const napier_sample_call *call) {
    const float temperature = napier_float_of(o->temperature);
    if (o->temperature != 0.0 && !(temperature > 0.0f && temperature <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: temperature %g is not 0 (greedy), nor finite and above 0 in f32", o->temperature);
    }
    if (o->top_k < 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: top_k %" PRId64 " is less than 0 (no limit)",
                           o->top_k);
    }
    if (!(o->top_p > 0.0 && o->top_p <= 1.0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: top_p %g is not in (0, 1]", o->top_p);
    }
    if (!(o->min_p >= 0.0 && o->min_p <= 1.0)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: min_p %g is not in [0, 1]", o->min_p);
    }
    if (!(call->repetition > 0.0f && call->repetition <= FLT_MAX)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: repetition_penalty %g is not finite and above 0 in f32", o->repetition_penalty);
    }
    if (!is_finite(call->presence) || !is_finite(call->frequency)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: presence_penalty %g or frequency_penalty %g is not finite in f32",
                           o->presence_penalty, o->frequency_penalty);
    }
    if (o->keep && o->keep_stride != 0 && o->keep_stride < call->logits.cols) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: keep_stride %" PRId64 " is neither 0 nor at least V, %" PRId64, o->keep_stride,
                           call->logits.cols);
    }
    return NAPIER_OK;
}

/* Ids of the rows, one row after the other. */
static napier_status check_history(napier_context *context, napier_place place, const char *ids_name,
                                   napier_indices ids, const char *offsets_name, napier_indices offsets, int64_t rows,
                                   int64_t cols) {
    if (offsets.size == 0 && ids.size == 0) {
        return NAPIER_OK;
    }
    if (offsets.size < 1 || offsets.size - 1 != rows) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "%s: size %" PRId64 ", but %" PRId64 " rows have %" PRId64 " offsets", offsets_name,
                           offsets.size, rows, rows + 1);
    }
    napier_status status = napier_check_indices(context, ids_name, ids);
    status = status                      ? status
             : place == NAPIER_ON_DEVICE ? napier_check_offset_count(context, offsets_name, offsets)
                                         : napier_check_offsets_of(context, offsets_name, offsets, ids.size);
    if (status) {
        return status;
    }
    return napier_check_ids_on(context, place, ids_name, ids, ids.size, cols);
}

static napier_status check_each_row(napier_context *context, const char *name, napier_indices indices, int64_t rows) {
    if (indices.size == 0) {
        return NAPIER_OK;
    }
    const napier_status status = napier_check_indices(context, name, indices);
    if (!status && indices.size != rows) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: size %" PRId64 ", but there are %" PRId64 " rows",
                           name, indices.size, rows);
    }
    return status;
}

static napier_status check_indices(napier_context *context, napier_place place, const napier_sample_options *o,
                                   int64_t rows, int64_t cols) {
    napier_status status =
        check_history(context, place, "prompt_ids", o->prompt_ids, "prompt_offsets", o->prompt_offsets, rows, cols);
    status = status ? status
                    : check_history(context, place, "output_ids", o->output_ids, "output_offsets", o->output_offsets,
                                    rows, cols);
    status = status ? status : check_each_row(context, "seeds", o->seeds, rows);
    status = status ? status : check_each_row(context, "samples", o->samples, rows);
    return status ? status : check_each_row(context, "positions", o->positions, rows);
}

/* int64_t results as a view. Only their place in memory matters. */
static napier_const_matrix integers(const void *data, int64_t rows) {
    return (napier_const_matrix){data, rows, 1, 1, 1, NAPIER_F64};
}

static napier_status check_views(napier_context *context, const napier_sample_call *call) {
    const napier_sample_options *o = &call->options;
    const napier_sample_results *r = &call->results;
    const int64_t rows = call->logits.rows, cols = call->logits.cols;
    const unsigned vector = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_IS_VECTOR | NAPIER_MAY_BE_ABSENT;
    const int64_t sets = o->keep_stride == 0 ? 1 : rows;
    const napier_const_matrix keep = {o->keep, sets, cols, o->keep_stride, 1, NAPIER_F32};
    const napier_argument all[] = {
        NAPIER_ARGUMENT("logits", call->logits, NAPIER_IS_NARROW, rows, cols, NULL),
        NAPIER_ARGUMENT("ids", integers(r->ids, rows), NAPIER_IS_OUT, rows, 1, NULL),
        NAPIER_ARGUMENT("logprobs", napier_read_only(napier_column(r->logprobs)), vector, rows, 1, NULL),
        NAPIER_ARGUMENT("plain_logprobs", napier_read_only(napier_column(r->plain_logprobs)), vector, rows, 1, NULL),
        napier_indices_argument("prompt_ids", o->prompt_ids),
        napier_indices_argument("prompt_offsets", o->prompt_offsets),
        napier_indices_argument("output_ids", o->output_ids),
        napier_indices_argument("output_offsets", o->output_offsets),
        napier_indices_argument("seeds", o->seeds),
        napier_indices_argument("samples", o->samples),
        napier_indices_argument("positions", o->positions),
        {.name = "keep", .view = keep, .is = NAPIER_MAY_BE_ABSENT, .rows = sets, .cols = cols, .element = 1}};
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

static napier_sample_call call_of(napier_const_matrix logits, const napier_sample_options *o,
                                  const napier_sample_results *results) {
    napier_sample_call call = {.logits = logits, .options = *o, .results = *results};
    call.greedy = o->temperature == 0.0;
    call.plain.temperature = call.greedy ? 1.0f : napier_float_of(o->temperature);
    call.rules = call.plain;
    call.rules.keep = o->keep;
    call.rules.keep_stride = o->keep_stride;
    call.repetition = napier_float_of(o->repetition_penalty);
    call.presence = napier_float_of(o->presence_penalty);
    call.frequency = napier_float_of(o->frequency_penalty);
    call.penalties =
        (call.repetition != 1.0f && o->prompt_ids.size > 0) ||
        ((call.repetition != 1.0f || call.presence != 0.0f || call.frequency != 0.0f) && o->output_ids.size > 0);
    call.filters = !call.greedy && (o->top_k > 0 || o->top_p < 1.0 || o->min_p > 0.0);
    call.tiles = napier_token_tiles(logits.cols);
    call.bits = napier_sample_bits(logits.cols);
    return call;
}

napier_status napier_sample_arguments(napier_context *context, napier_place place, napier_const_matrix logits,
                                      const napier_sample_options *options, const napier_sample_results *results,
                                      napier_sample_call *call) {
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    napier_status status = napier_begin(context);
    status = status ? status
                    : napier_read_options(context, "options",
                                          NAPIER_STRUCT(napier_sample_options, NAPIER_SAMPLE_OPTIONS_INIT, positions),
                                          options, &o);
    status = status
                 ? status
                 : napier_read_struct(context, "results",
                                      NAPIER_STRUCT(napier_sample_results, NAPIER_SAMPLE_RESULTS_INIT, plain_logprobs),
                                      results, &r);
    if (status) {
        return status;
    }
    *call = call_of(logits, &o, &r);
    status = check_options(context, &o, call);
    status = status ? status : check_views(context, call);
    status = status ? status : check_indices(context, place, &o, logits.rows, logits.cols);
    if (!status && logits.rows > 0 && logits.cols == 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "logits: no columns, so there is no id to draw");
    }
    return status;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

typedef struct work {
    const napier_sample_call *call;
    const napier_ops_kernels *kernels;
    napier_sample_desk *desks;  /* [workers] */
    napier_sample_drawn *drawn; /* [rows] */
    int64_t row;                /* the current row, if rows are split */
} work;

static void run_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const work *w = argument;
    const napier_sample_desk *desk = &w->desks[worker];
    for (int64_t row = begin; row < end; row++) {
        napier_sample_scan(w->call, w->kernels, row, 0, w->call->tiles, &desk->scanned, desk->scratch);
        w->drawn[row] = napier_sample_row(w->call, w->kernels, desk, row);
    }
}

static void scan_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const work *w = argument;
    napier_sample_scan(w->call, w->kernels, w->row, begin, end, &w->desks[0].scanned, w->desks[worker].scratch);
}

/* Each row, one after the other: all threads read it. After a stop a row is not drawn: its scan may be unwritten. */
static void run_together(const napier_context *context, work *w, int64_t chunk) {
    for (w->row = 0; w->row < w->call->logits.rows; w->row++) {
        napier_parallel(context, w->call->tiles, chunk, scan_tiles, w);
        if (!napier_goes_on(context)) {
            return;
        }
        w->drawn[w->row] = napier_sample_row(w->call, w->kernels, &w->desks[0], w->row);
    }
}

static napier_status take_desks(napier_memory *memory, work *w, int workers) {
    const napier_sample_call *call = w->call;
    const int64_t marks = call->penalties ? call->logits.cols : 0, marked = call->penalties ? call->tiles : 0;
    w->drawn = napier_take(memory, call->logits.rows, sizeof *w->drawn);
    w->desks = napier_take(memory, workers, sizeof *w->desks);
    const int64_t floats = napier_round_up(napier_sample_desk_floats(call), 16);
    float *const all = napier_take(memory, workers, (size_t)floats * sizeof(float));
    uint32_t *const mark = napier_take(memory, workers, (size_t)(marks > 0 ? marks : 1) * sizeof *mark);
    uint8_t *const flag = napier_take(memory, workers, (size_t)(marked > 0 ? marked : 1));
    const napier_status status = napier_taken(memory, "scratch: no memory for %d workers", workers);
    if (status) {
        return status;
    }
    memset(mark, 0, (size_t)(workers * marks) * sizeof *mark);
    memset(flag, 0, (size_t)(workers * marked));
    for (int i = 0; i < workers; i++) {
        w->desks[i] = napier_sample_desk_of(call, all + i * floats, mark + i * marks, flag + i * marked);
    }
    return NAPIER_OK;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Fails, naming a row and its flaw. */
static napier_status refuse(napier_context *context, int64_t row, napier_sample_flaw flaw) {
    static const char *const texts[] = {
        [NAPIER_SAMPLE_NAN] = "has a NaN",
        [NAPIER_SAMPLE_PINF] = "has +inf, at least after division by the temperature; see temperature 0",
        [NAPIER_SAMPLE_MINF] = "has only -inf",
        [NAPIER_SAMPLE_LATE_NAN] = "has a NaN after the penalties",
        [NAPIER_SAMPLE_LATE_PINF] = "has +inf after the penalties and the temperature",
        [NAPIER_SAMPLE_NONE] = "has no id left: all that keep allows are -inf",
    };
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "logits: row %" PRId64 " %s", row, texts[flaw]);
}

static void put(napier_vector v, int64_t row, float x) {
    if (v.data) {
        napier_f64_store(v.data, v.dtype, row * v.stride, (double)x);
    }
}

static napier_status write_results(napier_context *context, const work *w) {
    const napier_sample_results *r = &w->call->results;
    for (int64_t row = 0; row < w->call->logits.rows; row++) {
        if (w->drawn[row].flaw) {
            return refuse(context, row, w->drawn[row].flaw);
        }
    }
    for (int64_t row = 0; row < w->call->logits.rows; row++) {
        r->ids[row] = w->drawn[row].id;
        put(r->logprobs, row, w->drawn[row].logprob);
        put(r->plain_logprobs, row, w->drawn[row].plain_logprob);
    }
    return NAPIER_OK;
}

static napier_status run(napier_context *context, const napier_sample_call *call) {
    work w = {.call = call, .kernels = napier_ops_kernels_of(context->isa)};
    const bool by_rows = call->tiles <= 1 || call->logits.rows >= context->threads;
    const int64_t items = by_rows ? call->logits.rows : call->tiles;
    const int64_t chunk = by_rows ? napier_row_chunk(context, items, call->logits.cols, 1)
                                  : napier_row_chunk(context, items, NAPIER_TILE, 1);
    napier_memory memory = {.context = context};
    napier_status status = take_desks(&memory, &w, napier_workers(context, items, chunk));
    NAPIER_MAY_STOP(context);
    if (!status) {
        if (by_rows) {
            napier_parallel(context, items, chunk, run_rows, &w);
        } else {
            run_together(context, &w, chunk);
        }
        status = napier_stopped(context);
        status = status ? status : write_results(context, &w);
    }
    napier_memory_free(&memory);
    return status;
}

napier_status napier_sample(napier_context *context, napier_const_matrix logits, const napier_sample_options *options,
                            const napier_sample_results *results) {
    napier_sample_call call;
    const napier_fenv caller = napier_fenv_enter();
    napier_status status = napier_sample_arguments(context, NAPIER_ON_HOST, logits, options, results, &call);
    if (!status && logits.rows > 0) {
        status = run(context, &call);
    }
    napier_fenv_leave(caller);
    return status;
}
