/* ops/linear/gpu/mma.cuh - the main loop of all products on tensor cores: a block's 128 x 128 tile of rows [m, k] by
 * columns [n, k], 16-bit elements, f32 sums. It can be replaced as a whole on devices with better instructions (wgmma
 * and TMA of sm_90): its callers use only napier_mma_loop, napier_mma_sums, napier_mma_row and
 * napier_mma_column.
 *
 * 128 threads; each of the four warps has 64 x 64 outputs, 128 sums a thread. Asynchronous copies of 16 bytes load
 * stages of 64 k, two stages ahead of the current one. Three stages of 32 KB allow two blocks on a processor, so that
 * one multiplies while the other starts or ends. For every 16 k a warp reads 4 KB of fragments (8 ldmatrix) for 32 mma.
 *
 * A stage of a side is stored as it is loaded: [row][64 k] if the side lies along k, and [64 k][row] if it lies across,
 * in which case it is transposed on its way to registers. The 16-byte pieces of a line are permuted by the line's
 * number modulo 8, so that neither writes nor reads have bank conflicts.
 *
 * Order. A sum runs over k ascending in steps of 16. The tensor core adds each step to the sum of the earlier ones,
 * whatever the tile, the row's place in it and the batch. So a row's bits do not depend on the batch. The order inside
 * a step is up to the device. k beyond the end and rows beyond the last are 0. */
#ifndef NAPIER_OPS_LINEAR_GPU_MMA_CUH
#define NAPIER_OPS_LINEAR_GPU_MMA_CUH

#include "ops/linear/gpu/elements.cuh"
#include "ops/linear/gpu/matmul_cuda.h"

typedef struct napier_mma_sums {
    float x[4][8][4]; /* [16 rows][8 columns][element]: as mma.sync m16n8k16 has them */
} napier_mma_sums;

