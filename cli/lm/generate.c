/* cli/lm/generate.c - `napier generate`: samples of a language model. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "io/output.h"
#include "program/message.h"
#include "program/progress.h"
#include "program/system.h"
#include "results.h"
#include "text_print.h"

#include <napier/generate.h>

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STOPS = 16 };

typedef struct generate_request {
    model_request shared;
    const char *prompt; /* NULL: the prompts are in IN */
    int64_t samples, max_tokens, min_tokens, top_k, seed, stop_id;
    double top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    napier_text stops[MOST_STOPS];
    int64_t stop_count;
    int chat, greedy, ignore_eos, entropies;
} generate_request;

#ifdef NAPIER_MODEL

/* Prompts whose sequences are generated together and written before the next ones begin. */
enum { TOGETHER = 128 };

enum { MOST_STOP_IDS = 17 }; /* --stop-id, and the ids of end of text that a model may have */

/* The state of a run. */
typedef struct session {
    const generate_request *q;
    napier_context *context;
    napier_model *model;
    int64_t vocabulary;
    int64_t stop[MOST_STOP_IDS], stop_count;
    text_encoder encoder;
    score_lines lines; /* prompts without responses */
    int64_t *ids, *lengths, *numbers, *stop_text, *text_offsets;
    napier_finish *finish;
    float *logprobs, *plain, *entropy;
    napier_text_buffer text; /* of the sequences that have been generated together */
    bool is_too_long;        /* the warning of it is printed */
    FILE *stream;            /* where the text goes as it is generated; NULL: nowhere */
    int64_t tokens, most;    /* generated so far, and at most */
    progress_line progress;
} session;

/* ---- Input ------------------------------------------------------------------------------------------------------- */

