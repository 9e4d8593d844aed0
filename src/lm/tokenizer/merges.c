/* lm/tokenizer/merges.c - merges short words by searching the lowest rank after each merge, and long words with a
 * heap. */
#include "lm/tokenizer/merges.h"
#include "core/base/scope.h"
#include "lm/tokenizer/unicode.h"

enum { SHORT_WORD = 32, NO_RANK = INT32_MAX };

/* ---- The table --------------------------------------------------------------------------------------------------- */

napier_status napier_merges_allocate(napier_context *context, napier_merges *m, size_t count) {
    const uint32_t slots = napier_slots_for(count);
    m->mask = slots - 1;
    m->slots = napier_alloc(&context->allocator, slots, sizeof *m->slots);
    if (m->slots == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for %zu merges", count);
    }
    memset(m->slots, 0xff, slots * sizeof *m->slots);
    memset(m->byte_pairs, 0, sizeof m->byte_pairs);
    return NAPIER_OK;
}

void napier_merges_free(const napier_allocator *allocator, napier_merges *m) { napier_free(allocator, m->slots); }

/* The entry of a pair, or the empty one where it would be; NULL if there is neither within the probe limit. */
static inline napier_merge *slot_of(const napier_merges *m, int32_t left, int32_t right) {
    const uint32_t hash = napier_merge_hash(left, right);
    for (uint32_t probe = 0; probe < NAPIER_MOST_PROBES; probe++) {
        napier_merge *const slot = &m->slots[(hash + probe) & m->mask];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) {
            return slot;
        }
    }
    return NULL;
}

napier_put napier_merges_add(napier_merges *m, napier_merge merge) {
    napier_merge *const slot = slot_of(m, merge.left, merge.right);
    if (slot == NULL || slot->left >= 0) {
        return slot == NULL ? NAPIER_PUT_CROWDED : NAPIER_PUT_TWICE;
    }
    *slot = merge;
    return NAPIER_PUT_DONE;
}

void napier_merges_note_bytes(napier_merges *m, uint8_t left, uint8_t right) {
    m->byte_pairs[left][right / 64] |= UINT64_C(1) << right % 64;
}

/* The rank of a pair, and *id of the merged token; NO_RANK if the pair is not merged. */
static inline int32_t rank_of(const napier_merges *m, int32_t left, int32_t right, int32_t *id) {
    const napier_merge *const slot = slot_of(m, left, right);
    const bool there = slot != NULL && slot->left >= 0;
    *id = there ? slot->id : -1;
    return there ? slot->rank : NO_RANK;
}

/* The same for the tokens of the two bytes at `at`. */
static inline int32_t rank_of_bytes(const napier_vocabulary *v, const napier_merges *m, const uint8_t *at,
                                    int32_t *id) {
    *id = -1;
    const bool there = m->byte_pairs[at[0]][at[1] / 64] >> at[1] % 64 & 1;
    return there ? rank_of(m, v->byte_ids[at[0]], v->byte_ids[at[1]], id) : NO_RANK;
}

/* The rank of the pair (i, i + 1) before any merge. `word`: the bytes of the symbols, or NULL for characters. */
static inline int32_t first_rank(const napier_vocabulary *v, const napier_merges *m, const uint8_t *word,
                                 const int32_t *ids, size_t i, int32_t *id) {
    return word != NULL ? rank_of_bytes(v, m, word + i, id) : rank_of(m, ids[i], ids[i + 1], id);
}

/* ---- Short words ------------------------------------------------------------------------------------------------- */

/* Merges n symbols in their place, and returns how many tokens are left. */
static size_t merge_short(const napier_vocabulary *v, const napier_merges *m, const uint8_t *word, size_t n,
                          int32_t *ids) {
    int32_t ranks[SHORT_WORD], made[SHORT_WORD]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i < n; i++) {
        made[i] = -1;
        ranks[i] = i + 1 < n ? first_rank(v, m, word, ids, i, &made[i]) : NO_RANK;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == NO_RANK) {
            break;
        }
        ids[best] = made[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1];
            made[i] = made[i + 1];
        }
        if (best + 1 < n) {
            ranks[best] = rank_of(m, ids[best], ids[best + 1], &made[best]);
        }
        if (best > 0) {
            ranks[best - 1] = rank_of(m, ids[best - 1], ids[best], &made[best - 1]);
        }
    }
    return n;
}

/* ---- Long words -------------------------------------------------------------------------------------------------- */

/* A token of a long word, in a linked list. One that was merged into its left neighbour keeps its place, with rank
 * NO_RANK. */
typedef struct symbol {
    int32_t id, previous, next; /* -1: none */
    int32_t rank, made;         /* of the pair with `next` */
} symbol;

/* A heap of pairs: rank << 32 | place, with the lowest rank, and of these the leftmost, on top. An entry is out of date
 * if its rank differs from that of its place. Each merge adds at most two entries. */
typedef struct heap {
    uint64_t *entries;
    size_t size;
} heap;

static void heap_push(heap *h, uint64_t entry) {
    size_t i = h->size++;
    for (; i > 0 && h->entries[(i - 1) / 2] > entry; i = (i - 1) / 2) {
        h->entries[i] = h->entries[(i - 1) / 2];
    }
    h->entries[i] = entry;
}

static uint64_t heap_pop(heap *h) {
    const uint64_t top = h->entries[0], last = h->entries[--h->size];
    size_t i = 0;
    for (size_t child = 1; child < h->size; child = 2 * i + 1) {
        child += child + 1 < h->size && h->entries[child + 1] < h->entries[child];
        if (h->entries[child] >= last) {
            break;
        }
        h->entries[i] = h->entries[child];
        i = child;
    }
    h->entries[i] = last;
    return top;
}

