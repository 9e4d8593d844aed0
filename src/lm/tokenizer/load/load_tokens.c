/* lm/tokenizer/load/load_tokens.c - reads the vocabulary and the merges of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/tokenizer/tokenizer.h"
#include "core/base/scope.h"

static napier_status put_fail(napier_json *json, napier_put put, const char *where, const char *twice) {
    return put == NAPIER_PUT_TWICE ? napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %s", where, twice)
                                   : napier_json_fail(json, NAPIER_UNSUPPORTED,
                                                      "%s: %d fall on one place of a table, as if made to be slow",
                                                      where, NAPIER_MOST_PROBES);
}

/* ---- The vocabulary ---------------------------------------------------------------------------------------------- */

static napier_status measure_vocab(napier_json *json, const cJSON *vocab, napier_load_sizes *s) {
    const cJSON *item;
    if (!cJSON_IsObject(vocab)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "model: vocab is %s, where an object should be",
                                napier_show_item(vocab).text);
    }
    cJSON_ArrayForEach(item, vocab) {
        if (napier_load_id(json, "vocab", item->string, item, s)) {
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
    return NAPIER_OK;
}

/* Finds the tokens of bytes, and the one for what has none. */
static napier_status read_fallback(napier_json *json, napier_vocabulary *v, const char *unknown) {
    char name[8];
    const size_t size = unknown != NULL ? strlen(unknown) : 0;
    v->unknown = size > 0 ? napier_vocabulary_find(v, (const uint8_t *)unknown, size) : -1;
    for (int byte = 0; byte < 256; byte++) {
        const int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        if (v->of_characters && v->byte_fallback) {
            v->fallback_ids[byte] = napier_vocabulary_find(v, (const uint8_t *)name, (size_t)length);
        }
        v->lacks_bytes = v->lacks_bytes || (v->of_characters ? v->fallback_ids : v->byte_ids)[byte] < 0;
    }
    if (v->lacks_bytes && size > 0 && v->unknown < 0) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "vocab: some byte has no token, nor has unk_token '%s'",
                                napier_show(unknown, size).text);
    }
    if (v->lacks_bytes && !v->of_characters && v->byte_fallback) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "vocab: some byte has no token, and byte_fallback is true");
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

/* Writes the bytes of a token's text in the file, and returns their number, or -1. */
static int64_t bytes_of(const napier_vocabulary *v, const char *text, size_t size, char *room) {
    if (!v->of_characters) {
        return napier_byte_level(text, size, room);
    }
    memcpy(room, text, size);
    return (int64_t)size;
}

/* Finds the ids of both sides and of the merged token. Returns false if one is not a token of bytes. `room` is memory
 * for the bytes of both. */
