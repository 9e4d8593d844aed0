/* ops/losses/gpu/kl_full_cuda.c - KL divergence over the whole vocabulary on a GPU: checks, workspace, launches. */
#include "ops/losses/gpu/kl_full_cuda.h"

#include <napier/cuda/rl.h>

#include "ops/losses/calls.h"
#include "ops/tokens/gpu/responses_cuda.h"
#include "ops/tokens/gpu/token_cuda.h"
#include "ops/softmax/arguments.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_kl_full_rows, napier_kl_full_tiles, napier_kl_full_finish, napier_kl_full_gradients);

typedef struct kl_full_task {
    napier_cuda_kl_full_job job;
    napier_cuda_token_job sums[2]; /* the slots of both */
} kl_full_task;

static void kl_full_room(napier_cuda_context *context, napier_cuda_room *room, const napier_softmax_options *o,
                         kl_full_task *k) {
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

static napier_status kl_full_launch(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t warps,
                                    const napier_cuda_kl_full_job *job) {
    napier_cuda_shape shape = napier_cuda_loop(gpu, warps, NAPIER_TOKEN_WARPS, 8, NAPIER_TOKEN_THREADS);
    shape.shared_bytes = NAPIER_TOKEN_WARPS * (int64_t)sizeof(napier_sum);
    return napier_cuda_put(gpu, kernel, shape, job, sizeof *job);
}

/* Computes the rows and their divergence. */
static napier_status kl_full_run(const napier_cuda_call *gpu, const kl_full_task *k) {
    const int64_t rows = k->job.kl.policy.rows;
    NAPIER_TRY(napier_cuda_token_sums(gpu, &k->sums[0]));
    NAPIER_TRY(napier_cuda_token_sums(gpu, &k->sums[1]));
    NAPIER_TRY(kl_full_launch(gpu, NAPIER_CUDA_KERNEL(napier_kl_full_rows), 2 * rows, &k->job));
    NAPIER_TRY(kl_full_launch(gpu, NAPIER_CUDA_KERNEL(napier_kl_full_tiles), rows * k->job.tiles, &k->job));
    return kl_full_launch(gpu, NAPIER_CUDA_KERNEL(napier_kl_full_finish), rows, &k->job);
}

napier_status napier_cuda_kl_full(napier_cuda_context *context, struct CUstream_st *stream,
                                  napier_cuda_workspace *workspace, napier_const_matrix policy_logits,
                                  napier_const_matrix ref_logits, const napier_softmax_options *options,
                                  napier_vector kl) {
    kl_full_task k = {.job = {.kl = {.policy = policy_logits, .ref = ref_logits}, .out = kl}};
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_kl_full_check(context->host, &k.job.kl, options, napier_read_only_vector(kl), false, &o));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    kl_full_room(context, &room, &o, &k);
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "kl_full"};
    return kl_full_run(&gpu, &k);
}

napier_status napier_cuda_kl_full_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                           napier_cuda_workspace *workspace, napier_const_matrix policy_logits,
                                           napier_const_matrix ref_logits, const napier_softmax_options *options,
                                           napier_const_vector grad_kl, napier_matrix grad_policy_logits,
                                           napier_matrix grad_ref_logits) {
    kl_full_task k = {.job = {.kl = {.policy = policy_logits,
                                     .ref = ref_logits,
                                     .grad_policy = grad_policy_logits,
                                     .grad_ref = grad_ref_logits},
                              .grad_kl = grad_kl}};
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_kl_full_check(context->host, &k.job.kl, options, grad_kl, true, &o));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    kl_full_room(context, &room, &o, &k);
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "kl_full_backward"};
    NAPIER_TRY(kl_full_run(&gpu, &k));
    return kl_full_launch(&gpu, NAPIER_CUDA_KERNEL(napier_kl_full_gradients), policy_logits.rows * k.job.tiles, &k.job);
}
