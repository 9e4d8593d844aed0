/* cli/lm/chat_lines.c - see chat_lines.h. */
#include "chat_lines.h"

#ifdef NAPIER_MODEL

#include "program/message.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *member(const cJSON *object, const char *key) {
    const cJSON *const item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static bool is_one_of(const char *word, const char *const *words) {
    while (*words != NULL && strcmp(word, *words) != 0) {
        words++;
    }
    return *words != NULL;
}

/* ---- A message --------------------------------------------------------------------------------------------------- */

/* The template reads the first four and ignores the other two. */
static int check_keys(const char *place, int64_t i, const cJSON *item) {
    static const char *const known[] = {"role",         "content", "reasoning_content", "tool_calls", "name",
                                        "tool_call_id", NULL};
    for (const cJSON *key = item->child; key != NULL; key = key->next) {
        if (!cJSON_IsNull(key) && !is_one_of(key->string, known)) {
            char shown[40];
            return complain("%s[%" PRId64 "]: '%s' has no place in a chat format; leave it out", place, i,
                            printable(shown, sizeof shown, key->string, strlen(key->string)));
        }
    }
    return STATUS_OK;
}

/* Reads {"name": "f", "arguments": "{}"}, or such an object as "function" of another. */
static int read_call(const char *place, int64_t i, const cJSON *item, napier_tool_call *call) {
    const cJSON *const function = member(item, "function");
    const cJSON *const name = member(function != NULL ? function : item, "name");
    const cJSON *const arguments = member(function != NULL ? function : item, "arguments");
    if (!cJSON_IsString(name) || !cJSON_IsString(arguments)) {
        return complain("%s[%" PRId64 "]: tool_calls: a name and arguments are wanted, both strings: \"arguments\": "
                        "\"{\\\"x\\\": 1}\", the JSON as the template would write it",
                        place, i);
    }
    *call = (napier_tool_call){name->valuestring, strlen(name->valuestring), arguments->valuestring,
                               strlen(arguments->valuestring)};
    return STATUS_OK;
}

static int64_t count_calls(const cJSON *item) {
    const cJSON *const calls = member(item, "tool_calls");
    return cJSON_IsArray(calls) ? cJSON_GetArraySize(calls) : 0;
}

/* Reads a message; its tool calls go to calls[0], calls[1], ... */
static int read_message(const char *place, int64_t i, const cJSON *item, napier_tool_call *calls,
                        napier_chat_message *m) {
    const cJSON *const role = member(item, "role"), *const content = member(item, "content");
    const cJSON *const reasoning = member(item, "reasoning_content"), *const list = member(item, "tool_calls");
    const int64_t count = count_calls(item);
    if (!cJSON_IsString(role) || !(cJSON_IsString(content) || (content == NULL && count > 0))) {
        return complain("%s[%" PRId64 "]: a role and a content, both strings, are wanted", place, i);
    }
    if ((reasoning != NULL && !cJSON_IsString(reasoning)) || (list != NULL && !cJSON_IsArray(list))) {
        return complain("%s[%" PRId64 "]: %s is wanted", place, i,
                        list != NULL && !cJSON_IsArray(list) ? "tool_calls: a list" : "reasoning_content: a string");
    }
    const char *const text = content != NULL ? content->valuestring : "";
    *m = (napier_chat_message){.role = role->valuestring, .content = text, .size = strlen(text)};
    m->reasoning = reasoning != NULL ? reasoning->valuestring : NULL;
    m->reasoning_size = reasoning != NULL ? strlen(reasoning->valuestring) : 0;
    m->tool_calls = calls;
    m->tool_call_count = count;
    int status = check_keys(place, i, item);
    for (const cJSON *call = list != NULL ? list->child : NULL; call != NULL && status == STATUS_OK;
         call = call->next) {
        status = read_call(place, i, call, calls++);
    }
    return status;
}

static int read_messages(chat_lines *chat, const char *place, const cJSON *list) {
    int64_t calls = 0, i = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        calls += count_calls(item);
        chat->count++;
    }
    chat->messages = malloc(((size_t)chat->count + 1) * sizeof *chat->messages);
    chat->calls = malloc(((size_t)calls + 1) * sizeof *chat->calls);
    int status = chat->messages != NULL && chat->calls != NULL ? STATUS_OK : out_of_memory(place);
    napier_tool_call *next = chat->calls;
    for (const cJSON *item = list->child; item != NULL && status == STATUS_OK; item = item->next, i++) {
        status = read_message(place, i, item, next, &chat->messages[i]);
        next += count_calls(item);
    }
    return status;
}

/* ---- The line ---------------------------------------------------------------------------------------------------- */

static int read_tools(chat_lines *chat, const char *place, const cJSON *list) {
    size_t size = 1;
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : list; item != NULL; item = item->next) {
        if (!cJSON_IsArray(list) || !cJSON_IsString(item) || strpbrk(item->valuestring, "\r\n") != NULL) {
            return complain("%s: tools: a list of strings is wanted, each the JSON of a tool as the template would "
                            "write it, on one line",
                            place);
        }
        size += strlen(item->valuestring) + 1;
    }
    if (size == 1) {
        return STATUS_OK;
    }
    chat->tools = malloc(size);
    if (chat->tools == NULL) {
        return out_of_memory(place);
    }
    char *to = chat->tools;
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        const size_t length = strlen(item->valuestring);
        memcpy(to, item->valuestring, length);
        to += length;
        *to++ = item->next != NULL ? '\n' : '\0';
    }
    return STATUS_OK;
}

int chat_lines_read(chat_lines *chat, const char *place, const cJSON *list, const cJSON *line) {
    *chat = (chat_lines){0};
    return read_tools(chat, place, member(line, "tools")) || read_messages(chat, place, list);
}

void chat_lines_free(chat_lines *chat) {
    free(chat->messages);
    free(chat->calls);
    free(chat->tools);
}

void chat_lines_set_tools(const chat_lines *chat, napier_chat_options *options) {
    options->tools = chat->tools;
    options->tools_size = chat->tools != NULL ? strlen(chat->tools) : 0;
}

#endif
