/* lm/decoder/layers.c - see layers.h.
 *
 *     x = embedding[ids]
 *     for each layer:  x += attention(norm(x)) o^T;  x += down(silu(gate(norm(x))) * up(norm(x)))
 *     states = norm(x)
 *
 * All steps but attention, which needs all rows of a layer, process up to 2048 rows at a time. That limits their memory; with
 * fewer rows the weights would be read more often. In the last layer, keys and values are computed for all rows, and
 * everything else only for the wanted rows. Every step works row by row, so this division does not change any bit. */
#include "lm/decoder/layers.h"

#include <napier/attention.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "core/isa/core_kernels.h"
#include "lm/decoder/experts.h"
#include "lm/decoder/project.h"
#include "ops/isa/ops_kernels.h"
#include "ops/layers/rotary_angles.h"

enum {
    NAPIER_BLOCK_ROWS = 2048, /* rows of all steps but attention */
    NAPIER_SOME_ROWS = 4,     /* rows that a thread takes at a time */
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Sizes come from a file, so products saturate at the largest number. */
static int64_t times(int64_t a, int64_t b) { return b > 0 && a > INT64_MAX / b ? INT64_MAX : a * b; }
static int64_t plus(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The row stride of activations. Without padding, rows of 4096 bytes and more would all start in the same set of a
 * cache. */
static int64_t stride_of(int64_t width) { return plus(width, 32); }

static int64_t q_width(const napier_model *m) { return times(m->config.num_attention_heads, m->config.head_dim); }
static int64_t kv_width(const napier_model *m) { return times(m->config.num_key_value_heads, m->config.head_dim); }

static napier_gated mlp_of(const napier_layer *layer) {
    return (napier_gated){layer->gate.weights, layer->up.weights, layer->down.weights, layer->gate.bias,
                          layer->up.bias};
}

/* The floats for the largest product with this number of rows. The matrices may have different dtypes, so the products of
 * all dtypes that the model has count. */
enum { DTYPES = 4 };
static const napier_dtype dtypes[DTYPES] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_BLOCKS};

static bool has_dtype(const napier_model *m, int i) { return (m->dtypes >> dtypes[i] & 1) != 0; }

/* SIZE_MAX if the larger one overflows. */
static size_t larger(size_t a, size_t floats) { return floats == 0 ? SIZE_MAX : a > floats ? a : floats; }

static size_t product_floats(const napier_context *context, const napier_model *m, int64_t rows, int64_t in,
                             int64_t out) {
    const napier_const_matrix x = napier_const_rows(NULL, rows, in, napier_model_activations(m));
    size_t floats = 0;
    for (int i = 0; i < DTYPES; i++) {
        if (has_dtype(m, i)) {
            floats = larger(floats, napier_project_floats(context, x, napier_const_rows(NULL, out, in, dtypes[i]),
                                                          napier_model_splits(m)));
        }
    }
    return floats;
}

static size_t gated_floats(const napier_context *context, const napier_model *m, int64_t rows, int64_t width) {
    const int64_t hidden = m->config.hidden_size;
    const napier_const_matrix x = napier_const_rows(NULL, rows, hidden, napier_model_activations(m));
    static const float bias;
    const float *const some = m->config.mlp_bias ? &bias : NULL; /* only whether there is one counts */
    size_t floats = 0;
    for (int i = 0; i < DTYPES * DTYPES * DTYPES; i++) {
        const int gate = i % DTYPES, up = i / DTYPES % DTYPES, down = i / DTYPES / DTYPES;
        if (has_dtype(m, gate) && has_dtype(m, up) && has_dtype(m, down)) {
            const napier_gated all = {napier_const_rows(NULL, width, hidden, dtypes[gate]),
                                      napier_const_rows(NULL, width, hidden, dtypes[up]),
                                      napier_const_rows(NULL, hidden, width, dtypes[down]), some, some};
            floats = larger(floats, napier_project_gated_floats(context, x, &all, napier_model_splits(m)));
        }
    }
    return floats;
}

static int64_t project_floats_of(const napier_context *context, const napier_model *m, int64_t rows) {
    const napier_model_config *c = &m->config;
    const int64_t shapes[][2] = {
        {c->hidden_size, q_width(m)}, {c->hidden_size, kv_width(m)}, {q_width(m), c->hidden_size}};
    size_t floats = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        floats = larger(floats, product_floats(context, m, rows, shapes[i][0], shapes[i][1]));
    }
    if (c->sparse_layers < c->num_hidden_layers) {
        floats = larger(floats, gated_floats(context, m, rows, c->intermediate_size));
    }
    if (c->sparse_layers > 0) {
        floats = larger(floats, product_floats(context, m, rows, c->hidden_size, c->num_experts));
        floats = larger(floats, gated_floats(context, m, rows, c->moe_intermediate_size));
    }
    return floats > INT64_MAX / sizeof(float) ? INT64_MAX : (int64_t)floats;
}

