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

int64_t id_lists_size(const id_lists *l, int64_t i) { return l->offsets[i + 1] - l->offsets[i]; }

int64_t id_lists_new(const id_lists *l, int64_t i) {
    const int32_t *const now = l->ids + l->offsets[i];
    const int64_t size = id_lists_size(l, i), before = i > 0 ? id_lists_size(l, i - 1) : 0;
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
    napier_chat_template_destroy(e->context, e->chat.chat_template);
    napier_tokenizer_destroy(e->context, e->tokenizer);
}

bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_gguf(const char *path) {
    char magic[4] = "";
    FILE *const file = fopen(path, "rb");
    const bool is = file != NULL && fread(magic, 1, 4, file) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is;
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

/* The path of a model's folder, or of its GGUF file, which has the template within; a tokenizer.json has it beside. To be
 * freed; NULL if there is no memory. */
static char *folder_of(const char *path) {
    const size_t size = is_folder(path) || is_gguf(path) ? strlen(path) : (size_t)(napier_path_name(path) - path);
    char *const folder = malloc(size + 2);
    if (folder != NULL) {
        memcpy(folder, size > 0 ? path : ".", size > 0 ? size : 1);
        folder[size > 0 ? size : 1] = '\0';
    }
    return folder;
}

/* A template that is not one of those that are built in is run. */
static int open_form(napier_context *context, const char *path, const napier_tokenizer *tokenizer, chat_form *form) {
    char *const folder = folder_of(path);
    if (folder == NULL) {
        return out_of_memory(path);
    }
    napier_status status = napier_chat_format_load(context, folder, tokenizer, &form->format);
    if (status == NAPIER_UNSUPPORTED) {
        status = napier_chat_template_load(context, folder, &form->chat_template);
        if (status == NAPIER_OK && form->chat_template == NULL) { /* and so no template; the error says so again */
            status = napier_chat_format_load(context, folder, tokenizer, &form->format);
        }
    }
    free(folder);
    return library_status(context, status, "--chat-format");
}

int chat_form_set(napier_context *context, const char *path, const napier_tokenizer *tokenizer, chat_form *form,
                  napier_chat_options *options) {
    if (form->format < 0 && form->chat_template == NULL && open_form(context, path, tokenizer, form)) {
        return STATUS_FAILED;
    }
    options->format = form->format < 0 ? options->format : form->format;
    options->chat_template = form->chat_template;
    return STATUS_OK;
}

bool chat_form_thinks(const chat_form *form) {
    return form->chat_template != NULL ? napier_chat_template_mentions(form->chat_template, "enable_thinking")
                                       : form->format == NAPIER_CHAT_QWEN3;
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

/* Opens what a conversation needs, and sets its format in the options. */
static int prepare_chat(text_encoder *e, napier_chat_options *options) {
    if (open_tokenizer(e) || chat_form_set(e->context, e->model, e->tokenizer, &e->chat, options)) {
        return STATUS_FAILED;
    }
    options->date = e->chat_date;
    options->disable_thinking = e->no_thinking || (options->disable_thinking && chat_form_thinks(&e->chat));
    e->text.size = 0;
    return STATUS_OK;
}

int text_encoder_add_chat(text_encoder *e, const char *place, const napier_chat_message *messages, int64_t count,
                          napier_chat_options options, id_lists *lists) {
    if (prepare_chat(e, &options)) {
        return STATUS_FAILED;
    }
    const napier_status called = napier_chat_text(e->context, messages, count, &options, &e->text);
    return library_status(e->context, called, place) || add_text(e, place, e->text.bytes, e->text.size, NULL, lists);
}

/* Adds what the messages from `prompt` on add to the text of those before, which ends with the start of the assistant's
 * turn. */
static int add_reply_text(text_encoder *e, const char *place, const napier_chat_message *messages, int64_t prompt,
                          int64_t count, napier_chat_options options, id_lists *lists) {
    if (prepare_chat(e, &options) ||
        library_status(e->context, napier_chat_text(e->context, messages, prompt, &options, &e->text), place)) {
        return STATUS_FAILED;
    }
    const size_t size = e->text.size;
    options.add_generation_prompt = options.disable_thinking = 0;
    if (library_status(e->context, napier_chat_text(e->context, messages, count, &options, &e->text), place)) {
        return STATUS_FAILED; /* this text is behind that of the prompt */
    }
    const char *const text = e->text.bytes + size;
    const size_t all = e->text.size - size;
    return all >= size && memcmp(e->text.bytes, text, size) == 0
               ? text_encoder_add(e, place, TEXT_RESPONSE, text + size, all - size, lists)
               : complain("%s: with this reply the chat format writes the prompt in another way; give the reply as a "
                          "text",
                          place);
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

/* Adds the conversation without its last `left_out` messages. */
static int add_chat(text_encoder *e, const char *place, const cJSON *list, const cJSON *line, int64_t left_out,
                    id_lists *lists) {
    chat_lines chat;
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    int status = chat_lines_read(&chat, place, list, line);
    if (status == STATUS_OK) {
        chat_lines_set_tools(&chat, &options);
        status = text_encoder_add_chat(e, place, chat.messages, chat.count - left_out, options, lists);
    }
    chat_lines_free(&chat);
    return status;
}

/* Adds the reply to the conversation `list`: the messages of `reply`, or, if it is NULL, the last one of the list. */
static int add_reply(text_encoder *e, const char *place, const cJSON *list, const cJSON *reply, const cJSON *line,
                     id_lists *lists) {
    chat_lines chat, more = {0};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    int status = chat_lines_read(&chat, place, list, line);
    status = status || reply == NULL ? status : chat_lines_read(&more, place, reply, line);
    const int64_t count = chat.count + more.count;
    napier_chat_message *const all = malloc(((size_t)count + 1) * sizeof *all);
    if (status == STATUS_OK && all == NULL) {
        status = out_of_memory(place);
    } else if (status == STATUS_OK) {
        memcpy(all, chat.messages, (size_t)chat.count * sizeof *all);
        memcpy(all + chat.count, more.messages, (size_t)more.count * sizeof *all);
        chat_lines_set_tools(&chat, &options);
        const int64_t prompt = reply != NULL ? chat.count : count - 1;
        status = strcmp(all[prompt].role, "assistant") == 0
                     ? add_reply_text(e, place, all, prompt, count, options, lists)
                     : complain("%s: the message to score is of role '%s', not assistant", place, all[prompt].role);
    }
    free(all);
    chat_lines_free(&chat);
    chat_lines_free(&more);
    return status;
}

static bool is_chat(const cJSON *value) { return cJSON_IsArray(value) && cJSON_IsObject(value->child); }

int text_encoder_add_json(text_encoder *e, const char *place, const cJSON *value, const cJSON *line, id_lists *lists) {
    if (line != NULL && is_chat(value)) {
        return add_chat(e, place, value, line, 0, lists);
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

/* What a line says, under whatever names. */
typedef struct line_parts {
    const cJSON *object;
    const cJSON *prompt;     /* "prompt" or "messages" */
    const cJSON *one, *many; /* "response" or "completion"; "responses" */
    bool is_reply_last;      /* the response is the last message of "messages" */
} line_parts;

static int add_response(const line_taker *t, const char *place, const line_parts *p, const cJSON *value,
                        int64_t number) {
    score_lines *const l = t->lines;
    const int64_t b = l->responses.count;
    if (!memory_grow(&l->prompt_of, &l->prompt_of_capacity, b + 1, sizeof *l->prompt_of) ||
        !memory_grow(&l->number, &l->number_capacity, b + 1, sizeof *l->number)) {
        return complain("out of memory");
    }
    l->prompt_of[b] = l->prompts.count - 1;
    l->number[b] = number;
    return value == NULL || (is_chat(value) && is_chat(p->prompt))
               ? add_reply(t->encoder, place, p->prompt, value, p->object, &l->responses)
               : text_encoder_add_json(t->encoder, place, value, NULL, &l->responses);
}

static int add_prompt(const line_taker *t, const char *place, const line_parts *p, int64_t line, int64_t index) {
    score_lines *const l = t->lines;
    if (!memory_grow(&l->line, &l->line_capacity, l->prompts.count + 1, sizeof *l->line) ||
        !memory_grow(&l->index, &l->index_capacity, l->prompts.count + 1, sizeof *l->index)) {
        return complain("out of memory");
    }
    l->line[l->prompts.count] = line;
    l->index[l->prompts.count] = index;
    return p->is_reply_last ? add_chat(t->encoder, place, p->prompt, p->object, 1, &l->prompts)
                            : text_encoder_add_json(t->encoder, place, p->prompt, p->object, &l->prompts);
}

/* Finds the parts of a line. */
static int read_parts(const line_taker *t, const jsonl_reader *r, const cJSON *object, line_parts *p) {
    const bool alone = t->encoder->has_prompts_only;
    const cJSON *const prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    const cJSON *const messages = cJSON_GetObjectItemCaseSensitive(object, "messages");
    const cJSON *const response = alone ? NULL : cJSON_GetObjectItemCaseSensitive(object, "response");
    const cJSON *const completion = alone ? NULL : cJSON_GetObjectItemCaseSensitive(object, "completion");
    const cJSON *const many = alone ? NULL : cJSON_GetObjectItemCaseSensitive(object, "responses");
    const int count = (response != NULL) + (completion != NULL) + (many != NULL);
    if ((prompt == NULL) == (messages == NULL)) {
        return jsonl_fault(r, "%s", prompt == NULL ? "no prompt" : "a prompt or messages are wanted, not both");
    }
    if (messages != NULL && !is_chat(messages)) {
        return jsonl_fault(r, "messages: a list of messages is wanted");
    }
    if ((!alone && count != 1 && (count > 0 || messages == NULL)) || (many != NULL && !cJSON_IsArray(many))) {
        return jsonl_fault(r, "a response, or a list of responses, is wanted");
    }
    *p = (line_parts){.object = object,
                      .prompt = prompt != NULL ? prompt : messages,
                      .one = response != NULL ? response : completion,
                      .many = many,
                      .is_reply_last = !alone && count == 0};
    return STATUS_OK;
}

static int add_line(void *user, const jsonl_reader *r, const cJSON *object) {
    const line_taker *const t = user;
    const score_lines *const l = t->lines;
    line_parts p = {0};
    char place[PLACE];
    if (read_parts(t, r, object, &p)) {
        return STATUS_FAILED;
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": %s", r->lines.name, r->lines.line, p.prompt->string);
    int status = add_prompt(t, place, &p, r->lines.line, r->count);
    const int64_t before = l->responses.count;
    if (status == STATUS_OK && (p.one != NULL || p.is_reply_last)) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": %s", r->lines.name, r->lines.line,
                 (p.one != NULL ? p.one : p.prompt)->string);
        status = add_response(t, place, &p, p.one, 0);
    }
    int64_t number = 0;
    for (const cJSON *v = p.many != NULL ? p.many->child : NULL; v != NULL && status == STATUS_OK; v = v->next) {
        snprintf(place, sizeof place, "%s:%" PRId64 ": responses[%" PRId64 "]", r->lines.name, r->lines.line, number);
        status = add_response(t, place, &p, v, number++);
    }
    const bool alone = t->encoder->has_prompts_only;
    const bool empty = status == STATUS_OK && l->prompts.offsets[l->prompts.count - 1] == l->prompts.size;
    return empty && alone ? jsonl_fault(r, "the prompt is empty")
           : empty && !t->encoder->has_prefix && l->responses.size > l->responses.offsets[before]
               ? jsonl_fault(r, "the prompt is empty: --prefix-token gives what may stand in for it")
               : status;
}

int score_lines_read(score_lines *l, const char *path, line_shard shard, text_encoder *e) {
    static const char *const used[] = {"prompt", "messages", "tools", "response", "completion", "responses", NULL};
    static const jsonl_form form = {add_line, used, .runs_model = true, .has_texts = true};
    line_taker t = {l, e};
    int64_t count = 0;
    if (id_lists_start(&l->prompts) || id_lists_start(&l->responses) ||
        jsonl_read_shard(path, &form, shard, &t, &count)) {
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
    const line_parts p = {.object = object, .prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt")};
    status = status ? status : add_prompt(&t, "--prompt", &p, 1, 0);
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
