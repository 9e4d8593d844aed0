/* lm/generate/generate_text.c - see generate_parts.h. */
#include <inttypes.h>
#include <string.h>

#include "lm/generate/generate_parts.h"

enum { TEXT_HIDDEN = 0x100, CHARACTER = 4 /* bytes of UTF-8, at most */ };

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

napier_status napier_texts_check(napier_context *context, const napier_generate_options *o, bool wanted) {
    const int64_t most = INT32_MAX;
    NAPIER_REFUSE_IF(context,
                     o->stop_text_count < 0 || o->stop_text_count > most || (o->stop_text_count > 0 && !o->stop_texts),
                     "options: stop_text_count is %" PRId64 "%s", o->stop_text_count,
                     o->stop_texts ? "" : ", but stop_texts is NULL");
    int64_t total = 0;
    for (int64_t i = 0; i < o->stop_text_count; i++) {
        const napier_text text = o->stop_texts[i];
        NAPIER_REFUSE_IF(context, text.size == 0 || !text.bytes, "stop_texts[%" PRId64 "] is empty", i);
        NAPIER_REFUSE_IF(context, text.size > (size_t)(most - total), "stop_texts[%" PRId64 "] has %zu bytes, too many",
                         i, text.size);
        total += (int64_t)text.size;
    }
    const char *const needs = o->stop_text_count > 0 ? "stop_texts" : o->on_text ? "on_text" : wanted ? "text" : NULL;
    NAPIER_REFUSE_IF(context, needs && !o->tokenizer, "options: tokenizer is NULL, but %s needs it", needs);
    return NAPIER_OK;
}

/* The number of bytes of stop text i that a text ends with, after one more byte. */
static int64_t next_state(const napier_generated_texts *t, int64_t i, int64_t state, unsigned char byte) {
    const int64_t start = t->starts[i], size = t->starts[i + 1] - start;
    while (state > 0 && (state == size || t->bytes[start + state] != byte)) {
        state = t->borders[start + state - 1];
    }
    return t->bytes[start + state] == byte ? state + 1 : 0;
}

static void add_stop_text(napier_generated_texts *t, int64_t i, napier_text text) {
    const int64_t start = t->starts[i], size = (int64_t)text.size;
    memcpy(t->bytes + start, text.bytes, text.size);
    t->starts[i + 1] = start + size;
    t->borders[start] = 0;
    for (int64_t k = 1; k < size; k++) {
        t->borders[start + k] = next_state(t, i, t->borders[start + k - 1], t->bytes[start + k]);
    }
}

static napier_status take(napier_memory *memory, napier_generated_texts *t, int64_t sequences, int64_t bytes) {
    const size_t each = (size_t)(t->count + 3) * sizeof *t->starts;
    const size_t held = t->on_text ? (size_t)t->held_most * sizeof *t->held : 1;
    t->starts = napier_take(memory, t->count + 1 + bytes, sizeof *t->starts);
    t->bytes = napier_take(memory, bytes, 1);
    t->sizes = napier_take(memory, sequences, each);
    t->held = napier_take(memory, sequences, held);
    NAPIER_TRY(napier_taken(memory, "generate: no memory for the texts of %" PRId64 " sequences", sequences));
    memset(t->sizes, 0, (size_t)sequences * each);
    t->borders = t->starts + t->count + 1;
    t->held_count = t->sizes + sequences;
    t->stopped = t->held_count + sequences;
    t->matched = t->stopped + sequences;
    return NAPIER_OK;
}

napier_status napier_texts_start(napier_memory *memory, napier_generated_texts *t, const napier_generate_options *o,
                                 int64_t sequences) {
    int64_t bytes = 0;
    *t = (napier_generated_texts){.context = memory->context,
                                  .tokenizer = o->tokenizer,
                                  .on_text = o->on_text,
                                  .user = o->user,
                                  .min_tokens = o->min_tokens,
                                  .count = o->stop_text_count};
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t size = (int64_t)o->stop_texts[i].size;
        t->longest = size > t->longest ? size : t->longest;
        bytes += size;
    }
    t->held_most = t->longest + CHARACTER;
    NAPIER_TRY(take(memory, t, sequences, bytes));
    t->starts[0] = 0;
    for (int64_t i = 0; i < t->count; i++) {
        add_stop_text(t, i, o->stop_texts[i]);
    }
    for (int64_t b = 0; b < sequences; b++) {
        t->stopped[b] = -1;
    }
    return NAPIER_OK;
}

