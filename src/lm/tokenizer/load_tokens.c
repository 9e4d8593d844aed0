/* lm/tokenizer/load_tokens.c - reads the vocabulary, the merges and the added tokens of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/tokenizer/tokenizer.h"
#include "lm/tokenizer/normalize.h"
#include "core/base/scope.h"

/* The counts that determine the memory. */
typedef struct sizes {
    int64_t ids;  /* the highest id plus one */
    size_t count; /* tokens of the model */
    size_t bytes; /* of all tokens' texts */
} sizes;

/* True if the text is UTF-8. cJSON accepts any bytes in a string, but a token must be UTF-8. */
static bool is_text(const char *text) {
    const size_t size = strlen(text);
    return napier_utf8_check((const uint8_t *)text, size) == size;
}

static napier_status take_id(napier_json *json, const char *where, const char *text, const cJSON *id, sizes *s) {
    if (!is_text(text)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: the token '%s' is not UTF-8", where,
                                napier_show_text(text).text);
    }
    if (!napier_json_is_integer(id, 0, NAPIER_MOST_TOKENS - 1)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: '%s': %s is no id from 0 to %d", where,
                                napier_show_text(text).text, napier_show_item(id).text, NAPIER_MOST_TOKENS - 1);
    }
    s->ids = id->valuedouble >= (double)s->ids ? (int64_t)id->valuedouble + 1 : s->ids;
    return NAPIER_OK;
}

/* Fails with the reason for which a table refused an element. */
static napier_status put_fail(napier_json *json, napier_put put, const char *where, const char *twice) {
    return put == NAPIER_PUT_TWICE ? napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %s", where, twice)
                                   : napier_json_fail(json, NAPIER_UNSUPPORTED,
                                                      "%s: %d fall on one place of a table, as if made to be slow",
                                                      where, NAPIER_MOST_PROBES);
}

/* ---- The vocabulary ---------------------------------------------------------------------------------------------- */

static napier_status measure_vocab(napier_json *json, const cJSON *vocab, sizes *s) {
    const cJSON *item;
    if (!cJSON_IsObject(vocab)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "model: vocab is %s, where an object should be",
                                napier_show_item(vocab).text);
    }
    cJSON_ArrayForEach(item, vocab) {
        if (take_id(json, "vocab", item->string, item, s)) {
            return json->status;
        }
        s->bytes += strlen(item->string);
        s->count++;
    }
    return NAPIER_OK;
}

static napier_status read_vocab(napier_json *json, napier_vocabulary *v, const cJSON *vocab) {
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        const int32_t id = (int32_t)item->valuedouble;
        const napier_put put = napier_vocabulary_add(v, id, item->string);
        if (put != NAPIER_PUT_DONE) {
            char where[96];
            snprintf(where, sizeof where, "vocab: '%s', id %d", napier_show_text(item->string).text, id);
            return put_fail(json, put, where, "this token or its id is given twice");
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (v->byte_ids[byte] < 0) {
            return napier_json_fail(json, NAPIER_UNSUPPORTED, "vocab: byte 0x%02x has no token", (unsigned)byte);
        }
    }
    return NAPIER_OK;
}

/* ---- Merges ------------------------------------------------------------------------------------------------------ */

/* Reads the two texts of a merge: ["a", "b"], or "a b" in older files. */
static bool sides_of(const cJSON *item, const char **left, size_t *left_size, const char **right) {
    if (cJSON_IsString(item)) {
        const char *const space = strchr(item->valuestring, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) {
            return false;
        }
        *left = item->valuestring;
        *left_size = (size_t)(space - item->valuestring);
        *right = space + 1;
        return true;
    }
    const cJSON *const first = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *const second = first != NULL ? first->next : NULL;
    if (second == NULL || second->next != NULL || !cJSON_IsString(first) || !cJSON_IsString(second)) {
        return false;
    }
    *left = first->valuestring;
    *left_size = strlen(first->valuestring);
    *right = second->valuestring;
    return true;
}

/* Finds the ids of both sides and of the merged token. Returns false if one is not a token of bytes. `room` is memory
 * for the bytes of both. */
static bool ids_of(const napier_vocabulary *v, const char *left, size_t left_size, const char *right, char *room,
                   napier_merge *merge) {
    const int64_t first = napier_byte_level(left, left_size, room);
    const int64_t second = first < 0 ? -1 : napier_byte_level(right, strlen(right), room + first);
    if (second < 0) {
        return false;
    }
    const uint8_t *const bytes = (const uint8_t *)room;
    merge->left = napier_vocabulary_find(v, bytes, (size_t)first);
    merge->right = napier_vocabulary_find(v, bytes + first, (size_t)second);
    merge->id = napier_vocabulary_find(v, bytes, (size_t)(first + second));
    return merge->left >= 0 && merge->right >= 0 && merge->id >= 0;
}

