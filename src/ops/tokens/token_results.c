/* ops/tokens/token_results.c - the results of a row of tokens. */
#include "core/math/f64.h"
#include "ops/tokens/token_call.h"
#include "ops/tokens/token_record.h"

static void put(napier_matrix m, int64_t row, int64_t col, double x) {
    napier_f64_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, x);
}
static void put_row(napier_vector v, int64_t row, double x) {
    if (v.data) {
        napier_f64_store(v.data, v.dtype, row * v.stride, x);
    }
}

static void write_chosen(const napier_token_call *call, int64_t row, const napier_token_final *final,
                         const napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    const int64_t kept = call->wants.total ? napier_token_kept(call, row) : 0;
    for (int64_t k = 0; call->chosen && k < call->per_row; k++) {
        const bool ignored = napier_token_ignored(call, seen->ids[k]);
        const float logprob = ignored ? 0.0f : napier_token_logprob(final, seen->chosen[k]);
        if (r->logprobs.data) {
            put(r->logprobs, row, k, (double)logprob);
        }
        if (r->rank) {
            r->rank[row * call->per_row + k] = ignored || final->row.kind == NAPIER_ROW_NAN ? -1 : seen->before[k];
        }
        if (r->loss.data) {
            put_row(r->loss, row, ignored ? 0.0 : napier_token_loss(&call->options, final, kept, logprob));
        }
    }
}

static void write_top(const napier_token_call *call, int64_t row, const napier_token_final *final,
                      napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    const bool nan = final->row.kind == NAPIER_ROW_NAN;
    const int64_t count = nan ? 0 : seen->top_count;
    napier_token_top_sort(seen);
    for (int64_t i = 0; i < call->wants.top_k; i++) {
        if (r->top_ids) {
            r->top_ids[row * r->top_k + i] = i < count ? seen->top[i].id : -1;
        }
        if (r->top_logprobs.data) {
            const float z = i < count ? seen->top[i].z : -INFINITY;
            put(r->top_logprobs, row, i, (double)napier_token_logprob(final, z));
        }
    }
}

/* The entropy of a final that does not know it is NaN. */
static void write_records(const napier_token_call *call, int64_t row, const napier_token_final *final,
                          const napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    napier_token_final known = *final;
    known.entropy = call->wants.entropy ? known.entropy : napier_nan();
    if (r->finals) {
        napier_token_final_save(&known, r->finals + row * NAPIER_TOKEN_FINAL_WORDS);
    }
    for (int64_t k = 0; r->chosen && k < call->per_row; k++) {
        r->chosen[row * call->per_row + k] = seen->chosen[k];
    }
}

void napier_token_write(const napier_token_call *call, int64_t row, const napier_token_final *final,
                        napier_token_seen *seen) {
    const napier_token_results *r = &call->results;
    put_row(r->lse, row, (double) final->row.lse);
    put_row(r->entropy, row, (double) final->entropy);
    if (r->argmax) {
        r->argmax[row] = final->row.kind == NAPIER_ROW_NAN ? -1 : seen->argmax;
    }
    write_chosen(call, row, final, seen);
    write_records(call, row, final, seen);
    if (call->wants.top_k > 0) {
        write_top(call, row, final, seen);
    }
}
