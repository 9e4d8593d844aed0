/* cli/rl/grpo.c - `napier grpo`: the loss of a training run, its gradients and its metrics, from log-probs in files.
 * Options have the names of TRL's GRPOConfig. */
#include "commands.h"
#include "program/message.h"
#include "rl_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct grpo_request {
    rl_request shared;
    napier_grpo_options options;
    const char *losses_path, *gradients_path, *entropy_gradients_path; /* NULL: not requested */
} grpo_request;

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_OLD_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS) |
                               RL_BIT(RL_SAMPLER_LOGPROBS) | RL_BIT(RL_ENTROPIES) | RL_BIT(RL_ADVANTAGES) |
                               RL_BIT(RL_MASK);
static const unsigned required = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_ADVANTAGES);

/* In the order of napier_grpo_type. */
static const option_word loss_types[] = {{"grpo", NAPIER_GRPO},
                                         {"bnpo", NAPIER_GRPO_BNPO},
                                         {"dr_grpo", NAPIER_GRPO_DR_GRPO},
                                         {"dapo", NAPIER_GRPO_DAPO},
                                         {"gspo", NAPIER_GRPO_GSPO},
                                         {"cispo", NAPIER_GRPO_CISPO},
                                         {"sapo", NAPIER_GRPO_SAPO},
                                         {"vespo", NAPIER_GRPO_VESPO},
                                         {"luspo", NAPIER_GRPO_LUSPO},
                                         {"token_mean", NAPIER_GRPO_TOKEN_MEAN},
                                         {NULL, 0}};

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Checks that the numbers which an option needs are in the set `have`. */
static int check_needs(const grpo_request *q, unsigned have) {
    const napier_grpo_options *const o = &q->options;
    const struct {
        bool wanted;
        rl_field field;
        const char *option;
    } needs[] = {
        {o->beta != 0, RL_REF_LOGPROBS, "beta"},
        {o->correction != NAPIER_GRPO_UNCORRECTED, RL_SAMPLER_LOGPROBS, "importance-sampling-mode"},
        {o->top_entropy_quantile < 1, RL_ENTROPIES, "top-entropy-quantile"},
        {isfinite(o->entropy_threshold), RL_ENTROPIES, "entropy-threshold"},
        {o->entropy_coefficient != 0, RL_ENTROPIES, "entropy-coefficient"},
        {q->entropy_gradients_path != NULL, RL_ENTROPIES, "entropy-gradients"},
    };
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof needs / sizeof *needs && status == STATUS_OK; i++) {
        status = needs[i].wanted ? rl_need(&q->shared, have, needs[i].field, needs[i].option) : STATUS_OK;
    }
    return status;
}

static napier_grpo_batch batch_of(const rl_batch *batch) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    b.logprobs = rl_batch_numbers(batch, RL_LOGPROBS);
    b.old_logprobs = rl_batch_numbers(batch, RL_OLD_LOGPROBS);
    b.ref_logprobs = rl_batch_numbers(batch, RL_REF_LOGPROBS);
    b.sampler_logprobs = rl_batch_numbers(batch, RL_SAMPLER_LOGPROBS);
    b.entropies = rl_batch_numbers(batch, RL_ENTROPIES);
    b.advantages = rl_batch_numbers(batch, RL_ADVANTAGES);
    b.mask = rl_batch_mask(batch);
    b.offsets = rl_batch_offsets(batch);
    return b;
}

typedef struct report {
    const grpo_request *q;
    const rl_batch *batch;
    napier_grpo_metrics metrics;
} report;

