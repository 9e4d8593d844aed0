/* ops/tokens/counts.h - the numbers of responses and tokens in a batch. */
#ifndef NAPIER_OPS_TOKENS_COUNTS_H
#define NAPIER_OPS_TOKENS_COUNTS_H

#include <stdint.h>

/* Numbers of responses and tokens. */
typedef struct napier_response_counts {
    int64_t present; /* responses that count in means: those with tokens, or all (count_empty_responses) */
    int64_t counted; /* tokens */
    int64_t longest; /* response */
} napier_response_counts;

#endif
