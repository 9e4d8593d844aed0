/* ops/linear/gpu/matmul.cu - the matrix product in plain multiply-adds, in the CPU's
 * order (napier/linear.h), with the same bits.
 *
 * A block of 256 threads has a tile of 128 x 128 outputs, and each thread 8 x 8 of them (128 x 64 and 8 x 4 if an
 * output has three sums). 16 k of both sides at a time are widened into shared memory, [k][row], while the next 16 are
 * loaded into registers. Each output is one chain, so the size of the tile is chosen for speed only. For each k a
 * thread reads 16 floats in four accesses and does 64 multiply-adds. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "ops/linear/gpu/elements.cuh"
#include "ops/linear/gpu/matmul_cuda.h"

enum {
    STAGE_K = NAPIER_MATMUL_K,
    THREAD_ROWS = 8,
    PIECE = 4,        /* elements that a thread fetches together */
    PAIRS_BLOCK = 32, /* k between two additions to the accumulator, in the order of bf16 by bf16 */
    TINY_EXPONENT = 127 - 56
};

/* ---- Sides to shared memory -------------------------------------------------------------------------------------- */

/* Four elements of a side in their stored form: f32 one to a word, others two to a word. */
typedef struct piece {
    uint32_t w[PIECE];
} piece;

/* Piece i of a stage. If the side lies along k, neighbouring threads have neighbouring
 * rows; if it lies across, four rows of one k. */
CUDA_INLINE int piece_row(const napier_side *s, int i, int tile_rows) {
    return s->layout == NAPIER_SIDE_ACROSS ? i % (tile_rows / PIECE) * PIECE : i % tile_rows;
}
CUDA_INLINE int piece_k(const napier_side *s, int i, int tile_rows) {
    return s->layout == NAPIER_SIDE_ACROSS ? i / (tile_rows / PIECE) : i / tile_rows * PIECE;
}

CUDA_INLINE piece fetch_one_by_one(const napier_side *s, int64_t row, int64_t k, int64_t k_end) {
    const bool across = s->layout == NAPIER_SIDE_ACROSS;
    piece p = {{0, 0, 0, 0}};
    for (int j = 0; j < PIECE; j++) {
        const int64_t r = row + (across ? j : 0), i = k + (across ? 0 : j);
        if (r < s->rows && i < k_end) {
            const uint32_t bits = napier_load_bits(s->data, s->dtype, r * s->row_stride + i * s->k_stride);
            if (s->dtype == NAPIER_F32) {
                p.w[j] = bits;
            } else {
                p.w[j / 2] |= bits << 16 * (j % 2);
            }
        }
    }
    return p;
}

/* Missing rows and k give +0. */
CUDA_INLINE piece fetch(const napier_side *s, int64_t row, int64_t k, int64_t k_end) {
    const bool across = s->layout == NAPIER_SIDE_ACROSS;
    const bool whole = across ? row + PIECE <= s->rows && k < k_end : row < s->rows && k + PIECE <= k_end;
    if (!whole || s->layout == NAPIER_SIDE_ANY) {
        return fetch_one_by_one(s, row, k, k_end);
    }
    const char *const from = napier_element(s->data, s->dtype, row * s->row_stride + k * s->k_stride);
    piece p = {{0, 0, 0, 0}};
    if (s->dtype == NAPIER_F32) {
        const napier_words4 words = *(const napier_words4 *)(const void *)from;
        memcpy(p.w, words.w, sizeof p.w);
    } else {
        const napier_words2 words = *(const napier_words2 *)(const void *)from;
        memcpy(p.w, words.w, sizeof words.w);
    }
    return p;
}

CUDA_INLINE float piece_element(const piece *p, napier_dtype dtype, int j) {
    return napier_widen(dtype == NAPIER_F32 ? p->w[j] : p->w[j / 2] >> 16 * (j % 2) & 0xffff, dtype);
}

/* Subnormals become 0 with their sign. *tiny is set if an element other than 0 is below 2^-56. */
CUDA_INLINE float flushed_element(float x, bool *tiny) {
    const uint32_t exponent = (uint32_t)vf_bits(x) >> 23 & 0xff;
    *tiny = *tiny || (exponent > 0 && exponent < TINY_EXPONENT);
    return napier_flush(x);
}

