/* golden_attention - the bits of attention and its gradients, against a committed table (support/golden_table.h). */
#include <stdbool.h>
#include <stdio.h>

#include <napier/attention.h>

#include "support/formats.h"
#include "support/golden_table.h"

static uint64_t state;

static uint64_t next_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* In (-2, 2), of two uniform summands. */
static double next_number(void) {
    const double a = (double)((int64_t)(next_bits() & 0x1fffff) - 0x100000) * 0x1p-20;
    return a + (double)((int64_t)(next_bits() & 0x1fffff) - 0x100000) * 0x1p-20;
}

static napier_heads numbers(int64_t tokens, int64_t heads, int64_t dim, napier_dtype dtype, double scale) {
    void *const x = golden_room(tokens * heads * dim, napier_dtype_size(dtype));
    for (int64_t i = 0; i < tokens * heads * dim; i++) {
        element_set(x, dtype, i, scale * next_number());
    }
    return (napier_heads){x, tokens, heads, dim, heads * dim, dim, 1, dtype};
}

static napier_const_heads read_only(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static uint64_t hash_heads(uint64_t hash, napier_heads x) {
    return hash_elements(hash, x.data, x.dtype, x.tokens * x.heads * x.dim);
}

typedef struct shape {
    int64_t heads, group, dim, v_dim; /* heads of k */
    int64_t queries, tokens;          /* tokens: of k */
    napier_dtype dtype;
    double spread; /* of q */
} shape;

/* Forward and backward of one call. */
static void attention(const char *name, const shape *s, const napier_attention_options *options) {
    const int64_t heads = s->heads * s->group;
    const napier_heads q = numbers(s->queries, heads, s->dim, s->dtype, s->spread);
    const napier_heads k = numbers(s->tokens, s->heads, s->dim, s->dtype, 1.0);
    const napier_heads v = numbers(s->tokens, s->heads, s->v_dim, s->dtype, 1.0);
    const napier_heads grad = numbers(s->queries, heads, s->v_dim, s->dtype, 1.0);
    const napier_heads out = numbers(s->queries, heads, s->v_dim, s->dtype, 0.0);
    const napier_heads grad_q = numbers(s->queries, heads, s->dim, s->dtype, 0.0);
    const napier_heads grad_k = numbers(s->tokens, s->heads, s->dim, s->dtype, 0.0);
    const napier_heads grad_v = numbers(s->tokens, s->heads, s->v_dim, s->dtype, 0.0);
    const napier_heads sums = numbers(s->queries, heads, 1, NAPIER_F32, 0.0);
    const napier_matrix lse = napier_rows_f32(sums.data, s->queries, heads);
    golden_demand(napier_attention(golden_context, read_only(q), read_only(k), read_only(v), out, lse, options));
    golden_demand(napier_attention_backward(golden_context, read_only(grad), read_only(q), read_only(k), read_only(v),
                                            read_only(out), napier_read_only(lse), grad_q, grad_k, grad_v, options));
    char line[64];
    snprintf(line, sizeof line, "%s:%s:%dx%d+%dx%d:%dx%d", name, napier_dtype_name(s->dtype), (int)s->heads,
             (int)s->group, (int)s->dim, (int)s->v_dim, (int)s->queries, (int)s->tokens);
    golden_line(hash_heads(hash_heads(GOLDEN_BASIS, out), sums), "%s", line);
    golden_line(hash_heads(hash_heads(hash_heads(GOLDEN_BASIS, grad_q), grad_k), grad_v), "%s:back", line);
}

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};

static void one_sequence(int64_t queries, int64_t tokens, int64_t dim, int64_t v_dim, double spread, int dtype_count) {
    for (int causal = 0; causal < 2; causal++) {
        for (int d = 0; d < dtype_count; d++) {
            const shape s = {2, 2, dim, v_dim, queries, tokens, dtypes[d], spread};
            napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
            options.causal = causal;
            options.masked_rows = NAPIER_MASKED_ZERO;
            state = 88172645463325252u + (uint64_t)(queries * 1000003 + tokens * 1009 + dim);
            attention(causal ? "causal" : "full", &s, &options);
        }
    }
}

static void ragged(int bytes, double scale) {
    static const int64_t queries[] = {0, 12, 15, 15, 40}, keys[] = {300, 312, 315, 320, 340};
    static const int64_t begin[] = {0, 0, 40, 7}, end[] = {290, 300, 90, 7};
    const shape s = {2, 3, 40, 24, 40, 345, NAPIER_F32, 1.0};
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    options.scale = scale;
    options.sequences = 4;
    options.query_offsets = queries;
    options.key_offsets = keys;
    options.prefix_begin = begin;
    options.prefix_end = end;
    state = 362436069;
    float *const mask = golden_room(40 * 320, sizeof *mask);
    for (int64_t i = 0; i < 40 * 320; i++) {
        mask[i] = (float)next_number();
        ((unsigned char *)mask)[i] = bytes ? (unsigned char)(next_bits() % 3) : ((unsigned char *)mask)[i];
    }
    options.mask = mask;
    options.mask_is_bytes = bytes;
    options.mask_token_stride = 320;
    options.mask_key_stride = 1;
    options.mask_keys = 320;
    attention(bytes ? "ragged-bytes" : "ragged-floats", &s, &options);
    options.mask = NULL;
    attention(bytes ? "ragged-negative" : "ragged", &s, &options);
}

/* Sequences with prefixes, and the gradients of their outputs. */
static void bf16(bool weights, bool gradient, int64_t queries, int64_t tokens, int64_t dim, int64_t v_dim,
                 double spread) {
    const int64_t offsets[] = {0, queries / 3, queries}, keys[] = {tokens / 2, tokens / 2 + 1, tokens};
    const int64_t begin[] = {0, 1}, end[] = {tokens / 2, tokens / 3};
    const shape s = {2, 2, dim, v_dim, queries, tokens, NAPIER_BF16, spread};
    for (int causal = 0; causal < 2; causal++) {
        napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
        options.causal = causal;
        options.masked_rows = NAPIER_MASKED_ZERO;
        options.bf16_weights = weights;
        options.bf16_gradient = gradient;
        options.sequences = 2;
        options.query_offsets = offsets;
        options.key_offsets = keys;
        options.prefix_begin = begin;
        options.prefix_end = end;
        state = 521288629u + (uint64_t)(queries * 1000003 + tokens * 1009 + dim);
        char name[32];
        snprintf(name, sizeof name, "bf16%s%s%s", weights ? "-weights" : "", gradient ? "-gradient" : "",
                 causal ? "-causal" : "");
        attention(name, &s, &options);
    }
}

static void all_cases(int quick) {
    one_sequence(3, 5, 7, 9, 1.0, 3);
    one_sequence(30, 50, 64, 64, 1.0, 3);
    one_sequence(20, 600, 16, 16, 60.0, 1);
    ragged(0, 0.0);
    ragged(1, -0.3);
    bf16(true, false, 3, 5, 7, 9, 1.0);
    bf16(true, false, 40, 700, 64, 48, 1.0);
    bf16(true, false, 20, 600, 16, 16, 60.0);
    bf16(false, true, 3, 5, 7, 9, 1.0);
    bf16(false, true, 190, 700, 64, 48, 1.0);
    bf16(true, true, 20, 600, 16, 16, 60.0);
    if (!quick) {
        one_sequence(70, 300, 128, 128, 1.0, 1);
        one_sequence(10, 520, 300, 270, 1.0, 1);
    }
}

int main(int count, char **words) { return golden_main("golden_attention", count, words, all_cases); }
