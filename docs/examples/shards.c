/* shards - rows whose columns lie on several workers: the functions of napier/shards.h.
 *
 * Two workers have one row of 2048 columns, 1024 each. What they exchange is in one array here: worker k writes its part. */
#include "example.h"

enum { TILE = NAPIER_SHARD_TILE, WORKERS = 2, COLUMNS = WORKERS * TILE };

static float logits[COLUMNS];

/* Worker k's columns of a row. */
static napier_const_matrix shard(const float *row, int k) { return napier_const_rows_f32(row + k * TILE, 1, TILE); }
static napier_matrix shard_of(float *row, int k) { return napier_rows_f32(row + k * TILE, 1, TILE); }

/* Softmax: each worker sends 112 bytes for a row, and gets the probabilities of its own columns. They have the bits of
 * napier_softmax on the whole row. */
static void softmax_over_workers(napier_context *context) {
    const napier_indices no_ids = napier_indices_i64(NULL, 0);
    float tiles[WORKERS][NAPIER_SHARD_LSE], probs[COLUMNS], whole[COLUMNS];
    int64_t sums[WORKERS][NAPIER_SHARD_SUM_WORDS], finals[NAPIER_SHARD_FINAL_WORDS];
    for (int k = 0; k < WORKERS; k++) {
        const napier_matrix own = napier_rows_f32(tiles[k], 1, NAPIER_SHARD_LSE);
        EXPECT(napier_shard_tiles(context, shard(logits, k), k * TILE, COLUMNS, no_ids, NULL, NAPIER_SHARD_LSE, own,
                                  NULL) == NAPIER_OK);
        EXPECT(napier_shard_sums(context, napier_read_only(own), NAPIER_SHARD_LSE, sums[k]) == NAPIER_OK);
    }
    EXPECT(napier_shard_finish_sums(context, sums[0], WORKERS, 1, finals) == NAPIER_OK);
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_softmax(context, finals, NAPIER_KIND_SOFTMAX, shard(logits, k), shard_of(probs, k), NULL) ==
               NAPIER_OK);
    }
    EXPECT(napier_softmax(context, napier_const_rows_f32(logits, 1, COLUMNS), napier_rows_f32(whole, 1, COLUMNS),
                          NULL) == NAPIER_OK);
    EXPECT(memcmp(probs, whole, sizeof probs) == 0);
}

/* Gradients: for softmax the workers exchange three numbers for each tile, for logsumexp nothing more than the finals. */
static void gradients_over_workers(napier_context *context) {
    const napier_indices no_ids = napier_indices_i64(NULL, 0);
    const float one = 1;
    float tiles[WORKERS][NAPIER_SHARD_LSE], dots[WORKERS][NAPIER_SHARD_DOTS];
    float probs[COLUMNS], grad_probs[COLUMNS] = {1}, grad_softmax[COLUMNS], grad_lse[COLUMNS];
    int64_t finals[NAPIER_SHARD_FINAL_WORDS];
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_tiles(context, shard(logits, k), k * TILE, COLUMNS, no_ids, NULL, NAPIER_SHARD_LSE,
                                  napier_rows_f32(tiles[k], 1, NAPIER_SHARD_LSE), NULL) == NAPIER_OK);
    }
    EXPECT(napier_shard_finish_tiles(context, napier_const_rows_f32(tiles[0], 1, WORKERS * NAPIER_SHARD_LSE),
                                     NAPIER_SHARD_LSE, finals) == NAPIER_OK);
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_softmax(context, finals, NAPIER_KIND_SOFTMAX, shard(logits, k), shard_of(probs, k), NULL) ==
               NAPIER_OK);
        EXPECT(napier_shard_dots(context, shard(probs, k), shard(grad_probs, k),
                                 napier_rows_f32(dots[k], 1, NAPIER_SHARD_DOTS)) == NAPIER_OK);
        EXPECT(napier_shard_logsumexp_backward(context, finals, shard(logits, k), napier_const_array_f32(&one, 1),
                                               shard_of(grad_lse, k), NULL) == NAPIER_OK);
    }
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_softmax_backward(context, NAPIER_KIND_SOFTMAX, shard(probs, k), shard(grad_probs, k),
                                             napier_const_rows_f32(dots[0], 1, WORKERS * NAPIER_SHARD_DOTS),
                                             shard_of(grad_softmax, k), NULL) == NAPIER_OK);
    }
    EXPECT(grad_softmax[0] == probs[0] * (1 - probs[0]) && IS_NEAR(grad_lse[2000], probs[2000]));
}

