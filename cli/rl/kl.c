/* cli/rl/kl.c - `napier kl`: the divergence of a policy from a reference, for each response or each row of logits. */
#include "../commands.h"
#include "../io/input.h"
#include "../program/message.h"
#include "rl_options.h"
#include "../program/scratch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ESTIMATOR = RL_OWN, REDUCTION, CLAMP_RATIO, CLAMP_KL, LOGITS, REF_LOGITS, TEMPERATURE };

typedef struct kl_request {
    rl_request shared;
    napier_kl_options options;
    const char *logits_path, *ref_logits_path; /* both or neither */
    napier_softmax_options softmax;
    bool estimates, rows; /* whether options of either kind were given */
} kl_request;

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS) | RL_BIT(RL_MASK);
static const unsigned required = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS);

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int set_estimator(kl_request *q, const char *value) {
    static const char *const words[] = {"k1", "k2", "k3", NULL};
    const int index = word_index(value, words);
    q->options.estimator = (napier_kl_estimator)(index + NAPIER_KL_K1);
    return index >= 0 ? STATUS_OK : bad_value(q->shared.command, "kl-estimator", value, "one of k1, k2, k3");
}

static int set_reduction(kl_request *q, const char *value) {
    static const char *const words[] = {"sum", "mean", NULL};
    const int index = word_index(value, words);
    q->options.reduction = (napier_reduction)index;
    return index >= 0 ? STATUS_OK : bad_value(q->shared.command, "reduction", value, "sum or mean");
}

static int set_option(kl_request *q, int id, const char *value) {
    static const rl_number clamp_ratio = {"clamp-ratio", 0, 1e6, true, "a number above 0"};
    static const rl_number clamp_kl = {"clamp-kl", 0, 1e6, true, "a number above 0"};
    static const rl_number temperature = {"temperature", 0, 1e30, true, "a number above 0"};
    if (id < RL_OWN) {
        return rl_set_option(&q->shared, id, value);
    }
    q->rows = q->rows || id >= LOGITS;
    q->estimates = q->estimates || id < LOGITS;
    switch (id) {
    case ESTIMATOR: return set_estimator(q, value);
    case REDUCTION: return set_reduction(q, value);
    case CLAMP_RATIO: return rl_set_number(&q->shared, &clamp_ratio, value, &q->options.clamp_ratio);
    case CLAMP_KL: return rl_set_number(&q->shared, &clamp_kl, value, &q->options.clamp_kl);
    case LOGITS: q->logits_path = value; return STATUS_OK;
    case REF_LOGITS: q->ref_logits_path = value; return STATUS_OK;
    default: return rl_set_number(&q->shared, &temperature, value, &q->softmax.temperature);
    }
}

static int check_request(kl_request *q) {
    const named_file own[] = {{"--logits", q->logits_path, false}, {"--ref-logits", q->ref_logits_path, false}};
    const int status = rl_check_files(&q->shared, own, sizeof own / sizeof *own);
    if (status != STATUS_OK) {
        return status;
    }
    if (!q->rows) {
        return rl_check_request(&q->shared, required);
    }
    bool responses = q->estimates || q->shared.lines_path != NULL || q->shared.offsets_path != NULL;
    for (int field = 0; field < RL_FIELDS; field++) {
        responses = responses || q->shared.paths[field] != NULL;
    }
    if (responses) {
        return misuse("kl", "--logits, --ref-logits and --temperature are for rows of logits alone, not for responses");
    }
    if (q->logits_path == NULL || q->ref_logits_path == NULL) {
        return misuse("kl", "--%s is missing", q->logits_path == NULL ? "logits" : "ref-logits");
    }
    if (strcmp(q->logits_path, "-") == 0 && strcmp(q->ref_logits_path, "-") == 0) {
        return misuse("kl", "only one of the files can be standard input");
    }
    return machine_resolve(&q->shared.machine, "kl");
}

static int parse_request(kl_request *q, int count, char **words) {
    static const option_spec own[] = {
        {ESTIMATOR, "kl-estimator", '\0', true},  {REDUCTION, "reduction", '\0', true},
        {CLAMP_RATIO, "clamp-ratio", '\0', true}, {CLAMP_KL, "clamp-kl", '\0', true},
        {LOGITS, "logits", '\0', true},           {REF_LOGITS, "ref-logits", '\0', true},
        {TEMPERATURE, "temperature", 't', true},  {0, NULL, '\0', false},
    };
    option_spec specs[RL_MOST_SPECS];
    rl_make_specs(specs, fields, own);
    option_scan scan = {.command = "kl", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->shared.help) {
            return status;
        }
    }
    return check_request(q);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Prints {"response": 0, "tokens": 5, "kl": 0.25} per line, or {"row": 0, "kl": 0.25} without a batch. */
