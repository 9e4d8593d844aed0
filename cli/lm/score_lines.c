/* cli/lm/score_lines.c - see score_lines.h. */
#define _POSIX_C_SOURCE 200809L

#include "score_lines.h"

#ifdef NAPIER_MODEL

#include "chat_lines.h"
#include "io/jsonl.h"
#include "io/source.h"
#include "program/command.h"
#include "program/memory.h"
#include "program/message.h"
#include "program/system.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 320 };

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

int id_lists_start(id_lists *l) {
    if (!memory_grow(&l->offsets, &l->offsets_capacity, l->count + 1, sizeof *l->offsets)) {
        return complain("out of memory");
    }
    l->offsets[0] = 0;
    return STATUS_OK;
}

int id_lists_add(id_lists *l, const int32_t *ids, int64_t count) {
    if (!memory_grow(&l->ids, &l->capacity, l->size + count, sizeof *l->ids) ||
        !memory_grow(&l->offsets, &l->offsets_capacity, l->count + 2, sizeof *l->offsets)) {
        return complain("out of memory");
    }
    if (count > 0) {
        memcpy(l->ids + l->size, ids, (size_t)count * sizeof *ids);
    }
    l->size += count;
    l->offsets[++l->count] = l->size;
    return STATUS_OK;
}

void id_lists_free(id_lists *l) {
    free(l->ids);
    free(l->offsets);
    memset(l, 0, sizeof *l);
}

napier_indices id_lists_ids(const id_lists *l) { return napier_indices_i32(l->ids, l->size); }
napier_indices id_lists_offsets(const id_lists *l) { return napier_indices_i64(l->offsets, l->count + 1); }

int64_t id_lists_new(const id_lists *l, int64_t i) {
    const int32_t *const now = l->ids + l->offsets[i];
    const int64_t size = l->offsets[i + 1] - l->offsets[i];
    const int64_t before = i > 0 ? l->offsets[i] - l->offsets[i - 1] : 0;
    int64_t same = 0;
    while (same < size && same < before && now[same] == now[same - before]) {
        same++;
    }
    return size - same;
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

void text_encoder_free(text_encoder *e) {
    napier_token_buffer_free(e->context, &e->ids);
    napier_text_buffer_free(e->context, &e->text);
    napier_tokenizer_destroy(e->context, e->tokenizer);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int tokenizer_open(napier_context *context, const char *path, napier_tokenizer **tokenizer) {
    const size_t size = strlen(path) + sizeof "/tokenizer.json";
    char *const file = malloc(size);
    if (file == NULL) {
        return out_of_memory(path);
    }
    snprintf(file, size, "%s%s", path, is_folder(path) ? "/tokenizer.json" : "");
    const napier_status status = napier_tokenizer_load(context, file, tokenizer);
    free(file);
    return library_status(context, status, NULL);
}

int chat_format_open(napier_context *context, const char *path, const napier_tokenizer *tokenizer, int64_t *format) {
    const size_t size = is_folder(path) ? strlen(path) : (size_t)(napier_path_name(path) - path);
    char *const folder = malloc(size + 2);
    if (folder == NULL) {
        return out_of_memory(path);
    }
    memcpy(folder, size > 0 ? path : ".", size > 0 ? size : 1);
    folder[size > 0 ? size : 1] = '\0';
    const napier_status status = napier_chat_format_load(context, folder, tokenizer, format);
    free(folder);
    return library_status(context, status, "--chat-format");
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

static int open_tokenizer(text_encoder *e) {
    return e->tokenizer == NULL ? tokenizer_open(e->context, e->model, &e->tokenizer) : STATUS_OK;
}

static int add_text(text_encoder *e, const char *place, const char *text, size_t size,
                    const napier_encode_options *options, id_lists *lists) {
    e->ids.size = 0;
    const napier_status status = napier_tokenizer_encode(e->context, e->tokenizer, text, size, options, &e->ids);
    return library_status(e->context, status, place) || add_ids(e, place, e->ids.ids, e->ids.size, lists);
}

int text_encoder_add(text_encoder *e, const char *place, text_part part, const char *text, size_t size,
                     id_lists *lists) {
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    options.continues = part == TEXT_RESPONSE;
    options.add_special = part == TEXT_PROMPT && !e->no_bos ? NAPIER_ADD_ONCE : NAPIER_ADD_NONE;
    return open_tokenizer(e) || add_text(e, place, text, size, &options, lists);
}

int text_encoder_add_chat(text_encoder *e, const char *place, const napier_chat_message *messages, int64_t count,
                          napier_chat_options options, id_lists *lists) {
    int64_t format = e->chat_format;
    if (open_tokenizer(e) || (format < 0 && chat_format_open(e->context, e->model, e->tokenizer, &format))) {
        return STATUS_FAILED;
    }
    e->chat_format = (int)format;
    options.format = format;
    options.date = e->chat_date;
    options.disable_thinking = e->no_thinking || (options.disable_thinking && format == NAPIER_CHAT_QWEN3);
    e->text.size = 0;
    const napier_status called = napier_chat_text(e->context, messages, count, &options, &e->text);
    return library_status(e->context, called, place) || add_text(e, place, e->text.bytes, e->text.size, NULL, lists);
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
    int status = chat_lines_read(&chat, place, list, line);
    if (status == STATUS_OK) {
        chat_lines_set_tools(&chat, &options);
        status = text_encoder_add_chat(e, place, chat.messages, chat.count, options, lists);
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
        const text_part part = line != NULL ? TEXT_PROMPT : TEXT_RESPONSE;
        return text_encoder_add(e, place, part, value->valuestring, strlen(value->valuestring), lists);
    }
    if (cJSON_IsArray(value)) {
        return add_numbers(e, place, value, lists);
    }
    return complain("%s: neither a text nor a list of token ids%s", place, line != NULL ? " or messages" : "");
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

typedef struct line_taker {
    score_lines *lines;
    text_encoder *encoder;
} line_taker;

static int add_response(const line_taker *t, const char *place, const cJSON *value, int64_t number) {
    score_lines *const l = t->lines;
    const int64_t b = l->responses.count;
    if (!memory_grow(&l->prompt_of, &l->prompt_of_capacity, b + 1, sizeof *l->prompt_of) ||
        !memory_grow(&l->number, &l->number_capacity, b + 1, sizeof *l->number)) {
        return complain("out of memory");
    }
    l->prompt_of[b] = l->prompts.count - 1;
    l->number[b] = number;
    return text_encoder_add_json(t->encoder, place, value, NULL, &l->responses);
}

static int add_prompt(const line_taker *t, const char *place, const cJSON *object, int64_t line, int64_t index) {
    score_lines *const l = t->lines;
    if (!memory_grow(&l->line, &l->line_capacity, l->prompts.count + 1, sizeof *l->line) ||
        !memory_grow(&l->index, &l->index_capacity, l->prompts.count + 1, sizeof *l->index)) {
        return complain("out of memory");
    }
    l->line[l->prompts.count] = line;
    l->index[l->prompts.count] = index;
    const cJSON *const value = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    return text_encoder_add_json(t->encoder, place, value, object, &l->prompts);
}

static int add_line(void *user, const jsonl_reader *r, const cJSON *object) {
    const line_taker *const t = user;
    const score_lines *const l = t->lines;
    const cJSON *const prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    const bool alone = t->encoder->has_prompts_only;
    const cJSON *const one = alone ? NULL : cJSON_GetObjectItemCaseSensitive(object, "response");
    const cJSON *const all = alone ? NULL : cJSON_GetObjectItemCaseSensitive(object, "responses");
    char place[PLACE];
    if (prompt == NULL || (!alone && ((one == NULL) == (all == NULL) || (all != NULL && !cJSON_IsArray(all))))) {
        return jsonl_fault(r, "%s", prompt == NULL ? "no prompt" : "a response, or a list of responses, is wanted");
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": prompt", r->lines.name, r->lines.line);
    int status = add_prompt(t, place, object, r->lines.line, r->count);
    const int64_t before = l->responses.size;
    if (status == STATUS_OK && one != NULL) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": response", r->lines.name, r->lines.line);
        status = add_response(t, place, one, 0);
    }
    int64_t number = 0;
    for (const cJSON *v = all != NULL ? all->child : NULL; v != NULL && status == STATUS_OK; v = v->next, number++) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": responses[%" PRId64 "]", r->lines.name, r->lines.line, number);
        status = add_response(t, place, v, number);
    }
    const bool empty = status == STATUS_OK && l->prompts.offsets[l->prompts.count - 1] == l->prompts.size;
    return empty && alone ? jsonl_fault(r, "the prompt is empty")
           : empty && !t->encoder->has_prefix && l->responses.size > before
               ? jsonl_fault(r, "the prompt is empty: --prefix-token gives what may stand in for it")
               : status;
}

