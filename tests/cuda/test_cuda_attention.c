/* tests/cuda/test_cuda_attention.c - attention and its gradients on a GPU: the CPU's bits, over batches, masks,
 * prefixes, dtypes, strides, dims, infinities and orders of threads; and offsets that are wrong. */
#include <math.h>
#include <napier/cuda/attention.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "support/check.h"
#include "support/formats.h"

static napier_cuda_context *context;
static napier_context *cpu;

/* ---- Arrays on both sides ---------------------------------------------------------------------------------------- */

/* Host memory, and its copy on the device. */
typedef struct pair {
    void *host, *device;
    size_t size;
} pair;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}
static float unit(uint64_t *state) { return (float)((double)next(state) * 0x1p-30 - 1.0); }

typedef struct attention_case {
    int64_t heads, kv_heads, dim, v_dim;
    napier_dtype dtype;
    int sequences; /* 0: one without offsets */
    bool causal, prefixes, gaps, special;
    int mask; /* 0 none, 1 bytes, 2 floats */
    napier_masked_rows masked_rows;
    double scale;
    uint64_t seed;
} attention_case;

typedef struct attention_data {
    attention_case c;
    int64_t queries, keys, mask_keys; /* tokens */
    pair q, k, v, output, lse, grad_output, grad_q, grad_k, grad_v, mask;
    int64_t offsets[4][9]; /* query, key, prefix begin and end */
    pair on_device[4];
} attention_data;

static pair pair_new(size_t size) {
    pair p = {room_for((int64_t)size + 1, 1), NULL, size};
    memset(p.host, 0xa5, size);
    return p;
}
static void pair_send(pair *p) { p->device = device_copy(p->host, p->size); }
static void pair_free(pair *p) {
    free(p->host);
    if (p->device) {
        device_free(p->device);
    }
}

/* Heads of tokens with a gap after each token and each head, if gaps are wanted. */
static napier_heads heads_of(const attention_case *c, void *data, int64_t tokens, int64_t heads, int64_t dim) {
    const int64_t head = dim + (c->gaps ? 3 : 0), token = heads * head + (c->gaps ? 1 : 0);
    const napier_heads h = {data, tokens, heads, dim, token, head, 1, c->dtype};
    return h;
}
static size_t heads_bytes(napier_heads h) {
    return (size_t)(h.tokens * h.token_stride) * napier_dtype_size(h.dtype) + 16;
}

static void put(napier_heads h, int64_t t, int64_t head, int64_t i, double x) {
    const int64_t at = t * h.token_stride + head * h.head_stride + i * h.dim_stride;
    if (h.dtype == NAPIER_F32) {
        ((float *)h.data)[at] = (float)x;
    } else {
        ((uint16_t *)h.data)[at] = h.dtype == NAPIER_F16 ? f16_nearest(x) : bf16_nearest(x);
    }
}