static void print_lines(FILE *file, const rl_batch *batch, const float *kl, int64_t count) {
    const int64_t *const offsets = batch != NULL ? batch->offsets.data : NULL;
    const uint8_t *const mask = batch != NULL ? rl_batch_mask(batch) : NULL;
    for (int64_t i = 0; i < count; i++) {
        if (batch != NULL) {
            int64_t tokens = 0;
            for (int64_t t = offsets[i]; t < offsets[i + 1]; t++) {
                tokens += mask == NULL || mask[t] != 0;
            }
            fprintf(file, "{\"response\": %" PRId64 ", \"tokens\": %" PRId64 ", \"kl\": ", i, tokens);
        } else {
            fprintf(file, "{\"row\": %" PRId64 ", \"kl\": ", i);
        }
        rl_print_f32(file, kl[i]);
        fputs("}\n", file);
    }
}

static int write_results(const kl_request *q, const rl_batch *batch, float *kl, int64_t count) {
    const rl_format format = rl_format_resolve(q->shared.format, q->shared.out_path);
    if (format != RL_FORMAT_JSONL) {
        const array_shape shape = {.dims = 1, .dim = {count}};
        return rl_write_format(q->shared.out_path, format, &shape, kl);
    }
    output out;
    int status = output_open(&out, q->shared.out_path);
    if (status == STATUS_OK) {
        print_lines(out.file, batch, kl, count);
        status = rl_finish(&out);
    }
    output_discard(&out);
    return status;
}

