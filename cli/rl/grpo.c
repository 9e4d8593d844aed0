/* cli/rl/grpo.c - `napier grpo`: the loss of a training run, its gradients and its metrics, from log-probs in files.
 * Options have the names of TRL's GRPOConfig. */
#include "../commands.h"
#include "../program/message.h"
#include "rl_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options ----------------------------------------------------------------------------------------------------- */

typedef struct grpo_request {
    rl_request shared;
    napier_grpo_options options;
    const char *losses_path, *gradients_path, *entropy_gradients_path; /* NULL: not requested */
} grpo_request;

/* Options that are numbers, each with its offset in napier_grpo_options. */
static const struct grpo_number {
    rl_number number;
    size_t offset;
} numbers[] = {
    {{"epsilon", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, epsilon)},
    {{"epsilon-high", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, epsilon_high)},
    {{"delta", 0, 1e6, true, "a number above 0"}, offsetof(napier_grpo_options, delta)},
    {{"beta", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, beta)},
    {{"sapo-temperature-pos", 0, 1e6, true, "a number above 0"}, offsetof(napier_grpo_options, sapo_tau_positive)},
    {{"sapo-temperature-neg", 0, 1e6, true, "a number above 0"}, offsetof(napier_grpo_options, sapo_tau_negative)},
    {{"vespo-k-pos", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, vespo_k_positive)},
    {{"vespo-lambda-pos", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, vespo_lambda_positive)},
    {{"vespo-k-neg", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, vespo_k_negative)},
    {{"vespo-lambda-neg", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, vespo_lambda_negative)},
    {{"num-items-in-batch", 0, 1e15, true, "a number above 0"}, offsetof(napier_grpo_options, num_items)},
    {{"importance-sampling-cap", 0, HUGE_VAL, true, "a number above 0, or inf"},
     offsetof(napier_grpo_options, correction_cap)},
    {{"importance-sampling-floor", 0, 1e6, false, "a number from 0"}, offsetof(napier_grpo_options, correction_floor)},
    {{"top-entropy-quantile", 0, 1, true, "a number above 0, at most 1"},
     offsetof(napier_grpo_options, top_entropy_quantile)},
    {{"entropy-threshold", -1e6, 1e6, false, "a finite number"}, offsetof(napier_grpo_options, entropy_threshold)},
    {{"entropy-coefficient", -1e6, 1e6, false, "a finite number"}, offsetof(napier_grpo_options, entropy_coefficient)},
    {{"off-policy-mask-threshold", -1e6, 1e6, false, "a finite number"},
     offsetof(napier_grpo_options, off_policy_threshold)},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

enum {
    LOSS_TYPE = RL_OWN,
    LEVEL,
    KL_ESTIMATOR,
    BIAS_CORRECTION,
    CORRECTION,
    MAX_LENGTH,
    COUNT_EMPTY,
    LOSSES,
    GRADIENTS,
    ENTROPY_GRADIENTS,
    FIRST_NUMBER
};

static const unsigned fields = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_OLD_LOGPROBS) | RL_BIT(RL_REF_LOGPROBS) |
                               RL_BIT(RL_SAMPLER_LOGPROBS) | RL_BIT(RL_ENTROPIES) | RL_BIT(RL_ADVANTAGES) |
                               RL_BIT(RL_MASK);
static const unsigned required = RL_BIT(RL_LOGPROBS) | RL_BIT(RL_ADVANTAGES);

static void make_specs(option_spec specs[RL_MOST_SPECS]) {
    static const option_spec words[] = {
        {LOSS_TYPE, "loss-type", '\0', true},
        {LEVEL, "importance-sampling-level", '\0', true},
        {KL_ESTIMATOR, "kl-estimator", '\0', true},
        {BIAS_CORRECTION, "use-bias-correction-kl", '\0', false},
        {CORRECTION, "importance-sampling-mode", '\0', true},
        {MAX_LENGTH, "max-completion-length", '\0', true},
        {COUNT_EMPTY, "count-empty-responses", '\0', false},
        {LOSSES, "losses", '\0', true},
        {GRADIENTS, "gradients", '\0', true},
        {ENTROPY_GRADIENTS, "entropy-gradients", '\0', true},
    };
    enum { WORDS = sizeof words / sizeof words[0] };
    option_spec own[WORDS + NUMBERS + 1];
    memcpy(own, words, sizeof words);
    for (int i = 0; i < NUMBERS; i++) {
        own[WORDS + i] = (option_spec){FIRST_NUMBER + i, numbers[i].number.name, '\0', true};
    }
    own[WORDS + NUMBERS] = (option_spec){0, NULL, '\0', false};
    rl_make_specs(specs, fields, own);
}

