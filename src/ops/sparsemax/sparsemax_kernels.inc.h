/* ops/sparsemax/sparsemax_kernels.inc.h - the table of every kernel of sparsemax, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/sparsemax/sparsemax.inc.h"

const napier_sparsemax_kernels NAPIER_TABLE(napier_sparsemax_kernels) = {.forward = sparsemax_row,
                                                                         .gradient = sparsemax_gradient};
#endif
