/* Attention, backward: against the formula in double precision, which finite differences of the forward in double
 * precision confirm; with bf16_gradient bit for bit against the order of docs/attention.md; the same bits for every instruction set, thread count and stride; gradients of a shared prefix are
 * the sums of the unshared ones; what is hidden or masked gets nothing; arguments that cannot be. */
#include "attention_support.h"

#include <stdio.h>

/* ---- Truth ------------------------------------------------------------------------------------------------------- */

typedef struct gradients {
    double *q, *k, *v;                /* [tokens, heads, dim] */
    double *q_size, *k_size, *v_size; /* what their terms come to without their signs */
} gradients;

static int64_t at(const heads_grid *x, int64_t token, int64_t head, int64_t i) {
    return (token * x->view.heads + head) * x->view.dim + i;
}
static double *zeros(const heads_grid *x) {
    const int64_t count = x->view.tokens * x->view.heads * x->view.dim + 1;
    return memset(scratch(count, sizeof(double)), 0, (size_t)count * sizeof(double));
}

static void true_row(const batch *b, const heads_grid *grad, int64_t token, int64_t head, gradients *g) {
    truth t = truth_of(b, token, head);
    const int64_t kv = head / b->s.group, sequence = sequence_of(b, token);
    double mean = -(double)grad_lse_of(b, token, head), size = fabs(mean);
    for (int64_t i = 0; i < b->s.v_dim; i++) {
        const double term = heads_get(grad, token, head, i) * true_output(b, &t, token, head, i);
        mean += term;
        size += fabs(term);
    }
    for (int64_t place = 0; place < t.keys; place++) {
        const int64_t row = key_row(b, sequence, place);
        double dp = 0.0, dp_size = size;
        for (int64_t i = 0; i < b->s.v_dim; i++) {
            const double x = heads_get(grad, token, head, i), v = heads_get(&b->v, row, kv, i);
            dp += x * v;
            dp_size += fabs(x * v);
            g->v[at(&b->v, row, kv, i)] += t.probs[place] * x;
            g->v_size[at(&b->v, row, kv, i)] += t.probs[place] * fabs(x);
        }
        const double slope = scale_of(b) * t.probs[place] * (dp - mean);
        const double slope_size = fabs(scale_of(b)) * t.probs[place] * dp_size;
        for (int64_t i = 0; i < b->s.dim; i++) {
            const double q = heads_get(&b->q, token, head, i), k = heads_get(&b->k, row, kv, i);
            g->q[at(&b->q, token, head, i)] += slope * k;
            g->q_size[at(&b->q, token, head, i)] += slope_size * fabs(k);
            g->k[at(&b->k, row, kv, i)] += slope * q;
            g->k_size[at(&b->k, row, kv, i)] += slope_size * fabs(q);
        }
    }
}

static gradients true_gradients(const batch *b, const heads_grid *grad) {
    gradients g = {zeros(&b->q), zeros(&b->k), zeros(&b->v), zeros(&b->q), zeros(&b->k), zeros(&b->v)};
    for (int64_t r = 0; r < b->queries * b->q.view.heads; r++) {
        true_row(b, grad, r / b->q.view.heads, r % b->q.view.heads, &g);
    }
    return g;
}
/* ---- Calls ------------------------------------------------------------------------------------------------------- */

typedef struct results {
    outcome forward;
    heads_grid grad, q, k, v;
} results;

static results results_make(const batch *b, layout l, bool head_major) {
    const shape *const s = &b->s;
    results r = {.forward = outcome_make(b, s->dtype, l, head_major),
                 .grad = heads_make(l, head_major, b->queries, s->heads * s->group, s->v_dim, s->dtype),
                 .q = heads_make(l, head_major, b->queries, s->heads * s->group, s->dim, s->dtype),
                 .k = heads_make(l, head_major, b->tokens, s->heads, s->dim, s->dtype),
                 .v = heads_make(l, head_major, b->tokens, s->heads, s->v_dim, s->dtype)};
    rng random = rng_make(77);
    heads_fill(&r.grad, &random);
    return r;
}
static bool run_backward(napier_context *context, const batch *b, const results *r) {
    outcome forward = r->forward;
    const napier_const_matrix lse = napier_const_rows_f32(r->forward.lse, b->queries, b->s.heads * b->s.group);
    return run_forward(context, b, &forward, "forward") &&
           works(napier_attention_backward, context, read_only(r->grad.view), read_only(b->q.view),
                 read_only(b->k.view), read_only(b->v.view), read_only(r->forward.output.view), lse, r->q.view,
                 r->k.view, r->v.view, &b->options);
}

