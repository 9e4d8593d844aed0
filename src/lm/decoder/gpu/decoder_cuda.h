/* lm/decoder/gpu/decoder_cuda.h - jobs of the kernels in decoder.cu, which the host half shares. */
#ifndef NAPIER_LM_DECODER_GPU_DECODER_CUDA_H
#define NAPIER_LM_DECODER_GPU_DECODER_CUDA_H

#include <napier/types.h>

#include "core/gpu/fault.h"

/* Sequences of tokens: sequence s has tokens starts[s] .. starts[s + 1] - 1. */
typedef struct napier_decoder_tokens {
    napier_indices ids, offsets; /* offsets of size 0: one sequence */
    int64_t sequences, most;     /* the most tokens of a sequence */
    int64_t *starts, *positions; /* [sequences + 1]; [ids.size] */
    napier_cuda_faults *faults;
} napier_decoder_tokens;

/* napier_decoder_embed: positions, and x = embedding[ids]; a warp for each token. x of a token with an invalid id or beyond
 * `most` is NaN. */
typedef struct napier_decoder_embed_job {
    napier_decoder_tokens tokens;
    napier_const_matrix embedding; /* contiguous rows */
    float *x;                      /* [ids.size, embedding.cols] */
} napier_decoder_embed_job;

/* napier_decoder_states: out = the states, rounded to its dtype. */
typedef struct napier_decoder_states_job {
    napier_const_matrix states; /* contiguous */
    napier_matrix out;
} napier_decoder_states_job;

#endif