static bool ids_of(const napier_vocabulary *v, const char *left, size_t left_size, const char *right, char *room,
                   napier_merge *merge) {
    const int64_t first = bytes_of(v, left, left_size, room);
    const int64_t second = first < 0 ? -1 : bytes_of(v, right, strlen(right), room + first);
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
    if (!sides_of(item, &left, &size, &right) || !napier_load_is_text(left) || !napier_load_is_text(right)) {
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

static bool ends_with(const char *text, size_t size, const napier_short_text *end) {
    return size >= end->size && memcmp(text + size - end->size, end->bytes, end->size) == 0;
}

/* NAPIER_CUT_RUNS gives the tokens of the whole text if no merge joins a space with a character before it, the space has
 * a token, and merges decide alone. This is so in Llama 2's file, where a text is one word. */
static void check_cut(napier_tokenizer *t, const cJSON *merges, const napier_token_lists *lists) {
    const napier_short_text *const space = &t->words.space;
    const cJSON *item;
    const char *left = "", *right = "", *const unknown = lists->unk_token != NULL ? lists->unk_token : "";
    size_t size = 0;
    bool joins = lists->ignore_merges || ends_with(unknown, strlen(unknown), space) ||
                 napier_vocabulary_find(&t->vocabulary, (const uint8_t *)space->bytes, space->size) < 0;
    cJSON_ArrayForEach(item, merges) {
        const bool is_pair = sides_of(item, &left, &size, &right);
        joins = joins || (is_pair && napier_starts_with((const uint8_t *)right, strlen(right), space) &&
                          !ends_with(left, size, space));
    }
    if (joins && t->words.cut == NAPIER_CUT_RUNS) {
        t->words.cut = NAPIER_CUT_NONE;
    }
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

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

/* The byte that a text such as "<0x0A>" stands for, or -1. */
static int byte_of(const char *text, size_t size) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const bool has_form = size == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' && text[3] != 0 && text[4] != 0;
    const char *const high = has_form ? strchr(digits, text[3]) : NULL;
    const char *const low = has_form ? strchr(digits, text[4]) : NULL;
    return high != NULL && low != NULL ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* The text of one token, which goes through all of Replace and then may be a byte. */
static napier_status add_text(napier_json *json, napier_tokenizer *t, int64_t id, napier_text_buffer *rooms) {
    napier_vocabulary *const v = &t->vocabulary;
    napier_token *const token = &v->tokens[id];
    rooms[0].size = 0;
    NAPIER_TRY(napier_text_buffer_append(json->context, &rooms[0], v->bytes + token->start, token->size));
    int now = 0;
    for (int i = 0; i < t->decoder.replace_count; i++, now = 1 - now) {
        rooms[1 - now].size = 0;
        NAPIER_TRY(napier_replace(json->context, &t->decoder.replace[i], (const uint8_t *)rooms[now].bytes,
                                  rooms[now].size, SIZE_MAX, &rooms[1 - now]));
    }
    char *const at = v->bytes + v->used;
    size_t size = rooms[now].size;
    const int byte = t->decoder.byte_fallback ? byte_of(rooms[now].bytes, size) : -1;
    if (size > v->capacity - v->used) {
        return napier_json_fail(json, NAPIER_UNSUPPORTED, "vocab: token %lld: its text is too long", (long long)id);
    }
    if (byte >= 0) {
        *at = (char)byte;
        size = 1;
        token->flags |= NAPIER_TOKEN_BYTE;
    } else if (size > 0) {
        memcpy(at, rooms[now].bytes, size);
    }
    v->texts[id] = (napier_token_text){(uint32_t)v->used, (uint32_t)size};
    v->used += size;
    return NAPIER_OK;
}

static napier_status load_texts(napier_json *json, napier_tokenizer *t) {
    napier_vocabulary *const v = &t->vocabulary;
    napier_text_buffer rooms[2] = {{0}, {0}};
    napier_status status = NAPIER_OK;
    v->texts = napier_alloc(&t->allocator, (size_t)v->size + 1, sizeof *v->texts);
    if (v->texts == NULL) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for the texts of %lld tokens",
                                (long long)v->size);
    }
    memset(v->texts, 0, ((size_t)v->size + 1) * sizeof *v->texts);
    for (int64_t id = 0; id < v->size && !status; id++) {
        status = v->tokens[id].flags & NAPIER_TOKEN_PRESENT ? add_text(json, t, id, rooms) : NAPIER_OK;
    }
    napier_text_buffer_free(json->context, &rooms[0]);
    napier_text_buffer_free(json->context, &rooms[1]);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

napier_status napier_load_tokens(napier_json *json, napier_tokenizer *t, const napier_token_lists *lists) {
    napier_load_sizes s = {0, 0, 0};
    size_t added = 0;
    if (measure_vocab(json, lists->vocab, &s) || napier_load_measure_added(json, lists->added, &s, &added)) {
        return json->status;
    }
    s.bytes *= t->decoder.joins_bytes ? 1 : 2; /* and what the tokens decode to, which is no longer */
    NAPIER_TRY(napier_vocabulary_allocate(json->context, &t->vocabulary, s.ids, s.count, s.bytes));
    NAPIER_TRY(read_vocab(json, &t->vocabulary, lists->vocab));
    NAPIER_TRY(read_fallback(json, &t->vocabulary, lists->unk_token));
    NAPIER_TRY(read_merges(json, t, lists->merges));
    check_cut(t, lists->merges, lists);
    NAPIER_TRY(mark_whole(json, t, lists->ignore_merges));
    NAPIER_TRY(napier_load_added(json, t, lists->added, added));
    NAPIER_TRY(napier_load_around(json, t, lists->post_processor));
    return t->decoder.joins_bytes ? NAPIER_OK : load_texts(json, t);
}
