/* ops/attention/gpu/attention_cuda.c - the host half of attention on a GPU:
 * checks the arguments and chooses the kernels. */
#include <inttypes.h>
#include <math.h>
#include <napier/cuda/attention.h>

#include "ops/attention/gpu/attention_cuda.h"
#include "ops/attention/attention_plan.h"
#include "core/gpu/launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_attention_offsets, napier_attention_forward, napier_attention_forward_narrow,
                           napier_attention_bf16_64, napier_attention_bf16_128, napier_attention_f16_64,
                           napier_attention_f16_128, napier_attention_means, napier_attention_grad_q,
                           napier_attention_grad_kv);

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

static napier_attention_job job_of(const napier_cuda_context *context, const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    const napier_attention_job job = {
        .q = plan->q,
        .k = plan->k,
        .v = plan->v,
        .causal = o->causal != 0,
        .mask_is_bytes = o->mask_is_bytes != 0,
        .sequences = plan->sequences,
        .query_offsets = plan->query_offsets,
        .key_offsets = plan->key_offsets,
        .key_end = plan->key_end,
        .prefix_begin = plan->prefixes ? o->prefix_begin : NULL,
        .prefix_end = plan->prefixes ? o->prefix_end : NULL,
        .mask = o->mask,
        .mask_token_stride = o->mask_token_stride,
        .mask_head_stride = o->mask_head_stride,
        .mask_key_stride = o->mask_key_stride,
        .mask_keys = o->mask_keys,
        .group = plan->group,
        .scale = plan->scale,
        .factor = plan->factor,
        .masked = o->masked_rows == NAPIER_MASKED_ZERO ? 0.0f : (float)NAN,
        .faults = context->faults,
    };
    return job;
}

/* The mask of a single sequence can be checked here. */
static napier_status check_mask_keys(napier_cuda_context *context, const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    NAPIER_REFUSE_IF(context->host,
                     o->mask && !plan->query_offsets && plan->q.tokens > 0 && plan->k.tokens > o->mask_keys,
                     "options: mask_keys %" PRId64 " is less than the %" PRId64 " keys", o->mask_keys, plan->k.tokens);
    return NAPIER_OK;
}

static napier_status check_shared(napier_cuda_context *context, const napier_attention_plan *plan, int64_t bytes) {
    if (bytes > context->shared_bytes) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED,
                           "q: dim %" PRId64 " with v's %" PRId64 " takes %" PRId64
                           " bytes of shared memory; a block has %d",
                           plan->q.dim, plan->v.dim, bytes, context->shared_bytes);
    }
    return NAPIER_OK;
}

/* Tiles of `rows` queries: of a head, and blocks of all heads. */
static napier_status set_tiles(napier_cuda_context *context, napier_attention_job *job, int64_t rows, int64_t *blocks) {
    job->tiles = job->query_offsets ? job->q.tokens / rows + job->sequences : napier_cuda_tiles(job->q.tokens, rows);
    if (job->tiles > INT32_MAX / job->q.heads) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED,
                           "q: %" PRId64 " tokens of %" PRId64 " heads are too many for a grid", job->q.tokens,
                           job->q.heads);
    }
    *blocks = job->tiles * job->q.heads;
    return NAPIER_OK;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static napier_status check_on_device(const napier_cuda_call *gpu, const napier_attention_job *job) {
    if (!job->bad) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_cuda_clear(gpu, job->bad, sizeof *job->bad));
    return NAPIER_CUDA_PUT(gpu, napier_attention_offsets,
                           napier_cuda_loop(gpu, job->sequences, NAPIER_ATTENTION_THREADS, 2, NAPIER_ATTENTION_THREADS),
                           job);
}

