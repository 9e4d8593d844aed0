/* ops/attention/attention_keys.c - decides which keys are packed together, and packs them. */
#include "ops/attention/attention_keys.h"

#include <string.h>

#include "ops/attention/attention_engine.h"

/* ---- What belongs to a chunk ------------------------------------------------------------------------------------- */

static int64_t whole_prefix_panels(const napier_sequence *s) { return s->queries > 0 ? s->prefix / NAPIER_LANES : 0; }
static int64_t own_panels(const napier_sequence *s) {
    const int64_t left = s->keys - whole_prefix_panels(s) * NAPIER_LANES;
    return s->queries > 0 ? napier_round_up(left, NAPIER_LANES) / NAPIER_LANES : 0;
}

/* Prefixes that begin at the same row share panels, whatever their lengths. */
static bool shares_prefix(const napier_sequence *a, const napier_sequence *b) {
    return whole_prefix_panels(a) > 0 && whole_prefix_panels(b) > 0 && a->prefix_begin == b->prefix_begin;
}

/* The number of sequences from `first` on that form a chunk with `heads` heads, and the number of their panels. */
static int64_t chunk_length(const napier_attention_plan *plan, int64_t floats, int64_t heads, int64_t first,
                            int64_t *panel_count) {
    const int64_t each = napier_panel_floats_of(plan) * heads;
    int64_t panels = 0, longest = 0, n = 0;
    napier_sequence before = {0, 0, 0, 0, 0, 0};
    for (; first + n < plan->sequences; n++) {
        const napier_sequence s = napier_sequence_of(plan, first + n);
        const int64_t prefix = whole_prefix_panels(&s), known = shares_prefix(&before, &s) ? longest : 0;
        const int64_t longer = prefix > known ? prefix : known;
        const int64_t more = panels + longer - known + own_panels(&s);
        if (n > 0 && more > (shares_prefix(&before, &s) ? NAPIER_CHUNK_FLOATS : floats) / each) {
            break;
        }
        panels = more, longest = longer, before = s;
    }
    *panel_count = panels;
    return n;
}

static int64_t heads_together(const napier_attention_plan *plan, int64_t floats, int64_t heads, int64_t panel_count) {
    const int64_t one = panel_count * napier_panel_floats_of(plan), most = one > 0 ? floats / one : heads;
    return most < 1 ? 1 : napier_least(most, heads);
}

napier_key_chunks napier_key_chunks_of(const napier_attention_plan *plan, int64_t floats, int64_t heads_most) {
    napier_key_chunks c = {0, 1, 1, 1};
    for (int64_t i = 0, n, panels; i < plan->sequences; i += n, c.count++) {
        n = chunk_length(plan, floats, heads_most, i, &panels);
        const int64_t all = panels * heads_together(plan, floats, heads_most, panels);
        c.sequences = n > c.sequences ? n : c.sequences;
        c.panels = panels > c.panels ? panels : c.panels;
        c.all = all > c.all ? all : c.all;
    }
    return c;
}

void napier_key_chunk_starts(const napier_attention_plan *plan, int64_t floats, int64_t heads_most, int64_t *starts) {
    int64_t i = 0, panels;
    for (; i < plan->sequences; i += chunk_length(plan, floats, heads_most, i, &panels)) {
        *starts++ = i;
    }
    *starts = i;
}

static napier_key_segment add_segment(napier_key_chunk *chunk, int64_t sequence, int64_t place, int64_t panels) {
    const napier_key_segment segment = {chunk->panel_count, panels};
    for (int64_t i = 0; i < panels; i++) {
        chunk->panels[chunk->panel_count++] = (napier_key_panel){sequence, place + i * NAPIER_LANES, segment};
    }
    return segment;
}

/* Segments of the sequences of the chunk. A shared one is packed from the sequence with the longest prefix. */
static void lay_out(napier_key_chunk *chunk) {
    const napier_attention_plan *const plan = chunk->plan;
    const int64_t end = chunk->sequence + chunk->sequences;
    chunk->panel_count = 0;
    for (int64_t i = chunk->sequence; i < end;) {
        const napier_sequence first = napier_sequence_of(plan, i);
        int64_t run = i + 1, longest = i, panels = whole_prefix_panels(&first);
        for (; run < end; run++) {
            const napier_sequence s = napier_sequence_of(plan, run);
            if (!shares_prefix(&first, &s)) {
                break;
            }
            if (whole_prefix_panels(&s) > panels) {
                longest = run, panels = whole_prefix_panels(&s);
            }
        }
        const napier_key_segment shared = add_segment(chunk, longest, 0, panels);
        for (; i < run; i++) {
            const napier_sequence s = napier_sequence_of(plan, i);
            napier_packed_sequence *const p = &chunk->packed[i - chunk->sequence];
            p->shared = shared;
            p->shared_panels = whole_prefix_panels(&s);
            p->own = add_segment(chunk, i, p->shared_panels * NAPIER_LANES, own_panels(&s));
        }
    }
}

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

