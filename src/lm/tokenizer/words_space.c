/* lm/tokenizer/words_space.c - the steps that change a word: spaces, and characters that become bytes. */
#include "lm/tokenizer/words.h"

#include "core/base/scope.h"

/* Marks the spaces of a word, and puts one before it if the file asks for it and it has none. */
napier_status napier_words_space(napier_cutter *c, int k, napier_word *word) {
    const napier_word_step *const s = &c->words->steps[k];
    napier_text_buffer *const out = &c->levels[k].text;
    const bool wants = s->prefix == NAPIER_PREFIX_ALWAYS || (s->prefix == NAPIER_PREFIX_FIRST && word->is_first);
    const bool has = napier_starts_with(word->text, word->size, &s->space) || (s->marks_spaces && *word->text == ' ');
    const bool adds = wants && !has && !(c->continues && word->is_first);
    if (!adds && !s->marks_spaces) {
        return NAPIER_OK;
    }
    const napier_step mark = {.kind = NAPIER_STEP_REPLACE, .from = {" ", 1}, .to = s->space};
    out->size = 0;
    NAPIER_TRY(napier_text_buffer_append(c->context, out, s->space.bytes, adds ? s->space.size : 0));
    NAPIER_TRY(napier_replace(c->context, &mark, word->text, word->size, INT32_MAX, out));
    *word = (napier_word){.text = (const uint8_t *)out->bytes, .size = out->size, .is_first = word->is_first};
    NAPIER_REFUSE_IF(c->context, word->size > INT32_MAX, "text: 2^31 bytes or more with its spaces as %zu bytes",
                     s->space.size);
    return NAPIER_OK;
}

napier_status napier_words_bytes(napier_cutter *c, int k, napier_word *word) {
    NAPIER_TRY(napier_scratch_reserve(c->context, &c->levels[k].codes, word->size, 1));
    uint8_t *const codes = c->levels[k].codes.data;
    for (size_t i = 0; i < word->size; i++) {
        codes[i] = c->words->byte_codes[word->text[i]];
    }
    word->codes = codes;
    word->count = word->size;
    return NAPIER_OK;
}
