/* lm/decoder/gpu/decoder_cuda.c - a decoder on a GPU, in the steps of lm/decoder/layers.c:
 *
 *     x = embedding[ids]
 *     for each layer:  x += attention(norm(x)) o^T;  x += down(silu(gate(norm(x))) * up(norm(x)))
 *     states = norm(x)
 *
 * Steps that need no other token take up to BLOCK_ROWS rows at a time, which limits the memory of a product's sums. */
#include "lm/decoder/gpu/decoder_cuda.h"

#include <inttypes.h>
#include <napier/cuda/attention.h>
#include <napier/cuda/model.h>

#include "core/base/parallel.h"
#include "core/base/view.h"
#include "lm/decoder/weights.h"
#include "ops/layers/gpu/layers_cuda.h"
#include "ops/layers/rotary_angles.h"
#include "ops/linear/gpu/matmul_cuda.h"
#include "ops/tokens/gpu/responses_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_decoder_starts, napier_decoder_embed, napier_decoder_states, napier_layers_norm,
                           napier_layers_rotate, napier_layers_gate, napier_layers_add);

enum { BLOCK_ROWS = 4096, ATTENTION_BYTES = 256, WAVES = 8 };

struct napier_cuda_model {
    napier_model model; /* a copy whose weights are in device memory; `layers` is an array of its own */
    int64_t positions;
    const float *cosines, *sines; /* [positions, head_dim / 2] */
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- Weights ------------------------------------------------------------------------------------------------------- */

/* The way of all weights to the device, twice: to add up their sizes, then to copy them. */
typedef struct upload {
    const napier_gguf_weights *gguf; /* of the model; NULL: none */
    napier_cuda_call gpu;
    napier_cuda_room room;
    bool copies;
    napier_status status; /* of the first copy that failed */
} upload;

/* Returns where the array is from then on. */
static const void *put(upload *u, const void *data, int64_t count, size_t size) {
    void *const to = napier_cuda_take(&u->room, count, size);
    if (!u->copies) {
        return data;
    }
    if (!u->status) {
        u->status = napier_cuda_upload(u->gpu.context, u->gpu.stream, to, data, (size_t)count * size);
    }
    return to;
}

static void put_floats(upload *u, const float **data, int64_t count) {
    *data = *data ? put(u, *data, count, sizeof(float)) : NULL;
}

static void put_matrix(upload *u, napier_const_matrix *m) {
    m->dtype = napier_widened(m->dtype);
    const void *const elements = napier_gguf_weights_elements(u->gguf, m->data);
    if (m->data && !elements && !u->status) {
        u->status = napier_fail(u->gpu.context->host, NAPIER_OUT_OF_MEMORY, "model: no memory to widen weights");
    }
    m->data = put(u, elements, m->rows, (size_t)m->cols * napier_dtype_size(m->dtype));
}

static void put_dense(upload *u, napier_dense *dense) {
    put_matrix(u, &dense->weights);
    put_floats(u, &dense->bias, dense->weights.rows);
}

static void put_layer(upload *u, napier_layer *layer) {
    enum { DENSE = 7, NORMS = 4 };
    napier_dense *const dense[DENSE] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                        &layer->gate, &layer->up, &layer->down};
    napier_norm *const norms[NORMS] = {&layer->attention_norm, &layer->mlp_norm, &layer->q_norm, &layer->k_norm};
    for (int i = 0; i < DENSE; i++) {
        put_dense(u, dense[i]);
    }
    for (int i = 0; i < NORMS; i++) {
        put_floats(u, &norms[i]->weight, norms[i]->n);
    }
}

/* angles: the cosines of all positions, then the sines. */
static void put_model(upload *u, napier_cuda_model *to, const float *angles) {
    napier_model *const m = &to->model;
    const bool tied = m->head.data == m->embedding.data;
    const int64_t count = to->positions * (m->config.head_dim / 2);
    put_matrix(u, &m->embedding);
    if (tied) {
        m->head.data = m->embedding.data;
        m->head.dtype = m->embedding.dtype;
    } else {
        put_matrix(u, &m->head);
    }
    put_floats(u, &m->last_norm.weight, m->last_norm.n);
    for (int64_t i = 0; i < m->config.num_hidden_layers; i++) {
        put_layer(u, &m->layers[i]);
    }
    to->cosines = put(u, angles, count, sizeof(float));
    to->sines = put(u, angles ? angles + count : NULL, count, sizeof(float));
}