static void fill(napier_heads h, double scale, bool special, uint64_t *state) {
    for (int64_t t = 0; t < h.tokens; t++) {
        for (int64_t head = 0; head < h.heads; head++) {
            for (int64_t i = 0; i < h.dim; i++) {
                const uint64_t draw = next(state) % 400;
                const double x = scale * (double)unit(state);
                put(h, t, head, i,
                    !special || draw > 2 ? x
                    : draw == 0          ? (double)NAN
                    : draw == 1          ? 1e30
                                         : -(double)INFINITY);
            }
        }
    }
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

static void choose_offsets(attention_data *d, uint64_t *state) {
    const int n = d->c.sequences > 0 ? d->c.sequences : 1;
    int64_t *const q = d->offsets[0], *const k = d->offsets[1];
    q[0] = 0;
    k[0] = d->c.prefixes ? 5 : d->c.gaps ? 2 : 0;
    for (int i = 0; i < n; i++) {
        const int64_t queries = (int64_t)(next(state) % 40), more = (int64_t)(next(state) % 300);
        q[i + 1] = q[i] + (i == 1 ? 0 : queries + 1);
        k[i + 1] = k[i] + (d->c.prefixes ? queries : i == 2 ? 1 : i == 3 ? 0 : queries + 1 + more);
    }
    d->queries = q[n];
    d->keys = k[n] + (d->c.gaps ? 3 : 0);
    if (d->c.sequences == 0) {
        k[0] = 0, d->keys = k[1];
    }
    for (int i = 0; i < n; i++) { /* shared, own, overlapping */
        d->offsets[2][i] = i % 3 == 2 ? 2 : 0;
        d->offsets[3][i] = d->c.prefixes ? (i % 3 == 1 ? 0 : k[0] + (i == 3 ? 9 : 0)) : 0;
        const int64_t keys = k[i + 1] - k[i] + d->offsets[3][i] - d->offsets[2][i];
        if (d->offsets[3][i] < d->offsets[2][i] || d->offsets[3][i] > d->keys) {
            d->offsets[3][i] = d->offsets[2][i];
        }
        d->mask_keys = keys + 12 > d->mask_keys ? keys + 12 : d->mask_keys;
    }
}

static void make_mask(attention_data *d, uint64_t *state) {
    const int64_t count = d->queries * d->c.heads * d->mask_keys;
    d->mask = pair_new((size_t)count * (d->c.mask == 1 ? 1 : 4));
    for (int64_t i = 0; i < count; i++) {
        const uint64_t draw = next(state) % 5;
        const bool row_hidden = i / d->mask_keys % 7 == 3;
        if (d->c.mask == 1) {
            ((uint8_t *)d->mask.host)[i] = draw > 0 && !row_hidden;
        } else {
            ((float *)d->mask.host)[i] = draw == 0 || row_hidden ? -INFINITY : 3 * unit(state);
        }
    }
}

static attention_data data_of(attention_case c) {
    uint64_t state = c.seed * 77 + 5;
    attention_data d = {.c = c};
    choose_offsets(&d, &state);
    const napier_heads q = heads_of(&c, NULL, d.queries, c.heads, c.dim);
    const napier_heads k = heads_of(&c, NULL, d.keys, c.kv_heads, c.dim);
    const napier_heads v = heads_of(&c, NULL, d.keys, c.kv_heads, c.v_dim);
    const napier_heads o = heads_of(&c, NULL, d.queries, c.heads, c.v_dim);
    pair *const pairs[] = {&d.q, &d.grad_q, &d.k, &d.grad_k, &d.v, &d.grad_v, &d.output, &d.grad_output};
    const napier_heads shapes[] = {q, q, k, k, v, v, o, o};
    for (int i = 0; i < 8; i++) {
        *pairs[i] = pair_new(heads_bytes(shapes[i]));
    }
    d.lse = pair_new((size_t)(d.queries * c.heads) * 4);
    if (c.mask) {
        make_mask(&d, &state);
    }
    fill(heads_of(&c, d.q.host, d.queries, c.heads, c.dim), 2, c.special, &state);
    fill(heads_of(&c, d.k.host, d.keys, c.kv_heads, c.dim), 2, c.special, &state);
    fill(heads_of(&c, d.v.host, d.keys, c.kv_heads, c.v_dim), 1, c.special, &state);
    fill(heads_of(&c, d.grad_output.host, d.queries, c.heads, c.v_dim), 1, c.special, &state);
    for (int i = 0; i < 8; i++) {
        pair_send(pairs[i]);
    }
    pair_send(&d.lse);
    if (c.mask) {
        pair_send(&d.mask);
    }
    for (int i = 0; i < 4; i++) {
        d.on_device[i] = pair_new(sizeof d.offsets[i]);
        memcpy(d.on_device[i].host, d.offsets[i], sizeof d.offsets[i]);
        pair_send(&d.on_device[i]);
    }
    return d;
}

static void data_free(attention_data *d) {
    pair *const pairs[] = {&d->q,           &d->k,      &d->v,      &d->output, &d->lse,
                           &d->grad_output, &d->grad_q, &d->grad_k, &d->grad_v, &d->mask};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        pair_free(pairs[i]);
    }
    for (int i = 0; i < 4; i++) {
        pair_free(&d->on_device[i]);
    }
}

/* ---- Calls, on either side --------------------------------------------------------------------------------------- */

static const void *at(const pair *p, bool device) { return device ? p->device : p->host; }

static napier_const_heads input(const attention_data *d, const pair *p, bool device, int64_t tokens, int64_t heads,
                                int64_t dim) {
    const napier_heads h = heads_of(&d->c, NULL, tokens, heads, dim);
    const napier_const_heads x = {at(p, device), tokens, heads, dim, h.token_stride, h.head_stride, 1, d->c.dtype};
    return x;
}
static napier_heads output(const attention_data *d, const pair *p, bool device, int64_t tokens, int64_t heads,
                           int64_t dim) {
    return heads_of(&d->c, device ? p->device : p->host, tokens, heads, dim);
}

