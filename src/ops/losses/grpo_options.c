/* ops/losses/grpo_options.c - checks the arguments of the GRPO losses and makes a job from them. */
#include <inttypes.h>
#include <math.h>

#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/losses/grpo_run.h"

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static napier_status napier_grpo_enums(napier_context *context, const napier_grpo_options *o) {
    const struct {
        const char *name;
        int value, least, most;
    } all[] = {{"type", (int)o->type, NAPIER_GRPO, NAPIER_GRPO_TOKEN_MEAN},
               {"level", (int)o->level, NAPIER_GRPO_TOKEN, NAPIER_GRPO_SEQUENCE},
               {"kl_estimator", (int)o->kl_estimator, NAPIER_KL_K1, NAPIER_KL_K3},
               {"correction", (int)o->correction, NAPIER_GRPO_UNCORRECTED, NAPIER_GRPO_SEQUENCE_MASK}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].value < all[i].least || all[i].value > all[i].most) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: %s %d is unknown", all[i].name,
                               all[i].value);
        }
    }
    return NAPIER_OK;
}

typedef struct napier_grpo_range {
    const char *name;
    double value, least;
    bool above; /* the value must be more than `least`, not equal */
    bool infinite;
} napier_grpo_range;

static napier_status napier_grpo_check_ranges(napier_context *context, const napier_grpo_range *all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const napier_grpo_range *r = &all[i];
        const bool within = r->above ? r->value > r->least : r->value >= r->least;
        if (!within || (!r->infinite && isinf(r->value))) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: %s %g is not %s%s %g", r->name, r->value,
                               r->infinite ? "" : "finite and ", r->above ? "above" : "at least", r->least);
        }
    }
    return NAPIER_OK;
}

static napier_status napier_grpo_numbers(napier_context *context, const napier_grpo_options *o) {
    const double any = -HUGE_VAL;
    const napier_grpo_range all[] = {{"epsilon", o->epsilon, 0, false, false},
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
    const napier_status status = napier_grpo_check_ranges(context, all, sizeof all / sizeof *all);
    if (!status && o->top_entropy_quantile > 1) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: top_entropy_quantile %g is above 1",
                           o->top_entropy_quantile);
    }
    if (!status && o->top_entropy_quantile < 1 && o->entropy_threshold > -HUGE_VAL) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "options: entropy_threshold %g and top_entropy_quantile %g exclude each other",
                           o->entropy_threshold, o->top_entropy_quantile);
    }
    if (!status && o->correction_floor > o->correction_cap) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "options: correction_floor %g is above correction_cap %g",
                           o->correction_floor, o->correction_cap);
    }
    return status;
}

static napier_status napier_grpo_options_read(napier_context *context, const napier_grpo_options *options,
                                              napier_grpo_options *o) {
    *o = (napier_grpo_options)NAPIER_GRPO_OPTIONS_INIT;
    napier_status status = napier_read_options(context, "options", "NAPIER_GRPO_OPTIONS_INIT", options, o);
    if (!status)
        status = napier_grpo_enums(context, o);
    return status ? status : napier_grpo_numbers(context, o);
}

/* ---- The batch --------------------------------------------------------------------------------------------------- */

static napier_status napier_grpo_advantages(napier_context *context, napier_const_vector a, int64_t responses,
                                            int64_t tokens) {
    napier_status status = napier_check_tokens(context, "advantages", a, a.size, false);
    if (!status && a.size != responses && a.size != tokens) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "advantages: size %" PRId64 " is neither that of the responses, %" PRId64
                             ", nor of the tokens, %" PRId64,
                             a.size, responses, tokens);
    }
    return status;
}

static napier_status napier_grpo_needs(napier_context *context, const char *name, napier_const_vector v, bool needed,
                                       const char *why) {
    if (needed && !v.data) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: absent, but %s needs it", name, why);
    }
    return NAPIER_OK;
}

/* T is the size of logprobs or, from logits, `tokens`. */
static napier_status napier_grpo_batch_check(napier_context *context, const napier_grpo_batch *batch, bool logits,
                                             int64_t tokens) {
    if (logits && (batch->logprobs.data || batch->entropies.data)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: given, but they are computed from the logits",
                           batch->logprobs.data ? "logprobs" : "entropies");
    }
    napier_status status = napier_check_tokens(context, "logprobs", batch->logprobs, tokens, logits);
    if (!status)
        status = napier_check_tokens(context, "old_logprobs", batch->old_logprobs, tokens, true);
    if (!status)
        status = napier_check_tokens(context, "ref_logprobs", batch->ref_logprobs, tokens, true);
    if (!status)
        status = napier_check_tokens(context, "sampler_logprobs", batch->sampler_logprobs, tokens, true);
    if (!status)
        status = napier_check_tokens(context, "entropies", batch->entropies, tokens, true);
    if (!status)
        status = napier_check_offset_count(context, "offsets", batch->offsets);
    if (!status)
        status = napier_grpo_advantages(context, batch->advantages, batch->offsets.size - 1, tokens);
    return status;
}

