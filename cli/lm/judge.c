/* cli/lm/judge.c - `napier judge`: a model judges responses by criteria in words. */
#include "../commands.h"
#include "../io/jsonl.h"
#include "../program/machine.h"
#include "../program/message.h"
#include "model_options.h"
#include "../io/named_files.h"
#include "../program/options.h"
#include "../io/output.h"
#include "../program/progress.h"
#include "../rl/rl_output.h"
#include "score_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef NAPIER_MODEL
#include <cjson/cJSON.h>
#endif

enum { CRITERIA = MODEL_OWN, VERDICT, TEMPLATE, PLAIN };
enum { MOST_VERDICTS = 64 };

static const option_spec specs[] = {
    MODEL_SPECS,
    {CRITERIA, "criteria", 'c', true},
    {VERDICT, "verdict", '\0', true},
    {TEMPLATE, "template", '\0', true},
    {PLAIN, "plain", '\0', false},
    {0, NULL, '\0', false},
};

void judge_help(void) {
    puts("usage: napier judge IN.jsonl --model DIR --criteria FILE.jsonl [-o OUT] [OPTIONS]\n"
         "\n"
         "Scores of responses by a Qwen3 model as their judge. It is asked about each response and criterion; the\n"
         "score is the weight times the expected value of its verdict, by the log-probabilities of the verdicts.\n"
         "\n"
         "  IN (- is standard input)   {\"prompt\": \"2 + 2?\", \"responses\": [\"4\", \"Five.\"]}\n"
         "  FILE                       {\"criterion\": \"The answer is right.\", \"weight\": 2}\n"
         "  OUT, a line a response     {\"line\": 1, \"response\": 0, \"scores\": [1.875], \"reward\": 1.875}");
    puts("\n"
         "  -m, --model DIR            the model: config.json, model.safetensors or shards, tokenizer.json\n"
         "  -c, --criteria FILE        a criterion on each line; weight is 1 where it is not there\n"
         "      --verdict TEXT=VALUE   what may be answered and what it is worth; again for each (default:\n"
         "                             Yes=1 and No=0)\n"
         "      --template FILE        the question, with {prompt}, {response} and {criterion} in it\n"
         "      --plain                without the chat format: the verdict follows the question at once\n"
         "  -o, --output OUT           where the result goes (default or -: standard output)\n"
         "      --compute MODE         f32 (default), or bf16: activations rounded to bf16 before each product\n"
         "      --memory SIZE          beside the weights, as 512M or 4G (default: 1G)\n"
         "  -t, --temperature T        logits are divided by T first (default: 1)\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text\n"
         "\n"
         "example: napier judge answers.jsonl --model Qwen3-4B --criteria rubric.jsonl -o scores.jsonl");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef struct judge_request {
    model_request shared;
    const char *criteria, *template;
    const char *verdicts[MOST_VERDICTS]; /* the text before the last '=' */
    size_t verdict_sizes[MOST_VERDICTS];
    double values[MOST_VERDICTS];
    int verdict_count;
    bool plain;
} judge_request;

static int add_verdict(judge_request *q, const char *text) {
    const char *const equals = strrchr(text, '=');
    const int i = q->verdict_count;
    if (i == MOST_VERDICTS) {
        return misuse("judge", "--verdict: at most %d", (int)MOST_VERDICTS);
    }
    if (equals == NULL || equals == text || !parse_number(equals + 1, &q->values[i]) || !isfinite(q->values[i])) {
        return bad_value("judge", "verdict", text, "a text, '=' and a number");
    }
    q->verdicts[i] = text;
    q->verdict_sizes[i] = (size_t)(equals - text);
    q->verdict_count++;
    return STATUS_OK;
}

static int set_option(judge_request *q, int id, const char *value) {
    switch (id) {
    case CRITERIA: q->criteria = value; return STATUS_OK;
    case VERDICT: return add_verdict(q, value);
    case TEMPLATE: q->template = value; return STATUS_OK;
    case PLAIN: q->plain = true; return STATUS_OK;
    default: return model_set_option(&q->shared, id, value);
    }
}

static int check_request(judge_request *q) {
    const int status = model_check_request(&q->shared);
    if (status != STATUS_OK) {
        return status;
    }
    if (q->criteria == NULL) {
        return misuse("judge", "--criteria is missing: a file with a criterion on each line");
    }
    const named_file files[] = {
        {"--criteria", q->criteria, false}, {"--template", q->template, false}, {"--output", q->shared.out_path, true}};
    if (named_files_check("judge", files, sizeof files / sizeof *files) != STATUS_OK) {
        return STATUS_USAGE;
    }
    if (q->verdict_count == 0 && (add_verdict(q, "Yes=1") != STATUS_OK || add_verdict(q, "No=0") != STATUS_OK)) {
        return STATUS_USAGE;
    }
    return machine_resolve(&q->shared.machine, "judge");
}

static int parse_request(judge_request *q, int count, char **words) {
    option_scan scan = {.command = "judge", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->shared.help) {
            return status;
        }
    }
    return check_request(q);
}

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
    char *template;
    items responses, criteria;
    text_encoder encoder;
    id_lists prompts, verdicts;
    progress_line progress;
    float *scores, *rewards;
} session;