/* The log-probability and the entropy of a token. The worker that has its column sets `chosen`; of all workers' values
 * the least is taken. The entropy needs the floats of all tiles in place of their sums. */
static void token_over_workers(napier_context *context) {
    const int32_t id = 1500;
    const float grad_logprob = 1;
    const napier_indices ids = napier_indices_i32(&id, 1);
    float tiles[WORKERS][NAPIER_SHARD_ENTROPY], chosen = INFINITY, logprob, entropy, grad_logits[COLUMNS];
    int64_t finals[NAPIER_SHARD_FINAL_WORDS];
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_tiles(context, shard(logits, k), k * TILE, COLUMNS, ids, NULL, NAPIER_SHARD_ENTROPY,
                                  napier_rows_f32(tiles[k], 1, NAPIER_SHARD_ENTROPY), &chosen) == NAPIER_OK);
    }
    EXPECT(napier_shard_finish_tiles(context, napier_const_rows_f32(tiles[0], 1, WORKERS * NAPIER_SHARD_ENTROPY),
                                     NAPIER_SHARD_ENTROPY, finals) == NAPIER_OK);
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(&logprob, 1, 1);
    results.entropy = napier_array_f32(&entropy, 1);
    EXPECT(napier_shard_token_results(context, 1, finals, &chosen, COLUMNS, ids, NULL, &results) == NAPIER_OK);
    EXPECT(logprob < 0 && entropy > 0 && entropy < logf(COLUMNS));

    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(&grad_logprob, 1, 1);
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_token_backward(context, finals, &chosen, shard(logits, k), k * TILE, COLUMNS, ids, NULL,
                                           &gradients, shard_of(grad_logits, k)) == NAPIER_OK);
    }
    EXPECT(IS_NEAR(grad_logits[id], 1 - exp((double)logprob)) && grad_logits[0] < 0);
}

/* The same from hidden states: each worker has 1024 rows of the head. The gradient of the hidden states is one sum over
 * the vocabulary, which the workers continue one after the other. */
static void token_from_hidden_over_workers(napier_context *context) {
    const int32_t id = 1500;
    const float hidden = 2, grad_logprob = 1; /* H = 1: the head's weights are one column */
    const napier_indices ids = napier_indices_i32(&id, 1);
    const napier_const_matrix state = napier_const_rows_f32(&hidden, 1, 1);
    float tiles[WORKERS][NAPIER_SHARD_LSE], chosen = INFINITY, grad_hidden, grad_weights[COLUMNS];
    int64_t finals[NAPIER_SHARD_FINAL_WORDS];
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(&grad_logprob, 1, 1);
    for (int k = 0; k < WORKERS; k++) {
        EXPECT(napier_shard_linear_tiles(context, state, napier_const_rows_f32(logits + k * TILE, TILE, 1), k * TILE,
                                         COLUMNS, ids, NULL, NAPIER_SHARD_LSE,
                                         napier_rows_f32(tiles[k], 1, NAPIER_SHARD_LSE), &chosen) == NAPIER_OK);
    }
    EXPECT(napier_shard_finish_tiles(context, napier_const_rows_f32(tiles[0], 1, WORKERS * NAPIER_SHARD_LSE),
                                     NAPIER_SHARD_LSE, finals) == NAPIER_OK);
    for (int k = 0; k < WORKERS; k++) {
        const napier_const_matrix head = napier_const_rows_f32(logits + k * TILE, TILE, 1);
        const napier_matrix own = napier_rows_f32(grad_weights + k * TILE, TILE, 1);
        EXPECT(napier_shard_linear_backward_check(context, state, head, COLUMNS, ids, NULL, &gradients,
                                                  napier_rows_f32(&grad_hidden, 1, 1), own) == NAPIER_OK);
        EXPECT(napier_shard_linear_backward(context, finals, &chosen, state, head, k * TILE, COLUMNS, ids, NULL,
                                            &gradients, k > 0, napier_rows_f32(&grad_hidden, 1, 1), own) == NAPIER_OK);
    }
    EXPECT(isfinite(grad_hidden) && grad_weights[id] > 0 && grad_weights[0] < 0);
}

int main(void) {
    for (int j = 0; j < COLUMNS; j++) {
        logits[j] = (float)(j % 7) - 3;
    }
    return run_examples((example *const[]){softmax_over_workers, gradients_over_workers, token_over_workers,
                                           token_from_hidden_over_workers, NULL});
}
