/* ops/losses/grpo_options.c - checks the arguments of the GRPO losses and makes a job from them. */
#include <inttypes.h>
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "core/math/f64.h"
#include "ops/losses/grpo_logits.h"

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static napier_status check_enums(napier_context *context, const napier_grpo_options *o) {
    const struct {
        const char *name;
        int value, least, most;
    } all[] = {{"type", (int)o->type, NAPIER_GRPO, NAPIER_GRPO_TOKEN_MEAN},
               {"level", (int)o->level, NAPIER_GRPO_LEVEL_TOKEN, NAPIER_GRPO_LEVEL_SEQUENCE},
               {"kl_estimator", (int)o->kl_estimator, NAPIER_KL_K1, NAPIER_KL_K3},
               {"correction", (int)o->correction, NAPIER_GRPO_UNCORRECTED, NAPIER_GRPO_SEQUENCE_MASK}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        NAPIER_REFUSE_IF(context, all[i].value < all[i].least || all[i].value > all[i].most,
                         "options: %s %d is unknown", all[i].name, all[i].value);
    }
    return NAPIER_OK;
}

typedef struct range {
    const char *name;
    double value, least;
    bool above; /* the value must be more than `least`, not equal */
    bool infinite;
} range;

static napier_status check_ranges(napier_context *context, const range *all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const range *r = &all[i];
        const bool within = r->above ? r->value > r->least : r->value >= r->least;
        NAPIER_REFUSE_IF(context, !within || (!r->infinite && isinf(r->value)), "options: %s %g is not %s%s %g",
                         r->name, r->value, r->infinite ? "" : "finite and ", r->above ? "above" : "at least",
                         r->least);
    }
    return NAPIER_OK;
}

static napier_status check_numbers(napier_context *context, const napier_grpo_options *o) {
    const double any = -HUGE_VAL;
    const range all[] = {{"epsilon", o->epsilon, 0, false, false},
                         {"epsilon_high", o->epsilon_high, any, false, false},
                         {"delta", o->delta, 0, false, true},
                         {"beta", o->beta, any, false, false},
                         {"sapo_tau_positive", o->sapo_tau_positive, 0, true, false},
                         {"sapo_tau_negative", o->sapo_tau_negative, 0, true, false},
                         {"vespo_k_positive", o->vespo_k_positive, any, false, false},
                         {"vespo_k_negative", o->vespo_k_negative, any, false, false},
                         {"vespo_lambda_positive", o->vespo_lambda_positive, any, false, false},
                         {"vespo_lambda_negative", o->vespo_lambda_negative, any, false, false},
                         {"max_completion_length", (double)o->max_completion_length, 0, false, false},
                         {"num_items", o->num_items, 0, false, false},
                         {"correction_cap", o->correction_cap, 0, true, true},
                         {"correction_floor", o->correction_floor, 0, false, false},
                         {"top_entropy_quantile", o->top_entropy_quantile, 0, true, false},
                         {"entropy_coefficient", o->entropy_coefficient, any, false, false},
                         {"off_policy_threshold", o->off_policy_threshold, any, false, true},
                         {"entropy_threshold", o->entropy_threshold, any, false, true}};
    NAPIER_TRY(check_ranges(context, all, sizeof all / sizeof *all));
    NAPIER_REFUSE_IF(context, o->top_entropy_quantile > 1, "options: top_entropy_quantile %g is above 1",
                     o->top_entropy_quantile);
    NAPIER_REFUSE_IF(context, o->top_entropy_quantile < 1 && o->entropy_threshold > -HUGE_VAL,
                     "options: entropy_threshold %g and top_entropy_quantile %g exclude each other",
                     o->entropy_threshold, o->top_entropy_quantile);
    NAPIER_REFUSE_IF(context, o->correction_floor > o->correction_cap,
                     "options: correction_floor %g is above correction_cap %g", o->correction_floor, o->correction_cap);
    return NAPIER_OK;
}

static napier_status read_options(napier_context *context, const napier_grpo_options *options, napier_grpo_options *o) {
    *o = (napier_grpo_options)NAPIER_GRPO_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_grpo_options, NAPIER_GRPO_OPTIONS_INIT, entropy_threshold),
                                   options, o));
    NAPIER_TRY(check_enums(context, o));
    return check_numbers(context, o);
}

/* ---- The batch --------------------------------------------------------------------------------------------------- */

