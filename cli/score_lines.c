/* cli/score_lines.c - see score_lines.h. */
#include "score_lines.h"

#ifdef NAPIER_MODEL

#include "jsonl.h"
#include "machine.h"
#include "message.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 320 };

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Room for `wanted` elements of `size` bytes. */
static int make_room(void **memory, int64_t *capacity, int64_t wanted, size_t size) {
    if (wanted <= *capacity) {
        return STATUS_OK;
    }
    const int64_t more = wanted > 2 * *capacity ? wanted + 1024 : 2 * *capacity;
    void *const larger = (uint64_t)more < SIZE_MAX / size ? realloc(*memory, (size_t)more * size) : NULL;
    if (larger == NULL) {
        return complain("out of memory");
    }
    *memory = larger;
    *capacity = more;
    return STATUS_OK;
}

static int room_for_offset(id_lists *l) {
    void *offsets = l->offsets;
    const int status = make_room(&offsets, &l->offsets_capacity, l->count + 2, sizeof *l->offsets);
    l->offsets = offsets;
    return status;
}

int id_lists_start(id_lists *l) {
    const int status = room_for_offset(l);
    if (status == STATUS_OK) {
        l->offsets[0] = 0;
    }
    return status;
}

int id_lists_add(id_lists *l, const int32_t *ids, int64_t count) {
    void *memory = l->ids;
    int status = make_room(&memory, &l->capacity, l->size + count, sizeof *l->ids);
    l->ids = memory;
    if (status == STATUS_OK) {
        status = room_for_offset(l);
    }
    if (status == STATUS_OK) {
        if (count > 0) {
            memcpy(l->ids + l->size, ids, (size_t)count * sizeof *ids);
        }
        l->size += count;
        l->offsets[++l->count] = l->size;
    }
    return status;
}

void id_lists_free(id_lists *l) {
    free(l->ids);
    free(l->offsets);
    memset(l, 0, sizeof *l);
}

napier_indices id_lists_ids(const id_lists *l) { return napier_indices_i32(l->ids, l->size); }
napier_indices id_lists_offsets(const id_lists *l) { return napier_indices_i64(l->offsets, l->count + 1); }

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

void text_encoder_free(text_encoder *e) {
    napier_token_buffer_free(e->context, &e->ids);
    napier_text_buffer_free(e->context, &e->text);
    napier_tokenizer_destroy(e->context, e->tokenizer);
}

static int library_error(const text_encoder *e, const char *place, napier_status status) {
    return complain("%s: %s", place, error_text(e->context, status));
}

static int load_tokenizer(text_encoder *e) {
    static const char name[] = "/tokenizer.json";
    const size_t size = strlen(e->model) + sizeof name;
    char *const path = malloc(size);
    if (path == NULL) {
        return complain("out of memory");
    }
    snprintf(path, size, "%s%s", e->model, name);
    const napier_status status = napier_tokenizer_load(e->context, path, &e->tokenizer);
    free(path);
    return status == NAPIER_OK ? STATUS_OK : complain("%s", error_text(e->context, status));
}

int text_encoder_add(text_encoder *e, const char *place, const char *text, size_t size, id_lists *lists) {
    const int loaded = e->tokenizer != NULL ? STATUS_OK : load_tokenizer(e);
    if (loaded != STATUS_OK) {
        return loaded;
    }
    e->ids.size = 0;
    const napier_status status = napier_tokenizer_encode(e->context, e->tokenizer, text, size, NULL, &e->ids);
    return status == NAPIER_OK ? id_lists_add(lists, e->ids.ids, e->ids.size) : library_error(e, place, status);
}

static int add_numbers(const char *place, const cJSON *list, id_lists *lists) {
    const int count = cJSON_GetArraySize(list);
    int32_t *const ids = malloc(((size_t)count + 1) * sizeof *ids);
    int status = ids != NULL ? STATUS_OK : complain("out of memory");
    int64_t i = 0;
    for (const cJSON *value = list->child; value != NULL && status == STATUS_OK; value = value->next, i++) {
        const double number = cJSON_IsNumber(value) ? value->valuedouble : -1;
        if (number < 0 || number > INT32_MAX || number != (double)(int32_t)number) {
            status = complain("%s[%" PRId64 "] is no token id", place, i);
        } else {
            ids[i] = (int32_t)number;
        }
    }
    if (status == STATUS_OK) {
        status = id_lists_add(lists, ids, count);
    }
    free(ids);
    return status;
}

static int read_message(const char *place, const cJSON *item, int64_t i, napier_chat_message *message) {
    const cJSON *const role = cJSON_GetObjectItemCaseSensitive(item, "role");
    const cJSON *const content = cJSON_GetObjectItemCaseSensitive(item, "content");
    if (!cJSON_IsString(role) || !cJSON_IsString(content)) {
        return complain("%s[%" PRId64 "]: a role and a content, both strings, are wanted", place, i);
    }
    *message = (napier_chat_message){
        .role = role->valuestring, .content = content->valuestring, .size = strlen(content->valuestring)};
    return STATUS_OK;
}

