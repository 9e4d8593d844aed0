/* fuzz_jsonl - hostile JSON Lines: a message, or responses whose columns are as long as their offsets say. Complaints go to
 * standard error: run the fuzzer with -close_fd_mask=2. */
#include "fuzz_file.h"

#include "io/jsonl.h"
#include "rl/rl_batch.h"

static void check_batch(const rl_batch *b) {
    const int64_t *const offsets = b->offsets.data;
    REQUIRE(b->responses > 0 && b->offsets.count == b->responses + 1, "%lld offsets", (long long)b->offsets.count);
    REQUIRE(offsets[0] == 0 && offsets[b->responses] == b->tokens, "offsets of %lld tokens", (long long)b->tokens);
    for (int64_t i = 0; i < b->responses; i++) {
        REQUIRE(offsets[i] <= offsets[i + 1], "offset %lld", (long long)i);
    }
    REQUIRE((b->required & ~b->have) == 0 && (b->have & ~b->wanted) == 0, "fields %x", b->have);
    for (int field = 0; field < RL_FIELDS; field++) {
        const bool one_a_response = field == RL_ADVANTAGES && !b->advantages_per_token;
        const int64_t want = one_a_response ? b->responses : b->tokens;
        const bool have = (b->have & RL_BIT(field)) != 0;
        REQUIRE(b->columns[field].count == (have ? want : 0), "%s: %lld", rl_fields[field].json,
                (long long)b->columns[field].count);
    }
    for (int64_t t = 0; t < b->columns[RL_TOKEN_IDS].count; t++) {
        REQUIRE(((const int64_t *)b->columns[RL_TOKEN_IDS].data)[t] >= 0, "id %lld", (long long)t);
    }
    for (int64_t t = 0; t < b->columns[RL_MASK].count; t++) {
        REQUIRE(((const uint8_t *)b->columns[RL_MASK].data)[t] <= 1, "mask %lld", (long long)t);
    }
}

FUZZ(in) {
    rl_batch batch = {.wanted = take(&in), .required = RL_BIT(RL_LOGPROBS)};
    batch.wanted |= batch.required;
    FILE *const file = fuzz_stream(in.at, in.left);
    if (rl_batch_read_stream(&batch, file, "fuzz") == 0) {
        check_batch(&batch);
    }
    rl_batch_free(&batch);
    fclose(file);
}
