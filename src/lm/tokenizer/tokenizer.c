/* lm/tokenizer/tokenizer.c - text to ids and back.
 *
 * Text is cut at added tokens. The text between them is put into normal form, cut at the added tokens that want that
 * form, and split into words by the expression. Each word is merged from its bytes. Most words are tokens themselves
 * and need only one table look-up. */
#include "lm/tokenizer/tokenizer.h"

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "lm/tokenizer/normalize.h"

static const size_t most_text = (size_t)1 << 29; /* its normal form then has less than 2^31 bytes */

/* The state of a call of napier_tokenizer_encode. */
typedef struct encoder {
    napier_context *context;
    const napier_tokenizer *tokenizer;
    bool plain_special;
    napier_token_buffer *ids;
    napier_text_buffer normal; /* the normal form of a piece */
    napier_scratch classes, points, merging, hits, hits_normalized;
    napier_matcher matcher;
} encoder;

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static napier_status add_id(encoder *e, int32_t id) {
    NAPIER_TRY(napier_token_buffer_reserve(e->context, e->ids, 1));
    e->ids->ids[e->ids->size++] = id;
    return NAPIER_OK;
}

static napier_status encode_word(encoder *e, const uint8_t *word, size_t size) {
    const napier_vocabulary *const v = &e->tokenizer->vocabulary;
    const int32_t id = napier_vocabulary_find(v, word, size);
    if (id >= 0 && v->tokens[id].flags & NAPIER_TOKEN_WHOLE) {
        return add_id(e, id);
    }
    return napier_merge_word(e->context, v, &e->tokenizer->merges, word, size, &e->merging, e->ids);
}

/* Encodes the next `count` characters as a word, and moves *text behind them. */
static napier_status encode_next(encoder *e, const uint8_t **text, size_t count, bool ascii) {
    const uint8_t *const word = *text, *end = word + (ascii ? count : 0);
    for (size_t i = 0; i < count && !ascii; i++) {
        end += napier_utf8_length(*end);
    }
    *text = end;
    return count > 0 ? encode_word(e, word, (size_t)(end - word)) : NAPIER_OK;
}

static napier_status encode_words(encoder *e, const uint8_t *text, size_t size) {
    NAPIER_TRY(napier_scratch_reserve(e->context, &e->classes, size, 1));
    uint8_t *const classes = e->classes.data;
    const size_t n = napier_classify(e->tokenizer->table, text, size, classes);
    const bool ascii = n == size;
    napier_matcher_start(&e->matcher, n);
    for (size_t from = 0, start, end; from < n; from = end) {
        NAPIER_TRY(napier_matcher_next(e->context, &e->matcher, classes, n, from, &start, &end));
        NAPIER_TRY(encode_next(e, &text, start - from, ascii)); /* text that does not match is a word too */
        NAPIER_TRY(encode_next(e, &text, end - start, ascii));
    }
    return NAPIER_OK;
}

/* ---- Pieces between added tokens --------------------------------------------------------------------------------- */

typedef napier_status encode_function(encoder *e, const uint8_t *text, size_t size);

/* Cuts the text at the tokens of a set, and calls `encode` for the text between them. A special token that must stay
 * plain text is skipped as a whole: no other token is searched for within it. */
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
        if (at > done) {
            NAPIER_TRY(encode(e, text + done, at - done));
        }
        NAPIER_TRY(add_id(e, token->id));
        done = from;
    }
    return done == search.size ? NAPIER_OK : encode(e, text + done, search.size - done);
}

static napier_status encode_normalized(encoder *e, const uint8_t *text, size_t size) {
    const napier_added_search search = {
        .set = &e->tokenizer->added_normalized, .text = (const char *)text, .size = size, .hits = &e->hits_normalized};
    return encode_around(e, search, encode_words);
}

static napier_status encode_raw(encoder *e, const uint8_t *text, size_t size) {
    const uint8_t *const table = e->tokenizer->table;
    if (!e->tokenizer->nfc || !napier_nfc_may_change(table, text, size)) {
        return encode_normalized(e, text, size);
    }
    e->normal.size = 0;
    NAPIER_TRY(napier_nfc(e->context, table, text, size, &e->points, &e->normal));
    return encode_normalized(e, (const uint8_t *)e->normal.bytes, e->normal.size);
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
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_ENCODE_OPTIONS_INIT", options, o));
    NAPIER_TRY(napier_check_token_buffer(context, "ids", ids));
    return check_text(context, text, size);
}

static void free_encoder(encoder *e) {
    napier_matcher_free(&e->matcher);
    napier_text_buffer_free(e->context, &e->normal);
    napier_scratch_free(e->context, &e->classes);
    napier_scratch_free(e->context, &e->points);
    napier_scratch_free(e->context, &e->merging);
    napier_scratch_free(e->context, &e->hits);
    napier_scratch_free(e->context, &e->hits_normalized);
}

