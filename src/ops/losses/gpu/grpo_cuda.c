/* ops/losses/gpu/grpo_cuda.c - GRPO losses from log-probabilities on a GPU: checks, workspace, launches. */
#include <napier/cuda/rl.h>

#include "core/base/view.h"
#include "ops/losses/gpu/grpo_cuda.h"
#include "ops/tokens/gpu/responses_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_quantile_count, napier_quantile_choose, napier_quantile_next,
                           napier_quantile_place_it, napier_grpo_scan_tiles, napier_grpo_prepare_responses,
                           napier_grpo_loss_tiles, napier_grpo_flows, napier_grpo_add_responses,
                           napier_grpo_finish_batch, napier_grpo_entropy_gradients);

napier_cuda_grpo_job napier_cuda_grpo_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_grpo_run *run) {
    const napier_responses *r = &run->responses;
    napier_cuda_grpo_job job = {.grpo = run->job, .options = run->options, .scans = run->scans, .mean = run->mean};
    job.responses = napier_cuda_responses_of(context, room, r->offsets, r->tokens, run->job.mask);
    job.responses.count_empty = run->options.count_empty_responses;
    const int64_t count = job.responses.count, slots = job.responses.slots;
    const bool scan = run->scans || run->job.mask, quantile = run->options.top_entropy_quantile < 1;
    job.state = napier_cuda_take(room, 1, sizeof *job.state);
    job.response = napier_cuda_take(room, count, sizeof *job.response);
    job.sums = napier_cuda_take(room, run->totals ? slots : 0, sizeof *job.sums);
    job.scan = napier_cuda_take(room, scan ? slots : 0, sizeof *job.scan);
    job.totals = napier_cuda_take(room, run->totals ? count : 0, NAPIER_RESPONSE_SUMS * sizeof *job.totals);
    job.counts = napier_cuda_take(room, quantile ? NAPIER_KEY_DIGITS : 0, sizeof *job.counts);
    job.sums = run->totals ? job.sums : NULL;
    job.scan = scan ? job.scan : NULL;
    return job;
}

/* ---- Prepare ----------------------------------------------------------------------------------------------------- */

static napier_cuda_shape quantile_loop(const napier_cuda_call *gpu, const napier_cuda_quantile_job *q) {
    return napier_cuda_loop(gpu, q->values.size, 4 * NAPIER_QUANTILE_THREADS, 4, NAPIER_QUANTILE_THREADS);
}

static napier_status quantile_digit(const napier_cuda_call *gpu, const napier_cuda_quantile_job *q) {
    napier_cuda_shape shape = quantile_loop(gpu, q);
    shape.shared_bytes = NAPIER_KEY_DIGITS * (int64_t)sizeof(int32_t);
    NAPIER_TRY(NAPIER_CUDA_PUT(gpu, napier_quantile_count, shape, q));
    shape.blocks = 1;
    shape.shared_bytes = NAPIER_QUANTILE_THREADS * (int64_t)sizeof(int64_t);
    return NAPIER_CUDA_PUT(gpu, napier_quantile_choose, shape, q);
}

static napier_status napier_cuda_quantile(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job) {
    napier_cuda_quantile_job q = {.values = job->grpo.entropies,
                                  .mask = job->grpo.mask,
                                  .quantile = 1.0 - job->options.top_entropy_quantile,
                                  .counts = job->counts,
                                  .state = job->state,
                                  .tally = job->responses.tally};
    NAPIER_TRY(napier_cuda_clear(gpu, job->counts, NAPIER_KEY_DIGITS * sizeof *job->counts));
    for (q.shift = 2 * NAPIER_KEY_DIGIT; q.shift >= 0; q.shift -= NAPIER_KEY_DIGIT) {
        NAPIER_TRY(quantile_digit(gpu, &q));
    }
    const napier_cuda_shape one_warp = {.blocks = 1, .threads = 32};
    NAPIER_TRY(NAPIER_CUDA_PUT(gpu, napier_quantile_next, quantile_loop(gpu, &q), &q));
    return NAPIER_CUDA_PUT(gpu, napier_quantile_place_it, one_warp, &q);
}

napier_status napier_cuda_grpo_prepare(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job) {
    NAPIER_TRY(napier_cuda_clear(gpu, job->state, sizeof *job->state));
    NAPIER_TRY(napier_cuda_responses_look(gpu, &job->responses));
    if (job->scan) {
        NAPIER_TRY(NAPIER_CUDA_WARPS(gpu, napier_grpo_scan_tiles, job->responses.slots, job));
    }
    if (job->options.top_entropy_quantile < 1 && job->responses.tokens > 0) {
        NAPIER_TRY(napier_cuda_quantile(gpu, job));
    }
    return NAPIER_CUDA_WARPS(gpu, napier_grpo_prepare_responses, job->responses.count, job);
}

