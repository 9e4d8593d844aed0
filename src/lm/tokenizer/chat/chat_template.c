/* lm/tokenizer/chat/chat_template.c - a model's own chat template: where it is found, and the conversation that it sees. */
#define _POSIX_C_SOURCE 200809L

#include <cjson/cJSON.h>

#include "core/base/platform.h"
#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/text/file.h"
#include "lm/text/json.h"
#include "lm/tokenizer/jinja/jinja.h"

enum { MOST_SPECIAL = 32 };

struct napier_chat_template {
    char *text, *place; /* place: its file, or "chat_template" */
    size_t size;
    int special_count;
    char *special[MOST_SPECIAL][2]; /* name and text of bos_token and others */
};

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static char *copy(napier_context *context, const char *bytes, size_t size) {
    char *const made = napier_alloc(&context->allocator, size + 1, 1);
    if (made != NULL) {
        memcpy(made, bytes, size);
        made[size] = '\0';
    }
    return made;
}

/* Sets a special token; the one that is set first counts. */
static napier_status add_special(napier_context *context, napier_chat_template *t, const char *name, const char *text) {
    for (int i = 0; i < t->special_count; i++) {
        if (strcmp(t->special[i][0], name) == 0) {
            return NAPIER_OK;
        }
    }
    if (t->special_count == MOST_SPECIAL) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "more than %d special tokens with names", MOST_SPECIAL);
    }
    char **const pair = t->special[t->special_count];
    pair[0] = copy(context, name, strlen(name));
    pair[1] = copy(context, text, strlen(text));
    t->special_count++;
    return pair[0] != NULL && pair[1] != NULL
               ? NAPIER_OK
               : napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for a special token");
}

void napier_chat_template_destroy(napier_context *context, napier_chat_template *t) {
    for (int i = 0; t != NULL && i < t->special_count; i++) {
        napier_free(&context->allocator, t->special[i][0]);
        napier_free(&context->allocator, t->special[i][1]);
    }
    if (t != NULL) {
        napier_free(&context->allocator, t->text);
        napier_free(&context->allocator, t->place);
        napier_free(&context->allocator, t);
    }
}

static napier_status make(napier_context *context, const char *text, size_t size, const char *place,
                          napier_chat_template **out) {
    napier_chat_template *const t = napier_alloc(&context->allocator, 1, sizeof *t);
    *out = t;
    if (t != NULL) {
        *t = (napier_chat_template){
            .text = copy(context, text, size), .place = copy(context, place, strlen(place)), .size = size};
    }
    return t != NULL && t->text != NULL && t->place != NULL
               ? NAPIER_OK
               : napier_fail(context, NAPIER_OUT_OF_MEMORY, "chat_template: no memory for %zu bytes", size);
}

napier_status napier_chat_template_create(napier_context *context, const char *text, size_t size, const char *bos,
                                          const char *eos, napier_chat_template **out) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, text == NULL || out == NULL, "%s: NULL", text == NULL ? "text" : "out");
    napier_status status = make(context, text, size, "chat_template", out);
    status = status || bos == NULL ? status : add_special(context, *out, "bos_token", bos);
    status = status || eos == NULL ? status : add_special(context, *out, "eos_token", eos);
    if (status) {
        napier_chat_template_destroy(context, *out);
        *out = NULL;
    }
    return status;
}

/* ---- Of a folder ------------------------------------------------------------------------------------------------- */

static const size_t most_bytes = (size_t)1 << 26;

/* The template of tokenizer_config.json: a text, or the one called "default" in a list of {"name", "template"}. */
static const char *template_of(napier_json *json) {
    const cJSON *const value = napier_json_member(json, json->root, "chat_template");
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    for (const cJSON *item = cJSON_IsArray(value) ? value->child : NULL; item != NULL && text == NULL;
         item = item->next) {
        const char *name = "";
        napier_json_text(json, item, "name", &name);
        if (strcmp(name, "default") == 0) {
            napier_json_text(json, item, "template", &text);
        }
    }
    return text;
}

/* Takes the members whose names end with _token: texts, or objects with a content. */
static napier_status take_special(napier_context *context, napier_json *json, napier_chat_template *t) {
    napier_status status = NAPIER_OK;
    for (const cJSON *item = json->root->child; item != NULL && !status; item = item->next) {
        const size_t size = strlen(item->string);
        const cJSON *const content = cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "content") : item;
        if (size > 6 && strcmp(item->string + size - 6, "_token") == 0 && cJSON_IsString(content)) {
            status = add_special(context, t, item->string, content->valuestring);
        }
    }
    return status;
}

