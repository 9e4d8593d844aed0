/* ops/tokens/gpu/responses_launch.h - the host part of responses_cuda.h. */
#ifndef NAPIER_OPS_TOKENS_GPU_RESPONSES_LAUNCH_H
#define NAPIER_OPS_TOKENS_GPU_RESPONSES_LAUNCH_H

#include "core/gpu/launch.h"
#include "ops/tokens/gpu/responses_cuda.h"

/* Makes the device's view of the checked arguments, with the tally from the workspace. */
napier_cuda_responses napier_cuda_responses_of(napier_cuda_context *context, napier_cuda_room *room,
                                               napier_indices offsets, int64_t tokens, const uint8_t *mask);
/* Launches the check of offsets and mask in the stream. */
napier_status napier_cuda_responses_look(napier_cuda_context *context, struct CUstream_st *stream,
                                         const napier_cuda_responses *r);

/* Launches a kernel whose warps divide `count` pieces. Each warp finds its own. */
napier_status napier_cuda_warps(napier_cuda_context *context, struct CUstream_st *stream, const char *what,
                                napier_cuda_kernel kernel, int64_t count, const void *job, size_t job_size);

#endif