/* The position of this thread's sum [i][j][e] in the tile. */
CUDA_INLINE int napier_mma_row(int i, int e) {
    const int warp = (int)threadIdx.x / CUDA_WARP, lane = (int)threadIdx.x % CUDA_WARP;
    return warp % 2 * 64 + i * 16 + e / 2 * 8 + lane / 4;
}
CUDA_INLINE int napier_mma_column(int j, int e) {
    const int warp = (int)threadIdx.x / CUDA_WARP, lane = (int)threadIdx.x % CUDA_WARP;
    return warp / 2 * 64 + j * 8 + lane % 4 * 2 + e % 2;
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

/* Byte of piece `piece` (8 elements) of line `line`, lines of `pieces` pieces. */
CUDA_INLINE int napier_mma_place(int line, int piece, int pieces) {
    return (line * pieces + (piece ^ (line & 7))) * 16;
}

/* The bytes of a piece of 8 elements that exist, if `left` elements are left. */
CUDA_INLINE int napier_mma_piece_bytes(int64_t left) { return left >= 8 ? 16 : left > 0 ? (int)left * 2 : 0; }

/* Lines first, first + by, ... below `lines`, of which the first `there` exist: piece `piece` of each, `bytes` of it.
 * Lines that are a multiple of 8 apart exchange pieces alike; `step` is from one to the next, in bytes, of x and of the
 * stage. */
CUDA_INLINE void napier_mma_copy_lines(const napier_side *s, const char *from, int64_t step, int bytes, int there,
                                       const int lines, const int by, const int line_bytes, unsigned char *to) {
    NAPIER_UNROLL
    for (int i = 0; i < lines; i += by) {
        const bool copied = bytes > 0 && i < there;
        cuda_copy_async_part(to + i * line_bytes, copied ? (const void *)from : s->data, copied ? bytes : 0);
        from += step;
    }
}

CUDA_INLINE int napier_mma_most(int64_t left) { return left < NAPIER_MMA_ROWS ? (int)left : (int)NAPIER_MMA_ROWS; }

CUDA_INLINE void napier_mma_copy_along(const napier_side *s, int64_t row, int64_t k, int64_t k_end,
                                       unsigned char *stage) {
    const int first = (int)threadIdx.x / 8, piece = (int)threadIdx.x % 8;
    const char *const from = (const char *)s->data + ((row + first) * s->row_stride + k + 8 * piece) * 2;
    napier_mma_copy_lines(s, from, 32 * s->row_stride, napier_mma_piece_bytes(k_end - k - 8 * piece),
                          napier_mma_most(s->rows - row - first), NAPIER_MMA_ROWS, 16, 128,
                          stage + napier_mma_place(first, piece, 8));
}

CUDA_INLINE void napier_mma_copy_across(const napier_side *s, int64_t row, int64_t k, int64_t k_end,
                                        unsigned char *stage) {
    const int first = (int)threadIdx.x / 16, piece = (int)threadIdx.x % 16;
    const char *const from = (const char *)s->data + ((k + first) * s->k_stride + row + 8 * piece) * 2;
    napier_mma_copy_lines(s, from, 16 * s->k_stride, napier_mma_piece_bytes(s->rows - row - 8 * piece),
                          napier_mma_most(k_end - k - first), NAPIER_MMA_K, 8, 256,
                          stage + napier_mma_place(first, piece, 16));
}

/* Element by element: any strides, any alignment. Stored as a side along k is. */
CUDA_INLINE void napier_mma_copy_any(const napier_side *s, int64_t row, int64_t k, int64_t k_end,
                                     unsigned char *stage) {
    for (int at = (int)threadIdx.x; at < NAPIER_MMA_ROWS * 8; at += NAPIER_MMA_THREADS) {
        const int line = at / 8, piece = at % 8;
        napier_words4 words = {{0, 0, 0, 0}};
        NAPIER_UNROLL
        for (int j = 0; j < 8; j++) {
            const int64_t r = row + line, i = k + 8 * piece + j;
            const uint16_t *const x = (const uint16_t *)s->data;
            const uint32_t bits = r < s->rows && i < k_end ? x[r * s->row_stride + i * s->k_stride] : 0;
            words.w[j / 2] |= bits << 16 * (j % 2);
        }
        *(napier_words4 *)(void *)(stage + napier_mma_place(line, piece, 8)) = words;
    }
}

/* across is a constant that agrees with s->layout. */
CUDA_INLINE void napier_mma_copy(bool across, const napier_side *s, int64_t row, int64_t k, int64_t k_end,
                                 unsigned char *stage) {
    if (across) {
        napier_mma_copy_across(s, row, k, k_end, stage);
    } else if (s->layout == NAPIER_SIDE_ALONG) {
        napier_mma_copy_along(s, row, k, k_end, stage);
    } else {
        napier_mma_copy_any(s, row, k, k_end, stage);
    }
}

/* ---- Fragments --------------------------------------------------------------------------------------------------- */

/* Four matrices of 8 x 8 at (row, k) of a stage: rows and rows + 8, k and k + 8. rows_first: in the order (row, k),
 * (row + 8, k), (row, k + 8), (row + 8, k + 8), as the first operand of mma has them; else k comes first, as two of the
 * second operand have them. */
CUDA_INLINE void napier_mma_fragment(const unsigned char *stage, bool across, bool rows_first, int row, int k,
                                     uint32_t out[4]) {
    const int lane = (int)threadIdx.x % CUDA_WARP, in = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int row_part = rows_first ? low : high, k_part = rows_first ? high : low;
    if (across) {
        const int line = k + k_part + in, piece = (row + row_part) / 8;
        cuda_ldmatrix_x4_turned(out, stage + napier_mma_place(line, piece, 16));
    } else {
        const int line = row + row_part + in, piece = (k + k_part) / 8;
        cuda_ldmatrix_x4(out, stage + napier_mma_place(line, piece, 8));
    }
}

CUDA_INLINE void napier_mma_step(bool f16, bool rows_across, bool columns_across, const unsigned char *stage, int k,
                                 napier_mma_sums *sum) {
    const int warp = (int)threadIdx.x / CUDA_WARP;
    uint32_t a[4][4], b[4][4];
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        napier_mma_fragment(stage, rows_across, true, warp % 2 * 64 + i * 16, k, a[i]);
    }
    NAPIER_UNROLL
    for (int j = 0; j < 4; j++) {
        napier_mma_fragment(stage + NAPIER_MMA_SIDE_BYTES, columns_across, false, warp / 2 * 64 + j * 16, k, b[j]);
    }
    NAPIER_UNROLL
    for (int i = 0; i < 4; i++) {
        NAPIER_UNROLL
        for (int j = 0; j < 8; j++) {
            if (f16) {
                cuda_mma_f16(sum->x[i][j], a[i], b[j / 2] + j % 2 * 2);
            } else {
                cuda_mma_bf16(sum->x[i][j], a[i], b[j / 2] + j % 2 * 2);
            }
        }
    }
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

typedef struct napier_mma_tile {
    const napier_side *rows, *columns;
    int64_t row, column; /* of the tile */
    int64_t k;
    unsigned char *shared; /* NAPIER_MMA_SHARED bytes */
} napier_mma_tile;

CUDA_INLINE void napier_mma_fetch(bool rows_across, bool columns_across, const napier_mma_tile *t, int64_t step) {
    const int64_t k = step * NAPIER_MMA_K;
    if (k < t->k) {
        unsigned char *const stage = t->shared + step % NAPIER_MMA_STAGES * 2 * NAPIER_MMA_SIDE_BYTES;
        napier_mma_copy(rows_across, t->rows, t->row, k, t->k, stage);
        napier_mma_copy(columns_across, t->columns, t->column, k, t->k, stage + NAPIER_MMA_SIDE_BYTES);
    }
    cuda_copy_commit();
}

/* The layouts are constants here: across or not. */
CUDA_INLINE void napier_mma_loop(bool f16, bool rows_across, bool columns_across, const napier_mma_tile *t,
                                 napier_mma_sums *sum) {
    const int64_t steps = (t->k + NAPIER_MMA_K - 1) / NAPIER_MMA_K;
    for (int64_t step = 0; step < NAPIER_MMA_STAGES - 1; step++) {
        napier_mma_fetch(rows_across, columns_across, t, step);
    }
    for (int64_t step = 0; step < steps; step++) {
        cuda_copy_wait(NAPIER_MMA_STAGES - 2);
        __syncthreads(); /* all threads have the stage, and the previous one is free */
        napier_mma_fetch(rows_across, columns_across, t, step + NAPIER_MMA_STAGES - 1);
        const unsigned char *const stage = t->shared + step % NAPIER_MMA_STAGES * 2 * NAPIER_MMA_SIDE_BYTES;
        NAPIER_UNROLL
        for (int k = 0; k < NAPIER_MMA_K; k += 16) {
            napier_mma_step(f16, rows_across, columns_across, stage, k, sum);
        }
    }
    cuda_copy_wait(0);
    __syncthreads(); /* shared memory may be used for other things */
}

CUDA_INLINE void napier_mma_clear(napier_mma_sums *sum) {
    NAPIER_UNROLL
    for (int i = 0; i < 4 * 8 * 4; i++) {
        sum->x[i / 32][i / 4 % 8][i % 4] = 0.0f;
    }
}

/* The order of tiles: bands of NAPIER_MMA_BAND row tiles; in a band all row tiles of
 * a column tile, then the next column tile. */
CUDA_INLINE void napier_mma_tile_of(int64_t index, int64_t row_tiles, int64_t column_tiles, int64_t *row,
                                    int64_t *column) {
    const int64_t band_tiles = NAPIER_MMA_BAND * column_tiles, band = index / band_tiles, in = index % band_tiles;
    const int64_t left = row_tiles - band * NAPIER_MMA_BAND, height = left < NAPIER_MMA_BAND ? left : NAPIER_MMA_BAND;
    *row = (band * NAPIER_MMA_BAND + in % height) * NAPIER_MMA_ROWS;
    *column = in / height * NAPIER_MMA_COLUMNS;
}

#endif
