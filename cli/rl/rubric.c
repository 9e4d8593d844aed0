/* cli/rl/rubric.c - `napier rubric`: scores of responses by criteria, and their sums, the rewards. */
#include "../commands.h"
#include "../io/input.h"
#include "../program/message.h"
#include "rl_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RUBRIC = RL_OWN, WEIGHTS, REWARDS };

typedef struct rubric_request {
    rl_request shared;
    const char *rubric_path, *weights, *rewards_path;
} rubric_request;

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_TOKEN_IDS);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int set_option(rubric_request *q, int id, const char *value) {
    switch (id) {
    case RUBRIC: q->rubric_path = value; return STATUS_OK;
    case WEIGHTS: q->weights = value; return STATUS_OK;
    case REWARDS: q->rewards_path = value; return STATUS_OK;
    default: return rl_set_option(&q->shared, id, value);
    }
}

static bool is_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

static int check_request(rubric_request *q) {
    if (q->rubric_path == NULL) {
        return misuse("rubric", "--rubric is missing: a table, a row a criterion, a column a token of the vocabulary");
    }
    int standard =
        is_standard(q->shared.lines_path) + is_standard(q->rubric_path) + is_standard(q->shared.offsets_path);
    for (int field = 0; field < RL_FIELDS; field++) {
        standard += is_standard(q->shared.paths[field]);
    }
    if (standard > 1) {
        return misuse("rubric", "only one of the files can be standard input");
    }
    if (is_standard(q->rewards_path) && (q->shared.out_path == NULL || is_standard(q->shared.out_path))) {
        return misuse("rubric", "only one of the results can go to standard output");
    }
    const named_file own[] = {
        {"--rubric", q->rubric_path, false}, {"--weights", q->weights, false}, {"--rewards", q->rewards_path, true}};
    const int status = rl_check_files(&q->shared, own, sizeof own / sizeof *own);
    return status == STATUS_OK ? rl_check_request(&q->shared, fields) : status;
}

static int parse_request(rubric_request *q, int count, char **words) {
    static const option_spec own[] = {
        {RUBRIC, "rubric", '\0', true},
        {WEIGHTS, "weights", '\0', true},
        {REWARDS, "rewards", '\0', true},
        {0, NULL, '\0', false},
    };
    option_spec specs[RL_MOST_SPECS];
    rl_make_specs(specs, fields, own);
    option_scan scan = {.command = "rubric", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->shared.help) {
            return status;
        }
    }
    return check_request(q);
}

/* ---- The rubric and its weights ---------------------------------------------------------------------------------- */

typedef struct table {
    float *numbers;
    int64_t rows, cols;
} table;

static int read_numbers(input *in, table *t) {
    double element[1];
    int64_t got = 0;
    int status = input_arrive(in);
    if (status != STATUS_OK) {
        return status;
    }
    t->numbers = malloc(((size_t)in->count + 1) * sizeof *t->numbers);
    if (t->numbers == NULL) {
        return complain("%s: out of memory", in->name);
    }
    for (int64_t i = 0; i < in->count && status == STATUS_OK; i++) {
        status = input_read(in, element, 1, &got);
        t->numbers[i] = (float)element_value(in->dtype, element);
    }
    return status;
}

/* A vector is one row. */
static int read_table(const char *path, table *t) {
    input in;
    int status = input_open(&in, path, FORMAT_AUTO);
    if (status == STATUS_OK) {
        status = input_load(&in);
    }
    if (status == STATUS_OK) {
        status = input_use_c_order(&in);
    }
    const array_shape *const shape = &in.shape;
    if (status == STATUS_OK && (shape->dims < 1 || shape->dims > 2 || in.count == 0)) {
        status = complain("%s: a table of numbers is wanted", in.name);
    }
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
    char copy[64];
    t->numbers = malloc((strlen(text) / 2 + 2) * sizeof *t->numbers);
    for (const char *at = text; t->numbers != NULL; at++) {
        const size_t size = strcspn(at, ",");
        double value;
        if (size >= sizeof copy) {
            return false;
        }
        memcpy(copy, at, size);
        copy[size] = '\0';
        if (!parse_number(copy, &value)) {
            return false;
        }
        t->numbers[t->cols++] = (float)value;
        at += size;
        if (*at == '\0') {
            t->rows = 1;
            return true;
        }
    }
    return false;
}

