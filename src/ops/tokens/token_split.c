/* ops/tokens/token_split.c - see token_split.h. */
#include "core/base/stop.h"
#include "ops/tokens/token_split.h"

#include "ops/isa/ops_kernels.h"
#include "ops/softmax/softmax_split.h"

napier_token_split napier_token_split_of(const napier_context *context, const napier_token_call *call,
                                         napier_const_matrix logits) {
    napier_token_split s = {.call = call, .kernels = napier_ops_kernels_of(context->isa)->tokens};
    s.job = (napier_token_job){logits, call->rules, call->wants};
    s.tiles = napier_token_tiles(call->cols);
    s.slot_floats = napier_token_slot_floats(s.tiles > 0 ? s.tiles : 1);
    s.group = s.tiles == 1 ? napier_token_group_rows(call->cols) : 1;
    s.by_rows = s.tiles <= 1 || call->rows >= context->threads;
    s.chunk = s.by_rows ? napier_row_chunk(context, call->rows, call->cols, s.group)
                        : napier_row_chunk(context, s.tiles, NAPIER_TILE, 1);
    s.workers = napier_workers(context, s.by_rows ? call->rows : s.tiles, s.chunk);
    return s;
}

/* Of a worker's terms: whole cache lines. */
static int64_t term_floats(const napier_token_split *s) {
    return s->tiles * NAPIER_TILE + napier_round_up(s->tiles, 16);
}

void napier_token_split_keep_terms(napier_token_split *s) {
    enum { BYTES = 1 << 20 };
    const int64_t each = (int64_t)(sizeof(float) + napier_dtype_size(s->job.x.dtype));
    const napier_token_rules *rules = &s->job.rules;
    const bool untouched = rules->softcap == 0.0f && rules->temperature == 1.0f && !rules->keep;
    s->keeps_terms = s->by_rows && s->tiles > 1 && s->tiles * NAPIER_TILE <= BYTES / each && untouched &&
                     s->job.x.col_stride == 1 && s->job.x.dtype != NAPIER_F16;
}

napier_status napier_token_split_take(napier_memory *memory, napier_token_split *s) {
    s->desks = napier_token_desks(memory, s->call, s->workers, s->group);
    s->scratch = napier_take(memory, s->workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    s->slots = napier_take(memory, s->workers, (size_t)s->slot_floats * sizeof(float));
    s->terms = s->keeps_terms ? napier_take(memory, s->workers, (size_t)term_floats(s) * sizeof(float)) : NULL;
    return napier_taken(memory, "scratch: no memory for %d workers", s->workers);
}

napier_token_slots napier_token_row_slots(const napier_token_split *s, int worker) {
    napier_token_slots slots = napier_token_slots_of(s->slots + worker * s->slot_floats, s->tiles);
    if (s->terms) {
        slots.terms = s->terms + worker * term_floats(s);
        slots.least = slots.terms + s->tiles * NAPIER_TILE;
    }
    return slots;
}

void napier_token_sum_short(const napier_token_split *s, int worker, int64_t row, int rows,
                            napier_token_final *finals) {
    napier_token_seen *seen = s->desks[worker];
    for (int r = 0; r < rows; r++) {
        napier_token_start(s->call, s->kernels, s->job.x, row + r, &seen[r]);
    }
    s->kernels->token_rows(&s->job, row, rows, seen, finals, napier_token_scratch_of(s, worker));
}

napier_token_final napier_token_sum_long(const napier_token_split *s, int worker, int64_t row) {
    napier_token_seen *seen = s->desks[worker];
    const napier_token_slots slots = napier_token_row_slots(s, worker);
    napier_token_start(s->call, s->kernels, s->job.x, row, seen);
    s->kernels->token_range(&s->job, row, 0, s->call->cols, &slots, seen, napier_token_scratch_of(s, worker));
    return s->kernels->token_finish(&s->call->wants, &slots, s->tiles);
}

static void sum_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_split *s = argument;
    const napier_token_slots slots = napier_token_slots_of(s->slots, s->tiles);
    const int64_t cols = s->call->cols, last = end * NAPIER_TILE < cols ? end * NAPIER_TILE : cols;
    s->kernels->token_range(&s->job, s->row, begin * NAPIER_TILE, last, &slots, s->desks[worker],
                            napier_token_scratch_of(s, worker));
}

napier_token_final napier_token_sum_together(const napier_context *context, napier_token_split *s) {
    const napier_token_slots slots = napier_token_slots_of(s->slots, s->tiles);
    for (int w = 0; w < s->workers; w++) {
        napier_token_start(s->call, s->kernels, s->job.x, s->row, s->desks[w]);
    }
    napier_parallel(context, s->tiles, s->chunk, sum_tiles, s);
    if (!napier_goes_on(context)) { /* slots may be unwritten */
        return (napier_token_final){0};
    }
    for (int w = 1; w < s->workers; w++) {
        napier_token_seen_merge(s->desks[0], s->desks[w], &s->call->wants);
    }
    return s->kernels->token_finish(&s->call->wants, &slots, s->tiles);
}
