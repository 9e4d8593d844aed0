/* cli/lm/logprobs.c - `napier logprobs`: log-probabilities of responses under a model. */
#include "../commands.h"
#include "../io/output.h"
#include "../program/message.h"
#include "../program/progress.h"
#include "model_options.h"
#include "score_lines.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct logprobs_request {
    model_request shared;
    int plan;
    int64_t prefix_token; /* -1: none */
} logprobs_request;

#ifdef NAPIER_MODEL

/* The state of a run. */
typedef struct session {
    const logprobs_request *q;
    napier_context *context;
    napier_model *model;
    int64_t vocabulary;
    score_lines lines;
    napier_score_batch batch;
    napier_score_options options;
    napier_score_plan plan;
    progress_line progress;
    float *logprobs, *entropy;
    uint8_t *greedy;
} session;

/* ---- Input ------------------------------------------------------------------------------------------------------- */

static int read_lines(session *s) {
    text_encoder encoder = model_text_encoder(&s->q->shared, s->context, s->vocabulary);
    encoder.has_prefix = s->q->prefix_token >= 0;
    const int status = score_lines_read(&s->lines, s->q->shared.shared.in_path, &encoder);
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
    return library_status(s->context, napier_model_batch_plan(s->context, s->model, &s->batch, &s->options, &s->plan),
                          NULL);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Called as the library's progress. */
static int show_progress(const char *stage, double done, void *user) {
    session *const s = user;
    char text[96];
    const double seconds = clock_seconds() - s->progress.started;
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
    s->options.progress = show_progress;
    s->options.user = s;
    const napier_status status = napier_model_batch_logprobs(s->context, s->model, &s->batch, &s->options, &results);
    progress_end(&s->progress);
    return library_status(s->context, status, NULL);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

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
    fputs("], \"logprobs\": ", out);
    json_list(out, s->logprobs + begin, end - begin);
    fputs(", \"entropies\": ", out);
    json_list(out, s->entropy + begin, end - begin);
    fputs(", \"sum\": ", out);
    json_f64(out, sum);
    fprintf(out, ", \"is_greedy\": %s}\n", greedy ? "true" : "false");
}

static void print_plan(const session *s, FILE *out) {
    fprintf(out,
            "{\"prompts\": %" PRId64 ", \"tokens\": %" PRId64 ", \"tokens_run\": %" PRId64
            ", \"tokens_unshared\": %" PRId64 ", \"chunks\": %" PRId64 ", \"bytes\": %" PRId64 "}\n",
            s->plan.prompts, s->plan.tokens, s->plan.tokens_run, s->plan.tokens_unshared, s->plan.chunks,
            s->plan.bytes);
}

static int print_results(FILE *out, void *user) {
    const session *const s = user;
    for (int64_t b = 0; b < s->lines.responses.count && !s->q->plan; b++) {
        print_response(s, b, out);
    }
    if (s->q->plan) {
        print_plan(s, out);
    }
    return STATUS_OK;
}

static int run(void *request, napier_context *context) {
    const logprobs_request *const q = request;
    session s = {.q = q, .context = context};
    const int status = model_open(&q->shared, context, &s.model, &s.vocabulary) || read_lines(&s) || make_plan(&s) ||
                       (!q->plan && score(&s)) || output_print(q->shared.shared.out_path, print_results, &s);
    free(s.logprobs);
    free(s.entropy);
    free(s.greedy);
    score_lines_free(&s.lines);
    napier_model_destroy(context, s.model);
    return status;
}

#else

static int run(void *request, napier_context *context) { return model_missing(request, context); }

#endif

/* ---- Options ----------------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(logprobs_request, member)
static const option options[] = {
    {"prefix-token", 0, OPTION_INTEGER, "ID", AT(prefix_token), OPTION_FROM(0, INT32_MAX),
     .help = "a token that stands in for an empty prompt, which is an error otherwise"},
    {"plan", 0, OPTION_FLAG, NULL, AT(plan), .help = "only what would run, and the memory that it would take"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, model_options},        {NULL, scoring_options}, {NULL, prompt_options},
                                      {NULL, conversation_options}, {NULL, options},         MACHINE_GROUP};
static const logprobs_request defaults = {.shared = MODEL_DEFAULTS, .prefix_token = -1};

const command logprobs_command = {
    .name = "logprobs",
    .summary = "log-probabilities of responses under a language model",
    .usage = "IN.jsonl --model DIR [-o OUT] [OPTIONS]",
    .about =
        "Log-probabilities of responses under a language model (config.json, model.safetensors or shards, and for\n"
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
        "   \"sum\": -0.25, \"is_greedy\": true}\n"
        "\n"
        "Equal prompts, and what prompts have in common at their beginning, run through the model once.",
    .example = "napier logprobs answers.jsonl --model Qwen3-0.6B -o scored.jsonl",
    .groups = groups,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = model_check,
    .run = run,
};
