/* ops/softmax/state/state.c - the mergeable state: the reduction of a part of a row that may start and end anywhere.
 *
 *            first          aligned                    tail            end
 *     row ....|---- head ----|== closed tiles, summed ==|--- tail ---|....
 *
 * Tiles are counted from index 0 of the row. Elements before the first boundary of tiles (head) and after the last
 * (tail) are stored unchanged, until a neighbour has the rest of their tile. A part inside one tile is all head or, if
 * it starts on a boundary, all tail. */
#include <napier/softmax.h>

#include "core/base/scope.h"
#include "core/base/sizes.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/state/state.h"

_Static_assert((int)NAPIER_TILE == (int)NAPIER_F64_TILE, "one tile for both compute types");

/* ---- A part of a row, whatever its compute type -------------------------------------------------------------------- */

static size_t element_size(const napier_softmax_state *s) { return napier_state_element(s->compute); }

/* The most elements that the head can hold: up to the first boundary at or after `first`. */
static int head_room(const napier_softmax_state *s) {
    return (int)((NAPIER_TILE - s->first % NAPIER_TILE) % NAPIER_TILE);
}

static bool is_aligned(const napier_softmax_state *s) { return s->first % NAPIER_TILE == 0 && s->tail_size == 0; }

/* n elements of the compute type, and their weights; NULL in a state without weights. */
typedef struct elements {
    const char *z, *b;
} elements;

static elements block_of(const napier_softmax_state *s, bool tail) {
    const napier_state_block z = tail ? NAPIER_STATE_TAIL : NAPIER_STATE_HEAD;
    const napier_state_block b = tail ? NAPIER_STATE_TAIL_WEIGHTS : NAPIER_STATE_HEAD_WEIGHTS;
    return (elements){napier_state_elements_of(s, z), s->weighted ? napier_state_elements_of(s, b) : NULL};
}

static elements behind(elements from, size_t bytes) {
    return (elements){from.z + bytes, from.b ? from.b + bytes : NULL};
}

/* Copies n elements to place `at` of the head or tail. */
static void put(napier_softmax_state *s, bool tail, int at, elements from, int64_t n) {
    const size_t size = element_size(s);
    const napier_state_block z = tail ? NAPIER_STATE_TAIL : NAPIER_STATE_HEAD;
    const napier_state_block b = tail ? NAPIER_STATE_TAIL_WEIGHTS : NAPIER_STATE_HEAD_WEIGHTS;
    memcpy(napier_state_elements(s, z) + (size_t)at * size, from.z, (size_t)n * size);
    if (s->weighted) {
        memcpy(napier_state_elements(s, b) + (size_t)at * size, from.b, (size_t)n * size);
    }
}

static void add_tile(const napier_softmax_kernels *k, napier_softmax_state *s, elements tile, int n) {
    if (s->weighted) {
        napier_weighted_sum_add(k, napier_state_weighted_sum(s), tile.z, tile.b, n);
    } else if (s->compute == NAPIER_F64) {
        napier_f64_tile_part part;
        k->f64_tile((const double *)(const void *)tile.z, n, &part, NULL);
        napier_f64_sum_add_part(&s->sum.f64, &part);
    } else {
        napier_tile_sum t;
        k->tile_sum((const float *)(const void *)tile.z, n, &t);
        napier_sum_add_tile(&s->sum.f32, &t);
    }
}

/* Appends n elements. */
static void append(const napier_softmax_kernels *k, napier_softmax_state *s, elements at, int64_t n) {
    s->count += n;
    s->end += n;
    while (n > 0) {
        const int head_left = head_room(s) - s->head_size;
        int64_t part;
        if (head_left > 0) {
            part = napier_least(n, head_left);
            put(s, false, s->head_size, at, part);
            s->head_size += (int32_t)part;
        } else if (s->tail_size == 0 && n >= NAPIER_TILE) {
            part = NAPIER_TILE;
            add_tile(k, s, at, NAPIER_TILE);
        } else {
            part = n < NAPIER_TILE - s->tail_size ? n : NAPIER_TILE - s->tail_size;
            put(s, true, s->tail_size, at, part);
            s->tail_size += (int32_t)part;
            if (s->tail_size == NAPIER_TILE) {
                add_tile(k, s, block_of(s, true), NAPIER_TILE);
                s->tail_size = 0;
            }
        }
        at = behind(at, (size_t)part * element_size(s));
        n -= part;
    }
}

