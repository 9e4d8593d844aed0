/* lm/generate/generate_schedule.c - see generate_parts.h. */
#include "lm/generate/generate_parts.h"

#include <string.h>

#include "core/base/view.h"

enum { COMMON_LEAST = 16 }; /* tokens; to copy a shorter beginning does not pay */

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

int64_t napier_schedule_bytes(int64_t most) {
    const int64_t each =
        sizeof(napier_live_prompt) + sizeof(napier_live_sequence) + 2 * sizeof(napier_key_rows) + 2 * sizeof(int64_t);
    return most * each;
}

napier_status napier_schedule_allocate(napier_memory *memory, napier_schedule *s) {
    s->live = napier_take(memory, s->most, sizeof *s->live);
    s->running = napier_take(memory, s->most, sizeof *s->running);
    s->used = napier_take(memory, 2 * s->most, sizeof *s->used);
    s->wanted = napier_take(memory, 2 * s->most, sizeof *s->wanted);
    return napier_taken(memory, "generate: no memory for %lld sequences", (long long)s->most);
}

/* ---- Rows of the store ------------------------------------------------------------------------------------------- */

/* Takes the first `count` consecutive free rows; -1 if there are none. No rows are always at 0. */
static int64_t take_rows(napier_schedule *s, int64_t count) {
    int64_t begin = 0, i = 0;
    if (count == 0) {
        return 0;
    }
    while (i < s->used_count && s->used[i].begin - begin < count) {
        begin = s->used[i++].end;
    }
    if (s->store.rows - begin < count) {
        return -1;
    }
    memmove(s->used + i + 1, s->used + i, (size_t)(s->used_count - i) * sizeof *s->used);
    s->used[i] = (napier_key_rows){begin, begin + count};
    s->used_count++;
    return begin;
}

static void give_rows(napier_schedule *s, int64_t begin) {
    for (int64_t i = 0; i < s->used_count; i++) {
        if (s->used[i].begin == begin) {
            s->used_count--;
            memmove(s->used + i, s->used + i + 1, (size_t)(s->used_count - i) * sizeof *s->used);
            return;
        }
    }
}

/* ---- Sequences that begin ---------------------------------------------------------------------------------------- */

static int64_t begin_of(const napier_schedule *s, int64_t prompt) { return napier_index_at(s->prompt_offsets, prompt); }

/* Starts sequences of a prompt that has been run, while there is room. */
static void start_sequences(napier_schedule *s, int64_t index) {
    napier_live_prompt *const p = &s->live[index];
    for (; p->next < s->samples && s->running_count < s->most; p->next++) {
        const int64_t sequence = p->prompt * s->samples + p->next;
        if (s->ended[sequence]) {
            continue; /* its first token was its last */
        }
        const int64_t own = p->own_taken ? take_rows(s, napier_own_rows(s->max_tokens)) : p->rows.begin + p->size;
        if (own < 0) {
            return;
        }
        p->own_taken = true;
        p->running++;
        s->running[s->running_count++] = (napier_live_sequence){sequence, index, own, s->lengths[sequence]};
    }
}

static bool is_done(const napier_live_prompt *p) { return p->done == p->size; }

/* True if a prompt that has been run still has sequences that have not begun. */
static bool start_all(napier_schedule *s) {
    bool waiting = false;
    for (int64_t i = 0; i < s->live_count; i++) {
        if (s->live[i].prompt >= 0 && is_done(&s->live[i])) {
            start_sequences(s, i);
            waiting = waiting || s->live[i].next < s->samples;
        }
    }
    return waiting;
}

/* ---- Prompts that enter ------------------------------------------------------------------------------------------ */

static int64_t common_of(const napier_schedule *s, int64_t a, int64_t b, int64_t most) {
    const int64_t at_a = begin_of(s, a), at_b = begin_of(s, b);
    int64_t i = 0;
    while (i < most && napier_index_at(s->prompt_ids, at_a + i) == napier_index_at(s->prompt_ids, at_b + i)) {
        i++;
    }
    return i;
}

/* Copies the longest beginning that is known to the prompt's rows: of a kv, or of another prompt. One token is left to
 * run, since its state gives the first sample. */
static void copy_known(const napier_schedule *s, napier_live_prompt *p, napier_ragged *batch) {
    const int64_t begin = begin_of(s, p->prompt);
    napier_row_copy best = {p->rows.begin, {0, 0}, NULL};
    for (int64_t i = 0; i < s->kv_count; i++) {
        const int64_t held = napier_kv_match(s->kvs[i], s->prompt_ids, begin, p->size - 1);
        if (held > p->done) {
            best.rows = (napier_key_rows){0, held};
            best.from = &s->kvs[i]->store;
            p->done = held;
        }
    }
    for (int64_t i = 0; i < s->live_count; i++) {
        const napier_live_prompt *other = &s->live[i];
        const int64_t most = p->size - 1 < other->done ? p->size - 1 : other->done;
        const int64_t held = other->prompt < 0 || other == p ? 0 : common_of(s, p->prompt, other->prompt, most);
        if (held > p->done && held >= COMMON_LEAST) {
            best.rows = (napier_key_rows){other->rows.begin, other->rows.begin + held};
            best.from = &s->store;
            p->done = held;
        }
    }
    if (p->done > 0) {
        napier_ragged_add_copy(batch, best);
    }
}

