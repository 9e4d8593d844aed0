/* cli/lm/tokenize.c - `napier tokenize`: text to token ids and back, by a model's tokenizer.json. */
#include "commands.h"
#include "io/jsonl.h"
#include "io/lines.h"
#include "io/output.h"
#include "io/source.h"
#include "program/memory.h"
#include "program/message.h"
#include "chat_lines.h"
#include "model_options.h"
#include "score_lines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef NAPIER_MODEL
#include <cjson/cJSON.h>
#endif

typedef struct tokenize_request {
    base_request shared;
    const char *model;
    int decode, chat, lines, count, tokens, text, plain_special, skip_special, no_thinking, no_prompt, add_special;
    int chat_format; /* napier_chat_format; -1: the model's */
    const char *chat_date;
} tokenize_request;

#ifdef NAPIER_MODEL

enum { PLACE = 320 };

/* The state of a run. */
typedef struct session {
    const tokenize_request *q;
    const char *name; /* of the input, for messages */
    int64_t line;     /* 0: the input is one text */
    napier_context *context;
    napier_tokenizer *tokenizer;
    napier_token_buffer encoded;
    int32_t *ids; /* to decode */
    int64_t id_count, id_capacity;
    napier_text_buffer text;
    chat_form chat;
    FILE *out;
    bool is_bare_noted; /* the warning of ids without a token is printed */
} session;

/* STATUS_OK, or STATUS_FAILED after a message that names the input and its line. */
static int check_call(const session *s, napier_status called) {
    const char *const reason = error_text(s->context, called);
    return called == NAPIER_OK ? STATUS_OK
           : s->line > 0       ? complain("%s:%" PRId64 ": %s", s->name, s->line, reason)
                               : complain("%s: %s", s->name, reason);
}

/* ---- Printing ---------------------------------------------------------------------------------------------------- */

/* Prints the text in quotes, with C escapes for characters that cannot be shown. */
static void print_quoted(FILE *out, const char *bytes, size_t size) {
    fputc('"', out);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", out);
        } else if (c < 0x20 || c > 0x7e) {
            fprintf(out, "\\x%02x", c);
        } else {
            fputc(c, out);
        }
    }
    fputs("\"\n", out);
}

static void print_ids(const session *s) {
    if (s->q->count) {
        fprintf(s->out, "%" PRId64 "\n", s->encoded.size);
        return;
    }
    for (int64_t i = 0; i < s->encoded.size; i++) {
        if (s->q->tokens) {
            size_t size = 0;
            const char *const bytes = napier_tokenizer_token(s->tokenizer, s->encoded.ids[i], &size);
            fprintf(s->out, "%d\t", s->encoded.ids[i]);
            print_quoted(s->out, bytes, size);
        } else {
            fprintf(s->out, "%s%d", i > 0 ? " " : "", s->encoded.ids[i]);
        }
    }
    if (!s->q->tokens) {
        fputc('\n', s->out);
    }
}

/* ---- One text, one list of ids, one conversation ----------------------------------------------------------------- */

static int encode(session *s, const char *text, size_t size) {
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    options.plain_special = s->q->plain_special;
    options.add_special = s->q->add_special ? NAPIER_ADD_ONCE : NAPIER_ADD_NONE;
    s->encoded.size = 0;
    if (check_call(s, napier_tokenizer_encode(s->context, s->tokenizer, text, size, &options, &s->encoded))) {
        return STATUS_FAILED;
    }
    print_ids(s);
    return STATUS_OK;
}

/* Reads "1 2 3", or "[1, 2, 3]", as other programs print lists. */
static int parse_ids(session *s, const char *text, size_t size) {
    static const char between[] = " \t\r\n,[]";
    s->id_count = 0;
    for (size_t at = 0; at < size;) {
        if (text[at] != '\0' && strchr(between, text[at]) != NULL) {
            at++;
            continue;
        }
        int64_t id = 0;
        size_t end = at;
        for (; end < size && text[end] >= '0' && text[end] <= '9' && id <= INT32_MAX; end++) {
            id = 10 * id + (text[end] - '0');
        }
        if (end == at || id > INT32_MAX || (end < size && (text[end] == '\0' || strchr(between, text[end]) == NULL))) {
            char shown[24], line[32] = "";
            if (s->line > 0) {
                snprintf(line, sizeof line, ":%" PRId64, s->line);
            }
            return complain("%s%s: '%s' at byte %zu is no token id", s->name, line,
                            printable(shown, sizeof shown, text + at, size - at), at);
        }
        if (!memory_grow(&s->ids, &s->id_capacity, s->id_count + 1, sizeof *s->ids)) {
            return out_of_memory(s->name);
        }
        s->ids[s->id_count++] = (int32_t)id;
        at = end;
    }
    return STATUS_OK;
}

