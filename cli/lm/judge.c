/* cli/lm/judge.c - `napier judge`: a model judges responses by criteria in words. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "io/buffer.h"
#include "io/jsonl.h"
#include "io/output.h"
#include "io/source.h"
#include "program/memory.h"
#include "program/message.h"
#include "program/progress.h"
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef NAPIER_MODEL
#include <cjson/cJSON.h>
#endif

enum { MOST_VERDICTS = 64 };

typedef struct judge_request {
    model_request shared;
    const char *criteria, *template;
    const char *verdicts[MOST_VERDICTS]; /* the text before the last '=' */
    size_t verdict_sizes[MOST_VERDICTS];
    double values[MOST_VERDICTS];
    int verdict_count;
    int plain;
} judge_request;

#ifdef NAPIER_MODEL

/* ---- Input ------------------------------------------------------------------------------------------------------- */

/* The parts of a question: a prompt and a response, or a criterion and its weight. */
typedef struct item {
    char *first, *second;
    double weight;
    int64_t line, number;
} item;

typedef struct items {
    item *all;
    int64_t count, capacity;
} items;

typedef struct session {
    const judge_request *q;
    napier_context *context;
    napier_model *model;
    buffer question;
    whole_file file; /* of --template */
    const char *template;
    items responses, criteria;
    text_encoder encoder;
    id_lists prompts, verdicts;
    progress_line progress;
    int64_t begin, first, end; /* the first response of this run; those that are judged together */
    float *weights, *scores, *rewards;
    int64_t *offsets; /* of the questions that are judged together */
} session;

static int add_item(items *l, const char *first, const char *second, item it) {
    if (!memory_grow(&l->all, &l->capacity, l->count + 1, sizeof *l->all)) {
        return complain("out of memory");
    }
    it.first = strdup(first);
    it.second = strdup(second);
    l->all[l->count++] = it;
    return it.first != NULL && it.second != NULL ? STATUS_OK : complain("out of memory");
}

static void free_items(items *l) {
    for (int64_t i = 0; i < l->count; i++) {
        free(l->all[i].first);
        free(l->all[i].second);
    }
    free(l->all);
}

static int add_responses(void *user, const jsonl_reader *r, const cJSON *object) {
    items *const l = user;
    const cJSON *const prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    const cJSON *const one = cJSON_GetObjectItemCaseSensitive(object, "response");
    const cJSON *const all = cJSON_GetObjectItemCaseSensitive(object, "responses");
    const cJSON *value = one != NULL ? one : cJSON_IsArray(all) ? all->child : NULL;
    if (!cJSON_IsString(prompt) || (one == NULL) == (all == NULL) || (all != NULL && !cJSON_IsArray(all))) {
        return jsonl_fault(r, "a prompt, and a response or a list of them, are wanted");
    }
    int status = STATUS_OK;
    for (int64_t n = 0; value != NULL && status == STATUS_OK; value = one != NULL ? NULL : value->next, n++) {
        status = cJSON_IsString(value)
                     ? add_item(l, prompt->valuestring, value->valuestring, (item){.line = r->lines.line, .number = n})
                     : jsonl_fault(r, "response %" PRId64 " is no text", n);
    }
    return status;
}

static int add_criterion(void *user, const jsonl_reader *r, const cJSON *object) {
    const cJSON *const text = cJSON_GetObjectItemCaseSensitive(object, "criterion");
    const cJSON *const weight = cJSON_GetObjectItemCaseSensitive(object, "weight");
    if (!cJSON_IsString(text) || (weight != NULL && (!cJSON_IsNumber(weight) || !isfinite(weight->valuedouble)))) {
        return jsonl_fault(r, "a criterion, which is a text, and at most a weight are wanted");
    }
    return add_item(user, text->valuestring, "", (item){.weight = weight != NULL ? weight->valuedouble : 1.0});
}

