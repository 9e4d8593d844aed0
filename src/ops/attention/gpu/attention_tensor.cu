/* ops/attention/gpu/attention_tensor.cu - attention on tensor cores, bf16 or
 * f16: batch-invariant. See attention_cuda.h.
 *
 * A block has 64 queries of one head, a warp 16 of them. It goes through the keys of the sequence 64 at a time from the
 * first one on, while the next 64 are loaded. Scores stay in registers and become weights there, by the same polynomial
 * and the same integer exponents as on the CPU, so that rescaling is exact. The weights are the first operand of the
 * product with the values. A row's bits depend only on its query and on the keys that it attends to: blocks of other
 * keys, however many the tile goes through, multiply by 1 and add 0.
 *
 * For 64 keys, dim 128, a warp does 256 mma, reads 32 KB of fragments, and makes 1024 weights of about 14 instructions
 * a thread's element. Shared memory: 16 KB of queries and two stages of 32 KB. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "ops/attention/gpu/attention_tile.cuh"
#include "ops/linear/gpu/mma.cuh"
#include "core/math/exp.h"

enum { TILE = NAPIER_TENSOR_ROWS, BLOCK_KEYS = NAPIER_TENSOR_KEYS, MOST_DIM = 128 };

/* ---- Rows to shared memory: lines of `wide` elements, 64 or 128 -------------------------------------------------- */

/* Lines 0 .. 63; rows[line] is a row of x, or below 0 for none. Missing lines are 0. */
CUDA_INLINE void copy_lines(const int wide, const napier_const_heads *x, int64_t head, const int64_t *rows,
                            unsigned char *to) {
    const int pieces = wide / 8, piece = (int)threadIdx.x % pieces;
    const int64_t left = x->dim - 8 * piece;
    const uint16_t *const from = (const uint16_t *)x->data + head * x->head_stride + 8 * piece;
    for (int line = (int)threadIdx.x / pieces; line < TILE; line += NAPIER_TENSOR_THREADS / pieces) {
        const int bytes = rows[line] >= 0 ? napier_mma_piece_bytes(left) : 0;
        cuda_copy_async_part(to + napier_mma_place(line, piece, pieces),
                             bytes > 0 ? from + rows[line] * x->token_stride : x->data, bytes);
    }
}

typedef struct room {
    unsigned char *queries, *keys, *values; /* [64][wide]; of keys and values two */
    int64_t *rows;                          /* [2][64]: of k and v */
    int64_t *row_tokens;                    /* [64] */
    int32_t *special;                       /* [4]: a warp has found an inf or NaN among the values */
} room;

CUDA_INLINE room room_of(const int wide, unsigned char *shared) {
    const int bytes = TILE * wide * 2;
    int64_t *const rows = (int64_t *)(void *)(shared + 5 * bytes);
    const room m = {shared, shared + bytes,        shared + 3 * bytes,
                    rows,   rows + 2 * BLOCK_KEYS, (int32_t *)(void *)(rows + 2 * BLOCK_KEYS + TILE)};
    return m;
}

/* Keys and values from `place` on, below `most`, to stage `stage`. Their rows have been named. */
CUDA_INLINE void fetch_keys(const int wide, const napier_attention_job *job, int64_t head, int stage, const room *m) {
    const int bytes = TILE * wide * 2;
    copy_lines(wide, &job->k, head, m->rows + stage * BLOCK_KEYS, m->keys + stage * bytes);
    copy_lines(wide, &job->v, head, m->rows + stage * BLOCK_KEYS, m->values + stage * bytes);
}

CUDA_INLINE void name_rows(const row_tile *t, int64_t place, int64_t most, int stage, const room *m) {
    if (threadIdx.x < BLOCK_KEYS) {
        const int64_t mine = place + threadIdx.x;
        m->rows[stage * BLOCK_KEYS + (int)threadIdx.x] = mine < most ? key_row(&t->s, mine) : -1;
    }
}

/* ---- Fragments --------------------------------------------------------------------------------------------------- */

CUDA_INLINE int lane_of(void) { return (int)threadIdx.x % CUDA_WARP; }
CUDA_INLINE int warp_of(void) { return (int)threadIdx.x / CUDA_WARP; }