static napier_attention_options options_for(const attention_data *d, bool device) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.scale = d->c.scale;
    o.causal = d->c.causal;
    o.masked_rows = d->c.masked_rows;
    if (d->c.sequences > 0) {
        o.sequences = d->c.sequences;
        o.query_offsets = device ? d->on_device[0].device : d->offsets[0];
        o.key_offsets = device ? d->on_device[1].device : d->offsets[1];
    }
    if (d->c.prefixes) {
        o.prefix_begin = device ? d->on_device[2].device : d->offsets[2];
        o.prefix_end = device ? d->on_device[3].device : d->offsets[3];
    }
    if (d->c.mask) {
        o.mask = at(&d->mask, device);
        o.mask_is_bytes = d->c.mask == 1;
        o.mask_token_stride = d->c.heads * d->mask_keys;
        o.mask_head_stride = d->mask_keys;
        o.mask_key_stride = 1;
        o.mask_keys = d->mask_keys;
    }
    return o;
}

static napier_status forward(const attention_data *d, bool device, napier_cuda_mode mode) {
    const attention_case *const c = &d->c;
    const napier_attention_options o = options_for(d, device);
    const napier_const_heads q = input(d, &d->q, device, d->queries, c->heads, c->dim);
    const napier_const_heads k = input(d, &d->k, device, d->keys, c->kv_heads, c->dim);
    const napier_const_heads v = input(d, &d->v, device, d->keys, c->kv_heads, c->v_dim);
    const napier_heads out = output(d, &d->output, device, d->queries, c->heads, c->v_dim);
    float *const sums = device ? d->lse.device : d->lse.host;
    const napier_matrix lse = napier_rows_f32(sums, d->queries, c->heads);
    if (!device) {
        return napier_attention(cpu, q, k, v, out, lse, &o);
    }
    napier_cuda_workspace w = {NULL, 0};
    napier_status status = napier_cuda_attention(context, NULL, &w, q, k, v, out, lse, &o, mode);
    if (!status) {
        w.data = device_new(w.size + 1);
        status = napier_cuda_attention(context, NULL, &w, q, k, v, out, lse, &o, mode);
        device_free(w.data);
    }
    return status;
}

static napier_status backward(const attention_data *d, bool device) {
    const attention_case *const c = &d->c;
    const napier_attention_options o = options_for(d, device);
    const napier_const_heads q = input(d, &d->q, device, d->queries, c->heads, c->dim);
    const napier_const_heads k = input(d, &d->k, device, d->keys, c->kv_heads, c->dim);
    const napier_const_heads v = input(d, &d->v, device, d->keys, c->kv_heads, c->v_dim);
    const napier_const_heads g = input(d, &d->grad_output, device, d->queries, c->heads, c->v_dim);
    const napier_const_heads out = input(d, &d->output, device, d->queries, c->heads, c->v_dim);
    const napier_const_matrix lse = napier_const_rows_f32(at(&d->lse, device), d->queries, c->heads);
    const napier_heads gq = output(d, &d->grad_q, device, d->queries, c->heads, c->dim);
    const napier_heads gk = output(d, &d->grad_k, device, d->keys, c->kv_heads, c->dim);
    const napier_heads gv = output(d, &d->grad_v, device, d->keys, c->kv_heads, c->v_dim);
    if (!device) {
        return napier_attention_backward(cpu, g, q, k, v, out, lse, gq, gk, gv, &o);
    }
    napier_cuda_workspace w = {NULL, 0};
    napier_status status = napier_cuda_attention_backward(context, NULL, &w, g, q, k, v, out, lse, gq, gk, gv, &o);
    if (!status) {
        w.data = device_new(w.size + 1);
        status = napier_cuda_attention_backward(context, NULL, &w, g, q, k, v, out, lse, gq, gk, gv, &o);
        device_free(w.data);
    }
    return status;
}

