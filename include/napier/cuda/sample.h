/* napier/cuda/sample.h - draws token ids from logits on a GPU.
 *
 * The call does what napier_sample does (napier/sample.h), with the same dtypes, options and bits: it is "bitwise".
 * napier/cuda/device.h explains the word and has the rules that all calls share. All arrays are in device memory: logits,
 * keep, ids of prompts and outputs, offsets, seeds, samples, positions and results.
 *
 * A row with NaN, +inf or only -inf among its logits, or with a bad id or offset in its prompt or output, gets the id -1 and
 * NaN as both log-probabilities. The other rows are as on the CPU. napier_cuda_synchronize then names the first such row.
 *
 * A block works on a row, and each filter reads the row about 60 times: this version aims at correctness first. The workspace
 * holds 4 bytes for each logit, and 12 bytes per 1024 columns of each row. Rows are shorter than 2^31. */
#ifndef NAPIER_CUDA_SAMPLE_H
#define NAPIER_CUDA_SAMPLE_H

#include <napier/cuda/device.h>
#include <napier/sample.h>

#ifdef __cplusplus
extern "C" {
#endif

NAPIER_API napier_status napier_cuda_sample(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_const_matrix logits,
                                            const napier_sample_options *options, const napier_sample_results *results);

#ifdef __cplusplus
}
#endif
#endif