/* 16 lines by 16 columns as mma's first operand. */
CUDA_INLINE void rows_fragment(const unsigned char *lines, int pieces, int line, int column, uint32_t out[4]) {
    const int lane = lane_of();
    cuda_ldmatrix_x4(out, lines + napier_mma_place(line + lane % 16, column / 8 + lane / 16, pieces));
}
/* As two second operands: the lines are columns of the product. */
CUDA_INLINE void lines_fragment(const unsigned char *lines, int pieces, int line, int column, uint32_t out[4]) {
    const int lane = lane_of();
    cuda_ldmatrix_x4(out, lines + napier_mma_place(line + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2, pieces));
}
/* The same where the lines are k. */
CUDA_INLINE void turned_fragment(const unsigned char *lines, int pieces, int line, int column, uint32_t out[4]) {
    const int lane = lane_of();
    cuda_ldmatrix_x4_turned(out, lines + napier_mma_place(line + lane % 16, column / 8 + lane / 16, pieces));
}

CUDA_INLINE void multiply(const bool f16, float d[4], const uint32_t a[4], const uint32_t b[2]) {
    if (f16) {
        cuda_mma_f16(d, a, b);
    } else {
        cuda_mma_bf16(d, a, b);
    }
}

/* ---- A warp's 16 rows -------------------------------------------------------------------------------------------- */

/* A thread has rows lane / 4 and lane / 4 + 8 of the warp's: elements 0, 1 and 2, 3 of each sum. */
typedef struct rows_state {
    float exponent[2], sum[2];
    float output[MOST_DIM / 8][4];
} rows_state;

typedef struct scores {
    float x[BLOCK_KEYS / 8][4];
} scores;

CUDA_INLINE int row_in_tile(int e) { return warp_of() * 16 + lane_of() / 4 + e / 2 * 8; }
CUDA_INLINE int key_in_block(int j, int e) { return j * 8 + lane_of() % 4 * 2 + e % 2; }

CUDA_INLINE void score(const bool f16, const int wide, const room *m, const unsigned char *keys, scores *s) {
    NAPIER_UNROLL
    for (int j = 0; j < BLOCK_KEYS / 8 * 4; j++) {
        s->x[j / 4][j % 4] = 0.0f;
    }
    NAPIER_UNROLL
    for (int i = 0; i < wide; i += 16) {
        uint32_t a[4];
        rows_fragment(m->queries, wide / 8, warp_of() * 16, i, a);
        NAPIER_UNROLL
        for (int j = 0; j < BLOCK_KEYS / 16; j++) {
            uint32_t b[4];
            lines_fragment(keys, wide / 8, j * 16, i, b);
            multiply(f16, s->x[2 * j], a, b);
            multiply(f16, s->x[2 * j + 1], a, b + 2);
        }
    }
}

/* The keys of the block to which row `e` of the thread attends, if there is no mask. */
CUDA_INLINE int keys_shown(const napier_attention_job *job, const row_tile *t, int64_t place, int e) {
    const int r = row_in_tile(e);
    const int64_t seen = r < t->rows ? keys_seen(job, &t->s, t->query + r) - place : 0;
    return seen < 0 ? 0 : seen < BLOCK_KEYS ? (int)seen : (int)BLOCK_KEYS;
}

/* The same with a mask. A few keys at a time, so that the compiler does not keep all addresses in registers. */
CUDA_INLINE void show_masked(const napier_attention_job *job, const row_tile *t, int64_t place, scores *s) {
    NAPIER_UNROLL
    for (int j = 0; j < BLOCK_KEYS / 8; j++) {
        NAPIER_UNROLL
        for (int e = 0; e < 4; e++) {
            const int r = row_in_tile(e), key = key_in_block(j, e);
            bool seen;
            s->x[j][e] = r < t->rows && place + key < t->s.keys
                             ? score_of(job, &t->s, t->query + r, t->head, place + key, s->x[j][e], &seen)
                             : -INFINITY;
        }
        __syncwarp();
    }
}