/* Widens a piece to its place. */
CUDA_INLINE void put(const napier_side *s, const piece *p, int row, int k, int tile_rows, bool pairs, float *stage,
                     bool *tiny) {
    const int step = tile_rows + NAPIER_MATMUL_STAGE_ROW;
    float x[PIECE];
    NAPIER_UNROLL
    for (int j = 0; j < PIECE; j++) {
        x[j] = piece_element(p, s->dtype, j);
        x[j] = pairs ? flushed_element(x[j], tiny) : x[j];
    }
    if (s->layout == NAPIER_SIDE_ACROSS) {
        const napier_four four = {{x[0], x[1], x[2], x[3]}};
        *(napier_four *)(void *)(stage + k * step + row) = four;
    } else {
        NAPIER_UNROLL
        for (int j = 0; j < PIECE; j++) {
            stage[(k + j) * step + row] = x[j];
        }
    }
}

/* ---- A thread's outputs ------------------------------------------------------------------------------------------ */

typedef struct sums {
    float x[THREAD_ROWS][THREAD_ROWS]; /* of 4 columns, where there are so many */
} sums;

/* Its rows and columns are in groups of four, 64 apart, so that a warp's accesses to shared memory cover all banks. */
CUDA_INLINE int thread_row(int r) { return r / 4 * 64 + (int)threadIdx.x / 16 * 4 + r % 4; }
CUDA_INLINE int thread_column(int c) { return c / 4 * 64 + (int)threadIdx.x % 16 * 4 + c % 4; }

CUDA_INLINE void read_fours(const float *stage, int at, int count, float *x) {
    NAPIER_UNROLL
    for (int i = 0; i < count; i += 4) {
        const napier_four four = *(const napier_four *)(const void *)(stage + at + i * 16);
        NAPIER_UNROLL
        for (int j = 0; j < 4; j++) {
            x[i + j] = four.x[j];
        }
    }
}

/* One k of a stage. */
CUDA_INLINE void add_step(const float *rows, const float *columns, int k, int width, bool care, sums *sum) {
    float a[THREAD_ROWS], b[THREAD_ROWS];
    read_fours(rows + k * (NAPIER_MATMUL_ROWS + NAPIER_MATMUL_STAGE_ROW), thread_row(0), THREAD_ROWS, a);
    read_fours(columns + k * (16 * width + NAPIER_MATMUL_STAGE_ROW), thread_column(0), width, b);
    NAPIER_UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        NAPIER_UNROLL
        for (int c = 0; c < width; c++) {
            sum->x[r][c] = care ? napier_fma_flushed(a[r], b[c], sum->x[r][c]) : fmaf(a[r], b[c], sum->x[r][c]);
        }
    }
}

CUDA_INLINE void clear(int width, sums *sum) {
    NAPIER_UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        NAPIER_UNROLL
        for (int c = 0; c < width; c++) {
            sum->x[r][c] = 0.0f;
        }
    }
}

/* total += even + odd, and both start from 0 again. */
CUDA_INLINE void fold_pairs(int width, sums *total, sums *even, sums *odd) {
    NAPIER_UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        NAPIER_UNROLL
        for (int c = 0; c < width; c++) {
            total->x[r][c] = napier_add_flushed(total->x[r][c], napier_add_flushed(even->x[r][c], odd->x[r][c]));
        }
    }
    clear(width, even);
    clear(width, odd);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

typedef struct tile {
    int64_t row, column; /* of its first output */
} tile;

/* The order of tiles: bands of NAPIER_MATMUL_BAND row tiles; in a band all row tiles of
 * a column tile, then the next column tile. */
CUDA_INLINE tile tile_of(const napier_matmul_job *job, int width) {
    const int64_t i = blockIdx.x, band_tiles = NAPIER_MATMUL_BAND * job->column_tiles, band = i / band_tiles;
    const int64_t left = job->row_tiles - band * NAPIER_MATMUL_BAND;
    const int64_t height = left < NAPIER_MATMUL_BAND ? left : NAPIER_MATMUL_BAND, in = i - band * band_tiles;
    const tile t = {(band * NAPIER_MATMUL_BAND + in % height) * NAPIER_MATMUL_ROWS, in / height * 16 * width};
    return t;
}

CUDA_INLINE bool stores_fours(const napier_matrix *m, int64_t row, int64_t column) {
    return m->dtype == NAPIER_F32 && m->col_stride == 1 && column + 4 <= m->cols &&
           ((uintptr_t)((float *)m->data + row * m->row_stride + column) & 15) == 0;
}

