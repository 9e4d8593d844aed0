/* cli/lm/chat.c - `napier chat`: a conversation with a language model, at a terminal or line by line. */
#define _DEFAULT_SOURCE /* with it, signal() lets reads and writes go on behind the handler */

#include "commands.h"
#include "io/buffer.h"
#include "io/output.h"
#include "program/memory.h"
#include "program/message.h"
#include "program/system.h"
#include "model_options.h"
#include "text_print.h"

#include <napier/generate.h>

#include <float.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#ifdef NAPIER_LIBEDIT
#include <editline/readline.h>
#endif

typedef struct chat_request {
    model_request shared;
    const char *system;
    int64_t max_tokens, top_k, seed;
    double top_p;
} chat_request;

#ifdef NAPIER_MODEL

enum { MOST_STOP_IDS = 16, MOST_LINE = 1 << 20 };

typedef struct session {
    const chat_request *q;
    napier_context *context;
    napier_model *model;
    int64_t stop[MOST_STOP_IDS], stop_count;
    text_encoder encoder;
    id_lists prompt;
    buffer *texts;                 /* [count] what was said */
    napier_chat_message *messages; /* [count] they point into texts before each call */
    int64_t count, capacity, messages_capacity;
    int64_t turn; /* answers so far: each has random numbers of its own */
    int64_t *ids;
    buffer answer;
    napier_kv *kv, *next_kv; /* of the last answer and what precedes it, so that the next turn runs only what is new */
    bool has_begun;          /* the answer has a token */
    bool is_terminal;        /* someone types */
    bool is_too_long, has_failed;
} session;

/* ---- What was said ----------------------------------------------------------------------------------------------- */

static int say(session *s, const char *role, const char *text, size_t size) {
    if (!memory_grow(&s->texts, &s->capacity, s->count + 1, sizeof *s->texts) ||
        !memory_grow(&s->messages, &s->messages_capacity, s->count + 1, sizeof *s->messages)) {
        return complain("out of memory");
    }
    s->texts[s->count] = (buffer){0};
    buffer_add(&s->texts[s->count], text, size);
    buffer_add(&s->texts[s->count], "", 1);
    s->messages[s->count] = (napier_chat_message){.role = role, .size = size};
    s->count++;
    return s->texts[s->count - 1].failed ? complain("out of memory") : STATUS_OK;
}

/* Takes back what was said from message `from` on. */
static void unsay(session *s, int64_t from) {
    while (s->count > from) {
        buffer_free(&s->texts[--s->count]);
    }
}

static int64_t has_system(const session *s) { return s->count > 0 && strcmp(s->messages[0].role, "system") == 0; }

/* Begins anew, with this text of the system; none if it is empty. */
static int begin(session *s, const char *system) {
    unsay(s, 0);
    return *system != '\0' ? say(s, "system", system, strlen(system)) : STATUS_OK;
}

/* ---- An answer --------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int number) {
    is_interrupted = 1;
    (void)signal(number, on_interrupt); /* some systems take it away */
}

/* The interrupt of the context. An answer that has begun ends with its next token instead, and its keys are kept. */
static int asks_to_stop(void *user) { return is_interrupted && !((const session *)user)->has_begun; }

/* Called as the library's on_token. */
static int end_if_interrupted(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    (void)sequence, (void)index, (void)id, (void)logprob;
    ((session *)user)->has_begun = true;
    return is_interrupted ? NAPIER_END_SEQUENCE : 0;
}

/* Called as the library's on_kv. */
static int keep_kv(int64_t sequence, napier_kv *kv, void *user) {
    session *const s = user;
    (void)sequence;
    s->next_kv = kv;
    return 0;
}

/* Called as the library's on_text. */
static int show(int64_t sequence, const char *bytes, size_t size, int ended, void *user) {
    session *const s = user;
    (void)sequence, (void)ended;
    text_keep(bytes, size, &s->answer);
    text_print(bytes, size, isatty(fileno(stdout)) ? TEXT_TERMINAL : TEXT_PLAIN, stdout);
    return fflush(stdout) != 0 || s->answer.failed;
}

