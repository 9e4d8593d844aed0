/* cli/logprobs.c - `napier logprobs`: log-probabilities of responses under a model. */
#include "commands.h"
#include "machine.h"
#include "message.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "rl_output.h"
#include "score_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL = 1, OUTPUT, COMPUTE, MEMORY, TEMPERATURE, PREFIX, NO_THINKING, PLAN, THREADS, ISA, HELP };

static const option_spec specs[] = {
    {MODEL, "model", 'm', true},
    {OUTPUT, "output", 'o', true},
    {COMPUTE, "compute", '\0', true},
    {MEMORY, "memory", '\0', true},
    {TEMPERATURE, "temperature", 't', true},
    {PREFIX, "prefix-token", '\0', true},
    {NO_THINKING, "no-thinking", '\0', false},
    {PLAN, "plan", '\0', false},
    {THREADS, "threads", 'j', true},
    {ISA, "isa", '\0', true},
    {HELP, "help", 'h', false},
    {0, NULL, '\0', false},
};

void logprobs_help(void) {
    puts("usage: napier logprobs IN.jsonl --model DIR [-o OUT] [OPTIONS]\n"
         "\n"
         "Log-probabilities of responses under a Qwen3 model (config.json, model.safetensors or shards, and for\n"
         "texts tokenizer.json). Each line of IN (- is standard input) has a prompt and its responses: texts,\n"
         "lists of token ids, or a prompt as a conversation:\n"
         "\n"
         "  {\"prompt\": \"2 + 2 =\", \"responses\": [\" 4\", \" 5\"]}\n"
         "  {\"prompt\": [17, 488, 220], \"response\": [19]}\n"
         "  {\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2?\"}], \"responses\": [\"4\"]}\n"
         "\n"
         "A response is a line of OUT, with a number for each of its tokens; napier rubric and kl read them:\n"
         "\n"
         "  {\"line\": 1, \"response\": 0, \"token_ids\": [19], \"logprobs\": [-0.25], \"entropies\": [0.5],\n"
         "   \"sum\": -0.25, \"is_greedy\": true}");
    puts("\n"
         "Equal prompts, and what prompts have in common at their beginning, run through the model once.\n"
         "\n"
         "  -m, --model DIR            the model\n"
         "  -o, --output OUT           where the result goes (default or -: standard output)\n"
         "      --compute MODE         f32 (default), or bf16: activations rounded to bf16 before each product\n"
         "      --memory SIZE          beside the weights, as 512M or 4G (default: 1G)\n"
         "  -t, --temperature T        logits are divided by T first (default: 1)\n"
         "      --prefix-token ID      stands in for an empty prompt, which is an error otherwise\n"
         "      --no-thinking          conversations end with an empty think block\n"
         "      --plan                 only what would run, and the memory that it would take\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text\n"
         "\n"
         "example: napier logprobs answers.jsonl --model Qwen3-0.6B -o scored.jsonl");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef struct logprobs_request {
    const char *path, *model, *out_path;
    bool bf16, no_thinking, plan, help;
    int64_t memory, prefix_token;
    double temperature;
    machine machine;
} logprobs_request;

static int bad_value(const char *option, const char *value, const char *wanted) {
    char shown[64];
    return misuse("logprobs", "--%s: '%s' is not %s", option, printable(shown, sizeof shown, value, strlen(value)),
                  wanted);
}

static int set_compute(logprobs_request *q, const char *value) {
    static const char *const words[] = {"f32", "bf16", NULL};
    const int index = word_index(value, words);
    q->bf16 = index == 1;
    return index >= 0 ? STATUS_OK : bad_value("compute", value, "f32 or bf16");
}

static int set_temperature(logprobs_request *q, const char *value) {
    const bool good = parse_number(value, &q->temperature) && isfinite(q->temperature) && q->temperature > 0;
    return good ? STATUS_OK : bad_value("temperature", value, "a finite number above 0");
}

static int set_option(logprobs_request *q, int id, const char *value) {
    switch (id) {
    case MODEL: q->model = value; return STATUS_OK;
    case OUTPUT: q->out_path = value; return STATUS_OK;
    case COMPUTE: return set_compute(q, value);
    case MEMORY:
        return parse_size(value, &q->memory) && q->memory > 0 ? STATUS_OK
                                                              : bad_value("memory", value, "a size above 0");
    case TEMPERATURE: return set_temperature(q, value);
    case PREFIX:
        return parse_integer(value, 0, INT32_MAX, &q->prefix_token) ? STATUS_OK
                                                                    : bad_value("prefix-token", value, "a token id");
    case NO_THINKING: q->no_thinking = true; return STATUS_OK;
    case PLAN: q->plan = true; return STATUS_OK;
    case THREADS: q->machine.threads_text = value; return STATUS_OK;
    case ISA: q->machine.isa_text = value; return STATUS_OK;
    case HELP: q->help = true; return STATUS_OK;
    case OPTION_OPERAND:
        if (q->path != NULL) {
            return misuse("logprobs", "one file at a time");
        }
        q->path = value;
        return STATUS_OK;
    default: return STATUS_USAGE;
    }
}

static int parse_request(logprobs_request *q, int count, char **words) {
    option_scan scan = {.command = "logprobs", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->help) {
            return status;
        }
    }
    if (q->path == NULL) {
        return misuse("logprobs", "a file is missing (- is standard input)");
    }
    if (q->model == NULL) {
        return misuse("logprobs", "--model is missing: a folder with a model");
    }
    return machine_resolve(&q->machine, "logprobs");
}

