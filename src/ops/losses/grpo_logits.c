/* ops/losses/grpo_logits.c - GRPO losses directly from logits, with the gradient of the logits.
 *
 * If a token's gradient depends only on its own log-probability, its row is read, a hook computes its gradient, and the
 * row's gradient is written while the row is in a cache: one read from memory and one write. Otherwise (a ratio of the
 * sequence, a quantile of entropy, a bonus for tokens chosen by entropy) all rows are scored first and read a second
 * time. The bits are those of the three calls one after the other. */
#include "core/base/parallel.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/losses/grpo_logits.h"
#include "ops/tokens/token_backward.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

typedef struct napier_grpo_view {
    const char *name;
    napier_const_matrix view;
} napier_grpo_view;

static napier_status napier_grpo_apart(napier_context *context, napier_grpo_view out, napier_grpo_view in) {
    const napier_const_matrix a = out.view, b = in.view;
    const napier_matrix written = {(void *)(uintptr_t)a.data, a.rows, a.cols, a.row_stride, a.col_stride, a.dtype};
    if (!a.data || !b.data || a.rows == 0 || a.cols == 0 || b.rows == 0 || b.cols == 0) {
        return NAPIER_OK;
    }
    if (a.data == b.data) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: starts where %s does", out.name, in.name);
    }
    return napier_check_alias(context, out.name, written, in.name, b);
}

/* Only grad_logits may be in place of logits; the backward call checks that. */
static napier_status napier_grpo_logits_apart(napier_context *context, const napier_grpo_logits *g) {
    enum { OUTPUTS = 3, ALL = 11 };
    const napier_grpo_job *job = &g->run.job;
    const napier_grpo_view all[ALL] = {
        {"grad_logits", napier_read_only(g->grad_logits)},
        {"logprobs", napier_vector_row(napier_read_only_vector(g->logprobs))},
        {"entropies", napier_vector_row(napier_read_only_vector(g->entropies))},
        {"old_logprobs", napier_vector_row(job->old)},
        {"ref_logprobs", napier_vector_row(job->ref)},
        {"sampler_logprobs", napier_vector_row(job->sampler)},
        {"advantages", napier_vector_row(job->advantages)},
        {"offsets", napier_vector_row(napier_indices_bytes(g->run.responses.offsets))},
        {"ids", napier_vector_row(napier_indices_bytes(g->ids))},
        {"logits", g->logits},
    };
    napier_status status = NAPIER_OK;
    for (int out = 0; out < OUTPUTS; out++) {
        for (int in = out + 1; in < ALL && all[in].name && !status; in++) {
            if (out > 0 || all[in].view.data != g->logits.data) {
                status = napier_grpo_apart(context, all[out], all[in]);
            }
        }
    }
    return status;
}

napier_status napier_grpo_logits_check(napier_context *context, napier_place place, napier_grpo_logits *g,
                                       const napier_grpo_batch *batch, const napier_grpo_options *options) {
    napier_status status = napier_check_matrix(context, "logits", g->logits);
    if (!status)
        status = napier_check_not_f64(context, "logits", g->logits.dtype);
    if (!status)
        status = napier_check_indices(context, "ids", g->ids);
    if (!status)
        status = napier_check_length(context, "ids", g->ids.size, g->logits.rows);
    if (!status)
        status = (place == NAPIER_ON_HOST ? napier_grpo_read : napier_grpo_read_views)(context, batch, options, true,
                                                                                       g->logits.rows, &g->run);
    if (!status && g->grad_logits.data)
        status = napier_check_matrix_out(context, "grad_logits", g->grad_logits);
    if (!status)
        status = napier_check_tokens_out(context, "logprobs", g->logprobs, g->logits.rows, true);
    if (!status)
        status = napier_check_tokens_out(context, "entropies", g->entropies, g->logits.rows, true);
    if (!status)
        status = napier_grpo_logits_apart(context, g);
    return status;
}

/* ---- One read ---------------------------------------------------------------------------------------------------- */

/* The hook: computes the loss of a row's token as a tile of one. */
static void napier_grpo_row(void *argument, int64_t row, float logprob, float entropy, double *grad_logprob,
                            double *grad_entropy) {
    const napier_grpo_logits *g = argument;
    const napier_grpo_run *run = &g->run;
    const int64_t b = napier_response_at(&run->responses, row);
    g->logprob[row] = logprob;
    g->entropy[row] = entropy;
    run->kernels->tile(&run->job, &run->response[b], b, row, 1, NULL);
    *grad_logprob = (double)g->grad_logprob[row];
    *grad_entropy = !run->job.mask || run->job.mask[row] ? (double)run->job.entropy_gradient : 0.0;
}

