/* lm/decoder/model_weights.c - finds a model's weights among its tensors. It looks up every tensor by name, checks its
 * shape, and leaves its weights where they are. Only weights of norms and biases, which are few, are copied, as f32. */
#include <inttypes.h>
#include <math.h>
#include <napier/layers.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/base/scope.h"
#include "core/isa/core_kernels.h"
#include "lm/decoder/weights.h"
#include "ops/layers/rotary_angles.h"

enum { NAME_SIZE = 96 };

typedef struct loader {
    napier_context *context;
    napier_model *model;
    float *next;               /* in model->vectors */
    napier_gated *next_expert; /* in model->experts */
} loader;

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static napier_status get_tensor(const loader *l, const char *name, int dims, const int64_t *shape,
                                const napier_tensor **out) {
    NAPIER_TRY(napier_safetensors_get(l->context, l->model->tensors, name, dims, shape, out));
    if ((*out)->dtype == NAPIER_F64) {
        return napier_fail(l->context, NAPIER_UNSUPPORTED, "%s: dtype f64 is not f32, f16 or bf16", name);
    }
    l->model->parameters += (*out)->elements;
    const napier_stored *const stored = napier_gguf_weights_stored(l->model->gguf, (*out)->data);
    l->model->weight_bytes +=
        stored ? stored->rows * stored->blocks.row_bytes : (*out)->elements * (int64_t)napier_dtype_size((*out)->dtype);
    return NAPIER_OK;
}

/* Of a tensor of matrices. */
static napier_dtype stored_dtype(const loader *l, const napier_tensor *t) {
    return napier_gguf_weights_stored(l->model->gguf, t->data) ? NAPIER_BLOCKS : t->dtype;
}

/* Notes a tensor of matrices, and refuses one whose products the compute mode does not know. */
static napier_status note_matrices(const loader *l, const char *name, const napier_tensor *tensor) {
    NAPIER_REFUSE_IF(l->context, napier_model_splits(l->model) && tensor->dtype != NAPIER_BF16,
                     "%s: dtype %s, but the compute mode split needs bf16; f32 takes any", name,
                     napier_dtype_name(tensor->dtype));
    l->model->dtypes |= 1u << stored_dtype(l, tensor);
    return NAPIER_OK;
}

static napier_status get_matrix(const loader *l, const char *name, int64_t rows, int64_t cols,
                                napier_const_matrix *out) {
    const napier_tensor *tensor;
    const int64_t shape[] = {rows, cols};
    NAPIER_TRY(get_tensor(l, name, 2, shape, &tensor));
    NAPIER_TRY(note_matrices(l, name, tensor));
    *out = napier_const_rows(tensor->data, rows, cols, stored_dtype(l, tensor));
    return NAPIER_OK;
}

/* Widens a vector to f32. */
static napier_status get_vector(loader *l, const char *name, int64_t size, const float **out) {
    const napier_tensor *tensor;
    NAPIER_TRY(get_tensor(l, name, 1, &size, &tensor));
    napier_widen(&napier_core_kernels_of(l->context->isa)->math, tensor->dtype, tensor->data, l->next, size);
    *out = l->next;
    l->next += size;
    return NAPIER_OK;
}

static napier_norm norm_of(const loader *l, int64_t size) {
    return (napier_norm){NULL, size, (float)l->model->config.rms_norm_eps};
}

