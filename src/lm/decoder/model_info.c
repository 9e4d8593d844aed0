/* lm/decoder/model_info.c - what a loaded model is, and which calls it can serve. */
#include <inttypes.h>
#include <stdbool.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "lm/decoder/weights.h"
#include "ops/layers/rotary_angles.h"

napier_const_matrix napier_model_head(const napier_model *model) {
    napier_const_matrix head = model ? model->head : napier_const_rows_f32(NULL, 0, 0);
    head.data = model ? napier_gguf_weights_elements(model->gguf, head.data) : NULL;
    head.dtype = napier_widened(head.dtype);
    return head.data ? head : napier_const_rows_f32(NULL, 0, 0);
}

napier_status napier_model_get_info(napier_context *context, const napier_model *model, napier_model_info *info) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_TRY(napier_check_result_struct(context, "info",
                                          NAPIER_STRUCT(napier_model_info, NAPIER_MODEL_INFO_INIT, family), info));
    const napier_model_config *c = &model->config;
    napier_model_info made;
    memset(&made, 0, sizeof made); /* the caller gets also the bytes between the fields */
    made.struct_size = sizeof made;
    made.layers = c->num_hidden_layers;
    made.hidden = c->hidden_size;
    made.heads = c->num_attention_heads;
    made.kv_heads = c->num_key_value_heads;
    made.head_dim = c->head_dim;
    made.intermediate = c->intermediate_size;
    made.vocabulary = c->vocab_size;
    const bool narrow = c->window > 0 && (c->window < c->max_position_embeddings || c->max_position_embeddings == 0);
    made.positions = narrow ? c->window : c->max_position_embeddings;
    made.parameters = model->parameters;
    made.weight_bytes = model->weight_bytes;
    made.weights = napier_widened(model->embedding.dtype);
    made.tied = c->tie_word_embeddings != 0 && c->labels == 0;
    made.compute = model->compute;
    made.memory = model->memory;
    made.bos = c->bos_token_id;
    made.eos = c->eos_count > 0 ? c->eos_token_ids[0] : -1;
    made.eos_ids = c->eos_count > 0 ? c->eos_token_ids : NULL;
    made.eos_count = c->eos_count;
    made.family = c->family;
    made.labels = c->labels;
    made.experts = c->num_experts;
    made.experts_per_token = c->num_experts_per_tok;
    made.expert_intermediate = c->moe_intermediate_size;
    napier_write_struct(&made, info);
    return NAPIER_OK;
}

int64_t napier_model_tensor_count(const napier_model *model) {
    return model ? napier_safetensors_count(model->tensors) : 0;
}

napier_status napier_model_tensor(napier_context *context, const napier_model *model, int64_t index,
                                  napier_named_tensor *out) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    const int64_t count = napier_model_tensor_count(model);
    NAPIER_REFUSE_IF(context, index < 0 || index >= count,
                     "index: %" PRId64 " is not one of the model's %" PRId64 " tensors", index, count);
    const napier_tensor *const t = napier_safetensors_at(model->tensors, index);
    const void *const data = napier_gguf_weights_elements(model->gguf, t->data);
    if (t->data && !data) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "%s: no memory for %" PRId64 " elements", t->name,
                           t->elements);
    }
    *out = (napier_named_tensor){.name = t->name, .data = data, .shape = t->shape, .ndim = t->ndim, .dtype = t->dtype};
    return NAPIER_OK;
}

napier_status napier_model_check_head(napier_context *context, const napier_model *model, bool rewards) {
    const int64_t labels = model->config.labels;
    NAPIER_REFUSE_IF(context, rewards && labels == 0,
                     "model: a language model (ForCausalLM) gives no rewards; score its tokens instead");
    NAPIER_REFUSE_IF(context, !rewards && labels > 0,
                     "model: a reward model (ForSequenceClassification, %" PRId64
                     " labels) has no probabilities of tokens; napier_model_rewards reads its head",
                     labels);
    return NAPIER_OK;
}

napier_status napier_model_check_length(napier_context *context, const napier_model *model, const char *argument,
                                        int64_t tokens) {
    const int64_t window = model->config.window;
    NAPIER_REFUSE_IF(context, tokens > NAPIER_ROPE_POSITIONS, "%s: a sequence of %" PRId64 " tokens is too long",
                     argument, tokens);
    return window == 0 || tokens <= window ? NAPIER_OK
                                           : napier_fail(context, NAPIER_UNSUPPORTED,
                                                         "%s: a sequence of %" PRId64
                                                         " tokens is longer than the model's sliding_window of %" PRId64
                                                         "; only full attention is supported",
                                                         argument, tokens, window);
}