static float *values_of(const napier_key_chunk *chunk, int64_t head, const napier_key_segment *segment) {
    return chunk->values + (head * chunk->panel_count + segment->first) * napier_panel_values(chunk->plan);
}

enum { BLOCK_PANELS = NAPIER_KEY_BLOCK / NAPIER_LANES };

/* Where a panel's keys are, and its values: the first row, and the distance of panels of columns. */
typedef struct panel_room {
    float *keys, *values;
    int64_t value_step;
} panel_room;

static panel_room room_of(const napier_key_chunk *chunk, int64_t head, int64_t panel_index) {
    const napier_attention_plan *const plan = chunk->plan;
    const napier_key_panel *const panel = &chunk->panels[panel_index];
    const int64_t keys = napier_panel_keys(plan), square = napier_panel_square(plan);
    const int64_t rows =
        napier_plan_engine(plan) ? square / 2 : square; /* of a panel, in the first columns that are together */
    if (chunk->once) {
        const int64_t i = panel->place / NAPIER_LANES % BLOCK_PANELS;
        return (panel_room){chunk->keys + i * keys, chunk->values + i * rows, BLOCK_PANELS * square};
    }
    const int64_t within = panel_index - panel->segment.first;
    return (panel_room){chunk->keys + (head * chunk->panel_count + panel_index) * keys,
                        values_of(chunk, head, &panel->segment) + within * rows, panel->segment.panels * square};
}

/* Whether some row that uses a panel may not attend to all its keys. A shared panel has rows of many sequences. */
static bool may_be_hidden(const napier_key_chunk *chunk, const napier_key_panel *panel, const napier_sequence *s,
                          int64_t n) {
    const bool shared = panel->place < whole_prefix_panels(s) * NAPIER_LANES;
    return chunk->plan->options.mask ||
           (chunk->plan->options.causal && (shared || panel->place + n > napier_keys_seen(chunk->plan, s, 0)));
}

/* Returns whether the values have an inf or a NaN, if `look`. */
static bool pack_values(const napier_key_chunk *chunk, const napier_sequence *s, int64_t head, int64_t place, int64_t n,
                        bool look, float *out, int64_t step) {
    const napier_attention_plan *const plan = chunk->plan;
    bool special = false;
    for (int64_t col = 0; col < plan->v.dim; col += NAPIER_LANES, out += step) {
        const int64_t cols = napier_least(plan->v.dim - col, NAPIER_LANES);
        napier_pack_places(plan, s, &plan->v, head, place, n, col, cols, out, NAPIER_LANES, NAPIER_LANES);
        if (napier_plan_narrow(plan)) {
            memset(out + n * NAPIER_LANES, 0, (size_t)((NAPIER_LANES - n) * NAPIER_LANES) * sizeof *out);
        }
        special = special || (look && plan->kernels->any_special(out, n * NAPIER_LANES));
    }
    return special;
}

/* Prefetches the rows of a panel, so that the load from memory overlaps with other work. */
static void fetch_rows(const napier_const_heads *x, const napier_sequence *s, int64_t head, int64_t place, int64_t n) {
    const int64_t size = x->dtype == NAPIER_F32 ? 4 : 2;
    for (int64_t i = 0; i < n && x->dim_stride == 1; i++) {
        const int64_t at = napier_key_row(s, place + i) * x->token_stride + head * x->head_stride;
        for (int64_t byte = 0; byte < x->dim * size; byte += 64) {
            __builtin_prefetch((const char *)x->data + at * size + byte);
        }
    }
}

static int64_t turned_floats(const napier_attention_plan *plan) {
    const int64_t dim = napier_plan_engine(plan) && plan->v.dim > plan->k.dim ? plan->v.dim : plan->k.dim;
    return NAPIER_LANES * napier_round_up(dim, napier_plan_engine(plan) ? NAPIER_PAIRS_BLOCK : 16);
}

static void pack_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_key_chunk *const chunk = argument;
    const napier_attention_plan *const plan = chunk->plan;
    float *const turned = chunk->turned + worker * turned_floats(plan);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / chunk->panel_count, index = i % chunk->panel_count;
        const napier_key_panel *const panel = &chunk->panels[index];
        const napier_sequence s = napier_sequence_of(plan, panel->sequence);
        const int64_t n = napier_least(s.keys - panel->place, NAPIER_LANES);
        const panel_room room = room_of(chunk, head, index);
        const bool look = may_be_hidden(chunk, panel, &s, n);
        fetch_rows(&plan->v, &s, chunk->head + head, panel->place, n);
        if (napier_plan_engine(plan)) {
            const napier_engine_panel keys = {&plan->k, &s, chunk->head + head, panel->place, n, turned};
            const napier_engine_panel values = {&plan->v, &s, chunk->head + head, panel->place, n, turned};
            napier_engine_pack_keys(plan, &keys, room.keys);
            chunk->special[i] = napier_engine_pack_values(plan, &values, look, room.values, room.value_step / 2);
            continue;
        }
        napier_pack_panel(plan, &s, &plan->k, chunk->head + head, panel->place, n, turned, room.keys);
        chunk->special[i] =
            pack_values(chunk, &s, chunk->head + head, panel->place, n, look, room.values, room.value_step);
    }
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