static void push_pair(const symbol *symbols, int32_t i, heap *h) {
    if (symbols[i].rank != NO_RANK) {
        heap_push(h, (uint64_t)symbols[i].rank << 32 | (uint32_t)i);
    }
}

/* Looks up the pair that starts at place i. */
static void renew(const napier_merges *m, symbol *symbols, int32_t i, heap *h) {
    symbol *const s = &symbols[i];
    s->rank = s->next < 0 ? NO_RANK : rank_of(m, s->id, symbols[s->next].id, &s->made);
    push_pair(symbols, i, h);
}

static void merge_pair(const napier_merges *m, symbol *symbols, int32_t i, heap *h) {
    symbol *const s = &symbols[i];
    symbol *const gone = &symbols[s->next];
    s->id = s->made;
    s->next = gone->next;
    gone->rank = NO_RANK;
    if (s->next >= 0) {
        symbols[s->next].previous = i;
    }
    renew(m, symbols, i, h);
    if (s->previous >= 0) {
        renew(m, symbols, s->previous, h);
    }
}

/* merge_short for words of any length. *count: the number of symbols, then of tokens. */
static napier_status merge_long(napier_context *context, const napier_vocabulary *v, const napier_merges *m,
                                const uint8_t *word, napier_scratch *scratch, int32_t *ids, size_t *count) {
    const size_t each = sizeof(symbol) + 3 * sizeof(uint64_t);
    NAPIER_TRY(napier_scratch_reserve(context, scratch, *count, each));
    heap h = {scratch->data, 0};
    symbol *const symbols = (symbol *)(void *)(h.entries + 3 * *count);
    const int32_t n = (int32_t)*count;
    for (int32_t i = 0; i < n; i++) {
        symbols[i] = (symbol){ids[i], i - 1, i + 1 < n ? i + 1 : -1, NO_RANK, -1};
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        symbols[i].rank = first_rank(v, m, word, ids, (size_t)i, &symbols[i].made);
        push_pair(symbols, i, &h);
    }
    while (h.size > 0) {
        const uint64_t top = heap_pop(&h);
        const int32_t i = (int32_t)(top & UINT32_MAX);
        if (symbols[i].rank == (int32_t)(top >> 32)) {
            merge_pair(m, symbols, i, &h);
        }
    }
    *count = 0;
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = symbols[i].next) {
        ids[(*count)++] = symbols[i].id;
    }
    return NAPIER_OK;
}

/* ---- Any word ---------------------------------------------------------------------------------------------------- */

/* Writes the tokens of a character's bytes, if all have one, and returns their number; else 0. */
static size_t fall_back(const napier_vocabulary *v, const uint8_t *bytes, size_t size, int32_t *ids) {
    for (size_t i = 0; i < size; i++) {
        ids[i] = v->fallback_ids[bytes[i]];
        if (ids[i] < 0) {
            return 0;
        }
    }
    return size;
}

/* As in `tokenizers`, unknown characters are one token if nothing is between them but bytes of others, and that token
 * follows those bytes. Of a word of bytes each byte counts as a character. */
static size_t character_symbols(const napier_vocabulary *v, const uint8_t *word, size_t size, int32_t *ids) {
    size_t n = 0;
    bool is_unknown = false; /* an unknown character is not written yet */
    for (size_t at = 0, length; at < size; at += length) {
        length = v->of_characters ? napier_utf8_length(word[at]) : 1;
        const int32_t id = length == 1 ? v->byte_ids[word[at]] : napier_vocabulary_find(v, word + at, length);
        const size_t bytes = id < 0 && v->byte_fallback ? fall_back(v, word + at, length, ids + n) : 0;
        if (bytes > 0) {
            n += bytes;
            continue;
        }
        if (is_unknown && (id >= 0 || !v->fuse_unknown)) {
            ids[n++] = v->unknown;
        }
        is_unknown = id < 0 && v->unknown >= 0;
        if (id >= 0) {
            ids[n++] = id;
        }
    }
    if (is_unknown) {
        ids[n++] = v->unknown;
    }
    return n;
}

/* Writes the tokens that merging begins with, of the word's bytes or characters, and returns their number, which is at
 * most `size`. */
static size_t word_symbols(const napier_vocabulary *v, const uint8_t *word, size_t size, int32_t *ids) {
    if (v->of_characters || v->lacks_bytes) {
        return character_symbols(v, word, size, ids);
    }
    for (size_t i = 0; i < size; i++) {
        ids[i] = v->byte_ids[word[i]];
    }
    return size;
}

napier_status napier_merge_word(napier_context *context, const napier_vocabulary *v, const napier_merges *m,
                                const uint8_t *word, size_t size, napier_scratch *scratch, napier_token_buffer *ids) {
    NAPIER_TRY(napier_token_buffer_reserve(context, ids, size));
    int32_t *const out = ids->ids + ids->size;
    size_t count = word_symbols(v, word, size, out);
    const bool has_all = !v->lacks_bytes || (v->unknown < 0 && count == size);
    const uint8_t *const bytes = !v->of_characters && has_all ? word : NULL;
    if (count > SHORT_WORD) {
        NAPIER_TRY(merge_long(context, v, m, bytes, scratch, out, &count));
    } else {
        count = merge_short(v, m, bytes, count, out);
    }
    ids->size += (int64_t)count;
    return NAPIER_OK;
}
