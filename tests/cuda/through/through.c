/* tests/cuda/through/through.c - see through.h. */
#include "through.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/context.h"

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "tests: %s\n", what);
    exit(2);
}

napier_cuda_mode through_mode = NAPIER_CUDA_BITWISE;

napier_cuda_context *through_context(void) {
    static napier_cuda_context *context;
    if (context == NULL) {
        device_wanted();
        if (napier_cuda_context_create(&context, -1) != NAPIER_OK) {
            give_up("no context on the device");
        }
    }
    return context;
}

/* ---- Arrays on the device ---------------------------------------------------------------------------------------- */

enum { MOST = 64 };

typedef struct visitor {
    unsigned char *host;
    size_t bytes;
    unsigned char *device;
    bool result;
} visitor;

static visitor visitors[MOST], known[MOST];
static int visitor_count, known_count;

void through_know(void *memory, size_t bytes) {
    if (known_count == MOST) {
        give_up("too many arrays");
    }
    known[known_count++] = (visitor){.host = memory, .bytes = bytes, .result = true};
}

void through_forget(int first) { known_count = first < known_count ? first : known_count; }

/* What to copy for `bytes` at `host`: the known array that contains them, or just these. */
static visitor wanted(unsigned char *host, size_t bytes, bool result) {
    for (int i = 0; i < known_count; i++) {
        if (host >= known[i].host && host < known[i].host + known[i].bytes) {
            return known[i];
        }
    }
    return (visitor){host, bytes, NULL, result};
}

/* One array on the device for all views of the same memory, so what is in place stays in place. Results are copied there
 * too, for what lies between their elements. */
static void *visit(const void *host, size_t bytes, bool result) {
    (void)through_context(); /* no device: the program ends here */
    unsigned char *const at = (unsigned char *)(uintptr_t)host;
    if (host == NULL || bytes == 0) {
        return at;
    }
    visitor v = wanted(at, bytes, result);
    for (int i = 0; i < visitor_count; i++) {
        visitor *const there = &visitors[i];
        if (v.host < there->host + there->bytes && there->host < v.host + v.bytes) {
            if (v.host < there->host || v.host + v.bytes > there->host + there->bytes) {
                give_up("two arrays of a call overlap in part");
            }
            there->result |= result;
            return there->device + (at - there->host);
        }
    }
    if (visitor_count == MOST) {
        give_up("a call with too many arrays");
    }
    v.device = device_copy(v.host, v.bytes);
    visitors[visitor_count++] = v;
    return v.device + (at - v.host);
}

/* From a view's lowest element to the end of its highest. */
static void *visit_view(const void *data, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                        napier_dtype dtype, bool result) {
    const int64_t size = (int64_t)napier_dtype_size(dtype);
    if (data == NULL || rows <= 0 || cols <= 0 || size == 0) {
        return (void *)(uintptr_t)data;
    }
    const int64_t down = (rows - 1) * row_stride, across = (cols - 1) * col_stride;
    const int64_t low = (down < 0 ? down : 0) + (across < 0 ? across : 0);
    const int64_t high = (down > 0 ? down : 0) + (across > 0 ? across : 0);
    unsigned char *const first = visit((const char *)data + low * size, (size_t)((high - low + 1) * size), result);
    return first - low * size;
}

/* ---- Arguments there --------------------------------------------------------------------------------------------- */

#define array(host, n) visit(host, (size_t)(n) * sizeof *(host), false)
#define array_out(host, n) visit(host, (size_t)(n) * sizeof *(host), true)

static napier_const_matrix matrix_there(napier_const_matrix v) {
    v.data = visit_view(v.data, v.rows, v.cols, v.row_stride, v.col_stride, v.dtype, false);
    return v;
}
static napier_matrix matrix_out_there(napier_matrix v) {
    v.data = visit_view(v.data, v.rows, v.cols, v.row_stride, v.col_stride, v.dtype, true);
    return v;
}
static napier_const_vector vector_there(napier_const_vector v) {
    v.data = visit_view(v.data, 1, v.size, 0, v.stride, v.dtype, false);
    return v;
}
static napier_vector vector_out_there(napier_vector v) {
    v.data = visit_view(v.data, 1, v.size, 0, v.stride, v.dtype, true);
    return v;
}
static napier_indices indices_there(napier_indices v) {
    v.data = visit(v.data, (size_t)v.size * (v.type == NAPIER_I32 ? 4 : 8), false);
    return v;
}
static napier_const_heads heads_there(napier_const_heads v) { /* of known arrays */
    v.data = visit(v.data, 1, false);
    return v;
}
static napier_heads heads_out_there(napier_heads v) {
    v.data = visit(v.data, 1, true);
    return v;
}
static napier_umap_samples samples_there(napier_umap_samples samples) {
    samples.dense = matrix_there(samples.dense);
    return samples;
}

