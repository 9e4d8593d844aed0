/* cli/lm/score_lines.c - see score_lines.h. */
#include "score_lines.h"

#ifdef NAPIER_MODEL

#include "chat_lines.h"
#include "../io/jsonl.h"
#include "../program/machine.h"
#include "../program/message.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 320 };

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Makes space for `wanted` elements of `size` bytes. */
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

/* Checks ids here, where their place in the file is known; the library knows only an id's index. */
static int add_ids(const text_encoder *e, const char *place, const int32_t *ids, int64_t count, id_lists *lists) {
    for (int64_t i = 0; i < count && e->vocabulary > 0; i++) {
        if (ids[i] >= e->vocabulary) {
            return complain("%s: token %" PRId64 " is %" PRId32 ", but the model's ids lie below %" PRId64, place, i,
                            ids[i], e->vocabulary);
        }
    }
    return id_lists_add(lists, ids, count);
}

int text_encoder_add(text_encoder *e, const char *place, const char *text, size_t size, id_lists *lists) {
    const int loaded = e->tokenizer != NULL ? STATUS_OK : load_tokenizer(e);
    if (loaded != STATUS_OK) {
        return loaded;
    }
    e->ids.size = 0;
    const napier_status status = napier_tokenizer_encode(e->context, e->tokenizer, text, size, NULL, &e->ids);
    return status == NAPIER_OK ? add_ids(e, place, e->ids.ids, e->ids.size, lists) : library_error(e, place, status);
}

static int add_numbers(const text_encoder *e, const char *place, const cJSON *list, id_lists *lists) {
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
        status = add_ids(e, place, ids, count, lists);
    }
    free(ids);
    return status;
}

static int add_chat(text_encoder *e, const char *place, const cJSON *list, const cJSON *line, id_lists *lists) {
    chat_lines chat;
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    options.disable_thinking = e->no_thinking;
    e->text.size = 0;
    int status = chat_lines_read(&chat, place, list, line);
    if (status == STATUS_OK) {
        chat_lines_set_tools(&chat, &options);
        const napier_status called = napier_chat_text(e->context, chat.messages, chat.count, &options, &e->text);
        status = called == NAPIER_OK ? text_encoder_add(e, place, e->text.bytes, e->text.size, lists)
                                     : library_error(e, place, called);
    }
    chat_lines_free(&chat);
    return status;
}

int text_encoder_add_json(text_encoder *e, const char *place, const cJSON *value, const cJSON *line, id_lists *lists) {
    if (cJSON_IsArray(value) && line != NULL && cJSON_IsObject(value->child)) {
        return add_chat(e, place, value, line, lists);
    }
    const cJSON *const tools = line != NULL ? cJSON_GetObjectItemCaseSensitive(line, "tools") : NULL;
    if (tools != NULL && !cJSON_IsNull(tools) && !(cJSON_IsArray(tools) && tools->child == NULL)) {
        return complain("%s: tools go with a list of messages only", place);
    }
    if (cJSON_IsString(value)) {
        return text_encoder_add(e, place, value->valuestring, strlen(value->valuestring), lists);
    }
    if (cJSON_IsArray(value)) {
        return add_numbers(e, place, value, lists);
    }
    return complain("%s: neither a text nor a list of token ids%s", place, line != NULL ? " or messages" : "");
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
        status = text_encoder_add_json(e, place, value, NULL, &l->responses);
    }
    return status;
}

static int add_prompt(score_lines *l, text_encoder *e, const char *place, const cJSON *object, int64_t line) {
    const cJSON *const value = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    void *lines = l->line;
    int status = make_room(&lines, &l->line_capacity, l->prompts.count + 1, sizeof *l->line);
    l->line = lines;
    if (status == STATUS_OK) {
        l->line[l->prompts.count] = line;
        status = text_encoder_add_json(e, place, value, object, &l->prompts);
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
    int status = add_prompt(l, e, place, object, r->line);
    const int64_t before = l->responses.size;
    if (status == STATUS_OK && one != NULL) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": response", r->name, r->line);
        status = add_response(l, e, place, one, 0);
    }
    int64_t number = 0;
    for (const cJSON *v = all != NULL ? all->child : NULL; v != NULL && status == STATUS_OK; v = v->next, number++) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": responses[%" PRId64 "]", r->name, r->line, number);
        status = add_response(l, e, place, v, number);
    }
    const bool empty = status == STATUS_OK && l->prompts.offsets[l->prompts.count - 1] == l->prompts.size;
    return empty && !e->has_prefix && l->responses.size > before
               ? complain("%s:%" PRId64 ": the prompt is empty: --prefix-token gives what may stand in for it", r->name,
                          r->line)
               : status;
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