static napier_status read_merge(napier_json *json, napier_tokenizer *t, const cJSON *item, int32_t rank,
                                napier_scratch *room) {
    const char *left, *right;
    size_t size;
    napier_merge merge = {-1, -1, rank, -1};
    if (!sides_of(item, &left, &size, &right) || !is_text(left) || !is_text(right)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "merges[%d]: %s is not two tokens", rank,
                                napier_show_item(item).text);
    }
    NAPIER_TRY(napier_scratch_reserve(json->context, room, size + strlen(right), 1));
    if (!ids_of(&t->vocabulary, left, size, right, room->data, &merge)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "merges[%d]: '%s' and '%s' or both joined are not in vocab",
                                rank, napier_show(left, size).text, napier_show_text(right).text);
    }
    const napier_put put = napier_merges_add(&t->merges, merge);
    if (put != NAPIER_PUT_DONE) {
        char where[160];
        snprintf(where, sizeof where, "merges[%d]: '%s' and '%s'", rank, napier_show(left, size).text,
                 napier_show_text(right).text);
        return put_fail(json, put, where, "merged before");
    }
    const napier_token *const made = &t->vocabulary.tokens[merge.id];
    if (made->size == 2) {
        const uint8_t *const bytes = (const uint8_t *)t->vocabulary.bytes + made->start;
        napier_merges_note_bytes(&t->merges, bytes[0], bytes[1]);
    }
    return NAPIER_OK;
}

static napier_status read_merges(napier_json *json, napier_tokenizer *t, const cJSON *merges) {
    const cJSON *item;
    napier_scratch room = {0};
    int32_t rank = 0;
    if (!cJSON_IsArray(merges)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "model: merges is %s, where an array should be",
                                napier_show_item(merges).text);
    }
    napier_status status = napier_merges_allocate(json->context, &t->merges, (size_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(item, merges) { status = status ? status : read_merge(json, t, item, rank++, &room); }
    napier_scratch_free(json->context, &room);
    return status;
}

/* Merging a word that is a token usually gives that token. This function finds out once for which tokens that is true.
 * With ignore_merges it always is. */
static napier_status mark_whole(napier_json *json, napier_tokenizer *t, bool ignore_merges) {
    napier_vocabulary *const v = &t->vocabulary;
    napier_token_buffer ids = {0};
    napier_scratch scratch = {0};
    napier_status status = NAPIER_OK;
    for (int64_t id = 0; id < v->size && !status; id++) {
        napier_token *const token = &v->tokens[id];
        const uint8_t *const bytes = (const uint8_t *)v->bytes + token->start;
        if ((token->flags & NAPIER_TOKEN_MODEL) == 0 || napier_vocabulary_find(v, bytes, token->size) != id) {
            continue;
        }
        ids.size = 0;
        status = ignore_merges ? NAPIER_OK
                               : napier_merge_word(json->context, v, &t->merges, bytes, token->size, &scratch, &ids);
        if (!status && (ignore_merges || (ids.size == 1 && ids.ids[0] == id))) {
            token->flags |= NAPIER_TOKEN_WHOLE;
        }
    }
    napier_token_buffer_free(json->context, &ids);
    napier_scratch_free(json->context, &scratch);
    return status;
}

/* ---- Added tokens ------------------------------------------------------------------------------------------------ */

/* An entry of added_tokens. */
typedef struct entry {
    const char *content;
    int32_t id;
    bool special, normalized;
} entry;

static napier_status read_entry(napier_json *json, const cJSON *item, entry *e, sizes *s) {
    *e = (entry){.content = ""};
    napier_json_text(json, item, "content", &e->content);
    if (*e->content == '\0') {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "added_tokens: a token without content");
    }
    const cJSON *const id = napier_json_member(json, item, "id");
    if (json->status || take_id(json, "added_tokens", e->content, id, s)) {
        return json->status;
    }
    e->id = (int32_t)id->valuedouble;
    napier_json_bool(json, item, "special", &e->special);
    e->normalized = !e->special; /* the default */
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool value = false;
        napier_json_bool(json, item, flags[i], &value);
        if (value) {
            napier_json_fail(json, NAPIER_UNSUPPORTED, "added_tokens: '%s': %s is not supported",
                             napier_show_text(e->content).text, flags[i]);
        }
    }
    napier_json_bool(json, item, "normalized", &e->normalized);
    return json->status;
}

static napier_status measure_added(napier_json *json, const cJSON *added, sizes *s, size_t *count) {
    const cJSON *item;
    entry e;
    *count = 0;
    if (added != NULL && !cJSON_IsArray(added)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "added_tokens: %s, where an array should be",
                                napier_show_item(added).text);
    }
    cJSON_ArrayForEach(item, added) {
        if (read_entry(json, item, &e, s)) {
            return json->status;
        }
        s->bytes += 4 * strlen(e.content); /* and its normal form, at most three times as long (annex 15) */
        (*count)++;
    }
    return NAPIER_OK;
}

