/* lm/tokenizer/words.c - the memory of the steps. */
#include "lm/tokenizer/words.h"

#include "core/base/scope.h"

void napier_words_free(const napier_allocator *allocator, napier_words *words) {
    for (int k = 0; k < words->count; k++) {
        napier_split_free(&words->steps[k].split);
    }
    napier_alphabet_free(allocator, &words->alphabet);
}

napier_status napier_cutter_prepare(napier_cutter *c) {
    for (int k = 0; k < c->words->count; k++) {
        const napier_word_step *const step = &c->words->steps[k];
        if (step->kind == NAPIER_WORDS_PATTERN) {
            NAPIER_TRY(napier_matcher_prepare(c->context, &step->split, &c->levels[k].matcher));
        }
    }
    return NAPIER_OK;
}

void napier_cutter_free(napier_cutter *c) {
    for (int k = 0; k < c->words->count; k++) {
        napier_matcher_free(&c->levels[k].matcher);
        napier_scratch_free(c->context, &c->levels[k].codes);
        napier_text_buffer_free(c->context, &c->levels[k].text);
    }
}

napier_status napier_cutter_cut(napier_cutter *c, const uint8_t *text, size_t size, bool is_first) {
    return napier_words_give(c, 0, (napier_word){.text = text, .size = size, .is_first = is_first});
}
