/* cli/rl/rubric.c - `napier rubric`: scores of responses by criteria, and their sums, the rewards. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "io/input.h"
#include "program/message.h"
#include "rl_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct rubric_request {
    rl_request shared;
    const char *rubric_path, *weights, *rewards_path;
} rubric_request;

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_TOKEN_IDS);

/* ---- The rubric and its weights ---------------------------------------------------------------------------------- */

typedef struct table {
    float *numbers;
    int64_t rows, cols;
    int64_t count; /* read so far */
} table;

static const char *take_number(void *user, double value) {
    table *const t = user;
    t->numbers[t->count++] = (float)value;
    return NULL;
}

static int read_numbers(input *in, table *t) {
    if (input_arrive(in)) {
        return STATUS_FAILED;
    }
    t->numbers = malloc(((size_t)in->count + 1) * sizeof *t->numbers);
    return t->numbers != NULL ? input_take(in, take_number, t) : out_of_memory(in->name);
}

/* A vector is one row. */
static int read_table(const char *path, table *t) {
    input in;
    const array_shape *const shape = &in.shape;
    int status = input_open_whole(&in, path) || ((shape->dims < 1 || shape->dims > 2 || in.count == 0) &&
                                                 complain("%s: a table of numbers is wanted", in.name));
    if (status == STATUS_OK) {
        t->rows = shape->dims == 2 ? shape->dim[0] : 1;
        t->cols = shape->dim[shape->dims - 1];
        status = read_numbers(&in, t);
    }
    input_close(&in);
    return status;
}