/* Scores in units of log 2, -inf where hidden. */
CUDA_INLINE void show(const napier_attention_job *job, const row_tile *t, int64_t place, scores *s) {
    if (job->mask) {
        show_masked(job, t, place, s);
        return;
    }
    const int shown[2] = {keys_shown(job, t, place, 0), keys_shown(job, t, place, 2)};
    NAPIER_UNROLL
    for (int j = 0; j < BLOCK_KEYS / 8; j++) {
        NAPIER_UNROLL
        for (int e = 0; e < 4; e++) {
            s->x[j][e] = key_in_block(j, e) < shown[e / 2] ? s->x[j][e] * job->factor : -INFINITY;
        }
    }
}

/* A row's maximum over the block; NaN is ignored. Four threads have the row. */
CUDA_INLINE float row_maximum(const scores *s, int half) {
    float max = -INFINITY;
    NAPIER_UNROLL
    for (int j = 0; j < BLOCK_KEYS / 8; j++) {
        max = s->x[j][2 * half] > max ? s->x[j][2 * half] : max;
        max = s->x[j][2 * half + 1] > max ? s->x[j][2 * half + 1] : max;
    }
    NAPIER_UNROLL
    for (int h = 1; h <= 2; h *= 2) {
        const float other = cuda_shuffle_xor_f32(max, h);
        max = other > max ? other : max;
    }
    return max;
}

/* Turns scores into weights, and rescales exponents, sums and outputs. */
CUDA_INLINE void weigh(const int wide, scores *s, rows_state *state) {
    NAPIER_UNROLL
    for (int half = 0; half < 2; half++) {
        const float exponent = rintf(row_maximum(s, half)), before = state->exponent[half];
        const bool raised = exponent > before;
        const float factor = raised && before > -INFINITY ? napier_rescale(before, exponent) : 1.0f;
        state->exponent[half] = raised ? exponent : before;
        const float level = state->exponent[half] == -INFINITY ? 0.0f : state->exponent[half];
        state->sum[half] *= factor;
        NAPIER_UNROLL
        for (int c = 0; c < wide / 8; c++) {
            state->output[c][2 * half] *= factor;
            state->output[c][2 * half + 1] *= factor;
        }
        NAPIER_UNROLL
        for (int j = 0; j < BLOCK_KEYS / 8; j++) {
            s->x[j][2 * half] = napier_weight(s->x[j][2 * half] - level);
            s->x[j][2 * half + 1] = napier_weight(s->x[j][2 * half + 1] - level);
            state->sum[half] += s->x[j][2 * half] + s->x[j][2 * half + 1];
        }
    }
}

/* Two weights, the first in the low half. A NaN may be any NaN: results are made canonical when they are stored. */
CUDA_INLINE uint32_t two(const bool f16, float x, float y) {
#if defined(__CUDACC__)
    uint32_t both;
    if (f16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    }
    return both;
#else
    const napier_dtype dtype = f16 ? NAPIER_F16 : NAPIER_BF16;
    return napier_narrow_bits(x, dtype) | napier_narrow_bits(y, dtype) << 16;
#endif
}

CUDA_INLINE void add_values(const bool f16, const int wide, const unsigned char *values, const scores *s,
                            rows_state *state) {
    NAPIER_UNROLL
    for (int i = 0; i < BLOCK_KEYS / 16; i++) {
        const float *const x = s->x[2 * i], *const y = s->x[2 * i + 1];
        const uint32_t a[4] = {two(f16, x[0], x[1]), two(f16, x[2], x[3]), two(f16, y[0], y[1]), two(f16, y[2], y[3])};
        NAPIER_UNROLL
        for (int c = 0; c < wide / 16; c++) {
            uint32_t b[4];
            turned_fragment(values, wide / 8, 16 * i, 16 * c, b);
            multiply(f16, state->output[2 * c], a, b);
            multiply(f16, state->output[2 * c + 1], a, b + 2);
        }
    }
}

/* ---- Infinities and NaN among the values
 * ------------------------------------------------------------------------------------ 0 times one of a hidden key
 * would be NaN. They are taken out before the product, and what they give to the rows that see them is added first:
 * what comes of that is an infinity or a NaN, whatever is added then. */

CUDA_INLINE bool is_special(const bool f16, uint32_t bits) {
    const uint32_t exponent = f16 ? 0x7c00 : 0x7f80;
    return (bits & exponent) == exponent;
}

