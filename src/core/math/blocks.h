/* core/math/blocks.h - matrices whose rows are stored as blocks of small integers with a scale, as in llama.cpp's files. A
 * product widens a few rows at a time where it reads them, and has the bits of the matrix that is widened whole. */
#ifndef NAPIER_CORE_MATH_BLOCKS_H
#define NAPIER_CORE_MATH_BLOCKS_H

#include <napier/types.h>
#include <stdbool.h>

/* The kinds that are widened by vectors; others by napier_blocks.widen. */
typedef enum napier_block_kind {
    NAPIER_BLOCK_OTHER,
    NAPIER_BLOCK_Q4_0,
    NAPIER_BLOCK_Q4_1,
    NAPIER_BLOCK_Q8_0
} napier_block_kind;

enum { NAPIER_BLOCK_MOST = 256 }; /* elements */

typedef struct napier_blocks {
    const uint8_t *data; /* of row 0; in a mapped file they may change at any time */
    int64_t row_bytes;
    int64_t elements, bytes; /* of a block; elements divide 256, and 32 divides them */
    napier_block_kind kind;
    void (*widen)(const uint8_t *block, float *out); /* one block as f32 */
} napier_blocks;

/* The dtype of a matrix whose `data` is a napier_blocks. Its elements are f32. No such matrix may reach a caller of the library,
 * or come from one. */
#define NAPIER_BLOCKS ((napier_dtype)16)

static inline napier_dtype napier_widened(napier_dtype dtype) { return dtype == NAPIER_BLOCKS ? NAPIER_F32 : dtype; }

#endif