static void merge_sums(napier_softmax_state *into, const napier_softmax_state *from) {
    if (into->weighted) {
        napier_weighted_sum_merge(napier_state_weighted_sum(into), napier_state_weighted_sum_of(from));
    } else if (into->compute == NAPIER_F64) {
        napier_f64_sum_merge(&into->sum.f64, &from->sum.f64);
    } else {
        napier_sum_merge(&into->sum.f32, &from->sum.f32);
    }
}

/* `from` starts where `into` ends. Its head completes the open tile, its closed
 * tiles are merged, and its tail is appended. */
static void merge_after(const napier_softmax_kernels *k, napier_softmax_state *into, const napier_softmax_state *from) {
    append(k, into, block_of(from, false), from->head_size);
    merge_sums(into, from);
    into->count += from->count - from->head_size - from->tail_size;
    into->end = from->end - from->tail_size;
    append(k, into, block_of(from, true), from->tail_size);
}

/* Both consist of whole tiles, so they merge in any order. */
static void merge_aligned(napier_softmax_state *into, const napier_softmax_state *from) {
    merge_sums(into, from);
    into->count += from->count;
    into->first = napier_least(from->first, into->first);
    into->end = from->end > into->end ? from->end : into->end;
}

/* ---- Life ---------------------------------------------------------------------------------------------------------- */

/* Creates a state without elements. */
static napier_status create(napier_context *context, napier_dtype compute, bool weighted, int64_t first_index,
                            const napier_softmax_options *options, napier_softmax_state **out) {
    if (out) {
        *out = NULL;
    }
    napier_softmax_options o;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: is NULL");
    NAPIER_REFUSE_IF(context, compute != NAPIER_F32 && compute != NAPIER_F64,
                     "compute: dtype %d (%s) is not f32 or f64", (int)compute, napier_dtype_name(compute));
    NAPIER_REFUSE_IF(context, first_index < 0 || first_index > INT64_MAX - NAPIER_SUM_MOST,
                     "first_index: %lld is out of range", (long long)first_index);
    NAPIER_TRY(napier_softmax_options_read(context, options, compute, &o));
    const size_t bytes = napier_state_bytes(compute, weighted);
    napier_softmax_state *s = napier_alloc(&context->allocator, 1, bytes);
    if (!s) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "state: no memory for %zu bytes", bytes);
    }
    memset(s, 0, bytes);
    s->allocator = context->allocator;
    s->compute = compute;
    s->weighted = weighted;
    s->temperature = o.temperature;
    s->masked_rows = o.masked_rows;
    s->first = s->end = first_index;
    if (weighted) {
        napier_weighted_sum_init(napier_state_weighted_sum(s), compute == NAPIER_F64);
    } else if (compute == NAPIER_F64) {
        napier_f64_sum_init(&s->sum.f64);
    } else {
        napier_sum_init(&s->sum.f32);
    }
    *out = s;
    return NAPIER_OK;
}

napier_status napier_softmax_state_create(napier_context *context, napier_dtype compute, int64_t first_index,
                                          const napier_softmax_options *options, napier_softmax_state **out) {
    return create(context, compute, false, first_index, options, out);
}

napier_status napier_softmax_state_create_weighted(napier_context *context, napier_dtype compute, int64_t first_index,
                                                   const napier_softmax_options *options, napier_softmax_state **out) {
    return create(context, compute, true, first_index, options, out);
}

void napier_softmax_state_destroy(napier_softmax_state *state) {
    if (state) {
        const napier_allocator allocator = state->allocator;
        napier_free(&allocator, state);
    }
}

