/* cli/rl/kl.c - `napier kl`: the divergence of a policy from a reference, for each response or each row of logits. */
#include "commands.h"
#include "io/input.h"
#include "io/source.h"
#include "program/message.h"
#include "rl_options.h"
#include "program/scratch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct kl_request {
    rl_request shared;
    napier_kl_options options;
    const char *logits_path, *ref_logits_path; /* both or neither */
    napier_softmax_options softmax;
    bool estimates, rows; /* whether options of either kind were given */
} kl_request;

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS) | RL_BIT(RL_MASK);
static const unsigned required = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS);

static const kl_request defaults = {.options = NAPIER_KL_OPTIONS_INIT, .softmax = NAPIER_SOFTMAX_OPTIONS_INIT};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

typedef struct results {
    const rl_batch *batch; /* NULL: rows */
    float *kl;
    int64_t count;
} results;

static int results_new(results *r, const rl_batch *batch, int64_t count) {
    r->batch = batch;
    r->count = count;
    r->kl = (uint64_t)count < SIZE_MAX / 8 ? malloc(((size_t)count + 1) * sizeof *r->kl) : NULL;
    return r->kl != NULL ? STATUS_OK : complain("out of memory");
}

/* Prints {"response": 0, "tokens": 5, "kl": 0.25} per line, or {"row": 0, "kl": 0.25} without a batch. */
static int print_lines(FILE *file, void *user) {
    const results *const r = user;
    const int64_t *const offsets = r->batch != NULL ? r->batch->offsets.data : NULL;
    const uint8_t *const mask = r->batch != NULL ? rl_batch_mask(r->batch) : NULL;
    for (int64_t i = 0; i < r->count; i++) {
        int64_t tokens = 0;
        for (int64_t t = offsets != NULL ? offsets[i] : 0; offsets != NULL && t < offsets[i + 1]; t++) {
            tokens += mask == NULL || mask[t] != 0;
        }
        fprintf(file, offsets != NULL ? "{\"response\": %" PRId64 ", \"tokens\": %" PRId64 : "{\"row\": %" PRId64, i,
                tokens);
        fputs(", \"kl\": ", file);
        json_number(file, NAPIER_F32, &r->kl[i]);
        fputs("}\n", file);
    }
    return STATUS_OK;
}

/* `called` is the status of the call that computed the results. */
static int write_results(const kl_request *q, const napier_context *context, napier_status called, results *r) {
    const array_shape shape = {.dims = 1, .dim = {r->count}};
    const int status = library_status(context, called, rl_input_name(&q->shared, RL_LOGPROBS)) ||
                       rl_write(&q->shared, &shape, r->kl, print_lines, r);
    free(r->kl);
    return status;
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static int compute_responses(const kl_request *q, napier_context *context, const rl_batch *batch) {
    results r;
    if (results_new(&r, batch, batch->responses)) {
        return STATUS_FAILED;
    }
    const napier_status called = napier_kl_per_response(
        context, rl_batch_numbers(batch, RL_LOGPROBS), rl_batch_numbers(batch, RL_REF_LOGPROBS),
        rl_batch_offsets(batch), rl_batch_mask(batch), &q->options, napier_array_f32(r.kl, r.count));
    return write_results(q, context, called, &r);
}

/* True if the reference has a file of JSON Lines of its own. */
static bool has_ref_lines(const kl_request *q) {
    return q->shared.shared.in_path != NULL && q->shared.paths[RL_REF_LOGPROBS] != NULL;
}

/* Gives the policy's batch the log-probs of the reference's, which has the same responses. */
static int take_ref(rl_batch *policy, rl_batch *ref, const char *name, const char *ref_name) {
    const int64_t *const a = policy->offsets.data, *const b = ref->offsets.data;
    if (policy->responses != ref->responses) {
        return complain("%s: responses: %" PRId64 ", in %s %" PRId64, ref_name, ref->responses, name,
                        policy->responses);
    }
    for (int64_t i = 0; i < policy->responses; i++) {
        if (a[i + 1] != b[i + 1]) {
            return complain("%s: response %" PRId64 " has %" PRId64 " tokens, in %s %" PRId64, ref_name, i,
                            b[i + 1] - b[i], name, a[i + 1] - a[i]);
        }
    }
    policy->columns[RL_REF_LOGPROBS] = ref->columns[RL_LOGPROBS];
    policy->have |= RL_BIT(RL_REF_LOGPROBS);
    ref->columns[RL_LOGPROBS] = (rl_column){.data = NULL};
    return STATUS_OK;
}

/* Reads two files that napier logprobs wrote, one of each model. */
static int read_pair(const kl_request *q, rl_batch *batch) {
    const char *const path = q->shared.shared.in_path, *const ref_path = q->shared.paths[RL_REF_LOGPROBS];
    rl_batch ref = {.wanted = RL_BIT(RL_LOGPROBS), .required = RL_BIT(RL_LOGPROBS)};
    batch->wanted = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_MASK);
    batch->required = RL_BIT(RL_LOGPROBS);
    const int status = rl_batch_read_lines(batch, path) || rl_batch_read_lines(&ref, ref_path) ||
                       take_ref(batch, &ref, source_name(path), source_name(ref_path));
    rl_batch_free(&ref);
    return status;
}

