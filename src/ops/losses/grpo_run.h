/* ops/losses/grpo_run.h - the passes that GRPO losses are made of. grpo.c strings them together for log-probabilities,
 * grpo_logits.c for logits.
 *
 *   read      arguments to a job
 *   prepare   what each response's tokens need to know: counts, weights, ratios and corrections of the sequence
 *   tiles     losses, gradients and the sums of each tile
 *   flow      what reaches each token through the sequence's ratio; then tiles once more for the gradient
 *   finish    the loss and the metrics */
#ifndef NAPIER_OPS_LOSSES_GRPO_RUN_H
#define NAPIER_OPS_LOSSES_GRPO_RUN_H

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
    bool mean;                      /* weights of the loss; else 1: the sum of all tokens' losses */
    bool totals;                    /* sums of tiles are wanted */
    napier_grpo_response *response; /* [B] */
    napier_grpo_sums *sums;         /* a slot per tile, or NULL */
    napier_grpo_scan *scan;         /* likewise */
    napier_grpo_metrics metrics;
} napier_grpo_run;

/* Checks batch and options. `logits`: the batch has no log-probabilities and entropies yet, and T is `tokens`. */
napier_status napier_grpo_read(napier_context *context, const napier_grpo_batch *batch,
                               const napier_grpo_options *options, bool logits, int64_t tokens, napier_grpo_run *run);
/* The same without a look at the offsets, for arguments in memory of a GPU: run->all stays 0. */
napier_status napier_grpo_read_views(napier_context *context, const napier_grpo_batch *batch,
                                     const napier_grpo_options *options, bool logits, int64_t tokens,
                                     napier_grpo_run *run);
/* An output [T] against all that is read of the batch. */
napier_status napier_grpo_check_out(napier_context *context, const char *name, napier_vector out,
                                    const napier_grpo_run *run);

/* Does any response need its tokens' log-probabilities or entropies before the first loss? */
bool napier_grpo_looks_ahead(const napier_grpo_run *run);

/* Memory for what follows. napier_grpo_free in any case. */
napier_status napier_grpo_alloc(napier_context *context, napier_grpo_run *run);
void napier_grpo_free(napier_context *context, napier_grpo_run *run);

void napier_grpo_prepare(napier_context *context, napier_grpo_run *run);
void napier_grpo_tiles(napier_context *context, napier_grpo_run *run);
void napier_grpo_flow(napier_context *context, napier_grpo_run *run);
void napier_grpo_finish(napier_grpo_run *run);
void napier_grpo_entropies(napier_context *context, napier_grpo_run *run);

/* Losses, gradients and metrics of a run that has been read: prepare to finish. */
napier_status napier_grpo_all(napier_context *context, napier_grpo_run *run);

/* The quantile of the counted values, as linear interpolation between the two nearest; NaN if one of them is; 0 if there
 * are none. In the default floating-point environment. */
float napier_grpo_quantile(napier_const_vector values, const uint8_t *mask, double quantile);

#endif