static napier_status get_norm(loader *l, const char *name, int64_t size, napier_norm *out) {
    *out = norm_of(l, size);
    return get_vector(l, name, size, &out->weight);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* One of a layer's products or norms. */
typedef struct layer_part {
    const char *name;
    int64_t rows, cols; /* of a norm: its size */
    napier_dense *dense;
    bool biased;
    napier_norm *norm;
} layer_part;

static napier_status get_part(loader *l, int64_t index, const layer_part *part) {
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s.weight", index, part->name);
    if (part->norm) {
        return get_norm(l, name, part->rows, part->norm);
    }
    NAPIER_TRY(get_matrix(l, name, part->rows, part->cols, &part->dense->weights));
    part->dense->bias = NULL;
    (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s.bias", index, part->name);
    return part->biased ? get_vector(l, name, part->rows, &part->dense->bias) : NAPIER_OK;
}

static napier_status get_parts(loader *l, int64_t index, const layer_part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        NAPIER_TRY(get_part(l, index, &parts[i]));
    }
    return NAPIER_OK;
}

static napier_status get_attention(loader *l, int64_t index, napier_layer *layer) {
    const napier_model_config *c = &l->model->config;
    const int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    const layer_part parts[] = {{"self_attn.q_proj", q, c->hidden_size, &layer->q, c->qkv_bias, NULL},
                                {"self_attn.k_proj", kv, c->hidden_size, &layer->k, c->qkv_bias, NULL},
                                {"self_attn.v_proj", kv, c->hidden_size, &layer->v, c->qkv_bias, NULL},
                                {"self_attn.o_proj", c->hidden_size, q, &layer->o, c->o_bias, NULL}};
    const layer_part norms[] = {{.name = "self_attn.q_norm", .rows = c->head_dim, .norm = &layer->q_norm},
                                {.name = "self_attn.k_norm", .rows = c->head_dim, .norm = &layer->k_norm}};
    layer->q_norm = layer->k_norm = norm_of(l, c->head_dim);
    NAPIER_TRY(get_parts(l, index, parts, sizeof parts / sizeof *parts));
    return get_parts(l, index, norms, c->head_norms ? sizeof norms / sizeof *norms : 0);
}

static napier_status get_mlp(loader *l, int64_t index, napier_layer *layer) {
    const napier_model_config *c = &l->model->config;
    const layer_part parts[] = {
        {"mlp.gate_proj", c->intermediate_size, c->hidden_size, &layer->gate, c->mlp_bias, NULL},
        {"mlp.up_proj", c->intermediate_size, c->hidden_size, &layer->up, c->mlp_bias, NULL},
        {"mlp.down_proj", c->hidden_size, c->intermediate_size, &layer->down, c->mlp_bias, NULL}};
    return get_parts(l, index, parts, sizeof parts / sizeof *parts);
}

/* ---- Experts ----------------------------------------------------------------------------------------------------- */

/* The matrix of each expert, [rows, cols], of the tensor [experts, all_rows, cols]: its rows from `first` on. */
static napier_const_matrix expert_rows(const napier_tensor *all, int64_t expert, int64_t first, int64_t rows) {
    const int64_t cols = all->shape[2], row = expert * all->shape[1] + first;
    const char *const data = (const char *)all->data + row * cols * (int64_t)napier_dtype_size(all->dtype);
    return napier_const_rows(data, rows, cols, all->dtype);
}

/* As transformers 5 has them in memory: gate and up in one tensor [experts, 2 intermediate, hidden], and down. */
static napier_status get_fused_experts(const loader *l, const char *prefix, napier_gated *experts) {
    const napier_model_config *c = &l->model->config;
    const int64_t width = c->moe_intermediate_size;
    const int64_t first[] = {c->num_experts, 2 * width, c->hidden_size};
    const int64_t last[] = {c->num_experts, c->hidden_size, width};
    const napier_tensor *gate_up, *down;
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s.gate_up_proj", prefix);
    NAPIER_TRY(get_tensor(l, name, 3, first, &gate_up));
    NAPIER_TRY(note_matrices(l, name, gate_up));
    (void)snprintf(name, sizeof name, "%s.down_proj", prefix);
    NAPIER_TRY(get_tensor(l, name, 3, last, &down));
    NAPIER_TRY(note_matrices(l, name, down));
    for (int64_t e = 0; e < c->num_experts; e++) {
        experts[e] = (napier_gated){.gate = expert_rows(gate_up, e, 0, width),
                                    .up = expert_rows(gate_up, e, width, width),
                                    .down = expert_rows(down, e, 0, c->hidden_size)};
    }
    return NAPIER_OK;
}

static napier_status get_expert(const loader *l, const char *prefix, int64_t expert, napier_gated *out) {
    const napier_model_config *c = &l->model->config;
    const int64_t hidden = c->hidden_size, width = c->moe_intermediate_size;
    char name[NAME_SIZE];
    *out = (napier_gated){.gate_bias = NULL, .up_bias = NULL};
    (void)snprintf(name, sizeof name, "%s.%" PRId64 ".gate_proj.weight", prefix, expert);
    NAPIER_TRY(get_matrix(l, name, width, hidden, &out->gate));
    (void)snprintf(name, sizeof name, "%s.%" PRId64 ".up_proj.weight", prefix, expert);
    NAPIER_TRY(get_matrix(l, name, width, hidden, &out->up));
    (void)snprintf(name, sizeof name, "%s.%" PRId64 ".down_proj.weight", prefix, expert);
    return get_matrix(l, name, hidden, width, &out->down);
}

static napier_status get_experts(loader *l, int64_t index, napier_layer *layer) {
    const napier_model_config *c = &l->model->config;
    char prefix[NAME_SIZE / 2], name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".mlp.gate.weight", index);
    NAPIER_TRY(get_matrix(l, name, c->num_experts, c->hidden_size, &layer->router));
    layer->experts = l->next_expert;
    l->next_expert += c->num_experts;
    (void)snprintf(prefix, sizeof prefix, "model.layers.%" PRId64 ".mlp.experts", index);
    (void)snprintf(name, sizeof name, "%s.gate_up_proj", prefix);
    if (napier_safetensors_find(l->model->tensors, name)) {
        return get_fused_experts(l, prefix, layer->experts);
    }
    for (int64_t e = 0; e < c->num_experts; e++) {
        NAPIER_TRY(get_expert(l, prefix, e, &layer->experts[e]));
    }
    return NAPIER_OK;
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static napier_status get_layer(loader *l, int64_t index, napier_layer *layer) {
    const int64_t hidden = l->model->config.hidden_size;
    const layer_part norms[] = {{.name = "input_layernorm", .rows = hidden, .norm = &layer->attention_norm},
                                {.name = "post_attention_layernorm", .rows = hidden, .norm = &layer->mlp_norm}};
    memset(layer, 0, sizeof *layer);
    NAPIER_TRY(get_parts(l, index, norms, sizeof norms / sizeof *norms));
    NAPIER_TRY(get_attention(l, index, layer));
    return napier_model_config_is_sparse(&l->model->config, index) ? get_experts(l, index, layer)
                                                                   : get_mlp(l, index, layer);
}

/* The elements of all norms and biases. With the limits of config.json this is less than 2^46. */
static int64_t vector_elements(const napier_model_config *c) {
    const int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    int64_t each = 2 * c->hidden_size;
    each += c->head_norms ? 2 * c->head_dim : 0;
    each += c->qkv_bias ? q + 2 * kv : 0;
    each += c->o_bias ? c->hidden_size : 0;
    each += c->mlp_bias ? 2 * c->intermediate_size + c->hidden_size : 0;
    return c->num_hidden_layers * each + c->hidden_size;
}

/* Checks that there are weights of the config's sizes, before memory is allocated for these sizes: for each weight of a
 * norm or bias, and for the views of each expert, which take less than 64 times the bytes of the smallest expert. */
static napier_status check_sizes(const loader *l, int64_t vectors, int64_t experts) {
    const napier_safetensors *tensors = l->model->tensors;
    const napier_model_config *c = &l->model->config;
    const double each = 3 * (double)c->hidden_size * (double)c->moe_intermediate_size;
    const double wanted = (double)vectors + (double)experts * each;
    double elements = 0;
    for (int64_t i = 0; i < napier_safetensors_count(tensors); i++) {
        const napier_tensor *const t = napier_safetensors_at(tensors, i);
        elements +=
            napier_dtype_size(t->dtype) > 0 ? (double)t->elements : 0; /* no one has checked the others' sizes */
    }
    return wanted <= elements
               ? NAPIER_OK
               : napier_fail(
                     l->context, napier_safetensors_misfit(tensors),
                     "config.json: %" PRId64 " layers of hidden_size %" PRId64
                     " have %.0f weights of norms, biases and experts alone, but the tensors %.0f elements in all",
                     c->num_hidden_layers, c->hidden_size, wanted, elements);
}

static napier_status allocate(loader *l) {
    napier_model *m = l->model;
    const napier_allocator *a = &l->context->allocator;
    const napier_model_config *c = &m->config;
    const size_t layers = (size_t)c->num_hidden_layers;
    const int64_t vectors = vector_elements(c), experts = c->num_experts * c->sparse_layers;
    NAPIER_TRY(check_sizes(l, vectors, experts));
    m->layers = napier_alloc(a, layers, sizeof *m->layers);
    m->vectors = napier_alloc(a, (size_t)vectors, sizeof *m->vectors);
    m->inverse = napier_alloc(a, (size_t)c->head_dim / 2, sizeof *m->inverse);
    m->experts = experts > 0 ? napier_alloc(a, (size_t)experts, sizeof *m->experts) : NULL;
    l->next = m->vectors;
    l->next_expert = m->experts;
    if (!m->layers || !m->vectors || !m->inverse || (experts > 0 && !m->experts)) {
        return napier_fail(l->context, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu layers", layers);
    }
    return NAPIER_OK;
}

static napier_status get_head(const loader *l) {
    napier_model *m = l->model;
    const napier_model_config *c = &m->config;
    if (c->labels > 0) {
        return get_matrix(l, "score.weight", c->labels, c->hidden_size, &m->head);
    }
    m->head = m->embedding;
    return c->tie_word_embeddings ? NAPIER_OK
                                  : get_matrix(l, "lm_head.weight", c->vocab_size, c->hidden_size, &m->head);
}

static napier_status get_all(loader *l) {
    napier_model *m = l->model;
    const napier_model_config *c = &m->config;
    NAPIER_TRY(get_matrix(l, "model.embed_tokens.weight", c->vocab_size, c->hidden_size, &m->embedding));
    NAPIER_TRY(get_norm(l, "model.norm.weight", c->hidden_size, &m->last_norm));
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        NAPIER_TRY(get_layer(l, i, &m->layers[i]));
    }
    return get_head(l);
}

static napier_status make_frequencies(napier_context *context, napier_model *model) {
    const napier_vector inverse = {model->inverse, model->config.head_dim / 2, 1, NAPIER_F32};
    double scale = 1;
    NAPIER_TRY(napier_rotary_frequencies(context, &model->config.rotary, inverse, &scale));
    model->scale = (float)scale;
    for (int64_t i = 0; i < inverse.size; i++) { /* what napier_rotary_angles takes */
        if (!(fabsf(model->inverse[i]) <= NAPIER_ROPE_INVERSE_MOST)) {
            return napier_fail(context, NAPIER_CORRUPT_DATA,
                               "config.json: frequency %" PRId64 " of the rotation is %g, not within -4 .. 4", i,
                               (double)model->inverse[i]);
        }
    }
    return NAPIER_OK;
}

napier_status napier_model_get_weights(napier_context *context, napier_model *model) {
    loader l = {.context = context, .model = model};
    NAPIER_TRY(allocate(&l));
    NAPIER_TRY(get_all(&l));
    return make_frequencies(context, model);
}

void napier_model_free_weights(napier_context *context, napier_model *model) {
    napier_free(&context->allocator, model->layers);
    napier_free(&context->allocator, model->experts);
    napier_free(&context->allocator, model->vectors);
    napier_free(&context->allocator, model->inverse);
}
