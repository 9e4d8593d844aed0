/* lm/tokenizer/load/load_added.c - reads the added tokens of a tokenizer.json. */
#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/scope.h"
#include "lm/tokenizer/tokenizer.h"

/* An entry of added_tokens. */
typedef struct entry {
    const char *content;
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} entry;

static napier_status read_entry(napier_json *json, const cJSON *item, entry *e, napier_load_sizes *s) {
    *e = (entry){.content = ""};
    napier_json_text(json, item, "content", &e->content);
    if (*e->content == '\0') {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "added_tokens: a token without content");
    }
    const cJSON *const id = napier_json_member(json, item, "id");
    if (json->status || napier_load_id(json, "added_tokens", e->content, id, s)) {
        return json->status;
    }
    e->id = (int32_t)id->valuedouble;
    napier_json_bool(json, item, "special", &e->special);
    e->normalized = !e->special; /* the default */
    napier_json_bool(json, item, "lstrip", &e->lstrip);
    napier_json_bool(json, item, "rstrip", &e->rstrip);
    napier_json_bool(json, item, "single_word", &e->single_word);
    napier_json_bool(json, item, "normalized", &e->normalized);
    return json->status;
}

napier_status napier_load_measure_added(napier_json *json, const cJSON *added, napier_load_sizes *s, size_t *count) {
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
        s->bytes += e.normalized ? 17 * strlen(e.content) + NAPIER_MOST_STEPS * NAPIER_MOST_STEP_BYTES
                                 : 2 * strlen(e.content); /* the content, and the text to search for */
        (*count)++;
    }
    return NAPIER_OK;
}

/* True if an added token's id is free, or is a token of the model with the same text in the file. */
static bool id_fits(const napier_vocabulary *v, const entry *e, char *room) {
    const size_t size = strlen(e->content);
    const int64_t mapped = v->of_characters ? -1 : napier_byte_level(e->content, size, room);
    if (v->of_characters) {
        const int32_t given = napier_vocabulary_find(v, (const uint8_t *)e->content, size);
        return given >= 0 ? given == e->id : (v->tokens[e->id].flags & NAPIER_TOKEN_PRESENT) == 0;
    }
    const int32_t same = mapped < 0 ? -1 : napier_vocabulary_find(v, (const uint8_t *)room, (size_t)mapped);
    const napier_token *const there = &v->tokens[e->id];
    if (same >= 0 || (there->flags & NAPIER_TOKEN_PRESENT) == 0) {
        return same < 0 || same == e->id;
    }
    return mapped < 0 && there->size == size && memcmp(v->bytes + there->start, e->content, size) == 0;
}

/* Writes the text to search for, the content or what the steps make of it, to the vocabulary's memory. */
static napier_status search_text(napier_json *json, napier_tokenizer *t, const entry *e, napier_added_token *out) {
    napier_vocabulary *const v = &t->vocabulary;
    const napier_steps none = {.count = 0}, *const steps = e->normalized ? &t->steps : &none;
    napier_steps_memory memory = {0};
    const uint8_t *text = NULL;
    size_t size = 0;
    napier_status status = napier_steps_apply(json->context, steps, t->table, false, &memory,
                                              (const uint8_t *)e->content, strlen(e->content), &text, &size);
    if (!status && (size == 0 || size > v->capacity - v->used)) {
        status = napier_json_fail(json, NAPIER_UNSUPPORTED, "added_tokens: '%s': the normalizer makes it %s",
                                  napier_show_text(e->content).text, size == 0 ? "empty" : "too long");
    }
    if (!status) {
        out->text = memcpy(v->bytes + v->used, text, size);
        out->size = (uint32_t)size;
        v->used += size;
    }
    napier_steps_memory_free(json->context, &memory);
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
    *added = (napier_added_token){NULL, 0, e->id, e->special, e->lstrip, e->rstrip, e->single_word};
    const napier_status status = search_text(json, t, e, added);
    set->count += status == NAPIER_OK;
    return status;
}

napier_status napier_load_added(napier_json *json, napier_tokenizer *t, const cJSON *added, size_t count) {
    const cJSON *item;
    napier_load_sizes ignored = {0, 0, 0};
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
