/* tests/cuda/test_cuda_attention.c - attention and its gradients on a GPU: the CPU's bits, over batches, masks,
 * prefixes, dtypes, strides, dims, infinities and orders of threads; and offsets that are wrong. */
#include "both.h"

/* What a case has: among them masks of bytes or floats, zeros in place of NaN for rows that are masked, bf16_weights, and
 * elements around the smallest normal number. */
enum { CAUSAL = 1, PREFIXES = 2, GAPS = 4, SPECIAL = 8, BYTES = 16, FLOATS = 32, ZERO = 64, REVERSED = 128 };
enum { NARROW = 256, TINY = 512 };

typedef struct attention_case {
    int64_t heads, kv_heads, dim, v_dim;
    napier_dtype dtype;
    int sequences; /* 0: one without offsets */
    int has;
    double scale;
    uint64_t seed;
} attention_case;

typedef struct attention_data {
    attention_case c;
    int64_t queries, keys, mask_keys; /* tokens */
    napier_heads q, k, v, output, grad_output, grad_q, grad_k, grad_v;
    napier_matrix lse;
    int64_t *offsets[5]; /* query, key, prefix begin and end; key end */
    napier_attention_options options;
} attention_data;

/* Heads of tokens with a gap after each token and each head, if gaps are wanted. */
static napier_heads new_heads(const attention_case *c, int64_t tokens, int64_t heads, int64_t dim) {
    const int64_t head = dim + ((c->has & GAPS) ? 3 : 0), token = heads * head + ((c->has & GAPS) ? 1 : 0);
    void *const data = array_new((size_t)(tokens * token) * napier_dtype_size(c->dtype) + 16);
    return (napier_heads){data, tokens, heads, dim, token, head, 1, c->dtype};
}

