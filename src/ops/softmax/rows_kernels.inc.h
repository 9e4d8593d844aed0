/* ops/softmax/rows_kernels.inc.h - the kernel of short rows, for the instruction set that the including file has chosen.
 * Its many specialised loops take longer to compile than all other kernels of softmax, so it is a file of its own. */
#if defined(NAPIER_TABLE)
#include "ops/softmax/tiny_rows.inc.h"

void NAPIER_TABLE(napier_softmax_short_rows)(const napier_softmax_job *job, int64_t begin, int64_t end,
                                             float *scratch) {
    if (job->x.cols <= NAPIER_TINY_COLS && job->x.col_stride == 1) {
        tiny_rows(job, begin, end, scratch);
    } else {
        short_rows(job, begin, end, scratch);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}
#endif
