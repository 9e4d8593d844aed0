/* lm/tokenizer/chat/chat.c - a conversation as text: the checks and the choice of the format. */
#include "lm/tokenizer/chat/chat.h"

#include "core/base/scope.h"
#include "core/base/struct_size.h"

static const char *absent_part(const napier_chat_message *m) {
    for (int64_t k = 0; k < m->tool_call_count && m->tool_calls != NULL; k++) {
        if (m->tool_calls[k].name == NULL || m->tool_calls[k].arguments == NULL) {
            return m->tool_calls[k].name == NULL ? "name of a tool call" : "arguments of a tool call";
        }
    }
    return m->role == NULL                                    ? "role"
           : m->content == NULL && m->size > 0                ? "content"
           : m->reasoning == NULL && m->reasoning_size > 0    ? "reasoning"
           : m->tool_call_count != 0 && m->tool_calls == NULL ? "tool_calls"
                                                              : NULL;
}

static napier_status check_message(napier_context *context, const napier_chat_message *m, int64_t i) {
    const char *const absent = absent_part(m);
    NAPIER_REFUSE_IF(context, absent != NULL || m->tool_call_count < 0, "messages[%lld]: %s%s", (long long)i,
                     absent != NULL ? absent : "tool_call_count is negative", absent != NULL ? " NULL" : "");
    const napier_role r = napier_chat_role(m->role);
    NAPIER_REFUSE_IF(context, r == NAPIER_ROLES,
                     "messages[%lld]: role '%.40s' is none of system, user, assistant, tool", (long long)i, m->role);
    NAPIER_REFUSE_IF(context, r != NAPIER_ASSISTANT && (m->reasoning != NULL || m->tool_call_count > 0),
                     "messages[%lld]: %s of a %s message, but the format has them for the assistant only", (long long)i,
                     m->reasoning != NULL ? "reasoning" : "tool calls", m->role);
    return NAPIER_OK;
}

static napier_status check_messages(napier_context *context, const napier_chat_message *messages, int64_t count) {
    NAPIER_REFUSE_IF(context, count < 0 || (messages == NULL && count > 0), "messages: count %lld%s", (long long)count,
                     messages ? "" : ", and NULL");
    for (int64_t i = 0; i < count; i++) {
        NAPIER_TRY(check_message(context, &messages[i], i));
    }
    return NAPIER_OK;
}

static napier_status check_format(napier_context *context, const napier_chat_message *messages, int64_t count,
                                  const napier_chat_options *o) {
    if (o->chat_template != NULL) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, o->variables_size > 0, "options: variables are a chat template's, and there is none");
    NAPIER_REFUSE_IF(context, o->format < 0 || o->format >= NAPIER_CHAT_BUILTINS,
                     "options: format is %lld, not from 0 to %d", (long long)o->format, NAPIER_CHAT_BUILTINS - 1);
    const napier_chat_builtin *const f = &napier_chat_builtins[o->format];
    NAPIER_REFUSE_IF(context, o->tools_size > 0 && !f->has_tools, "options: tools have no place in this format");
    NAPIER_REFUSE_IF(context, o->disable_thinking && !f->has_reasoning,
                     "options: disable_thinking is set, but this format has no think block");
    NAPIER_REFUSE_IF(context, o->date != NULL && !f->has_date,
                     "options: date is '%.40s', but this format writes no date; leave it out", o->date);
    for (int64_t i = 0; i < count && !f->has_reasoning; i++) {
        NAPIER_REFUSE_IF(context, messages[i].reasoning != NULL,
                         "messages[%lld]: reasoning has no place in this format; leave it out", (long long)i);
    }
    return NAPIER_OK;
}

napier_status napier_chat_text(napier_context *context, const napier_chat_message *messages, int64_t count,
                               const napier_chat_options *options, napier_text_buffer *text) {
    napier_chat_options o = NAPIER_CHAT_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_chat_options, NAPIER_CHAT_OPTIONS_INIT, date), options, &o));
    NAPIER_REFUSE_IF(context, o.tools == NULL && o.tools_size > 0, "options: tools NULL, but %zu bytes", o.tools_size);
    NAPIER_REFUSE_IF(context, o.variables == NULL && o.variables_size > 0, "options: variables NULL, but %zu bytes",
                     o.variables_size);
    NAPIER_TRY(napier_check_text_buffer(context, "text", text));
    NAPIER_TRY(check_messages(context, messages, count));
    NAPIER_TRY(check_format(context, messages, count, &o));
    return napier_chat_run(context, messages, count, &o, text);
}