static int run_responses(const kl_request *q, napier_context *context) {
    rl_batch batch = {.wanted = fields, .required = required};
    const int status = (has_ref_lines(q) ? read_pair(q, &batch) : rl_read(&q->shared, &batch)) ||
                       compute_responses(q, context, &batch);
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
    if (input_open_whole(&l->in, path)) {
        return STATUS_FAILED;
    }
    const array_shape *const shape = &l->in.shape;
    if (shape->dims < 1 || l->in.count == 0) {
        return complain("%s: no rows of logits", l->in.name);
    }
    if (l->in.dtype == NAPIER_F64 && l->in.format == FORMAT_NPY) {
        return complain("%s: f64 logits; f32, f16 or bf16 are wanted", l->in.name);
    }
    const int64_t cols = shape->dim[shape->dims - 1];
    l->view = napier_const_rows(NULL, l->in.count / cols, cols, l->in.dtype);
    return STATUS_OK;
}

static int load_logits(logits *l) {
    if (l->in.dtype == NAPIER_F64) {
        input_narrow(&l->in);
    }
    l->view.dtype = l->in.dtype;
    return input_elements(&l->in, &l->room, &l->view.data);
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
    results r;
    if (results_new(&r, NULL, p->rows)) {
        return STATUS_FAILED;
    }
    const napier_status called = napier_kl_full(context, *p, ref->view, &q->softmax, napier_array_f32(r.kl, p->rows));
    return write_results(q, context, called, &r);
}

static int run_rows(const kl_request *q, napier_context *context) {
    logits policy = {.view = {0}};
    logits ref = {.view = {0}};
    const int status = open_logits(&policy, q->logits_path) || open_logits(&ref, q->ref_logits_path) ||
                       load_logits(&policy) || load_logits(&ref) || compute_rows(q, context, &policy, &ref);
    close_logits(&policy);
    close_logits(&ref);
    return status;
}