static napier_status napier_grpo_one_read(napier_context *context, napier_grpo_logits *g) {
    const napier_token_hook hook = {napier_grpo_row, g};
    const napier_vector none = {NULL, 0, 0, NAPIER_F32};
    napier_grpo_run *run = &g->run;
    napier_status status = napier_grpo_alloc(context, run);
    if (status) {
        return status;
    }
    napier_grpo_prepare(context, run);
    run->job.grad_logprobs = napier_array_f32(g->grad_logprob, g->logits.rows);
    status = napier_token_backward_hooked(context, g->logits, g->ids, g->options, &hook, g->grad_logits);
    if (status) {
        return status;
    }
    run->job.grad_logprobs = none;
    napier_grpo_tiles(context, run);
    napier_grpo_finish(run);
    return NAPIER_OK;
}

/* ---- Two reads --------------------------------------------------------------------------------------------------- */

static napier_status napier_grpo_score(napier_context *context, const napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(g->logprob, tokens, 1);
    results.entropy = napier_array_f32(g->entropy, tokens);
    return napier_token_logprobs(context, g->logits, g->ids, g->options, &results);
}

static napier_status napier_grpo_two_reads(napier_context *context, napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    napier_grpo_run *run = &g->run;
    napier_status status = napier_grpo_score(context, g);
    if (!status && g->grad_logits.data) {
        run->job.grad_logprobs = napier_array_f32(g->grad_logprob, tokens);
        run->job.grad_entropies = napier_array_f32(g->grad_entropy, tokens);
    }
    if (!status)
        status = napier_grpo_all(context, run);
    if (status || !g->grad_logits.data) {
        return status;
    }
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(g->grad_logprob, tokens, 1);
    if (run->options.entropy_coefficient != 0) {
        gradients.entropy = napier_const_array_f32(g->grad_entropy, tokens);
    }
    return napier_token_logprobs_backward(context, g->logits, g->ids, g->options, &gradients, g->grad_logits);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static void napier_grpo_copy_out(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_logits *g = argument;
    const napier_vector *l = &g->logprobs, *e = &g->entropies;
    (void)worker;
    for (int64_t t = begin; t < end; t++) {
        if (l->data) {
            napier_f64_store(l->data, l->dtype, t * l->stride, (double)g->logprob[t]);
        }
        if (e->data) {
            napier_f64_store(e->data, e->dtype, t * e->stride, (double)g->entropy[t]);
        }
    }
}

static napier_status napier_grpo_logits_run(napier_context *context, napier_grpo_logits *g) {
    const int64_t tokens = g->logits.rows;
    g->logprob = g->room;
    g->entropy = g->logprob + tokens;
    g->grad_logprob = g->entropy + tokens;
    g->grad_entropy = g->grad_logprob + tokens;
    g->run.mean = g->run.totals = true;
    g->run.job.logprobs = napier_const_array_f32(g->logprob, tokens);
    g->run.job.entropies = napier_const_array_f32(g->entropy, tokens);
    const bool once = g->grad_logits.data && !napier_grpo_looks_ahead(&g->run);
    const napier_status status = once ? napier_grpo_one_read(context, g) : napier_grpo_two_reads(context, g);
    if (!status) {
        napier_parallel(context, tokens, 1 << 14, napier_grpo_copy_out, g);
    }
    napier_grpo_free(context, &g->run);
    return status;
}

napier_status napier_grpo_from_logits(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                      const napier_grpo_batch *batch, const napier_grpo_options *options,
                                      const napier_token_options *token_options, napier_grpo_metrics *metrics,
                                      napier_matrix grad_logits, napier_vector logprobs, napier_vector entropies) {
    napier_grpo_logits g = {.logits = logits,
                            .ids = ids,
                            .options = token_options,
                            .grad_logits = grad_logits,
                            .logprobs = logprobs,
                            .entropies = entropies};
    napier_status status = napier_begin(context);
    if (!status)
        status = napier_check_result_struct(context, "metrics", "NAPIER_GRPO_METRICS_INIT", metrics);
    if (!status)
        status = napier_grpo_logits_check(context, NAPIER_ON_HOST, &g, batch, options);
    if (status) {
        return status;
    }
    g.room = napier_alloc(&context->allocator, (size_t)logits.rows + 1, 4 * sizeof(float));
    if (!g.room) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "logprobs: no memory for %lld tokens",
                           (long long)logits.rows);
    }
    status = napier_grpo_logits_run(context, &g);
    if (!status) {
        napier_write_struct(&g.run.metrics, metrics);
    }
    napier_free(&context->allocator, g.room);
    return status;
}
