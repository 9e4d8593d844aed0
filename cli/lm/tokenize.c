/* cli/lm/tokenize.c - `napier tokenize`: text to token ids and back, by a model's tokenizer.json. */
#define _POSIX_C_SOURCE 200809L

#include "chat_lines.h"
#include "../commands.h"
#include "../io/jsonl.h"
#include "../program/machine.h"
#include "../program/message.h"
#include "../program/options.h"
#include "../io/output.h"
#include "../io/named_files.h"
#include "../io/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef NAPIER_MODEL
#include <cjson/cJSON.h>
#include <napier/tokenizer.h>
#endif

enum { MODEL = 1, OUTPUT, DECODE, CHAT, LINES, COUNT, TOKENS, TEXT, PLAIN, SKIP, NO_THINKING, NO_PROMPT, HELP };
enum { PLACE = 320, MOST_TEXT = 1 << 29 };

static const option_spec specs[] = {
    {MODEL, "model", 'm', true},
    {OUTPUT, "output", 'o', true},
    {DECODE, "decode", 'd', false},
    {CHAT, "chat", 'c', false},
    {LINES, "lines", 'l', false},
    {COUNT, "count", '\0', false},
    {TOKENS, "tokens", '\0', false},
    {TEXT, "text", '\0', false},
    {PLAIN, "plain-special", '\0', false},
    {SKIP, "skip-special", '\0', false},
    {NO_THINKING, "no-thinking", '\0', false},
    {NO_PROMPT, "no-generation-prompt", '\0', false},
    {HELP, "help", 'h', false},
    {0, NULL, '\0', false},
};

