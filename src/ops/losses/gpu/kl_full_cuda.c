/* ops/losses/gpu/kl_full_cuda.c - KL divergence over the whole vocabulary on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/kl_full_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_launch.h"
#include "ops/tokens/gpu/token_launch.h"
#include "ops/softmax/arguments.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_kl_full_rows);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_full_tiles);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_full_finish);
NAPIER_CUDA_KERNEL_DECLARE(napier_kl_full_gradients);

static const char what[] = "kl_full";

typedef struct napier_cuda_kl_full_task {
    napier_cuda_kl_full_job job;
    napier_cuda_token_job sums[2]; /* the slots of both */
} napier_cuda_kl_full_task;

static void napier_cuda_kl_full_room(napier_cuda_context *context, napier_cuda_room *room,
                                     const napier_softmax_options *o, napier_cuda_kl_full_task *k) {
    const napier_const_matrix x[2] = {k->job.kl.policy, k->job.kl.ref};
    k->job.kl.temperature = napier_float_of(o->temperature);
    for (int i = 0; i < 2; i++) {
        napier_token_call call = {.rows = x[i].rows, .cols = x[i].cols};
        call.rules.temperature = k->job.kl.temperature;
        k->sums[i] = napier_cuda_token_of(context, room, &call, x[i]);
        k->job.slots[i] = k->sums[i].slots;
    }
    k->job.tiles = k->sums[0].tiles;
    k->job.parts = napier_cuda_take(room, room->overflow ? 0 : x[0].rows * k->job.tiles, sizeof *k->job.parts);
    k->job.rows = napier_cuda_take(room, x[0].rows, sizeof *k->job.rows);
}

static napier_status napier_cuda_kl_full_launch(napier_cuda_context *context, struct CUstream_st *stream,
                                                napier_cuda_kernel kernel, int64_t warps,
                                                const napier_cuda_kl_full_job *job) {
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, warps, NAPIER_TOKEN_WARPS, 8),
                                     .threads = NAPIER_TOKEN_THREADS,
                                     .shared_bytes = NAPIER_TOKEN_WARPS * (int64_t)sizeof(napier_sum)};
    return napier_cuda_launch(context, stream, what, kernel, &shape, job, sizeof *job);
}

/* Computes the rows and their divergence. */
static napier_status napier_cuda_kl_full_run(napier_cuda_context *context, struct CUstream_st *stream,
                                             const napier_cuda_kl_full_task *k) {
    const int64_t rows = k->job.kl.policy.rows;
    napier_status status = napier_cuda_token_sums(context, stream, what, &k->sums[0]);
    if (!status)
        status = napier_cuda_token_sums(context, stream, what, &k->sums[1]);
    if (!status)
        status =
            napier_cuda_kl_full_launch(context, stream, NAPIER_CUDA_KERNEL(napier_kl_full_rows), 2 * rows, &k->job);
    if (!status) {
        status = napier_cuda_kl_full_launch(context, stream, NAPIER_CUDA_KERNEL(napier_kl_full_tiles),
                                            rows * k->job.tiles, &k->job);
    }
    return status
               ? status
               : napier_cuda_kl_full_launch(context, stream, NAPIER_CUDA_KERNEL(napier_kl_full_finish), rows, &k->job);
}

napier_status napier_cuda_kl_full(napier_cuda_context *context, struct CUstream_st *stream,
                                  napier_cuda_workspace *workspace, napier_const_matrix policy_logits,
                                  napier_const_matrix ref_logits, const napier_softmax_options *options,
                                  napier_vector kl) {
    napier_cuda_kl_full_task k = {.job = {.kl = {.policy = policy_logits, .ref = ref_logits}, .out = kl}};
    napier_softmax_options o;
    napier_status status = napier_cuda_begin(context);
    if (!status)
        status = napier_kl_full_check(context->host, policy_logits, ref_logits, options, kl, &o);
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_kl_full_room(context, &room, &o, &k);
    return napier_cuda_room_ready(context, &room, &status) ? napier_cuda_kl_full_run(context, stream, &k) : status;
}

napier_status napier_cuda_kl_full_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_workspace *workspace, napier_const_matrix policy_logits,
                                           napier_const_matrix ref_logits, const napier_softmax_options *options,
                                           napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                           napier_matrix grad_ref_logits) {
    napier_cuda_kl_full_task k = {.job = {.kl = {.policy = policy_logits,
                                                 .ref = ref_logits,
                                                 .grad_policy = grad_policy_logits,
                                                 .grad_ref = grad_ref_logits},
                                          .grad_kl = grad_kl}};
    napier_softmax_options o;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_kl_full_backward_check(context->host, policy_logits, ref_logits, options, grad_kl,
                                               grad_policy_logits, grad_ref_logits, &o);
    }
    if (status) {
        return status;
    }
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_kl_full_room(context, &room, &o, &k);
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    status = napier_cuda_kl_full_run(context, stream, &k);
    return status ? status
                  : napier_cuda_kl_full_launch(context, stream, NAPIER_CUDA_KERNEL(napier_kl_full_gradients),
                                               policy_logits.rows * k.job.tiles, &k.job);
}