/* Prints "{"loss": ..., ...}", one member per line. */
static int print_report(FILE *file, void *user) {
    const report *const r = user;
    const napier_grpo_metrics *const m = &r->metrics;
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"tokens", m->tokens},
        {"clip_low", m->clip_low},
        {"clip_high", m->clip_high},
        {"mean_ratio", m->mean_ratio},
        {"min_ratio", m->min_ratio},
        {"max_ratio", m->max_ratio},
        {"kl", m->kl},
        {"approx_kl", m->approx_kl},
        {"entropy", m->entropy},
        {"correction", m->correction},
        {"kept_responses", m->kept_responses},
    };
    fputs("{\n  \"format\": 1,\n  \"loss\": ", file);
    json_f64(file, m->loss);
    fprintf(file, ",\n  \"loss_type\": \"%s\",\n  \"responses\": %" PRId64, loss_types[r->q->options.type].name,
            r->batch->responses);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        fprintf(file, ",\n  \"%s\": ", members[i].name);
        json_f64(file, members[i].value);
    }
    const char *separator = "";
    fputs(",\n  \"from\": [", file);
    for (int field = 0; field < RL_FIELDS; field++) {
        if ((r->batch->have & RL_BIT(field)) != 0) {
            fprintf(file, "%s\"%s\"", separator, rl_fields[field].json);
            separator = ", ";
        }
    }
    fputs("]\n}\n", file);
    return STATUS_OK;
}

/* A vector of a number per token, if a file for it is requested. */
static napier_vector room_for(const char *path, int64_t tokens, int *status) {
    float *const values = path != NULL ? malloc(((size_t)tokens + 1) * sizeof *values) : NULL;
    if (path != NULL && values == NULL) {
        *status = out_of_memory(path);
    }
    return napier_array_f32(values, values != NULL ? tokens : 0);
}

static int write_numbers(const char *path, const rl_batch *batch, napier_vector values) {
    return path != NULL && output_array(path, output_format(path, FORMAT_NPY), &batch->shape, values.data);
}

static int compute(const grpo_request *q, napier_context *context, const rl_batch *batch) {
    int status = STATUS_OK;
    const napier_vector losses = room_for(q->losses_path, batch->tokens, &status);
    const napier_vector gradients = room_for(q->gradients_path, batch->tokens, &status);
    const napier_vector entropy_gradients = room_for(q->entropy_gradients_path, batch->tokens, &status);
    const napier_grpo_batch b = batch_of(batch);
    report r = {q, batch, NAPIER_GRPO_METRICS_INIT};
    if (status == STATUS_OK) {
        napier_status called = napier_grpo_loss(context, &b, &q->options, &r.metrics, gradients, entropy_gradients);
        if (called == NAPIER_OK && losses.data != NULL) {
            called = napier_grpo_token_loss(context, &b, &q->options, losses, napier_array_f32(NULL, 0));
        }
        status = library_status(context, called, rl_input_name(&q->shared, RL_LOGPROBS)) ||
                 write_numbers(q->losses_path, batch, losses) || write_numbers(q->gradients_path, batch, gradients) ||
                 write_numbers(q->entropy_gradients_path, batch, entropy_gradients) ||
                 output_print(q->shared.shared.out_path, print_report, &r);
    }
    free(losses.data);
    free(gradients.data);
    free(entropy_gradients.data);
    return status;
}