static double worst_of(const heads_grid *got, const double *wanted, const double *size, const char *what) {
    double worst = 0.0;
    const napier_heads x = got->view;
    for (int64_t n = 0; n < x.tokens * x.heads * x.dim; n++) {
        const double value = heads_get(got, n / x.dim / x.heads, n / x.dim % x.heads, n % x.dim);
        const double error = fabs(value - wanted[n]);
        if (size[n] == 0.0) {
            expect(value == 0.0, "%s: element %d is %g, not 0", what, (int)n, value);
        } else {
            worst = fmax(worst, error / size[n]);
        }
    }
    return worst;
}

/* ---- Against the formula ----------------------------------------------------------------------------------------- */

static const shape ragged = {.heads = 2,
                             .group = 2,
                             .dim = 24,
                             .v_dim = 40,
                             .sequences = 7,
                             .queries = {12, 3, 0, 9, 20, 0, 60},
                             .own = {12, 3, 4, 9, 0, 0, 70},
                             .prefix_begin = {0, 0, 0, 30, 10, 0, 5},
                             .prefix_end = {150, 150, 64, 70, 17, 0, 5},
                             .causal = 1,
                             .dtype = NAPIER_F32};

static void check_gradients(const shape *s, uint64_t seed, double bound) {
    batch b;
    batch_make(&b, s, seed);
    b.options.masked_rows = NAPIER_MASKED_ZERO; /* NaN outputs have no truth */
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
    if (run_backward(context, &b, &r)) {
        gradients g = true_gradients(&b, &r.grad);
        const double q = worst_of(&r.q, g.q, g.q_size, "grad_q"), k = worst_of(&r.k, g.k, g.k_size, "grad_k");
        const double v = worst_of(&r.v, g.v, g.v_size, "grad_v");
        print_message("seed %d: errors %.2g, %.2g, %.2g of the terms\n", (int)seed, q, k, v);
        expect(q <= bound && k <= bound && v <= bound, "seed %d: %g, %g, %g are above %g", (int)seed, q, k, v, bound);
    }
}

static void gradients_are_those_of_the_formula(void) {
    for (int mask = 0; mask < 3; mask++) {
        shape s = ragged;
        s.mask = (mask_kind)mask;
        s.causal = mask != 2;
        s.scale = mask == 1 ? -0.2 : 0.0;
        s.grad_lse = mask > 0;
        check_gradients(&s, 10 + (uint64_t)mask, 2e-6);
    }
    shape one = one_sequence(1, 3, 70, 33, 140, 270);
    one.causal = 1;
    check_gradients(&one, 20, 2e-6);
    const shape wide = one_sequence(1, 1, 300, 270, 9, 11);
    check_gradients(&wide, 21, 2e-6);
    shape half = ragged;
    half.dtype = NAPIER_F16;
    check_gradients(&half, 22, 1e-3);
    half.dtype = NAPIER_BF16;
    check_gradients(&half, 23, 8e-3);
    half.bf16_gradient = true; /* one rounding more, of each term */
    check_gradients(&half, 24, 16e-3);
    half.bf16_weights = half.grad_lse = true;
    half.scale = 2.0;
    check_gradients(&half, 25, 16e-3);
}

/* The loss sum grad * output + sum grad_lse * lse in double precision, of the whole batch. */
static double true_loss(const batch *b, const heads_grid *grad) {
    double loss = 0.0;
    const int64_t heads = b->q.view.heads;
    for (int64_t r = 0; r < b->queries * heads; r++) {
        truth t = truth_of(b, r / heads, r % heads);
        loss += (double)grad_lse_of(b, r / heads, r % heads) * t.lse;
        for (int64_t i = 0; i < b->s.v_dim; i++) {
            loss += heads_get(grad, r / heads, r % heads, i) * true_output(b, &t, r / heads, r % heads, i);
        }
    }
    return loss;
}

static void check_difference(batch *b, const heads_grid *grad, heads_grid *x, const double *wanted, int64_t index) {
    const int64_t i = index % x->view.dim, head = index / x->view.dim % x->view.heads;
    const int64_t token = index / x->view.dim / x->view.heads;
    const double middle = heads_get(x, token, head, i), step = 0x1p-10;
    heads_set(x, token, head, i, middle + step);
    const double above = heads_get(x, token, head, i), high = true_loss(b, grad);
    heads_set(x, token, head, i, middle - step);
    const double below = heads_get(x, token, head, i), low = true_loss(b, grad);
    heads_set(x, token, head, i, middle);
    const double slope = (high - low) / (above - below);
    expect(fabs(slope - wanted[index]) <= 1e-5 * (1.0 + fabs(slope)), "element %d: difference %g, formula %g",
           (int)index, slope, wanted[index]);
}