/* An upper bound of attention's memory: for packing, and for each thread. */
static int64_t attention_bytes(const napier_context *context, const napier_model *m, napier_ragged_size size) {
    enum { PACKED_MOST = 32 << 20, TILE_ROWS = 192, TILE_COLUMNS = 512 };
    const napier_model_config *c = &m->config;
    const int64_t wide = (int64_t)sizeof(float), dim = plus(c->head_dim, 32);
    const int64_t longest = times(times(plus(size.positions, 64), dim), 2 * wide);
    const int64_t keys = size.keys > 0 ? size.keys : size.tokens + size.copied;
    const int64_t all = times(times(plus(keys, 64 * size.sequences), dim), times(c->num_key_value_heads, 2 * wide));
    const int64_t tile = times(TILE_ROWS * wide, plus(times(dim, 3), TILE_COLUMNS));
    return plus(most(least(all, PACKED_MOST), longest), times(tile, context->threads));
}

/* The last block, and the rows of the last layer, may be fewer. Fewer rows may need more memory, because the product
 * divides them differently. */
static void plan_products(const napier_context *context, int64_t rows, napier_layers_plan *plan) {
    if (plan->rows == 0 || plan->rows > rows) {
        plan->rows = 0;
        plan->floats = 1;
    }
    while (plan->rows < rows) {
        plan->floats = most(plan->floats, project_floats_of(context, plan->model, ++plan->rows));
    }
}

void napier_layers_plan_for(const napier_context *context, const napier_model *m, napier_ragged_size size,
                            napier_layers_plan *plan) {
    const napier_model_config *c = &m->config;
    const int64_t each = napier_model_activation_bytes(m), wide = (int64_t)sizeof(float);
    const int64_t block = most(least(size.tokens, NAPIER_BLOCK_ROWS), 1), keys = size.tokens + size.copied;
    const int64_t kv = times(stride_of(kv_width(m)), c->qkv_bias ? 2 : 1); /* sums of k, and of v before its bias */
    const int64_t widest = most(plus(stride_of(q_width(m)), kv), stride_of(c->hidden_size));
    const int64_t queries = times(times(size.tokens, stride_of(q_width(m))), each);
    const int64_t values = times(times(keys, stride_of(kv_width(m))), each);
    plan->model = m;
    plan->size = size;
    plan_products(context, block, plan);
    const int64_t areas[NAPIER_LAYERS_AREAS] = {
        times(times(size.tokens, c->hidden_size), wide),
        times(times(size.tokens, stride_of(c->hidden_size)), each),
        queries,
        queries,
        values,
        values,
        napier_experts_bytes(context, m, block),
        times(times(block, widest), wide),
        times(times(size.positions, c->head_dim), wide),
        times(plan->floats, wide),
    };
    memcpy(plan->areas, areas, sizeof areas);
    plan->bytes = plus(attention_bytes(context, m, size), napier_ragged_bytes(size));
    for (int i = 0; i < NAPIER_LAYERS_AREAS; i++) {
        plan->bytes = plus(plan->bytes, areas[i]);
    }
}

static void angles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_layers *l = argument;
    const int64_t half = l->model->config.head_dim / 2;
    (void)worker;
    for (int64_t p = begin; p < end; p++) {
        napier_rope_angles(l->model->inverse, half, l->model->scale, p, l->cosines + p * half, l->sines + p * half);
    }
}

