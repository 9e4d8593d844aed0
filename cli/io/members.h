/* cli/io/members.h - the members of a line of JSON that a command does not read.
 *
 * A member that is null counts as absent. One that a command does not read is either a setting, such as "temperature",
 * which is refused, because a result without it would be wrong, or something else, such as "id", which is ignored; a
 * warning names these once for each file. Settings are the numbers and words among the command's own options and, if it
 * runs a model, what requests to OpenAI's API, vLLM and transformers may set. */
#ifndef NAPIER_CLI_MEMBERS_H
#define NAPIER_CLI_MEMBERS_H

#include <stdbool.h>

struct cJSON;

/* Members of the files that logprobs and generate write, and texts. Commands that read log-probabilities ignore them
 * silently. */
#define MEMBERS_OF_RESULTS                                                                                          \
    "line", "sample", "response", "token_ids", "entropies", "plain_logprobs", "sum", "is_greedy", "text", "finish", \
        "stop", "prompt", "completion", "messages"

/* What has been ignored so far. */
enum { MEMBERS_NAMED = 8, MEMBERS_SHOWN = 40 };
typedef struct member_notes {
    char names[MEMBERS_NAMED][MEMBERS_SHOWN];
    int count; /* MEMBERS_NAMED + 1: and others */
} member_notes;

/* Returns NULL, or the text of an error about the line, which is in `text`. `used`: the names that the command reads; NULL
 * ends them. */
enum { MEMBERS_TEXT = 200 };
const char *members_check(member_notes *notes, const struct cJSON *object, const char *const *used, bool runs_model,
                          char text[MEMBERS_TEXT]);

/* Prints the warning, if anything has been ignored. */
void members_warn(const member_notes *notes, const char *file);

#endif