void napier_texts_end(napier_generated_texts *t) {
    if (t->context) {
        napier_scratch_free(t->context, &t->units);
        napier_text_buffer_free(t->context, &t->shown);
    }
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* The bytes of a token; the unused rows of a model's vocabulary have none. */
static const char *bytes_of(const napier_generated_texts *t, int64_t id, int64_t *size) {
    size_t bytes = 0;
    const char *const text = napier_tokenizer_token(t->tokenizer, id, &bytes);
    *size = (int64_t)bytes;
    return text;
}

static int64_t size_of_stop(const napier_generated_texts *t, int64_t i) { return t->starts[i + 1] - t->starts[i]; }

/* Adds a byte. The longest stop text that ends there, or -1. */
static int64_t add_byte(const napier_generated_texts *t, int64_t *states, unsigned char byte) {
    int64_t stop = -1;
    for (int64_t i = 0; i < t->count; i++) {
        states[i] = next_state(t, i, states[i], byte);
        if (states[i] == size_of_stop(t, i) && (stop < 0 || states[i] > size_of_stop(t, stop))) {
            stop = i;
        }
    }
    return stop;
}

/* The number of units at the end that begin a character and do not complete it. None is hidden. */
static int64_t incomplete(const napier_text_unit *units, int64_t count) {
    for (int64_t back = 1; back < CHARACTER && back <= count; back++) {
        const unsigned byte = units[count - back];
        if (byte < 0x80 || byte >= 0xc0) {
            return byte >= 0xc0 && back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? back : 0;
        }
    }
    return 0;
}

/* The bytes at the end that a stop text may begin with. A whole one stands there if it came before min_tokens: then what
 * counts is its longest end with which it begins, too. */
static int64_t longest_match(const napier_generated_texts *t, int64_t b) {
    int64_t longest = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t state = t->matched[b * t->count + i];
        const int64_t begun = state < size_of_stop(t, i) ? state : t->borders[t->starts[i + 1] - 1];
        longest = begun > longest ? begun : longest;
    }
    return longest;
}

static int64_t drop_hidden(napier_text_unit *units, int64_t count) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        units[kept] = units[i];
        kept += units[i] & TEXT_HIDDEN ? 0 : 1;
    }
    return kept;
}

static napier_status give(napier_generated_texts *t, int64_t b, const napier_text_unit *units, int64_t count,
                          bool ended) {
    t->shown.size = 0;
    NAPIER_TRY(napier_text_buffer_reserve(t->context, &t->shown, (size_t)count + 1));
    for (int64_t i = 0; i < count; i++) {
        t->shown.bytes[t->shown.size++] = (char)(unsigned char)units[i];
    }
    if ((count > 0 || ended) && t->on_text(b, t->shown.bytes, t->shown.size, ended, t->user)) {
        return napier_fail(t->context, NAPIER_CANCELLED, "cancelled by on_text");
    }
    return NAPIER_OK;
}

/* Gives on_text what it may have of a token, of which `size` bytes belong to the text or to the stop text. */
static napier_status show(napier_generated_texts *t, int64_t b, int64_t id, const char *bytes, int64_t size,
                          bool ended) {
    const napier_text_unit hidden = napier_tokenizer_is_special(t->tokenizer, id) ? TEXT_HIDDEN : 0;
    napier_text_unit *const held = t->held + b * t->held_most;
    int64_t count = t->held_count[b];
    NAPIER_TRY(napier_scratch_reserve(t->context, &t->units, (size_t)(count + size) + 1, sizeof *held));
    napier_text_unit *const units = t->units.data;
    memcpy(units, held, (size_t)count * sizeof *units);
    for (int64_t i = 0; i < size; i++) {
        units[count++] = (napier_text_unit)((unsigned char)bytes[i] | hidden);
    }
    count -= t->stopped[b] >= 0 ? size_of_stop(t, t->stopped[b]) : 0;
    const int64_t match = ended ? 0 : longest_match(t, b), free = drop_hidden(units, count - match);
    const int64_t begun = ended ? 0 : incomplete(units, free);
    NAPIER_TRY(give(t, b, units, free - begun, ended));
    memcpy(held, units + free - begun, (size_t)begun * sizeof *held);
    memcpy(held + begun, units + count - match, (size_t)match * sizeof *held);
    t->held_count[b] = begun + match;
    return NAPIER_OK;
}

napier_status napier_texts_add(napier_generated_texts *t, int64_t b, int64_t index, int64_t id, bool *ended) {
    int64_t size = 0, used = 0;
    const char *const bytes = bytes_of(t, id, &size);
    while (used < size && t->stopped[b] < 0) {
        const int64_t stop = add_byte(t, t->matched + b * t->count, (unsigned char)bytes[used++]);
        t->stopped[b] = index >= t->min_tokens ? stop : -1;
    }
    t->sizes[b] += used;
    *ended = *ended || t->stopped[b] >= 0;
    return t->on_text ? show(t, b, id, bytes, used, *ended) : NAPIER_OK;
}

/* ---- Whole texts ------------------------------------------------------------------------------------------------- */

napier_status napier_texts_append(const napier_generated_texts *t, int64_t b, const int64_t *ids, int64_t count,
                                  napier_text_buffer *text) {
    int64_t left = t->sizes[b] - (t->stopped[b] >= 0 ? size_of_stop(t, t->stopped[b]) : 0);
    for (int64_t i = 0; i < count && left > 0; i++) {
        int64_t size = 0;
        const char *const bytes = bytes_of(t, ids[i], &size);
        size = size < left ? size : left;
        left -= size;
        if (size > 0 && !napier_tokenizer_is_special(t->tokenizer, ids[i])) {
            NAPIER_TRY(napier_text_buffer_append(t->context, text, bytes, (size_t)size));
        }
    }
    return NAPIER_OK;
}
