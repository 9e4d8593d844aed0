/* attention_support.h - ragged batches in every layout, the steps of the orders, and attention in double precision: what the
 * tests of forward and backward share. */
#ifndef NAPIER_TESTS_ATTENTION_SUPPORT_H
#define NAPIER_TESTS_ATTENTION_SUPPORT_H

#include "support/check.h"

#include <math.h>
#include <napier/attention.h>
#include <string.h>

#include "support/formats.h"

/* Heads of tokens in a grid: [tokens, heads * dim], or head after head, [heads * tokens, dim]. */
typedef struct heads_grid {
    grid g;
    napier_heads view;
} heads_grid;

static inline heads_grid heads_make(layout l, bool head_major, int64_t tokens, int64_t heads, int64_t dim,
                                    napier_dtype dtype) {
    heads_grid h = {.g = head_major ? grid_make(l, heads * tokens, dim, dtype)
                                    : grid_make(l, tokens, heads * dim, dtype)};
    const napier_matrix m = h.g.view;
    const int64_t head_stride = head_major ? tokens * m.row_stride : dim * m.col_stride;
    h.view = (napier_heads){m.data, tokens, heads, dim, m.row_stride, head_stride, m.col_stride, dtype};
    return h;
}

static inline napier_const_heads read_only(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static inline int64_t heads_index(const heads_grid *h, int64_t token, int64_t head, int64_t i) {
    return token * h->view.token_stride + head * h->view.head_stride + i * h->view.dim_stride;
}
static inline double heads_get(const heads_grid *h, int64_t token, int64_t head, int64_t i) {
    return element_get(h->view.data, h->view.dtype, heads_index(h, token, head, i));
}
static inline uint64_t heads_bits(const heads_grid *h, int64_t token, int64_t head, int64_t i) {
    return element_bits(h->view.data, h->view.dtype, heads_index(h, token, head, i));
}
static inline void heads_set(heads_grid *h, int64_t token, int64_t head, int64_t i, double value) {
    element_set(h->view.data, h->view.dtype, heads_index(h, token, head, i), value);
}
static inline void heads_fill(heads_grid *h, rng *r) {
    for (int64_t t = 0; t < h->view.tokens; t++) {
        for (int64_t n = 0; n < h->view.heads; n++) {
            for (int64_t i = 0; i < h->view.dim; i++) {
                heads_set(h, t, n, i, rng_normal(r));
            }
        }
    }
}

/* Elements whose bits differ, counted; shapes are the same. */
static inline int64_t heads_differ(const heads_grid *a, const heads_grid *b) {
    int64_t differ = 0;
    for (int64_t t = 0; t < a->view.tokens; t++) {
        for (int64_t n = 0; n < a->view.heads; n++) {
            for (int64_t i = 0; i < a->view.dim; i++) {
                differ += heads_bits(a, t, n, i) != heads_bits(b, t, n, i);
            }
        }
    }
    return differ;
}

/* ---- A ragged batch ---------------------------------------------------------------------------------------------- */

enum { SEQUENCES_MOST = 8, GAP = 3 };
typedef enum mask_kind { MASK_NONE, MASK_FLOATS, MASK_BYTES } mask_kind;

typedef struct shape {
    int64_t heads, group, dim, v_dim; /* heads of k */
    int64_t sequences;                /* 0: one */
    int64_t queries[SEQUENCES_MOST], own[SEQUENCES_MOST];
    int64_t prefix_begin[SEQUENCES_MOST], prefix_end[SEQUENCES_MOST]; /* all 0: none */
    bool scattered; /* own rows: those of the last sequence first, with gaps between */
    int causal;
    double scale;
    mask_kind mask;
    napier_dtype dtype;
    layout l;
    bool head_major;
    bool bf16_weights, bf16_gradient;
    bool grad_lse; /* lse has a gradient, of any strides */
} shape;

/* One sequence of f32. */
static inline shape one_sequence(int64_t heads, int64_t group, int64_t dim, int64_t v_dim, int64_t queries,
                                 int64_t keys) {
    return (shape){.heads = heads,
                   .group = group,
                   .dim = dim,
                   .v_dim = v_dim,
                   .queries = {queries},
                   .own = {keys},
                   .dtype = NAPIER_F32};
}

typedef struct batch {
    shape s;
    int64_t queries, tokens, most_keys; /* tokens: of k */
    int64_t query_offsets[SEQUENCES_MOST + 1], key_offsets[SEQUENCES_MOST + 1], key_end[SEQUENCES_MOST];
    heads_grid q, k, v;
    float *mask; /* or bytes */
    napier_attention_options options;
} batch;

static inline bool has_prefixes(const shape *s) {
    bool any = false;
    for (int64_t i = 0; i < s->sequences; i++) {
        any = any || s->prefix_end[i] > 0;
    }
    return any;
}

/* Own rows follow the longest prefix. */
static inline void batch_offsets(batch *b) {
    const shape *const s = &b->s;
    const int64_t count = s->sequences > 0 ? s->sequences : 1;
    int64_t before = 0;
    for (int64_t i = 0; i < s->sequences; i++) {
        before = s->prefix_end[i] > before ? s->prefix_end[i] : before;
    }
    b->query_offsets[0] = 0;
    b->key_offsets[0] = before;
    for (int64_t i = 0; i < count; i++) {
        const int64_t keys = s->own[i] + s->prefix_end[i] - s->prefix_begin[i];
        b->query_offsets[i + 1] = b->query_offsets[i] + s->queries[i];
        b->key_offsets[i + 1] = b->key_offsets[i] + s->own[i];
        b->most_keys = keys > b->most_keys ? keys : b->most_keys;
    }
    b->queries = b->query_offsets[count];
    b->tokens = b->key_offsets[count];
    for (int64_t i = count - 1, row = before + GAP; i >= 0 && s->scattered; i--) {
        b->key_offsets[i] = row;
        b->key_end[i] = row + s->own[i];
        b->tokens = row = b->key_end[i] + GAP;
    }
}

static inline void batch_mask(batch *b, rng *r) {
    const int64_t count = b->queries * b->s.heads * b->s.group * b->most_keys;
    b->mask = scratch(count + 1, sizeof *b->mask);
    for (int64_t i = 0; i < count; i++) {
        const bool hidden = rng_below(r, 4) == 0;
        if (b->s.mask == MASK_BYTES) {
            ((unsigned char *)b->mask)[i] = hidden ? 0 : (unsigned char)(1 + rng_below(r, 255));
        } else {
            b->mask[i] = hidden ? -INFINITY : (float)rng_normal(r);
        }
    }
    b->options.mask = b->mask;
    b->options.mask_is_bytes = b->s.mask == MASK_BYTES;
    b->options.mask_token_stride = b->s.heads * b->s.group * b->most_keys;
    b->options.mask_head_stride = b->most_keys;
    b->options.mask_key_stride = 1;
    b->options.mask_keys = b->most_keys;
}

/* The options point into *b, which must stay where it is. */
static inline void batch_make(batch *b, const shape *s, uint64_t seed) {
    const napier_attention_options defaults = NAPIER_ATTENTION_OPTIONS_INIT;
    rng r = rng_make(seed);
    memset(b, 0, sizeof *b);
    b->s = *s;
    b->options = defaults;
    batch_offsets(b);
    b->q = heads_make(s->l, s->head_major, b->queries, s->heads * s->group, s->dim, s->dtype);
    b->k = heads_make(s->l, s->head_major, b->tokens, s->heads, s->dim, s->dtype);
    b->v = heads_make(s->l, s->head_major, b->tokens, s->heads, s->v_dim, s->dtype);
    heads_fill(&b->q, &r);
    heads_fill(&b->k, &r);
    heads_fill(&b->v, &r);
    b->options.causal = s->causal;
    b->options.scale = s->scale;
    b->options.bf16_weights = s->bf16_weights;
    b->options.bf16_gradient = s->bf16_gradient;
    b->options.sequences = s->sequences;
    b->options.query_offsets = b->query_offsets;
    b->options.key_offsets = b->key_offsets;
    b->options.key_end = s->scattered ? b->key_end : NULL;
    if (has_prefixes(s) || s->scattered) {
        b->options.prefix_begin = b->s.prefix_begin;
        b->options.prefix_end = b->s.prefix_end;
    }
    if (s->mask != MASK_NONE) {
        batch_mask(b, &r);
    }
    if (s->grad_lse) {
        const int64_t heads = s->heads * s->group, count = 3 * b->queries * heads + 1;
        float *const numbers = scratch(count, sizeof *numbers);
        for (int64_t i = 0; i < count; i++) {
            numbers[i] = (float)rng_normal(&r);
        }
        b->options.grad_lse = (napier_const_matrix){numbers, b->queries, heads, 3, 3 * b->queries, NAPIER_F32};
    }
}

/* The gradient with respect to the lse of a row; 0 without one. */
static inline float grad_lse_of(const batch *b, int64_t token, int64_t head) {
    const napier_const_matrix m = b->options.grad_lse;
    return m.data ? ((const float *)m.data)[token * m.row_stride + head * m.col_stride] : 0.0f;
}

static inline int64_t sequence_keys(const batch *b, int64_t i) {
    return b->s.own[i] + b->s.prefix_end[i] - b->s.prefix_begin[i];
}
static inline int64_t key_row(const batch *b, int64_t sequence, int64_t place) {
    const int64_t prefix = b->s.prefix_end[sequence] - b->s.prefix_begin[sequence];
    return place < prefix ? b->s.prefix_begin[sequence] + place : b->key_offsets[sequence] + place - prefix;
}
static inline int64_t sequence_of(const batch *b, int64_t token) {
    int64_t i = 0;
    while (token >= b->query_offsets[i + 1]) {
        i++;
    }
    return i;
}

/* What the mask adds: 0 without one, -inf for a key that is hidden, by causality too. */
static inline float mask_value(const batch *b, int64_t token, int64_t head, int64_t place) {
    const int64_t i = sequence_of(b, token), query = token - b->query_offsets[i];
    if (b->s.causal && place > sequence_keys(b, i) - b->s.queries[i] + query) {
        return -INFINITY;
    }
    const int64_t at = token * b->options.mask_token_stride + head * b->options.mask_head_stride + place;
    if (b->s.mask == MASK_BYTES) {
        return ((unsigned char *)b->mask)[at] ? 0.0f : -INFINITY;
    }
    return b->s.mask == MASK_FLOATS ? b->mask[at] : 0.0f;
}

static inline double scale_of(const batch *b) { return b->s.scale == 0.0 ? 1.0 / sqrt((double)b->s.dim) : b->s.scale; }

/* ---- Steps of the orders ----------------------------------------------------------------------------------------- */

static inline float weight(float d) {
    static const float c[] = {
        0x1.3f906cp-13f, 0x1.5f0a66p-10f, 0x1.3b30b0p-7f, 0x1.c6af78p-5f, 0x1.ebfbd8p-3f, 0x1.62e430p-1f, 1.0f};
    if (isnan(d) || d < -125.0f) {
        return isnan(d) ? d : 0.0f;
    }
    const float n = rintf(d + 12583039.0f) - 12583039.0f, f = d - n; /* 1.5 * 2^23 + 127: which way halves go */
    float p = c[0];
    for (int i = 1; i < 7; i++) {
        p = fmaf(p, f, c[i]);
    }
    return ldexpf(p, (int)n);
}

/* Steps of the order of bf16 by bf16. */

static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

/* fma where subnormal operands are 0 and a result is flushed if, rounded to 24 bits of unbounded exponent, it is below
 * 2^-126. */
static inline float fma_flushed(float a, float b, float c) {
    const float x = flushed(a), y = flushed(b), r = fmaf(x, y, c);
    const double exact = (double)x * (double)y + (double)c;
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, r) : r;
}

