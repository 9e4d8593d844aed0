/* lm/tokenizer/decode.c - ids to text, and the questions about a vocabulary. */
#include "lm/tokenizer/tokenizer.h"

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "lm/tokenizer/unicode.h"

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

const napier_token *napier_token_of(const napier_tokenizer *tokenizer, int64_t id) {
    const napier_vocabulary *const v = &tokenizer->vocabulary;
    const bool there = id >= 0 && id < v->size && v->tokens[id].flags & NAPIER_TOKEN_PRESENT;
    return there ? &v->tokens[id] : NULL;
}

/* The bytes that a token decodes to. */
static const char *bytes_of(const napier_tokenizer *t, int64_t id, size_t *size) {
    const napier_vocabulary *const v = &t->vocabulary;
    const napier_token_text own = {v->tokens[id].start, v->tokens[id].size};
    const napier_token_text text = v->texts != NULL ? v->texts[id] : own;
    *size = text.size;
    return v->bytes + text.start;
}

/* The state of a call of napier_tokenizer_decode. */
typedef struct decoding {
    napier_context *context;
    const napier_tokenizer *tokenizer;
    bool replaces_invalid;
    napier_text_buffer *text;
    size_t run; /* where the bytes of the last tokens that are bytes begin */
} decoding;

static napier_status append_replacement(const decoding *d) {
    return napier_text_buffer_append(d->context, d->text, "\xef\xbf\xbd", 3);
}

/* Ends a run of tokens that are bytes. As in `tokenizers`, each becomes U+FFFD if together they are not UTF-8. */
static napier_status end_run(const decoding *d) {
    const size_t size = d->text->size - d->run;
    const uint8_t *const bytes = (const uint8_t *)d->text->bytes + d->run;
    if (size == 0 || !d->replaces_invalid || napier_utf8_check(bytes, size) == size) {
        return NAPIER_OK;
    }
    d->text->size = d->run;
    for (size_t i = 0; i < size; i++) {
        NAPIER_TRY(append_replacement(d));
    }
    return NAPIER_OK;
}

/* Appends a token. The first of a text may lose its marks. */
static napier_status append_token(const decoding *d, int64_t id, bool is_first) {
    const napier_tokenizer *const t = d->tokenizer;
    size_t size;
    const char *const bytes = bytes_of(t, id, &size);
    if (!is_first || !t->decoder.bare_start) {
        return napier_text_buffer_append(d->context, d->text, bytes, size);
    }
    const napier_token *const token = &t->vocabulary.tokens[id];
    napier_step remove = t->decoder.replace[0];
    remove.to.size = 0;
    const uint8_t *const own = (const uint8_t *)t->vocabulary.bytes + token->start;
    return napier_replace(d->context, &remove, own, token->size, SIZE_MAX, d->text);
}

static napier_status append_all(decoding *d, const int32_t *ids, int64_t count, bool skip_special) {
    bool is_first = true;
    d->run = d->text->size;
    for (int64_t i = 0; i < count; i++) {
        NAPIER_REFUSE_IF(d->context, ids[i] < 0, "ids[%lld]: %d is no id", (long long)i, ids[i]);
        const napier_token *const token = napier_token_of(d->tokenizer, ids[i]);
        if (token == NULL || (skip_special && token->flags & NAPIER_TOKEN_SPECIAL)) {
            continue;
        }
        const bool is_byte = token->flags & NAPIER_TOKEN_BYTE || d->tokenizer->decoder.joins_bytes;
        if (!is_byte) {
            NAPIER_TRY(end_run(d));
        }
        NAPIER_TRY(append_token(d, ids[i], is_first));
        d->run = is_byte ? d->run : d->text->size;
        is_first = false;
    }
    return d->tokenizer->decoder.joins_bytes ? NAPIER_OK : end_run(d);
}

/* Removes the space that encoding puts before a text. */
static void strip(const napier_decoder *decoder, napier_text_buffer *text, size_t begin) {
    size_t cut = 0;
    while (cut < decoder->strip && begin + cut < text->size && text->bytes[begin + cut] == decoder->strip_byte) {
        cut++;
    }
    if (cut > 0) {
        memmove(text->bytes + begin, text->bytes + begin + cut, text->size - begin - cut);
        text->size -= cut;
    }
}

/* The number of bytes, from 1 to 3, that one U+FFFD stands for, at a place that is not UTF-8: those that could begin a
 * character (Unicode standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). */
static size_t maximal_subpart(const uint8_t *at, size_t size) {
    const uint8_t c = at[0];
    if (c < 0xc2 || c > 0xf4) {
        return 1;
    }
    const size_t length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint8_t least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    size_t n = 1;
    while (n < length && n < size && at[n] >= least && at[n] <= most) {
        least = 0x80;
        most = 0xbf;
        n++;
    }
    return n;
}