napier_status napier_layers_allocate(napier_memory *memory, const napier_layers_plan *plan, napier_layers *l) {
    const napier_ragged_size size = plan->size;
    void **const areas[NAPIER_LAYERS_AREAS] = {
        (void **)&l->x,       &l->normed,         &l->q, &l->attended, &l->k, &l->v, &l->experts, (void **)&l->wide,
        (void **)&l->cosines, (void **)&l->memory};
    *l = (napier_layers){.model = plan->model, .dtype = napier_model_activations(plan->model)};
    NAPIER_TRY(napier_ragged_allocate(memory, size, &l->batch));
    l->rows = size.tokens + size.copied;
    for (int i = 0; i < NAPIER_LAYERS_AREAS; i++) {
        *areas[i] = napier_take(memory, plan->areas[i], 1);
    }
    NAPIER_TRY(napier_taken(memory, "layers: no memory for %lld tokens", (long long)size.tokens));
    l->sines = l->cosines + size.positions * (plan->model->config.head_dim / 2);
    napier_parallel(memory->context, size.positions, 16, angles_task, l);
    return NAPIER_OK;
}

int64_t napier_kv_store_bytes(const napier_model *m, int64_t rows) {
    const int64_t each = 2 * napier_model_activation_bytes(m);
    return times(times(times(rows, m->config.num_hidden_layers), stride_of(kv_width(m))), each);
}

napier_status napier_kv_store_allocate(napier_memory *memory, const napier_model *model, int64_t rows,
                                       napier_kv_store *store) {
    const int64_t bytes = napier_kv_store_bytes(model, rows) / 2;
    *store = (napier_kv_store){napier_take(memory, bytes, 1), napier_take(memory, bytes, 1), rows};
    return napier_taken(memory, "keys and values: no memory for %lld tokens", (long long)rows);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static void *row_of(const napier_layers *l, void *rows, int64_t row, int64_t width) {
    return (char *)rows + row * stride_of(width) * (int64_t)napier_dtype_size(l->dtype);
}

static napier_matrix rows_of(const napier_layers *l, void *rows, int64_t first, int64_t count, int64_t width) {
    return (napier_matrix){row_of(l, rows, first, width), count, width, stride_of(width), 1, l->dtype};
}

/* A view of a product's sums, starting at `from`. */
static napier_matrix sums_of(float *from, int64_t rows, int64_t width) {
    return (napier_matrix){from, rows, width, stride_of(width), 1, NAPIER_F32};
}

napier_const_matrix napier_layers_states(const napier_layers *l, int64_t rows) {
    return napier_read_only(rows_of(l, l->normed, 0, rows, l->model->config.hidden_size));
}

/* A step between two products, on some rows: the data that its tasks share. */
typedef struct step {
    const napier_layers *layers;
    const napier_ops_kernels *kernels;
    int64_t first; /* index of the first row */
    const napier_norm *norm;
    const float *bias; /* of the product before; NULL: none */
    int64_t heads;
    float *from; /* [rows, heads, n] sums of the product, starting with these rows */
    void *out;   /* of all rows */
} step;

static void norm_task(void *argument, int worker, int64_t begin, int64_t end) {
    const step *s = argument;
    const napier_layers *l = s->layers;
    const int64_t width = s->norm->n;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = s->first + i;
        float *const sums = l->wide + i * stride_of(width);
        if (s->bias) {
            s->kernels->layers->add(sums, s->bias, width, sums, NAPIER_F32);
        }
        s->kernels->layers->norm(s->norm, l->x + row * width, sums, row_of(l, l->normed, row, width), l->dtype);
    }
}

static void rotate_task(void *argument, int worker, int64_t begin, int64_t end) {
    const step *s = argument;
    const napier_layers *l = s->layers;
    const int64_t width = s->heads * s->norm->n, half = s->norm->n / 2;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = s->first + i, position = l->batch.positions[row];
        float *const sums = s->from + i * stride_of(width);
        if (s->bias) {
            s->kernels->layers->add(sums, s->bias, width, sums, NAPIER_F32);
        }
        s->kernels->layers->rotate(s->norm, sums, s->heads, l->cosines + position * half, l->sines + position * half,
                                   row_of(l, s->out, row, width), l->dtype);
    }
}