CUDA_INLINE void store_four(const napier_matrix *m, int64_t row, int64_t column, const float *x) {
    if (stores_fours(m, row, column)) {
        const napier_four four = {{napier_canonical_float(x[0]), napier_canonical_float(x[1]),
                                   napier_canonical_float(x[2]), napier_canonical_float(x[3])}};
        *(napier_four *)(void *)((float *)m->data + row * m->row_stride + column) = four;
        return;
    }
    NAPIER_UNROLL
    for (int j = 0; j < 4; j++) {
        if (column + j < m->cols) {
            napier_store_float(m->data, m->dtype, row * m->row_stride + (column + j) * m->col_stride, x[j]);
        }
    }
}

CUDA_INLINE void store_tile(const napier_matrix *m, const tile *t, int width, const sums *sum) {
    NAPIER_UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        const int64_t row = t->row + thread_row(r);
        NAPIER_UNROLL
        for (int c = 0; c < width; c += 4) {
            if (row < m->rows) {
                store_four(m, row, t->column + thread_column(c), sum->x[r] + c);
            }
        }
    }
}

/* The value from which a chain continues. */
CUDA_INLINE void load_tile(const napier_matrix *m, const tile *t, int width, sums *sum) {
    NAPIER_UNROLL
    for (int r = 0; r < THREAD_ROWS; r++) {
        const int64_t row = t->row + thread_row(r);
        NAPIER_UNROLL
        for (int c = 0; c < width; c++) {
            const int64_t column = t->column + thread_column(c);
            if (row < m->rows && column < m->cols) {
                sum->x[r][c] = ((const float *)m->data)[row * m->row_stride + column * m->col_stride];
            }
        }
    }
}

/* ---- The kernels ------------------------------------------------------------------------------------------------- */

/* Pieces that a thread fetches of a stage: of the rows, then of the columns. */
enum { ROW_PIECES = (int)NAPIER_MATMUL_ROWS * (int)STAGE_K / (int)PIECE / (int)NAPIER_MATMUL_THREADS };
enum { MOST_PIECES = 2 * ROW_PIECES };

typedef struct stages { /* two of each */
    float *rows, *columns;
    int32_t *tiny; /* a stage's elements may make results subnormal */
} stages;

CUDA_INLINE int stage_floats(int tile_rows) { return STAGE_K * (tile_rows + NAPIER_MATMUL_STAGE_ROW); }

CUDA_INLINE stages stages_of(float *shared, int width) {
    float *const columns = shared + 2 * stage_floats(NAPIER_MATMUL_ROWS);
    const stages s = {shared, columns, (int32_t *)(void *)(columns + 2 * stage_floats(16 * width))};
    return s;
}
CUDA_INLINE float *stage_rows(const stages *s, int buffer) {
    return s->rows + buffer * stage_floats(NAPIER_MATMUL_ROWS);
}
CUDA_INLINE float *stage_columns(const stages *s, int buffer, int width) {
    return s->columns + buffer * stage_floats(16 * width);
}

CUDA_INLINE void fetch_stage(const napier_matmul_job *job, const tile *t, int width, int64_t k, piece *pieces) {
    NAPIER_UNROLL
    for (int i = 0; i < ROW_PIECES + width / 4; i++) {
        const bool of_rows = i < ROW_PIECES;
        const napier_side *const s = of_rows ? &job->rows : &job->columns;
        const int tile_rows = of_rows ? NAPIER_MATMUL_ROWS : 16 * width;
        const int at = (int)threadIdx.x + (of_rows ? i : i - ROW_PIECES) * NAPIER_MATMUL_THREADS;
        pieces[i] = fetch(s, (of_rows ? t->row : t->column) + piece_row(s, at, tile_rows),
                          k + piece_k(s, at, tile_rows), job->k);
    }
}

CUDA_INLINE void put_stage(const napier_matmul_job *job, const stages *s, int buffer, int width, bool pairs,
                           const piece *pieces) {
    bool tiny = false;
    NAPIER_UNROLL
    for (int i = 0; i < ROW_PIECES + width / 4; i++) {
        const bool of_rows = i < ROW_PIECES;
        const napier_side *const side = of_rows ? &job->rows : &job->columns;
        const int tile_rows = of_rows ? NAPIER_MATMUL_ROWS : 16 * width;
        const int at = (int)threadIdx.x + (of_rows ? i : i - ROW_PIECES) * NAPIER_MATMUL_THREADS;
        put(side, &pieces[i], piece_row(side, at, tile_rows), piece_k(side, at, tile_rows), tile_rows, pairs,
            of_rows ? stage_rows(s, buffer) : stage_columns(s, buffer, width), &tiny);
    }
    if (pairs && tiny) {
        s->tiny[buffer] = 1;
    }
}

