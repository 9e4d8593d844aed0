/* lm/tokenizer/added.c - the automaton of Aho and Corasick ("Efficient string matching", 1975), run from the end of the
 * text to its beginning. So it finds at each position the longest token that starts there. A pass from the left then
 * takes the first token and continues after it. */
#include "lm/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/scope.h"

/* ---- The tree ---------------------------------------------------------------------------------------------------- */

/* Byte `i`, counted from the end. */
static uint8_t from_end(const napier_added_token *token, uint32_t i) {
    return (uint8_t)token->text[token->size - 1 - i];
}

static int by_end(const void *a, const void *b) {
    const napier_added_token *const x = a, *const y = b;
    for (uint32_t i = 0; i < x->size && i < y->size; i++) {
        if (from_end(x, i) != from_end(y, i)) {
            return from_end(x, i) < from_end(y, i) ? -1 : 1;
        }
    }
    return (x->size > y->size) - (x->size < y->size);
}

bool napier_added_sort(napier_added_set *set) {
    if (set->count > 0) {
        qsort(set->tokens, set->count, sizeof *set->tokens, by_end);
    }
    for (size_t i = 1; i < set->count; i++) {
        if (by_end(&set->tokens[i - 1], &set->tokens[i]) == 0) {
            return false;
        }
    }
    return true;
}

static int32_t child_of(const napier_added_set *set, int32_t node, uint8_t byte) {
    if (node == 0) {
        return set->root[byte];
    }
    const uint8_t *const bytes = set->bytes + set->nodes[node].first;
    const uint8_t *const found = memchr(bytes, byte, (size_t)set->nodes[node].children);
    return found != NULL ? set->nodes[node].first + (int32_t)(found - bytes) : 0;
}

/* The next state of the automaton, after `node` and one more byte on the left. */
static int32_t step(const napier_added_set *set, int32_t node, uint8_t byte) {
    int32_t next = child_of(set, node, byte);
    while (next == 0 && node != 0) {
        node = set->nodes[node].shorter;
        next = child_of(set, node, byte);
    }
    return next;
}

/* Tokens [low, high) share a node's ending, which has `depth` bytes. */
typedef struct range {
    int32_t low, high;
    uint32_t depth;
} range;

/* Appends the children of node i to the nodes. So the nodes are in order of depth. */
static int32_t add_children(napier_added_set *set, range *ranges, int32_t i, int32_t count) {
    napier_added_node *const node = &set->nodes[i];
    range r = ranges[i];
    const bool whole = r.depth > 0 && set->tokens[r.low].size == r.depth; /* the shortest token comes first */
    node->token = whole ? r.low : i > 0 ? set->nodes[node->shorter].token : -1;
    node->first = count;
    for (r.low += whole; r.low < r.high; count++) {
        const uint8_t byte = from_end(&set->tokens[r.low], r.depth);
        range *const made = &ranges[count];
        *made = (range){r.low, r.low, r.depth + 1};
        while (made->high < r.high && from_end(&set->tokens[made->high], r.depth) == byte) {
            made->high++;
        }
        set->bytes[count] = byte;
        set->nodes[count].shorter = i > 0 ? step(set, node->shorter, byte) : 0;
        r.low = made->high;
    }
    node->children = count - node->first;
    return count;
}

napier_status napier_added_build(napier_context *context, napier_added_set *set) {
    size_t most = 1;
    for (size_t i = 0; i < set->count; i++) {
        most += set->tokens[i].size;
        set->longest = set->tokens[i].size > set->longest ? set->tokens[i].size : set->longest;
    }
    if (most > NAPIER_MOST_ADDED_BYTES) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "added_tokens: %zu bytes of text, more than %d", most - 1,
                           NAPIER_MOST_ADDED_BYTES - 1);
    }
    range *const ranges = napier_alloc(&context->allocator, most, sizeof *ranges);
    set->nodes = napier_alloc(&context->allocator, most, sizeof *set->nodes);
    set->bytes = napier_alloc(&context->allocator, most, 1);
    if (!ranges || !set->nodes || !set->bytes) {
        napier_free(&context->allocator, ranges);
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the tree of %zu added tokens", set->count);
    }
    memset(set->root, 0, sizeof set->root);
    ranges[0] = (range){0, (int32_t)set->count, 0};
    int32_t count = add_children(set, ranges, 0, 1);
    for (int32_t child = 1; child < count; child++) {
        set->root[set->bytes[child]] = child;
    }
    for (int32_t i = 1; i < count; i++) {
        count = add_children(set, ranges, i, count);
    }
    napier_free(&context->allocator, ranges);
    return NAPIER_OK;
}

void napier_added_free(const napier_allocator *allocator, napier_added_set *set) {
    napier_free(allocator, set->tokens);
    napier_free(allocator, set->nodes);
    napier_free(allocator, set->bytes);
}

/* ---- Searching --------------------------------------------------------------------------------------------------- */

typedef struct hit {
    uint32_t at; /* offset from the window's start */
    int32_t token;
} hit;

/* Finds all tokens that start in a window. They may end after it. */
static napier_status look_at_window(napier_context *context, napier_added_search *s, size_t start) {
    enum { USUAL_WINDOW = 1 << 14 };
    const napier_added_set *const set = s->set;
    const size_t window = set->longest > USUAL_WINDOW ? set->longest : USUAL_WINDOW;
    s->start = start;
    s->end = s->size - start > window ? start + window : s->size;
    s->count = 0;
    int32_t node = 0;
    for (size_t at = s->size - s->end > set->longest ? s->end + set->longest : s->size; at-- > start;) {
        node = node == 0 ? set->root[(uint8_t)s->text[at]] : step(set, node, (uint8_t)s->text[at]);
        if (node == 0 || set->nodes[node].token < 0 || at >= s->end) {
            continue;
        }
        if (s->count == 0) {
            NAPIER_TRY(napier_scratch_reserve(context, s->hits, s->end - start, sizeof(hit)));
        }
        ((hit *)s->hits->data)[s->count++] = (hit){(uint32_t)(at - start), set->nodes[node].token};
    }
    return NAPIER_OK;
}

napier_status napier_added_next(napier_context *context, napier_added_search *s, size_t from,
                                const napier_added_token **token, size_t *at) {
    *token = NULL;
    while (s->set->count > 0) {
        for (; s->count > 0; s->count--) {
            const hit next = ((const hit *)s->hits->data)[s->count - 1];
            if (s->start + next.at >= from) {
                *token = &s->set->tokens[next.token];
                *at = s->start + next.at;
                return NAPIER_OK;
            }
        }
        const size_t start = s->end > from ? s->end : from;
        if (start >= s->size) {
            break;
        }
        NAPIER_TRY(look_at_window(context, s, start));
    }
    return NAPIER_OK;
}
