/* ops/head/gpu/linear_bitwise_cuda.c - log-probabilities from hidden states on a GPU with the CPU's bits, for any
 * dtypes. It computes the logits of some rows at a time with plain multiply-adds, and passes them to
 * napier_cuda_token_logprobs. */
#include "ops/head/gpu/linear_token_cuda.h"
#include "ops/head/linear_head.h"

#include <napier/cuda/rl.h>

#if defined(NAPIER_TEST_SMALL_PARTS) /* for tests: the behaviour of many rows, with few */
enum { LOGIT_BYTES = 1 };
#else
enum { LOGIT_BYTES = 176 << 20 };
#endif

/* A call whose rows go some at a time. */
typedef struct in_parts {
    napier_cuda_call gpu;
    napier_const_matrix hidden, weights;
    const napier_token_call *call;
    int64_t at_a_time; /* rows */
    float *logits;     /* [at_a_time][V] */
    napier_cuda_workspace workspace;
} in_parts;

/* ---- Some rows of arguments and results -------------------------------------------------------------------------- */

static napier_vector some_of(napier_vector v, int64_t first, int64_t rows) {
    v.data = v.data ? (char *)v.data + first * v.stride * (int64_t)napier_dtype_size(v.dtype) : NULL;
    v.size = rows;
    return v;
}

static napier_token_results results_of(const napier_token_call *call, int64_t first, int64_t rows) {
    napier_token_results r = call->results;
    r.logprobs = napier_some_rows_out(r.logprobs, first, rows);
    r.lse = some_of(r.lse, first, rows);
    r.entropy = some_of(r.entropy, first, rows);
    r.loss = some_of(r.loss, first, rows);
    r.argmax = r.argmax ? r.argmax + first : NULL;
    r.rank = r.rank ? r.rank + first * call->per_row : NULL;
    r.top_ids = r.top_ids ? r.top_ids + first * r.top_k : NULL;
    r.top_logprobs = napier_some_rows_out(r.top_logprobs, first, rows);
    return r;
}

static napier_indices ids_of(const napier_token_call *call, int64_t first, int64_t rows) {
    const int64_t size = call->ids.type == NAPIER_I32 ? 4 : 8;
    napier_indices ids = call->ids;
    ids.data = ids.data ? (const char *)ids.data + first * call->per_row * size : NULL;
    ids.size = rows * call->per_row;
    return ids;
}

static napier_token_options options_from(const napier_token_call *call, int64_t first) {
    napier_token_options o = call->options;
    o.keep = o.keep ? o.keep + first * o.keep_stride : NULL;
    return o;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static napier_status token_logprobs(in_parts *l, napier_const_matrix logits, int64_t first) {
    const napier_token_options options = options_from(l->call, first);
    const napier_token_results results = results_of(l->call, first, logits.rows);
    return napier_cuda_token_logprobs(l->gpu.context, l->gpu.stream, &l->workspace, logits,
                                      ids_of(l->call, first, logits.rows), &options, &results);
}

/* Finds the workspace that a range of rows needs besides its logits. The logits do not exist yet; any element can
 * replace them. */
static napier_status ask(in_parts *l) {
    const napier_const_matrix logits = {l->gpu.context->faults, l->at_a_time, l->call->cols, 0, 0, NAPIER_F32};
    return token_logprobs(l, logits, 0);
}

static napier_status run(in_parts *l) {
    for (int64_t row = 0; row < l->hidden.rows; row += l->at_a_time) {
        const int64_t rows = napier_least(l->hidden.rows - row, l->at_a_time);
        const napier_matrix logits = napier_rows_f32(l->logits, rows, l->call->cols);
        NAPIER_TRY(napier_cuda_product(&l->gpu, napier_some_rows(l->hidden, row, rows), l->weights, logits, false,
                                       NAPIER_CUDA_BITWISE));
        NAPIER_TRY(token_logprobs(l, napier_read_only(logits), row));
    }
    return NAPIER_OK;
}

napier_status napier_cuda_linear_bitwise(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                         napier_const_matrix weights, const napier_token_call *call) {
    const int64_t row_bytes = call->cols * (int64_t)sizeof(float);
    const int64_t fit = row_bytes > 0 ? LOGIT_BYTES / row_bytes / NAPIER_MATMUL_ROWS * NAPIER_MATMUL_ROWS : hidden.rows;
    const int64_t most = fit > 0 ? fit : NAPIER_MATMUL_ROWS;
    in_parts l = {.gpu = {context, stream, "linear_token_logprobs"},
                  .hidden = hidden,
                  .weights = weights,
                  .call = call,
                  .at_a_time = hidden.rows < most ? hidden.rows : most};
    napier_cuda_room room = napier_cuda_room_of(workspace);
    NAPIER_TRY(ask(&l));
    l.logits = napier_cuda_take(&room, l.at_a_time * call->cols, sizeof(float));
    l.workspace.data = napier_cuda_take(&room, (int64_t)l.workspace.size, 1);
    NAPIER_CUDA_READY(context, room);
    if (hidden.rows == 0) {
        return NAPIER_OK;
    }
    if (!l.workspace.data || l.workspace.size == 0) { /* none is needed; NULL would ask for the size again */
        l.workspace.data = l.logits ? (void *)l.logits : (void *)context->faults;
    }
    return run(&l);
}