static char *copy_of(const char *text) {
    const size_t size = strlen(text) + 1;
    char *const copy = malloc(size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

static int add_item(items *l, const char *first, const char *second, item it) {
    if (l->count == l->capacity) {
        const int64_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        item *const more = realloc(l->all, (size_t)capacity * sizeof *more);
        if (more == NULL) {
            return complain("out of memory");
        }
        l->all = more;
        l->capacity = capacity;
    }
    it.first = copy_of(first);
    it.second = copy_of(second);
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

static int add_responses(items *l, const jsonl_reader *r, const cJSON *object) {
    const cJSON *const prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt");
    const cJSON *const one = cJSON_GetObjectItemCaseSensitive(object, "response");
    const cJSON *const all = cJSON_GetObjectItemCaseSensitive(object, "responses");
    const cJSON *value = one != NULL ? one : cJSON_IsArray(all) ? all->child : NULL;
    if (!cJSON_IsString(prompt) || (one == NULL) == (all == NULL) || (all != NULL && !cJSON_IsArray(all))) {
        return complain("%s:%" PRId64 ": a prompt, and a response or a list of them, are wanted", r->name, r->line);
    }
    int status = STATUS_OK;
    for (int64_t n = 0; value != NULL && status == STATUS_OK; value = one != NULL ? NULL : value->next, n++) {
        status = cJSON_IsString(value)
                     ? add_item(l, prompt->valuestring, value->valuestring, (item){.line = r->line, .number = n})
                     : complain("%s:%" PRId64 ": response %" PRId64 " is no text", r->name, r->line, n);
    }
    return status;
}

static int add_criterion(items *l, const jsonl_reader *r, const cJSON *object) {
    const cJSON *const text = cJSON_GetObjectItemCaseSensitive(object, "criterion");
    const cJSON *const weight = cJSON_GetObjectItemCaseSensitive(object, "weight");
    if (!cJSON_IsString(text) || (weight != NULL && (!cJSON_IsNumber(weight) || !isfinite(weight->valuedouble)))) {
        return complain("%s:%" PRId64 ": a criterion, which is a text, and at most a weight are wanted", r->name,
                        r->line);
    }
    return add_item(l, text->valuestring, "", (item){.weight = weight != NULL ? weight->valuedouble : 1.0});
}

typedef int add_object(items *l, const jsonl_reader *r, const cJSON *object);

static int read_items(const char *path, add_object *add, items *l) {
    jsonl_reader r;
    const cJSON *object = NULL;
    int status = jsonl_open(&r, path);
    while (status == STATUS_OK && (status = jsonl_next(&r, &object)) == STATUS_OK && object != NULL) {
        status =
            jsonl_has_zero(&r) ? complain("%s:%" PRId64 ": \\u0000 in a string", r.name, r.line) : add(l, &r, object);
    }
    if (status == STATUS_OK && l->count == 0) {
        status = complain("%s: nothing there", r.name);
    }
    jsonl_close(&r);
    return status;
}

static int read_template(session *s) {
    static const char usual[] = "Question:\n{prompt}\n\nAnswer:\n{response}\n\nCriterion: {criterion}\n"
                                "Does the answer meet the criterion? Reply with Yes or No.\n";
    enum { MOST = 1 << 20 };
    if (s->q->template == NULL) {
        s->template = copy_of(usual);
        return s->template != NULL ? STATUS_OK : complain("out of memory");
    }
    FILE *const file = fopen(s->q->template, "rb");
    s->template = malloc(MOST + 1);
    if (file == NULL || s->template == NULL) {
        const int status = complain("%s: %s", s->q->template, file == NULL ? strerror(errno) : "out of memory");
        if (file != NULL) {
            fclose(file);
        }
        return status;
    }
    const size_t size = fread(s->template, 1, MOST, file);
    const bool bad = ferror(file) || memchr(s->template, '\0', size) != NULL || size == MOST;
    s->template[size] = '\0';
    fclose(file);
    return bad ? complain("%s: no template of less than a megabyte of text", s->q->template) : STATUS_OK;
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t size, capacity;
} text;

static bool append(text *t, const char *bytes, size_t size) {
    if (t->capacity - t->size < size) {
        const size_t capacity = 2 * (t->size + size) + 256;
        char *const more = realloc(t->bytes, capacity);
        if (more == NULL) {
            return false;
        }
        t->bytes = more;
        t->capacity = capacity;
    }
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
    return true;
}

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

static bool fill_template(const char *template, const item *response, const item *criterion, text *t) {
    t->size = 0;
    for (const char *at = template; *at != '\0';) {
        size_t size = 0;
        const char *const part = *at == '{' ? part_at(at, response, criterion, &size) : NULL;
        if (!append(t, part != NULL ? part : at, part != NULL ? strlen(part) : 1)) {
            return false;
        }
        at += part != NULL ? size : 1;
    }
    return true;
}

/* Adds the question as ids, in the chat format if requested. */
static int add_question(session *s, const text *t, int64_t line) {
    char place[320];
    snprintf(place, sizeof place, "%s:%" PRId64 ": question", s->q->shared.path, line);
    napier_text_buffer *const chat = &s->encoder.text;
    const napier_chat_message message = {.role = "user", .content = t->bytes, .size = t->size};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    options.disable_thinking = 1;
    if (s->q->plain) {
        return text_encoder_add(&s->encoder, place, t->bytes, t->size, &s->prompts);
    }
    chat->size = 0;
    const napier_status status = napier_chat_text(s->context, &message, 1, &options, chat);
    return status == NAPIER_OK ? text_encoder_add(&s->encoder, place, chat->bytes, chat->size, &s->prompts)
                               : model_status(s->context, status);
}

static int make_questions(session *s) {
    text t = {0};
    int status = id_lists_start(&s->prompts);
    for (int64_t b = 0; b < s->responses.count && status == STATUS_OK; b++) {
        for (int64_t c = 0; c < s->criteria.count && status == STATUS_OK; c++) {
            status = fill_template(s->template, &s->responses.all[b], &s->criteria.all[c], &t)
                         ? add_question(s, &t, s->responses.all[b].line)
                         : complain("out of memory");
        }
    }
    free(t.bytes);
    if (status == STATUS_OK) {
        status = id_lists_start(&s->verdicts);
    }
    for (int v = 0; v < s->q->verdict_count && status == STATUS_OK; v++) {
        status = text_encoder_add(&s->encoder, "--verdict", s->q->verdicts[v], s->q->verdict_sizes[v], &s->verdicts);
    }
    return status;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static int show_progress(const char *stage, double done, void *user) {
    (void)stage;
    progress_stage(user, "judging", done);
    return 0;
}

static int judge_all(session *s) {
    const int64_t b = s->responses.count, c = s->criteria.count;
    float *const weights = malloc((size_t)c * sizeof *weights);
    s->scores = malloc((size_t)(b * c) * sizeof *s->scores);
    s->rewards = malloc((size_t)b * sizeof *s->rewards);
    if (weights == NULL || s->scores == NULL || s->rewards == NULL) {
        free(weights);
        return complain("out of memory");
    }
    for (int64_t i = 0; i < c; i++) {
        weights[i] = (float)s->criteria.all[i].weight;
    }
    napier_judge_batch batch = NAPIER_JUDGE_BATCH_INIT;
    batch.prompt_ids = id_lists_ids(&s->prompts);
    batch.prompt_offsets = id_lists_offsets(&s->prompts);
    batch.criteria = c;
    batch.verdict_ids = id_lists_ids(&s->verdicts);
    batch.verdict_offsets = id_lists_offsets(&s->verdicts);
    batch.values = s->q->values;
    batch.weights = napier_const_array_f32(weights, c);
    napier_score_options options = model_score_options(&s->q->shared);
    options.progress = show_progress;
    options.user = &s->progress;
    progress_start(&s->progress, -1);
    const napier_status status =
        napier_model_judge(s->context, s->model, &batch, &options, napier_rows_f32(s->scores, b, c),
                           napier_array_f32(s->rewards, b), napier_rows_f32(NULL, 0, 0));
    progress_end(&s->progress);
    free(weights);
    return model_status(s->context, status);
}

static void print_lines(const session *s, FILE *out) {
    for (int64_t b = 0; b < s->responses.count; b++) {
        fprintf(out, "{\"line\": %" PRId64 ", \"response\": %" PRId64 ", \"scores\": [", s->responses.all[b].line,
                s->responses.all[b].number);
        for (int64_t c = 0; c < s->criteria.count; c++) {
            fputs(c > 0 ? ", " : "", out);
            rl_print_f32(out, s->scores[b * s->criteria.count + c]);
        }
        fputs("], \"reward\": ", out);
        rl_print_f32(out, s->rewards[b]);
        fputs("}\n", out);
    }
}

static int write_results(const session *s) {
    output out;
    int status = output_open(&out, s->q->shared.out_path);
    if (status == STATUS_OK) {
        print_lines(s, out.file);
        status = rl_finish(&out);
    }
    output_discard(&out);
    return status;
}

static int run(session *s) {
    int status = read_items(s->q->shared.path, add_responses, &s->responses);
    if (status == STATUS_OK) {
        status = read_items(s->q->criteria, add_criterion, &s->criteria);
    }
    if (status == STATUS_OK) {
        status = read_template(s);
    }
    if (status == STATUS_OK) {
        status = model_open(&s->q->shared, s->context, &s->model);
    }
    if (status == STATUS_OK) {
        s->encoder.vocabulary = model_vocabulary(s->context, s->model);
        status = make_questions(s);
    }
    if (status == STATUS_OK) {
        status = judge_all(s);
    }
    return status == STATUS_OK ? write_results(s) : status;
}

static int judge(const judge_request *q) {
    session s = {.q = q};
    int status = machine_open(&q->shared.machine, &s.context);
    if (status == STATUS_OK) {
        s.encoder = (text_encoder){.context = s.context, .model = q->shared.folder};
        status = run(&s);
        text_encoder_free(&s.encoder);
        napier_model_destroy(s.context, s.model);
    }
    free_items(&s.responses);
    free_items(&s.criteria);
    free(s.template);
    id_lists_free(&s.prompts);
    id_lists_free(&s.verdicts);
    free(s.scores);
    free(s.rewards);
    napier_context_destroy(s.context);
    return status;
}

#else

static int judge(const judge_request *q) {
    (void)q;
    return complain("this build has no models, which need cJSON, PCRE2 and utf8proc");
}

#endif

int judge_command(int count, char **words) {
    judge_request q = {.shared = {.command = "judge"}};
    const int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.shared.help) {
        judge_help();
        return finish_standard_output();
    }
    return status == STATUS_OK ? judge(&q) : status;
}