/* Parses a file of JSON, or the tokenizer_config.json that a GGUF file says. */
static napier_status parse(napier_context *context, const char *path, napier_json *json) {
    napier_text_buffer text = {NULL, 0, 0};
    if (!napier_gguf_is(path)) {
        return napier_json_load(json, context, path, most_bytes);
    }
    *json = (napier_json){.context = context};
    napier_status status = napier_gguf_document(context, path, "tokenizer_config.json", &text);
    status = status ? status : napier_json_parse(json, context, path, text.bytes, text.size);
    napier_text_buffer_free(context, &text);
    return status;
}

/* Takes the template of a file of JSON, if none is there yet, and its special tokens. */
static napier_status take_config(napier_context *context, const char *path, napier_chat_template **out) {
    napier_json json;
    napier_status status = parse(context, path, &json);
    if (!status && *out == NULL) {
        const char *const text = template_of(&json);
        status = json.status || text == NULL ? json.status : make(context, text, strlen(text), path, out);
    }
    if (!status && *out != NULL) {
        status = take_special(context, &json, *out);
    }
    napier_json_free(&json);
    return status;
}

static napier_status take_file(napier_context *context, const char *path, napier_chat_template **out) {
    char *bytes = NULL;
    size_t size = 0;
    NAPIER_TRY(napier_read_file(context, path, most_bytes, &bytes, &size));
    const napier_status status = make(context, bytes, size, path, out);
    napier_free(&context->allocator, bytes);
    return status;
}

/* with_special: also looks for special tokens where a file has the template already. */
static napier_status take_folder(napier_context *context, const char *directory, bool with_special,
                                 napier_chat_template **out) {
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"};
    NAPIER_MEMORY(memory, context);
    if (napier_gguf_is(directory)) {
        return take_config(context, directory, out);
    }
    for (int i = 0; i < 3; i++) {
        char *path = NULL;
        NAPIER_TRY(napier_join_path(&memory, directory, names[i], &path));
        if (access(path, F_OK) == 0 && (*out == NULL ? i < 2 : with_special)) {
            NAPIER_TRY(i == 0 ? take_file(context, path, out) : take_config(context, path, out));
        }
    }
    return NAPIER_OK;
}

napier_status napier_chat_template_find(napier_context *context, const char *directory, bool with_special,
                                        napier_chat_template **out) {
    *out = NULL;
    const napier_status status = take_folder(context, directory, with_special, out);
    if (status) {
        napier_chat_template_destroy(context, *out);
        *out = NULL;
    }
    return status;
}

napier_status napier_chat_template_load(napier_context *context, const char *directory, napier_chat_template **out) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, directory == NULL || out == NULL, "%s: NULL", directory == NULL ? "directory" : "out");
    return napier_chat_template_find(context, directory, true, out);
}

const char *napier_chat_template_text(const napier_chat_template *t, size_t *size, const char **place) {
    *size = t->size;
    *place = t->place;
    return t->text;
}

/* ---- Rendering --------------------------------------------------------------------------------------------------- */

static napier_span key(const char *text) { return (napier_span){text, strlen(text)}; }

static jinja_value tool_calls(jinja *j, const napier_chat_message *m, bool is_builtin) {
    const jinja_value list = napier_jinja_list(j);
    for (int64_t i = 0; i < m->tool_call_count && !j->status; i++) {
        const napier_tool_call *const call = &m->tool_calls[i];
        const jinja_value function = napier_jinja_dict(j, JINJA_DICT), item = napier_jinja_dict(j, JINJA_DICT);
        napier_jinja_put(j, function, key("name"), napier_jinja_span((napier_span){call->name, call->name_size}));
        const napier_span arguments = {call->arguments, call->arguments_size};
        napier_jinja_put(j, function, key("arguments"),
                         is_builtin ? napier_jinja_span(arguments) : napier_jinja_json(j, arguments));
        napier_jinja_put(j, item, key("type"), napier_jinja_text("function"));
        napier_jinja_put(j, item, key("function"), function);
        napier_jinja_add(j, list, item);
    }
    return list;
}

static jinja_value message(jinja *j, const napier_chat_message *m, bool is_builtin) {
    const jinja_value made = napier_jinja_dict(j, JINJA_DICT);
    const jinja_value thoughts = napier_jinja_span((napier_span){m->reasoning, m->reasoning_size});
    napier_jinja_put(j, made, key("role"), napier_jinja_text(m->role));
    if (m->content != NULL || is_builtin) {
        const napier_span content = {m->content != NULL ? m->content : "", m->size};
        napier_jinja_put(j, made, key("content"), napier_jinja_span(content));
    }
    if (m->reasoning != NULL) { /* templates know them by one of these names */
        napier_jinja_put(j, made, key("reasoning_content"), thoughts);
        napier_jinja_put(j, made, key("thinking"), thoughts);
    }
    if (m->tool_call_count > 0) {
        napier_jinja_put(j, made, key("tool_calls"), tool_calls(j, m, is_builtin));
    }
    return made;
}