static void the_formula_is_that_of_finite_differences(void) {
    const shape s = {.heads = 1,
                     .group = 2,
                     .dim = 5,
                     .v_dim = 4,
                     .sequences = 2,
                     .queries = {3, 4},
                     .own = {3, 4},
                     .prefix_end = {6, 6},
                     .causal = 1,
                     .mask = MASK_FLOATS,
                     .dtype = NAPIER_F32,
                     .grad_lse = true};
    batch b;
    batch_make(&b, &s, 30);
    results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
    gradients g = true_gradients(&b, &r.grad);
    for (int64_t i = 0; i < 40; i += 3) {
        check_difference(&b, &r.grad, &b.q, g.q, i);
        check_difference(&b, &r.grad, &b.k, g.k, i);
        check_difference(&b, &r.grad, &b.v, g.v, i);
    }
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

static void check_same(const results *a, const results *b, const char *what) {
    expect(heads_differ(&a->q, &b->q) == 0, "%s: grad_q differs", what);
    expect(heads_differ(&a->k, &b->k) == 0, "%s: grad_k differs", what);
    expect(heads_differ(&a->v, &b->v) == 0, "%s: grad_v differs", what);
}

static void check_bits(const shape *s, uint64_t seed) {
    batch b;
    batch_make(&b, s, seed);
    results first = results_make(&b, LAYOUT_CONTIGUOUS, false);
    napier_context *context = NULL;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        results r = results_make(&b, (layout)((uint64_t)run + seed) % LAYOUTS, run % 2 == 1);
        char what[100];
        snprintf(what, sizeof what, "seed %d, run %d", (int)seed, run);
        if (run_backward(context, &b, run == 0 ? &first : &r) && run > 0) {
            check_same(&first, &r, what);
            expect(grid_damage(&r.q.g) + grid_damage(&r.k.g) + grid_damage(&r.v.g) == 0, "%s: wrote outside", what);
        }
    }
}

static void bits_are_the_same_everywhere(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_BF16};
    for (int i = 0; i < 12; i++) {
        shape s = ragged;
        s.dtype = dtypes[i % 4];
        s.bf16_gradient = i % 4 == 3;
        s.bf16_weights = i == 7;
        s.mask = (mask_kind)(i / 4);
        s.causal = i % 2;
        s.scale = i == 5 || i == 11 ? -50.0 : 0.0;
        s.l = (layout)(i % LAYOUTS);
        s.group = i % 4 == 3 ? 5 : 2;
        s.scattered = i % 2 == 1;
        s.grad_lse = i / 4 == 1;
        check_bits(&s, 40 + (uint64_t)i);
        if (i % 3 == 0) { /* without prefixes, every sequence for itself */
            memset(s.prefix_end, 0, sizeof s.prefix_end);
            memset(s.prefix_begin, 0, sizeof s.prefix_begin);
            s.scattered = false;
            check_bits(&s, 60 + (uint64_t)i);
        }
    }
}

/* ---- The order of bf16_gradient ---------------------------------------------------------------------------------- */

/* What is rounded, of a sequence and a head of k: row r is query r / group with head r % group. */
typedef struct rounded {
    int64_t rows, keys;
    float *p, *s; /* [rows][keys] */
} rounded;

/* grad_output . output: 64 chains in turns, folded by halves, for each 256 columns. */
static float ordered_mean(const results *r, int64_t token, int64_t head) {
    const int64_t dim = r->grad.view.dim;
    float mean = 0.0f;
    for (int64_t begin = 0; begin < dim; begin += 256) {
        float sums[64] = {0.0f};
        for (int64_t i = begin; i < dim && i < begin + 256; i++) {
            float *const sum = &sums[(i - begin) % 64];
            *sum = fmaf((float)heads_get(&r->grad, token, head, i),
                        (float)heads_get(&r->forward.output, token, head, i), *sum);
        }
        for (int half = 32; half > 0; half /= 2) {
            for (int i = 0; i < half; i++) {
                sums[i] += sums[i + half];
            }
        }
        mean += sums[0];
    }
    return mean;
}