typedef struct angles_work {
    const napier_model *model;
    float *cosines, *sines;
} angles_work;

static void angles_row(void *argument, int64_t position) {
    const angles_work *const a = argument;
    const int64_t half = a->model->config.head_dim / 2;
    napier_rope_angles(a->model->inverse, half, a->model->scale, position, a->cosines + position * half,
                       a->sines + position * half);
}

static napier_status put_all(upload *u, napier_cuda_model *to) {
    napier_context *const host = u->gpu.context->host;
    const int64_t half = to->model.config.head_dim / 2;
    put_model(u, to, NULL);
    NAPIER_CUDA_READY(u->gpu.context, u->room);
    NAPIER_MEMORY(memory, host);
    float *const angles = napier_take(&memory, to->positions, 2 * (size_t)half * sizeof *angles);
    NAPIER_TRY(napier_taken(&memory, "positions: no memory for the angles of %" PRId64, to->positions));
    angles_work work = {&to->model, angles, angles + to->positions * half};
    napier_parallel_each(host, to->positions, 16, angles_row, &work);
    u->room = napier_cuda_room_of(u->room.workspace);
    u->copies = true;
    put_model(u, to, angles);
    return u->status;
}

static napier_status check_model(napier_context *host, const napier_model *model, int64_t positions) {
    const int64_t window = model->config.window;
    const int64_t most = window > 0 && window < NAPIER_ROPE_POSITIONS ? window : NAPIER_ROPE_POSITIONS;
    NAPIER_REFUSE_IF(host, positions < 1 || positions > most, "positions: %" PRId64 " is not in 1 .. %" PRId64,
                     positions, most);
    if (model->config.sparse_layers > 0 || napier_model_splits(model)) {
        return napier_fail(host, NAPIER_UNSUPPORTED, "model: %s on a device",
                           napier_model_splits(model) ? "compute mode SPLIT is not" : "layers with experts are not");
    }
    return NAPIER_OK;
}

static napier_status copy_model(napier_context *host, const napier_model *model, int64_t positions,
                                napier_cuda_model **out) {
    const size_t layers = (size_t)model->config.num_hidden_layers;
    napier_cuda_model *const to = *out = napier_alloc(&host->allocator, 1, sizeof *to);
    napier_layer *const copies = napier_alloc(&host->allocator, layers, sizeof *copies);
    if (!to || !copies) {
        napier_free(&host->allocator, copies);
        napier_free(&host->allocator, to);
        *out = NULL;
        return napier_fail(host, NAPIER_OUT_OF_MEMORY, "model: no memory for %zu layers", layers);
    }
    memcpy(copies, model->layers, layers * sizeof *copies);
    *to = (napier_cuda_model){.model = *model, .positions = positions};
    to->model.layers = copies;
    return NAPIER_OK;
}

napier_status napier_cuda_model_create(napier_cuda_context *context, struct CUstream_st *stream,
                                       napier_cuda_workspace *memory, const napier_model *model, int64_t positions,
                                       napier_cuda_model **out) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_REFUSE_IF(context->host, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context->host, !model, "model: NULL");
    NAPIER_REFUSE_IF(context->host, !memory, "memory: NULL");
    NAPIER_TRY(check_model(context->host, model, positions));
    NAPIER_TRY(copy_model(context->host, model, positions, out));
    upload u = {.gguf = model->gguf, .gpu = {context, stream, "model"}, .room = napier_cuda_room_of(memory)};
    const napier_status status = put_all(&u, *out);
    if (status || !u.copies) {
        napier_cuda_model_destroy(context, *out);
        *out = NULL;
    }
    return status;
}

void napier_cuda_model_destroy(napier_cuda_context *context, napier_cuda_model *model) {
    if (context && model) {
        napier_free(&context->host->allocator, model->model.layers);
        napier_free(&context->host->allocator, model);
    }
}

napier_const_matrix napier_cuda_model_head(const napier_cuda_model *model) {
    return model ? model->model.head : (napier_const_matrix){0};
}

/* ---- A run --------------------------------------------------------------------------------------------------------- */

typedef struct run {
    napier_cuda_call gpu;
    const napier_cuda_model *on;
    const napier_model *model;
    napier_cuda_mode mode;
    napier_dtype dtype; /* of activations before a product */
    int64_t hidden, q_width, kv_width;
    napier_decoder_tokens tokens;
    float *x;           /* [tokens, hidden] the residual stream */
    void *normed;       /* [tokens, hidden] */
    void *q, *attended; /* [tokens, q_width] */
    void *k, *v;        /* [tokens, kv_width] */
    float *sums;        /* of products, of some rows */
    void *middle;       /* [rows, intermediate] */
    void *attention;    /* workspace */
} run;

