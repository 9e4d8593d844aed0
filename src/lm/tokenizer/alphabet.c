/* lm/tokenizer/alphabet.c - gives each character its code. */
#include "lm/tokenizer/alphabet.h"

#include "core/base/scope.h"

napier_status napier_alphabet_prepare(napier_context *context, uint8_t *table, napier_alphabet *alphabet) {
    *alphabet = (napier_alphabet){.table = table, .count = NAPIER_FIRST_CLASS + NAPIER_CHAR_CLASSES};
    alphabet->codes = napier_alloc(&context->allocator, NAPIER_CODE_POINTS, 1);
    if (alphabet->codes == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for the codes of characters");
    }
    for (uint32_t c = 0; c < NAPIER_CODE_POINTS; c++) {
        alphabet->codes[c] = (uint8_t)(NAPIER_FIRST_CLASS + (table[c] & NAPIER_CHAR_CLASS));
    }
    for (int code = 0; code < alphabet->count; code++) {
        const bool is_ascii = code < NAPIER_FIRST_CLASS;
        alphabet->kinds[code] = (uint8_t)(is_ascii ? table[code] & NAPIER_CHAR_CLASS : code - NAPIER_FIRST_CLASS);
        if (is_ascii) {
            alphabet->codes[code] = (uint8_t)code;
        }
    }
    return NAPIER_OK;
}

void napier_alphabet_free(const napier_allocator *allocator, napier_alphabet *alphabet) {
    napier_free(allocator, alphabet->codes);
}

/* Counts the code points of ranges. A hostile file has many long ones: they may have 64 times Unicode in all. */
static bool look_at(napier_alphabet *a, const napier_range *ranges, size_t count) {
    for (size_t i = 0; i < count; i++) {
        a->looked += ranges[i].last - ranges[i].first + 1;
    }
    return a->looked <= (uint64_t)64 * NAPIER_CODE_POINTS;
}

static void count_codes(napier_alphabet *a) {
    for (uint32_t c = 0; c < NAPIER_CODE_POINTS; c++) {
        a->counts[a->codes[c]]++;
    }
}

bool napier_alphabet_divide(napier_alphabet *a, const napier_range *ranges, size_t count) {
    uint32_t within[NAPIER_MOST_CODES] = {0};
    uint8_t made[NAPIER_MOST_CODES] = {0}; /* the new code of those within; 0: none yet */
    bool fits = look_at(a, ranges, count);
    if (!fits) {
        return false;
    }
    if (a->counts[0] == 0) {
        count_codes(a);
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t c = ranges[i].first; c <= ranges[i].last; c++) {
            within[a->codes[c]] += (a->table[c] & NAPIER_CHAR_MARKED) == 0;
            a->table[c] |= NAPIER_CHAR_MARKED;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t c = ranges[i].first; c <= ranges[i].last; c++) {
            const uint8_t code = a->codes[c];
            const bool moves = a->table[c] & NAPIER_CHAR_MARKED && within[code] < a->counts[code];
            a->table[c] = (uint8_t)(a->table[c] & ~NAPIER_CHAR_MARKED);
            if (moves && made[code] == 0) {
                fits = fits && a->count < NAPIER_MOST_CODES;
                made[code] = (uint8_t)(fits ? a->count++ : code);
                a->kinds[made[code]] = a->kinds[code];
            }
            a->codes[c] = moves ? made[code] : code;
        }
    }
    for (int code = 0; code < NAPIER_MOST_CODES; code++) {
        if (made[code] != 0) {
            a->counts[code] -= within[code];
            a->counts[made[code]] += within[code];
        }
    }
    return fits;
}

bool napier_alphabet_codes(napier_alphabet *a, const napier_range *ranges, size_t count, bool has[NAPIER_MOST_CODES]) {
    if (!look_at(a, ranges, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t c = ranges[i].first; c <= ranges[i].last; c++) {
            has[a->codes[c]] = true;
        }
    }
    return true;
}

void napier_alphabet_kinds(const napier_alphabet *a, uint32_t set, bool has[NAPIER_MOST_CODES]) {
    for (int code = 0; code < a->count; code++) {
        has[code] = has[code] || napier_char_is(a->kinds[code], set);
    }
}

size_t napier_classify(const uint8_t *codes, const uint8_t *text, size_t size, uint8_t *out) {
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        if (napier_is_ascii(text, size, at)) {
            memcpy(out + n, text + at, 8);
            at += 8;
            n += 8;
            continue;
        }
        out[n++] = codes[napier_utf8_get(text + at)];
        at += napier_utf8_length(text[at]);
    }
    return n;
}