/* Reads weights from numbers, from a file, or uses 1 for each criterion. */
static int read_weights(const rubric_request *q, int64_t criteria, table *t) {
    if (q->weights == NULL) {
        t->numbers = malloc((size_t)criteria * sizeof *t->numbers);
        for (int64_t c = 0; t->numbers != NULL && c < criteria; c++) {
            t->numbers[c] = 1.0F;
        }
        return t->numbers != NULL ? STATUS_OK : complain("out of memory");
    }
    if (!parse_weights(q->weights, t)) {
        free(t->numbers);
        memset(t, 0, sizeof *t);
        const int status = read_table(q->weights, t);
        if (status != STATUS_OK) {
            return status;
        }
    }
    const int64_t count = t->rows * t->cols;
    return count == criteria ? STATUS_OK
                             : complain("%s: %" PRId64 " weight%s for %" PRId64 " criteri%s", q->weights, count,
                                        count == 1 ? "" : "s", criteria, criteria == 1 ? "on" : "a");
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The results. */
typedef struct results {
    float *scores, *rewards; /* [responses, criteria], [responses] */
    int64_t responses, criteria;
} results;

/* Prints {"response": 0, "tokens": 5, "scores": [-1.5, 0.25], "reward": -1.25} per line. */
static void print_lines(FILE *file, const results *r, const int64_t *offsets) {
    for (int64_t i = 0; i < r->responses; i++) {
        fprintf(file, "{\"response\": %" PRId64 ", \"tokens\": %" PRId64 ", \"scores\": [", i,
                offsets[i + 1] - offsets[i]);
        for (int64_t c = 0; c < r->criteria; c++) {
            fputs(c > 0 ? ", " : "", file);
            rl_print_f32(file, r->scores[i * r->criteria + c]);
        }
        fputs("], \"reward\": ", file);
        rl_print_f32(file, r->rewards[i]);
        fputs("}\n", file);
    }
}

static int write_scores(const rubric_request *q, const results *r, const int64_t *offsets) {
    const rl_format format = rl_format_resolve(q->shared.format, q->shared.out_path);
    if (format != RL_FORMAT_JSONL) {
        const array_shape shape = {.dims = 2, .dim = {r->responses, r->criteria}};
        return rl_write_format(q->shared.out_path, format, &shape, r->scores);
    }
    output out;
    int status = output_open(&out, q->shared.out_path);
    if (status == STATUS_OK) {
        print_lines(out.file, r, offsets);
        status = rl_finish(&out);
    }
    output_discard(&out);
    return status;
}

static int write_results(const rubric_request *q, const results *r, const int64_t *offsets) {
    const array_shape shape = {.dims = 1, .dim = {r->responses}};
    const int status = q->rewards_path != NULL ? rl_write_array(q->rewards_path, &shape, r->rewards) : STATUS_OK;
    return status == STATUS_OK ? write_scores(q, r, offsets) : status;
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
    results r = {.responses = batch->responses, .criteria = rubric->rows};
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
        status = called == NAPIER_OK ? STATUS_OK : rl_library_error(&q->shared, context, called);
    }
    if (status == STATUS_OK) {
        status = write_results(q, &r, batch->offsets.data);
    }
    free(r.scores);
    free(r.rewards);
    return status;
}

static int run(const rubric_request *q, napier_context *context) {
    rl_batch batch = {.wanted = fields, .required = fields};
    table rubric = {0};
    table weights = {0};
    int status = read_table(q->rubric_path, &rubric);
    if (status == STATUS_OK) {
        status = read_weights(q, rubric.rows, &weights);
    }
    if (status == STATUS_OK) {
        status = rl_read(&q->shared, &batch);
    }
    if (status == STATUS_OK) {
        status = check_ids(q, &batch, &rubric);
    }
    if (status == STATUS_OK) {
        status = compute(q, context, &batch, &rubric, &weights);
    }
    rl_batch_free(&batch);
    free(rubric.numbers);
    free(weights.numbers);
    return status;
}

int rubric_command(int count, char **words) {
    rubric_request q = {.shared = {.command = "rubric"}};
    napier_context *context = NULL;
    int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.shared.help) {
        rubric_help();
        return finish_standard_output();
    }
    if (status == STATUS_OK) {
        status = machine_open(&q.shared.machine, &context);
    }
    if (status == STATUS_OK) {
        status = run(&q, context);
    }
    napier_context_destroy(context);
    return status;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

void rubric_help(void) {
    puts("usage: napier rubric RESPONSES.jsonl --rubric FILE [--weights W] [-o OUT] [OPTIONS]\n"
         "       napier rubric --logprobs FILE --token-ids FILE [--offsets FILE] --rubric FILE [OPTIONS]\n"
         "\n"
         "Scores of responses by criteria: weight * sum over tokens of logprob * rubric[criterion][token],\n"
         "and their sum, the reward. A line of RESPONSES (- is standard input) is a response:\n"
         "\n"
         "  {\"logprobs\": [-0.5, -1.25], \"token_ids\": [17, 4]}\n"
         "\n"
         "The same as arrays (.npy, CSV or TSV): --logprobs and --token-ids FILE. In a table a row is a\n"
         "response; numbers in one dimension need\n"
         "      --offsets FILE         where each response begins, and the number of tokens");
    puts("\n"
         "      --rubric FILE          .npy, CSV or TSV: a row a criterion, a column a token of the vocabulary\n"
         "      --weights W            of the criteria: numbers as 1,-0.5,2 or a file (default: all 1)\n"
         "  -o, --output OUT           where scores and rewards go (default or -: standard output)\n"
         "  -f, --format FORMAT        jsonl, or the scores alone as npy, csv or tsv (default: by OUT's\n"
         "                             name, else jsonl)\n"
         "      --rewards FILE         the rewards alone, .npy or by the name .csv or .tsv\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text\n"
         "\n"
         "example: napier rubric answers.jsonl --rubric rubric.npy --weights 1,0.5 --rewards rewards.npy");
}
