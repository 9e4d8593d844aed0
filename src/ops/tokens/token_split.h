/* ops/tokens/token_split.h - divides rows of logits in memory over threads, for the forward and the backward call: whole
 * rows if there are enough of them, otherwise the tiles of each row. The division does not change any bit
 * (token_tile.h). */
#ifndef NAPIER_OPS_TOKENS_TOKEN_SPLIT_H
#define NAPIER_OPS_TOKENS_TOKEN_SPLIT_H

#include "core/base/parallel.h"
#include "ops/softmax/softmax_kernels.h"
#include "ops/tokens/token_call.h"

/* The data that the workers share. */
typedef struct napier_token_split {
    const napier_token_call *call;
    const napier_token_kernels *kernels;
    napier_token_job job;
    bool by_rows;
    int workers;
    int64_t chunk;             /* rows or tiles that a worker takes at a time */
    napier_token_seen **desks; /* [workers][group] */
    float *scratch;            /* [workers] */
    float *slots;              /* of a row, for each worker; shared by all if a row is split */
    bool keeps_terms;          /* for the gradient */
    float *terms;              /* [workers][tiles][1024 + 1], or NULL: terms, and the least z of each tile */
    int64_t tiles, slot_floats;
    int64_t row; /* the current row, if rows are split */
    int group;   /* number of short rows processed at a time; 1 for long ones */
} napier_token_split;

napier_token_split napier_token_split_of(const napier_context *context, const napier_token_call *call,
                                         napier_const_matrix logits);
/* Keeps a row's terms for its gradient, if that may use them, and if they and the row fit a second-level cache of 1 MB. */
void napier_token_split_keep_terms(napier_token_split *s);
napier_status napier_token_split_take(napier_memory *memory, napier_token_split *s);

static inline float *napier_token_scratch_of(const napier_token_split *s, int worker) {
    return s->scratch + (int64_t)worker * NAPIER_TOKEN_SCRATCH;
}

/* The slots of a worker's current row, where each has rows of its own. */
napier_token_slots napier_token_row_slots(const napier_token_split *s, int worker);

/* Each fills the desk of its worker (`seen`), and reduces rows to their finals: up to s->group short rows, one long
 * row, or with all workers the row s->row, whose `seen` is then that of worker 0. */
void napier_token_sum_short(const napier_token_split *s, int worker, int64_t row, int rows, napier_token_final *finals);
napier_token_final napier_token_sum_long(const napier_token_split *s, int worker, int64_t row);
napier_token_final napier_token_sum_together(const napier_context *context, napier_token_split *s);

#endif