/* p and s of row `row` of the sequence. */
static void round_row(const batch *b, const results *r, int64_t sequence, int64_t kv, int64_t row, const rounded *x) {
    const int64_t group = b->s.group, head = kv * group + row % group, token = b->query_offsets[sequence] + row / group;
    const float level = r->forward.lse[token * b->s.heads * group + head] * 0x1.715476p+0f;
    const float mean = ordered_mean(r, token, head) - grad_lse_of(b, token, head);
    for (int64_t place = 0; place < x->keys; place++) {
        const float score = ordered_score(b, token, head, place, true), p = weight(score - level);
        const float dp = ordered_product(&r->grad, token, head, &b->v, key_row(b, sequence, place), kv, true);
        const bool hidden = score == -INFINITY || level == -INFINITY;
        x->p[row * x->keys + place] = hidden ? 0.0f : bf16_of(p);
        x->s[row * x->keys + place] = hidden ? 0.0f : bf16_of(p * (dp - mean));
    }
}

static rounded rounded_of(const batch *b, const results *r, int64_t sequence, int64_t kv) {
    rounded x = {b->s.queries[sequence] * b->s.group, sequence_keys(b, sequence), NULL, NULL};
    x.p = scratch(x.rows * x.keys + 1, sizeof *x.p);
    x.s = scratch(x.rows * x.keys + 1, sizeof *x.s);
    for (int64_t row = 0; row < x.rows; row++) {
        round_row(b, r, sequence, kv, row, &x);
    }
    return x;
}

/* Terms of a sum, of the rows of a sequence or of its keys; weights are `step` apart. */
typedef struct terms {
    const batch *b;
    const heads_grid *values;
    int64_t sequence, kv, column, n;
    const float *weights;
    int64_t step;
    bool of_rows;
} terms;

static float value_of(const terms *t, int64_t i) {
    const int64_t group = t->b->s.group;
    return (float)(t->of_rows ? heads_get(t->values, t->b->query_offsets[t->sequence] + i / group,
                                          t->kv * group + i % group, t->column)
                              : heads_get(t->values, key_row(t->b, t->sequence, i), t->kv, t->column));
}

/* 32 at a time, without those whose weight is 0. */
static float ordered_sum(const terms *t, float scale) {
    float sum = 0.0f;
    for (int64_t begin = 0; begin < t->n; begin += 32) {
        float weights[32] = {0.0f}, values[32] = {0.0f};
        for (int64_t i = begin; i < begin + 32 && i < t->n; i++) {
            weights[i - begin] = flushed(t->weights[i * t->step]);
            values[i - begin] = weights[i - begin] == 0.0f ? 0.0f : value_of(t, i);
        }
        sum = add_pairs(sum, weights, values, 32);
    }
    return (sum + 0.0f) * scale;
}

/* Sets or adds to the gradients of a sequence and a head of k. */
static void ordered_gradients(const batch *b, const results *r, int64_t sequence, int64_t kv, float *q, float *k,
                              float *v) {
    const rounded x = rounded_of(b, r, sequence, kv);
    const int64_t group = b->s.group, dim = b->s.dim, v_dim = b->s.v_dim;
    const float scale = (float)scale_of(b);
    const terms of_keys = {b, &b->k, sequence, kv, 0, x.keys, x.s, 1, false};
    const terms of_rows = {b, NULL, sequence, kv, 0, x.rows, NULL, x.keys, true};
    for (int64_t n = 0; n < x.rows * dim; n++) {
        const int64_t row = n / dim, token = b->query_offsets[sequence] + row / group, head = kv * group + row % group;
        terms t = of_keys;
        t.column = n % dim;
        t.weights = x.s + row * x.keys;
        q[at(&b->q, token, head, t.column)] = ordered_sum(&t, scale);
    }
    for (int64_t n = 0; n < x.keys * (dim + v_dim); n++) {
        const int64_t place = n / (dim + v_dim), column = n % (dim + v_dim), row = key_row(b, sequence, place);
        const bool of_k = column < dim;
        terms t = of_rows;
        t.column = of_k ? column : column - dim;
        t.values = of_k ? &b->q : &r->grad;
        t.weights = (of_k ? x.s : x.p) + place;
        *(of_k ? &k[at(&b->k, row, kv, t.column)] : &v[at(&b->v, row, kv, t.column)]) +=
            ordered_sum(&t, of_k ? scale : 1.0f);
    }
}

static float *float_zeros(const heads_grid *x) {
    const int64_t count = x->view.tokens * x->view.heads * x->view.dim + 1;
    return memset(scratch(count, sizeof(float)), 0, (size_t)count * sizeof(float));
}