static float *room_for(int64_t count) {
    float *const numbers = (uint64_t)count < SIZE_MAX / 8 ? malloc(((size_t)count + 1) * sizeof *numbers) : NULL;
    if (numbers == NULL) {
        complain("out of memory");
    }
    return numbers;
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static int compute_responses(const kl_request *q, napier_context *context, const rl_batch *batch) {
    float *const kl = room_for(batch->responses);
    if (kl == NULL) {
        return STATUS_FAILED;
    }
    const napier_status called = napier_kl_per_response(
        context, rl_batch_numbers(batch, RL_LOGPROBS), rl_batch_numbers(batch, RL_REF_LOGPROBS),
        rl_batch_offsets(batch), rl_batch_mask(batch), &q->options, napier_array_f32(kl, batch->responses));
    const int status = called == NAPIER_OK ? write_results(q, batch, kl, batch->responses)
                                           : rl_library_error(&q->shared, context, called);
    free(kl);
    return status;
}

static int run_responses(const kl_request *q, napier_context *context) {
    rl_batch batch = {.wanted = fields, .required = required};
    int status = rl_read(&q->shared, &batch);
    if (status == STATUS_OK) {
        status = compute_responses(q, context, &batch);
    }
    rl_batch_free(&batch);
    return status;
}

/* ---- Rows of logits ---------------------------------------------------------------------------------------------- */

/* A table of logits, mapped if possible. */
typedef struct logits {
    input in;
    scratch room;
    napier_const_matrix view;
} logits;

static int open_logits(logits *l, const char *path) {
    memset(l, 0, sizeof *l);
    int status = input_open(&l->in, path, FORMAT_AUTO);
    if (status == STATUS_OK) {
        status = input_load(&l->in);
    }
    if (status == STATUS_OK) {
        status = input_use_c_order(&l->in);
    }
    const array_shape *const shape = &l->in.shape;
    if (status == STATUS_OK && (shape->dims < 1 || l->in.count == 0)) {
        status = complain("%s: no rows of logits", l->in.name);
    }
    if (status == STATUS_OK && l->in.dtype == NAPIER_F64 && l->in.format == FORMAT_NPY) {
        status = complain("%s: f64 logits; f32, f16 or bf16 are wanted", l->in.name);
    }
    if (status != STATUS_OK) {
        return status;
    }
    const int64_t cols = shape->dim[shape->dims - 1];
    l->view = napier_const_rows(NULL, l->in.count / cols, cols, l->in.dtype);
    return STATUS_OK;
}

/* Narrows text, which is f64, to f32. */
static void narrow(logits *l) {
    const double *const from = l->room.data;
    float *const to = l->room.data;
    for (int64_t i = 0; i < l->in.count; i++) {
        const double value = from[i];
        const float narrowed = (float)value;
        memcpy(&to[i], &narrowed, sizeof narrowed); /* never beyond the next element to read */
    }
    l->view.dtype = NAPIER_F32;
}

static int load_logits(logits *l) {
    int64_t got;
    int status = input_arrive(&l->in);
    if (status != STATUS_OK) {
        return status;
    }
    l->view.data = l->in.dtype != NAPIER_F64 ? input_map(&l->in) : NULL;
    if (l->view.data != NULL) {
        return STATUS_OK;
    }
    status = scratch_new(&l->room, l->in.count * (int64_t)napier_dtype_size(l->in.dtype), "");
    if (status == STATUS_OK) {
        status = input_read(&l->in, l->room.data, l->in.count, &got);
    }
    l->view.data = l->room.data;
    if (status == STATUS_OK && l->in.dtype == NAPIER_F64) {
        narrow(l);
    }
    return status;
}

static void close_logits(logits *l) {
    input_close(&l->in);
    scratch_free(&l->room);
}

static int compute_rows(const kl_request *q, napier_context *context, const logits *policy, const logits *ref) {
    const napier_const_matrix *const p = &policy->view;
    if (p->rows != ref->view.rows || p->cols != ref->view.cols) {
        return complain("%s: %" PRId64 " x %" PRId64 " logits, %s has %" PRId64 " x %" PRId64, ref->in.name,
                        ref->view.rows, ref->view.cols, policy->in.name, p->rows, p->cols);
    }
    float *const kl = room_for(p->rows);
    if (kl == NULL) {
        return STATUS_FAILED;
    }
    const napier_status called = napier_kl_full(context, *p, ref->view, &q->softmax, napier_array_f32(kl, p->rows));
    const int status =
        called == NAPIER_OK ? write_results(q, NULL, kl, p->rows) : rl_library_error(&q->shared, context, called);
    free(kl);
    return status;
}

static int run_rows(const kl_request *q, napier_context *context) {
    logits policy;
    logits ref;
    int status = open_logits(&policy, q->logits_path);
    const int opened = open_logits(&ref, q->ref_logits_path);
    status = status == STATUS_OK ? opened : status;
    if (status == STATUS_OK) {
        status = load_logits(&policy);
    }
    if (status == STATUS_OK) {
        status = load_logits(&ref);
    }
    if (status == STATUS_OK) {
        status = compute_rows(q, context, &policy, &ref);
    }
    close_logits(&policy);
    close_logits(&ref);
    return status;
}

int kl_command(int count, char **words) {
    kl_request q = {
        .shared = {.command = "kl"}, .options = NAPIER_KL_OPTIONS_INIT, .softmax = NAPIER_SOFTMAX_OPTIONS_INIT};
    napier_context *context = NULL;
    int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.shared.help) {
        kl_help();
        return finish_standard_output();
    }
    if (status == STATUS_OK) {
        status = machine_open(&q.shared.machine, &context);
    }
    if (status == STATUS_OK) {
        status = q.rows ? run_rows(&q, context) : run_responses(&q, context);
    }
    napier_context_destroy(context);
    return status;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

void kl_help(void) {
    puts("usage: napier kl RESPONSES.jsonl [-o OUT] [OPTIONS]\n"
         "       napier kl --logprobs FILE --ref FILE [--offsets FILE] [-o OUT] [OPTIONS]\n"
         "       napier kl --logits FILE --ref-logits FILE [-o OUT] [OPTIONS]\n"
         "\n"
         "How far a policy is from a reference: estimated from the log-probs of each response's tokens,\n"
         "or exactly, over the vocabulary, for each row of logits. Of a policy with itself it is 0.\n"
         "A line of RESPONSES (- is standard input) is a response, with a number for each token:\n"
         "\n"
         "  {\"logprobs\": [-0.5, -1.25], \"ref_logprobs\": [-0.5, -1.5], \"mask\": [1, 1]}\n"
         "\n"
         "The same as arrays (.npy, CSV or TSV): --logprobs, --ref, --mask FILE. In a table a row is a\n"
         "response; numbers in one dimension need\n"
         "      --offsets FILE         where each response begins, and the number of tokens");
    puts("\n"
         "  -o, --output OUT           where the results go (default or -: standard output)\n"
         "  -f, --format FORMAT        jsonl, npy, csv or tsv (default: by OUT's name, else jsonl)\n"
         "      --kl-estimator NAME    with d = ref - policy: k1 (-d, default), k2 (d^2 / 2) or\n"
         "                             k3 (exp(d) - d - 1)\n"
         "      --reduction HOW        over a response's tokens: sum (default) or mean\n"
         "      --clamp-ratio C        d is held within -C and C (default: not)\n"
         "      --clamp-kl C           each token's estimate is held within -C and C (default: not)\n"
         "  -t, --temperature T        divide logits by T first (default 1)\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text\n"
         "\n"
         "example: napier kl step100.jsonl --kl-estimator k3 -o kl.npy\n"
         "example: napier kl --logits bf16.npy --ref-logits f32.npy");
}
