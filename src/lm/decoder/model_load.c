/* lm/decoder/model_load.c - loads a model from its directory. It looks up every tensor by name, checks its shape, and
 * leaves its weights in the mapped file. Only the weights of norms, which are few, are copied, as f32. */
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
    float *next_norm;
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

static napier_status get_norm(loader *l, const char *name, int64_t size, napier_norm *out) {
    const napier_tensor *tensor;
    NAPIER_TRY(get_tensor(l, name, 1, size, 0, &tensor));
    napier_widen(&napier_core_kernels_of(l->context->isa)->math, tensor->dtype, tensor->data, l->next_norm, size);
    *out = (napier_norm){l->next_norm, size, (float)l->model->config.rms_norm_eps};
    l->next_norm += size;
    return NAPIER_OK;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static napier_status get_layer(loader *l, int64_t index, napier_layer *layer) {
    const napier_model_config *c = &l->model->config;
    const int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    const struct {
        const char *name;
        int64_t rows, cols; /* of a norm: its size */
        napier_const_matrix *matrix;
        napier_norm *norm;
    } all[] = {{"self_attn.q_proj", q, c->hidden_size, &layer->q, NULL},
               {"self_attn.k_proj", kv, c->hidden_size, &layer->k, NULL},
               {"self_attn.v_proj", kv, c->hidden_size, &layer->v, NULL},
               {"self_attn.o_proj", c->hidden_size, q, &layer->o, NULL},
               {"mlp.gate_proj", c->intermediate_size, c->hidden_size, &layer->gate, NULL},
               {"mlp.up_proj", c->intermediate_size, c->hidden_size, &layer->up, NULL},
               {"mlp.down_proj", c->hidden_size, c->intermediate_size, &layer->down, NULL},
               {"input_layernorm", c->hidden_size, 0, NULL, &layer->attention_norm},
               {"post_attention_layernorm", c->hidden_size, 0, NULL, &layer->mlp_norm},
               {"self_attn.q_norm", c->head_dim, 0, NULL, &layer->q_norm},
               {"self_attn.k_norm", c->head_dim, 0, NULL, &layer->k_norm}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[NAME_SIZE];
        (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s.weight", index, all[i].name);
        NAPIER_TRY(all[i].matrix ? get_matrix(l, name, all[i].rows, all[i].cols, all[i].matrix)
                                 : get_norm(l, name, all[i].rows, all[i].norm));
    }
    return NAPIER_OK;
}

/* Checks that the files have the weights of config.json's sizes, before memory is allocated for these sizes. */
static napier_status check_sizes(const loader *l, size_t norms) {
    const napier_safetensors *tensors = l->model->tensors;
    double elements = 0;
    for (int64_t i = 0; i < napier_safetensors_count(tensors); i++) {
        elements += (double)napier_safetensors_at(tensors, i)->elements;
    }
    return (double)norms <= elements
               ? NAPIER_OK
               : napier_fail(l->context, NAPIER_CORRUPT_DATA,
                             "config.json: %" PRId64 " layers of hidden_size %" PRId64
                             " have %zu weights of norms alone, but the files %.0f elements in all",
                             l->model->config.num_hidden_layers, l->model->config.hidden_size, norms, elements);
}

static napier_status allocate(loader *l) {
    napier_model *m = l->model;
    const napier_allocator *a = &l->context->allocator;
    const napier_model_config *c = &m->config;
    const size_t layers = (size_t)c->num_hidden_layers;
    const size_t per_layer = 2 * (size_t)c->hidden_size + 2 * (size_t)c->head_dim;
    const size_t norms = layers * per_layer + (size_t)c->hidden_size; /* with the limits of config.json: < 2^36 */
    NAPIER_TRY(check_sizes(l, norms));
    m->layers = napier_alloc(a, layers, sizeof *m->layers);
    m->norms = napier_alloc(a, norms, sizeof *m->norms);
    m->inverse = napier_alloc(a, (size_t)c->head_dim / 2, sizeof *m->inverse);
    l->next_norm = m->norms;
    if (!m->layers || !m->norms || !m->inverse) {
        return napier_fail(l->context, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu layers", layers);
    }
    return NAPIER_OK;
}

static napier_status get_all(loader *l) {
    napier_model *m = l->model;
    const napier_model_config *c = &m->config;
    NAPIER_TRY(get_matrix(l, "model.embed_tokens.weight", c->vocab_size, c->hidden_size, &m->embedding));
    NAPIER_TRY(get_norm(l, "model.norm.weight", c->hidden_size, &m->last_norm));
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        NAPIER_TRY(get_layer(l, i, &m->layers[i]));
    }
    m->head = m->embedding;
    return c->tie_word_embeddings ? NAPIER_OK
                                  : get_matrix(l, "lm_head.weight", c->vocab_size, c->hidden_size, &m->head);
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
    napier_free(&context->allocator, model->norms);
    napier_free(&context->allocator, model->inverse);
    napier_free(&context->allocator, model);
}

/* ---- Information ------------------------------------------------------------------------------------------------- */

napier_const_matrix napier_model_head(const napier_model *model) {
    return model ? model->head : napier_const_rows_f32(NULL, 0, 0);
}

napier_status napier_model_get_info(napier_context *context, const napier_model *model, napier_model_info *info) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_TRY(napier_check_result_struct(context, "info", "NAPIER_MODEL_INFO_INIT", info));
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
    made.positions = c->max_position_embeddings;
    made.parameters = model->parameters;
    made.weight_bytes = model->weight_bytes;
    made.weights = model->embedding.dtype;
    made.tied = c->tie_word_embeddings != 0;
    made.compute = model->compute;
    made.memory = model->memory;
    made.bos = c->bos_token_id;
    made.eos = c->eos_count > 0 ? c->eos_token_ids[0] : -1;
    napier_write_struct(&made, info);
    return NAPIER_OK;
}
