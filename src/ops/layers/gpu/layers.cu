/* ops/layers/gpu/layers.cu - RMS normalisation, rotation and gate between the products of a decoder layer, each step
 * rounded as in ops/layers/layers.inc.h. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/layers/gpu/layers_cuda.h"
#include "ops/layers/layer_kernels.h"
#include "ops/tokens/gpu/responses_cuda.h"

/* ---- The norm's factor ------------------------------------------------------------------------------------------- */

/* A row, or a head of it, with its bias. */
typedef struct napier_biased_row {
    const float *x, *bias; /* [n] */
    int64_t n;
} napier_biased_row;

CUDA_INLINE float napier_biased_at(const napier_biased_row *row, int64_t i) {
    return row->bias != NULL ? row->x[i] + row->bias[i] : row->x[i];
}

/* The sum of squares in napier_dot_of's order: 64 lanes, of which each thread has two, 32 apart. */
CUDA_INLINE float napier_squares(const napier_biased_row *row) {
    float low = 0.0f, high = 0.0f;
    for (int64_t i = cuda_lane(); i < row->n; i += 2 * CUDA_WARP) {
        const float x = napier_biased_at(row, i);
        const float y = i + CUDA_WARP < row->n ? napier_biased_at(row, i + CUDA_WARP) : 0.0f;
        low = fmaf(x, x, low);
        high = fmaf(y, y, high);
    }
    float sum = low + high;
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        sum += cuda_shuffle_xor_f32(sum, lanes);
    }
    return sum;
}

/* The factor where f32 does not hold the squares: one chain in double, which each thread computes. */
CUDA_INLINE float napier_norm_factor_wide(const napier_biased_row *row, float epsilon) {
    double sum = 0.0;
    for (int64_t i = 0; i < row->n; i++) {
        const double x = (double)napier_biased_at(row, i);
        sum += x * x;
    }
    return (float)(1.0 / sqrt(sum / (double)row->n + (double)epsilon));
}

CUDA_INLINE float napier_norm_factor(const napier_biased_row *row, float epsilon) {
    const float mean = napier_squares(row) / (float)row->n + epsilon;
    return napier_norm_is_wide(mean) ? napier_norm_factor_wide(row, epsilon) : 1.0f / sqrtf(mean);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* A thread reads and writes elements `lane`, `lane` + 32, .. only, so its sums need no barrier. */
CUDA_KERNEL(napier_layers_norm, napier_cuda_norm_job, NAPIER_RESPONSE_THREADS) {
    for (int64_t row = cuda_warp(); row < job.rows; row += cuda_warps()) {
        float *const x = job.x + row * job.n;
        for (int64_t i = cuda_lane(); job.sums != NULL && i < job.n; i += CUDA_WARP) {
            const napier_biased_row sums = {job.sums + row * job.n, job.bias, job.n};
            x[i] += napier_biased_at(&sums, i);
        }
        __syncwarp(); /* for the factor of a sum beyond f32, which reads all of x */
        const napier_biased_row whole = {x, NULL, job.n};
        const float r = napier_norm_factor(&whole, job.epsilon);
        for (int64_t i = cuda_lane(); i < job.n; i += CUDA_WARP) {
            cuda_put(job.out, job.dtype, row * job.n + i, (x[i] * r) * job.weight[i]);
        }
    }
}

CUDA_INLINE float napier_head_at(const napier_cuda_rotate_job *job, const napier_biased_row *head, float r, int64_t i) {
    const float x = napier_biased_at(head, i);
    return job->weight != NULL ? (x * r) * job->weight[i] : x;
}

CUDA_KERNEL(napier_layers_rotate, napier_cuda_rotate_job, NAPIER_RESPONSE_THREADS) {
    const int64_t half = job.n / 2;
    for (int64_t at = cuda_warp(); at < job.rows * job.heads; at += cuda_warps()) {
        const int64_t position = job.positions[at / job.heads] * half, h = at % job.heads;
        const napier_biased_row head = {job.sums + at * job.n, job.bias != NULL ? job.bias + h * job.n : NULL, job.n};
        const float r = job.weight != NULL ? napier_norm_factor(&head, job.epsilon) : 1.0f;
        for (int64_t i = cuda_lane(); i < half; i += CUDA_WARP) {
            const float a = napier_head_at(&job, &head, r, i), b = napier_head_at(&job, &head, r, half + i);
            const float c = job.cosines[position + i], s = job.sines[position + i];
            cuda_put(job.out, job.dtype, at * job.n + i, fmaf(-b, s, a * c));
            cuda_put(job.out, job.dtype, at * job.n + half + i, fmaf(a, s, b * c));
        }
    }
}

CUDA_KERNEL(napier_layers_gate, napier_cuda_gate_job, NAPIER_RESPONSE_THREADS) {
    for (int64_t i = cuda_thread(); i < job.rows * job.n; i += cuda_threads()) {
        const bool biased = job.gate_bias != NULL;
        const float gate = biased ? job.gate[i] + job.gate_bias[i % job.n] : job.gate[i];
        const float up = biased ? job.up[i] + job.up_bias[i % job.n] : job.up[i];
        cuda_put(job.out, job.dtype, i, gate / (1.0f + vf_exp(0.0f - gate)) * up);
    }
}

CUDA_KERNEL(napier_layers_add, napier_cuda_add_job, NAPIER_RESPONSE_THREADS) {
    for (int64_t i = cuda_thread(); i < job.rows * job.n; i += cuda_threads()) {
        cuda_put(job.out, job.dtype, i, job.sums[i] + job.bias[i % job.n]);
    }
}
