/* fuzz_model_config - bytes that claim to be a config.json. What is taken must be
 * within the ranges that the header promises. */
#include "lm/decoder/model_config.h"

#include "fuzz.h"

static void check(const napier_model_config *c) {
    REQUIRE(c->hidden_size > 0 && c->hidden_size <= 1 << 20, "hidden_size %lld", (long long)c->hidden_size);
    REQUIRE(c->num_hidden_layers > 0 && c->intermediate_size > 0, "a size below 1");
    REQUIRE(c->num_key_value_heads > 0 && c->num_attention_heads % c->num_key_value_heads == 0, "heads");
    REQUIRE(c->head_dim > 0 && c->head_dim % 2 == 0, "head_dim %lld", (long long)c->head_dim);
    REQUIRE(c->vocab_size > 0 && c->vocab_size < INT32_MAX, "vocab_size %lld", (long long)c->vocab_size);
    REQUIRE(c->rms_norm_eps > 0 && c->rotary.theta > 0, "eps %g, theta %g", c->rms_norm_eps, c->rotary.theta);
    REQUIRE(c->family && c->labels >= 0 && c->labels <= 1 << 20, "%lld labels", (long long)c->labels);
    REQUIRE(c->window >= 0 && c->window < INT32_MAX, "window %lld", (long long)c->window);
    REQUIRE(c->eos_count >= 0 && c->eos_count <= NAPIER_MOST_EOS_TOKENS, "%d eos", c->eos_count);
    REQUIRE(c->bos_token_id >= -1, "bos %lld", (long long)c->bos_token_id);
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    napier_model_config config;
    const napier_status status =
        napier_model_config_parse(context, "config.json", (const char *)in.at, in.left, &config);
    if (MADE(context, status, status == NAPIER_OK, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED)) {
        check(&config);
    }
}