/* total + a block of at most 32 products, which is filled up with 0. */
static inline float add_pairs(float total, const float *a, const float *b, int64_t n) {
    float sum[2] = {0.0f, 0.0f};
    for (int64_t i = 0; i < 32; i++) {
        sum[i % 2] = fma_flushed(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, sum[i % 2]);
    }
    return flushed(total + flushed(sum[0] + sum[1]));
}

/* Rounded to bf16, to nearest even. */
static inline float bf16_of(float x) { return isnan(x) ? x : (float)dtype_round(NAPIER_BF16, (double)x); }

/* a [token][head] . b [row][g], in the order of bf16 by bf16 or as one chain. */
static inline float ordered_product(const heads_grid *a, int64_t token, int64_t head, const heads_grid *b, int64_t row,
                                    int64_t g, bool pairs) {
    const int64_t dim = a->view.dim;
    float sum = 0.0f;
    for (int64_t i = 0; i < dim && !pairs; i++) {
        sum = fmaf((float)heads_get(a, token, head, i), (float)heads_get(b, row, g, i), sum);
    }
    for (int64_t begin = 0; begin < dim && pairs; begin += 32) {
        const int64_t n = dim - begin < 32 ? dim - begin : 32;
        float x[32], y[32];
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)heads_get(a, token, head, begin + i);
            y[i] = (float)heads_get(b, row, g, begin + i);
        }
        sum = add_pairs(sum, x, y, n);
    }
    return sum;
}

