/* ops/sample/sample_row.h - a worker's memory, and the draw of one row. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_ROW_H
#define NAPIER_OPS_SAMPLE_SAMPLE_ROW_H

#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "ops/sample/draw.h"
#include "ops/sample/sample_call.h"

typedef struct napier_sample_drawn {
    int64_t id;
    float logprob, plain_logprob;
    napier_sample_flaw flaw;
} napier_sample_drawn;

/* A worker's memory. */
typedef struct napier_sample_desk {
    napier_token_slots scanned; /* of the logits / T */
    napier_token_slots slots;   /* of what is left */
    float *scratch;             /* NAPIER_TOKEN_SCRATCH */
    float *tile, *terms;        /* a tile each */
    float *values;              /* [cols + 16] */
    uint32_t *marks;            /* [cols] with penalties: 0, or MARKED + the times that the id is in the output */
    uint8_t *marked;            /* [tiles]: does the tile have a mark? */
} napier_sample_desk;

/* The floats of a desk, without marks. */
int64_t napier_sample_desk_floats(const napier_sample_call *call);
napier_sample_desk napier_sample_desk_of(const napier_sample_call *call, float *floats, uint32_t *marks,
                                         uint8_t *marked);

/* Reads tiles [begin, end) of a row to desk->scanned. */
void napier_sample_scan(const napier_sample_call *call, const napier_ops_kernels *kernels, int64_t row, int64_t begin,
                        int64_t end, const napier_token_slots *scanned, float *scratch);

/* Draws, after the scan of all tiles. */
napier_sample_drawn napier_sample_row(const napier_sample_call *call, const napier_ops_kernels *kernels,
                                      const napier_sample_desk *desk, int64_t row);

#endif