static void check_elements(const heads_grid *got, const float *wanted, const char *name, int seed) {
    const napier_heads x = got->view;
    int64_t differ = 0;
    for (int64_t n = 0; n < x.tokens * x.heads * x.dim; n++) {
        const double value = (double)wanted[n];
        const uint64_t bits = isnan(value) ? dtype_canonical_nan(x.dtype) : dtype_bits(x.dtype, value);
        differ += heads_bits(got, n / x.dim / x.heads, n / x.dim % x.heads, n % x.dim) != bits;
    }
    expect(differ == 0, "seed %d: %lld elements of %s differ from the order", seed, (long long)differ, name);
}

static void check_ordered(const batch *b, const results *r, int seed) {
    float *const q = float_zeros(&b->q), *const k = float_zeros(&b->k), *const v = float_zeros(&b->v);
    for (int64_t i = 0; i < (b->s.sequences > 0 ? b->s.sequences : 1); i++) {
        for (int64_t kv = 0; kv < b->s.heads; kv++) {
            ordered_gradients(b, r, i, kv, q, k, v);
        }
    }
    check_elements(&r->q, q, "grad_q", seed);
    check_elements(&r->k, k, "grad_k", seed);
    check_elements(&r->v, v, "grad_v", seed);
}

/* The first context against the order, the others against the first. */
static void check_order(const batch *b, const results *with, int seed) {
    results first = {0};
    napier_context *context = NULL;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        const results fresh = results_make(b, (layout)((run + seed) % LAYOUTS), run % 2 == 1);
        const results r = {with->forward, with->grad, fresh.q, fresh.k, fresh.v};
        char what[100];
        snprintf(what, sizeof what, "seed %d, run %d", seed, run);
        if (!run_backward(context, b, &r)) {
            return;
        }
        if (run == 0) {
            first = r;
            check_ordered(b, &r, seed);
        } else {
            check_same(&first, &r, what);
        }
    }
}

static shape bf16_of_shape(shape s) {
    s.dtype = NAPIER_BF16;
    s.bf16_gradient = true;
    return s;
}

static void check_order_of(const shape *s, int seed) {
    batch b;
    batch_make(&b, s, (uint64_t)seed);
    const results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
    check_order(&b, &r, seed);
}

static void bf16_gradients_have_the_bits_of_their_order(void) {
    static const int64_t sizes[][6] = {/* heads of k, group, dim, v_dim, queries, keys */
                                       {1, 1, 1, 1, 1, 1},     {2, 1, 16, 16, 5, 7},     {1, 2, 33, 17, 40, 257},
                                       {2, 3, 32, 64, 30, 90}, {1, 5, 48, 20, 110, 130}, {1, 1, 300, 270, 13, 20},
                                       {1, 30, 8, 8, 9, 31},   {1, 1, 16, 8, 300, 600},  {1, 1, 16, 16, 340, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int causal = 0; causal < 2; causal++) {
            const int64_t *const n = sizes[i];
            shape s = bf16_of_shape(one_sequence(n[0], n[1], n[2], n[3], n[4], n[5]));
            s.causal = causal;
            s.bf16_weights = i % 2 == 1;
            check_order_of(&s, 1000 + (int)i);
        }
    }
}

static void bf16_gradients_in_any_batch(void) {
    static const double scales[] = {0.0, 3.0, -0.3, 1e7, 1e-30};
    for (int i = 0; i < 10; i++) {
        shape s = bf16_of_shape(ragged);
        s.mask = (mask_kind)(i % 3);
        s.causal = i / 3 % 2;
        s.scale = scales[i % 5];
        s.l = (layout)(i % LAYOUTS);
        s.head_major = i % 2 == 1;
        s.scattered = i % 4 < 2;
        s.bf16_weights = i % 4 == 1;
        check_order_of(&s, 1100 + i);
    }
}

/* Numbers of many sizes, subnormal ones among them, which count as 0 even if what they are multiplied with is large. */
static void bf16_gradients_of_tiny_values(void) {
    for (int i = 0; i < 4; i++) {
        shape s = bf16_of_shape(one_sequence(1, 1 + i / 2, 16, 24, 40, 70));
        s.causal = i % 2;
        batch b;
        batch_make(&b, &s, 1200 + (uint64_t)i);
        const results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
        heads_grid grad = r.grad;
        rng random = rng_make(1300 + (uint64_t)i);
        for (int64_t n = 0; n < 40 * s.group * 24; n++) {
            heads_set(&grad, n / 24 / s.group, n / 24 % s.group, n % 24,
                      ldexp(rng_normal(&random), 60 - (int)rng_below(&random, 200)));
        }
        for (int64_t n = 0; n < 70 * 16; n++) {
            heads_set(&b.k, n / 16, 0, n % 16, ldexp(rng_normal(&random), n % 16 < 5 ? -130 : 1));
        }
        check_order(&b, &r, 1200 + i);
    }
}