/* The same bytes on both sides: poison between the elements too. */
static void same(const attention_data *d, const char *what, const pair *p) {
    unsigned char *const got = room_for((int64_t)p->size + 1, 1);
    const size_t size = d->c.dtype == NAPIER_F32 || strcmp(what, "lse") == 0 ? 4 : 2;
    device_read(got, p->device, p->size);
    for (size_t i = 0; i < p->size; i += size) {
        if (!expect(memcmp(got + i, (const unsigned char *)p->host + i, size) == 0,
                    "case %llu, %s: element %zu differs: %08x, not %08x", (unsigned long long)d->c.seed, what, i / size,
                    size == 4 ? *(uint32_t *)(void *)(got + i) : *(uint16_t *)(void *)(got + i),
                    size == 4 ? ((uint32_t *)p->host)[i / 4] : ((uint16_t *)p->host)[i / 2])) {
            break;
        }
    }
    free(got);
}

static const attention_case CASES[] = {
    {.heads = 1, .kv_heads = 1, .dim = 1, .v_dim = 1, .dtype = NAPIER_F32, .seed = 0},
    {.heads = 4, .kv_heads = 2, .dim = 40, .v_dim = 24, .dtype = NAPIER_F32, .sequences = 5, .causal = true, .seed = 1},
    {.heads = 2, .kv_heads = 1, .dim = 33, .v_dim = 130, .dtype = NAPIER_BF16, .causal = true, .gaps = true, .seed = 2},
    {.heads = 3,
     .kv_heads = 1,
     .dim = 16,
     .v_dim = 8,
     .dtype = NAPIER_F16,
     .sequences = 4,
     .causal = true,
     .prefixes = true,
     .gaps = true,
     .mask = 1,
     .masked_rows = NAPIER_MASKED_ZERO,
     .seed = 3},
    {.heads = 2,
     .kv_heads = 2,
     .dim = 20,
     .v_dim = 20,
     .dtype = NAPIER_F32,
     .sequences = 6,
     .prefixes = true,
     .mask = 2,
     .scale = -0.5,
     .seed = 4},
    {.heads = 2,
     .kv_heads = 1,
     .dim = 12,
     .v_dim = 17,
     .dtype = NAPIER_F32,
     .sequences = 5,
     .causal = true,
     .special = true,
     .mask = 1,
     .gaps = true,
     .seed = 5},
    {.heads = 2,
     .kv_heads = 2,
     .dim = 8,
     .v_dim = 8,
     .dtype = NAPIER_BF16,
     .sequences = 4,
     .causal = true,
     .scale = 40,
     .special = true,
     .seed = 6},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static void test_bits(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        attention_data d = data_of(CASES[i]);
        device_order((uint64_t)i);
        succeeded(cpu, forward(&d, false, NAPIER_CUDA_BITWISE), "the CPU's attention");
        expect(forward(&d, true, NAPIER_CUDA_BITWISE) == NAPIER_OK, "attention: %s", napier_cuda_last_error(context));
        same(&d, "output", &d.output);
        same(&d, "lse", &d.lse);
        succeeded(cpu, backward(&d, false), "the CPU's backward");
        expect(backward(&d, true) == NAPIER_OK, "backward: %s", napier_cuda_last_error(context));
        same(&d, "grad_q", &d.grad_q);
        same(&d, "grad_k", &d.grad_k);
        same(&d, "grad_v", &d.grad_v);
        data_free(&d);
    }
    assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_OK);
    no_problems();
}

/* ---- Tensor cores ------------------------------------------------------------------------------------------------ */

static const attention_case TENSOR_CASES[] = {
    {.heads = 2, .kv_heads = 1, .dim = 128, .v_dim = 128, .dtype = NAPIER_BF16, .causal = true, .seed = 20},
    {.heads = 4,
     .kv_heads = 2,
     .dim = 40,
     .v_dim = 24,
     .dtype = NAPIER_F16,
     .sequences = 5,
     .causal = true,
     .seed = 21},
    {.heads = 2,
     .kv_heads = 2,
     .dim = 64,
     .v_dim = 72,
     .dtype = NAPIER_BF16,
     .sequences = 6,
     .prefixes = true,
     .mask = 2,
     .scale = -0.2,
     .seed = 22},
    {.heads = 2,
     .kv_heads = 1,
     .dim = 16,
     .v_dim = 56,
     .dtype = NAPIER_F16,
     .sequences = 5,
     .causal = true,
     .special = true,
     .mask = 1,
     .masked_rows = NAPIER_MASKED_ZERO,
     .seed = 23},
    {.heads = 2,
     .kv_heads = 2,
     .dim = 8,
     .v_dim = 8,
     .dtype = NAPIER_BF16,
     .sequences = 4,
     .causal = true,
     .special = true,
     .seed = 24},
    {.heads = 1, .kv_heads = 1, .dim = 33, .v_dim = 8, .dtype = NAPIER_BF16, .seed = 25}, /* rows on odd places */
};

