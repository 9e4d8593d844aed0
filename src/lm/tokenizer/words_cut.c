/* lm/tokenizer/words_cut.c - hands words from step to step, and cuts them at the matches of an expression or at the
 * characters of a set.
 *
 * The matches and what is between them are spans. A span becomes a word, or is left out, or is joined with the next,
 * as the file says. */
#include "lm/tokenizer/words.h"

#include "core/base/scope.h"

typedef struct span {
    size_t end; /* in codes */
    bool is_match;
} span;

/* The state of one step, for one word. */
typedef struct cutting {
    napier_cutter *cutter;
    const napier_word_step *step;
    int k;
    bool is_last, is_wide; /* the last step; some characters have more than one byte */
    const uint8_t *text;   /* what is not given yet */
    const uint8_t *codes;  /* of the whole word */
    size_t given;          /* codes before `text` */
    bool is_first;         /* nothing is given yet, and the word is the first */
    span held;             /* read, but the next may be joined with it; as long as given: none */
} cutting;

/* True if two spans side by side become one word. */
static bool joins(napier_behavior behavior, bool first, bool second) {
    switch (behavior) {
    case NAPIER_CONTIGUOUS: return first == second;
    case NAPIER_MERGED_WITH_PREVIOUS: return second && !first;
    case NAPIER_MERGED_WITH_NEXT: return first && !second;
    default: return false;
    }
}

/* Gives the next span to the next step. */
static inline napier_status give(cutting *c, size_t end, bool is_left_out) {
    const uint8_t *const text = c->text, *const codes = c->codes + c->given;
    const size_t count = end - c->given;
    const bool is_first = c->is_first;
    size_t size = c->is_wide ? 0 : count;
    for (size_t i = 0; i < count && c->is_wide; i++) {
        size += napier_utf8_length(text[size]);
    }
    c->text += size;
    c->given = end;
    c->is_first = false;
    if (is_left_out) {
        return NAPIER_OK;
    }
    if (c->is_last) {
        return c->cutter->take(c->cutter->taker, text, size);
    }
    return napier_words_give(c->cutter, c->k + 1, (napier_word){text, codes, size, count, is_first});
}

static napier_status give_held(cutting *c) {
    const bool is_left_out = c->held.is_match && c->step->behavior == NAPIER_REMOVED;
    return c->held.end > c->given ? give(c, c->held.end, is_left_out) : NAPIER_OK;
}

static inline napier_status put(cutting *c, size_t end, bool is_match) {
    const bool now = is_match != c->step->inverted;
    if (c->step->behavior == NAPIER_ISOLATED) {
        return give(c, end, false);
    }
    if (!joins(c->step->behavior, c->held.is_match, now) || c->held.end == c->given) {
        NAPIER_TRY(give_held(c));
    }
    c->held = (span){end, now};
    return NAPIER_OK;
}

/* Finds the next character of a set. */
static void find_member(const bool *members, const napier_word *word, size_t from, size_t *start, size_t *end) {
    while (from < word->count && !members[word->codes[from]]) {
        from++;
    }
    *start = from;
    *end = from + (from < word->count);
}

static napier_status cut(napier_cutter *cutter, int k, napier_word word) {
    napier_word_level *const level = &cutter->levels[k];
    const napier_word_step *const step = &cutter->words->steps[k];
    if (word.codes == NULL) {
        NAPIER_TRY(napier_scratch_reserve(cutter->context, &level->codes, word.size, 1));
        word.count = napier_classify(cutter->words->alphabet.codes, word.text, word.size, level->codes.data);
        word.codes = level->codes.data;
    }
    cutting c = {.cutter = cutter,
                 .step = step,
                 .k = k,
                 .is_last = k + 1 == cutter->words->count,
                 .is_wide = word.size != word.count,
                 .text = word.text,
                 .codes = word.codes,
                 .is_first = word.is_first};
    napier_matcher_start(&level->matcher, word.count);
    for (size_t from = 0, start, end; from < word.count; from = end) {
        if (step->kind == NAPIER_WORDS_CHARS) {
            find_member(step->members, &word, from, &start, &end);
        } else {
            NAPIER_TRY(
                napier_matcher_next(cutter->context, &level->matcher, word.codes, word.count, from, &start, &end));
        }
        if (start > from) {
            NAPIER_TRY(put(&c, start, false));
        }
        if (end > start) {
            NAPIER_TRY(put(&c, end, true));
        }
    }
    return give_held(&c);
}

napier_status napier_words_give(napier_cutter *c, int k, napier_word word) {
    for (; k < c->words->count; k++) {
        switch (c->words->steps[k].kind) {
        case NAPIER_WORDS_SPACE: NAPIER_TRY(napier_words_space(c, k, &word)); break;
        case NAPIER_WORDS_BYTES: NAPIER_TRY(napier_words_bytes(c, k, &word)); break;
        default: return cut(c, k, word);
        }
    }
    return c->take(c->taker, word.text, word.size);
}
