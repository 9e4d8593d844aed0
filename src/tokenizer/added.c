/* tokenizer/added.c - a search in the sorted tokens that narrows with each byte of the text. */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b) {
    const napier_added_token *const x = a, *const y = b;
    const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

bool napier_added_prepare(napier_added_set *set) {
    memset(set->starts, 0, sizeof set->starts);
    if (set->count > 0) {
        qsort(set->tokens, set->count, sizeof *set->tokens, by_text);
    }
    for (size_t i = 0; i < set->count; i++) {
        if (i > 0 && by_text(&set->tokens[i - 1], &set->tokens[i]) == 0) {
            return false;
        }
        set->starts[(uint8_t)set->tokens[i].text[0] + 1]++;
    }
    for (int b = 0; b < 256; b++) {
        set->starts[b + 1] += set->starts[b];
    }
    return true;
}

/* The first of tokens[low .. high) whose byte at `depth` is not less than `byte`; they agree in all bytes before. A
 * token that ends there comes first. */
static size_t first_not_less(const napier_added_set *set, size_t low, size_t high, uint32_t depth, unsigned byte) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const napier_added_token *const token = &set->tokens[middle];
        if (token->size <= depth || (uint8_t)token->text[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that starts at `at`. */
static const napier_added_token *longest_at(const napier_added_set *set, const char *text, size_t at, size_t size) {
    const napier_added_token *found = NULL;
    size_t low = set->starts[(uint8_t)text[at]], high = set->starts[(uint8_t)text[at] + 1];
    for (uint32_t depth = 1; low < high; depth++) {
        found = set->tokens[low].size == depth ? &set->tokens[low] : found;
        if (at + depth == size) {
            break;
        }
        const unsigned byte = (uint8_t)text[at + depth];
        low = first_not_less(set, low, high, depth, byte);
        high = first_not_less(set, low, high, depth, byte + 1);
    }
    return found;
}

const napier_added_token *napier_added_next(const napier_added_set *set, const char *text, size_t from, size_t size,
                                            size_t *at) {
    for (size_t i = from; i < size && set->count > 0; i++) {
        const uint8_t byte = (uint8_t)text[i];
        if (set->starts[byte] == set->starts[byte + 1]) {
            continue;
        }
        const napier_added_token *const found = longest_at(set, text, i, size);
        if (found != NULL) {
            *at = i;
            return found;
        }
    }
    return NULL;
}
