/* ops/attention/gpu/attention.cu - attention by plain multiply-adds in the CPU's order (docs/attention.md): the same
 * bits, for any dtype, dim and strides. See attention_cuda.h.
 *
 * For 16 rows by 256 keys, a thread multiplies its key with all rows (five reads of shared
 * memory for 16 multiply-adds), a warp turns the scores of two rows into weights, and then a
 * thread has one column of v and eight rows. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "ops/attention/gpu/attention_tile.cuh"
#include "core/math/exp.h"

/* ---- Offsets ----------------------------------------------------------------------------------------------------- */

CUDA_INLINE bool sequence_is_good(const napier_attention_job *job, int64_t i) {
    const int64_t q = job->query_offsets[i], q_end = job->query_offsets[i + 1];
    const int64_t k = job->key_offsets[i], k_end = key_end_of(job, i);
    bool good = q >= 0 && q <= q_end && q_end <= job->q.tokens && k >= 0 && k <= k_end && k_end <= job->k.tokens;
    good = good && (i > 0 || q == 0) && (i < job->sequences - 1 || q_end == job->q.tokens);
    int64_t keys = k_end - k;
    if (good && job->prefix_begin) {
        const int64_t begin = job->prefix_begin[i], end = job->prefix_end[i];
        good = begin >= 0 && begin <= end && end <= job->k.tokens;
        keys += end - begin;
    }
    return good && (!job->mask || q == q_end || keys <= job->mask_keys);
}

/* *job.bad must be 0 at the start. */
CUDA_KERNEL(napier_attention_offsets, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    const int64_t step = (int64_t)gridDim.x * NAPIER_ATTENTION_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * NAPIER_ATTENTION_THREADS + threadIdx.x; i < job.sequences; i += step) {
        if (!sequence_is_good(&job, i)) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_OFFSETS, i);
            (void)cuda_atomic_max_i32(job.bad, 1);
        }
    }
}

/* ---- A block's shared memory ------------------------------------------------------------------------------------- */

typedef struct room {
    float *factors;      /* [16]: what a row's outputs are multiplied by */
    int64_t *row_tokens; /* [16] */
    uint32_t *seen;      /* [256] */
    int64_t *tokens;     /* [256]: rows of k and v */
    float *side;         /* [dim][16] */
    float *outputs;      /* [v.dim][20] */
    float *weights;      /* [256][20] */
    float *stage;        /* [256][33] */
} room;

CUDA_INLINE room room_of(const napier_attention_job *job, unsigned char *shared) {
    room m;
    float *at = (float *)(void *)shared;
    m.side = at, at += job->q.dim * ROWS;
    m.outputs = at, at += job->v.dim * STEP;
    m.weights = at, at += KEYS * STEP;
    m.tokens = (int64_t *)(void *)at, at += 2 * KEYS;
    m.row_tokens = (int64_t *)(void *)at, at += 2 * ROWS;
    m.seen = (uint32_t *)(void *)at, at += KEYS;
    m.factors = at, at += ROWS;
    m.stage = at;
    return m;
}

/* ---- Scores to weights ------------------------------------------------------------------------------------------- */

/* Scores of this thread's key, -inf for rows from which it is hidden, and which rows attend to it. */
CUDA_INLINE void put_scores(const napier_attention_job *job, const row_tile *t, int64_t place, float product[ROWS],
                            const room *m) {
    uint32_t bits = 0;
    NAPIER_UNROLL
    for (int r = 0; r < ROWS; r++) {
        bool seen = false;
        product[r] = r < t->rows && place < t->s.keys
                         ? score_of(job, &t->s, t->query + r, t->head, place, product[r], &seen)
                         : -INFINITY;
        bits |= seen ? 1u << r : 0;
    }
    m->seen[threadIdx.x] = bits;
    put_sixteen(product, m->weights);
}

/* The running state of a row. A warp has two rows, and half of its lanes the sums of each. */
typedef struct row_state {
    float exponent[2];
    float sum; /* lane l: of row l / 16, places p with p % 16 == l % 16 */
} row_state;

CUDA_INLINE float warp_max(float x) {
    NAPIER_UNROLL
    for (int h = 16; h > 0; h /= 2) {
        const float other = cuda_shuffle_xor_f32(x, h);
        x = other > x ? other : x;
    }
    return x;
}

/* Row r of the tile, which is row `which` of the warp. Returns the factor for its sums and outputs. */
CUDA_INLINE float weigh(const bool narrow, const room *m, int r, int which, row_state *state) {
    const int lane = (int)threadIdx.x % CUDA_WARP;
    float t[KEYS / CUDA_WARP], max = -INFINITY, factor = 1.0f;
    NAPIER_UNROLL
    for (int j = 0; j < KEYS / CUDA_WARP; j++) {
        t[j] = m->weights[(lane + CUDA_WARP * j) * STEP + r];
        max = t[j] > max ? t[j] : max;
    }
    const float exponent = rintf(warp_max(max)), before = state->exponent[which];
    if (exponent > before) {
        factor = before == -INFINITY ? 1.0f : napier_rescale(before, exponent);
        state->exponent[which] = exponent;
    }
    const float level = state->exponent[which] == -INFINITY ? 0.0f : state->exponent[which];
    NAPIER_UNROLL
    for (int j = 0; j < KEYS / CUDA_WARP; j++) {
        const float weight = napier_weight(t[j] - level);
        m->weights[(lane + CUDA_WARP * j) * STEP + r] = narrow ? vf_from_bf16(vf_to_bf16(weight)) : weight;
    }
    return factor;
}

