/* ops/sample/sample_call.h - a call whose arguments have been checked, for the CPU and a GPU. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_CALL_H
#define NAPIER_OPS_SAMPLE_SAMPLE_CALL_H

#include <napier/sample.h>

#include "ops/tokens/token_tile.h"

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

#endif