static void take_room(run *r, napier_cuda_room *room) {
    const napier_model_config *c = &r->model->config;
    const size_t each = napier_dtype_size(r->dtype);
    const int64_t tokens = r->tokens.ids.size, block = tokens < BLOCK_ROWS ? tokens : BLOCK_ROWS;
    const int64_t widest = larger(larger(r->q_width, r->hidden), larger(r->kv_width, 2 * c->intermediate_size));
    r->tokens.starts = napier_cuda_take(room, r->tokens.sequences + 1, sizeof *r->tokens.starts);
    r->tokens.positions = napier_cuda_take(room, tokens, sizeof *r->tokens.positions);
    r->x = napier_cuda_take(room, tokens, (size_t)r->hidden * sizeof *r->x);
    r->normed = napier_cuda_take(room, tokens, (size_t)r->hidden * each);
    r->q = napier_cuda_take(room, tokens, (size_t)r->q_width * each);
    r->attended = napier_cuda_take(room, tokens, (size_t)r->q_width * each);
    r->k = napier_cuda_take(room, tokens, (size_t)r->kv_width * each);
    r->v = napier_cuda_take(room, tokens, (size_t)r->kv_width * each);
    r->sums = napier_cuda_take(room, block, (size_t)widest * sizeof *r->sums);
    r->middle = napier_cuda_take(room, block, (size_t)c->intermediate_size * each);
    r->attention = napier_cuda_take(room, 1, ATTENTION_BYTES);
}

static void *row_of(const run *r, void *rows, int64_t row, int64_t width) {
    return (char *)rows + row * width * (int64_t)napier_dtype_size(r->dtype);
}

static napier_const_matrix rows_of(const run *r, void *rows, int64_t first, int64_t count, int64_t width) {
    return napier_const_rows(row_of(r, rows, first, width), count, width, r->dtype);
}

/* ---- Steps on some rows -------------------------------------------------------------------------------------------- */

static napier_status project(const run *r, napier_const_matrix x, napier_const_matrix weights, napier_matrix out) {
    return napier_cuda_product(&r->gpu, x, weights, out, false, r->mode);
}

/* The same to sums from `sums` on. */
static napier_status project_sums(const run *r, napier_const_matrix x, napier_const_matrix weights, float *sums) {
    return project(r, x, weights, napier_rows_f32(sums, x.rows, weights.rows));
}

/* x += the sums, if there are any, and their bias, then normed = norm(x). */
static napier_status add_and_norm(const run *r, int64_t first, int64_t rows, const float *sums, const float *bias,
                                  const napier_norm *norm) {
    const napier_cuda_norm_job job = {rows,
                                      r->hidden,
                                      r->x + first * r->hidden,
                                      sums,
                                      bias,
                                      norm->weight,
                                      norm->epsilon,
                                      row_of(r, r->normed, first, r->hidden),
                                      r->dtype};
    return NAPIER_CUDA_WARPS(&r->gpu, napier_layers_norm, rows, &job);
}

/* out = the heads of x weights^T, normalised and rotated. */
static napier_status make_rotated(const run *r, napier_const_matrix x, const napier_dense *dense,
                                  const napier_norm *norm, int64_t first, void *out) {
    const int64_t width = dense->weights.rows, dim = r->model->config.head_dim;
    const napier_cuda_rotate_job job = {.rows = x.rows,
                                        .heads = width / dim,
                                        .n = dim,
                                        .sums = r->sums,
                                        .bias = dense->bias,
                                        .weight = norm->weight,
                                        .epsilon = norm->epsilon,
                                        .cosines = r->on->cosines,
                                        .sines = r->on->sines,
                                        .positions = r->tokens.positions + first,
                                        .out = row_of(r, out, first, width),
                                        .dtype = r->dtype};
    NAPIER_TRY(project_sums(r, x, dense->weights, r->sums));
    return NAPIER_CUDA_WARPS(&r->gpu, napier_layers_rotate, job.rows * job.heads, &job);
}

static napier_cuda_shape each_element(const run *r, int64_t elements) {
    return napier_cuda_loop(&r->gpu, elements, NAPIER_RESPONSE_THREADS, WAVES, NAPIER_RESPONSE_THREADS);
}

