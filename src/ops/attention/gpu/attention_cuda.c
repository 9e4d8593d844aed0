/* ops/attention/gpu/attention_cuda.c - the host half of attention on a GPU:
 * checks the arguments and chooses the kernels. */
#include <inttypes.h>
#include <math.h>
#include <napier/cuda/attention.h>

#include "ops/attention/gpu/attention_cuda.h"
#include "ops/attention/attention_plan.h"
#include "core/gpu/launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_attention_offsets);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_forward);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_bf16_64);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_bf16_128);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_f16_64);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_f16_128);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_means);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_grad_q);
NAPIER_CUDA_KERNEL_DECLARE(napier_attention_grad_kv);

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
    if (o->mask && !plan->query_offsets && plan->q.tokens > 0 && plan->k.tokens > o->mask_keys) {
        return napier_fail(context->host, NAPIER_INVALID_ARGUMENT,
                           "options: mask_keys %" PRId64 " is less than the %" PRId64 " keys", o->mask_keys,
                           plan->k.tokens);
    }
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
    job->tiles = job->query_offsets ? job->q.tokens / rows + job->sequences : (job->q.tokens + rows - 1) / rows;
    if (job->tiles > INT32_MAX / job->q.heads) {
        return napier_fail(context->host, NAPIER_UNSUPPORTED,
                           "q: %" PRId64 " tokens of %" PRId64 " heads are too many for a grid", job->q.tokens,
                           job->q.heads);
    }
    *blocks = job->tiles * job->q.heads;
    return NAPIER_OK;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static napier_status check_on_device(napier_cuda_context *context, struct CUstream_st *stream,
                                     const napier_attention_job *job) {
    if (!job->bad) {
        return NAPIER_OK;
    }
    const napier_cuda_shape shape = {.blocks = napier_cuda_blocks(context, job->sequences, NAPIER_ATTENTION_THREADS, 2),
                                     .threads = NAPIER_ATTENTION_THREADS};
    const napier_status status = napier_cuda_fill(context, stream, job->bad, 0, sizeof *job->bad);
    return status ? status
                  : napier_cuda_launch(context, stream, "offsets", NAPIER_CUDA_KERNEL(napier_attention_offsets), &shape,
                                       job, sizeof *job);
}

static napier_status launch(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                            napier_cuda_kernel kernel, int64_t blocks, int64_t blocks_y, int64_t shared_bytes,
                            const napier_attention_job *job) {
    const napier_cuda_shape shape = {
        .blocks = blocks, .blocks_y = blocks_y, .threads = NAPIER_ATTENTION_THREADS, .shared_bytes = shared_bytes};
    return napier_cuda_launch(context, stream, what, kernel, &shape, job, sizeof *job);
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

static napier_status check_forward(napier_cuda_context *context, napier_const_heads q, napier_const_heads k,
                                   napier_const_heads v, napier_heads output, napier_matrix lse,
                                   const napier_attention_options *options, napier_cuda_mode mode,
                                   napier_attention_plan *plan) {
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_attention_plan_on_device(context->host, q, k, v, options, plan);
    }
    if (!status) {
        status = napier_attention_check_outputs(context->host, plan, output, lse);
    }
    if (!status && (unsigned)mode > NAPIER_CUDA_BATCH_INVARIANT) {
        status = napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "mode: %d is unknown", (int)mode);
    }
    return status ? status : check_mask_keys(context, plan);
}

static napier_status run_forward(napier_cuda_context *context, struct CUstream_st *stream,
                                 const napier_attention_plan *plan, napier_attention_job *job) {
    const int64_t bytes = napier_attention_shared(plan->q.dim, plan->v.dim, plan->v.dim, 1);
    int64_t blocks = 0;
    napier_status status = check_shared(context, plan, bytes);
    if (!status) {
        status = set_tiles(context, job, NAPIER_ATTENTION_ROWS, &blocks);
    }
    if (!status) {
        status = check_on_device(context, stream, job);
    }
    return status ? status
                  : launch(context, stream, "attention", NAPIER_CUDA_KERNEL(napier_attention_forward), blocks, 1, bytes,
                           job);
}

/* Every row of every head on 16 bytes, its elements side by side. */
static bool has_pieces(napier_const_heads x) {
    return x.dim_stride == 1 && (uintptr_t)x.data % 16 == 0 && (x.tokens <= 1 || x.token_stride % 8 == 0) &&
           (x.heads == 1 || x.head_stride % 8 == 0);
}

static bool uses_tensor_cores(const napier_cuda_context *context, const napier_attention_plan *plan,
                              napier_cuda_mode mode) {
    const napier_const_heads *const q = &plan->q, *const k = &plan->k, *const v = &plan->v;
    return mode == NAPIER_CUDA_BATCH_INVARIANT && context->tensor_cores && q->dtype != NAPIER_F32 &&
           k->dtype == q->dtype && v->dtype == q->dtype && q->dim <= 128 && v->dim <= 128 && has_pieces(*q) &&
           has_pieces(*k) && has_pieces(*v) && k->tokens > 0;
}