/* Makes ids of the conversation. */
static int encode(session *s) {
    for (int64_t i = 0; i < s->count; i++) {
        s->messages[i].content = s->texts[i].bytes;
    }
    id_lists_free(&s->prompt);
    const napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    return id_lists_start(&s->prompt) ||
           text_encoder_add_chat(&s->encoder, "the conversation", s->messages, s->count, options, &s->prompt);
}

static napier_status generate(session *s) {
    const chat_request *const q = s->q;
    napier_sample_options sampling = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results results = NAPIER_GENERATE_RESULTS_INIT;
    int64_t length = 0;
    sampling.temperature = q->shared.temperature;
    sampling.top_k = q->top_k;
    sampling.top_p = q->top_p;
    sampling.seed = q->seed;
    batch.prompt_ids = id_lists_ids(&s->prompt);
    batch.prompt_offsets = id_lists_offsets(&s->prompt);
    batch.numbers = napier_indices_i64(&s->turn, 1);
    options.max_tokens = q->max_tokens;
    options.stop = napier_indices_i64(s->stop, s->stop_count);
    options.sampling = &sampling;
    options.tokenizer = s->encoder.tokenizer;
    options.on_token = end_if_interrupted;
    options.on_text = show;
    options.on_kv = keep_kv;
    options.user = s;
    options.kvs = (const napier_kv *const *)&s->kv;
    options.kv_count = s->kv != NULL;
    results.ids = s->ids;
    results.lengths = &length;
    s->next_kv = NULL;
    const napier_status status = napier_generate(s->context, s->model, &batch, &options, &results);
    if (s->next_kv != NULL) {
        napier_kv_destroy(s->context, s->kv);
        s->kv = s->next_kv;
    }
    return status;
}

