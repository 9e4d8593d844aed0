/* ops/sample/sample_kernels.inc.h - the table of every kernel of sample, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/sample/sample.inc.h"

const napier_sample_kernels NAPIER_TABLE(napier_sample_kernels) = {.collect = sample_collect,
                                                                   .split = sample_split,
                                                                   .rest = sample_rest,
                                                                   .ties = sample_ties,
                                                                   .cut = sample_cut,
                                                                   .terms = sample_terms};
#endif
