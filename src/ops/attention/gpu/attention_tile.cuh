/* ops/attention/gpu/attention_tile.cuh - for kernels: sequences, the keys that a row attends to,
 * and products of 16 rows with 256 others. */
#ifndef NAPIER_OPS_ATTENTION_GPU_ATTENTION_TILE_CUH
#define NAPIER_OPS_ATTENTION_GPU_ATTENTION_TILE_CUH

#include "ops/attention/gpu/attention_cuda.h"
#include "ops/attention/attention_lanes.h"
#include "ops/linear/gpu/elements.cuh"

enum { ROWS = NAPIER_ATTENTION_ROWS, KEYS = NAPIER_ATTENTION_KEYS, STEP = NAPIER_ATTENTION_STEP };

/* ---- Sequences --------------------------------------------------------------------------------------------------- */

typedef struct sequence {
    int64_t query_begin, queries, prefix_begin, prefix, own_begin, keys;
} sequence;

/* The row after the own rows of a sequence. */
CUDA_INLINE int64_t key_end_of(const napier_attention_job *job, int64_t i) {
    return job->key_end ? job->key_end[i] : job->key_offsets[i + 1];
}

CUDA_INLINE sequence sequence_of(const napier_attention_job *job, int64_t i) {
    if (!job->query_offsets) {
        const sequence all = {0, job->q.tokens, 0, 0, 0, job->k.tokens};
        return all;
    }
    sequence s = {job->query_offsets[i], job->query_offsets[i + 1] - job->query_offsets[i], 0, 0,
                  job->key_offsets[i],   key_end_of(job, i) - job->key_offsets[i]};
    if (job->prefix_begin) {
        s.prefix_begin = job->prefix_begin[i];
        s.prefix = job->prefix_end[i] - s.prefix_begin;
        s.keys += s.prefix;
    }
    return s;
}

/* The row of k and v at a place. */
CUDA_INLINE int64_t key_row(const sequence *s, int64_t place) {
    return place < s->prefix ? s->prefix_begin + place : s->own_begin + (place - s->prefix);
}

/* Query i of a sequence attends to so many keys, the first ones, if there is no mask. */
CUDA_INLINE int64_t keys_seen(const napier_attention_job *job, const sequence *s, int64_t query) {
    const int64_t seen = job->causal ? s->keys - s->queries + query + 1 : s->keys;
    return seen > 0 ? seen : 0;
}

/* Sequence i has the tiles from offsets[i] / `rows` + i on: as many as it needs, or one more. Returns the last sequence
 * that begins at or before a tile. */
