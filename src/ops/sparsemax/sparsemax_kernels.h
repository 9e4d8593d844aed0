/* ops/sparsemax/sparsemax_kernels.h - the kernels of sparsemax, which sparsemax.inc.h implements once for all
 * instruction sets. A job has been checked. Kernels allocate nothing and share nothing but their outputs. */
#ifndef NAPIER_OPS_SPARSEMAX_SPARSEMAX_KERNELS_H
#define NAPIER_OPS_SPARSEMAX_SPARSEMAX_KERNELS_H

#include <napier/sparsemax.h>
#include <stdbool.h>

#include "ops/sparsemax/threshold.h"

/* Also the job of the kernels on a GPU. */
typedef struct napier_sparsemax_job {
    napier_const_matrix x;    /* logits; for the gradient probs */
    napier_const_matrix grad; /* of probs; only for the gradient */
    napier_matrix out;
    double temperature; /* rounded to the compute type */
    double masked;      /* the result in rows of only -inf: NaN or 0 */
    bool wide;          /* the compute type is f64, otherwise f32 */
} napier_sparsemax_job;

typedef struct napier_sparsemax_kernels {
    void (*forward)(const napier_sparsemax_job *job, int64_t row);
    void (*gradient)(const napier_sparsemax_job *job, int64_t row);
} napier_sparsemax_kernels;

enum { SPARSEMAX_LANES = 256 }; /* of the sum that the gradient needs */

/* Each exists only in builds for its processor. */
extern const napier_sparsemax_kernels napier_sparsemax_kernels_scalar, napier_sparsemax_kernels_avx2,
    napier_sparsemax_kernels_avx512, napier_sparsemax_kernels_neon;

#endif