/* Answers the last message. An answer that Ctrl-C has ended stays as it is. */
static int answer(session *s) {
    s->answer.size = 0;
    s->has_begun = false;
    is_interrupted = 0;
    if (encode(s)) {
        return STATUS_FAILED;
    }
    s->is_too_long = s->is_too_long || model_note_length(s->context, s->model, s->prompt.size + s->q->max_tokens);
    const napier_status status = generate(s);
    s->turn++;
    fputc('\n', stdout);
    if (fflush(stdout) != 0) {
        return complain("standard output: %s", strerror(errno));
    }
    if (status != NAPIER_OK && !(status == NAPIER_CANCELLED && is_interrupted)) {
        return library_status(s->context, status, NULL);
    }
    is_interrupted = 0;
    return say(s, "assistant", s->answer.bytes != NULL ? s->answer.bytes : "", s->answer.size);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static int save(const session *s, const char *path) {
    buffer b = {0};
    buffer_text(&b, "{\"messages\": [");
    for (int64_t i = 0; i < s->count; i++) {
        buffer_print(&b, "%s{\"role\": \"%s\", \"content\": ", i > 0 ? ", " : "", s->messages[i].role);
        buffer_json(&b, s->texts[i].bytes);
        buffer_text(&b, "}");
    }
    buffer_text(&b, "]}\n");
    const int status = output_settle(buffer_write(&b, path)); /* now, not at the end of the program */
    buffer_free(&b);
    return status;
}

static int help(void) {
    puts("/system TEXT   begins anew, with this text of the system; without TEXT with none\n"
         "/reset         begins anew, with the same text of the system\n"
         "/save FILE     writes the conversation as a line of JSON, as napier tokenize --chat reads it\n"
         "/help          this\n"
         "/quit          leaves, as Ctrl-D does\n"
         "Ctrl-C ends an answer. A message that begins with / is written with two.");
    return STATUS_OK;
}

/* The text behind the command `name`; NULL if the line is another. */
static const char *behind(const char *line, const char *name) {
    const size_t size = strlen(name);
    const bool is = strncmp(line, name, size) == 0 && (line[size] == '\0' || line[size] == ' ');
    return is ? line + size + strspn(line + size, " ") : NULL;
}

static int reset(session *s) {
    unsay(s, has_system(s));
    return STATUS_OK;
}

static int run_command(session *s, const char *line) {
    const char *text = NULL;
    return (text = behind(line, "/system")) != NULL ? begin(s, text)
           : behind(line, "/reset") != NULL         ? reset(s)
           : (text = behind(line, "/save")) != NULL
               ? *text != '\0' ? save(s, text) : complain("/save: a file's name is missing")
           : behind(line, "/help") != NULL ? help()
                                           : complain("%.40s is no command; /help lists them", line);
}

/* A message that fails, as one that the model's template refuses, is taken back. */
static int take_message(session *s, const char *text) {
    const int64_t before = s->count;
    const int status = say(s, "user", text, strlen(text)) || answer(s);
    if (status != STATUS_OK) {
        unsay(s, before);
    }
    return status;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Reads a line of standard input without its end; of a longer one than MOST_LINE one byte more. Returns false at the end
 * of the input. The readers of io/lines.h wait for a full block, but here each line is answered. */
static bool read_plain(buffer *line) {
    int c = 0;
    line->size = 0;
    while ((c = getc(stdin)) != EOF && c != '\n') {
        const char byte = (char)c;
        if (line->size <= MOST_LINE) {
            buffer_add(line, &byte, 1);
        }
    }
    while (line->size > 0 && line->bytes[line->size - 1] == '\r') {
        line->size--;
    }
    const bool is_there = c != EOF || line->size > 0;
    buffer_add(line, "", 1);
    return is_there && !line->failed;
}

static bool read_line(const session *s, buffer *line) {
    static const char mark[] = "> ";
    if (!s->is_terminal) {
        return read_plain(line);
    }
#ifdef NAPIER_LIBEDIT
    char *const typed = readline(mark);
    line->size = 0;
    if (typed != NULL) {
        buffer_add(line, typed, strlen(typed) + 1);
        (void)add_history(typed);
        free(typed);
    }
    return typed != NULL && !line->failed;
#else
    fputs(mark, stdout);
    (void)fflush(stdout);
    return read_plain(line);
#endif
}

static int take_line(session *s, const buffer *line) {
    const char *const text = line->bytes; /* with a 0 behind it */
    if (line->size > MOST_LINE + 1 || strlen(text) + 1 < line->size) {
        return complain("a line %s is left out",
                        line->size > MOST_LINE + 1 ? "of more than 1 MiB" : "that has a byte 0");
    }
    const bool is_command = text[0] == '/' && text[1] != '/';
    return *text == '\0' ? STATUS_OK : is_command ? run_command(s, text) : take_message(s, text + (text[0] == '/'));
}

/* Returns STATUS_FAILED if a line failed and nobody was there to see it. */
static int talk(session *s) {
    buffer line = {0};
    int status = STATUS_OK;
    while (read_line(s, &line) && behind(line.bytes, "/quit") == NULL && !ferror(stdout)) {
        const int done = take_line(s, &line);
        status = done != STATUS_OK && !s->is_terminal ? STATUS_FAILED : status;
    }
    const bool is_lost = line.failed;
    buffer_free(&line);
    return is_lost         ? complain("out of memory")
           : ferror(stdin) ? complain("standard input: %s", strerror(errno))
                           : status;
}

static int prepare(session *s) {
    const chat_request *const q = s->q;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    int64_t vocabulary = 0;
    if (model_open(&q->shared, s->context, &s->model, &vocabulary)) {
        return STATUS_FAILED;
    }
    if (napier_model_get_info(s->context, s->model, &info) == NAPIER_OK) {
        for (int64_t i = 0; i < info.eos_count && s->stop_count < MOST_STOP_IDS; i++) {
            s->stop[s->stop_count++] = info.eos_ids[i];
        }
    }
    s->encoder = model_text_encoder(&q->shared, s->context, vocabulary);
    s->ids = calloc((size_t)q->max_tokens, sizeof *s->ids);
    s->is_terminal = isatty(fileno(stdin)) && isatty(fileno(stdout));
    return s->ids != NULL ? begin(s, q->system != NULL ? q->system : "") : complain("out of memory");
}

static int run(void *request, napier_context *context) {
    session s = {.q = request, .context = context};
    int status = prepare(&s);
    if (status == STATUS_OK) {
        if (s.is_terminal) {
            puts("/help lists the commands; Ctrl-C ends an answer, Ctrl-D the conversation.");
        }
        void (*const before)(int) = signal(SIGINT, on_interrupt);
        napier_context_set_interrupt(context, asks_to_stop, &s);
        status = talk(&s);
        napier_context_set_interrupt(context, NULL, NULL);
        (void)signal(SIGINT, before != SIG_ERR ? before : SIG_DFL);
    }
    unsay(&s, 0);
    free(s.texts);
    free(s.messages);
    free(s.ids);
    buffer_free(&s.answer);
    id_lists_free(&s.prompt);
    text_encoder_free(&s.encoder);
    napier_kv_destroy(context, s.kv);
    napier_model_destroy(context, s.model);
    return status;
}

#else

static int run(void *request, napier_context *context) { return model_missing(request, context); }

#endif

/* ---- Options ----------------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(chat_request, member)
static const option options[] = {
    {"model", 'm', OPTION_READ, "DIR", AT(shared.folder),
     .help =
         "the model: a folder with config.json, model.safetensors or shards of it, and tokenizer.json; or a GGUF file"},
    {"system", 's', OPTION_TEXT, "TEXT", AT(system),
     .help = "the system's message (default: what the model's chat template writes without one)"},
    {"max-tokens", 0, OPTION_INTEGER, "N", AT(max_tokens), OPTION_FROM(1, 1 << 20),
     .help = "tokens of an answer, at most (default: 1024)"},
    {"temperature", 't', OPTION_NUMBER, "T", AT(shared.temperature), OPTION_FROM(0, DBL_MAX),
     .help = "logits are divided by T first (default: 0.7); 0: always the likeliest token"},
    {"top-k", 0, OPTION_INTEGER, "K", AT(top_k), OPTION_FROM(0, INT32_MAX),
     .help = "sample from the K likeliest tokens (default: 0, all)"},
    {"top-p", 0, OPTION_NUMBER, "P", AT(top_p), OPTION_ABOVE_0(1),
     .help = "sample from the fewest tokens whose probability is at least P (default: 1, all)"},
    {"seed", 0, OPTION_INTEGER, "S", AT(seed), OPTION_FROM(0, 0x1p53), .help = "of the random numbers (default: 0)"},
    {"compute", 0, OPTION_WORD, "MODE", AT(shared.compute), .words = compute_modes,
     .help = "f32 (default), bf16: activations rounded to bf16 before each product, or split: f32's accuracy by three "
             "products of "
             "bf16, for weights of bf16"},
    {"memory", 0, OPTION_SIZE, "SIZE", AT(shared.memory), OPTION_ABOVE_0(0x1p63),
     .help = "what may be taken beside the weights, as 512M or 4G (default: 1G)"},
    {.name = NULL},
};
static const option_group groups[] = {
    {NULL, options}, {NULL, chat_options}, {NULL, conversation_options}, MACHINE_GROUP};
static const chat_request defaults = {
    .shared = {.compute = NAPIER_COMPUTE_F32, .temperature = 0.7, .chat_format = -1, .shard = {0, 1}},
    .max_tokens = 1024,
    .top_p = 1};

const command chat_command = {
    .name = "chat",
    .summary = "a conversation with a language model",
    .usage = "--model DIR [OPTIONS]",
    .about =
        "Answers each line of standard input, in one conversation, in the format of the model's chat template. An "
        "answer\n"
        "is shown as it is generated; Ctrl-C ends it, and not the conversation. Lines that begin with / are commands:\n"
        "\n"
        "  /system TEXT   begins anew, with this text of the system; without TEXT with none\n"
        "  /reset         begins anew, with the same text of the system\n"
        "  /save FILE     writes the conversation as a line of JSON\n"
        "  /help, /quit\n"
        "\n"
        "A message that begins with / is written with two. The same lines and options give the same answers on every\n"
        "machine. The exit status is 1 if a line failed, unless someone types.",
    .example = "napier chat --model Qwen3-0.6B --system 'Be brief.'\n"
               "printf '%s\\n' 'Why is the sky blue?' 'And the sea?' | napier chat --model Qwen3-0.6B -t 0",
    .input = INPUT_NONE,
    .groups = groups,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = model_check,
    .run = run,
};
