/* cli/lm/logprobs.c - `napier logprobs`: log-probabilities of responses under a model. */
#include "commands.h"
#include "io/output.h"
#include "program/message.h"
#include "program/progress.h"
#include "results.h"

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
    napier_score_options options;
    napier_score_plan plan; /* of all responses */
    progress_line progress;
    int64_t tokens_all, tokens_before, tokens_now; /* to run: in this run, before the group, in the group */
    float *logprobs, *entropy;                     /* of the group, whose first token has the index `first` */
    uint8_t *greedy;
    int64_t first;
} session;

/* ---- Input ------------------------------------------------------------------------------------------------------- */

static int read_lines(session *s) {
    text_encoder encoder = model_text_encoder(&s->q->shared, s->context, s->vocabulary);
    encoder.has_prefix = s->q->prefix_token >= 0;
    const int status = score_lines_read(&s->lines, s->q->shared.shared.in_path, s->q->shared.shard, &encoder);
    text_encoder_free(&encoder);
    return status;
}

static int make_plan(session *s) {
    const score_lines *const l = &s->lines;
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    batch.prompt_ids = id_lists_ids(&l->prompts);
    batch.prompt_offsets = id_lists_offsets(&l->prompts);
    batch.response_ids = id_lists_ids(&l->responses);
    batch.response_offsets = id_lists_offsets(&l->responses);
    batch.prompt_of = napier_indices_i64(l->prompt_of, l->responses.count);
    s->options = model_score_options(&s->q->shared);
    s->options.prefix_token = s->q->prefix_token;
    s->plan = (napier_score_plan)NAPIER_SCORE_PLAN_INIT;
    if (l->responses.count == 0) { /* prompts without responses: nothing to do */
        return STATUS_OK;
    }
    return library_status(s->context, napier_model_batch_plan(s->context, s->model, &batch, &s->options, &s->plan),
                          NULL);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* What a model runs for response b: its tokens, and those of its prompt that the one before does not share. */
static int64_t tokens_of(const score_lines *l, int64_t b) {
    const bool is_first = b == 0 || l->prompt_of[b] != l->prompt_of[b - 1];
    const int64_t prompt = is_first ? id_lists_new(&l->prompts, l->prompt_of[b]) : 0;
    return prompt + l->responses.offsets[b + 1] - l->responses.offsets[b];
}

/* The end of the responses from `first` on that are scored together: all, or enough to fill the model's steps. */
static int64_t group_end(session *s, int64_t first) {
    const score_lines *const l = &s->lines;
    const bool is_early = results_are_early(&s->q->shared);
    int64_t b = first, tokens = 0;
    for (; b < l->responses.count && (!is_early || tokens < SCORE_TOGETHER); b++) {
        tokens += tokens_of(l, b);
    }
    s->tokens_now = tokens;
    return b;
}

/* Called as the library's progress. */
static int show_progress(const char *stage, double done, void *user) {
    session *const s = user;
    char text[96];
    const double seconds = clock_seconds() - s->progress.started, now = done * (double)s->tokens_now;
    const double tokens = (double)s->tokens_before + now;
    snprintf(text, sizeof text, "%s, %.0f tokens a second", stage, seconds > 0 ? tokens / seconds : 0.0);
    progress_stage(&s->progress, text, tokens / (double)s->tokens_all);
    return 0;
}

/* Prints the memory needed, before the work, on a terminal. */
static void state_memory(const session *s) {
    if (s->progress.on_terminal) {
        fprintf(stderr, "napier: %" PRId64 " tokens to run (%" PRId64 " if nothing were shared), at most %.3g GB\n",
                s->plan.tokens_run, s->plan.tokens_unshared, (double)s->plan.bytes * 1e-9);
    }
}

/* The batch of the responses first .. end and their prompts. Its offsets are in `scratch`. */
static napier_score_batch batch_of(const score_lines *l, int64_t first, int64_t end, int64_t *scratch) {
    const int64_t prompt = l->prompt_of[first], prompts = l->prompt_of[end - 1] + 1 - prompt, count = end - first;
    int64_t *const prompt_offsets = scratch, *const offsets = prompt_offsets + prompts + 1;
    int64_t *const prompt_of = offsets + count + 1;
    for (int64_t i = 0; i <= prompts; i++) {
        prompt_offsets[i] = l->prompts.offsets[prompt + i] - l->prompts.offsets[prompt];
    }
    for (int64_t i = 0; i <= count; i++) {
        offsets[i] = l->responses.offsets[first + i] - l->responses.offsets[first];
    }
    for (int64_t i = 0; i < count; i++) {
        prompt_of[i] = l->prompt_of[first + i] - prompt;
    }
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(l->prompts.ids + l->prompts.offsets[prompt], prompt_offsets[prompts]);
    batch.prompt_offsets = napier_indices_i64(prompt_offsets, prompts + 1);
    batch.response_ids = napier_indices_i32(l->responses.ids + l->responses.offsets[first], offsets[count]);
    batch.response_offsets = napier_indices_i64(offsets, count + 1);
    batch.prompt_of = napier_indices_i64(prompt_of, count);
    return batch;
}

static int score_batch(session *s, const napier_score_batch *batch) {
    const int64_t tokens = batch->response_ids.size;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(s->logprobs, tokens);
    results.entropy = napier_array_f32(s->entropy, tokens);
    results.is_greedy = s->greedy;
    s->options.progress = show_progress;
    s->options.user = s;
    return tokens == 0
               ? STATUS_OK
               : library_status(s->context,
                                napier_model_batch_logprobs(s->context, s->model, batch, &s->options, &results), NULL);
}

static void free_results(session *s) {
    free(s->logprobs);
    free(s->entropy);
    free(s->greedy);
}

static int score(session *s, int64_t first, int64_t end) {
    const score_lines *const l = &s->lines;
    const size_t tokens = (size_t)(l->responses.offsets[end] - l->responses.offsets[first]) + 1;
    const int64_t offsets = l->prompt_of[end - 1] - l->prompt_of[first] + 2 * (end - first) + 3;
    int64_t *const scratch = malloc((size_t)offsets * sizeof *scratch);
    free_results(s);
    s->logprobs = malloc(tokens * sizeof *s->logprobs);
    s->entropy = malloc(tokens * sizeof *s->entropy);
    s->greedy = malloc(tokens);
    int status = STATUS_OK;
    if (scratch == NULL || s->logprobs == NULL || s->entropy == NULL || s->greedy == NULL) {
        status = complain("out of memory");
    } else {
        const napier_score_batch batch = batch_of(l, first, end, scratch);
        status = score_batch(s, &batch);
    }
    free(scratch);
    return status;
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
        sum += (double)s->logprobs[t - s->first];
        greedy = greedy && s->greedy[t - s->first];
    }
    fputs("], \"logprobs\": ", out);
    json_list(out, s->logprobs + begin - s->first, end - begin);
    fputs(", \"entropies\": ", out);
    json_list(out, s->entropy + begin - s->first, end - begin);
    fputs(", \"sum\": ", out);
    json_f64(out, sum);
    fprintf(out, ", \"is_greedy\": %s}\n", greedy ? "true" : "false");
}