static napier_status make_values(const run *r, napier_const_matrix x, const napier_dense *dense, int64_t first) {
    void *const out = row_of(r, r->v, first, r->kv_width);
    if (!dense->bias) {
        return project(r, x, dense->weights, napier_rows(out, x.rows, r->kv_width, r->dtype));
    }
    const napier_cuda_add_job job = {x.rows, r->kv_width, r->sums, dense->bias, out, r->dtype};
    NAPIER_TRY(project_sums(r, x, dense->weights, r->sums));
    return NAPIER_CUDA_PUT(&r->gpu, napier_layers_add, each_element(r, job.rows * job.n), &job);
}

static napier_status make_heads(const run *r, const napier_layer *layer, int64_t first, int64_t rows) {
    const napier_const_matrix x = rows_of(r, r->normed, first, rows, r->hidden);
    NAPIER_TRY(make_rotated(r, x, &layer->q, &layer->q_norm, first, r->q));
    NAPIER_TRY(make_rotated(r, x, &layer->k, &layer->k_norm, first, r->k));
    return make_values(r, x, &layer->v, first);
}

static napier_status run_mlp(const run *r, const napier_layer *layer, int64_t first, int64_t rows) {
    const napier_const_matrix x = rows_of(r, r->normed, first, rows, r->hidden);
    const int64_t width = layer->gate.weights.rows;
    float *const up = r->sums + rows * width;
    const napier_cuda_gate_job job = {rows, width, r->sums, up, layer->gate.bias, layer->up.bias, r->middle, r->dtype};
    NAPIER_TRY(project_sums(r, x, layer->gate.weights, r->sums));
    NAPIER_TRY(project_sums(r, x, layer->up.weights, up));
    NAPIER_TRY(NAPIER_CUDA_PUT(&r->gpu, napier_layers_gate, each_element(r, rows * width), &job));
    return project_sums(r, rows_of(r, r->middle, 0, rows, width), layer->down.weights, r->sums);
}

static napier_status after_attention(const run *r, const napier_layer *layer, int64_t first, int64_t rows,
                                     const napier_norm *next) {
    const napier_const_matrix x = rows_of(r, r->attended, first, rows, r->q_width);
    NAPIER_TRY(project_sums(r, x, layer->o.weights, r->sums));
    NAPIER_TRY(add_and_norm(r, first, rows, r->sums, layer->o.bias, &layer->mlp_norm));
    NAPIER_TRY(run_mlp(r, layer, first, rows));
    return add_and_norm(r, first, rows, r->sums, layer->down.bias, next);
}

/* ---- All rows ------------------------------------------------------------------------------------------------------ */

static napier_const_heads heads_of(const run *r, const void *data, int64_t width) {
    const int64_t dim = r->model->config.head_dim;
    return (napier_const_heads){data, r->tokens.ids.size, width / dim, dim, width, dim, 1, r->dtype};
}

static napier_status attend(const run *r) {
    const int64_t dim = r->model->config.head_dim;
    const napier_heads out = {r->attended, r->tokens.ids.size, r->q_width / dim, dim, r->q_width, dim, 1, r->dtype};
    napier_cuda_workspace workspace = {r->attention, ATTENTION_BYTES};
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    options.bf16_weights = r->dtype == NAPIER_BF16;
    options.sequences = r->tokens.sequences;
    options.query_offsets = options.key_offsets = r->tokens.starts;
    return napier_cuda_attention(r->gpu.context, r->gpu.stream, &workspace, heads_of(r, r->q, r->q_width),
                                 heads_of(r, r->k, r->kv_width), heads_of(r, r->v, r->kv_width), out,
                                 napier_rows_f32(NULL, 0, 0), &options, r->mode);
}

static int64_t block_at(const run *r, int64_t first) {
    const int64_t left = r->tokens.ids.size - first;
    return left < BLOCK_ROWS ? left : BLOCK_ROWS;
}

static napier_status run_layer(const run *r, int64_t index) {
    const napier_model *const m = r->model;
    const napier_layer *const layer = &m->layers[index];
    const bool last = index + 1 == m->config.num_hidden_layers;
    const int64_t tokens = r->tokens.ids.size;
    for (int64_t first = 0; first < tokens; first += BLOCK_ROWS) {
        NAPIER_TRY(make_heads(r, layer, first, block_at(r, first)));
    }
    NAPIER_TRY(attend(r));
    for (int64_t first = 0; first < tokens; first += BLOCK_ROWS) {
        NAPIER_TRY(
            after_attention(r, layer, first, block_at(r, first), last ? &m->last_norm : &layer[1].attention_norm));
    }
    return NAPIER_OK;
}

