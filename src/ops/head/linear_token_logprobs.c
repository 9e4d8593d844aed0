/* ops/head/linear_token_logprobs.c - log-probabilities of tokens from hidden states and the head's weights. */
#include <napier/rl.h>

#include "core/base/stop.h"
#include "ops/head/linear_head.h"

static void write_row(void *argument, int64_t row, const napier_token_final *final, napier_token_seen *seen) {
    napier_token_write(argument, row, final, seen);
}

/* checked: what stands for the weights when the arguments are checked. */
static napier_status run(napier_context *context, napier_const_matrix hidden, napier_const_matrix weights,
                         napier_const_matrix checked, napier_indices ids, const napier_token_options *options,
                         const napier_token_results *results) {
    napier_token_call call;
    NAPIER_TRY(napier_head_read(context, NAPIER_ON_HOST, hidden, checked, ids, options, results, &call));
    if (hidden.rows == 0) {
        return NAPIER_OK;
    }
    napier_head head = napier_head_of(context, &call, hidden, weights);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_head_take(&memory, &head));
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    for (int64_t row = 0; row < call.rows; row += head.rows_at_a_time) {
        const int64_t count = napier_least(call.rows - row, head.rows_at_a_time);
        napier_head_rows(context, &head, row, count, write_row, &call);
    }
    return napier_stopped(context);
}

napier_status napier_linear_token_logprobs(napier_context *context, napier_const_matrix hidden,
                                           napier_const_matrix weights, napier_indices ids,
                                           const napier_token_options *options, const napier_token_results *results) {
    return run(context, hidden, weights, weights, ids, options, results);
}

napier_status napier_head_token_logprobs(napier_context *context, napier_const_matrix hidden,
                                         napier_const_matrix weights, napier_indices ids,
                                         const napier_token_options *options, const napier_token_results *results) {
    napier_const_matrix checked = weights;
    if (weights.dtype == NAPIER_BLOCKS) { /* one element stands for all: no results are written to blocks */
        checked = (napier_const_matrix){weights.data, weights.rows, weights.cols, 0, 0, NAPIER_F32};
    }
    return run(context, hidden, weights, checked, ids, options, results);
}
