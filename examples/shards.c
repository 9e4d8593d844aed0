/* shards - softmax over a vocabulary that no single worker holds, with the bits of the one that would.
 *
 * A row of 151,936 logits lies in four shards, as it does when a model's last layer is split over machines. Each
 * worker reduces its own shard to a state of a few kilobytes and sends it as bytes; neighbours are merged in any order;
 * and each worker turns its own logits into probabilities. The result is compared, byte by byte, with napier_softmax of
 * the whole row. The shards' 37,984 columns are no multiple of the library's tile of 1024: they need not be.
 *
 * Exit status: 0 if every byte agrees. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/napier.h>

enum { VOCABULARY = 151936, SHARDS = 4, SHARD = VOCABULARY / SHARDS };

static void check(napier_status status, const napier_context *context) {
    if (status != NAPIER_OK) {
        fprintf(stderr, "shards: %s: %s\n", napier_status_string(status), context ? napier_last_error(context) : "");
        exit(EXIT_FAILURE);
    }
}

/* What worker `k` sends: the state of its shard, as bytes. */
static unsigned char *reduce_shard(napier_context *context, int k, const float *shard, size_t *size) {
    napier_softmax_state *state = NULL;
    check(napier_softmax_state_create(context, NAPIER_F32, (int64_t)k * SHARD, NULL, &state), context);
    check(napier_softmax_state_update(context, state, napier_const_array_f32(shard, SHARD)), context);
    *size = napier_softmax_state_size(state);
    unsigned char *const bytes = malloc(*size);
    if (!bytes) {
        fprintf(stderr, "shards: no memory\n");
        exit(EXIT_FAILURE);
    }
    check(napier_softmax_state_to_bytes(context, state, bytes, *size), context);
    napier_softmax_state_destroy(state);
    printf("shard %d: %d logits became %zu bytes\n", k, SHARD, *size);
    return bytes;
}

/* Merges the workers' states. The pairs are neighbours; which pair comes first, and which side takes in the other, does
 * not matter. */
static napier_softmax_state *merge_all(napier_context *context, unsigned char *const bytes[SHARDS],
                                       const size_t size[SHARDS]) {
    napier_softmax_state *states[SHARDS] = {NULL};
    for (int k = 0; k < SHARDS; k++) {
        check(napier_softmax_state_from_bytes(context, bytes[k], size[k], &states[k]), context);
    }
    check(napier_softmax_state_merge(context, states[3], states[2]), context);
    check(napier_softmax_state_merge(context, states[0], states[1]), context);
    check(napier_softmax_state_merge(context, states[0], states[3]), context);
    for (int k = 1; k < SHARDS; k++) {
        napier_softmax_state_destroy(states[k]);
    }
    return states[0];
}

int main(void) {
    static float logits[VOCABULARY];
    static float probs[VOCABULARY];
    static float expected[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) { /* any row will do: this one wanders between -30 and 30 */
        logits[i] = 60.0F * ((float)((uint32_t)i * 2654435761U >> 8) / 16777216.0F) - 30.0F;
    }
    napier_context *context = NULL;
    check(napier_context_create(&context, NULL), NULL);

    unsigned char *bytes[SHARDS];
    size_t size[SHARDS];
    for (int k = 0; k < SHARDS; k++) {
        bytes[k] = reduce_shard(context, k, logits + (size_t)k * SHARD, &size[k]);
    }
    napier_softmax_state *const whole = merge_all(context, bytes, size);
    double lse = 0.0;
    check(napier_softmax_state_finish(context, whole, &lse), context);
    printf("merged:  logsumexp of all %d logits is %.7g\n", VOCABULARY, lse);

    for (int k = 0; k < SHARDS; k++) {
        check(napier_softmax_state_apply(context, whole, NAPIER_KIND_SOFTMAX,
                                         napier_const_array_f32(logits + (size_t)k * SHARD, SHARD),
                                         napier_array_f32(probs + (size_t)k * SHARD, SHARD)),
              context);
        free(bytes[k]);
    }
    napier_softmax_state_destroy(whole);

    check(napier_softmax(context, napier_const_rows_f32(logits, 1, VOCABULARY),
                         napier_rows_f32(expected, 1, VOCABULARY), NULL),
          context);
    napier_context_destroy(context);
    const int same = memcmp(probs, expected, sizeof probs) == 0;
    printf("every byte %s napier_softmax of the whole row\n", same ? "equals" : "DIFFERS FROM");
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