static napier_status embed(const run *r) {
    const int64_t tokens = r->tokens.ids.size;
    const napier_decoder_embed_job job = {r->tokens, r->model->embedding, r->x};
    NAPIER_TRY(NAPIER_CUDA_PUT(&r->gpu, napier_decoder_starts, each_element(r, r->tokens.sequences + 1), &r->tokens));
    NAPIER_TRY(NAPIER_CUDA_WARPS(&r->gpu, napier_decoder_embed, tokens, &job));
    return add_and_norm(r, 0, tokens, NULL, NULL, &r->model->layers[0].attention_norm);
}

static napier_status run_all(const run *r, napier_matrix hidden, napier_matrix logits) {
    const napier_const_matrix states = rows_of(r, r->normed, 0, r->tokens.ids.size, r->hidden);
    NAPIER_TRY(embed(r));
    for (int64_t i = 0; i < r->model->config.num_hidden_layers; i++) {
        NAPIER_TRY(run_layer(r, i));
    }
    if (hidden.data) {
        const napier_decoder_states_job job = {states, hidden};
        NAPIER_TRY(NAPIER_CUDA_PUT(&r->gpu, napier_decoder_states, each_element(r, states.rows * states.cols), &job));
    }
    return logits.data ? project(r, states, r->model->head, logits) : NAPIER_OK;
}

/* ---- The call ------------------------------------------------------------------------------------------------------ */

static napier_status check(napier_context *host, const napier_model *model, napier_indices ids, napier_indices offsets,
                           napier_matrix hidden, napier_matrix logits) {
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW | (ids.size > 0 ? NAPIER_MAY_BE_ABSENT : 0u);
    const napier_argument all[] = {
        NAPIER_ARGUMENT("hidden", napier_read_only(hidden), out, ids.size, model->config.hidden_size, NULL),
        NAPIER_ARGUMENT("logits", napier_read_only(logits), out, ids.size, model->head.rows, NULL),
        napier_indices_argument("ids", ids), napier_indices_argument("offsets", offsets)};
    NAPIER_TRY(napier_check_indices(host, "ids", ids));
    NAPIER_TRY(napier_check_indices(host, "offsets", offsets));
    NAPIER_REFUSE_IF(host, offsets.size == 1 && ids.size > 0,
                     "offsets: size 1 is no sequence, and there are %" PRId64 " ids", ids.size);
    return napier_check_arguments(host, all, sizeof all / sizeof *all);
}

napier_status napier_cuda_model_forward(napier_cuda_context *context, struct CUstream_st *stream,
                                        napier_cuda_workspace *workspace, const napier_cuda_model *model,
                                        napier_indices ids, napier_indices offsets, napier_matrix hidden,
                                        napier_matrix logits, napier_cuda_mode mode) {
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_REFUSE_IF(context->host, !model, "model: NULL");
    NAPIER_REFUSE_IF(context->host, (unsigned)mode > NAPIER_CUDA_BATCH_INVARIANT, "mode: %d is unknown", (int)mode);
    NAPIER_TRY(check(context->host, &model->model, ids, offsets, hidden, logits));
    NAPIER_REFUSE_IF(context->host, offsets.size == 0 && ids.size > model->positions,
                     "ids: %" PRId64 " tokens, and the model was made for %" PRId64 " positions", ids.size,
                     model->positions);
    const napier_model_config *const c = &model->model.config;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    run r = {.gpu = {context, stream, "model_forward"},
             .on = model,
             .model = &model->model,
             .mode = mode,
             .dtype = napier_model_activations(&model->model),
             .hidden = c->hidden_size,
             .q_width = c->num_attention_heads * c->head_dim,
             .kv_width = c->num_key_value_heads * c->head_dim};
    r.tokens = (napier_decoder_tokens){.ids = ids,
                                       .offsets = offsets,
                                       .sequences = offsets.size > 0 ? offsets.size - 1 : 1,
                                       .most = model->positions,
                                       .faults = context->faults};
    take_room(&r, &room);
    NAPIER_CUDA_READY(context, room);
    return ids.size > 0 ? run_all(&r, hidden, logits) : NAPIER_OK;
}