int64_t napier_softmax_state_first_index(const napier_softmax_state *state) { return state ? state->first : 0; }
int64_t napier_softmax_state_count(const napier_softmax_state *state) { return state ? state->count : 0; }

static napier_status begin_on(napier_context *context, const char *name, const napier_softmax_state *state) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !state, "%s: is NULL", name);
    return NAPIER_OK;
}

/* ---- Update -------------------------------------------------------------------------------------------------------- */

/* n <= 1024 elements of a vector from index i on, divided by the temperature, in the compute type. */
static void load_block(const napier_softmax_kernels *k, napier_dtype compute, napier_const_vector v, int64_t i, int n,
                       double temperature, void *z) {
    if (compute == NAPIER_F64) {
        double *d = z;
        for (int j = 0; j < n; j++) {
            const double x = napier_f64_load(v.data, v.dtype, (i + j) * v.stride);
            d[j] = temperature != 1.0 ? x / temperature : x;
        }
    } else {
        const char *at = (const char *)v.data + i * v.stride * (int64_t)napier_dtype_size(v.dtype);
        k->pack(at, v.dtype, v.stride, n, napier_float_of(temperature), z);
    }
}

static napier_status check_block(napier_context *context, const char *name, const napier_softmax_state *state,
                                 napier_const_vector v) {
    NAPIER_TRY(napier_check_vector(context, name, v));
    NAPIER_REFUSE_IF(context, v.dtype == NAPIER_F64 && state->compute != NAPIER_F64,
                     "%s: dtype f64 does not go into an f32 state", name);
    NAPIER_REFUSE_IF(context, v.size >= napier_state_most(state) - state->count,
                     "%s: size %lld makes the part 2^%d elements or more", name, (long long)v.size,
                     state->weighted ? 38 : 40);
    return NAPIER_OK;
}

/* weights NULL: a state without weights. */
static void update(const napier_context *context, napier_softmax_state *state, napier_const_vector logits,
                   const napier_const_vector *weights) {
    const napier_softmax_kernels *k = napier_ops_kernels_of(context->isa)->softmax;
    NAPIER_DEFAULT_FENV;
    double z[NAPIER_TILE], b[NAPIER_TILE]; /* or floats */
    const elements block = {(const char *)z, weights ? (const char *)b : NULL};
    state->finished = false;
    for (int64_t i = 0; i < logits.size;) {
        /* blocks end at the row's boundaries of tiles, so that whole tiles are summed in place */
        const int64_t to_boundary = NAPIER_TILE - state->end % NAPIER_TILE;
        const int n = (int)napier_least(logits.size - i, to_boundary);
        load_block(k, state->compute, logits, i, n, state->temperature, z);
        if (weights) {
            load_block(k, state->compute, *weights, i, n, 1.0, b);
        }
        append(k, state, block, n);
        i += n;
    }
}

napier_status napier_softmax_state_update(napier_context *context, napier_softmax_state *state,
                                          napier_const_vector logits) {
    NAPIER_TRY(begin_on(context, "state", state));
    NAPIER_REFUSE_IF(context, state->weighted, "state: is weighted, so an update needs weights");
    NAPIER_TRY(check_block(context, "logits", state, logits));
    update(context, state, logits, NULL);
    return NAPIER_OK;
}

napier_status napier_softmax_state_update_weighted(napier_context *context, napier_softmax_state *state,
                                                   napier_const_vector logits, napier_const_vector weights) {
    NAPIER_TRY(begin_on(context, "state", state));
    NAPIER_REFUSE_IF(context, !state->weighted, "state: is not weighted, so an update takes no weights");
    NAPIER_TRY(check_block(context, "logits", state, logits));
    NAPIER_TRY(check_block(context, "weights", state, weights));
    NAPIER_REFUSE_IF(context, weights.size != logits.size, "weights: size %lld is not that of logits, %lld",
                     (long long)weights.size, (long long)logits.size);
    update(context, state, logits, &weights);
    return NAPIER_OK;
}

/* ---- Merge --------------------------------------------------------------------------------------------------------- */