static void bias_task(void *argument, int worker, int64_t begin, int64_t end) {
    const step *s = argument;
    const napier_layers *l = s->layers;
    const int64_t width = kv_width(l->model);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        s->kernels->layers->add(s->from + i * stride_of(width), s->bias, width, row_of(l, s->out, s->first + i, width),
                                l->dtype);
    }
}

/* Row `row` of the embedding as f32. */
static void embed(const napier_core_kernels *core, const napier_const_matrix *e, int64_t row, float *x) {
    if (e->dtype == NAPIER_BLOCKS) {
        core->widen_rows(e->data, row, 1, 0, e->cols, x, e->cols);
    } else {
        const char *const from = e->data;
        napier_widen(&core->math, e->dtype, from + row * e->cols * (int64_t)napier_dtype_size(e->dtype), x, e->cols);
    }
}

static void embed_task(void *argument, int worker, int64_t begin, int64_t end) {
    const step *s = argument;
    const napier_layers *l = s->layers;
    const napier_const_matrix *e = &l->model->embedding;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *x = l->x + i * e->cols;
        embed(s->kernels->core, e, l->batch.ids[i], x);
        s->kernels->layers->norm(s->norm, x, NULL, row_of(l, l->normed, i, e->cols), l->dtype);
    }
}

/* ---- A layer ----------------------------------------------------------------------------------------------------- */

typedef struct run {
    napier_context *context;
    napier_layers *layers;
    const napier_ops_kernels *kernels;
} run;

/* Multiplies rows of x, starting with `first`, by weights. */
static void project(const run *r, void *x, int64_t first, int64_t rows, const napier_projection *all, int count) {
    const napier_matrix view = rows_of(r->layers, x, first, rows, all->weights.cols);
    napier_project(r->context, napier_read_only(view), all, count, napier_model_splits(r->layers->model),
                   r->layers->memory);
}

/* What becomes of a product's sums: a step on `rows` rows from `first` on. */
static step step_of(const run *r, int64_t first, const napier_dense *dense, float *from, void *out) {
    return (step){
        .layers = r->layers, .kernels = r->kernels, .first = first, .bias = dense->bias, .from = from, .out = out};
}

/* Rotates q or k: heads = rotated(from + bias). */
static void rotate(const run *r, step s, int64_t rows, const napier_norm *norm, int64_t heads) {
    s.norm = norm;
    s.heads = heads;
    napier_parallel(r->context, rows, NAPIER_SOME_ROWS, rotate_task, &s);
}

enum { QUERIES = 1, KEYS_AND_VALUES = 2 };

/* The sums of v go directly to their place, unless a bias is to be added before they are rounded. */
static void make_heads(const run *r, const napier_layer *layer, unsigned which, int64_t first, int64_t rows) {
    napier_layers *l = r->layers;
    const napier_model_config *c = &l->model->config;
    const napier_const_matrix *wq = &layer->q.weights, *wk = &layer->k.weights, *wv = &layer->v.weights;
    float *const k = l->wide, *const q = k + rows * stride_of(wk->rows), *const v = q + rows * stride_of(wq->rows);
    const napier_projection all[] = {
        {*wq, sums_of(q, rows, wq->rows)}, /* the largest first */
        {*wk, sums_of(k, rows, wk->rows)},
        {*wv, layer->v.bias ? sums_of(v, rows, wv->rows) : rows_of(l, l->v, first, rows, wv->rows)}};
    const bool queries = (which & QUERIES) != 0, keys = (which & KEYS_AND_VALUES) != 0;
    project(r, l->normed, first, rows, queries ? all : all + 1, (queries ? 1 : 0) + (keys ? 2 : 0));
    if (keys) {
        rotate(r, step_of(r, first, &layer->k, k, l->k), rows, &layer->k_norm, c->num_key_value_heads);
    }
    if (keys && layer->v.bias) {
        step s = step_of(r, first, &layer->v, v, l->v);
        napier_parallel(r->context, rows, NAPIER_SOME_ROWS, bias_task, &s);
    }
    if (queries) {
        rotate(r, step_of(r, first, &layer->q, q, l->q), rows, &layer->q_norm, c->num_attention_heads);
    }
}