static napier_status run_tensor(napier_cuda_context *context, struct CUstream_st *stream,
                                const napier_attention_plan *plan, napier_attention_job *job) {
    const bool wide = plan->q.dim > 64 || plan->v.dim > 64, bf16 = plan->q.dtype == NAPIER_BF16;
    const napier_cuda_kernel of_bf16 =
        wide ? NAPIER_CUDA_KERNEL(napier_attention_bf16_128) : NAPIER_CUDA_KERNEL(napier_attention_bf16_64);
    const napier_cuda_kernel of_f16 =
        wide ? NAPIER_CUDA_KERNEL(napier_attention_f16_128) : NAPIER_CUDA_KERNEL(napier_attention_f16_64);
    napier_cuda_shape shape = {.threads = NAPIER_TENSOR_THREADS, .shared_bytes = napier_tensor_shared(wide ? 128 : 64)};
    napier_status status = set_tiles(context, job, NAPIER_TENSOR_ROWS, &shape.blocks);
    if (!status) {
        status = check_on_device(context, stream, job);
    }
    return status ? status
                  : napier_cuda_launch(context, stream, "attention", bf16 ? of_bf16 : of_f16, &shape, job, sizeof *job);
}

napier_status napier_cuda_attention(napier_cuda_context *context, struct CUstream_st *stream,
                                    napier_cuda_workspace *workspace, napier_const_heads q, napier_const_heads k,
                                    napier_const_heads v, napier_heads output, napier_matrix lse,
                                    const napier_attention_options *options, napier_cuda_mode mode) {
    napier_attention_plan plan;
    napier_status status = check_forward(context, q, k, v, output, lse, options, mode, &plan);
    if (status) {
        return status;
    }
    napier_attention_job job = job_of(context, &plan);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.output = output;
    job.lse = lse;
    job.bad = job.query_offsets ? napier_cuda_take(&room, 1, sizeof *job.bad) : NULL;
    if (!napier_cuda_room_ready(context, &room, &status) || q.tokens == 0) {
        return status;
    }
    return uses_tensor_cores(context, &plan, mode) ? run_tensor(context, stream, &plan, &job)
                                                   : run_forward(context, stream, &plan, &job);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

static napier_status run_means(napier_cuda_context *context, struct CUstream_st *stream,
                               const napier_attention_job *job) {
    const int64_t rows = job->q.tokens * job->q.heads;
    return launch(context, stream, "means", NAPIER_CUDA_KERNEL(napier_attention_means),
                  napier_cuda_blocks(context, rows, NAPIER_ATTENTION_THREADS / 32, 16), 1, 0, job);
}

static napier_status run_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                  const napier_attention_plan *plan, napier_attention_job *job) {
    const int64_t dim = plan->q.dim, v_dim = plan->v.dim;
    const int64_t q_bytes = napier_attention_shared(dim, v_dim, dim, 1);
    const int64_t kv_bytes = napier_attention_shared(dim, v_dim, 2 * (dim + v_dim), 2);
    int64_t blocks = 0;
    napier_status status = check_shared(context, plan, kv_bytes);
    if (!status && plan->k.heads > 65535) {
        status = napier_fail(context->host, NAPIER_UNSUPPORTED, "k: heads %" PRId64 " are too many for a grid",
                             plan->k.heads);
    }
    if (!status) {
        status = set_tiles(context, job, NAPIER_ATTENTION_ROWS, &blocks);
    }
    if (!status) {
        status = check_on_device(context, stream, job);
    }
    if (!status) {
        status = run_means(context, stream, job);
    }
    if (!status && job->grad_q.data) {
        status =
            launch(context, stream, "grad_q", NAPIER_CUDA_KERNEL(napier_attention_grad_q), blocks, 1, q_bytes, job);
    }
    if (!status && (job->grad_k.data || job->grad_v.data)) {
        status =
            launch(context, stream, "grad_k", NAPIER_CUDA_KERNEL(napier_attention_grad_kv),
                   (plan->k.tokens + NAPIER_ATTENTION_ROWS - 1) / NAPIER_ATTENTION_ROWS, plan->k.heads, kv_bytes, job);
    }
    return status;
}

napier_status napier_cuda_attention_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                             napier_cuda_workspace *workspace, napier_const_heads grad_output,
                                             napier_const_heads q, napier_const_heads k, napier_const_heads v,
                                             napier_const_heads output, napier_const_matrix lse, napier_heads grad_q,
                                             napier_heads grad_k, napier_heads grad_v,
                                             const napier_attention_options *options) {
    const napier_attention_back_views views = {grad_output, output, lse, grad_q, grad_k, grad_v};
    napier_attention_plan plan;
    napier_status status = napier_cuda_begin(context);
    if (!status) {
        status = napier_attention_plan_on_device(context->host, q, k, v, options, &plan);
    }
    if (!status) {
        status = napier_attention_check_back(context->host, &plan, &views);
    }
    if (!status) {
        status = check_mask_keys(context, &plan);
    }
    if (status) {
        return status;
    }
    napier_attention_job job = job_of(context, &plan);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job.grad_output = grad_output;
    job.output_in = output;
    job.lse_in = lse;
    job.grad_q = grad_q;
    job.grad_k = grad_k;
    job.grad_v = grad_v;
    job.bad = job.query_offsets ? napier_cuda_take(&room, 1, sizeof *job.bad) : NULL;
    job.means = napier_cuda_take(&room, q.tokens * q.heads, sizeof(float));
    if (!napier_cuda_room_ready(context, &room, &status)) {
        return status;
    }
    return run_backward(context, stream, &plan, &job);
}