CUDA_INLINE int64_t sequence_at(const napier_attention_job *job, int64_t tile, int64_t rows) {
    int64_t low = 0, high = job->sequences - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (job->query_offsets[middle] / rows + middle <= tile) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Up to `rows` queries of one head. rows 0: nothing to do. */
typedef struct row_tile {
    sequence s;
    int64_t head, query; /* of q; within the sequence */
    int rows;
} row_tile;

CUDA_INLINE row_tile row_tile_of(const napier_attention_job *job, int64_t rows) {
    const int64_t tile = job->tiles - 1 - blockIdx.x % job->tiles; /* the longest of a causal sequence first */
    const int64_t i = job->query_offsets ? sequence_at(job, tile, rows) : 0;
    row_tile t = {sequence_of(job, i), blockIdx.x / job->tiles, 0, 0};
    t.query = (tile - (t.s.query_begin / rows + i)) * rows;
    const int64_t left = t.s.queries - t.query;
    t.rows = left < 0 ? 0 : left < rows ? (int)left : (int)rows;
    return t;
}

/* ---- What a row sees --------------------------------------------------------------------------------------------- */

/* The score of a pair in units of log 2, from its product. *seen: whether the row attends
 * to the key. place < the sequence's keys. */
CUDA_INLINE float score_of(const napier_attention_job *job, const sequence *s, int64_t query, int64_t head,
                           int64_t place, float product, bool *seen) {
    const float t = product * job->factor;
    *seen = place < keys_seen(job, s, query);
    if (!*seen) {
        return -INFINITY;
    }
    if (!job->mask) {
        return t;
    }
    const int64_t at =
        (s->query_begin + query) * job->mask_token_stride + head * job->mask_head_stride + place * job->mask_key_stride;
    const float added =
        job->mask_is_bytes ? (((const uint8_t *)job->mask)[at] ? 0.0f : -INFINITY) : ((const float *)job->mask)[at];
    *seen = added != -INFINITY;
    return *seen ? fmaf(added, NAPIER_LOG2E, t) : -INFINITY;
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

CUDA_INLINE float head_element(const napier_const_heads *x, int64_t token, int64_t head, int64_t i) {
    return napier_load_float(x->data, x->dtype, token * x->token_stride + head * x->head_stride + i * x->dim_stride);
}
CUDA_INLINE void head_store(const napier_heads *x, int64_t token, int64_t head, int64_t i, float value) {
    napier_store_float(x->data, x->dtype, token * x->token_stride + head * x->head_stride + i * x->dim_stride, value);
}

/* A side of 16: element i of each at side[16 i ..]. token: of each, below 0 for none, which is 0. narrow, here and below: in
 * the order of bf16_weights, where subnormals count as 0. */
CUDA_INLINE void load_side(const bool narrow, const napier_const_heads *x, const int64_t *tokens, int64_t head,
                           float *side) {
    for (int64_t at = threadIdx.x; at < ROWS * x->dim; at += NAPIER_ATTENTION_THREADS) {
        const int64_t r = at / x->dim, i = at % x->dim;
        const float element = tokens[r] >= 0 ? head_element(x, tokens[r], head, i) : 0.0f;
        side[i * ROWS + r] = narrow ? napier_flush(element) : element;
    }
}

/* The elements of the other side: token and head of each of up to 256. */
typedef struct others {
    const int64_t *tokens; /* [256], shared; below 0: none */
    const int32_t *heads;  /* [256], shared; NULL: all have `head` */
    int64_t head;
} others;

CUDA_INLINE int64_t other_head(const others *o, int i) { return o->heads ? o->heads[i] : o->head; }

/* sum[r] = fma(x[r], y, sum[r]) of `count` numbers in shared memory. */
CUDA_INLINE void add_step(const bool narrow, const int count, const float *x, float y, float *sum) {
    const napier_four *const four = (const napier_four *)(const void *)x;
    NAPIER_UNROLL
    for (int r = 0; r < count; r++) {
        const float each = four[r / 4].x[r % 4];
        sum[r] = narrow ? napier_fma_flushed(each, y, sum[r]) : fmaf(each, y, sum[r]);
    }
}

/* sum[r] += the chains of the even and of the odd steps of a block, which start from 0 again. */
CUDA_INLINE void fold_pairs(const int count, float *even, float *odd, float *sum) {
    NAPIER_UNROLL
    for (int r = 0; r < count; r++) {
        sum[r] = napier_add_flushed(sum[r], napier_add_flushed(even[r], odd[r]));
        even[r] = odd[r] = 0.0f;
    }
}

/* n <= 32 steps of a product: x of a step is 16 floats from that of the one before. */
CUDA_INLINE void add_part(const bool narrow, const float *x, const float *y, int n, float sum[ROWS]) {
    float even[ROWS] = {0}, odd[ROWS] = {0};
    for (int i = 0; i < n; i += narrow ? 2 : 1) {
        add_step(narrow, ROWS, x + i * ROWS, narrow ? napier_flush(y[i]) : y[i], narrow ? even : sum);
        if (narrow && i + 1 < n) {
            add_step(true, ROWS, x + (i + 1) * ROWS, napier_flush(y[i + 1]), odd);
        }
    }
    if (narrow) {
        fold_pairs(ROWS, even, odd, sum);
    }
}

/* sum[r] = sum_i side[i][r] * x[other of this thread][i], a chain over i, ascending; narrow: in the order of bf16 by bf16,
 * whose blocks are the parts. stage: [256][33], shared. */
CUDA_INLINE void products(const bool narrow, const napier_const_heads *x, const float *side, const others *o,
                          float *stage, float sum[ROWS]) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    NAPIER_UNROLL
    for (int r = 0; r < ROWS; r++) {
        sum[r] = 0.0f;
    }
    for (int64_t begin = 0; begin < x->dim; begin += NAPIER_ATTENTION_PART) {
        const int64_t left = x->dim - begin;
        const int n = left < NAPIER_ATTENTION_PART ? (int)left : (int)NAPIER_ATTENTION_PART;
        __syncthreads();
        for (int i = warp; i < KEYS; i += NAPIER_ATTENTION_THREADS / CUDA_WARP) {
            if (lane < n && o->tokens[i] >= 0) {
                stage[i * (NAPIER_ATTENTION_PART + 1) + lane] =
                    head_element(x, o->tokens[i], other_head(o, i), begin + lane);
            }
        }
        __syncthreads();
        if (o->tokens[threadIdx.x] < 0) {
            continue;
        }
        add_part(narrow, side + begin * ROWS, stage + (int)threadIdx.x * (NAPIER_ATTENTION_PART + 1), n, sum);
    }
}

/* Stores the 16 products of this thread's other, [256][20]. */
CUDA_INLINE void put_sixteen(const float x[ROWS], float *weights) {
    napier_four *const four = (napier_four *)(void *)(weights + (int)threadIdx.x * STEP);
    NAPIER_UNROLL
    for (int r = 0; r < ROWS; r += 4) {
        const napier_four some = {{x[r], x[r + 1], x[r + 2], x[r + 3]}};
        four[r / 4] = some;
    }
}

/* One step of add_columns for half of the 16, from `half` on. */
CUDA_INLINE void add_other(const bool narrow, const napier_const_heads *x, const float *weights, const uint32_t *seen,
                           const others *o, int i, int64_t c, int half, float sum[ROWS / 2]) {
    if (o->tokens[i] < 0) {
        return;
    }
    const float element = head_element(x, o->tokens[i], other_head(o, i), c);
    const float y = narrow ? napier_flush(element) : element;
    const uint32_t left_out = fabsf(y) < INFINITY ? 0 : ~seen[i];
    float next[ROWS / 2];
    NAPIER_UNROLL
    for (int r = 0; r < ROWS / 2; r++) {
        next[r] = sum[r];
    }
    add_step(narrow, ROWS / 2, weights + i * STEP + half, y, next);
    NAPIER_UNROLL
    for (int r = 0; r < ROWS / 2; r++) {
        sum[r] = left_out >> (half + r) & 1 ? sum[r] : next[r];
    }
}

/* columns[c][r] = fma(weights[i][r], x[other i][c], columns[c][r]), i ascending, over the `count` others; narrow: in blocks of
 * 32 others. Pairs that do not attend are left out where that makes a difference. seen: bit r of seen[i]. factors: NULL, or
 * what columns are multiplied by first. A thread has a column and half of the 16. */
CUDA_INLINE void add_columns(const bool narrow, const napier_const_heads *x, const float *weights, const uint32_t *seen,
                             const others *o, int count, const float *factors, float *columns) {
    const int half = (int)threadIdx.x / 128 * 8;
    for (int64_t c = threadIdx.x % 128; c < x->dim; c += 128) {
        float sum[ROWS / 2], even[ROWS / 2] = {0}, odd[ROWS / 2] = {0};
        NAPIER_UNROLL
        for (int r = 0; r < ROWS / 2; r++) {
            sum[r] = columns[c * STEP + half + r];
            sum[r] = factors ? sum[r] * factors[half + r] : sum[r];
            sum[r] = narrow ? napier_flush(sum[r]) : sum[r];
        }
        for (int i = 0; i < count; i += narrow ? 2 : 1) {
            add_other(narrow, x, weights, seen, o, i, c, half, narrow ? even : sum);
            if (narrow && i + 1 < count) {
                add_other(true, x, weights, seen, o, i + 1, c, half, odd);
            }
            if (narrow && ((i + 2) % NAPIER_ATTENTION_PLACES == 0 || i + 2 >= count)) {
                fold_pairs(ROWS / 2, even, odd, sum);
            }
        }
        NAPIER_UNROLL
        for (int r = 0; r < ROWS / 2; r++) {
            columns[c * STEP + half + r] = sum[r];
        }
    }
}

CUDA_INLINE void clear_columns(float *columns, int64_t count) {
    for (int64_t i = threadIdx.x; i < count * STEP; i += NAPIER_ATTENTION_THREADS) {
        columns[i] = 0.0f;
    }
}

CUDA_INLINE bool is_bad(const napier_attention_job *job) { return job->bad && *job->bad != 0; }

/* Fills x with NaN. */
CUDA_INLINE void fill_with_nan(const napier_heads *x) {
    const int64_t count = x->data ? x->tokens * x->heads * x->dim : 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        head_store(x, i / x->dim / x->heads, i / x->dim % x->heads, i % x->dim, vf_canonical_nan());
    }
}

#endif