static int read_prompts(session *s) {
    const generate_request *const q = s->q;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    if (q->stop_id >= 0) {
        s->stop[s->stop_count++] = q->stop_id;
    }
    if (!q->ignore_eos && napier_model_get_info(s->context, s->model, &info) == NAPIER_OK) {
        for (int64_t i = 0; i < info.eos_count && s->stop_count < MOST_STOP_IDS; i++) {
            s->stop[s->stop_count++] = info.eos_ids[i];
        }
    }
    s->encoder = model_text_encoder(&q->shared, s->context, s->vocabulary);
    s->encoder.has_prompts_only = true;
    const int status = q->prompt ? score_lines_prompt(&s->lines, q->prompt, q->chat, &s->encoder)
                                 : score_lines_read(&s->lines, q->shared.shared.in_path, q->shared.shard, &s->encoder);
    const bool needs_tokenizer = q->stop_count > 0 && s->encoder.tokenizer == NULL;
    return status || (needs_tokenizer && tokenizer_open(s->context, q->shared.folder, &s->encoder.tokenizer));
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Called as the library's on_token. */
static int show_token(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    session *const s = user;
    char text[64];
    (void)sequence, (void)index, (void)id, (void)logprob;
    const double seconds = clock_seconds() - s->progress.started;
    snprintf(text, sizeof text, "generating, %.0f tokens a second", seconds > 0 ? (double)s->tokens / seconds : 0.0);
    progress_stage(&s->progress, text, (double)++s->tokens / (double)s->most);
    return 0;
}

static int allocate(session *s) {
    const size_t sequences = TOGETHER, most = (size_t)s->q->max_tokens;
    s->ids = calloc(sequences * most, sizeof *s->ids);
    s->lengths = calloc(sequences, sizeof *s->lengths);
    s->numbers = calloc(sequences, sizeof *s->numbers);
    s->finish = calloc(sequences, sizeof *s->finish);
    s->logprobs = calloc(sequences * most, sizeof *s->logprobs);
    s->plain = calloc(sequences * most, sizeof *s->plain);
    s->entropy = calloc(sequences * most, sizeof *s->entropy);
    s->stop_text = calloc(sequences, sizeof *s->stop_text);
    s->text_offsets = calloc(sequences + 1, sizeof *s->text_offsets);
    const bool all = s->ids && s->lengths && s->numbers && s->finish && s->logprobs && s->plain && s->entropy &&
                     s->stop_text && s->text_offsets;
    return all ? STATUS_OK : complain("out of memory");
}

static napier_sample_options sampling_of(const generate_request *q) {
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    options.temperature = q->greedy ? 0 : q->shared.temperature;
    options.top_k = q->top_k;
    options.top_p = q->top_p;
    options.min_p = q->min_p;
    options.repetition_penalty = q->repetition_penalty;
    options.presence_penalty = q->presence_penalty;
    options.frequency_penalty = q->frequency_penalty;
    options.seed = q->seed;
    return options;
}

static void print_string(const char *bytes, size_t size, FILE *out) {
    fputc('"', out);
    text_print(bytes, size, TEXT_JSON, out);
    fputc('"', out);
}

/* Called as the library's on_text. */
static int stream_text(int64_t sequence, const char *bytes, size_t size, int ended, void *user) {
    const session *const s = user;
    (void)sequence;
    text_print(bytes, size, isatty(fileno(s->stream)) ? TEXT_TERMINAL : TEXT_PLAIN, s->stream);
    if (ended) {
        fputc('\n', s->stream);
    }
    return fflush(s->stream) != 0;
}

/* Generates `samples` sequences, from sample `first` on, of each of `prompts` prompts from `prompt` on. The number of a
 * sequence is its index in the whole file, not in the shard. */
static int generate(session *s, int64_t prompt, int64_t prompts, int64_t first, int64_t samples) {
    const generate_request *const q = s->q;
    const id_lists *const l = &s->lines.prompts;
    const int64_t count = prompts * samples;
    const napier_sample_options sampling = sampling_of(q);
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results results = NAPIER_GENERATE_RESULTS_INIT;
    int64_t *const offsets = malloc((size_t)(prompts + 1) * sizeof *offsets);
    if (offsets == NULL) {
        return complain("out of memory");
    }
    for (int64_t i = 0; i <= prompts; i++) {
        offsets[i] = l->offsets[prompt + i] - l->offsets[prompt];
    }
    for (int64_t b = 0; b < count; b++) {
        s->numbers[b] = s->lines.index[prompt + b / samples] * q->samples + first + b % samples;
    }
    batch.prompt_ids = napier_indices_i32(l->ids + l->offsets[prompt], offsets[prompts]);
    batch.prompt_offsets = napier_indices_i64(offsets, prompts + 1);
    batch.samples = samples;
    batch.numbers = napier_indices_i64(s->numbers, count);
    options.max_tokens = q->max_tokens;
    options.min_tokens = q->min_tokens;
    options.tokenizer = s->encoder.tokenizer;
    options.stop_texts = q->stops;
    options.stop_text_count = q->stop_count;
    options.on_text = s->stream ? stream_text : NULL;
    options.stop = napier_indices_i64(s->stop, s->stop_count);
    options.sampling = &sampling;
    options.on_token = s->stream ? NULL : show_token;
    options.user = s;
    results.ids = s->ids;
    results.lengths = s->lengths;
    results.finish = s->finish;
    results.logprobs = napier_rows_f32(s->logprobs, count, q->max_tokens);
    results.plain_logprobs = napier_rows_f32(s->plain, count, q->max_tokens);
    results.entropy = napier_rows_f32(q->entropies ? s->entropy : NULL, count, q->max_tokens);
    results.stop_text = s->stop_text;
    if (s->encoder.tokenizer) {
        s->text.size = 0;
        results.text = &s->text;
        results.text_offsets = s->text_offsets;
    }
    const napier_status status = napier_generate(s->context, s->model, &batch, &options, &results);
    free(offsets);
    for (int64_t b = 0; b < count && status == NAPIER_OK && !s->is_too_long; b++) {
        const int64_t size = id_lists_size(l, prompt + b / samples) + s->lengths[b] - 1;
        s->is_too_long = model_note_length(s->context, s->model, size);
    }
    return status == NAPIER_CANCELLED ? STATUS_OK /* the output failed: the caller looks at ferror */
                                      : library_status(s->context, status, NULL);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void place(const void *user, int64_t sequence, int64_t *line, int64_t *sample) {
    const session *const s = user;
    *line = s->lines.line[sequence / s->q->samples];
    *sample = sequence % s->q->samples;
}

/* Prints row `row` of what has been generated. */
static void print_sequence(const session *s, int64_t sequence, int64_t row, FILE *out) {
    const int64_t *const ids = s->ids + row * s->q->max_tokens, count = s->lengths[row];
    int64_t line, sample;
    place(s, sequence, &line, &sample);
    fprintf(out, "{\"line\": %" PRId64 ", \"sample\": %" PRId64 ", \"token_ids\": [", line, sample);
    for (int64_t t = 0; t < count; t++) {
        fprintf(out, "%s%" PRId64, t > 0 ? ", " : "", ids[t]);
    }
    fputs("], \"logprobs\": ", out);
    json_list(out, s->logprobs + row * s->q->max_tokens, count);
    fputs(", \"plain_logprobs\": ", out);
    json_list(out, s->plain + row * s->q->max_tokens, count);
    if (s->q->entropies) {
        fputs(", \"entropies\": ", out);
        json_list(out, s->entropy + row * s->q->max_tokens, count);
    }
    if (s->encoder.tokenizer != NULL) { /* the prompts were texts, or there are stop texts */
        const int64_t begin = s->text_offsets[row], end = s->text_offsets[row + 1];
        fputs(", \"text\": ", out);
        print_string(s->text.bytes + begin, (size_t)(end - begin), out);
    }
    fprintf(out, ", \"finish\": \"%s\"", s->finish[row] == NAPIER_FINISH_LENGTH ? "length" : "stop");
    if (s->finish[row] == NAPIER_FINISH_TEXT) {
        const napier_text stop = s->q->stops[s->stop_text[row]];
        fputs(", \"stop\": ", out);
        print_string(stop.bytes, stop.size, out);
    }
    fputs("}\n", out);
}

/* Generates and prints some sequences from `done` on: whole prompts, or, if a prompt has many samples, some of them. */
static int64_t print_some(void *user, int64_t done, FILE *out) {
    session *const s = user;
    const int64_t samples = s->q->samples, prompts = s->lines.prompts.count;
    const int64_t prompt = done / samples, first = done % samples, left = samples - first;
    const bool whole = first == 0 && samples <= TOGETHER;
    const int64_t fitting = whole ? TOGETHER / samples : 1;
    const int64_t together = fitting < prompts - prompt ? fitting : prompts - prompt;
    const int64_t each = whole ? samples : left < TOGETHER ? left : TOGETHER;
    s->most = s->most > 0 ? s->most : (prompts * samples - done) * s->q->max_tokens;
    if (generate(s, prompt, together, first, each)) {
        return -1;
    }
    for (int64_t row = 0; row < together * each; row++) {
        print_sequence(s, done + row, row, out);
    }
    return together * each;
}

/* The text of one sequence, as it is generated. */
static int print_stream(FILE *out, void *user) {
    session *const s = user;
    s->stream = out;
    return generate(s, 0, 1, 0, 1);
}

static int print_results(session *s) {
    const result_lines results = {.q = &s->q->shared,
                                  .name = "sample",
                                  .user = s,
                                  .count = s->lines.prompts.count * s->q->samples,
                                  .place = place,
                                  .print = print_some};
    const bool is_text = s->q->prompt != NULL && s->q->shared.shared.out_path == NULL;
    return is_text ? output_print(NULL, print_stream, s) : results_print(&results);
}

static int check_stop_id(const session *s) {
    return s->q->stop_id >= s->vocabulary
               ? complain("--stop-id %" PRId64 ": the model's ids lie below %" PRId64, s->q->stop_id, s->vocabulary)
               : STATUS_OK;
}

static int run(void *request, napier_context *context) {
    const generate_request *const q = request;
    session s = {.q = q, .context = context};
    int status = model_open(&q->shared, context, &s.model, &s.vocabulary) || check_stop_id(&s) || read_prompts(&s) ||
                 allocate(&s);
    if (status == STATUS_OK) {
        progress_start(&s.progress, -1);
        status = print_results(&s);
        progress_end(&s.progress);
    }
    free(s.ids);
    free(s.lengths);
    free(s.numbers);
    free(s.finish);
    free(s.logprobs);
    free(s.plain);
    free(s.entropy);
    free(s.stop_text);
    free(s.text_offsets);
    napier_text_buffer_free(context, &s.text);
    text_encoder_free(&s.encoder);
    score_lines_free(&s.lines);
    napier_model_destroy(context, s.model);
    return status;
}

#else

static int run(void *request, napier_context *context) { return model_missing(request, context); }

#endif

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static const char *add_stop(void *request, const char *text) {
    generate_request *const q = request;
    if (q->stop_count == MOST_STOPS || *text == '\0') {
        return *text == '\0' ? "a text of one byte or more" : "one of at most 16 texts";
    }
    q->stops[q->stop_count++] = (napier_text){text, strlen(text)};
    return NULL;
}

#define AT(member) offsetof(generate_request, member)
static const option options[] = {
    {"prompt", 'p', OPTION_TEXT, "TEXT", AT(prompt),
     .help = "a prompt in place of IN; without --output, only its text is printed, as it is generated"},
    {"chat", 0, OPTION_FLAG, NULL, AT(chat), .help = "the text of --prompt is a user's message of a conversation"},
    {"samples", 'n', OPTION_INTEGER, "N", AT(samples), OPTION_FROM(1, 1 << 24),
     .help = "sequences of each prompt (default: 1)"},
    {"max-tokens", 0, OPTION_INTEGER, "N", AT(max_tokens), OPTION_FROM(1, 1 << 20),
     .help = "tokens of a sequence, at most (default: 256)"},
    {"min-tokens", 0, OPTION_INTEGER, "N", AT(min_tokens), OPTION_FROM(0, 1 << 20),
     .help = "the first N tokens of a sequence do not end it (default: 0)"},
    {"temperature", 't', OPTION_NUMBER, "T", AT(shared.temperature), OPTION_FROM(0, DBL_MAX),
     .help = "logits are divided by T first (default: 1); 0: always the likeliest token"},
    {"greedy", 0, OPTION_FLAG, NULL, AT(greedy), .help = "the same as --temperature 0"},
    {"top-k", 0, OPTION_INTEGER, "K", AT(top_k), OPTION_FROM(0, INT32_MAX),
     .help = "sample from the K likeliest tokens (default: 0, all)"},
    {"top-p", 0, OPTION_NUMBER, "P", AT(top_p), OPTION_ABOVE_0(1),
     .help = "sample from the fewest tokens whose probability is at least P (default: 1, all)"},
    {"min-p", 0, OPTION_NUMBER, "P", AT(min_p), OPTION_FROM(0, 1),
     .help = "sample from the tokens with at least P times the highest probability (default: 0, all)"},
    {"repetition-penalty", 0, OPTION_NUMBER, "R", AT(repetition_penalty), OPTION_ABOVE_0(DBL_MAX),
     .help = "makes tokens of the prompt and the sequence less likely (default: 1, off)"},
    {"presence-penalty", 0, OPTION_NUMBER, "X", AT(presence_penalty), OPTION_FROM(-DBL_MAX, DBL_MAX),
     .help = "subtracted from the logits of tokens of the sequence (default: 0)"},
    {"frequency-penalty", 0, OPTION_NUMBER, "X", AT(frequency_penalty), OPTION_FROM(-DBL_MAX, DBL_MAX),
     .help = "the same, times the number of occurrences (default: 0)"},
    {"seed", 0, OPTION_INTEGER, "S", AT(seed), OPTION_FROM(0, 0x1p53), .help = "of the random numbers (default: 0)"},
    {"stop", 0, OPTION_OTHER, "TEXT", 0, .set = add_stop,
     .help = "a text that ends a sequence, and is not a part of its text; again for each"},
    {"stop-id", 0, OPTION_INTEGER, "ID", AT(stop_id), OPTION_FROM(0, INT32_MAX),
     .help = "a token that ends a sequence, besides the model's end of text"},
    {"ignore-eos", 0, OPTION_FLAG, NULL, AT(ignore_eos), .help = "the model's end of text ends no sequence"},
    {"entropies", 0, OPTION_FLAG, NULL, AT(entropies), .help = "results have the entropy of each token's distribution"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, model_options},        {NULL, chat_options}, {NULL, prompt_options},
                                      {NULL, conversation_options}, {NULL, options},      MACHINE_GROUP};
static const generate_request defaults = {
    .shared = MODEL_DEFAULTS, .samples = 1, .max_tokens = 256, .top_p = 1, .repetition_penalty = 1, .stop_id = -1};

static int check_prompt(const generate_request *q) {
    const base_request *const base = &q->shared.shared;
    return q->prompt == NULL && base->in_path == NULL
               ? misuse("an input file is missing (- is standard input), or --prompt")
           : q->prompt != NULL && base->in_path != NULL ? misuse("--prompt stands in place of %s", base->in_path)
           : q->prompt == NULL && q->chat               ? misuse("--chat goes with --prompt")
           : q->prompt != NULL && q->shared.shard.count > 1
               ? misuse("--shard divides IN, and --prompt stands in its place")
           : q->prompt != NULL && base->out_path == NULL && q->samples > 1
               ? misuse("--samples: --prompt prints one text; --output takes more")
           : q->prompt != NULL && base->out_path == NULL && q->entropies
               ? misuse("--entropies: --prompt prints a text only; --output takes them")
               : STATUS_OK;
}

static int check(void *request) {
    const generate_request *const q = request;
    const int model = model_check(request), status = model ? model : check_prompt(q);
    if (status == STATUS_OK && q->min_tokens > q->max_tokens) {
        return misuse("--min-tokens %" PRId64 " is more than --max-tokens %" PRId64, q->min_tokens, q->max_tokens);
    }
    return status;
}

const command generate_command = {
    .name = "generate",
    .summary = "samples of a language model",
    .usage = "IN.jsonl --model DIR [-o OUT] [OPTIONS]\n--prompt TEXT [--chat] --model DIR [OPTIONS]",
    .about =
        "Continues prompts by sampling from a language model (config.json, model.safetensors or shards, and for texts\n"
        "tokenizer.json). Each line of IN (- is standard input) has a prompt: a text, a list of token ids, or a\n"
        "conversation:\n"
        "\n"
        "  {\"prompt\": \"2 + 2 =\"}\n"
        "  {\"prompt\": [17, 488, 220]}\n"
        "  {\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2?\"}]}\n"
        "\n"
        "A sequence is a line of OUT, in the order of the prompts:\n"
        "\n"
        "  {\"line\": 1, \"sample\": 0, \"token_ids\": [19], \"logprobs\": [-0.25], \"plain_logprobs\": [-0.5],\n"
        "   \"text\": \" 4\", \"finish\": \"stop\"}\n"
        "\n"
        "Options are for all lines: a line with a setting of its own, such as temperature, is refused.\n"
        "\n"
        "finish is length or stop; after a text of --stop, \"stop\" has that text, and \"text\" ends before it.\n"
        "\n"
        "plain_logprobs are without filters and penalties: napier logprobs gives the same numbers. They, and the\n"
        "tokens, are the same on every machine, with any number of threads, and after an interruption.",
    .example = "napier generate prompts.jsonl --model Qwen3-0.6B --samples 8 -t 0.8 -o samples.jsonl --resume\n"
               "napier generate --model Qwen3-0.6B --chat --prompt 'Why is the sky blue?'",
    .input = INPUT_OPTIONAL,
    .groups = groups,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
