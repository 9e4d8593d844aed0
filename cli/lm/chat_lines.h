/* cli/lm/chat_lines.h - a conversation on a line of JSON, as the library takes it.
 *
 *     {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "", "tool_calls": [...]}],
 *      "tools": ["{\"name\": \"weather\"}"]}
 *
 * What the format has no place for is refused by name. The arguments of tool calls, and tools, are strings with JSON in
 * them, which is written as it is: cJSON does not keep 1 and 1.0 apart. */
#ifndef NAPIER_CLI_CHAT_LINES_H
#define NAPIER_CLI_CHAT_LINES_H

#ifdef NAPIER_MODEL

#include <napier/tokenizer.h>

struct cJSON;

/* Texts are the document's, but for tools. */
typedef struct chat_lines {
    napier_chat_message *messages;
    int64_t count;
    napier_tool_call *calls; /* of all messages */
    char *tools;             /* a line each; NULL: none */
} chat_lines;

/* Reads `list`, an array of messages, and what else its line says about the conversation. `place` is of the list, for
 * messages: "file:3: prompt". Free it even after a failure. */
int chat_lines_read(chat_lines *chat, const char *place, const struct cJSON *list, const struct cJSON *line);
void chat_lines_free(chat_lines *chat);

/* Puts the tools into the options of a call. */
void chat_lines_set_tools(const chat_lines *chat, napier_chat_options *options);

#endif
#endif