static napier_status check_same_kind(napier_context *context, const napier_softmax_state *a,
                                     const napier_softmax_state *b) {
    if (a->compute != b->compute) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "from: compute dtype %s is not that of into, %s",
                           napier_dtype_name(b->compute), napier_dtype_name(a->compute));
    }
    if (a->temperature != b->temperature) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "from: temperature %g is not that of into, %g",
                           b->temperature, a->temperature);
    }
    if (a->masked_rows != b->masked_rows) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "from: masked_rows %d is not that of into, %d",
                           (int)b->masked_rows, (int)a->masked_rows);
    }
    if (a->weighted != b->weighted) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "from: is %sweighted, into is %s", b->weighted ? "" : "not ",
                           a->weighted ? "weighted" : "not");
    }
    if (b->count >= napier_state_most(a) - a->count) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "from: with it the part has 2^%d elements or more",
                           a->weighted ? 38 : 40);
    }
    return NAPIER_OK;
}

/* into becomes `from` followed by `into`. The only merge that needs memory. */
static napier_status merge_before(napier_context *context, const napier_softmax_kernels *k, napier_softmax_state *into,
                                  const napier_softmax_state *from) {
    const size_t bytes = napier_state_bytes(into->compute, into->weighted);
    napier_softmax_state *joined = napier_alloc(&context->allocator, 1, bytes);
    if (!joined) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "merge: no memory for %zu bytes", bytes);
    }
    const napier_allocator own = into->allocator;
    memcpy(joined, from, bytes);
    merge_after(k, joined, into);
    memcpy(into, joined, bytes);
    into->allocator = own;
    napier_free(&context->allocator, joined);
    return NAPIER_OK;
}

napier_status napier_softmax_state_merge(napier_context *context, napier_softmax_state *into,
                                         const napier_softmax_state *from) {
    NAPIER_TRY(begin_on(context, "into", into));
    NAPIER_TRY(begin_on(context, "from", from));
    NAPIER_REFUSE_IF(context, into == from, "from: is the same state as into");
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(check_same_kind(context, into, from));
    if (from->count == 0) {
        return NAPIER_OK;
    }
    const napier_softmax_kernels *k = napier_ops_kernels_of(context->isa)->softmax;
    if (into->count == 0) {
        const napier_allocator own = into->allocator;
        memcpy(into, from, napier_state_bytes(from->compute, from->weighted));
        into->allocator = own;
    } else if (from->first == into->end) {
        merge_after(k, into, from);
    } else if (from->end == into->first) {
        NAPIER_TRY(merge_before(context, k, into, from));
    } else if (is_aligned(into) && is_aligned(from)) {
        merge_aligned(into, from);
    } else {
        return napier_fail(context, NAPIER_STATE_MISMATCH,
                           "from: elements %lld to %lld neither adjoin %lld to %lld nor do both end at multiples of %d",
                           (long long)from->first, (long long)from->end, (long long)into->first, (long long)into->end,
                           NAPIER_TILE);
    }
    into->finished = false;
    return NAPIER_OK;
}

/* ---- Finish and apply ---------------------------------------------------------------------------------------------- */

/* The open tiles are added only for this result. */
static void add_open_tiles(const napier_softmax_kernels *k, napier_softmax_state *state) {
    if (state->head_size > 0) {
        add_tile(k, state, block_of(state, false), state->head_size);
    }
    if (state->tail_size > 0) {
        add_tile(k, state, block_of(state, true), state->tail_size);
    }
}

static napier_weighted_result finish_weighted(const napier_softmax_kernels *k, napier_softmax_state *state) {
    napier_weighted_sum *const sum = napier_state_weighted_sum(state);
    const napier_weighted_sum open = *sum;
    add_open_tiles(k, state);
    const napier_weighted_result result = napier_weighted_sum_finish(sum);
    *sum = open;
    return result;
}

static double finish_plain(const napier_softmax_kernels *k, napier_softmax_state *state) {
    const napier_any_sum open = state->sum;
    add_open_tiles(k, state);
    if (state->compute == NAPIER_F64) {
        napier_f64_finish(&state->sum.f64, &state->final.f64);
    } else {
        state->final.f32 = napier_sum_finish(&state->sum.f32);
    }
    state->sum = open;
    state->finished = true;
    return state->compute == NAPIER_F64 ? state->final.f64.lse : (double)state->final.f32.lse;
}