static int read_items(const char *path, line_shard shard, const jsonl_form *form, items *l) {
    int64_t count = 0;
    if (jsonl_read_shard(path, form, shard, l, &count)) {
        return STATUS_FAILED;
    }
    const bool is_empty_shard = shard.count > 1 && count > 0;
    return l->count > 0 || is_empty_shard ? STATUS_OK : complain("%s: nothing there", source_name(path));
}

static int read_input(session *s) {
    static const char *const of_responses[] = {"prompt", "response", "responses", NULL};
    static const char *const of_criteria[] = {"criterion", "weight", NULL};
    static const jsonl_form responses = {add_responses, of_responses, .runs_model = true, .has_texts = true};
    static const jsonl_form criteria = {add_criterion, of_criteria, .runs_model = true, .has_texts = true};
    return read_items(s->q->shared.shared.in_path, s->q->shared.shard, &responses, &s->responses) ||
           read_items(s->q->criteria, (line_shard){0, 1}, &criteria, &s->criteria);
}

static int read_template(session *s) {
    enum { MOST = 1 << 20 };
    s->template = "Question:\n{prompt}\n\nAnswer:\n{response}\n\nCriterion: {criterion}\n"
                  "Does the answer meet the criterion? Reply with Yes or No.\n";
    if (s->q->template == NULL) {
        return STATUS_OK;
    }
    if (whole_file_read(&s->file, s->q->template)) {
        return STATUS_FAILED;
    }
    s->template = s->file.bytes;
    const bool good = s->file.size < MOST && memchr(s->file.bytes, '\0', s->file.size) == NULL;
    return good ? STATUS_OK : complain("%s: no template of less than a megabyte of text", s->q->template);
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

/* The text for the name at `at`, and its size; NULL if there is no such name. */
static const char *part_at(const char *at, const item *response, const item *criterion, size_t *size) {
    const char *const names[] = {"{prompt}", "{response}", "{criterion}"};
    const char *const parts[] = {response->first, response->second, criterion->first};
    for (int i = 0; i < 3; i++) {
        *size = strlen(names[i]);
        if (strncmp(at, names[i], *size) == 0) {
            return parts[i];
        }
    }
    return NULL;
}

static void fill_template(const char *template, const item *response, const item *criterion, buffer *b) {
    b->size = 0;
    for (const char *at = template; *at != '\0';) {
        size_t size = 0;
        const char *const part = *at == '{' ? part_at(at, response, criterion, &size) : NULL;
        buffer_add(b, part != NULL ? part : at, part != NULL ? strlen(part) : 1);
        at += part != NULL ? size : 1;
    }
}

/* Adds the question as ids, in the chat format if requested. */
static int add_question(session *s, int64_t line) {
    const buffer *const t = &s->question;
    char place[320];
    if (t->failed) {
        return complain("out of memory");
    }
    snprintf(place, sizeof place, "%s:%" PRId64 ": question", s->q->shared.shared.in_path, line);
    const napier_chat_message message = {.role = "user", .content = t->bytes, .size = t->size};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    options.disable_thinking = 1;
    return s->q->plain ? text_encoder_add(&s->encoder, place, TEXT_PROMPT, t->bytes, t->size, &s->prompts)
                       : text_encoder_add_chat(&s->encoder, place, &message, 1, options, &s->prompts);
}

static int make_questions(session *s) {
    int status = id_lists_start(&s->prompts);
    for (int64_t b = 0; b < s->responses.count && status == STATUS_OK; b++) {
        for (int64_t c = 0; c < s->criteria.count && status == STATUS_OK; c++) {
            fill_template(s->template, &s->responses.all[b], &s->criteria.all[c], &s->question);
            status = add_question(s, s->responses.all[b].line);
        }
    }
    status = status || id_lists_start(&s->verdicts);
    for (int v = 0; v < s->q->verdict_count && status == STATUS_OK; v++) {
        status = text_encoder_add(&s->encoder, "--verdict", TEXT_RESPONSE, s->q->verdicts[v], s->q->verdict_sizes[v],
                                  &s->verdicts);
    }
    return status;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* The end of the responses from `first` on that are judged together: all, or enough to fill the model's steps. */
static int64_t group_end(const session *s, int64_t first) {
    const bool is_early = results_are_early(&s->q->shared);
    int64_t b = first;
    for (int64_t tokens = 0; b < s->responses.count && (!is_early || tokens < SCORE_TOGETHER); b++) {
        for (int64_t c = 0; c < s->criteria.count; c++) {
            tokens += id_lists_new(&s->prompts, b * s->criteria.count + c);
        }
    }
    return b;
}

static int show_progress(const char *stage, double done, void *user) {
    session *const s = user;
    (void)stage;
    const double now = done * (double)(s->end - s->first), all = (double)(s->responses.count - s->begin);
    progress_stage(&s->progress, "judging", ((double)(s->first - s->begin) + now) / all);
    return 0;
}

static int allocate(session *s) {
    const size_t b = (size_t)s->responses.count, c = (size_t)s->criteria.count;
    s->weights = malloc(c * sizeof *s->weights);
    s->scores = malloc((b * c + 1) * sizeof *s->scores);
    s->rewards = malloc((b + 1) * sizeof *s->rewards);
    s->offsets = malloc((b * c + 1) * sizeof *s->offsets);
    if (s->weights == NULL || s->scores == NULL || s->rewards == NULL || s->offsets == NULL) {
        return complain("out of memory");
    }
    for (size_t i = 0; i < c; i++) {
        s->weights[i] = (float)s->criteria.all[i].weight;
    }
    return STATUS_OK;
}

/* Judges the responses s->first to s->end. */
static int judge_group(session *s) {
    const int64_t b = s->end - s->first, c = s->criteria.count;
    const int64_t *const offsets = s->prompts.offsets + s->first * c;
    for (int64_t i = 0; i <= b * c; i++) {
        s->offsets[i] = offsets[i] - offsets[0];
    }
    napier_judge_batch batch = NAPIER_JUDGE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(s->prompts.ids + offsets[0], s->offsets[b * c]);
    batch.prompt_offsets = napier_indices_i64(s->offsets, b * c + 1);
    batch.criteria = c;
    batch.verdict_ids = id_lists_ids(&s->verdicts);
    batch.verdict_offsets = id_lists_offsets(&s->verdicts);
    batch.values = s->q->values;
    batch.weights = napier_const_array_f32(s->weights, c);
    napier_score_options options = model_score_options(&s->q->shared);
    options.progress = show_progress;
    options.user = s;
    return library_status(s->context,
                          napier_model_judge(s->context, s->model, &batch, &options, napier_rows_f32(s->scores, b, c),
                                             napier_array_f32(s->rewards, b), napier_rows_f32(NULL, 0, 0)),
                          NULL);
}

static void place(const void *user, int64_t response, int64_t *line, int64_t *number) {
    const session *const s = user;
    *line = s->responses.all[response].line;
    *number = s->responses.all[response].number;
}

static int64_t print_group(void *user, int64_t done, FILE *out) {
    session *const s = user;
    const int64_t c = s->criteria.count;
    s->begin = s->end == 0 ? done : s->begin;
    s->first = done;
    s->end = group_end(s, done);
    if (judge_group(s)) {
        return -1;
    }
    for (int64_t b = s->first; b < s->end; b++) {
        const int64_t row = b - s->first;
        fprintf(out, "{\"line\": %" PRId64 ", \"response\": %" PRId64 ", \"scores\": ", s->responses.all[b].line,
                s->responses.all[b].number);
        json_list(out, s->scores + row * c, c);
        fputs(", \"reward\": ", out);
        json_number(out, NAPIER_F32, &s->rewards[row]);
        fputs("}\n", out);
    }
    return s->end - s->first;
}

static int64_t longest(const id_lists *l) {
    int64_t size = 0;
    for (int64_t i = 0; i < l->count; i++) {
        size = id_lists_size(l, i) > size ? id_lists_size(l, i) : size;
    }
    return size;
}

static int judge_all(session *s) {
    const result_lines results = {.q = &s->q->shared,
                                  .name = "response",
                                  .user = s,
                                  .count = s->responses.count,
                                  .place = place,
                                  .print = print_group};
    if (allocate(s)) {
        return STATUS_FAILED;
    }
    model_note_length(s->context, s->model, longest(&s->prompts) + longest(&s->verdicts) - 1);
    progress_start(&s->progress, -1);
    const int status = results_print(&results);
    progress_end(&s->progress);
    return status;
}

static int run(void *request, napier_context *context) {
    const judge_request *const q = request;
    session s = {.q = q, .context = context, .encoder = model_text_encoder(&q->shared, context, 0)};
    const int status = read_input(&s) || read_template(&s) ||
                       model_open(&q->shared, context, &s.model, &s.encoder.vocabulary) || make_questions(&s) ||
                       judge_all(&s);
    text_encoder_free(&s.encoder);
    napier_model_destroy(context, s.model);
    free_items(&s.responses);
    free_items(&s.criteria);
    whole_file_free(&s.file);
    buffer_free(&s.question);
    id_lists_free(&s.prompts);
    id_lists_free(&s.verdicts);
    free(s.weights);
    free(s.scores);
    free(s.rewards);
    free(s.offsets);
    return status;
}

#else

static int run(void *request, napier_context *context) { return model_missing(request, context); }

#endif

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static const char *add_verdict(void *request, const char *text) {
    judge_request *const q = request;
    const char *const equals = strrchr(text, '=');
    const int i = q->verdict_count;
    if (i == MOST_VERDICTS) {
        return "one of at most 64 verdicts";
    }
    if (equals == NULL || equals == text || !parse_number(equals + 1, &q->values[i]) || !isfinite(q->values[i])) {
        return "a text, '=' and a number";
    }
    q->verdicts[i] = text;
    q->verdict_sizes[i] = (size_t)(equals - text);
    q->verdict_count++;
    return NULL;
}

static int check(void *request) {
    judge_request *const q = request;
    if (q->verdict_count == 0) {
        add_verdict(q, "Yes=1");
        add_verdict(q, "No=0");
    }
    const int status = model_check(&q->shared);
    return status != STATUS_OK || q->criteria != NULL
               ? status
               : misuse("--criteria is missing: a file with a criterion on each line");
}

#define AT(member) offsetof(judge_request, member)
static const option options[] = {
    {"criteria", 'c', OPTION_READ, "FILE", AT(criteria),
     .help = "a criterion on each line; weight is 1 where it is not there"},
    {"verdict", 0, OPTION_OTHER, "TEXT=VALUE", 0, .set = add_verdict,
     .help = "what may be answered and what it is worth; again for each (default: Yes=1 and No=0)"},
    {"template", 0, OPTION_READ, "FILE", AT(template),
     .help = "the question, with {prompt}, {response} and {criterion} in it"},
    {"plain", 0, OPTION_FLAG, NULL, AT(plain),
     .help = "without the chat format: the verdict follows the question at once"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, model_options},  {NULL, scoring_options}, {NULL, chat_options},
                                      {NULL, prompt_options}, {NULL, options},         MACHINE_GROUP};
static const judge_request defaults = {.shared = MODEL_DEFAULTS};

const command judge_command = {
    .name = "judge",
    .summary = "scores of responses by a language model as their judge",
    .usage = "IN.jsonl --model DIR --criteria FILE.jsonl [-o OUT] [OPTIONS]",
    .about =
        "Scores of responses by a language model as their judge. It is asked about each response and criterion; the\n"
        "score is the weight times the expected value of its verdict, by the log-probabilities of the verdicts.\n"
        "\n"
        "  IN (- is standard input)   {\"prompt\": \"2 + 2?\", \"responses\": [\"4\", \"Five.\"]}\n"
        "  FILE                       {\"criterion\": \"The answer is right.\", \"weight\": 2}\n"
        "  OUT, a line a response     {\"line\": 1, \"response\": 0, \"scores\": [1.875], \"reward\": 1.875}",
    .example = "napier judge answers.jsonl --model Qwen3-4B --criteria rubric.jsonl -o scores.jsonl",
    .groups = groups,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
