/* lm/decoder/model_load.c - makes a model of its config and its tensors, which are in a directory, a GGUF file or the
 * caller's memory, and updates it. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/platform.h"
#include "core/base/struct_size.h"
#include "lm/decoder/weights.h"
#include "lm/text/file.h"
#include "lm/text/json.h"

#define DEFAULT_MEMORY (INT64_C(1) << 30)

/* ---- The model --------------------------------------------------------------------------------------------------- */

static napier_status read_options(napier_context *context, const napier_model_options *options, napier_model *model) {
    napier_model_options o = NAPIER_MODEL_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_model_options, NAPIER_MODEL_OPTIONS_INIT, memory), options, &o));
    NAPIER_REFUSE_IF(context, (int)o.compute < NAPIER_COMPUTE_F32 || (int)o.compute > NAPIER_COMPUTE_SPLIT,
                     "options: compute %d is unknown", (int)o.compute);
    NAPIER_REFUSE_IF(context, o.memory < 0, "options: memory %" PRId64 " is negative", o.memory);
    model->compute = o.compute;
    model->memory = o.memory > 0 ? o.memory : DEFAULT_MEMORY;
    return NAPIER_OK;
}

/* ---- Tensors that nothing reads ---------------------------------------------------------------------------------- */

/* PyTorch's state dict and some files name a tied head too. It must be the embedding, or equal to it. */
static napier_status check_tied_head(napier_context *context, const napier_model *model) {
    const char *const name = "lm_head.weight";
    const napier_const_matrix *const e = &model->embedding;
    const int64_t shape[2] = {e->rows, e->cols};
    const napier_tensor *head;
    if (!model->config.tie_word_embeddings || !napier_safetensors_find(model->tensors, name)) {
        return NAPIER_OK;
    }
    NAPIER_TRY(napier_safetensors_get(context, model->tensors, name, 2, shape, &head));
    const size_t bytes = (size_t)head->elements * napier_dtype_size(head->dtype);
    const bool elements = napier_gguf_weights_stored(model->gguf, head->data) == NULL && head->dtype == e->dtype;
    const bool equal = head->data == e->data || (elements && memcmp(head->data, e->data, bytes) == 0);
    return equal ? NAPIER_OK
                 : napier_fail(context, napier_safetensors_misfit(model->tensors),
                               "%s: not equal to model.embed_tokens.weight, although the config's tie_word_embeddings "
                               "is true",
                               name);
}

/* True for the frequencies of the rotation, which old files store and the config gives. */
static bool is_inv_freq(const char *name) {
    static const char end[] = ".rotary_emb.inv_freq";
    const size_t size = strlen(name);
    return size >= sizeof end - 1 && strcmp(name + size - (sizeof end - 1), end) == 0;
}

/* A tensor that nothing reads, such as a bias or an adapter, would change what the model computes. */
static napier_status check_all_used(napier_context *context, const napier_model *model) {
    NAPIER_TRY(check_tied_head(context, model));
    for (int64_t i = 0; i < napier_safetensors_count(model->tensors); i++) {
        const napier_tensor *const t = napier_safetensors_at(model->tensors, i);
        if (!t->used && !is_inv_freq(t->name)) {
            return napier_fail(context, napier_safetensors_misfit(model->tensors),
                               "%s: the config describes no such tensor; leave it out if it has no effect",
                               napier_show_text(t->name).text);
        }
    }
    return NAPIER_OK;
}

/* ---- From a directory -------------------------------------------------------------------------------------------- */

static napier_status load_config(napier_context *context, const char *directory, napier_model *model) {
    NAPIER_MEMORY(memory, context);
    char *path;
    NAPIER_TRY(napier_join_path(&memory, directory, "config.json", &path));
    return napier_model_config_load(context, path, &model->config);
}

/* Reads the config that the values of a GGUF file say. */
static napier_status gguf_config(napier_context *context, napier_gguf *file, napier_model *model) {
    napier_text_buffer json = {NULL, 0, 0};
    napier_status status = napier_gguf_config(file, &json);
    status = status ? status : napier_model_config_parse(context, file->path, json.bytes, json.size, &model->config);
    napier_text_buffer_free(context, &json);
    return status;
}

static napier_status load_gguf(napier_context *context, const char *path, napier_model *model) {
    model->gguf = napier_alloc(&context->allocator, 1, sizeof *model->gguf);
    if (!model->gguf) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu bytes", sizeof *model->gguf);
    }
    memset(model->gguf, 0, sizeof *model->gguf);
    NAPIER_TRY(napier_gguf_open(context, path, &model->gguf->file));
    NAPIER_TRY(gguf_config(context, &model->gguf->file, model));
    return napier_gguf_weights_get(model->gguf, model->config.head_dim, model->compute == NAPIER_COMPUTE_F32,
                                   &model->tensors);
}