/* A JSON on each line; a template that looks for tools finds none where there are none. */
static void set_tools(jinja *j, napier_span tools) {
    const jinja_value list = napier_jinja_list(j);
    while (tools.size > 0 && !j->status) {
        const char *const end = memchr(tools.bytes, '\n', tools.size);
        const size_t size = end != NULL ? (size_t)(end - tools.bytes) : tools.size, taken = size + (end != NULL);
        napier_jinja_add(j, list, napier_jinja_json(j, (napier_span){tools.bytes, size}));
        tools = (napier_span){tools.bytes + taken, tools.size - taken};
    }
    const bool is_empty = list.kind != JINJA_LIST || list.as.list->count == 0;
    napier_jinja_set(j, "tools", is_empty ? (jinja_value){.kind = JINJA_NONE} : list);
}

static bool mentions(const napier_chat_template *t, const char *name) {
    return napier_jinja_find((napier_span){t->text, t->size}, key(name), 0) >= 0;
}

int napier_chat_template_mentions(const napier_chat_template *t, const char *name) { return mentions(t, name); }

static napier_status check(napier_context *context, const napier_chat_template *t, const napier_chat_options *o) {
    NAPIER_REFUSE_IF(context, o->tools_size > 0 && !mentions(t, "tools"),
                     "options: tools have no place in this chat template");
    NAPIER_REFUSE_IF(context, o->disable_thinking && !mentions(t, "enable_thinking"),
                     "options: disable_thinking is set, but this chat template has no enable_thinking");
    NAPIER_REFUSE_IF(context, o->date != NULL && !mentions(t, "date_string") && !mentions(t, "strftime_now"),
                     "options: date is '%.40s', but this chat template writes no date; leave it out", o->date);
    return NAPIER_OK;
}

/* The members of an object in JSON. */
static void set_given(jinja *j, napier_span json) {
    const jinja_value given = napier_jinja_json(j, json);
    if (given.kind != JINJA_DICT) {
        napier_jinja_fail(j, "variables: no object of JSON");
        return;
    }
    for (int64_t i = 0; i < given.as.dict->count && !j->status; i++) {
        napier_jinja_assign(j, given.as.dict->pairs[i].key, given.as.dict->pairs[i].value);
    }
}

static void set_messages(jinja *j, const napier_chat_message *messages, int64_t count, bool is_builtin) {
    const jinja_value list = napier_jinja_list(j);
    for (int64_t i = 0; i < count && !j->status; i++) {
        napier_jinja_add(j, list, message(j, &messages[i], is_builtin));
    }
    napier_jinja_set(j, "messages", list);
}

static void set_options(jinja *j, const napier_chat_options *o) {
    const napier_span tools = {o->tools, o->tools_size};
    if (o->chat_template != NULL) {
        set_tools(j, tools);
    } else if (tools.size > 0) {
        napier_jinja_set(j, "tools", napier_jinja_span(tools));
    }
    napier_jinja_set(j, "documents", (jinja_value){.kind = JINJA_NONE});
    napier_jinja_set(j, "add_generation_prompt", napier_jinja_bool(o->add_generation_prompt != 0));
    if (o->disable_thinking) {
        napier_jinja_set(j, "enable_thinking", napier_jinja_bool(false));
    }
    if (o->date != NULL) {
        j->date = key(o->date);
        napier_jinja_set(j, "date_string", napier_jinja_text(o->date));
    }
    j->now = o->now;
    if (o->variables_size > 0) {
        set_given(j, (napier_span){o->variables, o->variables_size});
    }
}

napier_status napier_chat_run(napier_context *context, const napier_chat_message *messages, int64_t count,
                              const napier_chat_options *options, napier_text_buffer *out) {
    const napier_chat_template *const t = options->chat_template;
    size_t input = options->tools_size + options->variables_size;
    jinja j;
    if (t != NULL) {
        NAPIER_TRY(check(context, t, options));
    }
    for (int64_t i = 0; i < count; i++) {
        input += messages[i].size + messages[i].reasoning_size;
        for (int64_t k = 0; k < messages[i].tool_call_count; k++) {
            input += messages[i].tool_calls[k].arguments_size;
        }
    }
    napier_jinja_start(&j, context, input);
    j.is_builtin = t == NULL;
    for (int i = 0; t != NULL && i < t->special_count; i++) {
        napier_jinja_set(&j, t->special[i][0], napier_jinja_text(t->special[i][1]));
    }
    set_messages(&j, messages, count, t == NULL);
    set_options(&j, options);
    napier_jinja_read(&j,
                      t != NULL ? (napier_span){t->text, t->size} : key(napier_chat_builtins[options->format].source));
    napier_jinja_run(&j);
    napier_status status = j.status;
    status = status ? status : napier_text_buffer_append(context, out, j.out.bytes, j.out.size);
    napier_jinja_end(&j);
    return status;
}
