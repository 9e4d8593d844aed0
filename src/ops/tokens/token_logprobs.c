/* ops/tokens/token_logprobs.c - log-probabilities of tokens from logits in memory: one read of each row. */
#include <napier/rl.h>

#include "core/base/stop.h"
#include "ops/tokens/token_split.h"

static void run_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_token_split *s = argument;
    napier_token_seen *seen = s->desks[worker];
    napier_token_final finals[NAPIER_GROUP];
    for (int64_t row = begin; row < end; row += s->group) {
        const int rows = (int)napier_least(end - row, s->group);
        if (s->tiles == 1) {
            napier_token_sum_short(s, worker, row, rows, finals);
        } else {
            finals[0] = napier_token_sum_long(s, worker, row);
        }
        for (int r = 0; r < rows; r++) {
            napier_token_write(s->call, row + r, &finals[r], &seen[r]);
        }
    }
}

/* Each row, one after the other, is split over all threads. */
static void run_together(const napier_context *context, napier_token_split *s) {
    for (s->row = 0; s->row < s->call->rows; s->row++) {
        const napier_token_final final = napier_token_sum_together(context, s);
        napier_token_write(s->call, s->row, &final, s->desks[0]);
    }
}

napier_status napier_token_logprobs_check(napier_context *context, napier_place place, napier_const_matrix logits,
                                          napier_indices ids, const napier_token_options *options,
                                          const napier_token_results *results, napier_token_call *call) {
    const napier_token_matrices matrices = {
        logits.cols, 1, {NAPIER_ARGUMENT("logits", logits, NAPIER_IS_NARROW, logits.rows, logits.cols, NULL)}};
    NAPIER_TRY(napier_begin(context));
    return napier_token_call_read(context, place, &matrices, ids, options, results, call);
}

napier_status napier_token_logprobs(napier_context *context, napier_const_matrix logits, napier_indices ids,
                                    const napier_token_options *options, const napier_token_results *results) {
    napier_token_call call;
    NAPIER_TRY(napier_token_logprobs_check(context, NAPIER_ON_HOST, logits, ids, options, results, &call));
    if (logits.rows == 0) {
        return NAPIER_OK;
    }
    napier_token_split s = napier_token_split_of(context, &call, logits);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_token_split_take(&memory, &s));
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    if (s.by_rows) {
        napier_parallel(context, call.rows, s.chunk, run_rows, &s);
    } else {
        run_together(context, &s);
    }
    return napier_stopped(context);
}