/* In the order of napier_grpo_type. */
static const char *const loss_types[] = {"grpo", "bnpo",  "dr_grpo", "dapo",       "gspo", "cispo",
                                         "sapo", "vespo", "luspo",   "token_mean", NULL};
/* In the order of napier_grpo_correction. */
static const char *const corrections[] = {"none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask",
                                          NULL};

/* The index of one of `words`, or -1 after a message. */
static int parse_word(const grpo_request *q, const char *option, const char *value, const char *const *words) {
    char wanted[120] = "one of";
    const int index = word_index(value, words);
    for (int i = 0; index < 0 && words[i] != NULL; i++) {
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s %s", i > 0 ? "," : "", words[i]);
    }
    if (index < 0) {
        bad_value(q->shared.command, option, value, wanted);
    }
    return index;
}

static int set_word(grpo_request *q, int id, const char *value) {
    static const char *const levels[] = {"token", "sequence", NULL};
    static const char *const estimators[] = {"k1", "k2", "k3", NULL};
    napier_grpo_options *const options = &q->options;
    int index = 0;
    switch (id) {
    case LOSS_TYPE:
        index = parse_word(q, "loss-type", value, loss_types);
        options->type = (napier_grpo_type)index;
        break;
    case LEVEL:
        index = parse_word(q, "importance-sampling-level", value, levels);
        options->level = (napier_grpo_level)index;
        break;
    case KL_ESTIMATOR:
        index = parse_word(q, "kl-estimator", value, estimators);
        options->kl_estimator = (napier_kl_estimator)(index + NAPIER_KL_K1);
        break;
    default:
        index = parse_word(q, "importance-sampling-mode", value, corrections);
        options->correction = (napier_grpo_correction)index;
        break;
    }
    return index >= 0 ? STATUS_OK : STATUS_USAGE;
}

static int set_number(grpo_request *q, const struct grpo_number *option, const char *value) {
    double number = 0;
    const int status = rl_set_number(&q->shared, &option->number, value, &number);
    if (status == STATUS_OK) {
        memcpy((char *)&q->options + option->offset, &number, sizeof number);
    }
    return status;
}

static int set_option(grpo_request *q, int id, const char *value) {
    if (id < RL_OWN) {
        return rl_set_option(&q->shared, id, value);
    }
    if (id >= FIRST_NUMBER) {
        return set_number(q, &numbers[id - FIRST_NUMBER], value);
    }
    switch (id) {
    case BIAS_CORRECTION: q->options.kl_bias_correction = 1; return STATUS_OK;
    case MAX_LENGTH:
        return parse_integer(value, 1, INT64_MAX, &q->options.max_completion_length)
                   ? STATUS_OK
                   : bad_value(q->shared.command, "max-completion-length", value, "a whole number from 1");
    case COUNT_EMPTY: q->options.count_empty_responses = 1; return STATUS_OK;
    case LOSSES: q->losses_path = value; return STATUS_OK;
    case GRADIENTS: q->gradients_path = value; return STATUS_OK;
    case ENTROPY_GRADIENTS: q->entropy_gradients_path = value; return STATUS_OK;
    default: return set_word(q, id, value);
    }
}

static bool to_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

static int check_request(grpo_request *q) {
    const bool report = q->shared.out_path == NULL || to_standard(q->shared.out_path);
    if (report + to_standard(q->losses_path) + to_standard(q->gradients_path) + to_standard(q->entropy_gradients_path) >
        1) {
        return misuse("grpo", "only one of the results can go to standard output (-o FILE moves the report)");
    }
    if (q->shared.format != RL_FORMAT_AUTO) {
        return misuse("grpo", "--format: the report is JSON; other results go by their files' names");
    }
    if (q->options.correction_floor > q->options.correction_cap) {
        return misuse("grpo", "--importance-sampling-floor: %g is more than --importance-sampling-cap, %g",
                      q->options.correction_floor, q->options.correction_cap);
    }
    if (q->options.top_entropy_quantile < 1 && isfinite(q->options.entropy_threshold)) {
        return misuse("grpo", "--entropy-threshold and --top-entropy-quantile exclude each other");
    }
    const named_file own[] = {{"--losses", q->losses_path, true},
                              {"--gradients", q->gradients_path, true},
                              {"--entropy-gradients", q->entropy_gradients_path, true}};
    const int status = rl_check_files(&q->shared, own, sizeof own / sizeof *own);
    return status == STATUS_OK ? rl_check_request(&q->shared, required) : status;
}