/* Keys and values of a layer: rows of the batch, or of a store. */
typedef struct layer_keys {
    void *k, *v;
} layer_keys;

static layer_keys keys_of(const napier_layers *l, const napier_kv_store *store, int64_t layer) {
    if (!store) {
        return (layer_keys){l->k, l->v};
    }
    const int64_t width = kv_width(l->model), first = layer * store->rows;
    return (layer_keys){row_of(l, store->k, first, width), row_of(l, store->v, first, width)};
}

static void copy_keys(const run *r, int64_t layer) {
    const napier_layers *l = r->layers;
    const int64_t width = kv_width(l->model);
    const layer_keys to = keys_of(l, l->store, layer);
    for (int64_t i = 0; i < l->batch.copies; i++) {
        const napier_row_copy *c = &l->batch.copy[i];
        const layer_keys from = keys_of(l, c->from, layer);
        const size_t bytes = (size_t)((c->rows.end - c->rows.begin) * stride_of(width)) * napier_dtype_size(l->dtype);
        memcpy(row_of(l, to.k, c->to, width), row_of(l, from.k, c->rows.begin, width), bytes);
        memcpy(row_of(l, to.v, c->to, width), row_of(l, from.v, c->rows.begin, width), bytes);
    }
}

/* Computes queries, or keys and values, or all of them, of the first `all` rows. */
static void make_all_heads(const run *r, const napier_layer *layer, unsigned which, int64_t all) {
    for (int64_t first = 0; first < all; first += NAPIER_BLOCK_ROWS) {
        make_heads(r, layer, which, first, least(all - first, NAPIER_BLOCK_ROWS));
    }
}

static napier_const_heads heads_of(const napier_layers *l, const void *data, int64_t tokens, int64_t heads) {
    const int64_t dim = l->model->config.head_dim;
    return (napier_const_heads){data, tokens, heads, dim, stride_of(heads * dim), dim, 1, l->dtype};
}

static napier_status attend(const run *r, int64_t layer, int64_t rows, const int64_t *query_offsets) {
    napier_layers *l = r->layers;
    const napier_ragged *b = &l->batch;
    const napier_model_config *c = &l->model->config;
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    options.bf16_weights = l->dtype == NAPIER_BF16;
    options.sequences = b->sequences;
    options.query_offsets = query_offsets;
    options.key_offsets = b->own_begin;
    options.key_end = b->own_end;
    options.prefix_begin = b->prefix_begin;
    options.prefix_end = b->prefix_end;
    const int64_t heads = c->num_attention_heads, dim = c->head_dim;
    const int64_t kv_heads = c->num_key_value_heads, keys = l->store ? l->store->rows : l->rows;
    const layer_keys of = keys_of(l, l->store, layer);
    const napier_heads out = {l->attended, rows, heads, dim, stride_of(heads * dim), dim, 1, l->dtype};
    return napier_attention(r->context, heads_of(l, l->q, rows, heads), heads_of(l, of.k, keys, kv_heads),
                            heads_of(l, of.v, keys, kv_heads), out, napier_rows_f32(NULL, 0, 0), &options);
}

/* x += the sums in `wide` and their bias, then normed = norm(x). */
static void add_and_norm(const run *r, int64_t first, int64_t rows, const napier_dense *dense,
                         const napier_norm *norm) {
    step s = step_of(r, first, dense, r->layers->wide, NULL);
    s.norm = norm;
    napier_parallel(r->context, rows, NAPIER_SOME_ROWS, norm_task, &s);
}

static napier_status run_mlp(const run *r, const napier_layer *layer, int64_t first, int64_t rows) {
    const napier_layers *l = r->layers;
    const int64_t hidden = l->model->config.hidden_size;
    const napier_const_matrix x = napier_read_only(rows_of(l, l->normed, first, rows, hidden));
    const napier_matrix out = sums_of(l->wide, rows, hidden);
    if (layer->router.rows > 0) {
        return napier_experts_run(r->context, l->model, layer, x, out, l->experts, l->memory);
    }
    const napier_gated mlp = mlp_of(layer);
    napier_project_gated(r->context, x, &mlp, out, napier_model_splits(l->model), l->memory);
    return NAPIER_OK;
}