static double value(const attention_data *d, const void *data, int64_t i) {
    return d->c.dtype == NAPIER_F16 ? f16_value(((const uint16_t *)data)[i]) : bf16_value(((const uint16_t *)data)[i]);
}

static bool close_to(double got, double wanted, double error) {
    return isnan(wanted) ? isnan(got) : isinf(wanted) ? got == wanted : fabs(got - wanted) <= error;
}

/* Outputs against the CPU's, which are exact in comparison. */
static void check_close(const attention_data *d) {
    const int64_t count = d->queries * d->c.heads * d->c.v_dim, rows = d->queries * d->c.heads;
    uint16_t *const got = room_for(count + 8, 2);
    float *const lse = room_for(rows, 4);
    device_read(got, d->output.device, (size_t)count * 2);
    device_read(lse, d->lse.device, (size_t)rows * 4);
    for (int64_t i = 0; i < count; i++) {
        const double wanted = value(d, d->output.host, i), error = (d->c.dtype == NAPIER_F16 ? 0x1p-9 : 0x1p-6);
        if (!expect(close_to(value(d, got, i), wanted, error * (1 + fabs(wanted))),
                    "case %llu: output %lld is %g, not %g", (unsigned long long)d->c.seed, (long long)i,
                    value(d, got, i), wanted)) {
            break;
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        const double wanted = (double)((float *)d->lse.host)[i];
        if (!expect(close_to((double)lse[i], wanted, 1e-5 * (1 + fabs(wanted))), "case %llu: lse %lld is %g, not %g",
                    (unsigned long long)d->c.seed, (long long)i, (double)lse[i], wanted)) {
            break;
        }
    }
    free(got), free(lse);
}

static void test_tensor_cores(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof TENSOR_CASES / sizeof *TENSOR_CASES; i++) {
        attention_data d = data_of(TENSOR_CASES[i]);
        device_order(i);
        succeeded(cpu, forward(&d, false, NAPIER_CUDA_BITWISE), "the CPU's attention");
        expect(forward(&d, true, NAPIER_CUDA_BATCH_INVARIANT) == NAPIER_OK, "attention: %s",
               napier_cuda_last_error(context));
        check_close(&d);
        data_free(&d);
    }
    no_problems();
}

/* The last queries of a sequence by themselves: their rows stand elsewhere in a tile, and the bits are the same. */
static void test_tensor_rows(void **state) {
    (void)state;
    const attention_case c = {
        .heads = 2, .kv_heads = 1, .dim = 64, .v_dim = 64, .dtype = NAPIER_BF16, .causal = true, .seed = 30};
    attention_data d = data_of(c);
    const int64_t row = c.heads * c.v_dim;
    uint16_t *const all = room_for(d.queries * row, 2), *const some = room_for(d.queries * row, 2);
    expect(forward(&d, true, NAPIER_CUDA_BATCH_INVARIANT) == NAPIER_OK, "%s", napier_cuda_last_error(context));
    device_read(all, d.output.device, (size_t)(d.queries * row) * 2);
    for (int64_t skip = 1; skip < d.queries; skip += 7) {
        napier_const_heads q = input(&d, &d.q, true, d.queries - skip, c.heads, c.dim);
        q.data = (const uint16_t *)q.data + skip * q.token_stride;
        const napier_const_heads k = input(&d, &d.k, true, d.keys, 1, c.dim),
                                 v = input(&d, &d.v, true, d.keys, 1, c.v_dim);
        const napier_heads out = output(&d, &d.output, true, d.queries - skip, c.heads, c.v_dim);
        const napier_attention_options o = options_for(&d, true);
        const napier_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
        device_order((uint64_t)skip);
        expect(napier_cuda_attention(context, NULL, NULL, q, k, v, out, none, &o, NAPIER_CUDA_BATCH_INVARIANT) ==
                   NAPIER_OK,
               "%s", napier_cuda_last_error(context));
        device_read(some, d.output.device, (size_t)((d.queries - skip) * row) * 2);
        expect(memcmp(some, all + skip * row, (size_t)((d.queries - skip) * row) * 2) == 0, "rows from %lld on differ",
               (long long)skip);
    }
    free(all), free(some);
    data_free(&d);
    no_problems();
}