/* Does this thread's share of the stage contain an inf or NaN? */
CUDA_INLINE bool meets_special(const bool f16, const int wide, const unsigned char *values) {
    bool special = false;
    for (int at = (int)threadIdx.x * 16; at < TILE * wide * 2; at += NAPIER_TENSOR_THREADS * 16) {
        const napier_words4 words = *(const napier_words4 *)(const void *)(values + at);
        NAPIER_UNROLL
        for (int i = 0; i < 4; i++) {
            special = special || is_special(f16, words.w[i]) || is_special(f16, words.w[i] >> 16);
        }
    }
    return special;
}

CUDA_INLINE uint16_t *value_at(unsigned char *values, const int wide, int key, int column) {
    return (uint16_t *)(void *)(values + napier_mma_place(key, column / 8, wide / 8)) + column % 8;
}

CUDA_INLINE void take_out_special(const bool f16, const int wide, unsigned char *values) {
    for (int at = (int)threadIdx.x; at < TILE * wide; at += NAPIER_TENSOR_THREADS) {
        uint16_t *const x = value_at(values, wide, at / wide, at % wide);
        *x = is_special(f16, *x) ? 0 : *x;
    }
}

/* This thread's weights to memory, [64 rows][64 keys] of bf16: of what becomes an infinity or a NaN only the sign
 * counts, and whether there is a weight at all. */
CUDA_INLINE void put_weights(const scores *s, uint16_t *weights) {
    NAPIER_UNROLL
    for (int j = 0; j < BLOCK_KEYS / 8; j++) {
        NAPIER_UNROLL
        for (int e = 0; e < 4; e++) {
            weights[row_in_tile(e) * BLOCK_KEYS + key_in_block(j, e)] =
                (uint16_t)napier_narrow_bits(s->x[j][e], NAPIER_BF16);
        }
    }
    __syncwarp();
}

/* Adds the special values of a key to one of the thread's rows. __syncwarp keeps the compiler from loading all values
 * at once, which would take registers from the code before and after. */
CUDA_INLINE void add_special_key(const bool f16, const int wide, unsigned char *values, int key, bool seen,
                                 float weight, int half, rows_state *state) {
    NAPIER_UNROLL
    for (int c = 0; c < wide / 8; c++) {
        const uint16_t *const at = value_at(values, wide, key, c * 8 + lane_of() % 4 * 2);
        NAPIER_UNROLL
        for (int i = 0; i < 2; i++) {
            float *const to = &state->output[c][2 * half + i];
            const float v = napier_widen(at[i], f16 ? NAPIER_F16 : NAPIER_BF16);
            *to = seen && is_special(f16, at[i]) ? fmaf(weight, v, *to) : *to;
        }
        __syncwarp();
    }
}

