/* bench/workers/napier_products.c - matmul, and attention with its gradients. */
#include "napier_cases.h"

#include <stddef.h>
#include <string.h>

/* ---- a [m, k] times weights [n, k], transposed ------------------------------------------------------------------- */

static napier_const_matrix a, weights;
static napier_matrix product;

static const char *set_up_matmul(const bench_case *const self) {
    const int64_t m = bench_number("rows"), k = bench_number("inner"), n = bench_number("cols");
    (void)self;
    a = napier_const_rows(bench_input("a"), m, k, job_dtype());
    weights = napier_const_transposed(napier_const_rows(bench_input("weights"), n, k, job_dtype()));
    void *const room = bench_result("product", (size_t)(m * n) * napier_dtype_size(job_dtype()));
    product = napier_rows(room, m, n, job_dtype());
    return NULL;
}

static unsigned matmul(const int variant) {
    (void)variant;
    (void)bench_result("product", 0);
    return (unsigned)napier_matmul(context, a, weights, product);
}

/* ---- Attention: [heads, tokens, dim] ----------------------------------------------------------------------------- */

static napier_const_heads q, k, v, grad;
static napier_heads output, grad_q, grad_k, grad_v;
static napier_matrix lse;
static napier_attention_options attention_options;

static napier_heads heads_of(void *const data, const int64_t heads, const int64_t tokens, const int64_t dim) {
    return (napier_heads){data, tokens, heads, dim, dim, tokens * dim, 1, job_dtype()};
}

static napier_const_heads read_only(const napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static napier_const_heads input_heads(const char *const name, int64_t heads, int64_t tokens, int64_t dim) {
    return read_only(heads_of((void *)(uintptr_t)bench_input(name), heads, tokens, dim));
}

static napier_heads result_heads(const char *const name, const napier_const_heads like) {
    const size_t count = (size_t)(like.heads * like.tokens * like.dim);
    return heads_of(bench_result(name, count * napier_dtype_size(job_dtype())), like.heads, like.tokens, like.dim);
}

static unsigned attention(const int variant) {
    (void)variant;
    (void)bench_result("output", 0);
    return (unsigned)napier_attention(context, q, k, v, output, lse, &attention_options);
}

static unsigned attention_backward(const int variant) {
    (void)variant;
    (void)bench_result("grad_q", 0), (void)bench_result("grad_k", 0), (void)bench_result("grad_v", 0);
    return (unsigned)napier_attention_backward(context, grad, q, k, v, read_only(output), napier_read_only(lse), grad_q,
                                               grad_k, grad_v, &attention_options);
}

static const char *set_up_attention(const bench_case *const self) {
    const int64_t queries = bench_number("rows"), keys = bench_number("cols"), dim = bench_number("dim");
    const int64_t heads = bench_number("heads"), kv_heads = bench_number("kv_heads");
    q = input_heads("q", heads, queries, dim);
    k = input_heads("k", kv_heads, keys, dim);
    v = input_heads("v", kv_heads, keys, dim);
    grad = input_heads("grad", heads, queries, dim);
    output = result_heads("output", q);
    grad_q = result_heads("grad_q", q);
    grad_k = result_heads("grad_k", k);
    grad_v = result_heads("grad_v", v);
    lse = napier_rows_f32(bench_result("lse", (size_t)(queries * heads) * sizeof(float)), queries, heads);
    const napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    attention_options = options;
    attention_options.causal = (int)bench_number("causal");
    attention_options.bf16_weights = strcmp(self->name, "attention_bf16_weights") == 0;
    attention_options.bf16_gradient = strcmp(self->name, "attention_backward_bf16_gradient") == 0;
    /* the gradients want what the forward call gives */
    return self->run == attention_backward ? refusal_of((napier_status)attention(0)) : NULL;
}

const bench_case product_cases[] = {
    {"matmul", set_up_matmul, matmul, {"napier"}},
    {"attention", set_up_attention, attention, {"napier"}},
    {"attention_bf16_weights", set_up_attention, attention, {"napier"}},
    {"attention_backward", set_up_attention, attention_backward, {"napier"}},
    {"attention_backward_bf16_gradient", set_up_attention, attention_backward, {"napier"}},
    {.name = NULL},
};