/* The score in units of log 2; -inf where it is hidden. */
static inline float ordered_score(const batch *b, int64_t token, int64_t head, int64_t place, bool pairs) {
    const int64_t row = key_row(b, sequence_of(b, token), place);
    const float factor = (float)(scale_of(b) * 0x1.71547652b82fep+0), mask = mask_value(b, token, head, place);
    if (mask == -INFINITY) {
        return mask;
    }
    const float s = ordered_product(&b->q, token, head, &b->k, row, head / b->s.group, pairs);
    return b->s.mask == MASK_NONE ? s * factor : fmaf(mask, 0x1.715476p+0f, s * factor);
}

/* ---- A row in double precision ----------------------------------------------------------------------------------- */

typedef struct truth {
    int64_t keys;
    double *probs; /* [keys] */
    double lse;    /* -inf: nothing is seen */
    double size;   /* the most that a score's products come to, times the scale */
} truth;

static inline truth truth_of(const batch *b, int64_t token, int64_t head) {
    const int64_t sequence = sequence_of(b, token);
    truth t = {.keys = sequence_keys(b, sequence), .lse = -HUGE_VAL};
    double most = -HUGE_VAL, sum = 0.0;
    t.probs = scratch(t.keys + 1, sizeof *t.probs);
    for (int64_t place = 0; place < t.keys; place++) {
        double score = 0.0, size = 0.0;
        for (int64_t i = 0; i < b->s.dim; i++) {
            const double term = scale_of(b) * heads_get(&b->q, token, head, i) *
                                heads_get(&b->k, key_row(b, sequence, place), head / b->s.group, i);
            score += term;
            size += fabs(term);
        }
        score += (double)mask_value(b, token, head, place);
        t.probs[place] = score;
        if (score > -HUGE_VAL) {
            const double with_mask = size + fabs((double)mask_value(b, token, head, place));
            t.size = with_mask > t.size ? with_mask : t.size;
        }
        most = score > most ? score : most;
    }
    for (int64_t place = 0; place < t.keys; place++) {
        t.probs[place] = most == -HUGE_VAL ? 0.0 : exp(t.probs[place] - most);
        sum += t.probs[place];
    }
    for (int64_t place = 0; place < t.keys && sum > 0; place++) {
        t.probs[place] /= sum;
    }
    t.lse = sum > 0 ? most + log(sum) : -HUGE_VAL;
    return t;
}

