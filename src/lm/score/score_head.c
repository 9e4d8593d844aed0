/* lm/score/score_head.c - log-probabilities of tokens from rows of states. */
#include "lm/score/score_parts.h"

#include <string.h>

#include "core/base/scope.h"
#include "core/math/f64.h"
#include "ops/head/linear_head.h"
#include "ops/tokens/responses.h"

enum {
    NAPIER_HEAD_MOST_ROWS = 2048, /* rows at a time: enough that the weights are read rarely */
    NAPIER_HEAD_PER_ROW = 8,
    NAPIER_HEAD_NONE = -100 /* not an id; the ignore_index of napier_token_options */
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static int64_t rows_for(int64_t tokens) { return tokens < NAPIER_HEAD_MOST_ROWS ? tokens : NAPIER_HEAD_MOST_ROWS; }

/* The bytes of a row: what is gathered here, and what ops/head needs besides its workspace for one id. */
static int64_t row_bytes(const napier_context *context, const napier_model *model) {
    const int64_t each = sizeof(int64_t) + sizeof(int64_t) + sizeof(float);
    return model->config.hidden_size * napier_model_activation_bytes(model) +
           NAPIER_HEAD_PER_ROW * each * (1 + context->threads) + (int64_t)(sizeof(int64_t) + sizeof(float));
}

int64_t napier_score_head_bytes(const napier_context *context, const napier_model *model, int64_t tokens) {
    const int64_t rows = rows_for(tokens);
    const size_t own = napier_head_workspace(context, rows, model->config.hidden_size, model->config.vocab_size,
                                             napier_model_splits(model));
    return (int64_t)own + rows * row_bytes(context, model);
}

napier_status napier_score_head_allocate(napier_memory *memory, napier_score_head *h, int64_t tokens) {
    const int64_t rows = rows_for(tokens), all = rows * NAPIER_HEAD_PER_ROW;
    h->most_rows = rows;
    h->per_row = NAPIER_HEAD_PER_ROW;
    h->gathered =
        napier_take(memory, rows * h->model->config.hidden_size, (size_t)napier_model_activation_bytes(h->model));
    h->ids = napier_take(memory, all, sizeof *h->ids);
    h->targets = napier_take(memory, all, sizeof *h->targets);
    h->logprobs = napier_take(memory, all, sizeof *h->logprobs);
    h->entropy = napier_take(memory, rows, sizeof *h->entropy);
    h->argmax = napier_take(memory, rows, sizeof *h->argmax);
    return napier_taken(memory, "head: no memory for %lld rows", (long long)rows);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static void start_row(napier_score_head *h, int64_t row) {
    const size_t each = napier_dtype_size(h->states.dtype), bytes = (size_t)h->states.cols * each;
    const size_t from = (size_t)row * (size_t)h->states.row_stride * each;
    memcpy((char *)h->gathered + (size_t)h->rows * bytes, (const char *)h->states.data + from, bytes);
    for (int64_t k = 0; k < h->per_row; k++) {
        h->ids[h->rows * h->per_row + k] = NAPIER_HEAD_NONE;
        h->targets[h->rows * h->per_row + k] = -1;
    }
    h->rows++;
    h->last = row;
    h->used = 0;
}

napier_status napier_score_head_add(napier_score_head *h, int64_t row, int64_t target) {
    if (h->rows == 0 || h->last != row || h->used == h->per_row) {
        NAPIER_TRY(h->rows == h->most_rows ? napier_score_head_flush(h) : NAPIER_OK);
        start_row(h, row);
    }
    const int64_t at = (h->rows - 1) * h->per_row + h->used++;
    h->ids[at] = napier_index_at(h->response_ids, target);
    h->targets[at] = target;
    return NAPIER_OK;
}

static void store(napier_vector v, int64_t i, float x) {
    if (v.data) {
        napier_f64_store(v.data, v.dtype, i * v.stride, (double)x);
    }
}

static void write_row(const napier_score_head *h, int64_t row) {
    for (int64_t k = row * h->per_row; k < (row + 1) * h->per_row && h->targets[k] >= 0; k++) {
        const int64_t t = h->targets[k];
        store(h->results.logprobs, t, h->logprobs[k]);
        store(h->results.entropy, t, h->entropy[row]);
        if (h->results.argmax) {
            h->results.argmax[t] = h->argmax[row];
        }
        if (h->results.is_greedy) {
            h->results.is_greedy[t] = h->argmax[row] == h->ids[k];
        }
    }
}

napier_status napier_score_head_flush(napier_score_head *h) {
    if (h->rows == 0) {
        return NAPIER_OK;
    }
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(h->logprobs, h->rows, h->per_row);
    if (h->results.entropy.data) {
        results.entropy = napier_array_f32(h->entropy, h->rows);
    }
    if (h->results.argmax || h->results.is_greedy) {
        results.argmax = h->argmax;
    }
    napier_token_options options = h->options;
    options.split = napier_model_splits(h->model);
    const napier_const_matrix hidden = napier_const_rows(h->gathered, h->rows, h->states.cols, h->states.dtype);
    const napier_status status = napier_head_token_logprobs(
        h->context, hidden, h->model->head, napier_indices_i64(h->ids, h->rows * h->per_row), &options, &results);
    for (int64_t i = 0; !status && i < h->rows; i++) {
        write_row(h, i);
    }
    h->rows = 0;
    return status;
}