static int run(void *request, napier_context *context) {
    const kl_request *const q = request;
    return q->rows ? run_rows(q, context) : run_responses(q, context);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int check(void *request) {
    const kl_request *const q = request;
    if (!q->rows) {
        const bool is_pair =
            has_ref_lines(q) && rl_given(&q->shared) == RL_BIT(RL_REF_LOGPROBS) && q->shared.offsets_path == NULL;
        return is_pair ? STATUS_OK : rl_check(&q->shared, required);
    }
    if (q->estimates || q->shared.shared.in_path != NULL || q->shared.offsets_path != NULL ||
        rl_given(&q->shared) != 0) {
        return misuse("--logits, --ref-logits and --temperature are for rows of logits alone, not for responses");
    }
    return q->logits_path != NULL && q->ref_logits_path != NULL
               ? STATUS_OK
               : misuse("--%s is missing", q->logits_path == NULL ? "logits" : "ref-logits");
}

static const char *ask_for_estimates(void *request, const char *value) {
    (void)value;
    ((kl_request *)request)->estimates = true;
    return NULL;
}

static const char *ask_for_rows(void *request, const char *value) {
    (void)value;
    ((kl_request *)request)->rows = true;
    return NULL;
}

static const option_word estimators[] = {{"k1", NAPIER_KL_K1}, {"k2", NAPIER_KL_K2}, {"k3", NAPIER_KL_K3}, {NULL, 0}};
static const option_word reductions[] = {{"sum", NAPIER_REDUCE_SUM}, {"mean", NAPIER_REDUCE_MEAN}, {NULL, 0}};

#define AT(member) offsetof(kl_request, member)
static const option arrays[] = {
    RL_ARRAY("logprobs", RL_LOGPROBS, "logprobs, of the policy: a number for each token"),
    RL_ARRAY("ref", RL_REF_LOGPROBS,
             "ref_logprobs, of the reference; with RESPONSES: JSON Lines whose logprobs they are"),
    RL_ARRAY("mask", RL_MASK, "mask: 1 or true, the token counts (default); 0 or false, it does not"),
    RL_OFFSETS,
    {.name = NULL},
};
static const option options[] = {
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.shared.out_path),
     .help = "where the results go (default or -: standard output), a JSON object on a line for each"},
    {"format", 'f', OPTION_WORD, "FORMAT", AT(shared.format), .words = result_formats,
     .help = "{}; of all but jsonl the KL alone, f32 (default: by OUT's name, else jsonl)"},
    {"kl-estimator", 0, OPTION_WORD, "NAME", AT(options.estimator), .words = estimators, .set = ask_for_estimates,
     .help = "with d = ref - policy: k1 (-d, default), k2 (d^2/2) or k3 (exp(d)-d-1)"},
    {"reduction", 0, OPTION_WORD, "HOW", AT(options.reduction), .words = reductions, .set = ask_for_estimates,
     .help = "over a response's tokens: sum (default) or mean"},
    {"clamp-ratio", 0, OPTION_NUMBER, "C", AT(options.clamp_ratio), OPTION_ABOVE_0(1e6), .set = ask_for_estimates,
     .help = "d is held within -C and C (default: not)"},
    {"clamp-kl", 0, OPTION_NUMBER, "C", AT(options.clamp_kl), OPTION_ABOVE_0(1e6), .set = ask_for_estimates,
     .help = "each token's estimate is held within -C and C (default: not)"},
    {.name = NULL},
};
static const option of_rows[] = {
    {"logits", 0, OPTION_READ, "FILE", AT(logits_path), .set = ask_for_rows,
     .help = "of the policy: f32, f16 or bf16, a row along the last axis"},
    {"ref-logits", 0, OPTION_READ, "FILE", AT(ref_logits_path), .set = ask_for_rows, .help = "of the reference"},
    {"temperature", 't', OPTION_NUMBER, "T", AT(softmax.temperature), OPTION_ABOVE_0(1e30), .set = ask_for_rows,
     .help = "divide logits by T first (default 1)"},
    {.name = NULL},
};
static const option_group groups[] = {
    {RL_HEADING, arrays}, {NULL, options}, {"In place of responses, rows of logits:", of_rows}, MACHINE_GROUP};

const command kl_command = {
    .name = "kl",
    .summary = "how far a policy is from a reference",
    .usage = "RESPONSES.jsonl [--ref RESPONSES.jsonl] [-o OUT] [OPTIONS]\n"
             "--logprobs FILE --ref FILE [--offsets FILE] [-o OUT] [OPTIONS]\n"
             "--logits FILE --ref-logits FILE [-o OUT] [OPTIONS]",
    .about = "How far a policy is from a reference: estimated from the log-probs of each response's tokens,\n"
             "or exactly, over the vocabulary, for each row of logits. Of a policy with itself it is 0.\n"
             "A line of RESPONSES (- is standard input) is a response, with a number for each token:\n"
             "\n"
             "  {\"logprobs\": [-0.5, -1.25], \"ref_logprobs\": [-0.5, -1.5], \"mask\": [1, 1]}\n"
             "\n"
             "napier logprobs writes such lines without ref_logprobs: give the reference's file as --ref.",
    .example = "napier kl step100.jsonl --kl-estimator k3 -o kl.npy\n"
               "napier kl policy.jsonl --ref base.jsonl\n"
               "napier kl --logits bf16.npy --ref-logits f32.npy",
    .groups = groups,
    .input = INPUT_OPTIONAL,
    .second = "ref",
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