/* One chain over k. No step is added to fill up the last stage, because that could make a -0 a +0. */
CUDA_INLINE void add_chain(const stages *s, int buffer, int64_t steps, sums *sum) {
    const float *const rows = stage_rows(s, buffer), *const columns = stage_columns(s, buffer, THREAD_ROWS);
    if (steps >= STAGE_K) {
        NAPIER_UNROLL
        for (int k = 0; k < STAGE_K; k++) {
            add_step(rows, columns, k, THREAD_ROWS, false, sum);
        }
        return;
    }
    for (int k = 0; k < (int)steps; k++) {
        add_step(rows, columns, k, THREAD_ROWS, false, sum);
    }
}

CUDA_INLINE void add_pairs(const stages *s, int buffer, bool care, sums *even, sums *odd) {
    const float *const rows = stage_rows(s, buffer), *const columns = stage_columns(s, buffer, 4);
    if (care) {
        for (int k = 0; k < STAGE_K; k += 2) {
            add_step(rows, columns, k, 4, true, even);
            add_step(rows, columns, k + 1, 4, true, odd);
        }
        return;
    }
    NAPIER_UNROLL
    for (int k = 0; k < STAGE_K; k += 2) {
        add_step(rows, columns, k, 4, false, even);
        add_step(rows, columns, k + 1, 4, false, odd);
    }
}

CUDA_KERNEL(napier_matmul_chain, napier_matmul_job, NAPIER_MATMUL_THREADS) {
    CUDA_SHARED(float, shared);
    enum { WIDTH = THREAD_ROWS };
    const stages s = stages_of(shared, WIDTH);
    const tile t = tile_of(&job, WIDTH);
    piece pieces[MOST_PIECES];
    sums sum;
    clear(WIDTH, &sum);
    if (job.add) {
        load_tile(&job.product, &t, WIDTH, &sum);
    }
    fetch_stage(&job, &t, WIDTH, 0, pieces);
    put_stage(&job, &s, 0, WIDTH, false, pieces);
    __syncthreads();
    int buffer = 0;
    for (int64_t k = 0; k < job.k; k += STAGE_K, buffer ^= 1) {
        const bool more = k + STAGE_K < job.k;
        if (more) {
            fetch_stage(&job, &t, WIDTH, k + STAGE_K, pieces);
        }
        add_chain(&s, buffer, job.k - k, &sum);
        if (more) {
            put_stage(&job, &s, buffer ^ 1, WIDTH, false, pieces);
        }
        __syncthreads();
    }
    store_tile(&job.product, &t, WIDTH, &sum);
}

/* k is filled up with +0 to a multiple of 32. */
CUDA_KERNEL(napier_matmul_pairs, napier_matmul_job, NAPIER_MATMUL_THREADS) {
    CUDA_SHARED(float, shared);
    enum { WIDTH = 4 };
    const stages s = stages_of(shared, WIDTH);
    const tile t = tile_of(&job, WIDTH);
    const int64_t filled = (job.k + PAIRS_BLOCK - 1) / PAIRS_BLOCK * PAIRS_BLOCK;
    piece pieces[MOST_PIECES];
    sums total, even, odd;
    clear(WIDTH, &total);
    clear(WIDTH, &even);
    clear(WIDTH, &odd);
    if (threadIdx.x < 2) {
        s.tiny[threadIdx.x] = 0;
    }
    __syncthreads();
    fetch_stage(&job, &t, WIDTH, 0, pieces);
    put_stage(&job, &s, 0, WIDTH, true, pieces);
    __syncthreads();
    bool care = false; /* from the first tiny element on */
    int buffer = 0;
    for (int64_t k = 0; k < filled; k += STAGE_K, buffer ^= 1) {
        const bool more = k + STAGE_K < filled;
        if (more) {
            fetch_stage(&job, &t, WIDTH, k + STAGE_K, pieces);
        }
        care = care || s.tiny[buffer] != 0;
        add_pairs(&s, buffer, care, &even, &odd);
        if (buffer == 1) { /* stages come in twos, blocks of 32 k */
            fold_pairs(WIDTH, &total, &even, &odd);
        }
        if (more) {
            put_stage(&job, &s, buffer ^ 1, WIDTH, true, pieces);
        }
        __syncthreads();
    }
    store_tile(&job.product, &t, WIDTH, &total);
}
