/* ops/linear/amx.h - bf16 by bf16 on x86's matrix engine (AMX), whose documented order is that of napier/linear.h.
 *
 * Its operands are bf16. Rows that lie along k are read in place. Lanes are packed as groups of 16: [k / 2][16] pairs of
 * an even and an odd k, the even one in the low half. */
#ifndef NAPIER_OPS_LINEAR_AMX_H
#define NAPIER_OPS_LINEAR_AMX_H

#include "core/base/context.h"
#include "ops/linear/product_kernels.h"

/* True if the processor has the engine, the system saves its tiles, and this process may use them. The context's
 * instruction set must be AVX-512. */
bool napier_amx_is_here(const napier_context *context);

enum { NAPIER_ENGINE_LANES = 16 };

/* One step of a product: a block of k. */
typedef struct napier_engine_block {
    const uint16_t *rows; /* [row_count, cols], row_step apart */
    int64_t row_count, row_step;
    int64_t cols;          /* of the rows; k may be more, as if the rows were filled up with +0 */
    const uint32_t *lanes; /* group g at lanes + g * lane_step: [k / 2][16] */
    int64_t lane_step;
    int64_t lane_count; /* a multiple of 16 */
    int64_t k;          /* a multiple of 32 */
    float *c;           /* [row_count, rounded up to 16][c_step]: lane l of row r */
    int64_t c_step;
    bool first; /* c starts from 0 here */
} napier_engine_block;

/* c += rows * lanes. Call it only where the engine is here. */
void napier_engine_multiply(const napier_engine_block *block);

/* The same for many small products, one after the other: between napier_engine_begin and napier_engine_end, by one thread.
 * Rows are read in place, where row_count is rounded up to 16 and cols are no fewer than k. Meanwhile the thread may not call
 * napier_engine_multiply. */
void napier_engine_begin(void);
void napier_engine_multiply_here(const napier_engine_block *block);
void napier_engine_end(void);

/* Packs rows as tiles: [row_count / 32, rounded up][k / 32][32][32], filled up with +0. */
void napier_engine_pack_tiles(const napier_engine_block *block, uint16_t *tiles);

/* Packs groups of lanes that are neighbours in memory: the k-th element of lane l is from[k * k_step + l]. Group g goes to
 * out + g * group_step: [pairs][16]. */
void napier_engine_pack_neighbours(const uint16_t *from, int64_t k_step, int64_t groups, int64_t pairs, uint32_t *out,
                                   int64_t group_step);

/* Where results go, as bf16 or f32. NaN becomes the canonical one. */
typedef struct napier_engine_out {
    void *data;   /* NULL: nowhere */
    int64_t step; /* elements from a row to the next */
    bool wide;    /* f32 */
    bool stream;  /* past the caches */
} napier_engine_out;

/* 32 rows and 32 lanes of a product, which are written while the engine multiplies the next ones: it leaves the rest of the core
 * idle. Start with zeros. */
typedef struct napier_engine_square {
    float *sums;   /* [2][32][32]: of this square at sums[turn], of the next one in the other half */
    int turn;      /* 0 or 1 */
    int64_t rows;  /* rows to write; 0: no square is left to write */
    int64_t lanes; /* columns to write; 32 or more: all */
    napier_engine_out out;
} napier_engine_square;

/* 32 rows by a strip of lanes, which stays in the second-level cache and meets other rows afterwards. */
typedef struct napier_engine_strip {
    const uint16_t *rows;  /* 32 rows, in place or of napier_engine_pack_tiles */
    int64_t row_count;     /* up to 32, of which there are results */
    int64_t row_step;      /* in place: elements from a row to the next; 0: they are packed */
    const uint16_t *next;  /* the rows multiplied afterwards, laid out as these, fetched meanwhile; NULL: none */
    const uint32_t *lanes; /* an even number of groups: [k / 2][16] each */
    int64_t lane_count;
    int64_t k; /* a multiple of 32 */
    float *c;  /* the product: [32][c_step], for lane_count rounded up to 32 */
    int64_t c_step;
    bool first;                 /* c starts from 0 here */
    napier_engine_out out;      /* if it has data, the product goes there, and c is lost */
    napier_engine_square *last; /* the square before, and afterwards the last one of these */
} napier_engine_strip;

/* Between napier_engine_begin and napier_engine_end. */
void napier_engine_multiply_strip(const napier_engine_strip *strip);
/* Writes the last square. Other threads may read all results afterwards. */
void napier_engine_write_square(napier_engine_square *square);

/* Packs one group of lanes: m[lane + l][k + i] for l < lanes <= 16 and i < cols, and +0 for cols <= i < padded, an even
 * number, and for the other lanes. k must be even. */
void napier_engine_pack_lanes(const napier_const_matrix *m, int64_t lane, int64_t lanes, int64_t k, int64_t cols,
                              int64_t padded, uint32_t *out);

/* The same from lanes of f32 whose lower halves are 0: x is [cols][16], cols an even number. */
void napier_engine_pack_wide(const float *x, int64_t cols, uint32_t *out);

/* out[r * step + i] = m[row + r][k + i] for r < rows and i < cols: for rows that do not lie along k. */
void napier_engine_pack_rows(const napier_const_matrix *m, int64_t row, int64_t rows, int64_t k, int64_t cols,
                             uint16_t *out, int64_t step);

#endif