/* A head may have more rows than there are tokens; but the tokenizer may also be another model's. */
static void note_bare_ids(session *s) {
    for (int64_t i = 0; i < s->id_count && !s->is_bare_noted; i++) {
        if (napier_tokenizer_token(s->tokenizer, s->ids[i], NULL) == NULL) {
            warn("%s: ids without a token, which have no text, such as %" PRId32, s->name, s->ids[i]);
            s->is_bare_noted = true;
        }
    }
}

static int decode(session *s, const char *text, size_t size) {
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    options.skip_special = s->q->skip_special;
    s->text.size = 0;
    if (parse_ids(s, text, size) ||
        check_call(s, napier_tokenizer_decode(s->context, s->tokenizer, s->ids, s->id_count, &options, &s->text))) {
        return STATUS_FAILED;
    }
    note_bare_ids(s);
    if (s->text.size > 0) {
        fwrite(s->text.bytes, 1, s->text.size, s->out);
    }
    if (s->line > 0) {
        fputc('\n', s->out);
    }
    return STATUS_OK;
}

static int render(session *s, const chat_lines *conversation) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    options.add_generation_prompt = !s->q->no_prompt;
    options.disable_thinking = s->q->no_thinking;
    options.date = s->q->chat_date;
    if (chat_form_set(s->context, s->q->model, s->tokenizer, &s->chat, &options)) {
        return STATUS_FAILED;
    }
    chat_lines_set_tools(conversation, &options);
    s->text.size = 0;
    if (check_call(s, napier_chat_text(s->context, conversation->messages, conversation->count, &options, &s->text))) {
        return STATUS_FAILED;
    }
    if (!s->q->text) {
        return encode(s, s->text.bytes, s->text.size);
    }
    fwrite(s->text.bytes, 1, s->text.size, s->out);
    return STATUS_OK;
}

static int chat(void *user, const jsonl_reader *r, const cJSON *object) {
    session *const s = user;
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(object, "messages");
    char place[PLACE];
    s->line = r->lines.line;
    s->name = r->lines.name;
    if (!cJSON_IsArray(list) || list->child == NULL) {
        return jsonl_fault(r, "messages: an array with a message is wanted");
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": messages", s->name, s->line);
    chat_lines conversation;
    const int status = chat_lines_read(&conversation, place, list, object) || render(s, &conversation);
    chat_lines_free(&conversation);
    return status;
}

/* ---- The input --------------------------------------------------------------------------------------------------- */

static int run_lines(session *s, FILE *file) {
    line_reader r = {.file = file, .name = s->name, .most = (size_t)1 << 29, .is_whole = !s->q->lines};
    char *line;
    size_t size;
    int status;
    while ((status = lines_next(&r, &line, &size)) == STATUS_OK && (line != NULL || (r.is_whole && r.line == 1))) {
        s->line = r.is_whole ? 0 : r.line;
        const char *const text = line != NULL ? line : "";
        status = s->q->decode ? decode(s, text, size) : encode(s, text, size);
        if (status != STATUS_OK) {
            break;
        }
    }
    lines_free(&r);
    return status;
}

static int print_results(FILE *out, void *user) {
    static const char *const used[] = {"messages", "tools", NULL};
    static const jsonl_form form = {chat, used, .runs_model = true, .has_texts = true};
    session *const s = user;
    const char *const path = s->q->shared.in_path;
    s->out = out;
    if (s->q->chat) {
        return jsonl_read(path, &form, s);
    }
    FILE *const file = source_open(path, &s->name);
    const int status = file != NULL ? run_lines(s, file) : STATUS_FAILED;
    source_close(file);
    return status;
}

static int run(void *request, napier_context *context) {
    const tokenize_request *const q = request;
    session s = {.q = q, .context = context, .chat = {.format = q->chat_format}};
    const int status =
        tokenizer_open(context, q->model, &s.tokenizer) || output_print(q->shared.out_path, print_results, &s);
    free(s.ids);
    napier_token_buffer_free(context, &s.encoded);
    napier_text_buffer_free(context, &s.text);
    napier_chat_template_destroy(context, s.chat.chat_template);
    napier_tokenizer_destroy(context, s.tokenizer);
    return status;
}

#else

static int run(void *request, napier_context *context) {
    (void)request, (void)context;
    return complain("this build has no tokenizer, which needs cJSON, PCRE2 and utf8proc");
}

