/* ops/tokens/token_split.c - see token_split.h. */
#include "ops/tokens/token_split.h"

#include "ops/isa/ops_kernels.h"
#include "ops/softmax/softmax_split.h"

napier_token_split napier_token_split_of(const napier_context *context, const napier_token_call *call,
                                         napier_const_matrix logits) {
    napier_token_split s = {.call = call, .kernels = &napier_ops_kernels_of(context->isa)->tokens};
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

napier_status napier_token_split_take(napier_memory *memory, napier_token_split *s) {
    s->desks = napier_token_desks(memory, s->call, s->workers, s->group);
    s->scratch = napier_take(memory, s->workers, NAPIER_TOKEN_SCRATCH * sizeof(float));
    s->slots = napier_take(memory, s->workers, (size_t)s->slot_floats * sizeof(float));
    return napier_taken(memory, "scratch: no memory for %d workers", s->workers);
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
    const napier_token_slots slots = napier_token_slots_of(s->slots + worker * s->slot_floats, s->tiles);
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
    for (int w = 1; w < s->workers; w++) {
        napier_token_seen_merge(s->desks[0], s->desks[w], &s->call->wants);
    }
    return s->kernels->token_finish(&s->call->wants, &slots, s->tiles);
}
