/* lm/tokenizer/encode.c - text to ids.
 *
 * Text is cut at added tokens. The text between them goes through the normalizer's steps, is cut at the added tokens
 * that want those, and into words by the pre-tokenizer (words.h). Each word is merged from its bytes or characters. Most
 * words are tokens themselves and need only one table look-up. */
#include "lm/tokenizer/tokenizer.h"

#include "core/base/scope.h"
#include "core/base/struct_size.h"

static const size_t most_text = (size_t)1 << 29; /* its normal form then has less than 2^31 bytes */

/* The state of a call of napier_tokenizer_encode. */
typedef struct encoder {
    napier_context *context;
    const napier_tokenizer *tokenizer;
    bool plain_special, continues;
    bool at_start; /* nothing of the text is encoded yet */
    napier_token_buffer *ids;
    napier_steps_memory steps;
    napier_scratch merging, hits, hits_normalized;
    napier_cutter cutter;
} encoder;

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static napier_status add_id(encoder *e, int32_t id) {
    NAPIER_TRY(napier_token_buffer_reserve(e->context, e->ids, 1));
    e->ids->ids[e->ids->size++] = id;
    return NAPIER_OK;
}

static napier_status encode_word(void *state, const uint8_t *word, size_t size) {
    encoder *const e = state;
    const napier_vocabulary *const v = &e->tokenizer->vocabulary;
    const int32_t id = napier_vocabulary_find(v, word, size);
    if (id >= 0 && v->tokens[id].flags & NAPIER_TOKEN_WHOLE) {
        return add_id(e, id);
    }
    return napier_merge_word(e->context, v, &e->tokenizer->merges, word, size, &e->merging, e->ids);
}

static napier_status encode_by_spaces(void *state, const uint8_t *text, size_t size) {
    encoder *const e = state;
    const napier_words *const w = &e->tokenizer->words;
    size_t start = 0, space_end = size; /* of the word, and of the space before `at` */
    for (size_t at = 0;; at = space_end) {
        at = napier_find(text, size, at, &w->space);
        if (at == size) {
            break;
        }
        if (at > start && (w->cut == NAPIER_CUT_MARKS || at != space_end)) {
            NAPIER_TRY(encode_word(e, text + start, at - start));
            start = at;
        }
        space_end = at + w->space.size;
    }
    return encode_word(e, text + start, size - start);
}

static napier_status encode_words(encoder *e, const uint8_t *text, size_t size) {
    const bool is_first = e->at_start;
    e->at_start = false;
    return napier_cutter_cut(&e->cutter, text, size, is_first);
}

/* ---- Pieces between added tokens --------------------------------------------------------------------------------- */

typedef napier_status encode_function(encoder *e, const uint8_t *text, size_t size);

/* The place of a character's first byte, before `at`. */
static size_t character_before(const uint8_t *text, size_t at) {
    do {
        at--;
    } while ((text[at] & 0xc0) == 0x80);
    return at;
}

/* True if a part of the text, of a token that wants to be a word of its own, is one. */
static bool is_single_word(const encoder *e, const uint8_t *text, size_t size, size_t start, size_t end) {
    const uint8_t *const table = e->tokenizer->table;
    const bool follows = start > 0 && napier_char_is(table[napier_utf8_get(text + character_before(text, start))],
                                                     NAPIER_CHARS_OF_WORDS);
    return !follows && (end == size || !napier_char_is(table[napier_utf8_get(text + end)], NAPIER_CHARS_OF_WORDS));
}

/* The start of the white space that ends at `at`, but not before `least`. */
static size_t spaces_before(const encoder *e, const uint8_t *text, size_t at, size_t least) {
    if (at < least) {
        return least;
    }
    while (at > least) {
        const size_t before = character_before(text, at);
        if (!napier_char_is(e->tokenizer->table[napier_utf8_get(text + before)], NAPIER_CHARS_SPACES)) {
            break;
        }
        at = before;
    }
    return at;
}

static size_t spaces_after(const encoder *e, const uint8_t *text, size_t size, size_t at) {
    while (at < size && napier_char_is(e->tokenizer->table[napier_utf8_get(text + at)], NAPIER_CHARS_SPACES)) {
        at += napier_utf8_length(text[at]);
    }
    return at;
}

/* Cuts the text at the tokens of a set, and calls `encode` for the text between them. A special token that must stay
 * plain text is skipped as a whole: no other token is searched for within it. `done` may go back, as in `tokenizers`, if
 * a token of white space is found again in that which one with rstrip has taken. */
static napier_status encode_around(encoder *e, napier_added_search search, encode_function *encode) {
    const uint8_t *const text = (const uint8_t *)search.text;
    size_t done = 0, at = 0;
    for (size_t from = 0; from < search.size;) {
        const napier_added_token *token;
        NAPIER_TRY(napier_added_next(e->context, &search, from, &token, &at));
        if (token == NULL) {
            break;
        }
        from = at + token->size;
        if (token->special && e->plain_special) {
            continue;
        }
        if (token->single_word && !is_single_word(e, text, search.size, at, from)) {
            continue;
        }
        const size_t stop = token->rstrip ? spaces_after(e, text, search.size, from) : from;
        const size_t start = token->lstrip ? spaces_before(e, text, at, done) : at;
        if (start >= stop) { /* a token of white space that one before it has taken */
            continue;
        }
        if (start > done) {
            NAPIER_TRY(encode(e, text + done, start - done));
        }
        NAPIER_TRY(add_id(e, token->id));
        e->at_start = false;
        done = stop;
    }
    return done >= search.size ? NAPIER_OK : encode(e, text + done, search.size - done);
}