enum { NAPIER_NOT_PACKED = 2 };    /* in `special`: the panel will be packed when it is first needed */
enum { NAPIER_PACK_TOGETHER = 8 }; /* panels that a worker packs at a time */

/* Keys and values are in one block. If the largest block is at least half of all, glibc gives none of it back to the
 * system, and the next call finds its pages present. */
napier_key_chunk *napier_key_chunks_take(napier_memory *memory, const napier_attention_plan *plan, int64_t floats,
                                         int64_t heads_most, int chunks, int workers) {
    enum { LINE = 64 }; /* the chunks' workers write to cache lines of their own */
    const napier_key_chunks most = napier_key_chunks_of(plan, floats, heads_most);
    const int64_t sequences = napier_round_up(most.sequences, LINE), panels = napier_round_up(most.panels, LINE);
    const int64_t all = napier_round_up(most.all, LINE), keys = most.all * napier_panel_keys(plan);
    const int64_t values = most.all * napier_panel_values(plan);
    const int64_t turned = workers * turned_floats(plan);
    float *const packed = napier_take(memory, chunks, (size_t)(keys + values + turned) * sizeof(float));
    const napier_key_chunk of_all = {.plan = plan,
                                     .floats = floats,
                                     .heads_most = heads_most,
                                     .packed = napier_take(memory, chunks, (size_t)sequences * sizeof *of_all.packed),
                                     .panels = napier_take(memory, chunks, (size_t)panels * sizeof *of_all.panels),
                                     .special = napier_take(memory, chunks, (size_t)all)};
    napier_key_chunk *const made = napier_take(memory, chunks, sizeof *made);
    for (int i = 0; !memory->missing && i < chunks; i++) {
        made[i] = of_all;
        made[i].packed += i * sequences;
        made[i].panels += i * panels;
        made[i].special += i * all;
        made[i].keys = packed + i * (keys + values + turned);
        made[i].values = made[i].keys + keys;
        made[i].turned = made[i].values + values;
    }
    return made;
}

bool napier_key_chunk_next(napier_key_chunk *chunk) {
    const napier_attention_plan *const plan = chunk->plan;
    chunk->head += chunk->heads;
    if (chunk->heads == 0 || chunk->head == plan->k.heads) {
        int64_t count;
        chunk->sequence += chunk->sequences;
        chunk->head = 0;
        if (chunk->sequence == plan->sequences) {
            return false;
        }
        chunk->sequences = chunk_length(plan, chunk->floats, chunk->heads_most, chunk->sequence, &count);
        lay_out(chunk);
    }
    const int64_t together = heads_together(plan, chunk->floats, chunk->heads_most, chunk->panel_count);
    const int64_t left = plan->k.heads - chunk->head;
    chunk->heads = napier_least(together, left);
    napier_parallel(plan->context, chunk->heads * chunk->panel_count, NAPIER_PACK_TOGETHER, pack_task, chunk);
    return true;
}

void napier_key_chunk_load(napier_key_chunk *chunk, int64_t first, int64_t end, int64_t head) {
    chunk->sequence = first;
    chunk->sequences = end - first;
    chunk->head = head;
    chunk->heads = 1;
    chunk->once = false;
    lay_out(chunk);
    memset(chunk->special, NAPIER_NOT_PACKED, (size_t)chunk->panel_count);
}

void napier_key_chunk_use_once(napier_key_chunk *chunk) { chunk->once = chunk->panel_count > BLOCK_PANELS; }

napier_key_run napier_key_run_of(napier_key_chunk *chunk, const napier_packed_sequence *s, int64_t head, int64_t place,
                                 int64_t count) {
    const int64_t shared = s->shared_panels * NAPIER_LANES;
    const bool own = place >= shared;
    const napier_key_segment *const segment = own ? &s->own : &s->shared;
    const int64_t within = own ? place - shared : place, left = own ? count : shared - place;
    const int64_t index = segment->first + within / NAPIER_LANES, panel = head * chunk->panel_count + index;
    const int64_t keys = napier_least(left, count);
    for (int64_t i = panel; i < panel + napier_round_up(keys, NAPIER_LANES) / NAPIER_LANES; i++) {
        if (chunk->special[i] == NAPIER_NOT_PACKED) {
            pack_task(chunk, 0, i, i + 1);
        }
    }
    const panel_room room = room_of(chunk, head, index);
    return (napier_key_run){
        .keys = room.keys,
        .values = room.values,
        .value_step = room.value_step,
        .count = keys,
        .special = chunk->special + panel,
    };
}