static int parse_request(grpo_request *q, int count, char **words) {
    option_spec specs[RL_MOST_SPECS];
    make_specs(specs);
    option_scan scan = {.command = "grpo", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->shared.help) {
            return status;
        }
    }
    return check_request(q);
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

/* Checks that the numbers which an option needs are there, before the library is called. */
static int check_needs(const grpo_request *q, const rl_batch *batch) {
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
        status = needs[i].wanted ? rl_need(&q->shared, batch, needs[i].field, needs[i].option) : STATUS_OK;
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

/* Prints "{"loss": ..., ...}", one member per line. */
static void print_report(FILE *file, const grpo_request *q, const rl_batch *batch, const napier_grpo_metrics *m) {
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
    fputs("{\n  \"loss\": ", file);
    rl_print_f64(file, m->loss);
    fprintf(file, ",\n  \"loss_type\": \"%s\",\n  \"responses\": %" PRId64, loss_types[q->options.type],
            batch->responses);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        fprintf(file, ",\n  \"%s\": ", members[i].name);
        rl_print_f64(file, members[i].value);
    }
    const char *separator = "";
    fputs(",\n  \"from\": [", file);
    for (int field = 0; field < RL_FIELDS; field++) {
        if (rl_has(batch, (rl_field)field)) {
            fprintf(file, "%s\"%s\"", separator, rl_fields[field].json);
            separator = ", ";
        }
    }
    fputs("]\n}\n", file);
}

static int write_report(const grpo_request *q, const rl_batch *batch, const napier_grpo_metrics *metrics) {
    output out;
    int status = output_open(&out, q->shared.out_path);
    if (status == STATUS_OK) {
        print_report(out.file, q, batch, metrics);
        status = rl_finish(&out);
    }
    output_discard(&out);
    return status;
}

/* A vector of a number per token, if a file for it is requested. */
static napier_vector room_for(const char *path, int64_t tokens, int *status) {
    float *const values = path != NULL ? malloc(((size_t)tokens + 1) * sizeof *values) : NULL;
    if (path != NULL && values == NULL) {
        *status = complain("%s: out of memory", path);
    }
    return napier_array_f32(values, values != NULL ? tokens : 0);
}

static int write_numbers(const char *path, const rl_batch *batch, napier_vector values, int status) {
    return path != NULL && status == STATUS_OK ? rl_write_array(path, &batch->shape, values.data) : status;
}

static int compute(const grpo_request *q, napier_context *context, const rl_batch *batch) {
    int status = STATUS_OK;
    const napier_vector losses = room_for(q->losses_path, batch->tokens, &status);
    const napier_vector gradients = room_for(q->gradients_path, batch->tokens, &status);
    const napier_vector entropy_gradients = room_for(q->entropy_gradients_path, batch->tokens, &status);
    const napier_vector none = napier_array_f32(NULL, 0);
    const napier_grpo_batch b = batch_of(batch);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    if (status == STATUS_OK) {
        napier_status called = napier_grpo_loss(context, &b, &q->options, &metrics, gradients, entropy_gradients);
        if (called == NAPIER_OK && losses.data != NULL) {
            called = napier_grpo_token_loss(context, &b, &q->options, losses, none);
        }
        status = called == NAPIER_OK ? STATUS_OK : rl_library_error(&q->shared, context, called);
    }
    status = write_numbers(q->losses_path, batch, losses, status);
    status = write_numbers(q->gradients_path, batch, gradients, status);
    status = write_numbers(q->entropy_gradients_path, batch, entropy_gradients, status);
    free(losses.data);
    free(gradients.data);
    free(entropy_gradients.data);
    return status == STATUS_OK ? write_report(q, batch, &metrics) : status;
}