static double sign_of(double lse) { return lse != lse ? lse : lse > -HUGE_VAL ? 1 : 0; }

napier_status napier_softmax_state_finish_weighted(napier_context *context, napier_softmax_state *state, double *lse,
                                                   double *sign) {
    NAPIER_TRY(begin_on(context, "state", state));
    const napier_softmax_kernels *k = napier_ops_kernels_of(context->isa)->softmax;
    NAPIER_DEFAULT_FENV;
    napier_weighted_result r;
    if (state->weighted) {
        r = finish_weighted(k, state);
    } else {
        r.lse = finish_plain(k, state);
        r.sign = sign_of(r.lse);
    }
    if (sign) {
        *sign = r.sign;
    }
    if (lse) {
        *lse = !sign && r.sign < 0 ? napier_f64_nan() : r.lse;
    }
    return NAPIER_OK;
}

napier_status napier_softmax_state_finish(napier_context *context, napier_softmax_state *state, double *lse) {
    return napier_softmax_state_finish_weighted(context, state, lse, NULL);
}

/* One block of at most 1024 elements. */
static void apply_block(const napier_softmax_kernels *k, const napier_softmax_state *s, napier_softmax_kind kind,
                        napier_const_vector logits, napier_vector result, int64_t i, int n, float *scratch) {
    double z[NAPIER_TILE];
    load_block(k, s->compute, logits, i, n, s->temperature, z);
    if (s->compute == NAPIER_F64) {
        k->f64_apply(&s->final.f64, kind, s->masked_rows, z, NULL, z, n);
        for (int j = 0; j < n; j++) {
            napier_f64_store(result.data, result.dtype, (i + j) * result.stride, z[j]);
        }
        return;
    }
    char *at = (char *)result.data + i * result.stride * (int64_t)napier_dtype_size(result.dtype);
    const napier_softmax_op op = kind == NAPIER_KIND_SOFTMAX ? NAPIER_OP_SOFTMAX : NAPIER_OP_LOG_SOFTMAX;
    k->write(op, &s->final.f32, s->masked_rows, (const float *)(const void *)z, n, at, result.dtype, result.stride,
             scratch);
}

napier_status napier_softmax_state_apply(napier_context *context, const napier_softmax_state *state,
                                         napier_softmax_kind kind, napier_const_vector logits, napier_vector result) {
    const napier_argument all[] = {
        napier_row_argument("logits", logits, NAPIER_MAY_BE_OUT, logits.size),
        napier_row_argument("result", napier_read_only_vector(result), NAPIER_IS_OUT, logits.size)};
    NAPIER_TRY(begin_on(context, "state", state));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_REFUSE_IF(context, state->weighted, "state: is weighted, and has only a logsumexp");
    NAPIER_REFUSE_IF(context, (unsigned)kind > NAPIER_KIND_LOG_SOFTMAX, "kind: %d is unknown", (int)kind);
    NAPIER_REFUSE_IF(context,
                     state->compute != NAPIER_F64 && (logits.dtype == NAPIER_F64 || result.dtype == NAPIER_F64),
                     "%s: dtype f64 needs an f64 state", logits.dtype == NAPIER_F64 ? "logits" : "result");
    if (!state->finished) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "state: is not finished");
    }
    const napier_softmax_kernels *k = napier_ops_kernels_of(context->isa)->softmax;
    NAPIER_DEFAULT_FENV;
    NAPIER_MEMORY(memory, context);
    float *const scratch = napier_take(&memory, NAPIER_ROWS_SCRATCH, sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory"));
    for (int64_t i = 0; i < logits.size; i += NAPIER_TILE) {
        apply_block(k, state, kind, logits, result, i, (int)napier_least(logits.size - i, NAPIER_TILE), scratch);
    }
    return NAPIER_OK;
}