static inline double true_output(const batch *b, const truth *t, int64_t token, int64_t head, int64_t i) {
    double sum = 0.0;
    for (int64_t place = 0; place < t->keys; place++) {
        if (t->probs[place] > 0) {
            sum += t->probs[place] * heads_get(&b->v, key_row(b, sequence_of(b, token), place), head / b->s.group, i);
        }
    }
    return sum;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    heads_grid output;
    float *lse; /* [queries, heads] */
} outcome;

static inline napier_matrix lse_view(const batch *b, float *lse) {
    return napier_rows_f32(lse, b->queries, b->s.heads * b->s.group);
}

static inline outcome outcome_make(const batch *b, napier_dtype dtype, layout l, bool head_major) {
    outcome o = {.output = heads_make(l, head_major, b->queries, b->s.heads * b->s.group, b->s.v_dim, dtype)};
    o.lse = scratch(b->queries * b->s.heads * b->s.group + 1, sizeof *o.lse);
    return o;
}
static inline bool run_forward(napier_context *context, const batch *b, outcome *o, const char *what) {
    return succeeded(context,
                     napier_attention(context, read_only(b->q.view), read_only(b->k.view), read_only(b->v.view),
                                      o->output.view, lse_view(b, o->lse), &b->options),
                     what);
}

/* A good call with one thing changed must be refused with these words. */
#define REFUSED(change, ...)                                   \
    do {                                                       \
        call c = good_call();                                  \
        change;                                                \
        invalid(context, make_call(context, &c), __VA_ARGS__); \
    } while (0)

#endif
