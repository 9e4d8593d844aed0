/* ops/sample/sample_row.h - a checked call, a worker's memory, and the draw of one row. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_ROW_H
#define NAPIER_OPS_SAMPLE_SAMPLE_ROW_H

#include <napier/sample.h>

#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "ops/sample/draw.h"

typedef struct napier_sample_call {
    napier_const_matrix logits;
    napier_sample_options options;
    napier_sample_results results;
    napier_token_rules plain; /* the temperature; 1 if greedy */
    napier_token_rules rules; /* the same, and keep */
    float repetition, presence, frequency;
    bool penalties, filters, greedy;
    int64_t tiles;
    int bits;
} napier_sample_call;

/* Why a row has no distribution. */
typedef enum napier_sample_flaw {
    NAPIER_SAMPLE_FINE,
    NAPIER_SAMPLE_NAN,
    NAPIER_SAMPLE_PINF,
    NAPIER_SAMPLE_MINF,     /* only -inf */
    NAPIER_SAMPLE_LATE_NAN, /* the same, after penalties and keep */
    NAPIER_SAMPLE_LATE_PINF,
    NAPIER_SAMPLE_NONE
} napier_sample_flaw;

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