static napier_status load_folder(napier_context *context, const char *directory, napier_model *model) {
    NAPIER_TRY(load_config(context, directory, model));
    return napier_safetensors_open(context, directory, &model->tensors);
}

static napier_status load(napier_context *context, const char *path, const napier_model_options *options,
                          napier_model *model) {
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    NAPIER_TRY(read_options(context, options, model));
    NAPIER_TRY((is_file ? load_gguf : load_folder)(context, path, model));
    NAPIER_TRY(napier_model_get_weights(context, model));
    return check_all_used(context, model);
}

static napier_status new_model(napier_context *context, napier_model **out) {
    *out = napier_alloc(&context->allocator, 1, sizeof **out);
    if (!*out) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu bytes", sizeof **out);
    }
    memset(*out, 0, sizeof **out);
    return NAPIER_OK;
}

/* Destroys a model that could not be made, and returns the status. */
static napier_status finish(napier_context *context, napier_status status, napier_model **model) {
    if (status) {
        napier_model_destroy(context, *model);
        *model = NULL;
    }
    return status;
}

napier_status napier_model_load(napier_context *context, const char *directory, const napier_model_options *options,
                                napier_model **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context, !directory, "directory: NULL");
    NAPIER_TRY(new_model(context, out));
    return finish(context, load(context, directory, options, *out), out);
}

/* ---- From tensors in memory -------------------------------------------------------------------------------------- */

static napier_status get_views(napier_context *context, const napier_named_tensor *tensors, int64_t count,
                               napier_model *model) {
    NAPIER_TRY(napier_safetensors_view(context, tensors, count, NAPIER_INVALID_ARGUMENT, &model->tensors));
    NAPIER_TRY(napier_model_get_weights(context, model));
    return check_all_used(context, model);
}

static napier_status view_tensors(napier_context *context, const char *config, size_t config_size,
                                  const napier_named_tensor *tensors, int64_t count,
                                  const napier_model_options *options, napier_model *model) {
    NAPIER_TRY(read_options(context, options, model));
    NAPIER_TRY(napier_model_config_parse(context, "config", config, config_size, &model->config));
    return get_views(context, tensors, count, model);
}

napier_status napier_model_from_tensors(napier_context *context, const char *config, size_t config_size,
                                        const napier_named_tensor *tensors, int64_t count,
                                        const napier_model_options *options, napier_model **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context, !config, "config: NULL");
    NAPIER_TRY(new_model(context, out));
    return finish(context, view_tensors(context, config, config_size, tensors, count, options, *out), out);
}

/* ---- Updates ----------------------------------------------------------------------------------------------------- */

/* Checks that the model's tensors keep their dtypes; the config fixes names and shapes. */
static napier_status check_dtypes(napier_context *context, const napier_safetensors *before,
                                  const napier_safetensors *now) {
    for (int64_t i = 0; i < napier_safetensors_count(now); i++) {
        const napier_tensor *const t = napier_safetensors_at(now, i);
        const napier_tensor *const old = napier_safetensors_find(before, t->name);
        NAPIER_REFUSE_IF(context, old && old->dtype != t->dtype, "%s: dtype %s, but the model has it as %s",
                         napier_show_text(t->name).text, napier_dtype_name(t->dtype), napier_dtype_name(old->dtype));
    }
    return NAPIER_OK;
}

/* A model without weights, of the same config and options. */
static napier_model without_weights(const napier_model *model) {
    return (napier_model){
        .config = model->config, .compute = model->compute, .memory = model->memory, .updates = model->updates + 1};
}

/* Makes `next` of other tensors, or of the same ones. */
static napier_status get_next(napier_context *context, const napier_model *model, const napier_named_tensor *tensors,
                              int64_t count, napier_model *next) {
    if (count == 0) {
        next->tensors = model->tensors;
        next->gguf = model->gguf;
        NAPIER_TRY(napier_model_get_weights(context, next));
        return check_tied_head(context, next);
    }
    NAPIER_TRY(get_views(context, tensors, count, next));
    return check_dtypes(context, model->tensors, next->tensors);
}

napier_status napier_model_update(napier_context *context, napier_model *model, const napier_named_tensor *tensors,
                                  int64_t count) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    napier_model next = without_weights(model);
    const napier_status status = get_next(context, model, tensors, count, &next);
    napier_model *const old = status ? &next : model;
    napier_model_free_weights(context, old);
    if (next.tensors != model->tensors) {
        napier_safetensors_close(context, old->tensors);
        napier_gguf_weights_free(context, old->gguf);
    }
    if (!status) {
        *model = next;
    }
    return status;
}

void napier_model_destroy(napier_context *context, napier_model *model) {
    if (!model) {
        return;
    }
    napier_model_free_weights(context, model);
    napier_safetensors_close(context, model->tensors);
    napier_gguf_weights_free(context, model->gguf);
    napier_free(&context->allocator, model);
}
