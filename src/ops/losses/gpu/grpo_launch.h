/* ops/losses/gpu/grpo_launch.h - the passes of ops/losses/grpo_run.h on a GPU, in the stream's order. grpo_cuda.c runs
 * them on log-probabilities, grpo_logits_cuda.c on logits. */
#ifndef NAPIER_OPS_LOSSES_GPU_GRPO_LAUNCH_H
#define NAPIER_OPS_LOSSES_GPU_GRPO_LAUNCH_H

#include "core/gpu/launch.h"
#include "ops/losses/gpu/grpo_cuda.h"
#include "ops/losses/grpo_run.h"

/* Makes a job from a run that has been read, with memory from the workspace. run->mean and run->totals say what is
 * wanted. */
napier_cuda_grpo_job napier_cuda_grpo_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_grpo_run *run);

napier_status napier_cuda_grpo_prepare(napier_cuda_context *context, struct CUstream_st *stream,
                                       const napier_cuda_grpo_job *job);
napier_status napier_cuda_grpo_tiles(napier_cuda_context *context, struct CUstream_st *stream,
                                     const napier_cuda_grpo_job *job);
/* Computes job->metrics and the gradient of entropies. */
napier_status napier_cuda_grpo_finish(napier_cuda_context *context, struct CUstream_st *stream,
                                      const napier_cuda_grpo_job *job);

/* Runs prepare and tiles (twice for gradients of the sequence's ratio) and, if job->metrics are wanted, finish and the
 * gradients of entropies. */
napier_status napier_cuda_grpo_all(napier_cuda_context *context, struct CUstream_st *stream,
                                   const napier_cuda_grpo_job *job);

#endif
