/* ops/losses/gpu/grpo_cuda.c - GRPO losses from log-probabilities on a GPU: checks, workspace, launches. */
#include <napier/cuda/rl.h>

#include "core/base/view.h"
#include "ops/losses/gpu/grpo_launch.h"
#include "ops/tokens/gpu/responses_launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_quantile_count);
NAPIER_CUDA_KERNEL_DECLARE(napier_quantile_choose);
NAPIER_CUDA_KERNEL_DECLARE(napier_quantile_next);
NAPIER_CUDA_KERNEL_DECLARE(napier_quantile_place_it);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_scan_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_prepare_responses);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_loss_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_flows);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_add_responses);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_finish_batch);
NAPIER_CUDA_KERNEL_DECLARE(napier_grpo_entropy_gradients);

static const char what[] = "grpo";

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

static napier_status napier_cuda_quantile_digit(napier_cuda_context *context, struct CUstream_st *stream,
                                                const napier_cuda_quantile_job *q) {
    napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, q->values.size, 4 * NAPIER_QUANTILE_THREADS, 4),
                               .threads = NAPIER_QUANTILE_THREADS,
                               .shared_bytes = NAPIER_KEY_DIGITS * (int64_t)sizeof(int32_t)};
    napier_status status =
        napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_quantile_count), &shape, q, sizeof *q);
    shape.blocks = 1;
    shape.shared_bytes = NAPIER_QUANTILE_THREADS * (int64_t)sizeof(int64_t);
    if (!status) {
        status =
            napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_quantile_choose), &shape, q, sizeof *q);
    }
    return status;
}

static napier_status napier_cuda_quantile(napier_cuda_context *context, struct CUstream_st *stream,
                                          const napier_cuda_grpo_job *job) {
    napier_cuda_quantile_job q = {.values = job->grpo.entropies,
                                  .mask = job->grpo.mask,
                                  .quantile = 1.0 - job->options.top_entropy_quantile,
                                  .counts = job->counts,
                                  .state = job->state,
                                  .tally = job->responses.tally};
    napier_status status = napier_cuda_fill(context, stream, job->counts, 0, NAPIER_KEY_DIGITS * sizeof *job->counts);
    for (q.shift = 2 * NAPIER_KEY_DIGIT; q.shift >= 0 && !status; q.shift -= NAPIER_KEY_DIGIT) {
        status = napier_cuda_quantile_digit(context, stream, &q);
    }
    napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, q.values.size, 4 * NAPIER_QUANTILE_THREADS, 4),
                               .threads = NAPIER_QUANTILE_THREADS};
    if (!status) {
        status =
            napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_quantile_next), &shape, &q, sizeof q);
    }
    shape = (napier_cuda_shape){.blocks = 1, .threads = 32};
    if (!status) {
        status = napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_quantile_place_it), &shape, &q,
                                    sizeof q);
    }
    return status;
}

static napier_status napier_cuda_grpo_pass(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_kernel kernel, int64_t warps, const napier_cuda_grpo_job *job) {
    return napier_cuda_warps(context, stream, what, kernel, warps, job, sizeof *job);
}

napier_status napier_cuda_grpo_prepare(napier_cuda_context *context, struct CUstream_st *stream,
                                       const napier_cuda_grpo_job *job) {
    napier_status status = napier_cuda_fill(context, stream, job->state, 0, sizeof *job->state);
    if (!status)
        status = napier_cuda_responses_look(context, stream, &job->responses);
    if (!status && job->scan) {
        status = napier_cuda_grpo_pass(context, stream, NAPIER_CUDA_KERNEL(napier_grpo_scan_tiles),
                                       job->responses.slots, job);
    }
    if (!status && job->options.top_entropy_quantile < 1 && job->responses.tokens > 0)
        status = napier_cuda_quantile(context, stream, job);
    if (!status) {
        status = napier_cuda_grpo_pass(context, stream, NAPIER_CUDA_KERNEL(napier_grpo_prepare_responses),
                                       job->responses.count, job);
    }
    return status;
}

/* ---- Tiles to the end -------------------------------------------------------------------------------------------- */