/* Checks that the batch has the vectors that the options need. Without tokens nothing is missing. */
static napier_status napier_grpo_missing(napier_context *context, const napier_grpo_batch *batch,
                                         const napier_grpo_options *o, bool logits, int64_t tokens) {
    if (tokens == 0) {
        return NAPIER_OK;
    }
    const bool entropies = !logits && (napier_grpo_entropy_mask(o) || o->entropy_coefficient != 0);
    napier_status status = napier_grpo_needs(context, "ref_logprobs", batch->ref_logprobs, o->beta != 0, "beta");
    if (!status) {
        status = napier_grpo_needs(context, "sampler_logprobs", batch->sampler_logprobs,
                                   o->correction != NAPIER_GRPO_UNCORRECTED, "the correction");
    }
    if (!status) {
        status = napier_grpo_needs(context, "entropies", batch->entropies, entropies,
                                   "top_entropy_quantile, entropy_threshold or entropy_coefficient");
    }
    return status;
}

/* ---- The job ----------------------------------------------------------------------------------------------------- */

static void napier_grpo_rules(void *argument, int worker, int64_t begin, int64_t end) {
    napier_grpo_run *run = argument;
    const napier_grpo_options *o = &run->options;
    napier_grpo_job *job = &run->job;
    const double high = o->epsilon_high < 0 ? o->epsilon : o->epsilon_high;
    (void)worker, (void)begin, (void)end;
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

static unsigned napier_grpo_scans(const napier_grpo_run *run) {
    const napier_grpo_correction c = run->options.correction;
    const bool vespo = run->options.type == NAPIER_GRPO_VESPO;
    unsigned scans = run->job.sequence ? NAPIER_SCAN_RATIO : 0;
    scans |= vespo ? NAPIER_SCAN_CLAMPED : 0;
    scans |= c >= NAPIER_GRPO_SEQUENCE_TRUNCATE ? NAPIER_SCAN_MISMATCH : 0;
    scans |= vespo && (c == NAPIER_GRPO_TOKEN_TRUNCATE || c == NAPIER_GRPO_TOKEN_MASK) ? NAPIER_SCAN_CORRECTED : 0;
    scans |= run->job.off_policy ? NAPIER_SCAN_DRIFT : 0;
    return scans;
}

static void napier_grpo_count_responses(napier_grpo_run *run) {
    const napier_responses *r = &run->responses;
    for (int64_t b = 0; b < r->count; b++) {
        const int64_t size = napier_response_size(r, b);
        run->all.present += size > 0 || run->options.count_empty_responses;
        run->all.longest = size > run->all.longest ? size : run->all.longest;
    }
    run->all.counted = napier_count_mask(run->job.mask, 0, r->tokens);
}

static void napier_grpo_job_of(const napier_grpo_batch *batch, napier_grpo_run *run) {
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
    job->sequence = o->level == NAPIER_GRPO_SEQUENCE || o->type == NAPIER_GRPO_GSPO;
    job->type = o->type;
    job->estimator = o->type == NAPIER_GRPO_TOKEN_MEAN ? NAPIER_KL_K1 : o->kl_estimator;
    job->bias_correction = o->type != NAPIER_GRPO_TOKEN_MEAN && o->kl_bias_correction;
    job->correction = o->correction;
    job->off_policy = o->off_policy_threshold < HUGE_VAL;
    job->entropy_mask = napier_grpo_entropy_mask(o);
}

napier_status napier_grpo_read_views(napier_context *context, const napier_grpo_batch *batch,
                                     const napier_grpo_options *options, bool logits, int64_t tokens,
                                     napier_grpo_run *run) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    *run = (napier_grpo_run){.kernels = &napier_ops_kernels_of(context->isa)->grpo};
    napier_status status = napier_grpo_options_read(context, options, &run->options);
    if (!status)
        status = napier_read_struct(context, "batch", "NAPIER_GRPO_BATCH_INIT", batch, &b);
    const int64_t size = logits ? tokens : b.logprobs.size;
    if (!status)
        status = napier_grpo_batch_check(context, &b, logits, size);
    if (!status) {
        run->responses = (napier_responses){b.offsets, b.offsets.size - 1, size};
        status = napier_grpo_missing(context, &b, &run->options, logits, size);
    }
    if (!status) {
        napier_grpo_job_of(&b, run);
        run->scans = napier_grpo_scans(run);
        napier_run_once(napier_grpo_rules, run);
    }
    return status;
}

napier_status napier_grpo_read(napier_context *context, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, bool logits, int64_t tokens, napier_grpo_run *run) {
    napier_status status = napier_grpo_read_views(context, batch, options, logits, tokens, run);
    if (!status)
        status = napier_check_offsets(context, run->responses.offsets, run->responses.tokens);
    if (!status) {
        napier_grpo_count_responses(run);
        napier_run_once(napier_grpo_rules, run);
    }
    return status;
}

napier_status napier_grpo_check_out(napier_context *context, const char *name, napier_vector out,
                                    const napier_grpo_run *run) {
    const napier_grpo_job *job = &run->job;
    const struct {
        const char *name;
        napier_const_vector v;
    } in[] = {{"logprobs", job->logprobs},
              {"old_logprobs", job->old},
              {"ref_logprobs", job->ref},
              {"sampler_logprobs", job->sampler},
              {"entropies", job->entropies}};
    napier_status status = napier_check_tokens_out(context, name, out, run->responses.tokens, true);
    for (size_t i = 0; !status && i < sizeof in / sizeof *in; i++) {
        status = napier_check_apart(context, name, out, in[i].name, in[i].v);
    }
    if (!status)
        status = napier_check_apart(context, name, out, "advantages", job->advantages);
    if (!status)
        status = napier_check_apart(context, name, out, "offsets", napier_indices_bytes(run->responses.offsets));
    return status;
}
