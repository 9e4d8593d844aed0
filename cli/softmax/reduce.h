/* cli/softmax/reduce.h - one of the operations over an array of any shape and size, from an input to an
 * output. */
#ifndef NAPIER_CLI_REDUCE_H
#define NAPIER_CLI_REDUCE_H

#include "../io/input.h"
#include "../io/output.h"

#include <napier/napier.h>

typedef enum operation { OPERATION_SOFTMAX, OPERATION_LOG_SOFTMAX, OPERATION_LOGSUMEXP, OPERATION_SPARSEMAX } operation;

typedef struct reduction {
    operation operation;
    bool whole;         /* over all elements, not along an axis */
    int64_t axis;       /* negative: from the end */
    napier_dtype dtype; /* of the result; 0: the input's */
    file_format format; /* of the result; never AUTO */
    int64_t buffer;     /* bytes of a block */
    int64_t memory;     /* bytes that an array may take as a whole; for more, slower methods are used */
    napier_softmax_options options;
} reduction;

/* Opens the output once the input is known to be valid, does the work, and completes or removes the output. */
int reduce_file(const reduction *r, napier_context *context, input *in, const char *out_path);

#endif
