/* ops/head/gpu/linear_token_gradient.cu - the gradient of logits that are never stored. It computes the logits again,
 * tile by tile, converts their gradients to bf16 for the two following products, and rounds the f32 sums of those to
 * their dtype. See linear_token_cuda.h. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "core/math/exp.h"
#include "ops/head/gpu/linear_tile.cuh"

/* The gradient of one logit, without the own parts of ids. */
CUDA_INLINE float gradient(const napier_linear_slope *s, float z) {
    const float log_p = (z - s->max) - s->log_sum, p = vf_exp(log_p);
    const float of_p = p == 0.0f ? 0.0f : p * fmaf(-s->entropy, log_p, s->base);
    return of_p + s->constant;
}

/* The own part of token `token`'s gradient. Several ids may name it. */
CUDA_INLINE float own_of(const napier_linear_job *job, int64_t row, int64_t token) {
    float own = 0.0f;
    for (int64_t k = 0; k < job->per_row; k++) {
        const int64_t at = row * job->per_row + k, id = napier_linear_id(&job->ids, at);
        own += id == token && id != job->ignore ? job->own[at] : 0.0f;
    }
    return own;
}

/* True if one of the row's ids is in the tile. Few tiles have one. */
CUDA_INLINE bool has_ids(const napier_linear_job *job, int64_t row, const napier_linear_tile *t) {
    bool some = false;
    for (int64_t k = 0; k < job->per_row; k++) {
        const int64_t id = napier_linear_id(&job->ids, row * job->per_row + k);
        some = some || (id >= t->token && id < t->token + t->n);
    }
    return some;
}

/* Replaces logits by their gradients, in place. */
CUDA_INLINE void row_gradients(const napier_linear_job *job, int64_t row, const napier_linear_tile *t, float *z) {
    const napier_linear_slope s = job->slopes[row];
    const uint8_t *const keep = napier_token_keep(&job->rules, row, t->token);
    const bool changes = napier_linear_changes(&job->rules), ids = has_ids(job, row, t);
    for (int i = 0; i < t->n; i++) {
        float derivative = 1.0f;
        const float x = changes ? napier_linear_z(&job->rules, z[i], true, &derivative) : z[i];
        float g = gradient(&s, x) + (ids ? own_of(job, row, t->token + i) : 0.0f);
        g = changes ? g * derivative : g;
        g = s.kind == NAPIER_SLOPE_NAN ? vf_canonical_nan() : g;
        z[i] = s.kind == NAPIER_SLOPE_ZERO || (keep && !keep[i]) ? 0.0f : g;
    }
}

/* A warp writes one row after the other, two tokens per lane: 128 bytes at a time. */
CUDA_INLINE void store_gradients(const napier_linear_job *job, const napier_linear_tile *t) {
    const int warp = (int)threadIdx.x / CUDA_WARP, lane = (int)threadIdx.x % CUDA_WARP;
    for (int r = warp; r < NAPIER_MMA_ROWS && t->row + r < job->rows; r += NAPIER_MMA_THREADS / CUDA_WARP) {
        uint16_t *const to = job->g + (t->row + r) * NAPIER_LINEAR_GRADIENT_COLS + t->column;
        const float *const z = t->z + r * NAPIER_LINEAR_STEP;
        for (int i = 2 * lane; i < NAPIER_LINEAR_TILE; i += 2 * CUDA_WARP) {
            const float x = i < t->n ? z[i] : 0.0f, y = i + 1 < t->n ? z[i + 1] : 0.0f;
            *(uint32_t *)(void *)(to + i) = napier_narrow_bits(x, NAPIER_BF16) | napier_narrow_bits(y, NAPIER_BF16)
                                                                                     << 16;
        }
    }
}

CUDA_INLINE void gradient_tile(const bool f16, const napier_linear_job *job) {
    CUDA_SHARED(unsigned char, shared);
    const napier_linear_tile t = napier_linear_logits(f16, job, shared);
    if (t.row + threadIdx.x < job->rows) {
        row_gradients(job, job->first + t.row + threadIdx.x, &t, t.z + threadIdx.x * NAPIER_LINEAR_STEP);
    }
    __syncthreads();
    store_gradients(job, &t);
}

CUDA_KERNEL(napier_linear_gradient_bf16, napier_linear_job, NAPIER_MMA_THREADS) { gradient_tile(false, &job); }
CUDA_KERNEL(napier_linear_gradient_f16, napier_linear_job, NAPIER_MMA_THREADS) { gradient_tile(true, &job); }

CUDA_KERNEL(napier_linear_round, napier_linear_round_job, NAPIER_LINEAR_ROUND_THREADS) {
    const int64_t cols = job.out.cols, count = job.out.rows * cols;
    const int64_t step = (int64_t)gridDim.x * NAPIER_LINEAR_ROUND_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * NAPIER_LINEAR_ROUND_THREADS + threadIdx.x; i < count; i += step) {
        napier_store_float(job.out.data, job.out.dtype, i / cols * job.out.row_stride + i % cols * job.out.col_stride,
                           job.sums[i]);
    }
}
