/* ops/head/linear_head.h - the head of a language model without stored logits. logits = hidden weights^T are computed
 * in tiles of 1024 tokens by a block of rows. The kernel of token_tile.h reduces each tile while it is in the
 * second-level cache. The logits' bits are those of napier_matmul. A tile's numbers go to its own slot, so threads can
 * divide tiles and rows in any way. */
#ifndef NAPIER_OPS_HEAD_LINEAR_HEAD_H
#define NAPIER_OPS_HEAD_LINEAR_HEAD_H

#include "ops/linear/product.h"
#include "ops/tokens/token_call.h"

/* Rows first .. first + rows - 1 of a matrix; of an absent one, none. */
static inline napier_const_matrix napier_some_rows(napier_const_matrix m, int64_t first, int64_t rows) {
    m.data = m.data ? (const char *)m.data + first * m.row_stride * (int64_t)napier_dtype_size(m.dtype) : NULL;
    m.rows = rows;
    return m;
}
static inline napier_matrix napier_some_rows_out(napier_matrix m, int64_t first, int64_t rows) {
    m.data = m.data ? (char *)m.data + first * m.row_stride * (int64_t)napier_dtype_size(m.dtype) : NULL;
    m.rows = rows;
    return m;
}

typedef struct napier_head {
    const napier_token_call *call;
    const napier_token_kernels *kernels;
    napier_product_sides sides; /* lanes: hidden; rows: weights */
    int64_t tiles, slot_floats;
    int64_t rows_at_a_time;    /* capacity: rows that are packed and processed at a time */
    int64_t first;             /* the first of these rows */
    float *kept;               /* the logits of the first kept_cols tokens, as in napier_kept_at; or NULL */
    int64_t kept_cols;         /* whole tiles, or all tokens */
    int64_t kept_step;         /* floats from one row to the next */
    int64_t kept_region;       /* floats from some NAPIER_KEPT_COLS tokens to the next as many */
    float *scratch;            /* [threads][NAPIER_HEAD_SCRATCH] */
    float *slots;              /* [rows_at_a_time][slot_floats] */
    napier_token_seen **desks; /* [threads][rows_at_a_time] */
    int threads;
} napier_head;

enum {
    NAPIER_HEAD_STRIP = 8 * NAPIER_ROW_GROUP, /* columns multiplied at a time: their sums stay in the second-level
                                                 cache */
    NAPIER_HEAD_Z = NAPIER_TILE + 16,         /* floats of a row of z */
    NAPIER_HEAD_PRODUCT = NAPIER_ROW_GROUP * NAPIER_ROW_STEP + NAPIER_HEAD_STRIP * NAPIER_STRIP_STEP,
    NAPIER_HEAD_SCRATCH = NAPIER_HEAD_PRODUCT + NAPIER_LANE_BLOCK * NAPIER_HEAD_Z
};

/* Kept logits: regions of NAPIER_KEPT_COLS tokens, each [rows][kept_step]. */
enum { NAPIER_KEPT_COLS = 4 * NAPIER_TILE };
static inline float *napier_kept_at(const napier_head *head, int64_t row, int64_t token) {
    return head->kept + token / NAPIER_KEPT_COLS * head->kept_region + (row - head->first) * head->kept_step +
           token % NAPIER_KEPT_COLS;
}

/* Called once for each row when its final is known, by any worker. seen holds the z of its ids. */
typedef void napier_head_row(void *argument, int64_t row, const napier_token_final *final, napier_token_seen *seen);

napier_head napier_head_of(const napier_context *context, const napier_token_call *call, napier_const_matrix hidden,
                           napier_const_matrix weights);
/* napier_linear_token_logprobs with weights that may be stored as blocks (core/math/blocks.h). */
napier_status napier_head_token_logprobs(napier_context *context, napier_const_matrix hidden,
                                         napier_const_matrix weights, napier_indices ids,
                                         const napier_token_options *options, const napier_token_results *results);
/* napier_linear_token_logprobs_workspace of the forward call, with options.split or without. */
size_t napier_head_workspace(const napier_context *context, int64_t rows, int64_t hidden, int64_t vocabulary,
                             bool split);
/* The number of bytes that napier_head_take takes. */
size_t napier_head_bytes(const napier_head *head);
napier_status napier_head_take(napier_memory *memory, napier_head *head);

/* Computes the finals of rows `first` to first + count - 1, at most rows_at_a_time, from hidden states. Their panels
 * stay packed afterwards. Logits of the first kept_cols tokens are written to `kept`, if there is such memory. */
void napier_head_rows(const napier_context *context, napier_head *head, int64_t first, int64_t count,
                      napier_head_row *done, void *argument);

/* Called once for each row when all its tiles are in their slots. */
typedef void napier_head_slots(void *argument, int64_t row, const napier_token_slots *slots,
                               const napier_token_seen *seen);
/* The same as napier_head_rows, up to the slots. */
void napier_head_tiles(const napier_context *context, napier_head *head, int64_t first, int64_t count,
                       napier_head_slots *done, void *argument);

/* Writes the logits of columns [begin, begin + n), at most a tile, of a block of rows to out [n, rows of the block]. */
void napier_head_logits(const napier_head *head, int worker, int64_t block, int64_t begin, int64_t n,
                        napier_matrix out);

/* Refuses hidden states and weights whose sums do not match or are too long to pack. */
napier_status napier_head_check_sums(napier_context *context, napier_const_matrix hidden, napier_const_matrix weights);
/* Refuses a split that cannot be, and decides whether the matrix engine computes the sums. */
napier_status napier_head_check_split(napier_context *context, napier_place place, napier_const_matrix hidden,
                                      napier_const_matrix weights, const napier_token_call *call);

/* Starts a call, checks all its arguments and reads them into *call: hidden [N, H] and weights [V, H] and, in the
 * backward call, their gradients, which may be absent. */
napier_status napier_head_read(napier_context *context, napier_place place, napier_const_matrix hidden,
                               napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
                               const napier_token_results *results, napier_token_call *call);
napier_status napier_head_back_read(napier_context *context, napier_place place, napier_const_matrix hidden,
                                    napier_const_matrix weights, napier_indices ids,
                                    const napier_token_options *options, const napier_token_gradients *gradients,
                                    napier_matrix grad_hidden, napier_matrix grad_weights, napier_token_call *call);

#endif