#endif

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int check(void *request) {
    const tokenize_request *const q = request;
    if (q->model == NULL) {
        return misuse("--model is missing: a folder with a tokenizer.json, or a GGUF file");
    }
    if (q->decode && (q->chat || q->count || q->tokens || q->plain_special || q->add_special)) {
        return misuse("--decode goes with --lines and --skip-special only");
    }
    const bool needs_chat = q->text || q->no_thinking || q->no_prompt || q->chat_format >= 0 || q->chat_date != NULL;
    if (!q->chat && needs_chat) {
        return misuse("%s needs --chat", q->text                ? "--text"
                                         : q->no_thinking       ? "--no-thinking"
                                         : q->no_prompt         ? "--no-generation-prompt"
                                         : q->chat_date != NULL ? "--chat-date"
                                                                : "--chat-format");
    }
    if (!q->decode && q->skip_special) {
        return misuse("--skip-special needs --decode");
    }
    if (q->count + q->tokens + q->text > 1) {
        return misuse("only one of --count, --tokens and --text");
    }
    return q->no_thinking && q->no_prompt ? misuse("--no-thinking is part of the generation prompt") : STATUS_OK;
}

#define AT(member) offsetof(tokenize_request, member)
static const option options[] = {
    {"model", 'm', OPTION_READ, "DIR", AT(model), .help = "a folder with tokenizer.json, such a file, or a GGUF file"},
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.out_path),
     .help = "where the result goes (default or -: standard output)"},
    {"decode", 'd', OPTION_FLAG, NULL, AT(decode),
     .help = "the other way: FILE holds ids, between spaces, commas, brackets or line feeds; the result is their text"},
    {"chat", 'c', OPTION_FLAG, NULL, AT(chat),
     .help = "each line of FILE is a conversation, in the model's chat format: {\"messages\": [{\"role\": \"user\", "
             "\"content\": \"Hello\"}]} with \"reasoning_content\" and \"tool_calls\" of the assistant's, and "
             "\"tools\" beside \"messages\": strings, the JSON of each tool"},
    {"lines", 'l', OPTION_FLAG, NULL, AT(lines), .help = "each line of FILE is a text (or a list of ids) of its own"},
    {"count", 0, OPTION_FLAG, NULL, AT(count), .help = "only how many tokens each text has"},
    {"tokens", 0, OPTION_FLAG, NULL, AT(tokens), .help = "a token a line: its id, a tab and its text"},
    {"text", 0, OPTION_FLAG, NULL, AT(text), .help = "with --chat: the text in place of its ids"},
    {"plain-special", 0, OPTION_FLAG, NULL, AT(plain_special),
     .help = "\"<|im_end|>\" and the like in the text are text like any other"},
    {"add-special", 0, OPTION_FLAG, NULL, AT(add_special),
     .help = "with the tokens that the tokenizer adds to a text, such as Llama's BOS, if the text has them not"},
    {"skip-special", 0, OPTION_FLAG, NULL, AT(skip_special), .help = "with --decode: special tokens give no text"},
    {"no-thinking", 0, OPTION_FLAG, NULL, AT(no_thinking),
     .help = "with --chat: the answer begins with an empty think block"},
    {"chat-format", 0, OPTION_WORD, "FORMAT", AT(chat_format), .words = chat_formats,
     .help = "with --chat: qwen3, qwen2.5, llama3, llama3.1 (also 3.2 and 3.3), llama2, mistral-v0.1 or mistral-v0.2 "
             "(default: the one that the model's chat template writes)"},
    {"chat-date", 0, OPTION_TEXT, "DAY", AT(chat_date),
     .help = "with --chat: the day in llama3.1's system message (default: 26 Jul 2024, as in its template)"},
    {"no-generation-prompt", 0, OPTION_FLAG, NULL, AT(no_prompt),
     .help = "with --chat: the text ends with the last message"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, options}, MACHINE_GROUP};
static const tokenize_request defaults = {.model = NULL, .chat_format = -1};

const command tokenize_command = {
    .name = "tokenize",
    .summary = "token ids of a text, by a model's tokenizer, and back",
    .usage = "FILE --model DIR [-o OUT] [OPTIONS]\n"
             "FILE --model DIR --decode [-o OUT] [OPTIONS]\n"
             "FILE.jsonl --model DIR --chat [-o OUT] [OPTIONS]",
    .about = "Token ids of a text (- is standard input), by the tokenizer.json of a model with BPE, as Qwen,\n"
             "Llama, Mistral and GPT-2 have it: the ids of Hugging Face tokenizers. One line of ids for a text.",
    .example = "echo 'Hello, world' | napier tokenize - --model Qwen3-0.6B",
    .groups = groups,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