/* The next prompt enters; NULL if there is none or no room. */
static napier_live_prompt *enter(napier_schedule *s, napier_ragged *batch) {
    int64_t i = 0;
    while (i < s->live_count && s->live[i].prompt >= 0) {
        i++;
    }
    if (s->next_prompt == s->prompts || i == s->most) {
        return NULL;
    }
    const int64_t size = begin_of(s, s->next_prompt + 1) - begin_of(s, s->next_prompt);
    const int64_t rows = size + napier_own_rows(s->max_tokens), begin = take_rows(s, rows);
    if (begin < 0) {
        return NULL;
    }
    s->live[i] = (napier_live_prompt){.prompt = s->next_prompt++, .rows = {begin, begin + rows}, .size = size};
    s->live_count = i == s->live_count ? i + 1 : s->live_count;
    copy_known(s, &s->live[i], batch);
    return &s->live[i];
}

/* ---- A step ------------------------------------------------------------------------------------------------------ */

static void want(napier_schedule *s, const napier_ragged *batch, int64_t of) {
    s->wanted[batch->wanted_offsets[batch->sequences] - 1] = of;
}

static void add_token(napier_schedule *s, int64_t index, napier_ragged *batch) {
    const napier_live_sequence *const r = &s->running[index];
    const napier_live_prompt *const p = &s->live[r->live];
    const int64_t last = r->length - 1;
    const napier_indices id = napier_indices_i64(s->ids + r->sequence * s->max_tokens + last, 1);
    const napier_key_rows prompt = {p->rows.begin, p->rows.begin + p->size};
    const napier_key_rows token = napier_ragged_add(batch, id, 0, 1, p->size + last, prompt, 1);
    napier_ragged_set_own(batch, (napier_key_rows){r->own, r->own + r->length});
    napier_ragged_add_copy(batch, (napier_row_copy){r->own + last, token, NULL});
    want(s, batch, index);
}

/* Adds as many tokens of a prompt as the step can take. */
static void add_prompt_tokens(napier_schedule *s, napier_live_prompt *p, napier_ragged *batch) {
    const int64_t space = s->step_tokens - batch->tokens, left = p->size - p->done;
    const int64_t count = left < space ? left : space, begin = begin_of(s, p->prompt) + p->done;
    if (count == 0) {
        return;
    }
    const napier_key_rows none = {0, 0};
    const napier_key_rows added =
        napier_ragged_add(batch, s->prompt_ids, begin, begin + count, p->done, none, count == left ? 1 : 0);
    napier_ragged_set_own(batch, (napier_key_rows){p->rows.begin, p->rows.begin + p->done + count});
    napier_ragged_add_copy(batch, (napier_row_copy){p->rows.begin + p->done, added, NULL});
    p->done += count;
    if (is_done(p)) {
        want(s, batch, -1 - (p - s->live));
    }
}

bool napier_schedule_step(napier_schedule *s, napier_ragged *batch) {
    napier_ragged_clear(batch);
    const bool waiting = start_all(s);
    for (int64_t i = 0; i < s->running_count; i++) {
        add_token(s, i, batch);
    }
    for (int64_t i = 0; i < s->live_count; i++) {
        if (s->live[i].prompt >= 0 && !is_done(&s->live[i])) {
            add_prompt_tokens(s, &s->live[i], batch);
        }
    }
    while (!waiting && batch->tokens < s->step_tokens) {
        napier_live_prompt *const p = enter(s, batch);
        if (!p) {
            break;
        }
        add_prompt_tokens(s, p, batch);
    }
    return batch->tokens > 0;
}

void napier_schedule_rows(const napier_schedule *s, int64_t sequence, napier_key_rows *prompt, napier_key_rows *own) {
    int64_t i = 0, r = 0;
    while (s->live[i].prompt != sequence / s->samples) {
        i++;
    }
    while (r < s->running_count && s->running[r].sequence != sequence) {
        r++; /* none: its first token was its last */
    }
    const int64_t begin = r < s->running_count ? s->running[r].own : 0;
    *prompt = (napier_key_rows){s->live[i].rows.begin, s->live[i].rows.begin + s->live[i].size};
    *own = (napier_key_rows){begin, begin + s->lengths[sequence] - 1};
}

static void leave(napier_schedule *s, const napier_live_sequence *r) {
    napier_live_prompt *const p = &s->live[r->live];
    p->running--;
    if (r->own == p->rows.begin + p->size) {
        p->own_taken = false;
    } else {
        give_rows(s, r->own);
    }
}

void napier_schedule_finish_step(napier_schedule *s) {
    int64_t kept = 0;
    for (int64_t i = 0; i < s->running_count; i++) {
        napier_live_sequence *const r = &s->running[i];
        r->length = s->lengths[r->sequence];
        if (s->ended[r->sequence]) {
            leave(s, r);
        } else {
            s->running[kept++] = *r;
        }
    }
    s->running_count = kept;
    (void)start_all(s);
    for (int64_t i = 0; i < s->live_count; i++) {
        napier_live_prompt *const p = &s->live[i];
        if (p->prompt >= 0 && is_done(p) && p->running == 0 && p->next == s->samples) {
            give_rows(s, p->rows.begin);
            p->prompt = -1;
        }
    }
}