/* NaN and infinities anywhere: what they are multiplied with may be 0, and then they add nothing. */
static void bf16_gradients_of_special_values(void) {
    for (int i = 0; i < 16; i++) {
        shape s = bf16_of_shape(one_sequence(1, 2, 24, 40, 50, 300));
        s.causal = i % 2;
        s.mask = i / 8 ? MASK_FLOATS : MASK_NONE;
        batch b;
        batch_make(&b, &s, 1400 + (uint64_t)i);
        results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
        heads_grid *const into[4] = {&b.q, &b.k, &b.v, &r.grad};
        heads_grid *const x = into[i / 2 % 4];
        heads_set(x, x->view.tokens - 3, 0, 5, i % 3 ? (double)INFINITY : (double)NAN);
        heads_set(x, 3, 0, 7, -(double)INFINITY);
        check_order(&b, &r, 1400 + i);
    }
}

/* Unshared, each sequence has its own gradient of the prefix; shared, their sum in order. */
static void shared_gradients_are_sums(napier_context *context) {
    const shape s = {.heads = 2,
                     .group = 2,
                     .dim = 16,
                     .v_dim = 16,
                     .sequences = 3,
                     .queries = {5, 9, 2},
                     .own = {5, 9, 2},
                     .prefix_end = {140, 140, 33},
                     .causal = 1,
                     .dtype = NAPIER_F32};
    batch b;
    batch_make(&b, &s, 80);
    results all = results_make(&b, LAYOUT_CONTIGUOUS, false), sum = results_make(&b, LAYOUT_CONTIGUOUS, false);
    results one = results_make(&b, LAYOUT_CONTIGUOUS, false);
    run_backward(context, &b, &all);
    memset(sum.k.g.view.data, 0, (size_t)(b.tokens * 32) * sizeof(float));
    memset(sum.v.g.view.data, 0, (size_t)(b.tokens * 32) * sizeof(float));
    for (int64_t i = 0; i < s.sequences; i++) {
        batch alone = b;
        alone.s.sequences = 3; /* the others have no queries */
        for (int64_t j = 0; j <= 3; j++) {
            alone.query_offsets[j] = j <= i ? 0 : b.query_offsets[i + 1] - b.query_offsets[i];
        }
        alone.options.query_offsets = alone.query_offsets;
        alone.queries = alone.query_offsets[3];
        const int64_t skip = b.query_offsets[i] * 64;
        napier_heads *const views[] = {&alone.q.view, &one.grad.view, &one.q.view, &one.forward.output.view};
        for (int n = 0; n < 4; n++) {
            views[n]->tokens = alone.queries;
        }
        alone.q.view.data = (float *)b.q.view.data + skip;
        one.grad.view.data = (float *)all.grad.view.data + skip;
        run_backward(context, &alone, &one);
        for (int64_t n = 0; n < b.tokens * 32; n++) {
            ((float *)sum.k.view.data)[n] += ((float *)one.k.view.data)[n];
            ((float *)sum.v.view.data)[n] += ((float *)one.v.view.data)[n];
        }
        expect(memcmp(one.q.view.data, (float *)all.q.view.data + skip, (size_t)(alone.queries * 64) * sizeof(float)) ==
                   0,
               "grad_q of sequence %d knows its batch", (int)i);
    }
    expect(heads_differ(&all.k, &sum.k) == 0, "grad_k is not the sum over sequences");
    expect(heads_differ(&all.v, &sum.v) == 0, "grad_v is not the sum over sequences");
}

/* ---- Special values ---------------------------------------------------------------------------------------------- */

