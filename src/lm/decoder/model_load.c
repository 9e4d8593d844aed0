/* lm/decoder/model_load.c - loads a model from its directory. It looks up every tensor by name, checks its shape, and
 * leaves its weights in the mapped file. Only weights of norms and biases, which are few, are copied, as f32. */
#include <inttypes.h>
#include <napier/layers.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/struct_size.h"
#include "core/isa/core_kernels.h"
#include "lm/decoder/weights.h"
#include "lm/text/file.h"

enum { NAME_SIZE = 96 };

#define DEFAULT_MEMORY (INT64_C(1) << 30)

typedef struct loader {
    napier_context *context;
    napier_model *model;
    float *next; /* in model->vectors */
} loader;

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static napier_status get_tensor(const loader *l, const char *name, int dims, int64_t rows, int64_t cols,
                                const napier_tensor **out) {
    const int64_t shape[2] = {rows, cols};
    NAPIER_TRY(napier_safetensors_get(l->context, l->model->tensors, name, dims, shape, out));
    if ((*out)->dtype == NAPIER_F64) {
        return napier_fail(l->context, NAPIER_UNSUPPORTED, "%s: dtype f64 is not f32, f16 or bf16", name);
    }
    l->model->parameters += (*out)->elements;
    l->model->weight_bytes += (*out)->elements * (int64_t)napier_dtype_size((*out)->dtype);
    return NAPIER_OK;
}

static napier_status get_matrix(const loader *l, const char *name, int64_t rows, int64_t cols,
                                napier_const_matrix *out) {
    const napier_tensor *tensor;
    NAPIER_TRY(get_tensor(l, name, 2, rows, cols, &tensor));
    *out = napier_const_rows(tensor->data, rows, cols, tensor->dtype);
    return NAPIER_OK;
}

/* Widens a vector to f32. */
static napier_status get_vector(loader *l, const char *name, int64_t size, const float **out) {
    const napier_tensor *tensor;
    NAPIER_TRY(get_tensor(l, name, 1, size, 0, &tensor));
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

static napier_status get_layer(loader *l, int64_t index, napier_layer *layer) {
    const int64_t hidden = l->model->config.hidden_size;
    const layer_part norms[] = {{.name = "input_layernorm", .rows = hidden, .norm = &layer->attention_norm},
                                {.name = "post_attention_layernorm", .rows = hidden, .norm = &layer->mlp_norm}};
    NAPIER_TRY(get_parts(l, index, norms, sizeof norms / sizeof *norms));
    NAPIER_TRY(get_attention(l, index, layer));
    return get_mlp(l, index, layer);
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

/* Checks that the files have the weights of config.json's sizes, before memory is allocated for these sizes. */
static napier_status check_sizes(const loader *l, int64_t vectors) {
    const napier_safetensors *tensors = l->model->tensors;
    double elements = 0;
    for (int64_t i = 0; i < napier_safetensors_count(tensors); i++) {
        elements += (double)napier_safetensors_at(tensors, i)->elements;
    }
    return (double)vectors <= elements
               ? NAPIER_OK
               : napier_fail(l->context, NAPIER_CORRUPT_DATA,
                             "config.json: %" PRId64 " layers of hidden_size %" PRId64 " have %" PRId64
                             " weights of norms and biases alone, but the files %.0f elements in all",
                             l->model->config.num_hidden_layers, l->model->config.hidden_size, vectors, elements);
}

static napier_status allocate(loader *l) {
    napier_model *m = l->model;
    const napier_allocator *a = &l->context->allocator;
    const napier_model_config *c = &m->config;
    const size_t layers = (size_t)c->num_hidden_layers;
    const int64_t vectors = vector_elements(c);
    NAPIER_TRY(check_sizes(l, vectors));
    m->layers = napier_alloc(a, layers, sizeof *m->layers);
    m->vectors = napier_alloc(a, (size_t)vectors, sizeof *m->vectors);
    m->inverse = napier_alloc(a, (size_t)c->head_dim / 2, sizeof *m->inverse);
    l->next = m->vectors;
    if (!m->layers || !m->vectors || !m->inverse) {
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

/* ---- The model --------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_model_options *options, napier_model *model) {
    napier_model_options o = NAPIER_MODEL_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_MODEL_OPTIONS_INIT", options, &o));
    NAPIER_REFUSE_IF(context, o.compute != NAPIER_COMPUTE_F32 && o.compute != NAPIER_COMPUTE_BF16,
                     "options: compute %d is unknown", (int)o.compute);
    NAPIER_REFUSE_IF(context, o.memory < 0, "options: memory %" PRId64 " is negative", o.memory);
    model->compute = o.compute;
    model->memory = o.memory > 0 ? o.memory : DEFAULT_MEMORY;
    return NAPIER_OK;
}

static napier_status load_config(napier_context *context, const char *directory, napier_model *model) {
    NAPIER_MEMORY(memory, context);
    char *path;
    NAPIER_TRY(napier_join_path(&memory, directory, "config.json", &path));
    return napier_model_config_load(context, path, &model->config);
}

static napier_status make_frequencies(napier_context *context, napier_model *model) {
    napier_rotary_options rotary = NAPIER_ROTARY_OPTIONS_INIT;
    double scale;
    rotary.theta = model->config.rope_theta;
    const napier_vector inverse = {model->inverse, model->config.head_dim / 2, 1, NAPIER_F32};
    return napier_rotary_frequencies(context, &rotary, inverse, &scale);
}

static napier_status load(napier_context *context, const char *directory, const napier_model_options *options,
                          napier_model *model) {
    loader l = {.context = context, .model = model};
    NAPIER_TRY(read_options(context, options, model));
    NAPIER_TRY(load_config(context, directory, model));
    NAPIER_TRY(napier_safetensors_open(context, directory, &model->tensors));
    NAPIER_TRY(allocate(&l));
    NAPIER_TRY(get_all(&l));
    return make_frequencies(context, model);
}

napier_status napier_model_load(napier_context *context, const char *directory, const napier_model_options *options,
                                napier_model **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context, !directory, "directory: NULL");
    napier_model *model = napier_alloc(&context->allocator, 1, sizeof *model);
    if (!model) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu bytes", sizeof *model);
    }
    memset(model, 0, sizeof *model);
    const napier_status status = load(context, directory, options, model);
    if (status) {
        napier_model_destroy(context, model);
        return status;
    }
    *out = model;
    return NAPIER_OK;
}

void napier_model_destroy(napier_context *context, napier_model *model) {
    if (!model) {
        return;
    }
    napier_safetensors_close(context, model->tensors);
    napier_free(&context->allocator, model->layers);
    napier_free(&context->allocator, model->vectors);
    napier_free(&context->allocator, model->inverse);
    napier_free(&context->allocator, model);
}