napier_status napier_tokenizer_encode(napier_context *context, const napier_tokenizer *tokenizer, const char *text,
                                      size_t size, const napier_encode_options *options, napier_token_buffer *ids) {
    napier_encode_options o = NAPIER_ENCODE_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_encode(context, tokenizer, text, size, options, &o, ids));
    if (size == 0) {
        return NAPIER_OK;
    }
    encoder e = {.context = context, .tokenizer = tokenizer, .plain_special = o.plain_special, .ids = ids};
    const napier_added_search search = {.set = &tokenizer->added, .text = text, .size = size, .hits = &e.hits};
    const int64_t before = ids->size;
    napier_status status = napier_matcher_prepare(context, &tokenizer->split, &e.matcher);
    status = status ? status : encode_around(&e, search, encode_raw);
    ids->size = status ? before : ids->size;
    free_encoder(&e);
    return status;
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

static const napier_token *token_of(const napier_tokenizer *tokenizer, int64_t id) {
    const napier_vocabulary *const v = &tokenizer->vocabulary;
    const bool there = id >= 0 && id < v->size && v->tokens[id].flags & NAPIER_TOKEN_PRESENT;
    return there ? &v->tokens[id] : NULL;
}

static napier_status decode(napier_context *context, const napier_tokenizer *tokenizer, const int32_t *ids,
                            int64_t count, bool skip_special, napier_text_buffer *text) {
    for (int64_t i = 0; i < count; i++) {
        const napier_token *const token = token_of(tokenizer, ids[i]);
        NAPIER_REFUSE_IF(context, token == NULL, "ids[%lld]: %d has no token", (long long)i, ids[i]);
        if (skip_special && token->flags & NAPIER_TOKEN_SPECIAL) {
            continue;
        }
        const char *const bytes = tokenizer->vocabulary.bytes + token->start;
        NAPIER_TRY(napier_text_buffer_append(context, text, bytes, token->size));
    }
    return NAPIER_OK;
}

napier_status napier_tokenizer_decode(napier_context *context, const napier_tokenizer *tokenizer, const int32_t *ids,
                                      int64_t count, const napier_decode_options *options, napier_text_buffer *text) {
    napier_decode_options o = NAPIER_DECODE_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, tokenizer == NULL, "tokenizer: NULL");
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_DECODE_OPTIONS_INIT", options, &o));
    NAPIER_REFUSE_IF(context, count < 0 || (ids == NULL && count > 0), "ids: count %lld%s", (long long)count,
                     ids ? "" : ", and NULL");
    NAPIER_TRY(napier_check_text_buffer(context, "text", text));
    const size_t before = text->size;
    const napier_status status = decode(context, tokenizer, ids, count, o.skip_special, text);
    text->size = status ? before : text->size;
    return status;
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

int64_t napier_tokenizer_vocab_size(const napier_tokenizer *tokenizer) {
    return tokenizer == NULL ? 0 : tokenizer->vocabulary.size;
}

const char *napier_tokenizer_token(const napier_tokenizer *tokenizer, int64_t id, size_t *size) {
    const napier_token *const token = tokenizer == NULL ? NULL : token_of(tokenizer, id);
    if (size != NULL) {
        *size = token == NULL ? 0 : token->size;
    }
    return token == NULL ? NULL : tokenizer->vocabulary.bytes + token->start;
}

int napier_tokenizer_is_special(const napier_tokenizer *tokenizer, int64_t id) {
    const napier_token *const token = tokenizer == NULL ? NULL : token_of(tokenizer, id);
    return token != NULL && (token->flags & NAPIER_TOKEN_SPECIAL) != 0;
}

static int64_t added_id(const napier_tokenizer *tokenizer, const napier_added_set *set, const char *bytes,
                        size_t size) {
    for (size_t i = 0; i < set->count; i++) {
        const napier_token *const token = &tokenizer->vocabulary.tokens[set->tokens[i].id];
        if (token->size == size && memcmp(tokenizer->vocabulary.bytes + token->start, bytes, size) == 0) {
            return set->tokens[i].id;
        }
    }
    return -1;
}

int64_t napier_tokenizer_id(const napier_tokenizer *tokenizer, const char *bytes, size_t size) {
    if (tokenizer == NULL || bytes == NULL) {
        return -1;
    }
    int64_t id = added_id(tokenizer, &tokenizer->added, bytes, size);
    if (id < 0) {
        id = added_id(tokenizer, &tokenizer->added_normalized, bytes, size);
    }
    return id >= 0 ? id : napier_vocabulary_find(&tokenizer->vocabulary, (const uint8_t *)bytes, size);
}

void napier_tokenizer_destroy(napier_context *context, napier_tokenizer *tokenizer) {
    if (context == NULL || tokenizer == NULL) {
        return;
    }
    const napier_allocator allocator = tokenizer->allocator;
    napier_split_free(&tokenizer->split);
    napier_free(&allocator, tokenizer->table);
    napier_vocabulary_free(&allocator, &tokenizer->vocabulary);
    napier_merges_free(&allocator, &tokenizer->merges);
    napier_added_free(&allocator, &tokenizer->added);
    napier_added_free(&allocator, &tokenizer->added_normalized);
    napier_free(&allocator, tokenizer);
}
