/* ops/linear/product_kernels.h - the kernels of a matrix product, which
 * product.inc.h implements for all instruction sets.
 *
 * A product has two sides that share k: `lanes`, whose rows become the lanes of vectors, and `rows`, whose elements are
 * broadcast, one row at a time:
 *
 *     c[r][l] = sum_k rows[r][k] * lanes[l][k]
 *
 * Either operand of the caller may be either side: the bits are the same. Both are cut into blocks of NAPIER_K_BLOCK
 * and packed as f32. k is filled up with +0 where the order requires it. c holds the partial sums between blocks.
 *
 * There are two orders (napier/linear.h): one chain over k, and the blocks of 32 of bf16 by bf16. A split product is
 * three of bf16 by bf16. */
#ifndef NAPIER_OPS_LINEAR_PRODUCT_KERNELS_H
#define NAPIER_OPS_LINEAR_PRODUCT_KERNELS_H

#include <napier/types.h>
#include <stdbool.h>

#include "core/math/blocks.h"

enum {
    NAPIER_LANES = 32, /* of a packed panel */
    NAPIER_FEW = 8,
    NAPIER_FEW_AHEAD = 512, /* bytes, as is the next: napier_few_fetch */
    NAPIER_FEW_TOGETHER = 128 << 10,
    NAPIER_K_BLOCK = 256, /* 12 rows of it are 12 KB: they stay in the first-level cache while they are multiplied */
    NAPIER_ROW_STEP =
        NAPIER_K_BLOCK + 16, /* a packed row: not a power of two, so that rows do not all map to one cache set */
    NAPIER_ROW_GROUP = 48,   /* rows packed together: whole patches of any instruction set */
    NAPIER_DIRECT_ROOM = 8 * (512 + 16), /* floats: 8 rows, 512 k */
    NAPIER_PAIRS_BLOCK = 32,             /* k that bf16 by bf16 adds up before it adds to the accumulator */
    NAPIER_PIECES = 3,                   /* of bf16 make an f32 (napier/linear.h: napier_matmul_split) */
    NAPIER_PIECE_LANES = 16              /* of a panel that hold one piece of as many lanes */
};

/* One step of a product: a block of k. */
typedef struct napier_product_block {
    const float *rows; /* [row_count][NAPIER_ROW_STEP] */
    int64_t row_count;
    const float *panels; /* panel p at panels + p * panel_step: [k][NAPIER_LANES] */
    int64_t panel_step;
    int64_t lanes; /* a multiple of 16; only half of the last panel may be used */
    int64_t k;     /* at most NAPIER_K_BLOCK; in pairs a multiple of NAPIER_PAIRS_BLOCK */
    float *c;      /* [row_count][c_step]: lane l of row r */
    int64_t c_step;
    bool first; /* c starts from 0 here */
} napier_product_block;

/* One step of a product whose rows are not packed: they lie along k. */
typedef struct napier_direct_block {
    const void *rows; /* [row_count, cols] of `dtype`, row_step bytes apart */
    napier_dtype dtype;
    int64_t row_count, row_step;
    int64_t cols;        /* of the rows; in pairs k may be more, as if the rows were filled up */
    float *room;         /* NAPIER_DIRECT_ROOM floats for rows that must be widened; NULL: they are f32 */
    const float *panels; /* panel p at panels + p * panel_step: [k][NAPIER_LANES] */
    int64_t panel_step;
    int64_t lanes; /* a multiple of 16 */
    int64_t k;
    float *c; /* [row_count][c_step]: lane l of row r */
    int64_t c_step;
    bool first; /* c starts from 0 here */
} napier_direct_block;

static inline int64_t napier_few_width(int64_t lanes) {
    return lanes <= 2 ? (lanes < 1 ? 1 : lanes) : lanes <= 4 ? 4 : NAPIER_FEW;
}

/* The product of many rows with at most NAPIER_FEW lanes. The rows lie along k, and are read directly from memory. */
typedef struct napier_few_block {
    const void *rows; /* [row_count, k] of `dtype`, row_step bytes apart */
    napier_dtype dtype;
    int64_t row_count, row_step;
    const float *lane_data; /* [k][width], f32; in pairs k is filled up with 0 */
    int64_t lanes, width;   /* lanes <= width; width 1, 2, 4 or NAPIER_FEW */
    int64_t k;
    bool add; /* c has the sums over earlier k; not in pairs */
    float *c; /* [row_count][c_step]: lane l of row r */
    int64_t c_step;
} napier_few_block;

/* With the lines at byte `at` of 16 rows of so many bytes, prefetches 16 lines that come later, into the second-level cache: the
 * first waits for fewer lines at a time, so that weights would come at half the speed of memory (Zen 4). Rows that follow one
 * another, up to NAPIER_FEW_TOGETHER, are prefetched in the order of memory, 16 rows ahead, and others NAPIER_FEW_AHEAD bytes
 * ahead in each row. The lines may be beyond the array. */
static inline void napier_few_fetch(const void *rows, int64_t at, int64_t bytes, int64_t row_step) {
    const bool together = row_step == bytes && 16 * bytes <= NAPIER_FEW_TOGETHER;
    uintptr_t line = (uintptr_t)rows;
    int64_t ahead = together ? 16 * (bytes + at) : at + NAPIER_FEW_AHEAD;
    for (; !together && ahead >= bytes; ahead -= bytes) {
        line += 16 * (uintptr_t)row_step;
    }
    line += (uintptr_t)ahead;
    for (int i = 0; i < 16; i++, line += (uintptr_t)(together ? 64 : row_step)) {
        __builtin_prefetch((const void *)line, 0, 2);
    }
}

typedef struct napier_product_kernels {
    /* Replaces x[r * step + i] by its first, second or third piece (0, 1, 2), for r < rows and i < 16. */
    void (*piece)(float *x, int64_t rows, int64_t step, int piece);
    /* c += rows * lanes: by one chain of fma over k ascending, and in the order of bf16 by bf16. */
    void (*chain)(const napier_product_block *block);
    void (*pairs)(const napier_product_block *block);
    /* The same with rows that are read directly from memory. direct_pairs is NULL if software must flush subnormals. */
    void (*direct_chain)(const napier_direct_block *block);
    void (*direct_pairs)(const napier_direct_block *block);
    /* The same for few lanes. few_pairs and one_pairs are NULL if software must flush subnormals. */
    void (*few_chain)(const napier_few_block *block);
    /* few_chain with rows that are blocks of a kind but OTHER, row_step bytes apart; of `block` dtype and add do not count. With
     * more than few_stored_lanes lanes it is slower than few_chain on rows that are widened. */
    void (*few_stored)(const napier_few_block *block, const napier_blocks *blocks);
    int few_stored_lanes;
    void (*few_pairs)(const napier_few_block *block);
    /* The same for one lane, one row after the other. */
    void (*one_pairs)(const napier_few_block *block);
    /* c[l] += sum_k a[k][l] * b[k][l] for the lanes of two panels, in the same orders. */
    void (*chain_lanes)(const float *a, const float *b, int64_t k, float c[NAPIER_LANES]);
    void (*pairs_lanes)(const float *a, const float *b, int64_t k, float c[NAPIER_LANES]);
} napier_product_kernels;

#endif
