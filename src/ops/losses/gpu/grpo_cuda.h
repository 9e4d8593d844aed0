/* ops/losses/gpu/grpo_cuda.h - declarations shared by grpo_cuda.c and the kernels of grpo.cu and grpo_quantile.cu. The
 * device makes all decisions between the passes (counts, normalisers, a quantile), so nothing waits for the host. */
#ifndef NAPIER_OPS_LOSSES_GPU_GRPO_CUDA_H
#define NAPIER_OPS_LOSSES_GPU_GRPO_CUDA_H

#include "ops/losses/grpo_kernels.h"
#include "ops/losses/grpo_sums.h"
#include "ops/tokens/quantile.h"
#include "ops/tokens/gpu/responses_cuda.h"

/* The state of the whole batch. Cleared before. */
typedef struct napier_cuda_grpo_state {
    float entropy_threshold, entropy_gradient;
    /* state of the quantile */
    int64_t nans, before, through;
    int64_t key;
    int64_t next; /* INT64_MAX minus the next key above it; 0: none */
    /* for the metrics: integers, which give the same sum in any order */
    int64_t low, high, bonus, some;
    int64_t max_ratio; /* as napier_rising */
    int64_t min_ratio; /* INT64_MAX minus that */
} napier_cuda_grpo_state;

/* For each response: the sums of its terms, and its share of kept tokens. */
enum { NAPIER_RESPONSE_SUMS = NAPIER_TERMS + 1 };

typedef struct napier_cuda_grpo_job {
    napier_grpo_job grpo; /* without beta, entropy_gradient and a quantile's entropy_threshold, which only the device
                             knows */
    napier_grpo_options options;
    napier_cuda_responses responses;
    unsigned scans; /* bits of NAPIER_SCAN_ */
    bool mean;      /* weights of the loss; if false all are 1 */
    napier_cuda_grpo_state *state;
    napier_grpo_response *response; /* [B] */
    napier_grpo_sums *sums;         /* [slots], or NULL */
    napier_grpo_scan *scan;         /* [slots], or NULL */
    double *totals;                 /* [NAPIER_RESPONSE_SUMS, B] */
    int64_t *counts;                /* [NAPIER_KEY_DIGITS], for the quantile */
    napier_grpo_metrics *metrics;   /* the caller's */
} napier_cuda_grpo_job;

typedef struct napier_cuda_quantile_job {
    napier_const_vector values;
    const uint8_t *mask;
    double quantile;
    int shift; /* of the digit being counted */
    int64_t *counts;
    napier_cuda_grpo_state *state;
    const napier_cuda_tally *tally;
} napier_cuda_quantile_job;

enum { NAPIER_QUANTILE_THREADS = 256 };

/* Copies log-probabilities and entropies from the workspace to the caller's dtypes. Data NULL: not wanted. */
typedef struct napier_cuda_copy_job {
    const float *logprob, *entropy;
    napier_vector logprobs, entropies;
    int64_t tokens;
} napier_cuda_copy_job;

#if defined(CUDA_KERNEL)
#include "ops/losses/grpo_lanes.h"

/* The threshold: the quantile that the device found, or the given one. */
CUDA_INLINE float cuda_entropy_threshold(const napier_cuda_grpo_job *job) {
    return job->options.top_entropy_quantile < 1 ? job->state->entropy_threshold : job->grpo.entropy_threshold;
}

/* The job with the values that only the device knows. */
CUDA_INLINE napier_grpo_job cuda_grpo_job_of(const napier_cuda_grpo_job *job) {
    napier_grpo_job grpo = job->grpo;
    grpo.beta = napier_grpo_beta(&job->options, &job->responses.tally->all);
    grpo.entropy_threshold = cuda_entropy_threshold(job);
    return grpo;
}

CUDA_INLINE float cuda_grpo_advantage(const napier_grpo_job *job, int64_t b) {
    return job->token_advantages ? 0.0f : cuda_token(job->advantages, b);
}

/* The inputs of a token; `one` is its response's advantage. The policy replaces an absent old policy, and the old
 * policy an absent sampler. */
CUDA_INLINE napier_grpo_inputs cuda_grpo_inputs_with(const napier_grpo_job *job, float one, int64_t t, float logprob,
                                                     float entropy) {
    napier_grpo_inputs in;
    in.logprob = logprob;
    in.old = job->old.data ? cuda_token(job->old, t) : in.logprob;
    in.ref = job->beta != 0.0f ? cuda_token(job->ref, t) : 0.0f;
    in.sampler = job->sampler.data ? cuda_token(job->sampler, t) : in.old;
    in.entropy = entropy;
    in.advantage = job->token_advantages ? cuda_token(job->advantages, t) : one;
    in.counted = job->mask == NULL || job->mask[t] != 0;
    return in;
}
CUDA_INLINE napier_grpo_inputs cuda_grpo_inputs(const napier_grpo_job *job, float one, int64_t t) {
    return cuda_grpo_inputs_with(job, one, t, cuda_token(job->logprobs, t),
                                 job->entropies.data ? cuda_token(job->entropies, t) : 0.0f);
}

CUDA_INLINE float cuda_grpo_gradient(const napier_grpo_job *job, const napier_grpo_response *response,
                                     const napier_grpo_inputs *in, const napier_grpo_outputs *o) {
    const float whole = job->sequence ? fmaf(response->weight, o->direct, response->flow)
                                      : response->weight * (o->direct + o->by_ratio);
    return in->counted ? whole : 0.0f;
}

#else
#include "core/gpu/launch.h"
#include "ops/losses/grpo_run.h"

/* Makes a job from a run that has been read, with memory from the workspace. run->mean and run->totals say what is
 * wanted. */
napier_cuda_grpo_job napier_cuda_grpo_of(napier_cuda_context *context, napier_cuda_room *room,
                                         const napier_grpo_run *run);

napier_status napier_cuda_grpo_prepare(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job);
napier_status napier_cuda_grpo_tiles(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job);
/* Computes job->metrics and the gradient of entropies. */
napier_status napier_cuda_grpo_finish(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job);

/* Runs prepare and tiles (twice for gradients of the sequence's ratio) and, if job->metrics are wanted, finish and the
 * gradients of entropies. */
napier_status napier_cuda_grpo_all(const napier_cuda_call *gpu, const napier_cuda_grpo_job *job);
#endif

#endif