static napier_status after_attention(const run *r, const napier_layer *layer, int64_t all, const napier_norm *next) {
    const napier_layers *l = r->layers;
    for (int64_t first = 0; first < all; first += NAPIER_BLOCK_ROWS) {
        const int64_t rows = least(all - first, NAPIER_BLOCK_ROWS);
        const napier_projection o = {layer->o.weights, sums_of(l->wide, rows, layer->o.weights.rows)};
        project(r, l->attended, first, rows, &o, 1);
        add_and_norm(r, first, rows, &layer->o, &layer->mlp_norm);
        NAPIER_TRY(napier_stopped(r->context));
        NAPIER_TRY(run_mlp(r, layer, first, rows));
        add_and_norm(r, first, rows, &layer->down, next);
    }
    return NAPIER_OK;
}

/* ---- All layers -------------------------------------------------------------------------------------------------- */

/* Moves the wanted rows of x and normed together, and their positions. */
static void keep_wanted(napier_layers *l) {
    const napier_ragged *b = &l->batch;
    const int64_t width = l->model->config.hidden_size;
    const size_t narrow_bytes = (size_t)stride_of(width) * napier_dtype_size(l->dtype);
    for (int64_t s = 0; s < b->sequences; s++) {
        const int64_t to = b->wanted_offsets[s], count = b->wanted_offsets[s + 1] - to;
        const int64_t from = b->offsets[s + 1] - count;
        memmove(l->x + to * width, l->x + from * width, (size_t)(count * width) * sizeof *l->x);
        memmove(row_of(l, l->normed, to, width), row_of(l, l->normed, from, width), (size_t)count * narrow_bytes);
        memmove(b->positions + to, b->positions + from, (size_t)count * sizeof *b->positions);
    }
}

static napier_status run_layer(const run *r, int64_t index) {
    const napier_model *m = r->layers->model;
    const napier_ragged *b = &r->layers->batch;
    const napier_layer *layer = &m->layers[index];
    const bool last = index + 1 == m->config.num_hidden_layers;
    const int64_t rows = last ? b->wanted_offsets[b->sequences] : b->tokens;
    make_all_heads(r, layer, rows == b->tokens ? QUERIES | KEYS_AND_VALUES : KEYS_AND_VALUES, b->tokens);
    copy_keys(r, index);
    if (rows < b->tokens) {
        keep_wanted(r->layers);
        make_all_heads(r, layer, QUERIES, rows);
    }
    NAPIER_TRY(attend(r, index, rows, last ? b->wanted_offsets : b->offsets));
    return after_attention(r, layer, rows, last ? &m->last_norm : &layer[1].attention_norm);
}

static napier_status tell(const run *r, int64_t layers_done) {
    const napier_layers *l = r->layers;
    NAPIER_TRY(napier_stopped(r->context));
    const double through = (double)layers_done / (double)l->model->config.num_hidden_layers;
    if (l->progress && l->progress("scoring", l->done + l->share * through, l->user)) {
        return napier_fail(r->context, NAPIER_CANCELLED, "cancelled by the progress callback");
    }
    return NAPIER_OK;
}

napier_status napier_layers_run(napier_context *context, napier_layers *layers) {
    const napier_model *m = layers->model;
    const run r = {context, layers, napier_ops_kernels_of(context->isa)};
    step s = {.layers = layers, .kernels = r.kernels, .norm = &m->layers[0].attention_norm};
    NAPIER_MAY_STOP(context);
    napier_parallel(context, layers->batch.tokens, NAPIER_SOME_ROWS, embed_task, &s);
    NAPIER_TRY(tell(&r, 0));
    for (int64_t i = 0; i < m->config.num_hidden_layers; i++) {
        NAPIER_TRY(run_layer(&r, i));
        NAPIER_TRY(tell(&r, i + 1));
    }
    return NAPIER_OK;
}
