/* ops/tokens/counts.h - how many responses and tokens a batch has. */
#ifndef NAPIER_OPS_TOKENS_COUNTS_H
#define NAPIER_OPS_TOKENS_COUNTS_H

#include <stdint.h>

/* How many there are. */
typedef struct napier_response_counts {
    int64_t present; /* responses that means run over: those with tokens, or all (count_empty_responses) */
    int64_t counted; /* tokens */
    int64_t longest; /* response */
} napier_response_counts;

#endif
