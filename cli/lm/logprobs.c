/* cli/lm/logprobs.c - `napier logprobs`: log-probabilities of responses under a model. */
#include "../commands.h"
#include "../program/machine.h"
#include "../program/message.h"
#include "model_options.h"
#include "../program/options.h"
#include "../io/output.h"
#include "../program/progress.h"
#include "../rl/rl_output.h"
#include "score_lines.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PREFIX = MODEL_OWN, NO_THINKING, PLAN };

static const option_spec specs[] = {
    MODEL_SPECS,
    {PREFIX, "prefix-token", '\0', true},
    {NO_THINKING, "no-thinking", '\0', false},
    {PLAN, "plan", '\0', false},
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
         "A conversation may have reasoning_content, tool_calls and tools: see napier help tokenize.\n"
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
    model_request shared;
    bool no_thinking, plan;
    int64_t prefix_token;
} logprobs_request;

static int set_prefix(logprobs_request *q, const char *value) {
    const bool good = parse_integer(value, 0, INT32_MAX, &q->prefix_token);
    return good ? STATUS_OK : bad_value("logprobs", "prefix-token", value, "a token id");
}

static int set_option(logprobs_request *q, int id, const char *value) {
    switch (id) {
    case PREFIX: return set_prefix(q, value);
    case NO_THINKING: q->no_thinking = true; return STATUS_OK;
    case PLAN: q->plan = true; return STATUS_OK;
    default: return model_set_option(&q->shared, id, value);
    }
}

static int parse_request(logprobs_request *q, int count, char **words) {
    option_scan scan = {.command = "logprobs", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->shared.help) {
            return status;
        }
    }
    const int status = model_check_request(&q->shared);
    return status == STATUS_OK ? machine_resolve(&q->shared.machine, "logprobs") : status;
}

#ifdef NAPIER_MODEL

/* The state of a run. */
typedef struct session {
    const logprobs_request *q;
    napier_context *context;
    napier_model *model;
    score_lines lines;
    napier_score_batch batch;
    napier_score_options options;
    napier_score_plan plan;
    progress_line progress;
    double started;
    float *logprobs, *entropy;
    uint8_t *greedy;
} session;

/* ---- Input ------------------------------------------------------------------------------------------------------- */

static int read_lines(session *s) {
    text_encoder encoder = {.context = s->context,
                            .model = s->q->shared.folder,
                            .no_thinking = s->q->no_thinking,
                            .vocabulary = model_vocabulary(s->context, s->model),
                            .has_prefix = s->q->prefix_token >= 0};
    const int status = score_lines_read(&s->lines, s->q->shared.path, &encoder);
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
    s->options = model_score_options(&s->q->shared);
    s->options.prefix_token = s->q->prefix_token;
    s->plan = (napier_score_plan)NAPIER_SCORE_PLAN_INIT;
    if (l->responses.count == 0) { /* prompts without responses: nothing to do */
        return STATUS_OK;
    }
    return model_status(s->context, napier_model_batch_plan(s->context, s->model, &s->batch, &s->options, &s->plan));
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

/* Prints the memory needed, before the work, on a terminal. */
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
    return model_status(s->context, status);
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
    int status = output_open(&out, s->q->shared.out_path);
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
    int status = machine_open(&q->shared.machine, &s.context);
    if (status == STATUS_OK) {
        status = model_open(&q->shared, s.context, &s.model);
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
    logprobs_request q = {.shared = {.command = "logprobs"}, .prefix_token = -1};
    const int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.shared.help) {
        logprobs_help();
        return finish_standard_output();
    }
    return status == STATUS_OK ? logprobs(&q) : status;
}