static napier_const_heads read_only(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static float unit(rng *r) { return (float)(2.0 * rng_uniform(r) - 1.0); }

static void fill(napier_heads h, double scale, int has, rng *r) {
    for (int64_t t = 0; t < h.tokens; t++) {
        for (int64_t head = 0; head < h.heads; head++) {
            for (int64_t i = 0; i < h.dim; i++) {
                const int64_t draw = rng_below(r, 400);
                const double x = ldexp(scale * (double)unit(r), (has & TINY) ? -(int)rng_below(r, 140) : 0);
                element_set(h.data, h.dtype, t * h.token_stride + head * h.head_stride + i,
                            !(has & SPECIAL) || draw > 2 ? x
                            : draw == 0                  ? (double)NAN
                            : draw == 1                  ? 1e30
                                                         : -(double)INFINITY);
            }
        }
    }
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

static void choose_offsets(attention_data *d, rng *r) {
    const int n = d->c.sequences > 0 ? d->c.sequences : 1;
    for (int i = 0; i < 5; i++) {
        d->offsets[i] = array_new((size_t)(n + 1) * sizeof **d->offsets);
    }
    int64_t *const q = d->offsets[0], *const k = d->offsets[1], *const begin = d->offsets[2],
                   *const end = d->offsets[3];
    q[0] = 0;
    k[0] = (d->c.has & PREFIXES) ? 5 : (d->c.has & GAPS) ? 2 : 0;
    for (int i = 0; i < n; i++) {
        const int64_t queries = rng_below(r, 40), more = rng_below(r, 300);
        q[i + 1] = q[i] + (i == 1 ? 0 : queries + 1);
        k[i + 1] = k[i] + ((d->c.has & PREFIXES) ? queries : i == 2 ? 1 : i == 3 ? 0 : queries + 1 + more);
    }
    d->queries = q[n];
    d->keys = k[n] + ((d->c.has & GAPS) ? 3 : 0);
    if (d->c.sequences == 0) {
        k[0] = 0, d->keys = k[1];
    }
    for (int i = 0; i < n; i++) { /* shared, own, overlapping */
        begin[i] = i % 3 == 2 ? 2 : 0;
        end[i] = (d->c.has & PREFIXES) ? (i % 3 == 1 ? 0 : k[0] + (i == 3 ? 9 : 0)) : 0;
        const int64_t keys = k[i + 1] - k[i] + end[i] - begin[i];
        if (end[i] < begin[i] || end[i] > d->keys) {
            end[i] = begin[i];
        }
        d->mask_keys = keys + 12 > d->mask_keys ? keys + 12 : d->mask_keys;
    }
    for (int i = 0; i < n; i++) {
        d->offsets[4][i] = k[i + 1];
    }
    if (d->c.has & REVERSED) { /* sequence 0 has the last own rows */
        const int64_t past = d->keys;
        for (int i = 0; i < n; i++) {
            const int64_t own = d->offsets[4][i] - k[i];
            k[i] = (i == 0 ? past : k[i - 1]) - own;
            d->offsets[4][i] = k[i] + own;
        }
    }
}

static const void *make_mask(const attention_data *d, rng *r) {
    const int64_t count = d->queries * d->c.heads * d->mask_keys;
    void *const mask = array_new((size_t)count * (d->c.has & BYTES ? 1 : 4));
    for (int64_t i = 0; i < count; i++) {
        const bool hidden = rng_below(r, 5) == 0 || i / d->mask_keys % 7 == 3; /* some of any row, all of some rows */
        if (d->c.has & BYTES) {
            ((uint8_t *)mask)[i] = !hidden;
        } else {
            ((float *)mask)[i] = hidden ? -INFINITY : 3 * unit(r);
        }
    }
    return mask;
}

static napier_attention_options make_options(const attention_data *d, rng *r) {
    napier_attention_options o = NAPIER_ATTENTION_OPTIONS_INIT;
    o.scale = d->c.scale;
    o.causal = d->c.has & CAUSAL;
    o.bf16_weights = (d->c.has & NARROW) != 0;
    o.masked_rows = d->c.has & ZERO ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
    if (d->c.sequences > 0) {
        o.sequences = d->c.sequences;
        o.query_offsets = d->offsets[0];
        o.key_offsets = d->offsets[1];
    }
    if (d->c.has & PREFIXES) {
        o.prefix_begin = d->offsets[2];
        o.prefix_end = d->offsets[3];
        o.key_end = d->c.has & REVERSED ? d->offsets[4] : NULL;
    }
    if (d->c.has & (BYTES | FLOATS)) {
        o.mask = make_mask(d, r);
        o.mask_is_bytes = (d->c.has & BYTES) != 0;
        o.mask_token_stride = d->c.heads * d->mask_keys;
        o.mask_head_stride = d->mask_keys;
        o.mask_key_stride = 1;
        o.mask_keys = d->mask_keys;
    }
    if (d->c.seed % 2 == 1) {
        const int64_t count = d->queries * d->c.heads;
        float *const grad_lse = array_new((size_t)count * sizeof *grad_lse);
        for (int64_t i = 0; i < count; i++) {
            grad_lse[i] = unit(r);
        }
        o.grad_lse = napier_const_rows_f32(grad_lse, d->queries, d->c.heads);
    }
    return o;
}

static attention_data data_of(attention_case c) {
    rng r = rng_make(c.seed * 77 + 5);
    attention_data d = {.c = c};
    choose_offsets(&d, &r);
    d.q = new_heads(&c, d.queries, c.heads, c.dim);
    d.k = new_heads(&c, d.keys, c.kv_heads, c.dim);
    d.v = new_heads(&c, d.keys, c.kv_heads, c.v_dim);
    d.output = new_heads(&c, d.queries, c.heads, c.v_dim);
    d.grad_output = new_heads(&c, d.queries, c.heads, c.v_dim);
    d.grad_q = new_heads(&c, d.queries, c.heads, c.dim);
    d.grad_k = new_heads(&c, d.keys, c.kv_heads, c.dim);
    d.grad_v = new_heads(&c, d.keys, c.kv_heads, c.v_dim);
    d.lse = napier_rows_f32(array_new((size_t)(d.queries * c.heads) * 4), d.queries, c.heads);
    d.options = make_options(&d, &r);
    fill(d.q, 2, c.has, &r);
    fill(d.k, 2, c.has, &r);
    fill(d.v, 1, c.has, &r);
    fill(d.grad_output, 1, c.has, &r);
    device_order(c.seed);
    both_case("case %d", (int)c.seed);
    return d;
}

/* ---- The CPU's bits ---------------------------------------------------------------------------------------------- */

/* The arguments of the calls on a case. */
#define FORWARD(d) read_only((d).q), read_only((d).k), read_only((d).v), (d).output, (d).lse, &(d).options
#define BACKWARD(d)                                                                                          \
    read_only((d).grad_output), read_only((d).q), read_only((d).k), read_only((d).v), read_only((d).output), \
        napier_read_only((d).lse), (d).grad_q, (d).grad_k, (d).grad_v, &(d).options

static const attention_case CASES[] = {
    {1, 1, 1, 1, NAPIER_F32, 0, 0, 0, 0},
    {4, 2, 40, 24, NAPIER_F32, 5, CAUSAL, 0, 1},
    {2, 1, 33, 130, NAPIER_BF16, 0, CAUSAL | GAPS, 0, 2},
    {3, 1, 16, 8, NAPIER_F16, 4, CAUSAL | PREFIXES | GAPS | BYTES | ZERO, 0, 3},
    {2, 1, 20, 16, NAPIER_BF16, 5, CAUSAL | PREFIXES | REVERSED, 0, 5},
    {2, 2, 20, 20, NAPIER_F32, 6, PREFIXES | FLOATS, -0.5, 4},
    {2, 1, 12, 17, NAPIER_F32, 5, CAUSAL | GAPS | SPECIAL | BYTES, 0, 5},
    {2, 2, 8, 8, NAPIER_BF16, 4, CAUSAL | SPECIAL, 40, 6},
    {1, 1, 1, 1, NAPIER_BF16, 0, NARROW, 0, 7},
    {4, 2, 40, 24, NAPIER_BF16, 5, NARROW | CAUSAL, 0, 8},
    {2, 1, 33, 130, NAPIER_BF16, 0, NARROW | CAUSAL | GAPS, 0, 9},
    {3, 1, 16, 8, NAPIER_BF16, 4, NARROW | CAUSAL | PREFIXES | GAPS | BYTES | ZERO, 0, 10},
    {2, 2, 20, 20, NAPIER_BF16, 6, NARROW | PREFIXES | FLOATS, -0.5, 11},
    {2, 1, 12, 17, NAPIER_BF16, 5, NARROW | CAUSAL | GAPS | SPECIAL | BYTES, 0, 12},
    {2, 2, 8, 8, NAPIER_BF16, 4, NARROW | CAUSAL | SPECIAL, 40, 13},
    {2, 2, 8, 24, NAPIER_BF16, 5, NARROW | CAUSAL | TINY, 40, 14},
    {1, 1, 70, 24, NAPIER_BF16, 6, NARROW | TINY, 1e4, 15},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static void test_bits(void) {
    through_mode = NAPIER_CUDA_BITWISE;
    for (int i = 0; i < CASE_COUNT; i++) {
        const attention_data d = data_of(CASES[i]);
        SAME(attention, FORWARD(d));
        SAME(attention_backward, BACKWARD(d));
        arrays_free();
    }
}

/* ---- Tensor cores ------------------------------------------------------------------------------------------------ */

static const attention_case TENSOR_CASES[] = {
    {2, 1, 128, 128, NAPIER_BF16, 0, CAUSAL, 0, 20},
    {4, 2, 40, 24, NAPIER_F16, 5, CAUSAL, 0, 21},
    {2, 2, 64, 72, NAPIER_BF16, 6, PREFIXES | FLOATS, -0.2, 22},
    {2, 1, 16, 56, NAPIER_F16, 5, CAUSAL | SPECIAL | BYTES | ZERO, 0, 23},
    {2, 2, 8, 8, NAPIER_BF16, 4, CAUSAL | SPECIAL, 0, 24},
    {1, 1, 33, 8, NAPIER_BF16, 0, 0, 0, 25}, /* rows on odd places */
};

static void check_close(const char *what, const void *got, const void *wanted, napier_dtype dtype, int64_t count,
                        double error) {
    for (int64_t i = 0; i < count; i++) {
        const double x = element_get(got, dtype, i), y = element_get(wanted, dtype, i);
        if (isnan(y) ? !isnan(x) : isinf(y) ? x != y : !(fabs(x - y) <= error * (1 + fabs(y)))) {
            fail_msg("%s %lld is %g, not %g", what, (long long)i, x, y);
        }
    }
}

/* Outputs against the CPU's, which are exact in comparison. */
static void test_tensor_cores(void) {
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    for (size_t i = 0; i < sizeof TENSOR_CASES / sizeof *TENSOR_CASES; i++) {
        attention_data d = data_of(TENSOR_CASES[i]);
        const int64_t rows = d.queries * d.c.heads, count = rows * d.c.v_dim;
        fine(napier_attention(cpu, FORWARD(d)));
        const void *const output = array_of(d.output.data, (size_t)count * 2), *const lse = array_of(d.lse.data,
                                                                                                     (size_t)rows * 4);
        memset(d.output.data, 0xa5, (size_t)count * 2);
        memset(d.lse.data, 0xa5, (size_t)rows * 4);
        fine(through_attention(cpu, FORWARD(d)));
        check_close("output", d.output.data, output, d.c.dtype, count, d.c.dtype == NAPIER_F16 ? 0x1p-9 : 0x1p-6);
        check_close("lse", d.lse.data, lse, NAPIER_F32, rows, 1e-5);
        arrays_free();
    }
}

/* The last queries of a sequence by themselves: their rows stand elsewhere in a tile, and the bits are the same. */
static void test_tensor_rows(void) {
    const attention_case c = {2, 1, 64, 64, NAPIER_BF16, 0, CAUSAL, 0, 30};
    attention_data d = data_of(c);
    const size_t row = (size_t)(c.heads * c.v_dim) * 2; /* bytes */
    through_mode = NAPIER_CUDA_BATCH_INVARIANT;
    fine(through_attention(cpu, FORWARD(d)));
    const char *const all = array_of(d.output.data, (size_t)d.queries * row);
    for (int64_t skip = 1; skip < d.queries; skip += 7) {
        attention_data some = d;
        some.q.tokens = some.output.tokens = d.queries - skip;
        some.q.data = (uint16_t *)d.q.data + skip * d.q.token_stride;
        some.lse = (napier_matrix){.dtype = NAPIER_F32};
        device_order((uint64_t)skip);
        both_case("rows from %d on", (int)skip);
        fine(through_attention(cpu, FORWARD(some)));
        assert_memory_equal(d.output.data, all + (size_t)skip * row, (size_t)(d.queries - skip) * row);
    }
}

/* ---- What is wrong ----------------------------------------------------------------------------------------------- */

static void all_heads_nan(napier_heads h) { all_nan(h.data, h.dtype, h.tokens * h.token_stride); }

/* Offsets that fall, leave the array, or need more mask than there is: NaN everywhere, nothing out of bounds. */
static void test_offsets(void) {
    for (int i = 0; i < 6; i++) { /* the last: what tensor cores would write */
        const bool tensor = i == 5;
        attention_data d = data_of(tensor ? TENSOR_CASES[2] : CASES[4]);
        d.offsets[tensor ? 0 : i % 4][1] = i == 4 ? d.queries + 1 : i == 3 ? d.keys + 1 : -1;
        through_mode = tensor ? NAPIER_CUDA_BATCH_INVARIANT : NAPIER_CUDA_BITWISE;
        both_case("wrong offset %d", i);
        bad(through_attention(cpu, FORWARD(d)), "offset at index");
        all_heads_nan(d.output);
        all_nan(d.lse.data, NAPIER_F32, d.queries * d.c.heads);
        bad(through_attention_backward(cpu, BACKWARD(d)), "offset at index");
        all_heads_nan(d.grad_q);
        all_heads_nan(d.grad_k);
        all_heads_nan(d.grad_v);
        arrays_free();
    }
}

static void test_errors(void) {
    const attention_data d = data_of(CASES[1]);
    attention_data other = d;
    through_mode = (napier_cuda_mode)7;
    bad(through_attention(cpu, FORWARD(d)), "mode: 7");
    through_mode = NAPIER_CUDA_BITWISE;
    other.k.dim = 39;
    bad(through_attention(cpu, FORWARD(other)), "k: dim 39");
    attention_data narrow = d;
    narrow.options.bf16_weights = 1;
    bad(through_attention(cpu, FORWARD(narrow)), "q: dtype f32");
    attention_data rounded = data_of(CASES[2]);
    rounded.options.bf16_gradient = 1;
    unsupported(through_attention_backward(cpu, BACKWARD(rounded)), "bf16_gradient 1");
    other.q.dim = other.k.dim = 4000;
    other.q.dim_stride = other.k.dim_stride = other.q.token_stride = other.k.token_stride = 0;
    other.q.head_stride = other.k.head_stride = 0;
    other.options.sequences = 0;
    other.options.query_offsets = other.options.key_offsets = NULL;
    unsupported(through_attention(cpu, FORWARD(other)), "shared memory");
}

int main(void) {
    return BOTH_TESTS("cuda_attention", TEST(test_bits), TEST(test_offsets), TEST(test_tensor_cores),
                      TEST(test_tensor_rows), TEST(test_errors));
}