/* A NaN in a query reaches the keys it sees, one in a key the queries that see it, and nothing else. */
static void nan_touches_only_what_it_is_seen_by(void) {
    shape s = one_sequence(1, 1, 16, 16, 40, 40);
    s.causal = 1;
    for (int run = 0; run < 8; run++) {
        const int kind = run % 4;
        batch b;
        s = run < 4 ? s : bf16_of_shape(s);
        batch_make(&b, &s, 90);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        results r = results_make(&b, LAYOUT_CONTIGUOUS, false), plain = results_make(&b, LAYOUT_CONTIGUOUS, false);
        run_backward(context, &b, &plain);
        const int64_t at_token = kind < 2 ? 3 : 36; /* an early query, or a late key */
        heads_set(kind == 0 ? &b.q : kind == 1 ? &r.grad : kind == 2 ? &b.k : &b.v, at_token, 0, 1, (double)NAN);
        run_backward(context, &b, &r);
        for (int64_t t = 0; t < 40; t++) {
            const bool query_sees = kind < 2 ? t == at_token : t >= at_token;
            expect(isnan(heads_get(&r.q, t, 0, 0)) == query_sees, "kind %d: grad_q %d is %g", kind, (int)t,
                   heads_get(&r.q, t, 0, 0));
            if (kind < 2) {
                expect(isnan(heads_get(&r.k, t, 0, 0)) == (t <= at_token), "kind %d: grad_k %d is %g", kind, (int)t,
                       heads_get(&r.k, t, 0, 0));
            }
            if (!query_sees) {
                expect(heads_bits(&r.q, t, 0, 5) == heads_bits(&plain.q, t, 0, 5), "kind %d: grad_q %d changed", kind,
                       (int)t);
            }
        }
    }
}

/* Whatever the scores are: the forward may have rounded to -inf what the backward does not. */
static void nothing_flows_to_a_row_without_weight(napier_context *context) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        shape s = one_sequence(1, 1, 16, 16, 5, 7);
        s.dtype = NAPIER_BF16;
        s.bf16_gradient = bf16 == 1;
        batch b;
        batch_make(&b, &s, 97);
        const float grad_lse[5] = {1.0f, -2.0f, NAN, 0.5f, 3.0f};
        b.options.grad_lse = napier_const_rows_f32(grad_lse, 5, 1);
        const results r = results_make(&b, LAYOUT_CONTIGUOUS, false), all = results_make(&b, LAYOUT_CONTIGUOUS, false);
        run_backward(context, &b, &all);
        memcpy(r.forward.lse, all.forward.lse, 5 * sizeof(float));
        r.forward.lse[2] = -INFINITY;
        succeeded(context,
                  napier_attention_backward(context, read_only(all.grad.view), read_only(b.q.view), read_only(b.k.view),
                                            read_only(b.v.view), read_only(all.forward.output.view),
                                            napier_const_rows_f32(r.forward.lse, 5, 1), r.q.view, r.k.view, r.v.view,
                                            &b.options),
                  "an lse of -inf");
        for (int64_t n = 0; n < 5 * 16; n++) {
            const bool same = heads_bits(&r.q, n / 16, 0, n % 16) == heads_bits(&all.q, n / 16, 0, n % 16);
            expect(n / 16 == 2 ? heads_get(&r.q, 2, 0, n % 16) == 0.0 : same, "element %d of grad_q is %g", (int)n,
                   heads_get(&r.q, n / 16, 0, n % 16));
        }
        expect(heads_differ(&r.k, &all.k) > 0, "the row still flows to the keys");
    }
}

/* No queries: nothing flows to the keys. No keys: the outputs are masked, and nothing flows to the queries. */
static void nothing_to_do(void) {
    for (int run = 0; run < 4; run++) {
        const bool keys = run % 2 == 1;
        shape s = one_sequence(2, 2, 8, 8, keys ? 0 : 5, keys ? 5 : 0);
        s = run < 2 ? s : bf16_of_shape(s);
        batch b;
        batch_make(&b, &s, 95);
        b.options.masked_rows = NAPIER_MASKED_ZERO;
        if (keys) {
            b.q.view.data = NULL;
        } else {
            b.k.view.data = b.v.view.data = NULL;
        }
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        results r = results_make(&b, LAYOUT_CONTIGUOUS, false);
        run_backward(context, &b, &r);
        const heads_grid *const grad = keys ? &r.k : &r.q;
        for (int i = 0; i < 5 * (keys ? 2 : 4) * 8; i++) {
            const double value = element_get(grad->view.data, s.dtype, i);
            expect(value == 0.0, "%s: element %d is %g", keys ? "grad_k" : "grad_q", i, value);
        }
    }
}

/* ---- What cannot be ---------------------------------------------------------------------------------------------- */

typedef struct call {
    napier_const_heads grad, q, k, v, output;
    napier_const_matrix lse;
    napier_heads grad_q, grad_k, grad_v;
    napier_attention_options options;
} call;

static float memory[4096];

