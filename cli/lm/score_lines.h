/* cli/lm/score_lines.h - prompts and responses from JSON Lines, as token ids.
 *
 *     {"prompt": "2 + 2 =", "responses": [" 4", " 5"]}         texts
 *     {"prompt": [17, 10, 17], "response": [19]}               ids
 *     {"prompt": [{"role": "user", "content": "2 + 2?"}], ...} a conversation, in the model's chat format
 *     {"messages": [..., {"role": "assistant", "content": "4"}]} the last message is the response
 *
 * "completion" is another name of "response", and "messages" of a prompt that is a conversation. A response to a
 * conversation may be messages too. It is then what they add to the conversation's text, with the end of the turn.
 *
 * Prompt and response are encoded separately, and their ids are joined. A prompt that is a text begins with the tokens that
 * the tokenizer adds (Llama's BOS); a response continues its prompt. */
#ifndef NAPIER_CLI_SCORE_LINES_H
#define NAPIER_CLI_SCORE_LINES_H

#include "io/jsonl.h"

#include <napier/model.h>

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* Lists of ids that grow. */
typedef struct id_lists {
    int32_t *ids;
    int64_t size, capacity;
    int64_t *offsets; /* [count + 1] */
    int64_t count, offsets_capacity;
} id_lists;

/* Each returns STATUS_OK, or STATUS_FAILED after a message. */
int id_lists_start(id_lists *lists);
int id_lists_add(id_lists *lists, const int32_t *ids, int64_t count);
void id_lists_free(id_lists *lists);
napier_indices id_lists_ids(const id_lists *lists);
napier_indices id_lists_offsets(const id_lists *lists);
int64_t id_lists_size(const id_lists *lists, int64_t i); /* the length of list i */
/* The length of list i without what it shares with list i - 1 at its beginning: what a model must run of it. */
int64_t id_lists_new(const id_lists *lists, int64_t i);

/* How conversations become text: in a format that is built in, or by the model's own template. */
typedef struct chat_form {
    int64_t format; /* napier_chat_format; -1: the model's */
    napier_chat_template *chat_template;
} chat_form;

/* Converts texts to ids with the model's tokenizer, which is loaded for the first text. */
typedef struct text_encoder {
    napier_context *context;
    const char *model; /* the folder */
    bool no_thinking, no_bos;
    chat_form chat;
    const char *chat_date; /* NULL: the format's own */
    int64_t vocabulary;    /* the model's ids are below; 0: not checked */
    bool has_prefix;       /* an empty prompt is allowed: a token replaces it */
    bool has_prompts_only; /* the lines have no responses */
    napier_tokenizer *tokenizer;
    napier_token_buffer ids;
    napier_text_buffer text;
} text_encoder;

void text_encoder_free(text_encoder *encoder);

typedef enum text_part { TEXT_PROMPT, TEXT_RESPONSE } text_part;

/* Adds the ids of a text to the lists. `place` is for messages: "file:3: prompt". */
int text_encoder_add(text_encoder *encoder, const char *place, text_part part, const char *text, size_t size,
                     id_lists *lists);
/* Adds the ids of a conversation. The encoder sets the format. `options` have the tools, and disable_thinking, which counts
 * only in a format with thoughts. */
int text_encoder_add_chat(text_encoder *encoder, const char *place, const napier_chat_message *messages, int64_t count,
                          napier_chat_options options, id_lists *lists);
/* Does the same for JSON: a string, a list of ids, or, if there is a `line`, a list of messages, whose tools are on that
 * line. */
int text_encoder_add_json(text_encoder *encoder, const char *place, const struct cJSON *value, const struct cJSON *line,
                          id_lists *lists);

/* All of a file, or a shard of its lines. */
typedef struct score_lines {
    id_lists prompts, responses;
    int64_t *prompt_of; /* [responses.count] */
    int64_t *number;    /* [responses.count] the response's number on its line, from 0 */
    int64_t *line;      /* [prompts.count] line numbers from 1 */
    int64_t *index;     /* [prompts.count] the prompt's number among all of the file, from 0 */
    int64_t prompt_of_capacity, number_capacity, line_capacity, index_capacity;
} score_lines;

bool is_folder(const char *path);
/* Loads the tokenizer.json of a model's folder, or such a file. */
int tokenizer_open(napier_context *context, const char *path, napier_tokenizer **tokenizer);
bool is_gguf(const char *path);
/* Finds the model's form, that of the folder, or of the folder of the file, and sets it in the options. If one is given or
 * found already, it only sets it. Free the template. */
int chat_form_set(napier_context *context, const char *path, const napier_tokenizer *tokenizer, chat_form *form,
                  napier_chat_options *options);
/* Has an answer thoughts, which can be turned off? */
bool chat_form_thinks(const chat_form *form);

/* A shard may be empty; a file without a prompt is refused. */
int score_lines_read(score_lines *lines, const char *path, line_shard shard, text_encoder *encoder);
/* One prompt from the command line, as line 1. chat: it is the user's message of a conversation. */
int score_lines_prompt(score_lines *lines, const char *text, bool chat, text_encoder *encoder);
void score_lines_free(score_lines *lines);

#endif