/* Offsets that fall, leave the array, or need more mask than there is: NaN everywhere, nothing out of bounds. */
static void test_offsets(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        attention_data d = data_of(CASES[4]);
        int64_t *const bad = d.on_device[i % 4].host;
        bad[1] = i == 4 ? d.queries + 1 : i == 3 ? d.keys + 1 : -1;
        device_write(d.on_device[i % 4].device, bad, d.on_device[i % 4].size);
        expect(forward(&d, true, NAPIER_CUDA_BITWISE) == NAPIER_OK, "attention: %s", napier_cuda_last_error(context));
        if (i == 0) { /* and what tensor cores would write */
            attention_data t = data_of(TENSOR_CASES[2]);
            device_write(t.on_device[0].device, bad, t.on_device[0].size);
            expect(forward(&t, true, NAPIER_CUDA_BATCH_INVARIANT) == NAPIER_OK, "%s", napier_cuda_last_error(context));
            device_read(t.output.host, t.output.device, t.output.size);
            for (int64_t e = 0; e < t.queries * t.c.heads * t.c.v_dim; e++) {
                expect(((uint16_t *)t.output.host)[e] == 0x7fc0, "an output that is not NaN");
            }
            data_free(&t);
        }
        expect(backward(&d, true) == NAPIER_OK, "backward: %s", napier_cuda_last_error(context));
        const pair *const outs[] = {&d.output, &d.lse, &d.grad_q, &d.grad_k, &d.grad_v};
        for (int j = 0; j < 5; j++) {
            device_read(outs[j]->host, outs[j]->device, outs[j]->size);
            for (size_t e = 0; e + 16 < outs[j]->size; e += 4) {
                if (!expect(((uint32_t *)outs[j]->host)[e / 4] == 0x7fc00000u, "case %d: output %d is not NaN", i, j)) {
                    break;
                }
            }
        }
        assert_int_equal(napier_cuda_synchronize(context, NULL), NAPIER_INVALID_ARGUMENT);
        assert_non_null(strstr(napier_cuda_last_error(context), "offset at index"));
        data_free(&d);
    }
    no_problems();
}

static void test_errors(void **state) {
    (void)state;
    attention_data d = data_of(CASES[1]);
    napier_const_heads q = input(&d, &d.q, true, d.queries, 4, 40), k = input(&d, &d.k, true, d.keys, 2, 40);
    const napier_const_heads v = input(&d, &d.v, true, d.keys, 2, 24);
    const napier_heads out = output(&d, &d.output, true, d.queries, 4, 24);
    const napier_attention_options o = options_for(&d, true);
    const napier_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
    assert_int_equal(napier_cuda_attention(NULL, NULL, NULL, q, k, v, out, none, &o, NAPIER_CUDA_BITWISE),
                     NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_cuda_attention(context, NULL, NULL, q, k, v, out, none, &o, NAPIER_CUDA_BITWISE),
                     NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "workspace: size 0"));
    assert_int_equal(napier_cuda_attention(context, NULL, NULL, q, k, v, out, none, NULL, (napier_cuda_mode)7),
                     NAPIER_INVALID_ARGUMENT);
    k.dim = 39;
    assert_int_equal(napier_cuda_attention(context, NULL, NULL, q, k, v, out, none, NULL, NAPIER_CUDA_BITWISE),
                     NAPIER_INVALID_ARGUMENT);
    assert_non_null(strstr(napier_cuda_last_error(context), "k: dim 39"));
    q.dim = k.dim = 4000;
    q.dim_stride = k.dim_stride = q.token_stride = k.token_stride = 0;
    q.head_stride = k.head_stride = 0;
    assert_int_equal(napier_cuda_attention(context, NULL, NULL, q, k, v, out, none, NULL, NAPIER_CUDA_BITWISE),
                     NAPIER_UNSUPPORTED);
    assert_non_null(strstr(napier_cuda_last_error(context), "shared memory"));
    data_free(&d);
}

int main(void) {
    device_wanted();
    if (napier_cuda_context_create(&context, 0) || napier_context_create(&cpu, NULL)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_offsets),
                                       cmocka_unit_test(test_tensor_cores), cmocka_unit_test(test_tensor_rows),
                                       cmocka_unit_test(test_errors)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(context);
    napier_context_destroy(cpu);
    return failed;
}
