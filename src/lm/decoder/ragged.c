/* lm/decoder/ragged.c - makes a ragged batch (layers.h). */
#include "lm/decoder/layers.h"

#include "ops/tokens/responses.h"

/* Each number counts objects in memory, so the sums do not overflow. */
static int64_t integers(napier_ragged_size s) { return 2 * s.tokens + 6 * s.sequences + 2; }

int64_t napier_ragged_bytes(napier_ragged_size s) {
    return integers(s) * (int64_t)sizeof(int64_t) + s.copies * (int64_t)sizeof(napier_row_copy);
}

napier_status napier_ragged_allocate(napier_memory *memory, napier_ragged_size s, napier_ragged *batch) {
    int64_t *at = napier_take(memory, napier_ragged_bytes(s), 1);
    NAPIER_TRY(napier_taken(memory, "batch: no memory for %lld bytes", (long long)napier_ragged_bytes(s)));
    *batch = (napier_ragged){.ids = at};
    batch->positions = at += s.tokens;
    batch->offsets = at += s.tokens;
    batch->wanted_offsets = at += s.sequences + 1;
    batch->prefix_begin = at += s.sequences + 1;
    batch->prefix_end = at += s.sequences;
    batch->own_begin = at += s.sequences;
    batch->own_end = at += s.sequences;
    batch->copy = (napier_row_copy *)(void *)(at + s.sequences);
    napier_ragged_clear(batch);
    return NAPIER_OK;
}

void napier_ragged_clear(napier_ragged *b) {
    b->tokens = b->sequences = b->copies = 0;
    b->offsets[0] = b->wanted_offsets[0] = 0;
}

napier_key_rows napier_ragged_add(napier_ragged *b, napier_indices ids, int64_t begin, int64_t end, int64_t position,
                                  napier_key_rows prefix, int64_t wanted) {
    const napier_key_rows rows = {b->tokens, b->tokens + (end - begin)};
    const int64_t s = b->sequences++;
    for (int64_t i = begin; i < end; i++) {
        b->ids[b->tokens] = napier_index_at(ids, i);
        b->positions[b->tokens++] = position + (i - begin);
    }
    b->prefix_begin[s] = prefix.begin;
    b->prefix_end[s] = prefix.end;
    b->offsets[s + 1] = b->tokens;
    b->wanted_offsets[s + 1] = b->wanted_offsets[s] + wanted;
    napier_ragged_set_own(b, rows);
    return rows;
}

void napier_ragged_set_own(napier_ragged *b, napier_key_rows own) {
    b->own_begin[b->sequences - 1] = own.begin;
    b->own_end[b->sequences - 1] = own.end;
}

void napier_ragged_add_copy(napier_ragged *b, napier_row_copy copy) { b->copy[b->copies++] = copy; }
