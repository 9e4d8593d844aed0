/* cli/lm/chat_lines.h - a conversation on a line of JSON, in the library's form.
 *
 *     {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "", "tool_calls": [...]}],
 *      "tools": ["{\"name\": \"weather\"}"]}
 *
 * A member that the format does not know is refused with its name. The arguments of tool calls, and the tools, are
 * strings of JSON that are written unchanged, because cJSON does not distinguish 1 from 1.0. */
#ifndef NAPIER_CLI_CHAT_LINES_H
#define NAPIER_CLI_CHAT_LINES_H

#include <napier/tokenizer.h>

struct cJSON;

/* All texts except tools point into the document. */
typedef struct chat_lines {
    napier_chat_message *messages;
    int64_t count;
    napier_tool_call *calls; /* of all messages */
    char *tools;             /* one per line; NULL: none */
} chat_lines;

/* Reads `list`, an array of messages, and the other members of its line that belong to the conversation. `place` is the
 * name of the list in messages: "file:3: prompt". Free it even after a failure. */
int chat_lines_read(chat_lines *chat, const char *place, const struct cJSON *list, const struct cJSON *line);
void chat_lines_free(chat_lines *chat);

/* Sets the tools in the options of a call. */
void chat_lines_set_tools(const chat_lines *chat, napier_chat_options *options);

#endif