static int add_chat(text_encoder *e, const char *place, const cJSON *list, id_lists *lists) {
    const int count = cJSON_GetArraySize(list);
    napier_chat_message *const messages = malloc((size_t)count * sizeof *messages);
    int status = messages != NULL ? STATUS_OK : complain("out of memory");
    int64_t i = 0;
    for (const cJSON *item = list->child; item != NULL && status == STATUS_OK; item = item->next, i++) {
        status = read_message(place, item, i, &messages[i]);
    }
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    options.disable_thinking = e->no_thinking;
    e->text.size = 0;
    if (status == STATUS_OK) {
        const napier_status called = napier_chat_text(e->context, messages, count, &options, &e->text);
        status = called == NAPIER_OK ? text_encoder_add(e, place, e->text.bytes, e->text.size, lists)
                                     : library_error(e, place, called);
    }
    free(messages);
    return status;
}

int text_encoder_add_json(text_encoder *e, const char *place, const cJSON *value, bool chat, id_lists *lists) {
    if (cJSON_IsString(value)) {
        return text_encoder_add(e, place, value->valuestring, strlen(value->valuestring), lists);
    }
    if (cJSON_IsArray(value) && chat && cJSON_IsObject(value->child)) {
        return add_chat(e, place, value, lists);
    }
    if (cJSON_IsArray(value)) {
        return add_numbers(place, value, lists);
    }
    return complain("%s: neither a text nor a list of token ids%s", place, chat ? " or messages" : "");
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int add_response(score_lines *l, text_encoder *e, const char *place, const cJSON *value, int64_t number) {
    const int64_t b = l->responses.count;
    void *of = l->prompt_of, *numbers = l->number;
    int64_t capacity = l->prompt_of_capacity;
    int status = make_room(&of, &capacity, b + 1, sizeof *l->prompt_of);
    l->prompt_of = of;
    if (status == STATUS_OK) {
        status = make_room(&numbers, &l->prompt_of_capacity, b + 1, sizeof *l->number);
        l->number = numbers;
    }
    if (status == STATUS_OK) {
        l->prompt_of[b] = l->prompts.count - 1;
        l->number[b] = number;
        status = text_encoder_add_json(e, place, value, false, &l->responses);
    }
    return status;
}

static int add_prompt(score_lines *l, text_encoder *e, const char *place, const cJSON *value, int64_t line) {
    void *lines = l->line;
    int status = make_room(&lines, &l->line_capacity, l->prompts.count + 1, sizeof *l->line);
    l->line = lines;
    if (status == STATUS_OK) {
        l->line[l->prompts.count] = line;
        status = text_encoder_add_json(e, place, value, true, &l->prompts);
    }
    return status;
}

static int add_line(score_lines *l, text_encoder *e, const jsonl_reader *r, const cJSON *object) {
    const cJSON *const prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    const cJSON *const one = cJSON_GetObjectItemCaseSensitive(object, "response");
    const cJSON *const all = cJSON_GetObjectItemCaseSensitive(object, "responses");
    char place[PLACE];
    if (prompt == NULL || (one == NULL) == (all == NULL) || (all != NULL && !cJSON_IsArray(all))) {
        return complain("%s:%" PRId64 ": %s", r->name, r->line,
                        prompt == NULL ? "no prompt" : "a response, or a list of responses, is wanted");
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": prompt", r->name, r->line);
    int status = add_prompt(l, e, place, prompt, r->line);
    if (status == STATUS_OK && one != NULL) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": response", r->name, r->line);
        status = add_response(l, e, place, one, 0);
    }
    int64_t number = 0;
    for (const cJSON *v = all != NULL ? all->child : NULL; v != NULL && status == STATUS_OK; v = v->next, number++) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": responses[%" PRId64 "]", r->name, r->line, number);
        status = add_response(l, e, place, v, number);
    }
    return status;
}

int score_lines_read(score_lines *l, const char *path, text_encoder *e) {
    jsonl_reader r;
    const cJSON *object = NULL;
    int status = jsonl_open(&r, path);
    if (status == STATUS_OK) {
        status = id_lists_start(&l->prompts);
    }
    if (status == STATUS_OK) {
        status = id_lists_start(&l->responses);
    }
    while (status == STATUS_OK && (status = jsonl_next(&r, &object)) == STATUS_OK && object != NULL) {
        status = jsonl_has_zero(&r) ? complain("%s:%" PRId64 ": \\u0000 in a string", r.name, r.line)
                                    : add_line(l, e, &r, object);
    }
    if (status == STATUS_OK && l->prompts.count == 0) {
        status = complain("%s: no line with a prompt", r.name);
    }
    jsonl_close(&r);
    return status;
}

void score_lines_free(score_lines *l) {
    id_lists_free(&l->prompts);
    id_lists_free(&l->responses);
    free(l->prompt_of);
    free(l->number);
    free(l->line);
    memset(l, 0, sizeof *l);
}

#else

typedef int score_lines_need_the_model;

#endif
