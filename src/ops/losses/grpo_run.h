/* ops/losses/grpo_run.h - the passes of a GRPO loss. grpo.c runs them on log-probabilities, grpo_logits.c on logits.
 *
 *   read      from arguments to a job
 *   prepare   the values of each response: counts, weights, ratios and corrections of the sequence
 *   tiles     losses, gradients and the sums of each tile
 *   flow      the gradient that reaches each token through the sequence's ratio; then the tiles again, for the gradient
 *   finish    the loss and the metrics */
#ifndef NAPIER_OPS_LOSSES_GRPO_RUN_H
#define NAPIER_OPS_LOSSES_GRPO_RUN_H

#include "core/base/scope.h"
#include "ops/isa/ops_kernels.h"
#include "ops/losses/grpo_sums.h"
#include "ops/tokens/responses.h"

typedef struct napier_grpo_run {
    const napier_grpo_kernels *kernels;
    napier_grpo_options options;
    napier_grpo_job job;
    napier_responses responses;
    napier_response_counts all;
    unsigned scans;                 /* bits of NAPIER_SCAN_ */
    bool mean;                      /* weights of the loss; if false all are 1: the sum of all tokens' losses */
    bool totals;                    /* the sums of tiles are wanted */
    napier_grpo_response *response; /* [B] */
    napier_grpo_sums *sums;         /* one per tile, by slot, or NULL */
    napier_grpo_scan *scan;         /* likewise */
    napier_grpo_metrics metrics;
} napier_grpo_run;

/* The results for each token [T], and the gradient of its loss. All may be absent. */
typedef struct napier_grpo_outputs {
    napier_vector losses, grad_logprobs, grad_entropies;
    napier_const_vector grad_losses;
} napier_grpo_outputs;

/* Checks all arguments of a call on log-probabilities, and reads them into *run. In a GPU's memory it does not read the
 * offsets, and run->all stays 0. */
napier_status napier_grpo_read(napier_context *context, napier_place place, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, const napier_grpo_outputs *out,
                               napier_grpo_run *run);

/* True if a response needs its tokens' log-probabilities or entropies before the first loss. */
bool napier_grpo_looks_ahead(const napier_grpo_run *run);

/* Takes memory for the passes. */
napier_status napier_grpo_take(napier_memory *memory, napier_grpo_run *run);

void napier_grpo_prepare(napier_context *context, napier_grpo_run *run);
void napier_grpo_tiles(napier_context *context, napier_grpo_run *run);
void napier_grpo_finish(napier_grpo_run *run);

/* Computes losses, gradients and metrics of a run that has been read: prepare to finish. */
napier_status napier_grpo_all(napier_context *context, napier_grpo_run *run);

/* The quantile of the counted values, interpolated linearly between the two nearest. NaN if one of them is NaN; 0 if
 * there are none. Call it in the default floating-point environment. */
float napier_grpo_quantile(napier_const_vector values, const uint8_t *mask, double quantile);

#endif
