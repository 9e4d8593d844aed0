/* cli/softmax/reduce.h - one of the operations over an array of any shape and size, from an input to an
 * output. */
#ifndef NAPIER_CLI_REDUCE_H
#define NAPIER_CLI_REDUCE_H

#include "io/format.h"
#include "program/command.h"

#include <napier/napier.h>

typedef enum operation { OPERATION_SOFTMAX, OPERATION_LOG_SOFTMAX, OPERATION_LOGSUMEXP, OPERATION_SPARSEMAX } operation;

typedef struct reduction {
    base_request shared;
    operation operation;
    bool whole;         /* over all elements, not along an axis */
    int64_t axis;       /* negative: from the end */
    napier_dtype dtype; /* of the result; 0: the input's */
    file_format format, in_format;
    const char *columns; /* of a text that is read; NULL: all */
    int64_t buffer;      /* bytes of a block; 0: by the machine's memory */
    napier_softmax_options options;
} reduction;

/* Carries out a reduction. Opens the output once the input is known to be valid. */
int reduce_file(void *request, napier_context *context);

#endif