/* Checks the batch, and with it the call's other arguments. T is the size of logprobs or, from logits, `tokens`. */
static napier_status check_batch(napier_context *context, napier_place place, const napier_grpo_batch *batch,
                                 bool logits, int64_t tokens, const napier_argument *others, size_t count) {
    enum { INPUTS = 7, OTHERS_MOST = 7 };
    const int64_t responses = napier_offset_lists(batch->offsets), advantages = batch->advantages.size;
    const unsigned is = NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    napier_argument all[INPUTS + OTHERS_MOST] = {
        napier_row_argument("logprobs", batch->logprobs, logits ? is : NAPIER_IS_NARROW, tokens),
        napier_row_argument("old_logprobs", batch->old_logprobs, is, tokens),
        napier_row_argument("ref_logprobs", batch->ref_logprobs, is, tokens),
        napier_row_argument("sampler_logprobs", batch->sampler_logprobs, is, tokens),
        napier_row_argument("entropies", batch->entropies, is, tokens),
        napier_row_argument("advantages", batch->advantages, NAPIER_IS_NARROW, advantages),
        napier_row_argument("offsets", napier_indices_bytes(batch->offsets), 0, batch->offsets.size)};
    for (size_t i = 0; i < count; i++) {
        all[INPUTS + i] = others[i];
    }
    NAPIER_REFUSE_IF(context, logits && (batch->logprobs.data || batch->entropies.data),
                     "%s: given, but they are computed from the logits",
                     batch->logprobs.data ? "logprobs" : "entropies");
    NAPIER_TRY(napier_check_offset_count(context, "offsets", batch->offsets));
    NAPIER_TRY(napier_check_arguments(context, all, INPUTS + count));
    NAPIER_REFUSE_IF(context, advantages != responses && advantages != tokens,
                     "advantages: size %" PRId64 " is neither that of the responses, %" PRId64
                     ", nor of the tokens, %" PRId64,
                     advantages, responses, tokens);
    return napier_check_offsets_on(context, place, batch->offsets, tokens);
}

/* Checks that the batch has the vectors that the options need. Without tokens nothing is missing. */
static napier_status check_missing(napier_context *context, const napier_grpo_batch *batch,
                                   const napier_grpo_options *o, bool logits, int64_t tokens) {
    if (tokens == 0) {
        return NAPIER_OK;
    }
    const bool entropies = !logits && (napier_grpo_entropy_mask(o) || o->entropy_coefficient != 0);
    NAPIER_REFUSE_IF(context, o->beta != 0 && !batch->ref_logprobs.data, "ref_logprobs: absent, but beta needs it");
    NAPIER_REFUSE_IF(context, o->correction != NAPIER_GRPO_UNCORRECTED && !batch->sampler_logprobs.data,
                     "sampler_logprobs: absent, but the correction needs it");
    NAPIER_REFUSE_IF(context, entropies && !batch->entropies.data,
                     "entropies: absent, but top_entropy_quantile, entropy_threshold or entropy_coefficient needs it");
    return NAPIER_OK;
}

/* ---- The job ----------------------------------------------------------------------------------------------------- */

static void make_rules(void *argument) {
    napier_grpo_run *run = argument;
    const napier_grpo_options *o = &run->options;
    napier_grpo_job *job = &run->job;
    const double high = o->epsilon_high < 0 ? o->epsilon : o->epsilon_high;
    job->low = (float)(1.0 - o->epsilon);
    job->high = (float)(1.0 + high);
    job->bound = (float)high;
    job->delta = o->delta > 0 ? (float)o->delta : INFINITY;
    job->tau[0] = (float)o->sapo_tau_positive;
    job->tau[1] = (float)o->sapo_tau_negative;
    job->cap = (float)o->correction_cap;
    job->floor = (float)o->correction_floor;
    job->log_cap = (float)napier_f64_log(o->correction_cap);
    job->entropy_threshold = (float)o->entropy_threshold;
    job->log_floor = (float)napier_f64_log(o->correction_floor);
    job->beta = napier_grpo_beta(o, &run->all);
}

static unsigned scans_of(const napier_grpo_run *run) {
    const napier_grpo_correction c = run->options.correction;
    const bool vespo = run->options.type == NAPIER_GRPO_VESPO;
    unsigned scans = run->job.sequence ? NAPIER_SCAN_RATIO : 0;
    scans |= vespo ? NAPIER_SCAN_CLAMPED : 0;
    scans |= c >= NAPIER_GRPO_SEQUENCE_TRUNCATE ? NAPIER_SCAN_MISMATCH : 0;
    scans |= vespo && (c == NAPIER_GRPO_TOKEN_TRUNCATE || c == NAPIER_GRPO_TOKEN_MASK) ? NAPIER_SCAN_CORRECTED : 0;
    scans |= run->job.off_policy ? NAPIER_SCAN_DRIFT : 0;
    return scans;
}

static void count_responses(napier_grpo_run *run) {
    const napier_responses *r = &run->responses;
    for (int64_t b = 0; b < r->count; b++) {
        const int64_t size = napier_response_size(r, b);
        run->all.present += size > 0 || run->options.count_empty_responses;
        run->all.longest = size > run->all.longest ? size : run->all.longest;
    }
    run->all.counted = napier_count_mask(run->job.mask, 0, r->tokens);
}