static void print_plan(const session *s, FILE *out) {
    fprintf(out,
            "{\"format\": 1, \"prompts\": %" PRId64 ", \"tokens\": %" PRId64 ", \"tokens_run\": %" PRId64
            ", \"tokens_unshared\": %" PRId64 ", \"chunks\": %" PRId64 ", \"bytes\": %" PRId64 "}\n",
            s->plan.prompts, s->plan.tokens, s->plan.tokens_run, s->plan.tokens_unshared, s->plan.chunks,
            s->plan.bytes);
}

static int print_plan_only(FILE *out, void *user) {
    print_plan(user, out);
    return STATUS_OK;
}

static void place(const void *user, int64_t response, int64_t *line, int64_t *number) {
    const session *const s = user;
    *line = s->lines.line[s->lines.prompt_of[response]];
    *number = s->lines.number[response];
}

static int64_t print_group(void *user, int64_t done, FILE *out) {
    session *const s = user;
    if (s->tokens_all == 0) {
        for (int64_t b = done; b < s->lines.responses.count; b++) {
            s->tokens_all += tokens_of(&s->lines, b);
        }
    }
    const int64_t end = group_end(s, done);
    if (score(s, done, end)) {
        return -1;
    }
    s->tokens_before += s->tokens_now;
    s->first = s->lines.responses.offsets[done];
    for (int64_t b = done; b < end; b++) {
        print_response(s, b, out);
    }
    return end - done;
}

static int print_results(session *s) {
    const result_lines results = {.q = &s->q->shared,
                                  .name = "response",
                                  .user = s,
                                  .count = s->lines.responses.count,
                                  .place = place,
                                  .print = print_group};
    if (s->q->plan) {
        return output_print(s->q->shared.shared.out_path, print_plan_only, s);
    }
    progress_start(&s->progress, s->plan.tokens_run);
    state_memory(s);
    const int status = results_print(&results);
    progress_end(&s->progress);
    return status;
}

/* The last token of a response is rated, but does not run. */
static int note_length(const session *s) {
    const score_lines *const l = &s->lines;
    int64_t longest = 0;
    for (int64_t b = 0; b < l->responses.count; b++) {
        const int64_t size = id_lists_size(&l->prompts, l->prompt_of[b]) + id_lists_size(&l->responses, b) - 1;
        longest = size > longest ? size : longest;
    }
    model_note_length(s->context, s->model, longest);
    return STATUS_OK;
}

static int run(void *request, napier_context *context) {
    const logprobs_request *const q = request;
    session s = {.q = q, .context = context};
    const int status = model_open(&q->shared, context, &s.model, &s.vocabulary) || read_lines(&s) || make_plan(&s) ||
                       note_length(&s) || print_results(&s);
    free_results(&s);
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
static const option_group groups[] = {{NULL, model_options},  {NULL, scoring_options},      {NULL, chat_options},
                                      {NULL, prompt_options}, {NULL, conversation_options}, {NULL, options},
                                      MACHINE_GROUP};
static const logprobs_request defaults = {.shared = MODEL_DEFAULTS, .prefix_token = -1};

static int check(void *request) {
    const logprobs_request *const q = request;
    return q->plan && q->shared.resume ? misuse("--plan has nothing to resume") : model_check(request);
}

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
        "  {\"messages\": [{\"role\": \"user\", \"content\": \"2 + 2?\"}, {\"role\": \"assistant\", \"content\": "
        "\"4\"}]}\n"
        "\n"
        "As in the files of TRL and OpenAI, \"completion\" is another name of \"response\", and the last of "
        "\"messages\" is\n"
        "the response. A response that is messages is scored as the chat format writes it, with the end of its turn;\n"
        "one that is a text is scored as it is.\n"
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
    .check = check,
    .run = run,
};