static int run(void *request, napier_context *context) {
    const grpo_request *const q = request;
    rl_batch batch = {.wanted = fields, .required = required};
    const int status = rl_read(&q->shared, &batch) || check_needs(q, batch.have) || compute(q, context, &batch);
    rl_batch_free(&batch);
    return status;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int check(void *request) {
    const grpo_request *const q = request;
    if (q->options.correction_floor > q->options.correction_cap) {
        return misuse("--importance-sampling-floor: %g is more than --importance-sampling-cap, %g",
                      q->options.correction_floor, q->options.correction_cap);
    }
    if (q->options.top_entropy_quantile < 1 && isfinite(q->options.entropy_threshold)) {
        return misuse("--entropy-threshold and --top-entropy-quantile exclude each other");
    }
    const int status = rl_check(&q->shared, required);
    return status != STATUS_OK || q->shared.shared.in_path != NULL ? status : check_needs(q, rl_given(&q->shared));
}

static const option_word levels[] = {
    {"token", NAPIER_GRPO_LEVEL_TOKEN}, {"sequence", NAPIER_GRPO_LEVEL_SEQUENCE}, {NULL, 0}};
static const option_word estimators[] = {{"k1", NAPIER_KL_K1}, {"k2", NAPIER_KL_K2}, {"k3", NAPIER_KL_K3}, {NULL, 0}};
static const option_word corrections[] = {{"none", NAPIER_GRPO_UNCORRECTED},
                                          {"token_truncate", NAPIER_GRPO_TOKEN_TRUNCATE},
                                          {"token_mask", NAPIER_GRPO_TOKEN_MASK},
                                          {"sequence_truncate", NAPIER_GRPO_SEQUENCE_TRUNCATE},
                                          {"sequence_mask", NAPIER_GRPO_SEQUENCE_MASK},
                                          {NULL, 0}};

#define AT(member) offsetof(grpo_request, member)
#define FROM_0 OPTION_FROM(0, 1e6)
#define ABOVE_0 OPTION_ABOVE_0(1e6)
#define ANY_NUMBER OPTION_FROM(-1e6, 1e6)
static const option arrays[] = {
    RL_ARRAY("logprobs", RL_LOGPROBS, "logprobs, of the policy: a number for each token"),
    RL_ARRAY("advantages", RL_ADVANTAGES, "advantage: a number of the response, or one for each token"),
    RL_ARRAY("old", RL_OLD_LOGPROBS, "old_logprobs (default: logprobs, on-policy)"),
    RL_ARRAY("ref", RL_REF_LOGPROBS, "ref_logprobs, for --beta"),
    RL_ARRAY(
        "sampler", RL_SAMPLER_LOGPROBS,
        "sampler_logprobs, for --importance-sampling-mode and --off-policy-mask-threshold (there old_logprobs stand "
        "in for them)"),
    RL_ARRAY("entropies", RL_ENTROPIES,
             "entropies, for --top-entropy-quantile, --entropy-threshold and --entropy-coefficient"),
    RL_ARRAY("mask", RL_MASK, "mask: 1 or true, the token counts (default); 0 or false, it does not"),
    RL_OFFSETS,
    {.name = NULL},
};
static const option results[] = {
    {"output", 'o', OPTION_WRITE, "FILE", AT(shared.shared.out_path),
     .help = "where the report goes (default or -: standard output), one JSON object"},
    {"losses", 0, OPTION_WRITE, "FILE", AT(losses_path),
     .help = "the loss of each token before it is averaged, .npy or by the name .csv or .tsv"},
    {"gradients", 0, OPTION_WRITE, "FILE", AT(gradients_path), .help = "d loss / d logprobs"},
    {"entropy-gradients", 0, OPTION_WRITE, "FILE", AT(entropy_gradients_path), .help = "d loss / d entropies"},
    {.name = NULL},
};
static const option options[] = {
    {"loss-type", 0, OPTION_WORD, "TYPE", AT(options.type), .words = loss_types, .help = "{} (default grpo)"},
    {"importance-sampling-level", 0, OPTION_WORD, "LEVEL", AT(options.level), .words = levels,
     .help = "of the ratio: {} (default token)"},
    {"epsilon", 0, OPTION_NUMBER, "E", AT(options.epsilon), FROM_0,
     .help = "the clip of the ratio below (default 0.2)"},
    {"epsilon-high", 0, OPTION_NUMBER, "E", AT(options.epsilon_high), FROM_0,
     .help = "and above (default: as --epsilon); of cispo the bound itself"},
    {"delta", 0, OPTION_NUMBER, "D", AT(options.delta), ABOVE_0, .help = "the second clip (default: none)"},
    {"beta", 0, OPTION_NUMBER, "B", AT(options.beta), FROM_0, .help = "of the KL penalty (default 0)"},
    {"kl-estimator", 0, OPTION_WORD, "NAME", AT(options.kl_estimator), .words = estimators, .help = "{} (default k3)"},
    {"use-bias-correction-kl", 0, OPTION_FLAG, NULL, AT(options.kl_bias_correction),
     .help = "multiply the KL penalty by the ratio"},
    {"sapo-temperature-pos", 0, OPTION_NUMBER, "T", AT(options.sapo_tau_positive), ABOVE_0,
     .help = "of sapo, for advantages above 0 (default 1)"},
    {"sapo-temperature-neg", 0, OPTION_NUMBER, "T", AT(options.sapo_tau_negative), ABOVE_0,
     .help = "and for the others (default 1.05)"},
    {"vespo-k-pos", 0, OPTION_NUMBER, "K", AT(options.vespo_k_positive), FROM_0,
     .help = "of vespo, for advantages above 0 (default 2)"},
    {"vespo-lambda-pos", 0, OPTION_NUMBER, "L", AT(options.vespo_lambda_positive), FROM_0,
     .help = "the same (default 3)"},
    {"vespo-k-neg", 0, OPTION_NUMBER, "K", AT(options.vespo_k_negative), FROM_0, .help = "for the others (default 3)"},
    {"vespo-lambda-neg", 0, OPTION_NUMBER, "L", AT(options.vespo_lambda_negative), FROM_0,
     .help = "for the others (default 2)"},
    {"max-completion-length", 0, OPTION_INTEGER, "N", AT(options.max_completion_length), OPTION_FROM(1, 0x1p63),
     .help = "what dr_grpo divides by (default: the longest response)"},
    {"count-empty-responses", 0, OPTION_FLAG, NULL, AT(options.count_empty_responses),
     .help =
         "means over responses count those without tokens too, as a padded batch does (TRL); default: they are left "
         "out"},
    {"num-items-in-batch", 0, OPTION_NUMBER, "N", AT(options.num_items), OPTION_ABOVE_0(1e15),
     .help = "what dapo, cispo and vespo divide by (default: the tokens that count)"},
    {"importance-sampling-mode", 0, OPTION_WORD, "MODE", AT(options.correction), .words = corrections,
     .help = "the correction exp(old - sampler): {} (default none)"},
    {"importance-sampling-cap", 0, OPTION_NUMBER, "C", AT(options.correction_cap), OPTION_ABOVE_0(HUGE_VAL),
     .help = "of the correction (default 3; inf: none)"},
    {"importance-sampling-floor", 0, OPTION_NUMBER, "F", AT(options.correction_floor), FROM_0,
     .help = "of the correction (default 0)"},
    {"top-entropy-quantile", 0, OPTION_NUMBER, "Q", AT(options.top_entropy_quantile), OPTION_ABOVE_0(1),
     .help = "only this share of tokens, of the highest entropy (default 1)"},
    {"entropy-threshold", 0, OPTION_NUMBER, "H", AT(options.entropy_threshold), ANY_NUMBER,
     .help = "instead: only tokens of entropy H or more, as where the quantile was taken over the batches of all "
             "processes (TRL)"},
    {"entropy-coefficient", 0, OPTION_NUMBER, "C", AT(options.entropy_coefficient), ANY_NUMBER,
     .help = "loss - C * mean entropy (default 0)"},
    {"off-policy-mask-threshold", 0, OPTION_NUMBER, "T", AT(options.off_policy_threshold), ANY_NUMBER,
     .help = "drops responses far from the sampler (default: none)"},
    {.name = NULL},
};
static const option_group groups[] = {{RL_HEADING, arrays}, {NULL, results}, {NULL, options}, MACHINE_GROUP};
static const grpo_request defaults = {.options = NAPIER_GRPO_OPTIONS_INIT};

const command grpo_command = {
    .name = "grpo",
    .summary = "the GRPO loss of responses, its gradients and metrics",
    .usage = "RESPONSES.jsonl [-o REPORT.json] [OPTIONS]\n"
             "--logprobs FILE --advantages FILE [--offsets FILE] [-o REPORT.json] [OPTIONS]",
    .about = "The GRPO loss of a batch of responses and its metrics, as JSON: to check a training run.\n"
             "A line of RESPONSES (- is standard input) is a response, with a number for each token:\n"
             "\n"
             "  {\"logprobs\": [-0.5, -1.25], \"old_logprobs\": [-0.5, -1.5], \"advantage\": 0.5}",
    .example = "napier grpo step100.jsonl --loss-type dapo --epsilon-high 0.28 --gradients grad.npy\n"
               "napier grpo --logprobs lp.npy --old old.npy --advantages adv.npy --mask mask.npy",
    .groups = groups,
    .input = INPUT_OPTIONAL,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