/* ---- Tiles to the end -------------------------------------------------------------------------------------------- */

napier_status napier_cuda_grpo_tiles(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job) {
    return NAPIER_CUDA_WARPS(gpu, napier_grpo_loss_tiles, job->responses.slots, job);
}

napier_status napier_cuda_grpo_finish(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job) {
    const napier_cuda_shape shape = {.blocks = 1,
                                     .threads = NAPIER_RESPONSE_SUMS * 32,
                                     .shared_bytes = NAPIER_RESPONSE_SUMS * (int64_t)sizeof(double)};
    NAPIER_TRY(NAPIER_CUDA_WARPS(gpu, napier_grpo_add_responses, job->responses.count, job));
    return NAPIER_CUDA_PUT(gpu, napier_grpo_finish_batch, shape, job);
}

napier_status napier_cuda_grpo_all(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job) {
    const napier_vector none = {NULL, 0, 0, NAPIER_F32};
    const bool twice = job->grpo.sequence && job->grpo.grad_logprobs.data;
    napier_cuda_grpo_job first = *job, second = *job;
    NAPIER_TRY(napier_cuda_grpo_prepare(gpu, job));
    if (twice) {
        first.grpo.grad_logprobs = none;
        second.grpo.losses = none;
        second.sums = NULL;
    }
    NAPIER_TRY(napier_cuda_grpo_tiles(gpu, &first));
    if (twice) {
        NAPIER_TRY(NAPIER_CUDA_WARPS(gpu, napier_grpo_flows, job->responses.count, job));
        NAPIER_TRY(napier_cuda_grpo_tiles(gpu, &second));
    }
    if (job->metrics) {
        NAPIER_TRY(napier_cuda_grpo_finish(gpu, job));
    }
    if (job->grpo.grad_entropies.data) {
        NAPIER_TRY(NAPIER_CUDA_PUT(
            gpu, napier_grpo_entropy_gradients,
            napier_cuda_loop(gpu, job->responses.tokens, NAPIER_RESPONSE_THREADS, 8, NAPIER_RESPONSE_THREADS), job));
    }
    return NAPIER_OK;
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

static napier_status of_tokens(napier_cuda_call gpu, napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, const napier_grpo_outputs *out) {
    napier_grpo_run run;
    NAPIER_TRY(napier_cuda_begin(gpu.context));
    NAPIER_TRY(napier_grpo_read(gpu.context->host, NAPIER_ON_DEVICE, batch, options, out, &run));
    run.totals = run.job.sequence && out->grad_logprobs.data;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_grpo_job job = napier_cuda_grpo_of(gpu.context, &room, &run);
    NAPIER_CUDA_READY(gpu.context, room);
    return napier_cuda_grpo_all(&gpu, &job);
}

napier_status napier_cuda_grpo_token_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                          const napier_grpo_options *options, napier_vector losses,
                                          napier_vector grad_logprobs) {
    const napier_grpo_outputs out = {.losses = losses, .grad_logprobs = grad_logprobs};
    return of_tokens((napier_cuda_call){context, stream, "grpo_token_loss"}, workspace, batch, options, &out);
}

napier_status napier_cuda_grpo_token_loss_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                                   const napier_grpo_options *options, napier_const_vector grad_losses,
                                                   napier_vector grad_logprobs) {
    const napier_grpo_outputs out = {.grad_logprobs = grad_logprobs, .grad_losses = grad_losses};
    return of_tokens((napier_cuda_call){context, stream, "grpo_token_loss_backward"}, workspace, batch, options, &out);
}

napier_status napier_cuda_grpo_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                    const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                    napier_vector grad_logprobs, napier_vector grad_entropies) {
    const napier_grpo_outputs out = {.grad_logprobs = grad_logprobs, .grad_entropies = grad_entropies};
    napier_grpo_run run;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_REFUSE_IF(context->host, !metrics, "metrics: NULL");
    NAPIER_TRY(napier_grpo_read(context->host, NAPIER_ON_DEVICE, batch, options, &out, &run));
    run.mean = run.totals = true;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_grpo_job job = napier_cuda_grpo_of(context, &room, &run);
    job.metrics = metrics;
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "grpo_loss"};
    return napier_cuda_grpo_all(&gpu, &job);
}