CUDA_INLINE void add_special(const bool f16, const int wide, const napier_attention_job *job, const row_tile *t,
                             int64_t place, unsigned char *values, const uint16_t *weights, rows_state *state) {
    for (int key = 0; key < BLOCK_KEYS && place + key < t->s.keys; key++) {
        NAPIER_UNROLL
        for (int half = 0; half < 2; half++) {
            const int r = row_in_tile(2 * half);
            const float weight = napier_widen(weights[r * BLOCK_KEYS + key], NAPIER_BF16);
            bool seen = false;
            if (r < t->rows) {
                (void)score_of(job, &t->s, t->query + r, t->head, place + key, 0.0f, &seen);
            }
            add_special_key(f16, wide, values, key, seen, weight, half, state);
        }
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

CUDA_INLINE void finish(const int wide, const napier_attention_job *job, const row_tile *t, const room *m,
                        rows_state *state) {
    NAPIER_UNROLL
    for (int half = 0; half < 2; half++) {
        float sum = state->sum[half];
        sum += cuda_shuffle_xor_f32(sum, 1);
        sum += cuda_shuffle_xor_f32(sum, 2);
        const int r = row_in_tile(2 * half);
        const bool empty = sum == 0.0f;
        const float factor = empty ? job->masked : 1.0f / sum;
        if (r >= t->rows) {
            continue;
        }
        NAPIER_UNROLL
        for (int c = 0; c < wide / 8 * 2; c++) {
            const int64_t column = c / 2 * 8 + lane_of() % 4 * 2 + c % 2;
            const float o = empty ? 0.0f : state->output[c / 2][2 * half + c % 2] + 0.0f;
            if (column < job->v.dim) {
                head_store(&job->output, m->row_tokens[r], t->head, column, o * factor);
            }
        }
        if (job->lse.data && lane_of() % 4 == 0) {
            float *const to = (float *)job->lse.data;
            to[m->row_tokens[r] * job->lse.row_stride + t->head * job->lse.col_stride] =
                sum > 0.0f ? napier_lse_of(state->exponent[half], sum)
                : empty    ? -INFINITY
                           : vf_canonical_nan();
        }
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Keys from `place` on, which are in the stage. */
CUDA_INLINE void attend(const bool f16, const int wide, const napier_attention_job *job, const row_tile *t,
                        int64_t place, int stage, const room *m, rows_state *state) {
    unsigned char *const values = m->values + stage * TILE * wide * 2, *const keys = m->keys + stage * TILE * wide * 2;
    const uint32_t special = cuda_ballot(meets_special(f16, wide, values));
    scores s;
    if (lane_of() == 0) {
        m->special[warp_of()] = special != 0;
    }
    score(f16, wide, m, keys, &s);
    show(job, t, place, &s);
    weigh(wide, &s, state);
    __syncthreads();
    if (m->special[0] | m->special[1] | m->special[2] | m->special[3]) { /* the keys are no longer needed */
        put_weights(&s, (uint16_t *)(void *)keys);
        add_special(f16, wide, job, t, place, values, (const uint16_t *)(const void *)keys, state);
        __syncthreads();
        take_out_special(f16, wide, values);
        __syncthreads();
    }
    add_values(f16, wide, values, &s, state);
}

CUDA_INLINE void start(const int wide, const napier_attention_job *job, const row_tile *t, int64_t most, const room *m,
                       rows_state *state) {
    if (threadIdx.x < TILE) {
        m->row_tokens[threadIdx.x] =
            (int)threadIdx.x < t->rows ? t->s.query_begin + t->query + (int64_t)threadIdx.x : -1;
    }
    name_rows(t, 0, most, 0, m);
    __syncthreads();
    copy_lines(wide, &job->q, t->head, m->row_tokens, m->queries);
    fetch_keys(wide, job, t->head / job->group, 0, m);
    cuda_copy_commit();
    NAPIER_UNROLL
    for (int half = 0; half < 2; half++) {
        state->exponent[half] = -INFINITY;
        state->sum[half] = 0.0f;
    }
    NAPIER_UNROLL
    for (int c = 0; c < MOST_DIM / 8 * 4; c++) {
        state->output[c / 4][c % 4] = 0.0f;
    }
}

CUDA_INLINE void attention(const bool f16, const int wide, const napier_attention_job *job) {
    CUDA_SHARED(unsigned char, shared);
    const napier_heads lse = {
        job->lse.data, job->lse.rows, job->lse.cols, 1, job->lse.row_stride, job->lse.col_stride, 1, NAPIER_F32};
    if (is_bad(job)) {
        fill_with_nan(&job->output);
        fill_with_nan(&lse);
        return;
    }
    const room m = room_of(wide, shared);
    const row_tile t = row_tile_of(job, TILE);
    if (t.rows == 0) {
        return;
    }
    const int64_t most = keys_seen(job, &t.s, t.query + t.rows - 1);
    rows_state state;
    start(wide, job, &t, most, &m, &state);
    int stage = 0;
    for (int64_t place = 0; place < most; place += BLOCK_KEYS, stage ^= 1) {
        name_rows(&t, place + BLOCK_KEYS, most, stage ^ 1, &m);
        cuda_copy_wait(0);
        __syncthreads(); /* this stage is there, the other free */
        fetch_keys(wide, job, t.head / job->group, stage ^ 1, &m);
        cuda_copy_commit();
        attend(f16, wide, job, &t, place, stage, &m, &state);
    }
    cuda_copy_wait(0);
    finish(wide, job, &t, &m, &state);
}

#define ATTENTION(name, f16, wide) \
    CUDA_KERNEL(name, napier_attention_job, NAPIER_TENSOR_THREADS) { attention(f16, wide, &job); }

ATTENTION(napier_attention_bf16_64, false, 64)
ATTENTION(napier_attention_bf16_128, false, 128)
ATTENTION(napier_attention_f16_64, true, 64)
ATTENTION(napier_attention_f16_128, true, 128)