int grpo_command(int count, char **words) {
    grpo_request q = {.shared = {.command = "grpo"}, .options = NAPIER_GRPO_OPTIONS_INIT};
    rl_batch batch = {.wanted = fields, .required = required};
    napier_context *context = NULL;
    int status = parse_request(&q, count, words);
    if (status == STATUS_OK && q.shared.help) {
        grpo_help();
        return finish_standard_output();
    }
    if (status == STATUS_OK) {
        status = machine_open(&q.shared.machine, &context);
    }
    if (status == STATUS_OK) {
        status = rl_read(&q.shared, &batch);
    }
    if (status == STATUS_OK) {
        status = check_needs(&q, &batch);
    }
    if (status == STATUS_OK) {
        status = compute(&q, context, &batch);
    }
    rl_batch_free(&batch);
    napier_context_destroy(context);
    return status;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

void grpo_help(void) {
    puts("usage: napier grpo RESPONSES.jsonl [-o REPORT.json] [OPTIONS]\n"
         "       napier grpo --logprobs FILE --advantages FILE [--offsets FILE] [-o REPORT.json] [OPTIONS]\n"
         "\n"
         "The GRPO loss of a batch of responses and its metrics, as JSON: to check a training run.\n"
         "A line of RESPONSES (- is standard input) is a response, with a number for each token:\n"
         "\n"
         "  {\"logprobs\": [-0.5, -1.25], \"old_logprobs\": [-0.5, -1.5], \"advantage\": 0.5}\n"
         "\n"
         "  logprobs           of the policy\n"
         "  advantage          a number, or one for each token\n"
         "  old_logprobs       default: logprobs (on-policy)\n"
         "  ref_logprobs       for --beta\n"
         "  sampler_logprobs   for --importance-sampling-mode and --off-policy-mask-threshold\n"
         "                     (there old_logprobs stand in for them)\n"
         "  entropies          for --top-entropy-quantile, --entropy-threshold, --entropy-coefficient\n"
         "  mask               1 or true: the token counts (default); 0 or false: it does not");
    puts("\n"
         "The same as arrays (.npy, CSV or TSV): --logprobs, --old, --ref, --sampler, --entropies,\n"
         "--advantages, --mask FILE. In a table a row is a response; numbers in one dimension need\n"
         "      --offsets FILE         where each response begins, and the number of tokens\n"
         "\n"
         "  -o, --output FILE          where the report goes (default or -: standard output)\n"
         "      --losses FILE          the loss of each token, .npy or by the name .csv or .tsv\n"
         "      --gradients FILE       d loss / d logprobs\n"
         "      --entropy-gradients FILE   d loss / d entropies");
    puts("\n"
         "      --loss-type TYPE       grpo (default), bnpo, dr_grpo, dapo, gspo, cispo, sapo, vespo,\n"
         "                             luspo or token_mean\n"
         "      --importance-sampling-level LEVEL   of the ratio: token (default) or sequence\n"
         "      --epsilon E            the clip of the ratio below (default 0.2)\n"
         "      --epsilon-high E       and above (default: as --epsilon); of cispo the bound itself\n"
         "      --delta D              the second clip (default: none)\n"
         "      --beta B               of the KL penalty (default 0)\n"
         "      --kl-estimator NAME    k1, k2 or k3 (default); --use-bias-correction-kl: times the ratio\n"
         "      --sapo-temperature-pos T, --sapo-temperature-neg T        default 1 and 1.05\n"
         "      --vespo-k-pos K, --vespo-lambda-pos L                     default 2 and 3\n"
         "      --vespo-k-neg K, --vespo-lambda-neg L                     default 3 and 2");
    puts("      --max-completion-length N   of dr_grpo (default: the longest response)\n"
         "      --count-empty-responses     means over responses count those without tokens too, as a\n"
         "                             padded batch does (TRL); default: they are left out\n"
         "      --num-items-in-batch N      of dapo, cispo and vespo (default: the tokens that count)\n"
         "      --importance-sampling-mode MODE   none (default), token_truncate, token_mask,\n"
         "                             sequence_truncate or sequence_mask, with\n"
         "      --importance-sampling-cap C, --importance-sampling-floor F   default 3 (inf: none) and 0\n"
         "      --top-entropy-quantile Q    only this share of tokens, of the highest entropy (default 1)\n"
         "      --entropy-threshold H       instead: only tokens of entropy H or more, as where the\n"
         "                             quantile was taken over the batches of all processes\n"
         "      --entropy-coefficient C     loss - C * mean entropy (default 0)\n"
         "      --off-policy-mask-threshold T   drops responses far from the sampler (default: none)\n"
         "\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text\n"
         "\n"
         "example: napier grpo step100.jsonl --loss-type dapo --epsilon-high 0.28 --gradients grad.npy\n"
         "example: napier grpo --logprobs lp.npy --old old.npy --advantages adv.npy --mask mask.npy");
}