static napier_status launch(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t blocks, int64_t blocks_y,
                            int64_t shared_bytes, const napier_attention_job *job) {
    const napier_cuda_shape shape = {
        .blocks = blocks, .blocks_y = blocks_y, .threads = NAPIER_ATTENTION_THREADS, .shared_bytes = shared_bytes};
    return napier_cuda_put(gpu, kernel, shape, job, sizeof *job);
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

static napier_status run_forward(const napier_cuda_call *gpu, const napier_attention_plan *plan,
                                 napier_attention_job *job) {
    const int64_t bytes = napier_attention_shared(plan->q.dim, plan->v.dim, plan->v.dim, 1);
    int64_t blocks = 0;
    NAPIER_TRY(check_shared(gpu->context, plan, bytes));
    NAPIER_TRY(set_tiles(gpu->context, job, NAPIER_ATTENTION_ROWS, &blocks));
    NAPIER_TRY(check_on_device(gpu, job));
    return launch(gpu,
                  plan->options.bf16_weights ? NAPIER_CUDA_KERNEL(napier_attention_forward_narrow)
                                             : NAPIER_CUDA_KERNEL(napier_attention_forward),
                  blocks, 1, bytes, job);
}

/* Every row of every head on 16 bytes, its elements side by side. */
static bool has_pieces(napier_const_heads x) {
    return x.dim_stride == 1 && (uintptr_t)x.data % 16 == 0 && x.token_stride % 8 == 0 &&
           (x.heads == 1 || x.head_stride % 8 == 0);
}

static bool uses_tensor_cores(const napier_cuda_context *context, const napier_attention_plan *plan,
                              napier_cuda_mode mode) {
    const napier_const_heads *const q = &plan->q, *const k = &plan->k, *const v = &plan->v;
    return mode == NAPIER_CUDA_BATCH_INVARIANT && context->tensor_cores && q->dtype != NAPIER_F32 &&
           k->dtype == q->dtype && v->dtype == q->dtype && q->dim <= 128 && v->dim <= 128 && has_pieces(*q) &&
           has_pieces(*k) && has_pieces(*v) && k->tokens > 0;
}

static napier_status run_tensor(const napier_cuda_call *gpu, const napier_attention_plan *plan,
                                napier_attention_job *job) {
    const bool wide = plan->q.dim > 64 || plan->v.dim > 64, bf16 = plan->q.dtype == NAPIER_BF16;
    const napier_cuda_kernel kernels[2][2] = {
        {NAPIER_CUDA_KERNEL(napier_attention_f16_64), NAPIER_CUDA_KERNEL(napier_attention_f16_128)},
        {NAPIER_CUDA_KERNEL(napier_attention_bf16_64), NAPIER_CUDA_KERNEL(napier_attention_bf16_128)}};
    napier_cuda_shape shape = {.threads = NAPIER_TENSOR_THREADS, .shared_bytes = napier_tensor_shared(wide ? 128 : 64)};
    NAPIER_TRY(set_tiles(gpu->context, job, NAPIER_TENSOR_ROWS, &shape.blocks));
    NAPIER_TRY(check_on_device(gpu, job));
    return napier_cuda_put(gpu, kernels[bf16][wide], shape, job, sizeof *job);
}

napier_status napier_cuda_attention(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, napier_const_heads q, napier_const_heads k,
                                    napier_const_heads v, napier_heads output, napier_matrix lse,
                                    const napier_attention_options *options, napier_cuda_mode mode) {
    napier_attention_plan plan;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_attention_plan_make(context->host, true, q, k, v, options, &plan));
    NAPIER_TRY(napier_attention_check_outputs(context->host, &plan, output, lse));
    NAPIER_REFUSE_IF(context->host, (unsigned)mode > NAPIER_CUDA_BATCH_INVARIANT, "mode: %d is unknown", (int)mode);
    NAPIER_TRY(check_mask_keys(context, &plan));
    napier_attention_job job = job_of(context, &plan);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.output = output;
    job.lse = lse;
    job.bad = job.query_offsets ? napier_cuda_take(&room, 1, sizeof *job.bad) : NULL;
    NAPIER_CUDA_READY(context, room);
    if (q.tokens == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call gpu = {context, stream, "attention"};
    return uses_tensor_cores(context, &plan, mode) ? run_tensor(&gpu, &plan, &job) : run_forward(&gpu, &plan, &job);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

static napier_status run_backward(const napier_cuda_call *gpu, const napier_attention_plan *plan,
                                  napier_attention_job *job) {
    const int64_t dim = plan->q.dim, v_dim = plan->v.dim;
    const int64_t q_bytes = napier_attention_shared(dim, v_dim, dim, 1);
    const int64_t kv_bytes = napier_attention_shared(dim, v_dim, 2 * (dim + v_dim), 2);
    int64_t blocks = 0;
    NAPIER_TRY(check_shared(gpu->context, plan, kv_bytes));
    if (plan->k.heads > 65535) {
        return napier_fail(gpu->context->host, NAPIER_UNSUPPORTED, "k: heads %" PRId64 " are too many for a grid",
                           plan->k.heads);
    }
    NAPIER_TRY(set_tiles(gpu->context, job, NAPIER_ATTENTION_ROWS, &blocks));
    NAPIER_TRY(check_on_device(gpu, job));
    NAPIER_TRY(launch(gpu, NAPIER_CUDA_KERNEL(napier_attention_means),
                      napier_cuda_blocks(gpu->context, job->q.tokens * job->q.heads, NAPIER_ATTENTION_THREADS / 32, 16),
                      1, 0, job));
    if (job->grad_q.data) {
        NAPIER_TRY(launch(gpu, NAPIER_CUDA_KERNEL(napier_attention_grad_q), blocks, 1, q_bytes, job));
    }
    if (job->grad_k.data || job->grad_v.data) {
        NAPIER_TRY(launch(gpu, NAPIER_CUDA_KERNEL(napier_attention_grad_kv),
                          napier_cuda_tiles(plan->k.tokens, NAPIER_ATTENTION_ROWS), plan->k.heads, kv_bytes, job));
    }
    return NAPIER_OK;
}

napier_status napier_cuda_attention_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_heads grad_output,
                                             napier_const_heads q, napier_const_heads k, napier_const_heads v,
                                             napier_const_heads output, napier_const_matrix lse, napier_heads grad_q,
                                             napier_heads grad_k, napier_heads grad_v,
                                             const napier_attention_options *options) {
    const napier_attention_back_views views = {grad_output, output, lse, grad_q, grad_k, grad_v};
    napier_attention_plan plan;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_attention_plan_make(context->host, true, q, k, v, options, &plan));
    NAPIER_TRY(napier_attention_check_back(context->host, &plan, &views));
    if (plan.options.bf16_gradient) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED, "options: bf16_gradient %" PRId64 " is for the CPU only",
                           plan.options.bf16_gradient);
    }
    NAPIER_TRY(check_mask_keys(context, &plan));
    napier_attention_job job = job_of(context, &plan);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.grad_output = grad_output;
    job.output_in = output;
    job.lse_in = lse;
    job.grad_lse = plan.options.grad_lse;
    job.grad_q = grad_q;
    job.grad_k = grad_k;
    job.grad_v = grad_v;
    job.bad = job.query_offsets ? napier_cuda_take(&room, 1, sizeof *job.bad) : NULL;
    job.means = napier_cuda_take(&room, q.tokens * q.heads, sizeof(float));
    NAPIER_CUDA_READY(context, room);
    const napier_cuda_call gpu = {context, stream, "attention_backward"};
    return run_backward(&gpu, &plan, &job);
}