/* Parses "1,-0.5,2"; returns false if the text is not a list of numbers. */
static bool parse_weights(const char *text, table *t) {
    char *const copy = strdup(text);
    t->rows = 1;
    t->numbers = malloc((strlen(text) / 2 + 2) * sizeof *t->numbers);
    bool good = copy != NULL && t->numbers != NULL;
    for (char *part = copy, *next; good && part != NULL; part = next) {
        double value = 0;
        next = strchr(part, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        good = parse_number(part, &value);
        t->numbers[t->cols++] = (float)value;
    }
    free(copy);
    return good;
}

/* Reads weights from numbers, from a file, or uses 1 for each criterion. */
static int read_weights(const char *weights, int64_t criteria, table *t) {
    if (weights == NULL) {
        t->numbers = malloc((size_t)criteria * sizeof *t->numbers);
        for (int64_t c = 0; t->numbers != NULL && c < criteria; c++) {
            t->numbers[c] = 1.0F;
        }
        return t->numbers != NULL ? STATUS_OK : complain("out of memory");
    }
    if (!parse_weights(weights, t)) {
        free(t->numbers);
        memset(t, 0, sizeof *t);
        if (read_table(weights, t)) {
            return STATUS_FAILED;
        }
    }
    const int64_t count = t->rows * t->cols;
    return count == criteria ? STATUS_OK
                             : complain("%s: %" PRId64 " weight%s for %" PRId64 " criteri%s", weights, count,
                                        count == 1 ? "" : "s", criteria, criteria == 1 ? "on" : "a");
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

typedef struct results {
    float *scores, *rewards; /* [responses, criteria], [responses] */
    int64_t responses, criteria;
    const int64_t *offsets;
} results;

/* Prints {"response": 0, "tokens": 5, "scores": [-1.5, 0.25], "reward": -1.25} per line. */
static int print_lines(FILE *file, void *user) {
    const results *const r = user;
    for (int64_t i = 0; i < r->responses; i++) {
        fprintf(file, "{\"response\": %" PRId64 ", \"tokens\": %" PRId64 ", \"scores\": ", i,
                r->offsets[i + 1] - r->offsets[i]);
        json_list(file, r->scores + i * r->criteria, r->criteria);
        fputs(", \"reward\": ", file);
        json_number(file, NAPIER_F32, &r->rewards[i]);
        fputs("}\n", file);
    }
    return STATUS_OK;
}

static int write_results(const rubric_request *q, results *r) {
    const char *const path = q->rewards_path;
    const array_shape rewards = {.dims = 1, .dim = {r->responses}};
    const array_shape scores = {.dims = 2, .dim = {r->responses, r->criteria}};
    return (path != NULL && output_array(path, output_format(path, FORMAT_NPY), &rewards, r->rewards)) ||
           rl_write(&q->shared, &scores, r->scores, print_lines, r);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Checks ids here, with their place in the response; the library would give their index over all responses. */
static int check_ids(const rubric_request *q, const rl_batch *batch, const table *rubric) {
    const int64_t *const offsets = batch->offsets.data;
    const int64_t *const ids = batch->columns[RL_TOKEN_IDS].data;
    for (int64_t i = 0; i < batch->responses; i++) {
        for (int64_t t = offsets[i]; t < offsets[i + 1]; t++) {
            if (ids[t] >= rubric->cols) {
                return complain("%s: response %" PRId64 ": token_ids[%" PRId64 "] is %" PRId64
                                ", but the rubric has %" PRId64 " columns",
                                rl_input_name(&q->shared, RL_TOKEN_IDS), i, t - offsets[i], ids[t], rubric->cols);
            }
        }
    }
    return STATUS_OK;
}

static int compute(const rubric_request *q, napier_context *context, const rl_batch *batch, const table *rubric,
                   const table *weights) {
    results r = {.responses = batch->responses, .criteria = rubric->rows, .offsets = batch->offsets.data};
    const bool fits = (uint64_t)r.responses < SIZE_MAX / 8 / (uint64_t)r.criteria;
    r.scores = fits ? malloc(((size_t)r.responses * (size_t)r.criteria + 1) * sizeof *r.scores) : NULL;
    r.rewards = fits ? malloc(((size_t)r.responses + 1) * sizeof *r.rewards) : NULL;
    int status = r.scores != NULL && r.rewards != NULL ? STATUS_OK : complain("out of memory");
    if (status == STATUS_OK) {
        const napier_status called = napier_rubric_score(
            context, rl_batch_numbers(batch, RL_LOGPROBS), rl_batch_ids(batch), rl_batch_offsets(batch),
            napier_const_rows_f32(rubric->numbers, rubric->rows, rubric->cols),
            napier_const_array_f32(weights->numbers, rubric->rows), napier_rows_f32(r.scores, r.responses, r.criteria),
            napier_array_f32(r.rewards, r.responses));
        status = library_status(context, called, rl_input_name(&q->shared, RL_LOGPROBS)) || write_results(q, &r);
    }
    free(r.scores);
    free(r.rewards);
    return status;
}

static int run(void *request, napier_context *context) {
    const rubric_request *const q = request;
    rl_batch batch = {.wanted = fields, .required = fields};
    table rubric = {0};
    table weights = {0};
    const int status = read_table(q->rubric_path, &rubric) || read_weights(q->weights, rubric.rows, &weights) ||
                       rl_read(&q->shared, &batch) || check_ids(q, &batch, &rubric) ||
                       compute(q, context, &batch, &rubric, &weights);
    rl_batch_free(&batch);
    free(rubric.numbers);
    free(weights.numbers);
    return status;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int check(void *request) {
    const rubric_request *const q = request;
    return q->rubric_path != NULL
               ? rl_check(&q->shared, fields)
               : misuse("--rubric is missing: a table, a row a criterion, a column a token of the vocabulary");
}

#define AT(member) offsetof(rubric_request, member)
static const option arrays[] = {
    RL_ARRAY("logprobs", RL_LOGPROBS, "logprobs, a number for each token"),
    RL_ARRAY("token-ids", RL_TOKEN_IDS, "token_ids, whole numbers"),
    RL_OFFSETS,
    {.name = NULL},
};
static const option options[] = {
    {"rubric", 0, OPTION_READ, "FILE", AT(rubric_path),
     .help = ".npy, CSV or TSV: a row a criterion, a column a token of the vocabulary"},
    {"weights", 0, OPTION_READ, "W", AT(weights),
     .help = "of the criteria: numbers as 1,-0.5,2 or a file (default: all 1)"},
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.shared.out_path),
     .help = "where scores and rewards go (default or -: standard output), a JSON object on a line for each response"},
    {"format", 'f', OPTION_WORD, "FORMAT", AT(shared.format), .words = result_formats,
     .help = "{}; of all but jsonl the scores alone (default: by OUT's name, else jsonl)"},
    {"rewards", 0, OPTION_WRITE, "FILE", AT(rewards_path),
     .help = "the rewards alone, f32, .npy or by the name .csv or .tsv"},
    {.name = NULL},
};
static const option_group groups[] = {{RL_HEADING, arrays}, {NULL, options}, MACHINE_GROUP};
static const rubric_request defaults = {.weights = NULL};

const command rubric_command = {
    .name = "rubric",
    .summary = "scores of responses by criteria, and rewards",
    .usage = "RESPONSES.jsonl --rubric FILE [--weights W] [-o OUT] [OPTIONS]\n"
             "--logprobs FILE --token-ids FILE [--offsets FILE] --rubric FILE [OPTIONS]",
    .about = "Scores of responses by criteria: weight * sum over tokens of logprob * rubric[criterion][token],\n"
             "and their sum, the reward. A line of RESPONSES (- is standard input) is a response:\n"
             "\n"
             "  {\"logprobs\": [-0.5, -1.25], \"token_ids\": [17, 4]}",
    .example = "napier rubric answers.jsonl --rubric rubric.npy --weights 1,0.5 --rewards rewards.npy",
    .groups = groups,
    .input = INPUT_OPTIONAL,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