int score_lines_read(score_lines *l, const char *path, line_shard shard, text_encoder *e) {
    line_taker t = {l, e};
    int64_t count = 0;
    if (id_lists_start(&l->prompts) || id_lists_start(&l->responses) ||
        jsonl_read_shard(path, true, shard, add_line, &t, &count)) {
        return STATUS_FAILED;
    }
    return count > 0 ? STATUS_OK : complain("%s: no line with a prompt", source_name(path));
}

int score_lines_prompt(score_lines *l, const char *text, bool chat, text_encoder *e) {
    const line_taker t = {l, e};
    cJSON *const object = cJSON_CreateObject();
    cJSON *const messages = chat ? cJSON_AddArrayToObject(object, "prompt") : NULL;
    cJSON *const message = cJSON_CreateObject();
    bool made =
        chat ? cJSON_AddStringToObject(message, "role", "user") && cJSON_AddStringToObject(message, "content", text)
             : cJSON_AddStringToObject(object, "prompt", text) != NULL;
    made = made && (!chat || cJSON_AddItemToArray(messages, message));
    int status = made ? id_lists_start(&l->prompts) || id_lists_start(&l->responses) : complain("out of memory");
    status = status ? status : add_prompt(&t, "--prompt", object, 1, 0);
    if (!chat || !made) {
        cJSON_Delete(message);
    }
    cJSON_Delete(object);
    return status == STATUS_OK && l->prompts.size == 0 ? complain("--prompt: the prompt is empty") : status;
}

void score_lines_free(score_lines *l) {
    id_lists_free(&l->prompts);
    id_lists_free(&l->responses);
    free(l->prompt_of);
    free(l->number);
    free(l->line);
    free(l->index);
    memset(l, 0, sizeof *l);
}

#endif