#ifdef NAPIER_MODEL

/* What a run holds. */
typedef struct session {
    const logprobs_request *q;
    napier_context *context;
    napier_model *model;
    score_lines lines;
    napier_score_batch batch;
    napier_score_options options;
    napier_score_plan plan;
    progress progress;
    double started;
    float *logprobs, *entropy;
    uint8_t *greedy;
} session;

static int library_error(const session *s, napier_status status) {
    const char *const text = napier_last_error(s->context);
    return complain("%s", *text != '\0' ? text : napier_status_string(status));
}

/* ---- Input ------------------------------------------------------------------------------------------------------- */

static int load(session *s) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    options.compute = s->q->bf16 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32;
    options.memory = s->q->memory;
    const napier_status status = napier_model_load(s->context, s->q->model, &options, &s->model);
    return status == NAPIER_OK ? STATUS_OK : library_error(s, status);
}

static int read_lines(session *s) {
    text_encoder encoder = {.context = s->context, .model = s->q->model, .no_thinking = s->q->no_thinking};
    const int status = score_lines_read(&s->lines, s->q->path, &encoder);
    text_encoder_free(&encoder);
    return status;
}

static int make_plan(session *s) {
    const score_lines *const l = &s->lines;
    s->batch = (napier_score_batch)NAPIER_SCORE_BATCH_INIT;
    s->batch.prompt_ids = id_lists_ids(&l->prompts);
    s->batch.prompt_offsets = id_lists_offsets(&l->prompts);
    s->batch.response_ids = id_lists_ids(&l->responses);
    s->batch.response_offsets = id_lists_offsets(&l->responses);
    s->batch.prompt_of = napier_indices_i64(l->prompt_of, l->responses.count);
    s->options = (napier_score_options)NAPIER_SCORE_OPTIONS_INIT;
    s->options.temperature = s->q->temperature;
    s->options.prefix_token = s->q->prefix_token;
    s->plan = (napier_score_plan)NAPIER_SCORE_PLAN_INIT;
    if (l->responses.count == 0) { /* prompts without responses: nothing to do */
        return STATUS_OK;
    }
    const napier_status status = napier_model_batch_plan(s->context, s->model, &s->batch, &s->options, &s->plan);
    return status == NAPIER_OK ? STATUS_OK : library_error(s, status);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Called as the library's progress. */
static int show_progress(const char *stage, double done, void *user) {
    session *const s = user;
    char text[96];
    const double seconds = clock_seconds() - s->started;
    snprintf(text, sizeof text, "%s, %.0f tokens a second", stage,
             seconds > 0 ? done * (double)s->plan.tokens_run / seconds : 0.0);
    progress_stage(&s->progress, text, done);
    return 0;
}

/* Before the work, on a terminal. */
static void state_memory(const session *s) {
    if (s->progress.on_terminal) {
        fprintf(stderr, "napier: %" PRId64 " tokens to run (%" PRId64 " if nothing were shared), at most %.3g GB\n",
                s->plan.tokens_run, s->plan.tokens_unshared, (double)s->plan.bytes * 1e-9);
    }
}

static int score(session *s) {
    const size_t tokens = (size_t)s->plan.tokens + 1;
    s->logprobs = malloc(tokens * sizeof *s->logprobs);
    s->entropy = malloc(tokens * sizeof *s->entropy);
    s->greedy = malloc(tokens);
    if (s->logprobs == NULL || s->entropy == NULL || s->greedy == NULL) {
        return complain("out of memory");
    }
    if (s->plan.tokens == 0) {
        return STATUS_OK;
    }
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(s->logprobs, s->plan.tokens);
    results.entropy = napier_array_f32(s->entropy, s->plan.tokens);
    results.is_greedy = s->greedy;
    progress_start(&s->progress, s->plan.tokens_run);
    state_memory(s);
    s->started = clock_seconds();
    s->options.progress = show_progress;
    s->options.user = s;
    const napier_status status = napier_model_batch_logprobs(s->context, s->model, &s->batch, &s->options, &results);
    progress_end(&s->progress);
    return status == NAPIER_OK ? STATUS_OK : library_error(s, status);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void print_numbers(FILE *out, const char *name, const float *numbers, int64_t count) {
    fprintf(out, ", \"%s\": [", name);
    for (int64_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", out);
        rl_print_f32(out, numbers[i]);
    }
    fputc(']', out);
}

static void print_response(const session *s, int64_t b, FILE *out) {
    const score_lines *const l = &s->lines;
    const int64_t begin = l->responses.offsets[b], end = l->responses.offsets[b + 1];
    double sum = 0;
    bool greedy = true;
    fprintf(out, "{\"line\": %" PRId64 ", \"response\": %" PRId64 ", \"token_ids\": [", l->line[l->prompt_of[b]],
            l->number[b]);
    for (int64_t t = begin; t < end; t++) {
        fprintf(out, "%s%" PRId32, t > begin ? ", " : "", l->responses.ids[t]);
        sum += (double)s->logprobs[t];
        greedy = greedy && s->greedy[t];
    }
    fputc(']', out);
    print_numbers(out, "logprobs", s->logprobs + begin, end - begin);
    print_numbers(out, "entropies", s->entropy + begin, end - begin);
    fputs(", \"sum\": ", out);
    rl_print_f64(out, sum);
    fprintf(out, ", \"is_greedy\": %s}\n", greedy ? "true" : "false");
}

static void print_plan(const session *s, FILE *out) {
    fprintf(out,
            "{\"prompts\": %" PRId64 ", \"tokens\": %" PRId64 ", \"tokens_run\": %" PRId64
            ", \"tokens_unshared\": %" PRId64 ", \"chunks\": %" PRId64 ", \"bytes\": %" PRId64 "}\n",
            s->plan.prompts, s->plan.tokens, s->plan.tokens_run, s->plan.tokens_unshared, s->plan.chunks,
            s->plan.bytes);
}

static int write_results(const session *s) {
    output out;
    int status = output_open(&out, s->q->out_path);
    if (status == STATUS_OK) {
        for (int64_t b = 0; b < s->lines.responses.count && !s->q->plan; b++) {
            print_response(s, b, out.file);
        }
        if (s->q->plan) {
            print_plan(s, out.file);
        }
        status = rl_finish(&out);
    }
    output_discard(&out);
    return status;
}

static int logprobs(const logprobs_request *q) {
    session s = {.q = q};
    int status = machine_open(&q->machine, &s.context);
    if (status == STATUS_OK) {
        status = load(&s);
    }
    if (status == STATUS_OK) {
        status = read_lines(&s);
    }
    if (status == STATUS_OK) {
        status = make_plan(&s);
    }
    if (status == STATUS_OK && !q->plan) {
        status = score(&s);
    }
    if (status == STATUS_OK) {
        status = write_results(&s);
    }
    free(s.logprobs);
    free(s.entropy);
    free(s.greedy);
    score_lines_free(&s.lines);
    napier_model_destroy(s.context, s.model);
    napier_context_destroy(s.context);
    return status;
}

#else

static int logprobs(const logprobs_request *q) {
    (void)q;
    return complain("this build has no models, which need cJSON, PCRE2 and utf8proc");
}

#endif

int logprobs_command(int count, char **words) {
    logprobs_request q = {.prefix_token = -1, .temperature = 1.0};
    const int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.help) {
        logprobs_help();
        return finish_standard_output();
    }
    return status == STATUS_OK ? logprobs(&q) : status;
}