CUDA_INLINE void weigh_rows(const bool narrow, const room *m, row_state *state) {
    const int lane = (int)threadIdx.x % CUDA_WARP, first = (int)threadIdx.x / CUDA_WARP * 2, mine = lane / 16;
    float factor[2];
    NAPIER_UNROLL
    for (int which = 0; which < 2; which++) {
        factor[which] = weigh(narrow, m, first + which, which, state);
        if (lane == 0) {
            m->factors[first + which] = factor[which];
        }
    }
    __syncwarp();
    state->sum *= mine == 0 ? factor[0] : factor[1];
    for (int j = 0; j < KEYS; j += 16) {
        state->sum += m->weights[(lane % 16 + j) * STEP + first + mine];
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Stores the rows' last factors in m->factors. `masked` replaces NaN, and the
 * outputs of a row without weight are cleared. */
CUDA_INLINE void finish_rows(const napier_attention_job *job, const row_tile *t, const room *m, row_state *state) {
    const int lane = (int)threadIdx.x % CUDA_WARP, r = (int)threadIdx.x / CUDA_WARP * 2 + lane / 16;
    float sum = state->sum;
    NAPIER_UNROLL
    for (int h = 8; h > 0; h /= 2) {
        sum += cuda_shuffle_xor_f32(sum, h);
    }
    if (lane % 16 != 0) {
        return;
    }
    const bool empty = sum == 0.0f;
    m->factors[r] = empty ? job->masked : 1.0f / sum;
    m->seen[r] = empty;
    if (job->lse.data && r < t->rows) {
        const float exponent = lane / 16 == 0 ? state->exponent[0] : state->exponent[1];
        const float lse = sum > 0.0f ? napier_lse_of(exponent, sum) : empty ? -INFINITY : vf_canonical_nan();
        float *const to = (float *)job->lse.data;
        to[m->row_tokens[r] * job->lse.row_stride + t->head * job->lse.col_stride] = lse;
    }
}

CUDA_INLINE void write_outputs(const napier_attention_job *job, const row_tile *t, const room *m) {
    for (int64_t at = threadIdx.x; at < t->rows * job->v.dim; at += NAPIER_ATTENTION_THREADS) {
        const int64_t r = at / job->v.dim, c = at % job->v.dim;
        const float o = m->seen[r] ? 0.0f : m->outputs[c * STEP + r] + 0.0f;
        head_store(&job->output, m->row_tokens[r], t->head, c, o * m->factors[r]);
    }
}

CUDA_INLINE void forward(const bool narrow, const napier_attention_job *job, unsigned char *shared) {
    const napier_heads lse = {
        job->lse.data, job->lse.rows, job->lse.cols, 1, job->lse.row_stride, job->lse.col_stride, 1, NAPIER_F32};
    if (is_bad(job)) {
        fill_with_nan(&job->output);
        fill_with_nan(&lse);
        return;
    }
    const room m = room_of(job, shared);
    const row_tile t = row_tile_of(job, ROWS);
    if (t.rows == 0) {
        return;
    }
    row_state state = {{-INFINITY, -INFINITY}, 0.0f};
    if (threadIdx.x < ROWS) {
        m.row_tokens[threadIdx.x] = (int)threadIdx.x < t.rows ? t.s.query_begin + t.query + (int64_t)threadIdx.x : -1;
    }
    clear_columns(m.outputs, job->v.dim);
    __syncthreads();
    load_side(narrow, &job->q, m.row_tokens, t.head, m.side);
    const int64_t most = keys_seen(job, &t.s, t.query + t.rows - 1);
    const others keys = {m.tokens, NULL, t.head / job->group};
    for (int64_t place = 0; place < most; place += KEYS) {
        const int64_t mine = place + threadIdx.x;
        float product[ROWS];
        __syncthreads();
        m.tokens[threadIdx.x] = mine < most ? key_row(&t.s, mine) : -1;
        products(narrow, &job->k, m.side, &keys, m.stage, product);
        put_scores(job, &t, mine, product, &m);
        __syncthreads();
        weigh_rows(narrow, &m, &state);
        __syncthreads();
        add_columns(narrow, &job->v, m.weights, m.seen, &keys, most - place < KEYS ? (int)(most - place) : (int)KEYS,
                    m.factors, m.outputs);
    }
    __syncthreads();
    finish_rows(job, &t, &m, &state);
    __syncthreads();
    write_outputs(job, &t, &m);
}

CUDA_KERNEL(napier_attention_forward, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    forward(false, &job, shared);
}

/* In the order of bf16_weights. */
CUDA_KERNEL(napier_attention_forward_narrow, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    forward(true, &job, shared);
}