/* True if an added token's id is free, or is a token of the model with the same text in the file. */
static bool id_fits(const napier_vocabulary *v, const entry *e, char *room) {
    const size_t size = strlen(e->content);
    const int64_t mapped = napier_byte_level(e->content, size, room);
    const int32_t same = mapped < 0 ? -1 : napier_vocabulary_find(v, (const uint8_t *)room, (size_t)mapped);
    const napier_token *const there = &v->tokens[e->id];
    if (same >= 0 || (there->flags & NAPIER_TOKEN_PRESENT) == 0) {
        return same < 0 || same == e->id;
    }
    return mapped < 0 && there->size == size && memcmp(v->bytes + there->start, e->content, size) == 0;
}

/* Writes the text to search for, the content or its normal form, to the vocabulary's memory. */
static napier_status search_text(napier_json *json, napier_tokenizer *t, const entry *e, napier_added_token *out) {
    napier_vocabulary *const v = &t->vocabulary;
    const uint8_t *const content = (const uint8_t *)e->content;
    const size_t size = strlen(e->content);
    napier_text_buffer normal = {0};
    napier_scratch scratch = {0};
    napier_status status = NAPIER_OK;
    if (e->normalized && t->nfc) {
        status = napier_nfc(json->context, t->table, content, size, &scratch, &normal);
    } else {
        status = napier_text_buffer_append(json->context, &normal, e->content, size);
    }
    if (!status && normal.size > v->capacity - v->used) {
        status = napier_json_fail(json, NAPIER_UNSUPPORTED, "added_tokens: '%s': its normal form is too long",
                                  napier_show(e->content, size).text);
    }
    if (!status) {
        out->text = memcpy(v->bytes + v->used, normal.bytes, normal.size);
        out->size = (uint32_t)normal.size;
        v->used += normal.size;
    }
    napier_text_buffer_free(json->context, &normal);
    napier_scratch_free(json->context, &scratch);
    return status;
}

static napier_status add_token(napier_json *json, napier_tokenizer *t, const entry *e) {
    napier_vocabulary *const v = &t->vocabulary;
    napier_added_set *const set = e->normalized ? &t->added_normalized : &t->added;
    napier_token *const token = &v->tokens[e->id];
    char *const at = v->bytes + v->used;
    if (token->flags & NAPIER_TOKEN_ADDED || !id_fits(v, e, at)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "added_tokens: '%s': its id %d belongs to another token",
                                napier_show_text(e->content).text, e->id);
    }
    if ((token->flags & NAPIER_TOKEN_PRESENT) == 0) {
        token->start = (uint32_t)v->used;
        token->size = (uint32_t)strlen(e->content);
        memcpy(at, e->content, token->size);
        v->used += token->size;
    }
    token->flags |= NAPIER_TOKEN_PRESENT | NAPIER_TOKEN_ADDED | (e->special ? NAPIER_TOKEN_SPECIAL : 0);
    napier_added_token *const added = &set->tokens[set->count];
    *added = (napier_added_token){NULL, 0, e->id, e->special};
    const napier_status status = search_text(json, t, e, added);
    set->count += status == NAPIER_OK;
    return status;
}

static napier_status read_added(napier_json *json, napier_tokenizer *t, const cJSON *added, size_t count) {
    const cJSON *item;
    sizes ignored = {0, 0, 0};
    t->added.tokens = napier_alloc(&t->allocator, count + 1, sizeof(napier_added_token));
    t->added_normalized.tokens = napier_alloc(&t->allocator, count + 1, sizeof(napier_added_token));
    if (!t->added.tokens || !t->added_normalized.tokens) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for %zu added tokens", count);
    }
    cJSON_ArrayForEach(item, added) {
        entry e;
        NAPIER_TRY(read_entry(json, item, &e, &ignored));
        NAPIER_TRY(add_token(json, t, &e));
    }
    if (!napier_added_sort(&t->added) || !napier_added_sort(&t->added_normalized)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "added_tokens: the same token twice");
    }
    NAPIER_TRY(napier_added_build(json->context, &t->added));
    return napier_added_build(json->context, &t->added_normalized);
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

napier_status napier_load_tokens(napier_json *json, napier_tokenizer *t, const napier_token_lists *lists) {
    sizes s = {0, 0, 0};
    size_t added = 0;
    if (measure_vocab(json, lists->vocab, &s) || measure_added(json, lists->added, &s, &added)) {
        return json->status;
    }
    NAPIER_TRY(napier_vocabulary_allocate(json->context, &t->vocabulary, s.ids, s.count, s.bytes));
    NAPIER_TRY(read_vocab(json, &t->vocabulary, lists->vocab));
    NAPIER_TRY(read_merges(json, t, lists->merges));
    NAPIER_TRY(mark_whole(json, t, lists->ignore_merges));
    return read_added(json, t, lists->added, added);
}