static void make_job(const napier_grpo_batch *batch, napier_grpo_run *run) {
    const napier_grpo_options *o = &run->options;
    napier_grpo_job *job = &run->job;
    job->logprobs = batch->logprobs;
    job->old = batch->old_logprobs;
    job->ref = batch->ref_logprobs;
    job->sampler = batch->sampler_logprobs;
    job->entropies = batch->entropies;
    job->advantages = batch->advantages;
    job->token_advantages = batch->advantages.size != run->responses.count;
    job->mask = batch->mask;
    job->sequence = o->level == NAPIER_GRPO_LEVEL_SEQUENCE || o->type == NAPIER_GRPO_GSPO;
    job->type = o->type;
    job->estimator = o->type == NAPIER_GRPO_TOKEN_MEAN ? NAPIER_KL_K1 : o->kl_estimator;
    job->bias_correction = o->type != NAPIER_GRPO_TOKEN_MEAN && o->kl_bias_correction;
    job->correction = o->correction;
    job->off_policy = o->off_policy_threshold < HUGE_VAL;
    job->entropy_mask = napier_grpo_entropy_mask(o);
}

static napier_status read_structs(napier_context *context, const napier_grpo_batch *batch,
                                  const napier_grpo_options *options, napier_grpo_batch *b, napier_grpo_run *run) {
    *b = (napier_grpo_batch)NAPIER_GRPO_BATCH_INIT;
    *run = (napier_grpo_run){.kernels = napier_ops_kernels_of(context->isa)->grpo};
    NAPIER_TRY(read_options(context, options, &run->options));
    return napier_read_struct(context, "batch", NAPIER_STRUCT(napier_grpo_batch, NAPIER_GRPO_BATCH_INIT, offsets),
                              batch, b);
}

/* Checks what has been read, and makes the job. On a GPU run->all stays 0: its kernels read the offsets. */
static napier_status read_batch(napier_context *context, napier_place place, const napier_grpo_batch *b, bool logits,
                                int64_t tokens, const napier_argument *others, size_t count, napier_grpo_run *run) {
    NAPIER_TRY(check_batch(context, place, b, logits, tokens, others, count));
    NAPIER_TRY(check_missing(context, b, &run->options, logits, tokens));
    run->responses = (napier_responses){b->offsets, b->offsets.size - 1, tokens};
    make_job(b, run);
    run->scans = scans_of(run);
    if (place == NAPIER_ON_HOST) {
        count_responses(run);
    }
    napier_run_once(make_rules, run);
    return NAPIER_OK;
}

napier_status napier_grpo_read(napier_context *context, napier_place place, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, const napier_grpo_outputs *out,
                               napier_grpo_run *run) {
    napier_grpo_batch b;
    NAPIER_TRY(read_structs(context, batch, options, &b, run));
    const int64_t tokens = b.logprobs.size;
    const unsigned is = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument others[] = {
        napier_row_argument("losses", napier_read_only_vector(out->losses), is, tokens),
        napier_row_argument("grad_logprobs", napier_read_only_vector(out->grad_logprobs), is, tokens),
        napier_row_argument("grad_entropies", napier_read_only_vector(out->grad_entropies), is, tokens),
        napier_row_argument("grad_losses", out->grad_losses, NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT, tokens)};
    NAPIER_TRY(read_batch(context, place, &b, false, tokens, others, sizeof others / sizeof *others, run));
    run->job.losses = out->losses;
    run->job.grad_logprobs = out->grad_logprobs;
    run->job.grad_entropies = out->grad_entropies;
    run->job.grad_losses = out->grad_losses;
    return NAPIER_OK;
}

napier_status napier_grpo_logits_check(napier_context *context, napier_place place, napier_grpo_logits *g,
                                       const napier_grpo_batch *batch, const napier_grpo_options *options) {
    const int64_t tokens = g->logits.rows, cols = g->logits.cols, words = g->weights.rows;
    const char *const rows = g->from_hidden ? "hidden" : "logits";
    const unsigned absent = g->from_hidden ? 0 : NAPIER_MAY_BE_ABSENT;
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW | NAPIER_MAY_BE_ABSENT;
    const napier_argument others[] = {
        NAPIER_ARGUMENT(rows, g->logits, NAPIER_IS_NARROW | (g->from_hidden ? 0 : NAPIER_MAY_BE_OUT), tokens, cols,
                        NULL),
        napier_row_argument("ids", napier_indices_bytes(g->ids), 0, tokens),
        NAPIER_ARGUMENT(g->from_hidden ? "grad_hidden" : "grad_logits", napier_read_only(g->grad_logits), out, tokens,
                        cols, rows),
        NAPIER_ARGUMENT("weights", g->weights, NAPIER_IS_NARROW | absent, words, cols, NULL),
        NAPIER_ARGUMENT("grad_weights", napier_read_only(g->grad_weights), out, words, cols, "weights"),
        napier_row_argument("logprobs", napier_read_only_vector(g->logprobs), out, tokens),
        napier_row_argument("entropies", napier_read_only_vector(g->entropies), out, tokens)};
    napier_grpo_batch b;
    NAPIER_TRY(read_structs(context, batch, options, &b, &g->run));
    NAPIER_TRY(napier_check_indices(context, "ids", g->ids));
    return read_batch(context, place, &b, true, tokens, others, sizeof others / sizeof *others, &g->run);
}