/* Replaces what is not UTF-8 in the text from `begin` on. */
static napier_status replace_invalid(decoding *d, size_t begin) {
    const uint8_t *const bytes = (const uint8_t *)d->text->bytes + begin;
    const size_t size = d->text->size - begin;
    if (napier_utf8_check(bytes, size) == size) {
        return NAPIER_OK;
    }
    napier_text_buffer good = {0};
    decoding to = {.context = d->context, .text = &good};
    napier_status status = NAPIER_OK;
    for (size_t at = 0; at < size && !status;) {
        const size_t valid = napier_utf8_check(bytes + at, size - at);
        status = napier_text_buffer_append(d->context, &good, (const char *)bytes + at, valid);
        at += valid;
        if (at < size && !status) {
            status = append_replacement(&to);
            at += maximal_subpart(bytes + at, size - at);
        }
    }
    d->text->size = begin;
    status = status ? status : napier_text_buffer_append(d->context, d->text, good.bytes, good.size);
    napier_text_buffer_free(d->context, &good);
    return status;
}

napier_status napier_tokenizer_decode(napier_context *context, const napier_tokenizer *tokenizer, const int32_t *ids,
                                      int64_t count, const napier_decode_options *options, napier_text_buffer *text) {
    napier_decode_options o = NAPIER_DECODE_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, tokenizer == NULL, "tokenizer: NULL");
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_decode_options, NAPIER_DECODE_OPTIONS_INIT, replace_invalid),
                                   options, &o));
    NAPIER_REFUSE_IF(context, count < 0 || (ids == NULL && count > 0), "ids: count %lld%s", (long long)count,
                     ids ? "" : ", and NULL");
    NAPIER_TRY(napier_check_text_buffer(context, "text", text));
    const size_t before = text->size;
    decoding d = {context, tokenizer, o.replace_invalid, text, 0};
    napier_status status = append_all(&d, ids, count, o.skip_special);
    if (!status) {
        strip(&tokenizer->decoder, text, before);
        status = d.replaces_invalid && tokenizer->decoder.joins_bytes ? replace_invalid(&d, before) : NAPIER_OK;
    }
    text->size = status ? before : text->size;
    return status;
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

int64_t napier_tokenizer_vocab_size(const napier_tokenizer *tokenizer) {
    return tokenizer == NULL ? 0 : tokenizer->vocabulary.size;
}

const char *napier_tokenizer_token(const napier_tokenizer *tokenizer, int64_t id, size_t *size) {
    const bool is_there = tokenizer != NULL && napier_token_of(tokenizer, id) != NULL;
    size_t count = 0;
    const char *const bytes = is_there ? bytes_of(tokenizer, id, &count) : NULL;
    if (size != NULL) {
        *size = count;
    }
    return bytes;
}

int napier_tokenizer_is_special(const napier_tokenizer *tokenizer, int64_t id) {
    const napier_token *const token = tokenizer == NULL ? NULL : napier_token_of(tokenizer, id);
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

/* The lowest id whose token decodes to these bytes, or -1. */
static int64_t id_of_text(const napier_tokenizer *t, const char *bytes, size_t size) {
    for (int64_t id = 0; id < t->vocabulary.size; id++) {
        const napier_token_text text = t->vocabulary.texts[id];
        const bool is_model = t->vocabulary.tokens[id].flags & NAPIER_TOKEN_MODEL;
        if (is_model && text.size == size && memcmp(t->vocabulary.bytes + text.start, bytes, size) == 0) {
            return id;
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
    if (id < 0) {
        id = napier_vocabulary_find(&tokenizer->vocabulary, (const uint8_t *)bytes, size);
    }
    return id >= 0 || tokenizer->vocabulary.texts == NULL ? id : id_of_text(tokenizer, bytes, size);
}

void napier_tokenizer_destroy(napier_context *context, napier_tokenizer *tokenizer) {
    if (context == NULL || tokenizer == NULL) {
        return;
    }
    const napier_allocator allocator = tokenizer->allocator;
    napier_words_free(&allocator, &tokenizer->words);
    napier_free(&allocator, tokenizer->around.ids);
    napier_free(&allocator, tokenizer->table);
    napier_vocabulary_free(&allocator, &tokenizer->vocabulary);
    napier_merges_free(&allocator, &tokenizer->merges);
    napier_added_free(&allocator, &tokenizer->added);
    napier_added_free(&allocator, &tokenizer->added_normalized);
    napier_free(&allocator, tokenizer);
}