/* A struct there: a copy that lasts until the next call of this function. */
static const napier_token_options *rules_there(const napier_token_options *given, int64_t rows, int64_t cols) {
    static napier_token_options o;
    if (given == NULL) {
        return NULL;
    }
    o = *given;
    const int64_t bytes = (o.keep_stride ? rows - 1 : 0) * o.keep_stride + cols;
    o.keep = array(o.keep, o.keep && bytes > 0 ? bytes : 0);
    return &o;
}

static const napier_token_results *results_there(const napier_token_results *given, int64_t rows, int64_t ids) {
    static napier_token_results r;
    if (given == NULL) {
        return NULL;
    }
    r = *given;
    r.logprobs = matrix_out_there(r.logprobs);
    r.lse = vector_out_there(r.lse);
    r.entropy = vector_out_there(r.entropy);
    r.loss = vector_out_there(r.loss);
    r.top_logprobs = matrix_out_there(r.top_logprobs);
    r.argmax = array_out(r.argmax, rows);
    r.rank = array_out(r.rank, ids);
    r.top_ids = array_out(r.top_ids, rows * r.top_k);
    return &r;
}

static const napier_sample_options *sample_there(const napier_sample_options *given, int64_t rows, int64_t cols) {
    static napier_sample_options o;
    if (given == NULL) {
        return NULL;
    }
    o = *given;
    const int64_t bytes = (o.keep_stride ? rows - 1 : 0) * o.keep_stride + cols;
    o.keep = array(o.keep, o.keep && bytes > 0 ? bytes : 0);
    o.prompt_ids = indices_there(o.prompt_ids);
    o.prompt_offsets = indices_there(o.prompt_offsets);
    o.output_ids = indices_there(o.output_ids);
    o.output_offsets = indices_there(o.output_offsets);
    o.seeds = indices_there(o.seeds);
    o.samples = indices_there(o.samples);
    o.positions = indices_there(o.positions);
    return &o;
}

static const napier_sample_results *drawn_there(const napier_sample_results *given, int64_t rows) {
    static napier_sample_results r;
    r = *given;
    r.ids = array_out(r.ids, rows);
    r.logprobs = vector_out_there(r.logprobs);
    r.plain_logprobs = vector_out_there(r.plain_logprobs);
    return &r;
}

static const napier_token_gradients *gradients_there(const napier_token_gradients *given) {
    static napier_token_gradients g;
    g = *given;
    g.logprobs = matrix_there(g.logprobs);
    g.lse = vector_there(g.lse);
    g.entropy = vector_there(g.entropy);
    g.loss = vector_there(g.loss);
    return &g;
}

static const napier_grpo_batch *batch_there(const napier_grpo_batch *given) {
    static napier_grpo_batch b;
    b = *given;
    b.mask = array(b.mask, b.logprobs.data ? b.logprobs.size : b.old_logprobs.size);
    b.logprobs = vector_there(b.logprobs);
    b.old_logprobs = vector_there(b.old_logprobs);
    b.ref_logprobs = vector_there(b.ref_logprobs);
    b.sampler_logprobs = vector_there(b.sampler_logprobs);
    b.entropies = vector_there(b.entropies);
    b.advantages = vector_there(b.advantages);
    b.offsets = indices_there(b.offsets);
    return &b;
}

static const napier_attention_options *attention_there(const napier_attention_options *given) {
    static napier_attention_options o;
    if (given == NULL) {
        return NULL;
    }
    o = *given; /* its arrays are known */
    o.query_offsets = array(o.query_offsets, 1);
    o.key_offsets = array(o.key_offsets, 1);
    o.key_end = array(o.key_end, 1);
    o.prefix_begin = array(o.prefix_begin, 1);
    o.prefix_end = array(o.prefix_end, 1);
    o.mask = visit(o.mask, 1, false);
    o.grad_lse = matrix_there(o.grad_lse);
    return &o;
}

static const napier_neighbors_options *neighbors_there(const napier_neighbors_options *given) {
    static napier_neighbors_options o;
    o = *given;
    o.metric_values = array(o.metric_values, 1); /* known */
    return &o;
}

static const napier_cuda_umap_graph *graph_there(const napier_cuda_umap_graph *given) {
    static napier_cuda_umap_graph g;
    if (given == NULL) {
        return NULL;
    }
    g = *given;
    g.starts = array(g.starts, g.n + 1);
    g.targets = array(g.targets, g.count);
    g.weights = array(g.weights, g.count);
    return &g;
}

static napier_cuda_softmax_part part_there(napier_cuda_softmax_part part) { /* a known array */
    part.data = visit(part.data, 1, true);
    return part;
}

static const napier_cuda_softmax_part *parts_there(const napier_cuda_softmax_part *given, int64_t count) {
    static napier_cuda_softmax_part parts[16];
    if (given == NULL) {
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        parts[i] = part_there(given[i]);
    }
    return parts;
}