static napier_status encode_normalized(encoder *e, const uint8_t *text, size_t size) {
    const napier_added_search search = {
        .set = &e->tokenizer->added_normalized, .text = (const char *)text, .size = size, .hits = &e->hits_normalized};
    return encode_around(e, search, encode_words);
}

static napier_status encode_raw(encoder *e, const uint8_t *text, size_t size) {
    const napier_tokenizer *const t = e->tokenizer;
    NAPIER_TRY(napier_steps_apply(e->context, &t->steps, t->table, e->continues && e->at_start, &e->steps, text, size,
                                  &text, &size));
    return encode_normalized(e, text, size);
}

/* ---- Encode ------------------------------------------------------------------------------------------------------ */

static napier_status check_text(napier_context *context, const char *text, size_t size) {
    NAPIER_REFUSE_IF(context, text == NULL && size > 0, "text: NULL, but %zu bytes", size);
    NAPIER_REFUSE_IF(context, size > most_text, "text: %zu bytes, more than 2^29", size);
    const size_t good = napier_utf8_check((const uint8_t *)text, size);
    NAPIER_REFUSE_IF(context, good < size, "text: not UTF-8 at byte %zu, 0x%02x", good, (unsigned)(uint8_t)text[good]);
    return NAPIER_OK;
}

static napier_status check_encode(napier_context *context, const napier_tokenizer *tokenizer, const char *text,
                                  size_t size, const napier_encode_options *options, napier_encode_options *o,
                                  const napier_token_buffer *ids) {
    NAPIER_REFUSE_IF(context, tokenizer == NULL, "tokenizer: NULL");
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_encode_options, NAPIER_ENCODE_OPTIONS_INIT, continues), options, o));
    NAPIER_TRY(napier_check_token_buffer(context, "ids", ids));
    NAPIER_REFUSE_IF(context, o->add_special < NAPIER_ADD_NONE || o->add_special > NAPIER_ADD_ONCE,
                     "options: add_special is %lld, not 0, 1 or 2", (long long)o->add_special);
    NAPIER_REFUSE_IF(context, o->continues && o->add_special,
                     "options: add_special %lld, but the text continues another", (long long)o->add_special);
    return check_text(context, text, size);
}

static void free_encoder(encoder *e) {
    napier_cutter_free(&e->cutter);
    napier_steps_memory_free(e->context, &e->steps);
    napier_scratch_free(e->context, &e->merging);
    napier_scratch_free(e->context, &e->hits);
    napier_scratch_free(e->context, &e->hits_normalized);
}

static napier_status encode_text(napier_context *context, const napier_tokenizer *tokenizer, const char *text,
                                 size_t size, const napier_encode_options *o, napier_token_buffer *ids) {
    encoder e = {.context = context,
                 .tokenizer = tokenizer,
                 .plain_special = o->plain_special,
                 .continues = o->continues,
                 .at_start = true,
                 .ids = ids};
    const napier_added_search search = {.set = &tokenizer->added, .text = text, .size = size, .hits = &e.hits};
    e.cutter = (napier_cutter){.context = context,
                               .words = &tokenizer->words,
                               .continues = o->continues,
                               .take = tokenizer->words.cut == NAPIER_CUT_NONE ? encode_word : encode_by_spaces,
                               .taker = &e};
    napier_status status = napier_cutter_prepare(&e.cutter);
    status = status ? status : encode_around(&e, search, encode_raw);
    free_encoder(&e);
    return status;
}

/* True if `count` ids at `at` are `wanted`. */
static bool are(const int32_t *at, const int32_t *wanted, size_t count) {
    return count > 0 && memcmp(at, wanted, count * sizeof *at) == 0;
}

/* Puts the post-processor's ids around those from `begin` on. `once`: not where they are already. */
static napier_status add_around(napier_context *context, const napier_around *a, bool once, int64_t begin,
                                napier_token_buffer *ids) {
    NAPIER_TRY(napier_token_buffer_reserve(context, ids, a->before + a->after));
    int32_t *const first = ids->ids + begin;
    const size_t count = (size_t)(ids->size - begin);
    const bool starts = once && count >= a->before && are(first, a->ids, a->before);
    const bool ends = once && count >= a->after && are(first + count - a->after, a->ids + a->before, a->after);
    const size_t before = starts ? 0 : a->before, after = ends ? 0 : a->after;
    if (before > 0) {
        memmove(first + before, first, count * sizeof *first);
        memcpy(first, a->ids, before * sizeof *first);
    }
    if (after > 0) {
        memcpy(first + before + count, a->ids + a->before, after * sizeof *first);
    }
    ids->size += (int64_t)(before + after);
    return NAPIER_OK;
}

napier_status napier_tokenizer_encode(napier_context *context, const napier_tokenizer *tokenizer, const char *text,
                                      size_t size, const napier_encode_options *options, napier_token_buffer *ids) {
    napier_encode_options o = NAPIER_ENCODE_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_encode(context, tokenizer, text, size, options, &o, ids));
    const int64_t before = ids->size;
    napier_status status = size > 0 ? encode_text(context, tokenizer, text, size, &o, ids) : NAPIER_OK;
    if (!status && o.add_special != NAPIER_ADD_NONE) {
        status = add_around(context, &tokenizer->around, o.add_special == NAPIER_ADD_ONCE, before, ids);
    }
    ids->size = status ? before : ids->size;
    return status;
}