napier_status napier_cuda_grpo_tiles(napier_cuda_context *context, struct CUstream_st *stream,
                                     const napier_cuda_grpo_job *job) {
    return napier_cuda_grpo_pass(context, stream, NAPIER_CUDA_KERNEL(napier_grpo_loss_tiles), job->responses.slots,
                                 job);
}

napier_status napier_cuda_grpo_finish(napier_cuda_context *context, struct CUstream_st *stream,
                                      const napier_cuda_grpo_job *job) {
    const napier_cuda_shape shape = {.blocks = 1,
                                     .threads = NAPIER_RESPONSE_SUMS * 32,
                                     .shared_bytes = NAPIER_RESPONSE_SUMS * (int64_t)sizeof(double)};
    const napier_status status = napier_cuda_grpo_pass(context, stream, NAPIER_CUDA_KERNEL(napier_grpo_add_responses),
                                                       job->responses.count, job);
    return status ? status
                  : napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_grpo_finish_batch), &shape, job,
                                       sizeof *job);
}

static napier_status napier_cuda_grpo_entropies(napier_cuda_context *context, struct CUstream_st *stream,
                                                const napier_cuda_grpo_job *job) {
    const napier_cuda_shape shape = {.blocks =
                                         napier_cuda_blocks(context, job->responses.tokens, NAPIER_RESPONSE_THREADS, 8),
                                     .threads = NAPIER_RESPONSE_THREADS};
    return napier_cuda_launch(context, stream, what, NAPIER_CUDA_KERNEL(napier_grpo_entropy_gradients), &shape, job,
                              sizeof *job);
}

napier_status napier_cuda_grpo_all(napier_cuda_context *context, struct CUstream_st *stream,
                                   const napier_cuda_grpo_job *job) {
    const napier_vector none = {NULL, 0, 0, NAPIER_F32};
    const bool twice = job->grpo.sequence && job->grpo.grad_logprobs.data;
    napier_cuda_grpo_job first = *job, second = *job;
    napier_status status = napier_cuda_grpo_prepare(context, stream, job);
    if (twice) {
        first.grpo.grad_logprobs = none;
        second.grpo.losses = none;
        second.sums = NULL;
    }
    if (!status)
        status = napier_cuda_grpo_tiles(context, stream, &first);
    if (!status && twice) {
        status =
            napier_cuda_grpo_pass(context, stream, NAPIER_CUDA_KERNEL(napier_grpo_flows), job->responses.count, job);
    }
    if (!status && twice)
        status = napier_cuda_grpo_tiles(context, stream, &second);
    if (!status && job->metrics)
        status = napier_cuda_grpo_finish(context, stream, job);
    if (!status && job->grpo.grad_entropies.data)
        status = napier_cuda_grpo_entropies(context, stream, job);
    return status;
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

napier_status napier_cuda_grpo_token_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                          const napier_grpo_options *options, napier_vector losses,
                                          napier_vector grad_logprobs) {
    const napier_grpo_outputs out = {.losses = losses, .grad_logprobs = grad_logprobs};
    napier_grpo_run run;
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_grpo_read(context->host, NAPIER_ON_DEVICE, batch, options, &out, &run);
    if (status) {
        return status;
    }
    run.totals = run.job.sequence && grad_logprobs.data;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    const napier_cuda_grpo_job job = napier_cuda_grpo_of(context, &room, &run);
    return napier_cuda_room_ready(context, &room, &status) ? napier_cuda_grpo_all(context, stream, &job) : status;
}

napier_status napier_cuda_grpo_loss(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, const napier_grpo_batch *batch,
                                    const napier_grpo_options *options, napier_grpo_metrics *metrics,
                                    napier_vector grad_logprobs, napier_vector grad_entropies) {
    const napier_grpo_outputs out = {.grad_logprobs = grad_logprobs, .grad_entropies = grad_entropies};
    napier_grpo_run run;
    napier_status status = napier_cuda_begin(context);
    if (!status && !metrics)
        status = napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "metrics: NULL");
    if (!status)
        status = napier_grpo_read(context->host, NAPIER_ON_DEVICE, batch, options, &out, &run);
    if (status) {
        return status;
    }
    run.mean = run.totals = true;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_grpo_job job = napier_cuda_grpo_of(context, &room, &run);
    job.metrics = metrics;
    return napier_cuda_room_ready(context, &room, &status) ? napier_cuda_grpo_all(context, stream, &job) : status;
}