#define there(x) \
    _Generic((x),                                          \
             napier_const_matrix: matrix_there,            \
             napier_matrix: matrix_out_there,              \
             napier_const_vector: vector_there,            \
             napier_vector: vector_out_there,              \
             napier_const_heads: heads_there,              \
             napier_heads: heads_out_there,                \
             napier_indices: indices_there,                \
             napier_umap_samples: samples_there,           \
             const napier_token_gradients *: gradients_there,     \
             const napier_grpo_batch *: batch_there,              \
             const napier_attention_options *: attention_there,   \
             const napier_neighbors_options *: neighbors_there,   \
             const napier_cuda_umap_graph *: graph_there)(x)

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* The turns of a call, from those that are refused to the one that counts. */
typedef struct turns {
    int next;
    napier_cuda_context *context;
    napier_cuda_workspace workspace, *given;
    size_t size;
    napier_status status; /* of the last one */
} turns;

static void must_refuse(const turns *t, const char *text) {
    if (t->status != NAPIER_INVALID_ARGUMENT || strstr(napier_cuda_last_error(t->context), text) == NULL) {
        fprintf(stderr, "tests: status %d, '%s' in place of '%s'\n", (int)t->status, napier_cuda_last_error(t->context),
                text);
        exit(2);
    }
}

static bool turns_next(turns *t) {
    switch (t->next++) {
    case 0: return true; /* no context */
    case 1:
        must_refuse(t, "");
        t->context = through_context();
        t->given = &t->workspace; /* asks for the size */
        return true;
    case 2:
        if (t->status != NAPIER_OK) {
            return false;
        }
        t->size = t->workspace.size;
        t->workspace.data = device_new(t->size);
        t->next = t->size > 0 ? t->next : 5; /* without one is right if it needs none */
        t->given = NULL;
        return true;
    case 3:
        must_refuse(t, "workspace: size 0 is less than");
        t->given = &t->workspace;
        t->workspace.size = t->size - 1;
        return true;
    case 4:
        must_refuse(t, "workspace: size ");
        t->workspace.size = t->size;
        return true;
    default:
        if (t->status == NAPIER_OK) {
            t->status = napier_cuda_synchronize(t->context, NULL);
        }
        device_free(t->workspace.data);
        return false;
    }
}

/* Copies the results back and frees all. */
static napier_status finish(napier_context *context, napier_status status) {
    for (int i = 0; i < visitor_count; i++) {
        if (visitors[i].result) {
            device_read(visitors[i].host, visitors[i].device, visitors[i].bytes);
        }
        device_free(visitors[i].device);
    }
    visitor_count = 0;
    return status ? napier_fail(context, status, "%s", napier_cuda_last_error(through_context())) : status;
}

#define ON_DEVICE(...) t.context, NULL, t.given, __VA_ARGS__
#define DEFINE(name, parameters, arguments)                       \
    napier_status through_##name(THROUGH_PARAMETERS parameters) { \
        turns t = {0};                                            \
        while (turns_next(&t)) {                                  \
            t.status = napier_cuda_##name(ON_DEVICE arguments);   \
        }                                                         \
        return finish(context, t.status);                         \
    }
THROUGH_CALLS(DEFINE)

#define ON_DEVICE_ALONE(...) through_context(), NULL, __VA_ARGS__
#define DEFINE_PLAIN(name, parameters, arguments)                                                   \
    napier_status through_##name(THROUGH_PARAMETERS parameters) {                                   \
        const napier_status status = napier_cuda_##name(ON_DEVICE_ALONE arguments);                 \
        return finish(context, status ? status : napier_cuda_synchronize(through_context(), NULL)); \
    }
THROUGH_PLAIN_CALLS(DEFINE_PLAIN)

napier_status through_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                           const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                           int64_t count, const uint32_t *targets,
                                           napier_cuda_umap_optimizer *optimizer, napier_matrix embedding) {
    const int64_t elements = embedding.rows * embedding.cols;
    napier_cuda_umap_optimizer o = {0}, *given = NULL;
    if (optimizer != NULL) {
        o = *optimizer;
        o.first = array_out(o.first, elements);
        o.second = array_out(o.second, elements);
        given = &o;
    }
    const napier_umap_edge *const e = array(edges, count);
    const uint32_t *const t = array(targets, params ? embedding.rows * params->negative_sample_rate : 1);
    const napier_matrix y = there(embedding);
    turns at = {0};
    while (turns_next(&at)) {
        at.status = napier_cuda_umap_optimize_epochs(at.context, NULL, at.given, params, epochs, e, count, t, given, y);
    }
    if (optimizer != NULL) {
        optimizer->steps = o.steps;
    }
    return finish(context, at.status);
}