static call good_call(void) {
    return (call){.grad = {memory + 700, 4, 4, 4, 16, 4, 1, NAPIER_F32},
                  .q = {memory, 4, 4, 8, 32, 8, 1, NAPIER_F32},
                  .k = {memory + 200, 6, 2, 8, 16, 8, 1, NAPIER_F32},
                  .v = {memory + 400, 6, 2, 4, 8, 4, 1, NAPIER_F32},
                  .output = {memory + 600, 4, 4, 4, 16, 4, 1, NAPIER_F32},
                  .lse = {memory + 800, 4, 4, 4, 1, NAPIER_F32},
                  .grad_q = {memory + 1000, 4, 4, 8, 32, 8, 1, NAPIER_F32},
                  .grad_k = {memory + 1200, 6, 2, 8, 16, 8, 1, NAPIER_F32},
                  .grad_v = {memory + 1400, 6, 2, 4, 8, 4, 1, NAPIER_F32},
                  .options = NAPIER_ATTENTION_OPTIONS_INIT};
}

static napier_status make_call(napier_context *context, const call *c) {
    return napier_attention_backward(context, c->grad, c->q, c->k, c->v, c->output, c->lse, c->grad_q, c->grad_k,
                                     c->grad_v, &c->options);
}

static void wrong_arguments_are_named(napier_context *context) {
    call good = good_call();
    succeeded(context, make_call(context, &good), "a good call");
    good.grad_q.data = good.grad_v.data = NULL;
    succeeded(context, make_call(context, &good), "grad_k alone");
    REFUSED(c.grad.dim = 3, "grad_output", "4 x 4 x 3");
    REFUSED(c.grad.data = NULL, "grad_output", "NULL");
    REFUSED(c.output.tokens = 3, "output", "3 x 4 x 4");
    REFUSED(c.lse.rows = 5, "lse", "5 x 4");
    REFUSED(c.lse.dtype = NAPIER_F64, "lse", "f64");
    REFUSED(c.lse.data = NULL, "lse", "NULL");
    REFUSED((c.options.grad_lse = c.lse, c.options.grad_lse.rows = 5), "options: grad_lse", "5 x 4");
    REFUSED((c.options.grad_lse = c.lse, c.options.grad_lse.dtype = NAPIER_BF16), "options: grad_lse", "bf16");
    REFUSED((c.options.grad_lse = c.lse, c.options.grad_lse.data = c.grad_k.data), "grad_k",
            "overlaps options: grad_lse");
    REFUSED(c.grad_q.dim = 4, "grad_q", "4 x 4 x 4");
    REFUSED(c.grad_k.heads = 4, "grad_k", "6 x 4 x 8");
    REFUSED(c.grad_v.dtype = NAPIER_F64, "grad_v", "f64");
    REFUSED(c.grad_q.data = memory + 8, "grad_q", "overlaps q");
    REFUSED(c.grad_k.data = memory + 790, "grad_k", "overlaps");
    REFUSED(c.grad_v.data = memory + 1201, "grad_v", "overlaps grad_k");
    REFUSED(c.grad_v.token_stride = 7, "grad_v", "overlap");
    REFUSED(c.options.sequences = -1, "sequences -1");
    REFUSED(c.options.bf16_gradient = 1, "q: dtype f32", "bf16_gradient");
    REFUSED((c.options.bf16_gradient = 1, c.q.dtype = c.v.dtype = NAPIER_BF16), "k: dtype f32", "bf16_gradient");
    REFUSED((c.options.bf16_gradient = 1, c.q.dtype = c.k.dtype = NAPIER_BF16, c.v.dtype = NAPIER_F16), "v: dtype f16",
            "bf16_gradient");
    REFUSED((c.options.bf16_gradient = -1, c.q.dtype = c.k.dtype = c.v.dtype = NAPIER_BF16), "grad_output: dtype f32",
            "bf16_gradient");
    good = good_call();
    good.options.bf16_gradient = 1;
    good.q.dtype = good.k.dtype = good.v.dtype = good.grad.dtype = NAPIER_BF16;
    succeeded(context, make_call(context, &good), "bf16, with an output and gradients of f32");
}

int main(void) {
    return RUN_TESTS(
        "attention_backward", TEST(gradients_are_those_of_the_formula), TEST(the_formula_is_that_of_finite_differences),
        TEST(bits_are_the_same_everywhere), TEST(bf16_gradients_have_the_bits_of_their_order),
        TEST(bf16_gradients_in_any_batch), TEST(bf16_gradients_of_tiny_values), TEST(bf16_gradients_of_special_values),
        TEST_2(shared_gradients_are_sums), TEST(nan_touches_only_what_it_is_seen_by),
        TEST_1(nothing_flows_to_a_row_without_weight), TEST(nothing_to_do), TEST_1(wrong_arguments_are_named));
}
