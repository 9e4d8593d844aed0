/* ops/softmax/rows_kernels.inc.h - the kernel of short rows, for the instruction set that the including file has chosen.
 * Its many specialised loops take longer to compile than all other kernels of softmax, so it is a file of its own. */
#if defined(NAPIER_TABLE)
#include "ops/softmax/lanes.inc.h"

void NAPIER_TABLE(napier_softmax_short_rows)(const napier_softmax_job *job, int64_t begin, int64_t end,
                                             float *scratch) {
    short_or_tiny_rows(job, begin, end, scratch);
}
#endif