void tokenize_help(void) {
    puts("usage: napier tokenize FILE --model DIR [-o OUT] [OPTIONS]\n"
         "       napier tokenize FILE --model DIR --decode [-o OUT] [OPTIONS]\n"
         "       napier tokenize FILE.jsonl --model DIR --chat [-o OUT] [OPTIONS]\n"
         "\n"
         "Token ids of a text (- is standard input), by the tokenizer.json of a model with byte-level BPE, as\n"
         "Qwen2 and Qwen3 have it: the ids of Hugging Face tokenizers. One line of ids for a text.\n"
         "\n"
         "  -m, --model DIR       a folder with tokenizer.json, or such a file\n"
         "  -o, --output OUT      where the result goes (default or -: standard output)\n"
         "  -d, --decode          the other way: FILE holds ids, the result is their text\n"
         "  -c, --chat            each line of FILE is a conversation, in Qwen3's chat format:\n"
         "                        {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}\n"
         "                        with \"reasoning_content\" and \"tool_calls\" of the assistant's, and \"tools\"\n"
         "                        beside \"messages\": strings, the JSON of each tool\n"
         "  -l, --lines           each line of FILE is a text (or a list of ids) of its own");
    puts("      --count           only how many tokens each text has\n"
         "      --tokens          a token a line: its id, a tab and its text\n"
         "      --text            with --chat: the text in place of its ids\n"
         "      --plain-special   \"<|im_end|>\" and the like in the text are text like any other\n"
         "      --skip-special    with --decode: special tokens give no text\n"
         "      --no-thinking     with --chat: the answer begins with an empty think block\n"
         "      --no-generation-prompt\n"
         "                        with --chat: the text ends with the last message\n"
         "  -h, --help            this text\n"
         "\n"
         "example: echo 'Hello, world' | napier tokenize - --model Qwen3-0.6B");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef struct tokenize_request {
    const char *path, *model, *out_path;
    bool decode, chat, lines, count, tokens, text, plain_special, skip_special, no_thinking, no_prompt, help;
} tokenize_request;

static int set_option(tokenize_request *q, int id, const char *value) {
    switch (id) {
    case MODEL: q->model = value; break;
    case OUTPUT: q->out_path = value; break;
    case DECODE: q->decode = true; break;
    case CHAT: q->chat = true; break;
    case LINES: q->lines = true; break;
    case COUNT: q->count = true; break;
    case TOKENS: q->tokens = true; break;
    case TEXT: q->text = true; break;
    case PLAIN: q->plain_special = true; break;
    case SKIP: q->skip_special = true; break;
    case NO_THINKING: q->no_thinking = true; break;
    case NO_PROMPT: q->no_prompt = true; break;
    case HELP: q->help = true; break;
    case OPTION_OPERAND:
        if (q->path != NULL) {
            return misuse("tokenize", "one file at a time");
        }
        q->path = value;
        break;
    default: return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int check_request(const tokenize_request *q) {
    if (q->path == NULL) {
        return misuse("tokenize", "a file is missing (- is standard input)");
    }
    if (q->model == NULL) {
        return misuse("tokenize", "--model is missing: a folder with a tokenizer.json");
    }
    if (q->decode && (q->chat || q->count || q->tokens || q->plain_special)) {
        return misuse("tokenize", "--decode goes with --lines and --skip-special only");
    }
    if (!q->chat && (q->text || q->no_thinking || q->no_prompt)) {
        return misuse("tokenize", "%s needs --chat",
                      q->text          ? "--text"
                      : q->no_thinking ? "--no-thinking"
                                       : "--no-generation-prompt");
    }
    if (!q->decode && q->skip_special) {
        return misuse("tokenize", "--skip-special needs --decode");
    }
    if (q->count + q->tokens + q->text > 1) {
        return misuse("tokenize", "only one of --count, --tokens and --text");
    }
    if (q->no_thinking && q->no_prompt) {
        return misuse("tokenize", "--no-thinking is part of the generation prompt");
    }
    const named_file files[] = {
        {"the input", q->path, false}, {"--model", q->model, false}, {"--output", q->out_path, true}};
    return named_files_check("tokenize", files, sizeof files / sizeof *files);
}

static int parse_request(tokenize_request *q, int count, char **words) {
    option_scan scan = {.command = "tokenize", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->help) {
            return status;
        }
    }
    return check_request(q);
}

#ifdef NAPIER_MODEL

/* The state of a run. */
typedef struct session {
    const tokenize_request *q;
    const char *name; /* of the input, for messages */
    int64_t line;     /* 0: the input is one text */
    napier_context *context;
    napier_tokenizer *tokenizer;
    napier_token_buffer ids;
    napier_text_buffer text;
    FILE *out;
} session;

static int library_error(const session *s, napier_status status) {
    const char *const reason = error_text(s->context, status);
    return s->line > 0 ? complain("%s:%" PRId64 ": %s", s->name, s->line, reason) : complain("%s: %s", s->name, reason);
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
        fprintf(s->out, "%" PRId64 "\n", s->ids.size);
        return;
    }
    for (int64_t i = 0; i < s->ids.size; i++) {
        if (s->q->tokens) {
            size_t size = 0;
            const char *const bytes = napier_tokenizer_token(s->tokenizer, s->ids.ids[i], &size);
            fprintf(s->out, "%d\t", s->ids.ids[i]);
            print_quoted(s->out, bytes, size);
        } else {
            fprintf(s->out, "%s%d", i > 0 ? " " : "", s->ids.ids[i]);
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
    s->ids.size = 0;
    const napier_status status = napier_tokenizer_encode(s->context, s->tokenizer, text, size, &options, &s->ids);
    if (status != NAPIER_OK) {
        return library_error(s, status);
    }
    print_ids(s);
    return STATUS_OK;
}

/* Makes space for one more id. */
static int grow_ids(session *s) {
    if (s->ids.size < s->ids.capacity) {
        return STATUS_OK;
    }
    /* The library's buffer grows by encoding; a list of numbers needs a buffer of the program. */
    const int64_t capacity = s->ids.capacity > 0 ? 2 * s->ids.capacity : 1024;
    int32_t *const ids = realloc(s->ids.ids, (size_t)capacity * sizeof *ids);
    if (ids == NULL) {
        return complain("%s: out of memory", s->name);
    }
    s->ids.ids = ids;
    s->ids.capacity = capacity;
    return STATUS_OK;
}

/* Reads "1 2 3", or "[1, 2, 3]", as other programs print lists. */
static int parse_ids(session *s, const char *text, size_t size) {
    static const char between[] = " \t\r\n,[]";
    s->ids.size = 0;
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
        const int status = grow_ids(s);
        if (status != STATUS_OK) {
            return status;
        }
        s->ids.ids[s->ids.size++] = (int32_t)id;
        at = end;
    }
    return STATUS_OK;
}

static int decode(session *s, const char *text, size_t size) {
    napier_decode_options options = NAPIER_DECODE_OPTIONS_INIT;
    options.skip_special = s->q->skip_special;
    const int parsed = parse_ids(s, text, size);
    if (parsed != STATUS_OK) {
        return parsed;
    }
    s->text.size = 0;
    const napier_status status =
        napier_tokenizer_decode(s->context, s->tokenizer, s->ids.ids, s->ids.size, &options, &s->text);
    if (status != NAPIER_OK) {
        return library_error(s, status);
    }
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
    chat_lines_set_tools(conversation, &options);
    s->text.size = 0;
    const napier_status status =
        napier_chat_text(s->context, conversation->messages, conversation->count, &options, &s->text);
    if (status != NAPIER_OK) {
        return library_error(s, status);
    }
    if (!s->q->text) {
        return encode(s, s->text.bytes, s->text.size);
    }
    fwrite(s->text.bytes, 1, s->text.size, s->out);
    return STATUS_OK;
}

static int chat(session *s, const cJSON *object) {
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(object, "messages");
    char place[PLACE];
    if (!cJSON_IsArray(list) || list->child == NULL) {
        return complain("%s:%" PRId64 ": messages: an array with a message is wanted", s->name, s->line);
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": messages", s->name, s->line);
    chat_lines conversation;
    int status = chat_lines_read(&conversation, place, list, object);
    if (status == STATUS_OK) {
        status = render(s, &conversation);
    }
    chat_lines_free(&conversation);
    return status;
}

/* ---- The input --------------------------------------------------------------------------------------------------- */

static int run_chat(session *s) {
    jsonl_reader reader;
    const cJSON *object = NULL;
    int status = jsonl_open(&reader, s->q->path);
    s->name = reader.name;
    do {
        if (status == STATUS_OK) {
            status = jsonl_next(&reader, &object);
            s->line = reader.line;
        }
        if (status == STATUS_OK && object != NULL) {
            status = jsonl_has_zero(&reader) ? complain("%s:%" PRId64 ": \\u0000 in a string", s->name, s->line)
                                             : chat(s, object);
        }
    } while (status == STATUS_OK && object != NULL);
    jsonl_close(&reader);
    return status;
}

/* The part of a file that has been read. The file may be a pipe or have no end. */
typedef struct input {
    FILE *file;
    char *bytes;
    size_t size, capacity;
} input;

/* Reads more; no text is longer than the library accepts. */
static int read_some(const session *s, input *in) {
    if (in->size > MOST_TEXT) {
        return complain("%s: a %s of more than %d MiB%s", s->name, s->q->lines ? "line" : "text", MOST_TEXT >> 20,
                        s->q->lines ? "" : "; with --lines each line is a text");
    }
    if (in->size == in->capacity) {
        const size_t capacity = in->capacity == 0          ? 1 << 16
                                : in->capacity < MOST_TEXT ? 2 * in->capacity
                                                           : MOST_TEXT + 1;
        char *const more = realloc(in->bytes, capacity);
        if (more == NULL) {
            return complain("%s: out of memory", s->name);
        }
        in->bytes = more;
        in->capacity = capacity;
    }
    in->size += fread(in->bytes + in->size, 1, in->capacity - in->size, in->file);
    return ferror(in->file) ? complain("%s: %s", s->name, strerror(errno)) : STATUS_OK;
}

static int run_text(session *s, const char *bytes, size_t size) {
    s->line += s->q->lines;
    return s->q->decode ? decode(s, bytes, size) : encode(s, bytes, size);
}

/* Handles all complete lines; the rest moves to the front. */
static int run_lines(session *s, input *in) {
    int status = STATUS_OK;
    const char *at = in->bytes, *const end = in->bytes + in->size, *newline;
    while (status == STATUS_OK && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        status = run_text(s, at, (size_t)(newline - at));
        at = newline + 1;
    }
    in->size = (size_t)(end - at);
    memmove(in->bytes, at, in->size);
    return status;
}

/* The last line may lack its line feed. */
static int run_all(session *s, input *in) {
    int status = STATUS_OK;
    while (status == STATUS_OK && !feof(in->file)) {
        status = read_some(s, in);
        if (status == STATUS_OK && s->q->lines) {
            status = run_lines(s, in);
        }
    }
    return status == STATUS_OK && (in->size > 0 || !s->q->lines) ? run_text(s, in->bytes, in->size) : status;
}

static int run_file(session *s) {
    input in = {.file = source_open(s->q->path, &s->name)};
    const int status = in.file != NULL ? run_all(s, &in) : STATUS_FAILED;
    free(in.bytes);
    source_close(in.file);
    return status;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static int load(session *s) {
    static const char name[] = "/tokenizer.json";
    struct stat info;
    const bool folder = stat(s->q->model, &info) == 0 && S_ISDIR(info.st_mode);
    const size_t size = strlen(s->q->model);
    char *const path = malloc(size + sizeof name);
    if (path == NULL) {
        return complain("%s: out of memory", s->q->model);
    }
    memcpy(path, s->q->model, size);
    memcpy(path + size, folder ? name : "", folder ? sizeof name : 1);
    const napier_status status = napier_tokenizer_load(s->context, path, &s->tokenizer);
    free(path);
    return status == NAPIER_OK ? STATUS_OK : complain("%s", error_text(s->context, status));
}

static int run_to(session *s, output *out) {
    int status = output_open(out, s->q->out_path);
    if (status != STATUS_OK) {
        return status;
    }
    s->out = out->file;
    status = s->q->chat ? run_chat(s) : run_file(s);
    if (status == STATUS_OK && ferror(out->file)) {
        return output_error(out);
    }
    return status == STATUS_OK ? output_commit(out) : status;
}

static int tokenize(const tokenize_request *q) {
    session s = {.q = q};
    output out = {0};
    if (napier_context_create(&s.context, NULL) != NAPIER_OK) {
        return complain("out of memory");
    }
    int status = load(&s);
    if (status == STATUS_OK) {
        status = run_to(&s, &out);
        output_discard(&out);
    }
    if (q->decode) {
        free(s.ids.ids); /* allocated by grow_ids */
    } else {
        napier_token_buffer_free(s.context, &s.ids);
    }
    napier_text_buffer_free(s.context, &s.text);
    napier_tokenizer_destroy(s.context, s.tokenizer);
    napier_context_destroy(s.context);
    return status;
}

#else

static int tokenize(const tokenize_request *q) {
    (void)q;
    return complain("this build has no tokenizer, which needs cJSON, PCRE2 and utf8proc");
}

#endif

int tokenize_command(int count, char **words) {
    tokenize_request q = {0};
    const int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.help) {
        tokenize_help();
        return finish_standard_output();
    }
    return status == STATUS_OK ? tokenize(&q) : status;
}
